//! Faults that a group cannot survive by its protocol, which no plan may cause.

use overlay::NodeId;

use crate::sim::host::Host;
use crate::sim::machine::{Machine, ProcessState};
use crate::sim::network::Network;

/// Returns whether this machine may lose the data that it acknowledged last: no other machine has lost acknowledged data, and all
/// nodes that could be asked for that data hold all data that they acknowledged.
pub(super) fn may_forget<H: Host>(machines: &mut [Machine<H>], host: usize) -> bool {
    for machine in machines.iter_mut() {
        let is_sure = |host: &H| !host.is_in_doubt();
        machine.forgot &= !(machine.ready && machine.host.as_deref().is_some_and(is_sure));
    }
    let others_forgot = machines.iter().enumerate().any(|(other, machine)| other != host && machine.forgot);
    let node = |machine: &Machine<H>| machine.host.as_deref().map_or(machine.kept, H::node);
    let held: Vec<NodeId> = machines.iter().filter_map(node).collect();
    let Some(id) = machines[host].host.as_deref().and_then(H::node) else { return false };
    let mut processes = machines.iter().filter_map(|machine| machine.host.as_deref());
    !others_forgot && processes.all(|process| process.survives_doubt(id, &held))
}

/// Returns whether the other machines hold all data that the group must not lose, and can go on without this one's state.
pub(super) fn can_lose<H: Host>(machines: &[Machine<H>], network: &Network, host: usize) -> bool {
    let n = machines.len();
    n >= 3
        && machines[host].state != ProcessState::Down
        && !is_depended_on(machines, host)
        && (0..n).filter(|&other| other != host).all(|other| {
            let machine = &machines[other];
            machine.state == ProcessState::Running
                && !machine.doomed
                && machine.ready
                && !machine.store.has_failed()
                && machine.host.as_deref().is_some_and(H::is_whole)
                && (0..n).all(|to| to == other || to == host || !network.is_blocked(other, to))
        })
}

/// Returns whether a group, known to some node or about to be born, would have no quorum for ever without this machine's state.
fn is_depended_on<H: Host>(machines: &[Machine<H>], host: usize) -> bool {
    let Some(other) = &machines[host].host else { return false };
    let processes = || machines.iter().filter_map(|machine| machine.host.as_deref());
    let alive: Vec<NodeId> = processes().filter_map(H::node).collect();
    processes().any(|process| process.depends_on(other, &alive))
}
