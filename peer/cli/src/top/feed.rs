//! Gathers data in the background, and fails over to another endpoint where the shown one stops answering.
//!
//! Two threads: one asks the shown peer each second; the other asks for the ring, which takes longer because its owners are
//! asked. Drawing never waits for either.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use environment::lock;

use super::gather::{Trouble, gather, gather_ring};
use super::model::Model;

/// Interval between two rounds.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Interval between two requests for the ring: its owners have other work.
const RING_EVERY: Duration = Duration::from_secs(3);
/// Time for which the change to another peer is shown.
const NOTICE: Duration = Duration::from_secs(20);

/// Source of the endpoints: called before each round, because they may change.
pub type Endpoints = Box<dyn Fn() -> Vec<String> + Send>;

/// Gathered data. When it is dropped, its threads end after their current step.
pub struct Feed {
    shared: Arc<FeedState>,
}

#[derive(Default)]
struct FeedState {
    known: Mutex<LastAnswers>,
    /// Notified at the end, and for a request that cannot wait.
    wake: Condvar,
    stop: AtomicBool,
    lane: AtomicU8,
}

#[derive(Default)]
struct LastAnswers {
    model: Model,
    /// Number that each change raises.
    version: u64,
    answered: Option<Instant>,
    ring_answered: Option<Instant>,
    noticed: Option<Instant>,
}

impl Feed {
    /// Begins to gather. `model` is the data that is known already.
    ///
    /// # Errors
    ///
    /// An I/O error where a thread cannot be started.
    pub fn start(endpoints: Endpoints, model: Model) -> std::io::Result<Feed> {
        let (answered, ring_answered) = (model.status.is_some(), model.ring.is_some());
        let now = Instant::now();
        let known = LastAnswers {
            model,
            answered: answered.then_some(now),
            ring_answered: ring_answered.then_some(now),
            ..LastAnswers::default()
        };
        let shared = Arc::new(FeedState { known: Mutex::new(known), ..FeedState::default() });
        let (status, ring) = (shared.clone(), shared.clone());
        thread::Builder::new().name("top-status".into()).spawn(move || status.follow(&endpoints))?;
        thread::Builder::new().name("top-ring".into()).spawn(move || ring.follow_ring())?;
        Ok(Feed { shared })
    }

    /// Copies the present data into `model`, unless `model` has this version already, and sets the ages in any case. Returns
    /// the present version.
    pub fn refresh(&self, model: &mut Model, version: u64) -> u64 {
        let known = self.shared.known();
        if known.version != version {
            *model = known.model.clone();
        }
        let age = |since: Option<Instant>| since.map(|since| since.elapsed().as_secs());
        (model.age_s, model.ring_age_s) = (age(known.answered), age(known.ring_answered));
        if known.noticed.is_none_or(|noticed| noticed.elapsed() > NOTICE) {
            model.notice = None;
        }
        known.version
    }

    /// Selects the lane of the ring that is gathered from now on.
    pub fn look_at_lane(&self, lane: u8) {
        if self.shared.lane.swap(lane, Ordering::SeqCst) != lane {
            let mut known = self.shared.known();
            known.model.ring = None;
            known.version += 1;
            self.shared.wake.notify_all();
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake.notify_all();
    }
}

impl FeedState {
    fn known(&self) -> MutexGuard<'_, LastAnswers> {
        lock(&self.known)
    }

    /// Waits for `time`, and returns whether to go on.
    fn wait(&self, time: Duration) -> bool {
        let known = self.known();
        let goes_on = || !self.stop.load(Ordering::SeqCst);
        if goes_on() {
            drop(self.wake.wait_timeout(known, time).unwrap_or_else(PoisonError::into_inner));
        }
        goes_on()
    }

    fn follow(&self, endpoints: &Endpoints) {
        loop {
            self.round(&endpoints());
            if !self.wait(ASK_EVERY) {
                return;
            }
        }
    }

    /// Asks the shown endpoint, then the other ones until one answers.
    fn round(&self, endpoints: &[String]) {
        let last = self.known().model.clone();
        let mut troubles = BTreeMap::new();
        for endpoint in order(endpoints, &last.endpoint) {
            let known = if *endpoint == last.endpoint { last.clone() } else { Model::default() };
            let since = Instant::now();
            match gather(endpoint, &known) {
                Ok(next) => return self.answered(next, since, &last, &troubles),
                Err(trouble) => {
                    troubles.insert(endpoint.clone(), trouble);
                }
            }
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
        }
        let mut known = self.known();
        known.model.troubles = troubles.iter().map(|(endpoint, why)| (endpoint.clone(), why.to_string())).collect();
        known.version += 1;
    }

    /// Takes answers, which are as old as the first of them, `since`: the last ones may have taken long.
    fn answered(&self, mut next: Model, since: Instant, last: &Model, troubles: &BTreeMap<String, Trouble>) {
        let mut known = self.known();
        if next.endpoint == last.endpoint {
            // The other thread may have gathered it meanwhile.
            next.ring = known.model.ring.take().filter(|_| next.me() == last.me());
            next.notice = known.model.notice.take();
        } else if !last.endpoint.is_empty() {
            let why = troubles.get(&last.endpoint).map_or("it is not there any more".into(), Trouble::to_string);
            next.notice = Some(format!("{}: {why}; this is {} now", last.endpoint, next.endpoint));
            known.noticed = Some(Instant::now());
            known.ring_answered = None;
        }
        known.model = next;
        known.answered = Some(since);
        known.version += 1;
    }

    fn follow_ring(&self) {
        let mut wait = Duration::ZERO;
        while self.wait(wait) {
            let (endpoint, lane) = (self.known().model.endpoint.clone(), self.lane.load(Ordering::SeqCst));
            if endpoint.is_empty() {
                wait = Duration::from_millis(200);
                continue;
            }
            let asked = gather_ring(&endpoint, lane);
            let mut known = self.known();
            let still = known.model.endpoint == endpoint && self.lane.load(Ordering::SeqCst) == lane;
            if let Ok(ring) = asked
                && still
            {
                known.model.ring = Some(ring);
                known.ring_answered = Some(Instant::now());
                known.version += 1;
            }
            wait = if still { RING_EVERY } else { Duration::ZERO };
        }
    }
}

/// Returns the endpoints in the order of asking: the shown one first, if it is among them, then those behind it.
fn order<'a>(endpoints: &'a [String], shown: &str) -> Vec<&'a String> {
    let at = endpoints.iter().position(|endpoint| endpoint == shown).unwrap_or(0);
    endpoints[at..].iter().chain(&endpoints[..at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shown_one_is_asked_first_and_then_its_followers() {
        let endpoints: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
        let order = |shown| order(&endpoints, shown).into_iter().map(String::as_str).collect::<String>();
        assert_eq!((order("b"), order("x"), order("")), ("bca".into(), "abc".into(), "abc".into()));
        assert!(super::order(&[], "a").is_empty());
    }

    /// Starts a peer of this id with a short status, which can be told not to answer.
    fn fake(peer_id: &str) -> (String, Arc<AtomicBool>) {
        use std::io::{Read as _, Write as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, silent) = (listener.local_addr().unwrap().to_string(), Arc::new(AtomicBool::new(false)));
        let (is_silent, peer_id) = (silent.clone(), peer_id.to_owned());
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let mut request = [0; 1024];
                let bytes = stream.read(&mut request).unwrap_or(0);
                if is_silent.load(Ordering::SeqCst) {
                    continue;
                }
                let status = peer::status::Status { peer_id: peer_id.clone(), ..Default::default() };
                let answer = match request[..bytes].split(|byte| *byte == b' ').nth(1) {
                    Some(b"/v1/status") => {
                        format!("HTTP/1.0 200 OK\r\n\r\n{}", serde_json::to_string(&status).unwrap())
                    }
                    Some(b"/readyz") => "HTTP/1.0 200 OK\r\n\r\nready\n".into(),
                    _ => "HTTP/1.0 404 Not Found\r\n\r\n{}".into(),
                };
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        (address, silent)
    }

    /// Waits until the data meets a condition.
    fn until(feed: &Feed, so: impl Fn(&Model) -> bool) -> Model {
        let (mut model, mut version) = (Model::default(), u64::MAX);
        loop {
            version = feed.refresh(&mut model, version);
            if so(&model) {
                return model;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn another_is_shown_where_one_falls_silent() {
        let ((first, first_silent), (second, second_silent)) = (fake("first"), fake("second"));
        let endpoints = vec![first.clone(), second.clone()];
        let feed = Feed::start(Box::new(move || endpoints.clone()), Model::default()).unwrap();
        let model = until(&feed, |model| model.me() == "first");
        assert_eq!(
            (model.endpoint.as_str(), model.ready, &model.peers, &model.notice),
            (first.as_str(), Some(true), &None, &None)
        );
        first_silent.store(true, Ordering::SeqCst);
        let model = until(&feed, |model| model.me() == "second");
        let notice = model.notice.unwrap();
        assert!(notice.starts_with(&first) && notice.ends_with(&format!("this is {second} now")), "{notice}");
        // The feed stays with the second after the first is back; without any answer the feed keeps its data.
        first_silent.store(false, Ordering::SeqCst);
        thread::sleep(ASK_EVERY + ASK_EVERY / 2);
        assert_eq!(until(&feed, |_| true).me(), "second");
        first_silent.store(true, Ordering::SeqCst);
        second_silent.store(true, Ordering::SeqCst);
        let model = until(&feed, |model| model.troubles.len() == 2);
        assert_eq!((model.me(), model.age_s.is_some()), ("second", true));
    }

    #[test]
    fn answers_are_as_old_as_the_first_of_them() {
        let feed = Feed { shared: Arc::default() };
        let next = Model { endpoint: "a".into(), ..Model::default() };
        let since = Instant::now().checked_sub(Duration::from_secs(9)).unwrap();
        feed.shared.answered(next, since, &Model::default(), &BTreeMap::new());
        let mut model = Model::default();
        feed.refresh(&mut model, 0);
        assert!(model.age_s.is_some_and(|age| age >= 9), "{:?}", model.age_s);
    }

    #[test]
    fn the_ring_of_another_peer_at_the_same_place_is_not_kept() {
        let status = |peer_id: &str| peer::status::Status { peer_id: peer_id.into(), ..Default::default() };
        let of = |peer| Model { endpoint: "a".into(), status: Some(status(peer)), ..Model::default() };
        let last = Model { ring: Some(peer::status::Ring::default()), ..of("first") };
        for (peer, kept) in [("first", true), ("second", false)] {
            let feed = Feed { shared: Arc::default() };
            feed.shared.known().model = last.clone();
            feed.shared.answered(of(peer), Instant::now(), &last, &BTreeMap::new());
            assert_eq!(feed.shared.known().model.ring.is_some(), kept);
        }
    }

    #[test]
    fn who_does_not_answer_is_named() {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let endpoint = gone.clone();
        let feed = Feed::start(Box::new(move || vec![endpoint.clone()]), Model::default()).unwrap();
        let (mut model, mut version) = (Model::default(), 0);
        while model.troubles.is_empty() {
            version = feed.refresh(&mut model, version);
            thread::sleep(Duration::from_millis(5));
        }
        assert!(model.troubles.contains_key(&gone) && model.age_s.is_none());
    }
}
