//! Unnesting: no dependent join remains, and every shape is unnested.
//!
//! A dependent join evaluates its right input for each row of the left one. The rewrite follows
//! Neumann ("Improving Unnesting of Complex Queries", BTW 2025; before it Neumann and Kemper,
//! "Unnesting Arbitrary Queries", BTW 2015). The distinct values of the left input's columns that the
//! right one uses are the join's *domain*. The right input is rewritten, from its root down, so that
//! it is evaluated for all values of the domain at once:
//!
//! ```text
//! L dependent join R   =   L join R'  on L's columns IS NOT DISTINCT FROM the domain's in R'
//! R'                   =   for each value d of the domain, the rows of R[d], each with d
//! ```
//!
//! A rewritten operator gives, beside its own columns, a *representative* for each column of the
//! domain: grouping adds them to its keys, a window to its partition, LIMIT becomes a row number per
//! value. An operator that uses no column of the domain stays as it is; where one that does stands
//! above it, the domain is joined to it ([`domain`]). If conditions equate all columns of the
//! domain with columns of that operator, these represent them and the domain is not read: the result
//! then has rows for values that are not asked for, which is allowed only where nothing can fail.
//!
//! A dependent join within the right input of another one gets a domain that has the columns of
//! both, so that each operator is rewritten once, however deeply joins are nested.
//!
//! Where conditions are all that depends on the left input they become the join's, and there is no domain ([`pull_up`]).
//!
//! The domain has a number for each row of the left input, and equal rows are not merged, where the
//! right input is volatile, and where equal values of a column may differ (1.0 and 1.00).

mod domain;
mod join;
mod operators;
mod pull_up;

use crate::column::{Column, ColumnInfo};
use crate::function::{Function, Functions};
use crate::operator::{Frame, IterateId, Operator, SharedId, Window, WindowCall};
use crate::plan::{NodeId, Plan};
use crate::properties::{self, Producers};
use domain::{Domain, DomainId};
use firn_base::{Type, TypeId};
use std::collections::HashMap;

/// Removes all dependent joins.
pub fn unnest(plan: &mut Plan, functions: &dyn Functions) {
    let has_any = |plan: &Plan| {
        let is_dependent = |node: &NodeId| matches!(&plan[*node], Operator::Join(join) if join.dependent);
        plan.post_order().iter().any(is_dependent)
    };
    if !has_any(plan) {
        return;
    }
    let producers = Producers::of(plan);
    let outer = properties::outer_columns(plan, &producers, &HashMap::new());
    let must_be_exact = exactness(plan, &outer);
    pull_up::pull_up(plan, &producers, &outer, &must_be_exact);
    if !has_any(plan) {
        return;
    }
    let (numbers, extra) = number_rows(plan, functions);
    let producers = Producers::of(plan);
    let outer = properties::outer_columns(plan, &producers, &extra);
    let must_be_exact = exactness(plan, &outer);
    let mut unnester = Unnester {
        next_shared: plan.unused_shared_id(),
        functions,
        producers,
        outer,
        must_be_exact,
        numbers,
        renamed: HashMap::new(),
        domains: Vec::new(),
        shared: HashMap::new(),
        iterations: HashMap::new(),
        plan,
    };
    let root = unnester.rewrite(unnester.plan.root, None).0;
    unnester.plan.root = root;
    for index in 0..unnester.plan.output.len() {
        unnester.plan.output[index] = unnester.current(unnester.plan.output[index]);
    }
    assert!(!has_any(plan), "a dependent join remains");
}

/// The columns of a domain, as the plan before knows them, and what represents each.
type Representatives = Vec<(Column, Column)>;

struct Unnester<'a> {
    plan: &'a mut Plan,
    functions: &'a dyn Functions,
    /// Of the plan before.
    producers: Producers,
    /// For each operator of the plan before the outer columns that its sub-plan uses.
    outer: Vec<Vec<Column>>,
    /// Whether a sub-plan of the plan before may be evaluated only for values that are asked for.
    must_be_exact: Vec<bool>,
    /// The columns with row numbers in the left inputs of dependent joins.
    numbers: HashMap<NodeId, Column>,
    /// What columns are above a left input that is shared.
    renamed: HashMap<Column, Column>,
    domains: Vec<Domain>,
    next_shared: SharedId,
    /// The representatives that definitions give.
    shared: HashMap<SharedId, Representatives>,
    /// The representatives that recursions give beside their columns.
    iterations: HashMap<IterateId, Representatives>,
}

impl Unnester<'_> {
    /// What a column of the plan before is now.
    fn current(&self, column: Column) -> Column {
        let mut column = column;
        while let Some(next) = self.renamed.get(&column) {
            column = *next;
        }
        column
    }

    /// Whether a sub-plan uses columns of a domain.
    fn depends(&self, node: NodeId, domain: DomainId) -> bool {
        let columns = &self.domains[domain.0].columns;
        self.outer[node.index()].iter().any(|column| columns.contains(column))
    }

    /// Lets an operator use what represents the domain's columns.
    fn substitute(&self, operator: &mut Operator, representatives: &Representatives) {
        operator.rename_uses(&mut |column| {
            let found = representatives.iter().find(|(of, _)| *of == column);
            found.map_or_else(|| self.current(column), |(_, by)| *by)
        });
    }

    /// A sub-plan for all values of a domain, whether it depends on it or not; for none as it is.
    fn for_each(&mut self, node: NodeId, domain: Option<DomainId>) -> (NodeId, Representatives) {
        match domain {
            Some(domain) if !self.depends(node, domain) => {
                let node = self.rewrite(node, None).0;
                self.cross_domain(node, domain)
            }
            _ => self.rewrite(node, domain),
        }
    }

    /// As [`Self::for_each`]; `equal` are columns that conditions above equate with the domain's.
    fn for_each_equal(
        &mut self,
        node: NodeId,
        domain: Option<DomainId>,
        equal: Representatives,
    ) -> (NodeId, Representatives) {
        if let Some(domain) = domain
            && !self.depends(node, domain)
            && self.represent(domain, &equal, node)
        {
            let rewritten = self.rewrite(node, None).0;
            return (rewritten, self.representatives(domain, &equal));
        }
        self.for_each(node, domain)
    }

    fn function(&self, name: &str, arguments: &[TypeId]) -> Function {
        let types: Vec<Type> = arguments.iter().map(|id| Type::new(*id)).collect();
        let found = self.functions.named(name, &types);
        found.unwrap_or_else(|| panic!("the registry has no {name}"))
    }

    fn new_shared(&mut self) -> SharedId {
        let id = self.next_shared;
        self.next_shared = SharedId(id.0 + 1);
        id
    }
}

/// Numbers the rows of left inputs where the domain must not merge equal rows. Gives the number's column
/// for each such join, and for operators of their right inputs the numbers that they depend on.
#[allow(clippy::type_complexity)]
fn number_rows(
    plan: &mut Plan,
    functions: &dyn Functions,
) -> (HashMap<NodeId, Column>, HashMap<NodeId, Vec<Column>>) {
    let (mut numbers, mut extra) = (HashMap::new(), HashMap::<NodeId, Vec<Column>>::new());
    let producers = Producers::of(plan);
    let outer = properties::outer_columns(plan, &producers, &extra);
    let order = plan.post_order();
    let mut is_volatile = vec![false; plan.size()];
    for &node in &order {
        let below = plan[node].inputs().into_iter().any(|input| is_volatile[input.index()]);
        is_volatile[node.index()] = below || properties::is_volatile(plan, node);
    }
    for &node in &order {
        let Operator::Join(join) = &plan[node] else { continue };
        let (left, right) = (join.left, join.right);
        let outer_of_right = &outer[right.index()];
        let uses_left = outer_of_right.iter().any(|column| producers.is_below(*column, left));
        let differs = |column: &Column| !properties::equality_is_identity(&plan.columns, *column);
        if !join.dependent
            || !uses_left
            || !(is_volatile[right.index()] || outer_of_right.iter().any(differs))
        {
            continue;
        }
        let function = functions.named("row_number", &[]).expect("the registry has row_number");
        let info = ColumnInfo::new(Type::new(TypeId::INT8), function.may_be_null).named("row_number");
        let number = plan.columns.add(info);
        for below in plan.post_order_of(right) {
            let mut uses = properties::is_volatile(plan, below);
            plan[below].for_each_scalar(|scalar| {
                uses |= scalar.uses(|column| producers.is_below(column, left));
            });
            if uses {
                extra.entry(below).or_default().push(number);
            }
        }
        let call = WindowCall {
            output: number,
            function,
            arguments: Vec::new(),
            filter: None,
            frame: Frame::default(),
        };
        let window =
            Window { input: left, partition: Vec::new(), order: Vec::new(), first: None, calls: vec![call] };
        let numbered = plan.add(Operator::Window(window));
        if let Operator::Join(join) = &mut plan[node] {
            join.left = numbered;
        }
        numbers.insert(node, number);
    }
    (numbers, extra)
}

/// For each sub-plan whether an operator of it that outer columns reach can fail, locks, or may not end.
fn exactness(plan: &Plan, outer: &[Vec<Column>]) -> Vec<bool> {
    let mut exact = vec![false; plan.size()];
    for node in plan.post_order() {
        let own = !outer[node.index()].is_empty()
            && (properties::can_fail(plan, node) || matches!(plan[node], Operator::Iterate(_)));
        exact[node.index()] = own || plan[node].inputs().into_iter().any(|input| exact[input.index()]);
    }
    exact
}

#[cfg(test)]
mod tests;
