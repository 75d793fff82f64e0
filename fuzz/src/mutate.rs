//! Damage that repeats: the same seed makes the same bytes.

/// A small random generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct Chance(pub u64);

impl Chance {
    /// Returns any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.number() as u8
    }
}

/// Typical wrong lengths and numbers: in one to nine bytes, fixed and in groups of seven bits.
const NUMBERS: [&[u8]; 10] = [
    &[0],
    &[0x7f],
    &[0xff],
    &[0xff, 0xff],
    &[0xff, 0xff, 0x03],
    &[0xff, 0xff, 0xff, 0x07],
    &[0xff, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
];

/// Returns an encoding of the `corpus`, damaged in one to four ways; one time in 16, random bytes only.
pub fn mutated(corpus: &[Vec<u8>], chance: &mut Chance) -> Vec<u8> {
    if chance.below(16) == 0 {
        let len = chance.below(200);
        return (0..len).map(|_| chance.byte()).collect();
    }
    let mut bytes = corpus[chance.below(corpus.len())].clone();
    for _ in 0..=chance.below(4) {
        damage(&mut bytes, corpus, chance);
    }
    bytes
}

fn damage(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], chance: &mut Chance) {
    let at = chance.below(bytes.len() + 1);
    let piece = at..(at + 1 + chance.below(16)).min(bytes.len());
    match chance.below(9) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(piece)),
        2 => {
            let copy = bytes[piece].to_vec();
            drop(bytes.splice(at..at, copy));
        }
        3 => {
            // The beginning of one encoding with the end of another.
            let other = &corpus[chance.below(corpus.len())];
            bytes.truncate(at);
            bytes.extend_from_slice(&other[chance.below(other.len() + 1)..]);
        }
        4 => {
            // A number in place of as many bytes as it has, or of one: a length that was short.
            let number = NUMBERS[chance.below(NUMBERS.len())];
            let replaced = if chance.below(2) == 0 { number.len() } else { 1 };
            drop(bytes.splice(at..(at + replaced).min(bytes.len()), number.iter().copied()));
        }
        5 => {
            // Behind a long run an announced length is believable.
            let run = vec![if chance.below(2) == 0 { 0 } else { chance.byte() }; chance.below(4096)];
            drop(bytes.splice(at..at, run));
        }
        6 => {
            let byte = chance.byte();
            bytes.insert(at, byte);
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << chance.below(8);
            }
        }
    }
}
