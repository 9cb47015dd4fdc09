//! Which overload a call means, what polymorphic types stand for, and which type several expressions have in common.
//!
//! The rules are those of PostgreSQL's manual, chapter "Type Conversion". Nothing here knows expressions: a literal
//! without a type and a parameter whose type is not known yet are [`TypeId::UNKNOWN`].

use crate::types::{
    STRINGS, array, category, element, is_array, is_compatible_polymorphic, is_polymorphic, is_preferred,
    is_simple_polymorphic, path,
};
use firn_base::{Type, TypeId};
use firn_vector::Registry;
use firn_vector::registry::CastContext;

const UNKNOWN: TypeId = TypeId::UNKNOWN;

/// What polymorphic types cannot be made to stand for.
#[derive(Debug, PartialEq)]
pub struct Mismatch {
    /// What is wrong.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
}

impl Mismatch {
    fn new(message: impl Into<String>) -> Mismatch {
        Mismatch { message: message.into(), detail: None }
    }

    fn versus(message: &str, left: TypeId, right: TypeId) -> Mismatch {
        Mismatch { message: message.into(), detail: Some(format!("{} versus {}", name(left), name(right))) }
    }
}

/// The name of a type in messages.
pub fn name(id: TypeId) -> String {
    match id {
        TypeId::BPCHAR => "character".to_owned(),
        TypeId::BPCHAR_ARRAY => "character[]".to_owned(),
        _ => Type::new(id).to_string(),
    }
}

/// Whether arguments of these types can be passed where those are declared.
pub fn can_coerce(registry: &Registry, inputs: &[TypeId], targets: &[TypeId], context: CastContext) -> bool {
    let mut has_polymorphic = false;
    for (&input, &target) in inputs.iter().zip(targets) {
        if is_polymorphic(target) {
            has_polymorphic = true;
        } else if !can_coerce_one(registry, input, target, context) {
            return false;
        }
    }
    !has_polymorphic || is_consistent(registry, inputs, targets)
}

/// Whether a value of a type can be passed where another, not a polymorphic one, is declared.
pub fn can_coerce_one(registry: &Registry, input: TypeId, target: TypeId, context: CastContext) -> bool {
    input == target
        || target == TypeId::ANY
        || input == UNKNOWN
        || path(registry, input, target, context).is_some()
}

/// The best of several candidates for these arguments; `None` if none is better than all others. Each candidate
/// accepts the arguments.
pub fn select(
    registry: &Registry,
    inputs: &[TypeId],
    candidates: Vec<(usize, Vec<TypeId>)>,
) -> Option<usize> {
    let unknowns = inputs.iter().filter(|input| **input == UNKNOWN).count();
    let known = || (0..inputs.len()).filter(|place| inputs[*place] != UNKNOWN);

    // Those with the most exact matches.
    let exact = |types: &[TypeId]| known().filter(|place| types[*place] == inputs[*place]).count();
    let candidates = best(candidates, exact);
    if let [(found, _)] = candidates[..] {
        return Some(found);
    }
    // Those with the most exact matches and preferred types of the argument's category.
    let preferred = |types: &[TypeId]| {
        let fits = |place: &usize| {
            let (input, ty) = (inputs[*place], types[*place]);
            input == ty || category(input) == category(ty) && is_preferred(ty)
        };
        known().filter(fits).count()
    };
    let mut candidates = best(candidates, preferred);
    if let [(found, _)] = candidates[..] {
        return Some(found);
    }
    if unknowns == 0 {
        return None;
    }
    // Literals take the category on which all candidates agree, or that of strings.
    let slots: Option<Vec<(usize, u8, bool)>> = (0..inputs.len())
        .filter(|place| inputs[*place] == UNKNOWN)
        .map(|place| {
            category_of_slot(candidates.iter().map(|(_, types)| types[place])).map(|(c, p)| (place, c, p))
        })
        .collect();
    if let Some(slots) = slots {
        let fits = |types: &[TypeId]| {
            slots.iter().all(|&(place, wanted, has_preferred)| {
                category(types[place]) == wanted && (!has_preferred || is_preferred(types[place]))
            })
        };
        let kept: Vec<_> = candidates.iter().filter(|(_, types)| fits(types)).cloned().collect();
        if !kept.is_empty() {
            candidates = kept;
        }
        if let [(found, _)] = candidates[..] {
            return Some(found);
        }
    }
    // Literals are of the type that all other arguments have.
    let mut others = known().map(|place| inputs[place]);
    let first = others.next()?;
    if others.any(|other| other != first) {
        return None;
    }
    let all = vec![first; inputs.len()];
    let mut accepting =
        candidates.iter().filter(|(_, types)| can_coerce(registry, &all, types, CastContext::Implicit));
    match (accepting.next(), accepting.next()) {
        (Some((found, _)), None) => Some(*found),
        _ => None,
    }
}

fn best(
    candidates: Vec<(usize, Vec<TypeId>)>,
    score: impl Fn(&[TypeId]) -> usize,
) -> Vec<(usize, Vec<TypeId>)> {
    let most = candidates.iter().map(|(_, types)| score(types)).max().unwrap_or(0);
    candidates.into_iter().filter(|(_, types)| score(types) == most).collect()
}

/// The category that a literal takes, and whether a candidate has a preferred type of it there.
fn category_of_slot(types: impl Iterator<Item = TypeId>) -> Option<(u8, bool)> {
    let (mut slot, mut has_preferred, mut conflict) = (None, false, false);
    for ty in types {
        let (current, preferred) = (category(ty), is_preferred(ty));
        match slot {
            None => (slot, has_preferred) = (Some(current), preferred),
            Some(before) if before == current => has_preferred |= preferred,
            Some(_) if current == STRINGS => (slot, has_preferred) = (Some(current), preferred),
            Some(_) => conflict = true,
        }
    }
    slot.filter(|slot| !conflict || *slot == STRINGS).map(|slot| (slot, has_preferred))
}

/// Whether arguments of these types agree about what polymorphic types stand for.
fn is_consistent(registry: &Registry, actual: &[TypeId], declared: &[TypeId]) -> bool {
    resolve_polymorphic(registry, actual, declared, TypeId::BOOL, true).is_ok()
}

/// What is declared where polymorphic types are replaced by what they stand for, and the type of the result.
/// If `lenient`, families of which all arguments are unknown stay as they are.
pub fn resolve_polymorphic(
    registry: &Registry,
    actual: &[TypeId],
    declared: &[TypeId],
    result: TypeId,
    lenient: bool,
) -> Result<(Vec<TypeId>, TypeId), Mismatch> {
    let mut types = declared.to_vec();
    let mut elements: Option<TypeId> = None;
    let mut arrays: Option<TypeId> = None;
    let mut must_be_scalar = false;
    let mut has_simple = false;
    let mut compatible: Vec<TypeId> = Vec::new();
    let mut compatible_must_be_scalar = false;
    let mut has_compatible = false;
    for (&given, &wanted) in actual.iter().zip(declared) {
        match wanted {
            TypeId::ANYELEMENT | TypeId::ANYNONARRAY | TypeId::ANYENUM => {
                has_simple = true;
                must_be_scalar |= wanted == TypeId::ANYNONARRAY;
                if wanted == TypeId::ANYENUM && given != UNKNOWN {
                    return Err(Mismatch::new(format!(
                        "type matched to anyenum is not an enum type: {}",
                        name(given)
                    )));
                }
                match elements {
                    _ if given == UNKNOWN => {}
                    Some(before) if before != given => {
                        return Err(Mismatch::versus(
                            "arguments declared \"anyelement\" are not all alike",
                            before,
                            given,
                        ));
                    }
                    _ => elements = Some(given),
                }
            }
            TypeId::ANYARRAY => {
                has_simple = true;
                match arrays {
                    _ if given == UNKNOWN => {}
                    Some(before) if before != given => {
                        return Err(Mismatch::versus(
                            "arguments declared \"anyarray\" are not all alike",
                            before,
                            given,
                        ));
                    }
                    _ => arrays = Some(given),
                }
            }
            TypeId::ANYCOMPATIBLE | TypeId::ANYCOMPATIBLENONARRAY => {
                has_compatible = true;
                compatible_must_be_scalar |= wanted == TypeId::ANYCOMPATIBLENONARRAY;
                if given != UNKNOWN {
                    compatible.push(given);
                }
            }
            TypeId::ANYCOMPATIBLEARRAY => {
                has_compatible = true;
                if given != UNKNOWN {
                    let Some(element) = element(given) else {
                        return Err(Mismatch::new(format!(
                            "argument declared {} is not an array but type {}",
                            name(wanted),
                            name(given)
                        )));
                    };
                    compatible.push(element);
                }
            }
            TypeId::ANYRANGE | TypeId::ANYCOMPATIBLERANGE if given != UNKNOWN => {
                return Err(Mismatch::new(format!(
                    "argument declared {} is not a range type but type {}",
                    name(wanted),
                    name(given)
                )));
            }
            _ => {}
        }
    }
    if has_simple {
        if let Some(array) = arrays.filter(|array| *array != TypeId::ANYARRAY) {
            let Some(of_array) = element(array).filter(|_| is_array(array) || array != TypeId::NAME) else {
                return Err(Mismatch::new(format!(
                    "argument declared anyarray is not an array but type {}",
                    name(array)
                )));
            };
            match elements {
                Some(element) if element != of_array => {
                    return Err(Mismatch::versus(
                        "argument declared anyarray is not consistent with argument declared anyelement",
                        array,
                        element,
                    ));
                }
                _ => elements = Some(of_array),
            }
        }
        match elements {
            None if lenient => {}
            None => {
                return Err(Mismatch::new(
                    "could not determine polymorphic type because input has type unknown",
                ));
            }
            Some(element) if must_be_scalar && is_array(element) => {
                return Err(Mismatch::new(format!(
                    "type matched to anynonarray is an array type: {}",
                    name(element)
                )));
            }
            Some(_) => {}
        }
    }
    let common = if !has_compatible {
        None
    } else if compatible.is_empty() {
        (!lenient).then_some(TypeId::TEXT)
    } else {
        let Some(common) = common_type(registry, &compatible) else {
            return Err(Mismatch::new("arguments of anycompatible family cannot be cast to a common type"));
        };
        if compatible_must_be_scalar && is_array(common) {
            return Err(Mismatch::new(format!(
                "type matched to anycompatiblenonarray is an array type: {}",
                name(common)
            )));
        }
        if !compatible.iter().all(|ty| can_coerce_one(registry, *ty, common, CastContext::Implicit)) {
            return Err(Mismatch::new("arguments of anycompatible family cannot be cast to a common type"));
        }
        Some(common)
    };
    let concrete = |wanted: TypeId| -> Result<TypeId, Mismatch> {
        let base = if is_simple_polymorphic(wanted) {
            elements
        } else if is_compatible_polymorphic(wanted) {
            common
        } else {
            return Ok(wanted);
        };
        let Some(base) = base else { return Ok(wanted) };
        match wanted {
            TypeId::ANYARRAY => {
                if let Some(array) = arrays {
                    return Ok(array);
                }
                array(base).ok_or_else(|| no_array(base))
            }
            TypeId::ANYCOMPATIBLEARRAY => array(base).ok_or_else(|| no_array(base)),
            _ => Ok(base),
        }
    };
    for (given, ty) in actual.iter().zip(&mut types) {
        let wanted = *ty;
        // An anyarray takes a vector as it is.
        if wanted == TypeId::ANYARRAY && *given != UNKNOWN {
            *ty = *given;
        } else {
            *ty = concrete(wanted)?;
        }
    }
    let result = if is_polymorphic(result) && !lenient { concrete(result)? } else { result };
    Ok((types, result))
}

fn no_array(element: TypeId) -> Mismatch {
    Mismatch::new(format!("could not find array type for data type {}", name(element)))
}

/// The type that values of all these types can take; `None` if their categories differ. All-unknown is text.
pub fn common_type(registry: &Registry, types: &[TypeId]) -> Option<TypeId> {
    pick_common(registry, types).ok()
}

/// As [`common_type`]; the error is the position of the type that does not fit, and the type that it does not fit.
pub fn pick_common(registry: &Registry, types: &[TypeId]) -> Result<TypeId, (usize, TypeId)> {
    let mut picked = types[0];
    if picked != UNKNOWN && types.iter().all(|ty| *ty == picked) {
        return Ok(picked);
    }
    for (place, &next) in types.iter().enumerate().skip(1) {
        if next == UNKNOWN || next == picked {
            continue;
        }
        if picked == UNKNOWN {
            picked = next;
        } else if category(picked) != category(next) {
            return Err((place, picked));
        } else if !is_preferred(picked)
            && can_coerce_one(registry, picked, next, CastContext::Implicit)
            && !can_coerce_one(registry, next, picked, CastContext::Implicit)
        {
            picked = next;
        }
    }
    Ok(if picked == UNKNOWN { TypeId::TEXT } else { picked })
}
