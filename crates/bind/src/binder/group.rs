//! GROUP BY: keys and grouping sets, aggregates, and which columns may be used above them.

use super::attach::Pending;
use super::target::BoundTarget;
use super::{Binder, Clause};
use firn_base::{Error, Result, SqlState, Type, TypeId, Value};
use firn_plan::operator::{Aggregate, Group, GroupingSets};
use firn_plan::scalar::{Call, Case};
use firn_plan::{Column, ColumnInfo, NodeId, Operator, Scalar};
use firn_syntax::Span;
use firn_syntax::tree::{Expr, ExprKind, GroupItem, Select};

/// What GROUP BY says.
#[derive(Default)]
pub(super) struct Grouping {
    /// The places of keys in the select list.
    keys: Vec<usize>,
    /// The sets of keys, if it is not one set of all.
    sets: Option<Vec<Vec<u32>>>,
    is_given: bool,
}

impl Grouping {
    /// Whether there are several sets of keys.
    pub(super) fn has_sets(&self) -> bool {
        self.sets.is_some()
    }
}

/// More grouping sets than a statement may have.
const MOST_SETS: usize = 4096;

/// Sets in the order in which PostgreSQL gives their rows. Empty ones come first, but for those that follow sets of
/// constants, for which its rows are in order as they are: the smallest of the sets and those that contain it.
fn in_order(sets: Vec<Vec<u32>>, is_constant: impl Fn(&u32) -> bool) -> Vec<Vec<u32>> {
    let mut by_size: Vec<usize> = (0..sets.len()).filter(|&place| !sets[place].is_empty()).collect();
    by_size.sort_by_key(|&place| sets[place].len());
    let mut chain: Vec<usize> = Vec::new();
    for place in by_size {
        let set = &sets[place];
        let is_next = chain.last().is_none_or(|&last| {
            sets[last].len() < set.len() && sets[last].iter().all(|key| set.contains(key))
        });
        if is_next {
            chain.push(place);
        }
    }
    if !chain.iter().all(|&place| sets[place].iter().all(&is_constant)) {
        chain.clear();
    }
    let mut places: Vec<usize> = (0..sets.len()).collect();
    places.sort_by_key(|place| match chain.iter().rev().position(|other| other == place) {
        Some(number) => (0, number),
        None => (1 + usize::from(!sets[*place].is_empty()), 0),
    });
    places.into_iter().map(|place| sets[place].clone()).collect()
}

impl Binder<'_> {
    /// GROUP BY. Its expressions are found in the select list, or added to it.
    pub(super) fn group_clause(
        &mut self,
        select: &Select,
        targets: &mut Vec<BoundTarget>,
        count: usize,
    ) -> Result<Grouping> {
        let mut grouping = Grouping { is_given: !select.group_by.is_empty(), ..Grouping::default() };
        let has_sets = select.group_by.iter().any(|item| !matches!(item, GroupItem::Expr(_)));
        let mut sets: Vec<Vec<u32>> = vec![Vec::new()];
        for item in &select.group_by {
            let alternatives = self.group_item(item, targets, count, &mut grouping)?;
            if sets.len() * alternatives.len() > MOST_SETS {
                return Err(Error::new(
                    SqlState::new("54001"),
                    "too many grouping sets present (maximum 4096)",
                ));
            }
            let mut product = Vec::with_capacity(sets.len() * alternatives.len());
            for before in &sets {
                for alternative in &alternatives {
                    let mut set = before.clone();
                    set.extend(alternative.iter().filter(|key| !before.contains(key)));
                    product.push(set);
                }
            }
            sets = product;
        }
        if has_sets {
            if select.is_group_distinct {
                let mut distinct: Vec<Vec<u32>> = Vec::new();
                for mut set in sets {
                    set.sort_unstable();
                    if !distinct.contains(&set) {
                        distinct.push(set);
                    }
                }
                sets = distinct;
            }
            let is_constant = |key: &u32| {
                matches!(targets[grouping.keys[*key as usize]].operand.scalar, Scalar::Constant(..))
            };
            grouping.sets = Some(in_order(sets, is_constant));
        }
        Ok(grouping)
    }

    /// The sets of an item, of which each combination with those of other items counts.
    fn group_item(
        &mut self,
        item: &GroupItem,
        targets: &mut Vec<BoundTarget>,
        count: usize,
        grouping: &mut Grouping,
    ) -> Result<Vec<Vec<u32>>> {
        match item {
            GroupItem::Empty(_) => Ok(vec![Vec::new()]),
            GroupItem::Expr(expression) => Ok(vec![self.group_keys(expression, targets, count, grouping)?]),
            GroupItem::Rollup(_, list) => {
                let mut parts = Vec::with_capacity(list.len());
                for expression in list {
                    parts.push(self.group_keys(expression, targets, count, grouping)?);
                }
                Ok((0..=parts.len()).rev().map(|length| union(&parts[..length])).collect())
            }
            GroupItem::Cube(span, list) => {
                if list.len() > 12 {
                    let message = "CUBE is limited to 12 elements";
                    return Err(self.error(SqlState::new("54011"), message, span.start));
                }
                let mut parts = Vec::with_capacity(list.len());
                for expression in list {
                    parts.push(self.group_keys(expression, targets, count, grouping)?);
                }
                let sets = (0..1usize << parts.len()).rev().map(|bits| {
                    let chosen = (0..parts.len()).filter(|place| bits >> (parts.len() - 1 - place) & 1 == 1);
                    union(&chosen.map(|place| parts[place].clone()).collect::<Vec<_>>())
                });
                Ok(sets.collect())
            }
            GroupItem::Sets(_, items) => {
                let mut sets = Vec::new();
                for item in items {
                    sets.extend(self.group_item(item, targets, count, grouping)?);
                }
                Ok(sets)
            }
        }
    }

    /// The keys of an expression; a row in parentheses is several.
    fn group_keys(
        &mut self,
        expression: &Expr,
        targets: &mut Vec<BoundTarget>,
        count: usize,
        grouping: &mut Grouping,
    ) -> Result<Vec<u32>> {
        if let ExprKind::Row(row) = &expression.kind
            && !row.is_explicit
        {
            let mut keys = Vec::with_capacity(row.items.len());
            for item in &row.items {
                keys.extend(self.group_keys(item, targets, count, grouping)?);
            }
            return Ok(keys);
        }
        let target = self.find_target(expression, targets, count, Clause::GroupBy)?;
        let operand = self.known(targets[target].operand.clone())?;
        self.check_equality(operand.ty, operand.at)?;
        targets[target].operand = operand;
        let scalar = &targets[target].operand.scalar;
        let columns = self.columns_behind(&[scalar]);
        let level = self.levels.last().expect("a query is being bound");
        if let Some(aggregate) = level.aggregates.iter().find(|aggregate| columns.contains(&aggregate.output))
        {
            let message = "aggregate functions are not allowed in GROUP BY";
            return Err(self.error(SqlState::GROUPING_ERROR, message, aggregate.at));
        }
        if let Some(window) = level.window_calls.iter().find(|window| columns.contains(&window.output)) {
            let message = "window functions are not allowed in GROUP BY";
            return Err(self.error(super::states::WINDOWING_ERROR, message, window.at));
        }
        let same = |key: &usize| targets[*key].operand.scalar == *scalar;
        let place = match grouping.keys.iter().position(same) {
            Some(place) => place,
            None => {
                grouping.keys.push(target);
                grouping.keys.len() - 1
            }
        };
        Ok(vec![place as u32])
    }

    /// The groups of rows, with the scalars above them in terms of keys and aggregates.
    pub(super) fn grouped(
        &mut self,
        mut node: NodeId,
        grouping: Grouping,
        targets: &mut [BoundTarget],
        having: &mut Option<Scalar>,
        having_span: Option<Span>,
    ) -> Result<NodeId> {
        let calls = std::mem::take(&mut self.level().aggregates);
        let groupings = std::mem::take(&mut self.level().groupings);
        let refused = calls.first().map(|call| call.at).filter(|_| self.level().is_recursive_term);
        if calls.is_empty() && !grouping.is_given && having.is_none() && groupings.is_empty() {
            return Ok(node);
        }
        let key_scalars: Vec<(Scalar, Type)> = grouping
            .keys
            .iter()
            .map(|place| (targets[*place].operand.scalar.clone(), targets[*place].operand.ty))
            .collect();

        // What repeats a key with sub-queries has the key's.
        let with_queries: Vec<Scalar> =
            key_scalars.iter().map(|(scalar, _)| scalar).filter(|key| self.has_query(key)).cloned().collect();
        let mut groupings = groupings;
        if !with_queries.is_empty() {
            let level = self.level();
            let mut windows = std::mem::take(&mut level.windows);
            let mut window_calls = std::mem::take(&mut level.window_calls);
            let unify = |scalar: &mut Scalar| self.unify(scalar, &with_queries);
            targets.iter_mut().for_each(|target| unify(&mut target.operand.scalar));
            having.iter_mut().for_each(unify);
            windows.iter_mut().flat_map(|window| window.scalars_mut()).for_each(unify);
            for call in &mut window_calls {
                call.arguments.iter_mut().chain(&mut call.filter).for_each(unify);
            }
            groupings.iter_mut().flat_map(|(_, arguments, _)| arguments).for_each(unify);
            let level = self.level();
            (level.windows, level.window_calls) = (windows, window_calls);
            self.unify_in_pending(&with_queries);
        }

        // Below the groups: keys and arguments as columns.
        let sets_of_keys: Vec<Column> = {
            let scalars: Vec<&Scalar> = key_scalars.iter().map(|(scalar, _)| scalar).collect();
            self.columns_behind(&scalars)
        };
        let (below, above): (Vec<_>, Vec<_>) = std::mem::take(&mut self.level().sets)
            .into_iter()
            .partition(|set| set.outputs.iter().any(|output| sets_of_keys.contains(output)));
        self.level().sets = above;
        node = self.with_sets(node, below);
        let mut outputs = Vec::new();
        let mut keys: Vec<Column> = key_scalars
            .iter()
            .map(|(scalar, ty)| self.as_column(&mut node, scalar, *ty, &mut outputs))
            .collect();
        let mut aggregates = Vec::with_capacity(calls.len());
        for call in calls {
            node = self.attach(node, call.arguments.iter().chain(&call.filter));
            let order = self.sort_keys(&mut node, &call.order, &mut outputs);
            aggregates.push(Aggregate {
                output: call.output,
                function: call.function,
                arguments: call.arguments,
                distinct: call.distinct,
                order,
                filter: call.filter,
            });
        }
        node = self.map(node, outputs);

        // Above them: a key stands for its expression.
        let mut sets = grouping.sets.map(|sets| {
            let columns = keys.iter().map(|key| self.key_in_sets(*key)).collect();
            GroupingSets { columns, sets, number: None }
        });
        let above: Vec<Column> = match &sets {
            Some(sets) => sets.columns.clone(),
            None => keys.clone(),
        };
        let mut replacements: Vec<(Scalar, Column)> =
            key_scalars.into_iter().map(|(scalar, _)| scalar).zip(above).collect();
        // Longer expressions first: a key may be a part of another one.
        replacements.sort_by_key(|(scalar, _)| scalar.as_column().is_some());

        for (column, arguments, span) in groupings {
            let value = self.grouping_value(&arguments, span, &replacements, &mut sets)?;
            self.pending.insert(column, Pending::Value(value));
        }
        let mut produced: Vec<Column> = replacements.iter().map(|(_, column)| *column).collect();
        produced.extend(aggregates.iter().map(|aggregate| aggregate.output));
        if let Some(sets) = &sets {
            produced.extend(sets.number);
        }

        let id = self.level().id;
        let mut windows = std::mem::take(&mut self.level().windows);
        let mut window_calls = std::mem::take(&mut self.level().window_calls);
        let mut set_calls = std::mem::take(&mut self.level().sets);
        produced.extend(window_calls.iter().map(|call| call.output));
        produced.extend(set_calls.iter().flat_map(|call| call.outputs.iter().copied()));

        let mut scalars: Vec<(&mut Scalar, Span)> = Vec::new();
        for target in targets.iter_mut() {
            scalars.push((&mut target.operand.scalar, target.span));
        }
        if let (Some(having), Some(span)) = (having.as_mut(), having_span) {
            scalars.push((having, span));
        }
        let whole = Span::new(0, u32::MAX);
        for window in &mut windows {
            scalars.extend(window.scalars_mut().map(|scalar| (scalar, whole)));
        }
        for call in &mut window_calls {
            scalars.extend(call.arguments.iter_mut().chain(&mut call.filter).map(|scalar| (scalar, whole)));
        }
        for call in &mut set_calls {
            scalars.extend(call.arguments.iter_mut().map(|scalar| (scalar, whole)));
        }
        for (scalar, _) in &mut scalars {
            replace(scalar, &replacements);
        }
        self.replace_in_pending(&replacements, id);
        self.uses_may_be_null |= sets.is_some() && !self.pending.is_empty();

        // What is left must be a key or depend on one.
        let mut added: Vec<(Column, Column)> = Vec::new();
        for (scalar, span) in &scalars {
            let mut direct = Vec::new();
            scalar.for_each_column(&mut |column| direct.push(column));
            let mut queue: Vec<(Column, bool)> = direct.into_iter().map(|column| (column, false)).collect();
            let mut next = 0;
            while next < queue.len() {
                let (column, in_query) = queue[next];
                next += 1;
                let stands_for = self.aliases_of_pending.get(&column).copied().unwrap_or(column);
                match self.pending.get(&stands_for) {
                    Some(Pending::Value(value)) => {
                        value.for_each_column(&mut |column| queue.push((column, in_query)));
                        continue;
                    }
                    Some(Pending::Query(query)) => {
                        for scalar in query.conditions.iter().chain(&query.guard) {
                            scalar.for_each_column(&mut |column| {
                                if self.owners.get(&column) == Some(&id) {
                                    queue.push((column, in_query));
                                }
                            });
                        }
                        // What the sub-query uses after keys have been replaced.
                        for node in self.plan.post_order_of(query.right) {
                            self.plan[node].for_each_scalar(|scalar| {
                                scalar.for_each_column(&mut |column| {
                                    if query.outer.contains(&column) {
                                        queue.push((column, true));
                                    }
                                });
                            });
                        }
                        continue;
                    }
                    None => {}
                }
                if self.owners.get(&column) != Some(&id) || produced.contains(&column) {
                    continue;
                }
                if added.iter().any(|(key, _)| *key == column) {
                    continue;
                }
                if self.depends_on_key(column, &replacements, sets.as_ref()) {
                    let output = match &mut sets {
                        None => column,
                        Some(sets) => {
                            let output = self.key_in_sets(column);
                            let place = keys.len() as u32;
                            sets.columns.push(output);
                            sets.sets.iter_mut().for_each(|set| set.push(place));
                            output
                        }
                    };
                    keys.push(column);
                    added.push((column, output));
                    continue;
                }
                return Err(self.ungrouped(column, *span, in_query));
            }
        }
        if sets.is_some() && !added.is_empty() {
            let more: Vec<(Scalar, Column)> =
                added.into_iter().map(|(key, output)| (Scalar::Column(key), output)).collect();
            for (scalar, _) in &mut scalars {
                replace(scalar, &more);
            }
            self.replace_in_pending(&more, id);
        }
        drop(scalars);
        // Columns that are no keys are errors before.
        if let Some(at) = refused {
            let message = "aggregate functions are not allowed in a recursive query's recursive term";
            return Err(self.error(super::states::INVALID_RECURSION, message, at));
        }
        let level = self.level();
        (level.windows, level.window_calls, level.sets) = (windows, window_calls, set_calls);
        keys_are_distinct(&mut keys, sets.is_some());
        Ok(self.plan.add(Operator::Group(Group {
            input: node,
            keys,
            determined: Vec::new(),
            sets,
            aggregates,
        })))
    }

    /// The column of a key above grouping sets, where it is NULL in the sets without it.
    fn key_in_sets(&mut self, key: Column) -> Column {
        let info = ColumnInfo { nullable: true, ..self.plan.columns[key].clone() };
        self.new_column(info)
    }

    /// What sub-queries are compared with may repeat a key with sub-queries, too: `HAVING key IN (SELECT …)`.
    fn unify_in_pending(&mut self, keys: &[Scalar]) {
        let id = self.level().id;
        let own: Vec<Column> =
            self.pending.keys().filter(|column| self.owners.get(column) == Some(&id)).copied().collect();
        for column in own {
            let mut scalars: Vec<Scalar> = match &self.pending[&column] {
                Pending::Query(query) => query.conditions.iter().chain(&query.guard).cloned().collect(),
                // It is a part of a key itself.
                Pending::Value(_) if keys.iter().any(|key| key.uses(|used| used == column)) => continue,
                Pending::Value(value) => vec![value.clone()],
            };
            scalars.iter_mut().for_each(|scalar| self.unify(scalar, keys));
            let places: Vec<&mut Scalar> = match self.pending.get_mut(&column).expect("it was listed") {
                Pending::Query(query) => query.conditions.iter_mut().chain(&mut query.guard).collect(),
                Pending::Value(value) => vec![value],
            };
            for (place, scalar) in places.into_iter().zip(scalars) {
                *place = scalar;
            }
        }
    }

    /// Keys stand for their expressions in sub-queries and conditions that are evaluated above the groups as well.
    fn replace_in_pending(&mut self, replacements: &[(Scalar, Column)], id: super::LevelId) {
        if replacements.iter().all(|(scalar, column)| scalar.as_column() == Some(*column)) {
            return;
        }
        let own: Vec<Column> =
            self.pending.keys().filter(|column| self.owners.get(column) == Some(&id)).copied().collect();
        for column in own {
            match self.pending.get_mut(&column).expect("it was listed") {
                Pending::Value(value) => replace(value, replacements),
                Pending::Query(query) => {
                    query
                        .conditions
                        .iter_mut()
                        .chain(&mut query.guard)
                        .for_each(|scalar| replace(scalar, replacements));
                    // As in PostgreSQL, a sub-query may use keys that are columns, and no others.
                    let right = query.right;
                    let columns = replacements.iter().filter(|(key, _)| key.as_column().is_some());
                    let columns: Vec<(Scalar, Column)> = columns.cloned().collect();
                    for node in self.plan.post_order_of(right) {
                        self.plan[node].for_each_scalar_mut(|scalar| replace(scalar, &columns));
                    }
                }
            }
        }
    }

    /// Whether a column belongs to a relation whose primary key is among the keys of all sets.
    fn depends_on_key(
        &self,
        column: Column,
        replacements: &[(Scalar, Column)],
        sets: Option<&GroupingSets>,
    ) -> bool {
        let level = self.levels.last().expect("a query is being bound");
        let is_column = |value: &Scalar| value.as_column() == Some(column);
        let Some(table) = level
            .tables
            .iter()
            .find(|table| table.scan.is_some() && table.columns.iter().any(|other| is_column(&other.value)))
        else {
            return false;
        };
        let Some(relation) = &table.relation else { return false };
        let is_key = |number: &i16| {
            let attribute = relation.columns.iter().position(|attribute| attribute.number == *number);
            let value = attribute.map(|place| &table.columns[place].value);
            value.is_some_and(|value| {
                replacements.iter().any(|(key, output)| {
                    key == value
                        && sets.is_none_or(|sets| {
                            let place = sets.columns.iter().position(|column| column == output);
                            place.is_some_and(|place| {
                                sets.sets.iter().all(|set| set.contains(&(place as u32)))
                            })
                        })
                })
            })
        };
        relation.keys.iter().any(|key| {
            key.is_primary && !key.is_deferrable && !key.columns.is_empty() && key.columns.iter().all(is_key)
        })
    }

    #[cold]
    fn ungrouped(&self, column: Column, span: Span, in_query: bool) -> Error {
        let within = |at: u32| span.start <= at && at <= span.end;
        let found = self
            .references
            .iter()
            .find(|reference| reference.column == column && within(reference.at))
            .or_else(|| self.references.iter().find(|reference| reference.column == column));
        let Some(reference) = found else {
            return self.error(
                SqlState::GROUPING_ERROR,
                "an expression must appear in the GROUP BY clause",
                span.start,
            );
        };
        let name = format!("{}.{}", reference.table, reference.name);
        let message = if in_query {
            format!("subquery uses ungrouped column \"{name}\" from outer query")
        } else {
            format!(
                "column \"{name}\" must appear in the GROUP BY clause or be used in an aggregate function"
            )
        };
        self.error(SqlState::GROUPING_ERROR, message, reference.at)
    }

    /// The value of GROUPING: bits of the keys that a set does not have, the last one lowest.
    fn grouping_value(
        &mut self,
        arguments: &[Scalar],
        span: Span,
        replacements: &[(Scalar, Column)],
        sets: &mut Option<GroupingSets>,
    ) -> Result<Scalar> {
        let int4 = Type::new(TypeId::INT4);
        let mut places = Vec::with_capacity(arguments.len());
        for argument in arguments {
            let Some((_, column)) = replacements.iter().find(|(key, _)| key == argument) else {
                let message =
                    "arguments to GROUPING must be grouping expressions of the associated query level";
                let mut at = span.start;
                argument.for_each_column(&mut |column| {
                    let used = self.references.iter().find(|reference| {
                        reference.column == column && span.start <= reference.at && reference.at < span.end
                    });
                    at = used.map_or(at, |reference| reference.at);
                });
                return Err(self.error(SqlState::GROUPING_ERROR, message, at));
            };
            places.push(*column);
        }
        let Some(sets) = sets else {
            return Ok(Scalar::Constant(int4, Value::Integer(0)));
        };
        let bits = |set: &[u32]| {
            places.iter().fold(0, |bits, column| {
                let place =
                    sets.columns.iter().position(|other| other == column).expect("it is a key") as u32;
                bits << 1 | i32::from(!set.contains(&place))
            })
        };
        let values: Vec<i32> = sets.sets.iter().map(|set| bits(set)).collect();
        let constant = |value: i32| Scalar::Constant(int4, Value::Integer(value));
        if values.iter().all(|value| *value == values[0]) {
            return Ok(constant(values[0]));
        }
        let number = match sets.number {
            Some(number) => number,
            None => {
                let number = self.new_column(ColumnInfo::new(int4, false).named("set"));
                sets.number = Some(number);
                number
            }
        };
        let equal = self.choose_operator(
            &firn_syntax::tree::Operator::Equal,
            Some(TypeId::INT4),
            TypeId::INT4,
            span.start,
        )?;
        let (last, others) = values.split_last().expect("there is a set");
        let arm = |(place, value): (usize, &i32)| {
            let arguments = vec![Scalar::CaseValue(int4), constant(place as i32)];
            let ty = Type::new(TypeId::BOOL);
            let call = Call { function: equal.function.clone(), as_operator: true, arguments, ty };
            (Scalar::Call(Box::new(call)), constant(*value))
        };
        let arms = others.iter().enumerate().map(arm).collect();
        let operand = Some(Scalar::Column(number));
        Ok(Scalar::Case(Box::new(Case { operand, arms, otherwise: constant(*last) })))
    }
}

fn union(parts: &[Vec<u32>]) -> Vec<u32> {
    let mut all: Vec<u32> = Vec::new();
    for key in parts.iter().flatten() {
        if !all.contains(key) {
            all.push(*key);
        }
    }
    all
}

/// Without sets a key that comes twice is one.
fn keys_are_distinct(keys: &mut Vec<Column>, has_sets: bool) {
    if has_sets {
        return;
    }
    let mut seen = Vec::with_capacity(keys.len());
    keys.retain(|key| {
        let is_new = !seen.contains(key);
        seen.push(*key);
        is_new
    });
}

/// Puts the columns of keys into the places of their expressions.
fn replace(scalar: &mut Scalar, replacements: &[(Scalar, Column)]) {
    if let Some((_, column)) = replacements.iter().find(|(key, _)| key == scalar) {
        *scalar = Scalar::Column(*column);
        return;
    }
    if let Scalar::Call(call) = scalar
        && call.as_operator
        && call.arguments.len() > 2
    {
        // The first operands of a chain may be a key.
        for length in (2..call.arguments.len()).rev() {
            let found = replacements.iter().find(|(key, _)| match key {
                Scalar::Call(key) => {
                    key.as_operator
                        && key.function == call.function
                        && key.arguments.len() == length
                        && key.arguments[..] == call.arguments[..length]
                }
                _ => false,
            });
            if let Some((_, column)) = found {
                call.arguments.splice(..length, [Scalar::Column(*column)]);
                break;
            }
        }
    }
    scalar.for_each_child_mut(|child| replace(child, replacements));
}
