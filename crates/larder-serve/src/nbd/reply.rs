//! Replies, encoded into segments of the outbox.
//!
//! Invariants: every reply ends with exactly one segment that gives the request's charge back. With
//! structured replies, reads, block status and every error are answered in chunks; all else is a
//! simple reply. A read that is answered in several chunks may have an error as its last one; then
//! the whole read has failed.
//!
//! It does not send.

use super::{
    handshake::{ALLOCATION_CONTEXT_ID, Negotiated},
    limits::ERROR_MESSAGE_BYTES_MAX,
    outbox::{Body, Charge, OutSegment, Outbox},
};
use crate::dispatch::{Content, Reply, SparsePiece};
use larder_device::{
    Extent, IoBuf,
    nbd::proto::{ChunkHeader, SimpleReply, chunk, state},
};

/// The destination of one request's reply, and its charge.
#[derive(Clone, Copy, Debug)]
pub struct ReplyTicket {
    /// The client's cookie.
    pub cookie: u64,
    /// The holdings of the request.
    pub charge: Charge,
    /// The agreement of the handshake.
    pub agreed: Negotiated,
}

fn wire_len(len: usize) -> u32 {
    u32::try_from(len).expect("a reply's parts are bounded far below 4 GiB")
}

impl ReplyTicket {
    /// Returns the ticket of a request that holds `bytes` of memory.
    pub fn holding(self, bytes: usize) -> ReplyTicket {
        ReplyTicket { charge: Charge { bytes, ..self.charge }, ..self }
    }

    fn last(&self, out: &mut Outbox, mut segment: OutSegment) {
        segment.releases = self.charge;
        out.push(segment);
    }

    fn chunk(&self, done: bool, kind: u16, len: usize) -> [u8; 20] {
        ChunkHeader { done, kind, cookie: self.cookie, len: wire_len(len) }.encode()
    }

    /// Queues the whole reply to a request.
    pub fn reply(&self, out: &mut Outbox, reply: Reply) {
        match reply {
            Reply::Done => self.done(out),
            Reply::Read(Content::Data(offset, data)) => self.data(out, offset, data),
            Reply::Read(content) => self.content(out, true, content, self.charge),
            Reply::Extents(extents) => self.extents(out, &extents),
        }
    }

    /// Queues success without data.
    pub fn done(&self, out: &mut Outbox) {
        let head = SimpleReply { error: 0, cookie: self.cookie }.encode();
        self.last(out, OutSegment::new(&[&head], Body::None));
    }

    /// Queues an error; the message reaches the client with structured replies only.
    pub fn error(&self, out: &mut Outbox, error: u32, message: &str) {
        if !self.agreed.structured {
            let head = SimpleReply { error, cookie: self.cookie }.encode();
            return self.last(out, OutSegment::new(&[&head], Body::None));
        }
        let cuts = (0..=ERROR_MESSAGE_BYTES_MAX).rev();
        let message = cuts.into_iter().find_map(|cut| message.get(..cut)).unwrap_or(message).as_bytes();
        let head = self.chunk(true, chunk::ERROR, 6 + message.len());
        let message_len = u16::try_from(message.len()).unwrap_or(0).to_be_bytes();
        self.last(out, OutSegment::new(&[&head, &error.to_be_bytes(), &message_len], Body::Bytes(message.to_vec())));
    }

    /// Begins a read's data as one stretch of `len` bytes.
    ///
    /// With structured replies a further chunk ends the reply, for a piece may still fail.
    pub fn stretch_head(&self, offset: u64, len: u32) -> OutSegment {
        if self.agreed.structured {
            let head = self.chunk(false, chunk::OFFSET_DATA, 8 + len as usize);
            OutSegment::new(&[&head, &offset.to_be_bytes()], Body::None)
        } else {
            OutSegment::new(&[&SimpleReply { error: 0, cookie: self.cookie }.encode()], Body::None)
        }
    }

    /// Ends a reply whose chunks lack the mark of the last one.
    pub fn no_more(&self, out: &mut Outbox) {
        self.last(out, OutSegment::new(&[&self.chunk(true, chunk::NONE, 0)], Body::None));
    }

    /// Queues a read's data, in one piece.
    fn data(&self, out: &mut Outbox, offset: u64, data: IoBuf) {
        let segment = if self.agreed.structured {
            self.data_chunk(true, offset, data)
        } else {
            OutSegment::new(&[&SimpleReply { error: 0, cookie: self.cookie }.encode()], Body::Buf(data))
        };
        self.last(out, segment);
    }

    fn data_chunk(&self, done: bool, offset: u64, data: IoBuf) -> OutSegment {
        let head = self.chunk(done, chunk::OFFSET_DATA, 8 + data.len());
        OutSegment::new(&[&head, &offset.to_be_bytes()], Body::Buf(data))
    }

    fn piece(&self, done: bool, piece: SparsePiece) -> OutSegment {
        match piece {
            SparsePiece::Data(offset, data) => self.data_chunk(done, offset, data),
            SparsePiece::Zeroes(offset, len) => {
                let head = self.chunk(done, chunk::OFFSET_HOLE, 12);
                OutSegment::new(&[&head, &offset.to_be_bytes(), &len.to_be_bytes()], Body::None)
            }
        }
    }

    /// Sends a part of a read in chunks: `done` if it is the last part. Structured replies only.
    ///
    /// `releases` is given back when the part has left.
    pub fn content(&self, out: &mut Outbox, done: bool, content: Content, releases: Charge) {
        let mut pieces = match content {
            Content::Data(offset, data) => vec![SparsePiece::Data(offset, data)],
            Content::Sparse(pieces) => pieces,
        };
        let Some(last) = pieces.pop() else { return out.release(releases) };
        pieces.into_iter().for_each(|piece| out.push(self.piece(false, piece)));
        let mut segment = self.piece(done, last);
        segment.releases = releases;
        out.push(segment);
    }

    /// Queues the answer to block status.
    fn extents(&self, out: &mut Outbox, extents: &[Extent]) {
        let mut body = Vec::with_capacity(8 * extents.len());
        for extent in extents {
            let flags = if extent.hole { state::HOLE } else { 0 } | if extent.zero { state::ZERO } else { 0 };
            body.extend_from_slice(&u32::try_from(extent.len).unwrap_or(u32::MAX).to_be_bytes());
            body.extend_from_slice(&flags.to_be_bytes());
        }
        let head = self.chunk(true, chunk::BLOCK_STATUS, 4 + body.len());
        self.last(out, OutSegment::new(&[&head, &ALLOCATION_CONTEXT_ID.to_be_bytes()], Body::Bytes(body)));
    }
}
