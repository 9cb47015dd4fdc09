//! Transactions, prepared statements, cursors, EXPLAIN.

use super::Printer;
use crate::tree::{
    CloseCursor, Deallocate, DeclareCursor, Execute, Explain, Fetch, FetchDirection, Prepare, Transaction,
    TransactionMode, TransactionModeKind, UtilityOption, UtilityValue,
};

impl Printer {
    pub(super) fn explain(&mut self, explain: &Explain) {
        self.put("EXPLAIN ");
        if !explain.options.is_empty() {
            self.utility_options(&explain.options);
            self.put(" ");
        }
        self.statement(&explain.statement);
    }

    /// `(name value, …)`
    pub(crate) fn utility_options(&mut self, options: &[UtilityOption]) {
        self.parenthesised(options, |printer, option| {
            // The only reserved word that may be the name of an option.
            if &*option.name.text == "analyze" {
                printer.put("analyze");
            } else {
                printer.name(&option.name);
            }
            if let Some(value) = &option.value {
                printer.put(" ");
                printer.utility_value(value);
            }
        });
    }

    /// The value of an option: a word is written as a string, which means the same.
    pub(crate) fn utility_value(&mut self, value: &UtilityValue) {
        match value {
            UtilityValue::Word(word) if super::is_plain_name(word) => self.put(word),
            UtilityValue::Word(word) => self.string(word),
            UtilityValue::Number(number) => self.put(number),
        }
    }

    pub(super) fn prepare(&mut self, prepare: &Prepare) {
        self.put("PREPARE ");
        self.name(&prepare.name);
        if !prepare.types.is_empty() {
            self.put(" ");
            self.parenthesised(&prepare.types, Self::type_name);
        }
        self.put(" AS ");
        self.statement(&prepare.statement);
    }

    pub(super) fn execute(&mut self, execute: &Execute) {
        self.put("EXECUTE ");
        self.name(&execute.name);
        if !execute.arguments.is_empty() {
            self.parenthesised(&execute.arguments, Self::expr);
        }
    }

    pub(super) fn deallocate(&mut self, deallocate: &Deallocate) {
        self.put("DEALLOCATE ");
        match &deallocate.name {
            None => self.put("ALL"),
            Some(name) => self.name(name),
        }
    }

    pub(super) fn declare_cursor(&mut self, declare: &DeclareCursor) {
        self.put("DECLARE ");
        self.name(&declare.name);
        for (word, is_set) in [
            (" BINARY", declare.is_binary),
            (" ASENSITIVE", declare.is_asensitive),
            (" INSENSITIVE", declare.is_insensitive),
            (" SCROLL", declare.scroll),
            (" NO SCROLL", declare.no_scroll),
        ] {
            if is_set {
                self.put(word);
            }
        }
        self.put(if declare.with_hold { " CURSOR WITH HOLD FOR " } else { " CURSOR FOR " });
        self.query(&declare.query);
    }

    pub(super) fn fetch(&mut self, fetch: &Fetch) {
        self.put(if fetch.is_move { "MOVE " } else { "FETCH " });
        let count = match fetch.direction {
            FetchDirection::ForwardAll => {
                self.put("FORWARD ALL");
                None
            }
            FetchDirection::BackwardAll => {
                self.put("BACKWARD ALL");
                None
            }
            FetchDirection::Forward(count) => Some(("FORWARD ", count)),
            FetchDirection::Backward(count) => Some(("BACKWARD ", count)),
            FetchDirection::Absolute(count) => Some(("ABSOLUTE ", count)),
            FetchDirection::Relative(count) => Some(("RELATIVE ", count)),
        };
        if let Some((word, count)) = count {
            self.put(word);
            self.integer(count);
        }
        self.put(" FROM ");
        self.name(&fetch.cursor);
    }

    pub(super) fn close_cursor(&mut self, close: &CloseCursor) {
        self.put("CLOSE ");
        match &close.name {
            None => self.put("ALL"),
            Some(name) => self.name(name),
        }
    }

    pub(super) fn transaction(&mut self, transaction: &Transaction) {
        match transaction {
            Transaction::Begin { is_start, modes } => {
                self.put(if *is_start { "START TRANSACTION" } else { "BEGIN" });
                if !modes.is_empty() {
                    self.put(" ");
                    self.transaction_modes(modes);
                }
            }
            Transaction::Commit { and_chain } => {
                self.put(if *and_chain { "COMMIT AND CHAIN" } else { "COMMIT" })
            }
            Transaction::Rollback { and_chain } => {
                self.put(if *and_chain { "ROLLBACK AND CHAIN" } else { "ROLLBACK" });
            }
            Transaction::Savepoint(name) => {
                self.put("SAVEPOINT ");
                self.name(name);
            }
            Transaction::Release(name) => {
                self.put("RELEASE SAVEPOINT ");
                self.name(name);
            }
            Transaction::RollbackTo(name) => {
                self.put("ROLLBACK TO SAVEPOINT ");
                self.name(name);
            }
            Transaction::Prepare(id) => {
                self.put("PREPARE TRANSACTION ");
                self.string(id);
            }
            Transaction::CommitPrepared(id) => {
                self.put("COMMIT PREPARED ");
                self.string(id);
            }
            Transaction::RollbackPrepared(id) => {
                self.put("ROLLBACK PREPARED ");
                self.string(id);
            }
        }
    }

    /// Modes with commas between them.
    pub(crate) fn transaction_modes(&mut self, modes: &[TransactionMode]) {
        self.list(modes, |printer, mode| {
            printer.put(match mode.kind {
                TransactionModeKind::ReadUncommitted => "ISOLATION LEVEL READ UNCOMMITTED",
                TransactionModeKind::ReadCommitted => "ISOLATION LEVEL READ COMMITTED",
                TransactionModeKind::RepeatableRead => "ISOLATION LEVEL REPEATABLE READ",
                TransactionModeKind::Serializable => "ISOLATION LEVEL SERIALIZABLE",
                TransactionModeKind::ReadOnly => "READ ONLY",
                TransactionModeKind::ReadWrite => "READ WRITE",
                TransactionModeKind::Deferrable => "DEFERRABLE",
                TransactionModeKind::NotDeferrable => "NOT DEFERRABLE",
            });
        });
    }
}
