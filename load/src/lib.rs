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
