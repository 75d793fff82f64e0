//! Everything that a user can do.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::Error;
use crate::follows::{self, Following};
use crate::list::{AppendMode, List, Place};
use crate::name::UserName;
use crate::people::{self, Profile};
use crate::record::Record;
use crate::signature::{KeyError, PublicKey, UserKey};
use crate::store::Store;
use crate::text::Text;

/// So many users' tails and profiles are remembered.
const REMEMBERED_MAX: usize = 100_000;
/// So many of the last items of a list of follows are read: whoever writes more there follows fewer.
const FOLLOWS_READ_MAX: usize = 200_000;

/// Chirp on a store. All of it may be used by many at once.
pub struct Chirp<S> {
    store: S,
    mode: AppendMode,
    /// The last block of lists that were appended to, by key (the cached tails of `Scatter §7.2.1`).
    tails: Mutex<HashMap<String, u32>>,
    /// Profiles never change.
    profiles: Mutex<HashMap<UserName, Profile>>,
}

/// The end of what a user has posted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Updates {
    /// Oldest first.
    pub records: Vec<Record>,
    /// How many there are in all.
    pub count: u64,
    /// The place behind them.
    pub place: Place,
}

/// Now, in milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Makes room in what is remembered, where it is full.
fn room<K, V>(remembered: &mut HashMap<K, V>) -> &mut HashMap<K, V> {
    if remembered.len() >= REMEMBERED_MAX {
        remembered.clear();
    }
    remembered
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Store> Chirp<S> {
    /// On this store, appending like this.
    pub fn new(store: S, mode: AppendMode) -> Chirp<S> {
        Chirp { store, mode, tails: Mutex::default(), profiles: Mutex::default() }
    }

    /// The store that it is on.
    pub fn store(&self) -> &S {
        &self.store
    }

    fn updates_of(&self, user: &UserName) -> List<'_, S> {
        List::new(&self.store, format!("chirp/updates/{}", user.folded()), self.mode)
    }

    fn follows_of(&self, user: &UserName) -> List<'_, S> {
        List::new(&self.store, format!("chirp/follows/{}", user.folded()), self.mode)
    }

    /// Signs a user up. With a key, what the user posts can be told from what others post under the name; and who has signed
    /// up with it already may do so again, which changes nothing.
    ///
    /// # Errors
    /// [`Error::Taken`] where somebody has the name.
    pub async fn sign_up(&self, name: &UserName, key: Option<&UserKey>) -> Result<(), Error> {
        let profile = Profile { name: name.clone(), since_ms: now_ms(), key: key.map(UserKey::public) };
        match people::sign_up(&self.store, &profile).await {
            // Whoever has the key has signed up already, and was perhaps not told.
            Err(Error::Taken(_)) if key.is_some() && self.profile(name).await?.key == profile.key => Ok(()),
            result => result,
        }
    }

    /// What is known of a user.
    ///
    /// # Errors
    /// [`Error::NoUser`] where nobody has the name.
    pub async fn profile(&self, name: &UserName) -> Result<Profile, Error> {
        if let Some(profile) = lock(&self.profiles).get(name) {
            return Ok(profile.clone());
        }
        let profile = people::profile(&self.store, name).await?;
        room(&mut lock(&self.profiles)).insert(name.clone(), profile.clone());
        Ok(profile)
    }

    async fn append(&self, list: List<'_, S>, item: &[u8]) -> Result<(), Error> {
        let mut tail = lock(&self.tails).get(list.key()).copied();
        let result = list.append(item, &mut tail).await;
        if let Some(tail) = tail {
            let mut tails = lock(&self.tails);
            let known = room(&mut tails).entry(list.key().to_owned()).or_default();
            *known = tail.max(*known);
        }
        result
    }

    /// Posts, signed where there is a key.
    ///
    /// # Errors
    /// [`Error::NoUser`]; [`Error::Key`] where the user has signed up with another key, or none; [`Error::Unknown`] where it
    /// may be posted, or come to be. With any other, nothing is posted.
    pub async fn post(&self, user: &UserName, text: &Text, key: Option<&UserKey>) -> Result<Record, Error> {
        let profile = self.profile(user).await?;
        let of_the_user = profile.key.as_ref();
        if key.is_some_and(|key| of_the_user != Some(&key.public())) {
            let how = if of_the_user.is_some() { "with another key" } else { "without a key" };
            return Err(KeyError::NotTheUsers(profile.name, how).into());
        }
        let record = Record::new(user, text, now_ms(), key);
        self.append(self.updates_of(user), &record.to_item()).await?;
        Ok(record)
    }

    /// Has one user follow another; false where that is so already.
    ///
    /// # Errors
    /// [`Error::NoUser`] where there is none of either name.
    pub async fn follow(&self, user: &UserName, other: &UserName) -> Result<bool, Error> {
        let other = self.profile(other).await?.name;
        if self.following(user).await?.has(&other) {
            return Ok(false);
        }
        self.append(self.follows_of(user), &follows::item(&other, true, now_ms())).await?;
        Ok(true)
    }

    /// Has one user not follow another any more.
    ///
    /// # Errors
    /// [`Error::NotFollowed`] where that is so already.
    pub async fn unfollow(&self, user: &UserName, other: &UserName) -> Result<(), Error> {
        if !self.following(user).await?.has(other) {
            return Err(Error::NotFollowed(other.clone()));
        }
        self.append(self.follows_of(user), &follows::item(other, false, now_ms())).await
    }

    /// Whom a user follows.
    ///
    /// # Errors
    /// [`Error::NoUser`].
    pub async fn following(&self, user: &UserName) -> Result<Following, Error> {
        self.profile(user).await?;
        let tail = self.follows_of(user).tail(FOLLOWS_READ_MAX).await?;
        let mut following = Following::default();
        following.place = tail.place;
        following.extend(tail.items.iter().map(Vec::as_slice));
        Ok(following)
    }

    /// Looks whom a user follows by now; true where that has changed.
    pub async fn refresh(&self, user: &UserName, following: &mut Following) -> Result<bool, Error> {
        let items = self.follows_of(user).since(&mut following.place).await?;
        following.extend(items.iter().map(Vec::as_slice));
        Ok(!items.is_empty())
    }

    /// The last that a user has posted, `wanted` at least where there are as many; no more than it takes to read them.
    pub async fn updates(&self, user: &UserName, wanted: usize) -> Result<Updates, Error> {
        let tail = self.updates_of(user).tail(wanted).await?;
        Ok(Updates { records: records(&tail.items), count: tail.count, place: tail.place })
    }

    /// What a user has posted behind a place, oldest first; the place is behind that then.
    pub async fn updates_since(&self, user: &UserName, place: &mut Place) -> Result<Vec<Record>, Error> {
        Ok(records(&self.updates_of(user).since(place).await?))
    }

    /// With what a user signs; `None` where the user has no key, or never signed up: then somebody else writes under the name.
    pub async fn key(&self, user: &UserName) -> Result<Option<PublicKey>, Error> {
        match self.profile(user).await {
            Ok(profile) => Ok(profile.key),
            Err(Error::NoUser(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What of these is a chirp. One that is there twice, for a peer that had forgotten it was asked again, is one.
fn records(items: &[Vec<u8>]) -> Vec<Record> {
    let mut seen = HashSet::new();
    items.iter().filter(|item| seen.insert(item.as_slice())).filter_map(|item| Record::from_item(item)).collect()
}
