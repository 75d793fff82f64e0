//! Users that have signed up, and their profiles.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::name::UserName;
use crate::signature::PublicKey;
use crate::store::Store;

/// The profile of a user; set once, when the name is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The name, as the user wrote it.
    pub name: UserName,
    /// Time of sign-up by the user's clock, in milliseconds since 1970.
    pub since_ms: u64,
    /// The user's key, where there is one.
    pub key: Option<PublicKey>,
}

/// A profile as it is stored.
#[derive(Serialize, Deserialize)]
struct Stored {
    name: String,
    since: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

fn key_of(name: &UserName) -> String {
    format!("chirp/user/{}", name.folded())
}

impl Profile {
    fn to_value(&self) -> Vec<u8> {
        let key = self.key.as_ref().map(PublicKey::to_text);
        let stored = Stored { name: self.name.as_str().to_owned(), since: self.since_ms, key };
        serde_json::to_vec(&stored).expect("texts and numbers can be written")
    }

    fn from_value(name: &UserName, value: &[u8]) -> Option<Profile> {
        let stored: Stored = serde_json::from_slice(value).ok()?;
        let written: UserName = stored.name.parse().ok()?;
        let key = match stored.key {
            None => None,
            Some(key) => Some(PublicKey::from_text(&key)?),
        };
        (written == *name).then_some(Profile { name: written, since_ms: stored.since, key })
    }
}

/// Takes a name. Of two clients that try at the same moment one gets it.
///
/// # Errors
/// [`Error::Taken`] where another user has it.
pub async fn sign_up(store: &impl Store, profile: &Profile) -> Result<(), Error> {
    match store.create(&key_of(&profile.name), &profile.to_value()).await? {
        true => Ok(()),
        false => Err(Error::Taken(profile.name.clone())),
    }
}

/// Returns the profile of a user.
///
/// # Errors
/// [`Error::NoUser`] where no user has the name.
pub async fn profile(store: &impl Store, name: &UserName) -> Result<Profile, Error> {
    let value = store.get(&key_of(name)).await?.ok_or_else(|| Error::NoUser(name.clone()))?;
    Profile::from_value(name, &value).ok_or_else(|| Error::Foreign(key_of(name)))
}
