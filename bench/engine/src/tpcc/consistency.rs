//! The twelve consistency conditions of TPC-C (clause 3.3.2), checked against one snapshot by
//! scanning every table once and adding up in memory.
//!
//! Condition 11 holds as written only before the first delivery. Its extension
//! to any later time is checked: an order is undelivered, or was at the start, or its customer's delivery
//! count includes it.

use super::schema::{customer, district, history, new_order, order_line, orders, warehouse};
use super::{DISTRICTS, Scale};
use crate::schema::TableSchema;
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int32Type};
use arrow_array::{Array, ArrayRef};
use firn_base::sync::Arc;
use firn_base::{ColumnId, Result};
use firn_txn::{Engine, Transaction};

/// The most violations of each condition that are reported.
const TOLD: usize = 3;

#[derive(Clone, Default, PartialEq)]
struct WarehouseSums {
    ytd: i128,
    district_ytd: i128,
    payments: i128,
}

#[derive(Clone, Default, PartialEq)]
struct DistrictSums {
    ytd: i128,
    next_order: i32,
    payments: i128,
    orders: Vec<Order>,
    order_count: i64,
    delivered_count: i64,
    line_count_sum: i64,
    lines: i64,
    new_orders: i64,
    first_new_order: i32,
    last_new_order: i32,
    last_order: i32,
    deliveries: i64,
}

#[derive(Clone, Default, PartialEq)]
struct Order {
    customer: i32,
    line_count: i32,
    lines: i32,
    delivered_lines: i32,
    delivered: bool,
    new: bool,
}

#[derive(Clone, Default, PartialEq)]
struct CustomerSums {
    balance: i128,
    ytd_payment: i128,
    payments: i128,
    delivered_amount: i128,
}

/// The condition that an observation violates.
struct Violations {
    messages: Vec<String>,
    of_condition: [usize; 13],
}

impl Violations {
    fn expect(&mut self, condition: usize, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.of_condition[condition] += 1;
            if self.of_condition[condition] <= TOLD {
                self.messages.push(format!("consistency condition {condition}: {}", what()));
            }
        }
    }
}

/// All violations in the database, one line each; empty if all twelve conditions hold.
pub fn violations(engine: &Arc<Engine>, scale: Scale) -> Result<Vec<String>> {
    let transaction = engine.begin_read_only();
    let database = Sums::read(engine, &transaction, scale)?;
    transaction.rollback();
    Ok(database.check(scale))
}

/// A snapshot that is held while others continue, and its content at the beginning.
pub struct HeldSnapshot {
    transaction: Transaction,
    sums: Sums,
    scale: Scale,
}

impl HeldSnapshot {
    /// Takes one and reads all of it.
    pub fn take(engine: &Arc<Engine>, scale: Scale) -> Result<HeldSnapshot> {
        let transaction = engine.begin_read_only();
        let sums = Sums::read(engine, &transaction, scale)?;
        Ok(HeldSnapshot { transaction, sums, scale })
    }

    /// Reads it again and releases it. Returns its violations, as [`violations`]; or that it has
    /// changed.
    pub fn violations(self, engine: &Arc<Engine>) -> Result<Vec<String>> {
        let now = Sums::read(engine, &self.transaction, self.scale)?;
        self.transaction.rollback();
        let has_changed = now != self.sums;
        let mut messages = now.check(self.scale);
        messages.extend(has_changed.then(|| "the snapshot that was held has changed".to_owned()));
        Ok(messages)
    }
}

/// All that the conditions use.
#[derive(PartialEq)]
struct Sums {
    warehouses: Vec<WarehouseSums>,
    districts: Vec<DistrictSums>,
    customers: Vec<CustomerSums>,
    /// Rows whose references have no target.
    strays: Vec<String>,
}

impl Sums {
    fn read(engine: &Arc<Engine>, transaction: &Transaction, scale: Scale) -> Result<Sums> {
        let warehouses = scale.warehouses as usize;
        let districts = warehouses * DISTRICTS as usize;
        let mut sums = Sums {
            warehouses: vec![WarehouseSums::default(); warehouses],
            districts: vec![DistrictSums::default(); districts],
            customers: vec![CustomerSums::default(); districts * scale.customers as usize],
            strays: Vec::new(),
        };
        let Sums { warehouses, districts, customers, strays } = &mut sums;
        let district = |w: i32, d: i32| ((w - 1) * DISTRICTS + d - 1) as usize;
        let customer = |w: i32, d: i32, c: i32| district(w, d) * scale.customers as usize + (c - 1) as usize;
        let scan = Scan { engine, transaction };

        scan.rows(&warehouse::SCHEMA, &[warehouse::w_id, warehouse::w_ytd], |columns, row| {
            warehouses[columns.integer(0, row) as usize - 1].ytd = columns.decimal(1, row);
        })?;
        scan.rows(
            &district::SCHEMA,
            &[district::d_w_id, district::d_id, district::d_ytd, district::d_next_o_id],
            |columns, row| {
                let (w, d) = (columns.integer(0, row), columns.integer(1, row));
                let ytd = columns.decimal(2, row);
                warehouses[w as usize - 1].district_ytd += ytd;
                let sums = &mut districts[district(w, d)];
                sums.ytd = ytd;
                sums.next_order = columns.integer(3, row);
                sums.orders = vec![Order::default(); sums.next_order as usize];
            },
        )?;
        scan.rows(
            &customer::SCHEMA,
            &[
                customer::c_w_id,
                customer::c_d_id,
                customer::c_id,
                customer::c_balance,
                customer::c_ytd_payment,
                customer::c_delivery_cnt,
            ],
            |columns, row| {
                let (w, d) = (columns.integer(0, row), columns.integer(1, row));
                let sums = &mut customers[customer(w, d, columns.integer(2, row))];
                sums.balance = columns.decimal(3, row);
                sums.ytd_payment = columns.decimal(4, row);
                districts[district(w, d)].deliveries += i64::from(columns.integer(5, row));
            },
        )?;
        scan.rows(
            &history::SCHEMA,
            &[
                history::h_w_id,
                history::h_d_id,
                history::h_c_w_id,
                history::h_c_d_id,
                history::h_c_id,
                history::h_amount,
            ],
            |columns, row| {
                let [w, d, c_w, c_d, c] = std::array::from_fn(|column| columns.integer(column, row));
                let amount = columns.decimal(5, row);
                warehouses[w as usize - 1].payments += amount;
                districts[district(w, d)].payments += amount;
                customers[customer(c_w, c_d, c)].payments += amount;
            },
        )?;
        scan.rows(
            &orders::SCHEMA,
            &[
                orders::o_w_id,
                orders::o_d_id,
                orders::o_id,
                orders::o_c_id,
                orders::o_carrier_id,
                orders::o_ol_cnt,
            ],
            |columns, row| {
                let (w, d, o) = (columns.integer(0, row), columns.integer(1, row), columns.integer(2, row));
                let sums = &mut districts[district(w, d)];
                sums.order_count += 1;
                sums.last_order = sums.last_order.max(o);
                let line_count = columns.integer(5, row);
                sums.line_count_sum += i64::from(line_count);
                let delivered = !columns.null(4, row);
                sums.delivered_count += i64::from(delivered);
                match sums.orders.get_mut(o as usize) {
                    Some(order) if order.customer == 0 => {
                        *order = Order {
                            customer: columns.integer(3, row),
                            line_count,
                            delivered,
                            ..Order::default()
                        };
                    }
                    Some(_) => strays.push(format!("order ({w}, {d}, {o}) is there twice")),
                    None => strays.push(format!("order ({w}, {d}, {o}) is beyond its district's counter")),
                }
            },
        )?;
        scan.rows(
            &new_order::SCHEMA,
            &[new_order::no_w_id, new_order::no_d_id, new_order::no_o_id],
            |columns, row| {
                let (w, d, o) = (columns.integer(0, row), columns.integer(1, row), columns.integer(2, row));
                let sums = &mut districts[district(w, d)];
                sums.first_new_order = if sums.new_orders == 0 { o } else { sums.first_new_order.min(o) };
                sums.last_new_order = sums.last_new_order.max(o);
                sums.new_orders += 1;
                match sums.orders.get_mut(o as usize) {
                    Some(order) if order.customer != 0 && !order.new => order.new = true,
                    _ => strays.push(format!("new order ({w}, {d}, {o}) is there twice or has no order")),
                }
            },
        )?;
        scan.rows(
            &order_line::SCHEMA,
            &[
                order_line::ol_w_id,
                order_line::ol_d_id,
                order_line::ol_o_id,
                order_line::ol_delivery_d,
                order_line::ol_amount,
            ],
            |columns, row| {
                let (w, d, o) = (columns.integer(0, row), columns.integer(1, row), columns.integer(2, row));
                let sums = &mut districts[district(w, d)];
                sums.lines += 1;
                match sums.orders.get_mut(o as usize) {
                    Some(order) if order.customer != 0 => {
                        order.lines += 1;
                        if !columns.null(3, row) {
                            order.delivered_lines += 1;
                            customers[customer(w, d, order.customer)].delivered_amount +=
                                columns.decimal(4, row);
                        }
                    }
                    _ => strays.push(format!("a line of order ({w}, {d}, {o}) has no order")),
                }
            },
        )?;
        Ok(sums)
    }

    fn check(self, scale: Scale) -> Vec<String> {
        let mut found = Violations { messages: Vec::new(), of_condition: [0; 13] };
        for stray in &self.strays {
            found.expect(0, false, || stray.clone());
        }
        for (number, warehouse) in (1..).zip(&self.warehouses) {
            let WarehouseSums { ytd, district_ytd, payments } = *warehouse;
            found.expect(1, ytd == district_ytd, || {
                format!("w_ytd {ytd} of warehouse {number} is not the sum of its districts' {district_ytd}")
            });
            found.expect(8, ytd == payments, || {
                format!("w_ytd {ytd} of warehouse {number} is not the sum of its payments {payments}")
            });
        }
        for (position, district) in self.districts.iter().enumerate() {
            let (w, d) = (position as i32 / DISTRICTS + 1, position as i32 % DISTRICTS + 1);
            let name = format!("district ({w}, {d})");
            let last = district.next_order - 1;
            found.expect(2, last == district.last_order, || {
                format!("the last order of {name} is {}, its counter is {last}", district.last_order)
            });
            let some_new = district.new_orders > 0;
            found.expect(2, !some_new || last == district.last_new_order, || {
                format!("the last new order of {name} is {}, its counter is {last}", district.last_new_order)
            });
            let span = i64::from(district.last_new_order - district.first_new_order) + 1;
            found.expect(3, !some_new || span == district.new_orders, || {
                format!("the new orders of {name} span {span} numbers but are {}", district.new_orders)
            });
            found.expect(4, district.line_count_sum == district.lines, || {
                format!("orders of {name} claim {} lines of {}", district.line_count_sum, district.lines)
            });
            for (number, order) in district.orders.iter().enumerate().skip(1) {
                let order_name = || format!("order ({w}, {d}, {number})");
                found.expect(2, order.customer != 0, || format!("{} is missing", order_name()));
                found.expect(5, order.delivered != order.new, || {
                    format!("{} is both new and delivered, or neither", order_name())
                });
                found.expect(6, order.line_count == order.lines, || {
                    format!("{} claims {} lines of {}", order_name(), order.line_count, order.lines)
                });
                let expected = if order.delivered { order.lines } else { 0 };
                found.expect(7, order.delivered_lines == expected, || {
                    format!(
                        "{} lines of {} are delivered, not {expected}",
                        order.delivered_lines,
                        order_name()
                    )
                });
            }
            found.expect(9, district.ytd == district.payments, || {
                format!(
                    "d_ytd {} of {name} is not the sum of its payments {}",
                    district.ytd, district.payments
                )
            });
            let delivered_since = district.delivered_count - i64::from(scale.delivered_orders());
            found.expect(11, district.order_count - district.new_orders == district.delivered_count, || {
                format!("{} orders of {name}, {} of them new", district.order_count, district.new_orders)
            });
            found.expect(11, district.deliveries == delivered_since, || {
                format!("{delivered_since} deliveries in {name}, its customers count {}", district.deliveries)
            });
        }
        for (position, customer) in self.customers.iter().enumerate() {
            let CustomerSums { balance, ytd_payment, payments, delivered_amount } = *customer;
            let name = || {
                let district = position as i32 / scale.customers;
                format!(
                    "customer ({}, {}, {})",
                    district / DISTRICTS + 1,
                    district % DISTRICTS + 1,
                    position as i32 % scale.customers + 1
                )
            };
            found.expect(10, balance == delivered_amount - payments, || {
                format!("{} owes {balance}, ordered {delivered_amount}, paid {payments}", name())
            });
            found.expect(12, balance + ytd_payment == delivered_amount, || {
                format!("{} owes {balance}, ordered {delivered_amount}, paid {ytd_payment}", name())
            });
        }
        found.messages
    }
}

/// Scans whole tables.
struct Scan<'e> {
    engine: &'e Arc<Engine>,
    transaction: &'e Transaction,
}

impl Scan<'_> {
    /// Calls `visit` with every row of a table: the arrays of its batch, and its position in them.
    fn rows(
        &self,
        schema: &TableSchema,
        columns: &[ColumnId],
        mut visit: impl FnMut(&Arrays, usize),
    ) -> Result<()> {
        let (table, _) = schema.open(self.engine)?;
        let scan = table.scan(self.transaction.snapshot(), columns, false);
        // A guard for each batch, so that collecting garbage never waits for a whole scan.
        while let Some(batch) = scan.next_batch(&firn_txn::pin()) {
            let arrays = Arrays(batch.columns);
            for row in 0..batch.rows {
                visit(&arrays, row);
            }
        }
        Ok(())
    }
}

/// The arrays of a batch of rows.
struct Arrays(Vec<ArrayRef>);

impl Arrays {
    fn integer(&self, column: usize, row: usize) -> i32 {
        self.0[column].as_primitive::<Int32Type>().value(row)
    }

    fn decimal(&self, column: usize, row: usize) -> i128 {
        self.0[column].as_primitive::<Decimal128Type>().value(row)
    }

    fn null(&self, column: usize, row: usize) -> bool {
        self.0[column].is_null(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Client;
    use crate::tpcc::input::Terminal;
    use crate::tpcc::load;
    use crate::tpcc::native::{Tpcc, Worker};
    use firn_txn::Config;

    #[test]
    fn a_held_snapshot_does_not_change_and_another_one_is_detected() {
        let engine = Engine::open(Config::default()).unwrap();
        let scale = Scale::small(1);
        load::load(&engine, scale, 1, 1, &load::LoadProgress::default()).unwrap();
        let [held, mut other] = [(); 2].map(|_| HeldSnapshot::take(&engine, scale).unwrap());
        let tpcc = Tpcc::open(&engine).unwrap();
        let mut worker = Worker::new(&tpcc, Terminal::new(scale, 1, 0, 1));
        for _ in 0..100 {
            worker.next_input();
            worker.run().unwrap();
        }
        assert_eq!(held.violations(&engine).unwrap(), Vec::<String>::new());
        other.transaction = engine.begin_read_only();
        let messages = other.violations(&engine).unwrap();
        assert_eq!(messages.last().unwrap(), "the snapshot that was held has changed");
    }
}
