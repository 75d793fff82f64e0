//! The entries of a story: each is told where the first member of its group applies it.

use std::collections::BTreeSet;

use group::control::state::{Entry, GroupState};
use group::transaction::plan::{GroupTransaction, Plan};
use group::transaction::state::TransactionEntry;
use group::transaction::{Outcome, TransactionId, Vote};
use group::watched::Applied;
use overlay::{GroupId, GroupRef};

use super::story::{Story, place};

/// A group's state before an entry and after it.
struct EntryStep {
    name: String,
    before: GroupState,
    after: GroupState,
}

impl EntryStep {
    /// Returns the words for a group that ends with the entry.
    fn ends(&self) -> &'static str {
        if self.after.ended.is_some() { ", and ends" } else { "" }
    }
}

impl Story {
    /// Tells an applied entry.
    pub fn on_applied(&mut self, applied: Applied) {
        let Applied { before, entry, after } = applied;
        let step = EntryStep { name: self.name(after.id), before, after };
        match entry {
            Entry::Next(_) => self.on_next(&step),
            Entry::Transaction(TransactionEntry::Begin(_)) => self.on_begin(&step),
            Entry::Transaction(TransactionEntry::Asked(id, plan)) => self.on_asked(&step, id, &plan),
            Entry::Transaction(TransactionEntry::Outcome(id, outcome)) => self.on_outcome(&step, id, outcome),
            Entry::Transaction(TransactionEntry::Decided(id, outcome)) => self.on_decided(&step, id, outcome),
            Entry::Transaction(TransactionEntry::Ending(id)) => self.on_ending(&step, id),
            Entry::Transaction(TransactionEntry::Ended(id, other)) => self.on_ended(&step, id, other),
            Entry::Transaction(TransactionEntry::Neighbour(other)) => self.on_neighbour(&step, &other),
            _ => {}
        }
    }

    fn on_next(&mut self, step: &EntryStep) {
        let EntryStep { name, before, .. } = step;
        let open = before.transactions.coordinates().map(|(id, plan)| (id, plan.clone()));
        let given_up = open.map(|(id, plan)| {
            self.outcome(id, Outcome::Abort);
            format!(", and gives up {}", self.transaction(id, Some(&plan)))
        });
        if given_up.is_some() || self.tells_neighbours {
            self.tell(name, &format!("begins a new epoch{}", given_up.unwrap_or_default()));
        }
        self.mark(format!("{name} changes"));
    }

    fn on_begin(&mut self, step: &EntryStep) {
        let EntryStep { name, before, after } = step;
        let open = |state: &GroupState| state.transactions.coordinates().map(|(id, plan)| (id, plan.clone()));
        if let Some((id, plan)) = open(after).filter(|_| open(before).is_none()) {
            let transaction = self.transaction(id, Some(&plan));
            self.tell(name, &format!("begins {transaction}, a {}", told(&plan)));
            self.mark(format!("{name} begins"));
        }
    }

    fn on_asked(&mut self, step: &EntryStep, id: TransactionId, plan: &Plan) {
        let EntryStep { name, before, after } = step;
        if before.transactions.vote(id).is_some() {
            return;
        }
        let yes = after.transactions.vote(id) == Some(Vote::Yes);
        if *self.votes.entry((id, after.id)).or_insert(yes) != yes {
            self.wrong.push(format!("{name} votes twice, and not the same"));
        }
        let transaction = self.transaction(id, Some(plan));
        let open: Vec<TransactionId> = before.transactions.locks(before.range).map(|(_, id)| id).collect();
        let open: BTreeSet<String> = open.into_iter().map(|id| self.transaction(id, None)).collect();
        let why = match (yes, open.is_empty()) {
            (true, _) => String::new(),
            (false, true) => ": it, or its neighbour, is another by now".into(),
            (false, false) => format!(": {} is open", open.into_iter().collect::<Vec<_>>().join(", ")),
        };
        self.tell(name, &format!("votes {} on {transaction}{why}", if yes { "yes" } else { "no" }));
        self.mark(format!("{name} votes"));
    }

    fn on_outcome(&mut self, step: &EntryStep, id: TransactionId, outcome: Outcome) {
        let EntryStep { name, before, .. } = step;
        let ends = step.ends();
        let Some((_, plan)) = before.transactions.coordinates().filter(|(open, _)| *open == id) else { return };
        let transaction = self.transaction(id, Some(plan));
        for party in plan.asked().filter(|_| outcome == Outcome::Commit) {
            if self.votes.get(&(id, party.group.id)) != Some(&true) {
                let party = self.name(party.group.id);
                self.wrong.push(format!("{transaction} is committed, and {party} has not chosen to agree"));
            }
        }
        self.outcome(id, outcome);
        self.tell(name, &format!("decides to {outcome} {transaction}{ends}"));
        self.mark(format!("{name} decides"));
    }

    fn on_decided(&mut self, step: &EntryStep, id: TransactionId, outcome: Outcome) {
        let EntryStep { name, before, after } = step;
        let voted = |state: &GroupState| state.transactions.voted().any(|(voted, _)| voted == id);
        let transaction = self.transaction(id, None);
        if voted(before) && !voted(after) {
            self.outcome(id, outcome);
            self.tell(name, &format!("learns the {outcome} of {transaction}"));
            self.mark(format!("{name} learns"));
        } else if before.transactions.vote(id).is_none() && after.transactions.vote(id).is_some() {
            self.outcome(id, outcome);
            self.tell(name, &format!("will not vote for {transaction} any more"));
            self.mark(format!("{name} refuses"));
        }
    }

    fn on_ending(&mut self, step: &EntryStep, id: TransactionId) {
        let EntryStep { name, after, .. } = step;
        let ends = step.ends();
        if after.ended.is_some() {
            self.outcome(id, Outcome::Commit);
            let transaction = self.transaction(id, None);
            self.tell(name, &format!("learns the commit of {transaction}{ends}"));
            self.mark(format!("{name} learns"));
        }
    }

    fn on_ended(&mut self, step: &EntryStep, id: TransactionId, other: GroupId) {
        let EntryStep { name, before, after } = step;
        let waits = |state: &GroupState| {
            state.transactions.decided().iter().any(|known| known.id == id && known.unconfirmed.contains(&other))
        };
        if waits(before) && !waits(after) {
            let (other, transaction) = (self.name(other), self.transaction(id, None));
            let number = self.number(after.id);
            self.line(Some(number), format!("{name:<4}  has it that {other} knows of {transaction}"), false);
            self.mark(format!("{name} knows"));
        }
    }

    fn on_neighbour(&mut self, step: &EntryStep, other: &GroupRef) {
        let EntryStep { name, before, after } = step;
        if before.transactions != after.transactions && self.tells_neighbours {
            let (number, place) = (self.number(after.id), self.number(other.id));
            let last = self.lines.iter().rposition(|line| line.group == Some(place) && line.leads_on);
            self.heard.entry(number).or_default().extend(last);
            let other = self.name(other.id);
            self.line(Some(number), format!("{name:<4}  knows {other} as what it is now"), false);
            self.mark(format!("{name} renews"));
        }
    }

    fn outcome(&mut self, id: TransactionId, outcome: Outcome) {
        if *self.outcomes.entry(id).or_insert(outcome) != outcome {
            let transaction = self.transaction(id, None);
            self.wrong.push(format!("{transaction} has two outcomes"));
        }
    }
}

fn told(plan: &Plan) -> String {
    match &plan.operation {
        GroupTransaction::Split { at, .. } => format!("split at {}", place(*at)),
        GroupTransaction::Merge => "merge".into(),
        GroupTransaction::Repartition { at } => format!("repartition at {}", place(*at)),
        GroupTransaction::Migrate { .. } => "migration".into(),
        GroupTransaction::Repair { from, .. } => format!("repair from {} on", place(*from)),
    }
}
