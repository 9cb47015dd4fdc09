//! What expressions and queries mean, where PostgreSQL and DataFusion could differ.

use crate::database::{Database, shop};
use firn_base::sync::Arc;
use firn_base::{SqlState, SqlType};
use firn_exec::{NoSession, RunOptions, SessionServices, run};
use std::time::{Duration, Instant};

fn value(expression: &str) -> String {
    Database::new().ask(&format!("SELECT {expression}"))
}

fn state(expression: &str) -> String {
    Database::new().refuse(&format!("SELECT {expression}")).state().to_string()
}

fn types(query: &str) -> Vec<SqlType> {
    let answer = shop().try_ask(query, &[]).unwrap();
    answer.columns.into_iter().map(|(_, ty)| ty).collect()
}

fn names(query: &str) -> Vec<String> {
    let answer = shop().try_ask(query, &[]).unwrap();
    answer.columns.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn joins_aggregates_windows_and_subqueries_yield_rows() {
    let shop = shop();
    assert_eq!(shop.ask("SELECT c_name FROM customer ORDER BY c_id"), "Ada Grace Edsger");
    assert_eq!(
        shop.ask("SELECT c_name, count(o_id), sum(o_lines) FROM customer LEFT JOIN orders ON o_c_id = c_id GROUP BY c_id, c_name ORDER BY c_id"),
        "Ada|2|8 Grace|1|7 Edsger|0|NULL"
    );
    assert_eq!(
        shop.ask("SELECT o_id, row_number() OVER (PARTITION BY o_c_id ORDER BY o_entry DESC) FROM orders ORDER BY 1"),
        "10|2 11|1 12|1"
    );
    assert_eq!(
        shop.ask("WITH big AS (SELECT * FROM orders WHERE o_lines > 4) SELECT c_name FROM customer WHERE c_id IN (SELECT o_c_id FROM big) ORDER BY 1"),
        "Ada Grace"
    );
    assert_eq!(
        shop.ask(
            "SELECT c_name FROM customer c WHERE NOT EXISTS (SELECT * FROM orders WHERE o_c_id = c.c_id)"
        ),
        "Edsger"
    );
    assert_eq!(
        shop.ask("SELECT c_id, (SELECT max(o_lines) FROM orders WHERE o_c_id = c_id) AS most FROM customer ORDER BY 1"),
        "1|5 2|7 3|NULL"
    );
    assert_eq!(
        shop.ask("WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 4) SELECT sum(i) FROM n"),
        "10"
    );
    assert_eq!(shop.ask("SELECT c_id FROM customer UNION SELECT o_c_id FROM orders ORDER BY 1"), "1 2 3");
}

#[test]
fn output_columns_are_named_as_in_postgresql() {
    assert_eq!(
        names(
            "SELECT c_id, c.c_name, count(*), 1, c_id + 1, c_id::text, 'x'::text, CASE WHEN true THEN 1 END FROM customer c GROUP BY c_id, c_name"
        ),
        ["c_id", "c_name", "count", "?column?", "?column?", "c_id", "text", "case"]
    );
    assert_eq!(names("SELECT c_id, c_id, 1 AS \"X\" FROM customer"), ["c_id", "c_id", "X"]);
    assert_eq!(names("SELECT a.c_id, b.c_id FROM customer a, customer b"), ["c_id", "c_id"]);
}

#[test]
fn result_types_are_those_of_postgresql() {
    assert_eq!(
        types("SELECT 1, 3000000000, 1.5, 'x', true"),
        [
            SqlType::Integer,
            SqlType::BigInt,
            SqlType::Numeric { precision: 2, scale: 1 },
            SqlType::Text,
            SqlType::Boolean
        ]
    );
    let sums = types("SELECT sum(c_id), sum(o_id), count(*), sum(o_weight) FROM customer, orders");
    assert_eq!(sums[0], SqlType::BigInt);
    assert!(matches!(sums[1], SqlType::Numeric { scale: 0, .. }));
    assert_eq!(sums[2..], [SqlType::BigInt, SqlType::Double]);
    assert_eq!(
        types("SELECT c_credit, c_name, c_since FROM customer"),
        [SqlType::Char(4), SqlType::Varchar(Some(20)), SqlType::Date]
    );
    assert_eq!(
        types("SELECT o_lines + o_lines, o_lines + 1, c_id * o_id FROM customer, orders"),
        [SqlType::SmallInt, SqlType::Integer, SqlType::BigInt]
    );
}

#[test]
fn integers_refuse_to_overflow() {
    assert_eq!(state("2147483647 + 1"), "22003");
    assert_eq!(state("-2147483648 - 1"), "22003");
    assert_eq!(state("9223372036854775807 + 1"), "22003");
    assert_eq!(state("100000 * 100000"), "22003");
    assert_eq!(value("100000::bigint * 100000"), "10000000000");
    let shop = shop();
    assert_eq!(shop.refuse("SELECT c_id + 2147483647 FROM customer").state().to_string(), "22003");
    assert_eq!(shop.refuse("SELECT c_id + 2147483647 FROM customer").message(), "integer out of range");
}

#[test]
fn division_truncates_integers_and_refuses_zero() {
    assert_eq!(value("7 / 2"), "3");
    assert_eq!(value("-7 / 2"), "-3");
    assert_eq!(value("-7 % 2"), "-1");
    assert_eq!(value("mod(7, 4)"), "3");
    for expression in ["1 / 0", "1.0 / 0", "1 % 0", "1::double precision / 0", "1.5 % 0"] {
        assert_eq!(state(expression), "22012", "{expression}");
    }
    let shop = shop();
    assert_eq!(shop.refuse("SELECT 1 / (c_id - 1) FROM customer").message(), "division by zero");
    assert_eq!(shop.refuse("SELECT 1 / o_weight FROM orders").state().to_string(), "22012");
}

#[test]
fn numerics_keep_their_decimals() {
    assert_eq!(value("0.1 + 0.2"), "0.3");
    assert_eq!(value("1.10 * 2"), "2.20");
    assert_eq!(value("round(1.0 / 3, 4)"), "0.3333");
    assert_eq!(value("cast(2.5 AS integer)"), "3");
    assert_eq!(value("cast(-2.5 AS integer)"), "-3");
    assert_eq!(value("cast(1.005 AS numeric(5, 2))"), "1.01");
    assert_eq!(state("cast(12345.6 AS numeric(5, 2))"), "22003");
    assert_eq!(shop().ask("SELECT sum(c_balance) FROM customer"), "7.50");
}

#[test]
fn literals_in_quotes_take_the_type_beside_them() {
    let shop = shop();
    assert_eq!(shop.ask("SELECT c_id FROM customer WHERE c_since < '2021-01-01'"), "1");
    assert_eq!(shop.ask("SELECT c_id FROM customer WHERE c_id = '2'"), "2");
    assert_eq!(shop.ask("SELECT c_id FROM customer WHERE c_id IN ('1', '3') ORDER BY 1"), "1 3");
    assert_eq!(shop.ask("SELECT o_id FROM orders WHERE o_entry BETWEEN '2024-03-01' AND '2024-12-01'"), "11");
    assert_eq!(shop.ask("SELECT c_id FROM customer WHERE c_balance = '10.5'"), "1");
    assert_eq!(value("'3' + 4"), "7");
    let error = shop.refuse("SELECT 1 FROM customer WHERE c_id = 'x'");
    assert_eq!(error.state().to_string(), "22P02");
    assert_eq!(error.message(), "invalid input syntax for type integer: \"x\"");
}

#[test]
fn blanks_behind_char_count_for_nothing() {
    let shop = shop();
    assert_eq!(shop.ask("SELECT c_id FROM customer WHERE c_credit = 'GC' ORDER BY 1"), "1 3");
    assert_eq!(shop.ask("SELECT c_id FROM customer WHERE c_credit = 'GC  ' ORDER BY 1"), "1 3");
    assert_eq!(shop.ask("SELECT c_id FROM customer WHERE c_credit IN ('BC', 'XX')"), "2");
    assert_eq!(shop.ask("SELECT c_id FROM customer WHERE c_credit LIKE 'B_'"), "");
    assert_eq!(shop.ask("SELECT c_id FROM customer WHERE c_credit LIKE 'B_  '"), "2");
    assert_eq!(shop.ask("SELECT DISTINCT length(c_credit) FROM customer"), "2");
    assert_eq!(shop.ask("SELECT c_credit || '!' FROM customer WHERE c_id = 1"), "GC!");
}

#[test]
fn texts_match_patterns() {
    assert_eq!(value("'abc' LIKE 'a%'"), "t");
    assert_eq!(value("'ABC' ILIKE 'a_c'"), "t");
    assert_eq!(value("'abc' SIMILAR TO '(a|b)%'"), "t");
    assert_eq!(value("'abc' SIMILAR TO 'b'"), "f");
    assert_eq!(value("'abc' ~ '^a.c$'"), "t");
    assert_eq!(value("'abc' !~* 'B'"), "f");
    assert_eq!(value("'a' || 1 || 'b'"), "a1b");
    assert_eq!(value("substring('firn' FROM 2 FOR 2)"), "ir");
    assert_eq!(value("position('r' IN 'firn')"), "3");
    assert_eq!(value("overlay('firn' PLACING 'ee' FROM 2 FOR 1)"), "feern");
    assert_eq!(value("trim(BOTH 'x' FROM 'xxfirnx')"), "firn");
    assert_eq!(value("upper('ä') || lower('Q')"), "Äq");
    assert_eq!(value("coalesce(NULL, 'x')"), "x");
    assert_eq!(value("nullif(1, 1)"), "NULL");
    assert_eq!(value("greatest(1, 3, 2)"), "3");
}

#[test]
fn dates_add_up() {
    assert_eq!(value("date '1998-12-01' - interval '90 days'"), "1998-09-02 00:00:00");
    assert_eq!(value("date '1998-12-01' + 31"), "1999-01-01");
    assert_eq!(value("date '2024-03-01' - date '2024-02-01'"), "29");
    assert_eq!(value("timestamp '2024-01-31 10:00' + interval '1 month'"), "2024-02-29 10:00:00");
    assert_eq!(value("timestamp '2024-01-02 03:00' - timestamp '2024-01-01'"), "1 day 03:00:00");
    assert_eq!(value("interval '1 day' * 2"), "2 days");
    assert_eq!(value("extract(year FROM date '2024-05-06')"), "2024");
    assert_eq!(value("date_part('month', timestamp '2024-05-06')"), "5");
    assert_eq!(value("date_trunc('month', timestamp '2024-05-06 07:08')"), "2024-05-01 00:00:00");
    assert_eq!(value("to_char(timestamp '2024-05-06 17:08', 'YYYY-MM-DD HH24:MI')"), "2024-05-06 17:08");
    assert_eq!(value("'2024-02-29'::date"), "2024-02-29");
    assert_eq!(state("'2023-02-29'::date"), "22008");
    let shop = shop();
    assert_eq!(shop.ask("SELECT o_id FROM orders WHERE o_entry >= date '2024-12-01'"), "12");
    assert_eq!(shop.ask("SELECT extract(year FROM o_entry), count(*) FROM orders GROUP BY 1"), "2024|3");
    assert_eq!(shop.ask("SELECT now() = transaction_timestamp(), current_date = now()::date"), "t|t");
}

#[test]
fn nulls_sort_as_the_largest() {
    let shop = shop();
    assert_eq!(shop.ask("SELECT c_id FROM customer ORDER BY c_balance"), "2 1 3");
    assert_eq!(shop.ask("SELECT c_id FROM customer ORDER BY c_balance DESC"), "3 1 2");
    assert_eq!(shop.ask("SELECT c_id FROM customer ORDER BY c_balance DESC NULLS LAST LIMIT 1"), "1");
}

#[test]
fn rows_of_values_compare_column_by_column() {
    let shop = shop();
    assert_eq!(shop.ask("SELECT o_id FROM orders WHERE (o_c_id, o_lines) = (1, 5)"), "11");
    assert_eq!(
        shop.ask("SELECT o_id FROM orders WHERE (o_c_id, o_lines) IN ((1, 3), (2, 7)) ORDER BY 1"),
        "10 12"
    );
    assert_eq!(shop.ask("SELECT o_id FROM orders WHERE (o_c_id, o_lines) > (1, 3) ORDER BY 1"), "11 12");
}

#[test]
fn series_stand_in_from_and_in_the_select_list() {
    assert_eq!(Database::new().ask("SELECT i * 2 FROM generate_series(1, 3) AS i ORDER BY 1"), "2 4 6");
    assert_eq!(Database::new().ask("SELECT generate_series FROM generate_series(1, 2) ORDER BY 1"), "1 2");
    assert_eq!(Database::new().ask("SELECT generate_series(1, 3)"), "1 2 3");
}

#[test]
fn fetch_and_table_are_other_words_for_limit_and_select() {
    let shop = shop();
    assert_eq!(shop.ask("SELECT c_id FROM customer ORDER BY 1 FETCH FIRST 2 ROWS ONLY"), "1 2");
    assert_eq!(shop.ask("SELECT c_id FROM customer ORDER BY 1 OFFSET 1 FETCH NEXT ROW ONLY"), "2");
    assert_eq!(shop.try_ask("TABLE customer", &[]).unwrap().rows.len(), 3);
}

#[test]
fn aggregates_collect_and_filter() {
    let shop = shop();
    assert_eq!(
        shop.ask("SELECT string_agg(c_name, ', ' ORDER BY c_name) FROM customer"),
        "Ada, Edsger, Grace"
    );
    assert_eq!(
        shop.ask("SELECT bool_and(o_lines > 2), every(o_lines > 3), bool_or(o_lines > 6) FROM orders"),
        "t|f|t"
    );
    assert_eq!(shop.ask("SELECT count(*) FILTER (WHERE o_lines > 3) FROM orders"), "2");
    assert_eq!(shop.ask("SELECT round(avg(o_lines), 2) FROM orders"), "5.00");
    assert_eq!(
        shop.ask("SELECT c_credit, count(*) FROM customer GROUP BY c_credit HAVING count(*) > 1"),
        "GC  |2"
    );
}

#[test]
fn a_view_is_its_query() {
    let shop = shop();
    shop.view("good", &["id", "who"], "SELECT c_id, c_name FROM public.customer WHERE c_credit = 'GC'");
    assert_eq!(shop.ask("SELECT who FROM good WHERE id > 1"), "Edsger");
    assert_eq!(
        shop.ask("SELECT g.who, o_id FROM good g JOIN orders ON o_c_id = g.id ORDER BY o_id"),
        "Ada|10 Ada|11"
    );
    shop.view("endless", &["id"], "SELECT id FROM endless");
    assert_eq!(shop.refuse("SELECT * FROM endless").state().to_string(), "42P17");
}

#[test]
fn a_query_sees_the_snapshot_that_it_runs_at() {
    let shop = shop();
    let (plan, _) =
        shop.bind("SELECT count(*) FROM extra", &[]).map(|_| unreachable!()).unwrap_or_else(|_| {
            shop.table("extra", &[("id", SqlType::Integer)], &[&[Some("1")]]);
            shop.bind("SELECT count(*) FROM extra", &[]).unwrap()
        });
    let before = shop.engine.begin();
    let table = {
        let catalog = shop.engine.catalog();
        let definition = catalog.tables.values().find(|table| table.name == "extra").unwrap();
        shop.engine.table(definition.storage())
    };
    let mut writer = shop.engine.begin();
    writer.insert(&table, &[firn_base::Cell::i32(2)], &firn_storage::pin()).unwrap();
    let count = |transaction: &firn_txn::Transaction| {
        let mut stream = firn_exec::run(&plan, &[], transaction, &shop.options).unwrap();
        let batch = stream.next().unwrap().unwrap();
        firn_exec::types::value_at(batch.column(0).as_ref(), 0).unwrap()
    };
    assert_eq!(count(&writer), firn_base::Value::BigInt(2));
    assert_eq!(count(&before), firn_base::Value::BigInt(1));
}

/// What runs holds on to its session: when only the test does, no worker computes any more.
#[test]
fn a_query_that_was_cancelled_or_dropped_stops_computing() {
    let shop = shop();
    for (sql, threads) in [
        ("SELECT count(*) FROM generate_series(1, 1000000000000) AS a(i) WHERE i % 7 = 1", 4),
        ("SELECT count(*) FROM generate_series(1, 1000000000000) AS a(i) WHERE i % 7 = 1", 1),
        (
            "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b, generate_series(1, 100000) c",
            4,
        ),
        (
            "SELECT count(*) FROM (SELECT unnest(make_array(i, i)) FROM generate_series(1, 1000000000000) AS a(i)) AS u",
            4,
        ),
    ] {
        for cancelled in [true, false] {
            let services: Arc<dyn SessionServices> = Arc::new(NoSession);
            let options = RunOptions { services: services.clone(), threads, ..RunOptions::default() };
            let (plan, _) = shop.bind(sql, &[]).unwrap();
            let transaction = shop.engine.begin();
            let mut stream = run(&plan, &[], &transaction, &options).unwrap();
            let cancel = options.cancel.clone();
            let canceller = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                cancel.cancel();
            });
            assert_eq!(stream.next().unwrap_err().state(), SqlState::QUERY_CANCELED, "{sql}");
            canceller.join().unwrap();
            if !cancelled {
                options.cancel.reset();
            }
            drop((stream, options));
            let begin = Instant::now();
            while Arc::strong_count(&services) > 1 {
                assert!(begin.elapsed() < Duration::from_secs(20), "{sql} computes on");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
