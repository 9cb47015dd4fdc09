//! Computed columns: what a source computes of its rows for its indexes, in the place of the expressions that conditions write.
//!
//! The key of an index on an expression is a column of the source that no statement names. A condition of a scan that has the
//! expression asks that column instead, so that the index can find the rows. A partial index begins with a column that is TRUE in
//! the rows of the index and NULL in all others. Where the conditions of a scan imply that of the index, one is added: that the
//! column is TRUE.
//!
//! Whether conditions imply another is decided by a part of PostgreSQL's rules (`predtest.c`): equal conditions, comparisons of one
//! operand with constants, lists of constants, AND and OR, and `IS NOT NULL` of what a strict condition is about. The value of a
//! parameter is not known here, and so implies nothing.

use super::Evaluator;
use crate::column::ColumnInfo;
use crate::function::{Function, Functions, Strategy};
use crate::operator::{Operator, Scan};
use crate::plan::Plan;
use crate::scalar::{Scalar, Values};
use crate::statistics::{Computed, Meaning, Statistics};
use firn_base::{Type, TypeId, Value};

/// Lets the conditions of scans ask computed columns.
pub fn use_computed(
    plan: &mut Plan,
    functions: &dyn Functions,
    evaluator: &dyn Evaluator,
    statistics: &dyn Statistics,
) {
    for node in plan.post_order() {
        let Operator::Scan(scan) = &plan[node] else { continue };
        if scan.conditions.is_empty() {
            continue;
        }
        let mut computed = statistics.computed(scan.source);
        if computed.is_empty() {
            continue;
        }
        let mut scan = scan.clone();
        scan.conditions.iter_mut().for_each(forget_casts);
        // The conditions of partial indexes are written with expressions, and an expression may be a part of a larger one.
        computed.sort_by_key(|column| match &column.meaning {
            Meaning::Member(_) => 0,
            Meaning::Value(value) => usize::MAX - size(value),
        });
        let (mut added, mut is_changed) = (Vec::new(), false);
        for column in &computed {
            match &column.meaning {
                Meaning::Member(conditions) => {
                    let conditions: Option<Vec<Scalar>> =
                        conditions.iter().map(|condition| localized(condition, column, &scan)).collect();
                    if conditions.is_some_and(|wanted| all_implied(&scan.conditions, &wanted, evaluator))
                        && !finds_one_row(&scan, statistics)
                        && let Some(equality) = functions.operator("=", &[column.ty; 2])
                    {
                        is_changed = true;
                        let own = Scalar::Column(column_of(&mut scan, plan, column));
                        added.push(Scalar::call(equality, true, vec![own, Scalar::boolean(true)]));
                    }
                }
                Meaning::Value(value) => {
                    let Some(value) = localized(value, column, &scan) else { continue };
                    if scan.conditions.iter().any(|condition| condition.any(&mut |part| *part == value)) {
                        is_changed = true;
                        let own = Scalar::Column(column_of(&mut scan, plan, column));
                        scan.conditions.iter_mut().for_each(|condition| replace(condition, &value, &own));
                    }
                }
            }
        }
        if is_changed {
            scan.conditions.append(&mut added);
            plan[node] = Operator::Scan(scan);
        }
    }
}

/// Takes from casts whether the statement writes them, which makes no difference to what they are: but for those to a length, of which
/// only explicit ones cut a value off.
pub fn forget_casts(scalar: &mut Scalar) {
    if let Scalar::Cast(cast) = scalar
        && cast.ty.modifier < 0
    {
        cast.implicit = true;
    }
    scalar.for_each_child_mut(forget_casts);
}

/// Whether conditions are all TRUE wherever others are.
pub fn all_implied(given: &[Scalar], wanted: &[Scalar], evaluator: &dyn Evaluator) -> bool {
    wanted.iter().all(|wanted| given.iter().any(|given| implies(given, wanted, evaluator)))
}

/// How many parts an expression has.
fn size(scalar: &Scalar) -> usize {
    let mut size = 0;
    scalar.any(&mut |_| {
        size += 1;
        false
    });
    size
}

/// An expression of a computed column over the columns of a scan; `None` if the scan does not have them all.
fn localized(scalar: &Scalar, column: &Computed, scan: &Scan) -> Option<Scalar> {
    let mut scalar = scalar.clone();
    forget_casts(&mut scalar);
    localize(&mut scalar, column, scan).then_some(scalar)
}

/// Whether the scan has all columns.
fn localize(scalar: &mut Scalar, column: &Computed, scan: &Scan) -> bool {
    if let Scalar::Column(used) = scalar {
        let attribute = column.inputs.iter().find(|(input, _)| input == used).map(|(_, number)| *number);
        let own = scan.columns.iter().find(|(_, number)| Some(*number) == attribute);
        if let Some((own, _)) = own {
            *used = *own;
        }
        return own.is_some();
    }
    let mut has_all = true;
    scalar.for_each_child_mut(|child| has_all &= localize(child, column, scan));
    has_all
}

/// The column of a scan that is a computed one.
fn column_of(scan: &mut Scan, plan: &mut Plan, column: &Computed) -> crate::column::Column {
    if let Some((known, _)) = scan.columns.iter().find(|(_, attribute)| *attribute == column.attribute) {
        return *known;
    }
    let new = plan.columns.add(ColumnInfo::new(column.ty, true).named(column.name.clone()));
    scan.columns.push((new, column.attribute));
    new
}

fn replace(scalar: &mut Scalar, part: &Scalar, with: &Scalar) {
    if scalar == part {
        *scalar = with.clone();
        return;
    }
    scalar.for_each_child_mut(|child| replace(child, part, with));
}

/// Whether conditions of a scan equate all columns of a unique index: no other index finds fewer rows.
fn finds_one_row(scan: &Scan, statistics: &dyn Statistics) -> bool {
    let is_equated = |attribute: &i16| {
        let Some((own, _)) = scan.columns.iter().find(|(_, number)| number == attribute) else {
            return false;
        };
        scan.conditions.iter().any(|condition| match condition {
            Scalar::Call(call) => {
                call.function.is_equality()
                    && call.arguments.iter().any(|argument| argument.as_column() == Some(*own))
            }
            _ => false,
        })
    };
    statistics
        .indexes(scan.source)
        .iter()
        .any(|index| index.unique && index.attributes.iter().all(is_equated))
}

/// A comparison of an operand with a constant.
struct Comparison<'a> {
    operand: &'a Scalar,
    /// What it compares as, with the operand on the left.
    strategy: Strategy,
    function: &'a Function,
    constant: (Type, &'a Value),
    constant_is_left: bool,
}

impl Comparison<'_> {
    /// Whether it is TRUE of a value, if it compares values of that type.
    fn holds(&self, value: (Type, &Value), evaluator: &dyn Evaluator) -> Option<bool> {
        let (left, right) = match self.constant_is_left {
            true => (self.constant, value),
            false => (value, self.constant),
        };
        let fits = |place: usize, ty: Type| self.function.argument(place) == Some(ty.id);
        (fits(0, left.0) && fits(1, right.0)).then_some(())?;
        let arguments = [(left.0, left.1.clone()), (right.0, right.1.clone())];
        match evaluator.call(self.function, &arguments, Type::new(TypeId::BOOL)) {
            Ok(Value::Boolean(truth)) => Some(truth),
            _ => None,
        }
    }

    /// Whether it is TRUE wherever another one is.
    fn is_implied_by(&self, given: &Comparison<'_>, evaluator: &dyn Evaluator) -> bool {
        use Strategy::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        if self.operand != given.operand {
            return false;
        }
        let meets = || self.holds(given.constant, evaluator) == Some(true);
        match (given.strategy, self.strategy) {
            (Equal, _) => meets(),
            (NotEqual, _) | (_, Equal) => false,
            // What equals the constant is not given.
            (_, NotEqual) => given.holds(self.constant, evaluator) == Some(false),
            (Less | LessOrEqual, Less | LessOrEqual)
            | (Greater | GreaterOrEqual, Greater | GreaterOrEqual) => {
                let excludes = matches!(given.strategy, Less | Greater);
                meets() || excludes && given.constant == self.constant
            }
            _ => false,
        }
    }
}

/// Comparisons with constants one of which holds where a condition does.
fn comparisons(condition: &Scalar) -> Vec<Comparison<'_>> {
    match condition {
        Scalar::Call(call) => {
            let (Some(strategy), [left, right]) = (call.function.strategy, &call.arguments[..]) else {
                return Vec::new();
            };
            let found = match (constant(left), constant(right)) {
                (None, Some(value)) => compared(left, &call.function, strategy, value, false),
                (Some(value), None) => compared(right, &call.function, strategy.commuted(), value, true),
                _ => None,
            };
            found.into_iter().collect()
        }
        Scalar::Quantified(quantified) if !quantified.all && quantified.function.is_equality() => {
            let Values::List(list) = &quantified.values else { return Vec::new() };
            let Some(values) = list.iter().map(constant).collect::<Option<Vec<_>>>() else {
                return Vec::new();
            };
            let (operand, function) = (&quantified.argument, &quantified.function);
            let equal = |value| compared(operand, function, Strategy::Equal, value, false);
            values.into_iter().filter_map(equal).collect()
        }
        _ => Vec::new(),
    }
}

fn constant(scalar: &Scalar) -> Option<(Type, &Value)> {
    match scalar {
        Scalar::Constant(ty, value) => Some((*ty, value)),
        _ => None,
    }
}

/// A comparison with a constant; `None` if that is NULL, with which nothing compares.
fn compared<'a>(
    operand: &'a Scalar,
    function: &'a Function,
    strategy: Strategy,
    constant: (Type, &'a Value),
    constant_is_left: bool,
) -> Option<Comparison<'a>> {
    let is_null = *constant.1 == Value::Null;
    (!is_null).then_some(Comparison { operand, strategy, function, constant, constant_is_left })
}

/// A condition of which only TRUE counts, without `IS TRUE`.
fn plain(scalar: &Scalar) -> &Scalar {
    match scalar {
        Scalar::Test(inner, Some(true), false) => inner,
        other => other,
    }
}

/// Whether a condition is TRUE wherever another one is.
fn implies(given: &Scalar, wanted: &Scalar, evaluator: &dyn Evaluator) -> bool {
    let (given, wanted) = (plain(given), plain(wanted));
    if given == wanted {
        return true;
    }
    match wanted {
        Scalar::And(list) => return list.iter().all(|part| implies(given, part, evaluator)),
        Scalar::Or(list) if list.iter().any(|part| implies(given, part, evaluator)) => return true,
        _ => {}
    }
    match given {
        Scalar::Or(list) => return list.iter().all(|part| implies(part, wanted, evaluator)),
        Scalar::And(list) => return list.iter().any(|part| implies(part, wanted, evaluator)),
        _ => {}
    }
    if let Scalar::IsNull(operand, true) = wanted {
        // `x = ANY (array)` is FALSE for a NULL and an empty array, which is as good where it is asked alone.
        return match given {
            Scalar::Quantified(quantified) => {
                quantified.function.strict && !quantified.all && is_null_with(&quantified.argument, operand)
            }
            given => is_null_with(given, operand),
        };
    }
    let (given, wanted) = (comparisons(given), comparisons(wanted));
    !given.is_empty()
        && given.iter().all(|given| wanted.iter().any(|wanted| wanted.is_implied_by(given, evaluator)))
}

/// Whether a scalar is NULL wherever another one is.
fn is_null_with(scalar: &Scalar, operand: &Scalar) -> bool {
    if scalar == operand {
        return true;
    }
    match scalar {
        Scalar::Call(call) => {
            call.function.strict && call.arguments.iter().any(|argument| is_null_with(argument, operand))
        }
        Scalar::Cast(cast) => {
            cast.function.as_ref().is_none_or(|function| function.strict)
                && is_null_with(&cast.argument, operand)
        }
        Scalar::Not(inner) => is_null_with(inner, operand),
        Scalar::Quantified(quantified) => {
            let is_list = matches!(quantified.values, Values::List(_));
            is_list
                && quantified.function.strict
                && !quantified.all
                && is_null_with(&quantified.argument, operand)
        }
        _ => false,
    }
}
