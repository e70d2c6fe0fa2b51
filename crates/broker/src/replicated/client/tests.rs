//! What a client makes of what leaders tell it, and of leaders that are lost.

use std::sync::Arc;

use amqp::mailbox::Mailbox;
use model::message::Message;

use super::*;
use crate::origin::InFlight;
use crate::outlet::Outlet;
use crate::replicated::order::Published;

const ME: Sender = Sender { node: NodeId(1), boot: 1 };
const LEADER: Leader = Leader { node: NodeId(2), term: 3 };
const NEXT: Leader = Leader { node: NodeId(3), term: 4 };
const NOW: Timestamp = Timestamp(7);
const CONSUMER: ConsumerId = ConsumerId(5);

fn notice(upto: u64, items: Vec<Item>) -> Notice {
    Notice { queue: QueueId(9), term: LEADER.term, boot: 1, upto, expected: 0, items }
}

fn next(upto: u64, items: Vec<Item>) -> Notice {
    Notice { term: NEXT.term, ..notice(upto, items) }
}

/// A client with a connection, which hears of what the client posts to it.
struct Rig {
    client: Client,
    outboxes: Outboxes,
    origin: Arc<Origin>,
    mailbox: Mailbox,
}

impl Rig {
    fn new() -> Self {
        let mailbox = Mailbox::new();
        let origin = Arc::new(Origin {
            id: ConnectionId(1),
            outlet: Outlet::new(mailbox.clone()),
            totals: Arc::default(),
            in_flight: InFlight::default(),
        });
        let mut client = Client::new(QueueId(9), ME);
        client.follow(NOW, Some(LEADER));
        Self { client, outboxes: Outboxes::default(), origin, mailbox }
    }

    /// One whose `basic.get`, the second of its orders, is on its way.
    fn getting() -> (Self, oneshot::Receiver<Got>) {
        let mut rig = Self::new();
        let (to, got) = oneshot::channel();
        let get = Order::Get { connection: ConnectionId(1), no_ack: true };
        rig.client.order(NOW, get, Asker::Get(to));
        assert!(rig.client.batch().is_some());
        (rig, got)
    }

    /// One with a consumer.
    fn consuming(no_ack: bool) -> Self {
        let mut rig = Self::new();
        rig.client.seat(&mut rig.outboxes, CONSUMER, &rig.origin, 1, no_ack);
        rig.client.order(NOW, Order::Count, Asker::Nobody);
        rig
    }

    fn tell(&mut self, notice: Notice) {
        self.client.notice(NOW, &mut self.outboxes, notice);
    }

    fn settle(&mut self, seqs: std::ops::RangeInclusive<u64>) {
        let runs =
            vec![Run { holder: Some(CONSUMER), first: Seq(*seqs.start()), last: Seq(*seqs.end()) }];
        let outcome = Settlement::Client(Outcome::Accept);
        self.client.order(NOW, Order::Settle { runs, outcome }, Asker::Nobody);
    }

    /// The names of messages that the session has got since it was last asked.
    async fn delivered(&mut self) -> Vec<u64> {
        self.outboxes.flush();
        self.mailbox.post_one(Event::Unblocked);
        let events = self.mailbox.next().await;
        let seq = |event: &Event| match event {
            Event::Deliver(delivery) => Some(delivery.seq.0),
            _ => None,
        };
        events.iter().filter_map(seq).collect()
    }

    /// A publish that is to be confirmed under this number.
    fn publish(&mut self, number: u64) {
        let message = Message::from_parts("", "key", &[0, 0], b"body");
        let order =
            Order::Publish(Published { persistent: true, priority: None, ttl: None, message });
        let done = Done::Confirm { channel: 1, number };
        let origin = Some(Arc::clone(&self.origin));
        self.client.order(NOW, order, Asker::Publisher { origin, bytes: 0, done });
    }

    /// The publishes that were answered since this was last asked, in order, and how.
    async fn confirmed(&mut self) -> Vec<(u64, bool)> {
        self.mailbox.post_one(Event::Unblocked);
        let events = self.mailbox.next().await;
        let answer = |event: &Event| match event {
            Event::Confirmed { number, accepted, .. } => Some((*number, *accepted)),
            _ => None,
        };
        events.iter().filter_map(answer).collect()
    }

    /// The last order, and its number.
    fn last(&self) -> (u64, String) {
        let last = self.client.courier.waiting().last().expect("something waits");
        (self.client.courier.next() - 1, format!("{:?}", last.order))
    }
}

fn deliver(seq: u64, again: bool) -> Item {
    let message = Message::from_parts("", "key", &[0, 0], b"body");
    Item::Deliver { consumer: CONSUMER, seq: Seq(seq), redelivered: false, again, message }
}

#[test]
fn an_answer_may_overtake_the_word_that_its_order_was_performed() {
    let (mut rig, mut got) = Rig::getting();
    rig.tell(notice(0, vec![Item::Reply { number: 2, reply: Reply::Empty }]));
    assert!(matches!(got.try_recv(), Ok(Got::Empty)), "who answers has performed it");
    rig.tell(notice(2, Vec::new()));
    assert_eq!(rig.client.courier.len(), 0);
}

/// The word that orders are performed waits for the disk if a publish is among them: those who read do
/// not, and nothing of theirs is done twice when somebody else leads.
#[tokio::test]
async fn who_reads_does_not_wait_for_a_publish_that_has_no_room() {
    let mut rig = Rig::new();
    rig.publish(1);
    let (to, mut got) = oneshot::channel();
    let get = Order::Get { connection: ConnectionId(1), no_ack: true };
    rig.client.order(NOW, get, Asker::Get(to));
    let (to, mut purged) = oneshot::channel();
    rig.client.order(NOW, Order::Purge, Asker::Purge(to));
    assert!(rig.client.batch().is_some());
    // Hello and the publish are before them.
    rig.tell(notice(0, vec![Item::Reply { number: 4, reply: Reply::Purged(3) }]));
    rig.tell(notice(0, vec![Item::Reply { number: 3, reply: Reply::Empty }]));
    assert!(matches!(got.try_recv(), Ok(Got::Empty)));
    assert!(matches!(purged.try_recv(), Ok(Some(3))));
    // Nobody can answer a publish like that.
    rig.tell(notice(0, vec![Item::Reply { number: 2, reply: Reply::Empty }]));
    assert_eq!(rig.confirmed().await, []);
    rig.client.follow(NOW, Some(NEXT));
    let orders = rig.client.courier.waiting().map(|pending| format!("{:?}", pending.order));
    let orders: Vec<_> = orders.collect();
    assert_eq!(orders[2..], ["Nothing", "Nothing", "Attach { consumers: [] }"]);
    rig.tell(next(5, Vec::new()));
    assert_eq!(rig.confirmed().await, [(1, true)]);
}

/// While whoever keeps the queue has no room publishes wait for it, and then as long as usual.
#[tokio::test]
async fn publishes_that_wait_for_room_are_not_refused() {
    let mut rig = Rig::new();
    rig.publish(1);
    let full_until = Timestamp(NOW.0 + 100_000);
    rig.client.excuse(full_until);
    assert_eq!(rig.client.oldest_publish(), Some(full_until));
    assert_eq!(rig.client.refuse_older(full_until), 0);
    assert_eq!(rig.client.refuse_older(Timestamp(full_until.0 + 1)), 1);
    assert_eq!(rig.confirmed().await, [(1, false)]);
}

/// Who has won an election is heard of before it is ready, and drops what comes until it is.
#[test]
fn what_was_sent_to_a_leader_on_hearsay_is_sent_again_when_it_says_itself_that_it_leads() {
    let at = |ms: u64| Timestamp(NOW.0 + ms);
    let (mut rig, _got) = Rig::getting();
    rig.client.follow(at(0), None);
    rig.client.hint(at(20_000), Some(NEXT));
    rig.client.hint(at(20_900), Some(NEXT));
    // It waited for long, but that somebody leads is news: it will say so itself.
    rig.client.tick(at(20_999));
    assert_eq!(rig.client.leader(), None);
    rig.client.tick(at(21_000));
    assert_eq!(rig.client.leader(), Some(NEXT));
    let sent = rig.client.batch().expect("it is tried");
    assert_eq!(sent.0, NEXT);
    assert_eq!(rig.client.batch(), None);
    rig.client.follow(at(21_300), Some(NEXT));
    assert_eq!(rig.client.batch(), Some(sent), "now it is heard");
    rig.client.follow(at(21_400), Some(NEXT));
    assert_eq!(rig.client.batch(), None, "once is enough");
    // One that has answered was ready.
    rig.client.follow(at(21_500), None);
    rig.client.tick(at(21_500 + TAKE_HINT));
    assert!(rig.client.batch().is_some());
    rig.tell(next(1, Vec::new()));
    rig.client.follow(at(22_600), Some(NEXT));
    assert_eq!(rig.client.batch(), None);
}

#[test]
fn a_get_that_its_leader_took_along_is_answered() {
    let (mut rig, mut got) = Rig::getting();
    rig.tell(notice(2, Vec::new()));
    rig.client.follow(NOW, Some(NEXT));
    rig.tell(next(3, vec![Item::Attaching { number: 3 }, Item::Attached { number: 3 }]));
    assert!(matches!(got.try_recv(), Ok(Got::Empty)));
}

#[test]
fn a_subscription_and_a_count_whose_answers_are_lost_are_answered() {
    let mut rig = Rig::consuming(false);
    let (to, mut consumed) = oneshot::channel();
    rig.client.order(NOW, Order::Nothing, Asker::Consume(CONSUMER, to));
    let (to, mut counted) = oneshot::channel();
    rig.client.order(NOW, Order::Count, Asker::Count(to));
    rig.tell(notice(4, Vec::new()));
    rig.client.follow(NOW, Some(NEXT));
    let (number, _) = rig.last();
    rig.tell(next(number, vec![Item::Attaching { number }, Item::Attached { number }]));
    assert!(matches!(consumed.try_recv(), Ok(Consumed::Done)));
    assert!(counted.try_recv().is_err());
    let (number, order) = rig.last();
    assert_eq!(order, "Count", "it is asked once more");
    let reply = Reply::Counted(Counts { ready: 3, consumers: 1 });
    rig.tell(next(number, vec![Item::Reply { number, reply }]));
    assert_eq!(counted.try_recv().ok().flatten().map(|counts| counts.ready), Some(3));
}

#[tokio::test]
async fn what_comes_before_the_leader_has_begun_to_repeat_leaves_gaps_and_is_passed_over() {
    let mut rig = Rig::consuming(false);
    rig.tell(notice(0, vec![deliver(1, false), deliver(2, false)]));
    assert_eq!(rig.delivered().await, [1, 2]);
    // The connection to the leader breaks and is made anew; 3 was under way.
    rig.client.follow(NOW, None);
    rig.tell(notice(0, vec![deliver(3, false)]));
    rig.client.follow(NOW, Some(LEADER));
    rig.tell(notice(0, vec![deliver(4, false)]));
    assert_eq!(rig.delivered().await, [0; 0], "3 would come after 4");
    let (number, _) = rig.last();
    let again = (1..=4).map(|seq| deliver(seq, true));
    rig.tell(notice(0, [Item::Attaching { number }].into_iter().chain(again).collect()));
    rig.tell(notice(0, vec![Item::Attached { number }, deliver(5, false)]));
    assert_eq!(rig.delivered().await, [3, 4, 5]);
}

#[tokio::test]
async fn a_consumer_that_settles_nothing_gets_what_comes() {
    let mut rig = Rig::consuming(true);
    rig.client.follow(NOW, None);
    rig.client.follow(NOW, Some(LEADER));
    rig.tell(notice(0, vec![deliver(4, false)]));
    assert_eq!(rig.delivered().await, [4], "nobody would repeat it");
}

#[tokio::test]
async fn what_is_settled_while_a_leader_repeats_it_is_not_delivered_again() {
    let mut rig = Rig::consuming(false);
    rig.tell(notice(0, (1..=4).map(|seq| deliver(seq, false)).collect()));
    assert_eq!(rig.delivered().await, [1, 2, 3, 4]);
    rig.client.follow(NOW, Some(NEXT));
    let (number, _) = rig.last();
    rig.settle(2..=2);
    // The acknowledgement of 3 has left its session and has not reached the client.
    rig.tell(next(0, vec![Item::Attaching { number }, deliver(2, true), deliver(3, true)]));
    rig.settle(3..=4);
    rig.tell(next(0, vec![deliver(4, true), Item::Attached { number }]));
    // It was asked twice, and answers twice.
    rig.tell(next(0, vec![Item::Attaching { number }, deliver(1, true), deliver(2, true)]));
    rig.tell(next(0, vec![Item::Attached { number }]));
    assert_eq!(rig.delivered().await, [0; 0]);
}

#[tokio::test]
async fn what_a_cancelled_consumer_never_got_is_given_back() {
    let mut rig = Rig::consuming(false);
    rig.tell(notice(0, vec![deliver(1, false)]));
    assert_eq!(rig.delivered().await, [1]);
    let (to, mut cancelled) = oneshot::channel();
    let cancel = Order::Cancel { consumer: CONSUMER };
    rig.client.order(NOW, cancel, Asker::Cancel(CONSUMER, to));
    let (number, _) = rig.last();
    let reply = Item::Reply { number, reply: Reply::Cancelled(false) };
    rig.tell(notice(number, vec![reply]));
    assert!(matches!(cancelled.try_recv(), Ok(false)));
    rig.client.follow(NOW, Some(NEXT));
    let (number, attach) = rig.last();
    assert_eq!(attach, "Attach { consumers: [] }", "it is no consumer any more");
    rig.tell(next(number, vec![Item::Attaching { number }, deliver(1, true)]));
    assert_eq!(rig.client.courier.len(), 0, "its session holds 1");
    rig.tell(next(0, vec![deliver(2, true), Item::Attached { number }]));
    let (_, order) = rig.last();
    assert!(order.contains("first: Seq(2)") && order.contains("Client(Return)"), "{order}");
    rig.settle(1..=1);
    assert!(rig.client.seats.is_empty(), "nothing is left of it");
}

#[test]
fn questions_wait_longer_than_publishes() {
    let mut rig = Rig::new();
    rig.client.follow(NOW, None);
    let (to, mut counted) = oneshot::channel();
    rig.client.order(NOW, Order::Count, Asker::Count(to));
    let publisher = Asker::Publisher { origin: None, bytes: 0, done: Done::Nothing };
    rig.client.order(NOW, Order::Nothing, publisher);
    assert_eq!(rig.client.refuse_older(Timestamp(NOW.0 + 1)), 1);
    assert_eq!(rig.client.refuse_older(Timestamp(NOW.0 + 1)), 0, "it is refused once");
    rig.client.follow(NOW, Some(LEADER));
    let counts = Counts { ready: 3, consumers: 1 };
    rig.tell(notice(3, vec![Item::Reply { number: 2, reply: Reply::Counted(counts) }]));
    assert_eq!(counted.try_recv().ok().flatten().map(|counts| counts.ready), Some(3));
}

/// Every publish is answered once, whether its queue had taken it, refused it, not performed it or not
/// even been sent it when it was deleted; and questions find no queue.
#[tokio::test]
async fn a_queue_that_is_deleted_under_a_publisher_answers_all() {
    let mut rig = Rig::new();
    for number in 1..=3 {
        rig.publish(number);
    }
    // The first order of a client says who it is.
    assert!(rig.client.batch().is_some());
    rig.tell(notice(3, vec![Item::Refused { number: 3 }]));
    assert_eq!(rig.confirmed().await, [(2, false), (1, true)]);
    rig.publish(4);
    assert!(rig.client.batch().is_some());
    rig.publish(5);
    let (to, mut got) = oneshot::channel();
    let get = Order::Get { connection: ConnectionId(1), no_ack: true };
    rig.client.order(NOW, get, Asker::Get(to));
    let Rig { client, mut outboxes, origin, mailbox } = rig;
    assert_eq!(client.end(&mut outboxes), 3);
    let mut rig = Rig { client: Client::new(QueueId(9), ME), outboxes, origin, mailbox };
    assert_eq!(rig.confirmed().await, [(3, true), (4, true), (5, true)]);
    assert!(matches!(got.try_recv(), Ok(Got::NoQueue)));
}

/// Without a leader in time whoever asks is told so, and goes: nobody does it minutes later.
#[test]
fn what_nobody_waits_for_any_more_is_not_done_by_a_later_leader() {
    let mut rig = Rig::new();
    let get = || Order::Get { connection: ConnectionId(1), no_ack: true };
    // The leader is lost before it answers.
    let (to, forsaken) = oneshot::channel();
    rig.client.order(NOW, get(), Asker::Get(to));
    assert!(rig.client.batch().is_some());
    rig.client.follow(NOW, None);
    let (to, purge) = oneshot::channel();
    rig.client.order(NOW, Order::Purge, Asker::Purge(to));
    let (to, _patient) = oneshot::channel();
    rig.client.order(NOW, get(), Asker::Get(to));
    rig.publish(1);
    drop((forsaken, purge));
    rig.client.follow(NOW, Some(NEXT));
    let orders: Vec<String> =
        rig.client.courier.waiting().map(|it| format!("{:?}", it.order)).collect();
    let begin = |wanted: &[&str]| {
        orders.len() == wanted.len()
            && orders.iter().zip(wanted).all(|(order, wanted)| order.starts_with(wanted))
    };
    assert!(begin(&["Hello", "Nothing", "Nothing", "Get", "Publish", "Attach"]), "{orders:?}");
}
