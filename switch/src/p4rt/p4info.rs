//! Description of the P4 program for controllers: `p4/harmonia.p4info.txtpb`, and its ids as constants.

use std::sync::LazyLock;

use prost::Message;

use super::proto::p4::config::v1::P4Info;

/// Ids of tables.
pub mod table {
    /// Partitions without their replicas.
    pub const PARTITIONS: u32 = 0x0200_0001;
    /// Replicas that may answer reads of clean objects.
    pub const REPLICAS: u32 = 0x0200_0002;
    /// Addresses of replicas.
    pub const PORTS: u32 = 0x0200_0003;
    /// Ordinary forwarding of IPv4.
    pub const IPV4_LPM: u32 = 0x0200_0004;
    /// Ordinary forwarding of IPv6.
    pub const IPV6_LPM: u32 = 0x0200_0005;
}

/// Ids of actions. Their parameters are numbered from 1.
pub mod action {
    /// Drops the packet.
    pub const DROP: u32 = 0x0100_0001;
    /// Parameters: index, term, switch_id, active, primary, first, slots
    pub const SET_PARTITION: u32 = 0x0100_0002;
    /// Parameter: replica
    pub const TO_REPLICA: u32 = 0x0100_0003;
    /// Parameters: address, port
    pub const SET_PORT: u32 = 0x0100_0004;
    /// Parameters: port, source, destination
    pub const TO_NEXT_HOP: u32 = 0x0100_0005;
    /// Does nothing. A compiler assigns this number.
    pub const NO_ACTION: u32 = 21_257_015;
}

/// Id of the selector among replicas.
pub const REPLICA_SELECTOR: u32 = 0x1100_0001;

/// Id of the counters of packets: one for each [`Counted`](super::target::Counted).
pub const VERDICTS: u32 = 0x1200_0001;

/// Ids of registers.
pub mod register {
    /// State of each partition: partition, switch, sequence, committed.
    pub const PARTITION_STATE: u32 = 0x1600_0001;
    /// Stages of the dirty set. Fields of each slot: partition, switch, object, sequence.
    pub const STAGES: [u32; 3] = [0x1600_0002, 0x1600_0003, 0x1600_0004];
    /// Width of a partition's state, in bits.
    pub const PARTITION_STATE_BITS: u32 = 192;
    /// Width of a slot, in bits.
    pub const SLOT_BITS: u32 = 160;
}

/// Returns the program's description.
pub fn p4info() -> &'static P4Info {
    static P4INFO: LazyLock<P4Info> = LazyLock::new(|| {
        let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/harmonia.p4info.bin"));
        P4Info::decode(&bytes[..]).expect("what this crate's build has encoded is decoded")
    });
    &P4INFO
}

/// Checks that another description names the same entities as this program's, so that they have the same meaning.
///
/// Texts, annotations and sizes may differ: compilers word and place them differently, and a switch reports for each entity
/// whether there is room for it.
///
/// # Errors
/// The first part that differs, in words.
pub fn is_ours(other: &P4Info) -> Result<(), String> {
    let (ours, other) = (bare(p4info()), bare(other));
    let differ = |part: &str| Err(format!("{part} are not those of {}", PROGRAM));
    match () {
        () if ours.tables != other.tables => differ("tables"),
        () if ours.actions != other.actions => differ("actions"),
        () if ours.action_profiles != other.action_profiles => differ("action profiles"),
        () if ours.counters != other.counters => differ("counters"),
        () if ours.registers != other.registers => differ("registers"),
        () if ours != other => differ("other parts"),
        () => Ok(()),
    }
}

const PROGRAM: &str = "harmonia.p4";

/// Returns a description without the parts that may differ, in one order.
fn bare(p4info: &P4Info) -> P4Info {
    let mut bare = P4Info { pkg_info: None, type_info: None, ..p4info.clone() };
    let preambles = bare
        .tables
        .iter_mut()
        .map(|table| &mut table.preamble)
        .chain(bare.actions.iter_mut().map(|action| &mut action.preamble))
        .chain(bare.action_profiles.iter_mut().map(|profile| &mut profile.preamble))
        .chain(bare.counters.iter_mut().map(|counter| &mut counter.preamble))
        .chain(bare.registers.iter_mut().map(|register| &mut register.preamble));
    for preamble in preambles.flatten() {
        preamble.annotations.clear();
        preamble.annotation_locations.clear();
        preamble.structured_annotations.clear();
        preamble.doc = None;
    }
    for table in &mut bare.tables {
        table.size = 0;
        // Older compilers leave it out.
        table.initial_default_action = None;
        table.action_refs.sort_by_key(|action| action.id);
        for action in &mut table.action_refs {
            action.annotations.clear();
            action.annotation_locations.clear();
        }
    }
    for profile in &mut bare.action_profiles {
        (profile.size, profile.max_group_size, profile.selector_size_semantics) = (0, 0, None);
    }
    bare.counters.iter_mut().for_each(|counter| counter.size = 0);
    bare.registers.iter_mut().for_each(|register| register.size = 0);
    bare.tables.sort_by_key(|table| table.preamble.as_ref().map(|preamble| preamble.id));
    bare.actions.sort_by_key(|action| action.preamble.as_ref().map(|preamble| preamble.id));
    bare.registers.sort_by_key(|register| register.preamble.as_ref().map(|preamble| preamble.id));
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_is_told_from_ours() {
        let mut other = p4info().clone();
        other.pkg_info = None;
        other.tables[0].size = 7;
        other.tables.reverse();
        assert_eq!(is_ours(&other), Ok(()));
        other.registers[1].type_spec = None;
        assert_eq!(is_ours(&other), Err("registers are not those of harmonia.p4".to_owned()));
        other.tables[0].match_fields[0].bitwidth = 1;
        assert_eq!(is_ours(&other), Err("tables are not those of harmonia.p4".to_owned()));
        assert!(is_ours(&P4Info::default()).is_err());
    }
}
