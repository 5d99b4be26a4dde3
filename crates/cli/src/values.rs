//! Value parsers that several commands share.

use tidemill_core::Json;

/// Size limit for a metadata file. Larger than the limit of a run, because white space is not stored.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Parses a JSON object, or reads it from `@FILE` or `@-`.
///
/// The system limits one argument to half the size that the metadata of a run may have.
pub(crate) fn parse_metadata(text: &str) -> Result<Json, String> {
    let Some(path) = text.strip_prefix('@') else { return parse_json_object(text) };
    let read = match path {
        "-" => read_bounded(std::io::stdin().lock()),
        path => std::fs::File::open(path).and_then(read_bounded),
    };
    let bytes = read.map_err(|error| format!("could not read it: {error}"))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is larger than {FILE_BYTES_MAX} bytes"));
    }
    parse_json_object(&String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?)
}

/// Reads at most one byte more than the limit, because the source may be endless.
fn read_bounded(source: impl std::io::Read) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    source.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn parse_json_object(text: &str) -> Result<Json, String> {
    tidemill_core::json::check_text(text).map_err(|problem| format!("it {}", problem.with_advice()))?;
    let value: Json = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err("it must be a JSON object, such as {\"key\": 1}".to_owned())
    }
}
