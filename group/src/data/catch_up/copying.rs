//! Copies for a neighbour's members that may come to own some of this group's range: chosen records, page by page, before there is a
//! transaction (`docs/design/data.md`). A copy binds neither the member that asks nor the one that answers.
//!
//! A record that comes this way may have been deleted since, and its tombstone may be gone. So each page names the slot up to which purges
//! were heeded ([`Copied::applied`]), and records that a later purge covers are not used. A member has each tombstone before a purge of it
//! is proposed, and purges wait for members that lack records. So the records that a member holds as of a slot are of no key that a purge
//! up to that slot dropped.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use overlay::{Key, KeyRange, NodeId, Point};

use crate::ballot::LogSlot;
use crate::context::Context;
use crate::data::acceptor::committees::Committees;
use crate::data::catch_up::{CatchUp, LOOKED_MAX, ScanUse, page_bytes, scan_from};
use crate::data::table::Table;
use crate::message::{AskCopy, Copied, Message, Write};
use crate::outbox::GroupOutput;
use crate::record::Record;
use crate::validate::Violation;

/// Upper limit of pages of the store that are read for neighbours at one time: this group's own copying must not wait for them.
const SCANS_MAX: usize = 8;

impl CatchUp {
    /// Answers a question for the chosen records in a piece of the range. A member that lacks records there does not answer.
    pub(crate) fn on_ask_copy(
        &mut self,
        ctx: &mut Context<'_>,
        committees: &Committees,
        table: &mut Table,
        from: NodeId,
        ask: AskCopy,
    ) {
        if !ctx.state.range.contains_range(ask.piece) || !holds_all(ctx, committees, ask.piece) {
            return;
        }
        if !is_straight(ask.piece) {
            return ctx.dropped.note(Violation::Malformed);
        }
        let as_of = as_of(ctx, ask.piece);
        if table.is_whole() {
            let records = table.scan(ask.piece, ask.after.as_ref());
            tell_copy(ctx, from, ask.clone(), as_of, records, false);
        } else if self.may_copy(from, ask.number, SCANS_MAX) {
            let first = scan_from(ask.after.as_ref(), ask.piece);
            let token = self.begin_scan(ScanUse::Copy { from, ask, as_of });
            ctx.out.push_behind(GroupOutput::Scan(token, first, page_bytes(ctx)));
        }
    }
}

/// Returns whether this member holds everything that was chosen in this piece, as far as it knows.
fn holds_all(ctx: &Context<'_>, committees: &Committees, piece: KeyRange) -> bool {
    let mut parts = ctx.state.parts().filter(|(range, _)| range.overlaps(piece));
    ctx.state.is_member(ctx.me)
        && parts.all(|(range, ballot)| {
            let committee = committees.get(&ballot);
            committee.is_some_and(|committee| committee.chosen().is_some() && committee.is_complete_in(range))
        })
}

/// Returns the slot applied now, and the last slot of the purges that dropped tombstones in this piece.
fn as_of(ctx: &Context<'_>, piece: KeyRange) -> (LogSlot, LogSlot) {
    let purges = ctx.state.purged.bounds.pieces(piece).into_iter();
    let last = purges.filter_map(|(_, purge)| purge.map(|purge| purge.slot)).max();
    (ctx.state.applied, last.unwrap_or(LogSlot(0)))
}

/// Sends a page of a copy. `records` are all that this node holds behind `ask.after`, to the end of the piece unless there is `more`.
pub(crate) fn tell_copy<'a>(
    ctx: &mut Context<'_>,
    from: NodeId,
    AskCopy { piece, after, number }: AskCopy,
    (applied, purged): (LogSlot, LogSlot),
    records: impl Iterator<Item = (&'a Key, &'a Arc<Record>)>,
    more: bool,
) {
    let (mut writes, mut bytes) = (Vec::new(), 0);
    let mut records = records.peekable();
    while let Some((key, record)) =
        records.next_if(|_| bytes <= ctx.config.message_bytes_max && writes.len() < LOOKED_MAX)
    {
        bytes += record.bytes() + key.encoded().len();
        writes.push(Write { key: key.clone(), record: record.clone() });
    }
    let rest = records.peek().is_some() || more;
    if rest && writes.is_empty() {
        return; // An empty page tells nothing about the records that follow.
    }
    let up_to = writes.last().filter(|_| rest).map(|write| write.key.clone());
    let copied = Copied { piece, after, number, writes, up_to, applied, purged };
    ctx.out.send(&[from], Message::Copied(Box::new(copied)));
}

/// Returns whether the piece lies on one side of point zero: then ring order is key order.
fn is_straight(piece: KeyRange) -> bool {
    piece.is_full() && piece.start() == Point(0) || piece.end() == Point(0) || piece.start() < piece.end()
}
