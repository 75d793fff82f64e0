//! The load generator against small servers with faults that it must notice.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use load::{Distribution, Failed, Pace, Plan, Resp, run};

/// Starts a server that calls `serve` with each connection and the number of connections before. Its threads end with
/// the test.
fn server(serve: impl Fn(TcpStream, u64) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream.expect("a connection"), number as u64));
        }
    });
    address
}

/// Answers `count` requests, each with the result of `think` for its number.
fn answer(mut stream: TcpStream, count: u64, mut think: impl FnMut(u64) -> &'static str) {
    let (mut answered, mut words) = (0, 0);
    let mut bytes = [0; 4096];
    while answered < count {
        let Ok(read @ 1..) = stream.read(&mut bytes) else { return };
        // Each request is one array, and no key or value has a star.
        words += bytes[..read].iter().filter(|byte| **byte == b'*').count() as u64;
        while answered < words.min(count) {
            let text = think(answered);
            if stream.write_all(text.as_bytes()).is_err() {
                return;
            }
            answered += 1;
        }
    }
}

fn plan(server: SocketAddr) -> Plan {
    let short = Duration::from_millis(300);
    Plan { connections: 2, warm_up: Duration::ZERO, duration: short, keys: 100, ..Plan::new(vec![server]) }
}

#[test]
fn a_closed_loop_counts_what_was_answered_and_refused() {
    let server = server(|stream, _| {
        answer(stream, u64::MAX, |number| if number % 4 == 3 { "-TRYAGAIN x\r\n" } else { "+OK\r\n" });
    });
    let mut edges = 0;
    let report = run(&plan(server), || Resp::new(None), || edges += 1).expect("runs");
    assert_eq!(edges, 2);
    assert_eq!(report.reads.done, 0);
    let (done, refused) = (report.writes.done, report.writes.refused["TRYAGAIN"]);
    assert!(done > 10 && refused > 3 && report.writes.refused.len() == 1, "{report}");
    assert!((done / 3).abs_diff(refused) <= 2 + done / 50, "{report}");
    assert!(report.writes.quantile(0.5) <= report.writes.quantile(0.99));
    assert!(report.writes.quantile(1.0) <= report.writes.longest() + Duration::from_millis(1));
}

/// A server stops for 200 ms of 400: of requests that are due all the time, a quarter waits for over 100 ms. A
/// generator that waits for answers before it sends further requests would see two of them.
#[test]
fn an_open_loop_sees_what_a_pause_costs_all_that_were_due() {
    let server = server(|stream, _| {
        answer(stream, u64::MAX, |number| {
            if number == 100 {
                thread::sleep(Duration::from_millis(200));
            }
            "+OK\r\n"
        });
    });
    let pace = Pace::Open { rate: 1000.0, in_flight_max: 4 };
    let plan = Plan { pace, duration: Duration::from_millis(400), connections: 1, ..plan(server) };
    let report = run(&plan, || Resp::new(None), || ()).expect("runs");
    assert_eq!(report.writes.done, 400, "as many as were due: {report}");
    assert!(report.writes.quantile(0.76) > Duration::from_millis(90), "{report}");
    assert!(report.writes.longest() > Duration::from_millis(150), "{report}");
}

#[test]
fn each_key_once_and_then_no_more() {
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let server = server(move |stream, _| {
        answer(stream, u64::MAX, |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            "+OK\r\n"
        });
    });
    let plan = Plan { distribution: Distribution::Once, threads: 2, keys: 1001, ..plan(server) };
    let report = run(&plan, || Resp::new(None), || panic!("there is no time that counts")).expect("runs");
    assert_eq!((report.writes.done, count.load(Ordering::Relaxed)), (1001, 1001));
}

/// The connection is opened again, and requests in flight on it count as refused.
#[test]
fn a_lost_connection_is_opened_again() {
    let server = server(|stream, number| answer(stream, if number < 2 { 20 } else { u64::MAX }, |_| "$1\r\nx\r\n"));
    let plan = Plan { writes: 0.0, ..plan(server) };
    let report = run(&plan, || Resp::new(None), || ()).expect("runs");
    assert!(report.reads.done > 40 && report.writes.done == 0, "{report}");
    let lost = report.reads.refused["the connection was lost"];
    assert!((1..=32).contains(&lost), "{report}");
}

#[test]
fn a_silent_server_is_given_up() {
    let server = server(|stream, _| {
        let open = stream.try_clone().expect("a second handle");
        answer(stream, 20, |_| "+OK\r\n");
        thread::sleep(Duration::from_secs(3600));
        drop(open);
    });
    let plan = Plan { patience: Duration::from_millis(100), duration: Duration::from_millis(500), ..plan(server) };
    let report = run(&plan, || Resp::new(None), || ()).expect("runs");
    assert!(report.writes.done > 0 && report.writes.refused["no answer"] > 0, "{report}");
}

#[test]
fn who_cannot_be_measured_is_named() {
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let failed = run(&plan(nobody), || Resp::new(None), || ()).expect_err("nobody is there");
    assert!(matches!(&failed, Failed::Server { server, .. } if *server == nobody), "{failed}");
    let stranger = server(|stream, _| answer(stream, u64::MAX, |_| "-WRONGPASS no\r\n"));
    let failed = run(&plan(stranger), || Resp::new(Some(b"pw".to_vec())), || ()).expect_err("no password for it");
    assert!(failed.to_string().contains("WRONGPASS"), "{failed}");
    let plan = Plan { writes: f64::NAN, ..plan(nobody) };
    assert!(matches!(run(&plan, || Resp::new(None), || ()), Err(Failed::Plan(_))));
}

#[test]
fn a_panic_before_the_beginning_ends_the_run() {
    let server = server(|stream, _| answer(stream, u64::MAX, |_| "+OK\r\n"));
    let made = AtomicU64::new(0);
    let protocol = || match made.fetch_add(1, Ordering::Relaxed) {
        0 => Resp::new(None),
        _ => panic!("on purpose"),
    };
    let failed = run(&Plan { threads: 2, ..plan(server) }, protocol, || ()).expect_err("a thread panics");
    assert!(matches!(failed, Failed::Generator(_)), "{failed}");
}
