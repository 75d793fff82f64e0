//! Single schedules of epochs that end, members that come and go, and data that moves, step by step (hazards 20-27, 52).

mod ghosts;
mod parts;
mod quorums;
mod stops;
mod transfers;
mod volume;
