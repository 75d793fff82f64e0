//! Stores that are measured: each is started in a directory of its own on free ports of loopback, and stopped.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use load::{Plan, Protocol, Resp};

use super::etcd::Etcd;
use super::tools::Tools;
use super::zookeeper::{Style, ZooKeeper};
use crate::live::{Cluster, ClusterOptions, Daemon, free_port};

/// Time within which a store must answer after its start.
const START_MAX: Duration = Duration::from_secs(60);

/// A store, as it is to be run. Three members each, but for the lone Redis; all durable, but for `ScatterMemory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum StoreKind {
    /// This store as it comes: confirmed reads, every write on disk at a majority.
    Scatter,
    /// With leased reads.
    ScatterLeased,
    /// With writes of a primary in order.
    ScatterCoarse,
    /// With nothing on disk.
    ScatterMemory,
    /// etcd; reads are linearizable.
    Etcd,
    /// ZooKeeper; reads are preceded by a sync.
    Zookeeper,
    /// One Redis, that syncs every write to disk.
    Redis,
}

impl StoreKind {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            StoreKind::Scatter => "scatter",
            StoreKind::ScatterLeased => "scatter, leased",
            StoreKind::ScatterCoarse => "scatter, coarse",
            StoreKind::ScatterMemory => "scatter, memory",
            StoreKind::Etcd => "etcd",
            StoreKind::Zookeeper => "ZooKeeper",
            StoreKind::Redis => "Redis, alone",
        }
    }

    /// Returns whether it is this store.
    pub(crate) fn is_ours(self) -> bool {
        matches!(
            self,
            StoreKind::Scatter | StoreKind::ScatterLeased | StoreKind::ScatterCoarse | StoreKind::ScatterMemory
        )
    }

    /// Returns the time of each load that does not count: Java compiles code as it runs.
    pub fn warm_up(self) -> Duration {
        if self == StoreKind::Zookeeper { Duration::from_secs(10) } else { Duration::ZERO }
    }

    /// Returns the client's side of the store's protocol.
    pub fn protocol(self, reads: Reads) -> Box<dyn Protocol> {
        match (self, reads) {
            (StoreKind::Etcd, _) => Box::new(Etcd::default()),
            (StoreKind::Zookeeper, Reads::Current) => Box::new(ZooKeeper::new(Style::Synced)),
            (StoreKind::Zookeeper, Reads::Old) => Box::new(ZooKeeper::new(Style::Plain)),
            (kind, Reads::Old) if kind.is_ours() => Box::new(Resp::relaxed(None)),
            _ => Box::new(Resp::new(None)),
        }
    }

    /// Returns the client's side of the protocol, for the first write of each key.
    fn filling_protocol(self) -> Box<dyn Protocol> {
        match self {
            StoreKind::Zookeeper => Box::new(ZooKeeper::new(Style::Fill)),
            _ => self.protocol(Reads::Current),
        }
    }
}

/// Kind of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Linearizable reads.
    Current,
    /// Reads of the asked server's own state.
    Old,
}

/// A store at work. It ends when dropped, and its data is removed.
pub struct RunningStore {
    /// The store.
    pub kind: StoreKind,
    /// Addresses for clients.
    pub targets: Vec<SocketAddr>,
    /// Process ids of the store's servers.
    pub pids: Vec<u32>,
    cluster: Option<Cluster>,
    children: Vec<Child>,
    directory: PathBuf,
}

impl RunningStore {
    /// Starts a store, with its data below `work`, and waits until it answers; an error tells what is missing.
    pub fn start(kind: StoreKind, tools: &Tools, work: &Path) -> Result<RunningStore, String> {
        let directory = work.join(format!("{kind:?}").to_lowercase());
        std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let mut system = RunningStore {
            kind,
            targets: Vec::new(),
            pids: Vec::new(),
            cluster: None,
            children: Vec::new(),
            directory,
        };
        match kind {
            StoreKind::Scatter | StoreKind::ScatterLeased | StoreKind::ScatterCoarse | StoreKind::ScatterMemory => {
                system.start_scatter(&tools.scatter);
            }
            StoreKind::Etcd => system.start_etcd(tools.etcd.as_ref().map_err(Clone::clone)?)?,
            StoreKind::Zookeeper => system.start_zookeeper(tools.zookeeper.as_ref().map_err(Clone::clone)?)?,
            StoreKind::Redis => system.start_redis()?,
        }
        system.pids.extend(system.children.iter().map(Child::id));
        system.wait_ready()?;
        Ok(system)
    }

    /// Writes each of `keys` keys once.
    ///
    /// # Errors
    /// A description for a person: a refused or failed write.
    pub fn fill(&self, keys: u64, value_bytes: usize) -> Result<(), String> {
        let plan = Plan { keys, value_bytes, ..Plan::new(self.targets.clone()) }.filling();
        let kind = self.kind;
        let report = load::run(&plan, || kind.filling_protocol(), || ()).map_err(|failed| failed.to_string())?;
        if report.writes.refused() > 0 {
            return Err(format!("{} could not take all keys: {report}", self.kind.name()));
        }
        Ok(())
    }

    fn start_scatter(&mut self, program: &Path) {
        let options = ClusterOptions {
            daemons: 3,
            memory: self.kind == StoreKind::ScatterMemory,
            leases: self.kind == StoreKind::ScatterLeased,
            coarse: self.kind == StoreKind::ScatterCoarse,
            program: Some(program.to_owned()),
            directories: Some((0..3).map(|index| self.directory.join(format!("{index}"))).collect()),
            ..ClusterOptions::default()
        };
        let cluster = Cluster::start("bench", &options);
        cluster.wait_serving(&cluster.all(), START_MAX);
        self.targets = cluster.daemons.iter().map(|daemon| daemon.resp).collect();
        self.pids = cluster.daemons.iter().filter_map(Daemon::pid).collect();
        self.cluster = Some(cluster);
    }

    fn start_etcd(&mut self, program: &Path) -> Result<(), String> {
        let ports: Vec<(u16, u16)> = (0..3).map(|_| (free_port(), free_port())).collect();
        let peers = ports.iter().enumerate().map(|(index, (_, peer))| format!("m{index}=http://127.0.0.1:{peer}"));
        let peers = peers.collect::<Vec<_>>().join(",");
        for (index, (client, peer)) in ports.iter().enumerate() {
            let (client_url, peer_url) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
            let mut command = Command::new(program);
            command.arg("--name").arg(format!("m{index}"));
            command.arg("--data-dir").arg(self.directory.join(format!("m{index}")));
            for (flag, value) in [
                ("--listen-client-urls", client_url.as_str()),
                ("--advertise-client-urls", &client_url),
                ("--listen-peer-urls", &peer_url),
                ("--initial-advertise-peer-urls", &peer_url),
                ("--initial-cluster", &peers),
                ("--log-level", "error"),
            ] {
                command.args([flag, value]);
            }
            self.spawn(command)?;
            self.targets.push(SocketAddr::from(([127, 0, 0, 1], *client)));
        }
        Ok(())
    }

    fn start_zookeeper(&mut self, jars: &Path) -> Result<(), String> {
        let ports: Vec<[u16; 3]> = (0..3).map(|_| [free_port(), free_port(), free_port()]).collect();
        let servers = ports.iter().enumerate();
        let servers = servers.map(|(index, [_, peer, vote])| format!("server.{}=127.0.0.1:{peer}:{vote}\n", index + 1));
        let servers = servers.collect::<String>();
        for (index, [client, ..]) in ports.iter().enumerate() {
            let directory = self.directory.join(format!("{index}"));
            let written = std::fs::create_dir_all(&directory).and_then(|()| {
                std::fs::write(directory.join("myid"), format!("{}\n", index + 1))?;
                let text = format!(
                    "tickTime=2000\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=0\nadmin.enableServer=false\n\
                    dataDir={}\nclientPort={client}\nclientPortAddress=127.0.0.1\n{servers}",
                    directory.display()
                );
                std::fs::write(directory.join("zoo.cfg"), text)
            });
            written.map_err(|error| format!("{}: {error}", directory.display()))?;
            let mut command = Command::new("java");
            command.args(["-Xmx1g", "-cp"]).arg(jars.join("*"));
            command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(directory.join("zoo.cfg"));
            self.spawn(command)?;
            self.targets.push(SocketAddr::from(([127, 0, 0, 1], *client)));
        }
        Ok(())
    }

    fn start_redis(&mut self) -> Result<(), String> {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.arg("--port").arg(port.to_string()).arg("--dir").arg(&self.directory);
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
        self.spawn(command)?;
        self.targets.push(SocketAddr::from(([127, 0, 0, 1], port)));
        Ok(())
    }

    fn spawn(&mut self, mut command: Command) -> Result<(), String> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir(&self.directory);
        let child = command.spawn().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
        self.children.push(child);
        Ok(())
    }

    /// Waits until a write through each server is answered.
    fn wait_ready(&mut self) -> Result<(), String> {
        let until = Instant::now() + START_MAX;
        loop {
            if let Some(child) = self.children.iter_mut().find_map(ended) {
                return Err(format!("a process of {} ended at once ({child})", self.kind.name()));
            }
            let filled = self.fill(self.targets.len() as u64, 1);
            if filled.is_ok() {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(format!("{} does not answer: {}", self.kind.name(), filled.unwrap_err()));
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}

/// Returns the exit status of a child, if it has ended.
fn ended(child: &mut Child) -> Option<ExitStatus> {
    child.try_wait().ok().flatten()
}

impl Drop for RunningStore {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        // The cluster must end before its directory is removed.
        self.cluster = None;
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
