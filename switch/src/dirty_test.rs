//! Independence of places, and its effect.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const MARK: Mark = Mark { partition: 1, switch: 1 };

/// Returns a region of 2^k slots.
fn of(k: u32) -> Region {
    Region { first: 0, slots: 1 << k }
}

/// Returns random objects (splitmix64): a seed gives the same ones again.
fn objects(mut seed: u64) -> impl Iterator<Item = u32> {
    std::iter::repeat_with(move || {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = seed;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ x >> 31) as u32
    })
}

/// Returns an object's slot in each stage.
fn slots(region: Region, object: u32) -> [usize; STAGES_MAX] {
    let mut places = places(region, object);
    [(); STAGES_MAX].map(|()| places.next().expect("a place in each stage").slot)
}

/// Returns the number of independent bits of an object's places, in these stages of 2^k slots.
fn rank(k: u32, stages: &[usize]) -> usize {
    // Places are linear in the object, but for a constant: so the change by each bit of it determines them.
    let change = |bit: u32| {
        let (one, none) = (slots(of(k), 1 << bit), slots(of(k), 0));
        stages.iter().fold(0u128, |all, stage| all << 32 | (one[*stage] ^ none[*stage]) as u128)
    };
    let mut basis: Vec<u128> = Vec::new();
    for bit in 0..32 {
        let rest = basis.iter().fold(change(bit), |rest, other| rest.min(rest ^ other));
        if rest != 0 {
            basis.push(rest);
            basis.sort_by(|one, other| other.cmp(one));
        }
    }
    basis.len()
}

proptest! {
    /// The ranks rest on this property.
    #[test]
    fn words_are_linear(one in any::<u32>(), other in any::<u32>()) {
        let (a, b, both, none) = (words(one), words(other), words(one ^ other), words(0));
        for stage in 0..STAGES_MAX {
            prop_assert_eq!(a[stage] ^ b[stage], both[stage] ^ none[stage]);
        }
    }

    #[test]
    fn who_meets_in_one_of_many_slots_meets_in_no_other(seed in any::<u64>(), k in 16u32..20) {
        let mut met = [(); STAGES_MAX].map(|()| BTreeMap::new());
        for object in objects(seed).take(1000) {
            let places = slots(of(k), object);
            let mut others = BTreeSet::new();
            for (met, place) in met.iter_mut().zip(places) {
                if let Some(other) = met.insert(place, object).filter(|other| *other != object) {
                    prop_assert!(others.insert(other), "{other} and {object}");
                }
            }
        }
    }
}

#[test]
fn stages_are_as_independent_as_can_be() {
    for k in 0..32 {
        let all = |stages: u32| (stages * k).min(32) as usize;
        for (stages, wanted) in [
            (&[0][..], all(1)),
            (&[1], all(1)),
            (&[2], all(1)),
            (&[0, 1], all(2)),
            (&[0, 2], all(2)),
            (&[1, 2], all(2)),
            (&[0, 1, 2], all(3)),
        ] {
            assert_eq!(rank(k, stages), wanted, "2^{k} slots, stages {stages:?}");
        }
    }
}

#[test]
fn who_meets_in_one_stage_meets_in_others_by_chance() {
    const SLOTS: f64 = 64.0;
    let places: Vec<_> = objects(1).take(3000).map(|object| slots(of(6), object)).collect();
    // Counts pairs of objects by the stages in which they collide: two given stages, and all three.
    let (mut pairs, mut once, mut twice, mut thrice) = (0.0, [0.0; 3], [0.0; 3], 0.0);
    for (number, one) in places.iter().enumerate() {
        for other in &places[..number] {
            let meet = [0, 1, 2].map(|stage| one[stage] == other[stage]);
            pairs += 1.0;
            for stage in 0..3 {
                once[stage] += f64::from(u8::from(meet[stage]));
                twice[stage] += f64::from(u8::from(meet[stage] && meet[(stage + 1) % 3]));
            }
            thrice += f64::from(u8::from(meet == [true; 3]));
        }
    }
    for stage in 0..3 {
        let (one, two) = (once[stage] / pairs * SLOTS, twice[stage] / pairs * SLOTS * SLOTS);
        assert!(
            (0.95..1.05).contains(&one) && (0.8..1.2).contains(&two),
            "stage {stage}: {one} and {two} times chance"
        );
    }
    let three = thrice / pairs * SLOTS * SLOTS * SLOTS;
    println!("of {pairs} pairs {once:?} meet in one stage, {twice:?} in two, {thrice} in three");
    assert!(three < 2.0, "{three} times chance");
}

/// Counts the objects that have room, until one has none.
#[test]
fn independent_stages_hold_more() {
    const ROUNDS: u64 = 200;
    let (mut held, mut would_be) = (Vec::new(), Vec::new());
    for seed in 0..ROUNDS {
        let mut set = DirtySet::new(Shape { stages: 3, slots: 64 });
        let fits = objects(seed).zip(1..).take_while(|(object, number)| set.insert(of(6), MARK, *object, *number, 0));
        held.push(fits.count());
        // If all stages had an object at one place, a slot would take three.
        let mut taken = BTreeMap::new();
        let fits = |object: &u32| {
            let count = taken.entry(slots(of(6), *object)[0]).or_insert(0);
            *count += 1;
            *count <= 3
        };
        would_be.push(objects(seed).take_while(fits).count());
    }
    held.sort();
    would_be.sort();
    let middle = ROUNDS as usize / 2;
    println!(
        "3 stages of 64 slots: room for {} to {}, median {}; with one place for all stages {} to {}, median {}",
        held[0],
        held[held.len() - 1],
        held[middle],
        would_be[0],
        would_be[would_be.len() - 1],
        would_be[middle]
    );
    assert!(held[0] > 2 * would_be[0] && 2 * held[middle] > 3 * would_be[middle]);
}

#[test]
fn hints_tell_those_of_one_slot_apart() {
    for k in [0, 6, 10, 16] {
        for stage in 0..STAGES_MAX {
            let mut hints: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
            for object in objects(2).take(2000 << (k / 2)) {
                let place = places(of(k), object).nth(stage).expect("a place in each stage");
                hints.entry(place.slot).or_default().push(place.hint);
            }
            let (mut pairs, mut same) = (0.0, 0.0);
            for hints in hints.values() {
                assert!(hints.iter().all(|hint| *hint > UNKNOWN));
                for (number, one) in hints.iter().enumerate() {
                    pairs += number as f64;
                    same += hints[..number].iter().filter(|other| *other == one).count() as f64;
                }
            }
            let chance = same / pairs * 254.0;
            assert!(pairs > 10_000.0 && (0.4..1.6).contains(&chance), "2^{k}, stage {stage}: {chance} of {pairs}");
        }
    }
}

#[test]
fn what_was_put_in_by_hand_is_found() {
    let (region, mark) = (Region { first: 0, slots: 8 }, Mark { partition: 1, switch: 1 });
    let mut set = DirtySet::new(Shape { stages: 2, slots: 8 });
    assert!(set.insert(region, mark, 7, 1, 0));
    let was = set.clone();
    let stages: Vec<Box<[Slot]>> = was.stages().to_vec();
    let mut other = DirtySet::new(Shape { stages: 2, slots: 8 });
    assert!(!other.contains(region, mark, 7, 0) && other.stage_mut(2).is_none());
    for (stage, slots) in stages.iter().enumerate() {
        other.stage_mut(stage).unwrap().copy_from_slice(slots);
    }
    assert!(other.contains(region, mark, 7, 0) && !other.contains(region, mark, 7, 1));
    assert!(!other.contains(region, mark, 8, 0));
}
