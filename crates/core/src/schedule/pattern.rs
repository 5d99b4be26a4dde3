//! Cron patterns with five fields, on the wall clock of a time zone.

use chrono::{LocalResult, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeDelta, TimeZone};
use chrono_tz::{GapInfo, Tz};
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

use super::error::ScheduleError;
use crate::Timestamp;

/// Maximum length of a cron pattern.
pub const CRON_BYTES_MAX: usize = 256;

/// Days after which the calendar, including weekdays, repeats: 400 years. A pattern that matches none of them never
/// fires.
const CALENDAR_DAYS: usize = 146_097;

/// Short forms and their patterns.
const NICKNAMES: &[(&str, &str)] = &[
    ("@HOURLY", "0 * * * *"),
    ("@DAILY", "0 0 * * *"),
    ("@MIDNIGHT", "0 0 * * *"),
    ("@WEEKLY", "0 0 * * 0"),
    ("@MONTHLY", "0 0 1 * *"),
    ("@YEARLY", "0 0 1 1 *"),
    ("@ANNUALLY", "0 0 1 1 *"),
];

/// The name and the valid values of a field.
struct Field {
    name: &'static str,
    /// Number of values; a larger step would be meaningless.
    step_max: u16,
    words: &'static [&'static str],
    /// Letter that may follow a value.
    mark: Option<char>,
    takes: &'static str,
}

const FIELDS: [Field; 5] = [
    Field {
        name: "minute",
        step_max: 60,
        words: &[],
        mark: None,
        takes: "minutes are 0 to 59, as in `5`, `0,30`, `0-10` or `*/15`; a step is at most 60",
    },
    Field {
        name: "hour",
        step_max: 24,
        words: &[],
        mark: None,
        takes: "hours are 0 to 23, as in `5`, `8,20`, `9-17` or `*/2`; a step is at most 24",
    },
    Field {
        name: "day of month",
        step_max: 31,
        words: &["L"],
        mark: Some('W'),
        takes: "days are 1 to 31, as in `1`, `1,15` or `*/2`; `L` is the last, `15W` the weekday nearest to the 15th",
    },
    Field {
        name: "month",
        step_max: 12,
        words: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
        mark: None,
        takes: "months are 1 to 12 or `jan` to `dec`, as in `6`, `jan,jul` or `*/3`",
    },
    Field {
        name: "day of week",
        step_max: 7,
        words: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
        mark: Some('L'),
        takes: "weekdays are 0 to 7 or `sun` to `sat`, as in `mon-fri`; ranges run upwards, `fri#2` is the second, \
                `5L` the last Friday",
    },
];

/// The form of the hour field, which decides what happens when clocks change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hours {
    /// Listed hours: each is meant once a day.
    Fixed,
    /// A wildcard, a step or all hours: intervals are meant.
    Running,
}

/// A parsed cron pattern with its time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// Parsed fields; used only to match days.
    cron: Cron,
    zone: Tz,
    /// Times within a matching day, ascending; never empty.
    times: Vec<NaiveTime>,
    hours: Hours,
}

impl Pattern {
    /// Parses a pattern of five fields, or a short form such as `@daily`, and an IANA time zone.
    ///
    /// Fields accept names (`mon`, `jan`), lists, ranges, steps, and croner's `L`, `W`, `#` and `?`. If neither day
    /// field is `*`, a day matches if either field matches; with a `+` before the day of week, if both match.
    pub fn parse(cron: &str, time_zone: &str) -> Result<Self, ScheduleError> {
        if cron.len() > CRON_BYTES_MAX {
            return Err(ScheduleError::TooLong { bytes: cron.len() });
        }
        let cron = cron.trim();
        let parsed = parse_fields(cron)?;
        let zone = time_zone.parse().map_err(|_| ScheduleError::time_zone(time_zone))?;
        let pattern = Self { times: times(&parsed.cron), cron: parsed.cron, zone, hours: parsed.hours };
        match pattern.next_wall(NaiveDate::default().into()) {
            Some(_) => Ok(pattern),
            None => Err(ScheduleError::NeverFires { cron: cron.to_owned() }),
        }
    }

    /// Returns the first fire strictly after a time. There is none after the year 5000.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let wall = self.wall_at(after)?;
        match (self.next_ahead(wall, after), self.next_repeated(wall, after)) {
            (Some(ahead), Some(repeated)) => Some(ahead.min(repeated)),
            (ahead, repeated) => ahead.or(repeated),
        }
    }

    /// Returns every fire strictly after a time, in order.
    pub fn fires_after(&self, after: Timestamp) -> impl Iterator<Item = Timestamp> {
        std::iter::successors(self.next_after(after), |&fire| self.next_after(fire))
    }

    /// Returns a time at or after `from` with at least `count` wall-clock times between it and `to`, or `from` if
    /// there are fewer.
    ///
    /// It counts whole days, so the work does not grow with the number of fires. Times in a gap count, although they
    /// may make no fire of their own.
    pub(super) fn jump_back(&self, from: Timestamp, to: Timestamp, count: usize) -> Timestamp {
        let today = self.wall_at(to).map(|wall| wall.date());
        let mut counted = 0;
        for day in std::iter::successors(today, NaiveDate::pred_opt).skip(1).take(CALENDAR_DAYS) {
            // No UTC offset exceeds a day, so this is not after the beginning of the day.
            let before = NaiveDateTime::from(day).and_utc().checked_sub_signed(TimeDelta::days(1));
            let Some(before) = before.filter(|&before| before > from) else { return from };
            if self.fits(day) {
                counted += self.times.len();
            }
            if counted >= count {
                return before;
            }
        }
        from
    }

    /// Returns the wall-clock time at `at`.
    fn wall_at(&self, at: Timestamp) -> Option<NaiveDateTime> {
        let utc = at.naive_utc();
        utc.checked_add_offset(self.zone.offset_from_utc_datetime(&utc).fix())
    }

    /// Returns the first fire after `after` whose wall-clock time is later than `wall`.
    fn next_ahead(&self, mut wall: NaiveDateTime, after: Timestamp) -> Option<Timestamp> {
        loop {
            wall = self.next_wall(wall)?;
            let fire = match self.zone.from_local_datetime(&wall) {
                LocalResult::Single(at) => Some(at.to_utc()),
                LocalResult::Ambiguous(first, second) => match self.hours {
                    Hours::Running if first <= after => Some(second.to_utc()),
                    Hours::Running | Hours::Fixed => Some(first.to_utc()),
                },
                LocalResult::None => self.after_gap(wall),
            };
            // On the second pass of a repeated hour, fixed times are over: they fired on the first pass.
            if let Some(fire) = fire
                && fire > after
            {
                return Some(fire);
            }
        }
    }

    /// Returns the first fire of the second pass of a repeated hour, if `after` is on the first pass and hours are
    /// running.
    ///
    /// Its wall-clock time is at most `wall`: later times still come on the first pass.
    fn next_repeated(&self, wall: NaiveDateTime, after: Timestamp) -> Option<Timestamp> {
        if self.hours == Hours::Fixed {
            return None;
        }
        let LocalResult::Ambiguous(first, second) = self.zone.from_local_datetime(&wall) else { return None };
        if second <= after {
            return None;
        }
        let mut earlier = wall.checked_sub_signed(second - first)?;
        loop {
            earlier = self.next_wall(earlier)?;
            if earlier > wall {
                return None;
            }
            if let LocalResult::Ambiguous(_, second) = self.zone.from_local_datetime(&earlier) {
                return Some(second.to_utc());
            }
        }
    }

    /// Returns the fire that replaces a skipped wall-clock time, unless the pattern soon fires by itself.
    fn after_gap(&self, wall: NaiveDateTime) -> Option<Timestamp> {
        let gap = GapInfo::new(&wall, &self.zone)?;
        let (begin, end) = (gap.begin?.0, gap.end?);
        let resumes = end.naive_local();
        let made_up_until = resumes.checked_add_signed(resumes - begin)?;
        let own = self.next_wall(resumes.checked_sub_signed(TimeDelta::seconds(1))?);
        match self.hours {
            Hours::Running if own.is_some_and(|own| own < made_up_until) => None,
            Hours::Running | Hours::Fixed => Some(end.to_utc()),
        }
    }

    /// Returns the first matching wall-clock time strictly after `wall`, even if the clock skips it.
    fn next_wall(&self, wall: NaiveDateTime) -> Option<NaiveDateTime> {
        let today = wall.date();
        let passed = self.times.partition_point(|&time| time <= wall.time());
        if let Some(&time) = self.times.get(passed)
            && self.fits(today)
        {
            return Some(today.and_time(time));
        }
        let &first = self.times.first()?;
        let day = today.iter_days().skip(1).take(CALENDAR_DAYS).find(|&day| self.fits(day))?;
        Some(day.and_time(first))
    }

    /// Returns whether the pattern matches a day.
    fn fits(&self, day: NaiveDate) -> bool {
        self.times
            .first()
            .is_some_and(|&time| self.cron.is_time_matching(&day.and_time(time)).unwrap_or(false))
    }
}

/// The part of a pattern that does not depend on the time zone.
struct Parsed {
    cron: Cron,
    hours: Hours,
}

fn parse_fields(cron: &str) -> Result<Parsed, ScheduleError> {
    let upper = cron.to_ascii_uppercase();
    let text = match NICKNAMES.iter().find(|(nickname, _)| *nickname == upper) {
        Some((_, text)) => text,
        None if upper.starts_with('@') => return Err(ScheduleError::Nickname { cron: cron.to_owned() }),
        None => upper.as_str(),
    };
    let texts: Vec<&str> = text.split_whitespace().collect();
    let &[_, hour, _, _, _] = texts.as_slice() else {
        return Err(ScheduleError::FieldCount { cron: cron.to_owned(), fields: texts.len() });
    };
    let invalid = |index: usize| ScheduleError::Field {
        cron: cron.to_owned(),
        field: FIELDS[index].name,
        text: texts[index].to_ascii_lowercase(),
        takes: FIELDS[index].takes,
    };
    if let Some(index) = (0..FIELDS.len()).find(|&index| !is_valid(&FIELDS[index], texts[index])) {
        return Err(invalid(index));
    }
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    // Croner accepts 7 for Sunday, but parses `7L` as a pattern that never matches.
    let Ok(parsed) = parser.parse(&texts.join(" ").replace("7L", "0L")) else {
        // Croner does not name the invalid field, so each is parsed alone.
        let alone = |index: usize| {
            let mut fields = ["*"; FIELDS.len()];
            fields[index] = texts[index];
            parser.parse(&fields.join(" ")).is_err()
        };
        return Err(invalid((0..FIELDS.len()).find(|&index| alone(index)).unwrap_or(0)));
    };
    let running = hour.contains(['*', '/']) || parsed.pattern.hours.values().len() == 24;
    Ok(Parsed { cron: parsed, hours: if running { Hours::Running } else { Hours::Fixed } })
}

/// Returns whether a field contains only valid values.
///
/// Croner replaces names anywhere in the pattern: it accepts `mon 0 * * *` as a minute and `janfeb` as December. It
/// also ignores empty values in lists and reads `*/90` as minute 0.
fn is_valid(field: &Field, text: &str) -> bool {
    let text = if field.name == "day of week" { text.strip_prefix('+').unwrap_or(text) } else { text };
    let step_fits = |item: &str| {
        item.split_once('/')
            .is_none_or(|(_, step)| step.parse().is_ok_and(|step: u16| step <= field.step_max))
    };
    text.split(',').all(step_fits)
        && text.split([',', '-', '/', '#']).all(|piece| {
            let value = field.mark.and_then(|mark| piece.strip_suffix(mark)).unwrap_or(piece);
            let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            is_number || value == "*" || value == "?" || field.words.contains(&value)
        })
}

/// Returns the times of a day that the minute and hour fields match, ascending.
fn times(cron: &Cron) -> Vec<NaiveTime> {
    let minutes = cron.pattern.minutes.values();
    let hours = cron.pattern.hours.values();
    let time = |hour: u16, minute: u16| NaiveTime::from_hms_opt(hour.into(), minute.into(), 0);
    hours.iter().flat_map(|&hour| minutes.iter().filter_map(move |&minute| time(hour, minute))).collect()
}

#[cfg(test)]
mod tests;
