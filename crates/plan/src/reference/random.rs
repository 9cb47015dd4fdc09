//! Random plans over small random tables.
//!
//! Every plan passes the verifier and gives the same rows, as a multiset, in whatever order its
//! operators work: where an order decides (LIMIT, DISTINCT ON, row numbers), it is over all columns.

use super::functions::TestFunctions;
use super::operators::Tables;
use crate::column::{Column, ColumnInfo};
use crate::function::Functions;
use crate::operator::*;
use crate::plan::{NodeId, Plan};
use crate::properties::scope;
use crate::scalar::{Call, Case, Quantified, Scalar, Values};
use firn_base::random::Random;
use firn_base::{Type, TypeId, Value};

/// What plans may have.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How many operators, about.
    pub size: i64,
    /// Divisions, and scalar sub-queries of more than one row.
    pub can_fail: bool,
    /// Dependent joins.
    pub dependent: bool,
    /// Values of two parameters, integers.
    pub parameters: bool,
}

/// A random plan.
pub fn random_plan(random: &mut Random, shape: Shape) -> Plan {
    let plan = Plan::new();
    let mut maker =
        Maker { random, plan, shape, left: shape.size, outer: Vec::new(), shared: Vec::new(), ids: 0 };
    let (root, columns) = maker.operator();
    let mut plan = maker.plan;
    plan.root = root;
    plan.output = columns;
    plan
}

/// A random plan with a volatile function whose calls show in the result, whatever the order of rows. Either a condition passes
/// all rows but the first few that it is asked of, and those are counted; or a shared sub-plan with numbers is joined with itself
/// by the numbers.
pub fn random_volatile_plan(random: &mut Random, shape: Shape) -> Plan {
    let is_shared = random.uniform(0, 1) == 0;
    let plan = Plan::new();
    let mut maker =
        Maker { random, plan, shape, left: shape.size, outer: Vec::new(), shared: Vec::new(), ids: 0 };
    let (input, columns) = maker.operator();
    let (root, output) = match is_shared {
        true => maker.shared_numbers(input, &columns),
        false => maker.counted_calls(input),
    };
    let mut plan = maker.plan;
    (plan.root, plan.output) = (root, output);
    plan
}

/// A random tree of joins over so many scans, with conditions that compare columns of both sides.
pub fn random_joins(random: &mut Random, scans: i64) -> Plan {
    let shape = Shape { size: 0, can_fail: false, dependent: false, parameters: false };
    let plan = Plan::new();
    let mut maker = Maker { random, plan, shape, left: 0, outer: Vec::new(), shared: Vec::new(), ids: 0 };
    let scans = maker.random.uniform(3, scans);
    let (root, columns) = maker.joins(scans);
    let mut plan = maker.plan;
    (plan.root, plan.output) = (root, columns);
    plan
}

/// How many sources there are, from 1.
const SOURCES: i64 = 3;

/// Rows for the sources of random plans: few, with NULLs and duplicates.
pub fn random_tables(random: &mut Random) -> Tables {
    let mut tables = Tables::new();
    for source in 1..=SOURCES {
        let count = [0, 1, 2, 3, 5][random.uniform(0, 4) as usize];
        let mut row = || {
            let mut integer = |nulls| match random.uniform(0, 4) {
                0 if nulls => Value::Null,
                value => Value::Integer(value as i32),
            };
            let (a, b, c) = (integer(true), integer(false), integer(true));
            let n = match random.uniform(0, 4) {
                0 => Value::Null,
                1 => Value::Numeric { unscaled: 10, scale: 1 },
                2 | 3 => Value::Numeric { unscaled: 100, scale: 2 },
                _ => Value::Numeric { unscaled: 2, scale: 0 },
            };
            vec![a, b, c, n]
        };
        tables.insert(SourceId(source as u32), (0..count).map(|_| row()).collect());
    }
    tables
}

const INT4: TypeId = TypeId::INT4;

struct Maker<'a> {
    random: &'a mut Random,
    plan: Plan,
    shape: Shape,
    /// How many operators may still be made.
    left: i64,
    /// The columns of outer queries.
    outer: Vec<Column>,
    /// The shared sub-plans that may be read, and their columns.
    shared: Vec<(SharedId, Vec<Column>)>,
    ids: u32,
}

type Made = (NodeId, Vec<Column>);

impl Maker<'_> {
    fn chance(&mut self, percent: i64) -> bool {
        self.random.uniform(1, 100) <= percent
    }

    fn one_of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.random.uniform(0, list.len() as i64 - 1) as usize].clone()
    }

    fn column(&mut self, id: TypeId, nullable: bool) -> Column {
        self.plan.columns.add(ColumnInfo::new(Type::new(id), nullable))
    }

    fn is(&self, column: Column, id: TypeId) -> bool {
        self.plan.columns[column].ty.id == id
    }

    /// Columns whose equal values are the same.
    fn exact(&self, columns: &[Column]) -> Vec<Column> {
        columns.iter().copied().filter(|column| !self.is(*column, TypeId::NUMERIC)).collect()
    }

    fn integers(&self, columns: &[Column]) -> Vec<Column> {
        columns.iter().copied().filter(|column| self.is(*column, INT4)).collect()
    }

    fn operator(&mut self) -> Made {
        self.left -= 1;
        if self.left <= 0 {
            return self.leaf();
        }
        match self.random.uniform(0, 99) {
            0..8 => self.leaf(),
            8..18 => self.filter(),
            18..27 => self.map(),
            27..62 => self.join(),
            62..70 => self.group(),
            70..74 => self.grouping_sets(),
            74..79 => self.window(),
            79..85 => self.limit(),
            85..88 => self.distinct_on(),
            88..92 => self.union_all(),
            92..94 => self.flat_map(),
            94..97 => self.iterate(),
            _ => self.share(),
        }
    }

    fn leaf(&mut self) -> Made {
        if !self.shared.is_empty() && self.chance(60) {
            let (id, of) = self.one_of(&self.shared.clone());
            let own: Vec<Column> = of.iter().map(|column| self.plan.columns.copy_of(*column)).collect();
            own.iter().for_each(|column| self.plan.columns[*column].nullable = true);
            let columns = own.iter().copied().zip(of).collect();
            return (self.plan.add(Operator::SharedRead { id, columns }), own);
        }
        match self.random.uniform(0, 9) {
            0..7 => {
                let source = SourceId(self.random.uniform(1, SOURCES) as u32);
                let mut columns: Vec<(Column, i16)> = vec![
                    (self.column(INT4, true), 1),
                    (self.column(INT4, false), 2),
                    (self.column(INT4, true), 3),
                ];
                if self.chance(12) {
                    columns.push((self.column(TypeId::NUMERIC, true), 4));
                }
                let own: Vec<Column> = columns.iter().map(|(column, _)| *column).collect();
                let conditions = match self.chance(20) {
                    true => vec![self.condition(&own)],
                    false => Vec::new(),
                };
                (self.plan.add(Operator::Scan(Scan { source, name: None, columns, conditions })), own)
            }
            7..9 => {
                let width = self.random.uniform(1, 2);
                let columns: Vec<Column> = (0..width).map(|_| self.column(INT4, true)).collect();
                let rows = self.random.uniform(1, 3);
                let rows = (0..rows).map(|_| (0..width).map(|_| self.integer(&[], 1)).collect()).collect();
                (self.plan.add(Operator::Values { columns: columns.clone(), rows }), columns)
            }
            _ => {
                let calls = self.series(&[]);
                let columns = Operator::TableFunction(calls.clone()).produced();
                (self.plan.add(Operator::TableFunction(calls)), columns)
            }
        }
    }

    fn series(&mut self, inner: &[Column]) -> SetCalls {
        let types = [Type::new(INT4); 2];
        let function = TestFunctions.named("generate_series", &types).expect("it is there");
        let count = if self.chance(80) { 1 } else { 2 };
        let call = |maker: &mut Self| {
            let arguments = vec![maker.integer(inner, 0), maker.integer(inner, 0)];
            SetCall { function: function.clone(), arguments, columns: vec![maker.column(INT4, true)] }
        };
        let calls = (0..count).map(|_| call(self)).collect();
        let ordinality = self.chance(30).then(|| self.column(TypeId::INT8, false));
        SetCalls { calls, ordinality }
    }

    fn filter(&mut self) -> Made {
        let (input, columns) = self.operator();
        let count = self.random.uniform(1, 2);
        let conditions = (0..count).map(|_| self.condition(&columns)).collect();
        (self.plan.add(Operator::Filter { input, conditions }), columns)
    }

    fn map(&mut self) -> Made {
        let (input, mut columns) = self.operator();
        let below = scope(&self.plan, input);
        let mut outputs = Vec::new();
        for _ in 0..self.random.uniform(1, 2) {
            let scalar = if self.chance(80) { self.integer(&columns, 2) } else { self.condition(&columns) };
            let nullable = scalar.nullable(&|column| below.nullable(column));
            let id = scalar.ty(&self.plan.columns).id;
            outputs.push((self.column(id, nullable), scalar));
        }
        columns.extend(outputs.iter().map(|(column, _)| *column));
        (self.plan.add(Operator::Map { input, outputs }), columns)
    }

    fn flat_map(&mut self) -> Made {
        let (input, mut columns) = self.operator();
        let calls = self.series(&columns);
        let operator = Operator::FlatMap { input, calls };
        columns.extend(operator.produced());
        (self.plan.add(operator), columns)
    }

    fn join(&mut self) -> Made {
        let kinds = [
            JoinKind::Inner,
            JoinKind::Inner,
            JoinKind::Left,
            JoinKind::Full,
            JoinKind::Semi,
            JoinKind::Anti,
            JoinKind::Mark,
            JoinKind::Single,
            JoinKind::Single,
        ];
        let kind = self.one_of(&kinds);
        let dependent = self.shape.dependent && kind != JoinKind::Full && self.chance(65);
        let (left, left_columns) = self.operator();
        let before = self.outer.len();
        if dependent {
            self.outer.extend(&left_columns);
        }
        let (right, right_columns) = match kind {
            JoinKind::Single if !self.shape.can_fail || self.chance(70) => self.one_row(),
            _ => self.operator(),
        };
        self.outer.truncate(before);
        let both = [left_columns.clone(), right_columns.clone()].concat();
        let bare = kind == JoinKind::Single || dependent && self.chance(60);
        let conditions = if bare { Vec::new() } else { vec![self.condition(&both)] };
        let mark = (kind == JoinKind::Mark).then(|| self.column(TypeId::BOOL, !conditions.is_empty()));
        let mut columns = if kind.gives_right() { both } else { left_columns };
        let join = Join { kind, dependent, left, right, conditions, mark, method: JoinMethod::default() };
        let node = self.plan.add(Operator::Join(join));
        match mark {
            // A mark that does nothing but choose rows.
            Some(mark) if self.chance(40) => {
                let chosen = Scalar::Column(mark);
                let condition = if self.chance(50) { chosen } else { Scalar::Not(Box::new(chosen)) };
                let filter = Operator::Filter { input: node, conditions: vec![condition] };
                (self.plan.add(filter), columns)
            }
            mark => {
                columns.extend(mark);
                (node, columns)
            }
        }
    }

    fn joins(&mut self, scans: i64) -> Made {
        if scans == 1 {
            let source = SourceId(self.random.uniform(1, SOURCES) as u32);
            let columns = vec![(self.column(INT4, true), 1), (self.column(INT4, true), 3)];
            let own = columns.iter().map(|(column, _)| *column).collect();
            let scan = Scan { source, name: None, columns, conditions: Vec::new() };
            return (self.plan.add(Operator::Scan(scan)), own);
        }
        let of_left = self.random.uniform(1, scans - 1);
        let (left, left_columns) = self.joins(of_left);
        let (right, right_columns) = self.joins(scans - of_left);
        use JoinKind::{Anti, Inner, Left, Semi};
        let kind = self.one_of(&[Inner, Inner, Inner, Left, Left, Semi, Anti]);
        let mut conditions = Vec::new();
        for _ in 0..self.random.uniform(0, 5).clamp(1, 2) {
            let (one, other) = (self.one_of(&left_columns), self.one_of(&right_columns));
            let (one, other) = (Scalar::Column(one), Scalar::Column(other));
            conditions.push(match self.random.uniform(0, 7) {
                // One that NULLs pass.
                0 => Scalar::Distinct(Box::new((one, other)), true),
                1 => {
                    let third = Scalar::Column(self.one_of(&left_columns));
                    let sum = self.arithmetic("+", one, third);
                    self.compare("=", sum, other)
                }
                2 => {
                    let either =
                        Scalar::Coalesce(vec![one.clone(), Scalar::Column(self.one_of(&left_columns))]);
                    self.compare("=", either, other)
                }
                3 if kind == Inner => Scalar::IsNull(Box::new(one), self.chance(50)),
                _ => self.compare("=", one, other),
            });
        }
        if kind == Inner && self.chance(15) {
            conditions.clear();
        }
        let columns = if kind.gives_right() { [left_columns, right_columns].concat() } else { left_columns };
        let join = Join {
            kind,
            dependent: false,
            left,
            right,
            conditions,
            mark: None,
            method: JoinMethod::default(),
        };
        (self.plan.add(Operator::Join(join)), columns)
    }

    /// At most one row.
    fn one_row(&mut self) -> Made {
        let (input, columns) = self.operator();
        if self.chance(70) {
            let aggregates = self.aggregates(&columns);
            let own: Vec<Column> = aggregates.iter().map(|aggregate| aggregate.output).collect();
            let group = Group { input, keys: Vec::new(), determined: Vec::new(), sets: None, aggregates };
            let group = self.plan.add(Operator::Group(group));
            if self.chance(50) {
                return (group, own);
            }
            let output = self.column(INT4, true);
            let outputs = vec![(output, self.integer(&own, 2))];
            let map = self.plan.add(Operator::Map { input: group, outputs });
            return (map, [own, vec![output]].concat());
        }
        self.limited(input, columns, Some(1))
    }

    fn aggregates(&mut self, columns: &[Column]) -> Vec<Aggregate> {
        let names = ["count", "count_all", "sum", "min", "max", "array_agg", "counted"];
        let mut list = Vec::new();
        for _ in 0..self.random.uniform(1, 2) {
            let name = self.one_of(&names);
            let arguments = match name {
                "count_all" => Vec::new(),
                _ => vec![self.integer(columns, 1)],
            };
            let types: Vec<Type> =
                arguments.iter().map(|scalar: &Scalar| scalar.ty(&self.plan.columns)).collect();
            let name = if name == "count_all" { "count" } else { name };
            let function = TestFunctions.named(name, &types).expect("it is there");
            let output = self.column(function.result, function.may_be_null);
            let distinct = !arguments.is_empty() && name != "array_agg" && self.chance(25);
            let filter = self.chance(20).then(|| self.condition(columns));
            list.push(Aggregate { output, function, arguments, distinct, order: Vec::new(), filter });
        }
        list
    }

    fn some(&mut self, columns: &[Column], most: i64) -> Vec<Column> {
        let mut chosen = Vec::new();
        for _ in 0..self.random.uniform(0, most) {
            if !columns.is_empty() {
                let column = self.one_of(columns);
                if !chosen.contains(&column) {
                    chosen.push(column);
                }
            }
        }
        chosen
    }

    fn group(&mut self) -> Made {
        let (input, columns) = self.operator();
        let keys = self.some(&self.exact(&columns), 2);
        let aggregates = self.aggregates(&columns);
        let outputs = aggregates.iter().map(|aggregate| aggregate.output);
        let own = keys.iter().copied().chain(outputs).collect();
        (
            self.plan.add(Operator::Group(Group {
                input,
                keys,
                determined: Vec::new(),
                sets: None,
                aggregates,
            })),
            own,
        )
    }

    fn grouping_sets(&mut self) -> Made {
        let (input, columns) = self.operator();
        let keys = self.some(&self.exact(&columns), 3);
        let all: Vec<u32> = (0..keys.len() as u32).collect();
        let count = self.random.uniform(1, 3);
        let sets = (0..count).map(|_| all.iter().copied().filter(|_| self.chance(50)).collect()).collect();
        let outputs: Vec<Column> = keys.iter().map(|key| self.plan.columns.copy_of(*key)).collect();
        outputs.iter().for_each(|column| self.plan.columns[*column].nullable = true);
        let number = self.chance(50).then(|| self.column(INT4, false));
        let aggregates = self.aggregates(&columns);
        let results = aggregates.iter().map(|aggregate| aggregate.output);
        let own = outputs.iter().copied().chain(number).chain(results).collect();
        let sets = Some(GroupingSets { columns: outputs, sets, number });
        (self.plan.add(Operator::Group(Group { input, keys, determined: Vec::new(), sets, aggregates })), own)
    }

    /// All columns, in a random order.
    fn order(&mut self, columns: &[Column]) -> Vec<SortKey> {
        let mut left: Vec<Column> =
            self.exact(columns).into_iter().filter(|column| !self.is(*column, TypeId::INT4_ARRAY)).collect();
        let mut keys = Vec::new();
        while !left.is_empty() {
            let column = left.swap_remove(self.random.uniform(0, left.len() as i64 - 1) as usize);
            keys.push(SortKey { column, descending: self.chance(50), nulls_first: self.chance(50) });
        }
        keys
    }

    /// Columns that an order over all columns decides.
    fn ordered(&self, columns: &[Column]) -> Vec<Column> {
        let columns = self.exact(columns);
        columns.into_iter().filter(|column| !self.is(*column, TypeId::INT4_ARRAY)).collect()
    }

    fn window(&mut self) -> Made {
        let (input, columns) = self.operator();
        let mut columns = self.ordered(&columns);
        let partition = self.some(&columns, 1);
        let order = self.order(&columns);
        let name = self.one_of(&["row_number", "rank", "sum", "count"]);
        let arguments = match name {
            "sum" => vec![self.integer(&columns, 1)],
            _ => Vec::new(),
        };
        let types: Vec<Type> = arguments.iter().map(|_| Type::new(INT4)).collect();
        let function = TestFunctions.named(name, &types).expect("it is there");
        let output = self.column(function.result, function.may_be_null);
        let mut frame = Frame::default();
        if matches!(name, "sum" | "count") && self.chance(50) {
            frame.unit = FrameUnit::Rows;
            frame.start = Bound::Preceding(Scalar::int8(self.random.uniform(0, 2)));
            frame.end = Bound::Following(Scalar::int8(self.random.uniform(0, 2)));
        }
        let calls = vec![WindowCall { output, function, arguments, filter: None, frame }];
        columns.push(output);
        let window = self.plan.add(Operator::Window(Window {
            input,
            partition: partition.clone(),
            order,
            first: None,
            calls,
        }));
        if !self.chance(40) {
            return (window, columns);
        }
        // Another one over the same partitions, in an order that may be another. The number of a row is decided by all columns.
        let order = self.order(&columns[..columns.len() - 1]);
        let function = TestFunctions.named("row_number", &[]).expect("it is there");
        let output = self.column(function.result, function.may_be_null);
        let frame = Frame::default();
        let calls = vec![WindowCall { output, function, arguments: Vec::new(), filter: None, frame }];
        columns.push(output);
        (
            self.plan.add(Operator::Window(Window { input: window, partition, order, first: None, calls })),
            columns,
        )
    }

    fn limit(&mut self) -> Made {
        let (input, columns) = self.operator();
        self.limited(input, columns, None)
    }

    fn limited(&mut self, input: NodeId, columns: Vec<Column>, most: Option<i64>) -> Made {
        let columns = self.ordered(&columns);
        let mut keys = self.order(&columns);
        let ties = most.is_none() && self.chance(30);
        if ties {
            // Equal rows go on together: fewer keys decide as well.
            keys.truncate(self.random.uniform(1, 2) as usize);
        }
        let number = |maker: &mut Self, least: i64| -> Scalar {
            let outer: Vec<Column> = maker.integers(&maker.outer.clone());
            if most.is_none() && !outer.is_empty() && maker.chance(35) {
                let column = Scalar::Column(maker.one_of(&outer));
                let int8 = TestFunctions.named("int8", &[Type::new(INT4)]).expect("it is there");
                let wide = Scalar::call(int8, false, vec![column]);
                // Whatever the value, the number is not negative.
                let square = TestFunctions.operator("*", &[Type::new(TypeId::INT8); 2]).expect("it is there");
                return Scalar::call(square, true, vec![wide.clone(), wide]);
            }
            Scalar::int8(maker.random.uniform(least, 3))
        };
        let count = match most {
            Some(most) => Some(Scalar::int8(most)),
            None if self.chance(85) || ties => Some(number(self, 0)),
            None => None,
        };
        let offset = (!ties && self.chance(30)).then(|| number(self, 0));
        let input = self.plan.add(Operator::Sort { input, keys: keys.clone() });
        let limit = Limit { input, count, offset, ties: ties.then_some(keys) };
        (self.plan.add(Operator::Limit(limit)), columns)
    }

    fn distinct_on(&mut self) -> Made {
        let (input, columns) = self.operator();
        let columns = self.ordered(&columns);
        let keys = self.some(&columns, 2);
        let order = self.order(&columns);
        (self.plan.add(Operator::DistinctOn { input, keys, order }), columns)
    }

    fn union_all(&mut self) -> Made {
        let count = self.random.uniform(2, 3);
        let mut inputs: Vec<(NodeId, Vec<Column>)> = (0..count).map(|_| self.operator()).collect();
        for (_, columns) in &mut inputs {
            *columns = self.integers(columns);
        }
        let width = inputs.iter().map(|(_, columns)| columns.len()).min().expect("there are some");
        inputs.iter_mut().for_each(|(_, columns)| columns.truncate(width.min(2)));
        let columns: Vec<Column> = (0..width.min(2)).map(|_| self.column(INT4, true)).collect();
        (self.plan.add(Operator::UnionAll { columns: columns.clone(), inputs }), columns)
    }

    /// Counts up to a bound, beside a constant column.
    fn iterate(&mut self) -> Made {
        let (initial, given) = self.operator();
        let given = self.integers(&given);
        let Some(first) = given.first().copied() else { return (initial, Vec::new()) };
        let id = IterateId(self.ids);
        self.ids += 1;
        let columns = vec![self.column(INT4, true), self.column(INT4, true)];
        let second = *given.last().expect("there is a first");
        let read = vec![self.column(INT4, true), self.column(INT4, true)];
        let reader = self.plan.add(Operator::IterateRead { iterate: id, columns: read.clone() });
        let bound = if self.chance(50) { self.integer(&[], 0) } else { self.constant() };
        let less = self.compare("<", Scalar::Column(read[0]), bound);
        let mut conditions = vec![less];
        if self.chance(30) {
            conditions.push(self.condition(&read));
        }
        let mut step = self.plan.add(Operator::Filter { input: reader, conditions });
        if self.chance(50) {
            let dependent = self.shape.dependent && self.chance(50);
            let before = self.outer.len();
            if dependent {
                self.outer.extend(&read);
            }
            // A recursion within the step would read rounds of its own.
            let (right, right_columns) = self.operator();
            self.outer.truncate(before);
            let kind = self.one_of(&[JoinKind::Inner, JoinKind::Semi, JoinKind::Anti]);
            let both = [read.clone(), right_columns].concat();
            let conditions = vec![self.condition(&both)];
            let join = Join {
                kind,
                dependent,
                left: step,
                right,
                conditions,
                mark: None,
                method: JoinMethod::default(),
            };
            step = self.plan.add(Operator::Join(join));
        }
        let next = self.column(INT4, true);
        let one = Scalar::Constant(Type::new(INT4), Value::Integer(1));
        let outputs = vec![(next, self.arithmetic("+", Scalar::Column(read[0]), one))];
        let step = self.plan.add(Operator::Map { input: step, outputs });
        let iterate = Iterate {
            id,
            columns: columns.clone(),
            distinct: self.chance(50),
            initial,
            initial_columns: vec![first, second],
            step,
            step_columns: vec![next, read[1]],
        };
        (self.plan.add(Operator::Iterate(iterate)), columns)
    }

    fn share(&mut self) -> Made {
        let id = SharedId(self.ids);
        self.ids += 1;
        let (definition, columns) = self.operator();
        self.shared.push((id, columns));
        let (body, columns) = self.operator();
        self.shared.pop();
        (self.plan.add(Operator::Shared { id, definition, body }), columns)
    }

    /// A new value of a sequence.
    fn next_value(&mut self) -> Scalar {
        let ty = Type::new(TypeId::REGCLASS);
        let function = TestFunctions.named("nextval", &[ty]).expect("it is there");
        Scalar::call(function, false, vec![Scalar::Constant(ty, Value::Oid(5))])
    }

    fn counted_calls(&mut self, input: NodeId) -> Made {
        let few = Scalar::int8(self.random.uniform(0, 2));
        let greater = TestFunctions.operator(">", &[Type::new(TypeId::INT8); 2]).expect("it is there");
        let condition = Scalar::call(greater, true, vec![self.next_value(), few]);
        let filter = self.plan.add(Operator::Filter { input, conditions: vec![condition] });
        let function = TestFunctions.named("count", &[]).expect("it is there");
        let output = self.column(function.result, function.may_be_null);
        let count = Aggregate {
            output,
            function,
            arguments: Vec::new(),
            distinct: false,
            order: Vec::new(),
            filter: None,
        };
        let group = Group {
            input: filter,
            keys: Vec::new(),
            determined: Vec::new(),
            sets: None,
            aggregates: vec![count],
        };
        (self.plan.add(Operator::Group(group)), vec![output])
    }

    fn shared_numbers(&mut self, input: NodeId, columns: &[Column]) -> Made {
        let number = self.column(TypeId::INT8, false);
        let outputs = vec![(number, self.next_value())];
        let definition = self.plan.add(Operator::Map { input, outputs });
        let id = SharedId(self.ids);
        self.ids += 1;
        let read = |maker: &mut Self| {
            let all = columns.iter().copied().chain([number]);
            let pairs: Vec<(Column, Column)> = all.map(|of| (maker.plan.columns.copy_of(of), of)).collect();
            pairs.iter().for_each(|(own, _)| maker.plan.columns[*own].nullable = true);
            let own: Vec<Column> = pairs.iter().map(|(own, _)| *own).collect();
            (maker.plan.add(Operator::SharedRead { id, columns: pairs }), own)
        };
        let ((left, mut given), (right, mut other)) = (read(self), read(self));
        let (one, another) = (given.pop().expect("it has a number"), other.pop().expect("it has a number"));
        let equal = TestFunctions.operator("=", &[Type::new(TypeId::INT8); 2]).expect("it is there");
        let condition = Scalar::call(equal, true, vec![Scalar::Column(one), Scalar::Column(another)]);
        let kind = self.one_of(&[JoinKind::Inner, JoinKind::Semi, JoinKind::Anti]);
        let join = Join {
            kind,
            dependent: false,
            left,
            right,
            conditions: vec![condition],
            mark: None,
            method: JoinMethod::default(),
        };
        let body = self.plan.add(Operator::Join(join));
        if kind.gives_right() {
            given.extend(other);
        }
        (self.plan.add(Operator::Shared { id, definition, body }), given)
    }

    fn constant(&mut self) -> Scalar {
        if self.shape.parameters && self.chance(30) {
            return Scalar::Parameter(self.random.uniform(1, 2) as u16, Type::new(INT4));
        }
        let value = match self.random.uniform(0, 9) {
            0 => Value::Null,
            value => Value::Integer(value as i32 % 5),
        };
        Scalar::Constant(Type::new(INT4), value)
    }

    fn arithmetic(&mut self, symbol: &str, left: Scalar, right: Scalar) -> Scalar {
        let function = TestFunctions.operator(symbol, &[Type::new(INT4); 2]).expect("it is there");
        Scalar::call(function, true, vec![left, right])
    }

    fn compare(&mut self, symbol: &str, left: Scalar, right: Scalar) -> Scalar {
        let function = TestFunctions.operator(symbol, &[Type::new(INT4); 2]).expect("it is there");
        Scalar::call(function, true, vec![left, right])
    }

    /// An integer over columns and those of outer queries.
    fn integer(&mut self, inner: &[Column], depth: i64) -> Scalar {
        let (inner_integers, outer) = (self.integers(inner), self.integers(&self.outer.clone()));
        if depth > 0 && self.chance(40) {
            return match self.random.uniform(0, 6) {
                0 | 1 => {
                    let (left, right) = (self.integer(inner, depth - 1), self.integer(inner, depth - 1));
                    self.arithmetic("+", left, right)
                }
                2 => {
                    let operands = (0..3).map(|_| self.integer(inner, depth - 1)).collect();
                    let function = TestFunctions.operator("+", &[Type::new(INT4); 2]).expect("it is there");
                    let ty = Type::new(INT4);
                    Scalar::Call(Box::new(Call { function, as_operator: true, arguments: operands, ty }))
                }
                3 if self.shape.can_fail => {
                    let (left, right) = (self.integer(inner, depth - 1), self.integer(inner, depth - 1));
                    self.arithmetic("/", left, right)
                }
                4 => {
                    let condition = self.condition(inner);
                    let result = self.integer(inner, depth - 1);
                    let otherwise = self.integer(inner, depth - 1);
                    Scalar::Case(Box::new(Case { operand: None, arms: vec![(condition, result)], otherwise }))
                }
                5 => {
                    let columns = [inner, &self.outer.clone()].concat();
                    let numerics: Vec<Column> =
                        columns.into_iter().filter(|column| self.is(*column, TypeId::NUMERIC)).collect();
                    match numerics.is_empty() {
                        true => self.constant(),
                        false => {
                            let ty = Type::new(TypeId::NUMERIC);
                            let function = TestFunctions.named("scale", &[ty]).expect("it is there");
                            Scalar::call(function, false, vec![Scalar::Column(self.one_of(&numerics))])
                        }
                    }
                }
                _ => {
                    let list = vec![self.integer(inner, depth - 1), self.integer(inner, depth - 1)];
                    Scalar::Coalesce(list)
                }
            };
        }
        let from_outer = !outer.is_empty() && self.chance(35);
        if from_outer {
            return Scalar::Column(self.one_of(&outer));
        }
        match inner_integers.is_empty() || self.chance(15) {
            true => self.constant(),
            false => Scalar::Column(self.one_of(&inner_integers)),
        }
    }

    /// A boolean over columns and those of outer queries.
    fn condition(&mut self, inner: &[Column]) -> Scalar {
        match self.random.uniform(0, 19) {
            0..9 => {
                // Often what correlated sub-queries have: a column is an outer one.
                let (own, outer) = (self.integers(inner), self.integers(&self.outer.clone()));
                if !own.is_empty() && !outer.is_empty() && self.chance(60) {
                    let (left, right) = (self.one_of(&own), self.one_of(&outer));
                    return self.compare("=", Scalar::Column(left), Scalar::Column(right));
                }
                let symbol = self.one_of(&["=", "=", "<>", "<", ">="]);
                let (left, right) = (self.integer(inner, 1), self.integer(inner, 1));
                self.compare(symbol, left, right)
            }
            9 => Scalar::IsNull(Box::new(self.integer(inner, 1)), self.chance(50)),
            10 | 11 => Scalar::And(vec![self.condition(inner), self.condition(inner)]),
            12 | 13 => Scalar::Or(vec![self.condition(inner), self.condition(inner)]),
            14 => Scalar::Not(Box::new(self.condition(inner))),
            15 => {
                let pair = (self.integer(inner, 1), self.integer(inner, 1));
                Scalar::Distinct(Box::new(pair), self.chance(50))
            }
            16 => {
                let which = self.one_of(&[Some(true), Some(false), None]);
                Scalar::Test(Box::new(self.condition(inner)), which, self.chance(50))
            }
            17 => {
                let all = self.chance(50);
                let symbol = if all { "<>" } else { "=" };
                let function = TestFunctions.operator(symbol, &[Type::new(INT4); 2]).expect("it is there");
                let argument = self.integer(inner, 1);
                let values = Values::List((0..2).map(|_| self.integer(inner, 0)).collect());
                Scalar::Quantified(Box::new(Quantified { function, all, argument, values }))
            }
            18 => {
                let columns = [inner, &self.outer.clone()].concat();
                let booleans: Vec<Column> =
                    columns.into_iter().filter(|column| self.is(*column, TypeId::BOOL)).collect();
                if booleans.is_empty() {
                    Scalar::boolean(true)
                } else {
                    Scalar::Column(self.one_of(&booleans))
                }
            }
            _ => Scalar::boolean(self.chance(70)),
        }
    }
}
