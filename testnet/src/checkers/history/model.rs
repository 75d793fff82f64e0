//! Model of one key, with all that a client cannot know left open.

use std::time::Duration;

use bytes::Bytes;
use group::op::{Answer, Condition, ExpireOnly, Expiry, Kind, LeaseOp, Op, Read, Unfit, Version};
use overlay::time::Time;

/// Knowledge of a key's state at one point of a sequential history.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelState {
    /// The value; `None` if the key is absent.
    pub value: Option<Bytes>,
    /// Kind of the value.
    pub kind: Kind,
    /// The key expires between these two times.
    pub deadline: Option<(Time, Time)>,
    /// The version is at least this one: versions may also rise without a visible change (fRSM's quench).
    pub version: Version,
    /// Whether the key was changed since that version was seen.
    pub changed: bool,
}

/// Assumptions of the model.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Greatest error and delay of the group's clock; `None`: no time is known by which a deadline has passed.
    pub clock_slack: Option<Duration>,
    /// Size limit of a value, in bytes.
    pub value_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { clock_slack: Some(Duration::from_secs(10)), value_bytes_max: 64 << 10 }
    }
}

/// One operation as the model sees it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Requested operation.
    pub op: &'a Op,
    /// Given answer; `None` if it is not known.
    pub answer: Option<&'a Answer>,
    /// Start of the period in which the operation was evaluated.
    pub from: Time,
    /// End of that period.
    pub until: Time,
}

/// Result of a condition.
enum Holds {
    Yes,
    No,
    /// The condition names a version that the state may have.
    IfVersion(Version),
}

impl ModelState {
    /// Returns all states that the call can leave behind if it takes effect here; none if the call cannot have been answered so.
    pub fn after(&self, call: &Call<'_>, limits: &Limits) -> Vec<ModelState> {
        let mut states = Vec::new();
        if let Some((earliest, latest)) = self.deadline {
            if call.until >= earliest {
                self.expired().evaluate(call, limits, &mut states);
            }
            if call.from > latest {
                return states;
            }
        }
        self.evaluate(call, limits, &mut states);
        states
    }

    /// Returns a state that is equivalent to this one for all calls that are answered at `now` or later and were asked at `last` or
    /// before. Two deadlines that may have passed for all of these calls are alike, and so are two that have passed for none.
    pub fn in_view_of(mut self, now: Time, last: Time) -> ModelState {
        if let Some((earliest, latest)) = &mut self.deadline {
            *earliest = if *earliest <= now { Time(0) } else { *earliest };
            *latest = if *latest >= last { Time::NEVER } else { *latest };
        }
        self
    }

    fn expired(&self) -> ModelState {
        self.changed_to(None, None)
    }

    fn evaluate(&self, call: &Call<'_>, limits: &Limits, states: &mut Vec<ModelState>) {
        let is_theirs = |kind: Kind| kind != self.kind && self.value.is_some();
        if call.op.kind().is_some_and(is_theirs) {
            return self.answer_if(call, &Answer::Unfit(Unfit::OtherKind), states);
        }
        match call.op {
            Op::Read(read) => states.extend(self.read(*read, call)),
            Op::Set { value, condition, expiry, get } => {
                if value.len() > limits.value_bytes_max {
                    return self.answer_if(call, &Answer::Unfit(Unfit::TooLong), states);
                }
                let next = self.changed_to(Some(value.clone()), self.new_deadline(*expiry, call, limits));
                self.conditional(condition, *get, next, call, states);
            }
            Op::Delete { condition, get } => {
                if self.value.is_none() {
                    let answer = if *get { Answer::Value(None) } else { Answer::NotMet };
                    return self.answer_if(call, &answer, states);
                }
                self.conditional(condition, *get, self.changed_to(None, None), call, states);
            }
            Op::Append { value, max } => self.append(value, *max, call, limits, states),
            Op::Add(delta) => self.add(*delta, call, states),
            Op::Expire { expiry, only } => self.expire(*expiry, *only, call, limits, states),
            Op::ReadExpire(expiry) => {
                let answer = Answer::Value(self.value.clone());
                let deadline = self.value.as_ref().and_then(|_| self.new_deadline(*expiry, call, limits));
                // The model leaves open whether a new deadline is a new version.
                ModelState { deadline, ..self.clone() }.answer_if(call, &answer, states);
            }
            Op::Lease(LeaseOp::Acquire { holder, term }) => self.acquire(holder, *term, call, limits, states),
            Op::Lease(LeaseOp::Release { holder }) => match self.value.as_ref() == Some(holder) {
                true => self.changed_to(None, None).answer_if(call, &Answer::Done, states),
                false => self.answer_if(call, &Answer::NotMet, states),
            },
        }
    }

    /// Adds this state, if the call was answered so or its answer is not known.
    fn answer_if(&self, call: &Call<'_>, answer: &Answer, states: &mut Vec<ModelState>) {
        if call.answer.is_none_or(|given| given == answer) {
            states.push(self.clone());
        }
    }

    fn changed_to(&self, value: Option<Bytes>, deadline: Option<(Time, Time)>) -> ModelState {
        ModelState { value, kind: Kind::Value, deadline, version: self.version, changed: true }
    }

    fn read(&self, read: Read, call: &Call<'_>) -> Option<ModelState> {
        let Some(answer) = call.answer else { return Some(self.clone()) };
        let fits = match (read, answer) {
            (Read::Value, Answer::Value(value)) => *value == self.value,
            (Read::Versioned, Answer::Versioned(None)) => self.value.is_none(),
            (Read::Versioned, Answer::Versioned(Some((value, version)))) => {
                return (self.value.as_ref() == Some(value)).then(|| self.at_version(*version)).flatten();
            }
            (Read::Exists, Answer::Integer(there)) => *there == i64::from(self.value.is_some()),
            (Read::Kind, Answer::Kind(kind)) => *kind == self.value.as_ref().map(|_| self.kind),
            (Read::Length, Answer::Integer(length)) => *length == self.length() as i64,
            (Read::TimeToLive, Answer::Integer(left)) => match (&self.value, self.deadline) {
                (None, _) => *left == -2,
                (Some(_), None) => *left == -1,
                (Some(_), Some(_)) => *left >= 0,
            },
            _ => false,
        };
        fits.then(|| self.clone())
    }

    fn length(&self) -> usize {
        self.value.as_ref().map_or(0, Bytes::len)
    }

    /// Returns the same state, with its version known; `None` where it cannot be that version.
    fn at_version(&self, version: Version) -> Option<ModelState> {
        let possible = if self.changed { version > self.version } else { version >= self.version };
        possible.then(|| ModelState { version, changed: false, ..self.clone() })
    }

    fn holds(&self, condition: &Condition) -> Holds {
        let plain = match condition {
            Condition::Always => true,
            Condition::Absent => self.value.is_none(),
            Condition::Present => self.value.is_some(),
            Condition::Equals(value) => self.value.as_ref() == Some(value),
            Condition::Differs(value) => self.value.as_ref() != Some(value),
            Condition::Version(version) => match self.value {
                Some(_) if self.at_version(*version).is_some() => return Holds::IfVersion(*version),
                _ => false,
            },
        };
        if plain { Holds::Yes } else { Holds::No }
    }

    fn conditional(
        &self,
        condition: &Condition,
        get: bool,
        next: ModelState,
        call: &Call<'_>,
        states: &mut Vec<ModelState>,
    ) {
        let before = Answer::Value(self.value.clone());
        let made = if get { &before } else { &Answer::Done };
        let not_met = if get { &before } else { &Answer::NotMet };
        match self.holds(condition) {
            Holds::Yes => next.answer_if(call, made, states),
            Holds::No => self.answer_if(call, not_met, states),
            Holds::IfVersion(version) => {
                ModelState { version, ..next }.answer_if(call, made, states);
                self.answer_if(call, not_met, states);
            }
        }
    }

    fn append(&self, added: &Bytes, max: Option<u32>, call: &Call<'_>, limits: &Limits, states: &mut Vec<ModelState>) {
        let length = self.length() + added.len();
        if max.is_some_and(|max| length > max as usize) {
            return self.answer_if(call, &Answer::NotMet, states);
        }
        if length > limits.value_bytes_max {
            return self.answer_if(call, &Answer::Unfit(Unfit::TooLong), states);
        }
        // Cheap first: most candidates fail here.
        let answer = Answer::Integer(length as i64);
        if call.answer.is_none_or(|given| *given == answer) {
            let mut value = self.value.as_ref().map_or_else(Vec::new, |value| value.to_vec());
            value.extend_from_slice(added);
            states.push(self.changed_to(Some(value.into()), self.deadline));
        }
    }

    fn add(&self, delta: i64, call: &Call<'_>, states: &mut Vec<ModelState>) {
        let before = match &self.value {
            None => Some(0),
            Some(value) => integer(value),
        };
        let Some(before) = before else {
            return self.answer_if(call, &Answer::Unfit(Unfit::NotAnInteger), states);
        };
        let Some(sum) = before.checked_add(delta) else {
            return self.answer_if(call, &Answer::Unfit(Unfit::Overflow), states);
        };
        if call.answer.is_none_or(|given| *given == Answer::Integer(sum)) {
            states.push(self.changed_to(Some(sum.to_string().into()), self.deadline));
        }
    }

    /// Evaluates the acquisition of a lease. The rest of another holder's lease is left open, as its deadline is.
    fn acquire(&self, holder: &Bytes, term: Duration, call: &Call<'_>, limits: &Limits, states: &mut Vec<ModelState>) {
        match &self.value {
            Some(other) if other != holder => {
                let is_theirs = |given: &Answer| matches!(given, Answer::Held { holder, .. } if holder == other);
                if call.answer.is_none_or(is_theirs) {
                    states.push(self.clone());
                }
            }
            _ => {
                let deadline = self.new_deadline(Expiry::In(term), call, limits);
                let left_ms = u64::try_from(term.as_millis()).unwrap_or(u64::MAX);
                let next = ModelState { kind: Kind::Lease, ..self.changed_to(Some(holder.clone()), deadline) };
                next.answer_if(call, &Answer::Held { holder: holder.clone(), left_ms }, states);
                // The rest of the lease may be longer.
                let is_longer = |given: &Answer| matches!(given, Answer::Held { holder: of, left_ms: left } if of == holder && *left >= left_ms);
                if self.value.is_some() && call.answer.is_none_or(is_longer) {
                    states
                        .push(ModelState { kind: Kind::Lease, ..self.changed_to(Some(holder.clone()), self.deadline) });
                }
            }
        }
    }

    fn expire(&self, expiry: Expiry, only: ExpireOnly, call: &Call<'_>, limits: &Limits, states: &mut Vec<ModelState>) {
        let met = self.value.is_some() && (expiry != Expiry::Clear || self.deadline.is_some());
        let (may, must) = match only {
            ExpireOnly::Always => (met, met),
            ExpireOnly::Without => (met && self.deadline.is_none(), met && self.deadline.is_none()),
            ExpireOnly::With => (met && self.deadline.is_some(), met && self.deadline.is_some()),
            // No deadline is an infinite one. The model leaves open which of two deadlines is later.
            ExpireOnly::Later | ExpireOnly::WithEarlier => (met && self.deadline.is_some(), false),
            ExpireOnly::Earlier => (met, met && self.deadline.is_none()),
        };
        if may {
            let deadline = self.new_deadline(expiry, call, limits);
            ModelState { deadline, ..self.clone() }.answer_if(call, &Answer::Done, states);
        }
        if !must {
            self.answer_if(call, &Answer::NotMet, states);
        }
    }

    fn new_deadline(&self, expiry: Expiry, call: &Call<'_>, limits: &Limits) -> Option<(Time, Time)> {
        match expiry {
            Expiry::Clear => None,
            Expiry::Keep => self.deadline,
            Expiry::At(_) => Some((Time(0), Time::NEVER)),
            Expiry::In(after) => Some(match limits.clock_slack {
                Some(slack) => (call.from + after - slack, call.until + after + slack),
                None => (Time(0), Time::NEVER),
            }),
        }
    }
}

/// Returns a value as an addition reads it: the shortest decimal form of 64 bits, as in Redis.
fn integer(value: &Bytes) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<'a>(op: &'a Op, answer: Option<&'a Answer>) -> Call<'a> {
        Call { op, answer, from: Time(1_000), until: Time(2_000) }
    }

    fn present(value: &'static str) -> ModelState {
        ModelState { value: Some(Bytes::from_static(value.as_bytes())), ..ModelState::default() }
    }

    #[test]
    fn a_version_is_used_up_by_the_change_it_allows() {
        let version = Version { generation: 1, timestamp: 5 };
        let cas = Op::Set {
            value: Bytes::from_static(b"new"),
            condition: Condition::Version(version),
            expiry: Expiry::Clear,
            get: false,
        };
        let first = present("old").after(&call(&cas, Some(&Answer::Done)), &Limits::default());
        assert_eq!(first.len(), 1);
        assert!(first[0].after(&call(&cas, Some(&Answer::Done)), &Limits::default()).is_empty());
        assert_eq!(first[0].after(&call(&cas, Some(&Answer::NotMet)), &Limits::default()), first);
    }

    #[test]
    fn a_deadline_leaves_both_open_while_it_may_have_passed() {
        let read = Op::Read(Read::Value);
        let state = ModelState { deadline: Some((Time(1_500), Time(2_500))), ..present("v") };
        let value = Answer::Value(state.value.clone());
        let absent = Answer::Value(None);
        let limits = Limits::default();
        assert_eq!(state.after(&call(&read, Some(&value)), &limits).len(), 1);
        assert_eq!(state.after(&call(&read, Some(&absent)), &limits).len(), 1);
        let late = Call { from: Time(3_000), until: Time(3_001), ..call(&read, Some(&value)) };
        assert!(state.after(&late, &limits).is_empty());
        let early = Call { from: Time(1), until: Time(2), ..call(&read, Some(&absent)) };
        assert!(state.after(&early, &limits).is_empty());
    }

    /// The effects of a call on a state do not depend on the parts of its deadline that are left out.
    #[test]
    fn what_no_call_can_tell_of_a_deadline_is_left_out() {
        let after = std::time::Duration::from_micros(40);
        let ops = [
            Op::Read(Read::Value),
            Op::Read(Read::TimeToLive),
            Op::Expire { expiry: Expiry::In(after), only: ExpireOnly::Later },
            Op::Expire { expiry: Expiry::Clear, only: ExpireOnly::With },
            Op::ReadExpire(Expiry::Keep),
        ];
        let limits = Limits { clock_slack: Some(std::time::Duration::from_micros(20)), ..Limits::default() };
        let mut rng = crate::rng::Rng::new(1, "deadlines");
        let mut left_out = 0;
        for _ in 0..20_000 {
            let (now, last) = (Time(rng.below(100)), Time(rng.below(100)));
            let earliest = rng.below(100);
            let deadline = Some((Time(earliest), Time(earliest + rng.below(100))));
            let state = ModelState { deadline, ..present("v") };
            let op = &ops[rng.below(ops.len() as u64) as usize];
            let call = Call { op, answer: None, from: Time(last.0.saturating_sub(rng.below(50))), until: now };
            let simple = state.clone().in_view_of(now, last);
            left_out += u64::from(simple != state);
            let seen = |state: &ModelState| -> Vec<ModelState> {
                let states = state.after(&call, &limits).into_iter();
                states.map(|state| state.in_view_of(now, last)).collect()
            };
            assert_eq!(seen(&state), seen(&simple), "{state:?} {call:?} at {now:?}, {last:?}");
        }
        assert!(left_out > 1_000);
    }

    #[test]
    fn additions_read_numbers_as_redis_does() {
        for (text, number) in [("12", Some(12)), ("-3", Some(-3)), ("+3", None), ("012", None), ("", None), ("x", None)]
        {
            assert_eq!(integer(&Bytes::from_static(text.as_bytes())), number, "{text}");
        }
    }

    #[test]
    fn a_set_that_gets_answers_with_the_value_before_either_way() {
        let before = Answer::Value(Some(Bytes::from_static(b"old")));
        for (condition, value) in [(Condition::Present, "new"), (Condition::Absent, "old")] {
            let op = Op::Set { value: Bytes::from_static(b"new"), condition, expiry: Expiry::Clear, get: true };
            let states = present("old").after(&call(&op, Some(&before)), &Limits::default());
            assert_eq!(states.len(), 1);
            assert_eq!(states[0].value.as_deref(), Some(value.as_bytes()));
        }
    }
}
