//! Joins: which conditions are keys, and what of each side is kept.

use super::{Compile, Needed, Part, with_uses};
use crate::expression::{Conditions, Expression, Layout};
use crate::inputs::{MatchedPlan, UnionInput, UnionPlan};
use crate::keys::{Class, KeyColumn, KeyLayout};
use crate::pipeline::SlotId;
use crate::run::JoinFilter;
use crate::sinks::{BuildPlan, BuildShape, DrainPlan, GroupShape};
use crate::stages::{JoinPlan, MarkPlan};
use crate::template::Template;
use firn_base::sync::Arc;
use firn_base::{Representation, Result};
use firn_plan::operator::{Join, JoinKind, JoinMethod};
use firn_plan::properties::scope_above;
use firn_plan::{Column, NodeId, Scalar};

/// A condition that compares a scalar of each side.
struct JoinKey {
    left: Expression,
    right: Expression,
    /// What the right one was compiled from.
    of_right: Scalar,
    column: KeyColumn,
    /// Whether NULL has no partner.
    is_strict: bool,
    /// Whether the comparison may be NULL.
    may_be_null: bool,
}

/// The inputs of a join, the conditions that are keys, and the others.
struct Sides {
    left: Part,
    right: Part,
    keys: Vec<JoinKey>,
    residual: Vec<Scalar>,
}

/// The columns that are among those that go on or among those that conditions use.
fn stored(goes_on: &[usize], used: &[usize]) -> Vec<usize> {
    let mut all = [goes_on, used].concat();
    all.sort_unstable();
    all.dedup();
    all
}

impl Compile<'_> {
    /// The pairs of a join, and then rows of its build side, in the layout of the pairs: all partners have been found then.
    fn followed_by(&self, mut pairs: Part, rest: MatchedPlan) -> Part {
        let (scope, depends) = (std::mem::take(&mut pairs.scope), pairs.depends.clone());
        let (output, is_serial) = (pairs.layout.clone(), pairs.is_serial);
        let columns: Vec<usize> = (0..output.len()).collect();
        let inputs = [pairs, Part::new(rest, output.clone())]
            .map(|part| UnionInput { fragment: self.fragment(part), columns: columns.clone() });
        let representations = output.representations().collect();
        let union = UnionPlan { inputs: Arc::new(inputs.into()), representations, in_turn: true };
        let mut both = Part::new(union, output);
        (both.scope, both.depends, both.is_serial) = (scope, depends, is_serial);
        both
    }

    pub(super) fn join(&mut self, node: NodeId, join: &Join, needed: &Needed) -> Result<Part> {
        assert!(!join.dependent, "dependent joins have been removed");
        let used = with_uses(&Needed::new(), &join.conditions);
        let all = with_uses(needed, &join.conditions);
        let left = self.node(join.left, &all)?;
        let right = self.node(join.right, if join.kind.gives_right() { &all } else { &used })?;

        let (mut keys, mut residual) = (Vec::new(), Vec::new());
        for condition in &join.conditions {
            match self.join_key(condition, &left, &right)? {
                Some(key) => keys.push(key),
                None => residual.push(condition.clone()),
            }
        }
        let sides = Sides { left, right, keys, residual };
        match join.method {
            JoinMethod::BuildLeft => self.join_on_left(node, join, needed, sides),
            _ => self.join_on_right(node, join, needed, sides),
        }
    }

    fn join_on_right(&mut self, node: NodeId, join: &Join, needed: &Needed, sides: Sides) -> Result<Part> {
        let Sides { mut left, right, keys, residual } = sides;
        let is_one_key = residual.is_empty() && keys.len() == 1 && keys[0].is_strict;
        // What a NULL is compared with matters to the mark, unless it is known from keys alone.
        let meets_all = join.kind == JoinKind::Mark && !is_one_key;
        let strict: Vec<bool> = keys.iter().map(|key| key.is_strict).collect();
        let layout = KeyLayout::for_equality(keys.iter().map(|key| key.column).collect());
        // Rows of groups are compared that have equal keys by all equalities that are never NULL.
        let may_be_null = keys.iter().filter(|key| key.may_be_null).count();
        let one_null_suffices = residual.is_empty() && may_be_null == 1;
        let is_grouped = meets_all && (1..keys.len()).contains(&may_be_null);
        let group: Vec<&JoinKey> = keys.iter().filter(|key| is_grouped && !key.may_be_null).collect();
        let group_layout = KeyLayout::for_equality(group.iter().map(|key| key.column).collect());
        let group_left: Vec<Expression> = group.iter().map(|key| key.left.clone()).collect();
        let group_right: Vec<Scalar> = group.iter().map(|key| key.of_right.clone()).collect();
        let (left_keys, right_keys): (Vec<_>, Vec<_>) =
            keys.into_iter().map(|key| (key.left, key.right)).unzip();

        // What is kept of the build side: what goes on, and what conditions use beside keys.
        let asked = if join.kind == JoinKind::Mark { &join.conditions } else { &residual };
        let asked = with_uses(&Needed::new(), asked);
        let goes_on = |column: &Column| join.kind.gives_right() && needed.contains(column);
        let kept: Vec<Column> =
            right.layout.columns().filter(|column| goes_on(column) || asked.contains(column)).collect();
        let table: Layout =
            kept.iter().map(|column| (*column, right.layout.representation(*column))).collect();

        // The columns that conditions use, side by side.
        let own: Vec<Column> = left.layout.columns().filter(|column| asked.contains(column)).collect();
        let of_build: Vec<Column> = kept.iter().filter(|column| asked.contains(column)).copied().collect();
        let pairs: Layout = own
            .iter()
            .map(|column| (*column, left.layout.representation(*column)))
            .chain(of_build.iter().map(|column| (*column, table.representation(*column))))
            .collect();
        let place = |layout: &Layout, column: &Column| layout.position(*column).expect("it is there");
        let used_places = (
            own.iter().map(|column| place(&left.layout, column)).collect::<Vec<_>>(),
            of_build.iter().map(|column| place(&table, column)).collect::<Vec<_>>(),
        );
        let residual_is_empty = residual.is_empty();
        let compiled = Conditions::new(self.scalars.scalars(&residual, &pairs)?);
        let mark = match join.kind {
            JoinKind::Mark => {
                let conditions = match is_one_key {
                    true => Conditions::default(),
                    false => Conditions::new(self.scalars.scalars(&join.conditions, &pairs)?),
                };
                let groups = is_grouped.then(|| Template::new(group_left));
                Some(MarkPlan {
                    conditions: Template::new(conditions),
                    is_one_key,
                    groups,
                    one_null_suffices,
                })
            }
            _ => None,
        };

        let own_on: Vec<Column> = left.layout.columns().filter(|column| needed.contains(column)).collect();
        let build_on: Vec<Column> = kept.iter().filter(|column| goes_on(column)).copied().collect();
        let build_columns: Vec<usize> = build_on.iter().map(|column| place(&table, column)).collect();
        let build_representations: Vec<Representation> =
            build_on.iter().map(|column| table.representation(*column)).collect();
        let groups = match is_grouped {
            true => {
                let keys = Template::new(self.scalars.scalars(&group_right, &table)?);
                Some(GroupShape { keys, layout: group_layout })
            }
            false => None,
        };
        let build = BuildPlan {
            columns: kept.iter().map(|column| place(&right.layout, column)).collect(),
            keys: Template::new(right_keys),
            strict: strict.clone(),
            shape: Arc::new(BuildShape {
                representations: table.representations().collect(),
                layout: layout.clone(),
                notes_matches: join.kind == JoinKind::Full,
                keeps_nulls: join.kind == JoinKind::Full || meets_all,
                is_divided: !strict.is_empty() && !meets_all,
                groups,
            }),
        };

        let scope = scope_above(self.plan, node, vec![left.scope.clone(), right.scope.clone()]);
        let depends: std::collections::BTreeSet<_> = left.depends.union(&right.depends).copied().collect();
        let slot = self.pipeline(right, build);
        if matches!(join.kind, JoinKind::Inner | JoinKind::Semi) {
            self.filter_scan(&left, &left_keys, slot, &layout);
        }
        let mut output: Layout =
            own_on.iter().map(|column| (*column, left.layout.representation(*column))).collect();
        let padding: Vec<Representation> = output.representations().collect();
        for column in &build_on {
            output.push(*column, table.representation(*column));
        }
        if let Some(mark) = join.mark {
            output.push(mark, Representation::Boolean);
        }
        let is_volatile = join.conditions.iter().any(Scalar::is_volatile);
        let own_places: Vec<usize> = own_on.iter().map(|column| place(&left.layout, column)).collect();
        let stage = JoinPlan {
            kind: join.kind,
            slot,
            representations: left.layout.representations().collect(),
            stored: stored(&own_places, &used_places.0),
            keys: Template::new(left_keys),
            layout,
            strict,
            residual: Template::new(compiled),
            used: used_places,
            columns: own_places,
            build_columns: build_columns.clone(),
            build_representations,
            gives_pairs: join.kind.gives_right(),
            notes_matches: join.kind == JoinKind::Full,
            matched_go_on: false,
            first_is_enough: matches!(join.kind, JoinKind::Semi | JoinKind::Anti) && residual_is_empty,
            mark,
        };
        left.is_serial |= is_volatile;
        left.push_rowwise(Arc::new(stage));
        left.layout = output.clone();
        (left.scope, left.depends) = (scope, depends);
        if join.kind != JoinKind::Full {
            return Ok(left);
        }
        let rest = MatchedPlan { slot, after: None, matched: false, padding, columns: build_columns };
        Ok(self.followed_by(left, rest))
    }

    /// A join that keeps its left side: the right one is read along it, and then the left rows go on that have had a partner,
    /// or none.
    fn join_on_left(&mut self, node: NodeId, join: &Join, needed: &Needed, sides: Sides) -> Result<Part> {
        let Sides { left, mut right, keys, residual } = sides;
        let strict: Vec<bool> = keys.iter().map(|key| key.is_strict).collect();
        let layout = KeyLayout::new(keys.iter().map(|key| key.column).collect());
        let (left_keys, right_keys): (Vec<_>, Vec<_>) =
            keys.into_iter().map(|key| (key.left, key.right)).unzip();
        let asked = with_uses(&Needed::new(), &residual);
        let place = |layout: &Layout, column: &Column| layout.position(*column).expect("it is there");
        let kept: Vec<Column> =
            left.layout.columns().filter(|it| needed.contains(it) || asked.contains(it)).collect();
        let table: Layout =
            kept.iter().map(|column| (*column, left.layout.representation(*column))).collect();
        let own: Vec<Column> = right.layout.columns().filter(|column| asked.contains(column)).collect();
        let of_build: Vec<Column> = kept.iter().filter(|column| asked.contains(column)).copied().collect();
        let pairs: Layout = own
            .iter()
            .map(|column| (*column, right.layout.representation(*column)))
            .chain(of_build.iter().map(|column| (*column, table.representation(*column))))
            .collect();
        let residual = Conditions::new(self.scalars.scalars(&residual, &pairs)?);
        let used: (Vec<usize>, Vec<usize>) = (
            own.iter().map(|column| place(&right.layout, column)).collect(),
            of_build.iter().map(|column| place(&table, column)).collect(),
        );
        let gives_pairs = join.kind == JoinKind::Left;
        let own_on: Vec<Column> =
            right.layout.columns().filter(|column| gives_pairs && needed.contains(column)).collect();
        let build_on: Vec<Column> = kept.iter().filter(|column| needed.contains(column)).copied().collect();
        let build_columns: Vec<usize> = build_on.iter().map(|column| place(&table, column)).collect();
        let mut output: Layout =
            own_on.iter().map(|column| (*column, right.layout.representation(*column))).collect();
        let padding: Vec<Representation> = output.representations().collect();
        for column in &build_on {
            output.push(*column, table.representation(*column));
        }
        let build = BuildPlan {
            columns: kept.iter().map(|column| place(&left.layout, column)).collect(),
            keys: Template::new(left_keys),
            strict: strict.clone(),
            shape: Arc::new(BuildShape {
                representations: table.representations().collect(),
                layout: layout.clone(),
                notes_matches: true,
                keeps_nulls: true,
                is_divided: !strict.is_empty(),
                groups: None,
            }),
        };
        let scope = scope_above(self.plan, node, vec![left.scope.clone(), right.scope.clone()]);
        right.depends.extend(left.depends.iter().copied());
        let slot = self.pipeline(left, build);
        // Rows of the right side without a partner are never wanted.
        self.filter_scan(&right, &right_keys, slot, &layout);
        let matched = join.kind == JoinKind::Semi;
        let own_places: Vec<usize> = own_on.iter().map(|column| place(&right.layout, column)).collect();
        let stage = JoinPlan {
            kind: JoinKind::Inner,
            slot,
            representations: right.layout.representations().collect(),
            stored: stored(&own_places, &used.0),
            keys: Template::new(right_keys),
            layout,
            strict,
            residual: Template::new(residual),
            used,
            columns: own_places,
            build_columns: build_columns.clone(),
            build_representations: build_on.iter().map(|column| table.representation(*column)).collect(),
            gives_pairs,
            notes_matches: true,
            matched_go_on: matched,
            first_is_enough: false,
            mark: None,
        };
        right.is_serial |= join.conditions.iter().any(Scalar::is_volatile);
        right.push_rowwise(Arc::new(stage));
        (right.layout, right.scope) = (output.clone(), scope);
        if gives_pairs {
            let rest = MatchedPlan { slot, after: None, matched, padding, columns: build_columns };
            return Ok(self.followed_by(right, rest));
        }
        let (scope, depends) = (std::mem::take(&mut right.scope), right.depends.clone());
        let after = Some(self.pipeline(right, DrainPlan));
        let mut part =
            Part::new(MatchedPlan { slot, after, matched, padding, columns: build_columns }, output);
        (part.scope, part.depends) = (scope, depends);
        Ok(part)
    }

    /// Adds a filter to the scan below the probe side, if the keys are columns of that scan.
    fn filter_scan(&mut self, probe: &Part, keys: &[Expression], slot: SlotId, layout: &KeyLayout) {
        let Some(scan) = probe.scan.map(|number| &mut self.scans[number]) else { return };
        let columns: Vec<Column> = probe.layout.columns().collect();
        let place = |key: &Expression| {
            let column = columns[key.as_column()?];
            scan.columns.iter().position(|(own, _)| *own == column)
        };
        let places: Option<Vec<usize>> = keys.iter().map(place).collect();
        if let Some(columns) = places.filter(|places| !places.is_empty()) {
            scan.filters.push(JoinFilter { slot, columns, layout: layout.clone() });
        }
    }

    /// An equality between a scalar of the left side and one of the right.
    fn join_key(&self, condition: &Scalar, left: &Part, right: &Part) -> Result<Option<JoinKey>> {
        let (one, other, is_strict) = match condition {
            Scalar::Call(call) if call.function.is_equality() && call.arguments.len() == 2 => {
                (&call.arguments[0], &call.arguments[1], true)
            }
            Scalar::Distinct(pair, true) => (&pair.0, &pair.1, false),
            _ => return Ok(None),
        };
        if condition.is_volatile() {
            return Ok(None);
        }
        let is_of = |scalar: &Scalar, part: &Part| {
            let (mut uses, mut all) = (false, true);
            scalar.for_each_column(&mut |column| {
                uses = true;
                all &= part.layout.position(column).is_some();
            });
            uses && all
        };
        let (of_left, of_right) =
            match (is_of(one, left) && is_of(other, right), is_of(one, right) && is_of(other, left)) {
                (true, _) => (one, other),
                (_, true) => (other, one),
                _ => return Ok(None),
            };
        let left_key = self.scalars.scalar(of_left, &left.layout)?;
        let right_key = self.scalars.scalar(of_right, &right.layout)?;
        let Some(class) = Class::common(left_key.representation(), right_key.representation()) else {
            return Ok(None);
        };
        let has_nulls = of_left.nullable(&|column| left.scope.nullable(column))
            || of_right.nullable(&|column| right.scope.nullable(column));
        // A strict key of a NULL is never compared.
        let nullable = !is_strict && has_nulls;
        let column = KeyColumn { class, nullable, descending: false, nulls_first: false };
        let may_be_null = is_strict && has_nulls;
        let of_right = of_right.clone();
        Ok(Some(JoinKey { left: left_key, right: right_key, of_right, column, is_strict, may_be_null }))
    }
}
