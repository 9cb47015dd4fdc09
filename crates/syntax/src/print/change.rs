//! INSERT, UPDATE, DELETE, MERGE, and the options of storage.

use super::Printer;
use crate::tree::{
    Assignment, ChangeCondition, ConflictTarget, Delete, ExprKind, IndexElement, Insert, Merge, MergeAction,
    MergeArm, Name, OnConflict, OptionValue, Overriding, RelOption, Relation, TargetColumn, Update,
};

impl Printer {
    pub(super) fn insert(&mut self, insert: &Insert) {
        self.with(insert.with.as_deref());
        self.put("INSERT INTO ");
        self.object_name(&insert.table);
        self.alias(insert.alias.as_ref());
        self.target_columns(&insert.columns);
        self.overriding(insert.overriding);
        match &insert.source {
            None => self.put(" DEFAULT VALUES"),
            Some(query) => {
                self.put(" ");
                self.query(query);
            }
        }
        if let Some(conflict) = &insert.on_conflict {
            self.on_conflict(conflict);
        }
        self.returning(&insert.returning);
    }

    fn target_columns(&mut self, columns: &[TargetColumn]) {
        if !columns.is_empty() {
            self.put(" ");
            self.parenthesised(columns, Self::target_column);
        }
    }

    fn target_column(&mut self, column: &TargetColumn) {
        self.name(&column.name);
        for accessor in &column.path {
            self.accessor(accessor);
        }
    }

    fn overriding(&mut self, overriding: Option<Overriding>) {
        self.put(match overriding {
            None => "",
            Some(Overriding::User) => " OVERRIDING USER VALUE",
            Some(Overriding::System) => " OVERRIDING SYSTEM VALUE",
        });
    }

    fn on_conflict(&mut self, conflict: &OnConflict) {
        self.put(" ON CONFLICT");
        match &conflict.target {
            None => {}
            Some(ConflictTarget::Constraint(name)) => {
                self.put(" ON CONSTRAINT ");
                self.name(name);
            }
            Some(ConflictTarget::Inference { elements, condition, .. }) => {
                self.put(" ");
                self.parenthesised(elements, Self::index_element);
                self.clause(" WHERE ", condition.as_ref());
            }
        }
        let Some(update) = &conflict.update else { return self.put(" DO NOTHING") };
        self.put(" DO UPDATE SET ");
        self.list(&update.assignments, Self::assignment);
        self.clause(" WHERE ", update.condition.as_ref());
    }

    /// An element of an index.
    pub(crate) fn index_element(&mut self, element: &IndexElement) {
        let is_column = matches!(&element.value.kind, ExprKind::Column(name) if name.qualifiers.is_empty());
        let is_call = matches!(&element.value.kind, ExprKind::Call(call)
            if call.within_group.is_empty() && call.filter.is_none() && call.over.is_none());
        if is_column || is_call {
            self.expr(&element.value);
        } else {
            self.put("(");
            self.expr(&element.value);
            self.put(")");
        }
        self.collation(element.collation.as_ref());
        if let Some(class) = &element.class {
            self.put(" ");
            self.object_name(class);
            if !element.class_parameters.is_empty() {
                self.put(" ");
                self.rel_options(&element.class_parameters);
            }
        }
        self.sort_order(&element.order, element.nulls);
    }

    /// `(name = value, …)`
    pub(crate) fn rel_options(&mut self, options: &[RelOption]) {
        self.parenthesised(options, |printer, option| {
            if let Some(namespace) = &option.namespace {
                printer.name(namespace);
                printer.put(".");
            }
            printer.name(&option.name);
            if let Some(value) = &option.value {
                printer.put(" = ");
                printer.option_value(value);
            }
        });
    }

    /// The value of an option.
    pub(crate) fn option_value(&mut self, value: &OptionValue) {
        match value {
            OptionValue::Type(name) => self.type_name(name),
            OptionValue::TypeOf { is_set, name } => {
                self.put(if *is_set { "SETOF " } else { "" });
                self.object_name(name);
                self.put("%TYPE");
            }
            OptionValue::Word(word) => self.put(&word.text),
            OptionValue::Operator(operator) => self.operator(operator),
            OptionValue::Number(number) => self.put(number),
            OptionValue::String(string) => self.string(string),
        }
    }

    /// An item of SET.
    pub(crate) fn assignment(&mut self, assignment: &Assignment) {
        let value = match assignment {
            Assignment::Single { column, value } => {
                self.target_column(column);
                value
            }
            Assignment::Multiple { columns, value } => {
                self.parenthesised(columns, Self::target_column);
                value
            }
        };
        self.clause(" = ", Some(value));
    }

    fn changed_table(&mut self, relation: &Relation, alias: Option<&Name>) {
        self.relation(relation);
        self.alias(alias);
    }

    pub(super) fn update(&mut self, update: &Update) {
        self.with(update.with.as_deref());
        self.put("UPDATE ");
        self.changed_table(&update.table, update.alias.as_ref());
        self.put(" SET ");
        self.list(&update.assignments, Self::assignment);
        self.from(" FROM ", &update.from);
        self.change_condition(update.condition.as_ref());
        self.returning(&update.returning);
    }

    pub(super) fn delete(&mut self, delete: &Delete) {
        self.with(delete.with.as_deref());
        self.put("DELETE FROM ");
        self.changed_table(&delete.table, delete.alias.as_ref());
        self.from(" USING ", &delete.using);
        self.change_condition(delete.condition.as_ref());
        self.returning(&delete.returning);
    }

    fn change_condition(&mut self, condition: Option<&ChangeCondition>) {
        match condition {
            None => {}
            Some(ChangeCondition::Expr(condition)) => self.clause(" WHERE ", Some(condition)),
            Some(ChangeCondition::CurrentOf(cursor)) => {
                self.put(" WHERE CURRENT OF ");
                self.name(cursor);
            }
        }
    }

    pub(super) fn merge(&mut self, merge: &Merge) {
        self.with(merge.with.as_deref());
        self.put("MERGE INTO ");
        self.changed_table(&merge.table, merge.alias.as_ref());
        self.put(" USING ");
        self.table_ref(&merge.source);
        self.clause(" ON ", Some(&merge.condition));
        for arm in &merge.arms {
            self.merge_arm(arm);
        }
        self.returning(&merge.returning);
    }

    fn merge_arm(&mut self, arm: &MergeArm) {
        self.put(if arm.is_matched { " WHEN MATCHED" } else { " WHEN NOT MATCHED" });
        self.clause(" AND ", arm.condition.as_ref());
        self.put(" THEN ");
        match &arm.action {
            MergeAction::Nothing => self.put("DO NOTHING"),
            MergeAction::Delete => self.put("DELETE"),
            MergeAction::Update(assignments) => {
                self.put("UPDATE SET ");
                self.list(assignments, Self::assignment);
            }
            MergeAction::Insert { columns, overriding, values } => {
                self.put("INSERT");
                self.target_columns(columns);
                self.overriding(*overriding);
                match values {
                    None => self.put(" DEFAULT VALUES"),
                    Some(values) => {
                        self.put(" VALUES ");
                        self.parenthesised(values, Self::expr);
                    }
                }
            }
        }
    }
}
