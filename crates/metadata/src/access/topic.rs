//! Topic permissions: expressions over routing keys with placeholders.

use std::sync::Arc;

use crate::access::Right;
use crate::access::matcher::Matcher;
use crate::objects::permission::TopicPermission;

/// A topic permission with its expressions compiled.
#[derive(Debug)]
pub(crate) struct CompiledTopicPermission {
    pub(crate) permission: Arc<TopicPermission>,
    write: Matcher,
    read: Matcher,
}

impl CompiledTopicPermission {
    pub(crate) fn new(permission: Arc<TopicPermission>) -> Self {
        let matcher = |expression: &str| {
            // What was valid with the placeholders may not be with the values; then nobody may.
            Matcher::permission(&expand(expression, &permission.user, &permission.vhost))
                .unwrap_or(Matcher::Nothing)
        };
        let (write, read) = (matcher(&permission.write), matcher(&permission.read));
        Self { permission, write, read }
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
