//! Three real daemons behind a switch in software. The switch, its controller and the daemons die and come back, alone and
//! together, while clients read and write through all daemons.
//!
//! `SCATTER_LONG=1` makes each part run for a minute.

use std::sync::Arc;
use std::time::{Duration, Instant};

use testnet::live::{
    Cluster, ClusterOptions, Control, Habits, Keys, LiveLoad, Recorder, SLACK, SoftSwitch, is_long, short_or,
    switch_program,
};

/// Longest time until members answer reads, after the last fault. A controller finds out within a second or two, and grants are
/// a second long.
const OFFLOADED_MAX: Duration = Duration::from_secs(10);
/// Time between two restarts of the switch.
const RESTART_EVERY: Duration = Duration::from_secs(3);

struct Rack {
    cluster: Cluster,
    switch: SoftSwitch,
    control: Control,
    recorder: Arc<Recorder>,
    load: LiveLoad,
    /// Directory of the logs; removed when the value is dropped, unless the test panics.
    _logs: Logs,
}

struct Logs(std::path::PathBuf);

impl Drop for Logs {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("logs of the switch and its controller stay in {}", self.0.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

fn start(test: &str, daemons: usize) -> Rack {
    let logs = std::env::temp_dir().join(format!("scatter-switched-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&logs).expect("a place for logs");
    let mut switch = SoftSwitch::new(switch_program(), &logs.join("switch"));
    switch.start();
    let packets = switch.packets.to_string();
    let flags = ["--switch", &packets, "--cluster", "hall", "--max-memory", "64MiB"].map(str::to_owned).to_vec();
    let options = ClusterOptions { daemons, coarse: true, leases: true, flags, ..ClusterOptions::default() };
    let cluster = Cluster::start(test, &options);
    let mut control = Control::new(switch_program(), &logs.join("control"), &switch, &cluster.daemons);
    control.start();
    cluster.wait_offloaded(&cluster.all(), OFFLOADED_MAX * SLACK).unwrap_or_else(|why| panic!("{why}"));
    let recorder = Arc::new(Recorder::default());
    let keys = Keys { count: 6, ..Keys::default() };
    let habits = Habits { clients: 9, pause: Duration::from_millis(1), keys, ..Habits::default() };
    let load = LiveLoad::start_as(&recorder, &cluster.endpoints(), &habits);
    Rack { cluster, switch, control, recorder, load, _logs: Logs(logs) }
}

impl Rack {
    fn alone(&self) -> Vec<u64> {
        self.cluster.daemons.iter().map(testnet::live::Daemon::answered_alone).collect()
    }

    /// Waits until reads are spread, and each of these daemons has answered some of them alone.
    fn spread(&self, which: &[usize]) {
        let began = Instant::now();
        let all = self.cluster.wait_offloaded(which, OFFLOADED_MAX * SLACK);
        let ids = all.unwrap_or_else(|why| panic!("{why}"));
        let before = self.alone();
        let until = Instant::now() + OFFLOADED_MAX * SLACK;
        while which.iter().any(|index| self.alone()[*index] <= before[*index] + 20) {
            assert!(Instant::now() < until, "reads are not spread: {before:?}, then {:?}", self.alone());
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("{:?}: members answer reads again under {ids:?} after {:.1?}", self.alone(), began.elapsed());
    }

    fn judge(self) {
        self.load.stop();
        self.recorder.judge_everywhere(&self.cluster.endpoints());
        println!("{} operations were answered, and all of that has an order", self.recorder.answered());
        assert!(self.recorder.answered() > 1_000, "too little was answered: {}", self.recorder.answered());
    }
}

#[test]
fn a_switch_that_is_started_again_every_three_seconds() {
    let mut rack = start("restarts", 3);
    rack.spread(&[0, 1, 2]);
    let until = Instant::now() + short_or(20, 60);
    while Instant::now() < until {
        std::thread::sleep(RESTART_EVERY);
        rack.switch.kill();
        rack.switch.start();
    }
    rack.spread(&[0, 1, 2]);
    // As before when the switch is gone for good, after one grant at most.
    rack.switch.kill();
    let answered = rack.recorder.answered();
    std::thread::sleep(Duration::from_secs(2));
    rack.cluster.wait_serving(&[0, 1, 2], Duration::from_secs(5) * SLACK);
    std::thread::sleep(Duration::from_secs(2));
    assert!(rack.recorder.answered() > answered + 500, "without the switch little is answered");
    rack.judge();
}

#[test]
fn switch_members_and_controller_die_alone_and_together() {
    let mut rack = start("failures", 5);
    let all = rack.cluster.all();
    rack.spread(&all);
    for round in 0..if is_long() { 4 } else { 1 } {
        // The controller alone: no client notices that.
        rack.control.kill();
        std::thread::sleep(Duration::from_secs(1));
        rack.spread(&all);
        // A member, while no controller tells the switch.
        rack.cluster.kill(3);
        std::thread::sleep(Duration::from_secs(2));
        rack.control.start();
        rack.spread(&[0, 1, 2, 4]);
        rack.cluster.restart(3);
        rack.cluster.wait_ready(3);
        rack.spread(&all);
        // All at once.
        rack.switch.kill();
        rack.control.kill();
        rack.cluster.kill(4);
        std::thread::sleep(Duration::from_millis(500));
        rack.switch.start();
        rack.cluster.restart(4);
        rack.control.start();
        rack.cluster.wait_ready(4);
        rack.spread(&all);
        println!("round {round} is over");
    }
    rack.judge();
}

/// Another switch, with a controller of its own, for one of the daemons: both controllers take the group for theirs.
#[test]
fn two_switches_at_once() {
    let mut rack = start("two", 3);
    let logs = rack._logs.0.clone();
    let mut other = SoftSwitch::new(switch_program(), &logs.join("other"));
    other.start();
    let flags = &mut rack.cluster.daemons[2].flags;
    let place = flags.iter().position(|flag| *flag == rack.switch.packets.to_string()).expect("it was named");
    flags[place] = other.packets.to_string();
    rack.cluster.kill(2);
    rack.cluster.restart(2);
    rack.cluster.wait_ready(2);
    let mut control = Control::new(switch_program(), &logs.join("other-control"), &other, &rack.cluster.daemons);
    control.start();
    std::thread::sleep(short_or(15, 60));
    // One of them goes, and all is as before.
    control.kill();
    other.kill();
    let place = rack.cluster.daemons[2].flags.iter().position(|flag| *flag == other.packets.to_string());
    rack.cluster.daemons[2].flags[place.expect("just put there")] = rack.switch.packets.to_string();
    rack.cluster.kill(2);
    rack.cluster.restart(2);
    rack.cluster.wait_ready(2);
    rack.spread(&[0, 1, 2]);
    rack.judge();
}
