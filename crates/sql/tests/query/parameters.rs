//! Parameters: the types that are inferred for them, and the values that they accept. The types are PostgreSQL 15's.

use crate::database::{Database, shop};
use firn_base::{TypeId, Value};

#[track_caller]
fn types(text: &str) -> Vec<String> {
    let found = shop().parameter_types(text, &[]).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    found.into_iter().map(|ty| ty.to_string()).collect()
}

#[test]
fn a_parameter_takes_the_type_beside_it() {
    for (text, expected) in [
        ("SELECT * FROM customer WHERE c_id = $1", &["integer"][..]),
        ("SELECT * FROM orders WHERE $1 < o_id AND o_entry > $2", &["bigint", "timestamp without time zone"]),
        ("SELECT c_id + $1 FROM customer", &["integer"]),
        ("SELECT * FROM customer WHERE c_id IN ($1, $2)", &["integer", "integer"]),
        ("SELECT * FROM customer WHERE c_id BETWEEN $1 AND $2", &["integer", "integer"]),
        ("SELECT * FROM customer WHERE c_name LIKE $1", &["text"]),
        ("SELECT * FROM customer WHERE c_name = $1", &["text"]),
        ("SELECT * FROM customer LIMIT $1 OFFSET $2", &["bigint", "bigint"]),
        ("SELECT $1::smallint", &["smallint"]),
        ("SELECT coalesce(c_id, $1) FROM customer", &["integer"]),
        ("SELECT CASE WHEN $1 THEN c_id ELSE $2 END FROM customer", &["boolean", "integer"]),
        ("SELECT upper($1)", &["text"]),
        ("SELECT $1", &["text"]),
        ("SELECT * FROM customer WHERE c_id = (SELECT max(o_c_id) FROM orders WHERE o_id = $1)", &["bigint"]),
        ("SELECT * FROM customer WHERE $1 IN (SELECT o_id FROM orders)", &["bigint"]),
        ("INSERT INTO customer VALUES ($1, $2, 'x', $3)", &["integer", "character varying", "date"]),
        ("UPDATE customer SET c_balance = $2 WHERE c_id = $1", &["integer", "numeric"]),
    ] {
        assert_eq!(types(text), expected, "{text}");
    }
}

#[test]
fn a_type_found_once_holds_everywhere_and_declared_types_are_kept() {
    assert_eq!(types("SELECT $1 + 1, $1 FROM customer WHERE c_id = $1"), ["integer"]);
    let declared = [Some(TypeId::INT8)];
    let found = shop().parameter_types("SELECT * FROM customer WHERE c_id = $1", &declared).unwrap();
    assert_eq!(found[0].id, TypeId::INT8);
}

#[test]
fn a_parameter_of_unknown_type_is_refused() {
    let error = shop().parameter_types("SELECT $2::integer", &[]).unwrap_err();
    assert_eq!(error.state().as_str(), "42P18");
    assert_eq!(error.message(), "could not determine data type of parameter $1");
}

fn ask(database: &Database, text: &str, values: &[Value]) -> String {
    let answer = database.with_parameters(text, values).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    answer.rows.join(" ")
}

#[test]
fn values_stand_for_parameters() {
    let shop = shop();
    let ask = |text: &str, values: &[Value]| ask(&shop, text, values);
    assert_eq!(ask("SELECT c_name FROM customer WHERE c_id = $1", &[Value::Integer(2)]), "Grace");
    assert_eq!(ask("SELECT c_id FROM customer WHERE c_name = $1", &[Value::Text("Ada".into())]), "1");
    assert_eq!(ask("SELECT c_id FROM customer ORDER BY c_id LIMIT $1", &[Value::BigInt(2)]), "1 2");
    assert_eq!(ask("SELECT c_id FROM customer WHERE c_id = $1", &[Value::Null]), "");
    let zero = Value::Numeric { unscaled: 0, scale: 16 };
    assert_eq!(ask("SELECT c_id FROM customer WHERE c_balance < $1", &[zero]), "2");
    assert_eq!(ask("SELECT c_id FROM customer WHERE c_credit = $1", &[Value::Text("BC  ".into())]), "2");
    // A numeric keeps its digits.
    let digits = Value::Numeric { unscaled: 12_300, scale: 4 };
    assert_eq!(ask("SELECT $1::numeric", &[digits]), "1.2300");
}

#[test]
fn an_array_takes_its_elements_type_from_what_they_are_compared_with() {
    assert_eq!(types("SELECT * FROM orders WHERE o_id = ANY ($1)"), ["bigint[]"]);
    assert_eq!(types("SELECT * FROM customer WHERE c_id <> ALL ($1)"), ["integer[]"]);
    assert_eq!(types("SELECT * FROM customer WHERE c_name = SOME ($1)"), ["text[]"]);
    assert_eq!(types("SELECT * FROM customer WHERE c_balance < ANY ($1)"), ["numeric[]"]);
    assert_eq!(types("SELECT * FROM customer WHERE c_id = ANY ($1::smallint[])"), ["smallint[]"]);
    assert_eq!(types("SELECT unnest($1::date[])"), ["date[]"]);
    let declared = [None, Some(TypeId::UUID_ARRAY)];
    let found = shop().parameter_types("SELECT $1 = ANY ($2)", &declared).unwrap();
    assert_eq!(found[0].id, TypeId::UUID);
}

#[test]
fn any_and_all_have_three_truth_values() {
    let shop = shop();
    let ask = |condition: &str, array: Value| {
        let text = format!(
            "SELECT count(*) FILTER (WHERE {condition}), count(*) FILTER (WHERE NOT ({condition})) FROM customer"
        );
        ask(&shop, &text, &[array])
    };
    let array = |elements: &[Option<i32>]| {
        Value::Array(elements.iter().map(|element| element.map_or(Value::Null, Value::Integer)).collect())
    };
    // True and false; the third value is unknown.
    for (condition, elements, expected) in [
        ("c_id = ANY ($1)", &[Some(1), Some(3), Some(3)][..], "2|1"),
        ("c_id = ANY ($1)", &[Some(1), None], "1|0"),
        ("c_id = ANY ($1)", &[None], "0|0"),
        ("c_id = ANY ($1)", &[], "0|3"),
        ("c_id <> ALL ($1)", &[Some(1)], "2|1"),
        ("c_id <> ALL ($1)", &[Some(1), None], "0|1"),
        ("c_id <> ALL ($1)", &[], "3|0"),
        ("c_id < ANY ($1)", &[Some(2), Some(0)], "1|2"),
        ("c_id < ANY ($1)", &[Some(2), None], "1|0"),
        ("c_id >= ALL ($1)", &[Some(2), Some(0)], "2|1"),
        ("c_id <> ANY ($1)", &[Some(2), Some(2)], "2|1"),
        ("c_id = ALL ($1)", &[Some(2), Some(2)], "1|2"),
        ("nullif(c_id, 1) = ANY ($1)", &[Some(1), Some(2)], "1|1"),
        ("nullif(c_id, 1) = ANY ($1)", &[], "0|3"),
    ] {
        assert_eq!(ask(condition, array(elements)), expected, "{condition} with {elements:?}");
    }
    for condition in ["c_id = ANY ($1)", "c_id <> ALL ($1)", "c_id < ANY ($1)", "c_id > ALL ($1)"] {
        assert_eq!(ask(condition, Value::Null), "0|0", "{condition}");
    }
}

#[test]
fn elements_and_values_of_different_types_meet() {
    let shop = shop();
    let ask =
        |text: &str, array: &[Value]| ask(&shop, text, &[Value::Array(array.iter().cloned().collect())]);
    let text = |text: &str| Value::Text(text.to_owned());
    let small = [Value::SmallInt(11)];
    assert_eq!(ask("SELECT o_id FROM orders WHERE o_id = ANY ($1::smallint[])", &small), "11");
    assert_eq!(ask("SELECT c_name FROM customer WHERE c_credit = ANY ($1)", &[text("BC")]), "Grace");
    assert_eq!(ask("SELECT c_name FROM customer WHERE c_name = ANY ($1)", &[text("Ada")]), "Ada");
    let date = Value::Date(19_783);
    assert_eq!(ask("SELECT o_id FROM orders WHERE o_entry = ANY ($1::date[])", &[date]), "11");
    assert_eq!(ask("SELECT i FROM unnest($1::bigint[]) AS i", &[Value::BigInt(7), Value::Null]), "7 null");
    let patterns = [text("a%"), text("%ED%")];
    assert_eq!(ask("SELECT c_id FROM customer WHERE c_name ILIKE ANY ($1) ORDER BY 1", &patterns), "1 3");
    let refused = |text: &str| shop.parameter_types(text, &[]).unwrap_err().state().to_string();
    assert_eq!(refused("SELECT * FROM customer WHERE c_id = ANY ($1::text[])"), "42883");
    assert_eq!(refused("SELECT * FROM customer WHERE c_id = ANY ($1::int)"), "42809");
}
