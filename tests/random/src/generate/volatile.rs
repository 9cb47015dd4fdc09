//! Queries of volatile functions whose rows do not depend on what the functions give: what does is improbable beyond 2^-60.

use super::Generator;
use crate::schema::TABLES;

impl Generator<'_> {
    /// A statement.
    pub(super) fn volatile(&mut self) -> String {
        let keyed: Vec<&str> = TABLES
            .iter()
            .filter(|table| table.columns[0].0 == "id" && table.name != "e")
            .map(|table| table.name)
            .collect();
        let table = keyed[self.choices.below(keyed.len())];
        let other = keyed[self.choices.below(keyed.len())];
        match self.choices.below(5) {
            // Each of 64 pairs is asked by itself.
            0 => format!(
                "SELECT z.id, z.n BETWEEN 1 AND 63 FROM (SELECT x.id, count(*) AS n FROM {table} AS x CROSS JOIN generate_series(1, 64) AS g(i) \
                 WHERE random() < 0.5 GROUP BY x.id) AS z"
            ),
            1 => format!(
                "SELECT z.id, z.n BETWEEN 1 AND 127 FROM (SELECT x.id, count(*) AS n FROM {table} AS x JOIN generate_series(1, 128) AS g(i) \
                 ON x.id > 0 AND random() < 0.5 GROUP BY x.id) AS z"
            ),
            // A common table is evaluated once.
            2 => format!(
                "WITH c AS (SELECT x.id, random() AS r FROM {table} AS x) \
                 SELECT c.id, d.id FROM c LEFT JOIN c AS d ON c.r = d.r"
            ),
            3 => format!(
                "WITH c AS MATERIALIZED (SELECT x.id, random() AS r FROM {table} AS x) \
                 SELECT x.id, (SELECT count(*) FROM c WHERE c.r = d.r) FROM c AS d JOIN {other} AS x ON x.id = d.id"
            ),
            // A column is computed once.
            _ => format!(
                "SELECT z.id, z.r = z.r, z.r BETWEEN 0 AND 1 FROM (SELECT x.id, random() AS r FROM {table} AS x OFFSET 0) AS z \
                 WHERE z.r >= 0"
            ),
        }
    }
}
