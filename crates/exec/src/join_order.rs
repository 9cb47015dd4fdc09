//! The order of joins, chosen by cost.
//!
//! DataFusion joins tables in the order in which the statement names them. Here every tree of inner
//! joins in an optimised plan is taken apart into its relations and conditions and put together
//! again: by dynamic programming over all connected subsets of up to [`EXHAUSTIVE`] relations, by
//! joining the pair with the smallest result beyond. The cost of a plan is what its joins build,
//! probe and yield.
//!
//! Sizes come from row counts, unique keys, and a sample: the first batch of a table, on which
//! predicates are evaluated and distinct values counted. A join on a unique key keeps the share of
//! that table which its own predicates keep; other joins divide by the larger number of distinct
//! values.
//!
//! Invariant: a reordered plan has the schema of the original, columns in the same order.

use crate::reads::firn_table;
use crate::scan::FirnTable;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{
    Column, DFSchema, ExprSchema, HashMap, JoinConstraint, JoinType, NullEquality, Result,
};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, Join, LogicalPlan, LogicalPlanBuilder, Operator};
use datafusion::physical_expr::create_physical_expr;
use firn_base::sync::Arc;
use firn_base::{ColumnId, Snapshot, TableId};
use std::cell::RefCell;

/// Up to how many relations all orders are tried; 3^10 steps take a few milliseconds.
const EXHAUSTIVE: usize = 10;

/// The share of rows that a predicate keeps of which nothing is known.
const UNKNOWN_SELECTIVITY: f64 = 0.25;

/// Chooses the order of all inner joins in an optimised plan, and the build sides of the others.
pub fn reorder(plan: LogicalPlan, snapshot: Snapshot) -> Result<LogicalPlan> {
    let estimator = Estimator { snapshot, samples: RefCell::default() };
    estimator.visit(plan)
}

/// A set of relations, one bit each.
type Set = u64;

/// How many relations a set can have. Of more, those that the statement names last are joined as it says.
const MOST_RELATIONS: usize = Set::BITS as usize;

/// A condition between relations.
struct Condition {
    /// The relations that it speaks of.
    mentions: Set,
    kind: Kind,
}

enum Kind {
    /// An equality between an expression over some relations and one over others.
    Equal {
        left: Expr,
        right: Expr,
        left_side: Set,
        right_side: Set,
    },
    Other(Expr),
}

/// Inner joins taken apart.
struct JoinGraph {
    relations: Vec<LogicalPlan>,
    conditions: Vec<Condition>,
    /// Estimated rows of each relation.
    rows: Vec<f64>,
    /// Between pairs of relations (as a set of two): the share of the product that equalities keep.
    edges: Vec<(Set, f64)>,
}

/// How a set of relations is joined.
#[derive(Clone)]
enum Tree {
    Relation(usize),
    /// The build side first.
    Join(Arc<Tree>, Arc<Tree>, Set, Set),
}

#[derive(Clone)]
struct Candidate {
    cost: f64,
    rows: f64,
    tree: Arc<Tree>,
}

struct Estimator {
    snapshot: Snapshot,
    samples: RefCell<HashMap<(TableId, ColumnId), ArrayRef>>,
}

impl Estimator {
    fn visit(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let plan = plan.map_subqueries(|subquery| Ok(Transformed::yes(self.visit(subquery)?)))?.data;
        if is_inner_join(&plan) && relations_of(&plan) <= MOST_RELATIONS {
            let (mut relations, mut predicates) = (Vec::new(), Vec::new());
            let schema = Arc::clone(plan.schema());
            take_apart(plan, &mut relations, &mut predicates);
            let relations =
                relations.into_iter().map(|relation| self.visit(relation)).collect::<Result<Vec<_>>>()?;
            return self.join(relations, predicates, &schema);
        }
        let plan = plan.map_children(|child| Ok(Transformed::yes(self.visit(child)?)))?.data;
        match plan {
            LogicalPlan::Join(join) => self.choose_build_side(join),
            other => Ok(other),
        }
    }

    /// Joins relations in the cheapest order found.
    fn join(
        &self,
        relations: Vec<LogicalPlan>,
        predicates: Vec<Predicate>,
        schema: &DFSchema,
    ) -> Result<LogicalPlan> {
        let graph = self.graph(relations, predicates);
        let count = graph.relations.len();
        let best = if count <= EXHAUSTIVE { graph.exhaustive() } else { graph.greedy() };
        let mut used = vec![false; graph.conditions.len()];
        let mut joined = graph.build(&best.tree, &mut used)?;
        // Conditions on one relation or none: the optimiser has pushed them down, nearly always.
        let left: Vec<Expr> = graph
            .conditions
            .iter()
            .zip(&used)
            .filter(|(_, used)| !**used)
            .map(|(condition, _)| condition.expression())
            .collect();
        if let Some(predicate) = conjunction(left) {
            joined = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(joined))?);
        }
        restore(joined, schema)
    }

    fn graph(&self, relations: Vec<LogicalPlan>, predicates: Vec<Predicate>) -> JoinGraph {
        let mentions = |expression: &Expr| -> Set {
            let mut set = 0;
            for column in expression.column_refs() {
                let owner = relations.iter().position(|relation| relation.schema().has_column(column));
                set |= owner.map_or(0, |owner| 1 << owner);
            }
            set
        };
        let conditions: Vec<Condition> = predicates
            .into_iter()
            .map(|predicate| match predicate {
                Predicate::Equal(left, right) => {
                    let (left_side, right_side) = (mentions(&left), mentions(&right));
                    let mentions = left_side | right_side;
                    if left_side & right_side == 0 && left_side != 0 && right_side != 0 {
                        Condition { mentions, kind: Kind::Equal { left, right, left_side, right_side } }
                    } else {
                        Condition { mentions, kind: Kind::Other(left.eq(right)) }
                    }
                }
                Predicate::Other(expression) => {
                    Condition { mentions: mentions(&expression), kind: Kind::Other(expression) }
                }
            })
            .collect();
        let rows: Vec<f64> = relations.iter().map(|relation| self.rows(relation).max(1.0)).collect();
        let mut edges = Vec::new();
        for right in 0..relations.len() {
            for left in 0..right {
                if let Some(share) = self.edge(&relations, &rows, &conditions, left, right) {
                    edges.push((1 << left | 1 << right, share));
                }
            }
        }
        JoinGraph { relations, conditions, rows, edges }
    }

    /// The share of the product of two relations that the equalities between them keep.
    fn edge(
        &self,
        relations: &[LogicalPlan],
        rows: &[f64],
        conditions: &[Condition],
        left: usize,
        right: usize,
    ) -> Option<f64> {
        let (mut left_keys, mut right_keys) = (Vec::new(), Vec::new());
        for condition in conditions {
            let Kind::Equal { left: a, right: b, left_side, .. } = &condition.kind else { continue };
            if condition.mentions != (1 << left | 1 << right) {
                continue;
            }
            let (a, b) = if *left_side == 1 << left { (a, b) } else { (b, a) };
            left_keys.push(a.clone());
            right_keys.push(b.clone());
        }
        if left_keys.is_empty() {
            return None;
        }
        let left_distinct = self.distinct(&relations[left], rows[left], &left_keys);
        let right_distinct = self.distinct(&relations[right], rows[right], &right_keys);
        Some(1.0 / left_distinct.max(right_distinct).max(1.0))
    }

    /// How many different values some expressions together take in the table that a relation reads,
    /// whatever predicates keep of it: a join partner that was filtered away leaves its key unmatched.
    fn distinct(&self, relation: &LogicalPlan, rows: f64, keys: &[Expr]) -> f64 {
        let columns: Option<Vec<&Column>> = keys
            .iter()
            .map(|key| match key {
                Expr::Column(column) => Some(column),
                _ => None,
            })
            .collect();
        let Some(columns) = columns else { return rows.sqrt() };
        if let LogicalPlan::Aggregate(aggregate) = below_renames(relation)
            && aggregate.group_expr.len() <= keys.len()
        {
            return rows;
        }
        let Some((table, columns)) = base_columns(relation, &columns) else { return rows };
        let base_rows = (table.table().approximate_rows() as f64).max(1.0);
        let definition = table.definition();
        let covers_key =
            definition.indexes.iter().filter(|index| index.unique).any(|index| {
                index.columns.iter().all(|key| columns.iter().any(|column| column.0 == key.column))
            });
        if covers_key {
            return base_rows;
        }
        let product: f64 =
            columns.iter().map(|column| self.distinct_values(&table, *column, base_rows)).product();
        product.min(base_rows)
    }

    /// Distinct values of one column, from a sample.
    fn distinct_values(&self, table: &FirnTable, column: ColumnId, rows: f64) -> f64 {
        let sample = self.sample(table, column);
        let length = sample.len() as f64;
        if length == 0.0 {
            return 1.0;
        }
        let mut hashes = vec![0; sample.len()];
        if create_hashes([&sample], &RandomState::with_seed(0), &mut hashes).is_err() {
            return rows.sqrt();
        }
        let mut counts: HashMap<u64, u32> = HashMap::new();
        for hash in hashes {
            *counts.entry(hash).or_default() += 1;
        }
        let once = counts.values().filter(|count| **count == 1).count() as f64;
        let repeated = counts.len() as f64 - once;
        if length >= rows {
            return counts.len() as f64;
        }
        // Values seen once stand for many that were not seen (the GEE estimator); if nearly all were
        // seen once, for their share of the table.
        let unseen = if once > 0.9 * length { rows * once / length } else { (rows / length).sqrt() * once };
        (repeated + unseen).clamp(1.0, rows)
    }

    /// The first values of a column.
    fn sample(&self, table: &FirnTable, column: ColumnId) -> ArrayRef {
        let key = (table.table().id(), column);
        if let Some(sample) = self.samples.borrow().get(&key) {
            return Arc::clone(sample);
        }
        let scan = table.table().scan(self.snapshot, &[column], false);
        let guard = firn_storage::pin();
        let sample = match scan.next_batch(&guard) {
            Some(mut batch) => batch.columns.remove(0),
            None => {
                let stored = table.table().columns()[column.index()].representation;
                datafusion::arrow::array::new_empty_array(&firn_storage::arrow::data_type(stored))
            }
        };
        self.samples.borrow_mut().insert(key, Arc::clone(&sample));
        sample
    }

    /// About how many rows a plan yields.
    fn rows(&self, plan: &LogicalPlan) -> f64 {
        match plan {
            LogicalPlan::TableScan(scan) => {
                let rows = match firn_table(scan) {
                    Some(table) => table.table().approximate_rows() as f64,
                    None => 1000.0,
                };
                rows.min(scan.fetch.map_or(f64::INFINITY, |fetch| fetch as f64))
            }
            LogicalPlan::Filter(filter) => self.rows(&filter.input) * self.selectivity(filter),
            LogicalPlan::Aggregate(aggregate) => {
                let input = self.rows(&aggregate.input);
                if aggregate.group_expr.is_empty() {
                    return 1.0;
                }
                self.distinct(&aggregate.input, input.powf(0.75), &aggregate.group_expr).min(input)
            }
            LogicalPlan::Limit(limit) => {
                let input = self.rows(&limit.input);
                match limit.fetch.as_deref() {
                    Some(Expr::Literal(datafusion::common::ScalarValue::Int64(Some(fetch)), _)) => {
                        input.min(*fetch as f64)
                    }
                    _ => input,
                }
            }
            LogicalPlan::Join(join) => self.join_rows(join),
            LogicalPlan::Union(union) => union.inputs.iter().map(|input| self.rows(input)).sum(),
            LogicalPlan::EmptyRelation(empty) => f64::from(u8::from(empty.produce_one_row)),
            LogicalPlan::Values(values) => values.values.len() as f64,
            LogicalPlan::Unnest(unnest) => self.rows(&unnest.input) * 10.0,
            other => match other.inputs().as_slice() {
                [input] => self.rows(input),
                inputs => inputs.iter().map(|input| self.rows(input)).fold(1.0, f64::max),
            },
        }
    }

    fn join_rows(&self, join: &Join) -> f64 {
        let (left, right) = (self.rows(&join.left), self.rows(&join.right));
        let (left_keys, right_keys): (Vec<Expr>, Vec<Expr>) = join.on.iter().cloned().unzip();
        let matched = if left_keys.is_empty() {
            left * right
        } else {
            let distinct = self
                .distinct(&join.left, left, &left_keys)
                .max(self.distinct(&join.right, right, &right_keys))
                .max(1.0);
            left * right / distinct
        };
        let matched = if join.filter.is_some() { matched * UNKNOWN_SELECTIVITY } else { matched };
        match join.join_type {
            JoinType::Inner => matched,
            JoinType::Left => matched.max(left),
            JoinType::Right => matched.max(right),
            JoinType::Full => matched.max(left).max(right),
            JoinType::LeftSemi => left.min(matched),
            JoinType::RightSemi => right.min(matched),
            JoinType::LeftAnti => (left - left.min(matched)).max(left * 0.1),
            JoinType::RightAnti => (right - right.min(matched)).max(right * 0.1),
            JoinType::LeftMark => left,
            JoinType::RightMark => right,
        }
    }

    /// The share of its input that a filter keeps.
    fn selectivity(&self, filter: &Filter) -> f64 {
        let guess = || {
            let conjuncts = split_conjunction_owned(filter.predicate.clone());
            conjuncts.iter().map(guessed_selectivity).product::<f64>().max(1e-6)
        };
        self.sampled_selectivity(filter).unwrap_or_else(guess)
    }

    /// The share of a sample that a filter right above a table keeps.
    fn sampled_selectivity(&self, filter: &Filter) -> Option<f64> {
        let columns: Vec<&Column> = filter.predicate.column_refs().into_iter().collect();
        let (table, ids) = base_columns(&filter.input, &columns)?;
        if ids.is_empty() {
            return None;
        }
        let arrays: Vec<ArrayRef> = ids.iter().map(|id| self.sample(&table, *id)).collect();
        let length = arrays.iter().map(|array| array.len()).min()?;
        if length == 0 {
            return Some(1.0);
        }
        let fields = columns.iter().map(|column| {
            let field = filter.input.schema().field_from_column(column).ok()?;
            Some((column.relation.clone(), Arc::clone(field)))
        });
        let fields: Option<Vec<_>> = fields.collect();
        let schema = DFSchema::new_with_metadata(fields?, Default::default()).ok()?;
        let arrays = arrays.iter().map(|array| array.slice(0, length)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(length));
        let batch = RecordBatch::try_new_with_options(Arc::clone(schema.inner()), arrays, &options).ok()?;
        let predicate = create_physical_expr(
            &filter.predicate,
            &schema,
            &ExecutionProps::new(),
            &PhysicalPlanningContext::default(),
        );
        let kept = predicate.ok()?.evaluate(&batch).ok()?.into_array(length).ok()?;
        let kept = kept.as_boolean_opt()?.true_count() as f64;
        // Nothing found means less than one in the sample, not nothing.
        Some(kept.max(0.5) / length as f64)
    }

    /// Puts the smaller input of an outer or semi join on the build side, which is the left.
    fn choose_build_side(&self, join: Join) -> Result<LogicalPlan> {
        let swapped = match join.join_type {
            JoinType::Left => JoinType::Right,
            JoinType::Right => JoinType::Left,
            JoinType::LeftSemi => JoinType::RightSemi,
            JoinType::RightSemi => JoinType::LeftSemi,
            JoinType::LeftAnti if !join.null_aware => JoinType::RightAnti,
            JoinType::RightAnti => JoinType::LeftAnti,
            JoinType::LeftMark => JoinType::RightMark,
            JoinType::RightMark => JoinType::LeftMark,
            _ => return Ok(LogicalPlan::Join(join)),
        };
        if self.rows(&join.left) <= self.rows(&join.right) {
            return Ok(LogicalPlan::Join(join));
        }
        let schema = Arc::clone(&join.schema);
        let on = join.on.into_iter().map(|(left, right)| (right, left)).collect();
        let join = Join::try_new(
            join.right,
            join.left,
            on,
            join.filter,
            swapped,
            join.join_constraint,
            join.null_equality,
            false,
        )?;
        restore(LogicalPlan::Join(join), &schema)
    }
}

/// A predicate's share by its form alone.
fn guessed_selectivity(predicate: &Expr) -> f64 {
    match predicate {
        Expr::BinaryExpr(binary) => match binary.op {
            Operator::Eq => 0.05,
            Operator::NotEq => 0.9,
            Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => 0.33,
            Operator::Or => (guessed_selectivity(&binary.left) + guessed_selectivity(&binary.right)).min(1.0),
            Operator::And => guessed_selectivity(&binary.left) * guessed_selectivity(&binary.right),
            _ => UNKNOWN_SELECTIVITY,
        },
        Expr::InList(list) => (0.05 * list.list.len() as f64).min(0.5),
        Expr::Between(_) => 0.1,
        Expr::Like(_) => 0.1,
        Expr::IsNull(_) => 0.05,
        Expr::IsNotNull(_) => 0.95,
        Expr::Not(inner) => 1.0 - guessed_selectivity(inner),
        _ => UNKNOWN_SELECTIVITY,
    }
}

/// A condition of a join as it was found.
enum Predicate {
    Equal(Expr, Expr),
    Other(Expr),
}

fn is_inner_join(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Join(join)
        if join.join_type == JoinType::Inner && join.null_equality == NullEquality::NullEqualsNothing)
}

/// Whether inner joins begin below nodes that only drop columns or rows of the join.
fn leads_to_inner_join(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().all(|expression| matches!(expression, Expr::Column(_)))
                && leads_to_inner_join(&projection.input)
        }
        LogicalPlan::Filter(filter) => leads_to_inner_join(&filter.input),
        other => is_inner_join(other),
    }
}

/// How many relations a tree of inner joins has.
fn relations_of(plan: &LogicalPlan) -> usize {
    match leads_to_inner_join(plan) {
        true => plan.inputs().into_iter().map(relations_of).sum(),
        false => 1,
    }
}

fn take_apart(plan: LogicalPlan, relations: &mut Vec<LogicalPlan>, predicates: &mut Vec<Predicate>) {
    if !leads_to_inner_join(&plan) {
        relations.push(plan);
        return;
    }
    match plan {
        LogicalPlan::Projection(projection) => {
            take_apart(Arc::unwrap_or_clone(projection.input), relations, predicates);
        }
        LogicalPlan::Filter(filter) => {
            predicates.extend(split_conjunction_owned(filter.predicate).into_iter().map(Predicate::Other));
            take_apart(Arc::unwrap_or_clone(filter.input), relations, predicates);
        }
        LogicalPlan::Join(join) => {
            predicates.extend(join.on.into_iter().map(|(left, right)| Predicate::Equal(left, right)));
            if let Some(filter) = join.filter {
                predicates.extend(split_conjunction_owned(filter).into_iter().map(Predicate::Other));
            }
            take_apart(Arc::unwrap_or_clone(join.left), relations, predicates);
            take_apart(Arc::unwrap_or_clone(join.right), relations, predicates);
        }
        other => unreachable!("{other} does not lead to a join"),
    }
}

impl Condition {
    fn expression(&self) -> Expr {
        match &self.kind {
            Kind::Equal { left, right, .. } => left.clone().eq(right.clone()),
            Kind::Other(expression) => expression.clone(),
        }
    }
}

impl JoinGraph {
    /// About how many rows a set of relations yields when all conditions within it hold.
    fn rows_of(&self, set: Set) -> f64 {
        let product: f64 =
            (0..self.relations.len()).filter(|i| set >> i & 1 == 1).map(|i| self.rows[i]).product();
        let edges: f64 =
            self.edges.iter().filter(|(pair, _)| pair & set == *pair).map(|(_, share)| share).product();
        let others = self.conditions.iter().filter(|condition| {
            matches!(condition.kind, Kind::Other(_))
                && condition.mentions.count_ones() > 1
                && condition.mentions & set == condition.mentions
        });
        let wide = self.conditions.iter().filter(|condition| {
            matches!(condition.kind, Kind::Equal { .. })
                && condition.mentions.count_ones() > 2
                && condition.mentions & set == condition.mentions
        });
        let others = UNKNOWN_SELECTIVITY.powi(others.count() as i32) * 0.01f64.powi(wide.count() as i32);
        (product * edges * others).max(1.0)
    }

    /// Whether a condition lets two sets be joined by a hash table.
    fn connected(&self, left: Set, right: Set) -> bool {
        self.conditions.iter().any(|condition| match &condition.kind {
            Kind::Equal { left_side, right_side, .. } => {
                left_side & left == *left_side && right_side & right == *right_side
                    || left_side & right == *left_side && right_side & left == *right_side
            }
            Kind::Other(_) => false,
        })
    }

    fn single(&self, relation: usize) -> Candidate {
        Candidate { cost: 0.0, rows: self.rows[relation], tree: Arc::new(Tree::Relation(relation)) }
    }

    /// A join of two candidates over disjoint sets, the smaller one built.
    fn pair(&self, a: (Set, &Candidate), b: (Set, &Candidate), rows: f64) -> Candidate {
        let (build, probe) = if a.1.rows <= b.1.rows { (a, b) } else { (b, a) };
        let own = if self.connected(build.0, probe.0) {
            2.0 * build.1.rows + probe.1.rows + rows
        } else {
            // Without an equality every pair of rows is looked at.
            build.1.rows * probe.1.rows + rows
        };
        let tree = Tree::Join(Arc::clone(&build.1.tree), Arc::clone(&probe.1.tree), build.0, probe.0);
        Candidate { cost: build.1.cost + probe.1.cost + own, rows, tree: Arc::new(tree) }
    }

    /// The cheapest of all trees.
    fn exhaustive(&self) -> Candidate {
        let count = self.relations.len();
        let all: Set = (1 << count) - 1;
        let mut best: Vec<Option<Candidate>> = vec![None; 1 << count];
        for relation in 0..count {
            best[1 << relation] = Some(self.single(relation));
        }
        for set in 1..=all {
            if set.count_ones() < 2 {
                continue;
            }
            let rows = self.rows_of(set);
            let lowest = set & set.wrapping_neg();
            let mut found: Option<Candidate> = None;
            // Cross products only where nothing else is left.
            for connected in [true, false] {
                let mut part = (set - 1) & set;
                while part != 0 {
                    let rest = set & !part;
                    // Each split once: the part with the lowest relation comes first.
                    if part & lowest != 0
                        && self.connected(part, rest) == connected
                        && let (Some(a), Some(b)) = (&best[part as usize], &best[rest as usize])
                    {
                        let candidate = self.pair((part, a), (rest, b), rows);
                        if found.as_ref().is_none_or(|found| candidate.cost < found.cost) {
                            found = Some(candidate);
                        }
                    }
                    part = (part - 1) & set;
                }
                if found.is_some() {
                    break;
                }
            }
            best[set as usize] = found;
        }
        best[all as usize].take().expect("every set has a tree, if only of cross products")
    }

    /// A tree made by always joining the pair with the smallest result.
    fn greedy(&self) -> Candidate {
        let mut parts: Vec<(Set, Candidate)> =
            (0..self.relations.len()).map(|relation| (1 << relation, self.single(relation))).collect();
        while parts.len() > 1 {
            let mut best: Option<(bool, f64, usize, usize)> = None;
            for right in 1..parts.len() {
                for left in 0..right {
                    let crossed = !self.connected(parts[left].0, parts[right].0);
                    let rows = self.rows_of(parts[left].0 | parts[right].0);
                    if best.is_none_or(|(c, r, ..)| (crossed, rows) < (c, r)) {
                        best = Some((crossed, rows, left, right));
                    }
                }
            }
            let (_, rows, left, right) = best.expect("two parts make a pair");
            let b = parts.swap_remove(right);
            let a = parts.swap_remove(left);
            let joined = self.pair((a.0, &a.1), (b.0, &b.1), rows);
            parts.push((a.0 | b.0, joined));
        }
        parts.pop().expect("one part is left").1
    }

    /// The plan of a tree; marks the conditions that it applies.
    fn build(&self, tree: &Tree, used: &mut [bool]) -> Result<LogicalPlan> {
        let (build, probe, build_set, probe_set) = match tree {
            Tree::Relation(relation) => return Ok(self.relations[*relation].clone()),
            Tree::Join(build, probe, build_set, probe_set) => (build, probe, *build_set, *probe_set),
        };
        let left = self.build(build, used)?;
        let right = self.build(probe, used)?;
        let (mut on, mut others) = (Vec::new(), Vec::new());
        for (condition, used) in self.conditions.iter().zip(used) {
            let applies = condition.mentions & (build_set | probe_set) == condition.mentions
                && condition.mentions.count_ones() > 1;
            if *used || !applies {
                continue;
            }
            *used = true;
            match &condition.kind {
                Kind::Equal { left, right, left_side, right_side } => {
                    if left_side & build_set == *left_side && right_side & probe_set == *right_side {
                        on.push((left.clone(), right.clone()));
                    } else if left_side & probe_set == *left_side && right_side & build_set == *right_side {
                        on.push((right.clone(), left.clone()));
                    } else {
                        others.push(condition.expression());
                    }
                }
                Kind::Other(expression) => others.push(expression.clone()),
            }
        }
        let join = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            on,
            conjunction(others),
            JoinType::Inner,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?;
        Ok(LogicalPlan::Join(join))
    }
}

/// The plan with the columns of `schema`, in its order.
fn restore(plan: LogicalPlan, schema: &DFSchema) -> Result<LogicalPlan> {
    if plan.schema().columns() == schema.columns() {
        return Ok(plan);
    }
    let columns: Vec<Expr> = schema.columns().into_iter().map(Expr::Column).collect();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

/// The plan below nodes that keep every row as it is.
fn below_renames(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => below_renames(&alias.input),
        LogicalPlan::Projection(projection) => below_renames(&projection.input),
        other => other,
    }
}

/// The table that a relation reads, and which columns of it some columns are; `None` if a column is
/// computed or there is more between.
fn base_columns(relation: &LogicalPlan, columns: &[&Column]) -> Option<(FirnTable, Vec<ColumnId>)> {
    match relation {
        LogicalPlan::TableScan(scan) => {
            let table = firn_table(scan)?;
            let ids = columns.iter().map(|column| {
                let (id, _) = table.definition().column(&column.name)?;
                Some(id)
            });
            let ids = ids.collect::<Option<Vec<_>>>()?;
            Some((table, ids))
        }
        LogicalPlan::Filter(filter) => base_columns(&filter.input, columns),
        LogicalPlan::SubqueryAlias(alias) => {
            let positions = positions(relation, columns)?;
            let inner: Vec<Column> =
                positions.into_iter().map(|i| alias.input.schema().columns()[i].clone()).collect();
            base_columns(&alias.input, &inner.iter().collect::<Vec<_>>())
        }
        LogicalPlan::Projection(projection) => {
            let positions = positions(relation, columns)?;
            let inner = positions.into_iter().map(|i| plain_column(&projection.expr[i]));
            base_columns(&projection.input, &inner.collect::<Option<Vec<_>>>()?)
        }
        _ => None,
    }
}

fn positions(plan: &LogicalPlan, columns: &[&Column]) -> Option<Vec<usize>> {
    columns.iter().map(|column| plan.schema().maybe_index_of_column(column)).collect()
}

fn plain_column(expression: &Expr) -> Option<&Column> {
    match expression {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => plain_column(&alias.expr),
        _ => None,
    }
}
