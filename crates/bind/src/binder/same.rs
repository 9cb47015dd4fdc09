//! Which scalars are the same expression, where clauses of one query repeat each other: GROUP BY, DISTINCT ON and ORDER BY
//! name what the select list has.
//!
//! Each sub-query has columns of its own, so scalars with sub-queries are not equal as they stand. Two sub-queries of one
//! level are the same if their texts are, as is what they are compared with; PostgreSQL compares their trees.

use super::attach::Pending;
use super::{Binder, LevelId};
use firn_plan::{Column, Scalar};
use firn_syntax::Span;
use firn_syntax::tree::Query;
use std::rc::Rc;

/// A sub-query of an expression, by what makes it the same as another.
#[derive(Clone, Debug)]
pub(crate) struct QueryText {
    /// The query that it stands in.
    level: LevelId,
    /// What is asked of it: its value, EXISTS, `= ANY` and so on.
    question: String,
    /// What its rows are compared with.
    operands: Vec<Scalar>,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    /// In the statement's text.
    Text(Span),
    /// In that of a view.
    Printed(Rc<str>),
}

/// Deeper within a view sub-queries are not printed, because each would be printed with all that it is in.
const PRINTED_LEVELS: usize = 8;

impl Binder<'_> {
    /// Remembers what the column of a sub-query stands for.
    pub(super) fn note_query(
        &mut self,
        column: Column,
        question: impl Into<String>,
        operands: Vec<Scalar>,
        query: &Query,
    ) {
        let place = match self.has_positions {
            true => Place::Text(query.span),
            false if self.levels.len() <= PRINTED_LEVELS => {
                Place::Printed(firn_syntax::print::query(query).into())
            }
            false => return,
        };
        let level = self.level().id;
        self.query_texts.push((column, QueryText { level, question: question.into(), operands, place }));
    }

    fn text_of<'t>(&'t self, query: &'t QueryText) -> &'t str {
        match &query.place {
            Place::Text(span) => &self.text[span.start as usize..span.end as usize],
            Place::Printed(text) => text,
        }
    }

    /// Whether two scalars over one query are the same expression.
    pub(super) fn is_same(&self, left: &Scalar, right: &Scalar) -> bool {
        left == right || self.has_query(left) && self.canonical(left) == self.canonical(right)
    }

    /// Whether a scalar stands on a sub-query.
    pub(super) fn has_query(&self, scalar: &Scalar) -> bool {
        let is_query = |column| {
            self.query_texts.iter().any(|(other, _)| *other == column)
                || matches!(self.pending.get(&column), Some(Pending::Value(value)) if self.has_query(value))
        };
        !self.query_texts.is_empty() && scalar.uses(is_query)
    }

    /// Gives the parts of a scalar that are the same as one of `wholes` its sub-queries.
    pub(super) fn unify(&self, scalar: &mut Scalar, wholes: &[Scalar]) {
        if !self.has_query(scalar) {
            return;
        }
        match wholes.iter().find(|whole| self.is_same(scalar, whole)) {
            Some(whole) => *scalar = whole.clone(),
            None => scalar.for_each_child_mut(|child| self.unify(child, wholes)),
        }
    }

    /// The scalar with the first of equal sub-queries for each.
    fn canonical(&self, scalar: &Scalar) -> Scalar {
        let mut scalar = scalar.clone();
        self.canonicalise(&mut scalar);
        scalar
    }

    fn canonicalise(&self, scalar: &mut Scalar) {
        if let Scalar::Column(column) = scalar {
            match self.pending.get(column) {
                // A condition of CASE that more than one place needs.
                Some(Pending::Value(value)) if !value.is_volatile() => *scalar = value.clone(),
                _ => *column = self.first_of_equal(*column),
            }
        }
        scalar.for_each_child_mut(|child| self.canonicalise(child));
    }

    fn first_of_equal(&self, column: Column) -> Column {
        // A sub-query may yield the column of one within it; the outer one is noted last.
        let Some((_, own)) = self.query_texts.iter().rfind(|(other, _)| *other == column) else {
            return column;
        };
        if self.calls_volatile(column) {
            return column;
        }
        let is_equal = |other: &QueryText| {
            let operands = || own.operands.iter().zip(&other.operands);
            other.level == own.level
                && other.question == own.question
                && other.operands.len() == own.operands.len()
                && self.text_of(other) == self.text_of(own)
                && operands().all(|(left, right)| self.is_same(left, right))
        };
        let first = self.query_texts.iter().find(|(_, other)| is_equal(other));
        first.expect("it equals itself").0
    }

    /// Whether a sub-query that is not joined yet calls a volatile function.
    fn calls_volatile(&self, column: Column) -> bool {
        let Some(Pending::Query(query)) = self.pending.get(&column) else { return false };
        let mut is_volatile = query.conditions.iter().any(Scalar::is_volatile);
        for node in self.plan.post_order_of(query.right) {
            self.plan[node].for_each_scalar(|scalar| is_volatile |= scalar.is_volatile());
        }
        is_volatile
    }
}
