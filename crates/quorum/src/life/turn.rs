//! How a group wakes, and falls asleep.

use super::{Awake, Gate, Stage, Summary, Turn};
use crate::bringup::Sender;
use crate::config;
use crate::founding;
use crate::grouplog::storage::Store;
use crate::host::{Care, Group, GroupError, NotLeader, Shared};
use crate::inbox::Raft;
use crate::machine::Machine;
use crate::network::Network;
use crate::rest::Look;
use crate::rpc::Message;
use crate::session::{Resting, Sessions};
use crate::types::{Data, LogId, Types, vote};
use bytes::Bytes;
use futures_util::FutureExt;
use model::id::NodeId;
use openraft::type_config::TypeConfigExt;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// Numbers times of being awake, for the life of the process.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

impl Turn {
    /// It is over: whoever waits looks again.
    fn end(self) {
        for waiting in self.waiting {
            // Who does not wait any more need not know.
            let _gone = waiting.send(());
        }
    }
}

/// Whether openraft takes what only leaders do of the one of this term, or another one leads.
fn is_heard(term: u64) -> impl Fn(&openraft::RaftMetrics<Types>) -> bool + Send {
    move |metrics| {
        let voters = metrics.membership_config.membership().voter_ids().count();
        metrics.last_quorum_acked.is_some()
            || voters == 1
            || metrics.current_term > term
            || metrics.running_state.is_err()
    }
}

/// Gives an entry to openraft.
pub(super) fn write(awake: &Awake, payload: Bytes) -> Result<(), NotLeader> {
    let proposed = awake.raft.client_write_ff(Data(payload), None);
    // It only waits for room in a channel that holds far more than a caller has under way,
    // and, without this, for the caller's task to have had its share of the processor.
    match tokio::task::unconstrained(proposed).now_or_never() {
        Some(Ok(())) => Ok(()),
        Some(Err(_)) | None => Err(NotLeader),
    }
}

impl Group {
    /// Wakes it, from sleep.
    pub(super) fn begin_to_wake(self: &Arc<Self>, stage: &mut Stage, turn: Turn) {
        let Stage::Asleep(summary) = stage else { return };
        let summary = std::mem::take(summary);
        *stage = Stage::Waking(turn, summary);
        let this = Arc::clone(self);
        drop(Types::spawn(async move { this.become_awake().await }));
    }

    async fn become_awake(self: Arc<Self>) {
        let Some(shared) = self.host.upgrade() else { return };
        // A leader that nothing has happened to goes on in its term; whoever else voted for itself
        // begins as one that starts.
        let mine = self.log.vote().filter(|vote| vote.committed);
        let resumes = self.seat.leading().filter(|term| {
            mine.is_some_and(|vote| {
                vote.leader_id.term == *term && vote.leader_id.voted_for == shared.options.me.0
            })
        });
        let made = self.make(&shared, resumes.is_some()).await;
        if self.care == Care::Supervised && shared.options.rest.after.is_some() {
            shared.awake.lock().insert(self.id);
        }
        let mut stage = self.life.stage.lock();
        let Stage::Waking(turn, summary) = &mut *stage else { return };
        let (mut turn, summary) = (std::mem::take(turn), summary.clone());
        match made {
            Ok(awake) => {
                let awake = Arc::new(awake);
                if !turn.may_rest {
                    awake.touch(self.now());
                }
                let mut proposals = std::mem::take(&mut turn.proposals);
                if founding::is_new(self.log.last()) {
                    // A leader's first entry says nothing, and shows that it leads: until then
                    // openraft takes no change of the members.
                    proposals.insert(0, Bytes::new());
                }
                let gate = resumes.map(|_| Gate { proposals });
                if let Some(term) = resumes {
                    let (this, awake) = (Arc::clone(&self), Arc::clone(&awake));
                    drop(Types::spawn(async move { this.open(awake, term).await }));
                }
                self.inbox.serve_waiting(&awake.raft);
                *stage = Stage::Awake(awake, gate);
            }
            Err(error) => {
                *stage = Stage::Stopped(error.clone(), summary.clone());
                drop(stage);
                if shared.group(self.id).is_some_and(|group| Arc::ptr_eq(&group, &self)) {
                    tracing::error!(group = %self.id, error, "a group cannot wake");
                    self.say_farewell(&summary);
                    self.seat.fail(error);
                }
                return turn.end();
            }
        }
        drop(stage);
        turn.end();
    }

    /// openraft, over what the log has.
    async fn make(&self, shared: &Arc<Shared>, resumes: bool) -> Result<Awake, String> {
        let (id, log, seat) = (self.id, Arc::clone(&self.log), Arc::clone(&self.seat));
        let sessions = Arc::new(Sessions::default());
        *self.sessions.lock() = Some(Arc::clone(&sessions));
        let transport = Arc::clone(&shared.transport);
        let address = self.address.clone();
        let network = Network {
            address: address.clone(),
            transport: Arc::clone(&transport),
            links: Arc::clone(&shared.links),
            sessions: Arc::clone(&sessions),
            seat: Arc::clone(&seat),
            sender: Sender { address, transport, log: Arc::clone(&log), seat: Arc::clone(&seat) },
        };
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let (alive, over) = oneshot::channel();
        let progress = Arc::clone(&self.progress);
        let machine = Machine::new(id, number, log, seat, progress, shared.news.clone(), alive);
        let store = Store(Arc::clone(&self.log));
        let config = if resumes { config::resuming() } else { config::of(self.care) };
        let me = shared.options.me.0;
        let raft = Raft::new(me, config, network, store, machine).await;
        let raft = raft.map_err(|error| error.to_string())?;
        // Once it has answered, it has told who the members are.
        let told = raft.with_raft_state(|_| ()).await;
        told.map_err(|error| error.to_string())?;
        let over = Mutex::new(Some(over));
        Ok(Awake { raft, sessions, number, used: AtomicU64::new(0), over })
    }

    /// Waits until a majority has answered a leader that was woken: only then does openraft take
    /// proposals. Or until somebody else leads.
    async fn open(self: Arc<Self>, awake: Arc<Awake>, term: u64) {
        // An error says that it has stopped.
        drop(awake.raft.wait(None).metrics(is_heard(term), "a majority").await);
        let mut stage = self.life.stage.lock();
        let Stage::Awake(_, gate) = &mut *stage else { return };
        let Some(gate) = gate.take() else { return };
        if self.seat.leading() != Some(term) {
            // Whoever proposed has heard that this node does not lead any more.
            return;
        }
        for payload in gate.proposals {
            // The same, if it is not taken.
            let _lost = write(&awake, payload);
        }
    }

    /// Wakes it for something that only its leader does: one that slept is none for openraft before a
    /// majority has answered it.
    pub(crate) async fn wake_to_lead(
        self: &Arc<Self>,
        patience: Duration,
    ) -> Result<Arc<Awake>, GroupError> {
        let awake = self.wake().await?;
        if let Some(term) = self.seat.leading() {
            let heard = awake.raft.wait(Some(patience)).metrics(is_heard(term), "a majority").await;
            heard.map_err(|error| GroupError::Refused(error.to_string()))?;
        }
        Ok(awake)
    }

    /// What decides about its sleep, and since when, in milliseconds of the host, it is idle.
    fn look(&self, shared: &Shared, awake: &Awake) -> Look {
        let last = self.log.last();
        let (won, leads) = (self.seat.won(), self.seat.leading());
        let applied = self.progress.lock().applied;
        let is_fed = !self.inbox.is_empty() || self.receiving.lock().is_some();
        let idle = self.now().saturating_sub(awake.used());
        awake.metrics(|metrics| {
            let mut followers = metrics.replication.iter().flatten();
            let is_late = |(node, at): (&u64, &Option<LogId>)| {
                shared.is_up(NodeId(*node)) && *at < last && *node != shared.options.me.0
            };
            Look {
                idle: Duration::from_millis(idle),
                last,
                committed: metrics.local_committed,
                applied,
                is_durable: self.log.is_durable(),
                has_failed: metrics.running_state.is_err(),
                won,
                leads,
                is_changing: metrics.membership_config != metrics.committed_membership_config
                    || metrics.membership_config.membership().get_joint_config().len() > 1,
                is_followed_late: followers.any(is_late),
                is_fed,
                feeds: awake.sessions.is_sending(),
                is_voting: self.seat.ballot.is_busy(|node| shared.is_up(node)),
            }
        })
    }

    /// Lets it fall asleep if it was idle for so long and nothing is under way. Tells whether it has.
    pub(crate) async fn doze(self: &Arc<Self>, shared: &Shared, after: Duration) -> bool {
        let awake = {
            let mut stage = self.life.stage.lock();
            let Stage::Awake(awake, None) = &*stage else { return false };
            let is_held = Arc::strong_count(awake) > 1;
            if is_held || self.look(shared, awake).may_sleep(after).is_err() {
                return false;
            }
            let awake = Arc::clone(awake);
            *stage = Stage::Falling(Turn::default(), Arc::clone(&awake));
            awake
        };
        // Whatever openraft was given before, it has dealt with once it answers.
        let answered = awake.raft.with_raft_state(|_| ()).await.is_ok();
        let look = self.look(shared, &awake);
        if !answered || look.may_sleep(Duration::ZERO).is_err() {
            self.stay_awake();
            return false;
        }
        // What was looked at is said, whatever has come since.
        let leads = look.leads.filter(|_| self.seat.leading() == look.leads);
        let vote = leads.map(|term| vote(term, shared.options.me.0, true));
        awake.sessions.rest(vote.map(|vote| Resting { vote, last: look.committed }));
        // An error says that it had stopped by itself, which is known by its state.
        drop(awake.raft.shutdown().await);
        let over = awake.over.lock().take();
        if let Some(over) = over {
            // The end comes as an error: nobody sends anything.
            drop(over.await);
        }
        let summary = awake.summary(self);
        let synced = self.log.synced().await;
        self.log.rest();
        let mut stage = self.life.stage.lock();
        let Stage::Falling(turn, _) = &mut *stage else { return false };
        let mut turn = std::mem::take(turn);
        if let Err(error) = synced {
            *stage = Stage::Stopped(error.to_string(), summary);
            drop(stage);
            turn.end();
            return false;
        }
        *self.sessions.lock() = None;
        shared.awake.lock().remove(&self.id);
        shared.dozed.fetch_add(1, Ordering::Relaxed);
        *stage = Stage::Asleep(summary);
        if turn.is_wanted || !turn.proposals.is_empty() || self.inbox.is_waiting() {
            let waiting = std::mem::take(&mut turn.waiting);
            self.begin_to_wake(&mut stage, turn);
            drop(stage);
            Turn { waiting, ..Turn::default() }.end();
        }
        true
    }

    /// Something has come just in time.
    fn stay_awake(self: &Arc<Self>) {
        let mut stage = self.life.stage.lock();
        let Stage::Falling(turn, awake) = &mut *stage else { return };
        let (turn, awake) = (std::mem::take(turn), Arc::clone(awake));
        let mut turn = turn;
        awake.touch(self.now());
        for payload in std::mem::take(&mut turn.proposals) {
            // Whoever proposed hears that this node does not lead any more.
            let _lost = write(&awake, payload);
        }
        self.inbox.serve_waiting(&awake.raft);
        *stage = Stage::Awake(awake, None);
        drop(stage);
        turn.end();
    }

    /// Stops it for good. Whoever followed a leader that slept hears that it leads no longer.
    pub(crate) async fn stop(&self) {
        let was = loop {
            match self.take_stage() {
                Ok(was) => break was,
                // It ends either way.
                Err(over) => drop(over.await),
            }
        };
        match was {
            // An error says that it had stopped by itself.
            Stage::Awake(awake, _) => drop(awake.raft.shutdown().await),
            Stage::Asleep(summary) => self.say_farewell(&summary),
            // Somebody else has stopped it.
            Stage::Waking(..) | Stage::Falling(..) | Stage::Stopped(..) => {}
        }
        self.seat.close();
    }

    /// It is stopped from now on, and was this; or a change is under way, whose end is waited for.
    fn take_stage(&self) -> Result<Stage, oneshot::Receiver<()>> {
        let mut stage = self.life.stage.lock();
        if let Stage::Waking(turn, _) | Stage::Falling(turn, _) = &mut *stage {
            let (sender, over) = oneshot::channel();
            turn.waiting.push(sender);
            return Err(over);
        }
        let stopped = Stage::Stopped("it was stopped".into(), Summary::default());
        Ok(std::mem::replace(&mut *stage, stopped))
    }

    fn say_farewell(&self, summary: &Summary) {
        let (Some(shared), Some(_)) = (self.host.upgrade(), self.seat.leading()) else { return };
        let message = Message::Closed { group: self.address.get(), session: 0 }.encode();
        for (node, _) in &summary.matched {
            if *node != shared.options.me {
                // Who is not connected hears this node no more anyway.
                drop(shared.transport.send(*node, message.clone()));
            }
        }
    }
}
