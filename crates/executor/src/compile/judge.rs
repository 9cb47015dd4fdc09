//! Conditions on one column of strings that are no range of values: scans evaluate them once for each value of a dictionary.
//!
//! `s LIKE '%x%'`, `lower(s) = 'x'` and `length(s) > 5` cost many times what the look-up of a code costs. Where blocks have codes, a
//! scan evaluates such a condition for the values of the dictionary, and only rows whose codes are among those that meet it are
//! decoded. The condition stays above the scan: there are blocks without codes, and dictionaries of more values than there are rows.
//!
//! A dictionary may have values that no row has, or none that other conditions leave. If one of them raises an error, nothing is
//! judged by values.

use crate::arrays::vector_of;
use crate::budget::Budget;
use crate::expression::{Compiler, Conditions, Layout, Scope};
use crate::source;
use crate::template::Template;
use firn_base::sync::{Arc, Mutex};
use firn_base::{Representation, Type, TypeId};
use firn_plan::function::{Function, Volatility};
use firn_plan::{Column, Columns, Scalar};
use firn_storage::Judge;
use firn_vector::context::detached;
use firn_vector::{Chunk, Context, Data, Vector};

/// A condition that is worth being judged by values.
pub struct PlannedJudge {
    /// The attribute of its column.
    pub attribute: i16,
    representation: Representation,
    condition: Template<Conditions>,
}

impl PlannedJudge {
    /// Of a condition of a scan of these columns, if it is one.
    pub(super) fn of(
        condition: &Scalar,
        columns: &[(Column, i16)],
        scalars: &Compiler<'_>,
    ) -> Option<PlannedJudge> {
        let mut used = None;
        let mut is_alone = true;
        condition.for_each_column(&mut |column| is_alone &= *used.get_or_insert(column) == column);
        let column = used.filter(|_| is_alone && is_costly(condition, scalars.columns))?;
        let (_, attribute) = columns.iter().find(|(other, _)| *other == column)?;
        let representation = source::representation(scalars.columns, column);
        representation.is_string().then_some(())?;
        let layout: Layout = std::iter::once((column, representation)).collect();
        let condition = Conditions::new(vec![scalars.scalar(condition, &layout).ok()?]);
        Some(PlannedJudge { attribute: *attribute, representation, condition: Template::new(condition) })
    }

    /// As a scan asks it, with the values of the statement's parameters.
    pub fn judge(&self, parameters: &[Vector], budget: &Arc<Budget>) -> Judge {
        let condition = Mutex::new(self.condition.copy());
        let (parameters, budget, representation) = (parameters.to_vec(), budget.clone(), self.representation);
        Arc::new(move |values| {
            let context = Context { memory: &*budget, ..detached() };
            let scope = Scope { context: &context, parameters: &parameters };
            let chunk = Chunk::new(values.len(), vec![vector_of(values, representation)]);
            let truth = condition.lock().truth(&scope, &chunk).ok()?.plain(chunk.rows());
            let Some(Data::Boolean(bits)) = truth.data() else { panic!("conditions are booleans") };
            let is_true =
                |row: usize| bits.value(if truth.is_constant() { 0 } else { row }) && !truth.is_null(row);
            Some((0..values.len()).map(is_true).collect())
        })
    }
}

/// Whether a condition depends on its columns and parameters alone, and takes more than comparisons, which scans ask by themselves. How
/// values are read from text and written as text depends on the session.
fn is_costly(condition: &Scalar, columns: &Columns) -> bool {
    let is_fixed = |function: &Function| {
        function.volatility == Volatility::Immutable && !TEXT_OF_ANYTHING.contains(&function.oid)
    };
    let is_string = |ty: Type| matches!(ty.id, TypeId::TEXT | TypeId::VARCHAR | TypeId::BPCHAR);
    let mut is_costly = false;
    let depends_on_session = condition.any(&mut |scalar| match scalar {
        Scalar::Call(call) => {
            is_costly |= call.function.strategy.is_none();
            !is_fixed(&call.function)
        }
        Scalar::Quantified(quantified) => !is_fixed(&quantified.function),
        Scalar::Cast(cast) => match &cast.function {
            Some(function) => {
                is_costly = true;
                !is_fixed(function)
            }
            None => !is_string(cast.ty) || !is_string(cast.argument.ty(columns)),
        },
        Scalar::Case(_) => {
            is_costly = true;
            false
        }
        _ => false,
    });
    is_costly && !depends_on_session
}

/// `text || anything` and `anything || text`, which write their values as the session does.
const TEXT_OF_ANYTHING: [u32; 2] = [2003, 2004];
