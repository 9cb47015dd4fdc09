//! SET, SHOW and RESET, and the statements that begin and end transactions.

use super::{Words, is_word, unsupported};
use crate::statement::*;
use datafusion::sql::sqlparser::tokenizer::Token;
use firn_base::Result;

impl Words<'_> {
    pub(super) fn set(&mut self) -> Result<Statement> {
        self.skip(1);
        if self.words(&["session", "characteristics", "as", "transaction"]) {
            let modes = self.transaction_modes()?;
            return self.done(Statement::Transaction(TransactionControl::SetDefault(modes)));
        }
        let local = self.word("local");
        if !local && !self.peek_nth_is(1, "authorization") {
            self.word("session");
        }
        if self.word("transaction") {
            if self.peek_is("snapshot") {
                return Err(unsupported("set transaction snapshot", "Snapshots cannot be shared."));
            }
            let modes = self.transaction_modes()?;
            return self.done(Statement::Transaction(TransactionControl::Set(modes)));
        }
        if self.word("constraints") {
            let names = match self.word("all") {
                true => None,
                false => Some(self.list(Self::name)?),
            };
            let deferred = self.word("deferred");
            if !deferred {
                self.expect("immediate")?;
            }
            return self.done(Statement::SetConstraints { names, deferred });
        }
        if self.words(&["session", "authorization"]) || self.word("role") {
            let value = self.setting_value()?;
            return self.done(Statement::Setting(SettingStatement::Set {
                name: "role".into(),
                value,
                local,
            }));
        }
        let name = if self.words(&["time", "zone"]) {
            let value = match self.word("local") {
                true => None,
                false => self.setting_value()?,
            };
            return self.done(Statement::Setting(SettingStatement::Set {
                name: "timezone".into(),
                value,
                local,
            }));
        } else if self.word("names") {
            let value = match self.at_end() {
                true => None,
                false => self.setting_value()?,
            };
            return self.done(Statement::Setting(SettingStatement::Set {
                name: "client_encoding".into(),
                value,
                local,
            }));
        } else {
            self.setting_name()?
        };
        if !self.symbol(&Token::Eq) {
            self.expect("to")?;
        }
        let value = self.setting_value()?;
        self.done(Statement::Setting(SettingStatement::Set { name, value, local }))
    }

    pub(super) fn peek_nth_is(&self, nth: usize, word: &str) -> bool {
        is_word(&self.parser.peek_nth_token_ref(nth).token, word)
    }

    pub(super) fn setting_name(&mut self) -> Result<String> {
        let mut name = self.identifier()?.to_lowercase();
        while self.symbol(&Token::Period) {
            name = format!("{name}.{}", self.identifier()?.to_lowercase());
        }
        Ok(name)
    }

    /// A list of words, strings and numbers as one text; `None` for DEFAULT.
    pub(super) fn setting_value(&mut self) -> Result<Option<String>> {
        if self.word("default") {
            return Ok(None);
        }
        let items = self.list(|words| {
            Ok(match words.parser.peek_token().token {
                Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_) => (words.string()?, true),
                Token::Word(word) if word.quote_style.is_some() => {
                    words.skip(1);
                    (word.value, true)
                }
                Token::Word(word) => {
                    words.skip(1);
                    (word.value.to_lowercase(), false)
                }
                Token::Minus | Token::Plus | Token::Number(..) => {
                    let negative = words.symbol(&Token::Minus);
                    if !negative {
                        words.symbol(&Token::Plus);
                    }
                    match words.parser.peek_token().token {
                        Token::Number(number, _) => {
                            words.skip(1);
                            (format!("{}{number}", if negative { "-" } else { "" }), false)
                        }
                        _ => return words.unexpected(),
                    }
                }
                _ => return words.unexpected(),
            })
        })?;
        if let [(single, _)] = items.as_slice() {
            return Ok(Some(single.clone()));
        }
        let items: Vec<String> = items
            .iter()
            .map(|(text, quoted)| if *quoted { quote_ident(text) } else { text.clone() })
            .collect();
        Ok(Some(items.join(", ")))
    }

    pub(super) fn show(&mut self) -> Result<Statement> {
        self.skip(1);
        let name = if self.word("all") {
            None
        } else if self.words(&["transaction", "isolation", "level"]) {
            Some("transaction_isolation".to_owned())
        } else if self.words(&["time", "zone"]) {
            Some("timezone".to_owned())
        } else if self.words(&["session", "authorization"]) {
            Some("session_authorization".to_owned())
        } else {
            Some(self.setting_name()?)
        };
        self.done(Statement::Setting(SettingStatement::Show(name)))
    }

    pub(super) fn reset(&mut self) -> Result<Statement> {
        self.skip(1);
        let name = if self.word("all") {
            None
        } else if self.words(&["time", "zone"]) {
            Some("timezone".to_owned())
        } else if self.words(&["session", "authorization"]) {
            Some("role".to_owned())
        } else {
            Some(self.setting_name()?)
        };
        self.done(Statement::Setting(SettingStatement::Reset(name)))
    }

    // Transactions.

    pub(super) fn transaction(&mut self) -> Result<Statement> {
        let control = self.transaction_control()?;
        self.done(Statement::Transaction(control))
    }

    pub(super) fn transaction_control(&mut self) -> Result<TransactionControl> {
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

    pub(super) fn chain(&mut self) -> Result<bool> {
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
                } else if self.words(&["repeatable", "read"]) {
                    Isolation::Snapshot
                } else if self.words(&["read", "committed"]) || self.words(&["read", "uncommitted"]) {
                    Isolation::ReadCommitted
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
