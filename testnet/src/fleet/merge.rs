//! Histories of several hosts as one, in one time.
//!
//! Hosts on one machine share a steady clock. The times of another machine are known up to an error: each of its operations is taken
//! to last that much longer at both ends, so that no order between hosts is claimed that was not seen.

use std::collections::BTreeMap;

use overlay::time::Time;

use crate::history::{History, Moment};

/// A host's history, with what brings its times to the common time.
#[derive(Clone, Debug)]
pub struct HostHistory {
    /// Number of the host: its clients and peers get numbers of their own.
    pub host: u64,
    /// Difference between the common time and the history's, in nanoseconds.
    pub offset_ns: i64,
    /// Upper limit of the error of that, in nanoseconds.
    pub error_ns: u64,
    /// The operations.
    pub history: History,
}

/// Distance between the numbers of clients of two hosts.
const CLIENTS: u64 = 1_000_000;
/// Distance between the numbers of peers of two hosts.
const PEERS: usize = 10_000;

/// Returns one history of all hosts. Of moments at the same time, requests come before answers: nothing is ordered that may have
/// been concurrent.
pub fn merged(hosts: Vec<HostHistory>) -> History {
    let mut operations = Vec::new();
    for HostHistory { host, offset_ns, error_ns, history } in hosts {
        let shifted = |time: Time, earlier: u64, later: u64| {
            Time(time.0.saturating_add_signed(offset_ns).saturating_sub(earlier).saturating_add(later))
        };
        for mut operation in history.operations {
            operation.client += host * CLIENTS;
            operation.connection = operation.connection.wrapping_add(host.rotate_right(8));
            operation.via += host as usize * PEERS;
            operation.invoked.time = shifted(operation.invoked.time, error_ns, 0);
            if let Some(completed) = &mut operation.completed {
                completed.time = shifted(completed.time, 0, error_ns);
            }
            operations.push((host, operation));
        }
    }
    let mut moments: Vec<(Time, bool, u64, u64)> = Vec::new();
    for (host, operation) in &operations {
        moments.push((operation.invoked.time, false, *host, operation.invoked.order));
        moments.extend(operation.completed.map(|completed| (completed.time, true, *host, completed.order)));
    }
    moments.sort_unstable();
    let place = |(index, (_, is_answer, host, order)): (usize, &(Time, bool, u64, u64))| {
        ((*is_answer, *host, *order), index as u64 + 1)
    };
    let places: BTreeMap<(bool, u64, u64), u64> = moments.iter().enumerate().map(place).collect();
    let moment =
        |is_answer, host: u64, it: Moment| Moment { order: places[&(is_answer, host, it.order)], time: it.time };
    for (host, operation) in &mut operations {
        operation.invoked = moment(false, *host, operation.invoked);
        operation.completed = operation.completed.map(|completed| moment(true, *host, completed));
    }
    operations.sort_by_key(|(_, operation)| operation.invoked);
    let mut history = History::default();
    operations.into_iter().for_each(|(_, operation)| {
        history.invoke(operation);
    });
    history
}

#[cfg(test)]
mod tests {
    use group::op::{Answer, Op, Read, ReadMode};
    use overlay::Key;

    use super::*;
    use crate::history::{Operation, Outcome};

    /// A history of one operation that lasted from 100 to 200 ns of its host's time.
    fn short() -> History {
        let mut history = History::default();
        let invoked = history.moment(Time(100));
        let place = history.invoke(Operation {
            client: 1,
            connection: 1,
            via: 0,
            key: Key::new(b"k").expect("short"),
            op: Op::Read(Read::Value),
            mode: ReadMode::Linearizable,
            once: None,
            invoked,
            completed: None,
            outcome: Outcome::Uncertain,
        });
        history.complete(place, Time(200), Outcome::Answered(Answer::Value(None)));
        history
    }

    fn host(host: u64, offset_ns: i64, error_ns: u64) -> HostHistory {
        HostHistory { host, offset_ns, error_ns, history: short() }
    }

    #[test]
    fn operations_come_in_the_order_of_the_common_time() {
        let one = merged(vec![host(0, 1_000, 0), host(1, 0, 0)]);
        let ends = |history: &History| {
            let end = |it: &Operation| (it.client, it.invoked.order, it.completed.map(|at| at.order));
            history.operations.iter().map(end).collect::<Vec<_>>()
        };
        assert_eq!(ends(&one), [(1_000_001, 1, Some(2)), (1, 3, Some(4))]);
        assert_eq!(one.operations[1].via, 0);
        // With an error of 500 ns at each end, the two may have been concurrent.
        let unsure = merged(vec![host(0, 1_000, 500), host(1, 0, 500)]);
        assert_eq!(ends(&unsure), [(1_000_001, 1, Some(3)), (1, 2, Some(4))]);
    }

    #[test]
    fn moments_of_one_time_are_concurrent() {
        // The answer on one host and the request on the other are both at 200.
        let both = merged(vec![host(0, 0, 0), host(1, 100, 0)]);
        assert_eq!(both.operations[1].invoked.order, 2);
        assert_eq!(both.operations[0].completed.map(|at| at.order), Some(3));
    }
}
