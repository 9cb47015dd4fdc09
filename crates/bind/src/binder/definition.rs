//! What definitions in the catalog are bound for: the types of columns, defaults and conditions, and the queries of views with all
//! that they use.

use super::attach::Pending;
use super::names::{Found, is_system_column};
use super::{Binder, Clause, Item, ItemColumn, LevelId, Operand, OutputColumn, Table, bind_with};
use crate::catalog::{Attribute, Catalog, Generated, Relation};
use crate::resolve::name as type_name;
use firn_base::{Error, Result, SqlState, TextStyle, TimeZoneSetting, Type, TypeId, Value, text};
use firn_plan::function::{Function, Volatility};
use firn_plan::{Column, ColumnInfo, Columns, Origin, Scalar};
use firn_syntax::Span;
use firn_syntax::tree::{self, Expr, JoinConstraint, Name, ObjectName, Query, Statement};
use firn_vector::registry::CastContext;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where an expression of a definition stands.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// DEFAULT of a column of a type.
    Default {
        /// The name of the column.
        column: &'a str,
        /// Its type.
        ty: Type,
    },
    /// CHECK.
    Check,
    /// GENERATED ALWAYS AS of a column of a type.
    Generated {
        /// The name of the column.
        column: &'a str,
        /// Its type.
        ty: Type,
    },
    /// An expression of an index.
    IndexExpression,
    /// WHERE of an index.
    IndexPredicate,
    /// WHERE of COPY FROM, which is no definition but is bound as one.
    CopyWhere,
    /// USING of ALTER COLUMN … TYPE.
    Using {
        /// The name of the column.
        column: &'a str,
        /// Its new type.
        ty: Type,
    },
}

/// A bound expression of a definition.
#[derive(Debug)]
pub struct BoundExpression {
    /// What is computed.
    pub scalar: Scalar,
    /// Its type.
    pub ty: Type,
    /// The columns of the scalar.
    pub columns: Columns,
    /// Those that it uses, and the number of the relation's column that each is, in the order of the numbers.
    pub inputs: Vec<(Column, i16)>,
    /// As those of [`Uses`].
    pub literals: Vec<(u32, Box<str>)>,
}

/// What a query yields, and what its text uses.
#[derive(Debug)]
pub struct Described {
    /// The columns of the result.
    pub columns: Vec<OutputColumn>,
    /// What the names in its text mean.
    pub uses: Uses,
}

/// What the names in a text mean. What only the views use that it names is not in it.
#[derive(Default, Debug)]
pub struct Uses {
    /// The relations, each with the place of its name.
    pub relations: Vec<(Span, Arc<Relation>)>,
    /// The columns of these: the relation's oid and the column's number.
    pub columns: BTreeSet<(u32, i16)>,
    /// The columns that each star in a select list stands for, by the star's place.
    pub stars: Vec<(Span, Vec<ObjectName>)>,
    /// Names of columns without qualifiers in queries over several relations, by their first byte, with those that mean the same and
    /// nothing else when the relations get more columns.
    pub names: Vec<(u32, ObjectName)>,
    /// The columns that each NATURAL JOIN compares, by the join's place.
    pub natural: Vec<(Span, Vec<Box<str>>)>,
    /// Strings that other sessions, or this one at other times, would read as other values: dates, times and intervals, each by its
    /// first byte, with a text that always means the same.
    pub literals: Vec<(u32, Box<str>)>,
}

/// An expression of a definition over the columns of a relation, if it sees any. `text` is what it was parsed from.
///
/// Literals are read as the session reads them. [`BoundExpression::literals`] are those that the text to be kept must have others for.
pub fn bind_expression(
    text: &str,
    expression: &Expr,
    place: Place<'_>,
    relation: Option<&Arc<Relation>>,
    catalog: &dyn Catalog,
) -> Result<BoundExpression> {
    bind_in(Binder::new(text, &[], catalog), expression, place, relation)
}

/// As [`bind_expression`], of a text that the catalog keeps: it means the same in every session.
pub fn bind_kept_expression(
    text: &str,
    expression: &Expr,
    place: Place<'_>,
    relation: Option<&Arc<Relation>>,
    catalog: &dyn Catalog,
) -> Result<BoundExpression> {
    let mut binder = Binder::new(text, &[], catalog);
    binder.is_kept = true;
    bind_in(binder, expression, place, relation)
}

fn bind_in(
    mut binder: Binder<'_>,
    expression: &Expr,
    place: Place<'_>,
    relation: Option<&Arc<Relation>>,
) -> Result<BoundExpression> {
    // A definition has no parameters.
    binder.uses = Some(Box::default());
    binder.open();
    binder.level().clause = match place {
        Place::Default { .. } => Clause::Default,
        Place::Check => Clause::Check,
        Place::Generated { .. } => Clause::Generated,
        Place::IndexExpression => Clause::IndexExpression,
        Place::IndexPredicate => Clause::IndexPredicate,
        Place::CopyWhere => Clause::CopyWhere,
        Place::Using { .. } => Clause::Transform,
    };
    let mut inputs = Vec::new();
    if let Some(relation) = relation {
        let columns = binder.columns_of_row(relation, &mut inputs);
        binder.add_item(Table::of_relation(relation.clone(), None, columns, None));
    }
    let operand = binder.expression(expression)?;
    let operand = match place {
        Place::Check => binder.boolean(operand, "CHECK")?,
        Place::CopyWhere => binder.boolean(operand, "COPY FROM WHERE")?,
        Place::IndexPredicate => binder.boolean(operand, "WHERE")?,
        Place::IndexExpression if operand.ty.id == TypeId::UNKNOWN => {
            let text = Type::new(TypeId::TEXT);
            binder.coerce_to(operand, text, CastContext::Assignment)?.expect("literals are texts")
        }
        Place::IndexExpression => operand,
        Place::Default { column, ty } | Place::Generated { column, ty } => {
            binder.stored_value(operand, ty, |from| {
                let message = format!(
                    "column \"{column}\" is of type {} but default expression is of type {}",
                    type_name(ty.id),
                    type_name(from)
                );
                Error::new(SqlState::DATATYPE_MISMATCH, message)
                    .with_hint("You will need to rewrite or cast the expression.")
            })?
        }
        Place::Using { column, ty } => binder.stored_value(operand, ty, |_| {
            let message = format!(
                "result of USING clause for column \"{column}\" cannot be cast automatically to type {}",
                type_name(ty.id)
            );
            Error::new(SqlState::DATATYPE_MISMATCH, message)
                .with_hint("You might need to add an explicit cast.")
        })?,
    };
    let Operand { mut scalar, ty, .. } = operand;
    binder.inline(&mut scalar);
    if let Some(message) = place.must_be_immutable()
        && !is_immutable(&scalar, &binder.plan.columns)
    {
        return Err(Error::new(SqlState::INVALID_OBJECT_DEFINITION, message));
    }
    let mut used = BTreeSet::new();
    scalar.for_each_column(&mut |column| {
        used.insert(column);
    });
    inputs.retain(|(column, _)| used.contains(column));
    if let (Place::CopyWhere, Some(relation)) = (place, relation) {
        let is_input = |attribute: &&Attribute| inputs.iter().any(|(_, number)| *number == attribute.number);
        let mut generated =
            relation.columns.iter().filter(|attribute| attribute.generated == Generated::Stored);
        if let Some(attribute) = generated.find(is_input) {
            let message = "generated columns are not supported in COPY FROM WHERE conditions";
            return Err(Error::new(SqlState::INVALID_COLUMN_REFERENCE, message)
                .with_detail(format!("Column \"{}\" is a generated column.", attribute.name)));
        }
    }
    let literals = binder.uses.take().map_or_else(Vec::new, |uses| uses.literals);
    Ok(BoundExpression { scalar, ty, columns: binder.plan.columns, inputs, literals })
}

impl Place<'_> {
    /// The message for an expression that is not immutable and must be.
    fn must_be_immutable(self) -> Option<&'static str> {
        match self {
            Place::Generated { .. } => Some("generation expression is not immutable"),
            Place::IndexExpression => Some("functions in index expression must be marked IMMUTABLE"),
            Place::IndexPredicate => Some("functions in index predicate must be marked IMMUTABLE"),
            Place::Default { .. } | Place::Check | Place::CopyWhere | Place::Using { .. } => None,
        }
    }
}

/// `text || anything` and `anything || text`: how the value is written decides, for PostgreSQL's functions become casts.
const TEXT_OF_ANYTHING: [u32; 2] = [2003, 2004];

/// Whether the value of a scalar depends on the row alone, and not on the session or the time.
fn is_immutable(scalar: &Scalar, columns: &Columns) -> bool {
    let is_fixed = |function: &Function| function.volatility == Volatility::Immutable;
    !scalar.any(&mut |part| match part {
        Scalar::Call(call) if TEXT_OF_ANYTHING.contains(&call.function.oid) => {
            call.arguments.iter().any(|argument| is_written_by_settings(argument.ty(columns)))
        }
        Scalar::Call(call) => !is_fixed(&call.function),
        Scalar::Quantified(quantified) => !is_fixed(&quantified.function),
        Scalar::Cast(cast) => match &cast.function {
            Some(function) => !is_fixed(function),
            None => {
                let (from, to) = (cast.argument.ty(columns), cast.ty);
                from.id != to.id && (is_written_by_settings(from) || is_read_by_settings(to))
            }
        },
        _ => false,
    })
}

/// Whether the text of a value depends on settings or on the catalog: the output function of the type is not IMMUTABLE in PostgreSQL.
fn is_written_by_settings(ty: Type) -> bool {
    let is_of_catalog = ty.info().is_some_and(|info| info.name.starts_with("reg"));
    let is_of_time =
        matches!(ty.id, TypeId::DATE | TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ | TypeId::INTERVAL);
    // PostgreSQL calls these functions IMMUTABLE, though extra_float_digits and bytea_output decide.
    let is_styled = matches!(ty.id, TypeId::FLOAT4 | TypeId::FLOAT8 | TypeId::BYTEA);
    ty.element().is_some() || is_of_catalog || is_of_time || is_styled || ty.id == TypeId::RECORD
}

/// Whether what a text means as a value of a type depends on them: its input function is not IMMUTABLE.
fn is_read_by_settings(ty: Type) -> bool {
    let is_styled = matches!(ty.id, TypeId::FLOAT4 | TypeId::FLOAT8 | TypeId::BYTEA);
    is_written_by_settings(ty) && !is_styled || ty.id == TypeId::TIME
}

/// A query as the definition of a relation. `text` is what it was parsed from.
pub fn describe(text: &str, query: &Query, catalog: &dyn Catalog) -> Result<Described> {
    let mut binder = Binder::new(text, &[], catalog);
    binder.uses = Some(Box::default());
    let statement = Statement::Query(Box::new(query.clone()));
    let (bound, binder) = bind_with(binder, &statement)?;
    let uses = *binder.uses.expect("it was asked for");
    Ok(Described { columns: bound.columns, uses })
}

impl Binder<'_> {
    /// The columns of a row of a relation, which no operator produces.
    pub(super) fn columns_of_row(
        &mut self,
        relation: &Relation,
        inputs: &mut Vec<(Column, i16)>,
    ) -> Vec<ItemColumn> {
        let mut columns = Vec::with_capacity(relation.columns.len());
        for attribute in &relation.columns {
            let column = self.new_column(ColumnInfo {
                ty: attribute.ty,
                nullable: !attribute.not_null,
                name: Some(attribute.name.clone()),
                origin: Some(Origin { relation: relation.oid, attribute: attribute.number }),
            });
            inputs.push((column, attribute.number));
            let name = (&*attribute.name).into();
            columns.push(ItemColumn { name, value: Scalar::Column(column), ty: attribute.ty });
        }
        columns
    }

    /// Puts values that several places of a scalar share into each of them.
    pub(super) fn inline(&self, scalar: &mut Scalar) {
        if let Scalar::Column(column) = scalar {
            let column = self.aliases_of_pending.get(column).unwrap_or(column);
            if let Some(Pending::Value(value)) = self.pending.get(column) {
                let mut value = value.clone();
                self.inline(&mut value);
                *scalar = value;
            }
            return;
        }
        scalar.for_each_child_mut(|child| self.inline(child));
    }

    fn stored_value(
        &mut self,
        operand: Operand,
        ty: Type,
        mismatch: impl FnOnce(TypeId) -> Error,
    ) -> Result<Operand> {
        let from = operand.ty.id;
        match self.coerce_to(operand, ty, CastContext::Assignment)? {
            Some(operand) => Ok(self.conformed(operand, ty)),
            None => Err(mismatch(from)),
        }
    }

    /// 0A000 for a sub-query where there is no row to evaluate it for: in an expression of a definition or an argument of EXECUTE.
    pub(super) fn refuse_query(&mut self, query: &Query) -> Result<()> {
        let what = match self.level().clause {
            Clause::Default => "DEFAULT expression",
            Clause::Check => "check constraint",
            Clause::Generated => "column generation expression",
            Clause::IndexExpression => "index expression",
            Clause::IndexPredicate => "index predicate",
            Clause::CopyWhere => "COPY FROM WHERE condition",
            Clause::Transform => "transform expression",
            Clause::Execute => "EXECUTE parameter",
            _ => return Ok(()),
        };
        Err(self.unsupported_as(&format!("cannot use subquery in {what}"), query.span.start))
    }

    /// In a generation expression 42P17 for a column whose own values are computed, and 42P10 for a column of the system; in an
    /// index 0A000 for the latter.
    pub(super) fn refuse_generated(&self, found: Found, name: &str, at: u32) -> Result<()> {
        let level = &self.levels[found.level];
        let is_of_index = matches!(level.clause, Clause::IndexExpression | Clause::IndexPredicate);
        if level.clause != Clause::Generated && !is_of_index {
            return Ok(());
        }
        let Some(relation) = &level.tables[level.items[found.item].table].relation else { return Ok(()) };
        match relation.column(name) {
            Some((_, attribute)) if attribute.generated == Generated::Stored && !is_of_index => {
                let message =
                    format!("cannot use generated column \"{name}\" in column generation expression");
                let error = self.error(SqlState::INVALID_OBJECT_DEFINITION, message, at);
                Err(error.with_detail("A generated column cannot reference another generated column."))
            }
            Some(_) => Ok(()),
            None if !is_system_column(name) => Ok(()),
            None if is_of_index => {
                let message = "index creation on system columns is not supported";
                Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message))
            }
            // The same in all rows.
            None if name == "tableoid" => Ok(()),
            None => {
                let message = format!("cannot use system column \"{name}\" in column generation expression");
                Err(self.error(SqlState::INVALID_COLUMN_REFERENCE, message, at))
            }
        }
    }

    /// 42P17 for a whole row in a generation expression, which would be part of it.
    pub(super) fn refuse_whole_row(&self, at: u32) -> Result<()> {
        match self.levels.last().map(|level| level.clause) {
            Some(Clause::Generated) => {}
            Some(Clause::IndexExpression | Clause::IndexPredicate) => {
                return Err(self.unsupported("a whole row in an index", at));
            }
            _ => return Ok(()),
        }
        let message = "cannot use whole-row variable in column generation expression";
        let error = self.error(SqlState::INVALID_OBJECT_DEFINITION, message, at);
        Err(error.with_detail("This would cause the generated column to depend on its own value."))
    }

    /// 0A000 for a column in a default, which sees none.
    pub(super) fn refuse_column(&mut self, at: u32) -> Result<()> {
        let level = self.level();
        match level.clause == Clause::Default && level.tables.is_empty() {
            true => Err(self.unsupported_as("cannot use column reference in DEFAULT expression", at)),
            false => Ok(()),
        }
    }

    fn noted(&mut self) -> Option<&mut Uses> {
        self.uses.as_deref_mut().filter(|_| self.has_positions)
    }

    /// Notes a relation that the text names.
    pub(super) fn note_relation(&mut self, span: Span, relation: &Arc<Relation>) {
        if let Some(uses) = self.noted() {
            uses.relations.push((span, relation.clone()));
        }
    }

    /// Notes the columns that a value is made of.
    pub(super) fn note_columns(&mut self, value: &Scalar) {
        if self.uses.is_none() || !self.has_positions {
            return;
        }
        let mut origins = Vec::new();
        value.for_each_column(&mut |column| origins.extend(self.plan.columns[column].origin));
        let uses = self.uses.as_mut().expect("it was seen");
        uses.columns.extend(origins.into_iter().map(|origin| (origin.relation, origin.attribute)));
    }

    /// Notes what a name without qualifiers means.
    pub(super) fn note_name(&mut self, found: Found, name: &str, at: u32) {
        let level = &self.levels[found.level];
        let item = &level.items[found.item];
        if self.uses.is_none() || !self.has_positions || level.items.len() < 2 {
            return;
        }
        let Some(column) = item.columns.iter().find(|column| &*column.name == name) else { return };
        let name = self.qualified_name(level.id, item, column);
        let uses = self.uses.as_mut().expect("it was seen");
        uses.names.push((at, name));
    }

    /// Notes what a join by names compares.
    pub(super) fn note_join(
        &mut self,
        join: &tree::Join,
        using: &[&str],
        left: &[ItemColumn],
        right: &[ItemColumn],
    ) {
        let compared = left.iter().chain(right).filter(|column| using.contains(&&*column.name));
        compared.for_each(|column| self.note_columns(&column.value));
        if let (JoinConstraint::Natural, Some(uses)) = (&join.constraint, self.noted()) {
            uses.natural.push((join.span, using.iter().map(|name| (*name).into()).collect()));
        }
    }

    /// Notes a string of a definition, read as a value of a type, if not every session would read it so.
    pub(super) fn note_literal(&mut self, written: &str, ty: Type, value: &Value, at: u32) {
        use firn_base::text_style::{DateOrder, IntervalStyle};
        let element = ty.element().filter(|_| ty.info().is_some_and(|info| info.is_array()));
        let is_of_time = matches!(
            element.unwrap_or(ty).id,
            TypeId::DATE | TypeId::TIME | TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ | TypeId::INTERVAL
        );
        let (true, Some(uses)) = (is_of_time, self.noted()) else { return };
        let far = TextStyle::in_zone(TimeZoneSetting::Fixed(3600));
        let styles = [
            TextStyle::DEFAULT,
            TextStyle { order: DateOrder::Dmy, intervals: IntervalStyle::SqlStandard, ..far },
            TextStyle { order: DateOrder::Ymd, ..far },
        ];
        let is_same = |style| text::parse_any(written, ty, style).is_ok_and(|other| other == *value);
        if !styles.iter().all(is_same) {
            let mut fixed = String::new();
            text::write_any(value, ty, &TextStyle::DEFAULT, &mut fixed);
            uses.literals.push((at, fixed.into()));
        }
    }

    /// Notes what a star of a select list stands for: of all that FROM shows, or of one relation.
    pub(super) fn note_star(&mut self, span: Span, of: Option<&ObjectName>) {
        if self.noted().is_none() {
            return;
        }
        let Some(names) = self.star_names(of) else { return };
        let uses = self.noted().expect("it was seen");
        uses.stars.push((span, names));
    }

    fn star_names(&mut self, of: Option<&ObjectName>) -> Option<Vec<ObjectName>> {
        let Some(name) = of else {
            let level = self.levels.last()?;
            let shown = level.items.iter().filter(|item| item.has_columns);
            let columns = shown.flat_map(|item| item.columns.iter().map(move |column| (item, column)));
            return Some(columns.map(|(item, column)| self.qualified_name(level.id, item, column)).collect());
        };
        let schema = name.schema().map(|schema| &*schema.text);
        let found = self.find_item(schema, &name.name.text, 0).ok()??;
        let columns = self.levels[found.level].items[found.item].columns.clone();
        let qualifiers: Vec<Name> =
            name.schema().into_iter().chain([&name.name]).map(|part| Name::new(&*part.text)).collect();
        let column = |column: &ItemColumn| ObjectName {
            qualifiers: qualifiers.clone(),
            name: Name::new(&*column.name),
        };
        Some(columns.iter().map(column).collect())
    }

    /// A name that means a column which an item shows. The columns of a join are those of its sides where one of these has the same
    /// value, so that only what USING has merged is without qualifiers.
    fn qualified_name(&self, level: LevelId, item: &Item, column: &ItemColumn) -> ObjectName {
        let level = self.levels.iter().find(|known| known.id == level).expect("it is being bound");
        let has_it = |other: &&Item| {
            other.has_name
                && other.columns.iter().any(|found| found.name == column.name && found.value == column.value)
        };
        let of = if item.has_name { Some(item) } else { level.items.iter().find(has_it) };
        let qualifiers = of.map_or_else(Vec::new, |of| {
            let table = &level.tables[of.table];
            let named = level.items.iter().filter(|other| other.has_name);
            let is_shared = named.filter(|other| level.tables[other.table].alias == table.alias).count() > 1;
            let schema = table.relation.as_ref().filter(|_| is_shared).map(|relation| &*relation.schema);
            schema.into_iter().chain([&*table.alias]).map(Name::new).collect()
        });
        ObjectName { qualifiers, name: Name::new(&*column.name) }
    }
}
