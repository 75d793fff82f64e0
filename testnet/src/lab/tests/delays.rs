//! Delays, order, cuts and loss between hosts with public addresses.

use std::time::{Duration, Instant};

use super::{LabSocket, PATIENCE, SILENCE, lab, plan};
use crate::lab::{Lab, MeasuredTrips, measure};

fn twelve(word: &str) -> Option<Lab> {
    let hosts = ["p", "q", "r"]
        .map(|site| (0..4).map(|n| format!("[[hosts]]\nname = '{site}{n}'\nsite = '{site}'\n")).collect::<String>());
    lab(plan(word, &format!("latency = {{ model = 'three-sites' }}\n{}", hosts.concat())))
}

/// A busy machine makes packets late, and never early.
#[test]
fn packets_of_all_pairs_arrive_and_none_is_early() {
    let Some(lab) = twelve("pairs") else { return };
    let hosts: Vec<&str> = lab.layout().hosts.iter().map(|host| host.name.as_str()).collect();
    let delays = lab.layout().delays(lab.plan());
    let sockets: Vec<LabSocket> = hosts.iter().map(|host| LabSocket::open(&lab, host)).collect();
    let start = Instant::now();
    let n = sockets.len();
    std::thread::scope(|scope| {
        for (to, socket) in sockets.iter().enumerate() {
            let delays = &delays;
            scope.spawn(move || {
                let mut from_all = vec![0; n];
                for _ in 1..n {
                    let (text, _) = socket.receive(PATIENCE).expect("every datagram arrives");
                    let arrived = start.elapsed();
                    let (from, sent) = text.split_once(' ').expect("two words");
                    let from: usize = from.parse().expect("a number");
                    let sent = Duration::from_nanos(sent.parse().expect("a time"));
                    assert!(arrived - sent >= delays[from][to], "{from} to {to}: {:?}", arrived - sent);
                    from_all[from] += 1;
                }
                assert_eq!(from_all.iter().sum::<i32>(), n as i32 - 1);
            });
        }
        for (from, socket) in sockets.iter().enumerate() {
            for other in sockets.iter().filter(|other| other.address != socket.address) {
                let text = format!("{from} {}", start.elapsed().as_nanos());
                socket.send(&text, other.address).expect("a host sends");
            }
        }
    });
}

#[test]
fn round_trips_are_as_planned_by_udp_and_tcp() {
    let Some(lab) = twelve("trips") else { return };
    let all = measure(&lab, 40).expect("a measurement");
    println!("{}", MeasuredTrips::heading());
    for trips in &all {
        println!("{trips}");
        for figures in [trips.udp, trips.tcp] {
            let figures = figures.expect("answers");
            assert!(figures.least >= trips.planned && figures.answers == 40, "{trips}: {figures:?}");
        }
    }
    assert_eq!(all.len(), 9);
    let mut by_plan: Vec<_> = all.iter().filter_map(|trips| Some((trips.planned, trips.udp?.least))).collect();
    by_plan.sort();
    let least: Vec<Duration> = by_plan.chunk_by(|one, two| one.0 == two.0).map(|same| same[0].1).collect();
    assert!(least.len() == 4 && least.is_sorted(), "{least:?}");
}

fn pair(word: &str, rest: &str) -> Option<Lab> {
    let text = "latency = { model = 'constant', one_way_ms = 5.0 }\nhosts = [{ name = 'a' }, { name = 'b' }]\n";
    lab(plan(word, &format!("{text}{rest}")))
}

#[test]
fn a_cut_is_one_way_until_it_is_healed() {
    let Some(lab) = pair("cut", "") else { return };
    let (a, b) = (LabSocket::open(&lab, "a"), LabSocket::open(&lab, "b"));
    lab.cut("a", "b").expect("a cut");
    a.send("lost", b.address).expect("a sends");
    assert_eq!(b.receive(SILENCE), None);
    b.send("back", a.address).expect("b sends");
    assert_eq!(a.receive(PATIENCE).expect("the other way is open").0, "back");
    lab.heal().expect("no cuts");
    a.send("there", b.address).expect("a sends");
    assert_eq!(b.receive(PATIENCE).expect("healed").0, "there");
    assert!(lab.tell("stats").expect("counters").contains("\"cut\":1"));
    assert!(lab.tell("mend").expect_err("unknown").contains("heal, delay A B MS"));
    assert!(lab.cut("a", "c").expect_err("no such host").contains("there are: *, @main, a, b"));
}

#[test]
fn a_delay_that_is_set_holds_until_it_is_healed() {
    let Some(lab) = pair("delay", "") else { return };
    let (a, b) = (LabSocket::open(&lab, "a"), LabSocket::open(&lab, "b"));
    let one_way = || {
        let start = Instant::now();
        a.send("x", b.address).expect("a sends");
        b.receive(PATIENCE).expect("it arrives");
        start.elapsed()
    };
    lab.delay("a", "b", Duration::from_millis(120)).expect("a delay");
    assert!(one_way() >= Duration::from_millis(120));
    lab.heal().expect("as planned");
    let planned = (0..10).map(|_| one_way()).min().expect("ten");
    assert!(planned >= Duration::from_millis(5) && planned < Duration::from_millis(120), "{planned:?}");
}

/// Sends numbers in bursts that fit in the receiver's buffer, and returns those that arrived.
fn arrived(a: &LabSocket, b: &LabSocket, count: u32) -> Vec<u32> {
    let mut all = Vec::new();
    for first in (0..count).step_by(50) {
        for number in first..(first + 50).min(count) {
            a.send(&number.to_string(), b.address).expect("a sends");
        }
        while let Some((text, _)) = b.receive(Duration::from_millis(150)) {
            all.push(text.parse().expect("a number"));
        }
    }
    all
}

#[test]
fn losses_are_plausible() {
    let Some(lab) = pair("loss", "") else { return };
    let (a, b) = (LabSocket::open(&lab, "a"), LabSocket::open(&lab, "b"));
    lab.loss("a", "b", 100).expect("a loss");
    let count = arrived(&a, &b, 1_000).len();
    println!("{count} of 1000 arrived, with a loss of 100 per mille");
    assert!((850..=950).contains(&count), "{count} of 1000");
    lab.loss("a", "b", 1_000).expect("a loss");
    assert_eq!(arrived(&a, &b, 100).len(), 0);
}

#[test]
fn jitter_keeps_the_order_unless_it_may_reorder() {
    for (reorder, word) in [(false, "order"), (true, "reorder")] {
        let jitter = format!("[jitter]\nkind = 'exponential'\nms = 10.0\nreorder = {reorder}\n");
        let Some(lab) = pair(word, &jitter) else { return };
        let all = arrived(&LabSocket::open(&lab, "a"), &LabSocket::open(&lab, "b"), 200);
        assert_eq!(all.len(), 200);
        assert_eq!(all.is_sorted(), !reorder, "{all:?}");
    }
}

/// At 8 Mbit/s, a hundred datagrams of 1,000 bytes and their headers take more than 100 ms, and the queue holds 20 of them.
#[test]
fn a_line_with_a_bandwidth_delays_and_drops() {
    let hosts = "hosts = [{ name = 'a', bandwidth_mbit = 8 }, { name = 'b' }]";
    let text =
        format!("latency = {{ model = 'constant', one_way_ms = 1 }}\n{hosts}\nqueues = {{ line_bytes = 20600 }}");
    let Some(lab) = lab(plan("line", &text)) else { return };
    let (a, b) = (LabSocket::open(&lab, "a"), LabSocket::open(&lab, "b"));
    let (start, text) = (Instant::now(), "x".repeat(1_000));
    for _ in 0..100 {
        a.send(&text, b.address).expect("a sends");
    }
    let mut count = 0;
    let mut last = start;
    while b.receive(SILENCE).is_some() {
        (count, last) = (count + 1, Instant::now());
    }
    let rate = f64::from(count) * 1.028 * 8.0 / 1e3 / (last - start).as_secs_f64();
    println!("{count} of 100 arrived, at {rate:.1} Mbit/s");
    assert!(count >= 19 && rate <= 8.5, "{count} datagrams at {rate} Mbit/s");
}
