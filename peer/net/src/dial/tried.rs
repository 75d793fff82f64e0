//! The results of dials, for an administrator who waits for a peer to enter its network.

use std::error::Error;
use std::{fmt, io};

use libp2p::Multiaddr;
use libp2p::swarm::DialError;

/// One target that is dialled while no peer is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The addresses of the target.
    pub addresses: Vec<Multiaddr>,
    /// Whether the settings name it (`--join`); then it is dialled as long as this peer runs.
    pub named: bool,
    /// Number of dials.
    pub dials: u32,
    /// The last result; `None` where the first dial is still under way.
    pub outcome: Option<DialOutcome>,
}

/// The result of a dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialOutcome {
    /// A text for administrators.
    pub words: String,
    /// Whether it stays so until an administrator changes settings or programs: another dial is of no use.
    pub lasting: bool,
}

impl DialOutcome {
    /// Returns the result of a dial that failed. `is_placed`: an address was given for it.
    pub(crate) fn of(error: &DialError, is_placed: bool) -> DialOutcome {
        let passing = |words: String| DialOutcome { words, lasting: false };
        let itself = || DialOutcome { words: "this peer itself is there".into(), lasting: true };
        match error {
            DialError::WrongPeerId { obtained, .. } => {
                DialOutcome { words: format!("another peer is there: {obtained}"), lasting: true }
            }
            DialError::LocalPeerId { .. } => itself(),
            DialError::Transport(errors) => {
                let mut words: Vec<String> = errors.iter().map(|(_, error)| root(error)).collect();
                words.dedup();
                passing(words.join(", "))
            }
            // libp2p leaves out the given addresses that this peer itself listens at.
            DialError::NoAddresses if is_placed => itself(),
            DialError::NoAddresses => passing("no address of the peer is known".into()),
            other => passing(root(other)),
        }
    }
}

/// Returns the innermost cause: the outer errors repeat it.
fn root(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    let mut is_foreign = is_nonsense(error);
    while let Some(source) = error.source() {
        error = source;
        is_foreign |= is_nonsense(error);
    }
    if is_foreign {
        // A program answers, but not in libp2p's protocol.
        return "another program than a peer answers there".into();
    }
    match is_of(error, io::ErrorKind::UnexpectedEof) {
        true => "the other side closed the connection before the handshake: perhaps another program".into(),
        false => error.to_string(),
    }
}

/// Returns whether the other side sent unreadable bytes, or bytes that begin with an invalid length.
fn is_nonsense(error: &(dyn Error + 'static)) -> bool {
    is_of(error, io::ErrorKind::InvalidData) || error.to_string() == "Maximum frame length exceeded"
}

/// Returns whether this is an error of that kind. Some wrappers hide its type, and keep its text.
fn is_of(error: &(dyn Error + 'static), kind: io::ErrorKind) -> bool {
    match error.downcast_ref::<io::Error>() {
        Some(error) => error.kind() == kind,
        None => error.to_string() == io::Error::from(kind).to_string(),
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        write!(f, "{}: ", addresses.join(" "))?;
        match (&self.outcome, self.dials) {
            (Some(outcome), 1) => f.write_str(&outcome.words),
            (Some(outcome), dials) => write!(f, "{} (tried {dials} times)", outcome.words),
            (None, 0) => f.write_str("not tried yet"),
            (None, _) => f.write_str("no answer yet"),
        }
    }
}

/// Returns the reason for which no named peer will ever admit this peer, where each of them refused it.
pub fn hopeless(tried: &[Tried]) -> Option<String> {
    let lasts = |tried: &Tried| tried.outcome.as_ref().is_some_and(|outcome| outcome.lasting);
    let all = !tried.is_empty() && tried.iter().all(|tried| tried.named && lasts(tried));
    all.then(|| told(tried))
}

/// Returns all targets in one line; of many, only the first ones.
pub fn told(tried: &[Tried]) -> String {
    const TOLD_MAX: usize = 5;
    let mut words: Vec<String> = tried.iter().take(TOLD_MAX).map(ToString::to_string).collect();
    if tried.len() > TOLD_MAX {
        words.push(format!("and {} more", tried.len() - TOLD_MAX));
    }
    words.join("; ")
}

#[cfg(test)]
mod tests {
    use libp2p::TransportError;

    use super::*;

    fn tried(named: bool, dials: u32, outcome: Option<(&str, bool)>) -> Tried {
        let outcome = outcome.map(|(words, lasting)| DialOutcome { words: words.into(), lasting });
        Tried { addresses: vec!["/ip4/192.0.2.1/tcp/6478".parse().unwrap()], named, dials, outcome }
    }

    #[test]
    fn what_was_tried_is_said() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let nested = io::Error::other(refused);
        let address: Multiaddr = "/ip4/192.0.2.1/tcp/6478".parse().unwrap();
        let outcome = DialOutcome::of(&DialError::Transport(vec![(address, TransportError::Other(nested))]), true);
        assert_eq!(outcome, DialOutcome { words: "connection refused".into(), lasting: false });
        let lines = told(&[tried(true, 1, None), tried(true, 3, Some(("connection refused", false)))]);
        let place = "/ip4/192.0.2.1/tcp/6478";
        assert_eq!(lines, format!("{place}: no answer yet; {place}: connection refused (tried 3 times)"));
    }

    #[test]
    fn it_is_hopeless_where_all_that_were_named_refuse_for_good() {
        let refused = || tried(true, 1, Some(("another network name", true)));
        assert!(hopeless(&[refused(), refused()]).is_some_and(|why| why.contains("another network name")));
        assert_eq!(hopeless(&[]), None);
        assert_eq!(hopeless(&[refused(), tried(true, 9, Some(("connection refused", false)))]), None);
        assert_eq!(hopeless(&[refused(), tried(true, 1, None)]), None);
        assert_eq!(hopeless(&[refused(), tried(false, 1, Some(("another network name", true)))]), None);
    }
}
