//! A handful of people who use the demo's network: what they have said when it begins, and what they say from then on.
//!
//! They reach the network as anybody does, by the Redis protocol, through whichever peer answers.

use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::Duration;

use chirp_app::list::AppendMode;
use chirp_app::remote::Remote;
use chirp_app::timeline::{Found, Line, Timeline};
use chirp_app::{Chirp, Error, UserName};

/// Who they are; the first follows all others, and the others those next to them.
const PEOPLE: [&str; 5] = ["ann", "bob", "cleo", "dan", "eve"];
/// Who follows everybody.
pub const READER: &str = PEOPLE[0];

/// What was said before anybody looked: who, and what.
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

/// What is said from then on, one after the other and over again.
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

/// One posts something about as often.
const PAUSE: Duration = Duration::from_millis(3500);
/// How often it is looked for what is new.
const LOOK: Duration = Duration::from_millis(700);

fn name(index: usize) -> UserName {
    PEOPLE[index % PEOPLE.len()].parse().expect("a name of this program's own")
}

async fn chirp(peers: &[SocketAddr]) -> Result<Chirp<Remote>, Error> {
    let addresses: Vec<String> = peers.iter().map(SocketAddr::to_string).collect();
    Ok(Chirp::new(Remote::connect(&addresses, None).await?, AppendMode::Atomic))
}

/// Signs them up and has them say what they have said.
pub async fn settle(peers: &[SocketAddr]) -> Result<(), Error> {
    let chirp = chirp(peers).await?;
    for index in 0..PEOPLE.len() {
        match chirp.sign_up(&name(index), None).await {
            // Whoever tries things out early may have taken a name.
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

/// Has them go on talking, and tells what whoever follows them sees, until nobody listens. `peers`: where peers are now.
pub async fn talk(peers: impl Fn() -> Vec<SocketAddr>, seen: Option<Sender<Line>>) {
    let mut turn = 0;
    loop {
        // All of them may be gone for a while.
        let Ok(chirp) = chirp(&peers()).await else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        let writer = async {
            loop {
                tokio::time::sleep(PAUSE).await;
                // By the clock of the talk, not of the history: in no order that repeats soon.
                let (who, what) = (turn * 7 + turn / 5, TALK[turn % TALK.len()]);
                turn += 1;
                let Ok(text) = what.parse() else { continue };
                if chirp.post(&name(who), &text, None).await.is_err() {
                    return;
                }
            }
        };
        let reader = async {
            let Some(seen) = &seen else { return std::future::pending().await };
            let Ok(mut timeline) = Timeline::open(&chirp, &name(0)).await else { return };
            loop {
                let Ok(Found { lines, .. }) = timeline.poll(&chirp, HISTORY.len()).await else { return };
                for line in lines {
                    if seen.send(line).is_err() {
                        return;
                    }
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            () = writer => {}
            () = reader => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_they_say_can_be_said() {
        for text in HISTORY.iter().map(|(_, text)| text).chain(&TALK) {
            assert!(text.parse::<chirp_app::Text>().is_ok(), "{text}");
        }
        assert!((0..10).all(|index| name(index).as_str() == PEOPLE[index % 5]));
    }
}
