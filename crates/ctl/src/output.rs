//! Printing lists.

use std::io::{self, Write};

use serde_json::{Map, Value};

use crate::cli::Formatter;

/// Rows to print.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// As many values in each as there are columns.
    pub rows: Vec<Vec<Value>>,
}

impl Rows {
    /// Prints them.
    ///
    /// # Errors
    /// If the output is gone.
    pub fn print(
        &self,
        formatter: Formatter,
        headers: bool,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match formatter {
            Formatter::Table => self.separated(headers, "\t", cell, out),
            Formatter::Csv => self.separated(headers, ",", |value| quoted(&cell(value)), out),
            Formatter::Json => {
                let object = |row: &Vec<Value>| {
                    let pairs = self.columns.iter().cloned().zip(row.iter().cloned());
                    Value::Object(pairs.collect::<Map<_, _>>())
                };
                let rows: Value = self.rows.iter().map(object).collect();
                writeln!(out, "{rows}")
            }
        }
    }

    fn separated(
        &self,
        headers: bool,
        separator: &str,
        text: impl Fn(&Value) -> String,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if headers && !self.rows.is_empty() {
            writeln!(out, "{}", self.columns.join(separator))?;
        }
        for row in &self.rows {
            let texts: Vec<String> = row.iter().map(&text).collect();
            writeln!(out, "{}", texts.join(separator))?;
        }
        Ok(())
    }
}

/// A value on one line: texts as they are but for control characters, lists of texts as scripts know
/// them of RabbitMQ (`[administrator, management]`), the rest as JSON.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text
            .chars()
            .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
            .collect(),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            let items: Vec<String> = items.iter().map(cell).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(formatter: Formatter, headers: bool) -> String {
        let rows = Rows {
            columns: vec!["name".into(), "arguments".into()],
            rows: vec![vec![json!("a\tb"), json!({"x": 1})], vec![json!("c,d\"e"), Value::Null]],
        };
        let mut out = Vec::new();
        rows.print(formatter, headers, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn tables_have_tabs() {
        assert_eq!(check(Formatter::Table, true), "name\targuments\na\\tb\t{\"x\":1}\nc,d\"e\t\n");
        assert!(check(Formatter::Table, false).starts_with("a\\tb"));
    }

    #[test]
    fn csv_is_quoted() {
        assert!(check(Formatter::Csv, true).contains("\"c,d\"\"e\","));
    }

    #[test]
    fn json_is_an_array_of_objects() {
        let value: Value = serde_json::from_str(&check(Formatter::Json, true)).unwrap();
        assert_eq!(value[0], json!({"name": "a\tb", "arguments": {"x": 1}}));
    }
}
