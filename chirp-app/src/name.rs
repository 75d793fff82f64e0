//! Names of users.

use std::fmt;
use std::str::FromStr;

/// Upper limit of a name, in characters.
pub const NAME_MAX: usize = 32;

/// A user's name: 1 to 32 of the letters `a` to `z` in either case, digits, `_` and `-`, not beginning with `-`.
///
/// Only ASCII: with all of Unicode, names could look the same and be different. Names that differ in case alone are the
/// same, but are shown as they were written at sign-up.
#[derive(Clone)]
pub struct UserName(String);

/// The text is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name: it has 1 to {NAME_MAX} of the letters a to z, digits, _ and -, and does not begin with -")]
pub struct NameError(String);

impl UserName {
    /// Returns the name as it is in keys: equal names are the same text here.
    pub fn folded(&self) -> String {
        self.0.to_ascii_lowercase()
    }

    fn folded_bytes(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.bytes().map(|byte| byte.to_ascii_lowercase())
    }

    /// Returns the name as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UserName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<UserName, NameError> {
        let is_fit = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > NAME_MAX || name.starts_with('-') || !name.chars().all(is_fit) {
            // Of a long text the beginning is enough to recognise it.
            return Err(NameError(name.chars().take(2 * NAME_MAX).collect()));
        }
        Ok(UserName(name.to_owned()))
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq for UserName {
    fn eq(&self, other: &UserName) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for UserName {}

impl PartialOrd for UserName {
    fn partial_cmp(&self, other: &UserName) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for UserName {
    fn cmp(&self, other: &UserName) -> std::cmp::Ordering {
        self.folded_bytes().cmp(other.folded_bytes())
    }
}

impl std::hash::Hash for UserName {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.folded_bytes().for_each(|byte| state.write_u8(byte));
        state.write_u8(0xff);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for name in ["a", "ann", "Ann_2", "x-y", &"n".repeat(NAME_MAX)] {
            assert_eq!(name.parse::<UserName>().unwrap().as_str(), name);
        }
        for name in ["", "-a", "a b", "a/b", "zoë", "a\n", "\u{1b}[31m", "a\0", &"n".repeat(NAME_MAX + 1)] {
            let error = name.parse::<UserName>().unwrap_err().to_string();
            assert!(!error.chars().any(char::is_control), "{error}");
        }
        assert!("x".repeat(1 << 20).parse::<UserName>().unwrap_err().to_string().len() < 300);
    }

    #[test]
    fn names_are_the_same_in_either_case() {
        let (ann, same): (UserName, UserName) = ("Ann".parse().unwrap(), "aNN".parse().unwrap());
        assert_eq!((&ann, ann.folded()), (&same, same.folded()));
        assert_eq!(format!("{ann:>5}|"), "  Ann|");
    }
}
