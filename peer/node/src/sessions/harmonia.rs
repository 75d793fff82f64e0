//! Packets of switches (`Harmonia`): those that this node's groups pass through a switch, those that reach the node through one, and those
//! of its clients' reads.
//!
//! Only reads of clients go through a switch, and only while answers come soon. Otherwise they go the ordinary way, and for a while other
//! reads under that ballot do too. A member that cannot answer a read by itself asks the primary, as for an operation of its own clients.
//!
//! Nothing in a packet proves its sender. Packets from any address but the switch's are dropped. A packet that is to come back has a tag
//! that cannot be guessed ([`NodeConfig::secret`](crate::NodeConfig)), and must be about the sent object. So a stranger that reaches this
//! peer's address, but does not see the packets that the switch sends, can read the data that any client can read at an endpoint, and can
//! do nothing else.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use group::ballot::TermBallot;
use group::control::liveness::round_trip::RoundTrip;
use group::harmonia::read_scheduler::SpreadRead;
use group::harmonia::{ReturnedWrite, TRIAL, WritePass};
use group::message::AttemptOutcome;
use group::op::{Answer, Op, ReadMode};
use header::{Header, KEY_BYTES_MAX, NO_OBJECT, Operation, PACKET_BYTES_MAX, Packet, ReplyTo};
use overlay::rng::Rng;
use overlay::time::Time;
use overlay::{GroupId, Key};

use crate::api::{Output, Request};
use crate::context::Context;
use crate::replicas::ReplicaSerial;
use crate::sessions::requester::{READ_NAMES, Requester};

/// Shortest and longest wait for the answer to a read by way of the switch; then the read goes the ordinary way.
const PATIENCE_MIN: Duration = Duration::from_millis(10);
const PATIENCE_MAX: Duration = Duration::from_millis(250);
/// Pause after a silence in which no read under that ballot goes by the switch; each later pause is twice as long.
const REST_FIRST: Duration = Duration::from_millis(250);
const REST_MAX: Duration = Duration::from_secs(2);
/// Upper limit of ballots for which it is known whether the switch answers.
const BALLOTS_MAX: usize = 1 << 11;
/// Time after which a packet that was to come back is forgotten: a new one is passed long before.
const PASS_MAX: Duration = Duration::from_secs(2);
/// Interval of the search for entries to forget.
const FORGET_EVERY: Duration = Duration::from_millis(250);
/// Upper limit of open reads that came through a switch.
const READS_MAX: usize = 1 << 14;
/// Time for which the origin of a read through a switch waits.
const READ_PATIENCE: Duration = Duration::from_secs(1);

/// A packet that is to come back.
#[derive(Clone, Copy, Debug)]
struct PassingWrite {
    serial: ReplicaSerial,
    group: GroupId,
    ballot: TermBallot,
    object: u32,
    tag: u64,
    sent: Time,
}

/// Origin of a read, and the contents of its answer's header.
#[derive(Clone, Debug)]
struct ScheduledRead {
    to: ReplyTo,
    header: Header,
    key: Key,
    op: Op,
    since: Time,
}

/// A read that was sent by way of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) tag: u64,
    pub(crate) group: GroupId,
    pub(crate) ballot: TermBallot,
    pub(crate) at: Time,
}

/// Whether reads under a ballot are answered.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Time of the last answer.
    heard: Time,
    /// Time until which no read goes that way.
    rests_until: Time,
    /// Length of the next pause.
    rest: Duration,
}

/// Numbers of reads by way of a switch since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadSchedulerCounts {
    /// Reads that this node's clients sent that way.
    pub sent: u64,
    /// Reads that were answered.
    pub answered: u64,
    /// Reads that took too long, and were sent the ordinary way, too.
    pub missed: u64,
    /// Reads of other nodes that this node answered by itself.
    pub alone: u64,
    /// Reads of other nodes that were left to the primary, which may be this node.
    pub left: u64,
}

/// Work of a packet for the sessions.
#[derive(Clone, Debug)]
pub(crate) enum ForSessions {
    /// A read that this member leaves to the primary.
    Submit(Request),
    /// Answer to a read of a client of this node, with the header of its packet.
    Answer(Header, AttemptOutcome),
}

/// State of all packets of switches.
#[derive(Debug)]
pub(crate) struct HarmoniaState {
    passes: BTreeMap<u64, PassingWrite>,
    reads: BTreeMap<u64, ScheduledRead>,
    /// Last name of a read or of a request of its own.
    last: u64,
    ways: BTreeMap<TermBallot, Way>,
    round_trip: RoundTrip,
    pub(crate) counts: ReadSchedulerCounts,
    /// Time of the last search for entries to forget.
    forgot: Time,
    /// Number of dropped packets.
    pub(crate) dropped: u64,
    /// Source of the tags of packets that pass a switch, and of nothing else.
    tags: Rng,
}

/// Returns the switch's name for one primary's part in one term: the number, and the hash that tells it from other parts with that number.
pub(crate) fn partition(group: GroupId, ballot: TermBallot) -> (u32, u64) {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let node = ballot.node.peer.0.iter().copied();
    let numbers = [group.0 as u64, (group.0 >> 64) as u64, ballot.epoch.0, ballot.term.0, ballot.node.incarnation.0];
    for byte in numbers.iter().flat_map(|number| number.to_le_bytes()).chain(node) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    // The upper bits of such a product are the better ones.
    ((hash >> 32) as u32, hash)
}

/// Returns whether a packet is about this ballot's part.
pub(crate) fn names(header: &Header, group: GroupId, ballot: TermBallot) -> bool {
    partition(group, ballot) == (header.partition, header.term)
}

/// Returns the header of a packet about this ballot's part, and about no object in it.
fn blank(operation: Operation, group: GroupId, ballot: TermBallot) -> Header {
    let (partition, term) = partition(group, ballot);
    Header { operation, partition, object: NO_OBJECT, switch: 0, term, sequence: 0, committed: 0, tag: 0 }
}

/// Returns the switch's name for an object. Keys of one range have the upper bits of their points in common.
pub(crate) fn object(key: &Key) -> u32 {
    (key.point().0 as u32).max(NO_OBJECT + 1)
}

impl HarmoniaState {
    /// Creates the state of a node that has no packets on their way; the tags of its packets follow from `secret`.
    pub(crate) fn new(secret: u64) -> HarmoniaState {
        HarmoniaState {
            passes: BTreeMap::new(),
            reads: BTreeMap::new(),
            last: 0,
            ways: BTreeMap::new(),
            round_trip: RoundTrip::default(),
            counts: ReadSchedulerCounts::default(),
            forgot: Time(0),
            dropped: 0,
            tags: Rng::new(secret),
        }
    }

    fn name(&mut self) -> u64 {
        self.last = (self.last + 1) % READ_NAMES;
        self.last
    }

    /// Returns whether a read under this ballot may go by the switch.
    pub(crate) fn may_spread(&self, ballot: TermBallot, key: &Key, now: Time) -> bool {
        key.name().len() <= KEY_BYTES_MAX && self.ways.get(&ballot).is_none_or(|way| way.rests_until <= now)
    }

    /// Returns the time to wait for an answer.
    pub(crate) fn patience(&self) -> Duration {
        // Slow answers of busy members are no sign that the switch is gone.
        self.round_trip.patience().unwrap_or(PATIENCE_MIN).clamp(PATIENCE_MIN, PATIENCE_MAX)
    }

    fn way(&mut self, ballot: TermBallot, now: Time) -> Option<&mut Way> {
        if self.ways.len() >= BALLOTS_MAX {
            self.ways.retain(|_, way| way.rests_until > now || now.since(way.heard) < REST_FIRST);
        }
        let has_room = self.ways.len() < BALLOTS_MAX || self.ways.contains_key(&ballot);
        let new = Way { heard: Time(0), rests_until: Time(0), rest: REST_FIRST };
        has_room.then(|| self.ways.entry(ballot).or_insert(new))
    }

    /// Notes that a read was not answered in time.
    pub(crate) fn missed(&mut self, sent: Sent, now: Time) {
        self.counts.missed += 1;
        if let Some(way) = self.way(sent.ballot, now) {
            // If any answer came since this read was sent, this read alone was lost. Reads that were sent together count once.
            if way.heard < sent.at && way.rests_until <= now {
                (way.rests_until, way.rest) = (now + way.rest, (way.rest * 2).min(REST_MAX));
            }
        }
    }

    /// Notes that a read was answered, perhaps late.
    pub(crate) fn answered(&mut self, sent: Sent, now: Time) {
        self.counts.answered += 1;
        self.round_trip.took(now.since(sent.at).min(2 * PATIENCE_MAX));
        if let Some(way) = self.way(sent.ballot, now) {
            *way = Way { heard: now, rests_until: Time(0), rest: REST_FIRST };
        }
    }

    /// Forgets packets and reads that are no longer waited for.
    pub(crate) fn forget(&mut self, now: Time) {
        if now.since(self.forgot) < FORGET_EVERY {
            return;
        }
        self.forgot = now;
        self.passes.retain(|_, passing| now.since(passing.sent) < PASS_MAX);
        self.reads.retain(|_, asked| now.since(asked.since) < 2 * READ_PATIENCE);
    }
}

/// Returns a client's read as a packet; `None` if it does not fit into one.
pub(crate) fn question(
    group: GroupId,
    ballot: TermBallot,
    key: &Key,
    op: &Op,
    tag: u64,
    reply_to: ReplyTo,
) -> Option<Bytes> {
    let header = Header { object: object(key), tag, ..blank(Operation::Read, group, ballot) };
    let value = postcard::to_allocvec(op).ok()?;
    encoded(&Packet { value_bytes: value.len() as u32, value: &value, reply_to, ..Packet::of(header, key.name()) })
}

fn encoded(packet: &Packet<'_>) -> Option<Bytes> {
    packet.fits().then(|| {
        let mut bytes = Vec::with_capacity(PACKET_BYTES_MAX.min(256));
        packet.encode(&mut bytes);
        bytes.into()
    })
}

impl HarmoniaState {
    /// Passes a packet of a group through the switch.
    pub(crate) fn pass(&mut self, cx: &mut Context<'_>, serial: ReplicaSerial, group: GroupId, pass: WritePass) {
        let Some(switch) = cx.config.switch else { return };
        let WritePass { ballot, key, tag, sent } = pass;
        let name = self.tags.draw();
        let object = key.as_ref().map_or(NO_OBJECT, object);
        self.passes.insert(name, PassingWrite { serial, group, ballot, object, tag, sent });
        let header = Header { object, tag: name, ..blank(Operation::WriteFirst, group, ballot) };
        send_packet(cx, switch.at, &Packet { reply_to: switch.here, ..Packet::of(header, &[]) });
    }

    /// Reports a group's complete writes to the switch.
    pub(crate) fn complete(
        &mut self,
        cx: &mut Context<'_>,
        group: GroupId,
        ballot: TermBallot,
        switch_id: u32,
        number: u64,
    ) {
        let Some(switch) = cx.config.switch else { return };
        let header = Header { switch: switch_id, sequence: number, ..blank(Operation::Completion, group, ballot) };
        send_packet(cx, switch.at, &Packet::of(header, &[]));
    }

    /// Handles a datagram. Returns the work that it makes for the sessions.
    pub(crate) fn on_packet(&mut self, cx: &mut Context<'_>, from: ReplyTo, bytes: &[u8]) -> Option<ForSessions> {
        let is_from_switch = cx.config.switch.is_some_and(|switch| switch.at == from);
        let packet = Packet::decode(bytes).ok().filter(|_| is_from_switch);
        let Some(packet) = packet else {
            self.dropped += 1;
            return None;
        };
        match packet.header.operation {
            Operation::WriteFirst => self.on_passed(cx, packet.header),
            Operation::Read | Operation::FastRead => return self.on_question(cx, &packet).map(ForSessions::Submit),
            Operation::Reply => return Some(on_answer(&packet)),
            Operation::WriteRest | Operation::Completion => self.dropped += 1,
        }
        None
    }

    fn on_passed(&mut self, cx: &mut Context<'_>, header: Header) {
        // Of two passes for one write, the first to come back counts, and the other is still of use.
        let Some(passing) = self.passes.get(&header.tag).copied() else { return };
        // The numbered object must be the one to be written, or else another object is dirty.
        if !names(&header, passing.group, passing.ballot) || header.object != passing.object {
            self.dropped += 1;
            return;
        }
        if passing.tag == TRIAL {
            self.passes.remove(&header.tag);
        }
        if let Some(replica) = cx.replicas.by_serial_mut(passing.serial) {
            let Header { switch, sequence: number, .. } = header;
            let PassingWrite { ballot, tag, sent, .. } = passing;
            replica.group.on_passed(ballot, &ReturnedWrite { switch, number, tag, sent });
        }
    }

    /// Handles a read that came through the switch. Returns the request to the primary, if this member leaves the read to it.
    fn on_question(&mut self, cx: &mut Context<'_>, packet: &Packet<'_>) -> Option<Request> {
        let key = Key::new(packet.key).ok();
        let op = postcard::from_bytes::<Op>(packet.value).ok().filter(|op| matches!(op, Op::Read(_)));
        let (Some(key), Some(op)) = (key, op) else {
            self.dropped += 1;
            return None;
        };
        if self.reads.len() >= READS_MAX || packet.reply_to.port == 0 {
            return None; // The origin asks again, the ordinary way.
        }
        let name = self.name();
        let header = packet.header;
        let asked = ScheduledRead { to: packet.reply_to, header, key: key.clone(), op: op.clone(), since: cx.now.time };
        self.reads.insert(name, asked);
        let here = cx.replicas.living_mut().find_map(|group| {
            let id = group.state().id;
            let ballot = group.state().parts().map(|(_, ballot)| ballot).find(|ballot| names(&header, id, *ballot))?;
            Some((group, ballot))
        });
        match here {
            Some((group, ballot)) if header.operation == Operation::FastRead && ballot.node != cx.me => {
                let (switch, point) = (header.switch, header.committed);
                group.read_spread(SpreadRead { tag: name, ballot, switch, point, key, op });
                None
            }
            Some(_) => self.leave_to_primary(name),
            // Perhaps it was for another ring's peer that had this port before: no group here knows the data there.
            None => {
                self.reads.remove(&name);
                self.dropped += 1;
                None
            }
        }
    }

    /// Handles a member's answer to a read. Without an answer the primary is asked: returns the request to it.
    pub(crate) fn on_spread(&mut self, cx: &mut Context<'_>, name: u64, answer: Option<Answer>) -> Option<Request> {
        match answer {
            Some(answer) => {
                self.counts.alone += 1;
                self.answer_question(cx, name, Some(&answer));
                None
            }
            None => self.leave_to_primary(name),
        }
    }

    fn leave_to_primary(&mut self, name: u64) -> Option<Request> {
        let asked = self.reads.get(&name)?;
        self.counts.left += 1;
        let requester = Requester::ScheduledRead(name);
        Some(Request {
            id: requester.id(),
            connection: requester.connection(),
            key: asked.key.clone(),
            op: asked.op.clone(),
            mode: ReadMode::Linearizable,
            patience: READ_PATIENCE,
            once: None,
        })
    }

    /// Answers the origin of a read. An answer that does not fit into a packet counts as none: the origin asks the ordinary way.
    pub(crate) fn answer_question(&mut self, cx: &mut Context<'_>, name: u64, answer: Option<&Answer>) {
        let (Some(asked), Some(switch)) = (self.reads.remove(&name), cx.config.switch) else { return };
        let value = answer.and_then(|answer| postcard::to_allocvec(answer).ok()).unwrap_or_default();
        let header = Header { operation: Operation::Reply, ..asked.header };
        let packet = |value| Packet { value_bytes: 0, value, reply_to: asked.to, ..Packet::of(header, &[]) };
        let whole = Packet { value_bytes: value.len() as u32, ..packet(&value) };
        let packet = if whole.fits() { whole } else { packet(&[]) };
        send_packet(cx, switch.at, &packet);
    }
}

fn send_packet(cx: &mut Context<'_>, to: ReplyTo, packet: &Packet<'_>) {
    if let Some(bytes) = encoded(packet) {
        cx.out.push(Output::Packet { to, bytes });
    }
}

/// Handles the answer to a read of a client of this node.
fn on_answer(packet: &Packet<'_>) -> ForSessions {
    let answer = postcard::from_bytes::<Answer>(packet.value).ok().filter(|_| !packet.value.is_empty());
    let outcome = answer.map_or(AttemptOutcome::NotPrimary, AttemptOutcome::Unchanged);
    let header = packet.header;
    ForSessions::Answer(header, outcome)
}
#[cfg(test)]
#[path = "harmonia_test.rs"]
mod tests;
