//! Data that a peer remembers beside its store, and the owner of its data directory: with real peers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

use super::common::process::{Peer, end, ends, real, signal, text};
use rustix::process::Signal;

const STOP_MAX: Duration = Duration::from_secs(20);
/// Address at which no peer listens. It is never dialled: these starts are refused before.
const NOBODY: &str = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWAxgUiFAqBK9zUA7epQ5Q33dejeELJhohK5gbjbaA8e6Y";

/// Place for data directories and keys.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        for key in ["one", "two"] {
            fs::write(place.0.path().join(key), format!("a key of enough bytes, {key}\n")).unwrap();
        }
        fs::write(place.0.path().join("short"), "abc").unwrap();
        place
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Returns `scatter run` on the data directory of this name.
    fn run(&self, name: &str, more: &[&str]) -> Command {
        let mut command = real(&["run", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
        command.args(["--listen", "/ip4/127.0.0.1/tcp/0", "--data-dir", &self.path(name)]).args(more);
        command
    }

    /// Starts a peer, and waits until it serves.
    fn peer(&self, name: &str, more: &[&str]) -> Peer {
        Peer::with(self.run(name, more), &[])
    }

    /// Returns the error output of a start that ends by itself.
    fn refused(&self, name: &str, more: &[&str]) -> String {
        let output = self.run(name, more).output().unwrap();
        let said = text(&output.stderr).to_owned();
        assert!(!output.status.success() && output.stdout.is_empty(), "{more:?}: {said}");
        said
    }

    fn settings(&self, name: &str, more: &[&str]) -> serde_json::Value {
        let output = self.run(name, more).args(["--print-config", "--output", "json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
    }
}

fn stop(mut peer: Peer) {
    signal(&peer.child, Signal::TERM);
    assert_eq!(end(&mut peer.child, STOP_MAX).0, Some(0));
}

fn has(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
}

#[test]
fn a_peer_remembers_its_network() {
    let place = Place::new();
    let [one, two, short] = ["one", "two", "short"].map(|key| place.path(key));
    has(&place.refused("a", &["--new", "--network-key", &short]), &["3 bytes", "at least 16", "/dev/urandom"]);
    assert!(!Path::new(&place.path("a")).exists(), "nothing is made for a start that is refused");
    let founding = ["--new", "--network", "mine", "--network-key", &one];
    let founded = ["--leases", "on", "--min-group", "1", "--max-group", "5", "--policy", "join=random"];
    stop(place.peer("a", &[&founding[..], &founded].concat()));

    // Only the key has to be given again: only its owner has it.
    let peer = place.peer("a", &["--network-key", &one]);
    let status: serde_json::Value =
        serde_json::from_str(peer.get("/v1/status").1.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!((&status["network"], &status["durability"]), (&"mine".into(), &"sync".into()), "{status}");
    assert!(!status["commit"].as_str().unwrap().is_empty());
    stop(peer);
    let settings = place.settings("a", &["--network-key", &one]);
    // Also a value that equals the default: a start without this directory could have another one.
    for (name, value) in [
        ("network", "mine"),
        ("leases", "on"),
        ("max-group", "5"),
        ("durability", "sync"),
        ("coarse", "off"),
        ("lanes", "1"),
    ] {
        assert_eq!((&settings[name]["value"], &settings[name]["origin"]), (&value.into(), &"network".into()), "{name}");
    }
    has(settings["policy"]["value"].as_str().unwrap(), &["join=random"]);

    // Contradictions name both sides and the flag, and never a key.
    let key = ["--network-key", &one];
    let refused = |more: &[&str]| place.refused("a", more);
    has(&refused(&[]), &["`mine` has a key", "--network-key FILE"]);
    has(&refused(&["--network", "other", key[0], key[1]]), &["`mine`", "`other`", "--network", "--data-dir"]);
    has(&refused(&["--durability", "memory", key[0], key[1]]), &["--durability sync", "memory"]);
    has(&refused(&["--lanes", "2", key[0], key[1]]), &["--lanes 1", "2"]);
    let wrong = refused(&["--network-key", &two]);
    has(&wrong, &["is not the key of the network `mine`", "scatter network key"]);
    assert!(!wrong.contains("enough bytes"), "{wrong}");
    // A second network of the same name, and then a request to enter the first.
    has(&refused(&["--join", NOBODY, key[0], key[1]]), &["founded a network of its own", "--data-dir"]);

    // The network's agreed settings win.
    let settings = place.settings("a", &["--leases", "off", "--min-group", "1", "--max-group", "5", key[0], key[1]]);
    assert_eq!((&settings["leases"]["value"], &settings["leases"]["origin"]), (&"on".into(), &"network".into()));
    assert_eq!(settings["max-group"]["origin"], "flag", "that is what was agreed on");

    // Another key, by a command.
    let data_dir = place.path("a");
    let change = |more: &[&str]| real(&[&["network", "key", "--data-dir", &data_dir], more].concat()).output().unwrap();
    assert_eq!(change(&["--network-key", &short]).status.code(), Some(2));
    assert_eq!(change(&[]).status.code(), Some(2));
    assert_eq!(change(&["--network-key", &two]).status.code(), Some(0));
    has(&refused(&key), &["is not the key of the network `mine`"]);
    stop(place.peer("a", &["--network-key", &two]));
    assert_eq!(change(&["--no-key"]).status.code(), Some(0));
    has(&refused(&["--network-key", &two]), &["`mine` has no key", "leave --network-key out"]);
    stop(place.peer("a", &[]));
}

/// Returns the answer of a peer's endpoint at this path.
fn told(peer: &Peer, path: &str) -> serde_json::Value {
    serde_json::from_str(peer.get(path).1.split("\r\n\r\n").nth(1).unwrap()).unwrap()
}

/// Waits until a peer's answer at this path meets a condition.
fn await_told<T>(peer: &Peer, path: &str, what: impl Fn(&serde_json::Value) -> Option<T>) -> T {
    let deadline = Instant::now() + STOP_MAX;
    loop {
        let said = told(peer, path);
        if let Some(found) = what(&said) {
            return found;
        }
        assert!(Instant::now() < deadline, "{said}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until a peer reports that the members of its group have these names.
fn await_names(peer: &Peer, names: [Option<&str>; 2]) {
    await_told(peer, "/v1/groups", |groups| {
        let members = groups["groups"][0]["members"].as_array()?;
        let mut known: Vec<Option<&str>> = members.iter().map(|member| member["name"].as_str()).collect();
        known.sort_unstable();
        (known == names).then_some(())
    });
}

#[test]
fn a_peer_remembers_its_name_and_tells_others() {
    let place = Place::new();
    let founder = place.peer("a", &["--new", "--min-group", "1"]);
    let id = told(&founder, "/v1/status")["peer_id"].as_str().unwrap().to_owned();
    let address =
        |groups: &serde_json::Value| Some(groups["groups"][0]["members"][0]["addresses"][0].as_str()?.to_owned());
    let listen = await_told(&founder, "/v1/groups", address);
    let entry = format!("{listen}/p2p/{id}");
    let peer = place.peer("b", &["--join", &entry, "--name", "oak"]);
    for peer in [&founder, &peer] {
        await_names(peer, [None, Some("oak")]);
    }
    let status = told(&peer, "/v1/status");
    let short = &status["peer_id"].as_str().unwrap()[46..];
    assert_eq!(status["name"], "oak");
    assert!(told(&founder, "/v1/status").get("name").is_none());
    assert_eq!(told(&founder, "/v1/peers")["peers"][0]["name"], "oak");
    let names = &told(&founder, "/v1/ring")["groups"][0]["names"];
    assert_eq!(names[status["peer_id"].as_str().unwrap()], "oak", "{names}");
    // Users see the name beside the id, from any peer.
    has(text(&peer.run(&["status"]).stdout), &["name       oak\n", "member     oak (12D3"]);
    let shown = format!("oak ({short})");
    for command in ["groups", "ring"] {
        has(text(&founder.run(&[command]).stdout), &[&shown]);
    }
    has(text(&founder.run(&["top", "--once", "--size", "120x40"]).stdout), &[&shown]);
    // The peer finds events by looking at the groups from time to time.
    let event = format!("{shown} is a member of group");
    await_told(&founder, "/v1/events", |events| events.to_string().contains(&event).then_some(()));
    // The name is remembered, and changed by another one.
    stop(peer);
    let name = &place.settings("b", &[])["name"];
    assert_eq!((&name["value"], &name["origin"]), (&"oak".into(), &"data directory".into()));
    let peer = place.peer("b", &[]);
    assert_eq!(told(&peer, "/v1/status")["name"], "oak");
    stop(peer);
    let name = &place.settings("b", &["--name", "elm"])["name"];
    assert_eq!((&name["value"], &name["origin"]), (&"elm".into(), &"flag".into()));
    let peer = place.peer("b", &["--name", "elm"]);
    for peer in [&founder, &peer] {
        await_names(peer, [None, Some("elm")]);
    }
    stop(peer);
    assert_eq!(place.settings("b", &[])["name"]["value"], "elm");
}

#[test]
fn a_second_process_is_told_who_has_the_directory() {
    let place = Place::new();
    let peer = place.peer("a", &["--new", "--durability", "memory"]);
    let holder = format!("the process with id {}", peer.child.id());
    has(&place.refused("a", &[]), &[&holder, "--data-dir"]);
    has(&place.refused("a", &["--durability", "memory", "--new"]), &[&holder]);
    let command = real(&["network", "key", "--no-key", "--data-dir", &place.path("a")]).output().unwrap();
    ends(&command, 4, "");
    has(text(&command.stderr), &[&holder]);
    assert!(!Path::new(&place.path("a/store")).exists(), "it has none, and no other start made one");
    assert_eq!(peer.run(&["set", "a", "1"]).status.code(), Some(0), "the first one goes on");
    for (path, (mode, _)) in tree(Path::new(&place.path("a"))) {
        assert_eq!(mode & 0o077, 0, "{path}: others can read it");
    }
    stop(peer);

    // The same holds for a store that its peer has open, which an export must leave alone.
    let peer = place.peer("b", &["--new"]);
    let holder = format!("the process with id {}", peer.child.id());
    assert_eq!(peer.run(&["set", "a", "1"]).status.code(), Some(0));
    let export = real(&["export", &place.path("b/store")]).output().unwrap();
    ends(&export, 4, "");
    has(text(&export.stderr), &[&holder]);
    for (path, (mode, _)) in tree(Path::new(&place.path("b"))) {
        assert_eq!(mode & 0o077, 0, "{path}: others can read it");
    }
    drop(peer);
    assert_eq!(real(&["export", &place.path("b/store")]).output().unwrap().status.code(), Some(0), "that one is gone");
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let unprinted = real(&["export", &place.path("b/store")]).stdout(full).output().unwrap();
    assert_eq!(unprinted.status.code(), Some(74), "its output is what is full, not the store");
    has(text(&unprinted.stderr), &["cannot print the answer"]);
}

/// Two peers with different durability do not connect, and both report the reason.
#[test]
fn another_durability_is_refused_at_the_hello() {
    let place = Place::new();
    let mut founder = place.run("a", &["--new", "--durability", "memory", "--output", "json"]);
    let mut founder = founder.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map(Running).unwrap();
    let mut ready = String::new();
    BufReader::new(founder.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    let entry = ready["listen"][0].as_str().unwrap();
    let joiner = place.run("b", &["--join", entry]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    // The joiner lives until both have said it: it tries again where the founder has not heard its hello yet.
    let mut peers = [joiner.map(Running).unwrap(), founder];
    for peer in &mut peers {
        let log = BufReader::new(peer.0.stderr.take().unwrap());
        let said = log.lines().map_while(Result::ok).find(|line| line.contains("another durability"));
        has(&said.expect("it says why"), &["sync", "memory", "--durability"]);
    }
}

/// Process that ends with this value.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns all files below a directory: mode and content.
fn tree(dir: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    fn walk(dir: &Path, into: &mut BTreeMap<String, (u32, Vec<u8>)>) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            // A running peer writes one file beside another and renames it.
            let Ok(found) = fs::metadata(&path) else { continue };
            let content = if found.is_dir() { Vec::new() } else { fs::read(&path).unwrap_or_default() };
            into.insert(path.display().to_string(), (found.permissions().mode() & 0o7777, content));
            if found.is_dir() {
                walk(&path, into)?;
            }
        }
        Ok(())
    }
    let mut all = BTreeMap::new();
    walk(dir, &mut all).unwrap();
    all
}

/// Data directories of other versions: of the last version without format numbers, and of a possible later
/// one.
#[test]
fn another_format_is_refused_by_name_and_nothing_is_touched() {
    let place = Place::new();
    let dir = place.path("a");
    let dir = Path::new(&dir);
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
    };
    let head = |container: u32, rest: &[u8]| {
        let mut head = b"SCATSTOR".to_vec();
        head.extend_from_slice(&container.to_le_bytes());
        head.extend_from_slice(&crc32fast::hash(&head).to_le_bytes());
        head.extend_from_slice(rest);
        head
    };
    write("store/journal-0000000000000001-16", &[0; 16]);
    write("store/journal-0000000000000000-16", b"older, and done ");
    write("store/segment.tmp", b"half made");
    write("store/ballast", &[0; 4096]);
    write("store/table-1/db", b"sled's");
    let version = text(&real(&["--version"]).output().unwrap().stdout).trim().to_owned();
    has(&version, &["scatter ", "(commit "]);

    let refusals = |parts: &[&str]| {
        let before = tree(dir);
        let starts: [&[&str]; 4] = [&[], &["--new"], &["--durability", "memory"], &["--join", NOBODY]];
        for more in starts {
            has(&place.refused("a", more), &[parts, &[&version]].concat());
        }
        assert_eq!(tree(dir), before);
    };
    write("store/manifest", &head(8, &[7; 200]));
    refusals(&["format 8.1", "older program", "scatter export"]);
    let before = tree(dir);
    let export = real(&["export", dir.join("store").to_str().unwrap()]).output().unwrap();
    ends(&export, 4, "");
    has(text(&export.stderr), &["format 8.1", &version]);
    assert_eq!(tree(dir), before);
    // Marked as damaged by the program that wrote it, or as new: no reason to remove it.
    write("store/damaged", b"a bit");
    refusals(&["format 8.1"]);
    fs::rename(dir.join("store/damaged"), dir.join("store/new")).unwrap();
    refusals(&["format 8.1"]);

    let mut later = head(77, &5u32.to_le_bytes());
    later.extend_from_slice(&9u32.to_le_bytes());
    later.extend_from_slice(b"scatter 9");
    later.extend_from_slice(&crc32fast::hash(&later).to_le_bytes());
    write("store/manifest", &later);
    refusals(&["format 77.5 by scatter 9"]);

    write("peer.json", br#"{"ring":null,"incarnation":1,"peers":{},"crc32":1}"#);
    refusals(&["peer.json", "format 1 by an older program"]);
    let key = real(&["network", "key", "--no-key", "--data-dir", dir.to_str().unwrap()]).output().unwrap();
    ends(&key, 4, "");
    write("peer.json", br#"{"format":9,"program":"scatter 9","anything":[1,2]}"#);
    refusals(&["peer.json", "format 9 by scatter 9"]);
    fs::remove_dir_all(dir.join("store")).unwrap();
    fs::remove_file(dir.join("peer.json")).unwrap();
    write("sessions.json", br#"{"format":2,"program":"scatter 9","sessions":[]}"#);
    refusals(&["sessions.json", "format 2 by scatter 9"]);
    fs::remove_file(dir.join("sessions.json")).unwrap();
    write("identity", b"scatter identity 2\n...");
    refusals(&["identity", "format 2"]);
}

/// A peer whose process was killed reports that as long as it remembers it; a peer that was asked to stop has
/// not failed.
#[test]
fn sessions_are_told() {
    let place = Place::new();
    let flags = ["--new", "--min-group", "1", "--max-group", "5"];
    let sessions = |peer: &Peer| {
        let status = peer.run(&["status", "--output", "json"]);
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("a status");
        status["groups"][0]["members"][0]["sessions"].clone()
    };
    let told = |peer: &Peer| {
        let until = Instant::now() + STOP_MAX;
        // The peer checks this once a second.
        while sessions(peer).is_null() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(100));
        }
        sessions(peer)["failures"].as_u64()
    };
    let mut peer = place.peer("a", &flags);
    std::thread::sleep(Duration::from_secs(2));
    assert!(sessions(&peer).is_null(), "it has no history yet");
    signal(&peer.child, Signal::KILL);
    end(&mut peer.child, STOP_MAX);
    let peer = place.peer("a", &[]);
    assert_eq!(told(&peer), Some(1));
    has(text(&peer.run(&["status"]).stdout), &["failed once in "]);
    stop(peer);
    let peer = place.peer("a", &[]);
    assert_eq!(told(&peer), Some(1), "a stop is no failure");
    stop(peer);
    fs::write(place.path("a/sessions.json"), "half a fi").unwrap();
    let peer = place.peer("a", &[]);
    std::thread::sleep(Duration::from_secs(2));
    assert!(sessions(&peer).is_null(), "what is broken is no history");
    stop(peer);
}
