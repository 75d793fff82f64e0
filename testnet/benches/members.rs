//! How long a change of members takes in the simulator, without data to copy, beside Scatter's Table 2: from when a
//! majority suspects a member that died, and from when a newcomer asks, until the next epoch is known to all that live,
//! and until every key is served in it. `memory`, no service time.
//!
//! ```text
//! cargo bench -p testnet --bench members
//! ```

use std::time::Duration;

use group::Group;
use node::{Durability, Node, Timing};
use overlay::NodeId;
use testnet::sim::fault::{Kind, Target};

use testnet::sim::{Latency, Load, Scenario, World};

/// How finely time is looked at.
const STEP: Duration = Duration::from_micros(20);
/// Longer than this nothing takes.
const PATIENCE: Duration = Duration::from_secs(30);
const RUNS: u64 = 12;

fn main() {
    println!("simulated, {RUNS} runs each of 4, 5 and 7 members; milliseconds: median (least - most)");
    println!("{:<34} {:>24} {:>24} {:>10}", "", "next epoch known", "all served in it", "Scatter");
    let lan = || Latency::Uniform(Duration::from_micros(150), Duration::ZERO);
    let sites = || Latency::PaperSites;
    row("exclusion, 0.15 ms one way", lan, excluded, "2.04");
    row("join, 0.15 ms one way", lan, joined, "3.32");
    row("exclusion, three sites", sites, excluded, "55.6");
    row("join, three sites", sites, joined, "135.8");
}

/// Until the next epoch is known, and until all is served in it.
type Times = (Duration, Duration);

fn row(name: &str, latency: impl Fn() -> Latency, measure: impl Fn(&mut World<Node>) -> Times, paper: &str) {
    let (mut known, mut served) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        let hosts = [4, 5, 7][run as usize % 3];
        let scenario = Scenario {
            hosts,
            durability: Durability::Memory,
            latency: latency(),
            timing: Timing { exclude_after: Timing::default().heartbeat * 4, ..Timing::default() },
            load: Load { clients: 0, ..Load::default() },
            // Silence alone tells.
            notices_lost: 1000,
            ..Scenario::calm(run)
        };
        let mut world = World::new(scenario);
        assert!(world.run_until_ready(PATIENCE), "{:?}", world.failure());
        world.run_for(Duration::from_secs(5));
        let times = measure(&mut world);
        known.push(times.0);
        served.push(times.1);
    }
    println!("{name:<34} {:>24} {:>24} {paper:>10}", spread(&mut known), spread(&mut served));
}

fn spread(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    format!("{:.2} ({:.2} - {:.2})", ms(times[times.len() / 2]), ms(times[0]), ms(times[times.len() - 1]))
}

/// A member dies: from when a majority of the others suspects it.
fn excluded(world: &mut World<Node>) -> Times {
    let hosts = hosts(world);
    let victim = *hosts.iter().find(|host| !leads(world, **host)).expect("not all lead");
    let node = group(world, victim).expect("it is in").me();
    world.inject(Kind::Crash(Target::Host(victim)));
    let others: Vec<usize> = hosts.iter().copied().filter(|host| *host != victim).collect();
    let suspects =
        |world: &World<Node>, host: usize| group(world, host).is_some_and(|group| !group.hears().contains(&node));
    wait(world, |world| others.iter().filter(|host| suspects(world, **host)).count() > hosts.len() / 2);
    settle(world, &others, |members| !members.contains(&node))
}

/// A member that lost everything comes back as a newcomer: from when it can first ask.
fn joined(world: &mut World<Node>) -> Times {
    let hosts = hosts(world);
    let victim = *hosts.iter().find(|host| !leads(world, **host)).expect("not all lead");
    let old = group(world, victim).expect("it is in").me();
    let others: Vec<usize> = hosts.iter().copied().filter(|host| *host != victim).collect();
    let gone = world.inject(Kind::Lose(Target::Host(victim)));
    wait(world, |world| others.iter().all(|host| group(world, *host).is_some_and(|g| !g.state().is_member(old))));
    world.run_for(Duration::from_secs(3));
    world.undo(gone);
    wait(world, |world| world.host(victim).is_some_and(Node::is_connected));
    settle(world, &hosts, |members| members.iter().any(|node| node.peer == old.peer && *node != old))
}

/// From now until these all know of such members, and until each sub-range is served by one of them.
fn settle(world: &mut World<Node>, hosts: &[usize], members: impl Fn(&[NodeId]) -> bool) -> Times {
    let begin = world.now();
    let knows = |world: &World<Node>, host: &usize| group(world, *host).is_some_and(|g| members(&g.state().nodes()));
    wait(world, |world| hosts.iter().all(|host| knows(world, host)));
    let known = world.now().since(begin);
    wait(world, |world| hosts.iter().all(|host| knows(world, host)) && serves(world, hosts));
    (known, world.now().since(begin))
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
