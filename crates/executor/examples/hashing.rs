//! What grouping and joining by hash cost: plans over six million rows in memory.
//!
//! ```text
//! cargo run --release --locked -p firn-executor --example hashing [words of a plan's name]
//! ```
//!
//! It prints, for each plan, nanoseconds for each of the rows that are grouped or that probe, with one worker and with two, the best of
//! three runs; how many of the processor's these are, of all workers, which matters where others use the machine; how far the process
//! grew meanwhile, in MB; and a checksum of the result.

use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{Representation, Snapshot, Stamp, Time, Type, TypeId};
use firn_executor::source::{MemorySource, SourceColumn};
use firn_executor::{Budget, Options, Program, Reader, Rows, Source, Sources};
use firn_plan::operator::SourceId;
use firn_plan::reference::TestFunctions;
use firn_plan::text::parse;
use firn_vector::context::detached;
use firn_vector::strings::StringBuilder;
use firn_vector::{Chunk, Data, Datum, Registry, Vector};
use std::collections::HashMap;
use std::fs;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROWS: usize = 6_000_000;
const VECTOR: usize = 2048;

/// The rows that are grouped and that probe: `many` has 1.5 million values, of which one is in four rows that follow one another,
/// as orders' lines are; `mixed` has as many in any order; and so on.
const FACTS: &str = "Scan 1 facts [#1 many: int8 not null = 1, #2 mixed: int8 not null = 2, #3 some: int8 not null = 3, #4 few: int8 not null = 4, #5 flag: text not null = 5, #6 status: text not null = 6, #7 v: int4 not null = 7, #8 name: text not null = 8]";

/// Names, and plans; `FACTS` stands for the scan.
const PLANS: [(&str, &str); 16] = [
    ("group into 1.5 M, clustered", "Group by [#1] aggregates [#10: int8 := count(), #11: int8 := sum(#7)]"),
    ("group into 1.5 M, mixed", "Group by [#2] aggregates [#10: int8 := count(), #11: int8 := sum(#7)]"),
    ("group into 200 k", "Group by [#3] aggregates [#10: int8 := count(), #11: int8 := sum(#7)]"),
    ("group into 1 k", "Group by [#4] aggregates [#10: int8 := count(), #11: int8 := sum(#7)]"),
    (
        "group by two strings into 4",
        "Group by [#5, #6] aggregates [#10: int8 := count(), #11: int8 := sum(#7)]",
    ),
    (
        "group by long strings into 1 k",
        "Group by [#8] aggregates [#10: int8 := count(), #11: int8 := sum(#7)]",
    ),
    (
        "group by two bigints into 200 k",
        "Group by [#3, #4] aggregates [#10: int8 := count(), #11: int8 := sum(#7)]",
    ),
    (
        "join 200 k",
        "Join inner on [(#3 = #20)]\n  FACTS\n  Scan 2 small [#20 k: int8 not null = 1, #22 v: int4 not null = 3]",
    ),
    (
        "join 1.5 M, mixed",
        "Join inner on [(#2 = #20)]\n  FACTS\n  Scan 3 large [#20 k: int8 not null = 1, #22 v: int4 not null = 3]",
    ),
    (
        "join 1.5 M, clustered",
        "Join inner on [(#1 = #20)]\n  FACTS\n  Scan 3 large [#20 k: int8 not null = 1, #22 v: int4 not null = 3]",
    ),
    (
        "join 200 k by two columns",
        "Join inner on [(#3 = #20), (#4 = #21)]\n  FACTS\n  Scan 2 small [#20 k: int8 not null = 1, #21 other: int8 not null = 2, #22 v: int4 not null = 3]",
    ),
    (
        "join one row in ten",
        "Join inner on [(#2 = #20)]\n  FACTS\n  Scan 5 tenth [#20 k: int8 not null = 1, #22 v: int4 not null = 3]",
    ),
    ("semi join 1.5 M", "Join semi on [(#2 = #20)]\n  FACTS\n  Scan 3 large [#20 k: int8 not null = 1]"),
    (
        "semi join one row in ten",
        "Join semi on [(#2 = #20)]\n  FACTS\n  Scan 5 tenth [#20 k: int8 not null = 1]",
    ),
    (
        "anti join one row in ten",
        "Join anti on [(#2 = #20)]\n  FACTS\n  Scan 5 tenth [#20 k: int8 not null = 1]",
    ),
    (
        "join with three duplicates each",
        "Join inner on [(#3 = #20)]\n  FACTS\n  Scan 4 triples [#20 k: int8 not null = 1, #22 v: int4 not null = 3]",
    ),
];

struct Tables(HashMap<SourceId, Arc<dyn Source>>);

impl Sources for Tables {
    fn source(&self, id: SourceId) -> Arc<dyn Source> {
        self.0[&id].clone()
    }
}

fn source(types: &[TypeId], columns: Vec<Column>) -> Arc<dyn Source> {
    let rows = columns[0].len();
    let attributes = (1..).zip(types).map(|(attribute, ty)| SourceColumn {
        attribute,
        ty: Type::new(*ty),
        nullable: false,
    });
    let chunk = |from: usize| {
        let until = rows.min(from + VECTOR);
        Chunk::new(until - from, columns.iter().map(|column| column.vector(from, until)).collect())
    };
    Arc::new(MemorySource::new(attributes.collect(), (0..rows).step_by(VECTOR).map(chunk).collect()))
}

enum Column {
    Int64(Vec<i64>),
    Int32(Vec<i32>),
    Text(Vec<u16>, Vec<String>),
}

impl Column {
    fn len(&self) -> usize {
        match self {
            Column::Int64(values) => values.len(),
            Column::Int32(values) => values.len(),
            Column::Text(codes, _) => codes.len(),
        }
    }

    fn vector(&self, from: usize, until: usize) -> Vector {
        match self {
            Column::Int64(values) => {
                Vector::flat(Representation::Int64, Data::Int64(values[from..until].to_vec().into()), None)
            }
            Column::Int32(values) => {
                Vector::flat(Representation::Int32, Data::Int32(values[from..until].to_vec().into()), None)
            }
            Column::Text(codes, texts) => {
                let (mut strings, mut buffer) = (StringBuilder::new(0), Vec::new());
                for code in &codes[from..until] {
                    let start = buffer.len();
                    buffer.extend_from_slice(texts[usize::from(*code)].as_bytes());
                    strings.push(&mut buffer, start);
                }
                Vector::flat(Representation::Text, Data::Strings(strings.finish(buffer)), None)
            }
        }
    }
}

/// Keys from 0 in any order, each so often, with another column of it and a value.
fn keyed(random: &mut Random, keys: i64, each: usize) -> Arc<dyn Source> {
    let mut all: Vec<i64> = (0..keys).flat_map(|key| std::iter::repeat_n(key, each)).collect();
    for place in (1..all.len()).rev() {
        all.swap(place, random.uniform(0, place as i64) as usize);
    }
    let other = all.iter().map(|key| key % 1000).collect();
    let values = all.iter().map(|key| *key as i32 % 77).collect();
    let columns = vec![Column::Int64(all), Column::Int64(other), Column::Int32(values)];
    source(&[TypeId::INT8, TypeId::INT8, TypeId::INT4], columns)
}

fn tables() -> Tables {
    let mut random = Random::seeded(1);
    let mut uniform = |keys: i64| -> Vec<i64> { (0..ROWS).map(|_| random.uniform(0, keys - 1)).collect() };
    let (mixed, some) = (uniform(1_500_000), uniform(200_000));
    let codes = |keys: Vec<i64>| -> Vec<u16> { keys.into_iter().map(|key| key as u16).collect() };
    let (flags, status, names) = (codes(uniform(2)), codes(uniform(2)), codes(uniform(1000)));
    let texts = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect::<Vec<_>>();
    let few = some.iter().map(|key| key % 1000).collect();
    let columns = vec![
        Column::Int64((0..ROWS as i64).map(|row| row / 4).collect()),
        Column::Int64(mixed),
        Column::Int64(some),
        Column::Int64(few),
        Column::Text(flags, texts(&["A", "R"])),
        Column::Text(status, texts(&["F", "open"])),
        Column::Int32((0..ROWS as i32).map(|row| row % 50).collect()),
        Column::Text(names, (0..1000).map(|name| format!("Customer#{name:09}")).collect()),
    ];
    let (int8, int4, text) = (TypeId::INT8, TypeId::INT4, TypeId::TEXT);
    let facts = source(&[int8, int8, int8, int8, text, text, int4, text], columns);
    let mut random = Random::seeded(2);
    Tables(HashMap::from([
        (SourceId(1), facts),
        (SourceId(2), keyed(&mut random, 200_000, 1)),
        (SourceId(3), keyed(&mut random, 1_500_000, 1)),
        (SourceId(4), keyed(&mut random, 200_000, 3)),
        (SourceId(5), keyed(&mut random, 150_000, 1)),
    ]))
}

/// The whole plan: the rows are counted, and something of them is summed.
fn whole(plan: &str) -> String {
    let (top, output) = match plan.starts_with("Group") {
        true => ("Group aggregates [#30: int8 := count(), #31: int8 := count(#11)]", "#30, #31"),
        false if plan.contains("#22") => {
            ("Group aggregates [#30: int8 := sum(#7), #31: int8 := sum(#22)]", "#30, #31")
        }
        false => ("Group aggregates [#30: int8 := sum(#7)]", "#30"),
    };
    let plan = if plan.contains("FACTS") { plan.to_owned() } else { format!("{plan}\n  FACTS") };
    let lines: Vec<String> = plan.replace("FACTS", FACTS).lines().map(|line| format!("    {line}")).collect();
    format!("Output [{output}]\n  {top}\n{}", lines.join("\n"))
}

/// A line of the process's status, in kB.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim_matches([':', ' ', '\t', 'k', 'B']).parse().ok()).unwrap_or(0)
}

/// Nanoseconds of the processor that the process has used, to ten milliseconds.
fn used() -> f64 {
    let line = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = line.split(' ').collect();
    let ticks = |place: usize| fields.get(place).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(13) + ticks(14)) * 1e7
}

fn main() {
    let only = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let (tables, registry) = (tables(), Registry::built_in());
    println!("{:34} 1 worker, used,   MB  2 workers, used,  MB    checksum", "ns a row");
    for (name, plan) in PLANS.iter().filter(|(name, _)| name.contains(&only)) {
        let text = whole(plan);
        let plan = parse(&text, &TestFunctions).unwrap_or_else(|problem| panic!("{problem}\n{text}"));
        let program = Arc::new(Program::compile(&plan, &registry).expect("it is valid"));
        print!("{name:34}");
        let mut sums = Vec::new();
        for workers in [1, 2] {
            let (mut best, mut least, mut grown) = (f64::INFINITY, f64::INFINITY, 0);
            for _ in 0..3 {
                // The peak is counted anew.
                let _ = fs::write("/proc/self/clear_refs", "5");
                let before = status("VmRSS");
                let (start, used_before) = (Instant::now(), used());
                let options = Options { workers, ..Options::new(Budget::new(8 << 30)) };
                let reader = Reader {
                    snapshot: Snapshot { owner: Stamp::from_bits(0), read_time: Time(0) },
                    transaction: None,
                };
                let mut rows = Rows::start(&program, &tables, reader, &[], options).expect("it starts");
                let context = detached();
                while let Some(chunk) = rows.next(&context).expect("it runs") {
                    sums.clear();
                    for vector in chunk.vectors() {
                        let Datum::Int64(sum) = vector.datum(0) else { panic!("these are sums") };
                        sums.push(sum);
                    }
                }
                drop(rows);
                best = best.min(start.elapsed().as_secs_f64());
                least = least.min(used() - used_before);
                grown = grown.max(status("VmHWM").saturating_sub(before) / 1024);
            }
            print!("  {:7.1} {:6.1} {grown:5}", best * 1e9 / ROWS as f64, least / ROWS as f64);
        }
        println!("    {sums:?}");
    }
}
