//! What a connection has said about itself.

use super::reply::Protocol;

/// The state of one connection, apart from its commands.
#[derive(Debug)]
pub struct Session {
    /// Never used again while the process lives.
    pub id: u64,
    /// `HELLO`.
    pub protocol: Protocol,
    /// Has given the password, or none is needed.
    pub authenticated: bool,
    /// `CLIENT SETNAME`; empty where there is none.
    pub name: Vec<u8>,
    /// `CLIENT SETINFO lib-name`.
    pub library: Vec<u8>,
    /// `CLIENT SETINFO lib-ver`.
    pub library_version: Vec<u8>,
    /// The other end.
    pub peer: String,
    /// This end.
    pub local: String,
    /// When it connected.
    pub since: std::time::Instant,
}
