//! Row changes: INSERT, ON CONFLICT, UPDATE, DELETE, MERGE, with RETURNING, alone and in WITH.
//!
//! Statements whose result depends on a choice of the engine are avoided. A row that a change finds joins one row at most, by a
//! key of the other table. New keys are numbers that do not depend on the order of rows.

use super::expression::paren;
use super::{Atom, Common, Generator, Level, Wanted};
use crate::compare::Ordering;
use crate::coverage::{JoinKind, OperatorKind, Place};
use crate::engine::Parameter;
use crate::schema::{Constraint, TABLES, Table, Ty};

const RULE: u32 = 400;

type Column = (&'static str, Ty, Constraint);

/// The target table of a change.
#[derive(Clone)]
struct Target {
    table: &'static Table,
    /// Its name in other clauses.
    alias: String,
    /// Its text in the statement.
    text: String,
}

impl Target {
    fn atoms(&self) -> Vec<Atom> {
        atoms(self.table, &self.alias)
    }
}

/// The columns of RETURNING; `None`, if the change is a statement.
type Returned<'a> = Option<(&'a [Ty], &'a [String])>;

impl Generator<'_> {
    /// A change of rows, and its target table.
    pub(super) fn change(&mut self) -> (String, Ordering, &'static str) {
        let weights: Vec<usize> = TABLES.iter().map(|table| if table.name == "e" { 3 } else { 10 }).collect();
        let table = &TABLES[self.choices.weighted(&weights)];
        if self.choices.chance(10) {
            // The query reads the rows from before.
            let types = self.types(3);
            let columns = self.names(&types);
            let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
            let change = self.any_change(table, Some((&types[..], &names[..])));
            self.common.push(Common { name: "c".to_owned(), columns, uses: 2 });
            let types = match self.choices.chance(70) {
                true => {
                    self.wanted = Some(self.draw_wanted());
                    self.wanted_types()
                }
                false => self.types(3),
            };
            self.begins_with = self.choices.chance(60).then_some(0);
            self.given = Some(Place::With);
            let (query, ordering) = self.whole_query(&types);
            // A WITH of its own would stand after the first.
            return match query.strip_prefix("WITH ") {
                Some(rest) if rest.starts_with("RECURSIVE ") => {
                    let rest = rest.trim_start_matches("RECURSIVE ");
                    (format!("WITH RECURSIVE c AS ({change}), {rest}"), ordering, table.name)
                }
                Some(rest) => (format!("WITH c AS ({change}), {rest}"), ordering, table.name),
                None => (format!("WITH c AS ({change}) {query}"), ordering, table.name),
            };
        }
        (self.any_change(table, None), Ordering::Open, table.name)
    }

    /// PostgreSQL 15 has no MERGE in WITH, none with RETURNING, and none after WITH RECURSIVE.
    fn any_change(&mut self, table: &'static Table, returned: Returned<'_>) -> String {
        self.rule(RULE, |generator| {
            generator.open_frame();
            let common = generator.common.len();
            let wanted = generator.draw_change(returned.is_some());
            let is_flat = wanted.is_flat();
            generator.flat += usize::from(is_flat);
            let is_merge = wanted.does(OperatorKind::Merge);
            let with = match wanted.has(Place::With) {
                false => String::new(),
                true => {
                    let text = generator.with(false, !is_merge);
                    // FROM and USING read it, or it would often not be evaluated.
                    let is_read = !wanted.has(Place::From) && generator.choices.chance(70);
                    generator.begins_with = is_read.then_some(common);
                    text
                }
            };
            let text = match wanted.operators[0] {
                OperatorKind::Insert => generator.insert(table, returned, &wanted),
                OperatorKind::Update => generator.update(table, returned, &wanted),
                OperatorKind::Delete => generator.delete(table, returned, &wanted),
                _ => generator.merge(table, &wanted),
            };
            generator.begins_with = None;
            generator.flat -= usize::from(is_flat);
            generator.common.truncate(common);
            generator.close_frame(false);
            with + &text
        })
    }

    /// The value that a clause has of what is wanted: a sub-query, or CASE with one.
    fn asking_value(&mut self, ty: Ty, place: Place, wanted: &Wanted) -> Option<String> {
        let case = (wanted.case_in == Some(place)).then(|| self.asking_case(ty));
        let query = wanted.has(place).then(|| format!("({})", self.sub_query(&[ty], true).text));
        match (case, query) {
            (Some(case), Some(query)) => Some(format!("coalesce({query}, {case})")),
            (case, query) => case.or(query),
        }
    }

    fn change_target(&mut self, table: &'static Table) -> Target {
        let (alias, text) = match self.choices.chance(50) {
            true => ("x".to_owned(), format!("{} AS x", table.name)),
            false => (table.name.to_owned(), table.name.to_owned()),
        };
        Target { table, alias, text }
    }

    /// RETURNING, with a blank before it.
    fn returning(&mut self, level: &Level, star: &str, returned: Returned<'_>, wanted: &Wanted) -> String {
        self.at(Place::Returning, |generator| generator.returned(level, star, returned, wanted))
    }

    /// `star` is what `*` may show: `*`, or the name of the table alone.
    fn returned(&mut self, level: &Level, star: &str, returned: Returned<'_>, wanted: &Wanted) -> String {
        self.inside(level.clone(), |generator| {
            let types = match returned {
                Some((types, _)) => types.to_vec(),
                None => generator.types(3),
            };
            let asked = generator.asking_value(types[0], Place::Returning, wanted);
            match returned {
                Some((_, names)) => {
                    let mut items = Vec::new();
                    for (place, (ty, name)) in types.iter().zip(names).enumerate() {
                        let item = asked.clone().filter(|_| place == 0);
                        let item = item.unwrap_or_else(|| generator.expression(*ty, 1));
                        items.push(format!("{item} AS {name}"));
                    }
                    format!(" RETURNING {}", items.join(", "))
                }
                None => match generator.choices.weighted(&[20, 15, 65]) {
                    0 if asked.is_none() => format!(" RETURNING {star}"),
                    1 if asked.is_none() => String::new(),
                    _ => {
                        let mut items: Vec<String> =
                            types.iter().map(|ty| generator.expression(*ty, 2)).collect();
                        items.extend(asked);
                        if generator.choices.chance(25) {
                            items.push(star.to_owned());
                        }
                        format!(" RETURNING {}", items.join(", "))
                    }
                },
            }
        })
    }

    /// What may be assigned to a column: the value that is wanted, if any, or another one, DEFAULT, a parameter or a string of unknown
    /// type.
    fn assigned(
        &mut self,
        column: &Column,
        depth: usize,
        may_default: bool,
        asked: Option<String>,
    ) -> String {
        let (_, ty, constraint) = *column;
        if let Some(query) = asked {
            return match constraint {
                Constraint::NotNull => format!("coalesce({query}, {})", self.literal(ty)),
                _ => query,
            };
        }
        if constraint == Constraint::NotNull {
            return match self.choices.chance(85) {
                true => format!("coalesce({}, {})", self.expression(ty, depth), self.literal(ty)),
                false => self.expression(ty, depth),
            };
        }
        match self.choices.weighted(&[60, 8, 10, 8, 8, 6]) {
            1 if may_default => "DEFAULT".to_owned(),
            2 => self.bare_parameter(ty),
            3 => self.text_of(ty),
            // Assignment accepts other types.
            4 => match ty {
                Ty::Int => paren(self.expression(Ty::Num, depth)),
                Ty::Big => self.expression(Ty::Int, depth),
                Ty::Num | Ty::Double => self.expression(Ty::Big, depth),
                Ty::Date => self.expression(Ty::Stamp, depth),
                Ty::Stamp => self.expression(Ty::Date, depth),
                Ty::Text => match self.choices.below(3) {
                    0 => self.expression(Ty::Date, depth),
                    1 => self.expression(Ty::Char, depth),
                    _ => self.expression(Ty::Uuid, depth),
                },
                Ty::Small => paren(self.expression(Ty::Int, depth)),
                Ty::Real => self.expression(Ty::Double, depth),
                Ty::Fixed => self.expression(Ty::Num, depth),
                Ty::Vary | Ty::Char => self.expression(Ty::Text, depth),
                Ty::Time => self.expression(Ty::Stamp, depth),
                Ty::Zoned => self.expression(Ty::Stamp, depth),
                ty => self.expression(ty, depth),
            },
            5 => "NULL".to_owned(),
            _ => self.expression(ty, depth),
        }
    }

    /// A parameter whose type is inferred from its context.
    pub(super) fn bare_parameter(&mut self, ty: Ty) -> String {
        let text = self.text_of(ty);
        if !self.may_have_parameters {
            return text;
        }
        let value = (text != "NULL").then(|| text.trim_matches('\'').to_owned());
        self.parameters.push(Parameter { oid: None, value });
        format!("${}", self.parameters.len())
    }

    /// A string that any context of this type reads.
    fn text_of(&mut self, ty: Ty) -> String {
        let text = match ty {
            Ty::Int | Ty::Big | Ty::Small => self.choices.pick(&["'1'", "'2'", "'30'"]),
            Ty::Fixed => self.choices.pick(&["'1.505'", "'2'", "'-0.01'"]),
            Ty::Real => self.choices.pick(&["'0.5'", "'1e3'", "'-1.25'"]),
            Ty::Vary | Ty::Char => self.choices.pick(&["'a'", "'Zed'", "''", "'ab  '"]),
            Ty::Time => self.choices.pick(&["'12:30'", "'04:05:06.789'"]),
            Ty::Zoned => self.choices.pick(&["'2020-02-29 12:30+02'", "'2021-07-04'"]),
            Ty::Bytes => self.choices.pick(&["'\\x61'", "''"]),
            Ty::Uuid => self
                .choices
                .pick(&["'00000000-0000-0000-0000-000000000002'", "'{a0eebc999c0b4ef8bb6d6bb9bd380a11}'"]),
            Ty::Num => self.choices.pick(&["'1.50'", "'2'", "'0.005'"]),
            Ty::Text => self.choices.pick(&["'a'", "'Zed'", "''"]),
            Ty::Date => self.choices.pick(&["'2020-02-29'", "'2019-06-30'"]),
            Ty::Stamp => self.choices.pick(&["'2020-02-29 12:30'", "'2021-07-04'"]),
            Ty::Bool => self.choices.pick(&["'t'", "'no'"]),
            Ty::Double => self.choices.pick(&["'0.5'", "'1e3'"]),
            Ty::Ints => self.choices.pick(&["'{1,2}'", "'{}'", "'{NULL,4}'"]),
            Ty::Texts => self.choices.pick(&["'{a,b}'", "'{}'"]),
            Ty::Span => self.choices.pick(&["'1 day'", "'2 months 03:04:05'"]),
        };
        text.to_owned()
    }

    /// A value of a key: a new one, rarely an existing one.
    fn key_value(&mut self, column: &Column, fresh: &str) -> String {
        let (_, ty, constraint) = *column;
        match self.choices.weighted(&[75, 12, 13]) {
            1 => match ty {
                Ty::Text | Ty::Vary => self.choices.pick(&["'a'", "'b'"]).to_owned(),
                Ty::Uuid => self.text_of(ty),
                _ => self.choices.pick(&["1", "2", "3"]).to_owned(),
            },
            2 if constraint == Constraint::Unique => "NULL".to_owned(),
            _ => new_value(ty, fresh),
        }
    }

    fn insert(&mut self, table: &'static Table, returned: Returned<'_>, wanted: &Wanted) -> String {
        self.covers_operator(OperatorKind::Insert);
        let target = self.change_target(table);
        let asks = wanted.has(Place::Values) || wanted.case_in == Some(Place::Values);
        let is_needed = |column: &Column| matches!(column.2, Constraint::Key | Constraint::NotNull);
        let mut columns: Vec<Column> = table.columns.to_vec();
        let mut list = String::new();
        if self.choices.chance(60) {
            // In another order, and without some.
            let skip = self.choices.below(columns.len());
            columns.rotate_left(skip);
            columns.retain(|column| is_needed(column) || self.choices.chance(60));
            let names: Vec<&str> = columns.iter().map(|(name, ..)| *name).collect();
            list = format!(" ({})", names.join(", "));
            if names.is_empty() || asks && !columns.iter().any(is_plain) {
                columns = table.columns.to_vec();
                list = String::new();
            }
        }
        let rows = match self.choices.weighted(&[60, 35, 3]) {
            0 => self.inserted_values(&columns, wanted),
            _ if asks => self.inserted_values(&columns, wanted),
            1 => self.inserted_query(&columns),
            _ => {
                list.clear();
                "DEFAULT VALUES".to_owned()
            }
        };
        let conflict = match wanted.has(Place::Conflict) || self.choices.chance(30) {
            true => self.on_conflict(&target, wanted),
            false => String::new(),
        };
        let level = level(vec![(target.alias.clone(), target.atoms())]);
        let returning = self.returning(&level, "*", returned, wanted);
        format!("INSERT INTO {}{list} {rows}{conflict}{returning}", target.text)
    }

    /// VALUES of INSERT; the first row has what is wanted.
    fn inserted_values(&mut self, columns: &[Column], wanted: &Wanted) -> String {
        let asked = columns.iter().position(is_plain);
        let count = 1 + self.choices.below(3);
        let mut rows = Vec::new();
        for row in 0..count {
            let fresh = format!("{}", 100 + row);
            let mut cells = Vec::new();
            for (place, column) in columns.iter().enumerate() {
                cells.push(match is_plain(column) {
                    false => self.key_value(column, &fresh),
                    true => self.at(Place::Values, |generator| {
                        let asked = match row == 0 && Some(place) == asked {
                            true => generator.asking_value(column.1, Place::Values, wanted),
                            false => None,
                        };
                        generator.assigned(column, 1, true, asked)
                    }),
                });
            }
            rows.push(format!("({})", cells.join(", ")));
        }
        format!("VALUES {}", rows.join(", "))
    }

    /// A query of a table with a key, from which new keys are made.
    fn inserted_query(&mut self, columns: &[Column]) -> String {
        self.open_frame();
        let text = self.inserted_select(columns);
        self.close_frame(false);
        text
    }

    fn inserted_select(&mut self, columns: &[Column]) -> String {
        let (table, key) = self.keyed();
        let level = level(vec![("y".to_owned(), atoms(table, "y"))]);
        self.inside(level, |generator| {
            let fresh = format!("y.{key} + 100");
            let cells: Vec<String> = columns
                .iter()
                .map(|column| match column.2 {
                    Constraint::Key => fresh.clone(),
                    Constraint::Unique if column.1.is_number() && generator.choices.chance(30) => {
                        "NULL".to_owned()
                    }
                    Constraint::Unique => new_value(column.1, &fresh),
                    _ => generator.at(Place::Target, |generator| generator.assigned(column, 1, false, None)),
                })
                .collect();
            let condition = generator.where_clause(Place::Where, &Wanted::default());
            format!("SELECT {} FROM {} AS y{condition}", cells.join(", "), table.name)
        })
    }

    fn on_conflict(&mut self, target: &Target, wanted: &Wanted) -> String {
        let is_key = |column: &&Column| matches!(column.2, Constraint::Key | Constraint::Unique);
        let keys: Vec<Column> = target.table.columns.iter().filter(is_key).copied().collect();
        let key = keys[self.choices.below(keys.len())];
        let arbiter = match self.choices.below(4) {
            0 if !wanted.has(Place::Conflict) => String::new(),
            1 if key.2 == Constraint::Key => format!(" ON CONSTRAINT {}_pkey", target.table.name),
            _ => format!(" ({})", key.0),
        };
        if arbiter.is_empty() || !wanted.has(Place::Conflict) && self.choices.chance(50) {
            return format!(" ON CONFLICT{arbiter} DO NOTHING");
        }
        let both = vec![
            (target.alias.clone(), target.atoms()),
            ("excluded".to_owned(), atoms(target.table, "excluded")),
        ];
        self.inside(level(both), |generator| {
            let assignments = generator.at(Place::Conflict, |generator| {
                generator.assignments(target.table, Place::Conflict, wanted)
            });
            let condition = generator.where_clause(Place::Conflict, &Wanted::default());
            format!(" ON CONFLICT{arbiter} DO UPDATE SET {assignments}{condition}")
        })
    }

    fn where_clause(&mut self, place: Place, wanted: &Wanted) -> String {
        let asks = wanted.has(place) || wanted.case_in == Some(place);
        match asks || self.choices.chance(50) {
            true => {
                let condition = self.changing_condition(place, wanted);
                format!(" WHERE {condition}")
            }
            false => String::new(),
        }
    }

    /// A condition of a row change, which is mostly met.
    fn changing_condition(&mut self, place: Place, wanted: &Wanted) -> String {
        let condition = self.at(place, |generator| {
            let case = (wanted.case_in == Some(place)).then(|| generator.asking_case(Ty::Bool));
            let query = wanted.has(place).then(|| generator.sub_query_condition(0));
            match (case, query) {
                (Some(case), Some(query)) => format!("({query} OR {case})"),
                (None, None) => {
                    let depth = 1 + generator.choices.below(2);
                    generator.condition(depth)
                }
                (case, query) => case.or(query).expect("there is one"),
            }
        });
        self.mostly_true(condition, 65)
    }

    /// The assignments after SET.
    fn assignments(&mut self, table: &'static Table, place: Place, wanted: &Wanted) -> String {
        let free: Vec<Column> = table
            .columns
            .iter()
            .filter(|column| matches!(column.2, Constraint::Free | Constraint::NotNull))
            .copied()
            .collect();
        let first = self.choices.below(free.len());
        let count = 1 + self.choices.below(free.len().min(3));
        let picked: Vec<Column> = free.iter().cycle().skip(first).take(count).copied().collect();
        let mut texts = Vec::new();
        let mut asked = self.asking_value(picked[0].1, place, wanted);
        if picked.len() > 1 && self.choices.chance(25) {
            // Several columns at once.
            let names: Vec<&str> = picked.iter().map(|(name, ..)| *name).collect();
            let types: Vec<Ty> = picked.iter().map(|(_, ty, _)| *ty).collect();
            let is_nullable = picked.iter().all(|(.., constraint)| *constraint == Constraint::Free);
            let value = match self.choices.below(3) {
                0 if is_nullable && asked.is_none() && self.may_nest() => {
                    paren(self.sub_query(&types, true).text)
                }
                choice => {
                    let word = if choice == 1 { "ROW" } else { "" };
                    let cells: Vec<String> = picked
                        .iter()
                        .map(|column| self.assigned(column, 1, choice != 1, asked.take()))
                        .collect();
                    format!("{word}({})", cells.join(", "))
                }
            };
            texts.push(format!("({}) = {value}", names.join(", ")));
        } else {
            for column in &picked {
                texts.push(format!("{} = {}", column.0, self.assigned(column, 2, true, asked.take())));
            }
        }
        if self.choices.chance(6) {
            let is_number = |column: &&Column| {
                matches!(column.2, Constraint::Key | Constraint::Unique) && column.1.is_number()
            };
            if let Some((name, ..)) = table.columns.iter().find(is_number) {
                let own = self.levels.last().and_then(|level| level.aliases.first()).cloned();
                let own = own.map(|alias| format!("{alias}.")).unwrap_or_default();
                texts.push(format!("{name} = {own}{name} + 100"));
            }
        }
        texts.join(", ")
    }

    /// A table with a key, and its name.
    fn keyed(&mut self) -> (&'static Table, &'static str) {
        let keyed: Vec<(&'static Table, &'static str)> = TABLES
            .iter()
            .filter_map(|table| {
                let key = table.columns.iter().find(|(.., constraint)| *constraint == Constraint::Key)?;
                Some((table, key.0))
            })
            .collect();
        // The last one is empty.
        keyed[self.choices.below(keyed.len() - 1)]
    }

    /// Another relation of which at most one row joins a row of the target: its text, its columns, and the condition.
    fn met(&mut self, target: &Target) -> (String, (String, Vec<Atom>), String) {
        let (table, key) = self.keyed();
        let is_number = |column: &&Column| matches!(column.1, Ty::Int | Ty::Big);
        let numbers: Vec<Column> = target.table.columns.iter().filter(is_number).copied().collect();
        let (name, ..) = numbers[self.choices.below(numbers.len())];
        let condition = format!("{}.{name} = y.{key}", target.alias);
        (format!("{} AS y", table.name), ("y".to_owned(), atoms(table, "y")), condition)
    }

    /// What FROM or USING adds to a change: its text, what the change's conditions see, and what its other clauses see.
    fn others_of(
        &mut self,
        target: &Target,
        word: &str,
        wanted: &Wanted,
    ) -> (String, Level, Level, Option<String>) {
        let own = (target.alias.clone(), target.atoms());
        if wanted.joins == [JoinKind::Single] {
            return (String::new(), level(vec![own.clone()]), level(vec![own]), None);
        }
        let is_simple = ![Place::From, Place::Lateral, Place::On].iter().any(|place| wanted.has(*place));
        if wanted.joins == [JoinKind::Comma] && is_simple && self.choices.chance(75) {
            self.covers_join(JoinKind::Comma);
            let (text, other, condition) = self.met(target);
            let both = level(vec![own, other]);
            return (format!(" {word} {text}"), both.clone(), both, Some(condition));
        }
        // A row may meet several, so that only conditions see them.
        self.used_aliases = vec![target.alias.clone()];
        self.needs_alias = true;
        let from = self.from(wanted);
        self.needs_alias = false;
        let mut both = from.level();
        both.atoms.retain(|atom| atom.alias.is_some());
        both.total = None;
        both.atoms.extend(own.1.iter().cloned());
        both.aliases.push(own.0.clone());
        (format!(" {word} {}", from.text), both, level(vec![own]), None)
    }

    fn update(&mut self, table: &'static Table, returned: Returned<'_>, wanted: &Wanted) -> String {
        self.covers_operator(OperatorKind::Update);
        let target = self.change_target(table);
        let (from, both, own, joined) = self.others_of(&target, "FROM", wanted);
        let assignments = self.inside(own.clone(), |generator| {
            generator.at(Place::Set, |generator| generator.assignments(table, Place::Set, wanted))
        });
        let condition = self.inside(both, |generator| generator.joined_where(joined, wanted));
        // Of several rows that a row meets any may be shown.
        let star = format!("{}.*", target.alias);
        let returning = self.returning(&own, &star, returned, wanted);
        format!("UPDATE {} SET {assignments}{from}{condition}{returning}", target.text)
    }

    fn joined_where(&mut self, joined: Option<String>, wanted: &Wanted) -> String {
        let asks = wanted.has(Place::Where) || wanted.case_in == Some(Place::Where);
        match joined {
            None => self.where_clause(Place::Where, wanted),
            Some(joined) if asks || self.choices.chance(40) => {
                let condition = self.changing_condition(Place::Where, wanted);
                format!(" WHERE {joined} AND {condition}")
            }
            Some(joined) => format!(" WHERE {joined}"),
        }
    }

    fn delete(&mut self, table: &'static Table, returned: Returned<'_>, wanted: &Wanted) -> String {
        self.covers_operator(OperatorKind::Delete);
        let target = self.change_target(table);
        let (using, both, own, joined) = self.others_of(&target, "USING", wanted);
        let condition = self.inside(both, |generator| generator.joined_where(joined, wanted));
        // Of several rows that a row meets any may be shown.
        let star = format!("{}.*", target.alias);
        let returning = self.returning(&own, &star, returned, wanted);
        format!("DELETE FROM {}{using}{condition}{returning}", target.text)
    }

    fn merge(&mut self, table: &'static Table, wanted: &Wanted) -> String {
        self.covers_operator(OperatorKind::Merge);
        let target = self.change_target(table);
        let (source_table, source_key) = self.keyed();
        let unique: Vec<Column> = table
            .columns
            .iter()
            .filter(|column| matches!(column.2, Constraint::Key | Constraint::Unique) && column.1.is_number())
            .copied()
            .collect();
        let key = unique[self.choices.below(unique.len())];
        let source = match wanted.has(Place::From) {
            true => {
                self.covers_place(Place::From);
                format!("(SELECT * FROM {}) AS y", source_table.name)
            }
            false => format!("{} AS y", source_table.name),
        };
        let others = ("y".to_owned(), atoms(source_table, "y"));
        let both = level(vec![(target.alias.clone(), target.atoms()), others.clone()]);
        let alone = level(vec![others]);
        let mut text = format!(
            "MERGE INTO {} USING {source} ON {}.{} = y.{source_key}",
            target.text, target.alias, key.0
        );
        if wanted.has(Place::On) || self.choices.chance(30) {
            text += " AND ";
            text += &self.inside(both.clone(), |generator| generator.changing_condition(Place::On, wanted));
        }
        // The first arms have what is wanted. After one without a condition no other of its kind is reached.
        let is_outer = wanted.joins == [JoinKind::Right];
        let sets = wanted.has(Place::Set);
        let mut arms: Vec<bool> = sets.then_some(true).into_iter().collect();
        arms.extend(is_outer.then_some(false));
        let more = usize::from(arms.is_empty()) + self.choices.below(3);
        arms.extend((0..more).map(|_| !is_outer || self.choices.chance(60)));
        let (mut is_first, mut had, mut unconditional) = (true, [false; 2], [false; 2]);
        for is_matched in arms {
            let kind = usize::from(is_matched);
            if unconditional[kind] {
                continue;
            }
            let asks = match is_matched {
                true => sets,
                false => wanted.has(Place::Values),
            };
            let asks = asks && !std::mem::replace(&mut had[kind], true);
            let when = std::mem::take(&mut is_first)
                && (wanted.has(Place::When) || wanted.case_in == Some(Place::When));
            let level = if is_matched { both.clone() } else { alone.clone() };
            text += &self.inside(level, |generator| {
                let condition = match when || generator.choices.chance(40) {
                    true => {
                        let nothing = Wanted::default();
                        let wanted = if when { wanted } else { &nothing };
                        format!(" AND {}", generator.changing_condition(Place::When, wanted))
                    }
                    false => {
                        unconditional[kind] = true;
                        String::new()
                    }
                };
                let nothing = Wanted::default();
                let wanted = if asks { wanted } else { &nothing };
                let action = match (is_matched, generator.choices.weighted(&[60, 25, 15])) {
                    (_, 2) if !asks => "DO NOTHING".to_owned(),
                    (true, 1) if !asks => "DELETE".to_owned(),
                    (true, _) => {
                        let assignments = generator
                            .at(Place::Set, |generator| generator.assignments(table, Place::Set, wanted));
                        format!("UPDATE SET {assignments}")
                    }
                    (false, _) => generator.merged_values(table, source_key, wanted),
                };
                let word = if is_matched { "MATCHED" } else { "NOT MATCHED" };
                format!(" WHEN {word}{condition} THEN {action}")
            });
        }
        self.covers_join(if is_outer { JoinKind::Right } else { JoinKind::Inner });
        text
    }

    /// INSERT of MERGE; the first column that may has what is wanted.
    fn merged_values(&mut self, table: &'static Table, source_key: &str, wanted: &Wanted) -> String {
        let names: Vec<&str> = table.columns.iter().map(|(name, ..)| *name).collect();
        let mut asks = true;
        let mut cells = Vec::new();
        for column in table.columns {
            cells.push(match column.2 {
                Constraint::Key => format!("y.{source_key} + 100"),
                Constraint::Unique => "NULL".to_owned(),
                _ => self.at(Place::Values, |generator| {
                    let asked = match std::mem::take(&mut asks) {
                        true => generator.asking_value(column.1, Place::Values, wanted),
                        false => None,
                    };
                    generator.assigned(column, 1, true, asked)
                }),
            });
        }
        format!("INSERT ({}) VALUES ({})", names.join(", "), cells.join(", "))
    }
}

/// Whether a column has any values, also equal ones.
fn is_plain(column: &Column) -> bool {
    !matches!(column.2, Constraint::Key | Constraint::Unique)
}

/// A value of a key that no row has: a number that no row has, or what is made of it.
fn new_value(ty: Ty, fresh: &str) -> String {
    match ty {
        Ty::Text | Ty::Vary | Ty::Char => format!("'new' || {fresh}"),
        Ty::Uuid => format!("('00000000-0000-0000-0000-000000000' || {fresh})::uuid"),
        _ => fresh.to_owned(),
    }
}

fn atoms(table: &Table, alias: &str) -> Vec<Atom> {
    let atom = |(name, ty, _): &Column| Atom {
        text: format!("{alias}.{name}"),
        ty: *ty,
        alias: Some(alias.to_owned()),
    };
    table.columns.iter().map(atom).collect()
}

/// The scope of expressions over relations.
fn level(relations: Vec<(String, Vec<Atom>)>) -> Level {
    let (aliases, atoms): (Vec<String>, Vec<Vec<Atom>>) = relations.into_iter().unzip();
    Level { atoms: atoms.concat(), aliases, ..Level::default() }
}
