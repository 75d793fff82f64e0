//! One client connection: reads bytes, passes requests to the node, returns answers in order.
//!
//! One task per connection. All its buffers have a limit. At a limit the task stops reading, so that the client's sending blocks: from a
//! client that does not read its answers the task reads nothing either.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use node::Request;
use tokio::io::Interest;
use tokio::sync::watch;
use tokio::time::Sleep;

use super::admission::Admission;
use super::arrival::Arrival;
use super::backend::{Line, Rejected, RequestOutcome};
use super::call::{Asked, Reaction};
use super::decoder::{Decoder, Excess, Item, Limits};
use super::errors;
use super::execute::{Executed, execute};
use super::join::Join;
use super::pending::PendingCommands;
use super::reply::{Protocol, Reply};
use super::session::Session;
use super::shared::Shared;
use super::socket::Socket;

/// Upper limit of commands without an answer, and of requests of such commands: at either, no more is read.
const UNANSWERED_MAX: usize = 1024;
/// Upper limit of bytes of answers not yet sent: beyond it no more answers are encoded and no more requests are read.
const UNSENT_BYTES_MAX: usize = 256 * 1024;
/// Upper limit of one read, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// Upper limit of arguments of one request: `MSET` with as many keys as are accepted, under `SCATTER.ONCE`, and some to spare so that a few
/// too many get the better error.
const ARGUMENTS_MAX: usize = 4096;
/// Time after which a client that takes no byte of its answers is gone or stuck. A slow client first reads the megabytes that the operating
/// system holds for it.
const STALLED_MAX: Duration = Duration::from_secs(60);
/// Shortest remaining time for which a request is still passed on.
const PATIENCE_MIN: Duration = Duration::from_millis(20);
/// Time in which the client can read a last answer and close.
const LINGER: Duration = Duration::from_secs(1);

/// Task of one connection.
pub struct Connection<S> {
    socket: S,
    admission: Admission,
    shared: Arc<Shared>,
    line: Line,
    session: Session,
    decoder: Decoder,
    pending: PendingCommands,
    arrival: Arrival,
    /// Encoded answers, of which `sent` bytes are sent.
    out: Vec<u8>,
    sent: usize,
    /// Time at which the client last took a byte, or there was none for it.
    moved: Instant,
    /// Bytes that the operating system held for the client when half of [`STALLED_MAX`] was over.
    held: Option<u64>,
    /// Set when the peer stops: new commands are refused, and the connection ends once all that arrived is answered, or at this time.
    last_call: Option<Instant>,
    /// Whether no more requests are accepted: pending commands are answered, then the connection ends.
    closing: bool,
    /// Requests of one round to the node.
    batch: Vec<Request>,
    asked: Vec<Asked>,
    outcomes: Vec<RequestOutcome>,
}

/// Whether the connection can go on.
enum Flow {
    On,
    End,
}

impl<S: Socket> Connection<S> {
    /// Returns the task of a connection that was just accepted.
    pub fn new(socket: S, shared: Arc<Shared>, admission: Admission) -> Connection<S> {
        let line = shared.router.connect();
        let now = Instant::now();
        let [peer, local] = socket.addresses();
        let session = Session {
            id: line.connection().0,
            protocol: Protocol::Resp2,
            authenticated: shared.settings.password.is_none(),
            name: Vec::new(),
            library: Vec::new(),
            library_version: Vec::new(),
            peer,
            local,
            since: now,
        };
        let limits = Limits {
            // A megabyte for many keys, and room for a value over its limit, so that its error can name the limit.
            request_bytes_max: 1024 * 1024 + 4 * shared.settings.value_bytes_max,
            arguments_max: ARGUMENTS_MAX,
        };
        Connection {
            socket,
            admission,
            line,
            session,
            decoder: Decoder::new(limits),
            pending: PendingCommands::default(),
            arrival: Arrival::new(now),
            out: Vec::new(),
            sent: 0,
            moved: now,
            held: None,
            last_call: None,
            closing: false,
            batch: Vec::new(),
            asked: Vec::new(),
            outcomes: Vec::new(),
            shared,
        }
    }

    /// Serves the client until it leaves, or until `stop`: then its earlier commands are still answered, and commands that arrive meanwhile
    /// are refused.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut alarm: Pin<Box<Sleep>> = Box::pin(tokio::time::sleep(Duration::ZERO));
        let mut alarm_at = Instant::now();
        loop {
            if self.last_call.is_none() && *stop.borrow() {
                self.last_call = Some(Instant::now() + self.shared.settings.last_call);
            }
            if matches!(self.turn(), Flow::End) {
                break;
            }
            let reads = !self.closing && self.has_room();
            let writes = self.unsent() > 0;
            let now = Instant::now();
            self.arrival.reading(reads, now, || self.socket.unread());
            let interest = match (reads, writes) {
                (true, true) => Some(Interest::READABLE.add(Interest::WRITABLE)),
                (true, false) => Some(Interest::READABLE),
                (false, true) => Some(Interest::WRITABLE),
                (false, false) => None,
            };
            let stalled = writes.then(|| self.moved + STALLED_MAX / if self.held.is_none() { 2 } else { 1 });
            let last_call = self.last_call.filter(|_| !self.closing);
            let due = [self.pending.due(), stalled, last_call, self.stranger_until()].into_iter().flatten().min();
            // An early alarm costs one round; a reset for each command would cost more.
            if let Some(due) = due
                && (alarm_at > due || alarm_at <= now)
            {
                alarm.as_mut().reset(due.into());
                alarm_at = due;
            }
            tokio::select! {
                ready = async {
                    match interest {
                        Some(interest) => self.socket.ready(interest).await,
                        None => std::future::pending().await,
                    }
                } => match ready {
                    Ok(ready) if reads && (ready.is_readable() || ready.is_read_closed()) => {
                        if self.read().is_err() {
                            break;
                        }
                    }
                    Ok(_) => {}
                    Err(_) => break,
                },
                () = self.line.arrived(), if self.pending.requests() > 0 => {}
                () = self.admission.lost() => break,
                () = alarm.as_mut(), if due.is_some() => {}
                changed = stop.changed(), if self.last_call.is_none() => {
                    if changed.is_err() {
                        self.last_call = Some(Instant::now() + self.shared.settings.last_call);
                    }
                }
            }
        }
        self.socket.close(LINGER).await;
    }

    /// Does all work that needs no waiting: ends only when no request can be taken, no answer encoded and no byte sent.
    ///
    /// The remaining work has a wake-up then: unsent bytes wait for the socket to take them, commands for the node's answers or their
    /// deadline, and a connection without either reads.
    fn turn(&mut self) -> Flow {
        let now = Instant::now();
        self.line.take(&mut self.outcomes);
        for (id, result) in self.outcomes.drain(..) {
            self.pending.complete(id, result);
        }
        let is_over = self.last_call.is_some_and(|until| now >= until);
        let expired = if is_over { self.pending.give_up() } else { self.pending.expire(now) };
        if expired > 0 {
            self.shared.metrics.guarded.inc_by(expired as u64);
        }
        self.closing |= is_over;
        loop {
            let more = self.take_requests(now);
            self.submit();
            self.make_answers(now);
            let was_full = self.unsent() >= UNSENT_BYTES_MAX;
            if self.send(now).is_err() {
                return Flow::End;
            }
            if was_full && self.unsent() < UNSENT_BYTES_MAX {
                self.arrival.caught_up(now);
            }
            let takes_more = more && !self.closing && self.has_room();
            if !takes_more && !self.can_answer() {
                break;
            }
        }
        // A stop waits for no command, but answers each one that has arrived.
        self.closing |= self.last_call.is_some() && self.is_answered() && self.socket.unread() == 0;
        let stuck = self.unsent() > 0 && self.is_stuck(now);
        let finished = self.closing && self.is_answered();
        let unknown = self.stranger_until().is_some_and(|until| now >= until);
        if stuck || finished || unknown { Flow::End } else { Flow::On }
    }

    /// Returns whether the client has taken no byte for [`STALLED_MAX`], neither of the bytes here nor of those that the operating system
    /// holds.
    fn is_stuck(&mut self, now: Instant) -> bool {
        let silent = now.duration_since(self.moved);
        if silent >= STALLED_MAX / 2 && self.held.is_none() {
            self.held = Some(self.socket.in_flight());
        }
        if silent < STALLED_MAX {
            return false;
        }
        let reads = self.held.take().is_some_and(|held| self.socket.in_flight() < held);
        if reads {
            self.moved = now;
        }
        !reads
    }

    /// Returns whether the client has all its answers.
    fn is_answered(&self) -> bool {
        self.pending.is_empty() && self.unsent() == 0
    }

    /// Returns whether there is an answer and room for its bytes.
    fn can_answer(&self) -> bool {
        self.pending.is_next_ready() && self.unsent() < UNSENT_BYTES_MAX
    }

    fn has_room(&self) -> bool {
        self.pending.len() < UNANSWERED_MAX
            && self.pending.requests() < UNANSWERED_MAX
            && self.unsent() < UNSENT_BYTES_MAX
    }

    /// Returns the time until which a client without the password is kept.
    fn stranger_until(&self) -> Option<Instant> {
        (!self.session.authenticated).then(|| self.session.since + self.shared.settings.stranger_max)
    }

    fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Reads from the socket, once.
    fn read(&mut self) -> io::Result<()> {
        match self.socket.try_read(self.decoder.buffer(), READ_BYTES) {
            // The client sends no more, but it may still be waiting for answers.
            Ok(0) => self.closing = true,
            Ok(bytes) => self.arrival.arrived(bytes, Instant::now()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Executes the requests that have arrived, as far as there is room. Returns whether there may be more in the buffer.
    fn take_requests(&mut self, now: Instant) -> bool {
        while !self.closing && self.has_room() {
            let stranger = !self.session.authenticated;
            let reaction = match self.decoder.next(stranger) {
                Ok(None) => return false,
                Ok(Some(Item::Request(arguments))) => {
                    execute(arguments, &mut self.session, &self.shared, &mut self.asked)
                }
                Ok(Some(Item::Excess(excess))) => {
                    let text = match excess {
                        Excess::Bytes => "ERR the command is too long; nothing was done",
                        Excess::Arguments => "ERR the command has too many arguments; nothing was done",
                    };
                    Executed { reaction: Reaction::Reply(Reply::error(text)), once: None }
                }
                Err(error) => Executed { reaction: Reaction::Close(Reply::error(format!("ERR {error}"))), once: None },
            };
            if stranger && self.session.authenticated && !self.admission.admit() {
                self.asked.clear();
                let reply = Reply::error(errors::TOO_MANY_CLIENTS);
                self.react(Executed { reaction: Reaction::Close(reply), once: None }, now);
                continue;
            }
            self.react(reaction, now);
        }
        true
    }

    fn react(&mut self, Executed { reaction, once }: Executed, now: Instant) {
        let arrived = self.arrival.stamp();
        let due = arrived + self.shared.settings.guard;
        // Answers to `HELLO` are in the protocol that it chose.
        let protocol = self.session.protocol;
        match reaction {
            Reaction::Reply(reply) => self.pending.push_ready(reply, protocol, due),
            Reaction::Close(reply) => {
                self.pending.push_ready(reply, protocol, due);
                self.closing = true;
            }
            Reaction::Ask(join) => self.ask(join, once, now, arrived),
        }
    }

    fn ask(&mut self, join: Join, once: Option<bytes::Bytes>, now: Instant, arrived: Instant) {
        let settings = &self.shared.settings;
        let (protocol, due) = (self.session.protocol, arrived + settings.guard);
        let patience = (arrived + settings.patience).saturating_duration_since(now);
        let count = self.asked.len();
        let refusal = match patience < PATIENCE_MIN || count == 0 {
            _ if self.last_call.is_some() => Some(errors::STOPPING),
            true => Some(errors::WAITED),
            false => None,
        };
        if let Some(refusal) = refusal {
            self.asked.clear();
            self.pending.push_ready(Reply::error(refusal), protocol, due);
            return;
        }
        let first = self.line.ids(count as u64);
        self.pending.push_requests(first, count, join, protocol, due);
        for (offset, Asked { key, op, mode }) in self.asked.drain(..).enumerate() {
            self.batch.push(Request {
                id: node::RequestId(first.0 + offset as u64),
                connection: self.line.connection(),
                key,
                op,
                mode,
                patience,
                once: once.clone(),
            });
        }
    }

    /// Passes the requests of this round to the node, as one batch.
    fn submit(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        if let Err(Rejected { batch, why }) = self.shared.backend.submit(std::mem::take(&mut self.batch)) {
            for request in batch {
                self.pending.complete(request.id, Err(group::op::OpError::TryAgain(why)));
            }
        }
    }

    /// Encodes the answers whose turn has come, as far as there is room.
    fn make_answers(&mut self, now: Instant) {
        while self.unsent() < UNSENT_BYTES_MAX {
            let Some((reply, protocol, due, asked)) = self.pending.pop() else {
                break;
            };
            if asked {
                let arrived = due - self.shared.settings.guard;
                self.shared.metrics.took(now.saturating_duration_since(arrived));
            }
            self.shared.metrics.answered(&reply);
            reply.encode(protocol, &mut self.out);
        }
    }

    /// Writes as much as the socket takes.
    fn send(&mut self, now: Instant) -> io::Result<()> {
        while self.unsent() > 0 {
            match self.socket.try_write(&self.out[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    self.sent += bytes;
                    (self.moved, self.held) = (now, None);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.sent = 0;
        (self.moved, self.held) = (now, None);
        self.out.shrink_to(UNSENT_BYTES_MAX / 4);
        Ok(())
    }
}

#[cfg(test)]
#[path = "connection_test.rs"]
mod tests;
