//! Users, their permissions and limits.

use std::sync::Arc;

use crate::access::matcher::Matcher;
use crate::access::topic::CompiledTopicPermission;
use crate::machine::parts::{no_vhost, not_found};
use crate::objects::Name;
use crate::objects::limit::UserLimit;
use crate::objects::permission::{Permission, TopicPermission};
use crate::objects::user::User;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::state::{CompiledPermission, State};
use crate::store::record::{self, Record};

impl State {
    pub(super) fn put_user(&mut self, user: User, out: &mut Outcome) -> Result<(), Refusal> {
        if user.name.is_empty() {
            return Err(Refusal::invalid("user name must not be empty"));
        }
        let user = Arc::new(user);
        out.records.push(record::put(&Record::User(&user)));
        out.user_changed = Some(Arc::clone(&user.name));
        out.created = self.users.insert(Arc::clone(&user.name), user).is_none();
        Ok(())
    }

    pub(super) fn delete_user(&mut self, name: &Name, out: &mut Outcome) -> Result<(), Refusal> {
        let Some(user) = self.users.remove(name) else { return Err(not_found("user", name)) };
        out.records.push(record::delete(&Record::User(&user)));
        let vhosts: Vec<Name> = self.vhosts.keys().map(Arc::clone).collect();
        for vhost in vhosts {
            self.remove_permission(&vhost, name, out);
            self.remove_topic_permissions(&vhost, name, None, out);
        }
        self.remove_user_limits(name, None, out);
        out.deleted = true;
        out.user_changed = Some(Arc::clone(name));
        Ok(())
    }

    pub(super) fn put_permission(
        &mut self,
        permission: Permission,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        self.check_owner(&permission.vhost, &permission.user)?;
        let compiled = compile(permission)?;
        out.records.push(record::put(&Record::Permission(&compiled.permission)));
        out.created = self.insert_permission(compiled);
        Ok(())
    }

    /// Returns whether it is new.
    pub(crate) fn insert_permission(&mut self, compiled: CompiledPermission) -> bool {
        let user = Arc::clone(&compiled.permission.user);
        let vhost = Arc::clone(&compiled.permission.vhost);
        let vhost = self.vhost_mut(&vhost).expect("the vhost was checked");
        vhost.permissions.insert(user, Arc::new(compiled)).is_none()
    }

    pub(super) fn delete_permission(
        &mut self,
        vhost: &Name,
        user: &Name,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        self.check_owner(vhost, user)?;
        self.remove_permission(vhost, user, out);
        if out.deleted { Ok(()) } else { Err(not_found("permission of user", user)) }
    }

    fn remove_permission(&mut self, vhost: &str, user: &str, out: &mut Outcome) {
        let Some(vhost) = self.vhost_mut(vhost) else { return };
        if let Some(compiled) = vhost.permissions.remove(user) {
            out.deleted = true;
            out.records.push(record::delete(&Record::Permission(&compiled.permission)));
        }
    }

    pub(super) fn put_topic_permission(
        &mut self,
        permission: TopicPermission,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        self.check_owner(&permission.vhost, &permission.user)?;
        for expression in [&permission.write, &permission.read] {
            // The placeholders are no expressions; any text in their place will do.
            let expression = expression.replace("{username}", "u").replace("{vhost}", "v");
            matcher(&expression.replace("{client_id}", "c"))?;
        }
        let permission = Arc::new(permission);
        out.records.push(record::put(&Record::TopicPermission(&permission)));
        out.created = self.insert_topic_permission(permission);
        Ok(())
    }

    /// Returns whether it is new.
    pub(crate) fn insert_topic_permission(&mut self, permission: Arc<TopicPermission>) -> bool {
        let key = (Arc::clone(&permission.user), Arc::clone(&permission.exchange));
        let vhost = self.vhost_mut(&permission.vhost).expect("the vhost was checked");
        let compiled = Arc::new(CompiledTopicPermission::new(permission));
        vhost.topic_permissions.insert(key, compiled).is_none()
    }

    pub(super) fn delete_topic_permission(
        &mut self,
        vhost: &Name,
        user: &Name,
        exchange: Option<&str>,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        self.check_owner(vhost, user)?;
        self.remove_topic_permissions(vhost, user, exchange, out);
        if out.deleted { Ok(()) } else { Err(not_found("topic permission of user", user)) }
    }

    fn remove_topic_permissions(
        &mut self,
        vhost: &str,
        user: &str,
        exchange: Option<&str>,
        out: &mut Outcome,
    ) {
        let Some(vhost) = self.vhost_mut(vhost) else { return };
        let doomed: Vec<_> = vhost
            .topic_permissions
            .keys()
            .filter(|(owner, name)| {
                &**owner == user && exchange.is_none_or(|wanted| wanted == &**name)
            })
            .cloned()
            .collect();
        for key in doomed {
            if let Some(compiled) = vhost.topic_permissions.remove(&key) {
                out.deleted = true;
                out.records.push(record::delete(&Record::TopicPermission(&compiled.permission)));
            }
        }
    }

    pub(super) fn put_user_limit(
        &mut self,
        user: &Name,
        limit: UserLimit,
        value: i64,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        if !self.users.contains_key(user) {
            return Err(not_found("user", user));
        }
        out.created = self.user_limits.insert((Arc::clone(user), limit), value).is_none();
        out.records.push(record::put(&Record::UserLimit(user, limit, value)));
        Ok(())
    }

    pub(super) fn delete_user_limit(
        &mut self,
        user: &Name,
        limit: Option<UserLimit>,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        if !self.users.contains_key(user) {
            return Err(not_found("user", user));
        }
        self.remove_user_limits(user, limit, out);
        if limit.is_some() && !out.deleted {
            return Err(not_found("limit of user", user));
        }
        Ok(())
    }

    fn remove_user_limits(&mut self, user: &Name, limit: Option<UserLimit>, out: &mut Outcome) {
        for each in [UserLimit::MaxConnections, UserLimit::MaxChannels] {
            if limit.is_some_and(|limit| limit != each) {
                continue;
            }
            if let Some(value) = self.user_limits.remove(&(Arc::clone(user), each)) {
                out.deleted = true;
                out.records.push(record::delete(&Record::UserLimit(user, each, value)));
            }
        }
    }

    fn check_owner(&self, vhost: &Name, user: &Name) -> Result<(), Refusal> {
        if !self.vhosts.contains_key(vhost) {
            return Err(no_vhost(vhost));
        }
        if !self.users.contains_key(user) {
            return Err(not_found("user", user));
        }
        Ok(())
    }
}

/// Compiles the three expressions.
pub(crate) fn compile(permission: Permission) -> Result<CompiledPermission, Refusal> {
    Ok(CompiledPermission {
        configure: matcher(&permission.configure)?,
        write: matcher(&permission.write)?,
        read: matcher(&permission.read)?,
        permission,
    })
}

fn matcher(expression: &str) -> Result<Matcher, Refusal> {
    Matcher::permission(expression)
        .map_err(|error| Refusal::invalid(format!("invalid regexp '{expression}': {error}")))
}
