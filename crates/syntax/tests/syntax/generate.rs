//! Random trees: what the printer writes parses to the same tree.
//!
//! The generator keeps the invariants that `tree` states: the first operand of a chain is no chain, a list has its least
//! length, and so on. Names are keywords of all categories as well.

use crate::random::Random;
use firn_syntax::tree::*;
use firn_syntax::{Options, Span, parse, print};

const NAMES: &[&str] = &[
    "a",
    "b",
    "t",
    "A",
    "x y",
    "\"",
    "é",
    "select",
    "order",
    "left",
    "between",
    "values",
    "coalesce",
    "interval",
    "time",
    "cube",
    "rollup",
    "partition",
    "rows",
    "range",
    "groups",
    "unbounded",
    "current",
    "nulls",
    "first",
    "last",
    "next",
    "all",
    "prepare",
    "savepoint",
    "set",
    "operator",
    "at",
    "over",
    "filter",
    "within",
    "temp",
    "local",
    "recursive",
    "only",
    "path",
    "uescape",
    "double",
    "row",
    "array",
    "not",
    "default",
    "year",
    "is",
    "a$b",
    "1a",
    "n",
    "e",
    "u&",
    "transaction",
    "absolute",
    "overlaps",
    "similar",
    "escape",
    "current_date",
    "grouping",
    "xmltable",
    "of",
    "no",
    "with",
    "lateral",
];
const OPERATORS: &[&str] = &[
    "+", "-", "*", "/", "%", "^", "<", ">", "=", "<=", ">=", "<>", "||", "@", "~", "!~~", "->", "@-", "?",
    "&&&",
];

struct Generator {
    random: Random,
    depth: usize,
}

fn span() -> Span {
    Span::default()
}

impl Generator {
    fn some(&mut self) -> bool {
        self.random.once_in(2)
    }

    fn rarely(&mut self) -> bool {
        self.random.once_in(6)
    }

    fn many<T>(&mut self, least: usize, most: usize, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let len = least + self.random.below(most - least + 1);
        (0..len).map(|_| item(self)).collect()
    }

    fn option<T>(&mut self, item: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.random.once_in(3) { Some(item(self)) } else { None }
    }

    fn name(&mut self) -> Name {
        Name::new(self.random.pick(NAMES))
    }

    fn object_name(&mut self, most: usize) -> ObjectName {
        let qualifiers = if self.rarely() { self.many(1, most - 1, Self::name) } else { Vec::new() };
        ObjectName { qualifiers, name: self.name() }
    }

    fn text(&mut self) -> Box<str> {
        self.random
            .pick(&["", "a", "it's", "back\\slash", "a\nb", "é\u{1F600}", "''", "\\'", "$$", "--"])
            .into()
    }

    // Expressions.

    fn expr(&mut self) -> Expr {
        if self.depth == 0 {
            return self.leaf();
        }
        self.depth -= 1;
        let expr = match self.random.below(12) {
            0..=3 => self.chain(),
            4 => self.prefix(),
            5 => {
                let conditions = self.many(2, 3, Self::expr);
                wrap(ExprKind::And(flatten_and(conditions)))
            }
            6 => {
                let conditions = self.many(2, 3, Self::expr);
                wrap(ExprKind::Or(flatten_or(conditions)))
            }
            _ => self.primary(),
        };
        self.depth += 1;
        expr
    }

    fn leaf(&mut self) -> Expr {
        wrap(match self.random.below(14) {
            0 => ExprKind::Null,
            1 => ExprKind::Boolean(self.some()),
            2 | 3 => ExprKind::Integer(self.random.below(100) as i32),
            4 => ExprKind::Number(
                self.random.pick(&["1.5", ".5", "5.", "1e10", "99999999999", "1.5E-3"]).into(),
            ),
            5 => ExprKind::String(self.text()),
            6 => ExprKind::BitString(self.random.pick(&["", "101"]).into()),
            7 => ExprKind::HexString("1fA".into()),
            8 => ExprKind::Parameter(self.random.below(100) as u32),
            9 => ExprKind::Default,
            10 => ExprKind::AllColumns(Box::new(self.object_name(3))),
            _ => ExprKind::Column(Box::new(self.object_name(4))),
        })
    }

    fn operator(&mut self) -> Operator {
        let symbol = self.random.pick(OPERATORS);
        if !self.rarely() {
            return Operator::from_symbol(symbol);
        }
        let qualifiers = self.many(1, 2, Self::column_name);
        Operator::Other(Box::new(OtherOperator { qualifiers, symbol: symbol.into() }))
    }

    fn column_name(&mut self) -> Name {
        self.name()
    }

    fn chain(&mut self) -> Expr {
        let mut first = self.expr();
        while let ExprKind::Chain(chain) = first.kind {
            first = chain.first;
        }
        let steps = self.many(1, 4, Self::step);
        wrap(ExprKind::Chain(Box::new(Chain { first, steps })))
    }

    fn step(&mut self) -> Step {
        let is_negated = self.some();
        let kind = match self.random.below(18) {
            0..=5 => StepKind::Binary(self.operator(), self.expr()),
            6 => StepKind::Cast(Box::new(self.type_name())),
            7 => StepKind::Collate(Box::new(self.object_name(3))),
            8 => StepKind::AtTimeZone(self.expr()),
            9 => {
                let test = match self.random.below(7) {
                    0 => IsTest::Null,
                    1 => IsTest::True,
                    2 => IsTest::False,
                    3 => IsTest::Unknown,
                    4 => IsTest::Document,
                    5 => IsTest::Normalized(None),
                    _ => IsTest::Normalized(Some(NormalForm::Nfkc)),
                };
                StepKind::Is { is_negated, test }
            }
            10 => StepKind::IsDistinctFrom { is_negated, right: self.expr() },
            11 => {
                let kind = [LikeKind::Like, LikeKind::ILike, LikeKind::SimilarTo][self.random.below(3)];
                let pattern = self.expr();
                let escape = self.option(Self::expr);
                StepKind::Like(Box::new(Like { kind, is_negated, pattern, escape }))
            }
            12 => {
                let is_symmetric = self.some();
                StepKind::Between(Box::new(Between {
                    is_negated,
                    is_symmetric,
                    low: self.expr(),
                    high: self.expr(),
                }))
            }
            13 => {
                let mut items = self.many(1, 3, Self::expr);
                // A single query in parentheses is a query.
                if items.len() == 1 && matches!(items[0].kind, ExprKind::Subquery(_)) {
                    items.push(self.leaf());
                }
                StepKind::InList { is_negated, items }
            }
            14 => StepKind::InQuery { is_negated, query: self.query() },
            15 => {
                let right = match self.expr() {
                    Expr { kind: ExprKind::Subquery(query), .. } => QuantifiedRight::Query(query),
                    array => QuantifiedRight::Array(array),
                };
                let operator = self.operator();
                StepKind::Quantified(Box::new(Quantified { operator, is_all: self.some(), right }))
            }
            _ => StepKind::Access(self.accessor()),
        };
        Step { span: span(), kind }
    }

    fn accessor(&mut self) -> Accessor {
        match self.random.below(3) {
            0 => Accessor::Field(self.name()),
            1 => Accessor::Subscript(self.expr()),
            _ => Accessor::Slice(Box::new((self.option(Self::expr), self.option(Self::expr)))),
        }
    }

    fn prefix(&mut self) -> Expr {
        let mut operand = self.expr();
        while let ExprKind::Prefix(prefix) = operand.kind {
            operand = prefix.operand;
        }
        let operators = self.many(1, 3, |generator| {
            let kind =
                if generator.some() { PrefixKind::Not } else { PrefixKind::Operator(generator.operator()) };
            PrefixOperator { span: span(), kind }
        });
        wrap(ExprKind::Prefix(Box::new(Prefix { operators, operand })))
    }

    fn primary(&mut self) -> Expr {
        let kind = match self.random.below(20) {
            0 => {
                let is_explicit = self.some();
                let items = self.many(if is_explicit { 0 } else { 2 }, 3, Self::expr);
                ExprKind::Row(Box::new(Row { is_explicit, items }))
            }
            1 => ExprKind::Overlaps(Box::new([[self.expr(), self.expr()], [self.expr(), self.expr()]])),
            2 => ExprKind::Array(self.many(0, 3, Self::expr)),
            3 => ExprKind::ArrayQuery(self.query()),
            4 => ExprKind::Subquery(self.query()),
            5 => ExprKind::Exists(self.query()),
            6 => {
                let operand = self.option(Self::expr);
                let arms = self.many(1, 2, |generator| CaseArm {
                    span: span(),
                    condition: generator.expr(),
                    result: generator.expr(),
                });
                ExprKind::Case(Box::new(Case { operand, arms, otherwise: self.option(Self::expr) }))
            }
            7 => ExprKind::Coalesce(self.many(1, 3, Self::expr)),
            8 => ExprKind::Greatest(self.many(1, 3, Self::expr)),
            9 => ExprKind::NullIf(Box::new([self.expr(), self.expr()])),
            10 => ExprKind::Grouping(self.many(1, 3, Self::expr)),
            11 => ExprKind::CurrentValue(match self.random.below(4) {
                0 => CurrentValue::Date,
                1 => CurrentValue::Time(self.option(|_| 3)),
                2 => CurrentValue::LocalTimestamp(None),
                _ => CurrentValue::Schema,
            }),
            12 => ExprKind::Special(Box::new(self.special())),
            13 => ExprKind::Xml(Box::new(self.xml())),
            14 => {
                let mut type_name = self.type_name();
                (type_name.is_set, type_name.bounds) = (false, Vec::new());
                ExprKind::TypedLiteral(Box::new(TypedLiteral { type_name, value: self.text() }))
            }
            _ => ExprKind::Call(Box::new(self.call(true))),
        };
        wrap(kind)
    }

    fn call(&mut self, may_have_window: bool) -> Call {
        let name = self.object_name(3);
        let is_star = self.rarely();
        let arguments = if is_star {
            Vec::new()
        } else {
            self.many(0, 3, |generator| Argument {
                name: generator.option(Self::name),
                value: generator.expr(),
            })
        };
        let has_arguments = !arguments.is_empty();
        let is_distinct = has_arguments && self.rarely();
        let is_variadic = has_arguments && !is_distinct && self.rarely();
        let order_by =
            if has_arguments && self.rarely() { self.many(1, 2, Self::sort_item) } else { Vec::new() };
        let mut call = Call {
            name,
            arguments,
            is_star,
            is_distinct,
            is_variadic,
            order_by,
            within_group: Vec::new(),
            filter: None,
            over: None,
        };
        if may_have_window {
            if !call.is_distinct && !call.is_variadic && call.order_by.is_empty() && self.rarely() {
                call.within_group = self.many(1, 2, Self::sort_item);
            }
            call.filter = self.option(Self::expr);
            if self.rarely() {
                call.over =
                    Some(if self.some() { Over::Named(self.name()) } else { Over::Window(self.window()) });
            }
        }
        call
    }

    fn window(&mut self) -> Box<WindowSpec> {
        let bound = |generator: &mut Self| match generator.random.below(2) {
            0 => FrameBound::UnboundedPreceding,
            _ => FrameBound::Preceding(generator.expr()),
        };
        let end = |generator: &mut Self| match generator.random.below(3) {
            0 => FrameBound::CurrentRow,
            1 => FrameBound::UnboundedFollowing,
            _ => FrameBound::Following(generator.expr()),
        };
        let frame = self.option(|generator| Frame {
            span: span(),
            unit: [FrameUnit::Range, FrameUnit::Rows, FrameUnit::Groups][generator.random.below(3)],
            start: bound(generator),
            end: generator.option(end),
            exclusion: [FrameExclusion::NoOthers, FrameExclusion::Ties, FrameExclusion::CurrentRow]
                [generator.random.below(3)],
        });
        Box::new(WindowSpec {
            span: span(),
            base: self.option(Self::name),
            partition_by: self.many(0, 2, Self::expr),
            order_by: self.many(0, 2, Self::sort_item),
            frame,
        })
    }

    fn special(&mut self) -> Special {
        match self.random.below(9) {
            0 => {
                let field =
                    Name::new(self.random.pick(&["year", "epoch", "Week", "select", "", "a b", "time"]));
                Special::Extract { field, from: self.expr() }
            }
            1 => Special::Overlay {
                string: self.expr(),
                replacement: self.expr(),
                start: self.expr(),
                length: self.option(Self::expr),
            },
            2 => Special::Position { part: self.expr(), string: self.expr() },
            3 => {
                let (string, start) = (self.expr(), self.option(Self::expr));
                let length = if start.is_none() { Some(self.expr()) } else { self.option(Self::expr) };
                Special::Substring { string, start, length }
            }
            4 => Special::SubstringSimilar { string: self.expr(), pattern: self.expr(), escape: self.expr() },
            5 => {
                let side = [TrimSide::Both, TrimSide::Leading, TrimSide::Trailing][self.random.below(3)];
                Special::Trim { side, arguments: self.many(1, 2, Self::expr) }
            }
            6 => Special::Normalize { string: self.expr(), form: self.option(|_| NormalForm::Nfd) },
            7 => Special::CollationFor(self.expr()),
            _ => Special::Treat { value: self.expr(), type_name: self.type_name() },
        }
    }

    fn xml(&mut self) -> XmlExpr {
        let is_document = self.some();
        let attribute = |generator: &mut Self| XmlAttribute {
            value: generator.expr(),
            name: generator.option(Self::name),
        };
        match self.random.below(8) {
            0 => XmlExpr::Concat(self.many(1, 2, Self::expr)),
            1 => XmlExpr::Element {
                name: self.name(),
                attributes: self.many(0, 2, attribute),
                content: self.many(0, 2, Self::expr),
            },
            2 => XmlExpr::Forest(self.many(1, 2, attribute)),
            3 => XmlExpr::Parse { is_document, text: self.expr(), preserves_whitespace: self.some() },
            4 => XmlExpr::Pi { name: self.name(), content: self.option(Self::expr) },
            5 => XmlExpr::Root {
                xml: self.expr(),
                version: self.option(Self::expr),
                standalone: self.option(|_| XmlStandalone::NoValue),
            },
            6 => {
                let mut type_name = self.type_name();
                (type_name.is_set, type_name.bounds) = (false, Vec::new());
                XmlExpr::Serialize { is_document, xml: self.expr(), type_name }
            }
            _ => XmlExpr::Exists { path: self.expr(), xml: self.expr() },
        }
    }

    fn type_name(&mut self) -> TypeName {
        let precision = self.option(|generator| generator.random.below(7) as i32);
        let base = match self.random.below(10) {
            0 => BaseType::SmallInt,
            1 => BaseType::DoublePrecision,
            2 => BaseType::Numeric(self.many(0, 2, Self::leaf)),
            3 => BaseType::Bit { is_varying: self.some(), modifiers: self.many(0, 1, Self::leaf) },
            4 => BaseType::Character { is_varying: self.some(), length: precision },
            5 => BaseType::Time { with_zone: self.some(), precision },
            6 => BaseType::Timestamp { with_zone: self.some(), precision },
            7 => {
                let fields = self.option(|_| IntervalFields::DayToSecond);
                BaseType::Interval { fields, precision }
            }
            _ => BaseType::Named { name: self.object_name(3), modifiers: self.many(0, 2, Self::leaf) },
        };
        let bounds = self.many(0, 2, |generator| generator.option(|_| 3));
        TypeName { span: span(), is_set: self.rarely(), base, bounds }
    }

    fn sort_item(&mut self) -> SortItem {
        let order = match self.random.below(4) {
            0 => SortOrder::Default,
            1 => SortOrder::Ascending,
            2 => SortOrder::Descending,
            _ => SortOrder::Using(self.operator()),
        };
        let nulls = [NullsOrder::Default, NullsOrder::First, NullsOrder::Last][self.random.below(3)];
        SortItem { value: self.expr(), order, nulls }
    }

    // Queries.

    fn query(&mut self) -> Box<Query> {
        if self.depth == 0 {
            let body = QueryBody::Values(vec![vec![self.leaf()]]);
            return Box::new(plain(body));
        }
        self.depth -= 1;
        let body = match self.random.below(6) {
            0 => {
                let rows = self.many(1, 2, |generator| generator.many(1, 2, Self::expr));
                QueryBody::Values(rows)
            }
            1 => QueryBody::Table(Box::new(self.relation())),
            2 => self.set_operation(),
            _ => QueryBody::Select(self.select()),
        };
        let mut query = plain(body);
        query.with = self.option(Self::with);
        if self.rarely() {
            query.order_by = self.many(1, 2, Self::sort_item);
        }
        query.offset = self.option(Self::expr);
        query.limit = self.option(|generator| {
            let count = if generator.rarely() { None } else { Some(generator.expr()) };
            let with_ties = count.is_some() && generator.some();
            Limit { span: span(), count, with_ties }
        });
        if query.order_by.is_empty()
            && let Some(limit) = &mut query.limit
        {
            limit.with_ties = false;
        }
        if self.rarely() {
            query.locking = self.many(1, 2, |generator| Locking {
                span: span(),
                strength: [LockStrength::KeyShare, LockStrength::NoKeyUpdate, LockStrength::Update]
                    [generator.random.below(3)],
                relations: generator.many(0, 2, |generator| generator.object_name(3)),
                wait: [LockWait::Block, LockWait::Error][generator.random.below(2)],
            });
        }
        self.depth += 1;
        Box::new(query)
    }

    fn set_operation(&mut self) -> QueryBody {
        let mut first = self.set_operand();
        while let QueryBody::SetOperation(operation) = first {
            first = operation.first;
        }
        let steps = self.many(1, 3, |generator| SetStep {
            span: span(),
            operator: [SetOperator::Union, SetOperator::Intersect, SetOperator::Except]
                [generator.random.below(3)],
            is_all: generator.some(),
            right: generator.set_operand(),
        });
        QueryBody::SetOperation(Box::new(SetOperation { first, steps }))
    }

    fn set_operand(&mut self) -> QueryBody {
        let query = self.query();
        let is_plain = query.with.is_none()
            && query.order_by.is_empty()
            && query.limit.is_none()
            && query.offset.is_none()
            && query.locking.is_empty();
        if is_plain { query.body } else { QueryBody::Nested(query) }
    }

    fn with(&mut self) -> Box<With> {
        let tables = self.many(1, 2, |generator| CommonTable {
            name: generator.name(),
            columns: generator.many(0, 2, Self::name),
            is_materialized: generator.option(Self::some),
            statement: generator.preparable(),
            search: generator.option(|generator| {
                Box::new(Search {
                    span: span(),
                    is_breadth_first: generator.some(),
                    columns: generator.many(1, 2, Self::name),
                    sequence: generator.name(),
                })
            }),
            cycle: generator.option(|generator| {
                Box::new(Cycle {
                    span: span(),
                    columns: generator.many(1, 2, Self::name),
                    mark: generator.name(),
                    values: generator.option(|_| [wrap(ExprKind::Null), wrap(ExprKind::Integer(1))]),
                    path: generator.name(),
                })
            }),
        });
        Box::new(With { span: span(), is_recursive: self.some(), tables })
    }

    fn select(&mut self) -> Box<Select> {
        let distinct = self.option(|generator| {
            if generator.some() { Distinct::All } else { Distinct::On(generator.many(1, 2, Self::expr)) }
        });
        let targets = self.many(usize::from(distinct.is_some()), 3, Self::target);
        let into = if self.random.once_in(20) {
            let persistence =
                [Persistence::Permanent, Persistence::Temporary, Persistence::Unlogged][self.random.below(3)];
            Some(Box::new(Into { name: self.object_name(3), persistence }))
        } else {
            None
        };
        let group_by = if self.rarely() { self.many(1, 3, Self::group_item) } else { Vec::new() };
        Box::new(Select {
            span: span(),
            distinct,
            targets,
            into,
            from: self.many(0, 2, Self::table_ref),
            condition: self.option(Self::expr),
            is_group_distinct: !group_by.is_empty() && self.some(),
            group_by,
            having: self.option(Self::expr),
            windows: if self.rarely() {
                self.many(1, 2, |generator| WindowDefinition {
                    name: generator.name(),
                    window: generator.window(),
                })
            } else {
                Vec::new()
            },
        })
    }

    fn target(&mut self) -> Target {
        if self.rarely() {
            return Target::All(span());
        }
        Target::Value { value: self.expr(), alias: self.option(Self::name) }
    }

    fn group_item(&mut self) -> GroupItem {
        match self.random.below(6) {
            0 => GroupItem::Empty(span()),
            1 => GroupItem::Rollup(span(), self.many(1, 2, Self::expr)),
            2 => GroupItem::Cube(span(), self.many(1, 2, Self::expr)),
            3 if self.depth > 0 => {
                self.depth -= 1;
                let items = self.many(1, 2, Self::group_item);
                self.depth += 1;
                GroupItem::Sets(span(), items)
            }
            _ => GroupItem::Expr(self.expr()),
        }
    }

    fn table_ref(&mut self) -> FromItem {
        let first = self.table();
        if self.depth == 0 {
            return FromItem { first, joins: Vec::new() };
        }
        self.depth -= 1;
        let joins = self.many(0, 2, |generator| {
            let mut kind =
                [JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full][generator.random.below(4)];
            let constraint = match generator.random.below(4) {
                0 => {
                    kind = JoinKind::Inner;
                    JoinConstraint::None
                }
                1 => JoinConstraint::Natural,
                2 => JoinConstraint::On(generator.expr()),
                _ => JoinConstraint::Using {
                    columns: generator.many(1, 2, Self::name),
                    alias: generator.option(Self::name),
                },
            };
            Join { span: span(), kind, right: generator.table_ref(), constraint }
        });
        self.depth += 1;
        FromItem { first, joins }
    }

    fn alias(&mut self) -> Alias {
        Alias { name: self.name(), columns: self.many(0, 2, Self::name) }
    }

    fn table(&mut self) -> Table {
        let mut alias = self.option(Self::alias);
        let kind = match self.random.below(8) {
            0 => TableKind::File(self.text()),
            1 if self.depth > 0 => {
                alias = Some(self.alias());
                TableKind::Query { is_lateral: self.some(), query: self.query() }
            }
            2 if self.depth > 0 => {
                self.depth -= 1;
                let mut item = self.table_ref();
                if item.joins.is_empty() {
                    let right = FromItem { first: self.table(), joins: Vec::new() };
                    let constraint = JoinConstraint::Natural;
                    item.joins.push(Join { span: span(), kind: JoinKind::Full, right, constraint });
                }
                self.depth += 1;
                alias = Some(self.alias());
                TableKind::Join(Box::new(item))
            }
            3 => {
                let columns = if alias.as_ref().is_none_or(|alias| alias.columns.is_empty()) && self.rarely()
                {
                    self.many(1, 2, Self::column_definition)
                } else {
                    Vec::new()
                };
                let call = self.table_call();
                let functions = vec![TableFunctionItem { call, columns: Vec::new() }];
                TableKind::Function(Box::new(TableFunction {
                    is_lateral: self.some(),
                    is_rows_from: false,
                    functions,
                    with_ordinality: self.some(),
                    columns,
                }))
            }
            4 => {
                let functions = self.many(1, 2, |generator| TableFunctionItem {
                    call: generator.table_call(),
                    columns: generator.many(0, 1, Self::column_definition),
                });
                TableKind::Function(Box::new(TableFunction {
                    is_lateral: self.some(),
                    is_rows_from: true,
                    functions,
                    with_ordinality: self.some(),
                    columns: Vec::new(),
                }))
            }
            5 if self.rarely() => TableKind::Xml(Box::new(XmlTable {
                is_lateral: self.some(),
                namespaces: self.many(0, 2, |generator| (generator.expr(), generator.option(Self::name))),
                path: self.expr(),
                xml: self.expr(),
                columns: self.many(1, 2, |generator| XmlColumn {
                    name: generator.name(),
                    type_name: Some(generator.type_name()),
                    path: generator.option(Self::expr),
                    default: generator.option(Self::expr),
                    is_nullable: generator.option(Self::some),
                }),
            })),
            _ => {
                let sample = self.option(|generator| {
                    Box::new(Sample {
                        span: span(),
                        method: generator.object_name(2),
                        arguments: generator.many(1, 2, Self::expr),
                        seed: generator.option(Self::expr),
                    })
                });
                TableKind::Relation { relation: self.relation(), sample }
            }
        };
        Table { span: span(), kind, alias }
    }

    fn table_call(&mut self) -> Expr {
        match self.random.below(4) {
            0 => wrap(ExprKind::Coalesce(self.many(1, 2, Self::expr))),
            1 => wrap(ExprKind::Special(Box::new(self.special()))),
            _ => wrap(ExprKind::Call(Box::new(self.call(false)))),
        }
    }

    fn column_definition(&mut self) -> ColumnDefinition {
        let collation = self.option(|generator| generator.object_name(2));
        ColumnDefinition { name: self.name(), type_name: self.type_name(), collation }
    }

    fn relation(&mut self) -> Relation {
        Relation { name: self.object_name(3), is_only: self.rarely() }
    }

    // Changes.

    fn target_column(&mut self) -> TargetColumn {
        TargetColumn {
            name: self.name(),
            path: if self.rarely() { self.many(1, 2, Self::accessor) } else { Vec::new() },
        }
    }

    fn assignment(&mut self) -> Assignment {
        if self.some() {
            return Assignment::Single { column: self.target_column(), value: self.expr() };
        }
        Assignment::Multiple { columns: self.many(1, 2, Self::target_column), value: self.expr() }
    }

    fn overriding(&mut self) -> Option<Overriding> {
        self.option(|generator| if generator.some() { Overriding::User } else { Overriding::System })
    }

    fn preparable(&mut self) -> Statement {
        if self.depth == 0 || self.some() {
            return Statement::Query(self.query());
        }
        self.depth -= 1;
        let with = self.option(Self::with);
        let alias = self.option(Self::name);
        let returning = self.many(0, 2, Self::target);
        let statement = match self.random.below(4) {
            0 => self.insert(with, alias, returning),
            1 => Statement::Update(Box::new(Update {
                with,
                table: self.relation(),
                alias,
                assignments: self.many(1, 2, Self::assignment),
                from: self.many(0, 2, Self::table_ref),
                condition: self.change_condition(),
                returning,
            })),
            2 => Statement::Delete(Box::new(Delete {
                with,
                table: self.relation(),
                alias,
                using: self.many(0, 2, Self::table_ref),
                condition: self.change_condition(),
                returning,
            })),
            _ => Statement::Merge(Box::new(Merge {
                with,
                table: self.relation(),
                alias,
                source: self.table_ref(),
                condition: self.expr(),
                arms: self.many(1, 3, Self::merge_arm),
                returning,
            })),
        };
        self.depth += 1;
        statement
    }

    fn insert(&mut self, with: Option<Box<With>>, alias: Option<Name>, returning: Vec<Target>) -> Statement {
        let source = if self.rarely() { None } else { Some(self.query()) };
        let has_rows = source.is_some();
        let on_conflict = self.option(|generator| {
            let target = generator.option(|generator| match generator.random.below(2) {
                0 => ConflictTarget::Constraint(generator.name()),
                _ => ConflictTarget::Inference {
                    span: span(),
                    elements: generator.many(1, 2, Self::index_element),
                    condition: generator.option(Self::expr),
                },
            });
            let update = generator.option(|generator| ConflictUpdate {
                assignments: generator.many(1, 2, Self::assignment),
                condition: generator.option(Self::expr),
            });
            Box::new(OnConflict { span: span(), target, update })
        });
        Statement::Insert(Box::new(Insert {
            with,
            table: self.object_name(3),
            alias,
            columns: if has_rows { self.many(0, 2, Self::target_column) } else { Vec::new() },
            overriding: if has_rows { self.overriding() } else { None },
            source,
            on_conflict,
            returning,
        }))
    }

    fn index_element(&mut self) -> IndexElement {
        let class = self.option(|generator| generator.object_name(2));
        let class_parameters = if class.is_some() {
            self.many(0, 2, |generator| RelOption {
                namespace: generator.option(Self::name),
                name: generator.name(),
                value: generator.option(|generator| OptionValue::String(generator.text())),
            })
        } else {
            Vec::new()
        };
        IndexElement {
            span: span(),
            value: self.expr(),
            collation: self.option(|generator| generator.object_name(2)),
            class,
            class_parameters,
            order: [SortOrder::Default, SortOrder::Descending][self.random.below(2)].clone(),
            nulls: [NullsOrder::Default, NullsOrder::Last][self.random.below(2)],
        }
    }

    fn change_condition(&mut self) -> Option<ChangeCondition> {
        self.option(|generator| match generator.random.below(4) {
            0 => ChangeCondition::CurrentOf(generator.name()),
            _ => ChangeCondition::Expr(generator.expr()),
        })
    }

    fn merge_arm(&mut self) -> MergeArm {
        let is_matched = self.some();
        let action = match (self.random.below(3), is_matched) {
            (0, _) => MergeAction::Nothing,
            (1, true) => MergeAction::Delete,
            (_, true) => MergeAction::Update(self.many(1, 2, Self::assignment)),
            (1, false) => MergeAction::Insert { columns: Vec::new(), overriding: None, values: None },
            (_, false) => MergeAction::Insert {
                columns: self.many(0, 2, Self::target_column),
                overriding: self.overriding(),
                values: Some(self.many(1, 2, Self::expr)),
            },
        };
        MergeArm { span: span(), is_matched, condition: self.option(Self::expr), action }
    }

    fn statement(&mut self) -> Statement {
        match self.random.below(12) {
            0 => Statement::Explain(Box::new(Explain {
                options: self.many(0, 2, |generator| UtilityOption {
                    name: Name::new(generator.random.pick(&["analyze", "verbose", "format", "A b"])),
                    value: generator.option(|generator| match generator.random.below(2) {
                        0 => UtilityValue::Number("-1.5".into()),
                        _ => UtilityValue::Word(generator.random.pick(&["on", "true", "json", "X y"]).into()),
                    }),
                }),
                statement: self.preparable(),
            })),
            1 => Statement::Prepare(Box::new(Prepare {
                name: self.name(),
                types: self.many(0, 2, Self::type_name),
                statement: self.preparable(),
            })),
            2 => Statement::DeclareCursor(Box::new(DeclareCursor {
                name: self.name(),
                is_binary: self.some(),
                scroll: self.some(),
                no_scroll: self.some(),
                is_insensitive: self.some(),
                is_asensitive: self.some(),
                with_hold: self.some(),
                query: self.query(),
            })),
            3 => Statement::Execute(Box::new(Execute {
                name: self.name(),
                arguments: self.many(0, 2, Self::expr),
            })),
            4 => Statement::Fetch(Fetch {
                is_move: self.some(),
                direction: [
                    FetchDirection::Backward(-3),
                    FetchDirection::ForwardAll,
                    FetchDirection::Absolute(7),
                ][self.random.below(3)],
                cursor: self.name(),
            }),
            5 => Statement::Transaction(match self.random.below(4) {
                0 => Transaction::Savepoint(self.name()),
                1 => Transaction::Release(self.name()),
                2 => Transaction::RollbackTo(self.name()),
                _ => Transaction::CommitPrepared(self.text()),
            }),
            6 => Statement::Deallocate(Deallocate { name: self.option(Self::name) }),
            7 => Statement::CloseCursor(CloseCursor { name: self.option(Self::name) }),
            _ => self.preparable(),
        }
    }
}

fn wrap(kind: ExprKind) -> Expr {
    Expr { kind, span: span() }
}

fn plain(body: QueryBody) -> Query {
    Query {
        span: span(),
        with: None,
        body,
        order_by: Vec::new(),
        limit: None,
        offset: None,
        locking: Vec::new(),
    }
}

/// AND is one list as far as it stands on the left.
fn flatten_and(mut conditions: Vec<Expr>) -> Vec<Expr> {
    if let ExprKind::And(_) = conditions[0].kind {
        let ExprKind::And(mut first) = conditions.remove(0).kind else { unreachable!() };
        first.append(&mut conditions);
        return first;
    }
    conditions
}

/// So is OR.
fn flatten_or(mut conditions: Vec<Expr>) -> Vec<Expr> {
    if let ExprKind::Or(_) = conditions[0].kind {
        let ExprKind::Or(mut first) = conditions.remove(0).kind else { unreachable!() };
        first.append(&mut conditions);
        return first;
    }
    conditions
}

#[test]
fn what_is_printed_parses_to_the_same_tree() {
    let seed: u64 = std::env::var("FIRN_SEED").ok().map_or(1, |seed| seed.parse().expect("a number"));
    let rounds: u64 =
        std::env::var("FIRN_ROUNDS").ok().map_or(4000, |rounds| rounds.parse().expect("a number"));
    println!("FIRN_SEED={seed}");
    // Of several faults the shortest text is reported.
    let mut shortest: Option<String> = None;
    for round in 0..rounds {
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(round);
        let mut generator = Generator { random: Random::new(seed), depth: 1 + round as usize % 4 };
        if let Err(fault) = check(&generator.statement())
            && shortest.as_ref().is_none_or(|known| fault.len() < known.len())
        {
            shortest = Some(fault);
        }
    }
    if let Some(fault) = shortest {
        panic!("{fault}");
    }
}

fn check(statement: &Statement) -> Result<(), String> {
    let printed = print::statement(statement);
    let parsed = match parse(&printed, Options::default()) {
        Ok(parsed) => parsed,
        Err(error) => return Err(format!("{error:?} at {:?}\n{printed}", error.position())),
    };
    if parsed.len() != 1 || parsed[0].statement != *statement {
        return Err(format!("{printed}\nwas    {statement:?}\nparsed {parsed:?}"));
    }
    if print::statement(&parsed[0].statement) != printed {
        return Err(format!("{printed}\nprints differently the second time"));
    }
    Ok(())
}
