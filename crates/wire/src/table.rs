//! Field tables in RabbitMQ's dialect.
//!
//! ```text
//!  table  [len: u32] ( [name: short string][value] )*
//!  array  [len: u32] ( [value] )*
//!  value  [tag: u8] …
//!    t bool        b i8     s, U i16   I i32   l, L i64   f f32   S long string   A array
//!    V nothing     B u8     u    u16   i u32   T    u64   d f64   x bytes         F table
//!                                                         D decimal (u8 scale, u32 value)
//! ```
//!
//! The parser is `amq-protocol`'s and recursive, so [`check`] goes over the bytes first: it knows
//! every tag, and refuses tables nested deeper than [`DEPTH_MAX`].

use crate::reader::{Malformed, Reader};
use amq_protocol::frame::WriteContext;
use amq_protocol::types::FieldTable;
use amq_protocol::types::generation::gen_field_table;
use amq_protocol::types::parsing::parse_field_table;

/// How deep tables and arrays may be nested. No client that we know of goes beyond 10.
pub const DEPTH_MAX: usize = 64;

/// Why bytes are not a field table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableError {
    /// It ends in the middle of a value, or a name is not UTF-8.
    Truncated,
    /// A value of a type that AMQP 0.9.1 does not have.
    UnknownTag {
        /// The type's byte.
        tag: u8,
    },
    /// Nested deeper than [`DEPTH_MAX`].
    TooDeep,
}

impl std::fmt::Display for TableError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Truncated => write!(out, "field table malformed"),
            Self::UnknownTag { tag } => {
                write!(out, "field table holds a value of unknown type '{}'", tag.escape_ascii())
            }
            Self::TooDeep => write!(out, "field table nested deeper than {DEPTH_MAX}"),
        }
    }
}

impl std::error::Error for TableError {}

impl From<Malformed> for TableError {
    fn from(_: Malformed) -> Self {
        Self::Truncated
    }
}

/// Checks the entries of a table, given without the length before them. Takes time in proportion
/// to the length, and allocates nothing.
///
/// # Errors
/// [`TableError`].
pub fn check(entries: &[u8]) -> Result<(), TableError> {
    check_entries(entries, DEPTH_MAX)
}

fn check_entries(entries: &[u8], depth: usize) -> Result<(), TableError> {
    let depth = depth.checked_sub(1).ok_or(TableError::TooDeep)?;
    let mut reader = Reader::new(entries);
    while !reader.is_empty() {
        reader.short_string()?;
        check_value(read_value(&mut reader)?, depth)?;
    }
    Ok(())
}

fn check_value(value: Value<'_>, depth: usize) -> Result<(), TableError> {
    match value.tag {
        b'F' => check_entries(value.bytes, depth),
        b'A' => {
            let depth = depth.checked_sub(1).ok_or(TableError::TooDeep)?;
            let mut reader = Reader::new(value.bytes);
            while !reader.is_empty() {
                check_value(read_value(&mut reader)?, depth)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// One value, not taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value<'a> {
    /// Its type.
    pub tag: u8,
    /// Its bytes, without the length that stands before strings, arrays and tables.
    pub bytes: &'a [u8],
}

impl<'a> Value<'a> {
    /// The content of a long string.
    pub fn string(&self) -> Option<&'a [u8]> {
        (self.tag == b'S').then_some(self.bytes)
    }

    /// A whole number of any width, as RabbitMQ reads it (`l` and `L` are both signed).
    pub fn integer(&self) -> Option<i64> {
        fn wide<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
            bytes.try_into().ok()
        }
        Some(match self.tag {
            b'b' => i64::from(i8::from_be_bytes(wide(self.bytes)?)),
            b'B' => i64::from(u8::from_be_bytes(wide(self.bytes)?)),
            b's' | b'U' => i64::from(i16::from_be_bytes(wide(self.bytes)?)),
            b'u' => i64::from(u16::from_be_bytes(wide(self.bytes)?)),
            b'I' => i64::from(i32::from_be_bytes(wide(self.bytes)?)),
            b'i' => i64::from(u32::from_be_bytes(wide(self.bytes)?)),
            b'l' | b'L' => i64::from_be_bytes(wide(self.bytes)?),
            _ => return None,
        })
    }

    /// The items of an array, up to the first malformed one.
    pub fn items(&self) -> Option<impl Iterator<Item = Value<'a>> + use<'a>> {
        (self.tag == b'A').then(|| {
            let mut reader = Reader::new(self.bytes);
            std::iter::from_fn(move || read_value(&mut reader).ok())
        })
    }

    /// RabbitMQ's name of the type, as its error texts show it.
    pub fn type_name(&self) -> &'static str {
        match self.tag {
            b't' => "bool",
            b'b' => "byte",
            b'B' => "unsignedbyte",
            b's' | b'U' => "short",
            b'u' => "unsignedshort",
            b'I' => "signedint",
            b'i' => "unsignedint",
            b'l' | b'L' => "long",
            b'f' => "float",
            b'd' => "double",
            b'D' => "decimal",
            b'S' => "longstr",
            b'A' => "array",
            b'T' => "timestamp",
            b'F' => "table",
            b'x' => "binary",
            _ => "void",
        }
    }
}

fn read_value<'a>(reader: &mut Reader<'a>) -> Result<Value<'a>, TableError> {
    let tag = reader.u8()?;
    let bytes = match tag {
        b'V' => reader.take(0)?,
        b't' | b'b' | b'B' => reader.take(1)?,
        b's' | b'U' | b'u' => reader.take(2)?,
        b'I' | b'i' | b'f' => reader.take(4)?,
        b'D' => reader.take(5)?,
        b'l' | b'L' | b'T' | b'd' => reader.take(8)?,
        b'S' | b'x' | b'A' | b'F' => reader.long_bytes()?,
        tag => return Err(TableError::UnknownTag { tag }),
    };
    Ok(Value { tag, bytes })
}

/// The entries of a table, in order, up to the first malformed one; nothing is allocated.
pub fn entries(entries: &[u8]) -> impl Iterator<Item = (&str, Value<'_>)> {
    let mut reader = Reader::new(entries);
    std::iter::from_fn(move || {
        let name = reader.short_string().ok()?;
        let value = read_value(&mut reader).ok()?;
        Some((name, value))
    })
}

/// The value of the first entry of this name.
pub fn get<'a>(table: &'a [u8], name: &str) -> Option<Value<'a>> {
    entries(table).find(|(other, _)| *other == name).map(|(_, value)| value)
}

/// The same entries without those of this name, byte for byte.
pub fn without(table: &[u8], name: &str) -> Vec<u8> {
    let mut kept = Vec::with_capacity(table.len());
    let mut reader = Reader::new(table);
    let mut start = table.len();
    while let Ok(other) = reader.short_string() {
        if read_value(&mut reader).is_err() {
            break;
        }
        let end = table.len() - reader.remaining();
        let begin = table.len() - start;
        if other != name {
            kept.extend_from_slice(&table[begin..end]);
        }
        start = reader.remaining();
    }
    kept
}

/// Reads a table, given without the length before it. Of entries with the same name the last one
/// wins.
///
/// # Errors
/// [`TableError`].
pub fn parse(entries: &[u8]) -> Result<FieldTable, TableError> {
    check(entries)?;
    let length = u32::try_from(entries.len()).map_err(|_| TableError::Truncated)?;
    let mut whole = Vec::with_capacity(4 + entries.len());
    whole.extend_from_slice(&length.to_be_bytes());
    whole.extend_from_slice(entries);
    match parse_field_table(&whole[..]) {
        Ok(([], table)) => Ok(table),
        _ => Err(TableError::Truncated),
    }
}

/// Writes a table with the length before it.
///
/// # Panics
/// If the table is 4 GiB or longer.
pub fn encode(table: &FieldTable) -> Vec<u8> {
    let context = WriteContext { write: Vec::with_capacity(128), position: 0 };
    gen_field_table(table)(context).expect("writing to memory cannot fail").write
}

#[cfg(test)]
mod tests;
