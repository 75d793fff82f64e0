//! Real daemons behind a switch in software, on loopback: scaling of reads with members, and the cost of the switch for writes
//! (*Harmonia* §9).
//!
//! For reads, each operation keeps its member busy for 2 ms, one after the other, so that members are the limit and not this
//! machine.
//!
//! ```text
//! cargo bench -p testnet --bench switched [-- [--only reads|writes] [--seconds N] [--rounds N]]
//! ```

use std::time::Duration;

use load::{Distribution, Pace, Plan, Report};
use testnet::live::{Cluster, ClusterOptions, Control, SoftSwitch, fast_program, fast_switch_program};

/// Duration of an operation at its member.
const SERVICE: Duration = Duration::from_millis(2);
/// Number of requests under way for each daemon.
const IN_FLIGHT: usize = 16;
const KEYS: u64 = 400;
const OFFLOADED_MAX: Duration = Duration::from_secs(30);
/// Time after which daemons do not wait for a switch that is gone.
const GONE_AFTER: Duration = Duration::from_secs(4);

struct Arguments {
    only: Option<String>,
    seconds: u64,
    rounds: usize,
}

fn main() {
    let Some(arguments) = arguments() else { return };
    let run = |part: &str| arguments.only.as_deref().is_none_or(|only| only == part);
    if run("reads") {
        reads(&arguments);
    }
    if run("writes") {
        writes(&arguments);
    }
}

fn arguments() -> Option<Arguments> {
    let mut parsed = Arguments { only: None, seconds: 8, rounds: 7 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|text| text.parse().ok()).expect("a number behind it");
        match word.as_str() {
            "--only" => parsed.only = words.next(),
            "--seconds" => parsed.seconds = number(),
            "--rounds" => parsed.rounds = number() as usize,
            // `cargo test --benches` only checks that the program starts.
            "--test" => return None,
            // `cargo bench` adds it.
            "--bench" => {}
            _ => panic!("what is {word}?"),
        }
    }
    Some(parsed)
}

/// Daemons of one group, a switch, and the controller that sets its tables.
struct Rack {
    cluster: Cluster,
    switch: SoftSwitch,
    _control: Control,
}

impl Rack {
    /// Starts `daemons` members, each of which needs `service` for an operation.
    fn start(daemons: usize, service: Duration) -> Rack {
        let log = std::env::temp_dir().join(format!("scatter-bench-switch-{}", std::process::id()));
        let mut switch = SoftSwitch::new(fast_switch_program(), &log);
        switch.start();
        let packets = switch.packets.to_string();
        let flags = ["--switch", &packets, "--cluster", "hall"].map(str::to_owned).to_vec();
        let slowness =
            |index| (index, "SCATTER_TEST_SLEEP_PER_OPERATION_US".to_owned(), service.as_micros().to_string());
        let environment = if service.is_zero() { Vec::new() } else { (0..daemons).map(slowness).collect() };
        let program = Some(fast_program().to_owned());
        let options = ClusterOptions {
            daemons,
            coarse: true,
            leases: true,
            flags,
            environment,
            program,
            ..ClusterOptions::default()
        };
        let cluster = Cluster::start("bench-switched", &options);
        let mut control =
            Control::new(fast_switch_program(), &log.with_extension("control"), &switch, &cluster.daemons);
        control.start();
        Rack { cluster, switch, _control: control }
    }

    fn wait_offloaded(&self) {
        self.cluster.wait_offloaded(&self.cluster.all(), OFFLOADED_MAX).unwrap_or_else(|why| panic!("{why}"));
    }

    fn plan(&self, connections: usize, in_flight: usize, writes: f64, seconds: u64) -> Plan {
        Plan {
            connections,
            pace: Pace::Closed { in_flight },
            keys: KEYS,
            distribution: Distribution::Uniform,
            writes,
            warm_up: Duration::from_secs(2),
            duration: Duration::from_secs(seconds),
            ..Plan::new(self.cluster.daemons.iter().map(|daemon| daemon.resp).collect())
        }
    }

    fn fill(&self) {
        let filling = Plan { pace: Pace::Closed { in_flight: 4 }, ..self.plan(1, 4, 1.0, 1).filling() };
        run(&filling);
    }
}

fn run(plan: &Plan) -> Report {
    load::run(plan, || load::Resp::new(None), || ()).expect("the daemons serve")
}

/// Measures the read-only throughput of one to five members.
fn reads(arguments: &Arguments) {
    println!("reads only, {SERVICE:?} for each at its member, {IN_FLIGHT} under way for each daemon, {KEYS} keys");
    println!("{:>8} {:>10} {:>8} {:>9} {:>9}  answered alone", "members", "reads/s", "linear", "p50 ms", "p99 ms");
    let mut one = None;
    for members in 1..=5 {
        let rack = Rack::start(members, SERVICE);
        rack.fill();
        if members > 1 {
            rack.wait_offloaded();
        }
        let before: Vec<u64> = rack.cluster.daemons.iter().map(|daemon| daemon.answered_alone()).collect();
        let report = run(&rack.plan(members, IN_FLIGHT, 0.0, arguments.seconds));
        let after = rack.cluster.daemons.iter().map(|daemon| daemon.answered_alone());
        let alone: Vec<u64> = after.zip(before).map(|(after, before)| after - before).collect();
        let one = *one.get_or_insert(report.rate());
        println!(
            "{members:>8} {:>10.0} {:>8.2} {:>9.1} {:>9.1}  {alone:?}",
            report.rate(),
            report.rate() / one / members as f64,
            report.reads.quantile(0.5).as_secs_f64() * 1e3,
            report.reads.quantile(0.99).as_secs_f64() * 1e3,
        );
    }
}

/// Measures the cost of the switch for writes: the same daemons with it and without it, in turns.
fn writes(arguments: &Arguments) {
    let mut rack = Rack::start(3, Duration::ZERO);
    rack.fill();
    println!(
        "writes only, three members; medians of {} rounds with the switch and without it, in turns",
        arguments.rounds
    );
    for connections in [1, 16] {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..arguments.rounds {
            rack.wait_offloaded();
            with.push(run(&rack.plan(connections, 1, 1.0, arguments.seconds)));
            rack.switch.kill();
            std::thread::sleep(GONE_AFTER);
            without.push(run(&rack.plan(connections, 1, 1.0, arguments.seconds)));
            rack.switch.start();
        }
        let median = |reports: &[Report], share: f64| {
            let mut all: Vec<f64> =
                reports.iter().map(|report| report.writes.quantile(share).as_secs_f64() * 1e3).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
            let (with, without) = (median(&with, share), median(&without, share));
            println!(
                "{connections:>3} under way, {name}: {with:.3} ms with, {without:.3} ms without: {:.2}",
                with / without
            );
        }
    }
}
