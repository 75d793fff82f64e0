//! Load of a peer, second by second.

use std::collections::VecDeque;
use std::time::Instant;

use crate::resp::latencies::Counts;
use crate::status::LoadSample;

/// Upper limit of samples: five minutes.
const SAMPLES_MAX: usize = 300;
/// Number of samples in an average of the last seconds.
const LATELY: usize = 5;

/// Last samples, and the values that the next one is compared with.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    samples: VecDeque<LoadSample>,
    last: Option<Last>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    at: Instant,
    counts: Counts,
    sent: u64,
    received: u64,
}

impl Recorder {
    /// Takes a sample; the first call only begins one.
    pub fn sample(&mut self, at: Instant, unix_s: u64, counts: Counts, (sent, received): (u64, u64)) {
        if let Some(last) = self.last {
            let seconds = at.saturating_duration_since(last.at).as_secs_f64().max(1e-3);
            let since = counts.since(&last.counts);
            let millis = |part| since.quantile(part).map(|time| time.as_secs_f64() * 1e3);
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            let unix_s = self.next(unix_s);
            if self.samples.len() == SAMPLES_MAX {
                self.samples.pop_front();
            }
            self.samples.push_back(LoadSample {
                unix_s,
                ops_per_s: since.total() as f64 / seconds,
                p50_ms: millis(0.5),
                p99_ms: millis(0.99),
                sent_bytes_per_s: rate(sent, last.sent),
                received_bytes_per_s: rate(received, last.received),
            });
        }
        self.last = Some(Last { at, counts, sent, received });
    }

    /// Returns the second of the next sample. A reader that asks for samples behind one second must not miss another of
    /// the same second. Where the clock was set back the times begin anew.
    fn next(&mut self, unix_s: u64) -> u64 {
        match self.samples.back().map(|sample| sample.unix_s) {
            // A second that was a little short, or a clock that is steered.
            Some(last) if unix_s <= last && last - unix_s <= 1 => last + 1,
            Some(last) if unix_s < last => {
                self.samples.clear();
                unix_s
            }
            _ => unix_s,
        }
    }

    /// Returns the samples, oldest first.
    pub fn samples(&self) -> Vec<LoadSample> {
        self.samples.iter().copied().collect()
    }

    /// Returns the bytes per second, both ways, of the last samples; `None` before the first.
    pub fn bandwidth(&self) -> Option<u64> {
        let lately = self.samples.iter().rev().take(LATELY);
        let count = lately.len();
        let sum: f64 = lately.map(|sample| sample.sent_bytes_per_s + sample.received_bytes_per_s).sum();
        (count > 0).then(|| (sum / count as f64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::resp::latencies::Latencies;

    #[test]
    fn a_sample_is_what_came_between() {
        let (start, latencies) = (Instant::now(), Latencies::default());
        let mut recorder = Recorder::default();
        let at = |seconds| start + Duration::from_secs(seconds);
        latencies.count(Duration::from_millis(5));
        recorder.sample(at(0), 100, latencies.counts(), (1000, 0));
        assert_eq!((recorder.samples().len(), recorder.bandwidth()), (0, None));
        (0..50).for_each(|_| latencies.count(Duration::from_millis(1)));
        recorder.sample(at(2), 102, latencies.counts(), (3000, 500));
        // A peer was forgotten, with its counts.
        recorder.sample(at(3), 103, latencies.counts(), (100, 600));
        let samples = recorder.samples();
        assert_eq!((samples[0].unix_s, samples[0].ops_per_s, samples[0].sent_bytes_per_s), (102, 25.0, 1000.0));
        assert!(samples[0].p50_ms.is_some_and(|millis| (0.8..1.25).contains(&millis)));
        assert_eq!((samples[1].ops_per_s, samples[1].p99_ms, samples[1].sent_bytes_per_s), (0.0, None, 0.0));
        assert_eq!(recorder.bandwidth(), Some((1250 + 100) / 2));
    }

    #[test]
    fn no_two_samples_bear_the_same_second_and_a_clock_that_was_set_back_begins_anew() {
        let (start, counts) = (Instant::now(), Counts::default());
        let mut recorder = Recorder::default();
        let mut after = |number: u64, unix_s| {
            recorder.sample(start + Duration::from_secs(number), unix_s, counts, (0, 0));
            recorder.samples().iter().map(|sample| sample.unix_s).collect::<Vec<_>>()
        };
        (0..3).for_each(|number| drop(after(number, 5000 + number)));
        assert_eq!(after(3, 5002), [5001, 5002, 5003]);
        assert_eq!(after(4, 5004), [5001, 5002, 5003, 5004]);
        assert_eq!((after(5, 1400), after(6, 1401)), (vec![1400], vec![1400, 1401]));
    }

    #[test]
    fn it_is_bounded() {
        let (start, counts) = (Instant::now(), Counts::default());
        let mut recorder = Recorder::default();
        (0..1000).for_each(|s| recorder.sample(start + Duration::from_secs(s), s, counts, (0, 0)));
        let samples = recorder.samples();
        assert_eq!((samples.len(), samples[0].unix_s, samples[SAMPLES_MAX - 1].unix_s), (SAMPLES_MAX, 700, 999));
    }
}
