//! What is known of the user's world: plain data, put together from the worker's news.

use std::collections::BTreeSet;

use crate::name::UserName;
use crate::people::Profile;
use crate::signature::Seal;
use crate::timeline::Line;

use super::worker::News;

/// So many chirps are kept, the newest.
pub(crate) const LINES_MAX: usize = 500;

/// A chirp as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) line: Line,
    /// `None` while that cannot be told.
    pub(crate) seal: Option<Seal>,
}

/// Somebody's page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) profile: Profile,
    /// How many chirps there are in all.
    pub(crate) count: u64,
    /// How many users they follow.
    pub(crate) follows: usize,
    /// The last of them, newest first.
    pub(crate) lines: Vec<Shown>,
}

/// Something that was said to the person at the keyboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) text: String,
    pub(crate) is_bad: bool,
}

/// What is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    /// Who this is, once that is sure.
    pub(crate) user: Option<UserName>,
    /// Newest first.
    pub(crate) lines: Vec<Shown>,
    pub(crate) following: Vec<UserName>,
    /// Everybody has been read once.
    pub(crate) has_read: bool,
    pub(crate) page: Option<Page>,
    /// With whom it is connected; `None`: with nobody.
    pub(crate) peer: Option<String>,
    pub(crate) notice: Option<Notice>,
}

impl Model {
    pub(crate) fn take(&mut self, news: News) {
        match news {
            News::Connected(peer) => self.peer = Some(peer),
            News::Is(user) => self.user = Some(user),
            News::Lines(lines) => self.add(lines),
            News::Read => self.has_read = true,
            News::Following(users) => {
                let mut shown: BTreeSet<&UserName> = users.iter().collect();
                shown.extend(self.user.as_ref());
                self.lines.retain(|shown_line| shown.contains(&shown_line.line.user));
                self.following = users;
            }
            News::Page(page) => self.page = Some(*page),
            News::Done(_, text) => self.notice = Some(Notice { text, is_bad: false }),
            News::Failed(_, error) => self.notice = Some(Notice { text: error.to_string(), is_bad: true }),
            News::Trouble(error) => {
                if matches!(error, crate::Error::Unreachable { .. }) {
                    self.peer = None;
                }
                self.notice = Some(Notice { text: error.to_string(), is_bad: true });
            }
            News::Recovered => self.notice = None,
        }
    }

    fn add(&mut self, lines: Vec<Shown>) {
        for shown in lines {
            if self.lines.iter().any(|known| known.line == shown.line) {
                continue;
            }
            // Newest first; what is as new as others comes behind them.
            let at = self.lines.partition_point(|known| known.line.record.at_ms >= shown.line.record.at_ms);
            self.lines.insert(at, shown);
        }
        self.lines.truncate(LINES_MAX);
    }
}
