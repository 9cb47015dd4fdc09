//! Sub-queries in expressions: each becomes a join with the query that it stands in.

use super::attach::{Pending, PendingQuery};
use super::{Binder, Operand, Rows};
use firn_base::{Result, SqlState, Type, TypeId, Value};
use firn_plan::operator::{Aggregate, Group, JoinKind, SortKey};
use firn_plan::{Column, ColumnInfo, NodeId, Operator, Scalar};
use firn_syntax::tree::{self, Query};

/// A bound sub-query.
pub(super) struct Inner {
    pub node: NodeId,
    pub columns: Vec<Operand>,
    pub dependent: bool,
    pub outer: Vec<Column>,
}

impl Binder<'_> {
    /// Binds something that may use columns of the query at hand. Returns whether it does, and the columns of all queries around.
    pub(super) fn correlated<T>(
        &mut self,
        bind: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(T, bool, Vec<Column>)> {
        let start = self.references.len();
        let bound = bind(self)?;
        let id = self.level().id;
        let mut outer: Vec<(Column, bool)> = self.references[start..]
            .iter()
            .filter(|reference| self.levels.iter().any(|level| level.id == reference.owner))
            .map(|reference| (reference.column, reference.owner == id))
            .collect();
        let dependent = outer.iter().any(|(_, own)| *own);
        outer.sort_unstable();
        outer.dedup();
        Ok((bound, dependent, outer.into_iter().map(|(column, _)| column).collect()))
    }

    /// A query in an expression.
    pub(super) fn inner_query(&mut self, query: &Query) -> Result<Inner> {
        self.refuse_query(query)?;
        let guards = std::mem::take(&mut self.guards);
        let bound = self.correlated(|binder| {
            let rows = binder.query(query, true)?;
            binder.projected(rows)
        });
        self.guards = guards;
        let (Rows { node, columns }, dependent, outer) = bound?;
        let operand = |output: super::Output| Operand { scalar: output.value, ty: output.ty, at: output.at };
        Ok(Inner { node, columns: columns.into_iter().map(operand).collect(), dependent, outer })
    }

    fn guard(&self) -> Option<Scalar> {
        match &self.guards[..] {
            [] => None,
            [one] => Some(one.clone()),
            all => Some(Scalar::And(all.to_vec())),
        }
    }

    fn add_pending(&mut self, column: Column, kind: JoinKind, inner: Inner, conditions: Vec<Scalar>) {
        let mark = (kind == JoinKind::Mark).then_some(column);
        let owner = self.level().id;
        self.owners.insert(column, owner);
        if kind == JoinKind::Single {
            self.padded.insert(column);
        }
        let guard = self.guard();
        let query = PendingQuery {
            kind,
            right: inner.node,
            dependent: inner.dependent,
            conditions,
            mark,
            guard,
            outer: inner.outer,
        };
        self.pending.insert(column, Pending::Query(query));
    }

    /// `(SELECT …)`
    pub(super) fn scalar_query(&mut self, query: &Query, at: u32) -> Result<Operand> {
        let inner = self.inner_query(query)?;
        let [value] = &inner.columns[..] else {
            return Err(self.error(SqlState::SYNTAX_ERROR, "subquery must return only one column", at));
        };
        let (column, ty) = (value.scalar.as_column().expect("it is projected"), value.ty);
        // Its value is not one of a column any more.
        self.plan.columns[column].origin = None;
        self.add_pending(column, JoinKind::Single, inner, Vec::new());
        self.note_query(column, "value", Vec::new(), query);
        Ok(Operand { scalar: Scalar::Column(column), ty, at })
    }

    /// `(SELECT a, b)`, compared with a row or assigned to columns.
    pub(super) fn row_query(&mut self, query: &Query) -> Result<Vec<Operand>> {
        let inner = self.inner_query(query)?;
        let columns = inner.columns.clone();
        let Some(first) = columns.first() else { return Ok(columns) };
        let key = first.scalar.as_column().expect("it is projected");
        let owner = self.level().id;
        for operand in &columns {
            let column = operand.scalar.as_column().expect("it is projected");
            self.owners.insert(column, owner);
            self.padded.insert(column);
        }
        self.add_pending(key, JoinKind::Single, inner, Vec::new());
        // Whichever column is used first, the join is added.
        for (place, operand) in columns.iter().enumerate() {
            let column = operand.scalar.as_column().expect("it is projected");
            self.note_query(column, format!("column {place}"), Vec::new(), query);
            if column != key {
                self.aliases_of_pending.insert(column, key);
            }
        }
        Ok(columns)
    }

    /// `EXISTS (SELECT …)`
    pub(super) fn exists(&mut self, query: &Query, at: u32) -> Result<Operand> {
        let inner = self.inner_query(query)?;
        let ty = Type::new(TypeId::BOOL);
        let mark = self.plan.columns.add(ColumnInfo::new(ty, false).named("exists"));
        self.add_pending(mark, JoinKind::Mark, inner, Vec::new());
        self.note_query(mark, "exists", Vec::new(), query);
        Ok(Operand { scalar: Scalar::Column(mark), ty, at })
    }

    /// `ARRAY(SELECT …)`
    pub(super) fn array_query(&mut self, query: &Query, at: u32) -> Result<Operand> {
        let mut inner = self.inner_query(query)?;
        let [value] = &inner.columns[..] else {
            return Err(self.error(SqlState::SYNTAX_ERROR, "subquery must return only one column", at));
        };
        let value = value.clone();
        let is_array = crate::types::is_array(value.ty.id);
        let ty = if is_array { Some(value.ty) } else { value.ty.array() };
        let Some(ty) = ty else {
            let message =
                format!("could not find array type for data type {}", crate::resolve::name(value.ty.id));
            return Err(self.error(SqlState::UNDEFINED_OBJECT, message, at));
        };
        let declared = if is_array { TypeId::ANYARRAY } else { TypeId::ANYNONARRAY };
        let Some(function) = self.registry.function_of("array_agg", &[declared]).cloned() else {
            return Err(self.unsupported("array_agg", at));
        };
        let function = self.handles.of(self.registry, &function);
        let collected = self.plan.columns.add(ColumnInfo::new(ty, true).named("array"));
        let order = self.order_of(inner.node);
        let aggregate = Aggregate {
            output: collected,
            function,
            arguments: vec![value.scalar],
            distinct: false,
            order,
            filter: None,
        };
        inner.node = self.plan.add(Operator::Group(Group {
            input: inner.node,
            keys: Vec::new(),
            determined: Vec::new(),
            sets: None,
            aggregates: vec![aggregate],
        }));
        self.add_pending(collected, JoinKind::Single, inner, Vec::new());
        self.note_query(collected, "array", Vec::new(), query);
        // No rows are an empty array.
        let none = Scalar::Constant(ty, super::literal::constant_array(Vec::<Value>::new()));
        Ok(Operand { scalar: Scalar::Coalesce(vec![Scalar::Column(collected), none]), ty, at })
    }

    /// The order in which an operator gives its rows.
    pub(super) fn order_of(&self, mut node: NodeId) -> Vec<SortKey> {
        loop {
            node = match &self.plan[node] {
                Operator::Sort { keys, .. } => return keys.clone(),
                Operator::Limit(limit) => limit.input,
                Operator::Map { input, .. } | Operator::Lock { input, .. } => *input,
                Operator::Shared { body, .. } => *body,
                _ => return Vec::new(),
            };
        }
    }

    /// `left operator ANY (SELECT …)`, or ALL.
    pub(super) fn quantified_query(
        &mut self,
        left: Operand,
        operator: &tree::Operator,
        is_all: bool,
        query: &Query,
        at: u32,
    ) -> Result<Operand> {
        let inner = self.inner_query(query)?;
        let start = left.at;
        let lefts = match left.scalar {
            Scalar::Row(fields) => self.fields(fields, left.at),
            scalar => vec![Operand { scalar, ..left }],
        };
        if lefts.len() < inner.columns.len() {
            return Err(self.error(SqlState::SYNTAX_ERROR, "subquery has too many columns", at));
        }
        if lefts.len() > inner.columns.len() {
            return Err(self.error(SqlState::SYNTAX_ERROR, "subquery has too few columns", at));
        }
        let operands = lefts.iter().map(|operand| operand.scalar.clone()).collect();
        let comparison = self.compare_rows(operator, lefts, inner.columns.clone(), at)?;
        let conditions = match comparison {
            condition if is_all => vec![Scalar::Not(Box::new(condition))],
            Scalar::And(list) => list,
            condition => vec![condition],
        };
        let ty = Type::new(TypeId::BOOL);
        let nullable = conditions.iter().any(|condition| self.nullable(condition));
        let mark = self.plan.columns.add(ColumnInfo::new(ty, nullable).named("any"));
        self.add_pending(mark, JoinKind::Mark, inner, conditions);
        self.note_query(mark, format!("{operator:?} {is_all}"), operands, query);
        let mark = Scalar::Column(mark);
        let scalar = if is_all { Scalar::Not(Box::new(mark)) } else { mark };
        Ok(Operand { scalar, ty, at: start })
    }

    /// The fields of a row as operands.
    pub(super) fn fields(&self, fields: Vec<Scalar>, at: u32) -> Vec<Operand> {
        let operand = |scalar: Scalar| Operand { ty: scalar.ty(&self.plan.columns), scalar, at };
        fields.into_iter().map(operand).collect()
    }
}
