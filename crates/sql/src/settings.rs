//! Settings: SET, SHOW and RESET, and how a transaction rolls them back.
//!
//! Only values that differ from the defaults are stored. A SET inside a transaction block is undone when the
//! block rolls back; SET LOCAL is undone when it ends either way.

mod numbers;
mod parameters;

use crate::standby::{SynchronousCommit, Token};
use firn_base::encoding::Encoding;
use firn_base::sync::Arc;
use firn_base::text_style::{ByteaStyle, DateOrder, DateStyle, IntervalStyle};
use firn_base::time_zone::{self, PosixZone};
use firn_base::{Error, Result, SqlState, TextStyle, TimeZoneSetting};
use firn_txn::Isolation;
use numbers::{Unit, Wrong};
use parameters::{Kind, PARAMETERS, Parameter};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

/// The default of `max_stack_depth`.
const DEFAULT_STACK_KB: i32 = 2048;

/// A setting and its description.
pub struct Described<'s> {
    /// Its name.
    pub name: &'static str,
    /// Its current value, a length of time or of memory as a number of units.
    pub value: Cow<'s, str>,
    /// The unit of such a number.
    pub unit: Option<&'static str>,
    /// The value that RESET restores.
    pub reset: Cow<'s, str>,
    /// The built-in default.
    pub default: Cow<'static, str>,
    /// PostgreSQL's word for its type.
    pub kind: &'static str,
    /// The least and the greatest number that it takes.
    pub range: Option<(String, String)>,
    /// The words that it accepts, if it accepts only some.
    pub choices: Option<&'static [&'static str]>,
    /// Whether it cannot be set.
    pub is_fixed: bool,
    /// Its purpose.
    pub about: &'static str,
}

/// The settings of a session. Copies share the maps that neither changes, because every transaction block
/// keeps a copy to roll back to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// The values that sessions of this database begin with and that RESET restores, where they differ from the built-in
    /// defaults. By lower-case name, like the others.
    defaults: Arc<BTreeMap<String, String>>,
    /// Values set for the session.
    session: Arc<BTreeMap<String, String>>,
    /// Values set for the transaction, which hide those.
    local: Arc<BTreeMap<String, String>>,
    /// The modes of the open block's transaction.
    running: Option<Running>,
}

/// The settings that only the session itself needs while another server runs its query: how long statements may take, what its
/// transactions are, and which queries are handed out.
const OF_SESSION: [&str; 17] = [
    "client_connection_check_interval",
    "default_transaction_deferrable",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "firn.read_after",
    "firn.read_after_timeout",
    "firn.route_min_rows",
    "firn.route_queries",
    "firn.stale_reads",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "lock_timeout",
    "statement_timeout",
    "synchronous_commit",
    "transaction_deferrable",
    "transaction_isolation",
    "transaction_read_only",
];

/// Whether a setting goes with a query that another server runs.
fn is_carried(parameter: &Parameter) -> bool {
    !matches!(parameter.kind, Kind::Fixed(_) | Kind::Role | Kind::Off)
        && !OF_SESSION.contains(&parameter.name)
}

/// The modes of a block's transaction, as SHOW prints them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Running {
    /// `transaction_isolation`
    pub level: Level,
    /// `transaction_deferrable`
    pub is_deferrable: bool,
}

/// An isolation level by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// READ UNCOMMITTED, which is run as READ COMMITTED: uncommitted rows are never read.
    ReadUncommitted,
    /// Another one.
    As(Isolation),
}

impl Level {
    /// The level of that name.
    pub fn named(name: &str) -> Option<Level> {
        Some(match name.to_lowercase().as_str() {
            "read uncommitted" => Level::ReadUncommitted,
            "read committed" => Level::As(Isolation::ReadCommitted),
            "repeatable read" => Level::As(Isolation::Snapshot),
            "serializable" => Level::As(Isolation::Serializable),
            _ => return None,
        })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Level::ReadUncommitted => "read uncommitted",
            Level::As(isolation) => isolation_name(isolation),
        }
    }

    /// The isolation of a transaction of that level.
    pub fn isolation(self) -> Isolation {
        match self {
            Level::ReadUncommitted => Isolation::ReadCommitted,
            Level::As(isolation) => isolation,
        }
    }
}

impl Settings {
    /// Every setting at its default.
    pub fn new() -> Settings {
        Settings::default()
    }

    /// The value of a setting as SHOW prints it; `None` if there is no such setting.
    pub fn get(&self, name: &str) -> Option<&str> {
        let key = name.to_lowercase();
        match (key.as_str(), self.running) {
            ("transaction_isolation", Some(running)) => return Some(running.level.name()),
            ("transaction_isolation", None) => return self.get("default_transaction_isolation"),
            ("transaction_deferrable", Some(Running { is_deferrable, .. })) => {
                return Some(if is_deferrable { "on" } else { "off" });
            }
            ("transaction_deferrable", None) => return self.get("default_transaction_deferrable"),
            _ => {}
        }
        let set = self.local.get(&key).or_else(|| self.session.get(&key)).map(String::as_str);
        if set.is_none() && key == "transaction_read_only" {
            return Some(match self.running {
                _ if self.is_in_hot_standby() => "on",
                None => self.known("default_transaction_read_only"),
                Some(_) => "off",
            });
        }
        set.or_else(|| self.default_of(&key))
    }

    /// Whether the server is a replica.
    pub fn is_in_hot_standby(&self) -> bool {
        self.known("in_hot_standby") == "on"
    }

    /// What a replica is to have replayed before a statement reads.
    pub fn read_after(&self) -> Option<Token> {
        Token::parse(self.known("firn.read_after"))
    }

    /// How long a statement waits for that.
    pub fn read_after_timeout(&self) -> Option<Duration> {
        self.duration("firn.read_after_timeout")
    }

    /// From how many rows on replicas may run a query, if they may at all.
    pub fn least_routed_work(&self) -> Option<f64> {
        let least = || numbers::integer(self.known("firn.route_min_rows"), None);
        (self.known("firn.route_queries") == "on")
            .then(|| f64::from(least().expect("checked when it was set")))
    }

    /// The settings that are not built-in defaults, for a session of another server that runs one query of this one. Custom settings are not
    /// among them: no function that could read them runs elsewhere.
    pub fn carried(&self) -> Vec<(String, String)> {
        let carried = PARAMETERS.iter().filter(|parameter| is_carried(parameter));
        let values = carried.map(|parameter| (parameter, self.known(parameter.name)));
        let others = values.filter(|(parameter, value)| *value != parameter.default);
        others.map(|(parameter, value)| (parameter.name.to_owned(), value.to_owned())).collect()
    }

    /// Sets the [carried](Settings::carried) settings of a session of another server. Errors as for [`Settings::set`].
    pub fn adopt_carried(&mut self, carried: &[(String, String)]) -> Result<()> {
        for parameter in PARAMETERS.iter().filter(|parameter| is_carried(parameter)) {
            let name = parameter.name.to_lowercase();
            if self.get(&name) != Some(parameter.default) {
                self.set(&name, Some(parameter.default), false)?;
            }
        }
        carried.iter().try_for_each(|(name, value)| self.set(name, Some(value), false))
    }

    /// The value that RESET restores.
    fn default_of(&self, key: &str) -> Option<&str> {
        let default = || find(key).map(|parameter| parameter.default);
        self.defaults.get(key).map(String::as_str).or_else(default)
    }

    /// The value of a setting that is in the table.
    fn known(&self, name: &str) -> &str {
        self.get(name).unwrap_or_else(|| panic!("{name} is a setting"))
    }

    /// The value as SHOW prints it; 42704 if there is no such setting.
    pub fn show(&self, name: &str) -> Result<&str> {
        self.get(name).ok_or_else(|| unknown(name))
    }

    /// Name, value and description of every setting, for SHOW ALL.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, String, &'static str)> + '_ {
        PARAMETERS
            .iter()
            .map(|parameter| (parameter.name, self.known(parameter.name).to_owned(), parameter.about))
    }

    /// Every setting, for `pg_settings`.
    pub fn described(&self) -> impl Iterator<Item = Described<'_>> {
        PARAMETERS.iter().map(|parameter| Described {
            name: parameter.name,
            value: in_units(parameter, self.known(parameter.name)),
            unit: parameter.kind.unit().map(Unit::name),
            reset: in_units(
                parameter,
                self.default_of(&parameter.name.to_lowercase()).unwrap_or(parameter.default),
            ),
            default: in_units(parameter, parameter.default),
            kind: parameter.kind.word(),
            range: match parameter.kind {
                Kind::Integer(_, low, high) => Some((low.to_string(), high.to_string())),
                Kind::Real(_, low, high) => Some((numbers::general(low), numbers::general(high))),
                _ => None,
            },
            choices: match parameter.kind {
                Kind::Choice(choices) => Some(choices),
                _ => None,
            },
            is_fixed: matches!(parameter.kind, Kind::Fixed(_)),
            about: parameter.about,
        })
    }

    /// The name as it is reported to clients: `TimeZone`, not `timezone`.
    pub fn reported_name(name: &str) -> Option<&'static str> {
        find(&name.to_lowercase()).map(|parameter| parameter.name)
    }

    /// Sets a setting, for the session or the transaction; to its default without a value.
    pub fn set(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<()> {
        let key = name.to_lowercase();
        let value = match find(&key) {
            Some(Parameter { kind: Kind::Role, .. }) => {
                value.map(|value| self.check_role(&key, value)).transpose()?
            }
            Some(parameter @ Parameter { kind: Kind::DateStyle, .. }) => {
                value.map(|value| self.check_date_style(parameter, value)).transpose()?
            }
            Some(Parameter { kind: Kind::Fixed(_), name, .. })
                if value.is_some_and(|value| self.default_of(&key) != Some(value)) =>
            {
                return Err(cannot_be_changed(name));
            }
            // The value that it has anyway.
            Some(Parameter { kind: Kind::Fixed(_), .. }) => return Ok(()),
            Some(parameter) => value.map(|value| check(parameter, name, value)).transpose()?,
            // As in PostgreSQL, a name with a point in it is a custom setting.
            None if key.contains('.') => value.map(str::to_owned),
            None => return Err(unknown(name)),
        };
        if local {
            let value = value.unwrap_or_else(|| self.default_of(&key).unwrap_or("").to_owned());
            Arc::make_mut(&mut self.local).insert(key, value);
            return Ok(());
        }
        Arc::make_mut(&mut self.local).remove(&key);
        let session = Arc::make_mut(&mut self.session);
        match value {
            Some(value) => session.insert(key, value),
            None => session.remove(&key),
        };
        Ok(())
    }

    /// The only role is the user.
    fn check_role(&self, key: &str, name: &str) -> Result<String> {
        let user = self.default_of("session_authorization").expect("it is a setting");
        match name {
            "none" if key == "role" => Ok("none".to_owned()),
            name if name == user => Ok(name.to_owned()),
            name => {
                Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("role \"{name}\" does not exist")))
            }
        }
    }

    /// A style of dates and an order; the one that is not given does not change.
    fn check_date_style(&self, parameter: &Parameter, value: &str) -> Result<String> {
        let invalid = |detail: String| invalid(parameter, value).with_detail(detail);
        let (mut style, mut order, mut implied) = (None, None, None);
        for word in split_list(value) {
            if let Some(found) = DateStyle::named(&word) {
                if style.is_some_and(|before| before != found) {
                    return Err(invalid("Conflicting \"datestyle\" specifications.".to_owned()));
                }
                style = Some(found);
                if found == DateStyle::German {
                    implied = Some(DateOrder::Dmy);
                }
            } else if let Some(found) = DateOrder::named(&word) {
                if order.is_some_and(|before| before != found) {
                    return Err(invalid("Conflicting \"datestyle\" specifications.".to_owned()));
                }
                order = Some(found);
            } else if word == "default" {
                let (default_style, default_order) =
                    date_style(self.default_of("datestyle").expect("it is a setting"));
                style = style.or(Some(default_style));
                order = order.or(implied).or(Some(default_order));
            } else {
                return Err(invalid(format!("Unrecognized key word: \"{word}\".")));
            }
        }
        let (current_style, current_order) = date_style(self.known("datestyle"));
        let (style, order) = (style.unwrap_or(current_style), order.or(implied).unwrap_or(current_order));
        Ok(format!("{}, {}", style.name(), order.name()))
    }

    /// Sets the user.
    pub fn set_user(&mut self, user: &str) {
        if self.default_of("session_authorization") != Some(user) {
            Arc::make_mut(&mut self.defaults).insert("session_authorization".to_owned(), user.to_owned());
        }
    }

    /// RESET ALL.
    pub fn reset_all(&mut self) {
        // As in PostgreSQL, it does not reset the roles.
        let mut session = std::mem::take(Arc::make_mut(&mut self.session));
        session.retain(|name, _| matches!(find(name), Some(Parameter { kind: Kind::Role, .. })));
        *self = Settings {
            defaults: self.defaults.clone(),
            session: Arc::new(session),
            running: self.running,
            ..Settings::default()
        };
    }

    /// Sets the value of a setting that cannot be set: it was decided when the database was opened.
    pub fn fix(&mut self, name: &'static str, value: String) {
        assert!(find(name).is_some_and(|parameter| matches!(parameter.kind, Kind::Fixed(_))));
        Arc::make_mut(&mut self.defaults).insert(name.to_owned(), value);
    }

    /// Sets the value with which new sessions begin. Errors as for [`Settings::set`].
    pub fn set_default(&mut self, name: &str, value: &str) -> Result<()> {
        let mut checked = Settings::new();
        checked.set(name, Some(value), false)?;
        Arc::make_mut(&mut self.defaults).extend(Arc::unwrap_or_clone(checked.session));
        Ok(())
    }

    /// Sets the modes of the open block's transaction, if there is one.
    pub fn set_running(&mut self, running: Option<Running>) {
        self.running = running;
    }

    /// The modes of the open block's transaction.
    pub fn running(&self) -> Option<Running> {
        self.running
    }

    /// Undoes what was set since a copy was made. What has changed in the server meanwhile is not undone.
    pub fn restore(&mut self, before: Settings) {
        let defaults = std::mem::take(&mut self.defaults);
        *self = Settings { defaults, ..before };
    }

    /// Undoes SET LOCAL.
    pub fn end_transaction(&mut self) {
        if !self.local.is_empty() {
            self.local = Arc::default();
        }
    }

    /// The schemas in which names are looked up, in order. Users have no schemas of their own.
    pub fn search_path(&self) -> Vec<String> {
        let mut schemas = split_list(self.known("search_path"));
        schemas.retain(|schema| schema != "$user");
        schemas
    }

    /// How long a statement may run.
    pub fn statement_timeout(&self) -> Option<Duration> {
        self.duration("statement_timeout")
    }

    /// How long a statement may wait for a row that another transaction is changing.
    pub fn lock_timeout(&self) -> Option<Duration> {
        self.duration("lock_timeout")
    }

    /// How long a statement runs until the server checks whether its client is still connected.
    pub fn client_check_interval(&self) -> Option<Duration> {
        self.duration("client_connection_check_interval")
    }

    /// How long a client may leave a transaction block idle.
    pub fn idle_in_transaction_timeout(&self) -> Option<Duration> {
        self.duration("idle_in_transaction_session_timeout")
    }

    /// How long a client may be idle outside transaction blocks.
    pub fn idle_session_timeout(&self) -> Option<Duration> {
        self.duration("idle_session_timeout")
    }

    /// How many bytes the session's queries may hold in temporary files.
    pub fn temporary_file_limit(&self) -> Option<u64> {
        let kilobytes = numbers::integer(self.known("temp_file_limit"), Some(Unit::Kilobytes));
        let kilobytes = kilobytes.expect("checked when it was set");
        u64::try_from(kilobytes).ok().map(|kilobytes| kilobytes << 10)
    }

    fn duration(&self, name: &str) -> Option<Duration> {
        match duration_ms(self.known(name)) {
            Some(0) | None => None,
            Some(ms) => Some(Duration::from_millis(ms as u64)),
        }
    }

    /// What COMMIT waits for.
    pub fn synchronous_commit(&self) -> SynchronousCommit {
        SynchronousCommit::named(self.known("synchronous_commit")).expect("checked when it was set")
    }

    /// Whether queries may read what was before another server became the primary.
    pub fn allows_stale_reads(&self) -> bool {
        self.known("firn.stale_reads") == "on"
    }

    /// Whether foreign keys are not checked: the rows that the session writes have been checked at their origin.
    pub fn trusts_references(&self) -> bool {
        self.known("session_replication_role") == "replica"
    }

    /// Whether new transactions may only read.
    pub fn default_read_only(&self) -> bool {
        self.known("default_transaction_read_only") == "on"
    }

    /// The isolation level of new transactions.
    pub fn default_isolation(&self) -> Isolation {
        self.default_running().level.isolation()
    }

    /// The modes of new transactions.
    pub fn default_running(&self) -> Running {
        Running {
            level: Level::named(self.known("default_transaction_isolation"))
                .expect("checked when it was set"),
            is_deferrable: self.known("default_transaction_deferrable") == "on",
        }
    }

    /// The options with which statements are parsed. The default of `max_stack_depth` allows all levels of nesting, and a smaller
    /// value proportionally fewer; a larger value allows no more.
    pub fn syntax(&self) -> firn_syntax::Options {
        let depth = numbers::integer(self.known("max_stack_depth"), Some(Unit::Kilobytes));
        let depth = depth.expect("checked when it was set").min(DEFAULT_STACK_KB);
        let levels = firn_syntax::DEPTH_LIMIT as i32 * depth / DEFAULT_STACK_KB;
        firn_syntax::Options {
            standard_conforming_strings: self.known("standard_conforming_strings") == "on",
            depth_limit: levels.max(1) as u32,
            ..firn_syntax::Options::default()
        }
    }

    /// The client's application name.
    pub fn application_name(&self) -> &str {
        self.known("application_name")
    }

    /// How values are read and written as text.
    pub fn text_style(&self) -> TextStyle {
        let (dates, order) = date_style(self.known("datestyle"));
        TextStyle {
            zone: TimeZoneSetting::named(self.known("timezone")).unwrap_or(TimeZoneSetting::UTC),
            dates,
            order,
            intervals: IntervalStyle::named(self.known("intervalstyle")).expect("checked when it was set"),
            bytea: match self.known("bytea_output") {
                "escape" => ByteaStyle::Escape,
                _ => ByteaStyle::Hex,
            },
            // All values above 0 have the same effect and are made equal, so that sessions of different drivers share plans.
            float_digits: self.known("extra_float_digits").parse().map_or(1, |digits: i8| digits.min(1)),
        }
    }
}

fn find(lower: &str) -> Option<&'static Parameter> {
    PARAMETERS.iter().find(|parameter| parameter.name.eq_ignore_ascii_case(lower))
}

fn unknown(name: &str) -> Error {
    Error::new(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

#[cold]
fn cannot_be_changed(name: &str) -> Error {
    Error::new(SqlState::new("55P02"), format!("parameter \"{name}\" cannot be changed"))
}

/// The parts of a value of DateStyle.
fn date_style(value: &str) -> (DateStyle, DateOrder) {
    let parts = value
        .split_once(", ")
        .and_then(|(style, order)| Some((DateStyle::named(style)?, DateOrder::named(order)?)));
    parts.expect("checked when it was set")
}

/// 22023: a value that the setting does not accept.
fn invalid(parameter: &Parameter, value: &str) -> Error {
    Error::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("invalid value for parameter \"{}\": \"{value}\"", parameter.name),
    )
}

/// Items of a list: folded words and quoted names.
fn split_list(text: &str) -> Vec<String> {
    let mut items = Vec::new();
    let mut item = String::new();
    let mut quoted = false;
    let mut was_quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(next) = characters.next() {
        match next {
            '"' if quoted && characters.next_if_eq(&'"').is_some() => item.push('"'),
            '"' => {
                quoted = !quoted;
                was_quoted = true;
            }
            ',' if !quoted => {
                finish(&mut items, &mut item, was_quoted);
                was_quoted = false;
            }
            next if next.is_whitespace() && !quoted => {}
            next => item.push(next),
        }
    }
    finish(&mut items, &mut item, was_quoted);
    return items;

    fn finish(items: &mut Vec<String>, item: &mut String, quoted: bool) {
        let item = std::mem::take(item);
        if quoted {
            items.push(item);
        } else if !item.is_empty() {
            items.push(item.to_lowercase());
        }
    }
}

/// The value in its stored form, or 22023 with the accepted values. `name` is how the statement calls the setting.
fn check(parameter: &Parameter, name: &str, value: &str) -> Result<String> {
    let refused = |message: String| Error::new(SqlState::INVALID_PARAMETER_VALUE, message);
    let invalid_as = |name: &str| refused(format!("invalid value for parameter \"{name}\": \"{value}\""));
    let wrong = |Wrong(hint): Wrong| match hint {
        Some(hint) => invalid_as(name).with_hint(hint),
        None => invalid_as(name),
    };
    let outside = |value: String, unit: Option<Unit>, (low, high): (String, String)| {
        let unit = unit.map_or_else(String::new, |unit| format!(" {}", unit.name()));
        let message =
            format!("{value}{unit} is outside the valid range for parameter \"{name}\" ({low} .. {high})");
        refused(message)
    };
    match parameter.kind {
        Kind::Text => check_text(parameter, value),
        Kind::Locale if is_locale(value) => Ok(value.to_owned()),
        Kind::Locale => Err(invalid_as(parameter.name)),
        Kind::Boolean | Kind::Off => match (boolean(value), parameter.kind) {
            (Some(true), Kind::Off) => {
                Err(Error::unsupported(format!("{} = '{value}'", parameter.name)).with_hint(parameter.about))
            }
            (Some(value), _) => Ok(if value { "on" } else { "off" }.to_owned()),
            (None, _) => Err(refused(format!("parameter \"{name}\" requires a Boolean value"))),
        },
        Kind::Integer(unit, low, high) => match numbers::integer(value, unit).map_err(wrong)? {
            number if !(low..=high).contains(&number) => {
                Err(outside(number.to_string(), unit, (low.to_string(), high.to_string())))
            }
            ms if ms > 0 && parameter.name == "transaction_timeout" => {
                Err(Error::unsupported("a transaction_timeout other than 0").with_hint(
                    "Use statement_timeout for statements, and idle_in_transaction_session_timeout for idle transactions.",
                ))
            }
            number => Ok(numbers::print_integer(number, unit)),
        },
        Kind::Real(unit, low, high) => match numbers::real(value, unit).map_err(wrong)? {
            number if !(low..=high).contains(&number) => {
                Err(outside(numbers::general(number), unit, (numbers::general(low), numbers::general(high))))
            }
            number => Ok(numbers::print_real(number, unit)),
        },
        Kind::Choice(choices) => {
            let lower = value.to_lowercase();
            match choices.iter().find(|choice| **choice == lower).copied().or_else(|| hidden(choices, &lower)) {
                Some(choice) => Ok(choice.to_owned()),
                None => {
                    Err(invalid_as(name).with_hint(format!("Available values: {}.", choices.join(", "))))
                }
            }
        }
        Kind::Role | Kind::DateStyle | Kind::Fixed(_) => panic!("what it may be depends on the session"),
        Kind::TimeZone => zone_name(value).ok_or_else(|| invalid_as(parameter.name)),
        Kind::Encoding if value.eq_ignore_ascii_case("default") => Ok("UTF8".to_owned()),
        Kind::Encoding => {
            let number = firn_vector::encoding_number(value).ok_or_else(|| invalid_as(parameter.name))?;
            let name = firn_vector::encoding_name(number).expect("it is a number of an encoding");
            match Encoding::of(name) {
                Some(encoding) => Ok(encoding.name().to_owned()),
                None => Err(Error::unsupported(format!("client_encoding {value}"))
                    .with_hint("Strings are sent as UTF8, LATIN1, LATIN9 or WIN1252.")),
            }
        }
    }
}

/// What a word means that PostgreSQL takes but does not list.
fn hidden(choices: &[&'static str], word: &str) -> Option<&'static str> {
    let has = |choice: &str| choices.contains(&choice);
    match word {
        "true" | "yes" | "1" if has("on") => Some("on"),
        "false" | "no" | "0" if has("off") => Some("off"),
        "debug" if has("debug2") => Some("debug2"),
        "info" if has("debug2") => Some("info"),
        _ => None,
    }
}

/// A text: some settings name objects.
fn check_text(parameter: &Parameter, value: &str) -> Result<String> {
    let invalid = || invalid(parameter, value);
    let is_tablespace = |name: &str| name.is_empty() || name == "pg_default";
    match parameter.name {
        // As in PostgreSQL, only printable ASCII.
        "application_name" => {
            let printable = |byte: u8| if (b' '..=b'~').contains(&byte) { char::from(byte) } else { '?' };
            return Ok(value.bytes().map(printable).collect());
        }
        "default_table_access_method" if value.is_empty() => {
            return Err(invalid().with_detail("\"default_table_access_method\" cannot be empty."));
        }
        "default_table_access_method" if value != "heap" => {
            return Err(invalid().with_detail(format!("Table access method \"{value}\" does not exist.")));
        }
        "default_tablespace" if !is_tablespace(value) => {
            return Err(invalid().with_detail(format!("Tablespace \"{value}\" does not exist.")));
        }
        "temp_tablespaces" | "search_path" if !is_list(value) => {
            return Err(invalid().with_detail("List syntax is invalid."));
        }
        "temp_tablespaces" => {
            if let Some(missing) = split_list(value).into_iter().find(|name| !is_tablespace(name)) {
                let message = format!("tablespace \"{missing}\" does not exist");
                return Err(Error::new(SqlState::UNDEFINED_OBJECT, message));
            }
        }
        "default_text_search_config" => {
            let name = value.strip_prefix("pg_catalog.").unwrap_or(value);
            return match TEXT_SEARCH_CONFIGURATIONS.contains(&name) {
                true => Ok(format!("pg_catalog.{name}")),
                false => Err(invalid()),
            };
        }
        "firn.read_after" if !value.is_empty() => {
            return match Token::parse(value) {
                Some(token) => Ok(token.to_string()),
                None => Err(invalid().with_hint(
                    "Use a position of the log, such as 0/1A2B3C, or what firn_commit_token() has returned.",
                )),
            };
        }
        "timezone_abbreviations" if !["Default", "Australia", "India"].contains(&value) => {
            return Err(invalid());
        }
        _ => {}
    }
    Ok(value.to_owned())
}

/// Those of PostgreSQL 15.
const TEXT_SEARCH_CONFIGURATIONS: [&str; 29] = [
    "arabic",
    "armenian",
    "basque",
    "catalan",
    "danish",
    "dutch",
    "english",
    "finnish",
    "french",
    "german",
    "greek",
    "hindi",
    "hungarian",
    "indonesian",
    "irish",
    "italian",
    "lithuanian",
    "nepali",
    "norwegian",
    "portuguese",
    "romanian",
    "russian",
    "serbian",
    "simple",
    "spanish",
    "swedish",
    "tamil",
    "turkish",
    "yiddish",
];

/// Whether it is `C`, `POSIX`, or formed as the names of locales are: `de_DE.utf8@euro`. Which of these there are is
/// known to PostgreSQL's operating system alone.
fn is_locale(text: &str) -> bool {
    let all = |text: &str, is: fn(&char) -> bool| !text.is_empty() && text.chars().all(|c| is(&c));
    let (text, modifier) = text.split_once('@').unwrap_or((text, "none"));
    let (text, encoding) = text.split_once('.').unwrap_or((text, "none"));
    let is_named = matches!(text, "C" | "POSIX")
        || text.split_once('_').is_some_and(|(language, territory)| {
            (2..=3).contains(&language.len())
                && all(language, char::is_ascii_lowercase)
                && all(territory, char::is_ascii_uppercase)
        });
    is_named
        && all(modifier, char::is_ascii_alphanumeric)
        && all(encoding, |c| c.is_ascii_alphanumeric() || *c == '-')
}

/// Whether it is a list of names with commas between them, which may be quoted.
fn is_list(text: &str) -> bool {
    let mut rest = text.trim_ascii_start();
    if rest.is_empty() {
        return true;
    }
    loop {
        rest = match rest.strip_prefix('"') {
            Some(mut quoted) => loop {
                let Some(end) = quoted.find('"') else { return false };
                quoted = &quoted[end + 1..];
                match quoted.strip_prefix('"') {
                    Some(further) => quoted = further,
                    None => break quoted,
                }
            },
            None => {
                let end = rest.find(|c: char| c == ',' || c.is_ascii_whitespace()).unwrap_or(rest.len());
                if end == 0 {
                    return false;
                }
                &rest[end..]
            }
        }
        .trim_ascii_start();
        match rest.strip_prefix(',') {
            Some(further) => rest = further.trim_ascii_start(),
            None => return rest.is_empty(),
        }
    }
}

/// The name of an isolation level.
pub fn isolation_name(level: Isolation) -> &'static str {
    match level {
        Isolation::ReadCommitted => "read committed",
        Isolation::Snapshot => "repeatable read",
        Isolation::Serializable => "serializable",
    }
}

/// A number with a unit as a number of its setting's units; any other value as it is.
fn in_units<'s>(parameter: &Parameter, value: &'s str) -> Cow<'s, str> {
    match parameter.kind {
        Kind::Integer(unit @ Some(_), ..) => {
            let number = numbers::integer(value, unit).expect("checked when it was set");
            Cow::Owned(number.to_string())
        }
        Kind::Real(unit @ Some(_), ..) => {
            let number = numbers::real(value, unit).expect("checked when it was set");
            Cow::Owned(numbers::general(number))
        }
        _ => Cow::Borrowed(value),
    }
}

/// PostgreSQL's words for true and false, and their unambiguous prefixes.
pub fn boolean(text: &str) -> Option<bool> {
    match text.trim().to_lowercase().as_str() {
        "on" | "true" | "tru" | "tr" | "t" | "yes" | "ye" | "y" | "1" => Some(true),
        "off" | "of" | "false" | "fals" | "fal" | "fa" | "f" | "no" | "n" | "0" => Some(false),
        _ => None,
    }
}

/// A time with one of PostgreSQL's units, in milliseconds if it has none.
pub fn duration_ms(text: &str) -> Option<i64> {
    numbers::integer(text, Some(Unit::Milliseconds)).ok().map(i64::from)
}

/// A whole number of a storage parameter, which has no unit.
pub(crate) fn option_integer(text: &str) -> Option<i32> {
    numbers::integer(text, None).ok()
}

/// Likewise, a number with a fraction.
pub(crate) fn option_real(text: &str) -> Option<f64> {
    numbers::real(text, None).ok()
}

/// The time after which blocks become cold: one with a unit, or `never`, which is `None`. SQL, the command
/// line and Python use this form; each defines the meaning of a number alone.
pub fn cooling_time(text: &str) -> Option<Option<Duration>> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("never") {
        return Some(None);
    }
    let ms = duration_ms(text).filter(|_| text.contains(char::is_alphabetic))?;
    u64::try_from(ms).ok().map(|ms| Some(Duration::from_millis(ms)))
}

/// Bytes as PostgreSQL prints them: in the largest unit without a fraction.
pub fn print_memory(bytes: u64) -> String {
    for (unit, factor) in [("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)] {
        if bytes > 0 && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    if bytes == 0 { "0".to_owned() } else { format!("{bytes}B") }
}

/// Bytes, with a unit of PostgreSQL's or an explicitly binary one: `8GB`, `8GiB`.
pub fn parse_memory(text: &str) -> Option<u64> {
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" | "kib" => 1 << 10,
        "mb" | "mib" => 1 << 20,
        "gb" | "gib" => 1 << 30,
        "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    let number: f64 = number.trim().parse().ok()?;
    let bytes = number * factor as f64;
    (0.0..9e18).contains(&bytes).then_some(bytes as u64)
}

/// A time in the largest unit without a fraction, as PostgreSQL prints it.
pub(crate) fn print_duration(ms: u32) -> String {
    match i32::try_from(ms) {
        Ok(ms) => numbers::print_integer(ms, Some(Unit::Milliseconds)),
        Err(_) => format!("{ms}ms"),
    }
}

/// A name of the IANA database in its own spelling, or rules as POSIX writes them.
fn zone_name(text: &str) -> Option<String> {
    let text = text.trim();
    if ["utc", "gmt", "z", "zulu", "uct", "default", "local", "localtime"]
        .contains(&text.to_lowercase().as_str())
    {
        return Some(if text.eq_ignore_ascii_case("gmt") { "GMT" } else { "UTC" }.to_owned());
    }
    if let Some(name) = time_zone::names().find(|name| name.eq_ignore_ascii_case(text)) {
        return Some(name.to_owned());
    }
    // A number is hours east of Greenwich.
    if let Ok(hours) = text.parse::<f64>() {
        let seconds = (hours * 3600.0) as i32;
        return (seconds.abs() < 7 * 24 * 3600).then(|| PosixZone::of_offset(seconds).to_string());
    }
    if let Some(TimeZoneSetting::Fixed(_)) = TimeZoneSetting::from_name(text) {
        return Some(text.to_uppercase());
    }
    PosixZone::parse(text).map(|_| text.to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: &str) -> Result<String> {
        let mut settings = Settings::new();
        settings.set(name, Some(value), false)?;
        Ok(settings.get(name).unwrap().to_owned())
    }

    #[test]
    fn names_are_sorted_and_their_defaults_valid() {
        assert!(PARAMETERS.is_sorted_by_key(|parameter| parameter.name.to_lowercase()));
        for parameter in PARAMETERS {
            let set = set(parameter.name, parameter.default).unwrap();
            assert_eq!(set, parameter.default, "{}", parameter.name);
        }
    }

    #[test]
    fn values_are_kept_as_postgresql_prints_them() {
        assert_eq!(set("STATEMENT_TIMEOUT", "90s").unwrap(), "90s");
        assert_eq!(set("statement_timeout", "120000").unwrap(), "2min");
        assert_eq!(set("transaction_timeout", "0ms").unwrap(), "0");
        assert_eq!(set("synchronous_commit", "false").unwrap(), "off");
        assert_eq!(set("timezone", "europe/berlin").unwrap(), "Europe/Berlin");
        assert_eq!(set("timezone", "-3.5").unwrap(), "<-03:30>+03:30");
        assert_eq!(set("timezone", "utc+2").unwrap(), "UTC+2");
        assert_eq!(set("client_encoding", "unicode").unwrap(), "UTF8");
        assert_eq!(set("datestyle", "iso").unwrap(), "ISO, MDY");
        assert_eq!(set("app.user", "7").unwrap(), "7");
        assert_eq!(set("default_transaction_isolation", "Read Committed").unwrap(), "read committed");
        assert_eq!(set("default_transaction_isolation", "SERIALIZABLE").unwrap(), "serializable");
    }

    /// As in PostgreSQL 15.
    #[test]
    fn a_part_of_datestyle_that_is_not_given_is_unchanged() {
        let mut settings = Settings::new();
        for (value, shown) in [
            ("DMY", "ISO, DMY"),
            ("sql", "SQL, DMY"),
            ("us", "SQL, MDY"),
            ("german", "German, DMY"),
            ("mdy, German", "German, MDY"),
            ("PostgreSQL, European", "Postgres, DMY"),
            ("", "Postgres, DMY"),
            ("iso, ymd", "ISO, YMD"),
            ("dmy, default", "ISO, DMY"),
            ("DEFAULT", "ISO, MDY"),
        ] {
            settings.set("datestyle", Some(value), false).unwrap();
            assert_eq!(settings.get("datestyle"), Some(shown), "{value}");
        }
        for (wrong, detail) in [
            ("iso, sql", "Conflicting \"datestyle\" specifications."),
            ("mdy, ymd", "Conflicting \"datestyle\" specifications."),
            ("iso, nonsense", "Unrecognized key word: \"nonsense\"."),
        ] {
            let error = settings.set("datestyle", Some(wrong), false).unwrap_err();
            assert_eq!((error.state().as_str(), error.detail()), ("22023", Some(detail)), "{wrong}");
        }
    }

    #[test]
    fn errors_have_the_codes_of_postgresql() {
        for (name, value, code) in [
            ("nonsense", "1", "42704"),
            ("extra_float_digits", "4", "22023"),
            ("jit", "maybe", "22023"),
            ("timezone", "Mars/Olympus", "22023"),
            ("server_version", "16", "55P02"),
            ("client_encoding", "LATIN2", "0A000"),
            ("client_encoding", "nothing", "22023"),
            ("default_transaction_isolation", "serialisable", "22023"),
            ("statement_timeout", "5 weeks", "22023"),
            ("transaction_timeout", "1s", "0A000"),
            ("transaction_timeout", "soon", "22023"),
        ] {
            assert_eq!(set(name, value).unwrap_err().state().as_str(), code, "{name}");
        }
    }

    #[test]
    fn memory_is_read_and_printed_with_its_unit() {
        for (text, bytes, printed) in [
            ("8GB", 8 << 30, "8GB"),
            ("1.5 GiB", 3 << 29, "1536MB"),
            ("100", 100, "100B"),
            ("64kb", 64 << 10, "64kB"),
            ("0", 0, "0"),
        ] {
            assert_eq!(parse_memory(text), Some(bytes), "{text}");
            assert_eq!(print_memory(bytes), printed);
        }
        for wrong in ["", "GB", "8 parsecs", "-1GB", "1e30TB"] {
            assert_eq!(parse_memory(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn defaults_of_the_database_are_what_reset_goes_back_to() {
        let mut settings = Settings::new();
        settings.set_default("lock_timeout", "90s").unwrap();
        settings.fix("memory_limit", "8GB".to_owned());
        assert_eq!(settings.get("lock_timeout"), Some("90s"));
        settings.set("lock_timeout", Some("1s"), false).unwrap();
        settings.set("lock_timeout", None, true).unwrap();
        assert_eq!(settings.get("lock_timeout"), Some("90s"));
        settings.reset_all();
        assert_eq!((settings.get("lock_timeout"), settings.get("memory_limit")), (Some("90s"), Some("8GB")));
        assert_eq!(settings.set("memory_limit", Some("1GB"), false).unwrap_err().state().as_str(), "55P02");
        assert_eq!(settings.set_default("lock_timeout", "soon").unwrap_err().state().as_str(), "22023");
    }

    #[test]
    fn local_values_hide_the_sessions_until_the_transaction_ends() {
        let mut settings = Settings::new();
        settings.set("work_mem", Some("8MB"), false).unwrap();
        settings.set("work_mem", Some("16MB"), true).unwrap();
        assert_eq!(settings.get("work_mem"), Some("16MB"));
        settings.end_transaction();
        assert_eq!(settings.get("work_mem"), Some("8MB"));
        settings.set("work_mem", None, false).unwrap();
        assert_eq!(settings.get("work_mem"), Some("4MB"));
    }

    #[test]
    fn the_search_path_folds_words_and_keeps_quoted_names() {
        let mut settings = Settings::new();
        assert_eq!(settings.search_path(), ["public"]);
        settings.set("search_path", Some("A, \"B,c\""), false).unwrap();
        assert_eq!(settings.search_path(), ["a", "B,c"]);
    }

    #[test]
    fn times_after_which_blocks_become_cold_have_units() {
        let ms = |text: &str| cooling_time(text).map(|time| time.map(|time| time.as_millis()));
        assert_eq!([ms("never"), ms(" Never ")], [Some(None); 2]);
        assert_eq!([ms("5s"), ms("1 min"), ms("0ms")], [Some(Some(5000)), Some(Some(60_000)), Some(Some(0))]);
        assert_eq!([ms("5"), ms("-1s"), ms("soon"), ms("")], [None; 4]);
    }
}
