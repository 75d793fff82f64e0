//! Random commands: most of them well formed, some with one word too few, too many or wrong, on few keys, so that each
//! meets the effects of earlier ones.

use crate::common::memory::Manner;
use crate::common::redis::Redis;
use crate::common::{Client, Server, command};
use crate::differences::is_meant;
use crate::same;

/// Around a map and around a real node: the map is quick and shows that the commands are right, the node shows that the
/// node is right.
#[test]
fn commands_mean_what_they_mean_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let seed = std::env::var("SCATTER_SEED").ok().map(|seed| seed.parse().expect("SCATTER_SEED is a number"));
    for seed in seed.map_or(1..=4, |seed: u64| seed..=seed) {
        compare(&redis, || Server::start(Manner::Prompt), seed, 5_000);
        compare(&redis, Server::alone, seed, 500);
    }
}

fn compare(redis: &Redis, start: impl Fn() -> Server, seed: u64, steps: u64) {
    let mut chance = Chance(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1);
    for protocol in ["2", "3"] {
        let server = start();
        let (mut theirs, mut ours) = (redis.client(), server.client());
        theirs.line("FLUSHALL");
        for client in [&mut theirs, &mut ours] {
            client.line(&format!("HELLO {protocol}"));
        }
        let mut past = Vec::new();
        for step in 0..steps {
            let words = request(&mut chance, step);
            let words = mutated(&mut chance, words, step);
            let said = command(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
            past.push(said.escape_ascii().to_string());
            let (expected, answer) = (ask(&mut theirs, &words), ask(&mut ours, &words));
            if !same(&words, &answer, &expected) && !is_meant(&words, &answer, &expected) {
                let from = past.len().saturating_sub(12);
                panic!(
                    "step {step} of RESP{protocol}: Redis says {}, we {}\n{}\n\
                     repeat with: SCATTER_SEED={seed} cargo test -p cli --test conformance commands_mean",
                    expected.escape_ascii(),
                    answer.escape_ascii(),
                    past[from..].join("\n"),
                );
            }
        }
    }
}

fn ask(client: &mut Client, words: &[Vec<u8>]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    client.ask(&words).unwrap_or_else(|| b"<end>".to_vec())
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, of: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % of as u64) as usize
    }

    fn of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

const KEYS: [&[u8]; 5] = [b"a", b"b", b"c", b"", b"\x00\xff\r\n"];

const VALUES: [&[u8]; 12] = [
    b"1",
    b"-7",
    b"x",
    b"",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"a longer value \r\n with lines",
    b"012",
    b"\x00\xff",
    b" 1",
    b"1.5",
    b"+1",
];

/// Stands for a time that no other step gives, and which grows with the steps: two servers that are asked one after the
/// other cannot disagree about the later of two such times.
const LONG: &[u8] = b"LONG";

/// Words that may stand anywhere. None of them is a short time: a key with one would be gone at one server a little
/// earlier than at the other.
const ANYWHERE: [&[u8]; 22] = [
    b"NX",
    b"xx",
    b"GET",
    b"KEEPTTL",
    b"PERSIST",
    b"EX",
    b"px",
    b"EXAT",
    b"PXAT",
    b"GT",
    b"lt",
    b"FOO",
    b"",
    b"0",
    b"-1",
    b"01",
    b"+5000",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"9223372036854775",
    LONG,
    b"a",
];

const SIMPLE: [&[&[u8]]; 16] = [
    &[b"GET"],
    &[b"GETDEL"],
    &[b"STRLEN"],
    &[b"INCR"],
    &[b"DECR"],
    &[b"TTL"],
    &[b"PTTL"],
    &[b"PERSIST"],
    &[b"TYPE"],
    &[b"GETEX"],
    &[b"DEL"],
    &[b"UNLINK"],
    &[b"EXISTS"],
    &[b"MGET"],
    &[b"getdel"],
    &[b"Get"],
];

/// Returns a command that is well formed, though perhaps with an unmet condition.
fn request(chance: &mut Chance, step: u64) -> Vec<Vec<u8>> {
    let (key, other, value) = (chance.of(&KEYS), chance.of(&KEYS), chance.of(&VALUES));
    // Never twice the same, so that it does not matter that one server is asked a little later than the other.
    let early = (step * 1_000 + 1_000).to_string();
    let late = (90_000_000 - step * 1_000).to_string();
    let (early, late) = (early.as_bytes(), late.as_bytes());
    let time = chance.of(&[early, late, late, b"-5", b"0"]);
    let at = chance.of(&[&b"99999999999"[..], b"99999999990000", b"1", b"-1"]);
    let only: &[&[u8]] =
        chance.of(&[&[][..], &[b"NX"], &[b"XX"], &[b"GT"], &[b"LT"], &[b"nx"], &[b"XX", b"LT"], &[b"gt", b"xx"]]);
    let mut words: Vec<&[u8]> = match chance.below(24) {
        0..=5 => {
            let mut words = vec![&b"SET"[..], key, value];
            words.extend_from_slice(chance.of(&[&[][..], &[], &[b"NX"], &[b"XX"]]));
            words.extend_from_slice(chance.of(&[&[][..], &[], &[b"GET"], &[b"get"]]));
            match chance.below(8) {
                0 => words.push(b"KEEPTTL"),
                1 => words.extend([&b"EX"[..], late]),
                2 => words.extend([&b"px"[..], LONG]),
                3 => words.extend([&b"EXAT"[..], b"99999999999"]),
                4 => words.extend([&b"PXAT"[..], at]),
                _ => {}
            }
            words
        }
        6 => vec![b"SETNX", key, value],
        7 => vec![b"GETSET", key, value],
        8 => vec![b"APPEND", key, value],
        9 => vec![chance.of(&[&b"INCRBY"[..], b"DECRBY"]), key, value],
        10 => vec![chance.of(&[&b"DEL"[..], b"UNLINK", b"MGET"]), key, other],
        11 => vec![b"EXISTS", key, other, key],
        12 => vec![b"MSET", key, value, other, b"m"],
        13 => [&[&b"EXPIRE"[..], key, time][..], only].concat(),
        14 => [&[&b"PEXPIRE"[..], key, chance.of(&[LONG, late, b"0", b"-1"])][..], only].concat(),
        15 => [&[&b"EXPIREAT"[..], key, at][..], only].concat(),
        16 => [&[&b"PEXPIREAT"[..], key, at][..], only].concat(),
        17 => {
            let mut words = vec![&b"GETEX"[..], key];
            let options: [&[&[u8]]; 4] = [&[b"PERSIST"], &[b"EX", LONG], &[b"PXAT", b"1"], &[b"exat", b"99999999999"]];
            words.extend_from_slice(chance.of(&options));
            words
        }
        18 => vec![b"SETEX", key, chance.of(&[late, b"0", b"-1"]), value],
        19 => vec![b"PSETEX", key, chance.of(&[LONG, b"0"]), value],
        _ => [chance.of(&SIMPLE), &[key]].concat(),
    };
    if chance.below(200) == 0 {
        // None with a NUL at its end: Redis hashes the whole name and compares it up to the NUL. One process in 256 has
        // both names in the same bucket, and takes it for the command.
        words[0] = chance.of(&[&b"NOSUCH"[..], b"", b"get\x01", b"ECHO", b"PING", b"SELECT"]);
    }
    words.into_iter().map(<[u8]>::to_vec).collect()
}

/// Returns the same command, or one with a word too few, too many, or another one.
fn mutated(chance: &mut Chance, mut words: Vec<Vec<u8>>, step: u64) -> Vec<Vec<u8>> {
    if chance.below(5) == 0 {
        mutate(chance, &mut words);
    }
    let long = (6_000_000 + step * 1_000).to_string().into_bytes();
    words.into_iter().map(|word| if word == LONG { long.clone() } else { word }).collect()
}

fn mutate(chance: &mut Chance, words: &mut Vec<Vec<u8>>) {
    let at = 1 + chance.below(words.len());
    let word = chance.of(&ANYWHERE).to_vec();
    match chance.below(3) {
        0 => words.insert(at, word),
        1 if at < words.len() => words[at] = word,
        _ if at < words.len() => {
            words.remove(at);
        }
        _ => {}
    }
}
