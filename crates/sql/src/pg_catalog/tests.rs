//! The queries of psql and of drivers, as they send them, over a small catalog.

use super::{relation_names, types};
use crate::parse::parse_one;
use crate::query::Prepared;
use crate::run::RunOptions;
use crate::session_facts::SessionFacts;
use firn_base::sync::Arc;
use firn_base::{Cancel, SqlType, TextStyle, text};
use firn_query::{ResultChunk, ResultColumn};
use firn_txn::catalog::{
    ColumnDef, ConstraintDef, ConstraintKind, Deferral, Identity, IndexColumnDef, IndexDef, Oid,
    ReferentialAction, SchemaDef, SequenceDef, TableDef, TableSettings, ViewDef,
};
use firn_txn::{Catalog, Config, Engine};
use firn_vector::Datum;
use std::collections::HashSet;

fn column(name: &str, ty: SqlType, not_null: bool, default: Option<&str>) -> ColumnDef {
    ColumnDef {
        name: name.to_owned(),
        ty: ty.into(),
        not_null,
        default: default.map(str::to_owned),
        identity: None,
        generated: None,
        hidden: false,
        dropped: false,
    }
}

fn index(oid: u32, name: &str, columns: &[(u16, bool)], unique: bool) -> IndexDef {
    let column = |&(column, descending)| IndexColumnDef { column, descending, nulls_first: descending };
    let columns = columns.iter().map(column).collect();
    IndexDef {
        oid: Oid(oid),
        name: name.to_owned(),
        columns,
        unique,
        nulls_not_distinct: false,
        values: true,
        deferral: Deferral::Never,
        condition: None,
        internal: false,
        annotations: Default::default(),
    }
}

fn constraint(oid: u32, name: &str, kind: ConstraintKind) -> ConstraintDef {
    ConstraintDef { oid: Oid(oid), name: name.to_owned(), kind, valid: true }
}

/// Two tables with every kind of constraint, a view, and a sequence with each kind of owner.
fn catalog() -> Catalog {
    let schema = |oid: Oid, name: &str| (oid, Arc::new(SchemaDef { oid, name: name.to_owned() }));
    let parent = TableDef {
        oid: Oid(16384),
        schema: Oid::PUBLIC,
        name: "parent".to_owned(),
        columns: vec![
            column("id", SqlType::Integer, true, Some("nextval('parent_id_seq')")),
            column("name", SqlType::Varchar(Some(20)), true, None),
            column("price", SqlType::Numeric { precision: 12, scale: 2 }, false, Some("0")),
        ],
        constraints: vec![
            constraint(16385, "parent_pkey", ConstraintKind::PrimaryKey { index: Oid(16386) }),
            constraint(16387, "parent_name_key", ConstraintKind::Unique { index: Oid(16388) }),
            constraint(
                16389,
                "parent_price_check",
                ConstraintKind::Check { expression: "price >= 0".to_owned() },
            ),
        ],
        indexes: vec![
            index(16386, "parent_pkey", &[(0, false)], true),
            index(16388, "parent_name_key", &[(1, false)], true),
        ],
        storage: 1,
        settings: TableSettings::default(),
    };
    let mut identity = column("b", SqlType::BigInt, true, None);
    identity.identity = Some(Identity::Always);
    let child = TableDef {
        oid: Oid(16390),
        schema: Oid::PUBLIC,
        name: "child".to_owned(),
        columns: vec![
            column("a", SqlType::Integer, true, None),
            identity,
            column("p", SqlType::Integer, false, None),
            column("t", SqlType::Text, false, Some("'x'")),
            column("ts", SqlType::TimestampTz, false, Some("now()")),
        ],
        constraints: vec![
            constraint(16391, "child_pkey", ConstraintKind::PrimaryKey { index: Oid(16392) }),
            constraint(
                16393,
                "child_p_fkey",
                ConstraintKind::ForeignKey {
                    columns: vec![2],
                    parent: Oid(16384),
                    parent_columns: vec![0],
                    on_delete: ReferentialAction::Cascade,
                    on_update: ReferentialAction::NoAction,
                    on_delete_columns: Vec::new(),
                    match_full: false,
                    deferral: Deferral::InitiallyDeferred,
                },
            ),
        ],
        indexes: vec![
            index(16392, "child_pkey", &[(0, false), (1, false)], true),
            index(16413, "child_p", &[(2, true), (3, false)], false),
        ],
        storage: 2,
        settings: TableSettings::default(),
    };
    let view = ViewDef {
        oid: Oid(16414),
        schema: Oid::PUBLIC,
        name: "v".to_owned(),
        columns: vec![column("id", SqlType::Integer, false, None)],
        query: "SELECT id FROM public.parent WHERE price > 1".to_owned(),
    };
    let sequence = |oid: u32, name: &str, owner| SequenceDef {
        oid: Oid(oid),
        schema: Oid::PUBLIC,
        name: name.to_owned(),
        ty: SqlType::BigInt,
        start: 1,
        increment: 1,
        minimum: 1,
        maximum: i64::MAX,
        cycle: false,
        cache: 1,
        owner,
        is_identity: false,
    };
    let sequences = [
        sequence(16416, "parent_id_seq", Some((Oid(16384), 0))),
        sequence(16417, "child_b_seq", Some((Oid(16390), 1))),
        sequence(16418, "sq", None),
    ];
    Catalog {
        version: 1,
        schemas: [schema(Oid::PUBLIC, "public")].into(),
        tables: [(parent.oid, Arc::new(parent)), (child.oid, Arc::new(child))].into(),
        views: [(view.oid, Arc::new(view))].into(),
        sequences: sequences.into_iter().map(|sequence| (sequence.oid, Arc::new(sequence))).collect(),
        comments: Default::default(),
    }
}

/// Runs a query and returns its rows, `|` between columns.
fn try_query(sql: &str) -> Result<Vec<String>, String> {
    let facts = Arc::new(SessionFacts::default());
    let rows = || -> firn_base::Result<Vec<String>> {
        let engine = Engine::open(Config::default())?;
        let mut transaction = engine.begin();
        *transaction.catalog_mut()? = catalog();
        let statement = parse_one(sql)?.expect("it is a statement");
        let prepared = Prepared::new(&statement, &[], &transaction, &facts, &Cancel::new())?;
        let options = RunOptions { threads: 1, ..RunOptions::default() };
        let mut stream = prepared.start(&transaction, &facts, &[], &options)?;
        let columns = stream.columns().clone();
        let mut rows = Vec::new();
        while let Some(chunk) = stream.next()? {
            rows.extend(rows_of(&chunk, &columns));
        }
        Ok(rows)
    };
    rows().map_err(|error| format!("{error:?}"))
}

fn rows_of(chunk: &ResultChunk, columns: &[ResultColumn]) -> Vec<String> {
    let cell = |row: usize, place: usize| {
        let shown = chunk.text(place).map(|texts| texts.datum(row));
        let mut out = String::new();
        match shown {
            Some(Datum::Text(text)) => out.push_str(text),
            _ => {
                let ty = columns[place].ty;
                let value = chunk.values.vectors()[place].datum(row).to_value(ty);
                text::write_any(&value, ty, &TextStyle::DEFAULT, &mut out);
            }
        }
        out
    };
    let line = |row: usize| (0..columns.len()).map(|place| cell(row, place)).collect::<Vec<_>>().join("|");
    (0..chunk.rows()).map(line).collect()
}

fn query(sql: &str) -> Vec<String> {
    try_query(sql).unwrap()
}

/// Runs every query of a file; each ends with `;` at the end of a line.
fn all_run(file: &str) {
    let queries = file.split(";\n").map(str::trim).filter(|sql| !sql.is_empty());
    let failed = queries.filter_map(|sql| try_query(sql).err().map(|error| format!("{sql}\n  => {error}")));
    let failures: Vec<String> = failed.collect();
    assert!(failures.is_empty(), "{} queries failed:\n\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn the_queries_behind_psql_commands_run() {
    all_run(include_str!("tests/psql.sql"));
}

#[test]
fn the_queries_of_sqlalchemy_reflection_run() {
    all_run(include_str!("tests/sqlalchemy.sql"));
}

#[test]
fn the_queries_of_pgjdbc_metadata_run() {
    all_run(include_str!("tests/pgjdbc.sql"));
}

#[test]
fn lists_expand_to_elements_and_positions() {
    let sql = "SELECT k.n, a.attname FROM pg_index i \
               CROSS JOIN LATERAL information_schema._pg_expandarray(i.indkey) AS k \
               JOIN pg_attribute a ON a.attnum = k.x AND a.attrelid = i.indrelid \
               WHERE i.indexrelid = 'child_p'::regclass ORDER BY 1";
    assert_eq!(query(sql), ["1|p", "2|t"]);
    // Vectors begin at 0.
    let sql = "SELECT indoption[0], indkey[1] FROM (SELECT * FROM pg_index) i \
               WHERE indexrelid = 'child_p'::regclass";
    assert_eq!(query(sql), ["3|4"]);
}

#[test]
fn series_may_have_computed_bounds() {
    let sql = "SELECT s.r, (current_schemas(false))[s.r] \
               FROM generate_series(1, array_upper(current_schemas(false), 1)) AS s(r)";
    assert_eq!(query(sql), ["1|public"]);
}

#[test]
fn keywords_are_listed() {
    let sql = "SELECT word FROM pg_catalog.pg_get_keywords() \
               WHERE word <> ALL ('{select,\"null\"}'::text[]) AND word = ANY ('{select,ilike}'::text[])";
    assert_eq!(query(sql), ["ilike"]);
}

#[test]
fn every_relation_can_be_read() {
    for schema in ["pg_catalog", "information_schema"] {
        for relation in relation_names(schema) {
            try_query(&format!("SELECT * FROM {schema}.{relation}")).unwrap();
        }
    }
}

#[test]
fn definitions_are_shown_as_sql() {
    assert_eq!(
        query("SELECT pg_catalog.pg_get_constraintdef(oid, true) FROM pg_constraint ORDER BY oid"),
        [
            "PRIMARY KEY (id)",
            "UNIQUE (name)",
            "CHECK (price >= 0::numeric)",
            "PRIMARY KEY (a, b)",
            "FOREIGN KEY (p) REFERENCES parent(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED",
        ]
    );
    assert_eq!(
        query("SELECT pg_get_indexdef('child_p'::regclass), pg_get_indexdef(16413, 2, true)"),
        ["CREATE INDEX child_p ON public.child USING btree (p DESC, t)|t"]
    );
    assert_eq!(
        query("SELECT pg_get_viewdef('v'), pg_get_serial_sequence('parent', 'id')"),
        [" SELECT id FROM public.parent WHERE price > 1;|public.parent_id_seq"]
    );
}

#[test]
fn oid_types_are_names_where_they_are_shown_and_numbers_elsewhere() {
    assert_eq!(query("SELECT 'child'::regclass"), ["child"]);
    assert_eq!(query("SELECT 'public.child'::regclass::oid"), ["16390"]);
    assert_eq!(query("SELECT relname FROM pg_class WHERE oid = 'child'::regclass"), ["child"]);
    assert_eq!(
        query("SELECT 1043::regtype::text, to_regtype('int4'), '{int4,text}'::regtype[]"),
        ["character varying|integer|{integer,text}"]
    );
    assert_eq!(query("SELECT 'pg_class'::regclass::oid"), ["1259"]);
    assert!(try_query("SELECT 'nothing'::regclass::oid").unwrap_err().contains("does not exist"));
}

#[test]
fn columns_are_described() {
    let sql = "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute \
               WHERE attrelid = 'parent'::regclass ORDER BY attnum";
    assert_eq!(query(sql), ["id|integer|t", "name|character varying(20)|t", "price|numeric(12,2)|f"]);
    let sql = "SELECT column_name, data_type, character_maximum_length, numeric_scale \
               FROM information_schema.columns WHERE table_name = 'parent' ORDER BY ordinal_position";
    assert_eq!(query(sql), ["id|integer||0", "name|character varying|20|", "price|numeric||2"]);
}

#[test]
fn like_takes_any_escape_character() {
    assert_eq!(query("SELECT 'a_c' LIKE 'a/_c' ESCAPE '/', 'abc' LIKE 'a/_c' ESCAPE '/'"), ["t|f"]);
    assert_eq!(query("SELECT 'a\\c' LIKE 'a\\c' ESCAPE '', 'a%' LIKE 'a!%' ESCAPE '!'"), ["t|t"]);
}

#[test]
fn schemas_on_the_search_path_are_listed() {
    assert_eq!(query("SELECT 'public' = ANY (current_schemas(true))"), ["t"]);
}

#[test]
fn what_types_and_functions_refer_to_is_there() {
    let functions = query("SELECT oid FROM pg_proc");
    let functions: HashSet<i64> = functions.iter().map(|oid| oid.parse().expect("an oid")).collect();
    for ty in types::all() {
        for function in
            [ty.input, ty.output, ty.receive, ty.send, ty.modifier_input, ty.modifier_output, ty.subscript]
        {
            assert!(function == 0 || functions.contains(&function), "{} names function {function}", ty.name);
        }
        for other in [ty.element, ty.array] {
            assert!(other == 0 || types::numbered(other).is_some(), "{} names type {other}", ty.name);
        }
    }
    let missing = "SELECT o.oid FROM pg_operator o LEFT JOIN pg_proc p ON p.oid = o.oprcode \
                   LEFT JOIN pg_type t ON t.oid = o.oprright WHERE p.oid IS NULL OR t.oid IS NULL";
    assert_eq!(query(missing), [""; 0]);
    let sql = "SELECT count(*) > 1000 FROM pg_proc UNION ALL SELECT count(*) > 100 FROM pg_cast \
               UNION ALL SELECT count(*) > 400 FROM pg_operator UNION ALL SELECT count(*) > 50 FROM pg_aggregate";
    assert_eq!(query(sql), ["t", "t", "t", "t"]);
}

/// The results are those of PostgreSQL 15.
#[test]
fn functions_and_operators_have_names() {
    assert_eq!(
        query(
            "SELECT 'lower(text)'::regprocedure, 'now'::regproc, 'abs(integer)'::regprocedure::oid::regproc"
        ),
        ["lower(text)|now|pg_catalog.abs"]
    );
    assert_eq!(
        query("SELECT '+(integer,integer)'::regoperator, '-(NONE,int8)'::regoperator, '\"C\"'::regcollation"),
        ["+(integer,integer)|-(NONE,bigint)|\"C\""]
    );
    assert_eq!(
        query("SELECT to_regproc('abs'), to_regproc('nix'), to_regprocedure('abs(int4)')"),
        ["||abs(integer)"]
    );
    assert!(try_query("SELECT 'abs'::regproc").unwrap_err().contains("more than one function named"));
    assert_eq!(
        query("SELECT oidvectortypes(proargtypes), proargtypes::regtype[] FROM pg_proc WHERE oid = 877"),
        ["text, integer, integer|[0:2]={text,integer,integer}"]
    );
    assert_eq!(
        query("SELECT pg_get_function_result(2308), pg_get_function_arguments(877)"),
        ["double precision|text, integer, integer"]
    );
}

#[test]
fn vectors_begin_at_0_and_are_written_with_blanks() {
    let sql = "SELECT indkey, array_lower(indkey, 1), indkey[0], indkey::int2[], indkey::text FROM pg_index \
               WHERE indexrelid = 'child_p'::regclass";
    assert_eq!(query(sql), ["3 4|0|3|[0:1]={3,4}|3 4"]);
    assert_eq!(query("SELECT '1 2 3'::int2vector, ('10 20'::oidvector)[1]"), ["1 2 3|20"]);
}

/// The results are those of PostgreSQL 15.
#[test]
fn values_become_json() {
    let sql = "SELECT json_build_object('a', 1, 'b', true, 'c', NULL, 'd', 'x\"y', 'e', 1.50, 'f', ARRAY[1,2], \
               'g', '{\"h\":1}'::json)";
    let json = "{\"a\" : 1, \"b\" : true, \"c\" : null, \"d\" : \"x\\\"y\", \"e\" : 1.50, \"f\" : [1,2], \"g\" : {\"h\":1}}";
    assert_eq!(query(sql), [json]);
    let sql = "SELECT json_build_array(1, 'a', 'NaN'::float8), to_json(timestamp '2030-01-02 03:04:05'), \
               to_json(ARRAY[[1],[2]])";
    assert_eq!(query(sql), ["[1, \"a\", \"NaN\"]|\"2030-01-02T03:04:05\"|[[1],[2]]"]);
}
