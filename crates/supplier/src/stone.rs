//! A stone: its stored state, and the values that are computed from it.
//!
//! Only the mutable state is stored, in 24 bytes. All other values are pure functions of the seed, the stone's number
//! and its versions.

use crate::random::{below32, draw};

/// The shapes that the pipeline requests, and one that it does not.
pub(crate) const SHAPES: [&str; 18] = [
    "ROUND",
    "OVAL",
    "EMERALD",
    "CUSHION",
    "CUSHION B",
    "CUSHION MODIFIED",
    "CUSHION BRILLIANT",
    "ASSCHER",
    "RADIANT",
    "MARQUISE",
    "PEAR",
    "PRINCESS",
    "ROSE",
    "OLD MINER",
    "TRILLIANT",
    "HEXAGONAL",
    "HEART",
    "BAGUETTE",
];

/// Availability of a stone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Availability {
    Available = 0,
    OnHold = 1,
    /// A lookup by id still finds it.
    Sold = 2,
    /// No query finds it.
    Gone = 3,
}

impl Availability {
    /// Name in the API.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "AVAILABLE",
            Self::OnHold => "ON_HOLD",
            Self::Sold => "SOLD",
            Self::Gone => "UNAVAILABLE",
        }
    }

    /// Bit in a filter.
    pub(crate) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The immutable properties that filters use, in 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Traits(u32);

impl Traits {
    const LABGROWN: u32 = 1 << 16;
    const IMAGE: u32 = 1 << 17;
    const V360: u32 = 1 << 18;
    const FAIR: u32 = 1 << 19;
    const MEMO: u32 = 1 << 20;
    const FANCY: u32 = 1 << 21;

    /// Generates the traits of stone `stone` with the initial price `price`.
    pub(crate) fn new(seed: u64, stone: u32, price: u32, off_query_per_mille: u32) -> Self {
        // Expensive stones tend to be larger.
        let spread = (20 + price / 2_000).min(1_100);
        let mut carats = 40 + below32(draw(seed, stone, 1), spread);
        let form = below32(draw(seed, stone, 2), 100);
        let mut shape = if form < 45 { 0 } else { 1 + (form - 45) % 16 };
        let mut bits = Self::IMAGE | Self::V360;
        if below32(draw(seed, stone, 3), 20) == 0 {
            bits |= Self::LABGROWN;
        }
        if below32(draw(seed, stone, 4), 40) == 0 {
            bits |= Self::FANCY;
        }
        let odd = draw(seed, stone, 5);
        if below32(odd, 1_000) < off_query_per_mille {
            match odd % 6 {
                0 => bits &= !Self::IMAGE,
                1 => bits &= !Self::V360,
                2 => bits |= Self::FAIR,
                3 => bits |= Self::MEMO,
                4 => shape = 17,
                _ => carats = 25,
            }
        }
        Self(bits | carats | (shape << 11))
    }

    /// Weight in hundredths of a carat.
    pub(crate) const fn carats(self) -> u32 {
        self.0 & 0x7ff
    }

    /// Index in [`SHAPES`].
    pub(crate) const fn shape(self) -> u32 {
        (self.0 >> 11) & 0x1f
    }

    pub(crate) fn shape_name(self) -> &'static str {
        SHAPES.get(self.shape() as usize).copied().unwrap_or("OTHER")
    }

    pub(crate) const fn labgrown(self) -> bool {
        self.0 & Self::LABGROWN != 0
    }

    /// Whether the stone has a picture.
    pub(crate) const fn image(self) -> bool {
        self.0 & Self::IMAGE != 0
    }

    /// Whether the stone has a 360° video.
    pub(crate) const fn v360(self) -> bool {
        self.0 & Self::V360 != 0
    }

    /// Whether the cut is fair or poor.
    pub(crate) const fn fair(self) -> bool {
        self.0 & Self::FAIR != 0
    }

    /// Whether the stone is on memo (lent to the seller).
    pub(crate) const fn memo(self) -> bool {
        self.0 & Self::MEMO != 0
    }

    /// Whether the stone has a fancy colour.
    pub(crate) const fn fancy(self) -> bool {
        self.0 & Self::FANCY != 0
    }
}

/// Stored state of a stone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    /// Time of the last change in microseconds since 1970.
    pub(crate) updated: i64,
    /// Current price in cents.
    pub(crate) price: u32,
    pub(crate) traits: Traits,
    /// Number of changes of the payload.
    pub(crate) version: u16,
    /// Number of changes of the media.
    pub(crate) media: u16,
    pub(crate) availability: Availability,
    /// Whether a text contains a NUL character.
    pub(crate) has_nul: bool,
    /// Whether the certificate is missing.
    pub(crate) uncertified: bool,
}

impl State {
    /// Price in whole dollars, truncated like in the supplier's filter.
    pub(crate) const fn dollars(&self) -> u32 {
        self.price / 100
    }
}

/// A stone in a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stone {
    /// Seed of the catalogue.
    pub(crate) seed: u64,
    /// Number in the order of creation.
    pub(crate) number: u32,
    pub(crate) state: State,
    /// Omits the ids in the response.
    pub(crate) without_id: bool,
    /// If set, a stone with an odd number has the id of the stone before it plus a space.
    pub(crate) is_spaced: bool,
    /// Number of bytes that are added to the item.
    pub(crate) padding: u32,
}

impl Stone {
    /// Creates a stone without deviations.
    pub(crate) const fn new(seed: u64, number: u32, state: State) -> Self {
        Self { seed, number, state, without_id: false, is_spaced: false, padding: 0 }
    }

    /// Id in the response.
    pub(crate) fn shown_id(&self) -> String {
        if self.is_spaced && self.number % 2 == 1 {
            return format!("{} ", id_text(self.seed, self.number - 1));
        }
        id_text(self.seed, self.number)
    }

    /// Random number that never changes for the stone.
    pub(crate) const fn fixed(&self, salt: u64) -> u64 {
        draw(self.seed, self.number, 0x100 + salt)
    }

    /// Random number that changes with the payload version.
    pub(crate) const fn varying(&self, salt: u64) -> u64 {
        draw(self.seed, self.number, (0x1000 + salt) ^ ((self.state.version as u64) << 16))
    }

    /// The two halves of the id.
    pub(crate) const fn id(&self) -> (u64, u64) {
        id_halves(self.seed, self.number)
    }
}

/// The two halves of a stone's id. The second half encodes the stone's number.
pub(crate) const fn id_halves(seed: u64, number: u32) -> (u64, u64) {
    let noise = draw(seed, number, 6);
    let high = (noise & 0xffff_ffff_ffff_0fff) | 0x4000;
    let hidden = (number as u64) ^ (draw(seed, 0, 7) & 0xffff_ffff_ffff);
    let low = 0x8000_0000_0000_0000 | ((noise >> 3) & 0x3fff_0000_0000_0000) | hidden;
    (high, low)
}

/// The id as text: a UUID.
pub(crate) fn id_text(seed: u64, number: u32) -> String {
    let (high, low) = id_halves(seed, number);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// Returns the number of the stone with this id, or with this id of an offer.
pub(crate) fn number_of(seed: u64, id: &str) -> Option<u32> {
    if let Some(id) = id.strip_suffix(' ') {
        return number_of(seed, id).map(|number| number + 1);
    }
    let id = id.strip_prefix("DIAMOND/").unwrap_or(id);
    let hidden = u64::from_str_radix(id.rsplit('-').next()?, 16).ok()?;
    let number = u32::try_from(hidden ^ (draw(seed, 0, 7) & 0xffff_ffff_ffff)).ok()?;
    (id_text(seed, number) == id).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_of_a_stone_has_24_bytes() {
        assert_eq!(size_of::<State>(), 24);
    }

    #[test]
    fn number_is_decoded_from_the_id() {
        for number in [0, 1, 77, 1_999_999] {
            let id = id_text(42, number);
            assert_eq!(id.len(), 36);
            assert_eq!(number_of(42, &id), Some(number));
            assert_eq!(number_of(42, &format!("DIAMOND/{id}")), Some(number));
            assert_eq!(number_of(43, &id), None);
        }
        assert_eq!(number_of(42, "nonsense"), None);
        assert_eq!(number_of(42, ""), None);
    }

    #[test]
    fn default_stones_match_the_default_filters() {
        let all: Vec<Traits> = (0..20_000).map(|k| Traits::new(5, k, 300_000, 0)).collect();
        let lab = all.iter().filter(|one| one.labgrown()).count();
        assert!((800..1_200).contains(&lab), "{lab}");
        assert!(all.iter().all(|one| one.image() && one.v360() && !one.fair() && !one.memo()));
        assert!(all.iter().all(|one| (40..=1_501).contains(&one.carats()) && one.shape() < 17));
        let odd = (0..20_000).map(|k| Traits::new(5, k, 300_000, 200)).filter(|one| one.shape() == 17);
        assert!(odd.count() > 300);
    }
}
