//! All actions of a user.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use environment::unix_ms;

use crate::error::Error;
use crate::follows::{self, Following};
use crate::list::{AppendMode, List, Place};
use crate::name::UserName;
use crate::people::{self, Profile};
use crate::record::Record;
use crate::signature::{KeyError, PublicKey, UserKey};
use crate::store::Store;
use crate::text::Text;

/// Upper limit of users with cached tails or profiles.
const REMEMBERED_MAX: usize = 100_000;
/// Number of last items that are read of a list of follows, rounded up to whole blocks: of a longer list the earlier
/// items do not count.
const FOLLOWS_READ_MAX: usize = 200_000;

/// Chirp on a store. Concurrent use is allowed.
pub struct Chirp<S> {
    store: S,
    mode: AppendMode,
    /// Last known block of each list that was appended to, by key (the cached tails of `Scatter §7.2.1`).
    tails: Mutex<HashMap<String, u32>>,
    /// Cached profiles, which never change.
    profiles: Mutex<HashMap<UserName, Profile>>,
}

/// The last posts of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Updates {
    /// Posts, oldest first.
    pub records: Vec<Record>,
    /// Number of all posts.
    pub count: u64,
    /// Place behind the last post.
    pub place: Place,
}

/// Empties a full cache.
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
    /// Makes Chirp on this store, with this way of appending.
    pub fn new(store: S, mode: AppendMode) -> Chirp<S> {
        Chirp { store, mode, tails: Mutex::default(), profiles: Mutex::default() }
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.store
    }

    fn updates_of(&self, user: &UserName) -> List<'_, S> {
        List::new(&self.store, format!("chirp/updates/{}", user.folded()), self.mode)
    }

    fn follows_of(&self, user: &UserName) -> List<'_, S> {
        List::new(&self.store, format!("chirp/follows/{}", user.folded()), self.mode)
    }

    /// Signs a user up. With a key, readers can tell the user's posts from posts of other clients under the name. A
    /// user that has signed up with this key already may do so again, which changes nothing.
    ///
    /// # Errors
    /// [`Error::Taken`] where another user has the name.
    pub async fn sign_up(&self, name: &UserName, key: Option<&UserKey>) -> Result<(), Error> {
        let profile = Profile { name: name.clone(), since_ms: unix_ms(), key: key.map(UserKey::public) };
        match people::sign_up(&self.store, &profile).await {
            // The holder of the key has signed up already, and perhaps got no answer.
            Err(Error::Taken(_)) if key.is_some() && self.profile(name).await?.key == profile.key => Ok(()),
            result => result,
        }
    }

    /// Returns the profile of a user.
    ///
    /// # Errors
    /// [`Error::NoUser`] where no user has the name.
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

    /// Posts a chirp, signed where there is a key.
    ///
    /// # Errors
    /// [`Error::NoUser`]; [`Error::Key`] where the user has signed up with another key, or none; [`Error::Unknown`]
    /// where the chirp may be posted, or come to be. With any other, nothing is posted.
    pub async fn post(&self, user: &UserName, text: &Text, key: Option<&UserKey>) -> Result<Record, Error> {
        let profile = self.profile(user).await?;
        let of_the_user = profile.key.as_ref();
        if key.is_some_and(|key| of_the_user != Some(&key.public())) {
            let how = if of_the_user.is_some() { "with another key" } else { "without a key" };
            return Err(KeyError::NotTheUsers(profile.name, how).into());
        }
        let record = Record::new(user, text, unix_ms(), key);
        self.append(self.updates_of(user), &record.to_item()).await?;
        Ok(record)
    }

    /// Lets one user follow another; returns false where the user does so already.
    ///
    /// # Errors
    /// [`Error::NoUser`] where one of both names has no user.
    pub async fn follow(&self, user: &UserName, other: &UserName) -> Result<bool, Error> {
        let other = self.profile(other).await?.name;
        if self.following(user).await?.has(&other) {
            return Ok(false);
        }
        self.append(self.follows_of(user), &follows::item(&other, true, unix_ms())).await?;
        Ok(true)
    }

    /// Lets one user stop following another.
    ///
    /// # Errors
    /// [`Error::NoUser`] where the user has not signed up; [`Error::NotFollowed`] where the user does not follow the
    /// other one.
    pub async fn unfollow(&self, user: &UserName, other: &UserName) -> Result<(), Error> {
        if !self.following(user).await?.has(other) {
            return Err(Error::NotFollowed(other.clone()));
        }
        self.append(self.follows_of(user), &follows::item(other, false, unix_ms())).await
    }

    /// Returns the users that a user follows.
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

    /// Reads changes of the users that a user follows; returns whether there are any.
    ///
    /// # Errors
    /// Those of the store; `following` is unchanged then.
    pub async fn refresh(&self, user: &UserName, following: &mut Following) -> Result<bool, Error> {
        let items = self.follows_of(user).since(&mut following.place).await?;
        following.extend(items.iter().map(Vec::as_slice));
        Ok(!items.is_empty())
    }

    /// Returns a user's last posts: at least `wanted`, where there are as many, and no more than it takes to read them.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn updates(&self, user: &UserName, wanted: usize) -> Result<Updates, Error> {
        let tail = self.updates_of(user).tail(wanted).await?;
        Ok(Updates { records: records(&tail.items), count: tail.count, place: tail.place })
    }

    /// Returns a user's posts behind a place, oldest first, and moves the place behind them.
    ///
    /// # Errors
    /// Those of the store; the place is unchanged then.
    pub async fn updates_since(&self, user: &UserName, place: &mut Place) -> Result<Vec<Record>, Error> {
        Ok(records(&self.updates_of(user).since(place).await?))
    }

    /// Returns the key with which a user signs. `None` where the user has no key, or never signed up: then another
    /// client writes under the name.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn key(&self, user: &UserName) -> Result<Option<PublicKey>, Error> {
        match self.profile(user).await {
            Ok(profile) => Ok(profile.key),
            Err(Error::NoUser(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the chirps among these items. An item that is there twice, because a peer that had forgotten an append was
/// asked again, counts once.
fn records(items: &[Vec<u8>]) -> Vec<Record> {
    let mut seen = HashSet::new();
    items.iter().filter(|item| seen.insert(item.as_slice())).filter_map(|item| Record::from_item(item)).collect()
}
