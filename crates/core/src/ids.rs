//! Names of things. A run's id carries its creation time, so ids sort by age.

use crate::Timestamp;
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// An id that does not have the right form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not {expected}")]
pub struct BadId {
    /// What was given, cut to a readable length.
    pub value: String,
    /// The form that was expected, for a person.
    pub expected: &'static str,
}

impl BadId {
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
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// An id that the database holds, taken as it is: SQL may have written one that Tidemill would not.
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
                // Answers of a server name what its database holds. Requests are checked against the schema below.
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
    /// A run: `run-` and a UUID of version 7 when we make it; `^run-[a-z0-9-]{1,60}$` for every new run.
    ///
    /// Plain SQL may have stored other ids. They can be read, shown and looked up.
    RunId, "^run-"
}

text_id! {
    /// An environment of a project: `project/environment`.
    EnvId, "^[^/]+/.+$"
}

impl RunId {
    const FORM: &'static str = "a run id (`run-` followed by letters, digits and dashes)";
    /// Bytes of an id that is looked up. PostgreSQL's index holds no longer ones.
    const LOOKUP_BYTES_MAX: usize = 2_704;

    /// Whether a new run may have this id.
    pub fn is_well_formed(&self) -> bool {
        let tail = self.0.strip_prefix("run-").unwrap_or_default();
        !tail.is_empty()
            && self.0.len() <= 64
            && tail.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    }

    /// The id as one word of a shell command.
    pub fn in_shell(&self) -> String {
        crate::shell::pasted(&self.0)
    }

    /// The id as one segment of a URL's path.
    pub fn in_path(&self) -> std::borrow::Cow<'_, str> {
        percent_encoded(&self.0)
    }

    /// A new id for a run that is created at `now`; `entropy` keeps two runs of one microsecond apart.
    pub fn new(now: Timestamp, entropy: Uuid) -> Self {
        Self(format!("run-{}", uuid_v7(now, entropy)))
    }

    /// The smallest id that a run created at `moment` can have: ids sort by age, so this is a bound for searches.
    pub fn floor(moment: Timestamp) -> Self {
        Self(format!("run-{}", uuid_v7(moment, Uuid::nil())))
    }

    /// The id of the trace that everything done for this run belongs to: 32 hexadecimal digits, the same everywhere.
    pub fn trace_id(&self) -> String {
        let uuid = self.0.strip_prefix("run-").and_then(|text| Uuid::parse_str(text).ok());
        match uuid.filter(|uuid| !uuid.is_nil()) {
            Some(uuid) => uuid.simple().to_string(),
            // A run that somebody else named.
            None => crate::digest::sha256_hex(self.0.as_bytes())[..32].to_owned(),
        }
    }

    /// A number in [0, 1) that depends on the id alone, so that jitter can be repeated anywhere.
    ///
    /// It is taken from the last four hexadecimal digits, in the store's SQL too.
    pub fn jitter(&self) -> f64 {
        let tail = self.0.get(self.0.len().saturating_sub(4)..).unwrap_or_default();
        u16::from_str_radix(tail, 16).map_or(0.5, |value| f64::from(value) / 65_536.0)
    }
}

impl FromStr for RunId {
    type Err = BadId;

    /// Reads the id of a run to look up. A new run's id is held to [`RunId::is_well_formed`].
    fn from_str(text: &str) -> Result<Self, BadId> {
        let tail = text.strip_prefix("run-").unwrap_or_default();
        let can_exist = !tail.is_empty() && text.len() <= Self::LOOKUP_BYTES_MAX && !text.contains('\0');
        if can_exist { Ok(Self(text.to_owned())) } else { Err(BadId::new(text, Self::FORM)) }
    }
}

impl EnvId {
    /// The environment `name` of `project`.
    pub fn new(project: &str, name: &str) -> Self {
        Self(format!("{project}/{name}"))
    }

    /// The environment's own name, without its project.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(self.0.as_str(), |(_, name)| name)
    }
}

impl FromStr for EnvId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        match text.split_once('/') {
            Some((project, name)) if !project.is_empty() && !name.is_empty() => Ok(Self(text.to_owned())),
            Some(_) | None => Err(BadId::new(text, "an environment id (`project/environment`)")),
        }
    }
}

/// A worker process: a UUID made at its start, so that a reused name never hides a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct WorkerId(pub Uuid);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A UUID of version 7 made of a time and 74 bits of `entropy`.
pub fn uuid_v7(now: Timestamp, entropy: Uuid) -> Uuid {
    let millis = u64::try_from(now.timestamp_millis()).unwrap_or(0);
    let mut random = [0_u8; 10];
    random.copy_from_slice(&entropy.as_bytes()[..10]);
    // A version 4 UUID fixes six of its bits; fold in bytes that are free, so that the entropy stays whole.
    for (byte, other) in random.iter_mut().zip(&entropy.as_bytes()[10..]) {
        *byte ^= other.rotate_left(3);
    }
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

/// Text with every byte percent-encoded that is not a letter, a digit, `-`, `_`, `.` or `~`.
pub fn percent_encoded(text: &str) -> std::borrow::Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    percent_encoded_unless(text, is_plain)
}

/// Text with every byte percent-encoded that is not plain.
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

/// Text whose percent-encoded bytes are decoded; `None` if an encoding is broken or the bytes are not UTF-8.
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

/// Whether `name` may name a project or an environment: lower-case letters, digits and dashes.
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
    fn ids_sort_by_age_and_the_floor_is_below_all_of_its_moment() {
        let at = Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).unwrap();
        let early = RunId::new(at, Uuid::max());
        let late = RunId::new(at + Duration::milliseconds(1), Uuid::nil());
        assert!(RunId::floor(at) <= early && early < late, "{early} {late}");
    }

    #[test]
    fn new_run_ids_are_held_to_their_form() {
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
