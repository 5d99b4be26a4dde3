//! Numbers in JSON text.

/// Significant decimal digits that every 64-bit floating-point number represents exactly.
const EXACT_DIGITS: usize = 15;
/// Digits of the largest 64-bit integer.
const DIGITS_OF_64_BITS: i64 = 20;

/// The rule for integers of more than 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    /// At most 15 significant digits: the rule for requests.
    Digits,
    /// The number equals a printed 64-bit floating-point number: the rule for stored documents, which Tidemill may have
    /// written.
    RoundTrip,
}

/// A parsed number: `0.DIGITS × 10^POINT`.
#[derive(Debug)]
pub(super) struct Number<'a> {
    text: &'a str,
    value: f64,
    /// Significant digits, without zeros at either end.
    digits: String,
    /// Number of digits before the decimal point; negative for small fractions.
    point: i64,
}

impl<'a> Number<'a> {
    /// Parses a number; `None` if the text is not a number.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let value: f64 = text.parse().ok()?;
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let mantissa = mantissa.strip_prefix('-').unwrap_or(mantissa);
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all: String = [whole, fraction].concat();
        let digits = all.trim_start_matches('0');
        let zeros = i64::try_from(all.len() - digits.len()).ok()?;
        // An exponent beyond 64 bits occurs only with zero or with a number that is out of range anyway.
        let exponent: i64 = exponent.parse().unwrap_or(0);
        let point = i64::try_from(whole.len()).ok()?.saturating_sub(zeros).saturating_add(exponent);
        Some(Self { text, value, digits: digits.trim_end_matches('0').to_owned(), point })
    }

    /// Returns whether the number is neither rounded to zero nor to infinity.
    pub(super) fn is_in_range(&self) -> bool {
        self.value.is_finite() && (self.value != 0.0 || self.digits.is_empty())
    }

    /// Returns whether it is an integer of more than 64 bits that would be rounded.
    pub(super) fn is_rounded(&self, precision: Precision) -> bool {
        if self.digits.len() <= EXACT_DIGITS || self.fits_64_bits() || !self.is_integer() {
            return false;
        }
        match precision {
            Precision::Digits => true,
            Precision::RoundTrip => self.shortest_digits() != self.digits,
        }
    }

    fn is_integer(&self) -> bool {
        i64::try_from(self.digits.len()).is_ok_and(|length| length <= self.point)
    }

    fn fits_64_bits(&self) -> bool {
        if self.point > DIGITS_OF_64_BITS {
            return false;
        }
        let Some(padding) = usize::try_from(self.point).ok().and_then(|n| n.checked_sub(self.digits.len()))
        else {
            return true;
        };
        let Ok(size) = format!("{}{}", self.digits, "0".repeat(padding)).parse::<u128>() else {
            return self.digits.is_empty();
        };
        let max = if self.text.starts_with('-') { 1 << 63 } else { u128::from(u64::MAX) };
        size <= max
    }

    /// Returns the digits of the rounded value.
    fn shortest_digits(&self) -> String {
        let text = format!("{:e}", self.value.abs());
        let mantissa = text.split('e').next().unwrap_or_default().replace('.', "");
        mantissa.trim_matches('0').to_owned()
    }
}
