//! Search for an order of the operations on one key in which each could have been answered as it was (I4).
//!
//! Just-in-time linearization (Wing and Gong; Lowe, "Testing for linearizability"): the search walks through the history, from
//! answer to answer, with *configurations*: a state together with the operations that were given their place early. No operation is
//! given a place before some answer needs it. Two configurations that differ only in operations with unknown outcome count as one:
//! the one that has used fewer of them can do all that the other can. Keys are independent of each other, so each is searched
//! alone.
//!
//! A good history mostly has many orders, and one is enough. So the search first goes deep, on from the first configuration that it
//! finds for each answer. If that fails, the search goes wide, with all configurations from answer to answer: only a wide search
//! can prove that there is no order.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use group::op::Op;
use overlay::time::Time;

use super::calls::{CallOf, calls_of};
use super::evidence::{Evidence, Growth, Trust};
use super::model::{Call, Limits, ModelState};
use crate::history::Operation;

/// Number of configurations after which the search for one key ends undecided.
pub const EFFORT_MAX: u64 = 3_000_000;

/// Number of configurations that are examined in depth before that.
const DEEP_EFFORT_MAX: u64 = 100_000;

/// Upper limit of one key's operations that are open at once.
const OPEN_MAX: usize = 128;

/// Function that tells whether the first call, of unknown outcome, must not come behind the second, which was answered.
pub type Settles<'a> = dyn Fn(&CallOf<'_>, &CallOf<'_>) -> bool + 'a;

/// Result of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchResult {
    /// There is an order.
    Linearizable,
    /// There is none; the text shows where the search ended.
    Impossible(String),
    /// The search found neither an order nor a proof that there is none. That is a failure, too: of the checker.
    Undecided(String),
}

/// Searches an order of one key's operations. `settles` tells, for an operation with unknown outcome and another one that was
/// answered, whether the first must not come behind the second.
///
/// Operations of unknown outcome make the search wide, and few of them matter. So the search first tries those whose effect was
/// seen in some answer, then also those without a visible effect, then all. An order found with fewer operations is an order.
pub fn search(operations: &[&Operation], settles: &Settles<'_>, limits: &Limits) -> SearchResult {
    let calls = calls_of(operations);
    let evidence = Evidence::of(&calls);
    let mut verdict = SearchResult::Linearizable;
    let mut tried = None;
    for least in [Trust::Seen, Trust::Invisible, Trust::Unseen] {
        let chosen: Vec<bool> =
            calls.iter().map(|call| call.completed.is_some() || evidence.trust(call) <= least).collect();
        if tried.as_ref() == Some(&chosen) {
            continue;
        }
        let Some(search) = Search::new(&calls, &evidence, limits, settles, &chosen) else {
            return SearchResult::Undecided(format!("more than {OPEN_MAX} operations are open at once"));
        };
        verdict = if search.finds_one() { SearchResult::Linearizable } else { search.all() };
        if !matches!(verdict, SearchResult::Impossible(_)) {
            return verdict;
        }
        tried = Some(chosen);
    }
    verdict
}

/// An event of the search at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SearchStep {
    Return(usize),
    /// An operation behind which this one, of unknown outcome, must not come has its place by now.
    Close(usize),
    Invoke(usize),
}

/// Operations, by slot, that were given their place before their answer.
type SlotSet = u128;

/// For each state and set of answered operations: the smallest sets of unanswered operations that lead there.
#[derive(Clone, Debug, Default)]
struct Configurations(BTreeMap<(ModelState, SlotSet), Vec<SlotSet>>);

impl Configurations {
    /// Adds a configuration unless there is a better one. Returns whether it is new.
    fn insert(&mut self, state: ModelState, answered: SlotSet, unknown: SlotSet) -> bool {
        let sets = self.0.entry((state, answered)).or_default();
        if sets.iter().any(|set| set & !unknown == 0) {
            return false;
        }
        sets.retain(|set| unknown & !set != 0);
        sets.push(unknown);
        true
    }

    fn iter(&self) -> impl Iterator<Item = (&ModelState, SlotSet, SlotSet)> {
        self.0.iter().flat_map(|((state, answered), sets)| sets.iter().map(move |unknown| (state, *answered, *unknown)))
    }
}

/// Configurations to examine, those with the fewest unanswered operations first. A path that uses more of them to the same end then
/// comes second, and is not followed again.
#[derive(Clone, Debug, Default)]
struct Frontier(Vec<Vec<(ModelState, SlotSet, SlotSet)>>);

impl Frontier {
    fn push(&mut self, configuration: (ModelState, SlotSet, SlotSet)) {
        let used = configuration.2.count_ones() as usize;
        if self.0.len() <= used {
            self.0.resize_with(used + 1, Vec::new);
        }
        self.0[used].push(configuration);
    }

    fn pop(&mut self) -> Option<(ModelState, SlotSet, SlotSet)> {
        self.0.iter_mut().find_map(Vec::pop)
    }
}

/// Events up to one answer.
#[derive(Clone, Debug)]
struct Turn {
    /// Operation that was answered.
    index: usize,
    /// Time of the answer.
    at: Time,
    /// Operations that are open then, by slot.
    open: Vec<Option<usize>>,
    /// Slots that were given back since the answer before.
    closed: SlotSet,
}

struct Search<'a> {
    calls: &'a [CallOf<'a>],
    /// The calls' operations, as far as they matter.
    ops: Vec<Cow<'a, Op>>,
    evidence: &'a Evidence,
    limits: &'a Limits,
    /// Time of the last request.
    last: Time,
    /// The answers, in order.
    turns: Vec<Turn>,
    slot: Vec<usize>,
    /// For each operation: the first turn in which it is open, and the first in which it is not any more.
    span: Vec<(usize, usize)>,
    /// Kinds of the calls of unknown outcome: calls that cannot be told from each other are of one kind.
    kind: Vec<Option<usize>>,
    /// For each operation of unknown outcome, those that it must not come behind; and the other way round.
    settled_by: Vec<Vec<usize>>,
    settling: Vec<Vec<usize>>,
}

impl<'a> Search<'a> {
    /// Returns a search over the chosen calls; `None` if too many are open at once.
    fn new(
        calls: &'a [CallOf<'a>],
        evidence: &'a Evidence,
        limits: &'a Limits,
        settles: &Settles<'_>,
        chosen: &[bool],
    ) -> Option<Search<'a>> {
        let none = vec![Vec::new(); calls.len()];
        let ops = evidence.plain(calls);
        let kind = evidence.kinds(calls, &ops);
        let mut search = Search {
            calls,
            ops,
            evidence,
            limits,
            last: calls.iter().map(|call| call.invoked_at).max().unwrap_or_default(),
            turns: Vec::new(),
            slot: vec![usize::MAX; calls.len()],
            span: vec![(usize::MAX, usize::MAX); calls.len()],
            kind,
            settled_by: none.clone(),
            settling: none,
        };
        let steps = search.steps(settles, chosen);
        search.take_turns(steps)?;
        Some(search)
    }

    /// Returns all events, in order.
    fn steps(&mut self, settles: &Settles<'_>, chosen: &[bool]) -> Vec<SearchStep> {
        let mut steps = Vec::new();
        for (index, call) in self.calls.iter().enumerate().filter(|(index, _)| chosen[*index]) {
            steps.push((call.invoked, SearchStep::Invoke(index)));
            if let Some(completed) = call.completed {
                steps.push((completed, SearchStep::Return(index)));
                continue;
            }
            let settling =
                self.calls.iter().enumerate().filter(|(_, other)| other.completed.is_some() && settles(call, other));
            self.settled_by[index] = settling.map(|(other, _)| other).collect();
            for &other in &self.settled_by[index] {
                self.settling[other].push(index);
            }
            let first = self.settled_by[index].iter().filter_map(|other| self.calls[*other].completed).min();
            steps.extend(first.map(|completed| (completed, SearchStep::Close(index))));
        }
        steps.sort_unstable();
        steps.into_iter().map(|(_, step)| step).collect()
    }

    /// Divides the events into turns; `None` if too many operations are open at once.
    fn take_turns(&mut self, steps: Vec<SearchStep>) -> Option<()> {
        let mut open: Vec<Option<usize>> = Vec::new();
        let mut closed = 0;
        for step in steps {
            let turn = self.turns.len();
            match step {
                SearchStep::Invoke(index) => {
                    let slot = open.iter().position(Option::is_none).unwrap_or(open.len());
                    if slot == OPEN_MAX {
                        return None;
                    }
                    open.resize(open.len().max(slot + 1), None);
                    open[slot] = Some(index);
                    self.slot[index] = slot;
                    self.span[index].0 = turn;
                }
                SearchStep::Close(index) => {
                    open[self.slot[index]] = None;
                    closed |= 1 << self.slot[index];
                    self.span[index].1 = turn;
                }
                SearchStep::Return(index) => {
                    let at = self.calls[index].completed_at.unwrap_or_default();
                    self.turns.push(Turn { index, at, open: open.clone(), closed });
                    open[self.slot[index]] = None;
                    closed = 1 << self.slot[index];
                    self.span[index].1 = turn + 1;
                }
            }
        }
        Some(())
    }

    /// Returns whether going on from the first configurations that are found leads through all turns. Configurations of a later
    /// turn come first; within one turn, those with the fewest places given early.
    fn finds_one(&self) -> bool {
        let mut seen = vec![Configurations::default(); self.turns.len()];
        let mut waiting = vec![VecDeque::new(); self.turns.len() + 1];
        waiting[0].push_back((ModelState::default(), 0, 0));
        let mut turn = 0;
        for _ in 0..DEEP_EFFORT_MAX {
            while waiting[turn].is_empty() && turn > 0 {
                turn -= 1;
            }
            let Some((state, answered, unknown)) = waiting[turn].pop_front() else { return false };
            let Some(now) = self.turns.get(turn) else { return true };
            let bit: SlotSet = 1 << self.slot[now.index];
            let answered = self.absorb(turn, &state, answered, unknown);
            if answered & bit != 0 {
                turn += 1;
                waiting[turn].push_back(self.at_turn(turn, &state, answered, unknown));
            } else if seen[turn].insert(state.clone(), answered, unknown) {
                self.each_next(turn, &state, answered, unknown, |next| waiting[turn].push_back(next));
            }
        }
        false
    }

    /// Takes all configurations from turn to turn.
    fn all(&self) -> SearchResult {
        let mut effort = 0;
        let mut configurations = Configurations::default();
        configurations.insert(ModelState::default(), 0, 0);
        for turn in 0..self.turns.len() {
            let before = std::mem::take(&mut configurations);
            for (state, answered, unknown) in before.iter() {
                let (state, answered, unknown) = self.at_turn(turn, state, answered, unknown);
                configurations.insert(state, answered, unknown);
            }
            let Some(next) = self.take_place(turn, &configurations, &mut effort) else {
                let story = self.story(turn, &configurations);
                return SearchResult::Undecided(format!("{effort} configurations were not enough; {story}"));
            };
            if next.0.is_empty() {
                return SearchResult::Impossible(self.story(turn, &configurations));
            }
            configurations = next;
        }
        SearchResult::Linearizable
    }

    /// Returns a configuration as the next turn sees it.
    fn at_turn(
        &self,
        turn: usize,
        state: &ModelState,
        answered: SlotSet,
        unknown: SlotSet,
    ) -> (ModelState, SlotSet, SlotSet) {
        let Some(now) = self.turns.get(turn) else { return (state.clone(), answered, unknown) };
        (state.clone().in_view_of(now.at, self.last), answered & !now.closed, unknown & !now.closed)
    }

    /// Returns all configurations in which the turn's operation has its place; `None` if the effort is too great.
    fn take_place(&self, turn: usize, now: &Configurations, effort: &mut u64) -> Option<Configurations> {
        let bit: SlotSet = 1 << self.slot[self.turns[turn].index];
        let mut found = Configurations::default();
        let mut seen = Configurations::default();
        let mut waiting = Frontier::default();
        now.iter().for_each(|(state, answered, unknown)| waiting.push((state.clone(), answered, unknown)));
        while let Some((state, answered, unknown)) = waiting.pop() {
            *effort += 1;
            if *effort > EFFORT_MAX {
                return None;
            }
            let answered = self.absorb(turn, &state, answered, unknown);
            if answered & bit != 0 {
                found.insert(state, answered, unknown);
            } else if seen.insert(state.clone(), answered, unknown) {
                self.each_next(turn, &state, answered, unknown, |next| waiting.push(next));
            }
        }
        Some(found)
    }

    /// Passes on each configuration that results when one more open operation takes its place.
    fn each_next(
        &self,
        turn: usize,
        state: &ModelState,
        answered: SlotSet,
        unknown: SlotSet,
        mut found: impl FnMut((ModelState, SlotSet, SlotSet)),
    ) {
        let now = &self.turns[turn];
        let growth = Growth::of(now.open.iter().flatten().map(|open| self.calls[*open].op));
        if self.evidence.out_of_reach(growth, state, &self.calls[now.index]) {
            return;
        }
        let summands = self.evidence.summands(state, self.worth_a_place(turn, answered, unknown));
        for (slot, open) in now.open.iter().enumerate() {
            let Some(open) = *open else { continue };
            let mark: SlotSet = 1 << slot;
            if (answered | unknown) & mark != 0
                || self.is_idle_summand(open, summands)
                || !self.may_come_next(turn, open, answered, unknown)
                || self.has_better_twin(turn, open, answered, unknown)
            {
                continue;
            }
            let call = &self.calls[open];
            for next in state.after(&self.call(open), self.limits) {
                if self.evidence.rules_out(&next) {
                    continue;
                }
                let next = next.in_view_of(now.at, self.last);
                if call.completed.is_some() {
                    found((next, answered | mark, unknown));
                } else if next != *state {
                    found((next, answered, unknown | mark));
                }
            }
        }
    }

    /// Gives a place to every open operation that fits the state as it is, and that can never change a state: nothing is lost by
    /// that. (With an operation that could change a state, its later use would be lost; and so would operations that must not come
    /// behind it.) The operation might have found the key expired instead. But a call that needs this, because it finds the key
    /// absent, was evaluated late enough to find so by itself.
    fn absorb(&self, turn: usize, state: &ModelState, mut answered: SlotSet, unknown: SlotSet) -> SlotSet {
        for (slot, open) in self.turns[turn].open.iter().enumerate() {
            let Some(open) = *open else { continue };
            let call = &self.calls[open];
            if answered & (1 << slot) == 0
                && call.is_inert()
                && call.predecessor.is_none_or(|before| self.has_place(turn, before, answered, unknown))
                && self.settling[open].iter().all(|before| self.has_place(turn, *before, answered, unknown))
                && state.after(&self.call(open), self.limits).iter().any(|next| next == state)
            {
                answered |= 1 << slot;
            }
        }
        answered
    }

    /// Returns whether the operation may come next: operations of one connection keep their order, and no operation comes behind
    /// one that settles it.
    fn may_come_next(&self, turn: usize, open: usize, answered: SlotSet, unknown: SlotSet) -> bool {
        let call = &self.calls[open];
        let behind = call.predecessor.is_none_or(|before| self.has_place(turn, before, answered, unknown));
        let mut ahead = call.successors.iter().chain(&self.settled_by[open]);
        behind && ahead.all(|after| !self.has_place(turn, *after, answered, unknown))
    }

    /// Returns whether another open operation of unknown outcome has the same effect, must take its place sooner, and may come
    /// next: then that one goes first.
    fn has_better_twin(&self, turn: usize, index: usize, answered: SlotSet, unknown: SlotSet) -> bool {
        let Some(kind) = self.kind[index] else { return false };
        let is_twin = |other: usize| {
            let (a, b) = (self.settled_by[index].len(), self.settled_by[other].len());
            // An operation is settled by all reads from some moment on.
            self.kind[other] == Some(kind) && (b > a || (b == a && other < index))
        };
        let mut open = self.turns[turn].open.iter().enumerate();
        open.any(|(slot, open)| {
            let is_open =
                |other: &usize| unknown & (1 << slot) == 0 && self.may_come_next(turn, *other, answered, unknown);
            open.filter(is_open).is_some_and(is_twin)
        })
    }

    /// Returns the open operations without a place: the answered ones, and those of unknown outcome that may come next.
    fn worth_a_place(&self, turn: usize, answered: SlotSet, unknown: SlotSet) -> impl Iterator<Item = &CallOf<'a>> {
        let open = self.turns[turn].open.iter().enumerate();
        open.filter(move |(slot, _)| (answered | unknown) & (1 << slot) == 0)
            .filter_map(|(_, open)| *open)
            .filter(move |index| {
                self.calls[*index].completed.is_some() || self.may_come_next(turn, *index, answered, unknown)
            })
            .map(|index| &self.calls[index])
    }

    fn is_idle_summand(&self, index: usize, summands: i64) -> bool {
        let call = &self.calls[index];
        matches!(call.op, Op::Add(delta) if call.completed.is_none() && delta & summands == 0)
    }

    fn has_place(&self, turn: usize, index: usize, answered: SlotSet, unknown: SlotSet) -> bool {
        let (from, to) = self.span[index];
        from <= turn && (turn >= to || (answered | unknown) & (1 << self.slot[index]) != 0)
    }

    fn call(&self, index: usize) -> Call<'_> {
        let call = &self.calls[index];
        Call {
            op: &self.ops[index],
            answer: call.answer,
            from: call.invoked_at,
            until: call.completed_at.unwrap_or(Time::NEVER),
        }
    }

    /// Describes where the search ended, for a person.
    fn story(&self, turn: usize, configurations: &Configurations) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        let index = self.turns[turn].index;
        let _ = writeln!(text, "no order explains\n  {}", self.calls[index]);
        let _ = writeln!(text, "beside these, whose place was open:");
        for open in self.turns[turn].open.iter().flatten().filter(|open| **open != index) {
            let _ = writeln!(text, "  {}", self.calls[*open]);
        }
        let _ = writeln!(text, "where the key could be, {} states:", configurations.0.len());
        for (state, answered, unknown) in configurations.iter().take(8) {
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
