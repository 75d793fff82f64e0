//! One command being carried out: what a handler is given and what it gives back.

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

/// A command may name so many keys. Each becomes an operation of its own.
pub const KEYS_MAX: usize = 1024;

/// What becomes of a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Answered here.
    Reply(Reply),
    /// Answered here, and then the connection ends.
    Close(Reply),
    /// Answered once the operations in [`Call::asked`] are.
    Ask(Join),
}

/// What a handler gives back; an error is an error reply.
pub type Handled = Result<Reaction, Reply>;

/// One operation on one key.
#[derive(Debug)]
pub struct Asked {
    /// The key.
    pub key: Key,
    /// What to do with it.
    pub op: Op,
    /// How it is read.
    pub mode: ReadMode,
}

/// What a handler is given.
pub struct Call<'a> {
    /// Which command.
    pub command: &'static Command,
    /// Its arguments, the name first; their number fits the command.
    pub arguments: Arguments<'a>,
    /// Who asks.
    pub session: &'a mut Session,
    /// What all connections share.
    pub shared: &'a Shared,
    /// The operations it comes to.
    pub asked: &'a mut Vec<Asked>,
    /// The client's own id for it (`SCATTER.ONCE`).
    pub once: Option<Bytes>,
}

impl Call<'_> {
    /// Asks for one operation on one key.
    pub fn ask(&mut self, name: &[u8], op: Op) -> Result<(), Reply> {
        self.ask_in(name, op, ReadMode::Linearizable)
    }

    /// The same with a say in how it is read.
    pub fn ask_in(&mut self, name: &[u8], op: Op, mode: ReadMode) -> Result<(), Reply> {
        if name.len() > KEY_BYTES_MAX {
            return Err(Reply::error(errors::KEY_TOO_LONG));
        }
        let key = Key::new(name).map_err(|_| Reply::error(errors::KEY_TOO_LONG))?;
        self.asked.push(Asked { key, op, mode });
        Ok(())
    }

    /// One read of the first argument.
    pub fn read(&mut self, read: Read, shape: Shape) -> Handled {
        self.ask(self.arguments.at(1), Op::Read(read))?;
        Ok(Reaction::Ask(Join::read(shape)))
    }

    /// One change of the first argument.
    pub fn write(&mut self, op: Op, shape: Shape) -> Handled {
        self.ask(self.arguments.at(1), op)?;
        Ok(Reaction::Ask(Join::write(shape)))
    }

    /// The argument at `index` as a value to store: copied, as what it lies in is the connection's whole buffer.
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

    /// The argument at `index` as a number.
    pub fn integer(&self, index: usize) -> Result<i64, Reply> {
        parse_integer(self.arguments.at(index)).ok_or(Reply::error(errors::NOT_AN_INTEGER))
    }

    /// Whether the argument at `index` is this word, in whatever case.
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.arguments.at(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// An error where there are too many keys.
    pub fn keys_at_most(&self, keys: usize) -> Result<(), Reply> {
        if keys > KEYS_MAX {
            return Err(Reply::error(format!(
                "ERR {keys} keys in one command; at most {KEYS_MAX} are taken, and nothing was done"
            )));
        }
        Ok(())
    }

    /// The command's name as Redis puts it into errors.
    pub fn name(&self) -> &'static str {
        self.command.name
    }
}

/// Answered here and now.
pub fn reply(reply: Reply) -> Handled {
    Ok(Reaction::Reply(reply))
}
