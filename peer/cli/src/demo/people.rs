//! Simulated users of the demo's network: their posts when it begins, and their posts from then on.
//!
//! They use the network as any client does: by the Redis protocol, through any peer that answers.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::mpsc::Sender;
use std::time::Duration;

use chirp_app::list::AppendMode;
use chirp_app::remote::Remote;
use chirp_app::store::Store;
use chirp_app::timeline::{Line, Timeline};
use chirp_app::{Chirp, Error, UserName};

/// Names of the users; the first follows all other users, and each of these follows the next one.
const PEOPLE: [&str; 5] = ["ann", "bob", "cleo", "dan", "eve"];
/// The user that follows all other users.
pub const READER: &str = PEOPLE[0];

/// Posts before the demo begins: author and text.
const HISTORY: [(usize, &str); 10] = [
    (0, "hello? is anybody here?"),
    (1, "I am! and nobody runs this thing but us"),
    (2, "so who keeps what we write?"),
    (1, "a few peers each, who agree on every word before you are told that it is posted"),
    (3, "what if my peer is switched off while I write?"),
    (2, "then any other peer takes your word for it. try it: kill one"),
    (4, "I just did. this came through another 😄"),
    (0, "and nothing is there twice?"),
    (1, "nothing. not even if your peer dies between the post and the answer"),
    (3, "then I am in"),
];

/// Posts from then on, one after the other and over again.
const TALK: [&str; 16] = [
    "good morning from the ring",
    "who has seen the dashboard? my group is the blue one",
    "coffee ☕ and consensus",
    "a group of three can lose one of them and go on",
    "somebody killed my peer. I did not even notice",
    "reads are linearizable here: what you have seen, nobody un-sees",
    "when a group grows it splits in two, when it shrinks it merges",
    "just started my peer again, it copied what it had missed",
    "does anybody else watch the epochs go up?",
    "the leader moved; I would not know if I had not looked",
    "there is no server. there never was",
    "posted from a laptop on a train 🚆",
    "140 characters are enough for anybody",
    "my timeline is whole, though two peers are gone",
    "what is the longest that anybody's peer has been up?",
    "good night, and leave your daemons on 🌙",
];

/// Interval of the posts.
const PAUSE: Duration = Duration::from_millis(3500);
/// Interval of the searches for new posts.
const LOOK: Duration = Duration::from_millis(700);

fn name(index: usize) -> UserName {
    PEOPLE[index % PEOPLE.len()].parse().expect("a name of this program's own")
}

async fn chirp(peers: &[SocketAddr]) -> Result<Chirp<Remote>, Error> {
    let addresses: Vec<String> = peers.iter().map(SocketAddr::to_string).collect();
    Ok(Chirp::new(Remote::connect(&addresses, None).await?, AppendMode::Atomic))
}

/// Signs the users up and writes their first posts.
///
/// # Errors
///
/// The first error of the store; earlier posts stay.
pub async fn settle(peers: &[SocketAddr]) -> Result<(), Error> {
    begin(&chirp(peers).await?).await
}

async fn begin<S: Store>(chirp: &Chirp<S>) -> Result<(), Error> {
    for index in 0..PEOPLE.len() {
        match chirp.sign_up(&name(index), None).await {
            // An early user of the demo may have taken a name.
            Ok(()) | Err(Error::Taken(_)) => {}
            Err(error) => return Err(error),
        }
    }
    for index in 1..PEOPLE.len() {
        chirp.follow(&name(0), &name(index)).await?;
        chirp.follow(&name(index), &name(index + 1)).await?;
    }
    for (index, text) in HISTORY {
        chirp.post(&name(index), &text.parse()?, None).await?;
    }
    Ok(())
}

/// Lets the users go on posting, and sends the reader's new lines to `seen`, until its receiver is gone. `peers` returns
/// the present addresses of peers.
pub async fn talk(peers: impl Fn() -> Vec<SocketAddr>, seen: Option<Sender<Line>>) {
    let (mut turn, mut timeline) = (0, None);
    loop {
        if let Ok(chirp) = chirp(&peers()).await {
            let listener = async {
                match &seen {
                    Some(seen) => listen(&chirp, &mut timeline, seen).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = speak(&chirp, &mut turn) => {}
                heard = listener => if heard.is_break() { return },
            }
        }
        // All peers may be gone for a while.
        tokio::time::sleep(LOOK).await;
    }
}

/// Posts until a post fails.
async fn speak<S: Store>(chirp: &Chirp<S>, turn: &mut usize) {
    loop {
        tokio::time::sleep(PAUSE).await;
        // By the clock of the talk, not of the history: in no order that repeats soon.
        let (who, what) = (*turn * 7 + *turn / 5, TALK[*turn % TALK.len()]);
        *turn += 1;
        let Ok(text) = what.parse() else { continue };
        if chirp.post(&name(who), &text, None).await.is_err() {
            return;
        }
    }
}

/// Reads until a read fails, or the receiver is gone. It goes on behind the lines that were sent already: `timeline`.
async fn listen<S: Store>(chirp: &Chirp<S>, timeline: &mut Option<Timeline>, seen: &Sender<Line>) -> ControlFlow<()> {
    loop {
        let timeline = match timeline {
            Some(timeline) => timeline,
            None => match Timeline::open(chirp, &name(0)).await {
                Ok(opened) => timeline.insert(opened),
                Err(_) => return ControlFlow::Continue(()),
            },
        };
        let Ok(found) = timeline.poll(chirp, HISTORY.len()).await else { return ControlFlow::Continue(()) };
        for line in found.lines {
            if seen.send(line).is_err() {
                return ControlFlow::Break(());
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use chirp_app::patience::Pauses;
    use chirp_app::store::Version;
    use environment::lock;

    use super::*;

    /// Store without a network: values with the number of their changes.
    #[derive(Default)]
    struct MapStore(Mutex<BTreeMap<String, (Vec<u8>, u64)>>);

    impl MapStore {
        /// Changes a value, where it may. Returns whether it did.
        fn change(&self, key: &str, may: impl Fn(&[u8], u64) -> bool, to: impl Fn(&[u8]) -> Vec<u8>) -> bool {
            let mut table = lock(&self.0);
            let (value, count) = table.entry(key.into()).or_default();
            if !may(value, *count) {
                return false;
            }
            (*value, *count) = (to(value), *count + 1);
            true
        }
    }

    impl Store for MapStore {
        async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
            Ok(self.versioned(key).await?.0)
        }

        async fn length(&self, key: &str) -> Result<usize, Error> {
            Ok(self.get(key).await?.map_or(0, |value| value.len()))
        }

        async fn versioned(&self, key: &str) -> Result<(Option<Vec<u8>>, Version), Error> {
            let (value, count) = lock(&self.0).get(key).cloned().unwrap_or_default();
            Ok(((count > 0).then_some(value), Version(count.to_string())))
        }

        async fn create(&self, key: &str, value: &[u8]) -> Result<bool, Error> {
            Ok(self.change(key, |_, count| count == 0, |_| value.into()))
        }

        async fn replace(&self, key: &str, seen: &Version, value: &[u8]) -> Result<bool, Error> {
            Ok(self.change(key, |_, count| seen.0 == count.to_string(), |_| value.into()))
        }

        async fn try_replace(&self, key: &str, seen: &Version, value: &[u8]) -> Result<(), Error> {
            self.replace(key, seen, value).await.map(drop)
        }

        async fn append(&self, key: &str, max: usize, data: &[u8]) -> Result<Option<usize>, Error> {
            let fits = |value: &[u8], _| value.len() + data.len() <= max;
            let done = self.change(key, fits, |value| [value, data].concat());
            Ok(if done { Some(self.length(key).await?) } else { None })
        }

        async fn pause(&self, _: &mut Pauses) {
            tokio::task::yield_now().await;
        }
    }

    /// A connection may be lost and found again meanwhile.
    #[tokio::test]
    async fn what_was_heard_is_not_heard_again_and_who_does_not_listen_is_left_alone() {
        let chirp = Chirp::new(MapStore::default(), AppendMode::Atomic);
        begin(&chirp).await.unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test takes every message")]
        let (seen, heard) = channel();
        let mut timeline = None;
        for count in [HISTORY.len(), 0] {
            let listens = tokio::time::timeout(LOOK / 2, listen(&chirp, &mut timeline, &seen)).await;
            assert!(listens.is_err(), "it goes on");
            assert_eq!(heard.try_iter().count(), count);
        }
        drop(heard);
        chirp.post(&name(1), &TALK[0].parse().unwrap(), None).await.unwrap();
        assert!(listen(&chirp, &mut timeline, &seen).await.is_break());
    }

    #[test]
    fn what_they_say_can_be_said() {
        for text in HISTORY.iter().map(|(_, text)| text).chain(&TALK) {
            assert!(text.parse::<chirp_app::Text>().is_ok(), "{text}");
        }
        assert!((0..10).all(|index| name(index).as_str() == PEOPLE[index % 5]));
    }
}
