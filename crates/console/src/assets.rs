//! The style sheet, the script and the icon: within the binary, under names that change with their contents.
//!
//! A browser may keep them for ever, and a new release is seen at once.

use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, header};
use std::sync::LazyLock;
use tidemill_core::digest::sha256_hex;

/// Digits of the hash that stand in a name.
const DIGITS: usize = 16;

/// A file within the binary.
pub(crate) struct Asset {
    /// Where pages find it.
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

/// The style sheet.
pub(crate) static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("console", "css", "text/css; charset=utf-8", include_str!("../assets/console.css"))
});
/// The script.
pub(crate) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("console", "js", "text/javascript; charset=utf-8", include_str!("../assets/console.js"))
});
/// The icon.
pub(crate) static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("../assets/icon.svg")));

/// One of them.
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
