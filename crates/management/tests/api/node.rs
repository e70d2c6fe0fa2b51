//! The node itself, its clients, its health.

use management::node::Node as _;
use serde_json::json;

use crate::check::{asker, assert_details, assert_shape};
use crate::fake::NODE;

#[tokio::test]
async fn the_overview_has_what_tools_require() {
    let asker = asker();
    let got = asker.get("overview").await.json;
    assert_shape(
        &got,
        "management_version:s rates_mode:s product_name:s product_version:s rabbitmq_version:s \
         erlang_version:s erlang_full_version:s cluster_name:s cluster_tags:o node_tags:o node:s \
         statistics_db_event_queue:n disable_stats:b default_queue_type:s \
         is_op_policy_updating_enabled:b enable_queue_totals:b exchange_types:a \
         sample_retention_policies:o listeners:a contexts:a object_totals:o queue_totals:o \
         message_stats:o churn_rates:o",
    );
    assert_shape(
        &got["churn_rates"],
        "connection_created:n connection_closed:n channel_created:n channel_closed:n \
         queue_declared:n queue_created:n queue_deleted:n",
    );
    assert_shape(
        &got["object_totals"],
        "connections:n channels:n queues:n exchanges:n consumers:n",
    );
    assert_shape(
        &got["queue_totals"],
        "messages:n messages_ready:n messages_unacknowledged:n messages_details:o",
    );
    assert_shape(
        &got["message_stats"],
        "publish:n confirm:n return_unroutable:n drop_unroutable:n deliver:n deliver_no_ack:n get:n \
         get_no_ack:n get_empty:n deliver_get:n redeliver:n ack:n disk_reads:n disk_writes:n",
    );
    assert_details(&got["message_stats"]);
    assert_shape(&got["listeners"][0], "node:s protocol:s ip_address:s port:n socket_opts:o");
    assert_shape(&got["contexts"][0], "node:s description:s path:s port:s");
    assert_shape(&got["exchange_types"][0], "name:s description:s enabled:b");
}

#[tokio::test]
async fn the_node_has_what_tools_require() {
    let asker = asker();
    let list = asker.get("nodes").await;
    let one = asker.get(&format!("nodes/{NODE}")).await.json;
    assert_eq!(list.names(), [NODE]);
    for node in [&list.json[0], &one] {
        assert_shape(
            node,
            "name:s type:s running:b uptime:n run_queue:n processors:n os_pid:s fd_used:n fd_total:n \
             sockets_used:n sockets_total:n proc_used:n proc_total:n mem_used:n mem_limit:n \
             mem_alarm:b mem_calculation_strategy:s disk_free:n disk_free_limit:n disk_free_alarm:b \
             rates_mode:s enabled_plugins:a being_drained:b net_ticktime:n partitions:a \
             applications:a auth_mechanisms:a exchange_types:a log_files:a config_files:a db_dir:s \
             contexts:a cluster_links:a rabbitmq_version:s erlang_version:s io_write_count:n \
             io_sync_count:n io_sync_avg_time:n",
        );
        assert_eq!(node["io_sync_avg_time"], json!(0.5));
    }
    let memory = asker.get(&format!("nodes/{NODE}/memory")).await.json;
    assert_shape(
        &memory["memory"],
        "connection_readers:n queue_procs:n quorum_queue_procs:n plugins:n metadata_store:n \
         mgmt_db:n binary:n msg_index:n code:n atom:n other_system:n allocated_unused:n \
         reserved_unallocated:n strategy:s total:o",
    );
    assert_eq!(memory["memory"]["total"]["rss"], 50_000_000);
}

#[tokio::test]
async fn the_cluster_has_a_name() {
    let asker = asker();
    assert_eq!(asker.get("cluster-name").await.json, json!({"name": NODE}));
    assert_eq!(asker.put("cluster-name", json!({"name": "c"})).await.status, 204);
    assert_eq!(asker.get("overview").await.json["cluster_name"], "c");
}

#[tokio::test]
async fn clients_have_what_tools_require() {
    let asker = asker();
    asker.put("queues/%2F/queue", json!({})).await;
    asker.node.connect(5002);
    let connections = asker.get("connections").await.json;
    assert_shape(
        &connections[0],
        "name:s node:s protocol:s user:s connected_at:n client_properties:o vhost:s state:s \
         channels:n channel_max:n frame_max:n timeout:n host:s port:n peer_host:s peer_port:n ssl:b \
         auth_mechanism:s type:s recv_oct:n recv_cnt:n send_oct:n send_cnt:n send_pend:n \
         recv_oct_details:o send_oct_details:o user_provided_name:s user_who_performed_action:s \
         ssl_protocol:S peer_cert_subject:S",
    );
    let channels = asker.get("channels").await.json;
    assert_shape(
        &channels[0],
        "name:s number:n vhost:s state:s consumer_count:n confirm:b prefetch_count:n \
         messages_unacknowledged:n messages_unconfirmed:n connection_details:o user:s node:s \
         transactional:b messages_uncommitted:n acks_uncommitted:n global_prefetch_count:n \
         message_stats:o",
    );
    assert_eq!(channels[0]["name"], "127.0.0.1:5002 -> 127.0.0.1:5672 (1)");
    let path = "127.0.0.1%3A5002%20-%3E%20127.0.0.1%3A5672";
    let channel = asker.get(&format!("channels/{path}%20(1)")).await.json;
    assert_shape(&channel, "consumer_details:a publishes:a deliveries:a");
    let own = asker.get(&format!("connections/{path}/channels")).await.json;
    assert_eq!(own.as_array().unwrap().len(), 1);
    for list in ["vhosts/%2F/connections", "vhosts/%2F/channels", "connections/username/guest"] {
        assert_eq!(asker.get(list).await.json.as_array().unwrap().len(), 1, "{list}");
    }
    let consumers = asker.get("consumers/%2F").await.json;
    assert_shape(
        &consumers[0],
        "consumer_tag:s active:b activity_status:s ack_required:b prefetch_count:n exclusive:b \
         arguments:o consumer_timeout:n queue:o channel_details:o",
    );
    assert_shape(
        &consumers[0]["channel_details"],
        "name:s number:n connection_name:s node:s peer_host:s peer_port:n user:s",
    );
    assert_eq!(asker.delete("connections/username/guest").await.status, 204);
    assert_eq!(asker.get("connections").await.json, json!([]));
}

#[tokio::test]
async fn health_checks_pass_and_fail() {
    let asker = asker();
    for path in [
        "alarms",
        "local-alarms",
        "port-listener/5672",
        "protocol-listener/amqp091",
        "protocol-listener/amqp,http",
        "certificate-expiration/1/months",
        "virtual-hosts",
        "node-is-quorum-critical",
        "quorum-queues-without-elected-leaders/all-vhosts/",
        "quorum-queues-without-elected-leaders/vhost/%2F/",
        "metadata-store/initialized",
    ] {
        let got = asker.get(&format!("health/checks/{path}")).await;
        assert_eq!((got.status, &got.json["status"]), (200, &json!("ok")), "{path}");
    }
    assert_eq!(asker.get("aliveness-test/%2F").await.json, json!({"status": "ok"}));
    let got = asker.get("health/checks/port-listener/1").await;
    assert_eq!((got.status, &got.json["missing"]), (503, &json!(1)));
    assert_eq!(got.json["ports"], json!([5672, 15_672, 15_692]));
    let got = asker.get("health/checks/protocol-listener/mqtt").await;
    assert_eq!((got.status, &got.json["missing"]), (503, &json!(["mqtt"])));
    assert_eq!(asker.get("health/checks/port-listener/x").await.status, 400);
    assert_eq!(asker.get("health/checks/certificate-expiration/1/eons").await.status, 400);

    asker.node.set_alarm(true);
    let got = asker.get("health/checks/alarms").await;
    assert_eq!(got.status, 503);
    assert_eq!(got.json["alarms"][0], json!({"node": NODE, "resource": "memory"}));
    assert_eq!(got.json["reason"], "There are alarms in effect in the cluster");
    asker.node.set_serving(false);
    assert_eq!(asker.get("health/checks/is-in-service").await.status, 503);
    assert_eq!(asker.get("health/checks/ready-to-serve-clients").await.status, 503);
    asker.node.connect(1);
    asker.node.connect(2);
    let got = asker.get("health/checks/below-node-connection-limit").await;
    assert_eq!((got.status, &got.json["connections"]), (503, &json!(2)));
}

#[tokio::test]
async fn the_rest_answers() {
    let asker = asker();
    for path in [
        "extensions",
        "feature-flags",
        "deprecated-features",
        "deprecated-features/used",
        "shovels",
        "federation-links",
        "stream/connections",
    ] {
        assert!(asker.get(path).await.json.is_array(), "{path}");
    }
    let attempts = asker.get(&format!("auth/attempts/{NODE}")).await.json;
    assert_shape(
        &attempts[0],
        "protocol:s auth_attempts:n auth_attempts_failed:n auth_attempts_succeeded:n",
    );
    assert_eq!(asker.put("feature-flags/user_limits/enable", json!({})).await.status, 204);
    assert_eq!(asker.put("feature-flags/absent/enable", json!({})).await.status, 400);
    assert_eq!(asker.get("deprecated-features/used").await.json, json!([]));
    asker.put("queues/%2F/transient", json!({"durable": false})).await;
    assert_eq!(asker.get("deprecated-features/used").await.names(), ["transient_nonexcl_queues"]);
    assert_eq!(asker.post("rebalance/queues", json!({})).await.status, 204);
    // What was taken is given back, also if it makes no sense.
    let wrong = json!({"queue_pattern": "["});
    assert_eq!(asker.post("rebalance/queues", wrong).await.status, 400);
    let grant = asker.node.begin_rebalance().await.unwrap();
    let second = asker.post("rebalance/queues", json!({})).await;
    assert_eq!(second.refusal(), (503, "another rebalance is in progress"));
    asker.node.end_rebalance(grant).await;
    assert_eq!(asker.post("rebalance/queues", json!({})).await.status, 204);
    assert_eq!(asker.delete("reset").await.status, 204);
    assert_eq!(asker.get("healthchecks/node").await.json, json!({"status": "ok"}));
}
