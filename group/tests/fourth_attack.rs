//! What a fourth attack on the protocol found, on epochs and members: each test failed once.

mod world;

use world::chance;

/// Members come, go, crash, lose their stores, end epochs and are cut off, by chance.
#[test]
fn whatever_happens_to_members_all_holds() {
    let of = |name: &str, default| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (first, count, steps) = (of("WORLD_SEED", 0), of("WORLD_SEEDS", 100), of("WORLD_STEPS", 800));
    let (mut epochs, mut answered, mut purged, mut wrongs) = (0, 0, 0, 0);
    for seed in first..first + count {
        let came = chance::run(seed, steps, count == 1);
        epochs += came.epochs;
        answered += came.answered;
        purged += came.purged;
        if let Some(wrong) = came.wrong {
            wrongs += 1;
            println!("seed {seed}: {}", &wrong[..wrong.len().min(1500)]);
        }
    }
    println!("{count} runs: {epochs} epochs, {answered} answers, {purged} tombstones let go of");
    assert_eq!(wrongs, 0);
}
