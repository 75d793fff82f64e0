//! Observations of a real node's logs: their resulting states, transactions, and places in the ring.

use group::Group;
use group::control::state::{Entry, GroupState};
use group::transaction::plan::Plan;
use group::transaction::state::TransactionEntry;
use group::transaction::{Outcome, TransactionId, Vote};
use group::watched::{Applied, Watched};
use overlay::GroupRef;

use crate::checkers::invariants::{Place, TransactionStep};
use crate::checkers::{Observation, Scope};
use crate::sim::trace::WordHasher;

/// Shows the entries that were applied since the last call, and the state that results.
pub fn show_log(group: &Group, watched: &Watched, scope: Scope, show: &mut dyn FnMut(Observation)) {
    for applied in &watched.applied {
        show_state(&applied.after, show);
        show_steps(applied, show);
        show_place(&applied.after, show);
    }
    if watched.moved || scope == Scope::All && group.is_durable() {
        let state = group.state();
        show_state(state, show);
        for decision in state.transactions.decided() {
            show(committed(state, decision.id, &decision.plan));
        }
        show(Observation::Locks(state.transactions.locks(state.range).collect()));
        show_place(state, show);
    }
}

fn show_state(state: &GroupState, show: &mut dyn FnMut(Observation)) {
    let hash = WordHasher::hash_of(state);
    show(Observation::ControlChosen { group: state.id, born: state.born, slot: state.applied.0, hash });
}

/// Shows the steps that an entry made in transactions: by the states before and after, since entries may be void.
fn show_steps(applied: &Applied, show: &mut dyn FnMut(Observation)) {
    let Applied { before, entry, after } = applied;
    let (old, new) = (&before.transactions, &after.transactions);
    let mut say = |id, step| show(Observation::Transaction { group: before.id, id, step });
    if let Entry::Transaction(TransactionEntry::Asked(id, _)) = entry
        && old.vote(*id).is_none()
        && let Some(vote) = new.vote(*id)
    {
        say(*id, if vote == Vote::Yes { TransactionStep::Agreed } else { TransactionStep::Refused });
    }
    let is_kept = |id| new.decided().iter().any(|decision| decision.id == id);
    if let Some((id, plan)) = old.coordinates()
        && new.coordinates().is_none_or(|(open, _)| open != id)
    {
        say(id, if is_kept(id) { TransactionStep::Committed { asked: asked(plan) } } else { TransactionStep::Aborted });
    }
    for (id, plan) in old.voted().filter(|(id, _)| !new.voted().any(|(open, _)| open == *id)) {
        let commit = matches!(entry, Entry::Transaction(TransactionEntry::Decided(of, Outcome::Commit) | TransactionEntry::Ending(of)) if *of == id);
        say(id, if commit { TransactionStep::Committed { asked: asked(plan) } } else { TransactionStep::Aborted });
    }
}

fn asked(plan: &Plan) -> Vec<overlay::GroupId> {
    plan.asked().map(|party| party.group.id).collect()
}

fn committed(state: &GroupState, id: TransactionId, plan: &Plan) -> Observation {
    Observation::Transaction { group: state.id, id, step: TransactionStep::Committed { asked: asked(plan) } }
}

/// Shows a group's present or former place in the ring.
pub fn show_place(state: &GroupState, show: &mut dyn FnMut(Observation)) {
    show(Observation::Place(place(state)));
}

fn place(state: &GroupState) -> Place {
    let transactions = &state.transactions;
    let beside = |link: Option<&GroupRef>| link.map_or(state.id, |group| group.id);
    let known = state.losses.iter().flat_map(|loss| loss.groups.iter().copied());
    Place {
        group: state.id,
        born: state.born,
        applied: state.applied,
        range: state.range,
        ended: state.ended.is_some(),
        open: !transactions.is_calm(),
        before: beside(transactions.predecessor()),
        behind: beside(transactions.successor()),
        retired: transactions.retired().collect(),
        lost: known.collect(),
        at_stake: transactions.coordinates().map_or_else(Vec::new, |(_, plan)| plan.lost().to_vec()),
    }
}
