//! Decimal numbers of any size as text.

use crate::limits::NUMBER_DIGITS_MAX;

/// Converts a number such as `-1.50e3` to plain notation without exponent: `-1500`. Zeros at the end of the fraction
/// remain. `None` if it is not a number or has too many digits.
pub fn plain_decimal(text: &str) -> Option<String> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (sign, digits) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let all = format!("{whole}{fraction}");
    let point = i64::try_from(whole.len()).ok()?.checked_add(exponent)?;
    let length = i64::try_from(all.len()).ok()?;
    let bound = i64::try_from(NUMBER_DIGITS_MAX).ok()?;
    if all.bytes().all(|digit| digit == b'0') && !(-bound..=bound).contains(&point) {
        return Some("0".to_owned());
    }
    if length > bound || point > bound || point < -bound {
        return None;
    }
    let plain = if point <= 0 {
        format!("0.{}{all}", "0".repeat(usize::try_from(-point).ok()?))
    } else if point >= length {
        format!("{all}{}", "0".repeat(usize::try_from(point - length).ok()?))
    } else {
        let point = usize::try_from(point).ok()?;
        format!("{}.{}", &all[..point], &all[point..])
    };
    Some(with_sign(sign, &plain))
}

/// Converts a number to an integer of any size. `None` if it has a fraction other than zero.
pub fn plain_integer(text: &str) -> Option<String> {
    let plain = plain_decimal(text)?;
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let is_integer = fraction.bytes().all(|digit| digit == b'0');
    is_integer.then(|| if matches!(whole, "-0") { "0".to_owned() } else { whole.to_owned() })
}

/// Removes superfluous zeros at the beginning, and the sign of zero.
fn with_sign(sign: &str, plain: &str) -> String {
    let trimmed = plain.trim_start_matches('0');
    let plain = if trimmed.is_empty() || trimmed.starts_with('.') {
        format!("0{trimmed}")
    } else {
        trimmed.to_owned()
    };
    let is_zero = plain.bytes().all(|digit| matches!(digit, b'0' | b'.'));
    if is_zero { plain } else { format!("{sign}{plain}") }
}

/// Parses a decimal number and multiplies it by ten to the power of `decimals`. `None` if a fraction remains or the
/// result has more than 64 bits.
pub fn scaled(text: &str, decimals: u32) -> Option<i64> {
    let exponent = text.split_once(['e', 'E']).map_or("0", |(_, exponent)| exponent);
    let mantissa = text.split(['e', 'E']).next()?;
    let exponent = exponent.parse::<i64>().ok()?.checked_add(i64::from(decimals))?;
    plain_integer(&format!("{mantissa}e{exponent}"))?.parse().ok()
}

/// Writes an integer with `decimals` digits after the point.
pub fn unscaled(value: i64, decimals: u32) -> String {
    plain_decimal(&format!("{value}e-{decimals}")).unwrap_or_else(|| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_without_exponent() {
        for (text, plain) in [
            ("0", "0"),
            ("-0.0", "0.0"),
            ("007", "7"),
            ("-1.50", "-1.50"),
            ("1.5e3", "1500"),
            ("1.25e1", "12.5"),
            ("125E-5", "0.00125"),
            ("+3", "3"),
            ("0e99999999", "0"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
        ] {
            assert_eq!(plain_decimal(text).as_deref(), Some(plain), "{text}");
        }
        for text in ["", "-", ".5", "1.2.3", "0x1", "NaN", "1e", "1e400000", "1e99999999999999999999", " 1"] {
            assert_eq!(plain_decimal(text), None, "{text}");
        }
        assert_eq!(plain_decimal(&"9".repeat(NUMBER_DIGITS_MAX + 1)), None);
    }

    #[test]
    fn integer_has_no_fraction() {
        for (text, plain) in
            [("1.0", Some("1")), ("1e3", Some("1000")), ("-0", Some("0")), ("1.5", None), ("1e-1", None)]
        {
            assert_eq!(plain_integer(text).as_deref(), plain, "{text}");
        }
    }

    #[test]
    fn scaled_number_is_written_back() {
        for (text, value, shown) in
            [("12.34", 1_234, "12.34"), ("0", 0, "0.00"), ("-1.5", -150, "-1.50"), ("1e2", 10_000, "100.00")]
        {
            assert_eq!(scaled(text, 2), Some(value), "{text}");
            assert_eq!(unscaled(value, 2), shown);
        }
        assert_eq!(
            (scaled("0.001", 2), scaled("99999999999999999999", 2), scaled("x", 2)),
            (None, None, None)
        );
        assert_eq!(unscaled(7, 0), "7");
    }
}
