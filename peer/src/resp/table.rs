//! Table of all commands by name: number of arguments, places of the keys, handler.

use super::call::{Call, Handled};
use super::commands::{connection, expiry, keys, refused, scatter, server, strings};

/// Row of one command.
#[derive(Debug)]
pub struct Command {
    /// Name in lower case, as Redis writes it in errors.
    pub name: &'static str,
    /// Arguments with the name itself; `-n` means at least `n` (as in Redis).
    pub arity: i32,
    /// Effect on keys.
    pub kind: Kind,
    /// Places of the keys.
    pub keys: Keys,
    /// Short description.
    pub summary: &'static str,
    /// Handler of the command.
    pub run: fn(&mut Call<'_>) -> Handled,
}

/// Effect of a command on keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads keys.
    Read,
    /// Changes keys.
    Write,
    /// Has no keys; concerns the connection, and is allowed before the password is given.
    Open,
    /// Has no keys.
    Other,
    /// Not supported; the row gives the reason.
    Refused,
}

/// Places of the keys among the arguments, as `COMMAND` reports them. `first` is 0 where there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// First key.
    pub first: i32,
    /// Last key; -1 is the last argument.
    pub last: i32,
    /// Distance from one key to the next.
    pub step: i32,
}

const NONE: Keys = Keys { first: 0, last: 0, step: 0 };
const ONE: Keys = Keys { first: 1, last: 1, step: 1 };
const ALL: Keys = Keys { first: 1, last: -1, step: 1 };
const PAIRS: Keys = Keys { first: 1, last: -1, step: 2 };

impl Command {
    /// Returns whether the command takes this number of arguments, the name among them.
    pub fn takes(&self, arguments: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { arguments >= least } else { arguments == least }
    }

    /// Returns the flags as `COMMAND` gives them.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        match self.kind {
            Kind::Read => &["readonly", "fast"][..],
            Kind::Write => &["write", "denyoom", "fast"],
            Kind::Open => &["noscript", "loading", "stale", "fast", "no_auth"],
            Kind::Other | Kind::Refused => &["loading", "stale"],
        }
        .iter()
        .copied()
    }

    /// Returns the group as `COMMAND DOCS` gives it.
    pub fn group(&self) -> &'static str {
        match self.kind {
            Kind::Read | Kind::Write => "string",
            Kind::Open => "connection",
            Kind::Other | Kind::Refused => "server",
        }
    }
}

/// Finds a command by its name in upper or lower case. Returns the row's number and the row.
pub fn find(name: &[u8]) -> Option<(usize, &'static Command)> {
    // On the stack, because this runs for every command. No name is as long as this.
    let mut lower = [0; 24];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let index = COMMANDS.binary_search_by(|command| command.name.as_bytes().cmp(lower)).ok()?;
    Some((index, &COMMANDS[index]))
}

const fn row(
    name: &'static str,
    arity: i32,
    kind: Kind,
    keys: Keys,
    run: fn(&mut Call<'_>) -> Handled,
    summary: &'static str,
) -> Command {
    Command { name, arity, kind, keys, summary, run }
}

use Kind::{Open, Other, Read, Refused, Write};

/// All commands, in the order of their names.
#[rustfmt::skip]
pub static COMMANDS: &[Command] = &[
    row("append", 3, Write, ONE, strings::append, "Append to the value of a key"),
    row("asking", 1, Refused, NONE, refused::cluster, "Not supported"),
    row("auth", -2, Open, NONE, connection::auth, "Authenticate with the password"),
    row("client", -2, Other, NONE, connection::client, "Show information about this connection"),
    row("cluster", -2, Refused, NONE, refused::cluster, "Not supported"),
    row("command", -1, Other, NONE, server::command, "List the supported commands"),
    row("config", -2, Other, NONE, server::config, "Settings"),
    row("dbsize", 1, Refused, NONE, refused::listing, "Not supported"),
    row("decr", 2, Write, ONE, strings::decr, "Subtract one from the number at a key"),
    row("decrby", 3, Write, ONE, strings::decrby, "Subtract from the number at a key"),
    row("del", -2, Write, ALL, keys::del, "Delete keys (not atomic over several)"),
    row("delex", -2, Write, ONE, keys::delex, "Delete a key if its value equals, or differs from, a given value"),
    row("delifeq", 3, Write, ONE, keys::delifeq, "Delete a key if its value equals a given value"),
    row("discard", 1, Refused, NONE, refused::transaction, "Not supported"),
    row("echo", 2, Other, NONE, connection::echo, "Return the message"),
    row("eval", -3, Refused, NONE, refused::script, "Not supported"),
    row("eval_ro", -3, Refused, NONE, refused::script, "Not supported"),
    row("evalsha", -3, Refused, NONE, refused::script, "Not supported"),
    row("evalsha_ro", -3, Refused, NONE, refused::script, "Not supported"),
    row("exec", 1, Refused, NONE, refused::transaction, "Not supported"),
    row("exists", -2, Read, ALL, keys::exists, "Count the given keys that exist"),
    row("expire", -3, Write, ONE, expiry::expire, "Set a key's time to live in seconds"),
    row("expireat", -3, Write, ONE, expiry::expireat, "Set a key's deadline in seconds since 1970"),
    row("fcall", -3, Refused, NONE, refused::script, "Not supported"),
    row("flushall", -1, Refused, NONE, refused::flush, "Not supported"),
    row("flushdb", -1, Refused, NONE, refused::flush, "Not supported"),
    row("function", -2, Refused, NONE, refused::script, "Not supported"),
    row("get", 2, Read, ONE, strings::get, "Get the value of a key"),
    row("getdel", 2, Write, ONE, strings::getdel, "Get the value of a key and delete the key"),
    row("getex", -2, Write, ONE, strings::getex, "Get the value of a key and change its time to live"),
    row("getset", 3, Write, ONE, strings::getset, "Set a key and return its former value"),
    row("hello", -1, Open, NONE, connection::hello, "Choose the protocol version and authenticate"),
    row("incr", 2, Write, ONE, strings::incr, "Increment the number at a key by one"),
    row("incrby", 3, Write, ONE, strings::incrby, "Add to the number at a key"),
    row("info", -1, Other, NONE, server::info, "Show information about this peer"),
    row("keys", 2, Refused, NONE, refused::listing, "Not supported"),
    row("mget", -2, Read, ALL, strings::mget, "Get the values of keys (not atomic over several)"),
    row("mset", -3, Write, PAIRS, strings::mset, "Set keys (not atomic over several)"),
    row("msetnx", -3, Refused, NONE, refused::atomic, "Not supported"),
    row("multi", 1, Refused, NONE, refused::transaction, "Not supported"),
    row("persist", 2, Write, ONE, expiry::persist, "Remove a key's deadline"),
    row("pexpire", -3, Write, ONE, expiry::pexpire, "Set a key's time to live in milliseconds"),
    row("pexpireat", -3, Write, ONE, expiry::pexpireat, "Set a key's deadline in milliseconds since 1970"),
    row("ping", -1, Other, NONE, connection::ping, "Check that the connection works"),
    row("psetex", 4, Write, ONE, strings::psetex, "Set a key with a time to live in milliseconds"),
    row("psubscribe", -2, Refused, NONE, refused::messaging, "Not supported"),
    row("pttl", 2, Read, ONE, keys::pttl, "Get a key's time to live in milliseconds"),
    row("publish", 3, Refused, NONE, refused::messaging, "Not supported"),
    row("quit", -1, Open, NONE, connection::quit, "Close the connection"),
    row("randomkey", 1, Refused, NONE, refused::listing, "Not supported"),
    row("readonly", 1, Refused, NONE, refused::cluster, "Not supported"),
    row("readwrite", 1, Refused, NONE, refused::cluster, "Not supported"),
    row("reset", 1, Open, NONE, connection::reset, "Reset the connection to its initial state"),
    row("role", 1, Other, NONE, server::role, "Show the role of this server, which accepts reads and writes"),
    row("scan", -2, Refused, NONE, refused::listing, "Not supported"),
    row("scatter.append", 4, Write, ONE, scatter::append, "Append to a value unless it would exceed a given length"),
    row("scatter.cas", 4, Write, ONE, scatter::cas, "Set a key if it has a given version"),
    row("scatter.getv", 2, Read, ONE, scatter::getv, "Get the value and the version of a key"),
    row("scatter.lease", 4, Write, ONE, scatter::lease, "Acquire or renew a lease, with a duration in milliseconds"),
    row("scatter.once", -3, Other, NONE, scatter::once, "Execute a command under an id, with effect at most once"),
    row("scatter.rget", 2, Read, ONE, scatter::rget, "Get a value from any member (relaxed read), possibly stale"),
    row("scatter.unlease", 3, Write, ONE, scatter::unlease, "Release a lease"),
    row("scatter.where", 2, Other, NONE, scatter::locate, "Show the group and the primary of a key"),
    row("script", -2, Refused, NONE, refused::script, "Not supported"),
    row("select", 2, Other, NONE, connection::select, "Select the database; 0 is the only one"),
    row("set", -3, Write, ONE, strings::set, "Set a key"),
    row("setex", 4, Write, ONE, strings::setex, "Set a key with a time to live in seconds"),
    row("setnx", 3, Write, ONE, strings::setnx, "Set a key if it is absent"),
    row("spublish", 3, Refused, NONE, refused::messaging, "Not supported"),
    row("ssubscribe", -2, Refused, NONE, refused::messaging, "Not supported"),
    row("strlen", 2, Read, ONE, strings::strlen, "Get the length of the value of a key"),
    row("subscribe", -2, Refused, NONE, refused::messaging, "Not supported"),
    row("ttl", 2, Read, ONE, keys::ttl, "Get a key's time to live in seconds"),
    row("type", 2, Read, ONE, keys::type_of, "Get a key's type: `string`, `lease`, or `none` if absent"),
    row("unlink", -2, Write, ALL, keys::del, "Delete keys (not atomic over several)"),
    row("unwatch", 1, Refused, NONE, refused::transaction, "Not supported"),
    row("watch", -2, Refused, NONE, refused::transaction, "Not supported"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_by_name_in_any_case() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
        for (index, command) in COMMANDS.iter().enumerate() {
            assert!(command.name.len() <= 24);
            for name in [command.name.to_ascii_uppercase(), command.name.to_string()] {
                assert_eq!(find(name.as_bytes()).map(|(found, _)| found), Some(index));
            }
        }
        assert!(find(b"").is_none() && find(b"nope").is_none() && find(&[b'x'; 100]).is_none());
    }

    #[test]
    fn arity_as_redis_counts_it() {
        let takes = |name: &str, count| find(name.as_bytes()).is_some_and(|(_, command)| command.takes(count));
        assert!(takes("get", 2) && !takes("get", 1) && !takes("get", 3));
        assert!(takes("set", 3) && takes("set", 9) && !takes("set", 2));
    }
}
