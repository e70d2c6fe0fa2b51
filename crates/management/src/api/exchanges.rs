//! `/exchanges`.

use std::collections::BTreeMap;

use metadata::objects::exchange::Exchange;
use serde_json::{Value, json};

use super::call::Call;
use super::stats;
use crate::census;
use crate::http::answer::Answer;
use crate::http::failure::{Failure, Outcome};
use crate::http::{self, list, table};
use crate::inquiry::Wanted;
use crate::node::Node;
use crate::view::topology::{ExchangeDeclaration, ExchangeDeletion};

/// `GET /exchanges`, `/exchanges/VHOST`.
pub(super) async fn list<N: Node>(call: &Call<'_, N>, vhost: Option<&str>) -> Outcome<Answer> {
    let vhosts = call.vhosts(vhost)?;
    let exchanges = vhosts.iter().flat_map(|vhost| call.state.exchanges(&vhost.name));
    let items = show(call, exchanges.map(AsRef::as_ref)).await;
    list::respond(items, &call.query)
}

/// `GET /exchanges/VHOST/NAME`.
pub(super) async fn get<N: Node>(call: &Call<'_, N>, vhost: &str, name: &str) -> Outcome<Answer> {
    let exchange = find(call, vhost, name)?;
    let mut item = show(call, [exchange]).await.remove(0);
    item["incoming"] = json!([]);
    item["outgoing"] = json!([]);
    Ok(list::one(item, &call.query))
}

/// `PUT /exchanges/VHOST/NAME`.
pub(super) async fn put<N: Node>(call: &Call<'_, N>, vhost: &str, name: &str) -> Outcome<Answer> {
    call.inside(vhost)?;
    let declaration = ExchangeDeclaration {
        vhost: vhost.to_owned(),
        exchange: http::name::short("exchange name", name.to_owned())?,
        kind: call.body.text_or("type", Some("direct"))?,
        durable: call.body.flag("durable", false)?,
        auto_delete: call.body.flag("auto_delete", false)?,
        internal: call.body.flag("internal", false)?,
        arguments: table::from_json(&call.body.object("arguments")?)?,
        user: call.by().to_owned(),
    };
    Ok(Answer::put(call.node.declare_exchange(declaration).await?))
}

/// `DELETE /exchanges/VHOST/NAME`.
pub(super) async fn delete<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    name: &str,
) -> Outcome<Answer> {
    call.inside(vhost)?;
    find(call, vhost, name)?;
    let deletion = ExchangeDeletion {
        vhost: vhost.to_owned(),
        exchange: name.to_owned(),
        if_unused: call.query.is_true("if-unused"),
        user: call.by().to_owned(),
    };
    call.node.delete_exchange(deletion).await?;
    Ok(Answer::Done)
}

/// An exchange that may be seen.
pub(super) fn find<'a, N: Node>(
    call: &'a Call<'_, N>,
    vhost: &str,
    name: &str,
) -> Outcome<&'a Exchange> {
    call.visible(vhost)?;
    call.state.exchange(vhost, name).map(AsRef::as_ref).ok_or_else(Failure::not_found)
}

async fn show<'a, N: Node>(
    call: &Call<'_, N>,
    exchanges: impl IntoIterator<Item = &'a Exchange>,
) -> Vec<Value> {
    let rates = &*call.rates;
    let with_stats = !call.query.is_true("disable_stats");
    let counters = if with_stats {
        census::exchanges(&call.node.parts(Wanted::EXCHANGES).await)
    } else {
        BTreeMap::new()
    };
    let show = |exchange: &Exchange| {
        let mut item = definition(exchange);
        let policy = call.state.exchange_policy(exchange);
        item["policy"] = json!(policy.map(|policy| &*policy.name));
        if with_stats {
            let key = (exchange.vhost.to_string(), exchange.name.to_string());
            let own = counters.get(&key).copied().unwrap_or_default();
            item["message_stats"] =
                stats::exchange(&own, rates, |sample| sample.exchanges.get(&key));
        }
        item
    };
    exchanges.into_iter().map(show).collect()
}

/// What the topology knows of an exchange.
fn definition(exchange: &Exchange) -> Value {
    json!({
        "name": &*exchange.name,
        "vhost": &*exchange.vhost,
        "type": exchange.kind.as_str(),
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": table::to_json(&exchange.arguments),
        "user_who_performed_action": &*exchange.user_who_performed_action,
    })
}
