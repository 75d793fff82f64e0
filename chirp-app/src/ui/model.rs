//! What is known of the user's world: plain data, put together from the worker's news.

use std::collections::BTreeSet;

use crate::error::Error;
use crate::name::UserName;
use crate::people::Profile;
use crate::signature::Seal;
use crate::timeline::Line;

use super::worker::{Ask, News};

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

/// What came of something that the person at the keyboard did.
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
    /// In the order of [`Line`]s; each once.
    pub(crate) lines: Vec<Shown>,
    pub(crate) following: Vec<UserName>,
    /// Everybody has been read once.
    pub(crate) has_read: bool,
    pub(crate) page: Option<Page>,
    /// With whom it is connected; `None`: with nobody.
    pub(crate) peer: Option<String>,
    pub(crate) notice: Option<Notice>,
    /// What is wrong, as long as it is, whatever the person does.
    pub(crate) trouble: Option<String>,
}

impl Model {
    pub(crate) fn take(&mut self, news: News) {
        match news {
            News::Connected(peer) => self.peer = Some(peer),
            News::Is(user) => (self.user, self.notice) = (Some(user), None),
            News::Lines(lines) => lines.into_iter().for_each(|shown| self.add(shown)),
            News::Read => self.has_read = true,
            News::Following(users) => {
                let mut shown: BTreeSet<&UserName> = users.iter().collect();
                shown.extend(self.user.as_ref());
                self.lines.retain(|shown_line| shown.contains(&shown_line.line.user));
                self.following = users;
            }
            News::Page(mut page) => {
                page.lines.truncate(LINES_MAX);
                self.page = Some(*page);
            }
            // What went wrong since the person did something stays until they do something else.
            News::Done(..) if self.notice.as_ref().is_some_and(|notice| notice.is_bad) => {}
            News::Done(_, text) => self.notice = Some(Notice { text, is_bad: false }),
            // Where the name is asked for, that is said there.
            News::Failed(Ask::Be(_) | Ask::SignUp(_), _) => {}
            News::Failed(ask, error) => self.notice = Some(Notice { text: failed(&ask, &error), is_bad: true }),
            News::Trouble(error) => {
                if matches!(error, Error::Unreachable { .. }) {
                    self.peer = None;
                }
                self.trouble = Some(error.to_string());
            }
            News::Recovered => self.trouble = None,
        }
    }

    /// Something else is asked for: what came of the last is old. Who only looks, looks perhaps because of what was said.
    pub(crate) fn asked(&mut self, ask: &Ask) {
        if !matches!(ask, Ask::Page(_)) {
            self.notice = None;
        }
    }

    /// Where this chirp is, or would be.
    pub(crate) fn place(&self, line: &Line) -> Result<usize, usize> {
        let is_same = |known: &Shown| known.line.user == line.user && known.line.record == line.record;
        // What says to be from tomorrow stands where it was read first.
        let early = line.at_ms < line.record.at_ms;
        match early.then(|| self.lines.iter().position(is_same)).flatten() {
            Some(at) => Ok(at),
            None => self.lines.binary_search_by(|known| known.line.cmp(line)),
        }
    }

    fn add(&mut self, shown: Shown) {
        match self.place(&shown.line) {
            // It comes again where more is known of who wrote it.
            Ok(at) => self.lines[at].seal = shown.seal.or(self.lines[at].seal),
            Err(at) => {
                self.lines.insert(at, shown);
                self.lines.truncate(LINES_MAX);
            }
        }
    }
}

fn failed(ask: &Ask, error: &Error) -> String {
    match (ask, error) {
        (Ask::Post(_), Error::Unknown(why)) => format!("it may be posted: look before you post it again ({why})"),
        (Ask::Post(_), _) => format!("not posted: {error}"),
        _ => error.to_string(),
    }
}
