//! What may happen in a small world, which rules hold in it, and what was come by.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A rule that is left out: which one, is in `main.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A switch begins anew under the id that it had.
    OldId,
    /// A number is taken, however late it comes.
    LateTaken,
    /// Numbers of another switch than the entered one are taken.
    OtherTaken,
    /// Replicas execute what is chosen around gaps.
    GapsExecuted,
    /// Replicas answer whatever the read's point.
    PointUnchecked,
    /// Replicas are told that a point goes with a position that is before some write up to that point.
    ToldEarly,
    /// What is numbered again is complete at once.
    AgainCompleted,
    /// What is numbered again is dropped, and its number with it.
    AgainForgotten,
    /// The primary takes writes of a new switch while others are granted the old one.
    NotForsworn,
    /// Replicas compare numbers, whosever they are.
    AnyId,
    /// A new primary waits for the old one's lease, and not for what that had granted.
    GrantsForgotten,
    /// A new primary looks whether grants are over, while more can be given.
    LeaseForgotten,
    /// A primary gives grants when its lease is over.
    NoLease,
    /// A primary writes around a switch that is granted.
    Around,
    /// A write whose number was let go of counts as numbered.
    LetGoCounts,
    /// A new primary chooses what it took over while grants of the old one may be alive.
    InheritedEarly,
    /// Nobody asks what did not pass the switch.
    FloorForgotten,
    /// Replicas execute what is not chosen.
    Ahead,
    /// A switch for which there is no room lets a write go on.
    Untracked,
    /// A switch clears an object by whatever completion.
    LowerClears,
    /// A switch takes the last completion for the highest.
    PointLowered,
    /// A switch sends reads to replicas before anything is complete under its id.
    NoneComplete,
}

/// How writes come to have numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Clients send them through a switch (`Harmonia §5`); the primary takes them in the order of their numbers.
    Clients,
    /// The primary has its place in the log for each, proposes it, and passes it through a switch meanwhile.
    Primary,
}

/// When the switch is told that what is up to a point is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Complete {
    /// As soon as the primary has taken it.
    Taken,
    /// As soon as it is chosen.
    Chosen,
    /// As soon as all have executed it.
    Executed,
}

/// Which switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The real one, with so many stages of so many slots.
    Real(usize, u32),
    /// Algorithm 1, with room for so many objects.
    Dull(usize),
}

/// A small world.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How writes come to have numbers.
    pub route: Route,
    /// What is left out.
    pub defects: &'static [Defect],
    /// When the switch is told.
    pub complete: Complete,
    /// Which switch it is.
    pub kind: Kind,
    /// By what the switch knows each of the two keys.
    pub objects: [u32; 2],
    /// The key of each write.
    pub writes: &'static [usize],
    /// Writes pass switches so often in all: beyond once each they are asked for, or delivered, again.
    pub passes: u8,
    /// A second switch comes, with an id of its own and empty registers; the first goes on as well.
    pub second: bool,
    /// So many writes may go around the switch.
    pub around: u8,
    /// The primary may let go of the numbers of what is not chosen.
    pub lets_go: bool,
    /// Another member may become primary, in a second term.
    pub succession: bool,
    /// So many members choose a write, the primary among them.
    pub quorum: u32,
    /// So many reads may be on their way at once.
    pub readers: usize,
}

impl Rules {
    /// Whether this rule is left out.
    pub fn lacks(&self, defect: Defect) -> bool {
        self.defects.contains(&defect)
    }
}

/// What a search should come by, or it shows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Met {
    /// A replica that is not the primary answered.
    Fast,
    /// An object that is written sent a read to the primary.
    Dirty,
    /// A replica that had not executed enough sent one there.
    Behind,
    /// A replica that was not granted that switch, any more or yet, sent one there.
    NotGranted,
    /// A replica answered under the second switch's id.
    SecondSwitch,
    /// A replica answered under the second primary.
    SecondTerm,
    /// There was no room for a write in a switch.
    Full,
    /// A number came too late.
    Void,
    /// A write was numbered again.
    Again,
    /// A number was let go of.
    LetGo,
    /// A replica had executed enough, but not what had not passed the switch.
    Floor,
    /// A new primary chose what the old one had proposed.
    Inherited,
    /// Nothing was left to be done.
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

/// What a search has come by so far.
#[derive(Debug, Default)]
pub struct Marks([AtomicBool; Met::ALL.len()]);

impl Marks {
    /// This was come by.
    pub fn meet(&self, met: Met) {
        self.0[met as usize].store(true, Relaxed);
    }

    /// All that was come by.
    pub fn met(&self) -> Vec<Met> {
        Met::ALL.into_iter().filter(|met| self.0[*met as usize].load(Relaxed)).collect()
    }
}
