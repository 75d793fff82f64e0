//! Several daemons of one network.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::daemon::{Daemon, Signal};
use super::gate::ClusterPermits;
use super::namespace::{Endpoint, Site};
use super::resp::Reply;

/// Time within which a daemon must serve after its start.
const START_MAX: Duration = Duration::from_secs(60);

/// Common settings of the daemons of a network.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    /// Number of daemons.
    pub daemons: usize,
    /// `--durability memory`.
    pub memory: bool,
    /// `--coarse on`.
    pub coarse: bool,
    /// `--leases on`.
    pub leases: bool,
    /// Whether they listen by QUIC, too.
    pub quic: bool,
    /// Whether they form several groups: the start does not wait until all are members of one.
    pub ring: bool,
    /// More flags for each of them.
    pub flags: Vec<String>,
    /// Environment of single daemons: `(index, name, value)`.
    pub environment: Vec<(usize, String, String)>,
    /// Directories of their data; a temporary directory if `None`.
    pub directories: Option<Vec<PathBuf>>,
    /// Sites that they run at; loopback if `None`.
    pub sites: Option<Vec<Site>>,
    /// Program of the daemons, if not [`program`](super::program).
    pub program: Option<PathBuf>,
}

/// The daemons of one network. They end when this is dropped. Their data is removed then, unless the test panics.
#[derive(Debug)]
pub struct Cluster {
    /// Daemons by number.
    pub daemons: Vec<Daemon>,
    options: ClusterOptions,
    /// Name of the network.
    network: String,
    directory: PathBuf,
    /// Number of daemons that were made anew.
    renewals: u32,
    _permits: ClusterPermits,
}

impl Cluster {
    /// Starts daemons one after another, the first with a new network, and waits until each serves and all are members. Waits first
    /// until few other clusters run in this process.
    pub fn start(test: &str, options: &ClusterOptions) -> Cluster {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let permits = ClusterPermits::wait(options.daemons);
        let unique = format!("{test}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(format!("scatter-{unique}"));
        std::fs::create_dir_all(&directory).expect("a place for data");
        let (options, renewals) = (options.clone(), 0);
        let mut cluster =
            Cluster { daemons: Vec::new(), options, network: unique, directory, renewals, _permits: permits };
        for index in 0..cluster.options.daemons {
            cluster.add();
            cluster.launch(index, index == 0);
            cluster.wait_ready(index);
        }
        if !cluster.options.ring {
            cluster.wait_members(START_MAX);
        }
        cluster
    }

    /// Adds one daemon, which is not started yet.
    fn add(&mut self) {
        let index = self.daemons.len();
        let home = match &self.options.directories {
            Some(directories) => directories[index].clone(),
            None => self.directory.join(format!("peer-{index}")),
        };
        let name = format!("peer {index}");
        let mut daemon = match &self.options.sites {
            Some(sites) => Daemon::on_site(&name, home, &self.network, &sites[index]),
            None => Daemon::new(&name, home, &self.network),
        };
        daemon.program.clone_from(&self.options.program);
        if self.options.quic {
            daemon.listen_by_quic();
        }
        if self.options.memory {
            daemon.flags.extend(["--durability".into(), "memory".into()]);
        }
        if self.options.coarse {
            daemon.flags.extend(["--coarse".into(), "on".into()]);
        }
        if self.options.leases {
            daemon.flags.extend(["--leases".into(), "on".into()]);
        }
        daemon.flags.extend(self.options.flags.iter().cloned());
        let environment = self.options.environment.iter().filter(|(which, ..)| *which == index);
        daemon.environment.extend(environment.map(|(_, name, value)| (name.clone(), value.clone())));
        self.daemons.push(daemon);
    }

    /// Starts `count` more daemons at once, which enter through the present ones, and waits for none of them.
    pub fn grow(&mut self, count: usize) {
        for index in self.daemons.len()..self.daemons.len() + count {
            self.add();
            self.launch(index, false);
        }
    }

    /// Puts another peer in the place of one whose process has ended: the new peer has no data, and is not started yet.
    pub fn renew(&mut self, index: usize) {
        self.renewals += 1;
        let (name, home) = (format!("peer {index}, made anew"), format!("peer-{index}-new-{}", self.renewals));
        self.daemons[index] = self.daemons[index].renewed(&name, self.directory.join(home));
    }

    /// Returns the numbers of all daemons.
    pub fn all(&self) -> Vec<usize> {
        (0..self.daemons.len()).collect()
    }

    /// Returns the endpoints that clients use.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.daemons.iter().map(Daemon::endpoint).collect()
    }

    /// Waits until exactly these daemons are voting members, as each of them knows.
    pub fn wait_members(&self, at_most: Duration) {
        let mut wanted: Vec<&str> = self.daemons.iter().filter_map(|daemon| daemon.peer_id.as_deref()).collect();
        wanted.sort_unstable();
        let until = Instant::now() + at_most;
        for daemon in &self.daemons {
            loop {
                let mut members = daemon.members().unwrap_or_default();
                members.sort_unstable();
                if members == wanted {
                    break;
                }
                assert!(Instant::now() < until, "{} knows {members:?} instead of {wanted:?}", daemon.name);
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Starts a daemon: the first time perhaps with a new network, otherwise with entry through all other known daemons.
    fn launch(&mut self, index: usize, new: bool) {
        let mut flags = Vec::new();
        if new {
            flags.push("--new".to_owned());
        }
        for (other, daemon) in self.daemons.iter().enumerate() {
            if other != index && daemon.peer_id.is_some() && !new {
                flags.extend(daemon.entries().into_iter().flat_map(|entry| ["--join".to_owned(), entry]));
            }
        }
        self.daemons[index].start(&flags);
    }

    /// Starts a daemon again.
    pub fn restart(&mut self, index: usize) {
        self.launch(index, false);
    }

    /// Waits until a daemon serves.
    pub fn wait_ready(&mut self, index: usize) {
        if let Err(why) = self.daemons[index].wait_ready(START_MAX) {
            panic!("{why}");
        }
    }

    /// Kills a daemon.
    pub fn kill(&mut self, index: usize) {
        self.daemons[index].signal(Signal::Kill);
    }

    /// Waits until a change can be made through each of these daemons.
    pub fn wait_serving(&self, which: &[usize], at_most: Duration) {
        let until = Instant::now() + at_most;
        for &index in which {
            loop {
                let answer = self.daemons[index]
                    .connect(Duration::from_secs(5))
                    .and_then(|mut connection| connection.call(&["SET", "serving", "yes"]));
                match answer {
                    Ok(Reply::Simple(text)) if text == "OK" => break,
                    _ if Instant::now() < until => std::thread::sleep(Duration::from_millis(50)),
                    other => panic!("{} does not serve after {at_most:?}: {other:?}", self.daemons[index].name),
                }
            }
        }
    }

    /// Waits until all daemons answer alike for this key, each from its own state.
    pub fn wait_same(&self, key: &str, at_most: Duration) {
        let until = Instant::now() + at_most;
        loop {
            let answers: Vec<Option<Reply>> = self
                .daemons
                .iter()
                .map(|daemon| daemon.connect(Duration::from_secs(5)).ok()?.call(&["SCATTER.RGET", key]).ok())
                .collect();
            if answers.iter().all(|answer| answer.is_some() && *answer == answers[0]) {
                return;
            }
            assert!(Instant::now() < until, "{key} differs after {at_most:?}: {answers:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the number of a key's primary, as one of the daemons knows it.
    pub fn primary_of(&self, key: &str) -> Option<usize> {
        self.daemons.iter().find_map(|daemon| {
            let reply = daemon.connect(Duration::from_secs(2)).ok()?.call(&["SCATTER.WHERE", key]).ok()?;
            let text = format!("{reply:?}");
            // In any form of the answer: the first of our peers that is named, the primary being named first.
            let place = |daemon: &Daemon| daemon.peer_id.as_deref().and_then(|id| text.find(id));
            let named = self.daemons.iter().enumerate().filter_map(|(index, daemon)| Some((place(daemon)?, index)));
            named.min().map(|(_, index)| index)
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.daemons.iter_mut().for_each(|daemon| daemon.signal(Signal::Kill));
        if std::thread::panicking() {
            eprintln!("data and logs stay in {}", self.directory.display());
            return;
        }
        self.daemons.clear();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
