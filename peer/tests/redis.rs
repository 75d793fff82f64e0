//! Redis's own programs and clients against the endpoint. `conformance` compares it with Redis itself.
//!
//! Each test needs a program from elsewhere; where it is absent the test says so and passes.

mod common;

use std::process::{Command, Stdio};

use common::memory::Manner;
use common::{Server, installed};

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
