//! Execution of a decoded request, up to its operations on keys.

use bytes::Bytes;

use super::arguments::Arguments;
use super::call::{Asked, Call, Reaction};
use super::errors;
use super::reply::Reply;
use super::session::Session;
use super::shared::Shared;
use super::table::{self, Kind};

/// Result of a request.
#[derive(Debug)]
pub(crate) struct Executed {
    /// Next action of the connection.
    pub reaction: Reaction,
    /// The client's own id for the request.
    pub once: Option<Bytes>,
}

/// Executes a request as far as this connection can. Operations on keys are left in `asked`, which has to be empty
/// before.
pub fn execute(arguments: Arguments<'_>, session: &mut Session, shared: &Shared, asked: &mut Vec<Asked>) -> Executed {
    debug_assert!(asked.is_empty());
    let mut once = None;
    let reaction = match dispatch(arguments, session, shared, asked, &mut once) {
        Ok(reaction) => reaction,
        Err(error) => {
            asked.clear();
            Reaction::Reply(error)
        }
    };
    Executed { reaction, once }
}

fn dispatch(
    arguments: Arguments<'_>,
    session: &mut Session,
    shared: &Shared,
    asked: &mut Vec<Asked>,
    once: &mut Option<Bytes>,
) -> Result<Reaction, Reply> {
    let name = arguments.at(0);
    let Some((index, command)) = table::find(name) else {
        // A web page can make a browser send a request here whose body reads as inline commands.
        if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
            return Ok(Reaction::Close(Reply::error("ERR this is not an HTTP endpoint")));
        }
        return Err(errors::unknown_command(arguments));
    };
    if !command.takes(arguments.len()) {
        return Err(errors::arity(command.name));
    }
    if !session.authenticated && command.kind != Kind::Open {
        return Err(Reply::error(errors::NO_AUTH));
    }
    shared.metrics.command(index);
    let mut call = Call { command, arguments, session, shared, asked, once: None };
    let reaction = (command.run)(&mut call)?;
    *once = call.once;
    Ok(reaction)
}
