//! Commands about the connection: `HELLO`, `AUTH`, `CLIENT`, `PING`, `QUIT`.

use bytes::Bytes;

use super::server::REDIS_VERSION;
use crate::resp::arguments::parse_integer;
use crate::resp::call::{Call, Handled, Reaction, reply};
use crate::resp::errors;
use crate::resp::reply::{Protocol, Reply};

/// `PING [message]`
pub fn ping(call: &mut Call<'_>) -> Handled {
    match call.arguments.len() {
        1 => reply(Reply::Simple("PONG")),
        2 => reply(Reply::Bulk(Bytes::copy_from_slice(call.arguments.at(1)))),
        _ => Err(errors::arity(call.name())),
    }
}

/// `ECHO message`
pub(crate) fn echo(call: &mut Call<'_>) -> Handled {
    reply(Reply::Bulk(Bytes::copy_from_slice(call.arguments.at(1))))
}

/// `QUIT`
pub(crate) fn quit(_call: &mut Call<'_>) -> Handled {
    Ok(Reaction::Close(Reply::OK))
}

/// `RESET`
pub(crate) fn reset(call: &mut Call<'_>) -> Handled {
    call.session.protocol = Protocol::Resp2;
    call.session.authenticated = call.shared.settings.password.is_none();
    call.session.name.clear();
    reply(Reply::Simple("RESET"))
}

/// `SELECT index`
pub fn select(call: &mut Call<'_>) -> Handled {
    match i32::try_from(call.integer(1)?) {
        Ok(0) => reply(Reply::OK),
        Ok(_) => Err(Reply::error("ERR DB index is out of range")),
        Err(_) => {
            Err(Reply::error(format!("ERR value is out of range, value must between {} and {}", i32::MIN, i32::MAX)))
        }
    }
}

/// `AUTH [username] password`
pub(crate) fn auth(call: &mut Call<'_>) -> Handled {
    let (user, password) = match call.arguments.len() {
        2 => (None, call.arguments.at(1)),
        3 => (Some(call.arguments.at(1)), call.arguments.at(2)),
        _ => return Err(Reply::error(errors::SYNTAX)),
    };
    if user.is_none() && call.shared.settings.password.is_none() {
        return Err(Reply::error(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        ));
    }
    authenticate(call, user.unwrap_or(b"default"), password)?;
    reply(Reply::OK)
}

/// Checks user and password. There is one user, `default`; without a password every password is right for it
/// (as in Redis).
fn authenticate(call: &mut Call<'_>, user: &[u8], password: &[u8]) -> Result<(), Reply> {
    let right = call.shared.settings.password.as_ref().is_none_or(|expected| expected.is(password));
    if user != b"default" || !right {
        return Err(Reply::error(errors::WRONG_PASS));
    }
    call.session.authenticated = true;
    Ok(())
}

/// `HELLO [protover [AUTH username password] [SETNAME clientname]]`
pub fn hello(call: &mut Call<'_>) -> Handled {
    let protocol = match call.arguments.get(1) {
        None => call.session.protocol,
        Some(version) => match parse_integer(version) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err(Reply::error("NOPROTO unsupported protocol version")),
            None => {
                return Err(Reply::error("ERR Protocol version is not an integer or out of range"));
            }
        },
    };
    let (mut credentials, mut name) = (None, None);
    let mut index = 2;
    while let Some(option) = call.arguments.get(index) {
        let operands = call.arguments.len() - index - 1;
        if call.is(index, "AUTH") && operands >= 2 {
            credentials = Some((call.arguments.at(index + 1), call.arguments.at(index + 2)));
            index += 3;
        } else if call.is(index, "SETNAME") && operands >= 1 {
            name = Some(client_name(call.arguments.at(index + 1))?);
            index += 2;
        } else {
            let option = errors::c_string(option, usize::MAX);
            return Err(Reply::error(format!("ERR Syntax error in HELLO option '{option}'")));
        }
    }
    if let Some((user, password)) = credentials {
        authenticate(call, user, password)?;
    }
    if !call.session.authenticated {
        return Err(Reply::error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
             <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the \
             same time",
        ));
    }
    if let Some(name) = name {
        call.session.name = name;
    }
    call.session.protocol = protocol;
    let version = if protocol == Protocol::Resp3 { 3 } else { 2 };
    reply(Reply::Map(vec![
        // Some clients decide by this name which protocol the server speaks: it is that of Redis.
        (Reply::text("server"), Reply::text("redis")),
        (Reply::text("version"), Reply::text(REDIS_VERSION)),
        (Reply::text("proto"), Reply::Integer(version)),
        (Reply::text("id"), Reply::Integer(i64::try_from(call.session.id).unwrap_or(i64::MAX))),
        (Reply::text("mode"), Reply::text("standalone")),
        (Reply::text("role"), Reply::text("master")),
        (Reply::text("modules"), Reply::Array(Vec::new())),
    ]))
}

/// Checks a name that a client gives itself: it is shown in lists, so it must be printable and without
/// blanks.
fn client_name(name: &[u8]) -> Result<Vec<u8>, Reply> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Ok(name.to_vec());
    }
    Err(Reply::error("ERR Client names cannot contain spaces, newlines or special characters."))
}

/// `CLIENT ID | GETNAME | SETNAME | SETINFO | INFO | LIST | NO-EVICT | NO-TOUCH | REPLY ON | HELP`
pub fn client(call: &mut Call<'_>) -> Handled {
    let subcommand = call.arguments.at(1).to_ascii_uppercase();
    let arity = |takes: bool| {
        if takes { Ok(()) } else { Err(errors::arity(&format!("client|{}", lower(&subcommand)))) }
    };
    let count = call.arguments.len();
    match subcommand.as_slice() {
        b"ID" => {
            arity(count == 2)?;
            reply(Reply::Integer(i64::try_from(call.session.id).unwrap_or(i64::MAX)))
        }
        b"GETNAME" => {
            arity(count == 2)?;
            reply(match call.session.name.as_slice() {
                [] => Reply::Nil,
                name => Reply::Bulk(Bytes::copy_from_slice(name)),
            })
        }
        b"SETNAME" => {
            arity(count == 3)?;
            call.session.name = client_name(call.arguments.at(2))?;
            reply(Reply::OK)
        }
        b"SETINFO" => {
            arity(count == 4)?;
            set_info(call)
        }
        b"INFO" | b"LIST" => {
            arity(count == 2 || subcommand == b"LIST")?;
            reply(Reply::Verbatim(describe(call)))
        }
        // There is nothing to evict and no time of last use: both hold already.
        b"NO-EVICT" | b"NO-TOUCH" => {
            arity(count == 3)?;
            if call.is(2, "ON") || call.is(2, "OFF") { reply(Reply::OK) } else { Err(Reply::error(errors::SYNTAX)) }
        }
        b"REPLY" => {
            arity(count == 3)?;
            match call.arguments.at(2).to_ascii_uppercase().as_slice() {
                b"ON" => reply(Reply::OK),
                b"OFF" | b"SKIP" => {
                    Err(Reply::error("ERR CLIENT REPLY OFF and SKIP are not supported: every command is answered"))
                }
                _ => Err(Reply::error(errors::SYNTAX)),
            }
        }
        b"TRACKING" => {
            arity(count >= 3)?;
            Err(Reply::error("ERR CLIENT TRACKING is not supported: keys are not watched for clients' caches"))
        }
        b"HELP" => reply(help()),
        _ => Err(errors::unknown_subcommand("CLIENT", call.arguments.at(1))),
    }
}

fn lower(word: &[u8]) -> String {
    String::from_utf8_lossy(word).to_ascii_lowercase()
}

fn set_info(call: &mut Call<'_>) -> Handled {
    let value = call.arguments.at(3);
    let option = lower(call.arguments.at(2));
    if option != "lib-name" && option != "lib-ver" {
        let option = errors::c_string(call.arguments.at(2), usize::MAX);
        return Err(Reply::error(format!("ERR Unrecognized option '{option}'")));
    }
    if !value.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Err(Reply::error(format!("ERR {option} cannot contain spaces, newlines or special characters.")));
    }
    let place = if option == "lib-name" { &mut call.session.library } else { &mut call.session.library_version };
    *place = value.to_vec();
    reply(Reply::OK)
}

/// Returns this connection as a line of `CLIENT LIST`. Other connections are not listed: they may belong to
/// other users.
fn describe(call: &Call<'_>) -> String {
    let session = &call.session;
    let version = if session.protocol == Protocol::Resp3 { 3 } else { 2 };
    format!(
        "id={} addr={} laddr={} name={} age={} db=0 cmd=client|{} user=default resp={version} lib-name={} lib-ver={}\n",
        session.id,
        session.peer,
        session.local,
        String::from_utf8_lossy(&session.name),
        session.since.elapsed().as_secs(),
        lower(call.arguments.at(1)),
        String::from_utf8_lossy(&session.library),
        String::from_utf8_lossy(&session.library_version),
    )
}

fn help() -> Reply {
    Reply::Array(
        [
            "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "GETNAME",
            "    Return the name of the current connection.",
            "ID",
            "    Return the ID of the current connection.",
            "INFO",
            "    Return information about the current client connection.",
            "LIST",
            "    The same.",
            "SETINFO <option> <value>",
            "    Set client meta attr. Options are lib-name and lib-ver.",
            "SETNAME <name>",
            "    Assign the name <name> to the current connection.",
            "HELP",
            "    Print this help.",
        ]
        .map(Reply::Simple)
        .to_vec(),
    )
}
