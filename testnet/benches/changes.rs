//! Durations of transactions between groups in the simulator, without faults and without data: split, merge, repartition and
//! migrate, beside Scatter's Table 2 and RECODE's Table I. `memory`, no service time, rings of groups of three to five members,
//! while clients read and write.
//!
//! - *decided*: the coordinator's group knows its outcome, counted from the moment at which its leader proposes to begin.
//! - *taken*: a primary takes operations at each place in the new groups: an answer comes after the round that it always needs.
//! - *served*: and a majority has accepted the base of that primary: answers may leave.
//! - *over*: and every other group knows the outcome, too: no lock is left.
//! - *unserved*: from *decided* to *served*.
//! - *pause*: the longest extra wait of a client, also of one that had asked the wrong group, and asks again.
//!
//! With 0.15 ms one way and nothing else that takes time, a message delay is 0.15 ms. RECODE's Table I has for Scatter
//! `4 + 3g + 2g` delays, and `2 + 2 + g` of them unavailable; an agreement in a group is g = 2, so 14 and 6.
//!
//! ```text
//! cargo bench -p testnet --bench changes
//! ```

use std::time::Duration;

use group::Group;
use group::data::Primary;
use node::{Durability, Node};
use overlay::time::Time;
use overlay::{Epoch, Point};
use testnet::rng::Rng;
use testnet::sim::fault::{FaultKind, Target};
use testnet::sim::{Latency, Load, Scenario, World};

/// One-way delay, where only that takes time.
const ONE_WAY: Duration = Duration::from_micros(150);
/// Upper limit of each wait.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two changes.
const CALM: Duration = Duration::from_secs(4);
const RUNS: u64 = 16;

/// Leaders of groups: any member; or, as by policy, the member that agrees fastest with a majority (Scatter §6.2).
#[derive(Clone, Copy, PartialEq)]
enum Leads {
    Any,
    BestPlaced,
}

#[derive(Clone, Copy, PartialEq)]
enum Change {
    Split,
    Merge,
    Migrate,
    Repartition,
}

/// Durations since the change was begun.
struct Times {
    decided: Duration,
    taken: Duration,
    served: Duration,
    over: Duration,
    unserved: Duration,
    pause: Duration,
}

fn main() {
    println!("simulated; milliseconds from the beginning: median (least - most)\n");
    print!("{:<38}", "");
    ["decided", "taken", "served", "over", "unserved", "pause"].iter().for_each(|column| print!(" {column:>24}"));
    println!(" {:>8}", "Scatter");
    let lan = Latency::Uniform(ONE_WAY, Duration::ZERO);
    let changes = [
        (Change::Split, "split", ["4.01", "246.5", "178.5"]),
        (Change::Merge, "merge", ["4.79", "307.6", "200.7"]),
        (Change::Repartition, "repartition", ["-"; 3]),
        (Change::Migrate, "migrate", ["-"; 3]),
    ];
    let settings = [
        ("0.15 ms one way", lan, Leads::Any),
        ("three sites, any leader", Latency::PaperSites, Leads::Any),
        ("three sites, best leaders", Latency::PaperSites, Leads::BestPlaced),
    ];
    for (change, name, papers) in changes {
        for ((setting, latency, leads), paper) in settings.iter().zip(papers) {
            row(&format!("{name}, {setting}"), change, latency, *leads, paper);
        }
    }
}

fn row(name: &str, change: Change, latency: &Latency, leads: Leads, paper: &str) {
    let times: Vec<Times> = (0..RUNS).map(|run| measure(run, change, latency, leads)).collect();
    print!("{name:<38}");
    let columns: [fn(&Times) -> Duration; 6] =
        [|t| t.decided, |t| t.taken, |t| t.served, |t| t.over, |t| t.unserved, |t| t.pause];
    let mut delays = Vec::new();
    for column in columns {
        let mut all: Vec<Duration> = times.iter().map(column).collect();
        all.sort_unstable();
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let median = all[all.len() / 2];
        print!(" {:>24}", format!("{:.2} ({:.2} - {:.2})", ms(median), ms(all[0]), ms(all[all.len() - 1])));
        delays.push(median.as_secs_f64() / ONE_WAY.as_secs_f64());
    }
    println!(" {paper:>8}");
    if matches!(latency, Latency::Uniform(..)) {
        print!("{:<38}", "  in message delays");
        delays.iter().for_each(|delay| print!(" {delay:>24.1}"));
        println!(" {:>8}", "14 and 6");
    }
}

fn measure(run: u64, change: Change, latency: &Latency, leads: Leads) -> Times {
    let mut rng = Rng::new(run, "changes");
    let mut scenario = Scenario {
        hosts: [9, 12, 15][run as usize % 3],
        durability: Durability::Memory,
        latency: latency.clone(),
        members: (1, 1_000),
        load_time: (Duration::ZERO, Duration::ZERO),
        sync_time: (Duration::ZERO, Duration::ZERO),
        load: Load { clients: 8, operations_max: u64::MAX, patience: Duration::from_secs(3), ..Load::default() },
        ..Scenario::calm(run)
    };
    // The change that the policy asks for comes soon, or never.
    let wait = if leads == Leads::BestPlaced { Duration::from_secs(1) } else { PATIENCE * 100 };
    scenario.timing.resize_after = wait;
    // Copies before a transaction are not measured.
    scenario.timing.copy_patience = Duration::ZERO;
    let hosts = scenario.hosts;
    let mut world = World::<Node>::new(scenario);
    assert!(world.run_until_ready(PATIENCE), "{:?}", world.failure());
    world.run_for(Duration::from_secs(5));
    // Three groups of a third each; for a split, two: of a third, and of the rest.
    become_other(&mut world, &mut rng, Change::Split, hosts / 3, hosts);
    if change != Change::Split {
        become_other(&mut world, &mut rng, Change::Split, hosts / 3, hosts - hosts / 3);
    }
    let size = if change == Change::Split { hosts - hosts / 3 } else { hosts / 3 };
    if leads == Leads::BestPlaced {
        wait_for_leaders(&mut world);
    }
    become_other(&mut world, &mut rng, change, hosts / 3, size)
}

/// Makes a group of this size another; a split moves `first` members to the first half.
fn become_other(world: &mut World<Node>, rng: &mut Rng, change: Change, first: usize, size: usize) -> Times {
    let leads = |host: &usize| {
        own(world, *host).is_some_and(|group| group.log().leads() && group.state().members.len() == size)
    };
    let coordinator = (0..world.hosts()).find(leads).expect("some group is of this size, and led");
    let before = highest(world);
    let old = own(world, coordinator).map(|group| (group.state().id, group.state().born)).expect("just seen");
    let began = begin(world, FaultKind::Reform(Target::Host(coordinator), chance(rng, change, first, size)));
    let is_other =
        |world: &World<Node>| own(world, coordinator).map(|group| (group.state().id, group.state().born)) != Some(old);
    let decided = wait(world, is_other).since(began);
    let taken = wait(world, |world| is_everywhere(world, before, Primary::takes_operations)).since(began);
    let served = wait(world, |world| is_everywhere(world, before, Primary::is_serving)).since(began);
    let over = wait(world, |world| groups(world).all(|group| group.state().transactions.is_calm())).since(began);
    world.run_for(CALM);
    assert!(world.failure().is_none(), "{:?}", world.failure());
    Times { decided, taken, served, over, unserved: served - decided, pause: pause(world, began, over) }
}

/// Begins the change, once nothing stands against it. Returns the time at which it began.
fn begin(world: &mut World<Node>, reform: FaultKind) -> Time {
    let begun = |world: &World<Node>| world.marks.count("fault: a group becomes another");
    let before = begun(world);
    let end = world.now() + PATIENCE;
    loop {
        let now = world.now();
        let _ = world.inject(reform);
        if begun(world) > before {
            return now;
        }
        assert!(now < end, "nothing begins within {PATIENCE:?}");
        world.run_for(Duration::from_millis(50));
    }
}

/// Returns the number with which [`FaultKind::Reform`] makes this change: see there.
fn chance(rng: &mut Rng, change: Change, first: usize, size: usize) -> u64 {
    let part = |chance: u64, shift: u32, of: usize| (chance >> shift) as usize % of;
    let means = |chance: u64| match change {
        Change::Split => chance % 5 < 2 && 1 + part(chance, 8, size) == first,
        Change::Merge => chance % 5 == 2,
        // One member moves.
        Change::Migrate => chance % 5 == 3 && part(chance, 8, size) == 1 && part(chance, 24, size) == 0,
        Change::Repartition => chance % 5 == 4,
    };
    loop {
        let chance = rng.below(u64::MAX);
        if means(chance) {
            return chance;
        }
    }
}

fn own(world: &World<Node>, host: usize) -> Option<&Group> {
    world.host(host)?.group()
}

fn groups(world: &World<Node>) -> impl Iterator<Item = &Group> {
    (0..world.hosts()).filter_map(|host| world.host(host)).flat_map(Node::groups)
}

/// Returns the highest epoch in which a group began.
fn highest(world: &World<Node>) -> Epoch {
    groups(world).map(|group| group.state().born).max().expect("there are groups")
}

/// Returns whether each place belongs to a group with a primary of it for which `does` holds, and a group was born since.
fn is_everywhere(world: &World<Node>, before: Epoch, does: fn(&Primary) -> bool) -> bool {
    if highest(world) <= before {
        return false;
    }
    let points = (0..256).map(|n: u128| Point(n << 120 | 1));
    points.into_iter().all(|point| {
        let owners = || groups(world).filter(|group| group.state().range.contains(point));
        let born = owners().map(|group| group.state().born).max();
        owners()
            .filter(|group| Some(group.state().born) == born)
            .any(|group| group.primaries().any(|primary| does(primary) && primary.range().contains(point)))
    })
}

/// Returns the longest extra wait of the clients that asked at that time.
fn pause(world: &World<Node>, began: Time, over: Duration) -> Duration {
    let end = began + over + Duration::from_millis(200);
    let asked = world.history().operations.iter().filter(|operation| operation.invoked.time <= end);
    let waited = |operation: &testnet::history::Operation| {
        let completed = operation.completed.map_or(world.now(), |completed| completed.time);
        (completed >= began).then(|| completed.since(operation.invoked.time))
    };
    let mut all: Vec<Duration> = asked.filter_map(waited).collect();
    all.sort_unstable();
    let (Some(usual), Some(most)) = (all.get(all.len() / 2), all.last()) else { return Duration::ZERO };
    most.saturating_sub(*usual)
}

/// Steps until the condition holds. Returns the time at which it does.
fn wait(world: &mut World<Node>, until: impl Fn(&World<Node>) -> bool) -> Time {
    let end = world.now() + PATIENCE;
    while !until(world) {
        assert!(world.now() < end, "it takes longer than {PATIENCE:?}");
        assert!(world.step(), "{:?}", world.failure());
    }
    world.now()
}

/// Returns the time of a message from a member to a majority of these members, the member itself counted.
fn agreement(host: usize, members: &[usize]) -> Duration {
    let one_way = |to: &usize| if *to == host { Duration::ZERO } else { Latency::PaperSites.between(host, *to).0 };
    let mut ways: Vec<Duration> = members.iter().map(one_way).collect();
    ways.sort_unstable();
    ways[members.len() / 2]
}

/// Waits until in each group the best placed member leads, or nearly the best: measured round trips decide.
fn wait_for_leaders(world: &mut World<Node>) {
    for _ in 0..30 {
        world.run_for(CALM);
        if !(0..world.hosts()).any(|host| is_badly_placed(world, host)) {
            return;
        }
    }
    panic!("the best placed members never led");
}

fn is_badly_placed(world: &World<Node>, host: usize) -> bool {
    let Some(group) = own(world, host).filter(|group| group.log().leads()) else { return false };
    let nodes = group.state().nodes();
    let of_group = |host: &usize| world.host(*host).is_some_and(|node| nodes.contains(&node.id()));
    let members: Vec<usize> = (0..world.hosts()).filter(of_group).collect();
    let least = members.iter().map(|member| agreement(*member, &members)).min();
    least.is_some_and(|least| agreement(host, &members) > least + least / 4)
}
