//! Duration of a change of members in the simulator, beside Scatter's Table 2. It counts from the removal of a dead member by
//! the leader, and from the moment at which a newcomer can ask. It counts until the next epoch is chosen, until all live
//! members know it, and until every key is served in it. `memory`, no service time, no keys.
//!
//! Scatter counts until the change is complete, without the transfer of data: "decided" is this. A newcomer here compares its
//! records with a primary of each sub-range before it votes, which takes round trips although there is nothing to copy:
//! "decided" leaves them out, "chosen" does not.
//!
//! ```text
//! cargo bench -p testnet --bench members
//! ```

use std::time::Duration;

use group::Group;
use node::{Durability, Node, Timing};
use overlay::NodeId;
use testnet::sim::fault::{FaultKind, Target};

use testnet::sim::{Latency, Load, Scenario, World};

/// Resolution of the measurement.
const STEP: Duration = Duration::from_micros(20);
/// Upper limit of each wait.
const PATIENCE: Duration = Duration::from_secs(30);
const RUNS: u64 = 12;

/// Leader: any member; or the member that agrees fastest with a majority, as in Scatter's §7.
#[derive(Clone, Copy, PartialEq)]
enum Leads {
    Any,
    BestPlaced,
}

fn main() {
    println!(
        "simulated, {RUNS} runs each of 4, 5 and 7 members; milliseconds from the beginning: median (least - most)"
    );
    let lan = Latency::Uniform(Duration::from_micros(150), Duration::ZERO);
    let exclusion = ["decided", "all know it", "all is served"];
    let join = ["decided", "is learner", "holds all", "chosen", "all know it", "all is served"];
    heading("exclusion, from when it is proposed", &exclusion);
    row("0.15 ms one way", lan.clone(), Leads::Any, excluded, "2.04");
    row("three sites, any leader", Latency::PaperSites, Leads::Any, excluded, "90.9");
    row("three sites, best leader", Latency::PaperSites, Leads::BestPlaced, excluded, "55.6");
    heading("join, from when the newcomer can ask", &join);
    row("0.15 ms one way", lan, Leads::Any, joined, "3.32");
    row("three sites, any leader", Latency::PaperSites, Leads::Any, joined, "208.8");
    row("three sites, best leader", Latency::PaperSites, Leads::BestPlaced, joined, "135.8");
}

fn heading(what: &str, columns: &[&str]) {
    print!("\n{what:<42}");
    columns.iter().for_each(|column| print!(" {column:>22}"));
    println!(" {:>8}", "Scatter");
}

fn row(name: &str, latency: Latency, leads: Leads, measure: impl Fn(&mut World<Node>) -> Vec<Duration>, paper: &str) {
    let mut columns: Vec<Vec<Duration>> = Vec::new();
    for run in 0..RUNS {
        let scenario = Scenario {
            hosts: [4, 5, 7][run as usize % 3],
            durability: Durability::Memory,
            latency: latency.clone(),
            timing: Timing { exclude_after: Duration::from_secs(5), ..Timing::default() },
            load: Load { clients: 0, ..Load::default() },
            // Silence alone tells of a death.
            notices_lost: 1000,
            ..Scenario::calm(run)
        };
        let mut world = World::new(scenario);
        assert!(world.run_until_ready(PATIENCE), "{:?}", world.failure());
        world.run_for(Duration::from_secs(5));
        if leads == Leads::BestPlaced {
            place_leader(&mut world);
        }
        let times = measure(&mut world);
        columns.resize(times.len(), Vec::new());
        columns.iter_mut().zip(times).for_each(|(column, time)| column.push(time));
    }
    print!("{name:<36}");
    columns.iter_mut().for_each(|column| print!(" {:>22}", spread(column)));
    println!(" {paper:>8}");
}

fn spread(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    format!("{:.2} ({:.2} - {:.2})", ms(times[times.len() / 2]), ms(times[0]), ms(times[times.len() - 1]))
}

/// Returns the time of a message from a member to a majority, the member itself counted.
fn agreement(host: usize, hosts: usize) -> Duration {
    let one_way = |to| if to == host { Duration::ZERO } else { Latency::PaperSites.between(host, to).0 };
    let mut ways: Vec<Duration> = (0..hosts).map(one_way).collect();
    ways.sort_unstable();
    ways[hosts / 2]
}

/// Lets other members lead until a best placed one does.
fn place_leader(world: &mut World<Node>) {
    let count = world.hosts();
    let least = (0..count).map(|host| agreement(host, count)).min().expect("some");
    for _ in 0..100 {
        let Some(leader) = (0..count).find(|host| leads(world, *host)) else {
            world.run_for(Duration::from_millis(100));
            continue;
        };
        if agreement(leader, count) == least {
            world.run_for(Duration::from_secs(5));
            return;
        }
        let asleep = world.inject(FaultKind::Suspend(Target::Host(leader)));
        let led = |world: &World<Node>| (0..count).any(|host| host != leader && leads(world, host));
        wait(world, led);
        world.undo(asleep);
        world.run_for(Duration::from_secs(2));
    }
    panic!("the best placed member never led");
}

/// A member dies, and is removed.
fn excluded(world: &mut World<Node>) -> Vec<Duration> {
    let hosts = hosts(world);
    let victim = *hosts.iter().find(|host| !leads(world, **host)).expect("not all lead");
    let node = group(world, victim).expect("it is in").me();
    world.inject(FaultKind::Crash(Target::Host(victim)));
    let others: Vec<usize> = hosts.iter().copied().filter(|host| *host != victim).collect();
    let is_out = |group: &Group| !group.state().is_member(node);
    // The last proposal of the leader before the member is out.
    let (mut begin, mut was_busy) = (world.now(), true);
    while !others.iter().any(|host| group(world, *host).is_some_and(is_out)) {
        let busy = leader(world).is_some_and(|group| group.log().is_busy());
        if busy && !was_busy {
            begin = world.now();
        }
        was_busy = busy;
        world.run_for(STEP);
    }
    settle(world, begin, &others, |members| !members.contains(&node)).to_vec()
}

/// A member that lost everything comes back as a newcomer: counted from the moment at which it can first ask.
fn joined(world: &mut World<Node>) -> Vec<Duration> {
    let hosts = hosts(world);
    let victim = *hosts.iter().find(|host| !leads(world, **host)).expect("not all lead");
    let old = group(world, victim).expect("it is in").me();
    let others: Vec<usize> = hosts.iter().copied().filter(|host| *host != victim).collect();
    let gone = world.inject(FaultKind::Lose(Target::Host(victim)));
    wait(world, |world| others.iter().all(|host| group(world, *host).is_some_and(|g| !g.state().is_member(old))));
    world.run_for(Duration::from_secs(3));
    world.undo(gone);
    wait(world, |world| world.host(victim).is_some_and(Node::is_connected));
    let begin = world.now();
    let is_newcomer = |node: &NodeId| node.peer == old.peer && *node != old;
    let is_learner = |group: &Group| group.state().learners.iter().any(|learner| is_newcomer(&learner.node));
    wait(world, |world| leader(world).is_some_and(is_learner));
    let learner = world.now().since(begin);
    world.run_for(STEP);
    wait(world, |world| leader(world).is_some_and(|group| group.log().is_busy() || !is_learner(group)));
    let holds = world.now().since(begin);
    let [chosen, known, served] = settle(world, begin, &hosts, |members| members.iter().any(is_newcomer));
    vec![chosen + learner - holds, learner, holds, chosen, known, served]
}

/// Returns the times until the leader knows such members, until all these hosts do, and until each sub-range is served by one
/// of them.
fn settle(
    world: &mut World<Node>,
    begin: overlay::time::Time,
    hosts: &[usize],
    members: impl Fn(&[NodeId]) -> bool,
) -> [Duration; 3] {
    let knows = |world: &World<Node>, host: &usize| group(world, *host).is_some_and(|g| members(&g.state().nodes()));
    wait(world, |world| hosts.iter().any(|host| knows(world, host)));
    let chosen = world.now();
    wait(world, |world| hosts.iter().all(|host| knows(world, host)));
    let known = world.now();
    wait(world, |world| hosts.iter().all(|host| knows(world, host)) && serves(world, hosts));
    [chosen, known, world.now()].map(|time| time.since(begin))
}

fn leader(world: &World<Node>) -> Option<&Group> {
    (0..world.hosts()).filter_map(|host| group(world, host)).find(|group| group.log().leads())
}

fn serves(world: &World<Node>, hosts: &[usize]) -> bool {
    let Some(state) = group(world, hosts[0]).map(Group::state) else { return false };
    let served = |ballot| {
        let by = |host: &usize| {
            group(world, *host)
                .is_some_and(|g| g.primaries().any(|primary| primary.ballot() == ballot && primary.is_serving()))
        };
        hosts.iter().any(by)
    };
    state.parts().all(|(_, ballot)| served(ballot))
}

fn hosts(world: &World<Node>) -> Vec<usize> {
    (0..world.hosts()).collect()
}

fn group(world: &World<Node>, host: usize) -> Option<&Group> {
    world.host(host).and_then(Node::group)
}

fn leads(world: &World<Node>, host: usize) -> bool {
    group(world, host).is_some_and(|group| group.log().leads())
}

fn wait(world: &mut World<Node>, until: impl Fn(&World<Node>) -> bool) {
    let end = world.now() + PATIENCE;
    while !until(world) {
        assert!(world.now() < end, "it does not come to it: {:?}", world.failure());
        world.run_for(STEP);
    }
}
