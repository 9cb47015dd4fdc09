//! Whether two answers are the same.

use crate::engine::{Answer, Column, Row};
use crate::open::Open;
use firn_base::{SqlState, TextStyle, Type, TypeId, Value, text};

/// How rows are ordered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ordering {
    /// In any order.
    Open,
    /// By some of the columns; rows that are equal there are in any order.
    Keys(Vec<usize>),
    /// By the columns, with a LIMIT that may cut rows with equal keys.
    LimitedKeys(Vec<usize>),
    /// In one order only.
    Total,
}

/// How answers differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Difference {
    /// The engine panics.
    Failure(String),
    /// It has been canceled because it took too long.
    Slow,
    /// An error where PostgreSQL has none, or another one.
    Error(String),
    /// No error where PostgreSQL has one.
    NoError(SqlState),
    /// Columns have other names.
    Names,
    /// Columns have other types.
    Types,
    /// Parameters have other types.
    Parameters,
    /// Other rows.
    Rows,
    /// The same rows in another order.
    Order,
    /// Another tag: it has changed another number of rows.
    Tag,
    /// The changed table has other rows.
    Changes,
    /// The statements of a partition do not have the rows of the whole.
    Partition,
}

/// The result of a comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// The same rows.
    Same {
        /// Whether there are any.
        has_rows: bool,
    },
    /// The same error.
    SameError(SqlState),
    /// One side raises an error that depends on the order of evaluation, or both raise others.
    OpenError,
    /// PostgreSQL took too long, or failed by a mistake of its own: "failed to build any 6-way joins".
    NoOracle,
    /// A difference.
    Differ(Difference),
}

const NUMERIC: u32 = 1700;
const FLOAT8: u32 = 701;
const FLOAT4: u32 = 700;
const INTERVAL: u32 = 1186;
const BPCHAR: u32 = 1042;

/// Compares our result with PostgreSQL's. What SQL leaves open about errors is asked for only where it matters.
pub fn compare(
    ours: &Answer,
    theirs: &Answer,
    ordering: &Ordering,
    may_choose: bool,
    open: &dyn Fn() -> Open,
) -> Comparison {
    use Comparison::{Differ, NoOracle, OpenError, SameError};
    // Values that cannot be computed, and sub-queries of more than one row.
    let is_of_values = |state: &SqlState| matches!(&state.as_str()[..2], "22" | "21");
    let is_of_rows = |state: &SqlState| is_of_values(state) || state.as_str().starts_with("23");
    let may_be_missed = |state: &SqlState| is_of_values(state) && open().may_miss(state);
    match (ours, theirs) {
        (_, Answer::Error { state, .. }) if state.as_str() == "57014" => NoOracle,
        (Answer::Failure(message), _) => Differ(Difference::Failure(without_numbers(message))),
        (Answer::Rows { .. }, Answer::Error { state, .. }) if *state == SqlState::INTERNAL_ERROR => NoOracle,
        (_, Answer::Failure(message)) => panic!("the oracle has failed: {message}"),
        (Answer::Error { state, .. }, _) if state.as_str() == "57014" => Differ(Difference::Slow),
        (Answer::Error { state: ours, .. }, Answer::Error { state: theirs, .. }) if ours == theirs => {
            SameError(*ours)
        }
        (Answer::Error { state: ours, .. }, Answer::Error { state: theirs, .. })
            if is_of_rows(ours) && is_of_rows(theirs) && open().has_choice(ours, theirs) =>
        {
            OpenError
        }
        (Answer::Error { state, .. }, Answer::Rows { .. }) if may_be_missed(state) => OpenError,
        (Answer::Error { state, message }, other) => {
            let theirs = match other {
                Answer::Error { state, message } => format!(" for {} {message}", state.as_str()),
                _ => String::new(),
            };
            Differ(Difference::Error(without_numbers(&format!("{} {message}{theirs}", state.as_str()))))
        }
        (Answer::Rows { .. }, Answer::Error { state, .. }) if may_be_missed(state) => OpenError,
        (Answer::Rows { .. }, Answer::Error { state, .. }) => Differ(Difference::NoError(*state)),
        (
            Answer::Rows { columns, parameters, rows, tag, after },
            Answer::Rows {
                columns: their_columns,
                parameters: their_parameters,
                rows: their_rows,
                tag: their_tag,
                after: their_after,
            },
        ) => {
            let names = |columns: &[Column]| columns.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
            let types = |columns: &[Column]| columns.iter().map(|one| one.oid).collect::<Vec<_>>();
            if types(columns) != types(their_columns) {
                return Differ(Difference::Types);
            }
            if names(columns) != names(their_columns) {
                return Differ(Difference::Names);
            }
            if parameters != their_parameters {
                return Differ(Difference::Parameters);
            }
            let types = types(columns);
            let exact = |row: &Row| normal(row, &types, may_choose);
            let ours: Vec<Row> = rows.iter().map(exact).collect();
            let theirs: Vec<Row> = their_rows.iter().map(exact).collect();
            if let Some(difference) = rows_differ(&ours, &theirs, ordering) {
                return Differ(difference);
            }
            if !tag.is_empty() && tag != their_tag {
                return Differ(Difference::Tag);
            }
            let normal_after = |after: &Option<(Vec<u32>, Vec<Row>)>| {
                let (types, rows) = after.as_ref()?;
                let mut rows: Vec<Row> = rows.iter().map(|row| normal(row, types, may_choose)).collect();
                rows.sort_unstable();
                Some(rows)
            };
            if normal_after(after) != normal_after(their_after) {
                return Differ(Difference::Changes);
            }
            let has_changed = their_after.is_some() && !their_tag.ends_with(" 0");
            Comparison::Same { has_rows: !theirs.is_empty() || has_changed }
        }
    }
}

fn rows_differ(ours: &[Row], theirs: &[Row], ordering: &Ordering) -> Option<Difference> {
    let sorted = |rows: &[Row]| {
        let mut rows = rows.to_vec();
        rows.sort_unstable();
        rows
    };
    let keys = |rows: &[Row], keys: &[usize]| -> Vec<Row> {
        rows.iter().map(|row| keys.iter().map(|key| row[*key].clone()).collect()).collect()
    };
    match ordering {
        Ordering::LimitedKeys(columns) => {
            if keys(ours, columns) != keys(theirs, columns) {
                return Some(Difference::Rows);
            }
            // Rows with the keys of the first or last row may be others with the same keys.
            let ends = |rows: &[Row]| {
                let keys = keys(rows, columns);
                let is_inner = |key: &Row| Some(key) != keys.first() && Some(key) != keys.last();
                let inner = rows.iter().zip(&keys).filter(|(_, key)| is_inner(key));
                sorted(&inner.map(|(row, _)| row.clone()).collect::<Vec<_>>())
            };
            (ends(ours) != ends(theirs)).then_some(Difference::Rows)
        }
        _ if sorted(ours) != sorted(theirs) => Some(Difference::Rows),
        Ordering::Keys(columns) if keys(ours, columns) != keys(theirs, columns) => Some(Difference::Order),
        Ordering::Total if ours != theirs => Some(Difference::Order),
        _ => None,
    }
}

/// A row with doubles to 12 digits. If any of equal values may represent all of them, also with numerics without trailing zeros and
/// intervals as lengths.
fn normal(row: &Row, types: &[u32], may_choose: bool) -> Row {
    let cell = |(cell, ty): (&Option<String>, &u32)| {
        let shown = cell.as_ref()?;
        Some(match *ty {
            NUMERIC if may_choose && shown.contains('.') => {
                shown.trim_end_matches('0').trim_end_matches('.').to_owned()
            }
            INTERVAL if may_choose => {
                match text::parse_any(shown, Type::new(TypeId::INTERVAL), &TextStyle::DEFAULT) {
                    Ok(Value::Interval(value)) => {
                        let days = i128::from(value.months) * 30 + i128::from(value.days);
                        (days * 86_400_000_000_000 + i128::from(value.nanoseconds)).to_string()
                    }
                    _ => shown.clone(),
                }
            }
            FLOAT8 => match shown.parse::<f64>() {
                // Of 0 and -0, too, any may stand for both.
                Ok(0.0) if may_choose => "0".to_owned(),
                Ok(value) => format!("{value:.11e}"),
                Err(_) => shown.clone(),
            },
            FLOAT4 => match shown.parse::<f32>() {
                Ok(0.0) if may_choose => "0".to_owned(),
                Ok(value) => format!("{value:.5e}"),
                Err(_) => shown.clone(),
            },
            BPCHAR if may_choose => shown.trim_end_matches(' ').to_owned(),
            _ => shown.clone(),
        })
    };
    row.iter().zip(types).map(cell).collect()
}

/// A message without numbers: identifies a kind of difference.
fn without_numbers(message: &str) -> String {
    let mut out = String::new();
    for character in message.chars() {
        match character.is_ascii_digit() {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(character),
        }
    }
    out
}

/// Whether parts have the rows of a whole together; `None` if one of them has failed.
pub fn is_partitioned(whole: &Answer, parts: &[Answer], may_choose: bool) -> Option<bool> {
    let rows_of = |answer: &Answer| match answer {
        Answer::Rows { columns, rows, .. } => {
            let types: Vec<u32> = columns.iter().map(|column| column.oid).collect();
            Some(rows.iter().map(|row| normal(row, &types, may_choose)).collect::<Vec<Row>>())
        }
        _ => None,
    };
    let mut whole = rows_of(whole)?;
    let mut together: Vec<Row> = parts.iter().map(rows_of).collect::<Option<Vec<_>>>()?.concat();
    whole.sort_unstable();
    together.sort_unstable();
    Some(whole == together)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&[&str]]) -> Vec<Row> {
        rows.iter().map(|row| row.iter().map(|cell| Some((*cell).to_owned())).collect()).collect()
    }

    #[test]
    fn a_mistake_of_the_oracle_is_none_of_ours() {
        let rows = Answer::Rows {
            columns: Vec::new(),
            parameters: Vec::new(),
            rows: Vec::new(),
            tag: String::new(),
            after: None,
        };
        let mistake = || Answer::Error { state: SqlState::INTERNAL_ERROR, message: "no plan".to_owned() };
        let ordering = Ordering::Open;
        let compared = |ours: &Answer| compare(ours, &mistake(), &ordering, false, &|| Open::ALL);
        assert_eq!(compared(&rows), Comparison::NoOracle);
        assert!(matches!(compared(&Answer::Failure("a panic".to_owned())), Comparison::Differ(_)));
    }

    #[test]
    fn order_counts_where_order_by_decides_it() {
        let ours = rows(&[&["1", "a"], &["1", "b"], &["2", "c"]]);
        let theirs = rows(&[&["1", "b"], &["1", "a"], &["2", "c"]]);
        let turned = rows(&[&["2", "c"], &["1", "b"], &["1", "a"]]);
        assert_eq!(rows_differ(&ours, &theirs, &Ordering::Open), None);
        assert_eq!(rows_differ(&ours, &theirs, &Ordering::Keys(vec![0])), None);
        assert_eq!(rows_differ(&ours, &theirs, &Ordering::Total), Some(Difference::Order));
        assert_eq!(rows_differ(&ours, &turned, &Ordering::Keys(vec![0])), Some(Difference::Order));
    }

    #[test]
    fn a_limit_may_cut_rows_of_equal_keys() {
        let ours = rows(&[&["1", "a"], &["2", "x"], &["3", "c"]]);
        let theirs = rows(&[&["1", "a"], &["2", "x"], &["3", "d"]]);
        let other = rows(&[&["1", "a"], &["2", "y"], &["3", "d"]]);
        let limited = Ordering::LimitedKeys(vec![0]);
        assert_eq!(rows_differ(&ours, &theirs, &limited), None);
        assert_eq!(rows_differ(&ours, &other, &limited), Some(Difference::Rows));
        assert_eq!(rows_differ(&ours, &ours[..2], &limited), Some(Difference::Rows));
    }

    #[test]
    fn doubles_compare_to_twelve_digits_and_numerics_by_value_where_any_may_stand_for_all() {
        let row = |number: &str, double: &str| vec![Some(number.to_owned()), Some(double.to_owned())];
        let types = [NUMERIC, FLOAT8];
        assert_eq!(
            normal(&row("1.00", "0.1"), &types, true),
            normal(&row("1", "0.10000000000000002"), &types, true)
        );
        assert_ne!(normal(&row("1.00", "0.1"), &types, false), normal(&row("1", "0.1"), &types, false));
        assert_ne!(normal(&row("1", "0.1"), &types, true), normal(&row("1", "0.1000000001"), &types, true));
    }
}
