//! The printer of plans.

use super::constant::{write_constant, write_type, write_word};
use crate::column::{Column, Columns};
use crate::operator::*;
use crate::plan::{NodeId, Plan};
use crate::scalar::{Call, Scalar, Values};
use std::fmt::Write;

/// The text of a plan, which ends with a line's end.
pub fn print(plan: &Plan) -> String {
    print_with(plan, |_| String::new())
}

/// As [`print`], with what is noted of each operator at the end of its line.
pub fn print_with(plan: &Plan, note: impl Fn(NodeId) -> String) -> String {
    let mut printer = Printer { columns: &plan.columns, out: String::new() };
    printer.put("Output ");
    printer.list(&plan.output, |printer, column| printer.column(*column));
    printer.put("\n");
    let mut stack: Vec<(NodeId, usize)> = vec![(plan.root, 1)];
    while let Some((node, level)) = stack.pop() {
        printer.out.extend(std::iter::repeat_n("  ", level));
        printer.operator(&plan[node]);
        printer.put(&note(node));
        printer.put("\n");
        stack.extend(plan[node].inputs().into_iter().rev().map(|input| (input, level + 1)));
    }
    printer.out
}

/// The text of one operator, without its inputs.
pub fn operator_line(columns: &Columns, operator: &Operator) -> String {
    let mut printer = Printer { columns, out: String::new() };
    printer.operator(operator);
    printer.out
}

/// The text of a scalar.
pub fn scalar(columns: &Columns, scalar: &Scalar) -> String {
    let mut printer = Printer { columns, out: String::new() };
    printer.scalar(scalar);
    printer.out
}

struct Printer<'a> {
    columns: &'a Columns,
    out: String,
}

impl Printer<'_> {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn number(&mut self, number: impl std::fmt::Display) {
        write!(self.out, "{number}").expect("strings take all");
    }

    fn items<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Self, T),
    ) {
        self.put(open);
        for (index, next) in items.into_iter().enumerate() {
            self.put(if index == 0 { "" } else { ", " });
            item(self, next);
        }
        self.put(close);
    }

    fn list<T>(&mut self, items: impl IntoIterator<Item = T>, item: impl FnMut(&mut Self, T)) {
        self.items(items, "[", "]", item);
    }

    fn column(&mut self, column: Column) {
        write!(self.out, "#{}", column.0).expect("strings take all");
        if let Some(name) = self.columns.get(column).and_then(|info| info.name.as_deref()) {
            self.put(" ");
            write_word(name, &mut self.out);
        }
    }

    /// A column where it is produced.
    fn definition(&mut self, column: Column) {
        self.column(column);
        self.put(": ");
        let info = &self.columns[column];
        write_type(info.ty, &mut self.out);
        if !info.nullable {
            self.put(" not null");
        }
        if let Some(origin) = info.origin {
            write!(self.out, " from {}.{}", origin.relation, origin.attribute).expect("strings take all");
        }
    }

    fn columns(&mut self, columns: &[Column]) {
        self.list(columns, |printer, column| printer.column(*column));
    }

    fn definitions(&mut self, columns: &[Column]) {
        self.list(columns, |printer, column| printer.definition(*column));
    }

    fn order(&mut self, keys: &[SortKey]) {
        self.list(keys, |printer, key| {
            printer.column(key.column);
            if key.descending {
                printer.put(" desc");
            }
            // As in SQL, NULLs are larger than all values unless it is said.
            if key.nulls_first != key.descending {
                printer.put(if key.nulls_first { " nulls first" } else { " nulls last" });
            }
        });
    }

    fn scalars(&mut self, scalars: &[Scalar]) {
        self.list(scalars, |printer, scalar| printer.scalar(scalar));
    }

    fn operator(&mut self, operator: &Operator) {
        self.put(crate::verify::name(operator));
        match operator {
            Operator::Scan(scan) => {
                self.put(" ");
                self.number(scan.source.0);
                if let Some(name) = &scan.name {
                    self.put(" ");
                    write_word(name, &mut self.out);
                }
                self.put(" ");
                self.list(&scan.columns, |printer, (column, attribute)| {
                    printer.definition(*column);
                    printer.put(" = ");
                    printer.number(attribute);
                });
                if !scan.conditions.is_empty() {
                    self.put(" where ");
                    self.scalars(&scan.conditions);
                }
            }
            Operator::Values { columns, rows } => {
                self.put(" ");
                self.definitions(columns);
                self.put(" rows ");
                self.list(rows, |printer, row| {
                    printer.items(row, "(", ")", |printer, scalar| printer.scalar(scalar));
                });
            }
            Operator::TableFunction(calls) | Operator::FlatMap { calls, .. } => self.set_calls(calls),
            Operator::Filter { conditions, .. } => {
                self.put(" ");
                self.scalars(conditions);
            }
            Operator::Map { outputs, .. } => {
                self.put(" ");
                self.list(outputs, |printer, (column, scalar)| {
                    printer.definition(*column);
                    printer.put(" := ");
                    printer.scalar(scalar);
                });
            }
            Operator::Join(join) => {
                self.put(match join.kind {
                    JoinKind::Inner => " inner",
                    JoinKind::Left => " left",
                    JoinKind::Full => " full",
                    JoinKind::Semi => " semi",
                    JoinKind::Anti => " anti",
                    JoinKind::Mark => " mark",
                    JoinKind::Single => " single",
                });
                if join.dependent {
                    self.put(" dependent");
                }
                if let Some(mark) = join.mark {
                    self.put(" ");
                    self.definition(mark);
                }
                match &join.method {
                    JoinMethod::BuildRight => {}
                    JoinMethod::BuildLeft => self.put(" build left"),
                    JoinMethod::Index(index) => {
                        self.put(" by ");
                        self.list(&index.attributes, |printer, attribute| {
                            printer.put(&attribute.to_string());
                        });
                        if let Some(first) = &index.first {
                            self.put(" first ");
                            self.scalar(&first.count);
                            if !first.order.is_empty() {
                                self.put(" order ");
                                self.order(&first.order);
                            }
                        }
                    }
                }
                if !join.conditions.is_empty() {
                    self.put(" on ");
                    self.scalars(&join.conditions);
                }
            }
            Operator::Group(group) => self.group(group),
            Operator::Window(window) => {
                if !window.partition.is_empty() {
                    self.put(" partition ");
                    self.columns(&window.partition);
                }
                if !window.order.is_empty() {
                    self.put(" order ");
                    self.order(&window.order);
                }
                if let Some(first) = &window.first {
                    self.put(" first ");
                    self.scalar(first);
                }
                self.put(" calls ");
                self.list(&window.calls, |printer, call| {
                    printer.definition(call.output);
                    printer.put(" := ");
                    printer.function(&call.function.name, &call.arguments);
                    if let Some(filter) = &call.filter {
                        printer.put(" filter ");
                        printer.scalar(filter);
                    }
                    printer.frame(&call.frame);
                });
            }
            Operator::Sort { keys, .. } => {
                self.put(" ");
                self.order(keys);
            }
            Operator::Limit(limit) => {
                if let Some(count) = &limit.count {
                    self.put(" ");
                    self.scalar(count);
                }
                if let Some(offset) = &limit.offset {
                    self.put(" offset ");
                    self.scalar(offset);
                }
                if let Some(ties) = &limit.ties {
                    self.put(" ties ");
                    self.order(ties);
                }
            }
            Operator::DistinctOn { keys, order, .. } => {
                self.put(" ");
                self.columns(keys);
                if !order.is_empty() {
                    self.put(" order ");
                    self.order(order);
                }
            }
            Operator::Sample { by_block, percent, seed, .. } => {
                self.put(if *by_block { " system " } else { " bernoulli " });
                self.scalar(percent);
                if let Some(seed) = seed {
                    self.put(" seed ");
                    self.scalar(seed);
                }
            }
            Operator::UnionAll { columns, inputs } => {
                self.put(" ");
                self.definitions(columns);
                self.put(" inputs ");
                self.list(inputs, |printer, (_, columns)| printer.columns(columns));
            }
            Operator::Iterate(iterate) => {
                self.put(" ");
                self.number(iterate.id.0);
                self.put(if iterate.distinct { " distinct " } else { " all " });
                self.definitions(&iterate.columns);
                self.put(" initial ");
                self.columns(&iterate.initial_columns);
                self.put(" step ");
                self.columns(&iterate.step_columns);
            }
            Operator::IterateRead { iterate, columns } => {
                self.put(" ");
                self.number(iterate.0);
                self.put(" ");
                self.definitions(columns);
            }
            Operator::Shared { id, .. } => {
                self.put(" ");
                self.number(id.0);
            }
            Operator::SharedRead { id, columns } => {
                self.put(" ");
                self.number(id.0);
                self.put(" ");
                self.list(columns, |printer, (own, of)| {
                    printer.definition(*own);
                    printer.put(" := ");
                    printer.column(*of);
                });
            }
            Operator::Lock { targets, .. } => {
                self.put(" ");
                self.list(targets, |printer, target| {
                    printer.number(target.source.0);
                    printer.put(" ");
                    printer.column(target.row);
                    printer.put(match target.strength {
                        LockStrength::KeyShare => " key share",
                        LockStrength::Share => " share",
                        LockStrength::NoKeyUpdate => " no key update",
                        LockStrength::Update => " update",
                    });
                    printer.put(match target.wait {
                        LockWait::Block => "",
                        LockWait::Error => " no wait",
                        LockWait::Skip => " skip",
                    });
                });
            }
            Operator::Insert(insert) => {
                self.put(" ");
                self.number(insert.target.0);
                self.put(" ");
                self.assignments(&insert.values);
                if !insert.conflicts.is_empty() {
                    self.put(" conflict ");
                    self.list(&insert.conflicts, |printer, arm| printer.conflict(arm));
                }
                self.images(&insert.images);
            }
            Operator::Update(update) => {
                self.target(update.target, update.row);
                self.put(" set ");
                self.assignments(&update.set);
                self.images(&update.images);
            }
            Operator::Delete { target, row, images, .. } => {
                self.target(*target, *row);
                self.images(images);
            }
            Operator::Merge(merge) => {
                self.target(merge.target, merge.row);
                self.put(" when ");
                self.list(&merge.arms, |printer, arm| {
                    printer.put(if arm.matched { "matched" } else { "not matched" });
                    if !arm.conditions.is_empty() {
                        printer.put(" and ");
                        printer.scalars(&arm.conditions);
                    }
                    printer.put(" then ");
                    match &arm.action {
                        MergeAction::Update(set) => {
                            printer.put("update ");
                            printer.assignments(set);
                        }
                        MergeAction::Delete => printer.put("delete"),
                        MergeAction::Insert(set) => {
                            printer.put("insert ");
                            printer.assignments(set);
                        }
                        MergeAction::Nothing => printer.put("nothing"),
                    }
                });
                self.images(&merge.images);
            }
        }
    }

    fn target(&mut self, target: SourceId, row: Column) {
        self.put(" ");
        self.number(target.0);
        self.put(" ");
        self.column(row);
    }

    fn conflict(&mut self, arm: &ConflictArm) {
        self.list(&arm.indexes, |printer, index| printer.number(index));
        let Some(update) = &arm.update else {
            self.put(" nothing");
            return;
        };
        let attributes = |printer: &mut Self, columns: &[(Column, i16)]| {
            printer.list(columns, |printer, (column, attribute)| {
                printer.definition(*column);
                printer.put(" = ");
                printer.number(attribute);
            });
        };
        self.put(" update ");
        attributes(self, &update.existing);
        self.put(" ");
        attributes(self, &update.excluded);
        self.put(" set ");
        self.assignments(&update.set);
        if !update.conditions.is_empty() {
            self.put(" where ");
            self.scalars(&update.conditions);
        }
    }

    fn assignments(&mut self, assignments: &[Assignment]) {
        self.list(assignments, |printer, assignment| {
            printer.number(assignment.attribute);
            printer.put(" := ");
            printer.scalar(&assignment.value);
        });
    }

    fn images(&mut self, images: &[Image]) {
        if !images.is_empty() {
            self.put(" returning ");
            self.list(images, |printer, image| {
                printer.definition(image.output);
                printer.put(if image.old { " = old " } else { " = " });
                printer.number(image.attribute);
            });
        }
    }

    fn set_calls(&mut self, calls: &SetCalls) {
        self.put(" ");
        self.list(&calls.calls, |printer, call| {
            printer.function(&call.function.name, &call.arguments);
            printer.put(" -> ");
            printer.definitions(&call.columns);
        });
        if let Some(ordinality) = calls.ordinality {
            self.put(" ordinality ");
            self.definition(ordinality);
        }
    }

    fn group(&mut self, group: &Group) {
        if !group.keys.is_empty() {
            self.put(" by ");
            self.columns(&group.keys);
        }
        if !group.determined.is_empty() {
            self.put(" determined ");
            self.columns(&group.determined);
        }
        if let Some(sets) = &group.sets {
            self.put(" sets ");
            self.list(&sets.sets, |printer, set| {
                printer.items(set, "(", ")", |printer, key| printer.number(key));
            });
            self.put(" as ");
            self.definitions(&sets.columns);
            if let Some(number) = sets.number {
                self.put(" number ");
                self.definition(number);
            }
        }
        if !group.aggregates.is_empty() {
            self.put(" aggregates ");
            self.list(&group.aggregates, |printer, aggregate| {
                printer.definition(aggregate.output);
                printer.put(" := ");
                printer.function(&aggregate.function.name, &aggregate.arguments);
                if aggregate.distinct {
                    printer.put(" distinct");
                }
                if !aggregate.order.is_empty() {
                    printer.put(" order ");
                    printer.order(&aggregate.order);
                }
                if let Some(filter) = &aggregate.filter {
                    printer.put(" filter ");
                    printer.scalar(filter);
                }
            });
        }
    }

    fn frame(&mut self, frame: &Frame) {
        if *frame == Frame::default() {
            return;
        }
        self.put(match frame.unit {
            FrameUnit::Rows => " frame rows (",
            FrameUnit::Range => " frame range (",
            FrameUnit::Groups => " frame groups (",
        });
        self.bound(&frame.start);
        self.put(", ");
        self.bound(&frame.end);
        self.put(")");
        self.put(match frame.exclude {
            Exclude::NoOthers => "",
            Exclude::CurrentRow => " exclude current",
            Exclude::Group => " exclude group",
            Exclude::Ties => " exclude peers",
        });
    }

    fn bound(&mut self, bound: &Bound) {
        match bound {
            Bound::UnboundedPreceding => self.put("first"),
            Bound::Preceding(scalar) => {
                self.put("preceding ");
                self.scalar(scalar);
            }
            Bound::CurrentRow => self.put("current"),
            Bound::Following(scalar) => {
                self.put("following ");
                self.scalar(scalar);
            }
            Bound::UnboundedFollowing => self.put("last"),
        }
    }

    fn function(&mut self, name: &str, arguments: &[Scalar]) {
        write_word(name, &mut self.out);
        self.items(arguments, "(", ")", |printer, argument| printer.scalar(argument));
    }

    fn call(&mut self, call: &Call) {
        let operator = call.function.operator.as_deref().filter(|_| call.as_operator);
        match operator {
            Some(symbol) if call.arguments.len() == 1 => {
                self.put("(");
                self.put(symbol);
                self.put(" ");
                self.scalar(&call.arguments[0]);
                self.put(")");
            }
            Some(symbol) => self.infix(&call.arguments, symbol),
            None => self.function(&call.function.name, &call.arguments),
        }
        let declared = firn_base::Type::new(call.function.result);
        if call.ty != declared {
            self.put(" as ");
            write_type(call.ty, &mut self.out);
        }
    }

    fn infix(&mut self, operands: &[Scalar], symbol: &str) {
        self.put("(");
        for (index, operand) in operands.iter().enumerate() {
            if index > 0 {
                self.put(" ");
                self.put(symbol);
                self.put(" ");
            }
            self.scalar(operand);
        }
        self.put(")");
    }

    fn postfix(&mut self, argument: &Scalar, negated: bool, what: &str) {
        self.put("(");
        self.scalar(argument);
        self.put(if negated { " is not " } else { " is " });
        self.put(what);
        self.put(")");
    }

    fn scalar(&mut self, scalar: &Scalar) {
        match scalar {
            Scalar::Column(column) => self.column(*column),
            Scalar::Constant(ty, value) => write_constant(*ty, value, &mut self.out),
            Scalar::Parameter(number, ty) => {
                write!(self.out, "${number}::").expect("strings take all");
                write_type(*ty, &mut self.out);
            }
            Scalar::Call(call) => self.call(call),
            Scalar::Cast(cast) => {
                self.put(if cast.implicit { "coerce(" } else { "cast(" });
                self.scalar(&cast.argument);
                self.put(" as ");
                write_type(cast.ty, &mut self.out);
                if let Some(function) = &cast.function {
                    self.put(" using ");
                    write_word(&function.name, &mut self.out);
                }
                self.put(if cast.can_fail { ", may fail)" } else { ")" });
            }
            Scalar::And(list) if list.len() > 1 => self.infix(list, "and"),
            Scalar::Or(list) if list.len() > 1 => self.infix(list, "or"),
            Scalar::And(list) => self.function("all_of", list),
            Scalar::Or(list) => self.function("any_of", list),
            Scalar::Not(argument) => {
                self.put("(not ");
                self.scalar(argument);
                self.put(")");
            }
            Scalar::Case(case) => {
                self.put("case");
                if let Some(operand) = &case.operand {
                    self.put(" ");
                    self.scalar(operand);
                }
                for (condition, result) in &case.arms {
                    self.put(" when ");
                    self.scalar(condition);
                    self.put(" then ");
                    self.scalar(result);
                }
                self.put(" else ");
                self.scalar(&case.otherwise);
                self.put(" end");
            }
            Scalar::CaseValue(ty) => {
                self.put("case_value(");
                write_type(*ty, &mut self.out);
                self.put(")");
            }
            Scalar::Coalesce(list) => self.function("coalesce", list),
            Scalar::IsNull(argument, negated) => self.postfix(argument, *negated, "null"),
            Scalar::Test(argument, which, negated) => {
                let what = match which {
                    Some(true) => "true",
                    Some(false) => "false",
                    None => "unknown",
                };
                self.postfix(argument, *negated, what);
            }
            Scalar::Distinct(pair, negated) => {
                self.put("(");
                self.scalar(&pair.0);
                self.put(if *negated { " is not distinct from " } else { " is distinct from " });
                self.scalar(&pair.1);
                self.put(")");
            }
            Scalar::Quantified(quantified) => {
                self.put("(");
                self.scalar(&quantified.argument);
                self.put(" ");
                self.put(quantified.function.operator.as_deref().unwrap_or("="));
                self.put(if quantified.all { " all " } else { " any " });
                match &quantified.values {
                    Values::List(list) => self.scalars(list),
                    Values::Array(array) => self.scalar(array),
                }
                self.put(")");
            }
            Scalar::Array(ty, list) => {
                self.put("array");
                self.scalars(list);
                self.put("::");
                write_type(*ty, &mut self.out);
            }
            Scalar::Row(list) => self.function("row", list),
            Scalar::Field(argument, index, ty) => {
                self.put("field(");
                self.scalar(argument);
                self.put(", ");
                self.number(index);
                self.put(" as ");
                write_type(*ty, &mut self.out);
                self.put(")");
            }
        }
    }
}
