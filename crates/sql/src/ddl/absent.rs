//! DROP of kinds of objects that users cannot make: those that there are belong to the system.

use super::Context;
use crate::names::Relation;
use crate::operator_classes;
use crate::statement::{ObjectKind, QualifiedName, quote_ident};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, Type, TypeId};
use firn_syntax::tree::{
    AggregateParameters, BaseType, DropObjects, FunctionParameter, ObjectName, ObjectReference, ObjectType,
    OptionValue, ParameterMode, TypeName,
};
use firn_vector::registry::{Body, Function};

/// The access methods of PostgreSQL's indexes.
const INDEX_METHODS: [&str; 6] = ["btree", "hash", "gist", "gin", "spgist", "brin"];

/// What DROP finds.
enum Found {
    /// Nothing: what DROP says, and what DROP IF EXISTS says.
    Nothing(Error, String),
    /// An object of the system.
    System(String),
}

use Found::{Nothing, System};

/// DROP
pub(super) fn drop(context: &mut Context<'_>, objects: &DropObjects) -> Result<()> {
    for object in &objects.objects {
        match find(context, objects.object_type, object)? {
            Nothing(_, skipped) if objects.if_exists => {
                context.notice(SqlState::SUCCESSFUL_COMPLETION, format!("{skipped}, skipping"));
            }
            Nothing(error, _) => return Err(error),
            System(what) => {
                return Err(Error::new(
                    SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                    format!("cannot drop {what} because it is required by the database system"),
                ));
            }
        }
    }
    Ok(())
}

/// Nothing is found, and both say the same.
fn nothing(state: SqlState, message: String) -> Found {
    Nothing(Error::new(state, message.clone()), message)
}

fn missing(what: &str, name: &str) -> Found {
    nothing(SqlState::UNDEFINED_OBJECT, format!("{what} \"{name}\" does not exist"))
}

fn wrong_object(message: String) -> Error {
    Error::new(SqlState::WRONG_OBJECT_TYPE, message)
}

fn find(context: &Context<'_>, object_type: ObjectType, object: &ObjectReference) -> Result<Found> {
    let schema = match object {
        ObjectReference::Name(name) | ObjectReference::Class { name, .. } => missing_schema(context, name),
        ObjectReference::Function(function) => missing_schema(context, &function.name),
        ObjectReference::Aggregate(aggregate) => missing_schema(context, &aggregate.name),
        ObjectReference::Type(TypeName { base: BaseType::Named { name, .. }, .. }) => {
            missing_schema(context, name)
        }
        _ => None,
    };
    if let Some(found) = schema {
        return Ok(found);
    }
    match object {
        ObjectReference::Name(name) => of_name(context, object_type, name),
        ObjectReference::Relation(relation) => of_name(context, object_type, &relation.name),
        ObjectReference::Role(role) => match context.check_role(role) {
            Ok(()) => Err(Error::new(SqlState::OBJECT_IN_USE, "current user cannot be dropped")),
            Err(error) => {
                let message = error.message().to_owned();
                Ok(Nothing(error, message))
            }
        },
        ObjectReference::On { name, relation } => Ok(of_relation(context, object_type, &name.text, relation)),
        ObjectReference::Type(name) => of_type(context, object_type, name),
        ObjectReference::Function(function) => {
            of_function(context, object_type, &function.name, function.arguments.as_deref())
        }
        ObjectReference::Aggregate(aggregate) => {
            let arguments: Vec<FunctionParameter> = match &aggregate.arguments {
                AggregateParameters::Star => Vec::new(),
                AggregateParameters::List { direct, ordered } => {
                    direct.iter().chain(ordered).cloned().collect()
                }
            };
            of_function(context, object_type, &aggregate.name, Some(&arguments))
        }
        ObjectReference::Operator(operator) => {
            let operands = [&operator.left, &operator.right];
            let mut types = Vec::with_capacity(2);
            for operand in operands {
                match operand.as_ref().map(|name| type_of(context, name)).transpose() {
                    Ok(ty) => types.push(ty.map(|ty| ty.id)),
                    Err(found) => return Ok(found),
                }
            }
            let symbol = operator.operator.symbol();
            let exists = context.bound(|catalog| {
                let mut named = catalog.registry().operators_named(symbol).iter();
                Ok(named.any(|known| known.left == types[0] && Some(known.right) == types[1]))
            })?;
            let written: Vec<String> =
                types.iter().map(|ty| ty.map_or_else(|| "none".to_owned(), name_of)).collect();
            if exists {
                return Ok(System(format!("operator {symbol}({})", written.join(","))));
            }
            let shown = match (types[0], types[1]) {
                (None, _) => format!("{symbol} {}", written[1]),
                _ => format!("{} {symbol} {}", written[0], written[1]),
            };
            let message = format!("operator does not exist: {shown}");
            Ok(Nothing(
                Error::new(SqlState::UNDEFINED_FUNCTION, message),
                format!("operator {symbol} does not exist"),
            ))
        }
        ObjectReference::Class { name, method } => of_class(object_type, &name.name.text, &method.text),
        ObjectReference::Cast { source, target } => {
            let (from, to) = match (type_of(context, source), type_of(context, target)) {
                (Ok(from), Ok(to)) => (from.id, to.id),
                (Err(found), _) | (_, Err(found)) => return Ok(found),
            };
            let exists = context.bound(|catalog| {
                Ok(catalog.registry().casts().any(|cast| (cast.source, cast.target) == (from, to)))
            })?;
            if exists {
                return Ok(System(format!("cast from {} to {}", name_of(from), name_of(to))));
            }
            let message = |from: &str, to: &str| format!("cast from type {from} to type {to} does not exist");
            Ok(Nothing(
                Error::new(SqlState::UNDEFINED_OBJECT, message(&name_of(from), &name_of(to))),
                message(&written(source), &written(target)),
            ))
        }
        ObjectReference::Transform { type_name, language } => {
            let ty = match type_of(context, type_name) {
                Ok(ty) => ty.id,
                Err(found) => return Ok(found),
            };
            if !crate::pg_catalog::has_language(&language.text) {
                return Ok(missing("language", &language.text));
            }
            let message =
                |ty: &str| format!("transform for type {ty} language \"{}\" does not exist", language.text);
            Ok(Nothing(
                Error::new(SqlState::UNDEFINED_OBJECT, message(&name_of(ty))),
                message(&written(type_name)),
            ))
        }
        ObjectReference::Number(number) => {
            Ok(nothing(SqlState::UNDEFINED_OBJECT, format!("large object {number} does not exist")))
        }
    }
}

fn missing_schema(context: &Context<'_>, name: &ObjectName) -> Option<Found> {
    let error = context.names().check_schema(&QualifiedName::from(name)).err()?;
    let message = error.message().to_owned();
    Some(Nothing(error, message))
}

fn of_name(context: &Context<'_>, object_type: ObjectType, name: &ObjectName) -> Result<Found> {
    let bare = &*name.name.text;
    let shown = QualifiedName::from(name).to_string();
    Ok(match object_type {
        ObjectType::AccessMethod if bare == "heap" || INDEX_METHODS.contains(&bare) => {
            System(format!("access method {bare}"))
        }
        ObjectType::Language if crate::pg_catalog::has_language(bare) => System(format!("language {bare}")),
        ObjectType::Collation if ["default", "C", "POSIX", "ucs_basic"].contains(&bare) => {
            System(format!("collation {}", quote_ident(bare)))
        }
        ObjectType::Collation => {
            let message = format!("collation \"{shown}\" for encoding \"UTF8\" does not exist");
            Nothing(
                Error::new(SqlState::UNDEFINED_OBJECT, message),
                format!("collation \"{shown}\" does not exist"),
            )
        }
        ObjectType::Tablespace if bare == "pg_default" => {
            let message = format!("permission denied for tablespace {bare}");
            return Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        ObjectType::ForeignTable | ObjectType::MaterializedView => {
            let word = object_type.words().to_lowercase();
            if let Some(relation) = context.names().find(&QualifiedName::from(name)) {
                let error = wrong_object(format!("\"{bare}\" is not a {word}"));
                return Err(error.with_hint(remove_hint(&relation)));
            }
            let state = match object_type {
                ObjectType::MaterializedView => SqlState::UNDEFINED_TABLE,
                _ => SqlState::UNDEFINED_OBJECT,
            };
            nothing(state, format!("{word} \"{shown}\" does not exist"))
        }
        ObjectType::ForeignDataWrapper => missing("foreign-data wrapper", &shown),
        ObjectType::Statistics => missing("statistics object", &shown),
        _ => missing(&object_type.words().to_lowercase(), &shown),
    })
}

/// How an object of another kind is dropped.
pub(super) fn remove_hint(relation: &Relation) -> String {
    let kind = relation.kind();
    let article = if kind == ObjectKind::Index { "an" } else { "a" };
    format!("Use DROP {} to remove {article} {}.", kind.word().to_uppercase(), kind.word())
}

/// Policies, rules and triggers.
fn of_relation(context: &Context<'_>, object_type: ObjectType, name: &str, relation: &ObjectName) -> Found {
    let relation = QualifiedName::from(relation);
    if let Err(error) = context.names().relation(&relation) {
        let message = error.message().to_owned();
        return Nothing(error, message);
    }
    let word = object_type.words().to_lowercase();
    let of = if object_type == ObjectType::Rule { "relation" } else { "table" };
    let message = |of: &str| format!("{word} \"{name}\" for {of} \"{}\" does not exist", relation.name);
    Nothing(Error::new(SqlState::UNDEFINED_OBJECT, message(of)), message("relation"))
}

/// A type; what is found of it if it does not exist.
fn type_of(context: &Context<'_>, name: &TypeName) -> std::result::Result<Type, Found> {
    context.bound(|catalog| firn_bind::bind_type_name("", name, catalog)).map_err(|error| {
        let error = error.without_position();
        let message = error.message().to_owned();
        Nothing(error, message)
    })
}

fn name_of(id: TypeId) -> String {
    Type::new(id).to_string()
}

fn of_type(context: &Context<'_>, object_type: ObjectType, name: &TypeName) -> Result<Found> {
    let ty = match type_of(context, name) {
        Ok(ty) => ty.id,
        Err(found) => {
            // Each table and view has a type of its name.
            if let BaseType::Named { name, .. } = &name.base
                && let Some(relation @ (Relation::Table(_) | Relation::View(_))) =
                    context.names().find(&QualifiedName::from(name))
                && object_type == ObjectType::Type
            {
                let (name, what) = (&name.name.text, relation.kind().word());
                let message = format!("cannot drop type {name} because {what} {name} requires it");
                return Err(Error::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message)
                    .with_hint(format!("You can drop {what} {name} instead.")));
            }
            return Ok(found);
        }
    };
    match object_type {
        ObjectType::Domain => Err(wrong_object(format!("\"{}\" is not a domain", written(name)))),
        _ => Ok(System(format!("type {}", name_of(ty)))),
    }
}

/// Functions, procedures and aggregates.
fn of_function(
    context: &Context<'_>,
    object_type: ObjectType,
    name: &ObjectName,
    arguments: Option<&[FunctionParameter]>,
) -> Result<Found> {
    let word = object_type.words().to_lowercase();
    // What is wrong with a routine is said as if it were a function.
    let missing_word = if object_type == ObjectType::Routine { "function" } else { &word };
    let parts: Vec<&str> = name.parts().map(|part| &*part.text).collect();
    let shown = parts.join(".");
    let schema = name.schema().map_or("pg_catalog", |schema| &*schema.text);
    let of_schema = |function: &&Arc<Function>| function.schema.as_deref().unwrap_or("pg_catalog") == schema;
    let named: Vec<Arc<Function>> = context.bound(|catalog| {
        Ok(catalog.registry().functions_named(&name.name.text).iter().filter(of_schema).cloned().collect())
    })?;
    let found = match arguments {
        None => match &named[..] {
            [] => {
                let message = format!("could not find a {missing_word} named \"{shown}\"");
                let skipped = format!("{word} {shown}() does not exist");
                return Ok(Nothing(Error::new(SqlState::UNDEFINED_FUNCTION, message), skipped));
            }
            [only] => only,
            _ => {
                let message = format!("{word} name \"{shown}\" is not unique");
                return Err(Error::new(SqlState::AMBIGUOUS_FUNCTION, message)
                    .with_hint(format!("Specify the argument list to select the {word} unambiguously.")));
            }
        },
        Some(arguments) => {
            let mut types = Vec::with_capacity(arguments.len());
            let mut texts = Vec::with_capacity(arguments.len());
            let is_input = |parameter: &&FunctionParameter| parameter.mode != ParameterMode::Out;
            for parameter in arguments.iter().filter(is_input) {
                let OptionValue::Type(name) = &parameter.type_name else {
                    return Err(Error::unsupported("%TYPE"));
                };
                match type_of(context, name) {
                    Ok(ty) => types.push(ty.id),
                    Err(found) => return Ok(found),
                }
                texts.push(written(name));
            }
            let has_types = |function: &&Arc<Function>| {
                function.arguments().map(|parameter| parameter.ty).eq(types.iter().copied())
            };
            match named.iter().find(has_types) {
                Some(found) => found,
                None => {
                    let signature = |types: Vec<String>| match (types.is_empty(), object_type) {
                        (true, ObjectType::Aggregate) => format!("{shown}(*)"),
                        _ => format!("{shown}({})", types.join(", ")),
                    };
                    let names = types.iter().map(|id| name_of(*id)).collect();
                    let message = format!("{missing_word} {} does not exist", signature(names));
                    return Ok(Nothing(
                        Error::new(SqlState::UNDEFINED_FUNCTION, message),
                        format!("{word} {shown}({}) does not exist", texts.join(",")),
                    ));
                }
            }
        }
    };
    let types: Vec<String> = found.arguments().map(|parameter| name_of(parameter.ty)).collect();
    let is_aggregate = matches!(found.body, Body::Aggregate(_));
    let signature = format!("{shown}({})", types.join(", "));
    match object_type {
        ObjectType::Procedure => Err(wrong_object(format!("{signature} is not a procedure"))),
        ObjectType::Aggregate if !is_aggregate => {
            Err(wrong_object(format!("function {signature} is not an aggregate")))
        }
        ObjectType::Function if is_aggregate => {
            let error = wrong_object(format!("\"{shown}\" is an aggregate function"));
            Err(error.with_hint("Use DROP AGGREGATE to drop aggregate functions."))
        }
        _ => Ok(System(format!("function {}({})", found.name, types.join(",")))),
    }
}

/// Operator classes and families.
fn of_class(object_type: ObjectType, name: &str, method: &str) -> Result<Found> {
    if !INDEX_METHODS.contains(&method) {
        let message = format!("access method \"{method}\" does not exist");
        return Err(Error::new(SqlState::UNDEFINED_OBJECT, message));
    }
    let word = object_type.words().to_lowercase();
    let is_it = |class: &operator_classes::OperatorClass| match object_type {
        ObjectType::OperatorClass => class.name == name,
        _ => class.family_name == name,
    };
    Ok(match method == "btree" && operator_classes::all().iter().any(is_it) {
        true => System(format!("{word} {name} for access method {method}")),
        false => {
            let message = format!("{word} \"{name}\" does not exist for access method \"{method}\"");
            nothing(SqlState::UNDEFINED_OBJECT, message)
        }
    })
}

/// A type as the grammar has it: names of its own are those in `pg_catalog`.
fn written(name: &TypeName) -> String {
    let base = match &name.base {
        BaseType::Named { name, .. } => {
            let parts: Vec<&str> = name.parts().map(|part| &*part.text).collect();
            parts.join(".")
        }
        base => {
            let own = match base {
                BaseType::SmallInt => "int2",
                BaseType::Integer => "int4",
                BaseType::BigInt => "int8",
                BaseType::Real => "float4",
                BaseType::DoublePrecision => "float8",
                BaseType::Boolean => "bool",
                BaseType::Numeric(_) => "numeric",
                BaseType::Bit { is_varying, .. } => {
                    if *is_varying {
                        "varbit"
                    } else {
                        "bit"
                    }
                }
                BaseType::Character { is_varying, .. } => {
                    if *is_varying {
                        "varchar"
                    } else {
                        "bpchar"
                    }
                }
                BaseType::Time { with_zone, .. } => {
                    if *with_zone {
                        "timetz"
                    } else {
                        "time"
                    }
                }
                BaseType::Timestamp { with_zone, .. } => {
                    if *with_zone {
                        "timestamptz"
                    } else {
                        "timestamp"
                    }
                }
                BaseType::Interval { .. } => "interval",
                BaseType::Named { .. } => unreachable!("it was seen"),
            };
            format!("pg_catalog.{own}")
        }
    };
    if name.bounds.is_empty() { base } else { format!("{base}[]") }
}
