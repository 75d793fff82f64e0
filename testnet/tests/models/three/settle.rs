//! The end of any situation once time passes: all members stop, start again with all that they had written, and are left alone.

use std::collections::VecDeque;
use std::time::Duration;

use group::Group;
use group::config::Timing;
use group::control::state::Entry;
use group::message::{Message, Sender};
use group::outbox::GroupOutput;
use overlay::time::Now;
use overlay::{Epoch, NodeId};

use super::{Rules, Three};
use crate::parts::{self, MEMBERS, NOW, node};

/// Within this time a group of three members that hear each other comes to rest.
const SOON: Duration = Duration::from_secs(15);
const STEP: Duration = Duration::from_millis(50);

impl Three {
    /// Restarts all members, and lets time pass. They must come to one state, in which no member waits for the end of an epoch.
    /// All entries that were chosen before must be part of that state.
    ///
    /// # Errors
    /// Returns a description where the members do not come to rest, or where a chosen entry is missing.
    pub fn settles(&self, rules: &Rules) -> Result<(), String> {
        let mut disks: Vec<_> = self.members.iter().map(|member| member.disk.clone()).collect();
        let start = |(index, disk): (usize, &parts::Disk)| {
            let config = parts::config(rules.defects, Timing::default());
            Group::restore(config, node(index), parts::stored(disk), NOW, index as u64)
        };
        let mut groups: Vec<Group> = disks.iter().enumerate().map(start).collect();
        let mut wire: VecDeque<(NodeId, Epoch, usize, Message)> = VecDeque::new();
        let mut passed = Duration::ZERO;
        while passed < SOON {
            passed += STEP;
            let now = Now { time: NOW.time + passed, awake: NOW.awake + passed, wall: NOW.wall };
            for group in &mut groups {
                group.set_now(now);
                group.tick();
            }
            loop {
                for (group, disk) in groups.iter_mut().zip(&mut disks) {
                    while let Some(output) = group.poll_output() {
                        match output {
                            GroupOutput::Send(to, message, epoch) => {
                                let to = to.into_iter().filter_map(|to| (0..MEMBERS).find(|other| node(*other) == to));
                                wire.extend(to.map(|to| (group.me(), epoch, to, message.clone())));
                            }
                            GroupOutput::Persist(token, changes) => {
                                changes.into_iter().for_each(|change| disk.change(change));
                                group.on_persisted(token);
                            }
                            GroupOutput::Scan(token, ..) => group.on_scanned(token, Vec::new(), true),
                            GroupOutput::Load { key, .. } => group.on_loaded(&key, None),
                            _ => {}
                        }
                    }
                }
                let Some((node, epoch, to, message)) = wire.pop_front() else { break };
                groups[to].on_message(Sender { node, epoch }, message);
            }
            if is_at_rest(&groups) {
                return self.keeps_what_was_chosen(&groups);
            }
        }
        let states: Vec<_> =
            groups.iter().map(|group| (group.leader(), group.state().applied, group.state().epoch)).collect();
        Err(format!("no rest after {SOON:?}: {states:?}"))
    }

    fn keeps_what_was_chosen(&self, groups: &[Group]) -> Result<(), String> {
        let state = groups.iter().map(Group::state).max_by_key(|state| state.applied).expect("three");
        let horizon =
            self.chosen_prefix().filter_map(|entry| if let Entry::Horizon(to) = entry { Some(*to) } else { None });
        let horizon = horizon.max().unwrap_or(0);
        if state.horizon < horizon {
            return Err(format!("horizon {horizon} was chosen, and they come to {}", state.horizon));
        }
        if self.chosen_prefix().any(Entry::ends_epoch) && state.epoch == Epoch(1) {
            return Err("the end was chosen, and the epoch goes on".into());
        }
        Ok(())
    }
}

/// Returns whether one member leads, all members are in one established state, none of them is sealed, and all primaries serve.
fn is_at_rest(groups: &[Group]) -> bool {
    let Some(leader) = groups.iter().find(|group| group.log().leads()) else { return false };
    let state = leader.state();
    let members = groups.iter().filter(|group| state.is_member(group.me()));
    state.recovery.is_empty()
        && members.into_iter().all(|group| {
            group.state() == state
                && !group.acceptor().has_sealed(state.epoch)
                && group.primaries().all(|primary| primary.is_serving())
        })
}
