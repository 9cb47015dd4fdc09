//! Functions that return sets and need the catalog or the session.

use super::functions::source;
use crate::pg_catalog::{self, Cell, Relation};
use firn_base::{Representation, Result, Type, TypeId, Value};
use firn_executor::values;
use firn_syntax::{Category, KEYWORDS, Keyword};
use firn_vector::Datum;
use firn_vector::builder::Builder;
use firn_vector::kernel::{Call, Set, SetKernel};
use firn_vector::registry::RegistryBuilder;

/// Registers them.
pub(super) fn register(builder: &mut RegistryBuilder) {
    for (signature, relation) in [
        ("pg_cursor()", "pg_cursors"),
        ("pg_lock_status()", "pg_locks"),
        ("pg_prepared_statement()", "pg_prepared_statements"),
        ("pg_show_all_settings()", "pg_settings"),
        ("pg_timezone_abbrevs()", "pg_timezone_abbrevs"),
        ("pg_timezone_names()", "pg_timezone_names"),
    ] {
        let relation = pg_catalog::find("pg_catalog", relation).expect("it is a relation");
        builder.set(signature, Rows { relation });
    }
    builder.set("pg_get_keywords()", Keywords);
    builder.set("pg_stat_get_activity(int4)", Sessions);
    builder.set("pg_listening_channels()", Channels);
    // No privileges are granted, and there are no partitions.
    builder.set("aclexplode(_aclitem) pg_partition_ancestors(regclass) pg_partition_tree(regclass)", Nothing);
}

/// The rows of a relation whose columns are those of the function.
struct Rows {
    relation: &'static Relation,
}

impl SetKernel for Rows {
    fn can_fail(&self) -> bool {
        false
    }

    fn begin(&self, call: &mut Call<'_>, _: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        let (count, cells) = self.relation.cells(source(call)?);
        let columns = self.relation.columns.iter().zip(cells).map(|(column, cells)| {
            let representation = column.ty.representation().expect("columns of catalogs have built-in types");
            let values = cells.into_iter().map(|cell| cell.into_value(column.ty).unwrap_or(Value::Null));
            (representation, values.collect())
        });
        Ok(Some(Box::new(Values { columns: columns.collect(), next: 0, count })))
    }
}

/// Rows that are complete.
struct Values {
    columns: Vec<(Representation, Vec<Value>)>,
    next: usize,
    count: usize,
}

impl Set for Values {
    fn next(&mut self, _: &mut Call<'_>, columns: &mut [Builder], most: usize) -> Result<bool> {
        let end = self.count.min(self.next + most);
        for ((representation, values), builder) in self.columns.iter().zip(columns) {
            values[self.next..end].iter().for_each(|value| values::push(builder, value, *representation));
        }
        self.next = end;
        Ok(end < self.count)
    }
}

/// `pg_stat_get_activity`: all sessions, or the one with a number.
struct Sessions;

impl Sessions {
    /// Its columns, as `pg_proc` lists them.
    const COLUMNS: [(&str, TypeId); 30] = [
        ("datid", TypeId::OID),
        ("pid", TypeId::INT4),
        ("usesysid", TypeId::OID),
        ("application_name", TypeId::TEXT),
        ("state", TypeId::TEXT),
        ("query", TypeId::TEXT),
        ("wait_event_type", TypeId::TEXT),
        ("wait_event", TypeId::TEXT),
        ("xact_start", TypeId::TIMESTAMPTZ),
        ("query_start", TypeId::TIMESTAMPTZ),
        ("backend_start", TypeId::TIMESTAMPTZ),
        ("state_change", TypeId::TIMESTAMPTZ),
        ("client_addr", TypeId::TEXT),
        ("client_hostname", TypeId::TEXT),
        ("client_port", TypeId::INT4),
        ("backend_xid", TypeId::XID),
        ("backend_xmin", TypeId::XID),
        ("backend_type", TypeId::TEXT),
        ("ssl", TypeId::BOOL),
        ("sslversion", TypeId::TEXT),
        ("sslcipher", TypeId::TEXT),
        ("sslbits", TypeId::INT4),
        ("ssl_client_dn", TypeId::TEXT),
        ("ssl_client_serial", TypeId::NUMERIC),
        ("ssl_issuer_dn", TypeId::TEXT),
        ("gss_auth", TypeId::BOOL),
        ("gss_princ", TypeId::TEXT),
        ("gss_enc", TypeId::BOOL),
        ("leader_pid", TypeId::INT4),
        ("query_id", TypeId::INT8),
    ];

    /// What `pg_stat_ssl` calls a column.
    fn name_in_ssl(name: &str) -> &str {
        match name {
            "sslversion" => "version",
            "sslcipher" => "cipher",
            "sslbits" => "bits",
            "ssl_client_dn" => "client_dn",
            "ssl_client_serial" => "client_serial",
            "ssl_issuer_dn" => "issuer_dn",
            name => name,
        }
    }
}

/// A relation of `pg_catalog` about sessions, and its cells by columns.
struct Listed {
    relation: &'static Relation,
    count: usize,
    cells: Vec<Vec<Cell>>,
}

impl Listed {
    fn new(name: &str, call: &mut Call<'_>) -> Result<Listed> {
        let relation = pg_catalog::find("pg_catalog", name).expect("it is a relation");
        let (count, cells) = relation.cells(source(call)?);
        Ok(Listed { relation, count, cells })
    }

    fn column(&self, name: &str) -> Option<&[Cell]> {
        let position = self.relation.columns.iter().position(|column| column.name == name)?;
        Some(&self.cells[position])
    }

    fn pids(&self) -> &[Cell] {
        self.column("pid").expect("it has the column")
    }
}

impl SetKernel for Sessions {
    fn can_fail(&self) -> bool {
        false
    }

    fn begin(&self, call: &mut Call<'_>, arguments: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        let sessions = Listed::new("pg_stat_activity", call)?;
        let encryption = Listed::new("pg_stat_ssl", call)?;
        let (count, pids) = (sessions.count, sessions.pids());
        let rows: Vec<usize> = (0..count)
            .filter(|row| match arguments[0] {
                Datum::Int32(pid) => pids[*row] == Cell::Integer(pid.into()),
                _ => true,
            })
            .collect();
        let columns = Sessions::COLUMNS.iter().map(|(name, ty)| {
            let ty = Type::new(*ty);
            let of_encryption = encryption.column(Sessions::name_in_ssl(name));
            let cell = |row: &usize| match (sessions.column(name), of_encryption) {
                (Some(column), _) => column[*row].clone(),
                (None, Some(column)) => {
                    // A session may have ended in between.
                    let at = encryption.pids().iter().position(|pid| *pid == pids[*row]);
                    at.map_or(Cell::Null, |at| column[at].clone())
                }
                (None, None) if ty.id == TypeId::BOOL => Cell::Boolean(false),
                (None, None) => Cell::Null,
            };
            let values = rows.iter().map(|row| cell(row).into_value(ty).unwrap_or(Value::Null));
            (ty.representation().expect("they have built-in types"), values.collect())
        });
        Ok(Some(Box::new(Values { columns: columns.collect(), next: 0, count: rows.len() })))
    }
}

/// `pg_listening_channels`
struct Channels;

impl SetKernel for Channels {
    fn can_fail(&self) -> bool {
        false
    }

    fn begin(&self, call: &mut Call<'_>, _: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        let Some(session) = source(call)?.session() else { return Ok(None) };
        let channels: Vec<Value> = session.channels().into_iter().map(Value::Text).collect();
        let count = channels.len();
        Ok(Some(Box::new(Values { columns: vec![(Representation::Text, channels)], next: 0, count })))
    }
}

/// `pg_get_keywords`
struct Keywords;

impl SetKernel for Keywords {
    fn can_fail(&self) -> bool {
        false
    }

    fn begin(&self, _: &mut Call<'_>, _: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        let text = |of: fn(Keyword) -> &'static str| {
            let values = KEYWORDS.iter().map(|keyword| Value::Text(of(*keyword).to_owned()));
            (Representation::Text, values.collect())
        };
        let is_bare = KEYWORDS.iter().map(|keyword| Value::Boolean(keyword.is_bare_label())).collect();
        let columns = vec![
            text(Keyword::text),
            text(|keyword| category(keyword).0),
            (Representation::Boolean, is_bare),
            text(|keyword| category(keyword).1),
            text(|keyword| match keyword.is_bare_label() {
                true => "can be bare label",
                false => "requires AS",
            }),
        ];
        Ok(Some(Box::new(Values { columns, next: 0, count: KEYWORDS.len() })))
    }
}

/// The letter and the description of a keyword's category.
fn category(keyword: Keyword) -> (&'static str, &'static str) {
    match keyword.category() {
        Category::Unreserved => ("U", "unreserved"),
        Category::ColumnName => ("C", "unreserved (cannot be function or type name)"),
        Category::TypeOrFunctionName => ("T", "reserved (can be function or type name)"),
        Category::Reserved => ("R", "reserved"),
    }
}

/// A set without rows.
struct Nothing;

impl SetKernel for Nothing {
    fn can_fail(&self) -> bool {
        false
    }

    fn begin(&self, _: &mut Call<'_>, _: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        Ok(None)
    }
}
