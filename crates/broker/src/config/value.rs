//! The kinds of value that a key may hold, and how they are read and written.
//!
//! ```text
//! file, environment, command line ──▶ Raw ──Kind::read──▶ Value ──▶ Config
//!                                                          └─Display─▶ `leveret config check`
//! ```
//!
//! One reading for all three sources, so a value means the same wherever it is written. `Display` of a value
//! is valid TOML and reads back as the same value.

use std::fmt;
use std::time::Duration;

use model::address::Address;

/// A value as somebody wrote it, before it is judged.
#[derive(Debug, Clone, PartialEq)]
pub enum Raw {
    /// A string in a file; everything in the environment and on the command line.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number with a fraction.
    Float(f64),
    /// `true` or `false`.
    Bool(bool),
    /// An array.
    List(Vec<Raw>),
    /// Something that no key takes; its TOML type.
    Other(&'static str),
}

/// What a key accepts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Any text; `empty` tells whether none is fine.
    Text {
        /// Whether the empty string is allowed.
        empty: bool,
    },
    /// `true` or `false`.
    Flag,
    /// One of a few words.
    OneOf(&'static [&'static str]),
    /// A whole number. With `unlimited` also that word.
    Count {
        /// Smallest number.
        min: u64,
        /// Largest number.
        max: u64,
        /// Whether `"unlimited"` is allowed.
        unlimited: bool,
    },
    /// Bytes: a plain number, or text with B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB. With
    /// `percent` also a share of the memory, `"60%"`.
    Size {
        /// Smallest number of bytes.
        min: u64,
        /// Largest number of bytes.
        max: u64,
        /// Whether a percentage is allowed.
        percent: bool,
    },
    /// A span of time: text with ms, s, m, h or d, or a plain number of `unit`.
    Span {
        /// What a plain number counts.
        unit: Unit,
        /// Shortest span.
        min: Duration,
        /// Longest span.
        max: Duration,
        /// Whether `"none"` (or 0) is allowed.
        none: bool,
    },
    /// `ADDRESS:PORT`; `"none"` or `""` switches off.
    Address,
    /// Texts; with `words`, only these.
    List {
        /// Allowed members; empty for any.
        words: &'static [&'static str],
    },
}

/// What a plain number counts in a [`Kind::Span`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Thousandths of a second.
    Milliseconds,
    /// Seconds.
    Seconds,
}

/// A value that its key accepts.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text or one of the words.
    Text(String),
    /// On or off.
    Flag(bool),
    /// A number; `None` is "unlimited".
    Count(Option<u64>),
    /// Bytes.
    Size(u64),
    /// A share in percent, above 0, up to 100.
    Percent(f64),
    /// A span; `None` is "none".
    Span(Option<Duration>),
    /// A place to listen; `None` is "none".
    Address(Option<Address>),
    /// Texts.
    List(Vec<String>),
}

impl Kind {
    /// Judges what was written. `None` means that [`Kind::allowed`] was not met.
    pub fn read(&self, raw: &Raw) -> Option<Value> {
        match self {
            Self::Text { empty } => match raw {
                Raw::Text(text) if *empty || !text.is_empty() => Some(Value::Text(text.clone())),
                _ => None,
            },
            Self::Flag => match raw {
                Raw::Bool(flag) => Some(Value::Flag(*flag)),
                Raw::Text(text) => text.trim().parse().ok().map(Value::Flag),
                _ => None,
            },
            Self::OneOf(words) => match raw {
                Raw::Text(text) if words.contains(&text.as_str()) => {
                    Some(Value::Text(text.clone()))
                }
                Raw::Bool(flag) if words.contains(&flag.to_string().as_str()) => {
                    Some(Value::Text(flag.to_string()))
                }
                _ => None,
            },
            Self::Count { min, max, unlimited } => match raw {
                Raw::Text(text) if *unlimited && text == "unlimited" => Some(Value::Count(None)),
                _ => whole(raw)
                    .filter(|count| (min..=max).contains(&count))
                    .map(|count| Value::Count(Some(count))),
            },
            Self::Size { min, max, percent } => {
                if let (true, Raw::Text(text)) = (*percent, raw)
                    && let Some(share) = text.trim().strip_suffix('%')
                {
                    let share = share.trim().parse::<f64>().ok()?;
                    return (share > 0.0 && share <= 100.0).then_some(Value::Percent(share));
                }
                let bytes = match raw {
                    Raw::Text(text) => read_size(text)?,
                    _ => whole(raw)?,
                };
                (*min..=*max).contains(&bytes).then_some(Value::Size(bytes))
            }
            Self::Span { unit, min, max, none } => {
                let span = match raw {
                    Raw::Text(text) if text.trim() == "none" => Duration::ZERO,
                    Raw::Text(text) => read_span(text, *unit)?,
                    _ => unit.span(whole(raw)?)?,
                };
                if *none && span.is_zero() {
                    Some(Value::Span(None))
                } else {
                    (*min..=*max).contains(&span).then_some(Value::Span(Some(span)))
                }
            }
            Self::Address => match raw {
                Raw::Text(text) if text.is_empty() || text == "none" => Some(Value::Address(None)),
                Raw::Text(text) => {
                    Address::parse(text).map(|address| Value::Address(Some(address)))
                }
                _ => None,
            },
            Self::List { words } => {
                let items = match raw {
                    Raw::Text(text) if text.trim().is_empty() => Vec::new(),
                    Raw::Text(text) => text.split(',').map(|item| item.trim().to_owned()).collect(),
                    Raw::List(items) => items
                        .iter()
                        .map(|item| match item {
                            Raw::Text(text) => Some(text.clone()),
                            _ => None,
                        })
                        .collect::<Option<Vec<_>>>()?,
                    _ => return None,
                };
                let fits = |item: &String| words.is_empty() || words.contains(&item.as_str());
                (items.iter().all(|item| !item.is_empty() && fits(item)))
                    .then_some(Value::List(items))
            }
        }
    }

    /// Says what is allowed, for complaints and for the documented file.
    pub fn allowed(&self) -> String {
        match self {
            Self::Text { empty: true } => "text".to_owned(),
            Self::Text { empty: false } => "text, not empty".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::OneOf(words) => format!("one of {}", quoted(words)),
            Self::Count { min, max, unlimited } => {
                let also = if *unlimited { ", or \"unlimited\"" } else { "" };
                format!("a whole number from {min} to {max}{also}")
            }
            Self::Size { min, max, percent } => {
                let also = if *percent { ", or a share of the memory such as \"60%\"" } else { "" };
                format!("bytes from {} to {}{also}", Size(*min), Size(*max))
            }
            Self::Span { unit, min, max, none } => {
                let also = if *none { ", or \"none\"" } else { "" };
                let unit = match unit {
                    Unit::Milliseconds => "milliseconds",
                    Unit::Seconds => "seconds",
                };
                format!(
                    "a time from {} to {} (a plain number counts {unit}){also}",
                    Span(*min),
                    Span(*max)
                )
            }
            Self::Address => "\"ADDRESS:PORT\", or \"none\"".to_owned(),
            Self::List { words: [] } => "a list of texts".to_owned(),
            Self::List { words } => format!("a list of {}", quoted(words)),
        }
    }
}

impl Unit {
    fn span(self, count: u64) -> Option<Duration> {
        match self {
            Self::Milliseconds => Some(Duration::from_millis(count)),
            Self::Seconds => count.checked_mul(1000).map(Duration::from_millis),
        }
    }
}

/// A whole number that is not negative, also as text.
fn whole(raw: &Raw) -> Option<u64> {
    match raw {
        Raw::Integer(number) => u64::try_from(*number).ok(),
        Raw::Text(text) => text.trim().replace('_', "").parse().ok(),
        _ => None,
    }
}

/// Splits `"10 MiB"` into number and unit.
fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    Some((number.parse().ok()?, unit.trim()))
}

fn read_size(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "mb" => 1000_u64.pow(2),
        "gb" => 1000_u64.pow(3),
        "tb" => 1000_u64.pow(4),
        "kib" => 1024,
        "mib" => 1024_u64.pow(2),
        "gib" => 1024_u64.pow(3),
        "tib" => 1024_u64.pow(4),
        _ => return None,
    };
    number.checked_mul(factor)
}

fn read_span(text: &str, plain: Unit) -> Option<Duration> {
    let (number, unit) = number_and_unit(text)?;
    let factor = match unit {
        "" => return plain.span(number),
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return None,
    };
    number.checked_mul(factor).map(Duration::from_millis)
}

/// Bytes in their largest whole unit.
#[derive(Debug, Clone, Copy)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A number that somebody wrote in powers of ten is shown so, too.
        let units: [(u64, &str); 8] = [
            (1 << 40, "TiB"),
            (1 << 30, "GiB"),
            (1 << 20, "MiB"),
            (1_000_000_000_000, "TB"),
            (1_000_000_000, "GB"),
            (1_000_000, "MB"),
            (1 << 10, "KiB"),
            (1_000, "kB"),
        ];
        for (factor, unit) in units {
            if self.0 != 0 && self.0.is_multiple_of(factor) {
                return write!(f, "{}{unit}", self.0 / factor);
            }
        }
        write!(f, "{}B", self.0)
    }
}

/// A span in its largest whole unit.
#[derive(Debug, Clone, Copy)]
pub struct Span(pub Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let units: [(u128, &str); 4] =
            [(24 * 60 * 60 * 1000, "d"), (60 * 60 * 1000, "h"), (60 * 1000, "m"), (1000, "s")];
        for (factor, unit) in units {
            // Ninety seconds read better than one and a half minutes, and sixty better than one.
            let large_enough = factor == 1000 || millis >= 2 * factor;
            if millis != 0 && large_enough && millis.is_multiple_of(factor) {
                return write!(f, "{}{unit}", millis / factor);
            }
        }
        write!(f, "{millis}ms")
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{}", toml::Value::String(text.clone())),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Count(Some(count)) => write!(f, "{count}"),
            Self::Count(None) => f.write_str("\"unlimited\""),
            Self::Size(bytes) => write!(f, "\"{}\"", Size(*bytes)),
            Self::Percent(share) => write!(f, "\"{share}%\""),
            Self::Span(Some(span)) => write!(f, "\"{}\"", Span(*span)),
            Self::Span(None) | Self::Address(None) => f.write_str("\"none\""),
            Self::Address(Some(address)) => write!(f, "\"{address}\""),
            Self::List(items) => {
                let items = items.iter().cloned().map(toml::Value::String).collect();
                write!(f, "{}", toml::Value::Array(items))
            }
        }
    }
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}
