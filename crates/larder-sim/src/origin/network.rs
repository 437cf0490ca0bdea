//! A volume behind a network, as clouds sell them: so many operations and bytes a second at most, and a latency beside.
//!
//! One gate lets requests through in their order; each holds it for the longer of its operations at the cap of operations, and its
//! bytes at the cap of bytes. Behind it a latency passes, of as many requests at once as there are. A request of more than
//! [`NetworkFigures::operation_bytes`] counts as several operations. Nothing is saved up: there are no bursts.
//!
//! What it does not do: vary. A real volume's latency has a tail that no provider documents.

use super::{Ends, Kind, Medium, Request, Work, profile::NetworkFigures, transfer_ns};
use crate::ssd::time::Nanos;

/// See the module.
pub struct Network {
    figures: NetworkFigures,
    gate_is_free_at: Nanos,
    ends: Ends,
    work: Work,
}

impl Network {
    /// Idle.
    pub fn new(figures: NetworkFigures) -> Network {
        Network { figures, gate_is_free_at: 0, ends: Ends::default(), work: Work { parts: 1, ..Work::default() } }
    }
}

impl Medium for Network {
    fn submit(&mut self, now: Nanos, id: u64, request: Request) {
        self.work.count(&request);
        let NetworkFigures { read_ns, write_ns, operations_per_second, operation_bytes, bytes_per_second } =
            self.figures;
        let ns = match request.kind {
            Kind::Read => read_ns,
            Kind::Write => write_ns,
            // The network alone.
            Kind::Trim | Kind::Flush => return self.ends.add(now + write_ns, id),
        };
        let operations = transfer_ns(request.len.div_ceil(operation_bytes), operations_per_second);
        let passes = operations.max(transfer_ns(request.len, bytes_per_second));
        self.work.busy_ns += u128::from(passes);
        self.gate_is_free_at = now.max(self.gate_is_free_at) + passes;
        self.ends.add(self.gate_is_free_at + ns, id);
    }

    fn next_at(&self) -> Option<Nanos> {
        self.ends.next_at()
    }

    fn step(&mut self, now: Nanos, over: &mut Vec<u64>) {
        self.ends.take_until(now, over);
    }

    fn work(&self) -> Work {
        self.work
    }
}
