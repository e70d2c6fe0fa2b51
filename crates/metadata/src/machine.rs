//! The machine: `apply`.
//!
//! A command is refused as a whole or done as a whole. The state's indexes, the routing table and
//! the records for the store move together, each in one place (`machine::parts`).

mod bindings;
mod coordination;
mod exchanges;
mod journals;
mod members;
mod nodes;
mod parameters;
mod parts;
mod policies;
mod queues;
pub(crate) mod users;
mod vhosts;

use model::id::NodeId;

use crate::command::Command;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::state::State;

impl State {
    /// Applies one command.
    ///
    /// A function of the state and the command alone. Refused commands change nothing.
    ///
    /// # Errors
    /// Why it is refused, as the client that asked for it is to be told.
    pub fn apply(&mut self, command: Command) -> Result<Outcome, Refusal> {
        let mut out = Outcome::default();
        match command {
            Command::PutVhost(vhost) => self.put_vhost(vhost, &mut out)?,
            Command::DeleteVhost { name } => self.delete_vhost(&name, &mut out)?,
            Command::SetTracing { vhost, on } => self.set_tracing(&vhost, on, &mut out)?,
            Command::PutUser(user) => self.put_user(user, &mut out)?,
            Command::DeleteUser { name } => self.delete_user(&name, &mut out)?,
            Command::PutPermission(permission) => self.put_permission(permission, &mut out)?,
            Command::DeletePermission { vhost, user } => {
                self.delete_permission(&vhost, &user, &mut out)?;
            }
            Command::PutTopicPermission(permission) => {
                self.put_topic_permission(permission, &mut out)?;
            }
            Command::DeleteTopicPermission { vhost, user, exchange } => {
                self.delete_topic_permission(&vhost, &user, exchange.as_deref(), &mut out)?;
            }
            Command::DeclareExchange(declare) => self.declare_exchange(declare, &mut out)?,
            Command::DeleteExchange { vhost, name, if_unused } => {
                self.delete_exchange(&vhost, &name, if_unused, &mut out)?;
            }
            Command::DeclareQueue(declare) => self.declare_queue(declare, &mut out)?,
            Command::DeleteQueue { vhost, name, id } => {
                self.delete_queue(&vhost, &name, id.map(|id| id.0), &mut out);
            }
            Command::DeleteExclusiveQueues { owner } => self.delete_exclusive(owner, &mut out),
            Command::Bind(binding) => self.bind(binding, &mut out)?,
            Command::Unbind(binding) => self.unbind(binding, &mut out),
            Command::PutPolicy(policy) => self.put_policy(policy, false, &mut out)?,
            Command::DeletePolicy { vhost, name } => {
                self.delete_policy(&vhost, &name, false, &mut out)?;
            }
            Command::PutOperatorPolicy(policy) => self.put_policy(policy, true, &mut out)?,
            Command::DeleteOperatorPolicy { vhost, name } => {
                self.delete_policy(&vhost, &name, true, &mut out)?;
            }
            Command::PutVhostLimit { vhost, limit, value } => {
                self.put_vhost_limit(&vhost, limit, value, &mut out)?;
            }
            Command::DeleteVhostLimit { vhost, limit } => {
                self.delete_vhost_limit(&vhost, limit, &mut out)?;
            }
            Command::PutUserLimit { user, limit, value } => {
                self.put_user_limit(&user, limit, value, &mut out)?;
            }
            Command::DeleteUserLimit { user, limit } => {
                self.delete_user_limit(&user, limit, &mut out)?;
            }
            Command::PutParameter(parameter) => self.put_parameter(parameter, &mut out)?,
            Command::DeleteParameter { component, vhost, name } => {
                self.delete_parameter(&component, &vhost, &name, &mut out)?;
            }
            Command::PutGlobalParameter(parameter) => {
                self.put_global_parameter(parameter, &mut out)?;
            }
            Command::DeleteGlobalParameter { name } => {
                self.delete_global_parameter(&name, &mut out)?;
            }
            Command::Restarted => self.restarted(&mut out),
            Command::PutNode(put) => self.put_node(put, &mut out)?,
            Command::NodeEnded { id, boot } => self.node_ended(NodeId(id), boot, &mut out),
            Command::ForgetNode { id } => self.forget_node(NodeId(id), &mut out)?,
            Command::SetMaintenance { id, on } => {
                self.set_maintenance(NodeId(id), on, &mut out)?;
            }
            Command::AddMember { queue, node } => {
                self.add_member(queue.0, NodeId(node), &mut out)?;
            }
            Command::MembersStarted(members) => self.members_started(&members, &mut out),
            Command::MemberLost(member) => self.member_lost(member, &mut out),
            Command::Reform(member) => self.reform(member, &mut out)?,
            Command::RemoveMember(member) => self.remove_member(member, &mut out),
            Command::WithdrawMember(member) => self.withdraw_member(member, &mut out),
            Command::Coordinate(change) => self.coordinate(change, &mut out)?,
            Command::ChangeJournal(change) => self.change_journal(change, &mut out)?,
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests;
