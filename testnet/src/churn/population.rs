//! The peers of a run: started, killed and replaced.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::ChurnParameters;
use super::clients::Addresses;
use crate::live::{Daemon, Signal};
use crate::rng::Rng;

/// Contacts that a newcomer is started with.
const CONTACTS: usize = 8;
/// Time within which the first peer must serve.
const FIRST_MAX: Duration = Duration::from_secs(60);

/// A peer.
struct ChurnPeer {
    daemon: Daemon,
    started: Instant,
    serves: bool,
    dies: Option<Instant>,
}

/// All peers of a run.
pub(super) struct Population<'a> {
    churn: &'a ChurnParameters,
    peers: Vec<ChurnPeer>,
    /// Addresses of the peers that serve.
    pub(super) addresses: Addresses,
    /// Peers killed so far.
    pub(super) deaths: u64,
    /// Time that each newcomer took until it served, since peers began to die.
    pub(super) joins: Vec<Duration>,
    dying: bool,
    started: u64,
    rng: Rng,
}

impl<'a> Population<'a> {
    /// Starts the first peer, which founds the network, and waits until it serves.
    pub(super) fn found(churn: &'a ChurnParameters, stop: &AtomicBool) -> io::Result<Population<'a>> {
        let mut population = Population {
            churn,
            peers: Vec::new(),
            addresses: Addresses::default(),
            deaths: 0,
            joins: Vec::new(),
            dying: false,
            started: 0,
            rng: Rng::new(churn.seed, "churn"),
        };
        population.start(vec!["--new".into()])?;
        let until = Instant::now() + FIRST_MAX;
        while population.serving() == 0 {
            population.wait(Duration::from_millis(50), stop)?;
            if Instant::now() > until {
                return Err(io::Error::other("the first peer does not serve"));
            }
        }
        Ok(population)
    }

    /// Returns the number of peers that serve.
    pub(super) fn serving(&self) -> usize {
        self.peers.iter().filter(|peer| peer.serves).count()
    }

    /// Starts a peer that joins by some peers that serve.
    ///
    /// # Errors
    /// If no peer serves.
    pub(super) fn spawn(&mut self) -> io::Result<()> {
        let mut entries: Vec<String> =
            self.peers.iter().filter(|peer| peer.serves).map(|peer| peer.daemon.entry()).collect();
        if entries.is_empty() {
            return Err(io::Error::other("no peer serves any more: the network is lost"));
        }
        let mut flags = Vec::new();
        for _ in 0..CONTACTS.min(entries.len()) {
            let place = self.rng.below(entries.len() as u64) as usize;
            flags.extend(["--join".into(), entries.swap_remove(place)]);
        }
        self.start(flags)
    }

    fn start(&mut self, flags: Vec<String>) -> io::Result<()> {
        let name = format!("peer-{}", self.started);
        self.started += 1;
        let mut daemon = Daemon::new(&name, self.churn.work.join(&name), "churn");
        daemon.program = Some(self.churn.program.clone());
        daemon.flags.extend(self.churn.flags.iter().cloned());
        daemon.start(&flags);
        let mut peer = ChurnPeer { daemon, started: Instant::now(), serves: false, dies: None };
        if self.dying {
            peer.dies = Some(peer.started + self.churn.lives.draw(&mut self.rng));
        }
        self.peers.push(peer);
        Ok(())
    }

    /// Lets peers die from now on.
    pub(super) fn begin_to_die(&mut self) {
        self.dying = true;
        for peer in &mut self.peers {
            peer.dies = Some(Instant::now() + self.churn.lives.draw(&mut self.rng));
        }
    }

    /// Kills the peers whose lifetimes are over, and starts another peer for each.
    pub(super) fn replace_the_dead(&mut self) -> io::Result<()> {
        while let Some(place) = self.peers.iter().position(|peer| peer.dies.is_some_and(|at| at <= Instant::now())) {
            let mut peer = self.peers.swap_remove(place);
            peer.daemon.signal(Signal::Kill);
            let _ = std::fs::remove_dir_all(&peer.daemon.directory);
            self.deaths += 1;
            self.publish();
            self.spawn()?;
        }
        Ok(())
    }

    /// Watches the peers for this time, or until `stop`.
    ///
    /// # Errors
    /// If a peer ended by itself.
    pub(super) fn wait(&mut self, time: Duration, stop: &AtomicBool) -> io::Result<()> {
        let until = Instant::now() + time;
        loop {
            self.look()?;
            if Instant::now() >= until || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50).min(until.saturating_duration_since(Instant::now())));
        }
    }

    /// Notes the peers that serve now.
    fn look(&mut self) -> io::Result<()> {
        let mut is_new = false;
        for peer in &mut self.peers {
            if peer.serves {
                continue;
            }
            if peer.daemon.is_ready() {
                (peer.serves, is_new) = (true, true);
                if self.dying {
                    self.joins.push(peer.started.elapsed());
                }
            } else if !peer.daemon.is_running() {
                let log = peer.daemon.log_text();
                let last = log.lines().rev().take(5).collect::<Vec<_>>();
                let why = format!("{} ended by itself: {}", peer.daemon.name, last.join(" | "));
                return Err(io::Error::other(why));
            }
        }
        if is_new {
            self.publish();
        }
        Ok(())
    }

    fn publish(&self) {
        let addresses = self.peers.iter().filter(|peer| peer.serves).map(|peer| peer.daemon.resp).collect();
        *self.addresses.write().unwrap_or_else(PoisonError::into_inner) = addresses;
    }
}

impl Drop for Population<'_> {
    fn drop(&mut self) {
        for peer in &mut self.peers {
            peer.daemon.signal(Signal::Kill);
        }
        self.addresses = Arc::default();
    }
}
