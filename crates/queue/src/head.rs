//! What must be remembered of a message besides its content.
//!
//! ```text
//!  version  flags   priority  zero   bytes   delivery count   expires at
//!   u8       u8      u8        u8     u32     u32              u64         little-endian, 20 bytes
//!            bit 0: expires at counts      bit 1: was handed out
//! ```

use model::time::Timestamp;

use crate::malformed::Malformed;

/// The part of a message's state that survives a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The length of its body.
    pub bytes: u32,
    /// The level at which it waits.
    pub priority: u8,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// How often it came back as failed.
    pub delivery_count: u32,
    /// Whether it was ever handed out.
    pub delivered: bool,
}

impl Head {
    /// The length of the stored form.
    pub const LEN: usize = 20;
    const VERSION: u8 = 1;
    const EXPIRES: u8 = 1;
    const DELIVERED: u8 = 2;

    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut flags = 0;
        if self.expires_at.is_some() {
            flags |= Self::EXPIRES;
        }
        if self.delivered {
            flags |= Self::DELIVERED;
        }
        let mut out = [0; Self::LEN];
        out[0] = Self::VERSION;
        out[1] = flags;
        out[2] = self.priority;
        out[4..8].copy_from_slice(&self.bytes.to_le_bytes());
        out[8..12].copy_from_slice(&self.delivery_count.to_le_bytes());
        out[12..20].copy_from_slice(&self.expires_at.unwrap_or_default().0.to_le_bytes());
        out
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// If `bytes` is not what [`Head::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let bytes: &[u8; Self::LEN] =
            bytes.try_into().map_err(|_| Malformed::Length(bytes.len()))?;
        let [version, flags, priority, zero, b0, b1, b2, b3, c0, c1, c2, c3, expires @ ..] = *bytes;
        if version != Self::VERSION {
            return Err(Malformed::Version(version));
        }
        let expires_at = u64::from_le_bytes(expires);
        let expires = flags & Self::EXPIRES != 0;
        if flags & !(Self::EXPIRES | Self::DELIVERED) != 0
            || zero != 0
            || (!expires && expires_at != 0)
        {
            return Err(Malformed::Flags(flags));
        }
        Ok(Self {
            bytes: u32::from_le_bytes([b0, b1, b2, b3]),
            priority,
            expires_at: expires.then_some(Timestamp(expires_at)),
            delivery_count: u32::from_le_bytes([c0, c1, c2, c3]),
            delivered: flags & Self::DELIVERED != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            bytes: 0x0102_0304,
            priority: 9,
            expires_at: Some(Timestamp(0x1122_3344_5566_7788)),
            delivery_count: 5,
            delivered: true,
        }
    }

    /// The golden form: it may only change together with the version.
    #[test]
    fn stored_form_is_fixed() {
        let stored = head().encode();
        let golden =
            [1, 3, 9, 0, 4, 3, 2, 1, 5, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11];
        assert_eq!(stored, golden);
        assert_eq!(Head::decode(&golden), Ok(head()));
    }

    #[test]
    fn every_combination_round_trips() {
        for expires_at in [None, Some(Timestamp(0)), Some(Timestamp(u64::MAX))] {
            for delivered in [false, true] {
                let head = Head { expires_at, delivered, ..head() };
                assert_eq!(Head::decode(&head.encode()), Ok(head));
            }
        }
    }

    #[test]
    fn damaged_forms_are_refused() {
        let stored = head().encode();
        assert_eq!(Head::decode(&stored[1..]), Err(Malformed::Length(19)));
        assert_eq!(Head::decode(&[]), Err(Malformed::Length(0)));
        let mut newer = stored;
        newer[0] = 2;
        assert_eq!(Head::decode(&newer), Err(Malformed::Version(2)));
        let mut odd = stored;
        odd[1] = 0x83;
        assert_eq!(Head::decode(&odd), Err(Malformed::Flags(0x83)));
    }
}
