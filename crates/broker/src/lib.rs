//! Composes everything into the binary leveret.
