//! Hypothetical-set aggregates: the rank that a row of direct arguments would have among others.
//!
//! The arguments of a row are the direct ones, as many columns, and a number that says how the columns are ordered:
//! bit 2n that column n descends, bit 2n + 1 that its NULLs come first. Rows arrive in that order.

use crate::aggregate::Aggregate;
use crate::builder::Builder;
use crate::datum::Datum;
use crate::image;
use crate::kernel::slot::Slot;
use crate::kernel::{Call, Rest, Signature};
use crate::order;
use crate::registry::RegistryBuilder;
use firn_base::{Representation, Result};
use std::cmp::Ordering;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.aggregate("rank(any)", Hypothetical(Of::Rank));
    builder.aggregate("dense_rank(any)", Hypothetical(Of::DenseRank));
    builder.aggregate("percent_rank(any)", Hypothetical(Of::PercentRank));
    builder.aggregate("cume_dist(any)", Hypothetical(Of::CumulativeDistribution));
}

/// What is computed of the place of the row.
#[derive(Clone, Copy)]
enum Of {
    Rank,
    DenseRank,
    PercentRank,
    CumulativeDistribution,
}

#[derive(Clone)]
struct Hypothetical(Of);

/// What is known of the rows.
#[derive(Default)]
struct Place {
    rows: u64,
    /// Rows before the hypothetical one, and how many of them are different.
    before: u64,
    different: u64,
    peers: u64,
    /// The last row before it.
    last: Vec<Slot>,
}

fn compare(left: Datum<'_>, right: Datum<'_>, representation: Representation, order: u32) -> Ordering {
    match (left.is_null(), right.is_null()) {
        (true, true) => Ordering::Equal,
        (is_left, is_right) if is_left || is_right => {
            let are_nulls_first = order & 2 != 0;
            if is_left == are_nulls_first { Ordering::Less } else { Ordering::Greater }
        }
        _ => {
            let ascending = order::of(&left, &right, representation);
            if order & 1 != 0 { ascending.reverse() } else { ascending }
        }
    }
}

impl Aggregate for Hypothetical {
    type Arguments = Rest<'static>;
    type State = Place;

    fn accepts(result: Representation) -> bool {
        matches!(result, Representation::Int64 | Representation::Float64)
    }
    fn start(&self, _: &Signature) -> Place {
        Place::default()
    }
    fn add(&self, call: &mut Call<'_>, state: &mut Place, row: Rest<'_>) -> Result<()> {
        let count = row.len() / 2;
        let Datum::Int32(orders) = row.get(count * 2) else { panic!("the order is a number") };
        let representations = &call.signature.representations;
        let order_of = |column: usize| orders as u32 >> (2 * column);
        state.rows += 1;
        let place = (0..count)
            .map(|column| {
                let (value, wanted) = (row.get(count + column), row.get(column));
                compare(value, wanted, representations[count + column], order_of(column))
            })
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal);
        match place {
            Ordering::Less => {
                state.before += 1;
                let is_last = |(column, last): (usize, &Slot)| {
                    order::of(&last.get(), &row.get(count + column), representations[count + column]).is_eq()
                };
                if state.last.is_empty() || !state.last.iter().enumerate().all(is_last) {
                    state.different += 1;
                    state.last.resize_with(count, Slot::new);
                    for (column, last) in state.last.iter_mut().enumerate() {
                        last.set(row.get(count + column));
                    }
                }
            }
            Ordering::Equal => state.peers += 1,
            Ordering::Greater => {}
        }
        Ok(())
    }
    fn merge(&self, _: &mut Call<'_>, _: &mut Place, _: Place) -> Result<()> {
        panic!("rows that arrive in order arrive at one state")
    }
    fn finish(&self, _: &mut Call<'_>, state: &Place, out: &mut Builder) -> Result<()> {
        out.push(match self.0 {
            Of::Rank => Datum::Int64(state.before as i64 + 1),
            Of::DenseRank => Datum::Int64(state.different as i64 + 1),
            Of::PercentRank if state.rows == 0 => Datum::Float64(0.0),
            Of::PercentRank => Datum::Float64(state.before as f64 / state.rows as f64),
            Of::CumulativeDistribution => {
                Datum::Float64((state.before + state.peers + 1) as f64 / (state.rows + 1) as f64)
            }
        });
        Ok(())
    }
    fn memory(state: &Place) -> usize {
        state.last.iter().map(Slot::memory).sum()
    }
    fn write(&self, state: &Place, out: &mut Vec<u8>) {
        for number in [state.rows, state.before, state.different, state.peers, state.last.len() as u64] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        state.last.iter().for_each(|value| image::write(&value.get(), out));
    }
    fn read(&self, signature: &Signature, bytes: &mut &[u8]) -> Place {
        let mut number = || u64::from_le_bytes(image::take(bytes));
        let (rows, before, different, peers, count) = (number(), number(), number(), number(), number());
        let first = signature.representations.len() / 2;
        let last = (0..count as usize).map(|column| {
            let mut slot = Slot::new();
            image::read(bytes, signature.representations[first + column], &mut slot);
            slot
        });
        let last = last.collect();
        Place { rows, before, different, peers, last }
    }
}
