//! P4Runtime: the protocol by which a controller sets the tables of a switch, be it this one in software, BMv2, or hardware.

pub mod arbitration;
mod arrays;
pub mod client;
pub mod connections;
#[cfg(feature = "soft")]
pub mod device;
pub mod entry;
pub(crate) mod ids;
pub mod p4info;
mod places;
pub mod problem;
pub mod reconcile;
pub mod server;
pub mod service;
pub mod standin;
mod store;
pub mod target;
mod value;

/// Returns a runtime of one thread: controllers send little, and all calls take one lock.
///
/// # Errors
/// If the system lacks a resource for it.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Messages on the wire, generated from `proto/`.
#[allow(missing_docs, clippy::all)]
pub mod proto {
    /// Status of calls.
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
