//! What definitions are bound for: expressions of columns and checks, and the queries of views.

use crate::catalog::CATALOG;
use firn_base::{Error, Result, Type, TypeId};
use firn_bind::{BoundExpression, Catalog, Described, Place, bind_expression, describe};
use firn_syntax::tree::Statement;
use firn_syntax::{Options, parse, parse_expression, print};

fn described(text: &str) -> Result<Described> {
    let parsed = parse(text, Options::default())?;
    let Statement::Query(query) = &parsed[0].statement else { panic!("it is a query") };
    describe(text, query, &*CATALOG)
}

fn expression(text: &str, place: Place<'_>, table: Option<&str>) -> Result<BoundExpression> {
    let parsed = parse_expression(text, Options::default())?;
    let table = table.map(|table| CATALOG.relation(None, table).unwrap().expect("it is there"));
    bind_expression(text, &parsed, place, table.as_ref(), &*CATALOG)
}

fn error(bound: Result<BoundExpression>) -> (String, String) {
    let error: Error = bound.unwrap_err();
    (error.state().to_string(), error.message().to_owned())
}

#[test]
fn a_default_sees_no_columns_and_no_rows() {
    let place = Place::Default { column: "a", ty: Type::new(TypeId::INT4) };
    for (text, state, message) in [
        ("b + 1", "0A000", "cannot use column reference in DEFAULT expression"),
        ("(SELECT 1)", "0A000", "cannot use subquery in DEFAULT expression"),
        ("sum(1)", "42803", "aggregate functions are not allowed in DEFAULT expressions"),
        ("true", "42804", "column \"a\" is of type integer but default expression is of type boolean"),
        ("'x'", "22P02", "invalid input syntax for type integer: \"x\""),
        ("$1", "42P02", "there is no parameter $1"),
    ] {
        assert_eq!(error(expression(text, place, None)), (state.to_owned(), message.to_owned()), "{text}");
    }
    // An assignment, and no cast.
    let bound = expression("'5'", place, None).unwrap();
    assert_eq!(bound.ty, Type::new(TypeId::INT4));
    assert!(expression("1.5", place, None).is_ok());
}

#[test]
fn a_check_is_a_condition_over_one_row() {
    for (text, state, message) in [
        ("customer + 1", "42804", "argument of CHECK must be type boolean, not type integer"),
        ("EXISTS (SELECT 1)", "0A000", "cannot use subquery in check constraint"),
        ("count(*) > 0", "42803", "aggregate functions are not allowed in check constraints"),
        ("nothing > 0", "42703", "column \"nothing\" does not exist"),
    ] {
        let found = error(expression(text, Place::Check, Some("orders")));
        assert_eq!(found, (state.to_owned(), message.to_owned()), "{text}");
    }
    let bound = expression("orders.total > 0 AND total < 10", Place::Check, Some("orders")).unwrap();
    let total = CATALOG.relation(None, "orders").unwrap().unwrap().column("total").unwrap().1.number;
    assert_eq!(bound.inputs.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [total]);
}

/// The stars of a query, written out.
fn stars(text: &str) -> Vec<String> {
    let uses = described(text).unwrap().uses;
    let shown = |name: &firn_syntax::tree::ObjectName| {
        let parts: Vec<String> = name.parts().map(|part| print::quote_name(&part.text)).collect();
        parts.join(".")
    };
    uses.stars.iter().map(|(_, names)| names.iter().map(shown).collect::<Vec<_>>().join(", ")).collect()
}

#[test]
fn stars_are_written_with_the_names_that_their_columns_go_by() {
    assert_eq!(stars("SELECT * FROM (VALUES (1, 2)) AS v (a, b)"), ["v.a, v.b"]);
    assert_eq!(stars("SELECT y.*, 1 FROM (VALUES (1)) AS x (a), (VALUES (2, 3)) AS y (b, c)"), ["y.b, y.c"]);
    // A merged column is that of a side if it has the side's value; of a full join it has neither.
    let join = |kind: &str| {
        format!("SELECT * FROM (VALUES (1, 2)) AS x (k, a) {kind} JOIN (VALUES (1, 3)) AS y (k, b) USING (k)")
    };
    assert_eq!(stars(&join("")), ["x.k, x.a, y.b"]);
    assert_eq!(stars(&join("RIGHT")), ["y.k, x.a, y.b"]);
    assert_eq!(stars(&join("FULL")), ["k, x.a, y.b"]);
    assert_eq!(stars("SELECT * FROM (SELECT * FROM (VALUES (1)) AS v (a)) AS s"), ["v.a", "s.a"]);
}

#[test]
fn a_query_uses_the_columns_that_its_own_text_names() {
    let orders = CATALOG.relation(None, "orders").unwrap().unwrap();
    let number = |name: &str| (orders.oid, orders.column(name).unwrap().1.number);
    let columns = |text: &str| described(text).unwrap().uses.columns.into_iter().collect::<Vec<_>>();
    assert_eq!(
        columns("SELECT s.total FROM (SELECT id, total FROM orders) AS s"),
        [number("id"), number("total")]
    );
    assert_eq!(columns("SELECT count(*) FROM orders AS o WHERE o.id > 0"), [number("id")]);
    // What a view is made of is the view's.
    let view = CATALOG.relations().find(|one| matches!(one.kind, firn_bind::RelationKind::View(_))).unwrap();
    assert_eq!(columns(&format!("SELECT amount FROM {}", view.name)), [(view.oid, 3)]);
}
