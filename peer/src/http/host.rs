//! Check of a loopback request's intended host: a web page whose name was made to lead to this machine (DNS rebinding) asks for that
//! name.

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::problem;

/// Passes on requests for this machine by its address or as `localhost`; refuses any other name.
pub(crate) async fn only_this_machine(request: Request, next: Next) -> Response {
    match is_this_machine(request.headers()) {
        true => next.run(request).await,
        false => problem(
            StatusCode::FORBIDDEN,
            "on loopback this endpoint accepts only an IP address or localhost in the Host header, not another name",
        ),
    }
}

/// Returns whether a request names this machine. A request without `Host` comes from no browser.
fn is_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    host.to_str().is_ok_and(environment::names_this_machine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_elsewhere_are_refused() {
        let asks = |host: &'static str| {
            is_this_machine(&[(header::HOST, header::HeaderValue::from_static(host))].into_iter().collect())
        };
        assert!(is_this_machine(&HeaderMap::new()));
        for host in [
            "127.0.0.1:6480",
            "127.0.0.1",
            "[::1]:6480",
            "localhost:6480",
            "LOCALHOST",
            "a.localhost",
            "localhost.",
            "localhost.:6480",
        ] {
            assert!(asks(host), "{host}");
        }
        for host in ["evil.example", "evil.example:6480", "localhost.evil.example", "127.0.0.1.evil.example", "", "x"] {
            assert!(!asks(host), "{host}");
        }
    }
}
