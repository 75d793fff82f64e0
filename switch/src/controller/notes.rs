//! Messages for operators, each once.

use std::collections::BTreeMap;

/// Last message about each subject.
#[derive(Debug, Default)]
pub struct Notes {
    said: BTreeMap<String, String>,
}

impl Notes {
    /// Takes all current messages, by subject, and returns the new ones.
    pub fn news(&mut self, now: BTreeMap<String, String>) -> Vec<String> {
        let is_new = |(about, text): &(&String, &String)| self.said.get(*about) != Some(*text);
        let mut news: Vec<String> = now.iter().filter(is_new).map(|(about, text)| format!("{about}: {text}")).collect();
        let gone = self.said.keys().filter(|about| !now.contains_key(*about));
        news.extend(gone.map(|about| format!("{about}: gone")));
        self.said = now;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_is_said_once() {
        let mut notes = Notes::default();
        let mut news = |now: &[(&str, &str)]| {
            notes.news(now.iter().map(|(about, text)| ((*about).to_owned(), (*text).to_owned())).collect())
        };
        assert_eq!(news(&[("a", "1"), ("b", "1")]), ["a: 1", "b: 1"]);
        assert_eq!(news(&[("a", "1"), ("b", "2")]), ["b: 2"]);
        assert_eq!(news(&[("a", "1")]), ["b: gone"]);
        assert!(news(&[("a", "1")]).is_empty());
    }
}
