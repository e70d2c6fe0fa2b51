//! The members of quorum queues that are added, start and go.

use std::sync::Arc;

use model::id::{NodeId, QueueId, StreamId};

use crate::command::MemberName;
use crate::objects::member::{Member, Stage};
use crate::objects::node::NodeRole;
use crate::objects::queue::{Queue, QueueKind};
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::state::State;
use crate::store::record::{self, Record};

impl State {
    pub(super) fn add_member(
        &mut self,
        id: QueueId,
        node: NodeId,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        let queue = self.queue_by_id(id).map(Arc::clone);
        let queue = queue.ok_or_else(|| Refusal::not_found(format!("no {id}")))?;
        if queue.kind != QueueKind::Quorum {
            return Err(Refusal::precondition("only quorum queues have members"));
        }
        match self.node(node) {
            None => return Err(Refusal::not_found(format!("no node '{node}'"))),
            Some(known) if known.lost => {
                return Err(Refusal::not_allowed(format!("node {node} was replaced")));
            }
            Some(known) if known.role != NodeRole::Full => {
                return Err(Refusal::not_allowed(format!("node '{}' keeps no queues", known.name)));
            }
            Some(_) => {}
        }
        if queue.member(node).is_some_and(|member| member.stage != Stage::Lost) {
            out.queue = Some(queue);
            return Ok(());
        }
        // Numbers of queues and of streams come from one counter: a queue's first members have the
        // stream of its number.
        self.last_queue += 1;
        out.records.push(record::put(&Record::LastQueue(QueueId(self.last_queue))));
        let mut changed = Queue::clone(&queue);
        changed.members.retain(|member| member.node != node);
        // All members know each other by the same number.
        let group = queue.members.first().map_or(0, |member| member.group);
        let member = Member::unstarted(StreamId(self.last_queue), node);
        changed.members.push(Member { group, ..member });
        out.created = true;
        out.queue = Some(self.change_members(changed, out));
        Ok(())
    }

    pub(super) fn members_started(&mut self, started: &[MemberName], out: &mut Outcome) {
        for name in started {
            let Some(queue) = self.queue_by_id(name.queue.0) else { continue };
            let has_begun = |one: &Member| is(one, name) && is_begun(one);
            if !queue.members.iter().any(has_begun) {
                continue;
            }
            let mut changed = Queue::clone(queue);
            for one in &mut changed.members {
                if is(one, name) {
                    one.stage = Stage::Started;
                }
            }
            settle(&mut changed);
            self.change_members(changed, out);
        }
    }

    pub(super) fn member_lost(&mut self, name: MemberName, out: &mut Outcome) {
        let Some(queue) = self.queue_by_id(name.queue.0) else { return };
        let mut changed = Queue::clone(queue);
        let had_started = |one: &&mut Member| is(one, &name) && one.stage == Stage::Started;
        let Some(member) = changed.members.iter_mut().find(had_started) else { return };
        member.stage = Stage::Lost;
        self.change_members(changed, out);
    }

    pub(super) fn reform(&mut self, name: MemberName, out: &mut Outcome) -> Result<(), Refusal> {
        let queue = self.queue_by_id(name.queue.0).map(Arc::clone);
        let queue = queue.ok_or_else(|| Refusal::not_found(format!("no {}", name.queue.0)))?;
        let member = queue.members.iter().find(|one| is(one, &name)).copied();
        let member = member.ok_or_else(|| {
            Refusal::not_found(format!("node {} has no member of {}", name.node, name.queue.0))
        })?;
        if !matches!(member.stage, Stage::Founding | Stage::Started | Stage::Sole) {
            return Err(Refusal::precondition(format!(
                "the member of {} on node {} has nothing to go on with",
                name.queue.0, name.node
            )));
        }
        if member.stage == Stage::Sole && queue.members.len() == 1 {
            out.queue = Some(queue);
            return Ok(());
        }
        // From the counter that queues and streams have theirs from, so nobody else has it.
        self.last_queue += 1;
        out.records.push(record::put(&Record::LastQueue(QueueId(self.last_queue))));
        let mut changed = Queue::clone(&queue);
        changed.members = vec![Member { stage: Stage::Sole, group: self.last_queue, ..member }];
        out.created = true;
        out.queue = Some(self.change_members(changed, out));
        Ok(())
    }

    pub(super) fn remove_member(&mut self, name: MemberName, out: &mut Outcome) {
        let Some(queue) = self.queue_by_id(name.queue.0) else { return };
        if !queue.members.iter().any(|one| is(one, &name)) {
            return;
        }
        let mut changed = Queue::clone(queue);
        changed.members.retain(|one| !is(one, &name));
        settle(&mut changed);
        out.deleted = true;
        self.change_members(changed, out);
    }

    pub(super) fn withdraw_member(&mut self, name: MemberName, out: &mut Outcome) {
        let mut members = self.queue_by_id(name.queue.0).into_iter().flat_map(|it| &it.members);
        let is_new = |one: &Member| matches!(one.stage, Stage::Founding | Stage::Unstarted);
        if members.any(|one| is(one, &name) && is_new(one)) {
            self.remove_member(name, out);
        }
    }

    fn change_members(&mut self, queue: Queue, out: &mut Outcome) -> Arc<Queue> {
        let queue = Arc::new(queue);
        out.records.push(record::put(&Record::Queue(&queue)));
        self.replace_queue(Arc::clone(&queue));
        if !out.queues_changed.contains(&queue.id) {
            out.queues_changed.push(queue.id);
        }
        queue
    }
}

/// Whether it has yet to be recorded as started.
fn is_begun(member: &Member) -> bool {
    matches!(member.stage, Stage::Founding | Stage::Unstarted | Stage::Sole)
}

fn is(member: &Member, name: &MemberName) -> bool {
    (member.node.0, member.stream.0) == (name.node, name.stream)
}

/// The group exists: who has not started yet does not found it.
fn settle(queue: &mut Queue) {
    for member in &mut queue.members {
        if member.stage == Stage::Founding {
            member.stage = Stage::Unstarted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, DeclareQueue, PutNode, SerialQueueId};
    use crate::scene::{Act, queue, state, table, text};

    fn node(state: &mut State, id: u64, role: NodeRole) {
        let name = format!("n{id}").into();
        let put = PutNode {
            id,
            name,
            address: String::new(),
            role,
            boot: 1,
            starts: Vec::new(),
            zone: None,
        };
        state.apply(Command::PutNode(put)).unwrap();
    }

    /// Nodes 1 to 3 and a witness, and a queue on 1 and 2 with 2 away.
    fn cluster() -> (State, QueueId) {
        let mut state = state();
        for id in 1..=3 {
            node(&mut state, id, NodeRole::Full);
        }
        node(&mut state, 4, NodeRole::Witness);
        let declare = DeclareQueue {
            arguments: table([("x-queue-type", text("quorum"))]),
            home: NodeId(1),
            members: vec![NodeId(1), NodeId(2)],
            away: vec![NodeId(2)],
            ..queue("q")
        };
        let declared = state.apply(Command::DeclareQueue(declare)).unwrap().queue.unwrap();
        (state, declared.id)
    }

    fn stages(state: &State, id: QueueId) -> Vec<(u64, u64, Stage)> {
        let queue = state.queue_by_id(id).unwrap();
        assert_eq!(state.queue("/", "q").unwrap(), queue, "all indexes agree");
        let member = |one: &Member| (one.node.0, one.stream.0, one.stage);
        queue.members.iter().map(member).collect()
    }

    fn name(queue: QueueId, node: u64, stream: u64) -> MemberName {
        MemberName { queue: SerialQueueId(queue), node, stream }
    }

    #[test]
    fn members_come_start_and_go() {
        let (mut state, id) = cluster();
        let own = id.0;
        assert_eq!(
            stages(&state, id),
            [(1, own, Stage::Founding), (2, own, Stage::Unstarted)],
            "who is away does not found it"
        );
        let add = |node| Command::AddMember { queue: SerialQueueId(id), node };
        let outcome = state.apply(add(3)).unwrap();
        assert!(outcome.created && outcome.queues_changed == [id]);
        let third = own + 1;
        assert!(!state.apply(add(3)).unwrap().created, "it is one already");
        let started = Command::MembersStarted(vec![name(id, 1, own), name(id, 9, 9)]);
        state.apply(started).unwrap();
        assert_eq!(
            stages(&state, id),
            [(1, own, Stage::Started), (2, own, Stage::Unstarted), (3, third, Stage::Unstarted)]
        );
        // What is said of an earlier member does not reach a later one.
        let remove = |stream| Command::RemoveMember(name(id, 3, stream));
        assert!(!state.apply(remove(own)).unwrap().deleted);
        assert!(state.apply(remove(third)).unwrap().deleted);
        assert!(!state.apply(remove(third)).unwrap().deleted);
        state.apply(add(3)).unwrap();
        assert_eq!(stages(&state, id)[2], (3, third + 1, Stage::Unstarted), "a new stream");
        // A new queue does not get the number of a stream.
        let next = state.apply(Command::DeclareQueue(queue("next"))).unwrap().queue.unwrap();
        assert_eq!(next.id.0, third + 2);
    }

    #[test]
    fn who_may_vote_by_now_is_not_withdrawn() {
        let (mut state, id) = cluster();
        let own = id.0;
        let withdraw = |node, stream| Command::WithdrawMember(name(id, node, stream));
        state.apply(Command::AddMember { queue: SerialQueueId(id), node: 3 }).unwrap();
        let third = own + 1;
        assert!(!state.apply(withdraw(3, own)).unwrap().deleted, "that was somebody else");
        let outcome = state.apply(withdraw(3, third)).unwrap();
        assert!(outcome.deleted && outcome.queues_changed == [id]);
        assert!(!state.apply(withdraw(3, third)).unwrap().deleted);
        state.apply(Command::MembersStarted(vec![name(id, 2, own)])).unwrap();
        let before = stages(&state, id);
        assert!(!state.apply(withdraw(2, own)).unwrap().deleted);
        state.apply(Command::MemberLost(name(id, 2, own))).unwrap();
        assert!(!state.apply(withdraw(2, own)).unwrap().deleted);
        assert_eq!(before.len(), stages(&state, id).len());
    }

    #[test]
    fn a_lost_member_is_recorded_until_its_successor_is() {
        let (mut state, id) = cluster();
        let own = id.0;
        let lost = |node, stream| Command::MemberLost(name(id, node, stream));
        state.apply(lost(1, own)).unwrap();
        assert_eq!(stages(&state, id)[0].2, Stage::Founding, "it has not started");
        state.apply(Command::MembersStarted(vec![name(id, 1, own)])).unwrap();
        state.apply(lost(1, own + 9)).unwrap();
        assert_eq!(stages(&state, id)[0].2, Stage::Started, "that is somebody else");
        state.apply(lost(1, own)).unwrap();
        assert_eq!(stages(&state, id)[0], (1, own, Stage::Lost));
        let founders = crate::objects::member::founders(&state.queue_by_id(id).unwrap().members);
        assert_eq!(founders, []);
        // It does not come back to life, and gives way to another one on its node.
        state.apply(Command::MembersStarted(vec![name(id, 1, own)])).unwrap();
        assert_eq!(stages(&state, id)[0].2, Stage::Lost);
        let add = Command::AddMember { queue: SerialQueueId(id), node: 1 };
        assert!(state.apply(add.clone()).unwrap().created);
        let next = own + 1;
        assert_eq!(stages(&state, id), [(2, own, Stage::Unstarted), (1, next, Stage::Unstarted)]);
        assert!(!state.apply(add).unwrap().created);
        state.apply(lost(1, own)).unwrap();
        assert_eq!(stages(&state, id)[1], (1, next, Stage::Unstarted), "said too late");
    }

    #[test]
    fn a_group_that_goes_on_with_one_member_has_another_number() {
        let (mut state, id) = cluster();
        let own = id.0;
        let reform = |node, stream| Command::Reform(name(id, node, stream));
        assert!(state.refused(reform(3, own)).text.contains("has no member"));
        assert!(state.refused(Command::Reform(name(QueueId(999), 1, 1))).text.contains("no queue"));
        state.apply(Command::MembersStarted(vec![name(id, 1, own), name(id, 2, own)])).unwrap();
        let outcome = state.apply(reform(2, own)).unwrap();
        assert!(outcome.created && outcome.queues_changed == [id]);
        assert_eq!(stages(&state, id), [(2, own, Stage::Sole)]);
        let group = |state: &State| -> Vec<u64> {
            state.queue_by_id(id).unwrap().members.iter().map(|one| one.group).collect()
        };
        assert_eq!(group(&state), [own + 1]);
        assert!(!state.apply(reform(2, own)).unwrap().created, "it is so already");
        let founders = crate::objects::member::founders(&state.queue_by_id(id).unwrap().members);
        assert_eq!(founders, []);
        state.apply(Command::MembersStarted(vec![name(id, 2, own)])).unwrap();
        // Who comes later is of the new group.
        state.apply(Command::AddMember { queue: SerialQueueId(id), node: 1 }).unwrap();
        assert!(state.refused(reform(1, own + 2)).text.contains("nothing to go on with"));
        assert_eq!(stages(&state, id), [(2, own, Stage::Started), (1, own + 2, Stage::Unstarted)]);
        assert_eq!(group(&state), [own + 1, own + 1]);
        // It may happen a second time.
        state.apply(reform(2, own)).unwrap();
        assert_eq!(group(&state), [own + 3]);
    }

    #[test]
    fn a_group_that_nobody_has_used_goes_on_with_one_member_too() {
        let (mut state, id) = cluster();
        state.apply(Command::Reform(name(id, 1, id.0))).unwrap();
        assert_eq!(stages(&state, id), [(1, id.0, Stage::Sole)]);
    }

    #[test]
    fn a_group_is_not_founded_again_when_its_founder_is_removed() {
        let (mut state, id) = cluster();
        state.apply(Command::AddMember { queue: SerialQueueId(id), node: 3 }).unwrap();
        state.apply(Command::RemoveMember(name(id, 3, id.0 + 1))).unwrap();
        let members = &state.queue_by_id(id).unwrap().members;
        assert_eq!(crate::objects::member::founders(members), []);
    }

    #[test]
    fn only_nodes_that_keep_queues_become_members() {
        let (mut state, id) = cluster();
        let classic = state.apply(Command::DeclareQueue(queue("classic"))).unwrap().queue.unwrap();
        // A wiped node: its old self is known and lost.
        let put = |id| PutNode {
            id,
            name: "n3".into(),
            address: String::new(),
            role: NodeRole::Full,
            boot: 1,
            starts: Vec::new(),
            zone: None,
        };
        state.apply(Command::PutNode(put(33))).unwrap();
        for (queue, node, why) in [
            (QueueId(999), 1, "no queue#999"),
            (classic.id, 1, "only quorum queues"),
            (id, 77, "no node"),
            (id, 3, "was replaced"),
            (id, 4, "keeps no queues"),
        ] {
            let add = Command::AddMember { queue: SerialQueueId(queue), node };
            assert!(state.refused(add).text.contains(why), "{why}");
        }
        assert!(
            state.apply(Command::AddMember { queue: SerialQueueId(id), node: 33 }).unwrap().created
        );
    }
}
