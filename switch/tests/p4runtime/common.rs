//! A switch that answers controllers, and helpers for the messages of tests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use switch::dirty::Shape;
use switch::p4rt::arbitration::election_id;
use switch::p4rt::entry::{Key, Value};
use switch::p4rt::p4info::p4info;
use switch::p4rt::proto::p4::v1;
use switch::p4rt::proto::p4::v1::p4_runtime_client::P4RuntimeClient;
use switch::p4rt::proto::p4::v1::set_forwarding_pipeline_config_request::Action;
use switch::p4rt::server;
use switch::p4rt::standin::Standin;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

pub const DEVICE: u64 = 1;

/// Time limit, longer than any step takes.
pub const SOON: Duration = Duration::from_secs(20);

pub type Client = P4RuntimeClient<Channel>;

/// A switch.
pub struct Switch {
    pub standin: Arc<Standin>,
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Switch {
    pub async fn start() -> Switch {
        Switch::with_slots(64).await
    }

    /// Starts a switch with this many slots in each stage.
    pub async fn with_slots(slots: usize) -> Switch {
        Switch::start_with("127.0.0.1:0".parse().unwrap(), slots).await
    }

    pub async fn start_at(address: SocketAddr) -> Switch {
        Switch::start_with(address, 64).await
    }

    async fn start_with(address: SocketAddr, slots: usize) -> Switch {
        let standin = Arc::new(Standin::new(Shape { stages: 3, slots }, 8));
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let target = standin.clone();
        let task = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            server::serve(listener, DEVICE, target, stopped).await
        });
        Switch { standin, address, stop: Some(stop), task }
    }

    /// Stops the switch while controllers have streams; it must not take long.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        timeout(SOON, &mut self.task).await.expect("it stops").unwrap().unwrap();
    }

    pub async fn client(&self) -> Client {
        Client::connect(format!("http://{}", self.address)).await.unwrap()
    }
}

/// A controller's stream.
pub struct Session {
    pub client: Client,
    out: mpsc::Sender<v1::StreamMessageRequest>,
    responses: Streaming<v1::StreamMessageResponse>,
}

pub fn arbitration(election: Option<u128>) -> v1::StreamMessageRequest {
    let update = v1::MasterArbitrationUpdate {
        device_id: DEVICE,
        election_id: election.map(election_id),
        ..v1::MasterArbitrationUpdate::default()
    };
    v1::StreamMessageRequest { update: Some(v1::stream_message_request::Update::Arbitration(update)) }
}

impl Session {
    pub async fn open(switch: &Switch) -> Session {
        let mut client = switch.client().await;
        let (out, requests) = mpsc::channel(8);
        let responses = client.stream_channel(ReceiverStream::new(requests)).await.unwrap().into_inner();
        Session { client, out, responses }
    }

    /// Opens a stream, and sends an arbitration update.
    pub async fn with(switch: &Switch, election: Option<u128>) -> Session {
        let session = Session::open(switch).await;
        session.say(arbitration(election)).await;
        session
    }

    pub async fn say(&self, request: v1::StreamMessageRequest) {
        self.out.send(request).await.unwrap();
    }

    pub async fn hear(&mut self) -> Result<Option<v1::StreamMessageResponse>, Status> {
        timeout(SOON, self.responses.message()).await.expect("an answer")
    }

    /// Returns the content of the next notice: the code, and the highest election id.
    pub async fn told(&mut self) -> (Code, Option<v1::Uint128>) {
        match self.hear().await.unwrap().unwrap().update {
            Some(v1::stream_message_response::Update::Arbitration(update)) => {
                (Code::from(update.status.unwrap().code), update.election_id)
            }
            other => panic!("{other:?}"),
        }
    }

    pub async fn primary(switch: &Switch, election: u128) -> Session {
        let mut session = Session::with(switch, Some(election)).await;
        assert_eq!(session.told().await.0, Code::Ok);
        session
    }
}

pub fn config(cookie: u64) -> v1::ForwardingPipelineConfig {
    v1::ForwardingPipelineConfig {
        p4info: Some(p4info().clone()),
        p4_device_config: b"whatever its target makes of it".to_vec(),
        cookie: Some(v1::forwarding_pipeline_config::Cookie { cookie }),
    }
}

pub fn load(
    election: u128,
    action: Action,
    config: Option<v1::ForwardingPipelineConfig>,
) -> v1::SetForwardingPipelineConfigRequest {
    v1::SetForwardingPipelineConfigRequest {
        device_id: DEVICE,
        election_id: Some(election_id(election)),
        action: action as i32,
        config,
        ..v1::SetForwardingPipelineConfigRequest::default()
    }
}

/// Returns a switch with a program, and its primary controller.
pub async fn ready(election: u128) -> (Switch, Session) {
    let switch = Switch::start().await;
    let mut session = Session::primary(&switch, election).await;
    let request = load(election, Action::VerifyAndCommit, Some(config(5)));
    session.client.set_forwarding_pipeline_config(request).await.unwrap();
    (switch, session)
}

pub fn entity(entry: v1::TableEntry) -> v1::Entity {
    v1::Entity { entity: Some(v1::entity::Entity::TableEntry(entry)) }
}

pub fn entry(key: Key, value: &Value) -> v1::TableEntry {
    v1::TableEntry { action: Some(value.action()), ..key.entry() }
}

pub fn update(kind: v1::update::Type, entity: v1::Entity) -> v1::Update {
    v1::Update { r#type: kind as i32, entity: Some(entity) }
}

pub fn write(election: u128, updates: Vec<v1::Update>) -> v1::WriteRequest {
    v1::WriteRequest {
        device_id: DEVICE,
        election_id: Some(election_id(election)),
        updates,
        ..v1::WriteRequest::default()
    }
}

/// Returns all entities that are read, and the final status.
pub async fn read(client: &mut Client, entities: Vec<v1::Entity>) -> (Vec<v1::Entity>, Result<(), Status>) {
    let request = v1::ReadRequest { device_id: DEVICE, entities, ..v1::ReadRequest::default() };
    let mut responses = match client.read(request).await {
        Ok(responses) => responses.into_inner(),
        Err(status) => return (Vec::new(), Err(status)),
    };
    let mut found = Vec::new();
    loop {
        match responses.message().await {
            Ok(Some(response)) => found.extend(response.entities),
            Ok(None) => return (found, Ok(())),
            Err(status) => return (found, Err(status)),
        }
    }
}
