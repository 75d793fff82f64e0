//! Answers of a switch to its controllers, without the network.
//!
//! All calls take one lock, one after the other. So a write is done before the next one begins, and a read never sees half of a
//! write. A former primary writes nothing after another controller got the notice that it is the primary.
//!
//! Streams are bounded in number, and a host that reaches the address may open as many as it can. So a newcomer that finds no
//! room takes the place of another stream, as connections do (`Places`). A stream without an arbitration update
//! goes first, then a backup's, then a primary's. Among these, a remote one goes before a local one, and then the oldest. Some
//! places are kept for controllers on this machine.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};
use tonic::{Code, Status};

use super::arbitration::{Arbitration, Notices, StreamId};
use super::arrays::{self, Cells};
use super::p4info::{is_ours, register};
use super::problem::{Problem, batch};
use super::proto::p4::v1::get_forwarding_pipeline_config_request::ResponseType;
use super::proto::p4::v1::set_forwarding_pipeline_config_request::Action;
use super::proto::p4::v1::{self, entity::Entity, update};
use super::store::Store;
use super::target::{Counted, Target};

/// Upper limit of controllers at one time.
pub const STREAMS_MAX: usize = 32;
/// Places of these that are kept for controllers on this machine.
const STREAMS_KEPT: usize = STREAMS_MAX / 4;

/// Upper limit of messages that wait for a controller; one that does not take them is disconnected.
const NOTICES_MAX: usize = 64;

/// Message to a controller in its stream.
pub type Response = Result<v1::StreamMessageResponse, Status>;

/// Service's end of a controller's stream. When it is dropped, the stream ends.
#[derive(Debug)]
struct Stream {
    is_local: bool,
    out: mpsc::Sender<Response>,
    _gone: oneshot::Sender<()>,
}

/// Network's end of a controller's stream.
#[derive(Debug)]
pub struct Opened {
    /// Number of the stream.
    pub id: StreamId,
    /// Messages to send to the controller.
    pub responses: mpsc::Receiver<Response>,
    /// Done when the stream has to end.
    pub gone: oneshot::Receiver<()>,
}

struct ServiceState {
    arbitration: Arbitration,
    store: Store,
    /// The program, if there is one.
    config: Option<v1::ForwardingPipelineConfig>,
    /// Program that was verified, and is not used yet.
    saved: Option<v1::ForwardingPipelineConfig>,
    streams: BTreeMap<StreamId, Stream>,
    next_stream: StreamId,
    /// No stream can be opened any more.
    is_closed: bool,
}

/// Device that controllers can set and read.
pub(crate) struct Service {
    target: Arc<dyn Target>,
    state: Mutex<ServiceState>,
}

/// Result of a read.
#[derive(Debug)]
pub enum Read {
    /// Entities.
    Entities(Vec<v1::Entity>),
    /// Cells of a register.
    Cells(Cells),
}

impl Service {
    /// Returns the service of a device with this number.
    ///
    /// # Panics
    /// If the target has another number of stages than the P4 program.
    pub fn new(device: u64, target: Arc<dyn Target>) -> Service {
        target.with_pipeline(&mut |pipeline| {
            let stages = pipeline.dirty().stages().len();
            assert_eq!(stages, register::STAGES.len(), "the program's stages differ from the device's");
        });
        let state = ServiceState {
            arbitration: Arbitration::new(device),
            store: Store::default(),
            config: None,
            saved: None,
            streams: BTreeMap::new(),
            next_stream: 0,
            is_closed: false,
        };
        Service { target, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, ServiceState> {
        // The state is valid between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a controller's stream, from this machine or from elsewhere. If there is no room, another stream ends.
    ///
    /// # Errors
    /// If the switch stops; no stream is opened then.
    pub fn open(&self, is_local: bool) -> Result<Opened, Problem> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Problem::new(Code::Unavailable, "this switch is stopping"));
        }
        state.make_room(is_local);
        let (out, responses) = mpsc::channel(NOTICES_MAX);
        let (still_here, gone) = oneshot::channel();
        let id = state.next_stream;
        state.next_stream += 1;
        state.streams.insert(id, Stream { is_local, out, _gone: still_here });
        Ok(Opened { id, responses, gone })
    }

    /// Takes a controller's message in its stream.
    ///
    /// # Errors
    /// The reason for which the stream has to end ([`Service::close`]).
    pub fn hear(&self, stream: StreamId, request: v1::StreamMessageRequest) -> Result<(), Problem> {
        use v1::stream_error::Details;
        use v1::stream_message_request::Update;
        let mut state = self.lock();
        let (code, message, details) = match request.update {
            Some(Update::Arbitration(update)) => {
                let notices = state.arbitration.update(stream, &update)?;
                state.tell(notices);
                return Ok(());
            }
            Some(Update::Packet(_)) => {
                let details = Details::PacketOut(v1::PacketOutError { packet_out: None });
                if state.arbitration.is_primary(stream) {
                    (Code::Unimplemented, "this program takes no packets from controllers", details)
                } else {
                    (Code::PermissionDenied, "only the primary controller may send packets", details)
                }
            }
            Some(Update::DigestAck(ack)) => {
                let details = Details::DigestListAck(v1::DigestListAckError { digest_list_ack: Some(ack) });
                (Code::InvalidArgument, "this program has no digests", details)
            }
            Some(Update::Other(_)) | None => {
                let details = Details::Other(v1::StreamOtherError { other: None });
                (Code::Unimplemented, "this kind of message is unknown", details)
            }
        };
        let error = v1::StreamError {
            canonical_code: code as i32,
            message: message.to_owned(),
            details: Some(details),
            ..v1::StreamError::default()
        };
        let response = v1::StreamMessageResponse { update: Some(v1::stream_message_response::Update::Error(error)) };
        if let Some(stream) = state.streams.get(&stream) {
            // A controller with a full queue can do without this message.
            let _ = stream.out.try_send(Ok(response));
        }
        Ok(())
    }

    /// Ends a controller's stream, for the reason `why` if there is one.
    pub fn close(&self, stream: StreamId, why: Option<Problem>) {
        let mut state = self.lock();
        if let (Some(stream), Some(why)) = (state.streams.remove(&stream), why) {
            let _ = stream.out.try_send(Err(why.into()));
        }
        let notices = state.arbitration.close(stream);
        state.tell(notices);
    }

    /// Ends all streams; no more can be opened.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        for (_, stream) in std::mem::take(&mut state.streams) {
            let _ = stream.out.try_send(Err(Status::unavailable("this switch is stopping")));
        }
    }

    /// Changes entities, in their order.
    ///
    /// # Errors
    /// If the whole request is refused (no update is done then), or if some updates failed (the rest is done then).
    pub fn write(&self, request: &v1::WriteRequest) -> Result<(), Status> {
        let state = &mut *self.lock();
        state.arbitration.may_write(request.device_id, &request.role, request.election_id.as_ref())?;
        state.configured()?;
        if request.atomicity != v1::write_request::Atomicity::ContinueOnError as i32 {
            return Err(Problem::unimplemented("updates are not atomic: each is applied by itself").into());
        }
        let target = &*self.target;
        let outcomes: Vec<_> = request.updates.iter().map(|update| state.update(update, target)).collect();
        batch("updates", &outcomes)
    }

    /// Reads the requested entities. The inner result tells which reads failed.
    ///
    /// # Errors
    /// If nothing can be read.
    pub fn read(&self, request: &v1::ReadRequest) -> Result<(Vec<Read>, Result<(), Status>), Status> {
        let state = self.lock();
        state.arbitration.is_here(request.device_id)?;
        state.configured()?;
        let mut found = Vec::new();
        let mut outcomes = Vec::new();
        for entity in &request.entities {
            let read = state.read(entity, &*self.target);
            outcomes.push(read.map(|read| found.extend(read)));
        }
        Ok((found, batch("reads", &outcomes)))
    }

    /// Gives the device its program: this project's, since the device can have no other.
    ///
    /// An action that clears the tables keeps the fields that packets have changed. Numbers that were given under a switch id
    /// must never be given again under the same id, and a new id makes all of them void. So to clear them would have no use.
    ///
    /// # Errors
    /// If the program is another one, or the caller may not write. Nothing has changed then.
    pub fn set_config(&self, request: v1::SetForwardingPipelineConfigRequest) -> Result<(), Problem> {
        let state = &mut *self.lock();
        state.arbitration.may_write(request.device_id, &request.role, request.election_id.as_ref())?;
        let action = Action::try_from(request.action).unwrap_or(Action::Unspecified);
        if action == Action::Unspecified {
            return Err(Problem::invalid("the request names no action for the program"));
        }
        if action == Action::Commit {
            if request.config.is_some() {
                return Err(Problem::invalid("a commit takes the configuration that was saved before"));
            }
            let saved = state.saved.take().ok_or_else(|| Problem::new(Code::NotFound, "no program has been saved"))?;
            state.config = Some(saved);
            return Ok(());
        }
        let config = request.config.ok_or_else(|| Problem::invalid("there is no program"))?;
        let p4info =
            config.p4info.as_ref().ok_or_else(|| Problem::invalid("the request has no description of the program"))?;
        is_ours(p4info).map_err(Problem::invalid)?;
        match action {
            Action::VerifyAndSave => state.saved = Some(config),
            Action::ReconcileAndCommit => (state.config, state.saved) = (Some(config), None),
            Action::VerifyAndCommit => {
                state.store.clear(&*self.target);
                Counted::ALL.into_iter().for_each(|counted| self.target.set_counter(counted, 0));
                (state.config, state.saved) = (Some(config), None);
            }
            Action::Verify | Action::Commit | Action::Unspecified => {}
        }
        Ok(())
    }

    /// Returns the device's program; `None` if it has none.
    ///
    /// # Errors
    /// If this is another device, or the type of the response is unknown.
    pub fn get_config(
        &self,
        request: &v1::GetForwardingPipelineConfigRequest,
    ) -> Result<Option<v1::ForwardingPipelineConfig>, Problem> {
        let state = self.lock();
        state.arbitration.is_here(request.device_id)?;
        let kind = ResponseType::try_from(request.response_type).map_err(|_| Problem::invalid("no such type"))?;
        let Some(config) = &state.config else { return Ok(None) };
        let with_p4info = matches!(kind, ResponseType::All | ResponseType::P4infoAndCookie);
        let with_device = matches!(kind, ResponseType::All | ResponseType::DeviceConfigAndCookie);
        Ok(Some(v1::ForwardingPipelineConfig {
            p4info: config.p4info.clone().filter(|_| with_p4info),
            p4_device_config: if with_device { config.p4_device_config.clone() } else { Vec::new() },
            cookie: config.cookie,
        }))
    }
}

impl ServiceState {
    fn configured(&self) -> Result<(), Problem> {
        match self.config {
            Some(_) => Ok(()),
            None => Err(Problem::new(Code::FailedPrecondition, "this device has no program yet")),
        }
    }

    /// Ends a stream if there is no room for another one. A remote newcomer takes the place of a local stream only if local ones
    /// hold more than is kept for them.
    fn make_room(&mut self, for_local: bool) {
        let local = self.streams.values().filter(|stream| stream.is_local).count();
        let remote = self.streams.len() - local;
        if self.streams.len() < STREAMS_MAX && (for_local || remote < STREAMS_MAX - STREAMS_KEPT) {
            return;
        }
        let takes_local = for_local || local > STREAMS_KEPT;
        let candidates = self.streams.iter().filter(|(_, stream)| takes_local || !stream.is_local);
        let arbitration = &self.arbitration;
        let first =
            candidates.map(|(id, stream)| (arbitration.is_primary(*id), arbitration.knows(*id), stream.is_local, *id));
        let Some((.., id)) = first.min() else { return };
        if let Some(stream) = self.streams.remove(&id) {
            let why = format!("all {STREAMS_MAX} streams are in use, and another controller takes this one's place");
            let _ = stream.out.try_send(Err(Status::resource_exhausted(why)));
        }
        let notices = self.arbitration.close(id);
        self.tell(notices);
    }

    /// Sends notices, and disconnects controllers that do not take theirs; the other controllers get a notice of that, too.
    fn tell(&mut self, notices: Notices) {
        let mut notices = VecDeque::from(notices);
        while let Some((id, notice)) = notices.pop_front() {
            let update = v1::stream_message_response::Update::Arbitration(notice);
            let Some(stream) = self.streams.get(&id) else { continue };
            if stream.out.try_send(Ok(v1::StreamMessageResponse { update: Some(update) })).is_err() {
                self.streams.remove(&id);
                notices.extend(self.arbitration.close(id));
            }
        }
    }

    fn update(&mut self, update: &v1::Update, target: &dyn Target) -> Result<(), Problem> {
        let kind = update::Type::try_from(update.r#type).unwrap_or(update::Type::Unspecified);
        if kind == update::Type::Unspecified {
            return Err(Problem::invalid("an update has no type"));
        }
        match update.entity.as_ref().and_then(|entity| entity.entity.as_ref()) {
            None => Err(Problem::invalid("an update has no entity")),
            Some(Entity::TableEntry(entry)) => self.store.write(kind, entry, target),
            Some(Entity::CounterEntry(entry)) => arrays::write_counter(kind, entry, target),
            Some(Entity::RegisterEntry(entry)) => arrays::write_register(kind, entry, target),
            Some(Entity::ActionProfileMember(_) | Entity::ActionProfileGroup(_)) => {
                Err(Problem::unimplemented("only one-shot sets of actions are taken"))
            }
            Some(Entity::PacketReplicationEngineEntry(_)) => Err(Problem::unimplemented("packets are not copied")),
            Some(_) => Err(Problem::invalid("the program has none of these")),
        }
    }

    fn read(&self, entity: &v1::Entity, target: &dyn Target) -> Result<Vec<Read>, Problem> {
        let id = match entity.entity.as_ref().ok_or_else(|| Problem::invalid("the request names no entity"))? {
            Entity::TableEntry(asked) => {
                let entity = |entry| v1::Entity { entity: Some(Entity::TableEntry(entry)) };
                return Ok(vec![Read::Entities(self.store.read(asked)?.into_iter().map(entity).collect())]);
            }
            Entity::CounterEntry(asked) => return Ok(vec![Read::Entities(arrays::read_counters(asked, target)?)]),
            Entity::RegisterEntry(asked) => {
                return Ok(arrays::read_registers(asked, target)?.into_iter().map(Read::Cells).collect());
            }
            // Members and groups of action profiles, and copies of packets, cannot be written: there are none to list.
            Entity::ActionProfileMember(entry) => entry.member_id,
            Entity::ActionProfileGroup(entry) => entry.group_id,
            Entity::PacketReplicationEngineEntry(entry) => replication_id(entry),
            Entity::MeterEntry(entry) => entry.meter_id,
            Entity::DirectMeterEntry(entry) => entry.table_entry.as_ref().map_or(0, |entry| entry.table_id),
            Entity::DirectCounterEntry(entry) => entry.table_entry.as_ref().map_or(0, |entry| entry.table_id),
            Entity::ValueSetEntry(entry) => entry.value_set_id,
            Entity::DigestEntry(entry) => entry.digest_id,
            Entity::ExternEntry(entry) => entry.extern_type_id,
        };
        // Id 0 asks for all entities of a kind (P4Runtime §16.1); there are none of these kinds.
        if id == 0 { Ok(Vec::new()) } else { Err(Problem::invalid("the program has none of these")) }
    }
}

/// Returns the id of the multicast group or clone session that an entry names; 0 if it names all.
fn replication_id(entry: &v1::PacketReplicationEngineEntry) -> u32 {
    use v1::packet_replication_engine_entry::Type;
    match &entry.r#type {
        None => 0,
        Some(Type::MulticastGroupEntry(entry)) => entry.multicast_group_id,
        Some(Type::CloneSessionEntry(entry)) => entry.session_id,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::dirty::{Region, Shape};
    use crate::p4rt::arbitration::election_id;
    use crate::p4rt::entry::{Key, Setting, Value};
    use crate::p4rt::p4info::{VERDICTS, p4info};
    use crate::p4rt::standin::Standin;

    fn says(election: u128) -> v1::StreamMessageRequest {
        let election_id = Some(election_id(election));
        let update = v1::MasterArbitrationUpdate { election_id, ..v1::MasterArbitrationUpdate::default() };
        v1::StreamMessageRequest { update: Some(v1::stream_message_request::Update::Arbitration(update)) }
    }

    proptest! {
        /// Any request is either refused or done, and the pipeline still equals the tables.
        #[test]
        fn nonsense_is_refused(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let standin = Arc::new(Standin::new(Shape { stages: 3, slots: 8 }, 4));
            let service = Service::new(0, standin.clone());
            let mut controller = service.open(true).unwrap();
            service.hear(controller.id, says(1)).unwrap();
            let config = v1::ForwardingPipelineConfig { p4info: Some(p4info().clone()), ..Default::default() };
            let request = v1::SetForwardingPipelineConfigRequest {
                election_id: Some(election_id(1)),
                action: Action::VerifyAndCommit as i32,
                config: Some(config),
                ..Default::default()
            };
            service.set_config(request).unwrap();
            let mut bytes = some_updates().encode_to_vec();
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            // Half of the inputs are whole.
            bytes.truncate(bytes.len().min(2 * cut.index(bytes.len()) + 1));
            let Ok(updates) = v1::WriteRequest::decode(&bytes[..]) else { return Ok(()) };
            let asked = updates.updates.iter().filter_map(|update| update.entity.clone()).collect();
            let asked = v1::ReadRequest { entities: asked, ..Default::default() };
            let request = v1::WriteRequest { device_id: 0, role: String::new(), election_id: Some(election_id(1)), ..updates };
            let _ = service.write(&request);
            let _ = service.read(&asked).unwrap();
            let all = v1::Entity { entity: Some(Entity::TableEntry(v1::TableEntry::default())) };
            let (found, outcome) = service.read(&v1::ReadRequest { entities: vec![all], ..Default::default() }).unwrap();
            prop_assert!(outcome.is_ok());
            let [Read::Entities(found)] = &found[..] else { panic!("{found:?}") };
            for entity in found {
                let Some(Entity::TableEntry(entry)) = &entity.entity else { panic!("{entity:?}") };
                if let Key::Partition(number) = Key::of(entry).unwrap() {
                    let partition = standin.lock().pipeline.remove(number).map(|partition| Setting::of(&partition));
                    let value = Value::of(entry.table_id, entry.action.as_ref().unwrap());
                    prop_assert_eq!(value, Ok(Value::Partition(partition.unwrap())));
                }
            }
            while controller.responses.try_recv().is_ok() {}
        }
    }

    fn some_updates() -> v1::WriteRequest {
        let region = Region { first: 0, slots: 4 };
        let setting = Setting { index: 1, region, term: 1 << 40, switch: 2, active: true, primary: 3 };
        let table = |key: Key, value: Value| v1::TableEntry { action: Some(value.action()), ..key.entry() };
        let entries = [
            table(Key::Partition(5), Value::Partition(setting)),
            table(Key::Replicas(5), Value::Replicas(vec![(3, 1), (4, 2)])),
            table(Key::Port(3), Value::Port("127.0.0.1:7".parse().unwrap())),
            table(Key::Ipv4([10, 0, 0, 0].into(), 8), Value::Drop),
        ];
        let data = Some(v1::P4Data { data: Some(v1::p4_data::Data::Bitstring(vec![1, 2, 3])) });
        let index = Some(v1::Index { index: 1 });
        let cell = v1::RegisterEntry { register_id: register::STAGES[0], index, data };
        let counter = v1::CounterEntry { counter_id: VERDICTS, index, data: Some(Default::default()) };
        let entities = entries
            .into_iter()
            .map(Entity::TableEntry)
            .chain([Entity::RegisterEntry(cell), Entity::CounterEntry(counter)])
            .map(|entity| Some(v1::Entity { entity: Some(entity) }));
        let kind = |entity: &Option<v1::Entity>| match entity.as_ref().and_then(|entity| entity.entity.as_ref()) {
            Some(Entity::TableEntry(_)) => update::Type::Insert as i32,
            _ => update::Type::Modify as i32,
        };
        let updates = entities.map(|entity| v1::Update { r#type: kind(&entity), entity }).collect();
        v1::WriteRequest { updates, ..Default::default() }
    }

    /// Returns the positions of the streams, of those that were opened, that have ended.
    fn ended(streams: &mut [Opened]) -> Vec<usize> {
        let is_over = |stream: &mut Opened| stream.gone.try_recv() == Err(oneshot::error::TryRecvError::Closed);
        streams.iter_mut().enumerate().filter_map(|(place, stream)| is_over(stream).then_some(place)).collect()
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_least_needed_stream() {
        let service = Service::new(0, Arc::new(Standin::new(Shape { stages: 3, slots: 8 }, 1)));
        let remote = || service.open(false).unwrap();
        let room = STREAMS_MAX - STREAMS_KEPT;
        let mut streams: Vec<Opened> = std::iter::repeat_with(remote).take(room).collect();
        // The first stream is the primary, the second a backup, and the rest send no message.
        service.hear(streams[0].id, says(9)).unwrap();
        service.hear(streams[1].id, says(8)).unwrap();
        for silent in 2..room {
            streams.push(remote());
            assert_eq!(ended(&mut streams).last(), Some(&silent), "the oldest silent one goes");
            service.hear(streams.last().unwrap().id, says(silent as u128 + 10)).unwrap();
        }
        // All streams send an arbitration update, and the last one is the primary.
        streams.push(remote());
        let gone = ended(&mut streams);
        let expected: Vec<usize> = std::iter::once(0).chain(2..room).collect();
        assert_eq!(gone, expected, "the oldest backup goes");
        // Places are kept for this machine; after that, remote streams go first.
        let mut local: Vec<Opened> = (0..STREAMS_KEPT).map(|_| service.open(true).unwrap()).collect();
        assert_eq!(ended(&mut streams), gone);
        local.push(service.open(true).unwrap());
        streams.push(remote());
        assert_eq!((ended(&mut streams).len(), ended(&mut local).len()), (gone.len() + 1, 1));
    }

    #[test]
    fn who_does_not_listen_is_let_go() {
        let service = Service::new(0, Arc::new(Standin::new(Shape { stages: 3, slots: 8 }, 1)));
        let (mut deaf, mut primary) = (service.open(true).unwrap(), service.open(true).unwrap());
        service.hear(deaf.id, says(0)).unwrap();
        for election in 1..=NOTICES_MAX as u128 {
            assert!(deaf.gone.try_recv() == Err(oneshot::error::TryRecvError::Empty), "{election}");
            service.hear(primary.id, says(election)).unwrap();
            while primary.responses.try_recv().is_ok() {}
        }
        assert_eq!(deaf.gone.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        // The election id of the disconnected controller is free.
        service.hear(primary.id, says(0)).unwrap();
        service.stop();
        assert_eq!(service.open(true).unwrap_err().code, Code::Unavailable);
    }
}
