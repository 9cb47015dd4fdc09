//! What becomes of rows that cannot be read, if they do not end the COPY: they are counted, told, and kept in a table.

use super::insert_plan;
use crate::bind::Binder;
use crate::ddl;
use crate::names::{Names, Relation};
use crate::session_facts::SessionFacts;
use crate::statement::{Copy, CopyEndpoint, CopyOption, CopySubject};
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use firn_base::sync::Arc;
use firn_base::{ColumnId, Error, Result, SqlState, SqlType, text};
use firn_exec::RunOptions;
use firn_exec::dml::{InsertSource, TargetSet};
use firn_load::{CopyOptions, OnError, Rejected};
use firn_txn::Transaction;

/// So many rows that were left out are told one by one.
const MOST_NOTICES: usize = 1000;

/// The columns of a table for rows that were left out.
const COLUMNS: [(&str, SqlType); 7] = [
    ("file", SqlType::Text),
    ("line", SqlType::BigInt),
    ("column_name", SqlType::Text),
    ("value", SqlType::Text),
    ("reason", SqlType::Text),
    ("sqlstate", SqlType::Text),
    ("record", SqlType::Text),
];

/// Rows that could not be read.
#[derive(Default)]
pub(super) struct Rejects {
    /// REJECT_LIMIT
    limit: Option<u64>,
    verbosity: Verbosity,
    rows: u64,
    notices: Vec<Error>,
}

/// LOG_VERBOSITY
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Verbosity {
    /// Not a word.
    Silent,
    /// How many rows have been left out.
    #[default]
    Default,
    /// Which, and why.
    Verbose,
}

impl Rejects {
    /// Counts rows that have been left out; an error if that makes too many.
    pub fn add(&mut self, rejected: &[Rejected]) -> Result<()> {
        for Rejected { error, .. } in rejected {
            self.rows += 1;
            if self.limit.is_some_and(|limit| self.rows > limit) {
                let limit = self.limit.unwrap_or_default();
                let message = format!(
                    "skipped more than REJECT_LIMIT ({limit}) rows, the last for: {}",
                    error.message()
                );
                return Err(retold(error, error.state(), message));
            }
            if self.verbosity == Verbosity::Verbose && self.notices.len() < MOST_NOTICES {
                let message = format!("skipping row: {}", error.message());
                self.notices.push(retold(error, SqlState::SUCCESSFUL_COMPLETION, message));
            }
        }
        Ok(())
    }

    /// What the user is told in the end.
    pub fn into_notices(mut self) -> Vec<Error> {
        if self.rows > 0 && self.verbosity != Verbosity::Silent {
            let message = match self.rows {
                1 => "1 row was skipped because it could not be read".to_owned(),
                rows => format!("{rows} rows were skipped because they could not be read"),
            };
            self.notices.push(Error::new(SqlState::SUCCESSFUL_COMPLETION, message));
        }
        self.notices
    }
}

/// Other words at the same place.
fn retold(error: &Error, state: SqlState, message: String) -> Error {
    Error::new(state, message).with_context(error.context().unwrap_or_default())
}

/// What the options say of rows that cannot be read.
pub(super) fn rejects(given: &[(String, CopyOption)], options: &CopyOptions) -> Result<Rejects> {
    let mut rejects = Rejects::default();
    let invalid = |message: String| Error::new(SqlState::INVALID_PARAMETER_VALUE, message);
    for (name, option) in given {
        if name == "rejects_table" && options.on_error != OnError::Ignore {
            return Err(invalid("COPY REJECTS_TABLE requires ON_ERROR to be set to IGNORE".to_owned()));
        }
        let CopyOption::Text(given) = option else { continue };
        match name.as_str() {
            "reject_limit" => {
                let limit: i64 = text::parse_integer(given, SqlType::BigInt)?;
                if limit <= 0 {
                    return Err(invalid(format!("REJECT_LIMIT ({limit}) must be greater than zero")));
                }
                rejects.limit = Some(limit.unsigned_abs());
                if options.on_error != OnError::Ignore {
                    return Err(invalid(
                        "COPY REJECT_LIMIT requires ON_ERROR to be set to IGNORE".to_owned(),
                    ));
                }
            }
            "log_verbosity" => {
                rejects.verbosity = match given.to_lowercase().as_str() {
                    "silent" => Verbosity::Silent,
                    "default" => Verbosity::Default,
                    "verbose" => Verbosity::Verbose,
                    other => return Err(invalid(format!("COPY LOG_VERBOSITY \"{other}\" not recognized"))),
                };
            }
            _ => {}
        }
    }
    Ok(rejects)
}

/// The table that keeps rows that were left out.
pub(super) struct RejectsTable {
    /// What the file is called there.
    file: String,
    columns: Vec<ColumnId>,
    schema: SchemaRef,
    set: Arc<TargetSet>,
}

/// Makes the table for rows that are left out, if COPY asks for one that is not there; whether it has.
pub fn make_rejects_table(context: &mut ddl::Context<'_>, copy: &Copy) -> Result<bool> {
    match (copy.rejects_table(), &copy.subject) {
        // Where there is no table to copy to, there is no COPY.
        (Some(name), CopySubject::Into(target, _))
            if context.names().find(name).is_none() && context.names().find(target).is_some() =>
        {
            ddl::plain_table(context, name, &COLUMNS).map(|()| true)
        }
        _ => Ok(false),
    }
}

impl RejectsTable {
    /// The table that a COPY names; nothing if it names none.
    pub fn of(transaction: &Transaction, facts: &SessionFacts, copy: &Copy) -> Result<Option<RejectsTable>> {
        let (Some(name), CopySubject::Into(target, _)) = (copy.rejects_table(), &copy.subject) else {
            return Ok(None);
        };
        let names = Names::new(transaction.catalog(), facts);
        let table = match names.relation(name)? {
            Relation::Table(table) => table,
            other => {
                let message =
                    format!("cannot keep rejected rows in {} \"{}\"", other.kind().word(), name.name);
                return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message));
            }
        };
        if matches!(names.find(target), Some(Relation::Table(target)) if target.oid == table.oid) {
            let message = format!("table \"{}\" cannot take its own rejected rows", table.name);
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
        let hint = || {
            let columns = COLUMNS.map(|(name, ty)| format!("{name} {ty}")).join(", ");
            format!("A table for rejected rows has the columns {columns}.")
        };
        let mut columns = Vec::new();
        for (name, ty) in COLUMNS {
            let found = table.columns.iter().position(|column| !column.dropped && column.name == name);
            let Some(position) = found else {
                let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
                return Err(Error::new(SqlState::UNDEFINED_COLUMN, message).with_hint(hint()));
            };
            let there = table.columns[position].ty;
            if there != ty {
                let message = format!("column \"{name}\" of relation \"{}\" is of type {there}", table.name);
                return Err(Error::new(SqlState::DATATYPE_MISMATCH, message).with_hint(hint()));
            }
            columns.push(ColumnId(position as u16));
        }
        let fields = COLUMNS.map(|(name, ty)| firn_exec::types::field(name, ty));
        let tables = |id| transaction.table(id);
        let binder = Binder::new(transaction.catalog(), &tables, facts);
        let file = match &copy.endpoint {
            CopyEndpoint::File(path) => path.clone(),
            CopyEndpoint::Client => "STDIN".to_owned(),
        };
        Ok(Some(RejectsTable {
            file,
            columns,
            schema: Arc::new(Schema::new(fields.to_vec())),
            set: crate::dml::target_set(&binder, transaction.catalog(), &table)?,
        }))
    }

    /// Whether other rows may be looked for as it takes one.
    pub fn looks_elsewhere(&self) -> bool {
        !self.set.inserts_blindly()
    }

    /// Keeps rows.
    pub fn put(
        &self,
        transaction: &mut Transaction,
        options: &RunOptions,
        rejected: &[Rejected],
    ) -> Result<()> {
        // A text has no zero bytes.
        let clean = |text: &str| text.replace('\0', "\u{fffd}");
        let texts = |text: &dyn Fn(&Rejected) -> Option<String>| -> ArrayRef {
            Arc::new(rejected.iter().map(text).collect::<StringViewArray>())
        };
        let field =
            |rejected: &Rejected| rejected.field.as_ref().map(|(name, value)| (name.clone(), clean(value)));
        let columns: [ArrayRef; COLUMNS.len()] = [
            texts(&|_| Some(self.file.clone())),
            Arc::new(rejected.iter().map(|rejected| Some(rejected.line as i64)).collect::<Int64Array>()),
            texts(&|rejected| Some(field(rejected)?.0)),
            texts(&|rejected| Some(field(rejected)?.1)),
            texts(&|rejected| Some(clean(rejected.error.message()))),
            texts(&|rejected| Some(rejected.error.state().as_str().to_owned())),
            texts(&|rejected| Some(clean(&rejected.record))),
        ];
        let batch = RecordBatch::try_new(self.schema.clone(), columns.to_vec())
            .map_err(|error| firn_exec::error::from_datafusion(error.into()))?;
        let plan = insert_plan(&self.set, self.columns.clone(), InsertSource::Batch(batch), None);
        plan.execute(transaction, &[], options).map(drop)
    }
}
