//! TPC-H: eight tables, 22 queries. The rows are from the crate `tpchgen`, which yields exactly
//! what the specification's `dbgen` does.
//!
//! Fixed text that does not fill its width is varchar here: padding only affects the display,
//! no query uses it, and the systems that we compare with do the same.

use crate::schema::{TableSchema, tables};
use crate::tpcc::load::{LoadProgress, insert_columns};
use arrow_array::RecordBatch;
use firn_base::Result;
use firn_base::sync::{Arc, AtomicUsize, Mutex, Ordering};
use firn_txn::Engine;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

tables! {
    /// Regions.
    region {
        columns {
            r_regionkey: BigInt;
            r_name: Varchar(Some(25));
            r_comment: Varchar(Some(152));
        }
        primary key (r_regionkey);
    }

    /// Nations.
    nation {
        columns {
            n_nationkey: BigInt;
            n_name: Varchar(Some(25));
            n_regionkey: BigInt;
            n_comment: Varchar(Some(152));
        }
        primary key (n_nationkey);
    }

    /// Suppliers.
    supplier {
        columns {
            s_suppkey: BigInt;
            s_name: Varchar(Some(25));
            s_address: Varchar(Some(40));
            s_nationkey: BigInt;
            s_phone: Varchar(Some(15));
            s_acctbal: Numeric { precision: 15, scale: 2 };
            s_comment: Varchar(Some(101));
        }
        primary key (s_suppkey);
    }

    /// Customers.
    customer {
        columns {
            c_custkey: BigInt;
            c_name: Varchar(Some(25));
            c_address: Varchar(Some(40));
            c_nationkey: BigInt;
            c_phone: Varchar(Some(15));
            c_acctbal: Numeric { precision: 15, scale: 2 };
            c_mktsegment: Varchar(Some(10));
            c_comment: Varchar(Some(117));
        }
        primary key (c_custkey);
    }

    /// Parts.
    part {
        columns {
            p_partkey: BigInt;
            p_name: Varchar(Some(55));
            p_mfgr: Varchar(Some(25));
            p_brand: Varchar(Some(10));
            p_type: Varchar(Some(25));
            p_size: Integer;
            p_container: Varchar(Some(10));
            p_retailprice: Numeric { precision: 15, scale: 2 };
            p_comment: Varchar(Some(23));
        }
        primary key (p_partkey);
    }

    /// Which supplier has which part.
    partsupp {
        columns {
            ps_partkey: BigInt;
            ps_suppkey: BigInt;
            ps_availqty: Integer;
            ps_supplycost: Numeric { precision: 15, scale: 2 };
            ps_comment: Varchar(Some(199));
        }
        primary key (ps_partkey, ps_suppkey);
    }

    /// Orders.
    orders {
        columns {
            o_orderkey: BigInt;
            o_custkey: BigInt;
            o_orderstatus: Char(1);
            o_totalprice: Numeric { precision: 15, scale: 2 };
            o_orderdate: Date;
            o_orderpriority: Varchar(Some(15));
            o_clerk: Varchar(Some(15));
            o_shippriority: Integer;
            o_comment: Varchar(Some(79));
        }
        primary key (o_orderkey);
    }

    /// Lines of orders.
    lineitem {
        columns {
            l_orderkey: BigInt;
            l_partkey: BigInt;
            l_suppkey: BigInt;
            l_linenumber: Integer;
            l_quantity: Numeric { precision: 15, scale: 2 };
            l_extendedprice: Numeric { precision: 15, scale: 2 };
            l_discount: Numeric { precision: 15, scale: 2 };
            l_tax: Numeric { precision: 15, scale: 2 };
            l_returnflag: Char(1);
            l_linestatus: Char(1);
            l_shipdate: Date;
            l_commitdate: Date;
            l_receiptdate: Date;
            l_shipinstruct: Varchar(Some(25));
            l_shipmode: Varchar(Some(10));
            l_comment: Varchar(Some(44));
        }
        primary key (l_orderkey, l_linenumber);
    }
}

/// All eight, smallest first.
pub static TABLES: [&TableSchema; 8] = [
    &region::SCHEMA,
    &nation::SCHEMA,
    &supplier::SCHEMA,
    &customer::SCHEMA,
    &part::SCHEMA,
    &partsupp::SCHEMA,
    &orders::SCHEMA,
    &lineitem::SCHEMA,
];

/// Part `part` of `parts` of a table's rows, in batches. The parts in order are the whole table.
pub fn batches(
    table: &TableSchema,
    scale_factor: f64,
    part: i32,
    parts: i32,
) -> Box<dyn Iterator<Item = RecordBatch>> {
    macro_rules! generated {
        ($arrow:ident, $generator:ident) => {
            Box::new(
                $arrow::new($generator::new(scale_factor, part, parts))
                    .map(|batch| batch.expect("generated columns have their schema's types")),
            )
        };
    }
    match table.name {
        "region" => generated!(RegionArrow, RegionGenerator),
        "nation" => generated!(NationArrow, NationGenerator),
        "supplier" => generated!(SupplierArrow, SupplierGenerator),
        "customer" => generated!(CustomerArrow, CustomerGenerator),
        "part" => generated!(PartArrow, PartGenerator),
        "partsupp" => generated!(PartSuppArrow, PartSuppGenerator),
        "orders" => generated!(OrderArrow, OrderGenerator),
        "lineitem" => generated!(LineItemArrow, LineItemGenerator),
        other => panic!("TPC-H has no table {other}"),
    }
}

/// About how many rows all tables have together.
pub fn expected_rows(scale_factor: f64) -> u64 {
    (8_660_000.0 * scale_factor) as u64
}

/// Creates the eight tables and loads them with `threads` threads.
pub fn load(engine: &Arc<Engine>, scale_factor: f64, threads: usize, progress: &LoadProgress) -> Result<()> {
    for table in TABLES {
        table.create(engine)?;
    }
    // Large tables are generated in parts of about 100,000 rows; every part is a function of the scale and its number.
    let mut work = Vec::new();
    for table in TABLES {
        let parts = match table.name {
            "lineitem" => (60.0 * scale_factor).ceil() as i32,
            "orders" => (15.0 * scale_factor).ceil() as i32,
            "partsupp" => (8.0 * scale_factor).ceil() as i32,
            "part" | "customer" => (2.0 * scale_factor).ceil() as i32,
            _ => 1,
        };
        work.extend((1..=parts).map(|part| (table, part, parts)));
    }
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // ORDERING: only distributes numbers; the data behind them was written before.
                while let Some(&(table, part, parts)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for batch in batches(table, scale_factor, part, parts) {
                        progress.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
                        if let Err(error) = insert_columns(engine, table, batch.columns()) {
                            failure.lock().get_or_insert(error);
                            return;
                        }
                    }
                }
            });
        }
    });
    failure.into_inner().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_yields_the_columns_that_the_tables_have() {
        let mut rows = 0;
        for table in TABLES {
            for part in 1..=2 {
                for batch in batches(table, 0.01, part, 2) {
                    let schema = batch.schema();
                    let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
                    let expected: Vec<_> = table.columns.iter().map(|column| column.name).collect();
                    assert_eq!(names, expected);
                    for (field, column) in schema.fields().iter().zip(table.columns) {
                        assert_eq!(*field.data_type(), firn_storage::arrow::data_type(column.ty));
                    }
                    rows += batch.num_rows() as u64;
                }
            }
        }
        // Nation and region do not split: every part is the whole.
        assert!(rows.abs_diff(expected_rows(0.01)) < 1_000, "{rows}");
    }
}
