//! Backend that is a real node, alone in its network and in memory.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use group::op::Refusal;
use node::{Durability, Event, Input, Node, NodeConfig, Output, Request, Restored};
use overlay::time::{Now, Time, WallMillis};
use overlay::{Incarnation, PeerKey};
use peer::resp::{Backend, Rejected, Router};

struct Alone(mpsc::Sender<Vec<Request>>);

impl Backend for Alone {
    fn submit(&self, batch: Vec<Request>) -> Result<(), Rejected> {
        self.0.send(batch).map_err(|mpsc::SendError(batch)| Rejected { batch, why: Refusal::Stopping })
    }
}

/// Starts the node's loop, and returns once it serves.
pub fn start(router: &Arc<Router>) -> Arc<dyn Backend> {
    #[expect(clippy::disallowed_methods, reason = "a test takes every message")]
    let (sender, receiver) = mpsc::channel::<Vec<Request>>();
    let (ready, is_ready) = mpsc::sync_channel(1);
    let mut replies = router.replies();
    std::thread::spawn(move || {
        let started = Instant::now();
        let now = || {
            let time = Time(started.elapsed().as_nanos() as u64);
            Now { time, awake: time, wall: WallMillis(environment::unix_ms()) }
        };
        let mut config = NodeConfig::new(PeerKey([1; 32]), Incarnation(1));
        config.found = true;
        config.durability = Durability::Memory;
        let mut node = Node::new(config, 7, now(), Restored::empty());
        let mut wake_at = Time::NEVER;
        loop {
            while let Some(output) = node.poll_output() {
                match output {
                    Output::Reply { id, result } => replies.push(id, result),
                    Output::WakeAt(time) => wake_at = time,
                    Output::Event(Event::Ready) => {
                        let _ = ready.send(());
                    }
                    Output::Persist { token, .. } => node.handle(now(), Input::Persisted(token)),
                    _ => {}
                }
            }
            replies.flush();
            let wait = wake_at.since(now().time).min(Duration::from_secs(1));
            match receiver.recv_timeout(wait) {
                Ok(batch) => {
                    let mut batches = vec![batch];
                    batches.extend(receiver.try_iter());
                    for request in batches.into_iter().flatten() {
                        node.handle(now(), Input::Routecast(request));
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => node.handle(now(), Input::Tick),
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    });
    is_ready.recv_timeout(Duration::from_secs(30)).expect("a node alone serves");
    Arc::new(Alone(sender))
}
