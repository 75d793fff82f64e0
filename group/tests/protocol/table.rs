//! The table of chosen records, where the store holds more of them than memory.

use group::data::table::{Lookup, Table};
use group::outbox::{GroupOutput, Outbox};

use crate::bench::{ballot, key, node, write};

/// Takes the loads that the store is asked for; each tells whether an operation waits.
fn loads(out: &mut Outbox) -> Vec<bool> {
    std::iter::from_fn(|| out.poll_ready())
        .filter_map(|output| match output {
            GroupOutput::Load { urgent, .. } => Some(urgent),
            _ => None,
        })
        .collect()
}

#[test]
fn an_operation_does_not_stand_behind_what_is_copied() {
    let (mut table, mut out) = (Table::new(1 << 20, false, false), Outbox::new(node(1), true));
    for urgent in [false, false, true, true, false] {
        assert_eq!(table.get(&key("k"), urgent, &mut out), Lookup::Loading);
    }
    assert_eq!(loads(&mut out), [false, true]);
    table.on_loaded(&key("k"), None);
    assert_eq!(table.get(&key("k"), true, &mut out), Lookup::Known(None));
}

/// The answer to the first question may come long after that to the second.
#[test]
fn a_late_answer_of_the_store_brings_nothing_old_back() {
    let (mut table, mut out) = (Table::new(0, false, false), Outbox::new(node(1), true));
    let _ = (table.get(&key("k"), false, &mut out), table.get(&key("k"), true, &mut out));
    let old = write(ballot(1, 1), 1, "k", "old").record;
    table.on_loaded(&key("k"), Some(old.clone()));
    let new = write(ballot(1, 1), 2, "k", "new").record;
    table.put_stored(&key("k"), new.clone());
    table.evict();
    table.on_loaded(&key("k"), Some(old));
    assert_eq!(table.get(&key("k"), true, &mut out), Lookup::Known(Some(new)));
    // No load is in progress any more: the record may go, and comes from the store again.
    table.evict();
    table.evict();
    assert_eq!(table.get(&key("k"), true, &mut out), Lookup::Loading);
}
