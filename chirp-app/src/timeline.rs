//! What everybody whom a user follows has posted, newest first.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt as _};
use tokio::sync::Notify;

use crate::chirp::{Chirp, Updates, now_ms};
use crate::error::Error;
use crate::follows::Following;
use crate::list::Place;
use crate::name::UserName;
use crate::people::Profile;
use crate::record::Record;
use crate::signature::Seal;
use crate::store::Store;

/// So many users' lists are read at once.
pub const READ_AT_ONCE: usize = 128;

/// One chirp in a timeline. The order is that of a timeline: newest first; of the same moment in a fixed order, such that
/// two that differ in anything are two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Who posted it.
    pub user: UserName,
    /// What.
    pub record: Record,
    /// When that was, in milliseconds since 1970: its author's word, unless that is after it was read. So nobody stays on top
    /// by having posted tomorrow.
    pub at_ms: u64,
}

impl Line {
    /// What was read at this time.
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

/// The newest of several users' chirps, as they come to be known.
#[derive(Debug)]
pub struct Merge {
    wanted: usize,
    /// And whether they were handed out.
    lines: BTreeMap<Line, bool>,
}

impl Merge {
    /// Of which the newest so many are wanted.
    pub fn new(wanted: usize) -> Merge {
        Merge { wanted, lines: BTreeMap::new() }
    }

    /// Takes what a user has posted, read at this time.
    pub fn add(&mut self, user: &UserName, records: impl IntoIterator<Item = Record>, now_ms: u64) {
        for record in records {
            self.lines.entry(Line::new(user.clone(), record, now_ms)).or_default();
            if self.lines.len() > self.wanted {
                self.lines.pop_last();
            }
        }
    }

    /// The newest so far that have not been handed out yet, newest first.
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

/// What a user sees: what those have posted whom the user follows, and the user.
#[derive(Debug)]
pub struct Timeline {
    user: UserName,
    following: Following,
    /// Up to where each list has been read.
    places: BTreeMap<UserName, Place>,
}

impl Timeline {
    /// Of this user, nothing read yet.
    ///
    /// # Errors
    /// [`Error::NoUser`].
    pub async fn open<S: Store>(chirp: &Chirp<S>, user: &UserName) -> Result<Timeline, Error> {
        let following = chirp.following(user).await?;
        Ok(Timeline { user: user.clone(), following, places: BTreeMap::new() })
    }

    /// Whom the user follows.
    pub fn following(&self) -> &Following {
        &self.following
    }

    /// Whose chirps are in it, the user's own first.
    pub fn users(&self) -> Vec<UserName> {
        let mut users = vec![self.user.clone()];
        users.extend(self.following.users().filter(|user| **user != self.user).cloned());
        users
    }

    /// The last `wanted` of each user who has not been read yet, as they come, and of those only.
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

    /// Reads the last `wanted` of each user who has not been read yet. Of all that is found the newest `kept` are shown, as they
    /// come to be known: what is new after `batch` is shown, newest first, again after as long, and at the end. Reading goes on
    /// meanwhile. Why users could not be read is what is left; an error is of `show`.
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
                        merge.borrow_mut().add(&user, updates.records, now_ms());
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
                // Asked before the last of them are taken.
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

    /// What has been posted since it was read. Whoever is followed by now is read from then on, and not shown any more who is
    /// not.
    pub async fn poll<S: Store>(&mut self, chirp: &Chirp<S>, wanted: usize) -> Result<Found, Error> {
        let follows_others = chirp.refresh(&self.user, &mut self.following).await?;
        let users: BTreeSet<UserName> = self.users().into_iter().collect();
        self.places.retain(|user, _| users.contains(user));
        let (mut lines, mut errors) = (Vec::new(), Vec::new());
        let mut add = |user: &UserName, records: Vec<Record>| {
            lines.extend(records.into_iter().map(|record| Line::new(user.clone(), record, now_ms())));
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

/// How long to rest after a look that took so long: four times as long, so that whoever follows thousands does not keep a peer busy with
/// it. After one that went wrong no longer than the least: it took so long because nobody answered.
pub fn rest(least: Duration, took: Duration, is_well: bool) -> Duration {
    if is_well { least.max(took * 4) } else { least }
}

/// What a look at a timeline has found.
#[derive(Debug)]
pub struct Found {
    /// Oldest first.
    pub lines: Vec<Line>,
    /// The user follows others than before.
    pub follows_others: bool,
    /// Why users could not be asked.
    pub errors: Vec<Error>,
}

/// What is known of who wrote each of these; `None` where that cannot be told at the moment. Each author is asked for once.
pub async fn seals<S: Store>(chirp: &Chirp<S>, lines: &[Line]) -> Vec<Option<Seal>> {
    let authors: BTreeSet<&UserName> = lines.iter().map(|line| &line.user).collect();
    let keys = stream::iter(authors).map(|user| async move { (user, chirp.key(user).await.ok()) });
    let keys: BTreeMap<_, _> = keys.buffer_unordered(READ_AT_ONCE).collect().await;
    let seal = |line: &Line| keys[&line.user].as_ref().map(|key| line.record.seal(&line.user, key.as_ref()));
    lines.iter().map(seal).collect()
}

/// Somebody's page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Who it is.
    pub profile: Profile,
    /// How many chirps there are in all.
    pub count: u64,
    /// How many users they follow.
    pub follows: usize,
    /// The last of the chirps, newest first.
    pub lines: Vec<Line>,
}

impl Page {
    /// A user's, with the last `wanted` chirps.
    ///
    /// # Errors
    /// [`Error::NoUser`].
    pub async fn read<S: Store>(chirp: &Chirp<S>, user: &UserName, wanted: usize) -> Result<Page, Error> {
        let profile = chirp.profile(user).await?;
        let (updates, following) = tokio::join!(chirp.updates(user, wanted), chirp.following(user));
        let (updates, follows) = (updates?, following?.users().len());
        let newest = updates.records.into_iter().rev().take(wanted);
        let lines = newest.map(|record| Line::new(profile.name.clone(), record, now_ms())).collect();
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
    /// Of whose profile nothing can be read it is not known whether they sign.
    #[test]
    fn what_cannot_be_checked_is_not_said_to_be() {
        let store = Ram::new(1, 0);
        run(store.create("chirp/user/ann", b"something else")).unwrap();
        let chirp = Chirp::new(store, AppendMode::Atomic);
        let line = |user: &str| Line::new(user.parse().unwrap(), record(1), 1);
        assert_eq!(run(seals(&chirp, &[line("ann"), line("bob")])), [None, Some(Seal::Unsigned)]);
    }

    /// Nobody takes another's chirp out of a timeline, by writing one that is as good as the same; nor stays on top.
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
