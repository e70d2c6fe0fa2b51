//! How many connections and channels there are, and whether one more may be.
//!
//! Checked and counted under one lock, so that limits hold in a burst too.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use amqp::request::Error;
use metadata::access;
use metadata::objects::Name;
use metadata::objects::limit::{UserLimit, VhostLimit};
use metadata::refusal::Refusal;
use metadata::state::State;
use parking_lot::Mutex;

use crate::connections::Record;

#[derive(Debug, Default)]
struct Counts {
    connections: u64,
    channels: u64,
    connections_by_vhost: HashMap<Name, u64>,
    connections_by_user: HashMap<Name, u64>,
    channels_by_user: HashMap<Name, u64>,
}

impl Counts {
    fn check_node(&self, limit: Option<u64>) -> Result<(), Error> {
        match limit {
            Some(limit) if self.connections >= limit => Err(Error {
                code: 530,
                text: format!("connection refused: node connection limit ({limit}) is reached"),
            }),
            _ => Ok(()),
        }
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    counts: Mutex<Counts>,
}

fn error(refusal: Refusal) -> Error {
    Error { code: refusal.code, text: refusal.text }
}

impl Accounts {
    /// Whether the node may have one more open connection.
    ///
    /// # Errors
    /// 530.
    pub(crate) fn check_node(&self, limit: Option<u64>) -> Result<(), Error> {
        self.counts.lock().check_node(limit)
    }

    /// Counts a connection to a virtual host.
    ///
    /// # Errors
    /// 530.
    pub(crate) fn open_connection(
        &self,
        state: &State,
        vhost: &str,
        user: &Name,
        record: &Record,
        node_limit: Option<u64>,
    ) -> Result<(), Error> {
        let mut counts = self.counts.lock();
        // Again, since many may have come this far at the same time.
        counts.check_node(node_limit)?;
        if let Some(limit) = state.vhost_limit(vhost, VhostLimit::MaxConnections)
            && counts.connections_by_vhost.get(vhost).copied().unwrap_or(0) >= limit
        {
            return Err(error(access::vhost_connection_limit(vhost, user, limit)));
        }
        if let Some(limit) = state.user_limit(user, UserLimit::MaxConnections)
            && counts.connections_by_user.get(user).copied().unwrap_or(0) >= limit
        {
            return Err(error(access::user_connection_limit(user, limit)));
        }
        counts.connections += 1;
        *counts.connections_by_vhost.entry(vhost.into()).or_default() += 1;
        *counts.connections_by_user.entry(user.clone()).or_default() += 1;
        record.set_vhost(vhost);
        Ok(())
    }

    /// Takes a connection, and the channels that it still had, off the counts.
    pub(crate) fn close_connection(&self, record: &Record, opened: bool) {
        let login = record.login();
        let channels = u64::from(record.channels.swap(0, Ordering::AcqRel));
        let mut counts = self.counts.lock();
        counts.channels = counts.channels.saturating_sub(channels);
        if let Some(user) = &login.user {
            lower(&mut counts.channels_by_user, user, channels);
        }
        if !opened {
            return;
        }
        counts.connections = counts.connections.saturating_sub(1);
        if let Some(user) = &login.user {
            lower(&mut counts.connections_by_user, user, 1);
        }
        if let Some(vhost) = &login.vhost {
            lower(&mut counts.connections_by_vhost, vhost, 1);
        }
    }

    /// Counts a channel.
    ///
    /// # Errors
    /// 530.
    pub(crate) fn open_channel(
        &self,
        state: &State,
        record: &Record,
        node_limit: Option<u64>,
    ) -> Result<(), Error> {
        let user = record.login().user;
        let mut counts = self.counts.lock();
        if let Some(limit) = node_limit
            && counts.channels >= limit
        {
            return Err(Error {
                code: 530,
                text: format!(
                    "number of channels opened on the node has reached its limit ({limit})"
                ),
            });
        }
        if let Some(user) = user {
            if let Some(limit) = state.user_limit(&user, UserLimit::MaxChannels)
                && counts.channels_by_user.get(&user).copied().unwrap_or(0) >= limit
            {
                return Err(error(access::user_channel_limit(&user, limit)));
            }
            *counts.channels_by_user.entry(user).or_default() += 1;
        }
        counts.channels += 1;
        record.channels.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Takes a channel off the counts.
    pub(crate) fn close_channel(&self, record: &Record) {
        let user = record.login().user;
        let mut counts = self.counts.lock();
        counts.channels = counts.channels.saturating_sub(1);
        if let Some(user) = user {
            lower(&mut counts.channels_by_user, &user, 1);
        }
        record.channels.fetch_sub(1, Ordering::AcqRel);
    }
}

fn lower(counts: &mut HashMap<Name, u64>, name: &Name, by: u64) {
    if let Some(count) = counts.get_mut(name) {
        *count = count.saturating_sub(by);
        if *count == 0 {
            counts.remove(name);
        }
    }
}
