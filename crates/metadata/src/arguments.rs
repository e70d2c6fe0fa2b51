//! Arguments: field tables compared, read and stored by value.
//!
//! Clients encode the same number in different widths, so all integers of one value are equal.

use std::borrow::Cow;
use std::fmt::Write as _;

use amq_protocol_types::{AMQPValue, FieldTable};

/// Whether two values are the same, integers by value whatever their width.
pub fn value_equal(one: &AMQPValue, other: &AMQPValue) -> bool {
    if let (Some(one), Some(other)) = (integer_of(one), integer_of(other)) {
        return one == other;
    }
    if let (Some(one), Some(other)) = (bytes_of(one), bytes_of(other)) {
        return one == other;
    }
    if let (Some(one), Some(other)) = (float_of(one), float_of(other)) {
        return one.total_cmp(&other).is_eq();
    }
    match (one, other) {
        (AMQPValue::FieldArray(one), AMQPValue::FieldArray(other)) => {
            let (one, other) = (one.as_slice(), other.as_slice());
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| value_equal(one, other))
        }
        (AMQPValue::FieldTable(one), AMQPValue::FieldTable(other)) => equal(one, other),
        _ => one == other,
    }
}

/// Whether two tables have the same keys with the same values.
pub fn equal(one: &FieldTable, other: &FieldTable) -> bool {
    let (one, other) = (one.inner(), other.inner());
    one.len() == other.len()
        && one.iter().zip(other).all(|((key, value), (other_key, other_value))| {
            key == other_key && value_equal(value, other_value)
        })
}

/// A text that two tables share exactly if they are [`equal`]; empty for the empty table.
pub fn canonical(table: &FieldTable) -> String {
    let mut out = String::new();
    write_table(&mut out, table);
    out
}

/// A text that two values share exactly if they are [`value_equal`].
pub fn canonical_value(value: &AMQPValue) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

fn write_table(out: &mut String, table: &FieldTable) {
    for (key, value) in table {
        let key = key.as_str();
        write!(out, "{}:{key}=", key.len()).expect("writing to a string does not fail");
        write_value(out, value);
    }
}

/// Every value is a letter and either of fixed shape or preceded by its length, so that no two
/// sequences of values have one text.
fn write_value(out: &mut String, value: &AMQPValue) {
    let result = if let Some(integer) = integer_of(value) {
        write!(out, "i{integer};")
    } else if let Some(float) = float_of(value) {
        write!(out, "f{:x};", float.to_bits())
    } else if let Some(bytes) = bytes_of(value) {
        if let Ok(text) = std::str::from_utf8(bytes) {
            write!(out, "s{}:{text}", text.len())
        } else {
            write!(out, "x{}:", bytes.len()).expect("to a string");
            bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
        }
    } else {
        match value {
            AMQPValue::Boolean(value) => write!(out, "t{};", u8::from(*value)),
            AMQPValue::Timestamp(seconds) => write!(out, "T{seconds};"),
            AMQPValue::DecimalValue(decimal) => {
                write!(out, "D{}e{};", decimal.value, decimal.scale)
            }
            AMQPValue::FieldArray(array) => {
                write!(out, "A{}:", array.as_slice().len()).expect("to a string");
                array.as_slice().iter().for_each(|value| write_value(out, value));
                Ok(())
            }
            AMQPValue::FieldTable(table) => {
                write!(out, "F{}:", table.inner().len()).expect("to a string");
                write_table(out, table);
                Ok(())
            }
            _ => write!(out, "V"),
        }
    };
    result.expect("writing to a string does not fail");
}

/// The integer of a value of any integer type.
pub fn integer_of(value: &AMQPValue) -> Option<i64> {
    match value {
        AMQPValue::ShortShortInt(value) => Some(i64::from(*value)),
        AMQPValue::ShortShortUInt(value) => Some(i64::from(*value)),
        AMQPValue::ShortInt(value) => Some(i64::from(*value)),
        AMQPValue::ShortUInt(value) => Some(i64::from(*value)),
        AMQPValue::LongInt(value) => Some(i64::from(*value)),
        AMQPValue::LongUInt(value) => Some(i64::from(*value)),
        AMQPValue::LongLongInt(value) => Some(*value),
        _ => None,
    }
}

fn float_of(value: &AMQPValue) -> Option<f64> {
    match value {
        AMQPValue::Float(value) => Some(f64::from(*value)),
        AMQPValue::Double(value) => Some(*value),
        _ => None,
    }
}

fn bytes_of(value: &AMQPValue) -> Option<&[u8]> {
    match value {
        AMQPValue::ShortString(text) => Some(text.as_str().as_bytes()),
        AMQPValue::LongString(text) => Some(text.as_bytes()),
        AMQPValue::ByteArray(bytes) => Some(bytes.as_slice()),
        _ => None,
    }
}

/// The integer under a key.
pub fn integer(table: &FieldTable, key: &str) -> Option<i64> {
    table.inner().get(key).and_then(integer_of)
}

/// The string under a key; bytes that are no UTF-8 are replaced.
pub fn string<'t>(table: &'t FieldTable, key: &str) -> Option<Cow<'t, str>> {
    match table.inner().get(key)? {
        AMQPValue::LongString(text) => Some(String::from_utf8_lossy(text.as_bytes())),
        AMQPValue::ShortString(text) => Some(Cow::Borrowed(text.as_str())),
        _ => None,
    }
}

/// The boolean under a key.
pub fn boolean(table: &FieldTable, key: &str) -> Option<bool> {
    match table.inner().get(key)? {
        AMQPValue::Boolean(value) => Some(*value),
        _ => None,
    }
}

/// The name of a value's type in RabbitMQ's texts.
pub fn type_name(value: &AMQPValue) -> &'static str {
    match value {
        AMQPValue::Boolean(_) => "bool",
        AMQPValue::ShortShortInt(_) => "byte",
        AMQPValue::ShortShortUInt(_) => "unsignedbyte",
        AMQPValue::ShortInt(_) => "short",
        AMQPValue::ShortUInt(_) => "unsignedshort",
        AMQPValue::LongInt(_) => "signedint",
        AMQPValue::LongUInt(_) => "unsignedint",
        AMQPValue::LongLongInt(_) => "long",
        AMQPValue::Float(_) => "float",
        AMQPValue::Double(_) => "double",
        AMQPValue::DecimalValue(_) => "decimal",
        AMQPValue::ShortString(_) | AMQPValue::LongString(_) => "longstr",
        AMQPValue::FieldArray(_) => "array",
        AMQPValue::Timestamp(_) => "timestamp",
        AMQPValue::FieldTable(_) => "table",
        AMQPValue::ByteArray(_) => "binary",
        AMQPValue::Void => "void",
    }
}

/// A value as RabbitMQ's texts show it.
pub fn shown(value: &AMQPValue) -> String {
    if let Some(integer) = integer_of(value) {
        return integer.to_string();
    }
    if let Some(bytes) = bytes_of(value) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    match value {
        AMQPValue::Boolean(value) => value.to_string(),
        AMQPValue::Float(value) => format!("{value:?}"),
        AMQPValue::Double(value) => format!("{value:?}"),
        AMQPValue::Timestamp(seconds) => seconds.to_string(),
        AMQPValue::DecimalValue(decimal) => format!("{{{},{}}}", decimal.scale, decimal.value),
        AMQPValue::FieldArray(array) => {
            let values: Vec<_> = array.as_slice().iter().map(shown_with_type).collect();
            format!("[{}]", values.join(","))
        }
        AMQPValue::FieldTable(table) => {
            let fields: Vec<_> = table
                .inner()
                .iter()
                .map(|(key, value)| {
                    format!("{{<<\"{key}\">>,{},{}}}", type_name(value), shown_term(value))
                })
                .collect();
            format!("[{}]", fields.join(","))
        }
        _ => "undefined".into(),
    }
}

fn shown_with_type(value: &AMQPValue) -> String {
    format!("{{{},{}}}", type_name(value), shown_term(value))
}

fn shown_term(value: &AMQPValue) -> String {
    if bytes_of(value).is_some() { format!("<<\"{}\">>", shown(value)) } else { shown(value) }
}

/// Field tables in records: AMQP's own encoding, base64; nothing for the empty table.
pub mod text {
    use amq_protocol_types::generation::gen_field_table;
    use amq_protocol_types::parsing::parse_field_table;
    use amq_protocol_types::{AMQPValue, FieldArray, FieldTable, LongString};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes a table.
    ///
    /// # Errors
    /// What the serializer reports.
    pub fn serialize<S: Serializer>(table: &FieldTable, to: S) -> Result<S::Ok, S::Error> {
        if table.inner().is_empty() {
            return to.serialize_str("");
        }
        let writable = with_long_strings(table);
        let written = gen_field_table::<Vec<u8>>(&writable)(Vec::new().into())
            .map_err(|error| S::Error::custom(format!("field table: {error:?}")))?;
        to.serialize_str(&STANDARD.encode(written.write))
    }

    /// Reads a table.
    ///
    /// # Errors
    /// If the text is not what [`serialize`] writes.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<FieldTable, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(from)?;
        if text.is_empty() {
            return Ok(FieldTable::default());
        }
        let bytes = STANDARD.decode(text.as_bytes()).map_err(D::Error::custom)?;
        match parse_field_table(bytes.as_slice()) {
            Ok(([], table)) => Ok(table),
            Ok(_) => Err(D::Error::custom("bytes behind the field table")),
            Err(_) => Err(D::Error::custom("not a field table")),
        }
    }

    /// RabbitMQ's dialect has no short strings as values; they become long ones.
    fn with_long_strings(table: &FieldTable) -> FieldTable {
        let mut out = FieldTable::default();
        for (key, value) in table {
            out.insert(key.clone(), with_long_string(value));
        }
        out
    }

    fn with_long_string(value: &AMQPValue) -> AMQPValue {
        match value {
            AMQPValue::ShortString(text) => AMQPValue::LongString(LongString::from(text.as_str())),
            AMQPValue::FieldTable(table) => AMQPValue::FieldTable(with_long_strings(table)),
            AMQPValue::FieldArray(array) => AMQPValue::FieldArray(FieldArray::from(
                array.as_slice().iter().map(with_long_string).collect::<Vec<_>>(),
            )),
            _ => value.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
