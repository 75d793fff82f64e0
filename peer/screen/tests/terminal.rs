//! The terminal is as before after any end of a program: for real, under tmux.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use screen::trial::Tmux;

/// Returns the path of the example, which cargo builds beside the tests.
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

/// Starts the program in the shell; it is there when this returns.
fn begin(tmux: &Tmux, how: &str) {
    tmux.begin(&format!("{} {how}", program().display()));
    tmux.shows("shown: press a key");
}

/// Checks that the program has ended in this way, and said so.
#[track_caller]
fn ends(tmux: &Tmux, code: u8, said: &str) {
    let screen = tmux.ends(code);
    assert!(screen.contains(said) && !screen.contains("shown:") && !screen.contains("LATE"), "{said}:\n{screen}");
}

#[test]
fn it_is_given_back_however_a_program_ends() {
    let Some(tmux) = Tmux::start("screen-ends", &[("RUST_BACKTRACE", "0")]) else { return };
    for (how, code, said) in [
        ("panic", 101, "on purpose"),
        ("drawing", 101, "on purpose"),
        ("thread", 101, "on purpose"),
        ("error", 1, "ends: on purpose"),
    ] {
        begin(&tmux, how);
        tmux.keys(&["x"]);
        ends(&tmux, code, said);
    }
    begin(&tmux, "quit");
    tmux.keys(&["q"]);
    ends(&tmux, 0, "");
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        begin(&tmux, "quit");
        tmux.signal(signal);
        ends(&tmux, code, "");
    }
    // The drawing thread does nothing any more.
    begin(&tmux, "stuck");
    tmux.keys(&["x"]);
    std::thread::sleep(Duration::from_millis(300));
    tmux.signal("TERM");
    ends(&tmux, 143, "");
}

#[test]
fn whoever_signals_twice_does_not_wait() {
    let Some(tmux) = Tmux::start("screen-twice", &[]) else { return };
    begin(&tmux, "stuck");
    tmux.keys(&["x"]);
    std::thread::sleep(Duration::from_millis(300));
    let since = Instant::now();
    tmux.signal("TERM");
    std::thread::sleep(Duration::from_millis(200));
    tmux.signal("INT");
    tmux.until("it has ended", |screen| screen.lines().any(|line| line == "ended 143"));
    assert!(since.elapsed() < Duration::from_millis(2500), "{:?}", since.elapsed());
    ends(&tmux, 143, "");
}

#[test]
fn what_is_pasted_is_not_typed() {
    let Some(tmux) = Tmux::start("screen-pasted", &[]) else { return };
    begin(&tmux, "quit");
    tmux.run(&["set-buffer", "quit\nq\n"]);
    // With marks around it, where the terminal was asked for them.
    tmux.run(&["paste-buffer", "-p"]);
    let screen = tmux.shows("shown: pasted");
    assert!(screen.contains("quit") && screen.contains('q'), "{screen}");
    tmux.keys(&["q"]);
    ends(&tmux, 0, "");
    // The shell did not ask for marks, and gets none.
    tmux.run(&["set-buffer", "echo pasted"]);
    tmux.run(&["paste-buffer", "-p"]);
    tmux.keys(&["Enter"]);
    tmux.until("the shell has read it", |screen| screen.lines().any(|line| line == "pasted"));
}

#[test]
fn it_is_taken_again_after_a_stop_from_outside() {
    let Some(tmux) = Tmux::start("screen-stopped", &[]) else { return };
    begin(&tmux, "quit");
    tmux.signal("STOP");
    std::thread::sleep(Duration::from_millis(300));
    // The terminal was not given back: only a line feed (C-j) ends a line in the shell, until `stty sane`.
    tmux.keys(&["C-j", "stty sane", "C-j"]);
    std::thread::sleep(Duration::from_millis(300));
    tmux.keys(&["fg", "Enter"]);
    tmux.until("it is back", |screen| screen.contains("shown: press a key") && !screen.contains('$'));
    tmux.keys(&["Up"]);
    tmux.until("keys arrive one by one", |screen| screen.contains("shown: Up"));
    tmux.keys(&["q"]);
    tmux.until("the shell again", |screen| !screen.contains("shown:"));
}

#[test]
fn it_is_lent_to_the_shell_and_taken_again() {
    let Some(tmux) = Tmux::start("screen-lent", &[]) else { return };
    begin(&tmux, "quit");
    tmux.keys(&["C-z"]);
    tmux.until("it is stopped", |screen| screen.contains("$") && !screen.contains("shown:"));
    tmux.keys(&["echo lent", "Enter"]);
    tmux.until("the shell has it", |screen| screen.lines().any(|line| line == "lent"));
    tmux.keys(&["fg", "Enter"]);
    tmux.until("it is back", |screen| screen.contains("shown: press a key"));
    tmux.keys(&["Up"]);
    tmux.until("keys arrive", |screen| screen.contains("shown: Up"));
    tmux.keys(&["q"]);
    // The shell had gone on behind it: the program that `fg` waited for has ended.
    tmux.until("the shell again", |screen| !screen.contains("shown:"));
    assert_eq!(tmux.run(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).trim(), "0 1");
}

#[test]
fn without_a_terminal_there_is_none() {
    let output = Command::new(program()).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("must be a terminal"));
    assert!(output.stdout.is_empty());
}
