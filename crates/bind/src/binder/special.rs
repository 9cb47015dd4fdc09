//! Expressions with a syntax of their own: CASE, COALESCE, GREATEST, EXTRACT and their relatives.

use super::attach::Pending;
use super::call::Overload;
use super::select::SetCallPlace;
use super::{Binder, Clause, Operand, Reference};
use firn_base::{Result, SqlState, Type, TypeId, Value};
use firn_plan::scalar::Case as PlanCase;
use firn_plan::{Column, ColumnInfo, Scalar};
use firn_syntax::Span;
use firn_syntax::tree::{Case, CurrentValue, Expr, NormalForm, Operator, Special, TrimSide};
use std::rc::Rc;

impl Binder<'_> {
    /// CASE. Conditions and results are evaluated only on the rows that reach them.
    pub(super) fn case(&mut self, case: &Case, at: u32) -> Result<Operand> {
        let operand = match &case.operand {
            Some(operand) => {
                let operand = self.expression(operand)?;
                Some(self.known(operand)?)
            }
            None => None,
        };
        let guards = self.guards.len();
        let sets = self.level().sets.len();
        let mut conditions = Vec::with_capacity(case.arms.len());
        let mut results = Vec::with_capacity(case.arms.len() + 1);
        for arm in &case.arms {
            let condition = self.expression(&arm.condition)?;
            let condition = match &operand {
                Some(operand) => {
                    let value = Operand { scalar: Scalar::CaseValue(operand.ty), ..operand.clone() };
                    let place = arm.condition.span.start;
                    self.apply_operator(&Operator::Equal, Some(value), condition, place)?
                }
                None => condition,
            };
            let condition = self.boolean(condition, "CASE/WHEN")?;
            // What must hold, where the operand has no name.
            let held = match &operand {
                Some(operand) => with_case_value(condition.scalar.clone(), &operand.scalar),
                None => condition.scalar.clone(),
            };
            let (scalar, held) = self.shared_if_volatile(condition.scalar, held, operand.is_some());
            self.guards.push(held.clone());
            let result = self.expression(&arm.result)?;
            self.guards.pop();
            self.guards.push(Scalar::Test(Box::new(held), Some(true), true));
            conditions.push(scalar);
            results.push(result);
        }
        let otherwise = match &case.otherwise {
            Some(otherwise) => self.expression(otherwise)?,
            None => {
                let ty = Type::new(TypeId::UNKNOWN);
                Operand { scalar: Scalar::Constant(ty, Value::Null), ty, at }
            }
        };
        self.guards.truncate(guards);
        self.refuse_sets_since(sets, "CASE")?;
        // The default counts first when the common type is chosen.
        let mut all = vec![otherwise];
        all.extend(results);
        let ty = self.common_type(&all, "CASE")?;
        let mut all = all.into_iter();
        let otherwise = all.next().expect("it was put there");
        let otherwise = self.coerce_common(otherwise, ty, "CASE/ELSE")?.scalar;
        let mut arms = Vec::with_capacity(conditions.len());
        for (condition, result) in conditions.into_iter().zip(all) {
            arms.push((condition, self.coerce_common(result, ty, "CASE/WHEN")?.scalar));
        }
        let operand = operand.map(|operand| operand.scalar);
        Ok(Operand { scalar: Scalar::Case(Box::new(PlanCase { operand, arms, otherwise })), ty, at })
    }

    /// A condition that is asked in two places gives one answer: a volatile one becomes a column.
    fn shared_if_volatile(&mut self, condition: Scalar, held: Scalar, has_operand: bool) -> (Scalar, Scalar) {
        if has_operand || !condition.is_volatile() {
            return (condition, held);
        }
        let column = self.column_for(&condition, Type::new(TypeId::BOOL), None);
        self.pending.insert(column, Pending::Value(condition));
        (Scalar::Column(column), Scalar::Column(column))
    }

    fn refuse_sets_since(&mut self, count: usize, construct: &str) -> Result<()> {
        let Some(set) = self.level().sets.get(count) else { return Ok(()) };
        let at = set.at;
        let message = format!("set-returning functions are not allowed in {construct}");
        let error = self.error(SqlState::FEATURE_NOT_SUPPORTED, message, at);
        Err(error.with_hint(super::aggregate::MOVE_SET))
    }

    /// COALESCE
    pub(super) fn coalesce(&mut self, items: &[Expr], at: u32) -> Result<Operand> {
        let guards = self.guards.len();
        let sets = self.level().sets.len();
        let mut operands: Vec<Operand> = Vec::with_capacity(items.len());
        for item in items {
            let operand = self.expression(item)?;
            self.guards.push(Scalar::IsNull(Box::new(operand.scalar.clone()), false));
            operands.push(operand);
        }
        self.guards.truncate(guards);
        self.refuse_sets_since(sets, "COALESCE")?;
        let (list, ty) = self.as_common(operands, "COALESCE")?;
        let list = list.into_iter().map(|operand| operand.scalar).collect();
        Ok(Operand { scalar: Scalar::Coalesce(list), ty, at })
    }

    /// GREATEST and LEAST
    pub(super) fn extreme(&mut self, items: &[Expr], construct: &str, at: u32) -> Result<Operand> {
        let mut operands = Vec::with_capacity(items.len());
        for item in items {
            operands.push(self.expression(item)?);
        }
        let (list, ty) = self.as_common(operands, construct)?;
        self.check_order(ty, at)?;
        let function = if construct == "GREATEST" { "greatest" } else { "least" };
        let call = self.call_named(function, list, at)?;
        // All values have the modifier already; the call does not show it.
        let call = Operand { ty: Type::new(ty.id), ..call };
        self.fit_modifier(call, ty, true)
    }

    /// The operand as a column, which is produced where it is needed first.
    pub(super) fn shared_operand(&mut self, operand: Operand) -> Operand {
        let column = self.column_for(&operand.scalar, operand.ty, None);
        self.pending.insert(column, Pending::Value(operand.scalar));
        Operand { scalar: Scalar::Column(column), ..operand }
    }

    /// `NULLIF(left, right)`
    pub(super) fn null_if(&mut self, left: &Expr, right: &Expr, at: u32) -> Result<Operand> {
        let mut left = self.expression(left)?;
        let right = self.expression(right)?;
        // It stands in two places of the CASE: within one another they would double its size each time.
        let has_case = left.scalar.any(&mut |scalar| matches!(scalar, Scalar::Case(_)));
        if left.scalar.is_volatile() || has_case && !left.scalar.can_fail() {
            left = self.shared_operand(left);
        }
        let chosen = self.choose_operator(&Operator::Equal, Some(left.ty.id), right.ty.id, at)?;
        if chosen.result != TypeId::BOOL {
            let message = "NULLIF requires = operator to yield boolean";
            return Err(self.error(SqlState::DATATYPE_MISMATCH, message, at));
        }
        let value = self.coerce(left.clone(), chosen.operands[0], false)?;
        let same = self.call_operator(&chosen, vec![left, right])?;
        let ty = value.ty;
        let none = Scalar::Constant(ty, Value::Null);
        let case = PlanCase { operand: None, arms: vec![(same, none)], otherwise: value.scalar };
        Ok(Operand { scalar: Scalar::Case(Box::new(case)), ty, at })
    }

    /// `GROUPING(…)`
    pub(super) fn grouping(&mut self, items: &[Expr], span: Span) -> Result<Operand> {
        if items.len() > 31 {
            let message = "GROUPING must have fewer than 32 arguments";
            return Err(self.error(SqlState::new("54023"), message, span.start));
        }
        let mut arguments = Vec::with_capacity(items.len());
        for item in items {
            arguments.push(self.expression(item)?.scalar);
        }
        let columns = self.columns_behind(&arguments.iter().collect::<Vec<_>>());
        let (current, level) = (self.levels.len() - 1, self.aggregate_level(&columns));
        self.check_aggregate_place("grouping operations", level, span.start)?;
        let ty = Type::new(TypeId::INT4);
        let owner = self.levels[level].id;
        // Two equal calls are one, as clauses repeat those of the select list.
        let groupings = &self.levels[level].groupings;
        let column = match groupings.iter().find(|(_, other, _)| self.are_same(other, &arguments)) {
            Some((column, ..)) => *column,
            None => {
                let column = self.plan.columns.add(ColumnInfo::new(ty, false).named("grouping"));
                self.owners.insert(column, owner);
                self.levels[level].groupings.push((column, arguments, span));
                column
            }
        };
        if level != current {
            let (table, name) = ("grouping".into(), "grouping".into());
            self.references.push(Reference { column, at: span.start, table, name, owner });
        }
        Ok(Operand { scalar: Scalar::Column(column), ty, at: span.start })
    }

    /// CURRENT_DATE and its relatives.
    pub(super) fn current_value(&mut self, value: CurrentValue, at: u32) -> Result<Operand> {
        let precise = |id: TypeId, digits: Option<i32>| {
            Type::new(id).with_modifier(digits.map_or(-1, |digits| digits.min(6)))
        };
        let name = match value {
            CurrentValue::Date => return self.now_as(Type::new(TypeId::DATE), at),
            CurrentValue::Timestamp(digits) => return self.now_as(precise(TypeId::TIMESTAMPTZ, digits), at),
            CurrentValue::LocalTimestamp(digits) => {
                return self.now_as(precise(TypeId::TIMESTAMP, digits), at);
            }
            CurrentValue::LocalTime(digits) => return self.now_as(precise(TypeId::TIME, digits), at),
            CurrentValue::Time(_) => return Err(self.unsupported("type time with time zone", at)),
            CurrentValue::Role | CurrentValue::CurrentUser | CurrentValue::User => "current_user",
            CurrentValue::SessionUser => "session_user",
            CurrentValue::Catalog => "current_database",
            CurrentValue::Schema => "current_schema",
        };
        self.call_named(name, Vec::new(), at)
    }

    fn now_as(&mut self, ty: Type, at: u32) -> Result<Operand> {
        let now = self.call_named("now", Vec::new(), at)?;
        self.cast(now, ty, at)
    }

    fn text(&self, value: &str, at: u32) -> Operand {
        let ty = Type::new(TypeId::TEXT);
        Operand { scalar: Scalar::Constant(ty, Value::Text(value.to_owned())), ty, at }
    }

    /// The name of a normal form as an argument.
    pub(super) fn normal_form(&self, form: Option<NormalForm>, at: u32) -> Operand {
        let name = match form {
            None | Some(NormalForm::Nfc) => "NFC",
            Some(NormalForm::Nfd) => "NFD",
            Some(NormalForm::Nfkc) => "NFKC",
            Some(NormalForm::Nfkd) => "NFKD",
        };
        self.text(name, at)
    }

    /// Functions with a syntax of their own.
    pub(super) fn special(&mut self, special: &Special, at: u32) -> Result<Operand> {
        match special {
            Special::Extract { field, from } => {
                let from = self.expression(from)?;
                let field = self.text(&field.text, field.span.start);
                self.call_named("extract", vec![field, from], at)
            }
            Special::Overlay { string, replacement, start, length } => {
                let mut arguments =
                    vec![self.expression(string)?, self.expression(replacement)?, self.expression(start)?];
                if let Some(length) = length {
                    arguments.push(self.expression(length)?);
                }
                self.call_named("overlay", arguments, at)
            }
            Special::Position { part, string } => {
                let string = self.expression(string)?;
                let part = self.expression(part)?;
                self.call_named("position", vec![string, part], at)
            }
            Special::Substring { string, start, length } => {
                let mut arguments = vec![self.expression(string)?];
                match start {
                    Some(start) => arguments.push(self.expression(start)?),
                    None if length.is_some() => {
                        let ty = Type::new(TypeId::INT4);
                        arguments.push(Operand { scalar: Scalar::Constant(ty, Value::Integer(1)), ty, at });
                    }
                    None => {}
                }
                if let Some(length) = length {
                    let length_at = length.span.start;
                    let length = self.expression(length)?;
                    arguments.push(match start {
                        Some(_) => length,
                        None => self.cast(length, Type::new(TypeId::INT4), length_at)?,
                    });
                }
                self.call_named("substring", arguments, at)
            }
            Special::SubstringSimilar { string, pattern, escape } => {
                let arguments =
                    vec![self.expression(string)?, self.expression(pattern)?, self.expression(escape)?];
                self.call_named("substring", arguments, at)
            }
            Special::Trim { side, arguments } => {
                let name = match side {
                    TrimSide::Both => "btrim",
                    TrimSide::Leading => "ltrim",
                    TrimSide::Trailing => "rtrim",
                };
                let arguments = self.expressions(arguments)?;
                self.call_named(name, arguments, at)
            }
            Special::Normalize { string, form } => {
                let string = self.expression(string)?;
                let form = self.normal_form(*form, at);
                self.call_named("normalize", vec![string, form], at)
            }
            Special::CollationFor(value) => {
                let value = self.expression(value)?;
                self.collation_for(&value, at)
            }
            Special::Treat { value, type_name } => {
                let target = self.type_named(type_name, false)?;
                let value = self.expression(value)?;
                self.cast(value, target, at)
            }
        }
    }

    /// A call of a function that returns a set, in an expression.
    pub(super) fn set_call(&mut self, overload: Overload, at: u32) -> Result<Operand> {
        let place = match self.level().clause {
            Clause::None
            | Clause::Targets
            | Clause::GroupBy
            | Clause::OrderBy
            | Clause::DistinctOn
            | Clause::WindowPartition
            | Clause::WindowOrder
            | Clause::InsertTargets => None,
            Clause::FromFunction => {
                let message = "set-returning functions must appear at top level of FROM";
                return Err(self.error(SqlState::FEATURE_NOT_SUPPORTED, message, at));
            }
            other => Some(other.name()),
        };
        if let Some(place) = place {
            let message = format!("set-returning functions are not allowed in {place}");
            return Err(self.error(SqlState::FEATURE_NOT_SUPPORTED, message, at));
        }
        let ty = overload.result;
        let arguments: Vec<Scalar> = overload.arguments.into_iter().map(|argument| argument.scalar).collect();
        let function = overload.handle;
        // Two equal calls are one: they go on together. Clauses repeat those of the select list.
        let is_stable = !function.is_volatile() && !arguments.iter().any(Scalar::is_volatile);
        let sets = &self.levels.last().expect("a query is being bound").sets;
        let is_same = |other: &&SetCallPlace| {
            is_stable && other.function == function && self.are_same(&other.arguments, &arguments)
        };
        let same = sets.iter().find(is_same).map(|same| same.outputs.clone());
        // The fields of a row are known by the names that the function gives them.
        let ty = match ty.id {
            TypeId::RECORD => {
                let columns = overload.function.columns();
                let names = columns.map(|parameter| parameter.name.as_deref().unwrap_or_default().into());
                let fields: Vec<(Rc<str>, Type)> = names.zip(overload.columns.iter().copied()).collect();
                if fields.is_empty() {
                    let message = "a column definition list is required for functions returning \"record\"";
                    return Err(self.error(SqlState::SYNTAX_ERROR, message, at));
                }
                self.row_type(None, fields)
            }
            _ => ty,
        };
        if let Some(outputs) = same {
            let columns: Vec<Scalar> = outputs.into_iter().map(Scalar::Column).collect();
            let scalar = match &columns[..] {
                [column] if ty.id != TypeId::RECORD => column.clone(),
                _ => Scalar::Row(columns),
            };
            return Ok(Operand { scalar, ty, at });
        }
        if ty.id != TypeId::RECORD {
            let output = self.new_column(ColumnInfo::new(ty, true).named(&*overload.function.name));
            self.level().sets.push(SetCallPlace { outputs: vec![output], function, arguments, at });
            return Ok(Operand { scalar: Scalar::Column(output), ty, at });
        }
        // One value: the row of the columns.
        let columns = overload.function.columns().zip(&overload.columns);
        let columns: Vec<ColumnInfo> = columns
            .map(|(parameter, ty)| {
                ColumnInfo::new(*ty, true).named(parameter.name.as_deref().unwrap_or_default())
            })
            .collect();
        let outputs: Vec<Column> = columns.into_iter().map(|column| self.new_column(column)).collect();
        let row = Scalar::Row(outputs.iter().map(|column| Scalar::Column(*column)).collect());
        self.level().sets.push(SetCallPlace { outputs, function, arguments, at });
        Ok(Operand { scalar: row, ty, at })
    }
}

/// A condition of CASE with the operand in the place of its value.
fn with_case_value(mut condition: Scalar, operand: &Scalar) -> Scalar {
    fn replace(scalar: &mut Scalar, operand: &Scalar) {
        match scalar {
            Scalar::CaseValue(_) => *scalar = operand.clone(),
            Scalar::Case(case) => {
                if let Some(inner) = &mut case.operand {
                    replace(inner, operand);
                } else {
                    for (condition, _) in &mut case.arms {
                        replace(condition, operand);
                    }
                }
            }
            other => other.for_each_child_mut(|child| replace(child, operand)),
        }
    }
    replace(&mut condition, operand);
    condition
}
