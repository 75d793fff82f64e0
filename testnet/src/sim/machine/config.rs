//! Settings of the node that a machine starts.

use node::{NodeConfig, SwitchConfig};
use overlay::Incarnation;
use overlay::time::Time;

use crate::sim::machine::Machine;
use crate::sim::scenario::Scenario;
use crate::sim::switch::{SWITCH, address_of};

impl<H> Machine<H> {
    /// Returns the settings of a process that starts `now` on this machine, which is number `host`.
    pub(in crate::sim) fn config(&self, host: usize, scenario: &Scenario, now: Time) -> NodeConfig {
        let wall_s = self.clocks.at(now).wall.0 / 1000;
        // Lives of one machine differ in the salt, and lives of different machines in their keys.
        let salt = (u64::from(self.life) << 8) | (host as u64 % 256);
        NodeConfig {
            former: self.former,
            ring: self.ring,
            found: self.founder,
            durability: scenario.durability,
            leases: scenario.leases,
            coarse: scenario.coarse,
            members_min: scenario.members.0,
            members_max: scenario.members.1,
            memory_bytes_max: scenario.memory_bytes_max,
            value_bytes_max: scenario.value_bytes_max,
            message_bytes_max: scenario.message_bytes_max,
            transfer_bytes_per_s: scenario.transfer_bytes_per_s,
            timing: scenario.timing.clone(),
            policies: scenario.policies,
            defects: scenario.defects,
            cluster: match host.checked_rem(scenario.clusters) {
                _ if scenario.switch.is_some() => "hall".into(),
                Some(cluster) => format!("cluster {cluster}"),
                None => String::new(),
            },
            switch: scenario.switch.as_ref().map(|_| SwitchConfig { at: SWITCH, here: address_of(host) }),
            fatal_contradictions: true,
            ..NodeConfig::new(self.key, Incarnation(wall_s << 24 | salt))
        }
    }
}
