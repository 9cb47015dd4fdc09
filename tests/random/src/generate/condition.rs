//! Conditions: comparisons, tests, and predicates with sub-queries.

use super::Generator;
use super::expression::paren;
use crate::schema::Ty;

const RULE: u32 = 150;

/// How often values of each of [`Ty::ALL`] are compared.
const COMPARED: [usize; 20] = [24, 12, 10, 10, 8, 3, 5, 5, 3, 1, 3, 3, 3, 4, 4, 4, 3, 4, 3, 3];

impl Generator<'_> {
    /// A condition.
    pub(super) fn condition(&mut self, depth: usize) -> String {
        self.rule(RULE, |generator| match generator.choices.weighted(&[34, 8, 10, 12, 4, 5, 5, 16, 6]) {
            0 => generator.comparison(depth),
            1 => generator.column(Ty::Bool).map_or_else(|| "true".to_owned(), |atom| atom.text),
            2 => {
                let ty = generator.any_type();
                let argument = paren(generator.expression(ty, depth));
                let test = generator.choices.pick(&["IS NOT NULL", "IS NULL"]);
                format!("{argument} {test}")
            }
            3 if depth > 0 => {
                let word = generator.choices.pick(&["OR", "AND"]);
                let (left, right) = (generator.condition(depth - 1), generator.condition(depth - 1));
                format!("({left} {word} {right})")
            }
            4 if depth > 0 => format!("NOT {}", paren(generator.condition(depth - 1))),
            5 => {
                let ty = generator.compared_type();
                let argument = generator.expression(ty, depth.saturating_sub(1));
                let count = 1 + generator.choices.below(3);
                let values: Vec<String> = (0..count).map(|_| generator.expression(ty, 0)).collect();
                let word = generator.choices.pick(&["IN", "NOT IN"]);
                format!("{argument} {word} ({})", values.join(", "))
            }
            6 => generator.other_test(depth.saturating_sub(1)),
            7 if generator.may_nest() => generator.sub_query_condition(depth.saturating_sub(1)),
            _ => generator.comparison(0),
        })
    }

    fn compared_type(&mut self) -> Ty {
        Ty::ALL[self.choices.weighted(&COMPARED)]
    }

    fn any_type(&mut self) -> Ty {
        Ty::ALL[self.choices.below(Ty::ALL.len())]
    }

    /// Two values of one type, or of two comparable types.
    fn compared(&mut self, depth: usize) -> (String, String) {
        let ty = self.compared_type();
        let other = match ty {
            Ty::Int | Ty::Big if self.choices.chance(30) => {
                [Ty::Big, Ty::Num, Ty::Double, Ty::Small, Ty::Real, Ty::Fixed][self.choices.below(6)]
            }
            Ty::Small | Ty::Fixed if self.choices.chance(30) => {
                [Ty::Int, Ty::Big, Ty::Num, Ty::Double][self.choices.below(4)]
            }
            Ty::Real if self.choices.chance(30) => [Ty::Double, Ty::Num][self.choices.below(2)],
            Ty::Date if self.choices.chance(30) => [Ty::Stamp, Ty::Zoned][self.choices.below(2)],
            Ty::Stamp if self.choices.chance(30) => Ty::Zoned,
            Ty::Text if self.choices.chance(20) => [Ty::Vary, Ty::Char][self.choices.below(2)],
            Ty::Vary | Ty::Char if self.choices.chance(30) => Ty::Text,
            ty => ty,
        };
        let left = match self.own_column(ty) {
            Some(column) if self.choices.chance(60) => column,
            _ => self.expression(ty, depth),
        };
        (left, self.expression(other, depth))
    }

    fn comparison(&mut self, depth: usize) -> String {
        let depth = depth.saturating_sub(1);
        if self.choices.chance(6) {
            // The parameter has the type of the other operand.
            let ty = self.compared_type();
            let left = self.expression(ty, depth);
            let operator = self.choices.pick(&["=", "<=", "<>", ">", "IS DISTINCT FROM"]);
            return format!("{left} {operator} {}", self.bare_parameter(ty));
        }
        let (left, right) = self.compared(depth);
        let operator = self.choices.pick(&[
            "=",
            "<=",
            "<>",
            ">=",
            "<",
            ">",
            "=",
            "IS DISTINCT FROM",
            "IS NOT DISTINCT FROM",
        ]);
        format!("{left} {operator} {right}")
    }

    fn other_test(&mut self, depth: usize) -> String {
        match self.choices.below(9) {
            0 => {
                let ty = self.compared_type();
                let [one, two, three] = [0; 3].map(|_| self.expression(ty, depth));
                let word = self.choices.pick(&["BETWEEN", "NOT BETWEEN", "BETWEEN SYMMETRIC"]);
                format!("({one} {word} {two} AND {three})")
            }
            1 => {
                let argument = self.expression(Ty::Text, depth);
                let pattern = self.choices.pick(&["'a%'", "'%b'", "'_'", "'%'"]);
                let word = self.choices.pick(&["LIKE", "NOT LIKE", "ILIKE"]);
                format!("{argument} {word} {pattern}")
            }
            2 => {
                let argument = paren(self.condition(depth));
                // `NULL = ANY ('{}')` is false; PostgreSQL 15 makes an outer join an inner one by a test that takes it for NULL.
                let tests: &[&str] = match argument.contains("ANY (") {
                    true => &["IS TRUE", "IS NOT TRUE", "IS UNKNOWN"],
                    false => &["IS TRUE", "IS NOT TRUE", "IS FALSE", "IS UNKNOWN", "IS NOT UNKNOWN"],
                };
                format!("{argument} {}", self.choices.pick(tests))
            }
            3 => {
                let (argument, array) = (self.expression(Ty::Int, depth), self.expression(Ty::Ints, depth));
                let word = self.choices.pick(&["= ANY", "<> ALL", "> ANY", "<= ALL"]);
                format!("{argument} {word} ({array})")
            }
            4 => {
                let (left, right) = (self.expression(Ty::Ints, depth), self.expression(Ty::Ints, depth));
                let operator = self.choices.pick(&["@>", "<@", "&&"]);
                format!("{left} {operator} {right}")
            }
            5 => {
                let [one, two] = [0; 2].map(|_| self.expression(Ty::Int, depth));
                let [three, four] = [0; 2].map(|_| self.expression(Ty::Text, depth));
                let operator = self.choices.pick(&["=", "<>", "<", ">=", "IS DISTINCT FROM"]);
                format!("({one}, {three}) {operator} ({two}, {four})")
            }
            6 => {
                let [one, two] = [0; 2].map(|_| self.expression(Ty::Int, depth));
                format!("({one}, {two}) IN ((1, 1), (2, {}))", self.expression(Ty::Int, 0))
            }
            7 => format!(
                "ROW({}, {}) IS NULL",
                self.expression(Ty::Int, depth),
                self.expression(Ty::Text, depth)
            ),
            _ => {
                let (argument, array) = (self.expression(Ty::Text, depth), self.expression(Ty::Texts, depth));
                format!("{argument} = ANY ({array})")
            }
        }
    }

    pub(super) fn sub_query_condition(&mut self, depth: usize) -> String {
        let ty = self.compared_type();
        match self.choices.below(8) {
            0 | 1 => {
                let word = self.choices.pick(&["EXISTS", "NOT EXISTS"]);
                let query = match self.choices.chance(50) {
                    true => self.sub_query(&[ty], false).text,
                    false => self.sub_query(&[], false).text,
                };
                format!("{word} ({query})")
            }
            2 | 3 => {
                let argument = self.expression(ty, depth);
                let word = self.choices.pick(&["IN", "NOT IN"]);
                format!("{argument} {word} ({})", self.sub_query(&[ty], false).text)
            }
            4 => {
                let argument = self.expression(ty, depth);
                let operator = self.choices.pick(&["=", "<", ">=", "<>"]);
                let word = self.choices.pick(&["ANY", "ALL", "SOME"]);
                format!("{argument} {operator} {word} ({})", self.sub_query(&[ty], false).text)
            }
            5 => {
                let argument = self.expression(ty, depth);
                let operator = self.choices.pick(&["=", "<", ">=", "<>", "IS DISTINCT FROM"]);
                format!("{argument} {operator} {}", self.scalar_sub_query(ty))
            }
            6 => {
                let (one, two) = (self.expression(ty, depth), self.expression(Ty::Int, depth));
                let word = self.choices.pick(&["IN", "NOT IN"]);
                format!("({one}, {two}) {word} ({})", self.sub_query(&[ty, Ty::Int], false).text)
            }
            _ => {
                let (one, two) = (self.expression(ty, depth), self.expression(Ty::Int, depth));
                let operator = self.choices.pick(&["=", "<", "<>"]);
                let word = self.choices.pick(&["", "ANY ", "ALL "]);
                let query = match word {
                    "" => self.sub_query(&[ty, Ty::Int], true).text,
                    _ if operator == "<" => {
                        return format!(
                            "({one}, {two}) < ANY ({})",
                            self.sub_query(&[ty, Ty::Int], false).text
                        );
                    }
                    _ => self.sub_query(&[ty, Ty::Int], false).text,
                };
                format!("({one}, {two}) {operator} {word}({query})")
            }
        }
    }
}
