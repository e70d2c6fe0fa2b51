//! Methods: the payload of a method frame.
//!
//! ```text
//!  [class: u16][method: u16][arguments, packed as the method defines]
//! ```
//!
//! Parsing and encoding are `amq-protocol`'s; before it sees a field table, [`table::check`] has
//! seen it, so that deep nesting cannot overflow the stack and errors name the bad value.

use crate::frame::{self, END, HEADER_LEN, Kind};
use crate::reader::Reader;
use crate::table::{self, TableError};
use amq_protocol::frame::WriteContext;
use amq_protocol::protocol::{self, AMQPClass};
use bytes::{BufMut, BytesMut};

/// The payload is not a method that we know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MethodError {
    /// No class of this number. RabbitMQ closes the connection with 503 `COMMAND_INVALID`.
    UnknownClass {
        /// The class.
        class: u16,
        /// The method.
        method: u16,
    },
    /// The class has no such method. As above.
    UnknownMethod {
        /// The class.
        class: u16,
        /// The method.
        method: u16,
    },
    /// The arguments are not what the method defines: 502 `SYNTAX_ERROR`.
    Syntax {
        /// The class; 0 if not even that was there.
        class: u16,
        /// The method.
        method: u16,
        /// What is wrong.
        reason: Reason,
    },
}

/// What is wrong with a method's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// They end too early, or a text is not UTF-8.
    Truncated,
    /// Bytes are left over.
    Trailing,
    /// A field table is wrong.
    Table(TableError),
}

impl std::fmt::Display for MethodError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownClass { class, method } | Self::UnknownMethod { class, method } => {
                write!(out, "unknown method {class}.{method}")
            }
            Self::Syntax { class, method, reason } => match reason {
                Reason::Truncated => write!(out, "arguments of method {class}.{method} malformed"),
                Reason::Trailing => {
                    write!(out, "arguments of method {class}.{method} followed by more bytes")
                }
                Reason::Table(error) => write!(out, "{error}"),
            },
        }
    }
}

impl std::error::Error for MethodError {}

/// Class and method number of a method frame's payload; `None` if it is too short.
#[inline]
pub fn ids(payload: &[u8]) -> Option<(u16, u16)> {
    let &[c0, c1, m0, m1] = payload.first_chunk::<4>()?;
    Some((u16::from_be_bytes([c0, c1]), u16::from_be_bytes([m0, m1])))
}

/// Reads a method.
///
/// # Errors
/// [`MethodError`].
pub fn parse(payload: &[u8]) -> Result<AMQPClass, MethodError> {
    let Some((class, method)) = ids(payload) else {
        return Err(MethodError::Syntax { class: 0, method: 0, reason: Reason::Truncated });
    };
    let syntax = |reason| MethodError::Syntax { class, method, reason };
    if let Some(layout) = layout_before_table(class, method) {
        check_table(&payload[4..], layout).map_err(syntax)?;
    }
    match protocol::parse_class(payload) {
        Ok(([], parsed)) => Ok(parsed),
        Ok(_) => Err(syntax(Reason::Trailing)),
        Err(_) => Err(match known(class, method) {
            Known::Method => syntax(Reason::Truncated),
            Known::Class => MethodError::UnknownMethod { class, method },
            Known::Nothing => MethodError::UnknownClass { class, method },
        }),
    }
}

/// What stands before the one field table of a method: `2` two bytes, `s` a short string, `b` a
/// byte (of bits, or a number).
fn layout_before_table(class: u16, method: u16) -> Option<&'static str> {
    Some(match (class, method) {
        (10, 10) => "bb",         // connection.start
        (10, 11) => "",           // connection.start-ok
        (40, 10) => "2ssb",       // exchange.declare
        (40, 30 | 40) => "2sssb", // exchange.bind, unbind
        (50, 10) => "2sb",        // queue.declare
        (50, 20) => "2sssb",      // queue.bind
        (50, 50) => "2sss",       // queue.unbind
        (60, 20) => "2ssb",       // basic.consume
        _ => return None,
    })
}

fn check_table(arguments: &[u8], layout: &str) -> Result<(), Reason> {
    let mut reader = Reader::new(arguments);
    for part in layout.bytes() {
        match part {
            b'2' => reader.u16().map(drop),
            b's' => reader.short_bytes().map(drop),
            _ => reader.u8().map(drop),
        }
        .map_err(|_| Reason::Truncated)?;
    }
    let table = reader.long_bytes().map_err(|_| Reason::Truncated)?;
    table::check(table).map_err(Reason::Table)
}

enum Known {
    Nothing,
    Class,
    Method,
}

fn known(class: u16, method: u16) -> Known {
    let methods: &[u16] = match class {
        10 => &[10, 11, 20, 21, 30, 31, 40, 41, 50, 51, 60, 61, 70, 71],
        20 => &[10, 11, 20, 21, 40, 41],
        30 => &[10, 11],
        40 => &[10, 11, 20, 21, 30, 31, 40, 51],
        50 => &[10, 11, 20, 21, 30, 31, 40, 41, 50, 51],
        60 => &[10, 11, 20, 21, 30, 31, 40, 50, 60, 70, 71, 72, 80, 90, 100, 110, 111, 120],
        85 => &[10, 11],
        90 => &[10, 11, 20, 21, 30, 31],
        _ => return Known::Nothing,
    };
    if methods.contains(&method) { Known::Method } else { Known::Class }
}

/// Writes a method frame.
pub fn write_method(out: &mut BytesMut, channel: u16, class: &AMQPClass) {
    let context = WriteContext { write: Vec::with_capacity(128), position: 0 };
    let written = protocol::gen_class(class)(context).expect("writing to memory cannot fail").write;
    out.reserve(written.len() + frame::OVERHEAD);
    frame::write(out, Kind::Method, channel, &written);
}

/// Writes a method frame whose arguments `write` appends by hand.
#[inline]
pub(crate) fn write_frame(
    out: &mut BytesMut,
    channel: u16,
    (class, method): (u16, u16),
    write: impl FnOnce(&mut BytesMut),
) {
    let start = out.len();
    frame::write_head(out, Kind::Method, channel, 0);
    out.put_u32(u32::from(class) << 16 | u32::from(method));
    write(out);
    let size = out.len() - start - HEADER_LEN;
    let size = u32::try_from(size).expect("a method is shorter than 4 GiB");
    out[start + 3..start + 7].copy_from_slice(&size.to_be_bytes());
    out.put_u8(END);
}

#[cfg(test)]
mod tests;
