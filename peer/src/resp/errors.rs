//! Texts of errors with several sources. Errors of Redis have Redis's words: client libraries match on some of them.

use super::arguments::Arguments;
use super::reply::Reply;

/// The outcome of a write is unknown.
pub const UNCERTAIN: &str =
    "UNCERTAIN no answer in time: the outcome is not known, it may have taken effect or may do so yet";
/// A read was not answered.
pub const NO_ANSWER: &str = "TRYAGAIN no answer in time: nothing was done";
/// A command waited too long before it could be passed on.
pub const WAITED: &str = "TRYAGAIN nothing was done: it waited too long behind earlier commands of this connection";
/// A command came after the peer was told to stop: the same text as of [`group::op::Refusal::Stopping`].
pub const STOPPING: &str = "TRYAGAIN nothing was done: this peer is stopping";
/// Some keys of a command were changed and some were not.
pub const PARTLY: &str = "UNCERTAIN it took effect on some of the keys, but not on all of them";
/// As in Redis.
pub const TOO_MANY_CLIENTS: &str = "ERR max number of clients reached";
/// As in Redis.
pub const SYNTAX: &str = "ERR syntax error";
/// As in Redis.
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
/// As in Redis.
pub const OVERFLOW: &str = "ERR increment or decrement would overflow";
/// As in Redis.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
/// As in Redis.
pub const NO_AUTH: &str = "NOAUTH Authentication required.";
/// As in Redis.
pub const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
/// A value over the network's limit.
pub const VALUE_TOO_LONG: &str = "ERR value is longer than this network's limit; nothing was done";
/// A key over the limit.
pub const KEY_TOO_LONG: &str = "ERR key is longer than 1024 bytes; nothing was done";

/// Returns `wrong number of arguments`, as in Redis.
pub fn arity(command: &str) -> Reply {
    Reply::error(format!("ERR wrong number of arguments for '{}' command", command.to_ascii_lowercase()))
}

/// Returns `invalid expire time`, as in Redis.
pub(crate) fn expire_time(command: &str) -> Reply {
    Reply::error(format!("ERR invalid expire time in '{command}' command"))
}

/// Returns `unknown command`, byte for byte as in Redis: Lettuce and other clients compare.
pub(crate) fn unknown_command(arguments: Arguments<'_>) -> Reply {
    let mut text = format!("ERR unknown command '{}', with args beginning with: ", c_string(arguments.at(0), 128));
    let mut room: usize = 128;
    for argument in arguments.from(1).iter() {
        if room == 0 {
            break;
        }
        let shown = c_string(argument, room);
        text.push('\'');
        text.push_str(&shown);
        text.push_str("' ");
        // Bytes as Redis counts them: those shown, the two quotes and the blank.
        room = room.saturating_sub(argument.len().min(room) + 3);
    }
    Reply::error(text)
}

/// Returns `unknown subcommand`, as in Redis.
pub(crate) fn unknown_subcommand(command: &str, subcommand: &[u8]) -> Reply {
    Reply::error(format!("ERR unknown subcommand '{}'. Try {command} HELP.", c_string(subcommand, 128)))
}

/// Returns an argument as C's `%.*s` prints it; bytes that are not UTF-8 are replaced.
pub(crate) fn c_string(text: &[u8], bytes_max: usize) -> String {
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len()).min(bytes_max);
    String::from_utf8_lossy(&text[..end]).into_owned()
}
