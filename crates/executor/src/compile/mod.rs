//! Makes programs of plans: pipelines, and what each waits for.
//!
//! A program is immutable and can be run any number of times, by several executions at once. Columns that nothing above an operator
//! uses are not computed, gathered or kept.
//!
//! The plan is one whose dependent joins have been removed.

mod aggregate;
mod change;
mod index_join;
mod join;
mod judge;
mod lock;
mod operator;
mod recursion;

use crate::expression::{Compiler, Layout};
use crate::inputs::{SharedPlan, ValuesPlan};
use crate::measures::{Gauge, Measures};
use crate::pipeline::{Fragment, InputPlan, Pipeline, SinkPlan, SlotId, StagePlan};
use crate::run::JoinFilter;
use crate::source::{Request, Sources};
use crate::stages::LimitBounds;
use crate::timed::{Counter, Timed};
use firn_base::sync::Arc;
use firn_base::{Representation, Result, Value};
use firn_plan::operator::{IterateId, SharedId, SourceId};
use firn_plan::properties::Scope;
use firn_plan::rewrite::first_rows::AttributeOrder;
use firn_plan::{Column, Columns, NodeId, Operator, Plan, Scalar};
use firn_storage::Judge;
use firn_vector::Registry;
pub use judge::PlannedJudge;
use std::collections::{BTreeSet, HashMap};

/// A plan that can be run.
pub struct Program {
    columns: Columns,
    /// The pipelines by the slots that they fill. A slot without one is filled by an input.
    pipelines: Arc<[Option<Pipeline>]>,
    scans: Vec<PlannedScan>,
    lookups: Vec<PlannedLookup>,
    parameters: Vec<Option<Representation>>,
    result: Arc<Fragment>,
    /// Where the result has the columns of the output.
    output: Vec<usize>,
    representations: Vec<Representation>,
    effects: ProgramEffects,
}

/// What a program does to tables.
#[derive(Default)]
struct ProgramEffects {
    /// The slots of its changes, in the order of the text.
    changes: Vec<SlotId>,
    /// Which of them is the statement itself, if it is no query.
    own: Option<SlotId>,
    /// The tables that it changes.
    targets: Vec<SourceId>,
    /// The tables whose rows it locks.
    locked: Vec<SourceId>,
}

/// A scan of a program.
pub struct PlannedScan {
    /// The operator of the plan.
    pub node: NodeId,
    /// The source.
    pub source: SourceId,
    /// The columns that are read, and their attributes.
    pub columns: Vec<(Column, i16)>,
    /// How many of them, the first ones, are used for more than the conditions.
    pub used: usize,
    /// What rows must meet.
    pub conditions: Vec<Scalar>,
    /// Those of the conditions that may be judged by the values of a dictionary.
    pub judges: Vec<PlannedJudge>,
    /// The joins that have no use for some of its rows.
    pub filters: Vec<JoinFilter>,
    /// Whether its rows only go to the first change, which collects its rows before it begins.
    pub feeds_first_change: bool,
    /// Whether what it reads is logged when it is opened. Rows that SKIP LOCKED leaves out are not relied on: those that it
    /// yields are logged as they are locked, if they have to be.
    pub is_logged: bool,
}

impl PlannedScan {
    /// As a source is asked.
    pub(crate) fn request<'a>(
        &'a self,
        judges: &'a [(i16, Judge)],
        parameters: &'a [Value],
        all: &'a Columns,
        workers: usize,
    ) -> Request<'a> {
        let PlannedScan { columns, used, conditions, .. } = self;
        Request { columns, used: *used, conditions, judges, parameters, all, workers }
    }

    /// How the values of its columns lie.
    pub(crate) fn representations(&self, columns: &Columns) -> Vec<Representation> {
        self.columns.iter().map(|(column, _)| crate::source::representation(columns, *column)).collect()
    }
}

/// Look-ups of a program.
pub struct PlannedLookup {
    /// The rows that are looked up.
    pub scan: PlannedScan,
    /// The attributes that they are looked up by.
    pub attributes: Vec<i16>,
    /// If only the first rows of a key are wanted: their order, and how many.
    pub first: Option<(Vec<AttributeOrder>, Scalar)>,
}

impl PlannedLookup {
    /// The order in which rows of a key are wanted.
    pub(crate) fn order(&self) -> &[AttributeOrder] {
        self.first.as_ref().map_or(&[], |(order, _)| order)
    }

    /// How many rows of a key are wanted; `None` if all are.
    pub(crate) fn count(&self, parameters: &[Value]) -> Option<usize> {
        let count = match &self.first.as_ref()?.1 {
            Scalar::Constant(_, value) => value,
            Scalar::Parameter(number, _) => &parameters[usize::from(*number) - 1],
            other => panic!("{other:?} is no count"),
        };
        match count {
            Value::BigInt(count) => usize::try_from(*count).ok(),
            _ => None,
        }
    }
}

/// The tables that a plan changes, which must be compiled for writing; `None` of a plan that neither changes tables nor locks rows.
pub fn targets_of(plan: &Plan) -> Option<Vec<SourceId>> {
    let ProgramEffects { targets, locked, .. } = change::effects_of(plan);
    (!targets.is_empty() || !locked.is_empty()).then_some(targets)
}

impl Program {
    /// The program of a plan.
    pub fn compile(plan: &Plan, registry: &Registry) -> Result<Program> {
        Program::measured(plan, registry, None)
    }

    /// The program of a plan which notes what each operator comes to, if there are measures of that plan.
    pub fn measured(plan: &Plan, registry: &Registry, measures: Option<Arc<Measures>>) -> Result<Program> {
        measures.iter().for_each(|measures| measures.clear());
        let mut compile = Compile {
            plan,
            measures,
            current: plan.root,
            scalars: Compiler { registry, columns: &plan.columns },
            pipelines: Vec::new(),
            depends: Vec::new(),
            scans: Vec::new(),
            lookups: Vec::new(),
            shared: HashMap::new(),
            shared_columns: HashMap::new(),
            iterates: HashMap::new(),
            effects: change::effects_of(plan),
            limit_above: None,
            columns: plan.columns.clone(),
        };
        for node in plan.post_order() {
            if let Operator::SharedRead { id, columns } = &plan[node] {
                let kept = compile.shared_columns.entry(*id).or_default();
                kept.extend(columns.iter().map(|(_, of)| *of));
            }
        }
        let needed: Needed = plan.output.iter().copied().collect();
        let part = compile.node(plan.root, &needed)?;
        let place = |column: &Column| part.layout.position(*column).expect("the root gives the output");
        let output: Vec<usize> = plan.output.iter().map(place).collect();
        let representations = plan.output.iter().map(|column| part.layout.representation(*column)).collect();
        let result = compile.fragment(part);
        Ok(Program {
            columns: compile.columns,
            effects: compile.effects,
            parameters: parameters(plan),
            result,
            output,
            representations,
            pipelines: compile.pipelines.into(),
            scans: compile.scans,
            lookups: compile.lookups,
        })
    }

    /// The columns of the statement.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// Whether it changes tables or locks rows: then it is [executed](crate::execution::execute).
    pub fn has_effects(&self) -> bool {
        !self.effects.changes.is_empty() || !self.effects.locked.is_empty()
    }

    /// The tables that it changes, which must be compiled for writing.
    pub fn targets(&self) -> &[SourceId] {
        &self.effects.targets
    }

    /// Whether the statement itself changes a table: its command tag has the number of changed rows.
    pub fn is_change(&self) -> bool {
        self.effects.own.is_some()
    }

    /// How the values of the output's columns lie.
    pub fn representations(&self) -> &[Representation] {
        &self.representations
    }

    /// How the values of each parameter lie; `None` if the plan does not use it.
    pub fn parameters(&self) -> &[Option<Representation>] {
        &self.parameters
    }

    pub(crate) fn pipelines(&self) -> &Arc<[Option<Pipeline>]> {
        &self.pipelines
    }

    /// By which indexes it would read now, with these parameters: the operator that reads, and the index's oid.
    pub fn indexes(&self, sources: &dyn Sources, parameters: &[Value]) -> Vec<(NodeId, u32)> {
        let of_scan = |scan: &PlannedScan| {
            let request = scan.request(&[], parameters, &self.columns, 1);
            Some((scan.node, sources.source(scan.source).index_for(&request)?))
        };
        let of_lookup = |lookup: &PlannedLookup| {
            let PlannedLookup { scan, attributes, .. } = lookup;
            Some((scan.node, sources.source(scan.source).index_by(attributes, lookup.order())?))
        };
        let lookups = self.lookups.iter().filter_map(of_lookup);
        self.scans.iter().filter_map(of_scan).chain(lookups).collect()
    }

    /// Its scans.
    pub fn scans(&self) -> &[PlannedScan] {
        &self.scans
    }

    pub(crate) fn lookups(&self) -> &[PlannedLookup] {
        &self.lookups
    }

    pub(crate) fn result(&self) -> &Arc<Fragment> {
        &self.result
    }

    pub(crate) fn changes(&self) -> &[SlotId] {
        &self.effects.changes
    }

    pub(crate) fn own_change(&self) -> Option<SlotId> {
        self.effects.own
    }

    pub(crate) fn locked(&self) -> &[SourceId] {
        &self.effects.locked
    }

    pub(crate) fn output(&self) -> &[usize] {
        &self.output
    }
}

pub(crate) fn parameters(plan: &Plan) -> Vec<Option<Representation>> {
    fn visit(scalar: &Scalar, parameters: &mut Vec<Option<Representation>>) {
        if let Scalar::Parameter(number, ty) = scalar {
            let place = usize::from(*number) - 1;
            parameters.resize(parameters.len().max(place + 1), None);
            parameters[place] = Some(crate::expression::representation_of(*ty));
        }
        scalar.for_each_child(|child| visit(child, parameters));
    }
    let mut parameters = Vec::new();
    for node in plan.post_order() {
        plan[node].for_each_scalar(|scalar| visit(scalar, &mut parameters));
    }
    parameters
}

/// Columns that are used above an operator.
type Needed = BTreeSet<Column>;

/// The state of compiling one plan.
struct Compile<'a> {
    plan: &'a Plan,
    /// Where operators are measured, and which one is being compiled.
    measures: Option<Arc<Measures>>,
    current: NodeId,
    scalars: Compiler<'a>,
    pipelines: Vec<Option<Pipeline>>,
    /// For each slot the recursions whose rounds it is computed from.
    depends: Vec<BTreeSet<IterateId>>,
    scans: Vec<PlannedScan>,
    lookups: Vec<PlannedLookup>,
    shared: HashMap<SharedId, DefinedShared>,
    /// The columns that some reader of a shared sub-plan uses.
    shared_columns: HashMap<SharedId, Needed>,
    iterates: HashMap<IterateId, (SlotId, Vec<Representation>)>,
    effects: ProgramEffects,
    /// The limit above the locks that are compiled next.
    limit_above: Option<LimitBounds>,
    /// The columns of the statement, and those that were added.
    columns: Columns,
}

/// A shared sub-plan that readers below its body may name.
#[derive(Clone)]
struct DefinedShared {
    plan: Arc<SharedPlan>,
    /// The columns that it keeps, in their order.
    columns: Vec<Column>,
    depends: BTreeSet<IterateId>,
}

/// What an operator has become: an input, and stages above it.
struct Part {
    input: Box<dyn InputPlan>,
    stages: Vec<Box<dyn StagePlan>>,
    /// The vectors of its chunks.
    layout: Layout,
    /// Which columns may be NULL.
    scope: Scope,
    is_serial: bool,
    depends: BTreeSet<IterateId>,
    /// The scan that is its input, if each stage treats each row by itself: what is not wanted above them need not come from there.
    scan: Option<usize>,
    /// Whether the input, and how many of the stages, have a clock around them, where operators are measured.
    timed: Option<usize>,
}

impl Part {
    fn new(input: impl InputPlan + 'static, layout: Layout) -> Part {
        Part {
            scan: None,
            timed: None,
            input: Box::new(input),
            stages: Vec::new(),
            layout,
            scope: Scope::default(),
            is_serial: false,
            depends: BTreeSet::new(),
        }
    }

    /// Adds a stage.
    fn push(&mut self, stage: impl StagePlan + 'static) {
        self.scan = None;
        self.stages.push(Box::new(stage));
    }

    /// Adds a stage that treats each row by itself.
    fn push_rowwise(&mut self, stage: impl StagePlan + 'static) {
        self.stages.push(Box::new(stage));
        // A volatile function is called for each row.
        self.scan = self.scan.filter(|_| !self.is_serial);
    }
}

impl Compile<'_> {
    fn slot(&mut self, depends: BTreeSet<IterateId>) -> SlotId {
        self.pipelines.push(None);
        self.depends.push(depends);
        SlotId(self.pipelines.len() - 1)
    }

    /// Ends a pipeline: its rows go to a sink, whose result fills a slot.
    fn pipeline(&mut self, part: Part, sink: impl SinkPlan + 'static) -> SlotId {
        let slot = self.slot(part.depends.clone());
        let mut sink: Box<dyn SinkPlan> = Box::new(sink);
        if let Some(gauge) = self.gauge() {
            sink = Box::new(Timed::new(&gauge, sink));
        }
        self.pipelines[slot.0] = Some(Pipeline { fragment: self.fragment(part), sink });
        slot
    }

    /// What a part is run as.
    fn fragment(&self, mut part: Part) -> Arc<Fragment> {
        self.time(&mut part);
        Arc::new(Fragment { input: part.input, stages: part.stages, is_serial: part.is_serial })
    }

    /// Where the operator that is being compiled is measured, if it is.
    fn gauge(&self) -> Option<Gauge> {
        self.measures.as_ref().map(|measures| Gauge::new(measures.clone(), self.current))
    }

    /// Puts clocks around what the operator that is being compiled has added to a part.
    fn time(&self, part: &mut Part) {
        let Some(gauge) = self.gauge() else { return };
        let timed = part.timed.unwrap_or_else(|| {
            let input = std::mem::replace(&mut part.input, Box::new(ValuesPlan::one_row()));
            part.input = Box::new(Timed::new(&gauge, input));
            0
        });
        let added = part.stages.split_off(timed);
        part.stages.extend(added.into_iter().map(|stage| Box::new(Timed::new(&gauge, stage)) as _));
        part.timed = Some(part.stages.len());
    }

    /// An operator of which these columns are used.
    fn node(&mut self, node: NodeId, needed: &Needed) -> Result<Part> {
        let above = std::mem::replace(&mut self.current, node);
        let mut part = self.operator(node, needed)?;
        if let Some(gauge) = self.gauge() {
            self.time(&mut part);
            part.push_rowwise(Counter(gauge));
            part.timed = Some(part.stages.len());
        }
        self.current = above;
        Ok(part)
    }
}

/// The columns that scalars use, and others.
fn with_uses<'s>(needed: &Needed, scalars: impl IntoIterator<Item = &'s Scalar>) -> Needed {
    let mut all = needed.clone();
    for scalar in scalars {
        scalar.for_each_column(&mut |column| {
            all.insert(column);
        });
    }
    all
}
