//! What a statement is once it has been parsed: one variant per thing that FirnDB can do.
//!
//! Queries and row changes keep sqlparser's tree, because binding works on it; everything else is
//! reduced to what the executing code needs, with names already folded to lower case.

pub use crate::ident::fold;
use datafusion::sql::sqlparser::ast;
use firn_base::{Error, ParameterType, SqlType};
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

/// Whom LOCK TABLE keeps out. Nobody is ever kept from reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableLock {
    /// Nobody: who reads a snapshot is not in the way of others.
    Reading,
    /// Those who have it alone, as who changes its shape does.
    LockingRows,
    /// The same, and those who let nobody else write.
    Writing,
    /// The same, and those who would do likewise.
    Maintaining,
    /// All who write to the table or maintain it, and those who let nobody else write or have it alone.
    Sharing,
    /// The same, and those who would share it.
    WritingAlone,
    /// All who write to the table, lock its rows, or lock it.
    Alone,
}

/// One statement with the text it came from.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// Its text, without the semicolon.
    pub text: String,
    /// How many characters of the script stand before it.
    pub offset: u32,
    /// What it asks for.
    pub statement: Statement,
    /// How deep it is, in levels of expressions; see `parse/depth.rs`.
    pub depth: u32,
}

/// What a statement asks for.
#[derive(Clone, Debug)]
pub enum Statement {
    /// SELECT, VALUES, TABLE, WITH … SELECT
    Query(Box<ast::Query>),
    /// INSERT, UPDATE, DELETE
    Change(Box<Change>),
    /// BEGIN and its relatives
    Transaction(TransactionControl),
    /// SET, SHOW, RESET
    Setting(SettingStatement),
    /// PREPARE
    Prepare {
        /// The name to run it by.
        name: String,
        /// The parameter types that were given.
        types: Vec<ParameterType>,
        /// What to run.
        statement: Box<Parsed>,
    },
    /// EXECUTE
    Execute {
        /// The name it was prepared under.
        name: String,
        /// The arguments.
        arguments: Vec<ast::Expr>,
    },
    /// DEALLOCATE; all of them without a name.
    Deallocate(Option<String>),
    /// DECLARE … CURSOR
    Declare {
        /// The cursor's name.
        name: String,
        /// Whether it outlives its transaction.
        hold: bool,
        /// What it yields.
        query: Box<Parsed>,
    },
    /// FETCH and MOVE
    Fetch {
        /// The cursor's name.
        cursor: String,
        /// How many rows; all that are left without.
        count: Option<u64>,
        /// MOVE: pass over the rows instead of yielding them.
        discard: bool,
    },
    /// CLOSE; all of them without a name.
    CloseCursor(Option<String>),
    /// DISCARD; with true everything of the session, else only cached plans or sequences.
    Discard(bool),
    /// EXPLAIN
    Explain {
        /// Whether to run it and say how long everything took.
        analyze: bool,
        /// What to explain.
        statement: Box<Parsed>,
    },
    /// COPY
    Copy(Box<Copy>),
    /// CREATE, ALTER, DROP, TRUNCATE, COMMENT
    Ddl(Box<Ddl>),
    /// LOCK TABLE
    Lock {
        /// Which.
        tables: Vec<QualifiedName>,
        /// Whom it keeps out.
        mode: TableLock,
        /// Whether it fails rather than wait.
        nowait: bool,
    },
    /// SET CONSTRAINTS
    SetConstraints {
        /// Which; all of them without names.
        names: Option<Vec<QualifiedName>>,
        /// DEFERRED or IMMEDIATE.
        deferred: bool,
    },
    /// CHECKPOINT
    Checkpoint,
    /// Statements that ask for what the engine does by itself: VACUUM, ANALYZE, CLUSTER, REINDEX.
    /// The text is the command tag.
    Housekeeping(&'static str, Option<QualifiedName>),
}

/// INSERT, UPDATE or DELETE, with what sqlparser's tree of it has no place for.
#[derive(Clone, Debug)]
pub struct Change {
    /// The change itself.
    pub tree: ast::Statement,
    /// WITH before it.
    pub with: Option<ast::With>,
    /// OVERRIDING … VALUE of an INSERT.
    pub overriding: Option<Overriding>,
}

impl Change {
    /// INSERT, UPDATE or DELETE.
    pub fn verb(&self) -> &'static str {
        match &self.tree {
            ast::Statement::Insert(_) => "INSERT",
            ast::Statement::Update(_) => "UPDATE",
            ast::Statement::Delete(_) => "DELETE",
            other => panic!("{other} changes no rows"),
        }
    }
}

/// What becomes of values that an INSERT brings for identity columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overriding {
    /// OVERRIDING SYSTEM VALUE: they are stored, even where the column is GENERATED ALWAYS.
    System,
    /// OVERRIDING USER VALUE: they are passed over.
    User,
}

/// BEGIN and its relatives.
#[derive(Clone, PartialEq, Debug)]
pub enum TransactionControl {
    /// BEGIN, START TRANSACTION
    Begin {
        /// The modes that were given.
        modes: TransactionModes,
        /// Whether it was written START TRANSACTION, which the command tag repeats.
        start: bool,
    },
    /// COMMIT, END
    Commit {
        /// AND CHAIN
        chain: bool,
    },
    /// ROLLBACK, ABORT
    Rollback {
        /// AND CHAIN
        chain: bool,
    },
    /// SAVEPOINT
    Savepoint(String),
    /// RELEASE SAVEPOINT
    Release(String),
    /// ROLLBACK TO SAVEPOINT
    RollbackTo(String),
    /// SET TRANSACTION
    Set(TransactionModes),
    /// SET SESSION CHARACTERISTICS AS TRANSACTION
    SetDefault(TransactionModes),
}

/// What was said about a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransactionModes {
    /// READ ONLY or READ WRITE, if either was said.
    pub read_only: Option<bool>,
    /// The isolation level, if one was said; READ UNCOMMITTED is run as READ COMMITTED.
    pub isolation: Option<Isolation>,
}

/// SET, SHOW, RESET.
#[derive(Clone, PartialEq, Debug)]
pub enum SettingStatement {
    /// SET; without a value: TO DEFAULT
    Set {
        /// The setting.
        name: String,
        /// Its new value.
        value: Option<String>,
        /// SET LOCAL: until the transaction ends.
        local: bool,
    },
    /// RESET; all of them without a name.
    Reset(Option<String>),
    /// SHOW; all of them without a name.
    Show(Option<String>),
}

/// COPY.
#[derive(Clone, Debug)]
pub struct Copy {
    /// What is copied.
    pub subject: CopySubject,
    /// Where the data comes from or goes.
    pub endpoint: CopyEndpoint,
    /// Options by lower-case name; flags without a value are `true`.
    pub options: Vec<(String, CopyOption)>,
    /// WHERE of COPY … FROM
    pub filter: Option<ast::Expr>,
}

impl Copy {
    /// The table that rows are put into which are left out: `REJECTS_TABLE`.
    pub fn rejects_table(&self) -> Option<&QualifiedName> {
        self.options.iter().find_map(|(_, option)| match option {
            CopyOption::Name(name) => Some(name),
            _ => None,
        })
    }
}

/// The database's side of a COPY.
#[derive(Clone, Debug)]
pub enum CopySubject {
    /// FROM: into a table.
    Into(QualifiedName, Option<Vec<String>>),
    /// TO: a table's rows.
    Table(QualifiedName, Option<Vec<String>>),
    /// TO: a query's rows.
    Query(Box<ast::Query>),
}

/// The other side of a COPY.
#[derive(Clone, PartialEq, Debug)]
pub enum CopyEndpoint {
    /// STDIN or STDOUT: the client.
    Client,
    /// A file of the server.
    File(String),
}

/// The value of a COPY option.
#[derive(Clone, PartialEq, Debug)]
pub enum CopyOption {
    /// A flag, a word or a string.
    Text(String),
    /// A list of columns.
    Columns(Vec<String>),
    /// `*`
    All,
    /// The name of a table.
    Name(QualifiedName),
}

/// DROP's and TRUNCATE's way with what depends on their object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behavior {
    /// Refuse.
    Restrict,
    /// Drop it too.
    Cascade,
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
}

/// A storage parameter of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameter {
    /// Its name, folded.
    pub name: String,
    /// What it is to be; nothing means that it is to be on.
    pub value: Option<String>,
}

/// A change of a table.
#[derive(Clone, Debug)]
pub enum TableOperation {
    /// ALTER CONSTRAINT, which sqlparser does not know.
    AlterConstraint {
        /// Which.
        name: String,
        /// When it is to be tested.
        characteristics: Option<ast::ConstraintCharacteristics>,
    },
    /// ALTER COLUMN … ADD GENERATED … AS IDENTITY, whose options sqlparser knows in one order only.
    AddIdentity {
        /// The column.
        column: String,
        /// ALWAYS, not BY DEFAULT.
        always: bool,
        /// Those of the sequence.
        options: Box<SequenceOptions>,
    },
    /// SET (…)
    Set(Vec<Parameter>),
    /// RESET (…)
    Reset(Vec<String>),
    /// How PostgreSQL samples, stores and sorts, which FirnDB does in its own way: SET STATISTICS, CLUSTER ON and their like.
    WithoutEffect(Concerned),
    /// Everything else.
    Tree(Box<ast::AlterTableOperation>),
}

/// What an operation without effect names, which must be there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Concerned {
    /// The table alone.
    Table,
    /// A column of it.
    Column(String),
    /// An index of it.
    Index(String),
}

/// Statements that change the catalog.
#[derive(Clone, Debug)]
pub enum Ddl {
    /// CREATE SCHEMA
    CreateSchema {
        /// Its name.
        name: String,
        /// IF NOT EXISTS
        if_not_exists: bool,
    },
    /// CREATE TABLE
    CreateTable(Box<CreateTable>),
    /// CREATE TABLE … AS, SELECT … INTO
    CreateTableAs {
        /// Its name.
        name: QualifiedName,
        /// IF NOT EXISTS
        if_not_exists: bool,
        /// Names for the first columns.
        columns: Vec<String>,
        /// Where the rows come from.
        query: Box<ast::Query>,
        /// WITH (…)
        parameters: Vec<Parameter>,
        /// False with WITH NO DATA.
        with_data: bool,
    },
    /// CREATE [OR REPLACE] VIEW
    CreateView {
        /// Its name.
        name: QualifiedName,
        /// OR REPLACE
        or_replace: bool,
        /// Names for the first columns.
        columns: Vec<String>,
        /// What it shows.
        query: Box<ast::Query>,
    },
    /// CREATE INDEX
    CreateIndex(Box<ast::CreateIndex>),
    /// CREATE SEQUENCE
    CreateSequence {
        /// Its name.
        name: QualifiedName,
        /// IF NOT EXISTS
        if_not_exists: bool,
        /// Its options.
        options: SequenceOptions,
    },
    /// ALTER SEQUENCE
    AlterSequence {
        /// Its name.
        name: QualifiedName,
        /// IF EXISTS
        if_exists: bool,
        /// What changes.
        options: SequenceOptions,
    },
    /// ALTER TABLE
    AlterTable {
        /// Its name.
        name: QualifiedName,
        /// IF EXISTS
        if_exists: bool,
        /// What changes, in order.
        operations: Vec<TableOperation>,
    },
    /// ALTER … RENAME TO
    Rename {
        /// What is renamed.
        kind: ObjectKind,
        /// IF EXISTS
        if_exists: bool,
        /// The old name.
        name: QualifiedName,
        /// The new one.
        to: String,
    },
    /// ALTER … SET SCHEMA
    SetSchema {
        /// What moves.
        kind: ObjectKind,
        /// IF EXISTS
        if_exists: bool,
        /// Its name.
        name: QualifiedName,
        /// Where it moves.
        schema: String,
    },
    /// DROP
    Drop {
        /// What is dropped.
        kind: ObjectKind,
        /// IF EXISTS
        if_exists: bool,
        /// The objects.
        names: Vec<QualifiedName>,
        /// CASCADE or RESTRICT
        behavior: Behavior,
    },
    /// TRUNCATE
    Truncate {
        /// The tables.
        names: Vec<QualifiedName>,
        /// RESTART IDENTITY
        restart_identity: bool,
        /// CASCADE or RESTRICT
        behavior: Behavior,
    },
    /// ALTER … OWNER TO: checked and forgotten, since nobody owns anything (docs/dialect.md).
    Owner {
        /// What changes hands; any relation passes for a table.
        kind: ObjectKind,
        /// IF EXISTS
        if_exists: bool,
        /// Its name.
        name: QualifiedName,
    },
    /// COMMENT ON: checked and forgotten (docs/dialect.md).
    Comment(Commented),
}

/// What a COMMENT ON is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Commented {
    /// A table, view, index, sequence or schema.
    Object(ObjectKind, QualifiedName),
    /// A column of a table.
    Column(QualifiedName, String),
    /// A constraint of a table.
    Constraint(QualifiedName, String),
    /// The database, whatever it is called where the script was made.
    Database,
}

/// CREATE TABLE.
#[derive(Clone, Debug)]
pub struct CreateTable {
    /// What sqlparser made of it.
    pub tree: ast::CreateTable,
    /// LIKE among the columns.
    pub likes: Vec<Like>,
    /// WITH (…)
    pub parameters: Vec<Parameter>,
}

/// LIKE in CREATE TABLE: the columns of another table.
#[derive(Clone, Debug)]
pub struct Like {
    /// The other table.
    pub name: QualifiedName,
    /// How many of the columns that were written out stand before it.
    pub position: usize,
    /// What is copied besides names, types and NOT NULL.
    pub including: LikeParts,
}

/// What LIKE may copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LikeParts {
    /// INCLUDING DEFAULTS
    pub defaults: bool,
    /// INCLUDING CONSTRAINTS: conditions of CHECK.
    pub constraints: bool,
    /// INCLUDING IDENTITY
    pub identity: bool,
    /// INCLUDING INDEXES: keys as well.
    pub indexes: bool,
}

/// Options of CREATE and ALTER SEQUENCE, as far as they were given.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SequenceOptions {
    /// AS
    pub ty: Option<SqlType>,
    /// INCREMENT BY
    pub increment: Option<i64>,
    /// MINVALUE; `Some(None)` for NO MINVALUE
    pub minimum: Option<Option<i64>>,
    /// MAXVALUE; `Some(None)` for NO MAXVALUE
    pub maximum: Option<Option<i64>>,
    /// START WITH
    pub start: Option<i64>,
    /// RESTART [WITH]; `Some(None)` for the start value
    pub restart: Option<Option<i64>>,
    /// CYCLE, NO CYCLE
    pub cycle: Option<bool>,
    /// SEQUENCE NAME, of an identity column's sequence alone
    pub name: Option<QualifiedName>,
    /// OWNED BY table.column; `Some(None)` for OWNED BY NONE
    pub owner: Option<Option<(QualifiedName, String)>>,
}

impl Statement {
    /// Whether a failed transaction block still takes it.
    pub fn ends_failed_block(&self) -> bool {
        matches!(
            self,
            Statement::Transaction(
                TransactionControl::Commit { .. }
                    | TransactionControl::Rollback { .. }
                    | TransactionControl::RollbackTo(_)
            )
        )
    }

    /// The words that a read-only transaction's refusal (25006) names; `None` if it may run there.
    pub fn writes(&self) -> Option<&'static str> {
        match self {
            Statement::Change(change) => Some(change.verb()),
            Statement::Ddl(ddl) => Some(ddl.tag()),
            Statement::Copy(copy) if matches!(copy.subject, CopySubject::Into(..)) => Some("COPY FROM"),
            Statement::Explain { analyze: true, statement } => statement.statement.writes(),
            Statement::Lock { .. } => Some("LOCK TABLE"),
            _ => None,
        }
    }
}

impl Ddl {
    /// The command tag.
    pub fn tag(&self) -> &'static str {
        match self {
            Ddl::CreateSchema { .. } => "CREATE SCHEMA",
            Ddl::CreateTable(_) => "CREATE TABLE",
            Ddl::CreateTableAs { .. } => "CREATE TABLE AS",
            Ddl::CreateView { .. } => "CREATE VIEW",
            Ddl::CreateIndex(_) => "CREATE INDEX",
            Ddl::CreateSequence { .. } => "CREATE SEQUENCE",
            Ddl::AlterSequence { .. } => "ALTER SEQUENCE",
            Ddl::AlterTable { .. } => "ALTER TABLE",
            Ddl::Rename { kind, .. } | Ddl::SetSchema { kind, .. } | Ddl::Owner { kind, .. } => match kind {
                ObjectKind::Table => "ALTER TABLE",
                ObjectKind::View => "ALTER VIEW",
                ObjectKind::Index => "ALTER INDEX",
                ObjectKind::Sequence => "ALTER SEQUENCE",
                ObjectKind::Schema => "ALTER SCHEMA",
            },
            Ddl::Drop { kind, .. } => match kind {
                ObjectKind::Table => "DROP TABLE",
                ObjectKind::View => "DROP VIEW",
                ObjectKind::Index => "DROP INDEX",
                ObjectKind::Sequence => "DROP SEQUENCE",
                ObjectKind::Schema => "DROP SCHEMA",
            },
            Ddl::Truncate { .. } => "TRUNCATE TABLE",
            Ddl::Comment(_) => "COMMENT",
        }
    }
}

/// A name of one or two parts, or of three when the first is the database, which we ignore.
pub fn qualified_name(name: &ast::ObjectName) -> Result<QualifiedName, Error> {
    let mut parts = Vec::with_capacity(name.0.len());
    for part in &name.0 {
        match part {
            ast::ObjectNamePart::Identifier(ident) => parts.push(fold(ident)),
            ast::ObjectNamePart::Function(_) => return Err(improper_name(name)),
        }
    }
    let last = parts.pop().ok_or_else(|| improper_name(name))?;
    match parts.len() {
        0..=2 => Ok(QualifiedName { schema: parts.pop(), name: last }),
        _ => Err(improper_name(name)),
    }
}

fn improper_name(name: &ast::ObjectName) -> Error {
    Error::new(
        firn_base::SqlState::SYNTAX_ERROR,
        format!("improper qualified name (too many dotted names): {name}"),
    )
}

/// An identifier as SQL text: quoted where it must be.
pub fn quote_ident(name: &str) -> String {
    let plain = name.chars().next().is_some_and(|first| first.is_ascii_lowercase() || first == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !is_keyword(name);
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// A string as SQL text.
pub fn quote_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// PostgreSQL's keywords but for those that may stand as any name, sorted.
const KEYWORDS: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "between",
    "bigint",
    "binary",
    "bit",
    "boolean",
    "both",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "dec",
    "decimal",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "inout",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "national",
    "natural",
    "nchar",
    "none",
    "normalize",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "out",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
    "xmlattributes",
    "xmlconcat",
    "xmlelement",
    "xmlexists",
    "xmlforest",
    "xmlnamespaces",
    "xmlparse",
    "xmlpi",
    "xmlroot",
    "xmlserialize",
    "xmltable",
];

fn is_keyword(word: &str) -> bool {
    KEYWORDS.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_is_quoted_only_where_it_must_be() {
        assert_eq!(quote_ident("orders"), "orders");
        assert_eq!(quote_ident("Orders"), "\"Orders\"");
        assert_eq!(quote_ident("select"), "\"select\"");
        assert_eq!(quote_ident("a\"b"), "\"a\"\"b\"");
        assert_eq!(quote_ident("1a"), "\"1a\"");
    }
}
