//! Faults of a run and their times: a plan that is drawn from a seed before the run, so that the plan can be cut down afterwards.

mod strike;
mod survival;
mod undo;

use std::time::Duration;

use overlay::time::Time;

use crate::rng::Rng;
use crate::sim::network::Noise;

pub(super) use undo::ActiveFaults;

/// Machine that a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The machine with this index.
    Host(usize),
    /// The machine that was last seen to serve as a primary.
    Primary,
    /// The machine that leads a group now.
    Leader,
}

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The process dies and comes back with its store, which may lack unsynced data.
    Crash(Target),
    /// The process dies, and its store is gone when it comes back. Left out where the group could not survive the loss.
    Lose(Target),
    /// All processes die at once, and come back with their stores.
    CrashAll,
    /// The process dies in the middle of a write: its store holds a part of the last write. No node can tell whether that write was
    /// acknowledged.
    Tear(Target),
    /// All processes die at once, each in the middle of a write.
    TearAll,
    /// The process dies, and the data that it synced last, right before its death, is damaged. Left out where the group could not
    /// survive the damage.
    Flip(Target),
    /// The process is asked to stop and comes back later.
    Stop(Target),
    /// The process is asked to leave its group for good, and comes back later as a newcomer.
    Leave(Target),
    /// This member ends its group's epoch, whether it leads or not.
    StopEpoch(Target),
    /// The leader of the group begins a transaction that reforms the group, if it can.
    Reform(Target, u64),
    /// The administrator declares the predecessor of this machine's group lost, with all its data.
    Repair(Target),
    /// The process freezes while time passes; arriving frames wait.
    Pause(Target),
    /// The machine sleeps: frozen, and its awake clock stands still.
    Suspend(Target),
    /// No frame gets to the machine or from it.
    Isolate(Target),
    /// No frame gets to the machine.
    Deafen(Target),
    /// No frame gets from the machine.
    Mute(Target),
    /// The network splits: the machines whose bits are set and the remaining ones do not hear each other.
    Split(u64),
    /// These two machines do not hear each other; all other machines hear both.
    Triangle(usize, usize),
    /// One direction stalls, then delivers all frames.
    Clog(usize, usize),
    /// The connection between the two machines breaks; it may be made anew at once.
    Reset(usize, usize),
    /// Frames are lost, doubled and reordered.
    Noise(Noise),
    /// Of the frames to and from this machine, this many in 1,000 are lost.
    Lossy(Target, u32),
    /// All machines take this many times as long for each input; see [`crate::sim::Scenario::service_time`].
    Slow(u32),
    /// The wall clock jumps by this many milliseconds, and back at the end.
    WallJump(Target, i64),
    /// The disk is nearly full.
    DiskLow(Target),
    /// The store fails at the n-th call from now on.
    StoreFails(Target, u64),
    /// The switch in use, or the other switch, loses its registers and tables.
    SwitchRestart {
        /// The other switch, not the one in use.
        other: bool,
    },
    /// The other switch is in use from now on: at first for the machines whose bits are set, and at the end for all.
    SwitchReplace {
        /// Bits of the machines that use the other switch at once.
        moved: u64,
    },
    /// No packet passes the switch in use.
    SwitchCut,
    /// No controller sets tables of switches.
    Unattended,
}

/// One fault of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Start of the fault, since the start of the run.
    pub at: Duration,
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Duration of the fault.
    pub lasts: Duration,
}

impl Fault {
    /// Returns whether the fault keeps frames back that arrive later.
    fn stalls(&self) -> bool {
        !matches!(
            self.kind,
            FaultKind::Reset(..)
                | FaultKind::WallJump(..)
                | FaultKind::DiskLow(_)
                | FaultKind::StoreFails(..)
                | FaultKind::StopEpoch(_)
                | FaultKind::Reform(..)
                | FaultKind::Repair(_)
        )
    }
}

/// Kinds of faults that a run has, each with its share (swarm testing: most runs have few kinds).
#[derive(Clone, Debug, Default)]
pub struct Mix {
    kinds: Vec<(Draw, u64)>,
}

/// Draws one fault for this number of machines.
pub type Draw = fn(&mut Rng, usize) -> FaultKind;

/// All kinds that can be drawn, with their weights.
const KINDS: [(Draw, u64); 17] = [
    (|rng, n| FaultKind::Crash(target(rng, n)), 6),
    (|rng, n| FaultKind::Lose(target(rng, n)), 3),
    (|_, _| FaultKind::CrashAll, 1),
    (|rng, n| FaultKind::Stop(target(rng, n)), 2),
    (|rng, n| FaultKind::Pause(target(rng, n)), 5),
    (|rng, n| FaultKind::Suspend(target(rng, n)), 2),
    (|rng, n| FaultKind::Isolate(target(rng, n)), 4),
    (|rng, n| FaultKind::Deafen(target(rng, n)), 3),
    (|rng, n| FaultKind::Mute(target(rng, n)), 3),
    (|rng, n| FaultKind::Split(rng.below(1 << n.min(63))), 3),
    (|rng, n| FaultKind::Triangle(rng.below(n as u64) as usize, rng.below(n as u64) as usize), 3),
    (|rng, n| FaultKind::Clog(rng.below(n as u64) as usize, rng.below(n as u64) as usize), 6),
    (|rng, n| FaultKind::Reset(rng.below(n as u64) as usize, rng.below(n as u64) as usize), 3),
    (
        |rng, _| {
            let mut rate = |max| if rng.per_mille(500) { rng.below(max) as u32 } else { 0 };
            FaultKind::Noise(Noise { loss: rate(200), duplication: rate(200), reordering: rate(300) })
        },
        5,
    ),
    (
        |rng, n| {
            const DAY: u64 = 86_400_000;
            FaultKind::WallJump(target(rng, n), rng.below(2 * DAY) as i64 - DAY as i64)
        },
        3,
    ),
    (|rng, n| FaultKind::DiskLow(target(rng, n)), 2),
    (|rng, n| FaultKind::StoreFails(target(rng, n), rng.below(20)), 2),
];

/// Faults at the end of a journal, with their weights.
const TAILS: [(Draw, u64); 4] = [
    (|rng, n| FaultKind::Tear(target(rng, n)), 6),
    (|_, _| FaultKind::TearAll, 3),
    (|rng, n| FaultKind::Flip(target(rng, n)), 12),
    (|_, _| FaultKind::Flip(Target::Leader), 4),
];

/// Faults of switches, with their weights.
const SWITCHES: [(Draw, u64); 4] = [
    (|rng, _| FaultKind::SwitchRestart { other: rng.per_mille(200) }, 6),
    (|rng, _| FaultKind::SwitchReplace { moved: rng.bits() & rng.bits() }, 4),
    (|_, _| FaultKind::SwitchCut, 2),
    (|_, _| FaultKind::Unattended, 2),
];

/// Faults that change a group's members, beside faults of all kinds; with their weights.
const CHURN: [(Draw, u64); 6] = [
    (|rng, n| FaultKind::Leave(host(rng, n)), 10),
    (|rng, n| FaultKind::Lose(host(rng, n)), 6),
    (|_, _| FaultKind::Crash(Target::Leader), 8),
    (|_, _| FaultKind::Isolate(Target::Leader), 5),
    (|_, _| FaultKind::Pause(Target::Leader), 5),
    (|rng, n| FaultKind::StopEpoch(host(rng, n)), 6),
];

fn host(rng: &mut Rng, n: usize) -> Target {
    Target::Host(rng.below(n as u64) as usize)
}

/// Draws a machine: half of the time the one that serves as a primary.
pub fn target(rng: &mut Rng, n: usize) -> Target {
    if rng.per_mille(500) { Target::Primary } else { Target::Host(rng.below(n as u64) as usize) }
}

/// Speed at which faults follow each other, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Time before the first fault of most runs.
    quiet_ms: u64,
    /// Choices for half of the longest time between two faults.
    gaps_ms: [u64; 4],
    /// Choices for the longest duration of one fault.
    longest_ms: [u64; 3],
}

impl Pace {
    /// Pace of a run of minutes.
    pub(crate) const USUAL: Pace =
        Pace { quiet_ms: 5_000, gaps_ms: [400, 1_000, 2_500, 6_000], longest_ms: [800, 3_000, 8_000] };
    /// Pace of a run of seconds.
    pub(crate) const QUICK: Pace =
        Pace { quiet_ms: 2_500, gaps_ms: [150, 300, 700, 1_500], longest_ms: [400, 1_200, 4_000] };
}

impl Mix {
    /// Returns a mix of these kinds alone, with their shares.
    pub fn of(kinds: &[(Draw, u64)]) -> Mix {
        Mix { kinds: kinds.to_vec() }
    }

    /// Draws the kinds that a run has.
    pub(crate) fn draw(rng: &mut Rng) -> Mix {
        // A run without any fault is worth having, too.
        if rng.per_mille(30) {
            return Mix::default();
        }
        let share = *rng.pick(&[150, 300, 600, 1000]);
        Mix { kinds: KINDS.into_iter().filter(|_| rng.per_mille(share)).collect() }
    }

    /// Draws a mix in which members come and go all the time; in some runs other faults occur as well.
    pub fn churn(rng: &mut Rng) -> Mix {
        let mut mix = if rng.per_mille(400) { Mix::default() } else { Mix::draw(rng) };
        mix.kinds.extend(CHURN.into_iter().filter(|_| rng.per_mille(700)));
        mix
    }

    /// Returns the faults at ends of journals alone.
    pub(crate) fn tails() -> Mix {
        Mix { kinds: TAILS.to_vec() }
    }

    /// Draws faults of switches alone; in some runs there are none.
    pub fn switches(rng: &mut Rng) -> Mix {
        let share = *rng.pick(&[0, 300, 600, 1_000]);
        Mix { kinds: SWITCHES.into_iter().filter(|_| rng.per_mille(share)).collect() }
    }

    /// Draws a mix in which groups are reformed all the time; in many runs other faults occur as well.
    pub fn reform(rng: &mut Rng) -> Mix {
        let mut mix = if rng.per_mille(500) { Mix::default() } else { Mix::churn(rng) };
        let weight = mix.kinds.iter().map(|(_, weight)| weight).sum::<u64>().max(20);
        mix.kinds.push((|rng, n| FaultKind::Reform(host(rng, n), rng.below(u64::MAX)), weight));
        mix
    }

    /// Draws a plan for `n` machines and a duration.
    pub fn plan(&self, rng: &mut Rng, n: usize, time: Duration) -> Vec<Fault> {
        self.plan_at(rng, n, time, &Pace::USUAL)
    }

    /// Draws a plan for `n` machines and a duration, at a pace.
    pub(crate) fn plan_at(&self, rng: &mut Rng, n: usize, time: Duration, pace: &Pace) -> Vec<Fault> {
        let mut plan = Vec::new();
        let total: u64 = self.kinds.iter().map(|(_, weight)| weight).sum();
        if total == 0 {
            return plan;
        }
        let gap = *rng.pick(&pace.gaps_ms);
        let longest = *rng.pick(&pace.longest_ms);
        // In most runs no fault strikes before the network has had time to start; in some runs faults strike while it starts.
        let mut at = Duration::from_millis(if rng.per_mille(800) { pace.quiet_ms } else { 10 });
        while at < time {
            let mut drawn = rng.below(total);
            let (draw, _) = self
                .kinds
                .iter()
                .find(|(_, weight)| {
                    let found = drawn < *weight;
                    drawn = drawn.saturating_sub(*weight);
                    found
                })
                .expect("drawn below the sum");
            let kind = draw(rng, n);
            let lasts = Duration::from_millis(rng.between(5, longest)).min(time - at);
            plan.push(Fault { at, kind, lasts });
            at += Duration::from_millis(rng.between(1, 2 * gap));
        }
        plan
    }
}

/// Returns the periods in which frames may have been kept back, joined where they touch. A frame sent within one of them may arrive
/// at its end.
pub fn stalls(plan: &[Fault]) -> Vec<(Time, Time)> {
    /// Time for restarts, retries and the way itself.
    const MARGIN: Duration = Duration::from_secs(2);
    let mut joined: Vec<(Time, Time)> = Vec::new();
    for fault in plan.iter().filter(|fault| fault.stalls()) {
        let from = Time(0) + fault.at;
        let to = from + fault.lasts + MARGIN;
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_join_where_they_touch() {
        let fault = |at, lasts, kind| Fault { at: Duration::from_secs(at), kind, lasts: Duration::from_secs(lasts) };
        let plan = [
            fault(1, 2, FaultKind::Clog(0, 1)),
            fault(3, 1, FaultKind::Pause(Target::Primary)),
            fault(6, 1, FaultKind::DiskLow(Target::Primary)),
            fault(9, 1, FaultKind::Isolate(Target::Host(1))),
        ];
        let seconds = |s: u64| Time(s * 1_000_000_000);
        assert_eq!(stalls(&plan), [(seconds(1), seconds(6)), (seconds(9), seconds(12))]);
    }

    #[test]
    fn plans_repeat_and_stay_in_their_time() {
        for seed in 0..50 {
            let plan = || {
                let mut rng = Rng::new(seed, "faults");
                Mix::draw(&mut rng).plan(&mut rng, 3, Duration::from_secs(30))
            };
            assert_eq!(plan(), plan());
            assert!(plan().iter().all(|fault| fault.at + fault.lasts <= Duration::from_secs(30)));
        }
    }
}
