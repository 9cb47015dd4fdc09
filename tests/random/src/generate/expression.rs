//! Expressions of a type.

use super::{Atom, Generator};
use crate::coverage::Place;
use crate::engine::Parameter;
use crate::schema::Ty;

/// Rules of expressions have the type's number; other rules have larger numbers.
const RULE: u32 = 100;

impl Generator<'_> {
    /// An expression of a type, with at most this number of levels of operators.
    pub(super) fn expression(&mut self, ty: Ty, depth: usize) -> String {
        self.rule(RULE + ty as u32, |generator| {
            if depth == 0 {
                return generator.leaf(ty);
            }
            match generator.choices.weighted(&[45, 30, 14, 6, 8]) {
                0 => generator.leaf(ty),
                1 => generator.operation(ty, depth - 1),
                2 => generator.general(ty, depth - 1),
                3 if generator.may_nest() => generator.scalar_sub_query(ty),
                4 => generator.call(ty, depth - 1),
                _ => generator.leaf(ty),
            }
        })
    }

    /// A column, constant or parameter.
    fn leaf(&mut self, ty: Ty) -> String {
        match self.choices.weighted(&[80, 14, 4, 2]) {
            0 => match self.column(ty) {
                Some(atom) => atom.text,
                None => self.literal(ty),
            },
            1 => self.literal(ty),
            2 => self.parameter(ty),
            _ => format!("NULL::{}", ty.name()),
        }
    }

    /// A column that is visible here.
    pub(super) fn column(&mut self, ty: Ty) -> Option<Atom> {
        let depth = self.levels.len();
        // Of the innermost query, or of one around it.
        let up = match self.choices.weighted(&[75, 19, 6]) {
            up if up < depth => up,
            _ => 0,
        };
        (0..=up).rev().find_map(|up| {
            let found: Vec<Atom> = self.visible(up)?.into_iter().filter(|atom| atom.ty == ty).collect();
            match found.is_empty() {
                true => None,
                false => Some(found[self.choices.below(found.len())].clone()),
            }
        })
    }

    /// A column of the innermost query.
    pub(super) fn own_column(&mut self, ty: Ty) -> Option<String> {
        let found: Vec<Atom> = self.visible(0)?.into_iter().filter(|atom| atom.ty == ty).collect();
        match found.is_empty() {
            true => None,
            false => Some(found[self.choices.below(found.len())].text.clone()),
        }
    }

    /// The columns that the query this number of levels up makes visible here.
    fn visible(&self, up: usize) -> Option<Vec<Atom>> {
        let place = self.levels.len().checked_sub(up + 1)?;
        let hidden = |alias: &str| {
            self.levels[place + 1..].iter().any(|level| level.aliases.iter().any(|one| one == alias))
        };
        let is_visible = |atom: &&Atom| match &atom.alias {
            Some(alias) => !hidden(alias),
            None => up == 0,
        };
        Some(self.levels[place].atoms.iter().filter(is_visible).cloned().collect())
    }

    /// A constant.
    pub(super) fn literal(&mut self, ty: Ty) -> String {
        let choices = &mut self.choices;
        match ty {
            Ty::Int => choices.pick(&["1", "2", "0", "3", "5", "(-1)", "10"]).to_owned(),
            Ty::Big => choices.pick(&["1::bigint", "2::bigint", "int8 '10'", "CAST(0 AS bigint)"]).to_owned(),
            Ty::Num => choices.pick(&["1.5", "2.0", "0.00", "10.50", "2::numeric", "1.50"]).to_owned(),
            Ty::Text => choices.pick(&["'a'", "'b'", "'ab'", "''", "'Zed'", "text 'c'", "'x%'"]).to_owned(),
            Ty::Date => choices
                .pick(&[
                    "date '2020-01-01'",
                    "date '2020-02-29'",
                    "'2021-12-31'::date",
                    "make_date(2020, 3, 15)",
                ])
                .to_owned(),
            Ty::Stamp => choices
                .pick(&[
                    "timestamp '2020-01-01 00:00'",
                    "'2020-02-29 12:30'::timestamp",
                    "timestamp '2021-07-04 23:59:59'",
                ])
                .to_owned(),
            Ty::Bool => choices.pick(&["true", "false"]).to_owned(),
            Ty::Double => choices.pick(&["0.5::double precision", "float8 '3'", "1e2::float8"]).to_owned(),
            Ty::Ints => {
                choices.pick(&["ARRAY[1, 2]", "'{}'::int[]", "'{3,NULL,1}'::int[]", "ARRAY[2]"]).to_owned()
            }
            Ty::Span => choices
                .pick(&[
                    "interval '1 day'",
                    "interval '2 hours'",
                    "'1 month'::interval",
                    "interval '36:00:00'",
                ])
                .to_owned(),
            Ty::Texts => {
                choices.pick(&["ARRAY['a', 'b']", "'{}'::text[]", "ARRAY[NULL, 'x y']::text[]"]).to_owned()
            }
            Ty::Small => {
                choices.pick(&["1::smallint", "smallint '2'", "int2 '0'", "CAST(-1 AS smallint)"]).to_owned()
            }
            Ty::Real => {
                choices.pick(&["0.5::real", "real '3'", "float4 '-1.25'", "CAST(100 AS real)"]).to_owned()
            }
            Ty::Fixed => choices
                .pick(&["1.5::numeric(8,2)", "numeric(8,2) '2'", "CAST(10.505 AS numeric(8,2))"])
                .to_owned(),
            Ty::Vary => choices
                .pick(&["'a'::varchar(8)", "varchar 'b'", "'Zed'::varchar(2)", "varchar(8) ''"])
                .to_owned(),
            Ty::Char => {
                choices.pick(&["'a'::char(4)", "bpchar 'ab'", "'b'::character(2)", "''::char(4)"]).to_owned()
            }
            Ty::Time => choices
                .pick(&["time '12:30'", "'00:00'::time", "time '23:59:59'", "CAST('04:05:06.789' AS time)"])
                .to_owned(),
            Ty::Zoned => choices
                .pick(&[
                    "timestamptz '2020-01-01 00:00+00'",
                    "'2020-02-29 14:30+02'::timestamptz",
                    "timestamptz '2021-07-04 23:59:59 Europe/Berlin'",
                ])
                .to_owned(),
            Ty::Bytes => choices
                .pick(&["'\\x61'::bytea", "bytea '\\x6162'", "''::bytea", "CAST('\\x00ff' AS bytea)"])
                .to_owned(),
            Ty::Uuid => choices
                .pick(&[
                    "'00000000-0000-0000-0000-000000000001'::uuid",
                    "uuid '00000000-0000-0000-0000-000000000002'",
                    "CAST('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11' AS uuid)",
                ])
                .to_owned(),
        }
    }

    /// A parameter whose type the client declares, the text casts, or neither.
    fn parameter(&mut self, ty: Ty) -> String {
        if !self.may_have_parameters {
            return self.literal(ty);
        }
        let value = match ty {
            Ty::Int | Ty::Big | Ty::Small => self.choices.pick(&["1", "2", "5"]).to_owned(),
            Ty::Num | Ty::Fixed => self.choices.pick(&["1.50", "2"]).to_owned(),
            Ty::Text | Ty::Vary => self.choices.pick(&["a", "b", ""]).to_owned(),
            Ty::Char => self.choices.pick(&["a   ", "b"]).to_owned(),
            Ty::Time => "12:30:00".to_owned(),
            Ty::Zoned => "2020-02-29 12:30:00+00".to_owned(),
            Ty::Bytes => "\\x61".to_owned(),
            Ty::Uuid => "00000000-0000-0000-0000-000000000001".to_owned(),
            Ty::Date => "2020-01-01".to_owned(),
            Ty::Stamp => "2020-02-29 12:30:00".to_owned(),
            Ty::Bool => "t".to_owned(),
            Ty::Double | Ty::Real => "0.5".to_owned(),
            Ty::Ints => "{1,2}".to_owned(),
            Ty::Texts => "{a,b}".to_owned(),
            Ty::Span => "1 day 02:00:00".to_owned(),
        };
        let value = (!self.choices.chance(10)).then_some(value);
        let is_said = self.choices.chance(50);
        self.parameters.push(Parameter { oid: is_said.then(|| ty.oid()), value });
        let number = self.parameters.len();
        match is_said {
            true => format!("${number}"),
            false => format!("${number}::{}", ty.name()),
        }
    }

    /// An expression that exists for any type.
    fn general(&mut self, ty: Ty, depth: usize) -> String {
        match self.choices.weighted(&[30, 25, 15, 10, 8, 6]) {
            0 => {
                let (first, second) = (self.expression(ty, depth), self.expression(ty, depth));
                match self.choices.chance(20) {
                    true => format!("coalesce({first}, NULL, {second})"),
                    false => format!("coalesce({first}, {second})"),
                }
            }
            1 => self.at(Place::Case, |generator| generator.case(ty, depth)),
            2 => {
                let (first, second) = (self.expression(ty, depth), self.expression(ty, depth));
                format!("nullif({first}, {second})")
            }
            3 if !matches!(ty, Ty::Ints | Ty::Texts) => {
                let name = self.choices.pick(&["greatest", "least"]);
                format!("{name}({}, {})", self.expression(ty, depth), self.expression(ty, depth))
            }
            4 => format!("({})::{}", self.expression(ty, depth), ty.name()),
            _ => self.at(Place::Case, |generator| {
                let operand = generator.expression(Ty::Int, depth);
                let (first, second) = (generator.expression(ty, depth), generator.expression(ty, depth));
                format!("CASE {operand} WHEN 1 THEN {first} WHEN 2 THEN {second} END")
            }),
        }
    }

    /// CASE whose condition has a sub-query.
    pub(super) fn asking_case(&mut self, ty: Ty) -> String {
        self.at(Place::Case, |generator| {
            let condition = generator.sub_query_condition(0);
            let (one, two) = (generator.expression(ty, 1), generator.expression(ty, 0));
            format!("CASE WHEN {condition} THEN {one} ELSE {two} END")
        })
    }

    fn case(&mut self, ty: Ty, depth: usize) -> String {
        let arms = 1 + self.choices.below(2);
        let mut text = "CASE".to_owned();
        for _ in 0..arms {
            let condition = self.condition(depth);
            text += &format!(" WHEN {condition} THEN {}", self.expression(ty, depth));
        }
        match self.choices.chance(70) {
            true => format!("{text} ELSE {} END", self.expression(ty, depth)),
            false => text + " END",
        }
    }

    /// An operator or function that returns this type.
    fn operation(&mut self, ty: Ty, depth: usize) -> String {
        let choice = self.choices.below(10);
        let mut one = |ty| self.expression(ty, depth);
        match (ty, choice) {
            (Ty::Int, 0) => format!("({} + {})", one(Ty::Int), one(Ty::Int)),
            (Ty::Int, 1) => format!("({} - {})", one(Ty::Int), one(Ty::Int)),
            (Ty::Int, 2) => format!("({} * 2)", one(Ty::Int)),
            (Ty::Int, 3) => format!("length({})", one(Ty::Text)),
            (Ty::Int, 4) => format!("({} - {})", one(Ty::Date), one(Ty::Date)),
            (Ty::Int, 5) => format!("({} % nullif({}, 0))", one(Ty::Int), one(Ty::Int)),
            (Ty::Int, 6) => format!("({})[{}]", one(Ty::Ints), one(Ty::Int)),
            (Ty::Int, 7) => format!("({} * {})", one(Ty::Small), one(Ty::Int)),
            (Ty::Int, 8) => format!("octet_length({})", one(Ty::Bytes)),
            (Ty::Int, _) => format!("cardinality({})", one(Ty::Texts)),
            (Ty::Small, 0) => format!("({} + {})", one(Ty::Small), one(Ty::Small)),
            (Ty::Small, 1) => format!("({} - {})", one(Ty::Small), one(Ty::Small)),
            (Ty::Small, 2) => format!("abs({})", one(Ty::Small)),
            (Ty::Small, 3) => format!("- {}", paren(one(Ty::Small))),
            (Ty::Small, 4) => format!("({} % nullif({}, int2 '0'))", one(Ty::Small), one(Ty::Small)),
            (Ty::Small, 5) => format!("length({})::smallint", one(Ty::Char)),
            (Ty::Small, _) => format!("{}::smallint", paren(one(Ty::Int))),
            (Ty::Real, 0) => format!("({} + {})", one(Ty::Real), one(Ty::Real)),
            (Ty::Real, 1) => format!("({} - {})", one(Ty::Real), one(Ty::Real)),
            (Ty::Real, 2) => format!("abs({})", one(Ty::Real)),
            (Ty::Real, 3) => format!("- {}", paren(one(Ty::Real))),
            (Ty::Real, 4) => format!("{}::real", paren(one(Ty::Double))),
            (Ty::Real, 5) => format!("{}::real", paren(one(Ty::Num))),
            (Ty::Real, _) => format!("{}::real", paren(one(Ty::Int))),
            (Ty::Fixed, 0 | 1) => format!("{}::numeric(8,2)", paren(one(Ty::Int))),
            (Ty::Fixed, 2) => format!("{}::numeric(8,2)", paren(one(Ty::Double))),
            (Ty::Fixed, _) => format!("{}::numeric(8,2)", paren(one(Ty::Num))),
            (Ty::Vary, 0) => format!("{}::varchar(8)", paren(one(Ty::Int))),
            (Ty::Vary, 1) => format!("lower({})::varchar(8)", one(Ty::Vary)),
            (Ty::Vary, 2) => format!("({} || {})::varchar(8)", one(Ty::Vary), one(Ty::Char)),
            (Ty::Vary, _) => format!("{}::varchar(8)", paren(one(Ty::Text))),
            (Ty::Char, 0) => format!("{}::char(4)", paren(one(Ty::Int))),
            (Ty::Char, 1 | 2) => format!("{}::char(4)", paren(one(Ty::Vary))),
            (Ty::Char, _) => format!("{}::char(4)", paren(one(Ty::Text))),
            (Ty::Time, 0) => format!("({} + {})", one(Ty::Time), one(Ty::Span)),
            (Ty::Time, 1) => format!("({} - {})", one(Ty::Time), one(Ty::Span)),
            (Ty::Time, 2) => format!("{}::time", paren(one(Ty::Zoned))),
            (Ty::Time, 3) => format!("{}::time", paren(one(Ty::Span))),
            (Ty::Time, _) => format!("{}::time", paren(one(Ty::Stamp))),
            (Ty::Zoned, 0) => format!("({} + {})", one(Ty::Zoned), one(Ty::Span)),
            (Ty::Zoned, 1) => format!("({} - interval '1 month')", one(Ty::Zoned)),
            (Ty::Zoned, 2) => format!("({} AT TIME ZONE 'Europe/Berlin')", one(Ty::Stamp)),
            (Ty::Zoned, 3) => format!("date_trunc('month', {})", one(Ty::Zoned)),
            (Ty::Zoned, 4) => format!("{}::timestamptz", paren(one(Ty::Date))),
            (Ty::Zoned, _) => format!("{}::timestamptz", paren(one(Ty::Stamp))),
            (Ty::Bytes, 0) => format!("({} || {})", one(Ty::Bytes), one(Ty::Bytes)),
            (Ty::Bytes, 1) => format!("substring({} FROM 1 FOR 1)", one(Ty::Bytes)),
            (Ty::Bytes, 2) => format!("decode(encode({}, 'hex'), 'hex')", one(Ty::Bytes)),
            (Ty::Bytes, _) => format!("convert_to({}, 'UTF8')", one(Ty::Text)),
            (Ty::Uuid, 0) => format!("{}::text::uuid", paren(one(Ty::Uuid))),
            (Ty::Uuid, _) => format!("md5({})::uuid", one(Ty::Text)),
            (Ty::Big, 0) => format!("({} + {})", one(Ty::Big), one(Ty::Int)),
            (Ty::Big, 1) => format!("({} - {})", one(Ty::Int), one(Ty::Big)),
            (Ty::Big, 2) => format!("({} / nullif({}, 0))", one(Ty::Big), one(Ty::Big)),
            (Ty::Big, 3) => format!("{}::bigint", paren(one(Ty::Int))),
            (Ty::Big, 4) => format!("abs({})", one(Ty::Big)),
            (Ty::Big, 5) => format!("round({})::bigint", one(Ty::Num)),
            (Ty::Span, 0) => format!("({} - {})", one(Ty::Stamp), one(Ty::Stamp)),
            (Ty::Span, 1) => format!("({} + {})", one(Ty::Span), one(Ty::Span)),
            (Ty::Span, 2) => format!("({} * {})", one(Ty::Span), one(Ty::Int)),
            (Ty::Span, 3) => format!("- {}", paren(one(Ty::Span))),
            (Ty::Span, 4) => format!("age({}, {})", one(Ty::Stamp), one(Ty::Stamp)),
            (Ty::Span, 5) => format!("justify_hours({})", one(Ty::Span)),
            (Ty::Span, 6) => format!("({} / 2)", one(Ty::Span)),
            (Ty::Span, 7) => format!("({} - {})", one(Ty::Time), one(Ty::Time)),
            (Ty::Span, 8) => format!("({} - {})", one(Ty::Zoned), one(Ty::Zoned)),
            (Ty::Span, _) => format!("({} - {})", one(Ty::Span), one(Ty::Span)),
            (Ty::Big, 6) => format!("- {}", paren(one(Ty::Big))),
            (Ty::Big, 7) => format!("({} + {})", one(Ty::Small), one(Ty::Big)),
            (Ty::Big, _) => format!("({} * 3)", one(Ty::Big)),
            (Ty::Num, 0) => format!("({} + {})", one(Ty::Num), one(Ty::Int)),
            (Ty::Num, 1) => format!("({} * {})", one(Ty::Num), one(Ty::Num)),
            (Ty::Num, 2) => format!("round({}, 1)", one(Ty::Num)),
            (Ty::Num, 3) => format!("{}::numeric", paren(one(Ty::Int))),
            (Ty::Num, 4) => format!("({} - {})", one(Ty::Big), one(Ty::Num)),
            (Ty::Num, 5) => format!("extract(year FROM {})", one(Ty::Date)),
            (Ty::Num, 6) => format!("({} / nullif({}, 0))", one(Ty::Num), one(Ty::Num)),
            (Ty::Num, 7) => format!("({} * {})", one(Ty::Fixed), one(Ty::Small)),
            (Ty::Num, 8) => format!("({} + {})", one(Ty::Fixed), one(Ty::Num)),
            (Ty::Num, _) => format!("{}::numeric(8,3)", paren(one(Ty::Num))),
            (Ty::Text, 0) => format!("({} || {})", one(Ty::Text), one(Ty::Text)),
            (Ty::Text, 1) => format!("upper({})", one(Ty::Text)),
            (Ty::Text, 2) => format!("{}::text", paren(one(Ty::Int))),
            (Ty::Text, 3) => format!("substring({} FROM 1 FOR {})", one(Ty::Text), "2"),
            (Ty::Text, 4) => format!("concat({}, '-', {})", one(Ty::Text), one(Ty::Int)),
            (Ty::Text, 5) => format!("({} || {})", one(Ty::Int), one(Ty::Text)),
            (Ty::Text, 6) => format!("({})[1]", one(Ty::Texts)),
            (Ty::Text, 7) => format!("({} || {})", one(Ty::Vary), one(Ty::Char)),
            (Ty::Text, 8) => match self.choices.below(4) {
                0 => format!("encode({}, 'hex')", self.expression(Ty::Bytes, depth)),
                1 => format!("{}::text", paren(self.expression(Ty::Char, depth))),
                2 => format!("{}::text", paren(self.expression(Ty::Vary, depth))),
                _ => format!("left({}, 2)", self.expression(Ty::Vary, depth)),
            },
            (Ty::Text, _) => format!("replace({}, 'a', {})", one(Ty::Text), one(Ty::Text)),
            (Ty::Date, 0) => format!("({} + {})", one(Ty::Date), one(Ty::Int)),
            (Ty::Date, 1) => format!("({} - {})", one(Ty::Date), one(Ty::Int)),
            (Ty::Date, 2 | 3) => format!("{}::date", paren(one(Ty::Stamp))),
            (Ty::Date, 4 | 5) => format!("{}::date", paren(one(Ty::Zoned))),
            (Ty::Date, _) => one(Ty::Date),
            (Ty::Stamp, 0) => format!("({} + interval '1 day')", one(Ty::Stamp)),
            (Ty::Stamp, 1) => format!("({} - interval '1 month 2 hours')", one(Ty::Date)),
            (Ty::Stamp, 2) => format!("date_trunc('month', {})", one(Ty::Stamp)),
            (Ty::Stamp, 3) => format!("{}::timestamp", paren(one(Ty::Date))),
            (Ty::Stamp, 4) => format!("({} + {})", one(Ty::Date), one(Ty::Span)),
            (Ty::Stamp, 5) => format!("({} - {})", one(Ty::Stamp), one(Ty::Span)),
            (Ty::Stamp, 6) => format!("({} AT TIME ZONE 'UTC')", one(Ty::Zoned)),
            (Ty::Stamp, 7) => format!("({} + {})", one(Ty::Date), one(Ty::Time)),
            (Ty::Stamp, 8) => format!("{}::timestamp", paren(one(Ty::Zoned))),
            (Ty::Stamp, _) => one(Ty::Stamp),
            (Ty::Double, 0) => format!("({} + {})", one(Ty::Double), one(Ty::Double)),
            (Ty::Double, 1) => format!("({} * {})", one(Ty::Double), one(Ty::Int)),
            (Ty::Double, 2) => format!("{}::double precision", paren(one(Ty::Int))),
            (Ty::Double, 3) => format!("abs({})", one(Ty::Double)),
            (Ty::Double, 4) => format!("({} * {})", one(Ty::Real), one(Ty::Double)),
            (Ty::Double, 5) => format!("{}::double precision", paren(one(Ty::Real))),
            (Ty::Double, 6) => format!("{}::double precision", paren(one(Ty::Fixed))),
            (Ty::Double, _) => format!("({} - {})", one(Ty::Double), one(Ty::Double)),
            (Ty::Ints, 0) => format!("ARRAY[{}, {}]", one(Ty::Int), one(Ty::Int)),
            (Ty::Ints, 1) => format!("({} || {})", one(Ty::Ints), one(Ty::Int)),
            (Ty::Ints, 2) => format!("({} || {})", one(Ty::Ints), one(Ty::Ints)),
            (Ty::Ints, 3) => format!("({})[1:2]", one(Ty::Ints)),
            (Ty::Ints, _) => format!("array_remove({}, {})", one(Ty::Ints), one(Ty::Int)),
            (Ty::Texts, 0) => format!("ARRAY[{}]", one(Ty::Text)),
            (Ty::Texts, 1) => format!("array_append({}, {})", one(Ty::Texts), one(Ty::Text)),
            (Ty::Texts, 2) => format!("string_to_array({}, 'b')", one(Ty::Text)),
            // A literal without a type would be read as an array.
            (Ty::Texts, _) => format!("({}::text || {})", paren(one(Ty::Text)), one(Ty::Texts)),
            (Ty::Bool, _) => paren(self.condition(depth)),
        }
    }
}

/// An expression that `::` or a prefix may follow.
pub(super) fn paren(text: String) -> String {
    format!("({text})")
}
