//! The baseline DHT: a model of OpenDHT, which the papers compare with, as another host of the simulated world.
//!
//! - Ids are hashes. The *root* of a key is the peer whose id is nearest to the key on the ring. A peer takes itself for the root where
//!   none of the peers that it knows is nearer.
//! - [`leaves`]: the peers next to this one on both sides. Leaves send each other heartbeats, and a leaf that misses four is dropped.
//! - [`table`]: base-16 prefix routing; `routing.rs` forwards messages hop by hop, and each hop acknowledges them.
//! - `operations.rs`: a put is executed by the peer that takes itself for the root, and acknowledged at once; copies follow
//!   asynchronously. A get is answered by the peer that takes itself for the root, with its own copy.
//! - [`copies`]: nine copies, the root's and those of the four leaves on each side of the root. They are made anew where leaves come or go,
//!   and compared with leaves from time to time.
//!
//! No step needs an agreement. No choice here favours lost or stale copies: a newcomer fetches its copies before it enters, puts carry
//! versions by which copies are ordered, and repeated puts keep their versions.

pub mod copies;
pub mod leaves;
mod message;
mod operations;
mod peer;
mod routing;
pub mod table;
#[cfg(test)]
mod tests;

pub use peer::Peer;
