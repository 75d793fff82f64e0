//! Twelve real daemons in groups of three to five that split, merge, move their boundaries and trade members, by themselves and
//! by hand. Meanwhile daemons are killed and started again, and clients work through all of them.
//!
//! `SCATTER_BIN` names the daemon's binary; without it, it is built. `SCATTER_LONG=1` makes the test run for five minutes.
//! `SCATTER_SEED` chooses other events; no seed determines their exact times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use testnet::live::{Cluster, ClusterOptions, Habits, LiveLoad, Recorder, SLACK, short_or};
use testnet::rng::Rng;

const DAEMONS: usize = 12;
/// Longest time until all groups are of the right size, and at rest.
const SETTLED_MAX: Duration = Duration::from_secs(90);
/// No daemon is killed before all is well again, or before this time has passed.
const CALM_MAX: Duration = Duration::from_secs(10);

struct Ring {
    cluster: Cluster,
    rng: Rng,
    /// Counts of operations by hand: their names, and the exit codes of the command.
    asked: BTreeMap<(&'static str, i32), u32>,
    kills: u32,
}

#[test]
fn groups_become_others_under_load_and_kills() {
    let flags = ["--min-group", "3", "--max-group", "5", "--max-memory", "64MiB"].map(str::to_owned).to_vec();
    let began = Instant::now();
    let cluster =
        Cluster::start("rings", &ClusterOptions { daemons: DAEMONS, flags, ring: true, ..ClusterOptions::default() });
    println!("{DAEMONS} daemons serve after {:.1?}", began.elapsed());
    let seed = std::env::var("SCATTER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut ring = Ring { cluster, rng: Rng::new(seed, "rings"), asked: BTreeMap::new(), kills: 0 };
    ring.settle();
    println!("groups of three to five after {:.1?}", began.elapsed());
    let recorder = Arc::new(Recorder::default());
    let habits = Habits { clients: 10, pause: Duration::from_millis(10), ..Habits::default() };
    let load = LiveLoad::start_as(&recorder, &ring.cluster.endpoints(), &habits);
    let until = Instant::now() + short_or(30, 300);
    let mut turn = 0;
    while Instant::now() < until {
        ring.reform();
        turn += 1;
        if turn % 4 == 0 {
            ring.kill();
        }
    }
    let calm = Instant::now();
    ring.settle();
    load.stop();
    println!("all is at rest {:.1?} after the last of it; {} kills", calm.elapsed(), ring.kills);
    for ((operation, code), count) in &ring.asked {
        println!("{operation}: {count} ended with {code}");
    }
    let done: u32 = ring.asked.iter().filter(|((_, code), _)| *code == 0).map(|(_, count)| count).sum();
    assert!(done >= 5, "hardly anything was done");
    recorder.judge_everywhere(&ring.cluster.endpoints());
    println!("{} operations were answered, and all of that has an order", recorder.answered());
    assert!(recorder.answered() > 1_000, "too little was answered: {}", recorder.answered());
}

impl Ring {
    /// Returns a daemon's report on the groups that it has a part in.
    fn groups(&self, index: usize) -> Vec<Value> {
        let said = self.cluster.daemons[index].ask_http("/v1/groups");
        said.and_then(|mut said| serde_json::from_value(said["groups"].take()).ok()).unwrap_or_default()
    }

    /// Asks for some operation of the group that some daemon is a member of.
    fn reform(&mut self) {
        let index = self.rng.below(DAEMONS as u64) as usize;
        let groups = self.groups(index);
        let Some(own) = groups.iter().find(|group| group["part"] == "member") else { return };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (id, start, end) = (text(&own["id"]), text(&own["range"]["start"]), text(&own["range"]["end"]));
        let members: Vec<String> =
            own["members"].as_array().into_iter().flatten().map(|member| text(&member["peer_id"])).collect();
        let point = |text: &str| u128::from_str_radix(text, 16).unwrap_or_default();
        // A point in the last half of the range.
        let length = point(&end).wrapping_sub(point(&start));
        let back = (length / 2).max(2) / 1_000 * u128::from(self.rng.below(1_000) + 1);
        let at = format!("{:032x}", point(&end).wrapping_sub(back));
        let (operation, words): (_, Vec<String>) = match self.rng.below(4) {
            0 => ("split", vec![]),
            1 => ("merge", vec![]),
            2 => ("repartition", vec!["--at".into(), at]),
            _ => {
                let member = &members[self.rng.below(members.len() as u64) as usize];
                ("migrate", vec!["--to".into(), member.clone()])
            }
        };
        let mut arguments = vec!["group", operation, &id];
        arguments.extend(words.iter().map(String::as_str));
        let output = self.cluster.daemons[index].run(&arguments);
        let code = output.status.code().unwrap_or(-1);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!([0, 4, 5, 6].contains(&code), "{operation} ended with {code}: {said}");
        assert!(code == 0 || !said.trim().is_empty(), "{operation} ended with {code}, and nobody knows why");
        *self.asked.entry((operation, code)).or_default() += 1;
    }

    /// Kills a daemon, where all else is well, and starts it again.
    fn kill(&mut self) {
        let until = Instant::now() + CALM_MAX;
        while self.trouble(false).is_some() {
            if Instant::now() > until {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let index = self.rng.below(DAEMONS as u64) as usize;
        self.cluster.kill(index);
        self.kills += 1;
        std::thread::sleep(self.rng.duration(Duration::from_millis(50), Duration::from_secs(2)));
        self.cluster.restart(index);
        self.cluster.wait_ready(index);
    }

    /// Waits until all is well, as all daemons know.
    fn settle(&mut self) {
        let until = Instant::now() + SETTLED_MAX * SLACK;
        while let Some(trouble) = self.trouble(true) {
            assert!(Instant::now() < until, "it does not come to rest: {trouble}");
            std::thread::sleep(Duration::from_millis(200));
        }
        for daemon in &self.cluster.daemons {
            let output = daemon.run(&["ring"]);
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("cover the ring exactly"), "{}: {text}", daemon.name);
        }
    }

    /// Returns a reason why not all is well. All is well where each daemon is a member of one group, which is established, and
    /// knows of no open transaction. With `sizes`, groups must also have the right number of members, and cover the ring.
    fn trouble(&self, sizes: bool) -> Option<String> {
        let mut members = BTreeSet::new();
        for index in self.cluster.all() {
            let name = &self.cluster.daemons[index].name;
            let groups = self.groups(index);
            let [own] = groups.as_slice() else { return Some(format!("{name} has a part in {}", groups.len())) };
            let is_open = own["transactions"].as_array().is_none_or(|open| !open.is_empty());
            if own["part"] != "member" || own["established"] != true || is_open {
                return Some(format!("{name}: {own}"));
            }
            let all = own["members"].as_array()?;
            let well = |member: &&Value| member["role"] == "member" || member["role"] == "leader";
            if sizes && !(3..=5).contains(&all.len()) || !all.iter().all(|member| well(&member)) {
                return Some(format!("{name}: {own}"));
            }
            members.extend(all.iter().map(|member| member["peer_id"].to_string()));
        }
        let ring = self.cluster.daemons[0].ask_http("/v1/ring").unwrap_or_default();
        match members.len() == DAEMONS && ring["whole"] == true {
            true => None,
            false => Some(format!("{} members; {ring}", members.len())),
        }
    }
}
