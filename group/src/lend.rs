//! Macros that lend parts of a group to another part of it: the borrow checker must see that they are other parts.

/// Lends the parts of a group that make up a context.
macro_rules! context {
    ($group:ident) => {
        crate::context::Context {
            me: $group.me,
            now: $group.now,
            state: &$group.state,
            config: &$group.config,
            out: &mut $group.out,
            rng: &mut $group.rng,
            doubt: crate::control::recovery::doubt::Doubt::told($group.recovery.doubt()),
            dropped: &mut $group.dropped,
        }
    };
}
/// Lends the facts that questions to the parts of a group rest on.
macro_rules! facts {
    ($group:ident) => {
        crate::context::Facts { me: $group.me, now: $group.now.time, state: &$group.state, config: &$group.config }
    };
}
/// Lends the parts of a group that its transactions rest on.
macro_rules! knowledge {
    ($group:ident) => {
        crate::transaction::member::Knowledge {
            log: &$group.log,
            liveness: &$group.liveness,
            leader: &$group.leader,
            workload: &$group.workload,
        }
    };
}
/// Lends the parts of a group that a primary works with.
macro_rules! local {
    ($group:ident) => {
        crate::data::Local {
            full: $group.room.limit(&$group.table),
            is_relieved: $group.room.is_relieved(),
            table: &mut $group.table,
            acceptor: &mut $group.acceptor,
            group_time: $group.liveness.group_time($group.now.time),
        }
    };
}

pub(crate) use {context, facts, knowledge, local};
