//! Parsing and display of durations, sizes and CPU shares with units.

use crate::limits::{GRAPH_DAYS_MAX, JOB_CPU_PERCENT_MAX};

/// Parses a duration such as `90`, `90s`, `10m`, `2h` or `1d` to seconds.
pub(crate) fn secs(text: &str) -> Result<u32, &'static str> {
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

/// Parses a CPU share to percent of one processor: `150%`, or a number of processors such as `2` or `1.5`.
pub(super) fn percent(text: &str) -> Result<u32, &'static str> {
    const HINT: &str = "write a percentage of one processor such as 150%, or a number of processors; \
                        for CPU time, use `cpu-time`";
    let percent = if let Some(number) = text.strip_suffix('%') {
        number.trim_end().parse::<u32>().map_err(|_| HINT)?
    } else {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !is_digits(fraction) || fraction.len() > 2 {
            return Err(HINT);
        }
        let hundredths: u32 = format!("{fraction:0<2}").parse().map_err(|_| HINT)?;
        let whole = whole.parse::<u32>().ok();
        whole.and_then(|whole| whole.checked_mul(100)?.checked_add(hundredths)).unwrap_or(u32::MAX)
    };
    if percent > JOB_CPU_PERCENT_MAX { Err("at most 100000% are allowed") } else { Ok(percent) }
}

/// Formats a size with the largest unit that divides it.
pub(super) fn show_bytes(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let fitting = units.into_iter().find(|(factor, _)| bytes > 0 && bytes.is_multiple_of(*factor));
    fitting.map_or_else(|| format!("{bytes}B"), |(factor, unit)| format!("{}{unit}", bytes / factor))
}

/// Formats a duration with the largest unit that divides it.
pub(crate) fn show_secs(secs: u32) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let fitting = units.into_iter().find(|(factor, _)| secs > 0 && secs.is_multiple_of(*factor));
    fitting.map_or_else(|| format!("{secs}s"), |(factor, unit)| format!("{}{unit}", secs / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_share_is_a_percentage_or_a_number_of_processors() {
        let cases = [("150%", 150), ("50 %", 50), ("2", 200), ("1.5", 150), ("0.25", 25), ("1000", 100_000)];
        for (text, expected) in cases {
            assert_eq!(percent(text), Ok(expected), "{text}");
        }
        for bad in
            ["", "%", "1h", "1.", ".5", "1.255", "-1", "1,5", "+1", "1e3", "1001", "100001%", "99999999999"]
        {
            assert!(percent(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shown_values_are_parsed_to_the_same_values() {
        for value in [1, 1_000, 1_024, 1 << 20, 3 << 29, 5 << 30] {
            assert_eq!(bytes(&show_bytes(value)), Ok(value));
        }
        for value in [1, 59, 60, 90, 3_600, 86_400, 90_000] {
            assert_eq!(secs(&show_secs(value)), Ok(value));
        }
    }
}
