//! TPC-C's five transactions over the native interface: what a stored procedure compiled to machine
//! code would do, and the measure of storage and transactions without SQL above them.
//!
//! Access paths are prepared once ([`Tpcc::open`]). A [`Worker`] owns every buffer it needs, so a
//! transaction allocates nothing here; it pins memory once. The values that the specification displays on a terminal
//! are read and added to a number, so that no read can be left out unnoticed.

use super::input::{CustomerChoice, Input, MAX_LINES, NewOrderInput, PaymentInput, Terminal};
use super::{DISTRICTS, Kind, Scale};
use crate::driver::{Client, Done};
use firn_base::clock::wall_clock_micros;
use firn_base::sync::Arc;
use firn_base::{Cell, Result, RowId};
use firn_storage::{Index, KeyBuffer};
pub use firn_txn::Isolation;
use firn_txn::{Columns, Engine, Guard, Key, Str, TableAccess, Text, Transaction, pin};
use memchr::memmem::Finder;
use std::collections::VecDeque;
use std::ops::Bound::Included;

type OrdersRow = (i32, i32, i32, i32, i64, Option<i32>, i32, i32);
type OrderLineRow = (i32, i32, i32, i32, i32, i32, Option<i64>, i32, i64, Str);
type StockOfDistrict = (i32, Str, i32, i32, i32, Str);
type HistoryRow = (i32, i32, i32, i32, i32, i64, i64, Str);

/// Warehouses, as far as the transactions read and set them.
struct Warehouse {
    key: Key<(i32,)>,
    tax: Columns<(i64,)>,
    /// Name, year to date, address.
    paid: Columns<(Str, i64, Str, Str, Str, Str, Str)>,
    ytd: Columns<(i64,)>,
}

/// Districts.
struct District {
    key: Key<(i32, i32)>,
    /// Tax, next order.
    ordered: Columns<(i64, i32)>,
    next_order: Columns<(i32,)>,
    /// Name, year to date, address.
    paid: Columns<(Str, i64, Str, Str, Str, Str, Str)>,
    ytd: Columns<(i64,)>,
}

/// Customers.
struct Customer {
    key: Key<(i32, i32, i32)>,
    by_name: Key<(i32, i32, Str)>,
    row: Columns<()>,
    /// Discount, last name, credit.
    ordering: Columns<(i64, Str, Str)>,
    /// What a payment needs to compute: number, credit, balance, payments, their number, discount, since.
    paying: Columns<(i32, Str, i64, i64, i32, i64, i64)>,
    /// What a payment only displays.
    shown: Columns<[Str; 9]>,
    data: Columns<(Str,)>,
    /// Balance, payments, their number.
    payment: Columns<(i64, i64, i32)>,
    /// And the data of those with bad credit.
    bad_credit_payment: Columns<(i64, i64, i32, Str)>,
    /// Number, balance, names.
    status: Columns<(i32, i64, Str, Str, Str)>,
    /// Balance, deliveries.
    delivery: Columns<(i64, i32)>,
}

/// Orders that wait for delivery.
struct NewOrder {
    key: Key<(i32, i32, i32)>,
    row: Columns<(i32, i32, i32)>,
    order: Columns<(i32,)>,
}

/// Orders.
struct Orders {
    key: Key<(i32, i32, i32)>,
    by_customer: Key<(i32, i32, i32)>,
    row: Columns<OrdersRow>,
    /// Number, date, carrier.
    status: Columns<(i32, i64, Option<i32>)>,
    /// Customer; the carrier is not read but set, and read with it.
    delivery: Columns<(i32, Option<i32>)>,
    carrier: Columns<(Option<i32>,)>,
}

/// Lines of orders.
struct OrderLine {
    /// Of an order.
    key: Key<(i32, i32, i32)>,
    row: Columns<OrderLineRow>,
    /// Item, supplier, quantity, amount, delivery.
    status: Columns<(i32, i32, i32, i64, Option<i64>)>,
    /// Amount, delivery.
    delivery: Columns<(i64, Option<i64>)>,
    delivered: Columns<(Option<i64>,)>,
    item: Columns<(i32,)>,
}

/// Items.
struct Item {
    key: Key<(i32,)>,
    /// Price, name, data.
    ordered: Columns<(i64, Str, Str)>,
}

/// What is in stock.
struct Stock {
    key: Key<(i32, i32)>,
    /// Quantity, text of the district, year to date, orders, those from elsewhere, data; for each district.
    ordered: Vec<Columns<StockOfDistrict>>,
    /// Quantity, year to date, orders, those from elsewhere.
    sold: Columns<(i32, i32, i32, i32)>,
    quantity: Columns<(i32,)>,
}

/// The access paths to an open database.
pub struct Tpcc {
    engine: Arc<Engine>,
    warehouse: Warehouse,
    district: District,
    customer: Customer,
    history: Columns<HistoryRow>,
    new_order: NewOrder,
    orders: Orders,
    order_line: OrderLine,
    item: Item,
    stock: Stock,
}

impl Tpcc {
    /// Prepares them. 42P01 if the tables have not been loaded.
    pub fn open(engine: &Arc<Engine>) -> Result<Tpcc> {
        let table = |name: &str| TableAccess::open(engine, name);
        let (warehouse, district, customer) = (table("warehouse")?, table("district")?, table("customer")?);
        let (new_order, orders, order_line) = (table("new_order")?, table("orders")?, table("order_line")?);
        let (item, stock) = (table("item")?, table("stock")?);
        Ok(Tpcc {
            engine: engine.clone(),
            warehouse: Warehouse {
                key: warehouse.key("warehouse_pkey")?,
                tax: warehouse.columns(&["w_tax"])?,
                paid: warehouse.columns(&[
                    "w_name",
                    "w_ytd",
                    "w_street_1",
                    "w_street_2",
                    "w_city",
                    "w_state",
                    "w_zip",
                ])?,
                ytd: warehouse.columns(&["w_ytd"])?,
            },
            district: District {
                key: district.key("district_pkey")?,
                ordered: district.columns(&["d_tax", "d_next_o_id"])?,
                next_order: district.columns(&["d_next_o_id"])?,
                paid: district.columns(&[
                    "d_name",
                    "d_ytd",
                    "d_street_1",
                    "d_street_2",
                    "d_city",
                    "d_state",
                    "d_zip",
                ])?,
                ytd: district.columns(&["d_ytd"])?,
            },
            customer: Customer {
                key: customer.key("customer_pkey")?,
                by_name: customer.key("customer_by_name")?,
                row: customer.columns(&[])?,
                ordering: customer.columns(&["c_discount", "c_last", "c_credit"])?,
                paying: customer.columns(&[
                    "c_id",
                    "c_credit",
                    "c_balance",
                    "c_ytd_payment",
                    "c_payment_cnt",
                    "c_discount",
                    "c_since",
                ])?,
                shown: customer.columns(&[
                    "c_first",
                    "c_middle",
                    "c_last",
                    "c_street_1",
                    "c_street_2",
                    "c_city",
                    "c_state",
                    "c_zip",
                    "c_phone",
                ])?,
                data: customer.columns(&["c_data"])?,
                payment: customer.columns(&["c_balance", "c_ytd_payment", "c_payment_cnt"])?,
                bad_credit_payment: customer.columns(&[
                    "c_balance",
                    "c_ytd_payment",
                    "c_payment_cnt",
                    "c_data",
                ])?,
                status: customer.columns(&["c_id", "c_balance", "c_first", "c_middle", "c_last"])?,
                delivery: customer.columns(&["c_balance", "c_delivery_cnt"])?,
            },
            history: table("history")?.all_columns()?,
            new_order: NewOrder {
                key: new_order.key("new_order_pkey")?,
                row: new_order.all_columns()?,
                order: new_order.columns(&["no_o_id"])?,
            },
            orders: Orders {
                key: orders.key("orders_pkey")?,
                by_customer: orders.key("orders_by_customer")?,
                row: orders.all_columns()?,
                status: orders.columns(&["o_id", "o_entry_d", "o_carrier_id"])?,
                delivery: orders.columns(&["o_c_id", "o_carrier_id"])?,
                carrier: orders.columns(&["o_carrier_id"])?,
            },
            order_line: OrderLine {
                key: order_line.key("order_line_pkey")?,
                row: order_line.all_columns()?,
                status: order_line.columns(&[
                    "ol_i_id",
                    "ol_supply_w_id",
                    "ol_quantity",
                    "ol_amount",
                    "ol_delivery_d",
                ])?,
                delivery: order_line.columns(&["ol_amount", "ol_delivery_d"])?,
                delivered: order_line.columns(&["ol_delivery_d"])?,
                item: order_line.columns(&["ol_i_id"])?,
            },
            item: Item {
                key: item.key("item_pkey")?,
                ordered: item.columns(&["i_price", "i_name", "i_data"])?,
            },
            stock: Stock {
                key: stock.key("stock_pkey")?,
                ordered: (1..=DISTRICTS)
                    .map(|district| {
                        let text = format!("s_dist_{district:02}");
                        stock.columns(&[
                            "s_quantity",
                            &text,
                            "s_ytd",
                            "s_order_cnt",
                            "s_remote_cnt",
                            "s_data",
                        ])
                    })
                    .collect::<Result<_>>()?,
                sold: stock.columns(&["s_quantity", "s_ytd", "s_order_cnt", "s_remote_cnt"])?,
                quantity: stock.columns(&["s_quantity"])?,
            },
        })
    }

    /// The database.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The scale of the loaded tables.
    pub fn scale(&self) -> Scale {
        let warehouses = self.warehouse.key.table().approximate_rows() as i32;
        let districts = self.district.key.table().approximate_rows() as i32;
        Scale {
            warehouses,
            items: self.item.key.table().approximate_rows() as i32,
            customers: self.customer.key.table().approximate_rows() as i32 / districts.max(1),
        }
    }
}

/// How a client runs its transactions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mode {
    /// Their isolation.
    pub isolation: Isolation,
    /// How many transactions it begins before it runs the first of them. As many then commit while one is running,
    /// as if they were cut into tasks that take turns (Mühlbauer, dissertation, TU München 2016, §2.4.4).
    pub interleaved: usize,
}

/// One client: runs transactions one after another.
pub struct Worker<'t> {
    tpcc: &'t Tpcc,
    mode: Mode,
    /// Those that have begun.
    begun: VecDeque<Transaction>,
    terminal: Terminal,
    input: Input,
    /// Keys that are looked up or inserted soon.
    ahead: [KeyBuffer; 5],
    rows: Vec<RowId>,
    items: Vec<(i32, i32)>,
    /// A bit for every item.
    seen: Box<[u64]>,
    text: Box<[u8; 500]>,
    /// Finds the word ORIGINAL in the data of an item and its stock.
    original: Finder<'static>,
    /// Per district, an order such that all before it are delivered. Deliveries search from here on, as
    /// Silo's do: from the beginning they would pass every order that an old snapshot still sees.
    undelivered: Box<[[i32; DISTRICTS as usize]]>,
}

impl<'t> Worker<'t> {
    /// A client of these tables whose inputs come from `terminal`.
    pub fn new(tpcc: &'t Tpcc, terminal: Terminal) -> Worker<'t> {
        Worker::with(tpcc, terminal, Mode::default())
    }

    /// As [`Worker::new`], in another mode.
    pub fn with(tpcc: &'t Tpcc, mut terminal: Terminal, mode: Mode) -> Worker<'t> {
        let input = terminal.next_input();
        Worker {
            tpcc,
            mode,
            begun: VecDeque::with_capacity(mode.interleaved),
            terminal,
            input,
            ahead: std::array::from_fn(|_| KeyBuffer::new()),
            rows: Vec::with_capacity(64),
            items: Vec::with_capacity(512),
            seen: vec![0; tpcc.scale().items as usize / 64 + 1].into(),
            text: Box::new([0; 500]),
            original: Finder::new("ORIGINAL"),
            undelivered: vec![[0; DISTRICTS as usize]; tpcc.scale().warehouses as usize].into(),
        }
    }

    /// What the next transaction is of.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// Lets the next transaction be of this, and not of what the terminal enters.
    pub fn enter(&mut self, input: Input) {
        self.input = input;
    }

    /// Begins a transaction.
    #[inline]
    fn begin(&mut self, read_only: bool) -> Result<Transaction> {
        let engine = &self.tpcc.engine;
        if self.mode.interleaved == 0 && self.mode.isolation == Isolation::Serializable {
            return Ok(if read_only { engine.begin_read_only() } else { engine.begin() });
        }
        while self.begun.len() <= self.mode.interleaved {
            self.begun.push_back(engine.try_begin(self.mode.isolation)?);
        }
        Ok(self.begun.pop_front().expect("one has just begun"))
    }

    /// Clause 2.4.
    fn new_order(&mut self, input: &NewOrderInput) -> Result<Done> {
        let tables = self.tpcc;
        let (item, stock, district) = (&tables.item, &tables.stock, &tables.district);
        let guard = &pin();
        let mut tx = self.begin(false)?;
        let (w, d, c) = (input.warehouse, input.district, input.customer);
        let lines = input.lines();

        // Items and stock are prefetched while the order is made.
        let (mut item_keys, mut stock_keys) = ([(0,); MAX_LINES], [(0, 0); MAX_LINES]);
        for ((line, item_key), stock_key) in lines.iter().zip(&mut item_keys).zip(&mut stock_keys) {
            *item_key = (line.item,);
            *stock_key = (line.supply_warehouse, line.item);
        }
        let (item_keys, stock_keys) = (&item_keys[..lines.len()], &stock_keys[..lines.len()]);
        let in_stock = &stock.ordered[d as usize - 1];
        let item_rows = tx.locate(&item.key, item_keys, &item.ordered, guard);
        let stock_rows = tx.locate(&stock.key, stock_keys, in_stock, guard);

        let (_, (w_tax,)) = found(tx.find_as(&tables.warehouse.key, &(w,), &tables.warehouse.tax, guard));
        let (district_row, (d_tax, o_id)) =
            found(tx.find_as(&district.key, &(w, d), &district.ordered, guard));
        let ways: [(&Index, &[Cell<'_>]); 5] = [
            (tables.customer.key.index(), &[w, d, c].map(Cell::i32)),
            (tables.orders.key.index(), &[w, d, o_id].map(Cell::i32)),
            (tables.orders.by_customer.index(), &[w, d, c, o_id].map(Cell::i32)),
            (tables.new_order.key.index(), &[w, d, o_id].map(Cell::i32)),
            (tables.order_line.key.index(), &[w, d, o_id].map(Cell::i32)),
        ];
        approach(&ways, &mut self.ahead, guard);
        let customer = &tables.customer;
        let (_, (c_discount, _c_last, _c_credit)) =
            found(tx.find_as(&customer.key, &(w, d, c), &customer.ordering, guard));
        tx.update_as(&district.next_order, district_row, &(o_id + 1,), guard)?;

        let all_local = i32::from(input.all_local());
        let order = (w, d, o_id, c, wall_clock_micros(), None, lines.len() as i32, all_local);
        tx.insert_as(&tables.orders.row, &order, guard)?;
        tx.insert_as(&tables.new_order.row, &(w, d, o_id), guard)?;

        let mut items = [None; MAX_LINES];
        tx.read_located(&item.key, item_keys, &item_rows, &item.ordered, guard, |number, found| {
            items[number] = found.map(|(_, values)| values);
        });
        let mut stocks = [None; MAX_LINES];
        tx.read_located(&stock.key, stock_keys, &stock_rows, in_stock, guard, |number, found| {
            stocks[number] = found;
        });

        let mut sum = 0;
        let mut branded = 0;
        let mut order_lines = [(w, d, o_id, 0, 0, 0, None, 0, 0, Text::from("")); MAX_LINES];
        for (number, line) in lines.iter().enumerate() {
            let Some((i_price, _i_name, i_data)) = items[number] else {
                tx.rollback();
                return Ok(Done { committed: false, lsn: None, displayed: 0 });
            };
            let (stock_row, (s_quantity, dist_info, s_ytd, s_order_cnt, s_remote_cnt, s_data)) =
                stocks[number].expect("every item has stock in every warehouse");
            let left = s_quantity - line.quantity;
            let sold = (
                if left >= 10 { left } else { left + 91 },
                s_ytd + line.quantity,
                s_order_cnt + 1,
                s_remote_cnt + i32::from(line.supply_warehouse != w),
            );
            tx.update_as(&stock.sold, stock_row, &sold, guard)?;
            let amount = i64::from(line.quantity) * i_price;
            sum += amount;
            let is_original = |data: Text<'_>| self.original.find(data.as_bytes()).is_some();
            branded += i64::from(is_original(i_data) && is_original(s_data));
            let (supplier, quantity) = (line.supply_warehouse, line.quantity);
            let number_shown = number as i32 + 1;
            order_lines[number] =
                (w, d, o_id, number_shown, line.item, supplier, None, quantity, amount, dist_info);
        }
        tx.insert_rows_as(&tables.order_line.row, &order_lines[..lines.len()], guard)?;
        // Taxes and the discount are in hundredths of a percent.
        let total = sum * (10_000 - c_discount) / 10_000 * (10_000 + w_tax + d_tax) / 10_000;
        committed(tx, total + branded)
    }

    /// Clause 2.5.
    fn payment(&mut self, input: &PaymentInput) -> Result<Done> {
        let tables = self.tpcc;
        let (warehouse, district, customer) = (&tables.warehouse, &tables.district, &tables.customer);
        let guard = &pin();
        let mut tx = self.begin(false)?;
        let (w, d) = (input.warehouse, input.district);
        let amount = input.amount;

        // The customer is prefetched while warehouse and district are updated.
        let (c_w, c_d) = (input.customer_warehouse, input.customer_district);
        let customer_row = self.choose_customer(&tx, c_w, c_d, &input.customer, guard);
        tx.prefetch_as(&customer.paying, customer_row);
        tx.prefetch_as(&customer.shown, customer_row);
        tx.prefetch_as(&customer.data, customer_row);

        let (warehouse_row, (w_name, w_ytd, w_street_1, w_street_2, w_city, w_state, w_zip)) =
            found(tx.find_as(&warehouse.key, &(w,), &warehouse.paid, guard));
        let mut displayed = characters(&[w_street_1, w_street_2, w_city, w_state, w_zip]);
        tx.update_as(&warehouse.ytd, warehouse_row, &(w_ytd + amount,), guard)?;

        let (district_row, (d_name, d_ytd, d_street_1, d_street_2, d_city, d_state, d_zip)) =
            found(tx.find_as(&district.key, &(w, d), &district.paid, guard));
        displayed += characters(&[d_street_1, d_street_2, d_city, d_state, d_zip]);
        tx.update_as(&district.ytd, district_row, &(d_ytd + amount,), guard)?;

        let (c_id, c_credit, c_balance, c_ytd_payment, c_payment_cnt, c_discount, c_since) =
            visible(tx.read_as(&customer.paying, customer_row, guard));
        let shown = visible(tx.read_as(&customer.shown, customer_row, guard));
        displayed += characters(&shown) + c_discount + (c_since & 1);
        let (balance, ytd_payment, payment_cnt) =
            (c_balance - amount, c_ytd_payment + amount, c_payment_cnt + 1);
        displayed += balance;
        if c_credit.as_bytes() == b"BC" {
            let (c_data,) = visible(tx.read_as(&customer.data, customer_row, guard));
            let numbers = [c_id, c_d, c_w, d, w].map(i64::from);
            let [c_id, c_d, c_w, d, w] = numbers;
            let length = bad_credit_data(&mut self.text, [c_id, c_d, c_w, d, w, amount], c_data.as_bytes());
            let data = Text::of_bytes(&self.text[..length]);
            let payment = (balance, ytd_payment, payment_cnt, data);
            tx.update_as(&customer.bad_credit_payment, customer_row, &payment, guard)?;
        } else {
            tx.update_as(&customer.payment, customer_row, &(balance, ytd_payment, payment_cnt), guard)?;
        }

        let mut h_data = [b' '; 24];
        let (w_name, d_name) = (w_name.as_bytes(), d_name.as_bytes());
        h_data[..w_name.len()].copy_from_slice(w_name);
        let end = w_name.len() + 4 + d_name.len();
        h_data[w_name.len() + 4..end].copy_from_slice(d_name);
        let payment = (c_id, c_d, c_w, d, w, wall_clock_micros(), amount, Text::of_bytes(&h_data[..end]));
        tx.insert_as(&tables.history, &payment, guard)?;
        committed(tx, displayed)
    }

    /// Clause 2.6.
    fn order_status(&mut self, w: i32, d: i32, choice: &CustomerChoice) -> Result<Done> {
        let Tpcc { customer, orders, order_line, .. } = self.tpcc;
        let guard = &pin();
        let tx = self.begin(true)?;
        let customer_row = self.choose_customer(&tx, w, d, choice, guard);
        let (c_id, c_balance, c_first, c_middle, c_last) =
            visible(tx.read_as(&customer.status, customer_row, guard));
        let mut displayed = c_balance + characters(&[c_first, c_middle, c_last]);

        let mut newest = None;
        tx.prefix_as(&orders.by_customer, &(w, d, c_id), &orders.status, guard, |_, order| {
            newest = Some(order);
            false
        });
        let (o_id, o_entry_d, o_carrier_id) = newest.expect("every customer has ordered once");
        displayed += i64::from(o_id) + (o_entry_d & 1) + o_carrier_id.map_or(0, i64::from);

        tx.prefix_as(&order_line.key, &(w, d, o_id), &order_line.status, guard, |_, line| {
            let (i_id, supplier, quantity, amount, delivered) = line;
            displayed += i64::from(i_id + supplier + quantity) + amount + i64::from(delivered.is_none());
            true
        });
        committed(tx, displayed)
    }

    /// Clause 2.7, all ten districts in one transaction.
    fn delivery(&mut self, w: i32, carrier: i32) -> Result<Done> {
        let Tpcc { customer, new_order, orders, order_line, .. } = self.tpcc;
        let guard = &pin();
        let mut tx = self.begin(false)?;
        let delivered_at = wall_clock_micros();
        let mut displayed = 0;
        let mut queued = [(0, 0, 0); DISTRICTS as usize];
        let mut count = 0;
        for district in 1..=DISTRICTS {
            let mut oldest = None;
            let known = &mut self.undelivered[w as usize - 1][district as usize - 1];
            let (from, to) = ((w, district, *known), (w, district, i32::MAX));
            let bounds = (Included(&from), Included(&to));
            tx.range_as(
                &new_order.key,
                bounds.0,
                bounds.1,
                false,
                &new_order.order,
                guard,
                |row, (o_id,)| {
                    oldest = Some((row, o_id));
                    *known = o_id;
                    false
                },
            );
            // The specification skips a district whose orders are all delivered.
            let Some((oldest, o_id)) = oldest else { continue };
            tx.delete_as(&new_order.order, oldest, guard)?;
            queued[count] = (w, district, o_id);
            count += 1;
            displayed += i64::from(o_id);
        }

        let queued = &queued[..count];
        let mut found = [None; DISTRICTS as usize];
        tx.find_many_as(&orders.key, queued, &orders.delivery, guard, |number, order| {
            found[number] = order.map(|(row, (customer, _))| (row, customer));
        });
        // The paths to the lines of all the orders are prefetched at once: none has been used since these were ordered.
        order_line.key.approach(queued, guard);
        let mut payers = [(0, 0, 0); DISTRICTS as usize];
        let mut amounts = [0; DISTRICTS as usize];
        for (number, order) in queued.iter().enumerate() {
            let (order_row, customer) = found[number].expect("a queued order exists");
            payers[number] = (w, order.1, customer);
            tx.update_as(&orders.carrier, order_row, &(Some(carrier),), guard)?;
            let rows = &mut self.rows;
            rows.clear();
            tx.prefix_as(&order_line.key, order, &order_line.delivery, guard, |row, (amount, delivered)| {
                assert!(delivered.is_none(), "an order is delivered once");
                rows.push(row);
                amounts[number] += amount;
                true
            });
            for &line in rows.iter() {
                tx.update_as(&order_line.delivered, line, &(Some(delivered_at),), guard)?;
            }
        }

        let mut debtors = [None; DISTRICTS as usize];
        tx.find_many_as(&customer.key, &payers[..count], &customer.delivery, guard, |number, found| {
            debtors[number] = found;
        });
        for (debtor, amount) in debtors.iter().zip(amounts).take(count) {
            let (row, (balance, deliveries)) = debtor.expect("the customer of an order exists");
            tx.update_as(&customer.delivery, row, &(balance + amount, deliveries + 1), guard)?;
        }
        committed(tx, displayed)
    }

    /// Clause 2.8.
    fn stock_level(&mut self, w: i32, d: i32, threshold: i32) -> Result<Done> {
        let Tpcc { district, order_line, stock, .. } = self.tpcc;
        let guard = &pin();
        let tx = self.begin(true)?;
        let (_, (_, next)) = found(tx.find_as(&district.key, &(w, d), &district.ordered, guard));
        let (items, seen) = (&mut self.items, &mut self.seen);
        items.clear();
        let (from, to) = ((w, d, next - 20), (w, d, next - 1));
        let bounds = (Included(&from), Included(&to));
        tx.range_as(&order_line.key, bounds.0, bounds.1, false, &order_line.item, guard, |_, (i_id,)| {
            let (word, bit) = (&mut seen[i_id as usize / 64], 1 << (i_id % 64));
            if *word & bit == 0 {
                *word |= bit;
                items.push((w, i_id));
            }
            true
        });
        items.iter().for_each(|(_, i_id)| seen[*i_id as usize / 64] = 0);
        let mut low = 0;
        tx.find_many_as(&stock.key, items, &stock.quantity, guard, |_, found| {
            let (_, (quantity,)) = found.expect("every item has stock in every warehouse");
            low += i64::from(quantity < threshold);
        });
        committed(tx, low)
    }

    /// The customer with that number, or the middle one of those with that name.
    fn choose_customer(
        &mut self,
        tx: &Transaction,
        w: i32,
        d: i32,
        choice: &CustomerChoice,
        guard: &Guard,
    ) -> RowId {
        let customer = &self.tpcc.customer;
        match choice {
            CustomerChoice::Id(c) => found(tx.find_as(&customer.key, &(w, d, *c), &customer.row, guard)).0,
            CustomerChoice::LastName(name) => {
                let rows = &mut self.rows;
                rows.clear();
                let name = Text::from(name.as_str());
                tx.prefix_as(&customer.by_name, &(w, d, name), &customer.row, guard, |row, ()| {
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

    fn may_wait(&self) -> bool {
        self.mode.interleaved == 0
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
fn committed(tx: Transaction, displayed: i64) -> Result<Done> {
    Ok(Done { committed: true, lsn: tx.commit()?.lsn, displayed })
}

/// Prefetches the paths to keys that are looked up or inserted soon.
#[inline]
fn approach<const N: usize>(ways: &[(&Index, &[Cell<'_>]); N], keys: &mut [KeyBuffer; N], guard: &Guard) {
    for ((index, cells), key) in ways.iter().zip(&mut *keys) {
        key.clear();
        index.encode(cells, key);
    }
    Index::approach(&std::array::from_fn::<_, N, _>(|at| (ways[at].0, &keys[at][..])), guard);
}

/// A row that must be there.
#[inline(always)]
fn found<T>(found: Option<T>) -> T {
    found.expect("TPC-C deletes no referenced rows")
}

/// The values of a row that was found before.
#[inline(always)]
fn visible<T>(values: Option<T>) -> T {
    values.expect("a row found through an index is visible")
}

/// The total length of some strings: represents their display.
#[inline]
fn characters(texts: &[Text<'_>]) -> i64 {
    texts.iter().map(|text| text.len() as i64).sum()
}

/// Writes the new `c_data` of a customer with bad credit, the numbers of this payment before the
/// previous data, truncated to 500 characters; returns its length.
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
    use crate::histogram::Histogram;
    use crate::tpcc::consistency::HeldSnapshot;
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
    fn the_consistency_conditions_hold_after_clients_have_run_side_by_side() {
        let engine = Engine::open(Config { block_bytes: 1 << 16, ..Config::default() }).unwrap();
        let scale = Scale::small(2);
        load::load(&engine, scale, 1, 2, &load::LoadProgress::default()).unwrap();
        let tpcc = Tpcc::open(&engine).unwrap();
        assert_eq!(tpcc.scale(), scale);
        assert_eq!(consistency::violations(&engine, scale).unwrap(), Vec::<String>::new());

        let held = HeldSnapshot::take(&engine, scale).unwrap();
        // More clients than warehouses, so that they conflict.
        let options = Options { clients: 3, duration: Duration::from_millis(500), core: None, rate: None };
        let client = |number| Ok(Worker::new(&tpcc, Terminal::new(scale, 1, number, 3)));
        let report = driver::run(&client, Some(&engine), options, &Live::default()).unwrap();
        assert!(report.latencies.iter().all(|latencies| latencies.count() > 0));
        assert_eq!(consistency::violations(&engine, scale).unwrap(), Vec::<String>::new());
        assert_eq!(held.violations(&engine).unwrap(), Vec::<String>::new());

        let options = Options { rate: Some(300), ..options };
        let report = driver::run(&client, None, options, &Live::default()).unwrap();
        // Each client may be ahead by one that has just begun, and by some milliseconds.
        let most = 300.0 * (report.elapsed.as_secs_f64() + 0.01) + 3.0;
        let begun = report.latencies.iter().map(Histogram::count).sum::<u64>() + report.rollbacks;
        assert!(begun > 0 && begun as f64 <= most, "{begun} in {:?}", report.elapsed);
    }

    #[test]
    fn a_lost_payment_violates_the_conditions_that_speak_of_it() {
        let engine = Engine::open(Config::default()).unwrap();
        let scale = Scale::small(1);
        load::load(&engine, scale, 1, 1, &load::LoadProgress::default()).unwrap();
        let tpcc = Tpcc::open(&engine).unwrap();
        let guard = &pin();
        let mut tx = engine.begin();
        let (row, _) = tx.find_as(&tpcc.warehouse.key, &(1,), &tpcc.warehouse.ytd, guard).unwrap();
        tx.update_as(&tpcc.warehouse.ytd, row, &(5,), guard).unwrap();
        engine.wait(tx.commit().unwrap()).unwrap();
        let violations = consistency::violations(&engine, scale).unwrap();
        assert_eq!(violations.len(), 2, "{violations:?}");
        assert!(violations[0].starts_with("consistency condition 1: "));
        assert!(violations[1].starts_with("consistency condition 8: "));
    }
}
