//! Publishes: from three kinds of frames to one message.

use super::malformed::bad_method;
use super::{Failure, Session, unknown_frame};
use crate::channel::{Content, Slot};
use crate::error::code;
use crate::request::{ChannelId, Error, Publish};
use crate::transaction;
use bytes::BytesMut;
use model::message::Message;
use wire::content::{Assembly, ContentHeader};
use wire::frame::{self, Kind};
use wire::publish;

type Published = Result<Option<Publish>, Failure>;

impl Session {
    /// The fast path: a publish that lies in the input whole becomes a message without a copy.
    /// `None` in every other case.
    #[inline]
    pub(super) fn whole_publish(&mut self, input: &mut BytesMut) -> Option<Published> {
        let &[_, c0, c1, _, _, _, _, _, _, _, 40] = input.first_chunk::<11>()? else { return None };
        if self.phase != super::Phase::Running {
            return None;
        }
        let channel = self.channels.get(ChannelId::from_be_bytes([c0, c1]))?;
        if !matches!(channel.content, Content::Idle) {
            return None;
        }
        let whole = publish::decode_whole(input, self.frame_max_in)?;
        self.frames_in += 1;
        if whole.immediate {
            return Some(Err(immediate(whole.channel)));
        }
        let size = whole.message.body().len() as u64;
        if size > self.config.message_size_max {
            return Some(Err(self.too_large(whole.channel, size)));
        }
        Some(self.on_published(whole.channel, whole.mandatory, whole.message))
    }

    /// Whether the frame of `length` bytes at the front is a publish whose body will come in one
    /// frame that is not here yet: then waiting is better than copying what is here.
    pub(super) fn waits_for_body(
        &self,
        input: &BytesMut,
        number: ChannelId,
        length: usize,
    ) -> bool {
        if input.get(frame::HEADER_LEN..frame::HEADER_LEN + 4) != Some(&[0, 60, 0, 40][..]) {
            return false;
        }
        match self.channels.slot(number) {
            Slot::Running(channel) if matches!(channel.content, Content::Idle) => {}
            Slot::Running(_) | Slot::Closing | Slot::Free => return false,
        }
        // the client may be slow: what is here must be the beginning of just that
        let head = |at: usize| {
            let &[kind, c0, c1, s0, s1, s2, s3] = input.get(at..)?.first_chunk::<7>()?;
            let size = u32::from_be_bytes([s0, s1, s2, s3]);
            let belongs = ChannelId::from_be_bytes([c0, c1]) == number;
            let allowed = self.frame_max_in == 0 || size <= self.frame_max_in;
            Some((kind, size as usize, belongs && allowed))
        };
        let Some((kind, size, fits)) = head(length) else {
            // an `immediate` one is refused at once
            return input.get(length - 2).is_some_and(|bits| bits & 2 == 0);
        };
        if kind != Kind::Header as u8 || !fits || size < 14 {
            return false;
        }
        let Some(header) = input.get(length..length + frame::OVERHEAD + size) else { return true };
        let Ok(content) = ContentHeader::parse(&header[frame::HEADER_LEN..header.len() - 1]) else {
            return false;
        };
        if (content.class, content.weight) != (60, 0)
            || content.body_size > self.config.message_size_max
        {
            return false;
        }
        let body_at = length + header.len();
        match head(body_at) {
            None => content.body_size != 0,
            Some((kind, size, fits)) => {
                fits && kind == Kind::Body as u8
                    && size as u64 == content.body_size
                    && input.len() < body_at + frame::OVERHEAD + size
            }
        }
    }

    /// `basic.publish`, the method alone.
    pub(super) fn on_publish_method(&mut self, number: ChannelId, payload: &[u8]) -> Published {
        let publish =
            publish::parse(payload).map_err(|error| bad_method(number, payload, &error))?;
        if publish.immediate {
            return Err(immediate(number));
        }
        if let Some(channel) = self.channels.get(number) {
            channel.content = Content::Header { method: payload.to_vec() };
        }
        Ok(None)
    }

    /// A frame where a content is expected.
    pub(super) fn on_content_frame(
        &mut self,
        kind: Kind,
        number: ChannelId,
        payload: &[u8],
    ) -> Published {
        let Some(channel) = self.channels.get(number) else { return Ok(None) };
        match std::mem::take(&mut channel.content) {
            Content::Idle => Err(out_of_order(
                number,
                (0, 0),
                "expected method frame, got non method frame instead",
            )),
            Content::Header { method } => {
                if kind != Kind::Header {
                    return Err(out_of_order(
                        number,
                        publish::IDS,
                        "expected content header for class 60, got non content header frame instead",
                    ));
                }
                let header = ContentHeader::parse(payload)
                    .map_err(|_| unknown_frame(kind, number, payload))?;
                if header.class != publish::IDS.0 {
                    let text = format!(
                        "expected content header for class 60, got one for class {} instead",
                        header.class
                    );
                    return Err(out_of_order(number, publish::IDS, &text));
                }
                if header.weight != 0 {
                    return Err(out_of_order(
                        number,
                        publish::IDS,
                        "expected content header for class 60, got non content header frame instead",
                    ));
                }
                // refused before its body comes, which is then discarded with the channel
                if header.body_size > self.config.message_size_max {
                    return Err(self.too_large(number, header.body_size));
                }
                let publish =
                    publish::parse(&method).map_err(|error| bad_method(number, &method, &error))?;
                let assembly = Assembly::new(&publish, &header);
                let mandatory = publish.mandatory;
                self.on_assembly(number, mandatory, assembly)
            }
            Content::Body { mandatory, mut assembly } => {
                if kind != Kind::Body {
                    return Err(out_of_order(
                        number,
                        publish::IDS,
                        "expected content body, got non content body frame instead",
                    ));
                }
                if assembly.push(payload).is_err() {
                    let text = "content body frame exceeds remaining content size";
                    let error = Error::new(code::FRAME_ERROR, text);
                    return Err(Failure { channel: number, ids: publish::IDS, error });
                }
                self.on_assembly(number, mandatory, assembly)
            }
        }
    }

    fn on_assembly(&mut self, number: ChannelId, mandatory: bool, assembly: Assembly) -> Published {
        if assembly.is_complete() {
            return self.on_published(number, mandatory, assembly.finish());
        }
        if let Some(channel) = self.channels.get(number) {
            channel.content = Content::Body { mandatory, assembly };
        }
        // each channel may have a large message half read: together they would outgrow any limit
        if self.alarm.is_on() {
            self.block();
        }
        Ok(None)
    }

    /// A message is complete: it goes to the broker, or waits for the commit.
    #[inline]
    fn on_published(&mut self, number: ChannelId, mandatory: bool, message: Message) -> Published {
        if self.alarm.is_on() {
            self.block();
        }
        let Some(channel) = self.channels.get(number) else { return Ok(None) };
        let confirm = channel.confirms.as_mut().map(|confirms| confirms.take_number());
        self.confirm_number = self.confirm_number.max(confirm.unwrap_or(0));
        let publish = Publish { channel: number, confirm, mandatory, message };
        let Some(transaction) = &mut channel.transaction else { return Ok(Some(publish)) };
        transaction.publish(&publish).map_err(|_| {
            let text = format!("transaction is larger than {} bytes", transaction::BYTES_MAX);
            Failure { channel: number, ids: publish::IDS, error: Error::precondition_failed(text) }
        })?;
        Ok(None)
    }

    fn too_large(&self, channel: ChannelId, size: u64) -> Failure {
        let text = format!(
            "message size {size} is larger than configured max size {}",
            self.config.message_size_max
        );
        Failure { channel, ids: publish::IDS, error: Error::precondition_failed(text) }
    }
}

fn immediate(channel: ChannelId) -> Failure {
    let error = Error::not_implemented("immediate=true");
    Failure { channel, ids: publish::IDS, error }
}

pub(super) fn out_of_order(channel: ChannelId, ids: (u16, u16), text: &str) -> Failure {
    Failure { channel, ids, error: Error::new(code::UNEXPECTED_FRAME, text) }
}
