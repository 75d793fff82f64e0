//! Packets between machines and switches, and faults of switches.

use bytes::Bytes;
use header::{Operation, Packet};
use node::Input;
use switch::pipeline::{Verdict, Why};

use crate::sim::host::Host;
use crate::sim::queue::Event;
use crate::sim::switch::{SWITCH, SWITCHES, Switches, host_at};
use crate::sim::world::World;

impl<H: Host> World<H> {
    pub(in crate::sim) fn switches(&mut self) -> &mut Switches {
        self.switches.as_mut().expect("there are switches")
    }

    /// Sends a machine's packet to its switch.
    pub(in crate::sim) fn send_packet(&mut self, from: usize, to: header::ReplyTo, bytes: Bytes) {
        let operation = Packet::decode(&bytes).ok().map(|packet| packet.header.operation);
        let (Some(switches), Some(operation)) = (&mut self.switches, operation.filter(|_| to == SWITCH)) else {
            return self.fail("packets go to a switch", format!("{from} sends {bytes:?} to {to:?}"));
        };
        let at = switches.routes[from];
        let delays = switches.way(operation);
        if delays.is_empty() {
            self.marks.hit("switch: a packet was lost");
        }
        for delay in delays {
            self.queue_in(delay, Event::AtSwitch { at, from, bytes: bytes.clone() });
        }
    }

    /// Passes a packet through a switch.
    pub(in crate::sim) fn on_packet(&mut self, at: usize, from: usize, bytes: Bytes) {
        let packet = Packet::decode(&bytes).expect("it was one when it was sent");
        let switches = self.switches.as_mut().expect("it was sent to one");
        let device = &switches.devices[at];
        if !device.up {
            return;
        }
        let mut header = packet.header;
        header.object = switches.object(header.object);
        let (chance, defect) = (switches.rng.bits() as u32, switches.rules.defect);
        let verdict = switches.devices[at].process(&mut header, chance, defect);
        let numbers = [at as u64, from as u64, header.operation as u64, header.sequence, header.committed];
        self.trace.note(self.now, &numbers, &bytes, || format!("switch {at} has {header:?} of {from}: {verdict:?}"));
        let to = match verdict {
            Verdict::To(replica) => Some(replica as usize),
            Verdict::On if header.operation == Operation::Reply => host_at(packet.reply_to),
            Verdict::On => return,
            Verdict::Drop(why) => {
                return self.marks.hit(match why {
                    Why::Full => "switch: a write was dropped for want of a slot",
                    Why::NoPartition => "switch: a packet was of no partition",
                    Why::Stale => "switch: a completion was stale",
                });
            }
        };
        let switches = self.switches.as_mut().expect("just used");
        if header.operation == Operation::WriteFirst
            && header.switch > 0
            && let Err(detail) = switches.note_number(&header)
        {
            return self.fail("a number is given once", detail);
        }
        let Some(to) = to.filter(|to| *to < self.scenario.hosts) else { return };
        let switches = self.switches.as_mut().expect("just used");
        let is_cut = switches.rules.shares_wires && from != to && self.network.is_blocked(from, to);
        let delays = if is_cut { Vec::new() } else { switches.way(header.operation) };
        let mut bytes = bytes.to_vec();
        header.stamp(&mut bytes);
        let bytes = Bytes::from(bytes);
        for delay in delays {
            self.queue_in(delay, Event::Packet { to, bytes: bytes.clone() });
        }
    }

    /// Delivers a packet to a machine, for the process that runs there.
    pub(in crate::sim) fn on_packet_here(&mut self, to: usize, bytes: Bytes) {
        self.trace.note(self.now, &[to as u64], &bytes, || format!("{to} gets a packet of {} bytes", bytes.len()));
        self.deliver(to, Input::Packet { from: SWITCH, bytes });
    }

    /// Restarts a switch, which loses its state.
    pub(in crate::sim) fn restart_switch(&mut self, other: bool) {
        let Some(switches) = &mut self.switches else { return };
        let at = if other { (switches.current + 1) % SWITCHES } else { switches.current };
        self.marks.hit("switch: restarted");
        if switches.devices[at].dirty() > 0 {
            self.marks.hit("switch: restarted while dirty");
        }
        switches.devices[at].restart(&switches.rules);
    }

    /// Puts another switch in place of the one in use: these machines' packets go there, and those of the other machines later.
    pub(in crate::sim) fn replace_switch(&mut self, moved: u64) {
        let Some(switches) = &mut self.switches else { return };
        switches.current = (switches.current + 1) % SWITCHES;
        switches.devices[switches.current].is_kept = true;
        for (host, route) in switches.routes.iter_mut().enumerate() {
            if moved >> (host % 64) & 1 == 1 {
                *route = switches.current;
            }
        }
        let current = switches.current;
        if switches.routes.iter().any(|route| *route != current) && switches.devices.iter().all(|device| device.up) {
            self.marks.hit("switch: two alive");
        }
    }

    /// Sends the other machines' packets to the new switch, too. No controller sets the old one's tables any more.
    pub(in crate::sim) fn replaced_switch(&mut self) {
        let Some(switches) = &mut self.switches else { return };
        let current = switches.current;
        switches.routes.fill(current);
        switches.devices[(current + 1) % SWITCHES].is_kept = false;
    }

    /// Stops the switch in use from forwarding packets, and returns its index.
    pub(in crate::sim) fn cut_switch(&mut self) -> Option<usize> {
        let switches = self.switches.as_mut()?;
        switches.devices[switches.current].up = false;
        Some(switches.current)
    }

    /// Lets the switch forward packets again.
    pub(in crate::sim) fn mend_switch(&mut self, at: usize) {
        self.switches().devices[at].up = true;
    }
}
