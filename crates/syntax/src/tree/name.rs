//! Names.

use crate::span::Span;
use std::fmt;

/// A name as the catalog knows it: without quotes, in lower case if it had none, of any length.
#[derive(Clone, PartialEq, Eq)]
pub struct Name {
    /// The characters of the name.
    pub text: Box<str>,
    /// Where it stands.
    pub span: Span,
}

impl Name {
    /// A name that stands nowhere.
    pub fn new(text: impl Into<Box<str>>) -> Name {
        Name { text: text.into(), span: Span::default() }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}@{:?}", self.text, self.span)
    }
}

/// A name that may be qualified: of a relation, column, function, type or anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// What stands before the last dot, outermost first. The parser limits how many only for relations.
    pub qualifiers: Vec<Name>,
    /// The last part.
    pub name: Name,
}

impl ObjectName {
    /// A name without qualifiers.
    pub fn simple(name: Name) -> ObjectName {
        ObjectName { qualifiers: Vec::new(), name }
    }

    /// From the first part to the last one.
    pub fn span(&self) -> Span {
        self.qualifiers.first().map_or(self.name.span, |first| first.span.to(self.name.span))
    }

    /// The name directly before the last one.
    pub fn schema(&self) -> Option<&Name> {
        self.qualifiers.last()
    }

    /// All parts, outermost first.
    pub fn parts(&self) -> impl Iterator<Item = &Name> {
        self.qualifiers.iter().chain([&self.name])
    }
}
