//! A terminal of tmux, for tests of programs with a screen: a test runs them there as a person does.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time that an output may take to appear.
const SEEN_MAX: Duration = Duration::from_secs(30);

/// A server of tmux with a shell in one window of 80x24. When this is dropped, the server ends, and all programs in it.
#[derive(Debug)]
pub struct Tmux(String);

impl Tmux {
    /// Starts a shell with these variables. `name` tells it apart from other ones of this process. Where there is no
    /// tmux, it says so on standard error and returns `None`: skip the test.
    pub fn start(name: &str, variables: &[(&str, &str)]) -> Option<Tmux> {
        let there = Command::new("tmux").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
        if !there {
            eprintln!("skipped: tmux does not run here");
            return None;
        }
        let tmux = Tmux(format!("{name}-{}", std::process::id()));
        let mut words = vec!["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24"];
        let pairs: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.iter().for_each(|pair| words.extend(["-e", pair]));
        words.push("PS1='$ ' exec sh");
        tmux.run(&words);
        Some(tmux)
    }

    /// Runs a command of tmux; returns its output.
    ///
    /// # Panics
    /// Where tmux refuses it.
    #[track_caller]
    pub fn run(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.0]).args(words).env("LC_ALL", "C.UTF-8").env_remove("TMUX");
        let output = command.output().expect("tmux was there a moment ago");
        assert!(output.status.success(), "tmux {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Presses keys, by tmux's names for them; any other text is typed.
    pub fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Types a line into the shell that clears the screen, runs this command and then shows its exit code.
    pub fn begin(&self, command: &str) {
        self.keys(&[&format!("clear; {command}; echo ended $?"), "Enter"]);
    }

    /// Returns the text on the screen.
    pub fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// Gives the terminal another size.
    pub fn resize(&self, columns: u16, rows: u16) {
        self.run(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    /// Waits until `so` holds for the screen; returns the screen then. `what` names the condition in a message.
    ///
    /// # Panics
    /// Where the condition does not come to hold.
    #[track_caller]
    pub fn until(&self, what: &str, so: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + SEEN_MAX;
        loop {
            let screen = self.screen();
            if so(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "{what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until this text is on the screen; returns the screen.
    #[track_caller]
    pub fn shows(&self, part: &str) -> String {
        self.until(part, |screen| screen.contains(part))
    }

    /// Waits until the command of [`Tmux::begin`] has ended with this code; returns the screen then. The shell must have
    /// its terminal as before.
    #[track_caller]
    pub fn ends(&self, code: u8) -> String {
        let ended = format!("ended {code}");
        let said = self.until(&ended, |screen| screen.lines().any(|line| line == ended));
        self.keys(&[
            "clear; stty -a | tr ';' '\\n' | tr ' ' '\\n' | grep -e icanon -e isig -e '^-*echo$'; echo checked",
            "Enter",
        ]);
        let screen = self.until("checked", |screen| screen.lines().any(|line| line == "checked"));
        for setting in ["icanon", "isig", "echo"] {
            assert!(screen.lines().any(|line| line == setting), "{setting} is off:\n{screen}");
        }
        assert_eq!(self.run(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).trim(), "0 1");
        said
    }

    /// Sends a signal to the program that runs in the shell.
    #[track_caller]
    pub fn signal(&self, signal: &str) {
        let shell = self.run(&["display-message", "-p", "#{pane_pid}"]);
        let children = Command::new("ps").args(["-o", "pid=", "--ppid", shell.trim()]).output().expect("there is ps");
        let children = String::from_utf8_lossy(&children.stdout).into_owned();
        let child = children.split_whitespace().next().expect("something runs in the shell");
        let sent = Command::new("kill").args([&format!("-{signal}"), child]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{signal} to {child}");
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-L", &self.0, "kill-server"]).env_remove("TMUX").output();
    }
}
