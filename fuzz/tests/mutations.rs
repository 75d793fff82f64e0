//! Every decoder against thousands of damaged encodings: no panic, and no memory for an announced length alone.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fuzz::mutate::{Chance, mutated};
use fuzz::{TARGETS, Target};

/// Number of damaged encodings for each decoder; `SCATTER_FUZZ_RUNS` sets another number.
const RUNS: u64 = 20_000;
/// The same for a store, which is opened twice for each.
const STORE_RUNS: u64 = 1_500;
/// The memory that any input may take, in bytes.
const HELD_BYTES: usize = 64 << 10;
/// The memory that each byte of an input may take on top, in bytes. A list gets room for as many elements as there are
/// bytes left, at any announced length, and the largest elements have some 200 bytes.
const HELD_PER_BYTE: usize = 256;

/// The system's allocator, which counts the memory that each thread holds.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static HELD_MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // The memory of a thread that is ending is not counted any more.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = HELD_MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: the system's allocator does all of it; counting touches neither its results nor its arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(place, layout) }
    }
}

/// Returns the most memory that is held at one time during `run`, in bytes, and the result of `run`.
fn held_most(run: impl FnOnce() -> bool) -> (usize, bool) {
    let before = HELD.get();
    HELD_MOST.set(before);
    let accepted = run();
    ((HELD_MOST.get() - before) as usize, accepted)
}

/// Runs one input. A panic prints the input, to run it again.
fn run(target: &Target, bytes: &[u8]) -> bool {
    let (held, accepted) = match catch_unwind(AssertUnwindSafe(|| held_most(|| (target.run)(bytes)))) {
        Ok(ran) => ran,
        Err(panic) => {
            eprintln!("{} with {:?}", target.name, bytes.escape_ascii().to_string());
            resume_unwind(panic);
        }
    };
    let most = HELD_BYTES + HELD_PER_BYTE * bytes.len();
    assert!(held <= most, "{} holds {held} bytes for {:?}", target.name, bytes.escape_ascii().to_string());
    accepted
}

fn torment(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a decoder of this name");
    let corpus = (target.corpus)();
    // One-time allocations are made here.
    for bytes in &corpus {
        assert!((target.run)(bytes), "{name} refuses {:?}", bytes.escape_ascii().to_string());
    }
    for bytes in &corpus {
        run(target, bytes);
        for cut in 0..bytes.len().min(2000) {
            run(target, &bytes[..cut]);
        }
    }
    let runs = std::env::var("SCATTER_FUZZ_RUNS").ok().and_then(|text| text.parse().ok());
    let mut accepted = 0;
    let runs = runs.unwrap_or(if name == "store" { STORE_RUNS } else { RUNS });
    let mut chance = Chance(17);
    for _ in 0..runs {
        accepted += u64::from(run(target, &mutated(&corpus, &mut chance)));
    }
    println!("{name}: {accepted} of {runs} accepted");
    assert!(accepted > 0 && accepted < runs, "{name} is damaged too much, or not at all");
}

macro_rules! decoders {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                torment(stringify!($name));
            }
        )*

        #[test]
        fn none_is_left_out() {
            let tested = [$(stringify!($name)),*];
            assert_eq!(TARGETS.map(|target| target.name), tested);
        }
    };
}

decoders! { frame record meta stream greeting resp journal manifest store peer_state packet settings }
