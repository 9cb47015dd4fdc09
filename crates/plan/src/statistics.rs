//! Statistics of sources, and how many rows operators give by them.
//!
//! A source that has a sample of its rows says which share of them meets the conditions of a scan, and how many distinct values its
//! attributes have. Beyond that the estimates are System R's (Selinger et al., "Access Path Selection in a Relational Database
//! Management System", SIGMOD 1979): values are spread evenly and independently. An equality keeps one of the distinct values, other
//! comparisons a third, what is not known a quarter. A lower and an upper bound of one scalar keep the two-hundredth that PostgreSQL
//! assumes (`DEFAULT_RANGE_INEQ_SEL`): who asks for an interval wants a small one. Equalities that join two scans count together: their columns have no
//! more combinations than the scan has rows, and where they are a key of one scan each row of the other one finds one.

use crate::column::{Column, Columns};
use crate::function::{Strategy, Volatility};
use crate::operator::{JoinKind, Operator, Scan, SourceId, Window};
use crate::plan::{NodeId, Plan};
use crate::row_numbers::{expected, is_limit};
use crate::scalar::{Scalar, Values};
use firn_base::{Type, Value};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What is known of sources.
pub trait Statistics {
    /// How many rows.
    fn rows(&self, source: SourceId) -> f64;

    /// How many distinct values attributes have together, if that is known.
    fn distinct(&self, source: SourceId, attributes: &[i16]) -> Option<f64>;

    /// The share of a source's rows that meet conditions over the columns of a scan of it, if that is known. The conditions are
    /// immutable and have no parameters.
    fn share(&self, _: &Scan, _conditions: &[&Scalar], _: &Columns) -> Option<f64> {
        None
    }

    /// Sets of attributes of which no two rows have the same values and none is NULL, now and after each statement:
    /// constraints that are not deferrable.
    fn keys(&self, _: SourceId) -> Vec<Vec<i16>> {
        Vec::new()
    }

    /// The indexes by which a source finds rows.
    fn indexes(&self, _: SourceId) -> Vec<Index> {
        Vec::new()
    }

    /// The columns that a source computes for its indexes.
    fn computed(&self, _: SourceId) -> Vec<Computed> {
        Vec::new()
    }

    /// The oid of the relation that a source is, by which foreign keys name it.
    fn relation(&self, _: SourceId) -> Option<u32> {
        None
    }

    /// The foreign keys of a source that hold for all its rows, now and after each statement: not those that are deferrable
    /// or have not been validated.
    fn references(&self, _: SourceId) -> Vec<Reference> {
        Vec::new()
    }
}

/// An index of a source.
#[derive(Clone, PartialEq, Debug)]
pub struct Index {
    /// The attributes of its key, in their order.
    pub attributes: Vec<i16>,
    /// For each of them whether the greatest comes first.
    pub descending: Vec<bool>,
    /// For each of them whether NULLs come first.
    pub nulls_first: Vec<bool>,
    /// Whether no two rows have one key without NULLs, now and after each statement.
    pub unique: bool,
}

/// A column that a source computes of its rows for its indexes. No statement names it.
#[derive(Clone, PartialEq, Debug)]
pub struct Computed {
    /// Its number.
    pub attribute: i16,
    /// Its type.
    pub ty: Type,
    /// What it is, for printing alone.
    pub name: Arc<str>,
    /// The columns that its expressions use, and which attribute of the source each is.
    pub inputs: Vec<(Column, i16)>,
    /// What its values say.
    pub meaning: Meaning,
}

/// What the values of a computed column say.
#[derive(Clone, PartialEq, Debug)]
pub enum Meaning {
    /// They are those of an expression.
    Value(Scalar),
    /// TRUE in the rows that meet conditions, which are those of a partial index; NULL in others.
    Member(Vec<Scalar>),
}

/// A foreign key: a row without a NULL among the attributes has a row of the relation with the same values.
#[derive(Clone, PartialEq, Debug)]
pub struct Reference {
    /// The referencing attributes.
    pub attributes: Vec<i16>,
    /// The oid of the relation that they refer to.
    pub relation: u32,
    /// Its attributes, in the same order.
    pub referenced: Vec<i16>,
}

/// The share that a comparison other than equality keeps.
const RANGE: f64 = 1.0 / 3.0;
/// The share that a lower and an upper bound of one scalar keep together.
const INTERVAL: f64 = 0.005;
/// Among more conditions than these, bounds that belong together are not looked for.
const MOST_BOUNDS: usize = 64;
/// The share that a condition keeps of which nothing is known.
const UNKNOWN: f64 = 0.25;
/// Distinct values of a column of which nothing is known, unless it has fewer rows.
const DISTINCT: f64 = 200.0;
/// How many rows a set-returning function gives.
const SET_ROWS: f64 = 100.0;
/// How many times as many rows as its first round a recursion gives.
const ROUNDS: f64 = 10.0;

/// Estimates for all operators of a plan.
pub struct Estimates<'s> {
    statistics: &'s dyn Statistics,
    rows: Vec<f64>,
    /// The type of each column of the plan.
    types: Vec<Type>,
    origins: HashMap<Column, Origin>,
    distinct: RefCell<HashMap<Column, f64>>,
}

/// Where a column's values come from.
#[derive(Clone, Copy)]
struct Origin {
    scan: NodeId,
    source: SourceId,
    attribute: i16,
}

/// Which condition equates columns of two scans, and where they come from.
type Equality = (usize, Origin, Origin);

impl<'s> Estimates<'s> {
    /// Of all operators that the root reaches.
    pub fn of(plan: &Plan, statistics: &'s dyn Statistics) -> Estimates<'s> {
        let mut estimates = Estimates {
            statistics,
            rows: vec![0.0; plan.size()],
            types: plan.columns.types().collect(),
            origins: HashMap::new(),
            distinct: RefCell::default(),
        };
        let (mut shared, mut iterations) = (HashMap::new(), HashMap::new());
        // Definitions come before their bodies, initial rows before steps.
        let mut defined = HashMap::new();
        for node in plan.post_order() {
            match &plan[node] {
                Operator::Shared { id, definition, .. } => {
                    defined.insert(*definition, *id);
                }
                Operator::Iterate(iterate) => {
                    iterations.insert(iterate.id, iterate.initial);
                }
                _ => {}
            }
        }
        for node in plan.post_order() {
            let rows = estimates.operator(plan, node, &shared, &iterations);
            estimates.rows[node.index()] = rows;
            if let Some(id) = defined.get(&node) {
                shared.insert(*id, rows);
            }
        }
        estimates
    }

    /// How many rows an operator gives.
    pub fn rows(&self, node: NodeId) -> f64 {
        self.rows[node.index()]
    }

    /// How many distinct values a column has among so many rows.
    pub fn distinct(&self, column: Column, rows: f64) -> f64 {
        let find = || {
            let origin = self.origins.get(&column)?;
            self.statistics.distinct(origin.source, &[origin.attribute])
        };
        let known = self.distinct.borrow().get(&column).copied();
        let distinct = known.unwrap_or_else(|| {
            let distinct = find().unwrap_or(DISTINCT);
            self.distinct.borrow_mut().insert(column, distinct);
            distinct
        });
        distinct.min(rows).max(1.0)
    }

    fn operator(
        &mut self,
        plan: &Plan,
        node: NodeId,
        shared: &HashMap<crate::operator::SharedId, f64>,
        iterations: &HashMap<crate::operator::IterateId, NodeId>,
    ) -> f64 {
        let below = |estimates: &Self, input: NodeId| estimates.rows[input.index()];
        match &plan[node] {
            Operator::Scan(scan) => {
                let rows = self.statistics.rows(scan.source).max(1.0);
                for (column, attribute) in &scan.columns {
                    let origin = Origin { scan: node, source: scan.source, attribute: *attribute };
                    self.origins.insert(*column, origin);
                }
                rows * self.share_of_scan(scan, &plan.columns, rows)
            }
            Operator::Values { rows, .. } => rows.len() as f64,
            Operator::TableFunction(_) => SET_ROWS,
            Operator::FlatMap { input, .. } => below(self, *input) * SET_ROWS,
            Operator::Filter { input, conditions } => {
                let rows = below(self, *input);
                let others = conditions.iter().filter(|condition| !is_limit(plan, *input, condition));
                rows * self.share_of_all(&others.collect::<Vec<_>>(), rows)
            }
            Operator::Map { input, outputs } => {
                for (column, scalar) in outputs {
                    if let Some(from) = self.column_of(scalar) {
                        self.copy_origin(*column, from);
                    }
                }
                below(self, *input)
            }
            Operator::Join(join) => {
                let (left, right) = (below(self, join.left), below(self, join.right));
                let conditions: Vec<&Scalar> = join.conditions.iter().collect();
                let share = self.shares(&conditions, left.max(right)).iter().product();
                joined(join.kind, left, right, share)
            }
            Operator::Group(group) => {
                let rows = below(self, group.input);
                let groups = self.combinations(&group.keys, rows);
                groups * group.sets.as_ref().map_or(1, |sets| sets.sets.len()) as f64
            }
            Operator::Window(Window { input, partition, first: Some(first), .. }) => {
                let rows = below(self, *input);
                rows.min(self.combinations(partition, rows) * expected(first))
            }
            Operator::DistinctOn { input, keys, .. } => self.combinations(keys, below(self, *input)),
            Operator::Limit(limit) => {
                let rows = below(self, limit.input);
                match limit.count {
                    Some(Scalar::Constant(_, Value::BigInt(count))) => rows.min(count as f64),
                    _ => rows,
                }
            }
            Operator::Sample { input, percent, .. } => match percent {
                Scalar::Constant(_, Value::Double(percent)) => below(self, *input) * percent / 100.0,
                _ => below(self, *input) * UNKNOWN,
            },
            Operator::UnionAll { inputs, .. } => inputs.iter().map(|(input, _)| below(self, *input)).sum(),
            Operator::Iterate(iterate) => below(self, iterate.initial) * ROUNDS,
            Operator::IterateRead { iterate, .. } => {
                iterations.get(iterate).map_or(DISTINCT, |initial| below(self, *initial))
            }
            Operator::SharedRead { id, columns } => {
                columns.iter().for_each(|(own, of)| self.copy_origin(*own, *of));
                shared.get(id).copied().unwrap_or(DISTINCT)
            }
            Operator::Shared { body, .. } => below(self, *body),
            operator => operator.inputs().first().map_or(0.0, |input| below(self, *input)),
        }
    }

    /// The column whose value a scalar has.
    fn column_of(&self, scalar: &Scalar) -> Option<Column> {
        scalar.as_kept_column(|column| self.types[column.0 as usize])
    }

    fn copy_origin(&mut self, column: Column, from: Column) {
        if let Some(origin) = self.origins.get(&from).copied() {
            self.origins.insert(column, origin);
        }
    }

    /// How many combinations of values columns have among so many rows.
    fn combinations(&self, keys: &[Column], rows: f64) -> f64 {
        let mut scans: BTreeMap<NodeId, (SourceId, Vec<i16>)> = BTreeMap::new();
        let mut others = 1.0;
        for key in keys {
            match self.origins.get(key) {
                Some(origin) => {
                    let (_, attributes) = scans.entry(origin.scan).or_insert((origin.source, Vec::new()));
                    attributes.push(origin.attribute);
                }
                None => others *= self.distinct(*key, rows),
            }
        }
        let of_scans = scans.into_values().map(|(source, attributes)| self.of_source(source, attributes));
        (others * of_scans.product::<f64>()).min(rows).max(1.0)
    }

    /// How many combinations of values attributes of a source have.
    fn of_source(&self, source: SourceId, mut attributes: Vec<i16>) -> f64 {
        attributes.sort_unstable();
        attributes.dedup();
        let rows = self.statistics.rows(source).max(1.0);
        let known = self.statistics.distinct(source, &attributes);
        let independent = || {
            let each = attributes.iter().map(|attribute| self.statistics.distinct(source, &[*attribute]));
            each.map(|distinct| distinct.unwrap_or(DISTINCT)).product()
        };
        known.unwrap_or_else(independent).min(rows).max(1.0)
    }

    /// The share of its rows that a scan gives.
    fn share_of_scan(&self, scan: &Scan, columns: &Columns, rows: f64) -> f64 {
        let is_fixed = |condition: &Scalar| {
            !condition.any(&mut |scalar| match scalar {
                Scalar::Parameter(..) => true,
                Scalar::Call(call) => call.function.volatility != Volatility::Immutable,
                Scalar::Cast(cast) => {
                    let function = cast.function.as_ref();
                    function.is_some_and(|function| function.volatility != Volatility::Immutable)
                }
                _ => false,
            })
        };
        let (fixed, others): (Vec<&Scalar>, Vec<&Scalar>) =
            scan.conditions.iter().partition(|condition| is_fixed(condition));
        let known = if fixed.is_empty() { None } else { self.statistics.share(scan, &fixed, columns) };
        match known {
            Some(share) => share * self.share_of_all(&others, rows),
            None => self.share(&scan.conditions, rows),
        }
    }

    /// The share of pairs that each of some conditions of a join keeps, among about so many rows. Equalities between the columns of
    /// two scans are counted at the first of them; the others keep all.
    pub fn shares(&self, conditions: &[&Scalar], rows: f64) -> Vec<f64> {
        let mut shares = vec![1.0; conditions.len()];
        let mut pairs: BTreeMap<(NodeId, NodeId), Vec<Equality>> = BTreeMap::new();
        for (place, condition) in conditions.iter().enumerate() {
            match self.scans_joined(condition) {
                Some((left, right)) => {
                    pairs.entry((left.scan, right.scan)).or_default().push((place, left, right));
                }
                None => shares[place] = self.share_of(condition, rows),
            }
        }
        for equalities in pairs.into_values() {
            let (place, left, right) = equalities[0];
            let left_attributes: Vec<i16> = equalities.iter().map(|(_, left, _)| left.attribute).collect();
            let right_attributes: Vec<i16> = equalities.iter().map(|(_, _, right)| right.attribute).collect();
            let is_key = |source: SourceId, attributes: &[i16]| {
                let keys = self.statistics.keys(source);
                keys.iter().any(|key| key.iter().all(|attribute| attributes.contains(attribute)))
            };
            let of_left = is_key(left.source, &left_attributes);
            let of_right = is_key(right.source, &right_attributes);
            let combinations = match (of_left, of_right) {
                (true, false) => self.statistics.rows(left.source),
                (false, true) => self.statistics.rows(right.source),
                _ => {
                    let left = self.of_source(left.source, left_attributes);
                    left.max(self.of_source(right.source, right_attributes))
                }
            };
            shares[place] = 1.0 / combinations.max(1.0);
        }
        shares
    }

    /// The columns of two scans that a condition equates.
    fn scans_joined(&self, condition: &Scalar) -> Option<(Origin, Origin)> {
        let (left, right) = match condition {
            Scalar::Call(call) if call.function.is_equality() => match &call.arguments[..] {
                [left, right] => (left, right),
                _ => return None,
            },
            Scalar::Distinct(pair, true) => (&pair.0, &pair.1),
            _ => return None,
        };
        let origin = |scalar: &Scalar| self.origins.get(&self.column_of(scalar)?).copied();
        let (left, right) = (origin(left)?, origin(right)?);
        match left.scan.cmp(&right.scan) {
            std::cmp::Ordering::Less => Some((left, right)),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some((right, left)),
        }
    }

    /// The share of rows that all conditions keep, among about so many rows.
    pub fn share(&self, conditions: &[Scalar], rows: f64) -> f64 {
        let conditions: Vec<&Scalar> = conditions.iter().collect();
        self.share_of_all(&conditions, rows)
    }

    fn share_of_all(&self, conditions: &[&Scalar], rows: f64) -> f64 {
        let bounds: Vec<Option<(&Scalar, bool)>> = match conditions.len() {
            ..=MOST_BOUNDS => conditions.iter().map(|condition| bound(condition)).collect(),
            many => vec![None; many],
        };
        let has_other = |place: usize| {
            bounds[place].is_some_and(|(scalar, is_low)| {
                bounds.iter().flatten().any(|(known, other)| *other != is_low && *known == scalar)
            })
        };
        let is_first = |place: usize| {
            let (scalar, _) = bounds[place].expect("it is a bound");
            !bounds[..place].iter().flatten().any(|(known, _)| *known == scalar)
        };
        let share = |place: usize| match has_other(place) {
            true if is_first(place) => INTERVAL,
            true => 1.0,
            false => self.share_of(conditions[place], rows),
        };
        (0..conditions.len()).map(share).product()
    }

    fn share_of(&self, condition: &Scalar, rows: f64) -> f64 {
        let share = match condition {
            Scalar::Constant(_, Value::Boolean(value)) => f64::from(u8::from(*value)),
            Scalar::And(list) => self.share(list, rows),
            Scalar::Or(list) => {
                1.0 - list.iter().map(|operand| 1.0 - self.share_of(operand, rows)).product::<f64>()
            }
            Scalar::Not(operand) => 1.0 - self.share_of(operand, rows),
            Scalar::IsNull(_, negated) => {
                if *negated {
                    0.95
                } else {
                    0.05
                }
            }
            Scalar::Distinct(pair, true) => self.equality(&pair.0, &pair.1, rows),
            Scalar::Call(call) if call.arguments.len() == 2 => match call.function.strategy {
                Some(Strategy::Equal) => self.equality(&call.arguments[0], &call.arguments[1], rows),
                Some(Strategy::NotEqual) => 1.0 - self.equality(&call.arguments[0], &call.arguments[1], rows),
                Some(_) => RANGE,
                None => UNKNOWN,
            },
            Scalar::Quantified(quantified) if quantified.function.is_equality() && !quantified.all => {
                let Values::List(list) = &quantified.values else { return UNKNOWN };
                let each = list.iter().map(|value| self.equality(&quantified.argument, value, rows));
                each.sum::<f64>()
            }
            _ => UNKNOWN,
        };
        share.clamp(0.0, 1.0)
    }

    fn equality(&self, left: &Scalar, right: &Scalar, rows: f64) -> f64 {
        let distinct = |scalar: &Scalar| self.column_of(scalar).map(|column| self.distinct(column, rows));
        1.0 / match (distinct(left), distinct(right)) {
            (Some(left), Some(right)) => left.max(right),
            (Some(distinct), None) | (None, Some(distinct)) => distinct,
            (None, None) => DISTINCT.min(rows).max(1.0),
        }
    }
}

/// The scalar of which a condition is a bound that is the same for all rows, and whether it is the lower one.
fn bound(condition: &Scalar) -> Option<(&Scalar, bool)> {
    let Scalar::Call(call) = condition else { return None };
    let (Some(strategy), [left, right]) = (call.function.strategy, &call.arguments[..]) else { return None };
    let is_fixed = |scalar: &Scalar| !scalar.uses(|_| true);
    let (scalar, strategy) = match (is_fixed(left), is_fixed(right)) {
        (false, true) => (left, strategy),
        (true, false) => (right, strategy.commuted()),
        _ => return None,
    };
    match strategy {
        Strategy::Greater | Strategy::GreaterOrEqual => Some((scalar, true)),
        Strategy::Less | Strategy::LessOrEqual => Some((scalar, false)),
        Strategy::Equal | Strategy::NotEqual => None,
    }
}

/// How many rows a join gives whose conditions keep a share of all pairs.
pub fn joined(kind: JoinKind, left: f64, right: f64, share: f64) -> f64 {
    let pairs = left * right * share;
    match kind {
        JoinKind::Inner => pairs,
        JoinKind::Left => pairs.max(left),
        JoinKind::Full => pairs.max(left).max(right),
        JoinKind::Semi => left * (right * share).min(1.0),
        JoinKind::Anti => left * (1.0 - (right * share).min(0.9)),
        JoinKind::Mark | JoinKind::Single => left,
    }
}
