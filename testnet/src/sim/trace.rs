//! Events of a run, in order: a running hash always, lines where they are asked for.

use std::fmt::Write;
use std::hash::{Hash, Hasher};

use overlay::time::Time;

/// Trace of a run.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    hash: u64,
    lines: Option<String>,
}

impl Trace {
    /// Returns a trace with lines, or with the hash alone.
    pub fn new(with_lines: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, lines: with_lines.then(String::new) }
    }

    /// Returns the hash of all events so far: equal runs have equal ones.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the lines, where they were asked for.
    pub fn lines(&self) -> &str {
        self.lines.as_deref().unwrap_or_default()
    }

    /// Notes an event: `numbers` and `bytes` enter the hash, `text` the lines.
    pub fn note(&mut self, now: Time, numbers: &[u64], bytes: &[u8], text: impl FnOnce() -> String) {
        self.mix(now.0);
        for &number in numbers {
            self.mix(number);
        }
        self.mix(hash_bytes(bytes));
        if let Some(lines) = &mut self.lines {
            let _ = writeln!(lines, "{now:?} {}", text());
        }
    }

    fn mix(&mut self, word: u64) {
        self.hash = mixed(self.hash, word);
    }
}

fn mixed(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
}

/// Returns a quick hash of bytes; no input here is hostile.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        hash = mixed(hash, u64::from_le_bytes(chunk.try_into().expect("eight bytes")));
    }
    let rest = chunks.remainder().iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    mixed(hash, rest)
}

/// Hasher of composite values, word by word: equal values have equal hashes in every run, and on every machine of this kind.
pub struct WordHasher(u64);

impl WordHasher {
    /// Returns the hash of one value.
    pub(crate) fn hash_of(thing: &impl Hash) -> u64 {
        let mut words = WordHasher(0xcbf2_9ce4_8422_2325);
        thing.hash(&mut words);
        words.0
    }
}

impl Hasher for WordHasher {
    /// Keys of peers, of which groups' states are full, are whole words.
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            self.write_u64(hash_bytes(rest));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mixed(self.0, word);
    }

    fn write_u128(&mut self, words: u128) {
        self.write_u64(words as u64);
        self.write_u64((words >> 64) as u64);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_anywhere_has_another_hash() {
        let thing = (7_u128, [1_u8; 32], vec!["one", "two"], Some(3_u64));
        let hash = WordHasher::hash_of(&thing);
        assert_eq!(hash, WordHasher::hash_of(&thing.clone()));
        let mut key = thing.1;
        key[31] = 2;
        assert_ne!(hash, WordHasher::hash_of(&(7_u128 << 64, thing.1, thing.2.clone(), thing.3)));
        assert_ne!(hash, WordHasher::hash_of(&(7_u128, key, thing.2.clone(), thing.3)));
        assert_ne!(hash, WordHasher::hash_of(&(7_u128, thing.1, vec!["onet", "wo"], thing.3)));
        assert_ne!(hash, WordHasher::hash_of(&(7_u128, thing.1, thing.2.clone(), None::<u64>)));
    }
}
