//! The store at the other end of a connection to a peer.
//!
//! One connection carries everything, many operations at once. Where it breaks, another is made, to the next of the
//! addresses that answers; what changes something goes under an id of its own (`SCATTER.ONCE`), so that it can be sent
//! again, through any peer, and still takes effect once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo as _, RedisError, Value,
};
use tokio::sync::Mutex;

use crate::error::Error;
use crate::patience::{PATIENCE, Pauses, random};
use crate::store::{Store, Version};

/// Peers answer within 3 s; a bit more, so that theirs is the last word.
const ANSWER_MAX: Duration = Duration::from_secs(4);
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// A store behind one or more peers' addresses for clients.
pub struct Remote {
    clients: Vec<(String, Client)>,
    link: Mutex<Link>,
}

/// The connection in use.
struct Link {
    connection: Option<Connection>,
    /// Counts connections, so that one that broke is given up once, by the first of all who see it.
    number: u64,
    /// Whose address is in use, or tried next.
    at: usize,
}

/// A connection, and how many answers have come through it.
#[derive(Clone)]
struct Connection {
    inner: MultiplexedConnection,
    answers: Arc<AtomicU64>,
}

/// What one attempt came to.
enum Attempt {
    Done(Value),
    /// Nothing was done.
    Nothing(String),
    /// It may have been done.
    Maybe(String),
    /// No other attempt will do better.
    Never(Error),
}

impl Remote {
    /// Connects to the first of these addresses (`HOST:PORT`) that answers.
    ///
    /// # Errors
    /// [`Error::Unreachable`] where none does, or none is given; [`Error::Refused`] where one wants another password.
    pub async fn connect(addresses: &[String], password: Option<&str>) -> Result<Remote, Error> {
        let clients = addresses.iter().map(|address| Ok((address.clone(), client(address, password)?)));
        let clients = clients.collect::<Result<Vec<_>, Error>>()?;
        let remote = Remote { clients, link: Mutex::new(Link { connection: None, number: 0, at: 0 }) };
        remote.connection().await?;
        Ok(remote)
    }

    /// The address in use, or tried next.
    pub async fn address(&self) -> String {
        let at = self.link.lock().await.at;
        self.clients[at].0.clone()
    }

    /// The connection in use, or a new one.
    async fn connection(&self) -> Result<(Connection, u64), Error> {
        let mut link = self.link.lock().await;
        if let Some(connection) = &link.connection {
            return Ok((connection.clone(), link.number));
        }
        let mut why = String::from("no address was given");
        for _ in 0..self.clients.len() {
            let (_, client) = &self.clients[link.at];
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(CONNECT_MAX))
                .set_response_timeout(Some(ANSWER_MAX));
            match client.get_multiplexed_async_connection_with_config(&config).await {
                Ok(inner) => {
                    let connection = Connection { inner, answers: Arc::default() };
                    link.connection = Some(connection.clone());
                    link.number += 1;
                    return Ok((connection, link.number));
                }
                Err(error) if is_about_the_password(&error) => return Err(Error::Refused(error.to_string())),
                Err(error) => why = error.to_string(),
            }
            link.at = (link.at + 1) % self.clients.len();
        }
        let tried: Vec<&str> = self.clients.iter().map(|(address, _)| address.as_str()).collect();
        Err(Error::Unreachable { tried: tried.join(", "), why })
    }

    /// This connection broke, or its peer does not answer: the next one is with another peer, if there is one.
    async fn give_up(&self, number: u64) {
        let mut link = self.link.lock().await;
        if link.number == number && link.connection.take().is_some() {
            link.at = (link.at + 1) % self.clients.len();
        }
    }

    async fn attempt(&self, command: &Cmd) -> Attempt {
        let (mut connection, number) = match self.connection().await {
            Ok(link) => link,
            Err(error @ Error::Refused(_)) => return Attempt::Never(error),
            Err(error) => return Attempt::Nothing(error.to_string()),
        };
        let before = connection.answers.load(Ordering::Relaxed);
        let error = match connection.inner.send_packed_command(command).await {
            Ok(Value::ServerError(error)) => RedisError::from(error),
            Ok(value) => {
                connection.answers.fetch_add(1, Ordering::Relaxed);
                return Attempt::Done(value);
            }
            Err(error) => error,
        };
        match error.code() {
            Some("TRYAGAIN") => Attempt::Nothing(in_words(&error)),
            Some("UNCERTAIN") => Attempt::Maybe(in_words(&error)),
            Some(_) => Attempt::Never(Error::Refused(in_words(&error))),
            None => {
                // One that is slow does not take the others with it: they would all be sent again, and be slower still.
                let goes_on = error.is_timeout() && connection.answers.load(Ordering::Relaxed) > before;
                if !goes_on {
                    self.give_up(number).await;
                }
                Attempt::Maybe(error.to_string())
            }
        }
    }

    /// Tries until it is done, or known not to be possible, or patience is over. `changes`: whoever asks has to know whether
    /// it was done. Everything here may be sent again where the last time may have done something.
    async fn ask(&self, command: &Cmd, changes: bool) -> Result<Value, Error> {
        let (since, mut pauses, mut unknown) = (Instant::now(), Pauses::default(), false);
        loop {
            let why = match self.attempt(command).await {
                Attempt::Done(value) => return Ok(value),
                Attempt::Never(error) => return Err(if unknown { Error::Unknown(error.to_string()) } else { error }),
                Attempt::Nothing(why) => why,
                Attempt::Maybe(why) => {
                    unknown |= changes;
                    why
                }
            };
            if since.elapsed() >= PATIENCE {
                return Err(if unknown { Error::Unknown(why) } else { Error::TryAgain(why) });
            }
            pauses.wait().await;
        }
    }

    async fn read(&self, command: &Cmd) -> Result<Value, Error> {
        self.ask(command, false).await
    }

    /// A change, under an id of its own.
    async fn change(&self, name: &str, arguments: &[&[u8]]) -> Result<Value, Error> {
        let id: String = random::<16>().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut command = redis::cmd("SCATTER.ONCE");
        command.arg(id).arg(name);
        arguments.iter().for_each(|argument| {
            command.arg(*argument);
        });
        self.ask(&command, true).await
    }
}

/// What the peer said, without the library's own words around it.
fn in_words(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        _ => error.to_string(),
    }
}

fn is_about_the_password(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
}

/// `HOST:PORT`, with an IPv6 address in brackets.
fn client(address: &str, password: Option<&str>) -> Result<Client, Error> {
    let unfit = |why: &str| Error::Unreachable { tried: address.to_owned(), why: why.to_owned() };
    let (host, port) = address.rsplit_once(':').ok_or_else(|| unfit("an address is HOST:PORT"))?;
    let port = port.parse().map_err(|_| unfit("an address is HOST:PORT"))?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let info = ConnectionAddr::Tcp(host.to_owned(), port).into_connection_info();
    let mut info = info.map_err(|error| unfit(&error.to_string()))?;
    if let Some(password) = password {
        let settings = info.redis_settings().clone().set_password(password);
        info = info.set_redis_settings(settings);
    }
    Client::open(info).map_err(|error| unfit(&error.to_string()))
}

/// An answer of another kind than Scatter gives to this command.
fn strange(command: &str, value: &Value) -> Error {
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) | Value::Okay => "a text",
        Value::Array(_) => "a list",
        _ => "something else",
    };
    Error::Refused(format!("{command} was answered with {kind}: is that a Scatter peer?"))
}

impl Store for Remote {
    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        match self.read(redis::cmd("GET").arg(key)).await? {
            Value::Nil => Ok(None),
            Value::BulkString(value) => Ok(Some(value)),
            other => Err(strange("GET", &other)),
        }
    }

    async fn length(&self, key: &str) -> Result<usize, Error> {
        match self.read(redis::cmd("STRLEN").arg(key)).await? {
            Value::Int(length) if length >= 0 => Ok(length.unsigned_abs() as usize),
            other => Err(strange("STRLEN", &other)),
        }
    }

    async fn versioned(&self, key: &str) -> Result<(Option<Vec<u8>>, Version), Error> {
        let answer = self.read(redis::cmd("SCATTER.GETV").arg(key)).await?;
        if let Value::Array(two) = &answer
            && let [value @ (Value::Nil | Value::BulkString(_)), Value::BulkString(version)] = &two[..]
        {
            let value = if let Value::BulkString(value) = value { Some(value.clone()) } else { None };
            return Ok((value, Version(String::from_utf8_lossy(version).into_owned())));
        }
        Err(strange("SCATTER.GETV", &answer))
    }

    async fn create(&self, key: &str, value: &[u8]) -> Result<bool, Error> {
        match self.change("SET", &[key.as_bytes(), value, b"NX"]).await? {
            Value::Okay => Ok(true),
            Value::Nil => Ok(false),
            other => Err(strange("SET", &other)),
        }
    }

    async fn replace(&self, key: &str, seen: &Version, value: &[u8]) -> Result<bool, Error> {
        match self.change("SCATTER.CAS", &[key.as_bytes(), seen.0.as_bytes(), value]).await? {
            Value::Int(done) => Ok(done == 1),
            other => Err(strange("SCATTER.CAS", &other)),
        }
    }

    async fn try_replace(&self, key: &str, seen: &Version, value: &[u8]) -> Result<(), Error> {
        // Repeated, it is in its own way, and that is as good.
        match self.read(redis::cmd("SCATTER.CAS").arg(key).arg(&seen.0).arg(value)).await? {
            Value::Int(_) => Ok(()),
            other => Err(strange("SCATTER.CAS", &other)),
        }
    }

    async fn append(&self, key: &str, max: usize, data: &[u8]) -> Result<Option<usize>, Error> {
        match self.change("SCATTER.APPEND", &[key.as_bytes(), max.to_string().as_bytes(), data]).await? {
            Value::Int(length) if length >= 0 => Ok(Some(length.unsigned_abs() as usize)),
            Value::Nil => Ok(None),
            other => Err(strange("SCATTER.APPEND", &other)),
        }
    }

    async fn pause(&self, pauses: &mut Pauses) {
        pauses.wait().await;
    }
}
