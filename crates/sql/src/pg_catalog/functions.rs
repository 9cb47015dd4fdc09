//! The functions that clients use with the catalogs: visibility, definitions as SQL, privileges, sizes, facts of the
//! session. All are computed value by value: vectors would not pay.

use super::definitions::{Object, number, quote_identifier};
use super::facts::{COLLATIONS, procedures};
use super::names::{procedure_name, type_names};
use super::relation::Cell;
use super::{DATABASE, OWNER, Source, comments, deparse, replication, types};
use crate::activity::Client;
use crate::operator_classes;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use firn_storage::Table;
use firn_txn::catalog::{ColumnDef, Oid, SequenceDef, TableDef};
use firn_vector::registry::{Body, Function, FunctionId, Mode, OperatorId, Parallel, Volatility};
use std::fmt::Write;

/// A function of the catalogs: the body of all functions of the name that are not in the registry yet.
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) body: fn(&Source, &[Cell]) -> Result<Cell>,
}

const fn spec(name: &'static str, body: fn(&Source, &[Cell]) -> Result<Cell>) -> Spec {
    Spec { name, body }
}

/// For objects that FirnDB lacks: comments, triggers, rules, partitions.
fn none(_: &Source, _: &[Cell]) -> Result<Cell> {
    Ok(Cell::Null)
}

fn yes(_: &Source, _: &[Cell]) -> Result<Cell> {
    Ok(Cell::Boolean(true))
}

fn no(_: &Source, _: &[Cell]) -> Result<Cell> {
    Ok(Cell::Boolean(false))
}

fn zero(_: &Source, _: &[Cell]) -> Result<Cell> {
    Ok(Cell::Integer(0))
}

pub(crate) static FUNCTIONS: &[Spec] = &[
    // Names and visibility.
    spec("format_type", format_type_of),
    spec("pg_get_userbyid", user_by_id),
    spec("pg_table_is_visible", table_is_visible),
    spec("pg_type_is_visible", |_, arguments| Ok(is_there(types::numbered(oid(&arguments[0])?).is_some()))),
    spec("pg_function_is_visible", |source, arguments| {
        Ok(is_there(has_function(source, oid(&arguments[0])?)))
    }),
    spec("pg_operator_is_visible", |source, arguments| {
        Ok(is_there(source.registry.operator(OperatorId(oid(&arguments[0])? as u32)).is_some()))
    }),
    spec("pg_opclass_is_visible", |_, arguments| {
        let wanted = oid(&arguments[0])?;
        Ok(is_there(operator_classes::all().iter().any(|class| class.oid == wanted)))
    }),
    spec("pg_collation_is_visible", |_, arguments| {
        let wanted = oid(&arguments[0])?;
        Ok(is_there(COLLATIONS.iter().any(|(collation, ..)| *collation == wanted)))
    }),
    spec("pg_opfamily_is_visible", none),
    spec("pg_conversion_is_visible", none),
    spec("pg_statistics_obj_is_visible", none),
    spec("pg_ts_config_is_visible", none),
    spec("pg_ts_dict_is_visible", none),
    spec("pg_ts_parser_is_visible", none),
    spec("pg_ts_template_is_visible", none),
    spec("oidvectortypes", |_, arguments| match &arguments[0] {
        Cell::Integers(oids) => Ok(type_names(oids.iter().copied(), ", ").into()),
        _ => Ok(Cell::Null),
    }),
    // Definitions.
    spec("pg_get_expr", expression),
    spec("pg_get_indexdef", index_definition),
    spec("pg_get_constraintdef", constraint_definition),
    spec("pg_get_viewdef", view_definition),
    spec("pg_get_serial_sequence", serial_sequence),
    spec("pg_get_ruledef", none),
    spec("pg_get_triggerdef", none),
    spec("pg_get_functiondef", function_definition),
    spec("pg_get_function_result", function_result),
    spec("pg_get_function_arguments", |source, arguments| function_arguments(source, &arguments[0], true)),
    spec("pg_get_function_identity_arguments", |source, arguments| {
        function_arguments(source, &arguments[0], false)
    }),
    spec("pg_get_function_sqlbody", none),
    spec("pg_get_partkeydef", none),
    spec("pg_get_statisticsobjdef", none),
    spec("pg_get_statisticsobjdef_columns", none),
    spec("pg_get_statisticsobjdef_expressions", none),
    spec("pg_describe_object", |source, arguments| {
        Ok(described(source, arguments)?.map(|(_, description)| description).into())
    }),
    spec("obj_description", description),
    spec("col_description", |source, arguments| {
        Ok(comments::of_column(source, oid(&arguments[0])?, oid(&arguments[1])?))
    }),
    spec("shobj_description", description),
    // Privileges: every user may do everything.
    spec("has_table_privilege", yes),
    spec("has_any_column_privilege", yes),
    spec("has_column_privilege", yes),
    spec("has_schema_privilege", yes),
    spec("has_database_privilege", yes),
    spec("has_sequence_privilege", yes),
    spec("has_function_privilege", yes),
    spec("has_language_privilege", yes),
    spec("has_tablespace_privilege", yes),
    spec("has_type_privilege", yes),
    spec("has_parameter_privilege", yes),
    spec("has_foreign_data_wrapper_privilege", yes),
    spec("has_server_privilege", yes),
    spec("pg_has_role", yes),
    spec("row_security_active", no),
    // The session and the server.
    spec("current_schemas", current_schemas),
    spec("pg_blocking_pids", blocking_pids),
    spec("pg_safe_snapshot_blocking_pids", |_, _| Ok(Vec::<i64>::new().into())),
    spec("pg_client_encoding", |source, _| {
        let setting = source.services().and_then(|services| services.setting("client_encoding"));
        Ok(setting.unwrap_or_else(|| "UTF8".to_owned()).into())
    }),
    spec("getdatabaseencoding", |_, _| Ok("UTF8".into())),
    spec("pg_is_in_recovery", replication::is_in_recovery),
    spec("pg_my_temp_schema", zero),
    spec("pg_is_other_temp_schema", no),
    spec("inet_client_addr", |source, _| {
        Ok(client(source)?.address.map(|(address, _)| address.to_string()).into())
    }),
    spec("inet_client_port", |source, _| Ok(client(source)?.address.map(|(_, port)| i64::from(port)).into())),
    spec("inet_server_addr", |source, _| {
        Ok(client(source)?.server.map(|(address, _)| address.to_string()).into())
    }),
    spec("inet_server_port", |source, _| Ok(client(source)?.server.map(|(_, port)| i64::from(port)).into())),
    spec("pg_postmaster_start_time", started),
    spec("pg_conf_load_time", started),
    // The log and replication.
    spec("pg_current_wal_lsn", replication::written),
    spec("pg_current_wal_insert_lsn", replication::written),
    spec("pg_current_wal_flush_lsn", replication::flushed),
    spec("pg_switch_wal", replication::written),
    spec("pg_create_restore_point", replication::create_restore_point),
    spec("pg_wal_lsn_diff", replication::difference),
    spec("pg_lsn_mi", replication::difference),
    spec("pg_wal_replay_pause", replication::pause_replay),
    spec("pg_wal_replay_resume", replication::resume_replay),
    spec("pg_is_wal_replay_paused", replication::is_replay_paused),
    spec("pg_get_wal_replay_pause_state", replication::replay_pause_state),
    spec("pg_last_wal_receive_lsn", replication::last_received),
    spec("pg_last_wal_replay_lsn", replication::last_replayed),
    spec("pg_last_xact_replay_timestamp", replication::last_replayed_time),
    // The statistics that are known; others are not collected.
    spec("pg_stat_get_live_tuples", |source, arguments| {
        Ok(stored(source, &arguments[0]).map_or(0, |table| table.approximate_rows() as i64).into())
    }),
    spec("pg_stat_get_dead_tuples", |source, arguments| {
        Ok(stored(source, &arguments[0]).map_or(0, |table| table.usage().free_slots as i64).into())
    }),
    spec("pg_stat_get_numscans", zero),
    spec("pg_stat_get_tuples_returned", zero),
    spec("pg_stat_get_tuples_fetched", zero),
    spec("pg_stat_get_tuples_inserted", zero),
    spec("pg_stat_get_tuples_updated", zero),
    spec("pg_stat_get_tuples_deleted", zero),
    spec("pg_stat_get_tuples_hot_updated", zero),
    spec("pg_stat_get_mod_since_analyze", zero),
    spec("pg_stat_get_blocks_fetched", zero),
    spec("pg_stat_get_blocks_hit", zero),
    spec("pg_stat_get_vacuum_count", zero),
    spec("pg_stat_get_autovacuum_count", zero),
    spec("pg_stat_get_analyze_count", zero),
    spec("pg_stat_get_autoanalyze_count", zero),
    spec("pg_stat_get_last_vacuum_time", none),
    spec("pg_stat_get_last_autovacuum_time", none),
    spec("pg_stat_get_last_analyze_time", none),
    spec("pg_stat_get_last_autoanalyze_time", none),
    // The rest.
    spec("pg_encoding_to_char", |_, arguments| {
        let number = i32::try_from(oid(&arguments[0])?).ok();
        Ok(number.and_then(firn_vector::encoding_name).unwrap_or("").into())
    }),
    spec("pg_char_to_encoding", |_, arguments| {
        Ok(i64::from(firn_vector::encoding_number(&text(&arguments[0])).unwrap_or(-1)).into())
    }),
    spec("pg_encoding_max_length", |_, arguments| {
        // The most bytes of a character, for each encoding at its number.
        const LENGTHS: &[u8; 42] = b"133343441111111111111111111111111112222432";
        let place = usize::try_from(oid(&arguments[0])?).ok();
        let length = place.and_then(|place| LENGTHS.get(place));
        Ok(length.map(|digit| i64::from(digit - b'0')).into())
    }),
    spec("pg_tablespace_location", |_, _| Ok("".into())),
    spec("pg_relation_is_publishable", |source, arguments| {
        Ok(relation(source, &arguments[0]).map(|object| matches!(object, Object::Table(_))).into())
    }),
    spec("pg_sequence_last_value", sequence_last_value),
    // Files.
    spec("pg_relation_filenode", |source, arguments| {
        Ok(relation(source, &arguments[0]).filter(has_storage).map(|object| object.oid()).into())
    }),
    spec("pg_relation_filepath", |source, arguments| {
        let object = relation(source, &arguments[0]).filter(has_storage);
        Ok(object.map(|object| format!("base/{DATABASE}/{}", object.oid())).into())
    }),
    // Sizes are those in memory.
    spec("pg_relation_size", |source, arguments| Ok(relation_size(source, &arguments[0]).into())),
    spec("pg_table_size", |source, arguments| Ok(relation_size(source, &arguments[0]).into())),
    spec("pg_indexes_size", |source, arguments| {
        Ok(stored(source, &arguments[0]).map(|table| table.usage().index_bytes as i64).into())
    }),
    spec("pg_total_relation_size", |source, arguments| {
        let of_table = stored(source, &arguments[0]).map(|table| {
            let usage = table.usage();
            (usage.bytes() + usage.index_bytes) as i64
        });
        Ok(of_table.or_else(|| relation_size(source, &arguments[0])).into())
    }),
    spec("pg_database_size", database_size),
    spec("pg_tablespace_size", database_size),
];

fn text(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Integer(number) => number.to_string(),
        Cell::Boolean(value) => value.to_string(),
        Cell::Float(value) => value.to_string(),
        Cell::Null | Cell::Interval(_) | Cell::Integers(_) | Cell::Texts(_) => String::new(),
    }
}

/// An oid; 0 for NULL.
fn oid(cell: &Cell) -> Result<i64> {
    match cell {
        Cell::Integer(oid) => Ok(*oid),
        Cell::Null => Ok(0),
        other => panic!("{other:?} is no oid"),
    }
}

/// `true` if an object exists, and NULL otherwise: no object hides another one in `pg_catalog`.
fn is_there(is_there: bool) -> Cell {
    if is_there { Cell::Boolean(true) } else { Cell::Null }
}

/// A relation by its oid or, where a function takes one, its name.
fn relation<'a>(source: &'a Source, argument: &Cell) -> Option<Object<'a>> {
    match argument {
        Cell::Integer(oid) => source.object(*oid),
        argument => source.object_by_name(&text(argument)),
    }
}

fn has_storage(object: &Object<'_>) -> bool {
    matches!(object, Object::Table(_) | Object::Index(..) | Object::Sequence(_))
}

/// The storage of a table.
fn stored(source: &Source, argument: &Cell) -> Option<Arc<Table>> {
    match relation(source, argument)? {
        Object::Table(table) => source.session()?.engine().find_table(table.storage()),
        _ => None,
    }
}

fn relation_size(source: &Source, argument: &Cell) -> Option<i64> {
    match relation(source, argument)? {
        Object::Table(table) => {
            let stored = source.session()?.engine().find_table(table.storage())?;
            Some(stored.usage().bytes() as i64)
        }
        // Indexes of a table have the table's statistics.
        Object::Index(table, _) => {
            let stored = source.session()?.engine().find_table(table.storage())?;
            Some((stored.usage().index_bytes / table.indexes.len().max(1) as u64) as i64)
        }
        _ => Some(0),
    }
}

fn database_size(source: &Source, _: &[Cell]) -> Result<Cell> {
    Ok(source.session().map(|asking| asking.engine().memory().total() as i64).into())
}

fn has_function(source: &Source, oid: i64) -> bool {
    source.registry.function(FunctionId(oid as u32)).is_some()
        || procedures(source).any(|procedure| procedure.oid == oid)
}

fn format_type_of(_: &Source, arguments: &[Cell]) -> Result<Cell> {
    let Cell::Integer(ty) = arguments[0] else { return Ok(Cell::Null) };
    let modifier = match arguments[1] {
        Cell::Integer(modifier) => Some(modifier),
        _ => None,
    };
    Ok(match ty {
        0 => "-".into(),
        ty => types::format_type(ty, modifier).unwrap_or_else(|| "???".to_owned()).into(),
    })
}

fn user_by_id(source: &Source, arguments: &[Cell]) -> Result<Cell> {
    Ok(match oid(&arguments[0])? {
        OWNER => source.facts.user.as_str().into(),
        other => format!("unknown (OID={other})").into(),
    })
}

fn table_is_visible(source: &Source, arguments: &[Cell]) -> Result<Cell> {
    Ok(relation(source, &arguments[0]).map(|object| source.is_visible(&object)).into())
}

fn index_definition(source: &Source, arguments: &[Cell]) -> Result<Cell> {
    let Some(Object::Index(table, index)) = relation(source, &arguments[0]) else { return Ok(Cell::Null) };
    // Column 0 means the whole, others mean the name of that column.
    Ok(match arguments.get(1).map(oid).transpose()? {
        None | Some(0) => source.index_definition(table, index).into(),
        Some(column) => match usize::try_from(column - 1) {
            Ok(position) if position >= index.key_columns().len() => {
                let include = index.annotations.include.get(position - index.key_columns().len());
                let name = include.map(|column| quote_identifier(&table.columns[usize::from(*column)].name));
                name.unwrap_or_default().into()
            }
            Ok(position) => {
                let pretty = arguments.get(2) == Some(&Cell::Boolean(true));
                source.index_key(table, index, position, pretty).into()
            }
            _ => "".into(),
        },
    })
}

fn constraint_definition(source: &Source, arguments: &[Cell]) -> Result<Cell> {
    let wanted = oid(&arguments[0])?;
    for table in source.catalog.tables.values() {
        if let Some(constraint) = table.constraints.iter().find(|found| number(found.oid) == wanted) {
            let pretty = arguments.get(1) == Some(&Cell::Boolean(true));
            return Ok(source.shown_constraint(table, constraint, pretty).into());
        }
    }
    Ok(Cell::Null)
}

/// A default or the expression of a generated column, by its text and its table.
fn expression(source: &Source, arguments: &[Cell]) -> Result<Cell> {
    let (Cell::Text(text), table) = (&arguments[0], relation(source, &arguments[1])) else {
        return Ok(arguments[0].clone());
    };
    let Some(Object::Table(table)) = table else { return Ok(arguments[0].clone()) };
    let pretty = arguments.get(2) == Some(&Cell::Boolean(true));
    if table.indexes.iter().any(|index| index.condition.as_deref() == Some(text.as_str())) {
        return Ok(deparse::index_condition(source, table, text, pretty).into());
    }
    let mut expressions = table.indexes.iter().map(|index| super::rows::index_expressions(table, index));
    if let Some(expressions) = expressions.find(|found| found.join(", ") == *text) {
        let shown = expressions.iter().map(|text| deparse::indexed(source, table, text, pretty));
        return Ok(shown.collect::<Vec<_>>().join(", ").into());
    }
    let has_it = |column: &&ColumnDef| {
        [&column.default, &column.generated].into_iter().flatten().any(|known| *known == *text)
    };
    let Some((_, column)) = table.visible_columns().find(|(_, column)| has_it(column)) else {
        return Ok(arguments[0].clone());
    };
    if column.generated.is_some() {
        return Ok(deparse::generated(source, table, column, pretty).into());
    }
    Ok(deparse::default(source, &column.name, column.ty.declared, text, pretty).into())
}

fn view_definition(source: &Source, arguments: &[Cell]) -> Result<Cell> {
    Ok(match relation(source, &arguments[0]) {
        Some(Object::View(view)) => format!(" {};", crate::ddl::view::shown_query(view)).into(),
        _ => Cell::Null,
    })
}

fn serial_sequence(source: &Source, arguments: &[Cell]) -> Result<Cell> {
    let (name, column) = (text(&arguments[0]), text(&arguments[1]));
    let Some(Object::Table(table)) = source.object_by_name(&name) else {
        source.check_schema_of(&name)?;
        return Err(Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist")));
    };
    let Some((position, _)) = table.column(&column) else {
        return Err(Error::new(
            SqlState::UNDEFINED_COLUMN,
            format!("column \"{column}\" of relation \"{}\" does not exist", table.name),
        ));
    };
    let owned = |sequence: &&Arc<SequenceDef>| sequence.owner == Some((table.oid, position.0));
    let sequence = source.catalog.sequences.values().find(owned);
    let name = |sequence: &Arc<SequenceDef>| {
        format!(
            "{}.{}",
            quote_identifier(source.schema_name(sequence.schema)),
            quote_identifier(&sequence.name)
        )
    };
    Ok(sequence.map(name).into())
}

fn sequence_last_value(source: &Source, arguments: &[Cell]) -> Result<Cell> {
    let name = source.sequence_name(oid(&arguments[0])?)?;
    let services = source.services().ok_or_else(no_session)?;
    let (last, is_called) = services.sequence_state(&name)?;
    Ok(is_called.then_some(last).into())
}

/// A function that can be called.
fn function(source: &Source, cell: &Cell) -> Result<Option<&'static Arc<Function>>> {
    Ok(source.registry.function(FunctionId(oid(cell)? as u32)))
}

fn function_definition(source: &Source, arguments: &[Cell]) -> Result<Cell> {
    let Some(function) = function(source, &arguments[0])? else { return Ok(Cell::Null) };
    if matches!(function.body, Body::Aggregate(_)) {
        let message = format!("\"{}\" is an aggregate function", function.name);
        return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message));
    }
    let name = quote_identifier(&function.name);
    let schema = function.schema.as_deref().unwrap_or("pg_catalog");
    let mut text = format!(
        "CREATE OR REPLACE FUNCTION {schema}.{name}({})\n RETURNS {}\n LANGUAGE internal\n",
        argument_list(function, true),
        result_of(function),
    );
    let mut properties = String::new();
    if matches!(function.body, Body::Window(_)) {
        properties.push_str(" WINDOW");
    }
    properties.push_str(match function.volatility {
        Volatility::Immutable => " IMMUTABLE",
        Volatility::Stable => " STABLE",
        Volatility::Volatile => "",
    });
    properties.push_str(match function.parallel {
        Parallel::Safe => " PARALLEL SAFE",
        Parallel::Restricted => " PARALLEL RESTRICTED",
        Parallel::Unsafe => "",
    });
    if function.is_strict {
        properties.push_str(" STRICT");
    }
    if !properties.is_empty() {
        properties.push('\n');
    }
    writeln!(text, "{properties}AS $function${}$function$", function.name).expect("strings take all");
    Ok(text.into())
}

fn function_result(source: &Source, arguments: &[Cell]) -> Result<Cell> {
    Ok(function(source, &arguments[0])?.map(|function| result_of(function)).into())
}

fn function_arguments(source: &Source, of: &Cell, with_defaults: bool) -> Result<Cell> {
    Ok(function(source, of)?.map(|function| argument_list(function, with_defaults)).into())
}

/// The result of a function in the form of CREATE FUNCTION.
fn result_of(function: &Function) -> String {
    let table: Vec<String> = function
        .parameters
        .iter()
        .filter(|parameter| parameter.mode == Mode::Table)
        .map(|parameter| {
            let ty = type_names(std::iter::once(i64::from(parameter.ty.0)), "");
            match &parameter.name {
                Some(name) => format!("{} {ty}", quote_identifier(name)),
                None => ty,
            }
        })
        .collect();
    if !table.is_empty() {
        return format!("TABLE({})", table.join(", "));
    }
    let result = type_names(std::iter::once(i64::from(function.result.0)), "");
    if function.returns_set() { format!("SETOF {result}") } else { result }
}

/// The parameters of a function in the form of CREATE FUNCTION.
fn argument_list(function: &Function, with_defaults: bool) -> String {
    let shown = function.parameters.iter().filter(|parameter| parameter.mode != Mode::Table);
    let parameter = |parameter: &firn_vector::registry::Parameter| {
        let mut text = match parameter.mode {
            Mode::In | Mode::Table => "",
            Mode::Out => "OUT ",
            Mode::InOut => "INOUT ",
            Mode::Variadic => "VARIADIC ",
        }
        .to_owned();
        if let Some(name) = parameter.name.as_deref().filter(|name| !name.is_empty()) {
            text.push_str(&quote_identifier(name));
            text.push(' ');
        }
        text.push_str(&type_names(std::iter::once(i64::from(parameter.ty.0)), ""));
        if let Some(default) = parameter.default.as_deref().filter(|_| with_defaults) {
            write!(text, " DEFAULT {default}").expect("strings take all");
        }
        text
    };
    shown.map(parameter).collect::<Vec<_>>().join(", ")
}

/// The kind and the description of an object, by the oids of its catalog and of itself and the number of its column.
pub(super) fn described(source: &Source, arguments: &[Cell]) -> Result<Option<(&'static str, String)>> {
    let (class, object, column) = (oid(&arguments[0])?, oid(&arguments[1])?, oid(&arguments[2])?);
    let class = super::numbered(class as u32).map_or("", |relation| relation.name);
    Ok(match class {
        "pg_class" => source.object(object).map(|found| {
            let kind = relation_kind(&found);
            let name = format!("{kind} {}", source.name_to_find(&found));
            match column_name(&found, column) {
                Some(column) => ("table column", format!("column {column} of {name}")),
                None => (kind, name),
            }
        }),
        "pg_type" => types::format_type(object, None).map(|name| ("type", format!("type {name}"))),
        "pg_proc" => {
            procedure_name(source, object as u32).map(|name| ("function", format!("function {name}")))
        }
        "pg_namespace" => {
            let schema = source.schemas().find(|(schema, _)| number(*schema) == object);
            schema.map(|(_, name)| ("schema", format!("schema {}", quote_identifier(name))))
        }
        "pg_constraint" => source.catalog.tables.values().find_map(|table: &Arc<TableDef>| {
            let constraint = table.constraints.iter().find(|constraint| number(constraint.oid) == object)?;
            let table = source.name_to_find(&Object::Table(table));
            let name = quote_identifier(&constraint.name);
            Some(("table constraint", format!("constraint {name} on table {table}")))
        }),
        _ => None,
    })
}

/// The name of a column in the description of its relation.
fn column_name(object: &Object<'_>, column: i64) -> Option<String> {
    let place = usize::try_from(column - 1).ok()?;
    let columns = match object {
        Object::Table(table) => &table.columns,
        Object::View(view) => &view.columns,
        _ => return None,
    };
    columns.get(place).map(|column| quote_identifier(&column.name))
}

/// `pg_identify_object`: the type of an object, its schema, its name if that and the schema identify it, and its identity.
/// `None` if there is no such object.
pub(crate) fn identified(
    source: &Source,
    class: u32,
    object: i64,
    column: i64,
) -> Option<[Option<String>; 4]> {
    let quoted = |schema: Oid| quote_identifier(source.schema_name(schema));
    let class = super::numbered(class).map_or("", |relation| relation.name);
    match class {
        "pg_class" => {
            let Some(found) = source.object(object) else {
                return Some([Some("relation".to_owned()), None, None, None]);
            };
            let kind = relation_kind(&found);
            let (schema, name) = (quoted(found.schema()), quote_identifier(found.name()));
            let identity = format!("{schema}.{name}");
            Some(match column_name(&found, column) {
                None if column != 0 => [Some(format!("{kind} column")), None, None, None],
                None => [Some(kind.to_owned()), Some(schema), Some(name), Some(identity)],
                Some(column) => {
                    let identity = format!("{identity}.{column}");
                    [Some(format!("{kind} column")), Some(schema), Some(name), Some(identity)]
                }
            })
        }
        "pg_type" => {
            let Some(ty) = types::numbered(object) else {
                return Some([Some("type".to_owned()), None, None, None]);
            };
            let identity = types::format_type(object, None);
            Some([
                Some("type".to_owned()),
                Some("pg_catalog".to_owned()),
                Some(ty.name.to_string()),
                identity,
            ])
        }
        "pg_proc" => {
            let name = procedure_name(source, object as u32);
            let qualified = |name: String| match name.contains('.') {
                true => name,
                false => format!("pg_catalog.{name}"),
            };
            let schema = name.as_ref().map(|_| "pg_catalog".to_owned());
            Some([Some("function".to_owned()), schema, None, name.map(qualified)])
        }
        "pg_namespace" => {
            let schema = source.schemas().find(|(schema, _)| number(*schema) == object);
            let name = schema.map(|(_, name)| quote_identifier(name));
            Some([Some("schema".to_owned()), None, name.clone(), name])
        }
        "pg_constraint" => {
            let found = source.catalog.tables.values().find_map(|table| {
                let constraint = table.constraints.iter().find(|found| number(found.oid) == object)?;
                let name = quote_identifier(&constraint.name);
                let schema = quoted(table.schema);
                Some((schema.clone(), format!("{name} on {schema}.{}", quote_identifier(&table.name))))
            });
            let (schema, identity) = found.unzip();
            Some([Some("table constraint".to_owned()), schema, None, identity])
        }
        _ => None,
    }
}

fn relation_kind(object: &Object<'_>) -> &'static str {
    match object {
        Object::Table(_) => "table",
        Object::Index(..) => "index",
        Object::View(_) => "view",
        Object::Sequence(_) => "sequence",
        Object::System(_, relation) if relation.relkind == "r" => "table",
        Object::System(..) => "view",
    }
}

/// The comment on an object, by its oid and optionally the name of its catalog.
fn description(source: &Source, arguments: &[Cell]) -> Result<Cell> {
    let catalog = match arguments.get(1) {
        Some(Cell::Text(catalog)) => Some(catalog.as_str()),
        _ => None,
    };
    Ok(comments::of_object(source, oid(&arguments[0])?, catalog))
}

fn current_schemas(source: &Source, arguments: &[Cell]) -> Result<Cell> {
    let implicit = matches!(&arguments[0], Cell::Boolean(true));
    let system = (implicit && !source.facts.search_path.iter().any(|schema| schema == "pg_catalog"))
        .then(|| "pg_catalog".to_owned());
    let exists = |schema: &&String| source.schemas().any(|(_, name)| name == schema.as_str());
    let searched = source.facts.search_path.iter().filter(exists).cloned();
    Ok(system.into_iter().chain(searched).collect::<Vec<_>>().into())
}

fn started(source: &Source, _: &[Cell]) -> Result<Cell> {
    Ok(source.session().map(|asking| asking.sessions().begun()).into())
}

/// The client that calls.
fn client(source: &Source) -> Result<Client> {
    Ok(source.session().ok_or_else(no_session)?.activity().client())
}

#[cold]
pub(super) fn no_session() -> Error {
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "no session runs this expression")
}

/// The sessions for whose transactions a session waits: for the end of one, or of all that write to a table that it locks.
fn blocking_pids(source: &Source, arguments: &[Cell]) -> Result<Cell> {
    let asking = source.session().ok_or_else(no_session)?;
    let pid = oid(&arguments[0])?;
    let running = asking.engine().running();
    let waiting = running.iter().filter(|transaction| i64::from(transaction.session) == pid);
    let blocking = waiting.flat_map(|transaction| &transaction.waits_for);
    let mut pids: Vec<i64> =
        blocking
            .filter_map(|other| running.iter().find(|transaction| transaction.id == *other))
            .map(|blocking| i64::from(blocking.session))
            .chain(u32::try_from(pid).into_iter().flat_map(|session| {
                asking.sessions().advisory().blockers_of(session).into_iter().map(i64::from)
            }))
            .collect();
    pids.sort_unstable();
    pids.dedup();
    Ok(pids.into())
}
