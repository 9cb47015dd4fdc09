//! The dialect that everything is parsed in: sqlparser's PostgreSQL, but for the precedence of
//! `IS [NOT] DISTINCT FROM`, whose right side sqlparser lets reach over AND and OR, for `BETWEEN SYMMETRIC` and
//! `ANY (VALUES …)`, which it does not know, and for names of arguments, which are no expressions: sqlparser would parse each
//! argument twice. It also bounds the steps of the parser.
//!
//! sqlparser asks a dialect for its type where it knows it by name, and else calls its methods: all
//! that its own dialect says otherwise than the defaults is passed on, and must be again when
//! sqlparser is upgraded.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;
use std::any::TypeId;
use std::cell::Cell;

/// PostgreSQL's SQL.
#[derive(Debug)]
pub struct PostgreSql;

const BASE: PostgreSqlDialect = PostgreSqlDialect {};

/// Steps of the parser that a statement of few tokens may take.
const FEW_STEPS: usize = 10_000;

/// Steps of the parser per token. A statement takes about three unless the parser goes back.
const STEPS_PER_TOKEN: usize = 50;

thread_local! {
    /// The steps that the newest parser of the thread may still take.
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Allows the parser that begins as many steps as that many tokens may need. sqlparser tries alternatives one within the
/// other and may take exponentially many; it propagates no other error than that of its depth from all of them.
pub fn allow_steps(tokens: usize) {
    STEPS.set(tokens.saturating_mul(STEPS_PER_TOKEN).saturating_add(FEW_STEPS));
}

fn step() -> Result<(), ParserError> {
    let left = STEPS.get().checked_sub(1).ok_or(ParserError::RecursionLimitExceeded)?;
    STEPS.set(left);
    Ok(())
}

/// Methods that answer as sqlparser's own dialect does.
macro_rules! as_in_base {
    ($($name:ident),* $(,)?) => {
        $(fn $name(&self) -> bool {
            BASE.$name()
        })*
    };
}

impl Dialect for PostgreSql {
    fn dialect(&self) -> TypeId {
        BASE.dialect()
    }

    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        if let Err(error) = step() {
            return Some(Err(error));
        }
        // In parentheses sqlparser knows queries by SELECT and WITH alone.
        let next = |place: usize| &parser.peek_nth_token_ref(place).token;
        let Token::Word(first) = next(0) else { return None };
        let is_query = match first.keyword {
            Keyword::VALUES => *next(1) == Token::LParen,
            Keyword::TABLE => matches!(next(1), Token::Word(_)),
            _ => false,
        };
        let is_inside = parser.get_current_token().token == Token::LParen;
        (is_query && is_inside).then(|| parser.parse_query().map(Expr::Subquery))
    }

    fn parse_infix(
        &self,
        parser: &mut Parser<'_>,
        left: &Expr,
        _precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        use Keyword::{ASYMMETRIC, BETWEEN, DISTINCT, FROM, IS, NOT, SYMMETRIC};
        let distinct = match () {
            () if parser.parse_keywords(&[IS, DISTINCT, FROM]) => Expr::IsDistinctFrom,
            () if parser.parse_keywords(&[IS, NOT, DISTINCT, FROM]) => Expr::IsNotDistinctFrom,
            () if parser.parse_keywords(&[BETWEEN, SYMMETRIC]) => {
                return Some(self.between(parser, left, false).map(either_way));
            }
            () if parser.parse_keywords(&[NOT, BETWEEN, SYMMETRIC]) => {
                let within = self.between(parser, left, false).map(either_way);
                let not = |within| Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(within) };
                return Some(within.map(|within| Expr::Nested(Box::new(not(within)))));
            }
            () if parser.parse_keywords(&[BETWEEN, ASYMMETRIC]) => {
                return Some(self.between(parser, left, false));
            }
            () if parser.parse_keywords(&[NOT, BETWEEN, ASYMMETRIC]) => {
                return Some(self.between(parser, left, true));
            }
            () => return None,
        };
        let right = parser.parse_subexpr(self.prec_value(Precedence::Is));
        Some(right.map(|right| distinct(Box::new(left.clone()), Box::new(right))))
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        BASE.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, character: char) -> bool {
        BASE.is_delimited_identifier_start(character)
    }

    fn is_identifier_start(&self, character: char) -> bool {
        BASE.is_identifier_start(character)
    }

    fn is_identifier_part(&self, character: char) -> bool {
        BASE.is_identifier_part(character)
    }

    /// Beside sqlparser's own, words that it would try as names where what they begin is wrong, at each level of nesting.
    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        matches!(keyword, Keyword::CASE | Keyword::CAST | Keyword::NOT)
            || BASE.is_reserved_for_identifier(keyword)
    }

    fn is_custom_operator_part(&self, character: char) -> bool {
        BASE.is_custom_operator_part(character)
    }

    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        if let Err(error) = step() {
            return Some(Err(error));
        }
        BASE.get_next_precedence(parser)
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        BASE.prec_value(precedence)
    }

    as_in_base!(
        supports_unicode_string_literal,
        supports_filter_during_aggregation,
        supports_group_by_expr,
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_create_index_with_clause,
        supports_explain_with_utility_options,
        supports_listen_notify,
        supports_factorial_operator,
        supports_bitwise_shift_operators,
        supports_comment_on,
        supports_load_extension,
        supports_named_fn_args_with_colon_operator,
        supports_empty_projections,
        supports_nested_comments,
        supports_string_escape_constant,
        supports_numeric_literal_underscores,
        supports_array_typedef_with_brackets,
        supports_geometric_types,
        supports_set_names,
        supports_alter_column_type_using,
        supports_notnull_operator,
        supports_interval_options,
        supports_insert_table_alias,
        supports_create_table_like_parenthesized,
        supports_select_wildcard_with_alias,
        supports_comma_separated_trim,
        supports_xml_expressions,
        supports_comment_optimizer_hint,
    );
}

impl PostgreSql {
    /// What stands behind BETWEEN.
    fn between(&self, parser: &mut Parser<'_>, left: &Expr, negated: bool) -> Result<Expr, ParserError> {
        let low = parser.parse_subexpr(self.prec_value(Precedence::Between))?;
        parser.expect_keyword(Keyword::AND)?;
        let high = parser.parse_subexpr(self.prec_value(Precedence::Between))?;
        Ok(Expr::Between { expr: Box::new(left.clone()), negated, low: Box::new(low), high: Box::new(high) })
    }
}

/// `x BETWEEN a AND b OR x BETWEEN b AND a`
fn either_way(between: Expr) -> Expr {
    let Expr::Between { expr, negated, low, high } = &between else { unreachable!("it is BETWEEN") };
    let other = Expr::Between { expr: expr.clone(), negated: *negated, low: high.clone(), high: low.clone() };
    let either = Expr::BinaryOp { left: Box::new(between), op: BinaryOperator::Or, right: Box::new(other) };
    Expr::Nested(Box::new(either))
}
