use super::*;
use crate::frame::HEADER;

fn outbox(bytes_max: usize) -> Outbox {
    Outbox::new(Arc::default(), bytes_max)
}

#[tokio::test]
async fn it_takes_until_it_is_full_and_again_when_there_is_room() {
    let outbox = Arc::new(outbox(200));
    let payload = Bytes::from(vec![0; 100 - HEADER]);
    assert_eq!(outbox.message(1, payload.clone()), Ok(()));
    outbox.room().await;
    assert_eq!(outbox.message(1, payload.clone()), Ok(()));
    assert_eq!(outbox.message(1, payload.clone()), Err(NotSent::Full));
    assert_eq!(outbox.request(1, payload.clone()).unwrap_err(), NotSent::Full);
    // an answer was asked for, and is taken, as is what its sender bounds
    outbox.answer(7, Some(payload.clone()));
    assert_eq!(outbox.bounded_message(1, payload.clone()), Ok(()));
    let waiter = tokio::spawn({
        let outbox = Arc::clone(&outbox);
        async move { outbox.room().await }
    });
    let mut taken = VecDeque::new();
    outbox.take(&mut taken);
    assert_eq!(taken.iter().map(|frame| frame.kind as u8).collect::<Vec<_>>(), [1, 1, 3, 1]);
    // what is taken is not written yet
    assert_eq!(outbox.message(1, payload.clone()), Err(NotSent::Full));
    outbox.written(201);
    waiter.await.unwrap();
    assert_eq!(outbox.message(1, payload), Ok(()));
}

#[tokio::test]
async fn who_waits_hears_of_the_answer_or_of_the_loss() {
    let outbox = Arc::new(outbox(10));
    let ask = || outbox.request(1, Bytes::new());
    let (first, answer) = ask().unwrap();
    outbox.written(HEADER);
    outbox.answered(first, Ok(Bytes::from_static(b"yes")));
    assert_eq!(answer.await, Ok(Ok(Bytes::from_static(b"yes"))));

    let (second, answer) = ask().unwrap();
    outbox.written(HEADER);
    outbox.answered(second, Err(Unanswered));
    assert_eq!(answer.await, Ok(Err(Unanswered)));

    let (third, answer) = ask().unwrap();
    let waiter = tokio::spawn({
        let outbox = Arc::clone(&outbox);
        async move { outbox.room().await }
    });
    tokio::task::yield_now().await;
    outbox.close();
    assert!(answer.await.is_err());
    waiter.await.unwrap();
    outbox.answered(third, Ok(Bytes::new()));
    assert_eq!(ask().unwrap_err(), NotSent::NotConnected);
    assert_eq!(outbox.bounded_message(1, Bytes::new()), Err(NotSent::NotConnected));
    outbox.answer(1, None);
    let mut taken = VecDeque::new();
    outbox.take(&mut taken);
    assert!(taken.is_empty());
}

#[test]
fn what_cannot_be_a_frame_is_not_taken() {
    let outbox = outbox(1000);
    let payload = Bytes::from(vec![0; PAYLOAD_MAX + 1]);
    assert_eq!(outbox.message(1, payload.clone()), Err(NotSent::TooLarge(PAYLOAD_MAX + 1)));
    outbox.answer(1, Some(payload));
    let mut taken = VecDeque::new();
    outbox.take(&mut taken);
    assert_eq!(taken.iter().map(|frame| frame.kind).collect::<Vec<_>>(), [Kind::Dropped]);
}
