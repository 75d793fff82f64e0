//! Who may write (P4Runtime v1.4.1, "Client Arbitration and Controller Replication").
//!
//! Of the controllers of a role, that one is the primary whose election id is the highest that was ever seen there. So there may be
//! none for a while: when the primary goes, nobody follows by itself.
//!
//! Roles are told apart by name alone, and each may write everything: there is no scheme of what belongs to which, so nobody may
//! ask for one.
//!
//! # Invariants
//! - No two controllers of a role have the same election id.
//! - A role's primary is a controller of it, and has the role's highest election id.

use std::collections::BTreeMap;

use tonic::Code;

use super::problem::Problem;
use super::proto::google::rpc;
use super::proto::p4::v1;

/// So many roles can be told apart. Each is kept for good, for its highest election id is.
pub const ROLES_MAX: usize = 16;

/// A controller's stream, by a number that is given once.
pub type StreamId = u64;

/// What controllers are to be told, in this order.
pub type Notices = Vec<(StreamId, v1::MasterArbitrationUpdate)>;

#[derive(Debug, Default)]
struct Role {
    /// The highest that was ever seen.
    highest: Option<u128>,
    primary: Option<StreamId>,
}

#[derive(Debug)]
struct Controller {
    role: String,
    /// Without one, it is lower than any.
    election: Option<u128>,
}

/// All controllers of one device.
#[derive(Debug)]
pub struct Arbitration {
    device: u64,
    roles: BTreeMap<String, Role>,
    controllers: BTreeMap<StreamId, Controller>,
}

/// An election id as a number.
pub fn number(id: &v1::Uint128) -> u128 {
    u128::from(id.high) << 64 | u128::from(id.low)
}

/// A number as an election id.
pub fn election_id(number: u128) -> v1::Uint128 {
    v1::Uint128 { high: (number >> 64) as u64, low: number as u64 }
}

impl Arbitration {
    /// Nobody was ever there.
    pub fn new(device: u64) -> Arbitration {
        Arbitration { device, roles: BTreeMap::new(), controllers: BTreeMap::new() }
    }

    /// A controller says who it is, for the first time in its stream or again.
    ///
    /// # Errors
    /// Why its stream is to end; [`Arbitration::close`] follows then.
    pub fn update(&mut self, stream: StreamId, update: &v1::MasterArbitrationUpdate) -> Result<Notices, Problem> {
        let role = update.role.as_ref();
        let name = role.map_or("", |role| &role.name);
        let election = update.election_id.as_ref().map(number);
        let known = self.controllers.get(&stream);
        if update.device_id != self.device {
            let code = if known.is_some() { Code::FailedPrecondition } else { Code::NotFound };
            return Err(Problem::new(code, format!("this is device {}", self.device)));
        }
        if known.is_some_and(|known| known.role != name) {
            return Err(Problem::new(Code::FailedPrecondition, "a stream keeps its role"));
        }
        if role.is_some_and(|role| role.config.is_some()) {
            return Err(Problem::invalid("roles have no configuration here: each may write everything"));
        }
        let is_taken = |(other, controller): (&StreamId, &Controller)| {
            *other != stream && controller.role == name && controller.election == election
        };
        if election.is_some() && self.controllers.iter().any(is_taken) {
            return Err(Problem::invalid("another controller has this election id"));
        }
        if !self.roles.contains_key(name) && self.roles.len() >= ROLES_MAX {
            return Err(Problem::new(Code::ResourceExhausted, format!("there are {ROLES_MAX} roles already")));
        }
        self.controllers.insert(stream, Controller { role: name.to_owned(), election });
        let role = self.roles.entry(name.to_owned()).or_default();
        if election.is_some() && election >= role.highest {
            (role.highest, role.primary) = (election, Some(stream));
            return Ok(self.tell_all(name));
        }
        if role.primary == Some(stream) {
            // It steps down.
            role.primary = None;
            return Ok(self.tell_all(name));
        }
        Ok(vec![(stream, self.notice(stream, name))])
    }

    /// A controller's stream has ended.
    pub fn close(&mut self, stream: StreamId) -> Notices {
        let Some(Controller { role: name, .. }) = self.controllers.remove(&stream) else { return Vec::new() };
        match self.roles.get_mut(&name) {
            Some(role) if role.primary == Some(stream) => {
                role.primary = None;
                self.tell_all(&name)
            }
            _ => Vec::new(),
        }
    }

    /// Whether a stream is its role's primary.
    pub fn is_primary(&self, stream: StreamId) -> bool {
        self.roles.values().any(|role| role.primary == Some(stream))
    }

    /// Whether somebody said who it is in this stream.
    pub fn knows(&self, stream: StreamId) -> bool {
        self.controllers.contains_key(&stream)
    }

    /// Whether who says of itself to have this role and this election id may write.
    ///
    /// # Errors
    /// Where the device or the role is none, or somebody else is the primary, or nobody.
    pub fn may_write(&self, device: u64, role: &str, election: Option<&v1::Uint128>) -> Result<(), Problem> {
        self.is_here(device)?;
        let election = election.map(number);
        // The default role is there before anybody has it.
        let Some(role) = self.roles.get(role) else {
            let code = if role.is_empty() { Code::PermissionDenied } else { Code::NotFound };
            return Err(Problem::new(code, "nobody has this role"));
        };
        match role.primary {
            Some(_) if role.highest == election => Ok(()),
            _ => Err(Problem::new(Code::PermissionDenied, "only the primary controller may write")),
        }
    }

    /// Whether this is the device that is meant.
    ///
    /// # Errors
    /// Where it is not.
    pub fn is_here(&self, device: u64) -> Result<(), Problem> {
        if device == self.device {
            return Ok(());
        }
        Err(Problem::new(Code::NotFound, format!("this is device {}", self.device)))
    }

    /// The primary hears of it last.
    fn tell_all(&self, name: &str) -> Notices {
        let of_role = |(stream, controller): (&StreamId, &Controller)| (controller.role == name).then_some(*stream);
        let mut streams: Vec<StreamId> = self.controllers.iter().filter_map(of_role).collect();
        let primary = self.roles[name].primary;
        streams.sort_by_key(|stream| Some(*stream) == primary);
        streams.into_iter().map(|stream| (stream, self.notice(stream, name))).collect()
    }

    fn notice(&self, stream: StreamId, name: &str) -> v1::MasterArbitrationUpdate {
        let role = &self.roles[name];
        let (code, message) = match role.primary {
            Some(primary) if primary == stream => (Code::Ok, "this is the primary controller"),
            Some(_) => (Code::AlreadyExists, "another controller is the primary"),
            None => (Code::NotFound, "there is no primary controller"),
        };
        v1::MasterArbitrationUpdate {
            device_id: self.device,
            role: (!name.is_empty()).then(|| v1::Role { name: name.to_owned(), ..v1::Role::default() }),
            election_id: role.highest.map(election_id),
            status: Some(rpc::Status { code: code as i32, message: message.to_owned(), details: Vec::new() }),
        }
    }
}

#[cfg(test)]
#[path = "arbitration_test.rs"]
mod tests;
