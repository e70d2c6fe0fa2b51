//! Password hashes: base64 of `salt (4 bytes) ‖ hash(salt ‖ password)`, as RabbitMQ's definitions
//! carry them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use sha2::{Digest, Sha256, Sha512};

use crate::objects::user::{HashingAlgorithm, User};

/// The length of a salt in bytes.
pub const SALT_LEN: usize = 4;

/// Hashes a password with a salt that the caller drew.
pub fn hash(algorithm: HashingAlgorithm, salt: [u8; SALT_LEN], password: &[u8]) -> String {
    let mut salted = salt.to_vec();
    salted.extend(digest(algorithm, &salt, password));
    STANDARD.encode(salted)
}

/// Whether this is the user's password. A user without a hash has none, and the empty password is
/// right for nobody.
pub fn is_right(user: &User, password: &[u8]) -> bool {
    if password.is_empty() {
        return false;
    }
    let Ok(stored) = STANDARD.decode(user.password_hash.trim()) else { return false };
    let Some((salt, stored)) = stored.split_at_checked(SALT_LEN) else { return false };
    let computed = digest(user.hashing_algorithm, salt, password);
    // Looks at every byte, so that the time says nothing about how many are right.
    stored.len() == computed.len()
        && stored.iter().zip(&computed).fold(0, |differs, (one, other)| differs | (one ^ other))
            == 0
}

/// Spends the time that checking a password takes.
pub(crate) fn waste(password: &[u8]) {
    std::hint::black_box(digest(HashingAlgorithm::Sha256, &[0; SALT_LEN], password));
}

fn digest(algorithm: HashingAlgorithm, salt: &[u8], password: &[u8]) -> Vec<u8> {
    fn with<D: Digest>(salt: &[u8], password: &[u8]) -> Vec<u8> {
        D::new().chain_update(salt).chain_update(password).finalize().to_vec()
    }
    match algorithm {
        HashingAlgorithm::Sha256 => with::<Sha256>(salt, password),
        HashingAlgorithm::Sha512 => with::<Sha512>(salt, password),
        HashingAlgorithm::Md5 => with::<Md5>(salt, password),
    }
}
