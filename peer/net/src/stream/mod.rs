//! The two ends of a stream after its hello, each a task of its own.
//!
//! Frames go from opener to acceptor. Confirmations go the other way: four bytes with the number of further bytes that the
//! acceptor's *loop* has taken. The opener has at most a window of unconfirmed bytes in flight. So any stall at the
//! acceptor (of the loop, the process or the network) shows at the opener as a queue that fills, and little lies in the
//! sockets.

pub(crate) mod frame;
pub(crate) mod hello;
pub(crate) mod inbox;
pub(crate) mod link;
#[cfg(test)]
pub(crate) mod pipe;
pub(crate) mod queue;

use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use libp2p::futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use node::Class;
use tokio::time::timeout;

use crate::shared::SharedNet;
use crate::stream::frame::{FrameDecoder, FrameTooLong, MOVED, PREFIX_BYTES, prefix};
use crate::stream::link::Link;
use crate::stream::queue::{BATCH_FRAMES_MAX, Queue};

/// Bytes per read: Yamux hands over frames of 16 KiB.
const READ_BYTES: usize = 16 * 1024;
/// Frame length in bytes beyond which a frame is written without a copy; shorter frames are gathered first.
const GATHER_BYTES_MAX: usize = 4 * 1024;
/// Bytes of one write, each with its own deadline: a slow peer makes progress, a stopped one does not.
const WRITE_BYTES: usize = 16 * 1024;

/// Reason for the end of a stream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamEnd {
    /// The other side closed it, or the connection is gone.
    #[error("closed")]
    Closed,
    /// Its sender continues on a better connection: this stream has no fault.
    #[error("moved")]
    Moved,
    /// The other side took no bytes for too long.
    #[error("stalled")]
    Stalled,
    /// The other side sent bytes that the protocol forbids.
    #[error("violation: {0}")]
    Violation(&'static str),
    /// The connection broke.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<FrameTooLong> for StreamEnd {
    fn from(FrameTooLong(announced): FrameTooLong) -> StreamEnd {
        match announced {
            MOVED => StreamEnd::Moved,
            _ => StreamEnd::Violation("an announced frame is too long"),
        }
    }
}

/// Writes the queue of `link` for this class, until the stream ends or until `leave`, which takes effect between frames.
pub(crate) async fn write<S>(
    mut stream: S,
    link: &Link,
    class: Class,
    stall: Duration,
    leave: impl Future<Output = ()>,
) -> StreamEnd
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut leave = pin!(leave);
    let queue = link.queue(class);
    let mut batch = FrameBatch { queue, frames: Vec::with_capacity(BATCH_FRAMES_MAX) };
    let mut gather = Vec::new();
    let mut confirmations = Confirmations::default();
    let mut unconfirmed = 0;
    loop {
        let confirmed = if unconfirmed >= queue.window_bytes() {
            tokio::select! {
                biased;
                () = &mut leave => break,
                confirmed = timeout(stall, confirmations.next(&mut stream)) => match confirmed {
                    Ok(confirmed) => Some(confirmed),
                    Err(_) => return StreamEnd::Stalled,
                },
            }
        } else {
            tokio::select! {
                biased;
                () = &mut leave => break,
                // This read also tells an idle writer that the connection is gone.
                confirmed = confirmations.next(&mut stream) => Some(confirmed),
                () = queue.take(&mut batch.frames) => None,
            }
        };
        if let Some(confirmed) = confirmed {
            match confirmed.map(|bytes| unconfirmed.checked_sub(bytes)) {
                Ok(Some(rest)) => unconfirmed = rest,
                Ok(None) => return StreamEnd::Violation("the peer confirmed more than was sent"),
                Err(error) => return ended(error),
            }
            continue;
        }
        let frames = batch.frames.len();
        let bytes: usize = batch.frames.iter().map(Bytes::len).sum();
        if let Err(end) = write_batch(&mut stream, &batch.frames, &mut gather, stall).await {
            return end;
        }
        queue.sent(frames, bytes);
        batch.frames.clear();
        unconfirmed += bytes + frames * PREFIX_BYTES;
    }
    // Frames that still wait belong to the next writer from now on.
    drop(batch);
    move_on(stream, stall).await
}

/// Announces that the next frames come on another stream, and stays until all earlier frames were read.
async fn move_on<S>(mut stream: S, stall: Duration) -> StreamEnd
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let said = async {
        stream.write_all(&MOVED.to_le_bytes()).await?;
        stream.close().await?;
        // Confirmations of frames that are still being read are of no use any more.
        while stream.read(&mut [0; 64]).await? > 0 {}
        Ok(StreamEnd::Moved)
    };
    timeout(stall, said).await.unwrap_or(Ok(StreamEnd::Stalled)).unwrap_or_else(ended)
}

/// Frames taken from a queue. Frames that were not written by the drop count as lost, for any reason. A writer that ends
/// wakes the next one. Where streams move there are two for a moment, and the next one may have slept since before this
/// one took the frames of its wake-up.
struct FrameBatch<'a> {
    queue: &'a Queue,
    frames: Vec<Bytes>,
}

impl Drop for FrameBatch<'_> {
    fn drop(&mut self) {
        self.queue.lost(self.frames.len());
        self.queue.wake();
    }
}

/// Hands arrived frames to the loop, until the stream ends.
pub(crate) async fn read<S>(mut stream: S, link: &Link, class: Class, shared: &SharedNet) -> StreamEnd
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let stall = shared.config.timing.stall;
    // Often enough that the sender never waits for a confirmation that is merely late.
    let confirm_at = link.queue(class).window_bytes() / 4;
    let mut bytes = vec![0; READ_BYTES];
    let mut decoder = FrameDecoder::default();
    let mut unconfirmed = 0;
    loop {
        let n = match stream.read(&mut bytes).await {
            // Also within a frame: a stream ends so where a process dies.
            Ok(0) => return StreamEnd::Closed,
            Ok(n) => n,
            Err(error) => return ended(error),
        };
        decoder.extend(&bytes[..n]);
        let mut frames = Vec::new();
        let end = loop {
            match decoder.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break None,
                Err(too_long) => break Some(StreamEnd::from(too_long)),
            }
        };
        if !frames.is_empty() {
            link.received(class, frames.len(), frames.iter().map(Bytes::len).sum());
            // Only here does a reader wait for the loop.
            if shared.inbox.deliver(link.peer, class, frames).await.is_err() {
                return StreamEnd::Closed;
            }
        }
        if let Some(end) = end {
            return end;
        }
        unconfirmed += n;
        if unconfirmed >= confirm_at {
            let confirmation = (unconfirmed as u32).to_le_bytes();
            if let Err(end) = write_all(&mut stream, &confirmation, stall).await {
                return end;
            }
            if let Err(end) = flush(&mut stream, stall).await {
                return end;
            }
            unconfirmed = 0;
        }
    }
}

/// Writes all of a batch and flushes once: a flush for each frame costs seven times as much.
///
/// Plain writes, not a sink: `flush` of a `FramedWrite` would be ambiguous between the sink's and the stream's.
async fn write_batch<S>(stream: &mut S, batch: &[Bytes], gather: &mut Vec<u8>, stall: Duration) -> Result<(), StreamEnd>
where
    S: AsyncWrite + Unpin,
{
    for frame in batch {
        gather.extend_from_slice(&prefix(frame));
        if frame.len() <= GATHER_BYTES_MAX {
            gather.extend_from_slice(frame);
        }
        if frame.len() > GATHER_BYTES_MAX || gather.len() >= WRITE_BYTES {
            write_all(stream, gather, stall).await?;
            gather.clear();
        }
        if frame.len() > GATHER_BYTES_MAX {
            write_all(stream, frame, stall).await?;
        }
    }
    write_all(stream, gather, stall).await?;
    gather.clear();
    flush(stream, stall).await
}

async fn write_all<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8], stall: Duration) -> Result<(), StreamEnd> {
    for chunk in bytes.chunks(WRITE_BYTES) {
        timeout(stall, stream.write_all(chunk)).await.map_err(|_| StreamEnd::Stalled)?.map_err(ended)?;
    }
    Ok(())
}

async fn flush<S: AsyncWrite + Unpin>(stream: &mut S, stall: Duration) -> Result<(), StreamEnd> {
    timeout(stall, stream.flush()).await.map_err(|_| StreamEnd::Stalled)?.map_err(ended)
}

/// Returns the end for an I/O error: a vanished stream counts as closed, for each of these error kinds.
fn ended(error: io::Error) -> StreamEnd {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::WriteZero | io::ErrorKind::BrokenPipe => StreamEnd::Closed,
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::NotConnected => {
            StreamEnd::Closed
        }
        _ => StreamEnd::Io(error),
    }
}

/// Reader of confirmations. A partial confirmation is kept where the wait is given up.
#[derive(Default)]
struct Confirmations {
    bytes: [u8; 4],
    have: usize,
}

impl Confirmations {
    async fn next<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> io::Result<usize> {
        while self.have < self.bytes.len() {
            match stream.read(&mut self.bytes[self.have..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => self.have += n,
            }
        }
        self.have = 0;
        Ok(u32::from_le_bytes(self.bytes) as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::time::Instant;

    use overlay::PeerKey;

    use super::*;
    use crate::config::NetConfig;
    use crate::event::NetEvent;
    use crate::stream::pipe::{PipeFault, pipe};

    const PEER: PeerKey = PeerKey([1; 32]);

    fn side(window_bytes: usize) -> (Arc<SharedNet>, Arc<Link>) {
        let mut config = NetConfig::new("test");
        config.data.window_bytes = window_bytes;
        config.timing.stall = Duration::from_millis(300);
        let shared = Arc::new(SharedNet::new(PeerKey([2; 32]), config, vec![Box::new(|| {})]));
        let link = shared.links.get_or_add(PEER);
        (shared, link)
    }

    fn frame(i: u32) -> Bytes {
        let mut frame = i.to_le_bytes().to_vec();
        // Around every size that is treated in its own way.
        frame.resize([4, 100, GATHER_BYTES_MAX, GATHER_BYTES_MAX + 1, 3 * WRITE_BYTES][i as usize % 5], i as u8);
        frame.into()
    }

    fn drained(shared: &SharedNet) -> Vec<Bytes> {
        let mut events = Vec::new();
        shared.inbox.drain(0, &mut events);
        let frames = events.into_iter().filter_map(|event| match event {
            NetEvent::Frames { frames, .. } => Some(frames),
            _ => None,
        });
        frames.flatten().collect()
    }

    /// Sends 40 frames through a pipe with a fault at the n-th call, until both ends ended. Returns the number that
    /// arrived.
    async fn run(fault: Option<PipeFault>) -> usize {
        let ((here, out), (there, _)) = (side(64 * 1024), side(64 * 1024));
        let incoming = there.links.get_or_add(PEER);
        let (one, two) = pipe(10_000, fault);
        let writer = tokio::spawn({
            let out = out.clone();
            async move { write(one, &out, Class::Data, here.config.timing.stall, pending()).await }
        });
        let reader = tokio::spawn({
            let there = there.clone();
            async move { read(two, &incoming, Class::Data, &there).await }
        });
        let queue = out.queue(Class::Data);
        for i in 0..40 {
            queue.push(frame(i), Instant::now()).unwrap();
        }
        queue.wake();
        let (mut arrived, began) = (0, Instant::now());
        while arrived < 40 && !reader.is_finished() {
            assert!(began.elapsed() < Duration::from_secs(20), "stuck after {arrived}");
            for got in drained(&there) {
                assert_eq!(got, frame(arrived as u32));
                arrived += 1;
            }
            tokio::task::yield_now().await;
        }
        // Where one end fails the other ends too: its end of the pipe is gone.
        reader.abort();
        let _ = reader.await;
        let _ = writer.await;
        let (counts, (queued, _)) = (queue.counts(), queue.depth());
        assert_eq!(counts.sent_frames + counts.lost + queued as u64, 40, "every frame is accounted for");
        // Sent frames may still be lost behind us, and frames that count as lost may have arrived.
        assert!(arrived as u64 <= counts.sent_frames + counts.lost);
        arrived
    }

    /// Every single I/O call fails once: no end hangs or panics, and all frames are accounted for.
    #[tokio::test]
    async fn a_fault_anywhere_ends_both_ends() {
        for n in 1.. {
            let fault = PipeFault::at(n);
            let arrived = run(Some(fault.clone())).await;
            if !fault.was_reached() {
                assert_eq!(arrived, 40);
                assert!(n > 20, "the faults were in the way of {n} calls only");
                return;
            }
        }
    }

    /// Frames that were written before arrive, the rest stay in their queue, and neither end is at fault.
    #[tokio::test]
    async fn a_writer_moves_on_between_frames() {
        // With room in the window, and with none.
        for window in [1 << 20, 64 * 1024] {
            let ((here, out), (there, _)) = (side(window), side(window));
            let incoming = there.links.get_or_add(PEER);
            let (one, two) = pipe(10_000, None);
            let (leave, left) = tokio::sync::oneshot::channel::<()>();
            let writer = tokio::spawn({
                let (out, stall) = (out.clone(), here.config.timing.stall);
                async move { write(one, &out, Class::Data, stall, async move { _ = left.await }).await }
            });
            let queue = out.queue(Class::Data);
            for i in 0..40 {
                queue.push(frame(i), Instant::now()).unwrap();
            }
            queue.wake();
            // The writer gets as far as it can; no reader runs.
            tokio::task::yield_now().await;
            leave.send(()).unwrap();
            let reader = tokio::spawn({
                let there = there.clone();
                async move { read(two, &incoming, Class::Data, &there).await }
            });
            assert!(matches!(writer.await.unwrap(), StreamEnd::Moved));
            assert!(matches!(reader.await.unwrap(), StreamEnd::Moved));
            let (arrived, counts) = (drained(&there), queue.counts());
            assert!((0..).zip(&arrived).all(|(i, got)| *got == frame(i)));
            assert_eq!((arrived.len() as u64, counts.lost), (counts.sent_frames, 0));
            assert_eq!(arrived.len() + queue.depth().0, 40);
        }
    }

    /// While streams move two writers wait for a moment, and no push pays for a wake-up while one of them works.
    #[tokio::test]
    async fn what_one_writer_leaves_behind_the_next_one_takes() {
        let (here, out) = side(1 << 20);
        let (stall, queue) = (here.config.timing.stall, out.queue(Class::Data));
        let (leave, left) = tokio::sync::oneshot::channel::<()>();
        let ((one, mut first), (two, mut second)) = (pipe(100, None), pipe(1 << 20, None));
        let leaving = tokio::spawn({
            let out = out.clone();
            async move { write(one, &out, Class::Data, stall, async move { _ = left.await }).await }
        });
        tokio::task::yield_now().await;
        let staying = tokio::spawn({
            let out = out.clone();
            async move { write(two, &out, Class::Data, stall, pending()).await }
        });
        tokio::task::yield_now().await;
        // The first writer takes it, and is slow with it.
        assert!(queue.push(Bytes::from(vec![1; 200]), Instant::now()).unwrap());
        queue.wake();
        tokio::task::yield_now().await;
        assert!(!queue.push(Bytes::from(vec![2; 10]), Instant::now()).unwrap(), "one is awake");
        leave.send(()).unwrap();
        let mut bytes = [0; PREFIX_BYTES + 200];
        first.read_exact(&mut bytes).await.unwrap();
        assert_eq!(bytes[PREFIX_BYTES..], [1; 200]);
        let mut bytes = [0; PREFIX_BYTES + 10];
        timeout(Duration::from_secs(20), second.read_exact(&mut bytes)).await.expect("it sleeps for ever").unwrap();
        assert_eq!(bytes[PREFIX_BYTES..], [2; 10]);
        drop((first, second));
        let (one, two) = (leaving.await.unwrap(), staying.await.unwrap());
        assert!(matches!((&one, &two), (StreamEnd::Moved | StreamEnd::Closed, StreamEnd::Closed)), "{one:?}, {two:?}");
    }

    #[tokio::test]
    async fn a_window_bounds_what_is_on_its_way() {
        let (here, out) = side(10_000);
        let (one, mut two) = pipe(1 << 20, None);
        let stall = here.config.timing.stall;
        let writer = tokio::spawn({
            let out = out.clone();
            async move { write(one, &out, Class::Data, stall, pending()).await }
        });
        for _ in 0..100 {
            out.queue(Class::Data).push(Bytes::from(vec![0; 996]), Instant::now()).unwrap();
        }
        out.queue(Class::Data).wake();
        // A window, no more, and after a confirmation as much as was confirmed. A batch is a quarter of a window.
        let mut bytes = vec![0; 10_000];
        two.read_exact(&mut bytes).await.unwrap();
        assert!(timeout(stall / 3, two.read(&mut bytes)).await.is_err());
        two.write_all(&4000u32.to_le_bytes()).await.unwrap();
        two.read_exact(&mut bytes[..4000]).await.unwrap();
        assert!(timeout(stall / 3, two.read(&mut bytes)).await.is_err());
        // Then no more bytes are confirmed.
        assert!(matches!(writer.await.unwrap(), StreamEnd::Stalled));
        assert_eq!(out.queue(Class::Data).counts().sent_frames, 14);
    }
}
