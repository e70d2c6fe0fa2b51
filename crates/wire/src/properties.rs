//! The properties of a message, read where they lie.
//!
//! ```text
//!  [flags: u16][field]*        a field for each set flag, from the highest bit down
//!   15 content type      s     11 priority          u8    7 message id    s     3 app id      s
//!   14 content encoding  s     10 correlation id    s     6 timestamp     u64   2 cluster id  s
//!   13 headers       table      9 reply to          s     5 type          s     1, 0  unused
//!   12 delivery mode    u8      8 expiration        s     4 user id       s
//! ```
//!
//! Short strings may hold any bytes: clients put binary ids there, and what a publisher wrote is
//! what a consumer gets.

use crate::reader::{Malformed, Reader};
use crate::table::{self, TableError, Value};

/// All properties, borrowed. To change some: scan, assign, [`Properties::encode`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Properties<'a> {
    /// MIME type.
    pub content_type: Option<&'a [u8]>,
    /// MIME encoding.
    pub content_encoding: Option<&'a [u8]>,
    /// The entries of the header table, without the length before them; see [`table`].
    pub headers: Option<&'a [u8]>,
    /// 2 is persistent, 1 (or none) transient.
    pub delivery_mode: Option<u8>,
    /// 0 to 255.
    pub priority: Option<u8>,
    /// The publisher's.
    pub correlation_id: Option<&'a [u8]>,
    /// The publisher's, but for direct reply-to.
    pub reply_to: Option<&'a [u8]>,
    /// Time to live in milliseconds, as decimal text.
    pub expiration: Option<&'a [u8]>,
    /// The publisher's.
    pub message_id: Option<&'a [u8]>,
    /// Seconds since 1970.
    pub timestamp: Option<u64>,
    /// The publisher's.
    pub kind: Option<&'a [u8]>,
    /// Must be the publisher's login, if given.
    pub user_id: Option<&'a [u8]>,
    /// The publisher's.
    pub app_id: Option<&'a [u8]>,
    /// Deprecated, passed on.
    pub cluster_id: Option<&'a [u8]>,
}

/// Why bytes are not properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertiesError {
    /// They end in the middle of a field, or announce more flags than there are.
    Truncated,
    /// Bytes are left over.
    Trailing,
    /// The header table is wrong.
    Headers(TableError),
}

impl std::fmt::Display for PropertiesError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Truncated => write!(out, "content properties malformed"),
            Self::Trailing => write!(out, "content properties followed by more bytes"),
            Self::Headers(error) => write!(out, "headers: {error}"),
        }
    }
}

impl std::error::Error for PropertiesError {}

impl From<Malformed> for PropertiesError {
    fn from(_: Malformed) -> Self {
        Self::Truncated
    }
}

/// Visits every field, in the order of the flags.
macro_rules! fields {
    ($visit:ident) => {
        $visit! { 15 content_type short }
        $visit! { 14 content_encoding short }
        $visit! { 13 headers table }
        $visit! { 12 delivery_mode u8 }
        $visit! { 11 priority u8 }
        $visit! { 10 correlation_id short }
        $visit! { 9 reply_to short }
        $visit! { 8 expiration short }
        $visit! { 7 message_id short }
        $visit! { 6 timestamp u64 }
        $visit! { 5 kind short }
        $visit! { 4 user_id short }
        $visit! { 3 app_id short }
        $visit! { 2 cluster_id short }
    };
}

impl<'a> Properties<'a> {
    /// Reads flags and fields and checks that the whole is well formed, headers included.
    ///
    /// # Errors
    /// [`PropertiesError`].
    #[inline]
    pub fn scan(bytes: &'a [u8]) -> Result<Self, PropertiesError> {
        // most messages of fast publishers have no properties, or just a delivery mode
        match *bytes {
            [0, 0] => return Ok(Self::default()),
            [0x10, 0, mode] => return Ok(Self { delivery_mode: Some(mode), ..Self::default() }),
            _ => {}
        }
        Self::scan_fields(bytes)
    }

    fn scan_fields(bytes: &'a [u8]) -> Result<Self, PropertiesError> {
        let mut reader = Reader::new(bytes);
        let flags = reader.u16()?;
        if flags & 1 != 0 {
            // More flags would follow, and this class has none. As it stands, consumers would look for
            // them in vain and break off.
            return Err(PropertiesError::Truncated);
        }
        let mut properties = Self::default();
        macro_rules! read {
            (short) => {
                reader.short_bytes()?
            };
            (table) => {
                reader.long_bytes()?
            };
            (u8) => {
                reader.u8()?
            };
            (u64) => {
                reader.u64()?
            };
            ($bit:literal $field:ident $type:ident) => {
                if flags & 1 << $bit != 0 {
                    properties.$field = Some(read!($type));
                }
            };
        }
        fields!(read);
        if !reader.is_empty() {
            return Err(PropertiesError::Trailing);
        }
        if let Some(headers) = properties.headers {
            table::check(headers).map_err(PropertiesError::Headers)?;
        }
        Ok(properties)
    }

    /// Writes flags and fields.
    ///
    /// # Panics
    /// If a short string is longer than 255 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut flags = 0_u16;
        let mut out = vec![0, 0];
        macro_rules! put {
            ($value:ident short) => {
                out.push(u8::try_from($value.len()).expect("a short string has at most 255 bytes"));
                out.extend_from_slice($value);
            };
            ($value:ident table) => {
                let length = u32::try_from($value.len()).expect("headers are shorter than 4 GiB");
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice($value);
            };
            ($value:ident u8) => { out.push($value); };
            ($value:ident u64) => { out.extend_from_slice(&$value.to_be_bytes()); };
            ($bit:literal $field:ident $type:ident) => {
                if let Some(value) = self.$field {
                    flags |= 1 << $bit;
                    put!(value $type);
                }
            };
        }
        fields!(put);
        out[..2].copy_from_slice(&flags.to_be_bytes());
        out
    }

    /// Whether the publisher asked for persistence.
    pub fn is_persistent(&self) -> bool {
        self.delivery_mode == Some(2)
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<Value<'a>> {
        table::get(self.headers?, name)
    }

    /// The routing keys that the header `CC` or `BCC` adds. Items that are no strings do not count.
    ///
    /// # Errors
    /// If the header is there but no array: RabbitMQ's name of its type.
    pub fn recipients(&self, header: &str) -> Result<Vec<&'a [u8]>, &'static str> {
        let Some(value) = self.header(header) else { return Ok(Vec::new()) };
        let items = value.items().ok_or(value.type_name())?;
        Ok(items.filter_map(|item| item.string()).collect())
    }
}

#[cfg(test)]
mod tests;
