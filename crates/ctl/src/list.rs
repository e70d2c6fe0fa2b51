//! Commands that list.

use serde_json::Value;

use crate::client::Client;
use crate::exit::{Exit, Failed};
use crate::output::Rows;

/// A list: where it comes from, its columns, and how `rabbitmqctl` names those whose JSON name is
/// another one.
#[derive(Debug)]
pub(crate) struct List {
    /// What is listed, for the line above.
    pub(crate) what: &'static str,
    /// The path below `/api`.
    pub(crate) path: String,
    /// Columns if none are asked for.
    pub(crate) default: &'static [&'static str],
    /// Column and dotted JSON path.
    pub(crate) aliases: &'static [(&'static str, &'static str)],
    /// Whether it is of the virtual host on the command line.
    pub(crate) is_of_vhost: bool,
}

/// Columns of queues whose JSON name is another one.
pub(crate) const QUEUE: &[(&str, &str)] =
    &[("pid", "node"), ("owner_pid", "owner_pid_details.name")];

/// Columns of bindings whose JSON name is another one.
pub(crate) const BINDING: &[(&str, &str)] = &[
    ("source_name", "source"),
    ("destination_name", "destination"),
    ("destination_kind", "destination_type"),
];

/// Columns of connections whose JSON name is another one.
pub(crate) const CONNECTION: &[(&str, &str)] = &[("pid", "name")];

/// Columns of channels whose JSON name is another one.
pub(crate) const CHANNEL: &[(&str, &str)] =
    &[("pid", "name"), ("connection", "connection_details.name")];

/// Columns of consumers whose JSON name is another one.
pub(crate) const CONSUMER: &[(&str, &str)] =
    &[("queue_name", "queue.name"), ("channel_pid", "channel_details.name")];

/// Columns of users whose JSON name is another one.
pub(crate) const USER: &[(&str, &str)] = &[("user", "name")];

/// No columns have another name.
pub(crate) const OTHER: &[(&str, &str)] = &[];

impl List {
    /// Fetches the rows with these columns.
    ///
    /// # Errors
    /// If the node refuses, or knows none of a column's name.
    pub(crate) fn fetch(&self, client: &Client, columns: &[String]) -> Result<Rows, Failed> {
        let columns: Vec<String> = if columns.is_empty() {
            self.default.iter().map(|column| (*column).to_owned()).collect()
        } else {
            columns.to_vec()
        };
        let Value::Array(items) = client.get(&self.path)? else {
            return Err(Failed::new(Exit::Software, "the node's answer is no list"));
        };
        rows(&items, columns, self.aliases)
    }
}

/// Picks columns out of objects.
///
/// # Errors
/// If there are objects and none of them knows a column.
pub(crate) fn rows(
    items: &[Value],
    columns: Vec<String>,
    aliases: &[(&str, &str)],
) -> Result<Rows, Failed> {
    let path = |column: &str| {
        let alias = aliases.iter().find(|(name, _)| *name == column);
        alias.map_or(column.to_owned(), |(_, path)| (*path).to_owned())
    };
    let paths: Vec<String> = columns.iter().map(|column| path(column)).collect();
    for (column, path) in columns.iter().zip(&paths) {
        let known = items.is_empty() || items.iter().any(|item| at(item, path).is_some());
        let optional = ["policy", "operator_policy", "owner_pid_details.name", "idle_since"];
        if !known && !optional.contains(&path.as_str()) && column != "source_kind" {
            return Err(Failed::new(Exit::Usage, format!("unknown column: {column}")));
        }
    }
    let row = |item: &Value| {
        let value = |path: &String| match path.as_str() {
            // The source of a binding is always an exchange, which the API does not say.
            "source_kind" => Value::from("exchange"),
            path => at(item, path).cloned().unwrap_or_default(),
        };
        paths.iter().map(value).collect()
    };
    Ok(Rows { rows: items.iter().map(row).collect(), columns })
}

fn at<'a>(item: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(item, |value, key| value.get(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_have_the_names_of_rabbitmqctl() {
        let items = [json!({"source": "x", "destination": "q", "routing_key": "k"})];
        let columns = ["source_name", "source_kind", "routing_key"].map(str::to_owned).to_vec();
        let rows = rows(&items, columns, BINDING).unwrap();
        assert_eq!(rows.rows, [[json!("x"), json!("exchange"), json!("k")]]);
    }

    #[test]
    fn unknown_columns_are_refused() {
        let failed = rows(&[json!({"name": "q"})], vec!["nmae".into()], QUEUE).unwrap_err();
        assert_eq!(failed, Failed::new(Exit::Usage, "unknown column: nmae"));
        assert!(rows(&[json!({"name": "q"})], vec!["policy".into()], QUEUE).is_ok());
    }
}
