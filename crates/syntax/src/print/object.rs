//! Objects of any kind and how they are named; DROP, COMMENT ON.

use super::Printer;
use crate::tree::{
    AggregateParameters, Comment, DropObjects, FunctionParameter, Object, ObjectReference, ObjectType,
    OperatorReference, ParameterMode, Role, RoleKind, TypeName,
};

impl Printer {
    pub(crate) fn role(&mut self, role: &Role) {
        match &role.kind {
            RoleKind::Name(name) => self.name_text(name),
            RoleKind::CurrentRole => self.put("CURRENT_ROLE"),
            RoleKind::CurrentUser => self.put("CURRENT_USER"),
            RoleKind::SessionUser => self.put("SESSION_USER"),
            RoleKind::Public => self.put("public"),
        }
    }

    /// The kind of an object and how it is named.
    pub(super) fn object(&mut self, object: &Object, if_exists: bool) {
        self.put(object.object_type.words());
        self.put(" ");
        self.if_exists(if_exists);
        match &object.name {
            ObjectReference::On { name, relation } if object.object_type == ObjectType::DomainConstraint => {
                self.name(name);
                self.put(" ON DOMAIN ");
                self.object_name(relation);
            }
            reference => self.object_reference(reference),
        }
    }

    pub(super) fn object_reference(&mut self, reference: &ObjectReference) {
        match reference {
            ObjectReference::Name(name) => self.object_name(name),
            ObjectReference::Relation(relation) => self.relation(relation),
            ObjectReference::On { name, relation } => {
                self.name(name);
                self.put(" ON ");
                self.object_name(relation);
            }
            ObjectReference::Type(type_name) => self.type_name(type_name),
            ObjectReference::Function(function) => {
                self.object_name(&function.name);
                if let Some(arguments) = &function.arguments {
                    self.parenthesised(arguments, Self::parameter);
                }
            }
            ObjectReference::Aggregate(aggregate) => {
                self.object_name(&aggregate.name);
                self.aggregate_parameters(&aggregate.arguments);
            }
            ObjectReference::Operator(operator) => self.operator_reference(operator),
            ObjectReference::Class { name, method } => {
                self.object_name(name);
                self.put(" USING ");
                self.name(method);
            }
            ObjectReference::Cast { source, target } => {
                self.put("(");
                self.type_name(source);
                self.put(" AS ");
                self.type_name(target);
                self.put(")");
            }
            ObjectReference::Transform { type_name, language } => {
                self.put("FOR ");
                self.type_name(type_name);
                self.put(" LANGUAGE ");
                self.name(language);
            }
            ObjectReference::Number(number) => self.put(number),
            ObjectReference::Role(role) => self.role(role),
        }
    }

    pub(super) fn aggregate_parameters(&mut self, parameters: &AggregateParameters) {
        match parameters {
            AggregateParameters::Star => self.put("(*)"),
            AggregateParameters::List { direct, ordered } => {
                self.put("(");
                self.list(direct, Self::parameter);
                if !ordered.is_empty() {
                    self.put(if direct.is_empty() { "ORDER BY " } else { " ORDER BY " });
                    self.list(ordered, Self::parameter);
                }
                self.put(")");
            }
        }
    }

    pub(super) fn parameter(&mut self, parameter: &FunctionParameter) {
        self.put(match parameter.mode {
            ParameterMode::Default => "",
            ParameterMode::In => "IN ",
            ParameterMode::Out => "OUT ",
            ParameterMode::InOut => "INOUT ",
            ParameterMode::Variadic => "VARIADIC ",
        });
        if let Some(name) = &parameter.name {
            self.name(name);
            self.put(" ");
        }
        self.option_value(&parameter.type_name);
        self.clause(" DEFAULT ", parameter.default.as_ref());
    }

    fn operator_reference(&mut self, reference: &OperatorReference) {
        self.any_operator(&reference.operator);
        let operand = |printer: &mut Self, operand: Option<&TypeName>| match operand {
            None => printer.put("NONE"),
            Some(type_name) => printer.type_name(type_name),
        };
        self.put(" (");
        operand(self, reference.left.as_ref());
        self.put(", ");
        operand(self, reference.right.as_ref());
        self.put(")");
    }

    pub(super) fn drop_objects(&mut self, drop: &DropObjects) {
        self.put("DROP ");
        self.put(drop.object_type.words());
        self.put(if drop.concurrently { " CONCURRENTLY " } else { " " });
        self.if_exists(drop.if_exists);
        self.list(&drop.objects, Self::object_reference);
        self.cascade(drop.cascade);
    }

    pub(super) fn comment(&mut self, comment: &Comment) {
        self.put("COMMENT ON ");
        self.object(&comment.object, false);
        self.put(" IS ");
        match &comment.text {
            None => self.put("NULL"),
            Some(text) => self.string(text),
        }
    }
}
