//! Addresses in users' notation: `HOST`, `HOST:PORT`, `ADDRESS`, `[ADDRESS]:PORT`.

use std::net::Ipv6Addr;

/// Default port of [`client`] addresses.
const CLIENT_PORT: u16 = 6479;
/// Default port of [`status`] addresses.
const STATUS_PORT: u16 = 6480;

/// Parses an address for clients, and adds the default port where none is named.
///
/// # Errors
/// The text is no address; the error shows the form of one.
pub fn client(text: &str) -> Result<String, String> {
    with_port(text, CLIENT_PORT)
}

/// Parses an address for status, and adds the default port where none is named.
///
/// # Errors
/// As for [`client`].
pub fn status(text: &str) -> Result<String, String> {
    with_port(text, STATUS_PORT)
}

fn with_port(text: &str, port: u16) -> Result<String, String> {
    let shape = || format!("an address is HOST:PORT, or HOST for port {port}; IPv6 as [::1]:{port}");
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok(format!("[{text}]:{port}"));
    }
    let (host, named) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((address, rest)) => {
            address.parse::<Ipv6Addr>().map_err(|_| shape())?;
            (
                format!("[{address}]"),
                if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or_else(shape)?) },
            )
        }
        None => match text.split_once(':') {
            Some((host, named)) => (host.to_owned(), Some(named)),
            None => (text.to_owned(), None),
        },
    };
    if host.is_empty() || host.contains(|char: char| char.is_whitespace() || char == '/') {
        return Err(shape());
    }
    let port = named.map_or(Ok(port), |named| named.parse().map_err(|_| shape()))?;
    Ok(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_added_where_none_is_named() {
        for (typed, meant) in [
            ("localhost", "localhost:6479"),
            ("localhost:1", "localhost:1"),
            ("192.0.2.1", "192.0.2.1:6479"),
            ("::1", "[::1]:6479"),
            ("[::1]", "[::1]:6479"),
            ("[2001:db8::7]:9", "[2001:db8::7]:9"),
        ] {
            assert_eq!(client(typed).as_deref(), Ok(meant), "{typed}");
        }
        assert_eq!(status("localhost").as_deref(), Ok("localhost:6480"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for wrong in ["", ":1", "a:", "a:b", "a:65536", "[::1", "[::1]x", "[a]:1", "http://a:1", "a b", "1:2:3"] {
            assert!(client(wrong).is_err_and(|why| why.contains("HOST:PORT")), "{wrong}");
        }
    }
}
