//! `basic.publish`: the checks in RabbitMQ's order, routing, and the way into the queues.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use amqp::request::{ChannelId, Error, Event, Outcome, Publish, Unsettled};
use metadata::access::Right;
use metadata::objects::exchange::ExchangeKind;
use metadata::routes::exchange::ExchangeRoutes;
use metadata::routes::targets::Target;
use model::message::Message;
use model::time::Millis;
use tokio::sync::oneshot;
use wire::properties::Properties;

use crate::gateway::{Gateway, Staged, error};
use crate::origin::{Group, Then};
use crate::reply_to;
use crate::router::{MessageContent, parse_expiration};
use crate::shard::command::{Arrival, Command, Content, Done, Settlement};

/// Who hears what becomes of a publish.
enum Audience {
    /// Nobody: the channel is not in confirm mode.
    Nobody,
    /// The client.
    Confirm { channel: ChannelId, number: u64 },
    /// A transaction: one answer for every queue.
    Transaction(Vec<oneshot::Receiver<bool>>),
}

impl Gateway {
    /// Takes a message. What goes wrong later (a queue refuses it, no queue wants it) reaches the
    /// client by events.
    ///
    /// # Errors
    /// A channel or connection error; the message has gone nowhere.
    pub(super) fn take(&mut self, publish: Publish) -> Result<(), Error> {
        let mut audience = match publish.confirm {
            Some(number) => Audience::Confirm { channel: publish.channel, number },
            None => Audience::Nobody,
        };
        if self.publisher != Some(publish.channel) {
            self.publisher = Some(publish.channel);
            if self.publishers.insert(publish.channel) {
                self.node.publishers.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.publish_for(publish, &mut audience)
    }

    fn publish_for(&mut self, publish: Publish, audience: &mut Audience) -> Result<(), Error> {
        tracing::trace!(target: "walk", "route");
        self.refresh();
        let size = publish.message.body().len() as u64;
        self.counted.published_bytes += size;
        self.sizes.count(size);
        self.counted.published_confirm += u64::from(publish.confirm.is_some());
        // The common case: the same route as the message before, and nothing to look at in the
        // properties.
        if !self.last.route.is_empty() && self.last.route == publish.message.route() {
            let properties = scan(&publish.message)?;
            let plain = properties.headers.is_none()
                && properties.user_id.is_none()
                && properties.reply_to.is_none();
            if plain {
                let facts = properties_facts(&properties, expiration(&properties)?);
                let targets = std::mem::take(&mut self.last.targets);
                self.hand_out(publish, &facts, &targets, audience);
                self.last.targets = targets;
                return Ok(());
            }
        }
        self.publish_checked(publish, audience)
    }

    fn publish_checked(
        &mut self,
        mut publish: Publish,
        audience: &mut Audience,
    ) -> Result<(), Error> {
        let message = publish.message.clone();
        let properties = scan(&message)?;
        let place = self.place()?;
        let name = message.exchange();
        place.access.check_exchange(Right::Write, name).map_err(error)?;
        let Some(exchange) = place.routes.exchange(name).map(Arc::clone) else {
            return Err(Error {
                code: 404,
                text: format!("no exchange '{name}' in vhost '{}'", place.vhost),
            });
        };
        if exchange.internal {
            return Err(Error {
                code: 403,
                text: format!(
                    "cannot publish to internal exchange '{name}' in vhost '{}'",
                    place.vhost
                ),
            });
        }
        let vhost = Arc::clone(&place.vhost);
        if self.exchange.switch(&self.node.exchange_counts, &vhost, name) {
            // The short way counts for the same exchange as the message before.
            self.last.route.clear();
        }
        self.check_user_id(&properties)?;
        let ttl = expiration(&properties)?;
        let more_keys = self.copies(&properties)?;
        self.check_topics(&exchange, &message, &more_keys)?;
        publish.message = self.rewrite(publish.channel, message.clone(), &properties)?;

        let facts = properties_facts(&properties, ttl);
        if name.is_empty() && message.routing_key().starts_with(reply_to::PREFIX) {
            self.reply(&publish, audience);
            return Ok(());
        }
        self.routes.clear();
        let place = self.place()?;
        let (routes, content) = (Arc::clone(&place.routes), MessageContent::new(&properties));
        let routed = if more_keys.is_empty() {
            routes.route(&exchange, message.routing_key(), &content, &mut self.routes)
        } else {
            let keys: Vec<&str> = std::iter::once(message.routing_key())
                .chain(more_keys.iter().map(String::as_str))
                .collect();
            routes.route_keys(&exchange, &keys, &content, &mut self.routes)
        };
        let targets: Vec<Target> = self.routes.targets().to_vec();
        if routed.by_keys_alone
            && more_keys.is_empty()
            && properties.headers.is_none()
            && !targets.is_empty()
        {
            self.last.route.clear();
            self.last.route.extend_from_slice(message.route());
            self.last.targets.clone_from(&targets);
        }
        self.hand_out(publish, &facts, &targets, audience);
        Ok(())
    }

    fn check_user_id(&self, properties: &Properties<'_>) -> Result<(), Error> {
        let (Some(claimed), Some(user)) = (properties.user_id, &self.user) else { return Ok(()) };
        if claimed == user.as_bytes() {
            return Ok(());
        }
        let impersonator = self
            .place
            .as_ref()
            .is_some_and(|place| place.access.user.tags.iter().any(|tag| tag == "impersonator"));
        if impersonator {
            return Ok(());
        }
        Err(Error {
            code: 406,
            text: format!(
                "user_id property set to '{}' but authenticated user was '{user}'",
                String::from_utf8_lossy(claimed)
            ),
        })
    }

    /// The routing keys that `CC` and `BCC` add.
    #[expect(clippy::unused_self, reason = "it reads better beside the other checks")]
    fn copies(&self, properties: &Properties<'_>) -> Result<Vec<String>, Error> {
        if properties.headers.is_none() {
            return Ok(Vec::new());
        }
        let mut keys = Vec::new();
        for header in ["CC", "BCC"] {
            let more = properties.recipients(header).map_err(|kind| Error {
                code: 406,
                text: format!(
                    "invalid message: {{unacceptable_type_in_header,\"{header}\",{kind}}}"
                ),
            })?;
            keys.extend(more.iter().filter_map(|key| String::from_utf8(key.to_vec()).ok()));
        }
        Ok(keys)
    }

    fn check_topics(
        &self,
        exchange: &ExchangeRoutes,
        message: &Message,
        more_keys: &[String],
    ) -> Result<(), Error> {
        let place = self.place()?;
        if exchange.kind != ExchangeKind::Topic || !place.access.has_topic_permissions() {
            return Ok(());
        }
        let keys =
            std::iter::once(message.routing_key()).chain(more_keys.iter().map(String::as_str));
        for key in keys {
            place.access.check_topic(Right::Write, &exchange.name, key).map_err(error)?;
        }
        Ok(())
    }

    /// Takes `BCC` out, and puts the name of the channel's reply consumer in.
    fn rewrite(
        &self,
        channel: ChannelId,
        message: Message,
        properties: &Properties<'_>,
    ) -> Result<Message, Error> {
        let reply_name = match properties.reply_to {
            Some(name) if name == reply_to::NAME.as_bytes() => {
                let Some((_, name)) = self.replies.get(&channel) else {
                    return Err(Error {
                        code: 406,
                        text: "fast reply consumer does not exist".into(),
                    });
                };
                Some(name.as_bytes())
            }
            _ => None,
        };
        let blind = properties.header("BCC").is_some();
        if reply_name.is_none() && !blind {
            return Ok(message);
        }
        let headers = properties.headers.map(|headers| wire::table::without(headers, "BCC"));
        let rewritten = Properties {
            reply_to: reply_name.or(properties.reply_to),
            headers: headers.as_deref(),
            ..*properties
        };
        Ok(message.with_properties(&rewritten.encode()))
    }

    /// A reply on its way to a requester.
    fn reply(&mut self, publish: &Publish, audience: &mut Audience) {
        let taken = self.node.reply_to.deliver(publish.message.routing_key(), &publish.message);
        if !taken && publish.mandatory {
            self.give_back(publish);
        }
        self.answer_now(audience);
    }

    /// Stages the message for every queue that it goes to.
    fn hand_out(
        &mut self,
        publish: Publish,
        facts: &crate::router::Facts,
        targets: &[Target],
        audience: &mut Audience,
    ) {
        self.counted.published += 1;
        self.exchange.published_in += 1;
        self.exchange.published_out += targets.len() as u64;
        self.exchange.confirm_wanted += u64::from(publish.confirm.is_some());
        if targets.is_empty() {
            if publish.mandatory {
                self.exchange.returned += 1;
                self.give_back(&publish);
            } else {
                self.exchange.dropped += 1;
                self.counted.unroutable_dropped += 1;
            }
            self.answer_now(audience);
            return;
        }
        self.counted.routed += 1;
        let bytes = publish.message.encoded_len() + Arrival::OVERHEAD;
        let done = self.done(audience, targets.len());
        let arrival = |queue, content, done| Arrival {
            queue,
            content,
            persistent: facts.persistent,
            priority: facts.priority,
            ttl: facts.ttl,
            done,
        };
        if let ([target], Done::Confirm { .. } | Done::Nothing) = (targets, &done) {
            let index = self.node.shards.index_of(target.id);
            let staged = &mut self.staged[index];
            staged.bytes += bytes;
            let content = Content::Own(publish.message);
            staged.commands.push(Command::Publish(arrival(target.id, content, done)));
            return;
        }
        let content = Content::for_targets(publish.message, targets.len());
        for target in targets {
            let done = match &done {
                Done::Group(group) => Done::Group(Arc::clone(group)),
                _ => Done::Nothing,
            };
            let index = self.node.shards.index_of(target.id);
            let staged = &mut self.staged[index];
            staged.bytes += bytes;
            staged.commands.push(Command::Publish(arrival(target.id, content.clone(), done)));
        }
    }

    fn done(&self, audience: &mut Audience, targets: usize) -> Done {
        let count = u32::try_from(targets).unwrap_or(u32::MAX);
        match audience {
            Audience::Nobody => Done::Nothing,
            Audience::Confirm { channel, number } if targets == 1 => {
                Done::Confirm { channel: *channel, number: *number }
            }
            Audience::Confirm { channel, number } => {
                let origin = Arc::clone(&self.origin);
                let then = Then::Confirm { origin, channel: *channel, number: *number };
                Done::Group(Group::new(count, then))
            }
            Audience::Transaction(answers) => {
                let (sender, receiver) = oneshot::channel();
                answers.push(receiver);
                Done::Group(Group::new(count, Then::Wake(sender)))
            }
        }
    }

    fn give_back(&mut self, publish: &Publish) {
        self.counted.unroutable_returned += 1;
        self.events.push(Event::Returned {
            channel: publish.channel,
            reply_code: 312,
            reply_text: "NO_ROUTE",
            message: publish.message.clone(),
        });
    }

    /// The answer for a message that no queue takes: the broker is done with it.
    fn answer_now(&mut self, audience: &mut Audience) {
        if let Audience::Confirm { channel, number } = *audience {
            self.counted.confirmed += 1;
            self.events.push(Event::Confirmed { channel, number, accepted: true });
        }
    }

    /// A publish that somebody waits for: whether it reached a queue, and whether all took it.
    ///
    /// # Errors
    /// As for a client.
    pub(crate) async fn publish_and_wait(
        &mut self,
        message: Message,
    ) -> Result<(bool, bool), Error> {
        let before = self.counted.routed;
        let mut audience = Audience::Transaction(Vec::new());
        let publish = Publish { channel: 0, confirm: None, mandatory: true, message };
        self.publish_for(publish, &mut audience)?;
        let routed = self.counted.routed > before;
        self.hand_on();
        Ok((routed, all_taken(audience).await))
    }

    /// `tx.commit`: publishes, then settlements; done when every queue has its part.
    pub(super) async fn commit(
        &mut self,
        publishes: Vec<Publish>,
        settlements: Vec<(Vec<Unsettled>, Outcome)>,
    ) -> Result<(), Error> {
        let mut audience = Audience::Transaction(Vec::new());
        for publish in publishes {
            if let Err(error) = self.publish_for(publish, &mut audience) {
                // The channel ends with nothing done: no queue has been given any of it, and what
                // it settled comes back with what it holds.
                self.staged.fill_with(Staged::default);
                self.events.clear();
                let settled = settlements.into_iter().flat_map(|(unsettled, _)| unsettled);
                self.ended.unsettled.extend(settled);
                return Err(error);
            }
        }
        for (unsettled, outcome) in settlements {
            self.settle_as(unsettled, Settlement::Client(outcome));
        }
        self.hand_on();
        if all_taken(audience).await {
            Ok(())
        } else {
            Err(Error { code: 406, text: "partial tx completion".into() })
        }
    }
}

async fn all_taken(audience: Audience) -> bool {
    let Audience::Transaction(answers) = audience else { return true };
    let mut taken = true;
    for answer in answers {
        taken &= answer.await.unwrap_or(false);
    }
    taken
}

fn scan(message: &Message) -> Result<Properties<'_>, Error> {
    Properties::scan(message.properties())
        .map_err(|error| Error { code: 502, text: error.to_string() })
}

fn expiration(properties: &Properties<'_>) -> Result<Option<Millis>, Error> {
    let Some(text) = properties.expiration else { return Ok(None) };
    parse_expiration(text).map(Some).map_err(|reason| Error {
        code: 406,
        text: format!("invalid expiration '{}': {reason}", String::from_utf8_lossy(text)),
    })
}

fn properties_facts(properties: &Properties<'_>, ttl: Option<Millis>) -> crate::router::Facts {
    crate::router::Facts {
        persistent: properties.is_persistent(),
        priority: properties.priority,
        ttl,
    }
}
