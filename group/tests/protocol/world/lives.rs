//! Ends and starts of members' processes.

use group::Group;

use super::World;
use super::disk::Disk;

impl World {
    /// Begins a new incarnation, without any data of the last.
    pub fn reincarnate(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        peer.node.incarnation.0 += 1;
        peer.run += 1;
        (peer.group, peer.disk, peer.join_due, peer.down) = (None, Disk::default(), self.now, false);
    }

    /// Ends a process, with all data that was not durable.
    pub fn crash(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        peer.group = None;
        peer.down = true;
        peer.disk.crash();
        peer.run += 1;
    }

    /// Lets these other members see that the peer's connections closed.
    pub fn close(&mut self, index: usize, others: &[usize]) {
        let peer = self.peers[index].node.peer;
        others.iter().for_each(|other| self.act(*other, |group| group.on_broken(peer)));
    }

    /// Ends a process with a bad end of its journal: the last write is `lost`, or none is.
    pub fn tear(&mut self, index: usize, lost: bool) {
        self.crash(index);
        let disk = &mut self.peers[index].disk;
        if !disk.is_empty() {
            let _ = lost && disk.tear();
            disk.doubt();
            // Its knowledge of other members' runs may be among the lost data.
            self.heard.retain(|(of, _), _| *of != index);
        }
    }

    /// Starts a process again, with the data of its disk.
    pub fn restart(&mut self, index: usize, sealed: bool) {
        if !self.peers[index].down {
            return;
        }
        if self.peers[index].disk.is_empty() {
            return self.reincarnate(index);
        }
        let (config, now) = (self.config(), self.local(index));
        let seed = self.seed ^ (self.peers[index].run << 8) ^ index as u64;
        let peer = &mut self.peers[index];
        peer.down = false;
        peer.disk.open();
        let stored = peer.disk.stored(sealed);
        peer.group = Some(Group::restore(config, peer.node, stored, now, seed));
        self.drain(index);
    }
}
