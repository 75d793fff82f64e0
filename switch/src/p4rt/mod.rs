//! P4Runtime: how a controller sets the tables of a switch, be it this one in software, BMv2, or hardware.

pub mod arbitration;
pub mod arrays;
pub mod connections;
pub mod controller;
#[cfg(feature = "soft")]
pub mod device;
pub mod entry;
pub mod ids;
pub mod p4info;
pub mod places;
pub mod problem;
pub mod reconcile;
pub mod server;
pub mod service;
pub mod standin;
pub mod store;
pub mod target;
pub mod value;

/// A runtime of one thread: controllers say little, and all of it takes one lock.
///
/// # Errors
/// Where the system does not give what it needs.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// What goes over the wire, made of `proto/`.
#[allow(missing_docs, clippy::all)]
pub mod proto {
    /// How calls went.
    pub mod google {
        pub mod rpc {
            include!(concat!(env!("OUT_DIR"), "/google.rpc.rs"));
        }
    }
    pub mod p4 {
        pub mod config {
            pub mod v1 {
                include!(concat!(env!("OUT_DIR"), "/p4.config.v1.rs"));
            }
        }
        pub mod v1 {
            include!(concat!(env!("OUT_DIR"), "/p4.v1.rs"));
        }
    }
}

#[cfg(test)]
mod wire_test;
