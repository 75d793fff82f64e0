//! Dispatch between the parts of a node: outputs of groups, answers of the store, and work for the sessions.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use bytes::Bytes;
use group::Group;
use group::op::{Answer, OpError, Refusal};
use group::outbox::GroupOutput;
use header::ReplyTo;
use overlay::Key;

use crate::api::{Event, Output, Request, RequestId};
use crate::context::context;
use crate::node::Node;
use crate::replicas::keyspace::Walk;
use crate::replicas::storage;
use crate::replicas::{BatchOwner, ReplicaSerial, Scan};
use crate::sessions::harmonia::ForSessions;
use crate::sessions::requester::Requester;
use crate::sessions::{SessionContext, Sessions};
use crate::starts::Persisted;

impl Node {
    /// Carries out an output of a group.
    pub(crate) fn carry(&mut self, serial: ReplicaSerial, output: GroupOutput) {
        let Some(replica) = self.replicas.by_serial(serial) else { return };
        let (state, namespace) = (replica.group.state(), replica.namespace);
        match output {
            GroupOutput::Send(to, message, epoch) => {
                let id = state.id;
                self.cx().send_as(id, &to, message, epoch);
            }
            GroupOutput::Persist(token, durable) => {
                let namespace = self.space().namespace(namespace);
                let mut changes = Vec::with_capacity(durable.len());
                for change in durable {
                    namespace.changes(&self.replicas.keyspace, change, &mut changes);
                }
                if self.replicas.keyspace_due.take_if(|of| *of == serial).is_some() {
                    changes.extend(self.replicas.places(self.space()));
                }
                let token = self.replicas.name_batch(BatchOwner::Group(serial, token));
                self.out.push(Output::Persist { token, changes });
            }
            GroupOutput::Load { key, urgent } => {
                let record_key = self.space().record_key(self.replicas.keyspace.of(key.point()), &key);
                self.out.push(Output::Load { record_key, urgent });
            }
            GroupOutput::Scan(token, from, bytes_max) => {
                let walk = Walk::new(self.replicas.keyspace.parts(state.range), from, bytes_max);
                self.scan(Scan { of: Some((serial, token)), walk });
            }
            GroupOutput::Outcome(attempt, outcome) => {
                self.with_sessions(|sessions, ctx| sessions.on_outcome(ctx, attempt, outcome));
            }
            GroupOutput::Pass(pass) => {
                let id = state.id;
                self.harmonia.pass(&mut context!(self), serial, id, pass);
            }
            GroupOutput::Complete { ballot, switch, number } => {
                let id = state.id;
                self.harmonia.complete(&mut context!(self), id, ballot, switch, number);
            }
            GroupOutput::Read(name, answer) => {
                if let Some(request) = self.harmonia.on_spread(&mut context!(self), name, answer) {
                    self.with_sessions(|sessions, ctx| sessions.submit(ctx, request));
                }
            }
            GroupOutput::Changed => self.on_changed(serial),
            GroupOutput::Left => self.successors.departed.push((serial, None)),
            GroupOutput::Over(why) => self.successors.departed.push((serial, Some(self.reincarnates(why)))),
            GroupOutput::Lost(why) => self.successors.departed.push((serial, Some(Event::Damaged(why.into())))),
            GroupOutput::Halted(why) => {
                let id = state.id;
                self.out.event(Event::Alarm(format!("stops serving {}: {why}", id.called())));
                if self.stage.ready && self.replicas.home().is_some_and(|home| home.state().id == id) {
                    self.stage.ready = false;
                    self.out.event(Event::NotReady);
                }
            }
            GroupOutput::Envelope(envelope) => self.send_envelope(*envelope),
            GroupOutput::Ended => {
                self.successors.birth_wanted = true;
                self.follow_admin_requests();
            }
            GroupOutput::Note(text) => self.out.event(Event::Note(format!("{}: {text}", state.id.called()))),
        }
    }

    /// Handles a change of a group's state: other peers may have to be reached, and operations may have to go elsewhere.
    fn on_changed(&mut self, serial: ReplicaSerial) {
        let Some(replica) = self.replicas.by_serial(serial) else { return };
        let group = &replica.group;
        let all = group.state().members.iter().chain(&group.state().learners);
        for member in all.filter(|member| member.node.peer != self.me.peer && !member.addresses.is_empty()) {
            let (peer, addresses) = (member.node.peer, member.addresses.clone());
            self.out.push(Output::Dial { peer, addresses });
        }
        if self.routing.table.learn_neighbours(&mut context!(self), serial) {
            self.routing.table.look_soon(&mut context!(self));
        }
        self.lives.time_changes(&mut context!(self));
        self.follow_admin_requests();
        self.with_sessions(Sessions::on_division);
        self.routing.table.answer_anew(&mut context!(self));
        self.reconfigure.leave.tell(&mut context!(self));
    }

    /// Goes on to drop records that no group here owns any more.
    pub(crate) fn sweep(&mut self) {
        if let Some(page) = self.replicas.go_on_sweeping(self.now.time, self.stage.over) {
            self.scan(page);
        }
    }

    /// Reads the store for a group, or for the node itself.
    pub(crate) fn scan(&mut self, scan: Scan) {
        match scan.walk.next(self.space()) {
            Some(from) => {
                let bytes_max = scan.walk.bytes_max;
                let token = self.replicas.name_scan(scan);
                self.out.push(Output::Scan { token, from, bytes_max });
            }
            None => self.scanned(scan, Vec::new(), true),
        }
    }

    fn scanned(&mut self, scan: Scan, records: Vec<(Key, Bytes)>, done: bool) {
        let Some((serial, token)) = scan.of else {
            let changes = self.replicas.drop_leftovers(self.now.time, self.space(), records, done);
            if !changes.is_empty() {
                self.cx().persist_own(changes);
            }
            return;
        };
        let mut decoded = Vec::with_capacity(records.len());
        for (key, value) in records {
            match storage::decode_record(&value) {
                Ok(record) => decoded.push((key, record)),
                Err(error) => return self.damaged(&error.to_string()),
            }
        }
        if let Some(replica) = self.replicas.by_serial_mut(serial) {
            replica.group.on_scanned(token, decoded, done);
        }
    }

    /// Passes a record that the store has read to the group that asked for it.
    pub(crate) fn on_loaded(&mut self, record_key: &[u8], record: Option<&[u8]>) {
        let Some((generation, key)) = self.space().key_of(record_key) else { return };
        if self.replicas.keyspace.of(key.point()) != generation {
            return; // A group that is over asked for it.
        }
        match record.map(storage::decode_record).transpose() {
            Ok(record) => {
                match self.replicas.at_mut(key.point()) {
                    Some(group) => group.on_loaded(&key, record),
                    // The groups that succeed an ended group count on its loads.
                    None => self.replicas.over_at(key.point()).for_each(|group| group.on_loaded(&key, record.clone())),
                }
            }
            Err(error) => self.damaged(&error.to_string()),
        }
    }

    /// Handles a page that the store has read.
    pub(crate) fn on_scanned(&mut self, token: u64, records: Vec<(Bytes, Bytes)>, done: bool) {
        let Some(mut scan) = self.replicas.take_scan(token) else { return };
        match scan.walk.page(self.space(), records, done) {
            Some((records, done)) => self.scanned(scan, records, done),
            None => self.scan(scan),
        }
    }

    /// Lends the sessions what they work with, and handles the answers to the node's own requests.
    pub(crate) fn with_sessions(&mut self, act: impl FnOnce(&mut Sessions, &mut SessionContext<'_>)) {
        let mut own_replies = Vec::new();
        let mut ctx = SessionContext {
            now: self.now,
            replicas: &mut self.replicas,
            routing: &mut self.routing.table,
            outputs: &mut self.out.queue,
            own_replies: &mut own_replies,
            answered: &mut self.answered,
            harmonia: &mut self.harmonia,
            switch: self.config.switch,
            me: self.me,
        };
        act(&mut self.sessions, &mut ctx);
        for (requester, result) in own_replies {
            match requester {
                Requester::Probe => self.readiness.on_answered(&mut context!(self), result.is_ok()),
                Requester::ScheduledRead(name) => {
                    self.harmonia.answer_question(&mut context!(self), name, result.as_ref().ok())
                }
                Requester::Client(_) => unreachable!("clients are answered through the outputs"),
            }
        }
    }

    /// Takes an operation of a client.
    pub(crate) fn routecast(&mut self, request: Request) {
        if self.starts.is_barred() {
            return self.reply(request.id, Err(OpError::TryAgain(Refusal::NotInGroup)));
        }
        if self.stage.stopping.is_some() && self.replicas.living().all(Group::is_idle) {
            let error = OpError::TryAgain(Refusal::Stopping);
            self.reply(request.id, Err(error));
            return;
        }
        self.with_sessions(|sessions, ctx| sessions.submit(ctx, request));
    }

    /// Answers a client.
    pub(crate) fn reply(&mut self, id: RequestId, result: Result<Answer, OpError>) {
        self.answered += 1;
        self.out.push(Output::Reply { id, result });
    }

    /// Handles a packet that came through a switch.
    pub(crate) fn on_packet(&mut self, from: ReplyTo, bytes: &[u8]) {
        match self.harmonia.on_packet(&mut context!(self), from, bytes) {
            Some(ForSessions::Submit(request)) => self.with_sessions(|sessions, ctx| sessions.submit(ctx, request)),
            Some(ForSessions::Answer(header, outcome)) => {
                self.with_sessions(|sessions, ctx| sessions.on_spread(ctx, &header, outcome));
            }
            None => {}
        }
    }

    /// Handles the report that batches are durable. After the first batch, a crash finds this node in its group again. Before
    /// it, a founder that died would found another network, so it must not have told any peer of this one (hazard 41).
    pub(crate) fn on_persisted(&mut self, token: u64) {
        if token > 0 && !self.stage.entered {
            self.stage.entered = true;
            if let Some(ring) = self.ring {
                self.out.event(Event::InRing(ring));
            }
        }
        match self.starts.on_persisted(&mut context!(self), token) {
            Persisted::StartsAgain(why) => self.end_life(Event::StartAgain(why)),
            Persisted::JudgeHeld => self.admit_held(|_| true),
            Persisted::Nothing => {}
        }
        if let Some(own) = self.replicas.on_persisted(token) {
            self.reconfigure.preparation.on_copy_persisted(&mut context!(self), own);
            self.sweep();
        }
    }
}
