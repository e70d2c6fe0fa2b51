//! What a node does all the time: its keeper, and its reconciler with scheduler and observer.

use super::*;

/// Starts a node, and what it does all the time.
pub(super) fn boot(world: &Shared, node: NodeId) {
    let boot = {
        let mut world = world.lock();
        world.boots += 1;
        let boot = world.boots;
        let machine = world.machines.get_mut(&node).expect("it is there");
        machine.boot = boot;
        world.tell(|| format!("node {} starts", node.0));
        boot
    };
    let own = |boot| Own { world: Arc::downgrade(world), me: node, boot };
    let changer = Arc::new(Changer::new(own(boot)));
    tokio::spawn(make_known(Arc::clone(&changer), boot));
    tokio::spawn(keep(Arc::clone(&changer)));
    tokio::spawn(reconcile(changer));
}

pub(super) fn led(own: &Own) -> Option<Vec<QueueId>> {
    let world = own.world()?;
    let world = world.lock();
    let leads = |group: &Group| group.replicas.get(&own.me).is_some_and(|own| own.leads);
    Some(world.groups.iter().filter(|(_, group)| leads(group)).map(|(id, _)| *id).collect())
}

pub(super) async fn keep(changer: Arc<Changer<Own>>) {
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let Some(led) = led(&changer.site) else { return };
        let Some(world) = changer.site.world() else { return };
        let broken = world.lock().broken;
        drop(world);
        if broken != Some(Rule::KeeperFinishes) {
            keeper::pass(&changer, &led, true).await;
        }
        let state = changer.site.state();
        let rests = state.node(changer.site.me).is_some_and(|node| node.maintenance);
        if !rests {
            continue;
        }
        // A drained node gives away what it has come to lead.
        for queue in led {
            let Ok(seen) = changer.look(queue) else { continue };
            drop(changer.hand_over(&seen).await);
        }
    }
}

/// A node tells the topology of its start, which ends that it rests.
async fn make_known(changer: Arc<Changer<Own>>, boot: u64) {
    loop {
        let Some(world) = changer.site.world() else { return };
        let name = world.lock().machines.get(&changer.site.me).map(|machine| machine.name.clone());
        drop(world);
        let Some(name) = name else { return };
        if changer.site.submit(put(changer.site.me, &name, boot + 1)).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

pub(super) fn now(begin: Instant) -> Timestamp {
    Timestamp(begin.elapsed().as_millis() as u64)
}

/// What the reconciler does, with its scheduler and its observer.
pub(super) async fn reconcile(changer: Arc<Changer<Own>>) {
    let begin = Instant::now();
    let Some(world) = changer.site.world() else { return };
    let mut settings = world.lock().settings;
    drop(world);
    let mut scheduler = Scheduler::new(Timestamp(0), settings.timing(), 0);
    let (mut observer, mut known) = (Observer::default(), BTreeSet::new());
    let (mut seen, mut hearing, mut up) = (Seen::default(), Hearing::default(), BTreeSet::new());
    let mut steps: tokio::task::JoinSet<(QueueId, Step, bool)> = tokio::task::JoinSet::new();
    loop {
        let Some(led) = led(&changer.site) else { return };
        let led: BTreeSet<QueueId> = led.into_iter().collect();
        for queue in led.difference(&known) {
            scheduler.on(now(begin), Event::Led(*queue), 0);
        }
        for queue in known.difference(&led) {
            scheduler.on(now(begin), Event::NotLed(*queue), 0);
        }
        known = led;
        let Some(world) = changer.site.world() else { return };
        let wanted = world.lock().settings;
        drop(world);
        if wanted != settings {
            settings = wanted;
            scheduler.on(now(begin), Event::Reloaded(settings.timing()), 0);
        }
        // Only what a node hears of wakes it.
        let state = Seen::of(&changer.site.state());
        if !state.is_as(&seen) {
            seen = state;
            scheduler.on(now(begin), Event::Trigger, 0);
        }
        let Some(there) = connected(&changer) else { return };
        if there != up {
            scheduler.on(now(begin), Event::Trigger, 0);
            for start in there.difference(&up) {
                scheduler.on(now(begin), Event::Up(start.0), 0);
            }
            up = there;
            let starts: Vec<(NodeId, u64)> = up.iter().copied().collect();
            hearing.connected(now(begin), &starts);
        }
        for start in hearing.due(now(begin)) {
            let lost = answer(&changer, start.0);
            hearing.answered(now(begin), start, lost.is_some());
            for queue in lost.map(|lost| observer.has_lost(start.0, lost)).unwrap_or_default() {
                scheduler.on(now(begin), Event::Touched(queue), 0);
            }
        }
        while let Some(order) = scheduler.order(now(begin)) {
            match order {
                Order::Examine(queue) => {
                    let avoided = scheduler.avoided(now(begin), queue);
                    let is_busy = changer.is_busy(queue);
                    let seen = Known { now: now(begin), settings, is_busy, avoided };
                    let event = match examine(&changer, &mut observer, queue, seen) {
                        Some(plan) => Event::Examined(queue, Box::new(plan)),
                        None => Event::NotLed(queue),
                    };
                    scheduler.on(now(begin), event, 0);
                }
                Order::Perform(queue, step) => {
                    let changer = Arc::clone(&changer);
                    steps.spawn(async move {
                        let done = perform(&changer, queue, &step.action).await;
                        (queue, step, done)
                    });
                }
            }
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
            Some(ended) = steps.join_next(), if !steps.is_empty() => {
                let Ok((queue, step, done)) = ended else { return };
                if let Some(node) = step.action.relies_on().filter(|_| done) {
                    observer.has_found(node, queue);
                }
                let outcome = if done { Ended::Done } else { Ended::Failed };
                scheduler.on(now(begin), Event::Finished { queue, step, outcome }, 0);
            }
        }
    }
}

/// The starts of other nodes that are connected.
fn connected(changer: &Changer<Own>) -> Option<BTreeSet<(NodeId, u64)>> {
    let (me, world) = (changer.site.me(), changer.site.world()?);
    let world = world.lock();
    let others = world.machines.iter().filter(|(node, _)| world.reaches(me, **node));
    Some(others.map(|(node, machine)| (*node, machine.boot)).filter(|it| it.0 != me).collect())
}

/// What a node says that it has lost, if it answers.
fn answer(changer: &Changer<Own>, node: NodeId) -> Option<BTreeSet<QueueId>> {
    let world = changer.site.world()?;
    let mut world = world.lock();
    if world.broken == Some(Rule::LostAreReported) {
        return Some(BTreeSet::new());
    }
    let is_heard = world.reaches(changer.site.me(), node) && !world.rng.one_in(3);
    is_heard.then(|| world.machines.get(&node).map(|it| it.lost.clone()))?
}

pub(super) fn examine(
    changer: &Changer<Own>,
    observer: &mut Observer,
    queue: QueueId,
    known: Known,
) -> Option<Plan> {
    let (desired, observed) = observer.observe(&changer.site, queue, known)?;
    Some(plan(&desired, &observed))
}

pub(super) async fn perform(changer: &Changer<Own>, queue: QueueId, action: &Action) -> bool {
    let ended = match action {
        Action::Add { node } | Action::Promote { node } => {
            changer.here(queue, node.id, What::Add).await
        }
        Action::Replace { with, .. } => changer.here(queue, with.id, What::Add).await,
        Action::Remove { node } => {
            changer.here(queue, node.id, What::Delete { force: false }).await
        }
    };
    if let Some(world) = changer.site.world() {
        world.lock().tell(|| format!("node {} {queue}: {action} {ended:?}", changer.site.me.0));
    }
    ended.is_ok()
}
