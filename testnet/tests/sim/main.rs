//! Simulated networks of real nodes, under faults, checked as clients see them.
//!
//! One program: the simulated world is generic over what it runs, and is compiled once.

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
