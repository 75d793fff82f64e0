//! The program as users and scripts run it: exit codes, the ready line, signals, HTTP pages.

mod common;
#[path = "command_line/data_dir.rs"]
mod data_dir;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::process::{Peer, command, end, ends, http, signal, text};
use rustix::process::Signal;

#[test]
fn one_operation_each() {
    let peer = Peer::start(&[]);
    ends(&peer.run(&["get", "a"]), 1, "");
    ends(&peer.run(&["set", "a", "one"]), 0, "OK\n");
    ends(&peer.run(&["get", "a"]), 0, "one\n");
    ends(&peer.run(&["get", "a", "--relaxed"]), 0, "one\n");
    ends(&peer.run(&["cas", "a", "--old", "two", "three"]), 1, "");
    ends(&peer.run(&["cas", "a", "--old", "one", "three"]), 0, "OK\n");
    ends(&peer.run(&["cas", "a", "--absent", "four"]), 1, "");
    ends(&peer.run(&["cas", "b", "four", "--absent"]), 0, "OK\n");
    ends(&peer.run(&["append", "b", "!"]), 0, "5\n");
    ends(&peer.run(&["incr", "n"]), 0, "1\n");
    ends(&peer.run(&["incr", "n", "10"]), 0, "11\n");
    ends(&peer.run(&["incr", "n", "--", "-3"]), 0, "8\n");
    ends(&peer.run(&["incr", "a"]), 4, "");
    ends(&peer.run(&["set", "--", "--dashed", "-v"]), 0, "OK\n");
    ends(&peer.run(&["get", "--", "--dashed"]), 0, "-v\n");
    ends(&peer.run(&["del", "a", "b", "nope"]), 0, "2\n");
    ends(&peer.run(&["del", "a"]), 1, "0\n");
    ends(&peer.run(&["set", "a", ""]), 0, "OK\n");
    ends(&peer.run(&["get", "a"]), 0, "\n");
    let long = "k".repeat(1025);
    ends(&peer.run(&["set", &long, "v"]), 4, "");
}

#[test]
fn answers_as_json() {
    use std::os::unix::ffi::OsStrExt as _;
    let peer = Peer::start(&[]);
    ends(&peer.run(&["get", "a", "--output", "json"]), 1, "{\"key\":\"a\",\"value\":null}\n");
    ends(&peer.run(&["set", "a", "x", "--output", "json"]), 0, "{\"done\":true,\"key\":\"a\"}\n");
    ends(&peer.run(&["get", "a", "--output", "json"]), 0, "{\"key\":\"a\",\"value\":\"x\"}\n");
    ends(&peer.run(&["cas", "a", "--absent", "y", "--output", "json"]), 1, "{\"done\":false,\"key\":\"a\"}\n");
    ends(&peer.run(&["incr", "n", "--output", "json"]), 0, "{\"key\":\"n\",\"value\":1}\n");
    ends(&peer.run(&["del", "n", "--output", "json"]), 0, "{\"deleted\":1}\n");
    let failed = peer.run(&["incr", "a", "--output", "json"]);
    ends(&failed, 4, "{\"error\":\"ERR value is not an integer or out of range\",\"exit\":4}\n");
    // Bytes that are no text.
    let bytes = std::ffi::OsStr::from_bytes(b"\xff");
    let with_bytes = |words: &[&std::ffi::OsStr]| {
        command(&[]).env("SCATTER_ADDR", &peer.resp).args(words).args(["--output", "json"]).output().unwrap()
    };
    with_bytes(&["set".as_ref(), bytes, bytes]);
    ends(
        &with_bytes(&["get".as_ref(), bytes]),
        0,
        "{\"key\":\"/w==\",\"key_encoding\":\"base64\",\"value\":\"/w==\",\"value_encoding\":\"base64\"}\n",
    );
}

#[test]
fn what_goes_wrong_has_its_code() {
    for arguments in [
        &[][..],
        &["nope"],
        &["get"],
        &["get", "a", "b"],
        &["cas", "a", "b"],
        &["incr", "a", "x"],
        &["run", "--max-disk", "5X"],
    ] {
        let output = command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    ends(&command(&["get", "a", "--addr", &nobody]).output().unwrap(), 3, "");
    ends(&command(&["set", "a", "b", "--addr", &nobody]).output().unwrap(), 3, "");
    ends(&command(&["status", "--http", &nobody]).output().unwrap(), 3, "");
    // A peer that answers so, or not at all.
    for (answer, arguments, code) in [
        ("-UNCERTAIN x\r\n", &["set", "a", "b"][..], 5),
        ("-TRYAGAIN x\r\n", &["set", "a", "b"], 6),
        ("-TRYAGAIN x\r\n", &["get", "a"], 6),
        ("-OOM x\r\n", &["set", "a", "b"], 4),
        ("-NOAUTH x\r\n", &["get", "a"], 4),
        ("", &["incr", "a"], 5),
        ("", &["get", "a"], 3),
        ("$5\r\nab", &["append", "a", "b"], 5),
        ("*9999999999\r\n", &["get", "a"], 3),
        ("hello\r\n", &["get", "a"], 3),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let output = command(arguments).args(["--addr", &address]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{answer} {arguments:?}");
        peer.join().unwrap();
    }
}

#[test]
fn a_password_by_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "hush\n").unwrap();
    let file = file.to_str().unwrap();
    let peer =
        Peer::with(command(&["run", "--new", "--resp", "0.0.0.0:0", "--http", "off"]), &["--resp-password-file", file]);
    assert_eq!(peer.http, "off");
    let port = peer.resp.rsplit(':').next().unwrap();
    let address = format!("127.0.0.1:{port}");
    ends(&command(&["get", "a", "--addr", &address]).output().unwrap(), 4, "");
    let set = ["set", "a", "1", "--addr", &address, "--password-file", file];
    ends(&command(&set).output().unwrap(), 0, "OK\n");
    std::fs::write(file, "other").unwrap();
    ends(&command(&set).output().unwrap(), 4, "");
    // Without a password such an endpoint is not opened at all.
    let refused = command(&["run", "--new", "--resp", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--resp-password-file"));
}

#[test]
fn ready_line_as_text_and_a_taken_port() {
    let mut child = command(&["run", "--new", "--resp", "127.0.0.1:0", "--http", "off"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let resp = line.trim().split(' ').find_map(|word| word.strip_prefix("resp=")).unwrap().to_owned();
    let start = format!("ready peer=12D3KooWAlone resp={resp} http=off join=/ip4/0.0.0.0/tcp/6478/p2p/12D3KooWAlone,");
    assert!(line.starts_with(&start), "{line}");
    let second = command(&["run", "--new", "--resp", &resp, "--http", "off"]).output().unwrap();
    assert!(!second.status.success());
    assert!(text(&second.stderr).contains("listens on"), "{}", text(&second.stderr));
    signal(&child, Signal::INT);
    assert_eq!(end(&mut child, Duration::from_secs(5)).0, Some(0));
}

#[test]
fn signals_stop_politely_and_a_second_one_at_once() {
    for number in [Signal::TERM, Signal::INT] {
        let mut peer = Peer::start(&[]);
        signal(&peer.child, number);
        let (code, took) = end(&mut peer.child, Duration::from_secs(10));
        assert_eq!(code, Some(0));
        assert!(took < Duration::from_secs(3), "{took:?}");
        let mut rest = String::new();
        peer.out.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "one line is all that goes to stdout");
    }
    // A stop that does not finish its work is over within 10 s all the same.
    let stuck = || {
        let mut command = command(&["run", "--new", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
        command.env("STAND_IN_STUCK", "1");
        Peer::with(command, &[])
    };
    let (mut patient, mut hurried) = (stuck(), stuck());
    let idle = TcpStream::connect(&patient.resp).unwrap();
    signal(&patient.child, Signal::TERM);
    signal(&hurried.child, Signal::TERM);
    std::thread::sleep(Duration::from_millis(500));
    assert!(hurried.child.try_wait().unwrap().is_none());
    signal(&hurried.child, Signal::TERM);
    let (code, took) = end(&mut hurried.child, Duration::from_secs(2));
    assert_ne!(code, Some(0));
    assert!(took < Duration::from_secs(1));
    assert_eq!(end(&mut patient.child, Duration::from_secs(10)).0, Some(0));
    drop(idle);
}

/// A process that can be reached stops in order, however early the signal comes. Many run at once, so that some are interrupted
/// between their first port and the next step.
#[test]
fn a_daemon_that_has_just_opened_its_port_stops_politely() {
    let one = |thread: usize, run: usize| {
        let address = own_address(thread, run);
        let arguments = ["run", "--new", "--resp", &address, "--http", "127.0.0.1:0"];
        let mut child = command(&arguments).stdout(Stdio::null()).spawn().unwrap();
        let since = Instant::now();
        while TcpStream::connect(&address).is_err() {
            assert!(since.elapsed() < Duration::from_secs(20), "it opens no port");
        }
        signal(&child, Signal::TERM);
        assert_eq!(end(&mut child, Duration::from_secs(10)).0, Some(0));
    };
    std::thread::scope(|scope| {
        (0..8).for_each(|thread| drop(scope.spawn(move || (1..=20).for_each(|run| one(thread, run)))));
    });
}

/// Returns an address that no other program here listens on: only the daemon that was given it can be reached there.
fn own_address(thread: usize, run: usize) -> String {
    format!("127.1.{thread}.{run}:16479")
}

#[test]
fn http_pages() {
    let peer = Peer::start(&[]);
    assert_eq!(peer.get("/healthz").0, 200);
    assert_eq!(peer.get("/readyz").0, 200);
    assert!(peer.get("/readyz?verbose").1.contains("[+] group: alone"));
    let (code, metrics) = peer.get("/metrics");
    assert_eq!(code, 200);
    peer.run(&["incr", "n"]);
    for name in [
        "scatter_ready 1",
        "scatter_leaving 0",
        "scatter_uptime_seconds ",
        "scatter_groups 1",
        "scatter_group_messages_dropped_total{group=\"77777777777777777777777777777777\",reason=\"far\"} 2",
        "scatter_resp_clients ",
        "scatter_resp_latency_seconds_bucket",
        "# TYPE scatter_group_messages_dropped_total counter",
        "scatter_build_info{version=",
        "content-type: text/plain; version=0.0.4",
    ] {
        assert!(metrics.contains(name), "{name} in {metrics}");
    }
    assert!(peer.get("/metrics").1.contains("scatter_resp_commands_total{command=\"incrby\"} 1"));
    let (code, status) = peer.get("/v1/status");
    assert_eq!(code, 200);
    let status: serde_json::Value = serde_json::from_str(status.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    for field in ["peer_id", "network", "version", "uptime_s", "groups"] {
        assert!(!status[field].is_null(), "{field}");
    }
    let group = status["groups"][0].as_object().unwrap();
    for field in [
        "id",
        "epoch",
        "range",
        "members",
        "leader",
        "primaries",
        "predecessor",
        "successor",
        "keys",
        "bytes",
        "ops_per_s",
    ] {
        assert!(group.contains_key(field), "{field}");
    }
    assert_eq!(peer.get("/nope").0, 404);
    assert_eq!(http(&peer.http, "POST /v1/status HTTP/1.0\r\n\r\n").0, 405);
    // Garbage and silence.
    assert!([0, 400].contains(&http(&peer.http, "\u{1}\u{2}\r\n\r\n").0));
    let _silent: Vec<_> = (0..50).map(|_| TcpStream::connect(&peer.http).unwrap()).collect();
    assert_eq!(peer.get("/healthz").0, 200);
    let output = peer.run(&["status"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("ready      yes"));
    let json = peer.run(&["status", "--output", "json"]);
    assert!(serde_json::from_slice::<peer::status::Status>(&json.stdout).is_ok());
}

#[test]
fn leaving_is_asked_for_and_followed() {
    let mut peer = Peer::start(&[]);
    // Refused: nothing is done, and the text names the risk.
    let refused = peer.run(&["leave"]);
    ends(&refused, 4, "");
    assert!(text(&refused.stderr).contains("--force") && text(&refused.stderr).contains("two members"));
    let refused = peer.run(&["leave", "--output", "json"]);
    assert_eq!(refused.status.code(), Some(4));
    let said: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!((&said["exit"], &said["reason"]), (&4.into(), &"few_members".into()));
    assert!(!text(&peer.run(&["status"]).stdout).contains("leaving"));
    // Over HTTP.
    let post = |head: &str, body: &str| {
        let length = body.len();
        http(&peer.http, &format!("POST /v1/leave HTTP/1.0\r\n{head}Content-Length: {length}\r\n\r\n{body}"))
    };
    for (head, body, code) in [
        ("", "", 409),
        ("", "{}", 409),
        ("", "{\"force\": 1}", 400),
        ("", "yes", 400),
        ("", &"x".repeat(1025), 413),
        ("Origin: http://evil.example\r\n", "{\"force\": true}", 403),
    ] {
        let (said, answer) = post(head, body);
        let error: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert!(said == code && error["error"].is_string(), "{head}{body}: {answer}");
    }
    for method in ["GET", "HEAD", "PUT", "DELETE"] {
        let (code, answer) = http(&peer.http, &format!("{method} /v1/leave HTTP/1.0\r\n\r\n"));
        assert_eq!(code, 405, "{method}");
        assert!(answer.to_ascii_lowercase().contains("allow: post"), "{answer}");
    }
    assert_eq!(peer.get("/v1/status").0, 200, "it is still there");
    // Each step once, and the end.
    let output = peer.run(&["leave", "--force"]);
    let steps = "handing over primaries: 1 to go\nwaiting until a majority holds everything\nleft peer=12D3KooWAlone\n";
    ends(&output, 0, steps);
    assert!(text(&output.stderr).contains("interrupted"));
    assert_eq!(end(&mut peer.child, Duration::from_secs(5)).0, Some(0));
    let mut rest = String::new();
    peer.out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "{\"event\":\"left\",\"peer_id\":\"12D3KooWAlone\"}\n");
    ends(&peer.run(&["leave"]), 3, "");
}

#[test]
fn leaving_as_json_and_with_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "hush\n").unwrap();
    let file = file.to_str().unwrap();
    let mut peer = Peer::start(&["--admin-token-file", file]);
    let without = peer.run(&["leave", "--force"]);
    ends(&without, 4, "");
    assert!(text(&without.stderr).contains("--admin-token-file"));
    let (code, answer) = http(&peer.http, "POST /v1/leave HTTP/1.0\r\n\r\n");
    assert!(code == 401 && answer.to_ascii_lowercase().contains("www-authenticate: bearer"), "{answer}");
    let wrong = directory.path().join("wrong");
    std::fs::write(&wrong, "hash").unwrap();
    ends(&peer.run(&["leave", "--force", "--admin-token-file", wrong.to_str().unwrap()]), 4, "");
    ends(&peer.run(&["leave", "--admin-token-file", "/nowhere/token"]), 2, "");
    let output = peer.run(&["leave", "--force", "--output", "json", "--admin-token-file", file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["leaving"]["step"], "handing over primaries");
    assert_eq!(lines.last().unwrap()["event"], "left");
    assert_eq!(end(&mut peer.child, Duration::from_secs(5)).0, Some(0));
}

/// A dead peer has not left: a client that follows must not take one for the other.
#[test]
fn who_dies_while_it_leaves_has_not_left() {
    let mut command = command(&["run", "--new", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    let peer = {
        command.env("STAND_IN_DIES", "1");
        Peer::with(command, &[])
    };
    let output = peer.run(&["leave", "--force"]);
    ends(&output, 5, "handing over primaries: 1 to go\n");
    assert!(text(&output.stderr).contains("continues to leave"), "{}", text(&output.stderr));
}

#[test]
fn settings_and_where_they_are_from() {
    let output = command(&["run", "--new", "--print-config", "--output", "json", "--away", "5"])
        .env("SCATTER_CLUSTER", "attic")
        .env("SCATTER_LISTEN", "/ip4/127.0.0.1/tcp/1,/ip4/127.0.0.1/udp/1/quic-v1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["away"]["origin"], "flag");
    assert_eq!(shown["cluster"]["origin"], "environment SCATTER_CLUSTER");
    assert_eq!(shown["listen"]["value"], "/ip4/127.0.0.1/tcp/1,/ip4/127.0.0.1/udp/1/quic-v1");
    assert_eq!(shown["max-group"]["origin"], "default");
    let output = command(&["run", "--new", "--print-config", "--output", "json"])
        .env("SCATTER_POLICY", "lead=oldest")
        .output()
        .unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(shown["policy"]["value"].as_str().is_some_and(|policies| policies.contains("lead=oldest,repartition=")));
    assert_eq!(shown["policy"]["origin"], "environment SCATTER_POLICY");
    let output = command(&["run", "--new", "--policy", "lead=nobody"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("agreement, oldest, random, anybody"), "{}", text(&output.stderr));
}

#[test]
fn a_name_is_checked_before_anything_starts() {
    let too_long = "x".repeat(33);
    for bad in ["", "an oak", "o\u{1b}k", "chêne", "a/b", &too_long] {
        let output = command(&["run", "--new", "--name", bad]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
        let said = text(&output.stderr);
        assert!(said.contains("--name") && said.contains("1 to 32 characters"), "{said}");
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
    let output = command(&["run", "--new"]).env("SCATTER_NAME", "an oak").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("SCATTER_NAME"), "{}", text(&output.stderr));
    let shown = |name: &str| -> serde_json::Value {
        let mut command = command(&["run", "--new", "--print-config", "--output", "json"]);
        serde_json::from_slice(&command.env("SCATTER_NAME", name).output().unwrap().stdout).unwrap()
    };
    assert_eq!((&shown("")["name"]["value"], &shown("")["name"]["origin"]), (&"".into(), &"default".into()));
    let oak = &shown("oak-7_b.c")["name"];
    assert_eq!((&oak["value"], &oak["origin"]), (&"oak-7_b.c".into(), &"environment SCATTER_NAME".into()));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "name = \"an oak\"\n").unwrap();
    let output = command(&["run", "--new", "--config", file.path().to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("1 to 32 characters"), "{}", text(&output.stderr));
}

#[test]
fn the_ready_line_has_the_name() {
    for (output, wanted) in [("json", ",\"name\":\"oak\"}"), ("text", " name=oak join=")] {
        let arguments = ["run", "--new", "--resp", "127.0.0.1:0", "--http", "off", "--name", "oak", "--output", output];
        let mut child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        signal(&child, Signal::INT);
        assert_eq!(end(&mut child, Duration::from_secs(5)).0, Some(0));
        assert!(line.contains(wanted), "{line}");
    }
}

#[test]
fn for_packagers() {
    for shell in ["bash", "zsh", "fish"] {
        let output = command(&["completions", shell]).output().unwrap();
        assert!(output.status.success() && text(&output.stdout).contains("scatter"), "{shell}");
    }
    let page = command(&["man"]).output().unwrap();
    assert!(page.status.success());
    for word in ["scatter", "SCATTER RUN", "max\\-group"] {
        assert!(text(&page.stdout).contains(word), "{word}");
    }
    assert!(command(&["--version"]).output().unwrap().status.success());
    for subcommand in [
        "run",
        "demo",
        "get",
        "set",
        "del",
        "cas",
        "incr",
        "append",
        "status",
        "top",
        "leave",
        "network",
        "completions",
        "man",
    ] {
        assert!(command(&[subcommand, "--help"]).output().unwrap().status.success(), "{subcommand}");
    }
}

#[test]
fn load_is_made_and_told() {
    let peer = Peer::start(&[]);
    let pid = peer.child.id().to_string();
    let short = ["--duration", "0.3", "--warm-up", "0", "--keys", "50", "--pid", &pid];
    let bench = |more: &[&str]| peer.run(&[&["bench"], &short[..], more].concat());
    let output = bench(&["--fill", "--writes", "50"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
    for part in ["16 connections to", "50 % writes", "p99.9 ms", "\nwrites ", "\nreads ", &format!("\n  pid {pid}: ")] {
        assert!(said.contains(part), "{part} in {said}");
    }
    ends(&peer.run(&["get", "key:000000000050"]), 1, "");
    assert_eq!(peer.run(&["get", "key:000000000049"]).stdout.len(), 101);
    let output = bench(&["--output", "json", "--rate", "200", "--writes", "0", "--zipf", "--relaxed"]);
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&said["zipf"], &said["report"]["reads"]["done"]), (&0.99.into(), &60.into()), "{said}");
    assert!(said["servers"][0]["resident_bytes"].as_u64().unwrap() > 1 << 20);
    for wrong in [["--writes", "101"], ["--connections", "0"], ["--duration", "-1"], ["--pid", "4294967295"]] {
        let output = bench(&wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{wrong:?}");
    }
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    ends(&bench(&["--addr", &nobody]), 3, "");
}

/// A result that cannot be printed is no success, and nothing panics; an answer of "no" keeps its code.
#[test]
fn exit_codes_where_nothing_can_be_printed() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full");
    if full().is_err() {
        println!("skipped: there is no /dev/full");
        return;
    }
    let peer = Peer::start(&[]);
    ends(&peer.run(&["set", "a", "one"]), 0, "OK\n");
    let run = |arguments: &[&str], to_stdout: bool| {
        let mut command = command(arguments);
        command.env("SCATTER_ADDR", &peer.resp).env("SCATTER_HTTP", &peer.http);
        let (out, err) =
            if to_stdout { (full().unwrap().into(), Stdio::piped()) } else { (Stdio::piped(), full().unwrap().into()) };
        command.stdout(out).stderr(err).output().unwrap().status.code()
    };
    for words in
        ["get a", "set a one", "incr n", "append b x", "status", "--help", "--version", "man", "completions bash"]
    {
        let words: Vec<&str> = words.split(' ').collect();
        assert_eq!(run(&words, true), Some(74), "{words:?} > /dev/full");
    }
    for words in ["groups", "ring", "where a", "get a", "get nope", "nonsense", "get"] {
        let words: Vec<&str> = words.split(' ').collect();
        let usual = peer.run(&words).status.code();
        assert_eq!(run(&words, false), usual, "{words:?} 2> /dev/full");
        let expected = if usual == Some(0) { Some(74) } else { usual };
        assert_eq!(run(&words, true), expected, "{words:?} > /dev/full");
    }
}

/// A daemon serves and stops in order wherever its log and its ready line go.
#[test]
fn a_daemon_whose_words_nobody_takes() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full");
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    let outs: [(&str, &dyn Fn() -> Option<Stdio>); 2] =
        [("full", &|| full().ok().map(Stdio::from)), ("closed", &|| Some(closed()))];
    for (name, out) in outs {
        let (Some(stdout), Some(stderr)) = (out(), out()) else {
            println!("skipped: there is no /dev/full");
            continue;
        };
        let address = own_address(200, name.len());
        let mut child = command(&["run", "--new", "--resp", "off", "--http", &address])
            .env("RUST_LOG", "trace")
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .unwrap();
        let ready = || TcpStream::connect(&address).is_ok();
        let (mut tries, mut served) = (0, false);
        while !served && tries < 1000 {
            (tries, served) = (tries + 1, ready());
            std::thread::sleep(Duration::from_millis(10));
        }
        signal(&child, Signal::TERM);
        let (code, _) = end(&mut child, Duration::from_secs(20));
        assert!(served, "{name}");
        assert_eq!(code, Some(0), "{name}");
    }
}
