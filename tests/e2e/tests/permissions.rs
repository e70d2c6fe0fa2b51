//! Who may do what: cases 96 to 98.

use e2e::broker::Broker;
use e2e::client::topology::{DURABLE, PASSIVE};
use e2e::client::{Failure, assert_channel_error};
use e2e::content::Properties;
use e2e::table;
use serde_json::json;

#[test]
fn case_096_passive_declare_needs_any_permission() {
    let broker = Broker::start();
    let mut client = broker.channel();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    for (user, configure, write, read, allowed) in [
        ("u096-read", "", "", ".*", true),
        ("u096-write", "", ".*", "", true),
        ("u096-configure", ".*", "", "", true),
        ("u096-none", "", "", "", false),
    ] {
        broker.user(user, configure, write, read);
        let mut other = broker.options().login(user, "secret").connect().unwrap();
        other.open(1).unwrap();
        let outcome = other.queue(1, "q", PASSIVE, &table! {});
        if allowed {
            outcome.unwrap();
        } else {
            let failure = outcome.unwrap_err();
            assert_eq!(failure.reply().map(|(code, _)| code), Some(403), "{failure:?}");
        }
        broker.api.delete(&format!("users/{user}"));
    }
}

#[test]
fn case_096b_operations_and_their_permissions() {
    let broker = Broker::start();
    let vhost = broker.vhost.clone();
    let mut owner = broker.channel();
    owner.queue(1, "q", DURABLE, &table! {}).unwrap();
    owner.exchange(1, "x", "fanout", DURABLE, &table! {}).unwrap();
    let user = "u096b";
    let refusal = |permission: &str, kind: &str, name: &str| {
        format!(
            "ACCESS_REFUSED - {permission} access to {kind} '{name}' in vhost '{vhost}' refused \
             for user '{user}'"
        )
    };
    broker.user(user, "^own", "^own", "^own");
    let mut client = broker.options().login(user, "secret").connect().unwrap();
    client.open(1).unwrap();
    assert_channel_error(
        client.queue(1, "other", DURABLE, &table! {}),
        403,
        &refusal("configure", "queue", "other"),
    );
    client.open(1).unwrap();
    assert_channel_error(
        client.exchange(1, "other", "fanout", DURABLE, &table! {}),
        403,
        &refusal("configure", "exchange", "other"),
    );
    client.open(1).unwrap();
    assert_channel_error(client.get(1, "q", true), 403, &refusal("read", "queue", "q"));
    client.open(1).unwrap();
    assert_channel_error(client.consume(1, "q", "c"), 403, &refusal("read", "queue", "q"));
    client.open(1).unwrap();
    assert_channel_error(client.purge(1, "q"), 403, &refusal("read", "queue", "q"));
    client.open(1).unwrap();
    assert_channel_error(client.delete_queue(1, "q"), 403, &refusal("configure", "queue", "q"));
    client.open(1).unwrap();
    client.publish(1, "x", "k", &Properties::default(), "m").unwrap();
    assert_channel_error(client.sync(1), 403, &refusal("write", "exchange", "x"));
    client.open(1).unwrap();
    client.publish(1, "", "q", &Properties::default(), "m").unwrap();
    assert_channel_error(client.sync(1), 403, &refusal("write", "exchange", "amq.default"));
    client.open(1).unwrap();
    client.queue(1, "own-q", DURABLE, &table! {}).unwrap();
    assert_channel_error(
        client.bind(1, "own-q", "x", "", &table! {}),
        403,
        &refusal("read", "exchange", "x"),
    );
    client.open(1).unwrap();
    assert_channel_error(
        client.bind(1, "q", "x", "", &table! {}),
        403,
        &refusal("write", "queue", "q"),
    );
    client.open(1).unwrap();
    let dead = table! { "x-dead-letter-exchange" => "x" };
    assert_channel_error(
        client.queue(1, "own-dead", DURABLE, &dead),
        403,
        &refusal("write", "exchange", "x"),
    );
    broker.api.delete(&format!("users/{user}"));
}

#[test]
fn case_097_update_secret_looks_at_permissions_again() {
    let broker = Broker::start();
    let user = "u097";
    broker.user(user, ".*", ".*", ".*");
    let mut client = broker.options().login(user, "secret").connect().unwrap();
    client.open(1).unwrap();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    client.consume(1, "q", "c").unwrap();
    client.update_secret("secret", "nothing has changed").unwrap();
    client.sync(1).unwrap();
    assert_eq!(client.waiting(1), []);
    broker.permit(user, ".*", ".*", "^only-this$");
    client.update_secret("secret", "less may be read").unwrap();
    assert_eq!(client.await_cancel(1).unwrap(), "c");
    broker.api.delete(&format!("users/{user}"));
}

#[test]
fn case_098_user_names_in_topic_permissions_are_no_patterns() {
    let broker = Broker::start();
    let user = "a.*";
    broker.user(user, ".*", ".*", ".*");
    let path = format!("topic-permissions/{}/a.%2A", broker.vhost_segment());
    let rule = json!({ "exchange": "amq.topic", "write": "^{username}\\.", "read": ".*" });
    let answer = broker.api.put(&path, &rule);
    assert!(answer.status < 300, "{}", answer.text());
    let mut client = broker.options().login(user, "secret").connect().unwrap();
    client.open(1).unwrap();
    client.publish(1, "amq.topic", "a.*.x", &Properties::default(), "m").unwrap();
    client.sync(1).unwrap();
    client.publish(1, "amq.topic", "abc.x", &Properties::default(), "m").unwrap();
    assert_channel_error(
        client.sync(1),
        403,
        &format!(
            "ACCESS_REFUSED - write access to topic 'abc.x' in exchange 'amq.topic' in vhost \
             '{}' refused for user 'a.*'",
            broker.vhost
        ),
    );
    broker.api.delete("users/a.%2A");
}

#[test]
fn case_098b_virtual_hosts_are_worlds_of_their_own() {
    let broker = Broker::start();
    let user = "u098b";
    let created =
        broker.api.put(&format!("users/{user}"), &json!({ "password": "secret", "tags": "" }));
    assert!(created.status < 300);
    let failure = broker.options().login(user, "secret").connect().unwrap_err();
    let text =
        format!("NOT_ALLOWED - access to vhost '{}' refused for user '{user}'", broker.vhost);
    match failure {
        Failure::Connection { code: 530, text: seen, .. } => assert_eq!(seen, text),
        other => panic!("{other:?}"),
    }
    let second = "e2e-098b-second";
    broker.api.put(&format!("vhosts/{second}"), &json!({}));
    broker.api.put(
        &format!("permissions/{second}/guest"),
        &json!({ "configure": ".*", "write": ".*", "read": ".*" }),
    );
    let mut client = broker.options().vhost(second).connect().unwrap();
    client.open(1).unwrap();
    client.queue(1, "q", DURABLE, &table! {}).unwrap();
    let mut here = broker.channel();
    let text = format!("NOT_FOUND - no queue 'q' in vhost '{}'", broker.vhost);
    assert_channel_error(here.depth(1, "q"), 404, &text);
    assert_eq!(broker.api.delete(&format!("vhosts/{second}")).status, 204);
    match client.await_end() {
        Failure::Connection { code: 320, text, .. } => {
            assert!(text.starts_with("CONNECTION_FORCED - vhost"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    broker.api.delete(&format!("users/{user}"));
}
