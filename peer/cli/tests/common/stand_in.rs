//! `scatter` around a map in memory instead of a node: the program's whole outside without a network.

#[allow(dead_code, missing_docs, reason = "shared with tests that use more of it")]
#[path = "../../../tests/common/memory.rs"]
mod memory;

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use node::{AdminOutcome, AdminRequest, Event, LeaveRefusal, RingWalk};
use overlay::{GroupId, Key, Point};
use peer::admin::{Admin, LeaveError};
use peer::config::{Config, Entry};
use peer::daemon::{CannotStart, Ending, News, Peer, Seat};
use peer::status::{LeavingStatus, Readiness, Status, StatusSource};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

fn main() -> ExitCode {
    cli::main(launch)
}

/// Leaves in steps, slowly enough for a user to follow; alone it would be refused, unless it is forced.
struct Leaver {
    news: UnboundedSender<News>,
    leaving: Arc<Mutex<Option<LeavingStatus>>>,
}

impl Admin for Leaver {
    fn leave(&self, force: bool) -> oneshot::Receiver<Result<LeavingStatus, LeaveError>> {
        let (sender, answer) = oneshot::channel();
        if !force {
            let refusal = LeaveError::Refused(LeaveRefusal::Few { remain: 2 });
            sender.send(Err(refusal)).expect("it is waited for");
            return answer;
        }
        let (news, leaving) = (self.news.clone(), self.leaving.clone());
        let step = |step: &str| LeavingStatus { step: step.into(), force, remain: 2, primaries: 1 };
        let first = step("handing over primaries");
        *leaving.lock().unwrap() = Some(first.clone());
        let rest = [step("waiting until a majority holds everything"), step(LeavingStatus::LEFT)];
        sender.send(Ok(first)).expect("it is waited for");
        // For a test of the client that follows.
        let dies = std::env::var_os("STAND_IN_DIES").is_some();
        std::thread::spawn(move || {
            for step in rest {
                std::thread::sleep(Duration::from_millis(500));
                if dies {
                    std::process::abort();
                }
                *leaving.lock().unwrap() = Some(step);
            }
            news.send(News::Ended(Ending::Left)).expect("the daemon listens");
        });
        answer
    }

    fn request(&self, _: GroupId, _: AdminRequest) -> UnboundedReceiver<AdminOutcome> {
        #[expect(clippy::disallowed_methods, reason = "a test takes every message")]
        let (asker, answers) = unbounded_channel();
        asker.send(AdminOutcome::NotHere).expect("it is waited for");
        answers
    }

    fn walk_ring(&self, _: u8, _: Option<Point>, _: usize) -> oneshot::Receiver<RingWalk> {
        let (asker, answer) = oneshot::channel();
        asker.send(RingWalk::default()).expect("it is waited for");
        answer
    }

    fn locate(&self, _: &Key) -> oneshot::Receiver<RingWalk> {
        self.walk_ring(0, None, 1)
    }
}

struct Leaving(Arc<Mutex<Option<LeavingStatus>>>);

impl StatusSource for Leaving {
    fn status(&self) -> Status {
        Status { leaving: self.0.lock().unwrap().clone(), ..memory::Alone.status() }
    }

    fn readiness(&self) -> Readiness {
        memory::Alone.readiness()
    }
}

fn launch(config: &Config, seat: Seat<'_>) -> Result<Peer, CannotStart> {
    if config.entry == Entry::Known {
        return Err(peer::daemon::NO_NETWORK.to_owned().into());
    }
    #[expect(clippy::disallowed_methods, reason = "a test takes every message")]
    let (news, received) = tokio::sync::mpsc::unbounded_channel();
    // For a test of a slow stop.
    let stuck = std::env::var_os("STAND_IN_STUCK").is_some();
    news.send(News::Happened(Event::Note("a stand-in".into()))).map_err(|error| error.to_string())?;
    news.send(News::Happened(Event::Ready)).map_err(|error| error.to_string())?;
    let leaving = Arc::new(Mutex::new(None));
    Ok(Peer {
        name: config.name.clone(),
        admin: Arc::new(Leaver { news: news.clone(), leaving: leaving.clone() }),
        peer_id: "12D3KooWAlone".into(),
        listen: config.listen.iter().map(|listen| format!("{listen}/p2p/12D3KooWAlone")).collect(),
        backend: memory::start(&seat.router, memory::Manner::Prompt),
        status: Arc::new(Leaving(leaving)),
        news: received,
        stop: Box::new(move || {
            if stuck {
                std::mem::forget(news);
            } else {
                let _ = news.send(News::Ended(Ending::Stopped));
            }
        }),
    })
}
