//! Settings in users' notation: sizes with units, switches, addresses.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use node::wire::LANES_MAX;
use serde::{Deserialize, Deserializer, de};

/// Number of bytes: `64KiB`, `10GB`, `1.5G`, `65536`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// Units of sizes. `KB` is 1000 bytes and `KiB` is 1024, as in the standards; a bare letter is the binary one, as in most
/// tools.
const UNITS: [(&str, u64); 13] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
];

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let text = text.trim();
        let wrong = || format!("`{text}` is not a size: write a number and a unit, such as 512MiB or 10GB");
        // A rate is a size per second.
        let size = text.strip_suffix("/s").unwrap_or(text);
        let digits = size.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(size.len());
        let (number, unit) = (&size[..digits], size[digits..].trim());
        let (_, factor) = if unit.is_empty() {
            UNITS[0]
        } else {
            UNITS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let mut bytes = whole.parse::<u64>().ok().and_then(|n| n.checked_mul(factor)).ok_or_else(wrong)?;
        if number.contains('.') {
            if fraction.is_empty() || fraction.len() > 6 || factor == 1 {
                return Err(wrong());
            }
            let part = fraction.parse::<u64>().map_err(|_| wrong())?;
            bytes += (u128::from(part) * u128::from(factor) / 10u128.pow(fraction.len() as u32)) as u64;
        }
        Ok(Bytes(bytes))
    }
}

/// Parses a whole number.
///
/// # Errors
/// The text is no number, or too large for this setting.
pub fn whole<T: FromStr + Bounded>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("write a whole number from 0 to {}", T::MOST))
}

/// Parses a number of lanes.
///
/// # Errors
/// The text is no number from 1 to [`LANES_MAX`].
pub fn lanes(text: &str) -> Result<u8, String> {
    let lanes = text.trim().parse().ok().filter(|lanes| (1..=LANES_MAX).contains(lanes));
    lanes.ok_or_else(|| format!("write a whole number from 1 to {LANES_MAX}"))
}

/// Type of a setting with a largest number.
pub(crate) trait Bounded {
    /// Largest number of the type.
    const MOST: u64;
}

impl Bounded for u8 {
    const MOST: u64 = u8::MAX as u64;
}

impl Bounded for u32 {
    const MOST: u64 = u32::MAX as u64;
}

impl Bounded for u64 {
    const MOST: u64 = u64::MAX;
}

impl fmt::Display for Bytes {
    /// Writes the size in the largest binary unit that leaves a whole number: the text parses as the same size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = UNITS[1..5]
            .iter()
            .rev()
            .find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor))
            .unwrap_or(&("", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

/// `DECISION=NAME`: the policy of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy(pub String, pub String);

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        let (decision, name) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` is not a policy: write a decision and a name, such as join=random"))?;
        let (decision, name) = (decision.trim(), name.trim());
        node::Policies::default().choose(decision, name).map_err(|unknown| unknown.to_string())?;
        Ok(Policy(decision.into(), name.into()))
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.0, self.1)
    }
}

/// `on` or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch(pub bool);

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Switch, String> {
        match text.to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" | "1" => Ok(Switch(true)),
            "off" | "false" | "no" | "0" => Ok(Switch(false)),
            _ => Err(format!("`{text}` is neither on nor off")),
        }
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "on" } else { "off" })
    }
}

/// Address on which an endpoint listens, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint(pub Option<SocketAddr>);

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Endpoint, String> {
        if text.eq_ignore_ascii_case("off") {
            return Ok(Endpoint(None));
        }
        let spelled = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        spelled.as_deref().unwrap_or(text).parse().map(|address| Endpoint(Some(address))).map_err(|_| {
            format!(
                "`{text}` is not an address to listen on: write an IP address and a port, such as 127.0.0.1:6479, or \
                off"
            )
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => write!(f, "{address}"),
            None => f.write_str("off"),
        }
    }
}

/// Address on which a peer listens or can be reached. Validated here only as far as typing errors show; the network layer
/// checks the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multiaddr(pub String);

impl FromStr for Multiaddr {
    type Err = String;

    fn from_str(text: &str) -> Result<Multiaddr, String> {
        let wrong = |why: &str| {
            format!(
                "`{text}` is not a multiaddress ({why}): write it like /ip4/192.0.2.1/tcp/6478 or \
                /ip4/192.0.2.1/udp/6478/quic-v1"
            )
        };
        let parts = text.strip_prefix('/').ok_or_else(|| wrong("it lacks the leading slash"))?;
        let parts: Vec<&str> = parts.split('/').collect();
        let ip_fits = match parts[..] {
            ["ip4", ip, ..] => ip.parse::<std::net::Ipv4Addr>().is_ok(),
            ["ip6", ip, ..] => ip.parse::<std::net::Ipv6Addr>().is_ok(),
            ["dns" | "dns4" | "dns6" | "dnsaddr", name, ..] => !name.is_empty(),
            _ => return Err(wrong("it does not begin with ip4, ip6 or dns")),
        };
        if !ip_fits {
            return Err(wrong("the host is not an address of that kind"));
        }
        let port_fits = match parts[2..] {
            ["tcp" | "udp", port, ..] => port.parse::<u16>().is_ok(),
            _ => parts[0] == "dnsaddr",
        };
        if !port_fits {
            return Err(wrong("the port after the host is missing"));
        }
        if parts.get(2) == Some(&"udp") && parts.get(4) != Some(&"quic-v1") {
            return Err(wrong("quic-v1 after the port is missing"));
        }
        Ok(Multiaddr(text.to_owned()))
    }
}

impl fmt::Display for Multiaddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Value of a file: text as on the command line, or a number or truth value where that reads better.
#[derive(Deserialize)]
#[serde(untagged)]
enum Raw {
    Text(String),
    Number(u64),
    Truth(bool),
}

fn from_raw<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(deserializer: D) -> Result<T, D::Error> {
    let text = match Raw::deserialize(deserializer)
        .map_err(|_| de::Error::custom("expected text, a number that is not negative, or true or false"))?
    {
        Raw::Text(text) => text,
        Raw::Number(number) => number.to_string(),
        Raw::Truth(truth) => truth.to_string(),
    };
    text.parse().map_err(de::Error::custom)
}

macro_rules! deserialize_from_str {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                from_raw(deserializer)
            }
        }
    )*};
}

deserialize_from_str!(Bytes, Switch, Endpoint, Multiaddr, Policy);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("65536", 65536),
            ("64KiB", 65536),
            ("64 kib", 65536),
            ("64k", 65536),
            ("10GB", 10_000_000_000),
            ("1.5G", 3 << 29),
            ("2MB/s", 2_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "x", "10X", "-1", "1.G", "1.5", ".5G", "1e9", "99999999999T", "1.2.3G"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        for bytes in [0, 1, 1023, 1024, 65536, 1_000_000, 3 << 30] {
            assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
        }
    }

    #[test]
    fn whole_numbers() {
        assert_eq!((whole("7"), whole(" 7 "), whole("4294967295")), (Ok(7_u8), Ok(7_u32), Ok(u32::MAX)));
        for bad in ["x", "", "-1", "1.5", "256"] {
            assert_eq!(whole::<u8>(bad), Err("write a whole number from 0 to 255".into()));
            assert_eq!(lanes(bad), Err("write a whole number from 1 to 16".into()));
        }
    }

    #[test]
    fn multiaddresses() {
        for text in [
            "/ip4/0.0.0.0/tcp/6478",
            "/ip6/::/udp/6478/quic-v1",
            "/dns/peer.example/tcp/1/p2p/12D3Koo",
            "/dnsaddr/bootstrap.example",
        ] {
            assert_eq!(text.parse(), Ok(Multiaddr(text.into())));
        }
        for text in
            ["", "127.0.0.1:6478", "/ip4/1.2.3/tcp/1", "/ip4/1.2.3.4", "/ip4/1.2.3.4/tcp/99999", "/ip4/1.2.3.4/udp/1"]
        {
            assert!(text.parse::<Multiaddr>().is_err(), "{text}");
        }
    }

    #[test]
    fn endpoints() {
        assert_eq!("off".parse(), Ok(Endpoint(None)));
        assert_eq!("localhost:1".parse::<Endpoint>().unwrap().to_string(), "127.0.0.1:1");
        assert!("6479".parse::<Endpoint>().is_err());
    }
}
