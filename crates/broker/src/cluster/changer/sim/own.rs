//! A node of the simulation in one of its starts, and what the changer sees and does through it.

use super::*;

/// A node in one of its starts, as its tasks see it.
pub(super) struct Own {
    pub(super) world: Weak<Mutex<World>>,
    pub(super) me: NodeId,
    pub(super) boot: u64,
}

impl Own {
    /// The world, as long as this start of the node lasts.
    pub(super) fn world(&self) -> Option<Shared> {
        let world = self.world.upgrade()?;
        let is_it = world.lock().machines.get(&self.me).is_some_and(|it| it.boot == self.boot);
        is_it.then_some(world)
    }

    /// Something that takes a while, and does not happen if the node is gone by then.
    async fn act<T: Send>(&self, what: impl FnOnce(&mut World) -> T + Send) -> T {
        for after in [false, true] {
            let pause = match self.world() {
                Some(world) => world.lock().rng.below(if after { 40 } else { 120 }),
                None => return std::future::pending().await,
            };
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if after {
                break;
            }
        }
        let Some(world) = self.world() else { return std::future::pending().await };
        let done = what(&mut world.lock());
        // It may have happened, and nobody is there to hear it.
        let pause = world.lock().rng.below(60);
        drop(world);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if self.world().is_none() {
            return std::future::pending().await;
        }
        done
    }
}

impl Site for Own {
    fn me(&self) -> NodeId {
        self.me
    }

    fn state(&self) -> Arc<State> {
        let world = self.world.upgrade().expect("the run goes on");
        let world = world.lock();
        Arc::new(world.machines.get(&self.me).map(|it| it.state.clone()).unwrap_or_default())
    }

    fn is_up(&self, node: NodeId) -> bool {
        let world = self.world.upgrade().expect("the run goes on");
        let world = world.lock();
        world.broken == Some(Rule::MajorityRemains) || world.reaches(self.me, node)
    }

    fn status(&self, queue: QueueId) -> Option<Status> {
        let world = self.world()?;
        let world = world.lock();
        let group = world.groups.get(&queue)?;
        let own = group.replicas.get(&self.me)?;
        let (config, at) = own.config();
        let matched = |node: NodeId| {
            if world.broken == Some(Rule::CatchUpFirst) {
                return Some(own.log.len() as u64);
            }
            let replica = group.replicas.get(&node).filter(|_| world.reaches(self.me, node))?;
            let shared = own.shared(replica) as u64;
            own.leads.then_some(shared)
        };
        let member = |node: NodeId| MemberStatus {
            node,
            is_voter: config.voters.contains(&node),
            matched: matched(node),
        };
        let mut members: Vec<MemberStatus> = config.all().map(member).collect();
        members.sort_unstable_by_key(|member| member.node);
        let end = Some(own.log.len() as u64);
        let role = if own.leads {
            Role::Leader { term: own.term }
        } else {
            Role::Follower { term: own.term, leader: None }
        };
        Some(Status {
            role,
            leader: own.leads.then_some(self.me),
            term: own.term,
            last: end,
            committed: Some(own.committed as u64),
            applied: Some(own.committed as u64),
            checkpoint: None,
            purged: None,
            log_bytes: 0,
            whole_bytes: 0,
            members,
            is_changing: at > own.committed,
            has_failed: false,
            is_asleep: false,
        })
    }

    async fn rouse(&self, _: QueueId) {}

    async fn leads(&self, queue: QueueId) -> bool {
        let me = self.me;
        self.act(move |world| {
            let Some(group) = world.groups.get(&queue) else { return false };
            let Some(own) = group.replicas.get(&me).filter(|own| own.leads) else { return false };
            let (config, _) = own.config();
            let follows = |voter: &&NodeId| {
                let replica = group.replicas.get(voter);
                world.reaches(me, **voter) && replica.is_some_and(|it| it.term <= own.term)
            };
            config.is_majority(config.voters.iter().filter(follows).count())
        })
        .await
    }

    async fn change(&self, queue: QueueId, change: change::Change) -> Result<(), GroupError> {
        let me = self.me;
        let refused = |text: &str| Err(GroupError::Refused(text.to_owned()));
        if let Some(world) = self.world() {
            world.lock().intents.insert(queue, (me, self.boot, change));
        }
        let begun = self
            .act(move |world| {
                world.intents.remove(&queue);
                let group = world.groups.get(&queue).ok_or(())?;
                let own = group.replicas.get(&me).filter(|own| own.leads).ok_or(())?;
                let (config, at) = own.config();
                let is_own = own.log[..own.committed].last().is_some_and(|last| last.0 == own.term);
                if at > own.committed || !is_own {
                    return Err(());
                }
                let term = own.term;
                let after = config.after(change);
                if after == config {
                    return Ok(None);
                }
                let config = after;
                world.count("changes");
                let end = world.append(queue, me, Entry::Members(config)).ok_or(())?;
                Ok(Some((term, end)))
            })
            .await;
        if let Some(world) = self.world() {
            world.lock().tell(|| format!("node {} changes {queue}: {change:?} {begun:?}", me.0));
        }
        let Ok(begun) = begun else { return refused("not now") };
        let Some((term, end)) = begun else { return Ok(()) };
        // Committed as soon as a majority has it, which may be later, or never.
        loop {
            let committed = self
                .act(move |world| {
                    let own = world.groups.get(&queue)?.replicas.get(&me)?;
                    let is_it = own.log.get(end - 1).is_some_and(|entry| entry.0 == term);
                    is_it.then_some(own.committed >= end)
                })
                .await;
            match committed {
                Some(true) => return Ok(()),
                Some(false) => {}
                None => return Err(GroupError::Interrupted),
            }
        }
    }

    async fn transfer(&self, queue: QueueId, to: NodeId) -> Result<(), GroupError> {
        let me = self.me;
        let moved = self.act(move |world| world.reaches(me, to) && world.elect(queue, to)).await;
        if moved { Ok(()) } else { Err(GroupError::Refused("it did not take over".into())) }
    }

    async fn submit(&self, command: Command) -> Result<Outcome, Refusal> {
        let me = self.me;
        self.act(move |world| world.submit(me, command)).await
    }

    async fn says_lost(&self, queue: QueueId, node: NodeId) -> bool {
        let me = self.me;
        if let Some(world) = self.world() {
            world.lock().asked.insert(queue, Instant::now());
        }
        self.act(move |world| {
            world.reaches(me, node)
                && !matches!(world.broken, Some(Rule::MajorityRemains | Rule::LostAreReported))
                && world.machines.get(&node).is_some_and(|it| it.lost.contains(&queue))
        })
        .await
    }

    async fn says_unable(&self, queue: QueueId, node: NodeId) -> bool {
        self.says_lost(queue, node).await
    }
}
