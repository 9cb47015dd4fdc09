//! Statements about a session: transactions, prepared statements, cursors, EXPLAIN.

use super::{Expr, Name, Query, Statement, TypeName};
use crate::span::Span;

/// `EXPLAIN [(options)] statement`
#[derive(Clone, Debug, PartialEq)]
pub struct Explain {
    /// ANALYZE and VERBOSE without parentheses are options as well.
    pub options: Vec<UtilityOption>,
    /// What is explained.
    pub statement: Statement,
}

/// `name [value]` in the parentheses of EXPLAIN, VACUUM and their relatives.
#[derive(Clone, Debug, PartialEq)]
pub struct UtilityOption {
    /// The name.
    pub name: Name,
    /// The value.
    pub value: Option<UtilityValue>,
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq)]
pub enum UtilityValue {
    /// A word or a string; TRUE, FALSE and ON are words.
    Word(Box<str>),
    /// A number with its sign.
    Number(Box<str>),
}

/// `PREPARE name (types) AS statement`
#[derive(Clone, Debug, PartialEq)]
pub struct Prepare {
    /// The name.
    pub name: Name,
    /// The types of the first parameters.
    pub types: Vec<TypeName>,
    /// A query, INSERT, UPDATE, DELETE or MERGE.
    pub statement: Statement,
}

/// `EXECUTE name (arguments)`
#[derive(Clone, Debug, PartialEq)]
pub struct Execute {
    /// The name.
    pub name: Name,
    /// The arguments.
    pub arguments: Vec<Expr>,
}

/// `DEALLOCATE name`, `DEALLOCATE ALL`
#[derive(Clone, Debug, PartialEq)]
pub struct Deallocate {
    /// None is ALL.
    pub name: Option<Name>,
}

/// `DECLARE name … CURSOR … FOR query`
#[derive(Clone, Debug, PartialEq)]
pub struct DeclareCursor {
    /// The name.
    pub name: Name,
    /// BINARY
    pub is_binary: bool,
    /// SCROLL, NO SCROLL; both are a mistake that PostgreSQL finds later.
    pub scroll: bool,
    /// NO SCROLL
    pub no_scroll: bool,
    /// INSENSITIVE
    pub is_insensitive: bool,
    /// ASENSITIVE
    pub is_asensitive: bool,
    /// WITH HOLD
    pub with_hold: bool,
    /// The query.
    pub query: Box<Query>,
}

/// `FETCH`, `MOVE`
#[derive(Clone, Debug, PartialEq)]
pub struct Fetch {
    /// MOVE
    pub is_move: bool,
    /// Which rows.
    pub direction: FetchDirection,
    /// The cursor.
    pub cursor: Name,
}

/// Which rows FETCH reads. NEXT is `Forward(1)`, PRIOR `Backward(1)`, FIRST `Absolute(1)`, LAST
/// `Absolute(-1)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchDirection {
    /// So many after the current one.
    Forward(i32),
    /// All after the current one.
    ForwardAll,
    /// So many before the current one.
    Backward(i32),
    /// All before the current one.
    BackwardAll,
    /// The row with this number, from the end if negative.
    Absolute(i32),
    /// The row so far from the current one.
    Relative(i32),
}

/// `CLOSE name`, `CLOSE ALL`
#[derive(Clone, Debug, PartialEq)]
pub struct CloseCursor {
    /// None is ALL.
    pub name: Option<Name>,
}

/// A statement that controls transactions.
#[derive(Clone, Debug, PartialEq)]
pub enum Transaction {
    /// BEGIN, START TRANSACTION
    Begin {
        /// START TRANSACTION
        is_start: bool,
        /// In the order of the text.
        modes: Vec<TransactionMode>,
    },
    /// COMMIT, END
    Commit {
        /// AND CHAIN
        and_chain: bool,
    },
    /// ROLLBACK, ABORT
    Rollback {
        /// AND CHAIN
        and_chain: bool,
    },
    /// SAVEPOINT
    Savepoint(Name),
    /// RELEASE
    Release(Name),
    /// ROLLBACK TO
    RollbackTo(Name),
    /// PREPARE TRANSACTION
    Prepare(Box<str>),
    /// COMMIT PREPARED
    CommitPrepared(Box<str>),
    /// ROLLBACK PREPARED
    RollbackPrepared(Box<str>),
}

/// A mode of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct TransactionMode {
    /// Its place.
    pub span: Span,
    /// What it is.
    pub kind: TransactionModeKind,
}

/// A mode of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TransactionModeKind {
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    Serializable,
    ReadOnly,
    ReadWrite,
    Deferrable,
    NotDeferrable,
}
