//! Turning queries that clients wrote for PostgreSQL's catalogs into ones that DataFusion plans.
//!
//! - `pg_catalog.` in front of functions, types and operators goes, `COLLATE` of the default order too.
//! - A type like `regclass` is an oid that shows itself as a name. We have no such type: a cast to it
//!   is the oid, except where its text is wanted: under a cast to text, or as a result column.
//! - A query over a relation that is always empty becomes an empty query with the same columns. The
//!   parameters it loses are mentioned elsewhere, so that they still have a type.
//! - A subquery for one value over the catalogs becomes an aggregate, which DataFusion demands of
//!   subqueries that refer outside; it yields one row at most anyway.
//! - `ARRAY(SELECT …)` becomes `array((SELECT array_agg(…)))`, which is empty where that is NULL; functions that yield rows in the SELECT list
//!   become `unnest` of functions that yield lists.
//! - Composite values become columns ([`composite`]); some functions in FROM become subqueries ([`from`]);
//!   a list that is written as an array's text becomes one of expressions.

use super::{composite, from, relation};
use crate::output_name::output_name;
use crate::statement::fold;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, CaseWhen, CastKind, DataType, Distinct, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentClause, FunctionArgumentList, FunctionArguments, GroupByExpr, Ident,
    JoinOperator, ObjectName, ObjectNamePart, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr,
    TableFactor, Value, Values, Visit, VisitMut, Visitor, VisitorMut, visit_expressions,
};
use std::ops::ControlFlow;

/// The oid types: name, the function that yields the oid, the one that yields the text.
const OID_TYPES: [(&str, &str, &str); 5] = [
    ("regclass", "firn_regclass_oid", "firn_regclass_name"),
    ("regtype", "firn_regtype_oid", "firn_regtype_name"),
    ("regnamespace", "firn_regnamespace_oid", "firn_regnamespace_name"),
    ("regproc", "firn_regproc_oid", "firn_regproc_name"),
    ("regrole", "firn_regrole_oid", "firn_regrole_name"),
];

/// Columns of PostgreSQL's vector types, which show themselves as numbers with blanks between.
pub(super) const VECTORS: [&str; 6] =
    ["indkey", "indcollation", "indclass", "indoption", "proargtypes", "tgattr"];

/// Columns of PostgreSQL's type regproc, which show themselves as names of functions.
const PROCEDURES: [&str; 7] =
    ["typinput", "typoutput", "typreceive", "typsend", "typmodin", "typmodout", "typsubscript"];

/// Ends the name of a result column of JSON. Users do not see it: it lies behind
/// [`firn_exec::types::NAME_END`].
pub const JSON_MARK: &str = "\0json";

/// Aggregates that may stand alone in a SELECT list, which then yields a row even of nothing.
const AGGREGATES: [&str; 13] = [
    "count",
    "max",
    "min",
    "sum",
    "avg",
    "array_agg",
    "string_agg",
    "bool_and",
    "bool_or",
    "every",
    "first_value",
    "last_value",
    "json_agg",
];

/// Rewrites a query in place. One that has nothing of the kind stays as it is.
pub fn rewrite_query(query: &mut Query) {
    if let SetExpr::Select(select) = query.body.as_mut() {
        show_special_columns(select);
        mark_json(select);
    }
    let parameters = parameters_of(query);
    let _: ControlFlow<()> = query.visit(&mut Rewriter);
    if !parameters.is_empty() {
        let kept = parameters_of(query);
        for parameter in parameters.into_iter().filter(|parameter| !kept.contains(parameter)) {
            mention(&mut query.body, parameter);
        }
    }
}

/// The parameters that a query names.
fn parameters_of(query: &Query) -> Vec<String> {
    let mut found = Vec::new();
    let _: ControlFlow<()> = visit_expressions(query, |expr| {
        if let Expr::Value(value) = expr
            && let Value::Placeholder(name) = &value.value
            && !found.contains(name)
        {
            found.push(name.clone());
        }
        ControlFlow::Continue(())
    });
    found
}

/// Names a parameter in a condition that always holds. Its type is not known otherwise, although the
/// client will send it.
fn mention(body: &mut SetExpr, parameter: String) {
    match body {
        SetExpr::Select(select) => {
            let parameter = Expr::Value(Value::Placeholder(parameter).into());
            let holds = Expr::BinaryOp {
                left: Box::new(Expr::Value(Value::Boolean(true).into())),
                op: BinaryOperator::Or,
                right: Box::new(Expr::IsNull(Box::new(parameter))),
            };
            let condition = select.selection.take().map(|condition| Expr::Nested(Box::new(condition)));
            select.selection = Some(and(condition, Expr::Nested(Box::new(holds))));
        }
        SetExpr::Query(query) => mention(&mut query.body, parameter),
        SetExpr::SetOperation { left, .. } => mention(left, parameter),
        _ => {}
    }
}

/// Rewrites an expression in place.
pub fn rewrite_expression(expr: &mut Expr) {
    let _: ControlFlow<()> = expr.visit(&mut Rewriter);
}

struct Rewriter;

impl VisitorMut for Rewriter {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let only_select = matches!(*query.body, SetExpr::Select(_));
        if empty_selects(&mut query.body) && only_select {
            // The order may name columns that are gone.
            query.order_by = None;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        composite::flatten(&mut select.projection);
        for item in &mut select.projection {
            show_oid_type(item);
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                count_instead_of_exists(expr);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } = factor {
            strip_catalog(name);
        }
        from::rewrite(factor);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        // What a rule leaves behind may be a case for another one.
        while rewrite_expr(expr) {}
        ControlFlow::Continue(())
    }
}

/// Applies one rule; returns whether the expression is another one now that wants a look.
fn rewrite_expr(expr: &mut Expr) -> bool {
    match expr {
        Expr::Collate { expr: inner, collation } if is_default_collation(collation) => {
            *expr = take(inner);
            true
        }
        Expr::BinaryOp { op, .. } => {
            if let BinaryOperator::PGCustomBinaryOperator(parts) = op
                && let Some(plain) = plain_operator(parts)
            {
                *op = plain;
            }
            false
        }
        Expr::Cast { expr: inner, data_type, .. } => {
            if is_text(data_type)
                && let Some(name) = as_name(inner)
            {
                *expr = name;
                return true;
            }
            if is_text(data_type) && is_procedure(inner) {
                *expr = call("firn_regproc_name", vec![take(inner)]);
                return true;
            }
            if let Some((_, oid, _)) = oid_type(data_type) {
                *expr = call(oid, vec![take(inner)]);
                return false;
            }
            if let Some(plain) = plain_type(data_type) {
                *data_type = plain;
            }
            false
        }
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => {
            listed(left, right, false).map(|list| *expr = list).is_some()
        }
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => {
            listed(left, right, true).map(|list| *expr = list).is_some()
        }
        Expr::CompoundFieldAccess { root, access_chain } => match composite::access(root, access_chain) {
            Some(plain) => {
                *expr = plain;
                true
            }
            None => false,
        },
        Expr::Subquery(query) => match one_value(query) {
            Some(value) => {
                *expr = value;
                true
            }
            None => false,
        },
        Expr::Exists { subquery, negated } if is_empty_query(subquery) => {
            *expr = Expr::Value(Value::Boolean(*negated).into());
            false
        }
        Expr::Function(function) => rewrite_function(function).is_some_and(|new| {
            *expr = new;
            true
        }),
        _ => false,
    }
}

/// `x = ANY ('{a,b}'::text[])` as `x IN ('a', 'b')`.
fn listed(left: &mut Expr, right: &Expr, negated: bool) -> Option<Expr> {
    let Expr::Cast { expr: literal, data_type: DataType::Array(_), .. } = unnested(right) else {
        return None;
    };
    let Expr::Value(literal) = literal.as_ref() else { return None };
    let Value::SingleQuotedString(text) = &literal.value else { return None };
    let elements = array_elements(text).filter(|elements| !elements.is_empty())?;
    let element = |text: Option<String>| match text {
        None => null(),
        Some(text) => Expr::Value(Value::SingleQuotedString(text).into()),
    };
    Some(Expr::InList {
        expr: Box::new(take(left)),
        list: elements.into_iter().map(element).collect(),
        negated,
    })
}

/// The elements of an array of one dimension in PostgreSQL's notation, `{a,"b,c",NULL}`.
fn array_elements(text: &str) -> Option<Vec<Option<String>>> {
    let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.chars();
    let mut elements = Vec::new();
    let (mut element, mut quoted, mut was_quoted) = (String::new(), false, false);
    loop {
        match rest.next() {
            Some('{' | '}') if !quoted => return None,
            Some('\\') => element.push(rest.next()?),
            Some('"') => {
                quoted = !quoted;
                was_quoted = true;
            }
            end @ (Some(',') | None) if !quoted => {
                if end.is_none() && elements.is_empty() && element.is_empty() && !was_quoted {
                    return Some(elements);
                }
                let text = std::mem::take(&mut element);
                elements.push(match std::mem::take(&mut was_quoted) {
                    true => Some(text),
                    false => Some(text.trim().to_owned()).filter(|text| !text.eq_ignore_ascii_case("null")),
                });
                if end.is_none() {
                    return Some(elements);
                }
            }
            Some(character) => element.push(character),
            None => return None,
        }
    }
}

fn unnested(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => unnested(inner),
        expr => expr,
    }
}

/// What a call becomes; `None` if it stays, perhaps under a shorter name.
fn rewrite_function(function: &mut Function) -> Option<Expr> {
    strip_catalog(&mut function.name);
    // A name in quotes is the same one.
    let name = match function.name.0.len() {
        1 => function_name(function),
        _ => String::new(),
    };
    match &mut function.args {
        FunctionArguments::Subquery(query) if name == "array" && is_empty_query(query) => Some(Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(null()),
            data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(DataType::Text), None)),
            array: false,
            format: None,
        }),
        FunctionArguments::Subquery(query) if name == "array" => {
            let query = array_of_rows(std::mem::replace(query, Box::new(empty_query())))?;
            Some(call("array", vec![Expr::Subquery(query)]))
        }
        // Sequences go by their names.
        FunctionArguments::List(arguments) if matches!(name.as_str(), "nextval" | "currval" | "setval") => {
            if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(sequence))) = arguments.args.first_mut()
                && let Expr::Cast { expr: inner, data_type, .. } = sequence
                && oid_type(data_type).is_some_and(|(ty, ..)| ty == "regclass")
            {
                *sequence = take(inner);
            }
            None
        }
        FunctionArguments::List(_) if name == "generate_subscripts" => {
            function.name = ObjectName::from(vec![Ident::new("firn_subscripts")]);
            let list = Expr::Function(function.clone());
            Some(call("unnest", vec![list]))
        }
        _ => None,
    }
}

/// Takes `pg_catalog` and `information_schema` off a name of two parts.
fn strip_catalog(name: &mut ObjectName) {
    if let [ObjectNamePart::Identifier(schema), _] = name.0.as_slice()
        && matches!(schema.value.to_ascii_lowercase().as_str(), "pg_catalog" | "information_schema")
    {
        name.0.remove(0);
    }
}

/// Whether a collation, with `pg_catalog` in front or not, orders strings by their bytes as we do.
pub(crate) fn is_default_collation(collation: &ObjectName) -> bool {
    let parts: Option<Vec<String>> =
        collation.0.iter().map(|part| Some(part.as_ident()?.value.to_ascii_lowercase())).collect();
    let mut parts = parts.unwrap_or_default();
    if parts.len() == 2 && parts[0] == "pg_catalog" {
        parts.remove(0);
    }
    matches!(&*parts, [name] if ["default", "c", "posix", "ucs_basic"].contains(&name.as_str()))
}

/// `OPERATOR(pg_catalog.~)` as `~`.
fn plain_operator(parts: &[String]) -> Option<BinaryOperator> {
    Some(match parts.last()?.as_str() {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "%" => BinaryOperator::Modulo,
        "||" => BinaryOperator::StringConcat,
        _ => return None,
    })
}

/// The last part of a type's name, if the parser did not know the type.
fn custom_name(data_type: &DataType) -> Option<String> {
    match data_type {
        DataType::Custom(name, modifiers) if modifiers.is_empty() => {
            let last = name.0.last().and_then(ObjectNamePart::as_ident)?;
            Some(last.value.to_ascii_lowercase())
        }
        _ => None,
    }
}

fn oid_type(data_type: &DataType) -> Option<(&'static str, &'static str, &'static str)> {
    let name = match data_type {
        DataType::Regclass => "regclass".to_owned(),
        other => custom_name(other)?,
    };
    OID_TYPES.into_iter().find(|(ty, ..)| *ty == name)
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Text | DataType::Varchar(None) | DataType::CharacterVarying(None) => true,
        other => matches!(custom_name(other).as_deref(), Some("text" | "varchar" | "name")),
    }
}

/// A type that the parser or DataFusion knows for one of PostgreSQL's own.
fn plain_type(data_type: &DataType) -> Option<DataType> {
    if let DataType::Array(element) = data_type {
        let ArrayElemTypeDef::SquareBracket(element, size) = element else { return None };
        let element = plain_type(element)?;
        return Some(DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(element), *size)));
    }
    let name = custom_name(data_type)?;
    Some(match name.as_str() {
        "oid" | "xid" | "cid" | "cardinal_number" => DataType::Int(None),
        "name" | "char" | "cstring" | "aclitem" | "pg_node_tree" | "sql_identifier" | "character_data"
        | "yes_or_no" => DataType::Text,
        name => {
            // pg_catalog.int4 and the like, without the schema.
            let DataType::Custom(parts, _) = data_type else { return None };
            (parts.0.len() > 1).then(|| crate::parse::parse_type(name).ok()).flatten()?
        }
    })
}

/// The text of an oid type: `x::regclass` or `to_regclass(x)` as a name.
fn as_name(expr: &mut Expr) -> Option<Expr> {
    match expr {
        Expr::Nested(inner) => as_name(inner),
        Expr::Cast { expr: inner, data_type, .. } => {
            let (_, _, name) = oid_type(data_type)?;
            Some(call(name, vec![take(inner)]))
        }
        Expr::Function(function) => {
            let mut called = function.name.clone();
            strip_catalog(&mut called);
            let [ObjectNamePart::Identifier(called)] = called.0.as_slice() else { return None };
            let called = called.value.to_ascii_lowercase();
            let (_, _, name) = OID_TYPES.into_iter().find(|(ty, ..)| called == format!("to_{ty}"))?;
            Some(call(name, vec![take(expr)]))
        }
        _ => None,
    }
}

/// A result column of an oid type is shown as a name.
fn show_oid_type(item: &mut SelectItem) {
    match item {
        SelectItem::ExprWithAlias { expr, .. } => {
            if let Some(name) = as_name(expr) {
                *expr = name;
            }
        }
        SelectItem::UnnamedExpr(expr) => {
            let alias = column_name(expr);
            if let Some(name) = as_name(expr) {
                *item = SelectItem::ExprWithAlias { expr: name, alias: Ident::with_quote('"', alias) };
            }
        }
        _ => {}
    }
}

/// Whether it is a column that holds functions.
fn is_procedure(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        && PROCEDURES.contains(&column_name(expr).as_str())
}

/// Vectors and functions in the result of a query over `pg_index` or the like are shown as PostgreSQL shows them.
fn show_special_columns(select: &mut Select) {
    let over_catalog = select.from.iter().any(|from| {
        std::iter::once(&from.relation)
            .chain(from.joins.iter().map(|join| &join.relation))
            .any(|factor| catalog_relation(factor).is_some())
    });
    if !over_catalog {
        return;
    }
    for item in &mut select.projection {
        let expr = match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr,
            _ => continue,
        };
        let name = column_name(expr);
        if !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
            continue;
        }
        let shown = if VECTORS.contains(&name.as_str()) {
            let blank = Expr::Value(Value::SingleQuotedString(" ".to_owned()).into());
            call("array_to_string", vec![take(expr), blank])
        } else if is_procedure(expr) {
            call("firn_regproc_name", vec![take(expr)])
        } else {
            continue;
        };
        match item {
            SelectItem::ExprWithAlias { expr, .. } => *expr = shown,
            item => *item = SelectItem::ExprWithAlias { expr: shown, alias: Ident::with_quote('"', name) },
        }
    }
}

/// JSON in the result of a query is to be announced as such, although it is text to us.
fn mark_json(select: &mut Select) {
    for item in &mut select.projection {
        let SelectItem::ExprWithAlias { expr, alias } = item else { continue };
        let builds_json = visit_expressions(expr, |expr| match expr {
            Expr::Function(function) if function_name(function) == "json_build_object" => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        });
        if builds_json.is_break() {
            *alias = Ident::with_quote('"', composite::folded(alias) + JSON_MARK);
        }
    }
}

/// The name that PostgreSQL gives to a result column.
fn column_name(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(name) => name.value.clone(),
        Expr::CompoundIdentifier(names) => names.last().map_or_else(String::new, |name| name.value.clone()),
        Expr::Nested(inner) => column_name(inner),
        Expr::Cast { expr: inner, data_type, .. } => match inner.as_ref() {
            Expr::Value(_) => {
                custom_name(data_type).unwrap_or_else(|| data_type.to_string().to_ascii_lowercase())
            }
            inner => column_name(inner),
        },
        Expr::Function(function) => function_name(function),
        _ => "?column?".to_owned(),
    }
}

/// The relation of the catalogs that a FROM item names.
fn catalog_relation(factor: &TableFactor) -> Option<&'static relation::Relation> {
    let TableFactor::Table { name, args: None, .. } = factor else { return None };
    let part = |position: usize| {
        name.0.get(position).and_then(ObjectNamePart::as_ident).map(|name| name.value.as_str())
    };
    match (name.0.len(), part(0)?) {
        (1, relation) => relation::find(relation),
        (2, "pg_catalog") => relation::find(part(1)?),
        (2, "information_schema") => crate::information_schema::find(part(1)?),
        _ => None,
    }
}

fn is_always_empty(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Derived { subquery, .. } => is_empty_query(subquery),
        // Lists that are NULL in every row of our catalogs.
        TableFactor::Table { name, args: Some(arguments), .. } => {
            let function = name.0.last().and_then(ObjectNamePart::as_ident).map(|name| name.value.as_str());
            matches!(function, Some("unnest" | "aclexplode"))
                && arguments.args.iter().any(|argument| match argument {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => {
                        column_name(expr).ends_with("acl") || column_name(expr).ends_with("options")
                    }
                    _ => false,
                })
        }
        factor => catalog_relation(factor).is_some_and(relation::Relation::is_always_empty),
    }
}

/// Whether a SELECT yields no row because a relation that it needs rows of has none.
fn is_empty_select(select: &Select) -> bool {
    if has_aggregate(select) {
        return false;
    }
    let mut empty = false;
    for from in &select.from {
        let mut here = is_always_empty(&from.relation);
        for join in &from.joins {
            let joined = is_always_empty(&join.relation);
            match join.join_operator {
                JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_) => here |= joined,
                JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => {}
                _ => return false,
            }
        }
        empty |= here;
    }
    empty
}

/// Whether a SELECT without GROUP BY aggregates: it yields a row even of nothing.
fn has_aggregate(select: &Select) -> bool {
    let grouped =
        !matches!(&select.group_by, GroupByExpr::Expressions(expressions, _) if expressions.is_empty());
    !grouped
        && select.projection.iter().any(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                contains_aggregate(expr)
            }
            _ => false,
        })
}

/// Whether an expression calls an aggregate, not counting subqueries.
fn contains_aggregate(expr: &Expr) -> bool {
    struct Finder {
        /// How many subqueries the visit is inside of.
        depth: usize,
    }

    impl Visitor for Finder {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.depth += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.depth -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(function)
                    if self.depth == 0 && AGGREGATES.contains(&function_name(function).as_str()) =>
                {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }

    expr.visit(&mut Finder { depth: 0 }).is_break()
}

/// The name of a function without its schema.
pub(super) fn function_name(function: &Function) -> String {
    let last = function.name.0.last().and_then(ObjectNamePart::as_ident);
    last.map_or_else(String::new, |name| name.value.to_ascii_lowercase())
}

fn is_empty_query(query: &Query) -> bool {
    match query.body.as_ref() {
        SetExpr::Select(select) => is_empty_select(select),
        _ => false,
    }
}

/// Empties the SELECTs of a query body that yield nothing; returns whether all of them do.
fn empty_selects(body: &mut SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => {
            let empty = is_empty_select(select);
            if empty {
                empty_select(select);
            }
            empty
        }
        SetExpr::SetOperation { left, right, .. } => {
            let left = empty_selects(left);
            empty_selects(right) && left
        }
        _ => false,
    }
}

/// Makes a SELECT one of NULLs of the same names, and no row.
fn empty_select(select: &mut Select) {
    let mut names: Vec<String> = Vec::new();
    for item in &mut select.projection {
        let mut name = match item {
            SelectItem::UnnamedExpr(expr) => column_name(expr),
            SelectItem::ExprWithAlias { alias, .. } => alias.value.clone(),
            // All columns: leave it to be planned.
            _ => return,
        };
        while names.contains(&name) {
            name.push('_');
        }
        *item = SelectItem::ExprWithAlias { expr: null(), alias: Ident::with_quote('"', name.clone()) };
        names.push(name);
    }
    select.from.clear();
    select.selection = Some(Expr::Value(Value::Boolean(false).into()));
    select.group_by = GroupByExpr::Expressions(Vec::new(), Vec::new());
    select.having = None;
    select.distinct = None;
}

/// Makes a subquery for one value fit for DataFusion, if it is over the catalogs only; returns what
/// it is to be replaced by.
fn one_value(query: &mut Query) -> Option<Expr> {
    if is_empty_query(query) {
        return Some(null());
    }
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    if !is_over_catalogs(select) || has_aggregate(select) {
        return None;
    }
    if let Some(options) = identity_options(select) {
        return Some(options);
    }
    let condition = take_outer_conditions(select);
    aggregate(query, "first_value");
    let condition = condition?;
    // What only depends on the outer row decides beforehand.
    let value = std::mem::replace(query, empty_query());
    let when = CaseWhen { condition, result: Expr::Subquery(Box::new(value)) };
    Some(Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![when],
        else_result: None,
    })
}

fn is_over_catalogs(select: &Select) -> bool {
    !select.from.is_empty()
        && select.from.iter().all(|from| {
            catalog_relation(&from.relation).is_some()
                && from.joins.iter().all(|join| catalog_relation(&join.relation).is_some())
        })
}

/// SQLAlchemy asks for the options of an identity column's sequence in a way that DataFusion cannot
/// decorrelate: `SELECT json_build_object(…) FROM pg_sequence WHERE … pg_get_serial_sequence(…) …`.
fn identity_options(select: &Select) -> Option<Expr> {
    let [
        SelectItem::UnnamedExpr(Expr::Function(function))
        | SelectItem::ExprWithAlias { expr: Expr::Function(function), .. },
    ] = select.projection.as_slice()
    else {
        return None;
    };
    if function_name(function) != "json_build_object" {
        return None;
    }
    let found = visit_expressions(select.selection.as_ref()?, |expr| match expr {
        Expr::Function(function) if function_name(function) == "pg_get_serial_sequence" => {
            ControlFlow::Break(expr.clone())
        }
        _ => ControlFlow::Continue(()),
    });
    match found {
        ControlFlow::Break(sequence) => Some(call("firn_identity_options", vec![sequence])),
        ControlFlow::Continue(()) => None,
    }
}

/// Takes the conditions out of a WHERE that name no relation of its SELECT.
fn take_outer_conditions(select: &mut Select) -> Option<Expr> {
    let relations: Vec<String> = select
        .from
        .iter()
        .flat_map(|from| std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)))
        .filter_map(relation_alias)
        .collect();
    let mut inner = None;
    let mut outer = None;
    let mut open: Vec<Expr> = select.selection.take().into_iter().collect();
    while let Some(condition) = open.pop() {
        match condition {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                open.push(*right);
                open.push(*left);
            }
            condition if names_only_others(&condition, &relations) => outer = Some(and(outer, condition)),
            condition => inner = Some(and(inner, condition)),
        }
    }
    select.selection = inner;
    outer
}

fn and(left: Option<Expr>, right: Expr) -> Expr {
    match left {
        None => right,
        Some(left) => {
            Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::And, right: Box::new(right) }
        }
    }
}

/// The name by which columns of a FROM item are qualified.
fn relation_alias(factor: &TableFactor) -> Option<String> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. } => Some(alias.name.value.clone()),
        TableFactor::Table { name, .. } => name.0.last()?.as_ident().map(|name| name.value.clone()),
        _ => None,
    }
}

/// Whether an expression names columns, all of them qualified by other relations than these.
fn names_only_others(expr: &Expr, relations: &[String]) -> bool {
    let mut others = 0;
    let flow = visit_expressions(expr, |expr| match expr {
        Expr::CompoundIdentifier(names) if names.len() >= 2 => {
            if relations.contains(&names[names.len() - 2].value) {
                return ControlFlow::Break(());
            }
            others += 1;
            ControlFlow::Continue(())
        }
        Expr::Identifier(_) | Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    others > 0 && flow.is_continue()
}

/// EXISTS outside of a WHERE, which DataFusion does not plan, by counting.
fn count_instead_of_exists(expr: &mut Expr) {
    match expr {
        Expr::BinaryOp { left, right, .. } => {
            count_instead_of_exists(left);
            count_instead_of_exists(right);
        }
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => count_instead_of_exists(inner),
        Expr::Exists { subquery, negated } => {
            let SetExpr::Select(select) = subquery.body.as_mut() else { return };
            if !is_over_catalogs(select) || has_aggregate(select) || is_empty_select(select) {
                return;
            }
            let zero = || Expr::Value(Value::Number("0".to_owned(), false).into());
            let mut counted = empty_query();
            std::mem::swap(&mut counted, subquery);
            let SetExpr::Select(select) = counted.body.as_mut() else { unreachable!("matched above") };
            select.projection = vec![SelectItem::UnnamedExpr(call("count", vec![zero()]))];
            let op = if *negated { BinaryOperator::Eq } else { BinaryOperator::Gt };
            let left = Box::new(Expr::Subquery(Box::new(counted)));
            *expr = Expr::BinaryOp { left, op, right: Box::new(zero()) };
        }
        _ => {}
    }
}

/// Wraps the one column of a plain query in an aggregate, with the query's order inside. Returns
/// whether the query was plain enough.
fn aggregate(query: &mut Query, function: &str) -> bool {
    let SetExpr::Select(select) = query.body.as_mut() else { return false };
    let grouped =
        !matches!(&select.group_by, GroupByExpr::Expressions(expressions, _) if expressions.is_empty());
    let [item] = select.projection.as_mut_slice() else { return false };
    if grouped || select.distinct.is_some() || query.fetch.is_some() {
        return false;
    }
    if query.limit_clause.is_some() && function != "first_value" {
        return false;
    }
    let called = output_of(item);
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else { return false };
    let mut order: Vec<OrderByExpr> = match query.order_by.take().map(|order| order.kind) {
        Some(OrderByKind::Expressions(order)) => order,
        _ => Vec::new(),
    };
    for by in &mut order {
        // ORDER BY 1 means the column itself, as its name does.
        let is_named = matches!(&by.expr, Expr::Identifier(name) if called.as_deref() == Some(&fold(name)));
        if is_named || matches!(by.expr, Expr::Value(_)) {
            by.expr = expr.clone();
        }
    }
    query.limit_clause = None;
    let mut arguments = FunctionArgumentList {
        duplicate_treatment: None,
        args: vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(take(expr)))],
        clauses: Vec::new(),
    };
    if !order.is_empty() {
        arguments.clauses.push(FunctionArgumentClause::OrderBy(order));
    }
    *expr = function_call(function, FunctionArguments::List(arguments));
    true
}

/// `SELECT array_agg(…)` of the rows of a query. What they are ordered by becomes columns of theirs. `None` if that cannot be told of a
/// row: where they are made of others afterwards, or equal ones left out.
fn array_of_rows(mut query: Box<Query>) -> Option<Box<Query>> {
    let is_plain = match query.body.as_ref() {
        SetExpr::Select(select) => {
            select.having.is_none() && !select.projection.iter().any(makes_or_joins_rows)
        }
        _ => false,
    };
    if is_plain && aggregate(&mut query, "array_agg") {
        return Some(query);
    }
    let order = match &query.order_by {
        None => Vec::new(),
        Some(order) => match &order.kind {
            OrderByKind::Expressions(order) => order.clone(),
            OrderByKind::All(_) => return None,
        },
    };
    let picks_by_order = matches!(query.body.as_ref(), SetExpr::Select(select) if matches!(select.distinct, Some(Distinct::On(_))));
    let mut columns = vec![Ident::with_quote('"', "array element")];
    let mut by_columns = Vec::with_capacity(order.len());
    let mut own_order = query.order_by.take();
    for (place, by) in order.into_iter().enumerate() {
        let column = match is_first_output(&query.body, &by.expr) {
            true => columns[0].clone(),
            false => {
                let name = Ident::with_quote('"', format!("array order {}", columns.len()));
                add_output(&mut query.body, by.expr.clone(), name.clone())?;
                columns.push(name.clone());
                // By the column, as a name in it might be taken for that of an output. Rows that are picked are picked by what is written.
                if let Some(OrderByKind::Expressions(own)) = own_order.as_mut().map(|own| &mut own.kind)
                    && !picks_by_order
                {
                    own[place].expr = Expr::Identifier(name.clone());
                }
                name
            }
        };
        by_columns.push(OrderByExpr { expr: Expr::Identifier(column), ..by });
    }
    if query.limit_clause.is_some() || query.fetch.is_some() || picks_by_order {
        query.order_by = own_order;
    }
    let names: Vec<String> = columns.iter().map(Ident::to_string).collect();
    let text = format!("SELECT array_agg({}) FROM (SELECT 1) AS array_rows ({})", names[0], names.join(", "));
    let mut rows = crate::parse::parse_query(&text).expect("it is a query");
    let SetExpr::Select(select) = rows.body.as_mut() else { unreachable!("it is a SELECT") };
    if let TableFactor::Derived { subquery, .. } = &mut select.from[0].relation {
        *subquery = query;
    }
    if let SelectItem::UnnamedExpr(Expr::Function(function)) = &mut select.projection[0]
        && let FunctionArguments::List(arguments) = &mut function.args
        && !by_columns.is_empty()
    {
        arguments.clauses.push(FunctionArgumentClause::OrderBy(by_columns));
    }
    Some(rows)
}

/// Adds a column that rows are ordered by to their outputs. `None` if it has no value for each.
fn add_output(body: &mut SetExpr, by: Expr, alias: Ident) -> Option<()> {
    let SetExpr::Select(select) = body else { return None };
    let makes_rows = |item: &SelectItem| calls_any(item, &OF_ROWS);
    if matches!(by, Expr::Value(_))
        || matches!(select.distinct, Some(Distinct::Distinct))
        || select.projection.iter().any(makes_rows)
    {
        return None;
    }
    select.projection.push(SelectItem::ExprWithAlias { expr: by, alias });
    Some(())
}

const OF_ROWS: [&str; 4] = ["unnest", "generate_series", "generate_subscripts", "regexp_split_to_table"];

/// Whether an output yields several rows of one, or one of several.
fn makes_or_joins_rows(item: &SelectItem) -> bool {
    let has_window = visit_expressions(item, |expr| match expr {
        Expr::Function(function) if function.over.is_some() => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    has_window.is_break() || calls_any(item, &AGGREGATES) || calls_any(item, &OF_ROWS)
}

/// Whether an output calls a function of such a name, but as a window.
fn calls_any(item: &SelectItem, names: &[&str]) -> bool {
    let found = visit_expressions(item, |expr| match expr {
        Expr::Function(function)
            if function.over.is_none() && names.contains(&function_name(function).as_str()) =>
        {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Whether an expression that rows are ordered by is the first column that they have.
fn is_first_output(body: &SetExpr, by: &Expr) -> bool {
    match by {
        Expr::Value(value) => matches!(&value.value, Value::Number(digits, _) if digits == "1"),
        by => match body {
            SetExpr::Select(select) => match select.projection.first() {
                Some(item) => match (item, by) {
                    // The name of an output comes before a column's.
                    (item, Expr::Identifier(name)) if output_of(item).as_deref() == Some(&fold(name)) => true,
                    (SelectItem::UnnamedExpr(output), by) => output == by,
                    (SelectItem::ExprWithAlias { expr, .. }, by) => {
                        expr == by && !matches!(by, Expr::Identifier(_))
                    }
                    _ => false,
                },
                None => false,
            },
            SetExpr::Query(query) => is_first_output(&query.body, by),
            SetExpr::SetOperation { left, .. } => is_first_output(left, by),
            _ => false,
        },
    }
}

/// What an output is called.
fn output_of(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expression) => Some(output_name(expression)),
        SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
        _ => None,
    }
}

fn null() -> Expr {
    Expr::Value(Value::Null.into())
}

fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, null())
}

fn empty_query() -> Query {
    Query {
        with: None,
        body: Box::new(SetExpr::Values(Values {
            explicit_row: false,
            value_keyword: false,
            rows: Vec::new(),
        })),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

pub(super) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let args = arguments.into_iter().map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))).collect();
    function_call(
        name,
        FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
    )
}

fn function_call(name: &str, args: FunctionArguments) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args,
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_in_postgresql_s_notation() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(array_elements("{}"), Some(Vec::new()));
        assert_eq!(array_elements("{a, b ,null}"), Some(vec![text("a"), text("b"), None]));
        assert_eq!(
            array_elements(r#"{"null","a,\"b","",x}"#),
            Some(vec![text("null"), text("a,\"b"), text(""), text("x")])
        );
        for wrong in ["a", "{a", "{\"a}", "{{a}}"] {
            assert_eq!(array_elements(wrong), None, "{wrong}");
        }
    }
}
