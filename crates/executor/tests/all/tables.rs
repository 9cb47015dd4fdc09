//! Plans over tables of the transaction engine: snapshots, own changes, deleted rows, and what is logged for validation.

use crate::registry::REGISTRY;
use crate::support::{MODES, aligned, options, text};
use firn_base::sync::Arc;
use firn_base::{Cell, Result, SqlState, SqlType, TableId, Value};
use firn_executor::{Program, Reader, Rows, Source, SourceFacts, Sources, TableSource};
use firn_plan::operator::SourceId;
use firn_plan::reference::TestFunctions;
use firn_plan::statistics::Statistics;
use firn_plan::text::parse;
use firn_storage::{ColumnSpec, Table};
use firn_txn::catalog::{
    ColumnDef, ConstraintDef, ConstraintKind, Deferral, IndexColumnDef, IndexDef, ReferentialAction,
    TableDef, TableSettings,
};
use firn_txn::{Config, Engine, Transaction, pin};
use firn_vector::context::detached;
use std::time::Duration;

/// A database with one table of a number, another one that may be NULL, and a text.
struct Database {
    engine: Arc<Engine>,
    table: Arc<Table>,
    definition: Arc<TableDef>,
}

impl Sources for Database {
    fn source(&self, _: SourceId) -> Arc<dyn Source> {
        Arc::new(TableSource::new(self.definition.clone(), self.table.clone()))
    }
}

impl Database {
    fn open(config: Config) -> Database {
        let engine = Engine::open(Config { memory_limit: None, ..config }).unwrap();
        let mut setup = engine.begin();
        let types = [SqlType::Integer, SqlType::Integer, SqlType::Text];
        let specs = types
            .iter()
            .zip([false, true, true])
            .map(|(ty, nullable)| ColumnSpec { representation: (*ty).into(), nullable });
        let id: TableId = setup.create_storage("t", specs.collect()).unwrap();
        let table = setup.table(id);
        let _ = setup.commit().unwrap();
        let column = |(name, ty): (&str, SqlType)| ColumnDef {
            name: name.to_owned(),
            ty: ty.into(),
            not_null: name == "a",
            default: None,
            identity: None,
            dropped: false,
        };
        let definition = TableDef {
            oid: engine.allocate_oid(),
            schema: engine.allocate_oid(),
            name: "t".to_owned(),
            columns: ["a", "b", "c"].into_iter().zip(types).map(column).collect(),
            constraints: Vec::new(),
            indexes: Vec::new(),
            storage: id.0,
            settings: TableSettings::default(),
        };
        Database { engine, table, definition: Arc::new(definition) }
    }

    fn insert(&self, transaction: &mut Transaction, a: i32) {
        let text = format!("the text of row {a}");
        let b = if a % 4 == 0 { Cell::Null } else { Cell::i32(a % 10) };
        transaction.insert(&self.table, &[Cell::i32(a), b, Cell::text(&text)], &pin()).unwrap();
    }

    fn run(&self, plan: &str, transaction: &Transaction) -> Result<Vec<Vec<Value>>> {
        let plan = parse(&aligned(plan), &TestFunctions).unwrap();
        let reader = Reader { snapshot: transaction.snapshot(), transaction: Some(transaction) };
        let each = MODES.map(|mode| -> Result<Vec<Vec<Value>>> {
            let program = Arc::new(Program::compile(&plan, &REGISTRY)?);
            let mut rows = Rows::start(&program, self, reader, &[], options(mode))?;
            let mut found = Vec::new();
            while let Some(chunk) = rows.next(&detached())? {
                for row in 0..chunk.length() {
                    let values = chunk.vectors().iter().zip(program.representations());
                    found.push(
                        values
                            .map(|(vector, it)| firn_executor::values::value(vector.datum(row), *it))
                            .collect(),
                    );
                }
            }
            Ok(found)
        });
        let [one, two, three] = each;
        let (one, two, three) = (one?, two?, three?);
        assert_eq!(one, two);
        assert_eq!(one, three);
        Ok(one)
    }
}

const ALL: &str = "Output [#0, #1, #2]
   Sort [#0]
     Scan 1 t [#0 a: int4 not null = 1, #1 b: int4 = 2, #2 c: text = 3]";

const COUNT: &str = "Output [#9]
   Group aggregates [#9: int8 := count()]
     Scan 1 t []";

#[test]
fn a_scan_sees_its_snapshot_and_its_own_changes() {
    let database = Database::open(Config { freeze_after: None, block_bytes: 1, ..Config::default() });
    let mut first = database.engine.begin();
    (0..500).for_each(|a| database.insert(&mut first, a));
    let _ = first.commit().unwrap();

    let before = database.engine.begin_read_only();
    let mut own = database.engine.begin();
    database.insert(&mut own, 1000);
    let rows = database.run(ALL, &own).unwrap();
    assert_eq!(rows.len(), 501);
    assert_eq!(text(&rows[4]), "Integer(4) | Null | Text(\"the text of row 4\")");
    let _ = own.commit().unwrap();
    assert_eq!(database.run(COUNT, &before).unwrap(), [[Value::BigInt(500)]]);
    before.rollback();
    let after = database.engine.begin_read_only();
    assert_eq!(database.run(COUNT, &after).unwrap(), [[Value::BigInt(501)]]);
}

#[test]
fn deleted_rows_do_not_come_and_row_ids_lead_to_rows() {
    let database = Database::open(Config { freeze_after: None, block_bytes: 1, ..Config::default() });
    let mut first = database.engine.begin();
    (0..300).for_each(|a| database.insert(&mut first, a));
    let _ = first.commit().unwrap();
    let mut change = database.engine.begin();
    let ids = database
        .run(
            "Output [#5]
               Scan 1 t [#0 a: int4 not null = 1, #5: int8 not null = -1] where [(#0 < 100::int4)]",
            &change,
        )
        .unwrap();
    assert_eq!(ids.len(), 100);
    for id in ids {
        let Value::BigInt(bits) = id[0] else { panic!("ids are numbers") };
        change.delete(&database.table, firn_base::RowId::from_bits(bits as u64), &pin()).unwrap();
    }
    assert_eq!(database.run(COUNT, &change).unwrap(), [[Value::BigInt(200)]]);
    change.rollback();
    let after = database.engine.begin_read_only();
    assert_eq!(database.run(COUNT, &after).unwrap(), [[Value::BigInt(300)]]);
}

#[test]
fn blocks_that_are_frozen_and_compact_give_the_same_rows() {
    let config = Config {
        freeze_after: Some(Duration::ZERO),
        compact_after: Some(Duration::ZERO),
        block_bytes: 1,
        ..Config::default()
    };
    let database = Database::open(config);
    let mut first = database.engine.begin();
    (0..3000).for_each(|a| database.insert(&mut first, a));
    let _ = first.commit().unwrap();
    for round in 0..3 {
        let reading = database.engine.begin_read_only();
        let rows = database
            .run(
                "Output [#0, #2]
                   Sort [#0]
                     Scan 1 t [#0 a: int4 not null = 1, #1 b: int4 = 2, #2 c: text = 3] where [(#1 = 7::int4), (#0 > 1000::int4)]",
                &reading,
            )
            .unwrap();
        let expected: Vec<Vec<Value>> = (1001..3000)
            .filter(|a| a % 10 == 7 && a % 4 != 0)
            .map(|a| vec![Value::Integer(a), Value::Text(format!("the text of row {a}"))])
            .collect();
        assert_eq!(rows, expected, "round {round}");
        reading.rollback();
        database.engine.freeze(Duration::ZERO);
        database.engine.compact(Duration::ZERO);
    }
}

/// A serializable transaction that has read under a condition and then writes fails exactly if another one has changed what it read.
#[test]
fn what_a_scan_reads_is_validated_and_no_more() {
    let conditioned = |condition: &str, columns: &str| {
        format!(
            "Output {columns}
               Scan 1 t [#0 a: int4 not null = 1, #1 b: int4 = 2] where [{condition}]"
        )
    };
    let cases = [
        // The other one inserts 1004, whose b is NULL, or 1007, whose b is 7.
        (conditioned("(#0 > 1000::int4)", "[#0]"), 1004, true),
        (conditioned("(#0 < 1000::int4)", "[#0]"), 1004, false),
        (conditioned("(#1 = 7::int4)", "[#0]"), 1007, true),
        (conditioned("(#1 = 7::int4)", "[#0]"), 1004, false),
        (conditioned("(#1 is null)", "[#0]"), 1004, true),
        (conditioned("(#1 = any [1::int4, 7::int4])", "[#0]"), 1007, true),
        (conditioned("(#1 = any [1::int4, 2::int4])", "[#0]"), 1007, false),
        (conditioned("((#0 + #1) = 3::int4)", "[]"), 1007, true),
        (conditioned("(#0 > 1000::int4), ((#0 + #1) = 3::int4)", "[]"), 999, false),
    ];
    for (plan, inserted, conflicts) in cases {
        let database = Database::open(Config { freeze_after: None, ..Config::default() });
        let mut first = database.engine.begin();
        (0..20).for_each(|a| database.insert(&mut first, a));
        let _ = first.commit().unwrap();
        let mut reading = database.engine.begin();
        database.run(&plan, &reading).unwrap();
        let mut other = database.engine.begin();
        database.insert(&mut other, inserted);
        let _ = other.commit().unwrap();
        database.insert(&mut reading, 5000);
        let result = reading.commit();
        assert_eq!(result.is_err(), conflicts, "{plan}");
        if let Err(error) = result {
            assert_eq!(error.state(), SqlState::SERIALIZATION_FAILURE);
        }
    }
}

/// What the planner gets to know of a table: rows, keys without columns that may be NULL, foreign keys that are not deferrable.
#[test]
fn the_planner_learns_keys_indexes_and_references_of_tables() {
    let database = Database::open(Config { freeze_after: None, ..Config::default() });
    let mut first = database.engine.begin();
    (0..20).for_each(|a| database.insert(&mut first, a));
    let _ = first.commit().unwrap();
    let index = |columns: &[u16], unique| IndexDef {
        oid: database.engine.allocate_oid(),
        name: String::new(),
        columns: columns
            .iter()
            .map(|column| IndexColumnDef { column: *column, descending: false, nulls_first: false })
            .collect(),
        unique,
        values: true,
        deferral: Deferral::Never,
    };
    let parent = database.engine.allocate_oid();
    let reference = |deferral| ConstraintDef {
        oid: database.engine.allocate_oid(),
        name: String::new(),
        kind: ConstraintKind::ForeignKey {
            columns: vec![1],
            parent,
            parent_columns: vec![0],
            on_delete: ReferentialAction::NoAction,
            on_update: ReferentialAction::NoAction,
            deferral,
        },
        valid: true,
    };
    let definition = TableDef {
        indexes: vec![index(&[0], true), index(&[1], true), index(&[1, 0], false)],
        constraints: vec![reference(Deferral::InitiallyImmediate), reference(Deferral::Never)],
        ..(*database.definition).clone()
    };
    let database = Database { definition: Arc::new(definition), ..database };
    let facts = SourceFacts::new(&database);
    let source = SourceId(1);
    assert_eq!(facts.rows(source), 20.0);
    assert_eq!(facts.keys(source), [[1]], "b may be NULL");
    assert_eq!((facts.distinct(source, 1), facts.distinct(source, 3)), (Some(20.0), None));
    let indexes: Vec<Vec<i16>> = facts.indexes(source).into_iter().map(|index| index.attributes).collect();
    assert_eq!(indexes, [vec![1], vec![2], vec![2, 1]]);
    let references = facts.references(source);
    assert_eq!(references.len(), 1);
    assert_eq!(references[0].relation, parent.0);
    assert_eq!(facts.relation(source), Some(database.definition.oid.0));
}
