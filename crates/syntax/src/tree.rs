//! The syntax tree: what a text says, with the place of every node, and nothing about what names mean.
//!
//! What PostgreSQL's raw parser drops is dropped here as well: parentheses, AS, noise words, ALL where it
//! is the default. `a::t` and `CAST(a AS t)` are one node, as are LIMIT and FETCH FIRST, SOME and ANY.
//! Chains of operators, set operations and joins are lists; only what nests in the text nests in the tree.
//! Trees compare without their positions. What PostgreSQL does not have says so at its node: see
//! [`Options::additions`](crate::Options::additions).

mod alter;
mod change;
mod expression;
mod name;
mod object;
mod other;
mod query;
mod relation;
mod session;
mod setting;
mod table;
mod type_name;

pub use alter::*;
pub use change::*;
pub use expression::*;
pub use name::*;
pub use object::*;
pub use other::*;
pub use query::*;
pub use relation::*;
pub use session::*;
pub use setting::*;
pub use table::*;
pub use type_name::*;

use crate::span::Span;

/// A statement and its place, without the semicolon behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct StatementNode {
    /// What it says.
    pub statement: Statement,
    /// From its first token to its last one.
    pub span: Span,
}

/// One SQL statement. Each family has its file in `tree`, in `parser` and in `print`.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// SELECT, VALUES, TABLE and what is made of them.
    Query(Box<Query>),
    /// INSERT.
    Insert(Box<Insert>),
    /// UPDATE.
    Update(Box<Update>),
    /// DELETE.
    Delete(Box<Delete>),
    /// MERGE.
    Merge(Box<Merge>),
    /// EXPLAIN.
    Explain(Box<Explain>),
    /// PREPARE.
    Prepare(Box<Prepare>),
    /// EXECUTE.
    Execute(Box<Execute>),
    /// DEALLOCATE.
    Deallocate(Deallocate),
    /// DECLARE … CURSOR.
    DeclareCursor(Box<DeclareCursor>),
    /// FETCH and MOVE.
    Fetch(Fetch),
    /// CLOSE.
    CloseCursor(CloseCursor),
    /// BEGIN, COMMIT, ROLLBACK, savepoints and their relatives.
    Transaction(Transaction),
    /// CREATE TABLE, CREATE FOREIGN TABLE.
    CreateTable(Box<CreateTable>),
    /// CREATE TABLE … AS, CREATE MATERIALIZED VIEW.
    CreateTableAs(Box<CreateTableAs>),
    /// CREATE INDEX.
    CreateIndex(Box<CreateIndex>),
    /// CREATE VIEW.
    CreateView(Box<CreateView>),
    /// REFRESH MATERIALIZED VIEW.
    RefreshView(Box<RefreshView>),
    /// CREATE SEQUENCE.
    CreateSequence(Box<CreateSequence>),
    /// ALTER SEQUENCE with options.
    AlterSequence(Box<AlterSequence>),
    /// CREATE SCHEMA.
    CreateSchema(Box<CreateSchema>),
    /// ALTER TABLE and its relatives.
    AlterTable(Box<AlterTable>),
    /// ALTER … ALL IN TABLESPACE.
    MoveAll(Box<MoveAll>),
    /// ALTER … RENAME.
    Rename(Box<Rename>),
    /// ALTER … SET SCHEMA.
    SetSchema(Box<SetSchema>),
    /// ALTER … OWNER TO.
    ChangeOwner(Box<ChangeOwner>),
    /// DROP.
    Drop(Box<DropObjects>),
    /// COMMENT ON.
    Comment(Box<Comment>),
    /// TRUNCATE.
    Truncate(Box<Truncate>),
    /// LOCK.
    Lock(Box<LockTable>),
    /// VACUUM, ANALYZE.
    Vacuum(Box<Vacuum>),
    /// CLUSTER.
    Cluster(Box<Cluster>),
    /// REINDEX.
    Reindex(Box<Reindex>),
    /// COPY.
    Copy(Box<Copy>),
    /// SET.
    Set(Box<Set>),
    /// RESET.
    Reset(Box<Reset>),
    /// SHOW.
    Show(Box<Show>),
    /// SET CONSTRAINTS.
    SetConstraints(Box<SetConstraints>),
    /// CHECKPOINT.
    Checkpoint,
    /// DISCARD.
    Discard(Discard),
    /// LISTEN.
    Listen(Name),
    /// NOTIFY.
    Notify(Box<Notify>),
    /// UNLISTEN.
    Unlisten(Unlisten),
    /// CALL.
    Call(Box<CallProcedure>),
    /// A statement that has no tree of its own.
    Other(Box<OtherStatement>),
}
