//! What a queue was declared with, after policies have been merged in.

use model::time::Millis;

/// The effective arguments of one queue.
///
/// The driver merges declaration arguments, policies and operator policies; the machine only sees
/// the result, and a new one by `Command::Configure`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Most ready messages (`x-max-length`). `None`: no limit.
    pub max_length: Option<u64>,
    /// Most bytes of ready bodies (`x-max-length-bytes`). `None`: no limit.
    pub max_length_bytes: Option<u64>,
    /// What happens when a limit is reached (`x-overflow`).
    pub overflow: Overflow,
    /// How long a message may wait, from its arrival here (`x-message-ttl`). Zero: a message is
    /// delivered at once or expires. A change does not touch messages that are already here.
    pub message_ttl: Option<Millis>,
    /// How long the queue may be idle before it goes (`x-expires`): without consumers, `Get` and,
    /// for classic queues, `Touch`.
    pub expires: Option<Millis>,
    /// Whether there is a dead letter exchange: what expires, is discarded, dropped or fails too
    /// often leaves by `Effect::DeadLetter` instead of `Effect::Release`.
    pub dead_letter: bool,
    /// How often a message may come back as failed and still be delivered again
    /// (`x-delivery-limit`): with 3, the fourth failure ends it. `None`: no limit.
    pub delivery_limit: Option<u32>,
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

/// What happens when a message arrives for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// The oldest ready message of the lowest priority goes (`drop-head`).
    DropHead,
    /// The arrival is refused (`reject-publish`).
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
/// | a consumer's timeout | counts as a failed delivery | does not count |
/// | length limit after a return | applies before redelivery | applies to what is left after it |
/// | single active consumer | the one that came first | highest priority, then first; a better newcomer takes over when the active one holds nothing more |
/// | `Touch` | the queue was used | nothing |
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
            delivery_limit: None,
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
}
