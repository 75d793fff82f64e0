//! The client zoo: the usual client libraries with their defaults against three real peers.
//!
//! `testnet/zoo/README.md` describes the program of each client. The tools of their languages fetch and build the clients, so
//! these tests run only where `SCATTER_ZOO` is set. A client whose tools are not installed is left out, and the test prints
//! this; a client that cannot be made is a failure.

mod clients;
mod document;
mod program;
mod proxy;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use clients::{CLIENTS, Client, FAULTS, Lack, ONE};
use program::Program;
use proxy::{Fault, FaultProxy, HOLD};
use testnet::live::{Cluster, ClusterOptions, Connection, Reply, fast_program};
use testnet::tool;

/// The clients that can be tested here, with the commands that start their programs.
type Made = Vec<(&'static Client, Vec<String>)>;

/// Makes every program, once. Returns `None` where `SCATTER_ZOO` is not set.
fn zoo() -> Option<&'static Made> {
    static MADE: OnceLock<Made> = OnceLock::new();
    if std::env::var_os("SCATTER_ZOO").is_none() {
        eprintln!("skipped: SCATTER_ZOO is not set; with it, clients are fetched and tried");
        return None;
    }
    Some(MADE.get_or_init(make))
}

fn make() -> Made {
    let mut folders: BTreeMap<&str, Vec<&'static Client>> = BTreeMap::new();
    CLIENTS.iter().for_each(|client| folders.entry(client.folder()).or_default().push(client));
    // Fetching is mostly waiting.
    let made: Vec<_> = std::thread::scope(|scope| {
        let threads = folders.into_iter().map(|(folder, clients)| {
            scope.spawn(move || {
                let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("zoo").join(folder);
                clients.into_iter().map(|client| (client, client.program(&place))).collect::<Vec<_>>()
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("making does not panic")).collect()
    });
    let mut programs = Vec::new();
    for (client, program) in made {
        match program {
            Ok(program) => programs.push((client, program)),
            Err(Lack::Tool(why)) => eprintln!("skipped: {}: {why}", client.name),
            Err(Lack::Made(why)) => panic!("{} cannot be made: {why}", client.name),
        }
    }
    programs
}

/// Starts three peers, built for speed: the tests look at the clients, all of them at once.
fn three_peers(test: &str) -> Cluster {
    let program = Some(fast_program().to_owned());
    let cluster = Cluster::start(test, &ClusterOptions { daemons: 3, program, ..ClusterOptions::default() });
    cluster.wait_serving(&cluster.all(), Duration::from_secs(60));
    cluster
}

/// Runs a test for all clients at once, and panics with all failures.
fn for_all(clients: &Made, run: impl Fn(&'static Client, &[String]) -> Vec<String> + Sync) {
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let start = |(client, program): &(&'static Client, Vec<String>)| {
            let (client, program, run) = (*client, program.clone(), &run);
            scope.spawn(move || run(client, &program))
        };
        let threads: Vec<_> = clients.iter().map(start).collect();
        let ends = threads.into_iter().zip(clients).map(|(thread, (client, _))| match thread.join() {
            Ok(wrong) => wrong.into_iter().map(|why| format!("{}: {why}", client.name)).collect(),
            Err(_) => vec![format!("{}: see the panic above", client.name)],
        });
        ends.flatten().collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the names of the checks, from the list that all programs follow.
fn names() -> Vec<String> {
    let list = include_str!("../../zoo/README.md");
    let rows = list.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let rows = rows.skip_while(|(name, _)| *name != "connect");
    rows.take_while(|(name, _)| name.chars().all(|c| c == '_' || c.is_ascii_lowercase()))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[test]
fn every_client_does_all_that_the_list_says() {
    let Some(clients) = zoo() else { return };
    let names = names();
    assert_eq!(names.len(), 12, "{names:?}");
    let cluster = three_peers("zoo");
    let ports: Vec<String> = cluster.daemons.iter().map(|daemon| daemon.resp.port().to_string()).collect();
    for_all(clients, |client, program| {
        if !client.checks {
            return Vec::new();
        }
        let mut arguments = vec!["checks"];
        arguments.extend(ports.iter().map(String::as_str));
        let since = Instant::now();
        let said = Program::start(program, &arguments).rest();
        eprintln!("{}: {} checks in {:.1?}", client.name, said.len(), since.elapsed());
        let wanted: Vec<String> = names.iter().map(|name| format!("ok {name}")).collect();
        let left_out = wanted.iter().filter(|line| !said.contains(line)).map(|line| format!("does not say {line}"));
        left_out.chain(said.iter().filter(|line| !wanted.contains(line)).cloned()).collect()
    });
}

/// redis-benchmark asks for settings that it need not have, and counts the answers that it gets.
#[test]
fn redis_benchmark_finds_what_it_needs() {
    if std::env::var_os("SCATTER_ZOO").is_none() {
        eprintln!("skipped: SCATTER_ZOO is not set");
        return;
    }
    if let Err(why) = tool::run(Command::new("redis-benchmark").arg("--version")) {
        eprintln!("skipped: {why}");
        return;
    }
    let cluster = three_peers("zoo-benchmark");
    for (daemon, pipeline) in cluster.daemons.iter().zip(["1", "2", "4"]) {
        let kinds = ["-t", "ping,set,get,incr,mset", "-n", "1000", "-c", "8", "-r", "1000", "--csv", "-P", pipeline];
        let (well, said) = benchmark(daemon.resp, &kinds);
        let quiet = !["warning", "error"].iter().any(|word| said.to_lowercase().contains(word));
        assert!(well && quiet, "{said}");
        let figures = said.lines().filter(|line| line.starts_with('"') && !line.starts_with("\"test\"")).count();
        assert_eq!(figures, 6, "{said}");
    }
    // Once its connection is gone, the program ends, with one request on its way.
    let key = "zoo:benchmark";
    let proxy = FaultProxy::start(cluster.daemons[0].resp, key, Fault::Lost, FAULTS);
    let (well, said) = benchmark(proxy.address, &["-n", "1", "-c", "1", "INCR", key]);
    assert!(!well, "it has no answer and does not say so: {said}");
    assert_eq!((proxy.sends(), value(cluster.daemons[1].resp, key)), (1, 1));
}

/// Returns whether redis-benchmark ends well, and all its output.
fn benchmark(peer: SocketAddr, arguments: &[&str]) -> (bool, String) {
    let script = r#"redis-benchmark "$@" 2>&1; echo "ends with $?""#;
    let command = ["bash", "-c", script, "redis-benchmark", "-p", &peer.port().to_string()].map(str::to_owned);
    let said = Program::start(&command, arguments).rest();
    (said.last().is_some_and(|end| end == "ends with 0"), said.join("\n"))
}

/// Returns the number of times that a key was incremented.
fn value(peer: SocketAddr, key: &str) -> usize {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let connection = Connection::open(peer, Duration::from_secs(5));
        match connection.and_then(|mut connection| connection.call(&["GET", key])) {
            Ok(Reply::Bulk(Some(value))) => {
                return std::str::from_utf8(&value).ok().and_then(|n| n.parse().ok()).expect("a number");
            }
            Ok(Reply::Bulk(None)) => return 0,
            other => assert!(Instant::now() < until, "{key} cannot be read: {other:?}"),
        }
    }
}

/// Reaction of each client to an answer that does not come: with its defaults, set not to repeat, and under an id.
#[test]
fn what_each_client_repeats_by_itself_is_known() {
    let Some(clients) = zoo() else { return };
    let cluster = three_peers("zoo-repeats");
    let peers = (cluster.daemons[0].resp, cluster.daemons[1].resp);
    for_all(clients, |client, program| {
        let mut wrong = Vec::new();
        for setting in ["default", "safe", "once"] {
            for fault in [Fault::Lost, Fault::TryAgain, Fault::Uncertain, Fault::Silent] {
                let wanted = match setting {
                    "safe" if !client.safe => continue,
                    // An id matters only to a client that repeats.
                    "once" if client.by_default.at(fault) == 1 => continue,
                    "safe" => ONE.at(fault),
                    _ => client.by_default.at(fault),
                };
                let key = format!("zoo:{}:{setting}:{fault:?}", client.name);
                let seen = increment(peers, program, &key, setting, fault);
                eprintln!("{}: {setting}, {fault:?}: {seen:?}", client.name);
                wrong.extend(
                    seen.wrong(client, setting, fault, wanted).map(|why| format!("{setting}, {fault:?}: {why}")),
                );
            }
        }
        wrong
    });
}

/// Result of one increment.
#[derive(Debug)]
struct Seen {
    sends: usize,
    increments: usize,
    said: Vec<String>,
    after: Duration,
}

/// Lets a program increment a key once, through a proxy that causes this fault before a peer. Another peer is asked for the
/// result.
fn increment(
    (peer, other): (SocketAddr, SocketAddr),
    program: &[String],
    key: &str,
    setting: &str,
    fault: Fault,
) -> Seen {
    let proxy = FaultProxy::start(peer, key, fault, faults(fault));
    let program = Program::start(program, &["incr", &proxy.address.port().to_string(), key, setting]);
    program.expect("ready");
    let since = Instant::now();
    let said = program.rest();
    Seen { after: since.elapsed(), sends: proxy.sends(), increments: value(other, key), said }
}

/// A client that repeats after a silence shows that with the first one.
fn faults(fault: Fault) -> usize {
    if fault == Fault::Silent { 1 } else { FAULTS }
}

impl Seen {
    /// Returns the differences from the known numbers.
    fn wrong(&self, client: &Client, setting: &str, fault: Fault, sends: usize) -> impl Iterator<Item = String> {
        let refused = if fault == Fault::TryAgain { faults(fault).min(self.sends) } else { 0 };
        let increments = if setting == "once" { usize::from(self.sends > refused) } else { self.sends - refused };
        // The wait began a little before the proxy heard the command, and the program takes a while to print its line.
        let waits = match (setting, fault) {
            ("default", Fault::Silent) if client.waits == HOLD => HOLD * 4 / 5..Duration::MAX,
            ("default", Fault::Silent) => client.waits * 4 / 5..client.waits + Duration::from_millis(2500),
            // Every command is answered within 3 s.
            ("safe", Fault::Silent) => Duration::from_secs(3)..Duration::MAX,
            _ => Duration::ZERO..Duration::MAX,
        };
        let sure = [
            (self.sends == sends, format!("{self:?}, and not: sent {sends} times")),
            (self.increments == increments, format!("{self:?}, and not: incremented {increments} times")),
            (waits.contains(&self.after), format!("{self:?}, and not: after {waits:?}")),
            (self.said.len() == 1, format!("{self:?}, and not: one line")),
        ];
        sure.into_iter().filter(|(well, _)| !well).map(|(_, why)| why)
    }
}

/// A peer is killed and started again: clients that were connected to it continue with it.
#[test]
fn clients_come_back_to_a_peer_that_was_killed() {
    let Some(clients) = zoo() else { return };
    let mut cluster = three_peers("zoo-killed");
    let port = cluster.daemons[0].resp.port().to_string();
    let clients: Vec<_> = clients.iter().filter(|(client, _)| client.checks).collect();
    let mut programs: Vec<(&str, Program)> = clients
        .iter()
        .map(|(client, program)| {
            (client.name, Program::start(program, &["reconnect", &port, &format!("zoo:back:{}", client.name)]))
        })
        .collect();
    programs.iter().for_each(|(_, program)| program.expect("ready"));
    cluster.kill(0);
    for (name, program) in &mut programs {
        program.tell("down");
        let said = program.line();
        eprintln!("{name}, with its peer dead: {said:?}");
        let well = said.as_deref().is_some_and(|said| said.starts_with("error ") || said == "waits");
        assert!(well, "{name} says {said:?} of a peer that is dead");
    }
    cluster.restart(0);
    cluster.wait_ready(0);
    programs.iter_mut().for_each(|(_, program)| program.tell("up"));
    for (name, program) in programs {
        let since = Instant::now();
        assert_eq!(program.rest(), ["back"], "{name}");
        eprintln!("{name}: back after {:.1?}", since.elapsed());
    }
}
