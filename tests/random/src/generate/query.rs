//! Queries: SELECT, set operations, WITH.

use super::expression::paren;
use super::from::{From, Item};
use super::{Atom, Common, Generator, Level, Wanted};
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
    /// An operand of a set operation that has an order.
    OrderedOperand,
}

impl Use {
    fn is_operand(self) -> bool {
        matches!(self, Use::Operand | Use::OrderedOperand)
    }
}

/// How a SELECT makes groups.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    /// It makes none.
    Plain,
    /// Aggregates without GROUP BY: one row.
    Aggregated,
    /// GROUP BY
    Grouped,
    /// GROUPING SETS, ROLLUP, CUBE
    Sets,
}

/// Which of equal rows a SELECT gives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Distinct {
    /// All.
    No,
    /// DISTINCT
    All,
    /// DISTINCT ON
    On,
}

/// What a SELECT is made of.
struct Shape {
    base: Base,
    distinct: Distinct,
    /// Whether it begins with the number of a round, and casts its other columns.
    leads: bool,
}

impl Generator<'_> {
    /// The statement.
    pub(super) fn statement(&mut self) -> (String, Ordering) {
        if self.choices.chance(2) {
            return (self.volatile(), Ordering::Open);
        }
        if self.choices.chance(88) {
            let wanted = self.draw_wanted();
            let types = self.wanted_types();
            self.wanted = Some(wanted);
            return self.query(&types, &[], Use::Statement);
        }
        let types = self.types(4);
        self.query(&types, &[], Use::Statement)
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
        // What stands in no clause stands among the targets.
        let place = if self.place == Place::None { Place::Target } else { self.place };
        self.covers_place(place);
        self.queries += 1;
        // It is another query that is to have what is wanted, or to have no sub-query.
        let wanted = self.wanted.take();
        let text = self.at(Place::None, |generator| generator.query(types, names, used).0);
        self.wanted = wanted;
        text
    }

    /// WITH, with a blank after it; one of its tables may have the name of another table.
    pub(super) fn with(&mut self, may_hide: bool, may_recurse: bool) -> String {
        let is_recursive = may_recurse && self.choices.chance(30);
        let count = 1 + self.choices.below(2);
        let names = self.common_names(may_hide && !is_recursive);
        let mut texts = Vec::new();
        for name in names.into_iter().take(count) {
            let types = self.types(3);
            let mut columns = self.names(&types);
            let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
            let text = match is_recursive && self.choices.chance(80) {
                true => {
                    columns.insert(0, ("k".to_owned(), Ty::Int));
                    self.covers_place(Place::With);
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

    /// Two names for common tables that no query around has; one may hide a table, unless it would be read where the table is meant.
    fn common_names(&mut self, may_hide: bool) -> [&'static str; 2] {
        match self.common.len() {
            0 if may_hide => ["c", "t"],
            0 => ["c", "q"],
            1 | 2 => ["c1", "c2"],
            3 | 4 => ["c3", "c4"],
            5 | 6 => ["c5", "c6"],
            _ => ["c7", "c8"],
        }
    }

    /// A recursion that is to have these cells, and a query of it.
    fn wanted_recursion(&mut self, wanted: Wanted, types: &[Ty]) -> String {
        let mut columns = self.names(types);
        columns.insert(0, ("k".to_owned(), Ty::Int));
        self.covers_place(Place::With);
        let place = self.common.len();
        self.wanted = Some(wanted);
        let [name, _] = self.common_names(false);
        let text = self.recursive(name, &columns);
        self.common.push(Common { name: name.to_owned(), columns, uses: 4 });
        self.begins_with = Some(place);
        format!("WITH RECURSIVE {text} ")
    }

    /// A common table that counts to three at most.
    fn recursive(&mut self, name: &str, columns: &[(String, Ty)]) -> String {
        self.queries += 1;
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let types: Vec<Ty> = columns[1..].iter().map(|(_, ty)| *ty).collect();
        let given = self.given.take();
        self.open_frame();
        self.given = given;
        self.covers_operator(OperatorKind::Recursion);
        let wanted = self.wanted.take();
        let is_flat = wanted.as_ref().is_some_and(Wanted::is_flat);
        let is_ordered = wanted.as_ref().is_some_and(|wanted| wanted.has(Place::OrderBy));
        let common = self.common.len();
        let with = match wanted.as_ref().is_some_and(|wanted| wanted.has(Place::With)) {
            true => {
                let text = self.with(false, false);
                self.begins_with = self.choices.chance(50).then_some(common);
                text
            }
            false => String::new(),
        };
        self.wanted = wanted.map(|wanted| wanted.of_operand());
        self.leads = true;
        let used = if is_ordered { Use::OrderedOperand } else { Use::Operand };
        let first = with.clone() + &self.at(Place::None, |generator| generator.query(&types, &[], used).0);
        let first = if is_ordered || !with.is_empty() { paren(first) } else { first };
        self.common.truncate(common);
        self.flat += usize::from(is_flat);
        let step = self.item_of(name, columns);
        let second = self.inside(step.level(), |generator| {
            let targets: Vec<String> = columns[1..]
                .iter()
                .map(|(_, ty)| {
                    let target = generator.at(Place::Target, |generator| generator.expression(*ty, 1));
                    format!("{}::{}", paren(target), ty.name())
                })
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
        self.flat -= usize::from(is_flat);
        self.close_frame(false);
        let all = self.choices.pick(&["UNION ALL", "UNION"]);
        format!("{name} ({}) AS ({first} {all} {second})", names.join(", "))
    }

    fn query(&mut self, types: &[Ty], names: &[String], used: Use) -> (String, Ordering) {
        self.rule(RULE + used as u32 * 20 + types.len() as u32, |generator| {
            generator.open_frame();
            let mut wanted = generator.wanted.take().unwrap_or_default();
            let common = generator.common.len();
            let is_whole = matches!(used, Use::Statement | Use::Rows | Use::One);
            let is_flat = wanted.is_flat();
            let with = if is_whole && wanted.does(OperatorKind::Recursion) {
                generator.wanted_recursion(std::mem::take(&mut wanted), types)
            } else if is_whole && !is_flat && generator.wants_with(used, &wanted) {
                let text = generator.with(used == Use::Statement, true);
                // It is read, or it would not be evaluated.
                generator.begins_with = generator.choices.chance(50).then_some(common);
                text
            } else {
                String::new()
            };
            generator.flat += usize::from(is_flat);
            let unites = match used {
                Use::Statement | Use::Rows if !types.is_empty() => {
                    wanted.does(OperatorKind::SetOperation)
                        || wanted.is_empty() && generator.choices.chance(10) && generator.may_nest()
                }
                _ => false,
            };
            let (text, ordering) = match unites {
                true => generator.set_operation(types, names, used, &wanted),
                false => generator.select(types, names, used, &wanted),
            };
            generator.flat -= usize::from(is_flat);
            generator.begins_with = None;
            generator.common.truncate(common);
            generator.close_frame(used.is_operand());
            (with + &text, ordering)
        })
    }

    /// Whether a query begins with WITH.
    fn wants_with(&mut self, used: Use, wanted: &Wanted) -> bool {
        if wanted.has(Place::With) {
            return true;
        }
        if !wanted.is_empty() || self.leads || !self.may_nest() {
            return false;
        }
        self.choices.chance(if used == Use::Statement { 22 } else { 2 })
    }

    /// Ends what is covered by a query or a row change; what an operand has counts for what it is of, too.
    pub(super) fn close_frame(&mut self, is_operand: bool) {
        let mut frame = self.frames.pop().expect("a query is being made");
        if frame.joins.is_empty() {
            frame.joins.insert(JoinKind::Single);
        }
        if let Some(outer) = self.frames.last_mut().filter(|_| is_operand) {
            outer.places.extend(&frame.places);
            outer.joins.extend(&frame.joins);
        }
        if frame.places.is_empty() {
            frame.places.insert(Place::None);
        }
        if frame.operators.is_empty() {
            frame.operators.insert(OperatorKind::Plain);
        }
        for place in &frame.places {
            for operator in &frame.operators {
                for join in &frame.joins {
                    self.cells.insert((*place, *operator, *join));
                }
            }
        }
    }

    fn set_operation(
        &mut self,
        types: &[Ty],
        names: &[String],
        used: Use,
        wanted: &Wanted,
    ) -> (String, Ordering) {
        self.covers_operator(OperatorKind::SetOperation);
        let mut text = self.operand(types, names, (!wanted.is_empty()).then(|| wanted.of_operand()));
        for _ in 0..1 + self.choices.below(2) {
            // What is wanted of the first operand is mostly to be seen.
            let words: &[&str] = match wanted.is_empty() {
                true => &["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL", "INTERSECT ALL"],
                false => &["UNION ALL", "UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "UNION"],
            };
            let word = self.choices.pick(words);
            let right = self.operand(types, &[], None);
            text = format!("{text} {word} {right}");
            if self.choices.chance(30) {
                text = paren(text);
            }
        }
        let wants = self.wants_order(used, wanted);
        let (tail, ordering) = self.tail(types, used, wants, &[], None, wanted, 0);
        (text + &tail, ordering)
    }

    fn operand(&mut self, types: &[Ty], names: &[String], wanted: Option<Wanted>) -> String {
        self.queries += 1;
        let is_ordered = match &wanted {
            Some(wanted) => wanted.has(Place::OrderBy),
            None => self.choices.chance(5),
        };
        self.wanted = wanted;
        let used = if is_ordered { Use::OrderedOperand } else { Use::Operand };
        let (text, _) = self.query(types, names, used);
        match is_ordered || self.choices.chance(30) {
            true => paren(text),
            false => text,
        }
    }

    fn select(&mut self, types: &[Ty], names: &[String], used: Use, wanted: &Wanted) -> (String, Ordering) {
        let leads = std::mem::take(&mut self.leads);
        let is_alone = self.begins_with.is_none() && wanted.is_empty();
        if is_alone && self.choices.chance(if used == Use::One { 8 } else { 3 }) {
            // GROUPING of an expression is refused by PostgreSQL in a query within the grouped one.
            let targets: Vec<String> = self.inside(Level::default(), |generator| {
                types
                    .iter()
                    .map(|ty| generator.at(Place::Target, |generator| generator.expression(*ty, 1)))
                    .collect()
            });
            return (
                format!("SELECT {}", self.targets(&targets, names, leads.then_some(types))),
                Ordering::Open,
            );
        }
        let from = self.from(wanted);
        let level = from.level();
        let mut condition = String::new();
        let percent = if used == Use::Statement { 30 } else { 45 };
        if wanted.has(Place::Where) {
            condition = self.inside(level.clone(), |generator| {
                let text = generator.at(Place::Where, |generator| generator.sub_query_condition(1));
                format!(" WHERE {}", generator.mostly_true(text, 75))
            });
        } else if self.choices.chance(percent) {
            condition = self.inside(level.clone(), |generator| {
                let depth = 1 + generator.choices.below(2);
                let text = generator.at(Place::Where, |generator| generator.condition(depth));
                // Most rows remain in some statements.
                format!(" WHERE {}", generator.mostly_true(text, 60))
            });
        }
        let start = format!(" FROM {}{condition}", from.text);
        let shape = self.shape(types, used, wanted, leads);
        self.body(types, names, used, wanted, &start, &from, &shape)
    }

    fn shape(&mut self, types: &[Ty], used: Use, wanted: &Wanted, leads: bool) -> Shape {
        const KINDS: [(Base, Distinct); 6] = [
            (Base::Plain, Distinct::No),
            (Base::Plain, Distinct::On),
            (Base::Aggregated, Distinct::No),
            (Base::Grouped, Distinct::No),
            (Base::Sets, Distinct::No),
            (Base::Plain, Distinct::All),
        ];
        let (mut base, mut distinct) = match used {
            _ if !wanted.is_empty() => (Base::Plain, Distinct::No),
            Use::One => KINDS[[0, 2, 3][self.choices.weighted(&[40, 50, 10])]],
            Use::Operand => KINDS[self.choices.weighted(&[60, 0, 8, 16, 6, 10])],
            _ => KINDS[self.choices.weighted(&[50, 7, 8, 18, 7, 10])],
        };
        if wanted.is_empty() && base != Base::Plain && used != Use::One && self.choices.chance(8) {
            distinct = [Distinct::All, Distinct::On][self.choices.below(2)];
        }
        if wanted.does(OperatorKind::GroupingSets) {
            base = Base::Sets;
        } else if wanted.does(OperatorKind::Group) || wanted.has(Place::GroupBy) {
            base = Base::Grouped;
        } else if wanted.does(OperatorKind::Aggregate) {
            base = Base::Aggregated;
        } else if [Place::Having, Place::Aggregate, Place::Filter].iter().any(|place| wanted.has(*place)) {
            base = [Base::Grouped, Base::Aggregated][self.choices.below(2)];
        }
        if wanted.does(OperatorKind::DistinctOn) {
            distinct = Distinct::On;
        } else if wanted.does(OperatorKind::Distinct) {
            distinct = Distinct::All;
        }
        if types.is_empty() && (distinct == Distinct::On || base != Base::Plain) {
            distinct = Distinct::No;
        }
        // PostgreSQL would have to be told the order.
        if used == Use::Operand && distinct == Distinct::On {
            distinct = Distinct::All;
        }
        Shape { base, distinct, leads }
    }

    /// The target list of expressions; after the number of a round, with a cast to each of these types, if they are given.
    fn targets(&mut self, expressions: &[String], names: &[String], leading: Option<&[Ty]>) -> String {
        let mut targets = Vec::new();
        if let Some(types) = leading {
            targets.push("1".to_owned());
            let cast = |(expression, ty): (&String, &Ty)| format!("({expression})::{}", ty.name());
            targets.extend(expressions.iter().zip(types).map(cast));
            return targets.join(", ");
        }
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

    /// What follows FROM and WHERE.
    #[expect(clippy::too_many_arguments, reason = "a SELECT has as many parts")]
    fn body(
        &mut self,
        types: &[Ty],
        names: &[String],
        used: Use,
        wanted: &Wanted,
        start: &str,
        from: &From,
        shape: &Shape,
    ) -> (String, Ordering) {
        let Shape { base, distinct, leads } = *shape;
        let is_plain = base == Base::Plain && distinct == Distinct::No && wanted.is_empty();
        if used == Use::Statement && is_plain && self.choices.chance(8) {
            return (format!("SELECT *{start}"), Ordering::Open);
        }
        let (level, group_by) = match base {
            Base::Plain => (Level { windows: true, ..from.level() }, String::new()),
            Base::Aggregated => {
                self.covers_operator(OperatorKind::Aggregate);
                let level = from.level();
                let windows = !wanted.is_empty() || self.choices.chance(15);
                let grouped = Some(level.atoms);
                (Level { aliases: level.aliases, grouped, windows, ..Level::default() }, String::new())
            }
            Base::Grouped | Base::Sets => self.grouped_level(from, base == Base::Sets, wanted),
        };
        self.inside(level, |generator| {
            let mut targets: Vec<String> = generator.at(Place::Target, |generator| {
                let target =
                    |(place, ty): (usize, &Ty)| match generator.wanted_target(place, types, base, wanted) {
                        Some(target) => target,
                        None => match generator.level().whole.take_if(|key| key.ty == *ty) {
                            Some(key) => key.text,
                            None => generator.target_of(base, place, *ty, used),
                        },
                    };
                types.iter().enumerate().map(target).collect()
            });
            if targets.is_empty() && base == Base::Aggregated {
                targets.push("count(*)".to_owned());
            }
            let mut list = generator.targets(&targets, names, leads.then_some(types));
            if list == "*" && base != Base::Plain {
                list = "1".to_owned();
            }
            let having = generator.having(base, wanted);
            let mut distinct_on = None;
            let word = match distinct {
                Distinct::No => String::new(),
                Distinct::All => {
                    generator.covers_operator(OperatorKind::Distinct);
                    "DISTINCT ".to_owned()
                }
                Distinct::On => {
                    generator.covers_operator(OperatorKind::DistinctOn);
                    let ty = [Ty::Int, Ty::Text, Ty::Bool, Ty::Num][generator.choices.below(4)];
                    let mut key = generator.at(Place::Target, |generator| generator.expression(ty, 1));
                    if is_constant(&key) {
                        key = format!("coalesce({key})");
                    }
                    let word = format!("DISTINCT ON ({key}) ");
                    distinct_on = Some(key);
                    word
                }
            };
            let wants = distinct_on.is_some() || generator.wants_order(used, wanted);
            let is_one = base == Base::Aggregated && (wanted.is_empty() || !wants);
            if is_one && distinct_on.is_none() {
                let ordering = if used == Use::Statement { Ordering::Total } else { Ordering::Open };
                return (format!("SELECT {word}{list}{start}{having}"), ordering);
            }
            let keys = match wanted.has(Place::OrderBy) {
                false => generator.order_keys(wants, distinct == Distinct::All),
                // The expression must be one of the targets.
                true if distinct == Distinct::All => {
                    let is_sub_query = |target: &&String| target.starts_with("(SELECT");
                    let key = targets.iter().rev().find(is_sub_query).filter(|_| !leads).cloned();
                    if key.is_some() {
                        generator.covers_place(Place::OrderBy);
                    }
                    key.into_iter().collect()
                }
                true => vec![generator.at(Place::OrderBy, |generator| generator.scalar_sub_query(Ty::Int))],
            };
            let lead = usize::from(leads);
            let (tail, ordering) =
                generator.tail(types, used, wants, &keys, distinct_on.as_deref(), wanted, lead);
            (format!("SELECT {word}{list}{start}{group_by}{having}{tail}"), ordering)
        })
    }

    fn target_of(&mut self, base: Base, place: usize, ty: Ty, used: Use) -> String {
        match base {
            Base::Plain => self.target(ty, used),
            Base::Aggregated if place == 0 || self.choices.chance(60) => self.aggregate(ty, 1),
            Base::Grouped | Base::Sets if self.choices.chance(40) => self.aggregate(ty, 1),
            _ => self.expression(ty, 1),
        }
    }

    /// The target with what is wanted of this place: the first, a bigint, has aggregates and window functions, the last a sub-query, and
    /// one in the middle CASE.
    fn wanted_target(&mut self, place: usize, types: &[Ty], base: Base, wanted: &Wanted) -> Option<String> {
        if wanted.is_empty() || types.len() < 3 {
            return None;
        }
        if place == 0 && types[0] == Ty::Big {
            let mut counts = Vec::new();
            if wanted.has(Place::Aggregate) && base != Base::Plain {
                counts.push(self.asking_aggregate());
            }
            if wanted.has(Place::Filter) && base != Base::Plain {
                let level = self.aggregated_level();
                let condition = self.inside_instead(level, |generator| {
                    generator.at(Place::Filter, |generator| generator.sub_query_condition(0))
                });
                counts.push(format!("count(*) FILTER (WHERE {condition})"));
            }
            if wanted.has(Place::Window) {
                self.covers_operator(OperatorKind::Window);
                counts.push(self.asking_window());
            } else if wanted.does(OperatorKind::Window) {
                counts.push(self.window(Ty::Big));
            }
            return (!counts.is_empty()).then(|| counts.join(" + "));
        }
        let ty = types[place];
        if place == types.len() - 1 {
            let is_ordered = wanted.has(Place::OrderBy) && wanted.does(OperatorKind::Distinct);
            let asks = wanted.has(Place::Target) || is_ordered;
            return asks.then(|| format!("({})", self.sub_query(&[ty], true).text));
        }
        if place != 1 || !wanted.has(Place::Case) {
            return None;
        }
        let windows = std::mem::replace(&mut self.level().windows, false);
        let text = self.asking_case(ty);
        self.level().windows = windows;
        Some(text)
    }

    /// HAVING, with a blank before it, or nothing.
    fn having(&mut self, base: Base, wanted: &Wanted) -> String {
        let percent = match base {
            Base::Plain => return String::new(),
            Base::Aggregated => 15,
            Base::Grouped | Base::Sets => 25,
        };
        let windows = std::mem::replace(&mut self.level().windows, false);
        let text = if wanted.has(Place::Having) {
            let condition = self.at(Place::Having, |generator| generator.sub_query_condition(0));
            match self.choices.chance(75) {
                true => format!(" HAVING ({condition} OR count(*) >= 0)"),
                false => format!(" HAVING {condition}"),
            }
        } else if self.choices.chance(if wanted.is_empty() { percent } else { percent / 3 }) {
            let condition = self.at(Place::Having, |generator| generator.condition(1));
            format!(" HAVING {condition}")
        } else {
            String::new()
        };
        self.level().windows = windows;
        text
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
        if ty == Ty::Int && !matches!(used, Use::One | Use::OrderedOperand) && self.choices.chance(3) {
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

    /// GROUP BY, with a blank before it, and what the query sees above it.
    fn grouped_level(&mut self, from: &From, has_sets: bool, wanted: &Wanted) -> (Level, String) {
        self.covers_operator(if has_sets { OperatorKind::GroupingSets } else { OperatorKind::Group });
        let level = from.level();
        let asks = wanted.has(Place::GroupBy);
        let (keys, text) = self.inside(level.clone(), |generator| {
            generator.at(Place::GroupBy, |generator| generator.group_by(has_sets, asks))
        });
        let mut atoms: Vec<Atom> = keys.clone();
        // PostgreSQL 15 does not find a key with a sub-query again within another expression, and does not make it NULL there.
        let whole = match has_sets && asks {
            true => {
                atoms.iter().position(|atom| atom.text.contains("(SELECT")).map(|place| atoms.remove(place))
            }
            false => None,
        };
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
            whole,
        };
        (grouped, format!(" GROUP BY {text}"))
    }

    fn level(&mut self) -> &mut Level {
        self.levels.last_mut().expect("a query is being made")
    }

    /// The keys, and the text of the clause.
    fn group_by(&mut self, has_sets: bool, asks: bool) -> (Vec<Atom>, String) {
        let count = 1 + self.choices.below(if has_sets { 2 } else { 3 });
        let mut keys: Vec<Atom> = Vec::new();
        let asking = if asks { self.asking_key(has_sets) } else { None };
        let asks = asking.is_some();
        keys.extend(asking);
        for _ in usize::from(asks)..count {
            let ty = Ty::ALL[self.choices.weighted(&Ty::WEIGHTS)];
            let key = self.or_none(|generator| {
                let key = match generator.column(ty) {
                    Some(atom) if generator.choices.chance(80) => atom,
                    _ => Atom { text: generator.expression(ty, 1), ty, alias: None },
                };
                let level = generator.level();
                let is_own = key.alias.as_ref().is_none_or(|alias| level.aliases.contains(alias));
                let has_column = key.alias.is_some() || is_strict(&key.text, level);
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

    /// A key with a sub-query, if a column has a type for it.
    fn asking_key(&mut self, has_sets: bool) -> Option<Atom> {
        let types = [Ty::Int, Ty::Text, Ty::Big, Ty::Num, Ty::Small, Ty::Fixed, Ty::Double];
        let (column, ty) = types.into_iter().find_map(|ty| Some((self.own_column(ty)?, ty)))?;
        let query = self.scalar_sub_query(ty);
        let text = match ty {
            _ if !has_sets => format!("coalesce({column}, {query})"),
            Ty::Text => format!("({column} || {query})"),
            _ => format!("({column} + {query})"),
        };
        // The sum of two numerics has no precision.
        let ty = if has_sets && ty == Ty::Fixed { Ty::Num } else { ty };
        Some(Atom { text, ty, alias: None })
    }

    /// Whether a query is ordered.
    fn wants_order(&mut self, used: Use, wanted: &Wanted) -> bool {
        let is_wanted =
            wanted.does(OperatorKind::Sort) || wanted.does(OperatorKind::Limit) || wanted.has(Place::OrderBy);
        match used {
            Use::Operand => false,
            Use::One | Use::OrderedOperand => true,
            Use::Rows | Use::Statement if !wanted.is_empty() => is_wanted,
            Use::Rows => self.choices.chance(12),
            Use::Statement => self.choices.chance(45),
        }
    }

    /// ORDER BY, LIMIT and OFFSET. `keys` come before the columns of the result, the key of DISTINCT ON before all. `lead` columns
    /// stand before those of `types`.
    #[expect(clippy::too_many_arguments, reason = "an order depends on as much")]
    fn tail(
        &mut self,
        types: &[Ty],
        used: Use,
        wants: bool,
        keys: &[String],
        distinct_on: Option<&str>,
        wanted: &Wanted,
        lead: usize,
    ) -> (String, Ordering) {
        if !wants {
            return (String::new(), Ordering::Open);
        }
        let must_limit = used == Use::One;
        let limit = match must_limit {
            true => " LIMIT 1".to_owned(),
            false if wanted.does(OperatorKind::Sort) => String::new(),
            false if wanted.does(OperatorKind::Limit) => {
                self.choices.pick(&[" LIMIT 3", " LIMIT 10", " OFFSET 1", " LIMIT 1"]).to_owned()
            }
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
        for ordinal in 1 + lead..=count + lead {
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

/// Whether an expression is NULL where a column of the query is. Above grouping sets PostgreSQL 15 makes columns NULL, and then
/// computes the expressions over them that are keys; constants and what is not NULL of NULL it does not make NULL, as it should.
fn is_strict(text: &str, level: &Level) -> bool {
    const OTHERS: [&str; 13] = [
        "coalesce", "CASE", "concat", "greatest", "least", "nullif", "IS ", "SELECT", "ARRAY", "array", "||",
        " AND ", " OR ",
    ];
    let has_column = level.atoms.iter().any(|atom| atom.alias.is_some() && text.contains(&atom.text));
    has_column && !OTHERS.iter().any(|other| text.contains(other))
}

/// Whether ORDER BY and GROUP BY would take the text for the number of a column, or refuse it.
fn is_constant(text: &str) -> bool {
    let is_plain = !text.contains("::");
    is_plain
        && (text.starts_with(|first: char| first.is_ascii_digit() || first == '\'') || text.starts_with("(-"))
        || matches!(text, "true" | "false" | "(true)" | "(false)")
}
