//! Real nodes hear lies: what their peers say, with fields changed, said again later, or in another's name.
//!
//! Whatever a peer says, no node panics, none takes memory without bound, and what an honest member knows to be chosen
//! stays as it is. Some fixed seeds run with all tests. `SCATTER_LIES=N` runs N new ones; `SCATTER_LIES_SEED=S` runs one
//! again.

#[path = "lies/allocations.rs"]
mod allocations;
#[path = "lies/change.rs"]
mod change;
#[path = "lies/made.rs"]
mod made;
#[path = "lies/network.rs"]
mod network;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{SystemTime, UNIX_EPOCH};

use network::{Network, Theme};

/// Seeds that run with all tests.
const SEEDS: u64 = 24;
/// Lies in each run.
const LIES: usize = 1_500;
/// What the nodes of one run may take, in bytes.
const HELD_MAX: isize = 256 << 20;

fn play(seed: u64) -> usize {
    let mut network = Network::new(seed);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let before = allocations::held();
        network.settle_in();
        while network.lies < LIES && network.now_ms() < 400_000 {
            network.step();
            let held = allocations::held() - before;
            assert!(held < HELD_MAX, "{held} bytes are held");
        }
    }));
    if let Err(panic) = result {
        eprintln!("SCATTER_LIES_SEED={seed}, {:?}, lie {}: {}", network.theme, network.lies, network.last_lie());
        resume_unwind(panic);
    }
    let (answered, [dropped, contradictions, halted]) = (network.answered, network.noticed());
    println!(
        "{seed} {:?}: {} lies, {answered} answers, {dropped} dropped, {contradictions} contradictions, {halted} halted",
        network.theme, network.lies
    );
    network.lies
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn no_lie_stops_a_node() {
    if let Some(seed) = number("SCATTER_LIES_SEED") {
        println!("{} lies", play(seed));
        return;
    }
    let (first, count) = match number("SCATTER_LIES") {
        Some(count) => {
            (SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_micros() as u64), count)
        }
        None => (0, SEEDS),
    };
    let mut lies = 0;
    for seed in first..first + count {
        lies += play(seed);
    }
    println!("{lies} lies in {count} runs from seed {first} on");
    assert!(lies > count as usize * LIES / 2, "hardly anything was said: {lies}");
}

/// Every theme is played by the fixed seeds.
#[test]
fn every_theme_is_played() {
    for theme in Theme::ALL {
        assert!((0..SEEDS).any(|seed| Theme::of(seed) == theme), "{theme:?}");
    }
}
