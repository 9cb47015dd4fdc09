//! TPC-C, specification 5.11: an order desk. Five transactions over nine tables, no think time.
//!
//! [`schema`] the tables, [`input`] what terminals enter, [`load`] the initial population,
//! [`native`] the transactions over the transaction API, [`sql`] in SQL, [`beside`] them beside a load of a file,
//! [`consistency`] the twelve conditions that always hold.

pub mod beside;
pub mod consistency;
pub mod input;
pub mod load;
pub mod native;
pub mod schema;
pub mod sql;

/// Districts of a warehouse.
pub const DISTRICTS: i32 = 10;

/// How much data. Only the warehouses scale in the specification; tests shrink the rest as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Warehouses.
    pub warehouses: i32,
    /// Items, and stock rows per warehouse.
    pub items: i32,
    /// Customers per district, and orders per district at the start.
    pub customers: i32,
}

impl Scale {
    /// The specification's cardinalities.
    pub fn warehouses(warehouses: i32) -> Scale {
        Scale { warehouses, items: 100_000, customers: 3_000 }
    }

    /// A thirtieth of the customers and a hundredth of the items, for tests.
    pub fn small(warehouses: i32) -> Scale {
        Scale { warehouses, items: 1_000, customers: 100 }
    }

    /// Orders per district that are delivered at the start: seven in ten.
    pub fn delivered_orders(self) -> i32 {
        self.customers * 7 / 10
    }

    /// How many different last names customers have: at most 1,000.
    pub fn last_names(self) -> i32 {
        self.customers.min(1_000)
    }
}

/// The five transactions, in the order of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A customer orders 5 to 15 items.
    NewOrder,
    /// A customer pays.
    Payment,
    /// The state of a customer's last order.
    OrderStatus,
    /// A carrier takes the oldest order of each district.
    Delivery,
    /// The number of recently sold items with a low stock.
    StockLevel,
}

impl Kind {
    /// The names in reports, in the order of the kinds.
    pub const NAMES: [&'static str; 5] = ["new-order", "payment", "order-status", "delivery", "stock-level"];
}
