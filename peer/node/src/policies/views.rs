//! The members of groups in the form for policies.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use group::Group;
use group::control::health::LivingMember;
use group::control::state::Member;
use overlay::GroupRef;
use overlay::time::WallMillis;
use policy::halves::MemberView;
use policy::history::{Told, residual};
use policy::lifetimes::Lifetimes;

use crate::policies::lifetimes::told;
use crate::policies::networks::places;

/// Returns the time that a member of this age is expected to live on, to compare members with: its median residual life under a known
/// model, or else its age.
fn outlook(lifetimes: Option<Lifetimes>, age: Duration, told: Option<Told>) -> Duration {
    lifetimes.map_or(age, |all| residual(&all, age, told))
}

/// Returns the members of a group of this node.
pub(crate) fn member_views(group: &Group, lifetimes: Option<Lifetimes>) -> Vec<MemberView> {
    let (members, hears) = (&group.state().members, group.hears());
    let known: Vec<(&str, &[String])> =
        members.iter().map(|member| (member.cluster.as_str(), member.addresses.as_slice())).collect();
    let view = |((member, cluster), round_trips): ((&Member, String), Vec<Option<Duration>>)| MemberView {
        node: member.node,
        cluster,
        joined_ms: member.joined.0,
        able: member.node == group.me() || hears.contains(&member.node),
        lifetime: outlook(lifetimes, group.age_of(member.node), told(group, member.node)),
        round_trips,
    };
    members.iter().zip(places(&known)).zip(group.round_trips()).map(view).collect()
}

/// Returns the living members of a neighbour as its leader told them at `now`, in group time. Their addresses are those of the neighbour's
/// reference; their round trips are not known.
pub(crate) fn living_views(
    living: &[LivingMember],
    neighbour: Option<&GroupRef>,
    lifetimes: Option<Lifetimes>,
    now: WallMillis,
) -> Vec<MemberView> {
    let addresses = |node| {
        let contact = neighbour.and_then(|group| group.members.iter().find(|contact| contact.node == node));
        contact.map_or(&[][..], |contact| contact.addresses.as_slice())
    };
    let known: Vec<(&str, &[String])> =
        living.iter().map(|member| (member.cluster.as_str(), addresses(member.node))).collect();
    let view = |(member, cluster): (&LivingMember, String)| MemberView {
        node: member.node,
        cluster,
        joined_ms: member.joined.0,
        able: member.is_heard,
        lifetime: outlook(lifetimes, age(member, now), None),
        round_trips: Vec::new(),
    };
    living.iter().zip(places(&known)).map(view).collect()
}

/// Returns the age of a neighbour's member at `now`, in group time.
pub(crate) fn age(member: &LivingMember, now: WallMillis) -> Duration {
    Duration::from_millis(now.0.saturating_sub(member.joined.0))
}
