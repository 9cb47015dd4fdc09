//! Identifiers.

use datafusion::sql::sqlparser::ast;

/// An identifier as PostgreSQL understands it: lower case unless quoted.
pub fn fold(ident: &ast::Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}
