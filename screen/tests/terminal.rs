//! The terminal as it was before, however a program ends: for real, under tmux.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A server of tmux of its own with a shell; gone with this.
struct Tmux(String);

impl Tmux {
    /// `None` where there is no tmux.
    fn start(name: &str) -> Option<Tmux> {
        let there = Command::new("tmux").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
        if !there {
            eprintln!("skipped: tmux does not run here");
            return None;
        }
        let tmux = Tmux(format!("screen-{}-{name}", std::process::id()));
        tmux.run(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "80",
            "-y",
            "24",
            "-e",
            "RUST_BACKTRACE=0",
            "PS1='$ ' exec sh",
        ]);
        Some(tmux)
    }

    fn run(&self, words: &[&str]) -> String {
        let output =
            Command::new("tmux").args(["-L", &self.0]).args(words).env("LC_ALL", "C.UTF-8").env_remove("TMUX").output();
        let output = output.unwrap();
        assert!(output.status.success(), "tmux {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    #[track_caller]
    fn until(&self, what: &str, so: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let screen = self.run(&["capture-pane", "-p"]);
            if so(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "{what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts the program in the shell; it is there when this returns.
    fn begin(&self, how: &str) {
        let program = program().display().to_string();
        self.keys(&[&format!("clear; {program} {how}; echo ended $?"), "Enter"]);
        self.until("it begins", |screen| screen.contains("shown: press a key"));
    }

    /// The program has ended so, and said that; the shell has its terminal as before.
    #[track_caller]
    fn is_as_before(&self, code: &str, said: &str) {
        let ended = format!("ended {code}");
        let screen = self.until(&ended, |screen| screen.lines().any(|line| line == ended));
        assert!(screen.contains(said) && !screen.contains("shown:"), "{said}:\n{screen}");
        self.keys(&[
            "clear; stty -a | tr ';' '\\n' | tr ' ' '\\n' | grep -e icanon -e isig -e '^-*echo$'; echo checked",
            "Enter",
        ]);
        let screen = self.until("checked", |screen| screen.lines().any(|line| line == "checked"));
        for setting in ["icanon", "isig"] {
            assert!(screen.lines().any(|line| line == setting), "{setting} is off:\n{screen}");
        }
        assert_eq!(self.run(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).trim(), "0 1");
    }

    /// The process id of what runs in the shell.
    fn child(&self) -> String {
        let shell = self.run(&["display-message", "-p", "#{pane_pid}"]);
        let child = Command::new("ps").args(["-o", "pid=", "--ppid", shell.trim()]).output().unwrap();
        String::from_utf8_lossy(&child.stdout).split_whitespace().next().unwrap_or_default().to_owned()
    }

    fn signal(&self, signal: &str) {
        let child = self.child();
        assert!(Command::new("kill").args([&format!("-{signal}"), &child]).status().unwrap().success());
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-L", &self.0, "kill-server"]).env_remove("TMUX").output();
    }
}

/// The example, which cargo builds beside the tests.
fn program() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    path.push("examples/ends");
    assert!(path.exists(), "not built: run cargo build -p screen --example ends");
    path
}

#[test]
fn it_is_given_back_however_a_program_ends() {
    let Some(tmux) = Tmux::start("ends") else { return };
    for (how, code, said) in [
        ("panic", "101", "on purpose"),
        ("drawing", "101", "on purpose"),
        ("thread", "101", "on purpose"),
        ("error", "1", "ends: on purpose"),
    ] {
        tmux.begin(how);
        tmux.keys(&["x"]);
        tmux.is_as_before(code, said);
    }
    tmux.begin("quit");
    tmux.keys(&["q"]);
    tmux.is_as_before("0", "");
    for (signal, code) in [("INT", "130"), ("TERM", "143"), ("HUP", "129")] {
        tmux.begin("quit");
        tmux.signal(signal);
        tmux.is_as_before(code, "");
    }
    // The thread that draws does nothing any more.
    tmux.begin("stuck");
    tmux.keys(&["x"]);
    std::thread::sleep(Duration::from_millis(300));
    tmux.signal("TERM");
    tmux.is_as_before("143", "");
}

#[test]
fn it_is_lent_to_the_shell_and_taken_again() {
    let Some(tmux) = Tmux::start("lent") else { return };
    tmux.begin("quit");
    tmux.keys(&["C-z"]);
    tmux.until("it is stopped", |screen| screen.contains("$") && !screen.contains("shown:"));
    tmux.keys(&["echo lent", "Enter"]);
    tmux.until("the shell has it", |screen| screen.lines().any(|line| line == "lent"));
    tmux.keys(&["fg", "Enter"]);
    tmux.until("it is back", |screen| screen.contains("shown: press a key"));
    tmux.keys(&["Up"]);
    tmux.until("keys arrive", |screen| screen.contains("shown: Up"));
    tmux.keys(&["q"]);
    // The shell had gone on behind it: what `fg` waited for has ended.
    tmux.until("the shell again", |screen| !screen.contains("shown:"));
    assert_eq!(tmux.run(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).trim(), "0 1");
}

#[test]
fn without_a_terminal_there_is_none() {
    let output = Command::new(program()).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("needs a terminal"));
    assert!(output.stdout.is_empty());
}
