//! The known data of the user's world: plain data, put together from the worker's news.

use std::collections::BTreeSet;

use crate::error::Error;
use crate::name::UserName;
use crate::people::Profile;
use crate::signature::Seal;
use crate::timeline::Line;

use super::worker::{Ask, News};

/// Upper limit of chirps that are kept, the newest.
pub(crate) const LINES_MAX: usize = 500;

/// A chirp as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) line: Line,
    /// Result of the check; `None` while the signature cannot be checked.
    pub(crate) seal: Option<Seal>,
}

/// The page of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShownPage {
    pub(crate) profile: Profile,
    /// Number of all chirps.
    pub(crate) count: u64,
    /// Number of users that the user follows.
    pub(crate) follows: usize,
    /// The last chirps, newest first.
    pub(crate) lines: Vec<Shown>,
}

/// The result of an action of the person at the keyboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) text: String,
    pub(crate) is_bad: bool,
}

/// All known data.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    /// The user's name, once it is confirmed.
    pub(crate) user: Option<UserName>,
    /// Chirps in the order of [`Line`]s; each once.
    pub(crate) lines: Vec<Shown>,
    pub(crate) following: Vec<UserName>,
    /// Whether all users have been read once.
    pub(crate) has_read: bool,
    pub(crate) page: Option<ShownPage>,
    /// Address of the connected peer; `None` without a connection.
    pub(crate) peer: Option<String>,
    pub(crate) notice: Option<Notice>,
    /// A problem, as long as it lasts, for all actions of the person.
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
            // A failure of the last action stays until the next action.
            News::Done(..) if self.notice.as_ref().is_some_and(|notice| notice.is_bad) => {}
            News::Done(_, text) => self.notice = Some(Notice { text, is_bad: false }),
            // The box that asks for the name shows these errors.
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

    /// Removes the result of the last action, because another one begins. A look at a page keeps it: the person may
    /// look because of it.
    pub(crate) fn asked(&mut self, ask: &Ask) {
        if !matches!(ask, Ask::Page(_)) {
            self.notice = None;
        }
    }

    /// Returns the index of this chirp, or the index to insert it.
    pub(crate) fn place(&self, line: &Line) -> Result<usize, usize> {
        let is_same = |known: &Shown| known.line.user == line.user && known.line.record == line.record;
        // A chirp that claims to be from tomorrow stays where it was read first.
        let early = line.at_ms < line.record.at_ms;
        match early.then(|| self.lines.iter().position(is_same)).flatten() {
            Some(at) => Ok(at),
            None => self.lines.binary_search_by(|known| known.line.cmp(line)),
        }
    }

    fn add(&mut self, shown: Shown) {
        match self.place(&shown.line) {
            // The chirp comes again once its signature is checked.
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
