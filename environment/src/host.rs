//! The `Host` of a request on loopback: a web page whose name was made to lead to this machine (DNS rebinding) asks for that name.

use std::net::IpAddr;

/// Returns whether a `Host` header names this machine, with or without a port: by an IP address, or as `localhost`.
///
/// An endpoint on loopback answers no other name. A request without the header comes from no browser, and is the caller's to answer.
pub fn names_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_local = |name: &str| name == "localhost" || name.ends_with(".localhost");
    // A dot at the end of a name means that it is fully qualified.
    let name = name.strip_suffix('.').unwrap_or(name);
    name.parse::<IpAddr>().is_ok() || is_local(&name.to_ascii_lowercase())
}
