//! The path between namespaces: a thread that carries IP packets from one TUN device to another, each after the delay of its link.
//!
//! Delays, loss and cuts lie below TCP, QUIC and everything else, which all see them. The thread waits for packets, for the time of
//! the next arrival, and for commands on a socket, in one place; it has real-time priority where this process may have it.
//!
//! # Invariants
//! - No packet arrives before its link's delay is over: a late thread makes a path slower, and never faster than planned. Only the
//!   plan's `machine_us` is subtracted.
//! - Packets of a link arrive in the order in which they were sent, unless the plan's jitter may reorder.

mod control;
mod links;
mod schedule;
mod server;
mod tun;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use rustix::event::epoll;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use serde::Serialize;

use self::control::PathCommand;
use self::links::{Admission, PathLinks};
use self::schedule::{Nanos, Packet, Schedule};
use self::server::{ControlEnd, ControlServer};
use super::build;
use super::layout::{Layout, wire_of};
use super::plan::LabPlan;

/// Packets that are read from one wire before the others have their turn.
const TURN_PACKETS: usize = 64;
/// Bytes of the largest packet of all.
const PACKET_BYTES_MAX: usize = 65_536;
/// Time before a packet from which on the thread does not sleep: to be woken takes about as long.
const EARLY: Nanos = 50_000;
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Events that are taken from the kernel at one time.
const EVENTS_MAX: usize = 64;
/// Marks of events: below are wires, above are connections.
const TIMER: u64 = 1 << 32;
const LISTENER: u64 = TIMER + 1;
const CONNECTIONS: u64 = TIMER + 2;

/// Counters of a path since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct PathCounts {
    /// Packets that wires sent.
    sent: u64,
    /// Packets that arrived.
    delivered: u64,
    /// Bytes of these.
    delivered_bytes: u64,
    /// Packets that were lost by chance.
    lost: u64,
    /// Packets that were lost on a cut link.
    cut: u64,
    /// Packets that found a full queue.
    full: u64,
    /// Packets to or from an address outside of the laboratory.
    unroutable: u64,
    /// Packets that a device did not take.
    refused: u64,
    /// Packets that arrived more than a millisecond late, since this machine was busy.
    late: u64,
    /// Greatest such lateness, in microseconds.
    latest_us: u64,
    /// Packets on the way now, and their bytes.
    in_flight: u64,
    in_flight_bytes: u64,
    /// Links that are cut now.
    links_cut: u64,
}

/// A path with open devices and control socket, ready to run.
#[derive(Debug)]
pub(super) struct PathLoop {
    wires: Vec<OwnedFd>,
    names: BTreeMap<String, Vec<usize>>,
    links: PathLinks,
    /// Time of one way that the machine needs itself, and that no link takes.
    machine: Duration,
    schedule: Schedule,
    server: ControlServer,
    counts: PathCounts,
    events: OwnedFd,
    timer: OwnedFd,
    /// Packet time for which the timer is set.
    alarm: Option<Nanos>,
    scratch: Vec<u8>,
}

impl PathLoop {
    /// Opens the devices of a plan whose namespaces are made. The path ends with the connection of its owner, if it has one.
    ///
    /// # Errors
    /// A device is missing or already open, or the operating system refuses a handle.
    pub(super) fn open(plan: &LabPlan, listener: UnixListener, owner: Option<UnixStream>) -> Result<PathLoop, String> {
        let layout = Layout::new(plan);
        let mut wires = Vec::new();
        for wire in &layout.wires {
            let (namespace, device) = build::device(wire)?;
            let opened = tun::open(&namespace, device);
            wires.push(opened.map_err(|error| match error.kind() {
                io::ErrorKind::ResourceBusy => {
                    format!("the device of {} is open already: a path of this laboratory runs", wire.name)
                }
                _ => format!("the device of {}: {error}", wire.name),
            })?);
        }
        let mbit: Vec<Option<f64>> = layout.wires.iter().map(|wire| wire.bandwidth_mbit).collect();
        let rules = (plan.jitter, plan.loss_per_mille.into(), plan.queues);
        let machine = Duration::from_micros(plan.machine_us.into());
        let mut delays = layout.delays(plan);
        delays.iter_mut().flatten().for_each(|delay| *delay = delay.saturating_sub(machine));
        let links = PathLinks::new(&delays, &mbit, rules, plan.seed);
        let refused = |error: io::Error| format!("the path cannot wait for packets: {error}");
        let server = ControlServer::new(listener, owner).map_err(refused)?;
        PathLoop::register(wires, layout.names(), (links, machine), server).map_err(refused)
    }

    /// Registers all handles to wait for.
    fn register(
        wires: Vec<OwnedFd>,
        names: BTreeMap<String, Vec<usize>>,
        (links, machine): (PathLinks, Duration),
        server: ControlServer,
    ) -> io::Result<PathLoop> {
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        for (index, wire) in wires.iter().enumerate() {
            watch(&events, wire, index as u64, epoll::EventFlags::IN)?;
        }
        // Setting the timer anew clears it, so it is never read.
        watch(&events, &timer, TIMER, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        watch(&events, server.listener(), LISTENER, epoll::EventFlags::IN)?;
        if let Some(owner) = server.stream(0) {
            watch(&events, owner, CONNECTIONS, epoll::EventFlags::IN)?;
        }
        Ok(PathLoop {
            wires,
            names,
            links,
            machine,
            schedule: Schedule::default(),
            server,
            counts: PathCounts::default(),
            events,
            timer,
            alarm: None,
            scratch: vec![0; PACKET_BYTES_MAX],
        })
    }

    /// Carries packets until a command or the end of its owner stops the path.
    ///
    /// # Errors
    /// The operating system no longer tells of packets.
    pub(super) fn run(mut self) -> io::Result<()> {
        take_priority();
        let mut ready = Vec::with_capacity(EVENTS_MAX);
        loop {
            self.deliver();
            let is_near = self.schedule.next().is_some_and(|at| at < now() + EARLY);
            if !is_near {
                self.set_alarm()?;
            }
            ready.clear();
            let limit = is_near.then_some(&AT_ONCE);
            match epoll::wait(&self.events, rustix::buffer::spare_capacity(&mut ready), limit) {
                Err(rustix::io::Errno::INTR) => continue,
                waited => waited?,
            };
            for event in &ready {
                match event.data.u64() {
                    TIMER => self.alarm = None,
                    LISTENER => self.accept()?,
                    mark if mark >= CONNECTIONS => {
                        if self.serve((mark - CONNECTIONS) as usize) {
                            return Ok(());
                        }
                    }
                    wire => self.receive(wire as usize)?,
                }
            }
        }
    }

    /// Reads the packets that a wire has sent, and puts them on their links.
    fn receive(&mut self, from: usize) -> io::Result<()> {
        for _ in 0..TURN_PACKETS {
            let bytes = match rustix::io::read(&self.wires[from], &mut self.scratch[..]) {
                Ok(bytes) => bytes,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
                // Its namespace is gone: this wire is silent from now on.
                Err(_) => return Ok(epoll::delete(&self.events, &self.wires[from])?),
            };
            self.counts.sent += 1;
            let now = now();
            let to = destination(&self.scratch[..bytes], from).filter(|to| *to < self.wires.len());
            let Some(to) = to else {
                self.counts.unroutable += 1;
                continue;
            };
            match self.links.admit(from, to, bytes, now) {
                Admission::Arrives(at) => {
                    let bytes = self.schedule.buffer(&self.scratch[..bytes]);
                    self.schedule.add(at, Packet { from, to, bytes, is_past_line: false });
                }
                Admission::Cut => self.counts.cut += 1,
                Admission::Lost => self.counts.lost += 1,
                Admission::Full => self.counts.full += 1,
            }
        }
        Ok(())
    }

    /// Hands all packets that are due to the wires of their receivers.
    fn deliver(&mut self) {
        loop {
            let now = now();
            let Some((at, mut packet)) = self.schedule.take_due(now) else { return };
            let (from, to, bytes) = (packet.from, packet.to, packet.bytes.len());
            if !packet.is_past_line {
                packet.is_past_line = true;
                match self.links.pass_receiver(to, bytes, at) {
                    Some(passed) if passed > now => {
                        self.schedule.add(passed, packet);
                        continue;
                    }
                    Some(_) => {}
                    None => {
                        self.links.leave(from, to, bytes);
                        self.counts.full += 1;
                        self.schedule.recycle(packet);
                        continue;
                    }
                }
            }
            if !self.links.leave(from, to, bytes) {
                self.counts.cut += 1;
            } else if rustix::io::write(&self.wires[to], &packet.bytes).is_ok() {
                let late_us = (now - at) / 1_000;
                self.counts.delivered += 1;
                self.counts.delivered_bytes += bytes as u64;
                self.counts.late += u64::from(late_us > 1_000);
                self.counts.latest_us = self.counts.latest_us.max(late_us);
            } else {
                self.counts.refused += 1;
            }
            self.schedule.recycle(packet);
        }
    }

    /// Sets the timer for shortly before the next packet.
    fn set_alarm(&mut self) -> io::Result<()> {
        let next = self.schedule.next();
        if self.alarm == next {
            return Ok(());
        }
        // A time of zero would switch the timer off, which is right where there is no packet.
        let at = next.unwrap_or_default().saturating_sub(EARLY);
        let it_value = Timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as _ };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        self.alarm = next;
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        if let Some(index) = self.server.accept()
            && let Some(stream) = self.server.stream(index)
        {
            watch(&self.events, stream, CONNECTIONS + index as u64, epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    /// Carries out the commands of a connection, and returns whether the path must end.
    fn serve(&mut self, index: usize) -> bool {
        let (lines, end) = self.server.read(index);
        for line in lines {
            let command = PathCommand::parse(&line, &self.names);
            let is_stop = command == Ok(PathCommand::Stop);
            let answer = match command {
                Ok(command) => self.apply(command),
                Err(why) => format!("error: {why}"),
            };
            self.server.answer(index, &answer);
            if is_stop {
                return true;
            }
        }
        end == ControlEnd::Abandoned
    }

    fn apply(&mut self, command: PathCommand) -> String {
        match command {
            PathCommand::Cut(links) => links.into_iter().for_each(|(from, to)| self.links.cut(from, to)),
            PathCommand::Delay(links, delay) => {
                let delay = delay.saturating_sub(self.machine);
                links.into_iter().for_each(|(from, to)| self.links.delay(from, to, delay));
            }
            PathCommand::Loss(links, loss) => {
                links.into_iter().for_each(|(from, to)| self.links.loss(from, to, loss));
            }
            PathCommand::Heal => self.links.heal(),
            PathCommand::Stop => {}
            PathCommand::Stats => {
                let counts = PathCounts {
                    in_flight: self.schedule.len() as u64,
                    in_flight_bytes: self.links.bytes,
                    links_cut: self.links.cuts() as u64,
                    ..self.counts
                };
                return serde_json::to_string(&counts).unwrap_or_else(|error| format!("error: {error}"));
            }
        }
        "ok".into()
    }
}

/// Runs the path of a laboratory whose namespaces are made, in this thread, until a command stops it. Commands come as lines on the
/// Unix stream socket at `control`, which is made.
///
/// # Errors
/// A device is missing or open already, or the socket cannot be made.
pub fn run_path(plan: &LabPlan, control: &std::path::Path) -> Result<(), String> {
    let listener = UnixListener::bind(control).map_err(|error| format!("{}: {error}", control.display()))?;
    let path = PathLoop::open(plan, listener, None)?;
    path.run().map_err(|error| format!("the path of laboratory {:?} ends: {error}", plan.name))
}

fn watch(events: &OwnedFd, source: impl AsFd, mark: u64, flags: epoll::EventFlags) -> io::Result<()> {
    Ok(epoll::add(events, source, epoll::EventData::new_u64(mark), flags)?)
}

fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as Nanos * 1_000_000_000 + time.tv_nsec as Nanos
}

/// Returns the wire to which an IP packet goes. The source must be an address of the wire that sent it: providers filter others.
fn destination(packet: &[u8], from: usize) -> Option<usize> {
    let v4 =
        |at: usize| packet.get(at..at + 4)?.try_into().ok().map(|bytes: [u8; 4]| IpAddr::V4(Ipv4Addr::from(bytes)));
    let v6 =
        |at: usize| packet.get(at..at + 16)?.try_into().ok().map(|bytes: [u8; 16]| IpAddr::V6(Ipv6Addr::from(bytes)));
    let (source, to) = match packet.first()? >> 4 {
        4 => (v4(12)?, v4(16)?),
        6 => (v6(8)?, v6(24)?),
        _ => return None,
    };
    (wire_of(source) == Some(from)).then(|| wire_of(to)).flatten().filter(|to| *to != from)
}

/// Gives this thread real-time priority, if this process may: packets are then in time on a busy machine, too.
pub(super) fn take_priority() {
    // SAFETY: all bytes zero are a valid sched_param.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: 0 is the calling thread; the kernel reads `parameters`, which outlives the call.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::layout::{address_v6, public_v4};

    fn v4(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
        let mut packet = vec![0x45; 12];
        packet.extend(from.octets().into_iter().chain(to.octets()));
        packet
    }

    #[test]
    fn packets_go_where_their_address_says() {
        assert_eq!(destination(&v4(public_v4(0), public_v4(2)), 0), Some(2));
        assert_eq!(destination(&v4(public_v4(1), public_v4(2)), 0), None, "a foreign source");
        assert_eq!(destination(&v4(public_v4(0), public_v4(0)), 0), None, "to itself");
        assert_eq!(destination(&v4(public_v4(0), Ipv4Addr::new(8, 8, 8, 8)), 0), None);
        let mut packet = vec![0x60; 8];
        packet.extend(address_v6(3, 1, 2).octets().into_iter().chain(address_v6(4, 0, 1).octets()));
        assert_eq!(destination(&packet, 3), Some(4));
        for short in [0, 1, 15, 39] {
            assert_eq!(destination(&packet[..short], 3), None);
        }
    }
}
