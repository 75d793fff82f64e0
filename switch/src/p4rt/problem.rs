//! Errors of calls, in the form of the specification (P4Runtime v1.4.1, "Error Reporting Messages").

use prost::Message;
use tonic::{Code, Status};

use super::proto::google::rpc;
use super::proto::p4::v1;

/// Error of one update, one read, or a whole call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Code of gRPC.
    pub code: Code,
    /// Text for readers of the controller's log.
    pub message: String,
}

impl Problem {
    /// Returns a problem with this code.
    pub fn new(code: Code, message: impl Into<String>) -> Problem {
        Problem { code, message: message.into() }
    }

    /// Returns the problem of an invalid request.
    pub fn invalid(message: impl Into<String>) -> Problem {
        Problem::new(Code::InvalidArgument, message)
    }

    /// Returns the problem of a valid request that this switch does not support.
    pub(crate) fn unimplemented(message: impl Into<String>) -> Problem {
        Problem::new(Code::Unimplemented, message)
    }
}

impl From<Problem> for Status {
    fn from(problem: Problem) -> Status {
        Status::new(problem.code, problem.message)
    }
}

impl From<super::value::NumberError> for Problem {
    fn from(error: super::value::NumberError) -> Problem {
        Problem::new(Code::OutOfRange, error.to_string())
    }
}

/// Upper limit of the details in bytes that every client accepts: gRPC's usual limit for a message's metadata is 8 KiB.
const DETAILS_BYTES_MAX: usize = 5 << 10;

/// Returns the result of a call with many parts: `Ok` if all parts succeeded.
///
/// # Errors
/// The result of each part, in order. If that is too long to be sent, the texts are left out, and then the parts.
pub fn batch(what: &str, outcomes: &[Result<(), Problem>]) -> Result<(), Status> {
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    if failed == 0 {
        return Ok(());
    }
    let message = format!("{failed} of {} {what} failed", outcomes.len());
    let status = |with_words| {
        let error = |outcome: &Result<(), Problem>| match outcome {
            Ok(()) => v1::Error::default(),
            Err(problem) => {
                let message = if with_words { problem.message.clone() } else { String::new() };
                v1::Error { canonical_code: problem.code as i32, message, ..Default::default() }
            }
        };
        let details = outcomes.iter().map(error).map(|error| any(&error)).collect();
        rpc::Status { code: Code::Unknown as i32, message: message.clone(), details }.encode_to_vec()
    };
    let fitting = [true, false].into_iter().map(status).find(|details| details.len() <= DETAILS_BYTES_MAX);
    Err(Status::with_details(Code::Unknown, message.clone(), fitting.unwrap_or_default().into()))
}

fn any(error: &v1::Error) -> prost_types::Any {
    prost_types::Any { type_url: "type.googleapis.com/p4.v1.Error".to_owned(), value: error.encode_to_vec() }
}

/// Returns the result of each part of a failed call, if the status contains them.
pub fn parts(status: &Status) -> Option<Vec<v1::Error>> {
    let details = rpc::Status::decode(status.details()).ok()?.details;
    if details.is_empty() {
        return None;
    }
    details.iter().map(|any| v1::Error::decode(&any.value[..]).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_error() {
        assert!(batch("updates", &[Ok(()), Ok(())]).is_ok());
        let status = batch("updates", &[Ok(()), Err(Problem::invalid("no"))]).unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unknown, "1 of 2 updates failed"));
        let whole = rpc::Status::decode(status.details()).unwrap();
        assert_eq!((whole.code, whole.message.as_str()), (2, status.message()));
        assert_eq!(whole.details[1].type_url, "type.googleapis.com/p4.v1.Error");
        let error = |canonical_code, message: &str| v1::Error {
            canonical_code,
            message: message.into(),
            ..v1::Error::default()
        };
        assert_eq!(parts(&status), Some(vec![error(0, ""), error(3, "no")]));
    }

    #[test]
    fn there_is_an_end_to_what_is_said() {
        let long = vec![Err(Problem::invalid("x".repeat(1000))); 10];
        let status = batch("updates", &long).unwrap_err();
        assert!(status.details().len() < DETAILS_BYTES_MAX);
        assert_eq!(parts(&status).unwrap().len(), 10);
        let many = vec![Err(Problem::invalid("x")); 1000];
        assert_eq!(parts(&batch("updates", &many).unwrap_err()), None);
    }
}
