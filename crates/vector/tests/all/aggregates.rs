//! Aggregates: a line has one group of rows, an array of values for each argument; direct arguments are single values.
//!
//! A group is added at once, among others of its file, and in two halves whose states are written, read and merged; always with one answer.

use super::{Block, agree, blocks, shown, style, value};
use firn_base::{Error, Result, Type, TypeId, Value};
use firn_vector::builder::Builder;
use firn_vector::context::detached;
use firn_vector::kernel::{Call, Local, Signature};
use firn_vector::registry::{AggregateBody, AggregateKind, Body, FunctionId};
use firn_vector::{Context, Registry, Rows, Slot, Vector};

#[test]
fn every_aggregate_answers_as_postgres_does() {
    let registry = Registry::built_in();
    let (mut wrong, mut cases) = (Vec::new(), 0);
    for block in blocks("aggregates") {
        let function = registry.function(FunctionId(block.oid));
        let Some(Body::Aggregate(aggregate)) = function.map(|function| &function.body) else {
            wrong.push(format!("{}: not in the registry", block.place));
            continue;
        };
        cases += block.lines.len();
        check(&block, aggregate, &mut wrong);
    }
    assert!(wrong.is_empty(), "{} of {cases} cases are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The rows of a line: a vector for each argument.
fn rows(block: &Block, line: &[Option<String>], direct: usize) -> (Vec<Vector>, usize) {
    let values = |number: usize| -> Option<Vec<Value>> {
        let ty = block.arguments[number];
        // There are no arrays of arrays: rows of arrays are an array of their texts.
        let of_rows = ty.array().or(Type::new(TypeId::TEXT).array()).expect("texts have arrays");
        let Value::Array(array) = value(line[number].as_deref(), of_rows, &block.place) else { return None };
        Some(match ty.array() {
            Some(_) => array.into_elements(),
            None => array
                .elements()
                .iter()
                .map(|row| match row {
                    Value::Text(text) => value(Some(text), ty, &block.place),
                    _ => Value::Null,
                })
                .collect(),
        })
    };
    let lists: Vec<Vec<Value>> =
        (direct..block.arguments.len()).map(|number| values(number).expect("rows are arrays")).collect();
    // count(*) counts three rows.
    let length = lists.first().map_or(3, Vec::len);
    let vectors = (0..block.arguments.len()).map(|number| {
        let ty = block.arguments[number];
        match number < direct {
            true => vector(&vec![value(line[number].as_deref(), ty, &block.place); length], ty),
            false => vector(&lists[number - direct], ty),
        }
    });
    (vectors.collect(), length)
}

fn vector(values: &[Value], ty: Type) -> Vector {
    let (mut builder, mut slot) =
        (Builder::new(ty.representation().expect("arguments are values")), Slot::new());
    for value in values {
        slot.set_value(value, ty);
        builder.push(slot.get());
    }
    builder.finish()
}

fn check(block: &Block, aggregate: &AggregateBody, wrong: &mut Vec<String>) {
    let style = style();
    let context = Context { style: &style, ..detached() };
    let signature = Signature {
        arguments: block.arguments.iter().copied().collect(),
        representations: block.arguments.iter().map(|ty| ty.representation().expect("values")).collect(),
        result: block.result,
        representation: block.result.representation().expect("results are values"),
        has_variadic_array: false,
    };
    let mut local = Local::default();
    let mut call = Call::new(&context, &signature, &mut local);
    for line in &block.lines {
        let (columns, length) = rows(block, line, aggregate.direct);
        let theirs = line.last().expect("lines have answers");
        let mut expect = |how: &str, ours: Result<Option<String>>| {
            let ours = ours.unwrap_or_else(|error: Error| Some(format!("!{}", error.state())));
            if !agree(&ours, theirs, block.result) {
                wrong.push(format!("{} {line:?} is {ours:?} {how}", block.place));
            }
        };
        expect("at once", at_once(&mut call, aggregate, &columns, length));
        expect("among groups", among_groups(&mut call, aggregate, &columns, length));
        if aggregate.kind == AggregateKind::Normal {
            expect("in two parts", in_two_parts(&mut call, aggregate, &columns, length));
        }
    }
}

fn answer(
    call: &mut Call<'_>,
    states: &dyn firn_vector::aggregate::States,
    group: usize,
) -> Result<Option<String>> {
    let mut out = Builder::new(call.signature.representation);
    states.finish(call, group..group + 1, &mut out)?;
    let ty = call.signature.result;
    Ok(shown(&out.finish().datum(0).to_value(ty), ty))
}

fn at_once(
    call: &mut Call<'_>,
    aggregate: &AggregateBody,
    columns: &[Vector],
    length: usize,
) -> Result<Option<String>> {
    let mut states = aggregate.kernel.states();
    states.resize(call.signature, 1);
    states.add_to(call, 0, columns, Rows::all(length))?;
    answer(call, &*states, 0)
}

/// Each row goes to group 1, and to group 0 or 2 as well.
fn among_groups(
    call: &mut Call<'_>,
    aggregate: &AggregateBody,
    columns: &[Vector],
    length: usize,
) -> Result<Option<String>> {
    let mut states = aggregate.kernel.states();
    states.resize(call.signature, 3);
    let twice = (0..length).flat_map(|row| [row, row]);
    let columns: Vec<Vector> = columns.iter().map(|column| column.take(twice.clone())).collect();
    let groups: Vec<u32> = (0..length as u32).flat_map(|row| [1, row % 2 * 2]).collect();
    states.add(call, &groups, &columns, Rows::all(length * 2))?;
    answer(call, &*states, 1)
}

fn in_two_parts(
    call: &mut Call<'_>,
    aggregate: &AggregateBody,
    columns: &[Vector],
    length: usize,
) -> Result<Option<String>> {
    let mut states = aggregate.kernel.states();
    let half = length.div_ceil(2);
    for range in [0..half, half..length] {
        let mut part = aggregate.kernel.states();
        part.resize(call.signature, 1);
        let columns: Vec<Vector> =
            columns.iter().map(|column| column.slice(range.start, range.len())).collect();
        part.add_to(call, 0, &columns, Rows::all(range.len()))?;
        let mut image = Vec::new();
        part.write(0, &mut image);
        let mut bytes = image.as_slice();
        let mut read = aggregate.kernel.states();
        read.read(call.signature, &mut bytes);
        assert!(bytes.is_empty(), "an image is read whole");
        states.resize(call.signature, 1);
        states.merge(call, &mut *read, &[0])?;
    }
    answer(call, &*states, 0)
}
