//! The secret that the nodes of a cluster share.

use ring::hmac;
use std::fmt;
use std::sync::Arc;

/// How long a proof is, in bytes.
pub(crate) const PROOF: usize = 32;

/// A shared secret. It never leaves the process: nodes prove to each other that they know it.
#[derive(Clone)]
pub struct Secret(Arc<hmac::Key>);

impl Secret {
    /// The secret that these bytes are. At least 16 random bytes, or a word that cannot be guessed:
    /// who watches a handshake in the clear can try words at leisure.
    pub fn new(bytes: &[u8]) -> Self {
        Self(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// Proves that the secret is known to the one who has `role` in the conversation `transcript`.
    pub(crate) fn prove(&self, role: Role, transcript: &[u8]) -> [u8; PROOF] {
        let tag = hmac::sign(&self.0, &said(role, transcript));
        let mut proof = [0; PROOF];
        proof.copy_from_slice(tag.as_ref());
        proof
    }

    /// Whether `proof` is that of [`prove`](Self::prove); takes the same time for every wrong one.
    pub(crate) fn verify(&self, role: Role, transcript: &[u8], proof: &[u8]) -> bool {
        hmac::verify(&self.0, &said(role, transcript), proof).is_ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Who proves. A proof of one role is none of the other, so nobody is fooled by an echo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Dialler,
    Acceptor,
}

fn said(role: Role, transcript: &[u8]) -> Vec<u8> {
    let label: &[u8] = match role {
        Role::Dialler => b"leveret peer dialler\0",
        Role::Acceptor => b"leveret peer acceptor\0",
    };
    [label, transcript].concat()
}
