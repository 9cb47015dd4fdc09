//! Scalar functions: over all rows at once, over some rows, with each argument constant, and on single values; always with one answer.

use super::{Block, agree, blocks, shown, style, value};
use firn_base::{Type, Value};
use firn_vector::builder::Builder;
use firn_vector::context::detached;
use firn_vector::kernel::{CallSite, Signature};
use firn_vector::registry::{Body, Function, FunctionId};
use firn_vector::{Context, Registry, Rows, Slot, Vector};

#[test]
fn every_function_answers_as_postgres_does() {
    let registry = Registry::built_in();
    let (mut wrong, mut cases) = (Vec::new(), 0);
    for block in blocks("functions") {
        let Some(function) = registry.function(FunctionId(block.oid)) else {
            wrong.push(format!("{}: not in the registry", block.place));
            continue;
        };
        cases += block.lines.len();
        check(&block, function, &mut wrong);
    }
    assert!(wrong.is_empty(), "{} of {cases} cases are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The answer as the files have it.
fn answer(result: Result<Value, firn_base::Error>, ty: Type) -> Option<String> {
    match result {
        Ok(value) => shown(&value, ty),
        Err(error) => Some(format!("!{}", error.state())),
    }
}

fn vector(values: &[Value], ty: Type) -> Vector {
    let mut builder = Builder::new(ty.representation().expect("arguments are values"));
    let mut slot = Slot::new();
    for value in values {
        slot.set_value(value, ty);
        builder.push(slot.get());
    }
    builder.finish()
}

fn check(block: &Block, function: &Function, wrong: &mut Vec<String>) {
    let style = style();
    let context = Context { style: &style, ..detached() };
    let result = block.result;
    let representations: Vec<_> =
        block.arguments.iter().map(|ty| ty.representation().expect("arguments are values")).collect();
    let mut site = function.call_site(Signature {
        arguments: block.arguments.iter().copied().collect(),
        representation: function.representation(&representations, result),
        representations: representations.into(),
        result,
        has_variadic_array: false,
    });
    let rows: Vec<Vec<Value>> = block
        .lines
        .iter()
        .map(|line| {
            assert_eq!(line.len(), block.arguments.len() + 1, "{}: {line:?}", block.place);
            let fields = line.iter().zip(&block.arguments);
            fields.map(|(field, ty)| value(field.as_deref(), *ty, &block.place)).collect()
        })
        .collect();
    let columns: Vec<Vector> = (0..block.arguments.len())
        .map(|number| {
            let values: Vec<Value> = rows.iter().map(|row| row[number].clone()).collect();
            vector(&values, block.arguments[number])
        })
        .collect();
    let mut good = Vec::new();
    for (row, line) in block.lines.iter().enumerate() {
        let theirs = line.last().expect("lines have answers");
        let mut expect = |how: &str, ours: Option<String>| {
            if !agree(&ours, theirs, result) {
                wrong.push(format!("{} {:?} is {ours:?} {how}", block.place, line));
            }
        };
        expect("on single values", answer(single(&mut site, &context, &rows[row], block), result));
        let one = Rows::at(std::slice::from_ref(&(row as u16)), rows.len()).positions().map(<[u16]>::to_vec);
        let one = one.expect("it has positions");
        let selected = Rows::at(&one, rows.len());
        let vectors = |site: &mut CallSite, columns: &[Vector]| {
            site.vectors(&context, columns, selected).map(|vector| vector.datum(row).to_value(result))
        };
        expect("alone among its vectors", answer(vectors(&mut site, &columns), result));
        for constant in 0..columns.len() {
            let mut columns = columns.clone();
            columns[constant] = spread(&columns[constant].slice(row, 1), rows.len());
            expect("with a constant", answer(vectors(&mut site, &columns), result));
        }
        if !theirs.as_ref().is_some_and(|answer| answer.starts_with('!')) {
            good.push(row as u16);
        }
    }
    match site.vectors(&context, &columns, Rows::at(&good, rows.len())) {
        Ok(results) => {
            for row in good {
                let row = usize::from(row);
                let ours = shown(&results.datum(row).to_value(result), result);
                if !agree(&ours, block.lines[row].last().expect("lines have answers"), result) {
                    wrong.push(format!("{} {:?} is {ours:?} among others", block.place, block.lines[row]));
                }
            }
        }
        Err(error) => wrong.push(format!("{}: {error:?}", block.place)),
    }
}

/// A constant of the one value of a vector.
fn spread(one: &Vector, length: usize) -> Vector {
    match one.is_null(0) {
        true => Vector::null(one.representation(), length),
        false => {
            let data = one.data().expect("it is flat").clone();
            Vector::constant(one.representation(), data, length)
        }
    }
}

fn single(
    site: &mut CallSite,
    context: &Context<'_>,
    row: &[Value],
    block: &Block,
) -> Result<Value, firn_base::Error> {
    let slots: Vec<Slot> = row
        .iter()
        .zip(&block.arguments)
        .map(|(value, ty)| {
            let mut slot = Slot::new();
            slot.set_value(value, *ty);
            slot
        })
        .collect();
    let datums: Vec<_> = slots.iter().map(Slot::get).collect();
    let mut out = Slot::new();
    site.cells(context, &datums, &mut out)?;
    Ok(out.get().to_value(block.result))
}

#[test]
fn operators_and_casts_call_functions_that_exist_and_name_each_other() {
    let registry = Registry::built_in();
    for operator in registry.operators() {
        let function = registry.function(operator.function).expect("operators have functions");
        assert_eq!(function.result, operator.result, "{operator:?}");
        assert!(matches!(function.body, Body::Scalar(_)), "{operator:?}");
        if let Some(other) = operator.commutator.and_then(|other| registry.operator(other)) {
            assert_eq!(
                (operator.left, operator.right),
                (Some(other.right), other.left.expect("it has two sides"))
            );
        }
    }
    for cast in registry.casts() {
        if let firn_vector::registry::CastMethod::Function(function) = cast.method {
            assert!(registry.function(function).is_some(), "{cast:?}");
        }
    }
}
