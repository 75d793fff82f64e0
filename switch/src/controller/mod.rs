//! Controller: keeps a switch's tables in step with the groups that use it, and gives groups ids for it.
//!
//! The controller asks peers for reports about their groups (`reports`) and decides (`core`, a value without I/O). Then it
//! has the decision carried out: in the switch's tables by [`p4rt::client`](crate::p4rt::client), and by a request to a
//! peer where a group needs an id (`peer_client`, [`run`]).
//!
//! # An id for a life
//! An id is used for one life of one set of registers and slots (rule S1). The controller enforces that rule. In terms of
//! `core`, a partition gets a group's id only
//!
//! - if the partition is in the tables with that id already, and keeps its place and its term; or
//! - if this controller asked the group for that id in this *mastership* and was told that it is chosen, and the partition has
//!   not been in the tables with that id in this mastership, and left.
//!
//! In all other cases the partition has id 0, and the group is asked for a new id. So it is for all groups after the switch has
//! lost its registers. A mastership is a time in which this controller was the primary one without interruption, in one life of
//! the switch; no other controller writes meanwhile. The state before a mastership is unknown, and is not needed. An id that a
//! group takes in the mastership is above all that the group's log ever named, so none of its pairs was ever in the tables. All
//! pairs from before this mastership are over, unless they are in the tables now. So a controller that is started anew, or comes
//! back, continues with the tables that it finds: partitions that did not change in the meantime keep their ids, and no read has
//! to wait. A changed partition costs its group a new id.
//!
//! Each earlier controller followed the same rule, so the tables that are found obey it.

mod allocator;
pub mod cli;
mod core;
mod id_requests;
mod mastership;
mod notes;
mod peer_client;
mod peers;
mod plan;
mod reports;
pub mod run;
mod tally;
