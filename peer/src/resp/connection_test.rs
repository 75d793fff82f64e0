//! A connection over a bounded pipe, polled by hand: it runs only after a wake-up. So a connection that waits for an event
//! that cannot come is found at once, without a clock.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::{Bytes, BytesMut};
use environment::lock;
use group::op::Answer;
use prometheus_client::registry::Registry;
use proptest::prelude::*;
use tokio::io::Ready;

use super::*;
use crate::resp::{Backend, Metrics, Rejected, Replies, Router, Settings};
use crate::status::{Readiness, Status, StatusSource};

/// Both directions of a stream with bounded buffers.
struct Pipe {
    state: Mutex<PipeState>,
}

struct PipeState {
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
    bytes_max: usize,
    client_finished: bool,
    server_closed: bool,
    /// Bytes that the operating system holds for the client.
    in_flight: u64,
    waiting: Option<Waker>,
}

impl Pipe {
    fn new(bytes_max: usize) -> Arc<Pipe> {
        let (to_server, to_client) = (VecDeque::new(), VecDeque::new());
        let (client_finished, server_closed, waiting) = (false, false, None);
        let state =
            PipeState { to_server, to_client, bytes_max, client_finished, server_closed, in_flight: 0, waiting };
        Arc::new(Pipe { state: Mutex::new(state) })
    }

    /// Changes the client's side and wakes the server's.
    fn client<T>(&self, change: impl FnOnce(&mut PipeState) -> T) -> T {
        let mut state = lock(&self.state);
        let changed = change(&mut state);
        state.waiting.take().into_iter().for_each(Waker::wake);
        changed
    }

    fn room(&self) -> usize {
        let state = lock(&self.state);
        state.bytes_max - state.to_server.len()
    }
}

impl Socket for Arc<Pipe> {
    async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        std::future::poll_fn(|context| {
            let mut state = lock(&self.state);
            let mut ready = Ready::EMPTY;
            if interest.is_readable() && (!state.to_server.is_empty() || state.client_finished) {
                ready |= Ready::READABLE;
            }
            if interest.is_writable() && state.to_client.len() < state.bytes_max {
                ready |= Ready::WRITABLE;
            }
            if ready.is_empty() {
                state.waiting = Some(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(Ok(ready))
        })
        .await
    }

    fn try_read(&self, into: &mut BytesMut, bytes_max: usize) -> io::Result<usize> {
        let mut state = lock(&self.state);
        let count = bytes_max.min(state.to_server.len());
        if count == 0 && !state.client_finished {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        into.extend(state.to_server.drain(..count));
        Ok(count)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = lock(&self.state);
        let count = bytes.len().min(state.bytes_max - state.to_client.len());
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.to_client.extend(&bytes[..count]);
        Ok(count)
    }

    fn unread(&self) -> u64 {
        lock(&self.state).to_server.len() as u64
    }

    fn in_flight(&self) -> u64 {
        lock(&self.state).in_flight
    }

    fn addresses(&self) -> [String; 2] {
        Default::default()
    }

    async fn close(self, _: Duration) {
        lock(&self.state).server_closed = true;
    }
}

/// Keeps requests until the test answers them.
#[derive(Default)]
struct Kept(Mutex<VecDeque<Request>>);

impl Backend for Kept {
    fn submit(&self, batch: Vec<Request>) -> Result<(), Rejected> {
        lock(&self.0).extend(batch);
        Ok(())
    }
}

struct NoStatus;

impl StatusSource for NoStatus {
    fn status(&self) -> Status {
        Status::default()
    }

    fn readiness(&self) -> Readiness {
        Readiness::default()
    }
}

/// Whether the connection was woken since its last poll.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Behaviour of a client and its node.
#[derive(Clone, Copy, Debug)]
struct Manner {
    /// Bytes that the client sends or reads at once.
    sends: usize,
    reads: usize,
    /// Whether it reads only when it cannot send.
    sends_first: bool,
    /// Whether it ends its side after the last command.
    half_closes: bool,
    /// Requests that the node answers at once.
    answers: usize,
    /// Size of the buffer of either direction, in bytes.
    pipe_bytes: usize,
}

/// A connection with its client and its node.
struct ConnectionFixture {
    pipe: Arc<Pipe>,
    kept: Arc<Kept>,
    replies: Replies,
    woken: Arc<Woken>,
    received: Vec<u8>,
}

impl ConnectionFixture {
    fn new(pipe_bytes: usize, settings: Settings) -> (ConnectionFixture, Connection<Arc<Pipe>>) {
        let (pipe, kept, router) = (Pipe::new(pipe_bytes), Arc::new(Kept::default()), Router::new());
        let shared = Arc::new(Shared {
            backend: kept.clone(),
            router: router.clone(),
            status: Arc::new(NoStatus),
            settings,
            metrics: Metrics::new(&mut Registry::default()),
            started: Instant::now(),
        });
        let place = Arc::new(tokio::sync::Semaphore::new(1)).try_acquire_owned().unwrap();
        let admission = Admission::Client { _place: place };
        let connection = Connection::new(pipe.clone(), shared, admission);
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        (ConnectionFixture { pipe, kept, replies: router.replies(), woken, received: Vec::new() }, connection)
    }

    /// Polls as long as the connection is woken. Returns whether it has ended.
    fn poll(&self, connection: Pin<&mut impl Future<Output = ()>>) -> bool {
        let (waker, mut connection) = (Waker::from(self.woken.clone()), connection);
        while self.woken.0.swap(false, Ordering::SeqCst) {
            if connection.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                return true;
            }
        }
        false
    }

    /// Answers the next `count` requests, each with as many bytes as its key says. Returns their number.
    fn answer(&mut self, count: usize) -> usize {
        let ripe: Vec<Request> = {
            let mut kept = lock(&self.kept.0);
            let count = count.min(kept.len());
            kept.drain(..count).collect()
        };
        for request in &ripe {
            let bytes: usize = std::str::from_utf8(request.key.name()).unwrap().parse().unwrap();
            self.replies.push(request.id, Ok(Answer::Value(Some(Bytes::from(vec![b'v'; bytes])))));
        }
        self.replies.flush();
        ripe.len()
    }

    /// Reads at most `count` bytes. Returns their number.
    fn read(&mut self, count: usize) -> usize {
        let received = &mut self.received;
        if lock(&self.pipe.state).to_client.is_empty() {
            return 0;
        }
        self.pipe.client(|state| {
            let count = count.min(state.to_client.len());
            received.extend(state.to_client.drain(..count));
            count
        })
    }

    fn send(&self, bytes: &[u8]) {
        self.pipe.client(|state| state.to_server.extend(bytes));
    }

    /// Lets the client send all of `input`, and goes on until nothing moves any more. Returns whether the connection has
    /// ended.
    fn play(&mut self, mut connection: Pin<&mut impl Future<Output = ()>>, input: &[u8], manner: Manner) -> bool {
        let mut sent = 0;
        let mut finished = !manner.half_closes;
        loop {
            let ended = self.poll(connection.as_mut());
            let chunk = manner.sends.min(input.len() - sent).min(self.pipe.room());
            if ended {
                while self.read(usize::MAX) > 0 {}
                return true;
            }
            if chunk > 0 {
                self.send(&input[sent..sent + chunk]);
                sent += chunk;
            }
            if sent == input.len() && !finished {
                finished = true;
                self.pipe.client(|state| state.client_finished = true);
                continue;
            }
            if manner.sends_first && chunk > 0 {
                continue;
            }
            if chunk + self.answer(manner.answers) + self.read(manner.reads) == 0
                && !self.woken.0.load(Ordering::SeqCst)
            {
                return false;
            }
        }
    }
}

/// Returns a command and its answer for each size.
fn commands(sizes: &[usize]) -> (Vec<u8>, Vec<u8>) {
    let (mut input, mut expected) = (Vec::new(), Vec::new());
    for size in sizes {
        let key = size.to_string();
        input.extend(format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).into_bytes());
        expected.extend(format!("${size}\r\n{}\r\n", "v".repeat(*size)).into_bytes());
    }
    (input, expected)
}

fn patient() -> Settings {
    let hour = Duration::from_secs(3600);
    Settings { patience: hour, guard: hour, last_call: hour, ..Settings::default() }
}

/// Returns a runtime, because timers need one; no timer comes due here.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

fn check(sizes: &[usize], manner: Manner) {
    let runtime = runtime();
    let _entered = runtime.enter();
    let (mut scene, connection) = ConnectionFixture::new(manner.pipe_bytes, patient());
    let (input, expected) = commands(sizes);
    let (_stop, stopped) = watch::channel(false);
    let mut connection = pin!(connection.run(stopped));
    let ended = scene.play(connection.as_mut(), &input, manner);
    assert!(
        scene.received == expected,
        "{} of {} bytes of answers arrived, then nothing moved any more",
        scene.received.len(),
        expected.len()
    );
    assert_eq!(
        ended, manner.half_closes,
        "a client that sends no more is dropped once it has its answers, others stay"
    );
    assert_eq!(ended, lock(&scene.pipe.state).server_closed);
}

#[test]
fn three_hundred_answers_of_a_thousand_bytes_in_one_write() {
    let manner = Manner {
        sends: usize::MAX,
        reads: usize::MAX,
        sends_first: true,
        half_closes: false,
        answers: usize::MAX,
        pipe_bytes: 1 << 22,
    };
    check(&[1000; 300], manner);
    check(&[65536; 8], manner);
    check(&[1000; 300], Manner { half_closes: true, ..manner });
    // More commands than a connection takes at once, and its client sends no more.
    check(&[5; 3000], Manner { half_closes: true, ..manner });
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![8 => 0..200_usize, 6 => 900..5000_usize, 1 => 60_000..=65_536_usize];
    proptest::collection::vec(size, 1..300)
}

fn manners() -> impl Strategy<Value = Manner> {
    let amounts = || prop_oneof![1..50_usize, 1000..100_000_usize, Just(usize::MAX)];
    let pipe_bytes = prop_oneof![64..5000_usize, 60_000..70_000_usize, Just(1_usize << 18), Just(1_usize << 24)];
    (amounts(), 500..1_000_000_usize, any::<bool>(), any::<bool>(), amounts(), pipe_bytes).prop_map(
        |(sends, reads, sends_first, half_closes, answers, pipe_bytes)| Manner {
            sends,
            reads,
            sends_first,
            half_closes,
            answers,
            pipe_bytes,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Slow, half-closed and bursty clients get every answer, of any size.
    #[test]
    fn every_client_gets_every_answer(sizes in sizes(), manner in manners()) {
        check(&sizes, manner);
    }
}

fn get(key: &str) -> Vec<u8> {
    format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).into_bytes()
}

/// A stop answers every command that has arrived, in any state of the connection, then closes.
#[test]
fn a_stop_leaves_no_command_without_an_answer() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let (mut scene, connection) = ConnectionFixture::new(1 << 20, patient());
    let (stop, stopped) = watch::channel(false);
    let mut connection = pin!(connection.run(stopped));
    scene.send(&get("3"));
    assert!(!scene.poll(connection.as_mut()), "it waits for the node");
    // Arrives before the stop, and is read after it.
    scene.send(&get("4"));
    stop.send(true).unwrap();
    assert!(!scene.poll(connection.as_mut()), "what was accepted is waited for");
    scene.send(&get("5"));
    assert!(!scene.poll(connection.as_mut()));
    // Half a command is no command.
    scene.send(b"*2\r\n$3\r\nGET");
    assert_eq!(scene.answer(usize::MAX), 1, "what comes after the stop is not handed on");
    assert!(scene.poll(connection.as_mut()), "it ends once all is answered");
    scene.read(usize::MAX);
    let expected = format!("$3\r\nvvv\r\n-{0}\r\n-{0}\r\n", errors::STOPPING);
    assert_eq!(scene.received.escape_ascii().to_string(), expected.into_bytes().escape_ascii().to_string());
    assert!(lock(&scene.pipe.state).server_closed);
}

/// A stop flushes the answers that a slow client has not read yet.
#[test]
fn a_stop_flushes_every_answer() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let (mut scene, connection) = ConnectionFixture::new(5000, patient());
    let (stop, stopped) = watch::channel(false);
    let mut connection = pin!(connection.run(stopped));
    let (input, expected) = commands(&[3000; 50]);
    scene.send(&input);
    assert!(!scene.poll(connection.as_mut()));
    assert_eq!(scene.answer(usize::MAX), 50);
    stop.send(true).unwrap();
    while !scene.poll(connection.as_mut()) {
        assert!(scene.read(700) > 0, "it waits for the client to read");
    }
    while scene.read(usize::MAX) > 0 {}
    assert!(scene.received == expected);
}

/// A client that reads slowly is not stuck, though the operating system takes nothing for it for minutes. A client that
/// reads nothing is.
#[test]
fn a_slow_client_is_not_stuck() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let (scene, mut connection) = ConnectionFixture::new(5000, patient());
    let (begin, second) = (Instant::now(), Duration::from_secs(1));
    (connection.moved, connection.out) = (begin, vec![0; 100_000]);
    let mut look = |after: u32, in_flight: u64| {
        scene.pipe.client(|state| state.in_flight = in_flight);
        connection.is_stuck(begin + second * after)
    };
    for minute in 0..5 {
        assert!(!look(minute * 60 + 30, 4_000_000 - u64::from(minute) * 1_000));
        assert!(!look(minute * 60 + 60, 4_000_000 - u64::from(minute) * 1_000 - 10), "after {minute} minutes");
    }
    assert!(!look(330, 2_000_000) && look(360, 2_000_000));
}
