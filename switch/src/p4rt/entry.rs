//! Entries of the program's tables: their form on the wire, and their meaning here.
//!
//! | table | key | action |
//! | --- | --- | --- |
//! | `partitions` | a partition's number | `set_partition`: all of a [`Partition`] but its replicas |
//! | `replicas` | a partition's number | a one-shot set of `to_replica`: [`Partition::replicas`] |
//! | `ports` | a replica's number | `set_port`: the replica's address |
//! | `ipv4_lpm`, `ipv6_lpm` | a prefix | `to_next_hop` or `drop` |

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::sync::LazyLock;

use tonic::Code;

use super::p4info::{action, p4info, table};
use super::problem::Problem;
use super::proto::p4::v1::field_match::{Exact, FieldMatchType, Lpm};
use super::proto::p4::v1::{self, table_action::Type};
use super::value;
use crate::dirty::Region;
use crate::tables::{Partition, Replica};

/// Upper limit of the sum of an entry's weights, as in the P4 program.
pub(crate) const WEIGHTS_MAX: u32 = 255;

/// Key of an entry, with its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// Key in `partitions`.
    Partition(u32),
    /// Key in `replicas`: the partition of the replicas.
    Replicas(u32),
    /// Key in `ports`.
    Port(Replica),
    /// Key in `ipv4_lpm`: the prefix, and the number of its bits that count.
    Ipv4(Ipv4Addr, u8),
    /// Key in `ipv6_lpm`.
    Ipv6(Ipv6Addr, u8),
}

/// Partition without its replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// See [`Partition::index`].
    pub index: u32,
    /// See [`Partition::region`].
    pub region: Region,
    /// See [`Partition::term`].
    pub term: u64,
    /// See [`Partition::switch`].
    pub switch: u32,
    /// See [`Partition::active`].
    pub active: bool,
    /// See [`Partition::primary`].
    pub primary: Replica,
}

/// Next hop of a packet that is not of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Port of the switch.
    pub port: u16,
    /// Link-layer address of the sender.
    pub source: [u8; 6],
    /// Link-layer address of the receiver.
    pub destination: [u8; 6],
}

/// Action of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Action in `partitions`.
    Partition(Setting),
    /// Actions in `replicas`.
    Replicas(Vec<(Replica, u8)>),
    /// Action in `ports`.
    Port(SocketAddrV4),
    /// Action in `ipv4_lpm` and `ipv6_lpm`.
    Forward(NextHop),
    /// Drops the packet; an action in the same tables.
    Drop,
}

impl Setting {
    /// Returns the fields of a partition that are in `partitions`.
    pub fn of(partition: &Partition) -> Setting {
        let Partition { index, region, term, switch, active, primary, .. } = *partition;
        Setting { index, region, term, switch, active, primary }
    }

    /// Returns the whole partition.
    pub fn with(self, replicas: Vec<(Replica, u8)>) -> Partition {
        let Setting { index, region, term, switch, active, primary } = self;
        Partition { index, region, term, switch, active, primary, replicas }
    }
}

impl Key {
    /// Returns the id of the key's table.
    pub fn table(self) -> u32 {
        match self {
            Key::Partition(_) => table::PARTITIONS,
            Key::Replicas(_) => table::REPLICAS,
            Key::Port(_) => table::PORTS,
            Key::Ipv4(..) => table::IPV4_LPM,
            Key::Ipv6(..) => table::IPV6_LPM,
        }
    }

    /// Decodes the key of an entry. Each of this program's tables has one field in its key.
    ///
    /// # Errors
    /// If no such table exists, or the key does not fit it.
    pub fn of(entry: &v1::TableEntry) -> Result<Key, Problem> {
        if entry.priority != 0 {
            return Err(Problem::invalid("this device has no tables with priorities"));
        }
        let field = match &entry.r#match[..] {
            [] => None,
            [field] if field.field_id == 1 => {
                Some(field.field_match_type.as_ref().ok_or_else(|| Problem::invalid("a field match has no value"))?)
            }
            [field] => return Err(Problem::invalid(format!("there is no field {}", field.field_id))),
            _ => return Err(Problem::invalid("a table's key has one field")),
        };
        match entry.table_id {
            table::PARTITIONS => Ok(Key::Partition(exact(field)?)),
            table::REPLICAS => Ok(Key::Replicas(exact(field)?)),
            table::PORTS => Ok(Key::Port(exact(field)?)),
            table::IPV4_LPM => {
                let (prefix, length) = prefix(field, 32)?;
                Ok(Key::Ipv4((prefix as u32).into(), length))
            }
            table::IPV6_LPM => {
                let (prefix, length) = prefix(field, 128)?;
                Ok(Key::Ipv6(prefix.into(), length))
            }
            id => Err(Problem::invalid(format!("there is no table {id:#010x}"))),
        }
    }

    /// Returns the key in its form for the wire. A prefix of no bits is left out.
    fn matches(self) -> Vec<v1::FieldMatch> {
        let exact = |number: u32| Some(FieldMatchType::Exact(Exact { value: value::encode(number.into()) }));
        let lpm = |prefix: u128, length: u8| {
            (length > 0).then(|| FieldMatchType::Lpm(Lpm { value: value::encode(prefix), prefix_len: length.into() }))
        };
        let field = match self {
            Key::Partition(number) | Key::Replicas(number) | Key::Port(number) => exact(number),
            Key::Ipv4(prefix, length) => lpm(prefix.to_bits().into(), length),
            Key::Ipv6(prefix, length) => lpm(prefix.to_bits(), length),
        };
        field.into_iter().map(|field| v1::FieldMatch { field_id: 1, field_match_type: Some(field) }).collect()
    }

    /// Returns an entry with this key, and without an action.
    pub fn entry(self) -> v1::TableEntry {
        v1::TableEntry { table_id: self.table(), r#match: self.matches(), ..v1::TableEntry::default() }
    }
}

fn exact(field: Option<&FieldMatchType>) -> Result<u32, Problem> {
    match field {
        Some(FieldMatchType::Exact(Exact { value })) => Ok(value::decode(value, 32)? as u32),
        Some(_) => Err(Problem::invalid("this field is matched exactly")),
        None => Err(Problem::invalid("a field that is matched exactly cannot be left out")),
    }
}

fn prefix(field: Option<&FieldMatchType>, bits: u32) -> Result<(u128, u8), Problem> {
    let Lpm { value, prefix_len } = match field {
        None => return Ok((0, 0)),
        Some(FieldMatchType::Lpm(lpm)) => lpm,
        Some(_) => return Err(Problem::invalid("this field is matched by the longest prefix")),
    };
    let prefix = value::decode(value, bits)?;
    if !(1..=bits as i32).contains(prefix_len) {
        return Err(Problem::invalid(format!("a prefix of {prefix_len} bits")));
    }
    // The remaining bits are at most 127.
    let behind = bits - prefix_len.unsigned_abs();
    if prefix & ((1 << behind) - 1) != 0 {
        return Err(Problem::invalid("bits after the prefix are not zero"));
    }
    Ok((prefix, prefix_len.unsigned_abs() as u8))
}

/// Returns the widths of an action's parameters in bits; parameters are numbered from 1.
fn widths(action: u32) -> &'static [u32] {
    static WIDTHS: LazyLock<BTreeMap<u32, Vec<u32>>> = LazyLock::new(|| {
        let id =
            |action: &super::proto::p4::config::v1::Action| action.preamble.as_ref().map_or(0, |preamble| preamble.id);
        let widths = |action: &super::proto::p4::config::v1::Action| {
            action.params.iter().map(|parameter| parameter.bitwidth.unsigned_abs()).collect()
        };
        p4info().actions.iter().map(|action| (id(action), widths(action))).collect()
    });
    WIDTHS.get(&action).map_or(&[], |widths| widths)
}

/// Returns an action's arguments, in the order of its parameters.
fn arguments<const N: usize>(call: &v1::Action) -> Result<[u128; N], Problem> {
    let mut arguments = [None; N];
    for v1::action::Param { param_id, value } in &call.params {
        let place = (*param_id as usize).wrapping_sub(1);
        let (Some(argument), Some(width)) = (arguments.get_mut(place), widths(call.action_id).get(place)) else {
            return Err(Problem::invalid(format!("there is no parameter {param_id}")));
        };
        if argument.replace(value::decode(value, *width)?).is_some() {
            return Err(Problem::invalid(format!("parameter {param_id} is given twice")));
        }
    }
    if arguments.contains(&None) {
        return Err(Problem::invalid(format!("this action has {N} parameters")));
    }
    Ok(arguments.map(Option::unwrap_or_default))
}

fn call(action_id: u32, arguments: &[u128]) -> v1::Action {
    let param = |(argument, param_id): (&u128, u32)| v1::action::Param { param_id, value: value::encode(*argument) };
    v1::Action { action_id, params: arguments.iter().zip(1..).map(param).collect() }
}

fn mac(number: u128) -> [u8; 6] {
    let bytes = (number as u64).to_be_bytes();
    [bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]
}

fn mac_number(mac: [u8; 6]) -> u128 {
    mac.into_iter().fold(0, |number, byte| number << 8 | u128::from(byte))
}

/// Returns the problem of an action that no entry of the table can have.
fn foreign(id: u32, only_default: u32) -> Problem {
    if id == only_default {
        return Problem::new(Code::PermissionDenied, "this action is for packets that no entry matches");
    }
    Problem::invalid(format!("this table has no action {id:#010x} for its entries"))
}

impl Value {
    /// Decodes the action of an entry of this table.
    ///
    /// # Errors
    /// If entries of this table cannot have the action.
    pub fn of(table: u32, action: &v1::TableAction) -> Result<Value, Problem> {
        let kind = action.r#type.as_ref().ok_or_else(|| Problem::invalid("an action has no type"))?;
        match (table, kind) {
            (table::REPLICAS, Type::ActionProfileActionSet(set)) => replicas(set),
            (table::REPLICAS, Type::Action(_)) => Err(Problem::invalid("this table's entries have sets of actions")),
            (table::REPLICAS, _) => Err(Problem::unimplemented("only one-shot sets of actions are taken")),
            (_, Type::Action(call)) => Value::of_call(table, call),
            _ => Err(Problem::invalid("this table's entries have one action")),
        }
    }

    fn of_call(table: u32, call: &v1::Action) -> Result<Value, Problem> {
        match (table, call.action_id) {
            (table::PARTITIONS, action::SET_PARTITION) => {
                let [index, term, switch, active, primary, first, slots] = arguments(call)?;
                Ok(Value::Partition(Setting {
                    index: index as u32,
                    region: Region { first: first as u32, slots: slots as u32 },
                    term: term as u64,
                    switch: switch as u32,
                    active: active == 1,
                    primary: primary as Replica,
                }))
            }
            (table::PORTS, action::SET_PORT) => {
                let [address, port] = arguments(call)?;
                if port == 0 {
                    return Err(Problem::invalid("port 0 is not a valid port"));
                }
                Ok(Value::Port(SocketAddrV4::new((address as u32).into(), port as u16)))
            }
            (table::IPV4_LPM | table::IPV6_LPM, action::TO_NEXT_HOP) => {
                let [port, source, destination] = arguments(call)?;
                Ok(Value::Forward(NextHop { port: port as u16, source: mac(source), destination: mac(destination) }))
            }
            (table::IPV4_LPM | table::IPV6_LPM, action::DROP) => arguments(call).map(|[]| Value::Drop),
            (_, id) => Err(foreign(id, action::DROP)),
        }
    }

    /// Returns the action in its form for the wire.
    pub fn action(&self) -> v1::TableAction {
        let kind = match self {
            Value::Partition(Setting { index, region, term, switch, active, primary }) => {
                let numbers =
                    [*index, *switch, u32::from(*active), *primary, region.first, region.slots].map(u128::from);
                let [index, switch, active, primary, first, slots] = numbers;
                let arguments = [index, (*term).into(), switch, active, primary, first, slots];
                Type::Action(call(action::SET_PARTITION, &arguments))
            }
            Value::Replicas(replicas) => {
                let one = |(replica, weight): &(Replica, u8)| v1::ActionProfileAction {
                    action: Some(call(action::TO_REPLICA, &[(*replica).into()])),
                    weight: (*weight).into(),
                    watch_kind: None,
                };
                let action_profile_actions = replicas.iter().map(one).collect();
                Type::ActionProfileActionSet(v1::ActionProfileActionSet { action_profile_actions })
            }
            Value::Port(address) => {
                Type::Action(call(action::SET_PORT, &[address.ip().to_bits().into(), address.port().into()]))
            }
            Value::Forward(NextHop { port, source, destination }) => {
                let arguments = [(*port).into(), mac_number(*source), mac_number(*destination)];
                Type::Action(call(action::TO_NEXT_HOP, &arguments))
            }
            Value::Drop => Type::Action(call(action::DROP, &[])),
        };
        v1::TableAction { r#type: Some(kind) }
    }

    /// Returns the id of the action; sets have none.
    pub fn action_id(&self) -> Option<u32> {
        match self {
            Value::Partition(_) => Some(action::SET_PARTITION),
            Value::Replicas(_) => None,
            Value::Port(_) => Some(action::SET_PORT),
            Value::Forward(_) => Some(action::TO_NEXT_HOP),
            Value::Drop => Some(action::DROP),
        }
    }
}

fn replicas(set: &v1::ActionProfileActionSet) -> Result<Value, Problem> {
    let mut replicas = Vec::new();
    let mut weights = 0;
    for v1::ActionProfileAction { action, weight, watch_kind } in &set.action_profile_actions {
        let call = action.as_ref().ok_or_else(|| Problem::invalid("an action set has an empty action"))?;
        if call.action_id != action::TO_REPLICA {
            return Err(foreign(call.action_id, action::NO_ACTION));
        }
        let [replica] = arguments(call)?;
        weights += u32::try_from(*weight)
            .ok()
            .filter(|weight| (1..=WEIGHTS_MAX).contains(weight))
            .ok_or_else(|| Problem::invalid(format!("weight {weight}")))?;
        if weights > WEIGHTS_MAX {
            return Err(Problem::invalid(format!("the weights of an entry may sum up to {WEIGHTS_MAX} at most")));
        }
        match watch_kind {
            None => {}
            Some(v1::action_profile_action::WatchKind::WatchPort(port)) if port.is_empty() => {}
            Some(_) => return Err(Problem::unimplemented("watched ports are not supported")),
        }
        replicas.push((replica as Replica, *weight as u8));
    }
    Ok(Value::Replicas(replicas))
}

#[cfg(test)]
#[path = "entry_test.rs"]
mod tests;
