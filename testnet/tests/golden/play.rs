//! Plays a script: its commands one after another, and the checks at the end of every story.

use std::collections::BTreeSet;
use std::time::Duration;

use group::config::Defects;
use group::control::state::GroupState;
use node::{AdminRequest, Input, Tail};
use overlay::{GroupId, GroupRef, Point};

use super::base::{self, is_calm};
use super::stage::{FINAL, Fate, Rule, Stage, key};
use super::story::Story;

/// Longest wait for a step; a step that takes longer never comes.
const PATIENCE: Duration = Duration::from_secs(40);
/// Longest time that a ring may take to come to rest.
const REST: Duration = Duration::from_secs(90);

const WORDS: [&str; 9] = ["prepare", "vote", "commit", "abort", "end", "question", "push", "known", FINAL];

struct Play {
    stage: Stage,
    story: Story,
    /// Machines that do not return by themselves when all faults are healed.
    gone: BTreeSet<usize>,
    requests: u64,
}

/// Plays a script and returns its story. `chance` seeds the random choices of the machines.
///
/// # Errors
/// Returns a description of the failure, and the story so far.
pub fn play(commands: &[String], defects: Defects, chance: u64) -> Result<Vec<String>, (String, Vec<String>)> {
    let none = |why: String| (why, Vec::new());
    let (groups, per_group, rest) = match commands.first().and_then(|command| command.strip_prefix("ring ")) {
        Some(size) => {
            let (groups, per_group) = size_of(size).ok_or_else(|| none(format!("no ring is like this: {size}")))?;
            (groups, per_group, &commands[1..])
        }
        None => (3, 3, commands),
    };
    if rest.last().is_none_or(|last| last != "stabilize") {
        return Err(none("a script ends with stabilize".into()));
    }
    let mut play = Play::new(groups, per_group, defects, chance);
    let names = |word: &str| rest.iter().any(|command| command.split_whitespace().any(|other| other == word));
    play.story.tells_questions = names("question");
    play.story.tells_neighbours = names("epoch") || names("push");
    for command in rest {
        if let Err(why) = play.command(command) {
            return Err((format!("{command}: {why}"), play.story.text()));
        }
        if !play.story.wrong.is_empty() {
            return Err((format!("{command}: {}", play.story.wrong.join("; ")), play.story.text()));
        }
    }
    Ok(play.story.text())
}

/// Returns the steps of a command where nothing is lost: each by its first mark, with the groups that have a leader just then.
///
/// # Errors
/// Returns a description where the ring or the command is not valid.
pub fn steps(ring: &str, asked: &str) -> Result<Vec<(String, Vec<String>)>, String> {
    let (groups, per_group) = size_of(ring).ok_or("no ring is like this")?;
    let mut play = Play::new(groups, per_group, Defects::NONE, 0);
    let mut steps: Vec<(String, Vec<String>)> = Vec::new();
    play.command(asked)?;
    let end = play.stage.after(Duration::from_secs(10));
    loop {
        while let Some(mark) = play.story.marks.pop_front() {
            let names = (1..10).map(|number| format!("g{number}")).filter(|name| play.leader(name).is_ok());
            if !steps.iter().any(|(known, _)| *known == mark) {
                steps.push((mark, names.collect()));
            }
        }
        if !play.step(end) {
            return Ok(steps);
        }
    }
}

/// Parses `3` (groups of three members each) or `3 of 5` (three groups of five members each).
fn size_of(text: &str) -> Option<(usize, usize)> {
    let (groups, per_group) = text.split_once(" of ").unwrap_or((text, "3"));
    let size = (groups.parse().ok()?, per_group.parse().ok()?);
    ((1..=4).contains(&size.0) && (1..=5).contains(&size.1)).then_some(size)
}

fn point(text: &str) -> Result<Point, String> {
    let bits = u128::from_str_radix(text, 16).ok().filter(|_| (1..=32).contains(&text.len()));
    let bits = bits.ok_or_else(|| format!("no place on the ring: {text}"))?;
    Ok(Point(bits << (128 - 4 * text.len())))
}

impl Play {
    fn new(groups: usize, per_group: usize, defects: Defects, chance: u64) -> Play {
        let mut stage = Stage::new(base::stores(groups, per_group), defects, chance);
        let count = stage.machines.len();
        base::run_until(&mut stage, "all have begun", |stage| {
            let leads = (0..count)
                .filter(|index| stage.node(*index).is_some_and(|node| node.groups().any(|g| g.log().leads())));
            leads.count() == groups && (0..count).all(|index| is_calm(stage, index, |_| true))
        });
        // Long enough that no leader divides the range anew.
        let end = stage.after(Duration::from_secs(5));
        while stage.step(end) {}
        stage.seen.clear();
        let story = Story::begin(&stage, per_group);
        Play { stage, story, gone: BTreeSet::new(), requests: 0 }
    }

    fn command(&mut self, command: &str) -> Result<(), String> {
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        match (verb, words.as_slice()) {
            ("split" | "merge" | "repartition" | "migrate" | "repair", [group, options @ ..]) => {
                let request = self.request(verb, options)?;
                self.ask(group, request)
            }
            ("until", [_, ..]) => self.until(rest),
            ("crash" | "destroy", [who]) => self.crash(who, verb == "destroy"),
            ("restart", [who]) => self.restart(who),
            ("cut", [who]) => self.cut(who),
            ("heal", []) => self.heal(),
            ("lose" | "hold" | "copy" | "bar", [word, link]) => self.rule(verb, word, link),
            ("let", [word, link]) => self.no_rule(word, link),
            ("release", []) => self.release(),
            ("epoch", [group]) => {
                self.story.note(&format!("{group} is to begin a new epoch"));
                let leader = self.leader(group)?;
                let node = self.stage.machines[leader].node.as_mut().expect("it leads");
                node.stop_epoch();
                self.stage.handle(leader, Input::Tick);
                self.story.follow(&mut self.stage);
                Ok(())
            }
            ("run", [time]) => {
                let seconds = time.strip_suffix('s').and_then(|seconds| seconds.parse().ok());
                self.run(Duration::from_secs(seconds.ok_or("say how many seconds: 5s")?));
                Ok(())
            }
            ("stabilize", []) => self.stabilize(),
            _ => Err("there is no such command".into()),
        }
    }

    fn group(&self, name: &str) -> Result<GroupId, String> {
        self.story.group(name).ok_or_else(|| format!("there is no group {name}"))
    }

    fn leader(&self, name: &str) -> Result<usize, String> {
        let group = self.group(name)?;
        self.story.leader_now(&self.stage, group).ok_or_else(|| format!("nobody leads {name}"))
    }

    /// Returns the machines of `2a`, `g2` (the whole group), `g2.leader`, or `g2.majority` (a smallest majority, with the
    /// leader).
    fn machines(&self, who: &str) -> Result<Vec<usize>, String> {
        if let Some(peer) = self.story.peer(who) {
            return Ok(vec![peer]);
        }
        let (name, part) = who.split_once('.').unwrap_or((who, ""));
        let state = self.story.state(self.group(name)?).ok_or("it is not born")?;
        let nodes = state.nodes();
        let is_in = |index: &usize| nodes.iter().any(|node| node.peer == key(*index));
        let members: Vec<usize> = (0..self.stage.machines.len()).filter(is_in).collect();
        match part {
            "" => Ok(members),
            "leader" => Ok(vec![self.leader(name)?]),
            "majority" => {
                let leader = self.leader(name)?;
                let others = members.iter().copied().filter(|index| *index != leader);
                Ok([leader].into_iter().chain(others).take(members.len() / 2 + 1).collect())
            }
            _ => Err(format!("there is no {part} of a group")),
        }
    }

    fn peers(&self, names: &str) -> Result<Vec<overlay::PeerKey>, String> {
        let peer = |name: &str| self.story.peer(name).map(key).ok_or_else(|| format!("there is no {name}"));
        names.split(',').map(peer).collect()
    }

    fn request(&mut self, verb: &str, options: &[&str]) -> Result<AdminRequest, String> {
        let mut pairs = Vec::new();
        for option in options {
            pairs.push(option.split_once('=').ok_or_else(|| format!("{option} says nothing"))?);
        }
        let mut take = |name: &str| {
            let index = pairs.iter().position(|(known, _)| *known == name)?;
            Some(pairs.remove(index).1)
        };
        let request = match verb {
            "split" => AdminRequest::Split {
                at: Some(point(take("at").ok_or("say where: at=60")?)?),
                first: self.peers(take("first").ok_or("say who is in the first half: first=2b,2c")?)?,
            },
            "merge" => AdminRequest::Merge,
            "repartition" => AdminRequest::Repartition { at: point(take("at").ok_or("say where: at=60")?)? },
            "migrate" => AdminRequest::Migrate {
                to: take("to").map_or(Ok(Vec::new()), |names| self.peers(names))?,
                from: take("from").map_or(Ok(Vec::new()), |names| self.peers(names))?,
            },
            _ => {
                let names = take("lost").ok_or("say what is lost: lost=g2")?;
                let lost: Vec<GroupId> = names.split(',').map(|name| self.group(name)).collect::<Result<_, _>>()?;
                self.story.lost.extend(&lost);
                AdminRequest::Repair { from: take("from").map(point).transpose()?, lost }
            }
        };
        match pairs.first() {
            Some((name, _)) => Err(format!("{verb} has no {name}")),
            None => Ok(request),
        }
    }

    fn ask(&mut self, group: &str, request: AdminRequest) -> Result<(), String> {
        let (leader, group) = (self.leader(group)?, self.group(group)?);
        self.requests += 1;
        self.story.asks(self.requests, group);
        self.stage.handle(leader, Input::AdminRequest { number: self.requests, group, request });
        self.story.follow(&mut self.stage);
        Ok(())
    }

    fn step(&mut self, until: u64) -> bool {
        let more = self.stage.step(until);
        self.story.follow(&mut self.stage);
        more
    }

    fn run(&mut self, time: Duration) {
        let end = self.stage.after(time);
        while self.step(end) {}
    }

    fn until(&mut self, mark: &str) -> Result<(), String> {
        let end = self.stage.after(PATIENCE);
        loop {
            while let Some(next) = self.story.marks.pop_front() {
                if next == mark {
                    return Ok(());
                }
            }
            if !self.step(end) && self.story.marks.is_empty() {
                return Err("it never came to that".into());
            }
        }
    }

    fn crash(&mut self, who: &str, for_good: bool) -> Result<(), String> {
        let mut unheard = Vec::new();
        for index in self.machines(who)? {
            if !self.stage.is_up(index) {
                return Err(format!("{} does not run", self.story.name_of_peer(index)));
            }
            unheard.extend(self.stage.crash(index));
            self.story.loses(index);
            if for_good {
                self.gone.insert(index);
            }
        }
        let unheard = self.story.unheard(&unheard);
        self.story.note(&format!("{who} {}{unheard}", if for_good { "is destroyed" } else { "crashes" }));
        self.story.follow(&mut self.stage);
        Ok(())
    }

    fn restart(&mut self, who: &str) -> Result<(), String> {
        let down: Vec<usize> = self.machines(who)?.into_iter().filter(|index| !self.stage.is_up(*index)).collect();
        if down.is_empty() {
            return Err(format!("{who} runs"));
        }
        self.story.note(&format!("{who} returns"));
        for index in down {
            self.gone.remove(&index);
            self.stage.start(index, Tail::Unsealed);
        }
        self.story.follow(&mut self.stage);
        Ok(())
    }

    fn cut(&mut self, who: &str) -> Result<(), String> {
        for index in self.machines(who)? {
            self.stage.cut.insert(index);
            self.story.loses(index);
        }
        self.story.note(&format!("{who} is cut off"));
        Ok(())
    }

    fn heal(&mut self) -> Result<(), String> {
        if self.stage.cut.is_empty() {
            return Err("nobody is cut off".into());
        }
        self.stage.cut.clear();
        self.story.note("all hear each other again");
        Ok(())
    }

    fn link(&self, word: &str, link: &str) -> Result<(&'static str, GroupId, GroupId), String> {
        let word = WORDS.into_iter().find(|known| *known == word).ok_or_else(|| format!("nobody says {word}"))?;
        let (from, to) = link.split_once('>').ok_or("say from whom to whom: g1>g2")?;
        Ok((word, self.group(from)?, self.group(to)?))
    }

    fn rule(&mut self, verb: &str, word: &str, link: &str) -> Result<(), String> {
        let (word, from, to) = self.link(word, link)?;
        let fate = match verb {
            "lose" => Fate::Lost,
            "bar" => Fate::Barred,
            "hold" => Fate::Held,
            _ => Fate::Twice,
        };
        if word == FINAL && !matches!(fate, Fate::Lost | Fate::Barred) {
            return Err("a last state can only be lost".into());
        }
        self.stage.rules.push(Rule { word, from, to, fate, hits: 0 });
        Ok(())
    }

    fn release(&mut self) -> Result<(), String> {
        if self.stage.release() == 0 {
            return Err("nothing is held up".into());
        }
        self.story.note("what was held up arrives");
        Ok(())
    }

    fn no_rule(&mut self, word: &str, link: &str) -> Result<(), String> {
        let (word, from, to) = self.link(word, link)?;
        let is_it = |rule: &Rule| rule.word == word && rule.from == from && rule.to == to;
        let at = self.stage.rules.iter().position(is_it).ok_or("nothing stands in its way")?;
        let rule = self.stage.rules.remove(at);
        if rule.fate != Fate::Barred {
            self.story.note(&format!("nothing stands in the way of any {word} any more, {link}"));
        }
        is_used(&rule)
    }

    /// Ends all faults, and starts each machine that is down and not gone. All machines must come to rest, and pass the final
    /// checks.
    fn stabilize(&mut self) -> Result<(), String> {
        std::mem::take(&mut self.stage.rules).iter().try_for_each(is_used)?;
        self.stage.release();
        if !self.stage.cut.is_empty() {
            self.heal()?;
        }
        let down: Vec<usize> = (0..self.stage.machines.len())
            .filter(|index| !self.stage.is_up(*index) && !self.gone.contains(index))
            .collect();
        if !down.is_empty() {
            let mut names: Vec<&str> = down.iter().map(|index| self.story.name_of_peer(*index)).collect();
            names.sort_unstable();
            let names = names.join(" ");
            self.story.note(&format!("{names} {}", if down.len() == 1 { "returns" } else { "return" }));
            down.iter().for_each(|index| self.stage.start(*index, Tail::Unsealed));
        }
        let end = self.stage.after(REST);
        loop {
            while self.unrest().is_some() && self.step(end) {}
            if let Some(why) = self.unrest() {
                return Err(format!("no rest: {why}"));
            }
            // A ring that is at rest stays at rest.
            self.run(Duration::from_secs(2));
            if self.unrest().is_none() {
                break;
            }
        }
        self.check_ring()?;
        self.check_keys()
    }

    fn unrest(&self) -> Option<String> {
        for index in (0..self.stage.machines.len()).filter(|index| self.stage.is_up(*index)) {
            if !is_calm(&self.stage, index, |group| self.story.leader_now(&self.stage, group.state().id).is_some()) {
                let node = self.stage.node(index).expect("it runs");
                let groups: Vec<String> = node
                    .groups()
                    .map(|group| {
                        let state = group.state();
                        let (transactions, ended) = (&state.transactions, state.ended);
                        format!(
                            "{:?} (ended {ended:?}, settled {}, learners {}, open {:?}, voted {:?}, decided {}, known {:?})",
                            state.id,
                            state.is_settled(),
                            state.learners.len(),
                            transactions.coordinates().map(|(id, _)| id),
                            transactions.voted().map(|(id, _)| id).collect::<Vec<_>>(),
                            transactions.decided().len(),
                            group.is_known_to_neighbours(),
                        )
                    })
                    .collect();
                let name = self.story.name_of_peer(index);
                return Some(format!("{name} is not calm: settled {}, {}", node.is_settled(), groups.join(", ")));
            }
        }
        None
    }

    /// Checks that the groups cover the ring once, that their members agree, and that neighbours know each other's current
    /// state.
    fn check_ring(&self) -> Result<(), String> {
        let mut states: Vec<&GroupState> = Vec::new();
        for (index, node) in self.stage.nodes() {
            for state in node.groups().map(group::Group::state) {
                match states.iter_mut().find(|known| known.id == state.id) {
                    None => states.push(state),
                    Some(known) if known.epoch != state.epoch || known.transactions != state.transactions => {
                        let name = self.story.name_of_peer(index);
                        return Err(format!("{name} is at another epoch than others of its group, or has other links"));
                    }
                    Some(_) => {}
                }
            }
        }
        states.sort_by_key(|state| state.range.start());
        let next = |index: usize| states[(index + 1) % states.len()];
        for (index, state) in states.iter().enumerate() {
            if state.range.end() != next(index).range.start() || state.range.is_full() && states.len() > 1 {
                return Err(format!(
                    "the ring is not covered once: {:?}",
                    states.iter().map(|s| s.range).collect::<Vec<_>>()
                ));
            }
            let is_like = |link: &GroupRef, other: &GroupState| *link == other.reference();
            let (view, next) = (state.view(), next(index));
            if !is_like(&view.successor, next) || !is_like(&next.view().predecessor, state) {
                return Err(format!("{:?} and {:?} do not know each other as they are", state.id, next.id));
            }
        }
        Ok(())
    }

    /// Checks that each key still has its value, unless its range was declared lost.
    fn check_keys(&mut self) -> Result<(), String> {
        let up: Vec<usize> = (0..self.stage.machines.len()).filter(|index| self.stage.is_up(*index)).collect();
        let losses =
            self.stage.nodes().flat_map(|(_, node)| node.groups().flat_map(|group| group.state().losses.clone()));
        let losses: Vec<_> = losses.map(|loss| loss.range).collect();
        for (place, key) in base::keys().enumerate() {
            let is_lost = losses.iter().any(|range| range.contains(key.point()));
            let value = base::read(&mut self.stage, up[place % up.len()], &key);
            if value.as_deref() != Some(key.name()).filter(|_| !is_lost) {
                return Err(format!("{key:?} is {value:?}"));
            }
        }
        self.stage.seen.clear();
        Ok(())
    }
}

/// Returns an error for a rule that matched nothing: that is a mistake in the script.
fn is_used(rule: &Rule) -> Result<(), String> {
    if rule.hits > 0 || rule.fate == Fate::Barred {
        Ok(())
    } else {
        Err(format!("nobody said that, and it was to meet something: {}", rule.word))
    }
}
