//! Who may log in, and what a user may do in a vhost.

use std::sync::Arc;

use crate::access::topic::CompiledTopicPermission;
use crate::objects::Name;
use crate::objects::user::User;
use crate::refusal::Refusal;
use crate::state::{CompiledPermission, State};

pub(crate) mod matcher;
pub mod password;
pub(crate) mod topic;

/// A user in a vhost, with what the permissions were when it was made: keep one per connection (or
/// channel) and make a new one when permissions have changed and that shall be felt.
#[derive(Debug, Clone)]
pub struct Access {
    /// Who.
    pub user: Arc<User>,
    /// Where.
    pub vhost: Name,
    permission: Arc<CompiledPermission>,
    topics: Vec<Arc<CompiledTopicPermission>>,
}

/// What somebody wants to do with an exchange or a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Declare or delete it.
    Configure,
    /// Publish to it, or bind it as a destination.
    Write,
    /// Consume from it, purge it, or bind it as a source.
    Read,
}

impl Right {
    /// The word in texts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Configure => "configure",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// Why somebody may not log in. Clients learn nothing of it; it is for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginRefusal {
    /// There is no such user.
    UnknownUser,
    /// The password is wrong, or the user has none.
    WrongPassword,
    /// The user may only log in from the machine itself.
    LoopbackOnly,
}

impl LoginRefusal {
    /// The reason, as RabbitMQ's log says it.
    pub fn reason(self, user: &str) -> String {
        match self {
            Self::UnknownUser | Self::WrongPassword => {
                format!("user '{user}' - invalid credentials")
            }
            Self::LoopbackOnly => format!("user '{user}' can only connect via localhost"),
        }
    }
}

impl State {
    /// Checks a login. `from_loopback` says whether the peer is the machine itself (IPv4-mapped
    /// addresses included); `loopback_users` may come from nowhere else.
    ///
    /// Takes as long for an unknown user as for a wrong password, as far as hashing goes.
    ///
    /// # Errors
    /// Why not; clients must not be told which.
    pub fn authenticate(
        &self,
        user: &str,
        password: &[u8],
        from_loopback: bool,
        loopback_users: &[String],
    ) -> Result<Arc<User>, LoginRefusal> {
        let Some(known) = self.users.get(user) else {
            password::waste(password);
            return Err(LoginRefusal::UnknownUser);
        };
        if !password::is_right(known, password) {
            return Err(LoginRefusal::WrongPassword);
        }
        self.check_loopback(user, from_loopback, loopback_users)?;
        Ok(Arc::clone(known))
    }

    /// The part of a login that has nothing to do with passwords: the user exists and may come
    /// from there. For users that a certificate or the configuration names.
    ///
    /// # Errors
    /// Why not.
    pub fn identify(
        &self,
        user: &str,
        from_loopback: bool,
        loopback_users: &[String],
    ) -> Result<Arc<User>, LoginRefusal> {
        let known = self.users.get(user).ok_or(LoginRefusal::UnknownUser)?;
        self.check_loopback(user, from_loopback, loopback_users)?;
        Ok(Arc::clone(known))
    }

    #[expect(clippy::unused_self, reason = "it reads better beside the others")]
    fn check_loopback(
        &self,
        user: &str,
        from_loopback: bool,
        loopback_users: &[String],
    ) -> Result<(), LoginRefusal> {
        if !from_loopback && loopback_users.iter().any(|name| name == user) {
            return Err(LoginRefusal::LoopbackOnly);
        }
        Ok(())
    }

    /// Checks that a vhost exists.
    ///
    /// # Errors
    /// 530 `vhost … not found`.
    pub fn check_vhost(&self, vhost: &str) -> Result<(), Refusal> {
        if self.vhosts.contains_key(vhost) {
            Ok(())
        } else {
            Err(Refusal::not_allowed(format!("vhost {vhost} not found")))
        }
    }

    /// Opens a vhost for a user. Limits of connections are the caller's to check, between this
    /// vhost's existence ([`State::check_vhost`]) and this.
    ///
    /// # Errors
    /// 530 if there is no such vhost, or no permission of the user in it.
    pub fn access(&self, user: &str, vhost: &str) -> Result<Access, Refusal> {
        self.check_vhost(vhost)?;
        let refused =
            || Refusal::not_allowed(format!("access to vhost '{vhost}' refused for user '{user}'"));
        let known = self.users.get(user).ok_or_else(refused)?;
        let inside = self.vhosts.get(vhost).ok_or_else(refused)?;
        let permission = inside.permissions.get(user).ok_or_else(refused)?;
        let topics = inside
            .topic_permissions
            .range((Arc::clone(&known.name), Name::from(""))..)
            .take_while(|((owner, _), _)| *owner == known.name)
            .map(|(_, compiled)| Arc::clone(compiled))
            .collect();
        Ok(Access {
            user: Arc::clone(known),
            vhost: Arc::clone(&inside.vhost.name),
            permission: Arc::clone(permission),
            topics,
        })
    }
}

/// The text of 530 when a vhost has its number of connections.
pub fn vhost_connection_limit(vhost: &str, user: &str, limit: u64) -> Refusal {
    Refusal::not_allowed(format!(
        "access to vhost '{vhost}' refused for user '{user}': connection limit ({limit}) is reached"
    ))
}

/// The text of 530 when a user has its number of connections.
pub fn user_connection_limit(user: &str, limit: u64) -> Refusal {
    Refusal::not_allowed(format!(
        "connection refused for user '{user}': user connection limit ({limit}) is reached"
    ))
}

/// The text of 530 when a user has its number of channels.
pub fn user_channel_limit(user: &str, limit: u64) -> Refusal {
    Refusal::not_allowed(format!(
        "number of channels opened for user '{user}' has reached the maximum allowed user limit of \
         {limit}"
    ))
}

impl Access {
    /// Checks a right on an exchange; the empty name is the default exchange, which permissions
    /// know as `amq.default`.
    ///
    /// Cheap for `.*`, which is what most users have; else one run of the expression.
    ///
    /// # Errors
    /// 403.
    pub fn check_exchange(&self, right: Right, exchange: &str) -> Result<(), Refusal> {
        let name = if exchange.is_empty() { "amq.default" } else { exchange };
        self.check(right, "exchange", name)
    }

    /// Checks a right on a queue.
    ///
    /// # Errors
    /// 403.
    pub fn check_queue(&self, right: Right, queue: &str) -> Result<(), Refusal> {
        self.check(right, "queue", queue)
    }

    /// Whether the user has any right on a queue: enough to ask for it passively.
    ///
    /// # Errors
    /// 403.
    pub fn check_queue_any(&self, queue: &str) -> Result<(), Refusal> {
        self.check_any("queue", queue)
    }

    /// Whether the user has any right on an exchange: enough to ask for it passively.
    ///
    /// # Errors
    /// 403.
    pub fn check_exchange_any(&self, exchange: &str) -> Result<(), Refusal> {
        self.check_any("exchange", if exchange.is_empty() { "amq.default" } else { exchange })
    }

    /// Checks a routing key on a topic exchange: `Write` to publish with it, `Read` to bind with
    /// it. Without a topic permission for the exchange everything is allowed. Ask only for topic
    /// exchanges.
    ///
    /// # Errors
    /// 403.
    pub fn check_topic(
        &self,
        right: Right,
        exchange: &str,
        routing_key: &str,
    ) -> Result<(), Refusal> {
        let Some(compiled) =
            self.topics.iter().find(|compiled| &*compiled.permission.exchange == exchange)
        else {
            return Ok(());
        };
        if compiled.allows(right, routing_key) {
            return Ok(());
        }
        Err(Refusal::access_refused(format!(
            "{} access to topic '{routing_key}' in exchange '{exchange}' in vhost '{}' refused for \
             user '{}'",
            right.as_str(),
            self.vhost,
            self.user.name
        )))
    }

    /// Whether the user has topic permissions at all; if not, no key needs to be checked.
    pub fn has_topic_permissions(&self) -> bool {
        !self.topics.is_empty()
    }

    fn check(&self, right: Right, what: &str, name: &str) -> Result<(), Refusal> {
        if self.allows(right, name) {
            return Ok(());
        }
        Err(self.refused(right, what, name))
    }

    fn check_any(&self, what: &str, name: &str) -> Result<(), Refusal> {
        if [Right::Configure, Right::Write, Right::Read]
            .into_iter()
            .any(|right| self.allows(right, name))
        {
            return Ok(());
        }
        Err(self.refused(Right::Configure, what, name))
    }

    fn allows(&self, right: Right, name: &str) -> bool {
        let matcher = match right {
            Right::Configure => &self.permission.configure,
            Right::Write => &self.permission.write,
            Right::Read => &self.permission.read,
        };
        matcher.matches(name)
    }

    fn refused(&self, right: Right, what: &str, name: &str) -> Refusal {
        Refusal::access_refused(format!(
            "{} access to {what} '{name}' in vhost '{}' refused for user '{}'",
            right.as_str(),
            self.vhost,
            self.user.name
        ))
    }
}

#[cfg(test)]
mod tests;
