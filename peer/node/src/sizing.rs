//! A leader has its group become another where its size calls for that: groups act on their own, nobody administers them
//! (Scatter §6.1, Harmony §7.3).

use core::time::Duration;

use group::Group;
use group::time::{Time, WallMillis};
use group::transaction::plan::Operation;
use overlay::{Epoch, GroupId};
use policy::size::{Resize, Sizes};

use crate::node::Node;
use crate::preparing::Begun;
use crate::wishes::member_views;

/// Between two looks, about.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What a leader notes about its group's size.
#[derive(Debug, Default)]
pub(crate) struct SizeWatch {
    /// The group that it leads, and since when that is what it is.
    leads: Option<(GroupId, Epoch)>,
    /// What should be done, and since when.
    wanted: Option<(Resize, Time)>,
    /// How, where that is being prepared: what is copied is of no use to others.
    prepared: Option<Operation>,
    /// How often that was begun, and when for the first time.
    tried: u32,
    first: Option<WallMillis>,
    due: Time,
}

impl Node {
    /// Looks at the group that this node leads, from time to time. What is called for is done when it has been called for
    /// long enough: not at each coming and going, and not by a group that has just come to be.
    pub(crate) fn watch_size(&mut self) {
        if self.now.time < self.size_watch.due {
            return;
        }
        // Not all at the same time: two neighbours may want something of each other.
        self.size_watch.due = self.now.time + LOOK_EVERY / 2 + self.rng.duration_below(LOOK_EVERY);
        let leads = self.hosts.home().filter(|group| group.log().leads());
        let Some((id, born, wanted)) = leads.map(|group| (group.state().id, group.state().born, self.resize(group)))
        else {
            self.size_watch.leads = None;
            return;
        };
        let watch = &mut self.size_watch;
        if watch.leads != Some((id, born)) {
            *watch = SizeWatch { leads: Some((id, born)), due: watch.due, ..SizeWatch::default() };
        }
        let since = match (watch.wanted, wanted) {
            (_, None) => {
                (watch.wanted, watch.prepared) = (None, None);
                return;
            }
            (Some((before, since)), Some(now)) if same_kind(before, now) => since,
            _ => {
                watch.prepared = None;
                self.now.time
            }
        };
        watch.wanted = wanted.map(|wanted| (wanted, since));
        if let Some(wanted) = wanted
            && self.now.time.since(since) >= self.config.timing.resize_after
        {
            self.begin_resize(wanted);
        }
    }

    /// When it looks next.
    pub(crate) fn size_due(&self) -> Time {
        self.size_watch.due
    }

    /// What should be made of it.
    pub(crate) fn resize(&self, group: &Group) -> Option<Resize> {
        let state = group.state();
        let (min, max) = (state.settings.members_min as usize, state.settings.members_max as usize);
        // Those who are on their way in count.
        let own = state.members.len() + state.learners.len();
        let successor = state.dealings.successor().map(|other| other.members.len());
        self.config.policies.size.1.propose(&Sizes { own, successor, min, max })
    }

    fn begin_resize(&mut self, wanted: Resize) {
        let halving = self.config.policies.split.1;
        let (tried, first) = (self.size_watch.tried, self.size_watch.first);
        let Some(group) = self.hosts.home() else { return };
        let state = group.state();
        let operation = match wanted {
            Resize::Split => {
                let first = halving.first_half(&member_views(group, state));
                Operation::Split { at: state.range.cut_at(1, 2), first }
            }
            Resize::Merge => Operation::Merge,
            Resize::Give(count) => {
                Operation::Migrate { to: halving.movers(&member_views(group, state), count), from: [].into() }
            }
            Resize::Take(count) => {
                let theirs = state.dealings.successor().map(|other| other.members.as_slice()).unwrap_or_default();
                // Not the same ones again where that came to nothing: they may be dead.
                let turn = theirs.iter().rev().cycle().skip(tried as usize);
                let from = turn.take(count.min(theirs.len())).map(|contact| contact.node).collect();
                Operation::Migrate { to: [].into(), from }
            }
        };
        let rank = first.map_or(group.rank(0), |first| group::transaction::plan::Rank::new(tried, first));
        let (id, now) = (state.id, group.group_time());
        let operation = self.size_watch.prepared.take().unwrap_or(operation);
        // What stands against it now may not soon.
        match self.begin_prepared(id, operation.clone(), rank) {
            Ok(Begun::Yes) => {
                self.size_watch.tried += 1;
                self.size_watch.first.get_or_insert(now);
            }
            Ok(Begun::Copying) => self.size_watch.prepared = Some(operation),
            Err(_) => {}
        }
    }
}

fn same_kind(one: Resize, other: Resize) -> bool {
    core::mem::discriminant(&one) == core::mem::discriminant(&other)
}
