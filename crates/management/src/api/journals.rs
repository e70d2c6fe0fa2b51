//! `/journals`: named journals, on one node or on two.

use std::collections::BTreeSet;

use ::activation::age::Age;
use ::activation::force::Force;
use ::activation::register::{Incarnation, Register};
use ::activation::standing::{Own, Record, Standing};
use axum::http::StatusCode;
use metadata::command::{Command, JournalChange};
use metadata::objects::journal::Journal;
use metadata::state::State;
use model::id::NodeId;
use serde_json::{Value, json};

use super::activation::{self, told_of};
use super::call::Call;
use super::consent::Consent;
use crate::http::answer::Answer;
use crate::http::failure::{Failure, Outcome};
use crate::http::list;
use crate::journals::{Seat, Sight, is_named};
use crate::node::Node;
use crate::view::copy::{Amendment, JournalCopy, LeftJournal};

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

/// `GET /abandoned-journals`: what lies on nodes' disks and the topology does not know.
pub(super) async fn abandoned<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    call.monitor()?;
    let rows = call.node.left_journals().await.into_iter().flat_map(|told| {
        let node = told.node;
        let row = move |journal| {
            let mut row = json!(journal);
            row["node"] = json!(node);
            row
        };
        told.journals.into_iter().map(row)
    });
    list::respond(rows, &call.query)
}

/// The seat of a node that answers, and the copy that it tells of.
pub(super) fn answering_seat<'s>(
    sight: &'s Sight<'_>,
    node: &str,
) -> Outcome<(&'s Seat, &'s JournalCopy)> {
    let seat = sight.seats.iter().find(|seat| seat.is_of(node)).ok_or_else(|| {
        Failure::bad_request(format!("{node} has no copy of journal '{}'", sight.journal.name))
    })?;
    let silent = || Failure::unavailable(format!("{} does not answer", seat.name));
    Ok((seat, seat.copy.as_ref().ok_or_else(silent)?))
}

/// The seat of a node whose copy may be changed: it answers, and nobody has the lock.
fn free_seat<'s>(state: &State, sight: &'s Sight<'_>, node: &str) -> Outcome<&'s Seat> {
    let (seat, _) = answering_seat(sight, node)?;
    let is_locked = state.lock(&sight.journal.uid).is_some_and(|lock| lock.holder.is_some());
    if is_locked || sight.serving().is_some() {
        return Err(locked(format!(
            "journal '{}' is served, or about to be; stop the node that has its lock first",
            sight.journal.name
        )));
    }
    Ok(seat)
}

fn locked(reason: String) -> Failure {
    Failure::new(StatusCode::CONFLICT, "locked", reason)
}

/// The node that is named, or the one that is asked.
pub(super) fn wanted<N: Node>(call: &Call<'_, N>) -> Outcome<String> {
    let node = call.body.text_or("node", Some(""))?;
    Ok(if node.is_empty() { call.node.stats().name } else { node })
}

/// Changes a copy; fails if it is in use.
pub(super) async fn amend<N: Node>(
    call: &Call<'_, N>,
    seat: &Seat,
    uid: &str,
    amendment: Amendment,
) -> Outcome<String> {
    call.node.amend_copy(seat.node, uid, amendment).await.map_err(|refusal| {
        let failure = Failure::from(refusal);
        if failure.status == StatusCode::BAD_REQUEST { locked(failure.reason) } else { failure }
    })
}

/// `POST /journals/NAME/adopt`. Of a journal that the topology knows: the copy of `node` is the one to
/// go on with, whatever its state file says. Of another one: it comes back from the disk of a node,
/// with the queues that were declared in it.
pub(super) async fn adopt<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    let consent = Consent::read(call, name)?;
    call.node.catch_up().await?;
    let state = call.node.state();
    let Some(journal) = state.journal(name) else {
        return bring_back(call, &state, name, &consent).await;
    };
    let told = call.node.all_journal_copies().await;
    let sight = Sight::new(&state, &call.node.names(), &told, journal);
    let view = sight.view.ok_or_else(|| {
        Failure::bad_request(format!(
            "the topology knows journal '{name}', and it never had a backup: there is nothing to adopt"
        ))
    })?;
    let node = wanted(call)?;
    let seat = free_seat(&state, &sight, &node)?;
    let record = seat.copy.as_ref().and_then(JournalCopy::own).map(|own| own.record);
    // The age of a copy that says one is compared with others of its life. One that was set aside, or
    // says nothing, has nothing in common with any: it gets a life of its own. What is written to its
    // state file here says the same if this is cut off before the register is set, and repeated.
    let said = match record {
        Some(Record { standing: Standing::Valid(age), incarnation }) => {
            incarnation.map(|life| (age, life))
        }
        _ => None,
    };
    let (to, adopts) = said.unwrap_or_else(|| {
        let known = view.register.map_or(Age::ZERO, Register::age);
        (known.max(Age::ZERO.next()), Incarnation(rand::random()))
    });
    let force = Force { to, adopts, incarnation: Incarnation(rand::random()) };
    let adopted = |seat_of: &Seat, own: Option<Own>| {
        let standing = Standing::Valid(to);
        let record = Record { standing, incarnation: Some(adopts) };
        let as_it_will_be = Own { record, vacant: false, founder: false };
        if seat_of.node == seat.node { Some(as_it_will_be) } else { own }
    };
    let owns: Vec<Option<Own>> =
        sight.seats.iter().zip(sight.owns()).map(|(seat, own)| adopted(seat, own)).collect();
    let mut dangers: Vec<String> =
        force.dangers(&view, &owns).iter().map(|danger| told_of(&sight, danger)).collect();
    let standing = seat.copy.as_ref().map_or("", |copy| copy.standing.as_str());
    if said.is_none() {
        dangers.push(format!(
            "nothing says how much of the journal the copy on {} has (its state file: {standing})",
            seat.name
        ));
    }
    consent
        .check(&format!("go on with the copy of journal '{name}' on {}", seat.name), &dangers)?;
    if !consent.dry_run {
        let amendment = Amendment::Adopt { sequence: to.get(), incarnation: adopts.0 };
        amend(call, seat, &journal.uid, amendment).await?;
        activation::set(call, &journal.uid, &view, &force).await?;
        tracing::warn!(journal = %name, node = seat.name, sequence = %to, by = call.by(), ?dangers, "a copy was adopted by an operator");
    }
    Ok(Answer::Json(json!({
        "node": seat.name, "from": standing, "to": to.get(), "dangers": dangers,
        "done": !consent.dry_run,
    })))
}

/// A journal comes back that only a disk knows.
async fn bring_back<N: Node>(
    call: &Call<'_, N>,
    state: &State,
    name: &str,
    consent: &Consent,
) -> Outcome<Answer> {
    let uid = call.body.text_or("uid", Some(""))?;
    let node = call.body.text_or("node", Some(""))?;
    let told = call.node.left_journals().await;
    let copies: Vec<(&str, &LeftJournal)> = told
        .iter()
        .flat_map(|told| told.journals.iter().map(move |journal| (told.node.as_str(), journal)))
        .filter(|(_, journal)| journal.name == name && (uid.is_empty() || journal.uid == uid))
        .collect();
    let uids: BTreeSet<&str> = copies.iter().map(|(_, journal)| journal.uid.as_str()).collect();
    if uids.len() > 1 {
        let uids: Vec<&str> = uids.into_iter().collect();
        return Err(Failure::bad_request(format!(
            "there are several journals '{name}' on the disks: name the uid, one of {}",
            uids.join(", ")
        )));
    }
    let is_meant = |on: &str| node.is_empty() || is_named(on, &node);
    let chosen = copies.iter().filter(|(on, _)| is_meant(on)).max_by_key(|(_, one)| one.sequence);
    let Some((on, chosen)) = chosen else { return Err(Failure::not_found()) };
    let id = self::node(call, on)?;
    let mut dangers = Vec::new();
    for (other, copy) in &copies {
        if copy.sequence > chosen.sequence {
            let sequence = copy.sequence.unwrap_or_default();
            dangers.push(format!(
                "the copy on {other} has sequence {sequence}: what only it has is lost"
            ));
        }
    }
    if chosen.sequence.is_none() {
        dangers.push(format!(
            "the copy on {on} may lack anything (its state file: {})",
            chosen.standing
        ));
    }
    for other in call.node.other_nodes().iter().filter(|other| !other.running) {
        dangers.push(format!("{} does not answer: it may have a newer copy", other.name));
    }
    let known = call.node.left_declarations(id, &chosen.uid).await?;
    if *known.uid != *chosen.uid || *known.name != *name {
        return Err(Failure::bad_request("what was declared is that of another journal"));
    }
    consent.check(&format!("bring journal '{name}' back from {on}"), &dangers)?;
    if !consent.dry_run {
        for command in known.commands(state, id.0) {
            call.node.submit(command, call.by()).await?;
        }
        tracing::warn!(journal = %name, node = on, by = call.by(), ?dangers, "a journal was brought back by an operator");
    }
    Ok(Answer::Json(json!({
        "node": on, "uid": chosen.uid, "sequence": chosen.sequence, "queues": known.queues.len(),
        "bindings": known.bindings.len(), "dangers": dangers, "done": !consent.dry_run,
    })))
}

/// `POST /journals/NAME/restore-copy` with `sequence`: a copy that was put aside on `node` takes the
/// place of what it has, and is gone on with. Always needs `force` and `confirm`.
pub(super) async fn restore<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    let consent = Consent::read(call, name)?;
    let sequence = call.body.integer("sequence")?.and_then(|number| u64::try_from(number).ok());
    let sequence = sequence.and_then(Age::wanted);
    let to = sequence.ok_or_else(|| Failure::bad_request("'sequence' has to be a sequence"))?;
    call.node.catch_up().await?;
    let state = call.node.state();
    let journal = state.journal(name).ok_or_else(Failure::not_found)?;
    let told = call.node.all_journal_copies().await;
    let sight = Sight::new(&state, &call.node.names(), &told, journal);
    let view = sight.view.ok_or_else(|| {
        Failure::bad_request(format!(
            "journal '{name}' never had a backup, so no copy was put aside"
        ))
    })?;
    let node = wanted(call)?;
    let seat = free_seat(&state, &sight, &node)?;
    let saved = seat.copy.as_ref().map(|copy| copy.saved.as_slice()).unwrap_or_default();
    // Of several, the one that was put aside last.
    let meant = saved.iter().rev().find(|copy| copy.sequence == Some(to.get()));
    let own = seat.copy.as_ref().and_then(JournalCopy::own).map(|own| own.record);
    let adopts = match (meant, own) {
        (Some(meant), _) => {
            let life = meant.incarnation.as_ref();
            Incarnation(life.and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(0))
        }
        // It is in its place: this was cut off before the register was set.
        (None, Some(Record { standing: Standing::Valid(age), incarnation })) if age == to => {
            incarnation.unwrap_or(Incarnation(0))
        }
        (None, _) => {
            let known: Vec<&str> = saved.iter().map(|copy| copy.name.as_str()).collect();
            return Err(Failure::bad_request(format!(
                "no copy of sequence {to} was put aside on {} (there are: {})",
                seat.name,
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            )));
        }
    };
    let force = Force { to, adopts, incarnation: Incarnation(rand::random()) };
    let restored = |seat_of: &Seat, own: Option<Own>| {
        let record = Record { standing: Standing::Valid(to), incarnation: Some(adopts) };
        let as_it_will_be = Own { record, vacant: false, founder: false };
        if seat_of.node == seat.node { Some(as_it_will_be) } else { own }
    };
    let owns: Vec<Option<Own>> =
        sight.seats.iter().zip(sight.owns()).map(|(seat, own)| restored(seat, own)).collect();
    let mut dangers: Vec<String> =
        force.dangers(&view, &owns).iter().map(|danger| told_of(&sight, danger)).collect();
    dangers.push(match meant {
        Some(meant) => format!(
            "everything is lost that was confirmed after copy {} of {} bytes was put aside",
            meant.name, meant.bytes
        ),
        None => format!("everything is lost that was confirmed after sequence {to}"),
    });
    consent
        .check(&format!("go on with an old copy of journal '{name}' on {}", seat.name), &dangers)?;
    let mut from = seat.copy.as_ref().map(|copy| copy.standing.clone());
    if !consent.dry_run {
        if let Some(meant) = meant {
            let amendment = Amendment::Restore { name: meant.name.clone() };
            from = Some(amend(call, seat, &journal.uid, amendment).await?);
        }
        activation::set(call, &journal.uid, &view, &force).await?;
        let copy = meant.map(|meant| &meant.name);
        tracing::warn!(journal = %name, node = seat.name, copy, by = call.by(), ?dangers, "an old copy was restored by an operator");
    }
    Ok(Answer::Json(json!({
        "node": seat.name, "copy": meant.map(|meant| &meant.name), "from": from, "to": to.get(), "dangers": dangers,
        "done": !consent.dry_run,
    })))
}

/// `POST /journals/NAME/discard-copy`: the copy of `node`, which nobody uses, is put aside, so that it
/// is copied afresh from the active node. If it may be served, or is newer than the others, that needs
/// `force` and `confirm`.
pub(super) async fn discard<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    let consent = Consent::read(call, name)?;
    call.node.catch_up().await?;
    let state = call.node.state();
    let journal = state.journal(name).ok_or_else(Failure::not_found)?;
    let told = call.node.all_journal_copies().await;
    let sight = Sight::new(&state, &call.node.names(), &told, journal);
    let node = wanted(call)?;
    let (seat, copy) = answering_seat(&sight, &node)?;
    let mut dangers = Vec::new();
    if sight.may_start(seat) {
        dangers.push(format!("the copy on {} may be served", seat.name));
    } else if sight.serving().is_none() {
        dangers.push(format!(
            "nobody serves the journal: the copy on {} may be all that is left of it",
            seat.name
        ));
    }
    consent.check(&format!("put the copy of journal '{name}' on {} aside", seat.name), &dangers)?;
    let mut from = copy.standing.clone();
    if !consent.dry_run {
        from = amend(call, seat, &journal.uid, Amendment::Discard).await?;
        tracing::warn!(journal = %name, node = seat.name, %from, by = call.by(), "a copy was put aside by an operator");
    }
    Ok(Answer::Json(json!({
        "node": seat.name, "from": from, "to": "none", "dangers": dangers, "done": !consent.dry_run,
    })))
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
