//! Catalog objects by oid and by name, and the SQL text that would create them again.

use super::relation::{self, Relation};
use super::{Source, deparse};
use crate::ddl::parameter::index_options;
use firn_base::{Error, Result, SqlState};
use firn_txn::catalog::{
    ConstraintDef, ConstraintKind, Deferral, IndexDef, Oid, ReferentialAction, SequenceDef, TableDef, ViewDef,
};

/// An object with a row in `pg_class`.
pub(crate) enum Object<'a> {
    Table(&'a TableDef),
    Index(&'a TableDef, &'a IndexDef),
    View(&'a ViewDef),
    Sequence(&'a SequenceDef),
    /// A relation of one of the system schemas.
    System(Oid, &'static Relation),
}

impl Object<'_> {
    pub(crate) fn oid(&self) -> i64 {
        match self {
            Object::Table(table) => number(table.oid),
            Object::Index(_, index) => number(index.oid),
            Object::View(view) => number(view.oid),
            Object::Sequence(sequence) => number(sequence.oid),
            Object::System(_, relation) => relation.oid,
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Object::Table(table) => &table.name,
            Object::Index(_, index) => &index.name,
            Object::View(view) => &view.name,
            Object::Sequence(sequence) => &sequence.name,
            Object::System(_, relation) => relation.name,
        }
    }

    pub(crate) fn schema(&self) -> Oid {
        match self {
            Object::Table(table) | Object::Index(table, _) => table.schema,
            Object::View(view) => view.schema,
            Object::Sequence(sequence) => sequence.schema,
            Object::System(schema, _) => *schema,
        }
    }
}

/// An oid in the form of catalog columns.
pub(crate) fn number(oid: Oid) -> i64 {
    i64::from(oid.0)
}

impl Source {
    /// All objects with a row in `pg_class`.
    pub(crate) fn objects(&self) -> impl Iterator<Item = Object<'_>> {
        let catalog = &self.catalog;
        let tables = catalog.tables.values().map(|table| Object::Table(table));
        let indexes = catalog
            .tables
            .values()
            .flat_map(|table| table.visible_indexes().map(move |index| Object::Index(table, index)));
        let views = catalog.views.values().map(|view| Object::View(view));
        let sequences = catalog.sequences.values().map(|sequence| Object::Sequence(sequence));
        let system = relation::all().iter().map(|relation| Object::System(Oid::PG_CATALOG, relation));
        let standard = crate::information_schema::all()
            .iter()
            .map(|relation| Object::System(Oid::INFORMATION_SCHEMA, relation));
        tables.chain(indexes).chain(views).chain(sequences).chain(system).chain(standard)
    }

    /// The object with an oid.
    pub(crate) fn object(&self, oid: i64) -> Option<Object<'_>> {
        self.objects().find(|object| object.oid() == oid)
    }

    /// The object with a name, which may be qualified and quoted; without a schema the first one on
    /// the search path.
    pub(crate) fn object_by_name(&self, name: &str) -> Option<Object<'_>> {
        let parts = split_name(name)?;
        match parts.as_slice() {
            [name] => self
                .objects()
                .filter(|object| object.name() == name && self.is_searched(object.schema()))
                .min_by_key(|object| self.search_position(object.schema())),
            [schema, name] | [_, schema, name] => self
                .objects()
                .find(|object| object.name() == name && self.schema_name(object.schema()) == schema),
            _ => None,
        }
    }

    /// 3F000 if a name has a schema that does not exist.
    pub(crate) fn check_schema_of(&self, name: &str) -> Result<()> {
        let parts = split_name(name).unwrap_or_default();
        let [.., schema, _] = &parts[..] else { return Ok(()) };
        match self.schemas().any(|(_, known)| known == schema) {
            true => Ok(()),
            false => {
                Err(Error::new(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{schema}\" does not exist")))
            }
        }
    }

    /// `pg_catalog` comes first, then the schemas of the search path.
    fn search_position(&self, schema: Oid) -> usize {
        let searched = |name: &String| name == self.schema_name(schema);
        match schema {
            Oid::PG_CATALOG => 0,
            _ => 1 + self.facts.search_path.iter().position(searched).unwrap_or(usize::MAX - 1),
        }
    }

    /// Whether a name without schema finds this object and no other.
    pub(crate) fn is_visible(&self, object: &Object<'_>) -> bool {
        self.is_searched(object.schema())
            && self
                .object_by_name(&quote_identifier(object.name()))
                .is_some_and(|found| found.oid() == object.oid())
    }

    /// The name by which an object is found: with its schema only if needed.
    pub(crate) fn name_to_find(&self, object: &Object<'_>) -> String {
        let name = quote_identifier(object.name());
        match self.is_visible(object) {
            true => name,
            false => format!("{}.{name}", quote_identifier(self.schema_name(object.schema()))),
        }
    }

    /// CREATE INDEX.
    pub(crate) fn index_definition(&self, table: &TableDef, index: &IndexDef) -> String {
        let columns: Vec<String> =
            (0..index.key_columns().len()).map(|column| self.index_column(table, index, column)).collect();
        let condition = index.condition.as_deref().map(|text| self.index_condition(table, text, false));
        let condition = condition.map(|condition| format!(" WHERE {condition}")).unwrap_or_default();
        format!(
            "CREATE {}INDEX {} ON {}.{} USING btree ({}){}{}{}{condition}",
            if index.unique { "UNIQUE " } else { "" },
            quote_identifier(&index.name),
            quote_identifier(self.schema_name(table.schema)),
            quote_identifier(&table.name),
            columns.join(", "),
            include(table, index),
            if index.nulls_not_distinct { " NULLS NOT DISTINCT" } else { "" },
            with_options(index),
        )
    }

    /// A constraint in the form that follows its name in ADD CONSTRAINT, and in CREATE TABLE unless it is NOT VALID.
    pub(crate) fn constraint_definition(&self, table: &TableDef, constraint: &ConstraintDef) -> String {
        self.constraint_with(table, constraint, with_options, str::to_owned)
    }

    /// A constraint as PostgreSQL prints it.
    pub(crate) fn shown_constraint(
        &self,
        table: &TableDef,
        constraint: &ConstraintDef,
        pretty: bool,
    ) -> String {
        // PostgreSQL leaves the parameters of its index out.
        let without = |_: &IndexDef| String::new();
        self.constraint_with(table, constraint, without, |text| deparse::condition(self, table, text, pretty))
    }

    fn constraint_with(
        &self,
        table: &TableDef,
        constraint: &ConstraintDef,
        options: impl Fn(&IndexDef) -> String,
        condition: impl Fn(&str) -> String,
    ) -> String {
        let mut text = match &constraint.kind {
            ConstraintKind::PrimaryKey { index } => format!("PRIMARY KEY {}", key(table, *index, options)),
            ConstraintKind::Unique { index } => {
                let is_it = |found: &&IndexDef| found.oid == *index;
                let nulls =
                    match table.indexes.iter().find(is_it).is_some_and(|index| index.nulls_not_distinct) {
                        true => "NULLS NOT DISTINCT ",
                        false => "",
                    };
                format!("UNIQUE {nulls}{}", key(table, *index, options))
            }
            ConstraintKind::Check { expression } => format!("CHECK ({})", condition(expression)),
            ConstraintKind::ForeignKey {
                columns,
                parent,
                parent_columns,
                on_delete,
                on_delete_columns,
                on_update,
                match_full,
                ..
            } => {
                let Some(parent) = self.catalog.tables.get(parent) else { return String::new() };
                let mut text = format!(
                    "FOREIGN KEY ({}) REFERENCES {}({})",
                    column_names(table, columns),
                    self.name_to_find(&Object::Table(parent)),
                    column_names(parent, parent_columns),
                );
                if *match_full {
                    text.push_str(" MATCH FULL");
                }
                for (event, action) in [("UPDATE", on_update), ("DELETE", on_delete)] {
                    if let Some(action) = action_name(*action) {
                        text.push_str(&format!(" ON {event} {action}"));
                    }
                }
                if !on_delete_columns.is_empty() {
                    text.push_str(&format!(" ({})", column_names(table, on_delete_columns)));
                }
                text
            }
        };
        text.push_str(match table.deferral(constraint) {
            Deferral::Never => "",
            Deferral::InitiallyImmediate => " DEFERRABLE",
            Deferral::InitiallyDeferred => " DEFERRABLE INITIALLY DEFERRED",
        });
        if !constraint.valid {
            text.push_str(" NOT VALID");
        }
        text
    }
}

impl Source {
    /// A column of an index with its order, where that is not the default.
    fn index_column(&self, table: &TableDef, index: &IndexDef, position: usize) -> String {
        let column = &index.key_columns()[position];
        let name = self.index_key(table, index, position, false);
        let order = match (column.descending, column.nulls_first) {
            (false, false) => "",
            (false, true) => " NULLS FIRST",
            (true, true) => " DESC",
            (true, false) => " DESC NULLS LAST",
        };
        let class = index.annotations.class(position).map_or_else(String::new, |class| format!(" {class}"));
        format!("{name}{class}{order}")
    }

    /// A column of an index, or an expression, which has parentheses unless it looks like a call.
    pub(crate) fn index_key(
        &self,
        table: &TableDef,
        index: &IndexDef,
        position: usize,
        pretty: bool,
    ) -> String {
        let column = &table.columns[usize::from(index.key_columns()[position].column)];
        match column.generated.as_deref().filter(|_| column.hidden) {
            None => quote_identifier(&column.name),
            Some(text) => {
                let shown = deparse::indexed(self, table, text, pretty);
                if crate::ddl::looks_like_function(text) { shown } else { format!("({shown})") }
            }
        }
    }

    /// WHERE of an index.
    pub(crate) fn index_condition(&self, table: &TableDef, text: &str, pretty: bool) -> String {
        deparse::index_condition(self, table, text, pretty)
    }
}

/// The columns of a constraint's index, in parentheses, with the options after them.
fn key(table: &TableDef, index: Oid, options: impl Fn(&IndexDef) -> String) -> String {
    let Some(index) = table.indexes.iter().find(|candidate| candidate.oid == index) else {
        return "()".to_owned();
    };
    let columns: Vec<u16> = index.columns.iter().map(|column| column.column).collect();
    format!("({}){}{}", column_names(table, &columns), include(table, index), options(index))
}

/// INCLUDE of an index.
fn include(table: &TableDef, index: &IndexDef) -> String {
    match &index.annotations.include[..] {
        [] => String::new(),
        columns => format!(" INCLUDE ({})", column_names(table, columns)),
    }
}

/// WITH of an index: a value that is no name is quoted.
fn with_options(index: &IndexDef) -> String {
    let options = index_options(index);
    let option = |option: &String| match option.split_once('=') {
        Some((name, value)) if quote_identifier(value) != value => format!("{name}='{value}'"),
        _ => option.clone(),
    };
    match &options[..] {
        [] => String::new(),
        options => format!(" WITH ({})", options.iter().map(option).collect::<Vec<_>>().join(", ")),
    }
}

fn column_names(table: &TableDef, columns: &[u16]) -> String {
    let names: Vec<String> =
        columns.iter().map(|column| quote_identifier(&table.columns[usize::from(*column)].name)).collect();
    names.join(", ")
}

/// The action in SQL, unless it is the default.
pub(crate) fn action_name(action: ReferentialAction) -> Option<&'static str> {
    match action {
        ReferentialAction::NoAction => None,
        ReferentialAction::Restrict => Some("RESTRICT"),
        ReferentialAction::Cascade => Some("CASCADE"),
        ReferentialAction::SetNull => Some("SET NULL"),
        ReferentialAction::SetDefault => Some("SET DEFAULT"),
    }
}

pub(crate) use firn_syntax::print::quote_name as quote_identifier;

/// Splits `schema."Name"` into parts; names without quotes are folded to lower case.
pub(crate) fn split_name(text: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = text.trim();
    loop {
        let part;
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut name = String::new();
            let mut characters = quoted.char_indices().peekable();
            let end = loop {
                match characters.next()? {
                    (_, '"') if characters.peek().is_some_and(|(_, next)| *next == '"') => {
                        characters.next();
                        name.push('"');
                    }
                    (position, '"') => break position,
                    (_, character) => name.push(character),
                }
            };
            part = name;
            rest = quoted[end + 1..].trim_start();
        } else {
            let end = rest.find('.').unwrap_or(rest.len());
            part = rest[..end].trim().to_lowercase();
            rest = &rest[end..];
        }
        if part.is_empty() {
            return None;
        }
        parts.push(part);
        match rest.strip_prefix('.') {
            Some(after) => rest = after.trim_start(),
            None if rest.is_empty() => return Some(parts),
            None => return None,
        }
    }
}
