//! Plans as text: one operator a line, its inputs on the lines below it and indented by two blanks.
//!
//! ```text
//! Output [#0 a, #2 sum]
//!   Group by [#0 a] aggregates [#2 sum: int8 := sum(#1 b)]
//!     Filter [(#1 b > 5::int4)]
//!       Scan 7 t [#0 a: int4 = 1, #1 b: int4 not null = 2]
//! ```
//!
//! A column is a number and, for readers alone, the name that it was bound from. Where it is
//! produced its type follows, and `not null`. Expressions with operators stand in parentheses, so
//! that there are no precedences. [`print`] and [`parse`] are inverse to each other; tests, rewrites'
//! cases and EXPLAIN use the same text.

mod constant;
mod lex;
mod parse;
mod print;

pub use parse::parse;
pub use print::{operator_line, print, print_with, scalar};

/// Words that cannot be a column's name without quotes, because they may follow a column.
const KEYWORDS: &[&str] = &[
    "aggregates",
    "all",
    "and",
    "any",
    "as",
    "asc",
    "attribute",
    "by",
    "calls",
    "collate",
    "conditions",
    "conflict",
    "delete",
    "desc",
    "dependent",
    "distinct",
    "else",
    "end",
    "filter",
    "frame",
    "from",
    "in",
    "initial",
    "inputs",
    "insert",
    "is",
    "key",
    "mark",
    "no",
    "not",
    "nothing",
    "nulls",
    "number",
    "offset",
    "old",
    "on",
    "or",
    "order",
    "ordinality",
    "partition",
    "percent",
    "row",
    "rows",
    "seed",
    "set",
    "sets",
    "share",
    "skip",
    "step",
    "then",
    "ties",
    "update",
    "using",
    "via",
    "wait",
    "when",
    "where",
];
