//! Once a read completes without the effect of a timed-out operation, that operation never takes effect (I8; fRSM §3.3, Figure 1).
//!
//! An operation of unknown outcome must not come behind a read that settles it. A read settles it under two conditions. It was
//! asked after the client was told of the unknown outcome, and after all frames that were on their way by then have arrived: no
//! replica could have been asked about a request that a wire kept back. So this is the search for an order once more, with these
//! pairs in order.

use std::time::Duration;

use group::op::{Answer, Op};
use overlay::time::Time;

use super::calls::CallOf;

/// Time of frames that no fault holds up, and of a node's own delays.
const MARGIN: Duration = Duration::from_millis(500);

/// Returns whether the read, an answered call, settles the call of unknown outcome. A frame sent within one of the `stalls`, which
/// are in order, may arrive at its end.
pub fn settles(call: &CallOf<'_>, read: &CallOf<'_>, stalls: &[(Time, Time)]) -> bool {
    let Some((told, told_at)) = call.told else { return false };
    if read.invoked < told || !rests_on_state(read) {
        return false;
    }
    let from = stalls.partition_point(|(_, to)| *to < call.invoked_at);
    let arrived =
        stalls[from..].iter().take_while(|(from, _)| *from <= told_at).fold(told_at, |latest, (_, to)| latest.max(*to));
    read.invoked_at > arrived + MARGIN
}

/// Returns whether a call's answer rests on the key's state. Reads do, and "condition not met" does; a write's own answer tells
/// nothing about earlier writes.
fn rests_on_state(call: &CallOf<'_>) -> bool {
    match call.answer {
        Some(Answer::NotMet) => true,
        Some(_) => matches!(call.op, Op::Read(_)),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use group::op::Read;

    use super::*;

    fn seconds(count: u64) -> Time {
        Time(count * 1_000_000_000)
    }

    #[test]
    fn what_was_kept_back_is_waited_for() {
        let add = Op::Add(1);
        let call = CallOf {
            client: 1,
            op: &add,
            answer: None,
            invoked: 10,
            completed: None,
            told: Some((13, seconds(13))),
            invoked_at: seconds(10),
            completed_at: None,
            predecessor: None,
            successors: Vec::new(),
        };
        let (op, answer) = (Op::Read(Read::Exists), Answer::Integer(0));
        let read = |at| CallOf {
            op: &op,
            answer: Some(&answer),
            invoked: at,
            invoked_at: seconds(at),
            completed: Some(at),
            completed_at: Some(seconds(at)),
            told: None,
            ..call.clone()
        };
        assert!(!settles(&call, &read(12), &[]));
        assert!(settles(&call, &read(14), &[]));
        let stalls = [(seconds(1), seconds(2)), (seconds(11), seconds(20)), (seconds(30), seconds(40))];
        assert!(!settles(&call, &read(19), &stalls));
        assert!(settles(&call, &read(21), &stalls));
    }
}
