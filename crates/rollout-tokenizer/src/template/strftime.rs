//! `strftime_now`: Python's `datetime.now().strftime(format)` in UTC and the C locale.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const SECONDS_PER_DAY: u64 = 86_400;

struct CivilTime {
    year: u64,
    month: usize,
    day: u64,
    day_of_year: u64,
    weekday: usize,
    second_of_day: u64,
}

impl CivilTime {
    /// Days since 1970-01-01 to a date of the Gregorian calendar, counted in years that begin on the 1st of March.
    fn new(time: SystemTime) -> Option<Self> {
        let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
        let days = seconds / SECONDS_PER_DAY;
        let since_march_0000 = days + 719_468;
        let (era, day_of_era) = (since_march_0000 / 146_097, since_march_0000 % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_march_year =
            day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_march_year + 2) / 153;
        let month = if march_month < 10 {
            march_month + 3
        } else {
            march_month - 9
        };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        let leap =
            (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
        let day_of_year = if month <= 2 {
            day_of_march_year - 306 + 1
        } else {
            day_of_march_year + 59 + u64::from(leap) + 1
        };
        Some(Self {
            year,
            month: usize::try_from(month).ok()?,
            day: day_of_march_year - (153 * march_month + 2) / 5 + 1,
            day_of_year,
            weekday: usize::try_from((days + 4) % 7).ok()?,
            second_of_day: seconds % SECONDS_PER_DAY,
        })
    }

    fn hour(&self) -> u64 {
        self.second_of_day / 3600
    }

    fn minute(&self) -> u64 {
        self.second_of_day / 60 % 60
    }

    fn second(&self) -> u64 {
        self.second_of_day % 60
    }

    fn field(&self, directive: char) -> Option<String> {
        let half_day_hour = (self.hour() + 11) % 12 + 1;
        let month_name = MONTHS.get(self.month - 1)?;
        let day_name = WEEKDAYS.get(self.weekday)?;
        Some(match directive {
            'Y' => self.year.to_string(),
            'y' => format!("{:02}", self.year % 100),
            'm' => format!("{:02}", self.month),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'j' => format!("{:03}", self.day_of_year),
            'H' => format!("{:02}", self.hour()),
            'I' => format!("{half_day_hour:02}"),
            'M' => format!("{:02}", self.minute()),
            'S' => format!("{:02}", self.second()),
            'p' => if self.hour() < 12 { "AM" } else { "PM" }.into(),
            'B' => (*month_name).into(),
            'b' | 'h' => month_name.chars().take(3).collect(),
            'A' => (*day_name).into(),
            'a' => day_name.chars().take(3).collect(),
            'F' => format!("{}-{:02}-{:02}", self.year, self.month, self.day),
            'T' => format!(
                "{:02}:{:02}:{:02}",
                self.hour(),
                self.minute(),
                self.second()
            ),
            'Z' => String::new(),
            '%' => "%".into(),
            _ => return None,
        })
    }
}

/// Formats a time. `%-d` and its like drop the leading zeros.
pub(super) fn format(time: SystemTime, format: &str) -> Result<String, Error> {
    let invalid = |detail: String| Error::new(ErrorKind::InvalidOperation, detail);
    let time = CivilTime::new(time).ok_or_else(|| invalid("the clock is before 1970".into()))?;
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let mut directive = characters.next();
        let unpadded = directive == Some('-');
        if unpadded {
            directive = characters.next();
        }
        let field = directive
            .and_then(|directive| time.field(directive))
            .ok_or_else(|| {
                invalid(format!(
                    "strftime_now does not know a directive of {format:?}"
                ))
            })?;
        let shown = match field.trim_start_matches(['0', ' ']) {
            _ if !unpadded => &field,
            "" => "0",
            digits => digits,
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "{shown}");
    }
    Ok(text)
}
