//! GRANT, REVOKE, ALTER DEFAULT PRIVILEGES, roles.

use super::Parser;
use super::record::Recorder;
use crate::keyword::Keyword;
use crate::token::TokenKind;
use crate::tree::{Name, ObjectType, Part, Setting, Statement};
use firn_base::{Result, SqlState};

impl Parser<'_> {
    pub(super) fn grant(&mut self) -> Result<Statement> {
        self.record("GRANT", &[], |r| {
            r.word(Keyword::Grant)?;
            r.grant_rest(false)
        })
    }

    /// An element of a schema, which grants privileges but no roles.
    pub(super) fn grant_in_schema(&mut self) -> Result<Statement> {
        self.record("GRANT", &[], |r| {
            r.word(Keyword::Grant)?;
            r.privileges()?;
            r.grant_on(false)
        })
    }

    pub(super) fn revoke(&mut self) -> Result<Statement> {
        self.record("REVOKE", &[], |r| {
            r.word(Keyword::Revoke)?;
            r.revoke_rest(false)
        })
    }

    /// Behind ALTER, at DEFAULT.
    pub(super) fn alter_default_privileges(&mut self) -> Result<Statement> {
        self.record("ALTER DEFAULT PRIVILEGES", &[Keyword::Alter], |r| {
            r.words(&[Keyword::Default, Keyword::Privileges])?;
            loop {
                if r.optional_words(&[Keyword::In, Keyword::Schema])? {
                    r.names()?;
                } else if r.optional(Keyword::For) {
                    if r.parser.accept_keyword(Keyword::User) {
                        r.push(Part::Word(Keyword::Role));
                    } else {
                        r.word(Keyword::Role)?;
                    }
                    r.roles()?;
                } else if r.optional(Keyword::Grant) {
                    return r.grant_rest(true);
                } else {
                    r.word(Keyword::Revoke)?;
                    return r.revoke_rest(true);
                }
            }
        })
    }

    /// Behind CREATE, at ROLE, USER or GROUP.
    pub(super) fn create_role(&mut self) -> Result<Statement> {
        self.record("CREATE ROLE", &[Keyword::Create], |r| {
            r.one_of(&[Keyword::Role, Keyword::User, Keyword::Group])?;
            r.role_name()?;
            r.noise(Keyword::With);
            r.role_options(true)
        })
    }

    /// Behind ALTER, at ROLE, USER or GROUP.
    pub(super) fn alter_role(&mut self) -> Result<Statement> {
        self.record("ALTER ROLE", &[Keyword::Alter], |r| {
            let kind = match r.parser.keyword() {
                Some(Keyword::Group) => Keyword::Group,
                _ => Keyword::Role,
            };
            r.parser.advance();
            r.push(Part::Word(kind));
            let is_all = kind == Keyword::Role && r.optional(Keyword::All);
            if is_all {
                r.role_settings()?;
                return Ok(());
            }
            let role = r.parser.role()?;
            if r.at(Keyword::Rename) {
                r.parser.check_role_name(&role)?;
                r.push(Part::Role(role));
                r.words(&[Keyword::Rename, Keyword::To])?;
                let new_name = r.parser.role_name()?;
                r.push(Part::Name(new_name));
                return Ok(());
            }
            r.push(Part::Role(role));
            if kind == Keyword::Group {
                r.one_of(&[Keyword::Add, Keyword::Drop])?;
                r.word(Keyword::User)?;
                return r.roles();
            }
            if matches!(r.parser.keyword(), Some(Keyword::In | Keyword::Set | Keyword::Reset)) {
                return r.role_settings();
            }
            r.noise(Keyword::With);
            r.role_options(false)
        })
    }

    /// The old name of a renamed role, which must be one.
    fn check_role_name(&mut self, role: &crate::tree::Role) -> Result<()> {
        use crate::tree::RoleKind::*;
        let message = match &role.kind {
            Name(_) => return Ok(()),
            Public => "role name \"public\" is reserved",
            CurrentRole => "CURRENT_ROLE cannot be used as a role name here",
            CurrentUser => "CURRENT_USER cannot be used as a role name here",
            SessionUser => "SESSION_USER cannot be used as a role name here",
        };
        self.error(SqlState::new("42939"), message, role.span.start)
    }
}

impl Recorder<'_, '_> {
    fn role_settings(&mut self) -> Result<()> {
        if self.optional_words(&[Keyword::In, Keyword::Database])? {
            self.name()?;
        }
        self.set_or_reset(true)
    }

    /// SET or RESET of a role, a database or a function.
    pub(super) fn set_or_reset(&mut self, may_be_modes: bool) -> Result<()> {
        if self.at(Keyword::Reset) {
            let reset = self.parser.reset_rest()?;
            self.push(Part::Word(Keyword::Reset));
            match reset.name {
                None => self.push(Part::Word(Keyword::All)),
                Some(name) => self.push(Part::ObjectName(Box::new(name))),
            }
            return Ok(());
        }
        self.word(Keyword::Set)?;
        let setting: Setting = self.parser.setting(may_be_modes)?;
        self.push(Part::Set(Box::new(setting)));
        Ok(())
    }

    fn role_options(&mut self, is_new: bool) -> Result<()> {
        loop {
            let at = self.parser.start();
            match self.parser.keyword() {
                Some(Keyword::Password) => {
                    self.word(Keyword::Password)?;
                    if !self.optional(Keyword::Null) {
                        self.string()?;
                    }
                }
                Some(Keyword::Encrypted) => {
                    // Nothing else is stored.
                    self.parser.advance();
                    self.word(Keyword::Password)?;
                    self.string()?;
                }
                Some(Keyword::Unencrypted) => {
                    self.parser.advance();
                    self.word(Keyword::Password)?;
                    self.string()?;
                    let hint = "Remove UNENCRYPTED to store the password in encrypted form instead.";
                    let message = "UNENCRYPTED PASSWORD is no longer supported";
                    return self.parser.error_with_hint(SqlState::FEATURE_NOT_SUPPORTED, message, at, hint);
                }
                Some(Keyword::Inherit) => self.word(Keyword::Inherit)?,
                Some(Keyword::Connection) => {
                    self.words(&[Keyword::Connection, Keyword::Limit])?;
                    self.signed_integer()?;
                }
                Some(Keyword::Valid) => {
                    self.words(&[Keyword::Valid, Keyword::Until])?;
                    self.string()?;
                }
                Some(Keyword::User) => {
                    self.word(Keyword::User)?;
                    self.roles()?;
                }
                Some(Keyword::Sysid) if is_new => {
                    self.word(Keyword::Sysid)?;
                    self.integer()?;
                }
                Some(keyword @ (Keyword::Admin | Keyword::Role)) if is_new => {
                    self.word(keyword)?;
                    self.roles()?;
                }
                Some(Keyword::In) if is_new => {
                    self.word(Keyword::In)?;
                    if self.parser.accept_keyword(Keyword::Group) {
                        self.push(Part::Word(Keyword::Role));
                    } else {
                        self.word(Keyword::Role)?;
                    }
                    self.roles()?;
                }
                None if matches!(
                    self.parser.kind(),
                    TokenKind::Identifier | TokenKind::QuotedIdentifier | TokenKind::UnicodeIdentifier
                ) =>
                {
                    let name = self.parser.take_name();
                    let is_known = matches!(
                        &*name.text,
                        "superuser"
                            | "nosuperuser"
                            | "createrole"
                            | "nocreaterole"
                            | "replication"
                            | "noreplication"
                            | "createdb"
                            | "nocreatedb"
                            | "login"
                            | "nologin"
                            | "bypassrls"
                            | "nobypassrls"
                            | "noinherit"
                    );
                    if !is_known {
                        let message = format!("unrecognized role option \"{}\"", name.text);
                        return self.parser.error(SqlState::SYNTAX_ERROR, message, at);
                    }
                    self.push(Part::Name(name));
                }
                _ => return Ok(()),
            }
        }
    }

    /// Privileges or roles. Whether they can be roles.
    fn privileges(&mut self) -> Result<bool> {
        if self.optional(Keyword::All) {
            self.noise(Keyword::Privileges);
            self.optional_names()?;
            return Ok(false);
        }
        self.list(|r| {
            match r.parser.keyword() {
                Some(keyword @ (Keyword::Select | Keyword::References | Keyword::Create)) => {
                    r.word(keyword)?;
                }
                Some(Keyword::Alter) => return r.words(&[Keyword::Alter, Keyword::System]),
                _ => {
                    // The words above are the same in quotes.
                    let name: Name = r.parser.name()?;
                    let word = match &*name.text {
                        "select" => Some(Keyword::Select),
                        "references" => Some(Keyword::References),
                        "create" => Some(Keyword::Create),
                        _ => None,
                    };
                    r.push(word.map_or(Part::Name(name), Part::Word));
                }
            }
            r.optional_names()
        })?;
        Ok(true)
    }

    fn grant_rest(&mut self, is_default: bool) -> Result<()> {
        let may_be_roles = self.privileges()? && !is_default;
        if !(may_be_roles && self.at(Keyword::To)) {
            return self.grant_on(is_default);
        }
        self.word(Keyword::To)?;
        self.roles()?;
        if self.optional(Keyword::With) {
            self.words(&[Keyword::Admin, Keyword::Option])?;
        }
        self.granted_by(is_default)
    }

    /// Behind the privileges of a GRANT.
    fn grant_on(&mut self, is_default: bool) -> Result<()> {
        self.target(is_default)?;
        self.word(Keyword::To)?;
        self.grantees()?;
        if self.optional(Keyword::With) {
            self.words(&[Keyword::Grant, Keyword::Option])?;
        }
        self.granted_by(is_default)
    }

    fn granted_by(&mut self, is_default: bool) -> Result<()> {
        if !is_default && self.optional_words(&[Keyword::Granted, Keyword::By])? {
            self.role()
        } else {
            Ok(())
        }
    }

    fn revoke_rest(&mut self, is_default: bool) -> Result<()> {
        let (mut is_grant, mut is_admin) = (false, false);
        if self.at(Keyword::Grant) {
            is_grant = true;
            self.words(&[Keyword::Grant, Keyword::Option, Keyword::For])?;
        } else if !is_default && self.at(Keyword::Admin) && self.next_is(Keyword::Option) {
            is_admin = true;
            self.words(&[Keyword::Admin, Keyword::Option, Keyword::For])?;
        }
        let may_be_roles =
            if is_admin && self.at(Keyword::All) { return self.unexpected() } else { self.privileges()? };
        let is_role = is_admin || (may_be_roles && !is_grant && !is_default && self.at(Keyword::From));
        if !is_role {
            self.target(is_default)?;
        }
        self.word(Keyword::From)?;
        if is_role {
            self.roles()?;
        } else {
            self.grantees()?;
        }
        self.granted_by(is_default)?;
        self.cascade();
        Ok(())
    }

    fn grantees(&mut self) -> Result<()> {
        self.list(|r| {
            // GROUP is reserved.
            r.noise(Keyword::Group);
            r.role()
        })
    }

    /// ON and what the privileges are for.
    fn target(&mut self, is_default: bool) -> Result<()> {
        self.word(Keyword::On)?;
        if is_default {
            self.one_of(&[
                Keyword::Tables,
                Keyword::Functions,
                Keyword::Routines,
                Keyword::Sequences,
                Keyword::Types,
                Keyword::Schemas,
            ])?;
            return Ok(());
        }
        if self.optional(Keyword::All) {
            self.one_of(&[
                Keyword::Tables,
                Keyword::Sequences,
                Keyword::Functions,
                Keyword::Procedures,
                Keyword::Routines,
            ])?;
            self.words(&[Keyword::In, Keyword::Schema])?;
            return self.names();
        }
        if self.optional(Keyword::Foreign) {
            if self.optional_words(&[Keyword::Data, Keyword::Wrapper])? {
                return self.names();
            }
            self.word(Keyword::Server)?;
            return self.names();
        }
        // All other words may be names of tables, if none follows.
        let next = self.parser.peek(1);
        let has_name = Parser::is_name(next) || Parser::is_type_or_function_name(next);
        match self.parser.keyword() {
            Some(keyword @ (Keyword::Function | Keyword::Procedure | Keyword::Routine)) if has_name => {
                self.word(keyword)?;
                self.list(Self::function)
            }
            Some(
                keyword @ (Keyword::Database | Keyword::Language | Keyword::Schema | Keyword::Tablespace),
            ) if has_name => {
                self.word(keyword)?;
                self.names()
            }
            Some(keyword @ (Keyword::Domain | Keyword::Type)) if has_name => {
                self.word(keyword)?;
                self.list(Self::any_name)
            }
            Some(Keyword::Large) if next == TokenKind::Keyword(Keyword::Object) => {
                self.words(&[Keyword::Large, Keyword::Object])?;
                self.list(|r| r.reference(ObjectType::LargeObject))
            }
            Some(Keyword::Parameter) if has_name => {
                self.word(Keyword::Parameter)?;
                self.list(|r| {
                    let name = r.parser.setting_name()?;
                    r.push(Part::ObjectName(Box::new(name)));
                    Ok(())
                })
            }
            Some(Keyword::Sequence) if has_name => {
                self.word(Keyword::Sequence)?;
                self.list(Self::relation_name)
            }
            _ => {
                self.noise(Keyword::Table);
                self.push(Part::Word(Keyword::Table));
                self.list(Self::relation_name)
            }
        }
    }
}
