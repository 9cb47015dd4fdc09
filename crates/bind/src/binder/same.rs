//! Which scalars are the same expression, where clauses of one query repeat each other: GROUP BY, DISTINCT ON and ORDER BY
//! name what the select list has.
//!
//! Each sub-query has columns of its own, so scalars with sub-queries are not equal as they stand. Two sub-queries of one
//! level are the same if their texts are, as is what they are compared with; PostgreSQL compares their trees.

use super::aggregate::SortSpec;
use super::attach::Pending;
use super::{Binder, LevelId};
use firn_plan::{Column, Scalar};
use firn_syntax::tree::Query;
use firn_syntax::{Span, Token, TokenKind};
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

    /// As [`Binder::is_same`], of several scalars, one by one.
    pub(super) fn are_same<'s>(
        &self,
        left: impl IntoIterator<Item = &'s Scalar, IntoIter: ExactSizeIterator>,
        right: impl IntoIterator<Item = &'s Scalar, IntoIter: ExactSizeIterator>,
    ) -> bool {
        let (left, right) = (left.into_iter(), right.into_iter());
        left.len() == right.len() && left.zip(right).all(|(left, right)| self.is_same(left, right))
    }

    /// As [`Binder::is_same`], of the items of two ORDER BY clauses.
    pub(super) fn is_same_order(&self, left: &[SortSpec], right: &[SortSpec]) -> bool {
        let how = |item: &SortSpec| (item.ty, item.descending, item.nulls_first);
        left.iter().map(how).eq(right.iter().map(how))
            && self.are_same(left.iter().map(|item| &item.value), right.iter().map(|item| &item.value))
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
            None => {
                self.unify_first_operands(scalar, wholes);
                scalar.for_each_child_mut(|child| self.unify(child, wholes));
            }
        }
    }

    /// The same of the first operands of a chain of operators, which are an expression by themselves: `a + b` in `a + b + c`.
    fn unify_first_operands(&self, scalar: &mut Scalar, wholes: &[Scalar]) {
        let Scalar::Call(call) = scalar else { return };
        if !call.as_operator {
            return;
        }
        for whole in wholes {
            let Scalar::Call(whole) = whole else { continue };
            let length = whole.arguments.len();
            if whole.as_operator
                && whole.function == call.function
                && (2..call.arguments.len()).contains(&length)
                && self.are_same(&whole.arguments, &call.arguments[..length])
            {
                call.arguments[..length].clone_from_slice(&whole.arguments);
            }
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
                && is_same_text(self.text_of(other), self.text_of(own))
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

/// Whether two texts of queries are the same but for blanks, comments, the case of words, and parentheses around all.
fn is_same_text(left: &str, right: &str) -> bool {
    if left == right {
        return true;
    }
    let lexed = |text| firn_syntax::tokens(text, firn_syntax::Options::default());
    let (Ok(left_tokens), Ok(right_tokens)) = (lexed(left), lexed(right)) else { return false };
    let of_left = without_parentheses(left, &left_tokens);
    let of_right = without_parentheses(right, &right_tokens);
    let is_same = |(one, other): (&Token, &Token)| {
        let (one_text, other_text) = (text_at(left, one), text_at(right, other));
        one.kind == other.kind
            && match one.kind {
                TokenKind::Keyword(_) | TokenKind::NotEqual => true,
                TokenKind::Identifier => one_text.eq_ignore_ascii_case(other_text),
                _ => one_text == other_text,
            }
    };
    of_left.len() == of_right.len() && of_left.iter().zip(of_right).all(is_same)
}

fn text_at<'t>(text: &'t str, token: &Token) -> &'t str {
    &text[token.span.start as usize..token.span.end as usize]
}

fn without_parentheses<'t>(text: &str, mut tokens: &'t [Token]) -> &'t [Token] {
    while let [first, inner @ .., last] = tokens {
        let mut depth = 0_i32;
        // A parenthesis that closes the first one before the end leaves the depth below that of the start.
        let closes_before = inner.iter().any(|token| {
            match text_at(text, token) {
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => {}
            }
            depth < 0
        });
        if text_at(text, first) != "(" || text_at(text, last) != ")" || closes_before {
            break;
        }
        tokens = inner;
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::is_same_text;

    #[test]
    fn texts_are_the_same_but_for_blanks_comments_case_and_parentheses() {
        for (left, right) in [
            ("SELECT a FROM t", "select  A /* the first */ from T"),
            ("SELECT a FROM t", "((SELECT a FROM t))"),
            ("(SELECT 1) UNION (SELECT 2)", "((SELECT 1) UNION (SELECT 2))"),
        ] {
            assert!(is_same_text(left, right), "{left} / {right}");
        }
        for (left, right) in [
            ("SELECT 'a'", "SELECT 'A'"),
            ("SELECT \"a\"", "SELECT \"A\""),
            ("SELECT 1) UNION (SELECT 2", "(SELECT 1) UNION (SELECT 2)"),
            ("SELECT a FROM t", "SELECT a FROM t, u"),
        ] {
            assert!(!is_same_text(left, right), "{left} / {right}");
        }
    }
}
