//! The rows of `pg_catalog`'s relations, one function each.

use super::definitions::{Object, action_name, number};
use super::{
    Cell, DATABASE, OWNER, Row, Source, activity, comments, facts, relation, replication, script, types,
};
use crate::ddl::columns_in;
use crate::operator_classes;
use firn_base::Type;
use firn_query::catalog::SEQUENCE_COLUMNS;
use firn_txn::catalog::ColumnType;
use firn_txn::catalog::{
    ColumnDef, ConstraintDef, ConstraintKind, Deferral, IndexColumnDef, IndexDef, Oid, ReferentialAction,
    TableDef,
};

/// The access methods: PostgreSQL's oids of `heap` and `btree`.
const HEAP: i64 = 2;
pub(super) const BTREE: i64 = 403;

/// The catalog `pg_class` itself, as `pg_depend` names it.
pub(super) const PG_CLASS: i64 = 1259;

/// The tablespace that holds everything.
const TABLESPACE: i64 = 1663;

/// PostgreSQL's number for UTF8.
const UTF8: i64 = 6;

/// The function that makes the rows of a relation; `None` for relations that are always empty.
pub(crate) fn of(relation: &str) -> Option<fn(&Source) -> Vec<Row>> {
    Some(match relation {
        "pg_aggregate" => facts::pg_aggregate,
        "pg_am" => pg_am,
        "pg_attrdef" => pg_attrdef,
        "pg_attribute" => pg_attribute,
        "pg_authid" | "pg_roles" => pg_roles,
        "pg_cast" => facts::pg_cast,
        "pg_class" => pg_class,
        "pg_collation" => facts::pg_collation,
        "pg_constraint" => pg_constraint,
        "pg_database" => pg_database,
        "pg_depend" => pg_depend,
        "pg_description" => comments::pg_description,
        "pg_index" => pg_index,
        "pg_indexes" => pg_indexes,
        "pg_language" => facts::pg_language,
        "pg_namespace" => pg_namespace,
        "pg_opclass" => facts::pg_opclass,
        "pg_operator" => facts::pg_operator,
        "pg_opfamily" => facts::pg_opfamily,
        "pg_proc" => facts::pg_proc,
        "pg_sequence" => pg_sequence,
        "pg_shdescription" => comments::pg_shdescription,
        "pg_sequences" => pg_sequences,
        "firn_blocks" => activity::firn_blocks,
        "firn_dump" => script::firn_dump,
        "firn_replication" => replication::firn_replication,
        "firn_voters" => replication::firn_voters,
        "firn_stat_aborts" => activity::firn_stat_aborts,
        "firn_stat_commit_latency" => activity::firn_stat_commit_latency,
        "firn_stat_engine" => activity::firn_stat_engine,
        "firn_stat_progress_copy" => activity::firn_stat_progress_copy,
        "firn_stat_tables" => activity::firn_stat_tables,
        "firn_stat_transactions" => activity::firn_stat_transactions,
        "pg_cursors" => activity::pg_cursors,
        "pg_prepared_statements" => activity::pg_prepared_statements,
        "pg_locks" => activity::pg_locks,
        "pg_settings" => activity::pg_settings,
        "pg_stat_activity" => activity::pg_stat_activity,
        "pg_stat_all_indexes" | "pg_stat_user_indexes" => pg_stat_user_indexes,
        "pg_stat_all_tables" | "pg_stat_user_tables" => activity::pg_stat_user_tables,
        "pg_stat_archiver" => activity::pg_stat_archiver,
        "pg_stat_bgwriter" => activity::pg_stat_bgwriter,
        "pg_stat_database_conflicts" => activity::pg_stat_database_conflicts,
        "pg_stat_progress_copy" => activity::pg_stat_progress_copy,
        "pg_stat_replication" => replication::pg_stat_replication,
        "pg_stat_ssl" => activity::pg_stat_ssl,
        "pg_stat_wal" => activity::pg_stat_wal,
        "pg_stat_wal_receiver" => replication::pg_stat_wal_receiver,
        "pg_stat_database" => activity::pg_stat_database,
        "pg_tables" => pg_tables,
        "pg_tablespace" => pg_tablespace,
        "pg_timezone_abbrevs" => facts::pg_timezone_abbrevs,
        "pg_timezone_names" => facts::pg_timezone_names,
        "pg_type" => facts::pg_type,
        "pg_shadow" | "pg_user" => pg_user,
        "pg_views" => pg_views,
        _ => return None,
    })
}

/// A row as `vec![(column, cell), …]`.
macro_rules! row {
    ($($column:literal: $value:expr),* $(,)?) => {
        vec![$(($column, Cell::from($value))),*]
    };
}
pub(crate) use row;

/// PostgreSQL counts columns from 1.
pub(crate) fn attribute_number(position: u16) -> i64 {
    i64::from(position) + 1
}

fn attribute_numbers(positions: &[u16]) -> Vec<i64> {
    positions.iter().map(|position| attribute_number(*position)).collect()
}

/// The default as shown in the catalogs; that of an identity column is not shown.
pub(crate) fn shown_default(column: &ColumnDef) -> Option<&str> {
    column.default.as_deref().filter(|_| column.identity.is_none())
}

/// The expression of a column in `pg_attrdef`: its default, or its generation expression.
fn defining_expression(column: &ColumnDef) -> Option<&str> {
    column.generated.as_deref().or_else(|| shown_default(column))
}

fn pg_namespace(source: &Source) -> Vec<Row> {
    let row = |(oid, name): (Oid, &str)| row! { "oid": number(oid), "nspname": name, "nspowner": OWNER };
    source.schemas().map(row).collect()
}

fn pg_class(source: &Source) -> Vec<Row> {
    let row = |object: Object<'_>| {
        let (kind, method, columns) = match &object {
            Object::Table(table) => ("r", HEAP, table.columns.iter().filter(|column| !column.hidden).count()),
            Object::Index(_, index) => ("i", BTREE, index_attributes(index).count()),
            Object::View(view) => ("v", 0, view.columns.len()),
            Object::Sequence(_) => ("S", 0, 3),
            Object::System(_, relation) => {
                (relation.relkind, if relation.relkind == "r" { HEAP } else { 0 }, relation.columns.len())
            }
        };
        let mut row = row! {
            "oid": object.oid(),
            "relname": object.name(),
            "relnamespace": number(object.schema()),
            "relowner": OWNER,
            "relam": method,
            "relfilenode": if matches!(kind, "r" | "i" | "S") { object.oid() } else { 0 },
            // The number of rows is unknown without a scan.
            "reltuples": -1.0,
            "relpersistence": "p",
            "relkind": kind,
            "relnatts": columns as i64,
            "relhasrules": kind == "v",
            "relispopulated": true,
            "relreplident": if kind == "r" { "d" } else { "n" },
        };
        if let Object::Index(_, index) = &object {
            let options = crate::ddl::parameter::index_options(index);
            if !options.is_empty() {
                row.push(("reloptions", Cell::Texts(options)));
            }
        }
        if let Object::Table(table) = &object {
            let is_check =
                |constraint: &&ConstraintDef| matches!(constraint.kind, ConstraintKind::Check { .. });
            let checks = table.constraints.iter().filter(is_check).count();
            let options = crate::ddl::parameter::options(&table.settings);
            if !options.is_empty() {
                row.push(("reloptions", Cell::Texts(options)));
            }
            row.push(("relchecks", Cell::Integer(checks as i64)));
            row.push(("relhasindex", Cell::Boolean(table.visible_indexes().next().is_some())));
            // PostgreSQL checks foreign keys by triggers, and psql asks for foreign keys only of tables
            // with triggers.
            let is_reference = |constraint: &ConstraintDef| match constraint.kind {
                ConstraintKind::ForeignKey { parent, .. } => Some(parent),
                _ => None,
            };
            let refers = table.constraints.iter().any(|constraint| is_reference(constraint).is_some());
            let is_referred_to = source
                .catalog
                .tables
                .values()
                .flat_map(|table| &table.constraints)
                .any(|constraint| is_reference(constraint) == Some(table.oid));
            row.push(("relhastriggers", Cell::Boolean(refers || is_referred_to)));
        }
        row
    };
    source.objects().map(row).collect()
}

fn pg_attribute(source: &Source) -> Vec<Row> {
    let mut rows = Vec::new();
    for object in source.objects() {
        match &object {
            Object::Table(table) => {
                let shown = table.columns.iter().enumerate().filter(|(_, column)| !column.hidden);
                for (position, column) in shown {
                    rows.push(attribute(object.oid(), position, column));
                }
            }
            Object::View(view) => {
                for (position, column) in view.columns.iter().enumerate() {
                    rows.push(attribute(object.oid(), position, column));
                }
            }
            Object::Index(table, index) => {
                let names = index_column_names(table, index);
                for ((position, column), name) in index_attributes(index).enumerate().zip(names) {
                    let column = &table.columns[usize::from(column)];
                    let column = ColumnDef {
                        name,
                        not_null: false,
                        default: None,
                        identity: None,
                        generated: None,
                        hidden: false,
                        dropped: false,
                        ..column.clone()
                    };
                    rows.push(attribute(object.oid(), position, &column));
                }
            }
            Object::Sequence(_) => {
                for (position, (name, ty)) in SEQUENCE_COLUMNS.into_iter().enumerate() {
                    let column = ColumnDef { not_null: true, ..plain_column(name, Type::new(ty)) };
                    rows.push(attribute(object.oid(), position, &column));
                }
            }
            Object::System(_, relation) => {
                for (position, column) in relation.columns.iter().enumerate() {
                    rows.push(attribute(object.oid(), position, &plain_column(column.name, column.ty)));
                }
            }
        }
    }
    rows
}

/// A column of a computed relation.
pub(crate) fn plain_column(name: &str, ty: Type) -> ColumnDef {
    ColumnDef {
        name: name.to_owned(),
        ty: ColumnType::new(ty).expect("its type is one of values"),
        not_null: false,
        default: None,
        identity: None,
        generated: None,
        hidden: false,
        dropped: false,
    }
}

fn attribute(relation: i64, position: usize, column: &ColumnDef) -> Row {
    let ty = types::of(column.ty.declared);
    let number = position as i64 + 1;
    row! {
        "attrelid": relation,
        "attname": match column.dropped {
            true => format!("........pg.dropped.{number}........"),
            false => column.name.clone(),
        },
        "atttypid": if column.dropped { 0 } else { ty.oid },
        "attstattarget": -1,
        "attlen": ty.length,
        "attnum": number,
        "attcacheoff": -1,
        "atttypmod": i64::from(column.ty.declared.modifier),
        "attbyval": ty.by_value,
        "attalign": ty.alignment.to_string(),
        "attstorage": ty.storage.to_string(),
        "attcompression": "",
        "attnotnull": column.not_null,
        "atthasdef": defining_expression(column).is_some(),
        "attidentity": match column.identity {
            None => "",
            Some(firn_txn::catalog::Identity::Always) => "a",
            Some(firn_txn::catalog::Identity::ByDefault) => "d",
        },
        "attgenerated": if column.generated.is_some() { "s" } else { "" },
        "attisdropped": column.dropped,
        "attislocal": true,
        "attcollation": ty.collation,
    }
}

fn pg_attrdef(source: &Source) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in source.catalog.tables.values() {
        for (column, definition) in table.visible_columns() {
            if let Some(default) = defining_expression(definition) {
                rows.push(row! {
                    // Defaults have no oid of their own here; this one is unique among them.
                    "oid": number(table.oid) * 2_000 % i64::from(i32::MAX) + attribute_number(column.0),
                    "adrelid": number(table.oid),
                    "adnum": attribute_number(column.0),
                    "adbin": default,
                });
            }
        }
    }
    rows
}

/// Every index with its table.
fn indexes(source: &Source) -> impl Iterator<Item = (&TableDef, &IndexDef)> {
    source
        .catalog
        .tables
        .values()
        .flat_map(|table| table.visible_indexes().map(move |index| (table.as_ref(), index)))
}

/// The columns of the key, then the included ones.
fn index_attributes(index: &IndexDef) -> impl Iterator<Item = u16> {
    let key = index.key_columns().iter().map(|column| column.column);
    key.chain(index.annotations.include.iter().copied())
}

/// The names of the columns of an index, as a relation.
fn index_column_names(table: &TableDef, index: &IndexDef) -> Vec<String> {
    let name = |column: u16| match &table.columns[usize::from(column)] {
        ColumnDef { hidden: true, generated: Some(text), .. } => crate::ddl::expression_name(text),
        column => column.name.clone(),
    };
    crate::ddl::distinct_names(index_attributes(index).map(name).collect())
}

/// The expressions of an index, in their stored form.
pub(crate) fn index_expressions<'t>(table: &'t TableDef, index: &IndexDef) -> Vec<&'t str> {
    let definition = |column: &IndexColumnDef| &table.columns[usize::from(column.column)];
    let hidden = index.key_columns().iter().map(definition).filter(|column| column.hidden);
    hidden.filter_map(|column| column.generated.as_deref()).collect()
}

fn pg_index(source: &Source) -> Vec<Row> {
    let row = |(table, index): (&TableDef, &IndexDef)| {
        let columns: Vec<u16> = index_attributes(index).collect();
        let key = &columns[..index.key_columns().len()];
        let types = key.iter().map(|column| table.columns[usize::from(*column)].ty.declared);
        let class = |(position, ty)| {
            let named = index.annotations.class(position).and_then(operator_classes::named);
            named.map_or_else(|| operator_classes::default_of(ty), |class| class.oid)
        };
        let classes: Vec<i64> = types.clone().enumerate().map(class).collect();
        let collations: Vec<i64> = types.map(|ty| i64::from(ty.collation.0)).collect();
        // PostgreSQL's flags: 1 for DESC, 2 for NULLS FIRST.
        let flags = index
            .key_columns()
            .iter()
            .map(|column| i64::from(column.descending) + 2 * i64::from(column.nulls_first));
        let expressions = index_expressions(table, index);
        let number_of = |column: &u16| match table.columns[usize::from(*column)].hidden {
            true => 0,
            false => attribute_number(*column),
        };
        let numbers: Vec<i64> = columns.iter().map(number_of).collect();
        row! {
            "indexrelid": number(index.oid),
            "indrelid": number(table.oid),
            "indnatts": columns.len() as i64,
            "indnkeyatts": key.len() as i64,
            "indisunique": index.unique,
            "indnullsnotdistinct": index.nulls_not_distinct,
            "indisprimary": table.primary_key().is_some_and(|primary| primary.oid == index.oid),
            "indimmediate": index.deferral == Deferral::Never,
            "indisvalid": true,
            "indisready": true,
            "indislive": true,
            "indkey": numbers,
            "indexprs": (!expressions.is_empty()).then(|| expressions.join(", ")),
            "indpred": index.condition.as_deref(),
            "indcollation": collations,
            "indclass": classes,
            "indoption": flags.collect::<Vec<_>>(),
        }
    };
    indexes(source).map(row).collect()
}

fn pg_constraint(source: &Source) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in source.catalog.tables.values() {
        for constraint in &table.constraints {
            let deferral = table.deferral(constraint);
            let mut row = row! {
                "oid": number(constraint.oid),
                "conname": constraint.name.as_str(),
                "connamespace": number(table.schema),
                "condeferrable": deferral != Deferral::Never,
                "condeferred": deferral == Deferral::InitiallyDeferred,
                "convalidated": constraint.valid,
                "conrelid": number(table.oid),
                "confupdtype": " ",
                "confdeltype": " ",
                "confmatchtype": " ",
                "conislocal": true,
                "connoinherit": true,
            };
            row.extend(match &constraint.kind {
                ConstraintKind::PrimaryKey { index } | ConstraintKind::Unique { index } => {
                    let primary = matches!(constraint.kind, ConstraintKind::PrimaryKey { .. });
                    let definition = table.indexes.iter().find(|candidate| candidate.oid == *index);
                    let columns: Vec<u16> = definition.map_or_else(Vec::new, |index| {
                        index.columns.iter().map(|column| column.column).collect()
                    });
                    row! {
                        "contype": if primary { "p" } else { "u" },
                        "conindid": number(*index),
                        "conkey": attribute_numbers(&columns),
                    }
                }
                ConstraintKind::Check { expression } => {
                    let parsed = crate::parse::parse_expression(expression);
                    let columns = parsed.map_or_else(|_| Vec::new(), |parsed| columns_in(table, &parsed));
                    let mut check =
                        row! { "contype": "c", "conbin": expression.as_str(), "connoinherit": false };
                    if !columns.is_empty() {
                        check.extend(row! { "conkey": attribute_numbers(&columns) });
                    }
                    check
                }
                ConstraintKind::ForeignKey {
                    columns,
                    parent,
                    parent_columns,
                    on_delete,
                    on_delete_columns,
                    on_update,
                    match_full,
                    ..
                } => {
                    let mut key = row! {
                        "contype": "f",
                        "confrelid": number(*parent),
                        "conindid": parent_index(source, *parent, parent_columns),
                        "confupdtype": action_letter(*on_update),
                        "confdeltype": action_letter(*on_delete),
                        "confmatchtype": if *match_full { "f" } else { "s" },
                        "conkey": attribute_numbers(columns),
                        "confkey": attribute_numbers(parent_columns),
                    };
                    if !on_delete_columns.is_empty() {
                        key.extend(row! { "confdelsetcols": attribute_numbers(on_delete_columns) });
                    }
                    key
                }
            });
            rows.push(row);
        }
    }
    rows
}

/// The unique index that a foreign key depends on.
pub(crate) fn parent_index(source: &Source, parent: Oid, columns: &[u16]) -> i64 {
    let covers = |index: &&IndexDef| {
        index.is_always_unique()
            && index.columns.len() == columns.len()
            && index.columns.iter().all(|column| columns.contains(&column.column))
    };
    let table = source.catalog.tables.get(&parent);
    table.and_then(|table| table.indexes.iter().find(covers)).map_or(0, |index| number(index.oid))
}

fn action_letter(action: ReferentialAction) -> &'static str {
    match action {
        ReferentialAction::NoAction => "a",
        ReferentialAction::Restrict => "r",
        ReferentialAction::Cascade => "c",
        ReferentialAction::SetNull => "n",
        ReferentialAction::SetDefault => "d",
    }
}

fn pg_sequence(source: &Source) -> Vec<Row> {
    let row = |sequence: &firn_txn::catalog::SequenceDef| {
        row! {
            "seqrelid": number(sequence.oid),
            "seqtypid": i64::from(sequence.ty.oid()),
            "seqstart": sequence.start,
            "seqincrement": sequence.increment,
            "seqmax": sequence.maximum,
            "seqmin": sequence.minimum,
            "seqcache": sequence.cache,
            "seqcycle": sequence.cycle,
        }
    };
    source.catalog.sequences.values().map(|sequence| row(sequence)).collect()
}

fn pg_sequences(source: &Source) -> Vec<Row> {
    let row = |sequence: &firn_txn::catalog::SequenceDef| {
        row! {
            "schemaname": source.schema_name(sequence.schema),
            "sequencename": sequence.name.as_str(),
            "sequenceowner": source.facts.user.as_str(),
            "data_type": i64::from(sequence.ty.oid()),
            "start_value": sequence.start,
            "min_value": sequence.minimum,
            "max_value": sequence.maximum,
            "increment_by": sequence.increment,
            "cycle": sequence.cycle,
            "cache_size": sequence.cache,
        }
    };
    source.catalog.sequences.values().map(|sequence| row(sequence)).collect()
}

/// Dependencies: only those of sequences on the columns that own them.
fn pg_depend(source: &Source) -> Vec<Row> {
    let mut rows = Vec::new();
    for sequence in source.catalog.sequences.values() {
        let Some((table, column)) = sequence.owner else { continue };
        let identity = source
            .catalog
            .tables
            .get(&table)
            .is_some_and(|table| table.columns[usize::from(column)].identity.is_some());
        rows.push(row! {
            "classid": PG_CLASS,
            "objid": number(sequence.oid),
            "refclassid": PG_CLASS,
            "refobjid": number(table),
            "refobjsubid": attribute_number(column),
            "deptype": if identity { "i" } else { "a" },
        });
    }
    rows
}

fn pg_am(_: &Source) -> Vec<Row> {
    vec![
        row! { "oid": HEAP, "amname": "heap", "amtype": "t" },
        row! { "oid": BTREE, "amname": "btree", "amtype": "i" },
    ]
}

fn pg_database(source: &Source) -> Vec<Row> {
    vec![row! {
        "oid": DATABASE,
        "datname": source.facts.database.as_str(),
        "datdba": OWNER,
        "encoding": UTF8,
        "datlocprovider": "c",
        "datallowconn": true,
        "datconnlimit": -1,
        "dattablespace": TABLESPACE,
        "datcollate": "C",
        "datctype": "C.UTF-8",
    }]
}

fn pg_roles(source: &Source) -> Vec<Row> {
    vec![row! {
        "oid": OWNER,
        "rolname": source.facts.user.as_str(),
        "rolsuper": true,
        "rolinherit": true,
        "rolcreaterole": true,
        "rolcreatedb": true,
        "rolcanlogin": true,
        "rolreplication": false,
        "rolbypassrls": true,
        "rolconnlimit": -1,
    }]
}

fn pg_user(source: &Source) -> Vec<Row> {
    vec![row! {
        "usename": source.facts.user.as_str(),
        "usesysid": OWNER,
        "usecreatedb": true,
        "usesuper": true,
        "usebypassrls": true,
    }]
}

fn pg_tablespace(_: &Source) -> Vec<Row> {
    vec![row! { "oid": TABLESPACE, "spcname": "pg_default", "spcowner": OWNER }]
}

fn pg_tables(source: &Source) -> Vec<Row> {
    let user = source.catalog.tables.values().map(|table| {
        row! {
            "schemaname": source.schema_name(table.schema),
            "tablename": table.name.as_str(),
            "tableowner": source.facts.user.as_str(),
            "hasindexes": table.visible_indexes().next().is_some(),
        }
    });
    let system = relation::all().iter().filter(|relation| relation.relkind == "r").map(|relation| {
        row! {
            "schemaname": "pg_catalog",
            "tablename": relation.name,
            "tableowner": source.facts.user.as_str(),
        }
    });
    user.chain(system).collect()
}

fn pg_views(source: &Source) -> Vec<Row> {
    let row = |view: &firn_txn::catalog::ViewDef| {
        row! {
            "schemaname": source.schema_name(view.schema),
            "viewname": view.name.as_str(),
            "viewowner": source.facts.user.as_str(),
            "definition": crate::ddl::view::shown_query(view),
        }
    };
    source.catalog.views.values().map(|view| row(view)).collect()
}

fn pg_indexes(source: &Source) -> Vec<Row> {
    let row = |(table, index): (&TableDef, &IndexDef)| {
        row! {
            "schemaname": source.schema_name(table.schema),
            "tablename": table.name.as_str(),
            "indexname": index.name.as_str(),
            "indexdef": source.index_definition(table, index),
        }
    };
    indexes(source).map(row).collect()
}

/// The use of indexes is not counted: a client that looks for unused indexes must not find all of them.
fn pg_stat_user_indexes(source: &Source) -> Vec<Row> {
    let row = |(table, index): (&TableDef, &IndexDef)| {
        row! {
            "relid": number(table.oid),
            "indexrelid": number(index.oid),
            "schemaname": source.schema_name(table.schema),
            "relname": table.name.as_str(),
            "indexrelname": index.name.as_str(),
        }
    };
    indexes(source).map(row).collect()
}

/// The action on UPDATE or DELETE, in the words of `information_schema`.
pub(crate) fn action_rule(action: ReferentialAction) -> &'static str {
    action_name(action).unwrap_or("NO ACTION")
}
