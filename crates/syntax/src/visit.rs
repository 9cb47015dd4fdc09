//! Walks the trees of queries and expressions, and changes them in place.
//!
//! A [`Visitor`] is called with a node before what the node is made of, so what it puts into the place of a node is walked
//! as well. Statements of WITH that change rows are reported and not walked.

use crate::tree::{
    Accessor, Call, Chain, CommonTable, Expr, ExprKind, Frame, FrameBound, FromItem, GroupItem, Join,
    JoinConstraint, Over, QuantifiedRight, Query, QueryBody, Relation, Select, SortItem, Special, Statement,
    StepKind, Table, TableFunction, TableKind, Target, WindowSpec, XmlExpr, XmlTable,
};

/// What is called with the nodes of a tree.
pub trait Visitor {
    /// An expression.
    fn expr(&mut self, _: &mut Expr) {}

    /// The body of a query, or an operand of a set operation.
    fn body(&mut self, _: &mut QueryBody) {}

    /// A select list.
    fn targets(&mut self, _: &mut Vec<Target>) {}

    /// An item of FROM.
    fn table(&mut self, _: &mut Table) {}

    /// The name of a relation.
    fn relation(&mut self, _: &mut Relation) {}

    /// A join.
    fn join(&mut self, _: &mut Join) {}

    /// A statement of WITH that is no query.
    fn change(&mut self, _: &Statement) {}
}

/// Walks an expression.
pub fn expression(visitor: &mut dyn Visitor, expr: &mut Expr) {
    Walk(visitor).expr(expr);
}

/// Walks a query.
pub fn query(visitor: &mut dyn Visitor, query: &mut Query) {
    Walk(visitor).query(query);
}

struct Walk<'v>(&'v mut dyn Visitor);

impl Walk<'_> {
    fn exprs<'e>(&mut self, list: impl IntoIterator<Item = &'e mut Expr>) {
        list.into_iter().for_each(|expr| self.expr(expr));
    }

    fn expr(&mut self, expr: &mut Expr) {
        self.0.expr(expr);
        match &mut expr.kind {
            ExprKind::Null
            | ExprKind::Boolean(_)
            | ExprKind::Integer(_)
            | ExprKind::Number(_)
            | ExprKind::String(_)
            | ExprKind::BitString(_)
            | ExprKind::HexString(_)
            | ExprKind::TypedLiteral(_)
            | ExprKind::Parameter(_)
            | ExprKind::Default
            | ExprKind::Column(_)
            | ExprKind::AllColumns(_)
            | ExprKind::CurrentValue(_) => {}
            ExprKind::Prefix(prefix) => self.expr(&mut prefix.operand),
            ExprKind::Chain(chain) => self.chain(chain),
            ExprKind::And(list)
            | ExprKind::Or(list)
            | ExprKind::Array(list)
            | ExprKind::Coalesce(list)
            | ExprKind::Greatest(list)
            | ExprKind::Least(list)
            | ExprKind::Grouping(list) => self.exprs(list),
            ExprKind::Row(row) => self.exprs(&mut row.items),
            ExprKind::Overlaps(sides) => self.exprs(sides.iter_mut().flatten()),
            ExprKind::ArrayQuery(query) | ExprKind::Subquery(query) | ExprKind::Exists(query) => {
                self.query(query);
            }
            ExprKind::Case(case) => {
                self.exprs(&mut case.operand);
                for arm in &mut case.arms {
                    self.expr(&mut arm.condition);
                    self.expr(&mut arm.result);
                }
                self.exprs(&mut case.otherwise);
            }
            ExprKind::Call(call) => self.call(call),
            ExprKind::NullIf(sides) => self.exprs(sides.iter_mut()),
            ExprKind::Special(special) => self.special(special),
            ExprKind::Xml(xml) => self.xml(xml),
        }
    }

    fn chain(&mut self, chain: &mut Chain) {
        self.expr(&mut chain.first);
        for step in &mut chain.steps {
            match &mut step.kind {
                StepKind::Binary(_, right)
                | StepKind::AtTimeZone(right)
                | StepKind::IsDistinctFrom { right, .. } => self.expr(right),
                StepKind::Cast(_) | StepKind::Collate(_) | StepKind::Is { .. } => {}
                StepKind::Like(like) => {
                    self.expr(&mut like.pattern);
                    self.exprs(&mut like.escape);
                }
                StepKind::Between(between) => self.exprs([&mut between.low, &mut between.high]),
                StepKind::InList { items, .. } => self.exprs(items),
                StepKind::InQuery { query, .. } => self.query(query),
                StepKind::Quantified(quantified) => match &mut quantified.right {
                    QuantifiedRight::Query(query) => self.query(query),
                    QuantifiedRight::Array(array) => self.expr(array),
                },
                StepKind::Access(accessor) => match accessor {
                    Accessor::Field(_) | Accessor::AllFields => {}
                    Accessor::Subscript(place) => self.expr(place),
                    Accessor::Slice(bounds) => {
                        self.exprs(&mut bounds.0);
                        self.exprs(&mut bounds.1);
                    }
                },
            }
        }
    }

    fn call(&mut self, call: &mut Call) {
        self.exprs(call.arguments.iter_mut().map(|argument| &mut argument.value));
        self.order(&mut call.order_by);
        self.order(&mut call.within_group);
        self.exprs(&mut call.filter);
        if let Some(Over::Window(window)) = &mut call.over {
            self.window(window);
        }
    }

    fn special(&mut self, special: &mut Special) {
        match special {
            Special::Extract { from, .. } => self.expr(from),
            Special::Overlay { string, replacement, start, length } => {
                self.exprs([string, replacement, start]);
                self.exprs(length);
            }
            Special::Position { part, string } => self.exprs([part, string]),
            Special::Substring { string, start, length } => {
                self.expr(string);
                self.exprs(start);
                self.exprs(length);
            }
            Special::SubstringSimilar { string, pattern, escape } => self.exprs([string, pattern, escape]),
            Special::Trim { arguments, .. } => self.exprs(arguments),
            Special::Normalize { string, .. } => self.expr(string),
            Special::CollationFor(value) | Special::Treat { value, .. } => self.expr(value),
        }
    }

    fn xml(&mut self, xml: &mut XmlExpr) {
        match xml {
            XmlExpr::Concat(list) => self.exprs(list),
            XmlExpr::Element { attributes, content, .. } => {
                self.exprs(attributes.iter_mut().map(|attribute| &mut attribute.value));
                self.exprs(content);
            }
            XmlExpr::Forest(attributes) => {
                self.exprs(attributes.iter_mut().map(|attribute| &mut attribute.value));
            }
            XmlExpr::Parse { text, .. } => self.expr(text),
            XmlExpr::Pi { content, .. } => self.exprs(content),
            XmlExpr::Root { xml, version, .. } => {
                self.expr(xml);
                self.exprs(version);
            }
            XmlExpr::Serialize { xml, .. } => self.expr(xml),
            XmlExpr::Exists { path, xml } => self.exprs([path, xml]),
        }
    }

    fn order(&mut self, items: &mut [SortItem]) {
        self.exprs(items.iter_mut().map(|item| &mut item.value));
    }

    fn window(&mut self, window: &mut WindowSpec) {
        self.exprs(&mut window.partition_by);
        self.order(&mut window.order_by);
        let Some(Frame { start, end, .. }) = &mut window.frame else { return };
        for bound in std::iter::once(start).chain(end) {
            match bound {
                FrameBound::Preceding(offset) | FrameBound::Following(offset) => self.expr(offset),
                FrameBound::UnboundedPreceding | FrameBound::CurrentRow | FrameBound::UnboundedFollowing => {}
            }
        }
    }

    fn query(&mut self, query: &mut Query) {
        for table in query.with.iter_mut().flat_map(|with| &mut with.tables) {
            self.common_table(table);
        }
        self.body(&mut query.body);
        self.order(&mut query.order_by);
        self.exprs(query.limit.iter_mut().flat_map(|limit| &mut limit.count));
        self.exprs(&mut query.offset);
    }

    fn common_table(&mut self, table: &mut CommonTable) {
        match &mut table.statement {
            Statement::Query(query) => self.query(query),
            change => self.0.change(change),
        }
        self.exprs(table.cycle.iter_mut().flat_map(|cycle| &mut cycle.values).flatten());
    }

    fn body(&mut self, body: &mut QueryBody) {
        self.0.body(body);
        match body {
            QueryBody::Select(select) => self.select(select),
            QueryBody::Values(rows) => self.exprs(rows.iter_mut().flatten()),
            QueryBody::Table(relation) => self.0.relation(relation),
            QueryBody::SetOperation(operation) => {
                self.body(&mut operation.first);
                operation.steps.iter_mut().for_each(|step| self.body(&mut step.right));
            }
            QueryBody::Nested(query) => self.query(query),
        }
    }

    fn select(&mut self, select: &mut Select) {
        if let Some(crate::tree::Distinct::On(list)) = &mut select.distinct {
            self.exprs(list);
        }
        self.0.targets(&mut select.targets);
        for target in &mut select.targets {
            match target {
                Target::All(_) => {}
                Target::Value { value, .. } => self.expr(value),
            }
        }
        select.from.iter_mut().for_each(|item| self.joined_item(item));
        self.exprs(&mut select.condition);
        select.group_by.iter_mut().for_each(|item| self.group_item(item));
        self.exprs(&mut select.having);
        select.windows.iter_mut().for_each(|definition| self.window(&mut definition.window));
    }

    fn group_item(&mut self, item: &mut GroupItem) {
        match item {
            GroupItem::Expr(expr) => self.expr(expr),
            GroupItem::Empty(_) => {}
            GroupItem::Rollup(_, list) | GroupItem::Cube(_, list) => self.exprs(list),
            GroupItem::Sets(_, items) => items.iter_mut().for_each(|item| self.group_item(item)),
        }
    }

    fn joined_item(&mut self, item: &mut FromItem) {
        self.table(&mut item.first);
        for join in &mut item.joins {
            self.0.join(join);
            self.joined_item(&mut join.right);
            if let JoinConstraint::On(condition) = &mut join.constraint {
                self.expr(condition);
            }
        }
    }

    fn table(&mut self, table: &mut Table) {
        self.0.table(table);
        match &mut table.kind {
            TableKind::Relation { relation, sample } => {
                self.0.relation(relation);
                if let Some(sample) = sample {
                    self.exprs(&mut sample.arguments);
                    self.exprs(&mut sample.seed);
                }
            }
            TableKind::Function(function) => self.table_function(function),
            TableKind::Query { query, .. } => self.query(query),
            TableKind::Join(item) => self.joined_item(item),
            TableKind::Xml(xml) => self.xml_table(xml),
            TableKind::File(_) => {}
        }
    }

    fn table_function(&mut self, function: &mut TableFunction) {
        self.exprs(function.functions.iter_mut().map(|item| &mut item.call));
    }

    fn xml_table(&mut self, xml: &mut XmlTable) {
        self.exprs(xml.namespaces.iter_mut().map(|(value, _)| value));
        self.exprs([&mut xml.path, &mut xml.xml]);
        for column in &mut xml.columns {
            self.exprs(&mut column.path);
            self.exprs(&mut column.default);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::ObjectName;
    use crate::{Options, parse, print};

    /// Renames all columns `a` and all relations `t`, and writes TABLE as SELECT.
    struct Rename;

    fn rename(name: &mut ObjectName, from: &str, to: &str) {
        if &*name.name.text == from {
            name.name.text = to.into();
        }
    }

    impl Visitor for Rename {
        fn expr(&mut self, expr: &mut Expr) {
            if let ExprKind::Column(name) = &mut expr.kind {
                rename(name, "a", "b");
            }
        }

        fn relation(&mut self, relation: &mut Relation) {
            rename(&mut relation.name, "t", "u");
        }
    }

    #[test]
    fn every_place_of_a_query_is_walked() {
        let text = "WITH c AS (SELECT a FROM t) SELECT DISTINCT ON (a) x.a + a::int, f(a ORDER BY a) FILTER (WHERE a), \
            CASE a WHEN a THEN a ELSE a END, a IN (a, 1), a BETWEEN a AND a, a LIKE a, (SELECT a FROM t), \
            sum(a) OVER (PARTITION BY a ORDER BY a ROWS a PRECEDING), (ARRAY[a])[a:a], extract(year FROM a), \
            substring(a FROM a FOR a), coalesce(a, a), nullif(a, a), a = ANY (a), NOT a, ROW(a, a) \
            FROM t AS x JOIN (SELECT a FROM t) AS y ON a, generate_series(a, a) AS g, LATERAL (TABLE t) AS z \
            WHERE a AND a OR a IS NULL GROUP BY a, ROLLUP (a), GROUPING SETS ((), (a)) HAVING EXISTS (TABLE t) \
            WINDOW w AS (PARTITION BY a) UNION ALL VALUES (a) ORDER BY a LIMIT a OFFSET a";
        let mut statements = parse(text, Options::default()).unwrap();
        let Statement::Query(query) = &mut statements[0].statement else { panic!("it is a query") };
        super::query(&mut Rename, query);
        let printed = print::query(query);
        let words = printed.split(|c: char| !c.is_alphanumeric() && c != '_');
        assert_eq!(words.filter(|word| ["a", "t"].contains(word)).count(), 0, "{printed}");
    }
}
