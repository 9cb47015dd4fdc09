//! Row changes: INSERT, ON CONFLICT, UPDATE, DELETE, MERGE, with RETURNING, alone and in WITH.
//!
//! Statements whose result depends on a choice of the engine are avoided. A row that a change finds joins one row at most, by a
//! key of the other table. New keys are numbers that do not depend on the order of rows.

use super::expression::paren;
use super::{Atom, Common, Generator, Level};
use crate::compare::Ordering;
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

impl Generator {
    /// A change of rows, and its target table.
    pub(super) fn change(&mut self) -> (String, Ordering, &'static str) {
        let weights: Vec<usize> = TABLES.iter().map(|table| if table.name == "e" { 3 } else { 10 }).collect();
        let table = &TABLES[self.choices.weighted(&weights)];
        if self.choices.chance(12) {
            // The query reads the rows from before.
            let types = self.types(3);
            let columns = self.names(&types);
            let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
            let change = self.any_change(table, Some((&types[..], &names[..])), false);
            self.common.push(Common { name: "c".to_owned(), columns: columns.clone(), uses: 2 });
            let types = self.types(3);
            let (query, ordering) = match self.choices.chance(50) {
                true => self.query_of("c", &columns, &types),
                false => self.whole_query(&types),
            };
            return (format!("WITH c AS ({change}) {query}"), ordering, table.name);
        }
        if self.choices.chance(10) {
            // PostgreSQL 15 has no WITH RECURSIVE before MERGE.
            let with = self.with(false);
            let change = self.any_change(table, None, !with.starts_with("WITH RECURSIVE"));
            return (with + &change, Ordering::Open, table.name);
        }
        (self.any_change(table, None, true), Ordering::Open, table.name)
    }

    /// PostgreSQL 15 has no MERGE in WITH, and none with RETURNING.
    fn any_change(&mut self, table: &'static Table, returned: Returned<'_>, may_merge: bool) -> String {
        let merge = if may_merge { 15 } else { 0 };
        self.rule(RULE, |generator| match generator.choices.weighted(&[35, 30, 20, merge]) {
            0 => generator.insert(table, returned),
            1 => generator.update(table, returned),
            2 => generator.delete(table, returned),
            _ => generator.merge(table),
        })
    }

    fn change_target(&mut self, table: &'static Table) -> Target {
        let (alias, text) = match self.choices.chance(50) {
            true => ("x".to_owned(), format!("{} AS x", table.name)),
            false => (table.name.to_owned(), table.name.to_owned()),
        };
        Target { table, alias, text }
    }

    /// RETURNING, with a blank before it.
    fn returning(&mut self, level: &Level, star: &str, returned: Returned<'_>) -> String {
        self.inside(level.clone(), |generator| match returned {
            Some((types, names)) => {
                let item = |generator: &mut Self, (ty, name): (&Ty, &String)| {
                    format!("{} AS {name}", generator.expression(*ty, 1))
                };
                let items: Vec<String> = types.iter().zip(names).map(|pair| item(generator, pair)).collect();
                format!(" RETURNING {}", items.join(", "))
            }
            None => match generator.choices.weighted(&[30, 20, 50]) {
                0 => " RETURNING *".to_owned(),
                1 => String::new(),
                _ => {
                    let types = generator.types(3);
                    let mut items: Vec<String> =
                        types.iter().map(|ty| generator.expression(*ty, 2)).collect();
                    if generator.choices.chance(25) {
                        items.push(format!("{star}.*"));
                    }
                    format!(" RETURNING {}", items.join(", "))
                }
            },
        })
    }

    /// What may be assigned to a column: a value, DEFAULT, a parameter or a string of unknown type.
    fn assigned(&mut self, column: &Column, depth: usize, may_default: bool) -> String {
        let (_, ty, constraint) = *column;
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
                Ty::Text => self.expression(Ty::Date, depth),
                ty => self.expression(ty, depth),
            },
            5 => "NULL".to_owned(),
            _ => self.expression(ty, depth),
        }
    }

    /// A parameter whose type is inferred from its context.
    pub(super) fn bare_parameter(&mut self, ty: Ty) -> String {
        let text = self.text_of(ty);
        let value = (text != "NULL").then(|| text.trim_matches('\'').to_owned());
        self.parameters.push(Parameter { oid: None, value });
        format!("${}", self.parameters.len())
    }

    /// A string that any context of this type reads.
    fn text_of(&mut self, ty: Ty) -> String {
        let text = match ty {
            Ty::Int | Ty::Big => self.choices.pick(&["'1'", "'2'", "'30'"]),
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
                Ty::Text => self.choices.pick(&["'a'", "'b'"]).to_owned(),
                _ => self.choices.pick(&["1", "2", "3"]).to_owned(),
            },
            2 if constraint == Constraint::Unique => "NULL".to_owned(),
            _ if ty == Ty::Text => format!("'new' || {fresh}"),
            _ => fresh.to_owned(),
        }
    }

    fn insert(&mut self, table: &'static Table, returned: Returned<'_>) -> String {
        let target = self.change_target(table);
        let is_needed = |column: &&Column| matches!(column.2, Constraint::Key | Constraint::NotNull);
        let mut columns: Vec<Column> = table.columns.to_vec();
        let mut list = String::new();
        if self.choices.chance(60) {
            // In another order, and without some.
            let skip = self.choices.below(columns.len());
            columns.rotate_left(skip);
            columns.retain(|column| is_needed(&column) || self.choices.chance(60));
            let names: Vec<&str> = columns.iter().map(|(name, ..)| *name).collect();
            list = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
            if names.is_empty() {
                columns = table.columns.to_vec();
            }
        }
        let rows = match self.choices.weighted(&[60, 35, 3]) {
            0 => {
                let count = 1 + self.choices.below(3);
                let rows: Vec<String> = (0..count)
                    .map(|row| {
                        let fresh = format!("{}", 100 + row);
                        let cells: Vec<String> = columns
                            .iter()
                            .map(|column| match column.2 {
                                Constraint::Key | Constraint::Unique => self.key_value(column, &fresh),
                                _ => self.assigned(column, 1, true),
                            })
                            .collect();
                        format!("({})", cells.join(", "))
                    })
                    .collect();
                format!("VALUES {}", rows.join(", "))
            }
            1 => self.inserted_query(&columns),
            _ => {
                list.clear();
                "DEFAULT VALUES".to_owned()
            }
        };
        let conflict = if self.choices.chance(40) { self.on_conflict(&target) } else { String::new() };
        let level = level(vec![(target.alias.clone(), target.atoms())]);
        let returning = self.returning(&level, &target.alias, returned);
        format!("INSERT INTO {}{list} {rows}{conflict}{returning}", target.text)
    }

    /// A query of a table with a key, from which new keys are made.
    fn inserted_query(&mut self, columns: &[Column]) -> String {
        let (table, key) = self.keyed();
        let level = level(vec![("y".to_owned(), atoms(table, "y"))]);
        self.inside(level, |generator| {
            let fresh = format!("y.{key} + 100");
            let cells: Vec<String> = columns
                .iter()
                .map(|column| match column.2 {
                    Constraint::Key => fresh.clone(),
                    Constraint::Unique if column.1 == Ty::Text => "'new' || y.".to_owned() + key,
                    Constraint::Unique => match generator.choices.chance(30) {
                        true => "NULL".to_owned(),
                        false => fresh.clone(),
                    },
                    _ => generator.assigned(column, 1, false),
                })
                .collect();
            let condition = generator.where_clause();
            format!("SELECT {} FROM {} AS y{condition}", cells.join(", "), table.name)
        })
    }

    fn on_conflict(&mut self, target: &Target) -> String {
        let is_key = |column: &&Column| matches!(column.2, Constraint::Key | Constraint::Unique);
        let keys: Vec<Column> = target.table.columns.iter().filter(is_key).copied().collect();
        let key = keys[self.choices.below(keys.len())];
        let arbiter = match self.choices.below(4) {
            0 => String::new(),
            1 if key.2 == Constraint::Key => format!(" ON CONSTRAINT {}_pkey", target.table.name),
            _ => format!(" ({})", key.0),
        };
        if arbiter.is_empty() || self.choices.chance(35) {
            return format!(" ON CONFLICT{arbiter} DO NOTHING");
        }
        let both = vec![
            (target.alias.clone(), target.atoms()),
            ("excluded".to_owned(), atoms(target.table, "excluded")),
        ];
        self.inside(level(both), |generator| {
            let assignments = generator.assignments(target.table);
            let condition = generator.where_clause();
            format!(" ON CONFLICT{arbiter} DO UPDATE SET {assignments}{condition}")
        })
    }

    fn where_clause(&mut self) -> String {
        match self.choices.chance(65) {
            true => {
                let depth = 1 + self.choices.below(2);
                format!(" WHERE {}", self.condition(depth))
            }
            false => String::new(),
        }
    }

    /// The assignments after SET.
    fn assignments(&mut self, table: &'static Table) -> String {
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
        if picked.len() > 1 && self.choices.chance(25) {
            // Several columns at once.
            let names: Vec<&str> = picked.iter().map(|(name, ..)| *name).collect();
            let types: Vec<Ty> = picked.iter().map(|(_, ty, _)| *ty).collect();
            let is_nullable = picked.iter().all(|(.., constraint)| *constraint == Constraint::Free);
            let value = match self.choices.below(3) {
                0 if is_nullable && self.may_nest() => paren(self.sub_query(&types, true).text),
                choice => {
                    let word = if choice == 1 { "ROW" } else { "" };
                    let cells: Vec<String> =
                        picked.iter().map(|column| self.assigned(column, 1, choice != 1)).collect();
                    format!("{word}({})", cells.join(", "))
                }
            };
            texts.push(format!("({}) = {value}", names.join(", ")));
        } else {
            for column in &picked {
                texts.push(format!("{} = {}", column.0, self.assigned(column, 2, true)));
            }
        }
        if self.choices.chance(6) {
            let is_number = |column: &&Column| {
                matches!(column.2, Constraint::Key | Constraint::Unique) && column.1 != Ty::Text
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

    fn update(&mut self, table: &'static Table, returned: Returned<'_>) -> String {
        let target = self.change_target(table);
        let own = (target.alias.clone(), target.atoms());
        let (from, level, joined) = match self.choices.chance(35) {
            true => {
                let (text, other, condition) = self.met(&target);
                (format!(" FROM {text}"), level(vec![own, other]), Some(condition))
            }
            false => (String::new(), level(vec![own]), None),
        };
        let (assignments, condition) = self.inside(level.clone(), |generator| {
            let assignments = generator.assignments(table);
            (assignments, generator.joined_where(joined))
        });
        let returning = self.returning(&level, &target.alias, returned);
        format!("UPDATE {} SET {assignments}{from}{condition}{returning}", target.text)
    }

    fn joined_where(&mut self, joined: Option<String>) -> String {
        match joined {
            None => self.where_clause(),
            Some(joined) if self.choices.chance(50) => format!(" WHERE {joined} AND {}", self.condition(2)),
            Some(joined) => format!(" WHERE {joined}"),
        }
    }

    fn delete(&mut self, table: &'static Table, returned: Returned<'_>) -> String {
        let target = self.change_target(table);
        let own = (target.alias.clone(), target.atoms());
        let (using, level, joined) = match self.choices.chance(30) {
            true => {
                let (text, other, condition) = self.met(&target);
                (format!(" USING {text}"), level(vec![own, other]), Some(condition))
            }
            false => (String::new(), level(vec![own]), None),
        };
        let condition = self.inside(level.clone(), |generator| generator.joined_where(joined));
        let returning = self.returning(&level, &target.alias, returned);
        format!("DELETE FROM {}{using}{condition}{returning}", target.text)
    }

    fn merge(&mut self, table: &'static Table) -> String {
        let target = self.change_target(table);
        let (source_table, source_key) = self.keyed();
        let unique: Vec<Column> = table
            .columns
            .iter()
            .filter(|column| matches!(column.2, Constraint::Key | Constraint::Unique) && column.1 != Ty::Text)
            .copied()
            .collect();
        let key = unique[self.choices.below(unique.len())];
        let source = match self.choices.chance(30) {
            true => format!("(SELECT * FROM {}) AS y", source_table.name),
            false => format!("{} AS y", source_table.name),
        };
        let others = ("y".to_owned(), atoms(source_table, "y"));
        let both = level(vec![(target.alias.clone(), target.atoms()), others.clone()]);
        let alone = level(vec![others]);
        let mut text = format!(
            "MERGE INTO {} USING {source} ON {}.{} = y.{source_key}",
            target.text, target.alias, key.0
        );
        for _ in 0..1 + self.choices.below(3) {
            let is_matched = self.choices.chance(60);
            let level = if is_matched { both.clone() } else { alone.clone() };
            text += &self.inside(level, |generator| {
                let condition = match generator.choices.chance(40) {
                    true => format!(" AND {}", generator.condition(1)),
                    false => String::new(),
                };
                let action = match (is_matched, generator.choices.weighted(&[60, 25, 15])) {
                    (_, 2) => "DO NOTHING".to_owned(),
                    (true, 1) => "DELETE".to_owned(),
                    (true, _) => format!("UPDATE SET {}", generator.assignments(table)),
                    (false, _) => {
                        let names: Vec<&str> = table.columns.iter().map(|(name, ..)| *name).collect();
                        let cells: Vec<String> = table
                            .columns
                            .iter()
                            .map(|column| match column.2 {
                                Constraint::Key => format!("y.{source_key} + 100"),
                                Constraint::Unique => "NULL".to_owned(),
                                _ => generator.assigned(column, 1, true),
                            })
                            .collect();
                        format!("INSERT ({}) VALUES ({})", names.join(", "), cells.join(", "))
                    }
                };
                let word = if is_matched { "MATCHED" } else { "NOT MATCHED" };
                format!(" WHEN {word}{condition} THEN {action}")
            });
        }
        text
    }

    /// A query that reads a common table first.
    fn query_of(&mut self, name: &str, columns: &[(String, Ty)], types: &[Ty]) -> (String, Ordering) {
        let atoms: Vec<Atom> = columns
            .iter()
            .map(|(column, ty)| Atom {
                text: format!("{name}.{column}"),
                ty: *ty,
                alias: Some(name.to_owned()),
            })
            .collect();
        self.inside(level(vec![(name.to_owned(), atoms)]), |generator| {
            let targets: Vec<String> = types.iter().map(|ty| generator.expression(*ty, 1)).collect();
            let condition = generator.where_clause();
            (format!("SELECT {} FROM {name}{condition}", targets.join(", ")), Ordering::Open)
        })
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
