//! Ids of runs, environments and workers. No decision uses the time in an id: a caller may choose the id of a run.

use crate::Timestamp;
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// An id with the wrong format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not {expected}")]
pub struct InvalidIdError {
    /// The given text, truncated.
    pub value: String,
    /// The expected format, for people.
    pub expected: &'static str,
}

impl InvalidIdError {
    fn new(value: &str, expected: &'static str) -> Self {
        Self { value: value.chars().take(80).collect(), expected }
    }
}

macro_rules! text_id {
    ($(#[$meta:meta])* $name:ident, $pattern:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Returns the id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Takes an id from the database without a check: plain SQL may have written one in another format.
            pub fn from_database(text: String) -> Self {
                Self(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                // No check: responses contain the ids of the database. Requests are checked against the schema below.
                String::deserialize(deserializer).map(Self)
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "pattern": $pattern})
            }
        }
    };
}

text_id! {
    /// Id of a run: `run-` and a UUID v7 if Tidemill makes it. A new id must match `^run-[a-z0-9-]{1,60}$`.
    ///
    /// Plain SQL may have stored other ids. They can be read, displayed and looked up.
    RunId, "^run-"
}

text_id! {
    /// Id of an environment: `project/environment`.
    EnvId, "^[^/]+/.+$"
}

impl RunId {
    const FORM: &'static str = "a run id (`run-` followed by letters, digits and dashes)";
    /// Longest id that is looked up. An index of PostgreSQL cannot contain longer ones.
    const LOOKUP_BYTES_MAX: usize = 2_704;

    /// Returns whether a new run may have this id.
    pub fn is_well_formed(&self) -> bool {
        let tail = self.0.strip_prefix("run-").unwrap_or_default();
        !tail.is_empty()
            && self.0.len() <= 64
            && tail.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    }

    /// Returns the id quoted as one argument of a shell command.
    pub fn in_shell(&self) -> String {
        crate::shell::quote(&self.0)
    }

    /// Returns the id encoded as one segment of a URL path.
    pub fn in_path(&self) -> std::borrow::Cow<'_, str> {
        percent_encoded(&self.0)
    }

    /// Makes the id of a run created at `now`; `entropy` distinguishes runs of the same millisecond.
    pub fn new(now: Timestamp, entropy: Uuid) -> Self {
        Self(format!("run-{}", uuid_v7(now, entropy)))
    }

    /// Makes the id of one of several runs created at `now`. The ids of a batch sort by position, up to 4,096.
    pub fn in_batch(now: Timestamp, position: usize, entropy: Uuid) -> Self {
        let mut bytes = uuid_v7(now, entropy).into_bytes();
        // The 12 bits after the version, which are random in other ids.
        let [high, low] = u16::try_from(position % 0x1000).unwrap_or(0).to_be_bytes();
        bytes[6] = 0x70 | high;
        bytes[7] = low;
        Self(format!("run-{}", Uuid::from_bytes(bytes)))
    }

    /// Returns the trace id of this run: 32 hexadecimal digits derived from the run id.
    pub fn trace_id(&self) -> String {
        let uuid = self.0.strip_prefix("run-").and_then(|text| Uuid::parse_str(text).ok());
        match uuid.filter(|uuid| !uuid.is_nil()) {
            Some(uuid) => uuid.simple().to_string(),
            // The id was chosen by a caller or by plain SQL.
            None => crate::digest::sha256_hex(self.0.as_bytes())[..32].to_owned(),
        }
    }

    /// Returns a number in [0, 1) derived from the id, so that every process computes the same jitter.
    ///
    /// It comes from the last four hexadecimal digits. The SQL functions use the same rule.
    pub fn jitter(&self) -> f64 {
        let tail = self.0.get(self.0.len().saturating_sub(4)..).unwrap_or_default();
        u16::from_str_radix(tail, 16).map_or(0.5, |value| f64::from(value) / 65_536.0)
    }
}

impl FromStr for RunId {
    type Err = InvalidIdError;

    /// Parses the id of a run to look up. For new runs see [`RunId::is_well_formed`].
    fn from_str(text: &str) -> Result<Self, InvalidIdError> {
        let tail = text.strip_prefix("run-").unwrap_or_default();
        let can_exist = !tail.is_empty() && text.len() <= Self::LOOKUP_BYTES_MAX && !text.contains('\0');
        if can_exist { Ok(Self(text.to_owned())) } else { Err(InvalidIdError::new(text, Self::FORM)) }
    }
}

impl EnvId {
    /// Makes the id of environment `name` in `project`.
    pub fn new(project: &str, name: &str) -> Self {
        Self(format!("{project}/{name}"))
    }

    /// Returns the name of the environment without the project.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(self.0.as_str(), |(_, name)| name)
    }
}

impl FromStr for EnvId {
    type Err = InvalidIdError;

    fn from_str(text: &str) -> Result<Self, InvalidIdError> {
        match text.split_once('/') {
            Some((project, name)) if !project.is_empty() && !name.is_empty() => Ok(Self(text.to_owned())),
            Some(_) | None => Err(InvalidIdError::new(text, "an environment id (`project/environment`)")),
        }
    }
}

/// Id of a worker process: a UUID made at its start, so that a restart under the same name is visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct WorkerId(pub Uuid);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Makes a UUID v7 from a time and 74 bits of `entropy`.
pub fn uuid_v7(now: Timestamp, entropy: Uuid) -> Uuid {
    let millis = u64::try_from(now.timestamp_millis()).unwrap_or(0);
    let mut random = [0_u8; 10];
    random.copy_from_slice(&entropy.as_bytes()[..10]);
    // A UUID v4 has six fixed bits; mixing in the other bytes replaces them with entropy.
    for (byte, other) in random.iter_mut().zip(&entropy.as_bytes()[10..]) {
        *byte ^= other.rotate_left(3);
    }
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

/// Returns a UUID derived from the SHA-256 of a text: equal texts have equal ids, and the id does not reveal the text.
pub fn derived_uuid(text: &str) -> Uuid {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&crate::digest::sha256(text.as_bytes())[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// Percent-encodes every byte except letters, digits, `-`, `_`, `.` and `~`.
pub fn percent_encoded(text: &str) -> std::borrow::Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    percent_encoded_unless(text, is_plain)
}

/// Percent-encodes every byte for which `is_plain` is false.
pub(crate) fn percent_encoded_unless(text: &str, is_plain: fn(u8) -> bool) -> std::borrow::Cow<'_, str> {
    use fmt::Write as _;
    if text.bytes().all(is_plain) {
        return text.into();
    }
    let mut encoded = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded.into()
}

/// Decodes percent-encoded bytes; `None` if an encoding is malformed or the result is not UTF-8.
pub fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let (digits, rest) = (part.get(..2)?, part.get(2..)?);
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// Returns whether `name` is a valid project or environment name: lower-case letters, digits and dashes.
pub fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= crate::limits::NAME_BYTES_MAX
        && matches!(bytes.next(), Some(b'a'..=b'z' | b'0'..=b'9'))
        && bytes.all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{Duration, TimeZone, Utc};

    #[test]
    fn ids_that_tidemill_makes_sort_by_age() {
        let at = Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).unwrap();
        let early = RunId::new(at, Uuid::max());
        let late = RunId::new(at + Duration::milliseconds(1), Uuid::nil());
        assert!(early < late, "{early} {late}");
    }

    #[test]
    fn malformed_new_run_ids_are_rejected() {
        let id = RunId::new(Utc.timestamp_opt(0, 0).unwrap(), Uuid::nil());
        assert_eq!(id.as_str().parse(), Ok(id.clone()));
        assert!(id.is_well_formed());
        let long = format!("run-{}", "a".repeat(90));
        for bad in ["", "run-", "run-É", "run-A", "job-1", "run-1;drop", "run-1 ", long.as_str()] {
            assert!(!RunId::from_database(bad.to_owned()).is_well_formed(), "{bad}");
        }
    }

    #[test]
    fn run_ids_in_the_database_can_be_looked_up() {
        for odd in ["run-Upper_Case", "run-É", "run-a b/../c?d#e%"] {
            assert_eq!(odd.parse(), Ok(RunId::from_database(odd.to_owned())));
        }
        for bad in ["", "run-", "job-1", "run-a\0b", &format!("run-{}", "a".repeat(3_000))] {
            assert!(bad.parse::<RunId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn odd_run_ids_do_not_panic_and_are_safe_in_paths() {
        for odd in ["", "é", "run-é", "run-ééé", "run-a/../b?c#d%e f\n", "run-日本語"] {
            let id = RunId::from_database(odd.to_owned());
            let _ = (id.jitter(), id.trace_id());
            let path = id.in_path();
            assert!(path.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#".contains(&byte)), "{path}");
            assert_eq!(percent_decoded(&path).as_deref(), Some(odd));
        }
        for bad in ["%", "%4", "%zz", "%+1", "%ff", "%é"] {
            assert_eq!(percent_decoded(bad), None, "{bad}");
        }
    }

    #[test]
    fn jitter_is_a_fraction_taken_from_the_last_four_digits() {
        let id: RunId = "run-00000000-0000-7000-8000-00000000c000".parse().unwrap();
        assert!((id.jitter() - 0.75).abs() < 1e-9);
    }

    #[test]
    fn names_are_lower_case_words() {
        assert!(is_name("shop-2") && is_name("0a"));
        assert!(!is_name("") && !is_name("-a") && !is_name("A") && !is_name("a/b") && !is_name("a b"));
    }
}
