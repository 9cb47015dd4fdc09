//! The names of objects as the text of values of `regclass` and its relatives, and the objects that names denote.

use super::definitions::{number, quote_identifier, split_name};
use super::facts::{COLLATIONS, procedures};
use super::{OWNER, Source, types};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, TypeId};
use firn_vector::registry::{Function, FunctionId, Operator, OperatorId};

/// An object as the text of a value of a type such as `regclass`.
pub(crate) fn object_name(source: &Source, ty: TypeId, oid: u32) -> Option<String> {
    let wide = i64::from(oid);
    match ty {
        TypeId::REGCLASS => source.object(wide).map(|object| source.name_to_find(&object)),
        TypeId::REGTYPE => types::format_type(wide, None),
        TypeId::REGNAMESPACE => {
            let schema = source.schemas().find(|(schema, _)| number(*schema) == wide);
            schema.map(|(_, name)| quote_identifier(name))
        }
        TypeId::REGROLE => (wide == OWNER).then(|| quote_identifier(&source.facts.user)),
        TypeId::REGPROC => function_name(source, oid),
        TypeId::REGPROCEDURE => procedure_name(source, oid),
        TypeId::REGOPER => {
            let operator = source.registry.operator(OperatorId(oid))?;
            // If several operators have the name, it is written with its schema.
            Some(match source.registry.operators_named(&operator.name).len() {
                1 => operator.name.to_string(),
                _ => format!("pg_catalog.{}", operator.name),
            })
        }
        TypeId::REGOPERATOR => {
            let operator = source.registry.operator(OperatorId(oid))?;
            let left = operator.left.map_or_else(|| "NONE".to_owned(), type_name);
            Some(format!("{}({left},{})", operator.name, type_name(operator.right)))
        }
        TypeId::REGCOLLATION => {
            let collation = COLLATIONS.iter().find(|(collation, ..)| *collation == wide);
            collation.map(|(_, name, _)| quote_identifier(name))
        }
        _ => None,
    }
}

/// The object that a text denotes as a value of such a type. 42725 if several have the name, 3F000 if its schema does not
/// exist.
pub(crate) fn object_oid(source: &Source, ty: TypeId, name: &str) -> Result<Option<u32>> {
    let found = find_object(source, ty, name)?;
    // The names of operators are found without their schema.
    if found.is_none() && ![TypeId::REGOPER, TypeId::REGOPERATOR].contains(&ty) {
        source.check_schema_of(name.split(['(', '[']).next().unwrap_or_default())?;
    }
    Ok(found)
}

fn find_object(source: &Source, ty: TypeId, name: &str) -> Result<Option<u32>> {
    let found = match ty {
        TypeId::REGCLASS => {
            split_name(name).ok_or_else(invalid_name)?;
            source.object_by_name(name).map(|object| object.oid())
        }
        TypeId::REGTYPE => types::named(name),
        TypeId::REGNAMESPACE => {
            let parts = split_name(name).ok_or_else(invalid_name)?;
            let [wanted] = &parts[..] else { return Err(invalid_name()) };
            source.schemas().find(|(_, schema)| schema == wanted).map(|(oid, _)| number(oid))
        }
        TypeId::REGROLE => {
            let parts = split_name(name).ok_or_else(invalid_name)?;
            (parts == [source.facts.user.as_str()]).then_some(OWNER)
        }
        TypeId::REGPROC => return function_oid(source, name),
        TypeId::REGPROCEDURE => return procedure_oid(source, name),
        TypeId::REGOPER => {
            let name = without_schema(name.trim());
            match source.registry.operators_named(name) {
                [] => None,
                [only] => Some(i64::from(only.id.0)),
                _ => return Err(ambiguous("operator", name)),
            }
        }
        TypeId::REGOPERATOR => return operator_oid(source, name),
        TypeId::REGCOLLATION => {
            let wanted = split_name(name).and_then(|mut parts| parts.pop()).ok_or_else(invalid_name)?;
            COLLATIONS.iter().find(|(_, name, _)| *name == wanted).map(|(oid, ..)| *oid)
        }
        _ => None,
    };
    Ok(found.map(|oid| oid as u32))
}

/// The names of types with a separator between them.
pub(super) fn type_names(oids: impl Iterator<Item = i64>, separator: &str) -> String {
    let name = |oid: i64| types::format_type(oid, None).unwrap_or_else(|| "???".to_owned());
    oids.map(name).collect::<Vec<_>>().join(separator)
}

fn type_name(id: TypeId) -> String {
    type_names(std::iter::once(i64::from(id.0)), "")
}

/// The name of a function, with its schema if several have it.
fn function_name(source: &Source, oid: u32) -> Option<String> {
    if let Some(function) = source.registry.function(FunctionId(oid)) {
        let name = quote_identifier(&function.name);
        let is_alone = source.registry.functions_named(&function.name).len() == 1;
        return Some(match &function.schema {
            None if is_alone => name,
            schema => format!("{}.{name}", schema.as_deref().unwrap_or("pg_catalog")),
        });
    }
    let procedure = procedures(source).find(|procedure| procedure.oid == i64::from(oid));
    procedure.map(|procedure| procedure.name.to_owned())
}

/// The name of a function with the types of its arguments.
pub(super) fn procedure_name(source: &Source, oid: u32) -> Option<String> {
    let function = source.registry.function(FunctionId(oid))?;
    let arguments = type_names(function.arguments().map(|parameter| i64::from(parameter.ty.0)), ",");
    let schema = function.schema.as_deref().map_or_else(String::new, |schema| format!("{schema}."));
    Some(format!("{schema}{}({arguments})", quote_identifier(&function.name)))
}

fn function_oid(source: &Source, name: &str) -> Result<Option<u32>> {
    let parts = split_name(name).ok_or_else(invalid_name)?;
    let named = functions_named(source, &parts);
    match &named[..] {
        [only] => Ok(Some(only.id.0)),
        [] => {
            let bare = parts.last().expect("a name has a part");
            let procedure = procedures(source).find(|procedure| procedure.name == bare);
            Ok(procedure.map(|procedure| procedure.oid as u32))
        }
        _ => Err(ambiguous("function", name)),
    }
}

/// The functions of a name in its schema.
fn functions_named(source: &Source, parts: &[String]) -> Vec<&'static Arc<Function>> {
    let (schema, name) = match parts {
        [name] => ("pg_catalog", name),
        [.., schema, name] => (schema.as_str(), name),
        [] => return Vec::new(),
    };
    let is_in =
        |function: &&'static Arc<Function>| function.schema.as_deref().unwrap_or("pg_catalog") == schema;
    source.registry.functions_named(name).iter().filter(is_in).collect()
}

fn procedure_oid(source: &Source, text: &str) -> Result<Option<u32>> {
    let (name, types) = with_types(text, "function")?;
    let parts = split_name(name).ok_or_else(invalid_name)?;
    let has_types = |function: &&&'static Arc<Function>| {
        function.arguments().map(|parameter| parameter.ty).eq(types.iter().copied())
    };
    Ok(functions_named(source, &parts).iter().find(has_types).map(|function| function.id.0))
}

fn operator_oid(source: &Source, text: &str) -> Result<Option<u32>> {
    let (name, types) = with_types(text, "operator")?;
    let name = without_schema(name.trim());
    let [left, right] = types[..] else {
        let message = if types.len() < 2 { "missing argument" } else { "too many arguments" };
        return Err(Error::new(SqlState::UNDEFINED_PARAMETER, message)
            .with_hint("Provide two argument types for operator."));
    };
    let left = Some(left).filter(|left| left.0 != 0);
    let has_types = |operator: &&Arc<Operator>| (operator.left, operator.right) == (left, right);
    Ok(source.registry.operators_named(name).iter().find(has_types).map(|operator| operator.id.0))
}

fn without_schema(name: &str) -> &str {
    name.strip_prefix("pg_catalog.").unwrap_or(name)
}

/// A name and the types in parentheses behind it. NONE is the type 0.
fn with_types<'t>(text: &'t str, what: &str) -> Result<(&'t str, Vec<TypeId>)> {
    let syntax = |problem: &str| Error::new(SqlState::INVALID_TEXT_REPRESENTATION, problem);
    let (name, rest) = text.split_once('(').ok_or_else(|| syntax("expected a left parenthesis"))?;
    let list = rest.trim_end().strip_suffix(')').ok_or_else(|| syntax("expected a right parenthesis"))?;
    let names = list.split(',').map(str::trim).filter(|_| !list.trim().is_empty());
    let ty = |name: &str| {
        if what == "operator" && name.eq_ignore_ascii_case("none") {
            return Ok(TypeId(0));
        }
        let missing = || Error::new(SqlState::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"));
        types::named(name).map(|oid| TypeId(oid as u32)).ok_or_else(missing)
    };
    Ok((name, names.map(ty).collect::<Result<_>>()?))
}

#[cold]
fn ambiguous(kind: &str, name: &str) -> Error {
    let message = match kind {
        "operator" => format!("more than one operator named {name}"),
        _ => format!("more than one function named \"{name}\""),
    };
    Error::new(SqlState::AMBIGUOUS_FUNCTION, message)
}

#[cold]
fn invalid_name() -> Error {
    Error::new(SqlState::INVALID_NAME, "invalid name syntax")
}
