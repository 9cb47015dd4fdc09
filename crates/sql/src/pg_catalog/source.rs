//! The relations of the system schemas as sources of rows for the query engine.

use super::relation::Relation;
use super::{Cell, Source};
use firn_base::sync::{Arc, Mutex};
use firn_base::{BlockNumber, Representation, Result, RowId, Slot, Type, TypeId, Value};
use firn_bind::{Attribute, Generated, RelationKind};
use firn_executor::source::{Morsels, Request, Scan, SourceColumn, SourceStatistics};
use firn_executor::{Reader, values};
use firn_plan::operator::SourceId;
use firn_vector::builder::Builder;
use firn_vector::{Chunk, Vector};

/// The number of rows that the planner expects.
const ROWS: u64 = 500;
/// Rows of a chunk.
const CHUNK: usize = 2048;

/// A relation with its rows as of its scan, for one session.
pub(crate) struct CatalogRelation {
    relation: &'static Relation,
    source: Source,
}

impl CatalogRelation {
    pub(crate) fn new(relation: &'static Relation, source: Source) -> CatalogRelation {
        CatalogRelation { relation, source }
    }
}

/// The relation for the binder.
pub(crate) fn described(schema: &str, relation: &Relation) -> firn_bind::Relation {
    let attribute = |(number, column): (i16, &super::relation::Column)| Attribute {
        number,
        name: column.name.into(),
        ty: column.ty,
        not_null: false,
        default: None,
        generated: Generated::No,
    };
    firn_bind::Relation {
        oid: relation.oid as u32,
        schema: schema.into(),
        name: relation.name.into(),
        kind: RelationKind::Source(SourceId(relation.oid as u32)),
        columns: (1..).zip(&relation.columns).map(attribute).collect(),
        keys: Vec::new(),
        has_system_columns: relation.relkind == "r",
    }
}

impl firn_executor::Source for CatalogRelation {
    fn columns(&self) -> Vec<SourceColumn> {
        let columns = (1..).zip(&self.relation.columns);
        columns.map(|(attribute, column)| SourceColumn { attribute, ty: column.ty, nullable: true }).collect()
    }

    fn statistics(&self) -> SourceStatistics {
        SourceStatistics { rows: if self.relation.is_always_empty() { 0 } else { ROWS } }
    }

    fn open(&self, request: &Request<'_>, _: Reader<'_>) -> Result<Arc<dyn Scan>> {
        let (count, mut cells) = self.relation.cells(&self.source);
        let vector = |attribute: i16| {
            if attribute < 0 {
                let ty = system_type(attribute);
                let values = (0..count).map(|row| self.system(attribute, row)).collect();
                return (attribute, ty.representation().expect("its values are stored"), values);
            }
            let place = attribute as usize - 1;
            let ty = self.relation.columns[place].ty;
            let representation = ty.representation().expect("columns of catalogs have built-in types");
            let cells = std::mem::take(&mut cells[place]);
            let values: Vec<Value> =
                cells.into_iter().map(|cell: Cell| cell.into_value(ty).unwrap_or(Value::Null)).collect();
            (attribute, representation, values)
        };
        let mut attributes: Vec<i16> = request.columns.iter().map(|(_, attribute)| *attribute).collect();
        attributes.sort_unstable();
        attributes.dedup();
        let columns: Vec<(i16, Representation, Vec<Value>)> = attributes.into_iter().map(vector).collect();
        let chunk = |start: usize| {
            let end = count.min(start + CHUNK);
            let vectors = request.columns.iter().map(|(_, attribute)| {
                let (_, representation, values) =
                    columns.iter().find(|(number, ..)| number == attribute).expect("it was asked for");
                vector_of(*representation, &values[start..end])
            });
            Chunk::new(end - start, vectors.collect())
        };
        let chunks: Vec<Chunk> = (0..count).step_by(CHUNK).map(chunk).collect();
        Ok(Arc::new(CatalogScan { chunks: chunks.into() }))
    }
}

impl CatalogRelation {
    /// A system column of a row. All rows are as old as the database.
    fn system(&self, attribute: i16, row: usize) -> Value {
        /// PostgreSQL's number of the transaction that creates the catalogs.
        const BOOTSTRAP: u32 = 1;
        let place = || RowId::new(BlockNumber((row / CHUNK) as u64), Slot((row % CHUNK) as u32));
        match system_type(attribute).id {
            TypeId::TID => Value::BigInt(place().to_bits() as i64),
            TypeId::OID => Value::Oid(self.relation.oid as u32),
            _ if attribute == -2 => Value::Oid(BOOTSTRAP),
            _ => Value::Oid(0),
        }
    }
}

/// The types of the system columns, from -1 downwards: ctid, xmin, cmin, xmax, cmax, tableoid.
const SYSTEM_COLUMNS: [TypeId; 6] =
    [TypeId::TID, TypeId::XID, TypeId::CID, TypeId::XID, TypeId::CID, TypeId::OID];

fn system_type(attribute: i16) -> Type {
    Type::new(SYSTEM_COLUMNS[usize::from(attribute.unsigned_abs()) - 1])
}

fn vector_of(representation: Representation, values: &[Value]) -> Vector {
    let mut builder = Builder::new(representation);
    values.iter().for_each(|value| values::push(&mut builder, value, representation));
    builder.finish()
}

struct CatalogScan {
    chunks: Arc<[Chunk]>,
}

impl Scan for CatalogScan {
    fn morsels(&self) -> Arc<dyn Morsels> {
        Arc::new(CatalogMorsels { chunks: self.chunks.clone(), next: Mutex::new(0) })
    }
}

struct CatalogMorsels {
    chunks: Arc<[Chunk]>,
    next: Mutex<usize>,
}

impl Morsels for CatalogMorsels {
    fn next(&self) -> Result<Option<Chunk>> {
        let mut next = self.next.lock();
        let chunk = self.chunks.get(*next).cloned();
        *next += 1;
        Ok(chunk)
    }
}
