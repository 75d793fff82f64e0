//! Status as metrics, made anew for each scrape: no second state has to be kept up to date.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use environment::version::COMMIT;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::status::{Budgets, GroupStatus, StatusSource};

/// Metrics of the content of `/v1/status`.
pub struct StatusMetrics(pub Arc<dyn StatusSource>);

impl fmt::Debug for StatusMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StatusMetrics")
    }
}

impl Collector for StatusMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let status = self.0.status();
        build_info(&mut encoder, &status.version)?;
        budgets(&mut encoder, &self.0.budgets())?;
        let ready = i64::from(self.0.readiness().ready);
        gauge(&mut encoder, "ready", "1 if a client operation sent now will be answered", ready)?;
        let leaving = i64::from(status.leaving.is_some());
        gauge(&mut encoder, "leaving", "1 if the peer is leaving its network for good", leaving)?;
        gauge(&mut encoder, "uptime_seconds", "Since the process started", whole(status.uptime_s))?;
        gauge(&mut encoder, "groups", "Groups that this peer is a member of", whole(status.groups.len() as u64))?;
        let sum = |of: fn(&GroupStatus) -> u64| status.groups.iter().map(of).fold(0, u64::saturating_add);
        gauge(&mut encoder, "keys", "Keys held, about", whole(sum(|group| group.keys)))?;
        gauge(&mut encoder, "stored_bytes", "Bytes of keys and values held, about", whole(sum(|group| group.bytes)))?;
        let by_group: [ByGroup; 13] = [
            ("group_established", "1 if a majority of this epoch's members holds everything, and is heard", |group| {
                f64::from(u8::from(group.established))
            }),
            ("group_has_quorum", "1 if this peer hears a majority of the group's members", |group| {
                f64::from(u8::from(group.quorum.as_ref().is_none_or(|quorum| quorum.held)))
            }),
            (
                "group_members_heard",
                "Members heard within the failure detection interval, this peer included",
                |group| group.quorum.as_ref().map_or(0.0, |quorum| quorum.heard as f64),
            ),
            ("group_suspects", "Members not heard within the failure detection interval", |group| {
                group.members.iter().filter(|member| member.role == "suspect").count() as f64
            }),
            ("group_complete_parts", "Parts of the range of which this peer holds everything", |group| {
                group.complete as f64
            }),
            ("group_parts", "Parts of the range", |group| group.primaries.len() as f64),
            ("group_transfers", "Parts of the range being copied from other members", |group| {
                group.transfers.len() as f64
            }),
            ("group_waiting_to_join", "Newcomers that wait for admission, if this peer leads the group", |group| {
                group.waiting_to_join as f64
            }),
            ("group_members", "Members of the group", |group| group.members.len() as f64),
            ("group_epoch", "Goes up with each reconfiguration of the group", |group| group.epoch as f64),
            ("group_has_leader", "1 if a leader of the group is known", |group| {
                f64::from(u8::from(group.leader.is_some()))
            }),
            (
                "group_halted",
                "1 if this peer stopped serving the group: a member contradicted a chosen value",
                |group| f64::from(u8::from(group.halted.is_some())),
            ),
            ("group_operations_per_second", "Client operations per second, recently", |group| group.ops_per_s),
        ];
        for (name, help, value) in by_group {
            by_groups(&mut encoder, &status.groups, (name, help), |group| Some(value(group)))?;
        }
        risks(&mut encoder, &status.groups)?;
        capacities(&mut encoder, &status.groups)?;
        neighbours(&mut encoder, &status.groups)?;
        dropped(&mut encoder, &status.groups)
    }
}

/// Encodes version and commit of the software.
fn build_info(encoder: &mut DescriptorEncoder<'_>, version: &str) -> fmt::Result {
    let metric = ConstGauge::new(1_i64);
    let help = "Always 1: the labels name the software";
    let mut family = encoder.encode_descriptor("build_info", help, None, metric.metric_type())?;
    metric.encode(family.encode_family(&[("version", version), ("commit", COMMIT)])?)
}

/// Encodes use and limits; unknown uses and missing limits are left out.
fn budgets(encoder: &mut DescriptorEncoder<'_>, budgets: &Budgets) -> fmt::Result {
    let values: [(&str, &str, Option<u64>); 6] = [
        ("resident_memory_bytes", "Bytes of the process that are in memory", budgets.memory.used),
        ("memory_limit_bytes", "--max-memory", budgets.memory.given),
        ("disk_used_bytes", "Bytes of the store", budgets.disk.used),
        ("disk_limit_bytes", "--max-disk", budgets.disk.given),
        ("connections_limit", "--max-connections: connections with peers", budgets.connections.given),
        ("bandwidth_limit_bytes_per_second", "--max-bandwidth", budgets.bandwidth.given),
    ];
    values.into_iter().try_for_each(|(name, help, value)| match value {
        Some(value) => gauge(encoder, name, help, whole(value)),
        None => Ok(()),
    })
}

/// Encodes one metric of each group; groups without a value are left out.
fn by_groups(
    encoder: &mut DescriptorEncoder<'_>,
    groups: &[GroupStatus],
    (name, help): (&str, &str),
    value: impl Fn(&GroupStatus) -> Option<f64>,
) -> fmt::Result {
    let metric = ConstGauge::new(0.0_f64);
    let mut family = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
    for (group, value) in groups.iter().filter_map(|group| Some((group, value(group)?))) {
        ConstGauge::new(value).encode(family.encode_family(&[("group", group.id.as_str())])?)?;
    }
    Ok(())
}

/// Encodes the risk of each group; left out where it is unknown.
fn risks(encoder: &mut DescriptorEncoder<'_>, groups: &[GroupStatus]) -> fmt::Result {
    type Of = fn(&GroupStatus) -> Option<f64>;
    let metrics: [(&str, &str, Of); 4] = [
        (
            "group_nines",
            "Nines an hour: 3 if the group loses its majority within an hour with probability 0.001",
            |group| Some(group.risk.as_ref()?.nines),
        ),
        (
            "group_failure_probability",
            "Probability that the group loses its majority within the window of replacement",
            |group| Some(group.risk.as_ref()?.in_window),
        ),
        ("group_replacement_window_seconds", "Time from a death until the group is as safe as before", |group| {
            Some(group.risk.as_ref()?.window_s)
        }),
        (
            "peer_lifetime_mean_seconds",
            "Mean lifetime of peers, estimated from the deaths seen; left out if lifetimes are not exponential, or \
            unknown",
            |group| group.lifetimes.mean_s,
        ),
    ];
    metrics.into_iter().try_for_each(|(name, help, value)| by_groups(encoder, groups, (name, help), value))
}

/// Encodes the capacity of each member of each group; left out where it is unknown.
fn capacities(encoder: &mut DescriptorEncoder<'_>, groups: &[GroupStatus]) -> fmt::Result {
    let help = "Operations that a member can execute as a primary, as this peer believes";
    let metric = ConstGauge::new(0_i64);
    let mut family =
        encoder.encode_descriptor("member_capacity_operations_per_second", help, None, metric.metric_type())?;
    for group in groups {
        for member in &group.members {
            let Some(capacity) = member.capacity_ops_per_s else { continue };
            let labels = [("group", group.id.as_str()), ("peer", member.peer_id.as_str())];
            ConstGauge::new(i64::from(capacity)).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// Encodes whether the neighbours of this peer's groups hear their majorities.
fn neighbours(encoder: &mut DescriptorEncoder<'_>, groups: &[GroupStatus]) -> fmt::Result {
    let help =
        "1 if a member of the group beside one of this peer's says that it hears a majority; 0 also where none answers";
    let metric = ConstGauge::new(0.0_f64);
    let mut family = encoder.encode_descriptor("neighbour_has_quorum", help, None, metric.metric_type())?;
    let mut told = BTreeSet::new();
    for group in groups {
        for (id, quorum) in
            [(&group.predecessor, &group.predecessor_quorum), (&group.successor, &group.successor_quorum)]
        {
            let (Some(id), Some(quorum)) = (id, quorum) else { continue };
            // On a ring of two groups the same one is on both sides.
            if *id != group.id && told.insert(id) {
                let held = f64::from(u8::from(quorum.held));
                ConstGauge::new(held).encode(family.encode_family(&[("group", id.as_str())])?)?;
            }
        }
    }
    Ok(())
}

/// Encodes the dropped messages, malformed or without room, by reason.
fn dropped(encoder: &mut DescriptorEncoder<'_>, groups: &[GroupStatus]) -> fmt::Result {
    let help = "Messages of members that were dropped as invalid, or for lack of room";
    let metric = ConstCounter::new(0_u64);
    let mut family = encoder.encode_descriptor("group_messages_dropped", help, None, metric.metric_type())?;
    for group in groups {
        for (why, count) in &group.dropped {
            let labels = [("group", group.id.as_str()), ("reason", why.as_str())];
            ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// Name, help text, and value for one group.
type ByGroup = (&'static str, &'static str, fn(&GroupStatus) -> f64);

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> fmt::Result {
    encode(encoder, name, help, &ConstGauge::new(value))
}

/// Encodes one metric without labels.
pub(crate) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> fmt::Result {
    let family = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
    metric.encode(family)
}
