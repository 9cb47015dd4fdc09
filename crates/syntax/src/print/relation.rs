//! Indexes, views, sequences, schemas; TRUNCATE, LOCK, VACUUM and their relatives; COPY.

use super::Printer;
use crate::tree::{
    CheckOption, Cluster, Copy, CopySource, CopyTarget, CopyValue, CreateIndex, CreateSchema, CreateSequence,
    CreateView, LockMode, LockTable, RefreshView, Reindex, ReindexTarget, SequenceOption, SequenceOptionKind,
    Truncate, UtilityOption, UtilityValue, Vacuum,
};

impl Printer {
    pub(super) fn create_index(&mut self, index: &CreateIndex) {
        self.put(if index.is_unique { "CREATE UNIQUE INDEX " } else { "CREATE INDEX " });
        self.put(if index.concurrently { "CONCURRENTLY " } else { "" });
        self.if_not_exists(index.if_not_exists);
        if let Some(name) = &index.name {
            self.name(name);
            self.put(" ");
        }
        self.put("ON ");
        self.relation(&index.table);
        self.optional_name(" USING ", index.method.as_ref());
        self.put(" ");
        self.parenthesised(&index.elements, Self::index_element);
        if !index.include.is_empty() {
            self.put(" INCLUDE ");
            self.parenthesised(&index.include, Self::index_element);
        }
        self.put(if index.nulls_not_distinct { " NULLS NOT DISTINCT" } else { "" });
        self.with_options(&index.options);
        self.optional_name(" TABLESPACE ", index.tablespace.as_ref());
        self.clause(" WHERE ", index.condition.as_ref());
    }

    pub(super) fn create_view(&mut self, view: &CreateView) {
        self.put(if view.or_replace { "CREATE OR REPLACE " } else { "CREATE " });
        self.persistence(view.persistence);
        self.put(if view.is_recursive { "RECURSIVE VIEW " } else { "VIEW " });
        self.object_name(&view.name);
        self.optional_names(&view.columns);
        self.with_options(&view.options);
        self.put(" AS ");
        self.query(&view.query);
        self.put(match view.check_option {
            None => "",
            Some(CheckOption::Cascaded) => " WITH CHECK OPTION",
            Some(CheckOption::Local) => " WITH LOCAL CHECK OPTION",
        });
    }

    pub(super) fn refresh(&mut self, refresh: &RefreshView) {
        self.put("REFRESH MATERIALIZED VIEW ");
        self.put(if refresh.concurrently { "CONCURRENTLY " } else { "" });
        self.object_name(&refresh.name);
        self.put(if refresh.with_no_data { " WITH NO DATA" } else { "" });
    }

    pub(super) fn create_sequence(&mut self, sequence: &CreateSequence) {
        self.put("CREATE ");
        self.persistence(sequence.persistence);
        self.put("SEQUENCE ");
        self.if_not_exists(sequence.if_not_exists);
        self.object_name(&sequence.name);
        if !sequence.options.is_empty() {
            self.put(" ");
            self.sequence_options(&sequence.options);
        }
    }

    /// Options with spaces between them.
    pub(super) fn sequence_options(&mut self, options: &[SequenceOption]) {
        for (index, option) in options.iter().enumerate() {
            self.put(if index > 0 { " " } else { "" });
            self.sequence_option(option);
        }
    }

    pub(super) fn sequence_option(&mut self, option: &SequenceOption) {
        use SequenceOptionKind::*;
        let (word, number) = match &option.kind {
            Type(type_name) => {
                self.put("AS ");
                return self.type_name(type_name);
            }
            OwnedBy(name) => {
                self.put("OWNED BY ");
                return self.object_name(name);
            }
            SequenceName(name) => {
                self.put("SEQUENCE NAME ");
                return self.object_name(name);
            }
            Cache(number) => ("CACHE ", Some(number)),
            Cycle(true) => ("CYCLE", None),
            Cycle(false) => ("NO CYCLE", None),
            Increment(number) => ("INCREMENT BY ", Some(number)),
            Logged => ("LOGGED", None),
            Unlogged => ("UNLOGGED", None),
            MaxValue(None) => ("NO MAXVALUE", None),
            MaxValue(number) => ("MAXVALUE ", number.as_ref()),
            MinValue(None) => ("NO MINVALUE", None),
            MinValue(number) => ("MINVALUE ", number.as_ref()),
            Start(number) => ("START WITH ", Some(number)),
            Restart(None) => ("RESTART", None),
            Restart(number) => ("RESTART WITH ", number.as_ref()),
        };
        self.put(word);
        if let Some(number) = number {
            self.put(number);
        }
    }

    pub(super) fn create_schema(&mut self, schema: &CreateSchema) {
        self.put("CREATE SCHEMA");
        self.put(if schema.if_not_exists { " IF NOT EXISTS" } else { "" });
        self.optional_name(" ", schema.name.as_ref());
        if let Some(owner) = &schema.owner {
            self.put(" AUTHORIZATION ");
            self.role(owner);
        }
        for element in &schema.elements {
            self.put(" ");
            self.statement(&element.statement);
        }
    }

    pub(super) fn truncate(&mut self, truncate: &Truncate) {
        self.put("TRUNCATE ");
        self.list(&truncate.tables, Self::relation);
        self.put(if truncate.restart_identity { " RESTART IDENTITY" } else { "" });
        self.cascade(truncate.cascade);
    }

    pub(super) fn lock(&mut self, lock: &LockTable) {
        self.put("LOCK TABLE ");
        self.list(&lock.tables, Self::relation);
        self.put(match lock.mode {
            LockMode::AccessShare => " IN ACCESS SHARE MODE",
            LockMode::RowShare => " IN ROW SHARE MODE",
            LockMode::RowExclusive => " IN ROW EXCLUSIVE MODE",
            LockMode::ShareUpdateExclusive => " IN SHARE UPDATE EXCLUSIVE MODE",
            LockMode::Share => " IN SHARE MODE",
            LockMode::ShareRowExclusive => " IN SHARE ROW EXCLUSIVE MODE",
            LockMode::Exclusive => " IN EXCLUSIVE MODE",
            LockMode::AccessExclusive => " IN ACCESS EXCLUSIVE MODE",
        });
        self.put(if lock.nowait { " NOWAIT" } else { "" });
    }

    /// ` (options)` or nothing.
    fn optional_utility_options(&mut self, options: &[UtilityOption]) {
        if !options.is_empty() {
            self.put(" ");
            self.utility_options(options);
        }
    }

    pub(super) fn vacuum(&mut self, vacuum: &Vacuum) {
        self.put(if vacuum.is_vacuum { "VACUUM" } else { "ANALYZE" });
        self.optional_utility_options(&vacuum.options);
        if !vacuum.tables.is_empty() {
            self.put(" ");
            self.list(&vacuum.tables, |printer, table| {
                printer.object_name(&table.name);
                printer.optional_names(&table.columns);
            });
        }
    }

    pub(super) fn cluster(&mut self, cluster: &Cluster) {
        self.put("CLUSTER");
        match &cluster.table {
            // Without a table there are no parentheses.
            None => self.put(if cluster.options.is_empty() { "" } else { " VERBOSE" }),
            Some(table) => {
                self.optional_utility_options(&cluster.options);
                self.put(" ");
                self.object_name(table);
                self.optional_name(" USING ", cluster.index.as_ref());
            }
        }
    }

    pub(super) fn reindex(&mut self, reindex: &Reindex) {
        self.put("REINDEX");
        self.optional_utility_options(&reindex.options);
        match &reindex.target {
            ReindexTarget::Index(name) => {
                self.put(" INDEX ");
                self.object_name(name);
            }
            ReindexTarget::Table(name) => {
                self.put(" TABLE ");
                self.object_name(name);
            }
            ReindexTarget::Schema(name) => self.optional_name(" SCHEMA ", Some(name)),
            ReindexTarget::System(name) => self.optional_name(" SYSTEM ", Some(name)),
            ReindexTarget::Database(name) => self.optional_name(" DATABASE ", Some(name)),
        }
    }

    pub(super) fn copy(&mut self, copy: &Copy) {
        self.put("COPY ");
        match &copy.source {
            CopySource::Table { name, columns } => {
                self.object_name(name);
                self.optional_names(columns);
            }
            CopySource::Query(statement) => {
                self.put("(");
                self.statement(statement);
                self.put(")");
            }
        }
        self.put(if copy.is_from { " FROM " } else { " TO " });
        match &copy.target {
            CopyTarget::Standard => self.put(if copy.is_from { "STDIN" } else { "STDOUT" }),
            CopyTarget::File(name) => self.string(name),
            CopyTarget::Program(command) => {
                self.put("PROGRAM ");
                self.string(command);
            }
        }
        if !copy.options.is_empty() {
            self.put(" ");
            self.parenthesised(&copy.options, |printer, option| {
                printer.name(&option.name);
                match &option.value {
                    CopyValue::None => {}
                    CopyValue::Value(value) => {
                        printer.put(" ");
                        printer.utility_value(value);
                    }
                    CopyValue::Star => printer.put(" *"),
                    CopyValue::Table(name) => {
                        printer.put(" ");
                        printer.object_name(name);
                    }
                    CopyValue::List(words) => {
                        printer.put(" ");
                        printer.parenthesised(words, |printer, word| {
                            printer.utility_value(&UtilityValue::Word(word.clone()));
                        });
                    }
                }
            });
        }
        self.clause(" WHERE ", copy.condition.as_ref());
    }
}
