//! How long machines take for what comes in, and how busy that makes them (a model: a time for each input).

use std::time::Duration;

use group::time::Time;
use node::Input;

use crate::sim::host::Host;
use crate::sim::world::World;

/// For how long one machine was busy since it was measured last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    measured: Time,
    busy: Duration,
}

impl<H: Host> World<H> {
    /// Returns how long a machine takes for so many inputs.
    fn time_of(&self, host: usize, inputs: usize) -> Duration {
        let factors = &self.scenario.service_factors;
        let factor = host.checked_rem(factors.len()).map_or(1, |index| factors[index]);
        self.scenario.service_time * self.slowness * factor * inputs as u32
    }

    /// Keeps a machine busy with these inputs, and adds what a real peer's loop would tell its node of how busy it was, where that is due.
    pub(super) fn keep_busy(&mut self, host: usize, inputs: &mut impl Extend<Input>, count: usize) {
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
