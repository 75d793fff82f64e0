//! Whether a node can serve, as its own probes show: reads of a key of its group, submitted as a client might.

use core::time::Duration;

use group::op::{Op, Read, ReadMode};
use overlay::time::Time;
use overlay::{Key, KeyRange};

use crate::api::{Event, Request};
use crate::context::Context;
use crate::sessions::requester::Requester;

/// Upper limit of keys that are tried to find one in the range of this node's own group.
const PROBE_KEYS_MAX: u16 = 1 << 14;
/// Shortest and longest wait for an answer to the node's own probe. The longest is that of a client, since the node may be far from the
/// primary.
pub(crate) const PROBE_PATIENCE: Duration = Duration::from_millis(500);
const PROBE_PATIENCE_MAX: Duration = Duration::from_secs(3);

/// The node's own probes.
#[derive(Debug)]
pub(crate) struct Readiness {
    due: Time,
    /// Time to wait for the answer: longer after each failure.
    patience: Duration,
    /// Key of the probe, in the range of the node's own group: other groups may or may not serve.
    key: Option<Key>,
}

impl Readiness {
    /// Creates the state of a node that may probe now.
    pub(crate) fn new(now: Time) -> Readiness {
        Readiness { due: now, patience: PROBE_PATIENCE, key: None }
    }

    /// Returns the time of the next probe of a node that is not ready.
    pub(crate) fn due(&self) -> Time {
        self.due
    }

    /// Returns the read that the node submits to itself, as a client might, if one is due.
    pub(crate) fn next_probe(&mut self, cx: &mut Context<'_>) -> Option<Request> {
        if cx.replicas.is_empty() || cx.stage.ready || cx.now.time < self.due {
            return None;
        }
        self.due = cx.now.time + self.patience;
        let range = cx.replicas.home()?.state().range;
        let key = match self.key.take() {
            Some(key) if range.contains(key.point()) => key,
            _ => probe_key(range),
        };
        self.key = Some(key.clone());
        Some(Request {
            id: Requester::Probe.id(),
            connection: Requester::Probe.connection(),
            key,
            op: Op::Read(Read::Exists),
            mode: ReadMode::Linearizable,
            patience: self.patience,
            once: None,
        })
    }

    /// Handles the answer to the node's own probe, which shows whether the node can serve.
    pub(crate) fn on_answered(&mut self, cx: &mut Context<'_>, served: bool) {
        self.patience = if served { PROBE_PATIENCE } else { (self.patience * 2).min(PROBE_PATIENCE_MAX) };
        if served && !cx.stage.ready {
            cx.stage.ready = true;
            cx.event(Event::Ready);
        }
    }
}

/// Returns a key in this range; the empty one where none is found.
fn probe_key(range: KeyRange) -> Key {
    let empty = Key::new(b"").expect("a key may be empty");
    let numbered = (0..PROBE_KEYS_MAX).filter_map(|number| Key::new(&number.to_be_bytes()).ok());
    let found = core::iter::once(empty.clone()).chain(numbered).find(|key| range.contains(key.point()));
    found.unwrap_or(empty)
}
