//! Bringing up a member that lags too far behind: the checkpoint and the bodies that it names go
//! over in pieces, each a request whose answer asks for the next.
//!
//! The bodies are stored as they come, under the names that the sender's member gave them. They
//! count once the checkpoint is stored too; if it never is, they are released.

use crate::checkpoint::{self, Image};
use crate::group::Address;
use crate::grouplog::GroupLog;
use crate::inbox::Raft;
use crate::member::{BodyPlace, RequestError, Transport};
use crate::record::Head;
use crate::rpc::Request;
use crate::seat::Seat;
use crate::types::{Snapshot, Vote};
use crate::wire::{Malformed, Reader, Write};
use bytes::{BufMut, Bytes, BytesMut};
use journal::op::{Class, Lsn, Payload};
use model::id::{NodeId, Seq};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What one piece carries.
const PIECE: usize = 1 << 20;
/// How long the receiver may take for a piece, and for the last one, in which its member takes the
/// whole state.
const PIECE_WAIT: Duration = Duration::from_secs(30);
const LAST_WAIT: Duration = Duration::from_mins(10);

/// Numbers transmissions, for the life of the process.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// A piece of a transmission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A part of the state.
    State(Bytes),
    /// Parts of bodies: the name, whether the body ends with this part, and the part.
    Bodies(Vec<(u64, bool, Bytes)>),
    /// The end: the leader's vote and the encoded metadata.
    End(Vote, Bytes),
}

const STATE: u8 = 1;
const BODIES: u8 = 2;
const END: u8 = 3;

impl Piece {
    pub(crate) fn put(&self, bytes: &mut BytesMut) {
        match self {
            Self::State(part) => {
                bytes.put_u8(STATE);
                bytes.slice(part);
            }
            Self::Bodies(bodies) => {
                bytes.put_u8(BODIES);
                bytes.count(bodies.len());
                for (name, ends, part) in bodies {
                    bytes.put_u64_le(*name);
                    bytes.bool(*ends);
                    bytes.slice(part);
                }
            }
            Self::End(vote, meta) => {
                bytes.put_u8(END);
                bytes.vote(vote);
                bytes.slice(meta);
            }
        }
    }

    pub(crate) fn take(reader: &mut Reader) -> Result<Self, Malformed> {
        match reader.u8()? {
            STATE => Ok(Self::State(reader.slice()?)),
            BODIES => {
                let count = reader.count(13)?;
                let mut body = || Ok((reader.u64()?, reader.bool()?, reader.slice()?));
                Ok(Self::Bodies((0..count).map(|_| body()).collect::<Result<_, _>>()?))
            }
            END => Ok(Self::End(reader.vote()?, reader.slice()?)),
            _ => Err(Malformed("no such piece of a checkpoint")),
        }
    }
}

/// Sends checkpoints of one group.
#[derive(Clone)]
pub(crate) struct Sender {
    pub(crate) address: Address,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) log: Arc<GroupLog>,
    pub(crate) seat: Arc<Seat>,
}

/// Names of bodies, and where they lie.
type Places = Vec<(u64, BodyPlace)>;

/// Why a transmission failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("reading failed: {0}")]
    Disk(#[from] io::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Sends the pieces of one transmission, in order.
struct Sending<'a> {
    sender: &'a Sender,
    to: NodeId,
    session: u64,
    number: u64,
    bodies: Vec<(u64, bool, Bytes)>,
    bytes: usize,
}

impl Sender {
    /// Sends a checkpoint and waits until the receiver has installed or refused it; gives the
    /// receiver's vote.
    pub(crate) async fn send(
        &self,
        to: NodeId,
        vote: Vote,
        snapshot: Snapshot,
    ) -> Result<Vote, SendError> {
        let session = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let (bodies, bytes) = (Vec::new(), 0);
        let mut sending = Sending { sender: self, to, session, number: 0, bodies, bytes };
        let state = snapshot.snapshot.state().clone();
        // The first piece begins the transmission, so there is always one.
        sending.piece(Piece::State(state.slice(..state.len().min(PIECE)))).await?;
        let mut at = state.len().min(PIECE);
        while at < state.len() {
            let end = state.len().min(at + PIECE);
            sending.piece(Piece::State(state.slice(at..end))).await?;
            at = end;
        }
        sending.all_bodies(&state).await?;
        let mut meta = BytesMut::new();
        checkpoint::put_meta(&mut meta, &snapshot.meta);
        let answer = sending.piece(Piece::End(vote, meta.freeze())).await?;
        let mut reader = Reader::new(answer);
        let vote = reader.vote()?;
        reader.end()?;
        Ok(vote)
    }
}

impl Sending<'_> {
    async fn piece(&mut self, piece: Piece) -> Result<Bytes, SendError> {
        let wait = if matches!(piece, Piece::End(..)) { LAST_WAIT } else { PIECE_WAIT };
        let group = self.sender.address.get();
        let (session, number) = (self.session, self.number);
        self.number += 1;
        let request = Request::Piece { group, session, number, piece };
        Ok(self.sender.transport.request(self.to, request.encode(), wait).await?)
    }

    /// Sends the bodies that a state names. While they are read, the member may carry some to other
    /// records, where it finds them when it is asked again, and some may be settled.
    async fn all_bodies(&mut self, state: &Bytes) -> Result<(), SendError> {
        let (mut sent, mut missed) = (BTreeSet::new(), Vec::new());
        loop {
            let mut places = self.sender.seat.call(|member| member.export(state));
            if missed.iter().any(|one| places.contains(one)) {
                return Err(SendError::Disk(io::Error::other("a body cannot be read")));
            }
            places.retain(|(name, _)| !sent.contains(name));
            missed = self.bodies(&places).await?;
            if missed.is_empty() {
                return Ok(());
            }
            sent.extend(places.into_iter().map(|(name, _)| name));
            for (name, _) in &missed {
                sent.remove(name);
            }
        }
    }

    /// Sends bodies; gives those that cannot be read.
    async fn bodies(&mut self, places: &[(u64, BodyPlace)]) -> Result<Places, SendError> {
        let mut missed = Vec::new();
        let mut places = places.iter().cloned().peekable();
        while places.peek().is_some() {
            // Read as many records at once as make up a piece or so.
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while bytes < PIECE
                && let Some(place) = places.next()
            {
                bytes += match &place.1 {
                    BodyPlace::Bytes(body) => body.len(),
                    BodyPlace::Record { length, .. } => (*length as usize).min(PIECE),
                };
                batch.push(place);
            }
            self.batch(batch, &mut missed).await?;
        }
        self.flush().await?;
        Ok(missed)
    }

    async fn batch(&mut self, batch: Places, missed: &mut Places) -> Result<(), SendError> {
        let position = |place: &(u64, BodyPlace)| match &place.1 {
            BodyPlace::Record { position, .. } => Some(*position),
            BodyPlace::Bytes(_) => None,
        };
        let mut positions: Vec<Seq> = batch.iter().filter_map(position).collect();
        positions.sort_unstable();
        positions.dedup();
        let records = self.sender.log.read_payloads(positions.clone()).await?;
        for (name, place) in batch {
            let body = match place {
                BodyPlace::Bytes(body) => body,
                BodyPlace::Record { position, offset, length } => {
                    let at = positions.binary_search(&position).expect("it was asked for");
                    let Ok(record) = &records[at] else {
                        missed.push((name, BodyPlace::Record { position, offset, length }));
                        continue;
                    };
                    let start = record.len().min(offset as usize);
                    let end = record.len().min(start.saturating_add(length as usize));
                    record.slice(start..end)
                }
            };
            self.body(name, body).await?;
        }
        Ok(())
    }

    async fn body(&mut self, name: u64, mut body: Bytes) -> Result<(), SendError> {
        loop {
            let part = body.split_to(body.len().min(PIECE - self.bytes));
            self.bytes += part.len() + 16;
            let ends = body.is_empty();
            self.bodies.push((name, ends, part));
            if self.bytes >= PIECE {
                self.flush().await?;
            }
            if ends {
                return Ok(());
            }
        }
    }

    async fn flush(&mut self) -> Result<(), SendError> {
        self.bytes = 0;
        let bodies = std::mem::take(&mut self.bodies);
        if !bodies.is_empty() {
            self.piece(Piece::Bodies(bodies)).await?;
        }
        Ok(())
    }
}

/// A transmission that a group receives.
#[derive(Debug)]
pub(crate) struct Receiving {
    from: NodeId,
    session: u64,
    next: u64,
    state: BytesMut,
    bodies: Vec<(u64, Seq)>,
    /// The last that was put.
    stored: Lsn,
    /// The parts of a body that has not ended.
    part: BytesMut,
}

/// What to do after a piece.
pub(crate) enum Received {
    /// Ask for the next, once what came before this one is on the disk.
    More {
        /// The last put of that.
        stored: Lsn,
    },
    /// Install it.
    All(Box<Complete>),
}

/// A checkpoint that has arrived whole.
pub(crate) struct Complete {
    /// The sender's.
    vote: Vote,
    snapshot: Snapshot,
    /// Where its bodies are.
    positions: Vec<Seq>,
}

impl Receiving {
    /// Takes a piece into `slot`, where an unfinished transmission may be; gives nothing if the
    /// piece does not follow the last.
    pub(crate) fn take(
        slot: &mut Option<Self>,
        log: &GroupLog,
        from: NodeId,
        session: u64,
        number: u64,
        piece: Piece,
    ) -> Option<Received> {
        if number == 0 {
            Self::abandon(slot, log);
            let (state, part) = (BytesMut::new(), BytesMut::new());
            let (bodies, stored) = (Vec::new(), Lsn(0));
            *slot = Some(Self { from, session, next: 0, state, bodies, stored, part });
        }
        let fits =
            |this: &&mut Self| this.from == from && this.session == session && this.next == number;
        let this = slot.as_mut().filter(fits)?;
        this.next += 1;
        let stored = this.stored;
        match piece {
            Piece::State(part) => this.state.put_slice(&part),
            Piece::Bodies(parts) => this.store(log, parts),
            Piece::End(vote, meta) => {
                let this = slot.take()?;
                let mut reader = Reader::new(meta);
                let Ok(meta) = checkpoint::take_meta(&mut reader) else {
                    Self::abandon(&mut Some(this), log);
                    return None;
                };
                let positions = this.bodies.iter().map(|(_, position)| *position).collect();
                let Self { state, bodies, stored, .. } = this;
                let image = Image::Arrived { state: state.freeze(), bodies, stored };
                let snapshot = Snapshot { meta, snapshot: image };
                return Some(Received::All(Box::new(Complete { vote, snapshot, positions })));
            }
        }
        Some(Received::More { stored })
    }

    fn store(&mut self, log: &GroupLog, parts: Vec<(u64, bool, Bytes)>) {
        let mut whole = Vec::new();
        for (name, ends, part) in parts {
            if ends && self.part.is_empty() {
                whole.push((name, part));
            } else {
                self.part.put_slice(&part);
                if ends {
                    whole.push((name, self.part.split().freeze()));
                }
            }
        }
        let names: Vec<u64> = whole.iter().map(|(name, _)| *name).collect();
        let head = |(name, body)| (Head::Arrived { name }, Payload::Bytes(body));
        let whole = whole.into_iter().map(head).collect();
        let (positions, lsn) = log.carry(Class::Bulk, whole);
        self.stored = lsn;
        self.bodies.extend(names.into_iter().zip(positions));
    }

    /// The sender is lost.
    pub(crate) fn on_down(slot: &mut Option<Self>, log: &GroupLog, node: NodeId) {
        if slot.as_ref().is_some_and(|this| this.from == node) {
            Self::abandon(slot, log);
        }
    }

    /// Forgets an unfinished transmission and what was stored of it.
    pub(crate) fn abandon(slot: &mut Option<Self>, log: &GroupLog) {
        if let Some(this) = slot.take() {
            let positions: Vec<Seq> = this.bodies.iter().map(|(_, position)| *position).collect();
            log.release(&positions);
        }
    }
}

/// Installs what was received; gives this node's vote.
pub(crate) async fn install(raft: &Raft, log: &GroupLog, complete: Complete) -> Option<Vote> {
    let Complete { vote, snapshot, positions } = complete;
    let last = snapshot.meta.last_log_id;
    let response = raft.install_full_snapshot(vote, snapshot).await.ok()?;
    if log.arrived() != last {
        // Refused, or not needed. One of its own that is newer says nothing.
        log.release(&positions);
    }
    Some(response.vote)
}
