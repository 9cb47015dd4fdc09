//! Loops over whole vectors against the row kernels beside which they stand: random values with NULLs, constants and selections.
//!
//! A batch kernel is reached through vectors, the row kernel through single values; an aggregate's loop through flat vectors, its row by
//! row way through constants.

use Representation::{Date, Int16, Int32, Int64, PaddedText, Text, Time, Timestamp, TimestampTz};
use firn_base::numeric::{Numeric, POWERS};
use firn_base::random::Random;
use firn_base::{Representation, Type, TypeId};
use firn_vector::builder::Builder;
use firn_vector::context::detached;
use firn_vector::kernel::{Call, Local, Signature};
use firn_vector::registry::Body;
use firn_vector::{Datum, Registry, Rows, Selection, Slot, Vector};

const fn decimal(precision: u8, scale: u8) -> Representation {
    Representation::Decimal { precision, scale }
}

/// The type whose values lie like this.
fn type_of(representation: Representation) -> TypeId {
    match representation {
        Representation::Boolean => TypeId::BOOL,
        Int16 => TypeId::INT2,
        Int32 => TypeId::INT4,
        Int64 => TypeId::INT8,
        Date => TypeId::DATE,
        Time => TypeId::TIME,
        Timestamp => TypeId::TIMESTAMP,
        TimestampTz => TypeId::TIMESTAMPTZ,
        Text => TypeId::TEXT,
        PaddedText => TypeId::BPCHAR,
        Representation::Decimal { .. } | Representation::Numeric => TypeId::NUMERIC,
        other => panic!("no values of {other:?} are drawn"),
    }
}

fn wide(random: &mut Random) -> i128 {
    (i128::from(random.next_u64()) << 64 | i128::from(random.next_u64())) >> random.uniform(0, 127)
}

/// Appends a value: often a small one, so that many are equal, and often one at the end of the range.
fn push(builder: &mut Builder, representation: Representation, random: &mut Random) {
    let is_small = random.uniform(0, 2) > 0;
    let small = random.uniform(-4, 4);
    match representation {
        Int16 => builder.push(Datum::Int16(if is_small { small } else { i64::from(i16::MIN) } as i16)),
        Int32 => builder.push(Datum::Int32(match is_small {
            true => small as i32,
            false => [i32::MIN, i32::MAX][random.uniform(0, 1) as usize],
        })),
        Date => builder.push(Datum::Int32(if is_small { small as i32 } else { 2_000_000 + small as i32 })),
        Int64 => builder.push(Datum::Int64(match is_small {
            true => small,
            false => [i64::MIN, i64::MAX, i64::from(i32::MAX) + 1][random.uniform(0, 2) as usize],
        })),
        // Midnights and others.
        Timestamp => builder.push(Datum::Int64(small * 43_200_000_000 + i64::from(!is_small))),
        Time | TimestampTz => builder.push(Datum::Int64(small.abs())),
        Representation::Decimal { precision, scale } => {
            let most = POWERS[usize::from(precision)] - 1;
            let value = if is_small { i128::from(small) } else { wide(random) % (most + 1) };
            let value = if random.uniform(0, 9) == 0 { most } else { value };
            builder.push(Datum::Numeric(Numeric::from_decimal(value.clamp(-most, most), scale)));
        }
        Representation::Numeric => builder.push(Datum::Numeric(match random.uniform(0, 9) {
            0 => Numeric::NAN,
            1 => Numeric::INFINITY,
            2 => Numeric::NEGATIVE_INFINITY,
            3 => Numeric::new(wide(random) % POWERS[38], random.uniform(0, 60) as u16)
                .expect("it has 38 digits"),
            _ => Numeric::new(small.into(), random.uniform(0, 4) as u16).expect("it is small"),
        })),
        Text | PaddedText => {
            let start = ["", "a", "the same beginning", "b\0"][random.uniform(0, 3) as usize];
            let end = ["", " ", "x", "ä"][random.uniform(0, 3) as usize];
            builder.push(Datum::Text(&format!("{start}{end}")));
        }
        other => panic!("no values of {other:?} are drawn"),
    }
}

fn vector(representation: Representation, length: usize, random: &mut Random) -> Vector {
    let has_nulls = random.uniform(0, 1) == 0;
    let mut builder = Builder::new(representation);
    for _ in 0..length {
        match has_nulls && random.uniform(0, 3) == 0 {
            true => builder.push_null(),
            false => push(&mut builder, representation, random),
        }
    }
    builder.finish()
}

fn constant(representation: Representation, length: usize, random: &mut Random) -> Vector {
    match random.uniform(0, 9) {
        0 => Vector::null(representation, length),
        _ => {
            let mut builder = Builder::new(representation);
            push(&mut builder, representation, random);
            Vector::constant(representation, builder.finish().data().expect("it is flat").clone(), length)
        }
    }
}

fn selection(length: usize, random: &mut Random) -> Option<Selection> {
    let most = random.uniform(0, 3);
    (most > 0).then(|| {
        let rows = (0..length).filter(|_| random.uniform(0, most) == 0).map(|row| row as u16);
        Selection::new(rows.collect::<Vec<_>>())
    })
}

/// Checks a function on vectors that lie like these, of which those in other places are made by `texts` instead.
fn check(
    registry: &Registry,
    name: &str,
    representations: &[Representation],
    texts: &[&str],
    random: &mut Random,
) {
    let types: Vec<TypeId> = representations.iter().map(|it| type_of(*it)).collect();
    let function = registry.function_of(name, &types).unwrap_or_else(|| panic!("there is a {name}{types:?}"));
    let result = Type::new(function.result);
    let signature = Signature {
        arguments: types.iter().map(|ty| Type::new(*ty)).collect(),
        representations: representations.into(),
        result,
        representation: function.representation(representations, result),
        has_variadic_array: false,
    };
    let mut site = function.call_site(signature);
    let context = detached();
    for _ in 0..40 {
        let length = random.uniform(1, 150) as usize;
        let arguments: Vec<Vector> = representations
            .iter()
            .map(|representation| match (random.uniform(0, 2), texts) {
                (0..=1, [_, ..]) if *representation == Text => {
                    let mut builder = Builder::new(Text);
                    builder.push(Datum::Text(texts[random.uniform(0, texts.len() as i64 - 1) as usize]));
                    Vector::constant(Text, builder.finish().data().expect("it is flat").clone(), length)
                }
                (0, _) => constant(*representation, length, random),
                // A slice begins within its buffers.
                _ => vector(*representation, length + 5, random).slice(5, length),
            })
            .collect();
        let selected = selection(length, random);
        let rows = selected.as_ref().map_or(Rows::all(length), |selected| selected.rows(length));
        let found = site.vectors(&context, &arguments, rows);
        let (mut slot, mut failed) = (Slot::new(), None);
        rows.each(|row| {
            let cells: Vec<Datum<'_>> = arguments.iter().map(|argument| argument.datum(row)).collect();
            match (site.cells(&context, &cells, &mut slot), &found) {
                (Ok(()), Ok(found)) => assert_eq!(
                    format!("{:?}", found.datum(row)),
                    format!("{:?}", slot.get()),
                    "{name} of {cells:?}, which lie as {representations:?}"
                ),
                (Ok(()), Err(_)) => {}
                (Err(error), _) => failed = failed.take().or(Some(error)),
            }
        });
        let state = |error: Option<firn_base::Error>| error.map(|error| error.state());
        assert_eq!(state(found.err()), state(failed), "{name} of {representations:?}");
    }
}

#[test]
fn arithmetic_on_decimals_is_that_of_numerics() {
    let (registry, mut random) = (Registry::built_in(), Random::seeded(1));
    let kinds =
        [decimal(5, 2), decimal(15, 2), decimal(18, 0), decimal(16, 2), decimal(19, 4), decimal(31, 4)];
    for left in kinds.into_iter().chain([Representation::Numeric]) {
        for right in kinds {
            for name in ["numeric_add", "numeric_sub", "numeric_mul"] {
                check(&registry, name, &[left, right], &[], &mut random);
                check(&registry, name, &[right, left], &[], &mut random);
            }
        }
        check(&registry, "numeric_uminus", &[left], &[], &mut random);
    }
    for representation in [Int16, Int32, Int64] {
        check(&registry, "numeric", &[representation], &[], &mut random);
    }
}

#[test]
fn comparisons_of_vectors_are_those_of_rows() {
    let (registry, mut random) = (Registry::built_in(), Random::seeded(2));
    let decimals = [decimal(4, 0), decimal(15, 2), decimal(18, 9), decimal(38, 4), decimal(30, 20)];
    for suffix in ["lt", "le", "eq", "ge", "gt", "ne"] {
        let mut of = |name: String, left, right| check(&registry, &name, &[left, right], &[], &mut random);
        for left in decimals.into_iter().chain([Representation::Numeric]) {
            for right in decimals.into_iter().chain([Representation::Numeric]) {
                of(format!("numeric_{suffix}"), left, right);
            }
        }
        of(format!("int2{suffix}"), Int16, Int16);
        of(format!("int4{suffix}"), Int32, Int32);
        of(format!("int8{suffix}"), Int64, Int64);
        of(format!("int48{suffix}"), Int32, Int64);
        of(format!("int84{suffix}"), Int64, Int32);
        of(format!("date_{suffix}"), Date, Date);
        of(format!("time_{suffix}"), Time, Time);
        of(format!("timestamp_{suffix}"), Timestamp, Timestamp);
        of(format!("timestamptz_{suffix}"), TimestampTz, TimestampTz);
        of(format!("date_{suffix}_timestamp"), Date, Timestamp);
        of(format!("timestamp_{suffix}_date"), Timestamp, Date);
        of(format!("bpchar{suffix}"), PaddedText, PaddedText);
        let underscore = if matches!(suffix, "eq" | "ne") { "" } else { "_" };
        of(format!("text{underscore}{suffix}"), Text, Text);
    }
}

#[test]
fn functions_whose_text_is_constant_answer_as_those_of_rows() {
    let (registry, mut random) = (Registry::built_in(), Random::seeded(3));
    let patterns = ["%same%", "the%", "%x", "a%ä", "_", "%\\", "", "b\0%", "%e%e%", "a", "\\%"];
    for name in ["textlike", "textnlike", "strpos"] {
        check(&registry, name, &[Text, Text], &patterns, &mut random);
    }
    let units = ["year", "MONTH", "day", "week", "epoch", "nothing", "timezone", "hour", "julian"];
    for name in ["extract", "date_part", "date_trunc"] {
        for representation in [Date, Time, Timestamp, TimestampTz] {
            if name != "date_trunc" || !matches!(representation, Date | Time) {
                check(&registry, name, &[Text, representation], &units, &mut random);
            }
        }
    }
    check(&registry, "substring", &[Text, Int32, Int32], &["", "abcdef", "aäoöuü", "äaaaa"], &mut random);
    check(&registry, "substring", &[Text, Int32], &["", "abcdef", "aäoöuü", "äaaaa"], &mut random);
}

/// The results of some groups, to which rows have been added in pieces, by loops or one by one.
#[test]
fn aggregates_of_vectors_are_those_of_rows() {
    let (registry, mut random) = (Registry::built_in(), Random::seeded(4));
    let numerics = [decimal(15, 2), decimal(38, 4), Representation::Numeric];
    let whole = [Int16, Int32, Int64];
    let ordered = [Int32, Int64, Date, Timestamp];
    let of = |names: [&'static str; 2], kinds: &[Representation]| -> Vec<(&'static str, Representation)> {
        names.into_iter().flat_map(|name| kinds.iter().map(move |kind| (name, *kind))).collect()
    };
    let mut all = of(["sum", "avg"], &numerics);
    all.extend(of(["sum", "avg"], &whole));
    all.extend(of(["min", "max"], &numerics));
    all.extend(of(["min", "max"], &ordered));
    all.extend(of(["count", "count"], &[Int32, Text]));
    for (name, representation) in all {
        let ty = type_of(representation);
        let named = if name == "count" { TypeId::ANY } else { ty };
        let function =
            registry.function_of(name, &[named]).unwrap_or_else(|| panic!("there is a {name} of {ty:?}"));
        let Body::Aggregate(body) = &function.body else { panic!("{name} is an aggregate") };
        let result = Type::new(function.result);
        let signature = Signature {
            arguments: [Type::new(ty)].into(),
            representations: [representation].into(),
            result,
            representation: result.representation().expect("it has values"),
            has_variadic_array: false,
        };
        for _ in 0..30 {
            let groups = if random.uniform(0, 2) == 0 { 1 } else { random.uniform(2, 5) as usize };
            let (context, mut local) = (detached(), Local::default());
            let mut call = Call::new(&context, &signature, &mut local);
            let (mut batch, mut single) = (body.kernel.states(), body.kernel.states());
            batch.resize(&signature, groups);
            single.resize(&signature, groups);
            let mut outcomes = [Ok(()), Ok(())];
            for _ in 0..3 {
                let length = random.uniform(1, 60) as usize;
                let argument = vector(representation, length, &mut random);
                let numbers: Vec<u32> =
                    (0..length).map(|_| random.uniform(0, groups as i64 - 1) as u32).collect();
                let selected = selection(length, &mut random);
                let rows = selected.as_ref().map_or(Rows::all(length), |selected| selected.rows(length));
                let arguments = [argument];
                let added = batch.add(&mut call, &numbers, &arguments, rows);
                outcomes[0] = std::mem::replace(&mut outcomes[0], Ok(())).and(added);
                rows.each(|row| {
                    let one = match arguments[0].is_null(row) {
                        true => Vector::null(representation, 1),
                        false => {
                            let data = arguments[0].data().expect("it is flat").slice(row, 1);
                            Vector::constant(representation, data, 1)
                        }
                    };
                    let added = single.add_to(&mut call, numbers[row] as usize, &[one], Rows::all(1));
                    outcomes[1] = std::mem::replace(&mut outcomes[1], Ok(())).and(added);
                });
                // States are written and read in between.
                let mut image = Vec::new();
                (0..groups).for_each(|group| batch.write(group, &mut image));
                batch.resize(&signature, 0);
                let mut image = &image[..];
                (0..groups).for_each(|_| batch.read(&signature, &mut image));
            }
            let [of_batch, of_single] = &outcomes;
            assert_eq!(of_batch.is_ok(), of_single.is_ok(), "{name} of {representation:?}");
            if of_batch.is_err() {
                continue;
            }
            let mut show = |states: &dyn firn_vector::aggregate::States| {
                let mut out = Builder::new(signature.representation);
                let finished = states.finish(&mut call, 0..groups, &mut out).map_err(|error| error.state());
                let out = out.finish();
                finished
                    .map(|()| (0..groups).map(|group| format!("{:?}", out.datum(group))).collect::<Vec<_>>())
            };
            assert_eq!(show(&*batch), show(&*single), "{name} of {representation:?}");
        }
    }
}

/// A moving frame: what was added first is removed again.
#[test]
fn sums_of_decimals_give_back_what_is_removed() {
    let (registry, mut random) = (Registry::built_in(), Random::seeded(5));
    let function = registry.function_of("sum", &[TypeId::NUMERIC]).expect("numerics have sums");
    let Body::Aggregate(body) = &function.body else { panic!("it is an aggregate") };
    let numeric = Type::new(TypeId::NUMERIC);
    let representation = decimal(15, 2);
    let signature = Signature {
        arguments: [numeric].into(),
        representations: [representation].into(),
        result: numeric,
        representation: Representation::Numeric,
        has_variadic_array: false,
    };
    let (context, mut local) = (detached(), Local::default());
    let mut call = Call::new(&context, &signature, &mut local);
    let values = [vector(representation, 100, &mut random)];
    let mut moving = body.kernel.states();
    moving.resize(&signature, 1);
    for end in 0..100usize {
        let row = end as u16;
        moving.add_to(&mut call, 0, &values, Rows::at(&[row], 100)).expect("it fits");
        if end >= 7 {
            let removed = moving.remove_from(&mut call, 0, &values, Rows::at(&[row - 7], 100));
            assert!(removed.expect("it fits"), "decimals of one scale can be removed");
        }
        let mut anew = body.kernel.states();
        anew.resize(&signature, 1);
        let frame: Vec<u16> = (end.saturating_sub(6)..=end).map(|row| row as u16).collect();
        anew.add_to(&mut call, 0, &values, Rows::at(&frame, 100)).expect("it fits");
        let mut both = Builder::new(Representation::Numeric);
        moving.finish(&mut call, 0..1, &mut both).expect("it fits");
        anew.finish(&mut call, 0..1, &mut both).expect("it fits");
        let both = both.finish();
        assert_eq!(format!("{:?}", both.datum(0)), format!("{:?}", both.datum(1)), "the frame up to {end}");
    }
}
