//! The dashboard for real, in a terminal of tmux: keys, sizes, and the terminal as it was before.

use std::process::Command;
use std::time::{Duration, Instant};

use super::common::installed;
use super::common::process::{Peer, real};

/// A server of tmux of its own, with one window; gone with this.
struct Tmux {
    socket: String,
}

impl Tmux {
    /// With a shell of so many columns and rows that has these variables.
    fn start(name: &str, size: (u16, u16), variables: &[(&str, &str)]) -> Tmux {
        let tmux = Tmux { socket: format!("scatter-top-{}-{name}", std::process::id()) };
        let (columns, rows) = (size.0.to_string(), size.1.to_string());
        let mut words = vec!["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &rows];
        let pairs: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.iter().for_each(|pair| words.extend(["-e", pair]));
        words.push("PS1='$ ' exec sh");
        tmux.run(&words);
        tmux
    }

    fn run(&self, words: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-L", &self.socket])
            .args(words)
            .env("LC_ALL", "C.UTF-8")
            .env_remove("TMUX")
            .output()
            .unwrap();
        assert!(output.status.success(), "tmux {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// What is on the screen.
    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// Waits until the screen is so.
    #[track_caller]
    fn until(&self, what: &str, so: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let screen = self.screen();
            if so(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "{what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn shows(&self, part: &str) -> String {
        self.until(part, |screen| screen.contains(part))
    }

    /// What the terminal is set to, as the shell's own command tells: printed once the program has ended.
    #[track_caller]
    fn is_as_before(&self, code: &str) {
        self.shows(&format!("ended {code}"));
        self.keys(&["stty -a | tr ';' '\\n' | grep -o -e '-*icanon' -e '-*echo ' -e '-*isig'; echo checked", "Enter"]);
        // Twice: as it was typed, and as it was printed.
        let screen = self.until("checked", |screen| screen.lines().any(|line| line == "checked"));
        for setting in ["icanon", "isig"] {
            assert!(screen.lines().any(|line| line.trim() == setting), "{setting} is off:\n{screen}");
        }
        assert_eq!(self.run(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).trim(), "0 1");
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-L", &self.socket, "kill-server"]).env_remove("TMUX").output();
    }
}

/// A peer, and a terminal in which `scatter top` is started on it.
fn started(name: &str, variables: &[(&str, &str)]) -> Option<(tempfile::TempDir, Peer, Tmux)> {
    if !installed("tmux", &["-V"]) {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().display().to_string();
    let mut command = real(&["run", "--new", "--network", "top-tmux", "--data-dir", &data]);
    command.args(["--listen", "/ip4/127.0.0.1/tcp/0", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    let peer = Peer::with(command, &[]);
    let tmux = Tmux::start(name, (80, 24), variables);
    tmux.keys(&[&format!("{} top --http {}; echo ended $?", env!("CARGO_BIN_EXE_scatter"), peer.http), "Enter"]);
    tmux.shows("used / given");
    Some((directory, peer, tmux))
}

#[test]
fn keys_sizes_and_the_end() {
    let Some((_directory, peer, tmux)) = started("keys", &[]) else { return };
    let screen = tmux.shows("ring of 1");
    assert!(
        screen.lines().next().is_some_and(|line| line.contains("scatter top") && line.contains(&peer.http)),
        "{screen}"
    );
    assert!(tmux.run(&["capture-pane", "-p", "-e"]).contains("\x1b["), "there are colours");
    tmux.keys(&["2"]);
    tmux.shows("groups: 1");
    tmux.keys(&["Right"]);
    tmux.shows("peers: 1");
    tmux.keys(&["Tab"]);
    tmux.shows("events, in UTC");
    tmux.keys(&["/"]);
    tmux.shows("only rows with");
    tmux.keys(&["zzz", "Enter"]);
    tmux.shows("nothing with this text");
    tmux.keys(&["Escape"]);
    tmux.until("without a filter", |screen| !screen.contains("nothing with this text"));
    tmux.keys(&["?"]);
    tmux.shows("any key goes back");
    tmux.keys(&["x", "f"]);
    tmux.shows("FROZEN");
    tmux.keys(&["1"]);
    tmux.run(&["resize-window", "-x", "200", "-y", "60"]);
    let large = tmux.until("the large picture", |screen| screen.contains("peers: 1") && screen.contains("p50"));
    assert!(large.lines().nth(59).is_some_and(|line| line.starts_with("q end")), "{large}");
    tmux.run(&["resize-window", "-x", "30", "-y", "8"]);
    tmux.shows("too small");
    tmux.run(&["resize-window", "-x", "80", "-y", "24"]);
    tmux.shows("used / given");
    tmux.keys(&["q"]);
    tmux.is_as_before("0");
}

#[test]
fn interrupts_and_signals_end_it_well() {
    let Some((_directory, peer, tmux)) = started("signals", &[("NO_COLOR", "1")]) else { return };
    let again = format!("clear; {} top --http {}; echo ended $?", env!("CARGO_BIN_EXE_scatter"), peer.http);
    let colour = tmux.run(&["capture-pane", "-p", "-e"]);
    let coloured =
        |code: &str| (30..38).chain(90..98).any(|n| code == n.to_string() || code.starts_with(&format!("{n};")));
    let codes = colour.split("\x1b[").skip(1).filter_map(|rest| rest.split_once('m').map(|(code, _)| code));
    assert!(codes.filter(|code| coloured(code)).count() == 0, "NO_COLOR is set:\n{colour:?}");
    tmux.keys(&["C-c"]);
    tmux.is_as_before("0");
    for (signal, code) in [("TERM", "143"), ("INT", "130"), ("HUP", "129")] {
        tmux.keys(&[&again, "Enter"]);
        tmux.shows("used / given");
        let pids = tmux.run(&["display-message", "-p", "#{pane_pid}"]);
        // The shell's only child.
        let child = Command::new("ps").args(["-o", "pid=", "--ppid", pids.trim()]).output().unwrap();
        let child = String::from_utf8_lossy(&child.stdout).split_whitespace().next().unwrap_or_default().to_owned();
        assert!(Command::new("kill").args([&format!("-{signal}"), &child]).status().unwrap().success());
        tmux.is_as_before(code);
    }
}

/// The peer dies: it is said, keys go on, and another that answers is shown.
#[test]
fn a_peer_that_dies_is_said_to_be_gone() {
    let Some((_directory, peer, tmux)) = started("gone", &[]) else { return };
    drop(peer);
    tmux.shows("asking again");
    tmux.shows(" OLD");
    tmux.keys(&["2"]);
    tmux.shows("groups: 1");
    tmux.keys(&["q"]);
    tmux.is_as_before("0");
}
