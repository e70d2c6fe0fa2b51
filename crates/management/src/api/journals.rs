//! `/journals`: named journals, on one node or on two.

use metadata::command::{Command, JournalChange};
use metadata::objects::journal::Journal;
use model::id::NodeId;
use serde_json::{Value, json};

use super::call::Call;
use crate::http::answer::Answer;
use crate::http::failure::{Failure, Outcome};
use crate::http::list;
use crate::node::Node;

/// `GET /journals`.
pub(super) fn list<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    list::respond(call.state.journals().map(|journal| show(call, journal)), &call.query)
}

/// `GET /journals/NAME`.
pub(super) fn get<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    Ok(list::one(show(call, find(call, name)?), &call.query))
}

/// `PUT /journals/NAME` with `node` and, if it is to live on two nodes, `backup`. Without `node` it is
/// that of the node that is asked.
pub(super) async fn put<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.administrator()?;
    let names = call.node.names();
    let node = match call.body.text_or("node", Some(""))?.as_str() {
        "" => node(call, &call.node.stats().name)?,
        named => node(call, named)?,
    };
    let backup = match call.body.text_or("backup", Some(""))?.as_str() {
        "" => NodeId(0),
        named => self::node(call, named)?,
    };
    if let Some(known) = call.state.journal(name) {
        // Asked again for what there is.
        let other = known.other_than(known.home()).unwrap_or(NodeId(0));
        if backup == other && known.is_on(node) {
            return Ok(Answer::put(false));
        }
        return Err(Failure::bad_request(format!(
            "there is a journal '{name}' already, on {}",
            known.nodes().map(|node| names.of(node)).collect::<Vec<_>>().join(" and ")
        )));
    }
    let create = JournalChange::Create {
        name: name.into(),
        uid: format!("{:032x}", rand::random::<u128>()).into(),
        node: node.0,
        backup: backup.0,
        incarnation: rand::random(),
    };
    let is_new = call.node.submit(Command::ChangeJournal(create), call.by()).await?;
    Ok(Answer::put(is_new))
}

/// `DELETE /journals/NAME`: one without queues.
pub(super) async fn delete<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.administrator()?;
    change(call, JournalChange::Delete { name: name.into() }).await
}

/// `PUT /journals/NAME/backup` with `node`.
pub(super) async fn set_backup<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.administrator()?;
    let node = node(call, &call.body.text("node")?)?;
    change(call, JournalChange::SetBackup { name: name.into(), node: node.0 }).await
}

/// `DELETE /journals/NAME/backup`.
pub(super) async fn remove_backup<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.administrator()?;
    change(call, JournalChange::RemoveBackup { name: name.into() }).await
}

async fn change<N: Node>(call: &Call<'_, N>, change: JournalChange) -> Outcome<Answer> {
    call.node.submit(Command::ChangeJournal(change), call.by()).await?;
    Ok(Answer::Done)
}

fn find<'a, N: Node>(call: &'a Call<'_, N>, name: &str) -> Outcome<&'a Journal> {
    call.state.journal(name).map(AsRef::as_ref).ok_or_else(Failure::not_found)
}

/// The node of that name, with or without what tools put before it.
fn node<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<NodeId> {
    let short = name.rsplit_once('@').map_or(name, |(_, short)| short);
    let known = call.state.node_named(short).map(|node| node.id);
    known.ok_or_else(|| Failure::bad_request(format!("there is no node '{name}' in the cluster")))
}

fn show<N: Node>(call: &Call<'_, N>, journal: &Journal) -> Value {
    let names = call.node.names();
    let name = |node: NodeId| Value::from(names.of(node));
    let here = call.node.journal_copies().into_iter().find(|copy| *copy.uid == *journal.uid);
    let register = call.state.coordinated(&journal.uid).register.map(|register| register.value);
    json!({
        "name": &*journal.name,
        "uid": &*journal.uid,
        "active": journal.served.map_or(Value::Null, |served| name(NodeId(served.node))),
        "backup": journal.other_than(journal.home()).map_or(Value::Null, name),
        "nodes": journal.nodes().map(name).collect::<Vec<_>>(),
        "paired": journal.paired,
        "coordinated_sequence": register,
        "queues": call.state.queues_of_journal(&journal.name).count(),
        "term": journal.term,
        "here": here,
    })
}
