//! Searches through all schedules of small worlds: takeovers, ends of epochs, transactions between groups.

mod epochs;
mod parts;
mod ring;
mod search;
mod takeover;
mod three;
mod transactions;
mod trio;
