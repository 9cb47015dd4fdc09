//! The short program of a plan, if its shape has one: a scan or rows of VALUES, joins with scans, filters, computed columns, aggregates
//! over all rows, an order, a limit, locks, and a change at the end.

use super::access::{self, KeyBound, KeyPart, KeyValue, Lookup, Noted, Wanted, WantedBound};
use super::change::{Body, Change, ChangeKind, Lock, ShortImage};
use super::{Aggregate, Grouping, Limit, Output, Place, ShortProgram, SortBy, State, Step};
use crate::compile::parameters;
use crate::expression::{
    CellConditions, CellExpression, Compiler, Conditions, Expression, Layout, representation_of,
};
use crate::keys::{KeyColumn, KeyLayout};
use crate::pool::Pool;
use crate::source::Sources;
use crate::stages::LockedRows;
use crate::table::TableSource;
use crate::write::{TargetSet, column_id};
use firn_base::sync::Arc;
use firn_base::{ColumnId, Representation, Type};
use firn_plan::operator::{
    Assignment, Group, Image, Join, JoinKind, LockStrength, LockTarget, LockWait, ROW_ID, Scan, SortKey,
    SourceId,
};
use firn_plan::{Column, Columns, NodeId, Operator, Plan, Scalar};
use firn_storage::RowLock;
use firn_vector::kernel::Signature;
use firn_vector::registry::{Body as FunctionBody, Strategy};
use firn_vector::{FunctionId, Registry, Slot};

/// More rows than these of VALUES are not a short statement: pipelines insert them together.
const MOST_VALUES: usize = 8;

/// More look-ups than these likewise.
const MOST_LOOKUPS: usize = 6;

/// More operators than these likewise.
const MOST_OPERATORS: usize = 24;

/// As [`ShortProgram::compile`].
pub(super) fn program(
    plan: &Plan,
    registry: &Registry,
    sources: &dyn Sources,
    targets: Option<&TargetSet>,
) -> Option<ShortProgram> {
    let order = plan.post_order();
    (order.len() <= MOST_OPERATORS).then_some(())?;
    let mut compile = Compile {
        plan,
        sources,
        scalars: Compiler { registry, columns: &plan.columns },
        used: used_columns(plan, &order),
        layout: Layout::new(),
        first_seen: 0,
        state: State::default(),
        program: Parts::default(),
        all: None,
    };
    let mut root = plan.root;
    let mut returning = Vec::new();
    while let Operator::Map { input, outputs } = &plan[root]
        && targets.is_some()
    {
        returning.push(outputs);
        root = *input;
    }
    let body = match (&plan[root], targets) {
        (Operator::Insert(insert), Some(targets)) => {
            insert.conflicts.is_empty().then_some(())?;
            let (kind, set) = (ShortKind::Insert, &insert.values[..]);
            let change = ShortChange { target: insert.target, kind, set, images: &insert.images };
            compile.change(insert.input, change, returning, targets)?
        }
        (Operator::Update(update), Some(targets)) => {
            let (kind, set) = (ShortKind::Update(update.row), &update.set[..]);
            let change = ShortChange { target: update.target, kind, set, images: &update.images };
            compile.change(update.input, change, returning, targets)?
        }
        (Operator::Delete { input, target, row, images }, Some(targets)) => {
            let change = ShortChange { target: *target, kind: ShortKind::Delete(*row), set: &[], images };
            compile.change(*input, change, returning, targets)?
        }
        _ => {
            compile.node(plan.root, &Above::default())?;
            match compile.program.lock.take() {
                Some(lock) => Body::Lock(lock),
                None => Body::Query,
            }
        }
    };
    let calls_volatile = || {
        let mut is_volatile = false;
        order
            .iter()
            .for_each(|node| plan[*node].for_each_scalar(|scalar| is_volatile |= scalar.is_volatile()));
        is_volatile
    };
    // A program that gives up is followed by pipelines, which would call it again.
    (compile.program.lookups.is_empty() || !calls_volatile()).then_some(())?;
    let output = |column: &Column| {
        let place = compile.position(*column)?;
        Some(Output { place, representation: compile.layout.representation(*column) })
    };
    let outputs = plan.output.iter().map(output).collect::<Option<_>>()?;
    let Compile { program, state, .. } = compile;
    Some(ShortProgram {
        steps: program.steps,
        lookups: program.lookups,
        places: program.places,
        cells: program.cells,
        parameters: parameters(plan),
        grouping: program.grouping,
        sort: program.sort,
        limit: program.limit,
        outputs,
        body,
        states: Pool::new(Box::new(state)),
    })
}

/// Which columns are used for more than the conditions of their scan.
fn used_columns(plan: &Plan, order: &[NodeId]) -> Vec<bool> {
    let mut used = vec![false; plan.columns.len()];
    let mut mark = |column: Column| used[column.0 as usize] = true;
    plan.output.iter().copied().for_each(&mut mark);
    for node in order {
        let operator = &plan[*node];
        if !matches!(operator, Operator::Scan(_)) {
            operator.for_each_scalar(|scalar| scalar.for_each_column(&mut mark));
            operator.for_each_named_column(&mut mark);
        }
    }
    used
}

/// What is above an operator.
#[derive(Clone, Copy, Default)]
struct Above<'p> {
    /// The order that its rows shall have, if nothing between changes it.
    order: &'p [SortKey],
    /// Whether only the first of them are wanted.
    takes_first: bool,
}

/// A change at the root of a plan.
struct ShortChange<'p> {
    target: SourceId,
    kind: ShortKind,
    set: &'p [Assignment],
    images: &'p [Image],
}

/// What it does; where a row's id is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ShortKind {
    Insert,
    Update(Column),
    Delete(Column),
}

/// The parts of a program that is being compiled.
#[derive(Default)]
struct Parts {
    steps: Vec<Step>,
    lookups: Vec<Lookup>,
    places: Vec<Place>,
    cells: usize,
    grouping: Option<Grouping>,
    sort: Vec<SortBy>,
    /// Whether rows come in the order that is asked for.
    keeps_order: bool,
    /// Whether an order is asked for below.
    is_sorted: bool,
    limit: Option<Limit>,
    lock: Option<Lock>,
}

struct Compile<'p> {
    plan: &'p Plan,
    sources: &'p dyn Sources,
    scalars: Compiler<'p>,
    used: Vec<bool>,
    /// The columns, by their places.
    layout: Layout,
    /// The places before are of columns that are not seen any more.
    first_seen: usize,
    state: State,
    program: Parts,
    /// The columns of the statement, once a look-up keeps them.
    all: Option<Arc<Columns>>,
}

impl<'p> Compile<'p> {
    fn node(&mut self, node: NodeId, above: &Above<'_>) -> Option<()> {
        let plan = self.plan;
        match &plan[node] {
            Operator::Scan(scan) => self.look_up(scan, &[], JoinKind::Inner, above),
            Operator::Values { columns, rows } => self.values(columns, rows),
            Operator::Filter { input, conditions } => {
                self.node(*input, &Above { takes_first: false, ..*above })?;
                self.is_before_limit()?;
                let conditions: Vec<&Scalar> = conditions.iter().collect();
                let number = self.conditions(&conditions)?;
                self.program.steps.push(Step::Filter(number));
                Some(())
            }
            Operator::Map { input, outputs } => {
                self.node(*input, above)?;
                let is_cut = self.is_before_limit().is_none();
                // Rows that a limit leaves out are not computed, in case that it fails.
                let is_harmless =
                    |(_, scalar): &(Column, Scalar)| !scalar.can_fail() && !scalar.is_volatile();
                (!is_cut || outputs.iter().all(is_harmless)).then_some(())?;
                self.map(outputs)
            }
            Operator::Join(join) => self.join(join, above),
            Operator::Group(group) => self.group(group),
            Operator::Sort { input, keys } => {
                self.node(*input, &Above { order: keys, ..*above })?;
                self.is_before_limit()?;
                (!self.program.is_sorted).then_some(())?;
                self.program.is_sorted = true;
                if self.program.keeps_order { Some(()) } else { self.sort(keys) }
            }
            Operator::Limit(limit) => {
                limit.ties.is_none().then_some(())?;
                self.node(limit.input, &Above { order: &[], takes_first: limit.count.is_some() })?;
                self.program.limit.is_none().then_some(())?;
                let count = self.limit(&limit.count)?;
                let offset = self.limit(&limit.offset)?;
                self.program.limit = Some(Limit { count, offset });
                // Which rows come first depends on the index, unless all of them are found.
                if self.program.sort.is_empty() && self.program.grouping.is_none() {
                    self.program.lookups.iter_mut().for_each(|lookup| lookup.noted.keeps_order = true);
                }
                Some(())
            }
            Operator::Lock { input, targets } => {
                self.node(*input, above)?;
                self.is_before_limit()?;
                self.program.lock.is_none().then_some(())?;
                self.lock(targets)
            }
            _ => None,
        }
    }

    /// Whether all rows that come now go on.
    fn is_before_limit(&self) -> Option<()> {
        (self.program.limit.is_none() && self.program.lock.is_none()).then_some(())
    }

    /// Whether rows still come one by one, in no order that is asked for.
    fn is_plain(&self) -> Option<()> {
        self.is_before_limit()?;
        (!self.program.is_sorted).then_some(())
    }

    fn limit(&mut self, scalar: &Option<Scalar>) -> Option<Option<usize>> {
        match scalar {
            None => Some(None),
            Some(scalar) => {
                let mut uses = false;
                scalar.for_each_column(&mut |_| uses = true);
                (!uses).then_some(())?;
                self.general(scalar).map(Some)
            }
        }
    }

    /// The place of a column that is seen.
    fn position(&self, column: Column) -> Option<usize> {
        self.layout.position(column).filter(|place| *place >= self.first_seen)
    }

    /// Whether all columns that a scalar uses are seen.
    fn has_columns(&self, scalar: &Scalar) -> bool {
        !scalar.uses(|column| self.position(column).is_none())
    }

    fn compiled(&self, scalar: &Scalar) -> Option<Expression> {
        self.has_columns(scalar).then_some(())?;
        self.scalars.scalar(scalar, &self.layout).ok()
    }

    /// Adds an expression; its number.
    fn add(&mut self, expression: CellExpression) -> usize {
        self.state.expressions.push(expression);
        self.state.expressions.len() - 1
    }

    fn expression(&mut self, scalar: &Scalar) -> Option<usize> {
        let expression = CellExpression::of(&self.compiled(scalar)?)?;
        Some(self.add(expression))
    }

    /// As [`Compile::expression`], of which values lie as those of the type do in general.
    fn general(&mut self, scalar: &Scalar) -> Option<usize> {
        let expression = self.general_expression(scalar)?;
        Some(self.add(expression))
    }

    fn general_expression(&self, scalar: &Scalar) -> Option<CellExpression> {
        self.has_columns(scalar).then_some(())?;
        CellExpression::of(&self.scalars.general(scalar, &self.layout).ok()?)
    }

    fn conditions(&mut self, conditions: &[&Scalar]) -> Option<usize> {
        let compiled =
            conditions.iter().map(|scalar| self.compiled(scalar)).collect::<Option<Vec<Expression>>>()?;
        let compiled = CellConditions::of(&Conditions::new(compiled))?;
        self.state.conditions.push(compiled);
        Some(self.state.conditions.len() - 1)
    }

    /// A register for a column.
    fn register(&mut self, column: Column, representation: Representation) -> usize {
        self.state.registers.push(Slot::new());
        let register = self.state.registers.len() - 1;
        self.layout.push(column, representation);
        self.program.places.push(Place::Register(register));
        register
    }

    fn values(&mut self, columns: &[Column], rows: &[Vec<Scalar>]) -> Option<()> {
        (rows.len() <= MOST_VALUES).then_some(())?;
        if let [row] = rows {
            return self.one_row(columns, row);
        }
        let rows = rows
            .iter()
            .map(|row| row.iter().map(|scalar| self.general(scalar)).collect::<Option<Vec<usize>>>())
            .collect::<Option<Vec<_>>>()?;
        let first = self.state.registers.len();
        for column in columns {
            let representation = representation_of(self.plan.columns[*column].ty);
            self.register(*column, representation);
        }
        self.program.steps.push(Step::Values { rows, first });
        Some(())
    }

    /// One row of VALUES. Its parameters are read where they are.
    fn one_row(&mut self, columns: &[Column], row: &[Scalar]) -> Option<()> {
        let expressions =
            row.iter().map(|scalar| self.general_expression(scalar)).collect::<Option<Vec<_>>>()?;
        let mut computed = Vec::new();
        for (column, expression) in columns.iter().zip(expressions) {
            let representation = representation_of(self.plan.columns[*column].ty);
            match expression.as_parameter() {
                Some(number) => {
                    self.layout.push(*column, representation);
                    self.program.places.push(Place::Parameter(number));
                }
                None => computed.push((self.add(expression), self.register(*column, representation))),
            }
        }
        if !computed.is_empty() {
            self.program.steps.push(Step::Map(computed));
        }
        Some(())
    }

    fn map(&mut self, outputs: &[(Column, Scalar)]) -> Option<()> {
        let mut computed = Vec::with_capacity(outputs.len());
        // An output uses the input's columns alone.
        let mut known = Vec::with_capacity(outputs.len());
        for (column, scalar) in outputs {
            if !self.used[column.0 as usize] && !scalar.is_volatile() {
                continue;
            }
            if let Some(place) = scalar.as_column().and_then(|column| self.position(column)) {
                let of = scalar.as_column().expect("it is a column");
                known.push((*column, Ok((self.program.places[place], self.layout.representation(of)))));
                continue;
            }
            let number = self.expression(scalar)?;
            known.push((*column, Err(number)));
        }
        for (column, known) in known {
            match known {
                Ok((place, representation)) => {
                    self.layout.push(column, representation);
                    self.program.places.push(place);
                }
                Err(number) => {
                    let representation = self.state.expressions[number].representation();
                    computed.push((number, self.register(column, representation)));
                }
            }
        }
        if !computed.is_empty() {
            self.program.steps.push(Step::Map(computed));
        }
        Some(())
    }

    fn join(&mut self, join: &'p Join, above: &Above<'_>) -> Option<()> {
        let kind_fits = matches!(
            join.kind,
            JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti | JoinKind::Single
        );
        (kind_fits && !join.dependent).then_some(())?;
        let Operator::Scan(scan) = &self.plan[join.right] else { return None };
        self.node(join.left, &Above { takes_first: false, ..*above })?;
        self.is_plain()?;
        self.program.grouping.is_none().then_some(())?;
        self.look_up(scan, &join.conditions, join.kind, &Above::default())
    }

    fn look_up(
        &mut self,
        scan: &'p Scan,
        of_join: &'p [Scalar],
        kind: JoinKind,
        above: &Above<'_>,
    ) -> Option<()> {
        (self.program.lookups.len() < MOST_LOOKUPS).then_some(())?;
        let source = self.sources.source(scan.source);
        let source = source.short_source()?.downcast_ref::<TableSource>()?;
        let own = conjuncts(&scan.conditions);
        let all: Vec<&'p Scalar> = own.iter().copied().chain(conjuncts(of_join)).collect();
        let columns = &self.plan.columns;
        let access = access::choose(source, scan, &all, columns, above.order, above.takes_first)?;
        let parts = &access.index.spec().columns;
        let mut key = Vec::with_capacity(access.key.len());
        for (wanted, part) in access.key.iter().zip(parts) {
            let value = match wanted {
                Wanted::One(scalar) => KeyValue::One(self.expression(scalar)?),
                Wanted::OneOf(list) => {
                    KeyValue::OneOf(list.iter().map(|scalar| self.expression(scalar)).collect::<Option<_>>()?)
                }
                Wanted::Element(array) => KeyValue::Element(self.expression(array)?),
            };
            key.push(KeyPart { representation: part.representation, value });
        }
        let mut bounds = Vec::with_capacity(access.bounds.len());
        for bound in &access.bounds {
            let representation = parts[access.key.len()].representation;
            let WantedBound { is_low, is_included, .. } = *bound;
            let value = self.expression(bound.value)?;
            bounds.push(KeyBound { representation, value, is_low, is_included });
        }
        let is_asked = |number: &usize| !access.decided.contains(number);
        let rest: Vec<&Scalar> = (0..all.len()).filter(is_asked).map(|number| all[number]).collect();
        let own: Vec<Scalar> = (0..own.len()).filter(is_asked).map(|number| all[number].clone()).collect();

        // The columns that are used above, and those that conditions ask for.
        let table = source.rows();
        let first_cell = self.program.cells;
        let (mut read, mut row_cell) = (Vec::new(), None);
        let is_used = |column: &Column| self.used[column.0 as usize];
        let is_read = |column: &Column| {
            is_used(column) || rest.iter().any(|scalar| scalar.uses(|used| used == *column))
        };
        let wanted: Vec<(Column, i16)> =
            scan.columns.iter().filter(|(column, _)| is_read(column)).copied().collect();
        let is_used: Vec<bool> = wanted.iter().map(|(column, _)| is_used(column)).collect();
        for (column, attribute) in wanted.iter().filter(|(_, attribute)| *attribute != ROW_ID) {
            let general = representation_of(columns[*column].ty);
            let stored = table.columns()[column_id(*attribute).index()].representation;
            self.program.places.push(Place::Cell { at: first_cell + read.len(), stored, general });
            self.layout.push(*column, general);
            read.push(column_id(*attribute));
        }
        if let Some((column, _)) = wanted.iter().find(|(_, attribute)| *attribute == ROW_ID) {
            let (at, stored) = (first_cell + read.len(), Representation::Int64);
            self.program.places.push(Place::Cell { at, stored, general: stored });
            self.layout.push(*column, stored);
            row_cell = Some(at);
        }
        self.program.cells = first_cell + read.len() + usize::from(row_cell.is_some());
        let with_bounds = self.conditions(&rest)?;
        let conditions = match access.bounded.is_empty() {
            true => with_bounds,
            false => {
                let is_decided = |number: &usize| !is_asked(number) || access.bounded.contains(number);
                let rest: Vec<&Scalar> =
                    (0..all.len()).filter(|number| !is_decided(number)).map(|number| all[number]).collect();
                self.conditions(&rest)?
            }
        };

        let by_use = |wanted_use: bool| {
            wanted
                .iter()
                .zip(&is_used)
                .filter(move |(_, used)| **used == wanted_use)
                .map(|(column, _)| *column)
        };
        let used = by_use(true).count();
        let all = self.all.get_or_insert_with(|| Arc::new(self.plan.columns.clone())).clone();
        let is_point = access.is_unique
            && key.len() == parts.len()
            && key.iter().all(|part| matches!(part.value, KeyValue::One(_)));
        self.program.keeps_order |= access.order.is_some();
        self.program.lookups.push(Lookup {
            definition: source.definition().clone(),
            table: table.clone(),
            columns: read,
            first_cell,
            row_cell,
            key,
            bounds,
            is_point,
            is_decided: rest.is_empty(),
            reverse: access.order.unwrap_or(false),
            conditions,
            with_bounds,
            kind,
            noted: Noted {
                is_noted: true,
                columns: by_use(true).chain(by_use(false)).collect(),
                used,
                conditions: own,
                all,
                keeps_order: false,
            },
            index: access.index,
        });
        self.program.steps.push(Step::Look(self.program.lookups.len() - 1));
        Some(())
    }

    fn group(&mut self, group: &'p Group) -> Option<()> {
        (group.keys.is_empty() && group.sets.is_none()).then_some(())?;
        // The least or the greatest value comes first in the order of an index.
        let first = self.extreme(group);
        let order = first.as_slice();
        self.node(group.input, &Above { order, takes_first: !order.is_empty() })?;
        let first_is_enough = self.program.keeps_order && !order.is_empty();
        if first_is_enough {
            self.program.lookups.iter_mut().for_each(|lookup| lookup.noted.keeps_order = true);
        }
        self.is_plain()?;
        self.program.grouping.is_none().then_some(())?;
        let mut aggregates = Vec::with_capacity(group.aggregates.len());
        for aggregate in &group.aggregates {
            aggregate.order.is_empty().then_some(())?;
            let function = self.scalars.registry.function(FunctionId(aggregate.function.oid))?;
            let FunctionBody::Aggregate(body) = &function.body else { return None };
            let arguments = aggregate
                .arguments
                .iter()
                .map(|scalar| self.expression(scalar))
                .collect::<Option<Vec<usize>>>()?;
            let representations: Box<[Representation]> =
                arguments.iter().map(|number| self.state.expressions[*number].representation()).collect();
            let filter: Vec<&Scalar> = aggregate.filter.iter().collect();
            let filter = self.conditions(&filter)?;
            let columns = &self.plan.columns;
            let result = columns[aggregate.output].ty;
            let types: Box<[Type]> = aggregate.arguments.iter().map(|it| it.ty(columns)).collect();
            let distinct = aggregate.distinct.then(|| {
                KeyLayout::for_equality(
                    representations.iter().map(|it| KeyColumn::equal(*it, true)).collect(),
                )
            });
            let signature = Signature {
                arguments: types,
                representations,
                result,
                representation: representation_of(result),
                has_variadic_array: false,
            };
            aggregates.push((aggregate.output, body.kernel.clone(), signature, arguments, filter, distinct));
        }
        let aggregates = aggregates
            .into_iter()
            .map(|(output, kernel, signature, arguments, filter, distinct)| {
                let register = self.register(output, signature.representation);
                Aggregate { kernel, signature: Arc::new(signature), arguments, filter, distinct, register }
            })
            .collect();
        self.program.grouping =
            Some(Grouping { after: self.program.steps.len(), aggregates, first_is_enough });
        Some(())
    }

    /// In which order the first row has the value of the only aggregate, if it is one like `min` and `max`: that of most indexes, in which
    /// NULLs are larger than all values.
    fn extreme(&self, group: &Group) -> Option<SortKey> {
        let [aggregate] = &group.aggregates[..] else { return None };
        let is_plain = aggregate.order.is_empty() && aggregate.filter.is_none();
        let [argument] = &aggregate.arguments[..] else { return None };
        let column = argument.as_kept_column(|column| self.plan.columns[column].ty).filter(|_| is_plain)?;
        let function = self.scalars.registry.function(FunctionId(aggregate.function.oid))?;
        let FunctionBody::Aggregate(body) = &function.body else { return None };
        let descending = match self.scalars.registry.operator(body.sort_operator?)?.strategy? {
            Strategy::Less => false,
            Strategy::Greater => true,
            _ => return None,
        };
        Some(SortKey { column, descending, nulls_first: descending })
    }

    fn sort(&mut self, keys: &[SortKey]) -> Option<()> {
        for key in keys {
            let place = self.position(key.column)?;
            let representation = self.layout.representation(key.column);
            if matches!(representation, Representation::List(_) | Representation::Record) {
                return None;
            }
            let SortKey { descending, nulls_first, .. } = *key;
            self.program.sort.push(SortBy { place, representation, descending, nulls_first });
        }
        Some(())
    }

    fn lock(&mut self, targets: &[LockTarget]) -> Option<()> {
        let mut locked = Lock { targets: Vec::new(), tables: Vec::new() };
        for target in targets {
            let row = self.position(target.row)?;
            let Place::Cell { at, .. } = self.program.places[row] else { return None };
            let lookup = self.program.lookups.iter_mut().find(|lookup| lookup.row_cell == Some(at))?;
            let read = (target.wait == LockWait::Skip).then(|| {
                lookup.noted.is_noted = false;
                lookup.columns.clone()
            });
            locked.tables.push(lookup.table.clone());
            let lock = match target.strength {
                LockStrength::KeyShare => RowLock::KeyShare,
                LockStrength::Share => RowLock::Share,
                LockStrength::NoKeyUpdate => RowLock::NoKeyUpdate,
                LockStrength::Update => RowLock::Update,
            };
            locked.targets.push(LockedRows { source: target.source, row, lock, wait: target.wait, read });
        }
        self.program.lock = Some(locked);
        Some(())
    }

    /// Whether each row whose id a column has comes once: it is found by the first step, and nothing has several partners of it.
    fn finds_once(&self, row: Column) -> Option<()> {
        let Place::Cell { at, .. } = self.program.places[self.position(row)?] else { return None };
        let (first, rest) = self.program.lookups.split_first()?;
        let is_first =
            matches!(self.program.steps.first(), Some(Step::Look(0))) && first.row_cell == Some(at);
        let multiplies = |lookup: &Lookup| matches!(lookup.kind, JoinKind::Inner | JoinKind::Left);
        (is_first && !rest.iter().any(multiplies)).then_some(())
    }

    /// A change, and what RETURNING computes of it, from the top.
    fn change(
        &mut self,
        input: NodeId,
        change: ShortChange<'p>,
        returning: Vec<&'p Vec<(Column, Scalar)>>,
        targets: &TargetSet,
    ) -> Option<Body> {
        self.node(input, &Above::default())?;
        self.is_plain()?;
        let is_insert = change.kind == ShortKind::Insert;
        if let ShortKind::Update(row) | ShortKind::Delete(row) = change.kind {
            self.finds_once(row)?;
        }
        let is_volatile = |(_, scalar): &(Column, Scalar)| scalar.is_volatile();
        // What a function does that waits must not be done while a row is being written.
        (!returning.iter().any(|outputs| outputs.iter().any(is_volatile))).then_some(())?;
        let target = targets.position(change.target);
        let table = targets.target(target);
        table.takes_single_rows().then_some(())?;
        let set = change.set.iter().map(|assignment| column_id(assignment.attribute)).collect();
        let changed = table.with_generated(set);
        let generated = table.generated_columns((!is_insert).then_some(&changed));
        let mut columns = Vec::with_capacity(changed.len());
        let mut values = Vec::with_capacity(changed.len());
        for assignment in change.set {
            let column = column_id(assignment.attribute);
            if !generated.contains(&column) {
                columns.push(column);
                values.push((self.general(&assignment.value)?, table.general(column)));
            }
        }
        columns.extend(&generated);
        self.state.generated = vec![Slot::new(); generated.len()];
        let kind = match change.kind {
            ShortKind::Insert => {
                let place =
                    |number: usize| columns.iter().position(|column| *column == ColumnId(number as u16));
                ChangeKind::Insert((0..table.width()).map(place).collect())
            }
            ShortKind::Delete(row) => ChangeKind::Delete(self.position(row)?),
            ShortKind::Update(row) => ChangeKind::Update(self.position(row)?),
        };
        let mut old = match &kind {
            ChangeKind::Insert(_) => Vec::new(),
            ChangeKind::Update(_) => table.columns_to_update(&columns),
            ChangeKind::Delete(_) => table.columns_to_delete(),
        };
        let is_image = |image: &&Image| self.used[image.output.0 as usize];
        // The ids of new rows are given by the sink alone.
        change.images.iter().filter(is_image).all(|image| image.attribute != ROW_ID).then_some(())?;
        let images: Vec<(&Image, ColumnId)> =
            change.images.iter().filter(is_image).map(|image| (image, column_id(image.attribute))).collect();
        let is_read =
            |(image, column): &&(&Image, ColumnId)| !is_insert && (image.old || !columns.contains(column));
        old.extend(images.iter().filter(is_read).map(|(_, column)| *column));
        old.sort_unstable();
        old.dedup();
        let is_single = |column: &ColumnId| {
            !matches!(table.stored(*column), Representation::List(_) | Representation::Record)
        };
        old.iter().all(is_single).then_some(())?;
        // From here on only images are seen.
        self.first_seen = self.layout.len();
        let images = images
            .into_iter()
            .map(|(image, column)| {
                let representation = representation_of(self.plan.columns[image.output].ty);
                ShortImage { column, old: image.old, register: self.register(image.output, representation) }
            })
            .collect();
        let mut computed = Vec::new();
        for outputs in returning.into_iter().rev() {
            for (column, scalar) in outputs {
                if !self.used[column.0 as usize] {
                    continue;
                }
                let number = self.expression(scalar)?;
                let representation = self.state.expressions[number].representation();
                computed.push((number, self.register(*column, representation)));
            }
        }
        Some(Body::Change(Change {
            target,
            kind,
            columns,
            values,
            generated,
            old,
            images,
            returning: computed,
        }))
    }
}

/// Conditions, those of AND each by itself.
fn conjuncts(conditions: &[Scalar]) -> Vec<&Scalar> {
    let mut found = Vec::with_capacity(conditions.len());
    let mut open: Vec<&Scalar> = conditions.iter().rev().collect();
    while let Some(condition) = open.pop() {
        match condition {
            Scalar::And(list) => open.extend(list.iter().rev()),
            condition => found.push(condition),
        }
    }
    found
}
