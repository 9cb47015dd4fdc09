//! Errors that are reported to users: SQLSTATE, what was wrong, where, and what to do about it.
//!
//! Errors of our own are panics and never have this form.

use crate::ids::RowId;
use crate::snapshot::Stamp;
use std::fmt;

/// The result of an operation that can fail because of the user's input or a conflict.
pub type Result<T> = std::result::Result<T, Error>;

/// A five-character SQLSTATE code, PostgreSQL's where it has one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState([u8; 5]);

impl SqlState {
    /// A code from its five characters.
    pub const fn new(code: &str) -> SqlState {
        let bytes = code.as_bytes();
        assert!(bytes.len() == 5);
        SqlState([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]])
    }

    /// The five characters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("codes are made from str")
    }

    /// Whether a message with this code, without an error, is a warning: class 01, statements about transactions at the wrong
    /// time (class 25), and values that are changed (class 22). The others (such as "already exists, skipping") are notices.
    pub fn is_warning(&self) -> bool {
        matches!(&self.0[..2], b"01" | b"22" | b"25")
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

macro_rules! sql_states {
    ($($name:ident = $code:literal;)*) => {
        impl SqlState {
            $(#[doc = concat!("SQLSTATE ", $code, ".")] pub const $name: SqlState = SqlState::new($code);)*
        }
    };
}

sql_states! {
    SUCCESSFUL_COMPLETION = "00000";
    WARNING = "01000";
    PROTOCOL_VIOLATION = "08P01";
    UNABLE_TO_CONNECT = "08001";
    CONNECTION_FAILURE = "08006";
    TRANSACTION_RESOLUTION_UNKNOWN = "08007";
    FEATURE_NOT_SUPPORTED = "0A000";
    CARDINALITY_VIOLATION = "21000";
    STRING_DATA_RIGHT_TRUNCATION = "22001";
    NUMERIC_VALUE_OUT_OF_RANGE = "22003";
    NULL_VALUE_NOT_ALLOWED = "22004";
    INVALID_DATETIME_FORMAT = "22007";
    DATETIME_FIELD_OVERFLOW = "22008";
    ARRAY_SUBSCRIPT_ERROR = "2202E";
    DIVISION_BY_ZERO = "22012";
    INVALID_PRECEDING_OR_FOLLOWING_SIZE = "22013";
    INVALID_PARAMETER_VALUE = "22023";
    INVALID_TEXT_REPRESENTATION = "22P02";
    INVALID_BINARY_REPRESENTATION = "22P03";
    BAD_COPY_FILE_FORMAT = "22P04";
    CHARACTER_NOT_IN_REPERTOIRE = "22021";
    INVALID_REGULAR_EXPRESSION = "2201B";
    NOT_NULL_VIOLATION = "23502";
    FOREIGN_KEY_VIOLATION = "23503";
    UNIQUE_VIOLATION = "23505";
    CHECK_VIOLATION = "23514";
    SEQUENCE_GENERATOR_LIMIT_EXCEEDED = "2200H";
    ACTIVE_SQL_TRANSACTION = "25001";
    READ_ONLY_SQL_TRANSACTION = "25006";
    NO_ACTIVE_SQL_TRANSACTION = "25P01";
    IN_FAILED_SQL_TRANSACTION = "25P02";
    IDLE_IN_TRANSACTION_SESSION_TIMEOUT = "25P03";
    INVALID_SQL_STATEMENT_NAME = "26000";
    INVALID_AUTHORIZATION_SPECIFICATION = "28000";
    INVALID_PASSWORD = "28P01";
    DEPENDENT_OBJECTS_STILL_EXIST = "2BP01";
    INVALID_CURSOR_NAME = "34000";
    INVALID_CATALOG_NAME = "3D000";
    INVALID_SCHEMA_NAME = "3F000";
    INVALID_SAVEPOINT = "3B001";
    SERIALIZATION_FAILURE = "40001";
    DEADLOCK_DETECTED = "40P01";
    SYNTAX_ERROR = "42601";
    INSUFFICIENT_PRIVILEGE = "42501";
    CANNOT_COERCE = "42846";
    GROUPING_ERROR = "42803";
    DATATYPE_MISMATCH = "42804";
    INDETERMINATE_DATATYPE = "42P18";
    WRONG_OBJECT_TYPE = "42809";
    UNDEFINED_COLUMN = "42703";
    UNDEFINED_FUNCTION = "42883";
    UNDEFINED_TABLE = "42P01";
    UNDEFINED_PARAMETER = "42P02";
    UNDEFINED_OBJECT = "42704";
    DUPLICATE_COLUMN = "42701";
    DUPLICATE_CURSOR = "42P03";
    DUPLICATE_PREPARED_STATEMENT = "42P05";
    DUPLICATE_SCHEMA = "42P06";
    DUPLICATE_TABLE = "42P07";
    DUPLICATE_OBJECT = "42710";
    AMBIGUOUS_COLUMN = "42702";
    AMBIGUOUS_FUNCTION = "42725";
    INVALID_NAME = "42602";
    INVALID_COLUMN_REFERENCE = "42P10";
    INVALID_COLUMN_DEFINITION = "42611";
    INVALID_TABLE_DEFINITION = "42P16";
    INVALID_FOREIGN_KEY = "42830";
    INVALID_OBJECT_DEFINITION = "42P17";
    INSUFFICIENT_RESOURCES = "53000";
    DISK_FULL = "53100";
    OUT_OF_MEMORY = "53200";
    TOO_MANY_CONNECTIONS = "53300";
    PROGRAM_LIMIT_EXCEEDED = "54000";
    OBJECT_NOT_IN_PREREQUISITE_STATE = "55000";
    OBJECT_IN_USE = "55006";
    LOCK_NOT_AVAILABLE = "55P03";
    QUERY_CANCELED = "57014";
    ADMIN_SHUTDOWN = "57P01";
    CANNOT_CONNECT_NOW = "57P03";
    IDLE_SESSION_TIMEOUT = "57P05";
    IO_ERROR = "58030";
    UNDEFINED_FILE = "58P01";
    CONFIG_FILE_ERROR = "F0000";
    INTERNAL_ERROR = "XX000";
    DATA_CORRUPTED = "XX001";
}

/// An error for the user. One pointer wide, so that results stay small on hot paths.
#[derive(Clone)]
pub struct Error(Box<Fields>);

#[derive(Clone)]
struct Fields {
    state: SqlState,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    position: Option<u32>,
    constraint: Option<String>,
    context: Option<String>,
    schema: Option<String>,
    table: Option<String>,
    column: Option<String>,
    routine: Option<&'static str>,
    missing_relation: Option<String>,
    blocker: Option<Stamp>,
    is_of_reads: bool,
    ordinal: Option<u64>,
    row: Option<RowId>,
    other_row: Option<RowId>,
}

impl Error {
    /// An error with its code and primary message (one line, lower case, no full stop).
    #[cold]
    pub fn new(state: SqlState, message: impl Into<String>) -> Error {
        Error(Box::new(Fields {
            state,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            constraint: None,
            context: None,
            schema: None,
            table: None,
            column: None,
            routine: None,
            missing_relation: None,
            blocker: None,
            is_of_reads: false,
            ordinal: None,
            row: None,
            other_row: None,
        }))
    }

    /// Adds what exactly was found, as a full sentence.
    pub fn with_detail(mut self, detail: impl Into<String>) -> Error {
        self.0.detail = Some(detail.into());
        self
    }

    /// Adds what the user can do, as a full sentence.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds the position in the statement, in characters from 1.
    pub fn with_position(mut self, position: u32) -> Error {
        self.0.position = Some(position);
        self
    }

    /// Removes the position: for an error in a text that the user has not written.
    pub fn without_position(mut self) -> Error {
        self.0.position = None;
        self
    }

    /// Adds the blocking transaction, which is running: once it has ended, another attempt may succeed.
    pub fn with_blocker(mut self, transaction: Stamp) -> Error {
        self.0.blocker = Some(transaction);
        self
    }

    /// Adds which of the rows of one call it is about, from 0.
    pub fn with_ordinal(mut self, ordinal: u64) -> Error {
        self.0.ordinal = Some(ordinal);
        self
    }

    /// Removes which of some rows it is about, for a caller with other rows.
    pub fn without_row(mut self) -> Error {
        (self.0.ordinal, self.0.row, self.0.other_row) = (None, None, None);
        self
    }

    /// Adds the row whose key is taken, if its ordinal is not known.
    pub fn with_row(mut self, row: RowId) -> Error {
        self.0.row = Some(row);
        self
    }

    /// Adds the row that has the key already.
    pub fn with_other_row(mut self, row: RowId) -> Error {
        self.0.other_row = Some(row);
        self
    }

    /// Adds the name of the violated constraint.
    pub fn with_constraint(mut self, name: impl Into<String>) -> Error {
        self.0.constraint = Some(name.into());
        self
    }

    /// Adds the context, such as the line of a file that was being read.
    pub fn with_context(mut self, context: impl Into<String>) -> Error {
        self.0.context = Some(context.into());
        self
    }

    /// Adds the table that the error is about.
    pub fn with_table(mut self, schema: impl Into<String>, table: impl Into<String>) -> Error {
        self.0.schema = Some(schema.into());
        self.0.table = Some(table.into());
        self
    }

    /// Adds the column of that table that the error is about.
    pub fn with_column(mut self, name: impl Into<String>) -> Error {
        self.0.column = Some(name.into());
        self
    }

    /// Adds the routine of PostgreSQL's sources that reports the error. Clients distinguish some errors of one SQLSTATE by it.
    pub fn with_routine(mut self, name: &'static str) -> Error {
        self.0.routine = Some(name);
        self
    }

    /// Adds the name without a schema of a relation that does not exist, for programs that may then provide one.
    pub fn with_missing_relation(mut self, name: impl Into<String>) -> Error {
        self.0.missing_relation = Some(name.into());
        self
    }

    /// A write conflicts with a change that it does not see: SQLSTATE 40001.
    #[cold]
    pub fn write_conflict(table: &str) -> Error {
        Error::new(
            SqlState::SERIALIZATION_FAILURE,
            format!("could not serialize access to row in table \"{table}\""),
        )
        .with_hint("Retry the transaction.")
    }

    /// A wait would never end: SQLSTATE 40P01.
    #[cold]
    pub fn deadlock() -> Error {
        Error::new(SqlState::DEADLOCK_DETECTED, "deadlock detected")
            .with_detail("The transaction that it would wait for waits for it.")
            .with_hint("Retry the transaction.")
    }

    /// What a transaction has read has changed since: SQLSTATE 40001.
    #[cold]
    pub fn read_conflict(table: &str) -> Error {
        Error::new(
            SqlState::SERIALIZATION_FAILURE,
            format!("could not serialize access: what was read of table \"{table}\" has changed since"),
        )
        .with_hint("Retry the transaction.")
        .of_reads()
    }

    fn of_reads(mut self) -> Error {
        self.0.is_of_reads = true;
        self
    }

    /// Whether it is a [read conflict](Error::read_conflict).
    pub fn is_read_conflict(&self) -> bool {
        self.0.is_of_reads
    }

    /// XX000: an error of our own, such as a panic.
    #[cold]
    pub fn internal(cause: &str) -> Error {
        Error::new(SqlState::INTERNAL_ERROR, format!("internal error: {cause}"))
            .with_hint("This is a bug in FirnDB; please report it with the statement.")
    }

    /// A request that FirnDB does not support (yet): SQLSTATE 0A000.
    #[cold]
    pub fn unsupported(what: impl fmt::Display) -> Error {
        Error::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
    }

    /// The SQLSTATE.
    pub fn state(&self) -> SqlState {
        self.0.state
    }

    /// The primary message.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What exactly was found.
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// What to do.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The position in the statement, in characters from 1.
    pub fn position(&self) -> Option<u32> {
        self.0.position
    }

    /// The blocking transaction.
    pub fn blocker(&self) -> Option<Stamp> {
        self.0.blocker
    }

    /// Which of the rows of one call it is about, from 0.
    pub fn ordinal(&self) -> Option<u64> {
        self.0.ordinal
    }

    /// The row whose key is taken, if there is no ordinal.
    pub fn row(&self) -> Option<RowId> {
        self.0.row
    }

    /// The row that has the key already.
    pub fn other_row(&self) -> Option<RowId> {
        self.0.other_row
    }

    /// The violated constraint.
    pub fn constraint(&self) -> Option<&str> {
        self.0.constraint.as_deref()
    }

    /// The schema of the table that the error is about.
    pub fn schema(&self) -> Option<&str> {
        self.0.schema.as_deref()
    }

    /// The table that the error is about.
    pub fn table(&self) -> Option<&str> {
        self.0.table.as_deref()
    }

    /// The column of that table that the error is about.
    pub fn column(&self) -> Option<&str> {
        self.0.column.as_deref()
    }

    /// The routine of PostgreSQL's sources that reports the error.
    pub fn routine(&self) -> Option<&'static str> {
        self.0.routine
    }

    /// The name without a schema of the relation that does not exist, if that is the error.
    pub fn missing_relation(&self) -> Option<&str> {
        self.0.missing_relation.as_deref()
    }

    /// The context, such as the line of a file that was being read.
    pub fn context(&self) -> Option<&str> {
        self.0.context.as_deref()
    }

    /// Whether running the transaction again may succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(self.state(), SqlState::SERIALIZATION_FAILURE | SqlState::DEADLOCK_DETECTED)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(detail) = &self.0.detail {
            write!(f, "\nDETAIL: {detail}")?;
        }
        if let Some(hint) = &self.0.hint {
            write!(f, "\nHINT: {hint}")?;
        }
        if let Some(context) = &self.0.context {
            write!(f, "\nCONTEXT: {context}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.0.state)
    }
}

impl std::error::Error for Error {}
