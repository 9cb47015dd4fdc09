//! Window functions.

use super::operators::{Interpreter, Row, compare, sort};
use super::scalars::same;
use crate::operator::{Bound, Exclude, Frame, FrameUnit, SortKey, Window};
use firn_base::{Result, Value};
use std::cmp::Ordering;

impl Interpreter<'_> {
    /// Rows with the values of a window's functions.
    pub fn window(&self, window: &Window, rows: Vec<Row>) -> Result<Vec<Row>> {
        let mut partitions: Vec<Vec<Row>> = Vec::new();
        let equal = |left: &Row, right: &Row| {
            window.partition.iter().all(|column| same(left.get(*column), right.get(*column)))
        };
        for row in rows {
            match partitions.iter_mut().find(|partition| equal(&partition[0], &row)) {
                Some(partition) => partition.push(row),
                None => partitions.push(vec![row]),
            }
        }
        let mut result = Vec::new();
        for mut partition in partitions {
            sort(&mut partition, &window.order);
            if let Some(first) = &window.first
                && let Value::BigInt(first) = self.scalar(first, &partition[0])?
                && let Ok(first) = usize::try_from(first)
            {
                partition.truncate(first);
            }
            for at in 0..partition.len() {
                let mut row = partition[at].clone();
                for call in &window.calls {
                    let value = match &*call.function.name {
                        "row_number" => Value::BigInt(at as i64 + 1),
                        "rank" => Value::BigInt(peers(&partition, &window.order, at).0 as i64 + 1),
                        "dense_rank" => {
                            let before = (1..=at).filter(|row| {
                                compare(&partition[row - 1], &partition[*row], &window.order).is_ne()
                            });
                            Value::BigInt(before.count() as i64 + 1)
                        }
                        name => {
                            let framed = self.framed(&call.frame, &partition, &window.order, at);
                            self.aggregate_of(
                                name,
                                &call.arguments,
                                false,
                                &window.order,
                                call.filter.as_ref(),
                                &framed,
                            )?
                        }
                    };
                    row.set(call.output, value);
                }
                result.push(row);
            }
        }
        Ok(result)
    }

    fn framed<'a>(&self, frame: &Frame, partition: &'a [Row], order: &[SortKey], at: usize) -> Vec<&'a Row> {
        let (first, last) = peers(partition, order, at);
        let (start, end) = match frame.unit {
            FrameUnit::Rows => (at, at),
            FrameUnit::Range | FrameUnit::Groups => (first, last),
        };
        let rows = |scalar| match self.scalar(scalar, &partition[at]) {
            Ok(Value::BigInt(rows)) => rows as usize,
            other => panic!("the reference counts frames in rows: {other:?}"),
        };
        let start = match &frame.start {
            Bound::UnboundedPreceding => 0,
            Bound::CurrentRow => start,
            Bound::Preceding(scalar) => start.saturating_sub(rows(scalar)),
            Bound::Following(scalar) => start + rows(scalar),
            Bound::UnboundedFollowing => panic!("no frame begins so"),
        };
        let end = match &frame.end {
            Bound::UnboundedFollowing => partition.len(),
            Bound::CurrentRow => end + 1,
            Bound::Preceding(scalar) => (end + 1).saturating_sub(rows(scalar)),
            Bound::Following(scalar) => end + 1 + rows(scalar),
            Bound::UnboundedPreceding => panic!("no frame ends so"),
        };
        let excluded = |row: usize| match frame.exclude {
            Exclude::NoOthers => false,
            Exclude::CurrentRow => row == at,
            Exclude::Group => (first..=last).contains(&row),
            Exclude::Ties => row != at && (first..=last).contains(&row),
        };
        let numbered = partition.iter().enumerate();
        let within = numbered.filter(|(row, _)| *row >= start && *row < end && !excluded(*row));
        within.map(|(_, row)| row).collect()
    }
}

/// The first and the last row that are equal to one in the order.
fn peers(partition: &[Row], order: &[SortKey], at: usize) -> (usize, usize) {
    let equal = |row: &&Row| compare(row, &partition[at], order) == Ordering::Equal;
    let before = partition[..at].iter().rev().take_while(equal).count();
    let after = partition[at + 1..].iter().take_while(equal).count();
    (at - before, at + after)
}
