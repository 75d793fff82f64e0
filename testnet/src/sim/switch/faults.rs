//! Faults of switches.

use crate::marks::Marks;
use crate::sim::switch::{SWITCHES, Switches};

impl Switches {
    /// Restarts a switch, which loses its state: the one in use, or the other one.
    pub(in crate::sim) fn restart(&mut self, other: bool, marks: &mut Marks) {
        let at = if other { (self.current + 1) % SWITCHES } else { self.current };
        marks.hit("switch: restarted");
        if self.devices[at].dirty() > 0 {
            marks.hit("switch: restarted while dirty");
        }
        self.devices[at].restart(&self.rules);
    }

    /// Puts another switch in place of the one in use: these machines' packets go there, and those of the other machines later.
    pub(in crate::sim) fn replace(&mut self, moved: u64, marks: &mut Marks) {
        self.current = (self.current + 1) % SWITCHES;
        self.devices[self.current].is_kept = true;
        for (host, route) in self.routes.iter_mut().enumerate() {
            if moved >> (host % 64) & 1 == 1 {
                *route = self.current;
            }
        }
        let current = self.current;
        if self.routes.iter().any(|route| *route != current) && self.devices.iter().all(|device| device.up) {
            marks.hit("switch: two alive");
        }
    }

    /// Sends the other machines' packets to the new switch, too. No controller sets the old one's tables any more.
    pub(in crate::sim) fn replaced(&mut self) {
        let current = self.current;
        self.routes.fill(current);
        self.devices[(current + 1) % SWITCHES].is_kept = false;
    }

    /// Stops the switch in use from forwarding packets, and returns its index.
    pub(in crate::sim) fn cut(&mut self) -> usize {
        self.devices[self.current].up = false;
        self.current
    }

    /// Lets the switch forward packets again.
    pub(in crate::sim) fn mend(&mut self, at: usize) {
        self.devices[at].up = true;
    }
}
