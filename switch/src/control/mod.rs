//! The controller: keeps a switch's tables as the groups that use it need them, and gives groups ids for it.
//!
//! It asks peers what their groups are ([`word`]), decides ([`brain`], which does nothing else: it is a value), and has that done: by
//! [`p4rt::controller`](crate::p4rt::controller) in the switch's tables, and by a request to a peer where a group needs an id
//! ([`http`], [`run`]).
//!
//! # An id for a life
//! An id is used for one life of one set of registers and slots (rule S1), and this is whose duty it is. In the words of [`brain`]:
//! a partition gets a group's id only
//!
//! - if it is in the tables with that id already, and stays where it is and of the term that it was of; or
//! - if this controller asked the group for that id in this *reign* and was told that it is chosen, and the partition has not been
//!   in the tables with that id in this reign, and left.
//!
//! In all other cases it has id 0, and the group is asked for a new id: so it is after the switch has lost its registers, for all
//! groups. A reign is a time in which this controller was the primary one without interruption, in one life of the switch; nobody
//! else writes meanwhile. When one begins, what was before is not known, and not needed: an id that a group takes in it is above all that
//! the group's log ever named, so none of its pairs was ever in the tables, and all that were before this reign are over unless they
//! are in the tables now. So a controller that is started anew, or comes back, goes on with what it finds: partitions that did not
//! change in the meantime keep their ids, and no read has to wait. What has changed costs its group a new id.
//!
//! That all of it was lawful when it was found is what every controller before has seen to in the same way.

pub mod brain;
mod claims;
pub mod cli;
pub mod http;
pub mod metrics;
mod notes;
pub mod peers;
mod plan;
mod reign;
pub mod room;
pub mod run;
pub mod word;
