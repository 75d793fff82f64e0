//! The worker at a peer that fails.

use std::sync::mpsc::channel;

use super::*;
use crate::peer::Peer;

/// A worker for ann, who follows so many users, at this peer.
fn begin(peer: &Peer, follows: usize) -> (Sender<Ask>, Receiver<News>) {
    peer.person("ann", (0..follows).map(|number| format!("u{number}")));
    let start = Start {
        addresses: vec![peer.address.clone()],
        password: None,
        mode: AppendMode::Atomic,
        user: Some("ann".parse().unwrap()),
        key: None,
    };
    #[expect(clippy::disallowed_methods, reason = "as in the program")]
    let ((asks, asked), (tell, told)) = (channel(), channel());
    std::thread::spawn(move || work(start, asked, tell));
    (asks, told)
}

/// Returns the wanted news out of those of 30 s.
fn wait<T>(news: &Receiver<News>, mut wanted: impl FnMut(&News) -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let next = news.recv_timeout(until.saturating_duration_since(Instant::now())).expect("it is told");
        if let Some(found) = wanted(&next) {
            return found;
        }
    }
}

fn is_read(news: &News) -> Option<()> {
    matches!(news, News::Read).then_some(())
}

/// While a look waits for a peer that has gone, a post does not wait for the look, nor the look for the post;
/// afterwards both go on.
#[test]
fn an_outage_is_said_and_survived() {
    let peer = Peer::start();
    let (asks, news) = begin(&peer, 30);
    wait(&news, is_read);
    peer.close();
    wait(&news, |news| matches!(news, News::Trouble(Error::Unreachable { .. })).then_some(()));
    asks.send(Ask::Post("hello".parse().unwrap())).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    peer.inner().is_closed = false;
    let (mut has_posted, mut has_recovered) = (false, false);
    while !(has_posted && has_recovered) {
        wait(&news, |news| {
            has_posted |= matches!(news, News::Done(Ask::Post(_), _));
            has_recovered |= matches!(news, News::Recovered);
            Some(())
        });
    }
}

/// A long look delays neither a post nor a visit.
#[test]
fn what_is_asked_does_not_wait_for_a_look() {
    let peer = Peer::start();
    let (asks, news) = begin(&peer, 400);
    wait(&news, is_read);
    peer.inner().each = Duration::from_millis(5); // A look takes 2 s.
    std::thread::sleep(Duration::from_secs(1));
    for text in ["one", "two"] {
        let before = peer.inner().asked;
        asks.send(Ask::Post(text.parse().unwrap())).unwrap();
        wait(&news, |news| matches!(news, News::Done(Ask::Post(_), _)).then_some(()));
        let meanwhile = peer.inner().asked - before;
        assert!(meanwhile < 200, "a look asks 400 times, and {meanwhile} came before the post was done");
    }
    asks.send(Ask::Page("nobody".parse().unwrap())).unwrap();
    asks.send(Ask::Page("ann".parse().unwrap())).unwrap();
    wait(&news, |news| matches!(news, News::Page(page) if page.profile.name.as_str() == "ann").then_some(()));
}

/// A lasting problem is reported once.
#[test]
fn the_same_trouble_is_said_once() {
    let peer = Peer::start();
    peer.inner().values.insert("chirp/updates/u1".into(), b"something else".to_vec());
    let (_asks, news) = begin(&peer, 3);
    wait(&news, is_read);
    let until = Instant::now() + Duration::from_secs(4);
    let mut said = 0;
    while let Ok(news) = news.recv_timeout(until.saturating_duration_since(Instant::now())) {
        said += usize::from(matches!(news, News::Trouble(_)));
    }
    assert_eq!(said, 1);
}
