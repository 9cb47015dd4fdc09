//! How tightly operators bind, which the parser and the printer must agree on.
//!
//! The order is that of PostgreSQL's grammar.

/// How tightly an operator binds; the loosest is the smallest.
pub(crate) type Level = u8;

/// Below all operators.
pub(crate) const NONE: Level = 0;
pub(crate) const OR: Level = 1;
pub(crate) const AND: Level = 2;
pub(crate) const NOT: Level = 3;
/// `IS` and what begins with it.
pub(crate) const IS: Level = 4;
/// `<`, `=` and their relatives.
pub(crate) const COMPARISON: Level = 5;
/// `BETWEEN`, `IN`, `LIKE`.
pub(crate) const MATCH: Level = 6;
/// All operators that are not named here.
pub(crate) const OPERATOR: Level = 7;
pub(crate) const SUM: Level = 8;
pub(crate) const PRODUCT: Level = 9;
pub(crate) const POWER: Level = 10;
/// `AT TIME ZONE`.
pub(crate) const AT: Level = 11;
pub(crate) const COLLATE: Level = 12;
/// `+` and `-` before their operand.
pub(crate) const SIGN: Level = 13;
/// `::`
pub(crate) const CAST: Level = 14;
/// `.name` and `[…]`
pub(crate) const ACCESS: Level = 15;

/// Whether of two operators of this level none may be the left operand of the other.
pub(crate) fn does_not_associate(level: Level) -> bool {
    matches!(level, IS | COMPARISON | MATCH)
}
