//! What every endpoint shares: requests, answers, failures, lists, credentials.

pub mod answer;
pub mod body;
pub mod credentials;
pub mod failure;
pub mod list;
pub mod name;
pub mod object;
pub mod properties;
pub mod table;
pub mod uri;
