//! Chirp on real daemons: posts, follows and sign-ups, while daemons are killed and answers are lost.
//!
//! `SCATTER_BIN` names the daemon's binary; without it, it is built. `SCATTER_LONG=1` makes the test run for longer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chirp_app::list::{AppendMode, Place};
use chirp_app::remote::Remote;
use chirp_app::{Chirp, Error, UserName};
use testnet::live::{Cluster, ClusterOptions, LossyProxy, short_or};
use testnet::rng::Rng;

const POSTERS: usize = 10;

fn name(name: &str) -> UserName {
    name.parse().expect("a name")
}

async fn chirp(addresses: &[String], mode: AppendMode) -> Chirp<Remote> {
    Chirp::new(Remote::connect(addresses, None).await.expect("a peer answers"), mode)
}

/// Result of one post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Posted {
    Yes,
    No,
    Unknown,
}

/// One of several posters under the same name, one chirp after the other. Returns the texts with their results.
async fn poster(number: usize, addresses: Vec<String>, over: Arc<AtomicBool>) -> Vec<(String, Posted)> {
    // Two of the posters append as in the paper.
    let mode = if number < 2 { AppendMode::ReadModifyWrite } else { AppendMode::Atomic };
    let chirp = chirp(&addresses, mode).await;
    let mut posts = Vec::new();
    while !over.load(Ordering::SeqCst) {
        let text = format!("poster {number} says {} {}", posts.len(), "and more ".repeat(posts.len() % 12));
        let text: chirp_app::Text = text.parse().expect("a text");
        let posted = match chirp.post(&name("crowd"), &text, None).await {
            Ok(_) => Posted::Yes,
            Err(Error::Unknown(_)) => Posted::Unknown,
            Err(Error::TryAgain(_) | Error::Unreachable { .. }) => Posted::No,
            Err(error) => panic!("poster {number}: {error}"),
        };
        posts.push((text.as_str().to_owned(), posted));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    posts
}

/// Reads on, like a timeline that is watched. Returns each chirp once, in the order that all other readers see.
async fn watcher(addresses: Vec<String>, over: Arc<AtomicBool>) -> (Vec<String>, Place) {
    let chirp = chirp(&addresses, AppendMode::Atomic).await;
    let (mut seen, mut place) = (Vec::new(), Place::default());
    while !over.load(Ordering::SeqCst) {
        // Updates that are read before an error are read again.
        let mut at = place;
        if let Ok(records) = chirp.updates_since(&name("crowd"), &mut at).await {
            seen.extend(records.into_iter().map(|record| record.text));
            place = at;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    (seen, place)
}

/// Kills one daemon after the other, and starts it again.
fn kill_and_restart(cluster: &mut Cluster, over: &AtomicBool) -> u32 {
    let (mut rng, mut kills) = (Rng::new(7, "chirp"), 0);
    let until = Instant::now() + short_or(20, 300);
    while Instant::now() < until {
        let index = rng.below(cluster.daemons.len() as u64) as usize;
        cluster.kill(index);
        std::thread::sleep(rng.duration(Duration::from_millis(100), Duration::from_secs(2)));
        cluster.restart(index);
        cluster.wait_ready(index);
        std::thread::sleep(Duration::from_millis(500));
        kills += 1;
    }
    over.store(true, Ordering::SeqCst);
    kills
}

#[test]
fn nothing_that_ten_post_at_once_is_lost_or_doubled() {
    let flags = ["--min-group", "3", "--max-group", "5"].map(str::to_owned).to_vec();
    let mut cluster =
        Cluster::start("chirp", &ClusterOptions { daemons: 6, flags, ring: true, ..ClusterOptions::default() });
    let lossy: Vec<LossyProxy> =
        (0..6u64).map(|index| LossyProxy::start(cluster.daemons[index as usize].resp, 40, index)).collect();
    let address = |index: usize| lossy[index % lossy.len()].address.to_string();
    let over = Arc::new(AtomicBool::new(false));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let direct: Vec<String> = cluster.daemons.iter().map(|daemon| daemon.resp.to_string()).collect();
    runtime.block_on(async {
        let chirp = chirp(&direct, AppendMode::Atomic).await;
        chirp.sign_up(&name("crowd"), None).await.expect("the name is free");
    });
    let posters: Vec<_> = (0..POSTERS)
        .map(|number| {
            // Each poster uses a peer of its own; where that peer is gone, the next but one.
            let addresses = vec![address(number), address(number + 2), address(number + 4)];
            runtime.spawn(poster(number, addresses, over.clone()))
        })
        .collect();
    let watch = runtime.spawn(watcher(vec![address(1), address(3), address(5)], over.clone()));
    let kills = kill_and_restart(&mut cluster, &over);
    let mut posted = Vec::new();
    for poster in posters {
        posted.push(runtime.block_on(poster).expect("a poster ends well"));
    }
    let (mut seen, mut place) = runtime.block_on(watch).expect("the watcher ends well");

    let (all, count) = runtime.block_on(async {
        let chirp = chirp(&direct, AppendMode::Atomic).await;
        let updates = chirp.updates(&name("crowd"), usize::MAX).await.expect("all can be read");
        let rest = chirp.updates_since(&name("crowd"), &mut place).await.expect("the rest can be read");
        seen.extend(rest.into_iter().map(|record| record.text));
        (updates.records.into_iter().map(|record| record.text).collect::<Vec<_>>(), updates.count)
    });
    assert_eq!(count, all.len() as u64, "the head counts all");
    assert_eq!(seen, all, "who reads on sees what all see");
    let lost: u32 = lossy.iter().map(LossyProxy::lost).sum();
    let [yes, no, unknown] = check_posts(&all, &posted);
    println!("{kills} kills, {lost} lost answers: {yes} posted, {no} not, of {unknown} nobody knows");
    assert!(yes > 200 && kills >= 3 && lost >= 5, "too little happened");
}

/// Checks that all posts are there once, in the order of each poster, unless their outcome says otherwise. Counts the outcomes.
fn check_posts(all: &[String], posted: &[Vec<(String, Posted)>]) -> [u32; 3] {
    let mut counts = [0; 3];
    let mut places = BTreeMap::new();
    for (place, text) in all.iter().enumerate() {
        assert_eq!(places.insert(text, place), None, "twice: {text}");
    }
    for posts in posted {
        let mut last = None;
        for (text, posted) in posts {
            counts[*posted as usize] += 1;
            let place = places.remove(text);
            match posted {
                Posted::Yes => assert!(place.is_some(), "lost: {text}"),
                Posted::No => assert_eq!(place, None, "not posted, and there: {text}"),
                Posted::Unknown => {}
            }
            if *posted == Posted::Yes {
                assert!(place > last, "out of order: {text}");
                last = place;
            }
        }
    }
    assert!(places.is_empty(), "nobody posted these: {places:?}");
    counts
}

#[test]
fn a_name_is_taken_once() {
    let cluster = Cluster::start("chirp-names", &ClusterOptions { daemons: 3, ..ClusterOptions::default() });
    let lossy: Vec<LossyProxy> =
        (0..3u64).map(|index| LossyProxy::start(cluster.daemons[index as usize].resp, 6, index)).collect();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    for round in 0..10 {
        let tries: Vec<_> = (0..9)
            .map(|number| {
                // The name is the same in either case.
                let wanted = if number % 2 == 0 { format!("Same-{round}") } else { format!("same-{round}") };
                let all = [0, 1, 2].map(|more| lossy[(number + more) % 3].address.to_string());
                runtime.spawn(async move {
                    let remote = loop {
                        // The first messages of the connection may be lost as well.
                        match Remote::connect(&all, None).await {
                            Ok(remote) => break remote,
                            Err(error) => assert!(matches!(error, Error::Unreachable { .. }), "{error}"),
                        }
                    };
                    let chirp = Chirp::new(remote, AppendMode::Atomic);
                    (wanted.clone(), chirp.sign_up(&name(&wanted), None).await)
                })
            })
            .collect();
        let mut owner = None;
        for one in tries {
            match runtime.block_on(one).expect("it ends well") {
                (wanted, Ok(())) => assert_eq!(owner.replace(wanted), None, "two have the same name"),
                (_, Err(Error::Taken(_))) => {}
                (_, Err(error)) => panic!("{error}"),
            }
        }
        let owner = owner.expect("somebody has it");
        let direct = [cluster.daemons[0].resp.to_string()];
        let profile = runtime.block_on(async { chirp(&direct, AppendMode::Atomic).await.profile(&name(&owner)).await });
        assert_eq!(profile.expect("it is there").name.as_str(), owner, "as who has it wrote it");
    }
}
