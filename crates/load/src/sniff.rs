//! Infers the format of a CSV file from its beginning: delimiter, quotes, header, and the names and types of its columns.
//!
//! Each common delimiter is tried, with each kind of quotes and escapes. The reading wins by which most
//! records have as many fields as their neighbours. Of equals the reading wins by which all fields that begin with a quote end
//! with theirs, and most of them do; then the one that makes more fields. A reading that divides fields which another one reads
//! as quoted is excluded before. Quotes open at the beginnings of fields, or else anywhere if only blanks precede
//! them; other quotes are literal. A column has the first type as which all its fields in the sample can be
//! read. The first record is a header if it does not fit the types of the others, or, where all columns are text, if it looks
//! like names.

use crate::encoding::Encoding;
use crate::fault::{record_context, with_encoding_hint};
use crate::field::unquote;
use crate::options::{CopyHeader, CopyOptions, NO_QUOTE, QuotesOpen, RowFormat};
use crate::records::leading_blank_lines;
use crate::structure::Structure;
use firn_base::binary::utf8;
use firn_base::{Result, SqlType, TextStyle, datetime, text};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

/// The part of a file that is examined.
pub const SAMPLE_BYTES: usize = 1 << 20;

/// The most records that are examined for types.
const MOST_RECORDS: usize = 10_000;

/// The maximal length of names in PostgreSQL.
const MOST_NAME_BYTES: usize = 63;

/// Delimiters, the most likely ones first.
const DELIMITERS: [u8; 4] = [b',', b'\t', b';', b'|'];

/// Quotes and their escapes, the most likely ones first. If no quotes are better than none, fields have none.
const QUOTES: [(u8, u8); 5] =
    [(b'"', b'"'), (b'"', b'\\'), (b'\'', b'\''), (b'\'', b'\\'), (NO_QUOTE, NO_QUOTE)];

/// Where quotes open, the most likely first.
const OPENINGS: [QuotesOpen; 2] = [QuotesOpen::AtBeginning, QuotesOpen::Anywhere];

/// The properties of a file that are given.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Known {
    /// The delimiter of fields.
    pub delimiter: Option<u8>,
    /// The quote around fields.
    pub quote: Option<u8>,
    /// The escape of a quote; the quote itself if only that is known.
    pub escape: Option<u8>,
    /// The text of NULL; the empty one, if not known.
    pub null: Option<String>,
    /// Whether the first record names the columns.
    pub header: Option<bool>,
    /// The number of lines at the beginning that are not records.
    pub skip: u64,
    /// Whether all columns are text, whatever they look like.
    pub all_text: bool,
    /// All columns, if they are known: then neither names nor types are inferred.
    pub columns: Option<Vec<(String, SqlType)>>,
    /// The encoding of the file, of which the sample is UTF-8.
    pub encoding: Encoding,
}

/// The format of a file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sniffed {
    /// How to read it in a query; COPY would end at a line `\.`.
    pub options: CopyOptions,
    /// Its columns.
    pub columns: Vec<(String, SqlType)>,
}

/// The sample without some lines.
fn skipped(sample: &[u8], lines: u64) -> &[u8] {
    match lines.checked_sub(1) {
        None => sample,
        Some(last) => {
            let end = memchr::memchr_iter(b'\n', sample).nth(usize::try_from(last).unwrap_or(usize::MAX));
            end.map_or(&[], |end| &sample[end + 1..])
        }
    }
}

/// Examines the beginning of a file, up to [`SAMPLE_BYTES`] or the whole file. An empty file has no columns.
pub fn sniff(sample: &[u8], known: &Known) -> Sniffed {
    let quotes: Vec<(u8, u8)> = match (known.quote, known.escape) {
        (None, None) => QUOTES.to_vec(),
        (quote, escape) => {
            let quote = quote.unwrap_or(b'"');
            vec![(quote, escape.unwrap_or(quote))]
        }
    };
    let is_whole = sample.len() < SAMPLE_BYTES;
    let mut sample = skipped(sample, known.skip).to_vec();
    if is_whole && sample.last().is_some_and(|last| *last != b'\n') {
        sample.push(b'\n');
    }
    let delimiters = known.delimiter.map_or(DELIMITERS.to_vec(), |delimiter| vec![delimiter]);
    let is_known = |delimiter: u8| known.delimiter == Some(delimiter);
    let candidates = quotes.iter().flat_map(|(quote, escape)| {
        let apart = move |delimiter: &u8| is_known(*delimiter) || ![quote, escape].contains(&delimiter);
        delimiters.iter().copied().filter(apart).map(move |delimiter| (delimiter, *quote, *escape))
    });
    let dialects = OPENINGS.into_iter().flat_map(|quotes_open| {
        candidates.clone().map(move |(delimiter, quote, escape)| CopyOptions {
            delimiter,
            quote,
            escape,
            quotes_open,
            ..CopyOptions::new(RowFormat::Csv)
        })
    });
    // No quote follows a blank where there are none.
    let is_behind_blank = |quote: u8| sample.windows(2).any(|pair| pair == [b' ', quote]);
    let behind_blanks = QUOTES
        .map(|(quote, _)| quote)
        .into_iter()
        .chain(known.quote)
        .filter(|quote| is_behind_blank(*quote))
        .collect::<Vec<_>>();
    let dialects = dialects.filter(|options| {
        options.quotes_open == QuotesOpen::AtBeginning || behind_blanks.contains(&options.quote)
    });
    let layouts = dialects.map(|options| Layout::of(&sample, is_whole, &options));
    let is_possible =
        |layout: &Layout| layout.is_possible() && (known.quote.is_some() || !layout.joins_apostrophes());
    let layouts: Vec<Layout> = layouts.filter(is_possible).collect();
    // The first of equals.
    let layout = layouts
        .iter()
        .filter(|layout| !layouts.iter().any(|other| other.is_torn_by(layout)))
        .reduce(|best, next| if next.score() > best.score() { next } else { best });
    let layout = layout.expect("no layout tears the records of double quotes, nor those of given quotes");
    let mut options = CopyOptions {
        delimiter: layout.delimiter,
        quote: layout.quote,
        escape: layout.escape,
        quotes_open: layout.quotes_open,
        passes_over_blank: true,
        ends_at_marker: false,
        null: known.null.clone().unwrap_or_default(),
        skip: known.skip,
        encoding: known.encoding,
        ..CopyOptions::new(RowFormat::Csv)
    };
    let records = layout.read(&sample, &options);
    let (has_header, mut types) = match known.header {
        Some(given) => (given, types_of(records.get(usize::from(given)..).unwrap_or_default(), layout.width)),
        // A first record of another width is neither a header nor a row.
        None if layout.first_width != layout.width => (false, types_of(&records, layout.width)),
        None => detect_header(&records, layout.width),
    };
    if let Some(columns) = &known.columns {
        // A header mostly has these names, even where all columns are text.
        let is_named = |(field, (name, _)): (&Field, &(String, SqlType))| {
            given_name(field).is_some_and(|given| given.to_lowercase() == name.to_lowercase())
        };
        let names_them = records
            .first()
            .is_some_and(|first| first.len() == columns.len() && first.iter().zip(columns).all(is_named));
        // Where all columns are text, a record with other names may be the first row, which must not be lost.
        let tells = columns.iter().any(|(_, ty)| *ty != SqlType::Text);
        let has_header = known.header.unwrap_or(names_them || has_header && tells);
        options.header = if has_header { CopyHeader::Yes } else { CopyHeader::No };
        return Sniffed { options, columns: columns.clone() };
    }
    if known.all_text {
        types.fill(SqlType::Text);
    }
    options.header = if has_header { CopyHeader::Yes } else { CopyHeader::No };
    let names = names_of(records.first().filter(|_| has_header), layout.width);
    Sniffed { options, columns: names.into_iter().zip(types).collect() }
}

/// The first record of a CSV file, taken for a header.
#[derive(PartialEq, Eq, Debug)]
pub struct Header {
    /// The names of the columns, as [`sniff`] makes them.
    pub names: Vec<String>,
    /// Which of them it names. The others are named by their positions, whatever the record is.
    pub is_named: Vec<bool>,
}

/// The first record of a CSV file; `None` if it does not end in the sample.
pub fn header(sample: &[u8], options: &CopyOptions) -> Option<Header> {
    let sample = skipped(sample, options.skip);
    let blank = leading_blank_lines(sample)
        .last()
        .map_or(0, |last| last.end + 1 + usize::from(sample[last.end] == b'\r'));
    if options.passes_over_blank && blank > 0 {
        // In a file of one column they are rows like others.
        let behind = first_record(&sample[blank..], options);
        if behind.as_ref().is_some_and(|header| header.names.len() > 1) {
            return behind;
        }
    }
    first_record(sample, options)
}

fn first_record(sample: &[u8], options: &CopyOptions) -> Option<Header> {
    let mut structure = Structure::default();
    structure.find(sample, options.dialect());
    let mut record = Vec::new();
    let mut scratch = Vec::new();
    for ends in structure.ends().windows(2) {
        let (field, is_last) = field(sample, ends, options, &mut scratch);
        record.push(field);
        if is_last {
            let is_named = record.iter().map(|field| given_name(field).is_some()).collect();
            return Some(Header { names: names_of(Some(&record), record.len()), is_named });
        }
    }
    None
}

/// The place of the first record.
fn header_place(sample: &[u8], options: &CopyOptions) -> Range<usize> {
    let text = skipped(sample, options.skip);
    let blank = leading_blank_lines(text)
        .last()
        .map_or(0, |last| last.end + 1 + usize::from(text[last.end] == b'\r'));
    let text = &text[blank..];
    let mut structure = Structure::default();
    structure.find(text, options.dialect());
    let end = structure.ends()[1..].iter().find(|end| text[**end as usize] == b'\n');
    let begin = sample.len() - text.len();
    begin..end.map_or(sample.len(), |end| begin + *end as usize)
}

/// Whether a file has more than a header, so that types can be inferred.
pub fn has_rows(sample: &[u8], options: &CopyOptions) -> bool {
    let begin = match options.header {
        CopyHeader::No => sample.len() - skipped(sample, options.skip).len(),
        _ => header_place(sample, options).end,
    };
    !sample[begin..].trim_ascii().is_empty()
}

/// Refuses a file whose first record, a header, is no text: it has no names, and what follows may be no CSV file. A record that
/// does not end in the sample has no names either, and may be cut off within a character.
pub fn check_header(file: &str, sample: &[u8], options: &CopyOptions) -> Result<()> {
    let place = header_place(sample, options);
    if place.end == sample.len() && sample.len() >= SAMPLE_BYTES {
        return Ok(());
    }
    let line = 1 + memchr::memchr_iter(b'\n', &sample[..place.end]).count() as u64;
    let record = &sample[place];
    utf8(record).map(|_| ()).map_err(|error| {
        with_encoding_hint(error, record, options).with_context(record_context(file, line, record))
    })
}

/// How a delimiter and quotes divide a sample.
struct Layout {
    delimiter: u8,
    quote: u8,
    escape: u8,
    quotes_open: QuotesOpen,
    /// How many fields most records have.
    width: usize,
    /// How many fields the first record has.
    first_width: usize,
    /// How many records have this width, of how many.
    alike: usize,
    records: usize,
    /// How many fields are quoted, and whether some begin with a quote and do not end with theirs, or the sample ends in quotes that do not begin a field.
    quoted: usize,
    has_stray_quotes: bool,
    /// Whether some of them have blanks before the quotes; and whether others have quotes in their middle.
    has_blanks_before: bool,
    has_inner_quotes: bool,
    /// Whether some contain line feeds, or the sample ends in quotes after one.
    has_lines: bool,
    /// Whether the first record has several fields, all of them quoted and without line feeds.
    begins_quoted: bool,
}

impl Layout {
    fn of(sample: &[u8], is_whole: bool, options: &CopyOptions) -> Layout {
        let CopyOptions { delimiter, quote, escape, quotes_open, .. } = *options;
        let mut structure = Structure::default();
        structure.find(sample, options.dialect());
        let mut widths = BTreeMap::new();
        let (mut width, mut first_width, mut blank) = (0, 0, 0);
        let (mut quoted, mut has_stray_quotes) = (0, false);
        let (mut has_blanks_before, mut has_inner_quotes) = (false, false);
        let (mut has_lines, mut begins_quoted) = (false, false);
        for ends in structure.ends().windows(2) {
            let (begin, end) = (ends[0].wrapping_add(1) as usize, ends[1] as usize);
            width += 1;
            let mut field = &sample[begin..end];
            if quotes_open == QuotesOpen::Anywhere && field.first() == Some(&b' ') {
                field = field.trim_ascii_start();
                has_blanks_before |= field.first() == Some(&quote);
            }
            if field.first() == Some(&quote) {
                let is_closed = stands_in_quotes(field, quote, escape);
                quoted += usize::from(is_closed);
                has_stray_quotes |= !is_closed;
                has_lines |= field.contains(&b'\n');
            } else if quotes_open == QuotesOpen::Anywhere {
                has_inner_quotes |= field.contains(&quote);
            }
            if sample[end] == b'\n' {
                match width == 1 && matches!(field, [] | [b'\r']) {
                    true => blank += 1,
                    false => {
                        if first_width == 0 {
                            first_width = width;
                            begins_quoted = width > 1 && quoted == width && !has_lines;
                        }
                        *widths.entry(width).or_insert(0) += 1;
                    }
                }
                width = 0;
            }
        }
        // After a quote that is not closed there are no records. If it begins a field, the sample probably ends within that field.
        let end = structure.ends().last().map_or(0, |end| end.wrapping_add(1) as usize);
        has_stray_quotes |= is_whole && sample.get(end).is_some_and(|first| *first != quote);
        has_lines |= sample[end.min(sample.len())..].contains(&b'\n');
        if widths.is_empty() && blank > 0 {
            // Blank lines count as records only where there are no others.
            widths.insert(1, blank);
            first_width = 1;
        }
        let records = widths.values().sum();
        let (width, alike) = widths.into_iter().max_by_key(|(_, records)| *records).unwrap_or((0, 0));
        Layout {
            delimiter,
            quote,
            escape,
            quotes_open,
            width,
            first_width,
            alike,
            records,
            quoted,
            has_stray_quotes,
            has_blanks_before,
            has_inner_quotes,
            has_lines,
            begins_quoted,
        }
    }

    /// Whether this reading is possible: quotes do not open within fields, except for those after blanks alone.
    fn is_possible(&self) -> bool {
        let opens_behind_blanks = self.has_blanks_before && !self.has_stray_quotes && !self.has_inner_quotes;
        self.quotes_open == QuotesOpen::AtBeginning || opens_behind_blanks
    }

    /// Whether single quotes join lines to one field that more likely have apostrophes, as `'tis` in one and `rockin'` in another:
    /// rows would be lost without an error. A first record whose fields all have such quotes shows that they are quotes.
    fn joins_apostrophes(&self) -> bool {
        self.quote == b'\'' && self.has_lines && !self.begins_quoted
    }

    /// A score: the higher the better.
    fn score(&self) -> (bool, usize, bool, usize, bool, usize) {
        let alike = self.alike * 1000 / self.records.max(1);
        // Apostrophes around no field are letters.
        let is_likely = self.quote != b'\'' || self.quoted > 0;
        (self.width > 1, alike, !self.has_stray_quotes, self.quoted, is_likely, self.width)
    }

    /// Whether another reading by the same delimiter takes double quotes for data, and so divides fields that are quoted here. For
    /// single quotes this is unknown: words begin and end with apostrophes.
    fn is_torn_by(&self, other: &Layout) -> bool {
        let is_well_quoted = self.quoted > 0 && !self.has_stray_quotes && self.alike * 2 > self.records;
        let divides_more = match self.width {
            // All delimiters are inside quotes.
            1 => self.alike == self.records && other.width > 1,
            // Here some records have fewer fields than most; by the other reading they have as many.
            _ => other.quoted == 0 && other.width >= self.width,
        };
        self.quote == b'"'
            && other.quote != b'"'
            && self.delimiter == other.delimiter
            && is_well_quoted
            && divides_more
    }

    /// The first records that have the width of most.
    fn read(&self, sample: &[u8], options: &CopyOptions) -> Vec<Vec<Field>> {
        let mut structure = Structure::default();
        structure.find(sample, options.dialect());
        let mut records = Vec::new();
        let mut record = Vec::new();
        let mut scratch = Vec::new();
        for ends in structure.ends().windows(2) {
            let (field, is_last) = field(sample, ends, options, &mut scratch);
            record.push(field);
            if is_last {
                let record = std::mem::take(&mut record);
                if record.len() == self.width {
                    records.push(record);
                }
                if records.len() == MOST_RECORDS {
                    break;
                }
            }
        }
        records
    }
}

/// Whether a field that begins with a quote ends with the one that closes it.
fn stands_in_quotes(field: &[u8], quote: u8, escape: u8) -> bool {
    let field = field.strip_suffix(b"\r").unwrap_or(field);
    let mut at = 1;
    while at < field.len() {
        match field[at] {
            byte if byte == escape
                && field.get(at + 1).is_some_and(|next| [quote, escape].contains(next)) =>
            {
                at += 2;
            }
            byte if byte == quote => return at + 1 == field.len(),
            _ => at += 1,
        }
    }
    false
}

/// The field between two ends, and whether it is the last of its record.
fn field(sample: &[u8], ends: &[u32], options: &CopyOptions, scratch: &mut Vec<u8>) -> (Field, bool) {
    let raw = &sample[ends[0].wrapping_add(1) as usize..ends[1] as usize];
    let is_last = sample[ends[1] as usize] == b'\n';
    let raw = if is_last { raw.strip_suffix(b"\r").unwrap_or(raw) } else { raw };
    let is_null = *raw == *options.null.as_bytes();
    unquote(raw, options, scratch);
    ((!is_null).then(|| String::from_utf8_lossy(scratch).into_owned()), is_last)
}

/// A field, unless it is NULL.
type Field = Option<String>;

/// Types that are inferred from fields, the narrower ones first. A field of none of them is text.
const TYPES: [SqlType; 7] = [
    SqlType::Boolean,
    SqlType::BigInt,
    SqlType::Double,
    SqlType::Date,
    SqlType::Time,
    SqlType::Timestamp,
    SqlType::TimestampTz,
];

/// Whether a field looks like a value of one of [`TYPES`]; blanks around it are ignored.
fn looks_like(field: &str, ty: SqlType) -> bool {
    let field = field.trim_ascii();
    let unsigned = field.strip_prefix(['-', '+']).unwrap_or(field);
    // Numbers with leading zeros are codes, and not counted.
    let is_number = unsigned.bytes().any(|byte| byte.is_ascii_digit())
        && unsigned.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'))
        && !(unsigned.starts_with('0') && unsigned.as_bytes().get(1).is_some_and(u8::is_ascii_digit));
    let is_date = |text: &str| {
        text.len() == 10
            && text.as_bytes()[4] == b'-'
            && datetime::parse_date(text, &TextStyle::DEFAULT).is_ok()
    };
    // A date among timestamps is the beginning of its day.
    let is_moment = || {
        let (date, time) = field.split_at_checked(10)?;
        let time = time.strip_prefix([' ', 'T']).or(time.is_empty().then_some(""))?;
        (is_date(date) && (time.is_empty() || time.as_bytes().get(2) == Some(&b':'))).then_some(time)
    };
    let names_zone = |time: &str| time.contains(['+', '-', 'Z', 'z']);
    match ty {
        SqlType::Boolean => field.eq_ignore_ascii_case("true") || field.eq_ignore_ascii_case("false"),
        SqlType::BigInt => is_number && text::parse_integer::<i64>(field, ty).is_ok(),
        // The digits of an integer that is too long must not be lost.
        SqlType::Double => {
            is_number
                && text::parse_double(field).is_ok()
                && (field.len() < 19 || field.contains(['.', 'e', 'E']))
        }
        SqlType::Date => is_date(field),
        SqlType::Time => {
            field.len() >= 8
                && field.as_bytes()[2] == b':'
                && field.as_bytes()[5] == b':'
                && datetime::parse_time(field).is_ok()
                && !names_zone(field)
        }
        SqlType::Timestamp => {
            is_moment().is_some_and(|time| !names_zone(time))
                && datetime::parse_timestamp(field, &TextStyle::DEFAULT).is_ok()
        }
        SqlType::TimestampTz => {
            is_moment().is_some() && datetime::parse_timestamptz(field, &TextStyle::DEFAULT).is_ok()
        }
        _ => unreachable!("{ty} is not inferred from fields"),
    }
}

/// The first type for each column that all its fields look like.
fn types_of(records: &[Vec<Field>], width: usize) -> Vec<SqlType> {
    let fields = |column: usize| records.iter().filter_map(move |record| record[column].as_deref());
    let ty = |column: usize| {
        let fits = |ty: &&SqlType| fields(column).all(|field| looks_like(field, **ty));
        fields(column).next().and_then(|_| TYPES.iter().find(fits)).copied().unwrap_or(SqlType::Text)
    };
    (0..width).map(ty).collect()
}

/// Whether the first record is a header, and the types of the columns.
fn detect_header(records: &[Vec<Field>], width: usize) -> (bool, Vec<SqlType>) {
    let Some((first, rest)) = records.split_first() else { return (false, types_of(records, width)) };
    let types = types_of(rest, width);
    let mut columns = first.iter().zip(&types).enumerate();
    let is_header = match types.iter().all(|ty| *ty == SqlType::Text) {
        // A name does not occur again as a value.
        true => columns.all(|(column, (field, _))| {
            let is_name = |name: &&String| {
                let letter = |character: char| character.is_alphabetic() || character == '_';
                name.starts_with(letter) && !rest.iter().any(|record| record[column].as_ref() == Some(*name))
            };
            field.as_ref().filter(is_name).is_some()
        }),
        false => {
            columns.any(|(_, (field, ty))| {
                let is_other = |field: &String| *ty != SqlType::Text && !looks_like(field, *ty);
                field.as_ref().is_some_and(is_other)
            }) && types_of(&records[..1], width).iter().all(|ty| *ty == SqlType::Text)
        }
    };
    if is_header { (true, types) } else { (false, types_of(records, width)) }
}

/// Names for columns: those of the header, made distinct, or numbers.
fn names_of(header: Option<&Vec<Field>>, width: usize) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(width);
    let (mut seen, mut numbers) = (HashSet::new(), HashMap::new());
    for column in 0..width {
        let given = header.and_then(|header| given_name(&header[column]));
        let stem = given.map_or_else(|| format!("column{}", column + 1), |given| name_of(given, ""));
        let mut name = stem.clone();
        while !seen.insert(name.clone()) {
            let number = numbers.entry(stem.clone()).or_insert(0);
            *number += 1;
            name = name_of(&stem, &format!("_{number}"));
        }
        names.push(name);
    }
    names
}

/// The name that a field of a header gives to its column, if any.
fn given_name(field: &Field) -> Option<&str> {
    field.as_deref().map(str::trim).filter(|name| !name.is_empty())
}

/// As much of a name as fits before the suffix that distinguishes it.
fn name_of(stem: &str, suffix: &str) -> String {
    let mut end = stem.len().min(MOST_NAME_BYTES - suffix.len());
    while !stem.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{suffix}", &stem[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `delimiter, header: name type, …`
    fn seen(file: &str) -> String {
        seen_with(file, &Known::default())
    }

    fn seen_with(file: &str, known: &Known) -> String {
        let Sniffed { options, columns } = sniff(file.as_bytes(), known);
        let columns: Vec<String> = columns.iter().map(|(name, ty)| format!("{name} {ty}")).collect();
        let header = if options.header == CopyHeader::Yes { "header" } else { "no header" };
        format!("{:?} {header}: {}", char::from(options.delimiter), columns.join(", "))
    }

    #[test]
    fn delimiters_headers_and_types_are_seen() {
        for (file, expected) in [
            ("id,name\n1,a\n2,b\n", "',' header: id bigint, name text"),
            ("1,a\r\n2,b", "',' no header: column1 bigint, column2 text"),
            ("a;b\n1,5;x\n2,5;y\n", "';' header: a text, b text"),
            ("a\tb\n1\t2.5\n\t1e3\n", "'\\t' header: a bigint, b double precision"),
            (
                "d|t|z|b|h\n2024-02-29|2024-02-29 01:02|2024-02-29T01:02:03Z|true|12:30:00\n",
                "'|' header: d date, t timestamp without time zone, z timestamp with time zone, b boolean, h time without time zone",
            ),
            ("zip,x\n01234,\n99999,\n", "',' header: zip text, x text"),
            ("n,m\n12345678901234567890,-1\n1,-9223372036854775808\n", "',' header: n text, m bigint"),
            ("a,\"b,c\"\n\"1\",\"x\ny\"\n", "',' header: a bigint, b,c text"),
            ("first,last\nAda,Lovelace\nAlan,Turing\n", "',' header: first text, last text"),
            ("Ada,Lovelace\nAlan,Turing\nAda,Lovelace\n", "',' no header: column1 text, column2 text"),
            ("a,a,\n1,2,3\n", "',' header: a bigint, a_1 bigint, column3 bigint"),
            ("single\n1\n2\n", "',' header: single bigint"),
            (
                "\"Full Name, Title\"\n\"Lovelace, Ada\"\n\"Turing, Alan\"\n",
                "',' header: Full Name, Title text",
            ),
            ("\"1,5\"\n\"2,5\"\n", "',' no header: column1 text"),
            ("\"a, b\"\n", "',' header: a, b text"),
            ("name\n\"Turing, Alan\"\n\"Lovelace, Ada\"\n", "',' header: name text"),
            ("\"Report, of May\"\nn;first\n1;Ada\n2;Alan\n", "';' no header: column1 text, column2 text"),
            ("1\n2\n", "',' no header: column1 bigint"),
            ("", "',' no header: "),
            (
                "Report of May\nfirst,last\nAda,Lovelace\nAlan,Turing\n",
                "',' no header: column1 text, column2 text",
            ),
            ("a,a_1,a,a\n1,2,3,4\n", "',' header: a bigint, a_1 bigint, a_2 bigint, a_3 bigint"),
        ] {
            assert_eq!(seen(file), expected, "{file:?}");
        }
    }

    #[test]
    fn quotes_and_what_precedes_them_are_seen() {
        let quotes = |file: &str| {
            let options = sniff(file.as_bytes(), &Known::default()).options;
            [options.delimiter, options.quote, options.escape].map(char::from).into_iter().collect::<String>()
        };
        for (file, expected) in [
            ("a,b\n1,x\n", ",\"\""),
            ("a,b\n1,'x,y'\n2,'z'\n", ",''"),
            ("'a';'b'\r\n'1;2';'it''s'\r\n", ";''"),
            ("'a','b'\n'1','it\\'s, or not'\n", ",'\\"),
            ("\"a\",\"b\"\n\"1\",\"say \\\"hello, you\\\"\"\n", ",\"\\"),
            ("a,b\n1,\"say \\\"hello\\\"\"\n", ",\"\\"),
            ("a,b\n1,\"say \"\"hello\"\"\"\n", ",\"\""),
            // A path that ends with a possible escape.
            ("a,b\n\"C:\\dir\\\",\"x\"\n\"D:\\\",\"y\"\n", ",\"\""),
            // Apostrophes are no quotes.
            ("a,b\n1,'tis the season\n2,rock 'n' roll\n", ",\"\""),
            ("a,b\n1,\"'tis, 'twas\"\n2,'t\n", ",\"\""),
            ("word,meaning,origin\n'em,them,shortenin'\naint,is not,x\nbro,brother,y\n", ",\"\""),
            ("title,album,year\n'Til Tuesday,Voices Carry,1985\nFoo,Nothin',1990\nBar,Baz,1991\n", ",\"\""),
            ("a,b\n1,'tis\n2,foo\n3,rockin'\n", ",\"\""),
            ("word\n'em\nrockin'\n", ",\"\""),
            ("a,b\n'x',1\n'tis,2\n3,4\n", ",\"\""),
            // These are quotes.
            ("'id','text'\n'1','one\ntwo'\n'2','three'\n", ",''"),
        ] {
            assert_eq!(quotes(file), expected, "{file:?}");
        }
    }

    #[test]
    fn what_is_known_is_not_guessed() {
        let known = Known { header: Some(false), delimiter: Some(b';'), ..Known::default() };
        assert_eq!(seen_with("a,b\n1,2\n", &known), "';' no header: column1 text");
        let known = Known { null: Some("NA".to_owned()), ..Known::default() };
        assert_eq!(seen_with("a,b\n1,NA\nNA,2\n", &known), "',' header: a bigint, b bigint");
        let known = Known { quote: Some(b'|'), ..Known::default() };
        assert_eq!(seen_with("|a|,|b|\n|1|,|x|\n", &known), "',' header: a bigint, b text");
        let known = Known { quote: Some(b'\''), ..Known::default() };
        assert_eq!(seen_with("a,b\n1,'x,y'\n", &known), "',' header: a bigint, b text");
    }

    #[test]
    fn a_header_by_itself_gives_the_names_that_a_file_has() {
        let options = CopyOptions { null: "NA".to_owned(), ..CopyOptions::new(RowFormat::Csv) };
        for (sample, expected) in [
            ("a, b ,a,,NA,\"x\ny\"\r\n1,2", Some("a|b|a_1|(column4)|(column5)|x\ny")),
            ("\n", Some("(column1)")),
            ("column1, \n", Some("column1|(column2)")),
            ("a,\"b\n", None),
            ("a,b", None),
            ("", None),
        ] {
            let seen = header(sample.as_bytes(), &options).map(|Header { names, is_named }| {
                let name =
                    |(name, is_named): (String, bool)| if is_named { name } else { format!("({name})") };
                names.into_iter().zip(is_named).map(name).collect::<Vec<_>>().join("|")
            });
            assert_eq!(seen.as_deref(), expected);
        }
    }

    #[test]
    fn a_long_sample_may_end_within_a_record() {
        let mut file = "n,t\n".to_owned();
        while file.len() < SAMPLE_BYTES {
            file.push_str("1,some text\n");
        }
        file.truncate(SAMPLE_BYTES - 3);
        file.push_str("\"xy");
        assert_eq!(seen(&file), "',' header: n bigint, t text");
    }
}
