//! A controller: keeps a switch's tables as they are wanted, for as long as it is the primary one.
//!
//! It connects, says its election id, and waits to be told that it is the primary. Then it looks which program the switch has, loads
//! ours where it has none, reads the tables, and writes what differs; so it does again whenever something else is wanted, and from
//! time to time in case somebody else has changed something. Whatever fails, it begins anew: all of it may be done twice.
//!
//! When the primary goes a switch makes nobody its follower, as the specification has it: it says so, and which election id was the
//! highest. Whoever [*looks*](Controller::look) then takes a higher one after a moment, which is another moment for each.

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

/// A call that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// After a failure it waits this long, and each time twice as long.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// But never longer than this.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Where nobody is the primary it waits so long at least before it takes that upon itself, for who was it may be back at once.
const STAND_MIN: Duration = Duration::from_millis(50);
/// And at most so much longer: so it is mostly one that does.
const STAND_MORE_MS: u64 = 300;
/// By so much, at most, its election id is then above the highest: seldom the same as another's.
const STAND_ABOVE: u64 = 1000;
/// It looks whether the tables are as they were left this often.
const LOOK: Duration = Duration::from_secs(30);

/// Which switch, and as whom.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it is: `http://127.0.0.1:9559`, say.
    pub endpoint: String,
    /// Its number there.
    pub device: u64,
    /// What the target makes of the program: what a compiler has made for BMv2 or a hardware switch. A switch in software needs none.
    pub device_config: Vec<u8>,
}

/// How it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// There is no connection, or something did not work; it is tried again.
    Failing(String),
    /// Another controller is the primary, or nobody is yet.
    Backup,
    /// The tables are as they are wanted.
    Synced(Synced),
}

/// Tables are as they are wanted, or were looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// For how long this controller has been the primary one: goes up whenever it becomes that anew, for others may have written
    /// in the meantime.
    pub reign: u64,
    /// What was wanted ([`Controller::set_during`]); `None`: nothing was written.
    pub mark: Option<u64>,
    /// What the tables hold, of what is ours to change. Ids may have been held back ([`Ids`]).
    pub present: Arc<BTreeMap<Key, Value>>,
    /// The switch's life. Switch ids have to be for it ([`Wanted::lives`]), or they are held back.
    pub incarnation: Incarnation,
    /// So many updates were written for that, since the controller began.
    pub updates: u64,
    /// So many times that was found, so that waiting for a change does not end before it is done.
    pub looks: u64,
}

/// What a controller is to do.
#[derive(Clone, Debug)]
enum Task {
    /// To look, and write nothing.
    Look,
    /// To keep the tables like this; but only in this reign, where one is named. The mark is for whoever asked.
    Keep { wanted: Wanted, during: Option<u64>, mark: u64 },
}

/// A controller at work; dropped, it stops, and the tables stay as they are.
#[derive(Debug)]
pub struct Controller {
    tasks: watch::Sender<Task>,
    election: watch::Sender<u128>,
    link: watch::Receiver<Link>,
    task: JoinHandle<()>,
}

impl Controller {
    /// Begins; in a runtime of tokio.
    pub fn start(config: Config, election: u128, wanted: Wanted) -> Controller {
        Controller::begin(config, election, Task::Keep { wanted, during: None, mark: 0 }, false)
    }

    /// Begins to look what there is, and writes nothing into the tables before it is told what is wanted; in a runtime of tokio.
    /// Where there is no primary controller, or no more, it becomes that, with a higher election id than it was given.
    pub fn look(config: Config, election: u128) -> Controller {
        Controller::begin(config, election, Task::Look, true)
    }

    fn begin(config: Config, election: u128, task: Task, follows: bool) -> Controller {
        let (tasks, told) = watch::channel(task);
        let (election, elections) = watch::channel(election);
        let (links, link) = watch::channel(Link::Failing("not connected yet".to_owned()));
        let driver = Driver {
            config,
            told,
            elections,
            follows,
            bid: 0,
            links,
            ids: Ids::default(),
            reign: 0,
            updates: 0,
            looks: 0,
        };
        let task = tokio::spawn(driver.run());
        Controller { tasks, election, link, task }
    }

    /// Something else is wanted from now on.
    pub fn set(&self, wanted: Wanted) {
        self.tasks.send_replace(Task::Keep { wanted, during: None, mark: 0 });
    }

    /// Something else is wanted from now on, but only as long as this reign lasts ([`Synced::reign`]): afterwards it looks, and
    /// writes nothing before it is told anew. The mark is given back with what came of it ([`Synced::mark`]).
    pub fn set_during(&self, reign: u64, mark: u64, wanted: Wanted) {
        self.tasks.send_replace(Task::Keep { wanted, during: Some(reign), mark });
    }

    /// It has another election id from now on: a higher one, to be the primary.
    pub fn elect(&self, election: u128) {
        self.election.send_replace(election);
    }

    /// How it stands, now and whenever that changes.
    pub fn link(&self) -> watch::Receiver<Link> {
        self.link.clone()
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Client = P4RuntimeClient<Channel>;

struct Driver {
    config: Config,
    told: watch::Receiver<Task>,
    elections: watch::Receiver<u128>,
    /// It takes a higher election id where nobody is the primary.
    follows: bool,
    /// The one that it took, in this stream: in the next one it may be somebody else's.
    bid: u128,
    links: watch::Sender<Link>,
    ids: Ids,
    reign: u64,
    updates: u64,
    looks: u64,
}

impl Driver {
    async fn run(mut self) {
        let mut wait = RETRY_MIN;
        loop {
            let looks = self.looks;
            let why = self.session().await;
            self.links.send_replace(Link::Failing(words(&why)));
            wait = if self.looks > looks { RETRY_MIN } else { (2 * wait).min(RETRY_MAX) };
            sleep(wait).await;
        }
    }

    /// One stream, until it ends. Says why.
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
    ) -> Result<(Client, mpsc::Sender<v1::StreamMessageRequest>, Streaming<v1::StreamMessageResponse>), Status> {
        let endpoint = Endpoint::from_shared(self.config.endpoint.clone())
            .map_err(|error| Status::invalid_argument(error.to_string()))?
            .connect_timeout(PATIENCE)
            .http2_keep_alive_interval(PATIENCE)
            .keep_alive_timeout(PATIENCE)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        let channel = endpoint.connect().await.map_err(|error| Status::unavailable(chain(&error)))?;
        let mut client = Client::new(channel);
        let (out, requests) = mpsc::channel(8);
        // It is the first to speak: some switches do not answer at all before.
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
        client: &mut Client,
        out: &mpsc::Sender<v1::StreamMessageRequest>,
        responses: &mut Streaming<v1::StreamMessageResponse>,
    ) -> Result<(), Status> {
        // When to look at the tables; never, while somebody else is the primary.
        let mut look: Option<Instant> = None;
        // When to take a higher election id, and than which.
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
                        self.reign += u64::from(look.is_none());
                        look = Some(Instant::now());
                    } else {
                        look = None;
                        self.links.send_replace(Link::Backup);
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
                            self.links.send_replace(Link::Synced(synced));
                            LOOK
                        }
                        // Who lost a race for being the primary is told so in the stream.
                        Err(status) if status.code() == Code::PermissionDenied || parts(&status).is_some() => {
                            self.links.send_replace(Link::Failing(words(&status)));
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

    /// Looks at the tables, and writes what differs.
    async fn reconcile(&mut self, client: &mut Client) -> Result<Synced, Status> {
        let incarnation = self.program(client).await?;
        let task = self.told.borrow_and_update().clone();
        let (wanted, mark) = match task {
            Task::Keep { wanted, during, mark } if during.is_none_or(|reign| reign == self.reign) => (wanted, mark),
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
        Synced { reign: self.reign, mark, present, incarnation, updates: self.updates, looks: self.looks }
    }

    /// The life that the switch is in: as its program says, or a new one, in which it has ours.
    async fn program(&mut self, client: &mut Client) -> Result<Incarnation, Status> {
        let request = v1::GetForwardingPipelineConfigRequest {
            device_id: self.config.device,
            response_type: v1::get_forwarding_pipeline_config_request::ResponseType::P4infoAndCookie as i32,
        };
        let config = match patiently(client.get_forwarding_pipeline_config(request)).await {
            Ok(response) => response.into_inner().config,
            // So said older versions of the specification of a switch that has none.
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

    /// All entries that are ours to change.
    async fn read(&self, client: &mut Client, wanted: &Wanted) -> Result<BTreeMap<Key, Value>, Status> {
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
                // Some switches tell of default entries, too.
                let Some(action) = entry.action.as_ref().filter(|_| !entry.is_default_action) else { continue };
                present.insert(Key::of(&entry)?, Value::of(entry.table_id, action)?);
            }
        }
        present.retain(|key, _| wanted.owns(*key));
        Ok(present)
    }
}

/// A number that nobody knows before.
fn chance() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// How long it waits before it takes upon itself to be the primary.
fn moment() -> Duration {
    STAND_MIN + Duration::from_millis(chance() % STAND_MORE_MS)
}

/// Does not wait for ever.
async fn patiently<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    timeout(PATIENCE, call).await.unwrap_or_else(|_| Err(Status::deadline_exceeded("the switch does not answer")))
}

/// What went wrong, with the parts that failed.
fn words(status: &Status) -> String {
    let failed = parts(status).unwrap_or_default();
    let failed = failed.iter().filter(|error| error.canonical_code != 0);
    let each = failed.map(|error| format!("; {:?}: {}", Code::from(error.canonical_code), error.message));
    format!("{:?}: {}{}", status.code(), status.message(), each.collect::<String>())
}

/// An error with all that led to it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        words = format!("{words}: {error}");
        source = error.source();
    }
    words
}
