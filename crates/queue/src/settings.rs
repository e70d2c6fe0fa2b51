//! What a queue was declared with, after policies have been merged in.

use model::time::Millis;

use crate::malformed::Malformed;
use crate::reader::{self, Reader};

/// The effective arguments of one queue.
///
/// The driver merges declaration arguments, policies and operator policies; the machine only sees
/// the result, and a new one by `Command::Configure`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an argument of its own")]
pub struct Settings {
    /// Most ready messages (`x-max-length`); those that wait for their next attempt count too.
    /// `None`: no limit.
    pub max_length: Option<u64>,
    /// Most bytes of their bodies (`x-max-length-bytes`). `None`: no limit.
    pub max_length_bytes: Option<u64>,
    /// What happens when a limit is reached (`x-overflow`).
    pub overflow: Overflow,
    /// How long a message may wait, from its arrival here (`x-message-ttl`). Zero: a message is
    /// delivered at once or expires. A change does not touch messages that are already here.
    pub message_ttl: Option<Millis>,
    /// How long the queue may be idle before it goes (`x-expires`): without consumers, `Get`,
    /// `Touch` and, for quorum queues, without anything unsettled.
    pub expires: Option<Millis>,
    /// Whether there is a dead letter exchange: what expires, is discarded, dropped or fails too
    /// often leaves by `Effect::DeadLetter` instead of `Effect::Release`.
    pub dead_letter: bool,
    /// A message that is dead-lettered stays until `Command::Bury` says that its targets have it.
    /// Only with a dead letter exchange. A quorum queue that does not refuse what is over its limits
    /// takes it as false: for it this is `x-dead-letter-strategy: at-least-once`. A classic queue
    /// only goes on to know their heads.
    pub keeps_dead: bool,
    /// How often a message may come back as failed and still be delivered again
    /// (`x-delivery-limit`): with 3, the fourth failure ends it. `None`: no limit.
    pub delivery_limit: Option<u32>,
    /// Whether a message that came back waits before it is delivered again (quorum queues only:
    /// `x-delayed-retry-type`, `-min` and `-max`).
    pub delayed_retry: Option<DelayedRetry>,
    /// The highest priority of a classic queue (`x-max-priority`); higher ones are capped.
    /// `None`: priorities are ignored. Quorum queues always have 32 levels.
    pub max_priority: Option<u8>,
    /// Only one consumer at a time gets messages (`x-single-active-consumer`).
    pub single_active_consumer: bool,
    /// How long a consumer may hold a message (`x-consumer-timeout`); a subscription's own value
    /// takes precedence. `None`: for ever.
    pub consumer_timeout: Option<Millis>,
    /// The queue goes when its last consumer goes; never if it never had one.
    pub auto_delete: bool,
    /// Where the two queue types differ.
    pub style: Style,
}

/// How long messages that came back wait: the longer, the more often they failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelayedRetry {
    /// Which of them.
    pub which: Retried,
    /// How long for each failure, and if there was none.
    pub min: Millis,
    /// How long at most.
    pub max: Millis,
}

/// Which messages wait before they are delivered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retried {
    /// Those that came back as failed (`failed`).
    Failed,
    /// Those that came back without having failed (`returned`).
    Returned,
    /// All (`all`).
    All,
}

impl DelayedRetry {
    /// How long a message waits that came back now, as `failed` or not, and has failed
    /// `delivery_count` times.
    #[must_use]
    pub fn delay(&self, failed: bool, delivery_count: u32) -> Option<Millis> {
        let waits = match self.which {
            Retried::Failed => failed,
            Retried::Returned => !failed,
            Retried::All => true,
        };
        let delay = self.min.0.saturating_mul(delivery_count.max(1).into());
        waits.then_some(Millis(delay.min(self.max.0)))
    }
}

/// What happens when a message arrives for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// The oldest ready message of the lowest priority goes (`drop-head`).
    DropHead,
    /// The arrival is refused (`reject-publish`). Exact, also for quorum queues: RabbitMQ's take one
    /// or more too many, and then none until they are at four fifths of the limit.
    RejectPublish,
    /// The arrival is refused and dead-lettered (`reject-publish-dlx`). Quorum queues do not know
    /// this one and take it as [`Overflow::DropHead`].
    RejectPublishDlx,
}

/// The rules in which classic and quorum queues differ.
///
/// | | classic | quorum |
/// |---|---|---|
/// | returned messages | go back to their old place | are delivered first, in the order of return |
/// | priorities | up to `max_priority`, default 0 | 0 to 31, default 4 |
/// | a consumer times out | all that it holds comes back, as failed | what it held for too long comes back, as not failed |
/// | delayed retry | no | yes |
/// | unsettled messages keep the queue from expiring | no | yes |
/// | length limit after a return | applies before redelivery | applies to what is left after it |
/// | single active consumer | the one that came first | highest priority, then first; a better newcomer takes over when the active one holds nothing more |
/// | a changed delivery count | `Effect::Noted` | is in the snapshot |
/// | dead messages that are kept | do not count | count towards the limits |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// As RabbitMQ's classic queues.
    Classic,
    /// As RabbitMQ's quorum queues, 4.3.
    Quorum,
}

impl Settings {
    /// A queue without any limits or options.
    #[must_use]
    pub fn new(style: Style) -> Self {
        Self {
            max_length: None,
            max_length_bytes: None,
            overflow: Overflow::DropHead,
            message_ttl: None,
            expires: None,
            dead_letter: false,
            keeps_dead: false,
            delivery_limit: None,
            delayed_retry: None,
            max_priority: None,
            single_active_consumer: false,
            consumer_timeout: None,
            auto_delete: false,
            style,
        }
    }

    /// What the style makes of these settings.
    #[must_use]
    pub(crate) fn understood(mut self) -> Self {
        if self.style == Style::Quorum && self.overflow == Overflow::RejectPublishDlx {
            self.overflow = Overflow::DropHead;
        }
        if self.style == Style::Classic {
            self.delayed_retry = None;
        }
        let may_keep = self.style == Style::Classic || self.overflow == Overflow::RejectPublish;
        self.keeps_dead &= self.dead_letter && may_keep;
        self
    }

    /// The level at which a message with this `priority` property waits.
    #[must_use]
    pub fn level(&self, priority: Option<u8>) -> u8 {
        match (self.style, self.max_priority) {
            (Style::Classic, None) => 0,
            (Style::Classic, Some(most)) => priority.unwrap_or(0).min(most),
            (Style::Quorum, _) => priority.unwrap_or(4).min(31),
        }
    }

    /// The sooner of the queue's and the message's own limit on waiting.
    #[must_use]
    pub fn ttl(&self, own: Option<Millis>) -> Option<Millis> {
        match (self.message_ttl, own) {
            (Some(queue), Some(own)) => Some(queue.min(own)),
            (queue, own) => queue.or(own),
        }
    }

    const VERSION: u8 = 1;

    /// The stored form: the version, flags, then each number that is there.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![Self::VERSION, 0, 0];
        let flags = [
            self.style == Style::Quorum,
            self.overflow == Overflow::RejectPublish,
            self.overflow == Overflow::RejectPublishDlx,
            self.dead_letter,
            self.single_active_consumer,
            self.auto_delete,
        ];
        for (bit, _) in flags.into_iter().enumerate().filter(|(_, set)| *set) {
            out[1] |= 1 << bit;
        }
        out[1] |= match self.delayed_retry.map(|retry| retry.which) {
            None => 0,
            Some(Retried::Failed) => 1 << 6,
            Some(Retried::Returned) => 2 << 6,
            Some(Retried::All) => 3 << 6,
        };
        let numbers = [
            self.max_length,
            self.max_length_bytes,
            self.message_ttl.map(|span| span.0),
            self.expires.map(|span| span.0),
            self.delivery_limit.map(u64::from),
            self.max_priority.map(u64::from),
            self.consumer_timeout.map(|span| span.0),
        ];
        for (bit, number) in numbers.into_iter().enumerate() {
            if let Some(number) = number {
                out[2] |= 1 << bit;
                reader::put(&mut out, number);
            }
        }
        out[2] |= u8::from(self.keeps_dead) << 7;
        if let Some(retry) = self.delayed_retry {
            reader::put(&mut out, retry.min.0);
            reader::put(&mut out, retry.max.0);
        }
        out
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// If `bytes` is not what [`Settings::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let version = reader.byte()?;
        if version != Self::VERSION {
            return Err(Malformed::Version(version));
        }
        let flags = reader.byte()?;
        let numbers = reader.byte()?;
        let flag = |bit: u8| flags >> bit & 1 != 0;
        let has = |bit: u8| numbers >> bit & 1 != 0;
        if has(7) && !flag(3) {
            return Err(Malformed::Flags(numbers));
        }
        let settings = Self {
            style: if flag(0) { Style::Quorum } else { Style::Classic },
            overflow: match (flag(1), flag(2)) {
                (false, false) => Overflow::DropHead,
                (true, false) => Overflow::RejectPublish,
                (false, true) => Overflow::RejectPublishDlx,
                (true, true) => return Err(Malformed::Flags(flags)),
            },
            dead_letter: flag(3),
            keeps_dead: has(7),
            single_active_consumer: flag(4),
            auto_delete: flag(5),
            max_length: has(0).then(|| reader.take()).transpose()?,
            max_length_bytes: has(1).then(|| reader.take()).transpose()?,
            message_ttl: has(2).then(|| reader.millis()).transpose()?,
            expires: has(3).then(|| reader.millis()).transpose()?,
            delivery_limit: has(4).then(|| reader.small()).transpose()?,
            max_priority: has(5).then(|| reader.small()).transpose()?,
            consumer_timeout: has(6).then(|| reader.millis()).transpose()?,
            delayed_retry: match flags >> 6 {
                0 => None,
                which => Some(DelayedRetry {
                    which: match which {
                        1 => Retried::Failed,
                        2 => Retried::Returned,
                        _ => Retried::All,
                    },
                    min: reader.millis()?,
                    max: reader.millis()?,
                }),
            },
        };
        reader.end()?;
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_comes_back() {
        for bits in 0..1_u32 << 14 {
            let bit = |bit: u32| bits >> bit & 1 != 0;
            let large = u64::MAX - u64::from(bits);
            let settings = Settings {
                max_length: bit(0).then_some(large),
                max_length_bytes: bit(1).then_some(0),
                overflow: match bits >> 2 & 3 {
                    0 => Overflow::DropHead,
                    1 => Overflow::RejectPublish,
                    _ => Overflow::RejectPublishDlx,
                },
                message_ttl: bit(4).then_some(Millis(large)),
                expires: bit(5).then_some(Millis(60_000)),
                dead_letter: bit(6),
                keeps_dead: bit(6) && bit(8),
                delivery_limit: bit(7).then_some(u32::MAX),
                max_priority: bit(8).then_some(u8::MAX),
                single_active_consumer: bit(9),
                consumer_timeout: bit(10).then_some(Millis(1)),
                auto_delete: bit(9) != bit(6),
                delayed_retry: match bits >> 12 {
                    0 => None,
                    1 => Some(Retried::Failed),
                    2 => Some(Retried::Returned),
                    _ => Some(Retried::All),
                }
                .map(|which| DelayedRetry {
                    which,
                    min: Millis(1),
                    max: Millis(large),
                }),
                style: if bit(11) { Style::Quorum } else { Style::Classic },
            };
            let stored = settings.encode();
            assert_eq!(Settings::decode(&stored), Ok(settings));
            assert!(Settings::decode(&stored[..stored.len() - 1]).is_err());
        }
    }

    #[test]
    fn the_delay_grows_with_each_failure_up_to_a_limit() {
        let retry = |which| DelayedRetry { which, min: Millis(10), max: Millis(25) };
        let failed = retry(Retried::Failed);
        let delays = [0, 1, 2, 3, u32::MAX].map(|count| failed.delay(true, count).unwrap().0);
        assert_eq!(delays, [10, 10, 20, 25, 25]);
        assert_eq!(failed.delay(false, 1), None);
        assert_eq!(retry(Retried::Returned).delay(true, 1), None);
        assert_eq!(retry(Retried::Returned).delay(false, 2), Some(Millis(20)));
        assert_eq!(retry(Retried::All).delay(false, 0), retry(Retried::All).delay(true, 1));
        let small = DelayedRetry { max: Millis(5), ..failed };
        assert_eq!(small.delay(true, 1), Some(Millis(5)));
    }

    /// The golden form: it may only change together with the version.
    #[test]
    fn stored_form_is_fixed() {
        let settings = Settings {
            max_length: Some(300),
            overflow: Overflow::RejectPublish,
            dead_letter: true,
            delivery_limit: Some(20),
            ..Settings::new(Style::Quorum)
        };
        assert_eq!(settings.encode(), [1, 0b1011, 0b1_0001, 0xac, 2, 20]);
    }

    #[test]
    fn damaged_forms_are_refused() {
        assert_eq!(Settings::decode(&[]), Err(Malformed::Ended));
        assert_eq!(Settings::decode(&[2, 0, 0]), Err(Malformed::Version(2)));
        assert_eq!(Settings::decode(&[1, 0b110, 0]), Err(Malformed::Flags(0b110)));
        assert_eq!(Settings::decode(&[1, 0, 0x80]), Err(Malformed::Flags(0x80)));
        assert_eq!(Settings::decode(&[1, 0, 0, 0]), Err(Malformed::Length(1)));
        let too_large = Settings::decode(&[1, 0, 0b10_0000, 0x80, 2]);
        assert_eq!(too_large, Err(Malformed::Value("a number is too large")));
    }
}
