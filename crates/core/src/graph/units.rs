//! Parsing of durations and sizes with units.

use crate::limits::GRAPH_DAYS_MAX;

/// Parses a duration such as `90`, `90s`, `10m`, `2h` or `1d` to seconds.
pub(super) fn secs(text: &str) -> Result<u32, &'static str> {
    const HINT: &str = "write a number and a unit, such as 90s, 10m, 2h or 1d";
    let split = text.find(|symbol: char| !symbol.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u32 = number.parse().map_err(|_| HINT)?;
    let factor = match unit.trim() {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(HINT),
    };
    number
        .checked_mul(factor)
        .filter(|secs| *secs <= GRAPH_DAYS_MAX * 86_400)
        .ok_or("at most 365d are allowed")
}

/// Parses a size such as `512`, `64KiB`, `512MiB` or `2GiB` to bytes; `K`, `M` and `G` are accepted too.
pub fn bytes(text: &str) -> Result<u64, &'static str> {
    const HINT: &str = "write a number and a unit, such as 512MiB or 2GiB";
    let split = text.find(|symbol: char| !symbol.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| HINT)?;
    let factor = match unit.trim() {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        _ => return Err(HINT),
    };
    number.checked_mul(factor).filter(|bytes| *bytes <= 1 << 50).ok_or("at most 1048576GiB are allowed")
}
