//! What hosts say to each other, in bytes.
//!
//! Messages carry the log: appends one way, their answers the other. Requests carry everything
//! that is rare. The first byte says what it is, the group follows.

use crate::bringup::Piece;
use crate::group::GroupId;
use crate::record::EntryKind;
use crate::supervisor::plan::Word;
use crate::types::{
    AppendRequest, AppendResult, Data, Entry, LogId, Payload, TransferRequest, Vote, VoteRequest,
    VoteResponse,
};
use crate::wire::{Malformed, Reader, Write};
use bytes::{BufMut, Bytes, BytesMut};
use model::id::NodeId;
use openraft::raft::StreamAppendError;

/// A message between hosts.
#[derive(Debug)]
pub(crate) enum Message {
    /// The `number`th append of a leader's session.
    Append { group: GroupId, session: u64, number: u64, request: AppendRequest },
    /// Its answer.
    Appended { group: GroupId, session: u64, number: u64, result: AppendResult },
    /// The receiver of appends ended the session: nothing more of it is taken.
    Ended { group: GroupId, session: u64 },
    /// The sender of appends ended the session.
    Closed { group: GroupId, session: u64 },
    /// The sender of appends ended the session to sleep: it leads still, in this term.
    Rests { group: GroupId, session: u64, term: u64 },
}

const APPEND: u8 = 1;
const APPENDED: u8 = 2;
const ENDED: u8 = 3;
const CLOSED: u8 = 4;
const RESTS: u8 = 5;

impl Message {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        match self {
            Self::Append { group, session, number, request } => {
                bytes.reserve(128 + entries_bytes(&request.entries));
                bytes.put_u8(APPEND);
                put_session(&mut bytes, *group, *session);
                bytes.put_u64_le(*number);
                bytes.vote(&request.vote);
                bytes.maybe_log_id(request.prev_log_id.as_ref());
                bytes.maybe_log_id(request.leader_commit.as_ref());
                bytes.count(request.entries.len());
                request.entries.iter().for_each(|entry| put_entry(&mut bytes, entry));
            }
            Self::Appended { group, session, number, result } => {
                bytes.put_u8(APPENDED);
                put_session(&mut bytes, *group, *session);
                bytes.put_u64_le(*number);
                match result {
                    Ok(id) => {
                        bytes.put_u8(0);
                        bytes.maybe_log_id(id.as_ref());
                    }
                    Err(StreamAppendError::Conflict(id)) => {
                        bytes.put_u8(1);
                        bytes.log_id(id);
                    }
                    Err(StreamAppendError::HigherVote(vote)) => {
                        bytes.put_u8(2);
                        bytes.vote(vote);
                    }
                }
            }
            Self::Ended { group, session } => {
                bytes.put_u8(ENDED);
                put_session(&mut bytes, *group, *session);
            }
            Self::Closed { group, session } => {
                bytes.put_u8(CLOSED);
                put_session(&mut bytes, *group, *session);
            }
            Self::Rests { group, session, term } => {
                bytes.put_u8(RESTS);
                put_session(&mut bytes, *group, *session);
                bytes.put_u64_le(*term);
            }
        }
        bytes.freeze()
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        let (group, session) = (GroupId(reader.u64()?), reader.u64()?);
        let message = match kind {
            APPEND => {
                let number = reader.u64()?;
                let vote = reader.vote()?;
                let prev_log_id = reader.maybe_log_id()?;
                let leader_commit = reader.maybe_log_id()?;
                let count = reader.count(ENTRY_BYTES_MIN)?;
                let entries =
                    (0..count).map(|_| take_entry(&mut reader)).collect::<Result<_, _>>()?;
                let request = AppendRequest { vote, prev_log_id, entries, leader_commit };
                Self::Append { group, session, number, request }
            }
            APPENDED => {
                let number = reader.u64()?;
                let result = match reader.u8()? {
                    0 => Ok(reader.maybe_log_id()?),
                    1 => Err(StreamAppendError::Conflict(reader.log_id()?)),
                    2 => Err(StreamAppendError::HigherVote(reader.vote()?)),
                    _ => return Err(Malformed("no such answer to an append")),
                };
                Self::Appended { group, session, number, result }
            }
            ENDED => Self::Ended { group, session },
            CLOSED => Self::Closed { group, session },
            RESTS => Self::Rests { group, session, term: reader.u64()? },
            _ => return Err(Malformed("no such kind of message")),
        };
        reader.end()?;
        Ok(message)
    }
}

fn put_session(bytes: &mut BytesMut, group: GroupId, session: u64) {
    bytes.put_u64_le(group.0);
    bytes.put_u64_le(session);
}

/// Kind, log id and the length of the payload.
const ENTRY_BYTES_MIN: usize = 1 + 16 + 4;

fn entries_bytes(entries: &[Entry]) -> usize {
    let payload = |entry: &Entry| match &entry.payload {
        Payload::Normal(data) => data.0.len(),
        Payload::Blank | Payload::Membership(_) => 64,
    };
    entries.iter().map(|entry| ENTRY_BYTES_MIN + payload(entry)).sum()
}

fn put_entry(bytes: &mut BytesMut, entry: &Entry) {
    match &entry.payload {
        Payload::Blank => {
            bytes.put_u8(EntryKind::Blank.code());
            bytes.log_id(&entry.log_id);
            bytes.count(0);
        }
        Payload::Normal(data) => {
            bytes.put_u8(EntryKind::Normal.code());
            bytes.log_id(&entry.log_id);
            bytes.slice(&data.0);
        }
        Payload::Membership(membership) => {
            bytes.put_u8(EntryKind::Membership.code());
            bytes.log_id(&entry.log_id);
            let mut inner = BytesMut::new();
            inner.membership(membership);
            bytes.slice(&inner);
        }
    }
}

fn take_entry(reader: &mut Reader) -> Result<Entry, Malformed> {
    let kind = EntryKind::from_code(reader.u8()?)?;
    let log_id = reader.log_id()?;
    let bytes = reader.slice()?;
    let payload = match kind {
        EntryKind::Blank if bytes.is_empty() => Payload::Blank,
        EntryKind::Blank => return Err(Malformed("a blank entry has no payload")),
        EntryKind::Normal => Payload::Normal(Data(bytes)),
        EntryKind::Membership => {
            let mut reader = Reader::new(bytes);
            let membership = reader.membership()?;
            reader.end()?;
            Payload::Membership(membership)
        }
    };
    Ok(Entry { log_id, payload })
}

/// A request between hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// Asks for a vote.
    Vote { group: GroupId, request: VoteRequest },
    /// Asks whether a vote would be given.
    PreVote { group: GroupId, request: VoteRequest },
    /// The leader gives its leadership to somebody.
    Transfer { group: GroupId, request: TransferRequest },
    /// Who leads these groups? With each, up to where the asker's member has its entries.
    Ask { groups: Vec<(GroupId, Option<LogId>)> },
    /// The `number`th piece of a checkpoint.
    Piece { group: GroupId, session: u64, number: u64, piece: Piece },
}

const VOTE: u8 = 1;
const PRE_VOTE: u8 = 2;
const TRANSFER: u8 = 3;
const ASK: u8 = 4;
const PIECE: u8 = 5;

impl Request {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        match self {
            Self::Vote { group, request } => put_vote(&mut bytes, VOTE, *group, request),
            Self::PreVote { group, request } => put_vote(&mut bytes, PRE_VOTE, *group, request),
            Self::Transfer { group, request } => {
                bytes.put_u8(TRANSFER);
                bytes.put_u64_le(group.0);
                bytes.vote(request.from_leader());
                bytes.put_u64_le(*request.to_node_id());
                bytes.maybe_log_id(request.last_log_id());
            }
            Self::Ask { groups } => {
                bytes.put_u8(ASK);
                bytes.count(groups.len());
                for (group, applied) in groups {
                    bytes.put_u64_le(group.0);
                    bytes.maybe_log_id(applied.as_ref());
                }
            }
            Self::Piece { group, session, number, piece } => {
                bytes.put_u8(PIECE);
                put_session(&mut bytes, *group, *session);
                bytes.put_u64_le(*number);
                piece.put(&mut bytes);
            }
        }
        bytes.freeze()
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        let group = |reader: &mut Reader| reader.u64().map(GroupId);
        let request = match kind {
            VOTE => Self::Vote { group: group(&mut reader)?, request: take_vote(&mut reader)? },
            PRE_VOTE => {
                Self::PreVote { group: group(&mut reader)?, request: take_vote(&mut reader)? }
            }
            TRANSFER => {
                let group = group(&mut reader)?;
                let (vote, to) = (reader.vote()?, reader.u64()?);
                let request = TransferRequest::new(vote, to, reader.maybe_log_id()?);
                Self::Transfer { group, request }
            }
            ASK => {
                let count = reader.count(9)?;
                let mut asked = || Ok((group(&mut reader)?, reader.maybe_log_id()?));
                let groups = (0..count).map(|_| asked()).collect::<Result<_, _>>()?;
                Self::Ask { groups }
            }
            PIECE => {
                let (group, session) = (group(&mut reader)?, reader.u64()?);
                let number = reader.u64()?;
                Self::Piece { group, session, number, piece: Piece::take(&mut reader)? }
            }
            _ => return Err(Malformed("no such kind of request")),
        };
        reader.end()?;
        Ok(request)
    }
}

fn put_vote(bytes: &mut BytesMut, kind: u8, group: GroupId, request: &VoteRequest) {
    bytes.put_u8(kind);
    bytes.put_u64_le(group.0);
    bytes.vote(&request.vote);
    bytes.maybe_log_id(request.last_log_id.as_ref());
    bytes.bool(request.leadership_transfer);
}

fn take_vote(reader: &mut Reader) -> Result<VoteRequest, Malformed> {
    Ok(VoteRequest {
        vote: reader.vote()?,
        last_log_id: reader.maybe_log_id()?,
        leadership_transfer: reader.bool()?,
    })
}

pub(crate) fn encode_vote_response(response: &VoteResponse) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.vote(&response.vote);
    bytes.bool(response.vote_granted);
    bytes.maybe_log_id(response.last_log_id.as_ref());
    bytes.freeze()
}

pub(crate) fn decode_vote_response(bytes: Bytes) -> Result<VoteResponse, Malformed> {
    let mut reader = Reader::new(bytes);
    let response = VoteResponse {
        vote: reader.vote()?,
        vote_granted: reader.bool()?,
        last_log_id: reader.maybe_log_id()?,
    };
    reader.end()?;
    Ok(response)
}

pub(crate) fn encode_vote(vote: &Vote) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.vote(vote);
    bytes.freeze()
}

pub(crate) fn encode_words(words: &[Word]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.count(words.len());
    for word in words {
        match word {
            Word::Unknown => bytes.put_u8(0),
            Word::Leads { term } => {
                bytes.put_u8(1);
                bytes.put_u64_le(*term);
            }
            Word::Hears { leader, term } => {
                bytes.put_u8(2);
                bytes.put_u64_le(leader.0);
                bytes.put_u64_le(*term);
            }
            Word::Lost { term, last, stands } => {
                bytes.put_u8(3);
                bytes.put_u64_le(*term);
                bytes.maybe_log_id(last.as_ref());
                bytes.bool(*stands);
            }
        }
    }
    bytes.freeze()
}

pub(crate) fn decode_words(bytes: Bytes) -> Result<Vec<Word>, Malformed> {
    let mut reader = Reader::new(bytes);
    let count = reader.count(1)?;
    let mut word = || {
        Ok(match reader.u8()? {
            0 => Word::Unknown,
            1 => Word::Leads { term: reader.u64()? },
            2 => Word::Hears { leader: NodeId(reader.u64()?), term: reader.u64()? },
            3 => {
                let (term, last) = (reader.u64()?, reader.maybe_log_id()?);
                Word::Lost { term, last, stands: reader.bool()? }
            }
            _ => return Err(Malformed("no such word about a group")),
        })
    };
    let words = (0..count).map(|_| word()).collect::<Result<_, _>>()?;
    reader.end()?;
    Ok(words)
}
