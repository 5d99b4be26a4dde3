//! Exact parsing of decimal numbers: money and weights never pass through floating point.

/// Parses `text` and multiplies it by ten to the power of `places`, rounding half up. `None` if it is not a number.
pub(crate) fn parse_scaled(text: &str, places: u32) -> Option<i64> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain(whole) || !is_plain(fraction) {
        return exponential(text, places);
    }
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let places = usize::try_from(places).ok()?;
    let decimals = fraction.bytes().chain(std::iter::repeat(b'0')).take(places);
    let value = whole
        .bytes()
        .chain(decimals)
        .try_fold(0_i64, |value, digit| value.checked_mul(10)?.checked_add(i64::from(digit - b'0')))?;
    let up = fraction.as_bytes().get(places).is_some_and(|digit| *digit >= b'5');
    let value = value.checked_add(i64::from(up))?;
    Some(if negative { -value } else { value })
}

/// Parses a number such as `1.25e3`. JSON allows this form, though no source writes money like that.
fn exponential(text: &str, places: u32) -> Option<i64> {
    if !text.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value = text.parse::<f64>().ok()? * 10_f64.powi(i32::try_from(places).ok()?);
    // Above this limit, a float can no longer represent every integer.
    if value.abs() > 9e15 {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "an integer far below i64::MAX")]
    Some((value + 0.5).floor() as i64)
}

/// Parses a measurement that is not money. `None` unless it is finite.
pub(crate) fn parse_measure(text: &str) -> Option<f32> {
    text.trim().parse::<f32>().ok().filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carats_become_points_half_up() {
        for (text, points) in [
            ("1.25", 125),
            ("1", 100),
            ("0.4", 40),
            (".5", 50),
            ("2.", 200),
            ("1.005", 101),
            ("1.0049999", 100),
            ("0.995", 100),
            (" 3.10 ", 310),
            ("1e1", 1_000),
            ("1.25E0", 125),
        ] {
            assert_eq!(parse_scaled(text, 2), Some(points), "{text}");
        }
    }

    #[test]
    fn cents_are_integers() {
        assert_eq!(parse_scaled("123456", 0), Some(123_456));
        assert_eq!(parse_scaled("123456.0", 0), Some(123_456));
        assert_eq!(parse_scaled("99.5", 0), Some(100));
        assert_eq!(parse_scaled("-7", 0), Some(-7));
    }

    #[test]
    fn invalid_numbers_are_none() {
        for text in
            ["", ".", "-", "abc", "1,5", "0x10", "NaN", "inf", "1.2.3", "99999999999999999999", "1e300"]
        {
            assert_eq!(parse_scaled(text, 2), None, "{text}");
        }
        assert_eq!((parse_measure("NaN"), parse_measure("1e99"), parse_measure("x")), (None, None, None));
        assert_eq!(parse_measure(" 6.51 "), Some(6.51));
    }
}
