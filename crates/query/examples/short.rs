//! How long short statements take: preparing and running those of TPC-C, in memory, on one thread.
//!
//! ```text
//! cargo run --release -p firn-query --example short [repetitions [words of a statement's name]]
//! ```
//!
//! It prints, for each statement, microseconds for parsing it, for planning it (binding, optimising, compiling), and for one
//! execution of the prepared statement by its pipelines and by its short program; twenty executions run in one transaction. Then
//! come whole transactions. The last column is a sum over what the pipelines have returned, so that two versions can be seen to have
//! done the same.

#[allow(dead_code)]
#[path = "../tests/all/database.rs"]
mod database;

use database::{Database, TableSchema, by_pipelines, by_short_program};
use firn_base::{Result, Value};
use firn_query::Prepared;
use firn_txn::Transaction;
use std::time::Instant;

const TABLES: [TableSchema; 9] = [
    TableSchema {
        name: "warehouse",
        columns: "w_id i, w_name v10, w_street_1 v20, w_street_2 v20, w_city v20, w_state c2, w_zip c9, w_tax n4.4, w_ytd n15.2",
        indexes: &["w_id"],
        checks: &[],
    },
    TableSchema {
        name: "district",
        columns: "d_w_id i, d_id i, d_name v10, d_street_1 v20, d_street_2 v20, d_city v20, d_state c2, d_zip c9, d_tax n4.4, d_ytd n15.2, d_next_o_id i",
        indexes: &["d_w_id d_id"],
        checks: &[],
    },
    TableSchema {
        name: "customer",
        columns: "c_w_id i, c_d_id i, c_id i, c_first v16, c_middle c2, c_last v16, c_street_1 v20, c_street_2 v20, c_city v20, c_state c2, c_zip c9, c_phone c16, c_since t, c_credit c2, c_credit_lim n12.2, c_discount n4.4, c_balance n12.2, c_ytd_payment n12.2, c_payment_cnt i, c_delivery_cnt i, c_data v500",
        indexes: &["c_w_id c_d_id c_id", "c_w_id c_d_id c_last c_first"],
        checks: &[],
    },
    TableSchema {
        name: "history",
        columns: "h_c_id i, h_c_d_id i, h_c_w_id i, h_d_id i, h_w_id i, h_date t, h_amount n6.2, h_data v24",
        indexes: &[],
        checks: &[],
    },
    TableSchema {
        name: "new_order",
        columns: "no_w_id i, no_d_id i, no_o_id i",
        indexes: &["no_w_id no_d_id no_o_id"],
        checks: &[],
    },
    TableSchema {
        name: "orders",
        columns: "o_w_id i, o_d_id i, o_id i, o_c_id i, o_entry_d t, o_carrier_id i?, o_ol_cnt i, o_all_local i",
        indexes: &["o_w_id o_d_id o_id", "o_w_id o_d_id o_c_id -o_id"],
        checks: &[],
    },
    TableSchema {
        name: "order_line",
        columns: "ol_w_id i, ol_d_id i, ol_o_id i, ol_number i, ol_i_id i, ol_supply_w_id i, ol_delivery_d t?, ol_quantity i, ol_amount n6.2, ol_dist_info c24",
        indexes: &["ol_w_id ol_d_id ol_o_id ol_number"],
        checks: &[],
    },
    TableSchema {
        name: "item",
        columns: "i_id i, i_im_id i, i_name v24, i_price n5.2, i_data v50",
        indexes: &["i_id"],
        checks: &[],
    },
    TableSchema {
        name: "stock",
        columns: "s_w_id i, s_i_id i, s_quantity i, s_dist_01 c24, s_ytd i, s_order_cnt i, s_remote_cnt i, s_data v50",
        indexes: &["s_w_id s_i_id"],
        checks: &[],
    },
];

const DISTRICTS: i32 = 10;
const CUSTOMERS: i32 = 300;
const ITEMS: i32 = 10_000;
const LINES: i32 = 10;
/// Orders with smaller numbers have been delivered.
const DELIVERED: i32 = 200;

/// Fills the tables by statements.
fn load(database: &Database) -> Result<()> {
    let integer = Value::Integer;
    let insert = |text: &str, rows: &mut dyn Iterator<Item = Vec<Value>>| -> Result<()> {
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let mut transaction = database.engine.begin();
            let prepared = database.prepare(text, &transaction)?;
            for row in rows.by_ref().take(1000) {
                run(database, &prepared, &mut transaction, &row, &mut Vec::new())?;
            }
            let _ = transaction.commit()?;
        }
        Ok(())
    };
    insert(
        "INSERT INTO warehouse VALUES ($1, 'warehouse', 'street 1', 'street 2', 'city', 'ST', '123456789', 0.1, 300000.00)",
        &mut (1..=1).map(|w| vec![integer(w)]),
    )?;
    insert(
        "INSERT INTO district VALUES (1, $1, 'district', 'street 1', 'street 2', 'city', 'ST', '123456789', 0.1, 30000.00, 301)",
        &mut (1..=DISTRICTS).map(|d| vec![integer(d)]),
    )?;
    let customers = (1..=DISTRICTS).flat_map(|d| (1..=CUSTOMERS).map(move |c| (d, c)));
    insert(
        "INSERT INTO customer VALUES (1, $1, $2, $3, 'OE', $4, 'street number 1', 'street number 2', 'the city', 'ST', '123456789', '0123456789012345', '2024-01-01', 'GC', 50000.00, 0.1, -10.00, 10.00, 1, 0, repeat('d', 400))",
        &mut customers.clone().map(|(d, c)| {
            let text = |text: String| Value::Text(text);
            vec![integer(d), integer(c), text(format!("FIRST{c:04}")), text(format!("LAST{:03}", c % 100))]
        }),
    )?;
    insert(
        "INSERT INTO orders VALUES (1, $1, $2, $2, '2024-01-01', $3, 10, 1)",
        &mut customers.clone().map(|(d, o)| {
            let carrier = if o < DELIVERED { integer(1) } else { Value::Null };
            vec![integer(d), integer(o), carrier]
        }),
    )?;
    insert(
        "INSERT INTO new_order VALUES (1, $1, $2)",
        &mut customers.clone().filter(|(_, o)| *o >= DELIVERED).map(|(d, o)| vec![integer(d), integer(o)]),
    )?;
    let lines = customers.flat_map(|(d, o)| (1..=LINES).map(move |line| (d, o, line)));
    insert(
        "INSERT INTO order_line VALUES (1, $1, $2, $3, $4, 1, NULL, 5, 12.34, 'the information of it 24')",
        &mut lines.map(|(d, o, line)| {
            vec![integer(d), integer(o), integer(line), integer((o * 37 + line * 101) % ITEMS + 1)]
        }),
    )?;
    insert(
        "INSERT INTO item VALUES ($1, $1, 'the name of an item', 12.34, 'the data of an item and more')",
        &mut (1..=ITEMS).map(|item| vec![integer(item)]),
    )?;
    insert(
        "INSERT INTO stock VALUES (1, $1, 50, 'the information of it 24', 0, 0, 0, 'the data of what is in stock')",
        &mut (1..=ITEMS).map(|item| vec![integer(item)]),
    )
}

/// Runs a statement as a session does. How many rows it has changed or returned.
fn run(
    database: &Database,
    prepared: &Prepared,
    transaction: &mut Transaction,
    parameters: &[Value],
    values: &mut Vec<Value>,
) -> Result<usize> {
    let done = match by_short_program(database, prepared, transaction, parameters, values)? {
        Some(done) => done,
        None => by_pipelines(database, prepared, transaction, parameters, values)?,
    };
    Ok(done.rows + done.count.unwrap_or(0) as usize)
}

/// What the parameters of an execution are.
type Parameters = fn(i32) -> Vec<Value>;

fn integers<const N: usize>(values: [i32; N]) -> Vec<Value> {
    values.map(Value::Integer).to_vec()
}

fn money(cents: i128) -> Value {
    Value::Numeric { unscaled: cents, scale: 2 }
}

fn district(n: i32) -> i32 {
    n % DISTRICTS + 1
}

fn customer(n: i32) -> i32 {
    n * 7 % CUSTOMERS + 1
}

fn item(n: i32) -> i32 {
    (n.wrapping_mul(7919) & 0x7fff_ffff) % ITEMS + 1
}

/// Numbers of new orders, beyond all that there are.
fn order(n: i32) -> i32 {
    1000 + n
}

const STATEMENTS: [(&str, &str, Parameters); 26] = [
    ("warehouse_tax", "SELECT w_tax FROM warehouse WHERE w_id = $1", |_| integers([1])),
    (
        "customer_discount",
        "SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
        |n| integers([1, district(n), customer(n)]),
    ),
    (
        "take_order_number",
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2 RETURNING d_next_o_id, d_tax",
        |n| integers([1, district(n)]),
    ),
    (
        "insert_order",
        "INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        |n| {
            let [w, d, o, c, count, local] =
                [1, district(n), order(n), customer(n), 10, 1].map(Value::Integer);
            vec![w, d, o, c, Value::Timestamp(0), count, local]
        },
    ),
    ("insert_new_order", "INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES ($1, $2, $3)", |n| {
        integers([1, district(n), order(n)])
    }),
    ("item", "SELECT i_price, i_name, i_data FROM item WHERE i_id = $1", |n| integers([item(n)])),
    ("stock", "SELECT s_quantity, s_dist_01, s_data FROM stock WHERE s_w_id = $1 AND s_i_id = $2", |n| {
        integers([1, item(n)])
    }),
    (
        "update_stock",
        "UPDATE stock SET s_quantity = $3, s_ytd = s_ytd + $4, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + $5 WHERE s_w_id = $1 AND s_i_id = $2",
        |n| integers([1, item(n), 20, 5, 0]),
    ),
    (
        "insert_line",
        "INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        |n| {
            let (o, line) = (order(n / LINES), n % LINES + 1);
            let mut values = integers([1, district(o), o, line, item(n), 1, 5]);
            values.extend([money(1234), Value::Text("the information of it 24".to_owned())]);
            values
        },
    ),
    (
        "pay_warehouse",
        "UPDATE warehouse SET w_ytd = w_ytd + $2 WHERE w_id = $1 RETURNING w_name, w_street_1, w_street_2, w_city, w_state, w_zip",
        |_| vec![Value::Integer(1), money(1234)],
    ),
    (
        "pay_district",
        "UPDATE district SET d_ytd = d_ytd + $3 WHERE d_w_id = $1 AND d_id = $2 RETURNING d_name, d_street_1, d_street_2, d_city, d_state, d_zip",
        |n| vec![Value::Integer(1), Value::Integer(district(n)), money(1234)],
    ),
    (
        "customers_by_name",
        "SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first",
        |n| vec![Value::Integer(1), Value::Integer(district(n)), Value::Text(format!("LAST{:03}", n % 100))],
    ),
    (
        "customer",
        "SELECT c_credit, c_balance, c_discount, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_since FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
        |n| integers([1, district(n), customer(n)]),
    ),
    (
        "pay_customer",
        "UPDATE customer SET c_balance = c_balance - $4, c_ytd_payment = c_ytd_payment + $4, c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
        |n| {
            let mut values = integers([1, district(n), customer(n)]);
            values.push(money(1));
            values
        },
    ),
    (
        "insert_history",
        "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        |n| {
            let mut values = integers([customer(n), district(n), 1, district(n), 1]);
            values.extend([
                Value::Timestamp(0),
                money(1234),
                Value::Text("warehouse    district".to_owned()),
            ]);
            values
        },
    ),
    (
        "last_order",
        "SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1",
        |n| integers([1, district(n), customer(n)]),
    ),
    (
        "order_lines",
        "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
        |n| integers([1, district(n), customer(n)]),
    ),
    (
        "oldest_new_order",
        "SELECT no_o_id FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 ORDER BY no_o_id LIMIT 1",
        |n| integers([1, district(n)]),
    ),
    ("delete_new_order", "DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3", |n| {
        integers([1, district(n), order(n)])
    }),
    (
        "deliver_order",
        "UPDATE orders SET o_carrier_id = $4 WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3 RETURNING o_c_id",
        |n| integers([1, district(n), customer(n), n % 10]),
    ),
    (
        "deliver_lines",
        "UPDATE order_line SET ol_delivery_d = $4 WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
        |n| {
            let mut values = integers([1, district(n), customer(n)]);
            values.push(Value::Timestamp(i64::from(n)));
            values
        },
    ),
    (
        "order_amount",
        "SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
        |n| integers([1, district(n), customer(n)]),
    ),
    ("next_order_number", "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2", |n| {
        integers([1, district(n)])
    }),
    (
        "low_stock",
        "SELECT count(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3 AND ol_o_id < $4 AND s_w_id = $1 AND s_i_id = ol_i_id AND s_quantity < $5",
        |n| {
            let from = n % (CUSTOMERS - 20);
            integers([1, district(n), from, from + 20, 15])
        },
    ),
    (
        "customer_and_orders",
        "SELECT c_last, o_id FROM customer JOIN orders ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
        |n| integers([1, district(n), customer(n)]),
    ),
    ("lock_district", "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2 FOR UPDATE", |n| {
        integers([1, district(n)])
    }),
];

/// A number that depends on values.
fn checksum(values: &[Value]) -> u64 {
    let number = |value: &Value| match value {
        Value::Integer(value) => *value as u64,
        Value::BigInt(value) => *value as u64,
        Value::Numeric { unscaled, .. } => *unscaled as u64,
        Value::Number(number) => number.to_parts().0 as u64,
        Value::Text(text) => text.len() as u64,
        Value::Timestamp(value) => *value as u64,
        _ => 1,
    };
    values.iter().map(number).fold(0, u64::wrapping_add)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let repetitions: i32 = arguments.next().map_or(100_000, |text| text.parse().expect("a number"));
    let wanted = arguments.next().unwrap_or_default();
    let database = Database::new(&TABLES);
    load(&database)?;
    println!(
        "{:<20} {:>7} {:>7} {:>9} {:>9} {:>10}  checksum",
        "statement", "parse", "plan", "pipelines", "short", "rows"
    );
    for (name, text, parameters) in STATEMENTS.iter().filter(|(name, ..)| name.contains(&wanted)) {
        let transaction = database.engine.begin();
        let options = firn_syntax::Options::default();
        let parse = time(repetitions / 20, || firn_syntax::parse(text, options).map(drop))?;
        let mut parsed = firn_syntax::parse(text, options)?;
        let statement = parsed.pop().expect("it is one").statement;
        let preparing = database.preparing(&transaction);
        let plan = time(repetitions / 20, || Prepared::new(text, &statement, &[], preparing).map(drop))?;
        let prepared = Prepared::new(text, &statement, &[], preparing)?;
        if std::env::var_os("FIRN_PRINT").is_some() {
            println!("{}", prepared.explain());
        }
        transaction.rollback();
        let mut columns = Vec::new();
        for (is_short, from) in [(false, 0), (true, repetitions)] {
            let (mut values, mut rows, mut sum) = (Vec::new(), 0, 0u64);
            let begin = Instant::now();
            for first in (from..from + repetitions).step_by(20) {
                let mut transaction = database.engine.begin();
                for n in first..(first + 20).min(from + repetitions) {
                    values.clear();
                    let (transaction, parameters) = (&mut transaction, parameters(n));
                    rows += match is_short {
                        true => run(&database, &prepared, transaction, &parameters, &mut values)?,
                        false => {
                            let done =
                                by_pipelines(&database, &prepared, transaction, &parameters, &mut values)?;
                            done.rows + done.count.unwrap_or(0) as usize
                        }
                    };
                    sum = sum.wrapping_add(checksum(&values));
                }
                let _ = transaction.commit()?;
            }
            columns.push((begin.elapsed().as_secs_f64() * 1e6 / f64::from(repetitions), rows, sum));
        }
        let [(pipelines, rows, sum), (short, ..)] = columns[..] else { unreachable!("there are two") };
        let short = if prepared.is_short() { format!("{short:.2}") } else { "-".to_owned() };
        println!("{name:<20} {parse:>7.2} {plan:>7.2} {pipelines:>9.2} {short:>9} {rows:>10}  {sum}");
    }
    if wanted.is_empty() {
        transactions(&database, repetitions / 10)?;
    }
    Ok(())
}

/// Microseconds of one call.
fn time(repetitions: i32, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let repetitions = repetitions.max(1);
    let begin = Instant::now();
    for _ in 0..repetitions {
        call()?;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / f64::from(repetitions))
}

/// Whole transactions: the statements of TPC-C's new order, with ten lines, and of its payment.
fn transactions(database: &Database, repetitions: i32) -> Result<()> {
    let preparing = database.engine.begin();
    let prepared = |name: &str| {
        let (_, text, parameters) =
            STATEMENTS.iter().find(|(known, ..)| *known == name).expect("it is one of the statements");
        Ok((database.prepare(text, &preparing)?, *parameters))
    };
    let head =
        ["warehouse_tax", "customer_discount", "take_order_number", "insert_order", "insert_new_order"];
    let head = head.into_iter().map(prepared).collect::<Result<Vec<_>>>()?;
    let line = ["item", "stock", "update_stock", "insert_line"];
    let line = line.into_iter().map(prepared).collect::<Result<Vec<_>>>()?;
    let payment =
        ["pay_warehouse", "pay_district", "customers_by_name", "customer", "pay_customer", "insert_history"];
    let payment = payment.into_iter().map(prepared).collect::<Result<Vec<_>>>()?;
    preparing.rollback();
    let mut values = Vec::new();
    // Beyond the keys that single statements have inserted.
    let first = 10_000_000;
    let new_order = time(repetitions, {
        let mut n = first;
        move || {
            n += 1;
            let mut transaction = database.engine.begin();
            for (prepared, parameters) in &head {
                run(database, prepared, &mut transaction, &parameters(n), &mut values)?;
            }
            for number in 0..LINES {
                for (prepared, parameters) in &line {
                    run(database, prepared, &mut transaction, &parameters(n * LINES + number), &mut values)?;
                }
            }
            values.clear();
            transaction.commit().map(drop)
        }
    })?;
    println!("new order: {new_order:.1} µs, {:.0} a second", 1e6 / new_order);
    let mut values = Vec::new();
    let mut n = 0;
    let payment = time(repetitions, || {
        n += 1;
        let mut transaction = database.engine.begin();
        for (prepared, parameters) in &payment {
            run(database, prepared, &mut transaction, &parameters(n), &mut values)?;
        }
        values.clear();
        transaction.commit().map(drop)
    })?;
    println!("payment: {payment:.1} µs, {:.0} a second", 1e6 / payment);
    Ok(())
}
