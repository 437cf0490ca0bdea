//! The memory of requests: one budget for all connections of a process, and an account for each.
//!
//! A part of the budget is each connection's *own*. The rest is *common*. A connection may hold at
//! most as much of the common part as is free besides. So the next connection finds some, and
//! connections that want more than the total come to equal shares. A connection may hold no more of
//! it than it has turned over. So a client that requests much and reads nothing stays close to its
//! own part.
//!
//! Invariants: all accounts together never hold more than the budget. An account that holds nothing
//! can always take its own part. So a connection waits for its own requests and its own client
//! alone, and no connection has to wake another.
//!
//! It does not wait or allocate.

use larder_device::IoBuf;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The least that is each connection's own. Any request can be served in pieces of this size.
const OWN_BYTES_MIN: usize = 16 << 10;
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
    /// The bytes of the common part that are taken. Relaxed: it counts, it orders nothing.
    common_used: AtomicUsize,
}

impl RequestMemory {
    /// The budget for ordinary clients.
    pub const BYTES_DEFAULT: usize = 256 << 20;

    /// Returns the smallest budget for so many connections.
    pub fn bytes_min(connections_max: usize) -> usize {
        connections_max.saturating_mul(OWN_BYTES_MIN)
    }

    /// Makes a budget of `bytes`, at least [`RequestMemory::bytes_min`], for so many connections.
    pub fn new(bytes: usize, connections_max: usize) -> RequestMemory {
        let connections = connections_max.max(1);
        let own_bytes = (bytes / 2 / connections).clamp(OWN_BYTES_MIN, OWN_BYTES_MAX);
        RequestMemory {
            own_bytes,
            common_bytes: bytes.saturating_sub(own_bytes * connections),
            common_used: AtomicUsize::new(0),
        }
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
pub struct Account {
    memory: Arc<RequestMemory>,
    held: usize,
    /// The most that it may have of the common part; it grows with the bytes turned over.
    trust: usize,
}

impl Account {
    /// Opens an account that holds nothing.
    pub fn new(memory: Arc<RequestMemory>) -> Account {
        Account { memory, held: 0, trust: TRUST_BYTES_MIN }
    }

    /// Returns the bytes held.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Returns the part of `held` bytes that is common.
    fn of_common(&self, held: usize) -> usize {
        held.saturating_sub(self.memory.own_bytes)
    }

    /// Takes `bytes`, or nothing if the account may not have them now.
    pub fn take(&mut self, bytes: usize) -> bool {
        let held = self.held + bytes;
        let (before, after) = (self.of_common(self.held), self.of_common(held));
        let allowed = after == before || (after <= self.trust && self.memory.take(after - before, after));
        if allowed {
            self.held = held;
        }
        allowed
    }

    /// Gives `bytes` back.
    pub fn give_back(&mut self, bytes: usize) {
        let held = self.held.saturating_sub(bytes);
        let returned = self.of_common(self.held) - self.of_common(held);
        if returned > 0 {
            self.memory.common_used.fetch_sub(returned, Ordering::Relaxed);
        }
        self.held = held;
        self.trust = self.trust.saturating_add(bytes).min(self.memory.common_bytes.max(TRUST_BYTES_MIN));
    }

    /// Returns how much the account could hold in all, with the other accounts as they are now.
    fn bytes_max(&self) -> usize {
        let mine = self.of_common(self.held);
        let others = self.memory.common_used.load(Ordering::Relaxed).saturating_sub(mine);
        let share = self.memory.common_bytes.saturating_sub(others) / 2;
        self.memory.own_bytes + share.min(self.trust)
    }

    /// Takes the memory of a buffer for `len` bytes, or for as many as the account could ever hold.
    ///
    /// Returns for how many bytes; `None` if the account must give memory back first.
    pub fn take_for(&mut self, len: usize) -> Option<usize> {
        loop {
            let bytes_max = self.bytes_max();
            let fitting = if IoBuf::allocated(len) <= bytes_max { len } else { 1 << bytes_max.ilog2() };
            if self.take(IoBuf::allocated(fitting)) {
                return Some(fitting);
            }
            // Another account was faster, so this one could hold less now.
            if self.held > 0 {
                return None;
            }
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.give_back(self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::rng::Rng;

    const MIB: usize = 1 << 20;

    fn accounts(bytes: usize, connections: usize, count: usize) -> (Arc<RequestMemory>, Vec<Account>) {
        let memory = Arc::new(RequestMemory::new(bytes, connections));
        let accounts = (0..count).map(|_| Account::new(memory.clone())).collect();
        (memory, accounts)
    }

    /// Takes as much as it gets, in pieces.
    fn fill(account: &mut Account, piece: usize) {
        while account.take(piece) {}
    }

    /// Gives all its memory back, in pieces, again and again, until it is trusted with everything.
    fn prove(account: &mut Account) {
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
            let (memory, mut accounts) = accounts(bytes, connections, connections);
            let mut held: Vec<Vec<usize>> = vec![Vec::new(); connections];
            for step in 0..2000 {
                let at = rng.index(connections);
                let (account, mine) = (&mut accounts[at], &mut held[at]);
                if rng.index(2) == 0 || mine.is_empty() {
                    let want = 1 + rng.index(2 * MIB);
                    let before = account.held();
                    let got = account.take_for(want);
                    assert!(got.is_some() || before > 0, "seed {seed}, step {step}: nothing held, and stuck");
                    assert!(
                        got.is_none_or(|got| got == want || got >= OWN_BYTES_MIN.min(want)),
                        "seed {seed}: {got:?}"
                    );
                    mine.extend(got.map(IoBuf::allocated));
                } else {
                    let piece = mine.swap_remove(rng.index(mine.len()));
                    account.give_back(piece);
                }
                assert_eq!(account.held(), held[at].iter().sum::<usize>(), "seed {seed}, step {step}");
                let all: usize = accounts.iter().map(Account::held).sum();
                assert!(all <= bytes, "seed {seed}, step {step}: {all} of {bytes}");
            }
            drop(accounts);
            assert_eq!(memory.common_used.load(Ordering::Relaxed), 0, "seed {seed}: all is given back");
        }
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
        let least = accounts.iter().map(Account::held).min().expect("some");
        assert!(least >= memory.own_bytes && memory.own_bytes == 512 << 10, "{least}");
        assert!(accounts.iter().map(Account::held).sum::<usize>() <= 256 * MIB);
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
            let held: Vec<usize> = accounts.iter().map(Account::held).collect();
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
        assert_eq!(tight[0].take_for(32 * MIB), Some(OWN_BYTES_MIN));
        assert_eq!(tight[0].take_for(4096), None);
    }
}
