//! JSON: its text form, and values made of those of other types.

use super::general::each;
use super::io::write;
use crate::Datum;
use crate::kernel::{Call, Rest, Text};
use crate::lists::List;
use crate::registry::RegistryBuilder;
use firn_base::{Error, Result, SqlState, Type, TypeId, datetime, json};

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(&str,), _>("json_in(cstring)", |call, (text,)| {
        json::check(text)?;
        call.text.push_str(text);
        Ok::<_, Error>(Text)
    });
    builder.scalar::<(&str,), _>("json_out(json)", |call, (text,)| {
        call.text.push_str(text);
        Text
    });
    builder.scalar::<(Datum,), _>("to_json(anyelement) array_to_json(anyarray)", |call, (value,)| {
        write_json(value, call.signature.arguments[0], call)?;
        Ok::<_, Error>(Text)
    });
    builder.scalar::<(), _>("json_build_object()", |call, ()| {
        call.text.push_str("{}");
        Text
    });
    builder.scalar::<(), _>("json_build_array()", |call, ()| {
        call.text.push_str("[]");
        Text
    });
    builder.scalar::<Rest, _>("json_build_array(any)", |call, values| {
        if is_null_list(call, values) {
            return Ok(None);
        }
        call.text.push('[');
        let mut is_first = true;
        each(call, values, 0, |call, value, ty| {
            if !is_first {
                call.text.push_str(", ");
            }
            is_first = false;
            write_json(value, ty, call)
        })?;
        call.text.push(']');
        Ok::<_, Error>(Some(Text))
    });
    builder.scalar::<Rest, _>("json_build_object(any)", |call, values| match is_null_list(call, values) {
        true => Ok(None),
        false => build_object(call, values).map(Some),
    });
}

/// Whether VARIADIC stands before NULL.
fn is_null_list(call: &Call<'_>, values: Rest<'_>) -> bool {
    call.signature.has_variadic_array && values.get(values.len() - 1).is_null()
}

fn build_object(call: &mut Call<'_>, values: Rest<'_>) -> Result<Text> {
    let invalid = |message: String| Error::new(SqlState::INVALID_PARAMETER_VALUE, message);
    call.text.push('{');
    let mut count = 0;
    each(call, values, 0, |call, value, ty| {
        count += 1;
        if count % 2 == 0 {
            call.text.push_str(" : ");
            return write_json(value, ty, call);
        }
        if count > 1 {
            call.text.push_str(", ");
        }
        if value.is_null() {
            return Err(
                invalid(format!("argument {count} cannot be null")).with_hint("Object keys should be text.")
            );
        }
        if matches!(value, Datum::List(_) | Datum::Record(_)) || ty.id == TypeId::JSON {
            return Err(invalid("key value must be scalar, not array, composite, or json".to_owned()));
        }
        write_quoted(value, ty, call)
    })?;
    if count % 2 == 1 {
        return Err(invalid("argument list must have even number of elements".to_owned())
            .with_hint("The arguments of json_build_object() must consist of alternating keys and values."));
    }
    call.text.push('}');
    Ok(Text)
}

/// Appends a value of a type as JSON.
fn write_json(value: Datum<'_>, ty: Type, call: &mut Call<'_>) -> Result<()> {
    match value {
        Datum::Null => call.text.push_str("null"),
        Datum::Boolean(value) => call.text.push_str(if value { "true" } else { "false" }),
        Datum::Text(text) if ty.id == TypeId::JSON => call.text.push_str(text),
        Datum::List(list) => return write_list(&list, ty, call),
        Datum::Record(record) => {
            call.text.push('{');
            for number in 0..record.len() {
                let (ty, field) = record.get(number);
                call.text.push_str(if number > 0 { ",\"f" } else { "\"f" });
                call.text.push_str(&(number + 1).to_string());
                call.text.push_str("\":");
                write_json(field, ty, call)?;
            }
            call.text.push('}');
        }
        value => return write_scalar(value, ty, call),
    }
    Ok(())
}

fn write_scalar(value: Datum<'_>, ty: Type, call: &mut Call<'_>) -> Result<()> {
    let is_number = matches!(
        ty.id,
        TypeId::INT2 | TypeId::INT4 | TypeId::INT8 | TypeId::FLOAT4 | TypeId::FLOAT8 | TypeId::NUMERIC
    );
    let start = call.text.len();
    if is_number {
        write(value, ty, call)?;
        if json::is_number(&call.text[start..]) {
            return Ok(());
        }
        let text = call.text.split_off(start);
        json::write_string(&text, &mut call.text);
        return Ok(());
    }
    // Dates and timestamps are written as XML Schema has them, whatever the session says.
    match (value, ty.id) {
        (Datum::Int32(days), TypeId::DATE) => {
            call.text.push('"');
            datetime::write_iso_date(days, &mut call.text);
            call.text.push('"');
            return Ok(());
        }
        (Datum::Int64(moment), TypeId::TIMESTAMP) => {
            call.text.push('"');
            datetime::write_iso_timestamp(moment, &mut call.text);
        }
        (Datum::Int64(moment), TypeId::TIMESTAMPTZ) => {
            call.text.push('"');
            datetime::write_iso_timestamptz(moment, call.context.zone(), &mut call.text);
            let offset = call.text[start..].rfind(['+', '-']).map(|place| call.text.len() - start - place);
            if offset == Some("+00".len()) {
                call.text.push_str(":00");
            }
        }
        (value, _) => return write_quoted(value, ty, call),
    }
    if let Some(blank) = call.text[start..].find(' ').map(|place| start + place) {
        call.text.replace_range(blank..=blank, "T");
    }
    call.text.push('"');
    Ok(())
}

/// Appends the text of a value as a string.
fn write_quoted(value: Datum<'_>, ty: Type, call: &mut Call<'_>) -> Result<()> {
    let start = call.text.len();
    write(value, ty, call)?;
    let text = call.text.split_off(start);
    json::write_string(&text, &mut call.text);
    Ok(())
}

/// An array of each dimension.
fn write_list(list: &List<'_>, ty: Type, call: &mut Call<'_>) -> Result<()> {
    let element = ty.element().expect("arrays have elements");
    if list.is_empty() {
        call.text.push_str("[]");
        return Ok(());
    }
    // How many elements each pair of brackets of a level holds.
    let dimensions = (0..list.dimensions()).filter_map(|number| list.dimension(number));
    let lengths: Vec<usize> = dimensions.map(|dimension| dimension.length as usize).collect();
    let spans: Vec<usize> = (0..lengths.len()).map(|level| lengths[level..].iter().product()).collect();
    for (place, value) in list.iter().enumerate() {
        if place > 0 {
            call.text.push(',');
        }
        spans.iter().filter(|span| place % **span == 0).for_each(|_| call.text.push('['));
        write_json(value, element, call)?;
        spans.iter().filter(|span| (place + 1) % **span == 0).for_each(|_| call.text.push(']'));
    }
    Ok(())
}
