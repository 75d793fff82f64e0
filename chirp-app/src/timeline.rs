//! What everybody whom a user follows has posted, newest first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt as _};

use crate::chirp::{Chirp, Following, Updates};
use crate::error::Error;
use crate::list::Place;
use crate::name::UserName;
use crate::people::Profile;
use crate::record::Record;
use crate::signature::Seal;
use crate::store::Store;

/// So many users' lists are read at once.
pub const READ_AT_ONCE: usize = 128;

/// One chirp in a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Who posted it.
    pub user: UserName,
    /// What.
    pub record: Record,
}

impl Line {
    /// Newest first; of the same moment in a fixed order.
    fn rank(&self) -> (Reverse<u64>, UserName, String) {
        (Reverse(self.record.at_ms), self.user.clone(), self.record.id.clone())
    }
}

/// The newest of several users' chirps, as they come to be known.
#[derive(Debug)]
pub struct Merge {
    wanted: usize,
    lines: BTreeMap<(Reverse<u64>, UserName, String), Line>,
    /// Those that were handed out.
    told: BTreeSet<(Reverse<u64>, UserName, String)>,
}

impl Merge {
    /// Of which the newest so many are wanted.
    pub fn new(wanted: usize) -> Merge {
        Merge { wanted, lines: BTreeMap::new(), told: BTreeSet::new() }
    }

    /// Takes what a user has posted.
    pub fn add(&mut self, user: &UserName, records: impl IntoIterator<Item = Record>) {
        for record in records {
            let line = Line { user: user.clone(), record };
            self.lines.insert(line.rank(), line);
            if self.lines.len() > self.wanted {
                self.lines.pop_last();
            }
        }
    }

    /// The newest so far that have not been handed out yet, newest first.
    pub fn news(&mut self) -> Vec<Line> {
        let lines: Vec<Line> =
            self.lines.iter().filter(|(rank, _)| !self.told.contains(rank)).map(|(_, line)| line.clone()).collect();
        self.told.extend(lines.iter().map(Line::rank));
        // What is older than all that is kept will not come again.
        if let Some((oldest, _)) = self.lines.last_key_value()
            && self.lines.len() == self.wanted
        {
            self.told.split_off(oldest);
            self.told.insert(oldest.clone());
        }
        lines
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
    pub fn following(&self) -> Vec<UserName> {
        self.following.users()
    }

    /// Whose chirps are in it, the user's own first.
    pub fn users(&self) -> Vec<UserName> {
        let mut users = vec![self.user.clone()];
        users.extend(self.following.users().into_iter().filter(|user| *user != self.user));
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
    /// come to be known: what is new after `batch` is shown, newest first, again after as long, and at the end. Why users could
    /// not be read is what is left; an error is of `show`.
    pub async fn read_all<S: Store, E>(
        &mut self,
        chirp: &Chirp<S>,
        (wanted, kept): (usize, usize),
        batch: Duration,
        show: impl AsyncFn(Vec<Line>) -> Result<(), E>,
    ) -> Result<Vec<Error>, E> {
        let (mut merge, mut failed) = (Merge::new(kept), Vec::new());
        let mut batch = tokio::time::interval_at(tokio::time::Instant::now() + batch, batch);
        let mut unread = pin!(self.unread(chirp, wanted));
        loop {
            tokio::select! {
                next = unread.next() => match next {
                    None => break,
                    Some((user, Ok(updates))) => {
                        merge.add(&user, updates.records);
                        self.places.insert(user, updates.place);
                    }
                    Some((_, Err(error))) => failed.push(error),
                },
                _ = batch.tick() => show(merge.news()).await?,
            }
        }
        show(merge.news()).await?;
        Ok(failed)
    }

    /// What has been posted since it was read, and how many users could not be asked. Whoever is followed by now is read
    /// from then on, and not shown any more who is not.
    pub async fn poll<S: Store>(&mut self, chirp: &Chirp<S>, wanted: usize) -> Result<(Vec<Line>, Vec<Error>), Error> {
        chirp.refresh(&self.user, &mut self.following).await?;
        let users: BTreeSet<UserName> = self.users().into_iter().collect();
        self.places.retain(|user, _| users.contains(user));
        let (mut lines, mut errors) = (Vec::new(), Vec::new());
        let mut add = |user: &UserName, records: Vec<Record>| {
            lines.extend(records.into_iter().map(|record| Line { user: user.clone(), record }));
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
        lines.sort_by_cached_key(|line| Reverse(line.rank()));
        Ok((lines, errors))
    }
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
        let lines = newest.map(|record| Line { user: profile.name.clone(), record }).collect();
        Ok(Page { profile, count: updates.count, follows, lines })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at_ms: u64) -> Record {
        Record { id: at_ms.to_string(), at_ms, text: "x".into(), signature: None }
    }

    #[test]
    fn the_newest_are_told_once() {
        let (ann, bob): (UserName, UserName) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let times = |lines: Vec<Line>| lines.iter().map(|line| line.record.at_ms).collect::<Vec<_>>();
        let mut merge = Merge::new(3);
        merge.add(&ann, [1, 3, 5, 7].map(record));
        assert_eq!(times(merge.news()), [7, 5, 3]);
        merge.add(&bob, [4, 6].map(record));
        merge.add(&ann, [3, 5, 7].map(record));
        assert_eq!(times(merge.news()), [6], "5 and 7 were told, 4 is not among the newest three");
        merge.add(&bob, [2].map(record));
        assert_eq!(times(merge.news()), [0; 0]);
        assert_eq!(times(merge.lines.into_values().collect()), [7, 6, 5]);
    }
}
