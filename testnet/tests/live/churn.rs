//! Ten real daemons that come and go under load: they are killed and started again, frozen, replaced by empty ones, and leave.
//! Never so many are away at a time that the group cannot go on, as far as its members tell.
//!
//! `SCATTER_BIN` names the daemon's binary; without it, it is built. `SCATTER_LONG=1` makes the test run for five minutes.
//! `SCATTER_SEED` chooses other events; no seed determines their exact times.

use std::sync::Arc;
use std::time::{Duration, Instant};

use overlay::time::Time;
use testnet::live::{
    Cluster, ClusterOptions, GroupView, Habits, Leave, LiveLoad, Recorder, SLACK, Signal, is_long, short_or,
};
use testnet::rng::Rng;

const DAEMONS: usize = 10;
/// Number of daemons, the last ones, that are only frozen: their memory is measured over the whole time.
const SURVIVORS: usize = 2;
/// Longest time until a started daemon is a member, and until a leaving one has gone.
const PLACED_MAX: Duration = Duration::from_secs(60);
/// Longest time until all daemons are members again, and no other peer is: a group removes only a few members within a minute.
const WHOLE_MAX: Duration = Duration::from_secs(90);
/// A member is removed after three seconds.
const PUT_OUT_AFTER: Duration = Duration::from_secs(4);
/// Growth limit of a warm process, in bytes. Its limits of records, and of recent writes, are far less.
const GROWTH_MAX: u64 = 64 << 20;
const MEMORY: &str = "64MiB";
/// A daemon that takes longer to become a member has its log printed.
const SLOW: Duration = Duration::from_secs(15);
/// Time for which clients are watched after a kill.
const WATCH: Duration = Duration::from_secs(8);

/// Stage of one of the ten daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its process was started, and the daemon is not a member yet.
    Starting,
    /// The daemon is a member.
    Up,
    /// The process is frozen until this time.
    Frozen(Instant),
    /// The daemon was killed, and is started again at this time. With `anew`, another peer starts in its place.
    Down { until: Instant, anew: bool },
    /// The daemon was asked to leave at this time.
    Leaving(Instant),
}

/// One of the ten daemons.
#[derive(Clone, Copy, Debug)]
struct Place {
    stage: Stage,
    /// Start of its process.
    since: Instant,
    /// Whether the daemon began with an empty store.
    fresh: bool,
    /// Memory of the process once it was warm, in bytes.
    warm: Option<u64>,
}

/// Figures that are printed at the end.
#[derive(Debug, Default)]
struct Figures {
    kills: Vec<Time>,
    /// End of the clients' load.
    until: Time,
    killed: usize,
    frozen: usize,
    refused: Vec<String>,
    fresh: Vec<Duration>,
    again: Vec<Duration>,
    leaves: Vec<Duration>,
    /// For each process: its age, its memory when warm, and its memory at last, in bytes.
    memory: Vec<(Duration, u64, u64)>,
}

struct Churn {
    cluster: Cluster,
    places: Vec<Place>,
    rng: Rng,
    recorder: Arc<Recorder>,
    figures: Figures,
    /// Whether the daemons know how to leave.
    can_leave: bool,
    /// The last loss of a daemon for so long that the group removes it. A group does so a few times a minute.
    lost: Option<Instant>,
}

#[test]
fn members_come_and_go_under_load() {
    let flags = vec!["--max-memory".to_owned(), MEMORY.to_owned()];
    let began = Instant::now();
    let cluster = Cluster::start("churn", &ClusterOptions { daemons: DAEMONS, flags, ..ClusterOptions::default() });
    println!("ten members after {:.1?}", began.elapsed());
    let recorder = Arc::new(Recorder::default());
    let habits = Habits { clients: 10, pause: Duration::from_millis(10), ..Habits::default() };
    let load = LiveLoad::start_as(&recorder, &cluster.endpoints(), &habits);
    let mut churn = Churn::new(cluster, recorder);
    let until = Instant::now() + short_or(25, 300);
    while Instant::now() < until {
        churn.act();
        let rest = Instant::now() + churn.rng.duration(Duration::from_millis(200), Duration::from_millis(1500));
        while Instant::now() < rest {
            churn.go_on();
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let calm = Instant::now();
    churn.settle();
    churn.figures.until = churn.recorder.now();
    load.stop();
    println!("all are members {:.1?} after the last of it", calm.elapsed());
    churn.measure_all();
    churn.figures.tell(&churn.recorder);
    churn.recorder.judge_everywhere(&churn.cluster.endpoints());
    println!("{} operations were answered, and all of that has an order", churn.recorder.answered());
    assert!(churn.recorder.answered() > 1_000, "too little was answered: {}", churn.recorder.answered());
    for (age, warm, last) in &churn.figures.memory {
        assert!(*last < warm + GROWTH_MAX, "a process grew from {warm} to {last} bytes until it was {age:?} old");
    }
}

impl Churn {
    fn new(cluster: Cluster, recorder: Arc<Recorder>) -> Churn {
        let place = Place { stage: Stage::Up, since: Instant::now(), fresh: false, warm: None };
        let seed = std::env::var("SCATTER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        let (places, rng) = (vec![place; DAEMONS], Rng::new(seed, "churn"));
        Churn { cluster, places, rng, recorder, figures: Figures::default(), can_leave: true, lost: None }
    }

    /// Returns the view of the group at the best informed daemon that is up.
    fn view(&self) -> Option<GroupView> {
        let up = |index: &usize| self.places[*index].stage == Stage::Up;
        let views = self.cluster.all().into_iter().filter(up).filter_map(|index| self.cluster.daemons[index].view());
        views.max_by_key(|view| (view.epoch, view.established))
    }

    /// Returns the daemons that are up and vote, and the number of them that may go.
    fn spare(&self, view: &GroupView) -> (Vec<usize>, usize) {
        let id = |index: usize| self.cluster.daemons[index].peer_id.as_deref();
        let votes = |index: &usize| view.voters().any(|voter| id(*index) == Some(voter));
        let up: Vec<usize> = self.cluster.all().into_iter().filter(|i| self.places[*i].stage == Stage::Up).collect();
        let up: Vec<usize> = up.into_iter().filter(votes).collect();
        let quorum = view.voters_max() / 2 + 1;
        let spare = if view.established { up.len().saturating_sub(quorum) } else { 0 };
        (up, spare)
    }

    /// Lets an event happen to one or some of the daemons, if the group can bear it.
    fn act(&mut self) {
        let Some(view) = self.view() else { return };
        let (mut up, spare) = self.spare(&view);
        if spare == 0 {
            return;
        }
        let leader = up.iter().position(|index| self.cluster.daemons[*index].peer_id == view.leader);
        let first = match leader {
            // More often than the other members.
            Some(leader) if self.rng.per_mille(250) => up.swap_remove(leader),
            _ => up.swap_remove(self.rng.below(up.len() as u64) as usize),
        };
        let may_lose = spare > 1 && self.lost.is_none_or(|lost| lost.elapsed() > short_or(12, 25));
        let survives = first >= DAEMONS - SURVIVORS;
        up.retain(|index| *index < DAEMONS - SURVIVORS);
        match self.rng.below(10) {
            _ if survives => self.freeze(first),
            0 | 1 if may_lose => self.kill(first, Duration::ZERO, true),
            2 if may_lose && is_long() => self.kill(first, PUT_OUT_AFTER, false),
            3 | 4 if spare > 1 && self.can_leave => self.leave(first),
            5 => self.freeze(first),
            _ => {
                let more = self.rng.below(spare.min(3) as u64);
                let mut victims = vec![first];
                for _ in 0..more.min(up.len() as u64) {
                    victims.push(up.swap_remove(self.rng.below(up.len() as u64) as usize));
                }
                for victim in victims {
                    let away = self.rng.duration(Duration::from_millis(100), Duration::from_secs(4));
                    self.kill(victim, away, false);
                }
            }
        }
    }

    fn kill(&mut self, index: usize, away: Duration, anew: bool) {
        self.measure(index);
        self.figures.kills.push(self.recorder.now());
        self.cluster.kill(index);
        self.figures.killed += 1;
        self.places[index].stage = Stage::Down { until: Instant::now() + away, anew };
        if anew || away >= PUT_OUT_AFTER {
            self.lost = Some(Instant::now());
        }
    }

    fn freeze(&mut self, index: usize) {
        let until = Instant::now() + self.rng.duration(Duration::from_millis(500), Duration::from_secs(4));
        self.figures.kills.push(self.recorder.now());
        self.cluster.daemons[index].signal(Signal::Freeze);
        self.figures.frozen += 1;
        self.places[index].stage = Stage::Frozen(until);
    }

    fn leave(&mut self, index: usize) {
        match self.cluster.daemons[index].leave() {
            Leave::Begun | Leave::Unanswered => self.places[index].stage = Stage::Leaving(Instant::now()),
            Leave::Refused(why) => self.figures.refused.push(why),
            Leave::Unknown => {
                println!("leaves are SKIPPED: this daemon knows none");
                self.can_leave = false;
            }
        }
    }

    /// Takes the steps that are due.
    fn go_on(&mut self) {
        let now = Instant::now();
        for index in self.cluster.all() {
            let place = self.places[index];
            match place.stage {
                Stage::Down { until, anew } if now >= until => {
                    if anew {
                        self.cluster.renew(index);
                    }
                    self.start(index, anew);
                }
                Stage::Frozen(until) if now >= until => {
                    self.cluster.daemons[index].signal(Signal::Thaw);
                    self.places[index].stage = Stage::Up;
                }
                Stage::Leaving(since) => {
                    assert!(since.elapsed() < PLACED_MAX * SLACK, "{} does not go", self.cluster.daemons[index].name);
                    if let Some(status) = self.cluster.daemons[index].wait_end(Duration::ZERO) {
                        assert!(status.success(), "it left with {status}: {}", self.cluster.daemons[index].log_text());
                        self.figures.leaves.push(since.elapsed());
                        self.cluster.renew(index);
                        self.start(index, true);
                    }
                }
                Stage::Starting | Stage::Up => {
                    let daemon = &mut self.cluster.daemons[index];
                    assert!(daemon.is_running(), "{} has ended: {}", daemon.name, daemon.log_text());
                }
                _ => {}
            }
        }
        self.place();
        for index in self.cluster.all() {
            let warm = self.places[index].warm.is_none() && self.places[index].since.elapsed() > short_or(8, 40);
            if warm && self.places[index].stage == Stage::Up {
                self.places[index].warm = Some(self.cluster.daemons[index].memory_bytes());
            }
        }
    }

    fn start(&mut self, index: usize, fresh: bool) {
        self.cluster.restart(index);
        self.places[index] = Place { stage: Stage::Starting, since: Instant::now(), fresh, warm: None };
    }

    /// Notes the daemons that have become members, or are members again.
    fn place(&mut self) {
        let mut starting = self.cluster.all();
        starting.retain(|index| self.places[*index].stage == Stage::Starting);
        starting.retain(|index| {
            let (daemon, since) = (&mut self.cluster.daemons[*index], self.places[*index].since);
            let late = since.elapsed() > PLACED_MAX * SLACK;
            assert!(!late, "{} is not a member after {:?}: {}", daemon.name, since.elapsed(), daemon.log_text());
            daemon.is_ready()
        });
        if starting.is_empty() {
            return;
        }
        let Some(view) = self.view() else { return };
        for index in starting {
            let place = self.places[index];
            if view.voters().any(|voter| self.cluster.daemons[index].peer_id.as_deref() == Some(voter)) {
                let figures = if place.fresh { &mut self.figures.fresh } else { &mut self.figures.again };
                figures.push(place.since.elapsed());
                if place.since.elapsed() > SLOW {
                    let daemon = &self.cluster.daemons[index];
                    println!("{} took {:.1?}: {}", daemon.name, place.since.elapsed(), daemon.log_text());
                }
                self.places[index].stage = Stage::Up;
            }
        }
    }

    /// Begins no other event, and waits until all daemons are members again.
    fn settle(&mut self) {
        while self.places.iter().any(|place| place.stage != Stage::Up) {
            self.go_on();
            std::thread::sleep(Duration::from_millis(50));
        }
        self.cluster.wait_members(WHOLE_MAX * SLACK);
    }

    /// Notes the growth of a process, if it was warm.
    fn measure(&mut self, index: usize) {
        let place = self.places[index];
        if let Some(warm) = place.warm {
            let last = self.cluster.daemons[index].memory_bytes();
            self.figures.memory.push((place.since.elapsed(), warm, last));
        }
    }

    fn measure_all(&mut self) {
        self.cluster.all().into_iter().for_each(|index| self.measure(index));
    }
}

impl Figures {
    fn tell(&self, recorder: &Recorder) {
        println!("{} killed, {} frozen, {} have left", self.killed, self.frozen, self.leaves.len());
        for why in &self.refused {
            println!("a leave was refused: {why}");
        }
        let gaps = self.kills.iter().map(|at| recorder.longest_wait(*at, self.until.min(*at + WATCH)));
        tell_times("longest wait of a client after a kill or a freeze", gaps.collect());
        tell_times("from its start until a new peer is a member", self.fresh.clone());
        tell_times("from its start until a peer that was killed serves as a member again", self.again.clone());
        tell_times("from being asked until a peer has left", self.leaves.clone());
        for (age, warm, last) in &self.memory {
            println!("memory: {} MiB when warm, {} MiB when {:.0?} old", warm >> 20, last >> 20, age);
        }
    }
}

fn tell_times(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    if let (Some(min), Some(max)) = (times.first(), times.last()) {
        let median = times[times.len() / 2];
        println!("{what}: median {median:.1?}, from {min:.1?} to {max:.1?}, {} in all", times.len());
    }
}
