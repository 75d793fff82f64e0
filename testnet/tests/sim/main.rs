//! Simulated networks of real nodes, under faults, checked by the histories of clients.
//!
//! One program: the simulated world is generic over its hosts, and is compiled once.

mod capacity;
mod contention;
mod defects;
mod epochs;
mod far;
mod group;
mod harness;
mod leading;
mod load;
mod members;
mod one_group;
mod repair;
mod ring;
mod ring_cases;
mod scripts;
mod splits;
mod suspicions;
mod switch;
mod torn;
mod toy;
