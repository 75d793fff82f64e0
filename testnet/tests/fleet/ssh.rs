//! Hosts that are reached by `ssh`: several servers of our own on loopback, with keys made here.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Lab, free_ports, is_there};

const SSHD: &str = "/usr/sbin/sshd";

/// One server; it ends with this.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn keygen(file: &Path) {
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(file)
        .stdin(Stdio::null())
        .status();
    assert!(made.is_ok_and(|status| status.success()), "a key can be made");
}

fn only_for_owner(file: &Path) {
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("it is ours");
}

/// Keys of one test.
struct Keys {
    client: PathBuf,
    other: PathBuf,
}

impl Keys {
    fn new(lab: &Lab) -> Keys {
        let keys = Keys { client: lab.directory.join("client"), other: lab.directory.join("other") };
        keygen(&keys.client);
        keygen(&keys.other);
        keygen(&lab.directory.join("server"));
        let allowed = lab.directory.join("allowed");
        fs::copy(keys.client.with_extension("pub"), &allowed).expect("it was made");
        only_for_owner(&allowed);
        keys
    }
}

fn serve(lab: &Lab) -> Server {
    let port = free_ports(1);
    let at = |name: &str| lab.directory.join(name).display().to_string();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nPermitRootLogin yes\n",
        at("server"),
        at("allowed")
    );
    let file = lab.directory.join(format!("sshd-{port}"));
    fs::write(&file, config).expect("a file can be written");
    let _ = fs::create_dir("/run/sshd");
    let child =
        Command::new(SSHD).args(["-D", "-e", "-f"]).arg(&file).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    let server = Server { child: child.expect("the server can be started"), port };
    let until = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "the server listens");
        std::thread::sleep(Duration::from_millis(20));
    }
    server
}

/// Returns a host of an inventory.
fn host(lab: &Lab, name: &str, port: u16, key: &Path, peers: u16) -> String {
    let user =
        String::from_utf8_lossy(&Command::new("id").arg("-un").output().expect("a user").stdout).trim().to_owned();
    let options = ["-p", &port.to_string(), "-i", &key.display().to_string(), "-o", "IdentitiesOnly=yes"];
    let more = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"];
    let list: Vec<String> = options.iter().chain(&more).map(|word| format!("{word:?}")).collect();
    format!(
        "[[host]]\nname = \"{name}\"\nkind = \"ssh\"\npeers = {peers}\nports = {}\naddress = \"127.0.0.1\"\n\
         ssh = \"{user}@127.0.0.1\"\nssh-options = [{}]\ndirectory = {:?}\nlabels = {{ site = \"{name}\" }}\n",
        free_ports(3 * peers),
        list.join(", "),
        lab.directory.join("remote").display().to_string(),
    )
}

#[test]
fn peers_run_on_hosts_that_ssh_reaches() {
    if !is_there(SSHD) {
        return eprintln!("SKIPPED: there is no {SSHD}");
    }
    let lab = Lab::new();
    let keys = Keys::new(&lab);
    let servers = [serve(&lab), serve(&lab), serve(&lab)];
    let hosts = |key: &Path| -> String {
        let names = ["east", "west", "north"].iter().zip(&servers);
        names.map(|(name, server)| host(&lab, name, server.port, key, 2)).collect()
    };
    lab.write(&hosts(&keys.other));
    let why = lab.refused("up", &[]);
    assert!(why.contains("nothing was started") && why.contains("Permission denied"), "{why}");
    let good = hosts(&keys.client);
    lab.write(&format!("{good}{}", host(&lab, "gone", free_ports(1), &keys.client, 1)));
    let why = lab.refused("up", &[]);
    assert!(why.contains("host gone: ssh cannot connect"), "{why}");
    lab.write(&good);
    assert!(lab.run("up", &[]).contains("6 peers serve, 6 of them started now"));
    let seen = lab.run("load", &["--minutes", "0.05"]);
    assert!(seen.contains("linearizable, and no acknowledged write is missing"), "{seen}");
    assert!(lab.run("status", &[]).contains("north-1"));
    assert!(lab.run("down", &["--wipe"]).contains("nothing is left"));
    assert_eq!(lab.processes().len(), servers.len(), "only the servers are left");
}
