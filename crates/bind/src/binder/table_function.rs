//! Functions in FROM: their columns, ROWS FROM, WITH ORDINALITY, and lists of column definitions.

use super::call::{CallShape, Meaning, argument_names};
use super::output::column_name;
use super::{Binder, Clause, ItemColumn, Operand, Table};
use firn_base::{Result, SqlState, Type, TypeId};
use firn_plan::operator::{SetCall, SetCalls};
use firn_plan::{Column, ColumnInfo, NodeId, Operator, Scalar};
use firn_syntax::tree::{
    Alias, Argument, Call, ColumnDefinition, Expr, ExprKind, TableFunction, TableFunctionItem,
};
use firn_vector::registry::Body;
use std::borrow::Cow;
use std::rc::Rc;

impl Binder<'_> {
    /// Functions in FROM.
    pub(super) fn table_function(
        &mut self,
        function: &TableFunction,
        alias: Option<&Alias>,
    ) -> Result<NodeId> {
        let function = &*unnested(function);
        // Functions are LATERAL whether they say so or not.
        self.level().lateral_active = true;
        let bound = self.within(Clause::FromFunction, |binder| binder.set_calls(function, alias));
        self.level().lateral_active = false;
        let (calls, mut values, mut columns, is_single) = bound?;
        let is_padded = calls.len() > 1;
        let ordinality = function.with_ordinality.then(|| {
            self.new_column(ColumnInfo::new(Type::new(TypeId::INT8), is_padded).named("ordinality"))
        });
        if let Some(column) = ordinality {
            // The number is there in each row.
            self.plan.columns[column].nullable = false;
            columns.push(ItemColumn {
                name: "ordinality".into(),
                value: Scalar::Column(column),
                ty: Type::new(TypeId::INT8),
            });
        }
        let arguments: Vec<Scalar> = calls.iter().flat_map(|call| call.arguments.iter().cloned()).collect();
        let has_queries = arguments.iter().any(|argument| self.has_pending(argument));
        let mut node = if calls.is_empty() && ordinality.is_none() {
            // Scalar expressions alone are one row.
            let row = self.plan.add(Operator::Values { columns: Vec::new(), rows: vec![Vec::new()] });
            let scalars: Vec<Scalar> = values.iter().map(|(_, scalar)| scalar.clone()).collect();
            let node = self.attach(row, &scalars);
            self.map(node, std::mem::take(&mut values))
        } else if has_queries {
            let row = self.plan.add(Operator::Values { columns: Vec::new(), rows: vec![Vec::new()] });
            let input = self.attach(row, &arguments);
            self.plan.add(Operator::FlatMap { input, calls: SetCalls { calls, ordinality } })
        } else {
            self.plan.add(Operator::TableFunction(SetCalls { calls, ordinality }))
        };
        node = self.map(node, values);
        let name: Rc<str> = match alias {
            Some(alias) => (&*alias.name.text).into(),
            None => column_name(&function.functions[0].call).into(),
        };
        if let Some(alias) = alias {
            columns = self.renamed(columns, alias, &name)?;
        }
        let mut table = Table::derived(&name, columns);
        table.has_alias = true;
        table.is_function = is_single && !function.with_ordinality;
        self.add_item(table);
        Ok(node)
    }

    /// The calls, the values that are no calls, the columns of all, and whether it is one call of single values.
    #[allow(clippy::type_complexity)]
    fn set_calls(
        &mut self,
        function: &TableFunction,
        alias: Option<&Alias>,
    ) -> Result<(Vec<SetCall>, Vec<(Column, Scalar)>, Vec<ItemColumn>, bool)> {
        let mut calls = Vec::with_capacity(function.functions.len());
        let mut values = Vec::new();
        let mut columns = Vec::new();
        let mut is_single = function.functions.len() == 1;
        for item in &function.functions {
            let definitions = if item.columns.is_empty() { &function.columns } else { &item.columns };
            let name: Rc<str> = column_name(&item.call).into();
            let Some((handle, arguments, result, outs)) = self.set_function(&item.call)? else {
                // An expression with a syntax of its own is a value of one row.
                let operand = self.expression(&item.call)?;
                let operand = self.known(operand)?;
                let column = self.column_for(&operand.scalar, operand.ty, Some(&name));
                values.push((column, operand.scalar));
                let named = match alias {
                    Some(alias) if !function.is_rows_from => (&*alias.name.text).into(),
                    _ => name,
                };
                columns.push(ItemColumn { name: named, value: Scalar::Column(column), ty: operand.ty });
                continue;
            };
            let typed: Vec<(Rc<str>, Type)> = if !outs.is_empty() {
                is_single = is_single && outs.len() == 1 && result.id != TypeId::RECORD;
                outs
            } else if result.id == TypeId::RECORD {
                is_single = false;
                if definitions.is_empty() {
                    let message = "a column definition list is required for functions returning \"record\"";
                    return Err(self.error(SqlState::SYNTAX_ERROR, message, item.call.span.start));
                }
                self.defined_columns(definitions)?
            } else {
                if let Some(definition) = definitions.first() {
                    let message =
                        "a column definition list is only allowed for functions returning \"record\"";
                    return Err(self.error(SqlState::SYNTAX_ERROR, message, definition.name.span.start));
                }
                // A function of single values is named as its item is.
                let name = match alias {
                    Some(alias) if !function.is_rows_from || function.functions.len() == 1 => {
                        (&*alias.name.text).into()
                    }
                    _ => name,
                };
                vec![(name, result)]
            };
            let mut produced = Vec::with_capacity(typed.len());
            for (name, ty) in typed {
                let column = self.new_column(ColumnInfo::new(ty, true).named(&*name));
                produced.push(column);
                columns.push(ItemColumn { name, value: Scalar::Column(column), ty });
            }
            calls.push(SetCall { function: handle, arguments, columns: produced });
        }
        Ok((calls, values, columns, is_single))
    }

    /// A call of a function, its result, and the columns that it declares.
    #[allow(clippy::type_complexity)]
    fn set_function(
        &mut self,
        expression: &Expr,
    ) -> Result<Option<(firn_plan::Function, Vec<Scalar>, Type, Vec<(Rc<str>, Type)>)>> {
        let ExprKind::Call(call) = &expression.kind else { return Ok(None) };
        if call.over.is_some() || call.is_star || call.is_distinct || call.filter.is_some() {
            return Ok(None);
        }
        let at = expression.span.start;
        let mut arguments = Vec::with_capacity(call.arguments.len());
        for argument in &call.arguments {
            arguments.push(self.expression(&argument.value)?);
        }
        let names = argument_names(call);
        let shape = CallShape { names: &names, is_variadic: call.is_variadic, ..CallShape::default() };
        match self.resolve_call(&call.name, arguments, shape, at)? {
            Meaning::Cast(_) => Ok(None),
            Meaning::Function(overload) => {
                match overload.function.body {
                    Body::Aggregate(_) => {
                        let message = "aggregate functions are not allowed in functions in FROM";
                        return Err(self.error(SqlState::GROUPING_ERROR, message, at));
                    }
                    Body::Window(_) => {
                        let message =
                            format!("window function {} requires an OVER clause", call.name.name.text);
                        return Err(self.error(SqlState::WRONG_OBJECT_TYPE, message, at));
                    }
                    _ => {}
                }
                let result = overload.result;
                let outs: Vec<(Rc<str>, Type)> = overload
                    .function
                    .columns()
                    .zip(&overload.columns)
                    .enumerate()
                    .map(|(place, (parameter, ty))| {
                        let name = match &parameter.name {
                            Some(name) => (&**name).into(),
                            None => format!("column{}", place + 1).into(),
                        };
                        (name, *ty)
                    })
                    .collect();
                let arguments =
                    overload.arguments.into_iter().map(|argument: Operand| argument.scalar).collect();
                Ok(Some((overload.handle, arguments, result, outs)))
            }
        }
    }

    fn defined_columns(&self, definitions: &[ColumnDefinition]) -> Result<Vec<(Rc<str>, Type)>> {
        let typed = |definition: &ColumnDefinition| {
            Ok(((&*definition.name.text).into(), self.type_named(&definition.type_name, false)?))
        };
        definitions.iter().map(typed).collect()
    }
}

/// `unnest` of several arrays is several calls side by side, as PostgreSQL's parse analysis has it (transformRangeFunction).
fn unnested(function: &TableFunction) -> Cow<'_, TableFunction> {
    let several = |item: &TableFunctionItem| match &item.call.kind {
        ExprKind::Call(call) if item.columns.is_empty() && function.columns.is_empty() => {
            let is_plain = !call.is_variadic
                && !call.is_distinct
                && call.order_by.is_empty()
                && call.filter.is_none()
                && call.over.is_none();
            let is_unnest = call.name.qualifiers.is_empty() && *call.name.name.text == *"unnest";
            is_plain && is_unnest && call.arguments.len() > 1
        }
        _ => false,
    };
    if !function.functions.iter().any(several) {
        return Cow::Borrowed(function);
    }
    let each = |item: &TableFunctionItem| match &item.call.kind {
        ExprKind::Call(call) if several(item) => {
            let single = |argument: &Argument| TableFunctionItem {
                call: Expr {
                    kind: ExprKind::Call(Box::new(Call {
                        arguments: vec![argument.clone()],
                        ..(**call).clone()
                    })),
                    ..item.call.clone()
                },
                columns: Vec::new(),
            };
            call.arguments.iter().map(single).collect()
        }
        _ => vec![item.clone()],
    };
    Cow::Owned(TableFunction {
        functions: function.functions.iter().flat_map(each).collect(),
        ..function.clone()
    })
}
