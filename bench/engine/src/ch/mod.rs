//! CH-benCHmark: TPC-C's tables and transactions, and 22 analytical queries in the
//! style of TPC-H over the same rows. Three small tables are added to the nine: suppliers, nations and
//! regions.
//!
//! Relations between the two parts are computed, not stored. Stock (w, i) is from supplier `w · i mod 10000`. The
//! first character of a customer's state is the key of the customer's nation, as ASCII. Hence there are 10,000
//! suppliers at every scale, and 62 nations, one per letter and digit.
//!
//! [`mixed`] runs transactions and queries at the same time.

pub mod mixed;

use crate::columns::Columns;
use crate::schema::{TableSchema, tables};
use crate::tpcc::load::insert_columns;
use firn_base::Result;
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_txn::Engine;

tables! {
    /// Suppliers of stock.
    supplier {
        columns {
            su_suppkey: Integer;
            su_name: Varchar(Some(25));
            su_address: Varchar(Some(40));
            su_nationkey: Integer;
            su_phone: Varchar(Some(15));
            su_acctbal: Numeric { precision: 12, scale: 2 };
            su_comment: Varchar(Some(101));
        }
        primary key (su_suppkey);
    }

    /// Nations.
    nation {
        columns {
            n_nationkey: Integer;
            n_name: Varchar(Some(25));
            n_regionkey: Integer;
            n_comment: Varchar(Some(152));
        }
        primary key (n_nationkey);
    }

    /// Regions.
    region {
        columns {
            r_regionkey: Integer;
            r_name: Varchar(Some(55));
            r_comment: Varchar(Some(152));
        }
        primary key (r_regionkey);
    }
}

/// The three tables that are added to TPC-C's nine.
pub static TABLES: [&TableSchema; 3] = [&region::SCHEMA, &nation::SCHEMA, &supplier::SCHEMA];

/// Suppliers at every scale: the divisor in the queries.
pub const SUPPLIERS: i32 = 10_000;

const REGIONS: [&str; 5] = ["Africa", "America", "Asia", "Europe", "Oceania"];

/// Nations in the order of their keys (0–9, A–Z, a–z), each with its region.
const NATIONS: [(&str, i64); 62] = [
    ("Algeria", 0),
    ("Angola", 0),
    ("Botswana", 0),
    ("Cameroon", 0),
    ("Egypt", 0),
    ("Ethiopia", 0),
    ("Ghana", 0),
    ("Kenya", 0),
    ("Morocco", 0),
    ("Mozambique", 0),
    ("Namibia", 0),
    ("Nigeria", 0),
    ("Rwanda", 0),
    ("Senegal", 0),
    ("Tanzania", 0),
    ("Tunisia", 0),
    ("Argentina", 1),
    ("Bolivia", 1),
    ("Brazil", 1),
    ("Canada", 1),
    ("Chile", 1),
    ("Colombia", 1),
    ("Costa Rica", 1),
    ("Cuba", 1),
    ("Ecuador", 1),
    ("Mexico", 1),
    ("Panama", 1),
    ("Peru", 1),
    ("United States", 1),
    ("Uruguay", 1),
    ("Bangladesh", 2),
    ("Cambodia", 2),
    ("China", 2),
    ("India", 2),
    ("Indonesia", 2),
    ("Japan", 2),
    ("Jordan", 2),
    ("Malaysia", 2),
    ("Mongolia", 2),
    ("Nepal", 2),
    ("South Korea", 2),
    ("Thailand", 2),
    ("Vietnam", 2),
    ("Austria", 3),
    ("Belgium", 3),
    ("Czechia", 3),
    ("Denmark", 3),
    ("Finland", 3),
    ("France", 3),
    ("Germany", 3),
    ("Greece", 3),
    ("Hungary", 3),
    ("Ireland", 3),
    ("Italy", 3),
    ("Netherlands", 3),
    ("Norway", 3),
    ("Poland", 3),
    ("Portugal", 3),
    ("Spain", 3),
    ("Australia", 4),
    ("Fiji", 4),
    ("New Zealand", 4),
];

/// Makes the three tables and fills them.
pub fn load(engine: &Arc<Engine>, seed: u64) -> Result<()> {
    for table in TABLES {
        table.create(engine)?;
    }
    for (table, rows) in generate(seed) {
        insert_columns(engine, table, &rows.finish())?;
    }
    Ok(())
}

/// The rows of the three tables.
fn generate(seed: u64) -> [(&'static TableSchema, Columns); 3] {
    let mut random = Random::seeded(seed);
    let mut regions = Columns::new(&region::SCHEMA);
    for (key, name) in (0..).zip(REGIONS) {
        regions.number(key).text(name).text(&words(&mut random, 40));
    }
    let mut nations = Columns::new(&nation::SCHEMA);
    for (key, (name, region)) in nation_keys().zip(NATIONS) {
        nations.number(key).text(name).number(region).text(&words(&mut random, 60));
    }
    let keys: Vec<i64> = nation_keys().collect();
    let mut suppliers = Columns::new(&supplier::SCHEMA);
    for key in 0..SUPPLIERS {
        let nation = keys[random.uniform(0, keys.len() as i64 - 1) as usize];
        // In TPC-H five suppliers of 10,000 have complaints; query 16 looks for the word.
        let mut comment = words(&mut random, 80);
        if random.uniform(1, 2_000) == 1 {
            comment.push_str(" bad");
        }
        let phone = format!("{}-{:011}", nation, random.uniform(0, 99_999_999_999));
        suppliers.number(i64::from(key)).text(&format!("Supplier#{key:09}")).text(&words(&mut random, 30));
        suppliers.number(nation).text(&phone).number(random.uniform(-99_999, 999_999)).text(&comment);
    }
    [(&region::SCHEMA, regions), (&nation::SCHEMA, nations), (&supplier::SCHEMA, suppliers)]
}

/// The ASCII codes of digits and letters, in order.
fn nation_keys() -> impl Iterator<Item = i64> {
    (b'0'..=b'9').chain(b'A'..=b'Z').chain(b'a'..=b'z').map(i64::from)
}

/// Some words, `longest` characters at most.
fn words(random: &mut Random, longest: usize) -> String {
    const WORDS: [&str; 12] = [
        "cold", "deep", "drift", "even", "fast", "granular", "last", "packed", "quiet", "ridge", "slope",
        "still",
    ];
    let mut text = String::new();
    loop {
        let word = WORDS[random.uniform(0, WORDS.len() as i64 - 1) as usize];
        if text.len() + 1 + word.len() > longest {
            return text;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_nation_for_every_first_character_of_a_state() {
        assert_eq!(nation_keys().count(), NATIONS.len());
        let [regions, nations, suppliers] = generate(1);
        let counts = [regions.1.rows(), nations.1.rows(), suppliers.1.rows()];
        assert_eq!(counts, [5, 62, SUPPLIERS as usize]);
    }
}
