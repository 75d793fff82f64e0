//! `POST /v1/leave`: this peer leaves its network for good.

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::authority::admit;
use super::{Served, problem};
use crate::admin::LeaveError;

/// Upper limit of the body in bytes: a request has a handful of bytes.
const BODY_BYTES_MAX: usize = 1024;

/// Content of the request: all of it may be left out.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LeaveBody {
    /// Whether to leave also where fewer than three members remain.
    force: bool,
}

/// Answers 202 where the leave has begun; `/v1/status` shows its progress.
pub async fn leave(State(served): State<Served>, request: Request<Body>) -> Response {
    let body = match admit(&served, request, BODY_BYTES_MAX).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let wanted = match parse(&body) {
        Ok(wanted) => wanted,
        Err(why) => return problem(StatusCode::BAD_REQUEST, &why),
    };
    match served.admin.leave(wanted.force).await {
        Ok(Ok(leaving)) => {
            let status = served.status.status();
            let mut body = json!({ "peer_id": status.peer_id, "leaving": leaving });
            if let Some(name) = status.name {
                body["name"] = json!(name);
            }
            (StatusCode::ACCEPTED, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
        }
        Ok(Err(error)) => {
            let code = match error {
                LeaveError::Refused(_) => StatusCode::CONFLICT,
                LeaveError::Forgotten(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            let body = json!({ "error": error.to_string(), "reason": error.reason() }).to_string();
            (code, [(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
        Err(_) => problem(StatusCode::CONFLICT, "this peer is stopping"),
    }
}

fn parse(body: &[u8]) -> Result<LeaveBody, String> {
    if body.trim_ascii().is_empty() {
        return Ok(LeaveBody::default());
    }
    let object = serde_json::from_slice::<Map<String, Value>>(body);
    let wanted = object.and_then(|object| serde_json::from_value(Value::Object(object)));
    wanted.map_err(|error| format!("the body must be empty, or JSON like {{\"force\": true}}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked() {
        for (body, force) in [("", false), (" \n", false), ("{}", false), ("{\"force\": true}", true)] {
            assert_eq!(parse(body.as_bytes()), Ok(LeaveBody { force }), "{body}");
        }
        for body in ["force", "{\"force\": 1}", "{\"Force\": true}", "[]", "null", "true", "{\"force\": true} x"] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
