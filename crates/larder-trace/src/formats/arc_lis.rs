//! The block references of ARC, `.lis`: `first_page pages ignored request`.
//!
//! Source: Megiddo and Modha, FAST'03. A line stands for `pages` consecutive references. The file
//! gives no operation, so all are reads. It does not give the size of a page either, which does not
//! matter for hit ratios. A page is 4096 bytes unless the caller gives another size. Column 3 is
//! not used. There are no times.

use super::kinds::LineFormat;
use crate::{
    error::Complaint,
    parse::Cursor,
    record::{Op, Record},
    sink::Sink,
};

/// Bytes of a page if the caller gives no size.
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
