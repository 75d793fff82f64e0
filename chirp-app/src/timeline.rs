//! The posts of all users that a user follows, newest first.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt as _};
use tokio::sync::Notify;

use crate::chirp::{Chirp, Updates};
use crate::error::Error;
use crate::follows::Following;
use crate::list::Place;
use crate::name::UserName;
use crate::people::Profile;
use crate::record::Record;
use crate::signature::Seal;
use crate::store::Store;

/// Upper limit of concurrent reads of users' lists.
pub(crate) const READ_AT_ONCE: usize = 128;

/// One chirp in a timeline. The order is that of a timeline: newest first. Chirps of the same moment have a fixed
/// order, in which two chirps that differ in anything are two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The user under whose name it was posted.
    pub user: UserName,
    /// The chirp.
    pub record: Record,
    /// Time of the chirp, in milliseconds since 1970: the author's, unless that is after the time of reading. So no
    /// chirp stays on top with a time of tomorrow.
    pub at_ms: u64,
}

impl Line {
    /// Makes the line of a chirp that was read at this time.
    pub fn new(user: UserName, record: Record, now_ms: u64) -> Line {
        let at_ms = record.at_ms.min(now_ms);
        Line { user, record, at_ms }
    }
}

impl Ord for Line {
    fn cmp(&self, other: &Line) -> Ordering {
        let newest_first = other.at_ms.cmp(&self.at_ms);
        newest_first.then_with(|| self.user.cmp(&other.user)).then_with(|| self.record.cmp(&other.record))
    }
}

impl PartialOrd for Line {
    fn partial_cmp(&self, other: &Line) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The newest chirps of several users, as reads return them.
#[derive(Debug)]
pub struct Merge {
    wanted: usize,
    /// Chirps, each with whether it was handed out.
    lines: BTreeMap<Line, bool>,
}

impl Merge {
    /// Makes an empty merge that keeps the newest `wanted` chirps.
    pub fn new(wanted: usize) -> Merge {
        Merge { wanted, lines: BTreeMap::new() }
    }

    /// Adds chirps of a user that were read at this time.
    pub fn add(&mut self, user: &UserName, records: impl IntoIterator<Item = Record>, now_ms: u64) {
        for record in records {
            self.lines.entry(Line::new(user.clone(), record, now_ms)).or_default();
            if self.lines.len() > self.wanted {
                self.lines.pop_last();
            }
        }
    }

    /// Returns the newest chirps so far that have not been handed out yet, newest first.
    pub fn news(&mut self) -> Vec<Line> {
        let untold = self.lines.iter_mut().filter(|(_, told)| !**told);
        untold
            .map(|(line, told)| {
                *told = true;
                line.clone()
            })
            .collect()
    }
}

/// A user's timeline: the posts of the user, and of the users that the user follows.
#[derive(Debug)]
pub struct Timeline {
    user: UserName,
    following: Following,
    /// Place up to which each list has been read.
    places: BTreeMap<UserName, Place>,
}

impl Timeline {
    /// Opens this user's timeline, with nothing read yet.
    ///
    /// # Errors
    /// [`Error::NoUser`].
    pub async fn open<S: Store>(chirp: &Chirp<S>, user: &UserName) -> Result<Timeline, Error> {
        let following = chirp.following(user).await?;
        Ok(Timeline { user: user.clone(), following, places: BTreeMap::new() })
    }

    /// Returns the users that the user follows.
    pub fn following(&self) -> &Following {
        &self.following
    }

    /// Returns the users with chirps in the timeline, the user first.
    pub fn users(&self) -> Vec<UserName> {
        let mut users = vec![self.user.clone()];
        users.extend(self.following.users().filter(|user| **user != self.user).cloned());
        users
    }

    /// Returns the last `wanted` chirps of each user that has not been read yet, as they arrive.
    fn unread<'a, S: Store>(
        &self,
        chirp: &'a Chirp<S>,
        wanted: usize,
    ) -> impl Stream<Item = (UserName, Result<Updates, Error>)> + use<'a, S> {
        let unread = self.users().into_iter().filter(|user| !self.places.contains_key(user));
        let unread: Vec<UserName> = unread.collect();
        stream::iter(unread)
            .map(move |user| async move {
                let updates = chirp.updates(&user, wanted).await;
                (user, updates)
            })
            .buffer_unordered(READ_AT_ONCE)
    }

    /// Reads the last `wanted` chirps of each user that has not been read yet. Shows the newest `kept` of all, as they
    /// arrive: the first after `batch`, newest first, further ones after each further `batch`, and the rest at the end.
    /// Reading goes on meanwhile. Returns the errors of users that could not be read.
    ///
    /// # Errors
    /// Those of `show`.
    pub async fn read_all<S: Store, E>(
        &mut self,
        chirp: &Chirp<S>,
        (wanted, kept): (usize, usize),
        batch: Duration,
        show: impl AsyncFn(Vec<Line>) -> Result<(), E>,
    ) -> Result<Vec<Error>, E> {
        let (merge, mut failed) = (RefCell::new(Merge::new(kept)), Vec::new());
        let (is_over, ended) = (Cell::new(false), Notify::new());
        let mut unread = pin!(self.unread(chirp, wanted));
        let read = async {
            while let Some((user, updates)) = unread.next().await {
                match updates {
                    Ok(updates) => {
                        merge.borrow_mut().add(&user, updates.records, environment::unix_ms());
                        self.places.insert(user, updates.place);
                    }
                    Err(error) => failed.push(error),
                }
            }
            is_over.set(true);
            ended.notify_one();
            Ok(())
        };
        let shown = async {
            loop {
                let _ = tokio::time::timeout(batch, ended.notified()).await;
                // Read before the last chirps are taken.
                let was_last = is_over.get();
                let news = merge.borrow_mut().news();
                if !news.is_empty() {
                    show(news).await?;
                }
                if was_last {
                    return Ok(());
                }
            }
        };
        tokio::try_join!(read, shown)?;
        Ok(failed)
    }

    /// Returns the posts since the last read. From then on it reads users that the user has begun to follow, and no
    /// more those that the user has ceased to follow.
    ///
    /// # Errors
    /// Those of the store, where the list of follows cannot be read. Errors of single users are in [`Found::errors`].
    pub async fn poll<S: Store>(&mut self, chirp: &Chirp<S>, wanted: usize) -> Result<Found, Error> {
        let follows_others = chirp.refresh(&self.user, &mut self.following).await?;
        let users: BTreeSet<UserName> = self.users().into_iter().collect();
        self.places.retain(|user, _| users.contains(user));
        let (mut lines, mut errors) = (Vec::new(), Vec::new());
        let mut add = |user: &UserName, records: Vec<Record>| {
            lines.extend(records.into_iter().map(|record| Line::new(user.clone(), record, environment::unix_ms())));
        };
        let mut newly = pin!(self.unread(chirp, wanted));
        while let Some((user, updates)) = newly.next().await {
            match updates {
                Ok(mut updates) => {
                    add(&user, updates.records.split_off(updates.records.len().saturating_sub(wanted)));
                    self.places.insert(user, updates.place);
                }
                Err(error) => errors.push(error),
            }
        }
        let known: Vec<(UserName, Place)> = self.places.iter().map(|(user, place)| (user.clone(), *place)).collect();
        let mut since = stream::iter(known)
            .map(|(user, mut place)| async move {
                let records = chirp.updates_since(&user, &mut place).await;
                (user, place, records)
            })
            .buffer_unordered(READ_AT_ONCE);
        while let Some((user, place, records)) = since.next().await {
            match records {
                Ok(records) => {
                    add(&user, records);
                    self.places.insert(user, place);
                }
                Err(error) => errors.push(error),
            }
        }
        lines.sort_unstable_by(|line, other| other.cmp(line));
        Ok(Found { lines, follows_others, errors })
    }
}

/// Returns the pause after a look that took so long: four times as long, so that a user that follows thousands does not
/// keep a peer busy with it. After a failed look it is no longer than `least`: that look took so long because no peer
/// answered.
pub fn rest(least: Duration, took: Duration, is_well: bool) -> Duration {
    if is_well { least.max(took * 4) } else { least }
}

/// The result of a look at a timeline.
#[derive(Debug)]
pub struct Found {
    /// New chirps, oldest first.
    pub lines: Vec<Line>,
    /// Whether the user's follows have changed.
    pub follows_others: bool,
    /// Errors of users that could not be read.
    pub errors: Vec<Error>,
}

/// Checks the signature of each line; `None` where the author's key cannot be read at the moment. Each author is asked
/// for once.
pub async fn seals<S: Store>(chirp: &Chirp<S>, lines: &[Line]) -> Vec<Option<Seal>> {
    let authors: BTreeSet<&UserName> = lines.iter().map(|line| &line.user).collect();
    let keys = stream::iter(authors).map(|user| async move { (user, chirp.key(user).await.ok()) });
    let keys: BTreeMap<_, _> = keys.buffer_unordered(READ_AT_ONCE).collect().await;
    let seal = |line: &Line| keys[&line.user].as_ref().map(|key| line.record.seal(&line.user, key.as_ref()));
    lines.iter().map(seal).collect()
}

/// The page of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// The user's profile.
    pub profile: Profile,
    /// Number of all chirps.
    pub count: u64,
    /// Number of users that the user follows.
    pub follows: usize,
    /// The last chirps, newest first.
    pub lines: Vec<Line>,
}

impl Page {
    /// Reads a user's page, with the last `wanted` chirps.
    ///
    /// # Errors
    /// [`Error::NoUser`].
    pub async fn read<S: Store>(chirp: &Chirp<S>, user: &UserName, wanted: usize) -> Result<Page, Error> {
        let profile = chirp.profile(user).await?;
        let (updates, following) = tokio::join!(chirp.updates(user, wanted), chirp.following(user));
        let (updates, follows) = (updates?, following?.users().len());
        let newest = updates.records.into_iter().rev().take(wanted);
        let lines = newest.map(|record| Line::new(profile.name.clone(), record, environment::unix_ms())).collect();
        Ok(Page { profile, count: updates.count, follows, lines })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::AppendMode;
    use crate::ram::{Ram, run};

    fn record(at_ms: u64) -> Record {
        Record { id: at_ms.to_string(), at_ms, text: "x".into(), signature: None }
    }

    #[test]
    fn the_newest_are_told_once() {
        let (ann, bob): (UserName, UserName) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let times = |lines: Vec<Line>| lines.iter().map(|line| line.record.at_ms).collect::<Vec<_>>();
        let mut merge = Merge::new(3);
        merge.add(&ann, [1, 3, 5, 7].map(record), 100);
        assert_eq!(times(merge.news()), [7, 5, 3]);
        merge.add(&bob, [4, 6].map(record), 100);
        merge.add(&ann, [3, 5, 7].map(record), 100);
        assert_eq!(times(merge.news()), [6], "5 and 7 were told, 4 is not among the newest three");
        merge.add(&bob, [2].map(record), 100);
        assert_eq!(times(merge.news()), [0; 0]);
        assert_eq!(times(merge.lines.into_keys().collect()), [7, 6, 5]);
    }
    /// A chirp is not checked where its author's profile cannot be read: whether the author signs is not known.
    #[test]
    fn what_cannot_be_checked_is_not_said_to_be() {
        let store = Ram::new(1, 0);
        run(store.create("chirp/user/ann", b"something else")).unwrap();
        let chirp = Chirp::new(store, AppendMode::Atomic);
        let line = |user: &str| Line::new(user.parse().unwrap(), record(1), 1);
        assert_eq!(run(seals(&chirp, &[line("ann"), line("bob")])), [None, Some(Seal::Unsigned)]);
    }

    /// No chirp of another client takes a chirp out of a timeline by being almost the same; nor does one stay on top.
    #[test]
    fn nothing_is_replaced_and_nothing_is_from_tomorrow() {
        let ann: UserName = "ann".parse().unwrap();
        let signed = Record { signature: Some("s".into()), ..record(5) };
        let forged = Record { text: "y".into(), ..signed.clone() };
        let mut merge = Merge::new(9);
        merge.add(&ann, [signed.clone(), forged.clone(), signed.clone(), record(1000)], 7);
        let lines = merge.news();
        assert_eq!(lines.len(), 3);
        assert_eq!((lines[0].record.at_ms, lines[0].at_ms), (1000, 7));
        assert!(lines.iter().any(|line| line.record == signed) && lines.iter().any(|line| line.record == forged));
        merge.add(&ann, [record(8)], 9);
        assert_eq!(merge.news()[0].record.at_ms, 8, "what comes later is above it");
    }
}
