//! Our engine within this process: parser, binder, optimiser and executor over rows in memory.

use crate::engine::{Answer, Column, Engine, Row, Statement};
use crate::open::Open;
use crate::schema::{Constraint, TABLES, Table};
use firn_base::disk::SimulatedDisk;
use firn_base::sync::{Arc, AtomicU64, Ordering};
use firn_base::{Cancel, Result, Snapshot, Stamp, TextStyle, Time, Type, TypeId, Value, text};
use firn_bind::{Attribute, Bound, Catalog, Generated, Key, Relation, RelationKind, bind};
use firn_executor::source::{MemorySource, SourceColumn};
use firn_executor::values::{push, value};
use firn_executor::{Budget, Options, Program, Reader, Rows, Source, Sources, SpillArea};
use firn_plan::Plan;
use firn_plan::RegistryEvaluator;
use firn_plan::operator::SourceId;
use firn_plan::rewrite::{REWRITES, optimise, optimise_without};
use firn_plan::statistics::Statistics;
use firn_vector::builder::Builder;
use firn_vector::context::{Context, detached};
use firn_vector::{Chunk, Registry};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The engine.
pub struct InProcess {
    tables: Tables,
    vector_rows: usize,
    /// Whether rewrites are applied, not only unnesting.
    pub optimise: bool,
    /// How the next statements run.
    pub way: Way,
    /// Whether plans are printed.
    pub explain: bool,
    /// Counts statements; a watching thread cancels one that runs for too long.
    watch: Arc<Watch>,
}

/// How a statement runs. Its rows are the same either way.
#[derive(Clone, Copy, Default, Debug)]
pub struct Way {
    /// Whether everything is spilled that can be.
    spills: bool,
    /// Whether several threads work from the first row on.
    is_parallel: bool,
    /// A rewrite that is left out.
    without: Option<&'static str>,
}

impl Way {
    /// The ways in which the statement of a seed runs: with all rewrites, and without one.
    pub fn of(seed: u64) -> [Way; 2] {
        // Neighbours differ in all.
        let mut random = firn_base::random::Random::seeded(seed ^ 0x5eed);
        let spills = random.uniform(0, 1) == 1;
        let is_parallel = random.uniform(0, 2) == 0;
        let without = REWRITES[random.uniform(0, REWRITES.len() as i64 - 1) as usize];
        [
            Way { spills, is_parallel, without: None },
            Way { spills: false, is_parallel: false, without: Some(without) },
        ]
    }
}

/// So many threads work where several do.
const WORKERS: usize = 3;

#[derive(Default)]
struct Watch {
    cancel: Cancel,
    statement: AtomicU64,
}

/// How long a statement may take: the number of checks of the watching thread, a second apart.
const LOOKS: u32 = 60;

/// The source of the statistics and the catalog.
struct Tables {
    registry: Registry,
    relations: Vec<Arc<Relation>>,
    sources: Vec<Arc<dyn Source>>,
}

thread_local! {
    /// The place and message of the last panic.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
    /// Whether the engine is asked.
    static IS_ANSWERING: Cell<bool> = const { Cell::new(false) };
}

impl InProcess {
    /// An engine with the tables, whose vectors have this number of rows.
    pub fn new(vector_rows: usize) -> InProcess {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // Those of the engine are answers.
            match IS_ANSWERING.get() {
                true => PANIC.with(|panic| *panic.borrow_mut() = info.to_string()),
                false => usual(info),
            }
        }));
        let watch: Arc<Watch> = Arc::default();
        let watched = watch.clone();
        std::thread::spawn(move || {
            let (mut last, mut looks) = (0, 0);
            while Arc::strong_count(&watched) > 1 {
                std::thread::sleep(Duration::from_secs(1));
                let now = watched.statement.load(Ordering::Relaxed);
                looks = if now == last { looks + 1 } else { 0 };
                last = now;
                if looks >= LOOKS {
                    watched.cancel.cancel();
                }
            }
        });
        let relation = |(place, table): (usize, &Table)| Arc::new(relation(table, place));
        let tables = Tables {
            registry: Registry::built_in(),
            relations: TABLES.iter().enumerate().map(relation).collect(),
            sources: TABLES.iter().map(|table| source(table, 3)).collect(),
        };
        InProcess { tables, vector_rows, optimise: true, way: Way::default(), explain: false, watch }
    }

    /// What SQL leaves open about the errors of a statement.
    pub fn leaves_open(&self, statement: &Statement) -> Open {
        self.bound(statement).map_or(Open::ALL, |bound| Open::of(&bound.plan))
    }

    fn bound(&self, statement: &Statement) -> Result<Bound> {
        let options = firn_syntax::Options { additions: false, ..Default::default() };
        let parsed = firn_syntax::parse(&statement.text, options)?;
        let given: Vec<Option<TypeId>> =
            statement.parameters.iter().map(|parameter| parameter.oid.map(TypeId)).collect();
        bind(&statement.text, &parsed[0].statement, &given, &self.tables)
    }

    fn answer(&self, statement: &Statement) -> Result<Answer> {
        let bound = self.bound(statement)?;
        let mut plan = bound.plan;
        if self.explain {
            println!("{}", firn_plan::text::print(&plan));
        }
        let registry = &self.tables.registry;
        match self.optimise {
            true => {
                let context = detached();
                let evaluator = RegistryEvaluator::new(registry, &context);
                match self.way.without {
                    None => optimise(&mut plan, registry, &evaluator, &self.tables),
                    Some(name) => optimise_without(&mut plan, registry, &evaluator, &self.tables, name),
                }
            }
            false => firn_plan::unnest::unnest(&mut plan, registry),
        }
        if self.explain {
            println!("{}", firn_plan::text::print(&plan));
        }
        let style = TextStyle::DEFAULT;
        let parameter = |(parameter, ty): (&crate::engine::Parameter, &Type)| match &parameter.value {
            None => Ok(Value::Null),
            Some(value) => text::parse_any(value, *ty, &style),
        };
        let parameters: Vec<Value> =
            statement.parameters.iter().zip(&bound.parameters).map(parameter).collect::<Result<_>>()?;
        let values = self.rows(&plan, &parameters)?;
        let columns: Vec<Column> = bound
            .columns
            .iter()
            .map(|column| Column { name: column.name.clone(), oid: column.ty.id.0 })
            .collect();
        let row = |row: Vec<Value>| -> Row {
            let cell = |(value, column): (Value, &firn_bind::OutputColumn)| match value {
                Value::Null => None,
                value => {
                    let mut out = String::new();
                    text::write_any(&value, column.ty, &style, &mut out);
                    Some(out)
                }
            };
            row.into_iter().zip(&bound.columns).map(cell).collect()
        };
        Ok(Answer::Rows {
            columns,
            parameters: bound.parameters.iter().map(|ty| ty.id.0).collect(),
            rows: values.into_iter().map(row).collect(),
            tag: String::new(),
            after: None,
        })
    }

    fn rows(&self, plan: &Plan, parameters: &[Value]) -> Result<Vec<Vec<Value>>> {
        let budget = Budget::new(1 << 30);
        let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 1 << 30);
        let usual = Options::new(budget.clone());
        let options = Options {
            vector_rows: self.vector_rows,
            workers: if self.way.is_parallel { WORKERS } else { 1 },
            alone: if self.way.is_parallel { Duration::ZERO } else { usual.alone },
            always_spill: self.way.spills,
            spill: self.way.spills.then(|| area.clone()),
            ..usual
        };
        let program = Arc::new(Program::compile(plan, &self.tables.registry)?);
        let snapshot = Snapshot { owner: Stamp::from_bits(0), read_time: Time(0) };
        let reader = Reader { snapshot, transaction: None };
        let mut rows = Rows::start(&program, &self.tables, reader, parameters, options)?;
        let context = Context { memory: &*budget, cancel: &self.watch.cancel, ..detached() };
        let mut result = Vec::new();
        while let Some(chunk) = rows.next(&context)? {
            for row in 0..chunk.length() {
                let cells = chunk.vectors().iter().zip(program.representations().iter().copied());
                let cell = |(vector, representation): (&firn_vector::Vector, _)| {
                    value(vector.datum(row), representation)
                };
                result.push(cells.map(cell).collect());
            }
        }
        drop(rows);
        assert_eq!(budget.used(), 0, "an execution gives back what it has charged");
        assert_eq!(area.used(), 0, "an execution removes its temporary files");
        Ok(result)
    }
}

impl Engine for InProcess {
    fn run(&mut self, statement: &Statement) -> Answer {
        self.watch.cancel.reset();
        self.watch.statement.fetch_add(1, Ordering::Relaxed);
        IS_ANSWERING.set(true);
        let answer = catch_unwind(AssertUnwindSafe(|| self.answer(statement)));
        IS_ANSWERING.set(false);
        match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Answer::Error { state: error.state(), message: error.message().to_owned() },
            Err(_) => Answer::Failure(PANIC.with(|panic| panic.borrow().clone())),
        }
    }
}

fn relation(table: &Table, place: usize) -> Relation {
    let oid = 20_000 + place as u32;
    let number = |position: usize| position as i16 + 1;
    let attribute = |(position, (name, ty, constraint)): (usize, &(&str, _, Constraint))| Attribute {
        number: number(position),
        name: (*name).into(),
        ty: crate::schema::Ty::ty(*ty),
        not_null: matches!(constraint, Constraint::Key | Constraint::NotNull),
        default: None,
        generated: Generated::No,
    };
    let key = |(position, (name, _, constraint)): (usize, &(&str, crate::schema::Ty, Constraint))| {
        let is_primary = *constraint == Constraint::Key;
        (is_primary || *constraint == Constraint::Unique).then(|| Key {
            index: oid + 1000 * number(position) as u32,
            name: match is_primary {
                true => format!("{}_pkey", table.name).into(),
                false => format!("{}_{name}_key", table.name).into(),
            },
            columns: vec![number(position)],
            expressions: Vec::new(),
            is_primary,
            is_deferrable: false,
            nulls_not_distinct: false,
            condition: None,
        })
    };
    Relation {
        has_system_columns: false,
        oid,
        schema: "public".into(),
        name: table.name.into(),
        kind: RelationKind::Table(SourceId(place as u32)),
        columns: table.columns.iter().enumerate().map(attribute).collect(),
        keys: table.columns.iter().enumerate().filter_map(key).collect(),
    }
}

/// The rows of a table, in chunks of a few.
fn source(table: &Table, chunk_rows: usize) -> Arc<dyn Source> {
    let columns: Vec<SourceColumn> = (1..)
        .zip(table.columns)
        .map(|(attribute, (_, ty, constraint))| SourceColumn {
            attribute,
            ty: ty.ty(),
            nullable: !matches!(constraint, Constraint::Key | Constraint::NotNull),
        })
        .collect();
    let rows: Vec<Vec<Value>> = table
        .rows
        .iter()
        .map(|row| {
            let cell = |(text, column): (&str, &SourceColumn)| match text {
                "-" => Value::Null,
                _ => firn_base::text::parse_any(text, column.ty, &TextStyle::DEFAULT)
                    .expect("the values of tables are of their types"),
            };
            row.split('|').zip(&columns).map(cell).collect()
        })
        .collect();
    let chunk = |rows: &[Vec<Value>]| {
        let vector = |(place, column): (usize, &SourceColumn)| {
            let representation = column.ty.representation().expect("it is a type of values");
            let mut builder = Builder::new(representation);
            rows.iter().for_each(|row| push(&mut builder, &row[place], representation));
            builder.finish()
        };
        Chunk::new(rows.len(), columns.iter().enumerate().map(vector).collect())
    };
    let chunks = rows.chunks(chunk_rows).map(chunk).collect();
    Arc::new(MemorySource::new(columns, chunks))
}

impl Sources for Tables {
    fn source(&self, id: SourceId) -> Arc<dyn Source> {
        self.sources[id.0 as usize].clone()
    }
}

impl Statistics for Tables {
    fn rows(&self, source: SourceId) -> f64 {
        TABLES[source.0 as usize].rows.len() as f64
    }

    fn distinct(&self, _: SourceId, _: &[i16]) -> Option<f64> {
        None
    }

    fn keys(&self, source: SourceId) -> Vec<Vec<i16>> {
        let relation = &self.relations[source.0 as usize];
        let not_null = |number: &i16| relation.columns[*number as usize - 1].not_null;
        let keys = relation.keys.iter().filter(|key| key.columns.iter().all(not_null));
        keys.map(|key| key.columns.clone()).collect()
    }
}

impl Catalog for Tables {
    fn registry(&self) -> &Registry {
        &self.registry
    }

    fn relation(&self, schema: Option<&str>, name: &str) -> Result<Option<Arc<Relation>>> {
        let is_visible = schema.is_none_or(|schema| schema == "public");
        let found = self.relations.iter().find(|relation| &*relation.name == name);
        Ok(found.filter(|_| is_visible).cloned())
    }

    fn has_schema(&self, name: &str) -> bool {
        name == "public" || name == "pg_catalog"
    }

    fn database(&self) -> &str {
        "random"
    }
}
