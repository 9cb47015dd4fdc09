//! The syntax tree to canonical text, which parses to an equal tree.
//!
//! Keywords are in capitals, names quoted where they must be, parentheses only where the tree needs them, so that a printed
//! text nests no deeper than what it was parsed from. AS stands before every alias.
//! Every function takes a node and appends it to the text; each family of nodes has its file.

mod alter;
mod change;
mod expression;
mod object;
mod operand;
mod other;
mod query;
mod relation;
mod session;
mod setting;
mod table;
mod type_name;

use crate::keyword::{Category, Keyword};
use crate::tree::{Expr, Name, ObjectName, Query, Statement, TypeName};

/// A statement as text.
pub fn statement(statement: &Statement) -> String {
    let mut printer = Printer::default();
    printer.statement(statement);
    printer.text
}

/// A query as text.
pub fn query(query: &Query) -> String {
    let mut printer = Printer::default();
    printer.query(query);
    printer.text
}

/// An expression as text.
pub fn expression(expr: &Expr) -> String {
    let mut printer = Printer::default();
    printer.expr(expr);
    printer.text
}

/// The name of a type as text.
pub fn type_name(name: &TypeName) -> String {
    let mut printer = Printer::default();
    printer.type_name(name);
    printer.text
}

/// A name as text, in quotes if it needs them.
pub fn quote_name(name: &str) -> String {
    let mut printer = Printer::default();
    printer.name_text(name);
    printer.text
}

/// A string constant as text. One with backslashes means the same under any setting.
pub fn quote_string(value: &str) -> String {
    let mut printer = Printer::default();
    printer.string(value);
    printer.text
}

/// Text that is being written.
#[derive(Default)]
pub(crate) struct Printer {
    text: String,
}

impl Printer {
    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Query(query) => self.query(query),
            Statement::Insert(insert) => self.insert(insert),
            Statement::Update(update) => self.update(update),
            Statement::Delete(delete) => self.delete(delete),
            Statement::Merge(merge) => self.merge(merge),
            Statement::Explain(explain) => self.explain(explain),
            Statement::Prepare(prepare) => self.prepare(prepare),
            Statement::Execute(execute) => self.execute(execute),
            Statement::Deallocate(deallocate) => self.deallocate(deallocate),
            Statement::DeclareCursor(declare) => self.declare_cursor(declare),
            Statement::Fetch(fetch) => self.fetch(fetch),
            Statement::CloseCursor(close) => self.close_cursor(close),
            Statement::Transaction(transaction) => self.transaction(transaction),
            Statement::CreateTable(table) => self.create_table(table),
            Statement::CreateTableAs(table) => self.create_table_as(table),
            Statement::CreateIndex(index) => self.create_index(index),
            Statement::CreateView(view) => self.create_view(view),
            Statement::RefreshView(refresh) => self.refresh(refresh),
            Statement::CreateSequence(sequence) => self.create_sequence(sequence),
            Statement::AlterSequence(alter) => self.alter_sequence(alter),
            Statement::CreateSchema(schema) => self.create_schema(schema),
            Statement::AlterTable(alter) => self.alter_table(alter),
            Statement::MoveAll(alter) => self.move_all(alter),
            Statement::Rename(rename) => self.rename(rename),
            Statement::SetSchema(change) => self.set_schema(change),
            Statement::ChangeOwner(change) => self.change_owner(change),
            Statement::Drop(drop) => self.drop_objects(drop),
            Statement::Comment(comment) => self.comment(comment),
            Statement::Truncate(truncate) => self.truncate(truncate),
            Statement::Lock(lock) => self.lock(lock),
            Statement::Vacuum(vacuum) => self.vacuum(vacuum),
            Statement::Cluster(cluster) => self.cluster(cluster),
            Statement::Reindex(reindex) => self.reindex(reindex),
            Statement::Copy(copy) => self.copy(copy),
            Statement::Set(set) => self.set(set),
            Statement::Reset(reset) => self.reset(reset),
            Statement::Show(show) => self.show(show),
            Statement::SetConstraints(set) => self.set_constraints(set),
            Statement::Checkpoint => self.put("CHECKPOINT"),
            Statement::Discard(discard) => self.discard(*discard),
            Statement::Listen(channel) => {
                self.put("LISTEN ");
                self.name(channel);
            }
            Statement::Notify(notify) => self.notify(notify),
            Statement::Unlisten(unlisten) => self.unlisten(unlisten),
            Statement::Call(call) => {
                self.put("CALL ");
                self.expr(&call.call);
            }
            Statement::Other(other) => self.other(other),
        }
    }

    /// Text as it is.
    pub(crate) fn put(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Items with commas between them.
    pub(crate) fn list<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        for (index, value) in items.iter().enumerate() {
            if index > 0 {
                self.put(", ");
            }
            item(self, value);
        }
    }

    /// Items with commas between them, in parentheses.
    pub(crate) fn parenthesised<T>(&mut self, items: &[T], item: impl FnMut(&mut Self, &T)) {
        self.put("(");
        self.list(items, item);
        self.put(")");
    }

    /// A name, in quotes if it needs them.
    pub(crate) fn name(&mut self, name: &Name) {
        self.name_text(&name.text);
    }

    pub(crate) fn name_text(&mut self, name: &str) {
        if is_plain_name(name) {
            self.put(name);
            return;
        }
        self.quoted(name, '"');
    }

    /// A name with its qualifiers.
    pub(crate) fn object_name(&mut self, name: &ObjectName) {
        for qualifier in &name.qualifiers {
            self.name(qualifier);
            self.put(".");
        }
        self.name(&name.name);
    }

    /// ` AS name` or nothing.
    pub(crate) fn alias(&mut self, alias: Option<&Name>) {
        if let Some(alias) = alias {
            self.put(" AS ");
            self.name(alias);
        }
    }

    /// ` (name, …)` or nothing.
    pub(crate) fn optional_names(&mut self, names: &[Name]) {
        if !names.is_empty() {
            self.put(" ");
            self.parenthesised(names, Self::name);
        }
    }

    /// A string constant.
    pub(crate) fn string(&mut self, value: &str) {
        if !value.contains('\\') {
            self.quoted(value, '\'');
            return;
        }
        self.put("E'");
        for character in value.chars() {
            if matches!(character, '\\' | '\'') {
                self.text.push(character);
            }
            self.text.push(character);
        }
        self.put("'");
    }

    fn quoted(&mut self, value: &str, quote: char) {
        self.text.push(quote);
        for (index, part) in value.split(quote).enumerate() {
            if index > 0 {
                self.text.push(quote);
                self.text.push(quote);
            }
            self.text.push_str(part);
        }
        self.text.push(quote);
    }

    /// A number.
    pub(crate) fn integer(&mut self, value: i32) {
        self.put(&value.to_string());
    }
}

/// Whether a name needs no quotes wherever it may stand.
fn is_plain_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let is_word = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    is_word
        && Keyword::find(name.as_bytes())
            .is_none_or(|keyword| keyword.category() == Category::Unreserved && !begins_something(keyword))
}

/// Words that are not reserved but mean something else than a name at some places where names may stand.
fn begins_something(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::Absolute
            | Keyword::Backward
            | Keyword::Cube
            | Keyword::Current
            | Keyword::First
            | Keyword::Forward
            | Keyword::Global
            | Keyword::Groups
            | Keyword::Last
            | Keyword::Local
            | Keyword::Next
            | Keyword::No
            | Keyword::Nulls
            | Keyword::Operator
            | Keyword::Partition
            | Keyword::Prepare
            | Keyword::Prior
            | Keyword::Range
            | Keyword::Recursive
            | Keyword::Relative
            | Keyword::Rollup
            | Keyword::Rows
            | Keyword::Savepoint
            | Keyword::Set
            | Keyword::Temp
            | Keyword::Temporary
            | Keyword::Transaction
            | Keyword::Uescape
            | Keyword::Unbounded
            | Keyword::Unlogged
    )
}
