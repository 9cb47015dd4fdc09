//! Functions in FROM that read files, and their arguments: the files, and by name their given properties.

use super::{Asked, AskedCsv, Kind};
use firn_base::type_table::TypeKind;
use firn_base::{Error, Result, SqlState, SqlType, Type, TypeId, Value};
use firn_bind::{Catalog, FileArgument, Relation, bind_type_name};
use firn_load::NO_QUOTE;
use firn_load::encoding::Encoding;
use firn_vector::Registry;
use std::fmt::Display;
use std::sync::Arc;

/// The function that reads CSV files.
const READ_CSV: &str = "read_csv";

/// Its usage.
const CSV_USAGE: &str = "read_csv('file.csv', delimiter => ';', quote => '\"', escape => '\"', null => 'NA', header => true, skip => 2, \
     types => 'day date', columns => 'id bigint, day date', all_varchar => true, encoding => 'latin1', ignore_errors => true, \
     filename => true)";

/// A function that reads files, its usage, and the kind of its files.
pub(super) struct Reader {
    name: &'static str,
    usage: &'static str,
    kind: Kind,
}

const READERS: [Reader; 4] = [
    Reader { name: READ_CSV, usage: CSV_USAGE, kind: Kind::Csv },
    Reader {
        name: "read_parquet",
        usage: "read_parquet(ARRAY['file.parquet', 'more-*.parquet'], filename => true)",
        kind: Kind::Parquet,
    },
    Reader {
        name: "read_arrow",
        usage: "read_arrow(ARRAY['file.arrow', 'more-*.arrow'], filename => true)",
        kind: Kind::Arrow,
    },
    Reader {
        name: "read_json",
        usage: "read_json(ARRAY['file.json', 'more-*.json'], types => 'price numeric', columns => 'id bigint, day date', ignore_errors => true, \
                filename => true)",
        kind: Kind::Json,
    },
];

/// The default name of the column with the file of each row.
const FILE_NAME: &str = "filename";

/// The function of that name, if it reads files.
pub(super) fn reader(name: &str) -> Option<&'static Reader> {
    READERS.iter().find(|reader| reader.name == name)
}

impl Reader {
    /// The request in its arguments.
    pub fn asked(&self, arguments: &[FileArgument<'_>], registry: &Registry) -> Result<Asked> {
        let mut asked = Asked::new(Vec::new(), Some(self.kind));
        let mut seen: Vec<&str> = Vec::new();
        for argument in arguments {
            let placed = |error: Error| match argument.position.filter(|_| error.position().is_none()) {
                Some(position) => error.with_position(position),
                None => error,
            };
            let Some(name) = argument.name else {
                if !asked.patterns.is_empty() {
                    let message = "several files are a list, and options have names: \
                         ARRAY['one.csv', 'two.csv'], filename => true";
                    return Err(placed(self.wrong(message)));
                }
                asked.patterns = self.files(argument.value.as_ref()).map_err(placed)?;
                continue;
            };
            let name = plain_name(name);
            if seen.contains(&name) {
                let message = format!("{}: {name} is given more than once", self.name);
                return Err(placed(Error::new(SqlState::SYNTAX_ERROR, message).with_hint(self.usage)));
            }
            seen.push(name);
            self.set(&mut asked, name, argument.value.as_ref(), registry).map_err(placed)?;
        }
        if asked.patterns.is_empty() {
            return Err(self.wrong("the name of a file is missing"));
        }
        let AskedCsv { known, types, .. } = &asked.csv;
        if known.columns.is_some() && (known.all_text || !types.is_empty()) {
            return Err(self.wrong("columns has all types already"));
        }
        Ok(asked)
    }

    fn wrong(&self, message: impl Display) -> Error {
        Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("{}: {message}", self.name))
            .with_hint(self.usage)
    }

    /// The names of files: one, or an array of them.
    fn files(&self, value: Option<&Value>) -> Result<Vec<String>> {
        match value {
            Some(Value::Array(list)) if !list.elements().is_empty() => {
                list.elements().iter().map(|file| self.text("file", Some(file))).collect()
            }
            value => Ok(vec![self.text("file", value)?]),
        }
    }

    /// Takes an option.
    fn set(&self, asked: &mut Asked, name: &str, value: Option<&Value>, registry: &Registry) -> Result<()> {
        if name == FILE_NAME {
            let given = self.text(name, value)?;
            // Other words for true and false may be names.
            asked.file_name = match &given[..] {
                "true" => Some(FILE_NAME.to_owned()),
                "false" => None,
                "" => return Err(self.wrong("filename is true, false, or the name of the column")),
                _ => Some(given),
            };
            return Ok(());
        }
        match self.kind {
            Kind::Csv => self.set_known(&mut asked.csv, name, value, registry),
            Kind::Json if ["columns", "types", "ignore_errors"].contains(&name) => {
                self.set_known(&mut asked.csv, name, value, registry)
            }
            _ => Err(self.wrong(format!("there is no option \"{name}\""))),
        }
    }

    fn set_known(
        &self,
        asked: &mut AskedCsv,
        name: &str,
        value: Option<&Value>,
        registry: &Registry,
    ) -> Result<()> {
        let known = &mut asked.known;
        let truth = || {
            let given = crate::settings::boolean(&self.text(name, value)?);
            given.ok_or_else(|| self.wrong(format!("{name} is true or false")))
        };
        let byte = || match self.text(name, value)?.as_bytes() {
            [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Ok(Some(*byte)),
            _ => Err(self.wrong(format!("{name} is a single ASCII character"))),
        };
        match name {
            "delimiter" => known.delimiter = byte()?,
            "quote" if self.text(name, value)?.is_empty() => known.quote = Some(NO_QUOTE),
            "quote" => known.quote = byte()?,
            "escape" => known.escape = byte()?,
            "null" => known.null = Some(self.text(name, value)?),
            "header" => known.header = Some(truth()?),
            "skip" => {
                known.skip = match value {
                    Some(Value::BigInt(lines @ 0..)) => *lines as u64,
                    _ => return Err(self.wrong("skip is a number of lines")),
                };
            }
            "all_varchar" => known.all_text = truth()?,
            "ignore_errors" => asked.ignores_errors = truth()?,
            "columns" => {
                let columns = self.declarations(name, value, registry)?;
                // The format of a file is inferred without the types that `SqlType` lacks: they count as text.
                let declared = |(name, ty): &(String, Type)| {
                    (name.clone(), SqlType::try_from(*ty).unwrap_or(SqlType::Text))
                };
                known.columns = Some(columns.iter().map(declared).collect());
                asked.columns = Some(columns);
            }
            "types" => asked.types = self.declarations(name, value, registry)?,
            "encoding" => known.encoding = Encoding::named(&self.text(name, value)?)?,
            _ => return Err(self.wrong(format!("there is no option \"{name}\""))),
        }
        Ok(())
    }

    /// Columns as `CREATE TABLE` declares them: names with their types.
    fn declarations(
        &self,
        name: &str,
        value: Option<&Value>,
        registry: &Registry,
    ) -> Result<Vec<(String, Type)>> {
        let text = self.text(name, value)?;
        let list = firn_syntax::parse_column_definitions(&text, firn_syntax::Options::default());
        let list = list.map_err(|error| {
            let why = error.message();
            self.wrong(format!("{name} are names with types, as in CREATE TABLE: {why}"))
        })?;
        let mut found: Vec<(String, Type)> = Vec::new();
        for definition in list {
            let column = &*definition.name.text;
            if found.iter().any(|(known, _)| known == column) {
                return Err(self.wrong(format!("{name} names \"{column}\" twice")));
            }
            // Its position is relative to this text, not to that of the statement.
            let ty = bind_type_name(&text, &definition.type_name, &BuiltIn(registry));
            let ty = ty.map_err(without_position)?;
            check_type(column, ty)?;
            found.push((column.to_owned(), ty));
        }
        Ok(found)
    }

    /// A string or a boolean as text.
    fn text(&self, name: &str, value: Option<&Value>) -> Result<String> {
        match value {
            Some(Value::Text(text)) => Ok(text.clone()),
            Some(Value::Boolean(value)) => Ok(value.to_string()),
            _ => Err(self.wrong(format!("{name} is given as a literal"))),
        }
    }
}

/// The name of an option in errors.
fn plain_name(name: &str) -> &str {
    match name {
        "delim" | "sep" => "delimiter",
        "nullstr" => "null",
        "dtypes" | "column_types" => "types",
        _ => name,
    }
}

fn without_position(error: Error) -> Error {
    let same = Error::new(error.state(), error.message());
    match error.hint() {
        Some(hint) => same.with_hint(hint),
        None => same,
    }
}

/// Refuses types that no column has.
fn check_type(column: &str, ty: Type) -> Result<()> {
    let element = ty.element().unwrap_or(ty);
    if [ty, element].iter().any(|ty| ty.info().is_some_and(|info| matches!(info.kind, TypeKind::Pseudo))) {
        let message = format!("column \"{column}\" has pseudo-type {ty}");
        return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, message));
    }
    match ty.representation() {
        Some(_) => Ok(()),
        None => Err(Error::unsupported(format!("type {ty}"))),
    }
}

/// The types that are built in, and nothing else.
struct BuiltIn<'a>(&'a Registry);

impl Catalog for BuiltIn<'_> {
    fn registry(&self) -> &Registry {
        self.0
    }

    fn relation(&self, _: Option<&str>, _: &str) -> Result<Option<Arc<Relation>>> {
        Ok(None)
    }

    fn has_schema(&self, _: &str) -> bool {
        false
    }

    fn database(&self) -> &str {
        ""
    }

    fn type_named(&self, _: Option<&str>, _: &str) -> Option<TypeId> {
        None
    }
}
