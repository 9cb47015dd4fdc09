//! Statements of parts.

use super::Printer;
use crate::tree::{OtherStatement, Part};

impl Printer {
    pub(super) fn other(&mut self, other: &OtherStatement) {
        let mut is_after_space = true;
        for part in &other.parts {
            let closes = matches!(part, Part::Sign(')' | ',' | ';'));
            if !is_after_space && !closes {
                self.put(" ");
            }
            self.part(part);
            is_after_space = matches!(part, Part::Sign('('));
        }
    }

    fn part(&mut self, part: &Part) {
        match part {
            Part::Word(word) => self.put(&word.text().to_ascii_uppercase()),
            Part::Words(words) => self.put(words),
            Part::Sign(sign) => self.put(sign.encode_utf8(&mut [0; 4])),
            Part::Name(name) => self.name(name),
            Part::ObjectName(name) => self.object_name(name),
            Part::Relation(relation) => self.relation(relation),
            Part::Role(role) => self.role(role),
            Part::String(string) => self.string(string),
            Part::Number(number) => self.put(number),
            Part::Value(value) => self.utility_value(value),
            Part::Type(type_name) => self.type_name(type_name),
            Part::OptionValue(value) => self.option_value(value),
            Part::Operator(operator) => self.any_operator(operator),
            Part::Expr(expr) => self.expr(expr),
            Part::Query(query) => self.query(query),
            Part::Statement(statement) => self.statement(statement),
            Part::IndexElement(element) => self.index_element(element),
            Part::From(item) => self.table_ref(item),
            Part::Parameter(parameter) => self.parameter(parameter),
            Part::AggregateParameters(parameters) => self.aggregate_parameters(parameters),
            Part::Reference(reference) => self.object_reference(reference),
            Part::Object(object) => self.object(object, false),
            Part::Definition(definition) => self.rel_options(definition),
            Part::Options(changes) => self.generic_option_changes(changes),
            Part::ColumnConstraint(constraint) => self.column_constraint(constraint),
            Part::TableConstraint(constraint) => self.table_constraint(constraint),
            Part::Set(setting) => self.setting(setting),
        }
    }
}
