//! Statements for an engine, and its results.

use firn_base::SqlState;

/// A statement with its parameters.
#[derive(Clone, Debug)]
pub struct Statement {
    /// The text.
    pub text: String,
    /// The parameters, from `$1` on.
    pub parameters: Vec<Parameter>,
    /// The table whose rows it changes. It runs in a transaction that is rolled back.
    pub changed: Option<&'static str>,
}

/// A parameter of a statement.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameter {
    /// The oid of its type, if the client declares it.
    pub oid: Option<u32>,
    /// Its value as text.
    pub value: Option<String>,
}

/// A column of a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The oid of its type.
    pub oid: u32,
}

/// A row, its values as text.
pub type Row = Vec<Option<String>>;

/// The result of a statement.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Rows.
    Rows {
        /// The columns.
        columns: Vec<Column>,
        /// The types of the parameters.
        parameters: Vec<u32>,
        /// The rows, in their order.
        rows: Vec<Row>,
        /// The command tag; empty if the engine has none.
        tag: String,
        /// The rows of the table that the statement has changed, and the types of its columns.
        after: Option<(Vec<u32>, Vec<Row>)>,
    },
    /// An error.
    Error {
        /// SQLSTATE.
        state: SqlState,
        /// The message.
        message: String,
    },
    /// The engine has failed: a panic, or a lost connection.
    Failure(String),
}

/// An engine that runs statements over the tables of [`crate::schema`].
pub trait Engine {
    /// The result of one statement.
    fn run(&mut self, statement: &Statement) -> Answer;
}
