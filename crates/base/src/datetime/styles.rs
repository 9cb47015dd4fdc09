//! Dates and timestamps in the styles other than ISO. They are rare, so this code is not optimised.

use super::{MICROS_PER_DAY, civil_from_days, push_two, write_time, write_year};
use crate::text_style::{DateOrder, DateStyle};

/// The largest number of bytes of a zone's name that are written.
const ZONE_BYTES: usize = 10;

/// Appends a date.
#[cold]
pub(super) fn write_date(days: i32, style: DateStyle, order: DateOrder, out: &mut String) {
    let (year, month, day) = civil_from_days(i64::from(days));
    let delimiter = match style {
        DateStyle::Sql => '/',
        DateStyle::German => '.',
        DateStyle::Iso | DateStyle::Postgres => '-',
    };
    let is_day_first = style == DateStyle::German || order == DateOrder::Dmy;
    write_numbers(year, month, day, delimiter, is_day_first, out);
    if year <= 0 {
        out.push_str(" BC");
    }
}

/// Appends a timestamp by its local time, with the name of its zone if it has one.
#[cold]
pub(super) fn write_timestamp(
    local: i64,
    zone: Option<&str>,
    style: DateStyle,
    order: DateOrder,
    out: &mut String,
) {
    let days = local.div_euclid(MICROS_PER_DAY);
    let time = local.rem_euclid(MICROS_PER_DAY);
    let (year, month, day) = civil_from_days(days);
    match style {
        DateStyle::Sql => {
            write_numbers(year, month, day, '/', order == DateOrder::Dmy, out);
            out.push(' ');
            write_time(time, out);
        }
        DateStyle::German => {
            write_numbers(year, month, day, '.', true, out);
            out.push(' ');
            write_time(time, out);
        }
        DateStyle::Iso | DateStyle::Postgres => {
            const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
            const MONTHS: [&str; 12] =
                ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
            // 1970 began on a Thursday.
            out.push_str(DAYS[days.rem_euclid(7) as usize]);
            out.push(' ');
            let month = MONTHS[month as usize - 1];
            if order == DateOrder::Dmy {
                push_two(i64::from(day), out);
                out.push(' ');
                out.push_str(month);
            } else {
                out.push_str(month);
                out.push(' ');
                push_two(i64::from(day), out);
            }
            out.push(' ');
            write_time(time, out);
            out.push(' ');
            write_year(year, out);
        }
    }
    if let Some(zone) = zone {
        out.push(' ');
        out.push_str(&zone[..zone.floor_char_boundary(ZONE_BYTES)]);
    }
    if year <= 0 {
        out.push_str(" BC");
    }
}

/// Appends day and month with two digits each, and the year.
fn write_numbers(year: i64, month: u32, day: u32, delimiter: char, is_day_first: bool, out: &mut String) {
    let (first, second) = if is_day_first { (day, month) } else { (month, day) };
    push_two(i64::from(first), out);
    out.push(delimiter);
    push_two(i64::from(second), out);
    out.push(delimiter);
    write_year(year, out);
}

#[cfg(test)]
mod tests {
    use super::super::{parse_date, parse_timestamptz};
    use crate::text_style::{DateOrder, DateStyle, TextStyle};
    use crate::time_zone::TimeZoneSetting;
    use crate::{SqlType, Value, text};

    const ORDERS: [DateOrder; 3] = [DateOrder::Mdy, DateOrder::Dmy, DateOrder::Ymd];

    fn style(dates: DateStyle, order: DateOrder) -> TextStyle {
        TextStyle { dates, order, ..TextStyle::in_zone(TimeZoneSetting::parse("Europe/Berlin").unwrap()) }
    }

    fn written(value: Value, style: &TextStyle) -> String {
        let mut out = String::new();
        text::write(&value, SqlType::Text, style, &mut out);
        out
    }

    /// As PostgreSQL 15 prints them.
    #[test]
    fn each_style_writes_dates_and_timestamps_in_its_order() {
        let date = Value::Date(parse_date("2030-02-05", &TextStyle::DEFAULT).unwrap());
        let ancient = Value::Date(parse_date("0044-03-15 BC", &TextStyle::DEFAULT).unwrap());
        let moment =
            Value::TimestampTz(parse_timestamptz("2030-07-01 00:00:00.25+00", &TextStyle::DEFAULT).unwrap());
        for (dates, order, expected) in [
            (DateStyle::Iso, DateOrder::Dmy, ["2030-02-05", "0044-03-15 BC", "2030-07-01 02:00:00.25+02"]),
            (DateStyle::Sql, DateOrder::Mdy, ["02/05/2030", "03/15/0044 BC", "07/01/2030 02:00:00.25 CEST"]),
            (DateStyle::Sql, DateOrder::Ymd, ["02/05/2030", "03/15/0044 BC", "07/01/2030 02:00:00.25 CEST"]),
            (DateStyle::Sql, DateOrder::Dmy, ["05/02/2030", "15/03/0044 BC", "01/07/2030 02:00:00.25 CEST"]),
            (
                DateStyle::German,
                DateOrder::Mdy,
                ["05.02.2030", "15.03.0044 BC", "01.07.2030 02:00:00.25 CEST"],
            ),
            (
                DateStyle::Postgres,
                DateOrder::Mdy,
                ["02-05-2030", "03-15-0044 BC", "Mon Jul 01 02:00:00.25 2030 CEST"],
            ),
            (
                DateStyle::Postgres,
                DateOrder::Dmy,
                ["05-02-2030", "15-03-0044 BC", "Mon 01 Jul 02:00:00.25 2030 CEST"],
            ),
        ] {
            let style = style(dates, order);
            let found = [&date, &ancient, &moment].map(|value| written(value.clone(), &style));
            assert_eq!(found, expected, "{dates:?} {order:?}");
        }
    }

    #[test]
    fn what_a_style_writes_is_read_back_in_its_order() {
        for dates in [DateStyle::Iso, DateStyle::Sql, DateStyle::Postgres, DateStyle::German] {
            for order in ORDERS {
                // PostgreSQL, too, writes month/day/year if the order is year first.
                let is_read = order != DateOrder::Ymd || dates == DateStyle::Iso;
                let is_read = is_read && (dates != DateStyle::German || order == DateOrder::Dmy);
                for days in (-500_000..=500_000).step_by(12_345).filter(|_| is_read) {
                    let style = style(dates, order);
                    let text = written(Value::Date(days), &style);
                    assert_eq!(parse_date(&text, &style).unwrap(), days, "{text} {style:?}");
                }
            }
        }
    }

    /// As PostgreSQL 15 reads them.
    #[test]
    fn the_order_says_what_the_numbers_of_a_date_are() {
        for (text, expected) in [
            ("05/02/2030", ["2030-05-02", "2030-02-05", "22008"]),
            ("30/02/05", ["22008", "22008", "2030-02-05"]),
            ("01-02-03", ["2003-01-02", "2003-02-01", "2001-02-03"]),
            ("31.12.2030", ["22008", "2030-12-31", "22008"]),
            ("2030-02-05", ["2030-02-05"; 3]),
            ("2030 2 5", ["2030-02-05"; 3]),
            ("Feb 5 2030", ["2030-02-05", "2030-02-05", "2030-02-05"]),
            ("5 Feb 2030", ["2030-02-05"; 3]),
            ("Feb-05-03", ["2003-02-05", "2003-02-05", "2005-02-03"]),
            ("20300205", ["2030-02-05"; 3]),
        ] {
            let found = ORDERS.map(|order| match parse_date(text, &style(DateStyle::Iso, order)) {
                Ok(days) => written(Value::Date(days), &TextStyle::DEFAULT),
                Err(error) => error.state().as_str().to_owned(),
            });
            assert_eq!(found, expected, "{text}");
        }
    }
}
