//! `firn_dump`: the statements that create a database again, in the order in which they must run, in the three sections
//! of PostgreSQL's `pg_dump`: pre-data, data, and post-data.
//!
//! Keys and checks are created with their tables, so that the load tests them and builds their indexes. Other indexes,
//! foreign keys, constraints that are NOT VALID, and views follow it. Every name in it is qualified, except those in
//! defaults, which are stored as written.

use super::definitions::{Object, quote_identifier};
use super::rows::row;
use super::{Cell, Row, Source, comments};
use crate::ddl::parameter;
use crate::ddl::view::dependencies;
use crate::statement::quote_literal;
use firn_base::sync::Arc;
use firn_txn::catalog::{ConstraintDef, ConstraintKind, Identity, Oid, SequenceDef, TableDef, ViewDef};

pub(super) fn firn_dump(source: &Source) -> Vec<Row> {
    // No object is found without its schema.
    let mut source = source.clone();
    Arc::make_mut(&mut source.facts).search_path.clear();
    let mut script = Script { source: &source, rows: Vec::new() };
    script.before_data();
    script.data();
    script.after_data();
    script.rows
}

struct Script<'s> {
    source: &'s Source,
    rows: Vec<Row>,
}

impl Script<'_> {
    fn add(&mut self, section: &str, kind: &str, schema: Oid, name: &str, statement: String) {
        self.rows.push(row! {
            "position": self.rows.len() as i64 + 1,
            "section": section,
            "kind": kind,
            "schemaname": self.source.schema_name(schema),
            "relname": name,
            "statement": statement,
        });
    }

    fn before_data(&mut self) {
        let section = "pre-data";
        let catalog = self.source.catalog.clone();
        for schema in catalog.schemas.values().filter(|schema| schema.oid >= Oid::FIRST_USER) {
            let statement = format!("CREATE SCHEMA {}", quote_identifier(&schema.name));
            self.add(section, "schema", schema.oid, "", statement);
        }
        let identity_of = |sequence: &SequenceDef| {
            let (table, column) = sequence.owner?;
            let draws =
                catalog.identity_sequence(table, column).is_some_and(|drawn| drawn.oid == sequence.oid);
            let table = catalog.tables.get(&table).filter(|_| draws)?;
            Some((table, &table.columns[usize::from(column)])).filter(|(_, column)| column.identity.is_some())
        };
        // Defaults name them.
        for sequence in catalog.sequences.values().filter(|sequence| identity_of(sequence).is_none()) {
            let (name, options) = (self.name(&Object::Sequence(sequence)), sequence_options(sequence));
            let statement = format!("CREATE SEQUENCE {name} AS {}{options}", sequence.ty);
            self.add(section, "sequence", sequence.schema, &sequence.name, statement);
        }
        for table in catalog.tables.values() {
            let statement = self.create_table(table);
            self.add(section, "table", table.schema, &table.name, statement);
        }
        for sequence in catalog.sequences.values() {
            let name = self.name(&Object::Sequence(sequence));
            let statement = match (identity_of(sequence), sequence.owner) {
                (Some((table, column)), _) => format!(
                    "ALTER TABLE {} ALTER COLUMN {} ADD GENERATED {} AS IDENTITY (SEQUENCE NAME {name}{})",
                    self.name(&Object::Table(table)),
                    quote_identifier(&column.name),
                    if column.identity == Some(Identity::Always) { "ALWAYS" } else { "BY DEFAULT" },
                    sequence_options(sequence),
                ),
                (None, Some((table, column))) => {
                    let Some(table) = catalog.tables.get(&table) else { continue };
                    let column = quote_identifier(&table.columns[usize::from(column)].name);
                    let table = self.name(&Object::Table(table));
                    format!("ALTER SEQUENCE {name} OWNED BY {table}.{column}")
                }
                (None, None) => continue,
            };
            self.add(section, "sequence", sequence.schema, &sequence.name, statement);
        }
    }

    fn data(&mut self) {
        let section = "data";
        let catalog = self.source.catalog.clone();
        for table in catalog.tables.values() {
            let copied = table.visible_columns().filter(|(_, column)| column.generated.is_none());
            let columns: Vec<String> = copied.map(|(_, column)| quote_identifier(&column.name)).collect();
            let columns =
                if columns.is_empty() { String::new() } else { format!(" ({})", columns.join(", ")) };
            let statement = format!("COPY {}{columns} FROM STDIN", self.name(&Object::Table(table)));
            self.add(section, "table", table.schema, &table.name, statement);
        }
        let Some(session) = self.source.session() else { return };
        for sequence in catalog.sequences.values() {
            let (value, is_called) = session.engine().last_value(sequence);
            let name = quote_literal(&self.name(&Object::Sequence(sequence)));
            let statement = format!("SELECT pg_catalog.setval({name}, {value}, {is_called})");
            self.add(section, "sequence", sequence.schema, &sequence.name, statement);
        }
    }

    fn after_data(&mut self) {
        let section = "post-data";
        let catalog = self.source.catalog.clone();
        for table in catalog.tables.values() {
            let is_of_constraint = |index: Oid| {
                table.constraints.iter().any(|constraint| match constraint.kind {
                    ConstraintKind::PrimaryKey { index: of } | ConstraintKind::Unique { index: of } => {
                        of == index
                    }
                    ConstraintKind::Check { .. } | ConstraintKind::ForeignKey { .. } => false,
                })
            };
            for index in table.visible_indexes().filter(|index| !is_of_constraint(index.oid)) {
                let statement = self.source.index_definition(table, index);
                self.add(section, "index", table.schema, &index.name, statement);
            }
        }
        for table in catalog.tables.values() {
            for constraint in table.constraints.iter().filter(|constraint| is_added_later(constraint)) {
                let kind = match constraint.kind {
                    ConstraintKind::ForeignKey { .. } => "foreign key",
                    _ => "check",
                };
                let statement = format!(
                    "ALTER TABLE {} ADD CONSTRAINT {} {}",
                    self.name(&Object::Table(table)),
                    quote_identifier(&constraint.name),
                    self.source.constraint_definition(table, constraint),
                );
                self.add(section, kind, table.schema, &constraint.name, statement);
            }
        }
        for view in in_order(&catalog.views.values().cloned().collect::<Vec<_>>(), |view| {
            dependencies(&catalog, view)
        }) {
            let columns: Vec<String> =
                view.columns.iter().map(|column| quote_identifier(&column.name)).collect();
            let columns =
                if columns.is_empty() { String::new() } else { format!(" ({})", columns.join(", ")) };
            let statement =
                format!("CREATE VIEW {}{columns} AS {}", self.name(&Object::View(&view)), view.query);
            self.add(section, "view", view.schema, &view.name, statement);
        }
        for comment in catalog.comments.values() {
            for (column, text) in &comment.texts {
                let Some(object) = comments::commented(self.source, comment.oid, *column) else { continue };
                let statement = format!("COMMENT ON {object} IS {}", quote_literal(text));
                self.add(section, "comment", Oid::PUBLIC, "", statement);
            }
        }
    }

    fn name(&self, object: &Object<'_>) -> String {
        self.source.name_to_find(object)
    }

    fn create_table(&self, table: &TableDef) -> String {
        let mut elements: Vec<String> = table
            .visible_columns()
            .map(|(_, column)| {
                let default = match (&column.generated, super::rows::shown_default(column)) {
                    (Some(expression), _) => format!(" GENERATED ALWAYS AS ({expression}) STORED"),
                    (None, Some(default)) => format!(" DEFAULT {default}"),
                    (None, None) => String::new(),
                };
                let not_null = if column.not_null { " NOT NULL" } else { "" };
                format!("{} {}{default}{not_null}", quote_identifier(&column.name), column.ty)
            })
            .collect();
        for constraint in &table.constraints {
            if !is_added_later(constraint) {
                let definition = self.source.constraint_definition(table, constraint);
                elements.push(format!("CONSTRAINT {} {definition}", quote_identifier(&constraint.name)));
            }
        }
        let options: Vec<String> = parameter::options(&table.settings)
            .iter()
            .filter_map(|option| option.split_once('='))
            .map(|(name, value)| format!("{name} = {}", quote_literal(value)))
            .collect();
        let with = if options.is_empty() { String::new() } else { format!(" WITH ({})", options.join(", ")) };
        format!("CREATE TABLE {} ({}){with}", self.name(&Object::Table(table)), elements.join(", "))
    }
}

/// Whether a constraint is added after the rows: existing rows need not satisfy one that is NOT VALID.
fn is_added_later(constraint: &ConstraintDef) -> bool {
    matches!(constraint.kind, ConstraintKind::ForeignKey { .. }) || !constraint.valid
}

fn sequence_options(sequence: &SequenceDef) -> String {
    let SequenceDef { increment, minimum, maximum, start, .. } = sequence;
    let cycle = if sequence.cycle { " CYCLE" } else { "" };
    let cache = if sequence.cache == 1 { String::new() } else { format!(" CACHE {}", sequence.cache) };
    format!(
        " INCREMENT BY {increment} MINVALUE {minimum} MAXVALUE {maximum} START WITH {start}{cache}{cycle}"
    )
}

/// Views, each after those that it uses.
fn in_order(views: &[Arc<ViewDef>], made_of: impl Fn(&ViewDef) -> Vec<Oid>) -> Vec<Arc<ViewDef>> {
    let mut left: Vec<(Arc<ViewDef>, Vec<Oid>)> =
        views.iter().map(|view| (Arc::clone(view), made_of(view))).collect();
    let mut ordered = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let waiting: Vec<Oid> = left.iter().map(|(view, _)| view.oid).collect();
        let (ready, rest): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|(_, of)| !of.iter().any(|oid| waiting.contains(oid)));
        assert!(!ready.is_empty(), "no view is made of itself");
        ordered.extend(ready.into_iter().map(|(view, _)| view));
        left = rest;
    }
    ordered
}
