//! Operators: the nodes of a plan, and which columns they use, produce and pass on.
//!
//! A filter, join, sort or window passes on the columns of its inputs under the same numbers. `Map`
//! adds columns. `Group`, `UnionAll`, `Iterate` and readers produce columns of their own; the columns below
//! them are not visible above (except the keys of `Group`). `Update`, `Delete` and `Merge` pass on the columns of their
//! input rows and the images of the rows that they have changed. There is no projection: an operator uses the columns that
//! it names, and a plan's output is a list of columns.

use crate::column::Column;
use crate::function::Function;
use crate::plan::NodeId;
use crate::scalar::Scalar;
use std::sync::Arc;

/// A source of rows: the number by which `sql` and the executor refer to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SourceId(pub u32);

/// A sub-plan that is read more than once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SharedId(pub u32);

/// A recursion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IterateId(pub u32);

/// The attribute of a scan that is the row's id.
pub const ROW_ID: i16 = -1;

/// The attribute of an image that is 0 where the row has been inserted, and another number where INSERT … ON CONFLICT has found it.
pub const XMAX: i16 = -4;

/// An operator and its inputs.
#[derive(Clone, PartialEq, Debug)]
pub enum Operator {
    /// The rows of a source that meet conditions.
    Scan(Scan),
    /// Rows that the statement lists. One row of no columns is a SELECT without FROM.
    Values {
        /// What it produces.
        columns: Vec<Column>,
        /// Rows with a scalar for each column; only columns of outer queries may be used.
        rows: Vec<Vec<Scalar>>,
    },
    /// Functions in FROM. Only columns of outer queries may be used.
    TableFunction(SetCalls),
    /// Each row of the input with the rows that functions give for it; none, if they give none.
    FlatMap {
        /// The rows.
        input: NodeId,
        /// The functions.
        calls: SetCalls,
    },
    /// The rows for which all conditions are TRUE.
    Filter {
        /// The rows.
        input: NodeId,
        /// Scalars of type boolean.
        conditions: Vec<Scalar>,
    },
    /// The rows with more columns.
    Map {
        /// The rows.
        input: NodeId,
        /// The columns that are added. They use the input's columns only.
        outputs: Vec<(Column, Scalar)>,
    },
    /// Pairs of rows.
    Join(Join),
    /// Groups of rows.
    Group(Group),
    /// The rows with values that are computed over their partition.
    Window(Window),
    /// The rows in an order. An operator that gives no order of its own may take the rows in any.
    Sort {
        /// The rows.
        input: NodeId,
        /// The order.
        keys: Vec<SortKey>,
    },
    /// Some of the rows, in their order.
    Limit(Limit),
    /// One row of each group of equal keys: the first in an order.
    DistinctOn {
        /// The rows.
        input: NodeId,
        /// Rows with equal keys are a group.
        keys: Vec<Column>,
        /// Which row of a group is first; any, among equal ones.
        order: Vec<SortKey>,
    },
    /// TABLESAMPLE
    Sample {
        /// The rows.
        input: NodeId,
        /// Whether whole blocks are taken or left.
        by_block: bool,
        /// What share is taken, in percent.
        percent: Scalar,
        /// REPEATABLE
        seed: Option<Scalar>,
    },
    /// The rows of all inputs.
    UnionAll {
        /// What it produces.
        columns: Vec<Column>,
        /// The inputs, each with the columns that it gives.
        inputs: Vec<(NodeId, Vec<Column>)>,
    },
    /// WITH RECURSIVE: the rows of `initial`, then those of `step` over the rows of the round before, until there are none.
    Iterate(Iterate),
    /// The rows of the round before, within the step of an [`Operator::Iterate`].
    IterateRead {
        /// Which recursion.
        iterate: IterateId,
        /// A column for each of the recursion's.
        columns: Vec<Column>,
    },
    /// Defines a sub-plan that is evaluated once, and the plan that reads it.
    Shared {
        /// By what readers name it.
        id: SharedId,
        /// The sub-plan.
        definition: NodeId,
        /// The plan that reads it.
        body: NodeId,
    },
    /// The rows of a shared sub-plan.
    SharedRead {
        /// Which one.
        id: SharedId,
        /// The columns that it produces, and those of the definition that they are.
        columns: Vec<(Column, Column)>,
    },
    /// Locks rows and checks those again that have changed.
    Lock {
        /// The rows.
        input: NodeId,
        /// What is locked.
        targets: Vec<LockTarget>,
    },
    /// INSERT
    Insert(Insert),
    /// UPDATE
    Update(Update),
    /// DELETE
    Delete {
        /// The rows to delete.
        input: NodeId,
        /// The table.
        target: SourceId,
        /// The column with the row's id.
        row: Column,
        /// RETURNING: images of the deleted rows.
        images: Vec<Image>,
    },
    /// MERGE
    Merge(Merge),
}

/// The rows of a source.
#[derive(Clone, PartialEq, Debug)]
pub struct Scan {
    /// Which source.
    pub source: SourceId,
    /// Its name, for printing alone.
    pub name: Option<Arc<str>>,
    /// The columns that are produced, and which attribute each is.
    pub columns: Vec<(Column, i16)>,
    /// What rows must meet.
    pub conditions: Vec<Scalar>,
}

/// Set-returning functions, side by side: where one has fewer rows than another, its columns are NULL.
#[derive(Clone, PartialEq, Debug)]
pub struct SetCalls {
    /// The functions.
    pub calls: Vec<SetCall>,
    /// WITH ORDINALITY: the number of the row, from 1.
    pub ordinality: Option<Column>,
}

/// A call of a set-returning function.
#[derive(Clone, PartialEq, Debug)]
pub struct SetCall {
    /// What is called. A scalar function gives one row.
    pub function: Function,
    /// What it is called with.
    pub arguments: Vec<Scalar>,
    /// The columns that it produces.
    pub columns: Vec<Column>,
}

/// What a join does with the rows of its left input (and, if full, of its right one) for which conditions hold or not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum JoinKind {
    /// Pairs for which all conditions are TRUE.
    Inner,
    /// And left rows without a partner, with NULLs.
    Left,
    /// And right rows without a partner, with NULLs.
    Full,
    /// Left rows that have a partner.
    Semi,
    /// Left rows that have none.
    Anti,
    /// All left rows with a boolean: TRUE with a partner; else NULL if the conditions are NULL for a right row; else FALSE.
    Mark,
    /// As `Left`, but a second partner is an error (21000).
    Single,
}

impl JoinKind {
    /// Whether rows of the right input go on.
    pub fn gives_right(self) -> bool {
        matches!(self, JoinKind::Inner | JoinKind::Left | JoinKind::Full | JoinKind::Single)
    }

    /// Whether the right input's columns may be NULL above though they are not below.
    pub fn pads_right(self) -> bool {
        matches!(self, JoinKind::Left | JoinKind::Full | JoinKind::Single)
    }
}

/// A join.
#[derive(Clone, PartialEq, Debug)]
pub struct Join {
    /// What is done with rows.
    pub kind: JoinKind,
    /// Whether the right input may use columns of the left one: it is evaluated for each row of the left. Not if full.
    pub dependent: bool,
    /// The left input.
    pub left: NodeId,
    /// The right input.
    pub right: NodeId,
    /// Scalars of type boolean over both inputs.
    pub conditions: Vec<Scalar>,
    /// The boolean that a mark join produces.
    pub mark: Option<Column>,
    /// How partners are found.
    pub method: JoinMethod,
}

/// How a join finds partners. It makes no difference to the rows.
#[derive(Clone, PartialEq, Default, Debug)]
pub enum JoinMethod {
    /// The right input is kept, in a hash table if conditions are equalities, and the left one is read along it.
    #[default]
    BuildRight,
    /// The left input is kept, and the right one is read along it: of a left, semi or anti join, for which it is noted which left
    /// rows have had a partner.
    BuildLeft,
    /// An index finds the partners of each left row.
    Index(ByIndex),
}

/// How an index finds partners.
#[derive(Clone, PartialEq, Debug)]
pub struct ByIndex {
    /// By these attributes of the right input, a scan: conditions equate each with what the left row gives.
    pub attributes: Vec<i16>,
    /// If nothing above uses more of the partners of a left row than the first ones: which. Others need not be found.
    pub first: Option<FirstRows>,
}

/// The first rows in an order.
#[derive(Clone, PartialEq, Debug)]
pub struct FirstRows {
    /// The order.
    pub order: Vec<SortKey>,
    /// How many: a bigint that is a constant or a parameter. NULL is all, and so is a number below zero, which is refused above.
    pub count: Scalar,
}

impl JoinMethod {
    /// The attributes that an index is asked for; none if it is another method.
    pub fn by_index(&self) -> &[i16] {
        match self {
            JoinMethod::Index(index) => &index.attributes,
            JoinMethod::BuildRight | JoinMethod::BuildLeft => &[],
        }
    }
}

/// Groups of rows with equal keys. Without keys and sets it gives one row, of no rows as well.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// The rows.
    pub input: NodeId,
    /// Columns of the input. Without sets they go on.
    pub keys: Vec<Column>,
    /// Those of the keys that the others determine: rows with equal values in the others have equal values here, so that
    /// they need not be compared. None with sets.
    pub determined: Vec<Column>,
    /// GROUPING SETS.
    pub sets: Option<GroupingSets>,
    /// The aggregates.
    pub aggregates: Vec<Aggregate>,
}

/// GROUPING SETS: the rows are grouped once by each set of keys. An empty set gives one row, of no rows as well.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupingSets {
    /// For each key the column that is produced: NULL in sets without the key.
    pub columns: Vec<Column>,
    /// Positions of keys.
    pub sets: Vec<Vec<u32>>,
    /// The position of the set, an integer from 0: GROUPING is computed from it.
    pub number: Option<Column>,
}

/// An aggregate of a group.
#[derive(Clone, PartialEq, Debug)]
pub struct Aggregate {
    /// What it produces.
    pub output: Column,
    /// The function.
    pub function: Function,
    /// Scalars over the input.
    pub arguments: Vec<Scalar>,
    /// Whether equal arguments count once.
    pub distinct: bool,
    /// In which order rows are taken.
    pub order: Vec<SortKey>,
    /// FILTER: rows for which it is not TRUE are left out.
    pub filter: Option<Scalar>,
}

/// Window functions of one window.
#[derive(Clone, PartialEq, Debug)]
pub struct Window {
    /// The rows.
    pub input: NodeId,
    /// Rows with equal values are a partition.
    pub partition: Vec<Column>,
    /// The order within a partition.
    pub order: Vec<SortKey>,
    /// If nothing above uses more rows of a partition than the first ones: how many, as [`FirstRows::count`]. Others need not be given.
    /// All functions [count rows before](WindowCall::counts_before) theirs.
    pub first: Option<Scalar>,
    /// The functions.
    pub calls: Vec<WindowCall>,
}

/// A window function, or an aggregate over a frame.
#[derive(Clone, PartialEq, Debug)]
pub struct WindowCall {
    /// What it produces.
    pub output: Column,
    /// The function.
    pub function: Function,
    /// Scalars over the input.
    pub arguments: Vec<Scalar>,
    /// FILTER
    pub filter: Option<Scalar>,
    /// Over which rows it is computed.
    pub frame: Frame,
}

impl WindowCall {
    /// Whether its value depends on the rows before a row in the order alone.
    pub fn counts_before(&self) -> bool {
        self.is_row_number() || matches!(&*self.function.name, "rank" | "dense_rank")
    }

    /// Whether it is the number of the row in its partition.
    pub fn is_row_number(&self) -> bool {
        &*self.function.name == "row_number"
    }
}

/// A frame of a window.
#[derive(Clone, PartialEq, Debug)]
pub struct Frame {
    /// In what its bounds count.
    pub unit: FrameUnit,
    /// The first row.
    pub start: Bound,
    /// The last row.
    pub end: Bound,
    /// EXCLUDE
    pub exclude: Exclude,
}

impl Default for Frame {
    /// RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    fn default() -> Frame {
        Frame {
            unit: FrameUnit::Range,
            start: Bound::UnboundedPreceding,
            end: Bound::CurrentRow,
            exclude: Exclude::NoOthers,
        }
    }
}

/// In what the bounds of a frame count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameUnit {
    /// Rows.
    Rows,
    /// Values of the one order key.
    Range,
    /// Rows that are equal in the order.
    Groups,
}

/// A bound of a frame.
#[derive(Clone, PartialEq, Debug)]
pub enum Bound {
    /// The first row of the partition.
    UnboundedPreceding,
    /// So much before the current row. Of the input it uses only columns of the partition.
    Preceding(Scalar),
    /// The current row, or the rows that are equal to it in the order.
    CurrentRow,
    /// So much after the current row. Of the input it uses only columns of the partition.
    Following(Scalar),
    /// The last row of the partition.
    UnboundedFollowing,
}

/// Rows of a frame that are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exclude {
    /// None.
    NoOthers,
    /// The current row.
    CurrentRow,
    /// The current row and its equals in the order.
    Group,
    /// Its equals in the order.
    Ties,
}

/// A part of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SortKey {
    /// By which column.
    pub column: Column,
    /// DESC
    pub descending: bool,
    /// NULLS FIRST
    pub nulls_first: bool,
}

impl SortKey {
    /// Ascending, NULLs last.
    pub fn ascending(column: Column) -> SortKey {
        SortKey { column, descending: false, nulls_first: false }
    }
}

/// LIMIT and OFFSET.
#[derive(Clone, PartialEq, Debug)]
pub struct Limit {
    /// The rows.
    pub input: NodeId,
    /// How many go on: a bigint, all if NULL. Only columns of outer queries may be used, here and in `offset`.
    /// What is not a constant is not negative: the binder calls a function that raises 2201W.
    pub count: Option<Scalar>,
    /// How many are passed over before: a bigint, none if NULL. Likewise not negative (2201X).
    pub offset: Option<Scalar>,
    /// WITH TIES: the order in which rows that are equal to the last one go on as well. The input has this order.
    pub ties: Option<Vec<SortKey>>,
}

/// A recursion.
#[derive(Clone, PartialEq, Debug)]
pub struct Iterate {
    /// By what its step reads it.
    pub id: IterateId,
    /// What it produces.
    pub columns: Vec<Column>,
    /// UNION: a row that it has had is left out.
    pub distinct: bool,
    /// The first rows.
    pub initial: NodeId,
    /// The columns of `initial` that it gives.
    pub initial_columns: Vec<Column>,
    /// The rows of the next round.
    pub step: NodeId,
    /// The columns of `step` that it gives.
    pub step_columns: Vec<Column>,
}

/// How strongly a row is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockStrength {
    /// FOR KEY SHARE
    KeyShare,
    /// FOR SHARE
    Share,
    /// FOR NO KEY UPDATE
    NoKeyUpdate,
    /// FOR UPDATE
    Update,
}

/// What to do about a row that another transaction has locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWait {
    /// Wait.
    Block,
    /// NOWAIT: fail.
    Error,
    /// SKIP LOCKED: leave the row out.
    Skip,
}

/// Rows that are locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockTarget {
    /// The table.
    pub source: SourceId,
    /// The column with the row's id; NULL in rows that an outer join made.
    pub row: Column,
    /// How strongly.
    pub strength: LockStrength,
    /// What to do about a lock.
    pub wait: LockWait,
}

/// A column of a changed row that RETURNING uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Image {
    /// What is produced.
    pub output: Column,
    /// Which attribute of the target it is.
    pub attribute: i16,
    /// Whether it is that of the row before the change.
    pub old: bool,
}

/// A new value of a column of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct Assignment {
    /// Which attribute.
    pub attribute: i16,
    /// Its value.
    pub value: Scalar,
}

/// INSERT
#[derive(Clone, PartialEq, Debug)]
pub struct Insert {
    /// The rows to insert.
    pub input: NodeId,
    /// The table.
    pub target: SourceId,
    /// Each attribute and its value.
    pub values: Vec<Assignment>,
    /// ON CONFLICT: arms, of which the first that names the index in conflict counts.
    pub conflicts: Vec<ConflictArm>,
    /// RETURNING: images of the new rows.
    pub images: Vec<Image>,
}

/// What to do where a row to insert meets one in a unique index.
#[derive(Clone, PartialEq, Debug)]
pub struct ConflictArm {
    /// `pg_class.oid` of the indexes; all, if there are none.
    pub indexes: Vec<u32>,
    /// DO UPDATE; DO NOTHING if there is none.
    pub update: Option<ConflictUpdate>,
}

/// ON CONFLICT DO UPDATE. Its scalars see the columns of the input as well: sub-queries are computed there.
#[derive(Clone, PartialEq, Debug)]
pub struct ConflictUpdate {
    /// The columns of the row that is there, and which attribute each is. They are seen in this arm alone.
    pub existing: Vec<(Column, i16)>,
    /// The columns of the row to insert (`excluded`), likewise.
    pub excluded: Vec<(Column, i16)>,
    /// SET
    pub set: Vec<Assignment>,
    /// WHERE
    pub conditions: Vec<Scalar>,
}

/// UPDATE
#[derive(Clone, PartialEq, Debug)]
pub struct Update {
    /// The rows to change.
    pub input: NodeId,
    /// The table.
    pub target: SourceId,
    /// The column with the row's id.
    pub row: Column,
    /// SET
    pub set: Vec<Assignment>,
    /// RETURNING: images of the changed rows.
    pub images: Vec<Image>,
}

/// MERGE
#[derive(Clone, PartialEq, Debug)]
pub struct Merge {
    /// The source joined with the target.
    pub input: NodeId,
    /// The table.
    pub target: SourceId,
    /// The column with the row's id; NULL where the source has no match.
    pub row: Column,
    /// WHEN: the first whose conditions hold counts.
    pub arms: Vec<MergeArm>,
    /// RETURNING: images of the changed rows.
    pub images: Vec<Image>,
}

/// WHEN [NOT] MATCHED … THEN
#[derive(Clone, PartialEq, Debug)]
pub struct MergeArm {
    /// Whether it is for rows with a match.
    pub matched: bool,
    /// AND …
    pub conditions: Vec<Scalar>,
    /// What is done.
    pub action: MergeAction,
}

/// What MERGE does with a row.
#[derive(Clone, PartialEq, Debug)]
pub enum MergeAction {
    /// UPDATE SET
    Update(Vec<Assignment>),
    /// DELETE
    Delete,
    /// INSERT
    Insert(Vec<Assignment>),
    /// DO NOTHING
    Nothing,
}

impl Operator {
    /// The inputs, in the order in which they are printed.
    pub fn inputs(&self) -> Inputs {
        let mut inputs = Inputs::new();
        self.for_each_input(&mut |input| inputs.push(input));
        inputs
    }

    /// Whether it changes rows of a table.
    pub fn is_change(&self) -> bool {
        matches!(
            self,
            Operator::Insert(_) | Operator::Update(_) | Operator::Delete { .. } | Operator::Merge(_)
        )
    }

    fn for_each_input(&self, visit: &mut impl FnMut(NodeId)) {
        match self {
            Operator::Scan(_)
            | Operator::Values { .. }
            | Operator::TableFunction(_)
            | Operator::IterateRead { .. }
            | Operator::SharedRead { .. } => {}
            Operator::FlatMap { input, .. }
            | Operator::Filter { input, .. }
            | Operator::Map { input, .. }
            | Operator::Group(Group { input, .. })
            | Operator::Window(Window { input, .. })
            | Operator::Sort { input, .. }
            | Operator::Limit(Limit { input, .. })
            | Operator::DistinctOn { input, .. }
            | Operator::Sample { input, .. }
            | Operator::Lock { input, .. }
            | Operator::Insert(Insert { input, .. })
            | Operator::Update(Update { input, .. })
            | Operator::Delete { input, .. }
            | Operator::Merge(Merge { input, .. }) => visit(*input),
            Operator::Join(join) => {
                visit(join.left);
                visit(join.right);
            }
            Operator::UnionAll { inputs, .. } => inputs.iter().for_each(|(input, _)| visit(*input)),
            Operator::Iterate(iterate) => {
                visit(iterate.initial);
                visit(iterate.step);
            }
            Operator::Shared { definition, body, .. } => {
                visit(*definition);
                visit(*body);
            }
        }
    }

    /// The inputs, to be changed.
    pub fn for_each_input_mut(&mut self, mut visit: impl FnMut(&mut NodeId)) {
        match self {
            Operator::Scan(_)
            | Operator::Values { .. }
            | Operator::TableFunction(_)
            | Operator::IterateRead { .. }
            | Operator::SharedRead { .. } => {}
            Operator::FlatMap { input, .. }
            | Operator::Filter { input, .. }
            | Operator::Map { input, .. }
            | Operator::Group(Group { input, .. })
            | Operator::Window(Window { input, .. })
            | Operator::Sort { input, .. }
            | Operator::Limit(Limit { input, .. })
            | Operator::DistinctOn { input, .. }
            | Operator::Sample { input, .. }
            | Operator::Lock { input, .. }
            | Operator::Insert(Insert { input, .. })
            | Operator::Update(Update { input, .. })
            | Operator::Delete { input, .. }
            | Operator::Merge(Merge { input, .. }) => visit(input),
            Operator::Join(join) => {
                visit(&mut join.left);
                visit(&mut join.right);
            }
            Operator::UnionAll { inputs, .. } => inputs.iter_mut().for_each(|(input, _)| visit(input)),
            Operator::Iterate(iterate) => {
                visit(&mut iterate.initial);
                visit(&mut iterate.step);
            }
            Operator::Shared { definition, body, .. } => {
                visit(definition);
                visit(body);
            }
        }
    }

    /// Calls `visit` with each scalar of this operator.
    pub fn for_each_scalar<'a>(&'a self, mut visit: impl FnMut(&'a Scalar)) {
        match self {
            Operator::Scan(scan) => scan.conditions.iter().for_each(visit),
            Operator::Values { rows, .. } => rows.iter().flatten().for_each(visit),
            Operator::TableFunction(calls) | Operator::FlatMap { calls, .. } => {
                calls.calls.iter().flat_map(|call| &call.arguments).for_each(visit);
            }
            Operator::Filter { conditions, .. } | Operator::Join(Join { conditions, .. }) => {
                conditions.iter().for_each(visit);
            }
            Operator::Map { outputs, .. } => outputs.iter().for_each(|(_, scalar)| visit(scalar)),
            Operator::Group(group) => {
                for aggregate in &group.aggregates {
                    aggregate.arguments.iter().for_each(&mut visit);
                    aggregate.filter.iter().for_each(&mut visit);
                }
            }
            Operator::Window(window) => {
                for call in &window.calls {
                    call.arguments.iter().for_each(&mut visit);
                    call.filter.iter().for_each(&mut visit);
                    for bound in [&call.frame.start, &call.frame.end] {
                        if let Bound::Preceding(scalar) | Bound::Following(scalar) = bound {
                            visit(scalar);
                        }
                    }
                }
            }
            Operator::Limit(limit) => limit.count.iter().chain(&limit.offset).for_each(visit),
            Operator::Sample { percent, seed, .. } => {
                visit(percent);
                seed.iter().for_each(visit);
            }
            Operator::Insert(insert) => {
                insert.values.iter().for_each(|assignment| visit(&assignment.value));
                for update in insert.conflicts.iter().filter_map(|arm| arm.update.as_ref()) {
                    update.set.iter().for_each(|assignment| visit(&assignment.value));
                    update.conditions.iter().for_each(&mut visit);
                }
            }
            Operator::Update(update) => update.set.iter().for_each(|assignment| visit(&assignment.value)),
            Operator::Merge(merge) => {
                for arm in &merge.arms {
                    arm.conditions.iter().for_each(&mut visit);
                    if let MergeAction::Update(set) | MergeAction::Insert(set) = &arm.action {
                        set.iter().for_each(|assignment| visit(&assignment.value));
                    }
                }
            }
            Operator::Sort { .. }
            | Operator::DistinctOn { .. }
            | Operator::UnionAll { .. }
            | Operator::Iterate(_)
            | Operator::IterateRead { .. }
            | Operator::Shared { .. }
            | Operator::SharedRead { .. }
            | Operator::Lock { .. }
            | Operator::Delete { .. } => {}
        }
    }

    /// Calls `visit` with each scalar of this operator.
    pub fn for_each_scalar_mut(&mut self, mut visit: impl FnMut(&mut Scalar)) {
        match self {
            Operator::Scan(scan) => scan.conditions.iter_mut().for_each(visit),
            Operator::Values { rows, .. } => rows.iter_mut().flatten().for_each(visit),
            Operator::TableFunction(calls) | Operator::FlatMap { calls, .. } => {
                calls.calls.iter_mut().flat_map(|call| &mut call.arguments).for_each(visit);
            }
            Operator::Filter { conditions, .. } | Operator::Join(Join { conditions, .. }) => {
                conditions.iter_mut().for_each(visit);
            }
            Operator::Map { outputs, .. } => outputs.iter_mut().for_each(|(_, scalar)| visit(scalar)),
            Operator::Group(group) => {
                for aggregate in &mut group.aggregates {
                    aggregate.arguments.iter_mut().for_each(&mut visit);
                    aggregate.filter.iter_mut().for_each(&mut visit);
                }
            }
            Operator::Window(window) => {
                for call in &mut window.calls {
                    call.arguments.iter_mut().for_each(&mut visit);
                    call.filter.iter_mut().for_each(&mut visit);
                    for bound in [&mut call.frame.start, &mut call.frame.end] {
                        if let Bound::Preceding(scalar) | Bound::Following(scalar) = bound {
                            visit(scalar);
                        }
                    }
                }
            }
            Operator::Limit(limit) => limit.count.iter_mut().chain(&mut limit.offset).for_each(visit),
            Operator::Sample { percent, seed, .. } => {
                visit(percent);
                seed.iter_mut().for_each(visit);
            }
            Operator::Insert(insert) => {
                insert.values.iter_mut().for_each(|assignment| visit(&mut assignment.value));
                for update in insert.conflicts.iter_mut().filter_map(|arm| arm.update.as_mut()) {
                    update.set.iter_mut().for_each(|assignment| visit(&mut assignment.value));
                    update.conditions.iter_mut().for_each(&mut visit);
                }
            }
            Operator::Update(update) => {
                update.set.iter_mut().for_each(|assignment| visit(&mut assignment.value));
            }
            Operator::Merge(merge) => {
                for arm in &mut merge.arms {
                    arm.conditions.iter_mut().for_each(&mut visit);
                    if let MergeAction::Update(set) | MergeAction::Insert(set) = &mut arm.action {
                        set.iter_mut().for_each(|assignment| visit(&mut assignment.value));
                    }
                }
            }
            Operator::Sort { .. }
            | Operator::DistinctOn { .. }
            | Operator::UnionAll { .. }
            | Operator::Iterate(_)
            | Operator::IterateRead { .. }
            | Operator::Shared { .. }
            | Operator::SharedRead { .. }
            | Operator::Lock { .. }
            | Operator::Delete { .. } => {}
        }
    }

    /// The columns that it names outside of scalars: keys, orders and what it takes of its inputs.
    pub fn for_each_named_column(&self, mut visit: impl FnMut(Column)) {
        self.clone_named().into_iter().for_each(&mut visit);
    }

    fn clone_named(&self) -> Vec<Column> {
        let keys = |keys: &[SortKey]| keys.iter().map(|key| key.column).collect::<Vec<_>>();
        match self {
            Operator::Group(group) => {
                let orders = group.aggregates.iter().flat_map(|aggregate| &aggregate.order);
                group.keys.iter().copied().chain(orders.map(|key| key.column)).collect()
            }
            Operator::Window(window) => [window.partition.clone(), keys(&window.order)].concat(),
            Operator::Sort { keys: order, .. } => keys(order),
            Operator::Limit(limit) => limit.ties.as_deref().map_or_else(Vec::new, keys),
            Operator::DistinctOn { keys: distinct, order, .. } => [distinct.clone(), keys(order)].concat(),
            Operator::UnionAll { inputs, .. } => {
                inputs.iter().flat_map(|(_, columns)| columns).copied().collect()
            }
            Operator::Iterate(iterate) => {
                [iterate.initial_columns.clone(), iterate.step_columns.clone()].concat()
            }
            Operator::Lock { targets, .. } => targets.iter().map(|target| target.row).collect(),
            Operator::Update(Update { row, .. })
            | Operator::Delete { row, .. }
            | Operator::Merge(Merge { row, .. }) => vec![*row],
            _ => Vec::new(),
        }
    }

    /// Changes the columns that it uses, in scalars and outside of them; not those that it produces.
    pub fn rename_uses(&mut self, rename: &mut impl FnMut(Column) -> Column) {
        self.for_each_scalar_mut(|scalar| scalar.rename(rename));
        match self {
            Operator::Group(group) => {
                group.keys.iter_mut().for_each(|key| *key = rename(*key));
                group.determined.iter_mut().for_each(|key| *key = rename(*key));
                for key in group.aggregates.iter_mut().flat_map(|aggregate| &mut aggregate.order) {
                    key.column = rename(key.column);
                }
            }
            Operator::Window(window) => {
                window.partition.iter_mut().for_each(|column| *column = rename(*column));
                window.order.iter_mut().for_each(|key| key.column = rename(key.column));
            }
            Operator::Sort { keys, .. } => keys.iter_mut().for_each(|key| key.column = rename(key.column)),
            Operator::Limit(limit) => {
                limit.ties.iter_mut().flatten().for_each(|key| key.column = rename(key.column));
            }
            Operator::DistinctOn { keys, order, .. } => {
                keys.iter_mut().for_each(|key| *key = rename(*key));
                order.iter_mut().for_each(|key| key.column = rename(key.column));
            }
            Operator::UnionAll { inputs, .. } => {
                for column in inputs.iter_mut().flat_map(|(_, columns)| columns) {
                    *column = rename(*column);
                }
            }
            Operator::Iterate(iterate) => {
                for column in iterate.initial_columns.iter_mut().chain(&mut iterate.step_columns) {
                    *column = rename(*column);
                }
            }
            Operator::Lock { targets, .. } => {
                targets.iter_mut().for_each(|target| target.row = rename(target.row));
            }
            Operator::Update(Update { row, .. })
            | Operator::Delete { row, .. }
            | Operator::Merge(Merge { row, .. }) => *row = rename(*row),
            _ => {}
        }
    }

    /// The columns that it produces; not those that it passes on.
    pub fn produced(&self) -> Vec<Column> {
        match self {
            Operator::Scan(scan) => scan.columns.iter().map(|(column, _)| *column).collect(),
            Operator::Values { columns, .. }
            | Operator::UnionAll { columns, .. }
            | Operator::Iterate(Iterate { columns, .. })
            | Operator::IterateRead { columns, .. } => columns.clone(),
            Operator::TableFunction(calls) | Operator::FlatMap { calls, .. } => calls.produced(),
            Operator::Map { outputs, .. } => outputs.iter().map(|(column, _)| *column).collect(),
            Operator::Join(join) => join.mark.into_iter().collect(),
            Operator::Group(group) => {
                let sets = group.sets.iter();
                let keys = sets.flat_map(|sets| sets.columns.iter().copied().chain(sets.number));
                keys.chain(group.aggregates.iter().map(|aggregate| aggregate.output)).collect()
            }
            Operator::Window(window) => window.calls.iter().map(|call| call.output).collect(),
            Operator::SharedRead { columns, .. } => columns.iter().map(|(column, _)| *column).collect(),
            Operator::Insert(Insert { images, .. })
            | Operator::Update(Update { images, .. })
            | Operator::Delete { images, .. }
            | Operator::Merge(Merge { images, .. }) => images.iter().map(|image| image.output).collect(),
            Operator::Filter { .. }
            | Operator::Sort { .. }
            | Operator::Limit(_)
            | Operator::DistinctOn { .. }
            | Operator::Sample { .. }
            | Operator::Shared { .. }
            | Operator::Lock { .. } => Vec::new(),
        }
    }
}

impl SetCalls {
    fn produced(&self) -> Vec<Column> {
        self.calls.iter().flat_map(|call| &call.columns).copied().chain(self.ordinality).collect()
    }
}

/// The inputs of an operator. Most have one or two.
pub type Inputs = Vec<NodeId>;
