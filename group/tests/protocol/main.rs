//! The protocol of one group, driven message by message (`bench`) or as several members under faults (`world`).
//!
//! One program: the generic code of the simulated members is compiled once.

mod absences;
mod bench;
mod caps;
mod catching_up;
mod coarse;
mod completions;
mod contradictions;
mod cost;
mod doubt;
mod elections;
mod endings;
mod frames;
mod grants;
mod handover;
mod harmonia;
mod health;
mod lanes;
mod learners;
mod members;
mod once;
mod removals;
mod siblings;
mod table;
mod takeovers;
mod timers;
mod transactions;
mod violations;
mod void;
mod world;
mod write_passes;
