//! Processes that are killed, frozen or disconnected during work. The ledger shows whether the result is correct.

mod chaos;
mod concurrency_keys;
mod database_restart;
mod failing_claims;
mod frozen_writer;
mod full_disk;
mod full_metadata;
mod lost_responses;
mod output;
mod sqlite_sharing;
mod stop_reasons;
mod stopping;
mod worker_death;

/// Pseudo-random numbers with a seed, so that a test can be repeated.
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    /// Takes the seed from `TIDEMILL_SEED` or from the clock, and prints it.
    pub(crate) fn from_environment() -> Self {
        let clock = || tidemill_engine::clock::host_now().timestamp_micros().unsigned_abs();
        let seed =
            std::env::var("TIDEMILL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(clock);
        println!("seed: TIDEMILL_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// Returns an index of a list.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }
}

/// Duration of a soak test: `TIDEMILL_SOAK_MINUTES`, or one minute.
pub(crate) fn soak_time() -> std::time::Duration {
    let minutes = std::env::var("TIDEMILL_SOAK_MINUTES").ok().and_then(|minutes| minutes.parse().ok());
    std::time::Duration::from_mins(minutes.unwrap_or(1))
}
