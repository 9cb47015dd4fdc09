//! A registry with the functions that plans of tests use, those that the vector crate does not have yet among them.

use firn_base::{Representation, Result};
use firn_vector::aggregate::Aggregate;
use firn_vector::builder::Builder;
use firn_vector::kernel::{Call, Overflow, Set, SetKernel, Signature, Text};
use firn_vector::registry::{RegistryBuilder, Volatility};
use firn_vector::window::{Partition, WindowFunction};
use firn_vector::{Datum, FunctionId, Registry, Slot, Vector};
use std::sync::LazyLock;

/// The registry.
pub static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let there = Registry::built_in();
    let has = |oid: u32| there.function(FunctionId(oid)).is_some();
    let mut builder = RegistryBuilder::built_in();
    if !has(1258) {
        builder.scalar::<(&str, &str), _>("textcat(text,text)", |call, (left, right)| {
            call.text.push_str(left);
            call.text.push_str(right);
            Text
        });
    }
    if !has(2803) {
        builder.aggregate("count()", CountRows);
    }
    if !has(2147) {
        builder.aggregate("count(any)", Count);
    }
    if !has(2108) {
        builder.aggregate("sum(int4)", Sum);
    }
    if !has(2132) {
        builder.aggregate("min(int4)", Extreme { is_max: false });
    }
    if !has(2116) {
        builder.aggregate("max(int4)", Extreme { is_max: true });
    }
    if !has(2335) {
        builder.aggregate("array_agg(anynonarray)", Collect);
    }
    if !has(3100) {
        builder.window("row_number()", false, RowNumber);
    }
    if !has(3101) {
        builder.window("rank()", false, Rank);
    }
    if !has(1067) {
        builder.set("generate_series(int4,int4)", Series);
    }
    if !has(2331) {
        builder.set("unnest(anyarray)", Unnest);
    }
    // The reference has one of other arguments under this number.
    let mut counted = builder_function(2147);
    counted.id = FunctionId(2818);
    counted.name = "regr_count".into();
    if !has(2818) {
        builder.add(counted);
    }
    builder.finish()
});

/// A function as the catalogs describe it, with a body of this file.
fn builder_function(oid: u32) -> firn_vector::registry::Function {
    let mut builder = RegistryBuilder::default();
    builder.aggregate("count(any)", Count);
    let registry = builder.finish();
    let function = registry.function(FunctionId(oid)).expect("it has just been added");
    assert_eq!(function.volatility, Volatility::Immutable);
    (**function).clone()
}

#[derive(Clone)]
struct CountRows;

impl Aggregate for CountRows {
    type Arguments = ();
    type State = i64;

    fn accepts(result: Representation) -> bool {
        result == Representation::Int64
    }
    fn start(&self, _: &Signature) -> i64 {
        0
    }
    fn add(&self, _: &mut Call<'_>, state: &mut i64, (): ()) -> Result<()> {
        *state += 1;
        Ok(())
    }
    fn merge(&self, _: &mut Call<'_>, state: &mut i64, other: i64) -> Result<()> {
        *state += other;
        Ok(())
    }
    fn finish(&self, _: &mut Call<'_>, state: &i64, out: &mut Builder) -> Result<()> {
        out.push(Datum::Int64(*state));
        Ok(())
    }
    fn write(&self, state: &i64, out: &mut Vec<u8>) {
        out.extend(state.to_le_bytes());
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> i64 {
        let (state, rest) = image.split_first_chunk().expect("it was written");
        *image = rest;
        i64::from_le_bytes(*state)
    }
}

#[derive(Clone)]
struct Count;

impl Aggregate for Count {
    type Arguments = (Datum<'static>,);
    type State = i64;

    fn accepts(result: Representation) -> bool {
        result == Representation::Int64
    }
    fn start(&self, _: &Signature) -> i64 {
        0
    }
    fn add(&self, _: &mut Call<'_>, state: &mut i64, _: (Datum<'_>,)) -> Result<()> {
        *state += 1;
        Ok(())
    }
    fn remove(&self, _: &mut Call<'_>, state: &mut i64, _: (Datum<'_>,)) -> Result<bool> {
        *state -= 1;
        Ok(true)
    }
    fn merge(&self, _: &mut Call<'_>, state: &mut i64, other: i64) -> Result<()> {
        *state += other;
        Ok(())
    }
    fn finish(&self, _: &mut Call<'_>, state: &i64, out: &mut Builder) -> Result<()> {
        out.push(Datum::Int64(*state));
        Ok(())
    }
    fn write(&self, state: &i64, out: &mut Vec<u8>) {
        out.extend(state.to_le_bytes());
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> i64 {
        let (state, rest) = image.split_first_chunk().expect("it was written");
        *image = rest;
        i64::from_le_bytes(*state)
    }
}

#[derive(Clone)]
struct Sum;

impl Aggregate for Sum {
    type Arguments = (i32,);
    type State = Option<i64>;

    fn accepts(result: Representation) -> bool {
        result == Representation::Int64
    }
    fn start(&self, _: &Signature) -> Option<i64> {
        None
    }
    fn add(&self, _: &mut Call<'_>, state: &mut Option<i64>, (value,): (i32,)) -> Result<()> {
        let sum = state.unwrap_or(0).checked_add(value.into());
        *state = Some(sum.ok_or(Overflow("bigint out of range"))?);
        Ok(())
    }
    fn merge(&self, _: &mut Call<'_>, state: &mut Option<i64>, other: Option<i64>) -> Result<()> {
        if let Some(other) = other {
            *state = Some(state.unwrap_or(0) + other);
        }
        Ok(())
    }
    fn finish(&self, _: &mut Call<'_>, state: &Option<i64>, out: &mut Builder) -> Result<()> {
        out.push(state.map_or(Datum::Null, Datum::Int64));
        Ok(())
    }
    fn write(&self, state: &Option<i64>, out: &mut Vec<u8>) {
        out.push(u8::from(state.is_some()));
        out.extend(state.unwrap_or(0).to_le_bytes());
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> Option<i64> {
        let (is_some, rest) = (image[0] == 1, &image[1..]);
        let (state, rest) = rest.split_first_chunk().expect("it was written");
        *image = rest;
        is_some.then(|| i64::from_le_bytes(*state))
    }
}

#[derive(Clone)]
struct Extreme {
    is_max: bool,
}

impl Aggregate for Extreme {
    type Arguments = (i32,);
    type State = Option<i32>;

    fn accepts(result: Representation) -> bool {
        result == Representation::Int32
    }
    fn start(&self, _: &Signature) -> Option<i32> {
        None
    }
    fn add(&self, _: &mut Call<'_>, state: &mut Option<i32>, (value,): (i32,)) -> Result<()> {
        let before = state.unwrap_or(value);
        *state = Some(if self.is_max { before.max(value) } else { before.min(value) });
        Ok(())
    }
    fn merge(&self, call: &mut Call<'_>, state: &mut Option<i32>, other: Option<i32>) -> Result<()> {
        other.map_or(Ok(()), |other| self.add(call, state, (other,)))
    }
    fn finish(&self, _: &mut Call<'_>, state: &Option<i32>, out: &mut Builder) -> Result<()> {
        out.push(state.map_or(Datum::Null, Datum::Int32));
        Ok(())
    }
    fn write(&self, state: &Option<i32>, out: &mut Vec<u8>) {
        out.push(u8::from(state.is_some()));
        out.extend(state.unwrap_or(0).to_le_bytes());
    }
    fn read(&self, _: &Signature, image: &mut &[u8]) -> Option<i32> {
        let (is_some, rest) = (image[0] == 1, &image[1..]);
        let (state, rest) = rest.split_first_chunk().expect("it was written");
        *image = rest;
        is_some.then(|| i32::from_le_bytes(*state))
    }
}

#[derive(Clone)]
struct Collect;

impl Aggregate for Collect {
    type Arguments = (Option<i32>,);
    type State = Vec<Option<i32>>;

    fn accepts(result: Representation) -> bool {
        matches!(result, Representation::List(_))
    }
    fn start(&self, _: &Signature) -> Vec<Option<i32>> {
        Vec::new()
    }
    fn add(&self, _: &mut Call<'_>, state: &mut Vec<Option<i32>>, (value,): (Option<i32>,)) -> Result<()> {
        state.push(value);
        Ok(())
    }
    fn merge(&self, _: &mut Call<'_>, state: &mut Vec<Option<i32>>, other: Vec<Option<i32>>) -> Result<()> {
        state.extend(other);
        Ok(())
    }
    fn finish(&self, _: &mut Call<'_>, state: &Vec<Option<i32>>, out: &mut Builder) -> Result<()> {
        if state.is_empty() {
            out.push_null();
            return Ok(());
        }
        let mut elements = Builder::new(Representation::Int32);
        state.iter().for_each(|value| elements.push(value.map_or(Datum::Null, Datum::Int32)));
        out.push(Datum::List(firn_vector::lists::List::of(&elements.finish())));
        Ok(())
    }
    fn memory(state: &Vec<Option<i32>>) -> usize {
        state.capacity() * 8
    }
    fn write(&self, state: &Vec<Option<i32>>, out: &mut Vec<u8>) {
        out.extend((state.len() as u64).to_le_bytes());
        state.iter().for_each(|value| Extreme { is_max: true }.write(value, out));
    }
    fn read(&self, signature: &Signature, image: &mut &[u8]) -> Vec<Option<i32>> {
        let (length, rest) = image.split_first_chunk().expect("it was written");
        *image = rest;
        let one = Extreme { is_max: true };
        (0..u64::from_le_bytes(*length)).map(|_| one.read(signature, image)).collect()
    }
}

struct RowNumber;

impl WindowFunction for RowNumber {
    type State = ();

    fn accepts(result: Representation) -> bool {
        result == Representation::Int64
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

struct Series;

impl SetKernel for Series {
    fn can_fail(&self) -> bool {
        false
    }
    fn begin(&self, _: &mut Call<'_>, arguments: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        Ok(match arguments {
            [Datum::Int32(from), Datum::Int32(to)] => {
                Some(Box::new(Counting(i64::from(*from), i64::from(*to))))
            }
            _ => None,
        })
    }
}

struct Counting(i64, i64);

impl Set for Counting {
    fn next(&mut self, _: &mut Call<'_>, columns: &mut [Builder], most: usize) -> Result<bool> {
        let Counting(next, last) = self;
        for _ in 0..most {
            if next > last {
                return Ok(false);
            }
            columns[0].push(Datum::Int32(*next as i32));
            *next += 1;
        }
        Ok(true)
    }
}

struct Unnest;

impl SetKernel for Unnest {
    fn can_fail(&self) -> bool {
        false
    }
    fn begin(&self, _: &mut Call<'_>, arguments: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        Ok(match arguments {
            [Datum::List(list)] => Some(Box::new(Elements(list.elements(), 0))),
            _ => None,
        })
    }
}

struct Elements(Vector, usize);

impl Set for Elements {
    fn next(&mut self, _: &mut Call<'_>, columns: &mut [Builder], most: usize) -> Result<bool> {
        let end = self.0.len().min(self.1 + most);
        (self.1..end).for_each(|place| columns[0].push(self.0.datum(place)));
        self.1 = end;
        Ok(end < self.0.len())
    }
}
