//! A volume behind a network, as clouds sell them: limited operations and bytes, and a latency.
//!
//! One gate lets requests through in their order. Each holds it for the longer of two times: its
//! operations at their cap, and its bytes at theirs. The latency follows, for any number of
//! requests at once. A request of more than [`NetworkFigures::operation_bytes`] counts as several
//! operations. Nothing is saved up: there are no bursts.
//!
//! It does not vary. A real volume's latency has a tail that no provider documents.

use std::ops::Range;

use super::{
    medium::{Foresees, transfer_ns},
    profile::NetworkFigures,
    request::{OriginRequest, RequestKind},
};
use larder_ssd::time::Nanos;

/// See the module.
pub struct Network {
    figures: NetworkFigures,
    gate_is_free_at: Nanos,
}

impl Network {
    /// Makes an idle volume.
    pub fn new(figures: NetworkFigures) -> Network {
        Network { figures, gate_is_free_at: 0 }
    }
}

impl Foresees for Network {
    /// The gate.
    const PARTS: u64 = 1;

    fn take(&mut self, now: Nanos, request: &OriginRequest) -> (Nanos, Range<Nanos>) {
        let NetworkFigures { read_ns, write_ns, operations_per_second, operation_bytes, bytes_per_second } =
            self.figures;
        let ns = match request.kind {
            RequestKind::Read => read_ns,
            RequestKind::Write => write_ns,
            // The network alone.
            RequestKind::Trim | RequestKind::Flush => return (now + write_ns, now..now),
        };
        let operations = transfer_ns(request.len.div_ceil(operation_bytes), operations_per_second);
        let passes = operations.max(transfer_ns(request.len, bytes_per_second));
        let begins = now.max(self.gate_is_free_at);
        self.gate_is_free_at = begins + passes;
        (self.gate_is_free_at + ns, begins..self.gate_is_free_at)
    }
}
