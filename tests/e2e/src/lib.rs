//! Real processes with real clients.
