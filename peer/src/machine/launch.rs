//! The start of a peer: identity, store, network, node; and the new start after an incarnation ended.

use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use net::{Identity, IdentityError, Multiaddr, Net, NetConfig, NetEvent, NetPort, NetworkKey, Transport, Wake};
use node::{Durability as NodeDurability, Node, NodeConfig, Restored, Timing};
use overlay::{Incarnation, RingId};
use store::{Aside, Engine, StoreConfig, StoreError, StoreEvent, StoreThread, To, is_full, set_aside};
use tokio::sync::mpsc;

use super::anew::{self, Anew};
use super::busy::BusyMeter;
use super::clocks::Clocks;
use super::data_dir::key_hash::Cost;
use super::data_dir::peer_state::{PeerState, SharedPeerState};
use super::data_dir::remembered::{Network, recall};
use super::data_dir::sessions::Sessions;
use super::data_dir::{DirectoryLock, check_formats, keep_to_owner, tighten};
use super::drive::{Askers, Drive, LoopEnd, what_to_do};
use super::mailbox::Mailbox;
use super::memory::MemoryShares;
use super::metrics::{NetMetrics, PacketMetrics, StoreMetrics};
use super::packets::PacketPort;
use super::status_board::StatusBoard;
use super::store_port::StorePort;
use super::supervisor::{Common, LoopGuard, Supervisor, Word};
use super::surroundings::Surroundings;
use crate::config::{Config, Durability, Entry, Origin};
use crate::daemon::{CannotStart, Ending, NO_NETWORK, News, Peer, Seat};
use crate::exit::Exit;
use crate::resp::Replies;

/// Time that the network may take to report its listening addresses.
const LISTEN_MAX: Duration = Duration::from_secs(5);
/// Starts the node's loop, the store and the network.
///
/// # Errors
/// The reason for which it cannot start; with [`Exit::Disk`] if the disk is full or failing.
pub fn launch(config: &Config, mut seat: Seat<'_>) -> Result<Peer, CannotStart> {
    let clocks = Clocks::from_env();
    let lock = take_data_dir(&config.data_dir)?;
    let (config, mut peer_state, network) = load_state(config)?;
    let config = &config;
    let identity = load_identity(&config.data_dir)?;
    let store_dir = store_dir(&config.data_dir);
    finish_leaving(&peer_state, &store_dir)?;
    let mailboxes: Vec<_> = (0..config.lanes).map(|_| Arc::new(Mailbox::default())).collect();
    mailboxes[0].adopt();
    // First, so that its connections exist when the store is read.
    let net = start_net(config, &identity, &peer_state, &mailboxes, &mut seat)?;
    let (store, restored) = open_store(config, &mailboxes, &mut seat)?;
    let surroundings = Surroundings::new(config, net.handle().clone(), store.as_ref().map(StoreThread::watch));
    let store = store.map(|store| Arc::new(Mutex::new(store)));
    let seconds = clocks.wall().0 / 1000;
    // Written together with the incarnation.
    peer_state.set_name(config.name.as_ref());
    let incarnation = peer_state.fresh_incarnation(seconds << 20 | draw() >> 44)?;
    let sessions = Sessions::load(&config.data_dir);
    let mut port = net.port(0);
    let (mut early, listen) = wait_for_addresses(&mut port)?;
    let peer_id = identity.peer_id().to_string();
    let status_board = StatusBoard::new(peer_id.clone(), config, surroundings);
    #[expect(clippy::disallowed_methods, reason = "a loop must not wait for the daemon; events of a peer are few")]
    let (news_in, news) = mpsc::unbounded_channel();
    let rings = peer_state.rings();
    let peer_state = Arc::new(SharedPeerState::new(peer_state, network));
    let (supervisor, lanes, words) = Supervisor::new(mailboxes.clone());
    let settings = Arc::new(config.clone());
    let common = Common { clocks, net, store, peer_state, status_board: status_board.clone(), news: news_in.clone() };
    let mut packet_counts = Vec::new();
    for (lane, mailbox) in (0..config.lanes).zip(&mailboxes) {
        let ring = rings.get(usize::from(lane)).copied();
        let packets = open_packets(config, mailbox)?;
        packet_counts.extend(packets.as_ref().map(PacketPort::counts));
        let switch = packets.as_ref().map(PacketPort::config);
        let history = sessions.history();
        let node = NodeConfig { switch, history, ..node_config(config, &identity, incarnation, lane, ring) };
        let node = Node::new(node, draw(), common.clocks.now(), restored.clone());
        let inputs = LaneInputs { lane, mailbox: mailbox.clone(), packets, early: std::mem::take(&mut early) };
        let drive = drive_of(node, inputs, &common, &settings, seat.router.replies(), words.clone());
        start_loop(drive).map_err(|error| format!("cannot start a loop: {error}"))?;
    }
    if !packet_counts.is_empty() {
        seat.registry.register_collector(Box::new(PacketMetrics(packet_counts)));
    }
    let session = sessions.keep(common.clocks.clone());
    let supervise = move || {
        finish(supervisor.run(common, session), store_dir, &news_in);
        // No thread works on the directory any more.
        drop(lock);
    };
    let thread = std::thread::Builder::new().name("scatter-superv".into()).spawn(supervise);
    thread.map_err(|error| format!("cannot start the peer: {error}"))?;
    let listen = listen.into_iter().map(|address| format!("{address}/p2p/{peer_id}")).collect();
    let stopper = lanes.clone();
    Ok(Peer {
        peer_id,
        name: config.name.clone(),
        listen,
        backend: lanes.clone(),
        admin: lanes,
        status: status_board,
        news,
        stop: Box::new(move || stopper.stop()),
    })
}

/// Moves the store aside if the peer has left its ring: the process died between two steps of leaving.
fn finish_leaving(peer_state: &PeerState, store_dir: &Path) -> Result<(), String> {
    if peer_state.left().is_some() && store_dir.exists() {
        set_aside(store_dir, Aside::Left).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Makes the data directory, and takes it for this process.
fn take_data_dir(data_dir: &Path) -> Result<DirectoryLock, String> {
    // Before anything is made or changed here.
    check_formats(data_dir)?;
    keep_to_owner();
    std::fs::create_dir_all(data_dir)
        .map_err(|error| format!("cannot make the data directory {}: {error}", data_dir.display()))?;
    let lock = DirectoryLock::take(data_dir)?;
    tighten(data_dir)?;
    Ok(lock)
}

/// Loads the state beside the store. Returns it with the settings and the network that follow from it.
fn load_state(config: &Config) -> Result<(Config, PeerState, Network), String> {
    let mut peer_state = PeerState::load(&config.data_dir)?;
    may_enter(config, &peer_state)?;
    // As when the settings were settled: this time no other process can change the remembered state.
    let mut config = config.clone();
    recall(&mut config, &peer_state)?;
    let network = network(&config, &mut peer_state)?;
    fits_lanes(&config, &peer_state)?;
    Ok((config, peer_state, network))
}

fn load_identity(data_dir: &Path) -> Result<Identity, CannotStart> {
    Identity::load_or_create(&data_dir.join("identity")).map_err(|error| {
        let is_full = matches!(&error, IdentityError::Io { source, .. } if is_full(source.kind()));
        CannotStart(if is_full { Exit::Disk } else { Exit::No }, error.to_string())
    })
}

/// Inputs of one lane.
struct LaneInputs {
    lane: u8,
    mailbox: Arc<Mailbox>,
    packets: Option<PacketPort>,
    early: Vec<NetEvent>,
}

/// Returns the loop of a lane, which has its part of what all lanes share.
fn drive_of(
    node: Node,
    inputs: LaneInputs,
    common: &Common,
    config: &Arc<Config>,
    replies: Replies,
    words: Sender<Word>,
) -> Drive {
    let LaneInputs { lane, mailbox, packets, early } = inputs;
    Drive {
        lane,
        node,
        clocks: common.clocks.clone(),
        net: common.net.port(lane),
        packets,
        store: common.store.as_ref().map(|store| StorePort::new(lane, store.clone())),
        mailbox,
        replies,
        peer_state: common.peer_state.clone(),
        status_board: common.status_board.clone(),
        words,
        config: config.clone(),
        early,
        askers: Askers::default(),
        busy: BusyMeter::new(common.clocks.now().time, config.max_bandwidth, config.lanes),
    }
}

/// Returns the state to remember of the peer's network, after a check of the network's key.
fn network(config: &Config, peer_state: &mut PeerState) -> Result<Network, String> {
    match peer_state.network() {
        Some(known) => known.check_key(config).map(|()| known.clone()),
        None => Ok(Network { founded: config.entry == Entry::New, ..Network::of(config, Cost::USUAL)? }),
    }
}

/// Opens the port to the switch, where one is named.
fn open_packets(config: &Config, mailbox: &Arc<Mailbox>) -> Result<Option<PacketPort>, String> {
    let open = |switch| {
        PacketPort::open(switch, mailbox.clone())
            .map_err(|error| format!("the switch at --switch {switch} is unreachable: {error}"))
    };
    config.switch.map(open).transpose()
}

fn node_config(
    config: &Config,
    identity: &Identity,
    incarnation: Incarnation,
    lane: u8,
    ring: Option<RingId>,
) -> NodeConfig {
    let lanes = u64::from(config.lanes);
    NodeConfig {
        former: anew::former(lane),
        lane: (lanes > 1).then_some(lane),
        ring,
        found: config.entry == Entry::New,
        durability: match config.durability {
            Durability::Sync => NodeDurability::Sync,
            Durability::Memory => NodeDurability::Memory,
        },
        coarse: config.coarse,
        leases: config.leases,
        members_min: config.min_group,
        members_max: config.max_group,
        policies: config.policies,
        secret: draw(),
        name: config.name.clone(),
        cluster: config.cluster.clone(),
        memory_bytes_max: bytes(MemoryShares::of(config.max_memory, config.durability).records / lanes),
        value_bytes_max: config.max_value,
        // Without durable state a process never returns as the same member: no group waits for it.
        away: if config.durability == Durability::Memory { Duration::ZERO } else { config.away },
        timing: Timing { exclude_after: config.exclude_after, ..Timing::default() },
        transfer_bytes_per_s: (copy_rate(config.max_bandwidth) / lanes).max(1),
        ..NodeConfig::new(identity.peer(), incarnation)
    }
}

/// Starts the thread of a lane's loop, which reports how it ended.
fn start_loop(drive: Drive) -> std::io::Result<()> {
    let (lane, words, mailbox) = (drive.lane, drive.words.clone(), drive.mailbox.clone());
    std::thread::Builder::new().name("scatter-loop".into()).spawn(move || {
        let watch = LoopGuard { lane, words, mailbox };
        let (end, last) = drive.run();
        // The receiver may have ended already.
        let _ = watch.words.send(Word::Ended(lane, end, Some(Box::new(last))));
    })?;
    Ok(())
}

/// Checks that the peer belongs to a network, or was told to enter or found one: no peer founds a second one by accident
/// (hazard 41).
fn may_enter(config: &Config, peer_state: &PeerState) -> Result<(), String> {
    if peer_state.ring().is_some() {
        return Ok(());
    }
    match (&config.entry, peer_state.left()) {
        (Entry::Known, None) => Err(NO_NETWORK.into()),
        (Entry::Known, Some(ring)) => Err(format!("this peer has left its network (the ring {ring}): {AGAIN}")),
        // Perhaps written where this peer founded its network, and read at every start since.
        (Entry::New, Some(ring)) if config.origin("new") != Some(&Origin::Flag) => Err(format!(
            "this peer has left its network (the ring {ring}), and founds another only with --new on the command line, \
            not in the environment or a file: {AGAIN}"
        )),
        _ => Ok(()),
    }
}

/// Checks the number of lanes: keys are divided among lanes once and for all.
fn fits_lanes(config: &Config, peer_state: &PeerState) -> Result<(), String> {
    match peer_state.rings().len() {
        0 => Ok(()),
        lanes if lanes == usize::from(config.lanes) => Ok(()),
        lanes => {
            Err(format!("this peer's network has --lanes {lanes}, permanently: start the peer with --lanes {lanes}"))
        }
    }
}

/// The options of a peer that has left.
const AGAIN: &str = "set --join MULTIADDR to join that network or another as a new member, --new to start an empty \
                     one, or --profile home to look for one on the local network";

/// Returns the directory of the store of a peer with this data directory.
pub fn store_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("store")
}

fn bytes(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Returns the rate of copying, in bytes a second: half of the given bandwidth is left to all other traffic.
fn copy_rate(given: Option<u64>) -> u64 {
    given.map_or(NodeConfig::TRANSFER_BYTES_PER_S, |given| (given / 2).max(1))
}

/// Opens the store, if the peer has a durable one. A damaged store is moved aside: damage is *unknown*, never *empty*,
/// and the peer begins a new incarnation (hazard 3).
fn open_store(
    config: &Config,
    mailboxes: &[Arc<Mailbox>],
    seat: &mut Seat<'_>,
) -> Result<(Option<StoreThread>, Restored), CannotStart> {
    if config.durability == Durability::Memory {
        return Ok((None, Restored::empty()));
    }
    let dir = store_dir(&config.data_dir);
    let shares = MemoryShares::of(config.max_memory, config.durability);
    let store_config = StoreConfig {
        disk_bytes_max: Some(config.max_disk),
        pending_bytes_max: bytes(shares.changes),
        cache_bytes: shares.cache,
        ..StoreConfig::default()
    };
    let (engine, restored) = match Engine::open_dir(&dir, &store_config) {
        Err(error) if error.is_damage() => {
            let aside = set_aside(&dir, Aside::Damaged).map_err(|error| error.to_string())?;
            tracing::warn!("{error}; the store is kept in {}, and this peer rejoins as a new member", aside.display());
            Engine::open_dir(&dir, &store_config)
        }
        opened => opened,
    }
    .map_err(|error| match error {
        StoreError::Io { .. } => CannotStart(Exit::Disk, what_to_do(&error)),
        other => CannotStart(Exit::No, other.to_string()),
    })?;
    let mailboxes = mailboxes.to_vec();
    let tell = move |to, event: StoreEvent| match to {
        To::Lane(lane) => mailboxes[usize::from(lane)].tell(event),
        To::All => mailboxes.iter().for_each(|mailbox| mailbox.tell(event.clone())),
    };
    let store = StoreThread::start(engine, tell).map_err(|error| error.to_string())?;
    seat.registry.register_collector(Box::new(StoreMetrics(store.watch())));
    Ok((Some(store), restored))
}

fn start_net(
    config: &Config,
    identity: &Identity,
    peer_state: &PeerState,
    mailboxes: &[Arc<Mailbox>],
    seat: &mut Seat<'_>,
) -> Result<Net, String> {
    let join = match &config.entry {
        Entry::Join(addresses) => addresses.iter().map(parse).collect::<Result<_, _>>()?,
        _ => Vec::new(),
    };
    let listen = config.listen.iter().map(parse).collect::<Result<_, _>>()?;
    let net_config = NetConfig {
        listen,
        join,
        network_key: config.network_key.as_deref().map(NetworkKey::from_passphrase),
        ring: peer_state.ring(),
        durable: config.durability == Durability::Sync,
        mdns: config.mdns,
        dial_private: config.dial_private,
        connections_max: config.max_connections as usize,
        ..NetConfig::new(config.network.clone())
    };
    let wake = |mailbox: &Arc<Mailbox>| -> Wake {
        let mailbox = mailbox.clone();
        Box::new(move || mailbox.wake())
    };
    let wakes = mailboxes.iter().map(wake).collect();
    let net = Net::start(net_config, identity, seat.runtime.handle(), wakes).map_err(|error| error.to_string())?;
    for (peer, addresses) in peer_state.peers() {
        net.handle().dial(peer, addresses);
    }
    seat.registry.register_collector(Box::new(NetMetrics(net.handle().clone())));
    Ok(net)
}

fn parse(address: &crate::config::Multiaddr) -> Result<Multiaddr, String> {
    let text = address.to_string();
    text.parse().map_err(|error| format!("{text} is not a multiaddress: {error}"))
}

/// Returns the addresses that the network listens on, which other peers use to join. The network wakes this thread,
/// which has adopted the first mailbox.
fn wait_for_addresses(net: &mut NetPort) -> Result<(Vec<NetEvent>, Vec<String>), String> {
    let (until, mut events) = (Instant::now() + LISTEN_MAX, Vec::new());
    loop {
        net.drain(&mut events);
        let addresses = events.iter().rev().find_map(|event| match event {
            NetEvent::Addresses(addresses) if !addresses.is_empty() => Some(addresses.clone()),
            _ => None,
        });
        if let Some(addresses) = addresses {
            return Ok((events, addresses));
        }
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(
                "cannot listen for peers: another program may use the port; choose other addresses with --listen"
                    .into(),
            );
        }
        std::thread::park_timeout(rest);
    }
}

/// Ends the process after the loop, or begins a new incarnation.
fn finish(end: LoopEnd, store_dir: PathBuf, news: &mpsc::UnboundedSender<News>) {
    let ending = match end {
        // A lane that was only halted ended because of another lane, which decides.
        LoopEnd::Stopped | LoopEnd::Halted => Ending::Stopped,
        LoopEnd::Left => {
            retire(&store_dir);
            Ending::Left
        }
        LoopEnd::Fatal(why) => Ending::Failed(Exit::No, why),
        LoopEnd::StoreFailed(why) => Ending::Failed(Exit::Disk, why),
        LoopEnd::Reincarnate(why, former) => anew::begin_anew(&why, &store_dir, &Anew::On(former)),
        LoopEnd::StartAgain(why) => anew::begin_anew(&why, &store_dir, &Anew::Again),
        LoopEnd::Damaged(why) => anew::begin_anew(&why, &store_dir, &Anew::Without(Aside::Damaged)),
        LoopEnd::Quarantine(why) => anew::begin_anew(&why, &store_dir, &Anew::Without(Aside::Lost)),
    };
    // The daemon waits for no other message; if it has ended, the process ends too.
    let _ = news.send(News::Ended(ending));
}

/// Moves the store of a peer that has left out of the way. It is not removed: where few members remain it may become the
/// last copy of some records. Only an administrator can decide that it is of no use any more.
fn retire(store_dir: &Path) {
    if !store_dir.exists() {
        return;
    }
    match set_aside(store_dir, Aside::Left) {
        Ok(place) => {
            tracing::info!(
                "the other members hold the data; this peer's copy is in {} and can be removed",
                place.display()
            )
        }
        // The next start does it before any other step.
        Err(error) => tracing::warn!("this peer's copy of the data stays in {}: {error}", store_dir.display()),
    }
}

/// Draws a random number from the operating system, without a library: the standard hasher's keys.
pub(super) fn draw() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
