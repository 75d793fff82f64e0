//! Arbitration among controllers (P4Runtime v1.4.1, "Client Arbitration and Controller Replication").
//!
//! The primary of a role is the controller with the highest election id that was ever seen for the role. So a role may have no
//! primary for a while: when the primary goes, no backup follows by itself.
//!
//! Roles differ by name alone, and each may write everything: entities are not assigned to roles. So a controller must not ask
//! for such an assignment.
//!
//! # Invariants
//! - No two controllers of a role have the same election id.
//! - A role's primary is a controller of it, and has the role's highest election id.

use std::collections::BTreeMap;

use tonic::Code;

use super::problem::Problem;
use super::proto::google::rpc;
use super::proto::p4::v1;

/// Upper limit of roles. Each role is kept for good, because its highest election id is.
pub(crate) const ROLES_MAX: usize = 16;

/// Number of a controller's stream, given once.
pub(crate) type StreamId = u64;

/// Notices for controllers, in this order.
pub(crate) type Notices = Vec<(StreamId, v1::MasterArbitrationUpdate)>;

#[derive(Debug, Default)]
struct Role {
    /// Highest election id that was ever seen.
    highest: Option<u128>,
    primary: Option<StreamId>,
}

/// Controller in the election of its role.
#[derive(Debug)]
struct Candidate {
    role: String,
    /// A controller without an election id ranks below all others.
    election: Option<u128>,
}

/// All controllers of one device.
#[derive(Debug)]
pub(crate) struct Arbitration {
    device: u64,
    roles: BTreeMap<String, Role>,
    controllers: BTreeMap<StreamId, Candidate>,
}

/// Converts an election id to a number.
pub fn number(id: &v1::Uint128) -> u128 {
    u128::from(id.high) << 64 | u128::from(id.low)
}

/// Converts a number to an election id.
pub fn election_id(number: u128) -> v1::Uint128 {
    v1::Uint128 { high: (number >> 64) as u64, low: number as u64 }
}

impl Arbitration {
    /// Returns an arbitration without controllers.
    pub fn new(device: u64) -> Arbitration {
        Arbitration { device, roles: BTreeMap::new(), controllers: BTreeMap::new() }
    }

    /// Takes a controller's arbitration update, the first in its stream or a later one. Returns the notices to send.
    ///
    /// # Errors
    /// The reason for which the stream has to end; nothing has changed then, and [`Arbitration::close`] follows.
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
            return Err(Problem::invalid("role configurations are not supported: each role may write everything"));
        }
        let is_taken = |(other, controller): (&StreamId, &Candidate)| {
            *other != stream && controller.role == name && controller.election == election
        };
        if election.is_some() && self.controllers.iter().any(is_taken) {
            return Err(Problem::invalid("another controller has this election id"));
        }
        if !self.roles.contains_key(name) && self.roles.len() >= ROLES_MAX {
            return Err(Problem::new(Code::ResourceExhausted, format!("all {ROLES_MAX} roles are in use")));
        }
        self.controllers.insert(stream, Candidate { role: name.to_owned(), election });
        let role = self.roles.entry(name.to_owned()).or_default();
        if election.is_some() && election >= role.highest {
            (role.highest, role.primary) = (election, Some(stream));
            return Ok(self.tell_all(name));
        }
        if role.primary == Some(stream) {
            // The primary steps down.
            role.primary = None;
            return Ok(self.tell_all(name));
        }
        Ok(vec![(stream, self.notice(stream, name))])
    }

    /// Removes a controller whose stream has ended. Returns the notices to send.
    pub fn close(&mut self, stream: StreamId) -> Notices {
        let Some(Candidate { role: name, .. }) = self.controllers.remove(&stream) else { return Vec::new() };
        match self.roles.get_mut(&name) {
            Some(role) if role.primary == Some(stream) => {
                role.primary = None;
                self.tell_all(&name)
            }
            _ => Vec::new(),
        }
    }

    /// Returns whether a stream is its role's primary.
    pub(crate) fn is_primary(&self, stream: StreamId) -> bool {
        self.roles.values().any(|role| role.primary == Some(stream))
    }

    /// Returns whether a controller has sent an arbitration update in this stream.
    pub fn knows(&self, stream: StreamId) -> bool {
        self.controllers.contains_key(&stream)
    }

    /// Checks that a controller with this role and this election id may write.
    ///
    /// # Errors
    /// If the device or the role does not exist, or the role has another primary or none.
    pub(crate) fn may_write(&self, device: u64, role: &str, election: Option<&v1::Uint128>) -> Result<(), Problem> {
        self.is_here(device)?;
        let election = election.map(number);
        // The default role exists before any controller has it.
        let Some(role) = self.roles.get(role) else {
            let code = if role.is_empty() { Code::PermissionDenied } else { Code::NotFound };
            return Err(Problem::new(code, "no controller has this role"));
        };
        match role.primary {
            Some(_) if role.highest == election => Ok(()),
            _ => Err(Problem::new(Code::PermissionDenied, "only the primary controller may write")),
        }
    }

    /// Checks that this is the named device.
    ///
    /// # Errors
    /// If it is another one.
    pub fn is_here(&self, device: u64) -> Result<(), Problem> {
        if device == self.device {
            return Ok(());
        }
        Err(Problem::new(Code::NotFound, format!("this is device {}", self.device)))
    }

    /// Returns a notice for each controller of a role; the primary gets it last.
    fn tell_all(&self, name: &str) -> Notices {
        let of_role = |(stream, controller): (&StreamId, &Candidate)| (controller.role == name).then_some(*stream);
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
