//! Logging in, opening a virtual host, and the end of the connection.

use std::sync::Arc;

use amqp::request::{Error, Mechanism, Reply};
use metadata::access::{LoginRefusal, Right};
use metadata::command::Command;

use crate::gateway::{Gateway, Place, error};

impl Gateway {
    pub(super) fn authenticate(&mut self, mechanism: Mechanism) -> Result<Reply, Error> {
        self.counted.auth_attempts += 1;
        let state = self.node.router.state();
        let loopback = is_loopback(self.peer.remote.ip());
        let guarded = &self.node.limits.loopback_users;
        let (name, claimed, result) = match mechanism {
            Mechanism::Password { name, user, password } => {
                let result = state.authenticate(&user, &password, loopback, guarded);
                (name, user, result)
            }
            Mechanism::External => {
                let user = self.peer.certificate_user.clone().unwrap_or_default();
                let result = state.identify(&user, loopback, guarded);
                ("EXTERNAL", user, result)
            }
            Mechanism::Anonymous => {
                let user = self.node.limits.anonymous_user.clone().unwrap_or_default();
                let result = state.identify(&user, loopback, guarded);
                ("ANONYMOUS", user, result)
            }
        };
        match result {
            Ok(user) => {
                self.user = Some(Arc::clone(&user.name));
                self.record.set_user(&user.name);
                Ok(Reply::Authenticated { user: user.name.to_string() })
            }
            Err(refusal) => Err(self.login_refused(name, &claimed, refusal)),
        }
    }

    fn login_refused(&mut self, mechanism: &str, user: &str, refusal: LoginRefusal) -> Error {
        self.counted.auth_failures += 1;
        tracing::warn!(
            peer = %self.peer.remote, mechanism, reason = %refusal.reason(user), "login refused"
        );
        Error {
            code: 403,
            text: format!(
                "Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
            ),
        }
    }

    pub(super) fn open(&mut self, vhost: &str) -> Result<(), Error> {
        let Some(user) = self.user.clone() else {
            return Err(Error { code: 504, text: "expected 'connection.start-ok'".into() });
        };
        let state = self.node.router.state();
        let node_limit = self.node.limits.connections;
        self.node.accounts.check_node(node_limit)?;
        state.check_vhost(vhost).map_err(error)?;
        self.node.accounts.open_connection(&state, vhost, &user, &self.record, node_limit)?;
        self.opened = true;
        let access = state.access(&user, vhost).map_err(error)?;
        let Some(routes) = state.routes().vhost(vhost).map(Arc::clone) else {
            return Err(Error { code: 530, text: format!("vhost {vhost} not found") });
        };
        self.place = Some(Place { vhost: vhost.into(), access, state, routes });
        tracing::info!(peer = %self.peer.remote, %user, vhost, "connection opened");
        Ok(())
    }

    pub(super) fn channel_open(&mut self) -> Result<(), Error> {
        let state = self.node.router.state();
        self.node.accounts.open_channel(&state, &self.record, self.node.limits.channels)?;
        self.counted.channels_opened += 1;
        Ok(())
    }

    /// A new secret. It matters to users whose login expires; those of this node are not among
    /// them, so any secret will do, as with RabbitMQ. But what the user may do is looked at anew.
    pub(super) async fn update_secret(&mut self) -> Result<(), Error> {
        let Some(user) = self.user.clone() else {
            return Err(Error { code: 504, text: "expected 'connection.start-ok'".into() });
        };
        let vhost = Arc::clone(&self.place()?.vhost);
        let access = self.node.router.state().access(&user, &vhost).map_err(error)?;
        if let Some(place) = &mut self.place {
            place.access = access;
        }
        self.cancel_forbidden().await;
        Ok(())
    }

    /// Cancels the consumers of this connection whose queues the user may no longer read.
    async fn cancel_forbidden(&mut self) {
        let Ok(place) = self.place() else { return };
        let (state, access) = (Arc::clone(&place.state), place.access.clone());
        let id = self.id();
        let views = self.node.views().await;
        for queue in &views {
            let Some(known) = state.queue_by_id(queue.id) else { continue };
            if access.check_queue(Right::Read, &known.name).is_ok() {
                continue;
            }
            for consumer in queue.consumers.iter().filter(|one| one.connection == id) {
                self.stage(
                    queue.id,
                    crate::shard::command::Command::Revoke {
                        queue: queue.id,
                        consumer: consumer.id,
                    },
                );
            }
        }
        self.hand_on();
    }

    /// What has to go with the connection: its exclusive queues, if it has any.
    fn last_wish(&self) -> Option<Command> {
        let owner = self.id();
        let any = self.node.router.state().exclusive_queues(owner).next().is_some();
        any.then_some(Command::DeleteExclusiveQueues { owner })
    }

    /// The client has closed the connection: what is exclusive to it goes before it hears so.
    pub(super) async fn closing(&mut self) {
        if let Some(command) = self.last_wish()
            && let Err(error) = self.change(command).await
        {
            tracing::error!(reason = %error.text, "cannot delete exclusive queues yet");
        }
    }

    /// The same when nobody is left who could wait for it.
    pub(super) fn closing_later(&mut self) {
        if let Some(command) = self.last_wish() {
            self.node.topology.order(command);
        }
    }
}

/// Whether a peer is this machine; IPv4 addresses may come mapped into IPv6.
pub(crate) fn is_loopback(ip: std::net::IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}
