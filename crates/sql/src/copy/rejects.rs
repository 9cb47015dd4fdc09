//! Rows that cannot be read, if they do not end the COPY: they are counted, reported, and stored in a table.

use super::options::word;
use crate::ddl;
use crate::names::{Names, Relation};
use crate::query::load_expressions;
use crate::session_facts::SessionFacts;
use crate::statement::QualifiedName;
use arrow_array::{ArrayRef, Int64Array, StringViewArray};
use firn_base::sync::Arc;
use firn_base::{ColumnId, Error, Result, SqlState, SqlType, Type, TypeId, text};
use firn_executor::write::Load;
use firn_load::{CopyOptions, OnError, Rejected};
use firn_syntax::tree::{Copy, CopyOption, CopySource, CopyTarget, CopyValue, ObjectName};
use firn_txn::Transaction;
use firn_vector::Context;

/// The most rejected rows that are reported one by one.
const MOST_NOTICES: usize = 1000;

/// The columns of a table for rows that were left out.
const COLUMNS: [(&str, TypeId); 7] = [
    ("file", TypeId::TEXT),
    ("line", TypeId::INT8),
    ("column_name", TypeId::TEXT),
    ("value", TypeId::TEXT),
    ("reason", TypeId::TEXT),
    ("sqlstate", TypeId::TEXT),
    ("record", TypeId::TEXT),
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
    /// No notice.
    Silent,
    /// How many rows have been left out.
    #[default]
    Default,
    /// Each row, and its error.
    Verbose,
}

impl Rejects {
    /// Counts rows that have been left out; an error if they are too many.
    pub fn add(&mut self, rejected: &[Rejected]) -> Result<()> {
        for Rejected { error, .. } in rejected {
            self.rows += 1;
            if self.limit.is_some_and(|limit| self.rows > limit) {
                let limit = self.limit.unwrap_or_default();
                let message = format!(
                    "skipped more than REJECT_LIMIT ({limit}) rows, the last for: {}",
                    error.message()
                );
                return Err(reworded(error, error.state(), message));
            }
            if self.verbosity == Verbosity::Verbose && self.notices.len() < MOST_NOTICES {
                let message = format!("skipping row: {}", error.message());
                self.notices.push(reworded(error, SqlState::SUCCESSFUL_COMPLETION, message));
            }
        }
        Ok(())
    }

    /// The notices for the user at the end.
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

/// Another message with the same context.
fn reworded(error: &Error, state: SqlState, message: String) -> Error {
    Error::new(state, message).with_context(error.context().unwrap_or_default())
}

/// The options for rows that cannot be read.
pub(super) fn rejects(given: &[CopyOption], options: &CopyOptions) -> Result<Rejects> {
    let mut rejects = Rejects::default();
    let invalid = |message: String| Error::new(SqlState::INVALID_PARAMETER_VALUE, message);
    for option in given {
        let name = &*option.name.text;
        if name == "rejects_table" && options.on_error != OnError::Ignore {
            return Err(invalid("COPY REJECTS_TABLE requires ON_ERROR to be set to IGNORE".to_owned()));
        }
        match name {
            "reject_limit" => {
                let given = word(option)?;
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
                rejects.verbosity = match word(option)?.to_lowercase().as_str() {
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

/// The table that stores rejected rows.
pub(super) struct RejectsTable {
    /// The name of the file there.
    file: String,
    load: Load,
}

/// The table that a COPY names for rejected rows, and its target table.
fn names_of(copy: &Copy) -> Option<(&ObjectName, &ObjectName)> {
    let rejects = copy.options.iter().find_map(|option| match &option.value {
        CopyValue::Table(name) => Some(name),
        _ => None,
    })?;
    match &copy.source {
        CopySource::Table { name, .. } if copy.is_from => Some((rejects, name)),
        _ => None,
    }
}

/// Creates the table for rejected rows, if COPY names one that does not exist. Returns whether it has.
pub fn make_rejects_table(context: &mut ddl::Context<'_>, copy: &Copy) -> Result<bool> {
    let Some((name, target)) = names_of(copy) else { return Ok(false) };
    let (name, target) = (QualifiedName::from(name), QualifiedName::from(target));
    let names = Names::new(context.transaction.catalog(), context.facts);
    // If the target does not exist, the COPY will fail.
    match names.find(&name).is_none() && names.find(&target).is_some() {
        true => {
            ddl::plain_table(context, &name, &COLUMNS.map(|(name, ty)| (name, Type::new(ty)))).map(|()| true)
        }
        false => Ok(false),
    }
}

impl RejectsTable {
    /// The table that a COPY names; `None` if it names none.
    pub fn of(
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        copy: &Copy,
    ) -> Result<Option<RejectsTable>> {
        let Some((name, target)) = names_of(copy) else { return Ok(None) };
        let (name, target) = (QualifiedName::from(name), QualifiedName::from(target));
        let names = Names::new(transaction.catalog(), facts);
        let table = match names.relation(&name)? {
            Relation::Table(table) => table,
            other => {
                let message =
                    format!("cannot store rejected rows in {} \"{}\"", other.kind().word(), name.name);
                return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message));
            }
        };
        if matches!(names.find(&target), Some(Relation::Table(target)) if target.oid == table.oid) {
            let message = format!("table \"{}\" cannot store its own rejected rows", table.name);
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
        let hint = || {
            let columns = COLUMNS.map(|(name, ty)| format!("{name} {}", Type::new(ty))).join(", ");
            format!("A table for rejected rows has the columns {columns}.")
        };
        let mut columns = Vec::new();
        for (name, ty) in COLUMNS {
            let found = table.columns.iter().position(|column| !column.dropped && column.name == name);
            let Some(position) = found else {
                let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
                return Err(Error::new(SqlState::UNDEFINED_COLUMN, message).with_hint(hint()));
            };
            let there = table.columns[position].ty.declared;
            if there != Type::new(ty) {
                let message = format!("column \"{name}\" of relation \"{}\" is of type {there}", table.name);
                return Err(Error::new(SqlState::DATATYPE_MISMATCH, message).with_hint(hint()));
            }
            columns.push(ColumnId(position as u16));
        }
        let file = match &copy.target {
            CopyTarget::File(path) => path.to_string(),
            CopyTarget::Standard | CopyTarget::Program(_) => "STDIN".to_owned(),
        };
        let load =
            load_expressions(transaction, facts, |expressions| expressions.load(&table, columns, None))?;
        Ok(Some(RejectsTable { file, load }))
    }

    /// Stores rejected rows.
    pub fn put(
        &mut self,
        transaction: &mut Transaction,
        context: &Context<'_>,
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
        self.load.insert(transaction, rejected.len(), &columns, context)?;
        // Its keys do not wait together with those of the target table.
        self.load.finish(transaction, context)
    }
}
