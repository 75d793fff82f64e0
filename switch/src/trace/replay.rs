//! Plays a story on a real switch: sets its tables over P4Runtime, sends packets, and compares the replicas at which they arrive.
//!
//! Each replica of the story is a socket here, and so is its client. A story's partitions get numbers that were never used
//! before, so the former content of the switch's registers does not matter. Each packet has a tag of its own, so that none is
//! mistaken for another.
//!
//! Two things cannot be seen from outside. The switch makes its own random choices: a read that the story gives to one replica
//! may arrive at any one of its partition. The destination of a packet that is forwarded to its own address depends on the
//! network: the only check is that it arrives at no replica.
//!
//! The switch must serve no other client meanwhile: the tables are the story's alone, and empty at the end.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use header::{HEADER_BYTES, Header, Operation, PACKET_BYTES_MAX, Packet};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Action, Outcome, Step, Trace, Wrong};
use crate::p4rt::client::{SwitchClient, SwitchConfig, SyncState, Synced};
use crate::p4rt::reconcile::{Incarnation, Wanted};
use crate::pipeline::Verdict;
use crate::tables::{Partition, Replica};

/// Bytes of an encoded header that hold the address for the answer.
const REPLY_TO: std::ops::Range<usize> = 60..78;

/// Switch on which a story is played.
#[derive(Clone, Debug)]
pub struct On {
    /// Address to which packets are sent so that they pass the switch: its own, or one behind it.
    pub data: SocketAddr,
    /// The switch's control endpoint.
    pub control: SwitchConfig,
    /// Election id, higher than any that is in use there.
    pub election: u128,
    /// This machine's address as the switch sees it.
    pub here: Ipv4Addr,
    /// Time limit for a packet that has to arrive.
    pub patience: Duration,
    /// Time to wait for a packet that must not arrive.
    pub quiet: Duration,
}

/// Reason for which a story was not played to its end.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The result differs from the story.
    #[error(transparent)]
    Wrong(#[from] Wrong),
    /// The switch's tables cannot be set.
    #[error("the switch cannot be controlled: {0}")]
    Control(String),
    /// Packets cannot be sent.
    #[error("packets cannot be sent")]
    Sockets(#[from] io::Error),
}

/// Receiver of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whom {
    Client,
    Replica(Replica),
}

/// Plays a story to its end. Returns the number of packets that passed.
///
/// # Errors
/// [`Failed`]: the story itself is wrong, the result differs from it, or it cannot be played. The tables may keep the story's
/// entries then.
pub async fn replay(trace: &Trace, on: &On) -> Result<usize, Failed> {
    let outcomes = trace.run()?;
    let mut stage = Stage::set(trace, on).await?;
    let mut left = outcomes.iter();
    for (step, tag) in trace.steps.iter().zip(1..) {
        match &step.action {
            Action::Set(number, partition) => {
                stage.partitions.insert(*number, partition.clone());
                stage.control().await?;
            }
            Action::Remove(number) => {
                stage.partitions.remove(number);
                stage.control().await?;
            }
            Action::Packet { header, .. } => {
                // Each packet has an outcome.
                let Some(outcome) = left.next() else { break };
                let wrong = |why| Wrong { line: step.line, why };
                stage.packet(&Header { tag, ..*header }, outcome).await?.map_err(wrong)?;
            }
        }
    }
    stage.partitions.clear();
    stage.ports.clear();
    stage.control().await?;
    Ok(outcomes.len())
}

/// Sockets and tables with which a story is played.
struct Stage<'a> {
    on: &'a On,
    controller: SwitchClient,
    lives: Incarnation,
    looks: u64,
    /// Offset from the story's partition numbers to the numbers in the switch.
    base: u32,
    partitions: BTreeMap<u32, Partition>,
    ports: BTreeMap<Replica, SocketAddrV4>,
    client: Arc<UdpSocket>,
    replicas: BTreeMap<Replica, Arc<UdpSocket>>,
    came: mpsc::Receiver<(Whom, Vec<u8>)>,
    _listeners: JoinSet<()>,
}

/// Returns all replicas of a story; some come more than once.
fn replicas(trace: &Trace) -> impl Iterator<Item = Replica> {
    let partition = |step: &'_ Step| match &step.action {
        Action::Set(_, partition) => Some(partition.clone()),
        _ => None,
    };
    let partitions: Vec<_> = trace.steps.iter().filter_map(partition).collect();
    partitions.into_iter().flat_map(|Partition { primary, replicas, .. }| {
        replicas.into_iter().map(|(replica, _)| replica).chain([primary])
    })
}

impl<'a> Stage<'a> {
    async fn set(trace: &Trace, on: &'a On) -> Result<Stage<'a>, Failed> {
        let (out, came) = mpsc::channel(64);
        let mut listeners = JoinSet::new();
        let mut listen = |whom: Whom, socket: &Arc<UdpSocket>| {
            let (out, socket) = (out.clone(), socket.clone());
            listeners.spawn(async move {
                let mut bytes = [0; PACKET_BYTES_MAX + 1];
                while let Ok((length, _)) = socket.recv_from(&mut bytes).await {
                    if out.send((whom, bytes[..length].to_vec())).await.is_err() {
                        return;
                    }
                }
            });
        };
        let client = Arc::new(UdpSocket::bind((on.here, 0)).await?);
        listen(Whom::Client, &client);
        let (mut ports, mut sockets) = (BTreeMap::new(), BTreeMap::new());
        for replica in replicas(trace) {
            if sockets.contains_key(&replica) {
                continue;
            }
            let socket = Arc::new(UdpSocket::bind((on.here, 0)).await?);
            listen(Whom::Replica(replica), &socket);
            ports.insert(replica, SocketAddrV4::new(on.here, socket.local_addr()?.port()));
            sockets.insert(replica, socket);
        }
        let wanted = Wanted { ports: ports.clone(), ..Wanted::default() };
        let controller = SwitchClient::start(on.control.clone(), on.election, wanted);
        let mut stage = Stage {
            on,
            controller,
            lives: Incarnation(0),
            looks: 0,
            base: RandomState::new().build_hasher().finish() as u32,
            partitions: BTreeMap::new(),
            ports,
            client,
            replicas: sockets,
            came,
            _listeners: listeners,
        };
        stage.lives = stage.synced().await?.incarnation;
        Ok(stage)
    }

    /// Sets the switch's tables to the story's tables at this step.
    async fn control(&mut self) -> Result<(), Failed> {
        let here = |(number, partition): (&u32, &Partition)| (self.base.wrapping_add(*number), partition.clone());
        let partitions = self.partitions.iter().map(here).collect();
        let wanted = Wanted { partitions, ports: self.ports.clone(), routes: None, lives: Some(self.lives) };
        self.controller.set(wanted);
        let synced = self.synced().await?;
        if synced.incarnation == self.lives {
            return Ok(());
        }
        Err(Failed::Control("the switch restarted in the middle of the story".to_owned()))
    }

    async fn synced(&mut self) -> Result<Synced, Failed> {
        let looks = self.looks;
        let mut state = self.controller.state();
        let is_it = |state: &SyncState| matches!(state, SyncState::Synced(synced) if synced.looks > looks);
        let found =
            timeout(self.on.patience, state.wait_for(is_it)).await.ok().and_then(Result::ok).map(|state| state.clone());
        match found {
            Some(SyncState::Synced(synced)) => {
                self.looks = synced.looks;
                Ok(synced)
            }
            _ => Err(Failed::Control(match &*self.controller.state().borrow() {
                SyncState::Failing(why) => why.clone(),
                SyncState::Backup => "another controller has a higher election id".to_owned(),
                SyncState::Synced(_) => "the switch took too long".to_owned(),
            })),
        }
    }

    /// Sends one packet and checks its treatment. The inner result describes a difference from the story.
    async fn packet(&mut self, header: &Header, outcome: &Outcome) -> Result<Result<(), String>, Failed> {
        let is_replicas = !matches!(header.operation, Operation::Read | Operation::FastRead);
        let primary = self.partitions.get(&header.partition).map(|partition| partition.primary);
        let of_replica = primary.and_then(|primary| self.replicas.get(&primary)).or(self.replicas.values().next());
        let from = if is_replicas { of_replica.unwrap_or(&self.client) } else { &self.client };
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        let sent = Header { partition: self.base.wrapping_add(header.partition), ..*header };
        Packet::of(sent, b"").encode(&mut bytes);
        // A completion is for the switch alone.
        let place = bytes.get_mut(REPLY_TO).filter(|_| header.operation != Operation::Completion);
        if let Some(place) = place {
            let (ip, port) = place.split_at_mut(16);
            ip.copy_from_slice(&self.on.here.to_ipv6_mapped().octets());
            port.copy_from_slice(&self.client.local_addr()?.port().to_be_bytes());
        }
        from.send_to(&bytes, self.on.data).await?;

        let wait = if matches!(outcome.verdict, Verdict::To(_)) { self.on.patience } else { self.on.quiet };
        let (whom, bytes) = match timeout(wait, self.came.recv()).await {
            Ok(Some(came)) => came,
            Ok(None) | Err(_) => return Ok(self.nothing_came(outcome)),
        };
        let Ok(Packet { header: came, .. }) = Packet::decode(&bytes) else {
            return Ok(Err(format!("{whom:?} received a datagram that is not a packet")));
        };
        let came = Header { partition: came.partition.wrapping_sub(self.base), ..came };
        Ok(self.check(header, outcome, whom, &came))
    }

    fn nothing_came(&self, outcome: &Outcome) -> Result<(), String> {
        match outcome.verdict {
            Verdict::To(replica) => Err(format!("the packet should have come to {replica}, and was not received")),
            Verdict::On | Verdict::Drop(_) => Ok(()),
        }
    }

    fn check(&self, sent: &Header, outcome: &Outcome, whom: Whom, came: &Header) -> Result<(), String> {
        if came.tag != sent.tag {
            return Err(format!("the packet of step {} came once more, or too late, to {whom:?}", came.tag));
        }
        let wanted = Header { tag: sent.tag, ..outcome.header };
        let is_there = match outcome.verdict {
            Verdict::Drop(_) => false,
            Verdict::On => whom == Whom::Client,
            Verdict::To(_) if wanted.operation == Operation::FastRead => {
                let replicas =
                    self.partitions.get(&sent.partition).into_iter().flat_map(|partition| &partition.replicas);
                replicas.into_iter().any(|(replica, weight)| *weight > 0 && whom == Whom::Replica(*replica))
            }
            Verdict::To(replica) => whom == Whom::Replica(replica),
        };
        if !is_there {
            return Err(format!("the packet came to {whom:?}, and should have gone {:?}", outcome.verdict));
        }
        if *came != wanted {
            return Err(format!("the packet came as {came:?}, and should have been {wanted:?}"));
        }
        Ok(())
    }
}
