//! The network between peers of one process and of several, on loopback.

mod both;
mod flood;
mod hostile;
mod limits;
mod meeting;
mod refusal;
mod strangers;
mod support;
mod traffic;
