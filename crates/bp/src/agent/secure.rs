//! Security of bundles, processed after reception and before storage (RFC 9172 §5).

use bytes::{Bytes, BytesMut};
use engine::Time;

use super::super::layer::{Content, Refusal};
use super::super::security::{Opened, Role, Violation};
use super::head::Head;
use super::intake::{Body, Giver, Intake};
use super::{Agent, Held, Reply};
use crate::codec::bp7::{self, BundleFlags, CrcType, Eid};
use crate::codec::bpsec::INTEGRITY;

impl Agent {
    /// Whether a bundle's security is to be processed; fragments are processed after reassembly.
    pub(super) fn is_to_be_secured(&self, head: &Head) -> bool {
        let policy = &self.core.config.security;
        matches!(head, Head::Seven(_))
            && head.fragment().is_none()
            && policy.concerns(head.source(), head.destination())
    }

    /// Violation of a rule by a bundle of version 6, which cannot carry operations: those that rules
    /// require are missing. `is_from_here` if this node created it.
    pub(super) fn fault_of_six(&self, head: &Head, is_from_here: bool) -> Option<Violation> {
        let Head::Six(six) = head else { return None };
        let mut roles = Vec::new();
        if !is_from_here {
            roles.extend([Role::Verifier, Role::Acceptor]);
        }
        if !self.core.is_for_us(head.destination()) {
            roles.push(Role::Source);
        }
        let has = |kind: u64| six.blocks().iter().any(|block| u64::from(block.kind()) == kind);
        let between = (head.source(), head.destination());
        self.core.config.security.check_unprotected(&roles, between, has).err()
    }

    /// Processes the security of a bundle that was received under a number, and that a neighbour
    /// began, if known. Its payload is read into memory first.
    pub(super) fn secure(
        &mut self,
        now: Time,
        number: u64,
        giver: Giver,
        by: Option<Eid>,
        head: Head,
        payload: Content,
        owns_file: bool,
    ) {
        if let (false, Some(reason)) = (giver.is_here(), self.rejects(&head, false)) {
            let mut held = Held::new(head, Bytes::new(), payload, owns_file);
            held.arrival.by = by;
            self.core.leave_content(&held);
            let reply = self.discard_arrived(now, &held, reason);
            return self.reply(giver, Some(held.id()), reply);
        }
        let Head::Seven(seven) = &head else { return };
        let name = match &payload {
            Content::Bytes(bytes) => {
                return self.secure_bytes(now, number, giver, by, (**seven).clone(), bytes);
            }
            Content::File { name, .. } => name.clone(),
        };
        let owned = owns_file.then_some(name);
        if payload.len() > self.core.config.security.payload_max {
            if let Some(name) = owned {
                self.core.stock.store.delete(name);
            }
            let id = head.key().id();
            self.reply(giver, Some(id), Reply::Refused(Refusal::NotAcceptable));
            return self.join_refused(now, number);
        }
        let received = number;
        let number = self.core.number();
        self.joins.renumber(received, number);
        let mut intake = Intake::with_head(giver, Body::Memory(BytesMut::new()), head);
        (intake.by, intake.parts) = (by, Some(payload.into()));
        (intake.is_made, intake.read_from) = (true, owned);
        self.intakes.insert(number, intake);
        self.read_parts(now, number);
    }

    fn secure_bytes(
        &mut self,
        now: Time,
        number: u64,
        giver: Giver,
        by: Option<Eid>,
        head: bp7::Head,
        bytes: &Bytes,
    ) {
        let mut opened = Opened { head, payload: bytes.to_vec() };
        let passed = match self.carry_out_policy(&mut opened, giver) {
            Ok(passed) => passed,
            Err(violation) => {
                return self.discard_insecure(now, number, giver, by, opened, violation);
            }
        };
        let head = Head::from(opened.head);
        let mut intake = Intake::with_head(giver, Body::Memory(BytesMut::new()), head);
        (intake.by, intake.is_made) = (by, true);
        intake.secured = Some(passed);
        self.begin_under(now, number, intake, &opened.payload.into());
    }

    /// Numbers of the rules whose operations the bundle passed.
    fn carry_out_policy(
        &mut self,
        opened: &mut Opened,
        giver: Giver,
    ) -> Result<Vec<u32>, Violation> {
        let destination = opened.head.primary().destination.clone();
        let is_for_us = self.core.is_for_us(&destination);
        let (policy, node) = (&self.core.config.security, &self.core.config.node);
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
        opened.restore_crcs(&signed, self.core.config.crc.payload)?;
        policy.protect(opened, node, &mut self.vectors)?;
        // A primary block has a CRC, or is signed (RFC 9171 §4.3.1).
        let primary = opened.head.primary();
        if primary.crc == CrcType::None && !opened.protects(INTEGRITY, 0) {
            let crc = self.core.config.crc.primary;
            opened.set_primary(bp7::Primary { crc, ..primary.clone() })?;
        }
        Ok(passed)
    }

    /// Deletes a bundle that violates a security rule.
    fn discard_insecure(
        &mut self,
        now: Time,
        number: u64,
        giver: Giver,
        by: Option<Eid>,
        opened: Opened,
        violation: Violation,
    ) {
        let head = Head::from(opened.head);
        let payload = Content::Bytes(opened.payload.into());
        let mut held = Held::new(head, Bytes::new(), payload, false);
        held.arrival.by = by;
        match giver {
            Giver::Layer { .. } | Giver::Remains => {
                let reply = self.discard_violating(now, &held, violation);
                self.reply(giver, Some(held.id()), reply);
            }
            Giver::Fragments => {
                self.count_violation(now, &held, violation);
                self.report_of(now, &held, BundleFlags::REPORT_DELETION, violation.fault.reason());
                self.join_refused(now, number);
            }
            Giver::User { .. } => {
                self.count_violation(now, &held, violation);
                let (id, reason) = (held.id(), violation.fault.reason());
                self.core.user.indicate(super::Indication::Deleted { id, reason });
            }
            Giver::Agent => self.count_violation(now, &held, violation),
        }
    }

    /// Deletes a bundle of a neighbour that violates a security rule; the reply to its giver, which
    /// must not take it for delivered.
    pub(super) fn discard_violating(
        &mut self,
        now: Time,
        held: &Held,
        violation: Violation,
    ) -> Reply {
        self.count_violation(now, held, violation);
        self.report_arrival(now, held);
        self.report_of(now, held, BundleFlags::REPORT_DELETION, violation.fault.reason());
        Reply::Refused(Refusal::NotAcceptable)
    }

    fn count_violation(&mut self, now: Time, held: &Held, violation: Violation) {
        self.core.statistics.deleted += 1;
        self.core.statistics.insecure += 1;
        self.note_discard(now, held, violation.rule, violation.fault.reason());
    }
}
