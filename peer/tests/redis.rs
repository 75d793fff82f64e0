//! Redis's own programs and clients against the endpoint, and the endpoint against Redis.
//!
//! Each test needs a program of somebody else; where it is absent the test says so and passes.

mod common;

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::memory::Manner;
use common::{Client, Server, command, installed};

/// A Redis on a free port, ended with the test.
struct Redis {
    child: Child,
    address: SocketAddr,
}

impl Redis {
    fn start() -> Option<Redis> {
        if !installed("redis-server", &["--version"]) {
            return None;
        }
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new("redis-server")
            .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let redis = Redis { child, address };
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn show(bytes: Option<Vec<u8>>) -> String {
    bytes.map_or("<end>".into(), |bytes| bytes.escape_ascii().to_string())
}

/// What Redis answers to these is what we answer, to the byte.
#[test]
fn errors_and_edges_are_those_of_redis() {
    let Some(redis) = Redis::start() else {
        return;
    };
    let server = Server::start(Manner::Prompt);
    let long = "x".repeat(200);
    let lines = [
        "foo",
        "foo a b",
        "foo 'a b' \"\\x00c\" d",
        &format!("foo {long} b"),
        &format!("{long} a"),
        &format!("foo {} b c d", "y".repeat(120)),
        &format!("foo {} b c d", "y".repeat(125)),
        "foo 'a\rb'",
        "GET",
        "get a b",
        "SET k",
        "SET k v EX",
        "SET k v EX 0",
        "SET k v EX -1",
        "SET k v EX a",
        "SET k v EX 9223372036854775807",
        "SET k v PX 9223372036854775807",
        "SET k v EXAT 0",
        "SET k v NX XX",
        "SET k v NX NX",
        "SET k v EX 1 EX 2",
        "SET k v EX 1 PX 2",
        "SET k v KEEPTTL EX 1",
        "SET k v EX 1 KEEPTTL",
        "SET k v foo",
        "SET k v GET GET",
        "DEL k",
        "EXPIRE k 1",
        "EXPIRE k a",
        "EXPIRE k 1 FOO",
        "EXPIRE k 1 NX XX",
        "EXPIRE k 1 NX GT",
        "EXPIRE k 1 GT LT",
        "EXPIRE k 9223372036854775807",
        "EXPIRE k -9223372036854775808",
        "PEXPIRE k 9223372036854775807",
        "PEXPIREAT k 9223372036854775807",
        "EXPIRE k 01",
        "MSET a",
        "MSET a b c",
        "DECRBY k -9223372036854775808",
        "INCRBY k 1.5",
        "INCRBY k +1",
        "INCRBY k",
        "SETEX k 0 v",
        "SETEX k a v",
        "PSETEX k -5 v",
        "GETEX k FOO",
        "GETEX k EX",
        "GETEX k EX 1 PX 2",
        "GETEX k PERSIST 1",
        "SELECT a",
        "SELECT 99",
        "SELECT -1",
        "HELLO a",
        "HELLO 4",
        "HELLO 1",
        "HELLO 3 SETNAME",
        "HELLO 3 FOO",
        "HELLO 3 AUTH a",
        "HELLO 2 AUTH a b",
        "AUTH a",
        "AUTH a b",
        "AUTH a b c",
        "AUTH",
        "CLIENT",
        "CLIENT foo",
        "CLIENT ID x",
        "CLIENT GETNAME",
        "CLIENT SETNAME 'a b'",
        "CLIENT SETNAME a",
        "CLIENT GETNAME",
        "CLIENT SETNAME ''",
        "CLIENT GETNAME",
        "CLIENT NO-EVICT",
        "CLIENT NO-EVICT foo",
        "CLIENT NO-EVICT ON",
        "CLIENT REPLY",
        "CLIENT REPLY foo",
        "CLIENT TRACKING",
        "CONFIG",
        "CONFIG foo",
        "CONFIG GET",
        "CONFIG GET nope",
        "CONFIG GET save",
        "COMMAND FOO",
        "COMMAND COUNT x",
        "COMMAND INFO nope",
        "COMMAND LIST a",
        "CLUSTER INFO",
        "PING",
        "PING a",
        "PING a b",
        "ECHO",
        "ECHO a",
        "RESET",
        "TYPE nope",
        "TTL nope",
        "PTTL nope",
        "STRLEN nope",
        "EXISTS",
        "MGET",
        "GETDEL nope",
        "GETSET k v",
        "GETSET k w",
        "APPEND k",
        "READONLY",
        "QUIT",
    ];
    let (mut theirs, mut ours) = (Client::connect(redis.address), server.client());
    for line in lines {
        let expected = theirs.line(line);
        assert_eq!(ours.line(line), expected, "{}", line.escape_debug());
    }
    // What ends a connection.
    let header = vec![b'1'; 70_000];
    for bytes in [
        &b"*x\r\n"[..],
        b"*1\r\n$x\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$600000000\r\n",
        b"*1\r\nx\r\n",
        b"'\r\n",
        &[b"*", &header[..]].concat(),
        &[b"*1\r\n$", &header[..]].concat(),
        &header,
        b"*1000000000000\r\n",
        b"*\r\n",
        b"*0\r\n*-5\r\nPING\r\n",
        b"\r\n\r\nPING\r\n",
        b"*1\r\n$4\r\nPINGxxPING\r\n",
    ] {
        let (mut theirs, mut ours) = (Client::connect(redis.address), server.client());
        theirs.send(bytes);
        ours.send(bytes);
        let shown = &bytes[..bytes.len().min(40)];
        assert_eq!(show(ours.answer()), show(theirs.answer()), "{}", shown.escape_ascii());
    }
}

/// Around a map and around a real node: the one is quick and shows the commands right, the other shows the node right.
#[test]
fn commands_mean_what_they_mean_in_redis() {
    if let Some(redis) = Redis::start() {
        compare(&redis, || Server::start(Manner::Prompt), 6000);
        compare(&redis, Server::alone, 150);
    }
}

/// Random commands on a few keys: the same answers as from Redis, in both protocols.
fn compare(redis: &Redis, start: impl Fn() -> Server, steps: u64) {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut chance = |of: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % of as u64) as usize
    };
    for protocol in ["2", "3"] {
        let server = start();
        let (mut theirs, mut ours) = (Client::connect(redis.address), server.client());
        theirs.line("FLUSHALL");
        theirs.line(&format!("HELLO {protocol}"));
        ours.line(&format!("HELLO {protocol}"));
        for step in 0..steps {
            let key = ["a", "b", "c", ""][chance(4)];
            let other = ["a", "b", "c", "d"][chance(4)];
            let value = ["1", "-7", "x", "", "9223372036854775807", "a longer value \r\n with lines", "012"][chance(7)];
            // Never twice the same, so that it does not matter that one server is asked a little later than the other.
            let (early, late) = ((step * 1000 + 1000).to_string(), (90_000_000 - step * 1000).to_string());
            let time = [&early, &late, "-5", "0"][chance(4)];
            let flags: &[&str] =
                [&["NX"][..], &["XX"], &["GT"], &["LT"], &["nx"], &["XX", "LT"], &["gt", "xx"]][chance(7)];
            let set_option: &[&str] = [
                &[][..],
                &["NX"],
                &["XX"],
                &["GET"],
                &["NX", "GET"],
                &["XX", "get"],
                &["EX", "100"],
                &["KEEPTTL"],
                &["ex", "1000", "XX"],
                &["EXAT", "99999999999"],
                &["PX", "100000", "GET"],
            ][chance(11)];
            let words: Vec<&str> = match chance(30) {
                0..=5 => [&["SET", key, value][..], set_option].concat(),
                6 => vec!["GET", key],
                7 => vec!["SETNX", key, value],
                8 => vec!["GETSET", key, value],
                9 => vec!["GETDEL", key],
                10 => vec!["APPEND", key, value],
                11 => vec!["STRLEN", key],
                12 => vec!["INCR", key],
                13 => vec!["DECRBY", key, value],
                14 => vec!["INCRBY", key, value],
                15 => vec!["DEL", key, other],
                16 => vec!["EXISTS", key, other, key],
                17 => vec!["MGET", key, other],
                18 => vec!["MSET", key, value, other, "m"],
                19 => vec!["TTL", key],
                20 => vec!["EXPIRE", key, time],
                21 => [&["EXPIRE", key, time][..], flags].concat(),
                22 => vec!["EXPIREAT", key, "99999999999"],
                23 => vec!["PERSIST", key],
                24 => vec!["TYPE", key],
                25 => vec!["GETEX", key, "PERSIST"],
                26 => vec!["GETEX", key, "EX", "5000"],
                27 => vec!["SETEX", key, "300", value],
                28 => vec!["UNLINK", key],
                _ => vec!["DECR", key],
            };
            let words: Vec<&[u8]> = words.into_iter().map(str::as_bytes).collect();
            let asked = command(&words).escape_ascii().to_string();
            let (expected, answer) = (show(theirs.ask(&words)), show(ours.ask(&words)));
            if words[0] == b"TTL" {
                // Rounded to seconds, a little before or after the half.
                let seconds = |text: &str| text[1..].trim_end_matches(r"\r\n").parse::<i64>().unwrap();
                assert!((seconds(&answer) - seconds(&expected)).abs() <= 1, "{answer} {expected}");
                continue;
            }
            assert_eq!(answer, expected, "step {step} of RESP{protocol}: {asked}");
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}\n{text}\n{errors}");
    text
}

#[test]
fn redis_cli() {
    if !installed("redis-cli", &["--version"]) {
        return;
    }
    let server = Server::start(Manner::Prompt);
    let port = server.address.port().to_string();
    for protocol in ["-2", "-3"] {
        let cli = |line: &str| {
            run("redis-cli", &[&["-p", &port, protocol], &line.split(' ').collect::<Vec<_>>()[..]].concat())
        };
        assert_eq!(cli("DEL a"), if protocol == "-2" { "0\n" } else { "1\n" });
        assert_eq!(cli("SET a hello"), "OK\n");
        assert_eq!(cli("GET a"), "hello\n");
        assert_eq!(cli("MGET a b"), "hello\n\n");
        assert!(cli("INFO").contains("redis_version:"));
        assert!(cli("COMMAND DOCS get").contains("summary"));
        assert!(cli("KEYS *").contains("ERR KEYS is not supported"));
    }
}

#[test]
fn redis_benchmark() {
    if !installed("redis-benchmark", &["--version"]) {
        return;
    }
    let server = Server::start(Manner::Prompt);
    let port = server.address.port().to_string();
    for pipeline in ["1", "64"] {
        let arguments = [
            "-p",
            &port,
            "-n",
            "20000",
            "-c",
            "20",
            "-P",
            pipeline,
            "-t",
            "ping,set,get,incr,mset",
            "-r",
            "1000",
            "-q",
        ];
        let text = run("redis-benchmark", &arguments);
        assert!(!text.to_lowercase().contains("error"), "{text}");
        assert_eq!(text.matches("requests per second").count(), 6, "{text}");
    }
}

#[test]
fn redis_py() {
    if !installed("python3", &["-c", "import redis"]) {
        return;
    }
    let server = Server::start(Manner::Prompt);
    let script = "
import redis, sys
for protocol in (2, 3):
    r = redis.Redis(port=int(sys.argv[1]), protocol=protocol)
    assert r.ping() is True
    r.delete('a', 'b', 'n')
    assert r.set('a', b'\\xff\\x00') is True
    assert r.get('a') == b'\\xff\\x00'
    assert r.set('a', 'z', nx=True) is None
    assert r.set('a', 'z', get=True) == b'\\xff\\x00'
    assert r.incr('n', 5) == 5
    assert r.mset({'x': 1, 'y': 2}) is True
    assert r.mget('x', 'none', 'y') == [b'1', None, b'2']
    assert r.expire('a', 100) in (1, True) and 99 <= r.ttl('a') <= 100
    assert r.exists('a', 'none') == 1
    assert r.info()['redis_mode'] == 'standalone'
    assert r.config_get('save') == {'save': ''}
    assert r.command_count() > 0
    with r.pipeline(transaction=False) as p:
        for i in range(5000):
            p.incr('n')
        assert p.execute()[-1] == 5005
    try:
        r.keys('*')
        raise SystemExit('KEYS was answered')
    except redis.ResponseError as error:
        assert 'not supported' in str(error), error
    r.close()
# The defaults of this version, whatever they are.
r = redis.from_url('redis://127.0.0.1:' + sys.argv[1], decode_responses=True, client_name='me')
assert r.set('k', 'v') and r.get('k') == 'v' and r.client_getname() == 'me'
print('done')
";
    assert_eq!(run("python3", &["-c", script, &server.address.port().to_string()]), "done\n");
}

#[test]
fn redis_rs() {
    let server = Server::start(Manner::Prompt);
    for protocol in ["resp2", "resp3"] {
        let url = format!("redis://{}/?protocol={protocol}", server.address);
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let mut ask = |words: &[&str]| redis::cmd(words[0]).arg(&words[1..]).query::<redis::Value>(&mut connection);
        assert_eq!(ask(&["SET", "a", "1"]).unwrap(), redis::Value::Okay);
        assert_eq!(ask(&["GET", "a"]).unwrap(), redis::Value::BulkString(b"1".to_vec()));
        assert_eq!(ask(&["GET", "none"]).unwrap(), redis::Value::Nil);
        let error = ask(&["KEYS", "*"]).unwrap_err();
        assert!(error.to_string().contains("not supported"), "{error}");
        let sum: Vec<i64> = redis::pipe().incr("n", 2).incr("n", 3).query(&mut connection).unwrap();
        assert_eq!(sum[1] - sum[0], 3);
    }
}

#[test]
fn errors_reach_redis_rs_as_errors() {
    let server = Server::start(Manner::Failing(group::op::OpError::Uncertain));
    let mut connection = redis::Client::open(format!("redis://{}", server.address)).unwrap().get_connection().unwrap();
    let error = redis::cmd("INCR").arg("n").query::<i64>(&mut connection).unwrap_err();
    assert_eq!(error.code(), Some("UNCERTAIN"));
    let error = redis::cmd("GET").arg("n").query::<i64>(&mut connection).unwrap_err();
    assert!(
        error.to_string().to_uppercase().contains("TRYAGAIN") || error.to_string().contains("no answer"),
        "{error}"
    );
}
