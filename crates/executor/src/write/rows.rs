//! Rows of a table as vectors, and their cells as storage takes them.

use crate::expression::converted;
use firn_base::types::Width;
use firn_base::value::Stored;
use firn_base::{Cell, ColumnId, Error, Numeric, Representation, Result, SqlState, Value, numeric};
use firn_vector::builder::Builder;
use firn_vector::selection::Rows;
use firn_vector::{Datum, Vector};
use smallvec::SmallVec;

/// The cells of a row, on the stack for tables of usual width.
pub(crate) type Cells<'a> = SmallVec<[Cell<'a>; 24]>;

/// Values as storage takes them: cells, and those values beside them that a cell cannot hold by itself.
#[derive(Default)]
pub(crate) struct StoredCells<'v> {
    cells: Cells<'v>,
    /// By the places of their cells, which are NULL.
    apart: SmallVec<[(usize, Stored<'v>); 1]>,
}

impl<'v> StoredCells<'v> {
    /// Appends a value.
    #[inline]
    pub fn push(&mut self, value: Stored<'v>) {
        match value {
            Stored::Cell(cell) => self.cells.push(cell),
            value => {
                self.apart.push((self.cells.len(), value));
                self.cells.push(Cell::Null);
            }
        }
    }

    /// Calls with all cells.
    #[inline]
    pub fn with<T>(&self, call: impl FnOnce(&[Cell<'_>]) -> T) -> T {
        if self.apart.is_empty() {
            return call(&self.cells);
        }
        let mut cells: Cells<'_> = SmallVec::from_slice(&self.cells);
        for (place, value) in &self.apart {
            cells[*place] = value.cell();
        }
        call(&cells)
    }
}

/// Some columns of rows of a table: a vector for each that somebody needs, by the column's id.
#[derive(Clone, Default)]
pub struct RowVectors(Vec<Option<Vector>>);

impl RowVectors {
    /// Rows of a table of so many columns, none of which is known yet.
    pub fn new(columns: usize) -> RowVectors {
        RowVectors(vec![None; columns])
    }

    /// Sets a column, or replaces it.
    pub fn set(&mut self, column: ColumnId, vector: Vector) {
        self.0[column.index()] = Some(vector);
    }

    /// A column, if it is known.
    pub fn get(&self, column: ColumnId) -> Option<&Vector> {
        self.0[column.index()].as_ref()
    }

    /// A column that was asked for.
    pub(crate) fn vector(&self, column: ColumnId) -> &Vector {
        self.get(column).unwrap_or_else(|| panic!("{column:?} has been read"))
    }
}

/// Some columns of one row that is written.
pub trait RowData {
    /// The value of a column, if it is known.
    fn get(&self, column: ColumnId) -> Option<Datum<'_>>;

    /// The value of a column that was asked for.
    fn datum(&self, column: ColumnId) -> Datum<'_> {
        self.get(column).unwrap_or_else(|| panic!("{column:?} has been read"))
    }

    /// Whether a column that was asked for is NULL.
    fn is_null(&self, column: ColumnId) -> bool {
        self.datum(column).is_null()
    }
}

/// A row of vectors.
#[derive(Clone, Copy)]
pub(crate) struct VectorRow<'a>(&'a RowVectors, usize);

impl RowVectors {
    /// One of the rows.
    pub(crate) fn row(&self, row: usize) -> VectorRow<'_> {
        VectorRow(self, row)
    }
}

impl RowData for VectorRow<'_> {
    fn get(&self, column: ColumnId) -> Option<Datum<'_>> {
        Some(self.0.get(column)?.datum(self.1))
    }
}

/// What stores a value of a vector in a column with another representation of the same type. 22003 if the column cannot hold it.
#[inline]
pub(crate) fn stored<'v>(datum: Datum<'v>, to: Representation) -> Result<Stored<'v>> {
    let cell = match (datum, to) {
        (Datum::Null, _) => Cell::Null,
        (Datum::Boolean(value), _) => Cell::boolean(value),
        (Datum::Int16(value), _) => Cell::i16(value),
        (Datum::Int32(value), _) => Cell::i32(value),
        (Datum::Int64(value), _) => Cell::i64(value),
        (Datum::UInt32(value), _) => Cell::Word(u64::from(value)),
        (Datum::Float32(value), _) => Cell::f32(value),
        (Datum::Float64(value), _) => Cell::f64(value),
        (Datum::Numeric(value), Representation::Decimal { precision, scale }) => {
            let digits = digits(value, precision, scale)?;
            match to.width() {
                Width::Fixed(8) => Cell::i64(digits as i64),
                _ => Cell::i128(digits),
            }
        }
        (Datum::Numeric(value), _) => return Ok(Stored::Numeric(value.image())),
        (Datum::Interval(value), _) => Cell::Wide(value.to_words()),
        (Datum::Uuid(value), _) => Cell::Wide(firn_base::value::uuid_to_words(value)),
        (Datum::Text(value), _) => Cell::text(value),
        (Datum::Bytes(value), _) => Cell::Bytes(value),
        (Datum::List(_), Representation::List(element)) => {
            let Value::Array(array) = crate::values::value(datum, to) else { unreachable!("it is a list") };
            return Ok(Stored::Array(array.image(*element)));
        }
        (datum, to) => panic!("no column of {to:?} holds {datum:?}"),
    };
    Ok(Stored::Cell(cell))
}

/// A value as a column of the table has it in vectors. 22003 if a column with one scale cannot hold a number.
#[inline]
pub(crate) fn fitted_value(datum: Datum<'_>, to: Representation) -> Result<Datum<'_>> {
    match (datum, to) {
        (Datum::Numeric(value), Representation::Decimal { precision, scale }) => {
            Ok(Datum::Numeric(Numeric::from_decimal(digits(value, precision, scale)?, scale)))
        }
        (datum, _) => Ok(datum),
    }
}

/// The same values as a column of the table has them in vectors. 22003 if a column with one scale cannot hold a number.
pub(crate) fn fitted(vector: &Vector, to: Representation, rows: Rows<'_>) -> Result<Vector> {
    let Representation::Decimal { .. } = to else { return Ok(converted(vector, to, rows)) };
    if vector.representation() == to {
        return Ok(vector.clone());
    }
    let mut builder = Builder::new(to);
    rows.try_each(|row| {
        builder.pad(row);
        let stored = stored(vector.datum(row), to)?;
        match stored.cell().to_value(to) {
            Value::Numeric { unscaled, scale } => {
                builder.push(Datum::Numeric(Numeric::from_decimal(unscaled, scale)));
            }
            _ => builder.push_null(),
        }
        Ok::<(), Error>(())
    })?;
    builder.pad(rows.length());
    Ok(builder.finish())
}

/// The digits of a numeric in a column with one scale.
fn digits(value: Numeric, precision: u8, scale: u8) -> Result<i128> {
    let most = numeric::power_of_ten(precision.into());
    let digits = value.rounded_at(scale.into());
    let fits = |digits: &i128| most.is_none_or(|most| digits.unsigned_abs() < most.unsigned_abs());
    digits.filter(fits).ok_or_else(|| {
        Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").with_detail(format!(
            "A field with precision {precision}, scale {scale} must round to an absolute value less than 10^{}.",
            precision.saturating_sub(scale)
        ))
    })
}
