//! Statements: scopes, expressions, queries and changes.
//!
//! A scalar is bound before it is known where in the plan it is evaluated. What it needs of the plan stands in it as a
//! column that nothing produces yet: the result of a sub-query, an aggregate, a window function or a function that
//! returns a set. The code that puts the scalar into an operator first adds the operators that produce these columns
//! (`attach`, `group`, `window`, `select`).

mod aggregate;
mod arguments;
mod attach;
mod call;
mod change;
mod coerce;
mod collation;
mod conflict;
mod copy;
mod definition;
mod expression;
mod file_function;
mod from;
mod group;
mod literal;
mod merge;
mod missing;
mod names;
mod operator;
mod order;
mod output;
mod parameter;
mod part;
mod query;
mod recursion;
mod row;
mod same;
mod search;
mod select;
mod sets;
mod special;
mod subquery;
mod table_function;
mod target;
mod type_name;
mod values;
mod window;
mod with;

pub use copy::bind_assignments;
pub use definition::{
    BoundExpression, Described, Place, Uses as RelationUses, bind_expression, bind_kept_expression, describe,
};
pub use literal::names_the_present;
pub use names::is_system_column;
pub use output::{column_name, index_column_name};

use crate::catalog::{Catalog, Relation};
use crate::function::Handles;
use aggregate::AggregateCall;
pub use arguments::{bind_arguments, bind_type_name};
use attach::Pending;
use definition::Uses;
use firn_base::{Error, Result, SqlState, Type, TypeId, stack};
use firn_plan::operator::{IterateId, SharedId};
use firn_plan::{Column, ColumnInfo, NodeId, Origin, Plan, Scalar};
use firn_syntax::tree::{Locking, Statement};
use firn_syntax::{DEPTH_LIMIT, Span, character_position};
use firn_vector::Registry;
use parameter::Parameters;
use select::SetCallPlace;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use window::{BoundWindow, WindowCallPlace};
use with::CommonTableEntry;

/// A bound statement.
#[derive(Debug)]
pub struct Bound {
    /// What is done.
    pub plan: Plan,
    /// The columns of the result, one for each of the plan's output; none of a change without RETURNING.
    pub columns: Vec<OutputColumn>,
    /// The types of the parameters, from `$1` on.
    pub parameters: Vec<Type>,
    /// How many levels its tree has, those of views among them: a bound for the depth of the plan's scalars.
    pub depth: u32,
}

/// A column of a result.
#[derive(Clone, PartialEq, Debug)]
pub struct OutputColumn {
    /// Its name, which others may have as well.
    pub name: String,
    /// The type of its values.
    pub ty: Type,
    /// The column of a relation that its values are.
    pub origin: Option<Origin>,
}

/// The plan of a query, INSERT, UPDATE, DELETE or MERGE. Positions of errors are positions in `text`, which the
/// statement was parsed from. Parameters without a given type take the one that their use determines.
pub fn bind(
    text: &str,
    statement: &Statement,
    parameters: &[Option<TypeId>],
    catalog: &dyn Catalog,
) -> Result<Bound> {
    bind_with(Binder::new(text, parameters, catalog), statement).map(|(bound, _)| bound)
}

/// The plan of a statement, and what else its binder knows.
fn bind_with<'a>(mut binder: Binder<'a>, statement: &Statement) -> Result<(Bound, Binder<'a>)> {
    let output = binder.statement(statement)?;
    let parameters = binder.parameter_types(binder.plan.root)?;
    let mut plan = std::mem::replace(&mut binder.plan, Plan::new());
    plan.is_change = matches!(
        statement,
        Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) | Statement::Merge(_)
    );
    let described = |output: &Output| OutputColumn {
        name: output.name.to_string(),
        ty: row::outside(output.ty),
        origin: output.value.as_column().and_then(|column| plan.columns[column].origin),
    };
    let columns = output.iter().map(described).collect();
    plan.output = output.iter().map(|output| output.value.as_column().expect("it is projected")).collect();
    if !binder.row_types.is_empty() {
        plan.columns.iter_mut().for_each(|info| info.ty = row::outside(info.ty));
    }
    attach::drop_unused_columns(&mut plan);
    if binder.uses_may_be_null {
        firn_plan::properties::widen_nullability(&mut plan);
    }
    firn_plan::verify::debug_verify(&plan, "binding");
    Ok((Bound { plan, columns, parameters, depth: binder.deepest }, binder))
}

/// What is known of the fields of rows. The modifier of the type `record` is its place in [`Binder::row_types`].
#[derive(PartialEq, Debug)]
struct RowType {
    /// The table whose rows they are.
    relation: Option<Rc<str>>,
    /// Names and types.
    fields: Vec<(Rc<str>, Type)>,
}

/// What a statement is bound with.
pub(crate) struct Binder<'a> {
    text: &'a str,
    /// Whether the tree at hand is that of `text`: not while the text of a view or default is bound.
    has_positions: bool,
    /// Whether the catalog keeps the text at hand: its literals are read in the same way in every session.
    is_kept: bool,
    catalog: &'a dyn Catalog,
    registry: &'a Registry,
    handles: Handles,
    plan: Plan,
    parameters: Parameters,
    levels: Vec<Level>,
    /// How to produce columns that stand for sub-queries and conditions.
    pending: HashMap<Column, Pending>,
    /// The further columns of sub-queries that give rows, and the column that stands for the sub-query.
    aliases_of_pending: HashMap<Column, Column>,
    /// What the columns of sub-queries stand for.
    query_texts: Vec<(Column, same::QueryText)>,
    /// The query whose namespace or clauses a column belongs to.
    owners: HashMap<Column, LevelId>,
    /// All uses of columns by name, in the order in which they were bound.
    references: Vec<Reference>,
    /// What must hold where the expression at hand is evaluated.
    guards: Vec<Scalar>,
    /// Whether another condition of the same AND is evaluated before the expression at hand.
    follows_condition: bool,
    /// Columns that an outer join may make NULL.
    padded: std::collections::HashSet<Column>,
    /// Whether a sub-query was bound before columns that it uses came to be NULL: above grouping sets, or without a row in conflict.
    uses_may_be_null: bool,
    /// Locking clauses that apply to the sub-query or view that is bound next.
    pushed_locks: Vec<Locking>,
    /// The types of rows whose fields are known.
    row_types: Vec<Rc<RowType>>,
    /// What the text at hand uses, if that is asked.
    uses: Option<Box<Uses>>,
    next_level: u32,
    next_shared: u32,
    next_iterate: u32,
    /// How many levels of the tree are being bound, and how many have been at most.
    depth: u32,
    deepest: u32,
}

/// The number of a query within the statement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LevelId(u32);

/// A use of a column.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    column: Column,
    /// Where it stands.
    at: u32,
    /// The name of its relation and its own, for messages.
    table: Rc<str>,
    name: Rc<str>,
    /// The query that it is a column of.
    owner: LevelId,
}

/// A query while it is bound: what its expressions see.
pub(crate) struct Level {
    id: LevelId,
    /// What FROM has named so far, visible or not.
    tables: Vec<Table>,
    /// Where names are looked up, in the order of FROM.
    items: Vec<Item>,
    /// Whether items of a FROM clause in progress are visible.
    lateral_active: bool,
    /// The common tables of its WITH.
    common: Vec<Rc<std::cell::RefCell<CommonTableEntry>>>,
    /// Which clause is bound.
    clause: Clause,
    aggregates: Vec<AggregateCall>,
    windows: Vec<BoundWindow>,
    window_calls: Vec<WindowCallPlace>,
    sets: Vec<SetCallPlace>,
    /// GROUPING(…): the column that stands for it, its arguments, and its place.
    groupings: Vec<(Column, Vec<Scalar>, Span)>,
    /// Whether it reads a common table of which it is the recursive term.
    is_recursive_term: bool,
    /// FOR UPDATE and its relatives: its own clauses, and those of the queries around that apply to it.
    locking: Vec<Locking>,
}

/// A relation that FROM names.
#[derive(Clone)]
pub(crate) struct Table {
    /// The name that the query knows it by.
    alias: Rc<str>,
    /// Whether that is an alias, not its own name.
    has_alias: bool,
    relation: Option<Arc<Relation>>,
    is_join: bool,
    /// Whether an outer join may make its rows NULL.
    is_padded: bool,
    /// Whether it is a function that gives single values.
    is_function: bool,
    /// Whether it is a common table.
    is_common: bool,
    /// Whether it is the changed rows that RETURNING sees.
    is_image: bool,
    /// How many of its last columns `*` does not mean.
    unexpanded: usize,
    columns: Rc<[ItemColumn]>,
    /// The scan of a relation, and the system columns that it has been asked for.
    scan: Option<NodeId>,
    system: HashMap<i16, Column>,
}

/// A column that a name can mean.
#[derive(Clone, Debug)]
pub(crate) struct ItemColumn {
    name: Rc<str>,
    value: Scalar,
    ty: Type,
}

/// A relation of a namespace, and whether it can be seen.
#[derive(Clone)]
pub(crate) struct Item {
    /// Its place in [`Level::tables`].
    table: usize,
    columns: Rc<[ItemColumn]>,
    /// Whether `name.column` finds it.
    has_name: bool,
    /// Whether `column` finds its columns.
    has_columns: bool,
    /// Whether only LATERAL items see it, while FROM is bound.
    lateral_only: bool,
    /// Whether these may.
    lateral_ok: bool,
}

/// What is being bound, for messages and for what is allowed there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clause {
    None,
    Targets,
    From,
    FromFunction,
    On,
    Where,
    Having,
    Filter,
    WindowPartition,
    WindowOrder,
    FrameRange,
    FrameRows,
    FrameGroups,
    GroupBy,
    OrderBy,
    DistinctOn,
    Limit,
    Offset,
    Returning,
    Values,
    InsertTargets,
    UpdateTargets,
    MergeWhen,
    Default,
    Check,
    Generated,
    IndexExpression,
    IndexPredicate,
    Transform,
    CopyWhere,
    Execute,
}

/// A bound expression.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    scalar: Scalar,
    ty: Type,
    /// Where it stands: the byte that errors about it name.
    at: u32,
}

/// A column of a query's result. Its value is a column, or a constant or parameter whose type is not known yet.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    name: Rc<str>,
    value: Scalar,
    ty: Type,
    at: u32,
}

/// A bound query.
pub(crate) struct Rows {
    node: NodeId,
    columns: Vec<Output>,
}

impl<'a> Binder<'a> {
    fn new(text: &'a str, parameters: &[Option<TypeId>], catalog: &'a dyn Catalog) -> Binder<'a> {
        Binder {
            text,
            has_positions: true,
            is_kept: false,
            catalog,
            registry: catalog.registry(),
            handles: Handles::default(),
            plan: Plan::new(),
            parameters: Parameters::new(parameters),
            levels: Vec::new(),
            pending: HashMap::new(),
            aliases_of_pending: HashMap::new(),
            query_texts: Vec::new(),
            owners: HashMap::new(),
            references: Vec::new(),
            guards: Vec::new(),
            follows_condition: false,
            padded: Default::default(),
            uses_may_be_null: false,
            pushed_locks: Vec::new(),
            row_types: Vec::new(),
            uses: None,
            next_level: 0,
            next_shared: 0,
            next_iterate: 0,
            depth: 0,
            deepest: 0,
        }
    }

    fn statement(&mut self, statement: &Statement) -> Result<Vec<Output>> {
        match statement {
            Statement::Query(query) => {
                let rows = self.query(query, true)?;
                let rows = self.projected(rows)?;
                self.plan.root = rows.node;
                Ok(rows.columns)
            }
            Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) | Statement::Merge(_) => {
                let rows = self.change(statement)?;
                self.plan.root = rows.node;
                Ok(rows.columns)
            }
            Statement::Explain(explain) => self.statement(&explain.statement),
            Statement::DeclareCursor(cursor) => self.statement(&Statement::Query(cursor.query.clone())),
            Statement::Prepare(prepare) => self.statement(&prepare.statement),
            _ => Err(Error::unsupported("a plan of this statement")),
        }
    }

    /// An error at a byte of the text.
    #[cold]
    fn error(&self, state: SqlState, message: impl Into<String>, at: u32) -> Error {
        self.placed(Error::new(state, message), at)
    }

    /// An error of a function below, at a byte of the text.
    #[cold]
    fn placed(&self, error: Error, at: u32) -> Error {
        if self.has_positions && error.position().is_none() {
            error.with_position(character_position(self.text, at))
        } else {
            error
        }
    }

    #[cold]
    fn unsupported(&self, what: impl std::fmt::Display, at: u32) -> Error {
        self.placed(Error::unsupported(what), at)
    }

    /// Binds one level deeper; 54001 if the statement nests too deep.
    fn deeper<T>(&mut self, bind: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= 2 * DEPTH_LIMIT {
            return Err(too_deep());
        }
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        let result = match self.depth {
            // Few statements come here; a stack of their own costs as much as binding a short one.
            depth if depth == stack::SHALLOW + 1 => stack::with_room(|| bind(self)),
            _ => bind(self),
        };
        self.depth -= 1;
        result
    }

    fn level(&mut self) -> &mut Level {
        self.levels.last_mut().expect("a query is being bound")
    }

    /// Opens the namespace of a query.
    fn open(&mut self) -> LevelId {
        let id = LevelId(self.next_level);
        self.next_level += 1;
        self.levels.push(Level {
            id,
            tables: Vec::new(),
            items: Vec::new(),
            lateral_active: false,
            common: Vec::new(),
            clause: Clause::None,
            aggregates: Vec::new(),
            windows: Vec::new(),
            window_calls: Vec::new(),
            sets: Vec::new(),
            groupings: Vec::new(),
            is_recursive_term: false,
            locking: std::mem::take(&mut self.pushed_locks),
        });
        id
    }

    fn close(&mut self) -> Level {
        self.levels.pop().expect("a query is being bound")
    }

    /// Binds with another clause.
    fn within<T>(&mut self, clause: Clause, bind: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = std::mem::replace(&mut self.level().clause, clause);
        let result = bind(self);
        self.level().clause = before;
        result
    }

    /// A new column of the query at hand.
    fn new_column(&mut self, info: ColumnInfo) -> Column {
        let column = self.plan.columns.add(info);
        if let Some(level) = self.levels.last() {
            self.owners.insert(column, level.id);
        }
        column
    }

    fn nullable(&self, scalar: &Scalar) -> bool {
        scalar.nullable(&|column| self.plan.columns[column].nullable || self.padded.contains(&column))
    }

    fn column_nullable(&self, column: Column) -> bool {
        self.plan.columns[column].nullable || self.padded.contains(&column)
    }

    /// A new column for the values of a scalar: with the origin of a column that it is.
    fn column_for(&mut self, scalar: &Scalar, ty: Type, name: Option<&str>) -> Column {
        let origin = scalar.as_column().and_then(|column| self.plan.columns[column].origin);
        let info = ColumnInfo { ty, nullable: self.nullable(scalar), name: name.map(Into::into), origin };
        self.new_column(info)
    }

    fn new_shared(&mut self) -> SharedId {
        self.next_shared += 1;
        SharedId(self.next_shared - 1)
    }

    fn new_iterate(&mut self) -> IterateId {
        self.next_iterate += 1;
        IterateId(self.next_iterate - 1)
    }
}

#[cold]
pub(crate) fn too_deep() -> Error {
    Error::new(TOO_DEEP, "stack depth limit exceeded").with_hint("Nest the statement less deeply.")
}

const TOO_DEEP: SqlState = SqlState::new("54001");

/// Error codes that only the binder raises.
pub(crate) mod states {
    use firn_base::SqlState;
    pub const AMBIGUOUS_FUNCTION: SqlState = SqlState::new("42725");
    pub const AMBIGUOUS_PARAMETER: SqlState = SqlState::new("42P08");
    pub const AMBIGUOUS_ALIAS: SqlState = SqlState::new("42P09");
    pub const DUPLICATE_ALIAS: SqlState = SqlState::new("42712");
    pub const WINDOWING_ERROR: SqlState = SqlState::new("42P20");
    pub const INVALID_RECURSION: SqlState = SqlState::new("42P19");
    pub const GENERATED_ALWAYS: SqlState = SqlState::new("428C9");
}
