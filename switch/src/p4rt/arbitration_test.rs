//! Each rule of the specification once, and all of them against a plain model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const DEVICE: u64 = 7;

fn update(role: &str, election: Option<u128>) -> v1::MasterArbitrationUpdate {
    let role = (!role.is_empty()).then(|| v1::Role { name: role.to_owned(), ..v1::Role::default() });
    v1::MasterArbitrationUpdate { device_id: DEVICE, role, election_id: election.map(election_id), status: None }
}

/// Returns the notices: the stream, the code, and the highest election id.
fn told(notices: Notices) -> Vec<(StreamId, Code, Option<u128>)> {
    let brief = |(stream, notice): (StreamId, v1::MasterArbitrationUpdate)| {
        (stream, Code::from(notice.status.unwrap().code), notice.election_id.as_ref().map(number))
    };
    notices.into_iter().map(brief).collect()
}

fn code<T: std::fmt::Debug>(result: Result<T, Problem>) -> Code {
    result.unwrap_err().code
}

#[test]
fn the_highest_is_the_primary() {
    let mut all = Arbitration::new(DEVICE);
    let high = 1 << 100;
    assert_eq!(told(all.update(1, &update("", Some(5))).unwrap()), [(1, Code::Ok, Some(5))]);
    assert_eq!(told(all.update(2, &update("", Some(3))).unwrap()), [(2, Code::AlreadyExists, Some(5))]);
    let both = [(1, Code::AlreadyExists, Some(high)), (2, Code::Ok, Some(high))];
    assert_eq!(told(all.update(2, &update("", Some(high))).unwrap()), both);
    assert!(all.may_write(DEVICE, "", Some(&election_id(high))).is_ok());
    assert_eq!(code(all.may_write(DEVICE, "", Some(&election_id(5)))), Code::PermissionDenied);
    assert_eq!(code(all.may_write(DEVICE, "", None)), Code::PermissionDenied);
    // A controller that is the primary already gets a notice again, and so do the rest.
    assert_eq!(told(all.update(2, &update("", Some(high))).unwrap()), both);
    assert!(all.is_primary(2) && !all.is_primary(1));
}

#[test]
fn nobody_follows_by_itself() {
    let mut all = Arbitration::new(DEVICE);
    all.update(1, &update("", Some(5))).unwrap();
    all.update(2, &update("", Some(4))).unwrap();
    assert_eq!(told(all.close(1)), [(2, Code::NotFound, Some(5))]);
    assert_eq!(code(all.may_write(DEVICE, "", Some(&election_id(5)))), Code::PermissionDenied);
    assert_eq!(told(all.update(2, &update("", Some(4))).unwrap()), [(2, Code::NotFound, Some(5))]);
    // An id equal to the highest is enough.
    assert_eq!(told(all.update(2, &update("", Some(5))).unwrap()), [(2, Code::Ok, Some(5))]);
    // A primary can step down.
    all.update(3, &update("", None)).unwrap();
    let down = [(2, Code::NotFound, Some(5)), (3, Code::NotFound, Some(5))];
    assert_eq!(told(all.update(2, &update("", Some(1))).unwrap()), down);
    assert!(all.close(3).is_empty() && all.close(3).is_empty());
}

#[test]
fn without_an_election_id_nobody_is_primary() {
    let mut all = Arbitration::new(DEVICE);
    assert_eq!(told(all.update(1, &update("", None)).unwrap()), [(1, Code::NotFound, None)]);
    assert_eq!(told(all.update(2, &update("", None)).unwrap()), [(2, Code::NotFound, None)]);
    assert_eq!(code(all.may_write(DEVICE, "", None)), Code::PermissionDenied);
    // Zero is an election id.
    let zero = [(1, Code::AlreadyExists, Some(0)), (2, Code::Ok, Some(0))];
    assert_eq!(told(all.update(2, &update("", Some(0))).unwrap()), zero);
}

#[test]
fn what_ends_a_stream() {
    let mut all = Arbitration::new(DEVICE);
    let elsewhere = v1::MasterArbitrationUpdate { device_id: 8, ..update("", Some(1)) };
    assert_eq!(code(all.update(1, &elsewhere)), Code::NotFound);
    all.update(1, &update("", Some(1))).unwrap();
    assert_eq!(code(all.update(1, &elsewhere)), Code::FailedPrecondition);
    assert_eq!(code(all.update(1, &update("a", Some(1)))), Code::FailedPrecondition);
    assert_eq!(code(all.update(2, &update("", Some(1)))), Code::InvalidArgument);
    // The same id in another role is another one.
    all.update(2, &update("a", Some(1))).unwrap();
    let mut configured = update("b", Some(1));
    configured.role.as_mut().unwrap().config = Some(prost_types::Any::default());
    assert_eq!(code(all.update(3, &configured)), Code::InvalidArgument);
    for role in 2..ROLES_MAX as u64 {
        all.update(role + 1, &update(&format!("role {role}"), Some(1))).unwrap();
    }
    assert_eq!(code(all.update(99, &update("one too many", Some(1)))), Code::ResourceExhausted);
    assert_eq!(code(all.may_write(DEVICE, "one too many", Some(&election_id(1)))), Code::NotFound);
    assert_eq!(code(all.may_write(8, "", Some(&election_id(1)))), Code::NotFound);
}

#[derive(Clone, Debug)]
enum ArbitrationStep {
    Update(StreamId, Option<u128>),
    Close(StreamId),
}

proptest! {
    /// In one role: the primary, the right to write, and that each controller has the latest notice.
    #[test]
    fn all_know_who_is_the_primary(steps in proptest::collection::vec(prop_oneof![
        4 => (0u64..4, proptest::option::of(0u128..5)).prop_map(|(stream, election)| ArbitrationStep::Update(stream, election)),
        1 => (0u64..4).prop_map(ArbitrationStep::Close),
    ], 0..60)) {
        let mut all = Arbitration::new(DEVICE);
        let mut live: BTreeMap<StreamId, Option<u128>> = BTreeMap::new();
        let mut known: BTreeMap<StreamId, Code> = BTreeMap::new();
        let mut highest = None;
        for step in steps {
            let notices = match step {
                ArbitrationStep::Close(stream) => {
                    live.remove(&stream);
                    known.remove(&stream);
                    all.close(stream)
                }
                ArbitrationStep::Update(stream, election) => {
                    let is_taken = election.is_some() && live.iter().any(|(other, id)| *other != stream && *id == election);
                    match all.update(stream, &update("", election)) {
                        Err(problem) => {
                            prop_assert!(is_taken && problem.code == Code::InvalidArgument);
                            live.remove(&stream);
                            known.remove(&stream);
                            all.close(stream)
                        }
                        Ok(notices) => {
                            prop_assert!(!is_taken);
                            live.insert(stream, election);
                            highest = highest.max(election);
                            notices
                        }
                    }
                }
            };
            known.extend(told(notices).into_iter().map(|(stream, code, _)| (stream, code)));
            let primary = live.iter().find(|(_, id)| id.is_some() && **id == highest).map(|(stream, _)| *stream);
            for stream in live.keys() {
                let wanted = match primary {
                    Some(primary) if primary == *stream => Code::Ok,
                    Some(_) => Code::AlreadyExists,
                    None => Code::NotFound,
                };
                prop_assert_eq!(known[stream], wanted);
                prop_assert_eq!(all.is_primary(*stream), wanted == Code::Ok);
            }
            for id in 0..5 {
                let may = primary.is_some() && highest == Some(id);
                prop_assert_eq!(all.may_write(DEVICE, "", Some(&election_id(id))).is_ok(), may);
            }
        }
    }
}
