//! The sessions of this peer: the begin and the length of each, and whether it ended cleanly. They are kept beside the identity. Other
//! peers judge by them how likely this peer is to fail (Scatter §6.1).
//!
//! A process that is killed writes nothing. So a thread notes the length of the present session each time it has grown by an eighth.
//! These are some forty notes in the first hour, and one an hour after eight hours. A disk that hangs stops nothing else.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use environment::version::PROGRAM;
use group::control::history::{FAILURES_MAX, History};
use serde::{Deserialize, Serialize};

use super::super::clocks::Clocks;
use super::sealed;

/// Version of this file's format. Raise it with every change of the format; the golden file finds an unintended change.
pub(in super::super) const SESSIONS_VERSION: u32 = 1;
/// The file in a data directory.
const FILE: &str = "sessions.json";
/// Upper limit of remembered sessions, the present one included; the oldest ones are forgotten first.
const SESSIONS_MAX: usize = FAILURES_MAX as usize;
/// Shortest and longest interval between two notes of the present session's length.
const NOTE_MIN: Duration = Duration::from_secs(10);
const NOTE_MAX: Duration = Duration::from_secs(3600);
/// Time that writing the end of a session may take.
const END_MAX: Duration = Duration::from_secs(1);

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in super::super) enum SessionEnd {
    /// The session lasts. At the next start this means that the process was killed, its machine stopped, or its store failed.
    None,
    /// The process was asked to stop, left its network, or began a new life as a member.
    Clean,
    /// The session had not ended when the next one began.
    Failed,
}

/// One session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct PeerSession {
    /// Begin of the session, in seconds since 1970.
    pub(in super::super) start_unix_s: u64,
    /// Length of the session, in seconds, as noted last.
    pub(in super::super) lived_s: u64,
    /// How the session ended.
    pub(in super::super) end: SessionEnd,
}

/// The content of the file: the oldest session first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct SessionsContent {
    pub(in super::super) sessions: Vec<PeerSession>,
}

/// The file `sessions.json` of a data directory.
#[derive(Debug)]
pub(crate) struct Sessions {
    path: PathBuf,
    content: SessionsContent,
}

impl Sessions {
    /// Refuses the file of another version of the program. Changes nothing; a file that is broken, or cannot be read, does not prevent
    /// a start.
    ///
    /// # Errors
    /// A text for the operator of this process: both versions, and the remedy.
    pub fn check_format(data_dir: &Path) -> Result<(), String> {
        let path = data_dir.join(FILE);
        fs::read(&path).map_or(Ok(()), |text| sealed::check_format(&path, &text, SESSIONS_VERSION))
    }

    /// Reads the sessions before the present one, and changes nothing. A file that is missing or broken holds none.
    pub fn load(data_dir: &Path) -> Sessions {
        let path = data_dir.join(FILE);
        let mut content = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => SessionsContent::default(),
            Err(error) => forget(&path, &error),
            Ok(text) => sealed::parse(SESSIONS_VERSION, &text).unwrap_or_else(|why| forget(&path, &why)),
        };
        let open = content.sessions.iter_mut().filter(|session| session.end == SessionEnd::None);
        open.for_each(|session| session.end = SessionEnd::Failed);
        Sessions { path, content }
    }

    /// Returns the history to tell other peers; `None` where there were no sessions.
    pub(crate) fn history(&self) -> Option<History> {
        let ended = || self.content.sessions.iter().filter(|session| session.end != SessionEnd::None);
        let failures = ended().filter(|session| session.end == SessionEnd::Failed).count() as u32;
        let lived_s = ended().fold(0_u64, |sum, session| sum.saturating_add(session.lived_s));
        let lived_s = u32::try_from(lived_s).unwrap_or(u32::MAX);
        ended().next().map(|_| History { failures, lived_s })
    }

    /// Begins a session, and starts a thread that notes its length at intervals. Without such a thread the length is not noted, and the
    /// log says so.
    pub fn keep(mut self, clocks: Clocks) -> Keeper {
        // One message each way.
        let (ends, end) = sync_channel(1);
        let (tell, written) = sync_channel(1);
        let keep = move || self.note_until(&end, &tell, &clocks);
        if let Err(error) = std::thread::Builder::new().name("scatter-sessions".into()).spawn(keep) {
            tracing::warn!(%error, "the thread that records this peer's uptime did not start");
        }
        Keeper { ends, written }
    }

    /// Notes the length of a session at intervals, until its end.
    fn note_until(&mut self, end: &Receiver<()>, tell: &SyncSender<()>, clocks: &Clocks) {
        let since = clocks.now().awake;
        self.begin(clocks.wall().0 / 1000);
        let mut due = NOTE_MIN;
        loop {
            match end.recv_timeout(due) {
                Ok(()) => {
                    self.note(clocks.now().awake.since(since), SessionEnd::Clean);
                    // The caller may have gone on.
                    let _ = tell.send(());
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {
                    let lived = clocks.now().awake.since(since);
                    self.note(lived, SessionEnd::None);
                    due = next_note(lived);
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn begin(&mut self, now_unix_s: u64) {
        let known = &mut self.content.sessions;
        known.push(PeerSession { start_unix_s: now_unix_s, lived_s: 0, end: SessionEnd::None });
        known.drain(..known.len().saturating_sub(SESSIONS_MAX));
        self.write();
    }

    /// Writes down how long the present session has lasted.
    fn note(&mut self, lived: Duration, end: SessionEnd) {
        if let Some(present) = self.content.sessions.last_mut() {
            (present.lived_s, present.end) = (lived.as_secs(), end);
        }
        self.write();
    }

    /// Writes the file. A history that cannot be written does not stop the peer.
    fn write(&self) {
        if let Err(error) = sealed::write(&self.path, &sealed::text(SESSIONS_VERSION, PROGRAM, &self.content)) {
            tracing::warn!(path = %self.path.display(), %error, "the sessions of this peer cannot be recorded");
        }
    }
}

/// The present session. Dropped without an end, it counts as failed at the next start.
#[derive(Debug)]
pub(crate) struct Keeper {
    ends: SyncSender<()>,
    written: Receiver<()>,
}

impl Keeper {
    /// Ends the session cleanly. Waits until the end is written, for `END_MAX` at most: a disk may hang.
    pub fn end(self) {
        if self.ends.send(()).is_ok() {
            let _ = self.written.recv_timeout(END_MAX);
        }
    }
}

/// Returns the time after which the length of a session is noted again.
fn next_note(lived: Duration) -> Duration {
    (lived / 8).clamp(NOTE_MIN, NOTE_MAX)
}

fn forget(path: &Path, why: &dyn std::fmt::Display) -> SessionsContent {
    tracing::warn!("{} cannot be read ({why}): this peer starts without a history of its sessions", path.display());
    SessionsContent::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Runs a session of this length, with this end, and returns the history before it.
    fn session(dir: &Path, lived: Duration, end: SessionEnd) -> Option<History> {
        let mut sessions = Sessions::load(dir);
        let before = sessions.history();
        sessions.begin(1_000);
        sessions.note(lived, end);
        before
    }

    #[test]
    fn a_killed_process_has_failed_and_a_stopped_one_has_not() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(session(dir.path(), HOUR, SessionEnd::None), None, "nothing is known of it");
        assert_eq!(session(dir.path(), 101 * HOUR, SessionEnd::Clean), Some(History { failures: 1, lived_s: 3_600 }));
        let both = Some(History { failures: 1, lived_s: 102 * 3_600 });
        assert_eq!(session(dir.path(), HOUR, SessionEnd::None), both);
        assert_eq!(Sessions::load(dir.path()).history(), Some(History { failures: 2, lived_s: 103 * 3_600 }));
        assert_eq!([Duration::ZERO, HOUR, 100 * HOUR].map(next_note), [NOTE_MIN, HOUR / 8, NOTE_MAX]);
    }

    /// A start that is refused later changes nothing.
    #[test]
    fn a_session_begins_once_it_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        drop(Sessions::load(dir.path()));
        assert!(!dir.path().join(FILE).exists());
        Sessions::load(dir.path()).keep(Clocks::default()).end();
        assert_eq!(Sessions::load(dir.path()).history(), Some(History { failures: 0, lived_s: 0 }));
    }

    #[test]
    fn so_many_sessions_are_remembered() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..100 {
            session(dir.path(), HOUR, if n < 60 { SessionEnd::Clean } else { SessionEnd::None });
        }
        let known = Sessions::load(dir.path());
        assert_eq!(known.content.sessions.len(), SESSIONS_MAX);
        assert_eq!(known.history(), Some(History { failures: 40, lived_s: 64 * 3_600 }));
    }

    #[test]
    fn a_broken_file_is_no_history_and_a_foreign_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        session(dir.path(), HOUR, SessionEnd::None);
        let path = dir.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("3600", "9999")).unwrap();
        assert_eq!(Sessions::check_format(dir.path()), Ok(()));
        assert_eq!(Sessions::load(dir.path()).history(), None);
        fs::write(&path, text.replace("\"format\": 1", "\"format\": 9")).unwrap();
        let refused = Sessions::check_format(dir.path()).unwrap_err();
        assert!(refused.contains("format 9") && refused.contains("sessions.json"), "{refused}");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!((Sessions::check_format(dir.path()), Sessions::load(dir.path()).history()), (Ok(()), None));
    }
}
