//! Who is primary of how much (Harmony §7.6).

use alloc::vec::Vec;

use overlay::{KeyRange, NodeId, Point};

/// More sub-ranges than so many for each primary are not left lying about.
const PARTS_PER_NODE_MAX: usize = 4;

/// Equal shares of the ring for everyone able.
///
/// What a primary that is not able leaves behind is shared out at once, without touching the others' sub-ranges: nobody
/// else's clients notice. When all is `calm` the whole range is evened out, if that changes anything worth it. Quiet on
/// its own output.
pub fn even(range: KeyRange, current: &[(Point, NodeId)], able: &[NodeId], calm: bool) -> Option<Vec<(Point, NodeId)>> {
    if able.is_empty() {
        return None;
    }
    let orphaned = current.iter().any(|(_, node)| !able.contains(node));
    if calm {
        let even: Vec<(Point, NodeId)> = shares(range, able);
        return (orphaned || !is_even(current, able)).then_some(even);
    }
    orphaned.then(|| {
        let shared = share_out(range, current, able);
        // Primaries that come and go faster than it ever gets calm must not grind the range to dust.
        if shared.len() > PARTS_PER_NODE_MAX * able.len() { shares(range, able) } else { shared }
    })
}

/// One sub-range each?
fn is_even(current: &[(Point, NodeId)], able: &[NodeId]) -> bool {
    current.len() == able.len() && able.iter().all(|node| current.iter().any(|(_, primary)| primary == node))
}

fn shares(range: KeyRange, able: &[NodeId]) -> Vec<(Point, NodeId)> {
    let count = able.len() as u32;
    able.iter().zip(0..).map(|(node, part)| (range.cut_at(part, count), *node)).collect()
}

fn share_out(range: KeyRange, current: &[(Point, NodeId)], able: &[NodeId]) -> Vec<(Point, NodeId)> {
    let mut parts = Vec::new();
    for (index, (start, node)) in current.iter().enumerate() {
        if able.contains(node) {
            parts.push((*start, *node));
            continue;
        }
        let end = current.get(index + 1).map_or(range.end(), |next| next.0);
        let orphan = KeyRange::new(*start, end);
        let mut heirs = shares(orphan, able);
        // A sub-range of fewer points than heirs: one takes it.
        heirs.dedup_by_key(|heir| heir.0);
        parts.extend(heirs);
    }
    parts
}

#[cfg(test)]
mod tests {
    use overlay::{Incarnation, PeerKey};
    use proptest::prelude::*;

    use super::*;

    fn node(n: u8) -> NodeId {
        NodeId { peer: PeerKey([n; 32]), incarnation: Incarnation(1) }
    }

    proptest! {
        /// PITFALLS 49: a policy is quiet on its own output.
        #[test]
        fn covers_the_range_and_is_quiet_then(
            start: u128,
            current in proptest::collection::vec(0u8..8, 1..6),
            able in proptest::collection::btree_set(0u8..8, 1..6),
            calm: bool,
        ) {
            let range = KeyRange::new(Point(start), Point(start));
            let current: Vec<(Point, NodeId)> = shares(range, &current.iter().map(|n| node(*n)).collect::<Vec<_>>());
            let able: Vec<NodeId> = able.into_iter().map(node).collect();
            if let Some(parts) = even(range, &current, &able, calm) {
                prop_assert_eq!(parts[0].0, range.start());
                let offsets: Vec<u128> = parts.iter().map(|(at, _)| range.start().distance_to(*at)).collect();
                prop_assert!(offsets.windows(2).all(|pair| pair[0] < pair[1]));
                prop_assert!(parts.iter().all(|(_, primary)| able.contains(primary)));
                prop_assert_eq!(even(range, &parts, &able, calm), None);
                let ground = parts.len() == able.len();
                for (at, primary) in current.iter().filter(|(_, primary)| !calm && able.contains(primary)) {
                    prop_assert!(ground || parts.contains(&(*at, *primary)), "{:?} kept its place", primary);
                }
            } else {
                prop_assert!(current.iter().all(|(_, primary)| able.contains(primary)));
            }
        }
    }
}
