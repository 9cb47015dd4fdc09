//! Functions that return sets: their rows, asked for one at a time and many at once.

use super::{blocks, shown, style, value};
use firn_base::array::{ArrayValue, Dimension};
use firn_base::{Type, TypeId, Value};
use firn_vector::builder::Builder;
use firn_vector::context::detached;
use firn_vector::kernel::{Call, Local, SetKernel, Signature};
use firn_vector::registry::{Body, FunctionId};
use firn_vector::{Context, Registry, Slot};

#[test]
fn every_set_has_the_rows_that_it_has_in_postgres() {
    let registry = Registry::built_in();
    let style = style();
    let context = Context { style: &style, ..detached() };
    let (mut wrong, mut cases) = (Vec::new(), 0);
    for block in blocks("sets") {
        let function = registry.function(FunctionId(block.oid));
        let Some(Body::Set(kernel)) = function.map(|function| &function.body) else {
            wrong.push(format!("{}: not in the registry", block.place));
            continue;
        };
        let representation = |ty: &Type| ty.representation().expect("arguments and rows are values");
        let signature = Signature {
            arguments: block.arguments.iter().copied().collect(),
            representations: block.arguments.iter().map(representation).collect(),
            result: block.result,
            representation: representation(&block.result),
            has_variadic_array: false,
        };
        for line in &block.lines {
            let (theirs, arguments) = line.split_last().expect("lines have answers");
            for most in [1, 1000] {
                cases += 1;
                let ours = answer(&**kernel, &context, &signature, arguments, most, &block.place);
                if ours != *theirs {
                    wrong.push(format!("{} {line:?} is {ours:?}, {most} at a time", block.place));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {cases} cases are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The rows as an array of texts, or an error.
fn answer(
    kernel: &dyn SetKernel,
    context: &Context<'_>,
    signature: &Signature,
    arguments: &[Option<String>],
    most: usize,
    place: &str,
) -> Option<String> {
    let slots: Vec<Slot> = arguments
        .iter()
        .zip(&signature.arguments)
        .map(|(text, ty)| {
            let mut slot = Slot::new();
            slot.set_value(&value(text.as_deref(), *ty, place), *ty);
            slot
        })
        .collect();
    let datums: Vec<_> = slots.iter().map(Slot::get).collect();
    let mut local = Local::default();
    let mut call = Call::new(context, signature, &mut local);
    let mut columns = [Builder::new(signature.representation)];
    let mut rows = || {
        let Some(mut set) = kernel.begin(&mut call, &datums)? else { return Ok(()) };
        loop {
            let before = columns[0].len();
            let has_more = set.next(&mut call, &mut columns, most)?;
            assert!(columns[0].len() - before <= most, "{place} gives more rows than it was asked for");
            if !has_more {
                return Ok(());
            }
        }
    };
    let done: firn_base::Result<()> = rows();
    if let Err(error) = done {
        return Some(format!("!{}", error.state()));
    }
    let [column] = columns;
    let column = column.finish();
    let rows = (0..column.len()).map(|row| {
        match shown(&column.datum(row).to_value(signature.result), signature.result) {
            Some(text) => Value::Text(text),
            None => Value::Null,
        }
    });
    let rows: Vec<Value> = rows.collect();
    let dimension = Dimension { length: rows.len() as u32, lower: 1 };
    let dimensions = if rows.is_empty() { vec![] } else { vec![dimension] };
    let array = Type::new(TypeId::TEXT).array().expect("texts have arrays");
    shown(&Value::Array(ArrayValue::new(dimensions, rows)), array)
}
