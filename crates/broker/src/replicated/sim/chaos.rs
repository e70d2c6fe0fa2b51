//! What goes wrong.

use std::sync::Arc;
use std::time::Duration;

use model::id::NodeId;
use tokio::time::Instant;

use super::disk::Speed;
use super::rng::Rng;
use super::world::World;

/// Does harm until the time is over, then mends everything.
pub(super) async fn storm(world: Arc<World>, mut rng: Rng) {
    let plan = &world.plan;
    let until = Instant::now() + Duration::from_millis(plan.storm);
    while plan.calm > 0 && Instant::now() < until {
        tokio::time::sleep(rng.millis(1, plan.calm)).await;
        harm(&world, &mut rng);
    }
    tokio::time::sleep_until(until).await;
    world.say(|| "the storm is over".into());
    world.trace(3, &[]);
    world.mend_all();
    let mut down: Vec<NodeId> = world.all();
    down.retain(|node| world.node(*node).is_none());
    let minority = (plan.members as usize - 1) / 2;
    if plan.widow && down.is_empty() && plan.members == plan.nodes {
        let victims = world.all();
        if let Some(victim) = rng.pick(&victims) {
            world.crash(*victim);
            down.push(*victim);
        }
    }
    let kept = if plan.widow && plan.members == plan.nodes { minority } else { 0 };
    for node in down.into_iter().skip(kept) {
        world.boot(node);
    }
    for node in world.alive() {
        node.disk.set_speed(plan.disk);
        node.disk.set_full(false);
    }
}

fn harm(world: &Arc<World>, rng: &mut Rng) {
    let all = world.all();
    let alive = world.alive();
    let (Some(&one), Some(&other)) = (rng.pick(&all), rng.pick(&all)) else { return };
    match rng.below(13) {
        0..=2 => {
            let most = if world.plan.blackouts { 0 } else { all.len() / 2 + 1 };
            if alive.len() > most {
                let time = if rng.chance(50) { rng.millis(0, 300) } else { rng.millis(300, 4_000) };
                world.crash(one);
                later(world, time, move |world| world.boot(one));
            }
        }
        3 if world.plan.blackouts => {
            for node in alive {
                let id = node.me.node;
                world.crash(id);
                let time = rng.millis(0, 1_500);
                later(world, time, move |world| world.boot(id));
            }
        }
        3 | 4 if one != other => {
            // One way.
            world.cut(one, other);
            let time = rng.millis(50, 5_000);
            later(world, time, move |world| world.mend(one, other));
        }
        5 | 6 if one != other => {
            world.cut(one, other);
            world.cut(other, one);
            let time = rng.millis(50, 5_000);
            later(world, time, move |world| {
                world.mend(one, other);
                world.mend(other, one);
            });
        }
        7 => {
            // One node alone.
            let others: Vec<NodeId> = all.into_iter().filter(|node| *node != one).collect();
            let (out, into) = (rng.chance(80), rng.chance(80));
            for &other in &others {
                if out {
                    world.cut(one, other);
                }
                if into {
                    world.cut(other, one);
                }
            }
            let time = rng.millis(500, 8_000);
            later(world, time, move |world| {
                for &other in &others {
                    world.mend(one, other);
                    world.mend(other, one);
                }
            });
        }
        8 if one != other => world.reset(one, other),
        9 | 10 => {
            let Some(node) = world.node(one) else { return };
            let speed = *rng
                .pick(&[Speed { least: 20, most: 200 }, Speed { least: 500, most: 2_500 }])
                .expect("there are two");
            node.disk.set_speed(speed);
            let usual = world.plan.disk;
            later(world, rng.millis(100, 3_000), move |_| node.disk.set_speed(usual));
        }
        12 => {
            let Some(node) = world.node(one) else { return };
            node.disk.set_full(true);
            later(world, rng.millis(100, 2_500), move |_| node.disk.set_full(false));
        }
        11 => {
            let Some(queue) = rng.pick(&world.queues()).copied() else { return };
            for node in alive {
                let host = node.host.clone();
                tokio::spawn(async move {
                    // Who does not lead it refuses.
                    drop(host.transfer(queue.into(), one).await);
                });
            }
        }
        _ => {}
    }
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
