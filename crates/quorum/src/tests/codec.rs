//! Messages come back as they were, and nothing that arrives makes a decoder panic.

use crate::group::GroupId;
use crate::rpc::{Message, Request, decode_vote_response, encode_vote_response};
use crate::types::{
    AppendRequest, Data, Entry, Membership, Payload, TransferRequest, VoteRequest, VoteResponse,
    log_id, vote,
};
use bytes::Bytes;
use openraft::raft::StreamAppendError;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let normal = proptest::collection::vec(any::<u8>(), 0..300)
        .prop_map(|bytes| Payload::Normal(Data(Bytes::from(bytes))));
    let membership = proptest::collection::btree_set(any::<u64>(), 1..6).prop_map(|nodes| {
        let voters: BTreeSet<u64> = nodes.iter().copied().skip(nodes.len() / 2).collect();
        let nodes: Vec<(u64, ())> = nodes.into_iter().map(|node| (node, ())).collect();
        let nodes: std::collections::BTreeMap<u64, ()> = nodes.into_iter().collect();
        Payload::Membership(Membership::new(vec![voters.clone(), voters], nodes).unwrap())
    });
    let payload = prop_oneof![Just(Payload::Blank), normal, membership];
    let entry = (any::<u64>(), any::<u64>(), payload)
        .prop_map(|(term, index, payload)| Entry { log_id: log_id(term, index), payload });
    proptest::collection::vec(entry, 0..20)
}

proptest! {
    #[test]
    fn appends_come_back(entries in entries(), session: u64, number: u64, prev: Option<(u64, u64)>) {
        let request = AppendRequest {
            vote: vote(9, session, true),
            prev_log_id: prev.map(|(term, index)| log_id(term, index)),
            entries,
            leader_commit: prev.map(|(term, index)| log_id(index, term)),
        };
        let group = GroupId(number);
        let message = Message::Append { group, session, number, request: request.clone() };
        let Message::Append { group, session: s, number: n, request: back } =
            Message::decode(message.encode()).unwrap() else { panic!("another kind") };
        prop_assert_eq!((group, s, n), (GroupId(number), session, number));
        prop_assert_eq!(format!("{request:?}"), format!("{back:?}"));
        prop_assert_eq!(request.entries, back.entries);
    }

    #[test]
    fn damaged_bytes_are_refused_or_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        drop(Message::decode(bytes.clone()));
        drop(Request::decode(bytes.clone()));
        drop(decode_vote_response(bytes));
    }

    #[test]
    fn cut_messages_are_refused(entries in entries(), cut: prop::sample::Index) {
        let request = AppendRequest {
            vote: vote(1, 2, true), prev_log_id: None, entries, leader_commit: None,
        };
        let message = Message::Append { group: GroupId(1), session: 2, number: 3, request };
        let bytes = message.encode();
        let cut = cut.index(bytes.len());
        prop_assert!(Message::decode(bytes.slice(..cut)).is_err());
    }
}

#[test]
fn answers_come_back() {
    let results = [
        Ok(None),
        Ok(Some(log_id(3, 4))),
        Err(StreamAppendError::Conflict(log_id(5, 6))),
        Err(StreamAppendError::HigherVote(vote(7, 8, false))),
    ];
    for result in results {
        let group = GroupId(1);
        let message = Message::Appended { group, session: 2, number: 3, result: result.clone() };
        match Message::decode(message.encode()).unwrap() {
            Message::Appended { session: 2, number: 3, result: back, .. } => {
                assert_eq!(back, result);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn requests_come_back() {
    let vote_request =
        VoteRequest { vote: vote(1, 2, false), last_log_id: None, leadership_transfer: true };
    let transfer = TransferRequest::new(vote(3, 4, true), 5, Some(log_id(6, 7)));
    let requests = [
        Request::Vote { group: GroupId(1), request: vote_request.clone() },
        Request::PreVote { group: GroupId(2), request: vote_request },
        Request::Transfer { group: GroupId(3), request: transfer },
        Request::Ask { groups: vec![(GroupId(4), None), (GroupId(5), Some(log_id(6, 7)))] },
    ];
    for request in requests {
        assert_eq!(Request::decode(request.encode()), Ok(request));
    }
    let response = VoteResponse::new(vote(1, 2, false), Some(log_id(3, 4)), true);
    assert_eq!(decode_vote_response(encode_vote_response(&response)), Ok(response));
}
