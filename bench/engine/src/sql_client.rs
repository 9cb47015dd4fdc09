//! What a workload in SQL needs of a connection, whether by the embedded API or a
//! socket: prepare once, run with typed parameters, get rows of values.

use firn_base::{Result, Value};
use firn_session::{Connection, Outcome, Statement};

/// A connection.
pub trait SqlClient {
    /// A prepared statement of it.
    type Statement;

    /// Prepares one statement.
    fn prepare(&mut self, sql: &str) -> Result<Self::Statement>;

    /// Runs a statement. Returns the rows it yields, if any. Parameters are converted to the types of the
    /// statement by assignment.
    fn run(&mut self, statement: &Self::Statement, parameters: &[Value]) -> Result<Vec<Vec<Value>>>;

    /// Prepares and runs a statement without parameters.
    fn run_text(&mut self, sql: &str) -> Result<Vec<Vec<Value>>> {
        let statement = self.prepare(sql)?;
        self.run(&statement, &[])
    }
}

impl SqlClient for Connection {
    type Statement = Statement;

    fn prepare(&mut self, sql: &str) -> Result<Statement> {
        Connection::prepare(self, sql)
    }

    fn run(&mut self, statement: &Statement, parameters: &[Value]) -> Result<Vec<Vec<Value>>> {
        match Connection::run(self, statement, parameters)? {
            Outcome::Rows(rows) => rows.into_values(),
            _ => Ok(Vec::new()),
        }
    }
}
