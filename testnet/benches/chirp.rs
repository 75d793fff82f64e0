//! Durations of `chirp` for users with much to read, on five real daemons on loopback: the timeline of a user who follows many,
//! and the last chirps of a user with many. To the first line that is printed, and to the last.
//!
//! ```text
//! cargo bench -p testnet --bench chirp [-- [--follows N] [--updates N] [--rounds N]]
//! ```

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use chirp_app::list::{AppendMode, List};
use chirp_app::remote::Remote;
use chirp_app::{Chirp, Record, UserName, follows};
use futures_util::stream::{self, StreamExt as _};
use testnet::live::{Cluster, ClusterOptions, Spread, chirp_program};

const AT_ONCE: usize = 128;

fn main() {
    let (follows, updates, rounds) = arguments();
    // The build of the program is not measured.
    chirp_program();
    let cluster = Cluster::start("chirp-bench", &ClusterOptions { daemons: 5, ..ClusterOptions::default() });
    let addresses: Vec<String> = cluster.daemons.iter().map(|daemon| daemon.resp.to_string()).collect();
    let began = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(populate(&addresses, follows, updates));
    println!(
        "five daemons; ann follows {follows}, each with one to three chirps; bob has posted {updates}; written in {:.1?}",
        began.elapsed()
    );
    println!("of {rounds} rounds: median (most), milliseconds\n");
    println!("{:44} {:>24} {:>24} {:>8}", "", "to the first line", "to the last", "lines");
    for (name, words) in [
        ("timeline", &["--user", "ann", "timeline"][..]),
        ("timeline, 1000 lines", &["--user", "ann", "timeline", "-n", "1000"]),
        ("following", &["--user", "ann", "following"]),
        ("profile of one with many", &["profile", "bob"]),
        ("all that one with many has posted", &["profile", "bob", "-n", "1000000"]),
        ("timeline of one who follows one with many", &["--user", "cy", "timeline"]),
        ("profile of one with few", &["profile", "u7"]),
    ] {
        let mut all: [Vec<Duration>; 2] = [Vec::new(), Vec::new()];
        let mut lines = 0;
        for round in 0..rounds {
            let (first, last, count) = run(&addresses[round % addresses.len()], words);
            if last > Duration::from_secs(2) {
                println!("round {round} of {name}: {first:.1?} to the first line, {last:.1?} to the last");
            }
            all[0].push(first);
            all[1].push(last);
            lines = count;
        }
        let [first, last] = all.map(|times| {
            let Spread { p50, most, .. } = Spread::of(times);
            format!("{} ({})", p50.as_millis(), most.as_millis())
        });
        println!("{name:44} {first:>24} {last:>24} {lines:>8}");
    }
}

fn arguments() -> (usize, usize, usize) {
    let (mut follows, mut updates, mut rounds) = (10_000, 100_000, 5);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let place = match name.as_str() {
            "--follows" => &mut follows,
            "--updates" => &mut updates,
            "--rounds" => &mut rounds,
            _ => continue, // A word that cargo gives to benches.
        };
        *place = arguments.next().and_then(|number| number.parse().ok()).expect("a number");
    }
    (follows, updates, rounds)
}

fn name(name: &str) -> UserName {
    name.parse().expect("a name")
}

/// Creates many users, each with a few chirps; one user that follows all of them; and one user with many chirps.
async fn populate(addresses: &[String], follows: usize, updates: usize) {
    let store = Remote::connect(addresses, None).await.expect("a peer answers");
    let chirp = Chirp::new(Remote::connect(addresses, None).await.expect("a peer answers"), AppendMode::Atomic);
    let of = |number: usize| name(&format!("u{number}"));
    let people = stream::iter(0..follows).map(|number| {
        let chirp = &chirp;
        async move {
            chirp.sign_up(&of(number), None).await.expect("the name is free");
            for post in 0..=number % 3 {
                let text = format!("this is what u{number} has to say, and it is number {post} of what was to be said");
                chirp.post(&of(number), &text.parse().expect("a text"), None).await.expect("posted");
            }
        }
    });
    people.buffer_unordered(AT_ONCE).collect::<()>().await;
    for user in ["ann", "bob", "cy"] {
        chirp.sign_up(&name(user), None).await.expect("the name is free");
    }
    chirp.follow(&name("cy"), &name("bob")).await.expect("followed");
    let ann = List::new(&store, "chirp/follows/ann", AppendMode::Atomic);
    append(&ann, (0..follows).map(|number| follows::item(&of(number), true, 0))).await;
    let bob = List::new(&store, "chirp/updates/bob", AppendMode::Atomic);
    let text = "x".repeat(100).parse().expect("a text");
    append(&bob, (0..updates as u64).map(|at| Record::new(&name("bob"), &text, at, None).to_item())).await;
}

/// Appends many items to one list, several on their way at a time.
async fn append(list: &List<'_, Remote>, items: impl Iterator<Item = Vec<u8>>) {
    let tail = std::sync::Mutex::new(None);
    let appended = stream::iter(items).map(|item| {
        let tail = &tail;
        async move {
            let mut known = *tail.lock().expect("nobody panicked");
            list.append(&item, &mut known).await.expect("appended");
            let mut tail = tail.lock().expect("nobody panicked");
            *tail = (*tail).max(known);
        }
    });
    appended.buffer_unordered(32).collect::<()>().await;
}

/// Runs the program. Returns the time of its first line, the time of its end, and the number of lines.
fn run(address: &str, words: &[&str]) -> (Duration, Duration, usize) {
    let began = Instant::now();
    let mut child = std::process::Command::new(chirp_program())
        .args(["--addr", address])
        .args(words)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let out = BufReader::new(child.stdout.take().expect("it was asked for"));
    let (mut first, mut count) = (None, 0);
    for line in out.lines() {
        line.expect("text");
        first.get_or_insert_with(|| began.elapsed());
        count += 1;
    }
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{words:?} ended with {status}");
    (first.expect("a line"), began.elapsed(), count)
}
