//! TPC-C's five transactions as SQL, statement by statement: as an application runs them, by the
//! embedded API or over a socket.
//!
//! A [`SqlWorker`] also records what the database has acknowledged, so that after a crash all of it can be
//! looked up ([`missing`]).

use super::input::{CustomerChoice, Input, NewOrderInput, PaymentInput, Terminal};
use super::{DISTRICTS, Kind};
use crate::driver::{Client, Done};
use crate::sql_client::SqlClient;
use firn_base::clock::wall_clock_micros;
use firn_base::{Result, Value};

/// The statements, prepared.
struct Statements<S> {
    begin: S,
    commit: S,
    rollback: S,
    warehouse_tax: S,
    customer_discount: S,
    take_order_number: S,
    insert_order: S,
    insert_new_order: S,
    item: S,
    /// One per district: each returns the district's text.
    stock: Vec<S>,
    update_stock: S,
    insert_line: S,
    pay_warehouse: S,
    pay_district: S,
    customers_by_name: S,
    customer: S,
    pay_customer: S,
    customer_data: S,
    set_customer_data: S,
    insert_history: S,
    customer_balance: S,
    last_order: S,
    order_lines: S,
    oldest_new_order: S,
    delete_new_order: S,
    deliver_order: S,
    deliver_lines: S,
    order_amount: S,
    credit_customer: S,
    next_order_number: S,
    low_stock: S,
}

impl<S> Statements<S> {
    fn prepare(client: &mut impl SqlClient<Statement = S>) -> Result<Statements<S>> {
        let mut prepare = |sql: &str| client.prepare(sql);
        Ok(Statements {
            begin: prepare("BEGIN")?,
            commit: prepare("COMMIT")?,
            rollback: prepare("ROLLBACK")?,
            warehouse_tax: prepare("SELECT w_tax FROM warehouse WHERE w_id = $1")?,
            customer_discount: prepare(
                "SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
            )?,
            take_order_number: prepare(
                "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2
                 RETURNING d_next_o_id, d_tax",
            )?,
            insert_order: prepare(
                "INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
                 VALUES ($1, $2, $3, $4, $5, $6, $7)",
            )?,
            insert_new_order: prepare(
                "INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES ($1, $2, $3)",
            )?,
            item: prepare("SELECT i_price, i_name, i_data FROM item WHERE i_id = $1")?,
            stock: (1..=DISTRICTS)
                .map(|d| {
                    prepare(&format!(
                        "SELECT s_quantity, s_dist_{d:02}, s_data FROM stock WHERE s_w_id = $1 AND s_i_id = $2"
                    ))
                })
                .collect::<Result<_>>()?,
            update_stock: prepare(
                "UPDATE stock SET s_quantity = $3, s_ytd = s_ytd + $4, s_order_cnt = s_order_cnt + 1,
                 s_remote_cnt = s_remote_cnt + $5 WHERE s_w_id = $1 AND s_i_id = $2",
            )?,
            insert_line: prepare(
                "INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id,
                 ol_quantity, ol_amount, ol_dist_info) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            )?,
            pay_warehouse: prepare(
                "UPDATE warehouse SET w_ytd = w_ytd + $2 WHERE w_id = $1
                 RETURNING w_name, w_street_1, w_street_2, w_city, w_state, w_zip",
            )?,
            pay_district: prepare(
                "UPDATE district SET d_ytd = d_ytd + $3 WHERE d_w_id = $1 AND d_id = $2
                 RETURNING d_name, d_street_1, d_street_2, d_city, d_state, d_zip",
            )?,
            customers_by_name: prepare(
                "SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first",
            )?,
            customer: prepare(
                "SELECT c_credit, c_balance, c_discount, c_first, c_middle, c_last, c_street_1, c_street_2,
                 c_city, c_state, c_zip, c_phone, c_since
                 FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
            )?,
            pay_customer: prepare(
                "UPDATE customer SET c_balance = c_balance - $4, c_ytd_payment = c_ytd_payment + $4,
                 c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
            )?,
            customer_data: prepare(
                "SELECT c_data FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
            )?,
            set_customer_data: prepare(
                "UPDATE customer SET c_data = $4 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
            )?,
            insert_history: prepare(
                "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            )?,
            customer_balance: prepare(
                "SELECT c_balance, c_first, c_middle, c_last FROM customer
                 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
            )?,
            last_order: prepare(
                "SELECT o_id, o_entry_d, o_carrier_id FROM orders
                 WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1",
            )?,
            order_lines: prepare(
                "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
                 WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
            )?,
            oldest_new_order: prepare(
                "SELECT no_o_id FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 ORDER BY no_o_id LIMIT 1",
            )?,
            delete_new_order: prepare(
                "DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3",
            )?,
            deliver_order: prepare(
                "UPDATE orders SET o_carrier_id = $4 WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3
                 RETURNING o_c_id",
            )?,
            deliver_lines: prepare(
                "UPDATE order_line SET ol_delivery_d = $4 WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
            )?,
            order_amount: prepare(
                "SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
            )?,
            credit_customer: prepare(
                "UPDATE customer SET c_balance = c_balance + $4, c_delivery_cnt = c_delivery_cnt + 1
                 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
            )?,
            next_order_number: prepare("SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2")?,
            low_stock: prepare(
                "SELECT count(DISTINCT s_i_id) FROM order_line, stock
                 WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3 AND ol_o_id < $4
                 AND s_w_id = $1 AND s_i_id = ol_i_id AND s_quantity < $5",
            )?,
        })
    }
}

/// What the database has acknowledged as committed.
#[derive(Clone, Default, Debug)]
pub struct Acknowledged {
    /// New orders: warehouse, district, number.
    pub orders: Vec<(i32, i32, i32)>,
    /// Deliveries: warehouse, district, number of the order.
    pub deliveries: Vec<(i32, i32, i32)>,
    /// Payments.
    pub payments: u64,
}

/// One client: runs transactions one after another.
pub struct SqlWorker<C: SqlClient> {
    client: C,
    statements: Statements<C::Statement>,
    terminal: Terminal,
    input: Input,
    acknowledged: Acknowledged,
}

impl<C: SqlClient> SqlWorker<C> {
    /// A client over this connection whose inputs come from `terminal`.
    pub fn new(mut client: C, mut terminal: Terminal) -> Result<SqlWorker<C>> {
        let statements = Statements::prepare(&mut client)?;
        let input = terminal.next_input();
        Ok(SqlWorker { client, statements, terminal, input, acknowledged: Acknowledged::default() })
    }

    /// What the database has acknowledged as committed, of this client.
    pub fn acknowledged(&self) -> &Acknowledged {
        &self.acknowledged
    }

    fn begin(&mut self) -> Result<()> {
        self.client.run(&self.statements.begin, &[]).map(drop)
    }

    fn commit(&mut self, displayed: i64) -> Result<Done> {
        self.client.run(&self.statements.commit, &[])?;
        Ok(Done { committed: true, lsn: None, displayed })
    }

    /// Clause 2.4.
    fn new_order(&mut self, input: &NewOrderInput) -> Result<Done> {
        self.begin()?;
        let (client, sql) = (&mut self.client, &self.statements);
        let [w, d, c] = [input.warehouse, input.district, input.customer].map(Value::Integer);
        let home = [w.clone(), d.clone()];
        let w_tax = cell(client.run(&sql.warehouse_tax, &home[..1])?, 0);
        let customer_key = [w.clone(), d.clone(), c.clone()];
        let c_discount = cell(client.run(&sql.customer_discount, &customer_key)?, 0);
        let taken = one(client.run(&sql.take_order_number, &home)?);
        let o_id = integer(&taken[0]) - 1;
        let o = Value::Integer(o_id);
        let lines = input.lines();
        let order = [
            w.clone(),
            d.clone(),
            o.clone(),
            c,
            Value::Timestamp(wall_clock_micros()),
            Value::Integer(lines.len() as i32),
            Value::Integer(i32::from(input.all_local())),
        ];
        client.run(&sql.insert_order, &order)?;
        client.run(&sql.insert_new_order, &[w.clone(), d.clone(), o.clone()])?;
        let (mut sum, mut branded) = (0, 0);
        for (number, line) in (1..).zip(lines) {
            let i = Value::Integer(line.item);
            let Some(item) = client.run(&sql.item, std::slice::from_ref(&i))?.pop() else {
                client.run(&sql.rollback, &[])?;
                return Ok(Done { committed: false, lsn: None, displayed: 0 });
            };
            let supply = Value::Integer(line.supply_warehouse);
            let stock = &sql.stock[input.district as usize - 1];
            let stock = one(client.run(stock, &[supply.clone(), i.clone()])?);
            let left = integer(&stock[0]) - line.quantity;
            let stock_change = [
                supply.clone(),
                i.clone(),
                Value::Integer(if left >= 10 { left } else { left + 91 }),
                Value::Integer(line.quantity),
                Value::Integer(i32::from(line.supply_warehouse != input.warehouse)),
            ];
            client.run(&sql.update_stock, &stock_change)?;
            let amount = i64::from(line.quantity) * scaled(&item[0], 2);
            sum += amount;
            let original = text(&item[2]).contains("ORIGINAL") && text(&stock[2]).contains("ORIGINAL");
            branded += i64::from(original);
            let order_line = [
                w.clone(),
                d.clone(),
                o.clone(),
                Value::Integer(number),
                i,
                supply,
                Value::Integer(line.quantity),
                money(amount),
                stock[1].clone(),
            ];
            client.run(&sql.insert_line, &order_line)?;
        }
        let total = sum * (10_000 - scaled(&c_discount, 4)) / 10_000
            * (10_000 + scaled(&w_tax, 4) + scaled(&taken[1], 4))
            / 10_000;
        let done = self.commit(total + branded)?;
        self.acknowledged.orders.push((input.warehouse, input.district, o_id));
        Ok(done)
    }

    /// Clause 2.5.
    fn payment(&mut self, input: &PaymentInput) -> Result<Done> {
        self.begin()?;
        let amount = money(input.amount);
        let [w, d] = [input.warehouse, input.district].map(Value::Integer);
        let warehouse = one(self.client.run(&self.statements.pay_warehouse, &[w.clone(), amount.clone()])?);
        let district = [w.clone(), d.clone(), amount.clone()];
        let district = one(self.client.run(&self.statements.pay_district, &district)?);
        let c = self.choose_customer(input.customer_warehouse, input.customer_district, &input.customer)?;
        let (client, sql) = (&mut self.client, &self.statements);
        let customer_key = [input.customer_warehouse, input.customer_district, c].map(Value::Integer);
        let [c_w, c_d, c_id] = customer_key.clone();
        let customer = one(client.run(&sql.customer, &customer_key)?);
        let payment = [c_w.clone(), c_d.clone(), c_id.clone(), amount.clone()];
        client.run(&sql.pay_customer, &payment)?;
        if text(&customer[0]) == "BC" {
            let old = cell(client.run(&sql.customer_data, &customer_key)?, 0);
            let mut data = format!(
                "{c} {} {} {} {} {} {}",
                input.customer_district,
                input.customer_warehouse,
                input.district,
                input.warehouse,
                input.amount,
                text(&old)
            );
            data.truncate(500);
            let data = [c_w.clone(), c_d.clone(), c_id.clone(), Value::Text(data)];
            client.run(&sql.set_customer_data, &data)?;
        }
        let h_data = format!("{}    {}", text(&warehouse[0]), text(&district[0]));
        let now = Value::Timestamp(wall_clock_micros());
        let history = [c_id, c_d, c_w, d, w, now, amount, Value::Text(h_data)];
        client.run(&sql.insert_history, &history)?;
        let displayed = scaled(&customer[1], 2) - input.amount + scaled(&customer[2], 4);
        let done = self.commit(displayed)?;
        self.acknowledged.payments += 1;
        Ok(done)
    }

    /// Clause 2.6.
    fn order_status(&mut self, w: i32, d: i32, customer: &CustomerChoice) -> Result<Done> {
        self.begin()?;
        let c = self.choose_customer(w, d, customer)?;
        let (client, sql) = (&mut self.client, &self.statements);
        let customer_key = [w, d, c].map(Value::Integer);
        let customer = one(client.run(&sql.customer_balance, &customer_key)?);
        let order = one(client.run(&sql.last_order, &customer_key)?);
        let [w, d, _] = customer_key;
        let lines = client.run(&sql.order_lines, &[w, d, order[0].clone()])?;
        let mut displayed = scaled(&customer[0], 2) + i64::from(integer(&order[0]));
        for line in lines {
            displayed += i64::from(integer(&line[0]) + integer(&line[2])) + scaled(&line[3], 2);
        }
        self.commit(displayed)
    }

    /// Clause 2.7.
    fn delivery(&mut self, warehouse: i32, carrier: i32) -> Result<Done> {
        self.begin()?;
        let (client, sql) = (&mut self.client, &self.statements);
        let w = Value::Integer(warehouse);
        let now = Value::Timestamp(wall_clock_micros());
        let mut delivered = Vec::new();
        for district in 1..=DISTRICTS {
            let d = Value::Integer(district);
            let oldest = client.run(&sql.oldest_new_order, &[w.clone(), d.clone()])?;
            let Some(oldest) = oldest.first() else { continue };
            let order = [w.clone(), d.clone(), oldest[0].clone()];
            let [.., o] = order.clone();
            client.run(&sql.delete_new_order, &order)?;
            let carried = [w.clone(), d.clone(), o.clone(), Value::Integer(carrier)];
            let c = cell(client.run(&sql.deliver_order, &carried)?, 0);
            client.run(&sql.deliver_lines, &[w.clone(), d.clone(), o.clone(), now.clone()])?;
            let amount = cell(client.run(&sql.order_amount, &order)?, 0);
            client.run(&sql.credit_customer, &[w.clone(), d, c, amount])?;
            delivered.push((warehouse, district, integer(&o)));
        }
        let done = self.commit(delivered.iter().map(|order| i64::from(order.2)).sum())?;
        self.acknowledged.deliveries.extend(delivered);
        Ok(done)
    }

    /// Clause 2.8.
    fn stock_level(&mut self, w: i32, d: i32, threshold: i32) -> Result<Done> {
        self.begin()?;
        let (client, sql) = (&mut self.client, &self.statements);
        let next = integer(&cell(client.run(&sql.next_order_number, &[w, d].map(Value::Integer))?, 0));
        let range = [w, d, next - 20, next, threshold].map(Value::Integer);
        let Value::BigInt(low) = cell(client.run(&sql.low_stock, &range)?, 0) else {
            panic!("count(*) is a bigint")
        };
        self.commit(low)
    }

    fn choose_customer(&mut self, w: i32, d: i32, choice: &CustomerChoice) -> Result<i32> {
        match choice {
            CustomerChoice::Id(c) => Ok(*c),
            CustomerChoice::LastName(name) => {
                let customer_key =
                    [Value::Integer(w), Value::Integer(d), Value::Text(name.as_str().to_owned())];
                let found = self.client.run(&self.statements.customers_by_name, &customer_key)?;
                Ok(integer(&found[(found.len() - 1) / 2][0]))
            }
        }
    }
}

impl<C: SqlClient> Client for SqlWorker<C> {
    const KINDS: &'static [&'static str] = &Kind::NAMES;

    fn next_input(&mut self) -> usize {
        self.input = self.terminal.next_input();
        self.input.kind() as usize
    }

    fn run(&mut self) -> Result<Done> {
        let done = match self.input {
            Input::NewOrder(order) => self.new_order(&order),
            Input::Payment(payment) => self.payment(&payment),
            Input::OrderStatus { warehouse, district, customer } => {
                self.order_status(warehouse, district, &customer)
            }
            Input::Delivery { warehouse, carrier } => self.delivery(warehouse, carrier),
            Input::StockLevel { warehouse, district, threshold } => {
                self.stock_level(warehouse, district, threshold)
            }
        };
        if done.is_err() {
            // The block has failed; if the connection is broken, the block has ended.
            let _ = self.client.run(&self.statements.rollback, &[]);
        }
        done
    }
}

/// What was acknowledged but is not in the database, one line each. `payments_at_start` is the number of
/// rows of `history` before the clients ran.
pub fn missing(
    client: &mut impl SqlClient,
    acknowledged: &[Acknowledged],
    payments_at_start: i64,
) -> Result<Vec<String>> {
    let order = client.prepare(
        "SELECT o_ol_cnt, o_carrier_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3",
    )?;
    let mut missing = Vec::new();
    for &(w, d, o) in acknowledged.iter().flat_map(|client| &client.orders) {
        if client.run(&order, &[w, d, o].map(Value::Integer))?.is_empty() {
            missing.push(format!("order ({w}, {d}, {o}) was acknowledged and is gone"));
        }
    }
    for &(w, d, o) in acknowledged.iter().flat_map(|client| &client.deliveries) {
        let found = client.run(&order, &[w, d, o].map(Value::Integer))?;
        if found.first().is_none_or(|row| row[1].is_null()) {
            missing.push(format!("the delivery of order ({w}, {d}, {o}) was acknowledged and is gone"));
        }
    }
    let payments: u64 = acknowledged.iter().map(|client| client.payments).sum();
    let Value::BigInt(found) = cell(client.run_text("SELECT count(*) FROM history")?, 0) else {
        panic!("count(*) is a bigint")
    };
    if found - payments_at_start < payments as i64 {
        missing
            .push(format!("{payments} payments were acknowledged, {} are there", found - payments_at_start));
    }
    Ok(missing)
}

/// The only row of a result.
fn one(mut rows: Vec<Vec<Value>>) -> Vec<Value> {
    assert_eq!(rows.len(), 1, "the statement is by a full key");
    rows.swap_remove(0)
}

/// A cell of the only row of a result.
fn cell(rows: Vec<Vec<Value>>, column: usize) -> Value {
    one(rows).swap_remove(column)
}

fn integer(value: &Value) -> i32 {
    match value {
        Value::Integer(value) => *value,
        other => panic!("{other:?} is no integer"),
    }
}

fn text(value: &Value) -> &str {
    match value {
        Value::Text(value) => value,
        other => panic!("{other:?} is no text"),
    }
}

/// The digits of a numeric with that many after the point.
fn scaled(value: &Value, wanted: u8) -> i64 {
    let (unscaled, scale) = match value {
        Value::Numeric { unscaled, scale } => (*unscaled, u16::from(*scale)),
        Value::Number(number) => number.number().expect("amounts of money are finite"),
        other => panic!("{other:?} is no numeric"),
    };
    let wanted = u16::from(wanted);
    match scale <= wanted {
        true => (unscaled * 10i128.pow(u32::from(wanted - scale))) as i64,
        false => (unscaled / 10i128.pow(u32::from(scale - wanted))) as i64,
    }
}

/// An amount of money from cents.
fn money(cents: i64) -> Value {
    Value::Numeric { unscaled: i128::from(cents), scale: 2 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{self, Live, Options};
    use crate::tpcc::load::{LoadProgress, load};
    use crate::tpcc::{Scale, consistency};
    use firn_base::sync::Mutex;
    use firn_session::{Connection, Database};
    use std::time::Duration;

    /// Passes what was acknowledged to a worker on to the test.
    struct Shared<'a>(SqlWorker<Connection>, &'a Mutex<Vec<Acknowledged>>);

    impl Client for Shared<'_> {
        const KINDS: &'static [&'static str] = &Kind::NAMES;

        fn next_input(&mut self) -> usize {
            self.0.next_input()
        }

        fn run(&mut self) -> Result<Done> {
            self.0.run()
        }
    }

    impl Drop for Shared<'_> {
        fn drop(&mut self) {
            self.1.lock().push(self.0.acknowledged().clone());
        }
    }

    #[test]
    fn clients_in_sql_keep_the_conditions_and_find_all_that_was_acknowledged() {
        let database = Database::memory().unwrap();
        let scale = Scale::small(1);
        load(database.engine(), scale, 1, 1, &LoadProgress::default()).unwrap();
        let acknowledged = Mutex::new(Vec::new());
        let client = |number| {
            let worker = SqlWorker::new(database.connect(), Terminal::new(scale, 1, number, 2))?;
            Ok(Shared(worker, &acknowledged))
        };
        let options = Options { clients: 2, duration: Duration::from_secs(2), core: None, rate: None };
        let report = driver::run(&client, None, options, &Live::default()).unwrap();
        assert!(report.latencies.iter().all(|latencies| latencies.count() > 0));
        assert_eq!(consistency::violations(database.engine(), scale).unwrap(), Vec::<String>::new());

        let mut acknowledged = acknowledged.into_inner();
        let paid_at_start = i64::from(scale.customers * DISTRICTS);
        let mut connection = database.connect();
        assert_eq!(missing(&mut connection, &acknowledged, paid_at_start).unwrap(), Vec::<String>::new());
        // A transaction that was never acknowledged is missing, so the look-up works.
        acknowledged[0].orders.push((1, 1, 1_000_000));
        acknowledged[0].payments += 1;
        assert_eq!(missing(&mut connection, &acknowledged, paid_at_start).unwrap().len(), 2);
    }
}
