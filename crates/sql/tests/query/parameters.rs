//! Parameters: the types they get, the values they take.

use crate::database::shop;
use firn_base::{SqlType, Value};

#[track_caller]
fn types(text: &str) -> Vec<SqlType> {
    shop().bind(text, &[]).unwrap_or_else(|error| panic!("{text}: {error:?}")).1
}

#[test]
fn a_parameter_takes_the_type_beside_it() {
    assert_eq!(types("SELECT * FROM customer WHERE c_id = $1"), [SqlType::Integer]);
    assert_eq!(
        types("SELECT * FROM orders WHERE $1 < o_id AND o_entry > $2"),
        [SqlType::BigInt, SqlType::Timestamp]
    );
    assert_eq!(types("SELECT c_id + $1 FROM customer"), [SqlType::Integer]);
    assert_eq!(types("SELECT * FROM customer WHERE c_id IN ($1, $2)"), [SqlType::Integer, SqlType::Integer]);
    assert_eq!(types("SELECT * FROM customer WHERE c_id BETWEEN $1 AND $2"), [SqlType::Integer; 2]);
    assert_eq!(types("SELECT * FROM customer WHERE c_name LIKE $1"), [SqlType::Text]);
    assert_eq!(types("SELECT * FROM customer WHERE c_name = $1"), [SqlType::Text]);
    assert_eq!(types("SELECT c_since + $1 FROM customer"), [SqlType::Interval]);
    assert_eq!(types("SELECT * FROM customer LIMIT $1 OFFSET $2"), [SqlType::BigInt, SqlType::BigInt]);
    assert_eq!(types("SELECT $1::smallint"), [SqlType::SmallInt]);
    assert_eq!(types("SELECT coalesce(c_id, $1) FROM customer"), [SqlType::Integer]);
    assert_eq!(
        types("SELECT CASE WHEN $1 THEN c_id ELSE $2 END FROM customer"),
        [SqlType::Boolean, SqlType::Integer]
    );
    assert_eq!(types("SELECT upper($1)"), [SqlType::Text]);
    assert_eq!(types("SELECT $1"), [SqlType::Text]);
    assert_eq!(
        types("SELECT * FROM customer WHERE c_id = (SELECT max(o_c_id) FROM orders WHERE o_id = $1)"),
        [SqlType::BigInt]
    );
    assert_eq!(types("SELECT * FROM customer WHERE $1 IN (SELECT o_id FROM orders)"), [SqlType::BigInt]);
}

#[test]
fn a_type_found_once_holds_everywhere() {
    assert_eq!(types("SELECT $1 FROM customer WHERE c_id = $1"), [SqlType::Integer]);
    assert_eq!(
        types("SELECT $1 + 1, $1 FROM customer WHERE o_id = $1".replace("o_id", "c_id").as_str()),
        [SqlType::Integer]
    );
}

#[test]
fn declared_types_are_kept() {
    let (_, types) = shop().bind("SELECT * FROM customer WHERE c_id = $1", &[Some(SqlType::BigInt)]).unwrap();
    assert_eq!(types, [SqlType::BigInt]);
}

#[test]
fn a_parameter_that_nothing_is_known_of_is_refused() {
    let error = shop().bind("SELECT $2::integer", &[]).unwrap_err();
    assert_eq!(error.state().as_str(), "42P18");
    assert_eq!(error.message(), "could not determine data type of parameter $1");
}

#[test]
fn values_stand_for_parameters() {
    let shop = shop();
    let ask = |text: &str, values: &[Value]| shop.try_ask(text, values).unwrap().text();
    assert_eq!(ask("SELECT c_name FROM customer WHERE c_id = $1", &[Value::Integer(2)]), "Grace");
    assert_eq!(ask("SELECT c_id FROM customer WHERE c_name = $1", &[Value::Text("Ada".into())]), "1");
    assert_eq!(ask("SELECT c_id FROM customer ORDER BY c_id LIMIT $1", &[Value::BigInt(2)]), "1 2");
    assert_eq!(ask("SELECT c_id FROM customer WHERE c_id = $1", &[Value::Null]), "");
    assert_eq!(
        ask("SELECT c_id FROM customer WHERE c_balance < $1", &[Value::Numeric { unscaled: 0, scale: 16 }]),
        "2"
    );
    assert_eq!(ask("SELECT c_id FROM customer WHERE c_credit = $1", &[Value::Text("BC  ".into())]), "2");
}
