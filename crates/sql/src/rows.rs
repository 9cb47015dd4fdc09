//! Rows of results in their two forms, and conversions between them and to values or an Arrow batch.

use crate::Column;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use firn_base::{Representation, Result, Type, TypeId, Value};
use firn_executor::values;
use firn_query::{Layout, ResultChunk};
use firn_vector::Chunk;
use firn_vector::builder::Builder;

/// Some rows of a result.
#[derive(Clone, Debug)]
pub enum RowChunk {
    /// Row-major values: as many per row as there are columns.
    Values(Vec<Value>),
    /// A vector for each column, all rows of them.
    Vectors(ResultChunk),
}

impl RowChunk {
    /// The number of rows, given the number of columns.
    pub fn rows(&self, columns: usize) -> usize {
        match self {
            RowChunk::Values(values) => values.len() / columns.max(1),
            RowChunk::Vectors(chunk) => chunk.rows(),
        }
    }

    /// Its first rows, whose number is `first`, and the others.
    pub fn split(self, first: usize, columns: usize) -> (RowChunk, RowChunk) {
        match self {
            RowChunk::Values(mut values) => {
                let rest = values.split_off(first * columns);
                (RowChunk::Values(values), RowChunk::Values(rest))
            }
            RowChunk::Vectors(chunk) => {
                let rest = chunk.slice(first, chunk.rows() - first);
                (RowChunk::Vectors(chunk.slice(0, first)), RowChunk::Vectors(rest))
            }
        }
    }

    /// Its rows as vectors.
    pub fn into_vectors(self, columns: &[Column]) -> ResultChunk {
        match self {
            RowChunk::Values(values) => vectors_of(columns, &values),
            RowChunk::Vectors(chunk) => chunk,
        }
    }

    /// Appends its image, by which another server of the same version gets it.
    pub fn write(self, columns: &[Column], image: &mut Vec<u8>) {
        Layout::of(columns).write(&self.into_vectors(columns), image);
    }

    /// The rows of an image, which [`RowChunk::write`] of another server has made. 08P01 if it has not.
    pub fn read(columns: &[Column], image: &[u8]) -> Result<RowChunk> {
        Layout::of(columns).read(image).map(RowChunk::Vectors)
    }

    /// Its rows as an Arrow batch of a schema that [`firn_query::arrow::schema`] has made of the columns.
    pub fn into_batch(self, columns: &[Column], schema: &SchemaRef) -> Result<RecordBatch> {
        match self {
            RowChunk::Values(values) => {
                firn_query::arrow::batch(&vectors_of(columns, &values), columns, schema)
            }
            RowChunk::Vectors(chunk) => firn_query::arrow::batch(&chunk, columns, schema),
        }
    }

    /// Its rows as values, a vector each.
    pub fn into_values(self, columns: &[Column]) -> Vec<Vec<Value>> {
        match self {
            // The result of a look-up by a key.
            RowChunk::Values(values) if !values.is_empty() && values.len() == columns.len() => vec![values],
            RowChunk::Values(values) => {
                let mut values = values.into_iter();
                let mut rows = Vec::new();
                while values.len() > 0 {
                    rows.push(values.by_ref().take(columns.len()).collect());
                }
                rows
            }
            RowChunk::Vectors(chunk) => {
                (0..chunk.rows()).map(|row| values_of_row(columns, &chunk, row)).collect()
            }
        }
    }
}

/// The values of a row of vectors. A value that only the session can print, such as the name of a `regclass`, is its text.
pub fn values_of_row(columns: &[Column], chunk: &ResultChunk, row: usize) -> Vec<Value> {
    let value = |(place, column): (usize, &Column)| match chunk.text(place) {
        Some(text) => text.datum(row).to_value(Type::new(TypeId::TEXT)),
        None => {
            let datum = chunk.values.vectors()[place].datum(row);
            match column.ty.representation() {
                Some(representation) => values::value(datum, representation),
                None => datum.to_value(column.ty),
            }
        }
    };
    columns.iter().enumerate().map(value).collect()
}

/// Row-major values as vectors.
fn vectors_of(columns: &[Column], values: &[Value]) -> ResultChunk {
    let vector = |(place, column): (usize, &Column)| {
        let representation = column.ty.representation().unwrap_or(Representation::Text);
        let mut builder = Builder::new(representation);
        for value in values.iter().skip(place).step_by(columns.len()) {
            values::push(&mut builder, value, representation);
        }
        builder.finish()
    };
    let vectors = columns.iter().enumerate().map(vector).collect();
    ResultChunk::from(Chunk::new(values.len() / columns.len().max(1), vectors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_batches_and_rows_alike() {
        let column = |name: &str, id| Column { name: name.to_owned(), ty: Type::new(id), origin: None };
        let columns = [column("a", TypeId::INT4), column("b", TypeId::TEXT)];
        let text = |text: &str| Value::Text(text.to_owned());
        let values = vec![Value::Integer(1), text("x"), Value::Null, text("longer than twelve bytes")];
        let (first, rest) = RowChunk::Values(values.clone()).split(1, 2);
        assert_eq!((first.rows(2), rest.rows(2)), (1, 1));
        let chunk = RowChunk::Vectors(vectors_of(&columns, &values));
        assert_eq!(
            chunk.clone().into_values(&columns),
            RowChunk::Values(values.clone()).into_values(&columns)
        );
        let schema = firn_query::arrow::schema(&columns);
        let batch = RowChunk::Values(values).into_batch(&columns, &schema).unwrap();
        assert_eq!(batch, chunk.into_batch(&columns, &schema).unwrap());
    }
}
