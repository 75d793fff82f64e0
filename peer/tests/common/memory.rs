//! Backend that is a map in memory, with the real services behind it, on one thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use group::data::service::{Change, Delivery, Live, deliver};
use group::op::{Answer, Op, OpError, Refusal, Version};
use node::{Request, RequestId};
use overlay::time::WallMillis;
use peer::resp::{Backend, Rejected, Replies, Router};
use peer::status::{Check, GroupStatus, MemberStatus, PrimaryStatus, RangeStatus, Readiness, Status, StatusSource};

/// Behaviour of the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// Answers at once, in order.
    #[default]
    Prompt,
    /// Answers each batch in a random order and in random pieces; requests on one key stay in order.
    Shuffled(u64),
    /// Never answers.
    Silent,
    /// Answers every request with this error.
    Failing(OpError),
    /// Accepts no request.
    Full,
    /// Fails every other request.
    Halting(OpError),
    /// Answers after this time.
    Slow(Duration),
}

/// Handle of the connections.
pub struct Memory {
    sender: mpsc::Sender<Vec<Request>>,
    full: bool,
}

impl Backend for Memory {
    fn submit(&self, batch: Vec<Request>) -> Result<(), Rejected> {
        if self.full {
            return Err(Rejected { batch, why: Refusal::Busy });
        }
        self.sender.send(batch).map_err(|mpsc::SendError(batch)| Rejected { batch, why: Refusal::Stopping })
    }
}

/// Starts the thread.
pub fn start(router: &Arc<Router>, manner: Manner) -> Arc<dyn Backend> {
    #[expect(clippy::disallowed_methods, reason = "a test takes every message")]
    let (sender, receiver) = mpsc::channel();
    let replies = router.replies();
    std::thread::spawn(move || work(&receiver, replies, manner));
    Arc::new(Memory { sender, full: manner == Manner::Full })
}

fn work(receiver: &mpsc::Receiver<Vec<Request>>, mut replies: Replies, manner: Manner) {
    let mut map = Map::default();
    let mut random = match manner {
        Manner::Shuffled(seed) => seed | 1,
        _ => 1,
    };
    let mut chance = move |of: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % of.max(1) as u64) as usize
    };
    let mut late: Vec<(Instant, RequestId, Result<Answer, OpError>)> = Vec::new();
    let mut count = 0;
    loop {
        let wait = late.first().map(|(at, ..)| at.saturating_duration_since(Instant::now()));
        let mut batch = match receiver.recv_timeout(wait.unwrap_or(Duration::from_secs(3600))) {
            Ok(batch) => batch,
            Err(mpsc::RecvTimeoutError::Timeout) => Vec::new(),
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        };
        while let Ok(mut more) = receiver.try_recv() {
            batch.append(&mut more);
        }
        let mut done = Vec::new();
        for request in batch {
            count += 1;
            let result = match manner {
                Manner::Silent => continue,
                Manner::Failing(error) => Err(error),
                Manner::Halting(error) if count % 2 == 0 => Err(error),
                _ => Ok(map.evaluate(request.key.name(), request.op, request.once)),
            };
            done.push((request.id, result));
        }
        match manner {
            Manner::Shuffled(_) => {
                for index in (1..done.len()).rev() {
                    done.swap(index, chance(index + 1));
                }
                for (id, result) in done {
                    replies.push(id, result);
                    if chance(7) == 0 {
                        replies.flush();
                        std::thread::yield_now();
                    }
                }
            }
            Manner::Slow(by) => late.extend(done.into_iter().map(|(id, result)| (Instant::now() + by, id, result))),
            _ => done.into_iter().for_each(|(id, result)| replies.push(id, result)),
        }
        let now = Instant::now();
        let ripe = late.partition_point(|(at, ..)| *at <= now);
        late.drain(..ripe).for_each(|(_, id, result)| replies.push(id, result));
        replies.flush();
    }
}

/// The map.
#[derive(Debug, Default)]
pub struct Map {
    entries: BTreeMap<Vec<u8>, Live>,
    once: BTreeMap<(Vec<u8>, Bytes), Answer>,
    clock: u64,
}

const VALUE_BYTES_MAX: usize = 64 * 1024;

impl Map {
    /// Executes one operation.
    pub fn evaluate(&mut self, key: &[u8], op: Op, once: Option<Bytes>) -> Answer {
        let Some(id) = once else {
            return self.apply(key, op);
        };
        let id = (key.to_vec(), id);
        if let Some(answer) = self.once.get(&id) {
            return answer.clone();
        }
        let answer = self.apply(key, op);
        self.once.insert(id, answer.clone());
        answer
    }

    fn apply(&mut self, key: &[u8], op: Op) -> Answer {
        let at = Delivery { now: WallMillis(wall()), value_bytes_max: VALUE_BYTES_MAX };
        self.entries.retain(|_, live| live.deadline.is_none_or(|deadline| deadline > at.now));
        let (change, answer) = deliver(&op, self.entries.get(key), &at);
        match change {
            Change::None => {}
            Change::Put(value, deadline) => {
                self.clock += 1;
                let version = Version { generation: 1, timestamp: self.clock };
                let kind = op.kind().unwrap_or_default();
                self.entries.insert(key.to_vec(), Live { value, kind, version, deadline });
            }
            Change::Delete => {
                self.entries.remove(key);
            }
        }
        answer
    }
}

fn wall() -> u64 {
    environment::unix_ms()
}

/// Status source with a fixed status.
pub struct Alone;

impl StatusSource for Alone {
    fn status(&self) -> Status {
        let zero = "0".repeat(32);
        Status {
            peer_id: "12D3KooWAlone".into(),
            network: "test".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            durability: "memory".into(),
            groups: vec![GroupStatus {
                id: "7".repeat(32),
                epoch: 3,
                range: RangeStatus { start: zero.clone(), end: zero.clone() },
                members: vec![MemberStatus {
                    peer_id: "12D3KooWAlone".into(),
                    role: "leader".into(),
                    ..Default::default()
                }],
                leader: Some("12D3KooWAlone".into()),
                primaries: vec![PrimaryStatus { start: zero.clone(), end: zero, peer_id: "12D3KooWAlone".into() }],
                dropped: [("far".to_owned(), 2)].into(),
                ..GroupStatus::default()
            }],
            ..Status::default()
        }
    }

    fn readiness(&self) -> Readiness {
        Readiness {
            ready: true,
            checks: vec![Check { name: "group".into(), ok: true, detail: "alone".into() }],
            hopeless: None,
        }
    }
}
