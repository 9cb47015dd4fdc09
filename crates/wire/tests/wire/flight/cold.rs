//! Rows of frozen and of compact blocks. A client gets the same rows from them as from hot ones. While a transaction
//! writes to them it still gets the rows of its snapshot.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::types::Int32Type;
use arrow_array::{Int32Array, StringArray};
use arrow_schema::SchemaRef;
use firn_session::Config;
use firn_session::native::pin;
use futures::TryStreamExt;

use super::*;

/// A server whose blocks become cold only when a test requests it.
fn serve_patiently() -> Fixture {
    let config = Config { freeze_after: None, compact_after: None, ..Config::default() };
    serve_database(Database::open_with(config).unwrap(), |_| {})
}

/// Makes all blocks frozen, or compact; asserts that those of the table are, and that there are some.
fn cool(fixture: &Fixture, table: &str, state: &str) {
    let blocks = |condition: &str| {
        let of_table = format!("FROM firn_blocks WHERE relname = '{table}' AND rows > 0");
        fixture.number(&format!("SELECT count(*) {of_table} AND {condition}"))
    };
    let engine = fixture.database.engine();
    let until = Instant::now() + Duration::from_secs(60);
    while blocks(&format!("state <> '{state}'")) > 0 {
        assert!(Instant::now() < until, "{table} is not {state}");
        engine.collect();
        engine.freeze(Duration::ZERO);
        if state == "compact" {
            engine.compact(Duration::ZERO);
        }
        // Guards of other tests may delay it.
        pin().flush();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(blocks("true") > 0, "{table} has no rows");
}

/// The schema and the rows that a client gets, in their order.
async fn answer(client: &mut Client, sql: &str) -> (SchemaRef, Vec<Vec<String>>) {
    let info = client.execute(sql.to_owned(), None).await.unwrap();
    let described = info.clone().try_decode_schema().unwrap();
    let batches = fetch(client, info).await.unwrap();
    for batch in &batches {
        assert_eq!(described, *batch.schema(), "{sql}");
    }
    (described.into(), shown(&batches))
}

/// As [`answer`], of a prepared statement with a parameter.
async fn prepared(client: &mut Client, sql: &str, parameter: i32) -> Vec<Vec<String>> {
    let mut statement = client.prepare(sql.to_owned(), None).await.unwrap();
    let column: ArrayRef = Arc::new(Int32Array::from(vec![parameter]));
    statement.set_parameters(RecordBatch::try_from_iter([("1", column)]).unwrap()).unwrap();
    let info = statement.execute().await.unwrap();
    let rows = shown(&fetch(client, info).await.unwrap());
    statement.close().await.unwrap();
    rows
}

const COLUMNS: &str = "k integer PRIMARY KEY, a boolean, b smallint, c bigint, d real, e double precision, \
    f numeric(10,2), g numeric(38,10), h text, i varchar(10), j char(3), l bytea, m date, n time, o timestamp, \
    p timestamptz, q interval, r uuid";

/// Values of all types: some that repeat, some that lie close together, some that are all different.
const VALUES: &str = "k, k % 2 = 0, k % 100, k * 1000000007::bigint, k / 4.0, k * 1.5, k / 100.0, k / 3.0, \
    'a longer text of number ' || k % 20, 'v' || k % 1000, 'c' || k % 7, decode(md5((k % 50)::text), 'hex'), \
    date '2024-02-29' + (k % 365)::integer, time '12:30:01.5' + k * interval '1 second', \
    timestamp '2024-02-29 12:30:01' + k * interval '1 minute', \
    timestamptz '2024-02-29 12:30:01+00' + k * interval '1 hour', k * interval '1 month 2 days 3 seconds', \
    md5(k::text)::uuid";

#[test]
fn cold_rows_arrive_as_hot_ones_do_whatever_their_types_and_their_strings_layout() {
    let fixture = serve_patiently();
    fixture.execute(&format!("CREATE TABLE t ({COLUMNS})"));
    // Of a third of the rows all columns but the key are NULL.
    fixture.execute(&format!("INSERT INTO t SELECT {VALUES} FROM generate_series(1, 2000) AS s(k)"));
    fixture.execute("INSERT INTO t (k) SELECT k FROM generate_series(2001, 3000) AS s(k)");
    let answers = |strings| {
        fixture.run(async {
            let mut client = fixture.client().await;
            client.set_header("x-firn-strings", strings);
            let mut all = Vec::new();
            for sql in [
                "SELECT * FROM t ORDER BY k",
                "SELECT * FROM t WHERE k = 77",
                "SELECT * FROM t WHERE h = 'a longer text of number 7' AND b < 50 ORDER BY k",
                "SELECT * FROM t WHERE m BETWEEN '2024-03-01' AND '2024-03-05' ORDER BY k DESC",
                "SELECT h, j, count(*), sum(f), min(p), count(l) FROM t GROUP BY h, j ORDER BY h, j",
            ] {
                all.push(answer(&mut client, sql).await);
            }
            // In the order of storage.
            let (described, mut rows) = answer(&mut client, "SELECT * FROM t").await;
            rows.sort();
            all.push((described.clone(), rows));
            all.push((described, prepared(&mut client, "SELECT * FROM t WHERE b = $1 ORDER BY k", 42).await));
            all
        })
    };
    let hot = ["plain", "view"].map(|strings| (strings, answers(strings)));
    let [(_, plain), (_, views)] = &hot;
    assert_eq!(
        plain.iter().map(|(_, rows)| rows.len()).collect::<Vec<_>>(),
        [3000, 1, 60, 30, 141, 3000, 20]
    );
    for ((plain, rows), (views, same_rows)) in plain.iter().zip(views) {
        assert_eq!(rows, same_rows);
        let is_view = |schema: &SchemaRef| {
            let field = schema.field_with_name("h").unwrap();
            *field.data_type() == arrow_schema::DataType::Utf8View
        };
        assert!(is_view(views) && !is_view(plain));
    }
    for state in ["frozen", "compact"] {
        cool(&fixture, "t", state);
        for (strings, hot) in &hot {
            let cold = answers(strings);
            for (cold, hot) in cold.iter().zip(hot) {
                assert!(cold == hot, "{state}, {strings}: {cold:?} instead of {hot:?}");
            }
        }
    }
}

#[test]
fn rows_that_are_on_their_way_stay_while_their_blocks_are_written_to() {
    const ROWS: usize = 100_000;
    for state in ["hot", "frozen", "compact"] {
        let fixture = serve_patiently();
        fixture.execute("CREATE TABLE t (k integer PRIMARY KEY, s text)");
        // More than is sent to a client that does not read.
        let text = "'of row ' || k || repeat(' and so on', 20)";
        fixture.execute(&format!("INSERT INTO t SELECT k, {text} FROM generate_series(1, {ROWS}) AS s(k)"));
        if state != "hot" {
            cool(&fixture, "t", state);
        }
        fixture.run(async {
            let mut client = fixture.client().await;
            let info = client.execute("SELECT k, s FROM t".into(), None).await.unwrap();
            let mut rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
            let mut batches = vec![rows.try_next().await.unwrap().unwrap()];
            fixture
                .execute("UPDATE t SET s = 'changed ' || k WHERE k % 2 = 0; DELETE FROM t WHERE k % 3 = 0");
            for _ in 0..3 {
                let engine = fixture.database.engine();
                engine.collect();
                engine.freeze(Duration::ZERO);
                fixture.locally(|database| database.engine().compact(Duration::ZERO));
            }
            batches.extend(rows.try_collect::<Vec<_>>().await.unwrap());
            assert!(batches.len() > 3, "{} batches", batches.len());
            let mut keys = Vec::new();
            for batch in &batches {
                let strings: &StringArray = batch.column(1).as_string();
                for (key, string) in batch.column(0).as_primitive::<Int32Type>().values().iter().zip(strings)
                {
                    let expected = format!("of row {key}{}", " and so on".repeat(20));
                    assert_eq!(string, Some(&*expected), "{state}");
                    keys.push(*key);
                }
            }
            keys.sort_unstable();
            assert!(keys.iter().copied().eq(1..=ROWS as i32), "{state}: {} rows", keys.len());
            let left = query(
                &mut client,
                "SELECT count(*), count(*) FILTER (WHERE s LIKE 'changed %') FROM t",
                None,
            );
            assert_eq!(shown(&left.await.unwrap()), [["66667", "33334"]], "{state}");
        });
    }
}
