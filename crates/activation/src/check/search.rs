//! Breadth-first search.

use std::collections::VecDeque;

use crate::check::invariants::{Invariant, broken};
use crate::check::steps::Step;
use crate::check::world::{Bounds, Driver, World};

/// States by their fingerprints. Never iterated, so that its order does not matter.
#[expect(clippy::disallowed_types, reason = "a set of millions, which is never iterated")]
type Seen = std::collections::HashMap<u64, u32, std::hash::BuildHasherDefault<Plain>>;

/// Fingerprints are mixed already.
#[derive(Default)]
pub(super) struct Plain(u64);

impl std::hash::Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers")
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// What a search found.
pub(super) struct Found {
    pub(super) states: usize,
    /// A shortest way to a violation.
    pub(super) violation: Option<(Invariant, Vec<Step>)>,
    /// Edges backwards, if they were asked for.
    reached_by: Vec<Vec<u32>>,
    /// The states that satisfy the goal.
    goals: Vec<u32>,
    /// The states that must lead to one.
    needy: Vec<bool>,
}

/// What a search is to do.
pub(super) struct Search<'s> {
    pub(super) bounds: Bounds,
    pub(super) driver: Driver,
    /// The invariant whose violation is looked for; `None`: any.
    pub(super) only: Option<Invariant>,
    /// Remembers the edges, and the states that satisfy this.
    pub(super) goal: Option<&'s dyn Fn(&World) -> bool>,
    /// Does not go on from states that satisfy this.
    pub(super) end: Option<&'s dyn Fn(&World) -> bool>,
}

impl Search<'_> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, driver: Driver::Whole, only: None, goal: None, end: None }
    }

    /// Visits every state that can be reached; `visit` sees each once.
    pub(super) fn run(&self, start: &World, mut visit: impl FnMut(&World)) -> Found {
        let mut seen = Seen::default();
        // How each state was reached first.
        let mut from: Vec<(u32, Option<Step>)> = vec![(0, None)];
        let mut found = Found {
            states: 0,
            violation: None,
            reached_by: Vec::new(),
            goals: vec![],
            needy: vec![],
        };
        let mut queue = VecDeque::from([(0_u32, start.clone())]);
        seen.insert(start.fingerprint(), 0);
        if self.goal.is_some() {
            found.reached_by.push(Vec::new());
        }
        let mut steps = Vec::new();
        while let Some((number, world)) = queue.pop_front() {
            visit(&world);
            found.needy.push(self.is_needy(&world));
            if self.goal.is_some_and(|goal| goal(&world)) {
                found.goals.push(number);
            }
            if self.end.is_some_and(|end| end(&world)) {
                continue;
            }
            steps.clear();
            world.steps(&self.bounds, self.driver, &mut steps);
            for step in &steps {
                let next = world.after(*step, self.driver);
                if self.is_beyond(&next) {
                    continue;
                }
                let new = u32::try_from(from.len()).expect("memory ends earlier");
                let known = *seen.entry(next.fingerprint()).or_insert(new);
                if self.goal.is_some() {
                    if known == new {
                        found.reached_by.push(Vec::new());
                    }
                    found.reached_by[known as usize].push(number);
                }
                let violated = match self.only {
                    None => broken(&world, &next, self.driver),
                    Some(only) => (!only.holds(&world, &next, self.driver)).then_some(only),
                };
                if known == new {
                    from.push((number, Some(*step)));
                }
                if let Some(invariant) = violated {
                    let mut trace = trace(&from, number);
                    trace.push(*step);
                    found.violation = Some((invariant, trace));
                    found.states = from.len();
                    return found;
                }
                if known == new {
                    queue.push_back((new, next));
                }
            }
        }
        found.states = from.len();
        found
    }

    /// The search ends at an age: near the end a way to a goal may be cut off.
    fn is_needy(&self, world: &World) -> bool {
        world.register.is_none_or(|register| register.age().get() + 3 <= self.bounds.age_max)
    }

    fn is_beyond(&self, world: &World) -> bool {
        world.register.is_some_and(|register| register.age().get() > self.bounds.age_max)
    }
}

impl Found {
    /// How many states lead to no goal at all.
    pub(super) fn stuck(&self) -> usize {
        let mut leads = vec![false; self.reached_by.len()];
        let mut queue = self.goals.clone();
        for goal in &queue {
            leads[*goal as usize] = true;
        }
        while let Some(number) = queue.pop() {
            for before in &self.reached_by[number as usize] {
                if !std::mem::replace(&mut leads[*before as usize], true) {
                    queue.push(*before);
                }
            }
        }
        leads.iter().zip(&self.needy).filter(|(leads, needy)| !**leads && **needy).count()
    }
}

fn trace(from: &[(u32, Option<Step>)], mut number: u32) -> Vec<Step> {
    let mut steps = Vec::new();
    while let (before, Some(step)) = from[number as usize] {
        steps.push(step);
        number = before;
    }
    steps.reverse();
    steps
}
