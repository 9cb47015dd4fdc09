//! TPC-C's five transactions over the transaction API: what a stored procedure compiled to machine
//! code would do, and the measure of storage and transactions without SQL above them.
//!
//! Tables, indexes and column ids are resolved once ([`Tpcc::open`]). A [`Worker`] owns every buffer
//! it needs, so that a transaction allocates nothing here; it pins memory once and reads cells into
//! arrays on its stack. What the specification has a terminal display is read and folded into a
//! number, so that no read can be left out unnoticed.

use super::input::{CustomerChoice, Input, MAX_LINES, NewOrderInput, PaymentInput, Terminal};
use super::schema::{customer, district, history, item, new_order, order_line, orders, stock, warehouse};
use super::{DISTRICTS, Kind, Scale};
use crate::driver::{Client, Done};
use crate::schema::TableSchema;
use firn_base::clock::wall_clock_micros;
use firn_base::sync::Arc;
use firn_base::{Cell, ColumnId, Result, RowId};
use firn_storage::{Index, KeyBuffer, Table};
use firn_txn::{Engine, Guard, Transaction, pin};
use std::ops::Bound::Included;

/// A table and one of its indexes.
struct Keyed {
    table: Arc<Table>,
    index: Arc<Index>,
}

impl Keyed {
    fn open(engine: &Arc<Engine>, schema: &TableSchema, index: usize) -> Result<Keyed> {
        let (table, indexes) = schema.open(engine)?;
        Ok(Keyed { table, index: indexes[index].clone() })
    }
}

/// The nine tables of an open database.
pub struct Tpcc {
    engine: Arc<Engine>,
    warehouse: Keyed,
    district: Keyed,
    customer: Keyed,
    customer_by_name: Keyed,
    history: Arc<Table>,
    new_order: Keyed,
    orders: Keyed,
    orders_by_customer: Keyed,
    order_line: Keyed,
    item: Keyed,
    stock: Keyed,
}

impl Tpcc {
    /// Finds the tables. 42P01 if they have not been loaded.
    pub fn open(engine: &Arc<Engine>) -> Result<Tpcc> {
        Ok(Tpcc {
            engine: engine.clone(),
            warehouse: Keyed::open(engine, &warehouse::SCHEMA, 0)?,
            district: Keyed::open(engine, &district::SCHEMA, 0)?,
            customer: Keyed::open(engine, &customer::SCHEMA, 0)?,
            customer_by_name: Keyed::open(engine, &customer::SCHEMA, 1)?,
            history: history::SCHEMA.open(engine)?.0,
            new_order: Keyed::open(engine, &new_order::SCHEMA, 0)?,
            orders: Keyed::open(engine, &orders::SCHEMA, 0)?,
            orders_by_customer: Keyed::open(engine, &orders::SCHEMA, 1)?,
            order_line: Keyed::open(engine, &order_line::SCHEMA, 0)?,
            item: Keyed::open(engine, &item::SCHEMA, 0)?,
            stock: Keyed::open(engine, &stock::SCHEMA, 0)?,
        })
    }

    /// The database.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Which scale the loaded tables have.
    pub fn scale(&self) -> Scale {
        let warehouses = self.warehouse.table.approximate_rows() as i32;
        let districts = self.district.table.approximate_rows() as i32;
        Scale {
            warehouses,
            items: self.item.table.approximate_rows() as i32,
            customers: self.customer.table.approximate_rows() as i32 / districts.max(1),
        }
    }
}

/// What a payment needs of a customer to compute.
const PAYING: [ColumnId; 7] = [
    customer::c_id,
    customer::c_credit,
    customer::c_balance,
    customer::c_ytd_payment,
    customer::c_payment_cnt,
    customer::c_discount,
    customer::c_since,
];

/// What a payment only displays of a customer.
const SHOWN: [ColumnId; 9] = [
    customer::c_first,
    customer::c_middle,
    customer::c_last,
    customer::c_street_1,
    customer::c_street_2,
    customer::c_city,
    customer::c_state,
    customer::c_zip,
    customer::c_phone,
];

/// One client: runs transactions one after another.
pub struct Worker<'t> {
    tpcc: &'t Tpcc,
    terminal: Terminal,
    input: Input,
    key: KeyBuffer,
    high_key: KeyBuffer,
    /// Keys that are looked up or inserted soon.
    ahead: [KeyBuffer; 5],
    rows: Vec<RowId>,
    items: Vec<i32>,
    text: Box<[u8; 500]>,
    /// Per district, an order such that all before it are delivered. Deliveries look from here on, as
    /// Silo's do: from the beginning they would pass by every order that an old snapshot still sees.
    undelivered: Box<[[i32; DISTRICTS as usize]]>,
}

impl<'t> Worker<'t> {
    /// A client of these tables whose inputs come from `terminal`.
    pub fn new(tpcc: &'t Tpcc, mut terminal: Terminal) -> Worker<'t> {
        let input = terminal.next_input();
        Worker {
            tpcc,
            terminal,
            input,
            key: KeyBuffer::new(),
            high_key: KeyBuffer::new(),
            ahead: std::array::from_fn(|_| KeyBuffer::new()),
            rows: Vec::with_capacity(64),
            items: Vec::with_capacity(512),
            text: Box::new([0; 500]),
            undelivered: vec![[0; DISTRICTS as usize]; tpcc.scale().warehouses as usize].into(),
        }
    }

    /// Clause 2.4.
    fn new_order(&mut self, input: &NewOrderInput) -> Result<Done> {
        let tables = self.tpcc;
        let key = &mut self.key;
        let guard = &pin();
        let mut tx = tables.engine.begin();
        let (w, d, c) = (Cell::i32(input.warehouse), Cell::i32(input.district), Cell::i32(input.customer));

        let (_, [w_tax]) = fetch(&tx, &tables.warehouse, &[w], [warehouse::w_tax], key, guard);
        let (district_row, [d_tax, d_next_o_id]) =
            fetch(&tx, &tables.district, &[w, d], [district::d_tax, district::d_next_o_id], key, guard);
        let o_id = d_next_o_id.as_i32();
        let o = Cell::i32(o_id);
        let ways: [(&Index, &[Cell<'_>]); 5] = [
            (&tables.customer.index, &[w, d, c]),
            (&tables.orders.index, &[w, d, o]),
            (&tables.orders_by_customer.index, &[w, d, c, o]),
            (&tables.new_order.index, &[w, d, o]),
            (&tables.order_line.index, &[w, d, o]),
        ];
        approach(&ways, &mut self.ahead, guard);
        let (_, [c_discount, _c_last, _c_credit]) = fetch(
            &tx,
            &tables.customer,
            &[w, d, c],
            [customer::c_discount, customer::c_last, customer::c_credit],
            key,
            guard,
        );
        tx.update(
            &tables.district.table,
            district_row,
            &[district::d_next_o_id],
            &[Cell::i32(o_id + 1)],
            guard,
        )?;

        let lines = input.lines();
        let order = [
            w,
            d,
            o,
            c,
            Cell::i64(wall_clock_micros()),
            Cell::Null,
            Cell::i32(lines.len() as i32),
            Cell::i32(i32::from(input.all_local())),
        ];
        tx.insert(&tables.orders.table, &order, guard)?;
        tx.insert(&tables.new_order.table, &[w, d, o], guard)?;

        let mut items = [None; MAX_LINES];
        tx.find_many(
            &tables.item.table,
            &tables.item.index,
            lines.len(),
            &mut |number, key| tables.item.index.encode(&[Cell::i32(lines[number].item)], key),
            &[item::i_price, item::i_name, item::i_data],
            guard,
            &mut |number, found| items[number] = found.map(|(_, cells)| *cells),
        );
        let s_dist = ColumnId(stock::s_dist_01.0 + input.district as u16 - 1);
        let mut stocks = [None; MAX_LINES];
        tx.find_many(
            &tables.stock.table,
            &tables.stock.index,
            lines.len(),
            &mut |number, key| {
                let line = lines[number];
                tables.stock.index.encode(&[Cell::i32(line.supply_warehouse), Cell::i32(line.item)], key);
            },
            &[
                stock::s_quantity,
                s_dist,
                stock::s_ytd,
                stock::s_order_cnt,
                stock::s_remote_cnt,
                stock::s_data,
            ],
            guard,
            &mut |number, found| stocks[number] = found.map(|(row, cells)| (row, *cells)),
        );

        let mut sum = 0;
        let mut branded = 0;
        let mut order_lines = [[Cell::Null; 10]; MAX_LINES];
        for ((number, line), (item, stock)) in (1..).zip(lines).zip(items.into_iter().zip(stocks)) {
            let (i, supply) = (Cell::i32(line.item), Cell::i32(line.supply_warehouse));
            let Some([i_price, _i_name, i_data]) = item else {
                tx.rollback();
                return Ok(Done { committed: false, lsn: None, displayed: 0 });
            };
            let (stock_row, [s_quantity, dist_info, s_ytd, s_order_cnt, s_remote_cnt, s_data]) =
                stock.expect("every item has stock in every warehouse");
            let left = s_quantity.as_i32() - line.quantity;
            let remote = i32::from(line.supply_warehouse != input.warehouse);
            tx.update(
                &tables.stock.table,
                stock_row,
                &[stock::s_quantity, stock::s_ytd, stock::s_order_cnt, stock::s_remote_cnt],
                &[
                    Cell::i32(if left >= 10 { left } else { left + 91 }),
                    Cell::i32(s_ytd.as_i32() + line.quantity),
                    Cell::i32(s_order_cnt.as_i32() + 1),
                    Cell::i32(s_remote_cnt.as_i32() + remote),
                ],
                guard,
            )?;
            let amount = i64::from(line.quantity) * i_price.as_i64();
            sum += amount;
            branded += i64::from(says_original(i_data.bytes()) && says_original(s_data.bytes()));
            order_lines[number as usize - 1] = [
                w,
                d,
                o,
                Cell::i32(number),
                i,
                supply,
                Cell::Null,
                Cell::i32(line.quantity),
                Cell::i64(amount),
                dist_info,
            ];
        }
        tx.insert_rows(&tables.order_line.table, &order_lines[..lines.len()], guard)?;
        // Taxes and the discount are in hundredths of a percent.
        let total = sum * (10_000 - c_discount.as_i64()) / 10_000
            * (10_000 + w_tax.as_i64() + d_tax.as_i64())
            / 10_000;
        committed(tx, total + branded)
    }

    /// Clause 2.5.
    fn payment(&mut self, input: &PaymentInput) -> Result<Done> {
        let tables = self.tpcc;
        let guard = &pin();
        let mut tx = tables.engine.begin();
        let (w, d) = (Cell::i32(input.warehouse), Cell::i32(input.district));
        let amount = input.amount;

        // The customer comes from memory while warehouse and district are at work.
        let (c_w, c_d) = (Cell::i32(input.customer_warehouse), Cell::i32(input.customer_district));
        let customer_row = self.choose_customer(&tx, c_w, c_d, &input.customer, guard);
        for columns in [&PAYING[..], &SHOWN, &[customer::c_data]] {
            tx.prefetch(&tables.customer.table, customer_row, columns);
        }

        let (warehouse_row, [w_name, w_ytd]) =
            fetch(&tx, &tables.warehouse, &[w], [warehouse::w_name, warehouse::w_ytd], &mut self.key, guard);
        let address = read(
            &tx,
            &tables.warehouse.table,
            warehouse_row,
            [
                warehouse::w_street_1,
                warehouse::w_street_2,
                warehouse::w_city,
                warehouse::w_state,
                warehouse::w_zip,
            ],
            guard,
        );
        let mut displayed = characters(&address);
        let w_ytd = Cell::i64(w_ytd.as_i64() + amount);
        tx.update(&tables.warehouse.table, warehouse_row, &[warehouse::w_ytd], &[w_ytd], guard)?;

        let (district_row, [d_name, d_ytd]) =
            fetch(&tx, &tables.district, &[w, d], [district::d_name, district::d_ytd], &mut self.key, guard);
        let address = read(
            &tx,
            &tables.district.table,
            district_row,
            [
                district::d_street_1,
                district::d_street_2,
                district::d_city,
                district::d_state,
                district::d_zip,
            ],
            guard,
        );
        displayed += characters(&address);
        let d_ytd = Cell::i64(d_ytd.as_i64() + amount);
        tx.update(&tables.district.table, district_row, &[district::d_ytd], &[d_ytd], guard)?;

        let [c_id, c_credit, c_balance, c_ytd_payment, c_payment_cnt, c_discount, c_since] =
            read(&tx, &tables.customer.table, customer_row, PAYING, guard);
        let shown = read(&tx, &tables.customer.table, customer_row, SHOWN, guard);
        displayed += characters(&shown) + c_discount.as_i64() + (c_since.as_i64() & 1);
        let c_balance = c_balance.as_i64() - amount;
        displayed += c_balance;
        let columns =
            [customer::c_balance, customer::c_ytd_payment, customer::c_payment_cnt, customer::c_data];
        let cells = [
            Cell::i64(c_balance),
            Cell::i64(c_ytd_payment.as_i64() + amount),
            Cell::i32(c_payment_cnt.as_i32() + 1),
        ];
        if c_credit.bytes() == b"BC" {
            let [c_data] = read(&tx, &tables.customer.table, customer_row, [customer::c_data], guard);
            let numbers = [
                i64::from(c_id.as_i32()),
                i64::from(input.customer_district),
                i64::from(input.customer_warehouse),
                i64::from(input.district),
                i64::from(input.warehouse),
                amount,
            ];
            let length = bad_credit_data(&mut self.text, numbers, c_data.bytes());
            let cells = [cells[0], cells[1], cells[2], Cell::Bytes(&self.text[..length])];
            tx.update(&tables.customer.table, customer_row, &columns, &cells, guard)?;
        } else {
            tx.update(&tables.customer.table, customer_row, &columns[..3], &cells, guard)?;
        }

        let mut h_data = [b' '; 24];
        let (w_name, d_name) = (w_name.bytes(), d_name.bytes());
        h_data[..w_name.len()].copy_from_slice(w_name);
        let end = w_name.len() + 4 + d_name.len();
        h_data[w_name.len() + 4..end].copy_from_slice(d_name);
        let payment = [
            c_id,
            c_d,
            c_w,
            d,
            w,
            Cell::i64(wall_clock_micros()),
            Cell::i64(amount),
            Cell::Bytes(&h_data[..end]),
        ];
        tx.insert(&tables.history, &payment, guard)?;
        committed(tx, displayed)
    }

    /// Clause 2.6.
    fn order_status(&mut self, w: i32, d: i32, customer: &CustomerChoice) -> Result<Done> {
        let tables = self.tpcc;
        let guard = &pin();
        let tx = tables.engine.begin_read_only();
        let (w, d) = (Cell::i32(w), Cell::i32(d));
        let customer_row = self.choose_customer(&tx, w, d, customer, guard);
        let [c_id, c_balance, c_first, c_middle, c_last] = read(
            &tx,
            &tables.customer.table,
            customer_row,
            [customer::c_id, customer::c_balance, customer::c_first, customer::c_middle, customer::c_last],
            guard,
        );
        let mut displayed = c_balance.as_i64() + characters(&[c_first, c_middle, c_last]);

        let mut newest = None;
        let columns = [orders::o_id, orders::o_entry_d, orders::o_carrier_id];
        let orders = &tables.orders_by_customer;
        prefix(&tx, orders, &[w, d, c_id], columns, &mut self.key, guard, &mut |_, order| {
            newest = Some(*order);
            false
        });
        let [o_id, o_entry_d, o_carrier_id] = newest.expect("every customer has ordered once");
        displayed += i64::from(o_id.as_i32()) + (o_entry_d.as_i64() & 1);
        displayed += if o_carrier_id.is_null() { 0 } else { i64::from(o_carrier_id.as_i32()) };

        let columns = [
            order_line::ol_i_id,
            order_line::ol_supply_w_id,
            order_line::ol_quantity,
            order_line::ol_amount,
            order_line::ol_delivery_d,
        ];
        let lines = &tables.order_line;
        prefix(&tx, lines, &[w, d, o_id], columns, &mut self.key, guard, &mut |_, line| {
            let [i_id, supply, quantity, amount, delivered] = line;
            displayed += i64::from(i_id.as_i32() + supply.as_i32() + quantity.as_i32());
            displayed += amount.as_i64() + i64::from(delivered.is_null());
            true
        });
        committed(tx, displayed)
    }

    /// Clause 2.7, all ten districts in one transaction.
    fn delivery(&mut self, warehouse: i32, carrier: i32) -> Result<Done> {
        let tables = self.tpcc;
        let guard = &pin();
        let mut tx = tables.engine.begin();
        let w = Cell::i32(warehouse);
        let delivered_at = Cell::i64(wall_clock_micros());
        let mut displayed = 0;
        let mut queued = [(0, 0); DISTRICTS as usize];
        let mut count = 0;
        for district in 1..=DISTRICTS {
            let d = Cell::i32(district);
            let mut oldest = None;
            let known = &mut self.undelivered[warehouse as usize - 1][district as usize - 1];
            let queue = &tables.new_order;
            self.key.clear();
            queue.index.encode(&[w, d, Cell::i32(*known)], &mut self.key);
            self.high_key.clear();
            queue.index.encode(&[w, d], &mut self.high_key);
            tx.range_read(
                &queue.table,
                &queue.index,
                (Included(&self.key), Included(&self.high_key)),
                false,
                &[new_order::no_o_id],
                guard,
                &mut |row, [o]| {
                    oldest = Some((row, *o));
                    *known = o.as_i32();
                    false
                },
            );
            // The specification skips a district whose orders are all delivered.
            let Some((oldest, o)) = oldest else { continue };
            tx.delete(&tables.new_order.table, oldest, guard)?;
            queued[count] = (district, o.as_i32());
            count += 1;
            displayed += i64::from(o.as_i32());
        }

        let queued = &queued[..count];
        let mut orders = [None; DISTRICTS as usize];
        tx.find_many(
            &tables.orders.table,
            &tables.orders.index,
            queued.len(),
            &mut |number, key| {
                let (district, order) = queued[number];
                tables.orders.index.encode(&[w, Cell::i32(district), Cell::i32(order)], key);
            },
            // The carrier is not read but set below; it comes along.
            &[orders::o_c_id, orders::o_carrier_id],
            guard,
            &mut |number, found| orders[number] = found.map(|(row, [customer, _])| (row, customer.as_i32())),
        );
        let mut amounts = [0; DISTRICTS as usize];
        for (((district, order), row), amount) in queued.iter().zip(orders).zip(&mut amounts) {
            let (order_row, _) = row.expect("a queued order exists");
            let carrier = [Cell::i32(carrier)];
            tx.update(&tables.orders.table, order_row, &[orders::o_carrier_id], &carrier, guard)?;

            let order = [w, Cell::i32(*district), Cell::i32(*order)];
            let columns = [order_line::ol_amount, order_line::ol_delivery_d];
            let (lines, rows, key) = (&tables.order_line, &mut self.rows, &mut self.key);
            rows.clear();
            prefix(&tx, lines, &order, columns, key, guard, &mut |row, [ol_amount, ol_delivery_d]| {
                assert!(ol_delivery_d.is_null(), "an order is delivered once");
                rows.push(row);
                *amount += ol_amount.as_i64();
                true
            });
            for &line in rows.iter() {
                let columns = [order_line::ol_delivery_d];
                tx.update(&lines.table, line, &columns, &[delivered_at], guard)?;
            }
        }

        let mut customers = [None; DISTRICTS as usize];
        tx.find_many(
            &tables.customer.table,
            &tables.customer.index,
            queued.len(),
            &mut |number, key| {
                let ((district, _), (_, customer)) = (queued[number], orders[number].expect("it exists"));
                tables.customer.index.encode(&[w, Cell::i32(district), Cell::i32(customer)], key);
            },
            &[customer::c_balance, customer::c_delivery_cnt],
            guard,
            &mut |number, found| customers[number] = found.map(|(row, cells)| (row, *cells)),
        );
        for (customer, amount) in customers.iter().zip(amounts).take(count) {
            let (row, [c_balance, c_delivery_cnt]) = customer.expect("who ordered exists");
            tx.update(
                &tables.customer.table,
                row,
                &[customer::c_balance, customer::c_delivery_cnt],
                &[Cell::i64(c_balance.as_i64() + amount), Cell::i32(c_delivery_cnt.as_i32() + 1)],
                guard,
            )?;
        }
        committed(tx, displayed)
    }

    /// Clause 2.8.
    fn stock_level(&mut self, warehouse: i32, district: i32, threshold: i32) -> Result<Done> {
        let tables = self.tpcc;
        let guard = &pin();
        let tx = tables.engine.begin_read_only();
        let (w, d) = (Cell::i32(warehouse), Cell::i32(district));
        let (_, [next]) =
            fetch(&tx, &tables.district, &[w, d], [district::d_next_o_id], &mut self.key, guard);
        let next = next.as_i32();

        let lines = &tables.order_line;
        self.key.clear();
        lines.index.encode(&[w, d, Cell::i32(next - 20)], &mut self.key);
        self.high_key.clear();
        lines.index.encode(&[w, d, Cell::i32(next - 1)], &mut self.high_key);
        let items = &mut self.items;
        items.clear();
        tx.range_read(
            &lines.table,
            &lines.index,
            (Included(&self.key), Included(&self.high_key)),
            false,
            &[order_line::ol_i_id],
            guard,
            &mut |_, [i_id]| {
                items.push(i_id.as_i32());
                true
            },
        );
        items.sort_unstable();
        items.dedup();
        let mut low = 0;
        tx.find_many(
            &tables.stock.table,
            &tables.stock.index,
            items.len(),
            &mut |number, key| tables.stock.index.encode(&[w, Cell::i32(items[number])], key),
            &[stock::s_quantity],
            guard,
            &mut |_, found| {
                let (_, [quantity]) = found.expect("every item has stock in every warehouse");
                low += i64::from(quantity.as_i32() < threshold);
            },
        );
        committed(tx, low)
    }

    /// The customer of that number, or the middle one of those of that name.
    fn choose_customer(
        &mut self,
        tx: &Transaction,
        w: Cell<'_>,
        d: Cell<'_>,
        choice: &CustomerChoice,
        guard: &Guard,
    ) -> RowId {
        match choice {
            CustomerChoice::Id(c) => {
                let cells = [w, d, Cell::i32(*c)];
                find(tx, &self.tpcc.customer, &cells, &mut self.key, guard).expect("the customer exists")
            }
            CustomerChoice::LastName(name) => {
                let cells = [w, d, Cell::text(name.as_str())];
                let rows = &mut self.rows;
                rows.clear();
                let customers = &self.tpcc.customer_by_name;
                prefix(tx, customers, &cells, [], &mut self.key, guard, &mut |row, []| {
                    rows.push(row);
                    true
                });
                rows[(rows.len() - 1) / 2]
            }
        }
    }
}

impl Client for Worker<'_> {
    const KINDS: &'static [&'static str] = &Kind::NAMES;

    fn next_input(&mut self) -> usize {
        self.input = self.terminal.next_input();
        self.input.kind() as usize
    }

    fn run(&mut self) -> Result<Done> {
        match self.input {
            Input::NewOrder(order) => self.new_order(&order),
            Input::Payment(payment) => self.payment(&payment),
            Input::OrderStatus { warehouse, district, customer } => {
                self.order_status(warehouse, district, &customer)
            }
            Input::Delivery { warehouse, carrier } => self.delivery(warehouse, carrier),
            Input::StockLevel { warehouse, district, threshold } => {
                self.stock_level(warehouse, district, threshold)
            }
        }
    }
}

/// Commits.
#[inline]
fn committed(tx: Transaction, displayed: i64) -> Result<Done> {
    Ok(Done { committed: true, lsn: tx.commit()?.lsn, displayed })
}

/// Fetches the ways to keys that are looked up or inserted soon.
#[inline]
fn approach<const N: usize>(ways: &[(&Index, &[Cell<'_>]); N], keys: &mut [KeyBuffer; N], guard: &Guard) {
    for ((index, cells), key) in ways.iter().zip(&mut *keys) {
        key.clear();
        index.encode(cells, key);
    }
    Index::approach(&std::array::from_fn::<_, N, _>(|at| (ways[at].0, &keys[at][..])), guard);
}

/// The visible row under a full key.
#[inline]
fn find(
    tx: &Transaction,
    keyed: &Keyed,
    cells: &[Cell<'_>],
    key: &mut KeyBuffer,
    guard: &Guard,
) -> Option<RowId> {
    key.clear();
    keyed.index.encode(cells, key);
    tx.get(&keyed.table, &keyed.index, key, guard)
}

/// Columns of a row that is known to be visible.
#[inline]
fn read<'g, const N: usize>(
    tx: &Transaction,
    table: &'g Table,
    row: RowId,
    columns: [ColumnId; N],
    guard: &'g Guard,
) -> [Cell<'g>; N] {
    let mut cells = [Cell::Null; N];
    let visible = tx.read(table, row, &columns, &mut cells, guard);
    assert!(visible, "a row found through an index is visible");
    cells
}

/// The row under a full key that must be there, and columns of it.
#[inline]
fn fetch<'g, const N: usize>(
    tx: &Transaction,
    keyed: &'g Keyed,
    cells: &[Cell<'_>],
    columns: [ColumnId; N],
    key: &mut KeyBuffer,
    guard: &'g Guard,
) -> (RowId, [Cell<'g>; N]) {
    key.clear();
    keyed.index.encode(cells, key);
    let mut cells = [Cell::Null; N];
    let row = tx.find(&keyed.table, &keyed.index, key, &columns, &mut cells, guard);
    (row.expect("TPC-C deletes nothing that others point to"), cells)
}

/// Visits the visible rows whose keys begin with `cells`, in key order, with columns of them, until
/// `visit` returns false.
#[inline]
fn prefix<'g, const N: usize>(
    tx: &Transaction,
    keyed: &'g Keyed,
    cells: &[Cell<'_>],
    columns: [ColumnId; N],
    key: &mut KeyBuffer,
    guard: &'g Guard,
    visit: &mut dyn FnMut(RowId, &[Cell<'g>; N]) -> bool,
) {
    key.clear();
    keyed.index.encode(cells, key);
    tx.range_read(&keyed.table, &keyed.index, (Included(key), Included(key)), false, &columns, guard, visit);
}

/// How many characters some strings have: stands for displaying them.
#[inline]
fn characters(cells: &[Cell<'_>]) -> i64 {
    cells.iter().map(|cell| cell.bytes().len() as i64).sum()
}

/// Whether the eight letters ORIGINAL stand somewhere in a string.
#[inline]
fn says_original(data: &[u8]) -> bool {
    data.windows(8).any(|window| window == b"ORIGINAL")
}

/// Writes the new `c_data` of a customer with bad credit, the numbers of this payment before what
/// was there, cut off at 500 characters; returns its length.
fn bad_credit_data(text: &mut [u8; 500], numbers: [i64; 6], old: &[u8]) -> usize {
    let mut end = 0;
    for number in numbers {
        let mut digits = [0; 20];
        let mut start = digits.len();
        let mut rest = number as u64;
        loop {
            start -= 1;
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        let digits = &digits[start..];
        text[end..end + digits.len()].copy_from_slice(digits);
        end += digits.len();
        text[end] = b' ';
        end += 1;
    }
    let kept = old.len().min(text.len() - end);
    text[end..end + kept].copy_from_slice(&old[..kept]);
    end + kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{self, Live, Options};
    use crate::tpcc::{consistency, load};
    use firn_txn::Config;
    use std::time::Duration;

    #[test]
    fn bad_credit_data_begins_with_the_payment_and_keeps_to_500_characters() {
        let mut text = [0; 500];
        let length = bad_credit_data(&mut text, [12, 3, 4, 5, 6, 123_456], b"old");
        assert_eq!(&text[..length], b"12 3 4 5 6 123456 old");
        assert_eq!(bad_credit_data(&mut text, [0; 6], &[b'x'; 500]), 500);
        assert!(text.starts_with(b"0 0 0 0 0 0 xxx"));
    }

    #[test]
    fn original_is_found_anywhere() {
        assert!(says_original(b"ORIGINAL") && says_original(b"abORIGINAL") && says_original(b"ORIGINALz"));
        assert!(!says_original(b"ORIGINA") && !says_original(b"oRIGINALx"));
    }

    #[test]
    fn the_consistency_conditions_hold_after_clients_have_run_side_by_side() {
        let engine = Engine::open(Config { block_bytes: 1 << 16, ..Config::default() }).unwrap();
        let scale = Scale::small(2);
        load::load(&engine, scale, 1, 2, &load::LoadProgress::default()).unwrap();
        let tpcc = Tpcc::open(&engine).unwrap();
        assert_eq!(tpcc.scale(), scale);
        assert_eq!(consistency::violations(&engine, scale).unwrap(), Vec::<String>::new());

        // More clients than warehouses, so that they meet.
        let options = Options { clients: 3, duration: Duration::from_millis(500), core: None };
        let client = |number| Ok(Worker::new(&tpcc, Terminal::new(scale, 1, number, 3)));
        let report = driver::run(&client, Some(&engine), options, &Live::default()).unwrap();
        assert!(report.latencies.iter().all(|latencies| latencies.count() > 0));
        assert_eq!(consistency::violations(&engine, scale).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_lost_payment_violates_the_conditions_that_speak_of_it() {
        let engine = Engine::open(Config::default()).unwrap();
        let scale = Scale::small(1);
        load::load(&engine, scale, 1, 1, &load::LoadProgress::default()).unwrap();
        let tpcc = Tpcc::open(&engine).unwrap();
        let guard = &pin();
        let mut tx = engine.begin();
        let mut key = KeyBuffer::new();
        let row = find(&tx, &tpcc.warehouse, &[Cell::i32(1)], &mut key, guard).unwrap();
        tx.update(&tpcc.warehouse.table, row, &[warehouse::w_ytd], &[Cell::i64(5)], guard).unwrap();
        engine.wait(tx.commit().unwrap()).unwrap();
        let violations = consistency::violations(&engine, scale).unwrap();
        assert_eq!(violations.len(), 2, "{violations:?}");
        assert!(violations[0].starts_with("consistency condition 1: "));
        assert!(violations[1].starts_with("consistency condition 8: "));
    }
}
