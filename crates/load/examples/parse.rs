//! Reads a CSV file of lineitem into columns on one thread and discards them: measures the time of parsing alone.
//!
//! `cargo run --release -p firn-load --example parse -- lineitem.csv [ROUNDS]`; the file has a header, as `tpchgen-cli`
//! writes it, and is in memory before the measurement begins.

use firn_base::{SqlType, TextStyle};
use firn_load::{CopyHeader, CopyOptions, CopyReader, RowFormat};
use std::time::Instant;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("which file?");
    let rounds: usize = arguments.next().map_or(5, |rounds| rounds.parse().expect("how many rounds?"));
    let file = std::fs::read(path).expect("the file can be read");
    let decimal = SqlType::Numeric { precision: 15, scale: 2 };
    let columns: Vec<(String, SqlType)> = [
        ("l_orderkey", SqlType::BigInt),
        ("l_partkey", SqlType::BigInt),
        ("l_suppkey", SqlType::BigInt),
        ("l_linenumber", SqlType::Integer),
        ("l_quantity", decimal),
        ("l_extendedprice", decimal),
        ("l_discount", decimal),
        ("l_tax", decimal),
        ("l_returnflag", SqlType::Char(1)),
        ("l_linestatus", SqlType::Char(1)),
        ("l_shipdate", SqlType::Date),
        ("l_commitdate", SqlType::Date),
        ("l_receiptdate", SqlType::Date),
        ("l_shipinstruct", SqlType::Char(25)),
        ("l_shipmode", SqlType::Char(10)),
        ("l_comment", SqlType::Varchar(Some(44))),
    ]
    .map(|(name, ty)| (name.to_owned(), ty))
    .into();
    let options = CopyOptions { header: CopyHeader::Yes, ..CopyOptions::new(RowFormat::Csv) };
    for _ in 0..rounds {
        let mut reader =
            CopyReader::new("COPY lineitem", columns.clone(), options.clone(), TextStyle::DEFAULT)
                .expect("options");
        let begin = Instant::now();
        let mut rows = 0;
        for piece in file.chunks(512 << 10) {
            reader.push(piece).expect("the file is right");
            while let Some(batch) = reader.next_batch() {
                rows += batch.rows;
            }
        }
        reader.finish().expect("the file is right");
        while let Some(batch) = reader.next_batch() {
            rows += batch.rows;
        }
        let seconds = begin.elapsed().as_secs_f64();
        println!("{rows} rows, {:.0} MB/s", file.len() as f64 / seconds / 1e6);
    }
}
