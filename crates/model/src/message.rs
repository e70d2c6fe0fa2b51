//! The opaque message: what a publisher gave, byte for byte.
//!
//! ```text
//!  route                                 properties                    body
//!  [len:u8][exchange][len:u8][key]  …    [flags:u16…][field]*   …      bytes
//!  └── a slice of the publish method     └── a slice of the header     └── a slice of the body frame
//! ```
//!
//! The three spans lie in **one** buffer, as a rule the very buffer that was read from the socket,
//! so a message costs one reference count and no copy. The encodings of `route` and `properties`
//! are those of AMQP 0.9.1, since a delivery repeats them unchanged; nobody below `wire` looks
//! inside.

use bytes::{BufMut, Bytes, BytesMut};

/// A route is at most 512 bytes long, so its length leaves this bit free.
const DEAD_LETTERED: u16 = 1 << 15;

/// A half-open range of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn of(self, buffer: &[u8]) -> &[u8] {
        &buffer[self.start as usize..self.end as usize]
    }

    fn len(self) -> usize {
        (self.end - self.start) as usize
    }
}

/// One message: route, properties and body. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Message {
    buffer: Bytes,
    route: Span,
    properties: Span,
    body: Span,
    dead_lettered: bool,
}

/// Why stored bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl Message {
    /// The bytes that [`Message::encode_into`] adds to the three parts.
    pub const OVERHEAD: usize = 6;

    /// Names three spans of one buffer as a message.
    ///
    /// # Errors
    /// If the ranges do not lie in the buffer or `route` is not two short strings.
    pub fn from_spans(
        buffer: Bytes,
        route: std::ops::Range<usize>,
        properties: std::ops::Range<usize>,
        body: std::ops::Range<usize>,
    ) -> Result<Self, Malformed> {
        let span = |range: std::ops::Range<usize>| {
            if range.start > range.end || range.end > buffer.len() {
                return Err(Malformed);
            }
            let start = u32::try_from(range.start).map_err(|_| Malformed)?;
            let end = u32::try_from(range.end).map_err(|_| Malformed)?;
            Ok(Span { start, end })
        };
        let (route, properties, body) = (span(route)?, span(properties)?, span(body)?);
        if !is_two_short_strings(route.of(&buffer)) {
            return Err(Malformed);
        }
        Ok(Self { buffer, route, properties, body, dead_lettered: false })
    }

    /// Copies the parts into a buffer of their own.
    ///
    /// # Panics
    /// If `exchange` or `routing_key` is longer than 255 bytes, or the whole exceeds 4 GiB.
    pub fn from_parts(exchange: &str, routing_key: &str, properties: &[u8], body: &[u8]) -> Self {
        let length = 2 + exchange.len() + routing_key.len() + properties.len() + body.len();
        let mut buffer = BytesMut::with_capacity(length);
        for text in [exchange, routing_key] {
            buffer.put_u8(u8::try_from(text.len()).expect("a short string has at most 255 bytes"));
            buffer.put_slice(text.as_bytes());
        }
        let route_end = buffer.len();
        buffer.put_slice(properties);
        let properties_end = buffer.len();
        buffer.put_slice(body);
        let end = buffer.len();
        Self::from_spans(
            buffer.freeze(),
            0..route_end,
            route_end..properties_end,
            properties_end..end,
        )
        .expect("the spans were just laid out")
    }

    /// The name of the exchange that it was published to; empty for the default exchange.
    pub fn exchange(&self) -> &str {
        let route = self.route();
        std::str::from_utf8(&route[1..=(route[0] as usize)]).unwrap_or_default()
    }

    /// The routing key that it was published with.
    pub fn routing_key(&self) -> &str {
        let route = self.route();
        std::str::from_utf8(&route[2 + route[0] as usize..]).unwrap_or_default()
    }

    /// Exchange and routing key as two AMQP short strings.
    pub fn route(&self) -> &[u8] {
        self.route.of(&self.buffer)
    }

    /// Property flags and fields as they stand in an AMQP content header.
    pub fn properties(&self) -> &[u8] {
        self.properties.of(&self.buffer)
    }

    /// The payload.
    pub fn body(&self) -> &[u8] {
        self.body.of(&self.buffer)
    }

    /// The payload, sharing the buffer.
    pub fn body_bytes(&self) -> Bytes {
        self.buffer.slice(self.body.start as usize..self.body.end as usize)
    }

    /// The same route and body with other properties; copies the whole.
    #[must_use]
    pub fn with_properties(&self, properties: &[u8]) -> Self {
        Self {
            dead_lettered: self.dead_lettered,
            ..Self::from_parts(self.exchange(), self.routing_key(), properties, self.body())
        }
    }

    /// Whether the broker has dead-lettered it: its `x-death` header is then the broker's own and
    /// not something that a client made up.
    pub fn is_dead_lettered(&self) -> bool {
        self.dead_lettered
    }

    /// Says that its `x-death` header is the broker's own.
    #[must_use]
    pub fn dead_lettered(mut self) -> Self {
        self.dead_lettered = true;
        self
    }

    /// The length that [`Message::encode_into`] writes.
    pub fn encoded_len(&self) -> usize {
        Self::OVERHEAD + self.route.len() + self.properties.len() + self.body.len()
    }

    /// Writes the storage form: `[route len: u16][properties len: u32][route][properties][body]`,
    /// numbers little-endian. The body's length is what remains, so the bytes must be framed. The
    /// highest bit of the route's length says that the message was dead-lettered.
    pub fn encode_into(&self, out: &mut impl BufMut) {
        let route = u16::try_from(self.route.len()).expect("two short strings are short");
        out.put_u16_le(if self.dead_lettered { route | DEAD_LETTERED } else { route });
        out.put_u32_le(self.properties.end - self.properties.start);
        out.put_slice(self.route());
        out.put_slice(self.properties());
        out.put_slice(self.body());
    }

    /// Reads the storage form; the message shares `bytes`.
    ///
    /// # Errors
    /// If the bytes are not what [`Message::encode_into`] writes.
    pub fn decode(bytes: Bytes) -> Result<Self, Malformed> {
        let (Some(route), Some(properties)) = (bytes.get(0..2), bytes.get(2..6)) else {
            return Err(Malformed);
        };
        let route = u16::from_le_bytes(route.try_into().map_err(|_| Malformed)?);
        let dead_lettered = route & DEAD_LETTERED != 0;
        let route = usize::from(route & !DEAD_LETTERED);
        let properties = u32::from_le_bytes(properties.try_into().map_err(|_| Malformed)?) as usize;
        let route_end = Self::OVERHEAD + route;
        let properties_end = route_end.checked_add(properties).ok_or(Malformed)?;
        let end = bytes.len();
        let message = Self::from_spans(
            bytes,
            Self::OVERHEAD..route_end,
            route_end..properties_end,
            properties_end..end.max(properties_end),
        )?;
        Ok(Self { dead_lettered, ..message })
    }

    /// The memory that keeping this message keeps alive, if nobody else holds its buffer.
    pub fn buffer_len(&self) -> usize {
        self.buffer.len()
    }

    /// The same message in a buffer of its own, so that a small message that waits does not keep
    /// the large read buffer that it arrived in.
    #[must_use]
    pub fn detach(&self) -> Self {
        self.with_properties(self.properties())
    }
}

fn is_two_short_strings(route: &[u8]) -> bool {
    let Some(&exchange) = route.first() else { return false };
    let Some(&key) = route.get(1 + exchange as usize) else { return false };
    route.len() == 2 + exchange as usize + key as usize
        // nearly always, and cheaper than two looks
        && (route.is_ascii()
            || std::str::from_utf8(&route[1..=exchange as usize]).is_ok()
                && std::str::from_utf8(&route[2 + exchange as usize..]).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_form_round_trips() {
        let message = Message::from_parts("amq.topic", "a.b", &[0x10, 0, 2], b"hello");
        assert!(!message.is_dead_lettered());
        let message = message.dead_lettered();
        let mut stored = BytesMut::new();
        message.encode_into(&mut stored);
        assert_eq!(stored.len(), message.encoded_len());
        let read = Message::decode(stored.freeze()).unwrap();
        assert_eq!(read.exchange(), "amq.topic");
        assert_eq!(read.routing_key(), "a.b");
        assert_eq!(read.properties(), &[0x10, 0, 2]);
        assert_eq!(read.body(), b"hello");
        assert!(read.is_dead_lettered() && read.detach().is_dead_lettered());
    }

    #[test]
    fn damaged_storage_forms_are_refused() {
        let message = Message::from_parts("e", "k", &[0, 0], b"");
        let mut stored = BytesMut::new();
        message.encode_into(&mut stored);
        let stored = stored.freeze();
        assert!(Message::decode(stored.clone()).is_ok());
        for cut in 0..stored.len() {
            assert_eq!(Message::decode(stored.slice(..cut)).err(), Some(Malformed), "cut at {cut}");
        }
    }

    #[test]
    fn names_must_be_utf8() {
        let bytes = Bytes::from_static(&[1, 0xff, 0]);
        assert!(Message::from_spans(bytes, 0..3, 3..3, 3..3).is_err());
    }
}
