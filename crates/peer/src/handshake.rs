//! Who is there: two machines that talk to each other before the first frame.
//!
//! ```text
//!   dialler                                             acceptor
//!     ── magic, version │ Hello { nonce, cluster } ──────────▶
//!     ◀─ magic, version │ Challenge { nonce } ────────────────
//!     ── Proof { who I am, session, whom I dial, proof } ────▶   knows the dialler
//!     ◀─ Welcome { who I am, session, proof } ────────────────
//!   knows the acceptor
//! ```
//!
//! Each proof covers all that was said before it, the fresh nonces of both sides and the identity
//! that it stands for; so none can be used twice, and none that was overheard fits elsewhere. The
//! dialler proves first: a stranger who connects learns nothing with which to try out secrets.
//! Instead of its next word the acceptor may say `Refused { reason, detail }`.
//!
//! The proofs say who is there when the connection begins. They do not guard what follows: where
//! others can change what goes over the wire, TLS is needed.
//!
//! What is said is bounded, by little until the other has proven that it knows the secret.

use crate::codec::{Reader, put_bytes, put_text};
use crate::identity::{Claim, NAME_MAX};
use crate::refusal::{Reason, Refusal};
use crate::secret::{PROOF, Role, Secret};
use bytes::{BufMut, BytesMut};
use std::sync::Arc;

#[cfg(test)]
mod tests;

const MAGIC: [u8; 8] = *b"LEVRPEER";
/// The version of all that goes over a connection.
pub(crate) const VERSION: u16 = 1;
const PREAMBLE: usize = MAGIC.len() + 2;
const NONCE: usize = 32;

const HELLO: u8 = 1;
const CHALLENGE: u8 = 2;
const PROOF_OF_DIALLER: u8 = 3;
const WELCOME: u8 = 4;
const REFUSED: u8 = 5;

/// The longest Hello, Challenge or Refused.
const SMALL_MAX: usize = 1024;
/// The longest Proof or Welcome: room for an identity.
const LARGE_MAX: usize = 72 * 1024;
/// The longest detail of a refusal.
const DETAIL_MAX: usize = 512;

const _: () = assert!(SMALL_MAX > NONCE + NAME_MAX + 16 && SMALL_MAX > DETAIL_MAX + 16);
const _: () = {
    use crate::identity::{ADDRESS_MAX, FACTS_MAX};
    assert!(LARGE_MAX > FACTS_MAX + ADDRESS_MAX + 2 * NAME_MAX + 32 + PROOF + 64);
};

/// A number that is used once.
pub(crate) type Nonce = [u8; NONCE];

/// Why a handshake has failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HandshakeError {
    /// What came is not this protocol.
    #[error("it does not speak the protocol of peers")]
    NotAPeer,
    /// What came is this protocol and wrong.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// The other refused.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// This node refused; what to tell the other is in the output.
    #[error("{0}")]
    Refuse(Refusal),
}

/// What one side has learnt of the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Introduced {
    pub(crate) claim: Claim,
    /// Which of its sessions with this node the connection belongs to; see [`Link`](crate::link).
    pub(crate) session: u64,
}

impl Introduced {
    fn decode(input: &mut Reader<'_>) -> Option<Self> {
        Some(Self { claim: Claim::decode(input)?, session: input.u64()? })
    }
}

/// What both sides of a handshake know from the start.
#[derive(Debug, Clone)]
pub(crate) struct Party {
    pub(crate) secret: Secret,
    pub(crate) cluster: Arc<str>,
    pub(crate) me: Arc<Claim>,
}

/// One that speaks the words of the other side from its input and writes its own.
#[derive(Debug)]
struct Talk {
    party: Party,
    transcript: Vec<u8>,
    greeted: bool,
}

impl Talk {
    /// Writes a word that ends with a proof of `role`, or with none.
    fn say(&mut self, out: &mut BytesMut, code: u8, body: &[u8], role: Option<Role>) {
        let proof = if role.is_some() { PROOF } else { 0 };
        let length = u32::try_from(1 + body.len() + proof).expect("words are bounded");
        let start = out.len();
        out.put_u32(length);
        out.put_u8(code);
        out.put_slice(body);
        self.transcript.extend_from_slice(&out[start..]);
        if let Some(role) = role {
            let proof = self.party.secret.prove(role, &self.transcript);
            self.transcript.extend_from_slice(&proof);
            out.put_slice(&proof);
        }
    }

    fn greet(&mut self, out: &mut BytesMut) {
        out.put_slice(&MAGIC);
        out.put_u16(VERSION);
        self.transcript.extend_from_slice(&MAGIC);
        self.transcript.extend_from_slice(&VERSION.to_be_bytes());
    }

    /// Takes the magic and the version of the other off the input, once. `None`: not there yet.
    fn greeting(&mut self, input: &mut BytesMut) -> Result<Option<u16>, HandshakeError> {
        let seen = input.len().min(MAGIC.len());
        if input[..seen] != MAGIC[..seen] {
            return Err(HandshakeError::NotAPeer);
        }
        if input.len() < PREAMBLE {
            return Ok(None);
        }
        let greeting = input.split_to(PREAMBLE);
        self.transcript.extend_from_slice(&greeting);
        self.greeted = true;
        Ok(Some(u16::from_be_bytes([greeting[8], greeting[9]])))
    }

    /// Takes a word of at most `max` bytes off the input. `None`: not there yet.
    fn word(
        input: &mut BytesMut,
        expected: u8,
        max: usize,
    ) -> Result<Option<Word>, HandshakeError> {
        let Some(length) = input.first_chunk() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length == 0 || length > max {
            return Err(HandshakeError::Malformed("length"));
        }
        let Some(&code) = input.get(4) else { return Ok(None) };
        if code != expected && code != REFUSED {
            return Err(HandshakeError::Malformed("word"));
        }
        if input.len() < 4 + length {
            return Ok(None);
        }
        let word = input.split_to(4 + length);
        if code == REFUSED {
            return Err(refused(&word[5..]));
        }
        Ok(Some(Word(word)))
    }

    /// Checks the proof of `role` at the end of `word`, over all that was said.
    fn proven(&mut self, word: &Word, role: Role) -> Result<bool, HandshakeError> {
        let said = word.0.len().checked_sub(PROOF).filter(|said| *said >= 5);
        let (said, proof) = word.0.split_at(said.ok_or(HandshakeError::Malformed("proof"))?);
        self.transcript.extend_from_slice(said);
        let proven = self.party.secret.verify(role, &self.transcript, proof);
        self.transcript.extend_from_slice(proof);
        Ok(proven)
    }

    fn heard(&mut self, word: &Word) {
        self.transcript.extend_from_slice(&word.0);
    }
}

/// A word as it came, with its length and code.
#[derive(Debug)]
struct Word(BytesMut);

impl Word {
    fn body(&self) -> &[u8] {
        &self.0[5..]
    }

    fn body_before_proof(&self) -> &[u8] {
        &self.0[5..self.0.len() - PROOF]
    }
}

fn refused(body: &[u8]) -> HandshakeError {
    let mut reader = Reader(body);
    let (Some(code), Some(detail)) = (reader.u8(), reader.text(DETAIL_MAX)) else {
        return HandshakeError::Malformed("refusal");
    };
    HandshakeError::Refused(Refusal::new(Reason::from_wire(code), detail))
}

/// Writes a refusal.
pub(crate) fn put_refusal(out: &mut BytesMut, refusal: &Refusal) {
    let mut detail = refusal.detail.as_str();
    while detail.len() > DETAIL_MAX {
        let end = detail.char_indices().next_back().map_or(0, |(at, _)| at);
        detail = detail.get(..end).unwrap_or_default();
    }
    out.put_u32(u32::try_from(1 + 1 + 4 + detail.len()).expect("details are bounded"));
    out.put_u8(REFUSED);
    out.put_u8(refusal.reason as u8);
    put_text(out, detail);
}

/// The side that connects.
#[derive(Debug)]
pub(crate) struct Dialler {
    talk: Talk,
    to: Option<Arc<str>>,
    session: u64,
    state: DiallerState,
}

#[derive(Debug)]
enum DiallerState {
    AwaitsChallenge,
    AwaitsWelcome,
}

impl Dialler {
    /// Begins. `to` is the name that the node at the other end must have, `session` what it is told.
    pub(crate) fn new(
        party: Party,
        to: Option<Arc<str>>,
        session: u64,
        nonce: Nonce,
        out: &mut BytesMut,
    ) -> Self {
        let cluster = Arc::clone(&party.cluster);
        let mut talk = Talk { party, transcript: Vec::new(), greeted: false };
        talk.greet(out);
        let mut body = BytesMut::new();
        body.put_slice(&nonce);
        put_text(&mut body, &cluster);
        talk.say(out, HELLO, &body, None);
        Self { talk, to, session, state: DiallerState::AwaitsChallenge }
    }

    /// Takes what has come off `input`. Returns who the acceptor is once that is known; what is
    /// left in `input` then belongs to the frames. Not to be called again after that or an error.
    pub(crate) fn read(
        &mut self,
        input: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<Option<Introduced>, HandshakeError> {
        if !self.talk.greeted {
            let Some(version) = self.talk.greeting(input)? else { return Ok(None) };
            if version != VERSION {
                return Err(HandshakeError::Refuse(wrong_version(version)));
            }
        }
        if let DiallerState::AwaitsChallenge = self.state {
            let Some(word) = Talk::word(input, CHALLENGE, SMALL_MAX)? else { return Ok(None) };
            if word.body().len() != NONCE {
                return Err(HandshakeError::Malformed("challenge"));
            }
            self.talk.heard(&word);
            let mut body = BytesMut::new();
            self.talk.party.me.encode(&mut body);
            body.put_u64(self.session);
            put_bytes(&mut body, self.to.as_deref().unwrap_or_default().as_bytes());
            self.talk.say(out, PROOF_OF_DIALLER, &body, Some(Role::Dialler));
            self.state = DiallerState::AwaitsWelcome;
        }
        let Some(word) = Talk::word(input, WELCOME, LARGE_MAX)? else { return Ok(None) };
        if !self.talk.proven(&word, Role::Acceptor)? {
            return Err(HandshakeError::Refuse(Refusal::new(
                Reason::WrongSecret,
                "the acceptor's proof is wrong",
            )));
        }
        let mut body = Reader(word.body_before_proof());
        let introduced = Introduced::decode(&mut body).filter(|_| body.is_empty());
        let introduced = introduced.ok_or(HandshakeError::Malformed("welcome"))?;
        let name = &introduced.claim.identity.name;
        match &self.to {
            Some(to) if to != name => Err(HandshakeError::Refuse(wrong_name(to, name))),
            _ => Ok(Some(introduced)),
        }
    }
}

/// The side that is connected to.
#[derive(Debug)]
pub(crate) struct Acceptor {
    talk: Talk,
    nonce: Nonce,
    state: AcceptorState,
}

#[derive(Debug)]
enum AcceptorState {
    AwaitsHello,
    AwaitsProof,
    Proven,
}

impl Acceptor {
    pub(crate) fn new(party: Party, nonce: Nonce) -> Self {
        let talk = Talk { party, transcript: Vec::new(), greeted: false };
        Self { talk, nonce, state: AcceptorState::AwaitsHello }
    }

    /// Takes what has come off `input`. Returns who the dialler is once that is proven; then
    /// [`welcome`](Self::welcome) it, or refuse it with [`put_refusal`].
    pub(crate) fn read(
        &mut self,
        input: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<Option<Introduced>, HandshakeError> {
        if !self.talk.greeted {
            let Some(version) = self.talk.greeting(input)? else { return Ok(None) };
            if version != VERSION {
                self.talk.greet(out);
                return refuse(out, wrong_version(version));
            }
        }
        if let AcceptorState::AwaitsHello = self.state {
            let Some(word) = Talk::word(input, HELLO, SMALL_MAX)? else { return Ok(None) };
            let mut body = Reader(word.body());
            let hello = body.array::<NONCE>().and_then(|_| body.text(NAME_MAX));
            let cluster =
                hello.filter(|_| body.is_empty()).ok_or(HandshakeError::Malformed("hello"))?;
            let mine = &self.talk.party.cluster;
            if cluster != &**mine {
                let detail = format!("dialled as {cluster:?}, this one is {mine:?}");
                self.talk.greet(out);
                return refuse(out, Refusal::new(Reason::OtherCluster, detail));
            }
            self.talk.heard(&word);
            self.talk.greet(out);
            self.talk.say(out, CHALLENGE, &self.nonce, None);
            self.state = AcceptorState::AwaitsProof;
        }
        let Some(word) = Talk::word(input, PROOF_OF_DIALLER, LARGE_MAX)? else {
            return Ok(None);
        };
        if !self.talk.proven(&word, Role::Dialler)? {
            return refuse(out, Refusal::new(Reason::WrongSecret, ""));
        }
        self.state = AcceptorState::Proven;
        let mut body = Reader(word.body_before_proof());
        let introduced = Introduced::decode(&mut body);
        let to = body.text(NAME_MAX).filter(|_| body.is_empty());
        let (Some(introduced), Some(to)) = (introduced, to) else {
            return Err(HandshakeError::Malformed("proof"));
        };
        let claim = &introduced.claim;
        let me = &self.talk.party.me;
        let (id, name) = (me.identity.id, &me.identity.name);
        if claim.instance == me.instance {
            refuse(out, Refusal::new(Reason::Oneself, ""))
        } else if claim.identity.id == id {
            let detail = format!("node {id} is here under the name {name:?}");
            refuse(out, Refusal::new(Reason::DuplicateIdentity, detail))
        } else if claim.identity.name == *name {
            let detail = format!("{name:?} is node {id} here");
            refuse(out, Refusal::new(Reason::NameTaken, detail))
        } else if !to.is_empty() && to != &**name {
            refuse(out, wrong_name(to, name))
        } else {
            Ok(Some(introduced))
        }
    }

    /// Tells the dialler that it is connected.
    ///
    /// # Panics
    /// Unless [`read`](Self::read) has said who it is.
    pub(crate) fn welcome(mut self, session: u64, out: &mut BytesMut) {
        assert!(matches!(self.state, AcceptorState::Proven), "only the proven are welcome");
        let mut body = BytesMut::new();
        self.talk.party.me.encode(&mut body);
        body.put_u64(session);
        self.talk.say(out, WELCOME, &body, Some(Role::Acceptor));
    }
}

fn refuse<T>(out: &mut BytesMut, refusal: Refusal) -> Result<T, HandshakeError> {
    put_refusal(out, &refusal);
    Err(HandshakeError::Refuse(refusal))
}

fn wrong_version(theirs: u16) -> Refusal {
    Refusal::new(Reason::WrongVersion, format!("{theirs} and {VERSION} do not fit"))
}

fn wrong_name(dialled: &str, name: &str) -> Refusal {
    Refusal::new(Reason::WrongName, format!("dialled as {dialled:?}, it is {name:?}"))
}
