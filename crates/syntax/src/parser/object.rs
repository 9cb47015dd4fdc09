//! Objects of any kind and how they are named; DROP, COMMENT ON, roles.

use super::Parser;
use crate::keyword::Keyword;
use crate::token::TokenKind;
use crate::tree::{
    AggregateParameters, AggregateReference, BaseType, Comment, DropObjects, FunctionParameter,
    FunctionReference, Name, Object, ObjectName, ObjectReference, ObjectType, OperatorReference, OptionValue,
    ParameterMode, Role, RoleKind, Statement, TypeName,
};
use firn_base::{Result, SqlState};

const RESERVED_NAME: SqlState = SqlState::new("42939");

impl Parser<'_> {
    /// A role (PostgreSQL's RoleSpec).
    pub(crate) fn role(&mut self) -> Result<Role> {
        let start = self.start();
        let kind = match self.keyword() {
            Some(Keyword::CurrentRole) => RoleKind::CurrentRole,
            Some(Keyword::CurrentUser) => RoleKind::CurrentUser,
            Some(Keyword::SessionUser) => RoleKind::SessionUser,
            _ => {
                let name = self.word()?;
                let kind = match &*name.text {
                    "public" => RoleKind::Public,
                    "none" => {
                        return self.error(RESERVED_NAME, "role name \"none\" is reserved", start);
                    }
                    _ => RoleKind::Name(name.text),
                };
                return Ok(Role { span: self.span_from(start), kind });
            }
        };
        self.advance();
        Ok(Role { span: self.span_from(start), kind })
    }

    /// The name of a role that may be made (PostgreSQL's RoleId).
    pub(crate) fn role_name(&mut self) -> Result<Name> {
        let role = self.role()?;
        let message = match role.kind {
            RoleKind::Name(text) => return Ok(Name { text, span: role.span }),
            RoleKind::Public => "role name \"public\" is reserved",
            RoleKind::CurrentRole => "CURRENT_ROLE cannot be used as a role name here",
            RoleKind::CurrentUser => "CURRENT_USER cannot be used as a role name here",
            RoleKind::SessionUser => "SESSION_USER cannot be used as a role name here",
        };
        self.error(RESERVED_NAME, message, role.span.start)
    }

    /// The words of the kind of an object, if these are some and none of the refused ones. FOREIGN SERVER and USER MAPPING
    /// are none.
    pub(super) fn optional_object_type(&mut self, refused: &[Keyword]) -> Result<Option<ObjectType>> {
        use ObjectType::*;
        let Some(keyword) = self.keyword() else { return Ok(None) };
        if refused.contains(&keyword) {
            return Ok(None);
        }
        let object_type = match keyword {
            Keyword::Access => {
                self.expect_keywords(&[Keyword::Access, Keyword::Method])?;
                return Ok(Some(AccessMethod));
            }
            Keyword::Event => {
                self.expect_keywords(&[Keyword::Event, Keyword::Trigger])?;
                return Ok(Some(EventTrigger));
            }
            Keyword::Foreign => {
                self.advance();
                if self.accept_keyword(Keyword::Table) {
                    return Ok(Some(ForeignTable));
                }
                self.expect_keywords(&[Keyword::Data, Keyword::Wrapper])?;
                return Ok(Some(ForeignDataWrapper));
            }
            Keyword::Materialized => {
                self.expect_keywords(&[Keyword::Materialized, Keyword::View])?;
                return Ok(Some(MaterializedView));
            }
            Keyword::Procedural => {
                self.expect_keywords(&[Keyword::Procedural, Keyword::Language])?;
                return Ok(Some(Language));
            }
            Keyword::Large => {
                self.expect_keywords(&[Keyword::Large, Keyword::Object])?;
                return Ok(Some(LargeObject));
            }
            Keyword::Text => {
                self.expect_keywords(&[Keyword::Text, Keyword::Search])?;
                match self.keyword() {
                    Some(Keyword::Parser) => TextSearchParser,
                    Some(Keyword::Dictionary) => TextSearchDictionary,
                    Some(Keyword::Template) => TextSearchTemplate,
                    Some(Keyword::Configuration) => TextSearchConfiguration,
                    _ => return self.unexpected(),
                }
            }
            Keyword::Operator => {
                self.advance();
                // CLASS and FAMILY may be schemas of operators.
                if self.peek(1) != TokenKind::Symbol(b'.') {
                    if self.accept_keyword(Keyword::Class) {
                        return Ok(Some(OperatorClass));
                    }
                    if self.accept_keyword(Keyword::Family) {
                        return Ok(Some(OperatorFamily));
                    }
                }
                return Ok(Some(Operator));
            }
            Keyword::Aggregate => Aggregate,
            Keyword::Cast => Cast,
            Keyword::Collation => Collation,
            Keyword::Column => Column,
            Keyword::Constraint => Constraint,
            Keyword::Conversion => Conversion,
            Keyword::Database => Database,
            Keyword::Domain => Domain,
            Keyword::Extension => Extension,
            Keyword::Function => Function,
            Keyword::Index => Index,
            Keyword::Language => Language,
            Keyword::Policy => Policy,
            Keyword::Procedure => Procedure,
            Keyword::Publication => Publication,
            Keyword::Role => Role,
            Keyword::Routine => Routine,
            Keyword::Rule => Rule,
            Keyword::Schema => Schema,
            Keyword::Sequence => Sequence,
            Keyword::Server => Server,
            Keyword::Statistics => Statistics,
            Keyword::Subscription => Subscription,
            Keyword::Table => Table,
            Keyword::Tablespace => Tablespace,
            Keyword::Transform => Transform,
            Keyword::Trigger => Trigger,
            Keyword::Type => Type,
            Keyword::View => View,
            _ => return Ok(None),
        };
        self.advance();
        Ok(Some(object_type))
    }

    /// How an object of this kind is named.
    pub(super) fn object_reference(&mut self, object_type: ObjectType) -> Result<ObjectReference> {
        use ObjectType::*;
        Ok(match object_type {
            AccessMethod | Database | EventTrigger | Extension | ForeignDataWrapper | Language
            | Publication | Role | Schema | Server | Subscription | Tablespace => {
                return self.simple_reference();
            }
            Constraint | DomainConstraint | Policy | Rule | Trigger => {
                let name = self.name()?;
                self.expect_keyword(Keyword::On)?;
                ObjectReference::On { name, relation: self.any_name()? }
            }
            Domain | Type => ObjectReference::Type(self.type_name()?),
            Function | Procedure | Routine => ObjectReference::Function(self.function_reference()?),
            Aggregate => {
                let name = self.function_name()?;
                ObjectReference::Aggregate(AggregateReference {
                    name,
                    arguments: self.aggregate_parameters()?,
                })
            }
            Operator => ObjectReference::Operator(self.operator_reference()?),
            OperatorClass | OperatorFamily => {
                let name = self.any_name()?;
                self.expect_keyword(Keyword::Using)?;
                ObjectReference::Class { name, method: self.name()? }
            }
            Cast => {
                let (source, target) = self.cast_types()?;
                ObjectReference::Cast { source, target }
            }
            Transform => {
                self.expect_keyword(Keyword::For)?;
                let type_name = self.type_name()?;
                self.expect_keyword(Keyword::Language)?;
                ObjectReference::Transform { type_name, language: self.name()? }
            }
            LargeObject => ObjectReference::Number(self.number()?),
            _ => ObjectReference::Name(self.any_name()?),
        })
    }

    /// `(type AS type)`
    pub(super) fn cast_types(&mut self) -> Result<(TypeName, TypeName)> {
        self.expect_symbol(b'(')?;
        let source = self.type_name()?;
        self.expect_keyword(Keyword::As)?;
        let target = self.type_name()?;
        self.expect_symbol(b')')?;
        Ok((source, target))
    }

    // Functions.

    /// A function, with its arguments or not (PostgreSQL's function_with_argtypes).
    pub(super) fn function_reference(&mut self) -> Result<FunctionReference> {
        let may_be_bare = Self::is_name(self.kind()) || Self::is_type_or_function_name(self.kind());
        if !may_be_bare {
            return self.unexpected();
        }
        let is_function = Self::is_type_or_function_name(self.kind());
        let is_column = Self::is_name(self.kind());
        let first = self.take_name();
        let name = if is_column { self.with_attributes(first)? } else { ObjectName::simple(first) };
        if is_column && self.at_symbol(b'[') {
            while self.optional_accessor()?.is_some() {}
            return self.unexpected();
        }
        if !self.at_symbol(b'(') || (name.qualifiers.is_empty() && !is_function) {
            return Ok(FunctionReference { name, arguments: None });
        }
        self.advance();
        let arguments = if self.at_symbol(b')') { Vec::new() } else { self.list(Self::parameter)? };
        self.expect_symbol(b')')?;
        Ok(FunctionReference { name, arguments: Some(arguments) })
    }

    /// A parameter without default (PostgreSQL's func_arg).
    pub(super) fn parameter(&mut self) -> Result<FunctionParameter> {
        let start = self.start();
        let mut mode = self.optional_parameter_mode();
        let mut name = None;
        if self.begins_parameter_name() {
            name = Some(self.type_or_function_name()?);
            if mode == ParameterMode::Default {
                mode = self.optional_parameter_mode();
            }
        }
        let type_name = self.function_type()?;
        Ok(FunctionParameter { span: self.span_from(start), mode, name, type_name, default: None })
    }

    fn optional_parameter_mode(&mut self) -> ParameterMode {
        if self.accept_keyword(Keyword::In) {
            return if self.accept_keyword(Keyword::Out) { ParameterMode::InOut } else { ParameterMode::In };
        }
        for (keyword, mode) in [
            (Keyword::Out, ParameterMode::Out),
            (Keyword::Inout, ParameterMode::InOut),
            (Keyword::Variadic, ParameterMode::Variadic),
        ] {
            if self.accept_keyword(keyword) {
                return mode;
            }
        }
        ParameterMode::Default
    }

    /// Whether a name stands here before a type or a mode, and not a type alone.
    fn begins_parameter_name(&mut self) -> bool {
        if !Self::is_type_or_function_name(self.kind()) {
            return false;
        }
        // DOUBLE PRECISION is a type, and PRECISION is none.
        let next = self.peek(1);
        if self.at_keyword(Keyword::Double) && next == TokenKind::Keyword(Keyword::Precision) {
            return false;
        }
        match next {
            TokenKind::Identifier | TokenKind::QuotedIdentifier | TokenKind::UnicodeIdentifier => true,
            TokenKind::Keyword(
                Keyword::In | Keyword::Out | Keyword::Inout | Keyword::Variadic | Keyword::Setof,
            ) => true,
            // `f(a ARRAY)` is an array of a.
            TokenKind::Keyword(Keyword::Array) => false,
            TokenKind::Keyword(keyword) => {
                keyword.is_type_or_function_name() || Self::begins_system_type(next)
            }
            _ => false,
        }
    }

    /// A type, or that of a column (PostgreSQL's func_type).
    pub(super) fn function_type(&mut self) -> Result<OptionValue> {
        let type_name = self.type_name()?;
        if let BaseType::Named { name, modifiers } = &type_name.base
            && self.at_symbol(b'%')
            && modifiers.is_empty()
            && type_name.bounds.is_empty()
            && !name.qualifiers.is_empty()
        {
            self.advance();
            self.expect_keyword(Keyword::Type)?;
            return Ok(OptionValue::TypeOf { is_set: type_name.is_set, name: name.clone() });
        }
        Ok(OptionValue::Type(type_name))
    }

    /// The parameters of an aggregate in parentheses (PostgreSQL's aggr_args).
    pub(super) fn aggregate_parameters(&mut self) -> Result<AggregateParameters> {
        self.expect_symbol(b'(')?;
        if self.accept_symbol(b'*') {
            self.expect_symbol(b')')?;
            return Ok(AggregateParameters::Star);
        }
        let (mut direct, mut ordered) = (Vec::new(), Vec::new());
        if !self.at_keyword(Keyword::Order) {
            direct = self.list(Self::aggregate_parameter)?;
        }
        if self.accept_keyword(Keyword::Order) {
            self.expect_keyword(Keyword::By)?;
            ordered = self.list(Self::aggregate_parameter)?;
        }
        self.expect_symbol(b')')?;
        if let Some(last) = direct.last()
            && last.mode == ParameterMode::Variadic
            && !ordered.is_empty()
        {
            // A variadic direct argument stands for all: the aggregated one must repeat it.
            let same = ordered.len() == 1
                && ordered[0].mode == ParameterMode::Variadic
                && ordered[0].type_name == last.type_name;
            if !same {
                let message = "an ordered-set aggregate with a VARIADIC direct argument must have one VARIADIC \
                               aggregated argument of the same data type";
                let at = ordered[0].span.start;
                return self.error(SqlState::FEATURE_NOT_SUPPORTED, message, at);
            }
        }
        Ok(AggregateParameters::List { direct, ordered })
    }

    fn aggregate_parameter(&mut self) -> Result<FunctionParameter> {
        let parameter = self.parameter()?;
        if matches!(parameter.mode, ParameterMode::Out | ParameterMode::InOut) {
            let at = parameter.span.start;
            let message = "aggregates cannot have output arguments";
            return self.error(SqlState::FEATURE_NOT_SUPPORTED, message, at);
        }
        Ok(parameter)
    }

    /// An operator with its operands (PostgreSQL's operator_with_argtypes).
    pub(super) fn operator_reference(&mut self) -> Result<OperatorReference> {
        let operator = self.any_operator()?;
        self.operator_reference_from(operator)
    }

    /// The same behind the operator.
    pub(super) fn operator_reference_from(
        &mut self,
        operator: crate::tree::Operator,
    ) -> Result<OperatorReference> {
        self.expect_symbol(b'(')?;
        if self.accept_keyword(Keyword::None) {
            self.expect_symbol(b',')?;
            let right = Some(self.type_name()?);
            self.expect_symbol(b')')?;
            return Ok(OperatorReference { operator, left: None, right });
        }
        let left = Some(self.type_name()?);
        let at = self.start();
        if self.accept_symbol(b')') {
            let hint = "Use NONE to denote the missing argument of a unary operator.";
            return self.error_with_hint(SqlState::SYNTAX_ERROR, "missing argument", at, hint);
        }
        self.expect_symbol(b',')?;
        let right = if self.accept_keyword(Keyword::None) { None } else { Some(self.type_name()?) };
        self.expect_symbol(b')')?;
        Ok(OperatorReference { operator, left, right })
    }

    // DROP.

    /// DROP of what has a tree: at the kind of the object.
    pub(super) fn drop_objects(&mut self) -> Result<Statement> {
        use ObjectType::*;
        if matches!(self.keyword(), Some(Keyword::Role | Keyword::User | Keyword::Group)) {
            self.advance();
            let if_exists = self.optional_if_exists();
            let objects = self.list(|parser| Ok(ObjectReference::Role(parser.role()?)))?;
            return Ok(drop_statement(Role, false, if_exists, objects, false));
        }
        let refused = [Keyword::Column, Keyword::Constraint, Keyword::Large, Keyword::Database];
        let Some(object_type) = self.optional_object_type(&refused)? else { return self.unexpected() };
        let concurrently = object_type == Index && self.accept_keyword(Keyword::Concurrently);
        let if_exists = if matches!(object_type, Cast | Transform) {
            self.expect_if_exists()?
        } else {
            self.optional_if_exists()
        };
        let is_alone = matches!(
            object_type,
            Policy
                | Rule
                | Trigger
                | Cast
                | Transform
                | OperatorClass
                | OperatorFamily
                | Subscription
                | Tablespace
        );
        let objects = if is_alone {
            vec![self.object_reference(object_type)?]
        } else {
            self.list(|parser| parser.object_reference(object_type))?
        };
        let cascade = object_type != Tablespace && self.optional_cascade();
        Ok(drop_statement(object_type, concurrently, if_exists, objects, cascade))
    }

    // COMMENT.

    /// The object of COMMENT ON or SECURITY LABEL ON, behind ON.
    pub(super) fn commented_object(&mut self, is_label: bool) -> Result<Object> {
        use ObjectType::*;
        // These have no labels.
        let unlabelled = [
            Keyword::Constraint,
            Keyword::Policy,
            Keyword::Rule,
            Keyword::Trigger,
            Keyword::Operator,
            Keyword::Cast,
            Keyword::Transform,
        ];
        let refused: &[Keyword] = if is_label { &unlabelled } else { &[] };
        let Some(mut object_type) = self.optional_object_type(refused)? else { return self.unexpected() };
        if object_type == Constraint {
            let name = self.name()?;
            self.expect_keyword(Keyword::On)?;
            // DOMAIN may be a relation as well.
            if self.at_keyword(Keyword::Domain) && Self::is_name(self.peek(1)) {
                self.advance();
                object_type = DomainConstraint;
            }
            let name = ObjectReference::On { name, relation: self.any_name()? };
            return Ok(Object { object_type, name });
        }
        Ok(Object { object_type, name: self.object_reference(object_type)? })
    }

    pub(super) fn comment(&mut self) -> Result<Statement> {
        self.expect_keywords(&[Keyword::Comment, Keyword::On])?;
        let object = self.commented_object(false)?;
        self.expect_keyword(Keyword::Is)?;
        let text = if self.accept_keyword(Keyword::Null) { None } else { Some(self.string()?) };
        Ok(Statement::Comment(Box::new(Comment { object, text })))
    }
}

fn drop_statement(
    object_type: ObjectType,
    concurrently: bool,
    if_exists: bool,
    objects: Vec<ObjectReference>,
    cascade: bool,
) -> Statement {
    Statement::Drop(Box::new(DropObjects { object_type, concurrently, if_exists, objects, cascade }))
}
