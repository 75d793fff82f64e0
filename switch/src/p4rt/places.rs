//! Places for connections of one endpoint, which slow clients cannot block.
//!
//! A newcomer that finds no room takes the place of another connection: an idle one goes before a controller with a stream, then
//! a remote one before one from this machine, then the one that has been in its state for longest. Some places are kept for
//! clients on this machine.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// Places of one endpoint.
#[derive(Debug)]
pub struct Places {
    max: usize,
    /// Places of these that are kept for clients on this machine.
    kept: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// Holders by age: a lower number has been in its state for longer.
    by_age: BTreeMap<u64, Holder>,
    next: u64,
    remote: usize,
}

#[derive(Debug)]
struct Holder {
    is_local: bool,
    /// Number of open streams of controllers.
    streams: usize,
    /// Dropped when another connection takes the place.
    _stay: oneshot::Sender<()>,
}

/// Place of a connection, until it is dropped or another connection takes it.
#[derive(Debug)]
pub struct Place {
    handle: Handle,
    stay: oneshot::Receiver<()>,
    is_lost: bool,
}

/// Handle of calls to their connection's place.
#[derive(Clone, Debug)]
pub struct Handle {
    places: Arc<Places>,
    is_local: bool,
    age: Arc<Mutex<u64>>,
}

/// Open stream in a connection, until this value is dropped.
#[derive(Debug)]
pub struct OpenStream(Handle);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The values behind these locks are valid between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Places {
    /// Returns `max` places, at least one; `kept` of them, fewer than all, are for clients on this machine.
    pub fn new(max: usize, kept: usize) -> Arc<Places> {
        let max = max.max(1);
        Arc::new(Places { max, kept: kept.min(max - 1), held: Mutex::default() })
    }

    /// Takes a place for a newcomer, if need be that of another connection.
    pub fn take(self: &Arc<Places>, is_local: bool) -> Place {
        let mut held = lock(&self.held);
        let has_room = held.by_age.len() < self.max && (is_local || held.remote < self.max - self.kept);
        if !has_room {
            held.evict(is_local, self.kept);
        }
        let (sender, stay) = oneshot::channel();
        held.remote += usize::from(!is_local);
        let age = held.add(Holder { is_local, streams: 0, _stay: sender });
        drop(held);
        let handle = Handle { places: self.clone(), is_local, age: Arc::new(Mutex::new(age)) };
        Place { handle, stay, is_lost: false }
    }
}

impl Held {
    fn add(&mut self, holder: Holder) -> u64 {
        self.next += 1;
        self.by_age.insert(self.next, holder);
        self.next
    }

    fn remove(&mut self, age: u64) {
        if let Some(holder) = self.by_age.remove(&age) {
            self.remote -= usize::from(!holder.is_local);
        }
    }

    /// Frees a place for a newcomer. A remote newcomer takes the place of a local connection only if local ones hold more than is
    /// kept for them.
    fn evict(&mut self, for_local: bool, kept: usize) {
        let takes_local = for_local || self.by_age.len() - self.remote > kept;
        let candidates = self.by_age.iter().filter(|(_, holder)| takes_local || !holder.is_local);
        let first = candidates.min_by_key(|(age, holder)| (holder.streams > 0, holder.is_local, **age));
        if let Some(age) = first.map(|(age, _)| *age) {
            self.remove(age);
        }
    }
}

impl Place {
    /// Returns the handle for the calls of this connection.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Returns `Ready` once another connection has this place; wakes the task then.
    pub fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // A receiver must not be polled again after it was ready.
        if !self.is_lost {
            self.is_lost = Pin::new(&mut self.stay).poll(context).is_ready();
        }
        if self.is_lost { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let age = lock(&self.handle.age);
        lock(&self.handle.places.held).remove(*age);
    }
}

impl Handle {
    /// Returns whether the connection is of a client on this machine.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// Records a stream of a controller.
    pub fn open(&self) -> OpenStream {
        self.change(|streams| streams + 1);
        OpenStream(self.clone())
    }

    fn change(&self, change: impl FnOnce(usize) -> usize) {
        let mut age = lock(&self.age);
        let mut held = lock(&self.places.held);
        if let Some(holder) = held.by_age.remove(&age) {
            *age = held.add(Holder { streams: change(holder.streams), ..holder });
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.change(|streams| streams.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn lost<const N: usize>(places: [&mut Place; N]) -> [bool; N] {
        places.map(|place| place.poll_lost(&mut Context::from_waker(Waker::noop())).is_ready())
    }

    #[test]
    fn a_controller_with_a_stream_stays() {
        let places = Places::new(3, 0);
        let [mut a, mut b, mut c] = [(); 3].map(|()| places.take(false));
        let stream = a.handle().open();
        let mut d = places.take(false);
        assert_eq!(lost([&mut a, &mut b, &mut c, &mut d]), [false, true, false, false]);
        drop((b, stream));
        let _e = places.take(false);
        assert_eq!(lost([&mut a, &mut c, &mut d]), [false, true, false]);
        drop((a, c, d));
        assert_eq!(lock(&places.held).by_age.len(), 1);
    }

    #[test]
    fn some_places_are_for_this_machine() {
        let places = Places::new(4, 1);
        let mut remote: Vec<Place> = (0..9).map(|_| places.take(false)).collect();
        let mut local = places.take(true);
        remote.push(places.take(false));
        assert_eq!(lost([&mut local]), [false]);
        assert_eq!(remote.iter_mut().filter_map(|place| (!lost([place])[0]).then_some(())).count(), 3);
    }
}
