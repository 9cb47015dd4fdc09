//! Properties of statements beside their trees: names, kinds of objects, modes of transactions, command tags.

use crate::settings::Level;
use firn_syntax::tree::{
    LockMode, ObjectName, Query, QueryBody, Statement, Transaction, TransactionMode, TransactionModeKind,
};
pub use firn_txn::Isolation;
use std::fmt;

/// A name as written: `schema.name` or `name`, folded to lower case unless it was quoted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QualifiedName {
    /// The schema, if given.
    pub schema: Option<String>,
    /// The name.
    pub name: String,
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl From<&ObjectName> for QualifiedName {
    /// A name of one or two parts, or of three when the first is the database, which is ignored.
    fn from(name: &ObjectName) -> QualifiedName {
        QualifiedName {
            schema: name.schema().map(|schema| schema.text.to_string()),
            name: name.name.text.to_string(),
        }
    }
}

/// The modes of LOCK TABLE, by the transactions that they exclude. Readers are never excluded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableLock {
    /// None: reading a snapshot conflicts with nothing.
    Reading,
    /// Those that hold the table exclusively, such as changes of its shape.
    LockingRows,
    /// The same, and those that exclude other writers.
    Writing,
    /// The same, and others in this mode.
    Maintaining,
    /// All that write to the table or maintain it, and those that exclude other writers or hold it exclusively.
    Sharing,
    /// The same, and those that would share it.
    WritingAlone,
    /// All that write to the table, lock its rows, or lock it.
    Alone,
}

impl From<LockMode> for TableLock {
    /// The equivalent of a mode of PostgreSQL's where readers never conflict.
    fn from(mode: LockMode) -> TableLock {
        match mode {
            LockMode::AccessShare => TableLock::Reading,
            LockMode::RowShare => TableLock::LockingRows,
            LockMode::RowExclusive => TableLock::Writing,
            LockMode::ShareUpdateExclusive => TableLock::Maintaining,
            LockMode::Share => TableLock::Sharing,
            LockMode::ShareRowExclusive => TableLock::WritingAlone,
            LockMode::Exclusive | LockMode::AccessExclusive => TableLock::Alone,
        }
    }
}

/// The kinds of objects that statements name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectKind {
    /// TABLE
    Table,
    /// VIEW
    View,
    /// INDEX
    Index,
    /// SEQUENCE
    Sequence,
    /// SCHEMA
    Schema,
}

impl ObjectKind {
    /// The word for it in messages.
    pub fn word(self) -> &'static str {
        match self {
            ObjectKind::Table => "table",
            ObjectKind::View => "view",
            ObjectKind::Index => "index",
            ObjectKind::Sequence => "sequence",
            ObjectKind::Schema => "schema",
        }
    }

    /// The kind that a relation must have for ALTER of this kind to rename it, move it or change its owner; `None` if any will
    /// do, as for ALTER TABLE.
    pub fn accepted_by_alter(self) -> Option<ObjectKind> {
        (self != ObjectKind::Table).then_some(self)
    }
}

/// The modes of a transaction as given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransactionModes {
    /// READ ONLY or READ WRITE, if either was given.
    pub read_only: Option<bool>,
    /// The isolation level, if one was given.
    pub level: Option<Level>,
    /// DEFERRABLE or NOT DEFERRABLE, if either was given.
    pub deferrable: Option<bool>,
}

impl TransactionModes {
    /// Modes as written; of contradicting ones the last one counts.
    pub fn of(modes: &[TransactionMode]) -> TransactionModes {
        let mut read = TransactionModes::default();
        for mode in modes {
            match mode.kind {
                TransactionModeKind::ReadUncommitted => read.level = Some(Level::ReadUncommitted),
                TransactionModeKind::ReadCommitted => {
                    read.level = Some(Level::As(Isolation::ReadCommitted));
                }
                TransactionModeKind::RepeatableRead => read.level = Some(Level::As(Isolation::Snapshot)),
                TransactionModeKind::Serializable => read.level = Some(Level::As(Isolation::Serializable)),
                TransactionModeKind::ReadOnly => read.read_only = Some(true),
                TransactionModeKind::ReadWrite => read.read_only = Some(false),
                // A serializable transaction that only reads is never aborted, so none has to be deferred.
                TransactionModeKind::Deferrable => read.deferrable = Some(true),
                TransactionModeKind::NotDeferrable => read.deferrable = Some(false),
            }
        }
        read
    }
}

/// Whether a statement is a query that yields rows, and not SELECT INTO.
pub fn is_query(statement: &Statement) -> bool {
    matches!(statement, Statement::Query(query) if !makes_table(query))
}

/// Whether a query is SELECT INTO.
pub fn makes_table(query: &Query) -> bool {
    fn has_into(body: &QueryBody) -> bool {
        match body {
            QueryBody::Select(select) => select.into.is_some(),
            QueryBody::SetOperation(operation) => has_into(&operation.first),
            QueryBody::Nested(query) => has_into(&query.body),
            QueryBody::Values(_) | QueryBody::Table(_) => false,
        }
    }
    has_into(&query.body)
}

/// The query of SELECT INTO.
pub fn without_into(mut query: Query) -> Query {
    fn remove(body: &mut QueryBody) {
        match body {
            QueryBody::Select(select) => select.into = None,
            QueryBody::SetOperation(operation) => remove(&mut operation.first),
            QueryBody::Nested(query) => remove(&mut query.body),
            QueryBody::Values(_) | QueryBody::Table(_) => {}
        }
    }
    remove(&mut query.body);
    query
}

/// The command tag of a statement that changes rows; `None` for any other.
pub fn change_tag(statement: &Statement) -> Option<&'static str> {
    match statement {
        Statement::Insert(_) => Some("INSERT"),
        Statement::Update(_) => Some("UPDATE"),
        Statement::Delete(_) => Some("DELETE"),
        Statement::Merge(_) => Some("MERGE"),
        _ => None,
    }
}

/// Whether a failed transaction block accepts a statement.
pub fn ends_failed_block(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Transaction(
            Transaction::Commit { .. }
                | Transaction::Rollback { .. }
                | Transaction::RollbackTo(_)
                | Transaction::Prepare(_)
        )
    )
}

pub use firn_syntax::print::query as print_query;
pub use firn_syntax::print::quote_name as quote_ident;

/// A string as SQL text.
pub fn quote_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
