//! The names of result columns that have no alias.

use firn_syntax::tree::{
    Accessor, BaseType, CurrentValue, Expr, ExprKind, QueryBody, Special, StepKind, Target, TrimSide,
    TypeName,
};

/// The name of a column that nothing names.
const NONE: &str = "?column?";

/// The name of a column with this value, if it has no alias.
pub fn column_name(expression: &Expr) -> String {
    name_of(expression).map_or(NONE.to_owned(), |(name, _)| name)
}

/// The name of a column of an index on this expression.
pub fn index_column_name(expression: &Expr) -> String {
    name_of(expression).map_or("expr".to_owned(), |(name, _)| name)
}

/// A name, and whether a cast around it keeps it.
fn name_of(expression: &Expr) -> Option<(String, bool)> {
    let strong = |name: &str| Some((name.to_owned(), true));
    match &expression.kind {
        ExprKind::Column(name) => strong(&name.name.text),
        ExprKind::TypedLiteral(literal) => Some((type_name(&literal.type_name), false)),
        ExprKind::Row(_) => strong("row"),
        ExprKind::Overlaps(_) => strong("overlaps"),
        ExprKind::Array(_) | ExprKind::ArrayQuery(_) => strong("array"),
        ExprKind::Exists(_) => strong("exists"),
        ExprKind::Subquery(query) => {
            let mut body = &query.body;
            while let QueryBody::Nested(nested) = body {
                body = &nested.body;
            }
            match body {
                QueryBody::Select(select) => match select.targets.first()? {
                    Target::Value { alias: Some(alias), .. } => strong(&alias.text),
                    Target::Value { value, .. } => strong(&column_name(value)),
                    Target::All(_) => None,
                },
                QueryBody::Values(_) => strong("column1"),
                _ => None,
            }
        }
        ExprKind::Case(case) => {
            let of_default = case.otherwise.as_ref().and_then(name_of);
            Some(of_default.filter(|(_, strong)| *strong).unwrap_or(("case".to_owned(), false)))
        }
        ExprKind::Call(call) => strong(&call.name.name.text),
        ExprKind::Coalesce(_) => strong("coalesce"),
        ExprKind::Greatest(_) => strong("greatest"),
        ExprKind::Least(_) => strong("least"),
        ExprKind::NullIf(_) => strong("nullif"),
        ExprKind::Grouping(_) => strong("grouping"),
        ExprKind::CurrentValue(value) => strong(match value {
            CurrentValue::Date => "current_date",
            CurrentValue::Time(_) => "current_time",
            CurrentValue::Timestamp(_) => "current_timestamp",
            CurrentValue::LocalTime(_) => "localtime",
            CurrentValue::LocalTimestamp(_) => "localtimestamp",
            CurrentValue::Role => "current_role",
            CurrentValue::CurrentUser => "current_user",
            CurrentValue::SessionUser => "session_user",
            CurrentValue::User => "user",
            CurrentValue::Catalog => "current_catalog",
            CurrentValue::Schema => "current_schema",
        }),
        ExprKind::Special(special) => match &**special {
            Special::Extract { .. } => strong("extract"),
            Special::Overlay { .. } => strong("overlay"),
            Special::Position { .. } => strong("position"),
            Special::Substring { .. } | Special::SubstringSimilar { .. } => strong("substring"),
            Special::Trim { side, .. } => strong(match side {
                TrimSide::Both => "btrim",
                TrimSide::Leading => "ltrim",
                TrimSide::Trailing => "rtrim",
            }),
            Special::Normalize { .. } => strong("normalize"),
            Special::CollationFor(_) => strong("pg_collation_for"),
            Special::Treat { type_name: name, .. } => strong(&type_name(name)),
        },
        ExprKind::Chain(chain) => {
            let mut name = name_of(&chain.first);
            for step in &chain.steps {
                name = match &step.kind {
                    StepKind::Cast(target) => match name {
                        Some((name, true)) => Some((name, true)),
                        _ => Some((type_name(target), false)),
                    },
                    StepKind::Collate(_) => name,
                    StepKind::AtTimeZone(_) => strong("timezone"),
                    StepKind::Access(Accessor::Field(field)) => strong(&field.text),
                    StepKind::Access(Accessor::Subscript(_) | Accessor::Slice(_)) => name,
                    StepKind::Is { test: firn_syntax::tree::IsTest::Normalized(_), is_negated: false } => {
                        strong("is_normalized")
                    }
                    _ => None,
                };
            }
            name
        }
        _ => None,
    }
}

/// The name of a type in `pg_type`, as the grammar makes it.
fn type_name(name: &TypeName) -> String {
    let base: &str = match &name.base {
        BaseType::Named { name, .. } => &name.name.text,
        BaseType::SmallInt => "int2",
        BaseType::Integer => "int4",
        BaseType::BigInt => "int8",
        BaseType::Real => "float4",
        BaseType::DoublePrecision => "float8",
        BaseType::Boolean => "bool",
        BaseType::Numeric(_) => "numeric",
        BaseType::Bit { is_varying: true, .. } => "varbit",
        BaseType::Bit { .. } => "bit",
        BaseType::Character { is_varying: true, .. } => "varchar",
        BaseType::Character { .. } => "bpchar",
        BaseType::Time { with_zone: true, .. } => "timetz",
        BaseType::Time { .. } => "time",
        BaseType::Timestamp { with_zone: true, .. } => "timestamptz",
        BaseType::Timestamp { .. } => "timestamp",
        BaseType::Interval { .. } => "interval",
    };
    base.to_owned()
}
