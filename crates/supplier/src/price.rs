//! Distributions of the prices of stones.

use crate::random::{below32, draw};

/// Distribution of the prices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Like a real catalogue: a quarter below $500, dense below $20,000, a long tail, spikes at round prices.
    #[default]
    Skewed,
    /// Every stone costs the same: `Config::one_price_cents`.
    OnePrice,
    /// Uniform from $100 to $20,000.
    Uniform,
}

impl Distribution {
    /// All distributions, for the command line.
    pub const ALL: [Self; 3] = [Self::Skewed, Self::OnePrice, Self::Uniform];

    /// Name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Skewed => "skewed",
            Self::OnePrice => "one-price",
            Self::Uniform => "uniform",
        }
    }
}

impl std::str::FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|one| one.as_str() == text)
            .ok_or_else(|| format!("unknown distribution `{text}`; use skewed, one-price or uniform"))
    }
}

/// A price band: its share of all stones in ten-thousandths, and its ends in dollars.
struct Band {
    share: u32,
    from: u32,
    to: u32,
}

const BANDS: [Band; 11] = [
    Band { share: 2300, from: 60, to: 500 },
    Band { share: 1700, from: 500, to: 1_000 },
    Band { share: 1500, from: 1_000, to: 2_000 },
    Band { share: 1100, from: 2_000, to: 3_000 },
    Band { share: 1400, from: 3_000, to: 6_000 },
    Band { share: 800, from: 6_000, to: 10_000 },
    Band { share: 700, from: 10_000, to: 20_000 },
    Band { share: 350, from: 20_000, to: 50_000 },
    Band { share: 120, from: 50_000, to: 100_000 },
    Band { share: 28, from: 100_000, to: 250_000 },
    Band { share: 2, from: 250_000, to: 400_000 },
];

/// Price of a stone in cents at its `turn`-th draw, from 0.
pub(crate) fn price(kind: Distribution, one_price: u32, seed: u64, stone: u32, turn: u16) -> u32 {
    let salt = 0x1000 + u64::from(turn);
    match kind {
        Distribution::OnePrice => one_price,
        Distribution::Uniform => 10_000 + below32(draw(seed, stone, salt), 1_990_001),
        Distribution::Skewed => skewed(draw(seed, stone, salt), draw(seed, stone, salt ^ 0x8_0000)),
    }
}

fn skewed(which: u64, what: u64) -> u32 {
    let mut ticket = below32(which, 10_000);
    let mut band = &BANDS[0];
    for one in &BANDS {
        band = one;
        if ticket < one.share {
            break;
        }
        ticket -= one.share;
    }
    let cents = band.from * 100 + below32(what, (band.to - band.from) * 100);
    // One stone in twelve has a round price.
    let round = if cents < 100_000 { 5_000 } else { 10_000 };
    if what.is_multiple_of(12) { (cents / round).max(1) * round } else { cents }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skewed_prices_resemble_a_real_catalogue() {
        let prices: Vec<u32> = (0..100_000).map(|k| price(Distribution::Skewed, 0, 7, k, 0)).collect();
        let under = |dollars: u32| prices.iter().filter(|p| **p < dollars * 100).count();
        assert!((20_000..27_000).contains(&under(500)), "{} under $500", under(500));
        assert!((93_000..97_000).contains(&under(20_000)), "{} under $20,000", under(20_000));
        assert!(prices.iter().any(|p| *p > 25_000_000), "no price above $250,000");
        let fractions = prices.iter().filter(|p| **p % 100 != 0).count();
        assert!(fractions > 80_000, "{fractions} prices have fractions of a dollar");
        let spike = prices.iter().filter(|p| **p == 120_000).count();
        let beside = prices.iter().filter(|p| **p == 121_300).count();
        assert!(spike > 10 * (beside + 1), "{spike} stones at $1,200 and {beside} at $1,213");
    }

    #[test]
    fn price_bands_are_complete_and_adjacent() {
        assert_eq!(BANDS.iter().map(|band| band.share).sum::<u32>(), 10_000);
        assert!(BANDS.windows(2).all(|two| two[0].to == two[1].from));
    }

    #[test]
    fn distribution_names_round_trip() {
        for one in Distribution::ALL {
            assert_eq!(one.as_str().parse(), Ok(one));
        }
        assert!("flat".parse::<Distribution>().is_err());
    }
}
