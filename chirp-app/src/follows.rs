//! Whom a user follows: a list of what was begun and what was ended, `+NAME` and `-NAME`.
//!
//! A name may stand there more than once, where one user follows from two places at the same moment: what counts is the
//! last that is said of it.

use std::collections::BTreeSet;

use crate::name::UserName;

/// One item of the list.
pub fn item(name: &UserName, begins: bool) -> Vec<u8> {
    format!("{}{name}", if begins { '+' } else { '-' }).into_bytes()
}

/// Whom somebody follows whose list has these items, in the order in which it was begun.
pub fn fold<'a>(items: impl DoubleEndedIterator<Item = &'a [u8]>) -> Vec<UserName> {
    let mut settled = BTreeSet::new();
    let mut followed = Vec::new();
    // From the end: what is said last of a name is what counts. What is no name at all is not ours.
    for item in items.rev() {
        let Ok(text) = std::str::from_utf8(item) else { continue };
        let begins = text.starts_with('+');
        let Some(Ok(name)) = text.strip_prefix(['+', '-']).map(str::parse::<UserName>) else { continue };
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
            let all = fold(list.split(' ').map(str::as_bytes));
            all.iter().map(UserName::as_str).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("+ann +bob -ann"), "bob");
        assert_eq!(of("+ann -ann +bob +Ann"), "bob Ann");
        assert_eq!(of("+ann +ann"), "ann");
        assert_eq!(of("-ann"), "");
        assert_eq!(of("x + +a/b \u{1b} +cy"), "cy");
        let name: UserName = "ann".parse().unwrap();
        assert_eq!((item(&name, true), item(&name, false)), (b"+ann".to_vec(), b"-ann".to_vec()));
    }
}
