//! Valid and invalid contact plans.

use std::time::Duration;

use engine::Time;

use super::super::contacts::{Contact, ContactPlan, PlanError, Range};

pub(super) fn at(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

pub(super) fn contact(from: u64, to: u64, start: u64, end: u64) -> Contact {
    // 1,000 bytes a second.
    Contact { from, to, start: at(start), end: at(end), rate_bps: 8000, confidence: 1.0 }
}

pub(super) fn range(from: u64, to: u64, start: u64, end: u64, owlt: u64) -> Range {
    Range { from, to, start: at(start), end: at(end), owlt: Duration::from_secs(owlt) }
}

#[test]
fn contradictions_are_reported() {
    let plan = |contacts: &[Contact], ranges: &[Range]| {
        ContactPlan::new(contacts.to_vec(), ranges).map(|plan| plan.contacts().len())
    };
    let good = contact(1, 2, 0, 10);
    assert_eq!(plan(&[good], &[]), Ok(1));
    assert_eq!(plan(&[good, contact(1, 2, 5, 5)], &[]), Err(PlanError::ContactEmpty(1)));
    assert_eq!(plan(&[good, contact(2, 2, 5, 6)], &[]), Err(PlanError::ContactOfOne(1)));
    let none = Contact { rate_bps: 0, ..contact(1, 2, 20, 30) };
    assert_eq!(plan(&[good, none], &[]), Err(PlanError::ContactWithoutRate(1)));
    let later = contact(1, 2, 9, 30);
    assert_eq!(plan(&[later, good], &[]), Err(PlanError::ContactsOverlap(0, 1)));
    assert_eq!(plan(&[good, contact(1, 2, 10, 30), contact(2, 1, 0, 10)], &[]), Ok(3));
    let near = range(1, 2, 0, 10, 1);
    assert_eq!(plan(&[], &[near, range(1, 2, 3, 3, 1)]), Err(PlanError::RangeEmpty(1)));
    assert_eq!(plan(&[], &[near, range(1, 2, 9, 12, 1)]), Err(PlanError::RangesOverlap(0, 1)));
    assert_eq!(plan(&[], &[near, range(2, 1, 9, 12, 1)]), Ok(0));
}

#[test]
fn a_range_holds_for_both_directions_unless_both_are_given() {
    let ranges = [range(1, 2, 0, 10, 3), range(1, 2, 10, 20, 4), range(2, 1, 0, 5, 7)];
    let plan = ContactPlan::new(Vec::new(), &ranges).unwrap();
    let owlt = |from, to, when| plan.owlt(from, to, at(when)).as_secs();
    assert_eq!([owlt(1, 2, 0), owlt(1, 2, 9), owlt(1, 2, 10), owlt(1, 2, 20)], [3, 3, 4, 0]);
    assert_eq!([owlt(2, 1, 4), owlt(2, 1, 5), owlt(2, 1, 15)], [7, 3, 4]);
}

#[test]
fn contact_volumes_and_times() {
    let contact = Contact { rate_bps: 115_200, ..contact(1, 2, 100, 200) };
    assert_eq!(contact.volume(), 1_440_000);
    assert_eq!(contact.transmission_time(1_000_000), Duration::from_nanos(69_444_444_445));
}
