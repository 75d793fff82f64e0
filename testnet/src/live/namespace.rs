//! Network namespaces: a daemon in one has addresses, wires and a loopback of its own.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::resp::Connection;

/// A network namespace. One without a name is gone, with all its contents, with the last handle and the last process in it, however
/// these end.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<OwnedFd>);

impl Namespace {
    /// Makes a namespace that contains a loopback alone, which is down. Needs the right to make one.
    ///
    /// # Errors
    /// The operating system refuses the namespace.
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

    /// Opens a namespace that has a name in the file system, such as `/run/netns/NAME`.
    ///
    /// # Errors
    /// There is no such file, or this process may not read it.
    pub fn open(path: &Path) -> io::Result<Namespace> {
        File::open(path).map(|file| Namespace(Arc::new(file.into())))
    }

    /// Runs `act` in the namespace, in this thread. Sockets that are made there stay there.
    ///
    /// # Errors
    /// The thread cannot enter the namespace; `act` has not run then.
    pub fn within<T>(&self, act: impl FnOnce() -> T) -> io::Result<T> {
        /// Brings the thread back on every path.
        struct NamespaceGuard(OwnedFd);
        impl Drop for NamespaceGuard {
            fn drop(&mut self) {
                enter(self.0.as_raw_fd()).expect("a thread can go back to where it was");
            }
        }
        let back = NamespaceGuard(here()?);
        enter(self.0.as_raw_fd())?;
        let result = act();
        drop(back);
        Ok(result)
    }

    /// Lets the command's process run in the namespace.
    pub fn put(&self, command: &mut Command) {
        let namespace = self.clone();
        // SAFETY: setns is async-signal-safe and takes no pointers; the closure owns the handle.
        unsafe { command.pre_exec(move || enter(namespace.0.as_raw_fd())) };
    }

    /// Returns the path of the namespace, valid for as long as this handle lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// Returns the namespace of this thread.
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

/// Site of a daemon on [`Wires`](super::Wires).
#[derive(Clone, Debug)]
pub struct Site {
    /// Namespace of the site.
    pub namespace: Namespace,
    /// Address at which other sites reach it.
    pub address: Ipv4Addr,
}

/// Endpoint at which clients reach a daemon.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The address.
    pub address: SocketAddr,
    /// Namespace of that address; this process's own if `None`.
    pub namespace: Option<Namespace>,
}

impl Endpoint {
    /// Opens a stream.
    ///
    /// # Errors
    /// No connection within `patience`, or no way into the namespace.
    pub fn stream(&self, patience: Duration) -> io::Result<TcpStream> {
        let open = || TcpStream::connect_timeout(&self.address, patience);
        self.namespace.as_ref().map_or_else(open, |namespace| namespace.within(open)?)
    }

    /// Connects a client, which waits for answers no longer than `patience`.
    ///
    /// # Errors
    /// No connection within `patience`, or no way into the namespace.
    pub fn connect(&self, patience: Duration) -> io::Result<Connection> {
        Connection::over(self.stream(patience)?, patience)
    }
}
