//! FROM: relations and joins.

use super::{Atom, Generator, Level, Wanted};
use crate::coverage::{JoinKind, Place};
use crate::schema::{Constraint, TABLES, Table, Ty};

const RULE: u32 = 200;
const ITEM: u32 = 201;

/// A FROM clause so far.
#[derive(Default)]
pub(super) struct From {
    pub text: String,
    pub items: Vec<Item>,
    /// The names that can be used without a relation, once for each column that they may denote.
    bare: Vec<(String, Ty)>,
    /// Whether it has a comma outside of parentheses.
    has_comma: bool,
}

/// A relation of FROM.
#[derive(Clone)]
pub(super) struct Item {
    pub alias: String,
    pub columns: Vec<(String, Ty)>,
    /// Columns whose values are unique.
    pub total: Option<Vec<String>>,
    /// A primary key: GROUP BY of it permits all columns.
    pub primary: Option<String>,
}

impl From {
    /// The scope of expressions over it.
    pub fn level(&self) -> Level {
        let mut atoms = Vec::new();
        for item in &self.items {
            for (name, ty) in &item.columns {
                let text = format!("{}.{name}", item.alias);
                atoms.push(Atom { text, ty: *ty, alias: Some(item.alias.clone()) });
            }
        }
        for (name, ty) in &self.bare {
            if self.bare.iter().filter(|(other, _)| other == name).count() == 1 {
                atoms.push(Atom { text: name.clone(), ty: *ty, alias: None });
            }
        }
        let totals: Option<Vec<Vec<String>>> = self.items.iter().map(|item| item.total.clone()).collect();
        Level {
            atoms,
            aliases: self.items.iter().map(|item| item.alias.clone()).collect(),
            total: totals.map(|totals| totals.concat()).filter(|total| !total.is_empty()),
            ..Level::default()
        }
    }

    fn of(text: String, item: Item) -> From {
        From { text, bare: item.columns.clone(), items: vec![item], has_comma: false }
    }

    /// The names that both sides have once, with comparable types.
    fn common(&self, other: &From) -> Option<Vec<(String, Ty)>> {
        let mut common = Vec::new();
        for (name, ty) in &self.bare {
            let same: Vec<Ty> =
                other.bare.iter().filter(|(other, _)| other == name).map(|(_, ty)| *ty).collect();
            let is_once = self.bare.iter().filter(|(other, _)| other == name).count() == 1;
            match same[..] {
                [] => {}
                [one] if is_once => common.push((name.clone(), ty.common(one)?)),
                _ => return None,
            }
        }
        Some(common)
    }

    /// Merges columns of two sides.
    fn merged(self, other: From, text: String, merged: &[(String, Ty)]) -> From {
        let rest = self.bare.into_iter().chain(other.bare);
        let rest = rest.filter(|(name, _)| !merged.iter().any(|(one, _)| one == name));
        let bare = merged.iter().cloned().chain(rest).collect();
        let items = self.items.into_iter().chain(other.items).collect();
        From { text, items, bare, has_comma: false }
    }
}

impl Generator<'_> {
    /// A FROM clause, without the word.
    pub(super) fn from(&mut self, wanted: &Wanted) -> From {
        self.rule(RULE, |generator| {
            let mut used = std::mem::take(&mut generator.used_aliases);
            let first = match generator.begins_with.take() {
                Some(place) => generator.common_table_at(place, &mut used),
                None if wanted.has(Place::From) => generator.derived_table(&mut used, None),
                None => generator.item(&mut used, None),
            };
            if !wanted.joins.is_empty() {
                return generator.wanted_joins(first, &mut used, wanted);
            }
            let joins = generator.choices.weighted(&[45, 35, 15, 5]);
            if joins == 0 {
                generator.covers_join(JoinKind::Single);
            }
            generator.joins(first, joins, &mut used, true)
        })
    }

    /// Joins of these kinds.
    fn wanted_joins(&mut self, first: From, used: &mut Vec<String>, wanted: &Wanted) -> From {
        let mut kinds = wanted.joins.clone();
        kinds.retain(|kind| *kind != JoinKind::Single);
        let has_on = |kind: &JoinKind| matches!(kind, JoinKind::Inner | JoinKind::Left | JoinKind::Right);
        if wanted.has(Place::On) && !kinds.iter().any(has_on) {
            kinds.push([JoinKind::Left, JoinKind::Inner, JoinKind::Right][self.choices.below(3)]);
        }
        if wanted.has(Place::Lateral) && !kinds.contains(&JoinKind::Lateral) {
            kinds.push(JoinKind::Lateral);
        }
        if kinds.is_empty() {
            self.covers_join(JoinKind::Single);
        }
        // Equal names are few at first; what follows a comma binds tighter than the comma.
        kinds.sort_by_key(|kind| match kind {
            JoinKind::Natural => 0,
            JoinKind::Using => 1,
            JoinKind::Lateral => 3,
            JoinKind::Comma => 4,
            _ => 2,
        });
        let mut asks = wanted.has(Place::On);
        kinds.into_iter().fold(first, |left, kind| match kind {
            JoinKind::Lateral => {
                self.covers_join(JoinKind::Lateral);
                let derives = wanted.has(Place::Lateral);
                self.lateral(left, used, false, derives)
            }
            JoinKind::Natural | JoinKind::Using => match self.matching(&left, used) {
                Some(right) => self.join_of(kind, left, right, false),
                None => {
                    let right = self.item(used, None);
                    self.crossed(left, right)
                }
            },
            kind => {
                let right = self.item(used, None);
                let asks_here = has_on(&kind) && std::mem::take(&mut asks);
                self.join_of(kind, left, right, asks_here)
            }
        })
    }

    /// A relation with which NATURAL and USING join.
    fn matching(&mut self, left: &From, used: &mut Vec<String>) -> Option<From> {
        let is_hidden = |name: &str| self.common.iter().any(|common| common.name == name);
        let columns = |table: &Table| {
            table.columns.iter().map(|(name, ty, _)| ((*name).to_owned(), *ty)).collect::<Vec<_>>()
        };
        let joins = |table: &Table| {
            let right = From { bare: columns(table), ..From::default() };
            left.common(&right).is_some_and(|common| (1..3).contains(&common.len()))
        };
        let tables: Vec<&Table> = TABLES
            .iter()
            .filter(|table| table.name != "e" && !is_hidden(table.name) && joins(table))
            .collect();
        if !tables.is_empty() && self.choices.chance(70) {
            let table = tables[self.choices.below(tables.len())];
            let alias = self.alias(used);
            let item = Item { alias: alias.clone(), columns: columns(table), total: None, primary: None };
            return Some(From::of(format!("{} AS {alias}", table.name), item));
        }
        let is_once = |name: &str| left.bare.iter().filter(|(other, _)| other == name).count() == 1;
        let names: Vec<(String, Ty)> = left.bare.iter().filter(|(name, _)| is_once(name)).cloned().collect();
        if names.is_empty() {
            return None;
        }
        let column = names[self.choices.below(names.len())].clone();
        let rows: Vec<String> = (0..2).map(|_| format!("({})", self.literal(column.1))).collect();
        let alias = self.alias(used);
        let text = format!("(VALUES {}) AS {alias}({})", rows.join(", "), column.0);
        Some(From::of(text, Item { alias, columns: vec![column], total: None, primary: None }))
    }

    /// A FROM clause that begins with this relation, and may join another.
    pub(super) fn item_of(&mut self, name: &str, columns: &[(String, Ty)]) -> From {
        let item = Item { alias: name.to_owned(), columns: columns.to_vec(), total: None, primary: None };
        let first = From::of(name.to_owned(), item);
        let mut used = vec![name.to_owned()];
        match self.choices.chance(40) {
            true => {
                let right = self.or_none(|generator| {
                    let right = generator.item(&mut used, None);
                    let condition = generator.equality(&first, &right)?;
                    Some((right, condition))
                });
                let word = self.choices.pick(&["JOIN", "LEFT JOIN"]);
                match right {
                    Some((right, condition)) => {
                        self.covers_join(if word == "JOIN" { JoinKind::Inner } else { JoinKind::Left });
                        self.joined(first, right, word, &condition)
                    }
                    None => {
                        self.covers_join(JoinKind::Single);
                        first
                    }
                }
            }
            false => {
                self.covers_join(JoinKind::Single);
                first
            }
        }
    }

    /// Joins more relations. Where no comma is permitted, the text is for parentheses or for one side of a join.
    fn joins(&mut self, mut left: From, joins: usize, used: &mut Vec<String>, may_comma: bool) -> From {
        for _ in 0..joins {
            left = self.join(left, used, may_comma);
        }
        left
    }

    pub(super) fn covers_join(&mut self, join: JoinKind) {
        if let Some(frame) = self.frames.last_mut() {
            frame.joins.insert(join);
        }
    }

    fn join(&mut self, left: From, used: &mut Vec<String>, may_comma: bool) -> From {
        // What follows a comma binds tighter than the comma.
        let has_comma = left.has_comma;
        if self.choices.chance(14) && self.may_nest() {
            self.covers_join(JoinKind::Lateral);
            return self.lateral(left, used, may_comma, false);
        }
        let right = match self.choices.chance(12) {
            true => {
                let first = self.item(used, None);
                let inner = self.joins(first, 1, used, false);
                match has_comma {
                    true => inner,
                    false => From { text: format!("({})", inner.text), ..inner },
                }
            }
            false => self.item(used, None),
        };
        let comma = 6 * usize::from(may_comma);
        let weights = match has_comma {
            true => [0, 0, 0, 0, 0, 1, 0, 0],
            false => [22, 22, 12, 12, 7, comma, 10, 9],
        };
        let kind = [
            JoinKind::Inner,
            JoinKind::Left,
            JoinKind::Right,
            JoinKind::Full,
            JoinKind::Cross,
            JoinKind::Comma,
            JoinKind::Using,
            JoinKind::Natural,
        ][self.choices.weighted(&weights)];
        self.join_of(kind, left, right, false)
    }

    /// A join of a kind, whose ON asks a sub-query if `asks` is set. Where the sides do not admit it, it is CROSS JOIN.
    fn join_of(&mut self, kind: JoinKind, left: From, right: From, asks: bool) -> From {
        match kind {
            JoinKind::Inner | JoinKind::Left | JoinKind::Right => {
                self.covers_join(kind);
                let condition = match asks {
                    true => self.asking_on(&left, &right),
                    false => self.on(&left, &right),
                };
                let word = match kind {
                    JoinKind::Inner => "JOIN",
                    JoinKind::Left => "LEFT JOIN",
                    _ => "RIGHT JOIN",
                };
                self.joined(left, right, word, &condition)
            }
            JoinKind::Full => match self.equality(&left, &right) {
                Some(mut condition) => {
                    self.covers_join(JoinKind::Full);
                    if let Some(more) =
                        self.choices.chance(20).then(|| self.equality(&left, &right)).flatten()
                    {
                        condition += &format!(" AND {more}");
                    }
                    self.joined(left, right, "FULL JOIN", &condition)
                }
                None => self.crossed(left, right),
            },
            JoinKind::Comma => {
                self.covers_join(JoinKind::Comma);
                let text = format!("{}, {}", left.text, right.text);
                From { has_comma: true, ..left.merged(right, text, &[]) }
            }
            JoinKind::Using => match left.common(&right).filter(|common| !common.is_empty()) {
                Some(common) => {
                    self.covers_join(JoinKind::Using);
                    let count = 1 + self.choices.below(common.len().min(2));
                    let first = self.choices.below(common.len());
                    let picked: Vec<(String, Ty)> =
                        common.iter().cycle().skip(first).take(count).cloned().collect();
                    let names: Vec<&str> = picked.iter().map(|(name, _)| name.as_str()).collect();
                    let word = self.choices.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
                    let text = format!("{} {word} {} USING ({})", left.text, right.text, names.join(", "));
                    left.merged(right, text, &picked)
                }
                None => self.crossed(left, right),
            },
            JoinKind::Natural => match left.common(&right) {
                Some(common) if common.len() < 3 => {
                    self.covers_join(JoinKind::Natural);
                    let word = match common.is_empty() {
                        true => "JOIN",
                        false => self.choices.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]),
                    };
                    let text = format!("{} NATURAL {word} {}", left.text, right.text);
                    left.merged(right, text, &common)
                }
                _ => self.crossed(left, right),
            },
            JoinKind::Cross | JoinKind::Single | JoinKind::Lateral => self.crossed(left, right),
        }
    }

    fn crossed(&mut self, left: From, right: From) -> From {
        self.covers_join(JoinKind::Cross);
        let text = format!("{} CROSS JOIN {}", left.text, right.text);
        left.merged(right, text, &[])
    }

    fn joined(&mut self, left: From, right: From, word: &str, condition: &str) -> From {
        let text = format!("{} {word} {} ON {condition}", left.text, right.text);
        left.merged(right, text, &[])
    }

    /// A LATERAL sub-query or function that uses the relations to its left.
    fn lateral(&mut self, left: From, used: &mut Vec<String>, may_comma: bool, derives: bool) -> From {
        let level = left.level();
        let right = self.inside(level, |generator| match derives {
            true => generator.derived_table(used, Some(Place::Lateral)),
            false => generator.item(used, Some(Place::Lateral)),
        });
        if left.has_comma || may_comma && self.choices.chance(35) {
            let text = format!("{}, {}", left.text, right.text);
            return From { has_comma: true, ..left.merged(right, text, &[]) };
        }
        let word = if self.choices.chance(50) { "LEFT JOIN" } else { "JOIN" };
        let condition = match self.choices.chance(30) {
            true => self.on(&left, &right),
            false => "true".to_owned(),
        };
        self.joined(left, right, word, &condition)
    }

    /// An equality of a column of each side.
    fn equality(&mut self, left: &From, right: &From) -> Option<String> {
        let (left, right) = (qualified(&left.items), qualified(&right.items));
        let pairs: Vec<(&Atom, &Atom)> = left
            .iter()
            .flat_map(|one| right.iter().map(move |other| (one, other)))
            .filter(|(one, other)| one.ty.common(other.ty).is_some())
            .collect();
        if pairs.is_empty() {
            return None;
        }
        // Columns of one name often have the same values.
        let name = |atom: &Atom| atom.text.split('.').next_back().map(str::to_owned);
        let same: Vec<_> = pairs.iter().copied().filter(|(left, right)| name(left) == name(right)).collect();
        let pairs = if !same.is_empty() && self.choices.chance(60) { same } else { pairs };
        let (left, right) = pairs[self.choices.below(pairs.len())];
        Some(format!("{} = {}", left.text, right.text))
    }

    fn on(&mut self, left: &From, right: &From) -> String {
        let equality = match self.choices.chance(85) {
            true => self.equality(left, right),
            false => None,
        };
        let more = match equality.is_some() {
            true => self.choices.chance(35),
            false => self.choices.chance(80),
        };
        if !more {
            return equality.unwrap_or_else(|| "true".to_owned());
        }
        let level = on_level(left, right);
        let condition = self.inside(level, |generator| {
            let condition = generator.at(Place::On, |generator| generator.condition(2));
            generator.mostly_true(condition, 50)
        });
        match equality {
            Some(equality) => format!("{equality} AND {condition}"),
            None => condition,
        }
    }

    /// A condition with a sub-query, and mostly an equality.
    fn asking_on(&mut self, left: &From, right: &From) -> String {
        let equality = match self.choices.chance(70) {
            true => self.equality(left, right),
            false => None,
        };
        let condition = self.inside(on_level(left, right), |generator| {
            let condition = generator.at(Place::On, |generator| generator.sub_query_condition(1));
            generator.mostly_true(condition, 70)
        });
        match equality {
            Some(equality) => format!("{equality} AND {condition}"),
            None => condition,
        }
    }

    /// A relation; `lateral` if it may use the relations to its left.
    fn item(&mut self, used: &mut Vec<String>, lateral: Option<Place>) -> From {
        self.rule(ITEM, |generator| {
            let readable = generator.common.iter().filter(|common| common.uses > 0).count();
            let nest = usize::from(generator.may_nest());
            let weights = match lateral {
                None => [60, 22 * usize::from(readable > 0), 14 * nest, 6, 4],
                Some(_) => [0, 0, 80 * nest, 0, 20],
            };
            match generator.choices.weighted(&weights) {
                0 => generator.table(used),
                1 => generator.common_table(used),
                2 => generator.derived_table(used, lateral),
                3 => generator.values(used),
                _ => generator.at(lateral.unwrap_or(Place::From), |generator| {
                    generator.function(used, lateral.is_some())
                }),
            }
        })
    }

    fn alias(&mut self, used: &mut Vec<String>) -> String {
        const ALIASES: [&str; 10] = ["x", "y", "t", "u", "v", "z", "w", "p", "q", "o"];
        let free: Vec<&str> =
            ALIASES.into_iter().filter(|alias| !used.iter().any(|one| one == alias)).collect();
        let alias = match free.is_empty() {
            true => format!("x{}", used.len()),
            false => free[self.choices.below(free.len().min(5))].to_owned(),
        };
        used.push(alias.clone());
        alias
    }

    fn table(&mut self, used: &mut Vec<String>) -> From {
        let hidden = |name: &str| self.common.iter().any(|common| common.name == name);
        let tables: Vec<_> = TABLES.iter().filter(|table| !hidden(table.name)).collect();
        let weight = |table: &&Table| match table.name {
            "e" => 1,
            "m" | "k" => 7,
            _ => 10,
        };
        let weights: Vec<usize> = tables.iter().map(weight).collect();
        let table = tables[self.choices.weighted(&weights)];
        let is_plain = !used.iter().any(|one| one == table.name) && self.choices.chance(50);
        let alias = match is_plain {
            true => {
                used.push(table.name.to_owned());
                table.name.to_owned()
            }
            false => self.alias(used),
        };
        let mut columns: Vec<(String, Ty)> =
            table.columns.iter().map(|(name, ty, _)| ((*name).to_owned(), *ty)).collect();
        let mut text = match is_plain {
            true => alias.clone(),
            false => format!("{} AS {alias}", table.name),
        };
        if !is_plain && self.choices.chance(6) {
            // Renames the first column to the name of the last.
            let last = columns.last().expect("tables have columns").0.clone();
            columns.last_mut().expect("tables have columns").0 = columns[0].0.clone();
            columns[0].0 = last;
            let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
            text += &format!("({})", names.join(", "));
        }
        let key = table.columns.iter().position(|(.., constraint)| *constraint == Constraint::Key);
        let key = key.map(|place| format!("{alias}.{}", columns[place].0));
        let total = key.clone().map(|key| vec![key]);
        From::of(text, Item { alias, columns, total, primary: key })
    }

    fn common_table(&mut self, used: &mut Vec<String>) -> From {
        let readable: Vec<usize> =
            (0..self.common.len()).filter(|place| self.common[*place].uses > 0).collect();
        let place = readable[self.choices.below(readable.len())];
        self.common_table_at(place, used)
    }

    fn common_table_at(&mut self, place: usize, used: &mut Vec<String>) -> From {
        let common = &mut self.common[place];
        common.uses = common.uses.saturating_sub(1);
        let common = self.common[place].clone();
        let alias = self.alias(used);
        let item = Item { alias: alias.clone(), columns: common.columns, total: None, primary: None };
        From::of(format!("{} AS {alias}", common.name), item)
    }

    fn derived_table(&mut self, used: &mut Vec<String>, lateral: Option<Place>) -> From {
        let types = self.types(3);
        let place = lateral.unwrap_or(Place::From);
        let columns = self.names(&types);
        let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
        let in_list = self.choices.chance(30);
        let given = if in_list { Vec::new() } else { names.clone() };
        let query = self.at(place, |generator| generator.named_sub_query(&types, &given));
        let alias = self.alias(used);
        let word = if lateral.is_some() { "LATERAL " } else { "" };
        let list = if in_list { format!("({})", names.join(", ")) } else { String::new() };
        let text = format!("{word}({query}) AS {alias}{list}");
        From::of(text, Item { alias, columns, total: None, primary: None })
    }

    /// A few types, of which most are simple.
    pub(super) fn types(&mut self, most: usize) -> Vec<Ty> {
        let count = 1 + self.choices.below(most);
        (0..count).map(|_| Ty::ALL[self.choices.weighted(&Ty::WEIGHTS)]).collect()
    }

    /// Names for columns of these types: names of columns of tables, each once.
    pub(super) fn names(&mut self, types: &[Ty]) -> Vec<(String, Ty)> {
        const NAMES: [&str; 10] = ["a", "b", "s", "id", "n", "d", "f", "x", "r", "g"];
        let first = self.choices.below(4);
        let name = |(place, ty): (usize, &Ty)| (NAMES[(first + place) % NAMES.len()].to_owned(), *ty);
        types.iter().enumerate().map(name).collect()
    }

    fn values(&mut self, used: &mut Vec<String>) -> From {
        let types = self.types(2);
        let columns = self.names(&types);
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let count = 1 + self.choices.below(3);
        let rows: Vec<String> = (0..count)
            .map(|_| {
                let cells: Vec<String> = types
                    .iter()
                    .map(|ty| match self.choices.chance(12) {
                        true => format!("NULL::{}", ty.name()),
                        false => self.literal(*ty),
                    })
                    .collect();
                format!("({})", cells.join(", "))
            })
            .collect();
        let alias = self.alias(used);
        let text = format!("(VALUES {}) AS {alias}({})", rows.join(", "), names.join(", "));
        From::of(text, Item { alias, columns, total: None, primary: None })
    }

    fn function(&mut self, used: &mut Vec<String>, may_use_left: bool) -> From {
        let name = self.choices.pick(&["a", "n", "id"]).to_owned();
        let ordinality = self.choices.chance(25);
        let call = match (may_use_left, self.choices.below(3)) {
            (true, 0) => format!("unnest({})", self.expression(Ty::Ints, 1)),
            (true, _) => format!("generate_series(1, least({}, 4))", self.expression(Ty::Int, 1)),
            (false, 0) => format!("unnest({})", self.literal(Ty::Ints)),
            (false, _) => "generate_series(1, 3)".to_owned(),
        };
        let alias = self.alias(used);
        let mut columns = vec![(name, Ty::Int)];
        let mut word = "";
        if ordinality {
            columns.push(("b".to_owned(), Ty::Big));
            word = " WITH ORDINALITY";
        }
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let text = format!("{call}{word} AS {alias}({})", names.join(", "));
        From::of(text, Item { alias, columns, total: None, primary: None })
    }
}

/// What ON sees.
fn on_level(left: &From, right: &From) -> Level {
    let items: Vec<Item> = left.items.iter().chain(&right.items).cloned().collect();
    Level {
        atoms: qualified(&items),
        aliases: items.iter().map(|item| item.alias.clone()).collect(),
        ..Level::default()
    }
}

fn qualified(items: &[Item]) -> Vec<Atom> {
    let atom = |item: &Item, (name, ty): &(String, Ty)| Atom {
        text: format!("{}.{name}", item.alias),
        ty: *ty,
        alias: Some(item.alias.clone()),
    };
    items.iter().flat_map(|item| item.columns.iter().map(move |column| atom(item, column))).collect()
}
