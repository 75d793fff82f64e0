//! Requests that dashboards and controllers send each second: `/v1/peers`, `/v1/budgets`, `/v1/events`, `/v1/load`, `/v1/offload`. All
//! answers lie ready.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::groups::{answer, parameter};
use super::{Served, problem};
use crate::status::{Budgets, Events, Load, Peers};

/// `GET /v1/peers`: the other peers, with round trips and traffic.
pub async fn peers(State(served): State<Served>) -> Response {
    answer(StatusCode::OK, &Peers { peer_id: served.status.peer_id(), peers: served.status.peers() })
}

/// `GET /v1/budgets`: the peer's limits and their use.
pub async fn budgets(State(served): State<Served>) -> Response {
    let mut budgets: Budgets = served.status.budgets();
    budgets.bandwidth.used = budgets.bandwidth.used.or(served.event_log.bandwidth());
    answer(StatusCode::OK, &budgets)
}

/// `GET /v1/offload`: the status for a switch's controller.
pub async fn offload(State(served): State<Served>) -> Response {
    answer(StatusCode::OK, &served.status.offload())
}

/// `GET /v1/events?after=SEQ`: the events, each told once; without `after` all that are kept.
pub async fn events(State(served): State<Served>, RawQuery(query): RawQuery) -> Response {
    let Ok(after) = parameter(query.as_deref(), "after").unwrap_or("0").parse() else {
        return problem(StatusCode::BAD_REQUEST, "give the last sequence number that you have: /v1/events?after=SEQ");
    };
    let (events, last) = served.event_log.after(after);
    answer(StatusCode::OK, &Events { peer_id: served.status.peer_id(), last, events })
}

/// `GET /v1/load?after=UNIX_S`: the last five minutes, one sample per second; of these the ones that ended later.
pub async fn load(State(served): State<Served>, RawQuery(query): RawQuery) -> Response {
    let Ok(after) = parameter(query.as_deref(), "after").unwrap_or("0").parse::<u64>() else {
        return problem(StatusCode::BAD_REQUEST, "give the last second that you have: /v1/load?after=UNIX_S");
    };
    let mut samples = served.event_log.load();
    let last = samples.last().map(|sample| sample.unix_s);
    samples.retain(|sample| sample.unix_s > after);
    answer(StatusCode::OK, &Load { peer_id: served.status.peer_id(), last, samples })
}
