//! Statements that PostgreSQL has and FirnDB does not: each is refused when it is prepared, so that later code need not handle it.
//!
//! `ddl` refuses the missing parts of CREATE, ALTER, DROP and COMMENT.

use crate::ddl;
use crate::statement::makes_table;
use firn_base::{Error, Result, SqlState};
use firn_syntax::tree::{CopyTarget, DeclareCursor, Setting, Statement, Transaction};

const ROLES: &str = "Roles and privileges come with a later release; every user may do everything.";
const FUNCTIONS: &str = "Functions and procedures come with a later release.";
const DIALECT: &str = "See docs/dialect.md.";

/// 0A000 with a hint for a statement that FirnDB does not have, and the errors that PostgreSQL finds before it runs a
/// cursor's statement.
pub fn refuse(statement: &Statement) -> Result<()> {
    match statement {
        Statement::Other(other) => Err(unsupported(other.tag, hint_of(other.tag))),
        Statement::Call(_) => Err(unsupported("CALL", FUNCTIONS)),
        Statement::Transaction(
            Transaction::Prepare(_) | Transaction::CommitPrepared(_) | Transaction::RollbackPrepared(_),
        ) => Err(unsupported("two-phase commit", "Two-phase commit is not planned.")),
        Statement::Set(set) => match &set.setting {
            Setting::Snapshot(_) => {
                Err(unsupported("SET TRANSACTION SNAPSHOT", "Snapshots cannot be shared."))
            }
            _ => Ok(()),
        },
        Statement::Copy(copy) if matches!(copy.target, CopyTarget::Program(_)) => {
            Err(unsupported("COPY PROGRAM", "Pipe through the client: COPY … FROM STDIN."))
        }
        Statement::DeclareCursor(cursor) => refuse_cursor(cursor),
        Statement::Prepare(prepare) => match &prepare.statement {
            Statement::Query(query) if makes_table(query) => Err(unsupported(
                "PREPARE … AS SELECT INTO",
                "Prepare the query and use CREATE TABLE … AS EXECUTE.",
            )),
            _ => Ok(()),
        },
        Statement::Explain(explain) => refuse(&explain.statement),
        other => ddl::refuse(other),
    }
}

fn unsupported(what: &str, hint: &str) -> Error {
    Error::unsupported(what).with_hint(hint)
}

fn refuse_cursor(cursor: &DeclareCursor) -> Result<()> {
    let both = |message: &str| Err(Error::new(SqlState::new("42P11"), message));
    if cursor.scroll && cursor.no_scroll {
        return both("cannot specify both SCROLL and NO SCROLL");
    }
    if cursor.is_asensitive && cursor.is_insensitive {
        return both("cannot specify both INSENSITIVE and ASENSITIVE");
    }
    match makes_table(&cursor.query) {
        true => Err(unsupported("DECLARE CURSOR for SELECT INTO", "Create the table first.")),
        false => Ok(()),
    }
}

/// The hint for a statement with this command tag.
fn hint_of(tag: &str) -> &'static str {
    let object = tag.split_once(' ').map_or("", |(_, object)| object);
    match tag {
        "GRANT" | "REVOKE" | "GRANT ROLE" | "REVOKE ROLE" | "REASSIGN OWNED" | "DROP OWNED" => return ROLES,
        "DO" => return FUNCTIONS,
        "ALTER SYSTEM" | "ALTER DATABASE" => {
            return "Give settings to the server or set them in the session.";
        }
        "IMPORT FOREIGN SCHEMA" => return "COPY loads files.",
        _ => {}
    }
    match object {
        "ROLE" | "POLICY" | "DEFAULT PRIVILEGES" => ROLES,
        "DATABASE" => "One directory holds one database; open another directory instead.",
        "TABLESPACE" => "One directory holds one database.",
        "FUNCTION" | "PROCEDURE" | "ROUTINE" | "LANGUAGE" => FUNCTIONS,
        "TRIGGER" | "EVENT TRIGGER" => "Triggers come with a later release.",
        "EXTENSION" => "FirnDB has no extensions.",
        "TYPE" => "See docs/dialect.md for the types that FirnDB has.",
        "DOMAIN" => "Use a CHECK constraint on the column.",
        "RULE" => "Use a view.",
        "COLLATION" => "Strings are compared by their bytes (collation C).",
        "SERVER" | "FOREIGN DATA WRAPPER" | "USER MAPPING" | "FOREIGN TABLE" => "COPY loads files.",
        "PUBLICATION" | "SUBSCRIPTION" => "Replication comes with a later release.",
        "STATISTICS" => "FirnDB needs no statistics objects.",
        "MATERIALIZED VIEW" => "Use CREATE TABLE AS, or a view.",
        _ => DIALECT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse_one;

    #[test]
    fn statements_of_later_releases_are_refused_with_a_hint() {
        for text in [
            "create role x",
            "grant select on t to x",
            "create function f() returns int language sql as 'select 1'",
            "call f()",
            "do 'begin end'",
            "prepare transaction 'x'",
            "set transaction snapshot 'x'",
            "copy t from program 'ls'",
            "explain create materialized view v as select 1",
            "refresh materialized view v",
        ] {
            let parsed = parse_one(text).unwrap().unwrap();
            let error = refuse(&parsed.statement).unwrap_err();
            assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED, "{text}");
            assert!(error.hint().is_some(), "{text}");
        }
        for text in [
            "fetch c",
            "fetch prior from c",
            "fetch 3 from c",
            "fetch all from c",
            "move forward 0 in c",
            "select 1",
        ] {
            refuse(&parse_one(text).unwrap().unwrap().statement).unwrap();
        }
    }
}
