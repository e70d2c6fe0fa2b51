//! Message properties, and what the broker hands out.

use crate::codec::{Malformed, Reader, Table, Value, Writer};

/// The fourteen properties of a message.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Properties {
    /// MIME type.
    pub content_type: Option<String>,
    /// MIME encoding.
    pub content_encoding: Option<String>,
    /// Application headers.
    pub headers: Option<Table>,
    /// 1 transient, 2 persistent.
    pub delivery_mode: Option<u8>,
    /// 0 to 255.
    pub priority: Option<u8>,
    /// Of the request.
    pub correlation_id: Option<String>,
    /// Where to answer.
    pub reply_to: Option<String>,
    /// Milliseconds, as decimal text.
    pub expiration: Option<String>,
    /// Of the application.
    pub message_id: Option<String>,
    /// Seconds.
    pub timestamp: Option<u64>,
    /// Of the application.
    pub kind: Option<String>,
    /// Must be the login.
    pub user_id: Option<String>,
    /// Of the application.
    pub app_id: Option<String>,
    /// Of no use, but echoed.
    pub cluster_id: Option<String>,
}

impl Properties {
    /// `delivery_mode` 2 and nothing else.
    pub fn persistent() -> Self {
        Self { delivery_mode: Some(2), ..Self::default() }
    }

    /// Headers and nothing else.
    pub fn with_headers(headers: Table) -> Self {
        Self { headers: Some(headers), ..Self::default() }
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&Value> {
        self.headers.as_ref().and_then(|headers| headers.get(name))
    }

    /// The newest entry of `x-death`, and all of them.
    pub fn deaths(&self) -> Vec<&Table> {
        self.header("x-death")
            .and_then(Value::as_array)
            .map(|entries| entries.iter().filter_map(Value::as_table).collect())
            .unwrap_or_default()
    }

    /// Flags and values, as they stand in a content header.
    pub fn encode(&self) -> Vec<u8> {
        let mut flags = 0_u16;
        let mut values = Writer::default();
        let text = |bit: u16, value: &Option<String>, flags: &mut u16, out: Writer| match value {
            Some(value) => {
                *flags |= 1 << bit;
                out.short(value)
            }
            None => out,
        };
        values = text(15, &self.content_type, &mut flags, values);
        values = text(14, &self.content_encoding, &mut flags, values);
        if let Some(headers) = &self.headers {
            flags |= 1 << 13;
            values = values.table(headers);
        }
        if let Some(mode) = self.delivery_mode {
            flags |= 1 << 12;
            values = values.u8(mode);
        }
        if let Some(priority) = self.priority {
            flags |= 1 << 11;
            values = values.u8(priority);
        }
        values = text(10, &self.correlation_id, &mut flags, values);
        values = text(9, &self.reply_to, &mut flags, values);
        values = text(8, &self.expiration, &mut flags, values);
        values = text(7, &self.message_id, &mut flags, values);
        if let Some(timestamp) = self.timestamp {
            flags |= 1 << 6;
            values = values.u64(timestamp);
        }
        values = text(5, &self.kind, &mut flags, values);
        values = text(4, &self.user_id, &mut flags, values);
        values = text(3, &self.app_id, &mut flags, values);
        values = text(2, &self.cluster_id, &mut flags, values);
        Writer::default().u16(flags).raw(&values.0).0
    }

    /// Reads what [`encode`](Self::encode) writes.
    pub fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let flags = input.u16()?;
        let has = |bit: u16| flags & (1 << bit) != 0;
        let text = |bit: u16, input: &mut Reader<'_>| {
            if has(bit) { input.short().map(Some) } else { Ok(None) }
        };
        Ok(Self {
            content_type: text(15, input)?,
            content_encoding: text(14, input)?,
            headers: if has(13) { Some(input.table()?) } else { None },
            delivery_mode: if has(12) { Some(input.u8()?) } else { None },
            priority: if has(11) { Some(input.u8()?) } else { None },
            correlation_id: text(10, input)?,
            reply_to: text(9, input)?,
            expiration: text(8, input)?,
            message_id: text(7, input)?,
            timestamp: if has(6) { Some(input.u64()?) } else { None },
            kind: text(5, input)?,
            user_id: text(4, input)?,
            app_id: text(3, input)?,
            cluster_id: text(2, input)?,
        })
    }
}

/// A message that the broker handed out: `basic.deliver` or `basic.get-ok`.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// Names it on its channel.
    pub tag: u64,
    /// Whose it is; empty for `basic.get`.
    pub consumer: String,
    /// Was handed out before.
    pub redelivered: bool,
    /// Where it was published.
    pub exchange: String,
    /// With which key.
    pub routing_key: String,
    /// What remains ready (`basic.get` only).
    pub remaining: u32,
    /// Its properties.
    pub properties: Properties,
    /// Its body.
    pub body: Vec<u8>,
}

impl Delivery {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A message that came back: `basic.return`.
#[derive(Debug, Clone, PartialEq)]
pub struct Returned {
    /// 312 or 313.
    pub code: u16,
    /// Such as `NO_ROUTE`.
    pub text: String,
    /// Where it was published.
    pub exchange: String,
    /// With which key.
    pub routing_key: String,
    /// Its properties.
    pub properties: Properties,
    /// Its body.
    pub body: Vec<u8>,
}
