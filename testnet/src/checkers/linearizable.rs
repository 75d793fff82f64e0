//! Whether the operations on one key have an order in which each could have been answered as it was (I4).
//!
//! Just-in-time linearization (Wing and Gong; Lowe, "Testing for linearizability"): the search walks through the
//! history and keeps every *configuration*, a state together with the operations that were given their place early. Nothing
//! is given a place before some answer needs it. Two configurations that differ only in operations with unknown outcome
//! are one: whoever has used fewer of them can do all that the other can. Keys are independent of each other, so each is
//! searched alone.

use std::collections::BTreeMap;

use group::op::Op;
use group::time::Time;

use super::calls::{CallOf, calls_of};
use super::evidence::{Evidence, Growth, Trust};
use super::model::{Call, Limits, State};
use crate::history::Operation;

/// So many configurations are looked at for one key; after that the search has failed to decide.
pub const EFFORT_MAX: u64 = 3_000_000;

/// So many operations of one key may be open at once.
const OPEN_MAX: usize = 128;

/// Whether the first call, of unknown outcome, must not come behind the second, which was answered.
pub type Settles<'a> = dyn Fn(&CallOf<'_>, &CallOf<'_>) -> bool + 'a;

/// What came of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order.
    Linearizable,
    /// There is none; the text shows where the search ended.
    Impossible(String),
    /// The search gave up. That is a failure, too: of the checker.
    Undecided(String),
}

/// Searches an order of one key's operations. `settles` tells, for an operation with unknown outcome and another one
/// that was answered, whether the first must not come behind the second.
///
/// Operations of unknown outcome make the search wide, and few of them matter. So it is tried with those whose effect
/// was seen in some answer first, then with those that leave nothing to see, then with all: an order found with fewer is
/// an order.
pub fn search(operations: &[&Operation], settles: &Settles<'_>, limits: &Limits) -> Verdict {
    let calls = calls_of(operations);
    let evidence = Evidence::of(&calls);
    let mut verdict = Verdict::Linearizable;
    let mut tried = None;
    for least in [Trust::Seen, Trust::Invisible, Trust::Unseen] {
        let chosen: Vec<bool> =
            calls.iter().map(|call| call.completed.is_some() || evidence.trust(call) <= least).collect();
        if tried.as_ref() == Some(&chosen) {
            continue;
        }
        verdict = Search::new(&calls, &evidence, limits).run(settles, &chosen);
        if !matches!(verdict, Verdict::Impossible(_)) {
            return verdict;
        }
        tried = Some(chosen);
    }
    verdict
}

/// What happens to the search at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Return(usize),
    /// Something behind which this operation of unknown outcome must not come has its place by now.
    Close(usize),
    Invoke(usize),
}

/// Operations that have been given their place although their answer was still to come, by slot.
type Slots = u128;

/// For each state and set of answered operations: the smallest sets of unanswered ones that lead there.
#[derive(Clone, Debug, Default)]
struct Configurations(BTreeMap<(State, Slots), Vec<Slots>>);

impl Configurations {
    /// Adds one unless there is a better one; whether it is new.
    fn insert(&mut self, state: State, answered: Slots, unknown: Slots) -> bool {
        let sets = self.0.entry((state, answered)).or_default();
        if sets.iter().any(|set| set & !unknown == 0) {
            return false;
        }
        sets.retain(|set| unknown & !set != 0);
        sets.push(unknown);
        true
    }

    fn iter(&self) -> impl Iterator<Item = (&State, Slots, Slots)> {
        self.0.iter().flat_map(|((state, answered), sets)| sets.iter().map(move |unknown| (state, *answered, *unknown)))
    }
}

/// Configurations that are still to be looked at, those with the fewest unanswered operations first: a way that uses more
/// of them to the same end then comes second, and is not followed again.
#[derive(Clone, Debug, Default)]
struct Waiting(Vec<Vec<(State, Slots, Slots)>>);

impl Waiting {
    fn push(&mut self, state: State, answered: Slots, unknown: Slots) {
        let used = unknown.count_ones() as usize;
        if self.0.len() <= used {
            self.0.resize_with(used + 1, Vec::new);
        }
        self.0[used].push((state, answered, unknown));
    }

    fn pop(&mut self) -> Option<(State, Slots, Slots)> {
        self.0.iter_mut().find_map(Vec::pop)
    }
}

struct Search<'a> {
    calls: &'a [CallOf<'a>],
    evidence: &'a Evidence,
    limits: &'a Limits,
    /// Open operations, by slot.
    open: Vec<Option<usize>>,
    slot: Vec<usize>,
    /// Those of unknown outcome that cannot be told from each other are of one kind.
    kind: Vec<Option<usize>>,
    /// For each operation of unknown outcome, those that it must not come behind; and the other way round.
    settled_by: Vec<Vec<usize>>,
    settling: Vec<Vec<usize>>,
    now: Configurations,
    effort: u64,
}

impl<'a> Search<'a> {
    fn new(calls: &'a [CallOf<'a>], evidence: &'a Evidence, limits: &'a Limits) -> Search<'a> {
        let mut now = Configurations::default();
        now.insert(State::default(), 0, 0);
        let none = vec![Vec::new(); calls.len()];
        Search {
            calls,
            evidence,
            limits,
            open: Vec::new(),
            slot: vec![usize::MAX; calls.len()],
            kind: evidence.kinds(calls),
            settled_by: none.clone(),
            settling: none,
            now,
            effort: 0,
        }
    }

    fn run(mut self, settles: &Settles<'_>, chosen: &[bool]) -> Verdict {
        for step in self.steps(settles, chosen) {
            match step {
                Step::Invoke(index) => {
                    let Some(slot) = self.free_slot() else {
                        return Verdict::Undecided(format!("more than {OPEN_MAX} operations are open at once"));
                    };
                    self.open[slot] = Some(index);
                    self.slot[index] = slot;
                }
                Step::Close(index) => self.close(index),
                Step::Return(index) => {
                    let Some(next) = self.take_place(index) else {
                        let story = self.story(index);
                        return Verdict::Undecided(format!("{} configurations were not enough; {story}", self.effort));
                    };
                    if next.0.is_empty() {
                        return Verdict::Impossible(self.story(index));
                    }
                    self.now = next;
                    self.open[self.slot[index]] = None;
                }
            }
        }
        Verdict::Linearizable
    }

    /// All that happens, in order.
    fn steps(&mut self, settles: &Settles<'_>, chosen: &[bool]) -> impl Iterator<Item = Step> + use<> {
        let mut steps = Vec::new();
        for (index, call) in self.calls.iter().enumerate().filter(|(index, _)| chosen[*index]) {
            steps.push((call.invoked, Step::Invoke(index)));
            if let Some(completed) = call.completed {
                steps.push((completed, Step::Return(index)));
                continue;
            }
            let settling =
                self.calls.iter().enumerate().filter(|(_, other)| other.completed.is_some() && settles(call, other));
            self.settled_by[index] = settling.map(|(other, _)| other).collect();
            for &other in &self.settled_by[index] {
                self.settling[other].push(index);
            }
            let first = self.settled_by[index].iter().filter_map(|other| self.calls[*other].completed).min();
            steps.extend(first.map(|completed| (completed, Step::Close(index))));
        }
        steps.sort_unstable();
        steps.into_iter().map(|(_, step)| step)
    }

    fn free_slot(&mut self) -> Option<usize> {
        if let Some(free) = self.open.iter().position(Option::is_none) {
            return Some(free);
        }
        (self.open.len() < OPEN_MAX).then(|| {
            self.open.push(None);
            self.open.len() - 1
        })
    }

    fn close(&mut self, index: usize) {
        let slot = self.slot[index];
        self.open[slot] = None;
        let before = std::mem::take(&mut self.now);
        for (state, answered, unknown) in before.iter() {
            self.now.insert(state.clone(), answered, unknown & !(1 << slot));
        }
    }

    /// Every configuration in which the operation has its place, at the moment of its answer; `None` if the effort is
    /// too great.
    fn take_place(&mut self, index: usize) -> Option<Configurations> {
        let bit: Slots = 1 << self.slot[index];
        let mut found = Configurations::default();
        let mut seen = Configurations::default();
        let mut waiting = Waiting::default();
        self.now.iter().for_each(|(state, answered, unknown)| waiting.push(state.clone(), answered, unknown));
        let growth = Growth::of(self.open.iter().flatten().map(|open| self.calls[*open].op));
        while let Some((state, answered, unknown)) = waiting.pop() {
            self.effort += 1;
            if self.effort > EFFORT_MAX {
                return None;
            }
            let answered = self.absorb(&state, answered, unknown);
            if answered & bit != 0 {
                found.insert(state, answered & !bit, unknown);
                continue;
            }
            if !seen.insert(state.clone(), answered, unknown) {
                continue;
            }
            if self.evidence.out_of_reach(growth, &state, &self.calls[index]) {
                continue;
            }
            let summands = self.evidence.summands(&state, self.worth_a_place(answered, unknown));
            for slot in 0..self.open.len() {
                let Some(open) = self.open[slot] else { continue };
                let mark: Slots = 1 << slot;
                if (answered | unknown) & mark != 0
                    || self.is_idle_summand(open, summands)
                    || !self.may_come_next(open, answered, unknown)
                    || self.has_better_twin(open, unknown)
                {
                    continue;
                }
                let call = &self.calls[open];
                for next in state.after(&self.call(open), self.limits) {
                    if self.evidence.rules_out(&next) {
                        continue;
                    }
                    if call.completed.is_some() {
                        waiting.push(next, answered | mark, unknown);
                    } else if next != state {
                        waiting.push(next, answered, unknown | mark);
                    }
                }
            }
        }
        Some(found)
    }

    /// Gives a place to every open operation that fits the state as it is, and that can never change one: nothing is
    /// lost by it. (Of one that could, its later use would be lost; and so would be operations that must not come behind
    /// it.) It might have found the key expired instead; but whoever needs that, because it finds the key absent, was
    /// evaluated late enough to find so by itself.
    fn absorb(&self, state: &State, mut answered: Slots, unknown: Slots) -> Slots {
        for (slot, open) in self.open.iter().enumerate() {
            let Some(open) = *open else { continue };
            let call = &self.calls[open];
            if answered & (1 << slot) == 0
                && call.is_inert()
                && call.predecessor.is_none_or(|before| self.has_place(before, answered, unknown))
                && self.settling[open].iter().all(|before| self.has_place(*before, answered, unknown))
                && state.after(&self.call(open), self.limits).iter().any(|next| next == state)
            {
                answered |= 1 << slot;
            }
        }
        answered
    }

    /// Operations of one connection keep their order, and nothing comes behind what settles it.
    fn may_come_next(&self, open: usize, answered: Slots, unknown: Slots) -> bool {
        let call = &self.calls[open];
        let behind = call.predecessor.is_none_or(|before| self.has_place(before, answered, unknown));
        let mut ahead = call.successors.iter().chain(&self.settled_by[open]);
        behind && ahead.all(|after| !self.has_place(*after, answered, unknown))
    }

    /// Whether another open operation of unknown outcome does the same and must be done sooner: then that one goes first.
    fn has_better_twin(&self, index: usize, unknown: Slots) -> bool {
        let Some(kind) = self.kind[index] else { return false };
        let is_twin = |other: usize| {
            let (a, b) = (self.settled_by[index].len(), self.settled_by[other].len());
            // What settles one is the end of all reads from some moment on.
            self.kind[other] == Some(kind) && (b > a || (b == a && other < index))
        };
        (0..self.open.len()).any(|slot| unknown & (1 << slot) == 0 && self.open[slot].is_some_and(is_twin))
    }

    /// Open operations without a place: those that were answered, and those of the others that may have one next.
    fn worth_a_place(&self, answered: Slots, unknown: Slots) -> impl Iterator<Item = &CallOf<'a>> {
        let open = (0..self.open.len()).filter(move |slot| (answered | unknown) & (1 << slot) == 0);
        open.filter_map(|slot| self.open[slot])
            .filter(move |index| {
                self.calls[*index].completed.is_some() || self.may_come_next(*index, answered, unknown)
            })
            .map(|index| &self.calls[index])
    }

    fn is_idle_summand(&self, index: usize, summands: i64) -> bool {
        let call = &self.calls[index];
        matches!(call.op, Op::Add(delta) if call.completed.is_none() && delta & summands == 0)
    }

    fn has_place(&self, index: usize, answered: Slots, unknown: Slots) -> bool {
        let slot = self.slot[index];
        if slot == usize::MAX {
            return false;
        }
        if self.open[slot] != Some(index) {
            return true;
        }
        (answered | unknown) & (1 << slot) != 0
    }

    fn call(&self, index: usize) -> Call<'a> {
        let call = &self.calls[index];
        Call {
            op: call.op,
            answer: call.answer,
            from: call.invoked_at,
            until: call.completed_at.unwrap_or(Time::NEVER),
        }
    }

    /// Where the search ended, for a person.
    fn story(&self, index: usize) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        let _ = writeln!(text, "no order explains\n  {}", self.calls[index]);
        let _ = writeln!(text, "beside these, whose place was open:");
        for open in self.open.iter().flatten().filter(|open| **open != index) {
            let _ = writeln!(text, "  {}", self.calls[*open]);
        }
        let _ = writeln!(text, "where the key could be, {} states:", self.now.0.len());
        for (state, answered, unknown) in self.now.iter().take(8) {
            let _ = writeln!(text, "  {state:?} with {answered:b} and {unknown:b} in place");
        }
        let _ = writeln!(text, "after these, the last ones before it:");
        let before: Vec<_> = self
            .calls
            .iter()
            .filter(|call| call.completed.is_some_and(|c| c < self.calls[index].completed.unwrap_or(0)))
            .collect();
        for call in before.iter().rev().take(12).rev() {
            let _ = writeln!(text, "  {call}");
        }
        text
    }
}

#[cfg(test)]
#[path = "linearizable_test.rs"]
mod tests;
