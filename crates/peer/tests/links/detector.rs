//! Who is up, who is down and why.

use crate::node::{DEADLINE, Place, With, error, options, two};
use crate::proxy::Proxy;
use bytes::Bytes;
use model::id::NodeId;
use peer::handler::Loss;
use peer::links::RequestError;
use peer::outbox::NotSent;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn two_nodes_come_up_whoever_is_first() {
    let (place_a, place_b) = (Place::new(), Place::new());
    let a = options("a", 1, 7, &place_a).peer("b", place_b.1).start().await;
    error(&a, "b", "refused").await;
    assert!(a.ear.silent());
    let b = options("b", 2, 1, &place_b).peer("a", place_a.1).start().await;
    let up = b.ear.up().await;
    assert_eq!(up, *a.me());
    assert_eq!((up.boot, &*up.facts), (7, &b"facts of a"[..]));
    assert_eq!(a.ear.up().await, *b.me());
    assert_eq!(a.peers()[0].up.as_ref(), Some(b.me()));
    assert_eq!(a.peers()[0].error, None);
}

#[tokio::test]
async fn a_node_that_is_not_known_comes_in_by_dialling() {
    let (place_a, place_b) = (Place::new(), Place::new());
    let a = options("a", 1, 1, &place_a).start().await;
    let b = options("b", 2, 1, &place_b).peer("a", place_a.1).start().await;
    assert_eq!(a.ear.up().await, *b.me());
    assert_eq!(b.ear.up().await, *a.me());
    let seen = a.peers().remove(0);
    assert_eq!((seen.address, seen.advertised), (None, Some(place_b.1.to_string())));
}

#[tokio::test]
async fn what_does_not_belong_is_refused_in_words() {
    let (place_a, place_b, place_c) = (Place::new(), Place::new(), Place::new());
    let a = options("a", 1, 1, &place_a).start().await;
    let from = || options("b", 2, 5, &place_b).peer("a", place_a.1);

    let mut wrong = from();
    wrong.secret = peer::secret::Secret::new(b"guess");
    let b = wrong.start().await;
    error(&b, "a", "wrong secret").await;
    b.stop().await;

    let mut wrong = from();
    wrong.cluster = "other".into();
    let b = wrong.start().await;
    error(&b, "a", "other cluster: dialled as \"other\", this one is \"test\"").await;
    b.stop().await;

    let b = options("b", 2, 5, &place_b).peer("c", place_a.1).start().await;
    error(&b, "c", "wrong name: dialled as \"c\", it is \"a\"").await;
    b.stop().await;

    let b = options("b", 2, 5, &place_b).peer("c", place_b.1).start().await;
    error(&b, "c", "dialled oneself").await;
    b.stop().await;

    *a.ear.unwanted.lock().unwrap() = Some("it was forgotten");
    let b = from().start().await;
    error(&b, "a", "not admitted: it was forgotten").await;
    b.stop().await;
    assert!(a.ear.silent() && b.ear.silent());
    *a.ear.unwanted.lock().unwrap() = None;

    // now one that belongs, and those that cannot be beside it
    let b = from().start().await;
    assert_eq!(a.ear.up().await, *b.me());
    let other = |name, id, boot| options(name, id, boot, &place_c).peer("a", place_a.1);
    for (wrong, words) in [
        (other("b", 3, 5), "name already connected with another node id"),
        (other("b", 2, 5), "duplicate identity"),
        (other("b", 2, 4), "boot 4 came, boot 5 is connected"),
        (other("c", 2, 5), "connected under the name \"b\""),
        (other("c", 1, 5), "duplicate identity"),
        (other("a", 3, 5).peer("x", place_a.1), "\"a\" is node 0000000000000001 here"),
    ] {
        let name = if &*wrong.me.name == "a" { "x" } else { "a" };
        let c = wrong.start().await;
        error(&c, name, words).await;
        assert!(c.ear.silent());
        assert!(!c.ear.refused.lock().unwrap().is_empty(), "its upper layers hear of it: {words}");
        c.stop().await;
    }
    assert!(a.ear.silent());
}

#[tokio::test]
async fn a_peer_that_dies_is_down_at_once_and_up_again_with_its_new_boot() {
    let (place_a, place_b) = (Place::new(), Place::new());
    let a = options("a", 1, 1, &place_a).peer("b", place_b.1).start().await;
    let b = options("b", 2, 1, &place_b).peer("a", place_a.1).start().await;
    a.ear.up().await;
    let question = a.ask(NodeId(2), 1, Bytes::new()).unwrap();
    b.ear.up().await;
    let (_, unanswered) = b.ear.request().await;
    let waiting = tokio::spawn({
        let links = Arc::clone(&a.links);
        async move { links.request(NodeId(2), 1, Bytes::new(), DEADLINE).await }
    });
    let (_, late) = b.ear.request().await;
    b.stop().await;
    // The silence timeout is as long as the tests' patience, so this is not it.
    let begin = Instant::now();
    assert_eq!(question.await, Err(RequestError::Lost));
    assert_eq!(waiting.await.unwrap(), Err(RequestError::Lost));
    assert_eq!(a.ear.down().await, (b.me().clone(), Loss::Refused));
    assert!(begin.elapsed() < DEADLINE / 2);
    late.send(Bytes::new());
    drop(unanswered);
    assert_eq!(a.send(NodeId(2), 1, Bytes::new()), Err(NotSent::NotConnected));
    a.room(NodeId(2)).await;
    let refused = a.request(NodeId(2), 1, Bytes::new(), DEADLINE).await;
    assert_eq!(refused, Err(NotSent::NotConnected.into()));
    assert_eq!(a.peers()[0].up, None);

    let again = options("b", 2, 2, &place_b).peer("a", place_a.1).start().await;
    assert_eq!(a.ear.up().await.boot, 2);
    again.ear.up().await;
    again.stop().await;
    assert_eq!(a.ear.down().await, (again.me().clone(), Loss::Refused));

    // and one that has lost its data, under the same name
    let wiped = options("b", 3, 1, &place_b).peer("a", place_a.1).start().await;
    assert_eq!(a.ear.up().await, *wiped.me());
    assert_eq!(a.send(NodeId(2), 1, Bytes::new()), Err(NotSent::NotConnected));
    assert_eq!(a.send(NodeId(3), 1, Bytes::new()), Ok(()));
}

#[tokio::test]
async fn a_silent_peer_is_down_after_the_timeout_and_up_when_it_speaks_again() {
    let timeout = Duration::from_millis(400);
    let (place_a, place_b) = (Place::new(), Place::new());
    let (to_a, to_b) = (Proxy::new(place_a.1).await, Proxy::new(place_b.1).await);
    let advertise = |mut options: peer::options::Options, proxy: &Proxy| {
        options.me.address = proxy.address.to_string();
        options.silence(timeout)
    };
    let a = advertise(options("a", 1, 1, &place_a), &to_a).peer("b", to_b.address).start().await;
    let b = advertise(options("b", 2, 1, &place_b), &to_b).peer("a", to_a.address).start().await;
    a.ear.up().await;
    b.ear.up().await;
    let question = a.ask(NodeId(2), 1, Bytes::new()).unwrap();
    let _unanswered = b.ear.request().await;
    let begin = Instant::now();
    to_a.silent(true);
    to_b.silent(true);
    assert_eq!(question.await, Err(RequestError::Lost));
    assert_eq!(a.ear.down().await, (b.me().clone(), Loss::Silent));
    assert!(begin.elapsed() >= timeout / 2, "{:?}", begin.elapsed());
    let (_, why) = b.ear.down().await;
    assert!(matches!(why, Loss::Silent | Loss::Gone), "{why}");
    error(&a, "b", "no answer within 400ms").await;
    to_a.silent(false);
    to_b.silent(false);
    assert_eq!(a.ear.up().await, *b.me());
    assert_eq!(b.ear.up().await, *a.me());

    // one direction is enough to be down on both sides
    to_b.silent(true);
    for node in [&a, &b] {
        let (_, why) = node.ear.down().await;
        assert!(matches!(why, Loss::Silent | Loss::Gone), "{why}");
    }
    to_b.silent(false);
    a.ear.up().await;
    b.ear.up().await;
}

#[tokio::test]
async fn a_connection_that_breaks_is_mended_and_both_hear_of_it() {
    let (place_a, place_b) = (Place::new(), Place::new());
    let to_b = Proxy::new(place_b.1).await;
    let a = options("a", 1, 1, &place_a).peer("b", to_b.address).start().await;
    let mut b = options("b", 2, 1, &place_b);
    b.me.address = to_b.address.to_string();
    let b = b.peer("a", place_a.1).start().await;
    a.ear.up().await;
    b.ear.up().await;
    for _ in 0..20 {
        let question = a.ask(NodeId(2), 1, Bytes::new()).unwrap();
        let _unanswered = b.ear.request().await;
        to_b.cut();
        assert_eq!(question.await, Err(RequestError::Lost));
        assert_eq!(a.ear.down().await, (b.me().clone(), Loss::Reset));
        assert_eq!(b.ear.down().await, (a.me().clone(), Loss::Reset));
        a.ear.up().await;
        b.ear.up().await;
    }
}

#[tokio::test]
async fn one_that_listens_and_says_nothing_is_never_up() {
    let place = Place::new();
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let a = options("a", 1, 1, &place)
        .silence(Duration::from_millis(100))
        .peer("mute", mute.local_addr().unwrap())
        .start()
        .await;
    error(&a, "mute", "no answer within 100ms").await;
    assert!(a.ear.silent());
    // it is dialled again, and the connection of the first dial was closed
    for _ in 0..2 {
        let (mut stream, _) = mute.accept().await.unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.unwrap();
        assert!(said.starts_with(b"LEVRPEER"));
    }
}

#[tokio::test]
async fn strangers_are_closed_and_do_not_disturb() {
    let (a, b) = two(|options| options).await;
    let mut stranger = TcpStream::connect(a.local_addr()).await.unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    stranger.read_to_end(&mut said).await.unwrap();
    assert!(said.is_empty());
    // as many as can be, and then some, who all say nothing
    let mut strangers = Vec::new();
    for _ in 0..70 {
        strangers.push(TcpStream::connect(a.local_addr()).await.unwrap());
    }
    for mut stranger in strangers {
        let mut said = Vec::new();
        stranger.read_to_end(&mut said).await.unwrap();
        assert!(said.is_empty());
    }
    assert_eq!(a.send(NodeId(2), 1, Bytes::new()), Ok(()));
    b.ear.next().await;
    assert!(a.ear.silent() && b.ear.silent());
}

#[tokio::test]
async fn a_removed_peer_is_down_and_a_readded_one_up() {
    let (a, b) = two(|options| options).await;
    *a.ear.unwanted.lock().unwrap() = Some("removed");
    a.remove_peer("b");
    assert_eq!(a.ear.down().await, (b.me().clone(), Loss::Removed));
    assert_eq!(b.ear.down().await, (a.me().clone(), Loss::Gone));
    error(&b, "a", "not admitted: removed").await;
    assert_eq!(a.peers(), []);
    *a.ear.unwanted.lock().unwrap() = None;
    let again = || a.add_peer(&"b".into(), &b.local_addr().to_string());
    again();
    a.ear.up().await;
    b.ear.up().await;
    // what was before is over before it begins anew
    for _ in 0..10 {
        a.remove_peer("b");
        again();
        assert_eq!(a.ear.down().await, (b.me().clone(), Loss::Removed));
        assert_eq!(a.ear.up().await, *b.me());
        assert_eq!(b.ear.down().await.0, *a.me());
        assert_eq!(b.ear.up().await, *a.me());
    }
}
