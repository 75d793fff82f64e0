//! The daemon: endpoints, signals, the ready line, and an orderly end.
//!
//! A [`Launch`] starts the parts of a peer (the node's loop, the store, the network); the daemon knows only the [`Peer`] that it
//! returns.

mod lines;
mod logging;
mod signals;

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::peer_id_of;
use node::Event;
use overlay::PeerName;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::admin::Admin;
use crate::config::{Config, Origin, Shown};
use crate::descriptors::{self, Shares};
use crate::event_log::{EventLog, Happening, Neighbours, RingMetrics, RingWatch};
use crate::exit::Exit;
use crate::http::{self, Served, StatusMetrics};
use crate::log;
use crate::names::Names;
use crate::resp::{self, Backend, Metrics, Password, Router, Settings, Shared};
use crate::status::StatusSource;
use crate::unready::{Unready, failing};
use lines::{Lines, left_line, ready_line, say};
use logging::{LogMetrics, start_log};
use signals::Signals;

/// Upper limit of the node's time to stop. A stop by a signal has to be over within 10 s.
const STOP_MAX: Duration = Duration::from_millis(8500);
/// Time in which a client that follows a leave over HTTP asks several times, and so learns how it ended.
const FAREWELL_MAX: Duration = Duration::from_secs(2);
/// Time that clients have to read their last answers.
const GOODBYE_MAX: Duration = Duration::from_millis(1200);

/// Interval of checks of a peer that does not serve.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Starts the parts of a peer in this process.
///
/// Called once, on the main thread, before any client is accepted; the endpoints are bound already. An error ends the process; its
/// text is for the operator.
pub type Launch = fn(&Config, Seat<'_>) -> Result<Peer, CannotStart>;

/// Reason for which a peer cannot start: the exit code, and a text for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotStart(pub Exit, pub String);

impl From<String> for CannotStart {
    fn from(why: String) -> CannotStart {
        CannotStart(Exit::No, why)
    }
}

/// Input of a [`Launch`] beside the settings.
pub struct Seat<'a> {
    /// Takes answers to clients: see [`Router::replies`].
    pub router: Arc<Router>,
    /// Registry of metrics; it adds the prefix `scatter_` to names.
    pub registry: &'a mut Registry,
    /// Runtime of the endpoints; the network may run there too. The loop and the store have threads of their own.
    pub runtime: &'a Runtime,
}

/// Peer that was started.
pub struct Peer {
    /// Id of the peer, as in `/p2p/…`.
    pub peer_id: String,
    /// Name of the peer, where it has one.
    pub name: Option<PeerName>,
    /// Addresses at which other peers reach it, each with `/p2p/…` at its end.
    pub listen: Vec<String>,
    /// Takes clients' requests.
    pub backend: Arc<dyn Backend>,
    /// Takes administrators' requests.
    pub admin: Arc<dyn Admin>,
    /// Status of the peer.
    pub status: Arc<dyn StatusSource>,
    /// Events of the peer. On [`Event::Ready`] the daemon prints the ready line. The last item is [`News::Ended`]; the end of the
    /// channel counts as [`Ending::Stopped`].
    pub news: mpsc::UnboundedReceiver<News>,
    /// Asks the peer to hand over and stop.
    pub stop: Box<dyn FnOnce() + Send>,
}

/// News of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Event in the peer's life.
    Happened(Event),
    /// The peer has ended; the process ends, too.
    Ended(Ending),
}

/// End of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The peer was asked to stop; the store is sealed.
    Stopped,
    /// The peer has left its network for good.
    Left,
    /// The peer cannot go on: the exit code, and advice for the operator.
    Failed(Exit, String),
}

impl Ending {
    /// Returns the exit code of the process.
    fn code(&self) -> Exit {
        match self {
            Ending::Stopped | Ending::Left => Exit::Done,
            Ending::Failed(exit, _) => *exit,
        }
    }
}

/// Error text where the store knows of no network and [`crate::config::Entry::Known`] names none.
pub const NO_NETWORK: &str = "this peer belongs to no network yet: set --join MULTIADDR to join one, --new to start \
                              one, or --profile home to look for one on the local network";

/// Runs a peer until it is told to stop.
pub fn run(mut config: Config, stop_with_stdin: bool, launch: Launch) -> ExitCode {
    start_log(config.log_format);
    warn_of_idle(&config);
    if !config.overruled.is_empty() {
        tracing::warn!("the network's agreed settings replace this peer's: {}", config.overruled.join(", "));
    }
    let shares = divide_descriptors(&mut config);
    let exit = match serve(&config, shares, stop_with_stdin, launch) {
        Ok(exit) => exit,
        Err(CannotStart(exit, why)) => {
            tracing::error!("{why}");
            exit.into()
        }
    };
    log::flush();
    exit
}

/// Settings that are accepted and have no effect in this version, each with the value that asks for one. Their help says so, too.
const IDLE: [(&str, &str); 1] = [("nat", "on")];

/// Warns of settings without effect that the user gave. Users must not believe that they work.
fn warn_of_idle(config: &Config) {
    let is_given = |shown: &&Shown| !matches!(shown.origin, Origin::Default | Origin::Profile(_));
    for shown in config.shown.iter().filter(is_given) {
        if IDLE.contains(&(shown.name, &*shown.value)) {
            tracing::warn!("--{} has no effect in this version", shown.name);
        }
    }
}

/// Upper limits of connections of the endpoints; lower where there are fewer descriptors.
const CLIENTS_MAX: usize = 4096;
const STRANGERS_MAX: usize = 128;
const HTTP_MAX: usize = 128;

/// Divides the limit of open files, and lowers the shares that do not fit. Warns once.
fn divide_descriptors(config: &mut Config) -> Shares {
    let limit = descriptors::raise_limit();
    let peers = config.max_connections as usize;
    let wanted = Shares { clients: CLIENTS_MAX, strangers: STRANGERS_MAX, http: HTTP_MAX, peers };
    let shares = wanted.within(limit);
    if let Some(limit) = limit.filter(|_| shares != wanted) {
        tracing::warn!(
            "the limit of {limit} open files leaves room for {} clients, {} HTTP connections and {} connections with peers \
             (instead of {}, {} and {}): raise it with ulimit -n or LimitNOFILE",
            shares.clients,
            shares.http,
            shares.peers,
            wanted.clients,
            wanted.http,
            wanted.peers,
        );
    }
    config.max_connections = u32::try_from(shares.peers).unwrap_or(config.max_connections);
    shares
}

/// Returns the number of threads that carry bytes to and from sockets: one for every three cores, because the loop and the journal
/// need theirs. With one thread they do not wake each other, which costs more than their work.
fn io_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() / 3).max(1)
}

/// Starts the threads of the endpoints.
fn io_runtime() -> Result<Runtime, String> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(io_threads())
        .thread_name("scatter-io")
        .build()
        .map_err(|error| format!("cannot start threads: {error}"))
}

fn resp_settings(config: &Config, shares: Shares) -> Settings {
    Settings {
        value_bytes_max: config.max_value,
        password: config.resp_password.as_deref().map(Password::new),
        clients_max: shares.clients,
        strangers_max: shares.strangers,
        ..Settings::default()
    }
}

/// Waits until a client that follows a leave over HTTP has learnt how it ended, for [`FAREWELL_MAX`] at most.
async fn await_followers(followed: &Notify) {
    let farewell = async {
        followed.notified().await;
        // The status request may have come from another client.
        tokio::time::sleep(FAREWELL_MAX / 4).await;
    };
    let _ = tokio::time::timeout(FAREWELL_MAX, farewell).await;
}

/// Waits until the endpoints have ended, for [`GOODBYE_MAX`] at most.
async fn await_endpoints(endpoints: Vec<JoinHandle<()>>) {
    let goodbye = async {
        for endpoint in endpoints {
            let _ = endpoint.await;
        }
    };
    let _ = tokio::time::timeout(GOODBYE_MAX, goodbye).await;
}

/// Runs the parts of a peer until its end.
fn serve(config: &Config, shares: Shares, stop_with_stdin: bool, launch: Launch) -> Result<ExitCode, CannotStart> {
    let runtime = io_runtime()?;
    // Before a port is open: a client that reaches the process can tell it to stop.
    let signals = runtime.block_on(async { Signals::new(stop_with_stdin) }).map_err(|e| format!("no signals: {e}"))?;
    // Before any part starts: a taken port should leave no trace.
    let resp_listener = bind(&runtime, "--resp", config.resp)?;
    let http_listener = bind(&runtime, "--http", config.http)?;

    let started = Instant::now();
    let mut registry = Registry::with_prefix("scatter");
    let router = Router::new();
    let metrics = Metrics::new(&mut registry);
    let latencies = metrics.latencies.clone();
    let seat = Seat { router: router.clone(), registry: &mut registry, runtime: &runtime };
    let peer = launch(config, seat)?;
    let neighbours = Arc::new(Neighbours::new(peer.status.clone()));
    let status: Arc<dyn StatusSource> = neighbours.clone();
    registry.register_collector(Box::new(StatusMetrics(status.clone())));
    registry.register_collector(Box::new(LogMetrics));
    let ring_watch = Arc::new(RingWatch::default());
    registry.register_collector(Box::new(RingMetrics(ring_watch.clone())));
    descriptors::register_limits(&mut registry, shares, descriptors::limit());

    let (stop, stopped) = watch::channel(false);
    let mut endpoints: Vec<JoinHandle<()>> = Vec::new();
    let resp_address = local_address(resp_listener.as_ref());
    let http_address = local_address(http_listener.as_ref());
    if let Some(listener) = resp_listener {
        let settings = resp_settings(config, shares);
        let (backend, status) = (peer.backend.clone(), status.clone());
        let shared = Arc::new(Shared { backend, router, status, settings, metrics, started });
        endpoints.push(runtime.spawn(resp::serve(listener, shared, stopped.clone())));
    }
    let (followed, event_log) = (Arc::new(Notify::new()), Arc::new(EventLog::default()));
    // Also without an endpoint: the event log reports peers that come and go.
    runtime.spawn(event_log.clone().keep(status.clone(), latencies, stopped.clone()));
    if let Some(listener) = http_listener {
        let served = Served {
            status: status.clone(),
            registry: Arc::new(registry),
            admin: peer.admin.clone(),
            token: config.admin_token.as_deref().map(Password::new),
            followed: followed.clone(),
            event_log: event_log.clone(),
            ring_watch: ring_watch.clone(),
            connections_max: shares.http,
        };
        runtime.spawn(neighbours.keep(peer.admin.clone(), stopped.clone()));
        runtime.spawn(ring_watch.clone().keep(status.clone(), peer.admin.clone(), stopped.clone()));
        endpoints.push(runtime.spawn(async move {
            if let Err(error) = http::serve(listener, served, stopped).await {
                tracing::error!(%error, "the HTTP endpoint ended");
            }
        }));
    }

    let lines = Lines {
        ready: ready_line(config.output, &peer, resp_address, http_address),
        left: left_line(config.output, &peer),
    };
    let exit = runtime.block_on(live(peer, signals, &lines, &event_log));
    if exit == Ending::Left && http_address.is_some() {
        runtime.block_on(await_followers(&followed));
    }
    // The last answers go out before the process ends.
    let _ = stop.send(true);
    runtime.block_on(await_endpoints(endpoints));
    runtime.shutdown_background();
    Ok(exit.code().into())
}

fn bind(runtime: &Runtime, flag: &str, address: Option<SocketAddr>) -> Result<Option<TcpListener>, String> {
    let Some(address) = address else {
        return Ok(None);
    };
    runtime.block_on(TcpListener::bind(address)).map(Some).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another program listens on {address} already (perhaps another peer): choose another address with {flag}"
        ),
        _ => format!("cannot listen on {flag} {address}: {error}"),
    })
}

fn local_address(listener: Option<&TcpListener>) -> Option<SocketAddr> {
    listener.and_then(|listener| listener.local_addr().ok())
}

/// Follows the peer from its start to its end.
async fn live(peer: Peer, mut signals: Signals, lines: &Lines, event_log: &EventLog) -> Ending {
    let Peer { mut news, stop, status, .. } = peer;
    let mut announced = false;
    let mut unready = Unready::new(Instant::now());
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let event = tokio::select! {
            heard = news.recv() => match heard.unwrap_or(News::Ended(Ending::Stopped)) {
                News::Happened(event) => event,
                News::Ended(ending) => return tell_end(ending, lines),
            },
            _ = signals.next() => break,
            _ = ticks.tick() => {
                match complain(&mut unready, &*status) {
                    Some(ending) => return tell_end(ending, lines),
                    None => continue,
                }
            }
        };
        match &event {
            Event::Ready => {
                unready.ready();
                event_log.tell(Happening::serves(true));
            }
            Event::NotReady => {
                unready.not_ready(Instant::now());
                event_log.tell(Happening::serves(false));
            }
            _ => {}
        }
        match event {
            Event::Ready if announced => tracing::info!("serves again"),
            Event::Ready => {
                announced = true;
                say(&lines.ready);
            }
            other => tell(other, &*status),
        }
    }
    tracing::info!("stopping; a second signal stops at once");
    stop();
    let finished = async {
        loop {
            match news.recv().await.unwrap_or(News::Ended(Ending::Stopped)) {
                News::Happened(event) => tell(event, &*status),
                News::Ended(ending) => return tell_end(ending, lines),
            }
        }
    };
    tokio::select! {
        end = finished => end,
        number = signals.second(Instant::now()) => {
            tracing::warn!("stopping at once");
            // Data that the endpoints still hold is dropped: no client waits for it any longer.
            log::flush();
            std::process::exit(128 + number);
        }
        () = tokio::time::sleep(STOP_MAX) => {
            tracing::warn!("handing over primaries took too long; stopping without a handover");
            Ending::Stopped
        }
    }
}

/// Logs why the peer does not serve, when that is due. Returns the peer's ending where the peer can never serve.
fn complain(unready: &mut Unready, status: &dyn StatusSource) -> Option<Ending> {
    let (now, readiness) = (Instant::now(), status.readiness());
    // A majority may be lost without an event of the node.
    unready.look(readiness.ready, now);
    if !unready.is_long(now) {
        return None;
    }
    if let Some(why) = &readiness.hopeless {
        let why = format!(
            "no peer named by --join admits this peer, and retrying does not help: {why}. Change that setting, and \
            restart the peer"
        );
        return Some(Ending::Failed(Exit::Refused, why));
    }
    if let Some(age) = unready.due(now) {
        tracing::warn!("does not serve for {} s: {}", age.as_secs(), failing(&readiness));
    }
    None
}

/// Logs how the peer ended, and prints to stdout the line that scripts wait for.
fn tell_end(ending: Ending, lines: &Lines) -> Ending {
    match &ending {
        Ending::Stopped => tracing::info!("stopped"),
        Ending::Left => {
            tracing::info!("has left its network for good");
            say(&lines.left);
        }
        Ending::Failed(_, why) => tracing::error!("{why}"),
    }
    ending
}

/// Logs an event.
fn tell(event: Event, status: &dyn StatusSource) {
    match event {
        // The ending follows them.
        Event::Ready | Event::Stopped | Event::Left => {}
        Event::Fatal(why) | Event::Damaged(why) => tracing::error!("{why}"),
        Event::NotReady => tracing::warn!("does not serve"),
        Event::Reincarnate { why, .. } | Event::Quarantine(why) => tracing::warn!("restarts as a new member: {why}"),
        Event::StartAgain(why) => tracing::warn!("{why}"),
        Event::Alarm(why) => tracing::error!("{why}"),
        Event::Identity { peer, what } => {
            let groups = status.groups();
            tracing::warn!("peer {}: {what}", Names::of_groups(&groups).whole(&peer_id_of(&peer).to_string()));
        }
        Event::Note(line) => tracing::info!("{line}"),
        Event::InRing(ring) => tracing::info!("this peer belongs to the network with the ring {ring}"),
        other => tracing::info!(?other),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Appends the sources of this crate that may act on a setting: all but those that collect the settings.
    fn append_sources(dir: &Path, sources: &mut String) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path.ends_with("config") => {}
                true => append_sources(&path, sources),
                false => sources.push_str(&fs::read_to_string(&path).unwrap()),
            }
        }
    }

    #[test]
    fn settings_without_effect_are_those_that_nothing_reads() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut sources = String::new();
        append_sources(&src, &mut sources);
        let words: std::collections::HashSet<&str> =
            sources.split(|letter: char| !(letter.is_alphanumeric() || "._".contains(letter))).collect();
        let settings = fs::read_to_string(src.join("config/mod.rs")).unwrap();
        let (_, fields) = settings.split_once("pub struct Config {").unwrap();
        let (fields, _) = fields.split_once("\n}").unwrap();
        let fields = fields.lines().filter_map(|line| line.trim().strip_prefix("pub ")?.split(':').next());
        let reads = |field: &str| {
            let path = format!("config.{field}");
            words
                .iter()
                .any(|word| word.strip_prefix(&path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
        };
        let idle: Vec<String> = fields.filter(|field| !reads(field)).map(|field| field.replace('_', "-")).collect();
        assert_eq!(idle, IDLE.map(|(name, _)| name));
    }
}
