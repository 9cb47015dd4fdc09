//! Tokens: what the lexer makes of text.

use crate::keyword::Keyword;
use crate::span::Span;

/// A token and where it stands. Its value is read from the text when the parser takes it.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    /// What it is.
    pub kind: TokenKind,
    /// Its bytes.
    pub span: Span,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// The end of the text.
    End,
    /// Something that is no token. The lexer keeps the reason.
    Invalid,
    /// A word that is no keyword.
    Identifier,
    /// `"…"`
    QuotedIdentifier,
    /// `U&"…"`, together with its UESCAPE.
    UnicodeIdentifier,
    /// A word that PostgreSQL's grammar knows.
    Keyword(Keyword),
    /// Digits that fit an `integer`.
    Integer,
    /// Any other number.
    Number,
    /// `'…'`. A flag says whether the text between the quotes is the value as it stands.
    String {
        /// There is no quote, escape or continuation in it.
        plain: bool,
    },
    /// `E'…'`
    EscapeString,
    /// `U&'…'`, together with its UESCAPE.
    UnicodeString,
    /// `$tag$…$tag$`
    DollarString,
    /// `B'…'`
    BitString,
    /// `X'…'`
    HexString,
    /// `$1`
    Parameter,
    /// An operator that none of the following is.
    Operator,
    /// `::`
    DoubleColon,
    /// `..`
    DoubleDot,
    /// `:=`
    ColonEquals,
    /// `=>`
    EqualsGreater,
    /// `<=`
    LessEqual,
    /// `>=`
    GreaterEqual,
    /// `<>` and `!=`
    NotEqual,
    /// Any other character, such as `(`; of text beyond ASCII its first byte.
    Symbol(u8),
}

impl TokenKind {
    /// Whether it is a string constant (PostgreSQL's Sconst).
    pub fn is_string(self) -> bool {
        matches!(
            self,
            TokenKind::String { .. }
                | TokenKind::EscapeString
                | TokenKind::UnicodeString
                | TokenKind::DollarString
        )
    }
}
