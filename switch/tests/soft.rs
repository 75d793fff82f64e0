//! `scatter-switch soft` as a process on loopback: the treatment of its packets, the sources that it trusts, its start and its
//! end.
#![cfg(target_os = "linux")]

mod common;

use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use common::{Node, PARTITION, Soft, completion, encoded, header, program, read, write};
use header::{Header, Operation, ReplyTo};
use nix::sys::signal::Signal;

/// Starts a switch with this many replicas.
fn of(replicas: usize) -> (Soft, Vec<Node>) {
    let replicas: Vec<Node> = std::iter::repeat_with(Node::new).take(replicas).collect();
    (Soft::start(&replicas), replicas)
}

/// Completes the first write, so that reads may go to any replica.
fn begin(soft: &Soft, primary: &Node) {
    primary.send(soft, write(1000));
    assert_eq!(primary.receive_header().sequence, 1);
    primary.send_for(soft, completion(1), ReplyTo::NOWHERE);
    soft.expect("completions_total", 1);
}

/// Harmonia Algorithm 1.
#[test]
fn writes_are_numbered_and_reads_spread() {
    let ((soft, replicas), client) = (of(3), Node::new());
    let primary = &replicas[0];
    client.send(&soft, read(1));
    assert_eq!(primary.receive(), (read(1), client.address().into()), "nothing is complete yet");
    begin(&soft, primary);
    for sequence in 2..=3 {
        primary.send(&soft, write(sequence));
        assert_eq!(primary.receive_header(), Header { switch: 1, sequence: sequence.into(), ..write(sequence) });
    }
    primary.send(&soft, Header { switch: 1, sequence: 3, ..header(Operation::WriteRest, 3) });
    assert_eq!(primary.receive_header(), header(Operation::WriteRest, 3));
    client.send(&soft, read(2));
    assert_eq!(primary.receive_header(), read(2), "it is open");
    for _ in 0..90 {
        client.send(&soft, read(1));
    }
    soft.expect("reads_total{to=\"single\"}", 90);
    soft.expect("packets_forwarded_total", 96);
    let fast = Header { operation: Operation::FastRead, switch: 1, committed: 1, ..read(1) };
    assert!(replicas.iter().all(|replica| replica.receive() == (fast, client.address().into())));
    let counts: Vec<usize> = replicas.iter().map(Node::count).collect();
    assert!(counts.iter().sum::<usize>() == 87 && counts.iter().all(|count| *count > 10), "{counts:?}");
    primary.send_for(&soft, completion(3), ReplyTo::NOWHERE);
    soft.expect("packets_absorbed_total", 2);
    client.send(&soft, read(2));
    soft.expect("partition_reads_total{partition=\"7\",to=\"single\"}", 91);
    soft.expect("reads_total{to=\"primary\"}", 2);
    soft.expect("partition_writes_total{partition=\"7\"}", 3);
    soft.expect("packets_received_total", 99);
}

#[test]
fn answers_go_to_who_asked_and_to_nobody_else() {
    let ((soft, replicas), client, victim) = (of(2), Node::new(), Node::new());
    let reply = header(Operation::Reply, 5);
    client.send(&soft, read(5));
    let (_, reply_to) = replicas[0].receive();
    // An answer is accepted from any replica, and a client gets it unchanged.
    for replica in &replicas {
        replica.send_for(&soft, reply, reply_to);
        assert_eq!(client.receive(), (reply, reply_to));
    }
    // An answer that is also a completion.
    replicas[0].send(&soft, write(6));
    let completing = Header { sequence: replicas[0].receive_header().sequence, ..completion(0) };
    replicas[0].send_for(&soft, completing, reply_to);
    assert_eq!(client.receive_header(), completing);
    soft.expect("completions_total", 1);

    // An answer to an address without a request, and to none.
    replicas[0].send_for(&soft, reply, victim.address().into());
    replicas[0].send_for(&soft, reply, ReplyTo::NOWHERE);
    soft.expect_dropped("unknown_client", 2);
    // A stranger's answers, to a client and to other addresses; a replica's address in its packet has no effect.
    for to in [client.address(), victim.address(), replicas[0].address()] {
        Node::new().send_for(&soft, reply, to.into());
    }
    soft.expect_dropped("stranger", 3);
    // A request that wants its answer at another address; a replica may forward such a request.
    for operation in [Operation::Read, Operation::FastRead] {
        Node::new().send_for(&soft, header(operation, 5), victim.address().into());
    }
    soft.expect_dropped("foreign_reply_address", 2);
    replicas[1].send_for(&soft, Header { tag: 5, ..write(6) }, client.address().into());
    assert_eq!(replicas[0].receive(), (Header { tag: 5, switch: 1, sequence: 2, ..write(6) }, client.address().into()));
    // A request that wants no answer.
    client.send_for(&soft, Header { tag: 6, ..read(6) }, ReplyTo::NOWHERE);
    assert_eq!(replicas[0].receive_header().tag, 6);
    victim.expect_nothing();
    client.expect_nothing();
}

/// If it counted, single replicas would answer while a write is open.
#[test]
fn a_strangers_completion_changes_nothing() {
    let ((soft, replicas), client) = (of(2), Node::new());
    replicas[0].send(&soft, write(5));
    assert_eq!(replicas[0].receive_header().sequence, 1);
    client.send_for(&soft, completion(1), ReplyTo::NOWHERE);
    client.send(&soft, completion(1));
    soft.expect_dropped("stranger", 2);
    // Completions of a replica, but of another switch, or beyond the numbers given.
    replicas[0].send_for(&soft, Header { switch: 2, ..completion(1) }, ReplyTo::NOWHERE);
    replicas[0].send_for(&soft, completion(2), ReplyTo::NOWHERE);
    soft.expect_dropped("stale", 2);
    soft.expect("partition_dropped_total{partition=\"7\",reason=\"stale\"}", 2);
    client.send(&soft, read(5));
    assert_eq!(replicas[0].receive_header(), read(5));
    soft.expect("completions_total", 0);
}

/// If they counted, other writes would have no room: no primary completes them.
#[test]
fn a_strangers_writes_change_nothing() {
    let ((soft, replicas), client) = (of(1), Node::new());
    begin(&soft, &replicas[0]);
    for operation in [Operation::WriteFirst, Operation::WriteRest] {
        for to in [client.address().into(), ReplyTo::NOWHERE, replicas[0].address().into()] {
            client.send_for(&soft, header(operation, 5), to);
        }
    }
    soft.expect_dropped("stranger", 6);
    replicas[0].expect_nothing();
    // A read makes a client: an address that only wrote gets no answer.
    replicas[0].send_for(&soft, header(Operation::Reply, 5), client.address().into());
    soft.expect_dropped("unknown_client", 1);
    client.send(&soft, read(5));
    assert_eq!(replicas[0].receive_header().operation, Operation::FastRead, "it is clean");
    replicas[0].send(&soft, write(5));
    assert_eq!(replicas[0].receive_header().sequence, 2, "no other was numbered");
}

#[test]
fn what_is_no_packet_is_dropped_and_counted() {
    let ((soft, replicas), client) = (of(1), Node::new());
    let good = encoded(read(1), client.address().into());
    let with = |place: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[place] = byte;
        client.send_bytes(&soft, &bytes);
    };
    client.send_bytes(&soft, &[]);
    client.send_bytes(&soft, &good[..79]);
    client.send_bytes(&soft, &vec![0x48; 1453]);
    client.send_bytes(&soft, &vec![0x48; 60_000]);
    for (place, byte) in [(0, 0), (2, 9), (3, 9), (50, 1), (78, 1)] {
        with(place, byte);
    }
    client.send(&soft, Header { partition: 8, ..read(1) });
    client.send(&soft, Header { term: 2, ..read(1) });
    for (reason, count) in [
        ("malformed_size", 4),
        ("malformed_magic", 1),
        ("malformed_version", 1),
        ("malformed_operation", 1),
        ("malformed_lengths", 2),
        ("no_partition", 2),
    ] {
        soft.expect_dropped(reason, count);
    }
    replicas[0].expect_nothing();
    client.send(&soft, read(1));
    assert_eq!(replicas[0].receive_header(), read(1));
}

/// Hazard 56: a write that is not tracked is not forwarded.
#[test]
fn a_full_set_takes_no_more() {
    let replica = [Node::new()];
    // Each of this many partitions has 512 slots in each of 3 stages.
    let partitions: Vec<String> = (0..128).map(|number| format!("{number},primary=1,replicas=1")).collect();
    let soft = Soft::with("127.0.0.1:0", &replica, &partitions);
    let mut tracked = 0;
    for object in 1..=4000 {
        replica[0].send(&soft, write(object));
        if object % 100 == 0 {
            soft.expect("packets_received_total", u64::from(object));
            tracked += replica[0].count();
        }
    }
    assert!((512..=3 * 512).contains(&tracked), "{tracked}");
    soft.expect_dropped("full", 4000 - tracked as u64);
    soft.expect(
        &format!("partition_dropped_total{{partition=\"{PARTITION}\",reason=\"full\"}}"),
        4000 - tracked as u64,
    );
    // Another partition has slots of its own.
    replica[0].send(&soft, Header { partition: 8, ..write(1) });
    assert_eq!(replica[0].receive_header().sequence, 1);
}

#[test]
fn what_cannot_be_sent_ends_nothing() {
    let (replica, client) = (Node::new(), Node::new());
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ports = format!("1={},2=[::1]:9,3=255.255.255.255:9,4={nobody}", replica.address());
    let partitions: Vec<String> = (1..=5).map(|number| format!("{number},primary={number}")).collect();
    let soft = Soft::begin("127.0.0.1:0", &ports, &partitions);
    for _ in 0..3 {
        for partition in (1..=5).rev() {
            client.send(&soft, Header { partition, ..read(1) });
        }
    }
    for _ in 0..3 {
        assert_eq!(replica.receive_header().partition, 1);
    }
    soft.expect_dropped("send_failed", 6);
    soft.expect_dropped("no_port", 3);
    // No program listens there, and the system reports that to no sender.
    soft.expect("packets_forwarded_total", 6);
    soft.expect("receive_errors_total", 0);
}

/// A socket of IPv6 has IPv4 clients as well, each under one name.
#[test]
fn clients_of_both_families() {
    if UdpSocket::bind("[::1]:0").is_err() {
        return;
    }
    let replicas = [Node::new(), Node::at("[::1]:0")];
    let mut soft = Soft::with("[::]:0", &replicas, &[format!("{PARTITION},primary=1"), "8,primary=2".to_owned()]);
    let port = soft.address.port();
    for (client, to) in [(Node::new(), "127.0.0.1"), (Node::at("[::1]:0"), "[::1]")] {
        soft.address = format!("{to}:{port}").parse().unwrap();
        for (replica, of) in replicas.iter().zip([PARTITION, 8]) {
            client.send(&soft, Header { partition: of, ..read(1) });
            let (question, reply_to) = replica.receive();
            assert_eq!((question.partition, reply_to.address()), (of, Some(client.address())));
            soft.address.set_ip(replica.address().ip());
            replica.send_for(&soft, header(Operation::Reply, of), reply_to);
            assert_eq!(client.receive_header().object, of);
            soft.address.set_ip(client.address().ip());
        }
    }
}

#[test]
fn monitoring_is_answered_and_bounded() {
    let (soft, _replicas) = of(2);
    assert!(soft.page("/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(soft.page("/healthz").ends_with("\r\n\r\nok\n"));
    let page = soft.page("/metrics?x=y");
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    for line in body.lines().filter(|line| !line.starts_with("# ")) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("scatter_switch_") && value.parse::<u64>().is_ok(), "{line}");
        let family = name.split('{').next().unwrap();
        let family =
            ["_bucket", "_sum", "_count"].iter().fold(family, |name, end| name.strip_suffix(end).unwrap_or(name));
        assert!(body.contains(&format!("# TYPE {family} ")), "{family}");
    }
    assert_eq!((soft.metric("ports"), soft.metric("partitions")), (2, 1));
    assert!(soft.metric("receive_buffer_bytes") > 0 && soft.metric("kernel_dropped_total") == 0);
    assert!(soft.page("/").starts_with("HTTP/1.1 404 "));
    assert!(soft.ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(soft.ask("\r\n\r\n").starts_with("HTTP/1.1 404 "));
    // A web page whose name leads to this machine.
    for path in ["/metrics", "/healthz"] {
        let refused = soft.ask(&format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\n\r\n"));
        assert!(
            refused.starts_with("HTTP/1.1 403 ") && refused.contains("in the Host header, not another name"),
            "{refused}"
        );
    }
    assert!(soft.ask(&"x".repeat(8 << 10)).starts_with("HTTP/1.1 431 "));
    // A silent client delays other clients for a moment only.
    let silent: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(soft.metrics).unwrap()).collect();
    let asked = Instant::now();
    assert!(soft.page("/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
    drop(silent);
}

#[test]
fn a_signal_ends_it() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        if signal == Signal::SIGHUP && environment::is_hangup_ignored() {
            println!("skipped: SIGHUP is ignored here, as under nohup");
            continue;
        }
        let (soft, _replicas) = of(1);
        let asked = Instant::now();
        let (status, rest) = soft.end(signal);
        assert_eq!((status.code(), rest.as_str()), (Some(0), ""));
        assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    }
}

/// If the process was started with SIGHUP ignored, the end of a terminal does not end it.
#[test]
fn nohup_is_heard() {
    let ports = Node::new();
    let mut command = std::process::Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_scatter-switch"));
    let soft = Soft::begin_with(command, "127.0.0.1:0", &format!("1={}", ports.address()), &["7,primary=1".to_owned()]);
    soft.signal(Signal::SIGHUP);
    std::thread::sleep(Duration::from_millis(300));
    assert!(soft.page("/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(soft.end(Signal::SIGTERM).0.code(), Some(0));
}

#[test]
fn variables_are_named_and_empty_ones_are_unset() {
    let run = |value: &str, more: &[&str]| {
        let mut command = program();
        command.args(["soft", "--listen", "127.0.0.1:0"]).args(more).env("SCATTER_OUTPUT", value);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let named = "from the environment variable SCATTER_OUTPUT.";
    let empty = run("", &[]);
    assert!(empty.contains("no controller could set the switch's tables"), "{empty}");
    let wrong = run("xml", &[]);
    assert!(wrong.contains("--output") && wrong.contains(named), "{wrong}");
    let typed = run("xml", &["--output", "yaml"]);
    assert!(typed.contains("yaml") && !typed.contains(named), "{typed}");
}

#[test]
fn what_cannot_be_printed_ends_with_74() {
    for asked in ["--help", "--version"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = program().arg(asked).stdout(writer).output().unwrap();
        assert_eq!(closed.status.code(), Some(74), "{asked}");
        assert!(closed.stderr.is_empty(), "whoever closed the pipe has seen enough: {closed:?}");
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let full = program().arg(asked).stdout(full).output().unwrap();
        assert!(full.status.code() == Some(74) && !full.stderr.is_empty(), "{asked}: {full:?}");
    }
}

#[test]
fn completions_name_the_program() {
    for shell in ["bash", "zsh", "fish"] {
        let output = program().args(["completions", shell]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("scatter-switch") && script.contains("soft"), "{shell}: {script}");
    }
    assert_eq!(program().args(["completions", "nosuch"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn command_lines_that_cannot_be() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let good = ["soft", "--listen", "127.0.0.1:0", "--partition", "7,primary=1"];
    let plus = |more: &[&'static str]| [&good[..], more].concat();
    for (arguments, exit) in [
        (vec![], 2),
        (vec!["soft"], 2),
        (vec!["\x1b[31mred"], 2),
        (vec!["soft", "--listen", "\x1b]0;x\x07"], 2),
        (vec!["soft", "--listen", "127.0.0.1:0"], 2),
        (vec!["soft", "--listen", "127.0.0.1"], 2),
        (vec!["soft", "--listen", &taken, "--partition", "7,primary=1"], 1),
        (plus(&["--metrics", "192.0.2.1:9"]), 1),
        (plus(&["--metrics", "on"]), 2),
        (plus(&["--ports", "1"]), 2),
        (plus(&["--ports", "1=127.0.0.1:0"]), 2),
        (plus(&["--ports", "1=127.0.0.1:1,1=127.0.0.1:2"]), 2),
        (plus(&["--partition", "7,primary=2"]), 2),
        (plus(&["--partition", "8"]), 2),
        (plus(&["--nothing"]), 2),
    ] {
        let output = program().args(&arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {text}");
        assert!(!text.is_empty() && text.chars().all(|char| !char.is_control() || char == '\n'), "{text:?}");
        assert!(output.stdout.is_empty());
    }
    for asked in ["--help", "--version"] {
        let output = program().arg(asked).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty() && !output.stdout.is_empty());
    }
    let version = String::from_utf8(program().arg("--version").output().unwrap().stdout).unwrap();
    assert!(version.starts_with("scatter-switch ") && version.ends_with(")\n"), "{version}");
    assert!(version.contains(" (commit "), "{version}");
}
