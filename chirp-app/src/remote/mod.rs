//! The store at the other end of a connection to a peer.
//!
//! Two connections carry many operations at once: one carries reads, one carries changes. A peer answers in order, so
//! one key that cannot be served delays the operations behind it, for 3 s at most: a post does not wait for a delayed
//! read. Where a connection breaks, another is made, to the next of the addresses that answers. The same happens where
//! a peer reports twice that it cannot do an operation: perhaps another one can.
//!
//! A change has an operation id of its own (`SCATTER.ONCE`), so that it can be sent again, through any peer, and still
//! takes effect once.

mod link;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{Client, Cmd, ConnectionAddr, IntoConnectionInfo as _, RedisError, Value};

use crate::error::Error;
use crate::patience::{Deadline, PATIENCE, Pauses, random};
use crate::store::{Store, Version};
use link::{Connection, Link, NoLink};

/// Time limits of operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Time from the begin of an operation, after which it is not sent any more.
    pub(crate) patience: Duration,
    /// Time for an answer.
    pub(crate) answer: Duration,
    /// Time for a connection to one address.
    pub(crate) connect: Duration,
}

impl Limits {
    /// Peers answer within 3 s; the limit is a bit longer, so that a peer's answer comes first.
    const DEFAULT: Limits =
        Limits { patience: PATIENCE, answer: Duration::from_secs(4), connect: Duration::from_secs(2) };
}

/// A store behind one or more peers' addresses for clients.
pub struct Remote {
    clients: Arc<[(String, Client)]>,
    limits: Limits,
    reads: Link,
    changes: Link,
}

/// The outcome of one attempt.
enum Attempt {
    Done(Value),
    /// Nothing was done.
    Nothing(Error),
    /// The operation may have been done.
    Maybe(String),
    /// No other attempt can succeed.
    Never(Error),
}

impl Remote {
    /// Connects to the first of these addresses (`HOST:PORT`) that answers.
    ///
    /// # Errors
    /// [`Error::Unreachable`] where none does, or none is given; [`Error::Refused`] where a peer wants another
    /// password.
    pub async fn connect(addresses: &[String], password: Option<&str>) -> Result<Remote, Error> {
        Remote::within(addresses, password, Limits::DEFAULT).await
    }

    async fn within(addresses: &[String], password: Option<&str>, limits: Limits) -> Result<Remote, Error> {
        let clients = addresses.iter().map(|address| Ok((address.clone(), client(address, password, limits)?)));
        let clients: Arc<[_]> = clients.collect::<Result<Vec<_>, Error>>()?.into();
        let link = || Link::new(clients.clone(), limits);
        let remote = Remote { limits, reads: link(), changes: link(), clients: clients.clone() };
        match remote.reads.connection().await {
            Ok(_) => Ok(remote),
            Err(no) => Err(remote.no_link(no)),
        }
    }

    /// Returns the address in use, or the one to be tried next.
    pub fn address(&self) -> String {
        self.reads.address()
    }

    /// Returns why there is no connection, where an attempt failed and none has succeeded since.
    pub fn trouble(&self) -> Option<Error> {
        self.reads.trouble().map(|why| self.no_link(NoLink::Unreachable(why)))
    }

    fn no_link(&self, no: NoLink) -> Error {
        match no {
            NoLink::Refused(why) => Error::Refused(why),
            NoLink::Unreachable(why) => {
                let tried: Vec<&str> = self.clients.iter().map(|(address, _)| address.as_str()).collect();
                Error::Unreachable { tried: tried.join(", "), why }
            }
        }
    }

    /// Makes one attempt, if that can be before the deadline. `refusals` is the connection of the last refusal: a
    /// second refusal on the same connection makes the link try another address.
    async fn attempt(
        &self,
        link: &Link,
        command: &Cmd,
        deadline: Deadline,
        refusals: &mut Option<Connection>,
    ) -> Attempt {
        let mut connection = match tokio::time::timeout(deadline.left(), link.connection()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(no @ NoLink::Refused(_))) => return Attempt::Never(self.no_link(no)),
            Ok(Err(no)) => return Attempt::Nothing(self.no_link(no)),
            Err(_) => return Attempt::Nothing(self.no_link(NoLink::Unreachable("no answer".into()))),
        };
        if deadline.is_over() {
            return Attempt::Nothing(Error::TryAgain("no time was left for the request".into()));
        }
        let before = connection.answers();
        let error = match connection.inner.send_packed_command(command).await {
            Ok(Value::ServerError(error)) => RedisError::from(error),
            Ok(value) => {
                connection.has_answered();
                return Attempt::Done(value);
            }
            Err(error) => error,
        };
        let words = in_words(&error);
        match error.code() {
            Some(code @ ("TRYAGAIN" | "UNCERTAIN")) => {
                connection.has_answered();
                match refusals.replace(connection.clone()) {
                    Some(last) if last.is(&connection) => link.try_another(&connection),
                    _ => {}
                }
                if code == "TRYAGAIN" { Attempt::Nothing(Error::TryAgain(words)) } else { Attempt::Maybe(words) }
            }
            Some(_) => Attempt::Never(Error::Refused(words)),
            None => {
                // A slow command does not end the connection of other commands: all would be sent again, and be slower still.
                if !(error.is_timeout() && connection.answers() > before) {
                    link.give_up(&connection);
                }
                Attempt::Maybe(words)
            }
        }
    }

    /// Makes attempts until the operation is done, known to be impossible, or out of time. With `changes` the caller
    /// has to know whether it was done. Every command here may be sent again after an attempt that may have taken
    /// effect.
    async fn ask(&self, command: &Cmd, changes: bool) -> Result<Value, Error> {
        let link = if changes { &self.changes } else { &self.reads };
        let deadline = Deadline::after(self.limits.patience);
        let (mut pauses, mut refusals, mut is_unknown) = (Pauses::default(), None, false);
        loop {
            let error = match self.attempt(link, command, deadline, &mut refusals).await {
                Attempt::Done(value) => return Ok(value),
                Attempt::Never(error) if is_unknown => return Err(Error::Unknown(error.to_string())),
                Attempt::Never(error) => return Err(error),
                Attempt::Nothing(error) => error,
                Attempt::Maybe(why) => {
                    is_unknown |= changes;
                    Error::TryAgain(why)
                }
            };
            let pause = pauses.next_pause();
            if deadline.left() <= pause {
                return Err(match error {
                    Error::TryAgain(why) if is_unknown => Error::Unknown(why),
                    error if is_unknown => Error::Unknown(error.to_string()),
                    error => error,
                });
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn read(&self, command: &Cmd) -> Result<Value, Error> {
        self.ask(command, false).await
    }

    /// Makes a change, under an operation id of its own.
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

/// Returns the peer's error text, without the library's own words around it.
fn in_words(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        _ => error.to_string(),
    }
}

/// Port of an address that names none.
const PORT: u16 = 6479;

/// Splits `HOST`, `HOST:PORT`, or the same with an IPv6 address, in brackets where a port follows.
fn host_and_port(address: &str) -> Option<(&str, u16)> {
    if address.parse::<std::net::Ipv6Addr>().is_ok() {
        return Some((address, PORT));
    }
    let (host, port) = match address.strip_prefix('[').and_then(|address| address.split_once(']')) {
        Some((host, "")) => (host, PORT),
        Some((host, port)) => (host, port.strip_prefix(':')?.parse().ok()?),
        None => match address.split_once(':') {
            Some((host, port)) => (host, port.parse().ok()?),
            None => (address, PORT),
        },
    };
    (!host.is_empty()).then_some((host, port))
}

/// Makes a client of this address.
fn client(address: &str, password: Option<&str>, limits: Limits) -> Result<Client, Error> {
    let unfit = |why: &str| Error::Unreachable { tried: address.to_owned(), why: why.to_owned() };
    let (host, port) = host_and_port(address).ok_or_else(|| unfit("an address is HOST or HOST:PORT"))?;
    let info = ConnectionAddr::Tcp(host.to_owned(), port).into_connection_info();
    let mut info = info.map_err(|error| unfit(&error.to_string()))?;
    let settings = TcpSettings::default().set_nodelay(true);
    // After that time the system does not send unreceived bytes again either: see `PATIENCE`.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let settings = settings.set_user_timeout(limits.patience);
    info = info.set_tcp_settings(settings);
    if let Some(password) = password {
        let settings = info.redis_settings().clone().set_password(password);
        info = info.set_redis_settings(settings);
    }
    Client::open(info).map_err(|error| unfit(&error.to_string()))
}

/// Returns the error for an answer of another kind than Scatter gives to this command.
fn strange(command: &str, value: &Value) -> Error {
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) | Value::Okay => "a text",
        Value::Array(_) => "a list",
        _ => "something else",
    };
    Error::Refused(format!("unexpected answer to {command}: {kind}; is the address that of a Scatter peer?"))
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
        // A repetition conflicts with its own first attempt, and that is as good.
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
