//! Rows: how they compare, field by field, and what their fields are called.

use super::{Binder, Operand, RowType};
use firn_base::{Error, Result, SqlState, Type, TypeId};
use firn_plan::Scalar;
use firn_plan::scalar::Case;
use firn_syntax::tree::{self, Accessor, Chain, Expr, ExprKind, Operator, StepKind};
use std::rc::Rc;

/// A field of a row with its name.
pub(super) type NamedField = (Rc<str>, Operand);

impl Binder<'_> {
    /// A comparison of rows of operands; of one field each it is that of the values.
    pub(super) fn compare_rows(
        &mut self,
        operator: &tree::Operator,
        left: Vec<Operand>,
        right: Vec<Operand>,
        at: u32,
    ) -> Result<Scalar> {
        if left.len() != right.len() {
            return Err(self.error(
                SqlState::SYNTAX_ERROR,
                "unequal number of entries in row expressions",
                at,
            ));
        }
        if left.is_empty() {
            return Err(self.placed(
                Error::new(SqlState::FEATURE_NOT_SUPPORTED, "cannot compare rows of zero length"),
                at,
            ));
        }
        let count = left.len();
        let symbol = operator.symbol().to_owned();
        let strict = match &*symbol {
            "<=" => Some(Operator::Less),
            ">=" => Some(Operator::Greater),
            "<" => Some(Operator::Less),
            ">" => Some(Operator::Greater),
            _ => None,
        };
        let mut parts = Vec::with_capacity(count);
        for (place, (left, right)) in left.into_iter().zip(right).enumerate() {
            let is_last = place + 1 == count;
            let own = self.comparison(operator, left.clone(), right.clone(), at)?;
            match &strict {
                Some(strict) if !is_last => {
                    let before = self.comparison(strict, left.clone(), right.clone(), at)?;
                    let same = self.comparison(&Operator::Equal, left, right, at)?;
                    parts.push((Some(same), before));
                }
                _ => parts.push((None, own)),
            }
        }
        if count > 1 && strict.is_none() && symbol != "=" && symbol != "<>" {
            let message = format!("could not determine interpretation of row comparison operator {symbol}");
            let error = self.placed(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message), at);
            return Err(
                error.with_hint("Row comparison operators must be associated with btree operator families.")
            );
        }
        if strict.is_none() || count == 1 {
            let mut list: Vec<Scalar> = parts.into_iter().map(|(_, own)| own).collect();
            return Ok(match list.len() {
                1 => list.pop().expect("there is one"),
                _ if symbol == "<>" => Scalar::Or(list),
                _ => Scalar::And(list),
            });
        }
        // The first fields that differ decide.
        let mut parts = parts.into_iter().rev();
        let (_, mut result) = parts.next().expect("there is one");
        for (same, before) in parts {
            let arms = vec![(same.expect("all but the last have one"), result)];
            result = Scalar::Case(Box::new(Case { operand: None, arms, otherwise: before }));
        }
        Ok(result)
    }

    /// An operator that gives a boolean.
    pub(super) fn comparison(
        &mut self,
        operator: &tree::Operator,
        left: Operand,
        right: Operand,
        at: u32,
    ) -> Result<Scalar> {
        let compared = self.apply_operator(operator, Some(left), right, at)?;
        if compared.ty.id != TypeId::BOOL {
            let message = format!(
                "row comparison operator must yield type boolean, not type {}",
                crate::resolve::name(compared.ty.id)
            );
            return Err(self.error(SqlState::DATATYPE_MISMATCH, message, at));
        }
        Ok(compared.scalar)
    }

    /// IS DISTINCT FROM
    pub(super) fn distinct(
        &mut self,
        left: Operand,
        right: Operand,
        is_negated: bool,
        at: u32,
    ) -> Result<Scalar> {
        if let (Scalar::Row(a), Scalar::Row(b)) = (&left.scalar, &right.scalar) {
            let (a, b) = (self.fields(a.clone(), left.at), self.fields(b.clone(), right.at));
            if a.len() != b.len() {
                return Err(self.error(
                    SqlState::SYNTAX_ERROR,
                    "unequal number of entries in row expressions",
                    at,
                ));
            }
            let mut list = Vec::with_capacity(a.len());
            for (a, b) in a.into_iter().zip(b) {
                list.push(self.distinct(a, b, false, at)?);
            }
            let any = Scalar::Or(list);
            return Ok(if is_negated { Scalar::Not(Box::new(any)) } else { any });
        }
        let is_null =
            |operand: &Operand| matches!(operand.scalar, Scalar::Constant(_, firn_base::Value::Null));
        if is_null(&right) && left.ty.id != TypeId::UNKNOWN {
            return Ok(Scalar::IsNull(Box::new(left.scalar), !is_negated));
        }
        if is_null(&left) && right.ty.id != TypeId::UNKNOWN {
            return Ok(Scalar::IsNull(Box::new(right.scalar), !is_negated));
        }
        let (left, right) = (self.compared(left)?, self.compared(right)?);
        let chosen = self.choose_operator(&Operator::Equal, Some(left.ty.id), right.ty.id, at)?;
        if chosen.result != TypeId::BOOL {
            return Err(self.error(
                SqlState::DATATYPE_MISMATCH,
                "IS DISTINCT FROM requires = operator to yield boolean",
                at,
            ));
        }
        let ty = crate::resolve::common_type(self.registry, &chosen.operands).unwrap_or(chosen.operands[0]);
        let left = self.coerce(left, ty, false)?;
        let right = self.coerce(right, ty, false)?;
        Ok(Scalar::Distinct(Box::new((left.scalar, right.scalar)), is_negated))
    }

    /// IS NULL; of a row that of all its fields.
    pub(super) fn is_null(&self, operand: Operand, is_negated: bool) -> Scalar {
        match operand.scalar {
            Scalar::Row(fields) if fields.is_empty() => Scalar::boolean(true),
            Scalar::Row(fields) => {
                let each = |field| Scalar::IsNull(Box::new(field), is_negated);
                Scalar::And(fields.into_iter().map(each).collect())
            }
            scalar => Scalar::IsNull(Box::new(scalar), is_negated),
        }
    }

    /// The type of rows with these fields.
    pub(super) fn row_type(&mut self, relation: Option<Rc<str>>, fields: Vec<(Rc<str>, Type)>) -> Type {
        let ty = RowType { relation, fields };
        let known = self.row_types.iter().position(|known| **known == ty);
        let place = known.unwrap_or_else(|| {
            self.row_types.push(Rc::new(ty));
            self.row_types.len() - 1
        });
        Type::new(TypeId::RECORD).with_modifier(place as i32)
    }

    /// What is known of the fields of rows of a type.
    fn known_row_type(&self, ty: Type) -> Option<&Rc<RowType>> {
        match ty.id {
            TypeId::RECORD => self.row_types.get(usize::try_from(ty.modifier).ok()?),
            _ => None,
        }
    }

    /// A type whose rows may have other fields, unless they are those of a table.
    pub(super) fn without_fields(&self, ty: Type) -> Type {
        let of = if ty.id == TypeId::RECORD_ARRAY { Type { id: TypeId::RECORD, ..ty } } else { ty };
        match self.known_row_type(of) {
            Some(row) if row.relation.is_none() => Type::new(ty.id),
            _ => ty,
        }
    }

    /// The names and types of the fields of a row, if they are known. Rows of tables keep them; those of other rows are known of
    /// the row itself, of what a function returns, and of a column of a sub-query.
    pub(super) fn known_fields(&self, row: &Operand) -> Option<Rc<RowType>> {
        let ty = self.known_row_type(row.ty)?;
        let is_known = match &row.scalar {
            Scalar::Row(_) => true,
            Scalar::Column(_) => !self.has_pending(&row.scalar),
            _ => false,
        };
        (is_known || ty.relation.is_some()).then(|| ty.clone())
    }

    /// The name of a type in messages: of the rows of a table that of the table.
    pub(super) fn type_name(&self, ty: Type) -> String {
        let relation = self.known_row_type(ty).and_then(|ty| ty.relation.as_deref());
        relation.map_or_else(|| crate::resolve::name(ty.id), str::to_owned)
    }

    /// `row.field`
    pub(super) fn field_named(&self, row: &Operand, name: &str) -> Result<Operand> {
        if let Some(ty) = self.known_fields(row)
            && let Some(place) = ty.fields.iter().position(|(field, _)| **field == *name)
        {
            return Ok(self.row_field(row, place, ty.fields[place].1));
        }
        let (state, message) = match self.known_row_type(row.ty).and_then(|ty| ty.relation.as_deref()) {
            Some(relation) => {
                (SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" not found in data type {relation}"))
            }
            None if row.ty.id == TypeId::RECORD => {
                let message = format!("could not identify column \"{name}\" in record data type");
                (SqlState::UNDEFINED_COLUMN, message)
            }
            None => {
                let message = format!(
                    "column notation .{name} applied to type {}, which is not a composite type",
                    crate::resolve::name(row.ty.id)
                );
                (SqlState::WRONG_OBJECT_TYPE, message)
            }
        };
        Err(self.error(state, message, row.at))
    }

    /// The fields of a row that is written with `.*` behind it, with their names. `None` of another expression.
    pub(super) fn expanded(&mut self, expression: &Expr) -> Result<Option<Vec<NamedField>>> {
        let ExprKind::Chain(chain) = &expression.kind else { return Ok(None) };
        let Some((StepKind::Access(Accessor::AllFields), before)) =
            chain.steps.split_last().map(|(last, before)| (&last.kind, before))
        else {
            return Ok(None);
        };
        let row = match (before, &chain.first.kind) {
            ([], ExprKind::Column(name)) => match self.qualified_star(name) {
                Ok(columns) => return Ok(Some(columns)),
                // It may be a column whose values are rows.
                Err(error) => match self.column_reference(name) {
                    Ok(row) => row,
                    Err(_) => return Err(error),
                },
            },
            ([], _) => self.expression(&chain.first)?,
            _ => {
                let chain = Chain { first: chain.first.clone(), steps: before.to_vec() };
                let kind = ExprKind::Chain(Box::new(chain));
                self.expression(&Expr { kind, span: expression.span })?
            }
        };
        let Some(ty) = self.known_fields(&row) else {
            let error = match row.ty.id {
                TypeId::RECORD => {
                    Error::new(SqlState::WRONG_OBJECT_TYPE, "record type has not been registered")
                }
                _ => {
                    let message = format!("type {} is not composite", crate::resolve::name(row.ty.id));
                    Error::new(SqlState::WRONG_OBJECT_TYPE, message)
                }
            };
            return Err(error);
        };
        let field =
            |(place, (name, ty)): (usize, &(Rc<str>, Type))| (name.clone(), self.row_field(&row, place, *ty));
        Ok(Some(ty.fields.iter().enumerate().map(field).collect()))
    }

    /// The value of one field of a row whose type is known.
    fn row_field(&self, row: &Operand, place: usize, ty: Type) -> Operand {
        let scalar = match &row.scalar {
            Scalar::Row(fields) => fields[place].clone(),
            row => Scalar::Field(Box::new(row.clone()), place as u16, ty),
        };
        Operand { scalar, ty, at: row.at }
    }

    /// A row whose fields have names: one of a table, if it is named.
    pub(super) fn named_row(
        &mut self,
        relation: Option<Rc<str>>,
        fields: Vec<(Rc<str>, Operand)>,
        at: u32,
    ) -> Operand {
        let names = fields.iter().map(|(name, field)| (name.clone(), field.ty)).collect();
        let ty = self.row_type(relation, names);
        let fields = fields.into_iter().map(|(_, field)| field.scalar).collect();
        Operand { scalar: Scalar::Row(fields), ty, at }
    }

    /// ROW(…)
    pub(super) fn row(&mut self, fields: Vec<Operand>, at: u32) -> Operand {
        let named = |(place, field): (usize, &Operand)| (format!("f{}", place + 1).into(), field.ty);
        let ty = self.row_type(None, fields.iter().enumerate().map(named).collect());
        let fields = fields.into_iter().map(|field| field.scalar).collect();
        Operand { scalar: Scalar::Row(fields), ty, at }
    }
}

/// A type as those have it that do not know the fields of rows.
pub(super) fn outside(ty: Type) -> Type {
    match ty.id {
        TypeId::RECORD | TypeId::RECORD_ARRAY => Type::new(ty.id),
        _ => ty,
    }
}
