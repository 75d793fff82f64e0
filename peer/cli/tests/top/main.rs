//! The dashboard: every screen as it was, in every size and with and without colours; harmful input; a running peer.

#[path = "../common/mod.rs"]
mod common;
mod golden;
mod live;
mod model;
mod screens;
mod tmux;
