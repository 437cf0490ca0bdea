//! The memory of requests: one budget for all connections of a process, and an account for each.
//!
//! A part of the budget is each connection's *own*. The rest is *common*. A connection may hold at
//! most as much of the common part as is free besides. So the next connection finds some, and
//! connections that want more than the total come to equal shares. A connection may hold no more
//! data there than it has turned over. So a client that requests much and reads nothing stays close
//! to its own part.
//!
//! An account holds *data*, in buffers, and *requests*. Each request under way costs
//! [`REQUEST_BYTES`] beside its data. A device that caches holds chunks for a request, too: *work*,
//! which is charged with the buffer.
//!
//! Invariants: all accounts together never hold more than the budget. An account that holds nothing
//! can always take its own part. A part of its own stays for data, however many requests there are.
//! So an account that holds no data can always take a piece of [`PIECE_BYTES_MIN`]. So a connection
//! waits for its own requests and its own client alone, and no connection has to wake another.
//!
//! It does not wait or allocate.

use larder_device::IoBuf;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The least that is each connection's own: a request and a piece of its data.
const OWN_BYTES_MIN: usize = 32 << 10;
/// Any request can be served in pieces of this size.
const PIECE_BYTES_MIN: usize = 16 << 10;
/// The cost of a request beside its data: its task, its reply's head, its state in the device.
pub const REQUEST_BYTES: usize = 4 << 10;
/// The most that is each connection's own.
const OWN_BYTES_MAX: usize = 1 << 20;
/// The size of the common part that a connection may have before it has turned anything over.
const TRUST_BYTES_MIN: usize = 1 << 20;

/// The budget of a process: the bytes that requests and replies of all its connections may hold.
#[derive(Debug)]
pub struct RequestMemory {
    /// Each connection's own.
    own_bytes: usize,
    common_bytes: usize,
    /// The unit in which the device works for a request; 0 if it needs no memory of its own.
    work_unit_bytes: usize,
    /// The cost of a piece, which each grow and shrink asks for.
    piece_cost: usize,
    /// The bytes of the common part that are taken. Relaxed: it counts, it orders nothing.
    common_used: AtomicUsize,
}

impl RequestMemory {
    /// The budget for ordinary clients.
    pub const BYTES_DEFAULT: usize = 256 << 20;

    /// Returns the smallest budget for this number of connections.
    pub fn bytes_min(connections_max: usize) -> usize {
        connections_max.saturating_mul(OWN_BYTES_MIN)
    }

    /// Makes a budget of `bytes`, at least [`RequestMemory::bytes_min`], for this number of
    /// connections.
    pub fn new(bytes: usize, connections_max: usize) -> RequestMemory {
        let connections = connections_max.max(1);
        let own_bytes = (bytes / 2 / connections).clamp(OWN_BYTES_MIN, OWN_BYTES_MAX);
        let memory = RequestMemory {
            own_bytes,
            common_bytes: bytes.saturating_sub(own_bytes * connections),
            work_unit_bytes: 0,
            piece_cost: 0,
            common_used: AtomicUsize::new(0),
        };
        memory.with_work_in(0)
    }

    /// Charges each request's units of so many bytes besides: a device that caches works on them.
    #[must_use]
    pub fn with_work_in(self, unit_bytes: usize) -> RequestMemory {
        let memory = RequestMemory { work_unit_bytes: unit_bytes, ..self };
        RequestMemory { piece_cost: memory.cost(PIECE_BYTES_MIN), ..memory }
    }

    /// Returns the cost of `len` bytes of data: their buffer, and the work of the device.
    ///
    /// The smallest piece costs no more than fits a connection's own part.
    pub fn cost(&self, len: usize) -> usize {
        let work = match self.work_unit_bytes {
            0 => 0,
            unit => IoBuf::cost(len.next_multiple_of(unit)),
        };
        let cost = IoBuf::cost(len) + work;
        if len <= PIECE_BYTES_MIN { cost.min(self.own_bytes - REQUEST_BYTES) } else { cost }
    }

    /// Takes `more` for an account that then has `mine` of the common part.
    fn take(&self, more: usize, mine: usize) -> bool {
        let fits = |used: usize| {
            let used = used + more;
            (used + mine <= self.common_bytes).then_some(used)
        };
        self.common_used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}

/// The memory of one connection.
#[derive(Debug)]
pub struct MemoryAccount {
    memory: Arc<RequestMemory>,
    /// The bytes that data holds.
    held: usize,
    /// The requests under way.
    requests: usize,
    /// The most data that it may have in the common part; it grows with the bytes turned over.
    trust: usize,
}

impl MemoryAccount {
    /// Opens an account that holds nothing.
    pub fn new(memory: Arc<RequestMemory>) -> MemoryAccount {
        MemoryAccount { memory, held: 0, requests: 0, trust: TRUST_BYTES_MIN }
    }

    /// Returns the requests under way.
    pub fn requests(&self) -> usize {
        self.requests
    }

    /// Returns the bytes that data holds.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Returns the common part of these requests, with `held` bytes of data.
    fn of_common(&self, requests: usize, held: usize) -> usize {
        (requests * REQUEST_BYTES + held.max(self.memory.piece_cost)).saturating_sub(self.memory.own_bytes)
    }

    /// Comes to hold these requests and this data, or stays as it is if its limit forbids them.
    fn grow(&mut self, requests: usize, held: usize) -> bool {
        let (before, after) = (self.of_common(self.requests, self.held), self.of_common(requests, held));
        let is_trusted = after <= self.trust + requests * REQUEST_BYTES;
        let allowed = after == before || (is_trusted && self.memory.take(after - before, after));
        if allowed {
            (self.requests, self.held) = (requests, held);
        }
        allowed
    }

    /// Comes to hold fewer requests and less data.
    fn shrink(&mut self, requests: usize, held: usize) {
        let returned = self.of_common(self.requests, self.held) - self.of_common(requests, held);
        if returned > 0 {
            self.memory.common_used.fetch_sub(returned, Ordering::Relaxed);
        }
        (self.requests, self.held) = (requests, held);
    }

    /// Begins a request, or nothing if the account may not have another now.
    pub fn begin_request(&mut self) -> bool {
        self.grow(self.requests + 1, self.held)
    }

    /// Ends this number of requests.
    pub fn end_requests(&mut self, requests: usize) {
        self.shrink(self.requests.saturating_sub(requests), self.held);
    }

    /// Takes `bytes` for data, or nothing if the account may not have them now.
    pub fn take(&mut self, bytes: usize) -> bool {
        self.grow(self.requests, self.held + bytes)
    }

    /// Gives `bytes` of data back.
    pub fn give_back(&mut self, bytes: usize) {
        self.shrink(self.requests, self.held.saturating_sub(bytes));
        self.trust = self.trust.saturating_add(bytes).min(self.memory.common_bytes.max(TRUST_BYTES_MIN));
    }

    /// Returns how much data the account could hold, with the other accounts as they are now.
    fn bytes_max(&self) -> usize {
        let mine = self.of_common(self.requests, self.held);
        let others = self.memory.common_used.load(Ordering::Relaxed).saturating_sub(mine);
        let share = self.memory.common_bytes.saturating_sub(others) / 2;
        let of_requests = self.requests * REQUEST_BYTES;
        (self.memory.own_bytes + share.min(self.trust + of_requests)).saturating_sub(of_requests)
    }

    /// Takes the memory for `len` bytes of data, or for the most bytes that the account could ever
    /// hold.
    ///
    /// Returns for how many bytes; `None` if the account must give memory back first.
    pub fn take_for(&mut self, len: usize) -> Option<usize> {
        loop {
            let bytes_max = self.bytes_max();
            let is_fitting = |len: &usize| self.memory.cost(*len) <= bytes_max;
            let halves = std::iter::successors(Some(1 << len.max(1).ilog2()), |half| Some(half / 2));
            let mut pieces = std::iter::once(len).chain(halves.take_while(|half| *half > PIECE_BYTES_MIN));
            let fitting = pieces.find(is_fitting).unwrap_or(len.min(PIECE_BYTES_MIN));
            if self.take(self.memory.cost(fitting)) {
                return Some(fitting);
            }
            // Another account was faster, so this one could hold less now.
            if self.held > 0 {
                return None;
            }
        }
    }
}

impl Drop for MemoryAccount {
    fn drop(&mut self) {
        self.shrink(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::rng::Rng;

    const MIB: usize = 1 << 20;

    fn accounts(bytes: usize, connections: usize, count: usize) -> (Arc<RequestMemory>, Vec<MemoryAccount>) {
        let memory = Arc::new(RequestMemory::new(bytes, connections));
        let accounts = (0..count).map(|_| MemoryAccount::new(memory.clone())).collect();
        (memory, accounts)
    }

    /// Takes as much as it gets, in pieces.
    fn fill(account: &mut MemoryAccount, piece: usize) {
        while account.take(piece) {}
    }

    /// Gives all its memory back, in pieces, again and again, until it is trusted with everything.
    fn prove(account: &mut MemoryAccount) {
        for _ in 0..100 {
            fill(account, 64 << 10);
            account.give_back(account.held());
        }
    }

    #[test]
    fn random_holders_stay_within_the_budget_and_none_is_stuck() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let connections = 1 + rng.index(20);
            let bytes = RequestMemory::bytes_min(connections) + rng.index(32 * MIB);
            let unit = [0, 4 << 10, 64 << 10][rng.index(3)];
            let memory = Arc::new(RequestMemory::new(bytes, connections).with_work_in(unit));
            let mut accounts: Vec<MemoryAccount> =
                (0..connections).map(|_| MemoryAccount::new(memory.clone())).collect();
            let mut held: Vec<Vec<usize>> = vec![Vec::new(); connections];
            for step in 0..2000 {
                let at = rng.index(connections);
                let (account, mine) = (&mut accounts[at], &mut held[at]);
                match rng.index(4) {
                    0 => {
                        let is_idle = account.requests() == 0 && account.held() == 0;
                        assert!(account.begin_request() || !is_idle, "seed {seed}, step {step}: idle, and stuck");
                    }
                    1 => account.end_requests(rng.index(2).min(account.requests())),
                    _ => {}
                }
                if rng.index(2) == 0 || mine.is_empty() {
                    let want = 1 + rng.index(2 * MIB);
                    let before = account.held();
                    // A request is under way when data is taken.
                    if account.requests() == 0 && !account.begin_request() {
                        continue;
                    }
                    let got = account.take_for(want);
                    assert!(got.is_some() || before > 0, "seed {seed}, step {step}: no data held, and stuck");
                    assert!(
                        got.is_none_or(|got| got == want || got >= PIECE_BYTES_MIN.min(want)),
                        "seed {seed}: {got:?}"
                    );
                    mine.extend(got.map(|got| memory.cost(got)));
                } else {
                    let piece = mine.swap_remove(rng.index(mine.len()));
                    account.give_back(piece);
                }
                assert_eq!(account.held(), held[at].iter().sum::<usize>(), "seed {seed}, step {step}");
                let all: usize = accounts.iter().map(|mine| mine.held() + mine.requests() * REQUEST_BYTES).sum();
                assert!(all <= bytes, "seed {seed}, step {step}: {all} of {bytes}");
            }
            drop(accounts);
            assert_eq!(memory.common_used.load(Ordering::Relaxed), 0, "seed {seed}: all is given back");
        }
    }

    #[test]
    fn requests_without_data_are_charged_and_leave_room_for_a_piece() {
        let (_, mut accounts) = accounts(RequestMemory::bytes_min(2), 2, 2);
        let account = &mut accounts[0];
        let begun = (0..256).filter(|_| account.begin_request()).count();
        let piece = account.memory.cost(PIECE_BYTES_MIN);
        assert_eq!(begun, (OWN_BYTES_MIN - piece) / REQUEST_BYTES);
        assert_eq!(account.take_for(MIB), Some(PIECE_BYTES_MIN));
        assert!(!account.begin_request());
        account.give_back(piece);
        account.end_requests(1);
        assert!(account.begin_request());
    }

    #[test]
    fn a_client_that_turns_nothing_over_gets_little() {
        let (_, mut accounts) = accounts(256 * MIB, 256, 61);
        let (last, deaf) = accounts.split_last_mut().expect("some");
        deaf.iter_mut().for_each(|account| fill(account, 64 << 10));
        let held: usize = deaf.iter().map(|account| account.held()).sum();
        assert!(held <= 60 * 3 * MIB / 2, "60 that read nothing hold {held}");
        prove(last);
        fill(last, MIB);
        assert!(last.held() >= 16 * MIB, "one that reads gets {}", last.held());
    }

    #[test]
    fn a_late_client_finds_its_own_part_beside_any_others() {
        let (memory, mut accounts) = accounts(256 * MIB, 256, 256);
        accounts.iter_mut().for_each(|account| {
            prove(account);
            fill(account, 64 << 10);
        });
        let least = accounts.iter().map(MemoryAccount::held).min().expect("some");
        assert!(least >= memory.own_bytes && memory.own_bytes == 512 << 10, "{least}");
        assert!(accounts.iter().map(MemoryAccount::held).sum::<usize>() <= 256 * MIB);
    }

    #[test]
    fn clients_that_turn_over_as_much_come_to_equal_shares() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let (_, mut accounts) = accounts(64 * MIB, 16, 8);
            prove(&mut accounts[0]);
            fill(&mut accounts[0], 64 << 10);
            assert!(accounts[0].held() > 16 * MIB, "alone it has half");
            // All turn over at the same rate, and want more than the total.
            for _ in 0..20_000 {
                let at = rng.index(accounts.len());
                if accounts[at].held() > 0 {
                    accounts[at].give_back(64 << 10);
                }
                fill(&mut accounts[at], 64 << 10);
            }
            let held: Vec<usize> = accounts.iter().map(MemoryAccount::held).collect();
            let (least, most) = (held.iter().min().expect("some"), held.iter().max().expect("some"));
            assert!(most - least <= MIB, "seed {seed}: {held:?}");
        }
    }

    #[test]
    fn an_ordinary_client_is_not_served_in_pieces() {
        let (_, mut accounts) = accounts(256 * MIB, 256, 1);
        assert_eq!(accounts[0].take_for(MIB), Some(MIB), "from its first request on");
        accounts[0].give_back(MIB);
        prove(&mut accounts[0]);
        assert_eq!(accounts[0].take_for(32 * MIB), Some(32 * MIB));
        assert_eq!(accounts[0].take_for(32 * MIB), Some(32 * MIB));
        assert_eq!(accounts[0].take_for(32 * MIB), None);
    }

    #[test]
    fn a_long_request_gets_a_part_that_can_be_had() {
        let (_, mut accounts) = accounts(256 * MIB, 256, 1);
        assert_eq!(accounts[0].take_for(32 * MIB), Some(MIB));
        let (_, mut tight) = self::accounts(RequestMemory::bytes_min(4096), 4096, 1);
        assert!(tight[0].begin_request());
        assert_eq!(tight[0].take_for(32 * MIB), Some(PIECE_BYTES_MIN));
        assert_eq!(tight[0].take_for(PIECE_BYTES_MIN), None);
    }
}
