//! Rules of a small world, and the events that a search met.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Rule that is left out; `main.rs` has the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A switch begins anew under its former id.
    OldId,
    /// A number is taken even if it comes too late.
    LateTaken,
    /// Numbers of a switch other than the entered one are taken.
    OtherTaken,
    /// Replicas execute chosen writes around gaps.
    GapsExecuted,
    /// Replicas answer without a check of the read's point.
    PointUnchecked,
    /// A replica is told a point with a mark that is before some write up to that point.
    ToldEarly,
    /// A write that is numbered again is complete at once.
    AgainCompleted,
    /// A write that is numbered again is dropped, together with its number.
    AgainForgotten,
    /// The primary takes writes of a new switch while replicas hold grants for the old one.
    NotForsworn,
    /// Replicas compare numbers of different handles.
    AnyId,
    /// A new primary waits for the old one's lease, and not for its grants.
    GrantsForgotten,
    /// A new primary checks that grants are over while more can be given.
    LeaseForgotten,
    /// A primary gives grants when its lease is over.
    NoLease,
    /// A primary writes around a switch for which grants are alive.
    Around,
    /// A write whose number was let go of still counts as numbered.
    LetGoCounts,
    /// A new primary chooses writes that it took over while grants of the old one may be alive.
    InheritedEarly,
    /// Neither grants nor pairs cover the writes that did not pass the switch.
    FloorForgotten,
    /// Replicas execute writes that are not chosen.
    Ahead,
    /// A switch forwards a write for which it has no room.
    Untracked,
    /// A switch clears an object at any completion.
    LowerClears,
    /// A switch takes the last completion for the highest.
    PointLowered,
    /// A switch sends reads to replicas before any write is complete under its id.
    NoneComplete,
}

/// Way in which writes get their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Clients send writes through a switch (`Harmonia §5`); the primary takes them in the order of their numbers.
    Clients,
    /// The primary gives each write a place in the log, proposes it, and passes it through a switch meanwhile.
    Primary,
}

/// Time at which the switch is told that everything up to a point is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Complete {
    /// When the primary has taken the writes.
    Taken,
    /// When the writes are chosen.
    Chosen,
    /// When all replicas have executed the writes.
    Executed,
}

/// Kind of switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The real pipeline, with this many stages of this many slots.
    Real(usize, u32),
    /// Algorithm 1, with room for this many objects.
    Dull(usize),
}

/// Small world.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Way in which writes get their numbers.
    pub route: Route,
    /// Rules that are left out.
    pub defects: &'static [Defect],
    /// Time at which the switch is told of completions.
    pub complete: Complete,
    /// Kind of switch.
    pub kind: Kind,
    /// Object of each of the two keys.
    pub objects: [u32; 2],
    /// Key of each write.
    pub writes: &'static [usize],
    /// Number of times that writes pass switches in all: beyond once for each, they are asked for or delivered again.
    pub passes: u8,
    /// A second switch comes, with an id of its own and empty registers; the first continues as well.
    pub second: bool,
    /// Number of writes that may go around the switch.
    pub around: u8,
    /// The primary may let go of the numbers of writes that are not chosen.
    pub lets_go: bool,
    /// Another member may become primary, in a second term.
    pub succession: bool,
    /// Number of members that choose a write, the primary included.
    pub quorum: u32,
    /// Number of reads that may be on their way at once.
    pub readers: usize,
}

impl Rules {
    /// Returns whether this rule is left out.
    pub fn lacks(&self, defect: Defect) -> bool {
        self.defects.contains(&defect)
    }
}

/// Event that a search should meet; otherwise it shows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Met {
    /// A replica that is not the primary answered.
    Fast,
    /// A read of a dirty object went to the primary.
    Dirty,
    /// A replica that had not executed enough passed a read to the primary.
    Behind,
    /// A replica without a grant for that switch, no longer or not yet, passed a read to the primary.
    NotGranted,
    /// A replica answered under the second switch's id.
    SecondSwitch,
    /// A replica answered under the second primary.
    SecondTerm,
    /// A switch had no room for a write.
    Full,
    /// A number came too late.
    Void,
    /// A write was numbered again.
    Again,
    /// A number was let go of.
    LetGo,
    /// A replica had executed enough of the numbered writes, but not all that had not passed the switch.
    Floor,
    /// A new primary chose a write that the old one had proposed.
    Inherited,
    /// No step was left.
    Rest,
}

impl Met {
    const ALL: [Met; 13] = [
        Met::Fast,
        Met::Dirty,
        Met::Behind,
        Met::NotGranted,
        Met::SecondSwitch,
        Met::SecondTerm,
        Met::Full,
        Met::Void,
        Met::Again,
        Met::LetGo,
        Met::Floor,
        Met::Inherited,
        Met::Rest,
    ];
}

/// Events that a search has met so far.
#[derive(Debug, Default)]
pub struct Marks([AtomicBool; Met::ALL.len()]);

impl Marks {
    /// Records an event.
    pub fn meet(&self, met: Met) {
        self.0[met as usize].store(true, Relaxed);
    }

    /// Returns all events that were met.
    pub fn met(&self) -> Vec<Met> {
        Met::ALL.into_iter().filter(|met| self.0[*met as usize].load(Relaxed)).collect()
    }
}
