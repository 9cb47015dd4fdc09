//! What the tests share: sources of rows in memory, and how a plan is run.

use crate::registry::REGISTRY;
use firn_base::sync::Arc;
use firn_base::{Representation, Result, Snapshot, Type, TypeId, Value};
use firn_executor::source::{Lookup, MemorySource, Request, Scan, SourceColumn, SourceStatistics};
use firn_executor::values::{push, value};
use firn_executor::{Budget, Options, Program, Reader, Rows, Source, Sources};
use firn_plan::Plan;
use firn_plan::operator::SourceId;
use firn_plan::reference::Tables;
use firn_plan::rewrite::first_rows::AttributeOrder;
use firn_vector::builder::Builder;
use firn_vector::context::{Context, detached};
use firn_vector::{Chunk, Selection, Vector};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Duration;

/// How a plan is run.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// Rows of a vector.
    pub vector_rows: usize,
    /// Rows of a morsel.
    pub morsel_rows: usize,
    /// Threads.
    pub workers: usize,
}

/// Rows of a few values, rows of usual vectors, and threads from the first row on.
pub const MODES: [Mode; 3] = [
    Mode { vector_rows: 3, morsel_rows: 2, workers: 1 },
    Mode { vector_rows: 2048, morsel_rows: 1000, workers: 1 },
    Mode { vector_rows: 3, morsel_rows: 1, workers: 3 },
];

pub struct InMemory(HashMap<SourceId, Arc<dyn Source>>);

impl Sources for InMemory {
    fn source(&self, id: SourceId) -> Arc<dyn Source> {
        self.0[&id].clone()
    }
}

/// Sources of four columns: three integers and a numeric.
pub fn sources(tables: &Tables, morsel_rows: usize) -> InMemory {
    let types = [TypeId::INT4, TypeId::INT4, TypeId::INT4, TypeId::NUMERIC].map(Type::new);
    let columns: Vec<SourceColumn> =
        (1..).zip(types).map(|(attribute, ty)| SourceColumn { attribute, ty, nullable: true }).collect();
    let source = |rows: &Vec<Vec<Value>>| -> Arc<dyn Source> {
        let chunk = |rows: &[Vec<Value>]| {
            // Each chunk has a row that is not selected, before the others.
            let none = vec![Value::Integer(99), Value::Integer(99), Value::Null, Value::Null];
            let vectors = types.iter().enumerate().map(|(number, ty)| {
                let representation = ty.representation().unwrap();
                let mut builder = Builder::new(representation);
                for row in std::iter::once(&none).chain(rows) {
                    push(&mut builder, &row[number], representation);
                }
                builder.finish()
            });
            let selected: Vec<u16> = (1..=rows.len() as u16).collect();
            Chunk::new(rows.len() + 1, vectors.collect()).with_selection(Some(Selection::new(selected)))
        };
        Arc::new(MemorySource::new(columns.clone(), rows.chunks(morsel_rows).map(chunk).collect()))
    };
    InMemory(tables.iter().map(|(id, rows)| (*id, source(rows))).collect())
}

/// The attributes of the indexes that [`Indexed`] sources have.
pub fn index_attributes() -> [&'static [i16]; 3] {
    [&[1], &[2], &[3, 1]]
}

/// Sources whose rows are also found by keys: by comparing all of them.
pub struct Indexed(pub InMemory, pub Tables);

impl Sources for Indexed {
    fn source(&self, id: SourceId) -> Arc<dyn Source> {
        Arc::new(IndexedSource { source: self.0.source(id), rows: self.1[&id].clone().into() })
    }
}

struct IndexedSource {
    source: Arc<dyn Source>,
    rows: Arc<[Vec<Value>]>,
}

impl Source for IndexedSource {
    fn columns(&self) -> Vec<SourceColumn> {
        self.source.columns()
    }

    fn statistics(&self) -> SourceStatistics {
        self.source.statistics()
    }

    fn open(&self, request: &Request<'_>, reader: Reader<'_>) -> Result<Arc<dyn Scan>> {
        self.source.open(request, reader)
    }

    fn open_lookup(
        &self,
        request: &Request<'_>,
        attributes: &[i16],
        first: Option<(&[AttributeOrder], usize)>,
        _: Reader<'_>,
    ) -> Result<Arc<dyn Lookup>> {
        let place = |attribute: i16| attribute as usize - 1;
        let columns = request.columns.iter().map(|(column, attribute)| {
            (place(*attribute), request.all[*column].ty.representation().unwrap())
        });
        Ok(Arc::new(IndexedLookup {
            rows: self.rows.clone(),
            keys: attributes.iter().map(|attribute| place(*attribute)).collect(),
            columns: columns.collect(),
            first: first.map(|(order, count)| (order.to_vec(), count)),
        }))
    }
}

struct IndexedLookup {
    rows: Arc<[Vec<Value>]>,
    keys: Vec<usize>,
    columns: Vec<(usize, Representation)>,
    first: Option<(Vec<AttributeOrder>, usize)>,
}

impl Lookup for IndexedLookup {
    fn find(&self, keys: &[Vector], rows: &[u16], most: usize, found: &mut Vec<(u32, u64)>) -> Result<usize> {
        for (number, row) in rows.iter().enumerate() {
            if found.len() >= most {
                return Ok(number);
            }
            let key: Vec<Value> = keys
                .iter()
                .map(|vector| value(vector.datum(usize::from(*row)), vector.representation()))
                .collect();
            let is_equal = |candidate: &Vec<Value>| {
                let pairs = self.keys.iter().zip(&key);
                pairs
                    .into_iter()
                    .all(|(place, value)| candidate[*place].compare(value) == Some(Ordering::Equal))
            };
            let equal = self.rows.iter().enumerate().filter(|(_, candidate)| is_equal(candidate));
            let mut equal: Vec<usize> = equal.map(|(place, _)| place).collect();
            if let Some((order, count)) = &self.first {
                equal.sort_by(|one, other| compare(&self.rows[*one], &self.rows[*other], order));
                equal.truncate(*count);
            }
            found.extend(equal.into_iter().map(|place| (number as u32, place as u64)));
        }
        Ok(rows.len())
    }

    fn read(&self, rows: &[u64]) -> Result<Chunk> {
        let vector = |(place, representation): &(usize, Representation)| {
            let mut builder = Builder::new(*representation);
            for row in rows {
                push(&mut builder, &self.rows[*row as usize][*place], *representation);
            }
            builder.finish()
        };
        Ok(Chunk::new(rows.len(), self.columns.iter().map(vector).collect()))
    }
}

/// Rows in an order.
fn compare(one: &[Value], other: &[Value], order: &[AttributeOrder]) -> Ordering {
    let by = |key: &AttributeOrder| {
        let place = key.attribute as usize - 1;
        let (one, other) = (&one[place], &other[place]);
        let nulls = match key.nulls_first {
            Some(true) => other.is_null().cmp(&one.is_null()),
            _ => one.is_null().cmp(&other.is_null()),
        };
        let values = one.compare(other).unwrap_or(Ordering::Equal);
        nulls.then(if key.descending { values.reverse() } else { values })
    };
    order.iter().map(by).fold(Ordering::Equal, Ordering::then)
}

pub fn options(mode: Mode) -> Options {
    Options {
        vector_rows: mode.vector_rows,
        workers: mode.workers,
        alone: Duration::ZERO,
        ..Options::new(Budget::new(1 << 30))
    }
}

/// Nobody's snapshot.
pub fn reader() -> Reader<'static> {
    Reader {
        snapshot: Snapshot { owner: firn_base::Stamp::from_bits(0), read_time: firn_base::Time(0) },
        transaction: None,
    }
}

/// The rows that a plan gives, in its order.
pub fn run(
    plan: &Plan,
    sources: &dyn Sources,
    parameters: &[Value],
    options: Options,
) -> Result<Vec<Vec<Value>>> {
    let budget = options.budget.clone();
    let program = Arc::new(Program::compile(plan, &REGISTRY)?);
    let mut rows = Rows::start(&program, sources, reader(), parameters, options)?;
    let context = Context { memory: &*budget, ..detached() };
    let mut result = Vec::new();
    while let Some(chunk) = rows.next(&context)? {
        assert!(chunk.length() > 0 && chunk.selection().is_none());
        for row in 0..chunk.length() {
            let cell = |(vector, representation): (&firn_vector::Vector, _)| {
                value(vector.datum(row), representation)
            };
            result.push(
                chunk.vectors().iter().zip(program.representations().iter().copied()).map(cell).collect(),
            );
        }
    }
    assert!(rows.next(&context)?.is_none(), "after the last rows there are none");
    drop(rows);
    assert_eq!(budget.used(), 0, "what an execution has charged it gives back");
    Ok(result)
}

/// Rows as text, in the order of the text: a multiset. Arrays count without their order.
pub fn multiset(rows: &[Vec<Value>]) -> Vec<String> {
    let mut texts: Vec<String> = rows.iter().map(|row| text(row)).collect();
    texts.sort_unstable();
    texts
}

pub fn text(row: &[Value]) -> String {
    let cell = |value: &Value| match value {
        Value::Numeric { unscaled, scale } => format!("{unscaled}e-{scale}"),
        Value::Number(number) => {
            let (unscaled, scale) = number.to_parts();
            format!("{unscaled}e-{scale}")
        }
        Value::Array(array) => {
            let mut elements: Vec<String> =
                array.elements().iter().map(|value| text(std::slice::from_ref(value))).collect();
            elements.sort_unstable();
            format!("{elements:?}")
        }
        other => format!("{other:?}"),
    };
    row.iter().map(cell).collect::<Vec<_>>().join(" | ")
}

/// Plan text whose first line begins in the line of the code, and whose others are indented as the code is.
pub fn aligned(text: &str) -> String {
    let (first, rest) = text.split_once('\n').expect("a plan has more lines than one");
    let blanks = |line: &str| line.len() - line.trim_start().len();
    let least = rest.lines().map(blanks).min().unwrap_or(0);
    let lines = rest.lines().map(|line| format!("  {}", &line[least..]));
    std::iter::once(first.to_owned()).chain(lines).collect::<Vec<_>>().join("\n")
}
