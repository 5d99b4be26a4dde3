//! Deterministic pseudo-random numbers: pure functions of a seed.

/// Mixes the bits of a number (the finaliser of splitmix64).
pub(crate) const fn mix(number: u64) -> u64 {
    let mut x = number;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The random number of `seed` for stone `stone` and the purpose `salt`.
pub(crate) const fn draw(seed: u64, stone: u32, salt: u64) -> u64 {
    let input = (salt << 32) | stone as u64;
    mix(seed ^ mix(input.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

/// Maps a random number to a number below `bound`.
pub(crate) const fn below(number: u64, bound: u64) -> u64 {
    ((number as u128 * bound as u128) >> 64) as u64
}

/// Like [`below`], for 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "the result is below the bound")]
pub(crate) const fn below32(number: u64, bound: u32) -> u32 {
    below(number, bound as u64) as u32
}

/// A sequence of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct RandomSequence(u64);

impl RandomSequence {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x7469_6465_6d69_6c6c))
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

/// Visits every number below `bound` exactly once, in an order that depends on the seed.
#[derive(Debug)]
pub(crate) struct Shuffle {
    bound: u64,
    at: u64,
    step: u64,
    left: u64,
}

impl Shuffle {
    pub(crate) fn new(bound: u32, seed: u64) -> Self {
        let bound = u64::from(bound);
        let mut random = RandomSequence::new(seed);
        let at = below(random.next(), bound.max(1));
        let mut step = 1 + below(random.next(), bound.max(1));
        // A step that is coprime to the bound visits every number before it repeats.
        while gcd(step, bound.max(1)) != 1 {
            step += 1;
        }
        Self { bound, at, step, left: bound }
    }
}

impl Iterator for Shuffle {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let now = self.at;
        self.at = (self.at + self.step) % self.bound;
        u32::try_from(now).ok()
    }
}

const fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffle_visits_every_number_once() {
        for bound in [0, 1, 2, 7, 30, 1000] {
            for seed in 0..20 {
                let mut seen: Vec<u32> = Shuffle::new(bound, seed).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..bound).collect::<Vec<_>>(), "bound {bound}, seed {seed}");
            }
        }
    }

    #[test]
    fn draw_depends_on_each_argument() {
        assert_eq!(draw(1, 2, 3), draw(1, 2, 3));
        assert_ne!(draw(1, 2, 3), draw(2, 2, 3));
        assert_ne!(draw(1, 2, 3), draw(1, 3, 3));
        assert_ne!(draw(1, 2, 3), draw(1, 2, 4));
        assert!((0..1000).all(|k| below32(draw(9, k, 1), 30) < 30));
    }
}
