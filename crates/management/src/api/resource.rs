//! What a path names.

use crate::http::uri::Segment;

/// A thing below `/api`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// `/overview`
    Overview,
    /// `/cluster-name`
    ClusterName,
    /// `/nodes`
    Nodes,
    /// `/nodes/NODE`
    Node(String),
    /// `/nodes/NODE/memory`, `/nodes/NODE/memory/relative`
    NodeMemory(String, bool),
    /// `/extensions`, and lists of plugins that are not here
    EmptyList,
    /// `/definitions`, `/definitions/VHOST`
    Definitions(Option<String>),
    /// `/parameters`, `/parameters/COMPONENT`, `/parameters/COMPONENT/VHOST`
    Parameters(Option<String>, Option<String>),
    /// `/parameters/COMPONENT/VHOST/NAME`
    Parameter(String, String, String),
    /// `/global-parameters`
    GlobalParameters,
    /// `/global-parameters/NAME`
    GlobalParameter(String),
    /// `/policies`, `/policies/VHOST`
    Policies(PolicyList, Option<String>),
    /// `/policies/VHOST/NAME`
    Policy(PolicyList, String, String),
    /// `/vhost-limits`, `/vhost-limits/VHOST`
    VhostLimits(Option<String>),
    /// `/vhost-limits/VHOST/NAME`
    VhostLimit(String, String),
    /// `/user-limits`, `/user-limits/USER`
    UserLimits(Option<String>),
    /// `/user-limits/USER/NAME`
    UserLimit(String, String),
    /// `/connections`, `/vhosts/VHOST/connections`
    Connections(Option<String>),
    /// `/connections/NAME`
    Connection(String),
    /// `/connections/NAME/channels`
    ConnectionChannels(String),
    /// `/connections/username/USER`
    UserConnections(String),
    /// `/channels`, `/vhosts/VHOST/channels`
    Channels(Option<String>),
    /// `/channels/NAME`
    Channel(String),
    /// `/consumers`, `/consumers/VHOST`
    Consumers(Option<String>),
    /// `/exchanges`, `/exchanges/VHOST`
    Exchanges(Option<String>),
    /// `/exchanges/VHOST/NAME`
    Exchange(String, String),
    /// `/exchanges/VHOST/NAME/publish`
    Publish(String, String),
    /// `/exchanges/VHOST/NAME/bindings/source`, `.../destination`
    ExchangeBindings(String, String, BindingEnd),
    /// `/queues`, `/queues/VHOST`, `/queues/detailed`
    Queues(Option<String>),
    /// `/queues/VHOST/NAME`
    Queue(String, String),
    /// `/queues/VHOST/NAME/bindings`
    QueueBindings(String, String),
    /// `/queues/VHOST/NAME/contents`
    QueueContents(String, String),
    /// `/queues/VHOST/NAME/get`
    QueueGet(String, String),
    /// `/queues/VHOST/NAME/actions`
    QueueActions(String, String),
    /// `/bindings`, `/bindings/VHOST`
    Bindings(Option<String>),
    /// `/bindings/VHOST/e/SOURCE/q/DESTINATION`, `.../e/DESTINATION`
    BindingsBetween(Ends),
    /// `/bindings/VHOST/e/SOURCE/q/DESTINATION/KEY`
    Binding(Ends, Key),
    /// `/vhosts`
    Vhosts,
    /// `/vhosts/VHOST`
    Vhost(String),
    /// `/vhosts/VHOST/permissions`
    VhostPermissions(String),
    /// `/vhosts/VHOST/topic-permissions`
    VhostTopicPermissions(String),
    /// `/vhosts/VHOST/deletion/protection`
    VhostProtection(String),
    /// `/vhosts/VHOST/start/NODE`
    VhostStart(String, String),
    /// `/users`
    Users,
    /// `/users/without-permissions`
    UsersWithoutPermissions,
    /// `/users/bulk-delete`
    UsersBulkDelete,
    /// `/users/USER`
    User(String),
    /// `/users/USER/permissions`
    UserPermissions(String),
    /// `/users/USER/topic-permissions`
    UserTopicPermissions(String),
    /// `/permissions`
    Permissions,
    /// `/permissions/VHOST/USER`
    Permission(String, String),
    /// `/topic-permissions`
    TopicPermissions,
    /// `/topic-permissions/VHOST/USER`
    TopicPermissionsOf(String, String),
    /// `/topic-permissions/VHOST/USER/EXCHANGE`
    TopicPermission(String, String, String),
    /// `/whoami`
    Whoami,
    /// `/login`
    Login,
    /// `/auth/hash_password/PASSWORD`
    HashPassword(String),
    /// `/auth/attempts/NODE`, `/auth/attempts/NODE/source`
    AuthAttempts(String),
    /// `/auth`
    Auth,
    /// `/feature-flags`
    FeatureFlags,
    /// `/feature-flags/NAME/enable`
    EnableFeatureFlag(String),
    /// `/deprecated-features`
    DeprecatedFeatures,
    /// `/deprecated-features/used`
    UsedDeprecatedFeatures,
    /// `/reset`, `/reset/NODE`
    Reset,
    /// `/rebalance/queues`
    Rebalance,
    /// `/version`
    Version,
    /// `/aliveness-test/VHOST`
    Aliveness(String),
    /// `/healthchecks/node`
    OldHealth,
    /// `/health/checks/...`
    Health(Vec<String>),
    /// `/queues/quorum/VHOST/NAME/status`
    QuorumStatus(String, String),
    /// `/nodes/NODE/drain`
    NodeDrain(String),
    /// `/nodes/NODE/revive`
    NodeRevive(String),
    /// `/queues/quorum/VHOST/NAME/replicas/add`
    QuorumAddMember(String, String),
    /// `/queues/quorum/VHOST/NAME/replicas/delete`
    QuorumDeleteMember(String, String),
    /// `/queues/quorum/replicas/on/NODE/grow`
    QuorumGrow(String),
    /// `/queues/quorum/replicas/grow`
    QuorumGrowToCount,
    /// `/queues/quorum/replicas/checkpoint`.
    QuorumCheckpoints,
    /// `/queues/quorum/VHOST/NAME/checkpoint`.
    QuorumCheckpoint(String, String),
    /// `/queues/quorum/replicas/on/NODE/shrink`
    QuorumShrink(String),
    /// `/queues/quorum/VHOST/NAME/replicas/force-shrink`
    QuorumForceShrink(String, String),
    /// `/queues/quorum/replicas/on/NODE/force-shrink`
    QuorumForceShrinkAll(String),
    /// `/queues/quorum/VHOST/NAME/peek/POSITION` and `/queues/VHOST/NAME/peek/POSITION`
    QuorumPeek(String, String, String),
    /// `/queues/quorum/VHOST/NAME/leader`
    QuorumLeader(String, String),
    /// `/queues/quorum/VHOST/NAME/plan`
    QuorumPlan(String, String),
    /// `/reconciliation`
    Reconciliation,
    /// `/reconciliation/now`
    ReconcileNow,
    /// `/journals`
    Journals,
    /// `/journals/NAME`
    Journal(String),
    /// `/journals/NAME/backup`
    JournalBackup(String),
    /// `/journals/NAME/adopt`
    JournalAdopt(String),
    /// `/journals/NAME/restore-copy`
    JournalRestore(String),
    /// `/journals/NAME/discard-copy`
    JournalDiscard(String),
    /// `/abandoned-journals`
    AbandonedJournals,
    /// `/activation`
    Activations,
    /// `/activation/JOURNAL`
    Activation(String),
    /// `/activation/JOURNAL/coordinated`
    ActivationCoordinated(String),
    /// `/activation/JOURNAL/local`
    ActivationLocal(String),
}

/// The two lists of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyList {
    /// `/policies`
    Users,
    /// `/operator-policies`
    Operators,
}

/// An end of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingEnd {
    /// Where messages come from.
    Source,
    /// Where they go to.
    Destination,
}

/// Both ends of bindings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    /// The virtual host.
    pub vhost: String,
    /// The exchange that messages come from; the default exchange is the empty name.
    pub source: String,
    /// The queue or exchange that they go to.
    pub destination: String,
    /// Whether the destination is a queue.
    pub to_queue: bool,
}

/// The key of a binding in a path: clients differ in how often they encode it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// As it stands in the path.
    pub raw: String,
    /// Decoded once, which is right.
    pub text: String,
}

impl Resource {
    /// Reads the segments behind `/api`. `vhost` gives the name of the virtual host that a segment
    /// means.
    pub fn parse(segments: &[Segment], vhost: &dyn Fn(&Segment) -> String) -> Option<Self> {
        let texts: Vec<&str> = segments.iter().map(|segment| segment.text.as_str()).collect();
        let text = |at: usize| texts[at].to_owned();
        let vhost = |at: usize| vhost(&segments[at]);
        let exchange = |at: usize| exchange_name(texts[at]);
        let ends = |to_queue: bool| Ends {
            vhost: vhost(1),
            source: exchange(3),
            destination: if to_queue { text(5) } else { exchange(5) },
            to_queue,
        };
        Some(match texts.as_slice() {
            ["overview"] => Self::Overview,
            ["cluster-name"] => Self::ClusterName,
            ["nodes"] => Self::Nodes,
            ["nodes", _, "drain"] => Self::NodeDrain(text(1)),
            ["nodes", _, "revive"] => Self::NodeRevive(text(1)),
            ["nodes", _] => Self::Node(text(1)),
            ["nodes", _, "memory"] => Self::NodeMemory(text(1), false),
            ["nodes", _, "memory", "relative"] => Self::NodeMemory(text(1), true),
            ["extensions" | "shovels" | "federation-links" | "traces" | "trace-files"]
            | ["shovels" | "federation-links" | "traces", _]
            | ["stream", "connections" | "publishers" | "consumers"]
            | ["stream", "connections" | "publishers" | "consumers", _]
            | ["connections", _, "sessions"] => Self::EmptyList,
            ["definitions" | "all-configuration"] => Self::Definitions(None),
            ["definitions", _] => Self::Definitions(Some(vhost(1))),
            ["parameters"] => Self::Parameters(None, None),
            ["parameters", _] => Self::Parameters(Some(text(1)), None),
            ["parameters", _, _] => Self::Parameters(Some(text(1)), Some(vhost(2))),
            ["parameters", _, _, _] => Self::Parameter(text(1), vhost(2), text(3)),
            ["global-parameters"] => Self::GlobalParameters,
            ["global-parameters", _] => Self::GlobalParameter(text(1)),
            ["policies"] => Self::Policies(PolicyList::Users, None),
            ["policies", _] => Self::Policies(PolicyList::Users, Some(vhost(1))),
            ["policies", _, _] => Self::Policy(PolicyList::Users, vhost(1), text(2)),
            ["operator-policies"] => Self::Policies(PolicyList::Operators, None),
            ["operator-policies", _] => Self::Policies(PolicyList::Operators, Some(vhost(1))),
            ["operator-policies", _, _] => Self::Policy(PolicyList::Operators, vhost(1), text(2)),
            ["vhost-limits"] => Self::VhostLimits(None),
            ["vhost-limits", _] => Self::VhostLimits(Some(vhost(1))),
            ["vhost-limits", _, _] => Self::VhostLimit(vhost(1), text(2)),
            ["user-limits"] => Self::UserLimits(None),
            ["user-limits", _] => Self::UserLimits(Some(text(1))),
            ["user-limits", _, _] => Self::UserLimit(text(1), text(2)),
            ["connections"] => Self::Connections(None),
            ["connections", "username", _] => Self::UserConnections(text(2)),
            ["connections", _] => Self::Connection(text(1)),
            ["connections", _, "channels"] => Self::ConnectionChannels(text(1)),
            ["channels"] => Self::Channels(None),
            ["channels", _] => Self::Channel(text(1)),
            ["consumers"] => Self::Consumers(None),
            ["consumers", _] => Self::Consumers(Some(vhost(1))),
            ["exchanges"] => Self::Exchanges(None),
            ["exchanges", _] => Self::Exchanges(Some(vhost(1))),
            ["exchanges", _, _] => Self::Exchange(vhost(1), exchange(2)),
            ["exchanges", _, _, "publish"] => Self::Publish(vhost(1), exchange(2)),
            ["exchanges", _, _, "bindings", "source"] => {
                Self::ExchangeBindings(vhost(1), exchange(2), BindingEnd::Source)
            }
            ["exchanges", _, _, "bindings", "destination"] => {
                Self::ExchangeBindings(vhost(1), exchange(2), BindingEnd::Destination)
            }
            ["queues"] | ["queues", "detailed"] => Self::Queues(None),
            ["queues", "quorum", _, _, "status"] => Self::QuorumStatus(vhost(2), text(3)),
            ["queues", "quorum", "replicas", "grow"] => Self::QuorumGrowToCount,
            ["queues", "quorum", "replicas", "checkpoint"] => Self::QuorumCheckpoints,
            ["queues", "quorum", _, _, "checkpoint"] => Self::QuorumCheckpoint(vhost(2), text(3)),
            ["queues", "quorum", "replicas", "on", _, "grow"] => Self::QuorumGrow(text(4)),
            ["queues", "quorum", "replicas", "on", _, "shrink"] => Self::QuorumShrink(text(4)),
            ["queues", "quorum", "replicas", "on", _, "force-shrink"] => {
                Self::QuorumForceShrinkAll(text(4))
            }
            ["queues", "quorum", _, _, "replicas", "force-shrink"] => {
                Self::QuorumForceShrink(vhost(2), text(3))
            }
            ["queues", "quorum", _, _, "replicas", "add"] => {
                Self::QuorumAddMember(vhost(2), text(3))
            }
            ["queues", "quorum", _, _, "replicas", "delete"] => {
                Self::QuorumDeleteMember(vhost(2), text(3))
            }
            ["queues", "quorum", _, _, "peek", _] => Self::QuorumPeek(vhost(2), text(3), text(5)),
            ["queues", _, _, "peek", _] => Self::QuorumPeek(vhost(1), text(2), text(4)),
            ["queues", "quorum", _, _, "leader"] => Self::QuorumLeader(vhost(2), text(3)),
            ["queues", "quorum", _, _, "plan"] => Self::QuorumPlan(vhost(2), text(3)),
            ["queues", _] => Self::Queues(Some(vhost(1))),
            ["queues", _, _] => Self::Queue(vhost(1), text(2)),
            ["queues", _, _, "bindings"] => Self::QueueBindings(vhost(1), text(2)),
            ["queues", _, _, "contents"] => Self::QueueContents(vhost(1), text(2)),
            ["queues", _, _, "get"] => Self::QueueGet(vhost(1), text(2)),
            ["queues", _, _, "actions"] => Self::QueueActions(vhost(1), text(2)),
            ["bindings"] => Self::Bindings(None),
            ["bindings", _] => Self::Bindings(Some(vhost(1))),
            ["bindings", _, "e", _, "q", _] => Self::BindingsBetween(ends(true)),
            ["bindings", _, "e", _, "e", _] => Self::BindingsBetween(ends(false)),
            ["bindings", _, "e", _, kind @ ("q" | "e"), _, _] => Self::Binding(
                ends(*kind == "q"),
                Key { raw: segments[6].raw.clone(), text: text(6) },
            ),
            ["vhosts"] => Self::Vhosts,
            ["vhosts", _] => Self::Vhost(vhost(1)),
            ["vhosts", _, "permissions"] => Self::VhostPermissions(vhost(1)),
            ["vhosts", _, "topic-permissions"] => Self::VhostTopicPermissions(vhost(1)),
            ["vhosts", _, "connections"] => Self::Connections(Some(vhost(1))),
            ["vhosts", _, "channels"] => Self::Channels(Some(vhost(1))),
            ["vhosts", _, "deletion", "protection"] => Self::VhostProtection(vhost(1)),
            ["vhosts", _, "start", _] => Self::VhostStart(vhost(1), text(3)),
            ["users"] => Self::Users,
            ["users", "without-permissions"] => Self::UsersWithoutPermissions,
            ["users", "bulk-delete"] => Self::UsersBulkDelete,
            ["users", _] => Self::User(text(1)),
            ["users", _, "permissions"] => Self::UserPermissions(text(1)),
            ["users", _, "topic-permissions"] => Self::UserTopicPermissions(text(1)),
            ["permissions"] => Self::Permissions,
            ["permissions", _, _] => Self::Permission(vhost(1), text(2)),
            ["topic-permissions"] => Self::TopicPermissions,
            ["topic-permissions", _, _] => Self::TopicPermissionsOf(vhost(1), text(2)),
            ["topic-permissions", _, _, _] => Self::TopicPermission(vhost(1), text(2), exchange(3)),
            ["whoami"] => Self::Whoami,
            ["login"] => Self::Login,
            ["auth"] => Self::Auth,
            ["auth", "hash_password", _] => Self::HashPassword(text(2)),
            ["auth", "attempts", _] | ["auth", "attempts", _, "source"] => {
                Self::AuthAttempts(text(2))
            }
            ["feature-flags"] => Self::FeatureFlags,
            ["feature-flags", _, "enable"] => Self::EnableFeatureFlag(text(1)),
            ["deprecated-features"] => Self::DeprecatedFeatures,
            ["deprecated-features", "used"] => Self::UsedDeprecatedFeatures,
            ["reset"] | ["reset", _] => Self::Reset,
            ["rebalance", "queues"] => Self::Rebalance,
            ["reconciliation"] => Self::Reconciliation,
            ["reconciliation", "now"] => Self::ReconcileNow,
            ["journals"] => Self::Journals,
            ["journals", _] => Self::Journal(text(1)),
            ["journals", _, "backup"] => Self::JournalBackup(text(1)),
            ["journals", _, "adopt"] => Self::JournalAdopt(text(1)),
            ["journals", _, "restore-copy"] => Self::JournalRestore(text(1)),
            ["journals", _, "discard-copy"] => Self::JournalDiscard(text(1)),
            ["abandoned-journals"] => Self::AbandonedJournals,
            ["activation"] => Self::Activations,
            ["activation", _] => Self::Activation(text(1)),
            ["activation", _, "coordinated"] => Self::ActivationCoordinated(text(1)),
            ["activation", _, "local"] => Self::ActivationLocal(text(1)),
            ["version"] => Self::Version,
            ["aliveness-test", _] => Self::Aliveness(vhost(1)),
            ["healthchecks", "node"] | ["healthchecks", "node", _] => Self::OldHealth,
            ["health", "checks", rest @ ..] if !rest.is_empty() => {
                Self::Health(rest.iter().map(|part| (*part).to_owned()).collect())
            }
            _ => return None,
        })
    }

    /// The methods that it takes, `OPTIONS` left out.
    pub fn methods(&self) -> &'static [&'static str] {
        match self {
            Self::ClusterName
            | Self::Parameter(..)
            | Self::GlobalParameter(_)
            | Self::Policy(..)
            | Self::Exchange(..)
            | Self::Queue(..)
            | Self::Vhost(_)
            | Self::User(_)
            | Self::Journal(_)
            | Self::Permission(..) => &["HEAD", "GET", "PUT", "DELETE"],
            Self::TopicPermissionsOf(..) => &["HEAD", "GET", "PUT", "DELETE"],
            Self::TopicPermission(..) | Self::AuthAttempts(_) => &["HEAD", "GET", "DELETE"],
            Self::VhostLimit(..) | Self::UserLimit(..) => &["HEAD", "GET", "PUT", "DELETE"],
            Self::Definitions(_) => &["HEAD", "GET", "POST"],
            Self::Connection(_) | Self::UserConnections(_) | Self::Binding(..) | Self::Node(_) => {
                &["HEAD", "GET", "DELETE"]
            }
            Self::Publish(..)
            | Self::QueueGet(..)
            | Self::QueueActions(..)
            | Self::UsersBulkDelete
            | Self::VhostStart(..)
            | Self::Login
            | Self::QuorumAddMember(..)
            | Self::QuorumGrow(_)
            | Self::QuorumGrowToCount
            | Self::QuorumCheckpoints
            | Self::QuorumCheckpoint(..)
            | Self::QuorumForceShrink(..)
            | Self::QuorumForceShrinkAll(_)
            | Self::NodeDrain(_)
            | Self::NodeRevive(_)
            | Self::JournalAdopt(_)
            | Self::JournalRestore(_)
            | Self::JournalDiscard(_)
            | Self::Rebalance
            | Self::ReconcileNow => &["POST"],
            Self::QueueContents(..)
            | Self::QuorumDeleteMember(..)
            | Self::QuorumShrink(_)
            | Self::Reset => &["DELETE"],
            Self::BindingsBetween(_) => &["HEAD", "GET", "POST"],
            Self::VhostProtection(_) => &["POST", "DELETE"],
            Self::HashPassword(_) => &["HEAD", "GET", "PUT"],
            Self::JournalBackup(_) => &["PUT", "DELETE"],
            Self::EnableFeatureFlag(_)
            | Self::QuorumLeader(..)
            | Self::ActivationCoordinated(_)
            | Self::ActivationLocal(_) => &["PUT"],
            _ => &["HEAD", "GET"],
        }
    }

    /// Whether it answers without credentials: probes and the version.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Version | Self::Login | Self::Auth => true,
            Self::Health(path) => matches!(
                path.first().map(String::as_str),
                Some(
                    "is-in-service"
                        | "ready-to-serve-clients"
                        | "below-node-connection-limit"
                        | "reached-target-cluster-size"
                )
            ),
            _ => false,
        }
    }
}

/// The default exchange is spelled `amq.default` in paths.
fn exchange_name(text: &str) -> String {
    if text == "amq.default" { String::new() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::uri::segments;

    fn check(path: &str) -> Option<Resource> {
        let segments = segments(path).unwrap();
        Resource::parse(&segments[1..], &|segment| segment.text.clone())
    }

    #[test]
    fn binding_paths_name_the_default_exchange_in_two_ways() {
        let ends = Ends {
            vhost: "/".into(),
            source: String::new(),
            destination: "q".into(),
            to_queue: true,
        };
        assert_eq!(
            check("/api/bindings/%2F/e//q/q"),
            Some(Resource::BindingsBetween(ends.clone()))
        );
        assert_eq!(
            check("/api/bindings/%2F/e/amq.default/q/q"),
            Some(Resource::BindingsBetween(ends.clone()))
        );
        assert_eq!(
            check("/api/bindings/%2F/e/amq.default/q/q/a.%2523"),
            Some(Resource::Binding(ends, Key { raw: "a.%2523".into(), text: "a.%23".into() }))
        );
    }

    #[test]
    fn names_may_hold_slashes() {
        assert_eq!(
            check("/api/queues/a%2Fb/c%2Fd/get"),
            Some(Resource::QueueGet("a/b".into(), "c/d".into()))
        );
        assert_eq!(check("/api/vhosts/%2F/"), Some(Resource::Vhost("/".into())));
        assert_eq!(check("/api/nothing"), None);
        assert_eq!(check("/api"), None);
    }
}
