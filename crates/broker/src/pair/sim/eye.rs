//! What the judge sees of the real parts: they call this where something happens that has a rule.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use activation::gate::Gate;
use activation::machine::Machine;
use journal::op::Op;
use replication::confirms::Released;

use super::book;
use super::disk::bytes_of;
use super::owner::owner;
use super::world::World;
use crate::pair::hold::Hold;
use crate::replicated::numbered::Sender;

thread_local! {
    static WORLD: RefCell<Weak<World>> = const { RefCell::new(Weak::new()) };
}

/// This is the run of this thread.
pub(super) fn watch(world: &Weak<World>) {
    WORLD.set(Weak::clone(world));
}

fn tell(what: impl FnOnce(&World, Sender)) {
    if let (Some(world), Some(owner)) = (WORLD.with_borrow(Weak::upgrade), owner()) {
        what(&world, owner.me);
    }
}

/// The ground has taken operations at a position.
pub(crate) fn took(position: u64, ops: &[Op]) {
    tell(|world, me| {
        let names = ops.iter().filter_map(|op| match op {
            Op::Put { payload, .. } => book::name_in(&bytes_of(payload)),
            _ => None,
        });
        world.on_taken(me, position, names.collect());
    });
}

/// It has released positions, under this rule.
pub(crate) fn released(released: &Released, gate: Gate) {
    tell(|world, me| world.on_released(me, released, gate));
}

/// The shard says something to clients.
pub(crate) fn spoke() {
    tell(World::on_spoken);
}

/// The machine has made a step.
pub(crate) fn stepped(machine: &Machine, hold: &Arc<Hold>) {
    tell(|world, me| world.on_step(me, machine, hold));
}
