//! Tidy: what the style asks for and a program can see, as tests.
//!
//! Lists of exceptions are committed and may only shrink: a check fails as well when an entry is no longer
//! needed. `UPDATE=1` rewrites the generated lists; look at the difference before you commit it.

#[cfg(test)]
mod arrows;
#[cfg(test)]
mod dependencies;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod io;
#[cfg(test)]
mod repository;
#[cfg(test)]
mod sources;
