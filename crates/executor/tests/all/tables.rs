//! Plans over tables of the transaction engine: snapshots, own changes, deleted rows, and what is logged for validation.

use crate::registry::REGISTRY;
use crate::support::{MODES, aligned, options, text};
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, Result, SqlState, SqlType, TableId, Value};
use firn_executor::arrays::vector_of;
use firn_executor::source::Request;
use firn_executor::values::value;
use firn_executor::{Budget, Program, Reader, Rows, Source, SourceFacts, Sources, TableSource};
use firn_plan::Operator;
use firn_plan::operator::SourceId;
use firn_plan::statistics::Statistics;
use firn_plan::text::parse;
use firn_storage::{BlockState, BlockUsage, ColumnSpec, IndexColumn, IndexSpec, Table};
use firn_txn::catalog::{
    ColumnDef, ConstraintDef, ConstraintKind, Deferral, IndexColumnDef, IndexDef, ReferentialAction,
    TableDef, TableSettings,
};
use firn_txn::{Config, Engine, Progress, Transaction, pin};
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
        let column = |(name, ty): (&str, SqlType)| ColumnDef {
            name: name.to_owned(),
            ty: ty.into(),
            not_null: name == "a",
            default: None,
            identity: None,
            generated: None,
            hidden: false,
            dropped: false,
        };
        let definition = Arc::new(TableDef {
            oid: engine.allocate_oid(),
            schema: engine.allocate_oid(),
            name: "t".to_owned(),
            columns: ["a", "b", "c"].into_iter().zip(types).map(column).collect(),
            constraints: Vec::new(),
            indexes: Vec::new(),
            storage: id.0,
            settings: TableSettings::default(),
        });
        // Blocks of tables that the catalog does not have are left alone.
        setup.catalog_mut().unwrap().tables.insert(definition.oid, definition.clone());
        let _ = setup.commit().unwrap();
        Database { engine, table, definition }
    }

    /// With indexes on these columns.
    fn with_indexes(self, indexes: &[(&[u16], bool)]) -> Database {
        let mut build = self.engine.begin();
        let mut definitions = Vec::new();
        for (columns, unique) in indexes {
            let definition = IndexDef {
                oid: self.engine.allocate_oid(),
                name: format!("i{columns:?}"),
                // The last of several columns is the other way round.
                columns: columns
                    .iter()
                    .enumerate()
                    .map(|(place, column)| IndexColumnDef {
                        column: *column,
                        descending: place > 0 && place + 1 == columns.len(),
                        nulls_first: place > 0 && place + 1 == columns.len(),
                    })
                    .collect(),
                unique: *unique,
                nulls_not_distinct: false,
                values: true,
                deferral: Deferral::Never,
                condition: None,
                internal: false,
                annotations: Default::default(),
            };
            let part = |column: &IndexColumnDef| {
                let spec = &self.table.columns()[usize::from(column.column)];
                IndexColumn {
                    column: ColumnId(column.column),
                    representation: spec.representation,
                    nullable: spec.nullable,
                    descending: column.descending,
                    nulls_first: column.nulls_first,
                }
            };
            let spec = IndexSpec {
                id: definition.id(),
                name: definition.name.clone(),
                columns: definition.columns.iter().map(part).collect(),
                unique: *unique,
                equal_nulls_from: None,
                values: true,
            };
            build.create_index(&self.table, spec, 1).unwrap();
            definitions.push(definition);
        }
        let _ = build.commit().unwrap();
        let definition = TableDef { indexes: definitions, ..(*self.definition).clone() };
        Database { definition: Arc::new(definition), ..self }
    }

    /// All rows that a transaction sees.
    fn all_rows(&self, transaction: &Transaction) -> Vec<Vec<Value>> {
        let columns = [ColumnId(0), ColumnId(1), ColumnId(2)];
        let scan = self.table.scan(transaction.snapshot(), &columns, false);
        let mut rows = Vec::new();
        while let Some(batch) = scan.next_batch(&pin()) {
            let columns = batch.columns.iter().zip(self.table.columns());
            let vectors: Vec<_> =
                columns.map(|(array, column)| (vector_of(array, column.representation), column)).collect();
            for row in 0..batch.rows {
                let values = vectors.iter();
                rows.push(
                    values.map(|(vector, column)| value(vector.datum(row), column.representation)).collect(),
                );
            }
        }
        rows
    }

    /// How many rows a scan gives before its conditions are asked.
    fn given(&self, plan: &str, parameters: &[Value], transaction: &Transaction) -> usize {
        let plan = parse(&aligned(plan), &*REGISTRY).unwrap();
        let Operator::Scan(scan) = &plan[plan.root] else { panic!("the plan is a scan") };
        let program = Program::compile(&plan, &REGISTRY).unwrap();
        let judges = program.scans()[0].judges.iter();
        let judges: Vec<_> =
            judges.map(|planned| (planned.attribute, planned.judge(&[], &Budget::new(1 << 30)))).collect();
        let request = Request {
            columns: &scan.columns,
            used: 0,
            conditions: &scan.conditions,
            judges: &judges,
            parameters,
            all: &plan.columns,
            workers: 1,
        };
        let reader = Reader { snapshot: transaction.snapshot(), transaction: None };
        let morsels = self.source(scan.source).open(&request, reader).unwrap().morsels();
        let mut rows = 0;
        while let Some(chunk) = morsels.next().unwrap() {
            rows += chunk.count();
        }
        rows
    }

    /// Has blocks be frozen and made compact until so many are.
    fn compact(&self, blocks: usize) {
        let is_compact = |usage: &BlockUsage| usage.state == BlockState::Compact;
        // A round waits for the guards of its time, also for those of other tests.
        while self.table.block_usage().filter(is_compact).count() < blocks {
            self.engine.collect();
            while self.engine.freeze(Duration::ZERO) != Progress::Done {
                pin().flush();
                std::thread::yield_now();
            }
            self.engine.compact(Duration::ZERO);
        }
    }

    fn insert(&self, transaction: &mut Transaction, a: i32) {
        let text = format!("the text of row {a}");
        let b = if a % 4 == 0 { Cell::Null } else { Cell::i32(a % 10) };
        transaction.insert(&self.table, &[Cell::i32(a), b, Cell::text(&text)], &pin()).unwrap();
    }

    fn run(&self, plan: &str, transaction: &Transaction) -> Result<Vec<Vec<Value>>> {
        let plan = parse(&aligned(plan), &*REGISTRY).unwrap();
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
    let config = Config { freeze_after: None, compact_after: None, block_bytes: 1, ..Config::default() };
    let database = Database::open(config);
    let mut first = database.engine.begin();
    (0..3000).for_each(|a| database.insert(&mut first, a));
    let _ = first.commit().unwrap();
    for round in 0..2 {
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
        // All but the one that takes new rows.
        database.compact(2);
    }
}

/// Conditions that are judged once for each value of a dictionary: of compact blocks a scan gives the rows that meet them.
#[test]
fn rows_whose_values_are_judged_not_to_meet_a_condition_are_passed_over() {
    let config = Config { freeze_after: None, compact_after: None, block_bytes: 1, ..Config::default() };
    let database = Database::open(config);
    let mut first = database.engine.begin();
    for a in 0..5000 {
        let colour = format!("The Colour {}", a % 8);
        let cells = [Cell::i32(a), Cell::Null, Cell::text(&colour)];
        first.insert(&database.table, &cells, &pin()).unwrap();
    }
    let _ = first.commit().unwrap();
    let plan = "Output [#0]
       Scan 1 t [#0 a: int4 not null = 1, #2 c: text = 3] where [(lower(#2) = 'the colour 3'::text)]";
    let reading = database.engine.begin_read_only();
    assert_eq!(database.given(plan, &[], &reading), 5000, "blocks without a dictionary");
    reading.rollback();
    database.compact(3);
    let mut left = 0;
    for usage in database.table.block_usage() {
        left += if usage.state == BlockState::Compact { usage.rows / 8 } else { usage.rows };
    }
    let reading = database.engine.begin_read_only();
    let given = database.given(plan, &[], &reading);
    assert!(given.abs_diff(left as usize) <= 5, "{given} rows instead of about {left} of 5000");
    let plan = "Output [#0]
       Sort [#0]
         Scan 1 t [#0 a: int4 not null = 1, #2 c: text = 3] where [(lower(#2) = 'the colour 3'::text)]";
    assert_eq!(database.run(plan, &reading).unwrap().len(), 625);
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

/// The facts that the planner gets about a table: rows, keys without columns that may be NULL, foreign keys that are not deferrable.
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
        nulls_not_distinct: false,
        values: true,
        deferral: Deferral::Never,
        condition: None,
        internal: false,
        annotations: Default::default(),
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
            on_delete_columns: Vec::new(),
            match_full: false,
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
    let reading = database.engine.begin_read_only();
    let context = detached();
    let facts = SourceFacts::new(&database, reading.snapshot(), &REGISTRY, &context);
    let source = SourceId(1);
    assert_eq!(facts.rows(source), 20.0);
    assert_eq!(facts.keys(source), [[1]], "b may be NULL");
    assert_eq!(facts.distinct(source, &[1]), Some(20.0));
    let indexes: Vec<Vec<i16>> = facts.indexes(source).into_iter().map(|index| index.attributes).collect();
    assert_eq!(indexes, [vec![1], vec![2], vec![2, 1]]);
    let references = facts.references(source);
    assert_eq!(references.len(), 1);
    assert_eq!(references[0].relation, parent.0);
    assert_eq!(facts.relation(source), Some(database.definition.oid.0));
}

/// A sample of a table of 50,000 rows says how many distinct values its columns have, and which share of it meets conditions.
#[test]
fn a_sample_of_a_table_gives_estimates() {
    let database = Database::open(Config { freeze_after: None, ..Config::default() });
    let empty = database.engine.begin_read_only();
    let context = detached();
    let facts = SourceFacts::new(&database, empty.snapshot(), &REGISTRY, &context);
    assert_eq!(facts.distinct(SourceId(1), &[2]), None, "there is nothing to take a sample of");
    let mut first = database.engine.begin();
    (0..50_000).for_each(|a| database.insert(&mut first, a));
    let _ = first.commit().unwrap();
    let reading = database.engine.begin_read_only();
    let facts = SourceFacts::new(&database, reading.snapshot(), &REGISTRY, &context);
    let is_about = |found: f64, expected: f64| found > expected * 0.8 && found < expected * 1.25;
    let all = database.all_rows(&reading);
    for attributes in [&[1][..], &[2], &[3], &[2, 3]] {
        let values = |row: &Vec<Value>| -> String {
            format!("{:?}", attributes.iter().map(|it| &row[*it as usize - 1]).collect::<Vec<_>>())
        };
        let exact = all.iter().map(values).collect::<std::collections::HashSet<_>>().len() as f64;
        let found = facts.distinct(SourceId(1), attributes).unwrap();
        assert!(is_about(found, exact), "{attributes:?}: {found} instead of {exact}");
    }
    for (conditions, expected) in [
        ("(#0 < 10000::int4)", 0.2),
        ("(#0 >= 25000::int4), (#0 < 30000::int4)", 0.1),
        ("(#0 < 0::int4)", 0.5 / 1024.0),
    ] {
        let plan = format!("Output [#0]\n  Scan 1 t [#0 a: int4 = 1] where [{conditions}]");
        let plan = parse(&plan, &*REGISTRY).unwrap();
        let Operator::Scan(scan) = &plan[plan.root] else { panic!("the plan is a scan") };
        let conditions: Vec<_> = scan.conditions.iter().collect();
        let found = facts.share(scan, &conditions, &plan.columns).unwrap();
        assert!(is_about(found, expected), "{conditions:?}: {found} instead of {expected}");
    }
}

/// Equalities, ranges and lists lead to the rows under a few keys, with values of parameters and of integers of other widths.
#[test]
fn a_scan_reads_by_an_index_that_its_conditions_fit() {
    let database = Database::open(Config { freeze_after: None, ..Config::default() });
    let mut first = database.engine.begin();
    (0..5000).for_each(|a| database.insert(&mut first, a));
    let _ = first.commit().unwrap();
    let database = database.with_indexes(&[(&[0], true), (&[1, 0], false), (&[2], false)]);
    let reading = database.engine.begin_read_only();
    let cases: [(&str, &[Value], usize); 13] = [
        ("(#0 = 77::int4)", &[], 1),
        ("(77::int4 = #0)", &[], 1),
        ("(#0 = $1::int4)", &[Value::Integer(78)], 1),
        ("(#0 = $1::int4)", &[Value::Null], 0),
        ("(#0 = any [1::int4, 5::int4, 1::int4, null::int4])", &[], 2),
        ("(#0 < 20::int4), (#0 >= 10::int4)", &[], 10),
        ("(#0 > 4990::int4), (#0 > 100::int4)", &[], 9),
        ("(#1 = 7::int4), (#0 > 4900::int4)", &[], 10),
        ("(#1 = any [3::int4, 7::int4]), (#0 < 100::int4)", &[], 20),
        ("(#2 = 'the text of row 9'::text)", &[], 1),
        // Too many.
        ("(#1 = 7::int4)", &[], 5000),
        ("(#0 > 100::int4)", &[], 5000),
        ("((#0 + 1::int4) = 78::int4)", &[], 5000),
    ];
    for (conditions, parameters, rows) in cases {
        let plan = format!(
            "Output [#0]
               Scan 1 t [#0 a: int4 not null = 1, #1 b: int4 = 2, #2 c: text = 3] where [{conditions}]"
        );
        assert_eq!(database.given(&plan, parameters, &reading), rows, "{conditions}");
    }
}

/// Random conditions give the rows that they give without indexes, in a snapshot among changes that it does not see.
#[test]
fn indexes_do_not_change_what_random_conditions_give() {
    let database = Database::open(Config { freeze_after: None, block_bytes: 1, ..Config::default() });
    let mut first = database.engine.begin();
    (0..600).for_each(|a| database.insert(&mut first, a));
    let _ = first.commit().unwrap();
    let plain = Arc::new(TableDef { indexes: Vec::new(), ..(*database.definition).clone() });
    let database = database.with_indexes(&[(&[0], true), (&[1, 0], false), (&[1, 2], false)]);
    let reading = database.engine.begin_read_only();
    let mut change = database.engine.begin();
    (600..700).for_each(|a| database.insert(&mut change, a));
    let ids = database.run("Output [#5]\n  Scan 1 t [#5: int8 not null = -1]", &change).unwrap();
    for id in ids.iter().step_by(3) {
        let Value::BigInt(bits) = id[0] else { panic!("ids are numbers") };
        change.delete(&database.table, firn_base::RowId::from_bits(bits as u64), &pin()).unwrap();
    }
    let _ = change.commit().unwrap();
    let without =
        Database { engine: database.engine.clone(), table: database.table.clone(), definition: plain };
    let (mut random, mut found) = (Random::seeded(11), 0);
    for _ in 0..300 {
        let mut conditions = Vec::new();
        for _ in 0..random.uniform(1, 3) {
            let column = random.uniform(0, 1);
            let most = if column == 0 { 700 } else { 11 };
            let mut value = || match random.uniform(0, 12) {
                0 => "null::int4".to_owned(),
                _ => format!("{}::int4", random.uniform(-1, most)),
            };
            let (one, two, three) = (value(), value(), value());
            conditions.push(match random.uniform(0, 6) {
                0 | 1 => format!("(#{column} = {one})"),
                2 => format!("(#{column} < {one})"),
                3 => format!("(#{column} >= {one})"),
                4 => format!("({one} < #{column})"),
                _ => format!("(#{column} = any [{one}, {two}, {three}])"),
            });
        }
        let plan = format!(
            "Output [#0, #1, #2]
               Sort [#0]
                 Scan 1 t [#0 a: int4 not null = 1, #1 b: int4 = 2, #2 c: text = 3] where [{}]",
            conditions.join(", ")
        );
        let rows = database.run(&plan, &reading).unwrap();
        assert_eq!(rows, without.run(&plan, &reading).unwrap(), "{plan}");
        found += usize::from(!rows.is_empty());
    }
    assert!(found > 100, "{found} found rows");
}

/// As `what_a_scan_reads_is_validated_and_no_more`, where an index finds the rows.
#[test]
fn what_an_index_finds_is_validated_and_no_more() {
    let cases = [
        ("(#0 = 1004::int4)", "[#0]", 1004, true),
        ("(#0 = 1004::int4)", "[#0]", 1005, false),
        ("(#0 = 1007::int4), (#1 = 3::int4)", "[#0]", 1007, false),
        ("(#0 = any [1::int4, 1007::int4])", "[#1]", 1007, true),
        ("(#0 > 1000::int4)", "[#0]", 1004, true),
        ("(#0 > 1000::int4), (#0 < 1004::int4)", "[#0]", 1004, false),
        ("(#1 = 7::int4), (#0 > 1000::int4)", "[#0]", 1007, true),
        ("(#1 = 7::int4), (#0 > 1000::int4)", "[#0]", 1005, false),
        ("(#0 = null::int4)", "[#0]", 1005, false),
    ];
    for (conditions, columns, inserted, conflicts) in cases {
        let database = Database::open(Config { freeze_after: None, ..Config::default() });
        let mut first = database.engine.begin();
        (0..20).for_each(|a| database.insert(&mut first, a));
        let _ = first.commit().unwrap();
        let database = database.with_indexes(&[(&[0], true), (&[1, 0], false)]);
        let plan = format!(
            "Output {columns}
               Scan 1 t [#0 a: int4 not null = 1, #1 b: int4 = 2] where [{conditions}]"
        );
        let mut reading = database.engine.begin();
        database.run(&plan, &reading).unwrap();
        let mut other = database.engine.begin();
        database.insert(&mut other, inserted);
        let _ = other.commit().unwrap();
        database.insert(&mut reading, 5000);
        assert_eq!(reading.commit().is_err(), conflicts, "{conditions}");
    }
}

/// A join by an index gives what it gives without, and each key that it looks up is logged, those of rows that are not there too.
#[test]
fn an_index_join_looks_keys_up_and_logs_each() {
    let joined = |kind: &str, by: &str, values: &str| {
        format!(
            "Output [#9]
               Join {kind} {by} on [(#0 = #9)]
                 Values [#9: int8] rows [{values}]
                 Scan 1 t [#0 a: int4 not null = 1, #1 b: int4 = 2] where [(#1 < 9::int4)]"
        )
    };
    let keys = "(5::int8), (13::int8), (1003::int8), (null::int8), (8::int8), (5000000000::int8)";
    for kind in ["inner", "left", "semi", "anti", "single"] {
        let database = Database::open(Config { freeze_after: None, ..Config::default() });
        let mut first = database.engine.begin();
        (0..20).for_each(|a| database.insert(&mut first, a));
        let _ = first.commit().unwrap();
        let database = database.with_indexes(&[(&[0, 1], false), (&[0], true)]);
        let reading = database.engine.begin_read_only();
        let found = database.run(&joined(kind, "by [1]", keys), &reading).unwrap();
        let mut expected = database.run(&joined(kind, "", keys), &reading).unwrap();
        let mut found: Vec<String> = found.iter().map(|row| text(row)).collect();
        found.sort();
        let mut expected: Vec<String> = expected.drain(..).map(|row| text(&row)).collect();
        expected.sort();
        assert_eq!(found, expected, "{kind}");
        let rows = match kind {
            // b of row 8 is NULL.
            "inner" | "semi" => 2,
            "anti" => 4,
            _ => 6,
        };
        assert_eq!(found.len(), rows, "{kind}");
    }
    for (inserted, conflicts) in [(1003, true), (1005, false), (1009, false)] {
        let database = Database::open(Config { freeze_after: None, ..Config::default() });
        let mut first = database.engine.begin();
        (0..20).for_each(|a| database.insert(&mut first, a));
        let _ = first.commit().unwrap();
        let database = database.with_indexes(&[(&[0], true)]);
        let mut reading = database.engine.begin();
        // What another row would have to be to change the result: b is 3, or 9, which the scan's condition excludes.
        let keys = "(5::int8), (1003::int8), (1009::int8)";
        database.run(&joined("left", "by [1]", keys), &reading).unwrap();
        let mut other = database.engine.begin();
        database.insert(&mut other, inserted);
        let _ = other.commit().unwrap();
        database.insert(&mut reading, 5000);
        assert_eq!(reading.commit().is_err(), conflicts, "{inserted}");
    }
}
