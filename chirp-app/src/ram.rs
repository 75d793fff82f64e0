//! A store in memory for tests, in which an operation meets all possible faults.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use crate::error::Error;
use crate::patience::Pauses;
use crate::store::{Store, Version};

/// Random numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Chance(pub u64);

impl Chance {
    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

/// A change that may be made.
#[derive(Clone, Debug)]
enum Change {
    Create { key: String, value: Vec<u8> },
    Replace { key: String, seen: Version, value: Vec<u8> },
    Append { key: String, max: usize, data: Vec<u8> },
}

#[derive(Debug)]
struct RamInner {
    values: BTreeMap<String, (Vec<u8>, u64)>,
    versions: u64,
    /// Changes with clients that have given up waiting, and that are still on their way.
    late: Vec<Change>,
    chance: Chance,
    /// One operation in so many meets a fault; 0: none does.
    faults: usize,
    operations: u64,
}

/// The store.
#[derive(Debug)]
pub struct Ram(Mutex<RamInner>);

/// Lets other futures go first.
async fn turn() {
    let mut waited = false;
    std::future::poll_fn(|context| match std::mem::replace(&mut waited, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

impl RamInner {
    fn version(&self, key: &str) -> Version {
        Version(self.values.get(key).map_or(0, |(_, version)| *version).to_string())
    }

    fn set(&mut self, key: &str, value: Vec<u8>) {
        self.versions += 1;
        self.values.insert(key.to_owned(), (value, self.versions));
    }

    /// Makes a change, and returns the new length, where it was done.
    fn make(&mut self, change: &Change) -> Option<usize> {
        let (key, value) = match change {
            Change::Create { key, value } => (key, (!self.values.contains_key(key)).then(|| value.clone())?),
            Change::Replace { key, seen, value } => (key, (self.version(key) == *seen).then(|| value.clone())?),
            Change::Append { key, max, data } => {
                let mut value = self.values.get(key).map_or_else(Vec::new, |(value, _)| value.clone());
                value.extend_from_slice(data);
                (key, (value.len() <= *max).then_some(value)?)
            }
        };
        let length = value.len();
        self.set(key, value);
        Some(length)
    }

    fn has_fault(&mut self) -> bool {
        self.operations += 1;
        self.faults > 0 && self.chance.below(self.faults) == 0
    }
}

impl Ram {
    /// Makes an empty store; one operation in `faults` meets a fault.
    pub fn new(seed: u64, faults: usize) -> Ram {
        let (values, late) = (BTreeMap::new(), Vec::new());
        Ram(Mutex::new(RamInner { values, versions: 0, late, chance: Chance(seed), faults, operations: 0 }))
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, RamInner> {
        self.0.lock().unwrap()
    }

    /// Ends all faults; changes on their way arrive.
    pub fn heal(&self) {
        let mut inner = self.inner();
        inner.faults = 0;
        for change in std::mem::take(&mut inner.late) {
            inner.make(&change);
        }
    }

    /// Returns all keys with their values.
    pub fn values(&self) -> BTreeMap<String, Vec<u8>> {
        self.inner().values.iter().map(|(key, (value, _))| (key.clone(), value.clone())).collect()
    }

    /// Returns the number of operations.
    pub fn operations(&self) -> u64 {
        self.inner().operations
    }

    async fn read<T>(&self, read: impl Fn(&RamInner) -> T) -> Result<T, Error> {
        turn().await;
        let mut inner = self.inner();
        if inner.has_fault() {
            return Err(Error::TryAgain("a fault".into()));
        }
        Ok(read(&inner))
    }

    async fn change(&self, change: Change) -> Result<Option<usize>, Error> {
        turn().await;
        let mut inner = self.inner();
        if !inner.late.is_empty() && inner.chance.below(8) == 0 {
            let index = inner.chance.0 as usize % inner.late.len();
            let late = inner.late.swap_remove(index);
            inner.make(&late);
        }
        if !inner.has_fault() {
            return Ok(inner.make(&change));
        }
        match inner.chance.below(4) {
            0 => return Err(Error::TryAgain("a fault".into())),
            1 => {}
            2 => {
                inner.make(&change);
            }
            _ => inner.late.push(change),
        }
        Err(Error::Unknown("a fault".into()))
    }
}

impl Store for Ram {
    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.read(|inner| inner.values.get(key).map(|(value, _)| value.clone())).await
    }

    async fn length(&self, key: &str) -> Result<usize, Error> {
        self.read(|inner| inner.values.get(key).map_or(0, |(value, _)| value.len())).await
    }

    async fn versioned(&self, key: &str) -> Result<(Option<Vec<u8>>, Version), Error> {
        self.read(|inner| (inner.values.get(key).map(|(value, _)| value.clone()), inner.version(key))).await
    }

    async fn create(&self, key: &str, value: &[u8]) -> Result<bool, Error> {
        let change = Change::Create { key: key.to_owned(), value: value.to_vec() };
        Ok(self.change(change).await?.is_some())
    }

    async fn replace(&self, key: &str, seen: &Version, value: &[u8]) -> Result<bool, Error> {
        let change = Change::Replace { key: key.to_owned(), seen: seen.clone(), value: value.to_vec() };
        Ok(self.change(change).await?.is_some())
    }

    async fn try_replace(&self, key: &str, seen: &Version, value: &[u8]) -> Result<(), Error> {
        match self.replace(key, seen, value).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::TryAgain("a fault, perhaps after it was done".into())),
        }
    }

    async fn append(&self, key: &str, max: usize, data: &[u8]) -> Result<Option<usize>, Error> {
        self.change(Change::Append { key: key.to_owned(), max, data: data.to_vec() }).await
    }

    async fn pause(&self, _: &mut Pauses) {
        turn().await;
    }
}

/// Runs all of these to their end, one step of one of them after the other, in a random order.
pub fn run_all<'a, T>(mut futures: Vec<Pin<Box<dyn Future<Output = T> + 'a>>>, chance: &mut Chance) -> Vec<T> {
    let mut context = Context::from_waker(Waker::noop());
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    let mut open: Vec<usize> = (0..futures.len()).collect();
    while !open.is_empty() {
        let at = chance.below(open.len());
        if let Poll::Ready(value) = futures[open[at]].as_mut().poll(&mut context) {
            done[open.swap_remove(at)] = Some(value);
        }
    }
    done.into_iter().flatten().collect()
}

/// Runs one future to its end.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
}
