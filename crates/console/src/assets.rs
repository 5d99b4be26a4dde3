//! Style sheet, script and icon, embedded in the binary under names with a content hash.
//!
//! Browsers may cache them forever; a new release has new names.

use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, header};
use std::sync::LazyLock;
use tidemill_core::digest::sha256_hex;

/// Digits of the content hash in a name.
const DIGITS: usize = 16;

pub(crate) struct Asset {
    pub(crate) path: String,
    body: &'static str,
    media: &'static str,
}

impl Asset {
    fn new(name: &str, ending: &str, media: &'static str, body: &'static str) -> Self {
        let hash = sha256_hex(body.as_bytes());
        let hash = hash.get(..DIGITS).unwrap_or_default();
        Self { path: format!("/assets/{name}.{hash}.{ending}"), body, media }
    }
}

pub(crate) static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("console", "css", "text/css; charset=utf-8", include_str!("../assets/console.css"))
});
pub(crate) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("console", "js", "text/javascript; charset=utf-8", include_str!("../assets/console.js"))
});
pub(crate) static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("../assets/icon.svg")));

pub(crate) async fn asset(Path(name): Path<String>) -> Response {
    let found =
        [&*STYLE, &*SCRIPT, &*ICON].into_iter().find(|asset| asset.path.ends_with(&format!("/{name}")));
    match found {
        Some(asset) => {
            let headers = [
                (header::CONTENT_TYPE, asset.media),
                (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
            ];
            (headers, asset.body).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the named colours of a part of the style sheet.
    fn colours(part: &str) -> Vec<(&str, [f64; 3])> {
        let pairs =
            part.split([';', '{']).filter_map(|rule| rule.trim().strip_prefix("--")?.split_once(": #"));
        let pairs = pairs.filter(|(_, digits)| digits.len() == 6);
        pairs
            .map(|(name, digits)| {
                let number = u32::from_str_radix(digits, 16).unwrap();
                let [_, red, green, blue] = number.to_be_bytes();
                (name, [red, green, blue].map(|part| f64::from(part) / 255.0))
            })
            .collect()
    }

    /// Relative luminance, as defined by WCAG.
    fn light(colour: [f64; 3]) -> f64 {
        let linear = colour
            .map(|part| if part <= 0.039_28 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    }

    fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
        let (one, other) = (light(one), light(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn text_colours_have_enough_contrast_in_light_and_dark() {
        let (bright, dark) = STYLE.body.split_once("prefers-color-scheme: dark").unwrap();
        let (dark, _) = dark.split_once("\n}\n").unwrap();
        let states = ["success", "failed", "running", "claimed", "queued", "cancelled"];
        for (scheme, part) in [("light", bright), ("dark", dark)] {
            let colours = colours(part);
            let named = |name: &str| colours.iter().find(|(known, _)| *known == name).unwrap().1;
            let mut pairs = vec![("accent-text".to_owned(), "accent".to_owned())];
            for text in states.into_iter().chain(["text", "dim", "accent"]) {
                pairs.extend(["panel", "ground", "hover"].map(|behind| (text.to_owned(), behind.to_owned())));
            }
            pairs.extend(states.map(|state| (state.to_owned(), format!("{state}-ground"))));
            pairs.extend(["text", "dim"].map(|text| (text.to_owned(), "shade".to_owned())));
            for (text, behind) in pairs {
                let found = contrast(named(&text), named(&behind));
                assert!(found >= 4.5, "{scheme}: {text} on {behind} is {found:.2}");
            }
        }
    }
}
