//! Helpers that several tests of the program's outside share.
#![allow(dead_code, missing_docs, reason = "each test uses its own part of this")]

pub mod alone;
pub mod memory;
pub mod redis;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use memory::Manner;
use peer::resp::{Backend, Metrics, Router, Settings, Shared, serve};
use prometheus_client::registry::Registry;
use tokio::sync::watch;

/// Endpoint in this process.
pub struct Server {
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    runtime: Option<tokio::runtime::Runtime>,
    served: Option<tokio::task::JoinHandle<()>>,
}

impl Server {
    pub fn start(manner: Manner) -> Server {
        Server::with(manner, Settings::default())
    }

    pub fn with(manner: Manner, settings: Settings) -> Server {
        Server::around(|router| memory::start(router, manner), settings)
    }

    /// Starts an endpoint around a real node.
    pub fn alone() -> Server {
        Server::around(alone::start, Settings::default())
    }

    fn around(backend: impl FnOnce(&Arc<Router>) -> Arc<dyn Backend>, settings: Settings) -> Server {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let router = Router::new();
        let shared = Arc::new(Shared {
            backend: backend(&router),
            router,
            status: Arc::new(memory::Alone),
            settings,
            metrics: Metrics::new(&mut Registry::default()),
            started: Instant::now(),
        });
        let (stop, stopped) = watch::channel(false);
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let served = Some(runtime.spawn(serve(listener, shared, stopped)));
        Server { address, stop, runtime: Some(runtime), served }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Stops in order: returns when all commands are answered.
    pub fn stop(mut self) {
        self.stop.send(true).unwrap();
        self.runtime.take().unwrap().block_on(self.served.take().unwrap()).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Client that sends and receives bytes.
pub struct Client {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, buffer: Vec::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends one command. Returns its answer as it came, or `None` where the connection ended.
    pub fn ask(&mut self, words: &[&[u8]]) -> Option<Vec<u8>> {
        self.send(&command(words));
        self.answer()
    }

    /// Sends an inline command. Returns its answer with line ends escaped.
    pub fn line(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes());
        self.answer().map_or("<end>".into(), |answer| answer.escape_ascii().to_string())
    }

    pub fn answer(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(length) = frame(&self.buffer) {
                return Some(self.buffer.drain(..length).collect());
            }
            let mut chunk = [0; 64 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    assert!(self.buffer.is_empty(), "half an answer: {}", self.buffer.escape_ascii());
                    return None;
                }
                Ok(bytes) => self.buffer.extend_from_slice(&chunk[..bytes]),
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }
}

/// Returns a command as clients send it.
pub fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Returns the length of the first whole answer in a buffer.
fn frame(buffer: &[u8]) -> Option<usize> {
    let line = buffer.windows(2).position(|two| two == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&buffer[1..line - 2]).unwrap().parse::<i64>().unwrap();
    let items = match buffer[0] {
        b'$' | b'=' => {
            return usize::try_from(number())
                .map_or(Some(line), |n| (buffer.len() >= line + n + 2).then_some(line + n + 2));
        }
        b'*' | b'~' => number().max(0),
        b'%' => number() * 2,
        _ => 0,
    };
    let mut length = line;
    for _ in 0..items {
        length += frame(&buffer[length..])?;
    }
    Some(length)
}

/// Returns whether a program can be run; prints a note where it cannot.
pub fn installed(program: &str, probe: &[&str]) -> bool {
    let found = std::process::Command::new(program)
        .args(probe)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped: {program} {} does not run here", probe.join(" "));
    }
    found
}
