//! Addresses of replicas.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use header::ReplyTo;

use crate::tables::Replica;

/// Upper limit of replicas with a port.
pub const PORTS_MAX: usize = 4096;

/// Reason for which a port is refused; nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPort {
    /// The table has [`PORTS_MAX`] ports already.
    #[error("all {PORTS_MAX} ports are in use")]
    Full,
    /// The address has port number 0, so no packet can be sent there.
    #[error("port 0 is not a valid port")]
    Zero,
}

/// Table of ports: the address of each replica. Several replicas may have the same address.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    of: BTreeMap<Replica, ReplyTo>,
    /// Number of replicas at each address.
    at: HashMap<ReplyTo, usize>,
}

impl Ports {
    /// Sets the address of a replica; replaces the former one.
    ///
    /// # Errors
    /// If the address has port number 0, or there is no room for another replica. Nothing has changed then.
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

    /// Removes a replica and returns its address. Packets for it are then dropped, and packets from that address are not trusted.
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

    /// Returns the address of a replica.
    pub fn get(&self, replica: Replica) -> Option<ReplyTo> {
        self.of.get(&replica).copied()
    }

    /// Returns whether a replica is at this address.
    pub(crate) fn is_replica(&self, address: ReplyTo) -> bool {
        self.at.contains_key(&address)
    }

    /// Returns all replicas with their addresses, by their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Replica, SocketAddr)> {
        self.of.iter().filter_map(|(replica, address)| Some((*replica, address.address()?)))
    }

    /// Returns the number of replicas.
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// Returns whether there are no replicas.
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
