//! A fast JSON writer: the supplier writes hundreds of thousands of items per second.

use crate::clock::from_micros;
use chrono::{Datelike as _, NaiveDate, Timelike as _};

/// A buffer of JSON text.
#[derive(Debug, Default)]
pub(crate) struct JsonWriter(pub(crate) Vec<u8>);

const HEX: &[u8; 16] = b"0123456789abcdef";

impl JsonWriter {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Writes text that is already JSON.
    pub(crate) fn raw(&mut self, text: &str) -> &mut Self {
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// Writes the key of a field, which must not need escapes, with a comma unless `index` is 0.
    pub(crate) fn key(&mut self, index: usize, key: &str) -> &mut Self {
        self.raw(if index == 0 { "\"" } else { ",\"" }).raw(key).raw("\":")
    }

    pub(crate) fn null(&mut self) {
        self.raw("null");
    }

    pub(crate) fn boolean(&mut self, value: bool) {
        self.raw(if value { "true" } else { "false" });
    }

    /// Writes a string, which must not need escapes.
    pub(crate) fn text(&mut self, text: &str) {
        debug_assert!(!text.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\'), "{text}");
        self.raw("\"").raw(text).raw("\"");
    }

    pub(crate) fn int(&mut self, number: u64) -> &mut Self {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            digits[at] = b"0123456789"[(rest % 10) as usize];
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.0.extend_from_slice(&digits[at..]);
        self
    }

    /// Writes a number with at least `digits` digits.
    pub(crate) fn padded(&mut self, number: u32, digits: u32) -> &mut Self {
        for position in (1..digits).rev() {
            if number < 10_u32.saturating_pow(position) {
                self.0.push(b'0');
            }
        }
        self.int(u64::from(number))
    }

    /// Writes cents as money with two decimals: `1.20`, `5.00`.
    pub(crate) fn money(&mut self, cents: u32) -> &mut Self {
        self.int(u64::from(cents / 100)).raw(".").padded(cents % 100, 2)
    }

    /// Writes a date without quotes: `2026-01-31`.
    pub(crate) fn date(&mut self, date: NaiveDate) -> &mut Self {
        self.padded(date.year().unsigned_abs(), 4).raw("-").padded(date.month(), 2).raw("-");
        self.padded(date.day(), 2)
    }

    /// Writes a time in microseconds since 1970 without quotes: `2026-01-31T12:00:00.000000Z`.
    pub(crate) fn time(&mut self, micros: i64) -> &mut Self {
        let time = from_micros(micros);
        self.date(time.date_naive()).raw("T").padded(time.hour(), 2).raw(":").padded(time.minute(), 2);
        self.raw(":").padded(time.second(), 2).raw(".").padded(time.timestamp_subsec_micros(), 6).raw("Z")
    }

    /// Writes hundredths as the shortest decimal: `1.2`, `5.0`.
    pub(crate) fn hundredths(&mut self, number: u32) {
        self.int(u64::from(number / 100)).raw(".");
        let (tens, ones) = (number / 10 % 10, number % 10);
        self.int(u64::from(tens));
        if ones != 0 {
            self.int(u64::from(ones));
        }
    }

    /// Writes the lowest `digits` hexadecimal digits of a number.
    pub(crate) fn hex(&mut self, number: u64, digits: u32) -> &mut Self {
        for position in (0..digits).rev() {
            self.0.push(HEX[((number >> (4 * position)) & 0xf) as usize]);
        }
        self
    }

    /// Writes a UUID without quotes.
    pub(crate) fn uuid(&mut self, (high, low): (u64, u64)) -> &mut Self {
        self.hex(high >> 32, 8).raw("-").hex(high >> 16, 4).raw("-").hex(high, 4);
        self.raw("-").hex(low >> 48, 4).raw("-").hex(low, 12)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_have_the_same_text_as_serde_json() {
        for number in [0, 1, 9, 10, 99, 100, 120, 125, 500, 1_501, 123_456, 4_294_967_295] {
            let mut out = JsonWriter::default();
            out.hundredths(number);
            let text = String::from_utf8(out.0).unwrap();
            assert_eq!(text, serde_json::to_string(&(f64::from(number) / 100.0)).unwrap());
        }
    }

    #[test]
    fn times_and_money_have_a_fixed_length() {
        let mut out = JsonWriter::default();
        out.time(1_767_225_600_000_042).raw(" ").money(5).raw(" ").money(123_450).raw(" ").padded(7, 1);
        assert_eq!(String::from_utf8(out.0).unwrap(), "2026-01-01T00:00:00.000042Z 0.05 1234.50 7");
        for micros in [0, 951_782_399_999_999, 4_102_444_800_000_001] {
            let mut out = JsonWriter::default();
            out.time(micros);
            let expected = from_micros(micros).to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
            assert_eq!(String::from_utf8(out.0).unwrap(), expected);
        }
    }

    #[test]
    fn written_uuid_equals_the_id_text() {
        let mut out = JsonWriter::default();
        out.uuid(crate::stone::id_halves(3, 9));
        assert_eq!(String::from_utf8(out.0).unwrap(), crate::stone::id_text(3, 9));
    }
}
