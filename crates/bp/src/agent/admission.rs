//! Admission of bundles: by their heads, by the rules of neighbours, by their security, and by the
//! bundles that are or were here (RFC 9171 §5.6). Security is processed after reception and before
//! storage (RFC 9172 §5).

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use engine::{Rng, Time};

use super::super::layer::{Content, Refusal};
use super::super::security::{Opened, Role, Vectors, Violation};
use super::clock::ages;
use super::forwarder::Forwarder;
use super::head::{Head, Key};
use super::held::Held;
use super::intake::{Body, Giver, Intake};
use super::join::Joins;
use super::stock::Core;
use crate::codec::bp7::{self, BundleFlags, CrcType, Eid, Reason};
use crate::codec::bpsec::INTEGRITY;
use crate::routes::Priority;

/// Fragments, and givers that wait for a reply.
#[derive(Debug)]
pub(super) struct Admission {
    pub(super) joins: Joins,
    vectors: Vectors,
    /// Givers waiting for each bundle to be safe.
    pub(super) givers: BTreeMap<u64, Vec<Giver>>,
}

/// Reply to the giver of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// It is in the store.
    Safe,
    /// Not needed here; the giver may discard it.
    NotNeeded,
    /// Not accepted.
    Refused(Refusal),
}

/// Decision against an arrived bundle.
#[derive(Debug)]
pub(super) enum Denial {
    /// It is, or was, here.
    Duplicate,
    Rejected(Rejection),
}

/// Bundle that is not accepted: the reply to its giver, if one is due now, and the consequences.
#[derive(Debug, Default)]
pub(super) struct Rejection {
    pub(super) reply: Option<Reply>,
    pub(super) consequences: Vec<Consequence>,
}

impl From<Refusal> for Rejection {
    fn from(why: Refusal) -> Self {
        Self { reply: Some(Reply::Refused(why)), consequences: Vec::new() }
    }
}

impl<T: Into<Rejection>> From<T> for Denial {
    fn from(rejection: T) -> Self {
        Self::Rejected(rejection.into())
    }
}

/// Consequence of a decision about a bundle.
#[derive(Clone, Copy, Debug)]
pub(super) enum Consequence {
    /// Sends a status report, if the bundle requests it.
    Report(BundleFlags, Reason),
    /// Reports the reception of a block that is not supported, which the block requests, not the
    /// bundle (RFC 9171 §5.6 step 4).
    ReportBlock,
    /// Indicates the end of a bundle by a security rule or another reason, once a minute.
    IndicateDiscard(Option<u32>, Reason),
    /// Indicates that the bundle was deleted.
    Deleted(Reason),
}

/// Reports the reception of a bundle that is not kept: this precedes all that ends a bundle (RFC
/// 9171 §5.6 step 2).
pub(super) const RECEPTION: Consequence =
    Consequence::Report(BundleFlags::REPORT_RECEPTION, Reason::NoInformation);

/// Result of processing the security of a bundle.
#[derive(Debug)]
pub(super) enum Secured {
    /// It passed, and is received under its number with this payload.
    Passed(u64, Box<Intake>, Bytes),
    /// Its payload is first read into memory, under another number.
    NeedsPayload(u64, Box<Intake>),
    Rejected(Box<Held>, Rejection),
}

impl Admission {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self { joins: Joins::default(), vectors: Vectors::new(rng), givers: BTreeMap::new() }
    }

    /// Decides whether a whole bundle is accepted, and with which consequences.
    pub(super) fn judge(
        &mut self,
        core: &mut Core,
        forwarder: &Forwarder,
        now: Time,
        held: &mut Held,
        giver: Giver,
    ) -> Result<Vec<Consequence>, Denial> {
        complete_arrival(core, now, held, giver);
        if giver == Giver::Fragments && core.stock.knows(&held.key()) {
            // It has come whole in the meantime.
            return Err(Rejection::default().into());
        }
        if giver.is_here() {
            return Ok(Vec::new());
        }
        core.statistics.received += 1;
        check_head(core, &held.head)?;
        if let Some(reason) = rejection_reason(core, &held.head, held.arrival.is_secured) {
            return Err(discard(core, reason).into());
        }
        let key = held.key();
        let total = held.head.fragment().map(|fragment| fragment.total);
        if let (Some((offset, len)), Some(total)) = (key.fragment, total)
            && offset.checked_add(len).is_none_or(|end| end > total)
        {
            core.statistics.malformed += 1;
            return Err(Refusal::NotAcceptable.into());
        }
        let known = duplicate_of(core, held);
        if let (None, Some((returns, by))) = (known, returns_of(core, held)) {
            // It comes back (RFC 9171 §5.4.2), and must not be sent there again. After too many
            // returns its giver keeps it.
            core.statistics.returned += 1;
            if returns >= core.config.limits.returns {
                return Err(Refusal::NotAcceptable.into());
            }
            held.arrival.returns = returns + 1;
            held.from = Some(by);
        } else if known.is_some()
            || core.stock.gone.contains(&key)
            || self.joins.is_redundant(core, held)
        {
            core.statistics.duplicates += 1;
            // A copy of an unsafe bundle is not safe either: both get the same reply.
            if let Some(givers) = known.and_then(|number| self.givers.get_mut(&number)) {
                givers.push(giver);
                return Err(Rejection::default().into());
            }
            return Err(Denial::Duplicate);
        }
        check_rules(core, forwarder, &held.head, held.arrival.by.as_ref())?;
        if held.expires <= now {
            // As if it had expired here.
            core.statistics.expired += 1;
            let reason = core.end_of_life(now, held);
            let report = Consequence::Report(BundleFlags::REPORT_DELETION, reason);
            let consequences = vec![RECEPTION, report, Consequence::Deleted(reason)];
            return Err(Rejection { reply: Some(Reply::NotNeeded), consequences }.into());
        }
        let (account, _) = core.share_of(held);
        if !core.check_share(&account, held.bytes()) || !self.joins.check_place(core, held) {
            return Err(Refusal::NoResources.into());
        }
        if let Some(violation) = fault_in_version_six(core, &held.head, false) {
            return Err(reject_insecure(core, violation, giver).into());
        }
        let unknown = held.head.process_unknown(&mut held.tail, &core.config.limits.head);
        let mut consequences = Vec::new();
        if unknown.reports {
            consequences.push(Consequence::ReportBlock);
        }
        if !unknown.deletes {
            return Ok(consequences);
        }
        let mut rejection = discard(core, Reason::BlockUnsupported);
        rejection.consequences.splice(1..1, consequences);
        Err(rejection.into())
    }

    /// Processes the security of a bundle. Its payload is read into memory first.
    pub(super) fn secure(&mut self, core: &mut Core, giver: Giver, held: Box<Held>) -> Secured {
        if let Some(reason) = rejection_reason(core, &held.head, false).filter(|_| !giver.is_here())
        {
            return Secured::Rejected(held, discard(core, reason));
        }
        let bytes = match &held.payload {
            Content::Bytes(bytes) => bytes.to_vec(),
            Content::File { .. } if held.payload.len() > core.config.security.payload_max => {
                return Secured::Rejected(held, Refusal::NotAcceptable.into());
            }
            Content::File { .. } => {
                let number = core.allocate_number();
                self.joins.renumber(held.number, number);
                let (by, owned) = (held.arrival.by.clone(), held.own_file().cloned());
                let body = Body::Memory(BytesMut::new());
                let mut intake = Intake::with_head(giver, body, held.head);
                (intake.by, intake.parts) = (by, Some(held.payload.into()));
                (intake.is_made, intake.read_from) = (true, owned);
                return Secured::NeedsPayload(number, Box::new(intake));
            }
        };
        let Head::Seven(head) = &held.head else {
            return Secured::Rejected(held, Rejection::default());
        };
        let mut opened = Opened { head: (**head).clone(), payload: bytes };
        let passed = match self.carry_out_policy(core, &mut opened, giver) {
            Ok(passed) => passed,
            Err(violation) => {
                return Secured::Rejected(held, reject_insecure(core, violation, giver));
            }
        };
        let head = Head::from(opened.head);
        let mut intake = Intake::with_head(giver, Body::Memory(BytesMut::new()), head);
        (intake.by, intake.is_made, intake.secured) = (held.arrival.by, true, Some(passed));
        Secured::Passed(held.number, Box::new(intake), opened.payload.into())
    }

    /// Verifies, decrypts and signs a bundle by the rules. Returns the numbers of those it passed.
    fn carry_out_policy(
        &mut self,
        core: &Core,
        opened: &mut Opened,
        giver: Giver,
    ) -> Result<Vec<u32>, Violation> {
        let is_for_us = core.is_for_us(&opened.head.primary().destination);
        let (policy, node) = (&core.config.security, &core.config.node);
        let (mut signed, mut passed) = (Vec::new(), Vec::new());
        if !giver.is_here() || giver == Giver::Fragments {
            if !is_for_us {
                signed = opened.signed();
            }
            passed = policy.check(opened, is_for_us)?.into_iter().collect();
        }
        if is_for_us {
            return Ok(passed);
        }
        opened.restore_crcs(&signed, core.config.crc.payload)?;
        policy.protect(opened, node, &mut self.vectors)?;
        // A primary block has a CRC, or is signed (RFC 9171 §4.3.1).
        let primary = opened.head.primary();
        if primary.crc == CrcType::None && !opened.protects(INTEGRITY, 0) {
            let crc = core.config.crc.primary;
            opened.set_primary(bp7::Primary { crc, ..primary.clone() })?;
        }
        Ok(passed)
    }
}

/// Deletes an arrived bundle.
fn discard(core: &mut Core, reason: Reason) -> Rejection {
    core.statistics.deleted += 1;
    let report = Consequence::Report(BundleFlags::REPORT_DELETION, reason);
    let consequences = vec![RECEPTION, Consequence::IndicateDiscard(None, reason), report];
    Rejection { reply: Some(Reply::NotNeeded), consequences }
}

/// Deletes a bundle that violates a security rule. Its giver must not take it for delivered.
fn reject_insecure(core: &mut Core, violation: Violation, giver: Giver) -> Rejection {
    core.statistics.deleted += 1;
    core.statistics.insecure += 1;
    let reason = violation.fault.reason();
    let note = Consequence::IndicateDiscard(violation.rule, reason);
    let report = Consequence::Report(BundleFlags::REPORT_DELETION, reason);
    let consequences = match giver {
        Giver::Layer { .. } | Giver::Remains => vec![note, RECEPTION, report],
        Giver::Fragments => vec![note, report],
        Giver::User { .. } => vec![note, Consequence::Deleted(reason)],
        Giver::Agent => vec![note],
    };
    let refused = Reply::Refused(Refusal::NotAcceptable);
    Rejection { reply: (!giver.is_here()).then_some(refused), consequences }
}

/// Sets the priority and the times of a received bundle.
fn complete_arrival(core: &Core, now: Time, held: &mut Held, giver: Giver) {
    let limits = &core.config.limits;
    held.priority = match giver {
        Giver::User { priority, .. } => priority,
        Giver::Layer { .. } | Giver::Agent | Giver::Remains | Giver::Fragments => {
            held.head.priority().unwrap_or(Priority::Normal)
        }
    };
    let rule = core.rule(&held.head, held.arrival.by.as_ref()).filter(|_| !giver.is_here());
    let max = rule.map_or(u64::MAX, |rule| core.config.accept[rule].lifetime_ms);
    let max = max.min(limits.lifetime_ms());
    held.received = now;
    (held.age_ms, held.expires) = ages(&held.head, now, core.clock(), max, &limits.head);
    held.from = held.head.previous_node(&limits.head);
}

/// Whether a bundle's security is to be processed; fragments are processed after reassembly.
pub(super) fn is_to_be_secured(core: &Core, head: &Head) -> bool {
    matches!(head, Head::Seven(_))
        && head.fragment().is_none()
        && core.config.security.concerns(head.source(), head.destination())
}

/// Violation of a rule by a bundle of version 6, which cannot carry operations: those that rules
/// require are missing. `is_from_here` if this node created it.
pub(super) fn fault_in_version_six(
    core: &Core,
    head: &Head,
    is_from_here: bool,
) -> Option<Violation> {
    let Head::Six(six) = head else { return None };
    let mut roles = Vec::new();
    if !is_from_here {
        roles.extend([Role::Verifier, Role::Acceptor]);
    }
    if !core.is_for_us(head.destination()) {
        roles.push(Role::Source);
    }
    let has = |kind: u64| six.blocks().iter().any(|block| u64::from(block.kind()) == kind);
    let (source, destination) = (head.source(), head.destination());
    core.config.security.check_unprotected(&roles, source, destination, has).err()
}

/// Checks the head of a bundle, as soon as it has come; an error is the reason to refuse it. One
/// with an endpoint of this node as its source that was created here, and comes back, is here or
/// remembered.
pub(super) fn check_head(core: &Core, head: &Head) -> Result<(), Refusal> {
    let (source, is_known) = (head.source(), |key: &Key| core.stock.knows(key));
    let is_ours = !source.is_none() && !source.is_local() && core.is_ours(source);
    let is_forged = is_ours && !is_known(&head.key()) && !is_known(&head.key().whole());
    let is_unused = !core.config.versions.contains(&head.version());
    if is_unused || is_forged { Err(Refusal::NotAcceptable) } else { Ok(()) }
}

/// Checks a bundle by the rules; an error is the reason to refuse it.
pub(super) fn check_rules(
    core: &Core,
    forwarder: &Forwarder,
    head: &Head,
    by: Option<&Eid>,
) -> Result<(), Refusal> {
    if !core.config.limits.unrouted && !has_use(core, forwarder, head.destination()) {
        return Err(Refusal::NotAcceptable);
    }
    let Some(number) = core.rule(head, by) else { return Ok(()) };
    let rule = &core.config.accept[number];
    let bytes = head.payload_len().saturating_add(head.encoded_len() as u64);
    if rule.refuse || bytes > rule.bundle {
        return Err(Refusal::NotAcceptable);
    }
    let load = core.stock.shares.under(number);
    let is_full = load.bundles >= rule.bundles || load.bytes.saturating_add(bytes) > rule.bytes;
    if is_full { Err(Refusal::NoResources) } else { Ok(()) }
}

/// Whether bundles for an endpoint can be delivered or forwarded now or later.
fn has_use(core: &Core, forwarder: &Forwarder, to: &Eid) -> bool {
    let is_registered = core.users.is_registered(to);
    if core.is_ours(to) {
        return is_registered || *to == to.node();
    }
    is_registered || forwarder.leads_to(&core.config, to)
}

/// Reason to delete a bundle that has come.
fn rejection_reason(core: &Core, head: &Head, is_secured: bool) -> Option<Reason> {
    // LocalNode is of each node, and crosses no link (RFC 9758 §5.4).
    let named = [head.source(), head.destination(), head.report_to()];
    if named.into_iter().any(Eid::is_local) || head.destination().is_none() {
        return Some(Reason::DestinationUnavailable);
    }
    // An acceptor has removed the signature.
    let limits = &core.config.limits;
    head.fault(&limits.head, is_secured || limits.unchecked)
}

/// Number of times that a forwarded bundle came back before, and the neighbour from which it comes
/// now.
fn returns_of(core: &Core, held: &Held) -> Option<(u8, Eid)> {
    let by = held.arrival.by.as_ref().or(held.from.as_ref())?;
    let hops = held.hops(&core.config.limits.head);
    let returns = core.stock.gone.returns(&held.key(), by, hops)?;
    Some((returns, by.clone()))
}

/// Number of the held bundle that an arriving one repeats. A fragment for this node does not
/// repeat that of another neighbour: one of them may be forged. A bundle without a source repeats
/// none.
fn duplicate_of(core: &Core, held: &Held) -> Option<u64> {
    let number = *core.stock.by_key.get(&held.key()).filter(|_| !held.head.is_anonymous())?;
    let is_apart = held.head.fragment().is_some()
        && core.is_for_us(held.destination())
        && core.stock.get(number).is_some_and(|known| known.arrival.by != held.arrival.by);
    (!is_apart).then_some(number)
}

/// Handles a copy of a held bundle that was elsewhere: it came back in a loop, perhaps before the
/// acknowledgement of its transmission. Nodes on that way take the held bundle for a repetition,
/// unless its hop count is higher than when it was sent. Each transmission adds at most one hop,
/// however many copies come. After too many of them the giver keeps the copy.
pub(super) fn note_copy(core: &mut Core, copy: &Held) -> Reply {
    let is_last = core.config.routing.is_copying() || core.is_for_us(copy.destination());
    let (limits, stock) = (&core.config.limits, &mut core.stock);
    let held = stock.by_key.get(&copy.key()).and_then(|number| stock.bundles.get_mut(number));
    let held = held.filter(|held| !is_last && held.was_elsewhere(copy, &limits.head));
    let Some(arrival) = held.map(|held| &mut held.arrival).filter(|arrival| arrival.is_tried)
    else {
        return Reply::NotNeeded;
    };
    if arrival.hops >= limits.returns {
        return Reply::Refused(Refusal::NotAcceptable);
    }
    arrival.hops += 1;
    arrival.is_tried = false;
    Reply::NotNeeded
}
