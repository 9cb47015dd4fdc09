//! WITH: common tables, each evaluated once however often it is read.

use super::{Binder, ItemColumn, Output, Rows};
use firn_base::{Result, SqlState, Type};
use firn_plan::operator::{IterateId, SharedId};
use firn_plan::{Column, ColumnInfo, NodeId, Operator, Scalar};
use firn_syntax::tree::{Alias, CommonTable, Statement, With};
use std::cell::RefCell;
use std::rc::Rc;

/// A common table while its query is bound.
pub(crate) struct CommonTableEntry {
    pub name: Rc<str>,
    pub state: CommonState,
}

/// What reading a common table means.
pub(crate) enum CommonState {
    /// It stands later in the same WITH.
    Later,
    /// Its query is being bound, and must not read it here.
    Forbidden(&'static str),
    /// Its recursive term is being bound, which has read it at `at`.
    Recursive {
        iterate: IterateId,
        columns: Vec<(Rc<str>, Type)>,
        /// How many of the last columns `*` does not mean.
        unexpanded: usize,
        reads: u32,
        at: u32,
    },
    /// It has been bound.
    Bound { shared: SharedId, columns: Vec<(Rc<str>, Column)>, readers: Vec<NodeId>, is_change: bool },
}

/// A common table that a plan is to be put around.
pub(super) struct Definition {
    entry: Rc<RefCell<CommonTableEntry>>,
    node: NodeId,
    materialized: Option<bool>,
    is_change: bool,
}

impl Binder<'_> {
    /// WITH. Returns what the query behind it must be put into.
    pub(super) fn with_clause(&mut self, with: &With) -> Result<Vec<Definition>> {
        for (place, table) in with.tables.iter().enumerate() {
            if with.tables[..place].iter().any(|other| other.name.text == table.name.text) {
                let message = format!("WITH query name \"{}\" specified more than once", table.name.text);
                return Err(self.error(super::states::DUPLICATE_ALIAS, message, table.name.span.start));
            }
        }
        let mut definitions = Vec::with_capacity(with.tables.len());
        let entries: Vec<Rc<RefCell<CommonTableEntry>>> = with
            .tables
            .iter()
            .map(|table| {
                Rc::new(RefCell::new(CommonTableEntry {
                    name: (&*table.name.text).into(),
                    state: CommonState::Later,
                }))
            })
            .collect();
        let order =
            if with.is_recursive { self.dependency_order(with)? } else { (0..with.tables.len()).collect() };
        self.level().common.extend(entries.iter().cloned());
        for place in order {
            let (table, entry) = (&with.tables[place], &entries[place]);
            let is_change = !matches!(table.statement, Statement::Query(_));
            let rows = if with.is_recursive && !is_change && self.mentions(table, &table.name.text) {
                self.recursive_table(table, entry)?
            } else {
                self.refuse_additions(table)?;
                self.plain_table(table)?
            };
            let columns = self.named_columns(table, rows.columns)?;
            let shared = self.new_shared();
            let columns = columns
                .into_iter()
                .map(|(name, output)| (name, output.value.as_column().expect("it is projected")));
            let columns = columns.collect();
            entry.borrow_mut().state = CommonState::Bound { shared, columns, readers: Vec::new(), is_change };
            definitions.push(Definition {
                entry: entry.clone(),
                node: rows.node,
                materialized: table.is_materialized,
                is_change,
            });
        }
        Ok(definitions)
    }

    fn plain_table(&mut self, table: &CommonTable) -> Result<Rows> {
        match &table.statement {
            Statement::Query(query) => {
                let rows = self.query(query, true)?;
                self.projected(rows)
            }
            change => {
                if self.levels.len() > 1 {
                    let message =
                        "WITH clause containing a data-modifying statement must be at the top level";
                    return Err(self.error(SqlState::FEATURE_NOT_SUPPORTED, message, table.name.span.start));
                }
                self.change(change)
            }
        }
    }

    /// The columns of a common table with the names that it gives them.
    pub(super) fn named_columns(
        &self,
        table: &CommonTable,
        columns: Vec<Output>,
    ) -> Result<Vec<(Rc<str>, Output)>> {
        if table.columns.len() > columns.len() {
            let message = format!(
                "WITH query \"{}\" has {} columns available but {} columns specified",
                table.name.text,
                columns.len(),
                table.columns.len()
            );
            return Err(self.error(SqlState::INVALID_COLUMN_REFERENCE, message, table.name.span.start));
        }
        let name = |place: usize, output: &Output| match table.columns.get(place) {
            Some(name) => (&*name.text).into(),
            None => output.name.clone(),
        };
        Ok(columns.into_iter().enumerate().map(|(place, output)| (name(place, &output), output)).collect())
    }

    /// Puts a plan into the common tables that it reads. One that is read once, and is not volatile, is put where it is read.
    pub(super) fn with_definitions(&mut self, definitions: Vec<Definition>, body: NodeId) -> NodeId {
        let mut node = body;
        for definition in definitions.into_iter().rev() {
            let entry = definition.entry.borrow();
            let CommonState::Bound { shared, readers, .. } = &entry.state else {
                panic!("a definition has been bound")
            };
            if !definition.is_change {
                if readers.is_empty() {
                    continue;
                }
                let is_volatile = self
                    .plan
                    .post_order_of(definition.node)
                    .into_iter()
                    .any(|node| firn_plan::properties::is_volatile(&self.plan, node));
                if let ([reader], false) = (&readers[..], is_volatile)
                    && definition.materialized != Some(true)
                {
                    let Operator::SharedRead { columns, .. } = self.plan[*reader].clone() else {
                        panic!("readers read")
                    };
                    let outputs = columns.into_iter().map(|(own, of)| (own, Scalar::Column(of))).collect();
                    self.plan[*reader] = Operator::Map { input: definition.node, outputs };
                    continue;
                }
            }
            node = self.plan.add(Operator::Shared { id: *shared, definition: definition.node, body: node });
        }
        node
    }

    /// A read of the common table of that name, if there is one.
    pub(super) fn common_table(
        &mut self,
        name: &str,
        alias: Option<&Alias>,
        at: u32,
    ) -> Result<Option<NodeId>> {
        let found = self.levels.iter().enumerate().rev().find_map(|(place, level)| {
            let entry = level.common.iter().rev().find(|entry| &*entry.borrow().name == name)?;
            (!matches!(entry.borrow().state, CommonState::Later)).then(|| (place, entry.clone()))
        });
        let Some((_, entry)) = found else { return Ok(None) };
        let known_as = alias.map_or(name, |alias| &alias.name.text);
        let mut unexpanded = 0;
        let mut borrowed = entry.borrow_mut();
        let (node, columns) = match &mut borrowed.state {
            CommonState::Later => return Ok(None),
            CommonState::Forbidden(place) => {
                let message = format!("recursive reference to query \"{name}\" must not appear {place}");
                return Err(self.error(super::states::INVALID_RECURSION, message, at));
            }
            CommonState::Recursive { iterate, columns, unexpanded: last, reads, at: read_at } => {
                unexpanded = *last;
                *reads += 1;
                *read_at = at;
                if *reads > 1 {
                    let message =
                        format!("recursive reference to query \"{name}\" must not appear more than once");
                    return Err(self.error(super::states::INVALID_RECURSION, message, at));
                }
                let iterate = *iterate;
                let columns = columns.clone();
                self.level().is_recursive_term = true;
                let mut produced = Vec::with_capacity(columns.len());
                let mut items = Vec::with_capacity(columns.len());
                for (name, ty) in columns {
                    let column = self.new_column(ColumnInfo::new(ty, true).named(&*name));
                    produced.push(column);
                    items.push(ItemColumn { name, value: Scalar::Column(column), ty });
                }
                (self.plan.add(Operator::IterateRead { iterate, columns: produced }), items)
            }
            CommonState::Bound { shared, columns, readers, is_change } => {
                if *is_change && columns.is_empty() {
                    let message = format!("WITH query \"{name}\" does not have a RETURNING clause");
                    return Err(self.error(SqlState::FEATURE_NOT_SUPPORTED, message, at));
                }
                let (shared, columns) = (*shared, columns.clone());
                let mut pairs = Vec::with_capacity(columns.len());
                let mut items = Vec::with_capacity(columns.len());
                for (name, of) in columns {
                    let info = ColumnInfo {
                        nullable: self.column_nullable(of),
                        name: Some((&*name).into()),
                        ..self.plan.columns[of].clone()
                    };
                    let ty = info.ty;
                    let column = self.new_column(info);
                    pairs.push((column, of));
                    items.push(ItemColumn { name, value: Scalar::Column(column), ty });
                }
                let node = self.plan.add(Operator::SharedRead { id: shared, columns: pairs });
                readers.push(node);
                (node, items)
            }
        };
        drop(borrowed);
        let item = self.add_derived(known_as, columns, alias)?;
        let level = self.level();
        let table = level.items[item].table;
        level.tables[table].is_common = true;
        level.tables[table].unexpanded = unexpanded;
        Ok(Some(node))
    }

    /// Whether a common table of that name exists that cannot be read here.
    pub(super) fn is_later_common_table(&self, name: &str) -> bool {
        let is_later = |entry: &Rc<RefCell<CommonTableEntry>>| {
            let entry = entry.borrow();
            &*entry.name == name && matches!(entry.state, CommonState::Later)
        };
        self.levels.iter().any(|level| level.common.iter().any(is_later))
    }
}
