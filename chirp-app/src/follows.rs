//! Whom a user follows: a list of what was begun and what was ended, `+NAME TIME` and `-NAME TIME`.
//!
//! The time is in milliseconds since 1970. It also keeps the number of items in a block below 500: peers remember the ids of
//! 1,024 changes of one key at most within a minute, and refuse more until then.
//!
//! A name may stand there more than once, where one user follows from two places at the same moment: what counts is the
//! last that is said of it.

use std::collections::BTreeSet;

use crate::name::UserName;

/// One item of the list: what was begun or ended at this time.
pub fn item(name: &UserName, begins: bool, at_ms: u64) -> Vec<u8> {
    format!("{}{name} {at_ms:013}", if begins { '+' } else { '-' }).into_bytes()
}

/// Whom somebody follows whose list has these items, in the order in which it was begun.
pub fn fold<'a>(items: impl DoubleEndedIterator<Item = &'a [u8]>) -> Vec<UserName> {
    let mut settled = BTreeSet::new();
    let mut followed = Vec::new();
    // From the end: what is said last of a name is what counts. What is no name at all is not ours.
    for item in items.rev() {
        let Ok(text) = std::str::from_utf8(item) else { continue };
        let (begins, name) = (text.starts_with('+'), text.split(' ').next());
        let Some(Ok(name)) = name.and_then(|name| name.strip_prefix(['+', '-'])).map(str::parse::<UserName>) else {
            continue;
        };
        if settled.insert(name.clone()) && begins {
            followed.push(name);
        }
    }
    followed.reverse();
    followed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts() {
        let of = |list: &str| {
            let all = fold(list.split(',').map(str::as_bytes));
            all.iter().map(UserName::as_str).collect::<Vec<_>>().join(" ")
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
