//! The decoders for cargo-fuzz: all of them, or the one that `SCATTER_FUZZ` names.
//!
//! ```text
//! SCATTER_FUZZ=frame cargo +nightly fuzz run --features libfuzzer decoders
//! ```
//! Where none is named, the first byte chooses.

#![no_main]

use std::sync::LazyLock;

use fuzz::TARGETS;
use libfuzzer_sys::fuzz_target;

static NAMED: LazyLock<Option<usize>> = LazyLock::new(|| {
    let name = std::env::var("SCATTER_FUZZ").ok()?;
    let place = TARGETS.iter().position(|target| target.name == name);
    Some(place.unwrap_or_else(|| panic!("no decoder is called {name}")))
});

fuzz_target!(|bytes: &[u8]| {
    match (*NAMED, bytes.split_first()) {
        (Some(named), _) => _ = (TARGETS[named].run)(bytes),
        (None, Some((which, rest))) => _ = (TARGETS[usize::from(*which) % TARGETS.len()].run)(rest),
        (None, None) => {}
    }
});
