//! Processes that are killed, frozen and cut off while they work, with the ledger as the judge.

mod chaos;
mod claims;
mod cuts;
mod death;
mod disk;
mod endings;
mod full;
mod keys;
mod output;
mod restart;
mod sharing;
mod stopping;

/// Numbers that only look random, so that a run can be repeated.
pub(crate) struct Dice(u64);

impl Dice {
    /// From `TIDEMILL_SEED`, or from the clock. The seed is printed.
    pub(crate) fn thrown() -> Self {
        let clock = || tidemill_engine::clock::host_now().timestamp_micros().unsigned_abs();
        let seed =
            std::env::var("TIDEMILL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(clock);
        println!("seed: TIDEMILL_SEED={seed}");
        Self(seed)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// A place in a list.
    pub(crate) fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }
}

/// How long a soak lasts: `TIDEMILL_SOAK_MINUTES`, or one minute.
pub(crate) fn soak() -> std::time::Duration {
    let minutes = std::env::var("TIDEMILL_SOAK_MINUTES").ok().and_then(|minutes| minutes.parse().ok());
    std::time::Duration::from_mins(minutes.unwrap_or(1))
}
