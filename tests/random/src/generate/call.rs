//! Aggregates and window functions.

use super::{Atom, Generator, Level};
use crate::coverage::{OperatorKind, Place};
use crate::schema::Ty;

impl Generator<'_> {
    /// An aggregate or window function that returns this type, where one is permitted; else a simpler expression.
    pub(super) fn call(&mut self, ty: Ty, depth: usize) -> String {
        let Some(level) = self.levels.last() else { return self.expression(ty, depth) };
        let (can_group, can_window) = (level.grouped.is_some(), level.windows);
        match (can_group, can_window) {
            (true, true) if self.choices.chance(30) => self.window(ty),
            (true, _) => self.aggregate(ty, depth),
            (false, true) => self.window(ty),
            (false, false) => self.expression(ty, depth),
        }
    }

    /// An aggregate of the innermost query.
    pub(super) fn aggregate(&mut self, ty: Ty, depth: usize) -> String {
        let level = self.aggregated_level();
        self.inside_instead(level, |generator| {
            generator.at(Place::Aggregate, |generator| generator.aggregate_call(ty, depth.min(1)))
        })
    }

    /// An argument that has a column of its own query, so that the aggregate is of that query.
    pub(super) fn argument(&mut self, ty: Ty, depth: usize) -> String {
        match (self.own_column(ty), self.choices.chance(30)) {
            (Some(column), false) => column,
            (Some(column), true) => format!("coalesce({column}, {})", self.expression(ty, depth)),
            (None, _) => {
                let own: Vec<String> = Ty::ALL.iter().filter_map(|ty| self.own_column(*ty)).collect();
                match own.first() {
                    Some(own) => {
                        format!("CASE WHEN {own} IS NOT NULL THEN {} END", self.expression(ty, depth))
                    }
                    None => self.literal(ty),
                }
            }
        }
    }

    fn aggregate_call(&mut self, ty: Ty, depth: usize) -> String {
        let distinct = if self.choices.chance(15) { "DISTINCT " } else { "" };
        let choice = self.choices.below(4);
        let extremum = self.choices.pick(&["max", "min"]);
        let text = match (ty, choice) {
            (Ty::Big, 0) => "count(*)".to_owned(),
            (Ty::Big, 1) => {
                let ty = Ty::ALL[self.choices.below(Ty::ALL.len())];
                format!("count({distinct}{})", self.argument(ty, depth))
            }
            (Ty::Big, 2) => format!("sum({distinct}{})", self.argument(Ty::Int, depth)),
            (Ty::Num, 0) => format!("sum({distinct}{})", self.argument(Ty::Num, depth)),
            (Ty::Num, 1) => format!("avg({distinct}{})", self.argument(Ty::Int, depth)),
            (Ty::Num, 2) => format!("sum({})", self.argument(Ty::Big, depth)),
            (Ty::Double, 0) => format!("sum({distinct}{})", self.argument(Ty::Double, depth)),
            (Ty::Double, 1) => format!("avg({})", self.argument(Ty::Double, depth)),
            (Ty::Double, 3) => format!("avg({})", self.argument(Ty::Real, depth)),
            (Ty::Real, 0) => format!("sum({distinct}{})", self.argument(Ty::Real, depth)),
            (Ty::Num, 3) => format!("sum({distinct}{})", self.argument(Ty::Fixed, depth)),
            (Ty::Big, 3) => format!("sum({distinct}{})", self.argument(Ty::Small, depth)),
            (Ty::Bytes, _) => {
                let argument = self.argument(Ty::Bytes, depth);
                format!("string_agg({distinct}{argument}, {argument} ORDER BY {argument})")
            }
            (Ty::Uuid, _) => {
                let argument = self.argument(Ty::Uuid, depth);
                let filter = self.filter(depth);
                return format!("(array_agg({distinct}{argument} ORDER BY {argument}){filter})[1]");
            }
            (Ty::Double, 2) => {
                format!("percentile_cont(0.5) WITHIN GROUP (ORDER BY {})", self.argument(Ty::Double, depth))
            }
            (Ty::Span, 0) => format!("sum({distinct}{})", self.argument(Ty::Span, depth)),
            (Ty::Span, 1) => format!("avg({})", self.argument(Ty::Span, depth)),
            (Ty::Int, 0) => {
                format!("percentile_disc(0.5) WITHIN GROUP (ORDER BY {})", self.argument(Ty::Int, depth))
            }
            (Ty::Text, 0 | 1) => {
                let argument = self.argument(Ty::Text, depth);
                format!("string_agg({distinct}{argument}, ',' ORDER BY {argument})")
            }
            (Ty::Bool, _) => {
                let name = self.choices.pick(&["bool_or", "bool_and", "every"]);
                format!("{name}({})", self.argument(Ty::Bool, depth))
            }
            (Ty::Ints, _) => {
                let argument = self.argument(Ty::Int, depth);
                let order = self.choices.pick(&["", " DESC", " NULLS FIRST"]);
                format!("array_agg({distinct}{argument} ORDER BY {argument}{order})")
            }
            (Ty::Texts, _) => {
                let argument = self.argument(Ty::Text, depth);
                format!("array_agg({distinct}{argument} ORDER BY {argument})")
            }
            (ty, _) => format!("{extremum}({})", self.argument(ty, depth)),
        };
        text + &self.filter(depth)
    }

    /// FILTER, with a blank before it, or nothing.
    fn filter(&mut self, depth: usize) -> String {
        match self.choices.chance(20) {
            true => {
                let filter = self.at(Place::Filter, |generator| generator.condition(depth));
                format!(" FILTER (WHERE {filter})")
            }
            false => String::new(),
        }
    }

    /// What the arguments of aggregates of the innermost query see.
    pub(super) fn aggregated_level(&self) -> Level {
        let level = self.levels.last().expect("a query is being made");
        Level {
            atoms: level.grouped.clone().expect("aggregates may stand here"),
            aliases: level.aliases.clone(),
            ..Level::default()
        }
    }

    /// Makes something that sees another query in the place of the innermost one.
    pub(super) fn inside_instead<T>(&mut self, level: Level, make: impl FnOnce(&mut Self) -> T) -> T {
        let own = self.levels.pop().expect("a query is being made");
        let made = self.inside(level, make);
        self.levels.push(own);
        made
    }

    /// An aggregate with a sub-query in its argument, as a bigint.
    pub(super) fn asking_aggregate(&mut self) -> String {
        let level = self.aggregated_level();
        self.inside_instead(level, |generator| {
            generator.at(Place::Aggregate, |generator| {
                let query = generator.scalar_sub_query(Ty::Int);
                match generator.own_column(Ty::Int) {
                    Some(column) => format!("coalesce(sum(coalesce({column}, {query})), 0)"),
                    None => format!("count({query})"),
                }
            })
        })
    }

    /// A window function with a sub-query in its argument or its order, as a bigint.
    pub(super) fn asking_window(&mut self) -> String {
        let (windows, atoms) = self.hide_from_windows();
        let text = self.at(Place::Window, |generator| {
            let query = generator.scalar_sub_query(Ty::Int);
            match generator.choices.below(3) {
                0 => format!("coalesce(sum({query}) OVER (), 0)"),
                1 => format!("rank() OVER (ORDER BY {query})"),
                _ => {
                    let key = generator.expression(Ty::Text, 1);
                    format!("count({query}) OVER (PARTITION BY {key})")
                }
            }
        });
        (self.last_level().windows, self.last_level().atoms) = (windows, atoms);
        text
    }

    /// Hides from the arguments of a window function what they may not have: other window functions, and above grouping sets keys
    /// that are expressions. In a window function PostgreSQL 15 does not make such a key NULL where its set leaves it out.
    fn hide_from_windows(&mut self) -> (bool, Vec<Atom>) {
        let level = self.last_level();
        let (windows, atoms) = (std::mem::replace(&mut level.windows, false), level.atoms.clone());
        if level.grouped.is_some() && level.total.is_none() {
            level.atoms.retain(|atom| atom.alias.is_some());
        }
        (windows, atoms)
    }

    fn last_level(&mut self) -> &mut Level {
        self.levels.last_mut().expect("a query is being made")
    }

    /// A window function of the innermost query.
    pub(super) fn window(&mut self, ty: Ty) -> String {
        let is_total = self.levels.last().is_some_and(|level| level.total.is_some());
        if !ty.has_extremum() && ty != Ty::Bool && !is_total {
            return self.expression(ty, 1);
        }
        self.covers_operator(OperatorKind::Window);
        let (windows, atoms) = self.hide_from_windows();
        let text = self.at(Place::Window, |generator| generator.window_call(ty));
        (self.last_level().windows, self.last_level().atoms) = (windows, atoms);
        text
    }

    fn window_call(&mut self, ty: Ty) -> String {
        let total = self.levels.last().and_then(|level| level.total.clone());
        let choice = self.choices.below(5);
        // Calls whose value depends on the order of peers, and those whose value does not.
        let (call, needs_total) = match (ty, choice) {
            (Ty::Big, 0) if total.is_some() => ("row_number()".to_owned(), true),
            (Ty::Big, 1) => ("rank()".to_owned(), false),
            (Ty::Big, 2) => ("dense_rank()".to_owned(), false),
            (Ty::Big, 3) => ("count(*)".to_owned(), false),
            (Ty::Big, _) => (format!("sum({})", self.expression(Ty::Int, 1)), false),
            (Ty::Double, 0) => ("percent_rank()".to_owned(), false),
            (Ty::Double, 1) => ("cume_dist()".to_owned(), false),
            (Ty::Num, 0) => (format!("sum({})", self.expression(Ty::Num, 1)), false),
            (Ty::Num, 1) => (format!("avg({})", self.expression(Ty::Int, 1)), false),
            (Ty::Int, 0) if total.is_some() => ("ntile(3)".to_owned(), true),
            (Ty::Bool, 0) => (format!("bool_or({})", self.condition(1)), false),
            (ty, choice) if total.is_some() => {
                let argument = self.expression(ty, 1);
                // The type of the result is the argument's.
                let argument = match argument.starts_with('\'') && !argument.contains("::") {
                    true => format!("({argument})::text"),
                    false => argument,
                };
                let call = match choice {
                    0 => format!("first_value({argument})"),
                    1 => format!("lag({argument})"),
                    2 => format!("lead({argument}, 2, {})", self.expression(ty, 0)),
                    3 => format!("nth_value({argument}, 2)"),
                    _ => format!("last_value({argument})"),
                };
                (call, true)
            }
            (Ty::Bool, _) => (format!("bool_and({})", self.condition(1)), false),
            (ty, _) => (format!("max({})", self.expression(ty, 1)), false),
        };
        let is_aggregate =
            ["sum(", "avg(", "count(", "bool_", "max("].iter().any(|name| call.starts_with(name));
        let filter = match is_aggregate && self.choices.chance(15) {
            true => format!(" FILTER (WHERE {})", self.condition(1)),
            false => String::new(),
        };
        let mut parts = Vec::new();
        if self.choices.chance(50) {
            let ty = Ty::ALL[self.choices.weighted(&Ty::WEIGHTS)];
            parts.push(format!("PARTITION BY {}", self.expression(ty, 1)));
        }
        let is_ordered = needs_total || self.choices.chance(60);
        let mut is_total = false;
        if is_ordered {
            let ty = [Ty::Int, Ty::Text, Ty::Date, Ty::Num][self.choices.below(4)];
            let mut keys = Vec::new();
            if !needs_total || self.choices.chance(60) {
                let direction = self.choices.pick(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
                // A plain number would not be a column here, but a constant.
                let key = self.expression(ty, 1);
                keys.push(format!("{key}{direction}"));
                // Distances require one key.
                if !needs_total && self.choices.chance(15) {
                    parts.push(format!("ORDER BY {}", keys[0]));
                    if let Some(frame) = self.distances(ty) {
                        parts.push(frame);
                    }
                    return format!("{call}{filter} OVER ({})", parts.join(" "));
                }
            }
            if let Some(total) = total.filter(|_| needs_total || self.choices.chance(50)) {
                keys.extend(total);
                is_total = true;
            }
            if !keys.is_empty() {
                parts.push(format!("ORDER BY {}", keys.join(", ")));
            }
            if self.choices.chance(40) && !keys.is_empty() {
                parts.push(self.frame(is_total));
            }
        }
        format!("{call}{filter} OVER ({})", parts.join(" "))
    }

    /// A RANGE frame of distances from a key.
    fn distances(&mut self, ty: Ty) -> Option<String> {
        let distance = match ty {
            Ty::Int => self.choices.pick(&["1", "2", "0"]),
            Ty::Num => self.choices.pick(&["1.5", "1"]),
            Ty::Date | Ty::Stamp => self.choices.pick(&["interval '1 month'", "interval '40 days'"]),
            _ => return None,
        };
        let other = self.choices.pick(&["CURRENT ROW", "UNBOUNDED FOLLOWING"]);
        Some(match self.choices.chance(50) {
            true => format!("RANGE BETWEEN {distance} PRECEDING AND {distance} FOLLOWING"),
            false => format!("RANGE BETWEEN {distance} PRECEDING AND {other}"),
        })
    }

    fn frame(&mut self, is_total: bool) -> String {
        let mode = match is_total {
            true => self.choices.pick(&["ROWS", "GROUPS"]),
            false => self.choices.pick(&["RANGE", "GROUPS"]),
        };
        let frame = match mode {
            "RANGE" => self.choices.pick(&[
                "BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
                "BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
                "BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
            ]),
            _ => self.choices.pick(&[
                "BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
                "BETWEEN 1 PRECEDING AND CURRENT ROW",
                "BETWEEN 1 PRECEDING AND 1 FOLLOWING",
                "BETWEEN 1 FOLLOWING AND 2 FOLLOWING",
                "BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
                "2 PRECEDING",
            ]),
        };
        let exclude = match self.choices.chance(20) {
            true => self.choices.pick(&[" EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES"]),
            false => "",
        };
        format!("{mode} {frame}{exclude}")
    }
}
