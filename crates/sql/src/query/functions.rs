//! Functions that need the catalog or the session, for the registry.
//!
//! A call finds them in its context: [`Source`]. Functions of the catalogs are called with its cells.

use super::{sets, snapshots};
use crate::advisory::{Mode, Scope};
use crate::pg_catalog::functions::{FUNCTIONS, Spec, identified};
use crate::pg_catalog::{Cell, Source};
use crate::run::SessionServices;
use crate::services::Services;
use crate::session_facts::SessionFacts;
use crate::{information_schema, pg_catalog};
use firn_base::{Error, Representation, Result, SqlState, Type, TypeId};
use firn_vector::Datum;
use firn_vector::builder::Builder;
use firn_vector::kernel::{Any, Call, Rest, Text};
use firn_vector::registry::{Missing, RegistryBuilder};

/// Registers them.
pub fn register(builder: &mut RegistryBuilder) {
    for spec in FUNCTIONS {
        for missing in builder.missing_named(spec.name) {
            add_catalog_function(builder, &missing, spec);
        }
    }
    sets::register(builder);
    snapshots::register(builder);
    information_schema::functions::register(builder);
    pg_catalog::replication::register(builder);
    builder.scalar::<(u32, u32, i32), _>(
        "pg_identify_object(oid,oid,int4)",
        |call, (class, object, column)| {
            let Some(fields) = identified(source(call)?, class, object.into(), column.into()) else {
                return Err(Error::new(
                    SqlState::UNDEFINED_OBJECT,
                    format!("unsupported object class {class}"),
                ));
            };
            let field = |field: Option<String>| {
                let mut builder = Builder::new(Representation::Text);
                builder.push(field.as_deref().map_or(Datum::Null, Datum::Text));
                (Type::new(TypeId::TEXT), builder.finish())
            };
            call.value.set_record(fields.into_iter().map(field).collect());
            Ok(Any)
        },
    );
    session(builder);
    statistics(builder);
    advisory_locks(builder);
    notifications(builder);
    sequences(builder);
    settings(builder);
}

/// Registers a function of the catalogs.
fn add_catalog_function(builder: &mut RegistryBuilder, missing: &Missing, spec: &'static Spec) {
    let signature = &missing.signature;
    match (missing.is_strict, missing.arguments) {
        (_, 0) => {
            builder.scalar::<(), _>(signature, move |call, _| call_body(spec, call, std::iter::empty()))
        }
        (true, 1) => builder.scalar::<(Datum,), _>(signature, move |call, (first,)| {
            call_body(spec, call, [first].into_iter())
        }),
        (true, 2) => builder.scalar::<(Datum, Datum), _>(signature, move |call, (first, second)| {
            call_body(spec, call, [first, second].into_iter())
        }),
        (true, 3) => builder
            .scalar::<(Datum, Datum, Datum), _>(signature, move |call, (first, second, third)| {
                call_body(spec, call, [first, second, third].into_iter())
            }),
        (true, 4..) => builder.scalar::<(Datum, Datum, Datum, Datum), _>(
            signature,
            move |call, (first, second, third, fourth)| {
                call_body(spec, call, [first, second, third, fourth].into_iter())
            },
        ),
        _ => builder.scalar::<Rest, _>(signature, move |call, arguments| {
            call_body(spec, call, (0..arguments.len()).map(|number| arguments.get(number)))
        }),
    };
}

fn call_body<'a>(
    spec: &'static Spec,
    call: &mut Call<'_>,
    arguments: impl Iterator<Item = Datum<'a>>,
) -> Result<Option<Any>> {
    let cells: Vec<Cell> = arguments.map(cell).collect();
    let cell = (spec.body)(source(call)?, &cells)?;
    let Some(value) = cell.into_value(call.signature.result) else { return Ok(None) };
    let ty = call.signature.result;
    call.value.set_value(&value, ty);
    Ok(Some(Any))
}

/// The session and the catalog of the statement that calls.
pub(super) fn source<'a>(call: &Call<'a>) -> Result<&'a Source> {
    call.context.session.as_any().downcast_ref().ok_or_else(no_session)
}

fn facts<'a>(call: &Call<'a>) -> Result<&'a SessionFacts> {
    Ok(&source(call)?.facts)
}

fn services<'a>(call: &Call<'a>) -> Result<&'a dyn SessionServices> {
    source(call)?.services().ok_or_else(no_session)
}

#[cold]
pub(super) fn no_session() -> Error {
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "no session runs this expression")
}

/// An argument in the form of functions of the catalogs.
fn cell(datum: Datum<'_>) -> Cell {
    match datum {
        Datum::Null => Cell::Null,
        Datum::Boolean(value) => Cell::Boolean(value),
        Datum::Int16(value) => Cell::Integer(value.into()),
        Datum::Int32(value) => Cell::Integer(value.into()),
        Datum::Int64(value) => Cell::Integer(value),
        Datum::UInt32(value) => Cell::Integer(value.into()),
        Datum::Float32(value) => Cell::Float(value.into()),
        Datum::Float64(value) => Cell::Float(value),
        Datum::Text(value) => Cell::Text(value.to_owned()),
        Datum::Numeric(value) => Cell::Text(value.to_string()),
        Datum::List(list) => {
            let cells: Vec<Cell> = list.iter().map(cell).collect();
            match list.representation() {
                Representation::Int16
                | Representation::Int32
                | Representation::Int64
                | Representation::Oid => {
                    let integer = |cell: &Cell| match cell {
                        Cell::Integer(value) => *value,
                        _ => 0,
                    };
                    Cell::Integers(cells.iter().map(integer).collect())
                }
                _ => {
                    let text = |cell: Cell| match cell {
                        Cell::Text(text) => text,
                        _ => String::new(),
                    };
                    Cell::Texts(cells.into_iter().map(text).collect())
                }
            }
        }
        other => panic!("no function of the catalogs takes {other:?}"),
    }
}

/// The functions about the client and the database.
fn session(builder: &mut RegistryBuilder) {
    type Fact = fn(&SessionFacts) -> &str;
    let mut add = |signature: &str, fact: Fact| {
        builder.scalar::<(), _>(signature, move |call, _| {
            let facts = facts(call)?;
            call.text.push_str(fact(facts));
            Ok::<_, Error>(Text)
        });
    };
    add("current_user() session_user()", |facts| &facts.user);
    add("current_database()", |facts| &facts.database);
    builder.scalar::<(), _>("current_schema()", |call, _| {
        let source = source(call)?;
        let exists = |schema: &&String| source.schemas().any(|(_, name)| name == schema.as_str());
        let Some(schema) = source.facts.search_path.iter().find(exists) else { return Ok(None) };
        call.text.push_str(schema);
        Ok::<_, Error>(Some(Text))
    });
    if builder.is_missing("version()") {
        builder.scalar::<(), _>("version()", |call, _| {
            call.text.push_str(&version());
            Text
        });
    }
    builder.scalar::<(), _>("pg_backend_pid()", |call, _| {
        services(call)?.session().map(|session| session as i32)
    });
    builder.scalar::<(), _>("pg_current_xact_id()", |call, _| services(call)?.transaction_number(true));
    builder.scalar::<(), _>("pg_current_xact_id_if_assigned()", |call, _| {
        services(call)?.transaction_number(false)
    });
    builder.scalar::<(), _>("txid_current()", |call, _| services(call)?.transaction_number(true));
    builder
        .scalar::<Rest, _>("txid_current_if_assigned()", |call, _| services(call)?.transaction_number(false));
    // Transaction numbers are never reused.
    builder.scalar::<(u32,), _>("age(xid) mxid_age(xid)", |_, (_,)| i32::MAX);
    builder.scalar::<(i32,), _>("pg_cancel_backend(int4)", |call, (session,)| {
        services(call)?.interrupt(session, false)
    });
    builder.scalar::<(i32, i64), _>("pg_terminate_backend(int4,int8)", |call, (session, timeout)| {
        if timeout < 0 {
            let message = "\"timeout\" must not be negative";
            return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
        }
        services(call)?.interrupt(session, true)
    });
    builder.scalar::<(), _>("current_query()", |call, ()| {
        let query = own_session(call)?.activity().query();
        call.text.push_str(&query);
        Ok::<_, Error>(Text)
    });
    // The binder knows the collation of an expression, and leaves no call.
    builder.scalar::<Rest, _>("pg_collation_for(any)", |_, _| None::<Text>);
    builder.scalar::<(), _>("pg_reload_conf()", |_, ()| true);
    builder.scalar::<(), _>("pg_rotate_logfile()", |call, ()| {
        own_session(call)?.warn("rotation not possible because log collection not active");
        Ok::<_, Error>(false)
    });
}

/// What PostgreSQL counts and FirnDB does not is reset without effect.
fn statistics(builder: &mut RegistryBuilder) {
    builder.scalar::<(), _>("pg_stat_reset()", |call, ()| {
        own_session(call)?.reset_statistics();
        Ok::<_, Error>(Text)
    });
    builder.scalar::<(&str,), _>("pg_stat_reset_shared(text)", |call, (target,)| {
        own_session(call)?.reset_shared_statistics(target).map(|()| Text)
    });
    builder.scalar::<(u32,), _>(
        "pg_stat_reset_single_table_counters(oid) pg_stat_reset_single_function_counters(oid)",
        |_, (_,)| Text,
    );
    builder.scalar::<Rest, _>("pg_stat_reset_slru(text)", |_, _| Text);
    builder.scalar::<(Option<&str>,), _>("pg_stat_reset_replication_slot(text)", |_, (slot,)| match slot {
        None => Ok(Text),
        Some(slot) => {
            let message = format!("replication slot \"{slot}\" does not exist");
            Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
    });
    builder.scalar::<(Option<u32>,), _>("pg_stat_reset_subscription_stats(oid)", |_, (subscription,)| {
        match subscription {
            Some(0) => {
                let message = "invalid subscription OID 0";
                Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message))
            }
            _ => Ok(Text),
        }
    });
    builder.scalar::<(), _>("pg_stat_clear_snapshot() pg_stat_force_next_flush()", |_, ()| Text);
}

/// The session that calls, with all its parts.
fn own_session<'a>(call: &Call<'a>) -> Result<&'a Services> {
    source(call)?.session().ok_or_else(no_session)
}

fn advisory_locks(builder: &mut RegistryBuilder) {
    for (suffix, mode) in [("", Mode::Exclusive), ("_shared", Mode::Shared)] {
        for (prefix, scope) in [("", Scope::Session), ("xact_", Scope::Transaction)] {
            let name = format!("advisory_{prefix}lock{suffix}");
            builder.scalar::<(i64,), _>(&format!("pg_{name}(int8)"), move |call, (key,)| {
                own_session(call)?.lock(key.into(), mode, scope, call.context.cancel).map(|()| Text)
            });
            builder.scalar::<(i32, i32), _>(&format!("pg_{name}(int4,int4)"), move |call, key| {
                own_session(call)?.lock(key.into(), mode, scope, call.context.cancel).map(|()| Text)
            });
            builder.scalar::<(i64,), _>(&format!("pg_try_{name}(int8)"), move |call, (key,)| {
                Ok::<_, Error>(own_session(call)?.try_lock(key.into(), mode, scope))
            });
            builder.scalar::<(i32, i32), _>(&format!("pg_try_{name}(int4,int4)"), move |call, key| {
                Ok::<_, Error>(own_session(call)?.try_lock(key.into(), mode, scope))
            });
        }
        let name = format!("pg_advisory_unlock{suffix}");
        builder.scalar::<(i64,), _>(&format!("{name}(int8)"), move |call, (key,)| {
            Ok::<_, Error>(own_session(call)?.unlock(key.into(), mode))
        });
        builder.scalar::<(i32, i32), _>(&format!("{name}(int4,int4)"), move |call, key| {
            Ok::<_, Error>(own_session(call)?.unlock(key.into(), mode))
        });
    }
    builder.scalar::<(), _>("pg_advisory_unlock_all()", |call, ()| {
        own_session(call)?.unlock_all();
        Ok::<_, Error>(Text)
    });
}

fn notifications(builder: &mut RegistryBuilder) {
    builder.scalar::<(Option<&str>, Option<&str>), _>("pg_notify(text,text)", |call, (channel, payload)| {
        own_session(call)?.notify(channel.unwrap_or_default(), payload.unwrap_or_default()).map(|()| Text)
    });
    // Notifications wait at the listening sessions, for which there is no limit.
    builder.scalar::<(), _>("pg_notification_queue_usage()", |_, ()| 0.0f64);
}

/// Sequences are named by their oids.
fn sequences(builder: &mut RegistryBuilder) {
    builder.scalar::<(u32,), _>("nextval(regclass)", |call, (sequence,)| {
        services(call)?.next_value(&sequence_name(call, sequence)?)
    });
    builder.scalar::<(u32,), _>("currval(regclass)", |call, (sequence,)| {
        services(call)?.current_value(&sequence_name(call, sequence)?)
    });
    builder.scalar::<(), _>("lastval()", |call, _| services(call)?.last_value());
    builder.scalar::<(u32, i64), _>("setval(regclass,int8)", |call, (sequence, value)| {
        services(call)?.set_value(&sequence_name(call, sequence)?, value, true)?;
        Ok::<_, Error>(value)
    });
    builder.scalar::<(u32, i64, bool), _>("setval(regclass,int8,bool)", |call, (sequence, value, called)| {
        services(call)?.set_value(&sequence_name(call, sequence)?, value, called)?;
        Ok::<_, Error>(value)
    });
}

/// The name of a sequence, with its schema and quotes. 42809 if the relation is none.
fn sequence_name(call: &Call<'_>, oid: u32) -> Result<String> {
    source(call)?.sequence_name(oid.into())
}

/// The version in PostgreSQL's form.
fn version() -> String {
    format!("PostgreSQL 15.0 (FirnDB {})", env!("CARGO_PKG_VERSION"))
}

fn settings(builder: &mut RegistryBuilder) {
    let unknown = |name: &str| {
        let message = format!("unrecognized configuration parameter \"{name}\"");
        Error::new(SqlState::UNDEFINED_OBJECT, message)
    };
    if builder.is_missing("current_setting(text)") {
        builder.scalar::<(&str,), _>("current_setting(text)", move |call, (name,)| {
            let setting = services(call)?.setting(name).ok_or_else(|| unknown(name))?;
            call.text.push_str(&setting);
            Ok::<_, Error>(Text)
        });
        builder.scalar::<(&str, bool), _>("current_setting(text,bool)", move |call, (name, may_lack)| {
            match services(call)?.setting(name) {
                Some(setting) => {
                    call.text.push_str(&setting);
                    Ok(Some(Text))
                }
                None if may_lack => Ok(None),
                None => Err(unknown(name)),
            }
        });
    }
    builder.scalar::<(&str, Option<&str>, bool), _>(
        "set_config(text,text,bool)",
        |call, (name, value, is_local)| {
            let value = services(call)?.set_setting(name, value.unwrap_or_default(), is_local)?;
            call.text.push_str(&value);
            Ok::<_, Error>(Text)
        },
    );
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_functions_of_the_session_fit_what_the_catalogs_say() {
        let registry = crate::query::registry();
        for name in ["pg_get_userbyid", "format_type", "nextval", "current_schemas", "regclassin", "version"]
        {
            assert!(!registry.functions_named(name).is_empty(), "{name}");
        }
    }
}
