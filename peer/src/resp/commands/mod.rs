//! Handlers of the commands: one for each row of [`super::table`].

pub mod connection;
pub(crate) mod expiry;
pub mod keys;
pub mod refused;
pub mod scatter;
pub mod server;
pub(crate) mod strings;
