//! INSERT, UPDATE and DELETE: targets, assignments, defaults, and RETURNING.

use super::conflict::ConflictingRow;
use super::part::TargetPlace;
use super::states::GENERATED_ALWAYS;
use super::target::BoundTarget;
use super::{Binder, Clause, Item, ItemColumn, Operand, Output, Rows, Table};
use crate::catalog::{Attribute, Generated, Relation, RelationKind};
use crate::resolve::name as type_name;
use firn_base::{Error, Result, SqlState, Type, TypeId, Value};
use firn_plan::operator::{Assignment, Image, Insert, ROW_ID, SourceId, Update, XMAX};
use firn_plan::{Column, ColumnInfo, NodeId, Operator, Origin, Scalar};
use firn_syntax::tree::{
    self, ChangeCondition, Expr, ExprKind, Overriding, QueryBody, Statement, Target, TargetColumn,
};
use firn_vector::registry::CastContext;
use std::sync::Arc;

impl Binder<'_> {
    /// INSERT, UPDATE, DELETE or MERGE. Its rows are those of RETURNING.
    pub(super) fn change(&mut self, statement: &Statement) -> Result<Rows> {
        let with = match statement {
            Statement::Insert(insert) => &insert.with,
            Statement::Update(update) => &update.with,
            Statement::Delete(delete) => &delete.with,
            Statement::Merge(merge) => &merge.with,
            _ => panic!("it is a change"),
        };
        self.deeper(|binder| {
            binder.open();
            let definitions = match with {
                Some(with) => binder.with_clause(with)?,
                None => Vec::new(),
            };
            let rows = match statement {
                Statement::Insert(insert) => binder.insert(insert)?,
                Statement::Update(update) => binder.update(update)?,
                Statement::Delete(delete) => binder.delete(delete)?,
                Statement::Merge(merge) => binder.merge(merge)?,
                _ => unreachable!("it was seen"),
            };
            let node = binder.with_definitions(definitions, rows.node);
            binder.close();
            Ok(Rows { node, ..rows })
        })
    }

    /// The table that a statement changes.
    pub(super) fn changed_table(
        &self,
        name: &tree::ObjectName,
        verb: &str,
    ) -> Result<(Arc<Relation>, SourceId)> {
        let relation = self.find_relation(name)?;
        match relation.kind {
            RelationKind::Table(source) => Ok((relation, source)),
            RelationKind::View(_) => {
                let message = format!("cannot {verb} view \"{}\"", relation.name);
                let error = Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
                Err(error.with_detail("Views that are not automatically updatable cannot be changed."))
            }
            RelationKind::Source(_) => {
                let message = format!("cannot change relation \"{}\"", relation.name);
                Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message))
            }
        }
    }

    fn insert(&mut self, insert: &tree::Insert) -> Result<Rows> {
        let (relation, target) = self.changed_table(&insert.table, "insert into")?;
        let places = self.target_columns(&relation, &insert.columns)?;
        let (mut node, mut values) = match &insert.source {
            None => {
                let row = self.plan.add(Operator::Values { columns: Vec::new(), rows: vec![Vec::new()] });
                (row, Vec::new())
            }
            Some(query) => match &query.body {
                QueryBody::Values(rows) if is_bare(query) => {
                    self.inserted_rows(&relation, &places, rows, insert)?
                }
                _ => self.inserted_query(&relation, &places, query, insert)?,
            },
        };
        if places.iter().any(|target| !target.path.is_empty()) {
            // Subscripts may have sub-queries.
            let scalars: Vec<Scalar> = values.iter().map(|(_, value)| value.clone()).collect();
            node = self.attach(node, &scalars);
        }
        self.fill_row(&relation, &mut values)?;
        let conflicts = match &insert.on_conflict {
            Some(conflict) => {
                let row = ConflictingRow {
                    relation: &relation,
                    source: target,
                    node: &mut node,
                    values: &mut values,
                };
                vec![self.conflict_arm(conflict, row, insert.alias.as_ref())?]
            }
            None => Vec::new(),
        };
        let assignments =
            values.into_iter().map(|(attribute, value)| Assignment { attribute, value }).collect();
        let alias = insert.alias.as_ref().map(|alias| &*alias.text);
        self.level().items.clear();
        let may_exist = !conflicts.is_empty() && !insert.returning.is_empty();
        let mut images = self.image_table(&relation, alias, false, None, may_exist);
        images.push(self.id_image());
        let node = self.plan.add(Operator::Insert(Insert {
            input: node,
            target,
            values: assignments,
            conflicts,
            images,
        }));
        self.returning(node, &insert.returning)
    }

    /// The places of the columns that a statement names; all if it names none.
    pub(super) fn target_columns<'t>(
        &self,
        relation: &Relation,
        columns: &'t [TargetColumn],
    ) -> Result<Vec<TargetPlace<'t>>> {
        if columns.is_empty() {
            let whole = |place| TargetPlace { place, at: 0, path: &[] };
            return Ok((0..relation.columns.len()).map(whole).collect());
        }
        let mut places: Vec<TargetPlace<'_>> = Vec::with_capacity(columns.len());
        for column in columns {
            let target = self.target_column(relation, column)?;
            let is_whole = |other: &TargetPlace<'_>| other.path.is_empty() || target.path.is_empty();
            if places.iter().any(|other| other.place == target.place && is_whole(other)) {
                let message = format!("column \"{}\" specified more than once", column.name.text);
                return Err(self.error(SqlState::DUPLICATE_COLUMN, message, target.at));
            }
            places.push(target);
        }
        Ok(places)
    }

    /// The values of a row by column, of which parts may be given.
    fn row_of(
        &mut self,
        relation: &Relation,
        places: &[TargetPlace<'_>],
        values: impl Iterator<Item = Scalar>,
    ) -> Result<Vec<(i16, Scalar)>> {
        let mut row = Vec::with_capacity(places.len());
        for (target, value) in places.iter().zip(values) {
            let attribute = &relation.columns[target.place];
            self.add_target(&mut row, attribute, *target, None, value, Clause::InsertTargets)?;
        }
        Ok(row)
    }

    /// VALUES as the rows of an INSERT: DEFAULT is allowed, and literals take the types of the columns.
    #[allow(clippy::type_complexity)]
    fn inserted_rows(
        &mut self,
        relation: &Relation,
        places: &[TargetPlace<'_>],
        rows: &[Vec<Expr>],
        insert: &tree::Insert,
    ) -> Result<(NodeId, Vec<(i16, Scalar)>)> {
        let width = rows.first().map_or(0, Vec::len);
        for row in rows {
            if row.len() != width {
                let at = row.first().map_or(0, |value| value.span.start);
                return Err(self.error(
                    SqlState::SYNTAX_ERROR,
                    "VALUES lists must all be the same length",
                    at,
                ));
            }
        }
        self.check_width(width, places, insert, |place| rows[0][place].span.start)?;
        let mut bound = Vec::with_capacity(rows.len());
        for row in rows {
            let mut scalars = Vec::with_capacity(width);
            for (value, target) in row.iter().zip(places) {
                let attribute = &relation.columns[target.place];
                scalars.push(
                    if matches!(value.kind, ExprKind::Default)
                        || insert.overriding == Some(Overriding::User) && is_identity(attribute)
                    {
                        self.check_default(*target)?;
                        self.default_of(attribute)?
                    } else {
                        self.check_given(attribute, insert.overriding == Some(Overriding::System))?;
                        let operand = self.within(Clause::Values, |binder| binder.expression(value))?;
                        self.assigned_to(operand, attribute, *target)?.scalar
                    },
                );
            }
            bound.push(scalars);
        }
        let single = bound.len() == 1;
        if single {
            let row = bound.pop().expect("there is one");
            let node = self.plan.add(Operator::Values { columns: Vec::new(), rows: vec![Vec::new()] });
            let node = self.attach(node, &row);
            let values = self.row_of(relation, places, row.into_iter())?;
            return Ok((node, values));
        }
        let ty = |target: &TargetPlace<'_>| self.target_type(&relation.columns[target.place], *target);
        let types: Vec<Type> = places[..width].iter().map(ty).collect();
        let starts = vec![0; width];
        let rows = self.listed(bound, &types, &starts);
        let values = self.row_of(relation, places, rows.columns.into_iter().map(|output| output.value))?;
        Ok((rows.node, values))
    }

    #[allow(clippy::type_complexity)]
    fn inserted_query(
        &mut self,
        relation: &Relation,
        places: &[TargetPlace<'_>],
        query: &tree::Query,
        insert: &tree::Insert,
    ) -> Result<(NodeId, Vec<(i16, Scalar)>)> {
        let rows = self.query(query, false)?;
        self.check_width(rows.columns.len(), places, insert, |place| rows.columns[place].at)?;
        let id = self.level().id;
        let mut values = Vec::with_capacity(rows.columns.len());
        for (output, target) in rows.columns.into_iter().zip(places) {
            let attribute = &relation.columns[target.place];
            if insert.overriding == Some(Overriding::User) && is_identity(attribute) {
                values.push(self.default_of(attribute)?);
                continue;
            }
            self.check_given(attribute, insert.overriding == Some(Overriding::System))?;
            if let Some(column) = output.value.as_column() {
                self.owners.insert(column, id);
            }
            let operand = Operand { scalar: output.value, ty: output.ty, at: output.at };
            values.push(self.assigned_to(operand, attribute, *target)?.scalar);
        }
        let values = self.row_of(relation, places, values.into_iter())?;
        Ok((rows.node, values))
    }

    fn check_width(
        &self,
        width: usize,
        places: &[TargetPlace<'_>],
        insert: &tree::Insert,
        at: impl Fn(usize) -> u32,
    ) -> Result<()> {
        if width > places.len() {
            let message = "INSERT has more expressions than target columns";
            return Err(self.error(SqlState::SYNTAX_ERROR, message, at(places.len())));
        }
        if !insert.columns.is_empty() && width < places.len() {
            let message = "INSERT has more target columns than expressions";
            return Err(self.error(SqlState::SYNTAX_ERROR, message, places[width].at));
        }
        Ok(())
    }

    /// Refuses a value for a column that takes none.
    pub(super) fn check_given(&self, attribute: &Attribute, is_overridden: bool) -> Result<()> {
        let (detail, hint) = match attribute.generated {
            Generated::Stored => ("is a generated column.", None),
            Generated::IdentityAlways if !is_overridden => (
                "is an identity column defined as GENERATED ALWAYS.",
                Some("Use OVERRIDING SYSTEM VALUE to override."),
            ),
            _ => return Ok(()),
        };
        let name = &attribute.name;
        let message = format!("cannot insert a non-DEFAULT value into column \"{name}\"");
        let error = Error::new(GENERATED_ALWAYS, message).with_detail(format!("Column \"{name}\" {detail}"));
        Err(hint.into_iter().fold(error, Error::with_hint))
    }

    /// A value as one of a column.
    pub(super) fn assigned(&mut self, operand: Operand, attribute: &Attribute) -> Result<Operand> {
        let (from, at) = (operand.ty.id, operand.at);
        match self.coerce_to(operand, attribute.ty, CastContext::Assignment)? {
            Some(operand) => Ok(self.conformed(operand, attribute.ty)),
            None => {
                let message = format!(
                    "column \"{}\" is of type {} but expression is of type {}",
                    attribute.name,
                    type_name(attribute.ty.id),
                    type_name(from)
                );
                let error = self.error(SqlState::DATATYPE_MISMATCH, message, at);
                Err(error.with_hint("You will need to rewrite or cast the expression."))
            }
        }
    }

    /// The default of a column; NULL without one. That of a generated column stands for what the writer computes.
    pub(super) fn default_of(&mut self, attribute: &Attribute) -> Result<Scalar> {
        match attribute.default.clone().filter(|_| attribute.generated != Generated::Stored) {
            Some(text) => self.default_expression(&text, attribute),
            None => Ok(Scalar::Constant(attribute.ty, Value::Null)),
        }
    }

    /// The expression of a default, which sees no columns.
    fn default_expression(&mut self, text: &str, attribute: &Attribute) -> Result<Scalar> {
        let expression = firn_syntax::parse_expression(text, firn_syntax::Options::default())?;
        let levels = std::mem::take(&mut self.levels);
        let guards = std::mem::take(&mut self.guards);
        let value = self.kept(|binder| {
            binder.open();
            binder.level().clause = Clause::Default;
            binder.add_item(Table::derived("", Vec::new()));
            let value = binder.expression(&expression)?;
            binder.assigned(value, attribute)
        });
        (self.levels, self.guards) = (levels, guards);
        Ok(value?.scalar)
    }

    /// Adds defaults to the values that a statement gives, in the order of the columns. Generated columns get none: the writer
    /// computes them.
    pub(super) fn fill_row(&mut self, relation: &Relation, values: &mut Vec<(i16, Scalar)>) -> Result<()> {
        for attribute in &relation.columns {
            if attribute.generated == Generated::Stored {
                values.retain(|(number, _)| *number != attribute.number);
            } else if values.iter().all(|(number, _)| *number != attribute.number) {
                values.push((attribute.number, self.default_of(attribute)?));
            }
        }
        values.sort_by_key(|(number, _)| *number);
        Ok(())
    }

    /// The changed rows as an item that RETURNING sees. `row` has their ids, if that is known; `may_exist` says that some of those to
    /// insert may have been there.
    pub(super) fn image_table(
        &mut self,
        relation: &Arc<Relation>,
        alias: Option<&str>,
        old: bool,
        row: Option<Column>,
        may_exist: bool,
    ) -> Vec<Image> {
        let mut images = Vec::with_capacity(relation.columns.len());
        let mut columns = Vec::with_capacity(relation.columns.len());
        for attribute in &relation.columns {
            let origin = Some(Origin { relation: relation.oid, attribute: attribute.number });
            let info = ColumnInfo {
                ty: attribute.ty,
                nullable: !attribute.not_null,
                name: Some(attribute.name.clone()),
                origin,
            };
            let output = self.new_column(info);
            images.push(Image { output, attribute: attribute.number, old });
            let name = (&*attribute.name).into();
            columns.push(ItemColumn { name, value: Scalar::Column(output), ty: attribute.ty });
        }
        let mut table = Table::of_relation(relation.clone(), alias, columns, None);
        table.is_image = true;
        table.system.extend(row.map(|row| (ROW_ID, row)));
        if may_exist {
            let info = ColumnInfo::new(Type::new(TypeId::XID), false).named("xmax");
            let output = self.new_column(info);
            images.push(Image { output, attribute: XMAX, old });
            table.system.insert(XMAX, output);
        }
        self.add_item(table);
        images
    }

    /// The ids of inserted or merged rows, as a column of the item that was added last.
    pub(super) fn id_image(&mut self) -> Image {
        let info = ColumnInfo::new(Type::new(TypeId::TID), false).named("ctid");
        let output = self.new_column(info);
        let table = self.level().tables.last_mut().expect("the item has been added");
        table.system.insert(ROW_ID, output);
        Image { output, attribute: ROW_ID, old: false }
    }

    /// RETURNING over the rows that a change gives.
    pub(super) fn returning(&mut self, node: NodeId, targets: &[Target]) -> Result<Rows> {
        let targets = self.targets(targets, Clause::Returning)?;
        let mut node = node;
        let mut columns: Vec<Output> = Vec::with_capacity(targets.len());
        for target in &targets {
            node = self.attach(node, [&target.operand.scalar]);
            columns.push(BoundTarget::output(target));
        }
        let rows = self.projected(Rows { node, columns })?;
        let mut used: Vec<Column> = Vec::new();
        for output in &rows.columns {
            output.value.for_each_column(&mut |column| used.push(column));
        }
        for node in self.plan.post_order_of(rows.node) {
            self.plan[node].for_each_scalar(|scalar| scalar.for_each_column(&mut |column| used.push(column)));
        }
        // Only the images that are used are kept.
        for node in self.plan.post_order_of(rows.node) {
            match &mut self.plan[node] {
                Operator::Insert(Insert { images, .. })
                | Operator::Update(Update { images, .. })
                | Operator::Delete { images, .. } => images.retain(|image| used.contains(&image.output)),
                Operator::Merge(merge) => merge.images.retain(|image| used.contains(&image.output)),
                _ => {}
            }
        }
        Ok(rows)
    }

    fn update(&mut self, update: &tree::Update) -> Result<Rows> {
        let (relation, target) = self.changed_table(&update.table.name, "update")?;
        let at = update.table.name.span().start;
        let alias = update.alias.as_ref().map(|name| tree::Alias { name: name.clone(), columns: Vec::new() });
        let (scan, item) = self.scan(relation.clone(), alias.as_ref(), at)?;
        let node = self.within(Clause::From, |binder| binder.joined_items(Some(scan), &update.from))?;
        let mut node = node.expect("the target is there");
        let set = self.assignments(&update.assignments, &relation, item, Clause::UpdateTargets)?;
        node = self.where_clause(node, update.condition.as_ref())?;
        let scalars: Vec<Scalar> = set.iter().map(|(_, scalar)| scalar.clone()).collect();
        node = self.attach(node, &scalars);
        let row = self.row_id(item).expect("tables have row ids");
        let set = set.into_iter().map(|(attribute, value)| Assignment { attribute, value }).collect();
        let alias = update.alias.as_ref().map(|alias| &*alias.text);
        let others = self.others(item);
        let images = self.image_table(&relation, alias, false, Some(row), false);
        self.level().items.extend(others);
        let node = self.plan.add(Operator::Update(Update { input: node, target, row, set, images }));
        self.returning(node, &update.returning)
    }

    /// Takes all relations out of the namespace; returns those beside the target, which RETURNING sees behind its images.
    fn others(&mut self, item: usize) -> Vec<Item> {
        let level = self.level();
        let target = level.items[item].table;
        let mut others = std::mem::take(&mut level.items);
        others.retain(|other| other.table != target);
        others
    }

    pub(super) fn where_clause(
        &mut self,
        node: NodeId,
        condition: Option<&ChangeCondition>,
    ) -> Result<NodeId> {
        match condition {
            None => Ok(node),
            Some(ChangeCondition::Expr(condition)) => {
                let condition = self.within(Clause::Where, |binder| binder.condition(condition, "WHERE"))?;
                Ok(self.filtered(node, condition))
            }
            Some(ChangeCondition::CurrentOf(name)) => {
                Err(self.unsupported("WHERE CURRENT OF", name.span.start))
            }
        }
    }

    /// SET. `item` is the table's place in the namespace: parts of its columns are assigned.
    pub(super) fn assignments(
        &mut self,
        assignments: &[tree::Assignment],
        relation: &Relation,
        item: usize,
        clause: Clause,
    ) -> Result<Vec<(i16, Scalar)>> {
        let mut set = Set { relation, item, clause, values: Vec::new(), parts: Vec::new() };
        set.values.reserve(assignments.len());
        for assignment in assignments {
            match assignment {
                tree::Assignment::Single { column, value } => {
                    let target = self.target_column(relation, column)?;
                    let scalar = self.assigned_value(value, relation, target, clause)?;
                    self.add_assignment(&mut set, target, scalar)?;
                }
                tree::Assignment::Multiple { columns, value } => {
                    let mut targets = Vec::with_capacity(columns.len());
                    for column in columns {
                        targets.push(self.target_column(relation, column)?);
                    }
                    let at = value.span.start;
                    let operands = match &value.kind {
                        ExprKind::Row(row) => {
                            if row.items.len() != targets.len() {
                                let message = "number of columns does not match number of values";
                                return Err(self.error(SqlState::SYNTAX_ERROR, message, at));
                            }
                            for (item, target) in row.items.iter().zip(targets) {
                                let scalar = self.assigned_value(item, relation, target, clause)?;
                                self.add_assignment(&mut set, target, scalar)?;
                            }
                            continue;
                        }
                        ExprKind::Subquery(query) => self.within(clause, |binder| binder.row_query(query))?,
                        _ => {
                            let message = "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression";
                            return Err(self.unsupported_as(message, at));
                        }
                    };
                    if operands.len() != targets.len() {
                        let message = "number of columns does not match number of values";
                        return Err(self.error(SqlState::SYNTAX_ERROR, message, at));
                    }
                    for (operand, target) in operands.into_iter().zip(targets) {
                        let attribute = &relation.columns[target.place];
                        self.check_updated(attribute)?;
                        let scalar = self.assigned_to(operand, attribute, target)?.scalar;
                        self.add_assignment(&mut set, target, scalar)?;
                    }
                }
            }
        }
        Ok(set.values)
    }

    fn assigned_value(
        &mut self,
        value: &Expr,
        relation: &Relation,
        target: TargetPlace<'_>,
        clause: Clause,
    ) -> Result<Scalar> {
        let attribute = &relation.columns[target.place];
        if matches!(value.kind, ExprKind::Default) {
            self.check_default(target)?;
            return self.default_of(attribute);
        }
        self.check_updated(attribute)?;
        let operand = self.within(clause, |binder| binder.expression(value))?;
        Ok(self.assigned_to(operand, attribute, target)?.scalar)
    }

    fn check_updated(&self, attribute: &Attribute) -> Result<()> {
        let detail = match attribute.generated {
            Generated::Stored => "is a generated column.",
            Generated::IdentityAlways => "is an identity column defined as GENERATED ALWAYS.",
            _ => return Ok(()),
        };
        let name = &attribute.name;
        let message = format!("column \"{name}\" can only be updated to DEFAULT");
        Err(Error::new(GENERATED_ALWAYS, message).with_detail(format!("Column \"{name}\" {detail}")))
    }

    fn add_assignment(&mut self, set: &mut Set<'_>, target: TargetPlace<'_>, value: Scalar) -> Result<()> {
        let attribute = &set.relation.columns[target.place];
        let is_part = !target.path.is_empty();
        let is_set = set.values.iter().any(|(number, _)| *number == attribute.number);
        if is_set && !(is_part && set.parts.contains(&target.place)) {
            let message = format!("multiple assignments to same column \"{}\"", attribute.name);
            return Err(Error::new(SqlState::SYNTAX_ERROR, message));
        }
        let base = match is_part && !is_set {
            true => {
                set.parts.push(target.place);
                Some(self.column_of_item(set.item, &attribute.name, target.at))
            }
            false => None,
        };
        self.add_target(&mut set.values, attribute, target, base, value, set.clause)
    }

    /// A column of an item of the query at hand.
    fn column_of_item(&mut self, item: usize, name: &str, at: u32) -> Scalar {
        let level = self.levels.last().expect("a statement is being bound");
        let entry = &level.items[item];
        let column = entry.columns.iter().find(|column| &*column.name == name);
        let column = column.expect("the table has its columns").clone();
        let (alias, owner) = (level.tables[entry.table].alias.clone(), level.id);
        self.reference(column, alias, owner, at).scalar
    }

    fn delete(&mut self, delete: &tree::Delete) -> Result<Rows> {
        let (relation, target) = self.changed_table(&delete.table.name, "delete from")?;
        let at = delete.table.name.span().start;
        let alias = delete.alias.as_ref().map(|name| tree::Alias { name: name.clone(), columns: Vec::new() });
        let (scan, item) = self.scan(relation.clone(), alias.as_ref(), at)?;
        let node = self.within(Clause::From, |binder| binder.joined_items(Some(scan), &delete.using))?;
        let node = self.where_clause(node.expect("the target is there"), delete.condition.as_ref())?;
        let row = self.row_id(item).expect("tables have row ids");
        let alias = delete.alias.as_ref().map(|alias| &*alias.text);
        let others = self.others(item);
        let images = self.image_table(&relation, alias, true, Some(row), false);
        self.level().items.extend(others);
        let node = self.plan.add(Operator::Delete { input: node, target, row, images });
        self.returning(node, &delete.returning)
    }
}

/// The assignments of a statement so far.
struct Set<'r> {
    relation: &'r Relation,
    item: usize,
    clause: Clause,
    /// By attribute.
    values: Vec<(i16, Scalar)>,
    /// The places of the columns of which parts have been assigned.
    parts: Vec<usize>,
}

pub(super) fn is_identity(attribute: &Attribute) -> bool {
    matches!(attribute.generated, Generated::IdentityAlways | Generated::IdentityByDefault)
}

/// Whether a query is nothing but its body.
fn is_bare(query: &tree::Query) -> bool {
    query.with.is_none()
        && query.order_by.is_empty()
        && query.limit.is_none()
        && query.offset.is_none()
        && query.locking.is_empty()
}
