//! P4Runtime server for a switch in software.
//!
//! Every host that reaches its address may read and, with the highest election id, write. So the address belongs on loopback, or
//! on a network for controllers alone. All resources of clients are limited: connections, calls in each, streams and messages.

use std::future::pending;
use std::io::{self, Write as _};
use std::iter;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Response, Status, Streaming};

use super::connections::{CONNECTIONS_MAX, Incoming};
use super::places::Handle;
use super::problem::Problem;
use super::proto::p4::v1;
use super::proto::p4::v1::p4_runtime_server::{P4Runtime, P4RuntimeServer};
use super::service::{Opened, Read, Service};
use super::target::Target;

/// Version of the specification that this server follows.
pub const VERSION: &str = "1.4.1";

/// Upper limit of a message in bytes: gRPC's usual limit, which controllers have as well.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Number of entities in one message: far below the limit.
const ENTITIES: usize = 512;
/// Upper limit of calls at once in one connection.
const CALLS_MAX: usize = 32;
/// Time limit for the preface of a connection, and for the first message of a stream.
const HELLO: Duration = Duration::from_secs(10);
/// Interval, and time limit, of keepalives: a controller with a dead machine is detected after twice this time.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Time for controllers to receive the last messages when the server stops.
const GRACE: Duration = Duration::from_secs(1);

/// Answers controllers until `stop` is done.
///
/// # Errors
/// If the listener fails.
///
/// # Panics
/// If the target has another number of stages than the P4 program.
pub async fn serve(
    listener: TcpListener,
    device: u64,
    target: Arc<dyn Target>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let service = Arc::new(Service::new(device, target));
    let server = P4RuntimeServer::new(Server { service: service.clone() })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let (tell, told) = oneshot::channel();
    let stop = async move {
        stop.await;
        // Otherwise the server would wait until all controllers are gone.
        service.stop();
        let _ = tell.send(());
    };
    let serving = tonic::transport::Server::builder()
        .concurrency_limit_per_connection(CALLS_MAX)
        .max_concurrent_streams(CALLS_MAX as u32)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .serve_with_incoming_shutdown(server, Incoming::new(listener, CONNECTIONS_MAX, HELLO), stop);
    let too_long = async {
        if told.await.is_err() {
            // The server ends by itself.
            pending::<()>().await;
        }
        sleep(GRACE).await;
    };
    tokio::select! {
        served = serving => served.map_err(io::Error::other),
        () = too_long => Ok(()),
    }
}

/// Server in a thread of its own. It stops when this value is dropped.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a server, for programs that have no runtime.
///
/// # Errors
/// If the address cannot be bound, or no thread can be started.
///
/// # Panics
/// If the target has another number of stages than the P4 program.
pub fn spawn(listen: SocketAddr, device: u64, target: Arc<dyn Target>) -> io::Result<Running> {
    let listener = std::net::TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = super::runtime()?;
    let (stop, stopped) = oneshot::channel();
    let thread = thread::Builder::new().name("p4runtime".to_owned()).spawn(move || {
        let served = runtime.block_on(async {
            let stopped = async { drop(stopped.await) };
            serve(TcpListener::from_std(listener)?, device, target, stopped).await
        });
        if let Err(error) = served {
            // The reader of stderr may have gone.
            let _ = writeln!(io::stderr(), "the service for controllers failed: {error}");
        }
    })?;
    Ok(Running { address, stop: Some(stop), thread: Some(thread) })
}

impl Running {
    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread has already reported its error.
            let _ = thread.join();
        }
    }
}

struct Server {
    service: Arc<Service>,
}

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl P4Runtime for Server {
    async fn write(&self, request: Request<v1::WriteRequest>) -> Result<Response<v1::WriteResponse>, Status> {
        self.service.write(request.get_ref())?;
        Ok(Response::new(v1::WriteResponse {}))
    }

    type ReadStream = Responses<v1::ReadResponse>;

    async fn read(&self, request: Request<v1::ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let (found, outcome) = self.service.read(request.get_ref())?;
        // Cells become entities one message at a time: whole registers would take much memory at once.
        let mut entities = found.into_iter().flat_map(|read| -> Box<dyn Iterator<Item = v1::Entity> + Send> {
            match read {
                Read::Entities(entities) => Box::new(entities.into_iter()),
                Read::Cells(cells) => Box::new(cells.entities()),
            }
        });
        let responses = iter::from_fn(move || {
            let entities: Vec<_> = entities.by_ref().take(ENTITIES).collect();
            (!entities.is_empty()).then_some(Ok(v1::ReadResponse { entities }))
        });
        Ok(Response::new(Box::pin(tokio_stream::iter(responses.chain(outcome.err().map(Err))))))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<v1::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<v1::SetForwardingPipelineConfigResponse>, Status> {
        self.service.set_config(request.into_inner())?;
        Ok(Response::new(v1::SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<v1::GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<v1::GetForwardingPipelineConfigResponse>, Status> {
        let config = self.service.get_config(request.get_ref())?;
        Ok(Response::new(v1::GetForwardingPipelineConfigResponse { config }))
    }

    type StreamChannelStream = Responses<v1::StreamMessageResponse>;

    async fn stream_channel(
        &self,
        request: Request<Streaming<v1::StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let place = request.extensions().get::<Handle>();
        let Opened { id, responses, gone } = self.service.open(place.is_some_and(Handle::is_local))?;
        let service = self.service.clone();
        // A connection with a stream is not the first to make room.
        let open = place.map(Handle::open);
        tokio::spawn(async move {
            let _open = open;
            let heard = hear(&service, id, request.into_inner());
            let why = tokio::select! {
                why = heard => why,
                _ = gone => None,
            };
            service.close(id, why);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(responses))))
    }

    async fn capabilities(
        &self,
        _: Request<v1::CapabilitiesRequest>,
    ) -> Result<Response<v1::CapabilitiesResponse>, Status> {
        Ok(Response::new(v1::CapabilitiesResponse { p4runtime_api_version: VERSION.to_owned() }))
    }
}

/// Receives a controller's messages until the stream ends, or until a message ends it for a reason.
async fn hear(service: &Service, id: u64, mut requests: Streaming<v1::StreamMessageRequest>) -> Option<Problem> {
    let Ok(mut next) = timeout(HELLO, requests.next()).await else {
        return Some(Problem::new(Code::DeadlineExceeded, "a controller says who it is"));
    };
    loop {
        // A broken stream needs no answer.
        let Some(Ok(request)) = next else { return None };
        if let Err(problem) = service.hear(id, request) {
            return Some(problem);
        }
        next = requests.next().await;
    }
}
