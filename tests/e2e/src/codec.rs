//! Bytes of AMQP 0.9.1: a writer of method arguments, a reader of them, and field tables.

use std::fmt;

/// One value of a field table, in RabbitMQ's dialect.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `t`
    Bool(bool),
    /// `b`
    I8(i8),
    /// `B`
    U8(u8),
    /// `s`
    I16(i16),
    /// `u`
    U16(u16),
    /// `I`
    I32(i32),
    /// `i`
    U32(u32),
    /// `l`
    I64(i64),
    /// `f`
    F32(f32),
    /// `d`
    F64(f64),
    /// `D`: scale and value.
    Decimal(u8, u32),
    /// `S`
    Str(String),
    /// `A`
    Array(Vec<Value>),
    /// `T`, seconds.
    Time(u64),
    /// `F`
    Table(Table),
    /// `x`
    Bytes(Vec<u8>),
    /// `V`
    Void,
}

impl Value {
    /// The number in any integer type.
    pub fn as_i64(&self) -> Option<i64> {
        Some(match *self {
            Self::I8(value) => value.into(),
            Self::U8(value) => value.into(),
            Self::I16(value) => value.into(),
            Self::U16(value) => value.into(),
            Self::I32(value) => value.into(),
            Self::U32(value) => value.into(),
            Self::I64(value) => value,
            _ => return None,
        })
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Str(text) = self { Some(text) } else { None }
    }

    /// The elements of an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        if let Self::Array(values) = self { Some(values) } else { None }
    }

    /// The table.
    pub fn as_table(&self) -> Option<&Table> {
        if let Self::Table(table) = self { Some(table) } else { None }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}
impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Self::I32(value)
    }
}
impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::I64(value)
    }
}
impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Str(value.to_owned())
    }
}
impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Str(value)
    }
}
impl From<Table> for Value {
    fn from(value: Table) -> Self {
        Self::Table(value)
    }
}
impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Self::Array(values.into_iter().map(Into::into).collect())
    }
}

/// A field table, in the order in which it was written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table(pub Vec<(String, Value)>);

impl Table {
    /// The first value of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Adds a pair.
    pub fn insert(&mut self, name: &str, value: impl Into<Value>) {
        self.0.push((name.to_owned(), value.into()));
    }
}

/// Builds a `Table`: `table! { "x-max-length" => 10 }`.
#[macro_export]
macro_rules! table {
    ($($name:expr => $value:expr),* $(,)?) => {
        $crate::codec::Table(vec![$(($name.to_string(), $crate::codec::Value::from($value))),*])
    };
}

/// Writes the arguments of a method, a table or a frame.
#[derive(Debug, Default, Clone)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// The arguments of method `class.method`, the two numbers first.
    pub fn method(class: u16, method: u16) -> Self {
        Self::default().u16(class).u16(method)
    }

    /// One octet.
    #[must_use]
    pub fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    /// Two octets.
    #[must_use]
    pub fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Four octets.
    #[must_use]
    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Eight octets.
    #[must_use]
    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Bytes as they are.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// A short string, at most 255 bytes; need not be UTF-8.
    #[must_use]
    pub fn short(mut self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        self.0.push(u8::try_from(bytes.len()).expect("a short string has at most 255 bytes"));
        self.0.extend(bytes);
        self
    }

    /// A long string.
    #[must_use]
    pub fn long(self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        self.u32(u32::try_from(bytes.len()).expect("tests write short texts")).raw(bytes)
    }

    /// A field table with its length.
    #[must_use]
    pub fn table(self, table: &Table) -> Self {
        let mut body = Self::default();
        for (name, value) in &table.0 {
            body = body.short(name).value(value);
        }
        self.long(body.0)
    }

    /// A table value with its type octet.
    #[must_use]
    pub fn value(self, value: &Value) -> Self {
        match value {
            Value::Bool(value) => self.u8(b't').u8(u8::from(*value)),
            Value::I8(value) => self.u8(b'b').raw(&value.to_be_bytes()),
            Value::U8(value) => self.u8(b'B').u8(*value),
            Value::I16(value) => self.u8(b's').raw(&value.to_be_bytes()),
            Value::U16(value) => self.u8(b'u').u16(*value),
            Value::I32(value) => self.u8(b'I').raw(&value.to_be_bytes()),
            Value::U32(value) => self.u8(b'i').u32(*value),
            Value::I64(value) => self.u8(b'l').raw(&value.to_be_bytes()),
            Value::F32(value) => self.u8(b'f').raw(&value.to_be_bytes()),
            Value::F64(value) => self.u8(b'd').raw(&value.to_be_bytes()),
            Value::Decimal(scale, value) => self.u8(b'D').u8(*scale).u32(*value),
            Value::Str(text) => self.u8(b'S').long(text),
            Value::Array(values) => {
                let body = values.iter().fold(Self::default(), Self::value);
                self.u8(b'A').long(body.0)
            }
            Value::Time(seconds) => self.u8(b'T').u64(*seconds),
            Value::Table(table) => self.u8(b'F').table(table),
            Value::Bytes(bytes) => self.u8(b'x').long(bytes),
            Value::Void => self.u8(b'V'),
        }
    }

    /// This, as the payload of a frame.
    pub fn frame(&self, kind: u8, channel: u16) -> Vec<u8> {
        frame(kind, channel, &self.0)
    }
}

/// A whole frame.
pub fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).expect("tests write small frames");
    Writer::default().u8(kind).u16(channel).u32(size).raw(payload).u8(0xCE).0
}

/// Bytes that do not follow the protocol: the broker's fault, or the test's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "malformed bytes: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Reads what [`Writer`] writes.
#[derive(Debug, Clone)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next `count` bytes.
    pub fn raw(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(count).ok_or(Malformed("cut short"))?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(self.raw(N)?.try_into().expect("raw gives the count asked for"))
    }

    /// One octet.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    /// Two octets.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// Four octets.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Eight octets.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// A short string.
    pub fn short(&mut self) -> Result<String, Malformed> {
        let count = self.u8()?;
        Ok(String::from_utf8_lossy(self.raw(count.into())?).into_owned())
    }

    /// A long string.
    pub fn long(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.u32()?;
        self.raw(count as usize)
    }

    /// A field table.
    pub fn table(&mut self) -> Result<Table, Malformed> {
        let mut body = Reader(self.long()?);
        let mut table = Table::default();
        while !body.0.is_empty() {
            table.0.push((body.short()?, body.value()?));
        }
        Ok(table)
    }

    /// A table value.
    pub fn value(&mut self) -> Result<Value, Malformed> {
        Ok(match self.u8()? {
            b't' => Value::Bool(self.u8()? != 0),
            b'b' => Value::I8(i8::from_be_bytes(self.array()?)),
            b'B' => Value::U8(self.u8()?),
            b's' => Value::I16(i16::from_be_bytes(self.array()?)),
            b'u' => Value::U16(self.u16()?),
            b'I' => Value::I32(i32::from_be_bytes(self.array()?)),
            b'i' => Value::U32(self.u32()?),
            b'l' => Value::I64(i64::from_be_bytes(self.array()?)),
            b'f' => Value::F32(f32::from_be_bytes(self.array()?)),
            b'd' => Value::F64(f64::from_be_bytes(self.array()?)),
            b'D' => Value::Decimal(self.u8()?, self.u32()?),
            b'S' => Value::Str(String::from_utf8_lossy(self.long()?).into_owned()),
            b'A' => {
                let mut body = Reader(self.long()?);
                let mut values = Vec::new();
                while !body.0.is_empty() {
                    values.push(body.value()?);
                }
                Value::Array(values)
            }
            b'T' => Value::Time(self.u64()?),
            b'F' => Value::Table(self.table()?),
            b'x' => Value::Bytes(self.long()?.to_vec()),
            b'V' => Value::Void,
            _ => return Err(Malformed("unknown type of a table value")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_survives_the_round_trip() {
        let inner = table! { "k" => "v", "n" => 7 };
        let values = vec![
            Value::Bool(true),
            Value::I8(-1),
            Value::U8(200),
            Value::I16(-300),
            Value::U16(60_000),
            Value::I32(-70_000),
            Value::U32(4_000_000_000),
            Value::I64(i64::MIN),
            Value::F32(1.5),
            Value::F64(-2.25),
            Value::Decimal(2, 314),
            Value::Str("text".into()),
            Value::Time(1_700_000_000),
            Value::Table(inner),
            Value::Bytes(vec![0, 255]),
            Value::Void,
        ];
        let table = table! { "all" => Value::Array(values) };
        let bytes = Writer::default().table(&table).0;
        assert_eq!(Reader(&bytes).table(), Ok(table));
    }
}
