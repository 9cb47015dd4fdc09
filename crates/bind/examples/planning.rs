//! How long planning takes: parsing, binding and optimising TPC-H's queries and a look-up by a primary key.
//!
//! ```text
//! cargo run --release -p firn-bind --example planning [repetitions]
//! ```
//!
//! It prints medians in microseconds. The steps of the optimiser are timed one by one in runs of their own, so that their sum may
//! differ a little from the whole. `FIRN_PRINT=1` prints the optimised plans as well.

use firn_base::{Result, Type, TypeId};
use firn_bind::{Attribute, Catalog, Generated, Key, Relation, RelationKind, bind};
use firn_plan::join_order::{BUDGET, order_joins};
use firn_plan::operator::SourceId;
use firn_plan::rewrite::*;
use firn_plan::statistics::{Index, Statistics};
use firn_plan::unnest::unnest;
use firn_plan::{Plan, RegistryEvaluator};
use firn_syntax::{Options, parse};
use firn_vector::Registry;
use firn_vector::context::detached;
use std::sync::Arc;
use std::time::Instant;

/// Tables of scale factor 1: rows, columns, and how many of the key's columns stand for it.
const TABLES: [(&str, f64, &str, &str); 8] = [
    ("region", 5.0, "r_regionkey b, r_name v, r_comment v", "r_regionkey"),
    ("nation", 25.0, "n_nationkey b, n_name v, n_regionkey b, n_comment v", "n_nationkey"),
    (
        "supplier",
        1e4,
        "s_suppkey b, s_name v, s_address v, s_nationkey b, s_phone v, s_acctbal n, s_comment v",
        "s_suppkey",
    ),
    (
        "customer",
        1.5e5,
        "c_custkey b, c_name v, c_address v, c_nationkey b, c_phone v, c_acctbal n, c_mktsegment v, c_comment v",
        "c_custkey",
    ),
    (
        "part",
        2e5,
        "p_partkey b, p_name v, p_mfgr v, p_brand v, p_type v, p_size i, p_container v, p_retailprice n, p_comment v",
        "p_partkey",
    ),
    (
        "partsupp",
        8e5,
        "ps_partkey b, ps_suppkey b, ps_availqty i, ps_supplycost n, ps_comment v",
        "ps_partkey ps_suppkey",
    ),
    (
        "orders",
        1.5e6,
        "o_orderkey b, o_custkey b, o_orderstatus c, o_totalprice n, o_orderdate d, o_orderpriority v, o_clerk v, o_shippriority i, o_comment v",
        "o_orderkey",
    ),
    (
        "lineitem",
        6e6,
        "l_orderkey b, l_partkey b, l_suppkey b, l_linenumber i, l_quantity n, l_extendedprice n, l_discount n, l_tax n, l_returnflag c, l_linestatus c, l_shipdate d, l_commitdate d, l_receiptdate d, l_shipinstruct v, l_shipmode v, l_comment v",
        "l_orderkey l_linenumber",
    ),
];

macro_rules! queries {
    ($($number:literal)*) => {
        [$(($number, include_str!(concat!("../../../bench/engine/sql/tpch/q", $number, ".sql")))),*]
    };
}

const QUERIES: [(&str, &str); 22] = queries!(
    "01" "02" "03" "04" "05" "06" "07" "08" "09" "10" "11" "12" "13" "14" "15" "16" "17" "18" "19" "20" "21" "22"
);

struct Tables {
    registry: Registry,
    relations: Vec<Arc<Relation>>,
}

impl Tables {
    fn new() -> Tables {
        let relations = TABLES.iter().enumerate().map(|(place, (name, _, columns, key))| {
            let attribute = |(number, column): (usize, &str)| {
                let (name, ty) = column.split_once(' ').expect("a column has a type");
                Attribute {
                    number: number as i16 + 1,
                    name: name.into(),
                    ty: match ty {
                        "b" => Type::new(TypeId::INT8),
                        "i" => Type::new(TypeId::INT4),
                        "n" => Type::numeric(15, 2),
                        "d" => Type::new(TypeId::DATE),
                        "c" => Type::character(1),
                        _ => Type::varchar(55),
                    },
                    not_null: true,
                    default: None,
                    generated: Generated::No,
                }
            };
            let columns: Vec<Attribute> = columns.split(", ").enumerate().map(attribute).collect();
            let number =
                |name: &str| columns.iter().find(|column| &*column.name == name).expect("it has it").number;
            let keys = vec![Key {
                index: 30_000 + place as u32,
                name: format!("{name}_pkey").into(),
                columns: key.split(' ').map(number).collect(),
                is_primary: true,
                is_deferrable: false,
                nulls_not_distinct: false,
                expressions: Vec::new(),
                condition: None,
            }];
            Arc::new(Relation {
                oid: 20_000 + place as u32,
                schema: "public".into(),
                name: (*name).into(),
                kind: RelationKind::Table(SourceId(place as u32)),
                columns,
                keys,
                has_system_columns: false,
            })
        });
        Tables { registry: Registry::built_in(), relations: relations.collect() }
    }
}

impl Catalog for Tables {
    fn registry(&self) -> &Registry {
        &self.registry
    }

    fn relation(&self, _: Option<&str>, name: &str) -> Result<Option<Arc<Relation>>> {
        Ok(self.relations.iter().find(|relation| &*relation.name == name).cloned())
    }

    fn has_schema(&self, name: &str) -> bool {
        name == "public"
    }

    fn database(&self) -> &str {
        "tpch"
    }
}

impl Statistics for Tables {
    fn rows(&self, source: SourceId) -> f64 {
        TABLES[source.0 as usize].1
    }

    fn distinct(&self, source: SourceId, attributes: &[i16]) -> Option<f64> {
        let key = &self.relations[source.0 as usize].keys[0];
        (key.columns == attributes).then(|| self.rows(source))
    }

    fn keys(&self, source: SourceId) -> Vec<Vec<i16>> {
        vec![self.relations[source.0 as usize].keys[0].columns.clone()]
    }

    fn indexes(&self, source: SourceId) -> Vec<Index> {
        let attributes = self.relations[source.0 as usize].keys[0].columns.clone();
        let count = attributes.len();
        vec![Index {
            attributes,
            descending: vec![false; count],
            nulls_first: vec![false; count],
            unique: true,
        }]
    }
}

/// The median time of a step on a value that is made anew each time, in microseconds.
fn median<T, R>(repetitions: usize, mut make: impl FnMut() -> T, mut step: impl FnMut(&mut T) -> R) -> f64 {
    let time = |_| {
        let mut value = make();
        let begin = Instant::now();
        let result = step(&mut value);
        let taken = begin.elapsed();
        drop((result, value));
        taken.as_secs_f64() * 1e6
    };
    let mut times: Vec<f64> = (0..repetitions).map(time).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let repetitions = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200);
    let tables = Tables::new();
    let context = detached();
    let evaluator = RegistryEvaluator::new(&tables.registry, &context);
    let mut totals = Vec::new();
    println!(
        "query    parse     bind optimise |     fold   unnest    nulls     push    empty   unique    order    prune    index"
    );
    let key = ("key", "SELECT o_totalprice FROM orders WHERE o_orderkey = $1");
    for (name, text) in QUERIES.into_iter().chain([key]) {
        let parsed = parse(text, Options::default()).expect("it parses");
        let bound = || -> Plan {
            bind(text, &parsed[0].statement, &[], &tables)
                .unwrap_or_else(|error| panic!("{name}: {error:?}"))
                .plan
        };
        let parsing = median(repetitions, || (), |()| parse(text, Options::default()));
        let binding = median(repetitions, || (), |()| bound());
        let made = bound();
        let optimising = median(
            repetitions,
            || made.clone(),
            |plan| optimise(plan, &tables.registry, &evaluator, &tables),
        );
        let mut plan = made.clone();
        let mut steps = Vec::new();
        let mut step = |plan: &mut Plan, rewrite: &dyn Fn(&mut Plan)| {
            steps.push(median(repetitions, || plan.clone(), |plan| rewrite(plan)));
            rewrite(plan);
        };
        step(&mut plan, &|plan| fold::fold(plan, &evaluator));
        step(&mut plan, &|plan| unnest(plan, &tables.registry));
        step(&mut plan, &outer_joins::reject_nulls);
        step(&mut plan, &push_down::push_down);
        step(&mut plan, &contradictions::remove_empty);
        step(&mut plan, &|plan| unique::use_keys(plan, &tables));
        step(&mut plan, &|plan| order_joins(plan, &tables, BUDGET));
        step(&mut plan, &|plan| prune::prune(plan, &tables));
        step(&mut plan, &|plan| join_methods::choose_methods(plan, &tables));
        print!("{name:>5} {parsing:8.1} {binding:8.1} {optimising:8.1} |");
        steps.iter().for_each(|time| print!(" {time:8.1}"));
        println!();
        if std::env::var("FIRN_PRINT").is_ok() {
            println!("{}", firn_plan::text::print(&plan));
        }
        if name != "key" {
            totals.push(binding + optimising);
        }
    }
    totals.sort_by(f64::total_cmp);
    println!(
        "binding and optimising TPC-H: median {:.1}, largest {:.1}",
        totals[totals.len() / 2],
        totals.last().expect("there are queries")
    );
}
