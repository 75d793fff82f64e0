//! Events between groups, told step by step: the entries that a group chooses, its messages to other groups, and the births of
//! groups. A story has no ballots, times and repetitions, so it reads the same for as long as the protocol is the same.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use group::ballot::Ballot;
use group::control::state::{Entry, GroupState};
use group::transaction::driver::{GroupEnvelope, GroupMessage};
use group::transaction::plan::Plan;
use group::transaction::state::TransactionEntry;
use group::transaction::{Outcome, TransactionId, Vote};
use group::watched::Applied;
use node::AdminOutcome;
use overlay::{Epoch, GroupId, KeyRange, NodeId, Point};

use super::stage::{Fate, Happening, Stage, key, name_of};

/// The leader of a group, as far as the story has seen.
struct Led {
    under: (Epoch, Ballot),
    by: usize,
    /// That leader is lost, and no later one has been seen.
    lost: bool,
}

/// Identity of a message: its group, that group's leadership, the group in the name of which it speaks, the receiver, the word
/// with its transaction, and whether the message is lost.
type Said = (GroupId, u32, GroupId, GroupId, &'static str, (TransactionId, bool), bool);

/// One line of a story.
pub(super) struct Line {
    /// Number of the group of this line. `None`: an action of the script; no later line stands before it.
    pub(super) group: Option<usize>,
    text: String,
    /// Lines from which this one follows.
    after: Vec<usize>,
    /// Group that this message goes to, if the line is a message.
    to: Option<usize>,
    /// Whether the group's next lines follow from this one. Messages, and notes on answers, may come in any order.
    pub(super) leads_on: bool,
}

#[derive(Default)]
pub struct Story {
    pub(super) lines: Vec<Line>,
    /// The message lines that each group has received.
    pub(super) heard: BTreeMap<usize, Vec<usize>>,
    /// The line of each message.
    told: BTreeMap<(GroupId, GroupId, &'static str, TransactionId), usize>,
    /// Events that a script can wait for, since its last wait.
    pub marks: VecDeque<String>,
    /// Violations that were found.
    pub wrong: Vec<String>,
    /// Groups that are declared lost.
    pub lost: BTreeSet<GroupId>,
    /// Whether the story tells questions. A question in time depends on chance, unless the script waits for it.
    pub tells_questions: bool,
    /// Whether the story tells changes of neighbours. The times of such changes depend on chance too, unless the script is
    /// about them.
    pub tells_neighbours: bool,
    /// The group of each request.
    asked: BTreeMap<u64, GroupId>,
    groups: Vec<GroupId>,
    peers: Vec<String>,
    transactions: Vec<(TransactionId, Plan)>,
    latest: BTreeMap<(GroupId, Epoch), GroupState>,
    led: BTreeMap<GroupId, Led>,
    leaderships: BTreeMap<GroupId, u32>,
    said: BTreeSet<Said>,
    pub(super) votes: BTreeMap<(TransactionId, GroupId), bool>,
    pub(super) outcomes: BTreeMap<TransactionId, Outcome>,
}

/// Formats a place on the ring with as many digits as it needs.
pub fn place(point: Point) -> String {
    let digits = format!("{:032x}", point.0);
    format!("{:0<2}", digits.trim_end_matches('0'))
}

fn arc(range: KeyRange) -> String {
    if range.is_full() { "all".into() } else { format!("[{},{})", place(range.start()), place(range.end())) }
}

impl Story {
    /// Begins with the current groups, in ring order, and names their members. The first member is the leader.
    pub fn begin(stage: &Stage, per_group: usize) -> Story {
        let mut story = Story::default();
        let mut states: Vec<GroupState> = Vec::new();
        for (_, node) in stage.nodes() {
            states.extend(
                node.groups()
                    .map(|group| group.state().clone())
                    .filter(|state| !state.members.is_empty() && state.is_member(node.id())),
            );
        }
        states.sort_by_key(|state| (state.range.start(), state.applied));
        for state in states {
            if !story.groups.contains(&state.id) {
                story.groups.push(state.id);
            }
            story.latest.insert((state.id, state.born), state);
        }
        story.peers = vec![String::new(); stage.machines.len()];
        for (place, id) in story.groups.clone().into_iter().enumerate() {
            let leader = story.leader_now(stage, id).expect("it is led");
            let machines = place * per_group..(place + 1) * per_group;
            let others = machines.filter(|index| *index != leader);
            for (index, envelope) in [leader].into_iter().chain(others).zip('a'..) {
                story.peers[index] = format!("{}{envelope}", place + 1);
            }
        }
        for index in 0..stage.machines.len() {
            story.look(stage, index);
        }
        story.lines.clear();
        story.marks.clear();
        story
    }

    /// Returns the group of this name.
    pub fn group(&self, name: &str) -> Option<GroupId> {
        let number: usize = name.strip_prefix('g')?.parse().ok()?;
        self.groups.get(number.checked_sub(1)?).copied()
    }

    /// Returns the machine of this name.
    pub fn peer(&self, name: &str) -> Option<usize> {
        self.peers.iter().position(|peer| peer == name)
    }

    pub fn name_of_peer(&self, index: usize) -> &str {
        &self.peers[index]
    }

    /// Returns the last state that was seen of a group.
    pub fn state(&self, id: GroupId) -> Option<&GroupState> {
        self.latest.range((id, Epoch(0))..=(id, Epoch(u64::MAX))).next_back().map(|(_, state)| state)
    }

    /// Returns the leader of a group.
    pub fn leader_now(&self, stage: &Stage, id: GroupId) -> Option<usize> {
        let leads = stage.nodes().flat_map(|(index, node)| {
            let group = node.groups().find(|group| group.state().id == id && group.log().leads())?;
            Some(((group.state().epoch, group.log().leads_under()), index))
        });
        leads.filter(|(_, index)| !stage.cut.contains(index)).max().map(|(_, index)| index)
    }

    /// Returns the name of a group. Groups that are born get the next numbers, in the order of the plan.
    pub(super) fn name(&mut self, id: GroupId) -> String {
        if !self.groups.contains(&id) {
            let comes_of =
                |(of, plan): &(TransactionId, Plan)| plan.births.iter().any(|birth| plan.id_of(*of, birth) == id);
            if let Some((of, plan)) = self.transactions.iter().find(|known| comes_of(known)) {
                let born: Vec<GroupId> = plan.births.iter().map(|birth| plan.id_of(*of, birth)).collect();
                self.groups.extend(born.into_iter().filter(|id| !self.groups.contains(id)).collect::<Vec<_>>());
            } else {
                self.groups.push(id);
            }
        }
        let place = self.groups.iter().position(|known| *known == id).expect("just named");
        format!("g{}", place + 1)
    }

    pub(super) fn number(&self, id: GroupId) -> usize {
        self.groups.iter().position(|known| *known == id).map_or(0, |place| place + 1)
    }

    pub(super) fn transaction(&mut self, id: TransactionId, plan: Option<&Plan>) -> String {
        let known = self.transactions.iter().position(|(known, _)| *known == id);
        let place = match (known, plan) {
            (Some(place), _) => place,
            (None, Some(plan)) => {
                self.transactions.push((id, plan.clone()));
                self.transactions.len() - 1
            }
            (None, None) => return "what nobody knows".into(),
        };
        format!("t{}", place + 1)
    }

    /// Adds a line about an action of a group.
    pub(super) fn tell(&mut self, who: &str, what: &str) {
        self.line(who.trim_start_matches('g').parse().ok(), format!("{who:<4}  {what}"), true);
    }

    pub(super) fn line(&mut self, group: Option<usize>, text: String, leads_on: bool) {
        let after = group.and_then(|group| self.heard.get(&group)).cloned().unwrap_or_default();
        self.lines.push(Line { group, text, after, to: None, leads_on });
    }

    /// Adds a line about an action of the script.
    pub fn note(&mut self, what: &str) {
        self.line(None, format!("      {what}"), true);
    }

    /// Returns the story. Lines that do not follow from each other stand in the order of groups: their times depend on chance.
    pub fn text(&self) -> Vec<String> {
        let (mut text, mut passed) = (Vec::new(), 0);
        let is_done = |line: &Line| line.group.is_none();
        for section in self.lines.chunk_by(|one, other| is_done(one) == is_done(other)) {
            let began = passed;
            let mut depths: Vec<usize> = Vec::new();
            // Of each group: the depth behind its last line that leads on, and behind its deepest line.
            let mut last: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
            for line in section {
                let Some(group) = line.group else { continue };
                let (led, deepest) = last.entry(group).or_default();
                let heard = line.after.iter().filter_map(|after| depths.get(after.checked_sub(began)?));
                let heard = heard.max().map_or(0, |depth| depth + 1);
                let depth = heard.max(if line.leads_on { *deepest } else { *led });
                *deepest = (*deepest).max(depth + 1);
                if line.leads_on {
                    *led = depth + 1;
                }
                depths.push(depth);
            }
            let mut order: Vec<usize> = (0..section.len()).collect();
            if !is_done(&section[0]) {
                order.sort_by_key(|index| {
                    (depths[*index], section[*index].group, &section[*index].text, section[*index].to)
                });
            }
            let place = |index: usize| (section[index].group, &section[index].text);
            for same in order.chunk_by(|one, other| section[*one].to.is_some() && place(*one) == place(*other)) {
                let to: Vec<String> =
                    same.iter().filter_map(|index| Some(format!("g{}", section[*index].to?))).collect();
                let to = if to.is_empty() { String::new() } else { format!(" to {}", to.join(", ")) };
                text.push(format!("{}{to}", section[same[0]].text));
            }
            passed += section.len();
        }
        text
    }

    pub(super) fn mark(&mut self, text: String) {
        self.marks.push_back(text);
    }

    /// Adds all events of a step.
    pub fn follow(&mut self, stage: &mut Stage) {
        for happening in std::mem::take(&mut stage.seen) {
            match happening {
                Happening::Proposes(group, entry) => {
                    if let Some(kind) = kind(&entry) {
                        let name = self.name(group);
                        self.mark(format!("{name} proposes {kind}"));
                    }
                }
                Happening::Accepts(group, entry) => {
                    if let Some(kind) = kind(&entry) {
                        let name = self.name(group);
                        self.mark(format!("{name} accepts {kind}"));
                    }
                }
                Happening::Says(envelope, fate) => self.says(envelope, fate),
                Happening::Hears(group, envelope) => {
                    let (to, from) = (self.name(group), self.name(envelope.from));
                    if let Some((word, (id, _))) = spoken(&envelope.message)
                        && let Some(line) = self.told.get(&(envelope.from, envelope.to.id, word, id))
                    {
                        self.heard.entry(self.number(group)).or_default().push(*line);
                    }
                    self.mark(format!("{to} hears {} of {from}", name_of(&envelope.message)));
                }
                Happening::Applies(applied) => self.applies(*applied),
                Happening::Acts(index) => self.look(stage, index),
                Happening::AdminOutcome(number, outcome) => self.report_outcome(number, outcome),
                Happening::Quarantined(index) => {
                    let peer = self.peers[index].clone();
                    let text = format!("      {peer} is told that what it holds was declared lost, and begins anew");
                    self.line(peer.trim_end_matches(char::is_alphabetic).parse().ok(), text, false);
                }
            }
        }
    }

    /// Notes a request to a group, under this number.
    pub fn asks(&mut self, number: u64, group: GroupId) {
        self.asked.insert(number, group);
    }

    fn report_outcome(&mut self, number: u64, outcome: AdminOutcome) {
        let Some(group) = self.asked.remove(&number) else {
            return self.wrong.push("a request is answered that nobody has, or that was answered before".into());
        };
        let what = match outcome {
            AdminOutcome::Done(groups) => {
                let names: Vec<String> = groups.into_iter().map(|id| self.name(id)).collect();
                format!("done: {}", names.join(", "))
            }
            AdminOutcome::Refused(why) => format!("refused: {why}"),
            AdminOutcome::NotNow(why) => format!("not now: {why}"),
            AdminOutcome::Aborted => "aborted".into(),
            AdminOutcome::Unknown => "it is not known what came of it".into(),
            AdminOutcome::NotHere => "no such group here".into(),
        };
        let name = self.name(group);
        self.line(Some(self.number(group)), format!("      whoever asked {name} is told: {what}"), false);
    }

    fn says(&mut self, envelope: GroupEnvelope, fate: Fate) {
        if fate == Fate::Barred {
            return;
        }
        let GroupEnvelope { from, by, to, message } = envelope;
        // Repeated messages between neighbours are left out; the entries that are chosen from them are told.
        let Some((said, of)) = spoken(&message) else { return };
        if let GroupMessage::Prepare(id, plan) = &message {
            self.transaction(*id, Some(plan));
        }
        let (name, receiver) = (self.name(from), self.name(to.id));
        self.mark(format!("{name} says {} to {receiver}", name_of(&message)));
        if matches!(message, GroupMessage::Question(_)) && !self.tells_questions {
            return;
        }
        let leadership = self.leaderships.get(&by.id).copied().unwrap_or(0);
        if !self.said.insert((by.id, leadership, from, to.id, said, of, fate == Fate::Lost)) {
            return;
        }
        // An answer to this message is a line of its own, even if the same answer was told before.
        let speaks = by.id;
        let answers: &[&str] = match said {
            "PREPARE" => &["YES", "NO"],
            "COMMIT" => &["END"],
            _ => &[],
        };
        self.said.retain(|(_, _, by, receiver, word, (id, _), _)| {
            *by != to.id || *receiver != speaks && *receiver != from || *id != of.0 || !answers.contains(word)
        });
        let (speaker, transaction) = (self.name(by.id), self.transaction(of.0, None));
        let fate = match fate {
            Fate::Arrives | Fate::Barred => "",
            Fate::Lost => "  (lost)",
            Fate::Held => "  (held up)",
            Fate::Twice => "  (and once more later)",
        };
        let in_name = if from == by.id { String::new() } else { format!(" for {name}") };
        let what = format!("says {said} {transaction}{fate}{in_name}");
        let number = self.number(by.id);
        self.line(Some(number), format!("{speaker:<4}  {what}"), false);
        self.lines.last_mut().expect("just told").to = Some(self.number(to.id));
        self.told.insert((from, to.id, said, of.0), self.lines.len() - 1);
    }

    /// Notes that the leader on this machine is lost.
    pub fn loses(&mut self, index: usize) {
        self.led.values_mut().filter(|led| led.by == index).for_each(|led| led.lost = true);
    }

    /// Formats the messages of a lost machine that did not arrive.
    pub fn unheard(&mut self, envelopes: &[GroupEnvelope]) -> String {
        let mut said = BTreeSet::new();
        for envelope in envelopes {
            if let Some((word, (id, _))) = spoken(&envelope.message).filter(|(word, _)| *word != "QUESTION") {
                said.insert((word, self.transaction(id, None), self.name(envelope.to.id)));
            }
        }
        let said: Vec<String> = said.into_iter().map(|(word, of, to)| format!("{word} {of} to {to}")).collect();
        if said.is_empty() { String::new() } else { format!("; nobody has heard {}", said.join(", ")) }
    }

    /// Looks at the states of a machine's groups.
    fn look(&mut self, stage: &Stage, index: usize) {
        let Some(node) = stage.node(index) else { return };
        for group in node.groups() {
            let state = group.state();
            self.on_state(state);
            if let Some(ballot) = group.log().leads_under().filter(|_| group.log().leads() && state.ended.is_none()) {
                self.on_led(state.id, (state.epoch, ballot), index);
            }
        }
    }

    /// Tells an entry where the first member applies it.
    fn applies(&mut self, applied: Applied) {
        self.on_state(&applied.before);
        let place = (applied.after.id, applied.after.born);
        if self.latest.get(&place).is_some_and(|known| known.applied < applied.after.applied) {
            self.latest.insert(place, applied.after.clone());
            self.on_applied(applied);
        }
    }

    fn on_state(&mut self, state: &GroupState) {
        let place = (state.id, state.born);
        match self.latest.get_mut(&place) {
            Some(known) if known.applied >= state.applied => {}
            // This member received the state as a whole. Other members applied the entries one by one, and the story has told
            // them.
            Some(known) => known.clone_from(state),
            None => {
                let name = self.name(state.id);
                let overlaps = |known: &&GroupState| {
                    known.ended.is_none() && known.range.overlaps(state.range) && !self.lost.contains(&known.id)
                };
                if let Some(other) = self.latest.values().find(overlaps).map(|other| other.id) {
                    let other = self.name(other);
                    self.wrong.push(format!("{name} is born where {other} still is"));
                }
                let mut members: Vec<String> = state.nodes().iter().map(|node| self.peer_name(*node)).collect();
                members.extend(state.learners.iter().map(|learner| format!("+{}", self.peer_name(learner.node))));
                members.sort_by_key(|name| (name.starts_with('+'), name.clone()));
                let ended: Vec<usize> = self.ended_lines(state);
                let number = self.number(state.id);
                self.heard.entry(number).or_default().extend(ended);
                self.led.remove(&state.id);
                *self.leaderships.entry(state.id).or_default() += 1;
                let text = format!("is born: {} of {}", arc(state.range), members.join(" "));
                self.latest.insert(place, state.clone());
                self.tell(&name, &text);
                self.mark(format!("{name} is born"));
            }
        }
    }

    /// Returns the lines in which the groups before this one ended.
    fn ended_lines(&self, born: &GroupState) -> Vec<usize> {
        let bears = |of: TransactionId| {
            let plan = self.transactions.iter().find(|(known, _)| *known == of).map(|(_, plan)| plan);
            plan.is_some_and(|plan| plan.births.iter().any(|birth| plan.id_of(of, birth) == born.id))
        };
        let over = self.latest.values().filter(|known| known.ended.is_some_and(bears));
        let of = over.max_by_key(|known| known.epoch).and_then(|known| known.ended);
        let comes_of = self.latest.values().filter(|known| of.is_some() && known.ended == of);
        let groups: Vec<usize> = comes_of.map(|known| self.number(known.id)).collect();
        let ends =
            |line: &Line| line.group.is_some_and(|group| groups.contains(&group)) && line.text.ends_with("and ends");
        (0..self.lines.len()).filter(|index| ends(&self.lines[*index])).collect()
    }

    fn peer_name(&self, node: NodeId) -> String {
        let index = (0..self.peers.len()).find(|index| key(*index) == node.peer).expect("one of them");
        let again = if node.incarnation.0 > 1 { "'" } else { "" };
        format!("{}{again}", self.peers[index])
    }

    fn on_led(&mut self, id: GroupId, under: (Epoch, Ballot), by: usize) {
        let known = self.led.get(&id);
        if known.is_some_and(|known| known.under >= under) {
            return;
        }
        let tells = known.is_some_and(|known| known.lost);
        self.led.insert(id, Led { under, by, lost: false });
        if !tells {
            return;
        }
        *self.leaderships.entry(id).or_default() += 1;
        let transactions = self.state(id).expect("it is led").transactions.clone();
        let mut found = Vec::new();
        if let Some((open, plan)) = transactions.coordinates() {
            found.push(format!("{} begun", self.transaction(open, Some(plan))));
        }
        for (voted, plan) in transactions.voted() {
            found.push(format!("its vote for {}", self.transaction(voted, Some(plan))));
        }
        for decision in transactions.decided() {
            found.push(format!("{} committed", self.transaction(decision.id, Some(&decision.plan))));
        }
        let found = if found.is_empty() { "nothing open".into() } else { found.join(", ") };
        let name = self.name(id);
        self.tell(&name, &format!("is led again, and finds {found}"));
        self.mark(format!("{name} is led"));
    }
}

/// Returns the word of a message about a transaction, as it stands in a story.
fn spoken(word: &GroupMessage) -> Option<(&'static str, (TransactionId, bool))> {
    Some(match word {
        GroupMessage::Prepare(id, _) => ("PREPARE", (*id, true)),
        GroupMessage::Vote(id, vote) => (if *vote == Vote::Yes { "YES" } else { "NO" }, (*id, *vote == Vote::Yes)),
        GroupMessage::Decision(id, outcome) => {
            let commits = *outcome == Outcome::Commit;
            (if commits { "COMMIT" } else { "ABORT" }, (*id, commits))
        }
        GroupMessage::End(id) => ("END", (*id, true)),
        GroupMessage::Question(id) => ("QUESTION", (*id, true)),
        GroupMessage::Push(..) | GroupMessage::Known(_) => return None,
    })
}

/// Returns the name in scripts of an entry about transactions.
fn kind(entry: &Entry) -> Option<&'static str> {
    let Entry::Transaction(entry) = entry else { return None };
    Some(match entry {
        TransactionEntry::Begin(_) => "begin",
        TransactionEntry::Asked(..) => "vote",
        TransactionEntry::Outcome(..) => "outcome",
        TransactionEntry::Decided(..) | TransactionEntry::Ending(_) => "learning",
        TransactionEntry::Ended(..) => "end",
        TransactionEntry::Neighbour(_) => "neighbour",
    })
}
