use super::*;
use crate::replicated::numbered::{Ledger, Verdict};
use tokio::sync::mpsc;

const ME: Sender = Sender { node: NodeId(1), boot: 1 };
const OTHER: NodeId = NodeId(2);
const THIRD: NodeId = NodeId(3);

/// Hands proposals to the test and says whether the leader takes them.
struct Wire {
    sent: mpsc::UnboundedSender<(NodeId, Proposal)>,
    takes: Mutex<bool>,
}

impl Road for Wire {
    fn here(&self, proposal: Bytes) -> bool {
        let proposal = Proposal::decode(proposal).unwrap();
        drop(self.sent.send((ME.node, proposal)));
        *self.takes.lock()
    }

    async fn there(&self, leader: NodeId, proposal: Bytes) -> bool {
        let proposal = Proposal::decode(proposal).unwrap();
        drop(self.sent.send((leader, proposal)));
        *self.takes.lock()
    }
}

struct Rig {
    proposer: Arc<Proposer>,
    wire: Arc<Wire>,
    sent: mpsc::UnboundedReceiver<(NodeId, Proposal)>,
}

fn rig() -> Rig {
    let (sender, sent) = mpsc::unbounded_channel();
    let proposer = Arc::new(Proposer::new(ME));
    let wire = Arc::new(Wire { sent: sender, takes: Mutex::new(true) });
    proposer.members_changed(vec![ME.node, OTHER, THIRD], Vec::new());
    drop(tokio::spawn(Arc::clone(&proposer).pump(Arc::clone(&wire))));
    Rig { proposer, wire, sent }
}

impl Rig {
    fn submit(&self, command: &'static [u8]) -> tokio::task::JoinHandle<Answer> {
        let proposer = Arc::clone(&self.proposer);
        tokio::spawn(async move { proposer.submit(Bytes::from_static(command), false).await })
    }

    async fn next(&mut self) -> (NodeId, u64, Vec<Bytes>) {
        let (to, proposal) = self.sent.recv().await.expect("the pump runs");
        (to, proposal.first, proposal.commands)
    }
}

fn created() -> Outcome {
    Outcome { created: true, ..Outcome::default() }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_told_once_all_that_are_connected_have_applied_it() {
    let mut rig = rig();
    rig.proposer.on_up(OTHER);
    rig.proposer.on_up(THIRD);
    rig.proposer.led_by(4, Some(OTHER));
    let submitted = rig.submit(b"a");
    assert_eq!(rig.next().await, (OTHER, 1, vec![Bytes::from_static(b"a")]));
    rig.proposer.applied(9, 1, Ok(created()));
    rig.proposer.on_applied(OTHER, 9);
    tokio::task::yield_now().await;
    assert!(!submitted.is_finished(), "the third has not applied it");
    rig.proposer.on_down(THIRD);
    assert_eq!(submitted.await.unwrap(), Ok(created()));

    let begun = Instant::now();
    let submitted = rig.submit(b"b");
    assert_eq!(rig.next().await.1, 2);
    rig.proposer.applied(10, 2, Ok(created()));
    assert_eq!(
        submitted.await.unwrap(),
        Ok(created()),
        "a node that says nothing is not waited for"
    );
    assert!(begun.elapsed() <= SETTLE * 2);
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_a_change_is_refused_within_a_second_and_then_at_once() {
    let mut rig = rig();
    let begun = Instant::now();
    let refused = rig.submit(b"a").await.unwrap().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "INTERNAL_ERROR - metadata: no majority of the cluster is reachable"
    );
    assert!(begun.elapsed() <= PATIENCE + SETTLE);
    let begun = Instant::now();
    assert!(rig.submit(b"b").await.unwrap().is_err());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    // What was given up before anybody had it is not carried out later; what must be is.
    rig.proposer.order(Bytes::from_static(b"lasting"));
    rig.proposer.on_up(THIRD);
    rig.proposer.led_by(2, Some(THIRD));
    let commands = vec![Bytes::new(), Bytes::from_static(b"lasting")];
    assert_eq!(rig.next().await, (THIRD, 1, commands));
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_gets_everything_unanswered_again() {
    let mut rig = rig();
    rig.proposer.on_up(OTHER);
    rig.proposer.led_by(1, Some(OTHER));
    let first = rig.submit(b"a");
    assert_eq!(rig.next().await.1, 1);
    let second = rig.submit(b"b");
    assert_eq!(rig.next().await.1, 2);
    rig.proposer.on_applied(OTHER, 99);
    rig.proposer.applied(5, 1, Ok(created()));
    assert!(first.await.unwrap().is_ok());
    rig.proposer.led_by(2, None);
    *rig.wire.takes.lock() = false;
    rig.proposer.led_by(3, Some(ME.node));
    // It does not lead yet.
    assert_eq!(rig.next().await, (ME.node, 2, vec![Bytes::from_static(b"b")]));
    *rig.wire.takes.lock() = true;
    assert_eq!(rig.next().await, (ME.node, 2, vec![Bytes::from_static(b"b")]));
    rig.proposer.applied(6, 2, Err(Refusal::not_found("x")));
    assert_eq!(second.await.unwrap(), Err(Refusal::not_found("x")));
    rig.proposer.missing(2);
    assert_eq!(rig.proposer.leader(), Some(ME.node));
}

#[tokio::test(start_paused = true)]
async fn what_a_checkpoint_covers_has_no_outcome() {
    let mut rig = rig();
    rig.proposer.on_up(OTHER);
    rig.proposer.led_by(1, Some(OTHER));
    let submitted = rig.submit(b"a");
    assert_eq!(rig.next().await.1, 1);
    let mut ledger = Ledger::default();
    assert_eq!(ledger.take(ME, 1), Verdict::New);
    rig.proposer.skipped(ledger.last(ME));
    assert!(submitted.await.unwrap().unwrap_err().text.contains("not known"));
}
