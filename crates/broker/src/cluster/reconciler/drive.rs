//! The loop of the reconciler: what wakes it, and in which order it does things.
//!
//! Each turn listens, does what is wanted now, and waits: for the bell, for a step that ends, or for a
//! time. The bell rings with each change of the topology, so also with the steps themselves; what it
//! has to say is gathered for a while, and that does not hold up the places of steps that have ended.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

/// What comes together is heard together.
pub(crate) const GATHER: Duration = Duration::from_millis(100);

/// What turns.
pub(crate) trait Wheel: Sync {
    /// A step that has ended.
    type Ended: Send + 'static;

    /// Waits until something happens, or has happened since the last time.
    fn rung(&self) -> impl Future<Output = ()> + Send;

    /// Hears what has happened.
    fn listen(&self);

    /// Does what is to be done now, and begins steps.
    fn work(&self, steps: &mut JoinSet<Self::Ended>) -> impl Future<Output = ()> + Send;

    /// When there is something to do, if nothing happens.
    fn deadline(&self) -> Option<Instant>;

    /// A step has ended.
    fn ended(&self, step: Self::Ended);
}

/// Turns for ever.
pub(crate) async fn drive<W: Wheel>(wheel: &W) {
    let mut steps: JoinSet<W::Ended> = JoinSet::new();
    // When what the bell has said is heard; `None`: it has said nothing.
    let mut hears = None;
    wheel.listen();
    loop {
        wheel.work(&mut steps).await;
        let deadline = wheel.deadline();
        tokio::select! {
            () = wheel.rung(), if hears.is_none() => hears = Some(Instant::now() + GATHER),
            Some(ended) = steps.join_next(), if !steps.is_empty() => {
                take(wheel, ended);
                // Others have ended meanwhile, and their places are filled together.
                while let Some(ended) = steps.try_join_next() {
                    take(wheel, ended);
                }
            }
            () = until(hears) => {}
            () = until(deadline) => {}
        }
        if hears.is_some_and(|at| at <= Instant::now()) {
            hears = None;
            wheel.listen();
        }
    }
}

fn take<W: Wheel>(wheel: &W, ended: Result<W::Ended, tokio::task::JoinError>) {
    match ended {
        Ok(ended) => wheel.ended(ended),
        Err(error) => tracing::error!(%error, "a step was cut off"),
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        None => std::future::pending().await,
        Some(deadline) => tokio::time::sleep_until(deadline).await,
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::sync::Notify;

    use super::*;

    const PLACES: usize = 16;
    const STEP: Duration = Duration::from_millis(20);

    /// Has so many steps to do, a few at a time, and each rings the bell.
    struct Mill {
        bell: Notify,
        state: Mutex<State>,
    }

    #[derive(Default)]
    struct State {
        left: usize,
        running: usize,
        listened: Vec<Instant>,
        deadlines: usize,
    }

    impl Wheel for Mill {
        type Ended = ();

        async fn rung(&self) {
            self.bell.notified().await;
        }

        fn listen(&self) {
            self.state.lock().listened.push(Instant::now());
        }

        async fn work(&self, steps: &mut JoinSet<()>) {
            let mut state = self.state.lock();
            state.deadlines += 1;
            while state.running < PLACES && state.left > 0 {
                state.left -= 1;
                state.running += 1;
                steps.spawn(tokio::time::sleep(STEP));
            }
        }

        fn deadline(&self) -> Option<Instant> {
            None
        }

        fn ended(&self, (): ()) {
            self.state.lock().running -= 1;
            self.bell.notify_one();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_filled_as_soon_as_they_are_free() {
        let steps = 1_000;
        let state = Mutex::new(State { left: steps, ..State::default() });
        let mill = Mill { bell: Notify::new(), state };
        let begin = Instant::now();
        let is_done = async {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let state = mill.state.lock();
                if state.left + state.running == 0 {
                    break;
                }
            }
        };
        tokio::select! {
            () = drive(&mill) => {}
            () = is_done => {}
            () = tokio::time::sleep(Duration::from_mins(10)) => panic!("it stands still"),
        }
        let took = begin.elapsed();
        let rounds = u32::try_from(steps.div_ceil(PLACES)).expect("few");
        assert!(took <= STEP * rounds + GATHER, "{took:?} for {rounds} times {STEP:?}");
        // And the bell is heard all the same, gathered.
        let listened = &mill.state.lock().listened;
        assert!(listened.len() > 5, "{}", listened.len());
        assert!(listened[1..].windows(2).all(|two| two[1] - two[0] >= GATHER), "{listened:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_bell_says_is_heard_soon() {
        let mill = Mill { bell: Notify::new(), state: Mutex::default() };
        let begin = Instant::now();
        mill.bell.notify_one();
        tokio::select! {
            () = drive(&mill) => {}
            () = tokio::time::sleep(GATHER * 3) => {}
        }
        let state = mill.state.lock();
        assert_eq!(
            state.listened.iter().map(|at| *at - begin).collect::<Vec<_>>(),
            [Duration::ZERO, GATHER]
        );
        assert!(state.deadlines < 10, "it turns only when something happens");
    }
}
