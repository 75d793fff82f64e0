//! The time that machines take for inputs, and how busy that makes them (a model: a time for each input).

use std::time::Duration;

use node::Input;
use overlay::time::Time;

use crate::sim::host::Host;
use crate::sim::world::World;

/// Time for which one machine was busy since the last measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sim) struct Usage {
    measured: Time,
    busy: Duration,
}

impl<H: Host> World<H> {
    /// Returns the time that a machine takes for this number of inputs.
    fn time_of(&self, host: usize, inputs: usize) -> Duration {
        let factors = &self.scenario.service_factors;
        let factor = host.checked_rem(factors.len()).map_or(1, |index| factors[index]);
        self.scenario.service_time * self.slowness * factor * inputs as u32
    }

    /// Keeps a machine busy with these inputs. Where the next report is due, adds the one that a real peer's loop makes to its node
    /// of its busy time.
    pub(in crate::sim) fn keep_busy(&mut self, host: usize, inputs: &mut impl Extend<Input>, count: usize) {
        let time = self.time_of(host, count);
        let machine = &mut self.machines[host];
        machine.busy_until = self.now + time;
        let Some(every) = self.scenario.tell_busy else { return };
        let window = self.now.since(machine.usage.measured);
        if window >= every {
            let busy = machine.usage.busy.min(window);
            inputs.extend([Input::Busy { window, busy }]);
            machine.usage = Usage { measured: self.now, busy: Duration::ZERO };
        }
        machine.usage.busy += time;
    }
}
