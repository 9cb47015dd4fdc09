//! Window functions.

use crate::datum::Datum;
use crate::kernel::Call;
use crate::kernel::slot::Slot;
use crate::registry::RegistryBuilder;
use crate::window::{Partition, Reach, WindowFunction};
use firn_base::{Error, Representation, Result, SqlState};

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.window("row_number()", false, RowNumber);
    builder.window("rank()", false, Rank);
    builder.window("dense_rank()", false, DenseRank);
    builder.window("percent_rank()", false, PercentRank);
    builder.window("cume_dist()", false, CumulativeShare);
    builder.window("ntile(int4)", true, Buckets);
    builder.window(
        "lag(anyelement) lag(anyelement,int4) lag(anycompatible,int4,anycompatible)",
        false,
        Shifted { sign: -1 },
    );
    builder.window(
        "lead(anyelement) lead(anyelement,int4) lead(anycompatible,int4,anycompatible)",
        false,
        Shifted { sign: 1 },
    );
    builder.window("first_value(anyelement)", false, FirstValue);
    builder.window("last_value(anyelement)", false, LastValue);
    builder.window("nth_value(anyelement,int4)", true, NthValue);
}

struct RowNumber;

impl WindowFunction for RowNumber {
    type State = ();

    fn accepts(result: Representation) -> bool {
        result == Representation::Int64
    }

    fn reach(&self, _: Option<i32>) -> Option<Reach> {
        Some(Reach::default())
    }

    fn row(
        &self,
        _: &mut Call<'_>,
        (): &mut (),
        _: &mut dyn Partition,
        row: u64,
        out: &mut Slot,
    ) -> Result<()> {
        out.set(Datum::Int64(row as i64 + 1));
        Ok(())
    }
}

struct Rank;

impl WindowFunction for Rank {
    type State = ();

    fn accepts(result: Representation) -> bool {
        result == Representation::Int64
    }

    fn reach(&self, _: Option<i32>) -> Option<Reach> {
        Some(Reach::default())
    }

    fn row(
        &self,
        _: &mut Call<'_>,
        (): &mut (),
        partition: &mut dyn Partition,
        row: u64,
        out: &mut Slot,
    ) -> Result<()> {
        out.set(Datum::Int64(partition.peers(row)?.start as i64 + 1));
        Ok(())
    }
}

struct DenseRank;

impl WindowFunction for DenseRank {
    /// The rank of the row before.
    type State = i64;

    fn accepts(result: Representation) -> bool {
        result == Representation::Int64
    }

    fn reach(&self, _: Option<i32>) -> Option<Reach> {
        Some(Reach::default())
    }

    fn row(
        &self,
        _: &mut Call<'_>,
        rank: &mut i64,
        partition: &mut dyn Partition,
        row: u64,
        out: &mut Slot,
    ) -> Result<()> {
        *rank += i64::from(partition.peers(row)?.start == row);
        out.set(Datum::Int64(*rank));
        Ok(())
    }
}

struct PercentRank;

impl WindowFunction for PercentRank {
    type State = ();

    fn accepts(result: Representation) -> bool {
        result == Representation::Float64
    }

    fn reach(&self, _: Option<i32>) -> Option<Reach> {
        Some(Reach { length: true, ..Reach::default() })
    }

    fn row(
        &self,
        _: &mut Call<'_>,
        (): &mut (),
        partition: &mut dyn Partition,
        row: u64,
        out: &mut Slot,
    ) -> Result<()> {
        let others = partition.len() - 1;
        let before = partition.peers(row)?.start;
        out.set(Datum::Float64(if others == 0 { 0.0 } else { before as f64 / others as f64 }));
        Ok(())
    }
}

struct CumulativeShare;

impl WindowFunction for CumulativeShare {
    type State = ();

    fn accepts(result: Representation) -> bool {
        result == Representation::Float64
    }

    fn reach(&self, _: Option<i32>) -> Option<Reach> {
        Some(Reach { all_peers: true, length: true, ..Reach::default() })
    }

    fn row(
        &self,
        _: &mut Call<'_>,
        (): &mut (),
        partition: &mut dyn Partition,
        row: u64,
        out: &mut Slot,
    ) -> Result<()> {
        let end = partition.peers(row)?.end;
        out.set(Datum::Float64(end as f64 / partition.len() as f64));
        Ok(())
    }
}

struct Buckets;

impl WindowFunction for Buckets {
    /// How many buckets, once the first row has told; `Some(None)` for NULL.
    type State = Option<Option<u64>>;

    fn accepts(result: Representation) -> bool {
        result == Representation::Int32
    }

    fn reach(&self, _: Option<i32>) -> Option<Reach> {
        Some(Reach { length: true, ..Reach::default() })
    }

    fn row(
        &self,
        _: &mut Call<'_>,
        state: &mut Option<Option<u64>>,
        partition: &mut dyn Partition,
        row: u64,
        out: &mut Slot,
    ) -> Result<()> {
        let count = match *state {
            Some(count) => count,
            None => {
                partition.argument(0, row, out)?;
                let count = match out.get() {
                    Datum::Null => None,
                    Datum::Int32(count @ 1..) => Some(count as u64),
                    _ => {
                        return Err(Error::new(
                            SqlState::new("22014"),
                            "argument of ntile must be greater than zero",
                        ));
                    }
                };
                *state = Some(count);
                count
            }
        };
        let Some(count) = count else {
            // The next row asks again.
            *state = None;
            out.set(Datum::Null);
            return Ok(());
        };
        // The first buckets have one row more.
        let (size, larger) = (partition.len() / count, partition.len() % count);
        let in_larger = larger * (size + 1);
        let bucket = match row < in_larger {
            true => row / (size + 1),
            false => larger + (row - in_larger) / size,
        };
        out.set(Datum::Int32(bucket as i32 + 1));
        Ok(())
    }
}

/// The value of a row some places away.
struct Shifted {
    sign: i64,
}

impl WindowFunction for Shifted {
    type State = ();

    fn accepts(_: Representation) -> bool {
        true
    }

    fn reach(&self, steps: Option<i32>) -> Option<Reach> {
        let by = self.sign * i64::from(steps?);
        let (before, behind) = (by.min(0).unsigned_abs(), by.max(0).unsigned_abs());
        Some(Reach { before, behind, ..Reach::default() })
    }

    fn row(
        &self,
        call: &mut Call<'_>,
        (): &mut (),
        partition: &mut dyn Partition,
        row: u64,
        out: &mut Slot,
    ) -> Result<()> {
        let arguments = call.signature.arguments.len();
        let by = match arguments {
            1 => 1,
            _ => {
                partition.argument(1, row, out)?;
                match out.get() {
                    Datum::Int32(by) => i64::from(by),
                    _ => {
                        out.set(Datum::Null);
                        return Ok(());
                    }
                }
            }
        };
        match (row as i64).checked_add(self.sign * by).and_then(|other| u64::try_from(other).ok()) {
            Some(other) if other < partition.len() => partition.argument(0, other, out),
            _ if arguments == 3 => partition.argument(2, row, out),
            _ => {
                out.set(Datum::Null);
                Ok(())
            }
        }
    }
}

struct FirstValue;

impl WindowFunction for FirstValue {
    type State = ();

    fn accepts(_: Representation) -> bool {
        true
    }
    fn row(
        &self,
        _: &mut Call<'_>,
        (): &mut (),
        partition: &mut dyn Partition,
        row: u64,
        out: &mut Slot,
    ) -> Result<()> {
        let frame = partition.frame(row)?;
        match frame.iter().find(|part| !part.is_empty()) {
            Some(part) => partition.argument(0, part.start, out),
            None => {
                out.set(Datum::Null);
                Ok(())
            }
        }
    }
}

struct LastValue;

impl WindowFunction for LastValue {
    type State = ();

    fn accepts(_: Representation) -> bool {
        true
    }
    fn row(
        &self,
        _: &mut Call<'_>,
        (): &mut (),
        partition: &mut dyn Partition,
        row: u64,
        out: &mut Slot,
    ) -> Result<()> {
        let frame = partition.frame(row)?;
        match frame.iter().rev().find(|part| !part.is_empty()) {
            Some(part) => partition.argument(0, part.end - 1, out),
            None => {
                out.set(Datum::Null);
                Ok(())
            }
        }
    }
}

struct NthValue;

impl WindowFunction for NthValue {
    type State = ();

    fn accepts(_: Representation) -> bool {
        true
    }
    fn row(
        &self,
        _: &mut Call<'_>,
        (): &mut (),
        partition: &mut dyn Partition,
        row: u64,
        out: &mut Slot,
    ) -> Result<()> {
        partition.argument(1, row, out)?;
        let mut skipped = match out.get() {
            Datum::Null => return Ok(()),
            Datum::Int32(number @ 1..) => number as u64 - 1,
            _ => {
                return Err(Error::new(
                    SqlState::new("22016"),
                    "argument of nth_value must be greater than zero",
                ));
            }
        };
        for part in partition.frame(row)? {
            let length = part.end.saturating_sub(part.start);
            if skipped < length {
                return partition.argument(0, part.start + skipped, out);
            }
            skipped -= length;
        }
        out.set(Datum::Null);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;
    use crate::context::detached;
    use crate::kernel::{Local, Signature};
    use crate::registry::{Body, Registry};
    use firn_base::{Type, TypeId};
    use std::ops::Range;

    /// Rows that are ordered by `keys`, with a frame of one row before and one behind, and one argument.
    struct Rows {
        keys: Vec<i32>,
        arguments: Vec<Vec<Datum<'static>>>,
    }

    impl Partition for Rows {
        fn len(&self) -> u64 {
            self.keys.len() as u64
        }
        fn peers(&mut self, row: u64) -> Result<Range<u64>> {
            let key = self.keys[row as usize];
            let start = self.keys.iter().position(|other| *other == key).expect("it is there");
            let count = self.keys.iter().filter(|other| **other == key).count();
            Ok(start as u64..(start + count) as u64)
        }
        fn frame(&mut self, row: u64) -> Result<[Range<u64>; 3]> {
            // EXCLUDE CURRENT ROW
            Ok([row.saturating_sub(1)..row, row + 1..(row + 2).min(self.len()).max(row + 1), 0..0])
        }
        fn argument(&mut self, number: usize, row: u64, out: &mut Slot) -> Result<()> {
            out.set(self.arguments[number][row as usize]);
            Ok(())
        }
    }

    /// A function, the types and values of its arguments, the type of its result, and what PostgreSQL answers.
    type Case<'a> = (&'static str, &'a [TypeId], Vec<Vec<Datum<'static>>>, TypeId, &'static str);

    /// What PostgreSQL 15 answers over the same rows.
    #[test]
    fn window_functions_answer_as_postgres_does() {
        let registry = Registry::built_in();
        let values: Vec<Datum<'static>> = [7, 8, 9, 10, 11].map(Datum::Int32).to_vec();
        let same = |value: i32| vec![Datum::Int32(value); 5];
        let int = TypeId::INT4;
        let cases: &[Case] = &[
            ("row_number", &[], vec![], TypeId::INT8, "1 2 3 4 5"),
            ("rank", &[], vec![], TypeId::INT8, "1 1 3 4 4"),
            ("dense_rank", &[], vec![], TypeId::INT8, "1 1 2 3 3"),
            ("percent_rank", &[], vec![], TypeId::FLOAT8, "0 0 0.5 0.75 0.75"),
            ("cume_dist", &[], vec![], TypeId::FLOAT8, "0.4 0.4 0.6 1 1"),
            ("ntile", &[int], vec![same(3)], int, "1 1 2 2 3"),
            ("ntile", &[int], vec![same(7)], int, "1 2 3 4 5"),
            ("lag", &[TypeId::ANYELEMENT], vec![values.clone()], int, "NULL 7 8 9 10"),
            ("lead", &[TypeId::ANYELEMENT, int], vec![values.clone(), same(2)], int, "9 10 11 NULL NULL"),
            (
                "lag",
                &[TypeId::ANYCOMPATIBLE, int, TypeId::ANYCOMPATIBLE],
                vec![values.clone(), same(-1), same(0)],
                int,
                "8 9 10 11 0",
            ),
            ("first_value", &[TypeId::ANYELEMENT], vec![values.clone()], int, "8 7 8 9 10"),
            ("last_value", &[TypeId::ANYELEMENT], vec![values.clone()], int, "8 9 10 11 10"),
            (
                "nth_value",
                &[TypeId::ANYELEMENT, int],
                vec![values.clone(), same(2)],
                int,
                "NULL 9 10 11 NULL",
            ),
        ];
        for (name, types, arguments, result, expected) in cases {
            let function = registry.function_of(name, types).unwrap_or_else(|| panic!("{name}"));
            let Body::Window(kernel) = &function.body else { panic!("{name} is a window function") };
            let result = Type::new(*result);
            let representation = result.representation().expect("it is a type of values");
            let signature = Signature {
                arguments: vec![Type::new(int); types.len()].into(),
                representations: vec![Representation::Int32; types.len()].into(),
                result,
                representation,
                has_variadic_array: false,
            };
            let mut rows = Rows { keys: vec![1, 1, 2, 3, 3], arguments: arguments.clone() };
            let (context, mut local) = (detached(), Local::default());
            let mut call = Call::new(&context, &signature, &mut local);
            let (mut state, mut out) = (kernel.start(), Builder::new(representation));
            kernel.rows(&mut call, &mut *state, &mut rows, 0..2, &mut out).expect("arguments are valid");
            kernel.rows(&mut call, &mut *state, &mut rows, 2..5, &mut out).expect("arguments are valid");
            let vector = out.finish();
            let shown: Vec<String> = (0..5)
                .map(|row| match vector.datum(row).to_value(result) {
                    firn_base::Value::Null => "NULL".to_owned(),
                    value => {
                        let mut text = String::new();
                        firn_base::text::write_any(&value, result, &firn_base::TextStyle::DEFAULT, &mut text);
                        text
                    }
                })
                .collect();
            assert_eq!(shown.join(" "), *expected, "{name}");
        }
    }
}
