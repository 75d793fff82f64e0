//! Real daemons: started, killed, cut off, starved and lied to. One program, so that tests that wait do so side by side.

mod chirp;
mod churn;
mod founding;
mod joins;
mod lanes;
mod leaving;
mod links;
mod processes;
mod quic;
mod repair;
mod rings;
mod switched;
