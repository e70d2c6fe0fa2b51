//! What arguments, policy and operator policy come to for a queue or an exchange.
//!
//! ```text
//!  numbers           the smallest of argument, policy and operator policy
//!  a target size     the largest of them: it is a goal and no limit
//!  everything else   operator policy over policy; argument over both
//! ```

use amq_protocol_types::FieldTable;
use model::time::Millis;
use serde_json::{Map, Value};

use crate::arguments;
use crate::checks::policy::suits_queue;
use crate::objects::Name;
use crate::objects::exchange::Exchange;
use crate::objects::policy::Policy;
use crate::objects::queue::{Queue, QueueKind};
use crate::state::{CompiledPolicy, State, VhostState};

/// The settings that a queue has to keep.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueSettings {
    /// How long a message may wait; `Some(0)`: only if it is delivered at once.
    pub ttl: Option<Millis>,
    /// How long the queue lives without use.
    pub expires: Option<Millis>,
    /// The most ready messages.
    pub max_length: Option<u64>,
    /// The most bytes of bodies of ready messages.
    pub max_bytes: Option<u64>,
    /// What happens beyond these.
    pub overflow: Overflow,
    /// Where dead letters go; `Some("")` is the default exchange.
    pub dead_letter_exchange: Option<Name>,
    /// The key of dead letters; `None`: their own.
    pub dead_letter_routing_key: Option<Name>,
    /// A dead letter stays until its targets have it. The queue takes it as false unless it is a
    /// quorum queue that refuses what is over its limits.
    pub dead_letters_at_least_once: bool,
    /// How often a message may be given back; `None`: any number of times.
    pub delivery_limit: Option<u64>,
    /// Which messages wait when they come back, and how long; `None`: none does.
    pub delayed_retry: Option<DelayedRetry>,
    /// The highest priority; `None`: no priorities.
    pub max_priority: Option<u8>,
    /// One consumer at a time.
    pub single_active_consumer: bool,
    /// How long a consumer may hold a message; `None`: what the node's configuration says.
    pub consumer_timeout: Option<Millis>,
    /// The policy that applies.
    pub policy: Option<Name>,
    /// The operator policy that applies.
    pub operator_policy: Option<Name>,
    /// Both merged.
    pub effective_policy_definition: Map<String, Value>,
}

/// Messages that come back wait before they are delivered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelayedRetry {
    /// Which of them.
    pub which: Retried,
    /// How long for each time that it failed; at least 1 ms.
    pub min: Millis,
    /// How long at most.
    pub max: Millis,
}

/// Which messages wait when they come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retried {
    /// Those that failed.
    Failed,
    /// Those that did not.
    Returned,
    /// All.
    All,
}

impl Retried {
    /// The value of that name; `disabled` is none.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "failed" => Some(Self::Failed),
            "returned" => Some(Self::Returned),
            "all" => Some(Self::All),
            _ => None,
        }
    }
}

/// The policies that apply to a queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueuePolicies {
    /// The policy.
    pub policy: Option<Name>,
    /// The operator policy.
    pub operator_policy: Option<Name>,
    /// Both merged.
    pub definition: Map<String, Value>,
}

/// What asks for how many members of a quorum queue; see [`State::target_size`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TargetSize {
    /// `target-group-size` of the policy that applies.
    pub policy: Option<u64>,
    /// `target-group-size` of the operator policy that applies.
    pub operator_policy: Option<u64>,
    /// `x-quorum-target-group-size`.
    pub argument: Option<u64>,
}

/// The key of a policy that asks for members.
const TARGET_SIZE: &str = "target-group-size";

/// What happens to messages beyond a queue's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overflow {
    /// The oldest goes.
    #[default]
    DropHead,
    /// The new one is refused.
    RejectPublish,
    /// The new one is refused and dead-lettered.
    RejectPublishDlx,
}

impl Overflow {
    /// The value of that name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "drop-head" => Some(Self::DropHead),
            "reject-publish" => Some(Self::RejectPublish),
            "reject-publish-dlx" => Some(Self::RejectPublishDlx),
            _ => None,
        }
    }
}

impl State {
    /// The settings of a queue as of now.
    pub fn effective_queue(&self, queue: &Queue) -> QueueSettings {
        let Some(vhost) = self.vhosts.get(&queue.vhost) else { return QueueSettings::default() };
        let policies = vhost.queue_policies(queue);
        settings(queue.kind, &queue.arguments, policies)
    }

    /// The policies that apply to a queue, for listings.
    pub fn queue_policies(&self, queue: &Queue) -> QueuePolicies {
        self.vhosts.get(&queue.vhost).map(|vhost| vhost.queue_policies(queue)).unwrap_or_default()
    }

    /// What asks for how many members of a quorum queue there should be, as of now.
    pub fn target_size(&self, queue: &Queue) -> TargetSize {
        let Some(vhost) = self.vhosts.get(&queue.vhost) else { return TargetSize::default() };
        let said = |policy: Option<&Policy>| policy?.definition.get(TARGET_SIZE)?.as_u64();
        let argument = arguments::integer(&queue.arguments, "x-quorum-target-group-size");
        TargetSize {
            policy: said(vhost.queue_policy(queue)),
            operator_policy: said(vhost.operator_policy(queue)),
            argument: argument.and_then(|size| u64::try_from(size).ok()),
        }
    }

    /// The policy that applies to an exchange, for listings.
    pub fn exchange_policy(&self, exchange: &Exchange) -> Option<&Policy> {
        self.vhosts.get(&exchange.vhost)?.exchange_policy(exchange)
    }

    /// Where an exchange's unroutable messages go; the argument wins over the policy.
    pub fn alternate_exchange(&self, exchange: &Exchange) -> Option<Name> {
        self.vhosts.get(&exchange.vhost)?.alternate_exchange(exchange)
    }
}

impl VhostState {
    fn queue_policies(&self, queue: &Queue) -> QueuePolicies {
        let policy = self.queue_policy(queue);
        let operator = self.operator_policy(queue);
        let mut definition = policy.map(|policy| policy.definition.clone()).unwrap_or_default();
        if let Some(operator) = operator {
            merge(&mut definition, &operator.definition);
        }
        let name = |policy: &Policy| Name::clone(&policy.name);
        QueuePolicies { policy: policy.map(name), operator_policy: operator.map(name), definition }
    }

    pub(crate) fn queue_policy(&self, queue: &Queue) -> Option<&Policy> {
        best(self.policies.values(), |policy| policy.applies_to_queue(queue))
    }

    /// The policy that a queue will have.
    pub(crate) fn policy_of_new_queue(&self, kind: QueueKind, name: &str) -> Option<&Policy> {
        best(self.policies.values(), |policy| policy.applies_to(kind, name))
    }

    pub(crate) fn operator_policy(&self, queue: &Queue) -> Option<&Policy> {
        best(self.operator_policies.values(), |policy| policy.applies_to_queue(queue))
    }

    pub(crate) fn exchange_policy(&self, exchange: &Exchange) -> Option<&Policy> {
        best(self.policies.values(), |policy| {
            policy.policy.apply_to.covers_exchanges() && policy.pattern.matches(&exchange.name)
        })
    }

    pub(crate) fn alternate_exchange(&self, exchange: &Exchange) -> Option<Name> {
        if let Some(name) = arguments::string(&exchange.arguments, "alternate-exchange") {
            return Some(name.as_ref().into());
        }
        let policy = self.exchange_policy(exchange)?;
        policy.definition.get("alternate-exchange")?.as_str().map(Name::from)
    }
}

impl CompiledPolicy {
    /// A policy with a key that the queue's type cannot honour does not apply.
    pub(crate) fn applies_to_queue(&self, queue: &Queue) -> bool {
        self.applies_to(queue.kind, &queue.name)
    }

    fn applies_to(&self, kind: QueueKind, name: &str) -> bool {
        self.policy.apply_to.covers_queue(kind)
            && self.pattern.matches(name)
            && suits_queue(&self.policy.definition, kind)
    }
}

/// The matching policy of the highest priority; among equals the first by name.
fn best<'p>(
    policies: impl Iterator<Item = &'p std::sync::Arc<CompiledPolicy>>,
    matches: impl Fn(&CompiledPolicy) -> bool,
) -> Option<&'p Policy> {
    let mut best: Option<&Policy> = None;
    for compiled in policies {
        let beats = best.is_none_or(|best| compiled.policy.priority > best.priority);
        if beats && matches(compiled) {
            best = Some(&compiled.policy);
        }
    }
    best
}

/// Lays an operator policy over a policy.
fn merge(definition: &mut Map<String, Value>, operator: &Map<String, Value>) {
    for (key, value) in operator {
        let merged = match (definition.get(key).and_then(Value::as_i64), value.as_i64()) {
            // A negative delivery limit is none, so the other one is the smaller.
            (Some(own), Some(operator)) if own < 0 => operator.into(),
            (Some(own), Some(operator)) if operator < 0 => own.into(),
            // The longest of the shortest waits.
            (Some(own), Some(operator)) if key == "delayed-retry-min" => own.max(operator).into(),
            (Some(own), Some(operator)) if key == TARGET_SIZE => own.max(operator).into(),
            (Some(own), Some(operator)) => own.min(operator).into(),
            _ => value.clone(),
        };
        definition.insert(key.clone(), merged);
    }
}

/// How often a message of a quorum queue may come back that says nothing itself.
const QUORUM_DELIVERY_LIMIT: u64 = 20;

fn settings(kind: QueueKind, arguments: &FieldTable, policies: QueuePolicies) -> QueueSettings {
    let QueuePolicies { policy, operator_policy, definition } = policies;
    let number = |argument: &str, key: &str| {
        let argument = arguments::integer(arguments, argument);
        let policy = definition.get(key).and_then(Value::as_i64);
        [argument, policy].into_iter().flatten().filter_map(|value| u64::try_from(value).ok()).min()
    };
    let text = |argument: &str, key: &str| {
        arguments::string(arguments, argument)
            .map(|text| Name::from(text.as_ref()))
            .or_else(|| definition.get(key).and_then(Value::as_str).map(Name::from))
    };
    let millis = |argument: &str, key: &str| number(argument, key).map(Millis);
    let delayed_retry = || {
        let which = Retried::parse(&text("x-delayed-retry-type", "delayed-retry-type")?)?;
        // A queue that does not say how long is one that does not wait: RabbitMQ's policies must
        // say it, its arguments need not.
        let longest = [
            arguments::integer(arguments, "x-delayed-retry-min"),
            definition.get("delayed-retry-min").and_then(Value::as_i64),
        ];
        let min = longest.into_iter().flatten().filter(|&min| min > 0).max()?;
        let min = Millis(u64::try_from(min).ok()?);
        let max =
            millis("x-delayed-retry-max", "delayed-retry-max").map_or(min, |max| max.max(min));
        Some(DelayedRetry { which, min, max })
    };
    // A negative one says that there is none.
    let says_limit =
        arguments.contains_key("x-delivery-limit") || definition.contains_key("delivery-limit");
    let overflow = match kind {
        QueueKind::Classic => text("x-overflow", "overflow"),
        // Here the policy wins.
        QueueKind::Quorum => definition
            .get("overflow")
            .and_then(Value::as_str)
            .map(Name::from)
            .or_else(|| text("x-overflow", "overflow")),
    };
    let overflow = match (kind, overflow.and_then(|name| Overflow::parse(&name))) {
        // A quorum queue does not know it, and does what it does by default.
        (QueueKind::Quorum, Some(Overflow::RejectPublishDlx)) => Overflow::DropHead,
        (_, overflow) => overflow.unwrap_or_default(),
    };
    QueueSettings {
        ttl: millis("x-message-ttl", "message-ttl"),
        expires: millis("x-expires", "expires"),
        max_length: number("x-max-length", "max-length"),
        max_bytes: number("x-max-length-bytes", "max-length-bytes"),
        overflow,
        dead_letter_exchange: text("x-dead-letter-exchange", "dead-letter-exchange"),
        dead_letter_routing_key: text("x-dead-letter-routing-key", "dead-letter-routing-key"),
        dead_letters_at_least_once: kind == QueueKind::Quorum
            && text("x-dead-letter-strategy", "dead-letter-strategy").as_deref()
                == Some("at-least-once"),
        delivery_limit: number("x-delivery-limit", "delivery-limit").or_else(|| {
            (kind == QueueKind::Quorum && !says_limit).then_some(QUORUM_DELIVERY_LIMIT)
        }),
        delayed_retry: delayed_retry().filter(|_| kind == QueueKind::Quorum),
        max_priority: arguments::integer(arguments, "x-max-priority")
            .filter(|_| kind == QueueKind::Classic)
            .and_then(|value| u8::try_from(value).ok())
            .filter(|&value| value > 0),
        single_active_consumer: arguments::boolean(arguments, "x-single-active-consumer")
            .unwrap_or(false),
        consumer_timeout: millis("x-consumer-timeout", "consumer-timeout"),
        policy,
        operator_policy,
        effective_policy_definition: definition,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::command::{Command, DeclareQueue};
    use crate::objects::policy::{ApplyTo, Policy};
    use crate::scene::{Act, integer, queue, state, table, text};

    fn policy(target: u64) -> Policy {
        let Value::Object(definition) = json!({"target-group-size": target}) else {
            unreachable!()
        };
        Policy {
            vhost: "/".into(),
            name: "p".into(),
            pattern: String::new(),
            definition,
            priority: 0,
            apply_to: ApplyTo::QuorumQueues,
        }
    }

    #[test]
    fn a_target_size_is_a_goal_so_the_largest_counts() {
        let mut state = state();
        let quorum =
            table([("x-queue-type", text("quorum")), ("x-quorum-target-group-size", integer(3))]);
        let declare = DeclareQueue { arguments: quorum, ..queue("q") };
        let queue = state.apply(Command::DeclareQueue(declare)).unwrap().queue.unwrap();
        let expected =
            |policy, operator_policy| TargetSize { policy, operator_policy, argument: Some(3) };
        assert_eq!(state.target_size(&queue), expected(None, None));
        let outcome = state.apply(Command::PutPolicy(policy(7))).unwrap();
        assert_eq!(outcome.queues_changed, [queue.id], "whoever keeps it whole hears of it");
        state.apply(Command::PutOperatorPolicy(policy(5))).unwrap();
        assert_eq!(state.target_size(&queue), expected(Some(7), Some(5)));
        let merged = state.effective_queue(&queue).effective_policy_definition;
        assert_eq!(json!(merged), json!({"target-group-size": 7}));
        let gone = Command::DeletePolicy { vhost: "/".into(), name: "p".into() };
        assert_eq!(state.apply(gone).unwrap().queues_changed, [queue.id]);
        assert_eq!(state.target_size(&queue), expected(None, Some(5)));
        // Zero says nothing, and classic queues have no members.
        state.apply(Command::PutOperatorPolicy(policy(0))).unwrap();
        assert_eq!(state.target_size(&queue), expected(None, Some(0)));
        let classic = state.add_queue("classic");
        assert_eq!(state.target_size(&classic), TargetSize::default());
    }
}
