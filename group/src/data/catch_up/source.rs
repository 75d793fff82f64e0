//! The source's side of catch-up: writes of its windows, and newer records of its table. See [`crate::data::catch_up`].

use alloc::sync::Arc;
use alloc::vec::Vec;

use overlay::{Key, KeyRange, NodeId};

use crate::ballot::Number;
use crate::config::Defect;
use crate::context::Context;
use crate::data::acceptor::Acceptor;
use crate::data::acceptor::window::Committee;
use crate::data::catch_up::{LOOKED_MAX, SCANS_MAX, ScanUse, page_bytes, scan_from};
use crate::data::table::Table;
use crate::message::{AskCompare, CommitteeMessage, Compared, Message, Since, Write};
use crate::outbox::GroupOutput;
use crate::record::Record;
use crate::validate::Violation;

/// Question that a page of the store answers.
#[derive(Clone, Debug)]
pub(crate) struct SourceQuery {
    pub(crate) ask: AskCompare,
    /// Chosen mark when the question came: the answering page certainly contains everything up to it.
    mark: u64,
    /// Whether this node held everything chosen before the term when the question came: records that it got since may be missing in the
    /// page.
    complete: bool,
}

impl Acceptor {
    /// Answers from the window.
    pub(crate) fn on_ask_since(&mut self, ctx: &mut Context<'_>, from: NodeId, mut answer: Since) {
        let Since { ballot, piece, since, .. } = answer;
        let Some(committee) = self.committee(ballot) else { return };
        let complete = committee.is_complete_in(piece);
        if !complete && (since.term == ballot.term || committee.base().is_none()) {
            return; // This node may soon have the writes asked for; another source may have them now.
        }
        // A source that lacks records from before this term says that its window does not reach. Perhaps no window does, and only a
        // comparison with a quorum collects the records.
        if complete && let Some((found, last, is_all)) = self.window_page(ctx, committee, piece, since) {
            (answer.writes, answer.up_to, answer.done) = (found, Some(last), is_all);
        }
        ctx.out.send_after(&[from], Message::Committee(CommitteeMessage::Since(answer)));
    }

    /// Returns writes after `since`, the number that they reach, and whether they are all; `None` where the windows do not reach.
    fn window_page(
        &self,
        ctx: &Context<'_>,
        committee: &Committee,
        piece: KeyRange,
        since: Number,
    ) -> Option<(Vec<Write>, Number, bool)> {
        let base = committee.base()?;
        let own = (committee.ballot().term, committee.chosen()?);
        let mut terms = alloc::vec![own];
        if since.term != own.0 {
            let (_, chain) = base.pieces.iter().find(|(range, _)| range.contains_range(piece))?;
            let known = chain.iter().position(|(term, _)| *term == since.term)?;
            terms.extend_from_slice(&chain[..=known]);
        }
        let (mut writes, mut bytes) = (Vec::new(), 0);
        for (term, last) in terms.into_iter().rev() {
            let window = self.committee_of(term, piece)?;
            let behind = if term == since.term { since.n } else { 0 };
            for write in window.since(behind, last, piece)? {
                bytes += write.record.bytes() + write.key.encoded().len();
                writes.push(Write { key: write.key.clone(), record: told(ctx, &write.record) });
                if bytes > ctx.config.message_bytes_max {
                    return Some((writes, write.record.number, false));
                }
            }
        }
        Some((writes, Number { term: own.0, n: own.1 }, true))
    }

    /// Answers a comparison.
    pub(crate) fn on_ask_compare(&mut self, ctx: &mut Context<'_>, table: &mut Table, from: NodeId, ask: AskCompare) {
        let Some(committee) = self.committee(ask.ballot).filter(|committee| committee.base().is_some()) else { return };
        if !ordered(&ask) {
            return ctx.dropped.note(Violation::Malformed);
        }
        let mark = committee.chosen().unwrap_or(0).min(committee.received().mark());
        let complete = committee.lacks_nothing_before(ask.piece) && committee.chosen().is_some();
        let asked = SourceQuery { ask, mark, complete };
        if table.is_whole() {
            let records = table.scan(asked.ask.piece, asked.ask.after.as_ref());
            self.answer_compare(ctx, from, &asked, records, false);
        } else if self.catch_up.scans.len() >= SCANS_MAX {
            ctx.dropped.note(Violation::NoRoom); // The member will ask again, or ask another source.
        } else {
            let first = scan_from(asked.ask.after.as_ref(), asked.ask.piece);
            let token = self.catch_up.begin_scan(ScanUse::Theirs { from, asked: asked.into() });
            ctx.out.push_behind(GroupOutput::Scan(token, first, page_bytes(ctx)));
        }
    }

    /// Answers a comparison. `records` are all that this node holds behind `ask.after`, to the end of the piece unless there is `more`.
    pub(crate) fn answer_compare<'a>(
        &self,
        ctx: &mut Context<'_>,
        from: NodeId,
        SourceQuery { ask, mark, complete }: &SourceQuery,
        records: impl Iterator<Item = (&'a Key, &'a Arc<Record>)>,
        more: bool,
    ) {
        let Some(committee) = self.committee(ask.ballot) else { return };
        let (mut writes, mut bytes, mut up_to, mut last) = (Vec::new(), 0, None, None);
        let mut held = ask.held.iter().peekable();
        let (mut looked, mut digest, mut is_behind) = (0_usize, 0_u64, false);
        for (key, record) in records {
            if ask.until.as_ref().is_some_and(|until| key > until) {
                is_behind = true;
                break;
            }
            looked += 1;
            last = Some(key.clone());
            while held.next_if(|(known, _)| known < key).is_some() {}
            let known = held.next_if(|(known, _)| known == key).map(|(_, number)| *number);
            if known.is_none_or(|known| known < record.number) {
                bytes += record.bytes() + key.encoded().len();
                let write = Write { key: key.clone(), record: told(ctx, record) };
                digest = digest.wrapping_add(write.digest());
                writes.push(write);
            }
            if bytes > ctx.config.message_bytes_max || looked >= LOOKED_MAX {
                up_to = last.clone();
                break;
            }
        }
        if up_to.is_none() && more && !is_behind {
            // The page of the store ended before the question did. An empty page tells nothing about the records that follow.
            let Some(last) = last else { return };
            up_to = Some(last);
        }
        let answer = Compared {
            ballot: ask.ballot,
            piece: ask.piece,
            after: ask.after.clone(),
            attempt: ask.attempt,
            writes,
            looked: looked as u64,
            digest,
            // A question that was asked again may have gone further.
            up_to: up_to.or_else(|| ask.until.clone()),
            mark: *mark,
            complete: *complete && committee.lacks_nothing_before(ask.piece),
            doubt: ctx.doubt,
        };
        ctx.out.send_after(&[from], Message::Committee(CommitteeMessage::Compared(answer.into())));
    }
}

/// Returns a record with all that it remembers of operations.
fn told(ctx: &Context<'_>, record: &Arc<Record>) -> Arc<Record> {
    if ctx.config.defects.has(Defect::WithoutTail) {
        return Arc::new(Record { done: Vec::new(), ..(**record).clone() });
    }
    record.clone()
}

fn ordered(AskCompare { after, held, until, .. }: &AskCompare) -> bool {
    held.windows(2).all(|pair| pair[0].0 < pair[1].0)
        && held.first().is_none_or(|(key, _)| after.as_ref().is_none_or(|after| key > after))
        && held.last().is_none_or(|(key, _)| until.as_ref().is_none_or(|until| key <= until))
}
