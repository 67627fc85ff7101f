//! Changes of a plan keep what was booked.

use super::*;
use crate::changes::{Change, ChangeError, Draft};
use crate::contacts::Begin;

fn contact(from: u64, to: u64, start: u64, end: u64) -> Contact {
    Contact { from, to, start: at(start), end: at(end), rate_bps: 8000, confidence: 1.0 }
}

#[test]
fn contacts_keep_their_bookings() {
    let mut router = router(1, "1-2 10-20/0, 1-2 50-60/0");
    let route = router.best(at(0), &wanted(2, 6000)).unwrap();
    router.promise(&route, 6000, Priority::Normal);
    router.change(&[Change::AddContact(contact(1, 2, 30, 40))]).unwrap();
    let next = router.best(at(0), &wanted(2, 5000)).unwrap();
    assert_eq!(next.arrives, at(35));
    // The first contact begins later and is longer: 4 s of it are booked.
    let delete = Change::DeleteContacts { from: 1, to: 2, start: Some(at(10).into()) };
    router.change(&[delete, Change::AddContact(contact(1, 2, 12, 29))]).unwrap();
    let next = router.best(at(0), &wanted(2, 5000)).unwrap();
    assert_eq!(next.arrives, at(21));
    assert_eq!(next.contacts().next(), route.contacts().next());
    router.release(&route, 6000, Priority::Normal);
    assert_eq!(router.best(at(0), &wanted(2, 5000)).unwrap().arrives, at(17));
}

#[test]
fn failures_and_rates_follow_the_plan() {
    let mut router = router(1, "1-2 0-50/0, 1-2 60-90/0");
    router.set_failed(at(1), 2, true);
    router.change(&[Change::AddContact(contact(1, 3, 0, 9))]).unwrap();
    assert_eq!(router.best(at(1), &wanted(2, 1000)).unwrap().leaves, at(60));
    let rate = Change::ModifyContact {
        from: 1,
        to: 2,
        start: at(60).into(),
        rate_bps: 80_000,
        confidence: None,
    };
    router.change(&[rate]).unwrap();
    assert_eq!(router.best(at(1), &wanted(2, 10_000)).unwrap().arrives, at(61));
    router.set_failed(at(1), 2, false);
    assert_eq!(router.best(at(1), &wanted(2, 1000)).unwrap().leaves, at(1));
    let gone = Change::DeleteContacts { from: 1, to: 2, start: None };
    router.change(&[gone]).unwrap();
    assert_eq!(router.best(at(1), &wanted(2, 1000)), None);
    assert_eq!(router.plan().contacts().len(), 1);
}

#[test]
fn a_change_that_contradicts_the_plan_changes_nothing() {
    let mut router = router(1, "1-2 10-20/3");
    let overlaps = Change::AddContact(contact(1, 2, 19, 30));
    let good = Change::AddContact(contact(1, 2, 20, 30));
    let (number, error) = router.change(&[good, overlaps]).unwrap_err();
    assert_eq!((number, router.plan().contacts().len()), (1, 1));
    assert_eq!(error.to_string(), "contact 1 to 2 overlaps the one that begins at 20 s");
    let unknown = Change::DeleteContacts { from: 1, to: 3, start: None };
    let error = ChangeError::NoContact { from: 1, to: 3 };
    assert_eq!(router.change(&[unknown]), Err((0, error)));
    let mut draft = Draft::new(router.plan());
    let range = Change::DeleteRanges { from: 1, to: 2, start: Some(at(10).into()) };
    draft.apply(&range).unwrap();
    assert_eq!(draft.apply(&range), Err(ChangeError::NoRange { from: 1, to: 2 }));
    assert_eq!(draft.plan().unwrap().owlt(1, 2, at(15)), Duration::ZERO);
}

#[test]
fn what_has_started_is_named_by_its_begin() {
    let second = 1_000_000_000;
    let range = Range { from: 1, to: 2, start: at(0), end: at(90), owlt: Duration::from_secs(1) };
    let mut draft = Draft::default();
    draft.apply(&Change::contact(contact(1, 2, 0, 60), Begin(-5 * second))).unwrap();
    draft.apply(&Change::contact(contact(1, 2, 60, 90), Begin(60 * second))).unwrap();
    draft.apply(&Change::range(range, Begin(-7 * second))).unwrap();
    // Also in a plan from which another draft is made.
    let mut draft = Draft::new(&draft.plan().unwrap());
    let modify = |seconds| {
        let start = Begin(seconds * second);
        Change::ModifyContact { from: 1, to: 2, start, rate_bps: 9, confidence: None }
    };
    let delete = |seconds: i128| Change::DeleteContacts {
        from: 1,
        to: 2,
        start: Some(Begin(seconds * second)),
    };
    let delete_range = |seconds: i128| Change::DeleteRanges {
        from: 1,
        to: 2,
        start: Some(Begin(seconds * second)),
    };
    for other in [-6, -4, 0] {
        let error = Err(ChangeError::NoContact { from: 1, to: 2 });
        assert_eq!(draft.apply(&modify(other)), error, "{other}");
        assert_eq!(draft.apply(&delete(other)), error, "{other}");
        let error = Err(ChangeError::NoRange { from: 1, to: 2 });
        assert_eq!(draft.apply(&delete_range(other)), error, "{other}");
    }
    draft.apply(&modify(-5)).unwrap();
    assert_eq!(draft.plan().unwrap().contacts()[0].rate_bps, 9);
    for delete in [delete(-5), delete_range(-7), delete(60)] {
        draft.apply(&delete).unwrap();
        assert!(draft.apply(&delete).is_err());
    }
    // One in its place has its own begin.
    draft.apply(&Change::AddContact(contact(1, 2, 0, 60))).unwrap();
    assert!(draft.apply(&delete(-5)).is_err());
    draft.apply(&delete(0)).unwrap();
}
