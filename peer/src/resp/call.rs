//! Execution of one command: the input and the result of its handler.

use bytes::Bytes;
use group::op::{Op, Read, ReadMode};
use overlay::{KEY_BYTES_MAX, Key};

use super::arguments::{Arguments, parse_integer};
use super::errors;
use super::join::{Join, Shape};
use super::reply::Reply;
use super::session::Session;
use super::shared::Shared;
use super::table::Command;

/// Upper limit of the keys in a command. Each becomes an operation of its own.
pub const KEYS_MAX: usize = 1024;

/// Result of a command's handler.
#[derive(Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Answered here.
    Reply(Reply),
    /// Answered here, and then the connection ends.
    Close(Reply),
    /// Answered once the operations in [`Call::asked`] are.
    Ask(Join),
}

/// Result of a handler; an error is an error reply.
pub(crate) type Handled = Result<Reaction, Reply>;

/// One operation on one key.
#[derive(Debug)]
pub struct Asked {
    /// Key of the operation.
    pub key: Key,
    /// Operation on the key.
    pub op: Op,
    /// Mode of the read.
    pub mode: ReadMode,
}

/// Input of a handler.
pub struct Call<'a> {
    /// Entry of the command.
    pub command: &'static Command,
    /// Arguments, the name first; their number fits the command.
    pub arguments: Arguments<'a>,
    /// Session of the client.
    pub session: &'a mut Session,
    /// State that all connections share.
    pub shared: &'a Shared,
    /// Operations of the command.
    pub asked: &'a mut Vec<Asked>,
    /// The client's own id for the command (`SCATTER.ONCE`).
    pub once: Option<Bytes>,
}

impl Call<'_> {
    /// Adds one operation on one key.
    ///
    /// # Errors
    ///
    /// An error reply for a key that is too long.
    pub fn ask(&mut self, name: &[u8], op: Op) -> Result<(), Reply> {
        self.ask_in(name, op, ReadMode::Linearizable)
    }

    /// Adds one operation with a chosen read mode.
    ///
    /// # Errors
    ///
    /// As for [`Call::ask`].
    pub(crate) fn ask_in(&mut self, name: &[u8], op: Op, mode: ReadMode) -> Result<(), Reply> {
        if name.len() > KEY_BYTES_MAX {
            return Err(Reply::error(errors::KEY_TOO_LONG));
        }
        let key = Key::new(name).map_err(|_| Reply::error(errors::KEY_TOO_LONG))?;
        self.asked.push(Asked { key, op, mode });
        Ok(())
    }

    /// Reads the first argument.
    pub fn read(&mut self, read: Read, shape: Shape) -> Handled {
        self.ask(self.arguments.at(1), Op::Read(read))?;
        Ok(Reaction::Ask(Join::read(shape)))
    }

    /// Changes the first argument.
    pub fn write(&mut self, op: Op, shape: Shape) -> Handled {
        self.ask(self.arguments.at(1), op)?;
        Ok(Reaction::Ask(Join::write(shape)))
    }

    /// Returns the argument at `index` as a value to store: copied, because the argument lies in the
    /// connection's whole buffer.
    ///
    /// # Errors
    ///
    /// An error reply for a value over the network's limit.
    pub fn value(&self, index: usize) -> Result<Bytes, Reply> {
        let value = self.arguments.at(index);
        if value.len() > self.shared.settings.value_bytes_max {
            return Err(Reply::error(format!(
                "ERR value of {} bytes is longer than this network's limit of {}; nothing was done",
                value.len(),
                self.shared.settings.value_bytes_max
            )));
        }
        Ok(Bytes::copy_from_slice(value))
    }

    /// Returns the argument at `index` as a number.
    ///
    /// # Errors
    ///
    /// An error reply where the argument is no number.
    pub fn integer(&self, index: usize) -> Result<i64, Reply> {
        parse_integer(self.arguments.at(index)).ok_or(Reply::error(errors::NOT_AN_INTEGER))
    }

    /// Returns whether the argument at `index` is this word, in upper or lower case.
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.arguments.at(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// Checks the number of keys.
    ///
    /// # Errors
    ///
    /// An error reply where there are too many.
    pub(crate) fn keys_at_most(&self, keys: usize) -> Result<(), Reply> {
        if keys > KEYS_MAX {
            return Err(Reply::error(format!(
                "ERR {keys} keys in one command; at most {KEYS_MAX} are taken, and nothing was done"
            )));
        }
        Ok(())
    }

    /// Returns the command's name as Redis writes it in errors.
    pub fn name(&self) -> &'static str {
        self.command.name
    }
}

/// Returns an answer that needs no operation.
pub fn reply(reply: Reply) -> Handled {
    Ok(Reaction::Reply(reply))
}
