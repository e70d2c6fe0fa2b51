//! What a driver does beside its inputs, step by step.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use activation::age::Age;
use activation::register::{Incarnation, Register, View};
use activation::standing::{Record, Standing};
use bytes::Bytes;
use journal::error::ReadError;
use journal::op::{Lsn, Op};
use model::id::{Seq, StreamId};
use parking_lot::Mutex;

use super::*;
use crate::pair::ear::Ear;
use crate::pair::pulse::Pulse;
use crate::pair::sim::bare_yard;
use crate::pair::works::{Opened, Store, Unopened, Works};
use crate::replicated::numbered::Sender;

const ME: NodeId = NodeId(2);
const OTHER: NodeId = NodeId(1);
/// How long something may take that happens.
const SOON: Duration = Duration::from_secs(20);

/// Sends everything nowhere.
#[derive(Debug)]
struct Silent;

impl Line for Silent {
    fn send(&self, _: NodeId, _: Bytes) -> bool {
        true
    }

    fn is_up(&self, _: NodeId) -> bool {
        true
    }

    fn has_quorum(&self) -> bool {
        true
    }
}

impl Works for Silent {
    fn folder(&self, _: &str, _: JournalUid) -> io::Result<(Arc<dyn Shelf>, Found)> {
        unreachable!("the folder is given")
    }
}

/// What somebody does with the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    SetAside,
    Open,
    Close,
    Look,
}

/// A folder of which each step is told, and some go on only when they may.
#[derive(Debug)]
struct Stepwise {
    steps: mpsc::Sender<Step>,
    go: Arc<Mutex<mpsc::Receiver<()>>>,
    /// No journal can be opened.
    broken: Arc<Mutex<Option<io::ErrorKind>>>,
    /// No small file can be written.
    spoiled: Arc<Mutex<Option<io::ErrorKind>>>,
}

impl Stepwise {
    /// Writes a small file.
    fn small(&self) -> io::Result<()> {
        self.spoiled.lock().map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn step(&self, step: Step) {
        self.steps.send(step).unwrap();
        self.go.lock().recv().unwrap();
    }
}

impl Shelf for Stepwise {
    fn look(&self) -> io::Result<Found> {
        self.step(Step::Look);
        Ok(Found { record: Record::NONE, damage: None, vacant: true, saved: Vec::new() })
    }

    fn set_sequence(&self, _: Age, _: bool) -> io::Result<String> {
        unreachable!("nobody wants that")
    }

    fn write(&self, _: &Record) -> io::Result<()> {
        self.small()
    }

    fn set_aside(&self, _: &Record) -> io::Result<()> {
        self.step(Step::SetAside);
        Ok(())
    }

    fn prune(&self, _: Option<u64>) -> io::Result<()> {
        Ok(())
    }

    fn adopt(&self, _: Age, _: Incarnation) -> io::Result<String> {
        unreachable!("nobody wants that")
    }

    fn discard(&self) -> io::Result<String> {
        Ok(String::new())
    }

    fn restore(&self, _: &str) -> io::Result<String> {
        unreachable!("nobody wants that")
    }

    fn saved_copies(&self) -> io::Result<Vec<SavedCopy>> {
        Ok(Vec::new())
    }

    fn declare(&self, _: &str) -> io::Result<()> {
        self.small()
    }

    fn open(&self, yard: &Yard, name: &str, _: &Pulse) -> Result<Opened, Unopened> {
        self.step(Step::Open);
        if let Some(kind) = *self.broken.lock() {
            return Err(Unopened::io(&kind.into(), kind.to_string()));
        }
        let (_, recovery) = journal::inline::InlineJournal::open(
            journal::options::Options::new("/copy"),
            Arc::new(journal::sim::SimDisk::new(0)),
        )
        .unwrap();
        let ear = Ear::new(name, yard.failed.clone(), Arc::clone(&yard.pressure));
        let ear = Arc::new(ear);
        let store = Closing { steps: self.steps.clone(), go: Arc::clone(&self.go) };
        Ok((Box::new(store), recovery, ear))
    }
}

/// A journal that tells when it is closed.
#[derive(Debug)]
struct Closing {
    steps: mpsc::Sender<Step>,
    go: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Store for Closing {
    fn submit(&self, _: Vec<Op>) -> Lsn {
        Lsn(0)
    }

    fn hasten(&self) {}

    fn read(&self, _: StreamId, _: &[Seq], _: &mut Vec<Result<Bytes, ReadError>>) {}

    fn close(self: Box<Self>) -> io::Result<()> {
        self.steps.send(Step::Close).unwrap();
        self.go.lock().recv().unwrap();
        Ok(())
    }
}

/// A driver that has not begun, and both ends of its folder.
struct Scene {
    driver: Driver,
    inputs: UnboundedReceiver<Input>,
    steps: mpsc::Receiver<Step>,
    go: mpsc::Sender<()>,
    broken: Arc<Mutex<Option<io::ErrorKind>>>,
    spoiled: Arc<Mutex<Option<io::ErrorKind>>>,
}

impl Scene {
    fn new(own: Own) -> Self {
        let (told, steps) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        let broken = Arc::<Mutex<_>>::default();
        let go_on = Arc::new(Mutex::new(may_go));
        let spoiled = Arc::<Mutex<_>>::default();
        let (no_journal, no_file) = (Arc::clone(&broken), Arc::clone(&spoiled));
        let shelf = Stepwise { steps: told, go: go_on, broken: no_journal, spoiled: no_file };
        let me = Sender { node: ME, boot: 1 };
        let uid = JournalUid(7);
        let (driver, inputs) = Driver::new(Parts {
            yard: bare_yard(me, Arc::new(Silent), Arc::new(Silent)),
            line: Arc::new(Silent),
            folder: Arc::new(shelf),
            entry: Arc::new(JournalEntry {
                name: "orders".into(),
                uid: uid.to_string().into(),
                node: OTHER,
                backup: ME,
                paired: true,
                served: None,
                term: 0,
            }),
            uid,
            own,
            damage: None,
            saved: Vec::new(),
        });
        Self { driver, inputs, steps, go, broken, spoiled }
    }

    /// A session with the active node begins.
    fn register(&mut self, id: u64) {
        let session = Session { journal: JournalUid(7), with: OTHER, id };
        let line = Arc::new(Silent);
        self.driver.standby = Some(Standby::register(session, line, &mut Vec::new()));
    }

    /// The machine has been told this, and the driver nothing of it.
    fn begin(&mut self, events: &[Event]) {
        for event in events {
            self.driver.machine.step(*event, &mut Vec::new());
        }
    }

    fn expect(&self, step: Step) {
        assert_eq!(self.steps.recv_timeout(SOON).unwrap(), step);
    }

    /// Lets the step go on that waits.
    fn go(&self) {
        self.go.send(()).unwrap();
    }

    /// Takes the next input, which is this one.
    async fn take(&mut self, is_it: impl Fn(&Input) -> bool) {
        let input = tokio::time::timeout(SOON, self.inputs.recv()).await.unwrap().unwrap();
        assert!(is_it(&input), "{input:?}");
        self.driver.input(input).await;
    }

    /// The copy is made: the driver hears so.
    async fn emptied(&mut self) {
        while self.driver.emptying.is_some() {
            let input = tokio::time::timeout(SOON, self.inputs.recv()).await.unwrap().unwrap();
            if let Input::Emptied(opened) = input {
                self.driver.emptied(opened).await;
            }
        }
    }
}

fn stale() -> Own {
    let standing = Standing::Valid(Age::new(5).unwrap());
    Own { record: Record { standing, incarnation: None }, vacant: false, founder: false }
}

/// The session is lost while the old copy is being put aside, and the next one is accepted at once:
/// in one folder one works at a time, and closes what it has opened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_are_made_one_after_the_other() {
    let mut scene = Scene::new(stale());
    scene.register(1);
    scene.driver.empty();
    scene.expect(Step::SetAside);
    scene.driver.leave();
    scene.register(2);
    scene.driver.empty();
    // Nobody else waits for leave to go on: all of it is the first one's until it has closed.
    scene.go();
    scene.expect(Step::Open);
    scene.go();
    scene.expect(Step::Close);
    scene.go();
    scene.expect(Step::SetAside);
    scene.go();
    scene.expect(Step::Open);
    scene.go();
    scene.emptied().await;
    assert!(scene.steps.try_recv().is_err(), "the second one stays open");
}

/// The same with what an operator does to the copy, and with the end of the driver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_changes_a_copy_waits_for_who_makes_one() {
    let mut scene = Scene::new(stale());
    scene.register(1);
    scene.driver.empty();
    scene.expect(Step::SetAside);
    scene.driver.leave();
    scene.driver.machine.step(Event::Unreadable, &mut Vec::new());
    let (answer, mut answered) = oneshot::channel();
    scene.driver.amend(Amendment::Discard, answer);
    for step in [Step::Open, Step::Close, Step::Look] {
        scene.go();
        scene.expect(step);
    }
    assert!(answered.try_recv().is_err());
    let closing = scene.driver.closing.take().unwrap();
    assert!(!closing.is_finished(), "a node that stops waits for it");
    scene.go();
    answered.await.unwrap().unwrap();
    closing.await.unwrap();
}

fn view() -> View {
    let register = Some(Register::Committed(Age::new(6).unwrap()));
    View { register, incarnation: Incarnation(1), adopted: None, holder: None }
}

/// A driver that has just begun to make an empty copy.
fn copying() -> Scene {
    let own =
        Own { record: Record { incarnation: Some(Incarnation(1)), ..stale().record }, ..stale() };
    let mut scene = Scene::new(own);
    let marked = Record { standing: Standing::Syncing, incarnation: Some(Incarnation(1)) };
    let read = Event::Read(view());
    scene.begin(&[Event::Start, read, Event::Accepted, read, Event::Written(marked)]);
    assert_eq!(*scene.driver.machine.phase(), Phase::Passive(Passive::Copying));
    scene.register(1);
    scene.driver.empty();
    scene
}

/// For want of room the node does not stop: others have room, and this one may have some later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_for_which_there_is_no_room_is_made_later() {
    let mut scene = copying();
    *scene.broken.lock() = Some(io::ErrorKind::StorageFull);
    for step in [Step::SetAside, Step::Open] {
        scene.expect(step);
        scene.go();
    }
    scene.emptied().await;
    assert_eq!(*scene.driver.yard.failed.borrow(), None);
    assert!(scene.driver.standby.is_none(), "the active node does not wait for it");
    scene.driver.event(Event::Read(view()));
    assert_eq!(*scene.driver.machine.phase(), Phase::Passive(Passive::Seeking));
    assert!(scene.driver.standby.is_none() && scene.driver.timers.contains_key(&Timer::Seek));
    let told = scene.driver.told.as_ref().unwrap();
    assert_eq!(told.reason.as_deref(), Some("the disk has no room for a copy"));
}

/// Whatever else is wrong stops it, and is said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_cannot_be_made_stops_the_node_and_says_why() {
    let mut scene = copying();
    *scene.broken.lock() = Some(io::ErrorKind::PermissionDenied);
    for step in [Step::SetAside, Step::Open] {
        scene.expect(step);
        scene.go();
    }
    scene.emptied().await;
    let failed = scene.driver.yard.failed.borrow().clone().unwrap();
    assert_eq!(failed, "journal orders: the copy cannot be replaced: permission denied");
}

/// A copy whose disk got full while it was received is given up, and not begun again at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_has_become_too_large_is_made_later() {
    let mut scene = copying();
    for step in [Step::SetAside, Step::Open] {
        scene.expect(step);
        scene.go();
    }
    scene.emptied().await;
    let copy = scene.driver.copy.clone().unwrap();
    journal::listener::Listener::full(&*copy, true);
    assert!(!scene.driver.yard.pressure.is_on(), "who publishes does not wait for it");
    // The active node has not heard of it for too long.
    scene.driver.event(Event::ActiveLost);
    scene.expect(Step::Close);
    scene.go();
    scene.driver.event(Event::Read(view()));
    assert_eq!(*scene.driver.machine.phase(), Phase::Passive(Passive::Seeking));
    assert!(scene.driver.standby.is_none() && scene.driver.timers.contains_key(&Timer::Seek));
    let told = scene.driver.told.as_ref().unwrap();
    assert_eq!(told.reason.as_deref(), Some("the disk has no room for a copy"));
    assert_eq!(*scene.driver.yard.failed.borrow(), None);
}

/// A driver that is about to write that there is no copy.
fn marking() -> Scene {
    let own =
        Own { record: Record { incarnation: Some(Incarnation(1)), ..stale().record }, ..stale() };
    let mut scene = Scene::new(own);
    let read = Event::Read(view());
    scene.begin(&[Event::Start, read, Event::Accepted]);
    scene.register(1);
    scene
}

/// The state file is written when there is room, and until then nothing is known to be in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_file_without_room_is_written_later() {
    let mut scene = marking();
    *scene.spoiled.lock() = Some(io::ErrorKind::QuotaExceeded);
    scene.driver.event(Event::Read(view()));
    let phase = *scene.driver.machine.phase();
    for _ in 0..2 {
        scene.take(|input| matches!(input, Input::Unwritten(_))).await;
        assert_eq!(*scene.driver.machine.phase(), phase, "it waits");
        scene.driver.tick();
        let (_, at) = scene.driver.unwritten.unwrap();
        assert!(at > clock::now() && at.0 < u64::MAX, "not at once");
        scene.driver.unwritten = scene.driver.unwritten.map(|(record, _)| (record, Millis(0)));
        scene.driver.tick();
    }
    scene.take(|input| matches!(input, Input::Unwritten(_))).await;
    *scene.spoiled.lock() = None;
    scene.driver.unwritten = scene.driver.unwritten.map(|(record, _)| (record, Millis(0)));
    scene.driver.tick();
    scene.take(|input| matches!(input, Input::Event(Event::Written(_)))).await;
    assert_eq!(*scene.driver.machine.phase(), Phase::Passive(Passive::Copying));
    assert_eq!(*scene.driver.yard.failed.borrow(), None);
    for step in [Step::SetAside, Step::Open] {
        scene.expect(step);
        scene.go();
    }
    scene.emptied().await;
}

/// Nor does the node stop because what is declared finds no room; whatever else is wrong stops it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn declarations_without_room_are_written_later() {
    let mut scene = Scene::new(stale());
    scene.driver.input(Input::Declared(Err(io::ErrorKind::StorageFull.into()))).await;
    assert_eq!(*scene.driver.yard.failed.borrow(), None);
    assert!(scene.driver.declared.is_open(), "they are not given up");
    scene.driver.input(Input::Declared(Err(io::ErrorKind::PermissionDenied.into()))).await;
    let failed = scene.driver.yard.failed.borrow().clone().unwrap();
    assert!(failed.contains("permission denied"), "{failed}");
}
