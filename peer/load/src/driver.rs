//! The threads that drive the connections.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use thiserror::Error;

use crate::connection::{Connection, Sent};
use crate::keys::{Distribution, Keys};
use crate::plan::{Pace, Plan};
use crate::protocol::{Operation, Protocol};
use crate::report::Report;
use crate::timer::Timer;

/// The time after which a lost connection is opened again.
const REOPEN: Duration = Duration::from_millis(100);
/// The interval at which silent connections are checked.
const TICK: Duration = Duration::from_millis(50);
const LOST: &str = "the connection was lost";
const SILENT: &str = "no answer";

/// The reason for which a load could not be run.
#[derive(Debug, Error)]
pub enum Failed {
    /// The plan is invalid.
    #[error("{0}")]
    Plan(&'static str),
    /// A server cannot be reached, or does not speak the protocol.
    #[error("{server}: {cause}")]
    Server {
        /// The server.
        server: SocketAddr,
        /// The error of the system or of the protocol.
        cause: io::Error,
    },
    /// The generator itself cannot work.
    #[error("cannot generate load: {0}")]
    Generator(io::Error),
}

/// Runs a plan; `protocol` makes the client's side of each connection. `at_edge` is called when the counted time begins,
/// and when it ends.
///
/// Every server must be there at the beginning. A connection that breaks later is opened again; the requests that were in
/// flight on it count as refused.
///
/// # Errors
/// [`Failed::Plan`] before a connection is opened. [`Failed::Server`] where a server cannot be reached at the beginning,
/// or does not speak the protocol. [`Failed::Generator`] where a poll fails, or a thread panics. There is no report then,
/// though requests may have been sent.
pub fn run<P: Protocol>(
    plan: &Plan,
    protocol: impl Fn() -> P + Sync,
    mut at_edge: impl FnMut(),
) -> Result<Report, Failed> {
    plan.fault().map_or(Ok(()), |fault| Err(Failed::Plan(fault)))?;
    // One message of each thread.
    let (tell, told) = sync_channel(plan.threads);
    thread::scope(|scope| {
        let drivers = (0..plan.threads)
            .map(|part| {
                let (tell, protocol) = (tell.clone(), &protocol);
                let (begin, begun) = sync_channel(1);
                let work = move || {
                    let driver = Driver::open(plan, part, protocol);
                    let failed = driver.is_err();
                    // The receiver waits for all threads, so it outlives this call.
                    let _ = tell.send(failed);
                    drop(tell);
                    driver?.work(&begun)
                };
                (scope.spawn(work), begin)
            })
            .collect::<Vec<_>>();
        // A thread that panics before its message drops its sender: then no message is awaited any more.
        drop(tell);
        let opened = drivers.iter().all(|_| told.recv() == Ok(false));
        let (handles, begin): (Vec<_>, Vec<_>) = drivers.into_iter().unzip();
        if opened {
            let from = Instant::now() + plan.warm_up;
            // The result of a thread that has died is reported when the thread is joined.
            begin.iter().for_each(|begin| begin.send(from).unwrap_or_default());
            if plan.distribution != Distribution::Once {
                thread::sleep(plan.warm_up);
                at_edge();
                thread::sleep((from + plan.duration).saturating_duration_since(Instant::now()));
                at_edge();
            }
        }
        drop(begin);
        let mut report = Report::default();
        for handle in handles {
            report.add(&handle.join().map_err(|_| Failed::Generator(io::Error::other("a thread panicked")))??);
        }
        Ok(report)
    })
}

/// The connections of one thread.
struct Driver<'a, P, F> {
    plan: &'a Plan,
    protocol: F,
    poll: Poll,
    timer: Timer,
    seats: Vec<Seat<P>>,
    keys: Keys,
    value: Vec<u8>,
    written: u64,
    /// The due times of requests that no connection had room for.
    waiting: VecDeque<Instant>,
    /// The seat that gets the next request in an open loop.
    turn: usize,
    /// Whether there are no more requests to send.
    is_done: bool,
    report: Report,
}

/// A place for a connection.
struct Seat<P> {
    target: SocketAddr,
    connection: Option<Connection<P>>,
    /// The time at which the connection was lost.
    lost: Instant,
}

/// The counted time.
#[derive(Clone, Copy)]
struct Span {
    from: Instant,
    until: Instant,
    /// Whether a request counts by the time at which it was due, as in an open loop; in a closed loop it counts by the
    /// time of its answer.
    by_due: bool,
}

impl Span {
    fn counts(&self, due: Instant, answered: Instant) -> bool {
        let moment = if self.by_due { due } else { answered };
        self.from <= moment && moment < self.until
    }
}

impl<'a, P: Protocol, F: Fn() -> P> Driver<'a, P, F> {
    fn open(plan: &'a Plan, part: usize, protocol: F) -> Result<Self, Failed> {
        let poll = Poll::new().map_err(Failed::Generator)?;
        let timer = Timer::new(poll.registry(), Token(usize::MAX)).map_err(Failed::Generator)?;
        let keys = Keys::new(plan.distribution, plan.keys, plan.seed, part as u64, plan.threads as u64);
        let mut driver = Driver {
            plan,
            protocol,
            poll,
            timer,
            seats: Vec::new(),
            keys: keys.ok_or(Failed::Plan("the distribution makes no sense"))?,
            value: vec![b'x'; plan.value_bytes],
            written: part as u64,
            waiting: VecDeque::new(),
            turn: 0,
            is_done: false,
            report: Report::default(),
        };
        for number in (part..plan.connections).step_by(plan.threads) {
            let target = plan.targets[number % plan.targets.len()];
            driver.seats.push(Seat { target, connection: None, lost: Instant::now() });
        }
        (0..driver.seats.len()).try_for_each(|seat| driver.connect(seat))?;
        driver.wait_until_open()?;
        Ok(driver)
    }

    fn connect(&mut self, seat: usize) -> Result<(), Failed> {
        let server = self.seats[seat].target;
        let opened = Connection::open(server, (self.protocol)(), self.poll.registry(), Token(seat));
        self.seats[seat].connection = Some(opened.map_err(|cause| Failed::Server { server, cause })?);
        Ok(())
    }

    /// Waits until each connection is open.
    ///
    /// # Errors
    /// A connection cannot be opened in time.
    fn wait_until_open(&mut self) -> Result<(), Failed> {
        let until = Instant::now() + self.plan.patience;
        let mut events = Events::with_capacity(1024);
        let mut standing = vec![false; self.seats.len()];
        while let Some(seat) = standing.iter().position(|standing| !standing) {
            let server = self.seats[seat].target;
            if Instant::now() >= until {
                return Err(Failed::Server { server, cause: io::ErrorKind::TimedOut.into() });
            }
            self.timer.poll(&mut self.poll, &mut events, None, TICK).map_err(Failed::Generator)?;
            for event in &events {
                let Some(seat) = self.seats.get_mut(event.token().0) else { continue };
                let (server, Some(connection)) = (seat.target, &mut seat.connection) else { continue };
                let mut worked = Ok(());
                if event.is_writable() {
                    worked = connection.writable();
                }
                if worked.is_ok() && event.is_readable() {
                    worked = connection.readable(|_, _| ());
                }
                worked.map_err(|cause| Failed::Server { server, cause })?;
                standing[event.token().0] = connection.is_open();
            }
        }
        Ok(())
    }

    /// Runs the plan; the counted time begins when `begin` says.
    fn work(mut self, begin: &Receiver<Instant>) -> Result<Report, Failed> {
        // Another thread could not open its connections: there are no requests to send.
        let Ok(from) = begin.recv() else { return Ok(self.report) };
        let began = Instant::now();
        let once = self.plan.distribution == Distribution::Once;
        let until = if once { from + Duration::from_secs(1 << 30) } else { from + self.plan.duration };
        let span = Span { from, until, by_due: matches!(self.plan.pace, Pace::Open { .. }) };
        // From the agreed moment on, however late this thread learns of it.
        let mut schedule = Schedule::new(self.plan, from.checked_sub(self.plan.warm_up).unwrap_or(began));
        let mut events = Events::with_capacity(1024);
        let mut looked = began;
        for seat in 0..self.seats.len() {
            self.fill(seat, began, &span);
        }
        loop {
            let now = Instant::now();
            // Also at the end: requests that became due since the last time are sent, however late.
            let next = if self.is_done { None } else { self.hand_out(&mut schedule, now, &span) };
            let is_over = self.is_done || now >= span.until;
            if is_over && (self.seats.iter().all(Seat::is_idle) && self.waiting.is_empty()) {
                break;
            }
            if now >= span.until + self.plan.patience {
                break;
            }
            // Closed loops end at once: requests in flight then would be answered too late to count.
            if is_over && !span.by_due && !once {
                break;
            }
            let rest = next.filter(|_| !is_over).map(|next| next.saturating_duration_since(now).min(TICK));
            self.timer.poll(&mut self.poll, &mut events, rest, TICK).map_err(Failed::Generator)?;
            for event in &events {
                let seat = event.token().0;
                if seat < self.seats.len() {
                    self.attend(seat, event.is_readable(), event.is_writable(), &span);
                }
            }
            if looked.elapsed() >= TICK {
                looked = Instant::now();
                self.look_round(looked, &span);
            }
        }
        let ended = Instant::now();
        for seat in 0..self.seats.len() {
            self.lose(seat, ended, SILENT, &span);
        }
        for since in std::mem::take(&mut self.waiting) {
            let is_write = self.keys.chance(self.plan.writes);
            note(&mut self.report, Sent { is_write, since }, ended, Some(SILENT.into()), &span);
        }
        self.report.elapsed = if once { ended - began } else { self.plan.duration };
        Ok(self.report)
    }

    /// In an open loop, hands out the requests that are due; returns the time of the next one.
    fn hand_out(&mut self, schedule: &mut Schedule, now: Instant, span: &Span) -> Option<Instant> {
        let next = loop {
            let next = schedule.next()?;
            if next > now || next >= span.until {
                break next;
            }
            schedule.pass();
            self.waiting.push_back(next);
        };
        while let Some(due) = self.waiting.front().copied() {
            let Some(seat) = self.room() else { break };
            self.waiting.pop_front();
            self.ask(seat, due);
        }
        for seat in 0..self.seats.len() {
            self.flush(seat, span);
        }
        Some(next)
    }

    /// Returns a connection that may get a request, each in its turn.
    fn room(&mut self) -> Option<usize> {
        let most = self.in_flight_max();
        let seats = self.seats.len();
        let found = (0..seats).map(|step| (self.turn + step) % seats).find(|seat| self.seats[*seat].has_room(most))?;
        self.turn = (found + 1) % seats;
        Some(found)
    }

    fn in_flight_max(&self) -> usize {
        match self.plan.pace {
            Pace::Closed { in_flight } => in_flight,
            Pace::Open { in_flight_max, .. } => in_flight_max,
        }
    }

    /// In a closed loop, sends requests until as many are in flight as there should be. In an open loop, sends requests
    /// that wait for room.
    fn fill(&mut self, seat: usize, now: Instant, span: &Span) {
        let most = self.in_flight_max();
        while self.seats[seat].has_room(most) && !self.is_done && (span.by_due || now < span.until) {
            let due = if span.by_due { self.waiting.pop_front() } else { Some(now) };
            let Some(due) = due else { break };
            self.ask(seat, due);
        }
        self.flush(seat, span);
    }

    fn ask(&mut self, seat: usize, since: Instant) {
        let Some(key) = self.keys.next_key() else {
            self.is_done = true;
            return;
        };
        let Some(connection) = &mut self.seats[seat].connection else { return };
        if !self.keys.chance(self.plan.writes) {
            return connection.request(Operation::Read(key), since);
        }
        // Each value differs from the last, so that no server gains by a comparison.
        self.written += self.plan.threads as u64;
        let number = self.written.to_le_bytes().map(|byte| byte | 0x80);
        let bytes = number.len().min(self.value.len());
        self.value[..bytes].copy_from_slice(&number[..bytes]);
        connection.request(Operation::Write(key, &self.value), since);
    }

    fn flush(&mut self, seat: usize, span: &Span) {
        let flushed = self.seats[seat].connection.as_mut().map_or(Ok(()), Connection::flush);
        if flushed.is_err() {
            self.lose(seat, Instant::now(), LOST, span);
        }
    }

    fn attend(&mut self, seat: usize, readable: bool, writable: bool, span: &Span) {
        let Some(connection) = &mut self.seats[seat].connection else { return };
        let mut worked = if writable { connection.writable() } else { Ok(()) };
        let now = Instant::now();
        if readable && worked.is_ok() {
            let report = &mut self.report;
            worked = connection.readable(|sent, refusal| note(report, sent, now, refusal, span));
        }
        match worked {
            Ok(()) => self.fill(seat, now, span),
            Err(_) => self.lose(seat, now, LOST, span),
        }
    }

    /// Opens lost connections again, and closes silent ones.
    fn look_round(&mut self, now: Instant, span: &Span) {
        for seat in 0..self.seats.len() {
            let Seat { connection, lost, .. } = &self.seats[seat];
            let oldest = connection.as_ref().and_then(Connection::oldest);
            let reopens = connection.is_none() && now.saturating_duration_since(*lost) >= REOPEN;
            if reopens && self.connect(seat).is_err() {
                self.seats[seat].lost = now;
            } else if oldest.is_some_and(|oldest| now.saturating_duration_since(oldest) >= self.plan.patience) {
                self.lose(seat, now, SILENT, span);
            } else {
                self.fill(seat, now, span);
            }
        }
    }

    /// Closes a connection, and counts its requests in flight as refused.
    fn lose(&mut self, seat: usize, now: Instant, why: &str, span: &Span) {
        let Seat { connection, lost, .. } = &mut self.seats[seat];
        *lost = now;
        let Some(mut connection) = connection.take() else { return };
        for sent in connection.abandon() {
            note(&mut self.report, sent, now, Some(why.into()), span);
        }
    }
}

fn note(report: &mut Report, sent: Sent, now: Instant, refusal: Option<String>, span: &Span) {
    if span.counts(sent.since, now) {
        let tally = if sent.is_write { &mut report.writes } else { &mut report.reads };
        tally.note(now.saturating_duration_since(sent.since), refusal);
    }
}

impl<P: Protocol> Seat<P> {
    fn has_room(&self, most: usize) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.is_open() && connection.unanswered() < most)
    }

    fn is_idle(&self) -> bool {
        self.connection.as_ref().is_none_or(|connection| connection.unanswered() == 0)
    }
}

/// The due times of requests in an open loop.
struct Schedule {
    began: Instant,
    /// The time between two requests.
    every: Option<Duration>,
    passed: u64,
}

impl Schedule {
    fn new(plan: &Plan, began: Instant) -> Schedule {
        let every = match plan.pace {
            Pace::Closed { .. } => None,
            Pace::Open { rate, .. } => Some(Duration::from_secs_f64(plan.threads as f64 / rate)),
        };
        Schedule { began, every, passed: 0 }
    }

    fn next(&self) -> Option<Instant> {
        Some(self.began + self.every?.mul_f64(self.passed as f64))
    }

    fn pass(&mut self) {
        self.passed += 1;
    }
}
