//! One socket: coalesced writes, frames cut from reads.

use crate::frame::{Frame, FrameError, Front, Kind, Parts, front};
use crate::outbox::Outbox;
use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

#[cfg(test)]
mod tests;

/// A socket, plain or with TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Payloads up to that are copied next to their headers: the copy costs less than one more slice.
const COPIED_MAX: usize = 2048;
/// How much is made ready for writing at once. A ping waits for that much at most.
const STAGED_MIN: usize = 256 * 1024;
/// Slices of one write.
const SLICES: usize = 64;
/// How much one read may bring.
const READ: usize = 128 * 1024;
/// A read is worth its call with that much room.
const READ_MIN: usize = 16 * 1024;

/// A connection whose handshake is over. Dropping it closes its socket and its outbox.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    pub(crate) outbox: Arc<Outbox>,
    /// What was read and not cut yet.
    pub(crate) input: BytesMut,
    /// A whole frame at the front of the input may not be handed over yet, so no more is read.
    pub(crate) held: bool,
    /// What has come of a payload whose rest is still to come.
    pub(crate) parts: Parts,
    /// Pings and pongs, which jump the queue.
    urgent: Vec<Frame>,
    /// Taken from the outbox and not staged.
    queue: VecDeque<Frame>,
    staged: VecDeque<Bytes>,
    /// Bytes of the staged frames that the outbox still counts.
    counted: usize,
    scratch: BytesMut,
    unflushed: bool,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("held", &self.held).finish_non_exhaustive()
    }
}

impl Connection {
    /// `input` was read behind the handshake, `output` is the end of it.
    pub(crate) fn new(
        stream: Box<dyn Stream>,
        outbox: Arc<Outbox>,
        input: BytesMut,
        output: BytesMut,
    ) -> Self {
        let mut staged = VecDeque::new();
        if !output.is_empty() {
            staged.push_back(output.freeze());
        }
        Self {
            stream,
            outbox,
            input,
            held: false,
            parts: Parts::default(),
            urgent: Vec::new(),
            queue: VecDeque::new(),
            staged,
            counted: 0,
            scratch: BytesMut::new(),
            unflushed: false,
        }
    }

    /// Sends a ping or a pong before all that is not staged.
    pub(crate) fn send_urgent(&mut self, kind: Kind) {
        // One that still waits says the same.
        if !self.urgent.iter().any(|frame| frame.kind == kind) {
            self.urgent.push(Frame { kind, channel: 0, correlation: 0, payload: Bytes::new() });
        }
    }

    /// Makes what waits ready for writing, if nothing is.
    pub(crate) fn stage(&mut self) {
        if !self.staged.is_empty() {
            return;
        }
        if self.queue.is_empty() {
            self.outbox.take(&mut self.queue);
        }
        let mut bytes = 0;
        for frame in self.urgent.drain(..) {
            frame.put_header(&mut self.scratch);
        }
        while bytes < STAGED_MIN
            && let Some(frame) = self.queue.pop_front()
        {
            bytes += frame.len();
            frame.put_header(&mut self.scratch);
            if frame.payload.len() <= COPIED_MAX {
                self.scratch.extend_from_slice(&frame.payload);
            } else {
                self.staged.push_back(self.scratch.split().freeze());
                self.staged.push_back(frame.payload);
            }
        }
        self.counted = bytes;
        if !self.scratch.is_empty() {
            self.staged.push_back(self.scratch.split().freeze());
        }
    }

    /// Writes and reads what can be. Ready when something was read, or when all that was staged is
    /// written: what was put into the outbox meanwhile is staged by the next call.
    ///
    /// # Errors
    /// Those of the socket, and its end.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Moved>> {
        self.stage();
        let wrote = self.poll_write(context)?.is_ready();
        let read = !self.held && self.poll_read(context)?.is_ready();
        if read || wrote { Poll::Ready(Ok(Moved { read })) } else { Poll::Pending }
    }

    /// Ready when all that was staged has just been written.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.staged.is_empty() && !self.unflushed {
            return Poll::Pending;
        }
        while !self.staged.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for (slice, bytes) in slices.iter_mut().zip(&self.staged) {
                *slice = IoSlice::new(bytes);
                count += 1;
            }
            let stream = Pin::new(&mut *self.stream);
            let Poll::Ready(written) = stream.poll_write_vectored(context, &slices[..count])?
            else {
                return Poll::Pending;
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
            self.unflushed = true;
        }
        if self.counted > 0 {
            self.outbox.written(std::mem::take(&mut self.counted));
        }
        // TLS may keep the end of it.
        if Pin::new(&mut *self.stream).poll_flush(context)?.is_pending() {
            return Poll::Pending;
        }
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(first) = self.staged.front_mut() {
            if written < first.len() {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.staged.pop_front();
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let missing = match front(&self.input) {
            Ok(Front::Partial(missing)) => missing,
            // Told to the one who cuts.
            Ok(Front::Whole(_)) | Err(_) => 0,
        };
        let room = self.input.capacity() - self.input.len();
        if room < missing.max(READ_MIN) {
            self.input.reserve(missing.max(READ));
        }
        let reading = pin!(self.stream.read_buf(&mut self.input));
        match reading.poll(context)? {
            Poll::Pending => Poll::Pending,
            Poll::Ready(0) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            Poll::Ready(_) => Poll::Ready(Ok(())),
        }
    }

    /// What stands at the front of the input.
    ///
    /// # Errors
    /// If it is no frame: the connection is of no use any more.
    pub(crate) fn front(&self) -> Result<Front, FrameError> {
        front(&self.input)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.outbox.close();
    }
}

/// What a poll has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) read: bool,
}
