//! PostgreSQL 15's grammar: text to a syntax tree with positions, and back to text.
//!
//! The crate knows what a text says and nothing of what its names mean: no types, no catalog. In reading order:
//! `span` (places), `keyword`, `token`, `lexer`, `tree` (what a text says), `parser`, `print`, `visit`.
//!
//! * One pass, no backtracking: time is linear in the text (`parser`).
//! * Chains are lists: `a + b + …`, AND, OR, casts, `IS NULL`, NOT, set operations and joins of any length make a tree of
//!   few levels ([`tree`]).
//! * Depth is bounded: a tree of [`DEPTH_LIMIT`] levels can be parsed, printed, cloned, compared, shown by Debug and dropped on
//!   a stack of 1 MiB in the `dev` profile of this workspace (opt-level 1), but not without optimisation. What is deeper is SQLSTATE 54001.
//! * Errors have PostgreSQL's SQLSTATE, message and position.
//!
//! **A new statement** takes:
//!
//! 1. A variant of [`tree::Statement`], and its nodes in a file of `tree`, one for each family of statements.
//! 2. A file of `parser` of the same name with `impl Parser<'_>`. `Parser::statement` calls its first function by the first
//!    keyword. If EXPLAIN may stand before it, `Parser::explainable` calls it too.
//! 3. A file of `print` of the same name, which `Printer::statement` calls.
//! 4. Cases in `tests/syntax/cases`, and its nodes in `tests/syntax/generate.rs`.
//!
//! Functions of the parser that statements share, with the names that PostgreSQL's grammar has for them:
//!
//! * Words: `name` (ColId), `label` (ColLabel), `word` (NonReservedWord), `type_or_function_name`, `optional_alias`.
//! * Names of objects: `any_name`, `relation_name` (qualified_name), `relation` (relation_expr), `function_name`,
//!   `optional_names` (opt_name_list).
//! * Constants: `string` (Sconst), `integer` (Iconst), `signed_integer`, `number` (NumericOnly), `constant` (AexprConst).
//! * Expressions: `expr` (a_expr), `exprs` (expr_list), `restricted_expr` (b_expr), `operand` (c_expr), `optional_where`,
//!   `type_name` (Typename), `simple_type_name`, `operator` (qual_all_Op), `any_operator`, `optional_interval_fields`.
//! * Parts of statements: `query` (SelectStmt), `parenthesised_query`, `preparable` (PreparableStmt), `execute_rest`,
//!   `index_element` (index_elem), `assignment` (set_clause), `sort_direction`, `nulls_order`, `optional_transaction_modes`.
//! * Options: `utility_options`, `utility_value`, `rel_options` (reloptions), `definition`, `option_value` (def_arg).
//! * Tokens: `at_keyword`, `accept_keyword`, `expect_keyword`, `next_is`, `accept_not`, `list`, `parenthesised_list`;
//!   `unexpected` is the syntax error, `error` any other one.

mod keyword;
mod level;
mod lexer;
mod parser;
pub mod print;
mod span;
mod token;
pub mod tree;
pub mod visit;

use firn_base::Result;
pub use keyword::{Category, KEYWORDS, Keyword};
pub use span::{Span, character_position};
pub use token::{Token, TokenKind};

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

/// The tokens of a text, without comments.
pub fn tokens(text: &str, options: Options) -> Result<Vec<Token>> {
    let mut lexer = lexer::Lexer::new(text, options.standard_conforming_strings);
    let mut tokens = Vec::new();
    loop {
        match lexer.next() {
            Token { kind: TokenKind::End, .. } => return Ok(tokens),
            Token { kind: TokenKind::Invalid, .. } => {
                return Err(lexer.take_error().expect("the lexer keeps the reason"));
            }
            token => tokens.push(token),
        }
    }
}

/// A text that is one expression.
pub fn parse_expression(text: &str, options: Options) -> Result<tree::Expr> {
    parser::expression(text, options)
}

/// A text that is a list of definitions of columns: `id bigint, name text`.
pub fn parse_column_definitions(text: &str, options: Options) -> Result<Vec<tree::ColumnDefinition>> {
    parser::column_definitions(text, options)
}

/// A text that is the name of a type.
pub fn parse_type_name(text: &str, options: Options) -> Result<tree::TypeName> {
    parser::type_name(text, options)
}
