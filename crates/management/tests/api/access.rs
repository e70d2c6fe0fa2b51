//! Who may do what.

use serde_json::json;

use crate::check::asker;

#[tokio::test]
async fn credentials_are_asked_for() {
    let asker = asker();
    let got = asker.anonymous().get("overview").await;
    assert_eq!(got.status, 401);
    assert_eq!(got.json["error"], "not_authorized");
    assert_eq!(got.headers["www-authenticate"], "Basic realm=\"RabbitMQ Management\"");
    let got = asker.by("guest", "wrong").get("overview").await;
    assert_eq!(got.refusal(), (401, "Not_Authorized"));
    assert_eq!(asker.by("nobody", "x").get("whoami").await.refusal(), (401, "Not_Authorized"));
}

#[tokio::test]
async fn probes_and_the_version_need_no_credentials() {
    let anonymous = asker().anonymous();
    for path in [
        "version",
        "auth",
        "health/checks/is-in-service",
        "health/checks/ready-to-serve-clients",
        "health/checks/below-node-connection-limit",
        "health/checks/reached-target-cluster-size",
    ] {
        assert_eq!(anonymous.get(path).await.status, 200, "{path}");
    }
    assert!(anonymous.get("version").await.json.is_string());
    assert_eq!(anonymous.get("health/checks/alarms").await.status, 401);
}

#[tokio::test]
async fn users_without_a_tag_are_refused() {
    let asker = asker();
    let plain = asker.user("plain", "", true).await;
    let got = plain.get("queues").await;
    assert_eq!(got.refusal(), (401, "Not management user"));
    assert_eq!(got.json["error"], "not_authorised");
}

#[tokio::test]
async fn tags_decide_what_is_seen() {
    let asker = asker();
    asker.put("vhosts/other", json!({})).await;
    asker.put("queues/%2F/seen", json!({})).await;
    let management = asker.user("management", "management", true).await;
    let monitoring = asker.user("monitoring", "monitoring", false).await;
    let policymaker = asker.user("policymaker", "policymaker", true).await;

    assert_eq!(management.get("vhosts").await.names(), ["/"]);
    assert_eq!(monitoring.get("vhosts").await.names(), ["/", "other"]);
    assert_eq!(management.get("queues").await.names(), ["seen"]);
    let hidden = management.get("queues/other").await;
    assert_eq!(hidden.refusal(), (404, "Not Found"));
    assert_eq!(monitoring.get("queues/other").await.status, 200);

    assert_eq!(management.get("nodes").await.refusal(), (401, "Not monitor user"));
    assert_eq!(monitoring.get("nodes").await.status, 200);
    assert_eq!(management.get("users").await.refusal(), (401, "Not administrator user"));
    assert_eq!(monitoring.get("users").await.refusal(), (401, "Not administrator user"));
    assert_eq!(management.get("parameters").await.refusal(), (401, "Not policymaker user"));
    assert_eq!(management.get("global-parameters").await.status, 401);
    assert_eq!(policymaker.get("global-parameters").await.status, 200);
    assert_eq!(management.get("policies/other").await.status, 404);
    assert_eq!(management.get("user-limits/management").await.status, 200);
    let hidden = management.get("user-limits/guest").await;
    assert_eq!(hidden.refusal(), (401, "User not authorised to access object"));
    let policy = json!({"pattern": ".*", "definition": {"max-length": 5}});
    assert_eq!(policymaker.put("policies/%2F/p", policy.clone()).await.status, 201);
    assert_eq!(policymaker.put("operator-policies/%2F/p", policy.clone()).await.status, 401);
    // Policies are for everybody to see, since they say what a queue does.
    assert_eq!(management.get("policies").await.names(), ["p"]);
    assert_eq!(management.get("policies/%2F/p").await.status, 200);
    assert_eq!(management.put("policies/%2F/p", policy).await.status, 401);
    assert_eq!(management.put("vhosts/mine", json!({})).await.status, 401);
    assert_eq!(policymaker.post("definitions/%2F", json!({})).await.status, 401);
    assert_eq!(policymaker.get("definitions/%2F").await.status, 401);
    assert_eq!(management.get("overview").await.status, 200);
    assert_eq!(management.get("overview").await.json["listeners"], json!([]));
}

#[tokio::test]
async fn policies_are_changed_where_one_has_permissions() {
    let asker = asker();
    let policy = json!({"pattern": ".*", "definition": {"max-length": 5}});
    // Who monitors sees every virtual host, which is not enough to change policies in it.
    let both = asker.user("both", "monitoring,policymaker", false).await;
    let got = both.put("policies/%2F/p", policy.clone()).await;
    assert_eq!(got.refusal(), (404, "Not Found"));
    assert_eq!(asker.delete("permissions/%2F/guest").await.status, 204);
    assert_eq!(asker.put("policies/%2F/p", policy).await.status, 201);
    assert_eq!(both.delete("policies/%2F/p").await.status, 404);
    assert_eq!(both.get("policies").await.names(), ["p"]);
    assert_eq!(asker.delete("policies/%2F/p").await.status, 204);
}

#[tokio::test]
async fn own_connections_are_seen_and_closed() {
    let asker = asker();
    asker.node.connect(5000);
    let management = asker.user("management", "management", true).await;
    let monitoring = asker.user("monitoring", "monitoring", false).await;
    assert_eq!(management.get("connections").await.json, json!([]));
    assert_eq!(management.get("connections/username/guest").await.status, 401);
    assert_eq!(management.get("connections/username/management").await.status, 200);
    assert_eq!(monitoring.get("connections").await.json.as_array().unwrap().len(), 1);
    let path = "connections/127.0.0.1%3A5000%20-%3E%20127.0.0.1%3A5672";
    assert_eq!(monitoring.get(path).await.json["user_provided_name"], "my-app");
    assert_eq!(management.get(path).await.status, 401);
    assert_eq!(monitoring.delete(path).await.status, 401);
    let got = asker.send("DELETE", path, &[("x-reason", "go away")], String::new()).await;
    assert_eq!(got.status, 204);
    let name = "127.0.0.1:5000 -> 127.0.0.1:5672".to_owned();
    assert_eq!(asker.node.closed(), [(name, "go away".to_owned())]);
    assert_eq!(asker.delete(path).await.status, 404);
}

#[tokio::test]
async fn writing_needs_permissions_in_the_virtual_host() {
    let asker = asker();
    let other = asker.user("other", "management", false).await;
    assert_eq!(other.put("queues/%2F/q", json!({})).await.status, 404);
    let none = json!({"configure": "", "write": "", "read": ""});
    asker.put("permissions/%2F/other", none).await;
    let got = other.put("queues/%2F/q", json!({})).await;
    assert_eq!(
        got.refusal(),
        (401, "configure access to queue 'q' in vhost '/' refused for user 'other'")
    );
    assert_eq!(got.json["error"], "not_authorised");
}

#[tokio::test]
async fn login_takes_a_form() {
    let asker = asker().anonymous();
    let form = |user: &str| format!("username={user}&password=guest");
    assert_eq!(asker.send("POST", "login", &[], form("guest")).await.status, 200);
    assert_eq!(asker.send("POST", "login", &[], form("other")).await.status, 401);
    assert_eq!(asker.send("POST", "login", &[], String::new()).await.status, 400);
    // Anybody may send it, so it may not be large.
    let got = asker.send("POST", "login", &[], "x".repeat(20_000)).await;
    assert_eq!(got.refusal(), (400, "Exceeded HTTP request body size limit"));
}
