//! Runs of one kind on several cores.

use std::panic::resume_unwind;
use std::sync::Mutex;
use std::thread;

/// Runs `one` for each item, on at most `jobs` threads at a time (at least one), and returns the results in the order of the items. Items
/// begin in order. A panic of a run goes on here, once all threads have ended.
pub fn in_parallel<T: Sync, R: Send>(jobs: usize, items: &[T], one: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let waiting = Mutex::new(items.iter().enumerate());
    let next = || waiting.lock().ok()?.next();
    let work = || {
        let mut done = Vec::new();
        while let Some((place, item)) = next() {
            done.push((place, one(item)));
        }
        done
    };
    let mut all: Vec<(usize, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.clamp(1, items.len().max(1))).map(|_| scope.spawn(work)).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, _>| worker.join().unwrap_or_else(|panic| resume_unwind(panic));
        workers.into_iter().flat_map(join).collect()
    });
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..100).collect();
        for jobs in [0, 1, 3, 200] {
            assert!(in_parallel(jobs, &items, |item| item * 2).into_iter().eq((0..100).map(|item| item * 2)), "{jobs}");
        }
        assert!(in_parallel(2, &[] as &[u64], |item| *item).is_empty());
    }
}
