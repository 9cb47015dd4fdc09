//! Sources: where the rows of scans come from.
//!
//! Tables are sources, and so are files, registered Arrow batches, catalog relations and statistics views. A plan names one
//! by an opaque number. What a scan asks is a value ([`Request`]): the columns, the conditions and the values of parameters. A
//! source may use conditions to read less; the executor asks all of them again of the rows that come.
//!
//! A scan is opened when the statement starts to run: that binds its snapshot, and is when a serializable transaction
//! logs what it reads. It is begun when its rows are needed, perhaps never, perhaps once for each round of a recursion.

use crate::buffer::RowBuffer;
use crate::options::Options;
use arrow_buffer::BooleanBuffer;
use firn_base::sync::{Arc, AtomicU64, Ordering};
use firn_base::{Representation, Result, Snapshot, Type, Value};
use firn_plan::operator::SourceId;
use firn_plan::rewrite::first_rows::AttributeOrder;
use firn_plan::statistics::Reference;
use firn_plan::{Column, Columns, Scalar};
use firn_storage::{Judge, Table};
use firn_txn::Transaction;
use firn_vector::{Chunk, Context, Vector};
use std::any::Any;

/// A column of a source.
#[derive(Clone, Copy, Debug)]
pub struct SourceColumn {
    /// Its attribute number.
    pub attribute: i16,
    /// Its type.
    pub ty: Type,
    /// Whether it may be NULL.
    pub nullable: bool,
}

/// What is known of how much a source holds. Numbers are estimates.
#[derive(Clone, Copy, Default, Debug)]
pub struct SourceStatistics {
    /// How many rows.
    pub rows: u64,
}

/// An index by which a source can find rows.
#[derive(Clone, Debug)]
pub struct CandidateIndex {
    /// Its oid.
    pub oid: u32,
    /// The attributes of its key, in their order.
    pub attributes: Vec<i16>,
    /// For each of them whether the greatest comes first.
    pub descending: Vec<bool>,
    /// For each of them whether NULLs come first.
    pub nulls_first: Vec<bool>,
    /// Whether no two rows that are visible have one key without NULLs.
    pub unique: bool,
}

/// What a scan asks of a source.
pub struct Request<'a> {
    /// The columns to read, and which attribute each is.
    pub columns: &'a [(Column, i16)],
    /// How many of the columns, the first ones, are used for more than the conditions.
    pub used: usize,
    /// Conditions over these columns, all of which a row must meet. Rows that do not may be given all the same.
    pub conditions: &'a [Scalar],
    /// The same for single attributes, by the values of a dictionary.
    pub judges: &'a [(i16, Judge)],
    /// The values of the statement's parameters.
    pub parameters: &'a [Value],
    /// The columns of the statement.
    pub all: &'a Columns,
    /// How many threads may take morsels at once.
    pub workers: usize,
}

/// By what a statement reads.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    /// What it sees.
    pub snapshot: Snapshot,
    /// Where reads are logged; `None` of statements outside of any transaction.
    pub transaction: Option<&'a Transaction>,
}

/// Something that has rows.
pub trait Source: Send + Sync {
    /// Its columns.
    fn columns(&self) -> Vec<SourceColumn>;

    /// What is known of its size.
    fn statistics(&self) -> SourceStatistics;

    /// The indexes by which it finds rows.
    fn indexes(&self) -> Vec<CandidateIndex> {
        Vec::new()
    }

    /// The oid of the index by which a scan with these conditions would find its rows now, if it would.
    fn index_for(&self, _: &Request<'_>) -> Option<u32> {
        None
    }

    /// The oid of the index by which [`Source::open_lookup`] finds rows by values of some attributes, in an order if there is one.
    fn index_by(&self, _attributes: &[i16], _order: &[AttributeOrder]) -> Option<u32> {
        None
    }

    /// The oid of the relation that it is, if it is one of the catalog.
    fn relation(&self) -> Option<u32> {
        None
    }

    /// The foreign keys that hold for all its rows, now and after each statement.
    fn references(&self) -> Vec<Reference> {
        Vec::new()
    }

    /// Some of its rows, spread over all of them, with a vector for each attribute.
    fn sample(&self, _attributes: &[i16], _: Snapshot) -> Option<Chunk> {
        None
    }

    /// About how many distinct combinations of values attributes have.
    fn distinct(&self, _attributes: &[i16], _: Snapshot) -> Option<f64> {
        None
    }

    /// The table whose rows they are, if they can be changed and locked.
    fn table(&self) -> Option<Arc<Table>> {
        None
    }

    /// Itself, if it is a table of the catalog that short programs may read.
    fn short_source(&self) -> Option<&dyn Any> {
        None
    }

    /// Binds a scan to what the reader sees, and logs what will have been read.
    fn open(&self, request: &Request<'_>, reader: Reader<'_>) -> Result<Arc<dyn Scan>>;

    /// Binds look-ups to what the reader sees: of rows by values of some attributes, with which one of its
    /// [indexes](Source::indexes) begins. `first` is an order that such an index keeps, and how many rows of each key are wanted: the
    /// first ones; more may be found. Keys are logged as they are looked up. Panics if there is no such index.
    fn open_lookup(
        &self,
        _: &Request<'_>,
        attributes: &[i16],
        _first: Option<(&[AttributeOrder], usize)>,
        _: Reader<'_>,
    ) -> Result<Arc<dyn Lookup>> {
        panic!("no index begins with the attributes {attributes:?}")
    }
}

/// Look-ups that have been opened, for any number of threads. The transaction whose snapshot they read must run as long as they are
/// used.
pub trait Lookup: Send + Sync {
    /// Looks rows up, by keys with a vector for each attribute and a key for each of these rows of the vectors. What is found is added
    /// to `found`: the row's number among `rows`, and the place of what was found for it. It ends early once `found` has so many
    /// entries, and returns how many of the rows have been looked up. A key with a NULL finds nothing.
    fn find(&self, keys: &[Vector], rows: &[u16], most: usize, found: &mut Vec<(u32, u64)>) -> Result<usize>;

    /// Reads rows that were found, in their order, with a vector for each column of the request. Rows that do not meet the request's
    /// conditions may be among them.
    fn read(&self, rows: &[u64]) -> Result<Chunk>;
}

/// A scan that has been opened. The transaction whose snapshot it reads must run as long as it is used.
pub trait Scan: Send + Sync {
    /// Begins from the first row, any number of times.
    fn morsels(&self) -> Arc<dyn Morsels>;

    /// Whether its rows have an order that a result keeps, as the lines of a file do. A single worker takes its morsels if they become
    /// rows of a result.
    fn is_ordered(&self) -> bool {
        false
    }
}

/// Rows in parts that workers take from one after the other.
pub trait Morsels: Send + Sync {
    /// Claims a morsel: a block or a part of one, at most 65,536 rows, with a vector for each column of the request.
    /// `None` if all have been claimed.
    fn next(&self) -> Result<Option<Chunk>>;

    /// Says that from now on rows are not wanted that do not pass a filter on some columns of the request, by their places. They may
    /// come all the same.
    fn filter(&self, _columns: &[usize], _: RowFilter) {}
}

/// Computes a bit for each row of some vectors, given with their length: whether the row is wanted.
pub type RowFilter = Arc<dyn Fn(&[Vector], usize) -> BooleanBuffer + Send + Sync>;

/// A scan that has been read to its end: its table is about to change.
pub(crate) struct KeptScan(Arc<RowBuffer>);

impl KeptScan {
    /// Reads a scan to its end.
    pub fn new(
        scan: &dyn Scan,
        representations: Vec<Representation>,
        options: &Options,
        context: &Context<'_>,
    ) -> Result<KeptScan> {
        let mut rows = RowBuffer::new(representations, options);
        let morsels = scan.morsels();
        while let Some(chunk) = morsels.next()? {
            context.check_cancel()?;
            rows.push(chunk)?;
        }
        Ok(KeptScan(Arc::new(rows)))
    }
}

impl Scan for KeptScan {
    fn morsels(&self) -> Arc<dyn Morsels> {
        Arc::new(KeptMorsels(self.0.clone(), AtomicU64::new(0)))
    }
}

struct KeptMorsels(Arc<RowBuffer>, AtomicU64);

impl Morsels for KeptMorsels {
    fn next(&self) -> Result<Option<Chunk>> {
        let number = self.1.fetch_add(1, Ordering::Relaxed) as usize;
        (number < self.0.len()).then(|| self.0.get(number)).transpose()
    }
}

/// Where the sources of a plan are found.
pub trait Sources {
    /// The source of a number. Panics if the binder has given none.
    fn source(&self, id: SourceId) -> Arc<dyn Source>;
}

/// Rows in memory: the batches that a caller has registered, and tests.
pub struct MemorySource {
    columns: Vec<SourceColumn>,
    chunks: Arc<[Chunk]>,
}

impl MemorySource {
    /// A source of these chunks, with a vector for each column.
    pub fn new(columns: Vec<SourceColumn>, chunks: Vec<Chunk>) -> MemorySource {
        for chunk in &chunks {
            assert_eq!(chunk.vectors().len(), columns.len());
        }
        MemorySource { columns, chunks: chunks.into() }
    }
}

impl Source for MemorySource {
    fn columns(&self) -> Vec<SourceColumn> {
        self.columns.clone()
    }

    fn statistics(&self) -> SourceStatistics {
        SourceStatistics { rows: self.chunks.iter().map(|chunk| chunk.count() as u64).sum() }
    }

    fn open(&self, request: &Request<'_>, _: Reader<'_>) -> Result<Arc<dyn Scan>> {
        let place = |(_, attribute): &(Column, i16)| {
            let column = self.columns.iter().position(|column| column.attribute == *attribute);
            column.unwrap_or_else(|| panic!("the source has no attribute {attribute}"))
        };
        let places = request.columns.iter().map(place).collect();
        Ok(Arc::new(MemoryScan { chunks: self.chunks.clone(), places }))
    }
}

struct MemoryScan {
    chunks: Arc<[Chunk]>,
    places: Arc<[usize]>,
}

impl Scan for MemoryScan {
    fn morsels(&self) -> Arc<dyn Morsels> {
        Arc::new(MemoryMorsels {
            chunks: self.chunks.clone(),
            places: self.places.clone(),
            next: AtomicU64::new(0),
        })
    }
}

struct MemoryMorsels {
    chunks: Arc<[Chunk]>,
    places: Arc<[usize]>,
    next: AtomicU64,
}

impl Morsels for MemoryMorsels {
    fn next(&self) -> Result<Option<Chunk>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(chunk) = self.chunks.get(number as usize) else { return Ok(None) };
        let vectors: Vec<Vector> = self.places.iter().map(|place| chunk.vectors()[*place].clone()).collect();
        Ok(Some(Chunk::new(chunk.length(), vectors).with_selection(chunk.selection().cloned())))
    }
}

/// How the values of a column of a scan lie: as those of its type do in general.
pub(crate) fn representation(columns: &Columns, column: Column) -> Representation {
    crate::expression::representation_of(columns[column].ty)
}
