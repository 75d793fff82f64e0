//! Group: primaries with their logs, and members that accept and execute (the protocol of `main.rs`).

use crate::rules::{Complete, Defect, Marks, Met, Route, Rules};
use crate::switches::{Handle, primary_of};

/// Number of members, of which one is primary.
pub const MEMBERS: usize = 3;

/// Positions of a log, as bits.
pub type Positions = u8;

/// Returns the number of positions from the first without a gap.
pub fn prefix(positions: Positions) -> u8 {
    positions.trailing_ones() as u8
}

/// Place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub write: u8,
    /// Id of the switch that numbered the write, and the number; `None` if the write has not come back from a switch.
    pub number: Option<(u8, u8)>,
}

/// Pair that a primary tells about a switch's numbers: a replica that has executed everything before the mark has executed
/// everything up to the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Told {
    pub switch: u8,
    pub mark: u8,
    pub point: u8,
}

/// Primary of one term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Primary {
    pub term: u8,
    pub log: Vec<Entry>,
    /// Length of the part of the log that comes from an older term.
    pub base: u8,
    pub chosen: Positions,
    /// The primary takes new writes.
    pub serves: bool,
    /// The primary may give grants: no member has begun to wait for the lease's end, or it is not over.
    pub lease: bool,
    /// Id of the switch that all writes pass; `None` if they pass no switch.
    pub entered: Option<u8>,
    /// Highest id that the primary ever entered.
    pub last: u8,
    /// Highest number that came back.
    pub highest: u8,
    /// Numbers up to this one are void.
    pub void: u8,
    /// Everything up to this number is complete.
    pub point: u8,
    /// Places below this one need not pass the switch: they were in the log when its id was entered.
    pub direct: u8,
    /// Floor that grants carry.
    pub floor: u8,
    pub told: Vec<Told>,
}

/// Member of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Member {
    /// Highest term that the member promised.
    pub promised: u8,
    /// Positions that the member has accepted in each term.
    pub accepted: [Positions; 2],
    pub executed: Positions,
    /// Handle under which the member may answer reads, and the part of the log that it must have executed for that.
    pub grant: Option<(Handle, u8)>,
}

impl Primary {
    pub fn new(term: u8, log: Vec<Entry>) -> Primary {
        Primary {
            term,
            base: log.len() as u8,
            log,
            chosen: 0,
            serves: false,
            lease: true,
            entered: None,
            last: 0,
            highest: 0,
            void: 0,
            point: 0,
            direct: 0,
            floor: 0,
            told: Vec::new(),
        }
    }

    /// Returns the member that is this primary.
    pub fn member(&self) -> usize {
        primary_of(self.term)
    }

    pub fn handle(&self, switch: u8) -> Handle {
        Handle { term: self.term, switch }
    }

    pub fn place_of(&self, write: u8) -> Option<usize> {
        self.log.iter().position(|entry| entry.write == write)
    }

    /// Returns whether the primary may take the write at this place for chosen, if a quorum has it.
    pub fn has_passed(&self, rules: &Rules, place: u8) -> bool {
        let Some(entered) = self.entered.filter(|_| rules.route == Route::Primary) else { return true };
        let is_numbered = self.log[usize::from(place)].number.is_some_and(|(of, _)| of == entered);
        is_numbered || place < self.direct || rules.lacks(Defect::Around)
    }

    /// Lets go of all numbers of writes that are not chosen. Returns the point that is complete now.
    pub fn let_go(&mut self, rules: &Rules, marks: &Marks) -> Option<u8> {
        let switch = self.entered?;
        let done = prefix(self.chosen);
        let open =
            self.log.iter_mut().skip(done.into()).filter(|entry| entry.number.is_some_and(|(of, _)| of == switch));
        let open: Vec<&mut Entry> = open.collect();
        if open.is_empty() || done < self.direct {
            return None;
        }
        marks.meet(Met::LetGo);
        if !rules.lacks(Defect::LetGoCounts) {
            open.into_iter().for_each(|entry| entry.number = None);
        }
        (self.void, self.point) = (self.highest, self.highest);
        self.told.push(Told { switch, mark: done, point: self.point });
        Some(self.point)
    }

    /// Has all writes pass this switch from now on.
    pub fn enter(&mut self, rules: &Rules, switch: u8) {
        self.entered = Some(switch);
        if switch > self.last {
            (self.last, self.highest, self.void, self.point) = (switch, 0, 0, 0);
        }
        self.direct = self.log.len() as u8;
        self.floor = if rules.lacks(Defect::FloorForgotten) { 0 } else { self.direct };
    }

    /// Takes a write with a number. Returns the point that is complete now, as [`Primary::complete`] does.
    pub fn take(&mut self, rules: &Rules, marks: &Marks, handle: Handle, number: u8, write: u8) -> Option<u8> {
        let switch = self.entered.filter(|_| self.serves)?;
        if switch != handle.switch && !rules.lacks(Defect::OtherTaken) {
            return None;
        }
        if number <= self.void && !rules.lacks(Defect::LateTaken) {
            marks.meet(Met::Void);
            return None;
        }
        let place = self.place_of(write);
        let waits = |place: usize| self.log[place].number.is_none() && place >= self.direct.into();
        let is_again = place.is_some_and(|place| rules.route == Route::Clients || !waits(place));
        if is_again {
            marks.meet(Met::Again);
            if rules.lacks(Defect::AgainForgotten) {
                return None;
            }
        }
        self.highest = self.highest.max(number);
        if !is_again {
            let entry = Entry { write, number: Some((switch, number)) };
            match place {
                Some(place) => self.log[place] = entry,
                None => self.log.push(entry),
            }
        }
        if is_again && rules.lacks(Defect::AgainCompleted) {
            self.told.push(Told { switch, mark: prefix(self.chosen), point: number });
            self.point = self.point.max(number);
            return Some(number);
        }
        if rules.route == Route::Clients {
            self.void = self.highest;
            let early = rules.lacks(Defect::ToldEarly);
            let mark = if early { prefix(self.chosen) } else { self.log.len() as u8 };
            self.told.push(Told { switch, mark, point: number });
            if early || rules.complete == Complete::Taken {
                self.point = number;
                return Some(number);
            }
        }
        None
    }

    /// Moves the point as far as possible; returns it if it has moved, so that the switch is told. All replicas have executed the
    /// places before `executed`.
    pub fn complete(&mut self, rules: &Rules, executed: u8) -> Option<u8> {
        let switch = self.entered?;
        let done = if rules.complete == Complete::Executed { executed } else { prefix(self.chosen) };
        let point = match rules.route {
            Route::Clients => {
                let told = self.told.iter().filter(|told| told.switch == switch && told.mark <= done);
                told.map(|told| told.point).max()?
            }
            Route::Primary => {
                if done < self.floor {
                    return None;
                }
                let open = self.log.iter().skip(done.into()).filter_map(|entry| entry.number);
                let open = open.filter(|(of, _)| *of == switch).map(|(_, number)| number).min();
                open.filter(|_| !rules.lacks(Defect::ToldEarly)).map_or(self.highest, |open| open - 1)
            }
        };
        if point <= self.point {
            return None;
        }
        self.point = point;
        if rules.route == Route::Primary {
            self.void = point;
            self.told.push(Told { switch, mark: done, point });
        }
        Some(point)
    }

    /// Returns the point that a replica with this much of the log executed has executed.
    pub fn executed_point(&self, switch: u8, executed: u8) -> u8 {
        let told = self.told.iter().filter(|told| told.switch == switch && told.mark <= executed);
        told.map(|told| told.point).max().unwrap_or(0)
    }
}
