//! Fuzzes the table decoder: `fuzz_tables SECONDS [SEED]`.
//!
//! Breaks good tables, some of them deeply nested, in a few places. Stops with a panic on a panic,
//! on an input that takes longer than 200 ms, and on a table that does not survive being written
//! and read again.

#[path = "fuzz/mutation.rs"]
mod mutation;

use wire::properties::Properties;
use wire::table;

fn read_table(bytes: &[u8]) -> u64 {
    let names = table::entries(bytes).count();
    drop(table::without(bytes, "k"));
    drop(Properties { headers: Some(bytes), ..Properties::default() }.recipients("CC"));
    match table::parse(bytes) {
        Ok(parsed) => {
            assert!(parsed.inner().len() <= names);
            let again = table::parse(&table::encode(&parsed)[4..]).expect("just written");
            assert_eq!(format!("{again:?}"), format!("{parsed:?}"));
            1
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            0
        }
    }
}

fn main() {
    mutation::run(&mutation::tables(), |_, bytes| read_table(bytes));
}
