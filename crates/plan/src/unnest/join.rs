//! Joins, dependent and others.

use super::domain::DomainId;
use super::{Representatives, Unnester};
use crate::column::Column;
use crate::operator::{Aggregate, Group, Join, JoinKind, Operator};
use crate::plan::NodeId;
use crate::scalar::Scalar;
use firn_base::Value;

impl Unnester<'_> {
    /// Puts a join into a node, once its inputs are rewritten.
    fn place(
        &mut self,
        node: NodeId,
        mut join: Join,
        left: NodeId,
        right: NodeId,
        first: Vec<Scalar>,
        representatives: &Representatives,
    ) {
        join.dependent = false;
        (join.left, join.right) = (left, right);
        let mut operator = Operator::Join(join);
        self.substitute(&mut operator, representatives);
        if let Operator::Join(join) = &mut operator {
            // A mark tells NULL from FALSE; elsewhere only TRUE counts.
            if join.kind != JoinKind::Mark {
                super::operators::settle_equalities(&mut join.conditions);
            }
            join.conditions.splice(0..0, first);
        }
        self.plan[node] = operator;
    }

    /// A join whose right input uses no column of the left one.
    pub fn plain_join(
        &mut self,
        node: NodeId,
        join: Join,
        domain: Option<DomainId>,
    ) -> (NodeId, Representatives) {
        let (left, right) = (join.left, join.right);
        let Some(id) = domain else {
            let (left, right) = (self.rewrite(left, None).0, self.rewrite(right, None).0);
            self.place(node, join, left, right, Vec::new(), &Vec::new());
            return (node, Vec::new());
        };
        let right_depends = self.depends(right, id);
        let equal = match join.kind {
            JoinKind::Inner | JoinKind::Semi => self.equated(&join.conditions, domain),
            _ => Vec::new(),
        };
        match join.kind {
            // Only the right input is for each value.
            JoinKind::Inner
                if !self.depends(left, id) && (right_depends || self.represent(id, &equal, right)) =>
            {
                let left = self.rewrite(left, None).0;
                let (right, representatives) = self.for_each_equal(right, domain, equal);
                self.place(node, join, left, right, Vec::new(), &representatives);
                (node, representatives)
            }
            JoinKind::Full => {
                let (left, mut of_left) = self.for_each(left, domain);
                let (right, of_right) = self.for_each(right, domain);
                let first = self.same_value(id, &of_left, &of_right);
                self.place(node, join, left, right, first, &of_left);
                // A value is that of the side that has a row.
                let mut outputs = Vec::new();
                let same_order = of_left.iter().zip(&of_right).all(|((of, _), (other, _))| of == other);
                assert!(same_order, "representatives have the order of the domain");
                for ((_, by), (_, other)) in of_left.iter_mut().zip(&of_right) {
                    let sides = vec![Scalar::Column(*by), Scalar::Column(*other)];
                    *by = self.plan.columns.copy_of(*by);
                    self.plan.columns[*by].nullable = true;
                    outputs.push((*by, Scalar::Coalesce(sides)));
                }
                (self.plan.add(Operator::Map { input: node, outputs }), of_left)
            }
            _ => {
                let (left, representatives) = self.for_each_equal(left, domain, equal);
                let mut first = Vec::new();
                let right = if right_depends {
                    let (right, of_right) = self.rewrite(right, domain);
                    first = self.same_value(id, &representatives, &of_right);
                    right
                } else {
                    self.rewrite(right, None).0
                };
                self.place(node, join, left, right, first, &representatives);
                (node, representatives)
            }
        }
    }

    /// A dependent join: its right input is rewritten for a domain of its own, which holds the columns of
    /// the left input and of the domain around that the right input uses.
    pub fn dependent_join(
        &mut self,
        node: NodeId,
        join: Join,
        around: Option<DomainId>,
    ) -> (NodeId, Representatives) {
        let right = self.without_order(join.right);
        let number = self.numbers.get(&node).copied();
        let (left, of_left) = match number {
            Some(_) => {
                // Rows are numbered once they are rows for all values of the domain around.
                let Operator::Window(mut window) = self.plan.take(join.left) else {
                    panic!("the left input is numbered");
                };
                let (input, of_left) = self.for_each(window.input, around);
                window.input = input;
                (self.plan.add(Operator::Window(window)), of_left)
            }
            None => self.for_each(join.left, around),
        };
        let top = self.scalar_group(right, &join);
        let of_node = |unnester: &Self, node: NodeId| -> Vec<Column> {
            let is_around = |column: &Column| of_left.iter().any(|(of, _)| of == column);
            let outer = unnester.outer[node.index()].iter().copied();
            let is_given =
                |column: &Column| is_around(column) || unnester.producers.is_below(*column, join.left);
            outer.filter(is_given).collect()
        };
        let used = of_node(self, right);
        let mut columns = top.as_ref().map_or_else(|| used.clone(), |top| of_node(self, top.group));
        if columns.is_empty() {
            let base = top.as_ref().map_or(right, |top| top.group);
            let base = self.rewrite(base, None).0;
            let values_of = self.values_of(&used, &of_left);
            self.place(node, join, left, base, Vec::new(), &of_left);
            let maps = top.map_or_else(Vec::new, |top| top.maps);
            return (self.put_maps(maps, node, &values_of), of_left);
        }
        if let Some(number) = number.filter(|number| !columns.contains(number)) {
            columns.push(number);
        }
        let given = self.scope(left);
        let values: Vec<(Column, bool)> = self
            .values_of(&columns, &of_left)
            .into_iter()
            .map(|(_, value)| (value, given.nullable(value)))
            .collect();
        let needs = top.as_ref().map_or(right, |top| top.input);
        let exact = self.must_be_exact[needs.index()]
            || top.as_ref().is_some_and(|top| {
                let fails = |aggregate: &Aggregate| {
                    let scalars = aggregate.arguments.iter().chain(&aggregate.filter);
                    aggregate.function.can_fail || { scalars }.any(Scalar::can_fail)
                };
                top.aggregates.iter().any(fails)
            });
        let domain = self.domain(columns, values, number, exact);
        let (input, of_right) = self.for_each(needs, Some(domain));

        let finished = self.finish_domain(domain, left, &given);
        let mut left = finished.as_ref().map_or(left, |finished| finished.reader);
        if cfg!(feature = "fault-duplicates-lost") {
            let keys = self.scope(left).iter().map(|(column, _)| column).collect();
            left = self.plan.add(Operator::Group(Group {
                input: left,
                keys,
                determined: Vec::new(),
                sets: None,
                aggregates: Vec::new(),
            }));
        }
        let of_left: Representatives = of_left.into_iter().map(|(of, by)| (of, self.current(by))).collect();
        let values_of = self.values_of(&used, &of_left);
        let values_of_keys = self.values_of(&self.domains[domain.0].keys, &of_left);
        let first = self.same_value(domain, &values_of_keys, &of_right);
        let mut result = node;
        match top {
            Some(top) => {
                let (group, defaults) = self.group_values(top.group, top.aggregates, input, &of_right);
                let join = Join { kind: JoinKind::Left, ..join };
                self.place(node, join, left, group, first, &of_left);
                if !defaults.is_empty() {
                    result = self.plan.add(Operator::Map { input: result, outputs: defaults });
                }
                result = self.put_maps(top.maps, result, &values_of);
            }
            None => {
                let input = self.without_order(input);
                self.place(node, join, left, input, first, &of_left);
            }
        }
        for (id, definition) in finished.into_iter().flat_map(|finished| finished.definitions).rev() {
            result = self.plan.add(Operator::Shared { id, definition, body: result });
        }
        (result, of_left)
    }

    /// What columns of the plan before are above a rewritten left input.
    fn values_of(&self, columns: &[Column], of_left: &Representatives) -> Representatives {
        let value = |column: &Column| match of_left.iter().find(|(of, _)| of == column) {
            Some((_, by)) => *by,
            None => self.current(*column),
        };
        columns.iter().map(|column| (*column, value(column))).collect()
    }

    /// Puts maps, the uppermost first, above a rewritten operator.
    fn put_maps(&mut self, maps: Vec<NodeId>, node: NodeId, values: &Representatives) -> NodeId {
        let mut below = node;
        for map in maps.into_iter().rev() {
            let mut operator = self.plan.take(map);
            self.substitute(&mut operator, values);
            operator.for_each_input_mut(|input| *input = below);
            self.plan[map] = operator;
            below = map;
        }
        below
    }

    /// The order of a join's right input does not matter.
    fn without_order(&self, node: NodeId) -> NodeId {
        let mut node = node;
        while let Operator::Sort { input, .. } = &self.plan[node] {
            node = *input;
        }
        node
    }

    /// Aggregates of all rows below maps, as the right input of a join that gives each left row once: the
    /// group is joined to the left rows themselves, and not to the domain first.
    fn scalar_group(&mut self, right: NodeId, join: &Join) -> Option<ScalarGroup> {
        let fits = matches!(join.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Single);
        if !fits || !join.conditions.is_empty() {
            return None;
        }
        let (mut node, mut maps) = (right, Vec::new());
        while let Operator::Map { input, .. } = &self.plan[node] {
            maps.push(node);
            node = *input;
        }
        match &self.plan[node] {
            Operator::Group(group)
                if group.keys.is_empty()
                    && group.sets.is_none()
                    && group.aggregates.iter().all(|aggregate| aggregate.function.over_nothing.is_some()) =>
            {
                let (input, aggregates) = (group.input, group.aggregates.clone());
                Some(ScalarGroup { maps, group: node, input, aggregates })
            }
            _ => None,
        }
    }

    /// Groups a rewritten input by the domain's values. Gives the group, and what its aggregates are with a
    /// value that is not NULL where there is no group.
    pub fn group_values(
        &mut self,
        node: NodeId,
        mut aggregates: Vec<Aggregate>,
        input: NodeId,
        representatives: &Representatives,
    ) -> (NodeId, Vec<(Column, Scalar)>) {
        let mut defaults = Vec::new();
        for aggregate in &mut aggregates {
            let value = aggregate.function.over_nothing.clone().expect("it was asked before");
            if value != Value::Null {
                let counted = self.plan.columns.copy_of(aggregate.output);
                let ty = self.plan.columns[counted].ty;
                let either = vec![Scalar::Column(counted), Scalar::Constant(ty, value)];
                defaults.push((aggregate.output, Scalar::Coalesce(either)));
                aggregate.output = counted;
            }
        }
        // One column may represent several.
        let mut keys: Vec<Column> = Vec::with_capacity(representatives.len());
        for (_, by) in representatives {
            if !keys.contains(by) {
                keys.push(*by);
            }
        }
        let mut operator =
            Operator::Group(Group { input, keys, determined: Vec::new(), sets: None, aggregates });
        self.substitute(&mut operator, representatives);
        self.plan[node] = operator;
        (node, defaults)
    }
}

/// Aggregates of all rows, and the maps above them, the uppermost first.
struct ScalarGroup {
    maps: Vec<NodeId>,
    group: NodeId,
    input: NodeId,
    aggregates: Vec<Aggregate>,
}
