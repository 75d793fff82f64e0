//! A load generator: a number of requests in flight on a number of connections, or a rate of requests that does not
//! depend on answers. It reports the outcomes.
//!
//! One thread drives many connections, so that the generator takes little of a machine from the servers on it. A
//! [`Protocol`] encodes reads and writes for a server; [`Resp`] is the Redis protocol. [`run`] does the rest.
//!
//! * *Closed loop*: each connection has a fixed number of requests in flight. It measures the capacity of a server; its
//!   waiting times say little about users, who do not wait for each other.
//! * *Open loop*: requests are due at a fixed rate. A waiting time counts from the time at which a request was due, not
//!   from the time at which the generator sent it: a server that stops for a second is seen to have made a second's
//!   requests wait.
//!
//! # Examples
//!
//! ```
//! use std::io::{Read as _, Write as _};
//! use std::net::TcpListener;
//! use std::time::Duration;
//!
//! use load::{Plan, Resp, run};
//!
//! // A server of the Redis protocol that acknowledges each request.
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let target = listener.local_addr()?;
//! std::thread::spawn(move || {
//!     let Ok((mut stream, _)) = listener.accept() else { return };
//!     let mut bytes = [0; 4096];
//!     while let Ok(length @ 1..) = stream.read(&mut bytes) {
//!         let requests = bytes[..length].iter().filter(|byte| **byte == b'*').count();
//!         let _ = stream.write_all("+OK\r\n".repeat(requests).as_bytes());
//!     }
//! });
//!
//! let short = Duration::from_millis(100);
//! let plan = Plan { connections: 1, warm_up: Duration::ZERO, duration: short, ..Plan::new(vec![target]) };
//! let report = run(&plan, || Resp::new(None), || ())?;
//! assert!(report.writes.done > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod connection;
mod driver;
mod keys;
mod plan;
mod processes;
mod protocol;
mod report;
mod resp;
mod timer;

pub use driver::{Failed, run};
pub use keys::{Distribution, Keys};
pub use plan::{Pace, Plan};
pub use processes::{CpuTime, cpu_time, resident_bytes};
pub use protocol::{Answer, Operation, Protocol, ProtocolError};
pub use report::{Report, Tally};
pub use resp::{Resp, key_name};
