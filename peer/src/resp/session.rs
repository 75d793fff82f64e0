//! State that a connection has set about itself.

use super::reply::Protocol;

/// State of one connection, apart from its commands.
#[derive(Debug)]
pub struct Session {
    /// Id of the connection, never reused while the process lives.
    pub id: u64,
    /// Protocol, from `HELLO`.
    pub protocol: Protocol,
    /// Whether the client has given the password, or none is needed.
    pub authenticated: bool,
    /// Name from `CLIENT SETNAME`; empty where there is none.
    pub name: Vec<u8>,
    /// Library name from `CLIENT SETINFO lib-name`.
    pub library: Vec<u8>,
    /// Library version from `CLIENT SETINFO lib-ver`.
    pub library_version: Vec<u8>,
    /// Address of the other end.
    pub peer: String,
    /// Address of this end.
    pub local: String,
    /// Time of the connection's start.
    pub since: std::time::Instant,
}
