//! Functions that ask the surroundings of a call: settings, the time, chance.

use crate::kernel::{Call, Text};
use crate::registry::RegistryBuilder;
use firn_base::random::{Random, secret_bytes};
use firn_base::{Error, Result, SqlState, clock};
use std::time::Duration;

/// How long a sleep may not look whether the statement shall end.
const NAP: Duration = Duration::from_millis(10);

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(&str,), _>("current_setting(text)", |call, (name,)| {
        setting(call, name)?.ok_or_else(|| unknown_setting(name))
    });
    builder.scalar::<(&str, bool), _>("current_setting(text,bool)", |call, (name, may_be_missing)| {
        match setting(call, name)? {
            None if !may_be_missing => Err(unknown_setting(name)),
            found => Ok(found),
        }
    });
    builder.asks_session("current_setting(text) current_setting(text,bool)");
    builder.scalar::<(), _>("version()", |call, ()| {
        // Clients read the number behind the first word.
        let server = call.context.settings.get("server_version");
        let number = server.as_deref().and_then(|version| version.split(' ').next()).unwrap_or("15.0");
        call.text.push_str("PostgreSQL ");
        call.text.push_str(number);
        call.text.push_str(concat!(" (FirnDB ", env!("CARGO_PKG_VERSION"), ")"));
        Text
    });
    builder.scalar::<(f64,), _>("pg_sleep(float8)", |call, (seconds,)| sleep(call, seconds));
    builder.scalar::<(firn_base::Interval,), _>("pg_sleep_for(interval)", |call, (span,)| {
        sleep(call, span.comparable() as f64 / 1e6)
    });
    builder.scalar::<(i64,), _>("pg_sleep_until(timestamptz)", |call, (moment,)| {
        sleep(call, moment.saturating_sub(clock::wall_clock_micros()) as f64 / 1e6)
    });
    builder.scalar::<(), _>("random()", |call, ()| {
        if let Some(seeded) = call.context.settings.seeded_random()
            && let Some(random) = &mut *seeded.lock()
        {
            return random.unit();
        }
        call.local.get(Random::from_entropy).unit()
    });
    builder.scalar::<(f64,), _>("setseed(float8)", |call, (seed,)| {
        if !(-1.0..=1.0).contains(&seed) {
            let message = format!("setseed parameter {seed} is out of allowed range [-1,1]");
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
        if let Some(seeded) = call.context.settings.seeded_random() {
            *seeded.lock() = Some(Random::seeded(seed.to_bits()));
        }
        Ok(Text)
    });
    builder.scalar::<(), _>("gen_random_uuid()", |_, ()| {
        let mut bytes = secret_bytes::<16>();
        // Version 4, variant 1 (RFC 9562, section 5.4).
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        bytes
    });
}

/// Appends the value of a setting, if there is one of that name.
fn setting(call: &mut Call<'_>, name: &str) -> Result<Option<Text>> {
    Ok(call.context.settings.get(name).map(|value| {
        call.text.push_str(&value);
        Text
    }))
}

#[cold]
fn unknown_setting(name: &str) -> Error {
    Error::new(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

/// Waits, and ends with the statement. A time that is NaN or not above zero is over at once.
fn sleep(call: &mut Call<'_>, seconds: f64) -> Result<Text> {
    let start = clock::now();
    // A longer one ends with the statement anyway.
    let most = Duration::from_secs(u64::from(u32::MAX));
    let wanted = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(most);
    loop {
        call.context.check_cancel()?;
        match wanted.checked_sub(start.elapsed()).filter(|rest| !rest.is_zero()) {
            Some(rest) => clock::sleep(rest.min(NAP)),
            None => return Ok(Text),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::context::{Settings, detached};
    use crate::kernel::Signature;
    use crate::registry::Registry;
    use crate::{Context, Datum, Slot};
    use firn_base::{SqlState, Type, Value};

    struct One;

    impl Settings for One {
        fn get(&self, name: &str) -> Option<String> {
            (name == "work_mem").then(|| "4MB".to_owned())
        }
    }

    fn call(context: &Context<'_>, name: &str, arguments: &[(Type, Datum<'_>)]) -> firn_base::Result<Value> {
        let registry = Registry::built_in();
        let types: Vec<_> = arguments.iter().map(|(ty, _)| ty.id).collect();
        let function = registry.function_of(name, &types).expect("it is in the registry");
        let result = Type::new(function.result);
        let mut site = function.call_site(Signature {
            arguments: arguments.iter().map(|(ty, _)| *ty).collect(),
            representations: arguments.iter().map(|(ty, _)| ty.representation().expect("values")).collect(),
            result,
            representation: result.representation().expect("values"),
            has_variadic_array: false,
        });
        let datums: Vec<_> = arguments.iter().map(|(_, datum)| *datum).collect();
        let mut out = Slot::new();
        site.cells(context, &datums, &mut out)?;
        Ok(out.get().to_value(result))
    }

    #[test]
    fn settings_are_read_and_unknown_ones_refused_or_null() {
        let context = Context { settings: &One, ..detached() };
        let text = Type::new(firn_base::TypeId::TEXT);
        let boolean = Type::new(firn_base::TypeId::BOOL);
        let known = [(text, Datum::Text("work_mem"))];
        assert_eq!(call(&context, "current_setting", &known).unwrap(), Value::Text("4MB".into()));
        let unknown = [(text, Datum::Text("x.y")), (boolean, Datum::Boolean(true))];
        assert_eq!(call(&context, "current_setting", &unknown).unwrap(), Value::Null);
        let error = call(&context, "current_setting", &unknown[..1]).unwrap_err();
        assert_eq!(error.state(), SqlState::UNDEFINED_OBJECT);
        let version = call(&context, "version", &[]).unwrap();
        assert!(matches!(version, Value::Text(text) if text.starts_with("PostgreSQL 15.0 (FirnDB ")));
    }

    #[test]
    fn a_sleep_ends_with_its_statement() {
        let cancel = firn_base::Cancel::new();
        let double = Type::new(firn_base::TypeId::FLOAT8);
        let sleep = |seconds: f64| {
            let context = Context { cancel: &cancel, ..detached() };
            call(&context, "pg_sleep", &[(double, Datum::Float64(seconds))])
        };
        assert!(sleep(f64::NAN).is_ok() && sleep(-1.0).is_ok() && sleep(0.001).is_ok());
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| sleep(f64::INFINITY));
            cancel.cancel();
            let error = sleeper.join().expect("it does not panic").unwrap_err();
            assert_eq!(error.state(), SqlState::QUERY_CANCELED);
        });
    }

    #[test]
    fn random_numbers_and_uuids_differ() {
        let context = detached();
        let number = || call(&context, "random", &[]).unwrap();
        let (one, other) = (number(), number());
        assert!(matches!(one, Value::Double(value) if (0.0..1.0).contains(&value)) && one != other);
        let Value::Uuid(uuid) = call(&context, "gen_random_uuid", &[]).unwrap() else { panic!("it is one") };
        assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (4, 2));
    }
}
