//! Memory of three peers through two hours of writes to a fixed set of keys, in virtual time: it levels off.
//!
//! All memory of a peer's loop counts: tables, windows of recent writes, sessions, logs, queued frames. The memory of the network and
//! of the store does not. `cargo test -p node --test soak -- --nocapture` prints the numbers.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use group::op::{Condition, Expiry, Op, ReadMode};
use node::{ConnectionId, Event, Input, Node, NodeConfig, Output, Request, RequestId, Restored};
use overlay::time::{Now, Time, WallMillis};
use overlay::{Incarnation, Key, PeerKey};

const CONNECTIONS: u64 = 4;
const KEYS: u64 = 100;
/// Time from one drained batch of a peer to its next.
const ROUND: Duration = Duration::from_millis(40);
const MINUTE: u64 = 60_000 / 40;

struct Live;

static LIVE: AtomicI64 = AtomicI64::new(0);

// SAFETY: all calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Live {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: it came from `System`, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_add(size as i64 - layout.size() as i64, Ordering::Relaxed);
        // SAFETY: it came from `System`, with this layout.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Live = Live;

struct Peer {
    node: Node,
    key: PeerKey,
    inbox: Vec<Input>,
    wake_at: Time,
}

/// Three peers whose network and stores take no time.
struct Trio {
    peers: Vec<Peer>,
    now: Time,
    answered: u64,
    next: u64,
}

impl Trio {
    fn new() -> Trio {
        let now = Now { time: Time(1), awake: Time(1), wall: WallMillis(1) };
        let keys = [1, 2, 3].map(|peer| PeerKey([peer; 32]));
        let peer = |key: PeerKey| {
            let mut config = NodeConfig::new(key, Incarnation(1 << 20));
            config.found = key == keys[0];
            // So windows of recent writes are full within the first minutes.
            config.memory_bytes_max = 8 << 20;
            let others = keys.into_iter().filter(|other| *other != key).map(Input::PeerUp);
            Peer { node: Node::new(config, 7, now, Restored::empty()), key, inbox: others.collect(), wake_at: Time(0) }
        };
        Trio { peers: keys.into_iter().map(peer).collect(), now: Time(1), answered: 0, next: 0 }
    }

    /// Handles one drained batch of each peer.
    fn round(&mut self) {
        self.now = self.now + ROUND;
        let now = Now { time: self.now, awake: self.now, wall: WallMillis(self.now.0 / 1_000_000) };
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            let inputs = std::mem::take(&mut peer.inbox);
            let due = peer.wake_at <= self.now;
            inputs.into_iter().for_each(|input| peer.node.handle(now, input));
            if due {
                peer.node.handle(now, Input::Tick);
            }
            while let Some(output) = self.peers[index].node.poll_output() {
                self.carry(index, output);
            }
        }
    }

    fn carry(&mut self, index: usize, output: Output) {
        let from = self.peers[index].key;
        let own = &mut self.peers[index];
        match output {
            Output::Send { to, frame, .. } => {
                let to = self.peers.iter_mut().find(|peer| peer.key == to).expect("one of three");
                to.inbox.push(Input::Frame { from, frame });
            }
            Output::Persist { token, .. } => own.inbox.push(Input::Persisted(token)),
            Output::Load { record_key, .. } => own.inbox.push(Input::Loaded { record_key, record: None }),
            Output::Scan { token, .. } => own.inbox.push(Input::Scanned { token, records: Vec::new(), done: true }),
            Output::Reply { .. } => self.answered += 1,
            Output::WakeAt(at) => own.wake_at = at,
            Output::Event(
                Event::Reincarnate { why, .. } | Event::Damaged(why) | Event::Quarantine(why) | Event::Fatal(why),
            ) => panic!("{why}"),
            Output::Packet { .. } => panic!("there is no switch"),
            Output::Dial { .. } | Output::Event(_) | Output::AdminOutcome { .. } | Output::RingWalked { .. } => {}
        }
    }

    /// Returns whether all three are members of a group at rest.
    fn is_settled(&self) -> bool {
        self.peers.iter().all(|peer| {
            let at_rest = |group: &group::Group| group.state().members.len() == 3 && group.state().is_settled();
            peer.node.group().is_some_and(at_rest)
        })
    }

    /// Writes for this number of minutes, one write after the other of each connection; every tenth under a client's own id, every
    /// twentieth a deletion. Returns the least and the most memory at the end of a minute, in bytes.
    fn write(&mut self, minutes: u64) -> (i64, i64) {
        let (mut least, mut most) = (i64::MAX, 0);
        for _ in 0..minutes {
            for _ in 0..MINUTE {
                while self.next < self.answered + CONNECTIONS {
                    let request = self.request();
                    let peer = (request.connection.0 % 3) as usize;
                    self.peers[peer].inbox.push(Input::Routecast(request));
                }
                self.round();
            }
            let live = LIVE.load(Ordering::Relaxed);
            (least, most) = (least.min(live), most.max(live));
        }
        (least, most)
    }

    fn request(&mut self) -> Request {
        self.next += 1;
        let name = format!("key:{:012}", self.next.wrapping_mul(0x9e37_79b9_7f4a_7c15) % KEYS);
        let value = Bytes::from(vec![b'x'; 100]);
        let op = match self.next % 20 {
            0 => Op::Delete { condition: Condition::Always, get: false },
            _ => Op::Set { value, condition: Condition::Always, expiry: Expiry::Clear, get: false },
        };
        Request {
            id: RequestId(self.next),
            connection: ConnectionId(self.next % CONNECTIONS),
            key: Key::new(name.as_bytes()).expect("short"),
            op,
            mode: ReadMode::Linearizable,
            patience: Duration::from_secs(3),
            once: self.next.is_multiple_of(10).then(|| Bytes::from(format!("id {}", self.next))),
        }
    }
}

/// Caches fill within the first half hour; later the memory does not grow.
#[test]
fn memory_levels_off_under_writes_to_a_fixed_set_of_keys() {
    let mut trio = Trio::new();
    for _ in 0..200_000 {
        trio.round();
        if trio.is_settled() {
            break;
        }
    }
    assert!(trio.is_settled(), "three peers are one group");
    let begin = LIVE.load(Ordering::Relaxed);
    let quarters: Vec<(i64, i64)> = (0..4).map(|_| trio.write(30)).collect();
    println!("{begin} bytes before, then by half hours {quarters:?}, after {} writes", trio.answered);
    assert!(trio.answered > 50_000, "{} writes", trio.answered);
    let (second, last) = (quarters[1], quarters[3]);
    assert!(last.0 <= second.1, "at least {} bytes in the last half hour, at most {} in the second", last.0, second.1);
    assert!(
        last.1 <= second.1 + second.1 / 20,
        "at most {} bytes in the last half hour, {} in the second",
        last.1,
        second.1
    );
}
