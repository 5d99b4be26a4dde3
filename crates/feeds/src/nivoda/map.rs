//! Maps a record to a stone of the canonical table. The mapping is deterministic.

use super::fancy;
use super::text::Text;
use crate::MapError;
use crate::number::{parse_measure, parse_scaled};
use serde::Deserialize;
use serde_json::value::RawValue;
use tidemill_core::diamond::{Availability, Cents, Diamond, PRICE_CEILING, Points};

/// Version of the mapping rules. Increase it when a record may map to a different stone: all records are then mapped
/// again.
const VERSION: i32 = 1;
/// Upper limit for weights, in points. Larger values are typing errors and do not fit the column.
const POINTS_CEILING: Points = 10_000 * 100;

/// Mapping rules, with the parts that depend on the feed's settings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mapper {
    /// Overrides the record's own value if the feed lists only laboratory-grown or only natural stones.
    pub(super) lab_grown: Option<bool>,
}

/// A number as written in the record: money and weights must not pass through floating point.
type Number<'a> = Option<&'a RawValue>;

#[derive(Deserialize)]
#[serde(expecting = "an offer: an object with `id`, `price` and `diamond`")]
struct Offer<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow)]
    price: Number<'a>,
    #[serde(borrow)]
    diamond: Option<Stone<'a>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object in `diamond`")]
struct Stone<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    availability: Text<'a>,
    #[serde(borrow, default, rename = "HoldId")]
    hold_id: Text<'a>,
    #[serde(borrow, default)]
    image: Text<'a>,
    #[serde(borrow, default)]
    video: Text<'a>,
    #[serde(borrow, default, rename = "eyeClean")]
    eye_clean: Text<'a>,
    #[serde(borrow)]
    certificate: Option<Certificate<'a>>,
    #[serde(borrow)]
    supplier: Option<Supplier<'a>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object in `diamond.certificate`", rename_all = "camelCase")]
struct Certificate<'a> {
    #[serde(borrow, default)]
    lab: Text<'a>,
    #[serde(borrow, default)]
    cert_number: Text<'a>,
    #[serde(borrow, default)]
    pdf_url: Text<'a>,
    #[serde(borrow, default)]
    shape: Text<'a>,
    #[serde(borrow)]
    carats: Number<'a>,
    #[serde(borrow, default)]
    clarity: Text<'a>,
    #[serde(borrow, default)]
    cut: Text<'a>,
    #[serde(borrow, default)]
    polish: Text<'a>,
    #[serde(borrow, default)]
    symmetry: Text<'a>,
    #[serde(borrow, default)]
    color: Text<'a>,
    #[serde(borrow)]
    length: Number<'a>,
    #[serde(borrow)]
    width: Number<'a>,
    #[serde(borrow)]
    depth: Number<'a>,
    #[serde(borrow)]
    depth_percentage: Number<'a>,
    #[serde(borrow)]
    table: Number<'a>,
    #[serde(borrow, default)]
    flo_int: Text<'a>,
    #[serde(borrow, default)]
    girdle: Text<'a>,
    #[serde(borrow, default)]
    culet_size: Text<'a>,
    #[serde(borrow, default, rename = "f_color")]
    fancy_color: Text<'a>,
    #[serde(borrow, default, rename = "f_intensity")]
    fancy_intensity: Text<'a>,
    #[serde(borrow, default, rename = "f_overtone")]
    fancy_overtone: Text<'a>,
    #[serde(borrow, default)]
    labgrown: Text<'a>,
    #[serde(borrow, default)]
    treated: Text<'a>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object in `diamond.supplier`")]
struct Supplier<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
}

impl Mapper {
    /// Version of the rules, combined with the settings that affect them.
    pub(super) const fn version(self) -> i32 {
        let variant = match self.lab_grown {
            None => 0,
            Some(false) => 1,
            Some(true) => 2,
        };
        VERSION * 4 + variant
    }

    /// Maps a record to a stone.
    pub(super) fn map(self, payload: &str) -> Result<Diamond, MapError> {
        let offer: Offer<'_> = serde_json::from_str(payload)
            .map_err(|error| MapError::new(format!("invalid record: {error}")))?;
        let stone = offer.diamond.ok_or_else(|| missing("diamond"))?;
        let certificate = stone.certificate.ok_or_else(|| missing("diamond.certificate"))?;
        let (length, width) = (size(certificate.length), size(certificate.width));
        let (color, fancy_color) = colors(&certificate);
        Ok(Diamond {
            stone_id: stone.id.owned().ok_or_else(|| missing("diamond.id"))?,
            offer_id: offer.id.owned(),
            feed_price: price(offer.price)?,
            shape: certificate.shape.capitals().ok_or_else(|| missing("diamond.certificate.shape"))?,
            points: points(certificate.carats)?,
            color,
            clarity: certificate.clarity.owned(),
            cut: certificate.cut.capitals(),
            polish: certificate.polish.capitals(),
            symmetry: certificate.symmetry.capitals(),
            fluorescence: certificate.flo_int.owned(),
            fancy_color,
            fancy_intensity: certificate.fancy_intensity.owned(),
            fancy_overtone: certificate.fancy_overtone.owned(),
            lab_grown: self.lab_grown.or_else(|| certificate.labgrown.flag()).unwrap_or(false),
            treated: certificate.treated.flag().unwrap_or(false),
            ratio: ratio(length, width),
            availability: availability(stone.availability.get()),
            raw_availability: stone.availability.owned(),
            hold_id: stone.hold_id.owned(),
            image_url: Some(stone.image.owned().ok_or_else(|| missing("diamond.image"))?),
            video_url: Some(stone.video.owned().ok_or_else(|| missing("diamond.video"))?),
            certificate_lab: certificate.lab.owned(),
            certificate_number: certificate.cert_number.owned(),
            certificate_url: certificate.pdf_url.owned(),
            table_pct: size(certificate.table),
            depth_pct: size(certificate.depth_percentage),
            length_mm: length,
            width_mm: width,
            depth_mm: size(certificate.depth),
            girdle: certificate.girdle.owned(),
            culet_size: certificate.culet_size.owned(),
            eye_clean: stone.eye_clean.flag(),
            supplier_name: stone.supplier.and_then(|supplier| supplier.name.owned()),
        })
    }
}

fn missing(field: &str) -> MapError {
    MapError::new(format!("`{field}` is missing"))
}

/// Returns the digits of a number that is written as a JSON number or string.
fn digits(number: Number<'_>) -> Option<&str> {
    let text = number?.get().trim_matches('"').trim();
    (!text.is_empty()).then_some(text)
}

fn bad_number(field: &str, text: &str, what: &str) -> MapError {
    let text: String = text.chars().take(64).collect();
    MapError::new(format!("`{field}` is `{text}`, which is not {what}"))
}

fn price(number: Number<'_>) -> Result<Cents, MapError> {
    let text = digits(number).ok_or_else(|| missing("price"))?;
    let cents = parse_scaled(text, 0).filter(|cents| (0..PRICE_CEILING).contains(cents));
    cents.ok_or_else(|| bad_number("price", text, "a price in cents"))
}

fn points(number: Number<'_>) -> Result<Points, MapError> {
    const FIELD: &str = "diamond.certificate.carats";
    let text = digits(number).ok_or_else(|| missing(FIELD))?;
    let points = parse_scaled(text, 2).filter(|points| (1..POINTS_CEILING).contains(points));
    points.ok_or_else(|| bad_number(FIELD, text, "a weight in carats"))
}

fn size(number: Number<'_>) -> Option<f32> {
    digits(number).and_then(parse_measure)
}

/// Length divided by width, rounded to three decimals.
fn ratio(length: Option<f32>, width: Option<f32>) -> Option<f32> {
    let (length, width) = (f64::from(length?), f64::from(width?));
    if length <= 0.0 || width <= 0.0 {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "three decimals fit an f32")]
    let ratio = ((length / width * 1_000.0).round() / 1_000.0) as f32;
    ratio.is_finite().then_some(ratio)
}

/// Returns the colour and the fancy colour. A stone with a fancy colour has the colour `Fancy`; a stone with the colour
/// `Fancy` and no fancy colour has the fancy colour `Unknown`.
fn colors(certificate: &Certificate<'_>) -> (Option<String>, Option<String>) {
    let fancy_color = certificate.fancy_color.get().and_then(fancy::color);
    let color = certificate.color.get();
    if fancy_color.is_some() {
        return (Some("Fancy".to_owned()), fancy_color);
    }
    if color.is_some_and(|color| color.eq_ignore_ascii_case("fancy")) {
        return (Some("Fancy".to_owned()), Some("Unknown".to_owned()));
    }
    (color.map(str::to_owned), None)
}

/// Maps the source's many spellings. The order of the checks matters: `UNAVAILABLE` contains `AVAILABLE`.
fn availability(raw: Option<&str>) -> Availability {
    let raw = raw.unwrap_or_default().to_ascii_lowercase();
    let has = |part: &str| raw.contains(part);
    if has("unavailable") || has("not available") || has("not_available") {
        Availability::Unavailable
    } else if has("available") {
        Availability::Available
    } else if has("hold") {
        Availability::OnHold
    } else if has("sold") {
        Availability::Sold
    } else {
        Availability::Unavailable
    }
}

#[cfg(test)]
mod tests;
