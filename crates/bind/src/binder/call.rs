//! Calls of functions: which overload a name means for some arguments.

use super::states::AMBIGUOUS_FUNCTION;
use super::{Binder, Operand};
use crate::resolve::{can_coerce, name, resolve_polymorphic, select};
use crate::types::{Path, STRINGS, category, element, path};
use firn_base::{Error, Result, SqlState, Type, TypeId, type_table};
use firn_plan::scalar;
use firn_plan::{Function, Scalar};
use firn_syntax::tree::{Call, Name, ObjectName};
use firn_vector::registry::{self, Body, CastContext};
use std::sync::Arc;

/// What a call means.
pub(super) enum Meaning {
    /// A function.
    Function(Overload),
    /// A cast that is written as a call: `text(1)`.
    Cast(Type),
}

/// A function with the arguments of a call in its own order and of its types.
pub(super) struct Overload {
    pub function: Arc<registry::Function>,
    pub handle: Function,
    pub arguments: Vec<Operand>,
    pub result: Type,
    /// The types of the columns that the function declares for its result.
    pub columns: Vec<Type>,
}

/// A function that may be meant.
struct Candidate {
    function: Arc<registry::Function>,
    /// The declared types of the arguments, in the order of the call.
    types: Vec<TypeId>,
    /// For each parameter the argument that is passed, or its default.
    places: Vec<Option<usize>>,
    /// The first of the arguments that are packed into an array.
    packed_from: Option<usize>,
    is_variadic: bool,
}

/// What a call says of its arguments.
#[derive(Clone, Copy, Default)]
pub(super) struct CallShape<'t> {
    /// The names of the last arguments.
    pub names: &'t [Option<&'t Name>],
    /// VARIADIC
    pub is_variadic: bool,
    /// Whether it has ORDER BY or WITHIN GROUP, for the hint of an error.
    pub has_order: bool,
}

impl Binder<'_> {
    /// The function that a call means.
    pub(super) fn resolve_call(
        &mut self,
        function_name: &ObjectName,
        arguments: Vec<Operand>,
        shape: CallShape<'_>,
        at: u32,
    ) -> Result<Meaning> {
        let schema = match &function_name.qualifiers[..] {
            [] => Some("pg_catalog"),
            [schema] => Some(&*schema.text),
            _ => None,
        };
        let is_ours = schema == Some("pg_catalog");
        let inputs: Vec<TypeId> = arguments.iter().map(|argument| argument.ty.id).collect();
        let named = self.registry.functions_named(&function_name.name.text);
        let in_schema = named.iter().filter(|function| match &function.schema {
            None => is_ours,
            Some(of) => schema == Some(&**of),
        });
        let mut candidates: Vec<Candidate> =
            in_schema.filter_map(|function| candidate(function, inputs.len(), shape)).collect();
        // One that packs its arguments gives way to one that takes them as they are.
        let plain: Vec<Vec<TypeId>> =
            candidates.iter().filter(|one| !one.is_variadic).map(|one| one.types.clone()).collect();
        candidates.retain(|one| !one.is_variadic || !plain.contains(&one.types));

        let exact = candidates.iter().position(|candidate| candidate.types == inputs);
        if exact.is_none()
            && is_ours
            && let Some(ty) = self.cast_by_call(&function_name.name.text, &inputs, shape)
        {
            return Ok(Meaning::Cast(ty));
        }
        let chosen = match exact {
            Some(place) => place,
            None => {
                let fitting: Vec<(usize, Vec<TypeId>)> = candidates
                    .iter()
                    .enumerate()
                    .filter(|(_, one)| can_coerce(self.registry, &inputs, &one.types, CastContext::Implicit))
                    .map(|(place, one)| (place, one.types.clone()))
                    .collect();
                match &fitting[..] {
                    [] => return Err(self.no_function(function_name, &inputs, shape, at)),
                    [(only, _)] => *only,
                    _ => match select(self.registry, &inputs, fitting) {
                        Some(place) => place,
                        None => {
                            let message = format!(
                                "function {} is not unique",
                                signature(function_name, &inputs, shape)
                            );
                            return Err(self.error(AMBIGUOUS_FUNCTION, message, at).with_hint(
                                "Could not choose a best candidate function. You might need to add explicit type casts.",
                            ));
                        }
                    },
                }
            }
        };
        let candidate = candidates.swap_remove(chosen);
        let takes_array = shape.is_variadic && candidate.function.variadic() == Some(TypeId::ANY);
        let mut overload = self.overload(candidate, arguments, &inputs, at)?;
        if takes_array {
            let last = overload.arguments.last().expect("a variadic argument is given");
            if !crate::types::is_array(last.ty.id) {
                let message = "VARIADIC argument must be an array";
                return Err(self.error(SqlState::DATATYPE_MISMATCH, message, last.at));
            }
            overload.handle = overload.handle.with_variadic_array();
        }
        Ok(Meaning::Function(overload))
    }

    /// Casts the arguments of a call as the chosen function declares them.
    fn overload(
        &mut self,
        candidate: Candidate,
        arguments: Vec<Operand>,
        inputs: &[TypeId],
        at: u32,
    ) -> Result<Overload> {
        let Candidate { function, types, places, packed_from, .. } = candidate;
        let resolved = |wanted: TypeId| {
            let resolved = resolve_polymorphic(self.registry, inputs, &types, wanted, false);
            resolved.map_err(|mismatch| {
                let error = self.error(SqlState::DATATYPE_MISMATCH, mismatch.message, at);
                mismatch.detail.into_iter().fold(error, Error::with_detail)
            })
        };
        let column = |parameter: &registry::Parameter| Ok(Type::new(resolved(parameter.ty)?.1));
        let columns = function.columns().map(column).collect::<Result<Vec<Type>>>()?;
        let (types, result) = resolved(function.result)?;
        let handle = self.handles.of(self.registry, &function);
        let mut given: Vec<Option<Operand>> = Vec::with_capacity(arguments.len());
        for (argument, ty) in arguments.into_iter().zip(&types) {
            let argument = if firn_plan::function::is_polymorphic(*ty) && *ty == TypeId::ANY {
                argument
            } else {
                self.coerce(argument, *ty, false)?
            };
            given.push(Some(argument));
        }
        let packed: Vec<Operand> = match packed_from {
            Some(first) => {
                given.drain(first..).map(|argument| argument.expect("it is passed once")).collect()
            }
            None => Vec::new(),
        };
        let parameters: Vec<registry::Parameter> = function.arguments().cloned().collect();
        let mut arguments = Vec::with_capacity(parameters.len());
        for (place, parameter) in places.iter().zip(&parameters) {
            arguments.push(match place {
                Some(place) => given[*place].take().expect("each is passed once"),
                None => {
                    let default = parameter.default.as_deref().expect("what is left out has a default");
                    let ty = Type::new(parameter.ty);
                    Operand { scalar: self.read_literal(default, ty, at)?, ty, at }
                }
            });
        }
        if let Some(first) = packed_from {
            let ty = types[first];
            let array = Type::new(ty).array().ok_or_else(|| {
                let message = format!("could not find array type for data type {}", name(ty));
                self.error(SqlState::UNDEFINED_OBJECT, message, at)
            })?;
            let elements = packed.into_iter().map(|element| element.scalar).collect();
            arguments.push(Operand { scalar: Scalar::Array(array, elements), ty: array, at });
        } else {
            // What a variadic "any" takes.
            arguments.extend(given.into_iter().flatten());
        }
        Ok(Overload { function, handle, arguments, result: Type::new(result), columns })
    }

    /// A call of a scalar function by its name, from parts of the grammar that have a syntax of their own.
    pub(super) fn call_named(&mut self, function: &str, arguments: Vec<Operand>, at: u32) -> Result<Operand> {
        let name = ObjectName { qualifiers: vec![Name::new("pg_catalog")], name: Name::new(function) };
        match self.resolve_call(&name, arguments, CallShape::default(), at)? {
            Meaning::Function(overload) => {
                debug_assert!(
                    matches!(overload.function.body, Body::Scalar(_)),
                    "{function} is a scalar function"
                );
                Ok(self.scalar_call(overload, at))
            }
            Meaning::Cast(_) => unreachable!("no such function is a cast"),
        }
    }

    /// A call of a scalar function.
    pub(super) fn scalar_call(&mut self, overload: Overload, at: u32) -> Operand {
        let ty = overload.result;
        let arguments = overload.arguments.into_iter().map(|argument| argument.scalar).collect();
        let call = scalar::Call { function: overload.handle, as_operator: false, arguments, ty };
        Operand { scalar: Scalar::Call(Box::new(call)), ty, at }
    }

    /// The type that a call with one argument casts to, if its name is that of a type and no function fits exactly.
    fn cast_by_call(&self, function: &str, inputs: &[TypeId], shape: CallShape<'_>) -> Option<Type> {
        let [input] = *inputs else { return None };
        if !shape.names.is_empty() || shape.is_variadic {
            return None;
        }
        let target = type_table::by_name(function)?.id;
        let is_cast = input == TypeId::UNKNOWN
            || match path(self.registry, input, target, CastContext::Explicit) {
                Some(Path::Relabel) => true,
                Some(Path::Cast(registry::CastMethod::InputOutput { .. })) => {
                    !(input == TypeId::RECORD && category(target) == STRINGS)
                }
                _ => false,
            };
        is_cast.then(|| Type::new(target))
    }

    #[cold]
    fn no_function(&self, function: &ObjectName, inputs: &[TypeId], shape: CallShape<'_>, at: u32) -> Error {
        if let Err(error) = self.check_schema(&function.qualifiers, at) {
            return error;
        }
        let message = format!("function {} does not exist", signature(function, inputs, shape));
        let hint = if shape.has_order {
            "No aggregate function matches the given name and argument types. Perhaps you misplaced ORDER BY; ORDER BY must appear after all regular arguments of the aggregate."
        } else {
            "No function matches the given name and argument types. You might need to add explicit type casts."
        };
        self.error(SqlState::UNDEFINED_FUNCTION, message, at).with_hint(hint)
    }
}

/// `name(types)` as error messages have it.
pub(super) fn signature(function: &ObjectName, inputs: &[TypeId], shape: CallShape<'_>) -> String {
    let parts: Vec<&str> = function.parts().map(|part| &*part.text).collect();
    let argument = |(place, id): (usize, &TypeId)| match shape.names.get(place).copied().flatten() {
        Some(parameter) => format!("{} => {}", parameter.text, name(*id)),
        None => name(*id),
    };
    let arguments: Vec<String> = inputs.iter().enumerate().map(argument).collect();
    format!("{}({})", parts.join("."), arguments.join(", "))
}

/// A function as a candidate for a call with so many arguments.
fn candidate(function: &Arc<registry::Function>, count: usize, shape: CallShape<'_>) -> Option<Candidate> {
    let parameters: Vec<&registry::Parameter> = function.arguments().collect();
    let declared = parameters.len();
    if shape.names.iter().any(Option::is_some) {
        return candidate_by_names(function, &parameters, count, shape);
    }
    let variadic = function.variadic().filter(|_| !shape.is_variadic);
    if let Some(array) = variadic {
        if count < declared {
            return None;
        }
        let of_array = match array {
            TypeId::ANY => TypeId::ANY,
            TypeId::ANYARRAY => TypeId::ANYELEMENT,
            TypeId::ANYCOMPATIBLEARRAY => TypeId::ANYCOMPATIBLE,
            array => element(array)?,
        };
        let fixed = declared - 1;
        let mut types: Vec<TypeId> = parameters[..fixed].iter().map(|parameter| parameter.ty).collect();
        types.resize(count, of_array);
        let packed_from = (array != TypeId::ANY).then_some(fixed);
        let places = (0..fixed).map(Some).collect();
        return Some(Candidate { function: function.clone(), types, places, packed_from, is_variadic: true });
    }
    if shape.is_variadic && function.variadic().is_none() {
        return None;
    }
    if count > declared || count + function.defaults() < declared {
        return None;
    }
    let types = parameters[..count].iter().map(|parameter| parameter.ty).collect();
    let places = (0..declared).map(|place| (place < count).then_some(place)).collect();
    Some(Candidate { function: function.clone(), types, places, packed_from: None, is_variadic: false })
}

fn candidate_by_names(
    function: &Arc<registry::Function>,
    parameters: &[&registry::Parameter],
    count: usize,
    shape: CallShape<'_>,
) -> Option<Candidate> {
    if count > parameters.len() || function.variadic().is_some() {
        return None;
    }
    let mut places: Vec<Option<usize>> = vec![None; parameters.len()];
    let mut types = Vec::with_capacity(count);
    for argument in 0..count {
        let parameter = match shape.names.get(argument).copied().flatten() {
            None => argument,
            Some(wanted) => {
                parameters.iter().position(|parameter| parameter.name.as_deref() == Some(&*wanted.text))?
            }
        };
        if places[parameter].is_some() {
            return None;
        }
        places[parameter] = Some(argument);
        types.push(parameters[parameter].ty);
    }
    let is_complete = places
        .iter()
        .zip(parameters)
        .all(|(place, parameter)| place.is_some() || parameter.default.is_some());
    is_complete.then(|| Candidate {
        function: function.clone(),
        types,
        places,
        packed_from: None,
        is_variadic: false,
    })
}

/// The names of a call's arguments, if it names any.
pub(super) fn argument_names(call: &Call) -> Vec<Option<&Name>> {
    if call.arguments.iter().all(|argument| argument.name.is_none()) {
        return Vec::new();
    }
    call.arguments.iter().map(|argument| argument.name.as_ref()).collect()
}
