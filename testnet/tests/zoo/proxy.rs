//! Stands between a client and a peer and causes one kind of fault, to observe the client's reaction.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use testnet::live::{Connection, Proxy};

/// Time after which the test assumes that a client waits for ever for an answer.
pub const HOLD: Duration = Duration::from_secs(8);

/// Kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The command is carried out, and the connection ends before the answer.
    Lost,
    /// The command is refused, and nothing was done.
    TryAgain,
    /// The command is carried out, and the answer states that the outcome is uncertain.
    Uncertain,
    /// The command is carried out, and the answer does not come for [`HOLD`].
    Silent,
}

/// The proxy. It takes connections until this value is dropped.
pub struct FaultProxy {
    pub address: SocketAddr,
    state: Arc<FaultState>,
    _proxy: Proxy,
}

struct FaultState {
    upstream: SocketAddr,
    key: Vec<u8>,
    fault: Fault,
    /// Number of commands on the key that meet the fault; later ones are answered.
    times: usize,
    arrivals: Mutex<usize>,
}

impl FaultProxy {
    /// Starts a proxy. All requests that do not change `key` pass unchanged.
    pub fn start(upstream: SocketAddr, key: &str, fault: Fault, times: usize) -> FaultProxy {
        let (key, arrivals) = (key.as_bytes().to_vec(), Mutex::new(0));
        let state = Arc::new(FaultState { upstream, key, fault, times, arrivals });
        let shared = state.clone();
        let proxy = Proxy::start(move |_, client| shared.serve(client));
        FaultProxy { address: proxy.address, state, _proxy: proxy }
    }

    /// Returns the number of times that the client has sent the command.
    pub fn sends(&self) -> usize {
        *self.state.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultState {
    /// Handles one command after the other: the request, then its answer.
    fn serve(&self, client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let mut peer = Framed::new(TcpStream::connect(self.upstream)?);
        let mut client = Framed::new(client);
        while let Some(request) = client.frame()? {
            let times = if is_change_of(&request, &self.key) { self.count() } else { usize::MAX };
            if times > self.times {
                peer.stream.write_all(&request)?;
                let Some(answer) = peer.frame()? else { return Ok(()) };
                client.stream.write_all(&answer)?;
            } else if !self.fail(&request, &mut peer, &mut client)? {
                return client.stream.shutdown(Shutdown::Both);
            }
        }
        Ok(())
    }

    fn count(&self) -> usize {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        *arrivals += 1;
        *arrivals
    }

    /// Causes the fault. Returns whether the connection goes on.
    fn fail(&self, request: &[u8], peer: &mut Framed, client: &mut Framed) -> io::Result<bool> {
        if self.fault == Fault::TryAgain {
            client.stream.write_all(b"-TRYAGAIN nothing was done: so says a test\r\n")?;
            return Ok(true);
        }
        peer.stream.write_all(request)?;
        let answer = peer.frame()?.unwrap_or_default();
        match self.fault {
            Fault::Uncertain => client.stream.write_all(b"-UNCERTAIN so says a test\r\n")?,
            Fault::Silent if client.stays(HOLD)? => client.stream.write_all(&answer)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Returns whether a request changes this key: an `INCR` of it in any form (redis-py sends `INCRBY`), also in `SCATTER.ONCE`.
fn is_change_of(request: &[u8], key: &[u8]) -> bool {
    let has = |what: &[u8]| request.windows(what.len()).any(|part| part.eq_ignore_ascii_case(what));
    (has(b"\r\nINCR\r\n") || has(b"\r\nINCRBY\r\n")) && has(&[b"\r\n", key, b"\r\n"].concat())
}

/// A stream of requests or answers, one by one, in the order of their arrival.
struct Framed {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Framed {
    fn new(stream: TcpStream) -> Framed {
        Framed { stream, buffer: Vec::new() }
    }

    /// Returns the next request or answer, or `None` at the end.
    fn frame(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(length) = frame_length(&self.buffer) {
                return Ok(Some(self.buffer.drain(..length).collect()));
            }
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk)? {
                0 => return Ok(None),
                bytes => self.buffer.extend_from_slice(&chunk[..bytes]),
            }
        }
    }

    /// Returns whether the other side keeps the connection for this time. Data that arrive meanwhile are kept.
    fn stays(&mut self, time: Duration) -> io::Result<bool> {
        let until = Instant::now() + time;
        let mut stays = true;
        while stays && let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            self.stream.set_read_timeout(Some(left))?;
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => stays = false,
                Ok(bytes) => self.buffer.extend_from_slice(&chunk[..bytes]),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(error) => return Err(error),
            }
        }
        self.stream.set_read_timeout(None)?;
        Ok(stays)
    }
}

/// Returns the length of the first whole request or answer, in bytes.
fn frame_length(buffer: &[u8]) -> Option<usize> {
    let line = buffer.windows(2).position(|two| two == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&buffer[1..line - 2]).ok()?.parse::<i64>().ok();
    let items = match buffer[0] {
        b'$' | b'=' | b'!' => {
            let length = usize::try_from(number()?).map_or(line, |bytes| line + bytes + 2);
            return (buffer.len() >= length).then_some(length);
        }
        b'*' | b'~' | b'>' => number()?.max(0),
        b'%' => number()? * 2,
        _ => 0,
    };
    (0..items).try_fold(line, |length, _| Some(length + frame_length(&buffer[length..])?))
}

/// The proxy is tested, too: all its faults, with a client that does nothing by itself.
#[test]
fn the_proxy_does_what_it_says() {
    let peer = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
    let upstream = peer.local_addr().expect("a bound socket has an address");
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    std::thread::spawn(move || {
        for stream in peer.incoming().map_while(Result::ok) {
            let mut stream = Framed::new(stream);
            while let Ok(Some(_)) = stream.frame() {
                *count.lock().expect("nobody panics") += 1;
                let _ = stream.stream.write_all(b":7\r\n");
            }
        }
    });
    for (fault, reaches, says) in [
        (Fault::Lost, 1, Err(())),
        (Fault::TryAgain, 0, Ok("Error(\"TRYAGAIN nothing was done: so says a test\")")),
        (Fault::Uncertain, 1, Ok("Error(\"UNCERTAIN so says a test\")")),
        (Fault::Silent, 1, Err(())),
    ] {
        *asked.lock().expect("nobody panics") = 0;
        let proxy = FaultProxy::start(upstream, "k", fault, 1);
        let open = || Connection::open(proxy.address, Duration::from_secs(1)).expect("it listens");
        let mut connection = open();
        assert!(connection.call(&["INCR", "other"]).is_ok() && connection.call(&["GET", "k"]).is_ok());
        assert_eq!((proxy.sends(), *asked.lock().expect("nobody panics")), (0, 2));
        let answer = connection.call(&["INCR", "k"]).map(|answer| format!("{answer:?}")).map_err(|_| ());
        assert_eq!(answer.as_deref(), says.as_ref().copied(), "{fault:?}");
        assert_eq!((proxy.sends(), *asked.lock().expect("nobody panics")), (1, 2 + reaches), "{fault:?}");
        // Only the first command meets the fault. The peer here has room for one connection at a time.
        drop(connection);
        assert!(open().call(&["SCATTER.ONCE", "id", "INCR", "k"]).is_ok(), "{fault:?}");
        assert_eq!(proxy.sends(), 2, "{fault:?}");
    }
}
