//! A recorder of parts: parses what a statement of parts consists of and keeps it in the order of the text.

use super::Parser;
use crate::keyword::Keyword;
use crate::token::TokenKind;
use crate::tree::{Object, ObjectReference, ObjectType, OtherStatement, Part, Statement};
use firn_base::Result;

/// A parser that keeps what it parses.
pub(super) struct Recorder<'p, 'a> {
    pub parser: &'p mut Parser<'a>,
    pub parts: Vec<Part>,
}

impl<'a> Parser<'a> {
    /// A statement of parts. The words have been taken already.
    pub(super) fn record(
        &mut self,
        tag: &'static str,
        words: &[Keyword],
        rest: impl FnOnce(&mut Recorder<'_, 'a>) -> Result<()>,
    ) -> Result<Statement> {
        self.enter()?;
        let parts = words.iter().map(|&word| Part::Word(word)).collect();
        let mut recorder = Recorder { parser: self, parts };
        rest(&mut recorder)?;
        let parts = recorder.parts;
        self.leave();
        Ok(Statement::Other(Box::new(OtherStatement { tag, parts })))
    }
}

impl<'a> Recorder<'_, 'a> {
    pub fn push(&mut self, part: Part) {
        self.parts.push(part);
    }

    pub fn at(&self, keyword: Keyword) -> bool {
        self.parser.at_keyword(keyword)
    }

    pub fn unexpected<T>(&mut self) -> Result<T> {
        self.parser.unexpected()
    }

    pub fn word(&mut self, keyword: Keyword) -> Result<()> {
        self.parser.expect_keyword(keyword)?;
        self.push(Part::Word(keyword));
        Ok(())
    }

    pub fn words(&mut self, keywords: &[Keyword]) -> Result<()> {
        keywords.iter().try_for_each(|&keyword| self.word(keyword))
    }

    /// A word, if it stands here.
    pub fn optional(&mut self, keyword: Keyword) -> bool {
        let found = self.parser.accept_keyword(keyword);
        if found {
            self.push(Part::Word(keyword));
        }
        found
    }

    /// Words, if the first of them stands here.
    pub fn optional_words(&mut self, keywords: &[Keyword]) -> Result<bool> {
        if !self.at(keywords[0]) {
            return Ok(false);
        }
        self.words(keywords)?;
        Ok(true)
    }

    /// One of these words.
    pub fn one_of(&mut self, keywords: &[Keyword]) -> Result<Keyword> {
        for &keyword in keywords {
            if self.optional(keyword) {
                return Ok(keyword);
            }
        }
        self.unexpected()
    }

    /// A word that means nothing.
    pub fn noise(&mut self, keyword: Keyword) {
        self.parser.accept_keyword(keyword);
    }

    pub fn sign(&mut self, sign: u8) -> Result<()> {
        self.parser.expect_symbol(sign)?;
        self.push(Part::Sign(char::from(sign)));
        Ok(())
    }

    pub fn list(&mut self, mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        item(self)?;
        while self.parser.at_symbol(b',') {
            self.sign(b',')?;
            item(self)?;
        }
        Ok(())
    }

    pub fn parenthesised(&mut self, inside: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.sign(b'(')?;
        inside(self)?;
        self.sign(b')')
    }

    pub fn name(&mut self) -> Result<()> {
        let name = self.parser.name()?;
        self.push(Part::Name(name));
        Ok(())
    }

    pub fn names(&mut self) -> Result<()> {
        self.list(Self::name)
    }

    /// `(names)` or nothing.
    pub fn optional_names(&mut self) -> Result<()> {
        if self.parser.at_symbol(b'(') { self.parenthesised(Self::names) } else { Ok(()) }
    }

    pub fn any_name(&mut self) -> Result<()> {
        let name = self.parser.any_name()?;
        self.push(Part::ObjectName(Box::new(name)));
        Ok(())
    }

    pub fn relation_name(&mut self) -> Result<()> {
        let name = self.parser.relation_name()?;
        self.push(Part::ObjectName(Box::new(name)));
        Ok(())
    }

    pub fn function_name(&mut self) -> Result<()> {
        let name = self.parser.function_name()?;
        self.push(Part::ObjectName(Box::new(name)));
        Ok(())
    }

    pub fn relation(&mut self) -> Result<()> {
        let relation = self.parser.relation()?;
        self.push(Part::Relation(Box::new(relation)));
        Ok(())
    }

    pub fn string(&mut self) -> Result<()> {
        let string = self.parser.string()?;
        self.push(Part::String(string));
        Ok(())
    }

    /// A word or a string, which mean the same.
    pub fn word_or_string(&mut self) -> Result<()> {
        let string = self.parser.word_or_string()?;
        self.push(Part::String(string));
        Ok(())
    }

    pub fn number(&mut self) -> Result<()> {
        let number = self.parser.number()?;
        self.push(Part::Number(number));
        Ok(())
    }

    pub fn integer(&mut self) -> Result<()> {
        let number = self.parser.integer()?;
        self.push(Part::Number(number.to_string().into()));
        Ok(())
    }

    pub fn signed_integer(&mut self) -> Result<()> {
        let number = self.parser.signed_integer()?;
        self.push(Part::Number(number.to_string().into()));
        Ok(())
    }

    pub fn role(&mut self) -> Result<()> {
        let role = self.parser.role()?;
        self.push(Part::Role(role));
        Ok(())
    }

    pub fn roles(&mut self) -> Result<()> {
        self.list(Self::role)
    }

    pub fn role_name(&mut self) -> Result<()> {
        let name = self.parser.role_name()?;
        self.push(Part::Name(name));
        Ok(())
    }

    pub fn type_name(&mut self) -> Result<()> {
        let type_name = self.parser.type_name()?;
        self.push(Part::Type(Box::new(type_name)));
        Ok(())
    }

    pub fn types(&mut self) -> Result<()> {
        self.parenthesised(|recorder| recorder.list(Self::type_name))
    }

    pub fn expr(&mut self) -> Result<()> {
        let expr = self.parser.expr()?;
        self.push(Part::Expr(Box::new(expr)));
        Ok(())
    }

    pub fn parenthesised_expr(&mut self) -> Result<()> {
        self.parenthesised(Self::expr)
    }

    pub fn definition(&mut self) -> Result<()> {
        let definition = self.parser.definition()?;
        self.push(Part::Definition(definition));
        Ok(())
    }

    /// WITH (…) or nothing (PostgreSQL's opt_definition).
    pub fn optional_with_definition(&mut self) -> Result<()> {
        if self.optional(Keyword::With) { self.definition() } else { Ok(()) }
    }

    pub fn rel_options(&mut self) -> Result<()> {
        let options = self.parser.rel_options()?;
        self.push(Part::Definition(options));
        Ok(())
    }

    /// OPTIONS (…) or nothing.
    pub fn optional_generic_options(&mut self) -> Result<()> {
        let options = self.parser.optional_generic_options()?;
        if !options.is_empty() {
            let changes = options.into_iter().map(crate::tree::GenericOptionChange::Add).collect();
            self.push(Part::Options(changes));
        }
        Ok(())
    }

    pub fn generic_option_changes(&mut self) -> Result<()> {
        let changes = self.parser.generic_option_changes()?;
        self.push(Part::Options(changes));
        Ok(())
    }

    pub fn reference(&mut self, object_type: ObjectType) -> Result<()> {
        let reference = self.parser.object_reference(object_type)?;
        self.push(Part::Reference(Box::new(reference)));
        Ok(())
    }

    pub fn function(&mut self) -> Result<()> {
        self.reference(ObjectType::Function)
    }

    pub fn object(&mut self, object_type: ObjectType, name: ObjectReference) {
        self.push(Part::Object(Box::new(Object { object_type, name })));
    }

    pub fn if_exists(&mut self) -> bool {
        let found = self.parser.optional_if_exists();
        if found {
            self.push(Part::Word(Keyword::If));
            self.push(Part::Word(Keyword::Exists));
        }
        found
    }

    pub fn if_not_exists(&mut self) -> Result<bool> {
        let found = self.parser.optional_if_not_exists()?;
        if found {
            for word in [Keyword::If, Keyword::Not, Keyword::Exists] {
                self.push(Part::Word(word));
            }
        }
        Ok(found)
    }

    pub fn cascade(&mut self) {
        if self.parser.optional_cascade() {
            self.push(Part::Word(Keyword::Cascade));
        }
    }

    /// Whether the token behind the current one is this word.
    pub fn next_is(&mut self, keyword: Keyword) -> bool {
        self.parser.peek(1) == TokenKind::Keyword(keyword)
    }
}
