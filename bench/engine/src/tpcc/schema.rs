//! TPC-C's nine tables (specification 5.11, clause 1.3), and the two secondary indexes that its
//! transactions need.
//!
//! Choices that the specification permits: identifiers and counters are integers. Year-to-date sums of
//! warehouses and districts have 15 digits, so that a fast engine does not overflow them in an hour.

use crate::schema::{TableSchema, tables};

tables! {
    /// Warehouses.
    warehouse {
        columns {
            w_id: Integer;
            w_name: Varchar(Some(10));
            w_street_1: Varchar(Some(20));
            w_street_2: Varchar(Some(20));
            w_city: Varchar(Some(20));
            w_state: Char(2);
            w_zip: Char(9);
            w_tax: Numeric { precision: 4, scale: 4 };
            w_ytd: Numeric { precision: 15, scale: 2 };
        }
        primary key (w_id);
    }

    /// Ten districts per warehouse.
    district {
        columns {
            d_w_id: Integer;
            d_id: Integer;
            d_name: Varchar(Some(10));
            d_street_1: Varchar(Some(20));
            d_street_2: Varchar(Some(20));
            d_city: Varchar(Some(20));
            d_state: Char(2);
            d_zip: Char(9);
            d_tax: Numeric { precision: 4, scale: 4 };
            d_ytd: Numeric { precision: 15, scale: 2 };
            d_next_o_id: Integer;
        }
        primary key (d_w_id, d_id);
    }

    /// 3,000 customers per district.
    customer {
        columns {
            c_w_id: Integer;
            c_d_id: Integer;
            c_id: Integer;
            c_first: Varchar(Some(16));
            c_middle: Char(2);
            c_last: Varchar(Some(16));
            c_street_1: Varchar(Some(20));
            c_street_2: Varchar(Some(20));
            c_city: Varchar(Some(20));
            c_state: Char(2);
            c_zip: Char(9);
            c_phone: Char(16);
            c_since: Timestamp;
            c_credit: Char(2);
            c_credit_lim: Numeric { precision: 12, scale: 2 };
            c_discount: Numeric { precision: 4, scale: 4 };
            c_balance: Numeric { precision: 12, scale: 2 };
            c_ytd_payment: Numeric { precision: 12, scale: 2 };
            c_payment_cnt: Integer;
            c_delivery_cnt: Integer;
            c_data: Varchar(Some(500));
        }
        primary key (c_w_id, c_d_id, c_id);
        index customer_by_name (c_w_id, c_d_id, c_last, c_first);
    }

    /// Payments; no key.
    history {
        columns {
            h_c_id: Integer;
            h_c_d_id: Integer;
            h_c_w_id: Integer;
            h_d_id: Integer;
            h_w_id: Integer;
            h_date: Timestamp;
            h_amount: Numeric { precision: 6, scale: 2 };
            h_data: Varchar(Some(24));
        }
        primary key ();
    }

    /// Orders not yet delivered.
    new_order {
        columns {
            no_w_id: Integer;
            no_d_id: Integer;
            no_o_id: Integer;
        }
        primary key (no_w_id, no_d_id, no_o_id);
    }

    /// Orders; `o_carrier_id` is NULL until delivery.
    orders {
        columns {
            o_w_id: Integer;
            o_d_id: Integer;
            o_id: Integer;
            o_c_id: Integer;
            o_entry_d: Timestamp;
            o_carrier_id: Integer, null;
            o_ol_cnt: Integer;
            o_all_local: Integer;
        }
        primary key (o_w_id, o_d_id, o_id);
        index orders_by_customer (o_w_id, o_d_id, o_c_id, o_id desc);
    }

    /// Lines of orders; `ol_delivery_d` is NULL until delivery.
    order_line {
        columns {
            ol_w_id: Integer;
            ol_d_id: Integer;
            ol_o_id: Integer;
            ol_number: Integer;
            ol_i_id: Integer;
            ol_supply_w_id: Integer;
            ol_delivery_d: Timestamp, null;
            ol_quantity: Integer;
            ol_amount: Numeric { precision: 6, scale: 2 };
            ol_dist_info: Char(24);
        }
        primary key (ol_w_id, ol_d_id, ol_o_id, ol_number);
    }

    /// What is sold; 100,000 items, the same for every warehouse.
    item {
        columns {
            i_id: Integer;
            i_im_id: Integer;
            i_name: Varchar(Some(24));
            i_price: Numeric { precision: 5, scale: 2 };
            i_data: Varchar(Some(50));
        }
        primary key (i_id);
    }

    /// What each warehouse has of each item.
    stock {
        columns {
            s_w_id: Integer;
            s_i_id: Integer;
            s_quantity: Integer;
            s_dist_01: Char(24);
            s_dist_02: Char(24);
            s_dist_03: Char(24);
            s_dist_04: Char(24);
            s_dist_05: Char(24);
            s_dist_06: Char(24);
            s_dist_07: Char(24);
            s_dist_08: Char(24);
            s_dist_09: Char(24);
            s_dist_10: Char(24);
            s_ytd: Integer;
            s_order_cnt: Integer;
            s_remote_cnt: Integer;
            s_data: Varchar(Some(50));
        }
        primary key (s_w_id, s_i_id);
    }
}

/// All nine, in the order in which they are loaded.
pub static TABLES: [&TableSchema; 9] = [
    &item::SCHEMA,
    &warehouse::SCHEMA,
    &district::SCHEMA,
    &customer::SCHEMA,
    &history::SCHEMA,
    &orders::SCHEMA,
    &new_order::SCHEMA,
    &order_line::SCHEMA,
    &stock::SCHEMA,
];
