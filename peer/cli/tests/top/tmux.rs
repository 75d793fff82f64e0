//! The real dashboard, in a terminal of tmux: keys, sizes, and the terminal as it was before.

use screen::trial::Tmux;

use super::common::process::{Peer, real};

fn command_line(peer: &Peer) -> String {
    format!("{} top --http {}", env!("CARGO_BIN_EXE_scatter"), peer.http)
}

/// Starts a peer, and a terminal in which `scatter top` shows it.
fn started(name: &str, variables: &[(&str, &str)]) -> Option<(tempfile::TempDir, Peer, Tmux)> {
    let tmux = Tmux::start(&format!("scatter-top-{name}"), variables)?;
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().display().to_string();
    let mut command = real(&["run", "--new", "--network", "top-tmux", "--data-dir", &data]);
    command.args(["--listen", "/ip4/127.0.0.1/tcp/0", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    let peer = Peer::with(command, &[]);
    tmux.begin(&command_line(&peer));
    tmux.shows("used / given");
    Some((directory, peer, tmux))
}

/// Some pseudo-terminals are given no size.
#[test]
fn a_terminal_of_no_size_is_taken_for_the_usual_one() {
    let Some((_directory, peer, tmux)) = started("sizeless", &[]) else { return };
    tmux.keys(&["q"]);
    tmux.ends(0);
    tmux.begin(&format!("stty rows 0 cols 0; {}", command_line(&peer)));
    let screen = tmux.shows("used / given");
    assert!(screen.lines().nth(23).is_some_and(|line| line.starts_with("q end")), "{screen}");
    tmux.keys(&["q"]);
    tmux.ends(0);
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
    tmux.shows("any other key goes back");
    tmux.keys(&["x", "f"]);
    tmux.shows("FROZEN");
    tmux.keys(&["1"]);
    tmux.resize(200, 60);
    let large = tmux.until("the large picture", |screen| screen.contains("peers: 1") && screen.contains("p50"));
    assert!(large.lines().nth(59).is_some_and(|line| line.starts_with("q end")), "{large}");
    tmux.resize(30, 8);
    tmux.shows("too small");
    tmux.resize(80, 24);
    tmux.shows("used / given");
    tmux.keys(&["q"]);
    tmux.ends(0);
}

#[test]
fn interrupts_and_signals_end_it_well() {
    let Some((_directory, peer, tmux)) = started("signals", &[("NO_COLOR", "1")]) else { return };
    let colour = tmux.run(&["capture-pane", "-p", "-e"]);
    let coloured =
        |code: &str| (30..38).chain(90..98).any(|n| code == n.to_string() || code.starts_with(&format!("{n};")));
    let codes = colour.split("\x1b[").skip(1).filter_map(|rest| rest.split_once('m').map(|(code, _)| code));
    assert!(codes.filter(|code| coloured(code)).count() == 0, "NO_COLOR is set:\n{colour:?}");
    tmux.keys(&["C-c"]);
    tmux.ends(0);
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        tmux.begin(&command_line(&peer));
        tmux.shows("used / given");
        tmux.signal(signal);
        tmux.ends(code);
    }
}

/// The peer dies: the dashboard says so, keys go on, and another peer that answers is shown.
#[test]
fn a_peer_that_dies_is_said_to_be_gone() {
    let Some((_directory, peer, tmux)) = started("gone", &[]) else { return };
    drop(peer);
    tmux.shows("asking again");
    tmux.shows(" OLD");
    tmux.keys(&["2"]);
    tmux.shows("groups: 1");
    tmux.keys(&["q"]);
    tmux.ends(0);
}
