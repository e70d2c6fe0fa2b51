use super::*;
use crate::command::{Command, DeclareQueue, JournalChange, PutNode};
use crate::coordination::{Answer, Coordination};
use crate::objects::node::NodeRole;
use crate::scene::{Act, exclusive, policy, queue, state, table, text};
use crate::store::dump;

const UID: &str = "0123456789abcdef0011223344556677";
const A: u64 = 7;
const B: u64 = 8;
const C: u64 = 9;

fn three() -> State {
    let mut state = state();
    for (id, name, role) in
        [(A, "a", NodeRole::Full), (B, "b", NodeRole::Full), (C, "c", NodeRole::Witness)]
    {
        let (name, address) = (name.into(), "x:1".to_owned());
        let put = PutNode { id, name, address, role, boot: 1, zone: None, starts: Vec::new() };
        state.apply(Command::PutNode(put)).unwrap();
    }
    state
}

fn change(change: JournalChange) -> Command {
    Command::ChangeJournal(change)
}

fn create(name: &str, uid: &str, node: u64, backup: u64) -> Command {
    let (name, uid) = (name.into(), uid.into());
    change(JournalChange::Create { name, uid, node, backup, incarnation: 5 })
}

fn lock(state: &mut State, node: u64, attempt: u64) -> u64 {
    let acquire = Coordination::Acquire { id: UID.into(), node, boot: 1, attempt, lease_ms: 2000 };
    let outcome = state.apply(Command::Coordinate(acquire)).unwrap();
    let Some(Answer::Granted { token }) = outcome.answer else { panic!("{outcome:?}") };
    token
}

fn serve(node: u64, token: u64) -> Command {
    change(JournalChange::Serve { uid: UID.into(), node, boot: 1, token })
}

#[test]
fn a_journal_with_a_backup_is_paired_from_the_beginning() {
    let mut state = three();
    let outcome = state.apply(create("orders", UID, A, B)).unwrap();
    assert!(outcome.created);
    assert_eq!(outcome.journals_changed, ["orders".into()]);
    let journal = state.journal("orders").unwrap();
    assert!(journal.paired && journal.is_on(NodeId(B)) && !journal.is_on(NodeId(C)));
    assert_eq!((journal.home(), journal.other_than(NodeId(A))), (NodeId(A), Some(NodeId(B))));
    let register = state.coordinated(UID).register.unwrap();
    assert_eq!((register.value, register.founder, register.incarnation), (0, A, 5));
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let mut state = three();
    let mut refused = |command, part: &str| {
        let refusal = state.refused(command);
        assert!(refusal.text.contains(part), "{refusal}");
    };
    refused(create("", UID, A, 0), "cannot be the name of a journal");
    refused(create("../x", UID, A, 0), "cannot be the name of a journal");
    refused(create("orders", "abc", A, 0), "32 hexadecimal digits");
    refused(create("orders", UID, 99, 0), "no node");
    refused(create("orders", UID, A, A), "cannot be the backup");
    refused(create("orders", UID, A, C), "node c keeps no queues");
    refused(serve(A, 1), "no journal");
    state.apply(create("orders", UID, A, 0)).unwrap();
    let other = UID.replace('0', "f");
    let mut refused = |command, part: &str| {
        let refusal = state.refused(command);
        assert!(refusal.text.contains(part), "{refusal}");
    };
    refused(create("orders", &other, A, 0), "already");
    refused(create("others", UID, A, 0), "in use");
    refused(change(JournalChange::RemoveBackup { name: "orders".into() }), "has no backup");
    refused(change(JournalChange::SetBackup { name: "orders".into(), node: A }), "cannot be");
    refused(serve(B, 0), "has no copy");
}

/// A former holder of the lock cannot take the journal back.
#[test]
fn ba_22_only_the_holder_of_the_lock_says_that_it_serves() {
    let mut state = three();
    state.apply(create("orders", UID, A, B)).unwrap();
    assert!(state.refused(serve(A, 0)).text.contains("not the lock"));
    let first = lock(&mut state, A, 1);
    state.apply(serve(A, first)).unwrap();
    let release = Coordination::Release { id: UID.into(), token: first };
    state.apply(Command::Coordinate(release)).unwrap();
    let second = lock(&mut state, B, 2);
    state.apply(serve(B, second)).unwrap();
    state.refused(serve(A, first));
    let journal = state.journal("orders").unwrap();
    assert_eq!((journal.home(), journal.term), (NodeId(B), 2));
    // The other one is the backup now.
    state.apply(change(JournalChange::RemoveBackup { name: "orders".into() })).unwrap();
    let journal = state.journal("orders").unwrap();
    assert_eq!((journal.node, journal.backup), (NodeId(B), NodeId(0)));
}

#[test]
fn a_journal_on_one_node_is_paired_by_the_node_that_serves_it() {
    let mut state = three();
    state.apply(create("orders", UID, A, 0)).unwrap();
    state.apply(serve(A, 0)).unwrap();
    let term = state.journal("orders").unwrap().term;
    // The same start says it once.
    state.apply(serve(A, 0)).unwrap();
    assert_eq!(state.journal("orders").unwrap().term, term);
    state.apply(change(JournalChange::SetBackup { name: "orders".into(), node: B })).unwrap();
    assert!(!state.journal("orders").unwrap().paired && state.coordinated(UID).register.is_none());
    let pair = |founder, incarnation| {
        change(JournalChange::Pair { uid: UID.into(), founder, incarnation })
    };
    state.refused(pair(B, 3));
    state.apply(pair(A, 3)).unwrap();
    state.apply(pair(A, 3)).unwrap();
    assert!(state.refused(pair(A, 4)).text.contains("has a register"));
    let journal = state.journal("orders").unwrap();
    assert!(journal.paired && journal.term == term, "it goes on being served");
    let again = JournalChange::SetBackup { name: "orders".into(), node: B };
    state.apply(change(again)).unwrap();
}

fn attached(name: &str, journal: &str) -> DeclareQueue {
    DeclareQueue { arguments: table([("x-journal", text(journal))]), ..queue(name) }
}

#[test]
fn queues_are_in_the_journal_that_their_argument_or_policy_names() {
    let mut state = three();
    state.apply(create("orders", UID, A, B)).unwrap();
    let declare = |declare| Command::DeclareQueue(declare);
    let outcome = state.apply(declare(attached("q", "orders"))).unwrap();
    assert_eq!(outcome.queue.unwrap().journal.as_deref(), Some("orders"));
    let refusal = state.refused(declare(attached("r", "else")));
    assert_eq!(refusal.code, 406);
    assert_eq!(
        refusal.text,
        "invalid arg 'x-journal' for queue 'r' in vhost '/': there is no journal 'else'"
    );
    let transient = DeclareQueue { durable: false, ..attached("r", "orders") };
    assert!(state.refused(declare(transient)).text.contains("'non-durable'"));
    let mine = DeclareQueue {
        exclusive_owner: exclusive("r", 3).exclusive_owner,
        ..attached("r", "orders")
    };
    assert!(state.refused(declare(mine)).text.contains("'exclusive-owner'"));
    let quorum = table([("x-journal", text("orders")), ("x-queue-type", text("quorum"))]);
    let quorum = DeclareQueue { arguments: quorum, ..queue("r") };
    assert!(state.refused(declare(quorum)).text.contains("rabbit_quorum_queue"));
    assert!(state.refused(declare(queue("q"))).text.contains("x-journal"), "not equivalent");

    let by = policy("p", "^paired", 0, serde_json::json!({ "x-journal": "orders" }));
    state.apply(Command::PutPolicy(by)).unwrap();
    let outcome = state.apply(declare(queue("paired"))).unwrap();
    assert_eq!(outcome.queue.unwrap().journal.as_deref(), Some("orders"));
    let outcome = state.apply(declare(exclusive("paired-mine", 3))).unwrap();
    assert_eq!(outcome.queue.unwrap().journal, None);
    let names: Vec<_> = state.queues_of_journal("orders").map(|queue| &*queue.name).collect();
    assert_eq!(names, ["q", "paired"]);
}

#[test]
fn queues_hear_of_what_becomes_of_their_journal_and_keep_it() {
    let mut state = three();
    state.apply(create("orders", UID, A, B)).unwrap();
    let home = NodeId(A);
    let declare = DeclareQueue { home, ..attached("q", "orders") };
    let id = state.apply(Command::DeclareQueue(declare)).unwrap().queue.unwrap().id;
    let token = lock(&mut state, B, 1);
    assert_eq!(state.queue_by_id(id).unwrap().home, NodeId(A));
    assert_eq!(state.apply(serve(B, token)).unwrap().queues_changed, [id]);
    assert_eq!(state.queue_by_id(id).unwrap().home, NodeId(B));
    let delete = change(JournalChange::Delete { name: "orders".into() });
    assert!(state.refused(delete.clone()).text.contains("has 1 queues"));
    // It is not at home where it was declared.
    state.apply(Command::ForgetNode { id: A }).unwrap();
    assert!(state.queue("/", "q").is_some());
    let mut bytes = bytes::BytesMut::new();
    dump::write(&state, &mut bytes);
    let read = dump::read(&bytes).unwrap();
    assert_eq!(read.journal("orders"), state.journal("orders"));
    assert_eq!(read.queue("/", "q").unwrap().journal.as_deref(), Some("orders"));
    state.apply(Command::DeleteQueue { vhost: "/".into(), name: "q".into(), id: None }).unwrap();
    assert!(state.apply(delete).unwrap().deleted);
    assert!(state.journal("orders").is_none() && state.coordinated(UID).register.is_none());
}

/// A copy of what a node remembers of a journal's queues.
fn remembered(state: &State, name: &str) -> Vec<Queue> {
    state.queues_of_journal(name).map(|queue| Queue::clone(queue)).collect()
}

#[test]
fn a_journal_comes_back_with_its_queues_under_their_numbers() {
    let mut old = three();
    old.apply(create("j", UID, A, 0)).unwrap();
    let declare = DeclareQueue { arguments: table([("x-journal", text("j"))]), ..queue("q") };
    old.apply(Command::DeclareQueue(declare)).unwrap();
    let queues = remembered(&old, "j");
    assert_eq!(queues.len(), 1);

    // Another topology, in which others have the name and the number.
    let mut state = three();
    let adopt = |queues: Vec<_>| {
        change(JournalChange::Adopt {
            name: "j".into(),
            uid: UID.into(),
            node: B,
            exchanges: Vec::new(),
            queues,
            bindings: Vec::new(),
            last_queue: 2000,
        })
    };
    state.apply(Command::DeclareQueue(queue("other"))).unwrap();
    assert_eq!(state.queue("/", "other").unwrap().id, queues[0].id);
    let dumped = |state: &State| {
        let mut bytes = bytes::BytesMut::new();
        dump::write(state, &mut bytes);
        bytes
    };
    let before = dumped(&state);
    let refusal = state.refused(adopt(queues.clone()));
    assert!(refusal.text.contains("queue 'other' in vhost '/' has the number of"), "{refusal}");
    assert_eq!(dumped(&state), before, "nothing has changed");
    let delete =
        |name: &str| Command::DeleteQueue { vhost: "/".into(), name: name.into(), id: None };
    state.apply(delete("other")).unwrap();
    state.apply(Command::DeclareQueue(queue("q"))).unwrap();
    let refusal = state.refused(adopt(queues.clone()));
    assert!(refusal.text.contains("there is a queue 'q' in vhost '/' already"), "{refusal}");
    state.apply(delete("q")).unwrap();
    let elsewhere = Queue { vhost: "gone".into(), ..queues[0].clone() };
    let refusal = state.refused(adopt(vec![queues[0].clone(), elsewhere]));
    assert!(refusal.text.contains("there is no vhost 'gone'"), "{refusal}");

    let outcome = state.apply(adopt(queues.clone())).unwrap();
    assert_eq!(outcome.queues_created.len(), 1);
    let back = state.queue("/", "q").unwrap();
    assert_eq!((back.id, back.home, back.journal.as_deref()), (queues[0].id, NodeId(B), Some("j")));
    let journal = state.journal("j").unwrap();
    assert_eq!((journal.node, journal.paired, &*journal.uid), (NodeId(B), false, UID));
    // No number is given twice, also none of a queue that nobody knows any more.
    state.apply(Command::DeclareQueue(queue("new"))).unwrap();
    assert_eq!(state.queue("/", "new").unwrap().id, QueueId(2001));
    let refusal = state.refused(adopt(Vec::new()));
    assert!(refusal.text.contains("there is a journal 'j' already"), "{refusal}");
}

#[test]
fn a_forgotten_node_leaves_its_journals_to_the_other_one() {
    const OTHER: &str = "1123456789abcdef0011223344556677";
    let mut state = three();
    state.apply(create("pair", UID, A, B)).unwrap();
    state.apply(create("sole", OTHER, A, 0)).unwrap();
    for (name, journal) in [("kept", "pair"), ("gone", "sole")] {
        let declare =
            DeclareQueue { arguments: table([("x-journal", text(journal))]), ..queue(name) };
        state.apply(Command::DeclareQueue(declare)).unwrap();
    }
    let token = lock(&mut state, A, 1);
    state.apply(serve(A, token)).unwrap();
    let outcome = state.apply(Command::ForgetNode { id: A }).unwrap();
    assert_eq!(outcome.journals_changed.len(), 2);
    let journal = state.journal("pair").unwrap();
    assert_eq!((journal.node, journal.backup, journal.served), (NodeId(B), NodeId(0), None));
    // It still has a register: only a copy that is in sync is served.
    assert!(journal.paired && state.coordinated(UID).register.is_some());
    assert!(state.queue("/", "kept").is_some());
    assert!(state.journal("sole").is_none() && state.queue("/", "gone").is_none());
    state.apply(Command::ForgetNode { id: B }).unwrap();
    assert!(state.journal("pair").is_none() && state.coordinated(UID).register.is_none());
}

/// Before it is paired, a backup has nothing: what only the forgotten node had does not move there, empty.
#[test]
fn a_backup_that_was_never_copied_is_not_what_is_left() {
    for (forgotten, left) in [(A, None), (B, Some(A))] {
        let mut state = three();
        state.apply(create("orders", UID, A, 0)).unwrap();
        let declare =
            DeclareQueue { arguments: table([("x-journal", text("orders"))]), ..queue("q") };
        state.apply(Command::DeclareQueue(declare)).unwrap();
        state.apply(change(JournalChange::SetBackup { name: "orders".into(), node: B })).unwrap();
        state.apply(Command::ForgetNode { id: forgotten }).unwrap();
        let journal = state.journal("orders").map(|journal| (journal.node.0, journal.backup.0));
        assert_eq!(journal, left.map(|left| (left, 0)));
        assert_eq!(state.queue("/", "q").is_some(), left.is_some());
    }
}

fn node(id: u64, name: &str, role: NodeRole) -> Command {
    let (name, address) = (name.into(), "x:1".to_owned());
    Command::PutNode(PutNode { id, name, address, role, boot: 1, zone: None, starts: Vec::new() })
}

fn set(state: &mut State, token: u64, expected: i64, new: i64) {
    let incarnation = state.coordinated(UID).register.unwrap().incarnation;
    let id = UID.into();
    let swap = Coordination::CompareAndSet { id, incarnation, expected, new, token };
    let answer = state.apply(Command::Coordinate(swap)).unwrap().answer;
    assert_eq!(answer, Some(Answer::Set { incarnation }));
}

/// The node that was wiped has another incarnation, so that nothing that counts the old copy counts the
/// new one; the register stays what it is.
#[test]
fn a_wiped_node_is_copied_anew() {
    const A2: u64 = 17;
    const B2: u64 = 18;
    let mut state = three();
    state.apply(create("orders", UID, A, B)).unwrap();
    let token = lock(&mut state, A, 1);
    set(&mut state, token, 0, -1);
    set(&mut state, token, -1, 1);
    state.apply(serve(A, token)).unwrap();
    let outcome = state.apply(node(B2, "b", NodeRole::Full)).unwrap();
    assert_eq!(outcome.journals_changed, ["orders".into()]);
    let journal = state.journal("orders").unwrap();
    assert_eq!((journal.node, journal.backup), (NodeId(A), NodeId(B2)));
    assert_eq!(journal.served, Some(Served { node: A, boot: 1 }));
    assert!(!journal.is_on(NodeId(B)));
    // The old one is refused, should it still be somewhere.
    assert!(state.refused(serve(B, token)).text.contains("has no copy"));

    // The active one is wiped: nobody serves until the other one does.
    state.apply(node(A2, "a", NodeRole::Full)).unwrap();
    let journal = state.journal("orders").unwrap();
    assert_eq!((journal.node, journal.backup, journal.served), (NodeId(A2), NodeId(B2), None));
    let known = state.coordinated(UID);
    // Its lock lasts until the lease has ended, as that of any node that is silent.
    assert_eq!(known.holder, Some(token));
    let register = known.register.unwrap();
    assert_eq!((register.value, register.founder, register.incarnation), (1, A, 5));
    let name = "orders".into();
    let refusal = state.refused(change(JournalChange::RemoveBackup { name }));
    assert!(refusal.text.contains("not known which"), "{refusal}");
    // Another start of it changes nothing.
    let again = state.apply(node(A2, "a", NodeRole::Full)).unwrap();
    assert!(again.journals_changed.is_empty());
}

#[test]
fn what_only_a_wiped_node_had_is_not_begun_anew() {
    // One node, and two of which the backup has got nothing yet.
    for backup in [0, B] {
        let mut state = three();
        state.apply(create("orders", UID, A, 0)).unwrap();
        if backup != 0 {
            let set = JournalChange::SetBackup { name: "orders".into(), node: backup };
            state.apply(change(set)).unwrap();
        }
        state.apply(serve(A, 0)).unwrap();
        let outcome = state.apply(node(17, "a", NodeRole::Full)).unwrap();
        assert!(outcome.journals_changed.is_empty());
        assert_eq!(state.journal("orders").unwrap().node, NodeId(A));
        // The one that has got nothing can be wiped as often as one likes.
        state.apply(node(18, "b", NodeRole::Full)).unwrap();
        let known = state.journal("orders").unwrap();
        assert_eq!(known.backup, NodeId(if backup == 0 { 0 } else { 18 }));
    }
    // Under its name there is a node now that keeps nothing.
    let mut state = three();
    state.apply(create("orders", UID, A, B)).unwrap();
    state.apply(node(18, "b", NodeRole::Witness)).unwrap();
    assert!(state.journal("orders").unwrap().is_on(NodeId(B)));
}

#[test]
fn a_founder_that_is_wiped_before_anybody_served_founds_anew() {
    for claimed in [false, true] {
        let mut state = three();
        state.apply(create("orders", UID, A, B)).unwrap();
        let token = lock(&mut state, A, 1);
        if claimed {
            set(&mut state, token, 0, -1);
        }
        state.apply(node(17, "a", NodeRole::Full)).unwrap();
        let register = state.coordinated(UID).register.unwrap();
        assert_eq!((register.value, register.founder), (0, 17));
        // What the old one still has on its way is about another life.
        let id = UID.into();
        let late = Coordination::CompareAndSet { id, incarnation: 5, expected: 0, new: -1, token };
        let answer = state.apply(Command::Coordinate(late)).unwrap().answer;
        assert!(matches!(answer, Some(Answer::NotSet { .. })), "{answer:?}");
    }
    // It was served on one node before it was paired: there was something, and it is gone.
    let mut state = three();
    state.apply(create("orders", UID, A, 0)).unwrap();
    state.apply(serve(A, 0)).unwrap();
    let set = JournalChange::SetBackup { name: "orders".into(), node: B };
    state.apply(change(set)).unwrap();
    let pair = JournalChange::Pair { uid: UID.into(), founder: A, incarnation: 5 };
    state.apply(change(pair)).unwrap();
    state.apply(node(17, "a", NodeRole::Full)).unwrap();
    let register = state.coordinated(UID).register.unwrap();
    assert_eq!((register.founder, register.incarnation), (A, 5));
}
