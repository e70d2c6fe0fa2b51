//! What exchanges may want to know of a message besides its routing key.

use amq_protocol_types::FieldTable;

/// Answers on demand, so that nobody parses headers for exchanges that do not look at them.
pub trait Content {
    /// The property `headers`, parsed; `None` if the message has none.
    fn headers(&self) -> Option<&FieldTable>;

    /// The property `message_id`.
    fn message_id(&self) -> Option<&str>;

    /// The property `correlation_id`.
    fn correlation_id(&self) -> Option<&str>;

    /// The property `timestamp`, in seconds.
    fn timestamp(&self) -> Option<u64>;

    /// A number that differs from message to message, for exchanges that choose at random.
    fn random(&self) -> u64;
}

/// A message without properties, and always the same random number.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoContent;

impl Content for NoContent {
    fn headers(&self) -> Option<&FieldTable> {
        None
    }

    fn message_id(&self) -> Option<&str> {
        None
    }

    fn correlation_id(&self) -> Option<&str> {
        None
    }

    fn timestamp(&self) -> Option<u64> {
        None
    }

    fn random(&self) -> u64 {
        0
    }
}
