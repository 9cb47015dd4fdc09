//! Columns whose values have no code of their own: numerics without a common scale, arrays, oids and names.

use super::{BINARY, CSV, JSON, TEXT};
use crate::{CopyOptions, CopyReader, CopyWriter, RowFormat};
use arrow_array::ArrayRef;
use firn_base::{SqlState, TextStyle, Type, TypeId};

const STYLE: TextStyle = TextStyle::DEFAULT;

fn columns() -> Vec<(String, Type)> {
    let types = [
        Type::new(TypeId::NUMERIC),
        Type::numeric(3, -2),
        Type::new(TypeId::INT4_ARRAY),
        Type::new(TypeId::TEXT_ARRAY),
        Type::new(TypeId::NUMERIC_ARRAY),
        Type::new(TypeId::OID),
        Type::new(TypeId::NAME),
    ];
    types.iter().map(|ty| (ty.to_string(), *ty)).collect()
}

fn read(format: RowFormat, file: &[u8]) -> firn_base::Result<Vec<Vec<ArrayRef>>> {
    let mut reader = CopyReader::new("COPY t", columns(), CopyOptions::new(format), STYLE)?;
    reader.push(file)?;
    reader.finish()?;
    Ok(std::iter::from_fn(|| reader.next_batch()).map(|batch| batch.columns).collect())
}

fn written(format: RowFormat, batches: &[Vec<ArrayRef>]) -> Vec<u8> {
    let writer = CopyWriter::new(columns(), CopyOptions::new(format), STYLE).unwrap();
    let mut file = Vec::new();
    writer.write_header(&mut file);
    batches.iter().for_each(|batch| writer.write_rows(batch, batch[0].len(), &mut file));
    writer.write_trailer(&mut file);
    file
}

/// Values that are read in the text format are written unchanged, and read back from every other format.
#[test]
fn values_go_through_every_format() {
    let text = "1.500\t123\t{1,NULL,-3}\t{a,\"b,\\\\\"c\",\"\"}\t{1.0,2.00}\t4294967295\tfirn\n\
                NaN\t-100\t{}\t[0:1]={x,y}\t{}\t0\t\n\
                \\N\t\\N\t\\N\t\\N\t\\N\t\\N\t\\N\n\
                99999999999999999999999999.0000000001\t0\t{{1,2},{3,4}}\t{NULL}\t{Infinity}\t7\t,\n";
    let shown = text.replacen("\t123\t", "\t100\t", 1);
    let batches = read(TEXT, text.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(written(TEXT, &batches)).unwrap(), shown);
    for format in [CSV, JSON, BINARY] {
        let again = read(format, &written(format, &batches)).unwrap();
        assert_eq!(again, batches, "{format:?}");
    }
}

#[test]
fn a_number_is_one_in_json_unless_json_has_none() {
    let batches = read(TEXT, b"1.500\t1\t{1}\t{}\t{}\t7\tx\nInfinity\t1\t{}\t{}\t{}\t7\tx\n").unwrap();
    let json = String::from_utf8(written(JSON, &batches)).unwrap();
    let mut lines = json.lines();
    assert!(
        lines.next().unwrap().starts_with("{\"numeric\":1.500,\"numeric(3,-2)\":0,\"integer[]\":\"{1}\",")
    );
    assert!(lines.next().unwrap().starts_with("{\"numeric\":\"Infinity\","));
}

#[test]
fn errors_have_places_and_limits_are_enforced() {
    let error = |fields: &str| {
        let error = read(TEXT, format!("{fields}\n").as_bytes()).unwrap_err();
        (error.state(), error.context().unwrap_or_default().to_owned())
    };
    let (state, context) = error("x\t1\t{}\t{}\t{}\t7\tx");
    assert_eq!(
        (state, context.as_str()),
        (SqlState::INVALID_TEXT_REPRESENTATION, "COPY t, line 1, column numeric: \"x\"")
    );
    assert_eq!(error("1\t99999999\t{}\t{}\t{}\t7\tx").0, SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
    assert_eq!(error("1\t1\t{1\t{}\t{}\t7\tx").0, SqlState::INVALID_TEXT_REPRESENTATION);
    assert_eq!(error("1\t1\t{}\t{}\t{}\t4294967296\tx").0, SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
}
