//! A switch that spreads linearizable reads over all replicas (`Harmonia`).
//!
//! [`pipeline`] is the treatment of a packet, as a value: tables that a controller sets, and registers that packets change. The
//! same treatment is meant to run in software and, as a P4 program (`p4/harmonia.p4`), in hardware. So it does nothing that a
//! switch cannot do at line rate. [`trace`] has stories: packets with their expected treatment, which either of them can be
//! tested with.
//!
//! The feature `soft`, on by default, adds the switch in software: a pipeline with ports and counters (`device`), and the loop
//! that runs it over UDP (`soft`), both with an endpoint for monitoring (`monitoring`). The feature `p4runtime`, also on by
//! default, adds `p4rt`: the protocol by which a controller sets the tables of any such switch. The feature `control` adds the
//! controller, which decides about the content of the tables (`controller`).
//!
//! # Examples
//!
//! ```
//! use header::{Header, Operation};
//! use switch::dirty::{Region, Shape};
//! use switch::pipeline::{Pipeline, Verdict};
//! use switch::tables::Partition;
//!
//! let mut pipeline = Pipeline::new(Shape { stages: 3, slots: 16 }, 1);
//! let region = Region { first: 0, slots: 16 };
//! let replicas = vec![(101, 1), (102, 1)];
//! pipeline.set(5, Partition { index: 0, region, term: 7, switch: 1, active: true, primary: 100, replicas })?;
//!
//! let packet = |operation| Header {
//!     operation,
//!     partition: 5,
//!     object: 77,
//!     switch: 0,
//!     term: 7,
//!     sequence: 0,
//!     committed: 0,
//!     tag: 0,
//! };
//! let mut write = packet(Operation::WriteFirst);
//! assert_eq!((pipeline.process(&mut write, 0), write.sequence), (Verdict::To(100), 1));
//! // The object is dirty: only the primary may answer.
//! assert_eq!(pipeline.process(&mut packet(Operation::Read), 0), Verdict::To(100));
//! // The write is complete: any replica may answer, and chance selects one.
//! let mut completion = Header { switch: 1, sequence: 1, ..packet(Operation::Completion) };
//! assert_eq!(pipeline.process(&mut completion, 0), Verdict::On);
//! assert_eq!(pipeline.process(&mut packet(Operation::Read), 1), Verdict::To(102));
//! # Ok::<(), switch::tables::PartitionError>(())
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "control")]
pub mod controller;
#[cfg(feature = "soft")]
pub mod device;
pub mod dirty;
#[cfg(feature = "soft")]
pub(crate) mod monitoring;
#[cfg(feature = "p4runtime")]
pub mod p4rt;
pub mod pipeline;
#[cfg(feature = "soft")]
pub mod soft;
pub mod tables;
pub mod trace;
