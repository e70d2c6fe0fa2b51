//! Who may do what over HTTP.
//!
//! | tag | may |
//! |---|---|
//! | `management` | what its AMQP permissions allow, in its own virtual hosts |
//! | `policymaker` | also change policies and parameters there |
//! | `monitoring` | also see all virtual hosts, nodes and connections |
//! | `administrator` | everything |

use axum::http::StatusCode;
use metadata::objects::vhost::Vhost;

use super::call::Call;
use crate::http::failure::{Failure, Outcome};
use crate::node::Node;

impl<N: Node> Call<'_, N> {
    /// Lets administrators pass.
    pub(super) fn administrator(&self) -> Outcome<()> {
        if self.user.is_administrator() {
            Ok(())
        } else {
            Err(Failure::not_authorised("Not administrator user"))
        }
    }

    /// Lets those pass who see the whole node.
    pub(super) fn monitor(&self) -> Outcome<()> {
        if self.user.is_monitor() {
            Ok(())
        } else {
            Err(Failure::not_authorised("Not monitor user"))
        }
    }

    /// Lets those pass who may see parameters.
    pub(super) fn policymaker(&self) -> Outcome<()> {
        if self.user.is_policymaker() {
            Ok(())
        } else {
            Err(Failure::not_authorised("Not policymaker user"))
        }
    }

    /// Lets those pass who may change policies and parameters of a virtual host, which exists. It
    /// takes more than to see it: a permission in it, unless one is an administrator.
    pub(super) fn policymaker_in(&self, vhost: &str) -> Outcome<()> {
        self.policymaker()?;
        self.visible(vhost)?;
        if self.user.is_administrator() { Ok(()) } else { self.inside(vhost) }
    }

    /// A virtual host that exists and that may be seen.
    pub(super) fn visible(&self, vhost: &str) -> Outcome<()> {
        if self.state.vhost(vhost).is_none() {
            return Err(Failure::not_found());
        }
        if self.sees(vhost) { Ok(()) } else { Err(not_visible()) }
    }

    /// A virtual host that exists and whose objects may be used, as far as permissions go.
    pub(super) fn inside(&self, vhost: &str) -> Outcome<()> {
        self.exists(vhost)?;
        if self.state.permission(vhost, self.by()).is_some() { Ok(()) } else { Err(not_visible()) }
    }

    /// A virtual host that exists.
    pub(super) fn exists(&self, vhost: &str) -> Outcome<()> {
        if self.state.vhost(vhost).is_some() { Ok(()) } else { Err(Failure::vhost_not_found()) }
    }

    /// Whether a virtual host may be seen.
    pub(super) fn sees(&self, vhost: &str) -> bool {
        self.user.is_monitor() || self.state.permission(vhost, self.by()).is_some()
    }

    /// Whether connections and limits of a user may be seen.
    pub(super) fn sees_client(&self, user: &str) -> bool {
        self.user.is_monitor() || self.by() == user
    }

    /// Lets those pass who may see connections and limits of a user.
    pub(super) fn client_visible(&self, user: &str) -> Outcome<()> {
        if self.sees_client(user) {
            Ok(())
        } else {
            Err(Failure::not_authorised("User not authorised to access object"))
        }
    }

    /// The virtual hosts of a list: the named one, or all that may be seen.
    pub(super) fn vhosts(&self, vhost: Option<&str>) -> Outcome<Vec<&Vhost>> {
        if let Some(name) = vhost {
            self.visible(name)?;
        }
        let wanted = |candidate: &&Vhost| match vhost {
            Some(name) => &*candidate.name == name,
            None => self.sees(&candidate.name),
        };
        Ok(self.state.vhosts().map(AsRef::as_ref).filter(wanted).collect())
    }
}

/// What a virtual host is to those who may not see it: as if it were not there.
fn not_visible() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "not_found", "Not Found")
}
