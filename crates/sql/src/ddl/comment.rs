//! COMMENT ON.

use super::{Context, kinds, rename};
use crate::names::{Relation, wrong_kind};
use crate::statement::QualifiedName;
use firn_base::{Error, Result, SqlState};
use firn_syntax::tree::{Comment, ObjectReference, ObjectType};
use firn_txn::catalog::Oid;

/// The oid of the only database.
pub(crate) const DATABASE: Oid = Oid(5);

/// COMMENT ON. An empty text removes the comment, as NULL does.
pub(super) fn set(context: &mut Context<'_>, comment: &Comment) -> Result<()> {
    if comment.object.object_type == ObjectType::Database
        && let ObjectReference::Name(name) = &comment.object.name
        && *name.name.text != *context.facts.database
    {
        // PostgreSQL only warns, so that scripts for another database continue.
        context.notice(SqlState::new("3D000"), format!("database \"{}\" does not exist", name.name.text));
        return Ok(());
    }
    let (object, column) = commented(context, comment)?;
    let text = comment.text.as_deref().filter(|text| !text.is_empty()).map(str::to_owned);
    context.catalog_mut()?.set_comment(object, column, text);
    Ok(())
}

/// The object, and the number of its column, or 0.
fn commented(context: &Context<'_>, comment: &Comment) -> Result<(Oid, u16)> {
    let name = match &comment.object.name {
        ObjectReference::Name(name) => name,
        ObjectReference::Relation(relation) => &relation.name,
        ObjectReference::On { name, relation } => {
            let table = context.names().table(&relation.into())?;
            let constraint = table.constraints.iter().find(|constraint| constraint.name == *name.text);
            return match constraint {
                Some(constraint) => Ok((constraint.oid, 0)),
                None => Err(Error::new(
                    SqlState::UNDEFINED_OBJECT,
                    format!("constraint \"{}\" for table \"{}\" does not exist", name.text, table.name),
                )),
            };
        }
        other => panic!("{other:?} is refused"),
    };
    match comment.object.object_type {
        ObjectType::Database => Ok((DATABASE, 0)),
        ObjectType::Schema => Ok((context.names().schema(&name.name.text)?.oid, 0)),
        ObjectType::Column => {
            let Some((table, qualifiers)) = name.qualifiers.split_last() else {
                return Err(Error::new(SqlState::SYNTAX_ERROR, "column name must be qualified"));
            };
            let schema = qualifiers.last().map(|schema| schema.text.to_string());
            let relation = QualifiedName { schema, name: table.text.to_string() };
            let (relation, column) = rename::column_of(context, &relation, &name.name.text)?;
            Ok((relation, column + 1))
        }
        other => {
            let kind = kinds::object_kind(other).expect("other kinds are refused");
            let relation = context.names().relation(&name.into())?;
            if relation.kind() != kind {
                return Err(wrong_kind(kind, &name.name.text));
            }
            let oid = match relation {
                Relation::Table(table) => table.oid,
                Relation::View(view) => view.oid,
                Relation::Sequence(sequence) => sequence.oid,
                Relation::Index(_, index) => index.oid,
            };
            Ok((oid, 0))
        }
    }
}
