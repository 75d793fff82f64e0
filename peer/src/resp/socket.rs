//! Byte stream of a client connection: a TCP socket, or a bounded pipe in tests.

use std::future::Future;
use std::io;
use std::time::Duration;

use bytes::{BufMut as _, BytesMut};
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;

/// Stream that is read and written without blocking, and reports when either may go on.
///
/// The contract is that of [`TcpStream`]: after `WouldBlock` the next [`Socket::ready`] with that interest waits until the operation may
/// succeed. A spurious return of `ready` is allowed.
pub(crate) trait Socket: Send + Sync + 'static {
    /// Waits until the stream may be ready for `interest`.
    ///
    /// # Errors
    /// Where the stream can never be ready again.
    fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<Ready>> + Send;

    /// Appends at most `bytes_max` bytes to `into`; 0 says that the other side sends no more.
    ///
    /// # Errors
    /// `WouldBlock` where nothing has arrived; any other error ends the connection.
    fn try_read(&self, into: &mut BytesMut, bytes_max: usize) -> io::Result<usize>;

    /// Writes the first of `bytes`, and returns how many.
    ///
    /// # Errors
    /// `WouldBlock` where there is no room; any other error ends the connection.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Returns the number of bytes that have arrived and were not read.
    fn unread(&self) -> u64;

    /// Returns the number of bytes that were written and have not come to the other side's operating system; 0 where that is unknown. It
    /// falls as the other side reads, long before there is room to write again.
    fn in_flight(&self) -> u64;

    /// Returns the addresses of the other side and of this side, for `CLIENT INFO`; empty where there is none.
    fn addresses(&self) -> [String; 2];

    /// Closes the stream so that the last bytes arrive; waits at most `at_most` for the other side to close.
    fn close(self, at_most: Duration) -> impl Future<Output = ()> + Send;
}

impl Socket for TcpStream {
    async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        TcpStream::ready(self, interest).await
    }

    fn try_read(&self, into: &mut BytesMut, bytes_max: usize) -> io::Result<usize> {
        into.reserve(bytes_max);
        self.try_read_buf(&mut into.limit(bytes_max))
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        TcpStream::try_write(self, bytes)
    }

    fn unread(&self) -> u64 {
        rustix::io::ioctl_fionread(self).unwrap_or(0)
    }

    #[cfg(target_os = "linux")]
    fn in_flight(&self) -> u64 {
        use std::os::fd::AsRawFd as _;
        let mut bytes: libc::c_int = 0;
        // SAFETY: the request writes one integer, and the descriptor is open as long as `self` lives.
        let done = unsafe { libc::ioctl(self.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if done == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
    }

    #[cfg(not(target_os = "linux"))]
    fn in_flight(&self) -> u64 {
        0
    }

    fn addresses(&self) -> [String; 2] {
        [self.peer_addr(), self.local_addr()].map(|address| address.map(|a| a.to_string()).unwrap_or_default())
    }

    /// Shuts down the sending side, and reads past further input for a while. A socket closed with unread input makes the kernel
    /// throw away bytes that the other side has not read yet.
    async fn close(mut self, at_most: Duration) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let _ = tokio::time::timeout(at_most, async {
            self.shutdown().await?;
            let mut scratch = [0; 4096];
            while self.read(&mut scratch).await? > 0 {}
            io::Result::Ok(())
        })
        .await;
    }
}
