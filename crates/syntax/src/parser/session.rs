//! Transactions, prepared statements, cursors, EXPLAIN.

use super::Parser;
use crate::keyword::Keyword;
use crate::token::TokenKind;
use crate::tree::{
    CloseCursor, Deallocate, DeclareCursor, Execute, Explain, Fetch, FetchDirection, Name, Prepare,
    Statement, Transaction, TransactionMode, TransactionModeKind, UtilityOption,
};
use firn_base::Result;

impl Parser<'_> {
    // EXPLAIN.

    pub(super) fn explain(&mut self) -> Result<Statement> {
        self.enter()?;
        self.advance();
        let mut options = Vec::new();
        // `EXPLAIN (SELECT 1)` is a query in parentheses, `EXPLAIN (ANALYZE) SELECT 1` is none.
        if self.at_symbol(b'(') && !self.parenthesis_begins_query() {
            options = self.utility_options()?;
        } else {
            let word = |parser: &mut Self, text: &str| {
                let name = parser.take_name();
                UtilityOption { name: Name { text: text.into(), span: name.span }, value: None }
            };
            if matches!(self.keyword(), Some(Keyword::Analyze | Keyword::Analyse)) {
                options.push(word(self, "analyze"));
            }
            if self.at_keyword(Keyword::Verbose) {
                options.push(word(self, "verbose"));
            }
        }
        let statement = self.explainable()?;
        self.leave();
        Ok(Statement::Explain(Box::new(Explain { options, statement })))
    }

    /// Whether the parenthesis here can only be that of a query.
    pub(super) fn parenthesis_begins_query(&mut self) -> bool {
        match self.peek(1) {
            TokenKind::Symbol(b'(') => true,
            TokenKind::Keyword(Keyword::Select | Keyword::With | Keyword::Table) => true,
            TokenKind::Keyword(Keyword::Values) => self.peek(2) == TokenKind::Symbol(b'('),
            _ => false,
        }
    }

    /// What EXPLAIN explains (PostgreSQL's ExplainableStmt).
    fn explainable(&mut self) -> Result<Statement> {
        match self.keyword() {
            Some(Keyword::Declare) => self.declare_cursor(),
            Some(Keyword::Execute) => self.execute(),
            Some(Keyword::Create) => self.explained_create(),
            Some(Keyword::Refresh) => self.refresh(),
            _ => self.preparable(),
        }
    }

    // Prepared statements.

    pub(super) fn prepare(&mut self) -> Result<Statement> {
        if self.next_is(Keyword::Transaction) && self.peek(2).is_string() {
            self.advance();
            self.advance();
            return Ok(Statement::Transaction(Transaction::Prepare(self.string()?)));
        }
        self.advance();
        let name = self.name()?;
        let types = if self.at_symbol(b'(') { self.parenthesised_list(Self::type_name)? } else { Vec::new() };
        self.expect_keyword(Keyword::As)?;
        let statement = self.preparable()?;
        Ok(Statement::Prepare(Box::new(Prepare { name, types, statement })))
    }

    pub(super) fn execute(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Execute)?;
        Ok(Statement::Execute(Box::new(self.execute_rest()?)))
    }

    /// Behind EXECUTE: the name and the arguments.
    pub(crate) fn execute_rest(&mut self) -> Result<Execute> {
        let name = self.name()?;
        let arguments = if self.at_symbol(b'(') { self.parenthesised_list(Self::expr)? } else { Vec::new() };
        Ok(Execute { name, arguments })
    }

    pub(super) fn deallocate(&mut self) -> Result<Statement> {
        self.advance();
        if self.at_keyword(Keyword::Prepare)
            && !matches!(self.peek(1), TokenKind::End | TokenKind::Symbol(b';'))
        {
            self.advance();
        }
        let name = if self.accept_keyword(Keyword::All) { None } else { Some(self.name()?) };
        Ok(Statement::Deallocate(Deallocate { name }))
    }

    // Cursors.

    pub(super) fn declare_cursor(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Declare)?;
        let name = self.name()?;
        let (mut is_binary, mut scroll, mut no_scroll) = (false, false, false);
        let (mut is_insensitive, mut is_asensitive) = (false, false);
        loop {
            match self.keyword() {
                Some(Keyword::Binary) => is_binary = true,
                Some(Keyword::Scroll) => scroll = true,
                Some(Keyword::No) => {
                    self.advance();
                    if !self.at_keyword(Keyword::Scroll) {
                        return self.unexpected();
                    }
                    no_scroll = true;
                }
                Some(Keyword::Insensitive) => is_insensitive = true,
                Some(Keyword::Asensitive) => is_asensitive = true,
                _ => break,
            }
            self.advance();
        }
        self.expect_keyword(Keyword::Cursor)?;
        let with_hold = !self.begins_pair() && self.accept_keyword(Keyword::With);
        if with_hold || self.accept_keyword(Keyword::Without) {
            self.expect_keyword(Keyword::Hold)?;
        }
        self.expect_keyword(Keyword::For)?;
        let query = self.query()?;
        Ok(Statement::DeclareCursor(Box::new(DeclareCursor {
            name,
            is_binary,
            scroll,
            no_scroll,
            is_insensitive,
            is_asensitive,
            with_hold,
            query,
        })))
    }

    pub(super) fn fetch(&mut self) -> Result<Statement> {
        let is_move = self.at_keyword(Keyword::Move);
        self.advance();
        let direction = self.fetch_direction()?;
        if !self.accept_keyword(Keyword::From) {
            self.accept_keyword(Keyword::In);
        }
        let cursor = self.name()?;
        Ok(Statement::Fetch(Fetch { is_move, direction, cursor }))
    }

    fn fetch_direction(&mut self) -> Result<FetchDirection> {
        if matches!(self.kind(), TokenKind::Integer | TokenKind::Symbol(b'+' | b'-')) {
            return Ok(FetchDirection::Forward(self.signed_integer()?));
        }
        let Some(keyword) = self.keyword() else { return Ok(FetchDirection::Forward(1)) };
        if keyword == Keyword::All {
            self.advance();
            return Ok(FetchDirection::ForwardAll);
        }
        // These words are names of cursors if nothing follows them.
        if matches!(self.peek(1), TokenKind::End | TokenKind::Symbol(b';')) {
            return Ok(FetchDirection::Forward(1));
        }
        let direction = match keyword {
            Keyword::Next => FetchDirection::Forward(1),
            Keyword::Prior => FetchDirection::Backward(1),
            Keyword::First => FetchDirection::Absolute(1),
            Keyword::Last => FetchDirection::Absolute(-1),
            Keyword::Absolute | Keyword::Relative => {
                self.advance();
                let count = self.signed_integer()?;
                return Ok(if keyword == Keyword::Absolute {
                    FetchDirection::Absolute(count)
                } else {
                    FetchDirection::Relative(count)
                });
            }
            Keyword::Forward | Keyword::Backward => {
                self.advance();
                return self.counted_direction(keyword == Keyword::Forward);
            }
            _ => return Ok(FetchDirection::Forward(1)),
        };
        self.advance();
        Ok(direction)
    }

    fn counted_direction(&mut self, is_forward: bool) -> Result<FetchDirection> {
        if self.accept_keyword(Keyword::All) {
            return Ok(if is_forward { FetchDirection::ForwardAll } else { FetchDirection::BackwardAll });
        }
        let mut count = 1;
        if matches!(self.kind(), TokenKind::Integer | TokenKind::Symbol(b'+' | b'-')) {
            count = self.signed_integer()?;
        }
        Ok(if is_forward { FetchDirection::Forward(count) } else { FetchDirection::Backward(count) })
    }

    pub(super) fn close_cursor(&mut self) -> Result<Statement> {
        self.advance();
        let name = if self.accept_keyword(Keyword::All) { None } else { Some(self.name()?) };
        Ok(Statement::CloseCursor(CloseCursor { name }))
    }

    // Transactions.

    pub(super) fn begin_or_end(&mut self) -> Result<Statement> {
        let is_begin = self.at_keyword(Keyword::Begin);
        self.advance();
        self.optional_transaction_word();
        Ok(Statement::Transaction(if is_begin {
            Transaction::Begin { is_start: false, modes: self.optional_transaction_modes()? }
        } else {
            Transaction::Commit { and_chain: self.optional_chain()? }
        }))
    }

    pub(super) fn transaction(&mut self) -> Result<Statement> {
        let Some(keyword) = self.keyword() else { return self.unexpected() };
        self.advance();
        let transaction = match keyword {
            Keyword::Start => {
                self.expect_keyword(Keyword::Transaction)?;
                Transaction::Begin { is_start: true, modes: self.optional_transaction_modes()? }
            }
            Keyword::Abort => {
                self.optional_transaction_word();
                Transaction::Rollback { and_chain: self.optional_chain()? }
            }
            Keyword::Commit if self.accept_keyword(Keyword::Prepared) => {
                Transaction::CommitPrepared(self.string()?)
            }
            Keyword::Commit => {
                self.optional_transaction_word();
                Transaction::Commit { and_chain: self.optional_chain()? }
            }
            Keyword::Rollback if self.accept_keyword(Keyword::Prepared) => {
                Transaction::RollbackPrepared(self.string()?)
            }
            Keyword::Rollback => {
                self.optional_transaction_word();
                if self.accept_keyword(Keyword::To) {
                    self.optional_savepoint_word();
                    Transaction::RollbackTo(self.name()?)
                } else {
                    Transaction::Rollback { and_chain: self.optional_chain()? }
                }
            }
            Keyword::Savepoint => Transaction::Savepoint(self.name()?),
            _ => {
                self.optional_savepoint_word();
                Transaction::Release(self.name()?)
            }
        };
        Ok(Statement::Transaction(transaction))
    }

    fn optional_transaction_word(&mut self) {
        if !self.accept_keyword(Keyword::Work) {
            self.accept_keyword(Keyword::Transaction);
        }
    }

    /// SAVEPOINT, unless it is the name.
    fn optional_savepoint_word(&mut self) {
        if self.at_keyword(Keyword::Savepoint) && Self::is_name(self.peek(1)) {
            self.advance();
        }
    }

    fn optional_chain(&mut self) -> Result<bool> {
        if !self.accept_keyword(Keyword::And) {
            return Ok(false);
        }
        let and_chain = !self.accept_keyword(Keyword::No);
        self.expect_keyword(Keyword::Chain)?;
        Ok(and_chain)
    }

    /// Modes with or without commas between them (PostgreSQL's transaction_mode_list_or_empty).
    pub(crate) fn optional_transaction_modes(&mut self) -> Result<Vec<TransactionMode>> {
        let mut modes = Vec::new();
        loop {
            let has_comma = !modes.is_empty() && self.accept_symbol(b',');
            match self.optional_transaction_mode()? {
                Some(mode) => modes.push(mode),
                None if has_comma => return self.unexpected(),
                None => return Ok(modes),
            }
        }
    }

    fn optional_transaction_mode(&mut self) -> Result<Option<TransactionMode>> {
        use TransactionModeKind::*;
        let start = self.start();
        let kind = match self.keyword() {
            Some(Keyword::Isolation) => {
                self.expect_keywords(&[Keyword::Isolation, Keyword::Level])?;
                match self.keyword() {
                    Some(Keyword::Serializable) => {
                        self.advance();
                        Serializable
                    }
                    Some(Keyword::Repeatable) => {
                        self.expect_keywords(&[Keyword::Repeatable, Keyword::Read])?;
                        RepeatableRead
                    }
                    _ => {
                        self.expect_keyword(Keyword::Read)?;
                        if self.accept_keyword(Keyword::Committed) {
                            ReadCommitted
                        } else {
                            self.expect_keyword(Keyword::Uncommitted)?;
                            ReadUncommitted
                        }
                    }
                }
            }
            Some(Keyword::Read) => {
                self.advance();
                if self.accept_keyword(Keyword::Only) {
                    ReadOnly
                } else {
                    self.expect_keyword(Keyword::Write)?;
                    ReadWrite
                }
            }
            Some(Keyword::Deferrable) => {
                self.advance();
                Deferrable
            }
            _ if self.accept_not() => {
                self.expect_keyword(Keyword::Deferrable)?;
                NotDeferrable
            }
            _ => return Ok(None),
        };
        Ok(Some(TransactionMode { span: self.span_from(start), kind }))
    }
}
