//! How SQL types appear as Arrow: the one table of types, and the way between cells and arrays.

use arrow_schema::{DataType, Field};
use firn_base::SqlType;

/// Key of the field metadata that carries the SQL type, so that `varchar(10)`, `char(3)` and `text`
/// or `numeric` and `numeric(38,16)` stay apart in schemas.
pub const SQL_TYPE_KEY: &str = "firn:type";

/// The Arrow type that scans yield and bulk inserts take for a column of type `ty`.
pub fn data_type(ty: SqlType) -> DataType {
    todo!("{ty}")
}

/// A field with [`SQL_TYPE_KEY`] metadata.
pub fn field(name: &str, ty: SqlType, nullable: bool) -> Field {
    todo!("{name} {ty} {nullable}")
}

/// The SQL type of a field: from its metadata, else the natural one of its Arrow type; `None` for
/// Arrow types that no SQL type stands for.
pub fn sql_type(field: &Field) -> Option<SqlType> {
    todo!("{field:?}")
}
