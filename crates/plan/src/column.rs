//! Columns: numbers that are unique in a statement.
//!
//! Names end in the binder. Below it an operator produces columns and other operators use them by
//! number, so that two columns of one name cannot be taken for each other. What is known of a
//! column stands once in the plan's [`Columns`].

use firn_base::Type;
use std::fmt;
use std::sync::Arc;

/// A column of a statement: the number of its entry in [`Columns`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Column(pub u32);

impl fmt::Debug for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The column of a relation that values come from unchanged: what RowDescription reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// `pg_class.oid`.
    pub relation: u32,
    /// `pg_attribute.attnum`.
    pub attribute: i16,
}

/// What is known of a column where it is produced.
#[derive(Clone, PartialEq, Debug)]
pub struct ColumnInfo {
    /// The type of its values.
    pub ty: Type,
    /// Whether the operator that produces it may produce NULL. Outer joins above may add NULLs:
    /// [`properties::Scope`](crate::properties::Scope) says what holds at an operator.
    pub nullable: bool,
    /// The name that it was bound from, for printing alone.
    pub name: Option<Arc<str>>,
    /// Where its values come from.
    pub origin: Option<Origin>,
}

impl ColumnInfo {
    /// A column without name and origin.
    pub fn new(ty: Type, nullable: bool) -> ColumnInfo {
        ColumnInfo { ty, nullable, name: None, origin: None }
    }

    /// The same with the name that it was bound from.
    pub fn named(self, name: impl Into<Arc<str>>) -> ColumnInfo {
        ColumnInfo { name: Some(name.into()), ..self }
    }
}

/// All columns of a statement. An entry is never removed; one that no operator produces is unused.
#[derive(Clone, Default, Debug)]
pub struct Columns(Vec<ColumnInfo>);

impl Columns {
    /// A new column.
    pub fn add(&mut self, info: ColumnInfo) -> Column {
        self.0.push(info);
        Column(self.0.len() as u32 - 1)
    }

    /// A new column that is described as another one.
    pub fn copy_of(&mut self, column: Column) -> Column {
        self.add(self[column].clone())
    }

    /// The type of each, by its number.
    pub fn types(&self) -> impl Iterator<Item = Type> {
        self.0.iter().map(|info| info.ty)
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut ColumnInfo> {
        self.0.iter_mut()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is known of a column, if there is one of that number.
    pub fn get(&self, column: Column) -> Option<&ColumnInfo> {
        self.0.get(column.0 as usize)
    }
}

impl std::ops::Index<Column> for Columns {
    type Output = ColumnInfo;

    fn index(&self, column: Column) -> &ColumnInfo {
        &self.0[column.0 as usize]
    }
}

impl std::ops::IndexMut<Column> for Columns {
    fn index_mut(&mut self, column: Column) -> &mut ColumnInfo {
        &mut self.0[column.0 as usize]
    }
}
