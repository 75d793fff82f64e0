//! Where replicas are.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use header::ReplyTo;

use crate::tables::Replica;

/// So many replicas may have ports.
pub const PORTS_MAX: usize = 4096;

/// Why a port is not taken; nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPort {
    /// There are [`PORTS_MAX`] already.
    #[error("there are {PORTS_MAX} ports already")]
    Full,
    /// It has no number, so nothing can be sent there.
    #[error("port 0 is nowhere")]
    Zero,
}

/// The table of ports: each replica's address. Several replicas may have the same.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    of: BTreeMap<Replica, ReplyTo>,
    /// How many replicas have each address.
    at: HashMap<ReplyTo, usize>,
}

impl Ports {
    /// Sets where a replica is, in place of where it was.
    ///
    /// # Errors
    /// Where it cannot be there, or where there is no room for another one.
    pub fn set(&mut self, replica: Replica, address: SocketAddr) -> Result<(), NoPort> {
        if address.port() == 0 {
            return Err(NoPort::Zero);
        }
        if self.of.len() >= PORTS_MAX && !self.of.contains_key(&replica) {
            return Err(NoPort::Full);
        }
        self.remove(replica);
        let address = ReplyTo::from(address);
        self.of.insert(replica, address);
        *self.at.entry(address).or_default() += 1;
        Ok(())
    }

    /// Takes a replica out; what is for it is dropped, and what comes from there is not believed from then on.
    pub fn remove(&mut self, replica: Replica) -> Option<SocketAddr> {
        let address = self.of.remove(&replica)?;
        if let Some(count) = self.at.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.at.remove(&address);
            }
        }
        address.address()
    }

    /// Where a replica is.
    pub fn get(&self, replica: Replica) -> Option<ReplyTo> {
        self.of.get(&replica).copied()
    }

    /// Whether a replica is there.
    pub fn is_replica(&self, address: ReplyTo) -> bool {
        self.at.contains_key(&address)
    }

    /// All of them, by their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Replica, SocketAddr)> {
        self.of.iter().filter_map(|(replica, address)| Some((*replica, address.address()?)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_replicas_as_long_as_one_has_it() {
        let (one, other) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let mut ports = Ports::default();
        for (replica, address) in [(7, one), (8, one), (7, other), (7, other)] {
            ports.set(replica, address).unwrap();
        }
        assert_eq!(ports.iter().collect::<Vec<_>>(), [(7, other), (8, one)]);
        assert!(ports.is_replica(one.into()) && ports.is_replica(other.into()));
        assert_eq!((ports.remove(8), ports.remove(8)), (Some(one), None));
        assert!(!ports.is_replica(one.into()) && ports.get(8).is_none());
        // As a socket of IPv6 sees it.
        assert!(ports.is_replica("[::ffff:127.0.0.1]:2".parse::<SocketAddr>().unwrap().into()));
        assert_eq!(ports.set(9, "127.0.0.1:0".parse().unwrap()), Err(NoPort::Zero));
    }

    #[test]
    fn there_is_an_end_to_ports() {
        let mut ports = Ports::default();
        let address = "127.0.0.1:1".parse().unwrap();
        (0..PORTS_MAX as Replica).for_each(|replica| ports.set(replica, address).unwrap());
        assert_eq!(ports.set(Replica::MAX, address), Err(NoPort::Full));
        assert_eq!((ports.set(0, address), ports.len()), (Ok(()), PORTS_MAX));
    }
}
