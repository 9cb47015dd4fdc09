//! The errors of statements: SQLSTATE, message, position, hint. The texts are PostgreSQL 15's.

use crate::database::{Database, shop};

#[track_caller]
fn refused(text: &str, state: &str, message: &str) -> firn_base::Error {
    let error = shop().refuse(text);
    assert_eq!((error.state().as_str(), error.message()), (state, message), "{error:?}");
    error
}

#[test]
fn a_missing_table_is_named_with_its_place() {
    let error = refused("SELECT * FROM custmer", "42P01", "relation \"custmer\" does not exist");
    assert_eq!(error.position(), Some(15));
}

#[test]
fn a_missing_column_is_named_with_its_place_and_the_likely_name() {
    let error = refused("SELECT c_nmae FROM customer", "42703", "column \"c_nmae\" does not exist");
    assert_eq!(error.position(), Some(8));
    assert_eq!(error.hint(), Some("Perhaps you meant to reference the column \"customer.c_name\"."));
    refused("SELECT x.c_id FROM customer", "42P01", "missing FROM-clause entry for table \"x\"");
}

#[test]
fn a_missing_function_is_named_with_the_types_of_its_arguments() {
    let error = refused(
        "SELECT lowr(c_name) FROM customer",
        "42883",
        "function lowr(character varying) does not exist",
    );
    assert_eq!(error.position(), Some(8));
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    refused(
        "SELECT c_id = c_name FROM customer",
        "42883",
        "operator does not exist: integer = character varying",
    );
    refused("SELECT c_since + c_since FROM customer", "42883", "operator does not exist: date + date");
    refused("SELECT c_id LIKE 'a' FROM customer", "42883", "operator does not exist: integer ~~ unknown");
    refused("SELECT c_since::integer FROM customer", "42846", "cannot cast type date to integer");
}

#[test]
fn positions_count_characters_of_the_whole_text() {
    let error = Database::new().refuse("SELECT 'äöü'; SELECT 'ä', nix");
    assert_eq!((error.state().as_str(), error.position()), ("42703", Some(27)));
}

#[test]
fn ungrouped_and_ambiguous_columns_are_refused() {
    let error = shop().refuse("SELECT c_name, count(*) FROM customer GROUP BY c_credit");
    assert_eq!(error.state().as_str(), "42803", "{error:?}");
    refused("SELECT c_id FROM customer a, customer b", "42702", "column reference \"c_id\" is ambiguous");
}

#[test]
fn a_sub_query_of_many_rows_is_no_value() {
    refused(
        "SELECT (SELECT c_id FROM customer)",
        "21000",
        "more than one row returned by a subquery used as an expression",
    );
}

#[test]
fn texts_that_are_no_numbers_are_refused_at_run_time_too() {
    refused(
        "SELECT c_name::integer FROM customer WHERE c_id = 1",
        "22P02",
        "invalid input syntax for type integer: \"Ada\"",
    );
}

#[test]
fn a_cancelled_statement_ends() {
    let shop = shop();
    shop.cancel.cancel();
    assert_eq!(shop.refuse("SELECT * FROM customer").state().as_str(), "57014");
}
