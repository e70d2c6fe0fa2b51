//! Lists: filter, sort, page, columns.
//!
//! ```text
//!  items ── name filter ── sort ── page ── columns ── [..] or {items, page, ...}
//! ```

use std::cmp::Ordering;

use axum::http::StatusCode;
use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use super::answer::Answer;
use super::failure::{Failure, Outcome};
use super::object::Item;
use super::uri::Query;

/// The page size of a request that does not say.
const PAGE_SIZE: usize = 100;
/// The largest page.
const PAGE_SIZE_MAX: usize = 500;
/// Items that tell how long the others are.
const FEW: usize = 100;
/// The longest filter expression.
const FILTER_MAX: usize = 1_000;

/// An item that is ready to be sent. A list of ten thousand queues is large as text, and ten times
/// larger as values, so that items are turned into text one by one, and into values before that only
/// if the query looks into them.
struct Row {
    /// What it is sorted by.
    key: Value,
    text: Vec<u8>,
}

/// Answers a list as the query asks for it. Without `sort`, the order of `items` stays.
///
/// # Errors
/// 400 for a bad page number or size, a page behind the last one, or a bad expression.
pub fn respond<T: Item>(items: impl IntoIterator<Item = T>, query: &Query) -> Outcome<Answer> {
    respond_about(0, items, query)
}

/// The same for a list that may be long, of about so many items: one that grows is copied several
/// times over.
///
/// # Errors
/// As [`respond`].
pub fn respond_about<T: Item>(
    count: usize,
    items: impl IntoIterator<Item = T>,
    query: &Query,
) -> Outcome<Answer> {
    let page = Page::of(query)?;
    let pattern = if page.is_some() { pattern(query)? } else { None };
    let sort: Option<Vec<&str>> =
        query.get("sort").filter(|path| !path.is_empty()).map(|path| path.split('.').collect());
    let is_plain = pattern.is_none() && sort.is_none() && query.get("columns").is_none();
    if is_plain && page.is_none() {
        return Ok(Answer::Text(whole(count, items)));
    }
    let mut total_count = 0;
    let mut rows = Vec::new();
    for item in items {
        total_count += 1;
        if is_plain {
            let mut text = Vec::new();
            item.write(&mut text);
            rows.push(Row { key: Value::Null, text });
            continue;
        }
        let item = item.value();
        if !pattern.as_ref().is_none_or(|pattern| is_named(&item, pattern)) {
            continue;
        }
        let key = sort.as_ref().map_or(Value::Null, |path| at(&item, path).clone());
        rows.push(Row { key, text: columns(item, query).to_string().into() });
    }
    if sort.is_some() {
        rows.sort_by(|a, b| order(&a.key, &b.key));
        if query.is_true("sort_reverse") {
            rows.reverse();
        }
    }
    let Some(page) = page else { return Ok(Answer::Text(array(&rows))) };
    let filtered_count = rows.len();
    let page_count = filtered_count.div_ceil(page.size);
    if page.number > page_count.max(1) {
        return Err(Failure::new(
            StatusCode::BAD_REQUEST,
            "page_out_of_range",
            format!(
                "Page out of range, page: {} page size: {}, len: {filtered_count}",
                page.number, page.size
            ),
        ));
    }
    let start = ((page.number - 1) * page.size).min(filtered_count);
    let on_page = &rows[start..filtered_count.min(start + page.size)];
    let mut text = format!(
        "{{\"filtered_count\":{filtered_count},\"item_count\":{},\"items\":",
        on_page.len()
    )
    .into_bytes();
    text.extend(array(on_page));
    let rest = format!(
        ",\"page\":{},\"page_count\":{page_count},\"page_size\":{},\"total_count\":{total_count}}}",
        page.number, page.size
    );
    text.extend(rest.into_bytes());
    Ok(Answer::Text(text))
}

/// All items as they are, about so many.
fn whole<T: Item>(count: usize, items: impl IntoIterator<Item = T>) -> Vec<u8> {
    let mut text = vec![b'['];
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        if at == FEW {
            // What has come is like what follows.
            text.reserve((text.len() / FEW + 8) * count.saturating_sub(FEW));
        }
        item.write(&mut text);
    }
    text.push(b']');
    text
}

fn array(rows: &[Row]) -> Vec<u8> {
    let length: usize = rows.iter().map(|row| row.text.len() + 1).sum();
    let mut text = Vec::with_capacity(length + 2);
    text.push(b'[');
    for (at, row) in rows.iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        text.extend_from_slice(&row.text);
    }
    text.push(b']');
    text
}

/// Answers one object, reduced to the asked columns.
pub fn one(item: Value, query: &Query) -> Answer {
    Answer::Json(columns(item, query))
}

/// Which page.
struct Page {
    number: usize,
    size: usize,
}

impl Page {
    fn of(query: &Query) -> Outcome<Option<Self>> {
        if query.get("page").is_none() && !query.is_true("pagination") {
            return Ok(None);
        }
        let given = |key: &str| match query.get(key).filter(|text| !text.is_empty()) {
            None => Ok(None),
            Some(text) => match text.parse::<i64>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(Failure::bad_request("Pagination parameters are invalid")),
            },
        };
        let (page, page_size) = (given("page")?, given("page_size")?);
        let within = |number: Option<i64>, default: usize, max: usize| match number {
            None => Some(default),
            Some(number) => usize::try_from(number).ok().filter(|n| (1..=max).contains(n)),
        };
        let number = within(page, 1, usize::MAX / PAGE_SIZE_MAX);
        let size = within(page_size, PAGE_SIZE, PAGE_SIZE_MAX);
        let (Some(number), Some(size)) = (number, size) else {
            let shown = |number: Option<i64>| number.map_or("undefined".into(), |n| n.to_string());
            return Err(Failure::new(
                StatusCode::BAD_REQUEST,
                "invalid_pagination_parameters",
                format!(
                    "Invalid pagination parameters: page number {}, page size {}",
                    shown(page),
                    shown(page_size)
                ),
            ));
        };
        Ok(Some(Self { number, size }))
    }
}

/// What names have to match.
fn pattern(query: &Query) -> Outcome<Option<Regex>> {
    let Some(pattern) = query.get("name").filter(|pattern| !pattern.is_empty()) else {
        return Ok(None);
    };
    if pattern.len() > FILTER_MAX {
        return Err(Failure::bad_request(format!("name is longer than {FILTER_MAX} bytes")));
    }
    let source =
        if query.is_true("use_regex") { pattern.to_owned() } else { regex::escape(pattern) };
    let expression =
        RegexBuilder::new(&source).case_insensitive(true).size_limit(1 << 20).build().map_err(
            |error| Failure::bad_request(format!("invalid regular expression: {error}")),
        )?;
    Ok(Some(expression))
}

fn is_named(item: &Value, pattern: &Regex) -> bool {
    item.get("name").and_then(Value::as_str).is_some_and(|name| pattern.is_match(name))
}

/// The value at a dotted path; null if there is none.
fn at<'a>(item: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().try_fold(item, |value, key| value.get(*key)).unwrap_or(&Value::Null)
}

/// Null before booleans before numbers before texts before the rest.
fn order(a: &Value, b: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
    };
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) => {
            let float = |number: &serde_json::Number| number.as_f64().unwrap_or_default();
            float(a).total_cmp(&float(b))
        }
        (Value::String(a), Value::String(b)) => a.cmp(b),
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Only the columns that the query names; all of them if it names none.
fn columns(item: Value, query: &Query) -> Value {
    let Some(columns) = query.get("columns").filter(|columns| !columns.is_empty()) else {
        return item;
    };
    let paths: Vec<Vec<&str>> =
        columns.split(',').map(|column| column.split('.').collect()).collect();
    let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
    chosen(item, &paths)
}

/// What these paths lead to; in a list, of each of its items.
fn chosen(value: Value, paths: &[&[&str]]) -> Value {
    let object = match value {
        Value::Array(items) => {
            return items.into_iter().map(|item| chosen(item, paths)).collect();
        }
        Value::Object(object) => object,
        other => return other,
    };
    let mut kept = Map::new();
    for (key, value) in object {
        let within = paths.iter().filter_map(|path| path.strip_prefix(&[&*key]));
        let within: Vec<&[&str]> = within.collect();
        if within.iter().any(|path| path.is_empty()) {
            kept.insert(key, value);
        } else if !within.is_empty() && matches!(value, Value::Object(_) | Value::Array(_)) {
            let value = chosen(value, &within);
            if value != Value::Object(Map::new()) {
                kept.insert(key, value);
            }
        }
    }
    Value::Object(kept)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(answer: &Answer) -> Value {
        let Answer::Text(text) = answer else { panic!("unexpected {answer:?}") };
        serde_json::from_slice(text).unwrap()
    }

    fn check(query: &str) -> Value {
        let items = (1..=5).map(
            |n| json!({"name": format!("q{n}"), "messages": 10 - n, "stats": {"a": n, "b": 0}}),
        );
        match respond(items, &Query::parse(query)) {
            Ok(answer) => parsed(&answer),
            Err(failure) => json!(failure.error),
        }
    }

    #[test]
    fn without_a_page_it_is_an_array() {
        assert_eq!(check("").as_array().unwrap().len(), 5);
        assert_eq!(check("columns=name,stats.a")[0], json!({"name": "q1", "stats": {"a": 1}}));
        let item = json!({"a": [{"b": 1, "c": 2}, {"b": 3}], "d": {"e": 4}, "f": 5});
        let kept = columns(item, &Query::parse("columns=a.b,d.x,f.g,g"));
        assert_eq!(kept, json!({"a": [{"b": 1}, {"b": 3}]}));
        assert_eq!(check("sort=messages")[0]["name"], "q5");
        assert_eq!(check("sort=stats.a&sort_reverse=true")[0]["name"], "q5");
        assert_eq!(check("sort=absent")[0]["name"], "q1");
    }

    #[test]
    fn with_a_page_it_is_always_an_object() {
        let page = check("page=2&page_size=2&name=");
        assert_eq!(page["items"][0]["name"], "q3");
        assert_eq!(page["page_count"], 3);
        assert_eq!(page["total_count"], 5);
        let none = check("page=1&page_size=100&name=absent");
        assert_eq!(none["items"], json!([]));
        assert_eq!(none["filtered_count"], 0);
        assert_eq!(none["total_count"], 5);
        let some = check("page=1&name=Q[12]&use_regex=true");
        assert_eq!(some["item_count"], 2);
        assert_eq!(check("pagination=true")["page"], 1);
        let empty = parsed(&respond([(); 0], &Query::parse("page=1&page_size=100")).unwrap());
        assert_eq!(empty["items"], json!([]));
    }

    #[test]
    fn bad_pages_are_refused() {
        assert_eq!(check("page=9"), "page_out_of_range");
        assert_eq!(check("page=0"), "invalid_pagination_parameters");
        assert_eq!(check("page=x"), "bad_request");
        assert_eq!(check("page=1&page_size=501"), "invalid_pagination_parameters");
        assert_eq!(check("page=1&page_size=-1"), "invalid_pagination_parameters");
        assert_eq!(check("page=1&name=(&use_regex=true"), "bad_request");
    }
}
