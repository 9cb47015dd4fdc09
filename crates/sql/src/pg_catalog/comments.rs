//! The comments on objects: `pg_description`, `pg_shdescription` and the functions over them.

use super::definitions::{Object, number, quote_identifier};
use super::rows::{PG_CLASS, row};
use super::{Cell, DATABASE, Row, Source};
use firn_txn::catalog::Oid;

/// The catalogs that hold commented objects, as `pg_description` names them.
const PG_CONSTRAINT: i64 = 2606;
const PG_DATABASE: i64 = 1262;
const PG_NAMESPACE: i64 = 2615;

/// The catalog that holds an object, if there is one.
fn class(source: &Source, oid: Oid) -> Option<i64> {
    if number(oid) == DATABASE {
        return Some(PG_DATABASE);
    }
    if source.schemas().any(|(schema, _)| schema == oid) {
        return Some(PG_NAMESPACE);
    }
    let mut constraints = source.catalog.tables.values().flat_map(|table| &table.constraints);
    if constraints.any(|constraint| constraint.oid == oid) {
        return Some(PG_CONSTRAINT);
    }
    source.object(number(oid)).map(|_| PG_CLASS)
}

/// All comments: the oid of the object, its catalog, the number of its column and the text.
fn all(source: &Source) -> impl Iterator<Item = (Oid, i64, u16, &str)> {
    source.catalog.comments.values().flat_map(move |comment| {
        let class = class(source, comment.oid);
        let texts = comment.texts.iter();
        texts.filter_map(move |(column, text)| Some((comment.oid, class?, *column, text.as_str())))
    })
}

pub(super) fn pg_description(source: &Source) -> Vec<Row> {
    let own = all(source).filter(|(_, class, ..)| *class != PG_DATABASE);
    let row = |(oid, class, column, text): (Oid, i64, u16, &str)| {
        row! { "objoid": number(oid), "classoid": class, "objsubid": i64::from(column), "description": text }
    };
    own.map(row).collect()
}

pub(super) fn pg_shdescription(source: &Source) -> Vec<Row> {
    let shared = all(source).filter(|(_, class, ..)| *class == PG_DATABASE);
    let row = |(oid, class, _, text): (Oid, i64, u16, &str)| {
        row! { "objoid": number(oid), "classoid": class, "description": text }
    };
    shared.map(row).collect()
}

/// The comment on an object of a catalog; any catalog if `None`.
pub(super) fn of_object(source: &Source, object: i64, catalog: Option<&str>) -> Cell {
    let Ok(oid) = u32::try_from(object).map(Oid) else { return Cell::Null };
    let is_of = |name: &str| {
        let wanted = super::relation::find(name).map(|relation| relation.oid);
        wanted.is_some() && wanted == class(source, oid)
    };
    let text = source.catalog.comment(oid, 0).filter(|_| catalog.is_none_or(is_of));
    text.map(str::to_owned).into()
}

/// The comment on a column of a relation.
pub(super) fn of_column(source: &Source, relation: i64, column: i64) -> Cell {
    let (Ok(oid), Ok(column)) = (u32::try_from(relation), u16::try_from(column)) else { return Cell::Null };
    if column == 0 {
        return Cell::Null;
    }
    source.catalog.comment(Oid(oid), column).map(str::to_owned).into()
}

/// A commented object in the syntax of COMMENT ON, for a script that creates it again.
pub(super) fn commented(source: &Source, oid: Oid, column: u16) -> Option<String> {
    if number(oid) == DATABASE {
        return None;
    }
    if let Some((_, name)) = source.schemas().find(|(schema, _)| *schema == oid) {
        return Some(format!("SCHEMA {}", quote_identifier(name)));
    }
    let qualified = |object: &Object<'_>| {
        let schema = quote_identifier(source.schema_name(object.schema())).to_string();
        format!("{schema}.{}", quote_identifier(object.name()))
    };
    for table in source.catalog.tables.values() {
        if let Some(constraint) = table.constraints.iter().find(|constraint| constraint.oid == oid) {
            let table = qualified(&Object::Table(table));
            return Some(format!("CONSTRAINT {} ON {table}", quote_identifier(&constraint.name)));
        }
    }
    let object = source.object(number(oid))?;
    let name = qualified(&object);
    let (kind, columns) = match &object {
        Object::Table(table) => ("TABLE", &table.columns[..]),
        Object::View(view) => ("VIEW", &view.columns[..]),
        Object::Index(..) => ("INDEX", &[][..]),
        Object::Sequence(_) => ("SEQUENCE", &[][..]),
        Object::System(..) => return None,
    };
    Some(match usize::from(column).checked_sub(1) {
        None => format!("{kind} {name}"),
        Some(place) => format!("COLUMN {name}.{}", quote_identifier(&columns.get(place)?.name)),
    })
}
