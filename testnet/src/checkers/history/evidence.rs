//! Evidence in answers about operations of unknown outcome, to keep the search narrow.

use std::borrow::Cow;

use bytes::Bytes;
use group::op::{Answer, Condition, Expiry, Op, Read};

use super::calls::CallOf;
use super::model::ModelState;

/// Degree of evidence that an operation of unknown outcome has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// Its value is part of some answer.
    Seen,
    /// It has no effect that an answer could show, a deletion for instance.
    Invisible,
    /// Its value is in no answer.
    Unseen,
    /// It cannot have taken effect: its value would have to be in the last answer.
    Impossible,
}

/// Evidence from the answers on one key.
#[derive(Debug)]
pub struct Evidence {
    values: Vec<Bytes>,
    /// Bits of the summands in the last answer. Set where nothing is ever taken away, each summand is a bit of its own, and the
    /// last answer shows all.
    bits: Option<i64>,
    /// The list in the last answer. Set where nothing is ever taken away and the last answer shows all.
    list: Option<Bytes>,
}

impl Evidence {
    /// Collects the evidence of one key's calls.
    pub fn of(calls: &[CallOf<'_>]) -> Evidence {
        let values = calls
            .iter()
            .filter_map(|call| match call.answer? {
                Answer::Value(value) => value.clone(),
                Answer::Versioned(Some((value, _))) => Some(value.clone()),
                Answer::Held { holder, .. } => Some(holder.clone()),
                // Sums are found as the values that they are.
                Answer::Integer(sum) => Some(Bytes::from(sum.to_string())),
                _ => None,
            })
            .collect();
        let last = last_value(calls);
        let list = last.clone().filter(|_| calls.iter().all(|call| matches!(call.op, Op::Append { .. } | Op::Read(_))));
        let bits = last.and_then(|last| number(&last)).filter(|_| sums_of_bits(calls));
        Evidence { values, bits, list }
    }

    /// Returns the degree of evidence for this call of unknown outcome.
    pub fn trust(&self, call: &CallOf<'_>) -> Trust {
        match call.op {
            Op::Append { value, .. } => match &self.list {
                Some(list) if contains(list, value) => Trust::Seen,
                Some(_) => Trust::Impossible,
                None => self.seen(value),
            },
            Op::Set { value, .. } => self.seen(value),
            Op::Add(delta) => match self.bits {
                Some(bits) if bits & delta != 0 => Trust::Seen,
                Some(_) => Trust::Impossible,
                None => Trust::Unseen,
            },
            _ => Trust::Invisible,
        }
    }

    /// Returns whether the last answer on the key rules this state out at any time: no part of a value was ever taken away.
    pub fn rules_out(&self, state: &ModelState) -> bool {
        let value = state.value.as_deref().unwrap_or_default();
        match (&self.list, self.bits) {
            (Some(list), _) => !list.starts_with(value),
            (None, Some(bits)) => number(value).is_some_and(|sum| sum & !bits != 0),
            (None, None) => false,
        }
    }

    /// Returns whether no growth of the state's value can lead to this answer.
    pub fn out_of_reach(&self, growth: Growth, state: &ModelState, call: &CallOf<'_>) -> bool {
        let sum = match (call.op, call.answer) {
            (Op::Add(_), Some(Answer::Integer(sum))) => Some(*sum),
            (Op::Read(Read::Value), Some(Answer::Value(Some(read)))) => number(read),
            _ => None,
        };
        match (self.bits, sum, number(state.value.as_deref().unwrap_or_default())) {
            (Some(_), Some(sum), Some(before)) => before & !sum != 0,
            _ => growth.out_of_reach(state, call),
        }
    }

    /// Returns the summands of unknown outcome that are worth a place next, as bits: for each open answer that tells the sum, the
    /// lowest summand that it contains and the state lacks. Sums are equal in any order, so the rest may wait; otherwise every
    /// subset of them would be a state of its own. Returns all, where some open answer leaves the sum open.
    pub fn summands<'a>(&self, state: &ModelState, open: impl Iterator<Item = &'a CallOf<'a>>) -> i64 {
        let (Some(_), Some(before)) = (self.bits, number(state.value.as_deref().unwrap_or_default())) else {
            return -1;
        };
        let (mut next, mut unknown, mut sums) = (0, 0, Vec::new());
        for call in open {
            match (call.op, call.answer) {
                (Op::Add(delta), None) => unknown |= delta,
                (_, None) => {}
                (Op::Add(delta), Some(Answer::Integer(sum))) => sums.push(sum & !delta),
                (Op::Read(Read::Value), Some(Answer::Value(value))) => {
                    sums.extend(number(value.as_deref().unwrap_or_default()));
                }
                _ => return -1,
            }
        }
        for sum in sums.into_iter().filter(|sum| before & !sum == 0) {
            let missing = sum & !before & unknown;
            next |= missing & missing.wrapping_neg();
        }
        next
    }

    /// Returns, for calls of unknown outcome that cannot be told from each other, the number of their kind: deletions under the
    /// same condition, and settings of one value, as [`Evidence::plain`] has it: `ops` is that of these calls.
    pub fn kinds(&self, calls: &[CallOf<'_>], ops: &[Cow<'_, Op>]) -> Vec<Option<usize>> {
        let mut kinds: Vec<Op> = Vec::new();
        let mut number_of = |kind: Op| {
            let known = kinds.iter().position(|known| *known == kind);
            known.unwrap_or_else(|| {
                kinds.push(kind);
                kinds.len() - 1
            })
        };
        let unknown = |(call, op): (&CallOf<'_>, &Cow<'_, Op>)| kind_of(op).filter(|_| call.completed.is_none());
        calls.iter().zip(ops).map(|pair| unknown(pair).map(&mut number_of)).collect()
    }

    /// Returns the calls' operations, with one value of each length for all values that cannot be told from each other: no answer
    /// shows them, no condition names them, and no number has them in it. So many writers at once do not lead to as many states.
    pub fn plain<'a>(&self, calls: &[CallOf<'a>]) -> Vec<Cow<'a, Op>> {
        let named: Vec<&Bytes> = calls.iter().filter_map(|call| named(call.op)).collect();
        let is_hidden = |value: &Bytes| {
            let somewhere = |whole: &Bytes| contains(whole, value);
            is_no_number(value) && !self.values.iter().any(somewhere) && !named.iter().any(|whole| somewhere(whole))
        };
        let plain = |call: &CallOf<'a>| match call.op {
            Op::Set { value, .. } | Op::Append { value, .. } if is_hidden(value) && is_hidden(&blank(value)) => {
                Cow::Owned(with_value(call.op, blank(value)))
            }
            op => Cow::Borrowed(op),
        };
        calls.iter().map(plain).collect()
    }

    fn seen(&self, value: &Bytes) -> Trust {
        if self.values.iter().any(|answer| contains(answer, value)) { Trust::Seen } else { Trust::Unseen }
    }
}

/// Returns the kind of a deletion or of a setting that leaves no deadline: the operation without the request for the old value.
fn kind_of(op: &Op) -> Option<Op> {
    match op {
        Op::Delete { condition, .. } => Some(Op::Delete { condition: condition.clone(), get: false }),
        Op::Set { value, condition, expiry: expiry @ (Expiry::Clear | Expiry::Keep), .. } => {
            Some(Op::Set { value: value.clone(), condition: condition.clone(), expiry: *expiry, get: false })
        }
        _ => None,
    }
}

/// Returns the same setting or addition with another value.
fn with_value(op: &Op, other: Bytes) -> Op {
    let mut op = op.clone();
    if let Op::Set { value, .. } | Op::Append { value, .. } = &mut op {
        *value = other;
    }
    op
}

/// Returns the value that was read after all calls were over, if there is such a read: any read that overlaps it read the same.
fn last_value(calls: &[CallOf<'_>]) -> Option<Bytes> {
    let last = calls.iter().max_by_key(|call| call.completed)?;
    let (Op::Read(Read::Value), Some(Answer::Value(value))) = (last.op, last.answer) else { return None };
    let before = |call: &CallOf<'_>| call.completed.is_none_or(|completed| completed < last.invoked);
    let same = |call: &CallOf<'_>| *call.op == Op::Read(Read::Value) && call.answer == last.answer;
    calls.iter().all(|call| before(call) || same(call)).then(|| value.clone().unwrap_or_default())
}

fn sums_of_bits(calls: &[CallOf<'_>]) -> bool {
    let mut all = 0;
    calls.iter().all(|call| match call.op {
        Op::Read(_) => true,
        Op::Add(delta) => {
            let fresh = delta.count_ones() == 1 && *delta > 0 && all & delta == 0;
            all |= delta;
            fresh
        }
        _ => false,
    })
}

fn contains(whole: &[u8], part: &[u8]) -> bool {
    part.is_empty() || whole.windows(part.len()).any(|window| window == part)
}

/// Returns another value of the same length, which no client writes.
fn blank(value: &Bytes) -> Bytes {
    Bytes::from(vec![0; value.len()])
}

/// Returns whether no value that contains this one is a number.
fn is_no_number(value: &[u8]) -> bool {
    value.strip_prefix(b"-").unwrap_or(value).iter().any(|byte| !byte.is_ascii_digit())
}

/// Returns the value that an operation's condition names.
fn named(op: &Op) -> Option<&Bytes> {
    match op {
        Op::Set { condition, .. } | Op::Delete { condition, .. } => match condition {
            Condition::Equals(value) | Condition::Differs(value) => Some(value),
            _ => None,
        },
        _ => None,
    }
}

/// Upper limit of the open operations' effects on a value. Where they can only make the value grow, many states need not be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Bytes are added at the value's end.
    Appends,
    /// The value is a number, and becomes larger.
    Sums,
    /// The value may change in any way.
    Any,
}

impl Growth {
    /// Returns the growth that these operations can cause.
    pub fn of<'a>(ops: impl Iterator<Item = &'a Op>) -> Growth {
        let mut growth = None;
        for op in ops {
            let this = match op {
                Op::Read(_) => continue,
                Op::Append { .. } => Growth::Appends,
                Op::Add(delta) if *delta > 0 => Growth::Sums,
                _ => return Growth::Any,
            };
            if growth.is_some_and(|other| other != this) {
                return Growth::Any;
            }
            growth = Some(this);
        }
        growth.unwrap_or(Growth::Appends)
    }

    fn out_of_reach(self, state: &ModelState, call: &CallOf<'_>) -> bool {
        if state.deadline.is_some() {
            return false;
        }
        let value = state.value.as_deref().unwrap_or_default();
        match (self, call.op, call.answer) {
            (Growth::Appends, Op::Append { value: added, .. }, Some(Answer::Integer(length))) => {
                value.len() + added.len() > *length as usize
            }
            (Growth::Appends, Op::Read(Read::Value), Some(Answer::Value(Some(read)))) => !read.starts_with(value),
            (Growth::Sums, Op::Add(delta), Some(Answer::Integer(sum))) => {
                number(value).is_some_and(|before| before.saturating_add(*delta) > *sum)
            }
            (Growth::Sums, Op::Read(Read::Value), Some(Answer::Value(Some(read)))) => {
                matches!((number(value), number(read)), (Some(before), Some(read)) if before > read)
            }
            _ => false,
        }
    }
}

fn number(value: &[u8]) -> Option<i64> {
    if value.is_empty() {
        return Some(0);
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}
