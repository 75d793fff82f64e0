//! Combines the node's answers about keys into the client's answer to its command.

use group::op::{Answer, Kind, Limit, OpError, Unfit};

use super::errors;
use super::reply::Reply;

/// Rule by which a command's answer is made of the answers to its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// Whether any request can change a record: reads are never answered with "outcome unknown".
    pub writes: bool,
    /// Shape of the answer.
    pub shape: Shape,
}

/// Shape of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `OK`, or nil where a condition was not met; the value where there is one.
    OkOrNil,
    /// 1 or 0; a number as it is, and the sum of several.
    Count,
    /// A value or nil.
    Value,
    /// A list of values.
    Values,
    /// `OK` once all requests are done.
    AllOk,
    /// A number, or nil where a condition was not met.
    IntegerOrNil,
    /// A time to live in whole seconds.
    Seconds,
    /// `string`, `lease` or `none`.
    Type,
    /// Holder of a lease and its remaining time, in milliseconds.
    Held,
    /// A value and its version.
    Versioned,
}

type Result1 = Result<Answer, OpError>;

impl Join {
    /// Returns the rule for a command that changes nothing.
    pub const fn read(shape: Shape) -> Join {
        Join { writes: false, shape }
    }

    /// Returns the rule for a command that may change a record.
    pub const fn write(shape: Shape) -> Join {
        Join { writes: true, shape }
    }

    /// Returns the answer to a command of one request.
    pub fn one(self, result: Result1) -> Reply {
        match result {
            Ok(answer) => match self.shape {
                Shape::Values => Reply::Array(vec![element(answer)]),
                _ => self.single(answer),
            },
            Err(error) => self.error(error),
        }
    }

    /// Returns the answer to a command of several requests. Such a command is not atomic: one that took effect in
    /// part is *uncertain*, because no answer can say "these keys, but not those".
    pub fn several(self, results: Vec<Result1>) -> Reply {
        if let Some(error) = self.failure(&results) {
            return error;
        }
        let answers = results.into_iter().flatten();
        match self.shape {
            Shape::Values => Reply::Array(answers.map(element).collect()),
            Shape::AllOk => Reply::OK,
            _ => Reply::Integer(answers.map(|answer| count(&answer)).sum()),
        }
    }

    fn failure(self, results: &[Result1]) -> Option<Reply> {
        let unfit = results.iter().find_map(|result| match result {
            // As in Redis, a key of another kind is nil among values.
            Ok(Answer::Unfit(Unfit::OtherKind)) if self.shape == Shape::Values => None,
            Ok(Answer::Unfit(unfit)) => Some(*unfit),
            _ => None,
        });
        let error =
            results.iter().filter_map(|result| result.as_ref().err().copied()).max_by_key(|error| match error {
                OpError::Uncertain => 2,
                // Repeating does not help against a limit, so the limit is the better answer.
                OpError::Limit(_) => 1,
                _ => 0,
            });
        if unfit.is_none() && error.is_none() {
            return None;
        }
        let changed = results.iter().any(|result| match result {
            Ok(answer) => !matches!(answer, Answer::NotMet | Answer::Unfit(_)),
            Err(_) => false,
        });
        if self.writes && changed {
            return Some(Reply::error(errors::PARTLY));
        }
        error.map(|error| self.error(error)).or(unfit.map(unfit_error))
    }

    fn error(self, error: OpError) -> Reply {
        match error {
            OpError::TryAgain(refusal) => Reply::error(format!("TRYAGAIN nothing was done: {refusal}")),
            OpError::Uncertain if self.writes => Reply::error(errors::UNCERTAIN),
            OpError::Uncertain => Reply::error(errors::NO_ANSWER),
            OpError::Limit(limit) => limit_error(limit),
            // An error kind that is newer than this table gets the weakest claim.
            other if self.writes => Reply::error(format!("UNCERTAIN {other}")),
            other => Reply::error(format!("TRYAGAIN {other}")),
        }
    }

    fn single(self, answer: Answer) -> Reply {
        if let Answer::Unfit(unfit) = answer {
            return unfit_error(unfit);
        }
        match self.shape {
            Shape::OkOrNil => match answer {
                Answer::Done => Reply::OK,
                Answer::NotMet => Reply::Nil,
                other => value(other),
            },
            Shape::AllOk => Reply::OK,
            Shape::Count => Reply::Integer(count(&answer)),
            Shape::Value | Shape::Values => value(answer),
            Shape::IntegerOrNil => match answer {
                Answer::Integer(number) => Reply::Integer(number),
                _ => Reply::Nil,
            },
            // Rounded, as in Redis.
            Shape::Seconds => match answer {
                Answer::Integer(millis @ 0..) => Reply::Integer(millis.saturating_add(500) / 1000),
                other => Reply::Integer(count(&other)),
            },
            Shape::Type => Reply::Simple(match answer {
                Answer::Kind(Some(Kind::Value)) => "string",
                Answer::Kind(Some(Kind::Lease)) => "lease",
                _ => "none",
            }),
            Shape::Held => match answer {
                Answer::Held { holder, left_ms } => {
                    Reply::Array(vec![Reply::Bulk(holder), Reply::Integer(i64::try_from(left_ms).unwrap_or(i64::MAX))])
                }
                other => value(other),
            },
            Shape::Versioned => match answer {
                Answer::Versioned(Some((value, version))) => Reply::Array(vec![
                    Reply::Bulk(value),
                    Reply::text(format!("{}-{}", version.generation, version.timestamp)),
                ]),
                // "Absent" has a version too, so that one loop of read and compare-and-set serves every key.
                _ => Reply::Array(vec![Reply::Nil, Reply::text(ABSENT_VERSION)]),
            },
        }
    }
}

/// Version of an absent key, in `SCATTER.GETV` and `SCATTER.CAS`.
pub const ABSENT_VERSION: &str = "0-0";

/// Returns one of several values.
fn element(answer: Answer) -> Reply {
    match answer {
        Answer::Unfit(Unfit::OtherKind) => Reply::Nil,
        answer => value(answer),
    }
}

fn value(answer: Answer) -> Reply {
    match answer {
        Answer::Value(Some(value)) | Answer::Versioned(Some((value, _))) => Reply::Bulk(value),
        Answer::Integer(number) => Reply::Integer(number),
        Answer::Unfit(unfit) => unfit_error(unfit),
        Answer::Done => Reply::OK,
        Answer::Held { holder, .. } => Reply::Bulk(holder),
        Answer::NotKept => Reply::error(errors::UNCERTAIN),
        Answer::Value(None) | Answer::Versioned(None) | Answer::Kind(_) | Answer::NotMet => Reply::Nil,
    }
}

fn count(answer: &Answer) -> i64 {
    match answer {
        Answer::Integer(number) => *number,
        Answer::Done | Answer::Value(Some(_)) | Answer::Versioned(Some(_)) | Answer::Held { .. } => 1,
        Answer::Kind(kind) => i64::from(kind.is_some()),
        Answer::NotMet | Answer::Value(None) | Answer::Versioned(None) | Answer::Unfit(_) | Answer::NotKept => 0,
    }
}

fn unfit_error(unfit: Unfit) -> Reply {
    Reply::error(match unfit {
        Unfit::NotAnInteger => errors::NOT_AN_INTEGER,
        Unfit::Overflow => errors::OVERFLOW,
        Unfit::TooLong => errors::VALUE_TOO_LONG,
        Unfit::OtherKind => errors::WRONG_TYPE,
    })
}

fn limit_error(limit: Limit) -> Reply {
    Reply::error(format!("OOM nothing was done: out of {limit}"))
}

#[cfg(test)]
mod tests {
    use group::op::Refusal;

    use super::*;

    const BUSY: Result1 = Err(OpError::TryAgain(Refusal::Busy));

    fn code(reply: &Reply) -> &str {
        match reply {
            Reply::Error(text) => text.split(' ').next().unwrap_or_default(),
            _ => "",
        }
    }

    #[test]
    fn a_partly_applied_command_is_uncertain() {
        let del = Join::write(Shape::Count);
        assert_eq!(del.several(vec![Ok(Answer::Done), Ok(Answer::NotMet), Ok(Answer::Done)]), Reply::Integer(2));
        assert_eq!(code(&del.several(vec![Ok(Answer::Done), BUSY])), "UNCERTAIN");
        assert_eq!(code(&del.several(vec![BUSY, Err(OpError::Uncertain)])), "UNCERTAIN");
        assert_eq!(code(&del.several(vec![BUSY, BUSY])), "TRYAGAIN");
        // The first key was absent, so nothing was done at all.
        assert_eq!(code(&del.several(vec![Ok(Answer::NotMet), BUSY])), "TRYAGAIN");
        assert_eq!(code(&del.several(vec![BUSY, Err(OpError::Limit(Limit::Disk))])), "OOM");
        let mset = Join::write(Shape::AllOk);
        assert_eq!(mset.several(vec![Ok(Answer::Done), Ok(Answer::Done)]), Reply::OK);
        assert_eq!(code(&mset.several(vec![Ok(Answer::Done), Ok(Answer::Unfit(Unfit::TooLong))])), "UNCERTAIN");
        assert_eq!(code(&mset.several(vec![BUSY, Ok(Answer::Unfit(Unfit::TooLong))])), "TRYAGAIN");
    }

    #[test]
    fn reads_are_never_uncertain() {
        for shape in [Shape::Value, Shape::Values, Shape::Count, Shape::Seconds, Shape::Type, Shape::Versioned] {
            assert_eq!(code(&Join::read(shape).one(Err(OpError::Uncertain))), "TRYAGAIN");
            assert_eq!(code(&Join::write(shape).one(Err(OpError::Uncertain))), "UNCERTAIN");
        }
        let mget = Join::read(Shape::Values);
        assert_eq!(code(&mget.several(vec![Ok(Answer::Value(None)), Err(OpError::Uncertain)])), "TRYAGAIN");
    }
}
