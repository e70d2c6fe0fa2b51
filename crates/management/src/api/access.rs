//! Who may do what over HTTP.
//!
//! | tag | may |
//! |---|---|
//! | `management` | what its AMQP permissions allow, in its own virtual hosts |
//! | `policymaker` | also policies and parameters there |
//! | `monitoring` | also see all virtual hosts, nodes and connections |
//! | `administrator` | everything |

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

    /// Lets those pass who may see policies and parameters.
    pub(super) fn policymaker(&self) -> Outcome<()> {
        if self.user.is_policymaker() {
            Ok(())
        } else {
            Err(Failure::not_authorised("Not policymaker user"))
        }
    }

    /// Lets those pass who may change policies and parameters of a virtual host, which exists.
    pub(super) fn policymaker_in(&self, vhost: &str) -> Outcome<()> {
        self.policymaker()?;
        self.visible(vhost)
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

fn not_visible() -> Failure {
    Failure::not_authorised("User not authorised to access virtual host")
}
