//! What is known of the parameters of a statement.

use datafusion::arrow::datatypes::FieldRef;
use firn_base::sync::{Arc, Mutex};
use firn_base::{Error, ParameterType, Result, SqlState, SqlType};

/// Types of `$1`, `$2`, …, as declared or as learnt so far. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Parameters(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    types: Vec<Option<ParameterType>>,
    /// Which of them the statement mentions.
    mentioned: Vec<bool>,
    /// Whether something was learnt since this was last asked.
    news: bool,
}

impl Parameters {
    /// Takes the types that the client declared.
    pub fn declare(&self, types: &[Option<ParameterType>]) {
        self.0.lock().types = types.to_vec();
    }

    /// Learns that `id` (`$1`, …) exists, and its type if it had none.
    pub fn learn(&self, id: &str, ty: Option<ParameterType>) {
        let Some(position) = position(id) else { return };
        let mut state = self.0.lock();
        if state.types.len() <= position {
            state.types.resize(position + 1, None);
        }
        if state.mentioned.len() <= position {
            state.mentioned.resize(position + 1, false);
        }
        state.mentioned[position] = true;
        if state.types[position].is_none() && ty.is_some() {
            state.types[position] = ty.map(unlimited);
            state.news = true;
        }
    }

    /// The type of `id`, if known.
    pub fn get(&self, id: &str) -> Option<ParameterType> {
        self.0.lock().types.get(position(id)?).copied().flatten()
    }

    /// How many are known of.
    pub fn count(&self) -> usize {
        self.0.lock().types.len()
    }

    /// Whether something was learnt since the last call.
    pub fn take_news(&self) -> bool {
        std::mem::take(&mut self.0.lock().news)
    }

    /// Takes every parameter that is mentioned where nothing tells its type for a text, as PostgreSQL
    /// does in a select list. Whether there was one.
    pub fn default_to_text(&self) -> bool {
        let state = &mut *self.0.lock();
        let mut found = false;
        for (ty, mentioned) in state.types.iter_mut().zip(&state.mentioned) {
            if ty.is_none() && *mentioned {
                *ty = Some(ParameterType::Single(SqlType::Text));
                found = true;
            }
        }
        found
    }

    /// What DataFusion's planner wants to know of them.
    pub fn fields(&self) -> Vec<Option<FieldRef>> {
        let field = |(number, ty): (usize, &Option<ParameterType>)| {
            ty.map(|ty| firn_exec::types::parameter_field(&format!("${}", number + 1), ty))
        };
        self.0.lock().types.iter().enumerate().map(field).collect()
    }

    /// All types; 42P18 if one is not known.
    pub fn types(&self) -> Result<Vec<ParameterType>> {
        let known = |(number, ty): (usize, &Option<ParameterType>)| {
            ty.ok_or_else(|| {
                Error::new(
                    SqlState::INDETERMINATE_DATATYPE,
                    format!("could not determine data type of parameter ${}", number + 1),
                )
                .with_hint("Cast the parameter, as in $1::integer.")
            })
        };
        self.0.lock().types.iter().enumerate().map(known).collect()
    }
}

/// The type of a parameter beside something of type `ty`: it keeps what the client sends, all
/// characters and decimals.
fn unlimited(ty: ParameterType) -> ParameterType {
    match ty {
        ParameterType::Single(SqlType::Numeric { .. }) => ParameterType::Single(SqlType::NUMERIC),
        ParameterType::Single(SqlType::Varchar(_)) => ParameterType::Single(SqlType::Text),
        other => other,
    }
}

fn position(id: &str) -> Option<usize> {
    // Parameter numbers are 16 bits wide in the protocol.
    id.strip_prefix('$')?.parse::<u16>().ok().map(usize::from)?.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_thing_learnt_about_a_parameter_stands() {
        let parameters = Parameters::default();
        parameters.learn("$2", Some(SqlType::Integer.into()));
        assert!(parameters.take_news());
        parameters.learn("$2", Some(SqlType::Text.into()));
        assert!(!parameters.take_news());
        assert_eq!(parameters.get("$2"), Some(SqlType::Integer.into()));
        assert_eq!(parameters.types().unwrap_err().state(), SqlState::INDETERMINATE_DATATYPE);
        parameters.learn("$1", Some(SqlType::Text.into()));
        assert_eq!(parameters.types().unwrap(), [SqlType::Text.into(), SqlType::Integer.into()]);
    }
}
