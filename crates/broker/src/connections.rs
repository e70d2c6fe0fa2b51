//! All client connections of the node.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use amqp::mailbox::Mailbox;
use amqp::request::{Error, Event};
use metadata::objects::Name;
use model::id::ConnectionId;
use parking_lot::Mutex;

use crate::cluster::unique::Unique;
use crate::gateway::Peer;
use crate::origin::{InFlight, Origin};
use crate::outlet::Outlet;
use crate::shard;

/// One connection, as others see it.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) id: ConnectionId,
    pub(crate) name: String,
    pub(crate) peer: Peer,
    pub(crate) origin: Arc<Origin>,
    pub(crate) connected_at_ms: u64,
    /// Open channels.
    pub(crate) channels: AtomicU32,
    login: Mutex<Login>,
}

/// What became known of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<Name>,
    /// The virtual host, once it is open.
    pub(crate) vhost: Option<Name>,
}

impl Record {
    fn internal(id: ConnectionId) -> Self {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        Self {
            id,
            name: "operator".to_owned(),
            peer: Peer { local: nowhere, remote: nowhere, tls: None, certificate_user: None },
            origin: Arc::new(Origin {
                id,
                outlet: Outlet::new(Mailbox::new()),
                totals: Arc::default(),
                in_flight: InFlight::default(),
            }),
            connected_at_ms: 0,
            channels: AtomicU32::new(0),
            login: Mutex::default(),
        }
    }

    pub(crate) fn login(&self) -> Login {
        self.login.lock().clone()
    }

    pub(crate) fn set_user(&self, user: &Name) {
        self.login.lock().user = Some(Arc::clone(user));
    }

    pub(crate) fn set_vhost(&self, vhost: &str) {
        self.login.lock().vhost = Some(vhost.into());
    }

    /// Closes it with 320.
    pub(crate) fn close(&self, reason: &str) {
        let error = Error { code: 320, text: reason.to_owned() };
        self.origin.outlet.post_one(Event::Close(error));
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    ids: Unique,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    records: BTreeMap<ConnectionId, Arc<Record>>,
    /// The alarm that they were told of. Under the same lock, so that a new connection hears of
    /// every change once.
    alarm: Option<&'static str>,
}

impl Connections {
    /// A new connection. If an alarm is on, it finds that in its mailbox.
    pub(crate) fn add(
        &self,
        peer: Peer,
        origin: impl FnOnce(ConnectionId) -> Origin,
    ) -> Arc<Record> {
        let id = self.next_id();
        let record = Arc::new(Record {
            id,
            name: format!("{} -> {}", peer.remote, peer.local),
            peer,
            origin: Arc::new(origin(id)),
            connected_at_ms: shard::now().0,
            channels: AtomicU32::new(0),
            login: Mutex::default(),
        });
        let mut open = self.open.lock();
        if open.alarm.is_some() {
            record.origin.outlet.post_one(alarm_event(open.alarm));
        }
        open.records.insert(id, Arc::clone(&record));
        record
    }

    /// Stands for an operator, who has no connection: it has an id of its own and is not among the
    /// node's connections.
    pub(crate) fn internal(&self) -> Record {
        Record::internal(self.next_id())
    }

    fn next_id(&self) -> ConnectionId {
        ConnectionId(self.ids.next())
    }

    /// From now on connections are named as those of this start of this node.
    pub(crate) fn belong_to(&self, node: u16, boot: u64) {
        self.ids.belong_to(node, boot);
    }

    pub(crate) fn remove(&self, id: ConnectionId) {
        self.open.lock().records.remove(&id);
    }

    /// All of them, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Record>> {
        self.open.lock().records.values().map(Arc::clone).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.open.lock().records.len()
    }

    /// Closes those that `which` says; returns how many.
    pub(crate) fn close(&self, reason: &str, which: impl Fn(&Record) -> bool) -> usize {
        let mut count = 0;
        for record in self.all() {
            if which(&record) {
                record.close(reason);
                count += 1;
            }
        }
        count
    }

    /// Tells all of them that an alarm began, that its reason changed or that the last one ended.
    pub(crate) fn tell(&self, reason: Option<&'static str>) {
        let mut open = self.open.lock();
        if open.alarm == reason {
            return;
        }
        open.alarm = reason;
        for record in open.records.values() {
            record.origin.outlet.post_one(alarm_event(reason));
        }
    }
}

/// What a connection is told of alarms.
fn alarm_event(reason: Option<&'static str>) -> Event {
    match reason {
        Some(reason) => Event::Blocked { reason: reason.to_owned() },
        None => Event::Unblocked,
    }
}
