//! The time that machines take for inputs, and how busy that makes them (a model: a time for each input).

use std::time::Duration;

use node::Input;
use overlay::time::Time;

use crate::sim::machine::Machine;

/// Time for which one machine was busy since the last measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sim) struct Usage {
    measured: Time,
    busy: Duration,
}

impl<H> Machine<H> {
    /// Keeps the machine busy for `time` from `now` on. Returns the report of its busy time, as a real peer's loop makes it to its
    /// node, where one is due `every` so often.
    pub(in crate::sim) fn keep_busy(&mut self, now: Time, time: Duration, every: Option<Duration>) -> Option<Input> {
        self.busy_until = now + time;
        let every = every?;
        let window = now.since(self.usage.measured);
        let report = (window >= every).then(|| {
            let busy = self.usage.busy.min(window);
            self.usage = Usage { measured: now, busy: Duration::ZERO };
            Input::Busy { window, busy }
        });
        self.usage.busy += time;
        report
    }
}
