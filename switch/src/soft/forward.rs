//! Decision about each datagram of a batch: the pipeline, and the sources that are trusted.

use header::{Operation, Packet, ReplyTo};

use super::clients::Clients;
use super::{Batch, SendPlan};
use crate::device::{Cut, DeviceState};
use crate::pipeline::Verdict;

/// Decides about datagrams, and remembers recent clients.
#[derive(Debug)]
pub struct Forwarder {
    clients: Clients,
    chance: u64,
}

impl Forwarder {
    /// Returns a forwarder without recent clients. `seed` is the start of the random numbers.
    pub fn new(seed: u64) -> Forwarder {
        // From every start but 0, xorshift reaches all other numbers but 0.
        Forwarder { clients: Clients::default(), chance: seed.max(1) }
    }

    /// Decides about a batch; `now` is in seconds and never goes back. Writes the switch's fields into the packets. `plan` then
    /// lists the packets to send and their destinations, and nothing else.
    pub fn decide(&mut self, state: &mut DeviceState, batch: &mut Batch, plan: &mut SendPlan, now: u32) {
        plan.clear();
        state.counters.batch(batch.len());
        for place in 0..batch.len() {
            let (datagram, source) = batch.get_mut(place);
            match self.one(state, datagram, source, now) {
                Ok(Some(to)) => plan.push(place, to),
                Ok(None) => state.counters.absorbed += 1,
                Err(cut) => state.counters.cut(cut),
            }
        }
    }

    /// Decides about one datagram: its destination, or `None` if it was for the switch alone.
    fn one(
        &mut self,
        state: &mut DeviceState,
        datagram: &mut [u8],
        source: ReplyTo,
        now: u32,
    ) -> Result<Option<ReplyTo>, Cut> {
        let Packet { header, reply_to, .. } = Packet::decode(datagram)?;
        match header.operation {
            // Clients send only reads; a primary sends its own writes. Writes from any source would fill the dirty set.
            Operation::Reply | Operation::Completion | Operation::WriteFirst | Operation::WriteRest
                if !state.ports.is_replica(source) =>
            {
                return Err(Cut::Stranger);
            }
            Operation::Reply | Operation::Completion => {}
            _ if reply_to == source => {
                // No packet comes from port 0, even if a datagram claims it; no answer could reach it.
                if source.port != 0 && self.clients.saw(source, now) {
                    state.counters.clients_evicted += 1;
                }
            }
            _ if reply_to.port == 0 || state.ports.is_replica(source) => {}
            _ => return Err(Cut::ForeignReply),
        }
        let mut passed = header;
        match state.process(&mut passed, self.chance()) {
            Verdict::To(replica) => {
                let port = state.ports.get(replica).ok_or(Cut::NoPort)?;
                passed.stamp(datagram);
                Ok(Some(port))
            }
            Verdict::On if header.operation == Operation::Completion && reply_to.port == 0 => Ok(None),
            Verdict::On if self.clients.knows(reply_to, now) => Ok(Some(reply_to)),
            Verdict::On => Err(Cut::UnknownClient),
            Verdict::Drop(why) => Err(why.into()),
        }
    }

    /// Returns the next random number (xorshift64*): it only distributes reads.
    fn chance(&mut self) -> u32 {
        let mut x = self.chance;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.chance = x;
        (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
}

#[cfg(test)]
#[path = "forward_test.rs"]
mod tests;
