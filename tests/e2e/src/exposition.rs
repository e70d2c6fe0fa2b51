//! Reads what Prometheus scrapes, as strictly as its own checker.

use std::collections::{BTreeMap, BTreeSet};

/// A family of samples.
#[derive(Debug, Default)]
struct Family {
    help: bool,
    kind: Option<String>,
    series: BTreeSet<String>,
}

/// Samples by family: what is wrong with a text in the exposition format, if anything is.
///
/// Every family has one HELP and one TYPE, both before its samples, which stand together; no series
/// comes twice; values are numbers; counters, and nothing else, end in `_total`.
///
/// # Errors
/// The first line that breaks a rule, and which.
pub fn check(text: &str) -> Result<BTreeMap<String, usize>, String> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |what: &str| Err(format!("line {number}: {what}: {line}"));
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (Some(word), Some(name), Some(value)) = (words.next(), words.next(), words.next())
            else {
                return wrong("a comment without a name and a text");
            };
            if current != name && families.contains_key(name) {
                return wrong("its family was there before");
            }
            name.clone_into(&mut current);
            let family = families.entry(current.clone()).or_default();
            if !family.series.is_empty() {
                return wrong("samples stand before it");
            }
            match word {
                "HELP" if !family.help => family.help = true,
                "TYPE" if family.kind.is_none() => family.kind = Some(value.to_owned()),
                "HELP" | "TYPE" => return wrong("it comes twice"),
                _ => return wrong("an unknown comment"),
            }
            continue;
        }
        let Some((series, value)) = line.rsplit_once(' ') else {
            return wrong("a sample without a value");
        };
        if value.parse::<f64>().is_err() {
            return wrong("its value is no number");
        }
        let name = series.split('{').next().unwrap_or_default();
        let Some(family) = families.get_mut(&current) else {
            return wrong("a sample before any family");
        };
        let kind = family.kind.as_deref().unwrap_or_default();
        let suffixes: &[&str] = match kind {
            "histogram" => &["_bucket", "_sum", "_count"],
            "summary" => &["", "_sum", "_count"],
            "counter" | "gauge" | "untyped" => &[""],
            _ => return wrong("its family has no type that is known"),
        };
        if !family.help {
            return wrong("its family has no HELP");
        }
        if !suffixes.iter().any(|suffix| name.strip_suffix(suffix) == Some(&*current)) {
            return wrong("it is not of the family before it");
        }
        if (kind == "counter") != current.ends_with("_total") {
            return wrong("counters, and only they, end in _total");
        }
        if !family.series.insert(series.to_owned()) {
            return wrong("a series comes twice");
        }
    }
    Ok(families.into_iter().map(|(name, family)| (name, family.series.len())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# HELP a_total x\n# TYPE a_total counter\na_total 1\na_total{b=\"c d\"} 2\n\
                        # TYPE h histogram\n# HELP h y z\nh_bucket{le=\"+Inf\"} 3\nh_sum 1e3\n\
                        h_count 3\n";

    #[test]
    fn every_rule_is_looked_after() {
        let counts = check(GOOD).unwrap();
        assert_eq!(counts, [("a_total".into(), 2), ("h".into(), 3)].into());
        for (from, to) in [
            ("# HELP a_total x\n", ""),
            ("# TYPE h histogram\n", ""),
            ("# TYPE h histogram", "# TYPE h histogram\n# TYPE h histogram"),
            ("# TYPE h histogram", "# TYPE h wonder"),
            ("# TYPE h histogram", "# NOTE h histogram"),
            ("a_total 1\n", "a_total 1\n# HELP a_total x\n"),
            ("h_count 3\n", "h_count 3\n# HELP a_total x\n"),
            ("h_count 3\n", "h_count 3\na_total{b=\"e\"} 1\n"),
            ("a_total{b=\"c d\"} 2", "a_total 2"),
            ("h_sum 1e3", "h_sum many"),
            ("h_sum 1e3", "h_sum"),
            ("h_sum", "h_total"),
            ("counter", "gauge"),
        ] {
            let bad = GOOD.replacen(from, to, 1);
            assert_ne!(bad, GOOD);
            assert!(check(&bad).is_err(), "{from:?} to {to:?} passes");
        }
        assert!(check("a 1\n").is_err());
    }
}
