//! COPY in both of its forms.

use super::{Words, unsupported};
use crate::statement::{Copy, CopyEndpoint, CopyOption, CopySubject, Statement};
use datafusion::sql::sqlparser::tokenizer::Token;
use firn_base::Result;

impl Words<'_> {
    pub(super) fn copy(&mut self) -> Result<Statement> {
        self.skip(1);
        let (subject, from) = if self.symbol(&Token::LParen) {
            let query = self.query()?;
            self.expect_symbol(&Token::RParen)?;
            self.expect("to")?;
            (CopySubject::Query(query), false)
        } else {
            let name = self.name()?;
            let columns = self.column_list()?;
            if self.word("from") {
                (CopySubject::Into(name, columns), true)
            } else {
                self.expect("to")?;
                (CopySubject::Table(name, columns), false)
            }
        };
        let endpoint = if self.word("program") {
            return Err(unsupported("copy program", "Pipe through the client: COPY … FROM STDIN."));
        } else if self.word(if from { "stdin" } else { "stdout" }) {
            CopyEndpoint::Client
        } else {
            CopyEndpoint::File(self.string()?)
        };
        let mut options = Vec::new();
        self.word("with");
        if self.symbol(&Token::LParen) {
            options = self.list(Self::copy_option)?;
            self.expect_symbol(&Token::RParen)?;
        } else {
            self.old_copy_options(&mut options)?;
        }
        let filter = match from && self.word("where") {
            true => {
                let expression = self.parser.parse_expr();
                Some(self.check(expression)?)
            }
            false => None,
        };
        self.done(Statement::Copy(Box::new(Copy { subject, endpoint, options, filter })))
    }

    fn copy_option(&mut self) -> Result<(String, CopyOption)> {
        let name = self.identifier()?;
        let value = match self.parser.peek_token().token {
            Token::Comma | Token::RParen => CopyOption::Text("true".to_owned()),
            Token::Mul => {
                self.skip(1);
                CopyOption::All
            }
            Token::LParen => CopyOption::Columns(self.column_list()?.unwrap_or_default()),
            Token::Number(number, _) => {
                self.skip(1);
                CopyOption::Text(number)
            }
            Token::Word(word) if word.quote_style.is_none() => {
                self.skip(1);
                CopyOption::Text(word.value.to_lowercase())
            }
            _ => CopyOption::Text(self.string()?),
        };
        Ok((name, value))
    }

    /// The options as they were written before PostgreSQL 9: `DELIMITER ',' CSV HEADER`.
    fn old_copy_options(&mut self, options: &mut Vec<(String, CopyOption)>) -> Result<()> {
        loop {
            let text = |text: &str| CopyOption::Text(text.to_owned());
            if self.word("csv") {
                options.push(("format".into(), text("csv")));
            } else if self.word("binary") {
                options.push(("format".into(), text("binary")));
            } else if self.word("header") {
                options.push(("header".into(), text("true")));
            } else if self.word("freeze") {
                options.push(("freeze".into(), text("true")));
            } else if self.words(&["force", "quote"]) {
                let columns = match self.symbol(&Token::Mul) {
                    true => CopyOption::All,
                    false => CopyOption::Columns(self.list(Self::identifier)?),
                };
                options.push(("force_quote".into(), columns));
            } else if self.words(&["force", "not", "null"]) {
                options.push(("force_not_null".into(), CopyOption::Columns(self.list(Self::identifier)?)));
            } else if self.words(&["force", "null"]) {
                options.push(("force_null".into(), CopyOption::Columns(self.list(Self::identifier)?)));
            } else if let Some(name) = ["delimiter", "delimiters", "null", "quote", "escape", "encoding"]
                .iter()
                .find(|word| self.peek_is(word))
            {
                self.skip(1);
                self.word("as");
                let name = if *name == "delimiters" { "delimiter" } else { name };
                options.push((name.to_owned(), CopyOption::Text(self.string()?)));
            } else {
                return Ok(());
            }
        }
    }
}
