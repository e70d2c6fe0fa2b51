//! The topology as the metadata group's log makes it.

use bytes::Bytes;
use metadata::command::{Command, PutNode};
use metadata::objects::node::NodeRole;
use metadata::objects::vhost::Vhost;
use model::id::{NodeId, Seq};
use quorum::member::Committed;

use super::bench::Bench;
use crate::cluster::proposal::Proposal;
use crate::replicated::numbered::Sender;
use crate::topology::Fate;

const SENDER: Sender = Sender { node: NodeId(7), boot: 1 };

fn entry(index: u64, sender: Sender, first: u64, commands: &[Command]) -> Committed {
    let commands = commands.iter().map(Command::encode).collect();
    let payload = Proposal { sender, first, commands }.encode();
    Committed { index, term: 1, position: Seq(index), payload }
}

fn vhost(name: &str) -> Command {
    Command::PutVhost(Vhost::named(name))
}

/// What became of an entry, as short words.
fn fates(bench: &Bench, entry: Committed) -> Vec<String> {
    let fates = bench.started.node.topology.commit(&[entry]).expect("it can be read");
    fates
        .into_iter()
        .map(|fate| match fate {
            Fate::Done { number, answer, .. } => match *answer {
                Ok(outcome) if outcome.created => format!("{number} created"),
                Ok(_) => format!("{number} done"),
                Err(refusal) => format!("{number} {}", refusal.code),
            },
            Fate::Missing { number, .. } => format!("missing {number}"),
        })
        .collect()
}

#[tokio::test]
async fn each_number_takes_effect_once_and_in_order() {
    let bench = Bench::start();
    assert_eq!(
        fates(&bench, entry(1, SENDER, 1, &[vhost("a"), vhost("b")])),
        ["1 created", "2 created"]
    );
    // A leader that was lost had proposed the second; the new one gets it again, with a third.
    assert_eq!(fates(&bench, entry(2, SENDER, 2, &[vhost("b"), vhost("c")])), ["3 created"]);
    assert_eq!(fates(&bench, entry(3, SENDER, 6, &[vhost("f")])), ["missing 4"]);
    let gone = Command::DeleteVhost { name: "none".into() };
    assert_eq!(fates(&bench, entry(4, SENDER, 4, &[gone])), ["4 404"], "a refusal counts");
    // One that was given up before it was sent.
    let payload = Proposal { sender: SENDER, first: 5, commands: vec![Bytes::new()] }.encode();
    let given_up = Committed { payload, ..entry(5, SENDER, 5, &[]) };
    assert_eq!(fates(&bench, given_up), ["5 done"]);
    // Another start counts for itself.
    let later = Sender { boot: 2, ..SENDER };
    let put = Command::PutNode(PutNode {
        starts: Vec::new(),
        id: 7,
        name: "seven".into(),
        address: String::new(),
        role: NodeRole::Full,
        boot: 2,
        zone: None,
    });
    assert_eq!(fates(&bench, entry(6, later, 1, &[put])), ["1 created"]);
    let state = bench.started.node.router.state();
    assert!(["a", "b", "c"].iter().all(|name| state.vhost(name).is_some()));
    assert!(state.vhost("f").is_none());
}

#[tokio::test]
async fn a_checkpoint_is_the_whole_state() {
    let (one, other) = (Bench::start(), Bench::start());
    fates(&one, entry(1, SENDER, 1, &[vhost("a"), vhost("b")]));
    let checkpoint = one.started.node.topology.checkpoint();
    let ledger = other.started.node.topology.install(1, checkpoint.clone()).expect("it is whole");
    assert_eq!(ledger.last(SENDER), 2);
    assert_eq!(other.started.node.topology.checkpoint(), checkpoint);
    // It goes on with the same numbers.
    assert_eq!(fates(&other, entry(2, SENDER, 2, &[vhost("b"), vhost("c")])), ["3 created"]);
    for length in [0, 1, 20, checkpoint.len() - 1] {
        let cut = checkpoint.slice(..length);
        assert!(other.started.node.topology.install(3, cut).is_err(), "{length}");
    }
}

#[tokio::test]
async fn an_entry_of_another_version_is_not_skipped() {
    let bench = Bench::start();
    let newer = Committed { payload: Bytes::from_static(&[9, 9]), ..entry(1, SENDER, 1, &[]) };
    let refused = bench.started.node.topology.commit(&[newer]).expect_err("it is unknown");
    assert!(refused.contains("entry 1"), "{refused}");
}
