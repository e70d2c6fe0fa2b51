//! A look at a message of a quorum queue, for operators: whoever leads the queue is asked.

use amq_protocol_types::AMQPValue;
use bytes::Bytes;
use management::inquiry::{self, Inquiry};
use management::view::message::{PeekError, PeekedMessage};
use model::id::QueueId;
use model::message::Message;

use crate::cluster::channel;
use crate::death;
use crate::node::Node;
use crate::operator::inquiries::PATIENCE;
use crate::replicated::replica::peek::{Peek, Peeked, Unseen};
use crate::shard::command::Command;

type Seen = Result<PeekedMessage, PeekError>;

/// The message that is delivered after `before` others, with at most `most` bytes of its body.
pub(super) async fn peek(node: &Node, queue: QueueId, before: u64, most: usize) -> Seen {
    let leader = node.members.leader(queue).await.ok_or(PeekError::NoLeader)?;
    if leader == node.cluster.me.node {
        return here(node, queue, before, most).await;
    }
    let question = Bytes::from(Inquiry::Peek { queue, before, most }.encode());
    let answer = node.cluster.road.request(leader, channel::INQUIRIES, question, PATIENCE).await;
    let answer = answer.ok_or(PeekError::Silent)?;
    inquiry::decode::<Seen>(&answer).map_err(|_| PeekError::Silent)?
}

/// The same of a queue that this node leads.
pub(super) async fn here(node: &Node, queue: QueueId, before: u64, most: usize) -> Seen {
    let ask = |answer| Command::Peek { queue, peek: Peek::new(before, answer) };
    match node.ask(queue, ask).await {
        Some(Ok(peeked)) => Ok(show(&peeked, most)),
        Some(Err(Unseen::NoMessage)) => Err(PeekError::NoMessage),
        Some(Err(Unseen::Unreadable)) => Err(PeekError::Unreadable),
        Some(Err(Unseen::NotLeader)) | None => Err(PeekError::NotLeader),
    }
}

fn show(peeked: &Peeked, most: usize) -> PeekedMessage {
    let Peeked { message, head } = peeked;
    let whole = message.body();
    // A client that gets it learns how often it failed; here that is said of the first time, too.
    let count = AMQPValue::LongLongInt(i64::from(head.delivery_count));
    let counted = death::with_header(message, "x-delivery-count", count);
    let shown = Message::from_parts(
        message.exchange(),
        message.routing_key(),
        counted.properties(),
        &whole[..cut(whole, most)],
    );
    PeekedMessage { message: shown, payload_bytes: whole.len() as u64, redelivered: head.delivered }
}

/// How much of a body is shown: a text that is cut is still a text.
fn cut(whole: &[u8], most: usize) -> usize {
    match std::str::from_utf8(whole) {
        Ok(text) => text.floor_char_boundary(most),
        Err(_) => whole.len().min(most),
    }
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_text_is_cut_between_characters_and_bytes_anywhere() {
        assert_eq!(cut("aü".as_bytes(), 2), 1);
        assert_eq!(cut("aü".as_bytes(), 3), 3);
        assert_eq!(cut("aü".as_bytes(), 64), 3);
        assert_eq!(cut(&[0xff, 0xfe, 0xfd], 2), 2);
        assert_eq!(cut(b"", 64), 0);
    }
}
