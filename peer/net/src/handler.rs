//! One connection: its handler opens this peer's streams, accepts the other side's streams, and gives each a task of its
//! own.
//!
//! Frames never pass through here nor through the swarm: seven unread events of a connection stall all its streams.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::iter;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use libp2p::core::UpgradeInfo;
use libp2p::core::upgrade::{InboundUpgrade, OutboundUpgrade};
use libp2p::swarm::handler::{ConnectionEvent, DialUpgradeError, FullyNegotiatedInbound, FullyNegotiatedOutbound};
use libp2p::swarm::{
    ConnectionHandler, ConnectionHandlerEvent, ConnectionId, Stream, StreamUpgradeError, SubstreamProtocol,
};
use libp2p::{PeerId, futures::FutureExt, futures::future::BoxFuture};
use node::Class;
use overlay::PeerKey;
use tokio::sync::watch;

use crate::event::RefusedBy;
use crate::shared::SharedNet;
use crate::stats::count;
use crate::stream::hello::{self, AcceptedHello, GreetingError, PROTOCOL, Purpose, Refusal, Refused};
use crate::stream::link::{CLASSES, Link};
use crate::stream::{self, StreamEnd};

/// Time that a reader has to hand over arrived frames after its connection is gone.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Orders of the behaviour to a connection.
#[derive(Debug)]
pub(crate) enum Order {
    /// Serve the queues of this link. The first order, after the connection is established: a handler is made before it
    /// is known whether the connection will be accepted.
    Attach(Attached),
    /// Open a stream for each class: this is the connection that this peer writes on.
    Open,
    /// Send the hello once more.
    Check,
    /// Open no more streams for frames, and end the present ones: they continue on another connection.
    Leave,
}

/// A [`Link`] with a short debug output.
pub(crate) struct Attached(pub(crate) Arc<Link>);

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0.peer)
    }
}

/// Reports of a connection to the behaviour.
#[derive(Debug)]
pub(crate) enum ConnectionReport {
    /// A hello was accepted, by either side.
    Accepted,
    /// One side refused the other.
    Refused(Refused, RefusedBy),
    /// A stream did not come about for another reason. The connection is of no use.
    Broken(String),
}

/// The handler of one connection; see the module.
pub(crate) struct Handler {
    shared: Arc<SharedNet>,
    peer: PeerKey,
    peer_id: PeerId,
    connection: ConnectionId,
    link: Option<Arc<Link>>,
    /// Streams of the other side that were accepted before [`Order::Attach`] came.
    early: Vec<(AcceptedHello, Stream)>,
    /// Classes for which the other side has opened its stream. It has one each.
    reading: [bool; 3],
    open: VecDeque<Purpose>,
    reports: VecDeque<ConnectionReport>,
    accepted: bool,
    waker: Option<Waker>,
    /// Dropped with the handler: tells the tasks that the connection is gone.
    gone: watch::Sender<()>,
    /// Whether [`Order::Leave`] has come.
    left: watch::Sender<bool>,
}

impl Handler {
    pub(crate) fn new(shared: Arc<SharedNet>, peer: PeerKey, peer_id: PeerId, connection: ConnectionId) -> Handler {
        Handler {
            shared,
            peer,
            peer_id,
            connection,
            link: None,
            early: Vec::new(),
            reading: [false; 3],
            open: VecDeque::new(),
            reports: VecDeque::new(),
            accepted: false,
            waker: None,
            gone: watch::Sender::new(()),
            left: watch::Sender::new(false),
        }
    }

    fn greeting(&self, purpose: Purpose) -> Greeting {
        Greeting { shared: self.shared.clone(), peer: self.peer, purpose }
    }

    fn report(&mut self, report: ConnectionReport) {
        self.reports.push_back(report);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Notes that a hello was accepted. Returns the class of the stream's frames, if it carries frames.
    fn accept(&mut self, link: &Link, agreed: AcceptedHello) -> Option<Class> {
        let dead = link.accept(self.connection, agreed.instance, &self.shared.inbox);
        if !dead.is_empty() {
            let dead = dead.into_iter().map(|connection| (self.peer_id, connection));
            self.shared.orders.give(|orders| orders.close.extend(dead));
        }
        if !self.accepted {
            self.accepted = true;
            self.report(ConnectionReport::Accepted);
        }
        match agreed.purpose {
            Purpose::Frames(class) => Some(class),
            Purpose::Check => None,
        }
    }

    fn opened_by_them(&mut self, agreed: AcceptedHello, stream: Stream) {
        let Some(link) = self.link.clone() else {
            // One for each class and a check: a peer that opens more is not of this program.
            if self.early.len() <= CLASSES.len() {
                self.early.push((agreed, stream));
            }
            return;
        };
        let Some(class) = self.accept(&link, agreed) else {
            return;
        };
        if std::mem::replace(&mut self.reading[class as usize], true) {
            count(&self.shared.counters.violations);
            self.report(ConnectionReport::Broken(format!("a second {class:?} stream")));
            return;
        }
        let shared = self.shared.clone();
        self.spawn(Some(LAST_WORDS), async move { stream::read(stream, &link, class, &shared).await });
    }

    fn opened_by_us(&mut self, agreed: AcceptedHello, stream: Stream) {
        let Some(link) = self.link.clone() else {
            return;
        };
        let Some(class) = self.accept(&link, agreed) else {
            return;
        };
        let (stall, mut left) = (self.shared.config.timing.stall, self.left.subscribe());
        let leave = async move {
            if left.wait_for(|left| *left).await.is_err() {
                // The connection is gone, which ends the stream in another way.
                std::future::pending().await
            }
        };
        self.spawn(None, async move { stream::write(stream, &link, class, stall, leave).await });
    }

    /// Runs one end of a stream until it ends or its connection is gone, then has the connection closed: a broken stream
    /// is repaired like a broken connection, by a new one.
    fn spawn(&self, last_words: Option<Duration>, run: impl Future<Output = StreamEnd> + Send + 'static) {
        let (shared, connection) = (self.shared.clone(), (self.peer_id, self.connection));
        let (peer, mut gone) = (self.peer, self.gone.subscribe());
        tokio::spawn(async move {
            let gone = async {
                let _ = gone.changed().await;
                if let Some(time) = last_words {
                    tokio::time::sleep(time).await;
                }
            };
            let end = tokio::select! {
                end = run => end,
                () = gone => return,
            };
            match end {
                StreamEnd::Stalled => _ = count(&shared.counters.stalled),
                StreamEnd::Violation(_) => _ = count(&shared.counters.violations),
                StreamEnd::Closed | StreamEnd::Moved | StreamEnd::Io(_) => {}
            }
            tracing::debug!(?peer, %end, "a stream ended");
            if let StreamEnd::Moved = end {
                return;
            }
            shared.orders.give(|orders| _ = orders.close.insert(connection));
        });
    }

    fn failed(&mut self, error: GreetingError) {
        self.report(match error {
            GreetingError::RefusedByUs(refused) => ConnectionReport::Refused(refused, RefusedBy::Us),
            GreetingError::RefusedByThem(refused) => ConnectionReport::Refused(refused, RefusedBy::Them),
            GreetingError::Version(by, theirs) => {
                ConnectionReport::Refused(Refused::of(Refusal::Version, &self.shared.membership(), Some(theirs)), by)
            }
            GreetingError::Garbage => {
                count(&self.shared.counters.violations);
                ConnectionReport::Broken("not a greeting".into())
            }
            GreetingError::Io(error) => ConnectionReport::Broken(error.to_string()),
        });
    }
}

impl ConnectionHandler for Handler {
    type FromBehaviour = Order;
    type ToBehaviour = ConnectionReport;
    type InboundProtocol = Greeting;
    type OutboundProtocol = Greeting;
    type InboundOpenInfo = ();
    type OutboundOpenInfo = Purpose;

    fn listen_protocol(&self) -> SubstreamProtocol<Greeting> {
        SubstreamProtocol::new(self.greeting(Purpose::Check), ()).with_timeout(self.shared.config.timing.hello)
    }

    // `connection_keep_alive` stays false: the streams of both sides keep a connection alive on both sides, as each side
    // holds an end of each stream. A connection without streams is a spare and may be closed.

    fn on_behaviour_event(&mut self, order: Order) {
        match order {
            Order::Attach(Attached(link)) => {
                self.link = Some(link);
                for (agreed, stream) in std::mem::take(&mut self.early) {
                    self.opened_by_them(agreed, stream);
                }
            }
            Order::Open => self.open.extend(CLASSES.map(Purpose::Frames)),
            Order::Check => self.open.push_back(Purpose::Check),
            Order::Leave => {
                self.open.retain(|purpose| matches!(purpose, Purpose::Check));
                self.left.send_replace(true);
            }
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn on_connection_event(&mut self, event: ConnectionEvent<Greeting, Greeting, (), Purpose>) {
        match event {
            ConnectionEvent::FullyNegotiatedInbound(FullyNegotiatedInbound { protocol: (agreed, stream), .. }) => {
                self.opened_by_them(agreed, stream)
            }
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound {
                protocol: (agreed, stream), ..
            }) => self.opened_by_us(agreed, stream),
            ConnectionEvent::ListenUpgradeError(failed) => self.failed(failed.error),
            ConnectionEvent::DialUpgradeError(DialUpgradeError { error, .. }) => self.failed(match error {
                StreamUpgradeError::Apply(error) => error,
                // The other side does not know the hello's own protocol.
                StreamUpgradeError::NegotiationFailed => {
                    let refused = Refused::of(Refusal::Version, &self.shared.membership(), None);
                    GreetingError::RefusedByThem(refused)
                }
                StreamUpgradeError::Timeout => GreetingError::Io(io::ErrorKind::TimedOut.into()),
                StreamUpgradeError::Io(error) => GreetingError::Io(error),
            }),
            _ => {}
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionHandlerEvent<Greeting, Purpose, ConnectionReport>> {
        if let Some(report) = self.reports.pop_front() {
            return Poll::Ready(ConnectionHandlerEvent::NotifyBehaviour(report));
        }
        if let Some(purpose) = self.open.pop_front() {
            let protocol =
                SubstreamProtocol::new(self.greeting(purpose), purpose).with_timeout(self.shared.config.timing.hello);
            return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
        }
        self.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Hello and answer as libp2p's upgrade of a stream, so that its deadline covers them too.
pub(crate) struct Greeting {
    shared: Arc<SharedNet>,
    peer: PeerKey,
    /// The purpose to send; unused where the other side opened the stream.
    purpose: Purpose,
}

impl UpgradeInfo for Greeting {
    type Info = &'static str;
    type InfoIter = iter::Once<&'static str>;

    fn protocol_info(&self) -> Self::InfoIter {
        iter::once(PROTOCOL)
    }
}

impl InboundUpgrade<Stream> for Greeting {
    type Output = (AcceptedHello, Stream);
    type Error = GreetingError;
    type Future = BoxFuture<'static, Result<Self::Output, GreetingError>>;

    fn upgrade_inbound(self, mut stream: Stream, _: &'static str) -> Self::Future {
        async move {
            let mine = self.shared.membership();
            match hello::accept(&mut stream, &mine, &self.shared.me, &self.peer).await {
                Ok(agreed) => Ok((agreed, stream)),
                Err(error) => {
                    if let GreetingError::RefusedByUs(_) | GreetingError::Version(..) = error {
                        // In its own task: within the greeting's time limit the refusal might be taken for silence.
                        tokio::spawn(hello::linger(stream));
                    }
                    Err(error)
                }
            }
        }
        .boxed()
    }
}

impl OutboundUpgrade<Stream> for Greeting {
    type Output = (AcceptedHello, Stream);
    type Error = GreetingError;
    type Future = BoxFuture<'static, Result<Self::Output, GreetingError>>;

    fn upgrade_outbound(self, mut stream: Stream, _: &'static str) -> Self::Future {
        async move {
            let mine = self.shared.membership();
            let agreed = hello::open(&mut stream, &mine, &self.shared.me, &self.peer, self.purpose).await?;
            Ok((agreed, stream))
        }
        .boxed()
    }
}
