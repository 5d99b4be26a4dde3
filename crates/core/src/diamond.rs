//! A stone in the canonical form that is common to all feeds.

use crate::feed::{FieldRange, FieldValue};
use crate::label::labelled;

labelled! {
    /// Availability of a stone for sale.
    "availability" Availability {
        Available = "available",
        /// Reserved for a buyer.
        OnHold = "on_hold",
        Sold = "sold",
        /// Not for sale, for a reason that the source does not give in a known word.
        Unavailable = "unavailable",
    }
}

labelled! {
    /// Whether the source still lists a stone.
    "stone status" StoneStatus {
        Active = "active",
        /// A check confirmed that the source no longer lists it.
        Deleted = "deleted",
    }
}

/// A price in cents. Prices are never floating-point numbers.
pub type Cents = FieldValue;

/// Upper bound of all prices; the last partition of a diamond feed ends here.
pub const PRICE_CEILING: Cents = 100_000_000 * 100;

/// The range of all prices.
pub const ALL_PRICES: FieldRange = FieldRange { from: 0, to: PRICE_CEILING };

/// Weight in hundredths of a carat: 1.25 ct is 125.
pub type Points = i64;

/// A stone mapped from a record of its feed, before pricing.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Diamond {
    /// Id of the stone in the feed.
    pub stone_id: String,
    /// Id of the offer in the feed.
    pub offer_id: Option<String>,
    /// Price of the feed, in cents.
    pub feed_price: Cents,
    /// Shape, in upper case.
    pub shape: String,
    /// Weight in hundredths of a carat.
    pub points: Points,
    pub color: Option<String>,
    pub clarity: Option<String>,
    /// Cut grade, in upper case.
    pub cut: Option<String>,
    /// Polish grade, in upper case.
    pub polish: Option<String>,
    /// Symmetry grade, in upper case.
    pub symmetry: Option<String>,
    /// Intensity of the fluorescence.
    pub fluorescence: Option<String>,
    /// Fancy colour, if the stone has one.
    pub fancy_color: Option<String>,
    /// Intensity of the fancy colour.
    pub fancy_intensity: Option<String>,
    /// Overtone of the fancy colour.
    pub fancy_overtone: Option<String>,
    /// Whether it was grown in a laboratory.
    pub lab_grown: bool,
    pub treated: bool,
    /// Ratio of length to width.
    pub ratio: Option<f32>,
    pub availability: Availability,
    /// Availability in the source's words.
    pub raw_availability: Option<String>,
    /// Id of the reservation.
    pub hold_id: Option<String>,
    /// URL of a picture.
    pub image_url: Option<String>,
    /// URL of a video.
    pub video_url: Option<String>,
    /// Laboratory that issued the certificate.
    pub certificate_lab: Option<String>,
    /// Number of the certificate.
    pub certificate_number: Option<String>,
    /// URL of the certificate.
    pub certificate_url: Option<String>,
    pub table_pct: Option<f32>,
    pub depth_pct: Option<f32>,
    pub length_mm: Option<f32>,
    pub width_mm: Option<f32>,
    pub depth_mm: Option<f32>,
    pub girdle: Option<String>,
    pub culet_size: Option<String>,
    /// Whether no inclusions are visible to the naked eye.
    pub eye_clean: Option<bool>,
    /// Name of the supplier.
    pub supplier_name: Option<String>,
}

impl Diamond {
    /// Makes an available stone with only the required fields.
    pub fn new(
        stone_id: impl Into<String>,
        feed_price: Cents,
        shape: impl Into<String>,
        points: Points,
    ) -> Self {
        Self {
            stone_id: stone_id.into(),
            offer_id: None,
            feed_price,
            shape: shape.into(),
            points,
            color: None,
            clarity: None,
            cut: None,
            polish: None,
            symmetry: None,
            fluorescence: None,
            fancy_color: None,
            fancy_intensity: None,
            fancy_overtone: None,
            lab_grown: false,
            treated: false,
            ratio: None,
            availability: Availability::Available,
            raw_availability: None,
            hold_id: None,
            image_url: None,
            video_url: None,
            certificate_lab: None,
            certificate_number: None,
            certificate_url: None,
            table_pct: None,
            depth_pct: None,
            length_mm: None,
            width_mm: None,
            depth_mm: None,
            girdle: None,
            culet_size: None,
            eye_clean: None,
            supplier_name: None,
        }
    }
}
