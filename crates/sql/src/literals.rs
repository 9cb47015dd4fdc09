//! Literals of a statement that its plan need not know: statements that differ in them alone share a plan.
//!
//! ```text
//! SELECT name FROM items WHERE id = 17 AND kind = 'a' LIMIT 1
//! SELECT name FROM items WHERE id =  $1  AND kind =  $2  LIMIT 1      types: integer, not known yet
//! ```
//!
//! Such a literal is all of one side of `=` whose other side is a column, in a condition of WHERE that the others are joined to by AND; a
//! value of INSERT; or the value that UPDATE assigns to a column. All other literals remain in the text, which is the key of the plan.
//! A number has its own type as a parameter, and a string is a parameter without a type: both take part in the choice of operators as the literal
//! would. So the plan is that of the statement.
//!
//! A plan is shared only if no estimate enters it: if it finds every row by all of a unique key
//! ([`firn_query::Prepared::is_by_keys`]). Whatever is unusual (a string that is no value of its type, a type whose text depends on more than the
//! session's style, a statement that cannot be bound) is planned by its own text, which raises the errors with the literals' positions.

use crate::parse::Parsed;
use firn_base::{Numeric, Type, TypeId, Value};
use firn_bind::names_the_present;
use firn_syntax::Span;
use firn_syntax::tree::{
    Assignment, ChangeCondition, Expr, ExprKind, Operator, Query, QueryBody, Statement, StepKind,
};
use std::fmt::Write;

/// Statements with more literals are rarely alike.
const MOST_LITERALS: usize = 100;

/// A statement with parameters in place of literals.
pub struct SharedForm {
    /// Its text.
    pub text: String,
    /// The types of the parameters, as far as they are known.
    pub types: Vec<Option<TypeId>>,
    literals: Vec<Literal>,
}

enum Literal {
    Integer(i32),
    BigInt(i64),
    Numeric(Numeric),
    String(Box<str>),
}

impl SharedForm {
    /// The form of a statement; `None` if it has no such literals, or has parameters already.
    pub fn of(parsed: &Parsed) -> Option<SharedForm> {
        let text = parsed.text();
        // Strings in dollars may contain anything.
        if text.contains('$') {
            return None;
        }
        let mut found = Found::default();
        found.statement(&parsed.statement)?;
        let Found { mut literals } = found;
        if literals.is_empty() {
            return None;
        }
        literals.sort_unstable_by_key(|(span, _)| span.start);
        let mut form = SharedForm {
            text: String::with_capacity(text.len() + 8 * literals.len()),
            types: Vec::with_capacity(literals.len()),
            literals: Vec::with_capacity(literals.len()),
        };
        let mut done = parsed.span.start;
        for (span, literal) in literals {
            form.text.push_str(Span { start: done, end: span.start }.of(&parsed.script));
            form.types.push(literal.ty());
            form.literals.push(literal);
            // A string may touch the words beside it.
            write!(form.text, " ${} ", form.literals.len()).expect("strings take everything");
            done = span.end;
        }
        form.text.push_str(Span { start: done, end: parsed.span.end }.of(&parsed.script));
        Some(form)
    }

    /// The literals, for parameters that have these types; `None` if one is to be read by the statement itself. Strings are texts still, to be
    /// read as other parameters are.
    pub fn values(self, types: &[Type]) -> Option<Vec<Value>> {
        let value = |(literal, ty): (Literal, &Type)| match literal {
            Literal::Integer(value) => Some(Value::Integer(value)),
            Literal::BigInt(value) => Some(Value::BigInt(value)),
            Literal::Numeric(value) => Some(Value::Number(value)),
            Literal::String(text) => is_plain(&text, ty.id).then(|| Value::Text(text.into())),
        };
        self.literals.into_iter().zip(types).map(value).collect()
    }
}

/// Whether a string means the same value of a type at all times, and is read as a parameter as it is as a literal.
fn is_plain(text: &str, ty: TypeId) -> bool {
    match ty {
        TypeId::DATE | TypeId::TIME | TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ => !names_the_present(text),
        TypeId::BOOL
        | TypeId::INT2
        | TypeId::INT4
        | TypeId::INT8
        | TypeId::FLOAT4
        | TypeId::FLOAT8
        | TypeId::NUMERIC
        | TypeId::TEXT
        | TypeId::VARCHAR
        | TypeId::UUID => true,
        _ => false,
    }
}

impl Literal {
    fn of(expr: &Expr) -> Option<Literal> {
        match &expr.kind {
            ExprKind::Integer(value) => Some(Literal::Integer(*value)),
            ExprKind::Number(digits) => match digits.parse() {
                Ok(value) => Some(Literal::BigInt(value)),
                Err(_) => Numeric::parse(digits).ok().map(Literal::Numeric),
            },
            ExprKind::String(text) => Some(Literal::String(text.clone())),
            _ => None,
        }
    }

    fn ty(&self) -> Option<TypeId> {
        match self {
            Literal::Integer(_) => Some(TypeId::INT4),
            Literal::BigInt(_) => Some(TypeId::INT8),
            Literal::Numeric(_) => Some(TypeId::NUMERIC),
            Literal::String(_) => None,
        }
    }
}

/// Literals and where they are.
#[derive(Default)]
struct Found {
    literals: Vec<(Span, Literal)>,
}

/// `None` ends the search: the statement is not of a kind whose plans are shared.
impl Found {
    fn statement(&mut self, statement: &Statement) -> Option<()> {
        match statement {
            Statement::Query(query) => self.query(query),
            Statement::Insert(insert) => {
                (insert.with.is_none() && insert.on_conflict.is_none()).then_some(())?;
                let Query {
                    with: None,
                    body: QueryBody::Values(rows),
                    order_by,
                    limit: None,
                    offset: None,
                    ..
                } = &**insert.source.as_ref()?
                else {
                    return None;
                };
                order_by.is_empty().then_some(())?;
                rows.iter().flatten().try_for_each(|value| self.value(value))
            }
            Statement::Update(update) => {
                (update.with.is_none() && update.from.is_empty()).then_some(())?;
                for assignment in &update.assignments {
                    if let Assignment::Single { value, .. } = assignment {
                        self.value(value)?;
                    }
                }
                self.change_condition(update.condition.as_ref()?)
            }
            Statement::Delete(delete) => {
                (delete.with.is_none() && delete.using.is_empty()).then_some(())?;
                self.change_condition(delete.condition.as_ref()?)
            }
            _ => None,
        }
    }

    fn query(&mut self, query: &Query) -> Option<()> {
        let Query { with: None, body: QueryBody::Select(select), .. } = query else { return None };
        let is_plain = select.into.is_none()
            && select.distinct.is_none()
            && select.group_by.is_empty()
            && select.having.is_none()
            && select.windows.is_empty()
            && !select.from.is_empty();
        is_plain.then_some(())?;
        self.condition(select.condition.as_ref()?)
    }

    fn change_condition(&mut self, condition: &ChangeCondition) -> Option<()> {
        match condition {
            ChangeCondition::Expr(condition) => self.condition(condition),
            ChangeCondition::CurrentOf(_) => None,
        }
    }

    fn condition(&mut self, condition: &Expr) -> Option<()> {
        match &condition.kind {
            ExprKind::And(conditions) => {
                conditions.iter().try_for_each(|condition| self.comparison(condition))
            }
            _ => self.comparison(condition),
        }
    }

    fn comparison(&mut self, condition: &Expr) -> Option<()> {
        let ExprKind::Chain(chain) = &condition.kind else { return Some(()) };
        let [step] = &chain.steps[..] else { return Some(()) };
        let StepKind::Binary(Operator::Equal, right) = &step.kind else { return Some(()) };
        match (&chain.first.kind, &right.kind) {
            (ExprKind::Column(_), _) => self.value(right),
            (_, ExprKind::Column(_)) => self.value(&chain.first),
            _ => Some(()),
        }
    }

    fn value(&mut self, value: &Expr) -> Option<()> {
        if let Some(literal) = Literal::of(value) {
            (self.literals.len() < MOST_LITERALS).then_some(())?;
            self.literals.push((value.span, literal));
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse_one;

    fn form(text: &str) -> Option<String> {
        let form = SharedForm::of(&parse_one(text).unwrap().unwrap())?;
        let types: Vec<String> =
            form.types.iter().map(|ty| ty.map_or("?".to_owned(), |ty| Type::new(ty).to_string())).collect();
        let words: Vec<&str> = form.text.split_whitespace().collect();
        Some(format!("{} | {}", words.join(" "), types.join(" ")))
    }

    #[test]
    fn literals_become_parameters_where_a_plan_need_not_know_them() {
        for (text, expected) in [
            ("SELECT a FROM t WHERE a = 17", "SELECT a FROM t WHERE a = $1 | integer"),
            (
                "SELECT a, 1 FROM t WHERE'x'=b AND c = 3000000000 AND d=1.5 AND e < 4 LIMIT 5;",
                "SELECT a, 1 FROM t WHERE $1 =b AND c = $2 AND d= $3 AND e < 4 LIMIT 5 | ? bigint numeric",
            ),
            (
                "UPDATE t SET a = 1, b = 'é' || 'x', c = E'\\n' WHERE d = 2 RETURNING 7",
                "UPDATE t SET a = $1 , b = 'é' || 'x', c = $2 WHERE d = $3 RETURNING 7 | integer ? integer",
            ),
            ("DELETE FROM t WHERE a = 1 AND b = c", "DELETE FROM t WHERE a = $1 AND b = c | integer"),
            (
                "INSERT INTO t VALUES (1, NULL, -2, now()), ('x', DEFAULT, 1 + 1, true)",
                "INSERT INTO t VALUES ( $1 , NULL, -2, now()), ( $2 , DEFAULT, 1 + 1, true) | integer ?",
            ),
        ] {
            assert_eq!(form(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "SELECT 1",
            "SELECT a FROM t",
            "SELECT a FROM t WHERE a > 1",
            "SELECT a FROM t WHERE a = 1 OR a = 2",
            "SELECT a FROM t WHERE a + 1 = 2",
            "SELECT a FROM t WHERE a = -1",
            "SELECT a FROM t WHERE a = $1 AND b = 2",
            "SELECT count(*) FROM t WHERE a = 1 GROUP BY b",
            "SELECT a FROM t WHERE a = 1 UNION SELECT 2",
            "WITH x AS (SELECT 1) SELECT a FROM t WHERE a = 1",
            "INSERT INTO t SELECT 1",
            "INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING",
            "UPDATE t SET a = 1",
            "EXPLAIN SELECT a FROM t WHERE a = 1",
        ] {
            assert_eq!(form(text), None, "{text}");
        }
    }
}
