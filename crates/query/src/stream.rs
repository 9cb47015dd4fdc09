//! The rows of a statement that runs.

use crate::kept::{KeptBytes, KeptRows};
use crate::prepared::ResultColumn;
use crate::surroundings::Surroundings;
use firn_base::Result;
use firn_base::sync::Arc;
use firn_base::{Cancel, Representation, Type, TypeId, Value};
use firn_executor::values::push;
use firn_executor::{Options, Rows};
use firn_vector::builder::Builder;
use firn_vector::kernel::{CallSite, Signature};
use firn_vector::{Chunk, Registry, Vector};

/// Rows in the making. Dropping it ends the execution.
pub struct Stream {
    rows: Source,
    columns: Arc<[ResultColumn]>,
    surroundings: Arc<Surroundings>,
    /// Where rows are kept.
    options: Options,
    /// How the columns are written whose text depends on the session.
    writers: Vec<(usize, CallSite)>,
}

/// Where rows come from.
enum Source {
    Rows(Box<Rows>),
    /// All values, row by row, and how many rows they are.
    Values(Vec<Value>, usize),
}

/// Some rows of a result: a vector for each column, all rows of them.
#[derive(Clone, Debug)]
pub struct ResultChunk {
    /// The values.
    pub values: Chunk,
    /// The texts of those columns whose text depends on the session and its catalog, with their places.
    texts: Vec<(usize, Vector)>,
}

impl From<Chunk> for ResultChunk {
    /// Rows of columns whose text depends on nothing but their values.
    fn from(values: Chunk) -> ResultChunk {
        ResultChunk { values, texts: Vec::new() }
    }
}

impl ResultChunk {
    /// Rows with the texts of some columns.
    pub(crate) fn with_texts(values: Chunk, texts: Vec<(usize, Vector)>) -> ResultChunk {
        ResultChunk { values, texts }
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.values.length()
    }

    /// What is written of a column's values in text format, if only the session knows it.
    pub fn text(&self, column: usize) -> Option<&Vector> {
        self.texts.iter().find(|(place, _)| *place == column).map(|(_, text)| text)
    }

    /// The rows without their last column.
    pub fn without_last_column(mut self) -> ResultChunk {
        let rows = self.rows();
        let mut vectors = self.values.vectors().to_vec();
        vectors.pop();
        self.texts.retain(|(place, _)| *place < vectors.len());
        ResultChunk { values: Chunk::new(rows, vectors), texts: self.texts }
    }

    /// The rows in reverse.
    pub fn reversed(&self) -> ResultChunk {
        let rows = self.rows();
        let reversed = |vector: &Vector| vector.take((0..rows).rev());
        ResultChunk {
            values: Chunk::new(rows, self.values.vectors().iter().map(reversed).collect()),
            texts: self.texts.iter().map(|(place, text)| (*place, reversed(text))).collect(),
        }
    }

    /// So many rows from one on.
    pub fn slice(&self, from: usize, length: usize) -> ResultChunk {
        let part = |vector: &Vector| vector.slice(from, length);
        ResultChunk {
            values: Chunk::new(length, self.values.vectors().iter().map(part).collect()),
            texts: self.texts.iter().map(|(place, text)| (*place, part(text))).collect(),
        }
    }
}

impl Stream {
    pub(crate) fn new(
        rows: Rows,
        columns: Arc<[ResultColumn]>,
        registry: &Registry,
        surroundings: Arc<Surroundings>,
        options: Options,
    ) -> Stream {
        let writer = |(place, column): (usize, &ResultColumn)| {
            let output = registry.function(registry.output(column.ty.id)?)?;
            let text = Type::new(TypeId::CSTRING);
            let representation = column.ty.representation()?;
            let signature = Signature {
                arguments: [column.ty].into(),
                representations: [representation].into(),
                result: text,
                representation: Representation::Text,
                has_variadic_array: false,
            };
            depends_on_session(column.ty).then(|| (place, output.call_site(signature)))
        };
        let writers = columns.iter().enumerate().filter_map(writer).collect();
        Stream { rows: Source::Rows(Box::new(rows)), columns, surroundings, options, writers }
    }

    /// Rows that are there: their values, row by row.
    pub(crate) fn of_values(
        values: Vec<Value>,
        rows: usize,
        columns: Arc<[ResultColumn]>,
        surroundings: Arc<Surroundings>,
        options: Options,
    ) -> Stream {
        Stream { rows: Source::Values(values, rows), columns, surroundings, options, writers: Vec::new() }
    }

    /// The same rows, which no cancel ends any more: the statement has done its work.
    pub fn without_cancel(mut self) -> Stream {
        self.surroundings = Arc::new(Surroundings { cancel: Cancel::new(), ..(*self.surroundings).clone() });
        self
    }

    /// A place for its rows, on the account of its statement.
    pub fn kept_rows(&self) -> KeptRows {
        KeptRows::new(&self.columns, &self.options)
    }

    /// A place for what is made of its rows.
    pub fn kept_bytes(&self) -> KeptBytes {
        KeptBytes::new(&self.options)
    }

    /// Their columns.
    pub fn columns(&self) -> &Arc<[ResultColumn]> {
        &self.columns
    }

    /// The next rows, never none; `None` after the last ones. After an error there are no more.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<ResultChunk>> {
        let context = self.surroundings.context();
        context.check_cancel()?;
        let values = match &mut self.rows {
            Source::Rows(rows) => rows.next(&context)?,
            Source::Values(_, 0) => None,
            Source::Values(values, rows) => {
                let (values, rows) = (std::mem::take(values), std::mem::take(rows));
                Some(chunk_of(&values, rows, &self.columns))
            }
        };
        let Some(values) = values else { return Ok(None) };
        let mut texts = Vec::with_capacity(self.writers.len());
        for (place, writer) in &mut self.writers {
            let argument = &values.vectors()[*place..*place + 1];
            texts.push((*place, writer.vectors(&context, argument, values.rows())?));
        }
        Ok(Some(ResultChunk { values, texts }))
    }
}

/// The rows as vectors.
fn chunk_of(values: &[Value], rows: usize, columns: &[ResultColumn]) -> Chunk {
    let vector = |(place, column): (usize, &ResultColumn)| {
        let representation = column.ty.representation().expect("columns have values");
        let mut builder = Builder::new(representation);
        let column = values.iter().skip(place).step_by(columns.len());
        column.for_each(|value| push(&mut builder, value, representation));
        builder.finish()
    };
    Chunk::new(rows, columns.iter().enumerate().map(vector).collect())
}

/// Whether the text of a value depends on more than the value and the time zone: names of objects and fields of records do.
pub(crate) fn depends_on_session(ty: Type) -> bool {
    match ty.element() {
        Some(element) => depends_on_session(element),
        None => firn_vector::is_object(ty.id) || ty.representation() == Some(Representation::Record),
    }
}
