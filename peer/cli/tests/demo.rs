//! `scatter demo`: serves, lets a peer be killed and started again, leaves nothing behind.

mod common;

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::process::{end, ends, real, signal};
use rustix::process::{Pid, Signal, kill_process};
use screen::trial::Tmux;

/// A running `scatter demo` and its output.
struct Demo {
    child: Child,
    text: String,
    /// Process id and RESP address of each peer.
    peers: Vec<(i32, SocketAddr)>,
    directory: tempfile::TempDir,
}

impl Demo {
    fn start(peers: &str) -> Demo {
        // A place of its own, to check that nothing stays behind.
        let directory = tempfile::tempdir().unwrap();
        let mut child = real(&["demo", "--peers", peers, "--no-ui"])
            .env("TMPDIR", directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut text = String::new();
        while !text.ends_with("demo ready\n") {
            assert!(out.read_line(&mut text).unwrap() > 0, "ended early: {text}");
        }
        let word = |line: &str, name: &str| line.split(' ').find_map(|w| w.strip_prefix(name).map(str::to_owned));
        let peers = text
            .lines()
            .filter_map(|line| Some((word(line, "pid=")?.parse().ok()?, word(line, "resp=")?.parse().ok()?)))
            .collect();
        Demo { child, text, peers, directory }
    }

    fn wait_for_peers_to_end(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.peers.iter().any(|(_, address)| TcpStream::connect(address).is_ok()) {
            assert!(Instant::now() < deadline, "peers outlive the demo");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_demo_starts_serves_and_leaves_nothing_behind() {
    let mut demo = Demo::start("3");
    assert_eq!(demo.peers.len(), 3);
    for (_, address) in &demo.peers {
        ends(&real(&["set", "a", "1", "--addr", &address.to_string()]).output().unwrap(), 0, "OK\n");
    }
    // A killed peer comes back at the same place by the printed command line.
    let (pid, address) = demo.peers[1];
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let gone = || TcpStream::connect(address).is_err();
    while !gone() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let line = demo.text.lines().find(|line| line.starts_with("peer 2: ") && line.contains(" run ")).unwrap();
    let mut again = Command::new("sh")
        .args(["-c", &format!("exec {}", line.trim_start_matches("peer 2: "))])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(again.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert!(ready.contains(&format!("resp={address}")), "{ready}");
    signal(&again, Signal::TERM);
    assert_eq!(end(&mut again, Duration::from_secs(10)).0, Some(0));

    signal(&demo.child, Signal::INT);
    assert_eq!(end(&mut demo.child, Duration::from_secs(15)).0, Some(0));
    demo.wait_for_peers_to_end();
    assert_eq!(std::fs::read_dir(demo.directory.path()).unwrap().count(), 0, "nothing stays behind");
}

#[test]
fn peers_end_with_a_demo_that_is_killed() {
    let mut demo = Demo::start("2");
    demo.child.kill().unwrap();
    demo.child.wait().unwrap();
    demo.wait_for_peers_to_end();
}

/// A SIGHUP ends it in order also where its standard output is no terminal.
#[test]
fn a_hangup_leaves_nothing_behind() {
    if environment::is_hangup_ignored() {
        return println!("skipped: SIGHUP is ignored here, as under nohup");
    }
    let mut demo = Demo::start("1");
    signal(&demo.child, Signal::HUP);
    assert_eq!(end(&mut demo.child, Duration::from_secs(15)).0, Some(0));
    demo.wait_for_peers_to_end();
    assert_eq!(std::fs::read_dir(demo.directory.path()).unwrap().count(), 0, "nothing stays behind");
}

/// Returns the peers with files in this directory, with their command lines.
fn peers(directory: &Path) -> Vec<(Pid, String)> {
    let here = directory.display().to_string();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read_to_string(process.path().join("cmdline")).ok()?;
        (line.contains(&here) && line.contains("--data-dir")).then_some((Pid::from_raw(pid)?, line))
    })
    .collect()
}

/// The terminal's window is closed: of the demo and its peers nothing is left, neither processes nor files.
#[test]
fn a_demo_whose_terminal_goes_leaves_nothing_behind() {
    for (more, shown) in [("--no-ui", "demo ready"), ("", "Chirp, as ann sees it")] {
        let Some(tmux) = Tmux::start("scatter-demo-gone", &[]) else { return };
        let directory = tempfile::tempdir().unwrap();
        let program = env!("CARGO_BIN_EXE_scatter");
        tmux.begin(&format!("TMPDIR={} {program} demo --peers 1 {more}", directory.path().display()));
        tmux.shows(shown);
        assert_eq!(peers(directory.path()).len(), 1);
        drop(tmux);
        let deadline = Instant::now() + Duration::from_secs(15);
        let left = || (peers(directory.path()).len(), std::fs::read_dir(directory.path()).unwrap().count());
        while left() != (0, 0) {
            assert!(Instant::now() < deadline, "{more}: {:?}", left());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// As users see it: several groups, users who post, a peer killed and started, and nothing left behind.
#[test]
fn a_demo_with_a_dashboard() {
    let Some(tmux) = Tmux::start("scatter-demo", &[]) else { return };
    let directory = tempfile::tempdir().unwrap();
    tmux.resize(160, 48);
    let program = env!("CARGO_BIN_EXE_scatter");
    tmux.begin(&format!("TMPDIR={} {program} demo --peers 7", directory.path().display()));
    tmux.shows("Chirp, as ann sees it");
    tmux.shows("then I am in");
    tmux.shows("ring of 2");
    let running = || peers(directory.path()).len();
    assert_eq!(running(), 7);
    tmux.keys(&["K"]);
    tmux.shows("was killed");
    assert_eq!(running(), 6);
    tmux.keys(&["S"]);
    tmux.shows("starts again");
    tmux.keys(&["S"]);
    tmux.shows("peer-8 is new");
    assert_eq!(running(), 8);
    // The ring's legend has the members of each group, as "4m".
    let members = |screen: &str| -> u32 {
        screen.split_whitespace().filter_map(|word| word.strip_suffix('m')?.parse::<u32>().ok()).sum()
    };
    tmux.until("eight members", |screen| members(screen) == 8);
    // A peer that ends without a kill by the demo is reported.
    let second = peers(directory.path()).into_iter().find(|(_, line)| line.contains("peer-2\0")).unwrap().0;
    kill_process(second, Signal::KILL).unwrap();
    tmux.shows("peer-2 ended (signal: 9");
    tmux.keys(&["C-c"]);
    tmux.ends(0);
    assert_eq!((running(), std::fs::read_dir(directory.path()).unwrap().count()), (0, 0));
}
