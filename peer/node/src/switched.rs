//! Packets of switches (`Harmonia`): what this node's groups have pass one, what comes to it through one, and what its clients
//! ask that way.
//!
//! Only reads of clients go through a switch, and only where somebody answers soon: else they go the ordinary way, and for a while so
//! do others under that ballot. What a member does not answer by itself it asks of the primary, like an operation of its own clients.
//!
//! Nothing in a packet proves who sent it. What comes from elsewhere than the switch is dropped, and what is to come back has a tag that
//! nobody guesses ([`NodeConfig::secret`](crate::NodeConfig)), and is about what was sent: so whoever reaches this peer's address, but does not see what the switch sends, can read what anybody may read
//! who reaches an endpoint for clients, and nothing else.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use group::ballot::TermBallot;
use group::committee::{Pass, Passed, TRIAL};
use group::message::Outcome;
use group::op::{Answer, Op, OpError, ReadMode};
use group::round_trip::RoundTrip;
use group::spread::SpreadRead;
use group::time::Time;
use header::{Header, KEY_BYTES_MAX, NO_OBJECT, Operation, PACKET_BYTES_MAX, Packet, ReplyTo};
use overlay::{GroupId, Key};

use crate::Node;
use crate::api::{ConnectionId, Output, Request, RequestId};

/// A read that a switch was to send to somebody goes the ordinary way after this at the earliest, and at the latest.
const PATIENCE_MIN: Duration = Duration::from_millis(10);
const PATIENCE_MAX: Duration = Duration::from_millis(250);
/// After silence no read under that ballot goes by the switch for so long, and then twice as long each time.
const REST_FIRST: Duration = Duration::from_millis(250);
const REST_MAX: Duration = Duration::from_secs(2);
/// Ballots of which it is known whether a switch answers.
const BALLOTS_MAX: usize = 1 << 11;
/// What is to come back is forgotten after this: it is passed again long before.
const PASS_MAX: Duration = Duration::from_secs(2);
/// Looked for so often.
const FORGET_EVERY: Duration = Duration::from_millis(250);
/// Reads that came through a switch and are under way.
const READS_MAX: usize = 1 << 14;
/// How long whoever asked through a switch waits.
const READ_PATIENCE: Duration = Duration::from_secs(1);
/// Requests of this node's own for those who asked through a switch; other requests are named from 1 on.
const OWN_REQUESTS: u64 = 1 << 63;

/// Something that is to come back.
#[derive(Clone, Copy, Debug)]
struct Passing {
    serial: u64,
    group: GroupId,
    ballot: TermBallot,
    object: u32,
    tag: u64,
    sent: Time,
}

/// Who asked, and what the answer has to bear.
#[derive(Clone, Debug)]
struct Asked {
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
    /// When one was, last.
    heard: Time,
    /// None goes that way before.
    rests_until: Time,
    /// So long it rests the next time.
    rest: Duration,
}

/// What came of reads that went by way of a switch, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpreadCounts {
    /// This node's clients asked so often that way.
    pub sent: u64,
    /// So often they were answered.
    pub answered: u64,
    /// So often that took too long, and they were asked the ordinary way, too.
    pub missed: u64,
    /// Others asked, and this node answered by itself.
    pub alone: u64,
    /// Others asked, and it was left to the primary, which may be this node.
    pub left: u64,
}

/// All that has to do with switches.
#[derive(Debug, Default)]
pub(crate) struct Switched {
    passes: BTreeMap<u64, Passing>,
    reads: BTreeMap<u64, Asked>,
    /// The last name of a read or of a request of its own.
    last: u64,
    ways: BTreeMap<TermBallot, Way>,
    round_trip: RoundTrip,
    pub(crate) counts: SpreadCounts,
    /// When what nobody waits for was last looked for.
    forgot: Time,
    /// Packets that were dropped.
    pub(crate) dropped: u64,
}

/// A switch's name for one primary's part in one term: the number, and what tells it from others of that number.
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

/// Is this about that ballot's part?
pub(crate) fn names(header: &Header, group: GroupId, ballot: TermBallot) -> bool {
    partition(group, ballot) == (header.partition, header.term)
}

/// What a packet begins with that is about this ballot's part, and about nothing in it.
fn blank(operation: Operation, group: GroupId, ballot: TermBallot) -> Header {
    let (partition, term) = partition(group, ballot);
    Header { operation, partition, object: NO_OBJECT, switch: 0, term, sequence: 0, committed: 0, tag: 0 }
}

/// Was this asked by the node itself, for somebody who asked through the switch?
pub(crate) fn is_own(id: RequestId) -> bool {
    id.0 >= OWN_REQUESTS
}

/// A switch's name for an object. Keys of one range have the upper bits of their points in common.
pub(crate) fn object(key: &Key) -> u32 {
    (key.point().0 as u32).max(NO_OBJECT + 1)
}

impl Switched {
    fn name(&mut self) -> u64 {
        self.last = (self.last + 1) % OWN_REQUESTS;
        self.last
    }

    /// May a read under this ballot go by the switch?
    pub(crate) fn may_spread(&self, ballot: TermBallot, key: &Key, now: Time) -> bool {
        key.name().len() <= KEY_BYTES_MAX && self.ways.get(&ballot).is_none_or(|way| way.rests_until <= now)
    }

    /// How long an answer is waited for.
    pub(crate) fn patience(&self) -> Duration {
        // Where members have much to do, that is no sign that the switch is gone.
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

    /// A read was not answered in time.
    pub(crate) fn missed(&mut self, sent: Sent, now: Time) {
        self.counts.missed += 1;
        if let Some(way) = self.way(sent.ballot, now) {
            // Where others are heard this one was lost. Those that were sent together count once.
            if way.heard < sent.at && way.rests_until <= now {
                (way.rests_until, way.rest) = (now + way.rest, (way.rest * 2).min(REST_MAX));
            }
        }
    }

    /// One was, though perhaps late.
    pub(crate) fn answered(&mut self, sent: Sent, now: Time) {
        self.counts.answered += 1;
        self.round_trip.took(now.since(sent.at).min(2 * PATIENCE_MAX));
        if let Some(way) = self.way(sent.ballot, now) {
            *way = Way { heard: now, rests_until: Time(0), rest: REST_FIRST };
        }
    }

    /// Forgets what nobody waits for.
    pub(crate) fn forget(&mut self, now: Time) {
        if now.since(self.forgot) < FORGET_EVERY {
            return;
        }
        self.forgot = now;
        self.passes.retain(|_, passing| now.since(passing.sent) < PASS_MAX);
        self.reads.retain(|_, asked| now.since(asked.since) < 2 * READ_PATIENCE);
    }
}

/// A read of a client's as a packet; `None` where it does not fit into one.
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

impl Node {
    /// A group has something pass.
    pub(crate) fn pass(&mut self, serial: u64, group: GroupId, pass: Pass) {
        let Some(switch) = self.config.switch else { return };
        let Pass { ballot, key, tag, sent } = pass;
        let name = self.tags.draw();
        let object = key.as_ref().map_or(NO_OBJECT, object);
        self.switched.passes.insert(name, Passing { serial, group, ballot, object, tag, sent });
        let header = Header { object, tag: name, ..blank(Operation::WriteFirst, group, ballot) };
        self.send_packet(switch.at, &Packet { reply_to: switch.here, ..Packet::of(header, &[]) });
    }

    /// A group tells the switch what is complete.
    pub(crate) fn complete(&mut self, group: GroupId, ballot: TermBallot, switch_id: u32, number: u64) {
        let Some(switch) = self.config.switch else { return };
        let header = Header { switch: switch_id, sequence: number, ..blank(Operation::Completion, group, ballot) };
        self.send_packet(switch.at, &Packet::of(header, &[]));
    }

    fn send_packet(&mut self, to: ReplyTo, packet: &Packet<'_>) {
        if let Some(bytes) = encoded(packet) {
            self.outputs.push_back(Output::Packet { to, bytes });
        }
    }

    /// A datagram came.
    pub(crate) fn on_packet(&mut self, from: ReplyTo, bytes: &[u8]) {
        let is_from_switch = self.config.switch.is_some_and(|switch| switch.at == from);
        let packet = Packet::decode(bytes).ok().filter(|_| is_from_switch);
        let Some(packet) = packet else {
            self.switched.dropped += 1;
            return;
        };
        match packet.header.operation {
            Operation::WriteFirst => self.on_passed(packet.header),
            Operation::Read | Operation::FastRead => self.on_question(&packet),
            Operation::Reply => self.on_answer(&packet),
            Operation::WriteRest | Operation::Completion => self.switched.dropped += 1,
        }
    }

    fn on_passed(&mut self, header: Header) {
        // Of what was passed twice the first to come back is taken, and the other is still of use.
        let Some(passing) = self.switched.passes.get(&header.tag).copied() else { return };
        // What the switch numbered is what was to be written, or else another object is dirty.
        if !names(&header, passing.group, passing.ballot) || header.object != passing.object {
            self.switched.dropped += 1;
            return;
        }
        if passing.tag == TRIAL {
            self.switched.passes.remove(&header.tag);
        }
        if let Some(hosted) = self.hosts.all.iter_mut().find(|hosted| hosted.serial == passing.serial) {
            let Header { switch, sequence: number, .. } = header;
            let Passing { ballot, tag, sent, .. } = passing;
            hosted.group.on_passed(ballot, &Passed { switch, number, tag, sent });
        }
    }

    /// Somebody asks through the switch.
    fn on_question(&mut self, packet: &Packet<'_>) {
        let key = Key::new(packet.key).ok();
        let op = postcard::from_bytes::<Op>(packet.value).ok().filter(|op| matches!(op, Op::Read(_)));
        let (Some(key), Some(op)) = (key, op) else {
            self.switched.dropped += 1;
            return;
        };
        if self.switched.reads.len() >= READS_MAX || packet.reply_to.port == 0 {
            return; // Whoever asked asks again, the ordinary way.
        }
        let name = self.switched.name();
        let header = packet.header;
        let asked = Asked { to: packet.reply_to, header, key: key.clone(), op: op.clone(), since: self.now.time };
        self.switched.reads.insert(name, asked);
        let here = self.hosts.living_mut().find_map(|group| {
            let id = group.state().id;
            let ballot = group.state().parts().map(|(_, ballot)| ballot).find(|ballot| names(&header, id, *ballot))?;
            Some((group, ballot))
        });
        match here {
            Some((group, ballot)) if header.operation == Operation::FastRead && ballot.node != self.me => {
                let (switch, point) = (header.switch, header.committed);
                group.read_spread(SpreadRead { tag: name, ballot, switch, point, key, op });
            }
            Some(_) => self.leave_to_primary(name),
            // Perhaps it was for another ring's peer that had this port before: nothing here knows what is there.
            None => {
                self.switched.reads.remove(&name);
                self.switched.dropped += 1;
            }
        }
    }

    /// A member's answer to a read, or none: then the primary is asked.
    pub(crate) fn on_spread(&mut self, name: u64, answer: Option<Answer>) {
        match answer {
            Some(answer) => {
                self.switched.counts.alone += 1;
                self.answer_question(name, Some(&answer));
            }
            None => self.leave_to_primary(name),
        }
    }

    fn leave_to_primary(&mut self, name: u64) {
        let Some(asked) = self.switched.reads.get(&name) else { return };
        self.switched.counts.left += 1;
        let request = Request {
            id: RequestId(OWN_REQUESTS + name),
            connection: ConnectionId(OWN_REQUESTS + name),
            key: asked.key.clone(),
            op: asked.op.clone(),
            mode: ReadMode::Linearizable,
            patience: READ_PATIENCE,
            once: None,
        };
        self.with_sessions(|sessions, ctx| sessions.submit(ctx, request));
    }

    /// What came of a request of the node's own.
    pub(crate) fn answer_own(&mut self, id: RequestId, result: &Result<Answer, OpError>) {
        self.answer_question(id.0 - OWN_REQUESTS, result.as_ref().ok());
    }

    /// Tells whoever asked. An answer that does not fit into a packet is none: it is asked for the ordinary way.
    fn answer_question(&mut self, name: u64, answer: Option<&Answer>) {
        let (Some(asked), Some(switch)) = (self.switched.reads.remove(&name), self.config.switch) else { return };
        let value = answer.and_then(|answer| postcard::to_allocvec(answer).ok()).unwrap_or_default();
        let header = Header { operation: Operation::Reply, ..asked.header };
        let packet = |value| Packet { value_bytes: 0, value, reply_to: asked.to, ..Packet::of(header, &[]) };
        let whole = Packet { value_bytes: value.len() as u32, ..packet(&value) };
        let packet = if whole.fits() { whole } else { packet(&[]) };
        self.send_packet(switch.at, &packet);
    }

    /// An answer to what a client of this node asked.
    fn on_answer(&mut self, packet: &Packet<'_>) {
        let answer = postcard::from_bytes::<Answer>(packet.value).ok().filter(|_| !packet.value.is_empty());
        let outcome = answer.map_or(Outcome::NotPrimary, Outcome::Unchanged);
        let header = packet.header;
        self.with_sessions(|sessions, ctx| sessions.on_spread(ctx, &header, outcome));
    }
}

#[cfg(test)]
#[path = "switched_test.rs"]
mod tests;
