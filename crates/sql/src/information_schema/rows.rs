//! The rows of `information_schema`'s relations, one function each.

use super::functions::{datetime_precision, interval_type, numeric_precision, numeric_scale, octet_length};
use crate::pg_catalog::rows::{action_rule, parent_index, plain_column, row, shown_default};
use crate::pg_catalog::{Cell, Row, Source, deparse};
use firn_base::{Type, TypeId};
use firn_txn::catalog::{ColumnDef, ConstraintDef, ConstraintKind, Deferral, Identity, Oid, TableDef};

/// The function that makes the rows of a relation; `None` for relations that are always empty.
pub(crate) fn of(relation: &str) -> Option<fn(&Source) -> Vec<Row>> {
    Some(match relation {
        "applicable_roles" => applicable_roles,
        "character_sets" => character_sets,
        "check_constraints" => check_constraints,
        "column_privileges" | "role_column_grants" => column_privileges,
        "column_column_usage" => column_column_usage,
        "columns" => columns,
        "constraint_column_usage" => constraint_column_usage,
        "constraint_table_usage" => constraint_table_usage,
        "enabled_roles" => enabled_roles,
        "information_schema_catalog_name" => catalog_name,
        "key_column_usage" => key_column_usage,
        "referential_constraints" => referential_constraints,
        "schemata" => schemata,
        "sequences" => sequences,
        "sql_features" => sql_features,
        "sql_implementation_info" => sql_implementation_info,
        "table_constraints" => table_constraints,
        "table_privileges" | "role_table_grants" => table_privileges,
        "tables" => tables,
        "views" => views,
        _ => return None,
    })
}

/// The standard's booleans.
fn yes_or_no(value: bool) -> &'static str {
    if value { "YES" } else { "NO" }
}

fn database(source: &Source) -> &str {
    &source.facts.database
}

fn catalog_name(source: &Source) -> Vec<Row> {
    vec![row! { "catalog_name": database(source) }]
}

fn enabled_roles(source: &Source) -> Vec<Row> {
    vec![row! { "role_name": source.facts.user.as_str() }]
}

fn applicable_roles(_: &Source) -> Vec<Row> {
    // There are no roles that a user could be a member of.
    Vec::new()
}

fn character_sets(source: &Source) -> Vec<Row> {
    vec![row! {
        "character_set_name": "UTF8",
        "character_repertoire": "UCS",
        "form_of_use": "UTF8",
        "default_collate_catalog": database(source),
        "default_collate_schema": "pg_catalog",
        "default_collate_name": "C",
    }]
}

/// Features of the SQL standard by their numbers, and whether they are supported: as in the manual of the dialect, in the standard's
/// words. PostgreSQL lists more.
fn sql_features(_: &Source) -> Vec<Row> {
    let row = |line: &'static str| {
        let mut fields = line.split('\t');
        let mut field = || fields.next().expect("a line has three fields");
        row! {
            "feature_id": field(),
            "feature_name": field(),
            "sub_feature_id": "",
            "sub_feature_name": "",
            "is_supported": field(),
        }
    };
    include_str!("features.tsv").lines().map(row).collect()
}

/// The properties of the implementation that the SQL standard requires.
fn sql_implementation_info(_: &Source) -> Vec<Row> {
    let number = |id: &str, name: &str, value: i64| {
        row! { "implementation_info_id": id, "implementation_info_name": name, "integer_value": value }
    };
    let text = |id: &str, name: &str, value: &str| {
        row! { "implementation_info_id": id, "implementation_info_name": name, "character_value": value }
    };
    vec![
        number("10003", "CATALOG NAME", 1),
        text("10004", "COLLATING SEQUENCE", "C"),
        number("23", "CURSOR COMMIT BEHAVIOR", 1),
        text("2", "DATA SOURCE NAME", ""),
        text("17", "DBMS NAME", "FirnDB"),
        text("18", "DBMS VERSION", env!("CARGO_PKG_VERSION")),
        // Serializable.
        number("26", "DEFAULT TRANSACTION ISOLATION", 8),
        // Names are folded to lower case.
        number("28", "IDENTIFIER CASE", 3),
        number("85", "NULL COLLATION", 0),
        text("13", "SERVER NAME", ""),
        text("94", "SPECIAL CHARACTERS", ""),
        number("46", "TRANSACTION CAPABLE", 2),
    ]
}

/// The names of tables and views with their schemas and their columns.
fn relations(source: &Source) -> impl Iterator<Item = (Oid, &str, &[ColumnDef])> {
    let catalog = &source.catalog;
    let tables = catalog.tables.values().map(|table| (table.schema, table.name.as_str(), &table.columns[..]));
    let views = catalog.views.values().map(|view| (view.schema, view.name.as_str(), &view.columns[..]));
    tables.chain(views)
}

/// A privilege that the owner of a relation has, as every user is its owner.
fn privilege(source: &Source, schema: Oid, relation: &str, privilege: &str) -> Row {
    let user = source.facts.user.as_str();
    row! {
        "grantor": user,
        "grantee": user,
        "table_catalog": database(source),
        "table_schema": source.schema_name(schema),
        "table_name": relation,
        "privilege_type": privilege,
        "is_grantable": "YES",
    }
}

fn column_privileges(source: &Source) -> Vec<Row> {
    let mut rows = Vec::new();
    for (schema, relation, columns) in relations(source) {
        for column in columns.iter().filter(|column| !column.dropped && !column.hidden) {
            for name in ["SELECT", "INSERT", "UPDATE", "REFERENCES"] {
                let mut row = privilege(source, schema, relation, name);
                row.extend(row! { "column_name": column.name.as_str() });
                rows.push(row);
            }
        }
    }
    rows
}

fn table_privileges(source: &Source) -> Vec<Row> {
    let mut rows = Vec::new();
    for (schema, relation, _) in relations(source) {
        for name in ["INSERT", "SELECT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"] {
            let mut row = privilege(source, schema, relation, name);
            row.extend(row! { "with_hierarchy": yes_or_no(name == "SELECT") });
            rows.push(row);
        }
    }
    rows
}

fn schemata(source: &Source) -> Vec<Row> {
    let row = |(_, name): (Oid, &str)| {
        row! {
            "catalog_name": database(source),
            "schema_name": name,
            "schema_owner": source.facts.user.as_str(),
        }
    };
    source.schemas().map(row).collect()
}

fn tables(source: &Source) -> Vec<Row> {
    let row = |schema: Oid, name: &str, kind: &'static str| {
        row! {
            "table_catalog": database(source),
            "table_schema": source.schema_name(schema),
            "table_name": name,
            "table_type": kind,
            "is_insertable_into": yes_or_no(kind == "BASE TABLE"),
            "is_typed": "NO",
        }
    };
    let catalog = &source.catalog;
    let mut rows: Vec<Row> =
        catalog.tables.values().map(|table| row(table.schema, &table.name, "BASE TABLE")).collect();
    rows.extend(catalog.views.values().map(|view| row(view.schema, &view.name, "VIEW")));
    for (schema, relations) in
        [(Oid::PG_CATALOG, crate::pg_catalog::relation::all()), (Oid::INFORMATION_SCHEMA, super::all())]
    {
        let kind = |relkind| if relkind == "r" { "BASE TABLE" } else { "VIEW" };
        rows.extend(relations.iter().map(|relation| row(schema, relation.name, kind(relation.relkind))));
    }
    rows
}

fn views(source: &Source) -> Vec<Row> {
    let row = |view: &firn_txn::catalog::ViewDef| {
        row! {
            "table_catalog": database(source),
            "table_schema": source.schema_name(view.schema),
            "table_name": view.name.as_str(),
            "view_definition": crate::ddl::view::shown_query(view),
            "check_option": "NONE",
            "is_updatable": "NO",
            "is_insertable_into": "NO",
            "is_trigger_updatable": "NO",
            "is_trigger_deletable": "NO",
            "is_trigger_insertable_into": "NO",
        }
    };
    source.catalog.views.values().map(|view| row(view)).collect()
}

fn columns(source: &Source) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in source.catalog.tables.values() {
        for (position, definition) in table.visible_columns() {
            let place = usize::from(position.0);
            let mut row = column_row(source, table.schema, &table.name, place, definition, true);
            if definition.generated.is_some() {
                let expression = deparse::generated(source, table, definition, false);
                row.push(("generation_expression", expression.into()));
            }
            if definition.identity.is_some() {
                row.extend(identity(source, table, position.0));
            }
            rows.push(row);
        }
    }
    for view in source.catalog.views.values() {
        for (position, definition) in view.columns.iter().enumerate() {
            rows.push(column_row(source, view.schema, &view.name, position, definition, false));
        }
    }
    for (schema, relations) in
        [(Oid::PG_CATALOG, crate::pg_catalog::relation::all()), (Oid::INFORMATION_SCHEMA, super::all())]
    {
        for relation in relations {
            for (position, column) in relation.columns.iter().enumerate() {
                let definition = plain_column(column.name, column.ty);
                rows.push(column_row(source, schema, relation.name, position, &definition, false));
            }
        }
    }
    rows
}

/// The columns that generated columns use.
fn column_column_usage(source: &Source) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in source.catalog.tables.values() {
        for (_, dependent) in table.visible_columns() {
            let expression = dependent.generated.as_deref().map(crate::parse::parse_expression);
            let Some(Ok(expression)) = expression else { continue };
            for column in crate::ddl::columns_in(table, &expression) {
                rows.push(row! {
                    "table_catalog": database(source),
                    "table_schema": source.schema_name(table.schema),
                    "table_name": table.name.as_str(),
                    "column_name": table.columns[usize::from(column)].name.as_str(),
                    "dependent_column": dependent.name.as_str(),
                });
            }
        }
    }
    rows
}

/// The columns about the sequence of an identity column.
fn identity(source: &Source, table: &TableDef, column: u16) -> Row {
    let Some(sequence) = source.catalog.identity_sequence(table.oid, column) else {
        return Vec::new();
    };
    row! {
        "identity_start": sequence.start.to_string(),
        "identity_increment": sequence.increment.to_string(),
        "identity_maximum": sequence.maximum.to_string(),
        "identity_minimum": sequence.minimum.to_string(),
        "identity_cycle": yes_or_no(sequence.cycle),
    }
}

fn column_row(
    source: &Source,
    schema: Oid,
    relation: &str,
    position: usize,
    column: &ColumnDef,
    updatable: bool,
) -> Row {
    let mut row = row! {
        "table_catalog": database(source),
        "table_schema": source.schema_name(schema),
        "table_name": relation,
        "column_name": column.name.as_str(),
        "ordinal_position": position as i64 + 1,
        "column_default": shown_default(column)
            .map(|text| deparse::default(source, &column.name, column.ty.declared, text, false)),
        "is_nullable": yes_or_no(!column.not_null),
        "data_type": bare_name(column.ty.declared),
        "udt_catalog": database(source),
        "udt_schema": "pg_catalog",
        "udt_name": column.ty.declared.info().map_or("", |info| info.name),
        "dtd_identifier": (position + 1).to_string(),
        "is_self_referencing": "NO",
        "is_identity": yes_or_no(column.identity.is_some()),
        "identity_generation": column.identity.map(|identity| match identity {
            Identity::Always => "ALWAYS",
            Identity::ByDefault => "BY DEFAULT",
        }),
        "identity_cycle": "NO",
        "is_generated": if column.generated.is_some() { "ALWAYS" } else { "NEVER" },
        "is_updatable": yes_or_no(updatable),
    };
    row.extend(sizes(column.ty.declared));
    row
}

/// The type without its modifiers.
fn bare_name(ty: Type) -> &'static str {
    match ty.info() {
        Some(info) if info.is_array() => "ARRAY",
        Some(info) => info.sql_name,
        None => "USER-DEFINED",
    }
}

/// The columns about the sizes of values of a type.
fn sizes(ty: Type) -> Row {
    let number = |size: Option<i32>| size.map(i64::from);
    let precision = number(numeric_precision(ty));
    let radix = match ty.id {
        TypeId::NUMERIC => Some(10),
        _ => precision.map(|_| 2),
    };
    row! {
        "character_maximum_length": ty.length().map(i64::from),
        "character_octet_length": number(octet_length(ty)),
        "numeric_precision": precision,
        "numeric_precision_radix": radix,
        "numeric_scale": number(numeric_scale(ty)),
        "datetime_precision": number(datetime_precision(ty)),
        "interval_type": interval_type(ty),
    }
}

fn sequences(source: &Source) -> Vec<Row> {
    let row = |sequence: &firn_txn::catalog::SequenceDef| {
        row! {
            "sequence_catalog": database(source),
            "sequence_schema": source.schema_name(sequence.schema),
            "sequence_name": sequence.name.as_str(),
            "data_type": sequence.ty.to_string(),
            "numeric_precision": i64::from(sequence.ty.typlen()) * 8,
            "numeric_precision_radix": 2,
            "start_value": sequence.start.to_string(),
            "minimum_value": sequence.minimum.to_string(),
            "maximum_value": sequence.maximum.to_string(),
            "increment": sequence.increment.to_string(),
            "cycle_option": yes_or_no(sequence.cycle),
        }
    };
    source.catalog.sequences.values().map(|sequence| row(sequence)).collect()
}

/// Every constraint, with its table.
fn constraints(source: &Source) -> impl Iterator<Item = (&TableDef, &ConstraintDef)> {
    source
        .catalog
        .tables
        .values()
        .flat_map(|table| table.constraints.iter().map(move |constraint| (table.as_ref(), constraint)))
}

/// The columns that name a constraint.
fn constraint_name(source: &Source, table: &TableDef, constraint: &ConstraintDef) -> Row {
    row! {
        "constraint_catalog": database(source),
        "constraint_schema": source.schema_name(table.schema),
        "constraint_name": constraint.name.as_str(),
    }
}

/// The columns that name a table.
fn table_name(source: &Source, table: &TableDef) -> Row {
    row! {
        "table_catalog": database(source),
        "table_schema": source.schema_name(table.schema),
        "table_name": table.name.as_str(),
    }
}

fn table_constraints(source: &Source) -> Vec<Row> {
    let row = |(table, constraint): (&TableDef, &ConstraintDef)| {
        let deferral = table.deferral(constraint);
        let nulls_distinct = match constraint.kind {
            ConstraintKind::Unique { index } => {
                let index = table.indexes.iter().find(|known| known.oid == index);
                Some(if index.is_some_and(|index| index.nulls_not_distinct) { "NO" } else { "YES" })
            }
            _ => None,
        };
        let mut row = constraint_name(source, table, constraint);
        row.extend(table_name(source, table));
        row.extend(row! {
            "constraint_type": match constraint.kind {
                ConstraintKind::PrimaryKey { .. } => "PRIMARY KEY",
                ConstraintKind::Unique { .. } => "UNIQUE",
                ConstraintKind::Check { .. } => "CHECK",
                ConstraintKind::ForeignKey { .. } => "FOREIGN KEY",
            },
            "is_deferrable": if deferral == Deferral::Never { "NO" } else { "YES" },
            "initially_deferred": if deferral == Deferral::InitiallyDeferred { "YES" } else { "NO" },
            "enforced": "YES",
            "nulls_distinct": nulls_distinct,
        });
        row
    };
    constraints(source).map(row).collect()
}

fn check_constraints(source: &Source) -> Vec<Row> {
    let row = |(table, constraint): (&TableDef, &ConstraintDef)| {
        let ConstraintKind::Check { expression } = &constraint.kind else { return None };
        let mut row = constraint_name(source, table, constraint);
        let clause = format!("({})", deparse::condition(source, table, expression, false));
        row.push(("check_clause", Cell::Text(clause)));
        Some(row)
    };
    constraints(source).filter_map(row).collect()
}

/// The columns that an index keeps unique.
fn index_columns(table: &TableDef, index: Oid) -> Vec<u16> {
    let index = table.indexes.iter().find(|candidate| candidate.oid == index);
    index.map_or_else(Vec::new, |index| index.columns.iter().map(|column| column.column).collect())
}

fn key_column_usage(source: &Source) -> Vec<Row> {
    let mut rows = Vec::new();
    for (table, constraint) in constraints(source) {
        let (columns, parent_columns) = match &constraint.kind {
            ConstraintKind::PrimaryKey { index } | ConstraintKind::Unique { index } => {
                (index_columns(table, *index), None)
            }
            ConstraintKind::ForeignKey { columns, parent, parent_columns, .. } => {
                // Positions in the key of the parent, which may list its columns in another order.
                let key = source.catalog.tables.get(parent).map_or_else(Vec::new, |parent_table| {
                    let index = parent_index(source, *parent, parent_columns) as u32;
                    index_columns(parent_table, Oid(index))
                });
                let position = |column: &u16| key.iter().position(|candidate| candidate == column);
                (columns.clone(), Some(parent_columns.iter().map(position).collect::<Vec<_>>()))
            }
            ConstraintKind::Check { .. } => continue,
        };
        for (position, column) in columns.iter().enumerate() {
            let mut row = constraint_name(source, table, constraint);
            row.extend(table_name(source, table));
            let in_parent = parent_columns.as_ref().and_then(|columns| columns[position]);
            row.extend(row! {
                "column_name": table.columns[usize::from(*column)].name.as_str(),
                "ordinal_position": position as i64 + 1,
                "position_in_unique_constraint": in_parent.map(|position| position as i64 + 1),
            });
            rows.push(row);
        }
    }
    rows
}

fn referential_constraints(source: &Source) -> Vec<Row> {
    let mut rows = Vec::new();
    for (table, constraint) in constraints(source) {
        let ConstraintKind::ForeignKey { parent, parent_columns, on_delete, on_update, match_full, .. } =
            &constraint.kind
        else {
            continue;
        };
        let mut row = constraint_name(source, table, constraint);
        row.extend(row! {
            "match_option": if *match_full { "FULL" } else { "NONE" },
            "update_rule": action_rule(*on_update),
            "delete_rule": action_rule(*on_delete),
        });
        if let Some(parent_table) = source.catalog.tables.get(parent) {
            let index = Oid(parent_index(source, *parent, parent_columns) as u32);
            let keeps = |constraint: &&ConstraintDef| match constraint.kind {
                ConstraintKind::PrimaryKey { index: kept } | ConstraintKind::Unique { index: kept } => {
                    kept == index
                }
                _ => false,
            };
            row.extend(row! {
                "unique_constraint_catalog": database(source),
                "unique_constraint_schema": source.schema_name(parent_table.schema),
                "unique_constraint_name":
                    parent_table.constraints.iter().find(keeps).map(|constraint| constraint.name.as_str()),
            });
        }
        rows.push(row);
    }
    rows
}

/// The columns that a constraint uses: of foreign keys, the referenced ones. The columns of a CHECK
/// are only in its text and not listed.
fn constraint_column_usage(source: &Source) -> Vec<Row> {
    let mut rows = Vec::new();
    for (table, constraint) in constraints(source) {
        let (used, columns) = match &constraint.kind {
            ConstraintKind::PrimaryKey { index } | ConstraintKind::Unique { index } => {
                (table, index_columns(table, *index))
            }
            ConstraintKind::ForeignKey { parent, parent_columns, .. } => {
                match source.catalog.tables.get(parent) {
                    Some(parent) => (parent.as_ref(), parent_columns.clone()),
                    None => continue,
                }
            }
            ConstraintKind::Check { .. } => continue,
        };
        for column in columns {
            let mut row = constraint_name(source, table, constraint);
            row.extend(table_name(source, used));
            row.extend(row! { "column_name": used.columns[usize::from(column)].name.as_str() });
            rows.push(row);
        }
    }
    rows
}

fn constraint_table_usage(source: &Source) -> Vec<Row> {
    let row = |(table, constraint): (&TableDef, &ConstraintDef)| {
        let used = match &constraint.kind {
            ConstraintKind::ForeignKey { parent, .. } => source.catalog.tables.get(parent)?.as_ref(),
            ConstraintKind::Check { .. } => return None,
            _ => table,
        };
        let mut row = constraint_name(source, table, constraint);
        row.extend(table_name(source, used));
        Some(row)
    };
    constraints(source).filter_map(row).collect()
}
