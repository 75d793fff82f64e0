//! All steps that the world can take.

use super::{Numbered, Reading, World};
use crate::group::{MEMBERS, Positions, Primary, prefix};
use crate::rules::{Defect, Route, Rules};
use crate::switches::{Handle, Switch, primary_of};

/// Step of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A second switch starts.
    Second,
    /// A controller tells a switch of the new term.
    Set(usize),
    /// The primary of a term places a write in its log.
    Place(u8, u8),
    /// A write passes a switch.
    Pass(usize, u8),
    /// The primary writes without a switch.
    Around(u8, u8),
    /// A write that passed a switch arrives at the primary.
    Take(Numbered),
    /// A member accepts the write at a place of a term's log.
    Accept(usize, u8, u8),
    /// A primary sees that this place is chosen, and answers.
    Choose(u8, u8),
    /// A replica executes the write at a place.
    Execute(usize, u8),
    /// A completion passes a switch.
    Complete(usize, (Handle, u8)),
    /// A client's read passes a switch.
    Read(usize, usize),
    /// A read arrives at a replica.
    Answer(Reading, usize),
    /// A member's grant is over: the member has forsworn it, or it has run out.
    End(usize),
    /// A primary grants a member the right to answer.
    Give(u8, usize),
    /// A primary has all writes pass the switch with this id.
    Enter(u8, u8),
    /// A primary has writes pass no switch.
    Leave(u8),
    /// A primary lets go of the numbers of writes that are not chosen.
    LetGo(u8),
    /// A member promises the second term.
    Promise(usize),
    /// The second primary has the promises of a majority, with the writes that these members have accepted.
    Succeed,
    /// The first primary's lease has run out, and no member renews it.
    LeaseOver,
    /// The second primary takes writes of its own.
    Serve,
}

impl World {
    /// Returns all steps that may change the world.
    pub fn steps(&self, rules: &Rules, steps: &mut Vec<Step>) {
        if self.wrong {
            return;
        }
        if rules.second && !self.began_second {
            steps.push(Step::Second);
        }
        for (index, switch) in self.switches.iter().enumerate() {
            self.steps_of_switch(rules, index, switch, steps);
        }
        steps.extend(self.numbered.iter().map(|numbered| Step::Take(*numbered)));
        for primary in &self.primaries {
            self.steps_of_primary(rules, primary, steps);
        }
        for member in 0..MEMBERS {
            self.steps_of_member(rules, member, steps);
        }
        for reading in &self.reading {
            let replicas = (0..MEMBERS).filter(|member| *member != primary_of(reading.handle.term));
            steps.extend(replicas.map(|member| Step::Answer(*reading, member)));
        }
        if self.primaries.len() == 2 {
            steps.extend([Step::LeaseOver, Step::Serve]);
        } else if rules.succession && self.members[1].promised == 2 && self.promised(2) >= 2 {
            steps.push(Step::Succeed);
        }
    }

    fn steps_of_switch(&self, rules: &Rules, index: usize, switch: &Switch, steps: &mut Vec<Step>) {
        if usize::from(switch.handle().term) < self.primaries.len() {
            steps.push(Step::Set(index));
        }
        if self.passed < rules.passes {
            for write in 0..rules.writes.len() as u8 {
                let may = match rules.route {
                    Route::Primary => self.primary(switch.handle().term).place_of(write).is_some(),
                    Route::Clients => self.comes_next(rules, write),
                };
                if may {
                    steps.push(Step::Pass(index, write));
                }
            }
        }
        steps.extend(self.completions.iter().map(|completion| Step::Complete(index, *completion)));
        if self.reading.len() < rules.readers {
            steps.extend([Step::Read(index, 0), Step::Read(index, 1)]);
        }
    }

    /// Writes of one key differ only in their order: so they begin in the order of their indexes.
    fn comes_next(&self, rules: &Rules, write: u8) -> bool {
        let began = |other: u8| {
            let passed = self.numbered.iter().any(|numbered| numbered.write == other);
            passed || self.primaries.iter().any(|primary| primary.place_of(other).is_some())
        };
        (0..write).all(|other| World::key(rules, other) != World::key(rules, write) || began(other))
    }

    fn steps_of_primary(&self, rules: &Rules, primary: &Primary, steps: &mut Vec<Step>) {
        let term = primary.term;
        let any_order = rules.lacks(Defect::GapsExecuted);
        let next = prefix(primary.chosen);
        let places = if any_order { 0..primary.log.len() as u8 } else { next..next + 1 };
        steps.extend(places.map(|place| Step::Choose(term, place)));
        if !primary.serves {
            return;
        }
        let writes = 0..rules.writes.len() as u8;
        if rules.route == Route::Primary {
            // Writes differ for the primary only in their keys.
            steps.extend(writes.clone().find(|write| primary.place_of(*write).is_none()).map(|w| Step::Place(term, w)));
        }
        let is_direct = primary.entered.is_none() || rules.lacks(Defect::Around);
        if is_direct && self.around < rules.around && rules.route == Route::Clients {
            let may = writes.filter(|write| self.comes_next(rules, *write));
            steps.extend(may.map(|write| Step::Around(term, write)));
        }
        if rules.lets_go {
            steps.push(Step::LetGo(term));
        }
        if !self.is_granted(term) || rules.lacks(Defect::NotForsworn) {
            let ids = self.switches.iter().map(|switch| switch.handle().switch);
            let ids = ids.filter(|id| *id >= primary.last && Some(*id) != primary.entered);
            steps.extend(ids.map(|id| Step::Enter(term, id)));
            if primary.entered.is_some() && self.around < rules.around {
                steps.push(Step::Leave(term));
            }
        }
        if primary.lease && (rules.succession || rules.lacks(Defect::NotForsworn)) {
            steps.extend((0..MEMBERS).map(|member| Step::Give(term, member)));
        }
    }

    fn steps_of_member(&self, rules: &Rules, index: usize, steps: &mut Vec<Step>) {
        let member = &self.members[index];
        let any_order = rules.lacks(Defect::GapsExecuted);
        let places = |done: Positions| if any_order { 0..8 } else { prefix(done)..prefix(done) + 1 };
        for primary in &self.primaries {
            let accepted = member.accepted[usize::from(primary.term) - 1];
            steps.extend(places(accepted).map(|place| Step::Accept(index, primary.term, place)));
        }
        steps.extend(places(member.executed).map(|place| Step::Execute(index, place)));
        if rules.succession && member.promised == 1 {
            steps.push(Step::Promise(index));
        }
        let Some((handle, _)) = member.grant else { return };
        let is_old = self.promised(2) > 0 && handle.term == 1;
        let newest = self.switches.iter().map(|switch| switch.handle().switch).max();
        if is_old || Some(handle.switch) < newest || self.around < rules.around {
            steps.push(Step::End(index));
        }
    }
}
