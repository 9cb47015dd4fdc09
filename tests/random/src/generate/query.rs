//! Queries: SELECT, set operations, WITH.

use super::expression::paren;
use super::from::{From, Item};
use super::{Atom, Common, Frame, Generator, Level};
use crate::compare::Ordering;
use crate::coverage::{JoinKind, OperatorKind, Place};
use crate::schema::Ty;

const RULE: u32 = 300;

/// A query in an expression.
pub(super) struct Query {
    pub text: String,
}

/// The context of a SELECT.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// The statement.
    Statement,
    /// A sub-query of any number of rows.
    Rows,
    /// A sub-query of one row at most.
    One,
    /// An operand of a set operation.
    Operand,
}

impl Generator {
    /// The statement.
    pub(super) fn statement(&mut self) -> (String, Ordering) {
        let with = if self.choices.chance(22) { self.with(true) } else { String::new() };
        let types = self.types(4);
        let (text, ordering) = self.query(&types, &[], Use::Statement);
        (format!("{with}{text}"), ordering)
    }

    /// A query that is a statement.
    pub(super) fn whole_query(&mut self, types: &[Ty]) -> (String, Ordering) {
        self.query(types, &[], Use::Statement)
    }

    /// A sub-query of an expression that returns these types.
    pub(super) fn sub_query(&mut self, types: &[Ty], at_most_one: bool) -> Query {
        let used = if at_most_one { Use::One } else { Use::Rows };
        Query { text: self.nested(types, &[], used) }
    }

    /// A sub-query of FROM; its columns have these names, if any are given.
    pub(super) fn named_sub_query(&mut self, types: &[Ty], names: &[String]) -> String {
        self.nested(types, names, Use::Rows)
    }

    /// A scalar or ARRAY sub-query.
    pub(super) fn scalar_sub_query(&mut self, ty: Ty) -> String {
        let element = match ty {
            Ty::Ints => Some(Ty::Int),
            Ty::Texts => Some(Ty::Text),
            _ => None,
        };
        if let Some(element) = element.filter(|_| self.choices.chance(60)) {
            // The order of the elements is that of the rows.
            let query = self.nested(&[element], &["a".to_owned()], Use::Rows);
            return format!("ARRAY(SELECT i.a FROM ({query}) AS i ORDER BY 1)");
        }
        format!("({})", self.nested(&[ty], &[], Use::One))
    }

    fn nested(&mut self, types: &[Ty], names: &[String], used: Use) -> String {
        let place = self.place;
        if let Some(frame) = self.frames.last_mut() {
            frame.places.insert(place);
        }
        self.queries += 1;
        self.at(Place::None, |generator| generator.query(types, names, used).0)
    }

    /// WITH, with a blank after it; one of its tables may have the name of another table.
    pub(super) fn with(&mut self, may_hide: bool) -> String {
        let is_recursive = self.choices.chance(30);
        // One hides a table, unless it would be read where the table is meant.
        let names = if is_recursive || !may_hide { ["c", "q"] } else { ["c", "t"] };
        let count = 1 + self.choices.below(2);
        let mut texts = Vec::new();
        for name in names.into_iter().take(count) {
            let types = self.types(3);
            let mut columns = self.names(&types);
            let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
            let text = match is_recursive && self.choices.chance(80) {
                true => {
                    columns.insert(0, ("k".to_owned(), Ty::Int));
                    self.recursive(name, &columns)
                }
                false => {
                    let word = self.choices.pick(&["", "", "MATERIALIZED ", "NOT MATERIALIZED "]);
                    let in_list = self.choices.chance(30);
                    let given = if in_list { Vec::new() } else { names.clone() };
                    let list = if in_list { format!(" ({})", names.join(", ")) } else { String::new() };
                    let query = self.at(Place::With, |generator| generator.nested(&types, &given, Use::Rows));
                    format!("{name}{list} AS {word}({query})")
                }
            };
            texts.push(text);
            self.common.push(Common { name: name.to_owned(), columns, uses: 4 });
        }
        format!("WITH {}{} ", if is_recursive { "RECURSIVE " } else { "" }, texts.join(", "))
    }

    /// A common table that counts to three at most.
    fn recursive(&mut self, name: &str, columns: &[(String, Ty)]) -> String {
        self.queries += 1;
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        self.frames.push(Frame::default());
        let initial = self.from();
        self.covers_operator(OperatorKind::Recursion);
        let first = self.inside(initial.level(), |generator| {
            let targets: Vec<String> = columns[1..]
                .iter()
                .map(|(_, ty)| format!("{}::{}", paren(generator.expression(*ty, 1)), ty.name()))
                .collect();
            let condition = generator.at(Place::Where, |generator| generator.condition(1));
            format!("SELECT 1, {} FROM {} WHERE {condition}", targets.join(", "), initial.text)
        });
        let step = self.item_of(name, columns);
        let second = self.inside(step.level(), |generator| {
            let targets: Vec<String> = columns[1..]
                .iter()
                .map(|(_, ty)| format!("{}::{}", paren(generator.expression(*ty, 1)), ty.name()))
                .collect();
            let condition = match generator.choices.chance(40) {
                true => {
                    let condition = generator.at(Place::Where, |generator| generator.condition(1));
                    format!(" AND {condition}")
                }
                false => String::new(),
            };
            format!(
                "SELECT {name}.k + 1, {} FROM {} WHERE {name}.k < 3{condition}",
                targets.join(", "),
                step.text
            )
        });
        self.close_frame();
        let all = self.choices.pick(&["UNION ALL", "UNION"]);
        format!("{name} ({}) AS ({first} {all} {second})", names.join(", "))
    }

    fn query(&mut self, types: &[Ty], names: &[String], used: Use) -> (String, Ordering) {
        self.rule(RULE + used as u32 * 20 + types.len() as u32, |generator| {
            generator.frames.push(Frame::default());
            let made = match used {
                Use::Statement | Use::Rows
                    if !types.is_empty() && generator.choices.chance(10) && generator.may_nest() =>
                {
                    generator.set_operation(types, names, used)
                }
                _ => generator.select(types, names, used),
            };
            generator.close_frame();
            made
        })
    }

    fn close_frame(&mut self) {
        let mut frame = self.frames.pop().expect("a query is being made");
        if frame.places.is_empty() {
            frame.places.insert(Place::None);
        }
        if frame.operators.is_empty() {
            frame.operators.insert(OperatorKind::Plain);
        }
        if frame.joins.is_empty() {
            frame.joins.insert(JoinKind::Single);
        }
        for place in &frame.places {
            for operator in &frame.operators {
                for join in &frame.joins {
                    self.cells.insert((*place, *operator, *join));
                }
            }
        }
    }

    fn set_operation(&mut self, types: &[Ty], names: &[String], used: Use) -> (String, Ordering) {
        self.covers_operator(OperatorKind::SetOperation);
        let mut text = self.operand(types, names);
        for _ in 0..1 + self.choices.below(2) {
            let word = self.choices.pick(&[
                "UNION ALL",
                "UNION",
                "INTERSECT",
                "EXCEPT",
                "EXCEPT ALL",
                "INTERSECT ALL",
            ]);
            let right = self.operand(types, &[]);
            text = format!("{text} {word} {right}");
            if self.choices.chance(30) {
                text = paren(text);
            }
        }
        let wants = self.wants_order(used);
        let (tail, ordering) = self.tail(types, used, wants, &[], None);
        (text + &tail, ordering)
    }

    fn operand(&mut self, types: &[Ty], names: &[String]) -> String {
        self.queries += 1;
        let (text, _) = self.query(types, names, Use::Operand);
        match self.choices.chance(30) {
            true => paren(text),
            false => text,
        }
    }

    fn select(&mut self, types: &[Ty], names: &[String], used: Use) -> (String, Ordering) {
        if self.choices.chance(if used == Use::One { 8 } else { 3 }) {
            // GROUPING of an expression is refused by PostgreSQL in a query within the grouped one.
            let targets: Vec<String> = self.inside(Level::default(), |generator| {
                types.iter().map(|ty| generator.expression(*ty, 1)).collect()
            });
            return (format!("SELECT {}", self.targets(&targets, names)), Ordering::Open);
        }
        let from = self.from();
        let level = from.level();
        let mut condition = String::new();
        let wanted = if used == Use::Statement { 40 } else { 50 };
        if self.choices.chance(wanted) {
            condition = self.inside(level.clone(), |generator| {
                let depth = 1 + generator.choices.below(2);
                let text = generator.at(Place::Where, |generator| generator.condition(depth));
                // Most rows remain in some statements.
                match generator.choices.chance(35).then(|| generator.own_column(Ty::Int)).flatten() {
                    Some(column) => format!(" WHERE ({text} OR {column} IS NOT NULL)"),
                    None => format!(" WHERE {text}"),
                }
            });
        }
        let start = format!(" FROM {}{condition}", from.text);
        let kind = match used {
            Use::One => [0, 2, 3][self.choices.weighted(&[40, 50, 10])],
            Use::Operand => self.choices.weighted(&[60, 0, 8, 16, 6, 10]),
            _ => self.choices.weighted(&[50, 7, 8, 18, 7, 10]),
        };
        match kind {
            1 if !types.is_empty() && used != Use::Operand => {
                self.distinct_on(types, names, used, &start, level)
            }
            2 => self.aggregated(types, names, used, &start, &level),
            3 | 4 => self.grouped(types, names, used, &start, &from, kind == 4),
            _ => self.plain(types, names, used, &start, level, kind == 5),
        }
    }

    /// The target list of expressions.
    fn targets(&mut self, expressions: &[String], names: &[String]) -> String {
        let mut targets = Vec::new();
        for (place, expression) in expressions.iter().enumerate() {
            let name = match names.get(place) {
                Some(name) => format!(" AS {name}"),
                None if self.choices.chance(20) => {
                    format!(" AS {}", self.choices.pick(&["a", "b", "s", "k"]))
                }
                None => String::new(),
            };
            targets.push(format!("{expression}{name}"));
        }
        match targets.is_empty() {
            true => self.choices.pick(&["1", "*", "NULL"]).to_owned(),
            false => targets.join(", "),
        }
    }

    fn plain(
        &mut self,
        types: &[Ty],
        names: &[String],
        used: Use,
        start: &str,
        level: Level,
        is_distinct: bool,
    ) -> (String, Ordering) {
        if used == Use::Statement && !is_distinct && self.choices.chance(8) {
            return (format!("SELECT *{start}"), Ordering::Open);
        }
        let level = Level { windows: true, ..level };
        self.inside(level, |generator| {
            let targets: Vec<String> = generator
                .at(Place::Target, |generator| types.iter().map(|ty| generator.target(*ty, used)).collect());
            if is_distinct {
                generator.covers_operator(OperatorKind::Distinct);
            }
            let list = generator.targets(&targets, names);
            let word = if is_distinct { "DISTINCT " } else { "" };
            let wants = generator.wants_order(used);
            let keys = generator.order_keys(wants, is_distinct);
            let (tail, ordering) = generator.tail(types, used, wants, &keys, None);
            (format!("SELECT {word}{list}{start}{tail}"), ordering)
        })
    }

    /// Expressions to order by before the columns of the result.
    fn order_keys(&mut self, wants: bool, is_distinct: bool) -> Vec<String> {
        if is_distinct || !wants || !self.choices.chance(25) {
            return Vec::new();
        }
        let ty = [Ty::Int, Ty::Text, Ty::Date][self.choices.below(3)];
        let key = self.or_none(|generator| {
            let key = generator.at(Place::OrderBy, |generator| generator.expression(ty, 1));
            (!is_constant(&key)).then_some(key)
        });
        key.into_iter().collect()
    }

    fn target(&mut self, ty: Ty, used: Use) -> String {
        if ty == Ty::Int && used != Use::One && self.choices.chance(3) {
            return match self.choices.below(2) {
                0 => "generate_series(1, 2)".to_owned(),
                _ => format!("unnest({})", self.literal(Ty::Ints)),
            };
        }
        if self.choices.chance(10) {
            return self.call(ty, 1);
        }
        let depth = self.choices.below(3);
        self.expression(ty, depth)
    }

    fn distinct_on(
        &mut self,
        types: &[Ty],
        names: &[String],
        used: Use,
        start: &str,
        level: Level,
    ) -> (String, Ordering) {
        self.covers_operator(OperatorKind::DistinctOn);
        self.inside(level, |generator| {
            let ty = [Ty::Int, Ty::Text, Ty::Bool, Ty::Num][generator.choices.below(4)];
            let mut key = generator.expression(ty, 1);
            if is_constant(&key) {
                key = format!("coalesce({key})");
            }
            let targets: Vec<String> = generator
                .at(Place::Target, |generator| types.iter().map(|ty| generator.expression(*ty, 1)).collect());
            let list = generator.targets(&targets, names);
            let (tail, ordering) = generator.tail(types, used, true, &[], Some(&key));
            (format!("SELECT DISTINCT ON ({key}) {list}{start}{tail}"), ordering)
        })
    }

    /// Aggregates without GROUP BY: one row.
    fn aggregated(
        &mut self,
        types: &[Ty],
        names: &[String],
        used: Use,
        start: &str,
        level: &Level,
    ) -> (String, Ordering) {
        self.covers_operator(OperatorKind::Aggregate);
        let grouped =
            Level { aliases: level.aliases.clone(), grouped: Some(level.atoms.clone()), ..Level::default() };
        self.inside(grouped, |generator| {
            let mut targets: Vec<String> = generator.at(Place::Target, |generator| {
                types
                    .iter()
                    .enumerate()
                    .map(|(place, ty)| match place == 0 || generator.choices.chance(60) {
                        true => generator.aggregate(*ty, 1),
                        false => generator.expression(*ty, 1),
                    })
                    .collect()
            });
            if targets.is_empty() {
                targets.push("count(*)".to_owned());
            }
            let list = generator.targets(&targets, names);
            let having = match generator.choices.chance(15) {
                true => {
                    let condition = generator.at(Place::Having, |generator| generator.condition(1));
                    format!(" HAVING {condition}")
                }
                false => String::new(),
            };
            let ordering = if used == Use::Statement { Ordering::Total } else { Ordering::Open };
            (format!("SELECT {list}{start}{having}"), ordering)
        })
    }

    fn grouped(
        &mut self,
        types: &[Ty],
        names: &[String],
        used: Use,
        start: &str,
        from: &From,
        has_sets: bool,
    ) -> (String, Ordering) {
        self.covers_operator(if has_sets { OperatorKind::GroupingSets } else { OperatorKind::Group });
        let level = from.level();
        let (keys, text) = self.inside(level.clone(), |generator| {
            generator.at(Place::GroupBy, |generator| generator.group_by(has_sets))
        });
        let mut atoms: Vec<Atom> = keys.clone();
        if has_sets {
            for key in &keys {
                let text = format!("grouping({})", key.text);
                atoms.push(Atom { text, ty: Ty::Int, alias: None });
            }
        }
        // The columns that a primary key determines.
        if !has_sets {
            let is_key = |item: &&Item| keys.iter().any(|key| Some(&key.text) == item.primary.as_ref());
            for item in from.items.iter().filter(is_key) {
                atoms.extend(
                    level.atoms.iter().filter(|atom| atom.alias.as_deref() == Some(&item.alias)).cloned(),
                );
            }
        }
        let grouped = Level {
            atoms,
            aliases: level.aliases.clone(),
            grouped: Some(level.atoms),
            windows: true,
            total: (!has_sets).then(|| keys.iter().map(|key| key.text.clone()).collect()),
        };
        self.inside(grouped, |generator| {
            let targets: Vec<String> = generator.at(Place::Target, |generator| {
                types
                    .iter()
                    .map(|ty| match generator.choices.chance(40) {
                        true => generator.aggregate(*ty, 1),
                        false => generator.expression(*ty, 1),
                    })
                    .collect()
            });
            let list = generator.targets(&targets, names);
            let list = if list == "*" { "1".to_owned() } else { list };
            let windows = std::mem::replace(&mut generator.level().windows, false);
            let having = match generator.choices.chance(25) {
                true => {
                    let condition = generator.at(Place::Having, |generator| generator.condition(1));
                    format!(" HAVING {condition}")
                }
                false => String::new(),
            };
            generator.level().windows = windows;
            let wants = generator.wants_order(used);
            let keys = generator.order_keys(wants, false);
            let (tail, ordering) = generator.tail(types, used, wants, &keys, None);
            (format!("SELECT {list}{start} GROUP BY {text}{having}{tail}"), ordering)
        })
    }

    fn level(&mut self) -> &mut Level {
        self.levels.last_mut().expect("a query is being made")
    }

    /// The keys, and the text of the clause.
    fn group_by(&mut self, has_sets: bool) -> (Vec<Atom>, String) {
        let count = 1 + self.choices.below(if has_sets { 2 } else { 3 });
        let mut keys: Vec<Atom> = Vec::new();
        for _ in 0..count {
            let ty = Ty::ALL[self.choices.weighted(&[30, 16, 12, 12, 8, 6, 6, 6, 3, 2, 3])];
            let key = self.or_none(|generator| {
                let key = match generator.column(ty) {
                    Some(atom) if generator.choices.chance(80) => atom,
                    _ => Atom { text: generator.expression(ty, 1), ty, alias: None },
                };
                let level = generator.level();
                let is_own = key.alias.as_ref().is_none_or(|alias| level.aliases.contains(alias));
                // Above grouping sets PostgreSQL 15 does not make constants NULL, as it should.
                let is_in_key = |atom: &&Atom| atom.alias.is_some() && key.text.contains(&atom.text);
                let has_column = key.alias.is_some() || level.atoms.iter().any(|atom| is_in_key(&atom));
                let is_new = !keys.iter().any(|one| one.text == key.text);
                let is_good = is_own && (has_column || !has_sets) && is_new && !is_constant(&key.text);
                is_good.then_some(key)
            });
            keys.extend(key);
        }
        if keys.is_empty() {
            let own: Option<Atom> = self.level().atoms.first().cloned();
            keys.extend(own);
        }
        let texts: Vec<&str> = keys.iter().map(|key| key.text.as_str()).collect();
        let all = texts.join(", ");
        if !has_sets || texts.is_empty() {
            return (keys, all);
        }
        let text = match self.choices.below(4) {
            0 => format!("ROLLUP ({all})"),
            1 => format!("CUBE ({all})"),
            2 => format!("GROUPING SETS (({all}), ({}), ())", texts[0]),
            _ => format!("{}, GROUPING SETS ((), ({all}))", texts[0]),
        };
        (keys, text)
    }

    /// Whether a query is ordered.
    fn wants_order(&mut self, used: Use) -> bool {
        match used {
            Use::Operand => false,
            Use::One => true,
            Use::Rows => self.choices.chance(12),
            Use::Statement => self.choices.chance(45),
        }
    }

    /// ORDER BY, LIMIT and OFFSET. `keys` come before the columns of the result, the key of DISTINCT ON before all.
    fn tail(
        &mut self,
        types: &[Ty],
        used: Use,
        wants: bool,
        keys: &[String],
        distinct_on: Option<&str>,
    ) -> (String, Ordering) {
        if !wants {
            return (String::new(), Ordering::Open);
        }
        let must_limit = used == Use::One;
        let limit = match must_limit {
            true => " LIMIT 1".to_owned(),
            false => match self.choices.weighted(&[40, 35, 15, 10]) {
                0 => String::new(),
                1 => format!(" LIMIT {}", self.choices.pick(&["3", "1", "2", "5", "10"])),
                2 => format!(" OFFSET {}", self.choices.pick(&["1", "2"])),
                _ => " OFFSET 1 LIMIT 2".to_owned(),
            },
        };
        self.covers_operator(if limit.is_empty() { OperatorKind::Sort } else { OperatorKind::Limit });
        let mut parts: Vec<String> = distinct_on.map(str::to_owned).into_iter().collect();
        // The statement's order may be partial.
        let is_partial =
            used == Use::Statement && keys.is_empty() && distinct_on.is_none() && self.choices.chance(35);
        parts.extend(keys.iter().cloned());
        let count = if is_partial { types.len().div_ceil(2) } else { types.len() };
        for ordinal in 1..=count {
            let direction = self.choices.pick(&["", "", " DESC", " NULLS FIRST", " DESC NULLS LAST", " ASC"]);
            parts.push(format!("{ordinal}{direction}"));
        }
        if parts.is_empty() {
            return (limit, Ordering::Open);
        }
        let ties = limit
            .strip_prefix(" LIMIT ")
            .filter(|_| !must_limit && self.choices.chance(15))
            .map(|count| format!(" FETCH FIRST {count} ROWS WITH TIES"));
        let all_of_equal = limit.is_empty() || ties.is_some();
        let limit = ties.unwrap_or(limit);
        let ordering = match is_partial && count < types.len() {
            true if all_of_equal => Ordering::Keys((0..count).collect()),
            true => Ordering::LimitedKeys((0..count).collect()),
            false => Ordering::Total,
        };
        (format!(" ORDER BY {}{limit}", parts.join(", ")), ordering)
    }
}

/// Whether ORDER BY and GROUP BY would take the text for the number of a column, or refuse it.
fn is_constant(text: &str) -> bool {
    let is_plain = !text.contains("::");
    is_plain
        && (text.starts_with(|first: char| first.is_ascii_digit() || first == '\'') || text.starts_with("(-"))
        || text == "true"
        || text == "false"
}
