//! Places for connections of one endpoint: bounded in number, and never all held by clients that wait.
//!
//! A newcomer that finds no room takes the place of another connection: a remote one rather than one from this machine,
//! an idle one rather than one that is being served, and among equals the one that has been so for longest. Some places
//! are kept for clients on this machine: a remote newcomer never counts on them.

use std::collections::BTreeMap;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use environment::lock;

/// Places of one endpoint.
#[derive(Debug)]
pub(crate) struct Places {
    max: usize,
    /// Number of places for clients on this machine, of these.
    kept: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// Holders by the time since which they are idle or busy: a lower number is a longer time.
    by_age: BTreeMap<u64, Holder>,
    next: u64,
    remote: usize,
}

#[derive(Debug)]
struct Holder {
    is_local: bool,
    is_busy: bool,
    /// Dropped when another connection takes the place.
    _stay: oneshot::Sender<()>,
}

/// A connection's place, until it is dropped or another connection takes it.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    age: u64,
    stay: oneshot::Receiver<()>,
    is_lost: bool,
}

impl Places {
    /// Returns `max` places, at least one; `kept` of them, fewer than all, are for clients on this machine.
    pub fn new(max: usize, kept: usize) -> Arc<Places> {
        let max = max.max(1);
        Arc::new(Places { max, kept: kept.min(max - 1), held: Mutex::default() })
    }

    /// Takes a place for a newcomer, if need be from another connection.
    pub fn take(self: &Arc<Places>, is_local: bool) -> Place {
        let mut held = lock(&self.held);
        let has_room = held.by_age.len() < self.max && (is_local || held.remote < self.max - self.kept);
        if !has_room {
            held.evict(is_local, self.kept);
        }
        let (sender, stay) = oneshot::channel();
        held.remote += usize::from(!is_local);
        let age = held.add(Holder { is_local, is_busy: false, _stay: sender });
        drop(held);
        Place { places: self.clone(), age, stay, is_lost: false }
    }

    /// Returns the number of places that are held.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        lock(&self.held).by_age.len()
    }
}

impl Held {
    fn add(&mut self, holder: Holder) -> u64 {
        self.next += 1;
        self.by_age.insert(self.next, holder);
        self.next
    }

    fn remove(&mut self, age: u64) -> Option<Holder> {
        let holder = self.by_age.remove(&age)?;
        self.remote -= usize::from(!holder.is_local);
        Some(holder)
    }

    /// Frees a place for a newcomer. A remote one takes the place of a local one only where local ones hold more than is
    /// kept for them.
    fn evict(&mut self, for_local: bool, kept: usize) {
        let takes_local = for_local || self.by_age.len() - self.remote > kept;
        let candidates = self.by_age.iter().filter(|(_, holder)| takes_local || !holder.is_local);
        let first = candidates.min_by_key(|(age, holder)| (holder.is_local, holder.is_busy, **age));
        if let Some(age) = first.map(|(age, _)| *age) {
            self.remove(age);
        }
    }
}

impl Place {
    /// Records whether the connection is being served. With each change its time in that state begins anew.
    pub(crate) fn set_busy(&mut self, is_busy: bool) {
        let mut held = lock(&self.places.held);
        if let Some(holder) = held.by_age.remove(&self.age) {
            self.age = held.add(Holder { is_busy, ..holder });
        }
    }

    /// Polls for the loss of this place: ready once another connection has it; wakes the task then.
    pub(crate) fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // A receiver that has returned is not polled again.
        if !self.is_lost {
            self.is_lost = Pin::new(&mut self.stay).poll(context).is_ready();
        }
        if self.is_lost { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns once another connection has this place.
    pub async fn lost(&mut self) {
        std::future::poll_fn(|context| self.poll_lost(context)).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places.held).remove(self.age);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn is_lost(place: &mut Place) -> bool {
        place.poll_lost(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_oldest_idle_one_makes_room() {
        let places = Places::new(3, 0);
        let [mut a, mut b, mut c] = [(); 3].map(|()| places.take(false));
        a.set_busy(true);
        let mut d = places.take(false);
        assert_eq!([&mut a, &mut b, &mut c, &mut d].map(is_lost), [false, true, false, false]);
        // The connection that lost its place gives back nothing.
        drop(b);
        assert_eq!(places.held(), 3);
        c.set_busy(true);
        c.set_busy(false);
        let mut e = places.take(false);
        assert_eq!([&mut a, &mut c, &mut d, &mut e].map(is_lost), [false, false, true, false]);
        // Where all are being served, the one that has been so for longest goes.
        for place in [&mut c, &mut e] {
            place.set_busy(true);
        }
        let f = places.take(false);
        assert_eq!([&mut a, &mut c, &mut e].map(is_lost), [true, false, false]);
        drop((a, c, d, e, f));
        assert_eq!(places.held(), 0);
    }

    #[test]
    fn some_places_are_for_this_machine() {
        let places = Places::new(4, 2);
        let mut remote: Vec<Place> = (0..10).map(|_| places.take(false)).collect();
        assert_eq!(places.held(), 2);
        let mut local = [places.take(true), places.take(true)];
        assert_eq!(remote.iter_mut().map(is_lost).filter(|lost| !lost).count(), 2, "there was room");
        // Then remote connections go first, and a remote newcomer takes no kept place.
        let mut third = places.take(true);
        remote.push(places.take(false));
        assert_eq!(local.each_mut().map(is_lost), [false; 2]);
        assert!(!is_lost(&mut third));
        let _fourth = places.take(true);
        let _fifth = places.take(true);
        assert!(is_lost(&mut local[0]));
        // Clients of this machine hold all places, and a remote one is admitted all the same.
        let mut last = places.take(false);
        assert!(is_lost(&mut local[1]) && !is_lost(&mut last));
        assert_eq!(places.held(), 4);
    }

    proptest::proptest! {
        /// In every sequence of connections, holders never outnumber places, and a newcomer always has one.
        #[test]
        fn places_are_bounded(
            max in 1..9_usize,
            kept in 0..9_usize,
            steps in proptest::collection::vec((0..4_u8, 0..9_usize), 0..80),
        ) {
            let (places, mut all) = (Places::new(max, kept), Vec::<Place>::new());
            for (step, index) in steps {
                match step {
                    0 | 1 => {
                        all.push(places.take(step == 0));
                        proptest::prop_assert!(!is_lost(all.last_mut().unwrap()));
                    }
                    2 if index < all.len() => drop(all.remove(index)),
                    _ => {
                        if let Some(place) = all.get_mut(index) {
                            place.set_busy(index % 2 == 0);
                        }
                    }
                }
                all.retain_mut(|place| !is_lost(place));
                proptest::prop_assert!(places.held() == all.len() && all.len() <= max);
            }
        }
    }
}
