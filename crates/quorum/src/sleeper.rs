//! Sends groups to sleep. One task per host, which does nothing while none is awake.

use crate::host::{Group, Shared};
use crate::rest;
use crate::types::Types;
use futures_util::StreamExt;
use futures_util::stream;
use openraft::type_config::TypeConfigExt;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often it looks, at most and at least.
const LOOK_MIN: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_secs(1);
/// How many groups fall asleep at a time.
const DOZING: usize = 16;

/// Runs until the host is gone.
pub(crate) async fn run(shared: Weak<Shared>) {
    let Some(after) = shared.upgrade().and_then(|shared| shared.options.rest.after) else { return };
    let pause = (after / 4).clamp(LOOK_MIN, LOOK_MAX);
    loop {
        Types::sleep(pause).await;
        let Some(strong) = shared.upgrade() else { return };
        if strong.is_closed() {
            return;
        }
        strong.write_down();
        look(&strong).await;
    }
}

/// Lets groups fall asleep that were idle for long enough, those idle for longest first.
async fn look(shared: &Arc<Shared>) {
    let ids: Vec<_> = shared.awake.lock().iter().copied().collect();
    let mut groups: Vec<(u64, Arc<Group>)> = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(group) = shared.group(id) else {
            shared.awake.lock().remove(&id);
            continue;
        };
        if let Some(used) = group.awake().map(|awake| awake.used()) {
            groups.push((used, group));
        }
    }
    groups.sort_by_key(|(used, group)| (*used, group.id));
    let mut awake = groups.len();
    let mut dozing = Vec::new();
    for (used, group) in groups {
        let Some(after) = rest::patience(shared.options.rest, awake) else { return };
        let idle = Duration::from_millis(group.now().saturating_sub(used));
        if idle < after {
            break;
        }
        awake -= 1;
        dozing.push((group, after));
    }
    let doze =
        |(group, after): (Arc<Group>, Duration)| async move { group.doze(shared, after).await };
    let dozed = stream::iter(dozing).map(doze).buffer_unordered(DOZING);
    dozed.for_each(|_| std::future::ready(())).await;
}
