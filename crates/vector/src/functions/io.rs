//! The input and output functions of types: values from text and to text. What is accepted and written is in base.

use super::casts::fit_interval;
use super::numbers::fit_result;
use super::objects;
use super::texts::check_length;
use crate::builder::Builder;
use crate::datum::Datum;
use crate::kernel::slot::Slot;
use crate::kernel::{Any, Argument, Bytes, Call, Output, Text};
use crate::lists::List;
use crate::registry::RegistryBuilder;
use crate::values::element_representation;
use firn_base::array::ArrayText;
use firn_base::datetime::Present;
use firn_base::numeric::Numeric;
use firn_base::sync::Arc;
use firn_base::{Error, Interval, Result, SqlType, Type, TypeId, datetime, interval, text, type_table};
use std::fmt::Write;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    input(builder, "boolin(cstring)", |_, text| text::parse_boolean(text));
    input(builder, "int2in(cstring)", |_, text| text::parse_integer::<i16>(text, SqlType::SmallInt));
    input(builder, "int4in(cstring)", |_, text| text::parse_integer::<i32>(text, SqlType::Integer));
    input(builder, "int8in(cstring) xid8in(cstring)", |_, text| {
        text::parse_integer::<i64>(text, SqlType::BigInt)
    });
    input(builder, "float4in(cstring)", |_, text| text::parse_real(text));
    input(builder, "float8in(cstring)", |_, text| text::parse_double(text));
    input(builder, "date_in(cstring)", |call, text| datetime::parse_date_at(text, present(call)));
    input(builder, "uuid_in(cstring)", |_, text| text::parse_uuid(text));
    input(builder, "oidin(cstring) xidin(cstring) cidin(cstring)", |_, text| {
        match text::parse_any(text, Type::new(TypeId::OID), &firn_base::TextStyle::DEFAULT)? {
            firn_base::Value::Oid(oid) => Ok(oid),
            other => panic!("{other:?} is no oid"),
        }
    });
    input(builder, "byteain(cstring)", |call, text| {
        call.bytes.extend_from_slice(&text::parse_bytea(text)?);
        Ok(Bytes)
    });
    builder.scalar::<(&str,), _>("textin(cstring) unknownin(cstring)", |call, (text,)| {
        call.text.push_str(text);
        Text
    });
    builder.scalar::<(&str,), _>("namein(cstring)", |call, (text,)| {
        call.text.push_str(text::fit_name(text));
        Text
    });
    builder.scalar::<(&str,), _>("charin(cstring)", |call, (text,)| {
        text::write_char(text::char_byte(text), &mut call.text);
        Text
    });
    modified(builder, "numeric_in(cstring,oid,int4)", |call, text, modifier| {
        fit_result(call, Numeric::parse(text)?, modifier)
    });
    modified(builder, "time_in(cstring,oid,int4)", |call, text, _| {
        datetime::parse_time_at(text, present(call))
    });
    modified(builder, "timestamp_in(cstring,oid,int4)", |call, text, _| {
        datetime::parse_timestamp_at(text, present(call))
    });
    modified(builder, "timestamptz_in(cstring,oid,int4)", |call, text, _| {
        datetime::parse_timestamptz_at(text, present(call))
    });
    modified(builder, "interval_in(cstring,oid,int4)", |call, text, modifier| {
        fit_interval(interval::parse_within(text, modifier, call.context.style.intervals)?, modifier)
    });
    modified(builder, "varcharin(cstring,oid,int4)", |call, text, modifier| {
        let length = Type::new(TypeId::VARCHAR).with_modifier(modifier).length();
        call.text.push_str(match length {
            Some(length) => text::fit_varchar(text, length)?,
            None => text,
        });
        Ok(Text)
    });
    modified(builder, "bpcharin(cstring,oid,int4)", |call, text, modifier| {
        match Type::new(TypeId::BPCHAR).with_modifier(modifier).length() {
            Some(length) => call.text.push_str(&text::fit_char(text, length)?),
            None => call.text.push_str(text),
        }
        Ok(Text)
    });
    builder.scalar::<(&str, u32, i32), _>("array_in(cstring,oid,int4)", |call, (text, element, modifier)| {
        let element = Type::new(TypeId(element)).with_modifier(modifier);
        let parsed = ArrayText::read(text)?;
        let mut elements = Builder::new(element_representation(element));
        let mut slot = Slot::new();
        for text in parsed.elements {
            match text {
                None => elements.push_null(),
                Some(text) if objects::is_object(element.id) => {
                    elements.push(Datum::UInt32(objects::read(call, element.id, &text)?));
                }
                Some(text) => {
                    slot.set_value(&text::parse_any(&text, element, call.context.style)?, element);
                    elements.push(slot.get());
                }
            }
        }
        let is_plain = matches!(parsed.dimensions[..], [] | [firn_base::array::Dimension { lower: 1, .. }]);
        call.value.set_list(Arc::new(elements.finish()), (!is_plain).then(|| parsed.dimensions.into()));
        Ok::<_, Error>(Any)
    });
    builder.scalar::<(&str,), _>(
        "int2vectorin(cstring) oidvectorin(cstring) pg_lsn_in(cstring) tidin(cstring)",
        |call, (text,)| {
            let ty = call.signature.result;
            let value = text::parse_any(text, ty, call.context.style)?;
            call.value.set_value(&value, ty);
            Ok::<_, Error>(Any)
        },
    );

    output::<bool>(builder, "boolout(bool)", |call, value| call.text.push(if value { 't' } else { 'f' }));
    output::<i16>(builder, "int2out(int2)", |call, value| text::write_integer(value.into(), &mut call.text));
    output::<i32>(builder, "int4out(int4)", |call, value| text::write_integer(value.into(), &mut call.text));
    output::<i64>(builder, "int8out(int8) xid8out(xid8)", |call, value| {
        text::write_integer(value, &mut call.text);
    });
    output::<u32>(builder, "oidout(oid) xidout(xid) cidout(cid)", |call, value| {
        text::write_integer(value.into(), &mut call.text);
    });
    output::<f32>(builder, "float4out(float4)", |call, value| {
        text::write_real(value, call.context.style, &mut call.text);
    });
    output::<f64>(builder, "float8out(float8)", |call, value| {
        text::write_double(value, call.context.style, &mut call.text);
    });
    output::<Numeric>(builder, "numeric_out(numeric)", |call, value| value.write(&mut call.text));
    output::<i64>(builder, "tidout(tid)", |call, value| text::write_tid(value, &mut call.text));
    output::<i64>(builder, "pg_lsn_out(pg_lsn)", |call, value| text::write_lsn(value, &mut call.text));
    output::<i32>(builder, "date_out(date)", |call, value| {
        datetime::write_date(value, call.context.style, &mut call.text);
    });
    output::<i64>(builder, "time_out(time)", |call, value| datetime::write_time(value, &mut call.text));
    output::<i64>(builder, "timestamp_out(timestamp)", |call, value| {
        datetime::write_timestamp(value, call.context.style, &mut call.text)
    });
    output::<i64>(builder, "timestamptz_out(timestamptz)", |call, value| {
        datetime::write_timestamptz(value, call.context.style, &mut call.text);
    });
    output::<Interval>(builder, "interval_out(interval)", |call, value| {
        interval::write(&value, call.context.style.intervals, &mut call.text)
    });
    output::<[u8; 16]>(builder, "uuid_out(uuid)", |call, value| text::write_uuid(&value, &mut call.text));
    output::<&[u8]>(builder, "byteaout(bytea)", |call, value| {
        text::write_bytea(value, call.context.style.bytea, &mut call.text);
    });
    output::<&str>(
        builder,
        "textout(text) varcharout(varchar) bpcharout(bpchar) nameout(name) charout(char) unknownout(unknown)",
        |call, value| call.text.push_str(value),
    );
    builder.scalar::<(Datum,), _>(
        "array_out(anyarray) record_out(record) int2vectorout(int2vector) oidvectorout(oidvector)",
        |call, (value,)| {
            let ty = call.signature.arguments[0];
            write(value, ty, call)?;
            Ok::<_, Error>(Text)
        },
    );
}

/// What `now` in a text means.
fn present<'a>(call: &Call<'a>) -> Present<'a> {
    Present { moment: call.context.transaction_time, style: call.context.style }
}

fn input<O: Output>(
    builder: &mut RegistryBuilder,
    signatures: &str,
    read: impl Fn(&mut Call<'_>, &str) -> Result<O> + Send + Sync + 'static,
) {
    // The input functions of text and char take NULL nowhere.
    builder.scalar::<(&str,), _>(signatures, move |call, (text,)| read(call, text));
}

/// An input function that takes the oid of the type of elements, which it does not need, and a modifier.
fn modified<O: Output>(
    builder: &mut RegistryBuilder,
    signatures: &str,
    read: impl Fn(&mut Call<'_>, &str, i32) -> Result<O> + Send + Sync + 'static,
) {
    builder.scalar::<(&str, u32, i32), _>(signatures, move |call, (text, _, modifier)| {
        read(call, text, modifier)
    });
}

fn output<A: Argument>(
    builder: &mut RegistryBuilder,
    signatures: &str,
    write: impl for<'a> Fn(&mut Call<'_>, A::Row<'a>) + Send + Sync + 'static,
) {
    builder.scalar::<(A,), _>(signatures, move |call, (value,)| {
        write(call, value);
        Text
    });
}

/// Appends a value of a type to the call's text, as the type's output function writes it. NULL appends nothing.
pub fn write(value: Datum<'_>, ty: Type, call: &mut Call<'_>) -> Result<()> {
    match value {
        Datum::List(list) => write_list(&list, ty, call),
        Datum::Record(record) => {
            call.text.push('(');
            for number in 0..record.len() {
                if number > 0 {
                    call.text.push(',');
                }
                let (ty, field) = record.get(number);
                let start = call.text.len();
                write(field, ty, call)?;
                let is_quoted = |text: &str| {
                    text.is_empty()
                        || text.contains(|c: char| {
                            matches!(c, '"' | '\\' | '(' | ')' | ',') || c.is_whitespace()
                        })
                };
                if !field.is_null() && is_quoted(&call.text[start..]) {
                    quote(&mut call.text, start, |c| [c, c]);
                }
                // Quotes double with each level.
                check_length(call.text.len())?;
            }
            call.text.push(')');
            Ok(())
        }
        Datum::UInt32(oid) if objects::is_object(ty.id) => {
            objects::write(call, ty.id, oid);
            Ok(())
        }
        value => {
            text::write_any(&value.to_value(ty), ty, call.context.style, &mut call.text);
            Ok(())
        }
    }
}

fn write_list(list: &List<'_>, ty: Type, call: &mut Call<'_>) -> Result<()> {
    let element = ty.element().expect("arrays have elements");
    let delimiter = ',';
    if type_table::info(ty.id).is_some_and(|info| !info.is_array()) {
        for (place, value) in list.iter().enumerate() {
            if place > 0 {
                call.text.push(' ');
            }
            write(value, element, call)?;
        }
        return Ok(());
    }
    if list.is_empty() {
        call.text.push_str("{}");
        return Ok(());
    }
    let dimensions: Vec<_> = (0..list.dimensions()).filter_map(|number| list.dimension(number)).collect();
    if dimensions.iter().any(|dimension| dimension.lower != 1) {
        for dimension in &dimensions {
            write!(call.text, "[{}:{}]", dimension.lower, dimension.upper()).expect("strings take all");
        }
        call.text.push('=');
    }
    // How many elements each pair of braces of a level holds.
    let mut spans = vec![1; dimensions.len()];
    let mut span = 1;
    for (level, dimension) in dimensions.iter().enumerate().rev() {
        span *= dimension.length as usize;
        spans[level] = span;
    }
    for (place, value) in list.iter().enumerate() {
        if place > 0 {
            call.text.push(delimiter);
        }
        spans.iter().filter(|span| place % **span == 0).for_each(|_| call.text.push('{'));
        let start = call.text.len();
        if value.is_null() {
            call.text.push_str("NULL");
        } else {
            write(value, element, call)?;
            let written = &call.text[start..];
            let is_quoted = written.is_empty()
                || written.eq_ignore_ascii_case("null")
                || written.contains(|c: char| {
                    matches!(c, '"' | '\\' | '{' | '}')
                        || c == delimiter
                        || c.is_ascii_whitespace()
                        || c == '\u{b}'
                });
            if is_quoted {
                quote(&mut call.text, start, |c| ['\\', c]);
            }
            check_length(call.text.len())?;
        }
        spans.iter().filter(|span| (place + 1) % **span == 0).for_each(|_| call.text.push('}'));
    }
    Ok(())
}

/// Puts what stands in a text from a place on into quotes; quotes and backslashes in it are written as two characters.
fn quote(text: &mut String, start: usize, escape: fn(char) -> [char; 2]) {
    let plain = text.split_off(start);
    text.push('"');
    for character in plain.chars() {
        match character {
            '"' | '\\' => text.extend(escape(character)),
            other => text.push(other),
        }
    }
    text.push('"');
}
