//! The sessions of this peer: when each began, how long it lasted, and whether it ended cleanly. Kept beside the identity, for others to judge
//! how likely this peer is to fail (Scatter §6.1).
//!
//! A process that is killed writes nothing. So the length of a session is noted while it lasts, each time that it has grown by an eighth:
//! some fifty times in the first hour, and then once an hour.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use group::history::{FAILURES_MAX, History};
use serde::{Deserialize, Serialize};

use super::sealed;
use crate::version::PROGRAM;

/// The version of this file. Raise it with every change of what stands in it; the golden file finds a change that was not meant.
pub(super) const SESSIONS_VERSION: u32 = 1;
/// The file in a data directory.
const FILE: &str = "sessions.json";
/// Sessions that are remembered, the present one included; of more the oldest are forgotten.
const SESSIONS_MAX: usize = FAILURES_MAX as usize;
/// Between two notes of the present session's length.
const NOTE_MIN: Duration = Duration::from_secs(10);
const NOTE_MAX: Duration = Duration::from_secs(3600);

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum End {
    /// It lasts. Read at a start: its process was killed, or its machine stopped.
    None,
    /// It was asked to stop, and said so to others; or it left its network.
    Clean,
    /// It could not go on, or was killed.
    Failed,
}

/// One session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    /// When it began, in seconds since 1970.
    pub(super) start_unix_s: u64,
    /// How long it lasted, in seconds, as noted last.
    pub(super) lived_s: u64,
    /// How it ended.
    pub(super) end: End,
}

/// What stands in the file: the oldest session first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Content {
    pub(super) sessions: Vec<Session>,
}

/// The file `sessions.json` of a data directory, and the present session.
#[derive(Debug)]
pub struct Sessions {
    path: PathBuf,
    content: Content,
}

impl Sessions {
    /// Refuses the file of another version of the program. Changes nothing; a file that is broken is for others to find.
    ///
    /// # Errors
    /// The words for the person who started this process: both versions, and what to do.
    pub fn check_format(data_dir: &Path) -> Result<(), String> {
        let path = data_dir.join(FILE);
        match fs::read(&path) {
            Ok(text) => sealed::check_format(&path, &text, SESSIONS_VERSION),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
        }
    }

    /// Begins a session at this time. A file that is missing or broken holds none: this peer has no history then.
    pub fn begin(data_dir: &Path, now_unix_s: u64) -> Sessions {
        let path = data_dir.join(FILE);
        let content = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Content::default(),
            Err(error) => forget(&path, &error),
            Ok(text) => sealed::parse(SESSIONS_VERSION, &text).unwrap_or_else(|why| forget(&path, &why)),
        };
        let mut sessions = Sessions { path, content };
        let known = &mut sessions.content.sessions;
        // The last note is all that is known of when it ended.
        known.iter_mut().filter(|session| session.end == End::None).for_each(|session| session.end = End::Failed);
        known.push(Session { start_unix_s: now_unix_s, lived_s: 0, end: End::None });
        known.drain(..known.len().saturating_sub(SESSIONS_MAX));
        sessions.write();
        sessions
    }

    /// Returns the sessions before the present one, for others; `None` where there were none.
    pub fn history(&self) -> Option<History> {
        let (_, ended) = self.content.sessions.split_last()?;
        let failures = ended.iter().filter(|session| session.end == End::Failed).count() as u32;
        let lived_s = ended.iter().fold(0_u64, |sum, session| sum.saturating_add(session.lived_s));
        (!ended.is_empty()).then(|| History { failures, lived_s: u32::try_from(lived_s).unwrap_or(u32::MAX) })
    }

    /// Notes how long the present session has lasted. Returns when that is to be noted again.
    pub fn note(&mut self, lived: Duration) -> Duration {
        self.end_as(lived, End::None);
        (lived / 8).clamp(NOTE_MIN, NOTE_MAX)
    }

    /// Ends the present session.
    pub fn end(mut self, lived: Duration, is_clean: bool) {
        self.end_as(lived, if is_clean { End::Clean } else { End::Failed });
    }

    fn end_as(&mut self, lived: Duration, end: End) {
        if let Some(present) = self.content.sessions.last_mut() {
            (present.lived_s, present.end) = (lived.as_secs(), end);
        }
        self.write();
    }

    /// A history that cannot be written is a worse one at the next start, and no reason not to serve.
    fn write(&self) {
        if let Err(error) = sealed::write(&self.path, &sealed::text(SESSIONS_VERSION, PROGRAM, &self.content)) {
            tracing::warn!(path = %self.path.display(), %error, "the sessions of this peer cannot be written down");
        }
    }
}

fn forget(path: &Path, why: &dyn std::fmt::Display) -> Content {
    tracing::warn!("{} cannot be read ({why}): this peer begins without a history of its sessions", path.display());
    Content::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_killed_process_has_failed_and_a_stopped_one_has_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = Sessions::begin(dir.path(), 1_000);
        assert_eq!(first.history(), None, "nothing is known of it");
        assert_eq!(first.note(Duration::ZERO), NOTE_MIN);
        assert_eq!(first.note(HOUR), HOUR / 8);
        drop(first); // Killed.
        let mut second = Sessions::begin(dir.path(), 9_000);
        assert_eq!(second.history(), Some(History { failures: 1, lived_s: 3_600 }));
        assert_eq!(second.note(100 * HOUR), NOTE_MAX);
        second.end(101 * HOUR, true);
        let third = Sessions::begin(dir.path(), 1);
        assert_eq!(third.history(), Some(History { failures: 1, lived_s: 102 * 3_600 }));
        third.end(HOUR, false);
        assert_eq!(Sessions::begin(dir.path(), 2).history(), Some(History { failures: 2, lived_s: 103 * 3_600 }));
    }

    #[test]
    fn so_many_sessions_are_remembered() {
        let dir = tempfile::tempdir().unwrap();
        (0..100).for_each(|n| Sessions::begin(dir.path(), n).end(HOUR, n < 60));
        let known = Sessions::begin(dir.path(), 100);
        assert_eq!(known.content.sessions.len(), SESSIONS_MAX);
        assert_eq!(known.history(), Some(History { failures: 40, lived_s: 63 * 3_600 }));
    }

    #[test]
    fn a_broken_file_is_no_history_and_a_foreign_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        Sessions::begin(dir.path(), 1).end(HOUR, false);
        let path = dir.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("3600", "9999")).unwrap();
        assert_eq!(Sessions::check_format(dir.path()), Ok(()));
        assert_eq!(Sessions::begin(dir.path(), 2).history(), None);
        fs::write(&path, text.replace("\"format\": 1", "\"format\": 9")).unwrap();
        let refused = Sessions::check_format(dir.path()).unwrap_err();
        assert!(refused.contains("format 9") && refused.contains("sessions.json"), "{refused}");
    }
}
