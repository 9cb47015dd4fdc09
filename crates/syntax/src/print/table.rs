//! CREATE TABLE, its columns and its constraints.

use super::Printer;
use crate::tree::{
    ColumnConstraint, ColumnConstraintKind, ColumnDef, ConstraintAttributes, ConstraintIndex, CreateTable,
    CreateTableAs, GenericOption, KeyAction, LikeOption, Name, ObjectName, OnCommit, PartitionBound,
    Persistence, Reference, RelOption, SequenceOption, TableBody, TableConstraint, TableConstraintKind,
    TableElement, TableLike, TableSource,
};

impl Printer {
    pub(super) fn create_table(&mut self, table: &CreateTable) {
        self.put("CREATE ");
        self.persistence(table.persistence);
        self.put(if table.foreign.is_some() { "FOREIGN TABLE " } else { "TABLE " });
        self.if_not_exists(table.if_not_exists);
        self.object_name(&table.name);
        match &table.body {
            TableBody::Plain { inherits } => {
                self.put(" ");
                self.parenthesised(&table.elements, Self::table_element);
                if !inherits.is_empty() {
                    self.put(" INHERITS ");
                    self.parenthesised(inherits, Self::object_name);
                }
            }
            TableBody::Of(type_name) => {
                self.put(" OF ");
                self.object_name(type_name);
                self.typed_elements(&table.elements);
            }
            TableBody::Partition { parent, bound } => {
                self.put(" PARTITION OF ");
                self.object_name(parent);
                self.typed_elements(&table.elements);
                self.put(" ");
                self.partition_bound(bound);
            }
        }
        if let Some(partition) = &table.partition_by {
            self.put(" PARTITION BY ");
            self.name(&partition.strategy);
            self.put(" ");
            self.parenthesised(&partition.elements, Self::index_element);
        }
        self.storage(
            table.access_method.as_ref(),
            &table.options,
            table.on_commit,
            table.tablespace.as_ref(),
        );
        if let Some(foreign) = &table.foreign {
            self.put(" SERVER ");
            self.name(&foreign.server);
            self.generic_options(&foreign.options);
        }
    }

    fn typed_elements(&mut self, elements: &[TableElement]) {
        if !elements.is_empty() {
            self.put(" ");
            self.parenthesised(elements, Self::table_element);
        }
    }

    pub(super) fn create_table_as(&mut self, table: &CreateTableAs) {
        self.put("CREATE ");
        self.persistence(table.persistence);
        self.put(if table.is_materialized_view { "MATERIALIZED VIEW " } else { "TABLE " });
        self.if_not_exists(table.if_not_exists);
        self.object_name(&table.name);
        self.optional_names(&table.columns);
        self.storage(
            table.access_method.as_ref(),
            &table.options,
            table.on_commit,
            table.tablespace.as_ref(),
        );
        self.put(" AS ");
        match &table.source {
            TableSource::Query(query) => self.query(query),
            TableSource::Execute(execute) => self.execute(execute),
        }
        if table.with_no_data {
            self.put(" WITH NO DATA");
        }
    }

    /// `TEMPORARY `, `UNLOGGED ` or nothing.
    pub(super) fn persistence(&mut self, persistence: Persistence) {
        self.put(match persistence {
            Persistence::Permanent => "",
            Persistence::Temporary => "TEMPORARY ",
            Persistence::Unlogged => "UNLOGGED ",
        });
    }

    pub(super) fn if_not_exists(&mut self, is_set: bool) {
        self.put(if is_set { "IF NOT EXISTS " } else { "" });
    }

    pub(super) fn if_exists(&mut self, is_set: bool) {
        self.put(if is_set { "IF EXISTS " } else { "" });
    }

    pub(super) fn cascade(&mut self, is_set: bool) {
        self.put(if is_set { " CASCADE" } else { "" });
    }

    /// A word and a name behind it, or nothing.
    pub(super) fn optional_name(&mut self, word: &str, name: Option<&Name>) {
        if let Some(name) = name {
            self.put(word);
            self.name(name);
        }
    }

    fn storage(
        &mut self,
        access_method: Option<&Name>,
        options: &[RelOption],
        on_commit: Option<OnCommit>,
        tablespace: Option<&Name>,
    ) {
        self.optional_name(" USING ", access_method);
        self.with_options(options);
        self.put(match on_commit {
            None => "",
            Some(OnCommit::Drop) => " ON COMMIT DROP",
            Some(OnCommit::DeleteRows) => " ON COMMIT DELETE ROWS",
            Some(OnCommit::PreserveRows) => " ON COMMIT PRESERVE ROWS",
        });
        self.optional_name(" TABLESPACE ", tablespace);
    }

    /// ` WITH (…)` or nothing.
    pub(super) fn with_options(&mut self, options: &[RelOption]) {
        if !options.is_empty() {
            self.put(" WITH ");
            self.rel_options(options);
        }
    }

    /// ` OPTIONS (…)` or nothing.
    pub(super) fn generic_options(&mut self, options: &[GenericOption]) {
        if !options.is_empty() {
            self.put(" OPTIONS ");
            self.parenthesised(options, Self::generic_option);
        }
    }

    pub(super) fn generic_option(&mut self, option: &GenericOption) {
        self.name(&option.name);
        self.put(" ");
        self.string(&option.value);
    }

    fn table_element(&mut self, element: &TableElement) {
        match element {
            TableElement::Column(column) => self.column_def(column),
            TableElement::Like(like) => self.table_like(like),
            TableElement::Constraint(constraint) => self.table_constraint(constraint),
        }
    }

    pub(super) fn column_def(&mut self, column: &ColumnDef) {
        self.name(&column.name);
        if let Some(type_name) = &column.type_name {
            self.put(" ");
            self.type_name(type_name);
        }
        if let Some(compression) = &column.compression {
            self.put(" COMPRESSION ");
            self.name_or_default(compression);
        }
        self.generic_options(&column.options);
        self.collation(column.collation.as_ref());
        for constraint in &column.constraints {
            self.put(" ");
            self.column_constraint(constraint);
        }
    }

    /// A name, or DEFAULT, which is no other name here.
    pub(super) fn name_or_default(&mut self, name: &Name) {
        if &*name.text == "default" { self.put("DEFAULT") } else { self.name(name) }
    }

    pub(super) fn column_constraint(&mut self, constraint: &ColumnConstraint) {
        use ColumnConstraintKind::*;
        if let Some(name) = &constraint.name {
            self.put("CONSTRAINT ");
            self.name(name);
            self.put(" ");
        }
        match &constraint.kind {
            NotNull => self.put("NOT NULL"),
            Null => self.put("NULL"),
            Unique { nulls_not_distinct, index } => {
                self.put(if *nulls_not_distinct { "UNIQUE NULLS NOT DISTINCT" } else { "UNIQUE" });
                self.constraint_index(index);
            }
            PrimaryKey(index) => {
                self.put("PRIMARY KEY");
                self.constraint_index(index);
            }
            Check { condition, no_inherit } => {
                self.put("CHECK (");
                self.expr(condition);
                self.put(if *no_inherit { ") NO INHERIT" } else { ")" });
            }
            Default(value) => {
                self.put("DEFAULT ");
                self.restricted_expr(value);
            }
            Identity { always, options } => {
                self.put(if *always {
                    "GENERATED ALWAYS AS IDENTITY"
                } else {
                    "GENERATED BY DEFAULT AS IDENTITY"
                });
                self.identity_options(options);
            }
            Generated(value) => {
                self.put("GENERATED ALWAYS AS (");
                self.expr(value);
                self.put(") STORED");
            }
            References(reference) => self.reference(reference),
            Deferrable => self.put("DEFERRABLE"),
            NotDeferrable => self.put("NOT DEFERRABLE"),
            InitiallyDeferred => self.put("INITIALLY DEFERRED"),
            InitiallyImmediate => self.put("INITIALLY IMMEDIATE"),
        }
    }

    /// ` (options)` or nothing.
    pub(super) fn identity_options(&mut self, options: &[SequenceOption]) {
        if !options.is_empty() {
            self.put(" (");
            self.sequence_options(options);
            self.put(")");
        }
    }

    fn constraint_index(&mut self, index: &ConstraintIndex) {
        self.with_options(&index.options);
        self.optional_name(" USING INDEX TABLESPACE ", index.tablespace.as_ref());
    }

    fn reference(&mut self, reference: &Reference) {
        self.put("REFERENCES ");
        self.object_name(&reference.table);
        self.optional_names(&reference.columns);
        if reference.match_full {
            self.put(" MATCH FULL");
        }
        self.key_action(" ON UPDATE ", &reference.on_update);
        self.key_action(" ON DELETE ", &reference.on_delete);
    }

    fn key_action(&mut self, word: &str, action: &KeyAction) {
        let (text, columns): (&str, &[Name]) = match action {
            KeyAction::NoAction => return,
            KeyAction::Restrict => ("RESTRICT", &[]),
            KeyAction::Cascade => ("CASCADE", &[]),
            KeyAction::SetNull(columns) => ("SET NULL", columns),
            KeyAction::SetDefault(columns) => ("SET DEFAULT", columns),
        };
        self.put(word);
        self.put(text);
        self.optional_names(columns);
    }

    pub(super) fn table_constraint(&mut self, constraint: &TableConstraint) {
        if let Some(name) = &constraint.name {
            self.put("CONSTRAINT ");
            self.name(name);
            self.put(" ");
        }
        match &constraint.kind {
            TableConstraintKind::Check(condition) => {
                self.put("CHECK (");
                self.expr(condition);
                self.put(")");
            }
            TableConstraintKind::Unique { is_primary, nulls_not_distinct, columns, include, index } => {
                self.put(match (is_primary, nulls_not_distinct) {
                    (true, _) => "PRIMARY KEY ",
                    (false, true) => "UNIQUE NULLS NOT DISTINCT ",
                    (false, false) => "UNIQUE ",
                });
                self.parenthesised(columns, Self::name);
                self.include_names(include);
                self.constraint_index(index);
            }
            TableConstraintKind::UsingIndex { is_primary, index } => {
                self.put(if *is_primary { "PRIMARY KEY USING INDEX " } else { "UNIQUE USING INDEX " });
                self.name(index);
            }
            TableConstraintKind::Exclude { method, elements, include, index, condition } => {
                self.put("EXCLUDE ");
                if let Some(method) = method {
                    self.put("USING ");
                    self.name(method);
                    self.put(" ");
                }
                self.parenthesised(elements, |printer, element| {
                    printer.index_element(&element.element);
                    printer.put(" WITH ");
                    printer.operator(&element.operator);
                });
                self.include_names(include);
                self.constraint_index(index);
                if let Some(condition) = condition {
                    self.put(" WHERE (");
                    self.expr(condition);
                    self.put(")");
                }
            }
            TableConstraintKind::ForeignKey { columns, reference } => {
                self.put("FOREIGN KEY ");
                self.parenthesised(columns, Self::name);
                self.put(" ");
                self.reference(reference);
            }
        }
        self.constraint_attributes(constraint.attributes);
    }

    fn include_names(&mut self, names: &[Name]) {
        if !names.is_empty() {
            self.put(" INCLUDE ");
            self.parenthesised(names, Self::name);
        }
    }

    pub(super) fn constraint_attributes(&mut self, attributes: ConstraintAttributes) {
        for (word, is_set) in [
            (" DEFERRABLE", attributes.deferrable),
            (" INITIALLY DEFERRED", attributes.initially_deferred),
            (" NOT VALID", attributes.not_valid),
            (" NO INHERIT", attributes.no_inherit),
        ] {
            if is_set {
                self.put(word);
            }
        }
    }

    fn table_like(&mut self, like: &TableLike) {
        self.put("LIKE ");
        self.object_name(&like.table);
        for (is_including, option) in &like.options {
            self.put(if *is_including { " INCLUDING " } else { " EXCLUDING " });
            self.put(match option {
                LikeOption::Comments => "COMMENTS",
                LikeOption::Compression => "COMPRESSION",
                LikeOption::Constraints => "CONSTRAINTS",
                LikeOption::Defaults => "DEFAULTS",
                LikeOption::Identity => "IDENTITY",
                LikeOption::Generated => "GENERATED",
                LikeOption::Indexes => "INDEXES",
                LikeOption::Statistics => "STATISTICS",
                LikeOption::Storage => "STORAGE",
                LikeOption::All => "ALL",
            });
        }
    }

    pub(super) fn partition_bound(&mut self, bound: &PartitionBound) {
        match bound {
            PartitionBound::Default => self.put("DEFAULT"),
            PartitionBound::Hash { modulus, remainder } => {
                self.put("FOR VALUES WITH (modulus ");
                self.integer(*modulus);
                self.put(", remainder ");
                self.integer(*remainder);
                self.put(")");
            }
            PartitionBound::List(values) => {
                self.put("FOR VALUES IN ");
                self.parenthesised(values, Self::expr);
            }
            PartitionBound::Range { from, to } => {
                self.put("FOR VALUES FROM ");
                self.parenthesised(from, Self::expr);
                self.put(" TO ");
                self.parenthesised(to, Self::expr);
            }
        }
    }

    /// Names with commas between them.
    pub(super) fn object_names(&mut self, names: &[ObjectName]) {
        self.list(names, Self::object_name);
    }
}
