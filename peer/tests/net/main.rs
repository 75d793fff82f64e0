//! The network between peers of one process and of several, on loopback.

mod meeting;
mod support;
