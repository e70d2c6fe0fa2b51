//! Logins and permissions.

use crate::access::{LoginRefusal, Right, password};
use crate::command::{Command, DeclareExchange, DeclareQueue};
use crate::objects::permission::TopicPermission;
use crate::objects::user::{HashingAlgorithm, User};
use crate::scene::{Act, exchange, queue, state, table, text, to_queue};
use crate::state::State;

fn refused<T: std::fmt::Debug>(result: Result<T, crate::refusal::Refusal>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn passwords() {
    let salt = [0x90, 0x8d, 0xc6, 0x0a];
    // From RabbitMQ's documentation of password hashes.
    let documented = password::hash(HashingAlgorithm::Sha256, salt, b"test12");
    assert_eq!(documented, "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR");
    for algorithm in [HashingAlgorithm::Sha256, HashingAlgorithm::Sha512, HashingAlgorithm::Md5] {
        let user = User {
            name: "u".into(),
            password_hash: password::hash(algorithm, salt, b"pw"),
            hashing_algorithm: algorithm,
            tags: vec![],
        };
        assert!(password::is_right(&user, b"pw"));
        assert!(!password::is_right(&user, b"pW"));
        assert!(!password::is_right(&user, b""));
        for password_hash in ["", "x", "AAAA", "AAAAAA=="] {
            let user = User { password_hash: password_hash.into(), ..user.clone() };
            assert!(!password::is_right(&user, b"pw") && !password::is_right(&user, b""));
        }
    }
}

#[test]
fn logins() {
    let state = state();
    let loopback = ["guest".to_owned()];
    let login = |user, password: &str, local| {
        state
            .authenticate(user, password.as_bytes(), local, &loopback)
            .map(|user| user.name.clone())
    };
    assert_eq!(login("guest", "guest", true), Ok("guest".into()));
    assert_eq!(login("guest", "guest", false), Err(LoginRefusal::LoopbackOnly));
    assert_eq!(login("guest", "wrong", true), Err(LoginRefusal::WrongPassword));
    assert_eq!(login("nobody", "guest", true), Err(LoginRefusal::UnknownUser));
    assert!(state.authenticate("guest", b"guest", false, &[]).is_ok());
}

#[test]
fn opening_a_vhost() {
    let mut state = state();
    state.add_user("u", "", "", "");
    assert!(state.access("u", "/").is_ok());
    assert_eq!(refused(state.access("u", "v")), "NOT_ALLOWED - vhost v not found");
    let (vhost, user) = ("/".into(), "u".into());
    state.apply(Command::DeletePermission { vhost, user }).unwrap();
    assert_eq!(
        refused(state.access("u", "/")),
        "NOT_ALLOWED - access to vhost '/' refused for user 'u'"
    );
}

#[test]
fn rights() {
    let mut state = state();
    state.add_user("u", "^u-", "^u-", "^u-");
    let access = Some(&state.access("u", "/").unwrap()).cloned();
    let access = access.as_ref();
    let of = "in vhost '/' refused for user 'u'";
    assert_eq!(
        refused(state.check_declare_queue(&queue("q"), access)),
        format!("ACCESS_REFUSED - configure access to queue 'q' {of}")
    );
    assert_eq!(
        refused(state.check_declare_exchange(&exchange("e", "direct"), access)),
        format!("ACCESS_REFUSED - configure access to exchange 'e' {of}")
    );
    assert_eq!(
        refused(state.check_use_queue("/", "none", None, access)),
        format!("ACCESS_REFUSED - read access to queue 'none' {of}")
    );
    assert_eq!(
        refused(state.check_bind(&to_queue("e", "", "q"), None, access)),
        format!("ACCESS_REFUSED - write access to queue 'q' {of}")
    );
    assert_eq!(
        refused(state.check_bind(&to_queue("e", "", "u-q"), None, access)),
        format!("ACCESS_REFUSED - read access to exchange 'e' {of}")
    );
    assert_eq!(
        refused(access.unwrap().check_exchange(Right::Write, "")),
        format!("ACCESS_REFUSED - write access to exchange 'amq.default' {of}")
    );
    let arguments = table([("x-dead-letter-exchange", text(""))]);
    assert_eq!(
        refused(state.check_declare_queue(&DeclareQueue { arguments, ..queue("u-q") }, access)),
        format!("ACCESS_REFUSED - write access to exchange 'amq.default' {of}")
    );
    let arguments = table([("alternate-exchange", text("foo"))]);
    let declare = DeclareExchange { arguments, ..exchange("u-x", "direct") };
    assert_eq!(
        refused(state.check_declare_exchange(&declare, access)),
        format!("ACCESS_REFUSED - write access to exchange 'foo' {of}")
    );
}

#[test]
fn case_096_any_right_is_enough_for_passive_declares() {
    let mut state = state();
    state.add_queue("q");
    let passive = |state: &State| {
        let access = state.access("u", "/").unwrap();
        let queue = state.check_passive_queue("/", "q", None, Some(&access));
        let exchange = state.check_passive_exchange("/", "amq.direct", Some(&access));
        queue.map(drop).and(exchange.map(drop))
    };
    for (configure, write, read) in [(".*", "", ""), ("", ".*", ""), ("", "", ".*")] {
        state.add_user("u", configure, write, read);
        assert_eq!(passive(&state), Ok(()));
    }
    state.add_user("u", "", "", "");
    assert_eq!(
        refused(passive(&state)),
        "ACCESS_REFUSED - configure access to queue 'q' in vhost '/' refused for user 'u'"
    );
}

#[test]
fn case_098_placeholders_are_escaped() {
    let mut state = state();
    state.add_exchange("t", "topic");
    state.add_queue("q");
    state.add_user("a.*", ".*", ".*", ".*");
    let expression = r"^{username}\.".to_owned();
    state
        .apply(Command::PutTopicPermission(TopicPermission {
            vhost: "/".into(),
            user: "a.*".into(),
            exchange: "t".into(),
            write: expression.clone(),
            read: expression,
        }))
        .unwrap();
    let access = state.access("a.*", "/").unwrap();
    assert!(access.has_topic_permissions());
    assert_eq!(access.check_topic(Right::Write, "t", "a.*.x"), Ok(()));
    assert_eq!(access.check_topic(Right::Write, "other", "abc.x"), Ok(()));
    assert_eq!(
        refused(access.check_topic(Right::Write, "t", "abc.x")),
        "ACCESS_REFUSED - write access to topic 'abc.x' in exchange 't' in vhost '/' refused for \
         user 'a.*'"
    );
    assert_eq!(
        refused(state.check_bind(&to_queue("t", "abc.x", "q"), None, Some(&access))),
        "ACCESS_REFUSED - read access to topic 'abc.x' in exchange 't' in vhost '/' refused for \
         user 'a.*'"
    );
}

#[test]
fn bad_expressions_are_refused() {
    let mut state = state();
    let permission = crate::objects::permission::Permission {
        vhost: "/".into(),
        user: "guest".into(),
        configure: "(".into(),
        write: String::new(),
        read: String::new(),
    };
    let refusal = state.refused(Command::PutPermission(permission));
    assert_eq!(refusal.kind, crate::refusal::Kind::Invalid);
}
