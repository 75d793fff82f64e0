//! Acceptance of an endpoint's clients from the kernel.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};

use environment::Seldom;

/// Pause after a failed accept, mostly for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// TCP keepalive: idle time until the first probe, number of probes, and interval. A client whose machine or network is gone
/// holds its place for four minutes.
const PROBE_AFTER: Duration = Duration::from_secs(120);
const PROBES: u32 = 4;
const PROBE_EVERY: Duration = Duration::from_secs(30);

/// Listener of an endpoint.
#[derive(Debug)]
pub(crate) struct Accept {
    listener: TcpListener,
    endpoint: &'static str,
    failures: Seldom,
}

impl Accept {
    /// Accepts clients of a listener; `endpoint` is its name in the log.
    pub fn new(listener: TcpListener, endpoint: &'static str) -> Accept {
        Accept { listener, endpoint, failures: Seldom::default() }
    }

    /// Waits for the next client. Where the system refuses, this retries, and logs the failures at intervals.
    pub async fn next(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    prepare(&stream);
                    return (stream, address);
                }
                Err(error) => {
                    self.tell(&error);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Closes the listener. Returns the clients that the kernel has for it, at most `count_max`; the kernel resets the rest.
    pub fn rest(self, count_max: usize) -> Vec<(TcpStream, SocketAddr)> {
        // Asked directly of the kernel: the runtime may not know of them yet.
        let Ok(listener) = self.listener.into_std() else { return Vec::new() };
        let next = || {
            let (stream, address) = listener.accept().ok()?;
            stream.set_nonblocking(true).ok()?;
            let stream = TcpStream::from_std(stream).ok()?;
            prepare(&stream);
            Some((stream, address))
        };
        std::iter::from_fn(next).take(count_max).collect()
    }

    /// Returns the listener's address.
    ///
    /// # Errors
    /// An I/O error where the system does not tell the address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    fn tell(&mut self, error: &io::Error) {
        let Some(failures) = self.failures.failed(Instant::now()) else { return };
        let endpoint = self.endpoint;
        let advice = if is_exhausted(error) { ": raise the limit of open files (ulimit -n, LimitNOFILE)" } else { "" };
        tracing::warn!("cannot accept clients of {endpoint}: {error}{advice}; {failures} attempts failed");
    }
}

/// Returns whether the process or the system has no more descriptors.
fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    exhausted.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Sets socket options: small answers go out at once, and a client that vanished is detected. A socket without them works
/// all the same.
fn prepare(stream: &TcpStream) {
    use rustix::net::sockopt;
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true)
        .and_then(|()| sockopt::set_tcp_keepidle(stream, PROBE_AFTER))
        .and_then(|()| sockopt::set_tcp_keepintvl(stream, PROBE_EVERY))
        .and_then(|()| sockopt::set_tcp_keepcnt(stream, PROBES));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clients_are_probed_when_they_are_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut accept = Accept::new(listener, "test");
        let _client = TcpStream::connect(address).await.unwrap();
        let (stream, _) = accept.next().await;
        assert!(rustix::net::sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(rustix::net::sockopt::tcp_keepidle(&stream).unwrap(), PROBE_AFTER);
        assert_eq!(rustix::net::sockopt::tcp_keepintvl(&stream).unwrap(), PROBE_EVERY);
        assert_eq!(rustix::net::sockopt::tcp_keepcnt(&stream).unwrap(), PROBES);
    }

    /// On one thread that does not wait, so that the runtime cannot have heard of them.
    #[tokio::test]
    async fn clients_that_wait_are_taken_at_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || std::net::TcpStream::connect(address);
        let clients: Vec<_> = (0..5).map(|_| connect().unwrap()).collect();
        let rest = Accept::new(listener, "test").rest(9);
        assert_eq!(rest.len(), clients.len());
        assert!(connect().is_err());
    }

    #[test]
    fn a_want_of_descriptors_is_known() {
        assert!(is_exhausted(&io::Error::from(rustix::io::Errno::MFILE)));
        assert!(!is_exhausted(&io::Error::from(rustix::io::Errno::CONNABORTED)));
    }
}
