//! The soak and the short forms.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Lab, free_ports};

#[test]
fn a_soak_ends_with_a_verdict_and_leaves_nothing() {
    let lab = Lab::new();
    lab.write_local("memory", 8);
    let state = lab.directory.join("state");
    let mut soak = Command::new(env!("CARGO_BIN_EXE_scatter-testnet"));
    soak.arg("soak").arg(lab.inventory()).args(["--hours", "0.008", "--lifetime", "100s", "--seed", "5"]);
    soak.env("SCATTER_TESTNET_STATE", &state).env("SCATTER_BIN", testnet::live::program());
    let output = soak.output().expect("the program can be started");
    let text = super::text_of(&output);
    assert!(output.status.success() && text.contains("all peers served again after each round"), "{text}");
    assert!(text.contains("seed 5"), "{text}");
    assert_eq!(lab.processes(), [0; 0]);
    assert_eq!(std::fs::read_dir(&state).expect("it is there").count(), 0);
}

#[test]
fn local_peers_run_until_an_interrupt() {
    let lab = Lab::new();
    let port = free_ports(9);
    let mut local = Command::new(env!("CARGO_BIN_EXE_scatter-testnet"));
    local.args(["local", "--peers", "3", "--ports", &port.to_string()]);
    local.env("SCATTER_TESTNET_STATE", lab.directory.join("state")).env("SCATTER_BIN", testnet::live::program());
    let mut local = local.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the program can be started");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(local.stdout.take().expect("a pipe")));
    let wanted = format!("here-0: resp 127.0.0.1:{}, http 127.0.0.1:{}", port + 1, port + 2);
    assert_eq!(lines.next().and_then(Result::ok), Some(wanted));
    assert!(lines.any(|line| line.is_ok_and(|line| line.starts_with("ready"))));
    let interrupt = Command::new("kill").args(["-INT", &local.id().to_string()]).status();
    assert!(interrupt.is_ok_and(|status| status.success()));
    assert!(local.wait().is_ok_and(|status| status.success()));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(lab.processes(), [0; 0]);
}
