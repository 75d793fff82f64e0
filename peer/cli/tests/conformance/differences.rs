//! Intended differences between a peer's and Redis's answers, and their reasons.
//!
//! A row whose difference does not occur is wrong, and the test fails on it.

use When::{Always, Before};

/// Versions of Redis for which a row holds.
#[derive(Clone, Copy)]
pub enum When {
    /// Any version.
    Always,
    /// Versions before this one, which do not know the command.
    Before(u32, u32),
}

/// One row.
pub struct Difference {
    /// Line as in the scripts.
    pub line: &'static str,
    /// Beginning of a peer's answer, with line ends and the like escaped.
    pub ours: &'static str,
    /// Versions of Redis.
    pub when: When,
    /// Reason for the difference.
    pub why: &'static str,
}

impl Difference {
    /// Returns whether the difference is expected with this version of Redis.
    pub fn holds_against(&self, version: (u32, u32)) -> bool {
        match self.when {
            Always => true,
            Before(major, minor) => version < (major, minor),
        }
    }
}

const fn row(line: &'static str, ours: &'static str, when: When, why: &'static str) -> Difference {
    Difference { line, ours, when, why }
}

const ONE_DATABASE: &str = "there is one database: a point of the ring has no number beside it";
const LATER: &str = "it is there since a later Redis, and clients of that Redis use it";
const FEWER: &str = "there are fewer commands, and less is told of each";
const OWN: &str = "each server tells of itself";
const LISTING: &str = "no peer has a list of all keys";
const SEVERAL: &str = "nothing is atomic over several keys";
const SCRIPTS: &str = "there are no scripts";
const MESSAGES: &str = "there is no publish and subscribe";
const OTHERS: &str = "the network is not one client's alone";
const NOT_LISTED: &str = "it is not among the commands that are here, and the answer says so in Redis's words";
const SETTINGS: &str = "settings are those that the peer was started with";
const KEY_LAST: &str =
    "what is wrong with the command is said before any peer is asked for the key; Redis looks at the key first";
const TEXT: &str = "errors are text: clients decode them, and some break on bytes that are none";
const BEYOND: &str = "beyond Redis";

/// All rows.
pub const DIFFERENCES: &[Difference] = &[
    row("CLIENT SETINFO", r"-ERR wrong number of arguments for \'client|setinfo\' command", Before(7, 2), LATER),
    row(
        "CLIENT SETINFO lib-name",
        r"-ERR wrong number of arguments for \'client|setinfo\' command",
        Before(7, 2),
        LATER,
    ),
    row(
        "CLIENT SETINFO lib-name a b",
        r"-ERR wrong number of arguments for \'client|setinfo\' command",
        Before(7, 2),
        LATER,
    ),
    row("CLIENT SETINFO lib-name a", "+OK", Before(7, 2), LATER),
    row("CLIENT SETINFO LIB-VER 1.2.3", "+OK", Before(7, 2), LATER),
    row("CLIENT SETINFO lib-name 'a b'", "-ERR lib-name cannot contain spaces", Before(7, 2), LATER),
    row("CLIENT SETINFO nope a", "-ERR Unrecognized option", Before(7, 2), LATER),
    row("CLIENT SETINFO lib-name ''", "+OK", Before(7, 2), LATER),
    row("CLIENT NO-TOUCH on", "+OK", Before(7, 2), LATER),
    row("CLIENT NO-TOUCH", r"-ERR wrong number of arguments for \'client|no-touch\' command", Before(7, 2), LATER),
    row(
        "CLIENT TRACKING foo",
        "-ERR CLIENT TRACKING is not supported",
        Always,
        "keys are not watched for clients' caches",
    ),
    row("COMMAND COUNT", ":", Always, FEWER),
    row("COMMAND INFO get", r"*1\r\n*10\r\n$3\r\nget\r\n:2", Always, FEWER),
    row("COMMAND DOCS get", "", Always, FEWER),
    row("CONFIG GET databases", "", Always, ONE_DATABASE),
    row("CONFIG SET save x", "-ERR only CONFIG GET is supported", Always, SETTINGS),
    row("DELEX @k", ":0", Before(8, 4), LATER),
    row("DELEX @k IFEQ w", ":0", Before(8, 4), LATER),
    row("DELEX @k IFEQ v", ":1", Before(8, 4), LATER),
    row("DELIFEQ @k w", ":0", Always, "Valkey has it, and Redis has not"),
    row("DELIFEQ @k v", ":1", Always, "Valkey has it, and Redis has not"),
    row("GETEX @none EX a", "-ERR value is not an integer", Always, KEY_LAST),
    row("GETEX @none EX 0", "-ERR invalid expire time", Always, KEY_LAST),
    row("INFO", "", Always, OWN),
    row("INFO server", "", Always, OWN),
    row("SELECT 1", "-ERR DB index is out of range", Always, ONE_DATABASE),
    row(r#"foo "\xff\xfe""#, r"-ERR unknown command \'foo\', with args beginning with: \'\xef\xbf\xbd", Always, TEXT),
    row("GETRANGE @k 0 1", r"-ERR unknown command \'GETRANGE\'", Always, NOT_LISTED),
    row("INCRBYFLOAT @k 1", r"-ERR unknown command \'INCRBYFLOAT\'", Always, NOT_LISTED),
    row("EXPIRETIME @k", r"-ERR unknown command \'EXPIRETIME\'", Always, NOT_LISTED),
    row("LPUSH @k a", r"-ERR unknown command \'LPUSH\'", Always, NOT_LISTED),
    row("OBJECT HELP", r"-ERR unknown command \'OBJECT\'", Always, NOT_LISTED),
    row(
        "POST",
        "-ERR this is not an HTTP endpoint",
        Always,
        "Redis hangs up without a word; whoever tries this by mistake should learn why",
    ),
    row("SCAN 0", "-ERR SCAN is not supported: ", Always, LISTING),
    row("KEYS *", "-ERR KEYS is not supported: ", Always, LISTING),
    row("DBSIZE", "-ERR DBSIZE is not supported: ", Always, LISTING),
    row("RANDOMKEY", "-ERR RANDOMKEY is not supported: ", Always, LISTING),
    row("FLUSHALL", "-ERR FLUSHALL is not supported: ", Always, OTHERS),
    row("FLUSHDB", "-ERR FLUSHDB is not supported: ", Always, OTHERS),
    row("MSETNX @a 1", "-ERR MSETNX is not supported: ", Always, SEVERAL),
    row("MULTI", "-ERR MULTI is not supported: ", Always, SEVERAL),
    row("EXEC", "-ERR EXEC is not supported: ", Always, SEVERAL),
    row("DISCARD", "-ERR DISCARD is not supported: ", Always, SEVERAL),
    row("WATCH @a", "-ERR WATCH is not supported: ", Always, SEVERAL),
    row("UNWATCH", "-ERR UNWATCH is not supported: ", Always, SEVERAL),
    row("EVAL 'return 1' 0", "-ERR EVAL is not supported: ", Always, SCRIPTS),
    row("EVALSHA abc 0", "-ERR EVALSHA is not supported: ", Always, SCRIPTS),
    row("SCRIPT LOAD x", "-ERR SCRIPT is not supported: ", Always, SCRIPTS),
    row("FCALL f 0", "-ERR FCALL is not supported: ", Always, SCRIPTS),
    row("FUNCTION LIST", "-ERR FUNCTION is not supported: ", Always, SCRIPTS),
    row("PUBLISH a b", "-ERR PUBLISH is not supported: ", Always, MESSAGES),
    row("SPUBLISH a b", "-ERR SPUBLISH is not supported: ", Always, MESSAGES),
    row("SET @k v IFEQ v", "", Before(8, 4), LATER),
    row("SET @k v IFNE w", "", Before(8, 4), LATER),
    row("SCATTER.GETV @k", r"*2\r\n", Always, BEYOND),
];

/// Returns whether a difference that a random command met is intended.
pub fn is_meant(words: &[Vec<u8>], ours: &[u8], theirs: &[u8]) -> bool {
    let nothing = [&b"$-1\r\n"[..], b"_\r\n"].contains(&theirs);
    let getex = words[0].eq_ignore_ascii_case(b"GETEX") && nothing && ours.starts_with(b"-ERR ");
    let not_utf8 = theirs.starts_with(b"-ERR ") && String::from_utf8_lossy(theirs).as_bytes() == ours;
    getex || not_utf8
}
