//! What the management API shows of a connection.

use super::{Phase, Session};
use crate::config::Offer;
use crate::request::ChannelId;
use crate::transaction::Transaction;
use amq_protocol::types::FieldTable;
use model::id::{ConsumerId, QueueId};

/// A snapshot of a connection.
#[derive(Debug, Clone)]
pub struct SessionStatus {
    /// `starting`, `tuning`, `opening`, `running`, `blocking` (an alarm is on, but it has not
    /// published), `blocked`, `closing` or `closed`.
    pub state: &'static str,
    /// The login; empty before it.
    pub user: String,
    /// The virtual host; empty before `open`.
    pub vhost: String,
    /// The SASL mechanism; empty before the login.
    pub mechanism: &'static str,
    /// What the client said about itself.
    pub client_properties: FieldTable,
    /// Negotiated, in bytes; 0 is no limit.
    pub frame_max: u32,
    /// Negotiated; 0 is no limit.
    pub channel_max: u16,
    /// Negotiated, in seconds; 0 is none.
    pub heartbeat: u64,
    /// Frames and contents read.
    pub frames_in: u64,
    /// Frames and contents queued for writing.
    pub frames_out: u64,
    /// Its channels, by number.
    pub channels: Vec<ChannelStatus>,
}

/// A snapshot of a channel.
#[derive(Debug, Clone)]
pub struct ChannelStatus {
    /// Its number.
    pub number: ChannelId,
    /// For consumers to come; 0 is no limit.
    pub prefetch: u16,
    /// For all its consumers together; 0 is no limit.
    pub global_prefetch: u32,
    /// Messages that it holds unsettled, those settled in an open transaction not included.
    pub unsettled: usize,
    /// Publishes without a confirm.
    pub unconfirmed: u64,
    /// In confirm mode.
    pub confirm: bool,
    /// In tx mode.
    pub transactional: bool,
    /// Publishes that wait for a commit.
    pub uncommitted: usize,
    /// Settlements that wait for a commit.
    pub uncommitted_settlements: usize,
    /// Its consumers, oldest first.
    pub consumers: Vec<ConsumerStatus>,
}

/// A snapshot of a consumer.
#[derive(Debug, Clone)]
pub struct ConsumerStatus {
    /// Its id.
    pub id: ConsumerId,
    /// Its queue.
    pub queue: QueueId,
    /// Its queue's name.
    pub queue_name: String,
    /// Its tag.
    pub tag: String,
    /// Messages are settled when they are sent.
    pub no_ack: bool,
    /// The only consumer of its queue.
    pub exclusive: bool,
    /// Its own limit; 0 is none.
    pub prefetch: u16,
}

impl Session {
    /// The login; empty before it.
    pub fn user(&self) -> &str {
        &self.client.user
    }

    /// The virtual host; empty before `open`.
    pub fn vhost(&self) -> &str {
        &self.client.vhost
    }

    /// A snapshot for the management API. Costs time in proportion to channels and consumers.
    pub fn status(&self) -> SessionStatus {
        let state = match self.phase {
            Phase::Greeting | Phase::Starting => "starting",
            Phase::Tuning => "tuning",
            Phase::Opening => "opening",
            Phase::Running if self.alarm.blocks => "blocked",
            Phase::Running if self.alarm.is_on() => "blocking",
            Phase::Running => "running",
            Phase::Closing | Phase::Lingering => "closing",
            Phase::Closed => "closed",
        };
        SessionStatus {
            state,
            user: self.client.user.clone(),
            vhost: self.client.vhost.clone(),
            mechanism: self.client.mechanism.map_or("", Offer::name),
            client_properties: self.client.properties.clone(),
            frame_max: self.frame_max_in,
            channel_max: self.channel_max,
            heartbeat: self.clock.heartbeat_s(),
            frames_in: self.frames_in,
            frames_out: self.outbox.frames_total(),
            channels: self
                .channels
                .iter()
                .map(|(number, channel)| {
                    let transaction = channel.transaction.as_deref();
                    ChannelStatus {
                        number,
                        prefetch: channel.prefetch,
                        global_prefetch: channel.limiter.limit(),
                        unsettled: channel.held.len(),
                        unconfirmed: channel.confirms.as_ref().map_or(0, |c| c.undecided()),
                        confirm: channel.confirms.is_some(),
                        transactional: transaction.is_some(),
                        uncommitted: transaction.map_or(0, Transaction::publishes),
                        uncommitted_settlements: transaction.map_or(0, |tx| {
                            tx.settlements.iter().map(|(tagged, _)| tagged.len()).sum()
                        }),
                        consumers: channel
                            .consumers
                            .iter()
                            .map(|consumer| ConsumerStatus {
                                id: consumer.id,
                                queue: consumer.queue,
                                queue_name: consumer.queue_name.clone(),
                                tag: consumer.tag.clone(),
                                no_ack: consumer.no_ack,
                                exclusive: consumer.exclusive,
                                prefetch: consumer.prefetch,
                            })
                            .collect(),
                    }
                })
                .collect(),
        }
    }
}
