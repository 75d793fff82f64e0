//! The ring as data (Scatter §3.2): points, ranges, ids and maps over the ring.
//!
//! All arithmetic is exact and wraps at 2^128. The crate has no I/O, and no function waits. No other crate compares raw
//! points of the ring.
//!
//! # Examples
//!
//! ```
//! use overlay::{Key, KeyRange, Point};
//!
//! let key = Key::new(b"greeting").expect("a name of at most 1,024 bytes");
//! let middle = Point(1 << 127);
//! let (lower, upper) = (KeyRange::new(Point(0), middle), KeyRange::new(middle, Point(0)));
//! // Each key belongs to exactly one of two ranges that make up the ring.
//! assert_ne!(lower.contains(key.point()), upper.contains(key.point()));
//! // The ring has no end: distances wrap.
//! assert_eq!(Point(u128::MAX).distance_to(Point(1)), 2);
//! ```
#![forbid(unsafe_code)]
#![no_std]

extern crate alloc;

mod hints;
#[cfg(test)]
mod hints_test;
mod id;
mod interval_map;
mod name;
mod packing;
mod point;
mod point_map;
mod range;
mod reference;
pub mod rng;
pub mod time;

pub use hints::{HINT_MEMBERS, HINTS_BYTES_MAX, Hints, Look, Way, next_hop};
pub use id::{CalledGroup, Epoch, GroupId, Incarnation, NodeId, PeerKey, RingId};
pub use interval_map::IntervalMap;
pub use name::{Called, NameError, PeerName};
pub use point::{KEY_BYTES_MAX, Key, KeyError, Point, TAG_BYTES_MAX};
pub use point_map::{Placed, PointMap};
pub use range::KeyRange;
pub use reference::{Contact, GroupRef};
