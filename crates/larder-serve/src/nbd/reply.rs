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
    limits::{ERROR_MESSAGE_BYTES_MAX, EXTENTS_MAX},
    outbox::{Body, Charge, OutSegment, Outbox},
};
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

/// The content of a part of a read.
pub enum ReplyContent {
    /// Data from an offset on.
    Data(u64, IoBuf),
    /// Data and zeroes, in order, at least one of them.
    Sparse(Vec<Piece>),
}

/// A piece of a sparse read. Offsets and lengths are in bytes.
pub enum Piece {
    /// Data at an offset.
    Data(u64, IoBuf),
    /// Zeroes at an offset.
    Zeroes(u64, u32),
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
    pub fn data(&self, out: &mut Outbox, offset: u64, data: IoBuf) {
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

    fn piece(&self, done: bool, piece: Piece) -> OutSegment {
        match piece {
            Piece::Data(offset, data) => self.data_chunk(done, offset, data),
            Piece::Zeroes(offset, len) => {
                let head = self.chunk(done, chunk::OFFSET_HOLE, 12);
                OutSegment::new(&[&head, &offset.to_be_bytes(), &len.to_be_bytes()], Body::None)
            }
        }
    }

    /// Sends a part of a read in chunks: `done` if it is the last part. Structured replies only.
    ///
    /// `releases` is given back when the part has left.
    pub fn content(&self, out: &mut Outbox, done: bool, content: ReplyContent, releases: Charge) {
        let mut pieces = match content {
            ReplyContent::Data(offset, data) => vec![Piece::Data(offset, data)],
            ReplyContent::Sparse(pieces) => pieces,
        };
        let Some(last) = pieces.pop() else { return out.release(releases) };
        pieces.into_iter().for_each(|piece| out.push(self.piece(false, piece)));
        let mut segment = self.piece(done, last);
        segment.releases = releases;
        out.push(segment);
    }

    /// Queues the answer to block status: tidied extents.
    pub fn extents(&self, out: &mut Outbox, extents: &[Extent]) {
        let mut body = Vec::with_capacity(8 * extents.len());
        for extent in extents.iter().take(EXTENTS_MAX) {
            let flags = if extent.hole { state::HOLE } else { 0 } | if extent.zero { state::ZERO } else { 0 };
            body.extend_from_slice(&u32::try_from(extent.len).unwrap_or(u32::MAX).to_be_bytes());
            body.extend_from_slice(&flags.to_be_bytes());
        }
        let head = self.chunk(true, chunk::BLOCK_STATUS, 4 + body.len());
        self.last(out, OutSegment::new(&[&head, &ALLOCATION_CONTEXT_ID.to_be_bytes()], Body::Bytes(body)));
    }
}

/// Returns a device's extents in the protocol's form, at least one and at most [`EXTENTS_MAX`].
///
/// None is empty, and equal neighbours are merged. They have no more than `len` bytes in all, and
/// each but the last is a multiple of `block_bytes`.
pub fn tidy(extents: &[Extent], len: u64, block_bytes: u64) -> Vec<Extent> {
    let mut tidied: Vec<Extent> = Vec::new();
    let mut left = len;
    for extent in extents {
        let take = extent.len.min(left);
        let whole = take - take % block_bytes;
        if whole > 0 {
            let full = tidied.len() == EXTENTS_MAX;
            match tidied.last_mut() {
                Some(last) if last.hole == extent.hole && last.zero == extent.zero => last.len += whole,
                _ if full => break,
                _ => tidied.push(Extent { len: whole, ..*extent }),
            }
        }
        left -= whole;
        // A device's extent that ends inside a block ends the answer: a later one would be
        // misplaced.
        if whole < extent.len {
            break;
        }
    }
    if tidied.is_empty() {
        tidied.push(Extent { len, hole: false, zero: false });
    }
    tidied
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(len: u64, zero: bool) -> Extent {
        Extent { len, hole: zero, zero }
    }

    #[test]
    fn extents_are_merged_cut_and_never_empty() {
        let tidied = tidy(&[extent(512, true), extent(512, true), extent(0, false), extent(4096, false)], 2048, 512);
        assert_eq!(tidied, [extent(1024, true), extent(1024, false)]);
        assert_eq!(tidy(&[], 512, 512), [extent(512, false)]);
        assert_eq!(tidy(&[extent(100, true), extent(412, false)], 512, 512), [extent(512, false)]);
        assert_eq!(tidy(&[extent(700, true), extent(324, false)], 1024, 512), [extent(512, true)]);
    }

    #[test]
    fn extents_are_bounded() {
        let many: Vec<Extent> = (0..5000).map(|i| extent(512, i % 2 == 0)).collect();
        assert_eq!(tidy(&many, 5000 * 512, 512).len(), EXTENTS_MAX);
    }
}
