//! Recent clients: the only addresses, beside replicas, to which this switch sends packets.
//!
//! The sender of an answer states its destination. A switch that trusted it would let a stranger send packets to any address,
//! from an address that is not the stranger's. So a client is an address from which a request came in the last
//! [`CLIENT_SECONDS`], and at which that request wanted its answer. One attack remains, as for any protocol without a handshake:
//! a host that can send from a false address can have answers sent to that address.
//!
//! # Invariants
//! - The memory is constant, for any number of clients. Where a place is needed, the client of 4 that has been silent longest is
//!   forgotten: a real client is known again with its next request.

use std::hash::{BuildHasher as _, RandomState};

use header::ReplyTo;

/// Time after a request in which an answer may come, in seconds.
pub const CLIENT_SECONDS: u32 = 60;
/// Upper limit of known clients.
pub const CLIENTS_MAX: usize = SETS * WAYS;
/// Number of sets. A stranger cannot choose addresses that all fall into one set: the hash depends on a secret of this process.
const SETS: usize = 16 << 10;
/// Places in each set.
const WAYS: usize = 4;

/// Address that sent a request.
#[derive(Clone, Copy, Debug)]
struct Client {
    address: ReplyTo,
    /// Time of its last request, in seconds.
    seen: u32,
}

impl Client {
    fn is(&self, address: ReplyTo, now: u32) -> bool {
        self.address == address && now.saturating_sub(self.seen) < CLIENT_SECONDS
    }
}

/// All recent clients.
#[derive(Debug)]
pub struct Clients {
    sets: Box<[[Client; WAYS]]>,
    hasher: RandomState,
}

impl Default for Clients {
    fn default() -> Clients {
        let nobody = Client { address: ReplyTo::NOWHERE, seen: 0 };
        Clients { sets: vec![[nobody; WAYS]; SETS].into(), hasher: RandomState::new() }
    }
}

impl Clients {
    fn set(&self, address: ReplyTo) -> usize {
        (self.hasher.hash_one((u128::from(address.ip), address.port)) % SETS as u64) as usize
    }

    /// Records a request from `address` at `now`, in seconds, which never goes back. Returns whether another client, still known,
    /// was forgotten for it.
    ///
    /// # Panics
    /// If the address has port 0: no packet comes from there.
    pub fn saw(&mut self, address: ReplyTo, now: u32) -> bool {
        assert!(address.port != 0, "{address:?} asks");
        let place = self.set(address);
        let set = &mut self.sets[place];
        if let Some(client) = set.iter_mut().find(|client| client.address == address) {
            // Most clients ask many times a second: an unchanged time is not written again.
            if client.seen != now {
                client.seen = now;
            }
            return false;
        }
        let free = set.iter_mut().min_by_key(|client| if client.address.port == 0 { 0 } else { client.seen });
        let Some(oldest) = free else { return false };
        let is_evicted = oldest.address.port != 0 && oldest.is(oldest.address, now);
        *oldest = Client { address, seen: now };
        is_evicted
    }

    /// Returns whether this address sent a request lately.
    pub fn knows(&self, address: ReplyTo, now: u32) -> bool {
        address.port != 0 && self.sets[self.set(address)].iter().any(|client| client.is(address, now))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn address(number: u32) -> ReplyTo {
        ReplyTo { ip: Ipv6Addr::from(u128::from(number)), port: 7 }
    }

    #[test]
    fn who_asked_is_known_for_a_while() {
        let mut clients = Clients::default();
        assert!(!clients.knows(address(1), 0) && !clients.knows(ReplyTo::NOWHERE, 0));
        clients.saw(address(1), 0);
        assert!(clients.knows(address(1), CLIENT_SECONDS - 1) && !clients.knows(address(1), CLIENT_SECONDS));
        assert!(!clients.knows(ReplyTo { port: 8, ..address(1) }, 0));
        clients.saw(address(1), 50);
        assert!(clients.knows(address(1), 50 + CLIENT_SECONDS - 1));
    }

    #[test]
    fn a_flood_takes_the_places_of_those_who_were_silent_longest() {
        let mut clients = Clients::default();
        let evicted = |clients: &mut Clients, from: u32, now| {
            (from..from + 2 * CLIENTS_MAX as u32).filter(|number| clients.saw(address(*number), now)).count()
        };
        // Half of the clients had no room from the start.
        assert!(evicted(&mut clients, 0, 1) >= CLIENTS_MAX);
        let known = |clients: &Clients, from: u32, now| {
            (from..from + 2 * CLIENTS_MAX as u32).filter(|number| clients.knows(address(*number), now)).count()
        };
        let before = known(&clients, 0, 1);
        assert!((CLIENTS_MAX * 9 / 10..=CLIENTS_MAX).contains(&before), "{before}");
        // A client that has been silent for long counts as no loss.
        assert!(evicted(&mut clients, 1 << 30, 1 + CLIENT_SECONDS) < 2 * CLIENTS_MAX - before + CLIENTS_MAX / 10);
        clients.saw(address(1 << 29), 2 + CLIENT_SECONDS);
        assert!(clients.knows(address(1 << 29), 2 + CLIENT_SECONDS));
    }
}
