//! The effect of a change: one definition for loads, for the write-behind and for a start alike.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use node::Change;

/// The small entries.
pub(crate) type Meta = BTreeMap<Bytes, Bytes>;

/// The earlier value of a small entry before a change.
pub(crate) type Before = (Bytes, Option<Bytes>);

/// Applies one change to the small entries. The records that it sets (`Some`) and drops (`None`) go to `record`, and
/// the earlier values of the small entries that it changes go to `before`.
///
/// The effect of a promotion depends on the small entries: all changes are applied in order.
pub(crate) fn apply(
    meta: &mut Meta,
    change: &Change,
    mut record: impl FnMut(Bytes, Option<Bytes>),
    mut before: impl FnMut(Before),
) {
    match change {
        Change::PutMeta(key, value) => before((key.clone(), meta.insert(key.clone(), value.clone()))),
        Change::DropMeta(from, to) => {
            let Some(range) = range(from, to) else { return };
            let dropped = meta.range::<Bytes, _>(range).map(|(key, _)| key.clone()).collect::<Vec<_>>();
            for key in dropped {
                let value = meta.remove(&key);
                before((key, value));
            }
        }
        Change::Promote { from, to, strip } => {
            let Some(range) = range(from, to) else { return };
            for (key, value) in meta.range_mut::<Bytes, _>(range) {
                if !value.is_empty() && key.len() >= *strip {
                    before((key.clone(), Some(value.clone())));
                    record(key.slice(*strip..), Some(std::mem::take(value)));
                }
            }
        }
        Change::PutRecord(key, value) => record(key.clone(), Some(value.clone())),
        Change::DropRecord(key) => record(key.clone(), None),
    }
}

/// Takes back changes of small entries, given their earlier values, the last one first.
pub(crate) fn undo<'a>(meta: &mut Meta, changed: impl Iterator<Item = &'a Before>) {
    for (key, value) in changed {
        match value {
            Some(value) => drop(meta.insert(key.clone(), value.clone())),
            None => drop(meta.remove(key)),
        }
    }
}

/// Returns the bounds; `None` for an empty or inverted range: it holds nothing, and a map's `range` panics on the
/// latter.
fn range<'a>(from: &'a Bytes, to: &'a Bytes) -> Option<(Bound<&'a Bytes>, Bound<&'a Bytes>)> {
    (from < to).then_some((Bound::Included(from), Bound::Excluded(to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(entries: &[(&'static str, &'static str)]) -> Meta {
        entries.iter().map(|(key, value)| (Bytes::from(*key), Bytes::from(*value))).collect()
    }

    #[test]
    fn a_promotion_moves_values_in_order_and_leaves_empty_entries() {
        let before = [("a1k", "old"), ("a2k", "new"), ("a3", "bare"), ("a", "short"), ("a4j", ""), ("b1x", "out")];
        let mut entries = meta(&before);
        let (mut records, mut changed) = (Vec::new(), Vec::new());
        let change = Change::Promote { from: "a".into(), to: "b".into(), strip: 2 };
        apply(&mut entries, &change, |key, value| records.push((key, value)), |was| changed.push(was));
        let set = |key: &'static str, value: &'static str| (Bytes::from(key), Some(Bytes::from(value)));
        assert_eq!(records, [set("k", "old"), set("k", "new"), set("", "bare")]);
        let after = [("a1k", ""), ("a2k", ""), ("a3", ""), ("a", "short"), ("a4j", ""), ("b1x", "out")];
        assert_eq!(entries, meta(&after));
        undo(&mut entries, changed.iter().rev());
        assert_eq!(entries, meta(&before));
    }

    #[test]
    fn what_is_taken_back_was_never_there() {
        let before = meta(&[("a", "1"), ("b", "2"), ("c", "")]);
        let (mut entries, mut changed) = (before.clone(), Vec::new());
        let put = |key: &'static str| Change::PutMeta(key.into(), "new".into());
        let drop = |from: &'static str, to: &'static str| Change::DropMeta(from.into(), to.into());
        let promote = Change::Promote { from: "a".into(), to: "z".into(), strip: 1 };
        let changes = [put("a"), put("d"), drop("b", "e"), put("b"), promote, put("d"), drop("a", "b")];
        for change in &changes {
            apply(&mut entries, change, |_, _| (), |was| changed.push(was));
        }
        assert_ne!(entries, before);
        undo(&mut entries, changed.iter().rev());
        assert_eq!(entries, before);
    }

    #[test]
    fn an_upside_down_range_holds_nothing() {
        let mut entries = meta(&[("a", "1"), ("b", "2")]);
        for (from, to) in [("b", "a"), ("a", "a")] {
            apply(&mut entries, &Change::DropMeta(from.into(), to.into()), |_, _| (), |_| ());
            apply(&mut entries, &Change::Promote { from: from.into(), to: to.into(), strip: 0 }, |_, _| (), |_| ());
        }
        assert_eq!(entries, meta(&[("a", "1"), ("b", "2")]));
    }
}
