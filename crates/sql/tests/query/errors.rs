//! What users are told: SQLSTATE, message, position, hint.

use crate::database::shop;

#[track_caller]
fn refused(text: &str, state: &str, message: &str) -> firn_base::Error {
    let error = shop().refuse(text);
    assert_eq!((error.state().as_str(), error.message()), (state, message), "{error:?}");
    error
}

#[test]
fn a_missing_table_is_named_with_its_place_and_the_likely_name() {
    let error = refused("SELECT * FROM custmer", "42P01", "relation \"custmer\" does not exist");
    assert_eq!(error.position(), Some(15));
    assert_eq!(error.hint(), Some("Perhaps you meant \"customer\"."));
}

#[test]
fn a_missing_column_is_named_with_its_place_and_the_likely_name() {
    let error = refused("SELECT c_nmae FROM customer", "42703", "column \"c_nmae\" does not exist");
    assert_eq!(error.position(), Some(8));
    assert!(error.hint().unwrap().contains("customer.c_name"), "{error:?}");
    refused("SELECT x.c_id FROM customer", "42P01", "missing FROM-clause entry for table \"x\"");
}

#[test]
fn a_missing_function_is_named() {
    let error = refused("SELECT lowr(c_name) FROM customer", "42883", "function lowr does not exist");
    assert_eq!(error.hint(), Some("Perhaps you meant \"lower\"."));
    assert_eq!(error.position(), Some(8));
}

#[test]
fn an_aggregate_of_an_outer_query_is_refused_with_its_place() {
    let text = "SELECT (SELECT max(c_id) FROM (VALUES (1)) AS v (x)) FROM customer";
    let error = refused(text, "0A000", "an aggregate of an outer query in a sub-query is not supported");
    assert_eq!(error.position(), Some(16));
    assert!(error.hint().unwrap().contains("Write it there"), "{error:?}");
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    refused(
        "SELECT c_id = c_name FROM customer",
        "42883",
        "operator does not exist: integer = character varying",
    );
    refused("SELECT c_since + c_since FROM customer", "42883", "operator does not exist: date + date");
    refused("SELECT c_id LIKE 'a' FROM customer", "42883", "operator does not exist: integer ~~ text");
    refused("SELECT c_since::integer FROM customer", "42846", "cannot cast type date to integer");
}

#[test]
fn ungrouped_columns_are_refused() {
    let error = shop().refuse("SELECT c_name, count(*) FROM customer GROUP BY c_credit");
    assert_eq!(error.state().as_str(), "42803", "{error:?}");
}

#[test]
fn ambiguous_columns_are_refused() {
    let error = shop().refuse("SELECT c_id FROM customer a, customer b");
    assert_eq!(
        (error.state().as_str(), error.message()),
        ("42702", "column reference \"c_id\" is ambiguous")
    );
}

#[test]
fn a_subquery_of_many_rows_is_no_value() {
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
fn a_cancelled_query_stops() {
    let shop = shop();
    shop.options.cancel.cancel();
    let error = shop.refuse("SELECT * FROM customer");
    assert_eq!(error.state().as_str(), "57014");
}
