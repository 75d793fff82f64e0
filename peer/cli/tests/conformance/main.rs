//! A peer beside Redis: the same bytes to both, and the answers compared to the byte, command by command.
//!
//! The commands are in [`cases`]; intended differences of the answers, and their reasons, in [`differences`]. [`random`]
//! sends unplanned commands. Without a `redis-server` each test says so and passes.

mod cases;
#[path = "../../../tests/common/mod.rs"]
mod common;
mod differences;
#[path = "../common/process.rs"]
mod process;
mod random;
mod tree;

use std::collections::BTreeSet;

use cases::{SCRIPTS, Script};
use common::memory::Manner;
use common::redis::Redis;
use common::{Client, Server};
use differences::{DIFFERENCES, Difference};
use peer::resp::table::{COMMANDS, Kind};
use process::Peer;
use tree::Tree;

/// Splits a line as Redis does; `@` at the start of a word becomes the script's own prefix.
fn words(line: &str, place: &str) -> Vec<Vec<u8>> {
    let (mut text, mut ranges) = (Vec::new(), Vec::new());
    peer::resp::inline::split(line.as_bytes(), &mut text, &mut ranges).expect("a line of ours is well formed");
    let word = |range: std::ops::Range<usize>| match text[range].split_first() {
        Some((b'@', rest)) => [place.as_bytes(), rest].concat(),
        Some((first, rest)) => [&[*first], rest].concat(),
        None => Vec::new(),
    };
    ranges.into_iter().map(word).collect()
}

fn ask(client: &mut Client, words: &[Vec<u8>]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    client.ask(&words).unwrap_or_else(|| b"<end>".to_vec())
}

/// Returns whether the answers are the same, as far as two servers that are asked one after the other can agree.
fn same(words: &[Vec<u8>], ours: &[u8], theirs: &[u8]) -> bool {
    if ours == theirs {
        return true;
    }
    // A remaining time falls between one question and the other; that there is none is exact.
    let slack = match words[0].to_ascii_uppercase().as_slice() {
        b"TTL" => 2,
        b"PTTL" => 2_000,
        _ => return false,
    };
    match (Tree::read(ours), Tree::read(theirs)) {
        (Tree::Integer(ours @ 0..), Tree::Integer(theirs @ 0..)) => ours.abs_diff(theirs) <= slack,
        _ => false,
    }
}

/// Answers that differ and should not, or the other way round.
struct Found {
    wrong: Vec<String>,
    met: BTreeSet<&'static str>,
}

impl Found {
    fn judge(&mut self, said: &str, line: &str, version: (u32, u32), words: &[Vec<u8>], ours: &[u8], theirs: &[u8]) {
        let row = DIFFERENCES.iter().find(|row: &&Difference| row.line == line && row.holds_against(version));
        let (shown, redis) = (ours.escape_ascii().to_string(), theirs.escape_ascii().to_string());
        match row {
            None if same(words, ours, theirs) => {}
            None => self.wrong.push(format!("{said}\n    Redis: {redis}\n    here:  {shown}")),
            Some(row) => {
                self.met.insert(row.line);
                if ours == theirs {
                    self.wrong.push(format!("{said}\n    both:  {shown}\n    is meant to differ: {}", row.why));
                } else if !shown.starts_with(row.ours) {
                    let why = row.why;
                    self.wrong.push(format!("{said}\n    here:  {shown}\n    is meant to be {}…: {why}", row.ours));
                }
            }
        }
    }
}

/// Sends every script to both, in both protocols.
fn compare(redis: &Redis, peer: impl Fn() -> Client) {
    let version = redis.version();
    let mut found = Found { wrong: Vec::new(), met: BTreeSet::new() };
    for protocol in ["2", "3"] {
        for Script { of, lines } in SCRIPTS {
            // Some of the scripts change the protocol, and some end the connection.
            let (mut theirs, mut ours) = (redis.client(), peer());
            for client in [&mut theirs, &mut ours] {
                client.line(&format!("HELLO {protocol}"));
            }
            for line in *lines {
                let words = words(line, &format!("{of}:{protocol}:"));
                let (expected, answer) = (ask(&mut theirs, &words), ask(&mut ours, &words));
                let said = format!("RESP{protocol}, {of}: {line}");
                found.judge(&said, line, version, &words, &answer, &expected);
            }
        }
    }
    for row in DIFFERENCES.iter().filter(|row| row.holds_against(version) && !found.met.contains(row.line)) {
        found.wrong.push(format!("no script says {}, which is meant to differ: {}", row.line, row.why));
    }
    assert!(found.wrong.is_empty(), "{} of Redis {version:?}:\n{}", found.wrong.len(), found.wrong.join("\n"));
}

#[test]
fn every_command_answers_as_redis_does() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start(Manner::Prompt);
    compare(&redis, || server.client());
}

/// The same for the program itself, with a node, a store and a disk behind the answers.
#[test]
fn a_running_peer_answers_as_redis_does() {
    let home = tempfile::tempdir().unwrap();
    // Redis keeps its acknowledged writes, as a peer does.
    let dir = home.path().to_str().unwrap();
    let Some(redis) = Redis::with(&["--appendonly", "yes", "--dir", dir]) else { return };
    let command = ["run", "--new", "--network", "conformance", "--resp", "127.0.0.1:0", "--http", "off"];
    let place = ["--data-dir", &format!("{dir}/peer"), "--listen", "/ip4/127.0.0.1/tcp/0"];
    let peer = Peer::with(process::real(&command), &place);
    let address = peer.resp.parse().expect("a peer says where it listens");
    compare(&redis, || Client::connect(address));
}

/// Checks that no new command is left out.
#[test]
fn every_command_has_its_script() {
    let scripts: BTreeSet<&str> = SCRIPTS.iter().map(|script| script.of).collect();
    assert_eq!(scripts.len(), SCRIPTS.len(), "a script is there twice");
    let said: BTreeSet<String> = SCRIPTS
        .iter()
        .flat_map(|script| script.lines)
        .filter_map(|line| line.split(' ').next())
        .map(str::to_ascii_lowercase)
        .collect();
    for command in COMMANDS.iter().filter(|command| !command.name.starts_with("scatter.")) {
        // A client that subscribes is answered without end.
        if command.name.ends_with("subscribe") || command.name.ends_with("_ro") {
            continue;
        }
        match command.kind {
            Kind::Refused => assert!(said.contains(command.name), "nothing is said of {}", command.name),
            _ => assert!(scripts.contains(command.name), "{} has no script", command.name),
        }
    }
}

/// The output of `COMMAND`, by which clients route and check.
#[test]
fn commands_are_described_as_redis_describes_them() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start(Manner::Prompt);
    let (mut theirs, mut ours) = (redis.client(), server.client());
    let mut compared = 0;
    for command in COMMANDS {
        let words = [&b"COMMAND"[..], b"INFO", command.name.as_bytes()];
        let tree = |client: &mut Client| match Tree::read(&client.ask(&words).expect("an answer")) {
            Tree::Array(mut items) => items.remove(0),
            other => panic!("{other:?}"),
        };
        let (Tree::Array(expected), Tree::Array(answer)) = (tree(&mut theirs), tree(&mut ours)) else {
            // A later Redis has the command.
            continue;
        };
        compared += 1;
        let refused = command.kind == Kind::Refused;
        // Name and arity; then the first key, the last, and the step, which are of no use for a refused command.
        let wanted: &[usize] = if refused { &[0, 1] } else { &[0, 1, 3, 4, 5] };
        for &index in wanted {
            assert_eq!(answer[index], expected[index], "{} at {index}", command.name);
        }
        for flag in ["write", "readonly"] {
            let has = |items: &[Tree]| format!("{:?}", items[2]).contains(&format!("{flag:?}"));
            assert!(refused || has(&answer) == has(&expected), "{} and {flag}", command.name);
        }
    }
    assert!(compared > 60, "{compared}");
}

/// The number of arguments is checked first, as in Redis: with none of them, and with one too many.
#[test]
fn arguments_are_counted_as_redis_counts_them() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start(Manner::Prompt);
    for command in COMMANDS.iter().filter(|command| !command.name.starts_with("scatter.")) {
        let least = command.arity.unsigned_abs() as usize;
        let counts = [1, least - 1, least + 1];
        for count in counts.into_iter().filter(|&count| count > 0 && !command.takes(count)) {
            let mut words = vec![command.name.as_bytes()];
            words.resize(count, b"x");
            let (mut theirs, mut ours) = (redis.client(), server.client());
            let expected = theirs.ask(&words).expect("an answer");
            // A later Redis has the command; and there is no transaction that could end here.
            if expected.starts_with(b"-ERR unknown command") || command.name == "exec" {
                continue;
            }
            let answer = ours.ask(&words).expect("an answer");
            assert_eq!(answer.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{}", command.name);
        }
    }
}

/// Fields that clients read when they connect; name and number of the server are each server's own.
#[test]
fn hello_says_what_redis_says() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start(Manner::Prompt);
    for line in ["HELLO", "HELLO 2", "HELLO 3", "HELLO", "HELLO 3 SETNAME me", "HELLO 3 AUTH default any SETNAME you"] {
        let (mut theirs, mut ours) = (redis.client(), server.client());
        let (expected, answer) = (theirs.ask(&split(line)), ours.ask(&split(line)));
        let (expected, answer) = (Tree::read(&expected.unwrap()), Tree::read(&answer.unwrap()));
        assert_eq!(
            answer.without_values_of(&["version", "id"]),
            expected.without_values_of(&["version", "id"]),
            "{line}"
        );
        assert_eq!(ours.line("CLIENT GETNAME"), theirs.line("CLIENT GETNAME"), "{line}");
    }
}

fn split(line: &str) -> Vec<&[u8]> {
    line.split(' ').map(str::as_bytes).collect()
}

/// Malformed requests, and inline ones.
#[test]
fn what_is_no_request_is_answered_as_redis_does() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start(Manner::Prompt);
    let long = vec![b'1'; 70_000];
    for bytes in [
        &b"*x\r\n"[..],
        b"*1\r\n$x\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$600000000\r\n",
        b"*1\r\nx\r\n",
        b"'\r\n",
        &[b"*", &long[..]].concat(),
        &[b"*1\r\n$", &long[..]].concat(),
        &long,
        b"*1000000000000\r\n",
        b"*\r\n",
        b"*0\r\n*-5\r\nPING\r\n",
        b"\r\n\r\nPING\r\n",
        b"*1\r\n$4\r\nPINGxxPING\r\n",
        b"PING\n",
        b"PING  'a b'\r\n",
        b"ping \"\\x41\\n\"\r\n",
        b"GET \"a\"b\r\n",
        b"foo 'a\rb'\r\n",
    ] {
        let (mut theirs, mut ours) = (redis.client(), server.client());
        theirs.send(bytes);
        ours.send(bytes);
        let show = |answer: Option<Vec<u8>>| answer.map_or("<end>".into(), |bytes| bytes.escape_ascii().to_string());
        let shown = &bytes[..bytes.len().min(40)];
        assert_eq!(show(ours.answer()), show(theirs.answer()), "{}", shown.escape_ascii());
    }
}

/// Errors quote the request, up to some length.
#[test]
fn what_errors_quote_is_cut_as_redis_cuts_it() {
    let Some(redis) = Redis::start() else { return };
    let server = Server::start(Manner::Prompt);
    let (mut theirs, mut ours) = (redis.client(), server.client());
    for length in [1, 20, 60, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 200, 1000] {
        let x = "x".repeat(length);
        for line in [
            x.clone(),
            format!("{x} a b"),
            format!("foo {x}"),
            format!("foo {x} b c"),
            format!("foo a {x} b c"),
            format!("CLIENT {x}"),
            format!("CONFIG {x} a"),
            format!("EXPIRE k 1 {x}"),
            format!("HELLO 3 {x}"),
            format!("CLIENT SETNAME {x}"),
        ] {
            assert_eq!(ours.line(&line), theirs.line(&line), "{length}: {line}");
        }
    }
}
