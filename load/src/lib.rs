//! A load generator: so many requests under way on so many connections, or so many requests a second whatever the
//! answers do, and what became of them.
//!
//! One thread drives many connections, so that little of a machine is taken from the servers that it also runs. A
//! [`Protocol`] says how a read and a write look to a server; [`Resp`] is the Redis protocol. [`run`] does the rest.
//!
//! * *Closed loop*: each connection has a fixed number of requests under way. It finds out what a server can do; its
//!   waiting times say little about users, who do not wait for each other.
//! * *Open loop*: requests are due at a fixed rate. A waiting time counts from when a request was due, not from when the
//!   generator got round to sending it: a server that stops for a second is seen to have made a second's requests wait.

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
pub use protocol::{Answer, Nonsense, Operation, Protocol};
pub use report::{Report, Tally};
pub use resp::{Resp, key_name};
