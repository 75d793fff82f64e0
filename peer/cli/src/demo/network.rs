//! The demo's peers together: their start as one network, and the kills and starts that users ask for.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use peer::status::{Ring, Status};

use super::demo_peer::{DemoPeer, GROUP_MAX};
use super::victim::{Running, Victim, victims};
use crate::http_client::{self, Bounds};

/// Upper limit of the time until every peer is a member, in groups of the right size.
const FULL_MAX: Duration = Duration::from_secs(60);
/// Upper limit of the time in which all peers stop.
const STOP_MAX: Duration = Duration::from_secs(11);
/// Number of peers that are named to one that enters, because some may be killed meanwhile.
const ENTRANCES: usize = 3;
/// Shortest time from a question to its answer; a key press before that is none.
const ASKED_MIN: Duration = Duration::from_secs(1);
/// Time for which a question is open.
const ASKED_MAX: Duration = Duration::from_secs(10);
/// Time limit for a peer's status before another peer is killed.
const LOOK_MAX: Duration = Duration::from_millis(500);
/// Upper limit of that status, in bytes.
const LOOK_BYTES_MAX: usize = 1 << 20;
/// Upper limit of peers.
pub const PEERS_MAX: usize = 64;

/// All peers that were started, also those that have ended.
pub struct DemoNetwork {
    /// Peers in the order of their first start.
    pub peers: Vec<DemoPeer>,
    program: PathBuf,
    directory: PathBuf,
    name: String,
    /// Peer that a question was about, and its time: that kill takes the majority of a group.
    asked: Option<(usize, Instant)>,
    /// Peers that have ended, the last one last.
    ended: Vec<usize>,
}

/// Takes the peer that ended last and has not been started since.
fn last_ended(ended: &mut Vec<usize>, is_down: impl Fn(usize) -> bool) -> Option<usize> {
    while let Some(index) = ended.pop() {
        if is_down(index) {
            return Some(index);
        }
    }
    None
}

/// Peer that has ended.
pub struct Gone {
    /// Name of the peer.
    pub name: String,
    /// Exit status of the peer.
    pub status: ExitStatus,
    /// Command line that starts it again.
    pub again: String,
}

impl DemoNetwork {
    /// Returns a network of `peers` peers, none of them started.
    ///
    /// # Errors
    ///
    /// A text for the user where the path of this program is unknown.
    pub fn new(peers: usize, directory: &Path) -> Result<DemoNetwork, String> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let name = format!("demo-{}", std::process::id());
        let peers = (0..peers).map(|index| DemoPeer::new(index, directory, &name)).collect();
        Ok(DemoNetwork { peers, program, directory: directory.to_owned(), name, asked: None, ended: Vec::new() })
    }

    /// Returns the program that each peer runs.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Returns the directory of all files that the peers write.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Starts all peers, and waits until each is a member of a group of the right size: from then on any minority of a group may
    /// be killed.
    ///
    /// # Errors
    ///
    /// A text for the user; peers that were started go on until [`DemoNetwork::stop`].
    pub async fn begin(&mut self) -> Result<(), String> {
        let Some((first, others)) = self.peers.split_first_mut() else { return Ok(()) };
        first.enter = vec!["--new".into()];
        first.start(&self.program)?;
        let entrance = first.ready(&self.program).await?;
        for peer in &mut *others {
            peer.enter = vec!["--join".into(), entrance.clone()];
            peer.start(&self.program)?;
        }
        for peer in others {
            peer.ready(&self.program).await?;
        }
        self.full().await?;
        for index in 0..self.peers.len() {
            // On a restart each peer enters through other peers: should its store be gone, the first must not found a second
            // network.
            self.set_entrances(index);
        }
        Ok(())
    }

    /// Sets the peers through which this peer enters when it is started again.
    fn set_entrances(&mut self, index: usize) {
        let others = self.peers.iter_mut().enumerate().filter(|(other, _)| *other != index);
        let addresses: Vec<String> = others.filter_map(|(_, peer)| peer.address()).take(ENTRANCES).collect();
        if !addresses.is_empty() {
            self.peers[index].enter = addresses.into_iter().flat_map(|address| ["--join".into(), address]).collect();
        }
    }

    async fn full(&self) -> Result<(), String> {
        let since = Instant::now();
        while since.elapsed() < FULL_MAX {
            if self.is_full() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err(format!("not all peers became members within {} s", FULL_MAX.as_secs()))
    }

    /// Returns whether every peer is a member of a group that is not too large. Asks a group that is too large to split, as it
    /// would by itself a little later.
    fn is_full(&self) -> bool {
        let mut whole = true;
        for peer in &self.peers {
            let status: Option<Status> = ask(peer.http(), "/v1/status");
            let own = status.as_ref().and_then(|status| Some((status.groups.first()?, &status.peer_id)));
            let Some((group, me)) = own else { return false };
            let votes = |role: &str| role == "member" || role == "leader";
            let is_member = group.members.iter().any(|member| member.peer_id == *me && votes(&member.role));
            let is_settled = group.established && is_member && group.members.iter().all(|member| votes(&member.role));
            whole &= is_settled && group.members.len() <= GROUP_MAX;
            if is_settled && group.members.len() > GROUP_MAX && group.leader.as_ref() == Some(me) {
                // A refused split is requested again.
                let _ =
                    http_client::post(&peer.http().to_string(), &format!("/v1/groups/{}/split", group.id), None, b"{}");
            }
        }
        let ring: Option<Ring> = self.peers.first().and_then(|peer| ask(peer.http(), "/v1/ring"));
        whole && ring.is_some_and(|ring| ring.whole)
    }

    /// Returns the addresses at which clients reach the running peers.
    pub fn resp(&self) -> Vec<SocketAddr> {
        self.running().map(DemoPeer::resp).collect()
    }

    /// Returns the HTTP addresses of the running peers.
    pub fn http(&self) -> Vec<String> {
        self.running().map(|peer| peer.http().to_string()).collect()
    }

    fn running(&self) -> impl Iterator<Item = &DemoPeer> {
        self.peers.iter().filter(|peer| peer.child.is_some())
    }

    /// Returns the peers that have ended since the last call, and were not killed by [`DemoNetwork::kill`].
    pub fn ended(&mut self) -> Vec<Gone> {
        let mut gone = Vec::new();
        for (index, peer) in self.peers.iter_mut().enumerate() {
            let ended = peer.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                peer.child = None;
                self.ended.push(index);
                gone.push(Gone { name: peer.name.clone(), status, again: peer.command_line(&self.program) });
            }
        }
        gone
    }

    /// Kills a peer outright, as a loss of power would, and returns a report for display. It chooses one by chance among the
    /// peers whose groups keep their majority. Where there is none, it returns a question, and kills that peer when it is called
    /// again soon.
    pub fn kill(&mut self, chance: usize) -> String {
        if self.running().count() <= 1 {
            return "the last peer that runs is left alone".into();
        }
        let victims = victims(&self.look());
        let asked = self.asked.filter(|(_, since)| since.elapsed() < ASKED_MAX);
        let harmless: Vec<&Victim> = victims.iter().filter(|victim| victim.keeps).collect();
        let wanted = asked.and_then(|(index, _)| victims.iter().find(|victim| victim.index == index));
        let victim = match (wanted, harmless.is_empty()) {
            (_, false) => harmless[chance % harmless.len()],
            // A key that is held down is no answer.
            (Some(wanted), true) if asked.is_some_and(|(_, since)| since.elapsed() < ASKED_MIN) => {
                return wanted.question();
            }
            (Some(wanted), true) => wanted,
            (None, true) => {
                let Some(victim) = victims.get(chance % victims.len().max(1)) else { return "no peer runs".into() };
                self.asked = Some((victim.index, Instant::now()));
                return victim.question();
            }
        };
        self.asked = None;
        let Some(mut child) = self.peers[victim.index].child.take() else { return "no peer runs".into() };
        // A peer that cannot be killed has ended.
        let _ = child.kill();
        let _ = child.wait();
        self.ended.push(victim.index);
        victim.killed()
    }

    /// Asks all running peers for their status at the same time: a stopped process delays the answer only briefly.
    fn look(&self) -> Vec<Running> {
        let running = self.peers.iter().enumerate().filter(|(_, peer)| peer.child.is_some());
        let bounds = Bounds { time: LOOK_MAX, bytes: LOOK_BYTES_MAX };
        std::thread::scope(|scope| {
            let asked: Vec<_> = running
                .map(|(index, peer)| {
                    let http = peer.http().to_string();
                    let status = scope.spawn(move || {
                        let (_, body) = http_client::get_within(&http, "/v1/status", bounds).ok()?;
                        serde_json::from_slice::<Status>(&body).ok()
                    });
                    (index, peer.name.clone(), status)
                })
                .collect();
            let told = asked.into_iter().map(|(index, name, status)| Running {
                index,
                name,
                status: status.join().ok().flatten(),
            });
            told.collect()
        })
    }

    /// Starts a peer: the one that ended last, with its data on disk, or a new one where all run. Returns a report for display.
    pub fn start(&mut self) -> String {
        if let Some(index) = last_ended(&mut self.ended, |index| self.peers[index].child.is_none()) {
            self.set_entrances(index);
            let peer = &mut self.peers[index];
            return match peer.start_again(&self.program) {
                Ok(()) => format!("{} starts again", peer.name),
                Err(why) => why,
            };
        }
        if self.peers.len() >= PEERS_MAX {
            return format!("there are {PEERS_MAX} peers already");
        }
        let index = self.peers.len();
        self.peers.push(DemoPeer::new(index, &self.directory, &self.name));
        self.set_entrances(index);
        let peer = &mut self.peers[index];
        if peer.enter.is_empty() {
            self.peers.pop();
            return "no peer serves yet through which a new one could enter".into();
        }
        match peer.start(&self.program) {
            Ok(()) => format!("{} is new, and enters", peer.name),
            Err(why) => {
                self.peers.pop();
                why
            }
        }
    }

    /// Ends all peers: by SIGTERM first, then by force.
    pub fn stop(&mut self, at_once: impl Fn() -> bool) {
        use rustix::process::{Pid, Signal, kill_process};
        for child in self.running().filter_map(|peer| peer.child.as_ref()) {
            // The child has not been waited for, so its process id is still its own.
            if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let until = Instant::now() + STOP_MAX;
        let mut running: Vec<&mut Child> = self.peers.iter_mut().filter_map(|peer| peer.child.as_mut()).collect();
        while !running.is_empty() && Instant::now() < until && !at_once() {
            running.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            std::thread::sleep(Duration::from_millis(20));
        }
        for child in running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn ask<T: serde::de::DeserializeOwned>(http: SocketAddr, path: &str) -> Option<T> {
    let (code, body) = http_client::get(&http.to_string(), path).ok()?;
    serde_json::from_slice(&body).ok().filter(|_| code == 200)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `K` names a peer that `S` starts: the one that was killed last.
    #[test]
    fn the_last_one_that_ended_is_started_first() {
        let mut ended = vec![4, 1, 6, 2];
        assert_eq!(last_ended(&mut ended, |index| index != 2), Some(6), "2 runs again");
        assert_eq!(last_ended(&mut ended, |_| true), Some(1));
        assert_eq!((last_ended(&mut ended, |_| true), last_ended(&mut ended, |_| true)), (Some(4), None));
    }
}
