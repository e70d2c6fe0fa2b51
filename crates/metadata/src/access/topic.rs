//! Topic permissions: expressions over routing keys with placeholders.

use crate::access::Right;
use crate::access::matcher::Matcher;
use crate::objects::permission::TopicPermission;

/// A topic permission, made for one user and vhost.
#[derive(Debug, Clone)]
pub(crate) struct Compiled {
    write: Matcher,
    read: Matcher,
}

impl Compiled {
    pub(crate) fn new(permission: &TopicPermission) -> Self {
        let matcher = |expression: &str| {
            // What was valid with the placeholders may not be with the values; then nobody may.
            Matcher::permission(&expand(expression, &permission.user, &permission.vhost))
                .unwrap_or(Matcher::Nothing)
        };
        Self { write: matcher(&permission.write), read: matcher(&permission.read) }
    }

    pub(crate) fn allows(&self, right: Right, routing_key: &str) -> bool {
        match right {
            Right::Write => self.write.matches(routing_key),
            Right::Read => self.read.matches(routing_key),
            Right::Configure => true,
        }
    }
}

/// Replaces `{username}` and `{vhost}` by the values, escaped: a user named `a.*` must not match
/// the keys of a user named `abc`.
fn expand(expression: &str, user: &str, vhost: &str) -> String {
    expression.replace("{username}", &regex::escape(user)).replace("{vhost}", &regex::escape(vhost))
}
