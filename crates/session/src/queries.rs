//! The methods by which a program runs one statement: by its text or prepared, with parameters; its rows as batches, as values or
//! as Rust types, all at once or as they are computed.

use crate::connection::{Connection, Outcome};
use crate::rows::Rows;
use crate::statement::Statement;
use crate::values::{FromRow, Parameters, check_columns};
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use firn_base::{Error, Result, SqlState, Value, stack};
use firn_sql::sources::Source;
use std::borrow::Cow;

/// One statement, to be run: its text, or a [`Statement`] that [`Connection::prepare`] has made of it, which runs
/// faster.
pub trait AsStatement {
    /// The statement, prepared.
    fn as_statement(&self, connection: &mut Connection) -> Result<Cow<'_, Statement>>;
}

impl AsStatement for Statement {
    fn as_statement(&self, _: &mut Connection) -> Result<Cow<'_, Statement>> {
        Ok(Cow::Borrowed(self))
    }
}

impl AsStatement for str {
    fn as_statement(&self, connection: &mut Connection) -> Result<Cow<'_, Statement>> {
        connection.prepare(self).map(Cow::Owned)
    }
}

impl AsStatement for String {
    fn as_statement(&self, connection: &mut Connection) -> Result<Cow<'_, Statement>> {
        self.as_str().as_statement(connection)
    }
}

impl<S: AsStatement + ?Sized> AsStatement for &S {
    fn as_statement(&self, connection: &mut Connection) -> Result<Cow<'_, Statement>> {
        (**self).as_statement(connection)
    }
}

impl Connection {
    /// Runs statements separated by semicolons and discards their rows. Returns how many rows the last one returned or
    /// changed. Outside a transaction every statement commits on its own; the first error ends the script.
    ///
    /// ```
    /// # fn main() -> firn_session::Result<()> {
    /// # let mut connection = firn_session::Database::memory()?.connect();
    /// let inserted = connection.execute(
    ///     "CREATE TABLE planets (name text PRIMARY KEY, moons integer);
    ///      INSERT INTO planets VALUES ('Earth', 1), ('Mars', 2)",
    /// )?;
    /// assert_eq!(inserted, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn execute(&mut self, sql: &str) -> Result<u64> {
        stack::with_room_for_tree(|| self.execute_script(sql))
    }

    fn execute_script(&mut self, sql: &str) -> Result<u64> {
        let mut touched = 0;
        let statements = match self.split_script(sql) {
            Ok(statements) => statements,
            Err(error) => {
                self.fail_block_of(&error);
                return Err(error);
            }
        };
        for parsed in statements {
            let statement = self.prepare_tree(parsed, &[])?;
            touched = self.execute_statement(&statement, &[])?;
        }
        Ok(touched)
    }

    /// Runs one statement and discards its rows. Returns how many rows it returned or changed.
    ///
    /// ```
    /// # fn main() -> firn_session::Result<()> {
    /// # let mut connection = firn_session::Database::memory()?.connect();
    /// connection.execute("CREATE TABLE planets (name text PRIMARY KEY, moons integer)")?;
    /// let inserted = connection.execute_statement("INSERT INTO planets VALUES ($1, $2)", ("Venus", None::<i32>))?;
    /// assert_eq!(inserted, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn execute_statement(
        &mut self,
        statement: impl AsStatement,
        parameters: impl Parameters,
    ) -> Result<u64> {
        let statement = statement.as_statement(self)?;
        if statement.copies_with_client() {
            return Err(Error::unsupported("COPY with a client here")
                .with_hint("Use Connection::copy_from or Connection::copy_to, or COPY with a file."));
        }
        match self.run(&statement, &parameters.into_values())? {
            Outcome::Done(tag) => Ok(tag.rows.unwrap_or(0)),
            Outcome::Rows(mut rows) => {
                while rows.next_chunk()?.is_some() {}
                Ok(rows.tag().rows.unwrap_or(0))
            }
            Outcome::Empty => Ok(0),
            Outcome::CopyIn(_) | Outcome::CopyOut(_) => unreachable!("it was refused"),
        }
    }

    /// Runs one query and collects its rows as Arrow batches.
    ///
    /// ```
    /// # fn main() -> firn_session::Result<()> {
    /// # let mut connection = firn_session::Database::memory()?.connect();
    /// let batches = connection.query("SELECT 1 AS one, 'two' AS two")?;
    /// assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn query(&mut self, sql: &str) -> Result<Vec<RecordBatch>> {
        self.query_statement(sql, ())
    }

    /// As [`Connection::query`], with parameters.
    pub fn query_statement(
        &mut self,
        statement: impl AsStatement,
        parameters: impl Parameters,
    ) -> Result<Vec<RecordBatch>> {
        self.stream(statement, parameters)?.into_batches()
    }

    /// Runs one query and collects its rows as values.
    ///
    /// ```
    /// # use firn_session::Value;
    /// # fn main() -> firn_session::Result<()> {
    /// # let mut connection = firn_session::Database::memory()?.connect();
    /// let rows = connection.query_values("SELECT $1::bigint * 2", (21,))?;
    /// assert_eq!(rows, [[Value::BigInt(42)]]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn query_values(
        &mut self,
        statement: impl AsStatement,
        parameters: impl Parameters,
    ) -> Result<Vec<Vec<Value>>> {
        self.stream(statement, parameters)?.into_values()
    }

    /// Runs one query and collects its rows as Rust values: see [`FromRow`].
    ///
    /// ```
    /// # fn main() -> firn_session::Result<()> {
    /// # let mut connection = firn_session::Database::memory()?.connect();
    /// let rows: Vec<(i64, Option<String>)> =
    ///     connection.query_as("SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS t (id, name) WHERE id < $1", (10,))?;
    /// assert_eq!(rows, [(1, Some("a".to_owned())), (2, None)]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn query_as<T: FromRow>(
        &mut self,
        statement: impl AsStatement,
        parameters: impl Parameters,
    ) -> Result<Vec<T>> {
        let statement = statement.as_statement(self)?;
        check_row_type::<T>(&statement)?;
        self.stream(&*statement, parameters)?.into_typed::<T>()?.collect()
    }

    /// Runs a query that returns at most one row; `None` if it returns none, 21000 if it returns more.
    pub fn query_row(
        &mut self,
        statement: impl AsStatement,
        parameters: impl Parameters,
    ) -> Result<Option<Vec<Value>>> {
        let mut rows = self.stream(statement, parameters)?;
        let mut row = None;
        while let Some(chunk) = rows.next_chunk()? {
            for next in chunk.into_values(rows.columns()) {
                if row.replace(next).is_some() {
                    let message = "the query returns more than one row";
                    return Err(Error::new(SqlState::CARDINALITY_VIOLATION, message));
                }
            }
        }
        Ok(row)
    }

    /// As [`Connection::query_row`], the row as Rust values: see [`FromRow`].
    ///
    /// ```
    /// # fn main() -> firn_session::Result<()> {
    /// # let mut connection = firn_session::Database::memory()?.connect();
    /// let count: Option<i64> = connection.query_row_as("SELECT count(*) FROM generate_series(1, $1)", (10,))?;
    /// assert_eq!(count, Some(10));
    /// # Ok(())
    /// # }
    /// ```
    pub fn query_row_as<T: FromRow>(
        &mut self,
        statement: impl AsStatement,
        parameters: impl Parameters,
    ) -> Result<Option<T>> {
        let statement = statement.as_statement(self)?;
        check_row_type::<T>(&statement)?;
        self.query_row(&*statement, parameters)?.map(T::from_row).transpose()
    }

    /// Runs one query whose rows are computed while they are read, so that a result of any size takes little memory.
    ///
    /// The rows borrow nothing. Outside a transaction they are read in one of their own. Inside one, the next statement first
    /// reads what is left of them: into memory, or into a temporary file if there is not enough of it.
    ///
    /// ```
    /// # fn main() -> firn_session::Result<()> {
    /// # let mut connection = firn_session::Database::memory()?.connect();
    /// let mut sum = 0;
    /// for row in connection.stream("SELECT i, i % 7 FROM generate_series(1, 10000) AS i", ())?.into_typed()? {
    ///     let (i, rest): (i64, i64) = row?;
    ///     sum += i * rest;
    /// }
    /// assert_eq!(sum, 150_005_004);
    ///
    /// let batches = connection.stream("SELECT i FROM generate_series(1, 10000) AS i", ())?;
    /// let rows = batches.into_iter().map(|batch| batch.map(|batch| batch.num_rows())).sum::<Result<usize, _>>()?;
    /// assert_eq!(rows, 10_000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream(&mut self, statement: impl AsStatement, parameters: impl Parameters) -> Result<Rows> {
        let no_rows = || {
            Error::new(SqlState::SYNTAX_ERROR, "the statement returns no rows")
                .with_hint("Use Connection::execute_statement.")
        };
        let statement = statement.as_statement(self)?;
        // Before it has changed anything.
        if statement.columns().is_none() {
            return Err(no_rows());
        }
        match self.run(&statement, &parameters.into_values())? {
            Outcome::Rows(rows) => Ok(rows),
            _ => Err(no_rows()),
        }
    }

    // Sources.

    /// Makes Arrow batches readable as a table of that name in this connection, until the name is registered again or
    /// unregistered. Such a source takes precedence over tables of its name that are not qualified by their schema, and can only be
    /// read. The batches are read in place. 0A000 if a column's type has no similar one in SQL, 42701 if two have
    /// one name.
    ///
    /// ```
    /// # fn main() -> firn_session::Result<()> {
    /// # let mut connection = firn_session::Database::memory()?.connect();
    /// let batches = connection.query("SELECT 1 AS id, 'pencil' AS item UNION ALL SELECT 2, 'paper'")?;
    /// connection.register("stationery", &batches[0].schema(), batches)?;
    /// connection.execute("CREATE TABLE items AS SELECT * FROM stationery")?;
    /// assert_eq!(connection.query_row_as::<i64>("SELECT count(*) FROM items", ())?, Some(2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn register(&mut self, name: &str, schema: &Schema, batches: Vec<RecordBatch>) -> Result<()> {
        self.set_sources(self.facts.sources.with(name, Source::new(schema, batches)?));
        Ok(())
    }

    /// Removes a source. Rows of it that are still being read are not affected. 42704 if there is none.
    pub fn unregister(&mut self, name: &str) -> Result<()> {
        let without = self.facts.sources.without(name).ok_or_else(|| {
            Error::new(SqlState::UNDEFINED_OBJECT, format!("source \"{name}\" is not registered"))
        })?;
        self.set_sources(without);
        Ok(())
    }
}

/// Whether a statement's rows have as many columns as the type, before it has changed anything.
fn check_row_type<T: FromRow>(statement: &Statement) -> Result<()> {
    statement.columns().map_or(Ok(()), |columns| check_columns::<T>(columns.len()))
}
