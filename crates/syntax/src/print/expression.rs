//! Expressions, with the parentheses that precedence asks for.
//!
//! Two numbers decide about parentheses. `floor`: the operators of an operand must bind more tightly than this, or it would not
//! be one operand. `follow`: how tightly the operator behind an operand binds, since an operand that ends in a loose
//! prefix operator (`1 + NOT a`) would take it.

use super::Printer;
use crate::level::{self, Level, does_not_associate};
use crate::tree::{
    Accessor, Call, Case, Chain, CurrentValue, Expr, ExprKind, Frame, FrameBound, FrameExclusion, FrameUnit,
    IsTest, LikeKind, Name, NormalForm, Operator, Over, Prefix, PrefixKind, QuantifiedRight, Row, Special,
    Step, StepKind, TrimSide, WindowSpec, XmlAttribute, XmlExpr, XmlStandalone,
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
        if is_restricted(expr) { self.expr(expr) } else { self.in_parentheses(expr) }
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

    fn expr_above(&mut self, expr: &Expr, floor: Level, follow: Level) {
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

    // Operands.

    fn primary(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Null => self.put("NULL"),
            ExprKind::Boolean(true) => self.put("TRUE"),
            ExprKind::Boolean(false) => self.put("FALSE"),
            ExprKind::Integer(value) => self.integer(*value),
            ExprKind::Number(digits) => self.put(digits),
            ExprKind::String(value) => self.string(value),
            ExprKind::BitString(digits) => self.digits("B", digits),
            ExprKind::HexString(digits) => self.digits("X", digits),
            ExprKind::TypedLiteral(literal) => self.typed_literal(literal),
            ExprKind::Parameter(number) => {
                self.put("$");
                self.put(&number.to_string());
            }
            ExprKind::Default => self.put("DEFAULT"),
            ExprKind::Column(name) => self.object_name(name),
            ExprKind::AllColumns(name) => {
                self.object_name(name);
                self.put(".*");
            }
            ExprKind::Row(row) => self.row(row),
            ExprKind::Overlaps(rows) => {
                self.parenthesised(&rows[0], Self::expr);
                self.put(" OVERLAPS ");
                self.parenthesised(&rows[1], Self::expr);
            }
            ExprKind::Array(items) => {
                self.put("ARRAY[");
                self.exprs(items);
                self.put("]");
            }
            ExprKind::ArrayQuery(query) => {
                self.put("ARRAY");
                self.query_in_parentheses(query);
            }
            ExprKind::Subquery(query) => self.query_in_parentheses(query),
            ExprKind::Exists(query) => {
                self.put("EXISTS ");
                self.query_in_parentheses(query);
            }
            ExprKind::Case(case) => self.case(case),
            ExprKind::Call(call) => self.call(call),
            ExprKind::Coalesce(items) => self.function("COALESCE", items),
            ExprKind::Greatest(items) => self.function("GREATEST", items),
            ExprKind::Least(items) => self.function("LEAST", items),
            ExprKind::NullIf(items) => self.function("NULLIF", &items[..]),
            ExprKind::Grouping(items) => self.function("GROUPING", items),
            ExprKind::CurrentValue(value) => self.current_value(*value),
            ExprKind::Special(special) => self.special(special),
            ExprKind::Xml(xml) => self.xml(xml),
            ExprKind::Prefix(_) | ExprKind::Chain(_) | ExprKind::And(_) | ExprKind::Or(_) => {
                unreachable!("these have operators")
            }
        }
    }

    fn digits(&mut self, letter: &str, digits: &str) {
        self.put(letter);
        self.put("'");
        self.put(digits);
        self.put("'");
    }

    fn function(&mut self, name: &str, arguments: &[Expr]) {
        self.put(name);
        self.parenthesised(arguments, Self::expr);
    }

    fn row(&mut self, row: &Row) {
        if row.is_explicit {
            self.put("ROW");
        }
        self.parenthesised(&row.items, Self::expr);
    }

    fn case(&mut self, case: &Case) {
        self.put("CASE");
        if let Some(operand) = &case.operand {
            self.put(" ");
            self.expr(operand);
        }
        for arm in &case.arms {
            self.put(" WHEN ");
            self.expr(&arm.condition);
            self.put(" THEN ");
            self.expr(&arm.result);
        }
        if let Some(otherwise) = &case.otherwise {
            self.put(" ELSE ");
            self.expr(otherwise);
        }
        self.put(" END");
    }

    fn call(&mut self, call: &Call) {
        self.object_name(&call.name);
        self.put("(");
        if call.is_star {
            self.put("*");
        }
        if call.is_distinct {
            self.put("DISTINCT ");
        }
        for (index, argument) in call.arguments.iter().enumerate() {
            if index > 0 {
                self.put(", ");
            }
            if call.is_variadic && index + 1 == call.arguments.len() {
                self.put("VARIADIC ");
            }
            if let Some(name) = &argument.name {
                self.name(name);
                self.put(" => ");
            }
            self.expr(&argument.value);
        }
        self.order_by(&call.order_by);
        self.put(")");
        if !call.within_group.is_empty() {
            self.put(" WITHIN GROUP (ORDER BY ");
            self.list(&call.within_group, Self::sort_item);
            self.put(")");
        }
        if let Some(filter) = &call.filter {
            self.put(" FILTER (WHERE ");
            self.expr(filter);
            self.put(")");
        }
        match &call.over {
            None => {}
            Some(Over::Named(name)) => {
                self.put(" OVER ");
                self.name(name);
            }
            Some(Over::Window(window)) => {
                self.put(" OVER ");
                self.window_spec(window);
            }
        }
    }

    /// `(…)` of OVER and WINDOW.
    pub(super) fn window_spec(&mut self, window: &WindowSpec) {
        self.put("(");
        let start = self.text.len();
        if let Some(base) = &window.base {
            self.name(base);
        }
        if !window.partition_by.is_empty() {
            self.put(if self.text.len() > start { " PARTITION BY " } else { "PARTITION BY " });
            self.exprs(&window.partition_by);
        }
        if !window.order_by.is_empty() {
            self.put(if self.text.len() > start { " ORDER BY " } else { "ORDER BY " });
            self.list(&window.order_by, Self::sort_item);
        }
        if let Some(frame) = &window.frame {
            if self.text.len() > start {
                self.put(" ");
            }
            self.frame(frame);
        }
        self.put(")");
    }

    fn frame(&mut self, frame: &Frame) {
        self.put(match frame.unit {
            FrameUnit::Range => "RANGE ",
            FrameUnit::Rows => "ROWS ",
            FrameUnit::Groups => "GROUPS ",
        });
        if let Some(end) = &frame.end {
            self.put("BETWEEN ");
            self.frame_bound(&frame.start);
            self.put(" AND ");
            self.frame_bound(end);
        } else {
            self.frame_bound(&frame.start);
        }
        self.put(match frame.exclusion {
            FrameExclusion::NoOthers => "",
            FrameExclusion::CurrentRow => " EXCLUDE CURRENT ROW",
            FrameExclusion::Group => " EXCLUDE GROUP",
            FrameExclusion::Ties => " EXCLUDE TIES",
        });
    }

    fn frame_bound(&mut self, bound: &FrameBound) {
        match bound {
            FrameBound::UnboundedPreceding => self.put("UNBOUNDED PRECEDING"),
            FrameBound::UnboundedFollowing => self.put("UNBOUNDED FOLLOWING"),
            FrameBound::CurrentRow => self.put("CURRENT ROW"),
            FrameBound::Preceding(offset) => {
                self.expr(offset);
                self.put(" PRECEDING");
            }
            FrameBound::Following(offset) => {
                self.expr(offset);
                self.put(" FOLLOWING");
            }
        }
    }

    fn current_value(&mut self, value: CurrentValue) {
        let (word, precision) = match value {
            CurrentValue::Date => ("CURRENT_DATE", None),
            CurrentValue::Time(precision) => ("CURRENT_TIME", precision),
            CurrentValue::Timestamp(precision) => ("CURRENT_TIMESTAMP", precision),
            CurrentValue::LocalTime(precision) => ("LOCALTIME", precision),
            CurrentValue::LocalTimestamp(precision) => ("LOCALTIMESTAMP", precision),
            CurrentValue::Role => ("CURRENT_ROLE", None),
            CurrentValue::CurrentUser => ("CURRENT_USER", None),
            CurrentValue::SessionUser => ("SESSION_USER", None),
            CurrentValue::User => ("USER", None),
            CurrentValue::Catalog => ("CURRENT_CATALOG", None),
            CurrentValue::Schema => ("CURRENT_SCHEMA", None),
        };
        self.put(word);
        self.precision(precision);
    }

    fn special(&mut self, special: &Special) {
        match special {
            Special::Extract { field, from } => {
                self.put("EXTRACT(");
                self.extract_field(field);
                self.put(" FROM ");
                self.expr(from);
            }
            Special::Overlay { string, replacement, start, length } => {
                self.put("OVERLAY(");
                self.expr(string);
                self.put(" PLACING ");
                self.expr(replacement);
                self.put(" FROM ");
                self.expr(start);
                self.clause(" FOR ", length.as_ref());
            }
            Special::Position { part, string } => {
                self.put("POSITION(");
                self.restricted_expr(part);
                self.put(" IN ");
                self.restricted_expr(string);
            }
            Special::Substring { string, start, length } => {
                self.put("SUBSTRING(");
                self.expr(string);
                self.clause(" FROM ", start.as_ref());
                self.clause(" FOR ", length.as_ref());
            }
            Special::SubstringSimilar { string, pattern, escape } => {
                self.put("SUBSTRING(");
                // SIMILAR would belong to a looser operator before it, which then asks for TO.
                self.expr_above(string, level::MATCH, level::MATCH);
                self.put(" SIMILAR ");
                // ESCAPE would belong to a LIKE that ends the pattern.
                self.expr_above(pattern, level::MATCH, level::OPERATOR);
                self.put(" ESCAPE ");
                self.expr(escape);
            }
            Special::Trim { side, arguments } => {
                self.put(match side {
                    TrimSide::Both => "TRIM(BOTH FROM ",
                    TrimSide::Leading => "TRIM(LEADING FROM ",
                    TrimSide::Trailing => "TRIM(TRAILING FROM ",
                });
                self.exprs(arguments);
            }
            Special::Normalize { string, form } => {
                self.put("NORMALIZE(");
                self.expr(string);
                if let Some(form) = form {
                    self.put(", ");
                    self.put(normal_form(*form));
                }
            }
            Special::CollationFor(value) => {
                self.put("COLLATION FOR (");
                self.expr(value);
            }
            Special::Treat { value, type_name } => {
                self.put("TREAT(");
                self.expr(value);
                self.put(" AS ");
                self.type_name(type_name);
            }
        }
        self.put(")");
    }

    /// A word where it may stand, else a string.
    fn extract_field(&mut self, field: &Name) {
        let is_word = matches!(&*field.text, "year" | "month" | "day" | "hour" | "minute" | "second")
            || (super::is_plain_name(&field.text)
                && crate::keyword::Keyword::find(field.text.as_bytes()).is_none());
        if is_word { self.put(&field.text) } else { self.string(&field.text) }
    }

    /// A word and an expression, or nothing.
    pub(super) fn clause(&mut self, word: &str, expr: Option<&Expr>) {
        if let Some(expr) = expr {
            self.put(word);
            self.expr(expr);
        }
    }

    fn xml(&mut self, xml: &XmlExpr) {
        match xml {
            XmlExpr::Concat(items) => {
                self.put("XMLCONCAT(");
                self.exprs(items);
            }
            XmlExpr::Element { name, attributes, content } => {
                self.put("XMLELEMENT(NAME ");
                self.name(name);
                if !attributes.is_empty() {
                    self.put(", XMLATTRIBUTES");
                    self.parenthesised(attributes, Self::xml_attribute);
                }
                if !content.is_empty() {
                    self.put(", ");
                    self.exprs(content);
                }
            }
            XmlExpr::Forest(items) => {
                self.put("XMLFOREST(");
                self.list(items, Self::xml_attribute);
            }
            XmlExpr::Parse { is_document, text, preserves_whitespace } => {
                self.put("XMLPARSE(");
                self.document_or_content(*is_document);
                self.expr(text);
                if *preserves_whitespace {
                    self.put(" PRESERVE WHITESPACE");
                }
            }
            XmlExpr::Pi { name, content } => {
                self.put("XMLPI(NAME ");
                self.name(name);
                self.clause(", ", content.as_ref());
            }
            XmlExpr::Root { xml, version, standalone } => {
                self.put("XMLROOT(");
                self.expr(xml);
                match version {
                    None => self.put(", VERSION NO VALUE"),
                    version => self.clause(", VERSION ", version.as_ref()),
                }
                self.put(match standalone {
                    None => "",
                    Some(XmlStandalone::Yes) => ", STANDALONE YES",
                    Some(XmlStandalone::No) => ", STANDALONE NO",
                    Some(XmlStandalone::NoValue) => ", STANDALONE NO VALUE",
                });
            }
            XmlExpr::Serialize { is_document, xml, type_name } => {
                self.put("XMLSERIALIZE(");
                self.document_or_content(*is_document);
                self.expr(xml);
                self.put(" AS ");
                self.type_name(type_name);
            }
            XmlExpr::Exists { path, xml } => {
                self.put("XMLEXISTS(");
                self.operand(path);
                self.put(" PASSING ");
                self.operand(xml);
            }
        }
        self.put(")");
    }

    fn document_or_content(&mut self, is_document: bool) {
        self.put(if is_document { "DOCUMENT " } else { "CONTENT " });
    }

    fn xml_attribute(&mut self, attribute: &XmlAttribute) {
        self.expr(&attribute.value);
        self.alias(attribute.name.as_ref());
    }
}

fn normal_form(form: NormalForm) -> &'static str {
    match form {
        NormalForm::Nfc => "NFC",
        NormalForm::Nfd => "NFD",
        NormalForm::Nfkc => "NFKC",
        NormalForm::Nfkd => "NFKD",
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

/// Whether an expression, as it is printed, has no operators of words outside parentheses.
fn is_restricted(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Default | ExprKind::Overlaps(_) | ExprKind::And(_) | ExprKind::Or(_) => false,
        ExprKind::Prefix(prefix) => {
            !prefix.operators.iter().any(|operator| operator.kind == PrefixKind::Not)
                && is_restricted(&prefix.operand)
        }
        ExprKind::Chain(chain) => {
            is_restricted(&chain.first)
                && chain.steps.iter().all(|step| match &step.kind {
                    StepKind::Binary(_, right) | StepKind::IsDistinctFrom { right, .. } => {
                        is_restricted(right)
                    }
                    StepKind::Cast(_) | StepKind::Access(_) => true,
                    StepKind::Is { test, .. } => *test == IsTest::Document,
                    _ => false,
                })
        }
        _ => true,
    }
}
