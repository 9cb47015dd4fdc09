//! Queries.

use super::Printer;
use crate::tree::{
    Alias, ColumnDefinition, CommonTable, Cycle, Distinct, Expr, ExprKind, FromItem, GroupItem, Into, Join,
    JoinConstraint, JoinKind, Limit, LockStrength, LockWait, Locking, NullsOrder, ObjectName, Persistence,
    Query, QueryBody, Relation, Sample, Search, Select, SetOperation, SetOperator, SortItem, SortOrder,
    Table, TableFunction, TableFunctionItem, TableKind, Target, With, XmlColumn, XmlTable,
};

impl Printer {
    /// A query.
    pub(crate) fn query(&mut self, query: &Query) {
        self.with(query.with.as_deref());
        match &query.body {
            // Without parentheses its clauses would be this query's.
            QueryBody::Nested(nested) => self.query_in_parentheses(nested),
            body => self.query_body(body),
        }
        self.order_by(&query.order_by);
        self.clause(" OFFSET ", query.offset.as_ref());
        if let Some(limit) = &query.limit {
            self.limit(limit);
        }
        for locking in &query.locking {
            self.locking(locking);
        }
    }

    /// `(query)`
    pub(crate) fn query_in_parentheses(&mut self, query: &Query) {
        self.put("(");
        self.query(query);
        self.put(")");
    }

    /// `WITH … ` or nothing.
    pub(super) fn with(&mut self, with: Option<&With>) {
        let Some(with) = with else { return };
        self.put(if with.is_recursive { "WITH RECURSIVE " } else { "WITH " });
        self.list(&with.tables, Self::common_table);
        self.put(" ");
    }

    fn common_table(&mut self, table: &CommonTable) {
        self.name(&table.name);
        self.optional_names(&table.columns);
        self.put(match table.is_materialized {
            None => " AS (",
            Some(true) => " AS MATERIALIZED (",
            Some(false) => " AS NOT MATERIALIZED (",
        });
        self.statement(&table.statement);
        self.put(")");
        if let Some(search) = &table.search {
            self.search(search);
        }
        if let Some(cycle) = &table.cycle {
            self.cycle(cycle);
        }
    }

    fn search(&mut self, search: &Search) {
        self.put(if search.is_breadth_first {
            " SEARCH BREADTH FIRST BY "
        } else {
            " SEARCH DEPTH FIRST BY "
        });
        self.list(&search.columns, Self::name);
        self.put(" SET ");
        self.name(&search.sequence);
    }

    fn cycle(&mut self, cycle: &Cycle) {
        self.put(" CYCLE ");
        self.list(&cycle.columns, Self::name);
        self.put(" SET ");
        self.name(&cycle.mark);
        if let Some([value, default]) = &cycle.values {
            self.put(" TO ");
            self.expr(value);
            self.put(" DEFAULT ");
            self.expr(default);
        }
        self.put(" USING ");
        self.name(&cycle.path);
    }

    fn query_body(&mut self, body: &QueryBody) {
        match body {
            QueryBody::Select(select) => self.select(select),
            QueryBody::Values(rows) => {
                self.put("VALUES ");
                self.list(rows, |printer, row| printer.parenthesised(row, Self::expr));
            }
            QueryBody::Table(relation) => {
                self.put("TABLE ");
                self.relation(relation);
            }
            QueryBody::SetOperation(operation) => self.set_operation(operation),
            QueryBody::Nested(query) => self.query_in_parentheses(query),
        }
    }

    /// INTERSECT binds more tightly than the others: behind one of these the left side is put in parentheses.
    fn set_operation(&mut self, operation: &SetOperation) {
        let is_intersect = |index: usize| operation.steps[index].operator == SetOperator::Intersect;
        let closes_before = |index: usize| index > 0 && is_intersect(index) && !is_intersect(index - 1);
        for index in 0..operation.steps.len() {
            if closes_before(index) {
                self.put("(");
            }
        }
        self.query_body(&operation.first);
        for (index, step) in operation.steps.iter().enumerate() {
            if closes_before(index) {
                self.put(")");
            }
            self.put(match step.operator {
                SetOperator::Union => " UNION ",
                SetOperator::Intersect => " INTERSECT ",
                SetOperator::Except => " EXCEPT ",
            });
            if step.is_all {
                self.put("ALL ");
            }
            self.set_operand(&step.right, is_intersect(index));
        }
    }

    fn set_operand(&mut self, body: &QueryBody, is_of_intersect: bool) {
        let needs_parentheses = match body {
            QueryBody::SetOperation(operation) => {
                is_of_intersect || operation.steps.iter().any(|step| step.operator != SetOperator::Intersect)
            }
            _ => false,
        };
        if needs_parentheses {
            self.put("(");
        }
        self.query_body(body);
        if needs_parentheses {
            self.put(")");
        }
    }

    fn select(&mut self, select: &Select) {
        self.put("SELECT");
        match &select.distinct {
            None => {}
            Some(Distinct::All) => self.put(" DISTINCT"),
            Some(Distinct::On(exprs)) => {
                self.put(" DISTINCT ON ");
                self.parenthesised(exprs, Self::expr);
            }
        }
        if !select.targets.is_empty() {
            self.put(" ");
            self.list(&select.targets, Self::target);
        }
        if let Some(into) = &select.into {
            self.into(into);
        }
        self.from(" FROM ", &select.from);
        self.clause(" WHERE ", select.condition.as_ref());
        if !select.group_by.is_empty() {
            self.put(if select.is_group_distinct { " GROUP BY DISTINCT " } else { " GROUP BY " });
            self.list(&select.group_by, Self::group_item);
        }
        self.clause(" HAVING ", select.having.as_ref());
        if !select.windows.is_empty() {
            self.put(" WINDOW ");
            self.list(&select.windows, |printer, window| {
                printer.name(&window.name);
                printer.put(" AS ");
                printer.window_spec(&window.window);
            });
        }
    }

    fn target(&mut self, target: &Target) {
        match target {
            Target::All(_) => self.put("*"),
            Target::Value { value, alias } => {
                self.expr(value);
                self.alias(alias.as_ref());
            }
        }
    }

    /// ` RETURNING …` or nothing.
    pub(super) fn returning(&mut self, targets: &[Target]) {
        if !targets.is_empty() {
            self.put(" RETURNING ");
            self.list(targets, Self::target);
        }
    }

    fn into(&mut self, into: &Into) {
        self.put(match into.persistence {
            Persistence::Permanent => " INTO ",
            Persistence::Temporary => " INTO TEMPORARY ",
            Persistence::Unlogged => " INTO UNLOGGED ",
        });
        self.object_name(&into.name);
    }

    fn group_item(&mut self, item: &GroupItem) {
        match item {
            GroupItem::Expr(expr) => self.expr(expr),
            GroupItem::Empty(_) => self.put("()"),
            GroupItem::Rollup(_, exprs) => self.group_function("ROLLUP ", exprs),
            GroupItem::Cube(_, exprs) => self.group_function("CUBE ", exprs),
            GroupItem::Sets(_, items) => {
                self.put("GROUPING SETS ");
                self.parenthesised(items, Self::group_item);
            }
        }
    }

    fn group_function(&mut self, name: &str, exprs: &[Expr]) {
        self.put(name);
        self.parenthesised(exprs, Self::expr);
    }

    // FROM.

    /// A word and items of FROM, or nothing.
    pub(super) fn from(&mut self, word: &str, items: &[FromItem]) {
        if !items.is_empty() {
            self.put(word);
            self.list(items, Self::table_ref);
        }
    }

    /// An item of FROM with its joins.
    pub(super) fn table_ref(&mut self, item: &FromItem) {
        self.table(&item.first);
        for join in &item.joins {
            self.join(join);
        }
    }

    fn join(&mut self, join: &Join) {
        if join.constraint == JoinConstraint::Natural {
            self.put(" NATURAL");
        }
        self.put(match (join.kind, &join.constraint) {
            (_, JoinConstraint::None) => " CROSS JOIN ",
            (JoinKind::Inner, _) => " JOIN ",
            (JoinKind::Left, _) => " LEFT JOIN ",
            (JoinKind::Right, _) => " RIGHT JOIN ",
            (JoinKind::Full, _) => " FULL JOIN ",
        });
        self.joined(&join.right);
        match &join.constraint {
            JoinConstraint::None | JoinConstraint::Natural => {}
            JoinConstraint::On(condition) => self.clause(" ON ", Some(condition)),
            JoinConstraint::Using { columns, alias } => {
                self.put(" USING ");
                self.parenthesised(columns, Self::name);
                self.alias(alias.as_ref());
            }
        }
    }

    /// An item of FROM, in parentheses if it is more than one table.
    fn joined(&mut self, item: &FromItem) {
        if item.joins.is_empty() {
            return self.table(&item.first);
        }
        self.put("(");
        self.table_ref(item);
        self.put(")");
    }

    fn table(&mut self, table: &Table) {
        match &table.kind {
            TableKind::Relation { relation, sample } => {
                self.relation(relation);
                self.table_alias(table.alias.as_ref());
                if let Some(sample) = sample {
                    self.sample(sample);
                }
                return;
            }
            TableKind::Function(function) => return self.table_function(function, table.alias.as_ref()),
            TableKind::Query { is_lateral, query } => {
                self.lateral(*is_lateral);
                self.query_in_parentheses(query);
            }
            TableKind::Join(item) => {
                self.put("(");
                self.table_ref(item);
                self.put(")");
            }
            TableKind::Xml(xml) => self.xml_table(xml),
            TableKind::File(name) => self.string(name),
        }
        self.table_alias(table.alias.as_ref());
    }

    fn table_alias(&mut self, alias: Option<&Alias>) {
        if let Some(alias) = alias {
            self.alias(Some(&alias.name));
            self.optional_names(&alias.columns);
        }
    }

    fn lateral(&mut self, is_lateral: bool) {
        if is_lateral {
            self.put("LATERAL ");
        }
    }

    /// `[ONLY] name`
    pub(crate) fn relation(&mut self, relation: &Relation) {
        if relation.is_only {
            self.put("ONLY ");
        }
        self.object_name(&relation.name);
    }

    fn sample(&mut self, sample: &Sample) {
        self.put(" TABLESAMPLE ");
        self.object_name(&sample.method);
        self.parenthesised(&sample.arguments, Self::expr);
        if let Some(seed) = &sample.seed {
            self.put(" REPEATABLE (");
            self.expr(seed);
            self.put(")");
        }
    }

    fn table_function(&mut self, function: &TableFunction, alias: Option<&Alias>) {
        self.lateral(function.is_lateral);
        if function.is_rows_from {
            self.put("ROWS FROM ");
            self.parenthesised(&function.functions, Self::table_function_item);
        } else {
            self.table_call(&function.functions[0].call);
        }
        if function.with_ordinality {
            self.put(" WITH ORDINALITY");
        }
        self.table_alias(alias);
        if !function.columns.is_empty() {
            self.put(if alias.is_some() { " " } else { " AS " });
            self.parenthesised(&function.columns, Self::column_definition);
        }
    }

    fn table_function_item(&mut self, item: &TableFunctionItem) {
        self.table_call(&item.call);
        if !item.columns.is_empty() {
            self.put(" AS ");
            self.parenthesised(&item.columns, Self::column_definition);
        }
    }

    /// A call in FROM. `CAST` is one by its looks.
    fn table_call(&mut self, call: &Expr) {
        let ExprKind::Chain(chain) = &call.kind else { return self.expr(call) };
        let mut value = (**chain).clone();
        let Some(crate::tree::Step { kind: crate::tree::StepKind::Cast(type_name), .. }) = value.steps.pop()
        else {
            return self.expr(call);
        };
        let value = if value.steps.is_empty() {
            value.first
        } else {
            Expr { kind: ExprKind::Chain(Box::new(value)), span: call.span }
        };
        self.put("CAST(");
        self.expr(&value);
        self.put(" AS ");
        self.type_name(&type_name);
        self.put(")");
    }

    fn column_definition(&mut self, column: &ColumnDefinition) {
        self.name(&column.name);
        self.put(" ");
        self.type_name(&column.type_name);
        self.collation(column.collation.as_ref());
    }

    /// ` COLLATE name` or nothing.
    pub(crate) fn collation(&mut self, collation: Option<&ObjectName>) {
        if let Some(collation) = collation {
            self.put(" COLLATE ");
            self.object_name(collation);
        }
    }

    fn xml_table(&mut self, table: &XmlTable) {
        self.lateral(table.is_lateral);
        self.put("XMLTABLE(");
        if !table.namespaces.is_empty() {
            self.put("XMLNAMESPACES");
            self.parenthesised(&table.namespaces, |printer, (value, name)| match name {
                Some(name) => {
                    printer.restricted_expr(value);
                    printer.alias(Some(name));
                }
                None => {
                    printer.put("DEFAULT ");
                    printer.restricted_expr(value);
                }
            });
            self.put(", ");
        }
        self.operand(&table.path);
        self.put(" PASSING ");
        self.operand(&table.xml);
        self.put(" COLUMNS ");
        self.list(&table.columns, Self::xml_column);
        self.put(")");
    }

    fn xml_column(&mut self, column: &XmlColumn) {
        self.name(&column.name);
        let Some(type_name) = &column.type_name else { return self.put(" FOR ORDINALITY") };
        self.put(" ");
        self.type_name(type_name);
        if let Some(path) = &column.path {
            self.put(" path ");
            self.restricted_expr(path);
        }
        if let Some(default) = &column.default {
            self.put(" DEFAULT ");
            self.restricted_expr(default);
        }
        self.put(match column.is_nullable {
            None => "",
            Some(true) => " NULL",
            Some(false) => " NOT NULL",
        });
    }

    // Behind the rows.

    /// ` ORDER BY …` or nothing.
    pub(super) fn order_by(&mut self, items: &[SortItem]) {
        if !items.is_empty() {
            self.put(" ORDER BY ");
            self.list(items, Self::sort_item);
        }
    }

    /// An item of ORDER BY.
    pub(super) fn sort_item(&mut self, item: &SortItem) {
        self.expr(&item.value);
        self.sort_order(&item.order, item.nulls);
    }

    /// ` DESC NULLS LAST` and such, or nothing.
    pub(crate) fn sort_order(&mut self, order: &SortOrder, nulls: NullsOrder) {
        match order {
            SortOrder::Default => {}
            SortOrder::Ascending => self.put(" ASC"),
            SortOrder::Descending => self.put(" DESC"),
            SortOrder::Using(operator) => {
                self.put(" USING ");
                self.operator(operator);
            }
        }
        self.put(match nulls {
            NullsOrder::Default => "",
            NullsOrder::First => " NULLS FIRST",
            NullsOrder::Last => " NULLS LAST",
        });
    }

    fn limit(&mut self, limit: &Limit) {
        match &limit.count {
            Some(count) if limit.with_ties => {
                self.put(" FETCH FIRST ");
                self.operand(count);
                self.put(" ROWS WITH TIES");
            }
            None => self.put(" LIMIT ALL"),
            Some(count) => self.clause(" LIMIT ", Some(count)),
        }
    }

    fn locking(&mut self, locking: &Locking) {
        self.put(match locking.strength {
            LockStrength::KeyShare => " FOR KEY SHARE",
            LockStrength::Share => " FOR SHARE",
            LockStrength::NoKeyUpdate => " FOR NO KEY UPDATE",
            LockStrength::Update => " FOR UPDATE",
        });
        if !locking.relations.is_empty() {
            self.put(" OF ");
            self.list(&locking.relations, Self::object_name);
        }
        self.put(match locking.wait {
            LockWait::Block => "",
            LockWait::Error => " NOWAIT",
            LockWait::Skip => " SKIP LOCKED",
        });
    }
}
