//! Expressions.

use super::call::{CallShape, Meaning, argument_names};
use super::{Binder, Operand, too_deep};
use crate::types::is_array;
use firn_base::{Result, SqlState, Type, TypeId, Value};
use firn_plan::Scalar;
use firn_plan::scalar::{Quantified, Values};
use firn_syntax::DEPTH_LIMIT;
use firn_syntax::tree::{
    Accessor, Call, Chain, Expr, ExprKind, IsTest, Like, LikeKind, Operator, OtherOperator, Prefix,
    PrefixKind, QuantifiedRight, Step, StepKind,
};
use firn_vector::registry::{Body, CastContext};

/// An operator that has no name of its own in the tree.
pub(super) fn operator(symbol: &str) -> Operator {
    match Operator::from_symbol(symbol) {
        Operator::Other(_) => {
            Operator::Other(Box::new(OtherOperator { qualifiers: Vec::new(), symbol: symbol.into() }))
        }
        known => known,
    }
}

pub(super) fn boolean(scalar: Scalar, at: u32) -> Operand {
    Operand { scalar, ty: Type::new(TypeId::BOOL), at }
}

impl Binder<'_> {
    /// An expression.
    pub(super) fn expression(&mut self, expression: &Expr) -> Result<Operand> {
        self.deeper(|binder| binder.any_expression(expression))
    }

    /// Expressions, in which `t.*` and `(row).*` stand for all columns and fields.
    pub(super) fn expressions(&mut self, list: &[Expr]) -> Result<Vec<Operand>> {
        let mut operands = Vec::with_capacity(list.len());
        for expression in list {
            match &expression.kind {
                ExprKind::AllColumns(name) => {
                    operands.extend(self.qualified_star(name)?.into_iter().map(|(_, operand)| operand));
                }
                _ => match self.expanded(expression)? {
                    Some(fields) => operands.extend(fields.into_iter().map(|(_, operand)| operand)),
                    None => operands.push(self.expression(expression)?),
                },
            }
        }
        Ok(operands)
    }

    fn any_expression(&mut self, expression: &Expr) -> Result<Operand> {
        let at = expression.span.start;
        let constant = |id: TypeId, value: Value| {
            let ty = Type::new(id);
            Ok(Operand { scalar: Scalar::Constant(ty, value), ty, at })
        };
        match &expression.kind {
            ExprKind::Null => constant(TypeId::UNKNOWN, Value::Null),
            ExprKind::Boolean(value) => constant(TypeId::BOOL, Value::Boolean(*value)),
            ExprKind::Integer(value) => constant(TypeId::INT4, Value::Integer(*value)),
            ExprKind::Number(digits) => self.number(digits, at),
            ExprKind::String(text) => constant(TypeId::UNKNOWN, Value::Text(text.to_string())),
            ExprKind::BitString(_) | ExprKind::HexString(_) => Err(self.unsupported("type bit", at)),
            ExprKind::TypedLiteral(literal) => {
                let target = self.type_named(&literal.type_name, true)?;
                let ty = Type::new(TypeId::UNKNOWN);
                let scalar = Scalar::Constant(ty, Value::Text(literal.value.to_string()));
                // The string follows the name of the type.
                let text_at = literal.type_name.span.end;
                let offset =
                    self.text.get(text_at as usize..).map_or(0, |rest| rest.len() - rest.trim_start().len());
                let at = if self.has_positions { text_at + offset as u32 } else { at };
                let operand = Operand { scalar, ty, at };
                let operand = self.cast(operand, target, at)?;
                Ok(Operand { at: expression.span.start, ..operand })
            }
            ExprKind::Parameter(number) => self.parameter(*number, at),
            ExprKind::Default => {
                Err(self.error(SqlState::SYNTAX_ERROR, "DEFAULT is not allowed in this context", at))
            }
            ExprKind::Column(name) => self.column_reference(name),
            ExprKind::AllColumns(name) => {
                let columns = self.qualified_star(name)?;
                Ok(self.named_row(None, columns, at))
            }
            ExprKind::Prefix(prefix) => self.prefix(prefix, at),
            ExprKind::Chain(chain) => self.chain(chain),
            ExprKind::And(list) => self.connective(list, true, at),
            ExprKind::Or(list) => self.connective(list, false, at),
            ExprKind::Row(row) => {
                let fields = self.expressions(&row.items)?;
                let fields = fields.into_iter().map(|field| self.known(field)).collect::<Result<_>>();
                Ok(self.row(fields?, at))
            }
            ExprKind::Overlaps(sides) => {
                let mut arguments = Vec::with_capacity(4);
                for side in sides.iter().flatten() {
                    arguments.push(self.expression(side)?);
                }
                self.call_named("overlaps", arguments, at)
            }
            ExprKind::Array(items) => self.array(items, None, at),
            ExprKind::ArrayQuery(query) => self.array_query(query, at),
            ExprKind::Subquery(query) => self.scalar_query(query, at),
            ExprKind::Exists(query) => self.exists(query, at),
            ExprKind::Case(case) => self.case(case, at),
            ExprKind::Call(call) => self.call(call, at),
            ExprKind::Coalesce(items) => self.coalesce(items, at),
            ExprKind::Greatest(items) => self.extreme(items, "GREATEST", at),
            ExprKind::Least(items) => self.extreme(items, "LEAST", at),
            ExprKind::NullIf(sides) => self.null_if(&sides[0], &sides[1], at),
            ExprKind::Grouping(items) => self.grouping(items, expression.span),
            ExprKind::CurrentValue(value) => self.current_value(*value, at),
            ExprKind::Special(special) => self.special(special, at),
            ExprKind::Xml(_) => Err(self.unsupported("type xml", at)),
        }
    }

    fn prefix(&mut self, prefix: &Prefix, at: u32) -> Result<Operand> {
        let mut operators = prefix.operators.iter();
        // A minus before a number belongs to it.
        let digits = match &prefix.operand.kind {
            ExprKind::Integer(value) => Some(value.to_string()),
            ExprKind::Number(digits) => Some(digits.to_string()),
            _ => None,
        };
        let first = prefix.operators.first().expect("a prefix has operators");
        let mut operand = match (digits, &first.kind) {
            (Some(digits), PrefixKind::Operator(Operator::Minus)) => {
                operators.next();
                let digits = format!("-{digits}");
                match digits.parse::<i32>() {
                    Ok(value) => {
                        let ty = Type::new(TypeId::INT4);
                        let scalar = Scalar::Constant(ty, Value::Integer(value));
                        Operand { scalar, ty, at: first.span.start }
                    }
                    Err(_) => self.number(&digits, first.span.start)?,
                }
            }
            _ => self.expression(&prefix.operand)?,
        };
        let mut levels = depth(&operand.scalar);
        for applied in operators {
            operand = match &applied.kind {
                PrefixKind::Not => {
                    let condition = self.boolean(operand, "NOT")?;
                    boolean(Scalar::Not(Box::new(condition.scalar)), at)
                }
                PrefixKind::Operator(operator) => {
                    self.apply_operator(operator, None, operand, applied.span.start)?
                }
            };
            levels += 1;
            if levels > MOST_LEVELS {
                return Err(too_deep());
            }
        }
        Ok(Operand { at, ..operand })
    }

    fn chain(&mut self, chain: &Chain) -> Result<Operand> {
        let mut steps = chain.steps.iter().peekable();
        let mut operand = match (&chain.first.kind, steps.peek().map(|step| &step.kind)) {
            // An array that is cast: its elements get the type.
            (ExprKind::Array(items), Some(StepKind::Cast(type_name))) => {
                let target = self.type_named(type_name, false)?;
                if is_array(target.id) {
                    let step = steps.next().expect("it was seen");
                    let array = self.array(items, Some(target), chain.first.span.start)?;
                    self.cast(array, target, step.span.start)?
                } else {
                    self.expression(&chain.first)?
                }
            }
            // A column of a relation whose name stands in parentheses.
            (ExprKind::Column(name), Some(StepKind::Access(Accessor::Field(field))))
                if name.qualifiers.is_empty() =>
            {
                match self.field_of_relation(name, field)? {
                    Some(operand) => {
                        steps.next();
                        operand
                    }
                    None => self.expression(&chain.first)?,
                }
            }
            _ => self.expression(&chain.first)?,
        };
        let mut levels = depth(&operand.scalar);
        while let Some(step) = steps.next() {
            let before = match &operand.scalar {
                Scalar::Call(call) => call.arguments.len(),
                _ => 0,
            };
            operand = match &step.kind {
                StepKind::Access(first @ (Accessor::Subscript(_) | Accessor::Slice(_))) => {
                    let mut accessors = vec![first];
                    while let Some(StepKind::Access(next @ (Accessor::Subscript(_) | Accessor::Slice(_)))) =
                        steps.peek().map(|step| &step.kind)
                    {
                        accessors.push(next);
                        steps.next();
                    }
                    self.subscripts(operand, &accessors, step.span.start)?
                }
                _ => self.step(operand, step)?,
            };
            let is_longer = matches!(&operand.scalar, Scalar::Call(call) if call.as_operator && call.arguments.len() > 2 && call.arguments.len() == before + 1);
            if !is_longer {
                levels += 2;
            }
            if levels > MOST_LEVELS {
                return Err(too_deep());
            }
            if levels > LEVELS_OF_CHAIN && steps.peek().is_some() && self.may_be_early(&operand.scalar) {
                operand = self.shared_operand(operand);
                levels = 1;
            }
        }
        Ok(operand)
    }

    /// Whether a scalar may be evaluated before the expression in which it stands: for rows for which that does not need it.
    fn may_be_early(&self, scalar: &Scalar) -> bool {
        self.guards.is_empty() && !self.follows_condition || !scalar.can_fail() && !scalar.is_volatile()
    }

    fn field_of_relation(
        &mut self,
        name: &firn_syntax::tree::ObjectName,
        field: &firn_syntax::tree::Name,
    ) -> Result<Option<Operand>> {
        let is_column = self.levels.iter().flat_map(|level| &level.items).any(|item| {
            item.has_columns && item.columns.iter().any(|column| *column.name == *name.name.text)
        });
        if is_column || self.find_item(None, &name.name.text, name.name.span.start)?.is_none() {
            return Ok(None);
        }
        let qualified =
            firn_syntax::tree::ObjectName { qualifiers: vec![name.name.clone()], name: field.clone() };
        self.column_reference(&qualified).map(Some)
    }

    fn step(&mut self, left: Operand, step: &Step) -> Result<Operand> {
        let at = step.span.start;
        let start = left.at;
        match &step.kind {
            StepKind::Binary(operator, right) => {
                // A row is compared with the row of a sub-query.
                if let (Scalar::Row(fields), ExprKind::Subquery(query)) = (&left.scalar, &right.kind) {
                    let left = self.fields(fields.clone(), start);
                    let right = self.row_query(query)?;
                    if left.len() < right.len() {
                        return Err(self.error(SqlState::SYNTAX_ERROR, "subquery has too many columns", at));
                    }
                    if left.len() > right.len() {
                        return Err(self.error(SqlState::SYNTAX_ERROR, "subquery has too few columns", at));
                    }
                    return Ok(boolean(self.compare_rows(operator, left, right, at)?, start));
                }
                let right = self.expression(right)?;
                if let (Scalar::Row(a), Scalar::Row(b)) = (&left.scalar, &right.scalar) {
                    let (a, b) = (self.fields(a.clone(), left.at), self.fields(b.clone(), right.at));
                    return Ok(boolean(self.compare_rows(operator, a, b, at)?, start));
                }
                self.apply_operator(operator, Some(left), right, at)
            }
            StepKind::Cast(type_name) => {
                let target = self.type_named(type_name, false)?;
                self.cast(left, target, at)
            }
            StepKind::Collate(name) => self.collate(left, name, at),
            StepKind::AtTimeZone(zone) => {
                let zone = self.expression(zone)?;
                let call = self.call_named("timezone", vec![zone, left], at)?;
                Ok(Operand { at: start, ..call })
            }
            StepKind::Is { is_negated, test } => {
                let which = match test {
                    IsTest::Null => {
                        return Ok(boolean(self.is_null(left, *is_negated), start));
                    }
                    IsTest::True => Some(true),
                    IsTest::False => Some(false),
                    IsTest::Unknown => None,
                    IsTest::Document => return Err(self.unsupported("type xml", at)),
                    IsTest::Normalized(form) => {
                        let form = self.normal_form(*form, at);
                        let tested = self.call_named("is_normalized", vec![left, form], at)?;
                        let scalar =
                            if *is_negated { Scalar::Not(Box::new(tested.scalar)) } else { tested.scalar };
                        return Ok(boolean(scalar, start));
                    }
                };
                let construct = match (which, is_negated) {
                    (Some(true), false) => "IS TRUE",
                    (Some(true), true) => "IS NOT TRUE",
                    (Some(false), false) => "IS FALSE",
                    (Some(false), true) => "IS NOT FALSE",
                    (None, false) => "IS UNKNOWN",
                    (None, true) => "IS NOT UNKNOWN",
                };
                let condition = self.boolean(left, construct)?;
                Ok(boolean(Scalar::Test(Box::new(condition.scalar), which, *is_negated), start))
            }
            StepKind::IsDistinctFrom { is_negated, right } => {
                let right = self.expression(right)?;
                Ok(boolean(self.distinct(left, right, *is_negated, at)?, start))
            }
            StepKind::Like(like) => self.like(left, like, at),
            StepKind::Between(between) => {
                let low = self.expression(&between.low)?;
                let high = self.expression(&between.high)?;
                let inside = |binder: &mut Self, low: Operand, high: Operand| -> Result<Scalar> {
                    let (first, second) = if between.is_negated { ("<", ">") } else { (">=", "<=") };
                    let a = binder.apply_operator(&operator(first), Some(left.clone()), low, at)?;
                    let b = binder.apply_operator(&operator(second), Some(left.clone()), high, at)?;
                    let list = vec![binder.boolean(a, "AND")?.scalar, binder.boolean(b, "AND")?.scalar];
                    Ok(if between.is_negated { Scalar::Or(list) } else { Scalar::And(list) })
                };
                let one = inside(self, low.clone(), high.clone())?;
                if !between.is_symmetric {
                    return Ok(boolean(one, start));
                }
                let other = inside(self, high, low)?;
                let both = vec![one, other];
                Ok(boolean(if between.is_negated { Scalar::And(both) } else { Scalar::Or(both) }, start))
            }
            StepKind::InList { is_negated, items } => self.in_list(left, items, *is_negated, at),
            StepKind::InQuery { is_negated, query } => {
                let found = self.quantified_query(left, &Operator::Equal, false, query, at)?;
                let scalar = if *is_negated { Scalar::Not(Box::new(found.scalar)) } else { found.scalar };
                Ok(boolean(scalar, start))
            }
            StepKind::Quantified(quantified) => match &quantified.right {
                QuantifiedRight::Query(query) => {
                    self.quantified_query(left, &quantified.operator, quantified.is_all, query, at)
                }
                QuantifiedRight::Array(array) => {
                    let array = self.expression(array)?;
                    self.quantified_array(left, &quantified.operator, quantified.is_all, array, at)
                }
            },
            StepKind::Access(accessor) => self.access(left, accessor, at),
        }
    }

    /// AND and OR. Later operands are evaluated only where the ones before do not decide.
    fn connective(&mut self, list: &[Expr], is_and: bool, at: u32) -> Result<Operand> {
        let construct = if is_and { "AND" } else { "OR" };
        let guards = self.guards.len();
        let mut conditions = Vec::with_capacity(list.len());
        for (place, item) in list.iter().enumerate() {
            let operand = self.expression(item)?;
            let condition = self.boolean(operand, construct)?.scalar;
            if place + 1 < list.len() {
                self.guards.push(Scalar::Test(Box::new(condition.clone()), Some(!is_and), true));
            }
            conditions.push(condition);
        }
        self.guards.truncate(guards);
        Ok(boolean(if is_and { Scalar::And(conditions) } else { Scalar::Or(conditions) }, at))
    }

    fn like(&mut self, left: Operand, like: &Like, at: u32) -> Result<Operand> {
        let mut pattern = self.expression(&like.pattern)?;
        let symbol = match (like.kind, like.is_negated) {
            (LikeKind::Like, false) => "~~",
            (LikeKind::Like, true) => "!~~",
            (LikeKind::ILike, false) => "~~*",
            (LikeKind::ILike, true) => "!~~*",
            (LikeKind::SimilarTo, false) => "~",
            (LikeKind::SimilarTo, true) => "!~",
        };
        let escape = match &like.escape {
            Some(escape) => Some(self.expression(escape)?),
            None => None,
        };
        if like.kind == LikeKind::SimilarTo {
            let arguments = [pattern].into_iter().chain(escape).collect();
            pattern = self.call_named("similar_to_escape", arguments, at)?;
        } else if let Some(escape) = escape {
            pattern = self.call_named("like_escape", vec![pattern, escape], at)?;
        }
        self.apply_operator(&operator(symbol), Some(left), pattern, at)
    }

    /// `left IN (items)`. Items without columns are one list of values of a common type.
    fn in_list(&mut self, left: Operand, items: &[Expr], is_negated: bool, at: u32) -> Result<Operand> {
        let start = left.at;
        let comparison = if is_negated { Operator::NotEqual } else { Operator::Equal };
        let mut bound = Vec::with_capacity(items.len());
        for item in items {
            bound.push(self.expression(item)?);
        }
        let is_row = matches!(left.scalar, Scalar::Row(_))
            || bound.iter().any(|operand| matches!(operand.scalar, Scalar::Row(_)));
        let mut parts = Vec::new();
        let mut single = bound;
        if !is_row {
            let has_column =
                |operand: &Operand| operand.scalar.any(&mut |part| matches!(part, Scalar::Column(_)));
            let (with_columns, constant): (Vec<Operand>, Vec<Operand>) =
                single.into_iter().partition(has_column);
            single = with_columns;
            if constant.len() > 1 {
                let types: Vec<TypeId> =
                    [left.ty.id].into_iter().chain(constant.iter().map(|operand| operand.ty.id)).collect();
                let common = crate::resolve::common_type(self.registry, &types)
                    .filter(|common| *common != TypeId::RECORD && crate::types::array(*common).is_some());
                let fits = common.is_some_and(|common| {
                    types.iter().all(|ty| {
                        crate::resolve::can_coerce_one(self.registry, *ty, common, CastContext::Implicit)
                    })
                });
                if let (Some(common), true) = (common, fits) {
                    let mut values = Vec::with_capacity(constant.len());
                    for operand in constant {
                        values.push(self.coerce(operand, common, false)?);
                    }
                    parts.push(self.quantified_list(
                        left.clone(),
                        &comparison,
                        is_negated,
                        values,
                        common,
                        at,
                    )?);
                } else {
                    single.splice(0..0, constant);
                }
            } else {
                single.splice(0..0, constant);
            }
        }
        for right in single {
            let part = match (&left.scalar, &right.scalar) {
                (Scalar::Row(a), Scalar::Row(b)) => {
                    let (a, b) = (self.fields(a.clone(), left.at), self.fields(b.clone(), right.at));
                    self.compare_rows(&comparison, a, b, at)?
                }
                _ => {
                    let compared = self.apply_operator(&comparison, Some(left.clone()), right, at)?;
                    self.boolean(compared, "IN")?.scalar
                }
            };
            parts.push(part);
        }
        let scalar = match parts.len() {
            1 => parts.pop().expect("there is one"),
            _ if is_negated => Scalar::And(parts),
            _ => Scalar::Or(parts),
        };
        Ok(boolean(scalar, start))
    }

    fn quantified_list(
        &mut self,
        left: Operand,
        comparison: &Operator,
        is_all: bool,
        values: Vec<Operand>,
        common: TypeId,
        at: u32,
    ) -> Result<Scalar> {
        let chosen = self.choose_operator(comparison, Some(left.ty.id), common, at)?;
        let argument = self.coerce(left, chosen.operands[0], false)?.scalar;
        let mut list = Vec::with_capacity(values.len());
        for value in values {
            list.push(self.coerce(value, chosen.operands[1], false)?.scalar);
        }
        let (function, values) = (chosen.function, Values::List(list));
        Ok(Scalar::Quantified(Box::new(Quantified { function, all: is_all, argument, values })))
    }

    /// `left operator ANY (array)`, or ALL.
    fn quantified_array(
        &mut self,
        left: Operand,
        comparison: &Operator,
        is_all: bool,
        array: Operand,
        at: u32,
    ) -> Result<Operand> {
        let start = left.at;
        let element = match array.ty.id {
            TypeId::UNKNOWN => TypeId::UNKNOWN,
            id => match Type::new(id).element() {
                Some(element) => element.id,
                None => {
                    let message = "op ANY/ALL (array) requires array on right side";
                    return Err(self.error(SqlState::WRONG_OBJECT_TYPE, message, at));
                }
            },
        };
        let chosen = self.choose_operator(comparison, Some(left.ty.id), element, at)?;
        if chosen.result != TypeId::BOOL {
            let message = "op ANY/ALL (array) requires operator to yield boolean";
            return Err(self.error(SqlState::WRONG_OBJECT_TYPE, message, at));
        }
        let Some(of_right) = crate::types::array(chosen.operands[1]) else {
            let message = format!(
                "could not find array type for data type {}",
                crate::resolve::name(chosen.operands[1])
            );
            return Err(self.error(SqlState::UNDEFINED_OBJECT, message, at));
        };
        let argument = self.coerce(left, chosen.operands[0], false)?.scalar;
        let array = self.coerce(array, of_right, false)?.scalar;
        let quantified =
            Quantified { function: chosen.function, all: is_all, argument, values: Values::Array(array) };
        Ok(boolean(Scalar::Quantified(Box::new(quantified)), start))
    }

    /// `ARRAY[…]`. A cast behind it gives its elements their type.
    fn array(&mut self, items: &[Expr], target: Option<Type>, at: u32) -> Result<Operand> {
        let mut operands = Vec::with_capacity(items.len());
        for item in items {
            operands.push(match &item.kind {
                ExprKind::Array(inner) => {
                    self.deeper(|binder| binder.array(inner, target, item.span.start))?
                }
                _ => self.expression(item)?,
            });
        }
        let is_nested = items.first().is_some_and(|item| matches!(item.kind, ExprKind::Array(_)));
        if let Some(target) = target {
            let element = if is_nested { Some(target) } else { target.element() };
            let element = element.expect("an array has elements");
            let mut list = Vec::with_capacity(operands.len());
            for operand in operands {
                let from = operand.ty.id;
                let place = operand.at;
                match self.coerce_to(operand, element, CastContext::Explicit)? {
                    Some(operand) => list.push(operand.scalar),
                    None => {
                        let message = format!(
                            "cannot cast type {} to {}",
                            crate::resolve::name(from),
                            crate::resolve::name(element.id)
                        );
                        return Err(self.error(SqlState::CANNOT_COERCE, message, place));
                    }
                }
            }
            return Ok(Operand { scalar: Scalar::Array(target, list), ty: target, at });
        }
        if operands.is_empty() {
            let error =
                self.error(SqlState::INDETERMINATE_DATATYPE, "cannot determine type of empty array", at);
            return Err(
                error.with_hint("Explicitly cast to the desired type, for example ARRAY[]::integer[].")
            );
        }
        let (list, common) = self.as_common(operands, "ARRAY")?;
        let ty = if is_array(common.id) { Some(common) } else { common.array() };
        let Some(ty) = ty else {
            let message =
                format!("could not find array type for data type {}", crate::resolve::name(common.id));
            return Err(self.error(SqlState::UNDEFINED_OBJECT, message, at));
        };
        let list = list.into_iter().map(|operand| operand.scalar).collect();
        Ok(Operand { scalar: Scalar::Array(ty, list), ty, at })
    }

    fn access(&self, left: Operand, accessor: &Accessor, at: u32) -> Result<Operand> {
        match accessor {
            Accessor::Field(name) => self.field_named(&left, &name.text),
            Accessor::AllFields => {
                Err(self.error(SqlState::SYNTAX_ERROR, "row expansion via \"*\" is not supported here", at))
            }
            Accessor::Subscript(_) | Accessor::Slice(_) => {
                unreachable!("subscripts in a row are bound together")
            }
        }
    }

    /// `array[i][j]` and `array[low:high][k]`: subscripts in a row are one element, or one part if one of them is a slice.
    fn subscripts(&mut self, left: Operand, accessors: &[&Accessor], at: u32) -> Result<Operand> {
        let start = left.at;
        if left.ty.element().is_none() || left.ty.id == TypeId::NAME {
            let message = format!(
                "cannot subscript type {} because it does not support subscripting",
                crate::resolve::name(left.ty.id)
            );
            return Err(self.error(SqlState::DATATYPE_MISMATCH, message, start));
        }
        self.check_subscripts(accessors)?;
        let ty = left.ty;
        let is_slice = accessors.iter().any(|accessor| matches!(accessor, Accessor::Slice(_)));
        let mut arguments = vec![left];
        if !is_slice {
            arguments.extend(self.element_subscripts(accessors)?);
            let call = self.call_named("array_subscript", arguments, at)?;
            // Elements lie as values without precision and scale do.
            let element = ty.element().expect("it was checked");
            let is_alike = element.representation() == call.ty.representation();
            return Ok(Operand { ty: if is_alike { element } else { call.ty }, at: start, ..call });
        }
        arguments.extend(self.bounds(accessors, at)?);
        let call = self.call_named("array_slice", arguments, at)?;
        Ok(Operand { ty, at: start, ..call })
    }

    /// 54000 of more subscripts than an array has dimensions.
    pub(super) fn check_subscripts(&self, accessors: &[&Accessor]) -> Result<()> {
        let most = firn_base::array::MAX_DIMENSIONS;
        if accessors.len() <= most {
            return Ok(());
        }
        let message =
            format!("number of array dimensions ({}) exceeds the maximum allowed ({most})", accessors.len());
        // PostgreSQL reports it without a position.
        Err(firn_base::Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message))
    }

    /// The subscripts of an element.
    pub(super) fn element_subscripts(&mut self, accessors: &[&Accessor]) -> Result<Vec<Operand>> {
        let mut subscripts = Vec::with_capacity(accessors.len());
        for accessor in accessors {
            if let Accessor::Subscript(value) = accessor {
                subscripts.push(self.subscript(value)?);
            }
        }
        Ok(subscripts)
    }

    /// Which bounds of a slice are not written, as `array_slice` takes them, and the bounds.
    pub(super) fn bounds(&mut self, accessors: &[&Accessor], at: u32) -> Result<Vec<Operand>> {
        let number = |value: i32| Operand {
            scalar: Scalar::Constant(Type::new(TypeId::INT4), Value::Integer(value)),
            ty: Type::new(TypeId::INT4),
            at,
        };
        let (mut bounds, mut omitted) = (Vec::with_capacity(accessors.len() * 2), 0);
        for accessor in accessors {
            match accessor {
                // A subscript beside slices is the upper bound of one that begins at 1.
                Accessor::Subscript(value) => {
                    bounds.push(number(1));
                    bounds.push(self.subscript(value)?);
                }
                Accessor::Slice(written) => {
                    for bound in [&written.0, &written.1] {
                        match bound {
                            Some(bound) => bounds.push(self.subscript(bound)?),
                            None => {
                                omitted |= 1 << bounds.len();
                                bounds.push(number(0));
                            }
                        }
                    }
                }
                Accessor::Field(_) | Accessor::AllFields => unreachable!("these are no subscripts"),
            }
        }
        bounds.insert(0, number(omitted));
        Ok(bounds)
    }

    fn subscript(&mut self, value: &Expr) -> Result<Operand> {
        let operand = self.expression(value)?;
        let place = operand.at;
        match self.coerce_to(operand, Type::new(TypeId::INT4), CastContext::Assignment)? {
            Some(operand) => Ok(operand),
            None => {
                let message = "array subscript must have type integer";
                Err(self.error(SqlState::DATATYPE_MISMATCH, message, place))
            }
        }
    }

    /// A call of a function, an aggregate or a window function.
    fn call(&mut self, call: &Call, at: u32) -> Result<Operand> {
        let named = self.registry.functions_named(&call.name.name.text);
        let is_scalar = |function: &std::sync::Arc<firn_vector::registry::Function>| {
            matches!(function.body, Body::Scalar(_))
        };
        if call.over.is_none() && named.iter().all(is_scalar) {
            return self.call_in_place(call, at);
        }
        // What aggregates and window functions need is evaluated for all rows, whatever CASE stands around the call.
        let guards = std::mem::take(&mut self.guards);
        let bound = self.call_in_place(call, at);
        self.guards = guards;
        bound
    }

    fn call_in_place(&mut self, call: &Call, at: u32) -> Result<Operand> {
        let mut arguments = Vec::with_capacity(call.arguments.len() + call.within_group.len());
        let names = argument_names(call);
        for argument in &call.arguments {
            arguments.push(self.expression(&argument.value)?);
        }
        let mut order = Vec::new();
        if !call.within_group.is_empty() {
            for item in &call.within_group {
                let operand = self.expression(&item.value)?;
                arguments.push(operand);
            }
        }
        let shape =
            CallShape { names: &names, is_variadic: call.is_variadic, has_order: !call.order_by.is_empty() };
        let display = call.name.name.text.clone();
        let overload = match self.resolve_call(&call.name, arguments.clone(), shape, at)? {
            Meaning::Cast(target) => {
                self.refuse_aggregate_syntax(call, &display, at)?;
                let argument = arguments.pop().expect("a cast has an argument");
                let cast = self.cast(argument, target, at)?;
                return Ok(Operand { at, ..cast });
            }
            Meaning::Function(overload) => overload,
        };
        match &overload.function.body {
            Body::Scalar(_) => {
                self.refuse_aggregate_syntax(call, &display, at)?;
                if call.over.is_some() {
                    return Err(self.error(
                        SqlState::WRONG_OBJECT_TYPE,
                        format!(
                            "OVER specified, but {display} is not a window function nor an aggregate function"
                        ),
                        at,
                    ));
                }
                match (&*overload.function.name, &overload.arguments[..]) {
                    ("pg_collation_for", [argument]) => self.collation_for(argument, at),
                    _ => Ok(self.scalar_call(overload, at)),
                }
            }
            Body::Set(_) => {
                self.refuse_aggregate_syntax(call, &display, at)?;
                if call.over.is_some() {
                    return Err(self.error(
                        SqlState::WRONG_OBJECT_TYPE,
                        format!(
                            "OVER specified, but {display} is not a window function nor an aggregate function"
                        ),
                        at,
                    ));
                }
                self.set_call(overload, at)
            }
            Body::Window(_) => match &call.over {
                Some(over) => self.window_call(call, over, overload, at),
                None => {
                    let message = format!("window function {display} requires an OVER clause");
                    Err(self.error(SqlState::WRONG_OBJECT_TYPE, message, at))
                }
            },
            Body::Aggregate(_) => match &call.over {
                Some(over) => self.window_call(call, over, overload, at),
                None => {
                    if !call.within_group.is_empty() {
                        let first = overload.arguments.len() - call.within_group.len();
                        for (operand, item) in
                            overload.arguments[first..].iter().cloned().zip(&call.within_group)
                        {
                            order.push(self.sort_spec(operand, item)?);
                        }
                    } else {
                        order = self.call_order(&call.order_by)?;
                    }
                    self.aggregate_call(call, overload, order, at)
                }
            },
        }
    }

    fn refuse_aggregate_syntax(&self, call: &Call, name: &str, at: u32) -> Result<()> {
        let what = if call.is_star {
            format!("{name}(*) specified, but {name} is not an aggregate function")
        } else if call.is_distinct {
            format!("DISTINCT specified, but {name} is not an aggregate function")
        } else if !call.within_group.is_empty() {
            format!("WITHIN GROUP specified, but {name} is not an aggregate function")
        } else if !call.order_by.is_empty() {
            format!("ORDER BY specified, but {name} is not an aggregate function")
        } else if call.filter.is_some() {
            format!("FILTER specified, but {name} is not an aggregate function")
        } else {
            return Ok(());
        };
        Err(self.error(SqlState::WRONG_OBJECT_TYPE, what, at))
    }

    fn collate(&mut self, left: Operand, name: &firn_syntax::tree::ObjectName, at: u32) -> Result<Operand> {
        self.check_schema(&name.qualifiers, at)?;
        let collation = match &*name.name.text {
            "C" | "ucs_basic" => firn_base::Collation::C,
            "POSIX" => firn_base::Collation::POSIX,
            "default" => firn_base::Collation::DEFAULT,
            other => {
                let message = format!("collation \"{other}\" for encoding \"UTF8\" does not exist");
                return Err(self.error(SqlState::UNDEFINED_OBJECT, message, at));
            }
        };
        let left = self.known(left)?;
        if left.ty.collation == firn_base::Collation::NONE {
            let message =
                format!("collations are not supported by type {}", crate::resolve::name(left.ty.id));
            return Err(self.error(SqlState::DATATYPE_MISMATCH, message, at));
        }
        let ty = left.ty.with_collation(collation);
        let cast = firn_plan::scalar::Cast {
            argument: left.scalar,
            ty,
            function: None,
            implicit: false,
            can_fail: false,
        };
        Ok(Operand { scalar: Scalar::Cast(Box::new(cast)), ty, at: left.at })
    }

    /// A condition of WHERE, ON or HAVING: its parts are evaluated one after another.
    pub(super) fn condition(&mut self, expression: &Expr, construct: &str) -> Result<Scalar> {
        let ExprKind::And(list) = &expression.kind else {
            let operand = self.expression(expression)?;
            return Ok(self.boolean(operand, construct)?.scalar);
        };
        let mut conditions = Vec::with_capacity(list.len());
        let follows_condition = self.follows_condition;
        for item in list {
            let operand = self.expression(item)?;
            conditions.push(self.boolean(operand, "AND")?.scalar);
            self.follows_condition = true;
        }
        self.follows_condition = follows_condition;
        Ok(Scalar::And(conditions))
    }
}

/// The most levels of a scalar.
const MOST_LEVELS: u32 = 2 * DEPTH_LIMIT;

/// The levels of a scalar after which the rest of a chain of operators goes on with its value as a column.
const LEVELS_OF_CHAIN: u32 = DEPTH_LIMIT / 2;

/// The levels of a scalar.
fn depth(scalar: &Scalar) -> u32 {
    let mut most = 0;
    scalar.for_each_child(|child| most = most.max(depth(child)));
    most + 1
}
