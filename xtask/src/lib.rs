//! Tidy checks, run as tests.
