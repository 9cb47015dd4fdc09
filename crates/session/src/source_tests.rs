//! What a session promises of registered sources: names, types, and that nothing is copied.

use crate::server::ServerConnection as _;
use crate::{Connection, Database, Outcome};
use arrow_array::builder::{LargeListBuilder, StringDictionaryBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Decimal256Type, Float16Type, Int8Type, Int64Type};
use arrow_array::{
    ArrayRef, Date64Array, Decimal128Array, Decimal256Array, DictionaryArray, DurationMillisecondArray,
    FixedSizeBinaryArray, Float16Array, Int64Array, LargeStringArray, NullArray, PrimitiveArray, RecordBatch,
    StringArray, StructArray, Time64MicrosecondArray, TimestampNanosecondArray, UInt8Array, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema};
use firn_base::sync::Arc;
use firn_base::{Interval, SqlState, Value};

fn connection() -> Connection {
    Database::memory().unwrap().connect()
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).unwrap()
}

fn numbers(name: &str, values: impl IntoIterator<Item = i64>) -> RecordBatch {
    batch(vec![(name, Arc::new(Int64Array::from_iter_values(values)))])
}

fn register(connection: &mut Connection, name: &str, batch: RecordBatch) {
    connection.register(name, &batch.schema(), vec![batch]).unwrap();
}

fn rows(connection: &mut Connection, sql: &str) -> Vec<Vec<Value>> {
    let statement = connection.prepare(sql).unwrap();
    connection.query_values(&statement, &[]).unwrap()
}

fn state(connection: &mut Connection, sql: &str) -> SqlState {
    connection.execute(sql).unwrap_err().state()
}

#[test]
fn a_source_is_read_where_it_lies() {
    let mut connection = connection();
    let given = numbers("a", 0..100_000);
    let begin = given.column(0).as_primitive::<Int64Type>().values().as_ptr_range();
    register(&mut connection, "given", given.clone());
    let statement = connection.prepare("SELECT a FROM given").unwrap();
    let Outcome::Rows(mut rows) = connection.run(&statement, &[]).unwrap() else {
        panic!("a query yields rows")
    };
    let schema = rows.schema();
    let mut seen = 0;
    while let Some(chunk) = rows.next_chunk().unwrap() {
        let batch = crate::Rows::batch(chunk, rows.columns(), &schema).unwrap();
        let values = batch.column(0).as_primitive::<Int64Type>().values().as_ptr_range();
        assert!(begin.start <= values.start && values.end <= begin.end, "the batch is a copy");
        seen += batch.num_rows();
    }
    assert_eq!(seen, 100_000);
}

#[test]
fn a_source_goes_before_a_table_of_its_name_until_it_is_given_up() {
    let database = Database::memory().unwrap();
    let mut connection = database.connect();
    connection.execute("CREATE TABLE t (a bigint); INSERT INTO t VALUES (1)").unwrap();
    let prepared = connection.prepare("SELECT a FROM t").unwrap();
    assert_eq!(connection.query_values(&prepared, &[]).unwrap(), [[Value::BigInt(1)]]);
    register(&mut connection, "t", numbers("a", [2, 3]));
    assert_eq!(connection.query_values(&prepared, &[]).unwrap(), [[Value::BigInt(2)], [Value::BigInt(3)]]);
    assert_eq!(rows(&mut connection, "SELECT a FROM public.t"), [[Value::BigInt(1)]]);
    // Another session does not have the source, and vice versa.
    let mut other = database.connect();
    assert_eq!(rows(&mut other, "SELECT a FROM t"), [[Value::BigInt(1)]]);
    register(&mut connection, "t", numbers("a", [4]));
    assert_eq!(connection.query_values(&prepared, &[]).unwrap(), [[Value::BigInt(4)]]);
    connection.unregister("t").unwrap();
    assert_eq!(connection.query_values(&prepared, &[]).unwrap(), [[Value::BigInt(1)]]);
    assert_eq!(connection.unregister("t").unwrap_err().state(), SqlState::UNDEFINED_OBJECT);
    register(&mut connection, "s", numbers("a", [5]));
    connection.execute("DISCARD ALL").unwrap();
    assert_eq!(state(&mut connection, "SELECT * FROM s"), SqlState::UNDEFINED_TABLE);
}

#[test]
fn rows_of_a_source_can_be_joined_and_stored() {
    let mut connection = connection();
    connection.execute("CREATE TABLE t (a bigint PRIMARY KEY, b text)").unwrap();
    connection.execute("INSERT INTO t VALUES (1, 'one'), (2, 'two')").unwrap();
    register(&mut connection, "s", numbers("a", [2, 3]));
    let joined = rows(&mut connection, "SELECT b FROM s JOIN t USING (a)");
    assert_eq!(joined, [[Value::Text("two".into())]]);
    assert_eq!(connection.execute("INSERT INTO t SELECT a, 'new' FROM s WHERE a > 2").unwrap(), 1);
    assert_eq!(connection.execute("UPDATE t SET b = 'old' FROM s WHERE s.a = t.a").unwrap(), 2);
    assert_eq!(connection.execute("DELETE FROM t WHERE a IN (SELECT a FROM s)").unwrap(), 2);
    connection.execute("CREATE TABLE copy AS SELECT * FROM s").unwrap();
    connection.unregister("s").unwrap();
    assert_eq!(rows(&mut connection, "SELECT sum(a)::bigint FROM copy"), [[Value::BigInt(5)]]);
    // A source may have the name of the table that is made of it.
    register(&mut connection, "u", numbers("a", [7]));
    connection.execute("CREATE TABLE u AS SELECT a + 1 AS a FROM u").unwrap();
    assert_eq!(rows(&mut connection, "SELECT a FROM public.u"), [[Value::BigInt(8)]]);
}

#[test]
fn a_source_can_only_be_read() {
    let mut connection = connection();
    // A table has the same name, so that a statement which ignored the source would work.
    connection.execute("CREATE TABLE s (a bigint PRIMARY KEY)").unwrap();
    register(&mut connection, "s", numbers("a", [1]));
    for refused in [
        "INSERT INTO s VALUES (2)",
        "UPDATE s SET a = 2",
        "DELETE FROM s",
        "TRUNCATE s",
        "DROP TABLE s",
        "DROP TABLE IF EXISTS s",
        "ALTER TABLE s ADD COLUMN b integer",
        "ALTER TABLE s RENAME TO r",
        "CREATE INDEX ON s (a)",
        "CREATE VIEW v AS SELECT * FROM s",
        "CREATE TABLE r (a bigint REFERENCES s)",
        "COPY s TO '/nowhere'",
        "COPY s FROM '/nowhere'",
        "BEGIN; LOCK TABLE s",
    ] {
        assert_eq!(state(&mut connection, refused), SqlState::WRONG_OBJECT_TYPE, "{refused}");
        connection.execute("ROLLBACK").unwrap();
    }
    assert_eq!(state(&mut connection, "SELECT * FROM s FOR UPDATE"), SqlState::FEATURE_NOT_SUPPORTED);
    // WITH hides it, as it hides tables.
    connection.execute("CREATE VIEW v AS WITH s AS (SELECT 1 AS a) SELECT * FROM s").unwrap();
    assert_eq!(rows(&mut connection, "SELECT * FROM v"), [[Value::Integer(1)]]);
    assert_eq!(rows(&mut connection, "SELECT count(*) FROM public.s"), [[Value::BigInt(0)]]);
}

#[test]
fn columns_of_foreign_types_are_cast_to_the_nearest() {
    let mut connection = connection();
    let mut dictionary = StringDictionaryBuilder::<Int8Type>::new();
    let mut list = LargeListBuilder::new(arrow_array::builder::Int32Builder::new());
    dictionary.append_value("red");
    list.append_value([Some(1), None]);
    let decimal = Decimal256Array::from_iter_values([i256(12345)]).with_precision_and_scale(60, 2);
    let given = batch(vec![
        ("tiny", Arc::new(UInt8Array::from_iter_values([255]))),
        ("large", Arc::new(UInt64Array::from_iter_values([u64::MAX]))),
        (
            "half",
            Arc::new(Float16Array::from(vec![<Float16Type as ArrowPrimitiveType>::Native::from_f32(1.5)])),
        ),
        ("wide", Arc::new(decimal.unwrap())),
        ("colour", Arc::new(dictionary.finish())),
        ("text", Arc::new(LargeStringArray::from_iter_values(["long enough to lie outside its view"]))),
        ("day", Arc::new(Date64Array::from_iter_values([86_400_000]))),
        ("moment", Arc::new(TimestampNanosecondArray::from_iter_values([1_234_567]).with_timezone("+02:00"))),
        ("span", Arc::new(DurationMillisecondArray::from_iter_values([1500]))),
        ("hash", Arc::new(FixedSizeBinaryArray::try_from_iter([[1u8, 2]].into_iter()).unwrap())),
        ("nothing", Arc::new(NullArray::new(1))),
        ("list", Arc::new(list.finish())),
    ]);
    register(&mut connection, "s", given);
    let query =
        "SELECT tiny, large, half, wide, colour, text, day, moment, span, hash, nothing, list[1] FROM s";
    let expected = vec![
        Value::SmallInt(255),
        Value::Numeric { unscaled: i128::from(u64::MAX), scale: 0 },
        Value::Real(1.5),
        Value::Numeric { unscaled: 12345, scale: 2 },
        Value::Text("red".into()),
        Value::Text("long enough to lie outside its view".into()),
        Value::Date(1),
        Value::TimestampTz(1234),
        Value::Interval(Interval { months: 0, days: 0, nanoseconds: 1_500_000_000 }),
        Value::Bytea(vec![1, 2]),
        Value::Null,
        Value::Integer(1),
    ];
    assert_eq!(rows(&mut connection, query), [expected]);
    // Only the columns of the result are read: the last value does not fit.
    let overflow = Decimal256Array::from_iter_values([i256(i128::MAX)]);
    let overflow = batch(vec![
        ("wide", Arc::new(overflow.with_precision_and_scale(70, 0).unwrap())),
        ("a", Arc::new(Int64Array::from_iter_values([1]))),
    ]);
    register(&mut connection, "s", overflow);
    assert_eq!(rows(&mut connection, "SELECT a FROM s"), [[Value::BigInt(1)]]);
    assert!(connection.execute("SELECT wide FROM s").is_err());
}

/// With a registered source and with one whose batches are stored by COPY.
#[test]
fn a_null_among_the_values_of_a_dictionary_is_no_empty_string() {
    let mut connection = connection();
    let values = StringArray::from(vec![Some("a"), None]);
    let keys = PrimitiveArray::<Int8Type>::from(vec![Some(0), Some(1), None]);
    let given = batch(vec![("a", Arc::new(DictionaryArray::new(keys, Arc::new(values))))]);
    let expected = [[Value::Text("a".into())], [Value::Null], [Value::Null]];
    register(&mut connection, "s", given.clone());
    assert_eq!(rows(&mut connection, "SELECT a FROM s"), expected);
    connection.execute("CREATE TABLE strict (a text NOT NULL); CREATE TABLE t (a text)").unwrap();
    assert_eq!(state(&mut connection, "INSERT INTO strict SELECT a FROM s"), SqlState::NOT_NULL_VIOLATION);
    let mut copy = |table| {
        let statement = connection.prepare(&format!("COPY {table} FROM STDIN")).unwrap();
        let Outcome::CopyIn(mut copy) = connection.run(&statement, &[]).unwrap() else { panic!() };
        copy.write_batch(&given)?;
        copy.finish().map(|_| ())
    };
    assert_eq!(copy("strict").unwrap_err().state(), SqlState::NOT_NULL_VIOLATION);
    copy("t").unwrap();
    assert_eq!(rows(&mut connection, "SELECT a FROM t"), expected);
}

/// With a registered source and with one whose batches are stored by COPY.
#[test]
fn values_that_their_types_do_not_have_are_neither_shown_nor_stored() {
    let mut connection = connection();
    let decimal = Decimal128Array::from(vec![1, 10_i128.pow(20)]).with_precision_and_scale(5, 2).unwrap();
    let given = batch(vec![
        ("a", Arc::new(Int64Array::from_iter_values([1, 2]))),
        ("n", Arc::new(decimal)),
        ("t", Arc::new(Time64MicrosecondArray::from(vec![0, -5]))),
    ]);
    register(&mut connection, "s", given.clone());
    assert_eq!(rows(&mut connection, "SELECT sum(a) FROM s").len(), 1);
    assert_eq!(state(&mut connection, "SELECT n FROM s"), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
    assert_eq!(state(&mut connection, "SELECT t FROM s"), SqlState::DATETIME_FIELD_OVERFLOW);
    connection.execute("CREATE TABLE t (a bigint, n numeric(5, 2), t time)").unwrap();
    let statement = connection.prepare("COPY t FROM STDIN").unwrap();
    let Outcome::CopyIn(mut copy) = connection.run(&statement, &[]).unwrap() else { panic!() };
    let error = copy.write_batch(&given).unwrap_err();
    drop(copy);
    assert_eq!(error.state(), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
    assert_eq!(error.context(), Some("COPY t, row 2"));
    let message = "value 1000000000000000000.00 of column \"n\" is out of range for type numeric(5,2)";
    assert_eq!(error.message(), message);
    assert_eq!(rows(&mut connection, "SELECT count(*) FROM t"), [[Value::BigInt(0)]]);
}

fn i256(value: i128) -> <Decimal256Type as ArrowPrimitiveType>::Native {
    <Decimal256Type as ArrowPrimitiveType>::Native::from_i128(value)
}

#[test]
fn columns_that_no_type_is_near_to_and_equal_names_are_refused() {
    let mut connection = connection();
    let inner = Int64Array::from_iter_values([1]);
    let field = Arc::new(Field::new("x", DataType::Int64, true));
    let nested = StructArray::from(vec![(field, Arc::new(inner) as ArrayRef)]);
    let nested = batch(vec![("a", Arc::new(nested))]);
    let error = connection.register("s", &nested.schema(), vec![nested]).unwrap_err();
    assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED);
    assert!(error.message().contains("\"a\""), "{error}");
    let twice =
        Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("a", DataType::Int64, true)]);
    let error = connection.register("s", &twice, Vec::new()).unwrap_err();
    assert_eq!(error.state(), SqlState::DUPLICATE_COLUMN);
    // Without batches it is empty, and has its columns.
    let text = Schema::new(vec![Field::new("A b", DataType::Utf8, false)]);
    connection.register("s", &text, Vec::new()).unwrap();
    assert_eq!(rows(&mut connection, "SELECT max(\"A b\") FROM s"), [[Value::Null]]);
}

#[test]
fn batches_have_the_announced_schema_from_every_source() {
    let mut connection = connection();
    connection.execute("CREATE TABLE t (id integer PRIMARY KEY, name varchar(10))").unwrap();
    connection.execute("INSERT INTO t VALUES (1, 'one'), (2, NULL)").unwrap();
    let strings = batch(vec![("a", Arc::new(StringArray::from_iter_values(["x"])))]);
    register(&mut connection, "s", strings);
    for query in [
        // The short path, the analytical one, equal names, a catalog, arrays, a utility statement, nothing at all.
        "SELECT * FROM t WHERE id = 1",
        "SELECT name, count(*) FROM t GROUP BY name",
        "SELECT id, id, name AS id FROM t ORDER BY 1",
        "SELECT relname FROM pg_class LIMIT 1",
        "SELECT ARRAY[id], ARRAY[name] FROM t ORDER BY id",
        "SELECT array_agg(relname), array_agg(attnum) FROM pg_attribute, pg_class",
        "SELECT row_number() OVER (ORDER BY id), rank() OVER (ORDER BY id) FROM t",
        "SHOW search_path",
        "SELECT * FROM t WHERE id < 0",
        "SELECT a FROM s",
        "INSERT INTO t VALUES (3, 'three') RETURNING name",
        "SELECT * FROM t FOR UPDATE",
    ] {
        let statement = connection.prepare(query).unwrap();
        let Outcome::Rows(mut rows) = connection.run(&statement, &[]).unwrap() else { panic!("{query}") };
        let schema = rows.schema();
        let names: Vec<&str> = rows.columns().iter().map(|column| column.name.as_str()).collect();
        assert!(
            names.iter().copied().eq(schema.fields().iter().map(|field| field.name().as_str())),
            "{query}"
        );
        let columns = rows.columns().clone();
        while let Some(chunk) = rows.next_chunk().unwrap() {
            let expected = chunk.rows(columns.len());
            let batch = crate::Rows::batch(chunk, &columns, &schema).unwrap();
            assert_eq!((batch.schema(), batch.num_rows()), (schema.clone(), expected), "{query}");
        }
    }
}

#[test]
fn a_watch_cancels_statements_from_whichever_thread_looks() {
    use firn_base::sync::{AtomicU64, Ordering};
    let mut connection = connection();
    connection
        .execute("CREATE TABLE t (a bigint); INSERT INTO t SELECT * FROM generate_series(1, 3000)")
        .unwrap();
    // How often the hook is called before it cancels. Planning calls it as well.
    let left = Arc::new(AtomicU64::new(20));
    let counter = left.clone();
    connection.set_interrupt_hook(move || {
        counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
    });
    assert_eq!(state(&mut connection, "SELECT count(*) FROM t x, t y, t z"), SqlState::QUERY_CANCELED);
    // The flag is raised as long as the hook says so.
    left.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(rows(&mut connection, "SELECT 1"), [[Value::Integer(1)]]);
}

/// Such values could not be read back from any text, so they are never returned.
#[test]
fn strings_with_zero_bytes_do_not_come_in() {
    let mut connection = connection();
    let long = "long enough to lie beside its view, with a \0 in it";
    for broken in ["a\0b", long] {
        let strings = StringArray::from(vec!["whole", broken]);
        let dictionary: DictionaryArray<Int8Type> = vec!["whole", broken].into_iter().collect();
        let view = arrow_array::StringViewArray::from(vec!["whole", broken]);
        for column in [Arc::new(strings) as ArrayRef, Arc::new(dictionary), Arc::new(view)] {
            let given = batch(vec![("t", column)]);
            register(&mut connection, "s", given.clone());
            for sql in [
                "CREATE TABLE made AS SELECT * FROM s",
                "INSERT INTO kept SELECT t FROM s",
                "UPDATE kept SET t = (SELECT max(t) FROM s)",
            ] {
                connection
                    .execute("CREATE TABLE IF NOT EXISTS kept (t text); INSERT INTO kept VALUES ('')")
                    .unwrap();
                let error = connection.execute(sql).unwrap_err();
                assert_eq!(error.state(), SqlState::CHARACTER_NOT_IN_REPERTOIRE, "{sql}");
                assert_eq!(error.message(), "invalid byte sequence for encoding \"UTF8\": 0x00");
            }
            let statement = connection.prepare("COPY kept FROM STDIN").unwrap();
            let Outcome::CopyIn(mut copy) = connection.run(&statement, &[]).unwrap() else { panic!() };
            let error = copy.write_batch(&given).unwrap_err();
            assert_eq!(error.state(), SqlState::CHARACTER_NOT_IN_REPERTOIRE);
            drop(copy);
            assert_eq!(rows(&mut connection, "SELECT DISTINCT t FROM kept"), [[Value::Text(String::new())]]);
        }
    }
}

#[test]
fn nor_do_they_by_parameters_and_texts_of_statements() {
    let mut connection = connection();
    connection.execute("CREATE TABLE t (t text)").unwrap();
    let zero = Value::Text("a\0b".into());
    let insert = connection.prepare("INSERT INTO t VALUES ($1)").unwrap();
    let search = connection.prepare("SELECT t FROM t WHERE t = ANY ($1::text[])").unwrap();
    for (statement, value) in [(&insert, zero.clone()), (&search, Value::Array(vec![zero].into()))] {
        let error = connection.run(statement, &[value]).map(drop).unwrap_err();
        assert_eq!(error.state(), SqlState::CHARACTER_NOT_IN_REPERTOIRE);
        assert_eq!(error.message(), "invalid byte sequence for encoding \"UTF8\": 0x00");
    }
    assert_eq!(
        state(&mut connection, "INSERT INTO t VALUES ('a\0b')"),
        SqlState::CHARACTER_NOT_IN_REPERTOIRE
    );
    for escape in ["U&'\\0000'", "U&'a\\+000000'"] {
        let error = connection.execute(&format!("INSERT INTO t VALUES ({escape})")).unwrap_err();
        assert_eq!(
            (error.state(), error.message()),
            (SqlState::SYNTAX_ERROR, "invalid Unicode escape value")
        );
    }
    assert_eq!(rows(&mut connection, "SELECT count(*) FROM t"), [[Value::BigInt(0)]]);
}
