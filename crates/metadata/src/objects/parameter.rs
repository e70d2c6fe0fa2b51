//! Runtime parameters: values that belong to a component (a plugin) and mean nothing here.

use serde::{Deserialize, Serialize};

use crate::objects::Name;

/// A value of a component in a vhost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Whose, such as `shovel`.
    pub component: Name,
    /// Where.
    pub vhost: Name,
    /// The name.
    pub name: Name,
    /// Any JSON.
    pub value: serde_json::Value,
}

/// A value for the whole cluster, such as `cluster_name`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GlobalParameter {
    /// The name.
    pub name: Name,
    /// Any JSON.
    pub value: serde_json::Value,
}
