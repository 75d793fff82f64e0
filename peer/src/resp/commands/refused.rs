//! Commands of Redis that Scatter does not support, with a more helpful error than "unknown command".

use crate::resp::call::{Call, Handled};
use crate::resp::reply::Reply;

fn refuse(call: &Call<'_>, why: &str) -> Handled {
    Err(Reply::error(format!("ERR {} is not supported: {why}", call.name().to_ascii_uppercase())))
}

/// `SCAN`, `KEYS` and other commands that list keys.
pub(crate) fn listing(call: &mut Call<'_>) -> Handled {
    refuse(call, "the keys of a network are spread over many peers, and no peer has a list of them")
}

/// `MULTI`, `WATCH` and other commands of transactions.
pub fn transaction(call: &mut Call<'_>) -> Handled {
    refuse(
        call,
        "there are no transactions over several keys; for one key use SET with IFEQ, or SCATTER.GETV and SCATTER.CAS",
    )
}

/// `MSETNX`
pub fn atomic(call: &mut Call<'_>) -> Handled {
    refuse(call, "it is atomic over several keys, which no command is here; use SET with NX for each of them")
}

/// `EVAL` and other commands of scripts.
pub fn script(call: &mut Call<'_>) -> Handled {
    refuse(call, "there are no scripts; for one key use SET with IFEQ, or SCATTER.GETV and SCATTER.CAS")
}

/// `SUBSCRIBE` and other commands of publish and subscribe.
pub(crate) fn messaging(call: &mut Call<'_>) -> Handled {
    refuse(call, "there is no publish and subscribe")
}

/// `FLUSHALL`, `FLUSHDB`
pub fn flush(call: &mut Call<'_>) -> Handled {
    refuse(call, "the network is not this client's alone; delete keys by name")
}

/// `CLUSTER`, `READONLY`, `READWRITE`, `ASKING`: worded as in Redis, so that clients fall back to standalone mode.
pub fn cluster(_call: &mut Call<'_>) -> Handled {
    Err(Reply::error("ERR This instance has cluster support disabled"))
}
