//! Answers of each command, byte for byte.

mod common;

use common::memory::Manner;
use common::{Client, Server};
use group::op::{Limit, OpError, Refusal};
use peer::resp::{Password, Settings};

fn asks(client: &mut Client, cases: &[(&str, &str)]) {
    for (line, expected) in cases {
        assert_eq!(client.line(line), *expected, "{line}");
    }
}

#[test]
fn connection_commands() {
    let server = Server::start(Manner::Prompt);
    asks(
        &mut server.client(),
        &[
            ("PING", r"+PONG\r\n"),
            ("ping hello", r"$5\r\nhello\r\n"),
            ("PING a b", r"-ERR wrong number of arguments for \'ping\' command\r\n"),
            ("ECHO hi", r"$2\r\nhi\r\n"),
            ("SELECT 0", r"+OK\r\n"),
            ("SELECT 1", r"-ERR DB index is out of range\r\n"),
            ("SELECT x", r"-ERR value is not an integer or out of range\r\n"),
            ("CLIENT GETNAME", r"$-1\r\n"),
            ("CLIENT SETNAME me", r"+OK\r\n"),
            ("CLIENT GETNAME", r"$2\r\nme\r\n"),
            (
                r#"CLIENT SETNAME "a b""#,
                r"-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
            ),
            ("CLIENT SETINFO LIB-NAME lib", r"+OK\r\n"),
            ("CLIENT SETINFO lib-ver 1.2", r"+OK\r\n"),
            ("CLIENT SETINFO nope 1", r"-ERR Unrecognized option \'nope\'\r\n"),
            (
                "CLIENT TRACKING ON",
                r"-ERR CLIENT TRACKING is not supported: keys are not watched for clients\' caches\r\n",
            ),
            ("CLIENT MAINT_NOTIFICATIONS ON", r"-ERR unknown subcommand \'MAINT_NOTIFICATIONS\'. Try CLIENT HELP.\r\n"),
            ("AUTH default whatever", r"+OK\r\n"),
            ("HELLO 4", r"-NOPROTO unsupported protocol version\r\n"),
            ("CONFIG GET save", r"*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
            ("CONFIG GET databases", r"*2\r\n$9\r\ndatabases\r\n$1\r\n1\r\n"),
            ("CONFIG GET nope", r"*0\r\n"),
            ("COMMAND INFO nope", r"*1\r\n$-1\r\n"),
            ("CLUSTER INFO", r"-ERR This instance has cluster support disabled\r\n"),
            ("foo", r"-ERR unknown command \'foo\', with args beginning with: \r\n"),
            ("foo a b", r"-ERR unknown command \'foo\', with args beginning with: \'a\' \'b\' \r\n"),
            (r#""get\x00" a"#, r"-ERR unknown command \'get\', with args beginning with: \'a\' \r\n"),
            ("RESET", r"+RESET\r\n"),
            ("CLIENT GETNAME", r"$-1\r\n"),
        ],
    );
    let mut client = server.client();
    assert!(client.line("HELLO 3 SETNAME me").starts_with(r"%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n"));
    assert_eq!(client.line("CLIENT GETNAME"), r"$2\r\nme\r\n");
    assert_eq!(client.line("GET absent"), r"_\r\n");
    assert!(client.line("INFO").starts_with("="));
    assert!(client.line("HELLO 2").starts_with("*14"));
    assert_eq!(client.line("GET absent"), r"$-1\r\n");
    assert!(client.line("INFO server").contains("redis_version:7."));
    assert!(client.line("COMMAND COUNT").starts_with(':'));
    assert!(client.line("COMMAND DOCS get").contains("summary"));
    let first = client.line("CLIENT ID");
    assert_ne!(server.client().line("CLIENT ID"), first);
    assert_eq!(client.line("QUIT"), r"+OK\r\n");
    assert_eq!(client.answer(), None);
}

#[test]
fn refused_commands_say_why() {
    let server = Server::start(Manner::Prompt);
    let mut client = server.client();
    for line in ["SCAN 0", "KEYS *", "MULTI", "EXEC", "WATCH a", "EVAL x 0", "SUBSCRIBE a", "FLUSHALL", "MSETNX a 1"] {
        let answer = client.line(line);
        let name = line.split(' ').next().unwrap();
        assert!(answer.starts_with(&format!("-ERR {name} is not supported: ")), "{answer}");
    }
}

#[test]
fn leases() {
    let server = Server::start(Manner::Prompt);
    let mut client = server.client();
    let wrong = r"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    asks(
        &mut client,
        &[
            ("SCATTER.LEASE k me 100000", r"*2\r\n$2\r\nme\r\n:100000\r\n"),
            ("SCATTER.LEASE k me 200000", r"*2\r\n$2\r\nme\r\n:200000\r\n"),
            ("TYPE k", r"+lease\r\n"),
            ("EXISTS k", r":1\r\n"),
            ("SCATTER.UNLEASE k you", r":0\r\n"),
            ("SCATTER.UNLEASE k me", r":1\r\n"),
            ("SCATTER.UNLEASE k me", r":0\r\n"),
            ("TYPE k", r"+none\r\n"),
            (
                "SCATTER.ONCE id SCATTER.LEASE k you 100000",
                r"-ERR SCATTER.LEASE may be repeated as it is, and not under SCATTER.ONCE\r\n",
            ),
            ("SCATTER.LEASE k you 100000", r"*2\r\n$3\r\nyou\r\n:100000\r\n"),
            ("SCATTER.ONCE id SCATTER.UNLEASE k you", r":1\r\n"),
            ("SCATTER.ONCE id SCATTER.UNLEASE k you", r":1\r\n"),
            ("SET s 1", r"+OK\r\n"),
            ("SCATTER.LEASE s me 1000", wrong),
            ("SCATTER.UNLEASE s me", wrong),
            ("SCATTER.LEASE k me 100000", r"*2\r\n$2\r\nme\r\n:100000\r\n"),
            ("MGET k s", r"*2\r\n$-1\r\n$1\r\n1\r\n"),
            ("MGET k", r"*1\r\n$-1\r\n"),
            ("SCATTER.LEASE k me 0", r"-ERR invalid expire time in \'scatter.lease\' command\r\n"),
            ("SCATTER.LEASE k me x", r"-ERR value is not an integer or out of range\r\n"),
            ("SCATTER.LEASE k me", r"-ERR wrong number of arguments for \'scatter.lease\' command\r\n"),
        ],
    );
    for line in
        ["GET k", "SET k 1", "SETNX k 1", "APPEND k x", "INCR k", "STRLEN k", "PERSIST k", "EXPIRE k 5", "GETDEL k"]
    {
        assert_eq!(client.line(line), wrong, "{line}");
    }
    let left = client.line("SCATTER.LEASE k you 1000");
    assert!(left.starts_with('*'), "{left}");
    let long = format!("SCATTER.LEASE k {} 1000", "x".repeat(1025));
    assert_eq!(client.line(&long), r"-ERR the holder has to have 1 to 1024 bytes; nothing was done\r\n");
}

#[test]
fn values_and_conditions() {
    let server = Server::start(Manner::Prompt);
    asks(
        &mut server.client(),
        &[
            ("SET a 1", r"+OK\r\n"),
            ("GET a", r"$1\r\n1\r\n"),
            ("SET a 2 NX", r"$-1\r\n"),
            ("SET b 2 XX", r"$-1\r\n"),
            ("SET a 2 XX GET", r"$1\r\n1\r\n"),
            ("SET c 1 NX GET", r"$-1\r\n"),
            ("SET a 3 IFEQ 1", r"$-1\r\n"),
            ("SET a 3 IFEQ 2", r"+OK\r\n"),
            ("SET a 4 IFNE 3", r"$-1\r\n"),
            ("SET a 4 IFNE 9 GET", r"$1\r\n3\r\n"),
            ("SET a 4 NX XX", r"-ERR syntax error\r\n"),
            ("SET a 4 NX IFEQ 4", r"-ERR syntax error\r\n"),
            ("SET a 4 EX", r"-ERR syntax error\r\n"),
            ("SET a 4 EX 1 PX 1", r"-ERR syntax error\r\n"),
            ("SET a 4 EX 1 KEEPTTL", r"-ERR syntax error\r\n"),
            ("SET a 4 KEEPTTL PX 1", r"-ERR syntax error\r\n"),
            ("SET a 4 EX 0", r"-ERR invalid expire time in \'set\' command\r\n"),
            ("SET a 4 EX x", r"-ERR value is not an integer or out of range\r\n"),
            ("SETEX a -1 4", r"-ERR invalid expire time in \'setex\' command\r\n"),
            ("SETNX a 9", r":0\r\n"),
            ("GETSET a 5", r"$1\r\n4\r\n"),
            ("GETDEL a", r"$1\r\n5\r\n"),
            ("GETDEL a", r"$-1\r\n"),
            ("APPEND a xy", r":2\r\n"),
            ("STRLEN a", r":2\r\n"),
            ("INCR a", r"-ERR value is not an integer or out of range\r\n"),
            ("INCR n", r":1\r\n"),
            ("INCRBY n 9223372036854775807", r"-ERR increment or decrement would overflow\r\n"),
            ("DECRBY n 3", r":-2\r\n"),
            ("DECRBY n -9223372036854775808", r"-ERR decrement would overflow\r\n"),
            ("MSET x 1 y 2", r"+OK\r\n"),
            ("MSET x 1 y", r"-ERR wrong number of arguments for \'mset\' command\r\n"),
            ("MGET x none y", r"*3\r\n$1\r\n1\r\n$-1\r\n$1\r\n2\r\n"),
            ("EXISTS x y x none", r":3\r\n"),
            ("TYPE x", r"+string\r\n"),
            ("TYPE none", r"+none\r\n"),
            ("DELEX x IFEQ 2", r":0\r\n"),
            ("DELEX x IFEQ 1", r":1\r\n"),
            ("DELIFEQ y 2", r":1\r\n"),
            ("SET x 1", r"+OK\r\n"),
            ("UNLINK x y z", r":1\r\n"),
        ],
    );
}

#[test]
fn deadlines() {
    let server = Server::start(Manner::Prompt);
    asks(
        &mut server.client(),
        &[
            ("TTL a", r":-2\r\n"),
            ("SET a 1 EX 100", r"+OK\r\n"),
            ("TTL a", r":100\r\n"),
            ("SET a 2 KEEPTTL", r"+OK\r\n"),
            ("TTL a", r":100\r\n"),
            ("EXPIRE a 50 GT", r":0\r\n"),
            ("EXPIRE a 200 GT", r":1\r\n"),
            ("EXPIRE a 50 LT", r":1\r\n"),
            ("EXPIRE a 10 NX", r":0\r\n"),
            ("EXPIRE a 10 XX GT", r":0\r\n"),
            ("PERSIST a", r":1\r\n"),
            ("PERSIST a", r":0\r\n"),
            ("TTL a", r":-1\r\n"),
            ("EXPIRE a 10 XX", r":0\r\n"),
            ("EXPIRE a 10 XX LT", r":0\r\n"),
            ("EXPIRE a 10 NX", r":1\r\n"),
            ("EXPIRE a 20 XX LT", r":0\r\n"),
            ("EXPIRE a 9 LT XX", r":1\r\n"),
            ("EXPIRE a 10 FOO", r"-ERR Unsupported option FOO\r\n"),
            ("EXPIRE a 1 NX XX", r"-ERR NX and XX, GT or LT options at the same time are not compatible\r\n"),
            ("EXPIRE a 9223372036854775807", r"-ERR invalid expire time in \'expire\' command\r\n"),
            ("GETEX a PERSIST", r"$1\r\n2\r\n"),
            ("TTL a", r":-1\r\n"),
            ("GETEX a PX 60000", r"$1\r\n2\r\n"),
            ("TTL a", r":60\r\n"),
            ("EXPIRE a -1", r":1\r\n"),
            ("GET a", r"$-1\r\n"),
            ("SET b 1 PXAT 1", r"+OK\r\n"),
            ("GET b", r"$-1\r\n"),
        ],
    );
}

#[test]
fn extensions() {
    let server = Server::start(Manner::Prompt);
    asks(
        &mut server.client(),
        &[
            ("SCATTER.GETV a", r"*2\r\n$-1\r\n$3\r\n0-0\r\n"),
            ("SCATTER.CAS a 0-0 1", r":1\r\n"),
            ("SCATTER.CAS a 0-0 1", r":0\r\n"),
            ("SCATTER.GETV a", r"*2\r\n$1\r\n1\r\n$3\r\n1-1\r\n"),
            ("SCATTER.CAS a 1-1 2", r":1\r\n"),
            ("SCATTER.CAS a 1-1 3", r":0\r\n"),
            ("SCATTER.CAS a x 3", r"-ERR version is not one that SCATTER.GETV gave\r\n"),
            ("SCATTER.CAS a 1--1 3", r"-ERR version is not one that SCATTER.GETV gave\r\n"),
            ("SCATTER.RGET a", r"$1\r\n2\r\n"),
            ("SCATTER.APPEND a 3 xy", r":3\r\n"),
            ("SCATTER.APPEND a 3 z", r"$-1\r\n"),
            ("GET a", r"$3\r\n2xy\r\n"),
            ("SCATTER.ONCE id1 INCR n", r":1\r\n"),
            ("SCATTER.ONCE id1 INCR n", r":1\r\n"),
            ("SCATTER.ONCE id2 INCR n", r":2\r\n"),
            ("SCATTER.ONCE id3 GET", r"-ERR wrong number of arguments for \'get\' command\r\n"),
            ("SCATTER.ONCE id3 PING", r"-ERR SCATTER.ONCE takes a command on one key\r\n"),
            ("SCATTER.ONCE id3 DEL a b", r"-ERR SCATTER.ONCE takes a command on one key\r\n"),
            ("SCATTER.ONCE id3 SCATTER.ONCE id4 INCR n", r"-ERR SCATTER.ONCE takes a command on one key\r\n"),
            ("SCATTER.ONCE id3 nope a", r"-ERR unknown command \'nope\', with args beginning with: \'a\' \r\n"),
            (r#"SCATTER.ONCE "" INCR n"#, r"-ERR the id has to have 1 to 64 bytes\r\n"),
            ("GET n", r"$1\r\n2\r\n"),
        ],
    );
    let place = server.client().line("SCATTER.WHERE a");
    assert!(place.contains("point") && place.contains("12D3KooWAlone"), "{place}");
}

#[test]
fn what_is_too_long_is_an_error_and_not_cut() {
    let server = Server::start(Manner::Prompt);
    let mut client = server.client();
    let key = vec![b'k'; 1025];
    let value = vec![b'v'; 65537];
    let enormous = vec![b'v'; 3 << 20];
    for (words, says) in [
        (vec![&b"GET"[..], &key], "key is longer than 1024 bytes"),
        (vec![b"SET", &key, b"v"], "key is longer than 1024 bytes"),
        (vec![b"SET", b"k", &value], "value of 65537 bytes is longer"),
        (vec![b"SET", b"k", b"v", b"IFEQ", &value], "value of 65537 bytes is longer"),
        (vec![b"MSET", b"a", b"1", b"k", &value], "value of 65537 bytes is longer"),
        (vec![b"SET", b"k", &enormous], "the command is too long"),
    ] {
        let answer = String::from_utf8(client.ask(&words).unwrap()).unwrap();
        assert!(answer.starts_with("-ERR ") && answer.contains(says), "{answer}");
    }
    assert_eq!(client.line("EXISTS a k"), r":0\r\n", "nothing was done");
    assert_eq!(client.ask(&[b"SET", &key[1..], &value[1..]]).unwrap(), b"+OK\r\n");
    assert_eq!(client.ask(&[b"APPEND", &key[1..], b"x"]).unwrap()[..4], *b"-ERR");
    let mut many: Vec<&[u8]> = vec![b"DEL"];
    many.resize(1026, b"k");
    assert!(String::from_utf8(client.ask(&many).unwrap()).unwrap().contains("at most 1024"));
    assert_eq!(client.ask(&many[..1025]).unwrap(), b":0\r\n");
    many.resize(5000, b"k");
    assert!(String::from_utf8(client.ask(&many).unwrap()).unwrap().contains("too many arguments"));
    assert_eq!(client.line("PING"), r"+PONG\r\n");
}

#[test]
fn errors_keep_their_promise() {
    let busy = OpError::TryAgain(Refusal::Busy);
    for (manner, read, write) in [
        (Manner::Failing(busy), "-TRYAGAIN ", "-TRYAGAIN "),
        (Manner::Failing(OpError::Uncertain), "-TRYAGAIN ", "-UNCERTAIN "),
        (Manner::Failing(OpError::Limit(Limit::Disk)), "-OOM ", "-OOM "),
        (Manner::Full, "-TRYAGAIN ", "-TRYAGAIN "),
        // Of two keys one is refused.
        (Manner::Halting(busy), "-TRYAGAIN ", "-UNCERTAIN "),
    ] {
        let server = Server::start(manner);
        let mut client = server.client();
        for line in ["MGET a b", "EXISTS a b"] {
            assert!(client.line(line).starts_with(read), "{manner:?} {line}");
        }
        assert!(client.line("MSET a 1 b 2").starts_with(write), "{manner:?}");
    }
}

#[test]
fn a_password_is_asked_for() {
    let settings = || Settings { password: Some(Password::new(b"hush")), ..Settings::default() };
    let server = Server::with(Manner::Prompt, settings());
    let mut client = server.client();
    asks(
        &mut client,
        &[
            ("GET a", r"-NOAUTH Authentication required.\r\n"),
            ("PING", r"-NOAUTH Authentication required.\r\n"),
            ("AUTH wrong", r"-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
            ("AUTH someone hush", r"-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
            ("AUTH hush", r"+OK\r\n"),
            ("GET a", r"$-1\r\n"),
            ("RESET", r"+RESET\r\n"),
            ("GET a", r"-NOAUTH Authentication required.\r\n"),
            ("AUTH default hush", r"+OK\r\n"),
        ],
    );
    let mut client = server.client();
    assert!(client.line("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert!(client.line("HELLO 3 AUTH default wrong").starts_with("-WRONGPASS"));
    assert!(client.line("HELLO 3 AUTH default hush SETNAME me").starts_with("%7"));
    assert_eq!(client.line("GET a"), r"_\r\n");
    // Clients without the password get less room.
    let mut client = server.client();
    client.send(b"*11\r\n");
    assert_eq!(client.answer().unwrap(), b"-ERR Protocol error: unauthenticated multibulk length\r\n");
    let mut client = server.client();
    client.send(b"*1\r\n$20000\r\n");
    assert_eq!(client.answer().unwrap(), b"-ERR Protocol error: unauthenticated bulk length\r\n");
}
