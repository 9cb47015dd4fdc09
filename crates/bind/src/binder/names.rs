//! What names of columns and relations mean.
//!
//! A query has a list of items: relations, joins, sub-queries. An unqualified name is looked up in the columns of all
//! items that show them, from the innermost query outwards; the first query that has it counts. A join hides the
//! columns of its sides and shows its own, in which USING and NATURAL have merged some.

use super::states::AMBIGUOUS_ALIAS;
use super::{Binder, Clause, Item, ItemColumn, LevelId, Operand, Reference, Table};
use crate::catalog::{Relation, RelationKind};
use firn_base::{Error, Result, SqlState, Type, TypeId, Value};
use firn_plan::operator::{ROW_ID, XMAX};
use firn_plan::scalar::{Call, Case};
use firn_plan::{Column, ColumnInfo, Operator, Origin, Scalar};
use firn_syntax::tree::{Name, ObjectName};
use firn_vector::ROW_VERSION;
use std::rc::Rc;

/// The columns that every row of a table has, with their numbers.
const SYSTEM_COLUMNS: [(&str, i16, TypeId); 6] = [
    ("ctid", ROW_ID, TypeId::TID),
    ("xmin", XMIN, TypeId::XID),
    ("cmin", -3, TypeId::CID),
    ("xmax", XMAX, TypeId::XID),
    ("cmax", -5, TypeId::CID),
    ("tableoid", TABLE_OID, TypeId::OID),
];
const XMIN: i16 = -2;
const TABLE_OID: i16 = -6;

/// Whether every row of a table has a column of that name.
pub fn is_system_column(name: &str) -> bool {
    SYSTEM_COLUMNS.iter().any(|(system, ..)| *system == name)
}

/// An item that a name means: the places of its query and its item.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub level: usize,
    pub item: usize,
}

impl Binder<'_> {
    /// A name as an expression: a column, or a whole row.
    pub(super) fn column_reference(&mut self, name: &ObjectName) -> Result<Operand> {
        let at = name.span().start;
        self.refuse_column(at)?;
        match &name.qualifiers[..] {
            [] => {
                if let Some(operand) = self.unqualified(&name.name.text, at)? {
                    return Ok(operand);
                }
                match self.find_item(None, &name.name.text, at)? {
                    Some(found) => self.whole_row(found, at),
                    None => Err(self.missing_column(None, &name.name.text, at)),
                }
            }
            [table] => {
                let found = self.find_item(None, &table.text, at)?;
                self.qualified(found, None, &table.text, &name.name, at)
            }
            [schema, table] => {
                let found = self.find_item(Some(&schema.text), &table.text, at)?;
                self.qualified(found, Some(&schema.text), &table.text, &name.name, at)
            }
            [catalog, schema, table] => {
                self.check_database(catalog, &dotted(name), at)?;
                let found = self.find_item(Some(&schema.text), &table.text, at)?;
                self.qualified(found, Some(&schema.text), &table.text, &name.name, at)
            }
            _ => {
                let message = format!("improper qualified name (too many dotted names): {}", dotted(name));
                Err(self.error(SqlState::SYNTAX_ERROR, message, at))
            }
        }
    }

    pub(super) fn check_database(&self, catalog: &Name, name: &str, at: u32) -> Result<()> {
        if *catalog.text == *self.catalog.database() {
            return Ok(());
        }
        let message = format!("cross-database references are not implemented: {name}");
        Err(self.error(SqlState::FEATURE_NOT_SUPPORTED, message, at))
    }

    fn qualified(
        &mut self,
        found: Option<Found>,
        schema: Option<&str>,
        table: &str,
        name: &Name,
        at: u32,
    ) -> Result<Operand> {
        let Some(found) = found else { return Err(self.missing_table(schema, table, at)) };
        match self.column_of(found, &name.text, at)? {
            Some(operand) => Ok(operand),
            None => Err(self.missing_column(Some(table), &name.text, at)),
        }
    }

    /// The column that an unqualified name means, in the innermost query that has one.
    fn unqualified(&mut self, name: &str, at: u32) -> Result<Option<Operand>> {
        for level in (0..self.levels.len()).rev() {
            let mut found: Option<Operand> = None;
            for item in 0..self.levels[level].items.len() {
                let this = &self.levels[level];
                let entry = &this.items[item];
                if !entry.has_columns || entry.lateral_only && !this.lateral_active {
                    continue;
                }
                let Some(operand) = self.column_of(Found { level, item }, name, at)? else { continue };
                if found.is_some() {
                    return Err(self.ambiguous(name, at));
                }
                self.check_lateral(Found { level, item }, at)?;
                self.note_name(Found { level, item }, name, at);
                found = Some(operand);
            }
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    pub(super) fn ambiguous(&self, name: &str, at: u32) -> Error {
        self.error(SqlState::AMBIGUOUS_COLUMN, format!("column reference \"{name}\" is ambiguous"), at)
    }

    /// A column of an item; system columns as well.
    fn column_of(&mut self, found: Found, name: &str, at: u32) -> Result<Option<Operand>> {
        self.refuse_generated(found, name, at)?;
        let level = &self.levels[found.level];
        let item = &level.items[found.item];
        let mut matching = item.columns.iter().filter(|column| &*column.name == name);
        if let Some(column) = matching.next() {
            if matching.next().is_some() {
                return Err(self.ambiguous(name, at));
            }
            let (column, alias, owner) = (column.clone(), level.tables[item.table].alias.clone(), level.id);
            return Ok(Some(self.reference(column, alias, owner, at)));
        }
        let Some(&(_, number, ty)) = SYSTEM_COLUMNS.iter().find(|(system, ..)| *system == name) else {
            return Ok(None);
        };
        self.system(found, number, ty, name, at)
    }

    /// A system column of an item; none if its rows have no such columns.
    fn system(
        &mut self,
        found: Found,
        number: i16,
        ty: TypeId,
        name: &str,
        at: u32,
    ) -> Result<Option<Operand>> {
        let level = &self.levels[found.level];
        let table = &level.tables[level.items[found.item].table];
        let Some(relation) = table.relation.clone() else { return Ok(None) };
        let id = Type::new(ty);
        if level.clause == Clause::Generated && number == TABLE_OID {
            return Ok(Some(Operand { scalar: Scalar::Constant(id, Value::Oid(relation.oid)), ty: id, at }));
        }
        if table.is_image {
            if let Some(column) = table.system.get(&number) {
                let (column, alias, owner) = (*column, table.alias.clone(), level.id);
                let column = ItemColumn { name: name.into(), value: Scalar::Column(column), ty: id };
                return Ok(Some(self.reference(column, alias, owner, at)));
            }
            let scalar = match number {
                TABLE_OID => Scalar::Constant(id, Value::Oid(relation.oid)),
                XMIN => self.row_version(found, at),
                _ => Scalar::Constant(id, Value::Oid(0)),
            };
            return Ok(Some(Operand { scalar, ty: id, at }));
        }
        let is_read = match relation.kind {
            RelationKind::Table(_) => number == ROW_ID,
            RelationKind::Source(_) if relation.has_system_columns => true,
            _ => return Ok(None),
        };
        if is_read {
            return Ok(self.system_column(found, number, ty, name, at));
        }
        let Some(row) = self.system_column(found, ROW_ID, TypeId::TID, "ctid", at) else { return Ok(None) };
        let value = match number {
            TABLE_OID => Scalar::Constant(id, Value::Oid(relation.oid)),
            XMIN => self.row_version(found, at),
            // A row that is seen has not been deleted, and nothing is known of the commands of its transaction.
            _ => Scalar::Constant(id, Value::Oid(0)),
        };
        // NULL where an outer join has no row.
        let case = Case {
            operand: None,
            arms: vec![(Scalar::IsNull(Box::new(row.scalar), true), value)],
            otherwise: Scalar::Constant(id, Value::Null),
        };
        Ok(Some(Operand { scalar: Scalar::Case(Box::new(case)), ty: id, at }))
    }

    /// What `xmin` shows: a hash of all values of the row.
    fn row_version(&mut self, found: Found, at: u32) -> Scalar {
        let level = &self.levels[found.level];
        let item = &level.items[found.item];
        let (columns, alias, owner) =
            (item.columns.to_vec(), level.tables[item.table].alias.clone(), level.id);
        let values =
            columns.into_iter().map(|column| self.reference(column, alias.clone(), owner, at).scalar);
        let row = Scalar::Row(values.collect());
        let function = self.registry.function(ROW_VERSION).expect("every registry has it");
        let function = self.handles.of(self.registry, function);
        Scalar::Call(Box::new(Call {
            function,
            as_operator: false,
            arguments: vec![row],
            ty: Type::new(TypeId::XID),
        }))
    }

    /// A column that every row of a table has, such as its id.
    fn system_column(
        &mut self,
        found: Found,
        number: i16,
        ty: TypeId,
        name: &str,
        at: u32,
    ) -> Option<Operand> {
        let level = &self.levels[found.level];
        let (place, owner) = (level.items[found.item].table, level.id);
        let table = &level.tables[place];
        let relation = table.relation.as_ref()?;
        if !matches!(relation.kind, RelationKind::Table(_)) && !relation.has_system_columns {
            return None;
        }
        let (scan, alias, oid) = (table.scan?, table.alias.clone(), relation.oid);
        let column = match table.system.get(&number) {
            Some(column) => *column,
            None => {
                let origin = Some(Origin { relation: oid, attribute: number });
                let info = ColumnInfo { ty: Type::new(ty), nullable: false, name: Some(name.into()), origin };
                let column = self.plan.columns.add(info);
                self.owners.insert(column, owner);
                let Operator::Scan(scan) = &mut self.plan[scan] else { panic!("relations are scanned") };
                scan.columns.push((column, number));
                let table = &mut self.levels[found.level].tables[place];
                table.system.insert(number, column);
                if table.is_padded {
                    self.padded.insert(column);
                }
                column
            }
        };
        let ty = Type::new(ty);
        let column = ItemColumn { name: name.into(), value: Scalar::Column(column), ty };
        Some(self.reference(column, alias, owner, at))
    }

    /// The column with the row ids of a table that the query at hand names.
    pub(super) fn row_id(&mut self, item: usize) -> Option<Column> {
        let level = self.levels.len() - 1;
        let operand = self.system_column(Found { level, item }, ROW_ID, TypeId::TID, "ctid", 0)?;
        operand.scalar.as_column()
    }

    /// A use of a column.
    pub(super) fn reference(
        &mut self,
        column: ItemColumn,
        table: Rc<str>,
        owner: LevelId,
        at: u32,
    ) -> Operand {
        let (references, owners) = (&mut self.references, &mut self.owners);
        column.value.for_each_column(&mut |used| {
            owners.insert(used, owner);
            let name = column.name.clone();
            references.push(Reference { column: used, at, table: table.clone(), name, owner });
        });
        self.note_columns(&column.value);
        Operand { scalar: column.value, ty: column.ty, at }
    }

    /// The item of that name, in the innermost query that has one.
    pub(super) fn find_item(&self, schema: Option<&str>, name: &str, at: u32) -> Result<Option<Found>> {
        let oid = match schema {
            None => None,
            Some(schema) => match self.catalog.relation(Some(schema), name)? {
                Some(relation) => Some(relation.oid),
                None => return Ok(None),
            },
        };
        for (place, level) in self.levels.iter().enumerate().rev() {
            let mut found = None;
            for (number, item) in level.items.iter().enumerate() {
                if !item.has_name || item.lateral_only && !level.lateral_active {
                    continue;
                }
                let table = &level.tables[item.table];
                let is_named = match oid {
                    Some(oid) => {
                        !table.has_alias
                            && table.relation.as_ref().is_some_and(|relation| relation.oid == oid)
                    }
                    None => &*table.alias == name,
                };
                if !is_named {
                    continue;
                }
                if found.is_some() {
                    let message = format!("table reference \"{name}\" is ambiguous");
                    return Err(self.error(AMBIGUOUS_ALIAS, message, at));
                }
                found = Some(Found { level: place, item: number });
            }
            if let Some(found) = found {
                self.check_lateral(found, at)?;
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Whether an item that only LATERAL sees may be seen from this side of a join.
    fn check_lateral(&self, found: Found, at: u32) -> Result<()> {
        let level = &self.levels[found.level];
        let item = &level.items[found.item];
        if !item.lateral_only || item.lateral_ok {
            return Ok(());
        }
        let alias = &level.tables[item.table].alias;
        let message = format!("invalid reference to FROM-clause entry for table \"{alias}\"");
        let error = self.error(SqlState::INVALID_COLUMN_REFERENCE, message, at);
        Err(error.with_detail("The combining JOIN type must be INNER or LEFT for a LATERAL reference."))
    }

    /// The row of an item as one value.
    fn whole_row(&mut self, found: Found, at: u32) -> Result<Operand> {
        self.refuse_whole_row(at)?;
        let columns = self.all_columns_of(found, at);
        // An item of one column that a scalar function gives is its value.
        let table = &self.levels[found.level].tables[self.levels[found.level].items[found.item].table];
        if table.is_scalar_function() {
            return Ok(Operand { at, ..columns.into_iter().next().expect("it has a column").1 });
        }
        let relation = table.relation.as_ref().map(|relation| (&*relation.name).into());
        Ok(self.named_row(relation, columns, at))
    }

    /// The columns of an item: `t.*`.
    pub(super) fn all_columns_of(&mut self, found: Found, at: u32) -> Vec<(Rc<str>, Operand)> {
        let level = &self.levels[found.level];
        let item = &level.items[found.item];
        let (columns, alias, owner) =
            (item.columns.clone(), level.tables[item.table].alias.clone(), level.id);
        let shown = columns.len() - level.tables[item.table].unexpanded;
        let operand = |column: &ItemColumn| {
            let name = column.name.clone();
            (name, self.reference(column.clone(), alias.clone(), owner, at))
        };
        columns[..shown].iter().map(operand).collect()
    }

    /// The columns of all items of the query at hand: `*`.
    pub(super) fn all_columns(&mut self, at: u32) -> Result<Vec<(Rc<str>, Operand)>> {
        let level = self.levels.len() - 1;
        let shown: Vec<usize> = (0..self.levels[level].items.len())
            .filter(|item| self.levels[level].items[*item].has_columns)
            .collect();
        if shown.is_empty() {
            return Err(self.error(
                SqlState::SYNTAX_ERROR,
                "SELECT * with no tables specified is not valid",
                at,
            ));
        }
        Ok(shown.into_iter().flat_map(|item| self.all_columns_of(Found { level, item }, at)).collect())
    }

    /// The columns that `t.*` means, with any qualifiers.
    pub(super) fn qualified_star(&mut self, name: &ObjectName) -> Result<Vec<(Rc<str>, Operand)>> {
        let at = name.span().start;
        let schema = match &name.qualifiers[..] {
            [] => None,
            [schema] => Some(&*schema.text),
            [catalog, schema] => {
                self.check_database(catalog, &format!("{}.*", dotted(name)), at)?;
                Some(&*schema.text)
            }
            _ => {
                let parts: Vec<&str> = name.parts().map(|part| &*part.text).collect();
                let message =
                    format!("improper qualified name (too many dotted names): {}.*", parts.join("."));
                return Err(self.error(SqlState::SYNTAX_ERROR, message, at));
            }
        };
        match self.find_item(schema, &name.name.text, at)? {
            Some(found) => Ok(self.all_columns_of(found, at)),
            None => Err(self.missing_table(schema, &name.name.text, at)),
        }
    }

    /// Adds a relation to the query at hand. Returns its place among the items.
    pub(super) fn add_item(&mut self, table: Table) -> usize {
        let columns = table.columns.clone();
        let level = self.level();
        level.tables.push(table);
        let item = Item {
            table: level.tables.len() - 1,
            columns,
            has_name: true,
            has_columns: true,
            lateral_only: false,
            lateral_ok: true,
        };
        level.items.push(item);
        level.items.len() - 1
    }
}

impl Table {
    /// A relation that is not one of the catalog: a sub-query, a common table, a function.
    pub(super) fn derived(alias: &str, columns: Vec<ItemColumn>) -> Table {
        Table {
            alias: alias.into(),
            has_alias: true,
            relation: None,
            is_join: false,
            is_padded: false,
            is_function: false,
            is_common: false,
            is_image: false,
            unexpanded: 0,
            columns: columns.into(),
            scan: None,
            system: Default::default(),
        }
    }

    /// A relation of the catalog.
    pub(super) fn of_relation(
        relation: std::sync::Arc<Relation>,
        alias: Option<&str>,
        columns: Vec<ItemColumn>,
        scan: Option<firn_plan::NodeId>,
    ) -> Table {
        Table {
            alias: alias.unwrap_or(&relation.name).into(),
            has_alias: alias.is_some(),
            relation: Some(relation),
            is_join: false,
            is_padded: false,
            is_function: false,
            is_common: false,
            is_image: false,
            unexpanded: 0,
            columns: columns.into(),
            scan,
            system: Default::default(),
        }
    }

    fn is_scalar_function(&self) -> bool {
        self.scan.is_none() && self.relation.is_none() && self.columns.len() == 1 && self.is_function
    }
}

/// A name with dots.
fn dotted(name: &ObjectName) -> String {
    let parts: Vec<&str> = name.parts().map(|part| &*part.text).collect();
    parts.join(".")
}
