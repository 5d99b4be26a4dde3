//! A stone as the canonical table holds it, whatever feed it came from.

use crate::feed::Cents;
use crate::label::labelled;

labelled! {
    /// Whether a stone can be bought.
    "availability" Availability {
        /// It can.
        Available = "available",
        /// Somebody has put it aside.
        OnHold = "on_hold",
        /// It is gone.
        Sold = "sold",
        /// It cannot, and the source does not say why in a word we know.
        Unavailable = "unavailable",
    }
}

labelled! {
    /// Whether the source still offers a stone.
    "stone status" StoneStatus {
        /// It does.
        Active = "active",
        /// It no longer does, which was verified.
        Deleted = "deleted",
    }
}

/// Carats in hundredths: 1.25 ct is 125.
pub type Points = i64;

/// A stone, mapped from a record of its feed; without what pricing adds.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Diamond {
    /// The feed's name for the stone.
    pub stone_id: String,
    /// The feed's name for the offer.
    pub offer_id: Option<String>,
    /// What the feed asks for it.
    pub feed_price: Cents,
    /// Shape, in capitals.
    pub shape: String,
    /// Weight in hundredths of a carat.
    pub points: Points,
    /// Colour.
    pub color: Option<String>,
    /// Clarity.
    pub clarity: Option<String>,
    /// Cut, in capitals.
    pub cut: Option<String>,
    /// Polish, in capitals.
    pub polish: Option<String>,
    /// Symmetry, in capitals.
    pub symmetry: Option<String>,
    /// Intensity of the fluorescence.
    pub fluorescence: Option<String>,
    /// Fancy colour.
    pub fancy_color: Option<String>,
    /// Intensity of the fancy colour.
    pub fancy_intensity: Option<String>,
    /// Overtone of the fancy colour.
    pub fancy_overtone: Option<String>,
    /// Whether it was grown in a laboratory.
    pub lab_grown: bool,
    /// Whether it was treated.
    pub treated: bool,
    /// Length by width.
    pub ratio: Option<f32>,
    /// Whether it can be bought.
    pub availability: Availability,
    /// The same in the source's words.
    pub raw_availability: Option<String>,
    /// The hold on it.
    pub hold_id: Option<String>,
    /// Picture.
    pub image_url: Option<String>,
    /// Film.
    pub video_url: Option<String>,
    /// The laboratory that certified it.
    pub certificate_lab: Option<String>,
    /// The certificate's number.
    pub certificate_number: Option<String>,
    /// The certificate.
    pub certificate_url: Option<String>,
    /// Table, in per cent.
    pub table_pct: Option<f32>,
    /// Depth, in per cent.
    pub depth_pct: Option<f32>,
    /// Length in millimetres.
    pub length_mm: Option<f32>,
    /// Width in millimetres.
    pub width_mm: Option<f32>,
    /// Depth in millimetres.
    pub depth_mm: Option<f32>,
    /// Girdle.
    pub girdle: Option<String>,
    /// Culet.
    pub culet_size: Option<String>,
    /// Whether nothing is seen with the bare eye.
    pub eye_clean: Option<bool>,
    /// Who sells it.
    pub supplier_name: Option<String>,
}

impl Diamond {
    /// A stone of which nothing but this is known, and that can be bought.
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
