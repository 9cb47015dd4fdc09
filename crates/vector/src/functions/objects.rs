//! Types whose values are objects of the catalog: `regclass` and its like.
//!
//! A value is an oid. As text it is the object's name as the session sees it, `-` for 0, and a number if no object has
//! the oid. The context knows the names ([`Objects`](crate::context::Objects)).

use crate::kernel::{Call, Text};
use crate::registry::RegistryBuilder;
use firn_base::{Error, Result, SqlState, TypeId, text};

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    for (name, ty) in TYPES {
        builder
            .scalar::<(&str,), _>(&format!("{name}in(cstring)"), move |call, (text,)| read(call, ty, text));
        builder.scalar::<(u32,), _>(&format!("{name}out({name})"), move |call, (oid,)| {
            write(call, ty, oid);
            Text
        });
        builder.scalar::<(&str,), _>(&format!("to_{name}(text)"), move |call, (text,)| {
            // PostgreSQL takes numbers for no names here.
            match number(text) {
                Some(_) => Ok(None),
                None => match call.context.objects.oid(ty, text) {
                    Err(error)
                        if [SqlState::AMBIGUOUS_FUNCTION, SqlState::INVALID_SCHEMA_NAME]
                            .contains(&error.state()) =>
                    {
                        Ok(None)
                    }
                    found => found,
                },
            }
        });
    }
    builder.scalar::<(&str,), _>("regclass(text)", |call, (text,)| read(call, TypeId::REGCLASS, text));
}

const TYPES: [(&str, TypeId); 9] = [
    ("regproc", TypeId::REGPROC),
    ("regprocedure", TypeId::REGPROCEDURE),
    ("regoper", TypeId::REGOPER),
    ("regoperator", TypeId::REGOPERATOR),
    ("regclass", TypeId::REGCLASS),
    ("regtype", TypeId::REGTYPE),
    ("regnamespace", TypeId::REGNAMESPACE),
    ("regrole", TypeId::REGROLE),
    ("regcollation", TypeId::REGCOLLATION),
];

/// Whether values of a type are objects of the catalog.
pub fn is_object(ty: TypeId) -> bool {
    TYPES.iter().any(|(_, object)| *object == ty)
}

fn number(text: &str) -> Option<u32> {
    let text = text.trim();
    text.bytes().next().filter(u8::is_ascii_digit).and_then(|_| text.parse().ok())
}

/// The object that a text names.
pub fn read(call: &Call<'_>, ty: TypeId, text: &str) -> Result<u32> {
    if text == "-" {
        return Ok(0);
    }
    if let Some(oid) = number(text) {
        return Ok(oid);
    }
    call.context.objects.oid(ty, text)?.ok_or_else(|| missing(ty, text))
}

/// Appends an object's name.
pub fn write(call: &mut Call<'_>, ty: TypeId, oid: u32) {
    match call.context.objects.name(ty, oid) {
        _ if oid == 0 => call.text.push('-'),
        Some(name) => call.text.push_str(&name),
        None => text::write_integer(oid.into(), &mut call.text),
    }
}

fn missing(ty: TypeId, name: &str) -> Error {
    let (state, kind) = match ty {
        TypeId::REGCLASS => (SqlState::UNDEFINED_TABLE, "relation"),
        TypeId::REGTYPE => (SqlState::UNDEFINED_OBJECT, "type"),
        TypeId::REGNAMESPACE => (SqlState::INVALID_SCHEMA_NAME, "schema"),
        TypeId::REGROLE => (SqlState::UNDEFINED_OBJECT, "role"),
        TypeId::REGCOLLATION => (SqlState::UNDEFINED_OBJECT, "collation"),
        TypeId::REGPROC | TypeId::REGPROCEDURE => (SqlState::UNDEFINED_FUNCTION, "function"),
        _ => (SqlState::UNDEFINED_FUNCTION, "operator"),
    };
    let message = match kind {
        "operator" => format!("operator does not exist: {name}"),
        _ => format!("{kind} \"{name}\" does not exist"),
    };
    Error::new(state, message)
}
