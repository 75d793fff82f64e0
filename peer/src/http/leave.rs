//! `POST /v1/leave`: this peer leaves its network for good.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Served, problem};
use crate::admin::LeaveError;
use crate::resp::Password;

/// A request for this is a handful of bytes.
const BODY_BYTES_MAX: usize = 1024;
/// How long the body may take to come.
const BODY_MAX: Duration = Duration::from_secs(5);

/// What may be asked: all of it may be left out.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Wish {
    /// Also where fewer than three members remain.
    force: bool,
}

/// 202 where it has begun; `/v1/status` tells how it goes on.
pub async fn leave(State(served): State<Served>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    if let Err((code, why)) = may(served.token.as_ref(), &parts.headers) {
        let mut refusal = problem(code, why);
        if code == StatusCode::UNAUTHORIZED {
            refusal.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        }
        return refusal;
    }
    let body = match tokio::time::timeout(BODY_MAX, to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return problem(StatusCode::PAYLOAD_TOO_LARGE, "a body has at most 1024 bytes, and comes whole"),
        Err(_) => return problem(StatusCode::REQUEST_TIMEOUT, "the body does not come"),
    };
    let wish = match wish(&body) {
        Ok(wish) => wish,
        Err(why) => return problem(StatusCode::BAD_REQUEST, &why),
    };
    match served.admin.leave(wish.force).await {
        Ok(Ok(leaving)) => {
            let body = json!({ "peer_id": served.status.status().peer_id, "leaving": leaving }).to_string();
            (StatusCode::ACCEPTED, [(header::CONTENT_TYPE, "application/json")], body).into_response()
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

/// Whether whoever sends these headers may change something here.
fn may(token: Option<&Password>, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
    let Some(token) = token else {
        // The endpoint is on loopback, or the settings would have been refused. But a browser on this machine is as near,
        // and pages from anywhere run in it: it says so with every POST.
        return match headers.get(header::ORIGIN) {
            None => Ok(()),
            Some(_) => Err((StatusCode::FORBIDDEN, "a web page may do this only with the administrators' token")),
        };
    };
    let said = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, said) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(said.trim_ascii())
    });
    match said {
        None => Err((
            StatusCode::UNAUTHORIZED,
            "this needs the administrators' token, as a header: Authorization: Bearer TOKEN",
        )),
        Some(said) if token.is(said) => Ok(()),
        Some(_) => Err((StatusCode::FORBIDDEN, "that is not the administrators' token of this peer")),
    }
}

fn wish(body: &[u8]) -> Result<Wish, String> {
    if body.trim_ascii().is_empty() {
        return Ok(Wish::default());
    }
    let object = serde_json::from_slice::<Map<String, Value>>(body);
    let wish = object.and_then(|object| serde_json::from_value(Value::Object(object)));
    wish.map_err(|error| format!("the body is nothing, or JSON like {{\"force\": true}}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), header::HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn the_token_where_there_is_one() {
        let token = Password::new(b"hush");
        let code = |token, pairs: &[_]| may(token, &headers(pairs)).map_err(|(code, _)| code.as_u16());
        assert_eq!(code(None, &[]), Ok(()));
        assert_eq!(code(None, &[(header::ORIGIN, "http://127.0.0.1:6480")]), Err(403));
        assert_eq!(code(Some(&token), &[]), Err(401));
        for (said, wanted) in [
            ("Bearer hush", Ok(())),
            ("bearer  hush", Ok(())),
            ("Bearer hus", Err(403)),
            ("Bearer hush!", Err(403)),
            ("Bearer ", Err(403)),
            ("Bearer", Err(401)),
            ("Basic aHVzaA==", Err(401)),
            ("hush", Err(401)),
        ] {
            assert_eq!(code(Some(&token), &[(header::AUTHORIZATION, said)]), wanted, "{said}");
        }
        let page = [(header::AUTHORIZATION, "Bearer hush"), (header::ORIGIN, "https://admin.example")];
        assert_eq!(code(Some(&token), &page), Ok(()));
    }

    #[test]
    fn what_is_asked() {
        for (body, force) in [("", false), (" \n", false), ("{}", false), ("{\"force\": true}", true)] {
            assert_eq!(wish(body.as_bytes()), Ok(Wish { force }), "{body}");
        }
        for body in ["force", "{\"force\": 1}", "{\"Force\": true}", "[]", "null", "true", "{\"force\": true} x"] {
            assert!(wish(body.as_bytes()).is_err(), "{body}");
        }
    }
}
