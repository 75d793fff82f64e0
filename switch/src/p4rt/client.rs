//! Client of a switch: keeps the switch's tables as they are wanted, for as long as it is the primary one.
//!
//! A controller connects, sends its election id, and waits for the notice that it is the primary. Then it asks which program the
//! switch has, loads this project's program if there is none, reads the tables, and writes the differences. It repeats that
//! whenever other tables are wanted, and periodically in case another client has changed the tables. After any failure it begins
//! anew: each step may be done twice.
//!
//! When the primary goes, a switch appoints no successor, as the specification has it. It announces that there is no primary,
//! with the highest election id. A controller that [*looks*](SwitchClient::look) then takes a higher one after a random delay.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use super::arbitration::{election_id, number};
use super::entry::{Key, Value};
use super::ids::Ids;
use super::p4info::{is_ours, p4info, table};
use super::problem::parts;
use super::proto::p4::v1;
use super::proto::p4::v1::p4_runtime_client::P4RuntimeClient;
use super::proto::p4::v1::set_forwarding_pipeline_config_request::Action;
use super::reconcile::{Incarnation, Wanted, plan};

/// Time limit for a call.
const PATIENCE: Duration = Duration::from_secs(10);
/// Delay after a failure; it doubles with each further one.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// Upper limit of that delay.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Lower limit of the delay before a controller takes the place of a missing primary, since the former one may be back at once.
const STAND_MIN: Duration = Duration::from_millis(50);
/// Upper limit of the random part of that delay, in milliseconds: mostly one controller alone takes the place.
const STAND_MORE_MS: u64 = 300;
/// Upper limit of the distance of its new election id from the highest: two controllers seldom take the same.
const STAND_ABOVE: u64 = 1000;
/// Interval of checks that the tables are as they were left.
const LOOK: Duration = Duration::from_secs(30);

/// Address of a switch, and the program for it.
#[derive(Clone, Debug)]
pub struct SwitchConfig {
    /// Address of the switch, for example `http://127.0.0.1:9559`.
    pub endpoint: String,
    /// The switch's number at that address.
    pub device: u64,
    /// Compiler output of the program for the target, for BMv2 or a hardware switch. A switch in software needs none.
    pub device_config: Vec<u8>,
}

/// State of the connection to the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncState {
    /// There is no connection, or a call failed; the controller tries again.
    Failing(String),
    /// Another controller is the primary, or none is yet.
    Backup,
    /// The tables are as they are wanted.
    Synced(Synced),
}

/// Result of a check: the tables are as they are wanted, or were only read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// Number of the mastership. It rises whenever this controller becomes the primary anew, since other controllers may have
    /// written in the meantime.
    pub mastership: u64,
    /// Mark of the wanted tables ([`SwitchClient::set_during`]); `None` if nothing was written.
    pub mark: Option<u64>,
    /// Content of the tables, as far as it is this controller's to change. Ids may have been held back (`Ids`).
    pub present: Arc<BTreeMap<Key, Value>>,
    /// Life of the switch. Switch ids have to be for this life ([`Wanted::lives`]), or they are held back.
    pub incarnation: Incarnation,
    /// Number of updates that were written, since the controller began.
    pub updates: u64,
    /// Number of such checks. It lets a caller wait for a change without mistaking an older check for it.
    pub looks: u64,
}

/// Task of a client.
#[derive(Clone, Debug)]
enum Task {
    /// Read the tables, and write nothing.
    Look,
    /// Keep the tables like this; only in the mastership `during`, if one is named. The mark is for the caller.
    Keep { wanted: Wanted, during: Option<u64>, mark: u64 },
}

/// Controller's client of one switch. When it is dropped, it stops, and the tables stay as they are.
#[derive(Debug)]
pub struct SwitchClient {
    tasks: watch::Sender<Task>,
    election: watch::Sender<u128>,
    state: watch::Receiver<SyncState>,
    task: JoinHandle<()>,
}

impl SwitchClient {
    /// Starts a client; needs a runtime of tokio.
    pub fn start(config: SwitchConfig, election: u128, wanted: Wanted) -> SwitchClient {
        SwitchClient::begin(config, election, Task::Keep { wanted, during: None, mark: 0 }, false)
    }

    /// Starts a client that reads the tables, and writes nothing before it is told which tables are wanted; needs a runtime
    /// of tokio. If there is no primary controller, or no longer, it becomes the primary, with a higher election id than it was
    /// given.
    pub fn look(config: SwitchConfig, election: u128) -> SwitchClient {
        SwitchClient::begin(config, election, Task::Look, true)
    }

    fn begin(config: SwitchConfig, election: u128, task: Task, follows: bool) -> SwitchClient {
        let (tasks, told) = watch::channel(task);
        let (election, elections) = watch::channel(election);
        let (states, state) = watch::channel(SyncState::Failing("not connected yet".to_owned()));
        let driver = Driver {
            config,
            told,
            elections,
            follows,
            bid: 0,
            states,
            ids: Ids::default(),
            mastership: 0,
            updates: 0,
            looks: 0,
        };
        let task = tokio::spawn(driver.run());
        SwitchClient { tasks, election, state, task }
    }

    /// Sets the wanted tables from now on.
    pub fn set(&self, wanted: Wanted) {
        self.tasks.send_replace(Task::Keep { wanted, during: None, mark: 0 });
    }

    /// Sets the wanted tables from now on, but only for this mastership ([`Synced::mastership`]). Afterwards the controller only
    /// reads, until it is told anew. The mark comes back with the result ([`Synced::mark`]).
    pub fn set_during(&self, mastership: u64, mark: u64, wanted: Wanted) {
        self.tasks.send_replace(Task::Keep { wanted, during: Some(mastership), mark });
    }

    /// Sets another election id from now on: a higher one, to become the primary.
    pub fn elect(&self, election: u128) {
        self.election.send_replace(election);
    }

    /// Returns the state of the connection, now and after each change.
    pub fn state(&self) -> watch::Receiver<SyncState> {
        self.state.clone()
    }
}

impl Drop for SwitchClient {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Stub = P4RuntimeClient<Channel>;

struct Driver {
    config: SwitchConfig,
    told: watch::Receiver<Task>,
    elections: watch::Receiver<u128>,
    /// The controller takes a higher election id if there is no primary.
    follows: bool,
    /// Election id that the controller took in this stream; in the next one another controller may have it.
    bid: u128,
    states: watch::Sender<SyncState>,
    ids: Ids,
    mastership: u64,
    updates: u64,
    looks: u64,
}

impl Driver {
    async fn run(mut self) {
        let mut wait = RETRY_MIN;
        loop {
            let looks = self.looks;
            let why = self.session().await;
            self.states.send_replace(SyncState::Failing(words(&why)));
            wait = if self.looks > looks { RETRY_MIN } else { (2 * wait).min(RETRY_MAX) };
            sleep(wait).await;
        }
    }

    /// Runs one stream until it ends. Returns the reason.
    async fn session(&mut self) -> Status {
        match self.open().await {
            Err(why) => why,
            Ok((mut client, out, mut responses)) => self
                .serve(&mut client, &out, &mut responses)
                .await
                .err()
                .unwrap_or_else(|| Status::ok("the stream ended")),
        }
    }

    async fn open(
        &mut self,
    ) -> Result<(Stub, mpsc::Sender<v1::StreamMessageRequest>, Streaming<v1::StreamMessageResponse>), Status> {
        let endpoint = Endpoint::from_shared(self.config.endpoint.clone())
            .map_err(|error| Status::invalid_argument(error.to_string()))?
            .connect_timeout(PATIENCE)
            .http2_keep_alive_interval(PATIENCE)
            .keep_alive_timeout(PATIENCE)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        let channel = endpoint.connect().await.map_err(|error| Status::unavailable(chain(&error)))?;
        let mut client = Stub::new(channel);
        let (out, requests) = mpsc::channel(8);
        // The controller speaks first: some switches do not answer before.
        self.bid = 0;
        self.elections.mark_unchanged();
        let _ = out.send(self.hello()).await;
        let opening = client.stream_channel(ReceiverStream::new(requests));
        let responses = patiently(opening).await?.into_inner();
        Ok((client, out, responses))
    }

    fn election(&self) -> u128 {
        self.bid.max(*self.elections.borrow())
    }

    fn hello(&self) -> v1::StreamMessageRequest {
        let update = v1::MasterArbitrationUpdate {
            device_id: self.config.device,
            election_id: Some(election_id(self.election())),
            ..v1::MasterArbitrationUpdate::default()
        };
        v1::StreamMessageRequest { update: Some(v1::stream_message_request::Update::Arbitration(update)) }
    }

    /// Keeps the tables as they are wanted until the stream ends.
    async fn serve(
        &mut self,
        client: &mut Stub,
        out: &mpsc::Sender<v1::StreamMessageRequest>,
        responses: &mut Streaming<v1::StreamMessageResponse>,
    ) -> Result<(), Status> {
        // Time of the next check of the tables; `None` while another controller is the primary.
        let mut look: Option<Instant> = None;
        // Time at which to take a higher election id, and the highest one so far.
        let mut stand: Option<(Instant, u128)> = None;
        let mut wait = RETRY_MIN;
        loop {
            tokio::select! {
                response = responses.message() => {
                    let Some(response) = response? else { return Ok(()) };
                    let Some(v1::stream_message_response::Update::Arbitration(update)) = response.update else { continue };
                    let code = update.status.map_or(Code::Ok as i32, |status| status.code);
                    let highest = update.election_id.as_ref().map_or(0, number).max(self.election());
                    let is_due = self.follows && code == Code::NotFound as i32;
                    stand = is_due.then(|| (Instant::now() + moment(), highest));
                    if code == Code::Ok as i32 {
                        self.mastership += u64::from(look.is_none());
                        look = Some(Instant::now());
                    } else {
                        look = None;
                        self.states.send_replace(SyncState::Backup);
                    }
                }
                changed = self.elections.changed() => {
                    if changed.is_err() { return Ok(()) }
                    self.bid = 0;
                    self.elections.mark_unchanged();
                    if out.send(self.hello()).await.is_err() { return Ok(()) }
                }
                changed = self.told.changed() => {
                    if changed.is_err() { return Ok(()) }
                    look = look.map(|_| Instant::now());
                }
                () = sleep_until(stand.map_or_else(Instant::now, |(at, _)| at)), if stand.is_some() => {
                    if let Some((_, highest)) = stand.take() {
                        self.bid = highest.saturating_add(1 + u128::from(chance() % STAND_ABOVE));
                        if out.send(self.hello()).await.is_err() { return Ok(()) }
                    }
                }
                () = sleep_until(look.unwrap_or_else(Instant::now)), if look.is_some() => {
                    let next = match self.reconcile(client).await {
                        Ok(synced) => {
                            wait = RETRY_MIN;
                            self.states.send_replace(SyncState::Synced(synced));
                            LOOK
                        }
                        // A controller that lost a race for being the primary gets a notice in the stream.
                        Err(status) if status.code() == Code::PermissionDenied || parts(&status).is_some() => {
                            self.states.send_replace(SyncState::Failing(words(&status)));
                            wait = (2 * wait).min(RETRY_MAX);
                            wait
                        }
                        Err(status) => return Err(status),
                    };
                    look = Some(Instant::now() + next);
                }
            }
        }
    }

    /// Reads the tables, and writes the differences.
    async fn reconcile(&mut self, client: &mut Stub) -> Result<Synced, Status> {
        let incarnation = self.program(client).await?;
        let task = self.told.borrow_and_update().clone();
        let (wanted, mark) = match task {
            Task::Keep { wanted, during, mark } if during.is_none_or(|mastership| mastership == self.mastership) => {
                (wanted, mark)
            }
            Task::Look | Task::Keep { .. } => {
                let present = Arc::new(self.read(client, &Wanted::default()).await?);
                return Ok(self.looked(incarnation, None, present));
            }
        };
        let present = self.read(client, &wanted).await?;
        let election = self.election();
        let mut entries = wanted.entries(incarnation);
        self.ids.hold(incarnation, &present, &mut entries);
        for updates in plan(&present, &entries) {
            let count = updates.len() as u64;
            let request = v1::WriteRequest {
                device_id: self.config.device,
                election_id: Some(election_id(election)),
                updates,
                ..v1::WriteRequest::default()
            };
            patiently(client.write(request)).await?;
            self.updates += count;
        }
        self.ids.done(&entries);
        Ok(self.looked(incarnation, Some(mark), Arc::new(entries)))
    }

    fn looked(&mut self, incarnation: Incarnation, mark: Option<u64>, present: Arc<BTreeMap<Key, Value>>) -> Synced {
        self.looks += 1;
        Synced { mastership: self.mastership, mark, present, incarnation, updates: self.updates, looks: self.looks }
    }

    /// Returns the life of the switch: that of its program, or a new one, for which the program is loaded.
    async fn program(&mut self, client: &mut Stub) -> Result<Incarnation, Status> {
        let request = v1::GetForwardingPipelineConfigRequest {
            device_id: self.config.device,
            response_type: v1::get_forwarding_pipeline_config_request::ResponseType::P4infoAndCookie as i32,
        };
        let config = match patiently(client.get_forwarding_pipeline_config(request)).await {
            Ok(response) => response.into_inner().config,
            // Older versions of the specification report a missing program in this way.
            Err(status) if status.code() == Code::FailedPrecondition => None,
            Err(status) => return Err(status),
        };
        let is_it =
            |config: &v1::ForwardingPipelineConfig| config.p4info.as_ref().is_some_and(|other| is_ours(other).is_ok());
        let cookie = config.filter(is_it).and_then(|config| config.cookie).map_or(0, |cookie| cookie.cookie);
        if cookie != 0 {
            return Ok(Incarnation(cookie));
        }
        let cookie = chance().max(1);
        let request = v1::SetForwardingPipelineConfigRequest {
            device_id: self.config.device,
            election_id: Some(election_id(self.election())),
            action: Action::VerifyAndCommit as i32,
            config: Some(v1::ForwardingPipelineConfig {
                p4info: Some(p4info().clone()),
                p4_device_config: self.config.device_config.clone(),
                cookie: Some(v1::forwarding_pipeline_config::Cookie { cookie }),
            }),
            ..v1::SetForwardingPipelineConfigRequest::default()
        };
        patiently(client.set_forwarding_pipeline_config(request)).await?;
        Ok(Incarnation(cookie))
    }

    /// Reads all entries that are this controller's to change.
    async fn read(&self, client: &mut Stub, wanted: &Wanted) -> Result<BTreeMap<Key, Value>, Status> {
        let mut tables = vec![table::PARTITIONS, table::REPLICAS, table::PORTS];
        if wanted.routes.is_some() {
            tables.extend([table::IPV4_LPM, table::IPV6_LPM]);
        }
        let asked = |table_id| {
            let entry = v1::TableEntry { table_id, ..v1::TableEntry::default() };
            v1::Entity { entity: Some(v1::entity::Entity::TableEntry(entry)) }
        };
        let request = v1::ReadRequest {
            device_id: self.config.device,
            entities: tables.into_iter().map(asked).collect(),
            ..v1::ReadRequest::default()
        };
        let mut responses = patiently(client.read(request)).await?.into_inner();
        let mut present = BTreeMap::new();
        while let Some(response) = patiently(responses.message()).await? {
            for entity in response.entities {
                let Some(v1::entity::Entity::TableEntry(entry)) = entity.entity else { continue };
                // Some switches also list default entries.
                let Some(action) = entry.action.as_ref().filter(|_| !entry.is_default_action) else { continue };
                present.insert(Key::of(&entry)?, Value::of(entry.table_id, action)?);
            }
        }
        present.retain(|key, _| wanted.owns(*key));
        Ok(present)
    }
}

/// Returns a number that no other process knows.
fn chance() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns the delay before the controller takes the place of a missing primary.
fn moment() -> Duration {
    STAND_MIN + Duration::from_millis(chance() % STAND_MORE_MS)
}

/// Ends a call at its time limit.
async fn patiently<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    timeout(PATIENCE, call).await.unwrap_or_else(|_| Err(Status::deadline_exceeded("the switch does not answer")))
}

/// Describes an error, with the parts that failed.
fn words(status: &Status) -> String {
    let failed = parts(status).unwrap_or_default();
    let failed = failed.iter().filter(|error| error.canonical_code != 0);
    let each = failed.map(|error| format!("; {:?}: {}", Code::from(error.canonical_code), error.message));
    format!("{:?}: {}{}", status.code(), status.message(), each.collect::<String>())
}

/// Describes an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        words = format!("{words}: {error}");
        source = error.source();
    }
    words
}
