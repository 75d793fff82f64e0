//! The list against a plain vector, with a fault between any two steps, and with several clients that append at once.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::ram::{Chance, Ram, run, run_all};

const KEY: &str = "list";

fn list(store: &Ram, mode: AppendMode, defect: Defect) -> List<'_, Ram> {
    List { defect, ..List::new(store, KEY, mode) }
}

/// Returns an item that names itself: few are short, so that a few dozen fill several blocks.
fn item(number: usize, chance: &mut Chance) -> Vec<u8> {
    let length = match chance.below(8) {
        0 => 1,
        1..=4 => 100 + chance.below(300),
        5 | 6 => 1000 + chance.below(3000),
        _ => ITEM_BYTES_MAX,
    };
    let mut item = format!("{number}:").into_bytes();
    item.resize(item.len().max(length), b'x');
    item
}

/// Returns all items of the list, as a new client reads them; checks its blocks.
fn all(store: &Ram) -> Vec<Vec<u8>> {
    let tail = run(list(store, AppendMode::Atomic, Defect::None).tail(usize::MAX)).unwrap();
    assert_eq!(tail.count, tail.items.len() as u64, "the head counts all");
    let values = store.values();
    let Some(head) = values.get(KEY) else {
        assert!(values.is_empty(), "no block without a head");
        return tail.items;
    };
    let last = Header::of(head).unwrap().last;
    for (key, value) in &values {
        let index: u32 = key.strip_prefix("list/").map_or(0, |index| index.parse().unwrap());
        assert!(index <= last, "block {index} is an orphan: the head names {last}");
        assert!(value.len() <= BLOCK_BYTES);
        assert!(index == last || value.len() == BLOCK_BYTES, "block {index} of {last} is not sealed");
    }
    let missing = (0..last).find(|index| *index > 0 && !values.contains_key(&format!("list/{index}")));
    assert_eq!(missing, None, "a block is not there, and not the last");
    // A read piece by piece gives the same.
    let mut place = Place::default();
    assert_eq!(run(list(store, AppendMode::Atomic, Defect::None).since(&mut place)).unwrap(), tail.items);
    tail.items
}

/// The last few items are the end of all items.
fn assert_tails(store: &Ram, all: &[Vec<u8>]) {
    for wanted in [0, 1, 3, 40, 1000] {
        let tail = run(list(store, AppendMode::Atomic, Defect::None).tail(wanted)).unwrap();
        assert!(tail.items.len() >= wanted.min(all.len()));
        assert_eq!(tail.items, all[all.len() - tail.items.len()..]);
    }
}

/// The outcome of an append.
#[derive(Clone, Debug)]
struct Appended {
    item: Vec<u8>,
    began: u64,
    ended: u64,
    /// Whether it was done; `None` where that is not known.
    done: Option<bool>,
}

/// Lets several clients append at once, by any of the two ways, while one reads on. Returns the first violation.
fn play(seed: u64, faults: usize, clients: usize, each: usize, defect: Defect) -> Result<(), String> {
    let store = Ram::new(seed, faults);
    let mut chance = Chance(seed ^ 0x5ca7);
    let history = RefCell::new(Vec::<Appended>::new());
    let (clock, read) = (Cell::new(0), RefCell::new(Vec::new()));
    let tick = || {
        clock.set(clock.get() + 1);
        clock.get()
    };
    let place = RefCell::new(Place::default());
    let mut all_at_once: Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    for client in 0..clients {
        let items: Vec<_> = (0..each).map(|index| item(client * each + index, &mut chance)).collect();
        let mode = match chance.below(3) {
            0 => AppendMode::ReadModifyWrite,
            _ if defect == Defect::Blind => AppendMode::ReadModifyWrite,
            _ => AppendMode::Atomic,
        };
        let (store, history, tick) = (&store, &history, &tick);
        all_at_once.push(Box::pin(async move {
            let mut tail = None;
            for item in items {
                let began = tick();
                let done = match list(store, mode, defect).append(&item, &mut tail).await {
                    Ok(()) => Some(true),
                    Err(Error::Unknown(_)) => None,
                    Err(_) => Some(false),
                };
                history.borrow_mut().push(Appended { item, began, ended: tick(), done });
            }
        }));
    }
    all_at_once.push(Box::pin(async {
        for _ in 0..each {
            let mut at = *place.borrow();
            // A reader reads again the items that it has read before it fails.
            if let Ok(more) = list(&store, AppendMode::Atomic, Defect::None).since(&mut at).await {
                read.borrow_mut().extend(more);
                *place.borrow_mut() = at;
            }
        }
    }));
    run_all(all_at_once, &mut chance);
    store.heal();
    let mut at = *place.borrow();
    read.borrow_mut().extend(run(list(&store, AppendMode::Atomic, Defect::None).since(&mut at)).unwrap());
    let all = all(&store);
    assert_tails(&store, &all);
    if *read.borrow() != all {
        return Err("who read on has seen something else".into());
    }
    compare(&all, history.into_inner())
}

/// Compares the items of a list with the appends: each is there once, if it was done, and in the order of time.
fn compare(all: &[Vec<u8>], history: Vec<Appended>) -> Result<(), String> {
    let positions: BTreeMap<&Vec<u8>, usize> = all.iter().enumerate().map(|(at, item)| (item, at)).collect();
    if positions.len() != all.len() {
        return Err("something is there twice".into());
    }
    let mut appended = Vec::new();
    for Appended { item, began, ended, done } in history {
        let position = positions.get(&item);
        if done.is_some_and(|done| done != position.is_some()) {
            return Err(format!("done: {done:?}, and it is not so"));
        }
        appended.extend(position.map(|position| (*position, began, ended, done.is_some())));
    }
    // An item that was acknowledged comes before each item that was begun after that.
    appended.sort_unstable();
    let mut began_last = 0;
    for (_, began, ended, known) in appended {
        if known && ended < began_last {
            return Err("the order is not that of time".into());
        }
        began_last = began_last.max(began);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// One append after the other, each may fail at any step: the list has the items of a vector, but for unknown
    /// outcomes.
    #[test]
    fn a_list_is_a_vector(seed: u64, count in 1usize..60, faults in prop_oneof![Just(0usize), 2usize..30], read_modify_write: bool) {
        let mode = if read_modify_write { AppendMode::ReadModifyWrite } else { AppendMode::Atomic };
        let store = Ram::new(seed, faults);
        let (mut chance, mut tail) = (Chance(seed), None);
        let (mut vector, mut unknown) = (Vec::new(), BTreeSet::new());
        for number in 0..count {
            let item = item(number, &mut chance);
            match run(list(&store, mode, Defect::None).append(&item, &mut tail)) {
                Ok(()) => vector.push(item),
                Err(Error::Unknown(_)) => { unknown.insert(item); }
                Err(error) => prop_assert!(matches!(error, Error::TryAgain(_)), "{}", error),
            }
            if chance.below(4) == 0 {
                tail = None; // Another client goes on.
            }
        }
        store.heal();
        let mut all = all(&store);
        assert_tails(&store, &all);
        all.retain(|item| !unknown.remove(item));
        prop_assert_eq!(all, vector);
    }

    #[test]
    fn many_append_at_once(seed: u64, faults in prop_oneof![Just(0usize), 3usize..40], clients in 1usize..10) {
        prop_assert_eq!(play(seed, faults, clients, 12, Defect::None), Ok(()));
    }
}

/// The tests find a list that is wrong.
#[test]
fn defects_are_seen() {
    for defect in [Defect::NoSeal, Defect::Blind, Defect::NotNamed] {
        // A list that is wrong may stand on its head, too.
        let seen = (0..300).any(|seed| {
            let played = std::panic::catch_unwind(|| play(seed, 20, 4, 12, defect));
            played.is_err() || played.is_ok_and(|played| played.is_err())
        });
        assert!(seen, "{defect:?} goes unseen");
    }
}

/// Appending takes one operation of the store where the tail is known and there is room, reading it two, and to see that
/// nothing is new one.
#[test]
fn few_operations_are_needed() {
    let store = Ram::new(1, 0);
    let list = list(&store, AppendMode::Atomic, Defect::None);
    let mut tail = None;
    for _ in 0..100 {
        run(list.append(&[b'x'; 200], &mut tail)).unwrap();
    }
    let counted = |of: &mut dyn FnMut()| {
        let before = store.operations();
        of();
        store.operations() - before
    };
    assert_eq!(counted(&mut || run(list.append(b"one more", &mut tail)).unwrap()), 1);
    let mut place = Place::default();
    assert_eq!(counted(&mut || place = run(list.tail(5)).unwrap().place), 2);
    assert_eq!(counted(&mut || assert!(run(list.since(&mut place)).unwrap().is_empty())), 1);
}

/// A client that has read to the end of a full block, the last one, asks for no more than one that has not.
#[test]
fn the_end_of_a_full_block_is_watched_at_no_cost() {
    let store = Ram::new(1, 0);
    let list = list(&store, AppendMode::Atomic, Defect::None);
    run(list.append(&[b'x'; ITEM_BYTES_MAX], &mut None)).unwrap();
    let mut place = run(list.tail(1)).unwrap().place;
    assert_eq!(place, Place { block: 0, bytes: BLOCK_BYTES });
    let before = store.operations();
    assert!(run(list.since(&mut place)).unwrap().is_empty());
    assert_eq!(store.operations() - before, 1);
    run(list.append(b"y", &mut None)).unwrap();
    assert_eq!(run(list.since(&mut place)).unwrap(), [b"y"]);
    assert_eq!(place.block, 1);
}

/// Items that were read before a fault are not lost.
#[test]
fn a_reader_that_fails_stays_where_it_was() {
    let store = Ram::new(1, 0);
    let list = list(&store, AppendMode::Atomic, Defect::None);
    for number in 0..9 {
        run(list.append(format!("{number}{}", "x".repeat(3000)).as_bytes(), &mut None)).unwrap();
    }
    run(store.append("list/4", usize::MAX, &[b'x'; BLOCK_BYTES])).unwrap();
    let mut place = Place::default();
    assert!(matches!(run(list.since(&mut place)), Err(Error::Foreign(_))));
    assert_eq!(place, Place::default());
    // Another client has begun the list anew.
    let mut place = Place { block: 0, bytes: BLOCK_BYTES - 1 };
    let other = List::new(&store, "other", AppendMode::Atomic);
    run(other.append(b"x", &mut None)).unwrap();
    assert!(matches!(run(other.since(&mut place)), Err(Error::Foreign(_))));
}

/// An item stands by itself, whatever bytes another client left at the end of a block.
#[test]
fn an_item_begins_a_line() {
    let store = Ram::new(1, 0);
    let list = list(&store, AppendMode::Atomic, Defect::None);
    run(list.append(b"one", &mut None)).unwrap();
    run(store.append(KEY, BLOCK_BYTES, b"no line end")).unwrap();
    run(list.append(b"two", &mut None)).unwrap();
    assert_eq!(run(list.tail(9)).unwrap().items, [&b"one"[..], b"no line end", b"two"]);
}

/// A head that was removed is no head because an append writes there.
#[test]
fn nothing_is_posted_where_there_is_no_head() {
    let store = Ram::new(1, 0);
    assert!(matches!(
        run(list(&store, AppendMode::Atomic, Defect::None).append(b"x", &mut Some(0))),
        Err(Error::Foreign(_))
    ));
}

proptest! {
    /// No client that reads or appends trusts a head.
    #[test]
    fn any_head_is_read_or_refused(
        head in prop_oneof![
            "chirp1 [0-9]{1,12} [0-9]{1,14}\n".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 0..40),
            Just(b"chirp1 99999999 9999999999\n".to_vec()),
            Just(b"chirp1 99999998 9999999999\n".to_vec()),
            Just(b"chirp1 00000000 9999999999\n".to_vec()),
        ],
        full: bool,
    ) {
        let store = Ram::new(1, 0);
        let is_head = Header::of(&head).is_some();
        if is_head {
            prop_assert_eq!(Header::of(&head).unwrap().line().into_bytes(), head[..HEADER_BYTES].to_vec());
        }
        let mut value = head;
        if full && value.len() < BLOCK_BYTES {
            value.push(b'x');
            value.resize(BLOCK_BYTES, b'\n');
        }
        run(store.create(KEY, &value)).unwrap();
        let list = list(&store, AppendMode::Atomic, Defect::None);
        let tail = run(list.tail(5));
        prop_assert!(is_head || value.is_empty() || tail.is_err());
        let _ = run(list.since(&mut Place::default()));
        if let Err(error) = run(list.append(b"x", &mut None)) {
            prop_assert!(matches!(error, Error::Foreign(_)));
        }
    }
}

/// A head that names a hundred million blocks costs no client any time.
#[test]
fn a_head_that_lies_is_found_out() {
    let store = Ram::new(1, 0);
    run(store.create(KEY, b"chirp1 99999999 0000000007\nitem\n")).unwrap();
    let list = list(&store, AppendMode::Atomic, Defect::None);
    let before = store.operations();
    assert!(matches!(run(list.tail(10)), Err(Error::Foreign(_))));
    assert_eq!(run(list.since(&mut Place::default())).unwrap(), [b"item"]);
    assert!(store.operations() - before < 100);
}

#[test]
fn what_somebody_else_wrote_is_no_list() {
    for foreign in ["something else", "chirp1 x", "", "chirp1 00000000 0000000000", "chirp1 +0000000 0000000000\n"] {
        let store = Ram::new(1, 0);
        run(store.create(KEY, foreign.as_bytes())).unwrap();
        let list = list(&store, AppendMode::Atomic, Defect::None);
        assert!(matches!(run(list.append(b"x", &mut None)), Err(Error::Foreign(_))), "{foreign:?}");
        assert!(foreign.is_empty() || matches!(run(list.tail(1)), Err(Error::Foreign(_))));
        assert_eq!(store.values()[KEY], foreign.as_bytes(), "and is left alone");
    }
}
