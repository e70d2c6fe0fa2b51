//! A durable append-only segmented log with group commit.
