//! The whole topology as one string of bytes, to hand it to another node.
//!
//! ```text
//!  (length of the key u32 · key · length of the value u32 · value)*
//! ```
//!
//! Keys and values are those of the store. Equal states give equal bytes.

use bytes::{Buf, BufMut, BytesMut};

use crate::state::State;
use crate::store::load;
use crate::store::record;
use crate::store::{Failure, Write};

/// Writes a state.
pub fn write(state: &State, out: &mut BytesMut) {
    let mut part = |bytes: &[u8]| {
        out.put_u32_le(u32::try_from(bytes.len()).expect("an object is far below 4 GiB"));
        out.put_slice(bytes);
    };
    record::all_of(state, &mut |record| {
        if let Write::Put(key, value) = record::put(&record) {
            part(&key);
            part(&value);
        }
    });
}

/// Reads what [`write()`] wrote, in this or an earlier version.
///
/// # Errors
/// If it is something else.
pub fn read(mut bytes: &[u8]) -> Result<State, Failure> {
    let mut state = State::new();
    while bytes.has_remaining() {
        let (key, value) = (part(&mut bytes)?, part(&mut bytes)?);
        load::insert(&mut state, key, value)?;
    }
    Ok(state)
}

fn part<'b>(bytes: &mut &'b [u8]) -> Result<&'b [u8], Failure> {
    let cut = || Failure { reason: "the topology is cut off".into() };
    let length = bytes.try_get_u32_le().map_err(|_| cut())? as usize;
    let (part, rest) = bytes.split_at_checked(length).ok_or_else(cut)?;
    *bytes = rest;
    Ok(part)
}
