//! A peer for tests, with the part of the Redis protocol that Chirp needs, and with faults on command.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Faults and observations of the peer.
#[derive(Default)]
pub struct PeerInner {
    pub values: HashMap<String, Vec<u8>>,
    /// The peer takes all commands and answers none, until it is reset.
    pub is_silent: bool,
    /// The peer answers each command that it cannot do it.
    pub refuses: bool,
    /// The peer ends connections as soon as they are there.
    pub is_closed: bool,
    /// Time for each answer.
    pub each: Duration,
    /// Commands that change a value, with their times.
    pub changes: Vec<(Instant, String)>,
    /// Number of all commands.
    pub asked: usize,
    /// Connections with commands that have not been taken.
    serving: usize,
    done: HashMap<String, Vec<u8>>,
    streams: Vec<TcpStream>,
}

/// The peer; its threads end with the process.
#[derive(Clone)]
pub struct Peer {
    inner: Arc<Mutex<PeerInner>>,
    served: Arc<Condvar>,
    pub address: String,
}

impl Peer {
    pub fn start() -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer =
            Peer { inner: Arc::default(), served: Arc::default(), address: listener.local_addr().unwrap().to_string() };
        let shared = peer.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.inner().is_closed {
                    continue;
                }
                let mut inner = shared.inner();
                inner.streams.push(stream.try_clone().unwrap());
                inner.serving += 1;
                let peer = shared.clone();
                std::thread::spawn(move || {
                    let _ = peer.serve(stream);
                    peer.inner().serving -= 1;
                    peer.served.notify_all();
                });
            }
        });
        peer
    }

    pub fn inner(&self) -> MutexGuard<'_, PeerInner> {
        self.inner.lock().unwrap()
    }

    /// Waits until all commands ever sent are taken: all connections are over.
    pub fn wait_served(&self) {
        let all = self.served.wait_while(self.inner(), |inner| inner.serving > 0);
        drop(all.unwrap());
    }

    /// Ends all connections, and each that comes.
    pub fn close(&self) {
        let mut inner = self.inner();
        inner.is_closed = true;
        inner.streams.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    /// Adds a user that has signed up, posted nothing, and follows these, who have not signed up.
    pub fn person(&self, name: &str, follows: impl Iterator<Item = String>) {
        let mut list = String::from("chirp1 00000000 0000000000\n");
        follows.for_each(|other| list.push_str(&format!("+{other} 1\n")));
        assert!(list.len() <= 8192);
        let mut inner = self.inner();
        inner.values.insert(format!("chirp/user/{name}"), format!(r#"{{"name":"{name}","since":1}}"#).into_bytes());
        inner.values.insert(format!("chirp/follows/{name}"), list.into_bytes());
    }

    fn serve(&self, stream: TcpStream) -> Option<()> {
        let (mut reader, mut writer) = (BufReader::new(stream.try_clone().ok()?), stream);
        loop {
            let words = command(&mut reader)?;
            // The library's own command, at the beginning.
            let is_first = matches!(words[0].as_str(), "CLIENT" | "HELLO");
            let wait = self.inner().each;
            std::thread::sleep(wait);
            let answer = self.inner().answer(&words);
            while self.inner().is_silent {
                std::thread::sleep(Duration::from_millis(5));
            }
            let answer = if is_first { b"+OK\r\n".to_vec() } else { answer };
            writer.write_all(&answer).ok()?;
        }
    }
}

fn command(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let mut number = |sign: char| -> Option<usize> {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.trim_end().strip_prefix(sign)?.parse().ok()
    };
    let words = number('*')?;
    (0..words)
        .map(|_| {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let mut word = vec![0; line.trim_end().strip_prefix('$')?.parse::<usize>().ok()? + 2];
            reader.read_exact(&mut word).ok()?;
            word.truncate(word.len() - 2);
            String::from_utf8(word).ok()
        })
        .collect()
}

impl PeerInner {
    fn answer(&mut self, words: &[String]) -> Vec<u8> {
        self.asked += 1;
        if self.refuses {
            return b"-TRYAGAIN nothing was done: no primary of the key answered in time\r\n".to_vec();
        }
        match words[0].as_str() {
            "GET" => match self.values.get(&words[1]) {
                None => b"$-1\r\n".to_vec(),
                Some(value) => [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
            },
            "STRLEN" => format!(":{}\r\n", self.values.get(&words[1]).map_or(0, Vec::len)).into_bytes(),
            "SCATTER.ONCE" => {
                self.changes.push((Instant::now(), words[2..].join(" ")));
                if let Some(done) = self.done.get(&words[1]) {
                    return done.clone();
                }
                let value = self.values.entry(words[3].clone()).or_default();
                let answer = match words[2].as_str() {
                    "SET" if !value.is_empty() => b"$-1\r\n".to_vec(),
                    "SET" => {
                        words[4].as_bytes().clone_into(value);
                        b"+OK\r\n".to_vec()
                    }
                    _ => {
                        value.extend_from_slice(words[5].as_bytes());
                        format!(":{}\r\n", value.len()).into_bytes()
                    }
                };
                self.done.insert(words[1].clone(), answer.clone());
                answer
            }
            _ => b"-ERR unknown command\r\n".to_vec(),
        }
    }
}
