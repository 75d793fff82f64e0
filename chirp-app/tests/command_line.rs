//! The `chirp` program as a script runs it, where no peer is needed: variables of the environment, and exit codes where
//! the answer cannot be printed.

use std::fs::OpenOptions;
use std::io;
use std::process::{Command, Output, Stdio};

/// The program without the variables of this process's environment that it would heed.
fn chirp(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chirp"));
    for name in ["SCATTER_ADDR", "SCATTER_OUTPUT", "SCATTER_PASSWORD_FILE", "CHIRP_USER", "CHIRP_KEY"] {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

fn with(variable: &str, value: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = chirp(arguments).env(variable, value).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// An address without a listener.
const NOWHERE: [&str; 2] = ["--addr", "127.0.0.1:1"];

#[test]
fn an_empty_variable_is_unset() {
    let following = [&NOWHERE[..], &["following"]].concat();
    let (code, words) = with("CHIRP_USER", "", &following);
    assert!(code == Some(2) && words.contains("set your user name"), "{words}");
    let ann = [&NOWHERE[..], &["--user", "ann", "following"]].concat();
    for variable in ["SCATTER_OUTPUT", "SCATTER_PASSWORD_FILE", "CHIRP_KEY"] {
        let (code, words) = with(variable, "", &ann);
        assert!(code == Some(3) && words.contains("cannot reach a peer"), "{variable}: {words}");
    }
    // Without an address of its own: the default address is used, and not the empty one, whichever process listens
    // there.
    let (_, words) = with("SCATTER_ADDR", "", &["--user", "Nobody-Has-This-Name", "following"]);
    assert!(!words.contains("an address is"), "{words}");
}

#[test]
fn an_error_names_the_variable_unless_the_flag_was_typed() {
    let named = "from the environment variable SCATTER_OUTPUT.";
    let (code, words) = with("SCATTER_OUTPUT", "xml", &["following"]);
    assert!(code == Some(2) && words.contains("--output") && words.contains(named), "{words}");
    let (code, words) = with("CHIRP_USER", "no name", &["following"]);
    assert!(code == Some(2) && words.contains("from the environment variable CHIRP_USER."), "{words}");
    let (code, words) = with("CHIRP_USER", "no name", &["--user", "not this", "following"]);
    assert!(code == Some(2) && !words.contains("CHIRP_USER."), "{words}");
    for typed in [&["--output", "yaml", "following"][..], &["following", "--output=yaml"]] {
        let (code, words) = with("SCATTER_OUTPUT", "xml", typed);
        assert!(code == Some(2) && words.contains("yaml") && !words.contains(named), "{words}");
    }
    // A flag overrules its variable, wherever it stands, and what is posted is no flag.
    let (code, words) =
        with("SCATTER_OUTPUT", "xml", &[&NOWHERE[..], &["--output", "text", "profile", "ann"]].concat());
    assert!(code == Some(3), "{words}");
    let (code, words) = with("CHIRP_USER", "ann", &[&NOWHERE[..], &["post", "--", "--user"]].concat());
    assert!(code == Some(3), "{words}");
}

#[test]
fn what_cannot_be_printed_ends_with_74() {
    for arguments in [&["--help"][..], &["--version"], &["completions", "bash"]] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let closed = chirp(arguments).stdout(writer).output().unwrap();
        assert_eq!(closed.status.code(), Some(74), "{arguments:?}");
        assert!(closed.stderr.is_empty(), "whoever closed the pipe has seen enough: {closed:?}");
        if let Ok(full) = OpenOptions::new().write(true).open("/dev/full") {
            let full = chirp(arguments).stdout(full).output().unwrap();
            assert_eq!(full.status.code(), Some(74), "{arguments:?}");
            assert!(!full.stderr.is_empty(), "{arguments:?}");
        }
    }
}
