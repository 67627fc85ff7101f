//! Several applications at one endpoint.

use std::collections::BTreeSet;

use super::*;
use crate::api::model::Delivery;

struct Application {
    client: NodeClient,
    coming: Coming,
}

fn join(place: &Place, share: &str) -> Result<Application, ClientError> {
    let mut client = place.client();
    let coming = client.take(&[("endpoint", "5"), ("share", share)])?;
    Ok(Application { client, coming })
}

impl Application {
    fn next(&mut self) -> Delivery {
        let delivery = self.client.next(&mut self.coming).unwrap().unwrap();
        assert_eq!(whole(&mut self.client, &mut self.coming, delivery.bytes), bytes(3));
        delivery
    }

    fn take(&mut self, count: usize) -> Vec<Delivery> {
        (0..count).map(|_| self.next()).collect()
    }
}

fn send(place: &Place, count: usize) -> BTreeSet<String> {
    let mut client = place.client();
    let mut one = || client.send(&[("to", "ipn:1.5")], io::Cursor::new(bytes(3))).unwrap().id;
    (0..count).map(|_| one()).collect()
}

fn held(place: &Place) -> usize {
    place.client().get::<Vec<Bundle>>("/bundles", &[]).unwrap().len()
}

fn ids(deliveries: &[Delivery]) -> BTreeSet<String> {
    deliveries.iter().map(|delivery| delivery.id.clone()).collect()
}

#[test]
fn applications_that_take_turns_share_the_bundles() {
    let place = Place::new(false);
    let [mut one, mut two, mut three] = [(); 3].map(|()| join(&place, "turns").unwrap());
    for share in ["copies", "no"] {
        let error = join(&place, share).map(|_| ()).unwrap_err();
        assert!(matches!(error, ClientError::Refused { status: 409, .. }), "{error}");
    }
    let sent = send(&place, 9);
    let (first, second, third) = (one.take(3), two.take(3), three.take(3));
    let all: BTreeSet<String> =
        [&first, &second, &third].into_iter().flat_map(|it| ids(it)).collect();
    assert_eq!(all, sent, "each once");
    // The next ones go to the idle one.
    let mut confirming = place.client();
    for delivery in &second {
        confirming.confirm(delivery).unwrap();
        assert!(confirming.confirm(delivery).is_err(), "once");
    }
    let more = send(&place, 3);
    assert_eq!(ids(&two.take(3)), more);
    // What one has not confirmed goes to the others when it leaves.
    drop(one);
    let (second, third) = (two.take(1), three.take(2));
    let again: BTreeSet<String> = ids(&second).union(&ids(&third)).cloned().collect();
    assert_eq!(again, ids(&first));
    drop(three);
    let again = two.take(5);
    assert_eq!(again.len(), 5);
    drop(two);
    // The last one leaves: they wait for the next.
    assert_eq!(held(&place), 9);
    let mut next = await_some("the endpoint is free", || join(&place, "no").ok());
    let left = next.take(9);
    for delivery in &left {
        confirming.confirm(delivery).unwrap();
    }
    await_some("all are deleted", || (held(&place) == 0).then_some(()));
}

#[test]
fn each_application_gets_a_copy() {
    let place = Place::new(true);
    let [mut one, mut two] = [(); 2].map(|()| join(&place, "copies").unwrap());
    let sent = send(&place, 4);
    let (first, second) = (one.take(4), two.take(4));
    assert_eq!((ids(&first), ids(&second)), (sent.clone(), sent.clone()));
    // One that comes later gets later ones only.
    let mut late = join(&place, "copies").unwrap();
    let last = send(&place, 1);
    assert_eq!(ids(&late.take(1)), last);
    let (fifth, other) = (one.next(), two.next());
    let mut confirming = place.client();
    for delivery in &first {
        confirming.confirm(delivery).unwrap();
        let is_unknown = confirming.confirm(delivery).unwrap_err();
        assert!(matches!(is_unknown, ClientError::Refused { status: 404, .. }), "{is_unknown}");
    }
    assert_eq!(held(&place), 5, "the second has not confirmed them");
    confirming.confirm(&second[0]).unwrap();
    await_some("one is deleted", || (held(&place) == 4).then_some(()));
    // It leaves: the other has confirmed three, and none the last.
    drop(two);
    await_some("those are deleted", || (held(&place) == 1).then_some(()));
    assert!(confirming.confirm(&other).is_err(), "the copy of one that has left");
    confirming.confirm(&fifth).unwrap();
    assert_eq!(held(&place), 1, "the late one has it");
    drop(late);
    await_some("it has left", || (held(&place) == 0).then_some(()));
    // A bundle that nobody confirms is delivered to the next.
    let [sixth] = [send(&place, 1)];
    assert_eq!(ids(&one.take(1)), sixth);
    drop(one);
    let mut next = await_some("the endpoint is free", || join(&place, "no").ok());
    assert_eq!(ids(&next.take(1)), sixth);
}

#[test]
fn shared_bundles_that_expire_are_forgotten() {
    let place = Place::new(false);
    let [mut one, mut two] = [(); 2].map(|()| join(&place, "copies").unwrap());
    let mut client = place.client();
    let short = [("to", "ipn:1.5"), ("lifetime_ms", "300")];
    client.send(&short, io::Cursor::new(bytes(3))).unwrap();
    let (first, second) = (one.next(), two.next());
    await_some("it has expired", || (held(&place) == 0).then_some(()));
    for delivery in [first, second] {
        let error = client.confirm(&delivery).unwrap_err();
        assert!(matches!(error, ClientError::Refused { status: 404, .. }), "{error}");
    }
    drop(one);
    let sent = send(&place, 1);
    assert_eq!(ids(&two.take(1)), sent);
}

#[test]
fn expired_bundles_do_not_count_as_unconfirmed() {
    let place = Place::new(false);
    let [mut one, mut two] = [(); 2].map(|()| join(&place, "turns").unwrap());
    let mut client = place.client();
    let short = [("to", "ipn:1.5"), ("lifetime_ms", "300")];
    let expiring = client.send(&short, io::Cursor::new(bytes(3))).unwrap().id;
    assert_eq!(one.next().id, expiring);
    await_some("it has expired", || (held(&place) == 0).then_some(()));
    // A request for the state of the node also sweeps the receivers.
    client.get::<model::Node>("/node", &[]).unwrap();
    let second = send(&place, 1);
    let delivery = two.next();
    assert_eq!(BTreeSet::from([delivery.id.clone()]), second);
    client.confirm(&delivery).unwrap();
    // Both have confirmed all. The first was served longer ago, so it gets the next bundle.
    let (third, fourth) = (send(&place, 1), send(&place, 1));
    assert_eq!((ids(&one.take(1)), ids(&two.take(1))), (third, fourth));
}
