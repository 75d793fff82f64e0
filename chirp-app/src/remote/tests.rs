//! Peers that are silent, refuse, or go away.

use std::future::Future;
use std::pin::pin;
use std::time::Instant;

use futures_util::FutureExt as _;

use super::*;
use crate::peer::Peer;

const SHORT: Limits = Limits {
    patience: Duration::from_millis(1500),
    answer: Duration::from_millis(400),
    connect: Duration::from_millis(200),
};

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn connect(peers: &[&Peer]) -> Remote {
    let addresses: Vec<String> = peers.iter().map(|peer| peer.address.clone()).collect();
    Remote::within(&addresses, None, SHORT).await.unwrap()
}

/// A caller that waits for a connection and is not polled delays no other caller.
#[test]
fn a_waiter_that_is_left_alone_is_in_nobodys_way() {
    let peer = Peer::start();
    run(async {
        let remote = connect(&[&peer]).await;
        let (link, connection) = (&remote.reads, remote.reads.connection().await.unwrap());
        link.give_up(&connection);
        let mut left_alone = pin!(link.connection());
        assert!((&mut left_alone).now_or_never().is_none());
        for _ in 0..3 {
            let mut other = pin!(link.connection());
            assert!((&mut other).now_or_never().is_none());
        }
        assert_eq!(remote.length("key").await.unwrap(), 0);
        assert!(left_alone.await.is_ok());
    });
}

/// Peers forget ids: no command is sent when patience is over, however many wait for a connection.
#[test]
fn nothing_is_sent_after_the_deadline() {
    let peer = Peer::start();
    let began = run(async {
        let remote = connect(&[&peer]).await;
        assert_eq!(remote.append("key", 100, b"before").await.unwrap(), Some(6));
        peer.inner().is_silent = true;
        let began = Instant::now();
        let append = async {
            let error = remote.append("key", 100, b"item").await.unwrap_err();
            assert!(matches!(error, Error::Unknown(_)), "{error}");
        };
        let others = futures_util::future::join_all((0..128).map(|number| {
            let remote = &remote;
            async move {
                let error = remote.length(&format!("key{number}")).await.unwrap_err();
                assert!(matches!(error, Error::TryAgain(_) | Error::Unreachable { .. }), "{error}");
            }
        }));
        tokio::join!(append, others);
        peer.inner().is_silent = false;
        began
    });
    // A command that was sent is taken, however late.
    peer.wait_served();
    let inner = peer.inner();
    let late = inner.changes.iter().filter(|(at, _)| *at > began + SHORT.patience + Duration::from_millis(50));
    assert_eq!(late.count(), 0, "{:?}", inner.changes);
}

/// A connection that comes when patience is over is of no use to its waiting caller.
#[test]
fn nothing_is_sent_over_a_connection_that_comes_too_late() {
    let peer = Peer::start();
    run(async {
        let limits = Limits { patience: Duration::from_millis(300), connect: Duration::from_secs(20), ..SHORT };
        let remote = Remote::within(std::slice::from_ref(&peer.address), None, limits).await.unwrap();
        peer.inner().is_silent = true;
        let append = remote.append("key", 100, b"item");
        let heal = async {
            tokio::time::sleep(2 * limits.patience).await;
            peer.inner().is_silent = false;
        };
        let (appended, ()) = tokio::join!(append, heal);
        assert!(matches!(appended, Err(Error::Unreachable { .. })), "{appended:?}");
        assert!(remote.changes.connection().await.is_ok(), "it comes");
    });
    peer.wait_served();
    assert!(peer.inner().changes.is_empty(), "{:?}", peer.inner().changes);
}

#[test]
fn another_peer_is_asked_where_one_cannot() {
    let (cannot, can) = (Peer::start(), Peer::start());
    cannot.inner().refuses = true;
    run(async {
        let remote = connect(&[&cannot, &can]).await;
        assert_eq!(remote.address(), cannot.address);
        let limits = Limits { patience: Duration::from_secs(10), ..SHORT };
        let remote = Remote { limits, ..remote };
        assert_eq!(remote.get("key").await.unwrap(), None);
        assert_eq!(remote.append("key", 100, b"x").await.unwrap(), Some(1));
        assert_eq!(remote.address(), can.address);
        assert!(cannot.inner().asked > 4);
        // A lone peer is asked until patience is over.
        can.inner().refuses = true;
        let remote = connect(&[&can]).await;
        assert!(matches!(remote.get("key").await, Err(Error::TryAgain(why)) if why.starts_with("TRYAGAIN")));
    });
}

#[test]
fn a_peer_that_has_gone_cannot_be_reached() {
    let (peer, other) = (Peer::start(), Peer::start());
    run(async {
        let remote = connect(&[&peer]).await;
        peer.close();
        let error = remote.get("key").await.unwrap_err();
        assert_eq!(error.exit(), 3, "{error}");
        assert!(matches!(remote.trouble(), Some(Error::Unreachable { .. })));
        peer.inner().is_closed = false;
        assert_eq!(remote.get("key").await.unwrap(), None);
        assert!(remote.trouble().is_none());
        let remote = connect(&[&peer, &other]).await;
        peer.close();
        assert_eq!(remote.get("key").await.unwrap(), None, "the other one answers");
        assert_eq!(remote.address(), other.address);
    });
}
