//! Bringing a member up while the bodies that it needs move about.

use crate::bringup::{Piece, SendError, Sender};
use crate::checkpoint::Image;
use crate::group::{Address, GroupId};
use crate::grouplog::{Disk, GroupLog};
use crate::member::{
    Body, BodyPlace, Boxed, Committed, Member, NotConnected, RequestError, Role, Transport,
};
use crate::record::Head;
use crate::records::Records;
use crate::recovered::Recovered;
use crate::rpc::Request;
use crate::seat::Seat;
use crate::supervisor::ballot::Ballot;
use crate::tail::Tail;
use crate::tests::support::{LIMITS, MemoryLog, node};
use crate::types::{Snapshot, SnapshotMeta, vote};
use crate::wire::Write;
use bytes::{Bytes, BytesMut};
use journal::op::{Class, Payload};
use model::id::{NodeId, Seq};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

const GROUP: GroupId = GroupId(40);

/// A member that says one after the other where its bodies are; the last it says for ever.
struct Mover(Mutex<Vec<Vec<(u64, BodyPlace)>>>);

impl Member for Mover {
    fn opened(&self, _: Records) {}
    fn committed(&self, _: Vec<Committed>) {}
    fn role(&self, _: Role) {}
    fn checkpoint(&self, _: oneshot::Sender<Bytes>) {}
    fn install(&self, _: u64, _: Bytes, _: Vec<Body>, _: oneshot::Sender<()>) {}

    fn export(&self, _: &Bytes) -> Vec<(u64, BodyPlace)> {
        let mut places = self.0.lock();
        if places.len() > 1 { places.remove(0) } else { places[0].clone() }
    }

    fn purged(&self, _: u64) {}
    fn members(&self, _: Vec<NodeId>, _: Vec<NodeId>) {}
    fn failed(&self, _: String) {}
}

/// Takes every piece.
#[derive(Default)]
struct Taker(Mutex<Vec<(u64, Bytes)>>);

impl Transport for Taker {
    fn send(&self, _: NodeId, _: Bytes) -> Result<(), NotConnected> {
        Ok(())
    }

    fn has_room(&self, _: NodeId) -> bool {
        true
    }

    fn room(&self, _: NodeId) -> Boxed<()> {
        Box::pin(std::future::ready(()))
    }

    fn request(
        &self,
        _: NodeId,
        payload: Bytes,
        _: Duration,
    ) -> Boxed<Result<Bytes, RequestError>> {
        if let Ok(Request::Piece { piece: Piece::Bodies(bodies), .. }) = Request::decode(payload) {
            self.0.lock().extend(bodies.into_iter().map(|(name, _, body)| (name, body)));
        }
        let mut answer = BytesMut::new();
        answer.vote(&vote(1, 1, true));
        Box::pin(std::future::ready(Ok(answer.freeze())))
    }
}

fn at(position: u64) -> BodyPlace {
    BodyPlace::Record { position: Seq(position), offset: 0, length: u32::MAX }
}

/// Sends the bodies of a member; gives what has arrived. Records 1 and 2 are there, no others.
async fn sent(places: Vec<Vec<(u64, BodyPlace)>>) -> (Result<(), SendError>, Vec<(u64, Bytes)>) {
    let log = MemoryLog::new();
    let tail = Arc::new(Tail::new(0));
    let disk =
        Disk { log: Arc::clone(&log) as _, watermark: log.watermark(), tail, limits: LIMITS };
    let member = Arc::new(Mover(Mutex::new(places)));
    let seat = Arc::new(Seat::new(node(1), member, 0, Ballot::new(GROUP, Arc::default())));
    let recovered = Recovered::new(Seq(0));
    let log =
        Arc::new(GroupLog::new(GROUP.stream(), Class::Bulk, disk, Arc::clone(&seat), recovered));
    let record =
        |name: u64| (Head::Carried { name }, Payload::Bytes(Bytes::from(format!("body {name}"))));
    log.carry(Class::Vital, vec![record(1), record(2)]);
    let taker = Arc::new(Taker::default());
    let sender =
        Sender { address: Address::new(GROUP), transport: Arc::clone(&taker) as _, log, seat };
    let image = Image::Own { state: Bytes::from("state") };
    let snapshot = Snapshot { meta: SnapshotMeta::default(), snapshot: image };
    let sent = sender.send(node(2), vote(1, 1, true), snapshot).await.map(drop);
    let arrived = taker.0.lock().clone();
    (sent, arrived)
}

#[tokio::test]
async fn a_body_that_moved_while_it_was_to_be_read_is_sent_from_where_it_is() {
    let (result, arrived) = sent(vec![
        // The record with the second one was given up: it lies alone now.
        vec![(1, at(1)), (2, at(9))],
        vec![(1, at(1)), (3, at(2))],
    ])
    .await;
    result.unwrap();
    assert_eq!(arrived, [(1, Bytes::from("body 1")), (3, Bytes::from("body 2"))]);
}

#[tokio::test]
async fn a_body_that_was_settled_meanwhile_is_not_needed() {
    let (result, arrived) = sent(vec![vec![(1, at(1)), (2, at(9))], vec![(1, at(1))]]).await;
    result.unwrap();
    assert_eq!(arrived.len(), 1);
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_not_passed_over() {
    let (result, _) = sent(vec![vec![(1, at(1)), (2, at(9))]]).await;
    assert!(matches!(result, Err(SendError::Disk(_))));
}
