//! The controller with a switch in software that speaks P4Runtime, and peers that answer by HTTP, over loopback.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use switch::controller::run::{Setup, run};
use switch::device::Device;
use switch::dirty::Shape;
use switch::p4rt::client::SwitchConfig;
use switch::p4rt::device::Controlled;
use switch::p4rt::server::{self, Running};
use switch::pipeline::REGISTERS;
use switch::tables::Partition;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const DEVICE: u64 = 1;
const GROUP: &str = "000000000000000000000000000000a7";
/// Time limit, longer than any step takes.
const SOON: Duration = Duration::from_secs(20);

/// Reports of three peers, and the requests that they got.
#[derive(Debug, Default)]
struct Said {
    silent: BTreeSet<usize>,
    broken: BTreeSet<usize>,
    id: u32,
    slot: u64,
    /// A partition, its term, and its primary.
    parts: Vec<(u32, u64, usize)>,
    /// Requests for ids: the token, and the id.
    asked: Vec<(String, u32)>,
}

impl Said {
    fn word(&self, peer: usize) -> String {
        let parts = self.parts.iter().map(|(partition, term, primary)| {
            format!(r#"{{"partition":{partition},"term":"{term:016x}","primary":"peer{primary}"}}"#)
        });
        let parts: Vec<String> = parts.collect();
        format!(
            r#"{{"peer_id":"peer{peer}","endpoints":[{{"lane":0,"packets":"127.0.0.1:{}","switch":"127.0.0.1:9000"}}],
            "groups":[{{"id":"{GROUP}","lane":0,"epoch":3,"slot":{},"switch":{{"id":{},"on":{}}},"fit":true,"why":null,
            "calm":true,"members":["peer0","peer1","peer2"],"parts":[{}]}}]}}"#,
            4000 + peer,
            self.slot,
            self.id,
            self.id > 0,
            parts.join(",")
        )
    }

    /// Answers as a group that takes any id above its last one.
    fn answer(&mut self, peer: usize, question: &str) -> Option<(&'static str, String)> {
        if self.silent.contains(&peer) {
            return None;
        }
        if question.starts_with("GET /v1/offload HTTP/1.1\r\n") {
            let word = if self.broken.contains(&peer) { "{\"peer_id\":7}".to_owned() } else { self.word(peer) };
            return Some(("200 OK", word));
        }
        assert!(question.starts_with(&format!("POST /v1/groups/{GROUP}/switch HTTP/1.1\r\n")), "{question}");
        let token = question.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or_default();
        let id = question.rsplit_once("{\"id\":").unwrap().1.trim_end_matches('}').parse().unwrap();
        self.asked.push((token.to_owned(), id));
        if id <= self.id {
            return Some(("409 Conflict", r#"{"error":"ids only go up","outcome":"refused"}"#.to_owned()));
        }
        (self.id, self.slot) = (id, self.slot + 1);
        Some(("200 OK", r#"{"outcome":"done","groups":[]}"#.to_owned()))
    }
}

async fn serve(said: Arc<Mutex<Said>>, peer: usize, mut stream: TcpStream) {
    let mut question = Vec::new();
    let is_whole = |question: &[u8]| {
        let text = String::from_utf8_lossy(question).into_owned();
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
        (body.len() >= length).then_some(text)
    };
    let text = loop {
        if let Some(text) = is_whole(&question) {
            break text;
        }
        if !matches!(stream.read_buf(&mut question).await, Ok(1..)) {
            return;
        }
    };
    let answer = said.lock().unwrap().answer(peer, &text);
    let Some((code, body)) = answer else {
        // The peer has taken the request, and sends no answer.
        return sleep(SOON).await;
    };
    let head = format!("HTTP/1.1 {code}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _ = stream.write_all((head + &body).as_bytes()).await;
}

/// Peers, a switch, and its controllers.
struct World {
    said: Arc<Mutex<Said>>,
    peers: Vec<SocketAddr>,
    device: Arc<Device>,
    switch: Option<Running>,
    target: SocketAddr,
    news: Arc<Mutex<Vec<String>>>,
}

fn device() -> Arc<Device> {
    Arc::new(Device::new(Shape::DEFAULT, REGISTERS))
}

fn switch_at(address: SocketAddr, device: &Arc<Device>) -> Running {
    server::spawn(address, DEVICE, Arc::new(Controlled::new(device.clone()))).unwrap()
}

impl World {
    async fn new() -> World {
        let parts = vec![(11, 1, 0), (12, 1, 1)];
        let said = Arc::new(Mutex::new(Said { parts, slot: 1, ..Said::default() }));
        let mut peers = Vec::new();
        for peer in 0..3 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            peers.push(listener.local_addr().unwrap());
            let said = said.clone();
            tokio::spawn(async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    tokio::spawn(serve(said.clone(), peer, stream));
                }
            });
        }
        let device = device();
        let switch = switch_at("127.0.0.1:0".parse().unwrap(), &device);
        let target = switch.address();
        World { said, peers, device, switch: Some(switch), target, news: Arc::default() }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap()
    }

    fn start(&self, election: u128) -> (oneshot::Sender<()>, JoinHandle<()>) {
        let setup = Setup {
            switch: SwitchConfig {
                endpoint: format!("http://{}", self.target),
                device: DEVICE,
                device_config: Vec::new(),
            },
            election,
            peers: self.peers.clone(),
            token: Some("Bearer sesame".parse().unwrap()),
        };
        let (stop, stopped) = oneshot::channel();
        let news = self.news.clone();
        let say = move |line: &str| news.lock().unwrap().push(format!("{election} {line}"));
        (stop, tokio::spawn(run(setup, async { drop(stopped.await) }, say, |_| {})))
    }

    fn get(&self, number: u32) -> Option<Partition> {
        self.device.lock().pipeline().partition(number).cloned()
    }

    /// Returns whether a partition has this id, and this many replicas.
    fn is_placed(&self, number: u32, id: u32, replicas: usize) -> bool {
        let is_it = |partition: &Partition| {
            (partition.switch, partition.active, partition.replicas.len()) == (id, id > 0, replicas)
        };
        self.get(number).as_ref().is_some_and(is_it)
    }

    async fn until(&self, what: &str, is_it: impl Fn(&World) -> bool) {
        let end = Instant::now() + SOON;
        while !is_it(self) {
            let (eleven, news) = (self.get(11), self.news.lock().unwrap().clone());
            assert!(Instant::now() < end, "{what}: {eleven:?} {:?} {news:#?}", self.said());
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until both partitions have the group's id.
    async fn running(&self) -> u32 {
        self.until("all is well", |world| {
            let id = world.said().id;
            id > 0 && world.is_placed(11, id, 3) && world.is_placed(12, id, 3)
        })
        .await;
        self.said().id
    }

    /// Another primary begins a term in place of the first part: that needs an id above this one, for both.
    async fn begin_term(&self, id: u32) {
        {
            let mut said = self.said();
            (said.parts[0], said.slot) = ((13, 2, 2), said.slot + 1);
        }
        self.until("a new term", |world| {
            let next = world.said().id;
            next > id && world.is_placed(13, next, 3) && world.is_placed(12, next, 3)
        })
        .await;
    }
}

#[tokio::test]
async fn the_tables_follow_the_groups() {
    let mut world = World::new().await;
    let (stop, running) = world.start(5);
    let first = world.running().await;
    assert_eq!(world.said().asked, [("Bearer sesame".to_owned(), first)]);
    let eleven = world.get(11).unwrap();
    let port = world.device.lock().ports.get(eleven.primary).unwrap().port;
    assert_eq!((eleven.term, port), (1, 4000));

    // A new ballot: the old partition goes, and the new one comes under the same id.
    {
        let mut said = world.said();
        (said.parts[0], said.slot) = ((13, 2, 2), said.slot + 1);
    }
    world.until("a new term", |world| world.get(11).is_none() && world.is_placed(13, first, 3)).await;

    // A member that takes requests and answers none, and then one that sends invalid reports.
    world.said().silent.insert(1);
    world.until("a member is silent", |world| world.is_placed(13, first, 2)).await;
    world.said().silent.clear();
    world.said().broken.insert(2);
    world
        .until("a member sends an invalid report", |world| {
            world.is_placed(13, first, 2)
                && world.news.lock().unwrap().iter().any(|line| line.contains("sent an invalid report"))
        })
        .await;
    world.said().broken.clear();
    world.until("all are back", |world| world.is_placed(12, first, 3) && world.is_placed(13, first, 3)).await;
    assert_eq!(world.said().asked.len(), 1, "none of that needs another id");

    // The switch begins anew, without its former content.
    drop(world.switch.take());
    world.device = device();
    world.switch = Some(switch_at(world.target, &world.device));
    world
        .until("a new life", |world| {
            let id = world.said().id;
            id > first && world.is_placed(12, id, 3) && world.is_placed(13, id, 3)
        })
        .await;

    drop(stop);
    running.await.unwrap();
    let id = world.said().id;
    assert!(world.is_placed(13, id, 3), "the tables stay");
}

#[tokio::test]
async fn whoever_comes_next_goes_on() {
    let world = World::new().await;
    let (_stop, running) = world.start(5);
    let id = world.running().await;
    let is_same = |world: &World| world.is_placed(11, id, 3) && world.is_placed(12, id, 3);
    // The controller is killed, and another one comes. Then one comes that is not the primary, and then one that takes over.
    running.abort();
    let said = |election: u128, words: &'static str| {
        let begins = format!("{election} ");
        move |world: &World| {
            world.news.lock().unwrap().iter().any(|line| line.starts_with(&begins) && line.contains(words))
        }
    };
    let (_stop, _six) = world.start(6);
    let (placed, backup) = ("2 of 2 partitions, 3 of 3 members", "another controller is the primary one");
    world.until("it goes on", said(6, placed)).await;
    let (_stop, _four) = world.start(4);
    world.until("it is a backup", said(4, backup)).await;
    let (_stop, _seven) = world.start(7);
    world.until("it takes over", said(7, placed)).await;
    world.until("it gives way", said(6, backup)).await;
    assert!(is_same(&world), "no read had to wait");
    assert_eq!(world.said().asked.len(), 1);
    // Only its predecessors could know whether a new term was there before: it comes under a new id, once.
    world.begin_term(id).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.said().asked.len(), 2, "the others ask nobody");
}

#[tokio::test]
async fn a_backup_takes_over_by_itself() {
    let world = World::new().await;
    let (_stop, first) = world.start(5);
    let id = world.running().await;
    let (_stop, _third) = world.start(3);
    let (_stop, _fourth) = world.start(4);
    let primaries = |world: &World| {
        let news = world.news.lock().unwrap();
        let last = |election: &str| {
            let about = format!("{election} the switch: ");
            news.iter().rev().find_map(|line| line.strip_prefix(&about).map(|state| state.starts_with("in life")))
        };
        [last("3"), last("4")]
    };
    world.until("both are backups", |world| primaries(world) == [Some(false); 2]).await;
    first.abort();
    let since = Instant::now();
    world.until("one takes over", |world| primaries(world).contains(&Some(true))).await;
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(primaries(&world).iter().filter(|is| **is == Some(true)).count(), 1, "the other one is a backup");
    assert!(
        world.is_placed(11, id, 3) && world.is_placed(12, id, 3) && world.said().asked.len() == 1,
        "no read waited"
    );
    // The controller carries out its tasks.
    world.begin_term(id).await;
    assert_eq!(world.said().asked.len(), 2);
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scatter-switch"));
    command.arg("control").args(arguments).stdin(Stdio::null()).env_remove("SCATTER_ADMIN_TOKEN_FILE");
    command
}

#[test]
fn what_was_typed_wrongly_is_said() {
    let ok = ["--target", "http://127.0.0.1:1", "--groups", "127.0.0.1:2"];
    for (wrong, words) in [
        (&ok[..2], "--groups"),
        (&ok[2..], "--target"),
        (&["--target", "https://a", "--groups", "127.0.0.1:2"], "TLS is not supported"),
        (&["--target", "http://a", "--groups", "127.0.0.1"], "HOST:PORT"),
        (&["--target", "http://a", "--groups", "127.0.0.1:0"], "is not a usable peer address"),
        (&["--target", "http://a", "--groups", "127.0.0.1:2", "--election-id", "0"], "--election-id"),
        (&["--target", "http://a", "--groups", "127.0.0.1:2", "--token-file", "/nowhere/at/all"], "cannot read"),
        (&["--target", "http://a", "--groups", "127.0.0.1:2", "--token-file", "/dev/null"], "there is no token"),
    ] {
        let done = program(wrong).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{wrong:?}: {said}");
        assert!(said.contains(words), "{wrong:?}: {said}");
    }
}

#[test]
fn an_empty_variable_is_unset() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = taken.local_addr().unwrap().to_string();
    let arguments = ["--target", "http://127.0.0.1:1", "--groups", "127.0.0.1:2", "--metrics", &metrics];
    // The controller starts, and finds that another program listens there.
    let done = program(&arguments).env("SCATTER_ADMIN_TOKEN_FILE", "").output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(1) && said.contains("cannot start"), "{said}");
}

/// Returns the line with which the controller announces its start.
fn ready(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line
}

#[test]
fn it_shows_how_things_stand() {
    use std::io::Write as _;

    let mut child = program(&["--target", "http://127.0.0.1:1", "--groups", "127.0.0.1:2", "--metrics", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let line = ready(&mut child);
    let at = line.trim_end().rsplit_once(" metrics=").unwrap().1;
    let end = std::time::Instant::now() + SOON;
    loop {
        let mut stream = std::net::TcpStream::connect(at).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        let has = |line: &str| page.lines().any(|other| other.strip_prefix("scatter_controller_") == Some(line));
        if has("peers 1") && has("peers_answering 0") && has("connected 0") && !has("words_failed_total 0") {
            break;
        }
        assert!(std::time::Instant::now() < end, "{page}");
        std::thread::sleep(Duration::from_millis(100));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn it_ends_when_it_is_told_to() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        if signal == Signal::SIGHUP && environment::is_hangup_ignored() {
            println!("skipped: SIGHUP is ignored here, as under nohup");
            continue;
        }
        let mut child = program(&["--target", "http://127.0.0.1:1", "--groups", "127.0.0.1:2"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        assert_eq!(ready(&mut child), "ready target=http://127.0.0.1:1 peers=1\n");
        // No peer is there: the controller reports that, and continues.
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("peer 127.0.0.1:2: cannot be reached") {
            assert!(errors.read_line(&mut said).unwrap() > 0, "{said}");
        }
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        assert!(child.wait().unwrap().success());
        errors.read_to_string(&mut said).unwrap();
        assert_eq!(said.matches("cannot be reached").count(), 1, "{said}");
    }
}
