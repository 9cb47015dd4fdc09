//! Expressions, with the parentheses that precedence asks for.
//!
//! Two numbers decide about parentheses. `floor`: the operators of an operand must bind more tightly than this, or it would not
//! be one operand. `follow`: how tightly the operator behind an operand binds, since an operand that ends in a loose
//! prefix operator (`1 + NOT a`) would take it.

use super::Printer;
use super::operand::normal_form;
use crate::level::{self, Level, does_not_associate};
use crate::tree::{
    Accessor, Chain, Expr, ExprKind, IsTest, LikeKind, Operator, Prefix, PrefixKind, QuantifiedRight, Step,
    StepKind,
};

impl Printer {
    /// An expression where any may stand.
    pub(crate) fn expr(&mut self, expr: &Expr) {
        self.expr_above(expr, level::NONE, level::NONE);
    }

    /// Expressions with commas between them.
    pub(crate) fn exprs(&mut self, exprs: &[Expr]) {
        self.list(exprs, Self::expr);
    }

    /// An expression where no operators of words may stand (PostgreSQL's b_expr).
    pub(crate) fn restricted_expr(&mut self, expr: &Expr) {
        if is_restricted(expr, level::NONE) { self.expr(expr) } else { self.in_parentheses(expr) }
    }

    /// An expression where no operators may stand (PostgreSQL's c_expr).
    pub(super) fn operand(&mut self, expr: &Expr) {
        let has_operators = match &expr.kind {
            ExprKind::Chain(chain) => !is_column_with_subscripts(chain),
            ExprKind::Prefix(_)
            | ExprKind::And(_)
            | ExprKind::Or(_)
            | ExprKind::Overlaps(_)
            | ExprKind::Default => true,
            _ => false,
        };
        if has_operators { self.in_parentheses(expr) } else { self.expr(expr) }
    }

    fn in_parentheses(&mut self, expr: &Expr) {
        self.put("(");
        self.expr(expr);
        self.put(")");
    }

    pub(super) fn expr_above(&mut self, expr: &Expr, floor: Level, follow: Level) {
        let needs_parentheses = match &expr.kind {
            ExprKind::Or(_) => level::OR <= floor,
            ExprKind::And(_) => level::AND <= floor,
            ExprKind::Prefix(prefix) => prefix_level(prefix) < follow,
            ExprKind::Chain(chain) => chain.steps.iter().any(|step| step_level(step) <= floor),
            _ => false,
        };
        if needs_parentheses {
            return self.in_parentheses(expr);
        }
        match &expr.kind {
            ExprKind::Or(conditions) => self.conditions(conditions, " OR ", level::OR, follow),
            ExprKind::And(conditions) => self.conditions(conditions, " AND ", level::AND, follow),
            ExprKind::Prefix(prefix) => self.prefix(prefix, follow),
            ExprKind::Chain(chain) => self.chain(chain, follow),
            _ => self.primary(expr),
        }
    }

    fn conditions(&mut self, conditions: &[Expr], word: &str, level: Level, follow: Level) {
        for (index, condition) in conditions.iter().enumerate() {
            if index > 0 {
                self.put(word);
            }
            let follow = if index + 1 < conditions.len() { level } else { follow };
            self.expr_above(condition, level, follow);
        }
    }

    fn prefix(&mut self, prefix: &Prefix, follow: Level) {
        for (index, operator) in prefix.operators.iter().enumerate().rev() {
            match &operator.kind {
                PrefixKind::Not => self.put("NOT "),
                // A sign touches its operand, but no operator another one.
                PrefixKind::Operator(sign @ (Operator::Plus | Operator::Minus)) => {
                    self.put(sign.symbol());
                    if index > 0 {
                        self.put(" ");
                    }
                }
                PrefixKind::Operator(other @ Operator::Other(_)) => {
                    self.operator(other);
                    self.put(" ");
                }
                // These may stand before an operand only in this form.
                PrefixKind::Operator(symbol) => {
                    self.put("OPERATOR(");
                    self.put(symbol.symbol());
                    self.put(") ");
                }
            }
        }
        self.expr_above(&prefix.operand, prefix_operator_level(&prefix.operators[0].kind), follow);
    }

    /// An operator, with its schema as `OPERATOR(schema.operator)`.
    pub(crate) fn operator(&mut self, operator: &Operator) {
        if operator.qualifiers().is_empty() {
            return self.put(operator.symbol());
        }
        self.put("OPERATOR(");
        self.any_operator(operator);
        self.put(")");
    }

    /// An operator with its schema.
    pub(crate) fn any_operator(&mut self, operator: &Operator) {
        for qualifier in operator.qualifiers() {
            self.name(qualifier);
            self.put(".");
        }
        self.put(operator.symbol());
    }

    // Chains.

    fn chain(&mut self, chain: &Chain, follow: Level) {
        for index in 0..chain.steps.len() {
            if closes_before(chain, index) {
                self.put("(");
            }
        }
        self.chain_start(chain);
        for (index, step) in chain.steps.iter().enumerate() {
            if closes_before(chain, index) {
                self.put(")");
            }
            let follow = match chain.steps.get(index + 1) {
                None => follow,
                Some(_) if closes_before(chain, index + 1) => level::NONE,
                Some(next) => step_level(next),
            };
            self.step(step, follow);
        }
    }

    fn chain_start(&mut self, chain: &Chain) {
        let next = step_level(&chain.steps[0]);
        let is_loose = matches!(chain.first.kind, ExprKind::And(_) | ExprKind::Or(_));
        if is_loose || (next == level::ACCESS && !takes_accessor(&chain.first, &chain.steps[0])) {
            self.in_parentheses(&chain.first);
        } else {
            self.expr_above(&chain.first, level::NONE, next);
        }
    }

    fn step(&mut self, step: &Step, follow: Level) {
        match &step.kind {
            StepKind::Binary(operator, right) => {
                self.put(" ");
                self.operator(operator);
                self.put(" ");
                self.expr_above(right, operator_level(operator), follow);
            }
            StepKind::Cast(type_name) => {
                self.put("::");
                self.type_name(type_name);
            }
            StepKind::Collate(collation) => {
                self.put(" COLLATE ");
                self.object_name(collation);
            }
            StepKind::AtTimeZone(zone) => {
                self.put(" AT TIME ZONE ");
                self.expr_above(zone, level::AT, follow);
            }
            StepKind::Is { is_negated, test } => {
                self.put(if *is_negated { " IS NOT " } else { " IS " });
                self.is_test(*test);
            }
            StepKind::IsDistinctFrom { is_negated, right } => {
                self.put(if *is_negated { " IS NOT DISTINCT FROM " } else { " IS DISTINCT FROM " });
                self.expr_above(right, level::IS, follow);
            }
            StepKind::Like(like) => {
                self.not(like.is_negated);
                self.put(match like.kind {
                    LikeKind::Like => " LIKE ",
                    LikeKind::ILike => " ILIKE ",
                    LikeKind::SimilarTo => " SIMILAR TO ",
                });
                // The escape character belongs to the nearest LIKE, which must not be one in the pattern.
                let behind = if like.escape.is_some() { level::OPERATOR } else { follow };
                self.expr_above(&like.pattern, level::MATCH, behind);
                if let Some(escape) = &like.escape {
                    self.put(" ESCAPE ");
                    self.expr_above(escape, level::MATCH, follow);
                }
            }
            StepKind::Between(between) => {
                self.not(between.is_negated);
                self.put(if between.is_symmetric { " BETWEEN SYMMETRIC " } else { " BETWEEN " });
                self.restricted_expr(&between.low);
                self.put(" AND ");
                self.expr_above(&between.high, level::MATCH, follow);
            }
            StepKind::InList { is_negated, items } => {
                self.not(*is_negated);
                self.put(" IN ");
                self.parenthesised(items, Self::expr);
            }
            StepKind::InQuery { is_negated, query } => {
                self.not(*is_negated);
                self.put(" IN ");
                self.query_in_parentheses(query);
            }
            StepKind::Quantified(quantified) => {
                self.put(" ");
                self.operator(&quantified.operator);
                self.put(if quantified.is_all { " ALL " } else { " ANY " });
                match &quantified.right {
                    QuantifiedRight::Query(query) => self.query_in_parentheses(query),
                    QuantifiedRight::Array(array) => self.in_parentheses(array),
                }
            }
            StepKind::Access(accessor) => self.accessor(accessor),
        }
    }

    fn not(&mut self, is_negated: bool) {
        if is_negated {
            self.put(" NOT");
        }
    }

    fn is_test(&mut self, test: IsTest) {
        let word = match test {
            IsTest::Null => "NULL",
            IsTest::True => "TRUE",
            IsTest::False => "FALSE",
            IsTest::Unknown => "UNKNOWN",
            IsTest::Document => "DOCUMENT",
            IsTest::Normalized(None) => "NORMALIZED",
            IsTest::Normalized(Some(form)) => {
                self.put(normal_form(form));
                " NORMALIZED"
            }
        };
        self.put(word);
    }

    /// A way into a value.
    pub(crate) fn accessor(&mut self, accessor: &Accessor) {
        match accessor {
            Accessor::Field(name) => {
                self.put(".");
                self.name(name);
            }
            Accessor::AllFields => self.put(".*"),
            Accessor::Subscript(index) => {
                self.put("[");
                self.expr(index);
                self.put("]");
            }
            Accessor::Slice(bounds) => {
                self.put("[");
                if let Some(low) = &bounds.0 {
                    self.expr(low);
                }
                self.put(" : ");
                if let Some(high) = &bounds.1 {
                    self.expr(high);
                }
                self.put("]");
            }
        }
    }
}

fn operator_level(operator: &Operator) -> Level {
    match operator {
        Operator::Plus | Operator::Minus => level::SUM,
        Operator::Times | Operator::Divide | Operator::Modulo => level::PRODUCT,
        Operator::Power => level::POWER,
        Operator::Less
        | Operator::Greater
        | Operator::Equal
        | Operator::LessEqual
        | Operator::GreaterEqual
        | Operator::NotEqual => level::COMPARISON,
        Operator::Other(_) => level::OPERATOR,
    }
}

fn prefix_operator_level(kind: &PrefixKind) -> Level {
    match kind {
        PrefixKind::Not => level::NOT,
        PrefixKind::Operator(Operator::Plus | Operator::Minus) => level::SIGN,
        PrefixKind::Operator(_) => level::OPERATOR,
    }
}

/// The loosest of the operators, which takes what follows the operand.
fn prefix_level(prefix: &Prefix) -> Level {
    let levels = prefix.operators.iter().map(|operator| prefix_operator_level(&operator.kind));
    levels.min().expect("a prefix has an operator")
}

fn step_level(step: &Step) -> Level {
    match &step.kind {
        StepKind::Binary(operator, _) => operator_level(operator),
        StepKind::Quantified(quantified) => operator_level(&quantified.operator),
        StepKind::Cast(_) => level::CAST,
        StepKind::Collate(_) => level::COLLATE,
        StepKind::AtTimeZone(_) => level::AT,
        StepKind::Is { .. } | StepKind::IsDistinctFrom { .. } => level::IS,
        StepKind::Like(_) | StepKind::Between(_) | StepKind::InList { .. } | StepKind::InQuery { .. } => {
            level::MATCH
        }
        StepKind::Access(_) => level::ACCESS,
    }
}

/// Whether a step ends in an operand that could take what follows.
fn ends_in_operand(step: &Step) -> bool {
    matches!(
        step.kind,
        StepKind::Binary(..)
            | StepKind::AtTimeZone(_)
            | StepKind::IsDistinctFrom { .. }
            | StepKind::Like(_)
            | StepKind::Between(_)
    )
}

/// Whether a parenthesis must close before this step, since its left operand would not reach to the beginning.
fn closes_before(chain: &Chain, index: usize) -> bool {
    let Some(before) = index.checked_sub(1).map(|before| &chain.steps[before]) else { return false };
    let next = step_level(&chain.steps[index]);
    if next == level::ACCESS {
        return !matches!(before.kind, StepKind::Access(_));
    }
    let level = step_level(before);
    ends_in_operand(before) && (next > level || (next == level && does_not_associate(level)))
}

/// Whether an accessor may stand directly behind an operand.
fn takes_accessor(operand: &Expr, step: &Step) -> bool {
    match &operand.kind {
        ExprKind::Parameter(_) | ExprKind::Subquery(_) => true,
        ExprKind::Column(_) => {
            matches!(step.kind, StepKind::Access(Accessor::Subscript(_) | Accessor::Slice(_)))
        }
        _ => false,
    }
}

fn is_column_with_subscripts(chain: &Chain) -> bool {
    chain.steps.iter().all(|step| matches!(step.kind, StepKind::Access(_)))
}

/// Whether an expression, as it is printed above `floor`, has no operators of words outside parentheses. What is printed in
/// parentheses has none: it must not get a second pair around it.
fn is_restricted(expr: &Expr, floor: Level) -> bool {
    match &expr.kind {
        ExprKind::Default | ExprKind::Overlaps(_) => false,
        ExprKind::And(_) => level::AND <= floor,
        ExprKind::Or(_) => level::OR <= floor,
        ExprKind::Prefix(prefix) => {
            !prefix.operators.iter().any(|operator| operator.kind == PrefixKind::Not)
                && is_restricted(&prefix.operand, prefix_operator_level(&prefix.operators[0].kind))
        }
        ExprKind::Chain(chain) => {
            if chain.steps.iter().any(|step| step_level(step) <= floor) {
                return true;
            }
            let closed = (0..chain.steps.len()).rev().find(|&index| closes_before(chain, index));
            let first_is_restricted = closed.is_some()
                || matches!(chain.first.kind, ExprKind::And(_) | ExprKind::Or(_))
                || step_level(&chain.steps[0]) == level::ACCESS
                || is_restricted(&chain.first, level::NONE);
            first_is_restricted
                && chain.steps[closed.unwrap_or(0)..].iter().all(|step| match &step.kind {
                    StepKind::Binary(operator, right) => is_restricted(right, operator_level(operator)),
                    StepKind::IsDistinctFrom { right, .. } => is_restricted(right, level::IS),
                    StepKind::Cast(_) | StepKind::Access(_) => true,
                    StepKind::Is { test, .. } => *test == IsTest::Document,
                    _ => false,
                })
        }
        _ => true,
    }
}
