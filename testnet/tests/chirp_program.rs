//! The `chirp` program against real daemons: the output of each command, its exit code, and the screen in a terminal.
//!
//! `SCATTER_BIN` names the daemon's binary; without it, it is built. Tests with tmux are skipped where there is none.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use screen::trial::Tmux;
use serde_json::Value;
use testnet::live::{Cluster, ClusterOptions, chirp_program};

/// Standard output, standard error and exit code of a command.
#[derive(Debug)]
struct Said {
    out: String,
    err: String,
    code: i32,
}

fn chirp(arguments: &[&str]) -> Said {
    let output = bare(arguments).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let steers = |c: char| c.is_control() && c != '\n';
    assert!(!out.chars().chain(err.chars()).any(steers), "{arguments:?} steers a terminal: {out:?} {err:?}");
    Said { out, err, code: output.status.code().expect("it ends by itself") }
}

/// Returns the program without the variables of this process's environment that it would use.
fn bare(arguments: &[&str]) -> Command {
    let mut command = Command::new(chirp_program());
    for name in ["SCATTER_ADDR", "SCATTER_OUTPUT", "SCATTER_PASSWORD_FILE", "CHIRP_USER", "CHIRP_KEY", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Like [`chirp`], for a command that must succeed.
fn done(arguments: &[&str]) -> String {
    let said = chirp(arguments);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{arguments:?}: {said:?}");
    said.out
}

/// Like [`chirp`], for a command that must end with this code and print the reason on one line.
fn refused(code: i32, words: &str, arguments: &[&str]) {
    let said = chirp(arguments);
    assert_eq!((said.code, said.out.as_str()), (code, ""), "{arguments:?}: {said:?}");
    assert!(said.err.contains(words), "{arguments:?}: {}", said.err);
    assert!(!said.err.chars().any(|c| c.is_control() && c != '\n'), "{:?}", said.err);
}

fn start(test: &str) -> (Cluster, String, String) {
    let cluster = Cluster::start(test, &ClusterOptions { daemons: 3, ..ClusterOptions::default() });
    let [first, second] = [0, 1].map(|index: usize| cluster.daemons[index].resp.to_string());
    (cluster, first, second)
}

#[test]
fn people_post_and_read() {
    let (cluster, one, other) = start("chirp-people");
    let key = cluster.daemons[0].directory.with_extension("key").display().to_string();
    let ann = |words: &[&str]| done(&[&["--addr", &one, "--user", "ann"], words].concat());
    assert_eq!(done(&["--addr", &one, "signup", "ann"]), "ann has signed up\n");
    assert_eq!(done(&["--addr", &one, "signup", "Bob", "--key", &key]), "Bob has signed up, and signs\n");
    refused(1, "taken", &["--addr", &other, "signup", "ANN"]);
    assert_eq!(ann(&["follow", "bob"]), "ann follows bob from now on\n");
    assert_eq!(ann(&["follow", "BOB"]), "ann follows BOB already\n");
    assert_eq!(ann(&["following"]), "Bob\n");
    done(&["--addr", &other, "--user", "bob", "post", "signed, and read elsewhere", "--key", &key]);
    done(&[
        "--addr",
        &other,
        "--user",
        "bob",
        "post",
        "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}".repeat(140).as_str(),
    ]);
    ann(&["post", "--append", "rmw", "mine"]);
    let timeline = ann(&["timeline"]);
    let lines: Vec<&str> = timeline.lines().collect();
    assert!(lines[0].ends_with("mine") && lines[0].contains("ann"), "{timeline}");
    assert!(lines[1].ends_with("[not signed]") && lines[2].ends_with("elsewhere  [signed]"), "{timeline}");
    assert_eq!(ann(&["timeline", "-n", "1"]).lines().count(), 1);
    let json: Vec<Value> = ann(&["timeline", "--output", "json"])
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON on each line"))
        .collect();
    assert_eq!((&json[2]["user"], &json[2]["signature"]), (&"Bob".into(), &"valid".into()), "{json:?}");
    let profile = done(&["--addr", &other, "profile", "bob", "-n", "1"]);
    assert!(profile.starts_with("Bob, here since 20") && profile.contains("2 chirps, follows 0, signs"), "{profile}");
    assert_eq!(profile.lines().count(), 2);
    assert_eq!(ann(&["unfollow", "bob"]), "ann does not follow bob any more\n");
    assert_eq!((ann(&["following"]), ann(&["timeline"]).lines().count()), (String::new(), 1));
    let picture = ann(&["ui", "--once", "--size", "60x12"]);
    assert!(picture.lines().count() == 12 && picture.contains("mine") && picture.contains("Timeline"), "{picture}");
    let svg = ann(&["ui", "--once", "--output", "svg"]);
    assert!(svg.starts_with("<svg") && svg.contains("mine"), "{svg}");
}

#[test]
fn what_cannot_be_is_said_and_leaves_nothing() {
    let (cluster, one, _) = start("chirp-refusals");
    done(&["--addr", &one, "signup", "ann"]);
    let ann = |code, words: &str, command: &[&str]| {
        refused(code, words, &[&["--addr", &one, "--user", "ann"], command].concat());
    };
    ann(2, "the text is empty", &["post", ""]);
    ann(2, "the text is empty", &["post", "\u{200b}"]);
    ann(2, "141 characters", &["post", &"x".repeat(141)]);
    ann(2, "at most 4000", &["post", &format!("e{}", "\u{301}".repeat(2001))]);
    ann(2, "U+001B", &["post", "\u{1b}[31mred"]);
    ann(2, "U+000A", &["post", "two\nlines"]);
    ann(1, "no user zoe", &["follow", "zoe"]);
    ann(1, "do not follow zoe", &["unfollow", "zoe"]);
    ann(1, "no user zoe", &["profile", "zoe"]);
    ann(2, "is no name", &["follow", "a b"]);
    ann(2, "is no name", &["follow", "\u{1b}[2J"]);
    ann(2, "the key", &["post", "x", "--key", "/nowhere/at/all"]);
    ann(2, "only `chirp ui --once`", &["timeline", "--output", "svg"]);
    ann(2, "must be a terminal", &["ui"]);
    refused(2, "set your user name", &["--addr", &one, "post", "x"]);
    refused(1, "no user zoe", &["--addr", &one, "--user", "zoe", "post", "x"]);
    refused(1, "no user zoe", &["--addr", &one, "--user", "zoe", "ui", "--once"]);
    refused(3, "cannot reach a peer at 127.0.0.1:9", &["--addr", "127.0.0.1:9", "profile", "ann"]);
    refused(3, "an address is HOST or HOST:PORT", &["--addr", "nonsense:x", "profile", "ann"]);
    refused(3, "cannot reach", &["--addr", "127.0.0.1:9", "--user", "ann", "ui", "--once"]);
    // Where an HTTP server answers, or no server: this is told apart from a peer.
    let http = cluster.daemons[0].http.to_string();
    assert!([3, 4, 6].contains(&chirp(&["--addr", &http, "profile", "ann"]).code));
    assert!(done(&["--addr", &one, "profile", "ann"]).contains("0 chirps"), "nothing was posted");
    // Another peer in the list is asked where the first does not answer.
    assert!(done(&["--addr", &format!("127.0.0.1:9,{one}"), "profile", "ann"]).contains("0 chirps"));
    // Foreign values are left alone, and their content never steers the terminal.
    let mut store = cluster.daemons[0].connect(Duration::from_secs(10)).expect("a connection");
    store.call(&["SET", "chirp/user/eve", "\u{1b}[31m"]).expect("set");
    ann(4, "not in Chirp's format", &["follow", "eve"]);
    let said = |id: u8, text: &str| format!("{{\"id\":\"{id}\",\"at\":9,\"text\":\"{text}\"}}\n");
    let evil = format!(
        "chirp1 00000000 0000000000\n{}{}{}nonsense\n\u{1b}[3J\n",
        said(1, "\\u001b[2Jgone"),
        said(2, "one line\\nbob  now  another  [signed]"),
        said(3, "\\u202edrawkcab"),
    );
    store.call(&["SET", "chirp/updates/ann", &evil]).expect("set");
    let shown = done(&["--addr", &one, "profile", "ann"]);
    assert!(
        shown.lines().count() == 2 && shown.contains("\u{fffd}drawkcab"),
        "what cannot be posted is not shown: {shown}"
    );
    assert!(done(&["--addr", &one, "profile", "ann", "--output", "json"]).contains("\\u202edrawkcab"));
    for head in ["chirp1 0 10000000000000000\n", "chirp1 99999999 9999999999\n", "chirp1 00000000 +000000001\n"] {
        store.call(&["SET", "chirp/updates/ann", head]).expect("set");
        ann(4, "not in Chirp's format", &["profile", "ann"]);
        ann(4, "not in Chirp's format", &["timeline"]);
    }
    refused(2, "unrecognized subcommand", &["\u{1b}[2Jx"]);
    store.call(&["SET", "chirp/updates/ann", "something else"]).expect("set");
    ann(4, "not in Chirp's format", &["post", "x"]);
}

#[test]
fn who_watches_sees_what_comes() {
    let (_cluster, one, other) = start("chirp-watch");
    for user in ["ann", "bob"] {
        done(&["--addr", &one, "signup", user]);
    }
    done(&["--addr", &one, "--user", "ann", "follow", "bob"]);
    done(&["--addr", &other, "--user", "bob", "post", "before"]);
    let mut watching = bare(&["--addr", &one, "--user", "ann", "timeline", "--watch"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(watching.stdout.take().expect("it was asked for")).lines();
    let mut next = || lines.next().expect("it goes on").expect("text");
    assert!(next().ends_with("before"));
    for text in ["one", "two"] {
        done(&["--addr", &other, "--user", "bob", "post", text]);
        assert!(next().ends_with(text));
    }
    let pid = rustix::process::Pid::from_child(&watching);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    assert!(watching.wait().expect("it ends").success());
}

#[test]
fn the_screen_in_a_terminal() {
    let Some(tmux) = Tmux::start("chirp", &[]) else { return };
    let (_cluster, one, other) = start("chirp-tmux");
    for user in ["ann", "bob"] {
        done(&["--addr", &one, "signup", user]);
    }
    tmux.begin(&format!("{} --addr {one},{other} ui", chirp_program().display()));
    tmux.shows("Who are you?");
    tmux.keys(&["ann", "Enter"]);
    tmux.shows("Nothing yet");
    tmux.keys(&["f", "bob", "Enter"]);
    tmux.shows("you follow bob from now on");
    done(&["--addr", &other, "--user", "bob", "post", "seen on a screen"]);
    tmux.shows("seen on a screen");
    tmux.keys(&["c", "typed at a keyboard"]);
    tmux.shows("19/140");
    tmux.keys(&["Enter"]);
    tmux.shows("posted");
    tmux.shows("typed at a keyboard");
    tmux.resize(130, 40);
    assert!(tmux.shows("You follow 1").contains("typed at a keyboard"));
    tmux.keys(&["C-c"]);
    assert!(!tmux.ends(0).contains("seen on a screen"), "the terminal is as it was");
    assert!(done(&["--addr", &one, "--user", "ann", "timeline"]).contains("typed at a keyboard"));
    // A signal that ends the program restores the terminal, too.
    tmux.begin(&format!("{} --addr {one} --user ann ui", chirp_program().display()));
    tmux.shows("typed at a keyboard");
    tmux.signal("TERM");
    tmux.ends(143);
}
