//! Snapshots as values: `pg_current_snapshot` and the functions that take its result. PostgreSQL has types for them. Here they
//! are text: the smallest number of a running transaction, the number of the next one, and those of the running ones in between.

use super::functions::source;
use firn_base::{Error, Representation, Result, SqlState, Value};
use firn_executor::values;
use firn_vector::Datum;
use firn_vector::builder::Builder;
use firn_vector::kernel::{Call, Set, SetKernel, Text};
use firn_vector::registry::RegistryBuilder;
use std::fmt::Write;

/// Registers them.
pub(super) fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(), _>("pg_current_snapshot() txid_current_snapshot()", |call, ()| {
        let session = source(call)?.session().ok_or_else(super::functions::no_session)?;
        // First, because those that begin later have larger numbers.
        let next = session.engine().next_number();
        let mut running: Vec<u64> =
            session.sessions().list().iter().filter_map(|session| session.running_number()).collect();
        running.retain(|number| *number < next);
        running.sort_unstable();
        write!(call.text, "{}:{next}:", running.first().unwrap_or(&next)).expect("strings take everything");
        for (place, number) in running.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(call.text, "{comma}{number}").expect("strings take everything");
        }
        Ok::<_, Error>(Text)
    });
    builder.scalar::<(&str,), _>("pg_snapshot_xmin(text) txid_snapshot_xmin(text)", |_, (text,)| {
        Snapshot::parse(text).map(|snapshot| snapshot.first)
    });
    builder.scalar::<(&str,), _>("pg_snapshot_xmax(text) txid_snapshot_xmax(text)", |_, (text,)| {
        Snapshot::parse(text).map(|snapshot| snapshot.next)
    });
    builder.scalar::<(i64, &str), _>(
        "pg_visible_in_snapshot(xid8,text) txid_visible_in_snapshot(int8,text)",
        |_, (number, text)| Snapshot::parse(text).map(|snapshot| snapshot.sees(number)),
    );
    builder.set("pg_snapshot_xip(text) txid_snapshot_xip(text)", RunningNumbers);
}

/// The numbers in the text of a snapshot.
struct Snapshot {
    first: i64,
    next: i64,
    running: Vec<i64>,
}

impl Snapshot {
    fn parse(text: &str) -> Result<Snapshot> {
        let read = || {
            let mut parts = text.split(':');
            let mut part = || parts.next();
            let (first, next, running) = (part()?.parse().ok()?, part()?.parse().ok()?, part()?);
            let is_last = parts.next().is_none();
            let numbers =
                running.split(',').filter(|_| !running.is_empty()).map(|number| number.parse().ok());
            let mut running: Vec<i64> = numbers.collect::<Option<_>>()?;
            let is_inside = running.iter().all(|number| (first..next).contains(number));
            let is_ordered = running.is_sorted() && 0 < first && first <= next;
            running.dedup();
            (is_last && is_inside && is_ordered).then_some(Snapshot { first, next, running })
        };
        read().ok_or_else(|| {
            let message = format!("invalid input syntax for type pg_snapshot: \"{text}\"");
            Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
        })
    }

    /// Whether the transaction with that number had ended.
    fn sees(&self, number: i64) -> bool {
        number < self.first || number < self.next && self.running.binary_search(&number).is_err()
    }
}

/// `pg_snapshot_xip`
struct RunningNumbers;

impl SetKernel for RunningNumbers {
    fn can_fail(&self) -> bool {
        true
    }

    fn begin(&self, _: &mut Call<'_>, arguments: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        let Datum::Text(text) = arguments[0] else { return Ok(None) };
        Ok(Some(Box::new(Numbers { left: Snapshot::parse(text)?.running.into_iter() })))
    }
}

struct Numbers {
    left: std::vec::IntoIter<i64>,
}

impl Set for Numbers {
    fn next(&mut self, _: &mut Call<'_>, columns: &mut [Builder], most: usize) -> Result<bool> {
        for number in self.left.by_ref().take(most) {
            values::push(&mut columns[0], &Value::BigInt(number), Representation::Int64);
        }
        Ok(self.left.len() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_sees_what_had_ended() {
        let snapshot = Snapshot::parse("10:20:10,14").unwrap();
        let seen: Vec<i64> = (8..22).filter(|number| snapshot.sees(*number)).collect();
        assert_eq!(seen, [8, 9, 11, 12, 13, 15, 16, 17, 18, 19]);
        assert!(Snapshot::parse("10:10:").is_ok());
        for bad in ["", "1", "1:2", "2:1:", "0:1:", "1:5:7", "1:5:3,2", "1:5:x", "1:5:2:"] {
            assert!(Snapshot::parse(bad).is_err(), "{bad}");
        }
    }
}
