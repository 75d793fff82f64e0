//! Authorisation of changes over HTTP: by the administrators' token or, where there is none, for programs on this
//! machine.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::Response;

use super::{Served, problem};
use crate::resp::Password;

/// Time limit of the body.
const BODY_MAX: Duration = Duration::from_secs(5);

/// Returns the body of a request for a change, of at most `bytes_max` bytes.
///
/// # Errors
///
/// The answer for a client without authority, or with a body that is too large or too slow.
pub(crate) async fn admit(served: &Served, request: Request<Body>, bytes_max: usize) -> Result<Vec<u8>, Response> {
    let (parts, body) = request.into_parts();
    if let Err((code, why)) = may(served.token.as_ref(), &parts.headers) {
        let mut refusal = problem(code, why);
        if code == StatusCode::UNAUTHORIZED {
            refusal.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        }
        return Err(refusal);
    }
    match tokio::time::timeout(BODY_MAX, to_bytes(body, bytes_max)).await {
        Ok(Ok(body)) => Ok(body.into()),
        Ok(Err(_)) => Err(problem(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("the request body must have at most {bytes_max} bytes and be complete"),
        )),
        Err(_) => Err(problem(StatusCode::REQUEST_TIMEOUT, "the request body did not arrive in time")),
    }
}

/// Checks whether the sender of these headers may change the peer.
fn may(token: Option<&Password>, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
    let Some(token) = token else {
        // The endpoint is on loopback, or the settings would have been refused. But a browser on this machine is as near,
        // and runs pages from anywhere: it sends `Origin` with every POST.
        return match headers.get(header::ORIGIN) {
            None => Ok(()),
            Some(_) => Err((StatusCode::FORBIDDEN, "a request from a web page needs the administrators' token")),
        };
    };
    let said = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, said) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(said.trim_ascii())
    });
    match said {
        None => Err((
            StatusCode::UNAUTHORIZED,
            "this request needs the administrators' token in the header Authorization: Bearer TOKEN",
        )),
        Some(said) if token.is(said) => Ok(()),
        Some(_) => Err((StatusCode::FORBIDDEN, "the given token is not this peer's administrators' token")),
    }
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
}
