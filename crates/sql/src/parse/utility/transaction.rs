//! BEGIN to COMMIT, savepoints, and the modes of transactions.

use super::{Words, unsupported};
use crate::statement::{Isolation, Statement, TransactionControl, TransactionModes};
use datafusion::sql::sqlparser::tokenizer::Token;
use firn_base::Result;

impl Words<'_> {
    pub(super) fn transaction(&mut self) -> Result<Statement> {
        let control = self.transaction_control()?;
        self.done(Statement::Transaction(control))
    }

    fn transaction_control(&mut self) -> Result<TransactionControl> {
        let first = self.identifier()?;
        match first.as_str() {
            "savepoint" => return Ok(TransactionControl::Savepoint(self.identifier()?)),
            "release" => {
                self.word("savepoint");
                return Ok(TransactionControl::Release(self.identifier()?));
            }
            "start" => self.expect("transaction")?,
            _ => {
                let _ = self.word("work") || self.word("transaction");
            }
        }
        if matches!(first.as_str(), "commit" | "rollback") && self.peek_is("prepared") {
            return Err(unsupported("two-phase commit", "Two-phase commit is not planned."));
        }
        match first.as_str() {
            "begin" | "start" => {
                let modes = match self.at_end() {
                    true => TransactionModes::default(),
                    false => self.transaction_modes()?,
                };
                Ok(TransactionControl::Begin { modes, start: first == "start" })
            }
            "commit" | "end" => Ok(TransactionControl::Commit { chain: self.chain()? }),
            _ => {
                if first == "rollback" && self.word("to") {
                    self.word("savepoint");
                    return Ok(TransactionControl::RollbackTo(self.identifier()?));
                }
                Ok(TransactionControl::Rollback { chain: self.chain()? })
            }
        }
    }

    fn chain(&mut self) -> Result<bool> {
        if !self.word("and") {
            return Ok(false);
        }
        let no = self.word("no");
        self.expect("chain")?;
        Ok(!no)
    }

    pub(super) fn transaction_modes(&mut self) -> Result<TransactionModes> {
        let mut modes = TransactionModes::default();
        loop {
            if self.words(&["isolation", "level"]) {
                modes.isolation = Some(if self.word("serializable") {
                    Isolation::Serializable
                } else if self.words(&["repeatable", "read"])
                    || self.words(&["read", "committed"])
                    || self.words(&["read", "uncommitted"])
                {
                    Isolation::Snapshot
                } else {
                    return self.unexpected();
                });
            } else if self.words(&["read", "only"]) {
                modes.read_only = Some(true);
            } else if self.words(&["read", "write"]) {
                modes.read_only = Some(false);
            } else if self.words(&["not", "deferrable"]) || self.word("deferrable") {
                // Only matters to serializable transactions.
            } else {
                return self.unexpected();
            }
            // The comma between modes is optional.
            if !self.symbol(&Token::Comma) && self.at_end() {
                return Ok(modes);
            }
        }
    }
}
