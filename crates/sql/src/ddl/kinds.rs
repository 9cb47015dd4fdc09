//! Which statements change the catalog, by their command tags, and which of PostgreSQL's are refused.

use crate::statement::ObjectKind;
use firn_base::{Error, Result, SqlState};
use firn_syntax::tree::{
    Comment, Into, ObjectType, Persistence, Query, QueryBody, RenamedPart, Statement, TableBody,
};

const ROLES: &str = "Roles and privileges come with a later release; every user may do everything.";
const PROCEDURES: &str = "Functions and procedures come with a later release.";
const DIALECT: &str = "See docs/dialect.md.";
const TYPES: &str = "See docs/dialect.md for the types that FirnDB has.";
const QUERIES: &str = "Use CREATE TABLE AS, or a view.";
const FILES: &str = "COPY loads files.";

/// A verb and a kind of object, as a command tag.
macro_rules! with_words {
    ($verb:literal, $object_type:expr) => {
        with_words!(
            $verb, $object_type,
            AccessMethod "ACCESS METHOD", Aggregate "AGGREGATE", Cast "CAST", Collation "COLLATION", Column "TABLE",
            Constraint "TABLE", Conversion "CONVERSION", Database "DATABASE", Domain "DOMAIN",
            DomainConstraint "DOMAIN", EventTrigger "EVENT TRIGGER", Extension "EXTENSION",
            ForeignDataWrapper "FOREIGN DATA WRAPPER", ForeignTable "FOREIGN TABLE", Function "FUNCTION", Index "INDEX",
            Language "LANGUAGE", LargeObject "LARGE OBJECT", MaterializedView "MATERIALIZED VIEW", Operator "OPERATOR",
            OperatorClass "OPERATOR CLASS", OperatorFamily "OPERATOR FAMILY", Parameter "PARAMETER", Policy "POLICY",
            Procedure "PROCEDURE", Publication "PUBLICATION", Role "ROLE", Routine "ROUTINE", Rule "RULE",
            Schema "SCHEMA", Sequence "SEQUENCE", Server "SERVER", Statistics "STATISTICS",
            Subscription "SUBSCRIPTION", Table "TABLE", Tablespace "TABLESPACE",
            TextSearchConfiguration "TEXT SEARCH CONFIGURATION", TextSearchDictionary "TEXT SEARCH DICTIONARY",
            TextSearchParser "TEXT SEARCH PARSER", TextSearchTemplate "TEXT SEARCH TEMPLATE", Transform "TRANSFORM",
            Trigger "TRIGGER", Type "TYPE", View "VIEW"
        )
    };
    ($verb:literal, $object_type:expr, $($kind:ident $words:literal),*) => {
        match $object_type {
            $(ObjectType::$kind => concat!($verb, " ", $words),)*
        }
    };
}

/// The command tag of a statement that changes the catalog; `None` for any other.
pub fn tag(statement: &Statement) -> Option<&'static str> {
    Some(match statement {
        Statement::CreateSchema(_) => "CREATE SCHEMA",
        Statement::CreateTable(table) if table.foreign.is_some() => "CREATE FOREIGN TABLE",
        Statement::CreateTable(_) => "CREATE TABLE",
        Statement::CreateTableAs(table) if table.is_materialized_view => "CREATE MATERIALIZED VIEW",
        Statement::CreateTableAs(_) => "CREATE TABLE AS",
        Statement::Query(query) if into_of(query).is_some() => "SELECT INTO",
        Statement::CreateView(_) => "CREATE VIEW",
        Statement::RefreshView(_) => "REFRESH MATERIALIZED VIEW",
        Statement::CreateIndex(_) => "CREATE INDEX",
        Statement::CreateSequence(_) => "CREATE SEQUENCE",
        Statement::AlterSequence(_) => "ALTER SEQUENCE",
        Statement::AlterTable(table) => with_words!("ALTER", table.object_type),
        Statement::MoveAll(change) => with_words!("ALTER", change.object_type),
        Statement::Rename(rename) if matches!(rename.part, RenamedPart::Attribute(_)) => "ALTER TYPE",
        Statement::Rename(rename) => with_words!("ALTER", rename.object.object_type),
        Statement::SetSchema(change) => with_words!("ALTER", change.object.object_type),
        Statement::ChangeOwner(change) => with_words!("ALTER", change.object.object_type),
        Statement::Drop(objects) => with_words!("DROP", objects.object_type),
        Statement::Truncate(_) => "TRUNCATE TABLE",
        Statement::Comment(_) => "COMMENT",
        _ => return None,
    })
}

/// INTO of a query, which is in its first SELECT.
pub(super) fn into_of(query: &Query) -> Option<&Into> {
    let mut body = &query.body;
    loop {
        match body {
            QueryBody::Select(select) => return select.into.as_deref(),
            QueryBody::SetOperation(operation) => body = &operation.first,
            QueryBody::Nested(query) => body = &query.body,
            QueryBody::Values(_) | QueryBody::Table(_) => return None,
        }
    }
}

/// The kinds of objects that FirnDB has, but for columns and constraints.
pub(super) fn object_kind(object_type: ObjectType) -> Option<ObjectKind> {
    Some(match object_type {
        ObjectType::Table => ObjectKind::Table,
        ObjectType::View => ObjectKind::View,
        ObjectType::Index => ObjectKind::Index,
        ObjectType::Sequence => ObjectKind::Sequence,
        ObjectType::Schema => ObjectKind::Schema,
        _ => return None,
    })
}

/// 0A000 for a DDL statement that FirnDB does not support.
pub fn refuse(statement: &Statement) -> Result<()> {
    match statement {
        Statement::CreateTable(table) => {
            refuse_temporary(table.persistence)?;
            if table.foreign.is_some() {
                return Err(unsupported("CREATE FOREIGN", FILES));
            }
            match &table.body {
                TableBody::Plain { inherits } if inherits.is_empty() && table.partition_by.is_none() => {}
                TableBody::Of(_) => return Err(unsupported("a typed table", TYPES)),
                TableBody::Plain { .. } | TableBody::Partition { .. } => {
                    return Err(unsupported(
                        "table inheritance and partitioning",
                        "The rows of a table are limited only by the memory.",
                    ));
                }
            }
        }
        Statement::CreateTableAs(table) if table.is_materialized_view => {
            return Err(unsupported("CREATE MATERIALIZED", QUERIES));
        }
        Statement::CreateTableAs(table) => refuse_temporary(table.persistence)?,
        Statement::Query(query) => {
            if let Some(into) = into_of(query) {
                refuse_temporary(into.persistence)?;
            }
        }
        Statement::CreateView(view) => {
            refuse_temporary(view.persistence)?;
            if !view.options.is_empty() {
                return Err(unsupported("view options", "Leave WITH (…) out."));
            }
            if view.check_option.is_some() {
                return Err(unsupported("WITH CHECK OPTION", "Views of FirnDB are read-only."));
            }
        }
        Statement::CreateSequence(sequence) => refuse_temporary(sequence.persistence)?,
        Statement::RefreshView(_) => return Err(unsupported("REFRESH", DIALECT)),
        Statement::AlterTable(table) => refuse_alter(table.object_type)?,
        Statement::Rename(rename) => refuse_alter(match rename.part {
            RenamedPart::Attribute(_) => ObjectType::Type,
            _ => rename.object.object_type,
        })?,
        Statement::SetSchema(change) => refuse_alter(change.object.object_type)?,
        Statement::ChangeOwner(change) => refuse_alter(change.object.object_type)?,
        Statement::Comment(comment) => refuse_comment(comment)?,
        _ => {}
    }
    Ok(())
}

fn unsupported(what: &str, hint: &str) -> Error {
    Error::unsupported(what).with_hint(hint)
}

fn refuse_temporary(persistence: Persistence) -> Result<()> {
    match persistence {
        // Every table is logged; UNLOGGED only permits more speed.
        Persistence::Permanent | Persistence::Unlogged => Ok(()),
        Persistence::Temporary => Err(unsupported(
            "CREATE TEMPORARY",
            "Create an ordinary table and drop it when the session ends.",
        )),
    }
}

fn refuse_alter(object_type: ObjectType) -> Result<()> {
    let hint = match object_type {
        _ if object_kind(object_type).is_some() => return Ok(()),
        ObjectType::Role | ObjectType::Policy => ROLES,
        ObjectType::Database => "Give settings to the server or set them in the session.",
        ObjectType::Function | ObjectType::Procedure | ObjectType::Routine => PROCEDURES,
        ObjectType::Type | ObjectType::Domain | ObjectType::DomainConstraint => TYPES,
        ObjectType::Extension => "FirnDB has no extensions.",
        ObjectType::MaterializedView => QUERIES,
        ObjectType::ForeignTable => FILES,
        _ => DIALECT,
    };
    Err(unsupported(&format!("ALTER {}", object_type.words()), hint))
}

fn refuse_comment(comment: &Comment) -> Result<()> {
    let object_type = comment.object.object_type;
    match object_type {
        ObjectType::Column | ObjectType::Constraint | ObjectType::Database => Ok(()),
        ObjectType::DomainConstraint => Err(unsupported("DOMAIN", TYPES)),
        _ if object_kind(object_type).is_some() => Ok(()),
        _ => Err(unsupported(
            "COMMENT ON this kind of object",
            "Tables, columns, constraints, views, indexes, sequences, schemas and the database take comments.",
        )),
    }
}

/// 42704 for an access method other than that of tables.
pub(super) fn check_access_method(name: Option<&firn_syntax::tree::Name>) -> Result<()> {
    match name {
        Some(name) if &*name.text != "heap" => Err(Error::new(
            SqlState::UNDEFINED_OBJECT,
            format!("access method \"{}\" does not exist", name.text),
        )),
        _ => Ok(()),
    }
}

/// 42704 for a tablespace other than that of the database.
pub(super) fn check_tablespace(name: Option<&firn_syntax::tree::Name>) -> Result<()> {
    match name {
        Some(name) if &*name.text == "pg_global" => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "only shared relations can be placed in pg_global tablespace",
        )),
        Some(name) if &*name.text != "pg_default" => Err(Error::new(
            SqlState::UNDEFINED_OBJECT,
            format!("tablespace \"{}\" does not exist", name.text),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(text: &str) -> Statement {
        crate::parse::parse_one(text).unwrap().unwrap().statement
    }

    #[test]
    fn statements_that_change_the_catalog_have_postgresqls_tags() {
        for (text, expected) in [
            ("CREATE TABLE t (a int)", "CREATE TABLE"),
            ("CREATE TABLE t AS SELECT 1", "CREATE TABLE AS"),
            ("SELECT 1 INTO t UNION SELECT 2", "SELECT INTO"),
            ("ALTER INDEX i RENAME TO j", "ALTER INDEX"),
            ("ALTER TABLE t RENAME a TO b", "ALTER TABLE"),
            ("ALTER VIEW v OWNER TO x", "ALTER VIEW"),
            ("ALTER SCHEMA s OWNER TO x", "ALTER SCHEMA"),
            ("DROP MATERIALIZED VIEW IF EXISTS m", "DROP MATERIALIZED VIEW"),
            ("TRUNCATE t", "TRUNCATE TABLE"),
            ("COMMENT ON TABLE t IS 'x'", "COMMENT"),
        ] {
            assert_eq!(tag(&statement(text)), Some(expected), "{text}");
        }
        for text in ["SELECT 1", "INSERT INTO t VALUES (1)", "VACUUM", "CREATE ROLE r"] {
            assert_eq!(tag(&statement(text)), None, "{text}");
        }
    }

    #[test]
    fn what_is_not_ours_is_refused_with_a_hint() {
        for text in [
            "CREATE TEMP TABLE t (a int)",
            "CREATE TABLE p PARTITION OF t DEFAULT",
            "CREATE TABLE t (a int) INHERITS (u)",
            "CREATE MATERIALIZED VIEW m AS SELECT 1",
            "CREATE VIEW v WITH (security_barrier) AS SELECT 1",
            "ALTER MATERIALIZED VIEW m RENAME TO n",
            "COMMENT ON FUNCTION f IS 'x'",
        ] {
            let error = refuse(&statement(text)).unwrap_err();
            assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED, "{text}");
            assert!(error.hint().is_some(), "{text}");
        }
        for text in ["DROP FUNCTION f(int)", "CREATE UNLOGGED TABLE t (a int)", "SELECT 1 INTO t"] {
            assert!(refuse(&statement(text)).is_ok(), "{text}");
        }
    }
}
