//! redis-rs, as described in `testnet/zoo/README.md`. The first argument names one of its connections: `plain`, `multiplexed`
//! or `manager`. The program uses the last two only for the questions in which they differ.

use std::error::Error;
use std::io::{BufRead as _, stdin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, Commands as _, Connection, ExistenceCheck, Expiry, RedisResult, SetExpiry,
    SetOptions,
};

type Outcome = Result<(), Box<dyn Error>>;

/// Timeout of the asynchronous connections in the setting `safe`. redis-rs repeats nothing by itself, but by default these
/// connections give up before an answer must have come.
const PATIENCE: Duration = Duration::from_secs(5);
const KEY: &str = "zoo:redis-rs:";

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["plain", "checks", ref ports @ ..] => checks(ports),
        ["plain", "incr", port, key, setting] => {
            let mut connection = open(port)?;
            redis::cmd("PING").exec(&mut connection)?;
            println!("ready");
            tell(incr(key, setting).query(&mut connection));
            Ok(())
        }
        ["plain", "reconnect", port, key] => reconnect(port, key),
        [kind, "incr", port, key, setting] => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let client = Client::open(url(port))?;
                let patience = (setting == "safe").then_some(PATIENCE);
                match kind {
                    "manager" => incr_through(managed(client, patience).await?, key, setting).await,
                    _ => incr_through(multiplexed(client, patience).await?, key, setting).await,
                }
            })
        }
        _ => Err("as testnet/zoo/README.md says".into()),
    }
}

async fn incr_through(mut connection: impl ConnectionLike + Send, key: &str, setting: &str) -> Outcome {
    redis::cmd("PING").exec_async(&mut connection).await?;
    println!("ready");
    tell(incr(key, setting).query_async(&mut connection).await);
    Ok(())
}

async fn managed(client: Client, patience: Option<Duration>) -> RedisResult<ConnectionManager> {
    let config = ConnectionManagerConfig::new();
    match patience {
        None => ConnectionManager::new(client).await,
        some => ConnectionManager::new_with_config(client, config.set_response_timeout(some)).await,
    }
}

async fn multiplexed(client: Client, patience: Option<Duration>) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new();
    match patience {
        None => client.get_multiplexed_async_connection().await,
        some => client.get_multiplexed_async_connection_with_config(&config.set_response_timeout(some)).await,
    }
}

fn url(port: &str) -> String {
    format!("redis://127.0.0.1:{port}/")
}

fn open(port: &str) -> RedisResult<Connection> {
    Client::open(url(port))?.get_connection()
}

fn id() -> String {
    format!("rs{}", environment::unix_time().as_nanos())
}

fn incr(key: &str, setting: &str) -> Cmd {
    match setting {
        "once" => redis::cmd("SCATTER.ONCE").arg(id()).arg("INCR").arg(key).take(),
        _ => redis::cmd("INCR").arg(key).take(),
    }
}

fn tell(answer: RedisResult<i64>) {
    match answer {
        Ok(number) => println!("answer {number}"),
        Err(error) => println!("error {error}"),
    }
}

fn reconnect(port: &str, key: &str) -> Outcome {
    let client = Client::open(url(port))?;
    let mut connection = client.get_connection()?;
    connection.set::<_, _, ()>(key, "v")?;
    println!("ready");
    let mut told = stdin().lock().lines();
    told.next();
    match connection.get::<_, Option<String>>(key) {
        Ok(value) => println!("answer {value:?}"),
        Err(error) => println!("error {error}"),
    }
    told.next();
    // A connection that broke stays broken; the client makes another one.
    loop {
        let value = client.get_connection().and_then(|mut connection| connection.get::<_, String>(key));
        if value.is_ok_and(|value| value == "v") {
            println!("back");
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

type Check = fn(&mut Connection, &[&str]) -> Outcome;

fn checks(ports: &[&str]) -> Outcome {
    let mut connection = open(ports[0])?;
    let all: [(&str, Check); 12] = [
        ("connect", connect),
        ("strings", strings),
        ("integers", integers),
        ("expiry", expiry),
        ("conditions", conditions),
        ("extensions", extensions),
        ("pipeline", pipeline),
        ("several_keys", several_keys),
        ("errors", errors),
        ("binary", binary),
        ("large", large),
        ("many_connections", many_connections),
    ];
    for (name, check) in all {
        match check(&mut connection, ports) {
            Ok(()) => println!("ok {name}"),
            Err(why) => println!("failed {name}: {why}"),
        }
    }
    Ok(())
}

fn equal<T: PartialEq + std::fmt::Debug>(got: T, wanted: T) -> Outcome {
    if got == wanted { Ok(()) } else { Err(format!("{got:?} instead of {wanted:?}").into()) }
}

fn fails(answer: RedisResult<redis::Value>, text: &str) -> Outcome {
    match answer {
        Err(error) if error.to_string().contains(text) => Ok(()),
        other => Err(format!("{other:?} instead of an error with {text:?}").into()),
    }
}

fn at(name: &str) -> String {
    format!("{KEY}{name}")
}

fn connect(r: &mut Connection, ports: &[&str]) -> Outcome {
    equal(redis::cmd("PING").query::<String>(r)?, "PONG".into())?;
    equal(r.set::<_, _, String>(at("shared"), "here")?, "OK".into())?;
    for port in &ports[1..] {
        equal(open(port)?.get::<_, String>(at("shared"))?, "here".into())?;
    }
    Ok(())
}

fn strings(r: &mut Connection, _: &[&str]) -> Outcome {
    let k = at("string");
    r.del::<_, ()>(&k)?;
    equal(r.get::<_, Option<String>>(&k)?, None)?;
    equal(r.set::<_, _, String>(&k, "a")?, "OK".into())?;
    equal(r.getset::<_, _, String>(&k, "b")?, "a".into())?;
    equal(r.append::<_, _, i64>(&k, "cd")?, 3)?;
    equal(r.strlen::<_, i64>(&k)?, 3)?;
    equal(r.get_del::<_, String>(&k)?, "bcd".into())?;
    equal(r.get::<_, Option<String>>(&k)?, None)
}

fn integers(r: &mut Connection, _: &[&str]) -> Outcome {
    let k = at("integer");
    r.del::<_, ()>(&k)?;
    equal(r.incr::<_, _, i64>(&k, 1)?, 1)?;
    equal(r.incr::<_, _, i64>(&k, 9)?, 10)?;
    equal(r.decr::<_, _, i64>(&k, 1)?, 9)?;
    equal(r.decr::<_, _, i64>(&k, 4)?, 5)
}

fn expiry(r: &mut Connection, _: &[&str]) -> Outcome {
    let k = at("expiry");
    equal(
        r.set_options::<_, _, String>(&k, "v", SetOptions::default().with_expiration(SetExpiry::EX(100)))?,
        "OK".into(),
    )?;
    equal((98..=100).contains(&r.ttl::<_, i64>(&k)?), true)?;
    equal((98_001..=100_000).contains(&r.pttl::<_, i64>(&k)?), true)?;
    equal(r.expire::<_, bool>(&k, 200)?, true)?;
    equal(r.persist::<_, bool>(&k)?, true)?;
    equal(r.ttl::<_, i64>(&k)?, -1)?;
    equal(r.get_ex::<_, String>(&k, Expiry::PX(50))?, "v".into())?;
    let until = Instant::now() + Duration::from_secs(10);
    while r.get::<_, Option<String>>(&k)?.is_some() {
        equal(Instant::now() < until, true)?;
    }
    equal(r.ttl::<_, i64>(&k)?, -2)
}

fn conditions(r: &mut Connection, _: &[&str]) -> Outcome {
    let k = at("condition");
    let only = |check| SetOptions::default().conditional_set(check);
    r.del::<_, ()>(&k)?;
    equal(r.set_options::<_, _, Option<String>>(&k, "a", only(ExistenceCheck::XX))?, None)?;
    equal(r.set_options::<_, _, Option<String>>(&k, "a", only(ExistenceCheck::NX))?, Some("OK".into()))?;
    equal(r.set_options::<_, _, Option<String>>(&k, "b", only(ExistenceCheck::NX))?, None)?;
    equal(r.set_options::<_, _, Option<String>>(&k, "b", only(ExistenceCheck::XX).get(true))?, Some("a".into()))?;
    equal(r.set_nx::<_, _, bool>(&k, "c")?, false)?;
    equal(r.get::<_, String>(&k)?, "b".into())
}

fn extensions(r: &mut Connection, _: &[&str]) -> Outcome {
    let k = at("extension");
    r.set::<_, _, ()>(&k, "a")?;
    let raw = |words: &[&str]| redis::cmd(words[0]).arg(&words[1..]).take();
    equal(raw(&["SET", &k, "b", "IFEQ", "no"]).query::<Option<String>>(r)?, None)?;
    equal(raw(&["SET", &k, "b", "IFEQ", "a"]).query::<Option<String>>(r)?, Some("OK".into()))?;
    let (value, version): (String, String) = raw(&["SCATTER.GETV", &k]).query(r)?;
    equal(value, "b".into())?;
    equal(raw(&["SCATTER.CAS", &k, &version, "c"]).query::<i64>(r)?, 1)?;
    equal(raw(&["SCATTER.CAS", &k, &version, "d"]).query::<i64>(r)?, 0)?;
    r.del::<_, ()>(&k)?;
    let once = incr(&k, "once");
    equal((once.query::<i64>(r)?, once.query::<i64>(r)?), (1, 1))
}

fn pipeline(r: &mut Connection, _: &[&str]) -> Outcome {
    let keys: Vec<String> = (0..50).map(|n| at(&format!("pipeline:{n}"))).collect();
    r.del::<_, ()>(&keys)?;
    let mut pipe = redis::pipe();
    for n in 0..1000 {
        pipe.incr(&keys[n % 50], 1);
    }
    equal(pipe.query::<Vec<i64>>(r)?, (0..1000).map(|n| n / 50 + 1).collect())
}

fn several_keys(r: &mut Connection, _: &[&str]) -> Outcome {
    let (a, b, none) = (at("a"), at("b"), at("none"));
    equal(r.mset::<_, _, String>(&[(&a, "1"), (&b, "2")])?, "OK".into())?;
    equal(r.mget::<_, Vec<Option<String>>>(&[&a, &none, &b])?, vec![Some("1".into()), None, Some("2".into())])?;
    equal(r.exists::<_, i64>(&[&a, &b, &none, &a])?, 3)?;
    equal(r.del::<_, i64>(&[&a, &b, &none])?, 2)
}

fn errors(r: &mut Connection, _: &[&str]) -> Outcome {
    let k = at("error");
    r.set::<_, _, ()>(&k, "text")?;
    let unknown = redis::cmd("NOSUCH").arg("a").query(r);
    fails(unknown, "unknown command 'NOSUCH', with args beginning with: 'a' ")?;
    fails(redis::cmd("GET").query(r), "wrong number of arguments for 'get' command")?;
    fails(r.incr(&k, 1), "value is not an integer or out of range")?;
    fails(r.keys("*"), "KEYS is not supported")?;
    equal(r.get::<_, String>(&k)?, "text".into())
}

fn binary(r: &mut Connection, _: &[&str]) -> Outcome {
    let every: Vec<u8> = (0..=255).collect();
    let k = [KEY.as_bytes(), &every].concat();
    equal(r.set::<_, _, String>(&k, &every[..])?, "OK".into())?;
    equal(r.get::<_, Vec<u8>>(&k)?, every)?;
    equal(r.del::<_, i64>(&k)?, 1)
}

fn large(r: &mut Connection, _: &[&str]) -> Outcome {
    let (k, value) = (at("large"), vec![b'x'; 1 << 20]);
    equal(r.set::<_, _, String>(&k, &value[..65_536])?, "OK".into())?;
    equal(r.get::<_, Vec<u8>>(&k)?.len(), 65_536)?;
    fails(r.set(&k, &value[..65_537]), "longer than this network's limit")?;
    fails(r.set(&k, &value[..]), "longer than this network's limit")?;
    equal(r.strlen::<_, i64>(&k)?, 65_536)
}

fn many_connections(r: &mut Connection, ports: &[&str]) -> Outcome {
    let k: Arc<str> = at("many").into();
    r.del::<_, ()>(&*k)?;
    let count = |port: String, k: Arc<str>| -> RedisResult<()> {
        let mut connection = open(&port)?;
        (0..10).try_for_each(|_| connection.incr(&*k, 1))
    };
    let threads: Vec<_> = (0..32)
        .map(|n| {
            let (port, k) = (ports[n % ports.len()].to_owned(), k.clone());
            std::thread::spawn(move || count(port, k))
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    equal(r.get::<_, i64>(&*k)?, 320)
}
