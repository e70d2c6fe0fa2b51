//! What a leader's stream of appends says at its end.

use crate::group::{Address, GroupId};
use crate::links::Links;
use crate::member::{Boxed, NotConnected, RequestError, Transport};
use crate::rpc::Message;
use crate::session::{Answer, Resting, Route, Session, Sessions};
use crate::tests::support::node;
use crate::types::{AppendRequest, LogId, log_id, vote};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use model::id::NodeId;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Keeps what is sent.
#[derive(Default)]
struct Wire(Mutex<Vec<Bytes>>);

impl Transport for Wire {
    fn send(&self, _: NodeId, payload: Bytes) -> Result<(), NotConnected> {
        self.0.lock().push(payload);
        Ok(())
    }

    fn has_room(&self, _: NodeId) -> bool {
        true
    }

    fn room(&self, _: NodeId) -> Boxed<()> {
        Box::pin(std::future::ready(()))
    }

    fn request(&self, _: NodeId, _: Bytes, _: Duration) -> Boxed<Result<Bytes, RequestError>> {
        Box::pin(std::future::pending())
    }
}

/// What a follower hears of a leader that sends these commits, each with its last entry or without
/// any, of which so many are answered, and then ends.
fn heard(commits: &[Option<LogId>], answered: usize, resting: Option<Resting>) -> Vec<String> {
    heard_by(9, commits, answered, resting)
}

/// The same of a follower that has taken entries up to this index.
fn heard_by(
    taken: u64,
    commits: &[Option<LogId>],
    answered: usize,
    resting: Option<Resting>,
) -> Vec<String> {
    let wire = Arc::new(Wire::default());
    let (links, sessions) = (Arc::new(Links::default()), Arc::new(Sessions::default()));
    links.on_up(node(2));
    let route = Route {
        address: Address::new(GroupId(7)),
        to: node(2),
        transport: Arc::clone(&wire) as _,
        links,
        sessions: Arc::clone(&sessions),
    };
    let (sender, mut requests) = mpsc::unbounded_channel();
    let input = futures_util::stream::poll_fn(move |context| requests.poll_recv(context));
    let mut session = Session::new(route.clone(), input);
    for leader_commit in commits {
        let (vote, prev_log_id) = (vote(4, 1, true), Some(log_id(4, 9)));
        let request =
            AppendRequest { vote, prev_log_id, entries: Vec::new(), leader_commit: *leader_commit };
        sender.send(request).expect("the session lives");
    }
    assert!(session.next().now_or_never().is_none(), "nothing is answered");
    let sent: Vec<Message> = wire.0.lock().iter().map(decoded).collect();
    for message in sent.into_iter().take(answered) {
        let Message::Append { session: number, number: at, .. } = message else { panic!() };
        sessions.on_answer(number, Answer::Appended(at, Ok(Some(log_id(4, taken)))));
        assert!(matches!(session.next().now_or_never(), Some(Some(Ok(Ok(_))))));
    }
    // openraft begins another stream whenever it likes, which knows nothing of the one before.
    drop(session);
    wire.0.lock().clear();
    let mut session = Session::new(route, futures_util::stream::pending());
    assert!(session.next().now_or_never().is_none());
    sessions.rest(resting);
    drop(session);
    let told = |message: Message| match message {
        Message::Append { number, request, .. } => {
            let index = |id: Option<LogId>| id.map_or(0, |id| id.index);
            let (prev, commit) = (index(request.prev_log_id), index(request.leader_commit));
            format!("{number}: after {prev}, {commit} is committed")
        }
        Message::Rests { term, .. } => format!("rests in term {term}"),
        Message::Closed { .. } => "closed".into(),
        other => format!("{other:?}"),
    };
    wire.0.lock().iter().map(|bytes| told(decoded(bytes))).collect()
}

fn decoded(bytes: &Bytes) -> Message {
    Message::decode(bytes.clone()).expect("it was just written")
}

#[test]
fn a_leader_that_falls_asleep_says_what_is_committed_unless_that_was_answered() {
    let (before, last) = (Some(log_id(4, 8)), Some(log_id(4, 9)));
    let resting = || Some(Resting { vote: vote(4, 1, true), last });
    let told = ["0: after 9, 9 is committed", "rests in term 4"];
    assert_eq!(heard(&[before], 1, resting()), told);
    assert_eq!(heard(&[before, last], 1, resting()), told, "it may not have got that");
    assert_eq!(heard(&[], 0, resting()), told);
    assert_eq!(heard(&[before, last], 2, resting()), ["rests in term 4"]);
    assert_eq!(heard(&[last, before], 2, resting()), ["rests in term 4"]);
    let early = heard_by(8, &[last], 1, resting());
    assert_eq!(early, told, "it did not have the last entry when it was told");
    assert_eq!(heard(&[before], 1, None), ["closed"], "it ends for another reason");
}
