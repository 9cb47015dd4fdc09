//! How deep a statement is, and the limit on it.
//!
//! Everything behind the parser walks its tree by recursion, so a tree without a limit overflows the stack. Depth
//! counts levels: operators on each other's results, also where they are written side by side, as the terms of a sum
//! are; parentheses, function calls and CASE; joins and set operations; queries within queries, views and WITH included.
//!
//! It is found twice. Before parsing, [`of_tokens`] bounds it in one pass over the tokens, so that the parser neither builds
//! nor frees a tree that is too deep. After parsing, [`of_statement`] measures what the tokens do not show: joins, FROM lists
//! and the use of one WITH query by the next.
//!
//! Invariant: a tree that passes both is no deeper than [`LIMIT`], for which [`firn_base::stack`] has room.

use crate::statement::{CopySubject, Ddl, Parsed, Statement, TableOperation, fold};
use datafusion::sql::sqlparser::ast::{self, Visit};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use firn_base::{Error, SqlState};
use std::ops::ControlFlow;

/// The deepest tree, in levels of expressions.
pub const LIMIT: u32 = 2000;

/// How deep parentheses, brackets and CASE may nest: the parser needs more stack for them than for a chain.
const NESTING: usize = 100;

/// A join or a set operation, in levels of expressions: plans need more stack than expressions.
const RELATION: u32 = 3;

/// INTERSECT or EXCEPT, likewise: planning 500 of them in a chain takes more memory than a machine has.
const INTERSECTION: u32 = LIMIT / 60;

/// A query within another, likewise.
const QUERY: u32 = 8;

/// BETWEEN SYMMETRIC, which is expanded to two copies of its operand.
const COPY: u32 = LIMIT / 8;

/// INTERVAL as a prefix, of which the parser does not count the levels.
const PREFIX: u32 = LIMIT / 100;

/// 54001
#[cold]
pub fn exceeded() -> Error {
    Error::new(SqlState::new("54001"), "stack depth limit exceeded")
        .with_detail(format!(
            "Operators may be chained {LIMIT} times, parentheses and calls nested {NESTING} times, joins and set operations chained \
             {} times.",
            LIMIT / RELATION
        ))
        .with_hint(
            "Write long chains as a list, such as IN (…) or VALUES, or split the statement over several tables.",
        )
}

/// What a token does to an expression; separators of looser binding come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    SetOperation,
    /// A comma, or a keyword between clauses. It adds no level.
    Clause,
    Or,
    And,
    /// BETWEEN SYMMETRIC, whose own AND follows.
    Copy,
    /// Every other operator, with its number of levels.
    Link(u32),
    Open,
    Close,
    /// CASE
    Case,
    /// END
    End,
    /// A name or a literal.
    Operand,
    /// A word that may be anything else.
    Word,
}

/// The classes that count, and what lies in parentheses.
const CLASSES: usize = 6;
const OR: usize = 2;
const AND: usize = 3;
const LINK: usize = 4;
const NESTED: usize = 5;

/// The tokens between two parentheses, or of one CASE.
#[derive(Default)]
struct Level {
    /// Separators of each class since the last one of a looser class.
    counts: [u32; CLASSES],
    /// The deepest part that such separators have closed.
    deepest: [u32; CLASSES],
    is_case: bool,
}

impl Level {
    /// Ends the parts that bind closer than a class.
    fn close(&mut self, class: usize) {
        for inner in (class + 1..=LINK).rev() {
            let depth = self.counts[inner] + self.deepest[inner + 1];
            self.deepest[inner] = self.deepest[inner].max(depth);
            (self.counts[inner], self.deepest[inner + 1]) = (0, 0);
        }
    }

    /// The depth of the whole.
    fn depth(mut self) -> u32 {
        self.close(0);
        self.counts[0] + self.deepest[1]
    }
}

/// A bound of the depth of what the tokens of a statement parse to; 54001 if it may be too deep.
pub fn of_tokens(tokens: &[TokenWithSpan]) -> Result<u32, Error> {
    let mut levels = vec![Level::default()];
    let mut before = Class::Clause;
    let mut previous: Option<&Token> = None;
    for TokenWithSpan { token, .. } in tokens {
        let level = levels.last_mut().expect("the outermost level stays");
        let class = classify(token, previous, before, level.is_case);
        match class {
            Class::SetOperation => {
                level.close(0);
                level.counts[0] += RELATION;
            }
            Class::Clause => level.close(1),
            Class::Or | Class::And => {
                let index = if class == Class::Or { OR } else { AND };
                level.close(index);
                level.counts[index] += 1;
            }
            // A chain of them goes on behind the AND of each.
            Class::Copy => level.counts[AND] += COPY,
            Class::Link(levels) => level.counts[LINK] += levels,
            Class::Open | Class::Case => {
                // A subscript, or the arguments of what a call yields.
                let follows = matches!(previous, Some(Token::RParen | Token::RBracket));
                level.counts[LINK] += u32::from(follows || *token == Token::LBracket);
                levels.push(Level { is_case: class == Class::Case, ..Level::default() });
            }
            Class::Close | Class::End if levels.len() > 1 => {
                let inner = levels.pop().expect("it has been counted").depth();
                let level = levels.last_mut().expect("the outermost level stays");
                level.deepest[NESTED] = level.deepest[NESTED].max(inner + 1);
            }
            Class::Close | Class::End | Class::Operand | Class::Word => {}
        }
        let level = levels.last().expect("the outermost level stays");
        if levels.len() > NESTING || level.counts.iter().any(|count| *count > LIMIT) {
            return Err(exceeded());
        }
        (before, previous) = (class, Some(token));
    }
    let depth = levels.into_iter().rev().fold(0, |inner, mut level| {
        level.deepest[NESTED] = level.deepest[NESTED].max(inner);
        level.depth() + 1
    });
    if depth > LIMIT { Err(exceeded()) } else { Ok(depth) }
}

/// Words separate only behind a complete operand: the parser takes most of them for names, too.
fn classify(token: &Token, previous: Option<&Token>, before: Class, in_case: bool) -> Class {
    use Keyword as K;
    let is_complete = matches!(before, Class::Operand | Class::Close | Class::End);
    match token {
        Token::Comma => Class::Clause,
        Token::LParen | Token::LBracket | Token::LBrace => Class::Open,
        Token::RParen | Token::RBracket | Token::RBrace => Class::Close,
        Token::Word(_) if previous == Some(&Token::Period) => Class::Operand,
        Token::Word(word) => match word.keyword {
            K::NoKeyword | K::NULL | K::TRUE | K::FALSE | K::DEFAULT => Class::Operand,
            K::OR => Class::Or,
            K::AND => Class::And,
            K::CASE => Class::Case,
            K::END if in_case => Class::End,
            K::UNION | K::INTERSECT | K::EXCEPT | K::MINUS if is_complete => Class::SetOperation,
            K::SYMMETRIC => Class::Copy,
            K::INTERVAL => Class::Link(PREFIX),
            K::NOT | K::IS | K::NOTNULL | K::IN | K::LIKE | K::ILIKE | K::SIMILAR | K::BETWEEN => {
                Class::Link(1)
            }
            K::COLLATE | K::AT | K::OPERATOR | K::OVERLAPS | K::XOR | K::DIV | K::RLIKE | K::REGEXP => {
                Class::Link(1)
            }
            K::MATCH
            | K::MEMBER
            | K::PRIOR
            | K::BINARY
            | K::CONNECT_BY_ROOT
            | K::ESCAPE
            | K::ANY
            | K::ALL => Class::Link(1),
            K::WHEN | K::THEN | K::ELSE if in_case && is_complete => Class::Clause,
            K::SELECT
            | K::FROM
            | K::WHERE
            | K::GROUP
            | K::HAVING
            | K::WINDOW
            | K::ORDER
            | K::LIMIT
            | K::OFFSET
            | K::FETCH
            | K::FOR
            | K::ON
            | K::USING
            | K::JOIN
            | K::LEFT
            | K::RIGHT
            | K::FULL
            | K::INNER
            | K::CROSS
            | K::NATURAL
            | K::VALUES
            | K::SET
            | K::RETURNING
            | K::AS
                if is_complete =>
            {
                Class::Clause
            }
            _ => Class::Word,
        },
        Token::Number(..) | Token::Placeholder(_) | Token::Period | Token::SemiColon | Token::EOF => {
            Class::Operand
        }
        Token::SingleQuotedString(_)
        | Token::DollarQuotedString(_)
        | Token::EscapedStringLiteral(_)
        | Token::UnicodeStringLiteral(_)
        | Token::NationalStringLiteral(_)
        | Token::HexStringLiteral(_)
        | Token::SingleQuotedByteStringLiteral(_) => Class::Operand,
        _ => Class::Link(1),
    }
}

/// The depth of a statement; 54001 if it is too deep.
pub fn of_statement(statement: &Statement) -> Result<u32, Error> {
    let mut meter = Meter::default();
    measure(statement, &mut meter);
    meter.depth()
}

/// The depth of an expression; 54001 if it is too deep.
pub fn of_expression(expression: &ast::Expr) -> Result<u32, Error> {
    let mut meter = Meter::default();
    let _ = expression.visit(&mut meter);
    meter.depth()
}

fn measure(statement: &Statement, meter: &mut Meter) {
    let inner = |parsed: &Parsed, meter: &mut Meter| meter.note(parsed.depth);
    // The meter never breaks off.
    let _ = match statement {
        Statement::Query(query) => query.visit(meter),
        Statement::Change(change) => {
            // The change goes with its WITH as a query does.
            meter.begin(change.with.as_ref(), QUERY);
            let _ = change.with.visit(meter);
            meter.changes = meter.queries.len();
            let _ = change.tree.visit(meter);
            meter.end();
            ControlFlow::Continue(())
        }
        Statement::Execute { arguments, .. } => arguments.visit(meter),
        Statement::Copy(copy) => {
            if let CopySubject::Query(query) = &copy.subject {
                let _ = query.visit(meter);
            }
            copy.filter.visit(meter)
        }
        Statement::Ddl(ddl) => match ddl.as_ref() {
            Ddl::CreateTable(table) => table.tree.visit(meter),
            Ddl::CreateTableAs { query, .. } | Ddl::CreateView { query, .. } => query.visit(meter),
            Ddl::CreateIndex(index) => index.visit(meter),
            Ddl::AlterTable { operations, .. } => {
                operations.iter().try_for_each(|operation| match operation {
                    TableOperation::Tree(tree) => tree.visit(meter),
                    _ => ControlFlow::Continue(()),
                })
            }
            _ => ControlFlow::Continue(()),
        },
        Statement::Prepare { statement, .. } | Statement::Explain { statement, .. } => {
            inner(statement, meter);
            ControlFlow::Continue(())
        }
        Statement::Declare { query, .. } => {
            inner(query, meter);
            ControlFlow::Continue(())
        }
        _ => ControlFlow::Continue(()),
    };
}

/// Measures depth on a visit of a tree.
#[derive(Default)]
struct Meter {
    now: u32,
    deepest: u32,
    /// The queries around the present place.
    queries: Vec<Frame>,
    /// The queries of WITH that can be named, with their depths.
    scope: Vec<(String, u32)>,
    /// How many queries are around the tables of a row change, which are joined.
    changes: usize,
    /// Levels that those tables add.
    tables: u32,
}

/// A query that is visited.
struct Frame {
    /// The depth above it, and the deepest place found before it.
    above: u32,
    deepest: u32,
    scope: usize,
    /// The queries of its WITH that are still to be visited, the next one last.
    with: Vec<(*const ast::Query, String)>,
}

impl Meter {
    fn note(&mut self, levels: u32) {
        self.deepest = self.deepest.max(self.now.saturating_add(levels));
    }

    fn depth(&self) -> Result<u32, Error> {
        let depth = self.deepest.saturating_add(self.tables);
        if depth > LIMIT { Err(exceeded()) } else { Ok(depth) }
    }

    fn begin(&mut self, with: Option<&ast::With>, levels: u32) {
        let tables = with.into_iter().flat_map(|with| &with.cte_tables).rev();
        let with =
            tables.map(|cte| (std::ptr::from_ref(cte.query.as_ref()), fold(&cte.alias.name))).collect();
        let (above, deepest, scope) = (self.now, self.deepest, self.scope.len());
        self.queries.push(Frame { above, deepest, scope, with });
        (self.now, self.deepest) = (self.now.saturating_add(levels), 0);
        self.note(0);
    }

    /// Ends the innermost query. Its depth.
    fn end(&mut self) -> u32 {
        let frame = self.queries.pop().expect("the visit of this query began");
        self.now = frame.above;
        let own = self.deepest - frame.above;
        self.deepest = self.deepest.max(frame.deepest);
        self.scope.truncate(frame.scope);
        own
    }
}

impl ast::Visitor for Meter {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        self.begin(query.with.as_ref(), QUERY + relations(&query.body));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        let own = self.end();
        let name = match self.queries.last_mut() {
            Some(outer) => {
                let is_next = outer.with.last().is_some_and(|(next, _)| std::ptr::eq(*next, query));
                is_next.then(|| outer.with.pop()).flatten().map(|(_, name)| name)
            }
            None => None,
        };
        if let Some(name) = name {
            self.scope.push((name, own));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ast::ObjectName) -> ControlFlow<()> {
        if let [ast::ObjectNamePart::Identifier(name)] = relation.0.as_slice()
            && !self.scope.is_empty()
        {
            let name = fold(name);
            if let Some((_, depth)) = self.scope.iter().rev().find(|(known, _)| *known == name) {
                self.note(*depth);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, _: &ast::TableFactor) -> ControlFlow<()> {
        if self.changes > 0 && self.queries.len() == self.changes {
            self.tables = self.tables.saturating_add(RELATION);
        }
        self.now = self.now.saturating_add(RELATION);
        self.note(0);
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, _: &ast::TableFactor) -> ControlFlow<()> {
        self.now -= RELATION;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, _: &ast::Expr) -> ControlFlow<()> {
        self.now = self.now.saturating_add(1);
        self.note(0);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _: &ast::Expr) -> ControlFlow<()> {
        self.now -= 1;
        ControlFlow::Continue(())
    }
}

/// The levels that the set operations and joins of a query add to its parts, without queries within it.
fn relations(body: &ast::SetExpr) -> u32 {
    let joined = |tables: &[ast::TableWithJoins]| {
        let relations = tables.iter().map(|table| 1 + joins(table)).sum::<usize>();
        RELATION.saturating_mul(u32::try_from(relations.saturating_sub(1)).unwrap_or(LIMIT))
    };
    let (mut deepest, mut left) = (0, vec![(body, 0_u32)]);
    while let Some((body, above)) = left.pop() {
        match body {
            ast::SetExpr::SetOperation { op, left: first, right, .. } => {
                let weight = match op {
                    ast::SetOperator::Union => RELATION,
                    _ => INTERSECTION,
                };
                let below = above.saturating_add(weight);
                left.extend([(first.as_ref(), below), (right.as_ref(), below)]);
            }
            ast::SetExpr::Select(select) => deepest = deepest.max(above.saturating_add(joined(&select.from))),
            _ => deepest = deepest.max(above),
        }
    }
    deepest
}

/// The joins of an item of FROM, also those in parentheses.
fn joins(table: &ast::TableWithJoins) -> usize {
    let nested = |factor: &ast::TableFactor| match factor {
        ast::TableFactor::NestedJoin { table_with_joins, .. } => joins(table_with_joins),
        _ => 0,
    };
    table.joins.iter().map(|join| 1 + nested(&join.relation)).sum::<usize>() + nested(&table.relation)
}
