//! Prepared statements.

use crate::Column;
use firn_base::ParameterType;
use firn_base::sync::Arc;
use firn_sql::Plan;
use firn_sql::activity::QueryText;
use firn_sql::statement::{Parsed, Statement as Parse};

/// A prepared statement, cheap to clone, of use to every connection of its database. It stays
/// valid when the catalog changes: it is planned anew when run, and fails with 0A000 if its result
/// columns came out different.
#[derive(Clone)]
pub struct Statement {
    pub(crate) prepared: Arc<Prepared>,
}

/// The text of a statement apart from it: others are shown it for as long as its session runs no other one, and
/// a plan would hold its tables all the while.
pub(crate) struct Text(pub String);

pub(crate) struct Prepared {
    pub text: Arc<Text>,
    /// `None` for an empty text.
    pub parsed: Option<Parsed>,
    /// The parameter types that were declared.
    pub declared: Box<[Option<ParameterType>]>,
    pub plan: Arc<Plan>,
    /// The columns of statements that yield rows without a plan: SHOW, EXPLAIN, FETCH, EXECUTE.
    pub columns: Option<Arc<[Column]>>,
}

impl QueryText for Text {
    fn text(&self) -> &str {
        &self.0
    }
}

impl Statement {
    /// The types of `$1`, `$2`, …
    pub fn parameters(&self) -> &[ParameterType] {
        &self.prepared.plan.parameters
    }

    /// Whether it begins or ends transactions, or says something about them: such statements do not run in one
    /// that begins for their sake.
    pub fn controls_transactions(&self) -> bool {
        let parsed = self.prepared.parsed.as_ref();
        parsed.is_none_or(|parsed| matches!(parsed.statement, Parse::Transaction(_)))
    }

    /// Whether it is a query: what it does lies in the rows that it yields, so that it may as well be run when
    /// somebody comes to draw them.
    pub fn is_query(&self) -> bool {
        let parsed = self.prepared.parsed.as_ref();
        parsed.is_some_and(|parsed| matches!(parsed.statement, Parse::Query(_)))
    }

    /// The columns it yields; `None` if it yields no rows.
    pub fn columns(&self) -> Option<&Arc<[Column]>> {
        self.prepared.plan.columns.as_ref().or(self.prepared.columns.as_ref())
    }
}
