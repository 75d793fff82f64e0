//! A chirp as it is stored: an item of the list of its author's updates.

use serde::{Deserialize, Serialize};

use crate::name::UserName;
use crate::patience::random;
use crate::signature::{PublicKey, Seal, Signed, UserKey};
use crate::text::Text;

/// Upper limit of an id, in bytes; Chirp writes none that is longer.
const ID_BYTES_MAX: usize = 64;

/// One post of a user.
///
/// It is stored as JSON on one line. No field can be believed: every client that reaches a peer can write it, with any
/// text and any time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Record {
    /// Id, different for each chirp.
    pub id: String,
    /// Time of writing by the author's clock, in milliseconds since 1970.
    #[serde(rename = "at")]
    pub at_ms: u64,
    /// The text.
    pub text: String,
    /// The author's signature.
    #[serde(rename = "sig", default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

impl Record {
    /// Makes a new chirp, signed where there is a key.
    pub fn new(user: &UserName, text: &Text, at_ms: u64, key: Option<&UserKey>) -> Record {
        let id: String = random::<8>().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut record = Record { id, at_ms, text: text.as_str().to_owned(), signature: None };
        record.signature = key.map(|key| key.sign(&record.signed(user)));
        record
    }

    /// Returns the chirp as an item of a list.
    pub fn to_item(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers can be written")
    }

    /// Parses an item; `None` where it is no chirp.
    pub fn from_item(item: &[u8]) -> Option<Record> {
        let record: Record = serde_json::from_slice(item).ok()?;
        // Other programs may have written longer texts than this one writes, or more than one line.
        let is_text = record.text.parse::<Text>().is_ok_and(|text| text.as_str() == record.text);
        (is_text && record.id.len() <= ID_BYTES_MAX && !record.id.contains(char::is_control)).then_some(record)
    }

    fn signed<'a>(&'a self, user: &'a UserName) -> Signed<'a> {
        Signed { user, id: &self.id, at_ms: self.at_ms, text: &self.text }
    }

    /// Checks the signature with the user's key.
    pub fn seal(&self, user: &UserName, key: Option<&PublicKey>) -> Seal {
        self.signed(user).seal(self.signature.as_deref(), key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::list::ITEM_BYTES_MAX;

    proptest! {
        #[test]
        fn any_chirp_is_an_item(text in "\\PC{1,200}", at_ms: u64) {
            let Ok(text) = text.parse::<Text>() else { return Ok(()) };
            let record = Record::new(&"ann".parse().unwrap(), &text, at_ms, None);
            let item = record.to_item();
            prop_assert!(item.len() <= ITEM_BYTES_MAX && !item.contains(&b'\n'));
            prop_assert_eq!(Record::from_item(&item), Some(record));
        }

        #[test]
        fn only_what_can_be_posted_is_shown(text in "[a-c \n\r\t\u{1b}\u{200b}]{0,150}") {
            let record = Record { id: "1".into(), at_ms: 0, text: text.clone(), signature: None };
            let is_fit = text.parse::<Text>().is_ok_and(|fit| fit.as_str() == text);
            prop_assert_eq!(Record::from_item(&record.to_item()).is_some(), is_fit);
        }

        #[test]
        fn nonsense_is_no_chirp(item: Vec<u8>) {
            let _ = Record::from_item(&item);
        }
    }

    #[test]
    fn the_longest_chirp_fits() {
        let directory = std::env::temp_dir().join(format!("chirp-record-{}", std::process::id()));
        let key = UserKey::open_or_make(&directory).unwrap().0;
        std::fs::remove_file(&directory).unwrap();
        let heavy = format!("e{}", "\u{301}".repeat(1990));
        for text in ["\"".repeat(140), heavy] {
            let text = text.parse::<Text>().unwrap();
            let ann = "ann".parse().unwrap();
            let record = Record::new(&ann, &text, u64::MAX, Some(&key));
            assert!(record.to_item().len() <= ITEM_BYTES_MAX);
            assert_eq!(record.seal(&ann, Some(&key.public())), Seal::Valid);
        }
    }
}
