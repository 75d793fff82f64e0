//! What happened, in order: a running hash always, lines where somebody wants to read them.

use std::fmt::Write;

use group::time::Time;

/// A run's trace.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    hash: u64,
    lines: Option<String>,
}

impl Trace {
    /// With lines or with the hash alone.
    pub fn new(with_lines: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, lines: with_lines.then(String::new) }
    }

    /// Of all that happened so far: equal runs have equal ones.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The lines, where they were wanted.
    pub fn lines(&self) -> &str {
        self.lines.as_deref().unwrap_or_default()
    }

    /// Notes something: what enters the hash, and how it reads.
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
        self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

/// A quick hash of bytes; nobody attacks it here.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    let rest = chunks.remainder().iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    (hash.rotate_left(5) ^ rest).wrapping_mul(0x517c_c1b7_2722_0a95)
}
