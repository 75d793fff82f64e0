//! HTTP endpoint for operators and monitoring: health, metrics, status, groups, the ring, and the data of dashboards; and administrators'
//! requests (`leave`, and operations of groups).
//!
//! A `GET` request changes nothing, and is open to any client that can connect; by default only this machine can. A change is a `POST`
//! request, and needs the administrators' token where there is one.

mod authority;
mod exchange;
mod groups;
mod host;
mod leave;
mod listener;
mod metrics;
mod prometheus;
mod watch;

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::admin::Admin;
use crate::event_log::{EventLog, RingWatch};
use crate::resp::Password;
use crate::status::{LeavingStatus, StatusSource};
use listener::BoundedListener;
pub use metrics::StatusMetrics;
pub(crate) use metrics::encode;

/// Data and services behind the endpoint.
#[derive(Clone)]
pub struct Served {
    /// Status and readiness.
    pub status: Arc<dyn StatusSource>,
    /// All metrics.
    pub registry: Arc<Registry>,
    /// Takes administrators' requests.
    pub admin: Arc<dyn Admin>,
    /// Token for changes. Without one the endpoint must be on loopback.
    pub token: Option<Password>,
    /// Notified when a client has seen in the status that this peer has left.
    pub followed: Arc<Notify>,
    /// Recent events and load.
    pub event_log: Arc<EventLog>,
    /// Ranges of the ring that are not served.
    pub ring_watch: Arc<RingWatch>,
    /// Upper limit of connections at once.
    pub connections_max: usize,
}

/// Serves until `stop` becomes true.
///
/// # Errors
///
/// An I/O error where the listener fails.
pub async fn serve(
    listener: TcpListener,
    served: Served,
    mut stop: tokio::sync::watch::Receiver<bool>,
) -> std::io::Result<()> {
    let is_local = listener.local_addr()?.ip().to_canonical().is_loopback();
    let listener = BoundedListener::new(listener, served.connections_max);
    let router = axum::Router::new()
        .route("/healthz", get(health))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/v1/status", get(status))
        .route("/v1/groups", get(groups::groups))
        .route("/v1/ring", get(groups::ring))
        .route("/v1/where", get(groups::locate))
        .route("/v1/peers", get(watch::peers))
        .route("/v1/budgets", get(watch::budgets))
        .route("/v1/offload", get(watch::offload))
        .route("/v1/events", get(watch::events))
        .route("/v1/load", get(watch::load))
        .route("/v1/groups/{group}/{operation}", post(groups::request))
        .route("/v1/leave", post(leave::leave))
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "no such page") })
        .method_not_allowed_fallback(|| async {
            problem(StatusCode::METHOD_NOT_ALLOWED, "this page does not take this method")
        })
        .with_state(served);
    // A web page in a browser on this machine may have a host name that leads here: it must not read the answers.
    let router = match is_local {
        true => router.layer(axum::middleware::from_fn(host::only_this_machine)),
        false => router,
    };
    let stopped = async move {
        // An error means that the sender is gone, so no stop can follow.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    axum::serve(listener, router).with_graceful_shutdown(stopped).await
}

/// Answers that the process runs.
async fn health() -> &'static str {
    "ok\n"
}

/// Answers whether a client operation sent now will be answered. With `?verbose`, lists the checks behind that.
async fn ready(State(served): State<Served>, RawQuery(query): RawQuery) -> Response {
    let readiness = served.status.readiness();
    let code = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let verbose = query.is_some_and(|query| query.split('&').any(|part| part.split('=').next() == Some("verbose")));
    let mut text = String::new();
    if verbose {
        for check in &readiness.checks {
            let sign = if check.ok { '+' } else { '-' };
            text.push_str(&format!("[{sign}] {}: {}\n", check.name, check.detail));
        }
    }
    text.push_str(if readiness.ready { "ready\n" } else { "not ready\n" });
    (code, text).into_response()
}

async fn metrics(State(served): State<Served>, headers: HeaderMap) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &served.registry) {
        Ok(()) if prometheus::wants_open_metrics(&headers) => {
            ([(header::CONTENT_TYPE, prometheus::OPEN_METRICS_TYPE)], text).into_response()
        }
        Ok(()) => ([(header::CONTENT_TYPE, prometheus::PLAIN_TYPE)], prometheus::plain(&text)).into_response(),
        Err(_) => problem(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written"),
    }
}

async fn status(State(served): State<Served>) -> Response {
    let status = served.status.status();
    match serde_json::to_vec(&status) {
        Ok(body) => {
            if status.leaving.as_ref().is_some_and(LeavingStatus::is_over) {
                served.followed.notify_one();
            }
            ([(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
        Err(_) => problem(StatusCode::INTERNAL_SERVER_ERROR, "status cannot be written"),
    }
}

fn problem(code: StatusCode, text: &str) -> Response {
    let body = serde_json::json!({ "error": text }).to_string();
    (code, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
