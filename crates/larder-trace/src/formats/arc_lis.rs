//! The block references of ARC (Megiddo and Modha, FAST'03), `.lis`: `first_page pages ignored request`.
//!
//! A line stands for `pages` references, one after the other; no operation is given, so all are reads. The files do
//! not say what a page is, and for hit ratios it is no matter: 4096 bytes, unless the caller knows better. Column 3 is
//! not used. There are no times.

use super::LineFormat;
use crate::{
    error::Complaint,
    parse::Cursor,
    record::{Op, Record},
    sink::Sink,
};

/// Bytes of a page, where the caller says nothing.
pub(crate) const PAGE_BYTES: u32 = 4096;

/// The parser.
pub(crate) struct ArcLis {
    page_bytes: u64,
}

impl ArcLis {
    pub fn new(page_bytes: Option<u32>) -> ArcLis {
        ArcLis { page_bytes: u64::from(page_bytes.unwrap_or(PAGE_BYTES)) }
    }
}

impl LineFormat for ArcLis {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Complaint> {
        let mut columns = Cursor::blanks(line);
        let page = columns.number("the first page in column 1")?;
        let pages = columns.number("the number of pages in column 2")?;
        columns.number("a number in column 3")?;
        columns.number("the number of the request in column 4")?;
        columns.end("four columns and no more")?;
        let offset_bytes = page.saturating_mul(self.page_bytes);
        let len_bytes = pages.saturating_mul(self.page_bytes);
        let request = sink.next_request();
        sink.push(Record::new(request, Op::Read, offset_bytes, len_bytes))
    }
}
