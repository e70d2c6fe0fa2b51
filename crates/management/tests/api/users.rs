//! Users and permissions.

use serde_json::json;

use crate::check::{asker, assert_shape};

#[tokio::test]
async fn users_are_made_and_deleted() {
    let asker = asker();
    let body = json!({"password": "pw", "tags": "administrator,mine"});
    assert_eq!(asker.put("users/u", body.clone()).await.status, 201);
    assert_eq!(asker.put("users/u", body).await.status, 204);
    let got = asker.get("users/u").await.json;
    assert_shape(&got, "name:s password_hash:s hashing_algorithm:s tags:a limits:o");
    assert_eq!(got["tags"], json!(["administrator", "mine"]));
    assert_eq!(got["hashing_algorithm"], "rabbit_password_hashing_sha256");
    assert_eq!(asker.by("u", "pw").get("whoami").await.json["name"], "u");
    assert_eq!(asker.get("users").await.names(), ["guest", "u"]);
    assert_eq!(asker.get("users/without-permissions").await.names(), ["u"]);
    assert_eq!(asker.delete("users/u").await.status, 204);
    assert_eq!(asker.delete("users/u").await.status, 404);
    assert_eq!(asker.by("u", "pw").get("whoami").await.status, 401);
}

#[tokio::test]
async fn hashes_of_other_brokers_are_taken() {
    let asker = asker();
    let hash = asker.get("auth/hash_password/secret").await.json["ok"].as_str().unwrap().to_owned();
    let body = json!({"password_hash": hash, "tags": ["management"]});
    assert_eq!(asker.put("users/u", body).await.status, 201);
    assert_eq!(asker.by("u", "secret").get("whoami").await.status, 200);
}

#[tokio::test]
async fn case_81_a_user_may_have_no_password() {
    let asker = asker();
    for body in [json!({"password_hash": "", "tags": "management"}), json!({"tags": "management"})]
    {
        assert_eq!(asker.put("users/none", body).await.status, 201);
        assert_eq!(asker.by("none", "").get("whoami").await.status, 401);
        assert_eq!(asker.by("none", "x").get("whoami").await.status, 401);
        assert_eq!(asker.get("users/none").await.json["password_hash"], "");
        asker.delete("users/none").await;
    }
}

#[tokio::test]
async fn nonsense_users_are_refused() {
    let asker = asker();
    let put = async |body| asker.put("users/u", body).await;
    assert_eq!(put(json!({"password": "x"})).await.refusal(), (400, "tags_not_present"));
    let both = json!({"password": "x", "password_hash": "y", "tags": ""});
    assert_eq!(put(both).await.status, 400);
    let unknown = json!({"password": "x", "hashing_algorithm": "rot13", "tags": ""});
    assert_eq!(put(unknown).await.status, 400);
}

#[tokio::test]
async fn users_are_deleted_in_bulk() {
    let asker = asker();
    asker.user("a", "", false).await;
    asker.user("b", "", false).await;
    let got = asker.post("users/bulk-delete", json!({"users": ["a", "b", "absent"]})).await;
    assert_eq!(got.status, 204);
    assert_eq!(asker.get("users").await.names(), ["guest"]);
    assert_eq!(asker.post("users/bulk-delete", json!({})).await.status, 400);
}

#[tokio::test]
async fn permissions_are_put_and_deleted() {
    let asker = asker();
    asker.user("u", "management", false).await;
    let body = json!({"configure": "^c", "write": "^w", "read": ""});
    assert_eq!(asker.put("permissions/%2F/u", body.clone()).await.status, 201);
    assert_eq!(asker.put("permissions/%2F/u", body).await.status, 204);
    let got = asker.get("permissions/%2F/u").await.json;
    assert_shape(&got, "user:s vhost:s configure:s write:s read:s");
    for path in ["permissions", "vhosts/%2F/permissions"] {
        assert_eq!(asker.get(path).await.json.as_array().unwrap().len(), 2, "{path}");
    }
    assert_eq!(asker.get("users/u/permissions").await.json.as_array().unwrap().len(), 1);
    assert_eq!(asker.delete("permissions/%2F/u").await.status, 204);
    assert_eq!(asker.delete("permissions/%2F/u").await.status, 404);
}

#[tokio::test]
async fn topic_permissions_are_put_and_deleted() {
    let asker = asker();
    let body = json!({"exchange": "amq.topic", "write": "^a", "read": ".*"});
    assert_eq!(asker.put("topic-permissions/%2F/guest", body).await.status, 201);
    let got = asker.get("topic-permissions/%2F/guest").await.json;
    assert_shape(&got[0], "user:s vhost:s exchange:s write:s read:s");
    for path in
        ["topic-permissions", "vhosts/%2F/topic-permissions", "users/guest/topic-permissions"]
    {
        assert_eq!(asker.get(path).await.json.as_array().unwrap().len(), 1, "{path}");
    }
    assert_eq!(asker.get("topic-permissions/%2F/guest/amq.topic").await.json["write"], "^a");
    assert_eq!(asker.delete("topic-permissions/%2F/guest").await.status, 204);
    assert_eq!(asker.delete("topic-permissions/%2F/guest").await.status, 404);
}
