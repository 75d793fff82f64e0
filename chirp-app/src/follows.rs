//! The users that a user follows: a list of beginnings and ends, `+NAME TIME` and `-NAME TIME`.
//!
//! The time is in milliseconds since 1970. It also keeps the number of items in a block below 500: each append leaves
//! an operation id in the record of its key. A record holds at most 1,024 live ids, and operations wait until ids have
//! moved beside it.
//!
//! A name may stand there more than once, where one user follows from two places at the same moment: the last entry of
//! a name counts.

use std::collections::{BTreeMap, HashMap};

use crate::list::Place;
use crate::name::UserName;

/// Returns one item of the list: a beginning or an end at this time.
pub fn item(name: &UserName, begins: bool, at_ms: u64) -> Vec<u8> {
    format!("{}{name} {at_ms:013}", if begins { '+' } else { '-' }).into_bytes()
}

/// Parses an item into the name, and whether the user begins to follow it. `None` where Chirp has not written it.
fn read(item: &[u8]) -> Option<(UserName, bool)> {
    let word = std::str::from_utf8(item).ok()?.split(' ').next()?;
    let name = word.strip_prefix(['+', '-'])?.parse().ok()?;
    Some((name, word.starts_with('+')))
}

/// The users that a user follows, and the place up to which the list has been read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Following {
    /// Users by the order in which they were followed.
    users: BTreeMap<u64, UserName>,
    begun: HashMap<UserName, u64>,
    next: u64,
    pub(crate) place: Place,
}

impl Following {
    /// Applies further items, one after the other.
    pub(crate) fn extend<'a>(&mut self, items: impl IntoIterator<Item = &'a [u8]>) {
        for (name, begins) in items.into_iter().filter_map(read) {
            if let Some(before) = self.begun.remove(&name) {
                self.users.remove(&before);
            }
            if begins {
                self.begun.insert(name.clone(), self.next);
                self.users.insert(self.next, name);
                self.next += 1;
            }
        }
    }

    /// Returns the users in the order in which they were followed.
    pub fn users(&self) -> impl ExactSizeIterator<Item = &UserName> {
        self.users.values()
    }

    /// Returns whether the user is followed.
    pub fn has(&self, user: &UserName) -> bool {
        self.begun.contains_key(user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts() {
        let of = |list: &str| {
            let mut following = Following::default();
            following.extend(list.split(',').map(str::as_bytes));
            assert!(following.users().all(|user| following.has(user)));
            following.users().map(UserName::as_str).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("+ann 1,+bob 2,-ann 3"), "bob");
        assert_eq!(of("+ann 1,-ann,+bob 2 more,+Ann 3"), "bob Ann");
        assert_eq!(of("+ann 1,+ann 2"), "ann");
        assert_eq!(of("-ann"), "");
        assert_eq!(of("x,+,+ 1,+a/b 1,\u{1b},,+cy 1"), "cy");
        let name: UserName = "ann".parse().unwrap();
        assert_eq!(item(&name, true, 7), b"+ann 0000000000007");
        assert_eq!(item(&name, false, u64::MAX), b"-ann 18446744073709551615");
    }
}
