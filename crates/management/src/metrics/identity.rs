//! Which node and version this is.

use super::family::Families;
use crate::version;

/// Who answers a scrape.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The node's name.
    pub node: String,
    /// The cluster's name.
    pub cluster: String,
    /// The cluster's id, which does not change with its name.
    pub cluster_id: String,
}

impl Identity {
    /// `rabbitmq_identity_info`, exactly one line, and `rabbitmq_build_info`. `endpoint` is
    /// `aggregated`, `per-object` or `detailed`.
    pub fn write(&self, families: &mut Families, endpoint: &str) {
        families.gauges(
            "rabbitmq_identity_info",
            "RabbitMQ node & cluster identity info",
            [(
                vec![
                    ("rabbitmq_node", self.node.as_str()),
                    ("rabbitmq_cluster", self.cluster.as_str()),
                    ("rabbitmq_cluster_permanent_id", self.cluster_id.as_str()),
                    ("rabbitmq_endpoint", endpoint),
                ],
                1.0,
            )],
        );
        families.gauges(
            "rabbitmq_build_info",
            "RabbitMQ & Erlang/OTP version info",
            [(
                vec![
                    ("rabbitmq_version", version::COMPATIBLE),
                    ("prometheus_plugin_version", version::COMPATIBLE),
                    ("prometheus_client_version", version::OWN),
                    ("erlang_version", version::ERLANG),
                    ("product_name", version::PRODUCT),
                    ("product_version", version::OWN),
                ],
                1.0,
            )],
        );
    }
}
