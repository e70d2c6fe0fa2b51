//! From a resource and a method to a handler.

use axum::http::Method;
use serde_json::Value;

use super::call::Call;
use super::resource::Resource;
use super::{
    activation, bindings, cluster, connections, consumers, definitions, exchanges, features,
    health, journals, limits, messages, nodes, overview, parameters, permissions, policies, queues,
    quorum, reconciliation, replicas, users, vhosts,
};
use crate::http::answer::Answer;
use crate::http::failure::{Failure, Outcome};
use crate::node::Node;

/// What is done to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Get,
    Put,
    Post,
    Delete,
}

/// Performs a request whose method the resource takes.
pub(super) async fn dispatch<N: Node>(
    call: &Call<'_, N>,
    resource: &Resource,
    method: &Method,
) -> Outcome<Answer> {
    use Resource as R;
    use Verb::{Delete, Get, Post, Put};
    let verb = match method.as_str() {
        "GET" | "HEAD" => Get,
        "PUT" => Put,
        "POST" => Post,
        "DELETE" => Delete,
        _ => return Err(Failure::method_not_allowed()),
    };
    match (resource, verb) {
        (R::Overview, Get) => overview::get(call).await,
        (R::ClusterName, Get) => Ok(nodes::cluster_name(call)),
        (R::ClusterName, Put) => nodes::rename_cluster(call).await,
        (R::Nodes, Get) => nodes::list(call).await,
        (R::Node(name), Get) => nodes::get(call, name).await,
        (R::Node(name), Delete) => cluster::forget(call, name).await,
        (R::NodeDrain(name), Post) => cluster::drain(call, name).await,
        (R::NodeRevive(name), Post) => cluster::revive(call, name).await,
        (R::NodeMemory(name, relative), Get) => nodes::memory(call, name, *relative).await,
        (R::EmptyList, Get) => Ok(Answer::Json(Value::Array(vec![]))),
        (R::Definitions(None), Get) => definitions::export(call),
        (R::Definitions(Some(vhost)), Get) => definitions::export_vhost(call, vhost),
        (R::Definitions(None), Post) => definitions::import(call, None).await,
        (R::Definitions(Some(vhost)), Post) => definitions::import(call, Some(vhost)).await,

        (R::Parameters(component, vhost), Get) => {
            parameters::list(call, component.as_deref(), vhost.as_deref())
        }
        (R::Parameter(component, vhost, name), Get) => {
            parameters::get(call, component, vhost, name)
        }
        (R::Parameter(component, vhost, name), Put) => {
            parameters::put(call, component, vhost, name).await
        }
        (R::Parameter(component, vhost, name), Delete) => {
            parameters::delete(call, component, vhost, name).await
        }
        (R::GlobalParameters, Get) => parameters::list_global(call),
        (R::GlobalParameter(name), Get) => parameters::get_global(call, name),
        (R::GlobalParameter(name), Put) => parameters::put_global(call, name).await,
        (R::GlobalParameter(name), Delete) => parameters::delete_global(call, name).await,
        (R::Policies(list, vhost), Get) => policies::list(call, *list, vhost.as_deref()),
        (R::Policy(list, vhost, name), Get) => policies::get(call, *list, vhost, name),
        (R::Policy(list, vhost, name), Put) => policies::put(call, *list, vhost, name).await,
        (R::Policy(list, vhost, name), Delete) => policies::delete(call, *list, vhost, name).await,
        (R::VhostLimits(vhost), Get) => limits::list_vhost(call, vhost.as_deref()),
        (R::VhostLimit(vhost, name), Put) => limits::put_vhost(call, vhost, name).await,
        (R::VhostLimit(vhost, name), Delete) => limits::delete_vhost(call, vhost, name).await,
        (R::VhostLimit(vhost, name), Get) => limits::get_vhost(call, vhost, name),
        (R::UserLimits(user), Get) => limits::list_user(call, user.as_deref()),
        (R::UserLimit(user, name), Put) => limits::put_user(call, user, name).await,
        (R::UserLimit(user, name), Delete) => limits::delete_user(call, user, name).await,
        (R::UserLimit(user, name), Get) => limits::get_user(call, user, name),

        (R::Connections(vhost), Get) => connections::list(call, vhost.as_deref()).await,
        (R::Connection(name), Get) => connections::get(call, name).await,
        (R::Connection(name), Delete) => connections::close(call, name).await,
        (R::ConnectionChannels(name), Get) => connections::channels_of(call, name).await,
        (R::UserConnections(user), Get) => connections::list_user(call, user).await,
        (R::UserConnections(user), Delete) => connections::close_user(call, user).await,
        (R::Channels(vhost), Get) => connections::channels(call, vhost.as_deref()).await,
        (R::Channel(name), Get) => connections::channel(call, name).await,
        (R::Consumers(vhost), Get) => consumers::list(call, vhost.as_deref()).await,

        (R::Exchanges(vhost), Get) => exchanges::list(call, vhost.as_deref()).await,
        (R::Exchange(vhost, name), Get) => exchanges::get(call, vhost, name).await,
        (R::Exchange(vhost, name), Put) => exchanges::put(call, vhost, name).await,
        (R::Exchange(vhost, name), Delete) => exchanges::delete(call, vhost, name).await,
        (R::Publish(vhost, name), Post) => messages::publish(call, vhost, name).await,
        (R::ExchangeBindings(vhost, name, end), Get) => {
            bindings::of_exchange(call, vhost, name, *end)
        }
        (R::Queues(vhost), Get) => queues::list(call, vhost.as_deref()).await,
        (R::Queue(vhost, name), Get) => queues::get(call, vhost, name).await,
        (R::Queue(vhost, name), Put) => queues::put(call, vhost, name).await,
        (R::Queue(vhost, name), Delete) => queues::delete(call, vhost, name).await,
        (R::QueueBindings(vhost, name), Get) => bindings::of_queue(call, vhost, name),
        (R::QueueContents(vhost, name), Delete) => queues::purge(call, vhost, name).await,
        (R::QueueGet(vhost, name), Post) => messages::get(call, vhost, name).await,
        (R::QueueActions(vhost, name), Post) => queues::act(call, vhost, name),
        (R::QuorumStatus(vhost, name), Get) => quorum::status(call, vhost, name).await,
        (R::QuorumPeek(vhost, name, position), Get) => {
            messages::peek(call, vhost, name, position).await
        }
        (R::QuorumPlan(vhost, name), Get) => reconciliation::plan(call, vhost, name).await,
        (R::Reconciliation, Get) => reconciliation::status(call).await,
        (R::ReconcileNow, Post) => reconciliation::now(call).await,
        (R::Journals, Get) => journals::list(call),
        (R::Journal(name), Get) => journals::get(call, name),
        (R::Journal(name), Put) => journals::put(call, name).await,
        (R::Journal(name), Delete) => journals::delete(call, name).await,
        (R::JournalBackup(name), Put) => journals::set_backup(call, name).await,
        (R::JournalAdopt(name), Post) => journals::adopt(call, name).await,
        (R::JournalRestore(name), Post) => journals::restore(call, name).await,
        (R::JournalDiscard(name), Post) => journals::discard(call, name).await,
        (R::AbandonedJournals, Get) => journals::abandoned(call).await,
        (R::Activations, Get) => activation::list(call).await,
        (R::Activation(name), Get) => activation::get(call, name).await,
        (R::ActivationCoordinated(name), Put) => activation::set_coordinated(call, name).await,
        (R::ActivationLocal(name), Put) => activation::set_local(call, name).await,
        (R::JournalBackup(name), Delete) => journals::remove_backup(call, name).await,
        (R::QuorumLeader(vhost, name), Put) => quorum::transfer(call, vhost, name).await,
        (R::QuorumAddMember(vhost, name), Post) => replicas::add(call, vhost, name).await,
        (R::QuorumDeleteMember(vhost, name), Delete) => replicas::delete(call, vhost, name).await,
        (R::QuorumGrow(node), Post) => replicas::grow(call, node).await,
        (R::QuorumGrowToCount, Post) => replicas::grow_to_count(call).await,
        (R::QuorumCheckpoints, Post) => quorum::checkpoints(call).await,
        (R::QuorumCheckpoint(vhost, name), Post) => quorum::checkpoint(call, vhost, name).await,
        (R::QuorumShrink(node), Delete) => replicas::shrink(call, node).await,
        (R::QuorumForceShrink(vhost, name), Post) => {
            replicas::force_shrink(call, vhost, name).await
        }
        (R::QuorumForceShrinkAll(node), Post) => replicas::force_shrink_all(call, node).await,
        (R::Bindings(vhost), Get) => bindings::list(call, vhost.as_deref()),
        (R::BindingsBetween(ends), Get) => bindings::between(call, ends),
        (R::BindingsBetween(ends), Post) => bindings::post(call, ends).await,
        (R::Binding(ends, key), Get) => bindings::get(call, ends, key),
        (R::Binding(ends, key), Delete) => bindings::delete(call, ends, key).await,

        (R::Vhosts, Get) => vhosts::list(call).await,
        (R::Vhost(name), Get) => vhosts::get(call, name).await,
        (R::Vhost(name), Put) => vhosts::put(call, name).await,
        (R::Vhost(name), Delete) => vhosts::delete(call, name).await,
        (R::VhostPermissions(vhost), Get) => permissions::of_vhost(call, vhost),
        (R::VhostTopicPermissions(vhost), Get) => permissions::topics_of_vhost(call, vhost),
        (R::VhostProtection(name), Post) => vhosts::protect(call, name, true).await,
        (R::VhostProtection(name), Delete) => vhosts::protect(call, name, false).await,
        (R::VhostStart(name, node), Post) => vhosts::start(call, name, node),
        (R::Users, Get) => users::list(call),
        (R::UsersWithoutPermissions, Get) => users::without_permissions(call),
        (R::UsersBulkDelete, Post) => users::bulk_delete(call).await,
        (R::User(name), Get) => users::get(call, name),
        (R::User(name), Put) => users::put(call, name).await,
        (R::User(name), Delete) => users::delete(call, name).await,
        (R::UserPermissions(user), Get) => permissions::of_user(call, user),
        (R::UserTopicPermissions(user), Get) => permissions::topics_of_user(call, user),
        (R::Permissions, Get) => permissions::list(call),
        (R::Permission(vhost, user), Get) => permissions::get(call, vhost, user),
        (R::Permission(vhost, user), Put) => permissions::put(call, vhost, user).await,
        (R::Permission(vhost, user), Delete) => permissions::delete(call, vhost, user).await,
        (R::TopicPermissions, Get) => permissions::list_topics(call),
        (R::TopicPermissionsOf(vhost, user), Get) => permissions::get_topics(call, vhost, user),
        (R::TopicPermissionsOf(vhost, user), Put) => {
            permissions::put_topic(call, vhost, user).await
        }
        (R::TopicPermissionsOf(vhost, user), Delete) => {
            permissions::delete_topics(call, vhost, user, None).await
        }
        (R::TopicPermission(vhost, user, exchange), Get) => {
            permissions::get_topic(call, vhost, user, exchange)
        }
        (R::TopicPermission(vhost, user, exchange), Delete) => {
            permissions::delete_topics(call, vhost, user, Some(exchange)).await
        }

        (R::Whoami, Get) => Ok(users::whoami(call)),
        (R::HashPassword(password), Get | Put) => users::hash_password(call, password),
        (R::AuthAttempts(node), Get) => nodes::auth_attempts(call, node),
        (R::FeatureFlags, Get) => features::flags(call),
        (R::EnableFeatureFlag(name), Put) => features::enable(call, name),
        (R::DeprecatedFeatures, Get) => features::deprecated(call),
        (R::UsedDeprecatedFeatures, Get) => features::used_deprecated(call),
        // Statistics are few and derived: there is nothing to reset. The request is answered as
        // RabbitMQ does, so that scripts go on.
        (R::Reset | R::AuthAttempts(_), Delete) => {
            call.administrator()?;
            Ok(Answer::Done)
        }
        (R::Rebalance, Post) => cluster::rebalance(call).await,
        (R::Aliveness(vhost), Get) => health::aliveness(call, vhost),
        (R::OldHealth, Get) => Ok(health::old(call)),
        (R::Health(path), Get) => health::check(call, path).await,
        _ => Err(Failure::method_not_allowed()),
    }
}
