//! The binder: from the syntax tree of a statement to its plan. Names end here.
//!
//! The rules are those of PostgreSQL 15's parse analysis: which relation or column a name means, which overload a
//! call means, which type a literal or a parameter takes, where a value is cast. What comes out is a
//! [`firn_plan::Plan`], in which columns are numbers, with the names, types and origins of the result's columns.
//!
//! The crate is pure and synchronous. It asks a [`Catalog`] about relations, types and functions, and knows no
//! tables, sessions or transactions. In reading order: `catalog` (what is asked), `types` (facts of types), `resolve`
//! (overloads, polymorphic and common types), `function` (handles of functions), `binder` (statements).
//!
//! * Errors of a statement have PostgreSQL's SQLSTATE, message, hint and position.
//! * A sub-query becomes a join, a dependent one where it uses columns of the query around it; nothing is unnested here.
//! * The depth of every scalar is bounded by [`firn_syntax::DEPTH_LIMIT`].

mod binder;
pub mod catalog;
mod function;
mod resolve;
mod types;

pub use binder::{
    Bound, BoundExpression, Described, OutputColumn, Place, RelationUses, bind, bind_arguments,
    bind_assignments, bind_expression, bind_kept_expression, bind_type_name, column_name, describe,
    index_column_name, is_system_column, names_the_present,
};
pub use catalog::{Attribute, Catalog, FileArgument, Generated, Key, Relation, RelationKind};
