//! Operators other than joins, for all values of a domain.

use super::domain::DomainId;
use super::{Representatives, Unnester};
use crate::column::{Column, ColumnInfo};
use crate::operator::*;
use crate::plan::NodeId;
use crate::scalar::Scalar;
use firn_base::{Type, TypeId, Value};
use std::collections::HashSet;

impl Unnester<'_> {
    /// Rewrites a sub-plan for all values of a domain, on which it depends; for none, only the dependent joins in it.
    pub fn rewrite(&mut self, node: NodeId, domain: Option<DomainId>) -> (NodeId, Representatives) {
        debug_assert!(domain.is_none_or(|domain| self.depends(node, domain)));
        match self.plan.take(node) {
            Operator::Join(join) if join.dependent => self.dependent_join(node, join, domain),
            Operator::Join(join) => self.plain_join(node, join, domain),
            Operator::Scan(scan) => self.scan(node, scan, domain),
            Operator::Values { columns, rows } => self.values(node, columns, rows, domain),
            Operator::TableFunction(calls) => self.table_function(node, calls, domain),
            Operator::Filter { input, conditions } => {
                let equal = self.equated(&conditions, domain);
                let (input, representatives) = self.for_each_equal(input, domain, equal);
                self.filter(node, input, conditions, representatives)
            }
            Operator::Group(group) => self.group(node, group, domain),
            Operator::Limit(limit) => match domain {
                Some(domain) => self.limit(limit, domain),
                None => self.unary(node, Operator::Limit(limit), domain),
            },
            Operator::UnionAll { columns, inputs } => self.union_all(node, columns, inputs, domain),
            Operator::Iterate(iterate) => self.iterate(node, iterate, domain),
            Operator::IterateRead { iterate, columns } => self.iterate_read(node, iterate, columns, domain),
            Operator::Shared { id, definition, body } => self.shared(node, id, definition, body, domain),
            Operator::SharedRead { id, columns } => self.shared_read(node, id, columns, domain),
            operator => self.unary(node, operator, domain),
        }
    }

    /// Operators with one input whose keys get the representatives, if they have keys.
    fn unary(
        &mut self,
        node: NodeId,
        mut operator: Operator,
        domain: Option<DomainId>,
    ) -> (NodeId, Representatives) {
        let below = operator.inputs()[0];
        let (input, representatives) = self.for_each(below, domain);
        operator.for_each_input_mut(|below| *below = input);
        self.substitute(&mut operator, &representatives);
        let added = representatives.iter().map(|(_, by)| *by);
        match &mut operator {
            Operator::Window(window) => window.partition.extend(added),
            Operator::DistinctOn { keys, .. } => keys.extend(added),
            Operator::Map { .. }
            | Operator::FlatMap { .. }
            | Operator::Sort { .. }
            | Operator::Sample { .. }
            | Operator::Lock { .. } => {}
            // Changes and the statement's LIMIT are not in right inputs.
            other => assert!(domain.is_none(), "{other:?} in a right input"),
        }
        self.plan[node] = operator;
        (node, representatives)
    }

    fn filter(
        &mut self,
        node: NodeId,
        input: NodeId,
        conditions: Vec<Scalar>,
        representatives: Representatives,
    ) -> (NodeId, Representatives) {
        let mut operator = Operator::Filter { input, conditions };
        self.substitute(&mut operator, &representatives);
        if let Operator::Filter { conditions, .. } = &mut operator {
            settle_equalities(conditions);
        }
        self.plan[node] = operator;
        (node, representatives)
    }

    fn scan(&mut self, node: NodeId, mut scan: Scan, domain: Option<DomainId>) -> (NodeId, Representatives) {
        let Some(id) = domain else {
            self.plan[node] = Operator::Scan(scan);
            return (node, Vec::new());
        };
        let outer = &self.domains[id.0].columns;
        let conditions = std::mem::take(&mut scan.conditions);
        let depends = |scalar: &Scalar| scalar.uses(|column| outer.contains(&column));
        let (conditions, own): (Vec<_>, Vec<_>) = conditions.into_iter().partition(depends);
        scan.conditions = own;
        let equal = self.equated(&conditions, domain);
        let represented = self.represent(id, &equal, node);
        self.plan[node] = Operator::Scan(scan);
        let (input, representatives) =
            if represented { (node, self.representatives(id, &equal)) } else { self.cross_domain(node, id) };
        let filter = self.plan.add(Operator::Filter { input, conditions: Vec::new() });
        self.filter(filter, input, conditions, representatives)
    }

    /// A row that uses the domain's columns is a map over it.
    fn values(
        &mut self,
        node: NodeId,
        columns: Vec<Column>,
        rows: Vec<Vec<Scalar>>,
        domain: Option<DomainId>,
    ) -> (NodeId, Representatives) {
        let Some(domain) = domain else {
            self.plan[node] = Operator::Values { columns, rows };
            return (node, Vec::new());
        };
        let is_one = rows.len() == 1;
        let (mut inputs, mut last) = (Vec::new(), Vec::new());
        for row in rows {
            let (input, representatives) = self.read_domain(domain);
            let own: Vec<Column> = if is_one {
                columns.clone()
            } else {
                columns.iter().map(|column| self.plan.columns.copy_of(*column)).collect()
            };
            let mut map = Operator::Map { input, outputs: own.iter().copied().zip(row).collect() };
            self.substitute(&mut map, &representatives);
            let represent = representatives.iter().map(|(_, by)| *by);
            let list = own.into_iter().chain(represent).collect();
            inputs.push((self.plan.add(map), list));
            last = representatives;
        }
        if is_one { (inputs[0].0, last) } else { self.unite(node, columns, inputs, domain) }
    }

    fn table_function(
        &mut self,
        node: NodeId,
        calls: SetCalls,
        domain: Option<DomainId>,
    ) -> (NodeId, Representatives) {
        let Some(domain) = domain else {
            self.plan[node] = Operator::TableFunction(calls);
            return (node, Vec::new());
        };
        let (input, representatives) = self.read_domain(domain);
        let mut operator = Operator::FlatMap { input, calls };
        self.substitute(&mut operator, &representatives);
        self.plan[node] = operator;
        (node, representatives)
    }

    fn group(
        &mut self,
        node: NodeId,
        mut group: Group,
        domain: Option<DomainId>,
    ) -> (NodeId, Representatives) {
        let (input, representatives) = self.for_each(group.input, domain);
        group.input = input;
        let has_empty_set = match &group.sets {
            Some(sets) => sets.sets.iter().any(Vec::is_empty),
            None => group.keys.is_empty(),
        };
        let Some(domain) = domain.filter(|_| has_empty_set) else {
            return self.group_with(node, group, representatives);
        };
        let known = group.aggregates.iter().all(|aggregate| aggregate.function.over_nothing.is_some());
        if group.sets.is_none() && known {
            let (right, defaults) = self.group_values(node, group.aggregates, input, &representatives);
            let (left, of_domain) = self.read_domain(domain);
            let conditions = self.same_value(domain, &of_domain, &representatives);
            let mut result = self.left_join(left, right, conditions);
            if !defaults.is_empty() {
                result = self.plan.add(Operator::Map { input: result, outputs: defaults });
            }
            return (result, of_domain);
        }
        // Each value gets a row that aggregates leave out, so that there is a group for it.
        let boolean = Type::new(TypeId::BOOL);
        let mark = self.plan.columns.add(ColumnInfo::new(boolean, false).named("is_row"));
        let outputs = vec![(mark, Scalar::boolean(true))];
        let marked = self.plan.add(Operator::Map { input, outputs });
        let (left, of_domain) = self.read_domain(domain);
        let conditions = self.same_value(domain, &of_domain, &representatives);
        group.input = self.left_join(left, marked, conditions);
        let is_row = Scalar::IsNull(Box::new(Scalar::Column(mark)), true);
        for aggregate in &mut group.aggregates {
            aggregate.filter = Some(match aggregate.filter.take() {
                Some(filter) => Scalar::And(vec![is_row.clone(), filter]),
                None => is_row.clone(),
            });
        }
        let Some(sets) = &mut group.sets else {
            return self.group_with(node, group, of_domain);
        };
        // The row makes a group in every set; only those of the empty sets are wanted.
        let number = *sets.number.get_or_insert_with(|| {
            self.plan.columns.add(ColumnInfo::new(Type::new(TypeId::INT4), false).named("set"))
        });
        let empty = sets.sets.iter().enumerate().filter(|(_, set)| set.is_empty());
        let mut wanted: Vec<Scalar> = empty
            .map(|(index, _)| {
                let position = Scalar::Constant(Type::new(TypeId::INT4), Value::Integer(index as i32));
                Scalar::Distinct(Box::new((Scalar::Column(number), position)), true)
            })
            .collect();
        let count = self.function("count", &[]);
        let info = ColumnInfo::new(Type::new(TypeId::INT8), count.may_be_null).named("rows");
        let rows = self.plan.columns.add(info);
        group.aggregates.push(Aggregate {
            output: rows,
            function: count,
            arguments: Vec::new(),
            distinct: false,
            order: Vec::new(),
            filter: Some(is_row),
        });
        let none = Scalar::int8(0);
        wanted.push(Scalar::Distinct(Box::new((Scalar::Column(rows), none)), false));
        let (input, of_domain) = self.group_with(node, group, of_domain);
        (self.plan.add(Operator::Filter { input, conditions: vec![Scalar::Or(wanted)] }), of_domain)
    }

    /// A group with the representatives as further keys, in every set.
    fn group_with(
        &mut self,
        node: NodeId,
        mut group: Group,
        mut representatives: Representatives,
    ) -> (NodeId, Representatives) {
        let first = group.keys.len() as u32;
        let added: Vec<Column> = representatives.iter().map(|(_, by)| *by).collect();
        if let Some(sets) = &mut group.sets {
            for set in &mut sets.sets {
                set.extend(first..first + added.len() as u32);
            }
            for (_, by) in &mut representatives {
                let own = self.plan.columns.copy_of(*by);
                self.plan.columns[own].nullable = true;
                sets.columns.push(own);
                *by = own;
            }
        }
        // What aggregates use is what the input gives.
        let below: Representatives =
            representatives.iter().zip(&added).map(|((of, _), by)| (*of, *by)).collect();
        let mut operator = Operator::Group(group);
        self.substitute(&mut operator, &below);
        if let Operator::Group(group) = &mut operator {
            group.keys.extend(added);
            // What represents a column of the domain may be a key already. Grouping sets name their keys by place.
            if group.sets.is_none() {
                let mut seen = HashSet::new();
                group.keys.retain(|key| seen.insert(*key));
            }
        }
        self.plan[node] = operator;
        (node, representatives)
    }

    fn left_join(&mut self, left: NodeId, right: NodeId, conditions: Vec<Scalar>) -> NodeId {
        let kind = JoinKind::Left;
        self.plan.add(Operator::Join(Join {
            kind,
            dependent: false,
            left,
            right,
            conditions,
            mark: None,
            method: JoinMethod::default(),
        }))
    }

    /// LIMIT is a condition on the row's number among the rows of its value of the domain.
    fn limit(&mut self, limit: Limit, domain: DomainId) -> (NodeId, Representatives) {
        let (mut below, mut order) = (limit.input, limit.ties.clone().unwrap_or_default());
        let sorted = match &self.plan[below] {
            Operator::Sort { input, keys } => {
                (below, order) = (*input, keys.clone());
                true
            }
            _ => false,
        };
        let (input, representatives) = self.for_each(below, Some(domain));
        for key in &mut order {
            key.column = self.current(key.column);
        }
        let keys = order.clone();
        let bigint = Type::new(TypeId::INT8);
        let mut calls = Vec::new();
        let mut numbered = |unnester: &mut Self, name: &str| {
            let function = unnester.function(name, &[]);
            let info = ColumnInfo::new(bigint, function.may_be_null).named(name);
            let output = unnester.plan.columns.add(info);
            let frame = Frame::default();
            calls.push(WindowCall { output, function, arguments: Vec::new(), filter: None, frame });
            Scalar::Column(output)
        };
        let operation = |unnester: &Self, symbol: &str, left, right| {
            let function = unnester.functions.operator(symbol, &[bigint, bigint]);
            let function = function.expect("the registry has the arithmetic of bigint");
            Scalar::call(function, true, vec![left, right])
        };
        let number = numbered(self, "row_number");
        let mut conditions = Vec::new();
        let is_zero = |scalar: &Scalar| matches!(scalar, Scalar::Constant(_, Value::BigInt(0) | Value::Null));
        let offset = limit.offset.filter(|offset| !is_zero(offset)).map(|offset| match offset {
            Scalar::Constant(..) => offset,
            _ => Scalar::Coalesce(vec![offset, Scalar::int8(0)]),
        });
        if let Some(offset) = &offset {
            conditions.push(operation(self, ">", number.clone(), offset.clone()));
        }
        if let Some(count) = limit.count.filter(|count| !matches!(count, Scalar::Constant(_, Value::Null))) {
            let position = match &limit.ties {
                Some(_) => numbered(self, "rank"),
                None => number,
            };
            // The sum of both could overflow; this cannot, for rows behind the offset.
            let position = match offset {
                Some(offset) => operation(self, "-", position, offset),
                None => position,
            };
            let is_constant = matches!(count, Scalar::Constant(..));
            // WITH TIES of no row has no ties.
            if limit.ties.is_some() {
                conditions.push(Scalar::Distinct(Box::new((count.clone(), Scalar::int8(0))), false));
            }
            let within = operation(self, "<=", position, count);
            conditions.push(match is_constant {
                true => within,
                false => Scalar::Test(Box::new(within), Some(false), true),
            });
        }
        let partition = representatives.iter().map(|(_, by)| *by).collect();
        let window = self.plan.add(Operator::Window(Window { input, partition, order, first: None, calls }));
        let filter = self.plan.add(Operator::Filter { input: window, conditions: Vec::new() });
        let (mut result, representatives) = self.filter(filter, window, conditions, representatives);
        if sorted {
            result = self.plan.add(Operator::Sort { input: result, keys });
        }
        (result, representatives)
    }

    fn union_all(
        &mut self,
        node: NodeId,
        columns: Vec<Column>,
        inputs: Vec<(NodeId, Vec<Column>)>,
        domain: Option<DomainId>,
    ) -> (NodeId, Representatives) {
        let mut rewritten = Vec::new();
        for (input, list) in inputs {
            let (input, representatives) = self.for_each(input, domain);
            let own = list.iter().map(|column| self.current(*column));
            let list = own.chain(representatives.iter().map(|(_, by)| *by)).collect();
            rewritten.push((input, list));
        }
        match domain {
            Some(domain) => self.unite(node, columns, rewritten, domain),
            None => {
                self.plan[node] = Operator::UnionAll { columns, inputs: rewritten };
                (node, Vec::new())
            }
        }
    }

    /// A union of inputs that give representatives behind their columns.
    fn unite(
        &mut self,
        node: NodeId,
        mut columns: Vec<Column>,
        inputs: Vec<(NodeId, Vec<Column>)>,
        domain: DomainId,
    ) -> (NodeId, Representatives) {
        let representatives = self.fresh_representatives(domain);
        columns.extend(representatives.iter().map(|(_, by)| *by));
        self.plan[node] = Operator::UnionAll { columns, inputs };
        (node, representatives)
    }

    fn fresh_representatives(&mut self, domain: DomainId) -> Representatives {
        let columns = self.domains[domain.0].columns.clone();
        let mut fresh = |of: Column| {
            let by = self.plan.columns.copy_of(of);
            self.plan.columns[by].nullable = true;
            (of, by)
        };
        columns.into_iter().map(&mut fresh).collect()
    }

    /// All values of the domain are iterated at once; a value has ended when no row of it is left.
    fn iterate(
        &mut self,
        node: NodeId,
        mut iterate: Iterate,
        domain: Option<DomainId>,
    ) -> (NodeId, Representatives) {
        let part = domain.map(|domain| self.part_of_domain(domain, node));
        let representatives = part.map_or_else(Vec::new, |part| self.fresh_representatives(part));
        let (initial, of_initial) = self.for_each(iterate.initial, part);
        self.iterations.insert(iterate.id, representatives.clone());
        let (step, of_step) = self.for_each(iterate.step, part);
        (iterate.initial, iterate.step) = (initial, step);
        let mut operator = Operator::Iterate(iterate);
        self.substitute(&mut operator, &Vec::new());
        if let Operator::Iterate(iterate) = &mut operator {
            iterate.columns.extend(representatives.iter().map(|(_, by)| *by));
            iterate.initial_columns.extend(of_initial.iter().map(|(_, by)| *by));
            iterate.step_columns.extend(of_step.iter().map(|(_, by)| *by));
        }
        self.plan[node] = operator;
        match domain {
            Some(domain) => self.widen(node, representatives, domain),
            None => (node, Vec::new()),
        }
    }

    fn iterate_read(
        &mut self,
        node: NodeId,
        iterate: IterateId,
        mut columns: Vec<Column>,
        domain: Option<DomainId>,
    ) -> (NodeId, Representatives) {
        let mut given = self.iterations[&iterate].clone();
        for (_, by) in &mut given {
            *by = self.plan.columns.copy_of(*by);
            columns.push(*by);
        }
        self.plan[node] = Operator::IterateRead { iterate, columns };
        match domain {
            Some(domain) => self.widen(node, given, domain),
            None => (node, Vec::new()),
        }
    }

    fn shared(
        &mut self,
        node: NodeId,
        id: SharedId,
        definition: NodeId,
        body: NodeId,
        domain: Option<DomainId>,
    ) -> (NodeId, Representatives) {
        let part = domain.filter(|domain| self.depends(definition, *domain));
        let part = part.map(|domain| self.part_of_domain(domain, definition));
        let (definition, given) = self.rewrite(definition, part);
        self.shared.insert(id, given);
        let (body, representatives) = self.for_each(body, domain);
        self.plan[node] = Operator::Shared { id, definition, body };
        (node, representatives)
    }

    fn shared_read(
        &mut self,
        node: NodeId,
        id: SharedId,
        mut columns: Vec<(Column, Column)>,
        domain: Option<DomainId>,
    ) -> (NodeId, Representatives) {
        for (_, of) in &mut columns {
            *of = self.current(*of);
        }
        let mut given = Representatives::new();
        if domain.is_some() {
            for (of, by) in self.shared.get(&id).cloned().unwrap_or_default() {
                let own = self.plan.columns.copy_of(by);
                self.plan.columns[own].nullable = true;
                columns.push((own, by));
                given.push((of, own));
            }
        }
        self.plan[node] = Operator::SharedRead { id, columns };
        match domain {
            Some(domain) => self.widen(node, given, domain),
            None => (node, Vec::new()),
        }
    }
}

/// `c = c`, which substitution makes of a condition that equates a column with the domain's, holds unless `c` is NULL.
pub fn settle_equalities(conditions: &mut [Scalar]) {
    for condition in conditions {
        if let Scalar::Call(call) = condition
            && call.function.is_equality()
            && let [Scalar::Column(left), Scalar::Column(right)] = call.arguments[..]
            && left == right
        {
            *condition = Scalar::IsNull(Box::new(Scalar::Column(left)), true);
        }
    }
}
