//! Rows: how they compare, field by field.

use super::{Binder, Operand};
use firn_base::{Error, Result, SqlState, Type, TypeId};
use firn_plan::Scalar;
use firn_plan::scalar::Case;
use firn_syntax::tree::{self, Operator};

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

    /// The names and types of the fields of a row, if they are known: of one that a function returns, as it is or as a column of a
    /// sub-query.
    pub(super) fn row_type(&self, row: &Scalar) -> Option<super::RowType> {
        let column = match row {
            Scalar::Column(column) => *column,
            Scalar::Row(fields) => fields.first()?.as_column()?,
            _ => return None,
        };
        let fields = self.row_types.get(&column)?;
        let is_whole = match row {
            Scalar::Row(values) => values.len() == fields.len(),
            _ => self.plan.columns[column].ty.id == TypeId::RECORD,
        };
        is_whole.then(|| fields.clone())
    }

    /// The value of one field of a row whose type is known.
    pub(super) fn row_field(&self, row: &Operand, place: usize, ty: Type) -> Operand {
        let scalar = match &row.scalar {
            Scalar::Row(fields) => fields[place].clone(),
            row => Scalar::Field(Box::new(row.clone()), place as u16, ty),
        };
        Operand { scalar, ty, at: row.at }
    }

    /// A row as one value.
    pub(super) fn row(&self, fields: Vec<Operand>, at: u32) -> Operand {
        let fields = fields.into_iter().map(|field| field.scalar).collect();
        Operand { scalar: Scalar::Row(fields), ty: Type::new(TypeId::RECORD), at }
    }
}
