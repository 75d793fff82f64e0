//! Name for which a request on loopback is meant: a web page whose name was made to lead to this machine (DNS rebinding) asks for
//! that name.
//!
//! The same rule, and the same words, as at a peer's endpoint (`peer/src/http/host.rs`).

use std::net::SocketAddr;

/// Answer to a request for another name, with status 403.
pub const REFUSAL: &str =
    "on loopback this endpoint accepts only an IP address or localhost in the Host header, not another name";

/// Rule for the requests that an endpoint answers, by their `Host`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Any: the endpoint is not on loopback.
    Any,
    /// Only an IP address, or `localhost`.
    ThisMachine,
}

impl Hosts {
    /// Returns the rule of an endpoint that listens at this address.
    pub fn of(listen: SocketAddr) -> Hosts {
        if listen.ip().to_canonical().is_loopback() { Hosts::ThisMachine } else { Hosts::Any }
    }

    /// Returns whether a request with this `Host` is answered. Requests without one come from no browser.
    pub fn answers(self, host: Option<&[u8]>) -> bool {
        match (self, host) {
            (Hosts::Any, _) | (_, None) => true,
            (Hosts::ThisMachine, Some(host)) => std::str::from_utf8(host).is_ok_and(environment::names_this_machine),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_elsewhere_are_refused_on_loopback() {
        let rule = |listen: &str| Hosts::of(listen.parse().unwrap());
        let (here, elsewhere) = (rule("127.0.0.1:9"), rule("192.0.2.1:9"));
        assert_eq!((here, rule("[::1]:9"), rule("[::ffff:127.0.0.1]:9")), (Hosts::ThisMachine, here, here));
        assert!(here.answers(None) && !here.answers(Some(b"\xff")));
        for host in [
            "127.0.0.1:6480",
            "127.0.0.1",
            "[::1]:6480",
            "localhost:6480",
            "LOCALHOST",
            "a.localhost",
            "localhost.",
            "localhost.:6480",
        ] {
            assert!(here.answers(Some(host.as_bytes())), "{host}");
        }
        for host in ["evil.example", "evil.example:6480", "localhost.evil.example", "127.0.0.1.evil.example", "", "x"] {
            assert!(!here.answers(Some(host.as_bytes())), "{host}");
            assert!(elsewhere.answers(Some(host.as_bytes())), "{host}");
        }
    }
}
