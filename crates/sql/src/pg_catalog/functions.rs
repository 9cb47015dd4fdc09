//! The functions that clients use with the catalogs: names for oids, definitions as SQL, facts of the
//! session. All are computed value by value; none is worth a vector.
//!
//! Functions whose name begins with `firn_` exist only for [`super::rewrite_query`] to call.

use super::definitions::{Object, format_type, index_column, number, quote_identifier};
use super::relation::{Cell, Kind};
use super::rows::{PROCEDURES, TYPES};
use super::{OWNER, Source};
use firn_base::sync::Arc;
use firn_base::{Error, SqlState, TypeId};
use firn_txn::catalog::Identity;
use std::ops::RangeInclusive;

/// A function of the catalogs.
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    /// How many arguments it takes.
    arguments: RangeInclusive<usize>,
    returns: Kind,
    /// Whether a NULL among the arguments makes the result NULL without asking.
    pub(crate) strict: bool,
    /// Whether it asks the session, whenever it is called.
    asks: bool,
    pub(crate) body: fn(&Source, &[Cell]) -> firn_base::Result<Cell>,
}

const fn spec(
    name: &'static str,
    arguments: RangeInclusive<usize>,
    returns: Kind,
    body: fn(&Source, &[Cell]) -> firn_base::Result<Cell>,
) -> Spec {
    Spec { name, arguments, returns, strict: true, asks: false, body }
}

/// A function that is also asked about NULL.
const fn lenient(
    name: &'static str,
    arguments: RangeInclusive<usize>,
    returns: Kind,
    body: fn(&Source, &[Cell]) -> firn_base::Result<Cell>,
) -> Spec {
    Spec { name, arguments, returns, strict: false, asks: false, body }
}

/// A function of what goes on.
const fn asking(
    name: &'static str,
    arguments: RangeInclusive<usize>,
    returns: Kind,
    body: fn(&Source, &[Cell]) -> firn_base::Result<Cell>,
) -> Spec {
    Spec { name, arguments, returns, strict: true, asks: true, body }
}

/// For what nobody has: comments, triggers, rules, partitions.
fn none(_: &Source, _: &[Cell]) -> firn_base::Result<Cell> {
    Ok(Cell::Null)
}

fn yes(_: &Source, _: &[Cell]) -> firn_base::Result<Cell> {
    Ok(Cell::Boolean(true))
}

fn no(_: &Source, _: &[Cell]) -> firn_base::Result<Cell> {
    Ok(Cell::Boolean(false))
}

fn zero(_: &Source, _: &[Cell]) -> firn_base::Result<Cell> {
    Ok(Cell::Integer(0))
}

pub(crate) static FUNCTIONS: &[Spec] = &[
    // Names and visibility.
    lenient("format_type", 2..=2, Kind::Text, format_type_of),
    spec("pg_get_userbyid", 1..=1, Kind::Text, user_by_id),
    spec("pg_table_is_visible", 1..=1, Kind::Boolean, table_is_visible),
    spec("pg_type_is_visible", 1..=1, Kind::Boolean, yes),
    spec("pg_function_is_visible", 1..=1, Kind::Boolean, yes),
    spec("pg_operator_is_visible", 1..=1, Kind::Boolean, yes),
    spec("pg_opclass_is_visible", 1..=1, Kind::Boolean, yes),
    spec("pg_collation_is_visible", 1..=1, Kind::Boolean, yes),
    spec("quote_ident", 1..=1, Kind::Text, |_, arguments| Ok(quote_identifier(&text(&arguments[0])).into())),
    spec("quote_literal", 1..=1, Kind::Text, |_, arguments| Ok(quote_literal(&text(&arguments[0])).into())),
    lenient("quote_nullable", 1..=1, Kind::Text, |_, arguments| {
        Ok(match &arguments[0] {
            Cell::Null => "NULL".into(),
            value => quote_literal(&text(value)).into(),
        })
    }),
    // Names to oids and back.
    spec("to_regclass", 1..=1, Kind::Integer, |source, arguments| {
        Ok(source.object_by_name(&text(&arguments[0])).map(|object| object.oid()).into())
    }),
    spec("to_regtype", 1..=1, Kind::Integer, |_, arguments| Ok(type_oid(&text(&arguments[0])).into())),
    spec("to_regnamespace", 1..=1, Kind::Integer, |source, arguments| {
        Ok(namespace_oid(source, &text(&arguments[0])).into())
    }),
    spec("to_regproc", 1..=1, Kind::Integer, |_, arguments| Ok(procedure_oid(&text(&arguments[0])).into())),
    spec("to_regrole", 1..=1, Kind::Integer, |source, arguments| {
        Ok((source.facts.user == text(&arguments[0])).then_some(OWNER).into())
    }),
    spec("firn_regclass_oid", 1..=1, Kind::Integer, regclass_oid),
    spec("firn_regclass_name", 1..=1, Kind::Text, regclass_name),
    spec("firn_regtype_oid", 1..=1, Kind::Integer, regtype_oid),
    spec("firn_regtype_name", 1..=1, Kind::Text, regtype_name),
    spec("firn_regnamespace_oid", 1..=1, Kind::Integer, regnamespace_oid),
    spec("firn_regnamespace_name", 1..=1, Kind::Text, regnamespace_name),
    spec("firn_regproc_oid", 1..=1, Kind::Integer, regproc_oid),
    spec("firn_regproc_name", 1..=1, Kind::Text, regproc_name),
    spec("firn_regrole_oid", 1..=1, Kind::Integer, regrole_oid),
    spec("firn_regrole_name", 1..=1, Kind::Text, user_by_id),
    // Definitions.
    spec("pg_get_expr", 2..=3, Kind::Text, |_, arguments| Ok(arguments[0].clone())),
    spec("pg_get_indexdef", 1..=3, Kind::Text, index_definition),
    spec("pg_get_constraintdef", 1..=2, Kind::Text, constraint_definition),
    spec("pg_get_viewdef", 1..=2, Kind::Text, view_definition),
    spec("pg_get_serial_sequence", 2..=2, Kind::Text, serial_sequence),
    spec("pg_get_ruledef", 1..=2, Kind::Text, none),
    spec("pg_get_triggerdef", 1..=2, Kind::Text, none),
    spec("pg_get_functiondef", 1..=1, Kind::Text, none),
    spec("pg_get_function_result", 1..=1, Kind::Text, none),
    spec("pg_get_function_arguments", 1..=1, Kind::Text, none),
    spec("pg_get_function_identity_arguments", 1..=1, Kind::Text, none),
    spec("pg_get_partkeydef", 1..=1, Kind::Text, none),
    spec("pg_get_statisticsobjdef_columns", 1..=1, Kind::Text, none),
    // There are no partitions, so that a table is its own and only ancestor.
    spec("pg_partition_ancestors", 1..=1, Kind::Integer, regclass_oid),
    // Comments are not stored.
    spec("obj_description", 1..=2, Kind::Text, none),
    spec("col_description", 2..=2, Kind::Text, none),
    spec("shobj_description", 2..=2, Kind::Text, none),
    // Privileges: whoever is connected may do everything.
    spec("has_table_privilege", 2..=3, Kind::Boolean, yes),
    spec("has_any_column_privilege", 2..=3, Kind::Boolean, yes),
    spec("has_column_privilege", 3..=4, Kind::Boolean, yes),
    spec("has_schema_privilege", 2..=3, Kind::Boolean, yes),
    spec("has_database_privilege", 2..=3, Kind::Boolean, yes),
    spec("has_sequence_privilege", 2..=3, Kind::Boolean, yes),
    spec("has_function_privilege", 2..=3, Kind::Boolean, yes),
    spec("has_language_privilege", 2..=3, Kind::Boolean, yes),
    spec("has_tablespace_privilege", 2..=3, Kind::Boolean, yes),
    spec("has_type_privilege", 2..=3, Kind::Boolean, yes),
    spec("pg_has_role", 2..=3, Kind::Boolean, yes),
    // The session.
    spec("current_schemas", 1..=1, Kind::TextList, current_schemas),
    asking("pg_blocking_pids", 1..=1, Kind::IntegerList, blocking_pids),
    spec("pg_client_encoding", 0..=0, Kind::Text, |_, _| Ok("UTF8".into())),
    spec("pg_is_in_recovery", 0..=0, Kind::Boolean, no),
    spec("pg_my_temp_schema", 0..=0, Kind::Integer, zero),
    spec("pg_is_other_temp_schema", 1..=1, Kind::Boolean, no),
    spec("inet_server_addr", 0..=0, Kind::Text, none),
    spec("inet_server_port", 0..=0, Kind::Integer, none),
    spec("inet_client_addr", 0..=0, Kind::Text, none),
    spec("inet_client_port", 0..=0, Kind::Integer, none),
    // The rest.
    spec("pg_encoding_to_char", 1..=1, Kind::Text, |_, arguments| {
        Ok(if arguments[0] == Cell::Integer(6) { "UTF8" } else { "" }.into())
    }),
    spec("pg_char_to_encoding", 1..=1, Kind::Integer, |_, arguments| {
        Ok(if matches!(text(&arguments[0]).to_lowercase().as_str(), "utf8" | "utf-8") { 6 } else { -1 }
            .into())
    }),
    spec("pg_tablespace_location", 1..=1, Kind::Text, |_, _| Ok("".into())),
    spec("pg_relation_is_publishable", 1..=1, Kind::Boolean, no),
    // How large things are is not known here.
    spec("pg_relation_size", 1..=2, Kind::BigInt, none),
    spec("pg_table_size", 1..=1, Kind::BigInt, none),
    spec("pg_indexes_size", 1..=1, Kind::BigInt, none),
    spec("pg_total_relation_size", 1..=1, Kind::BigInt, none),
    spec("pg_database_size", 1..=1, Kind::BigInt, none),
    spec("pg_tablespace_size", 1..=1, Kind::BigInt, none),
    spec("pg_size_pretty", 1..=1, Kind::Text, size_pretty),
    spec("firn_subscripts", 2..=2, Kind::IntegerList, |_, arguments| {
        Ok((1..=list_length(&arguments[0])).collect::<Vec<i64>>().into())
    }),
    spec("firn_identity_options", 1..=1, Kind::Text, identity_options),
];

/// The function of that name.
pub(crate) fn spec_named(name: &str) -> Option<&'static Spec> {
    FUNCTIONS.iter().find(|spec| spec.name == name)
}

impl std::fmt::Debug for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

fn text(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Integer(number) => number.to_string(),
        Cell::Boolean(value) => value.to_string(),
        Cell::Float(value) => value.to_string(),
        Cell::Null | Cell::Integers(_) | Cell::Texts(_) => String::new(),
    }
}

/// An oid, or the text of one.
fn oid(cell: &Cell) -> Option<i64> {
    match cell {
        Cell::Integer(oid) => Some(*oid),
        Cell::Text(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn list_length(cell: &Cell) -> i64 {
    match cell {
        Cell::Integers(values) => values.len() as i64,
        Cell::Texts(values) => values.len() as i64,
        _ => 0,
    }
}

fn quote_literal(value: &str) -> String {
    let escape = if value.contains('\\') { "E" } else { "" };
    format!("{escape}'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

/// A relation by its oid or name.
fn relation<'a>(source: &'a Source, argument: &Cell) -> Option<Object<'a>> {
    match oid(argument) {
        Some(oid) => source.object(oid),
        None => source.object_by_name(&text(argument)),
    }
}

fn type_oid(name: &str) -> Option<i64> {
    let bare = name.trim().trim_start_matches("pg_catalog.").trim_matches('"');
    if let Some(element) = bare.strip_suffix("[]") {
        let element = type_oid(element)?;
        return TYPES.iter().find(|row| row.is_array() && row.element == element).map(|row| row.oid);
    }
    match TYPES.iter().find(|row| row.name == bare) {
        Some(row) => Some(row.oid),
        None => firn_base::SqlType::parse(bare).ok().map(|ty| i64::from(ty.oid())),
    }
}

fn namespace_oid(source: &Source, name: &str) -> Option<i64> {
    let name = super::definitions::split_name(name)?.pop()?;
    source.schemas().find(|(_, schema)| *schema == name).map(|(oid, _)| number(oid))
}

fn procedure_oid(name: &str) -> Option<i64> {
    let bare = name.trim().trim_start_matches("pg_catalog.");
    PROCEDURES.iter().find(|procedure| procedure.name == bare).map(|procedure| procedure.oid)
}

fn format_type_of(_: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    let Some(ty) = oid(&arguments[0]) else { return Ok(Cell::Null) };
    Ok(match ty {
        0 => "-".into(),
        ty => format_type(ty, oid(&arguments[1])).unwrap_or_else(|| "???".to_owned()).into(),
    })
}

fn user_by_id(source: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    Ok(match oid(&arguments[0]) {
        Some(OWNER) => source.facts.user.as_str().into(),
        Some(other) => format!("unknown (OID={other})").into(),
        None => Cell::Null,
    })
}

fn table_is_visible(source: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    Ok(relation(source, &arguments[0]).map(|object| source.is_visible(&object)).into())
}

/// How an object is written as a value of a type such as `regclass`.
pub(crate) fn object_name(source: &Source, ty: TypeId, oid: i64) -> Option<String> {
    match ty {
        TypeId::REGCLASS => source.object(oid).map(|object| source.name_to_find(&object)),
        TypeId::REGTYPE => format_type(oid, None),
        TypeId::REGNAMESPACE => {
            let schema = source.schemas().find(|(schema, _)| number(*schema) == oid);
            schema.map(|(_, name)| quote_identifier(name))
        }
        TypeId::REGROLE => (oid == OWNER).then(|| quote_identifier(&source.facts.user)),
        TypeId::REGPROC => {
            let procedure = PROCEDURES.iter().find(|procedure| procedure.oid == oid);
            procedure.map(|procedure| procedure.name.to_owned())
        }
        _ => None,
    }
}

/// The object that a text names as a value of such a type.
pub(crate) fn object_oid(source: &Source, ty: TypeId, name: &Cell) -> Option<i64> {
    let name = text(name);
    match ty {
        TypeId::REGCLASS => source.object_by_name(&name).map(|object| object.oid()),
        TypeId::REGTYPE => type_oid(&name),
        TypeId::REGNAMESPACE => namespace_oid(source, &name),
        TypeId::REGROLE => (source.facts.user == name).then_some(OWNER),
        TypeId::REGPROC => procedure_oid(&name),
        _ => None,
    }
}

fn regclass_oid(source: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    if let Some(oid) = oid(&arguments[0]) {
        return Ok(oid.into());
    }
    let name = text(&arguments[0]);
    match source.object_by_name(&name) {
        Some(object) => Ok(object.oid().into()),
        None => Err(Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))),
    }
}

fn regclass_name(source: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    let Cell::Integer(oid) = regclass_oid(source, arguments)? else { return Ok(Cell::Null) };
    Ok(name_or_number(oid, source.object(oid).map(|object| source.name_to_find(&object))))
}

/// The name of an oid, `-` for none, the number for one that nobody has.
fn name_or_number(oid: i64, name: Option<String>) -> Cell {
    match (oid, name) {
        (0, _) => "-".into(),
        (_, Some(name)) => name.into(),
        (oid, None) => oid.to_string().into(),
    }
}

fn regtype_oid(_: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    if let Some(oid) = oid(&arguments[0]) {
        return Ok(oid.into());
    }
    let name = text(&arguments[0]);
    match type_oid(&name) {
        Some(oid) => Ok(oid.into()),
        None => Err(Error::new(SqlState::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"))),
    }
}

fn regtype_name(source: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    let Cell::Integer(oid) = regtype_oid(source, arguments)? else { return Ok(Cell::Null) };
    Ok(name_or_number(oid, format_type(oid, None)))
}

fn regnamespace_oid(source: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    if let Some(oid) = oid(&arguments[0]) {
        return Ok(oid.into());
    }
    let name = text(&arguments[0]);
    match namespace_oid(source, &name) {
        Some(oid) => Ok(oid.into()),
        None => Err(Error::new(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))),
    }
}

fn regnamespace_name(source: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    let Cell::Integer(oid) = regnamespace_oid(source, arguments)? else { return Ok(Cell::Null) };
    let schema = source.schemas().find(|(schema, _)| number(*schema) == oid);
    Ok(name_or_number(oid, schema.map(|(_, name)| quote_identifier(name))))
}

fn regproc_oid(_: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    if let Some(oid) = oid(&arguments[0]) {
        return Ok(oid.into());
    }
    let name = text(&arguments[0]);
    match procedure_oid(&name) {
        Some(oid) => Ok(oid.into()),
        None => Err(Error::new(SqlState::UNDEFINED_FUNCTION, format!("function \"{name}\" does not exist"))),
    }
}

fn regproc_name(source: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    let Cell::Integer(oid) = regproc_oid(source, arguments)? else { return Ok(Cell::Null) };
    let procedure = PROCEDURES.iter().find(|procedure| procedure.oid == oid);
    Ok(name_or_number(oid, procedure.map(|procedure| procedure.name.to_owned())))
}

fn regrole_oid(source: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    if let Some(oid) = oid(&arguments[0]) {
        return Ok(oid.into());
    }
    let name = text(&arguments[0]);
    match name == source.facts.user {
        true => Ok(OWNER.into()),
        false => Err(Error::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))),
    }
}

fn index_definition(source: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    let Some(Object::Index(table, index)) = relation(source, &arguments[0]) else { return Ok(Cell::Null) };
    // Column 0 asks for the whole, others for the name of that column.
    Ok(match arguments.get(1).and_then(oid) {
        None | Some(0) => source.index_definition(table, index).into(),
        Some(column) => match usize::try_from(column - 1) {
            Ok(position) if position < index.columns.len() => {
                let full = index_column(table, index, position);
                let name = &table.columns[usize::from(index.columns[position].column)].name;
                let name = quote_identifier(name);
                debug_assert!(full.starts_with(&name));
                name.into()
            }
            _ => "".into(),
        },
    })
}

fn constraint_definition(source: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    let wanted = oid(&arguments[0]);
    for table in source.catalog.tables.values() {
        if let Some(constraint) = table.constraints.iter().find(|found| Some(number(found.oid)) == wanted) {
            return Ok(source.constraint_definition(table, constraint).into());
        }
    }
    Ok(Cell::Null)
}

fn view_definition(source: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    Ok(match relation(source, &arguments[0]) {
        Some(Object::View(view)) => format!(" {};", view.query.trim().trim_end_matches(';')).into(),
        _ => Cell::Null,
    })
}

fn serial_sequence(source: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    let (name, column) = (text(&arguments[0]), text(&arguments[1]));
    let Some(Object::Table(table)) = source.object_by_name(&name) else {
        return Err(Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist")));
    };
    let Some((position, _)) = table.column(&column) else {
        return Err(Error::new(
            SqlState::UNDEFINED_COLUMN,
            format!("column \"{column}\" of relation \"{}\" does not exist", table.name),
        ));
    };
    let owned =
        |sequence: &&Arc<firn_txn::catalog::SequenceDef>| sequence.owner == Some((table.oid, position.0));
    let sequence = source.catalog.sequences.values().find(owned);
    let name = |sequence: &Arc<firn_txn::catalog::SequenceDef>| {
        format!(
            "{}.{}",
            quote_identifier(source.schema_name(sequence.schema)),
            quote_identifier(&sequence.name)
        )
    };
    Ok(sequence.map(name).into())
}

fn current_schemas(source: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    let implicit = matches!(&arguments[0], Cell::Boolean(true));
    let system = implicit.then(|| "pg_catalog".to_owned());
    Ok(system.into_iter().chain(source.facts.search_path.iter().cloned()).collect::<Vec<_>>().into())
}

/// The sessions for whose transactions a session waits: for the end of one, or of all who write to a table that it locks.
fn blocking_pids(source: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    let Some(asking) = source.session() else {
        return Err(Error::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            "no session runs this expression",
        ));
    };
    let pid = oid(&arguments[0]);
    let running = asking.engine().running();
    let waiting = running.iter().filter(|transaction| Some(i64::from(transaction.session)) == pid);
    let blocking = waiting.flat_map(|transaction| &transaction.waits_for);
    let mut pids: Vec<i64> = blocking
        .filter_map(|other| running.iter().find(|transaction| transaction.id == *other))
        .map(|blocking| i64::from(blocking.session))
        .collect();
    pids.sort_unstable();
    pids.dedup();
    Ok(pids.into())
}

/// A number of bytes in the largest unit that leaves at least 10 of it, rounded, as PostgreSQL does.
fn size_pretty(_: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    let Some(bytes) = oid(&arguments[0]) else { return Ok(Cell::Null) };
    let mut size = bytes as f64;
    let mut unit = 0;
    const UNITS: [&str; 6] = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    while size.abs() >= 10_240.0 && unit + 1 < UNITS.len() {
        size /= 1_024.0;
        unit += 1;
    }
    Ok(format!("{} {}", size.round(), UNITS[unit]).into())
}

/// The options of an identity column by the name of its sequence, as SQLAlchemy reads them.
fn identity_options(source: &Source, arguments: &[Cell]) -> firn_base::Result<Cell> {
    let Some(Object::Sequence(sequence)) = relation(source, &arguments[0]) else { return Ok(Cell::Null) };
    let owner = sequence.owner.and_then(|(table, column)| {
        source.catalog.tables.get(&table).map(|table| table.columns[usize::from(column)].identity)
    });
    let Some(Some(identity)) = owner else { return Ok(Cell::Null) };
    Ok(format!(
        "{{\"always\": {}, \"start\": {}, \"increment\": {}, \"minvalue\": {}, \"maxvalue\": {}, \
         \"cache\": 1, \"cycle\": {}}}",
        identity == Identity::Always,
        sequence.start,
        sequence.increment,
        sequence.minimum,
        sequence.maximum,
        sequence.cycle,
    )
    .into())
}
