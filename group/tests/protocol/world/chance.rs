//! Random runs: possible events, their odds, and the properties that must hold at the end.

use std::panic::{AssertUnwindSafe, catch_unwind};

use group::Group;
use group::config::Defects;
use group::control::state::Entry;
use overlay::rng::Rng;
use overlay::{KeyRange, NodeId};

use super::calm::calm;
use super::clients::What;
use super::{Packet, Rules, World, switches};

/// Odds of each fault and event, in 1/1000 of all steps or messages; different in each run.
#[derive(Clone, Debug)]
struct Odds {
    drop: u64,
    double: u64,
    late: u64,
    sync: u64,
    crash: u64,
    restart: u64,
    lose: u64,
    cut: u64,
    heal: u64,
    stop: u64,
    next: u64,
    divide: u64,
    leave: u64,
    ask: u64,
    tick: u64,
}

impl Odds {
    fn new(rng: &mut Rng) -> Odds {
        // Each kind of fault is absent in many runs.
        let mut up_to = |max: u64| if rng.below(3) == 0 { 0 } else { rng.below(max + 1) };
        Odds {
            drop: up_to(150),
            double: up_to(100),
            late: up_to(60),
            sync: 250 + up_to(750),
            crash: up_to(12),
            restart: 20 + up_to(60),
            lose: up_to(6),
            cut: up_to(30),
            heal: 10 + up_to(60),
            stop: up_to(12),
            next: up_to(25),
            divide: up_to(25),
            leave: up_to(3),
            ask: 100 + up_to(500),
            tick: 400 + up_to(600),
        }
    }
}

impl Odds {
    /// Makes faults rarer, so that members stay for a while: reads are spread only then.
    fn calm(&mut self) {
        for odds in [&mut self.crash, &mut self.lose, &mut self.cut, &mut self.stop, &mut self.next, &mut self.divide] {
            *odds /= 5;
        }
        (self.leave, self.heal) = (0, self.heal + 40);
    }
}

/// Result of a run.
#[derive(Debug, Default)]
pub struct Came {
    pub wrong: Option<String>,
    pub epochs: u64,
    pub answered: u64,
    pub purged: u64,
    /// Number of reads by a switch that replicas answered, of those that they left to the primary, and of reads of dirty objects.
    pub spread: [u64; 3],
}

fn rules(rng: &mut Rng) -> Rules {
    let members = [1, 2, 3, 3, 3, 4, 5, 5][rng.below(8) as usize];
    let small = |rng: &mut Rng, small: usize, large: usize| if rng.below(2) == 0 { small } else { large };
    let rules = Rules {
        leases: rng.below(2) == 0,
        drift: [0, 10, 200][rng.below(3) as usize],
        memory_bytes_max: small(rng, 2_000, 1 << 20),
        window_bytes_max: small(rng, 1_000, 1 << 20),
        message_bytes_max: small(rng, 300, 1 << 16),
        quick_disks: rng.below(3) == 0,
        ..Rules::of(members, rng.below(4) as usize)
    };
    // Not drawn from later values, so that older seeds keep their meaning.
    Rules { coarse: rng.clone().below(3) == 0, ..rules }
}

/// Returns the rules of a run with switches: a coarse group with leases, and tables that are tiny in many runs.
fn switched(rng: &mut Rng) -> Rules {
    let switches = switches::Rules {
        stages: 1 + rng.below(3) as usize,
        slots: [1, 4, 16][rng.below(3) as usize],
        objects: [1, 4, 1 << 20][rng.below(3) as usize],
    };
    let members = 2 + rng.below(4) as usize;
    Rules { members, coarse: true, leases: true, switches: Some(switches), ..rules(rng) }
}

/// Plays one run, with switches.
pub fn run_switched(seed: u64, steps_max: u64, defects: Defects, trace: bool) -> Came {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9) ^ 0x5717);
    let rules = Rules { defects, ..switched(&mut rng) };
    play(seed, rng, rules, steps_max, trace)
}

/// Plays one run.
pub fn run(seed: u64, steps_max: u64, trace: bool) -> Came {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9) ^ 0xabcd);
    let rules = rules(&mut rng);
    play(seed, rng, rules, steps_max, trace)
}

/// Plays one run in which journals have bad ends: any member's end may be bad, and one member loses data. No more than that is promised.
pub fn run_torn(seed: u64, steps_max: u64, defects: Defects, trace: bool) -> Came {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9) ^ 0x7042);
    let members = 3 + 2 * rng.below(2) as usize;
    let rules = Rules { members, outside: 0, torn: true, defects, ..rules(&mut rng) };
    play(seed, rng, rules, steps_max, trace)
}

fn play(seed: u64, mut rng: Rng, rules: Rules, steps_max: u64, trace: bool) -> Came {
    let mut odds = Odds::new(&mut rng);
    if rules.switches.is_some() {
        odds.calm();
    }
    if rules.torn {
        // No member comes or goes: a group of two could lose the data that one of them loses.
        (odds.lose, odds.leave, odds.next) = (0, 0, 0);
        odds.crash = odds.crash * 2 + 2;
    }
    if trace {
        println!("{rules:?}\n{odds:?}");
    }
    let mut world = World::new(rules, seed);
    let done = catch_unwind(AssertUnwindSafe(|| {
        let steps = steps_max / 4 + rng.below(steps_max);
        chaos(&mut world, &mut rng, &odds, steps);
        if world.wrong.is_none() {
            calm(&mut world, &mut rng);
        }
    }));
    if let Err(panic) = done {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()));
        world.wrong.get_or_insert(format!("panic: {}", text.unwrap_or_default()));
    }
    if trace {
        world.notes.iter().for_each(|note| println!("{note}"));
    }
    let purged = world.living().iter().map(|index| world.group(*index).purged()).sum::<u64>();
    let spread = world.switches.as_ref().map_or([0; 3], |it| [it.spread, it.left, it.dirty]);
    Came { spread, wrong: world.wrong.take(), epochs: world.epoch().0, answered: world.clients.answered, purged }
}

fn chaos(world: &mut World, rng: &mut Rng, odds: &Odds, steps: u64) {
    let mut attic: Vec<Packet> = Vec::new();
    let all: Vec<usize> = (0..world.peers.len()).collect();
    for _ in 0..steps {
        world.now += rng.below(8_000);
        for index in all.iter().copied() {
            if rng.below(1000) < odds.tick {
                world.act(index, Group::tick);
            }
        }
        world.ask_to_join(&all);
        let count = rng.below(world.net.len() as u64 + 4);
        for _ in 0..count {
            if world.net.is_empty() {
                break;
            }
            let reach = world.net.len().min(1 + rng.below(40) as usize) as u64;
            let packet = world.net.remove(rng.below(reach) as usize);
            if rng.below(1000) < odds.drop {
                continue;
            }
            if rng.below(1000) < odds.double {
                world.net.push(packet.clone());
            }
            if rng.below(1000) < odds.late && attic.len() < 200 {
                attic.push(packet.clone());
            }
            world.deliver(packet);
        }
        if !attic.is_empty() && rng.below(1000) < odds.late {
            let packet = attic.swap_remove(rng.below(attic.len() as u64) as usize);
            world.deliver(packet);
        }
        for index in all.iter().copied() {
            while rng.below(1000) < odds.sync && world.sync(index) {
                world.drain(index);
            }
        }
        ask(world, rng, odds);
        if world.switches.is_some() {
            pass_packets(world, rng, odds);
            turn_switches(world, rng);
        }
        fault(world, rng, odds);
        if world.wrong.is_some() {
            return;
        }
    }
}

/// Sends another attempt: mostly by a switch for reads, where there are switches.
fn again(world: &mut World, rng: &mut Rng, call: u64) {
    let is_read = world.clients.calls.get(&call).is_some_and(|call| matches!(call.what, What::Sum | What::Get));
    if world.switches.is_some() && is_read && rng.below(4) > 0 {
        world.attempt_spread(call, rng);
    } else {
        world.attempt(call);
    }
}

/// Delivers packets in flight to and from switches; most of them soon.
fn pass_packets(world: &mut World, rng: &mut Rng, odds: &Odds) {
    for _ in 0..2 {
        let packets = world.switches.as_mut().map(|switches| std::mem::take(&mut switches.wire)).unwrap_or_default();
        let mut packets = packets;
        while !packets.is_empty() {
            let packet = packets.swap_remove(rng.below(packets.len() as u64) as usize);
            let keep = rng.below(1000) < odds.late + 50;
            let copies = if rng.below(1000) < odds.double { 2 } else { 1 };
            if rng.below(1000) < odds.drop {
                continue;
            }
            for _ in 1..copies {
                let chance = rng.draw() as u32;
                world.deliver_switched(packet.clone(), chance);
            }
            match &mut world.switches {
                Some(switches) if keep => switches.wire.push(packet),
                _ => world.deliver_switched(packet, rng.draw() as u32),
            }
        }
    }
}

/// Restarts and replaces switches, and sets tables by some member's knowledge.
fn turn_switches(world: &mut World, rng: &mut Rng) {
    let living = world.living();
    let Some(member) = (!living.is_empty()).then(|| living[rng.below(living.len() as u64) as usize]) else { return };
    if rng.below(1000) < 300 {
        let current = world.switches.as_ref().map_or(0, |switches| switches.current);
        let at = if rng.below(4) == 0 { 1 - current } else { current };
        world.set_tables(at, member);
    }
    if rng.below(1000) < 8
        && let Some(switches) = &mut world.switches
    {
        switches.restart(rng.below(2) as usize);
    }
    if rng.below(1000) < 4
        && let Some(switches) = &mut world.switches
    {
        switches.current = 1 - switches.current;
    }
    let wants = world.free_leader().is_some_and(|leader| {
        let switch = world.group(leader).state().switch;
        !switch.is_on() || !world.is_fit(switch.id)
    });
    if rng.below(1000) < if wants { 100 } else { 8 }
        && let Some(leader) = world.free_leader()
    {
        let on = wants || rng.below(5) > 0;
        world.change_switch(leader, on);
    }
}

fn ask(world: &mut World, rng: &mut Rng, odds: &Odds) {
    while world.clients.keys() < 6 {
        let sums = world.clients.keys().is_multiple_of(2);
        world.clients.add_key(sums);
    }
    let calls: Vec<u64> = world.clients.calls.keys().copied().collect();
    for call in calls {
        let (tries, idle) = world.clients.tries(call);
        let Some((origin, run)) = world.clients.calls.get(&call).map(|call| (call.origin, call.run)) else { continue };
        let gone = world.index(origin).is_none_or(|index| world.peers[index].run != run);
        if gone || tries > 25 {
            let place = world.clients.calls[&call].key;
            world.clients.give_up(call);
            if world.clients.is_lost(place) {
                world.clients.add_key(false);
            }
        } else if rng.below(1000) < if idle { 200 } else { 30 } {
            again(world, rng, call);
        }
    }
    if rng.below(1000) >= odds.ask {
        return;
    }
    let living = world.living();
    let usable: Vec<usize> = (0..world.clients.keys())
        .filter(|place| world.clients.is_free(*place) && world.clients.bits(*place) < 60)
        .collect();
    if living.is_empty() || usable.is_empty() {
        return;
    }
    if world.clients.keys() < 40 && rng.below(50) == 0 {
        let sums = rng.below(2) == 0;
        world.clients.add_key(sums);
    }
    let place = usable[rng.below(usable.len() as u64) as usize];
    let index = living[rng.below(living.len() as u64) as usize];
    let (read, chance) = (rng.below(3) == 0, rng.draw());
    let spread = world.switches.is_some() && read && rng.below(4) > 0;
    match world.begin(index, place, read, chance) {
        Some(call) if spread => world.attempt_spread(call, rng),
        Some(call) => world.attempt(call),
        None => {}
    }
}

fn fault(world: &mut World, rng: &mut Rng, odds: &Odds) {
    let count = world.peers.len() as u64;
    let one = rng.below(count) as usize;
    if rng.below(1000) < odds.crash {
        let note = format!("{} {one}: crashes", world.now / 1000);
        if world.peers[one].group.is_some() {
            world.notes.push(note);
            if world.rules.torn && rng.below(2) == 0 {
                let lost = one == 0 && world.peers[0].node.incarnation.0 == 1;
                world.notes.push(format!("{} {one}: its journal is bad, lost {lost}", world.now / 1000));
                world.tear(one, lost);
            } else {
                world.crash(one);
            }
        }
    }
    for index in 0..world.peers.len() {
        if world.peers[index].down && rng.below(1000) < odds.restart {
            world.notes.push(format!("{} {index}: restarts", world.now / 1000));
            world.restart(index, false);
        }
    }
    if rng.below(1000) < odds.lose && world.peers[one].group.is_some() && world.can_lose(one) {
        world.notes.push(format!("{} {one}: loses everything", world.now / 1000));
        world.reincarnate(one);
    }
    if rng.below(1000) < odds.cut {
        let other = rng.below(count) as usize;
        world.cut.insert((one, other));
        if rng.below(2) == 0 {
            world.cut.insert((other, one));
        }
        if rng.below(4) == 0 {
            for other in 0..world.peers.len() {
                world.cut.insert((one, other));
                world.cut.insert((other, one));
            }
        }
    }
    if rng.below(1000) < odds.heal {
        world.cut.clear();
    }
    if rng.below(1000) < odds.stop {
        world.notes.push(format!("{} {one}: stops the epoch", world.now / 1000));
        world.act(one, Group::stop_epoch);
    }
    if rng.below(1000) < odds.leave && world.living().len() > 3 && world.peers[one].group.is_some() {
        world.notes.push(format!("{} {one}: leaves", world.now / 1000));
        world.act(one, |group| group.leave(false));
    }
    if let Some(leader) = world.free_leader() {
        if rng.below(1000) < odds.next {
            next(world, rng, leader);
        }
        if rng.below(1000) < odds.divide {
            let nodes = world.group(leader).state().nodes();
            let parts = 1 + rng.below(3) as u32;
            let mut one = || nodes[rng.below(nodes.len() as u64) as usize];
            let parts = (0..parts).map(|part| (KeyRange::FULL.cut_at(part, parts), one())).collect();
            let kept = world.group(leader).state().division.iter().map(|part| part.term).collect();
            world.act(leader, |group| group.propose(Entry::Division { parts, kept }));
        }
    }
}

/// Proposes other members, whether they hold data or not: recovery makes up for it.
fn next(world: &mut World, rng: &mut Rng, leader: usize) {
    let state = world.group(leader).state().clone();
    let lives = |world: &World, node: &NodeId| world.index(*node).is_some_and(|at| world.peers[at].group.is_some());
    let mut nodes = state.nodes();
    let coming: Vec<NodeId> = state.learners.iter().map(|learner| learner.node).filter(|n| lives(world, n)).collect();
    if !coming.is_empty() {
        let node = coming[rng.below(coming.len() as u64) as usize];
        nodes.retain(|known| known.peer != node.peer);
        nodes.push(node);
    }
    if rng.below(2) == 0 && nodes.len() > 1 {
        let gone = nodes.iter().position(|node| !lives(world, node)).unwrap_or(rng.below(nodes.len() as u64) as usize);
        nodes.remove(gone);
    }
    if nodes.iter().all(|node| lives(world, node)) {
        let entry = world.next(&nodes);
        world.act(leader, |group| group.propose(entry));
    }
}
