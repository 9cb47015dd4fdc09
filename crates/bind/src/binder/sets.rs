//! UNION, INTERSECT and EXCEPT.
//!
//! A row that both sides have is found by joins whose conditions take NULL as equal to NULL. With ALL, the rows of each
//! side are numbered among their equals, so that each meets one of the other side.

use super::{Binder, Operand, Output, Rows};
use firn_base::{Result, SqlState, Type, TypeId};
use firn_plan::operator::{Frame, Join, JoinKind, JoinMethod, Window, WindowCall};
use firn_plan::{Column, ColumnInfo, NodeId, Operator, Scalar};
use firn_syntax::tree::{Query, QueryBody, SetOperation, SetOperator, SetStep};

impl Binder<'_> {
    /// Set operations from the left to the right.
    pub(super) fn set_operation(&mut self, operation: &SetOperation) -> Result<Rows> {
        let mut left = self.set_operand(&operation.first)?;
        let mut steps = operation.steps.iter().peekable();
        let mut nested = 0;
        while let Some(step) = steps.next() {
            let mut right = self.set_operand(&step.right)?;
            let is_same = |next: &&SetStep| {
                (next.operator, next.is_all) == (SetOperator::Except, step.is_all)
                    && step.operator == SetOperator::Except
            };
            // What several of them take away is taken away at once, where that changes no types.
            while let Some(next) = steps.next_if(is_same) {
                let other = self.set_operand(&next.right)?;
                match have_same_types(&left, &right) && have_same_types(&left, &other) {
                    true => right = self.combine(right, other, SetOperator::Union, true)?,
                    false => {
                        left = self.combine(left, right, step.operator, step.is_all)?;
                        self.nest(&mut nested)?;
                        right = other;
                    }
                }
            }
            let inputs = match &self.plan[left.node] {
                Operator::UnionAll { .. } => Some(left.node),
                _ => None,
            };
            left = self.combine(left, right, step.operator, step.is_all)?;
            if inputs != Some(left.node) {
                self.nest(&mut nested)?;
            }
        }
        Ok(left)
    }

    /// Counts an operator above others that are in the same level of the tree. 54001 if there are too many.
    fn nest(&mut self, nested: &mut u32) -> Result<()> {
        /// As many fit the stack on which plans are handled.
        const MOST: u32 = 4_000;
        *nested += 1;
        self.deepest = self.deepest.max(self.depth + *nested);
        if *nested > MOST { Err(super::too_deep()) } else { Ok(()) }
    }

    /// An operand of a set operation: a query of its own.
    pub(super) fn set_operand(&mut self, body: &QueryBody) -> Result<Rows> {
        match body {
            QueryBody::Nested(nested) => self.query(nested, false),
            body => {
                // What has no clauses of its own is bound as a query without any.
                self.deeper(|binder| {
                    binder.open();
                    let rows = match body {
                        QueryBody::Select(select) => binder.select(select, &without_clauses(), false),
                        QueryBody::Values(rows) => binder.values(rows, false),
                        QueryBody::Table(relation) => binder.table(relation),
                        QueryBody::SetOperation(operation) => binder.set_operation(operation),
                        QueryBody::Nested(_) => unreachable!("it is a query"),
                    };
                    binder.close();
                    rows
                })
            }
        }
    }

    pub(super) fn combine(
        &mut self,
        left: Rows,
        right: Rows,
        kind: SetOperator,
        is_all: bool,
    ) -> Result<Rows> {
        let construct = match kind {
            SetOperator::Union => "UNION",
            SetOperator::Intersect => "INTERSECT",
            SetOperator::Except => "EXCEPT",
        };
        if left.columns.len() != right.columns.len() {
            let message = format!("each {construct} query must have the same number of columns");
            let at = right.columns.first().map_or(0, |column| column.at);
            return Err(self.error(SqlState::SYNTAX_ERROR, message, at));
        }
        let mut types = Vec::with_capacity(left.columns.len());
        for (a, b) in left.columns.iter().zip(&right.columns) {
            let operand =
                |output: &Output| Operand { scalar: output.value.clone(), ty: output.ty, at: output.at };
            types.push(self.common_type(&[operand(a), operand(b)], construct)?);
        }
        let names: Vec<(std::rc::Rc<str>, u32)> =
            left.columns.iter().map(|column| (column.name.clone(), column.at)).collect();
        let (left_node, left_columns) = self.typed(left, &types, construct)?;
        let (right_node, right_columns) = self.typed(right, &types, construct)?;
        let is_distinct = !is_all;
        let (node, columns) = match kind {
            SetOperator::Union => {
                self.union_all(left_node, left_columns, right_node, right_columns, &types, &names)
            }
            SetOperator::Intersect | SetOperator::Except => {
                for (ty, (_, at)) in types.iter().zip(&names) {
                    self.check_equality(*ty, *at)?;
                }
                let join = if kind == SetOperator::Intersect { JoinKind::Semi } else { JoinKind::Anti };
                let (mut left_node, mut right_node) = (left_node, right_node);
                let mut conditions: Vec<Scalar> = left_columns
                    .iter()
                    .zip(&right_columns)
                    .map(|(left, right)| Scalar::same(*left, *right))
                    .collect();
                if is_all {
                    let (a, left_number) = self.numbered(left_node, &left_columns)?;
                    let (b, right_number) = self.numbered(right_node, &right_columns)?;
                    (left_node, right_node) = (a, b);
                    conditions.push(Scalar::same(left_number, right_number));
                }
                let node = self.plan.add(Operator::Join(Join {
                    kind: join,
                    dependent: false,
                    left: left_node,
                    right: right_node,
                    conditions,
                    mark: None,
                    method: JoinMethod::default(),
                }));
                // Rows of a set operation are of no relation.
                for column in &left_columns {
                    self.plan.columns[*column].origin = None;
                }
                (node, left_columns)
            }
        };
        let outputs: Vec<Output> = columns
            .into_iter()
            .zip(&types)
            .zip(names)
            .map(|((column, ty), (name, at))| Output { name, value: Scalar::Column(column), ty: *ty, at })
            .collect();
        let node = if is_distinct { self.distinct_rows(node, &outputs)? } else { node };
        Ok(Rows { node, columns: outputs })
    }

    /// The rows of both sides. A union of unions is one operator, where its columns keep their types.
    fn union_all(
        &mut self,
        left: NodeId,
        left_columns: Vec<Column>,
        right: NodeId,
        right_columns: Vec<Column>,
        types: &[Type],
        names: &[(std::rc::Rc<str>, u32)],
    ) -> (NodeId, Vec<Column>) {
        if let Operator::UnionAll { columns, inputs } = &mut self.plan[left]
            && *columns == left_columns
            && !columns.is_empty()
        {
            inputs.push((right, right_columns.clone()));
            for ((column, of_right), ty) in left_columns.iter().zip(&right_columns).zip(types) {
                let nullable = self.column_nullable(*of_right);
                let info = &mut self.plan.columns[*column];
                info.nullable |= nullable;
                info.ty = *ty;
            }
            return (left, left_columns);
        }
        let inputs = [(left, left_columns), (right, right_columns)];
        let mut columns = Vec::with_capacity(types.len());
        for (place, ty) in types.iter().enumerate() {
            let nullable = inputs.iter().any(|(_, columns)| self.column_nullable(columns[place]));
            columns.push(self.new_column(ColumnInfo::new(*ty, nullable).named(&*names[place].0)));
        }
        let node = self.plan.add(Operator::UnionAll { columns: columns.clone(), inputs: inputs.into() });
        (node, columns)
    }

    /// The columns of a side with the types of the result, each once.
    pub(super) fn typed(
        &mut self,
        rows: Rows,
        types: &[Type],
        construct: &str,
    ) -> Result<(NodeId, Vec<Column>)> {
        let mut outputs = Vec::new();
        let mut columns: Vec<Column> = Vec::with_capacity(types.len());
        for (output, ty) in rows.columns.into_iter().zip(types) {
            let operand = Operand { scalar: output.value, ty: output.ty, at: output.at };
            let scalar = self.coerce_common(operand, *ty, construct)?.scalar;
            let own = scalar.as_column().filter(|column| !columns.contains(column));
            columns.push(match own {
                Some(column) => column,
                None => {
                    let column = self.column_for(&scalar, *ty, Some(&output.name));
                    outputs.push((column, scalar));
                    column
                }
            });
        }
        Ok((self.map(rows.node, outputs), columns))
    }

    /// Rows with their numbers among their equals.
    fn numbered(&mut self, node: NodeId, columns: &[Column]) -> Result<(NodeId, Column)> {
        let Some(function) = self.registry.function_of("row_number", &[]).cloned() else {
            return Err(self.unsupported("row_number", 0));
        };
        let function = self.handles.of(self.registry, &function);
        let number = self.new_column(ColumnInfo::new(Type::new(TypeId::INT8), true).named("number"));
        let call = WindowCall {
            output: number,
            function,
            arguments: Vec::new(),
            filter: None,
            frame: Frame::default(),
        };
        let partition = columns.to_vec();
        let window = Window { input: node, partition, order: Vec::new(), first: None, calls: vec![call] };
        Ok((self.plan.add(Operator::Window(window)), number))
    }
}

/// Whether the columns of two sides have types that are the same one by one.
fn have_same_types(left: &Rows, right: &Rows) -> bool {
    left.columns.len() == right.columns.len()
        && left.columns.iter().zip(&right.columns).all(|(left, right)| left.ty == right.ty)
}

/// A query without clauses.
fn without_clauses() -> Query {
    Query {
        span: firn_syntax::Span::default(),
        with: None,
        body: QueryBody::Values(Vec::new()),
        order_by: Vec::new(),
        limit: None,
        offset: None,
        locking: Vec::new(),
    }
}
