//! Parts of the searches through all schedules: three members, one key, a disk that stores at once, and the questions of
//! clients.

use group::ballot::{LogSlot, Term, TermBallot};
use group::config::{Defects, GroupConfig, Timing};
use group::control::agreed::AgreedPolicies;
use group::control::state::{Assignment, GroupState, Member, Settings};
use group::message::{ClientOperation, Message, Sender, Vouch};
use group::op::{Answer, Op, Read, ReadMode};
use group::record::OpId;
use group::{Group, Stored};
use overlay::time::{Now, Time, WallMillis};
use overlay::{GroupId, Incarnation, Key, KeyRange, NodeId, PeerKey, RingId};

#[path = "../../../group/tests/protocol/world/content.rs"]
mod content;

/// Content of a member's disk; each change is there at once.
pub use content::Content as Disk;

/// Number of members.
pub const MEMBERS: usize = 3;

/// The time of all members: it stands still.
pub const NOW: Now = Now { time: Time(1_000_000_000_000), awake: Time(1_000_000_000_000), wall: WallMillis(1) };

/// Returns the node of this index.
pub fn node(index: usize) -> NodeId {
    NodeId { peer: PeerKey([index as u8 + 1; 32]), incarnation: Incarnation(1) }
}

/// Returns the member of this index.
pub fn member(index: usize) -> Member {
    Member {
        node: node(index),
        addresses: Vec::new(),
        name: None,
        cluster: String::new(),
        joined: WallMillis(0),
        since: LogSlot(0),
    }
}

/// Returns the one key.
pub fn key() -> Key {
    Key::new(b"k").expect("short")
}

/// Returns the state of the group after `division` divisions; the last one named `primary` as primary of the whole ring.
pub fn state(division: u64, primary: usize) -> GroupState {
    let settings = Settings {
        coarse: false,
        leases: false,
        lease_ms: 1_000,
        drift_per_mille: 10,
        value_bytes_max: 1_000,
        policies: AgreedPolicies { members_min: 5, members_max: 12, ..AgreedPolicies::default() },
        horizon_ms: 60_000,
    };
    let mut state = GroupState::founded(RingId(1), GroupId(1), member(0), settings);
    state.members = (0..MEMBERS).map(member).collect();
    state.applied = LogSlot(division);
    let term = Term::new(LogSlot(division), 0);
    state.division = vec![Assignment { start: KeyRange::FULL.start(), node: node(primary), term }];
    state
}

/// Returns the configuration of each member.
pub fn config(defects: Defects, timing: Timing) -> GroupConfig {
    GroupConfig {
        name: None,
        timing,
        durable: true,
        memory_bytes_max: 1 << 20,
        window_bytes_max: 1 << 20,
        in_flight_max: 16,
        waiting_max: 16,
        transfer_bytes_per_s: 1 << 30,
        message_bytes_max: 1 << 18,
        divide: |_| None,
        fatal_contradictions: true,
        defects,
    }
}

/// Returns the store of a member that starts again. Such a member always looks for records.
pub fn stored(disk: &Disk) -> Stored {
    Stored { empty: false, ..disk.stored(true) }
}

/// Returns a member that starts again from its disk. Nothing is ever lost here, so the other members have nothing to add to its
/// store: their answers come at once, and are no steps of a schedule.
pub fn restarted(config: GroupConfig, index: usize, disk: &Disk) -> Group {
    let mut group = Group::restore(config, node(index), stored(disk), NOW, 1);
    let (applied, epoch) = (group.state().applied, group.state().epoch);
    for other in (0..MEMBERS).filter(|other| *other != index) {
        let vouch = Message::Vouch(Vouch::silent(applied, epoch));
        group.on_message(Sender { node: node(other), epoch }, vouch);
    }
    assert!(!group.is_recovering(), "every other member has answered");
    group
}

/// Question of a client, asked in the order of its list. Each addition is a bit of its own, so a sum shows which additions took
/// effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Adds this bit.
    Add(i64),
    /// Reads the sum.
    Read,
}

impl Ask {
    /// Returns the operation of this question, the `number`th, for a member in its run `run` and under this ballot.
    pub fn operation(self, number: u64, index: usize, run: u64, ballot: Option<TermBallot>) -> ClientOperation {
        ClientOperation {
            attempt: number,
            ballot,
            run,
            serial: number + 1,
            retired_below: 0,
            retired_except: Vec::new(),
            id: OpId::Origin { node: node(index), run, sequence: number },
            horizon: 1,
            patience_ms: 1_000,
            key: key(),
            op: match self {
                Ask::Add(bit) => Op::Add(bit),
                Ask::Read => Op::Read(Read::Value),
            },
            mode: ReadMode::Linearizable,
        }
    }
}

/// The questions so far, with their answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Asked(Vec<Question>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Question {
    /// All bits that had been answered before this question was asked.
    before: i64,
    /// The sum in the answer.
    answer: Option<i64>,
}

impl Asked {
    /// Returns the number of questions.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the answer of each question; `None` while a question has none.
    pub fn answers(&self) -> impl Iterator<Item = Option<i64>> {
        self.0.iter().map(|question| question.answer)
    }

    /// Adds the next question.
    pub fn ask(&mut self) {
        let before = self.answers().flatten().fold(0, |all, sum| all | sum);
        self.0.push(Question { before, answer: None });
    }

    /// Records an answer. One order must explain all answers, and in this order no question comes before an answer that was
    /// there before the question.
    ///
    /// # Errors
    /// Returns a description where no such order exists; the answer is recorded all the same.
    pub fn answered(&mut self, number: usize, answer: &Answer) -> Result<(), String> {
        let sum = match answer {
            Answer::Integer(sum) => *sum,
            Answer::Value(None) => 0,
            Answer::Value(Some(value)) => sum_of(value),
            _ => return Ok(()),
        };
        let before = self.0[number].before;
        let other = self.answers().flatten().find(|other| sum & other != sum && sum & other != *other);
        self.0[number].answer = Some(sum);
        if sum & before != before {
            return Err(format!("question {number} is answered {sum:#b}, and {before:#b} was there before it"));
        }
        other.map_or(Ok(()), |other| Err(format!("one question is answered {other:#b}, another {sum:#b}")))
    }
}

/// Returns the sum in a record's value.
pub fn sum_of(value: &[u8]) -> i64 {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).expect("a sum")
}
