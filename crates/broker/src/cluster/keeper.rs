//! Finishes what has been left half done with the members of quorum queues that this node leads.
//!
//! ```text
//!  recorded, not started, has a vote and the log   recorded as started, many at once
//!  recorded, started or not, has no vote           brought in, if its node is there
//!  recorded as lost                                another one comes in its place
//!  the same, and its node was wiped or forgotten   its successor is brought in, or the record goes
//!  recorded as started, not in the group           its record goes
//!  in the group, not recorded                      it is taken out
//! ```
//!
//! The group decides who is a member, the record follows it; only a member that has not started is
//! the record's to begin. One task on each node of a cluster; it looks when a queue gets its leader,
//! when a node is there again, and now and then.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use metadata::command::{Command, MemberName};
use metadata::objects::member::{Member, Stage};
use metadata::objects::queue::Queue;
use metadata::state::State;
use model::id::{NodeId, QueueId};
use quorum::member::Role;
use quorum::status::Status;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::changer::{Changer, What, name};
use crate::cluster::members::Members;
use crate::cluster::site::Site;

/// How often it looks by itself, and how long it waits for what comes together.
const LOOK: Duration = Duration::from_secs(5);
const GATHER: Duration = Duration::from_millis(200);
/// Of so many looks one also compares what seems to be finished.
const WHOLE: u32 = 12;
/// Queues that are finished at once.
const AT_ONCE: usize = 8;
/// Members that are recorded by one command.
const BATCH: usize = 500;

/// What there is to do for one queue.
#[derive(Debug, Default, PartialEq, Eq)]
struct Todo {
    started: Vec<MemberName>,
    bring_in: Vec<NodeId>,
    unrecord: Vec<Member>,
    take_out: Vec<NodeId>,
}

/// Queues with something left to do, and those at which this node is. One that takes long, because its
/// log is large or a node slow, holds up neither the others nor the next look.
#[derive(Debug, Default)]
struct Agenda {
    waiting: VecDeque<QueueId>,
    under_way: BTreeSet<QueueId>,
}

impl Agenda {
    /// What a look has found takes the place of what the one before found.
    fn found(&mut self, queues: Vec<QueueId>) {
        self.waiting = queues.into();
    }

    /// The next one to begin with, if there is one now.
    fn next(&mut self) -> Option<QueueId> {
        if self.under_way.len() >= AT_ONCE {
            return None;
        }
        loop {
            // At one of them it may be still: the next look finds it again.
            let next = self.waiting.pop_front()?;
            if self.under_way.insert(next) {
                return Some(next);
            }
        }
    }

    fn ended(&mut self, queue: QueueId) {
        self.under_way.remove(&queue);
    }
}

/// Runs for as long as the node lives.
pub(crate) async fn run(members: Arc<Members>) {
    let Some(group) = &members.cluster.group else { return };
    let mut agenda = Agenda::default();
    let mut finishing: JoinSet<QueueId> = JoinSet::new();
    let (mut looks, mut due) = (0_u32, Instant::now() + LOOK);
    loop {
        tokio::select! {
            Some(ended) = finishing.join_next(), if !finishing.is_empty() => match ended {
                Ok(queue) => agenda.ended(queue),
                Err(error) => tracing::error!(%error, "what was left half done was cut off"),
            },
            _ = tokio::time::timeout_at(due, members.cluster.unfinished.notified()) => {
                tokio::time::sleep(GATHER).await;
                if group.proposer.is_available() {
                    let whole = looks.is_multiple_of(WHOLE);
                    agenda.found(look(&members.changer, &members.cluster.led(), whole).await);
                    rest(&members).await;
                }
                (looks, due) = (looks.wrapping_add(1), Instant::now() + LOOK);
            }
        }
        while let Some(queue) = agenda.next() {
            let members = Arc::clone(&members);
            let work = tokio::spawn(async move { finish(&members.changer, queue).await });
            finishing.spawn(async move {
                // A defect there must not keep the place of this queue for ever.
                if let Err(error) = work.await {
                    tracing::error!(%queue, %error, "what was left half done was cut off");
                }
                queue
            });
        }
    }
}

/// Looks at queues that this node leads, and finishes them one after the other; `whole`: also looks at
/// those that seem to be finished.
#[cfg(test)]
pub(crate) async fn pass<S: Site>(changer: &Changer<S>, led: &[QueueId], whole: bool) {
    for id in look(changer, led, whole).await {
        finish(changer, id).await;
    }
}

/// Records which members have started, many at once; gives the queues for which more is left to do.
async fn look<S: Site>(changer: &Changer<S>, led: &[QueueId], whole: bool) -> Vec<QueueId> {
    let mut started = Vec::new();
    let mut rest = Vec::new();
    {
        let state = changer.site.state();
        for id in led.iter().copied() {
            let Some(queue) = state.queue_by_id(id) else { continue };
            let is_finished = queue.members.iter().all(|one| one.stage == Stage::Started);
            if (is_finished && !whole) || changer.is_busy(id) {
                continue;
            }
            let Ok(status) = changer.status(id) else { continue };
            let mut todo = todo(&state, queue, &status, |node| changer.site.is_up(node));
            started.append(&mut todo.started);
            if todo != Todo::default() {
                rest.push(id);
            }
        }
    }
    for some in started.chunks(BATCH) {
        let command = Command::MembersStarted(some.to_vec());
        if let Err(refusal) = changer.site.submit(command).await {
            tracing::info!(%refusal, "cannot record yet which members have started");
            return Vec::new();
        }
    }
    // What is recorded may be known here a moment late. Once this is applied, all before it is.
    let barrier = Command::MembersStarted(Vec::new());
    if rest.is_empty() || changer.site.submit(barrier).await.is_err() {
        return Vec::new();
    }
    rest
}

/// In maintenance mode a node gives away what it has come to lead.
async fn rest(members: &Arc<Members>) {
    let state = members.topology.state();
    if state.node(members.cluster.me.node).is_some_and(|node| node.maintenance) {
        let (moved, _) = members.hand_over_all().await;
        if moved > 0 {
            tracing::info!(moved, "leaders of quorum queues leave this node, which is drained");
        }
    }
}

/// Does for one queue what there is to do now.
async fn finish<S: Site>(changer: &Changer<S>, id: QueueId) {
    let bring_in = {
        let Some(_turn) = changer.turn(id) else { return };
        let state = changer.site.state();
        let Some(queue) = state.queue_by_id(id) else { return };
        let Ok(status) = changer.status(id) else { return };
        let Todo { bring_in, unrecord, take_out, .. } =
            todo(&state, queue, &status, |node| changer.site.is_up(node));
        for node in take_out {
            tracing::warn!(queue = %queue.name, %node, "a member that is not recorded is taken out");
            if let Err(error) = changer.remove(id, node, false).await {
                tracing::warn!(queue = %queue.name, %node, %error, "cannot take out a member");
            }
        }
        for member in unrecord {
            let node = member.node;
            tracing::info!(queue = %queue.name, %node, "the record of a former member goes");
            if let Err(error) = changer.unrecord(id, &member).await {
                tracing::warn!(queue = %queue.name, %node, %error, "cannot record that it is gone");
            }
        }
        bring_in
    };
    for node in bring_in {
        if let Err(error) = changer.here(id, node, What::Add).await {
            tracing::info!(queue = %id, %node, %error, "cannot bring in a member yet");
        }
    }
}

/// What has become of a node on which a member is wanted that was never in the group, or is not any
/// more.
enum Place {
    Here,
    /// It was wiped and bears this number now.
    Reborn(NodeId),
    /// Nobody bears its name, or nobody who keeps queues.
    Gone,
}

fn place(state: &State, node: NodeId) -> Place {
    let Some(known) = state.node(node) else { return Place::Gone };
    if !known.lost {
        return Place::Here;
    }
    let mut others = state.nodes().filter(|other| other.name == known.name);
    others.find(|other| other.keeps_queues()).map_or(Place::Gone, |other| Place::Reborn(other.id))
}

fn todo(state: &State, queue: &Queue, status: &Status, is_up: impl Fn(NodeId) -> bool) -> Todo {
    let mut todo = Todo::default();
    if !matches!(status.role, Role::Leader { .. }) || status.is_changing {
        return todo;
    }
    // Whoever leads is a member. If the status does not say so, it does not say who the others are: to
    // take them for gone would delete their data.
    if status.members.iter().all(|one| Some(one.node) != status.leader) {
        return todo;
    }
    for member in &queue.members {
        let seat = status.members.iter().find(|one| one.node == member.node);
        match (seat, member.stage) {
            // Whoever told it the log has died before it could give it its vote.
            (Some(seat), Stage::Started) if !seat.is_voter && is_up(member.node) => {
                todo.bring_in.push(member.node);
            }
            (Some(_), Stage::Started) => {}
            (None, Stage::Lost | Stage::Unstarted | Stage::Founding)
                if !matches!(place(state, member.node), Place::Here) =>
            {
                match place(state, member.node) {
                    // It clears away what is recorded of its former selves.
                    Place::Reborn(now) if queue.member(now).is_none() => {
                        if is_up(now) && !todo.bring_in.contains(&now) {
                            todo.bring_in.push(now);
                        }
                    }
                    Place::Here | Place::Reborn(_) | Place::Gone => {
                        todo.unrecord.push(*member);
                    }
                }
            }
            (_, Stage::Lost) if is_up(member.node) => todo.bring_in.push(member.node),
            (_, Stage::Lost) => {}
            (None, Stage::Started) => todo.unrecord.push(*member),
            // It goes on with this one alone; until then nobody else is a stranger.
            (_, Stage::Sole) if status.members.len() != 1 => return Todo::default(),
            // Nobody has used it yet, and all there is to know of it is in the record.
            (Some(seat), _) if seat.is_voter && status.last == Some(0) => {}
            (Some(seat), _) if seat.is_voter => {
                let leads = status.leader == Some(member.node);
                if leads || seat.matched.is_some() {
                    todo.started.push(name(queue.id, member));
                }
            }
            (Some(_) | None, _) if is_up(member.node) => todo.bring_in.push(member.node),
            (Some(_) | None, _) => {}
        }
    }
    let recorded = |node: NodeId| queue.member(node).is_some();
    let strangers = status.members.iter().filter(|one| !recorded(one.node));
    todo.take_out = strangers.map(|one| one.node).collect();
    todo
}

#[cfg(test)]
mod tests {
    use metadata::command::PutNode;
    use metadata::objects::node::NodeRole;
    use metadata::objects::queue::QueueKind;
    use model::id::StreamId;
    use quorum::status::MemberStatus;

    use super::*;

    fn queue(members: &[(u64, Stage)]) -> Queue {
        let member = |(node, stage): &(u64, Stage)| Member {
            node: NodeId(*node),
            stream: StreamId(9),
            stage: *stage,
            group: 0,
        };
        Queue {
            id: QueueId(9),
            vhost: "/".into(),
            name: "q".into(),
            kind: QueueKind::Quorum,
            durable: true,
            auto_delete: false,
            exclusive_owner: None,
            arguments: amq_protocol_types::FieldTable::default(),
            user_who_performed_action: "guest".into(),
            home: NodeId(1),
            journal: None,
            members: members.iter().map(member).collect(),
        }
    }

    /// Nodes 1 to 4.
    fn cluster() -> State {
        let mut state = State::new();
        for id in 1..=4 {
            put(&mut state, id, &format!("n{id}"), NodeRole::Full);
        }
        state
    }

    fn put(state: &mut State, id: u64, name: &str, role: NodeRole) {
        let (name, address, starts) = (name.into(), String::new(), Vec::new());
        let put = PutNode { id, name, address, role, boot: 1, starts, zone: None };
        state.apply(Command::PutNode(put)).expect("it can come");
    }

    /// Node 1 leads; who has matched nothing has not spoken yet.
    fn status(members: &[(u64, bool, Option<u64>)]) -> Status {
        let member = |(node, is_voter, matched): &(u64, bool, Option<u64>)| MemberStatus {
            node: NodeId(*node),
            is_voter: *is_voter,
            matched: *matched,
        };
        Status {
            role: Role::Leader { term: 3 },
            leader: Some(NodeId(1)),
            term: 3,
            last: Some(7),
            committed: Some(7),
            applied: Some(7),
            checkpoint: None,
            purged: None,
            log_bytes: 0,
            whole_bytes: 0,
            members: members.iter().map(member).collect(),
            is_changing: false,
            has_failed: false,
            is_asleep: false,
        }
    }

    fn names(members: &[MemberName]) -> Vec<u64> {
        members.iter().map(|one| one.node).collect()
    }

    fn nodes(members: &[Member]) -> Vec<u64> {
        members.iter().map(|one| one.node.0).collect()
    }

    #[test]
    fn a_queue_that_takes_long_holds_up_no_other() {
        let queues = |range: std::ops::Range<u64>| range.map(QueueId).collect::<Vec<_>>();
        let begun = |agenda: &mut Agenda| std::iter::from_fn(|| agenda.next()).collect::<Vec<_>>();
        let (mut agenda, most) = (Agenda::default(), AT_ONCE as u64);
        agenda.found(queues(0..most + 2));
        assert_eq!(begun(&mut agenda), queues(0..most));
        // All but the first end; a look finds that one again, and others.
        (1..most).for_each(|queue| agenda.ended(QueueId(queue)));
        agenda.found([queues(0..1), queues(50..51), queues(1..2)].concat());
        assert_eq!(begun(&mut agenda), [QueueId(50), QueueId(1)], "the first is under way still");
        agenda.ended(QueueId(0));
        assert_eq!(begun(&mut agenda), [], "it was found by an earlier look");
        agenda.found(queues(0..1));
        assert_eq!(begun(&mut agenda), queues(0..1));
    }

    #[test]
    fn members_that_have_the_log_are_recorded_so() {
        use Stage::Founding;
        let queue = queue(&[(1, Founding), (2, Founding), (3, Founding)]);
        let status = status(&[(1, true, None), (2, true, Some(1)), (3, true, None)]);
        let found = todo(&cluster(), &queue, &status, |_| true);
        assert_eq!(names(&found.started), [1, 2], "the third has not said anything");
        assert_eq!(Todo { started: Vec::new(), ..found }, Todo::default());
    }

    #[test]
    fn members_of_a_queue_that_nobody_has_used_may_begin_again() {
        let queue = queue(&[(1, Stage::Founding), (2, Stage::Founding)]);
        let new = Status { last: Some(0), ..status(&[(1, true, None), (2, true, None)]) };
        assert_eq!(todo(&cluster(), &queue, &new, |_| true), Todo::default());
        let stranger = Status { last: Some(0), ..status(&[(1, true, None), (5, true, None)]) };
        assert_eq!(todo(&cluster(), &queue, &stranger, |_| true).take_out, [NodeId(5)]);
    }

    /// A group that has failed may not know its members: none of them is gone.
    #[test]
    fn a_status_without_the_leader_itself_says_nothing() {
        let queue = queue(&[(1, Stage::Started), (2, Stage::Started), (3, Stage::Started)]);
        for members in [&[][..], &[(2, true, Some(7))]] {
            assert_eq!(todo(&cluster(), &queue, &status(members), |_| true), Todo::default());
        }
    }

    #[test]
    fn who_was_away_is_brought_in_when_it_is_there() {
        use Stage::{Started, Unstarted};
        let queue = queue(&[(1, Started), (2, Unstarted), (3, Unstarted)]);
        let status = status(&[(1, true, None), (3, false, Some(4))]);
        let found = todo(&cluster(), &queue, &status, |node| node != NodeId(2));
        assert_eq!(found.bring_in, [NodeId(3)], "a learner goes on");
        let found = todo(&cluster(), &queue, &status, |_| true);
        assert_eq!(found.bring_in, [NodeId(2), NodeId(3)]);
        assert!(found.started.is_empty() && found.unrecord.is_empty() && found.take_out.is_empty());
    }

    #[test]
    fn who_has_the_log_and_no_vote_gets_it() {
        use Stage::Started;
        let queue = queue(&[(1, Started), (2, Started)]);
        let status = status(&[(1, true, None), (2, false, Some(7))]);
        let expected = Todo { bring_in: vec![NodeId(2)], ..Todo::default() };
        assert_eq!(todo(&cluster(), &queue, &status, |_| true), expected);
        assert_eq!(todo(&cluster(), &queue, &status, |node| node != NodeId(2)), Todo::default());
    }

    #[test]
    fn somebody_comes_in_the_place_of_a_lost_member() {
        use Stage::{Lost, Started};
        let queue = queue(&[(1, Started), (2, Lost), (3, Started)]);
        // Whether or not the group has let it go.
        for status in [
            status(&[(1, true, None), (2, true, Some(4)), (3, true, Some(7))]),
            status(&[(1, true, None), (3, true, Some(7))]),
        ] {
            let found = todo(&cluster(), &queue, &status, |_| true);
            let expected = Todo { bring_in: vec![NodeId(2)], ..Todo::default() };
            assert_eq!(found, expected);
            assert_eq!(
                todo(&cluster(), &queue, &status, |node| node != NodeId(2)),
                Todo::default()
            );
        }
    }

    #[test]
    fn what_was_wanted_on_a_node_that_was_wiped_is_wanted_of_its_successor() {
        use Stage::{Lost, Started, Unstarted};
        let status = status(&[(1, true, None)]);
        let mut state = cluster();
        put(&mut state, 33, "n3", NodeRole::Full);
        put(&mut state, 34, "n3", NodeRole::Full);
        for stage in [Lost, Unstarted] {
            // Wiped twice.
            let queue = queue(&[(1, Started), (3, stage), (33, stage)]);
            let found = todo(&state, &queue, &status, |_| true);
            assert_eq!(found, Todo { bring_in: vec![NodeId(34)], ..Todo::default() });
            let found = todo(&state, &queue, &status, |node| node != NodeId(34));
            assert_eq!(found, Todo::default(), "it is waited for");
        }
        // The successor is recorded already.
        let queue = queue(&[(1, Started), (3, Lost), (34, Unstarted)]);
        let found = todo(&state, &queue, &status, |_| true);
        assert_eq!((nodes(&found.unrecord), found.bring_in), (vec![3], vec![NodeId(34)]));
    }

    #[test]
    fn what_was_wanted_on_a_node_that_is_gone_is_wanted_no_more() {
        use Stage::{Lost, Started, Unstarted};
        let status = status(&[(1, true, None)]);
        let mut state = cluster();
        put(&mut state, 33, "n3", NodeRole::Witness);
        for (node, stage) in [(9, Lost), (9, Unstarted), (3, Lost), (3, Unstarted)] {
            let queue = queue(&[(1, Started), (node, stage)]);
            let found = todo(&state, &queue, &status, |_| true);
            assert_eq!(nodes(&found.unrecord), [node], "{stage:?}");
            assert_eq!(Todo { unrecord: Vec::new(), ..found }, Todo::default());
        }
        // What the group counts is not the record's to decide.
        let queue = queue(&[(1, Started), (9, Lost)]);
        let counted =
            Status { members: self::status(&[(1, true, None), (9, true, None)]).members, ..status };
        assert_eq!(todo(&state, &queue, &counted, |node| node != NodeId(9)), Todo::default());
    }

    #[test]
    fn the_record_follows_the_group() {
        use Stage::Started;
        let queue = queue(&[(1, Started), (2, Started)]);
        let status = status(&[(1, true, None), (4, true, Some(7))]);
        let found = todo(&cluster(), &queue, &status, |_| true);
        assert_eq!(nodes(&found.unrecord), [2]);
        assert_eq!(found.take_out, [NodeId(4)]);
        let changing = Status { is_changing: true, ..status };
        assert_eq!(todo(&cluster(), &queue, &changing, |_| true), Todo::default());
    }
}
