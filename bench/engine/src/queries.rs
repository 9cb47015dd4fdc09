//! The analytical queries of TPC-H and CH-benCHmark: the files under `sql/`, which other engines
//! run as well.

macro_rules! queries {
    ($directory:literal: $($number:literal)*) => {
        [$(include_str!(concat!("../sql/", $directory, "/q", $number, ".sql"))),*]
    };
}

/// TPC-H's 22 queries with the validation parameters, number 1 first. Query 15 is its approved
/// variant with a common table expression; query 11's fraction is that of scale factor 1 at every
/// scale.
pub static TPCH: [&str; 22] = queries!(
    "tpch": "01" "02" "03" "04" "05" "06" "07" "08" "09" "10" "11" "12" "13" "14" "15" "16" "17" "18" "19" "20" "21" "22"
);

/// CH-benCHmark's 22 queries (Cole et al., "The mixed workload CH-benCHmark", 2011), number 1 first.
/// Upper bounds of dates are in 2030, because transactions enter the current date. The order of tables in
/// FROM is such that each joins with those before it.
pub static CH: [&str; 22] = queries!(
    "ch": "01" "02" "03" "04" "05" "06" "07" "08" "09" "10" "11" "12" "13" "14" "15" "16" "17" "18" "19" "20" "21" "22"
);
