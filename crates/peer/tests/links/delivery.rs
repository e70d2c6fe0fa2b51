//! What arrives, in which order, and what waits.

use crate::node::{DEADLINE, Heard, two};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use model::id::NodeId;
use peer::frame::PAYLOAD_MAX;
use peer::links::RequestError;
use peer::outbox::NotSent;
use std::sync::Arc;
use std::time::Duration;

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);

fn numbered(number: u64, bytes: usize) -> Bytes {
    let mut payload = BytesMut::new();
    payload.put_u64(number);
    payload.resize(bytes.max(8), 7);
    payload.freeze()
}

#[tokio::test]
async fn a_hundred_thousand_messages_arrive_in_order() {
    let (a, b) = two(|options| options).await;
    // of all sizes: copied, sliced, larger than a read
    let bytes = |number: u64| match number % 1000 {
        0 => 300_000,
        n if n % 100 == 1 => 5000,
        n => usize::try_from(n).unwrap() / 4,
    };
    let sending = tokio::spawn({
        let links = Arc::clone(&a.links);
        async move {
            for number in 0..100_000 {
                let channel = u8::try_from(number % 3).unwrap();
                while let Err(error) = links.send(B, channel, numbered(number, bytes(number))) {
                    assert_eq!(error, NotSent::Full);
                    links.room(B).await;
                }
            }
        }
    });
    let mut next = [0, 1, 2];
    let mut received = 0;
    while received < 100_000 {
        let Heard::Messages(from, channel, messages) = b.ear.next().await else { panic!("else") };
        assert_eq!(from, A);
        for mut message in messages {
            let length = message.len();
            let number = message.get_u64();
            assert_eq!(number, next[usize::from(channel)]);
            assert_eq!(length, bytes(number).max(8));
            assert!(message.iter().all(|byte| *byte == 7));
            next[usize::from(channel)] += 3;
            received += 1;
        }
    }
    sending.await.unwrap();
}

#[tokio::test]
async fn requests_keep_their_place_among_the_messages_of_their_channel() {
    let (a, b) = two(|options| options).await;
    a.send(B, 1, numbered(0, 8)).unwrap();
    let first = a.ask(B, 1, numbered(1, 8)).unwrap();
    a.send(B, 1, numbered(2, 8)).unwrap();
    let second = a.ask(B, 1, numbered(3, 8)).unwrap();
    let third = a.ask(B, 1, numbered(4, 8)).unwrap();
    let mut order = Vec::new();
    while order.len() < 5 {
        match b.ear.next().await {
            Heard::Messages(_, 1, messages) => order.extend(messages),
            Heard::Request(_, 1, payload) => order.push(payload),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(order, (0..5).map(|number| numbered(number, 8)).collect::<Vec<_>>());
    // answers in another order, one of them by nobody
    let mut answers = std::mem::take(&mut *b.ear.answers.lock().unwrap());
    answers.pop_back().unwrap().send(Bytes::from_static(b"third"));
    assert_eq!(third.await, Ok(Bytes::from_static(b"third")));
    drop(answers.pop_back());
    assert_eq!(second.await, Err(RequestError::Dropped));
    answers.pop_back().unwrap().send(Bytes::from_static(b"first"));
    assert_eq!(first.await, Ok(Bytes::from_static(b"first")));

    let late = a.request(B, 1, Bytes::new(), Duration::from_millis(10)).await;
    assert_eq!(late, Err(RequestError::TimedOut));
    let (_, answer) = b.ear.request().await;
    answer.send(Bytes::new());
    // the late answer is for nobody, and does no harm
    let asking = tokio::spawn({
        let links = Arc::clone(&a.links);
        async move { links.request(B, 1, Bytes::new(), DEADLINE).await }
    });
    b.ear.request().await.1.send(Bytes::from_static(b"yes"));
    assert_eq!(asking.await.unwrap(), Ok(Bytes::from_static(b"yes")));
}

#[tokio::test]
async fn both_sides_talk_at_once() {
    let (a, b) = two(|options| options).await;
    let talk = async |links: &peer::links::Links, to: NodeId| {
        for number in 0..2000 {
            links.request(to, 1, numbered(number, 1000), DEADLINE).await.unwrap();
        }
    };
    let answer = async |ear: &crate::node::Ear| {
        for _ in 0..2000 {
            let (payload, answer) = ear.request().await;
            answer.send(payload);
        }
    };
    tokio::join!(talk(&a, B), talk(&b, A), answer(&a.ear), answer(&b.ear));
}

#[tokio::test]
async fn what_waits_is_bounded() {
    let max = 1_000_000;
    let (a, b) = two(|mut options| {
        options.queue_bytes_max = max;
        options
    })
    .await;
    // This thread runs everything, so nothing is written meanwhile.
    let payload = numbered(0, 1000);
    let mut sent = 0;
    while a.send(B, 1, payload.clone()).is_ok() {
        sent += 1;
    }
    assert!((max / 1100..=max / 1000).contains(&sent), "{sent}");
    assert_eq!(a.send(B, 1, payload.clone()), Err(NotSent::Full));
    assert_eq!(a.ask(B, 1, payload.clone()).unwrap_err(), NotSent::Full);
    // a request waits for its turn
    let asking = tokio::spawn({
        let links = Arc::clone(&a.links);
        async move { links.request(B, 1, Bytes::new(), DEADLINE).await }
    });
    a.room(B).await;
    let mut received = 0;
    loop {
        match b.ear.next().await {
            Heard::Messages(_, _, messages) => received += messages.len(),
            Heard::Request(..) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(received, sent);
    b.ear.answers.lock().unwrap().pop_front().unwrap().send(Bytes::new());
    assert_eq!(asking.await.unwrap(), Ok(Bytes::new()));
}

#[tokio::test]
async fn requests_are_not_read_while_too_many_answers_wait() {
    let (a, b) = two(|mut options| {
        options.queue_bytes_max = 100_000;
        options
    })
    .await;
    // 3 questions in one read, and answers of which one is as much as may wait
    let questions: Vec<_> = (0..300).map(|n| a.ask(B, 1, numbered(n, 8)).unwrap()).collect();
    let answering = tokio::spawn(async move {
        for _ in 0..300 {
            let (payload, answer) = b.ear.request().await;
            answer.send(numbered(payload.as_ref().get_u64(), 100_000));
        }
        b
    });
    for (number, question) in questions.into_iter().enumerate() {
        assert_eq!(question.await.unwrap(), numbered(number as u64, 100_000));
    }
    answering.await.unwrap();
}

#[tokio::test]
async fn large_payloads_pass_in_order_and_larger_ones_than_can_be_are_not_taken() {
    let (a, b) = two(|options| options).await;
    // Several frames, of which the first ones are parts.
    let large: Vec<u8> = (0..20_000_000_u32).map(|n| (n ^ (n >> 8)).to_le_bytes()[0]).collect();
    let large = Bytes::from(large);
    a.send(B, 1, Bytes::from_static(b"before")).unwrap();
    a.send(B, 1, large.clone()).unwrap();
    a.room(B).await;
    a.send(B, 1, Bytes::from_static(b"behind")).unwrap();
    let mut messages = Vec::new();
    while messages.len() < 3 {
        let Heard::Messages(_, _, more) = b.ear.next().await else { panic!("no message") };
        messages.extend(more);
    }
    assert!(
        messages == [Bytes::from_static(b"before"), large.clone(), Bytes::from_static(b"behind")]
    );
    let question = a.ask(B, 1, large.clone()).unwrap();
    let (payload, answer) = b.ear.request().await;
    assert!(payload == large);
    answer.send(payload);
    assert!(question.await.unwrap() == large);
    let payload = Bytes::from(vec![0; PAYLOAD_MAX + 1]);
    assert_eq!(a.send(B, 1, payload), Err(NotSent::TooLarge(PAYLOAD_MAX + 1)));
}
