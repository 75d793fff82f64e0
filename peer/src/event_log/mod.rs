//! Recent history of a running peer, for display: the events of its groups, and its load in the last minutes.
//!
//! It is made outside of the loop, from the status that the loop publishes anyway: a task reads it four times a second. All
//! of it is bounded, and gone with the process.

mod happenings;
mod load;
mod neighbours;
mod recent;
mod ring_watch;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tracing::field::display;

use environment::lock;
pub use happenings::{EventKind, Happening, happenings};
use load::Recorder;
pub use neighbours::Neighbours;
use recent::RecentEvents;
pub use ring_watch::{GROUPS_MAX, RingMetrics, RingWatch};

use crate::names::label;
use crate::resp::latencies::Latencies;
use crate::status::{GroupStatus, LeavingStatus, LoadSample, PeerTraffic, StatusSource, Told};

/// Interval between two looks at the status.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Number of looks per sample of the load.
const LOOKS_PER_SAMPLE: u64 = 4;

/// Recent events and load of a peer.
#[derive(Default)]
pub struct EventLog {
    log: Mutex<RecentEvents>,
    load: Mutex<Recorder>,
}

impl EventLog {
    /// Adds an event that happens now. The log of this process reports it, too, but not each time where it flickers.
    pub fn tell(&self, happening: Happening) {
        let count = lock(&self.log).tell(happening.clone(), environment::unix_ms());
        let Happening { kind, group, peer, text } = happening;
        // The daemon itself logs whether it serves.
        let is_said = matches!(kind, EventKind::Ready | EventKind::NotReady);
        if count.is_some_and(|count| count.is_power_of_two()) && !is_said {
            let (group, peer) = (group.map(display), peer.map(display));
            match kind {
                EventKind::Suspected | EventKind::Excluded | EventKind::QuorumLost => {
                    tracing::warn!(kind = kind.name(), group, peer, "{text}");
                }
                _ => tracing::info!(kind = kind.name(), group, peer, "{text}"),
            }
        }
    }

    /// Returns the events behind `seq`, oldest first, and the last number that was given.
    pub fn after(&self, seq: u64) -> (Vec<Told>, u64) {
        lock(&self.log).after(seq)
    }

    /// Returns the load of the last five minutes, oldest first.
    pub fn load(&self) -> Vec<LoadSample> {
        lock(&self.load).samples()
    }

    /// Returns the bytes per second, sent and received together, in the last seconds.
    pub fn bandwidth(&self) -> Option<u64> {
        lock(&self.load).bandwidth()
    }

    /// Follows the status until `stop` becomes true.
    pub async fn keep(
        self: Arc<EventLog>,
        status: Arc<dyn StatusSource>,
        latencies: Arc<Latencies>,
        mut stop: watch::Receiver<bool>,
    ) {
        let looks = async {
            let mut ticks = tokio::time::interval(LOOK_EVERY);
            // After a pause no tick is repeated: a sample records its duration.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut last = Look::default();
            for count in 0_u64.. {
                ticks.tick().await;
                last = self.look(&*status, last);
                // The first look only begins a sample.
                if count.is_multiple_of(LOOKS_PER_SAMPLE) {
                    let traffic = traffic(&status.peers());
                    lock(&self.load).sample(Instant::now(), environment::unix_ms() / 1000, latencies.counts(), traffic);
                }
            }
        };
        tokio::select! {
            () = looks => {}
            // An error means that the sender is gone, so no stop can follow.
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    /// Adds the events between the last look and this one.
    fn look(&self, status: &dyn StatusSource, last: Look) -> Look {
        let whole = status.status();
        let mut now = Look { groups: status.groups(), leaving: whole.leaving };
        happenings::remember_leaders(&last.groups, &mut now.groups);
        for happening in happenings(&whole.peer_id, &last.groups, &now.groups) {
            self.tell(happening);
        }
        if let Some(leaving) = &now.leaving
            && last.leaving.as_ref().map(|leaving| &leaving.step) != Some(&leaving.step)
        {
            let label = label(whole.name.as_ref(), &whole.peer_id);
            self.tell(Happening::leaving(&whole.peer_id, &label, &leaving.step));
        }
        now
    }
}

/// Status that is compared with the next look.
#[derive(Default)]
struct Look {
    groups: Vec<GroupStatus>,
    leaving: Option<LeavingStatus>,
}

/// Returns the bytes sent and received so far. A peer that is forgotten takes its count with it.
fn traffic(peers: &[PeerTraffic]) -> (u64, u64) {
    peers.iter().fold((0, 0), |(sent, received), peer| (sent + peer.sent_bytes, received + peer.received_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Readiness, Status};

    struct LeavingPeer(&'static str);

    impl StatusSource for LeavingPeer {
        fn status(&self) -> Status {
            let leaving = LeavingStatus { step: self.0.into(), ..LeavingStatus::default() };
            Status { peer_id: "12D3KooWLeaver".into(), leaving: Some(leaving), ..Status::default() }
        }

        fn readiness(&self) -> Readiness {
            Readiness::default()
        }
    }

    #[test]
    fn each_step_of_a_leave_is_told_once() {
        let event_log = EventLog::default();
        let mut last = Look::default();
        for step in ["handing over primaries", "handing over primaries", "left", "left"] {
            last = event_log.look(&LeavingPeer(step), last);
        }
        let (told, seq) = event_log.after(0);
        let texts: Vec<&str> = told.iter().map(|told| told.text.as_str()).collect();
        assert_eq!(texts, ["Leaver is leaving: handing over primaries", "Leaver is leaving: left"]);
        assert_eq!((event_log.after(seq).0, event_log.after(1).0.len()), (vec![], 1));
    }
}
