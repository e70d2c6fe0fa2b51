//! The node as its AMQP listeners see it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use amqp::config::{Offer, SessionConfig, server_properties};
use amqp::listener::{Node as AmqpNode, Peer as Incoming};
use amqp::mailbox::Mailbox;
use amqp::server::{Connection, Ended};
use management::version;
use parking_lot::Mutex;

use crate::config::{Config, LoginFrom, Mechanism};
use crate::gateway::{Gateway, Peer};
use crate::node::Node;
use crate::origin::{InFlight, Origin};
use crate::outlet::Outlet;

/// See the module head. One for each listener.
#[derive(Debug)]
pub(crate) struct Front {
    node: Arc<Node>,
    tls: bool,
    /// What connections agree on, with the name of the cluster that it was made for.
    session: Mutex<(String, Arc<SessionConfig>)>,
}

impl Front {
    pub(crate) fn new(node: Arc<Node>, tls: bool) -> Self {
        let name = node.cluster_name();
        let session = Arc::new(session_config(&node.config, &name, tls));
        Self { node, tls, session: Mutex::new((name, session)) }
    }

    /// What a new connection has to agree on. The cluster may have got another name.
    fn session(&self) -> Arc<SessionConfig> {
        let name = self.node.cluster_name();
        let mut made = self.session.lock();
        if made.0 != name {
            let session = Arc::new(session_config(&self.node.config, &name, self.tls));
            *made = (name, session);
        }
        Arc::clone(&made.1)
    }
}

fn session_config(config: &Config, cluster_name: &str, tls: bool) -> SessionConfig {
    let mechanisms = config
        .auth
        .mechanisms
        .iter()
        .filter_map(|mechanism| match mechanism {
            Mechanism::Plain => Some(Offer::Plain),
            Mechanism::Amqplain => Some(Offer::Amqplain),
            Mechanism::External => tls.then_some(Offer::External),
            Mechanism::Anonymous => config.auth.anonymous_user.as_ref().map(|_| Offer::Anonymous),
        })
        .collect();
    SessionConfig {
        frame_max: config.limits.frame_size,
        initial_frame_max: config.limits.initial_frame_size,
        channel_max: config.limits.channels_per_connection,
        heartbeat: config
            .heartbeat
            .map_or(0, |interval| u16::try_from(interval.as_secs()).unwrap_or(u16::MAX)),
        message_size_max: config.limits.message_size,
        consumers_max: config
            .limits
            .consumers_per_channel
            .map(|most| usize::try_from(most).unwrap_or(usize::MAX)),
        handshake_timeout_ms: u64::try_from(config.handshake_timeout.as_millis())
            .unwrap_or(u64::MAX),
        mechanisms,
        server_properties: server_properties(version::OWN, version::COMPATIBLE, cluster_name),
    }
}

/// IPv4 clients of a listener for both come as mapped addresses; everybody else writes them plain.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl AmqpNode for Front {
    type Broker = Gateway;

    fn connected(&self, peer: &Incoming) -> Option<Connection<Gateway>> {
        if self.node.stopping.load(Ordering::Acquire) || *self.node.maintenance.borrow() {
            return None;
        }
        let certificate_user =
            peer.tls.as_ref().and_then(|tls| match self.node.config.tls.login_from {
                LoginFrom::CommonName => tls.common_name.clone(),
                LoginFrom::DistinguishedName => tls.distinguished_name.clone(),
            });
        let address = Peer {
            local: plain(peer.local),
            remote: plain(peer.address),
            tls: peer.tls.clone(),
            certificate_user,
        };
        let mailbox = Mailbox::new();
        let outlet = Outlet::new(mailbox.clone());
        let record = self.node.connections.add(address, |id| Origin {
            id,
            outlet,
            totals: Arc::clone(&self.node.totals),
            in_flight: InFlight::default(),
        });
        Some(Connection {
            broker: Gateway::new(Arc::clone(&self.node), record),
            mailbox,
            config: self.session(),
            seed: rand::random(),
        })
    }

    fn ended(&self, peer: &Incoming, ended: &Ended) {
        let address = plain(peer.address);
        match (&ended.reason, ended.was_open) {
            (Some(reason), _) => {
                tracing::warn!(peer = %address, user = %ended.user, vhost = %ended.vhost, reason, "connection lost");
            }
            (None, true) => {
                tracing::info!(peer = %address, user = %ended.user, vhost = %ended.vhost, "connection closed");
            }
            (None, false) => {
                tracing::debug!(peer = %address, "connection closed before it was opened");
            }
        }
    }
}
