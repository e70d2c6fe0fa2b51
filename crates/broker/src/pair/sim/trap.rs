//! Harm at a certain point: whoever of the pair comes to it next is killed, loses power, is stopped
//! for a while or cannot reach the metadata group any more, in that moment or a little later.

use std::sync::Arc;

use activation::machine::{Mode, Passive, Phase, Step, Then, Why};

use super::chaos;
use super::world::{Death, World};
use crate::replicated::numbered::Sender;
use crate::replicated::sim::rng::Rng;

/// Where it waits: the points of the crash tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Point {
    /// The lock is asked for, or has just been got.
    Lock,
    /// To begin to serve: the claim, the file, the commit, and right behind it.
    Claim,
    File,
    Commit,
    Served,
    /// The same after the loss of a replica.
    LossClaim,
    LossFile,
    LossCommit,
    LossRaised,
    /// A claim of somebody else or of one's own is being repaired.
    RepairFile,
    RepairRegister,
    /// The claim after that.
    RepairClaim,
    /// A copy is begun, received, whole, in sync; on either side.
    Marking,
    Copying,
    Persisting,
    InSync,
    Syncing,
    MaybeInSync,
    Replicated,
    /// The journal is being closed, to be handed over or not.
    Closing,
    HandingOver,
}

impl Point {
    pub(super) const ALL: [Self; 21] = [
        Self::Lock,
        Self::Claim,
        Self::File,
        Self::Commit,
        Self::Served,
        Self::LossClaim,
        Self::LossFile,
        Self::LossCommit,
        Self::LossRaised,
        Self::RepairFile,
        Self::RepairRegister,
        Self::RepairClaim,
        Self::Marking,
        Self::Copying,
        Self::Persisting,
        Self::InSync,
        Self::Syncing,
        Self::MaybeInSync,
        Self::Replicated,
        Self::Closing,
        Self::HandingOver,
    ];

    /// Whether a machine is there, that was somewhere else before.
    fn is_at(self, before: Option<Phase>, phase: Phase) -> bool {
        let step_before = match before {
            Some(Phase::Raising { step, .. }) => Some(step),
            _ => None,
        };
        let was_lost =
            matches!(before, Some(Phase::Raising { why: Why::ReplicaLost | Why::SyncUnheard, .. }));
        match (self, phase) {
            (Self::Lock, Phase::Acquiring | Phase::Confirming(_) | Phase::Loading(_))
            | (
                Self::Closing,
                Phase::Closing { then: Then::Again | Then::GiveWay | Then::Stop, .. },
            )
            | (Self::HandingOver, Phase::Closing { then: Then::HandOver { .. }, .. }) => true,
            (_, Phase::Raising { step, why, .. }) => {
                let lost = matches!(why, Why::ReplicaLost | Why::SyncUnheard);
                let repaired = step_before == Some(Step::RepairRegister);
                match step {
                    Step::RepairFile => self == Self::RepairFile,
                    Step::RepairRegister => self == Self::RepairRegister,
                    Step::Claim if repaired => self == Self::RepairClaim,
                    Step::Claim => self == if lost { Self::LossClaim } else { Self::Claim },
                    Step::File => self == if lost { Self::LossFile } else { Self::File },
                    Step::Commit => self == if lost { Self::LossCommit } else { Self::Commit },
                }
            }
            (_, Phase::Active { mode, .. }) => match mode {
                Mode::Unreplicated if was_lost => self == Self::LossRaised,
                Mode::Unreplicated => self == Self::Served,
                Mode::Syncing { .. } => self == Self::Syncing,
                Mode::MaybeInSync { .. } => self == Self::MaybeInSync,
                Mode::Replicated { .. } => self == Self::Replicated,
            },
            (_, Phase::Passive(passive)) => match passive {
                Passive::Seeking | Passive::Verifying => false,
                Passive::Marking { .. } => self == Self::Marking,
                Passive::Copying => self == Self::Copying,
                Passive::Persisting { .. } => self == Self::Persisting,
                Passive::InSync => self == Self::InSync,
            },
            _ => false,
        }
    }
}

/// See the module head.
#[derive(Debug, Clone)]
pub(super) struct Trap {
    at: Point,
    /// What of several things happens, when, and for how long.
    rng: Rng,
}

impl Trap {
    /// One somewhere, or at that point.
    pub(super) fn new(rng: &mut Rng, at: Option<Point>) -> Self {
        let drawn = *rng.pick(&Point::ALL).expect("there are some");
        // A claim must have been left open before somebody can repair it.
        let opens = [Point::File, Point::Commit, Point::LossFile, Point::LossCommit];
        let opening = *rng.pick(&opens).expect("there are some");
        let repairs = [Point::RepairFile, Point::RepairRegister, Point::RepairClaim];
        let at = match at {
            Some(at) if repairs.contains(&at) && rng.chance(60) => opening,
            Some(at) => at,
            None => drawn,
        };
        Self { at, rng: rng.fork() }
    }
}

impl World {
    /// A node has come somewhere.
    pub(super) fn spring(&self, me: Sender, before: Option<Phase>, phase: Phase) {
        if !self.pair().contains(&me.node) {
            return;
        }
        let hangs = self
            .hangs_at
            .lock()
            .take_if(|(node, point)| *node == me.node && point.is_at(before, phase));
        if hangs.is_some()
            && let Some(node) = self.node(me.node)
        {
            self.say(|| format!("the disk of node {} hangs", me.node));
            node.owner.hang();
        }
        let sprung = {
            let mut traps = self.traps.lock();
            let at = traps.iter().position(|trap| trap.at.is_at(before, phase));
            at.map(|at| traps.swap_remove(at))
        };
        let (Some(mut trap), Some(world)) = (sprung, self.this.upgrade()) else { return };
        self.say(|| format!("node {} meets {:?}", me.node, trap.at));
        tokio::spawn(async move {
            let rng = &mut trap.rng;
            let time = if rng.chance(50) { rng.millis(0, 3) } else { rng.millis(0, 40) };
            tokio::time::sleep(time).await;
            if !world.is_alive(me) {
                return;
            }
            world.book.lock().tally.trapped += 1;
            harm(&world, rng, me);
        });
    }
}

fn harm(world: &Arc<World>, rng: &mut Rng, me: Sender) {
    match rng.below(8) {
        0..=2 => chaos::end(world, rng, me.node, Death::Kill),
        3 | 4 => chaos::end(world, rng, me.node, Death::Power),
        5 => chaos::pause(world, rng, me.node),
        _ => {
            let (voters, _) = world.voters_and_others();
            let others = voters.into_iter().filter(|voter| *voter != me.node);
            let paths: Vec<_> =
                others.flat_map(|voter| [(me.node, voter), (voter, me.node)]).collect();
            chaos::cut(world, rng, &paths);
        }
    }
}
