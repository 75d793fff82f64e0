//! The whole small world, and the effect of each step.
//!
//! Each message stays on its way: it may arrive at any time, again and again, or never. So a step is only taken if it changes the
//! world, and losses need no steps of their own.

mod steps;

use crate::group::{Entry, MEMBERS, Member, Positions, Primary, prefix};
use crate::rules::{Complete, Defect, Marks, Met, Route, Rules};
use crate::switches::{Handle, Switch, Way, primary_of};

pub use steps::Step;

/// Write on its way from a switch to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Numbered {
    handle: Handle,
    number: u8,
    write: u8,
}

/// Read on its way from a switch to a replica. The replica is selected when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reading {
    key: usize,
    handle: Handle,
    point: u8,
    /// Place after the last write of the key that was answered, or seen by a read, before this read began.
    before: u8,
}

/// State of the small world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    switches: Vec<Switch>,
    primaries: Vec<Primary>,
    members: [Member; MEMBERS],
    began_second: bool,
    passed: u8,
    around: u8,
    /// Sorted, as are the lists below.
    numbered: Vec<Numbered>,
    completions: Vec<(Handle, u8)>,
    reading: Vec<Reading>,
    /// For each key, the place after its last write that was answered, or seen by a read.
    seen: [u8; 2],
    /// A read was answered with less than had been answered before it began.
    pub wrong: bool,
}

/// Inserts an element unless it is there.
fn put<T: Ord>(all: &mut Vec<T>, one: T) {
    if let Err(place) = all.binary_search(&one) {
        all.insert(place, one);
    }
}

impl World {
    /// Returns a world with one switch, whose id the primary has entered, and for which all replicas hold grants.
    pub fn new(rules: &Rules) -> World {
        let first = Handle { term: 1, switch: 1 };
        let mut primary = Primary::new(1, Vec::new());
        primary.serves = true;
        let mut world = World {
            switches: vec![Switch::new(rules, first)],
            primaries: vec![primary],
            members: Default::default(),
            began_second: false,
            passed: 0,
            around: 0,
            numbered: Vec::new(),
            completions: Vec::new(),
            reading: Vec::new(),
            seen: [0; 2],
            wrong: false,
        };
        world.members.iter_mut().for_each(|member| member.promised = 1);
        world.enter(rules, 1, 1);
        world
    }

    fn primary(&self, term: u8) -> &Primary {
        &self.primaries[usize::from(term) - 1]
    }

    fn primary_mut(&mut self, term: u8) -> &mut Primary {
        &mut self.primaries[usize::from(term) - 1]
    }

    fn key(rules: &Rules, write: u8) -> usize {
        rules.writes[usize::from(write)]
    }

    fn promised(&self, term: u8) -> usize {
        self.members.iter().filter(|member| member.promised >= term).count()
    }

    fn is_granted(&self, term: u8) -> bool {
        self.members.iter().any(|member| member.grant.is_some_and(|(handle, _)| handle.term == term))
    }

    /// Takes a step, if it can be taken.
    pub fn take(&mut self, rules: &Rules, marks: &Marks, step: Step) {
        match step {
            Step::Second => self.second(rules),
            Step::Set(switch) => self.switches[switch].set(rules, 2),
            Step::Place(term, write) => {
                self.primary_mut(term).log.push(Entry { write, number: None });
            }
            Step::Pass(switch, write) => self.pass(rules, marks, switch, write),
            Step::Around(term, write) => self.write_around(term, write),
            Step::Take(Numbered { handle, number, write }) => {
                let done = self.primary_mut(handle.term).take(rules, marks, handle, number, write);
                let entered = self.primary(handle.term).entered;
                self.completed(Handle { switch: entered.unwrap_or(0), ..handle }, done);
                self.complete(rules, handle.term);
            }
            Step::LetGo(term) => {
                let primary = self.primary_mut(term);
                let done = primary.let_go(rules, marks);
                let handle = primary.handle(primary.entered.unwrap_or(0));
                self.completed(handle, done);
            }
            Step::Accept(member, term, place) => self.accept(member, term, place),
            Step::Choose(term, place) => self.choose(rules, marks, term, place),
            Step::Execute(member, place) => self.execute(rules, member, place),
            Step::Complete(switch, (handle, number)) => {
                let of = self.numbered.iter().find(|numbered| (numbered.handle, numbered.number) == (handle, number));
                let object = of.map_or(0, |numbered| rules.objects[World::key(rules, numbered.write)]);
                self.switches[switch].complete(rules, handle, number, object);
            }
            Step::Read(switch, key) => match self.switches[switch].read(rules, rules.objects[key]) {
                Way::Primary => {
                    marks.meet(Met::Dirty);
                    self.ask_primary(rules, key, self.seen[key]);
                }
                Way::Fast(point) => {
                    let (handle, before) = (self.switches[switch].handle(), self.seen[key]);
                    self.reading.push(Reading { key, handle, point, before });
                    self.reading.sort_unstable();
                }
            },
            Step::Answer(reading, member) => self.answer(rules, marks, reading, member),
            Step::End(member) => self.members[member].grant = None,
            Step::Give(term, member) => self.give(rules, term, member),
            Step::Enter(term, switch) => self.enter(rules, term, switch),
            Step::Leave(term) => {
                self.primary_mut(term).entered = None;
                self.around += u8::from(rules.route == Route::Primary);
            }
            Step::Promise(member) => self.promise(member),
            Step::Succeed => self.succeed(),
            Step::LeaseOver => self.primaries[0].lease = false,
            Step::Serve => {
                let is_over = self.may_choose(2) || rules.lacks(Defect::LeaseForgotten);
                if is_over && (!self.is_granted(1) || rules.lacks(Defect::GrantsForgotten)) {
                    self.primaries[1].serves = true;
                }
            }
        }
    }

    fn second(&mut self, rules: &Rules) {
        self.began_second = true;
        if rules.lacks(Defect::OldId) {
            self.switches[0] = Switch::new(rules, self.switches[0].handle());
        } else {
            let mut second = Switch::new(rules, Handle { term: 1, switch: 2 });
            second.set(rules, self.primaries.len() as u8);
            self.switches.push(second);
        }
    }

    fn pass(&mut self, rules: &Rules, marks: &Marks, switch: usize, write: u8) {
        let switch = &mut self.switches[switch];
        match switch.write(rules, rules.objects[World::key(rules, write)]) {
            None => marks.meet(Met::Full),
            Some(number) => {
                put(&mut self.numbered, Numbered { handle: switch.handle(), number, write });
                self.passed += 1;
            }
        }
    }

    fn write_around(&mut self, term: u8, write: u8) {
        let primary = self.primary_mut(term);
        if primary.place_of(write).is_none() {
            primary.log.push(Entry { write, number: None });
            self.around += 1;
        }
    }

    /// Tells the switch of a point.
    fn completed(&mut self, handle: Handle, point: Option<u8>) {
        if let Some(point) = point {
            put(&mut self.completions, (handle, point));
        }
    }

    fn complete(&mut self, rules: &Rules, term: u8) {
        let of_term = self.members.iter().enumerate().filter(|(member, _)| *member != primary_of(term));
        let executed = of_term.map(|(_, member)| prefix(member.executed)).min().unwrap_or(0);
        let primary = self.primary_mut(term);
        let Some(switch) = primary.entered else { return };
        let done = primary.complete(rules, executed);
        let handle = primary.handle(switch);
        self.completed(handle, done);
    }

    fn accept(&mut self, index: usize, term: u8, place: u8) {
        let (primary, member) = (self.primary(term), &self.members[index]);
        if index == primary.member() || member.promised > term || usize::from(place) >= primary.log.len() {
            return;
        }
        // Writes that were taken over are accepted together.
        let all = if place < primary.base { (1 << primary.base) - 1 } else { 1 << place };
        self.members[index].accepted[usize::from(term) - 1] |= all;
        if term == 2 {
            self.promise(index);
        }
    }

    fn choose(&mut self, rules: &Rules, marks: &Marks, term: u8, place: u8) {
        let primary = self.primary(term);
        let (bit, of_term) = (1 << place, usize::from(term) - 1);
        let others = self.members.iter().filter(|member| member.accepted[of_term] & bit > 0).count() as u32;
        let has = usize::from(place) < primary.log.len();
        if !has || others + 1 < rules.quorum || primary.chosen & bit > 0 || !self.may_choose(term) {
            return;
        }
        // A write that was taken over may not be dirty in the switch through which the old primary passed it.
        let is_early = term == 2 && rules.route == Route::Primary && self.is_granted(1);
        let forgets = rules.lacks(Defect::InheritedEarly) || rules.lacks(Defect::GrantsForgotten);
        if !primary.has_passed(rules, place) || (is_early && !forgets) {
            return;
        }
        if place < primary.base {
            marks.meet(Met::Inherited);
        }
        let (key, member) = (World::key(rules, primary.log[usize::from(place)].write), primary.member());
        self.primary_mut(term).chosen |= bit;
        self.members[member].executed |= bit;
        // The writer has its answer at once: so every read that begins now must see the write.
        self.seen[key] = self.seen[key].max(place + 1);
        self.complete(rules, term);
    }

    fn execute(&mut self, rules: &Rules, index: usize, place: u8) {
        let (bit, member) = (1 << place, &self.members[index]);
        let may = |primary: &Primary| {
            let is_chosen = primary.chosen & bit > 0 || rules.lacks(Defect::Ahead);
            is_chosen && member.accepted[usize::from(primary.term) - 1] & bit > 0
        };
        if self.primaries.iter().any(may) {
            self.members[index].executed |= bit;
            if rules.complete == Complete::Executed {
                self.complete(rules, self.primaries.len() as u8);
            }
        }
    }

    fn answer(&mut self, rules: &Rules, marks: &Marks, reading: Reading, index: usize) {
        let place = self.reading.iter().position(|other| *other == reading).expect("it is on its way");
        self.reading.remove(place);
        let (member, Reading { key, handle, point, before }) = (&self.members[index], reading);
        let any_order = rules.lacks(Defect::GapsExecuted);
        let executed = if any_order { 8 - member.executed.leading_zeros() as u8 } else { prefix(member.executed) };
        let (executed_point, floor) = if rules.lacks(Defect::AnyId) {
            let all = self.primaries.iter().flat_map(|primary| [1, 2].map(|id| primary.executed_point(id, executed)));
            (all.max().unwrap_or(0), 0)
        } else {
            let Some((_, floor)) = member.grant.filter(|(granted, _)| *granted == handle) else {
                marks.meet(Met::NotGranted);
                return self.ask_primary(rules, key, before);
            };
            (self.primary(handle.term).executed_point(handle.switch, executed), floor)
        };
        if executed_point < point && !rules.lacks(Defect::PointUnchecked) {
            marks.meet(Met::Behind);
            return self.ask_primary(rules, key, before);
        }
        if executed < floor {
            marks.meet(Met::Floor);
            return self.ask_primary(rules, key, before);
        }
        marks.meet(Met::Fast);
        if handle.switch == 2 {
            marks.meet(Met::SecondSwitch);
        }
        if handle.term == 2 {
            marks.meet(Met::SecondTerm);
        }
        let answer = self.last_of(rules, member.executed, key);
        self.wrong |= answer < before;
        self.seen[key] = self.seen[key].max(answer);
    }

    /// Returns the place after the last write of a key among these places, which are chosen but for a defect.
    fn last_of(&self, rules: &Rules, places: Positions, key: usize) -> u8 {
        let entry = |place: u8| {
            let chosen = self.primaries.iter().find(|primary| primary.chosen & (1 << place) > 0);
            chosen.unwrap_or(&self.primaries[0]).log[usize::from(place)]
        };
        let of_key = |place: &u8| places & (1 << place) > 0 && World::key(rules, entry(*place).write) == key;
        (0..8).filter(of_key).map(|place| place + 1).max().unwrap_or(0)
    }

    /// A primary answers from chosen writes, at once, if the group's own protocol permits.
    fn ask_primary(&mut self, rules: &Rules, key: usize, before: u8) {
        for primary in &self.primaries {
            let may = if primary.term == 1 { primary.lease } else { self.may_choose(2) };
            if may && prefix(primary.chosen) >= primary.base {
                self.wrong |= self.last_of(rules, primary.chosen, key) < before;
            }
        }
    }

    /// The second primary takes no write for chosen while the first one may answer by its lease.
    fn may_choose(&self, term: u8) -> bool {
        term == 1 || !self.primaries[0].lease
    }

    fn give(&mut self, rules: &Rules, term: u8, member: usize) {
        let primary = self.primary(term);
        let Some(switch) = primary.entered else { return };
        // The grant rests on a member's confirmation, which may precede a higher promise.
        let may = primary.lease || rules.lacks(Defect::NoLease);
        if may && member != primary.member() && self.members[member].promised >= term {
            self.members[member].grant = Some((primary.handle(switch), primary.floor));
        }
    }

    fn enter(&mut self, rules: &Rules, term: u8, switch: u8) {
        self.primary_mut(term).enter(rules, switch);
        for member in 0..MEMBERS {
            // Only with a defect a member may still have a grant.
            if self.members[member].grant.is_none() {
                self.give(rules, term, member);
            }
        }
        self.complete(rules, term);
    }

    /// A promise does not end the grants that the member gave before.
    fn promise(&mut self, member: usize) {
        self.members[member].promised = 2;
        if member == primary_of(1) {
            (self.primaries[0].serves, self.primaries[0].lease) = (false, false);
        }
    }

    fn succeed(&mut self) {
        let old = &self.primaries[0];
        let accepted = self.members.iter().enumerate().filter(|(_, member)| member.promised == 2);
        let accepted =
            accepted.map(
                |(index, member)| {
                    if index == old.member() { old.log.len() as u8 } else { prefix(member.accepted[0]) }
                },
            );
        let longest = usize::from(accepted.max().unwrap_or(0));
        let log = old.log[..longest].iter().map(|entry| Entry { number: None, ..*entry }).collect();
        let mut new = Primary::new(2, log);
        new.chosen = self.members[new.member()].executed;
        self.primaries.push(new);
    }

    /// Returns whether no step is left, and yet an object is dirty, or a replica does not answer.
    pub fn is_stuck(&self, rules: &Rules, marks: &Marks) -> bool {
        let primary = self.primaries.last().expect("there is one");
        let all = primary.log.len() as u8;
        let executed = self.members.iter().map(|member| prefix(member.executed)).min();
        let is_done = primary.serves && prefix(primary.chosen) == all && executed == Some(all);
        let Some(entered) = primary.entered.filter(|_| is_done) else { return false };
        let handle = primary.handle(entered);
        let Some(switch) = self.switches.iter().find(|switch| switch.handle() == handle) else { return false };
        let still = |step: Step| {
            let mut next = self.clone();
            next.take(rules, &Marks::default(), step);
            next == *self
        };
        let at = self.switches.iter().position(|other| other == switch).expect("just found");
        let mut taken = self.numbered.iter().filter(|numbered| numbered.handle == handle).peekable();
        let mut completions = self.completions.iter().filter(|(of, _)| *of == handle);
        if taken.peek().is_none()
            || !taken.all(|numbered| still(Step::Take(*numbered)))
            || !completions.all(|completion| still(Step::Complete(at, *completion)))
        {
            return false;
        }
        marks.meet(Met::Rest);
        rules.objects.into_iter().any(|object| match switch.clone().read(rules, object) {
            Way::Primary => true,
            Way::Fast(point) => primary.executed_point(entered, all) < point,
        })
    }
}
