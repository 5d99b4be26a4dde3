//! Errors of schedules, with hints.

use chrono_tz::TZ_VARIANTS;

use super::pattern::CRON_BYTES_MAX;

/// An invalid cron pattern or time zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The pattern is too long.
    #[error("the cron pattern is {bytes} bytes long; at most {CRON_BYTES_MAX} are allowed")]
    TooLong { bytes: usize },
    /// The pattern does not have five fields.
    #[error("cron pattern `{cron}` has {fields} fields; it must have 5")]
    FieldCount { cron: String, fields: usize },
    /// The pattern begins with `@` and is not a known short form.
    #[error("cron pattern `{cron}` is not a known short form")]
    Nickname { cron: String },
    /// One field of the pattern is invalid.
    #[error("the {field} field `{text}` of cron pattern `{cron}` is not valid")]
    Field {
        cron: String,
        /// Name of the field, for example `day of month`.
        field: &'static str,
        text: String,
        /// Valid values of the field, as a sentence.
        takes: &'static str,
    },
    /// The pattern is valid but matches no day of the calendar.
    #[error(
        "cron pattern `{cron}` never fires: no day in 400 years, after which the calendar repeats, fits it"
    )]
    NeverFires { cron: String },
    /// The time zone is not in the IANA database.
    #[error("`{time_zone}` is not a time zone")]
    TimeZone {
        /// The given name, truncated.
        time_zone: String,
        /// The most similar known name.
        nearest: Option<&'static str>,
    },
}

impl ScheduleError {
    /// Returns a suggestion for a fix.
    pub fn hint(&self) -> String {
        match self {
            Self::TooLong { .. } => {
                "use ranges and steps, as in `0-30/5`, or create several schedules".to_owned()
            }
            Self::FieldCount { fields: 6 | 7, .. } => {
                "omit the seconds and the year: a schedule fires at most once a minute".to_owned()
            }
            Self::FieldCount { .. } => {
                "write minute, hour, day of month, month and day of week, as in `30 2 * * mon-fri`".to_owned()
            }
            Self::Nickname { .. } => {
                "use @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually, or five fields"
                    .to_owned()
            }
            Self::Field { takes, .. } => (*takes).to_owned(),
            Self::NeverFires { .. } => {
                "name a day that exists: there is no 30 February; the last day of any month is `L`".to_owned()
            }
            Self::TimeZone { nearest: Some(nearest), .. } => format!("did you mean `{nearest}`?"),
            Self::TimeZone { nearest: None, .. } => {
                "use an IANA name, such as `UTC`, `Europe/Berlin` or `America/New_York`".to_owned()
            }
        }
    }

    /// Makes the error for an unknown time zone, with a suggestion.
    pub(super) fn time_zone(name: &str) -> Self {
        Self::TimeZone { time_zone: name.chars().take(64).collect(), nearest: nearest_zone(name) }
    }
}

/// Returns the most similar IANA name: first ignoring case, then by the city alone, then by typing errors.
///
/// Short names get no suggestion by typing errors, because most abbreviations differ by one letter.
fn nearest_zone(name: &str) -> Option<&'static str> {
    if name.len() > 64 {
        return None;
    }
    let wanted = name.trim().replace(' ', "_").to_ascii_lowercase();
    let names = || TZ_VARIANTS.iter().map(|zone| zone.name());
    let same = names().find(|name| name.eq_ignore_ascii_case(&wanted));
    let city =
        || names().find(|name| name.rsplit('/').next().is_some_and(|c| c.eq_ignore_ascii_case(&wanted)));
    let slip = || {
        let slips_max = (wanted.len() / 5).min(3);
        names()
            .map(|name| (distance(&name.to_ascii_lowercase(), &wanted), name))
            .filter(|&(slips, _)| slips <= slips_max)
            .min()
            .map(|(_, name)| name)
    };
    same.or_else(city).or_else(slip)
}

/// Returns the edit distance (Levenshtein) of two texts.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.bytes().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, to) in b.bytes().enumerate() {
            let exchanged = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_similar_time_zone_is_suggested() {
        for (given, nearest) in [
            ("europe/berlin", Some("Europe/Berlin")),
            ("utc", Some("UTC")),
            ("America/New York", Some("America/New_York")),
            ("berlin", Some("Europe/Berlin")),
            ("Europe/Berln", Some("Europe/Berlin")),
            ("America/NewYork", Some("America/New_York")),
            ("Asia/Tokio", Some("Asia/Tokyo")),
            ("PST", None),
            ("CEST", None),
            ("", None),
            ("Middle-earth/Hobbiton", None),
        ] {
            assert_eq!(nearest_zone(given), nearest, "{given}");
        }
        assert_eq!(nearest_zone(&"x".repeat(1_000_000)), None);
    }

    #[test]
    fn distance_is_the_number_of_edits() {
        for (a, b, slips) in
            [("", "abc", 3), ("kitten", "sitting", 3), ("berlin", "berlin", 0), ("ab", "ba", 2)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (slips, slips), "{a} {b}");
        }
    }
}
