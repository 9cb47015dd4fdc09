//! Parameters: the types they get, the values they take.

use crate::database::shop;
use firn_base::{ParameterType, SqlType, Value};

#[track_caller]
fn types(text: &str) -> Vec<SqlType> {
    let found = shop().bind(text, &[]).unwrap_or_else(|error| panic!("{text}: {error:?}")).1;
    found.into_iter().map(|ty| ty.single().expect("no arrays are asked for")).collect()
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
    let (_, types) =
        shop().bind("SELECT * FROM customer WHERE c_id = $1", &[Some(SqlType::BigInt.into())]).unwrap();
    assert_eq!(types, [SqlType::BigInt.into()]);
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

#[test]
fn an_array_takes_its_elements_type_from_what_they_are_compared_with() {
    let shop = shop();
    let ty = |text: &str| shop.bind(text, &[]).unwrap_or_else(|error| panic!("{text}: {error:?}")).1[0];
    let array = ParameterType::array_of;
    assert_eq!(ty("SELECT * FROM orders WHERE o_id = ANY ($1)"), array(SqlType::BigInt));
    assert_eq!(ty("SELECT * FROM customer WHERE c_id <> ALL ($1)"), array(SqlType::Integer));
    assert_eq!(ty("SELECT * FROM customer WHERE c_name = SOME ($1)"), array(SqlType::Text));
    assert_eq!(ty("SELECT * FROM customer WHERE c_balance < ANY ($1)"), array(SqlType::NUMERIC));
    assert_eq!(ty("SELECT * FROM customer WHERE c_id = ANY ($1::smallint[])"), array(SqlType::SmallInt));
    assert_eq!(ty("SELECT 'x' = ANY ($1)"), array(SqlType::Text));
    assert_eq!(ty("SELECT unnest($1::date[])"), array(SqlType::Date));
    let declared = [None, Some(array(SqlType::Uuid))];
    assert_eq!(shop.bind("SELECT $1 = ANY ($2)", &declared).unwrap().1[0], SqlType::Uuid.into());
}

#[test]
fn any_and_all_know_three_truths() {
    let shop = shop();
    let ask = |condition: &str, array: Value| {
        shop.try_ask(&format!("SELECT count(*) FILTER (WHERE {condition}), count(*) FILTER (WHERE NOT ({condition})) FROM customer"), &[array])
            .unwrap_or_else(|error| panic!("{condition}: {error:?}"))
            .text()
    };
    let array = |elements: &[Option<i32>]| {
        Value::Array(elements.iter().map(|element| element.map_or(Value::Null, Value::Integer)).collect())
    };
    // True and false; the rest of the three is unknown.
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
    let ask = |text: &str, array: &[Value]| {
        let declared = shop.bind(text, &[]).unwrap().1;
        assert!(declared[0].holds(&Value::Array(array.to_vec().into())), "{declared:?}");
        shop.try_ask(text, &[Value::Array(array.to_vec().into())]).unwrap().text()
    };
    let text = |text: &str| Value::Text(text.to_owned());
    assert_eq!(
        ask("SELECT o_id FROM orders WHERE o_id = ANY ($1::smallint[])", &[Value::SmallInt(11)]),
        "11"
    );
    assert_eq!(ask("SELECT c_name FROM customer WHERE c_credit = ANY ($1)", &[text("BC")]), "Grace");
    assert_eq!(ask("SELECT c_name FROM customer WHERE c_name = ANY ($1)", &[text("Ada")]), "Ada");
    let date = Value::Date(19783);
    assert_eq!(ask("SELECT o_id FROM orders WHERE o_entry = ANY ($1::date[])", &[date]), "11");
    assert_eq!(ask("SELECT i FROM unnest($1::bigint[]) AS i", &[Value::BigInt(7), Value::Null]), "7 NULL");
    let patterns = [text("a%"), text("%ED%")];
    assert_eq!(ask("SELECT c_id FROM customer WHERE c_name ILIKE ANY ($1) ORDER BY 1", &patterns), "1 3");
    assert_eq!(ask("SELECT c_id FROM customer WHERE c_name LIKE ANY ($1)", &[Value::Null, text("G%")]), "2");
    assert_eq!(
        ask("SELECT c_id FROM customer WHERE c_name NOT LIKE ANY ($1) ORDER BY 1", &[text("G%")]),
        "1 3"
    );
    assert_eq!(ask("SELECT pg_typeof($1::numeric(8,2)[])", &[]), "numeric[]");
    assert_eq!(ask("SELECT array_length($1::int[], 1)", &[Value::Integer(1), Value::Integer(2)]), "2");
    let refused = |text: &str| shop.bind(text, &[]).unwrap_err();
    assert_eq!(refused("SELECT * FROM customer WHERE c_id = ANY ($1::text[])").state().as_str(), "42883");
    assert_eq!(refused("SELECT * FROM customer WHERE c_id LIKE ANY ($1)").state().as_str(), "42883");
    assert_eq!(refused("SELECT * FROM customer WHERE c_id = ANY ($1::int)").state().as_str(), "42809");
    assert_eq!(refused("SELECT * FROM customer WHERE c_id = ANY ('{1')").state().as_str(), "22P02");
}
