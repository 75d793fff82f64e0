//! Errors of Chirp, for a person, and the exit codes of commands.

use crate::name::{NameError, UserName};
use crate::signature::KeyError;
use crate::text::TextError;

/// The reason why an action was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is no name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The text is no chirp.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// No user has signed up under this name.
    #[error("there is no user {0}; `chirp signup {0}` creates it")]
    NoUser(UserName),
    /// Another user has signed up under this name.
    #[error("the name {0} is taken")]
    Taken(UserName),
    /// The user did not follow this one.
    #[error("you do not follow {0}")]
    NotFollowed(UserName),
    /// No peer could be reached: nothing was done.
    #[error("cannot reach a peer at {tried}: {why}")]
    Unreachable {
        /// The addresses, as they were given.
        tried: String,
        /// Error of the last address.
        why: String,
    },
    /// A peer refused: password, limits, a key with another kind of value.
    #[error("the peer refused: {0}")]
    Refused(String),
    /// The key holds a value that this program did not write.
    #[error("the key {0} holds a value that is not in Chirp's format")]
    Foreign(String),
    /// Nothing was done in all attempts until patience was over.
    #[error("not done, for the network is busy or a part of it is down ({0}); try again")]
    TryAgain(String),
    /// The action may have been done, or may be yet.
    #[error("the outcome is unknown ({0}); check before you repeat the command")]
    Unknown(String),
}

impl Error {
    /// Returns the exit code; the codes are those of `scatter`.
    pub fn exit(&self) -> u8 {
        match self {
            Error::NoUser(_) | Error::Taken(_) | Error::NotFollowed(_) => 1,
            Error::Name(_) | Error::Text(_) | Error::Key(_) => 2,
            Error::Unreachable { .. } => 3,
            Error::Refused(_) | Error::Foreign(_) => 4,
            Error::Unknown(_) => 5,
            Error::TryAgain(_) => 6,
        }
    }
}
