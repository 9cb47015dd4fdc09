//! Operands: constants, names, calls with their windows, and functions with a syntax of their own.

use super::Printer;
use crate::keyword::Keyword;
use crate::level;
use crate::tree::{
    Call, Case, CurrentValue, Expr, ExprKind, Frame, FrameBound, FrameExclusion, FrameUnit, Name, NormalForm,
    Over, Row, Special, TrimSide, WindowSpec, XmlAttribute, XmlExpr, XmlStandalone,
};

impl Printer {
    /// An expression that no operator makes.
    pub(super) fn primary(&mut self, expr: &Expr) {
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
            || (super::is_plain_name(&field.text) && Keyword::find(field.text.as_bytes()).is_none());
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

/// The word for a normal form.
pub(super) fn normal_form(form: NormalForm) -> &'static str {
    match form {
        NormalForm::Nfc => "NFC",
        NormalForm::Nfd => "NFD",
        NormalForm::Nfkc => "NFKC",
        NormalForm::Nfkd => "NFKD",
    }
}
