//! `/activation`: the activation sequence of journals, coordinated and local, and how operators set
//! it.
//!
//! What is read is as it is now: the answer waits for a majority of the cluster.

use activation::age::Age;
use activation::force::{Danger, Force, raises};
use activation::register::{Incarnation, Register, View};
use activation::standing::Standing;
use axum::http::StatusCode;
use metadata::command::Command;
use metadata::coordination::Coordination;
use metadata::objects::Name;
use metadata::state::State;
use serde_json::{Value, json};

use super::call::Call;
use super::consent::Consent;
use super::journals::{amend, answering_seat, wanted};
use crate::http::answer::Answer;
use crate::http::failure::{Failure, Outcome};
use crate::http::list;
use crate::journals::{Seat, Sight, view};
use crate::node::Node;
use crate::view::copy::{Amendment, JournalCopy};

/// `GET /activation`.
pub(super) async fn list<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    call.monitor()?;
    call.node.catch_up().await?;
    let (state, names) = (call.node.state(), call.node.names());
    let told = call.node.all_journal_copies().await;
    let show = |journal| {
        let sight = Sight::new(&state, &names, &told, journal);
        show(call, &state, &sight)
    };
    list::respond(state.journals().map(|journal| show(journal)), &call.query)
}

/// `GET /activation/JOURNAL`.
pub(super) async fn get<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.monitor()?;
    call.node.catch_up().await?;
    let state = call.node.state();
    let told = call.node.all_journal_copies().await;
    let journal = state.journal(name).ok_or_else(Failure::not_found)?;
    let sight = Sight::new(&state, &call.node.names(), &told, journal);
    Ok(list::one(show(call, &state, &sight), &call.query))
}

fn show<N: Node>(call: &Call<'_, N>, state: &State, sight: &Sight<'_>) -> Value {
    let names = call.node.names();
    let journal = sight.journal;
    let register = sight.view.and_then(|view| view.register);
    let lock = state.lock(&journal.uid).and_then(|lock| {
        let holder = lock.holder.as_ref()?;
        let node = names.of(model::id::NodeId(holder.node)).to_owned();
        Some(json!({ "node": node, "token": lock.token, "lease": holder.lease_ms }))
    });
    let adopted = sight.view.and_then(|view| view.adopted).map(|adopted| {
        json!({ "incarnation": life(adopted.incarnation), "sequence": adopted.age.get() })
    });
    let copies = sight.seats.iter().map(|seat| {
        let copy = seat.copy.as_ref();
        json!({
            "node": seat.name,
            "running": copy.is_some(),
            "local_sequence": copy.and_then(|copy| copy.sequence),
            "standing": copy.map(|copy| &copy.standing),
            "incarnation": copy.and_then(|copy| copy.incarnation.as_ref()),
            "class": seat.class.map(|class| class.to_string()),
            "serves": seat.is_serving(),
            "may_start": sight.may_start(seat),
            "state": copy.map(|copy| &copy.state),
            "waits_for": sight.wait(seat),
        })
    });
    json!({
        "journal": &*journal.name,
        "uid": &*journal.uid,
        "paired": journal.paired,
        "coordinated_sequence": register.map(Register::signed),
        "claim_open": matches!(register, Some(Register::Claimed(_))),
        "incarnation": sight.view.filter(|_| register.is_some()).map(|view| life(view.incarnation)),
        "adopted": adopted,
        "lock": lock,
        "copies": copies.collect::<Vec<_>>(),
        "summary": sight.advice(),
    })
}

fn life(incarnation: Incarnation) -> String {
    format!("{:016x}", incarnation.0)
}

/// The sequence that is wanted.
fn wanted_age<N: Node>(call: &Call<'_, N>) -> Outcome<Age> {
    let to = call.body.integer("to")?.ok_or_else(|| crate::http::body::missing("to"))?;
    let to = u64::try_from(to).ok().and_then(Age::wanted);
    to.ok_or_else(|| {
        Failure::bad_request(format!("'to' has to be a sequence, from 0 to {}", Age::MAX_WANTED))
    })
}

/// `PUT /activation/JOURNAL/coordinated` with `to`; `node` names the copy that is meant if there are
/// several of that sequence. What may lose something needs `force` and the journal's name as
/// `confirm`; with `dry_run` it is only said what would become of the copies.
pub(super) async fn set_coordinated<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    let consent = Consent::read(call, name)?;
    let to = wanted_age(call)?;
    call.node.catch_up().await?;
    let (state, names) = (call.node.state(), call.node.names());
    let told = call.node.all_journal_copies().await;
    let journal = state.journal(name).ok_or_else(Failure::not_found)?;
    let sight = Sight::new(&state, &names, &told, journal);
    let view = sight.view.ok_or_else(|| {
        Failure::bad_request(format!(
            "journal '{name}' never had a backup, so it has no coordinated sequence"
        ))
    })?;
    let wanted = call.body.text_or("node", Some(""))?;
    let force = Force {
        to,
        adopts: adopts(&sight, to, &wanted)?.unwrap_or(view.incarnation),
        incarnation: Incarnation(rand::random()),
    };
    let from = view.register.map(Register::signed);
    let dangers = force.dangers(&view, &sight.owns());
    let dangers: Vec<String> = dangers.iter().map(|danger| told_of(&sight, danger)).collect();
    let register = from.map_or("absent".to_owned(), |from| from.to_string());
    let what = format!("set the coordinated sequence of journal '{name}' from {register} to {to}");
    consent.check(&what, &dangers)?;
    if !consent.dry_run {
        set(call, &journal.uid, &view, &force).await?;
        tracing::warn!(
            journal = %name, from, to = %force.to, by = call.by(), ?dangers,
            "the coordinated sequence was set by an operator"
        );
    }
    let copies = sight.seats.iter().map(|seat| {
        let after = seat.copy.as_ref().and_then(JournalCopy::own).map(|own| force.class(&own));
        let class = |class: Option<activation::class::Class>| class.map(|class| class.to_string());
        json!({ "node": seat.name, "before": class(seat.class), "after": class(after) })
    });
    Ok(Answer::Json(json!({
        "from": from, "to": force.to.get(), "dangers": dangers,
        "copies": copies.collect::<Vec<_>>(), "done": !consent.dry_run,
    })))
}

/// Sets a register; fails if somebody has the lock, or if it is not what was seen when it was said what
/// may be lost.
pub(super) async fn set<N: Node>(
    call: &Call<'_, N>,
    uid: &Name,
    seen: &View,
    force: &Force,
) -> Outcome<()> {
    let founder = call.node.state().journal_by_uid(uid).map_or(0, |journal| journal.node.0);
    let value = Register::Committed(force.to).signed();
    let change = Coordination::Force {
        id: Name::clone(uid),
        seen: seen.register.map(|register| (register.signed(), seen.incarnation.0)),
        value,
        incarnation: force.incarnation.0,
        adopts: force.adopts.0,
        founder,
    };
    call.node.submit(Command::Coordinate(change), call.by()).await?;
    let state = call.node.state();
    let found = view(&state, uid);
    if found.incarnation == force.incarnation {
        return Ok(());
    }
    if let Some(holder) = state.lock(uid).and_then(|lock| lock.holder.as_ref()) {
        let node = call.node.names().of(model::id::NodeId(holder.node)).to_owned();
        let reason = format!(
            "the coordinated sequence was not changed: {node} has the lock of the journal; stop it first"
        );
        return Err(Failure::new(StatusCode::CONFLICT, "locked", reason));
    }
    let signed = |view: &View| view.register.map_or("absent".to_owned(), |now| now.to_string());
    let reason = format!(
        "the coordinated sequence was not changed: it is not what was looked at any more ({} then, {} \
         now), so something else may be lost; ask again",
        signed(seen),
        signed(&found)
    );
    Err(Failure::new(StatusCode::CONFLICT, "changed", reason))
}

/// The life of the copies of that age; `None`: there is none that could be seen.
fn adopts(sight: &Sight<'_>, to: Age, node: &str) -> Outcome<Option<Incarnation>> {
    let is_meant = |seat: &&Seat| node.is_empty() || seat.is_of(node);
    let mut lives: Vec<(Incarnation, &str)> = Vec::new();
    for seat in sight.seats.iter().filter(is_meant) {
        let own = seat.copy.as_ref().and_then(JournalCopy::own);
        if let Some(own) = own
            && own.record.standing == Standing::Valid(to)
            && let Some(life) = own.record.incarnation
            && lives.iter().all(|(known, _)| *known != life)
        {
            lives.push((life, &seat.name));
        }
    }
    match lives.as_slice() {
        [] if !node.is_empty() => Err(Failure::bad_request(format!(
            "there is no copy of sequence {to} on {node} that can be seen"
        ))),
        [] => Ok(None),
        [(life, _)] => Ok(Some(*life)),
        several => {
            let names: Vec<&str> = several.iter().map(|(_, name)| *name).collect();
            Err(Failure::bad_request(format!(
                "the copies of sequence {to} on {} have different histories: name the node of the one \
                 to go on with",
                names.join(" and ")
            )))
        }
    }
}

pub(super) fn told_of(sight: &Sight<'_>, danger: &Danger) -> String {
    let name = |at: usize| sight.seats.get(at).map_or("?", |seat| &*seat.name);
    match *danger {
        Danger::Back { confirmed } => format!(
            "messages may have been confirmed under sequence {confirmed}: those are lost that no copy \
             of the new sequence has"
        ),
        Danger::Displaced(at) => {
            format!("the copy on {} could be served and no longer can", name(at))
        }
        Danger::Newer(at, age) => format!(
            "the copy on {} has sequence {age}: what only it has is lost, and it is held",
            name(at)
        ),
        Danger::Unseen(at) => {
            format!("the copy on {} cannot be seen: it may have more than the others", name(at))
        }
        Danger::Nobody => "no copy that can be seen could be served afterwards".to_owned(),
    }
}

/// `PUT /activation/JOURNAL/local` with `to` and, unless it is the node that is asked, `node`: sets
/// the sequence of a copy that is not in use. Upwards it needs `force` and `confirm`.
pub(super) async fn set_local<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    let consent = Consent::read(call, name)?;
    let to = wanted_age(call)?;
    let state = call.node.state();
    let names = call.node.names();
    let journal = state.journal(name).ok_or_else(Failure::not_found)?;
    let told = call.node.all_journal_copies().await;
    let sight = Sight::new(&state, &names, &told, journal);
    let (seat, copy) = answering_seat(&sight, &wanted(call)?)?;
    let standing = copy.own().map(|own| own.record.standing);
    let mut dangers = Vec::new();
    if standing.is_none_or(|standing| raises(standing, to)) {
        dangers.push(
            "a copy of a higher sequence may be served, and then every message is lost that was \
             confirmed without it; other copies are overwritten from it"
                .to_owned(),
        );
    }
    let what = format!(
        "set the sequence of the copy of journal '{name}' on {} from {} to {to}",
        seat.name, copy.standing
    );
    consent.check(&what, &dangers)?;
    let mut from = copy.standing.clone();
    if !consent.dry_run {
        let amendment = Amendment::Sequence { to: to.get(), forced: consent.confirmed };
        from = amend(call, seat, &journal.uid, amendment).await?;
        tracing::warn!(
            journal = %name, node = seat.name, %from, to = %to, by = call.by(),
            "the local sequence was set by an operator"
        );
    }
    Ok(Answer::Json(json!({
        "node": seat.name, "from": from, "to": to.get(), "dangers": dangers,
        "done": !consent.dry_run,
    })))
}
