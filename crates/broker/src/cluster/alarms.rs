//! An alarm of one node stops publishers on all of them, for what they publish may be kept there:
//! every node tells the others which of its own are on.
//!
//! ```text
//!  word = which are on u8: 1 memory, 2 disk
//! ```

use std::sync::Arc;

use bytes::Bytes;
use model::id::NodeId;

use crate::cluster::{Cluster, channel};
use crate::limits::alarms::Alarms;

const MEMORY: u8 = 1;
const DISK: u8 = 2;

impl Cluster {
    /// Tells the other nodes when alarms of this one begin and end, for as long as the node lives.
    pub(crate) async fn spread_alarms(self: Arc<Self>) {
        let mut own = self.pressure.subscribe_own();
        loop {
            own.mark_unchanged();
            for peer in self.connected() {
                self.tell_alarms(peer.id);
            }
            if own.changed().await.is_err() {
                return;
            }
        }
    }

    /// Tells a node which alarms are on now.
    pub(super) fn tell_alarms(&self, to: NodeId) {
        // The last word that is sent is the one that counts.
        let _in_order = self.alarm_word.lock();
        // Who is lost hears of it when it is back.
        self.lanes.send(to, channel::ALARMS, encode(self.pressure.alarms()));
    }

    /// Another node says which of its alarms are on.
    pub(super) fn on_alarms(&self, from: NodeId, word: &[u8]) {
        let Some(alarms) = decode(word) else {
            return tracing::warn!(%from, "a word on alarms that this version does not know");
        };
        self.pressure.elsewhere(from, alarms);
    }
}

fn encode(alarms: Alarms) -> Bytes {
    let memory = if alarms.memory { MEMORY } else { 0 };
    let disk = if alarms.disk { DISK } else { 0 };
    Bytes::copy_from_slice(&[memory | disk])
}

fn decode(word: &[u8]) -> Option<Alarms> {
    match *word {
        [on] if on & !(MEMORY | DISK) == 0 => {
            Some(Alarms { memory: on & MEMORY != 0, disk: on & DISK != 0 })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_and_others_are_refused() {
        for on in 0..=u8::MAX {
            let alarms = decode(&[on]);
            assert_eq!(alarms.is_some(), on < 4);
            if let Some(alarms) = alarms {
                assert_eq!(*encode(alarms), [on]);
            }
        }
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[1, 1]), None);
    }
}
