//! What goes wrong.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use journal::sim::Fault;
use metadata::command::{Command, JournalChange};
use model::id::NodeId;
use tokio::time::Instant;

use super::disk::Speed;
use super::trap::Trap;
use super::world::{Death, NAME, World};
use crate::replicated::sim::rng::Rng;

/// Does harm until the time is over, then mends everything; gives the node that stays away, and
/// whether that has stopped in good order.
pub(super) async fn storm(world: Arc<World>, mut rng: Rng) -> Option<(NodeId, bool)> {
    let plan = &world.plan;
    let begin = Instant::now();
    let until = begin + Duration::from_millis(plan.storm);
    let mut is_paired = !plan.later;
    while Instant::now() < until {
        tokio::time::sleep(rng.millis(1, plan.calm)).await;
        if !is_paired && begin.elapsed() > Duration::from_millis(plan.storm / 5) {
            is_paired = set_backup(&world, &mut rng);
        }
        harm(&world, &mut rng);
    }
    world.traps.lock().clear();
    world.calm.store(true, Ordering::Relaxed);
    world.say(|| "the storm is over".into());
    world.trace(3, &[]);
    while !is_paired {
        is_paired = set_backup(&world, &mut rng);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut away = None;
    if plan.away {
        let victim = *rng.pick(&world.pair()).expect("there are two");
        *world.away.lock() = Some(victim);
        let good = rng.chance(40) && stop(&world, victim).await;
        world.end_node(victim, if rng.chance(50) { Death::Kill } else { Death::Power });
        away = Some((victim, good));
    }
    world.mend_all();
    for node in world.alive() {
        node.thaw();
    }
    for drive in world.drives() {
        drive.disk.heal();
        drive.set_speed(plan.disk);
    }
    world.touch();
    let away_node = away.map(|(node, _)| node);
    for node in world.all() {
        if Some(node) != away_node {
            world.boot(node);
        }
    }
    away
}

/// An operator gives the journal its backup, by a node that is there.
fn set_backup(world: &Arc<World>, rng: &mut Rng) -> bool {
    let Some(node) = rng.pick(&world.alive()).cloned() else { return false };
    world.say(|| "the journal gets a backup".into());
    node.topology.order(Command::ChangeJournal(JournalChange::SetBackup {
        name: NAME.into(),
        node: world.pair()[1].0,
    }));
    true
}

/// Stops a node in good order; whether that came to an end.
async fn stop(world: &Arc<World>, id: NodeId) -> bool {
    let Some(node) = world.node(id).filter(|node| !node.owner.is_frozen()) else { return false };
    let Some(stopped) = node.stop() else { return false };
    world.say(|| format!("node {id} is stopped"));
    world.book.lock().tally.stops += 1;
    let mut dead = node.dead.subscribe();
    tokio::select! {
        biased;
        _ = dead.wait_for(|dead| *dead) => false,
        stopped = tokio::time::timeout(Duration::from_secs(20), stopped) => {
            if stopped.is_err() && world.is_alive(node.me) && !node.owner.is_frozen() {
                let how = world.book.lock().describe();
                world.fail(format!("node {id} does not stop; {how}"));
            }
            stopped.is_ok_and(|stopped| stopped.is_ok())
        }
    }
}

fn harm(world: &Arc<World>, rng: &mut Rng) {
    let (all, pair) = (world.all(), world.pair());
    // The pair is what this is about.
    let victims = if rng.chance(75) { &pair[..] } else { &all[..] };
    let one = *rng.pick(victims).expect("there are some");
    let other = *rng.pick(&all).expect("there are some");
    let kind = match world.plan.trap {
        Some(_) if rng.chance(60) => 18,
        _ => rng.below(20),
    };
    match kind {
        0..=2 => {
            let how = if rng.chance(50) { Death::Kill } else { Death::Power };
            end(world, rng, one, how);
        }
        3 if world.plan.blackouts => {
            for node in all {
                end(world, rng, node, Death::Power);
            }
        }
        3 => {
            for node in pair {
                end(world, rng, node, Death::Power);
            }
        }
        // One way, then both, between any two.
        4 if one != other => cut(world, rng, &[(one, other)]),
        5 if one != other => cut(world, rng, &[(one, other), (other, one)]),
        6 => cut(world, rng, &[(pair[0], pair[1]), (pair[1], pair[0])]),
        // A node of the pair and the metadata group.
        7 => {
            let (voters, _) = world.voters_and_others();
            let paths: Vec<_> = voters
                .into_iter()
                .filter(|voter| !pair.contains(voter))
                .flat_map(|voter| [(one, voter), (voter, one)])
                .filter(|(from, to)| from != to)
                .collect();
            cut(world, rng, &paths);
        }
        // One node alone.
        8 => {
            let others = all.iter().copied().filter(|node| *node != one);
            let paths: Vec<_> = others.flat_map(|node| [(one, node), (node, one)]).collect();
            cut(world, rng, &paths);
        }
        // The group has no majority.
        9 => {
            let (voters, _) = world.voters_and_others();
            let mut paths = Vec::new();
            for from in &voters {
                for to in &voters {
                    let of_pair = pair.contains(from) && pair.contains(to);
                    if from != to && !of_pair {
                        paths.push((*from, *to));
                    }
                }
            }
            cut(world, rng, &paths);
            if !world.plan.apart {
                let time = rng.millis(100, 6_000);
                end_for(world, NodeId(3), Death::Kill, time);
            }
        }
        10 if one != other => world.reset(one, other),
        11 | 12 => pause(world, rng, one),
        13 => {
            let drive = world.drive(one);
            let speed = *rng
                .pick(&[Speed { least: 20, most: 200 }, Speed { least: 500, most: 4_000 }])
                .expect("there are two");
            drive.set_speed(speed);
            let usual = world.plan.disk;
            later(world, rng.millis(100, 4_000), move |_| drive.set_speed(usual));
        }
        14 => {
            let drive = world.drive(one);
            let disk = &drive.disk;
            let fault = if rng.chance(50) { Fault::Broken } else { Fault::Gone };
            disk.fail_at(disk.steps() + rng.below(30), fault);
            world.say(|| format!("the disk of node {one} will fail"));
            world.book.lock().tally.disk_errors += 1;
        }
        15 => {
            let (world, time) = (Arc::clone(world), rng.millis(0, 3_000));
            let how = if rng.chance(50) { Death::Kill } else { Death::Power };
            tokio::spawn(async move {
                let Some(node) = world.node(one) else { return };
                stop(&world, one).await;
                if world.is_alive(node.me) {
                    world.end_node(one, how);
                    tokio::time::sleep(time).await;
                    world.boot(one);
                }
            });
        }
        16..=18 => {
            let trap = Trap::new(rng, world.plan.trap);
            world.say(|| format!("{trap:?} waits"));
            world.traps.lock().push(trap);
        }
        19 if world.plan.wipes && pair.contains(&one) => wipe(world, rng, one),
        _ => {}
    }
}

/// A node loses its disk, and comes back as another one.
fn wipe(world: &Arc<World>, rng: &mut Rng, node: NodeId) {
    world.end_node(node, Death::Power);
    // What it has asked the group for is done, or lost, when it is looked whether it can be spared.
    later(world, rng.millis(500, 4_000), move |world| {
        world.wipe(node);
        world.boot(node);
    });
}

pub(super) fn end(world: &Arc<World>, rng: &mut Rng, node: NodeId, how: Death) {
    let time = if rng.chance(50) { rng.millis(0, 300) } else { rng.millis(300, 6_000) };
    end_for(world, node, how, time);
}

fn end_for(world: &Arc<World>, node: NodeId, how: Death, time: Duration) {
    if world.node(node).is_none() {
        return;
    }
    {
        let tally = &mut world.book.lock().tally;
        match how {
            Death::Kill => tally.kills += 1,
            Death::Power => tally.power_cuts += 1,
        }
    }
    world.end_node(node, how);
    later(world, time, move |world| world.boot(node));
}

pub(super) fn cut(world: &Arc<World>, rng: &mut Rng, paths: &[(NodeId, NodeId)]) {
    world.book.lock().tally.cuts += 1;
    world.say(|| format!("cut: {paths:?}"));
    for &(from, to) in paths {
        world.cut(from, to);
    }
    let paths = paths.to_vec();
    later(world, rng.millis(50, 7_000), move |world| {
        for (from, to) in paths {
            world.mend(from, to);
        }
    });
}

pub(super) fn pause(world: &Arc<World>, rng: &mut Rng, node: NodeId) {
    let Some(node) = world.node(node) else { return };
    world.say(|| format!("node {} is stopped for a while", node.me.node));
    world.book.lock().tally.pauses += 1;
    node.freeze();
    world.touch();
    let time = if rng.chance(40) { rng.millis(50, 800) } else { rng.millis(800, 7_000) };
    later(world, time, move |world| {
        node.thaw();
        world.touch();
    });
}

fn later(world: &Arc<World>, time: Duration, what: impl FnOnce(&Arc<World>) + Send + 'static) {
    let world = Arc::downgrade(world);
    tokio::spawn(async move {
        tokio::time::sleep(time).await;
        if let Some(world) = world.upgrade() {
            what(&world);
        }
    });
}
