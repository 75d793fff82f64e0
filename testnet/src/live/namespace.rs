//! Network namespaces: a daemon has addresses, wires and a loopback of its own in one.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::resp::Connection;

/// A network namespace that has no name: it is gone, and all that is in it, with the last handle and the last process in
/// it, however these end.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<OwnedFd>);

impl Namespace {
    /// One with nothing in it but a loopback that is down. Needs the right to make one.
    pub fn new() -> io::Result<Namespace> {
        // A thread of its own: this one stays where it is.
        let made = std::thread::spawn(|| {
            // SAFETY: unshare takes no pointers; of this process only the calling thread, which ends here, moves.
            match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
                0 => here(),
                _ => Err(io::Error::last_os_error()),
            }
        });
        made.join().expect("it does not panic").map(|namespace| Namespace(Arc::new(namespace)))
    }

    /// Does something in it, in this thread. Sockets that are made there stay there.
    pub fn within<T>(&self, act: impl FnOnce() -> T) -> io::Result<T> {
        /// Whatever happens in between, the thread comes back.
        struct Return(OwnedFd);
        impl Drop for Return {
            fn drop(&mut self) {
                enter(self.0.as_raw_fd()).expect("a thread can go back to where it was");
            }
        }
        let back = Return(here()?);
        enter(self.0.as_raw_fd())?;
        let result = act();
        drop(back);
        Ok(result)
    }

    /// The process of this command will run in it.
    pub fn put(&self, command: &mut Command) {
        let namespace = self.clone();
        // SAFETY: setns is async-signal-safe and takes no pointers; the closure owns the handle.
        unsafe { command.pre_exec(move || enter(namespace.0.as_raw_fd())) };
    }

    /// Where programs find it for as long as this handle is there.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// The namespace of this thread.
fn here() -> io::Result<OwnedFd> {
    File::open("/proc/thread-self/ns/net").map(OwnedFd::from)
}

fn enter(namespace: RawFd) -> io::Result<()> {
    // SAFETY: setns takes no pointers, and the handle is open.
    match unsafe { libc::setns(namespace, libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Where a daemon stands on [`Wires`](super::Wires).
#[derive(Clone, Debug)]
pub struct Site {
    /// Its namespace.
    pub namespace: Namespace,
    /// Where others reach it.
    pub address: Ipv4Addr,
}

/// Where a daemon is asked.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The address.
    pub address: SocketAddr,
    /// The namespace in which it is that; this process's own if `None`.
    pub namespace: Option<Namespace>,
}

impl Endpoint {
    /// Opens a stream.
    pub fn stream(&self, patience: Duration) -> io::Result<TcpStream> {
        let open = || TcpStream::connect_timeout(&self.address, patience);
        self.namespace.as_ref().map_or_else(open, |namespace| namespace.within(open)?)
    }

    /// Connects a client, who waits for answers no longer than `patience`.
    pub fn connect(&self, patience: Duration) -> io::Result<Connection> {
        Connection::over(self.stream(patience)?, patience)
    }
}
