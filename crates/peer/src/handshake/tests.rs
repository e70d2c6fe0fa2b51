use super::*;
use crate::identity::{ADDRESS_MAX, FACTS_MAX, Identity};
use bytes::Bytes;
use model::id::NodeId;
use proptest::prelude::*;

fn party(name: &str, secret: &str) -> Party {
    let number = u64::from(name.as_bytes()[0]);
    let identity = Identity {
        name: name.into(),
        id: NodeId(number),
        boot: 1,
        address: format!("{name}:1"),
        facts: Bytes::from_static(b"facts"),
    };
    let me = Arc::new(Claim { identity, instance: number + 1000 });
    Party { secret: Secret::new(secret.as_bytes()), cluster: "test".into(), me }
}

type Outcome = Result<Option<Introduced>, HandshakeError>;

const DIALLERS_SESSION: u64 = 11;
const ACCEPTORS_SESSION: u64 = 22;

fn introduced(party: &Party, session: u64) -> Introduced {
    Introduced { claim: (*party.me).clone(), session }
}

/// Both sides, what they have said and what came of it.
struct Pair {
    dialler: Dialler,
    acceptor: Option<Acceptor>,
    to_acceptor: BytesMut,
    to_dialler: BytesMut,
}

impl Pair {
    fn new(dialler: Party, to: &str, acceptor: Party) -> Self {
        let mut to_acceptor = BytesMut::new();
        let dialler =
            Dialler::new(dialler, Some(to.into()), DIALLERS_SESSION, [1; 32], &mut to_acceptor);
        let acceptor = Some(Acceptor::new(acceptor, [2; 32]));
        Self { dialler, acceptor, to_acceptor, to_dialler: BytesMut::new() }
    }

    /// Lets the acceptor read all that was said to it, `piece` bytes at a time.
    fn accept(&mut self, piece: usize) -> Outcome {
        let mut acceptor = self.acceptor.take().expect("it has not welcomed yet");
        let said = self.to_acceptor.split();
        let mut input = BytesMut::new();
        for bytes in said.chunks(piece) {
            input.extend_from_slice(bytes);
            if let Some(introduced) = acceptor.read(&mut input, &mut self.to_dialler)? {
                acceptor.welcome(ACCEPTORS_SESSION, &mut self.to_dialler);
                return Ok(Some(introduced));
            }
        }
        self.acceptor = Some(acceptor);
        Ok(None)
    }

    fn dial(&mut self, piece: usize) -> Outcome {
        let said = self.to_dialler.split();
        let mut input = BytesMut::new();
        for bytes in said.chunks(piece) {
            input.extend_from_slice(bytes);
            if let Some(introduced) = self.dialler.read(&mut input, &mut self.to_acceptor)? {
                return Ok(Some(introduced));
            }
        }
        Ok(None)
    }

    /// What the acceptor and then the dialler make of it.
    fn run(mut self, piece: usize) -> (Outcome, Outcome) {
        let mut accepted = self.accept(piece);
        if let Ok(None) = accepted {
            match self.dial(piece) {
                Ok(None) => {}
                other => return (accepted, other),
            }
            accepted = self.accept(piece);
        }
        let dialled = self.dial(piece);
        (accepted, dialled)
    }
}

fn check_refused(dialler: Party, to: &str, acceptor: Party, reason: Reason) {
    let (accepted, dialled) = Pair::new(dialler, to, acceptor).run(7);
    let Err(HandshakeError::Refuse(refusal)) = accepted else { panic!("{accepted:?}") };
    assert_eq!(refusal.reason, reason);
    assert_eq!(dialled, Err(HandshakeError::Refused(refusal)));
}

proptest! {
    #[test]
    fn both_learn_who_the_other_is(piece in 1..200usize, name in "[a-z]{1,255}", facts in prop::collection::vec(any::<u8>(), 0..2000)) {
        let (mut one, two) = (party(&name, "s"), party("Two", "s"));
        let claim = Arc::make_mut(&mut one.me);
        claim.identity.facts = facts.into();
        let (accepted, dialled) = Pair::new(one.clone(), "Two", two.clone()).run(piece);
        prop_assert_eq!(accepted, Ok(Some(introduced(&one, DIALLERS_SESSION))));
        prop_assert_eq!(dialled, Ok(Some(introduced(&two, ACCEPTORS_SESSION))));
    }

    #[test]
    fn garbage_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..400), keep in 0..120usize) {
        // as it is, and as the rest of what began well
        let mut pair = Pair::new(party("one", "s"), "two", party("two", "s"));
        prop_assert_ne!(pair.accept(1000), Err(HandshakeError::NotAPeer));
        let challenge = pair.to_dialler.split();
        let challenge = &challenge[..keep.min(challenge.len())];
        pair.to_dialler.extend_from_slice(&[challenge, &bytes].concat());
        prop_assert!(!matches!(pair.dial(13), Ok(Some(_))));

        let pair = Pair::new(party("one", "s"), "two", party("two", "s"));
        let hello = &pair.to_acceptor[..keep.min(pair.to_acceptor.len())];
        let mut input = BytesMut::from(&[hello, &bytes].concat()[..]);
        let mut acceptor = Acceptor::new(party("two", "s"), [2; 32]);
        prop_assert!(!matches!(acceptor.read(&mut input, &mut BytesMut::new()), Ok(Some(_))));
    }

    #[test]
    fn one_flipped_bit_is_noticed(at in any::<prop::sample::Index>(), bit in 0..8u8, word in 0..4) {
        let mut pair = Pair::new(party("one", "s"), "two", party("two", "s"));
        let flip = |bytes: &mut BytesMut| {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        };
        if word == 0 { flip(&mut pair.to_acceptor) }
        let accepted = pair.accept(1000);
        if word == 1 { flip(&mut pair.to_dialler) }
        let dialled = accepted.and_then(|_| pair.dial(1000));
        if word == 2 && dialled.is_ok() { flip(&mut pair.to_acceptor) }
        let accepted = dialled.and_then(|_| pair.accept(1000));
        if word == 3 && accepted.is_ok() { flip(&mut pair.to_dialler) }
        let dialled = accepted.and_then(|_| pair.dial(1000));
        prop_assert!(!matches!(dialled, Ok(Some(_))));
    }
}

#[test]
fn a_truncated_handshake_is_waited_for() {
    let pair = Pair::new(party("one", "s"), "two", party("two", "s"));
    let mut acceptor = pair.acceptor.unwrap();
    let hello = pair.to_acceptor;
    let mut input = BytesMut::new();
    let mut out = BytesMut::new();
    for byte in &hello[..hello.len() - 1] {
        input.put_u8(*byte);
        assert_eq!(acceptor.read(&mut input, &mut out), Ok(None));
    }
    assert!(out.is_empty(), "nothing is said to who has said nothing");
}

#[test]
fn strangers_are_known_by_their_first_byte_and_cost_little() {
    let acceptor = || Acceptor::new(party("two", "s"), [2; 32]);
    let read = |bytes: &[u8]| acceptor().read(&mut BytesMut::from(bytes), &mut BytesMut::new());
    assert_eq!(read(b"G"), Err(HandshakeError::NotAPeer));
    assert_eq!(read(b"AMQP\0\0\x09\x01"), Err(HandshakeError::NotAPeer));
    // a hello that claims more than a hello can be is refused before it has come
    let claims = |bytes: u32| {
        let mut said = BytesMut::from(&MAGIC[..]);
        said.put_u16(VERSION);
        said.put_u32(bytes);
        read(&said)
    };
    assert_eq!(claims(u32::MAX), Err(HandshakeError::Malformed("length")));
    assert_eq!(claims(1025), Err(HandshakeError::Malformed("length")));
    assert_eq!(claims(0), Err(HandshakeError::Malformed("length")));
    assert_eq!(claims(1024), Ok(None));
}

#[test]
fn another_secret_is_refused_on_both_sides() {
    check_refused(party("one", "s"), "two", party("two", "other"), Reason::WrongSecret);
}

#[test]
fn an_acceptor_without_the_secret_is_not_believed() {
    // it lets anybody in and welcomes them with a proof of its own making
    let mut pair = Pair::new(party("one", "s"), "two", party("two", "s"));
    assert_eq!(pair.accept(1000), Ok(None));
    assert_eq!(pair.dial(1000), Ok(None));
    let mut impostor = pair.acceptor.take().unwrap();
    impostor.talk.party.secret = Secret::new(b"guess");
    impostor.state = AcceptorState::Proven;
    impostor.welcome(1, &mut pair.to_dialler);
    let Err(HandshakeError::Refuse(refusal)) = pair.dial(1000) else { panic!("believed") };
    assert_eq!(refusal.reason, Reason::WrongSecret);
}

#[test]
fn a_proof_cannot_be_used_twice() {
    let mut pair = Pair::new(party("one", "s"), "two", party("two", "s"));
    let mut hello = pair.to_acceptor.clone();
    assert_eq!(pair.accept(1000), Ok(None));
    assert_eq!(pair.dial(1000), Ok(None));
    let mut proof = pair.to_acceptor;
    // who has heard all of it says it again, to an acceptor that gives another nonce
    let mut acceptor = Acceptor::new(party("two", "s"), [3; 32]);
    let mut out = BytesMut::new();
    assert_eq!(acceptor.read(&mut hello.clone(), &mut out), Ok(None));
    let Err(HandshakeError::Refuse(refusal)) = acceptor.read(&mut proof.clone(), &mut out) else {
        panic!("a replayed proof was accepted")
    };
    assert_eq!(refusal.reason, Reason::WrongSecret);
    // with the same nonce it would fit: it is the nonce that guards
    let mut acceptor = Acceptor::new(party("two", "s"), [2; 32]);
    assert_eq!(acceptor.read(&mut hello, &mut out), Ok(None));
    assert!(matches!(acceptor.read(&mut proof, &mut out), Ok(Some(_))));
}

#[test]
fn an_echo_proves_nothing() {
    let mut pair = Pair::new(party("one", "s"), "two", party("two", "s"));
    assert_eq!(pair.accept(1000), Ok(None));
    assert_eq!(pair.dial(1000), Ok(None));
    // its own proof, with the code of a welcome
    let mut echo = pair.to_acceptor.split();
    echo[4] = WELCOME;
    pair.to_dialler = echo;
    let outcome = pair.dial(1000);
    let Err(HandshakeError::Refuse(refusal)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(refusal.reason, Reason::WrongSecret);
}

#[test]
fn the_wrong_ones_are_told_why() {
    let two = || party("two", "s");
    let mut other = party("one", "s");
    other.cluster = "elsewhere".into();
    check_refused(other, "two", two(), Reason::OtherCluster);
    check_refused(party("one", "s"), "three", two(), Reason::WrongName);
    check_refused(two(), "two", two(), Reason::Oneself);
    let mut copy = two();
    Arc::make_mut(&mut copy.me).instance += 1;
    check_refused(copy.clone(), "two", two(), Reason::DuplicateIdentity);
    Arc::make_mut(&mut copy.me).identity.id = NodeId(7);
    check_refused(copy, "two", two(), Reason::NameTaken);
}

#[test]
fn another_version_is_refused_in_words() {
    let mut pair = Pair::new(party("one", "s"), "two", party("two", "s"));
    pair.to_acceptor[9] = 2;
    let accepted = pair.accept(1000);
    let Err(HandshakeError::Refuse(refusal)) = accepted else { panic!("{accepted:?}") };
    assert_eq!(refusal.to_string(), "wrong version: 2 and 1 do not fit");
    assert_eq!(pair.dial(1000), Err(HandshakeError::Refused(refusal)));
}

#[test]
fn the_largest_identity_and_the_longest_refusal_fit() {
    let mut one = party("one", "s");
    let claim = Arc::make_mut(&mut one.me);
    claim.identity.name = "n".repeat(NAME_MAX).into();
    claim.identity.address = "a".repeat(ADDRESS_MAX);
    claim.identity.facts = vec![1; FACTS_MAX].into();
    let (accepted, dialled) = Pair::new(one.clone(), "two", party("two", "s")).run(50_000);
    assert!(matches!((accepted, dialled), (Ok(Some(_)), Ok(Some(_)))));

    let mut out = BytesMut::new();
    put_refusal(&mut out, &Refusal::new(Reason::NotAdmitted, "ä".repeat(500)));
    let HandshakeError::Refused(refusal) = refused(&out[5..]) else { panic!("unread") };
    assert_eq!(refusal, Refusal::new(Reason::NotAdmitted, "ä".repeat(256)));
}
