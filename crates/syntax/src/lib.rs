//! PostgreSQL 15's grammar: text to a syntax tree with positions, and back to text.
//!
//! The crate knows what a text says and nothing of what its names mean: no types, no catalog. In reading order:
//! `span` (places), `keyword`, `token`, `lexer`, `tree` (what a text says), `parser`, `print`.
//!
//! * One pass, no backtracking: time is linear in the text ([`parser`]).
//! * Chains are lists: `a + b + …`, AND, OR, casts, `IS NULL`, NOT, set operations and joins of any length make a tree of
//!   few levels ([`tree`]).
//! * Depth is bounded: a tree of [`DEPTH_LIMIT`] levels can be parsed, printed, cloned, compared, shown by Debug and dropped on
//!   a stack of 1 MiB, also in a debug build. What is deeper is SQLSTATE 54001.
//! * Errors have PostgreSQL's SQLSTATE, message and position.
//!
//! **A new statement** takes: a variant of [`tree::Statement`] with its nodes in a file of `tree` (one per family); a file of `parser` with
//! `impl Parser<'_>` whose first function is called by `Parser::statement`, by the first keyword; a file of `print` with the same nodes, called by
//! `print::statement`. If EXPLAIN may stand before it, `Parser::explainable` calls it too. Use these of the parser: `name` (ColId), `label` (ColLabel), `word`
//! (NonReservedWord), `type_or_function_name`, `any_name`, `relation_name` (qualified_name), `function_name`, `relation` (ONLY), `optional_names`, `type_name`,
//! `expr`, `exprs`, `restricted_expr` (b_expr), `constant`, `query`, `parenthesised_query`, `preparable`, `index_element`, `assignment`, `optional_where`,
//! `string`, `integer`, `signed_integer`, `number`, `any_operator`, `utility_options`, `rel_options`, `definition`, `option_value`, `list`,
//! `parenthesised_list`, `optional_transaction_modes`; and `unexpected` for syntax errors.

mod keyword;
mod level;
mod lexer;
mod parser;
pub mod print;
mod span;
mod token;
pub mod tree;

use firn_base::Result;
pub use keyword::{Category, Keyword};
pub use span::{Span, character_position};

/// How many levels a statement may nest.
pub const DEPTH_LIMIT: u32 = 300;

/// How a text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether what PostgreSQL does not have is read: the name of a file in FROM, and MERGE … RETURNING.
    pub additions: bool,
    /// Whether backslashes in `'…'` stand for themselves.
    pub standard_conforming_strings: bool,
    /// A lower limit of levels than [`DEPTH_LIMIT`].
    pub depth_limit: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { additions: true, standard_conforming_strings: true, depth_limit: DEPTH_LIMIT }
    }
}

/// The statements of a text, which semicolons separate. Empty ones are left out.
pub fn parse(text: &str, options: Options) -> Result<Vec<tree::StatementNode>> {
    parser::statements(text, options)
}

/// A text that is one expression.
pub fn parse_expression(text: &str, options: Options) -> Result<tree::Expr> {
    parser::expression(text, options)
}

/// A text that is the name of a type.
pub fn parse_type_name(text: &str, options: Options) -> Result<tree::TypeName> {
    parser::type_name(text, options)
}
