//! PostgreSQL 15's keywords: how each may serve as a name, and how a word is found among them.
//!
//! Invariant: the list is in alphabetical order and all lower case. A word is looked up by a hash table
//! that the compiler fills.

/// Where a keyword may stand as a name without quotes (PostgreSQL's documentation, appendix C).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// Any name.
    Unreserved,
    /// A column, a table or an alias, but not a function or a type.
    ColumnName,
    /// A function or a type, but not a column or a table.
    TypeOrFunctionName,
    /// No name but a label behind AS.
    Reserved,
}

macro_rules! keywords {
    ($($name:ident $text:literal $category:ident $bare:literal;)*) => {
        /// A keyword of PostgreSQL 15.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Keyword { $(#[doc = $text] $name,)* }

        /// All of them, in the order of the enum.
        pub const KEYWORDS: &[Keyword] = &[$(Keyword::$name,)*];
        const TEXTS: &[&str] = &[$($text,)*];
        const CATEGORIES: &[Category] = &[$(Category::$category,)*];
        const BARE: &[bool] = &[$($bare,)*];
    };
}

impl Keyword {
    /// The keyword in lower case.
    pub fn text(self) -> &'static str {
        TEXTS[self as usize]
    }

    /// Where it may stand as a name.
    pub fn category(self) -> Category {
        CATEGORIES[self as usize]
    }

    /// Whether it may label a column of a select list without AS.
    pub fn is_bare_label(self) -> bool {
        BARE[self as usize]
    }

    /// Whether it may be a column, a table or an alias (PostgreSQL's ColId).
    pub fn is_column_name(self) -> bool {
        matches!(self.category(), Category::Unreserved | Category::ColumnName)
    }

    /// Whether it may be a type or a function (PostgreSQL's type_function_name).
    pub fn is_type_or_function_name(self) -> bool {
        matches!(self.category(), Category::Unreserved | Category::TypeOrFunctionName)
    }

    /// The keyword that a word in lower case is.
    pub fn find(word: &[u8]) -> Option<Keyword> {
        if word.len() > LONGEST || word.len() < 2 {
            return None;
        }
        let mut slot = hash(word) as usize % TABLE_LEN;
        while TABLE[slot] != 0 {
            let found = TABLE[slot] as usize - 1;
            if TEXTS[found].as_bytes() == word {
                return Some(KEYWORDS[found]);
            }
            slot = (slot + 1) % TABLE_LEN;
        }
        None
    }
}

/// The length of the longest keyword.
pub const LONGEST: usize = 17;
const TABLE_LEN: usize = 4096;
/// One more than the index of the keyword in each slot; 0 where there is none. Linear probing.
static TABLE: [u16; TABLE_LEN] = table();

const fn hash(word: &[u8]) -> u32 {
    let mut hash = word.len() as u32;
    let mut i = 0;
    while i < word.len() {
        hash = (hash ^ word[i] as u32).wrapping_mul(0x0100_0193);
        i += 1;
    }
    hash ^ (hash >> 15)
}

const fn table() -> [u16; TABLE_LEN] {
    let mut table = [0; TABLE_LEN];
    let mut i = 0;
    while i < TEXTS.len() {
        assert!(TEXTS[i].len() <= LONGEST);
        let mut slot = hash(TEXTS[i].as_bytes()) as usize % TABLE_LEN;
        while table[slot] != 0 {
            slot = (slot + 1) % TABLE_LEN;
        }
        table[slot] = i as u16 + 1;
        i += 1;
    }
    table
}

keywords! {
    Abort "abort" Unreserved true;
    Absolute "absolute" Unreserved true;
    Access "access" Unreserved true;
    Action "action" Unreserved true;
    Add "add" Unreserved true;
    Admin "admin" Unreserved true;
    After "after" Unreserved true;
    Aggregate "aggregate" Unreserved true;
    All "all" Reserved true;
    Also "also" Unreserved true;
    Alter "alter" Unreserved true;
    Always "always" Unreserved true;
    Analyse "analyse" Reserved true;
    Analyze "analyze" Reserved true;
    And "and" Reserved true;
    Any "any" Reserved true;
    Array "array" Reserved false;
    As "as" Reserved false;
    Asc "asc" Reserved true;
    Asensitive "asensitive" Unreserved true;
    Assertion "assertion" Unreserved true;
    Assignment "assignment" Unreserved true;
    Asymmetric "asymmetric" Reserved true;
    At "at" Unreserved true;
    Atomic "atomic" Unreserved true;
    Attach "attach" Unreserved true;
    Attribute "attribute" Unreserved true;
    Authorization "authorization" TypeOrFunctionName true;
    Backward "backward" Unreserved true;
    Before "before" Unreserved true;
    Begin "begin" Unreserved true;
    Between "between" ColumnName true;
    Bigint "bigint" ColumnName true;
    Binary "binary" TypeOrFunctionName true;
    Bit "bit" ColumnName true;
    Boolean "boolean" ColumnName true;
    Both "both" Reserved true;
    Breadth "breadth" Unreserved true;
    By "by" Unreserved true;
    Cache "cache" Unreserved true;
    Call "call" Unreserved true;
    Called "called" Unreserved true;
    Cascade "cascade" Unreserved true;
    Cascaded "cascaded" Unreserved true;
    Case "case" Reserved true;
    Cast "cast" Reserved true;
    Catalog "catalog" Unreserved true;
    Chain "chain" Unreserved true;
    Char "char" ColumnName false;
    Character "character" ColumnName false;
    Characteristics "characteristics" Unreserved true;
    Check "check" Reserved true;
    Checkpoint "checkpoint" Unreserved true;
    Class "class" Unreserved true;
    Close "close" Unreserved true;
    Cluster "cluster" Unreserved true;
    Coalesce "coalesce" ColumnName true;
    Collate "collate" Reserved true;
    Collation "collation" TypeOrFunctionName true;
    Column "column" Reserved true;
    Columns "columns" Unreserved true;
    Comment "comment" Unreserved true;
    Comments "comments" Unreserved true;
    Commit "commit" Unreserved true;
    Committed "committed" Unreserved true;
    Compression "compression" Unreserved true;
    Concurrently "concurrently" TypeOrFunctionName true;
    Configuration "configuration" Unreserved true;
    Conflict "conflict" Unreserved true;
    Connection "connection" Unreserved true;
    Constraint "constraint" Reserved true;
    Constraints "constraints" Unreserved true;
    Content "content" Unreserved true;
    Continue "continue" Unreserved true;
    Conversion "conversion" Unreserved true;
    Copy "copy" Unreserved true;
    Cost "cost" Unreserved true;
    Create "create" Reserved false;
    Cross "cross" TypeOrFunctionName true;
    Csv "csv" Unreserved true;
    Cube "cube" Unreserved true;
    Current "current" Unreserved true;
    CurrentCatalog "current_catalog" Reserved true;
    CurrentDate "current_date" Reserved true;
    CurrentRole "current_role" Reserved true;
    CurrentSchema "current_schema" TypeOrFunctionName true;
    CurrentTime "current_time" Reserved true;
    CurrentTimestamp "current_timestamp" Reserved true;
    CurrentUser "current_user" Reserved true;
    Cursor "cursor" Unreserved true;
    Cycle "cycle" Unreserved true;
    Data "data" Unreserved true;
    Database "database" Unreserved true;
    Day "day" Unreserved false;
    Deallocate "deallocate" Unreserved true;
    Dec "dec" ColumnName true;
    Decimal "decimal" ColumnName true;
    Declare "declare" Unreserved true;
    Default "default" Reserved true;
    Defaults "defaults" Unreserved true;
    Deferrable "deferrable" Reserved true;
    Deferred "deferred" Unreserved true;
    Definer "definer" Unreserved true;
    Delete "delete" Unreserved true;
    Delimiter "delimiter" Unreserved true;
    Delimiters "delimiters" Unreserved true;
    Depends "depends" Unreserved true;
    Depth "depth" Unreserved true;
    Desc "desc" Reserved true;
    Detach "detach" Unreserved true;
    Dictionary "dictionary" Unreserved true;
    Disable "disable" Unreserved true;
    Discard "discard" Unreserved true;
    Distinct "distinct" Reserved true;
    Do "do" Reserved true;
    Document "document" Unreserved true;
    Domain "domain" Unreserved true;
    Double "double" Unreserved true;
    Drop "drop" Unreserved true;
    Each "each" Unreserved true;
    Else "else" Reserved true;
    Enable "enable" Unreserved true;
    Encoding "encoding" Unreserved true;
    Encrypted "encrypted" Unreserved true;
    End "end" Reserved true;
    Enum "enum" Unreserved true;
    Escape "escape" Unreserved true;
    Event "event" Unreserved true;
    Except "except" Reserved false;
    Exclude "exclude" Unreserved true;
    Excluding "excluding" Unreserved true;
    Exclusive "exclusive" Unreserved true;
    Execute "execute" Unreserved true;
    Exists "exists" ColumnName true;
    Explain "explain" Unreserved true;
    Expression "expression" Unreserved true;
    Extension "extension" Unreserved true;
    External "external" Unreserved true;
    Extract "extract" ColumnName true;
    False "false" Reserved true;
    Family "family" Unreserved true;
    Fetch "fetch" Reserved false;
    Filter "filter" Unreserved false;
    Finalize "finalize" Unreserved true;
    First "first" Unreserved true;
    Float "float" ColumnName true;
    Following "following" Unreserved true;
    For "for" Reserved false;
    Force "force" Unreserved true;
    Foreign "foreign" Reserved true;
    Forward "forward" Unreserved true;
    Freeze "freeze" TypeOrFunctionName true;
    From "from" Reserved false;
    Full "full" TypeOrFunctionName true;
    Function "function" Unreserved true;
    Functions "functions" Unreserved true;
    Generated "generated" Unreserved true;
    Global "global" Unreserved true;
    Grant "grant" Reserved false;
    Granted "granted" Unreserved true;
    Greatest "greatest" ColumnName true;
    Group "group" Reserved false;
    Grouping "grouping" ColumnName true;
    Groups "groups" Unreserved true;
    Handler "handler" Unreserved true;
    Having "having" Reserved false;
    Header "header" Unreserved true;
    Hold "hold" Unreserved true;
    Hour "hour" Unreserved false;
    Identity "identity" Unreserved true;
    If "if" Unreserved true;
    Ilike "ilike" TypeOrFunctionName true;
    Immediate "immediate" Unreserved true;
    Immutable "immutable" Unreserved true;
    Implicit "implicit" Unreserved true;
    Import "import" Unreserved true;
    In "in" Reserved true;
    Include "include" Unreserved true;
    Including "including" Unreserved true;
    Increment "increment" Unreserved true;
    Index "index" Unreserved true;
    Indexes "indexes" Unreserved true;
    Inherit "inherit" Unreserved true;
    Inherits "inherits" Unreserved true;
    Initially "initially" Reserved true;
    Inline "inline" Unreserved true;
    Inner "inner" TypeOrFunctionName true;
    Inout "inout" ColumnName true;
    Input "input" Unreserved true;
    Insensitive "insensitive" Unreserved true;
    Insert "insert" Unreserved true;
    Instead "instead" Unreserved true;
    Int "int" ColumnName true;
    Integer "integer" ColumnName true;
    Intersect "intersect" Reserved false;
    Interval "interval" ColumnName true;
    Into "into" Reserved false;
    Invoker "invoker" Unreserved true;
    Is "is" TypeOrFunctionName true;
    Isnull "isnull" TypeOrFunctionName false;
    Isolation "isolation" Unreserved true;
    Join "join" TypeOrFunctionName true;
    Key "key" Unreserved true;
    Label "label" Unreserved true;
    Language "language" Unreserved true;
    Large "large" Unreserved true;
    Last "last" Unreserved true;
    Lateral "lateral" Reserved true;
    Leading "leading" Reserved true;
    Leakproof "leakproof" Unreserved true;
    Least "least" ColumnName true;
    Left "left" TypeOrFunctionName true;
    Level "level" Unreserved true;
    Like "like" TypeOrFunctionName true;
    Limit "limit" Reserved false;
    Listen "listen" Unreserved true;
    Load "load" Unreserved true;
    Local "local" Unreserved true;
    Localtime "localtime" Reserved true;
    Localtimestamp "localtimestamp" Reserved true;
    Location "location" Unreserved true;
    Lock "lock" Unreserved true;
    Locked "locked" Unreserved true;
    Logged "logged" Unreserved true;
    Mapping "mapping" Unreserved true;
    Match "match" Unreserved true;
    Matched "matched" Unreserved true;
    Materialized "materialized" Unreserved true;
    Maxvalue "maxvalue" Unreserved true;
    Merge "merge" Unreserved true;
    Method "method" Unreserved true;
    Minute "minute" Unreserved false;
    Minvalue "minvalue" Unreserved true;
    Mode "mode" Unreserved true;
    Month "month" Unreserved false;
    Move "move" Unreserved true;
    Name "name" Unreserved true;
    Names "names" Unreserved true;
    National "national" ColumnName true;
    Natural "natural" TypeOrFunctionName true;
    Nchar "nchar" ColumnName true;
    New "new" Unreserved true;
    Next "next" Unreserved true;
    Nfc "nfc" Unreserved true;
    Nfd "nfd" Unreserved true;
    Nfkc "nfkc" Unreserved true;
    Nfkd "nfkd" Unreserved true;
    No "no" Unreserved true;
    None "none" ColumnName true;
    Normalize "normalize" ColumnName true;
    Normalized "normalized" Unreserved true;
    Not "not" Reserved true;
    Nothing "nothing" Unreserved true;
    Notify "notify" Unreserved true;
    Notnull "notnull" TypeOrFunctionName false;
    Nowait "nowait" Unreserved true;
    Null "null" Reserved true;
    Nullif "nullif" ColumnName true;
    Nulls "nulls" Unreserved true;
    Numeric "numeric" ColumnName true;
    Object "object" Unreserved true;
    Of "of" Unreserved true;
    Off "off" Unreserved true;
    Offset "offset" Reserved false;
    Oids "oids" Unreserved true;
    Old "old" Unreserved true;
    On "on" Reserved false;
    Only "only" Reserved true;
    Operator "operator" Unreserved true;
    Option "option" Unreserved true;
    Options "options" Unreserved true;
    Or "or" Reserved true;
    Order "order" Reserved false;
    Ordinality "ordinality" Unreserved true;
    Others "others" Unreserved true;
    Out "out" ColumnName true;
    Outer "outer" TypeOrFunctionName true;
    Over "over" Unreserved false;
    Overlaps "overlaps" TypeOrFunctionName false;
    Overlay "overlay" ColumnName true;
    Overriding "overriding" Unreserved true;
    Owned "owned" Unreserved true;
    Owner "owner" Unreserved true;
    Parallel "parallel" Unreserved true;
    Parameter "parameter" Unreserved true;
    Parser "parser" Unreserved true;
    Partial "partial" Unreserved true;
    Partition "partition" Unreserved true;
    Passing "passing" Unreserved true;
    Password "password" Unreserved true;
    Placing "placing" Reserved true;
    Plans "plans" Unreserved true;
    Policy "policy" Unreserved true;
    Position "position" ColumnName true;
    Preceding "preceding" Unreserved true;
    Precision "precision" ColumnName false;
    Prepare "prepare" Unreserved true;
    Prepared "prepared" Unreserved true;
    Preserve "preserve" Unreserved true;
    Primary "primary" Reserved true;
    Prior "prior" Unreserved true;
    Privileges "privileges" Unreserved true;
    Procedural "procedural" Unreserved true;
    Procedure "procedure" Unreserved true;
    Procedures "procedures" Unreserved true;
    Program "program" Unreserved true;
    Publication "publication" Unreserved true;
    Quote "quote" Unreserved true;
    Range "range" Unreserved true;
    Read "read" Unreserved true;
    Real "real" ColumnName true;
    Reassign "reassign" Unreserved true;
    Recheck "recheck" Unreserved true;
    Recursive "recursive" Unreserved true;
    Ref "ref" Unreserved true;
    References "references" Reserved true;
    Referencing "referencing" Unreserved true;
    Refresh "refresh" Unreserved true;
    Reindex "reindex" Unreserved true;
    Relative "relative" Unreserved true;
    Release "release" Unreserved true;
    Rename "rename" Unreserved true;
    Repeatable "repeatable" Unreserved true;
    Replace "replace" Unreserved true;
    Replica "replica" Unreserved true;
    Reset "reset" Unreserved true;
    Restart "restart" Unreserved true;
    Restrict "restrict" Unreserved true;
    Return "return" Unreserved true;
    Returning "returning" Reserved false;
    Returns "returns" Unreserved true;
    Revoke "revoke" Unreserved true;
    Right "right" TypeOrFunctionName true;
    Role "role" Unreserved true;
    Rollback "rollback" Unreserved true;
    Rollup "rollup" Unreserved true;
    Routine "routine" Unreserved true;
    Routines "routines" Unreserved true;
    Row "row" ColumnName true;
    Rows "rows" Unreserved true;
    Rule "rule" Unreserved true;
    Savepoint "savepoint" Unreserved true;
    Schema "schema" Unreserved true;
    Schemas "schemas" Unreserved true;
    Scroll "scroll" Unreserved true;
    Search "search" Unreserved true;
    Second "second" Unreserved false;
    Security "security" Unreserved true;
    Select "select" Reserved true;
    Sequence "sequence" Unreserved true;
    Sequences "sequences" Unreserved true;
    Serializable "serializable" Unreserved true;
    Server "server" Unreserved true;
    Session "session" Unreserved true;
    SessionUser "session_user" Reserved true;
    Set "set" Unreserved true;
    Setof "setof" ColumnName true;
    Sets "sets" Unreserved true;
    Share "share" Unreserved true;
    Show "show" Unreserved true;
    Similar "similar" TypeOrFunctionName true;
    Simple "simple" Unreserved true;
    Skip "skip" Unreserved true;
    Smallint "smallint" ColumnName true;
    Snapshot "snapshot" Unreserved true;
    Some "some" Reserved true;
    Sql "sql" Unreserved true;
    Stable "stable" Unreserved true;
    Standalone "standalone" Unreserved true;
    Start "start" Unreserved true;
    Statement "statement" Unreserved true;
    Statistics "statistics" Unreserved true;
    Stdin "stdin" Unreserved true;
    Stdout "stdout" Unreserved true;
    Storage "storage" Unreserved true;
    Stored "stored" Unreserved true;
    Strict "strict" Unreserved true;
    Strip "strip" Unreserved true;
    Subscription "subscription" Unreserved true;
    Substring "substring" ColumnName true;
    Support "support" Unreserved true;
    Symmetric "symmetric" Reserved true;
    Sysid "sysid" Unreserved true;
    System "system" Unreserved true;
    Table "table" Reserved true;
    Tables "tables" Unreserved true;
    Tablesample "tablesample" TypeOrFunctionName true;
    Tablespace "tablespace" Unreserved true;
    Temp "temp" Unreserved true;
    Template "template" Unreserved true;
    Temporary "temporary" Unreserved true;
    Text "text" Unreserved true;
    Then "then" Reserved true;
    Ties "ties" Unreserved true;
    Time "time" ColumnName true;
    Timestamp "timestamp" ColumnName true;
    To "to" Reserved false;
    Trailing "trailing" Reserved true;
    Transaction "transaction" Unreserved true;
    Transform "transform" Unreserved true;
    Treat "treat" ColumnName true;
    Trigger "trigger" Unreserved true;
    Trim "trim" ColumnName true;
    True "true" Reserved true;
    Truncate "truncate" Unreserved true;
    Trusted "trusted" Unreserved true;
    Type "type" Unreserved true;
    Types "types" Unreserved true;
    Uescape "uescape" Unreserved true;
    Unbounded "unbounded" Unreserved true;
    Uncommitted "uncommitted" Unreserved true;
    Unencrypted "unencrypted" Unreserved true;
    Union "union" Reserved false;
    Unique "unique" Reserved true;
    Unknown "unknown" Unreserved true;
    Unlisten "unlisten" Unreserved true;
    Unlogged "unlogged" Unreserved true;
    Until "until" Unreserved true;
    Update "update" Unreserved true;
    User "user" Reserved true;
    Using "using" Reserved true;
    Vacuum "vacuum" Unreserved true;
    Valid "valid" Unreserved true;
    Validate "validate" Unreserved true;
    Validator "validator" Unreserved true;
    Value "value" Unreserved true;
    Values "values" ColumnName true;
    Varchar "varchar" ColumnName true;
    Variadic "variadic" Reserved true;
    Varying "varying" Unreserved false;
    Verbose "verbose" TypeOrFunctionName true;
    Version "version" Unreserved true;
    View "view" Unreserved true;
    Views "views" Unreserved true;
    Volatile "volatile" Unreserved true;
    When "when" Reserved true;
    Where "where" Reserved false;
    Whitespace "whitespace" Unreserved true;
    Window "window" Reserved false;
    With "with" Reserved false;
    Within "within" Unreserved false;
    Without "without" Unreserved false;
    Work "work" Unreserved true;
    Wrapper "wrapper" Unreserved true;
    Write "write" Unreserved true;
    Xml "xml" Unreserved true;
    Xmlattributes "xmlattributes" ColumnName true;
    Xmlconcat "xmlconcat" ColumnName true;
    Xmlelement "xmlelement" ColumnName true;
    Xmlexists "xmlexists" ColumnName true;
    Xmlforest "xmlforest" ColumnName true;
    Xmlnamespaces "xmlnamespaces" ColumnName true;
    Xmlparse "xmlparse" ColumnName true;
    Xmlpi "xmlpi" ColumnName true;
    Xmlroot "xmlroot" ColumnName true;
    Xmlserialize "xmlserialize" ColumnName true;
    Xmltable "xmltable" ColumnName true;
    Year "year" Unreserved false;
    Yes "yes" Unreserved true;
    Zone "zone" Unreserved true;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each keyword is found, and words that differ in one letter are not.
    #[test]
    fn every_keyword_is_found_by_its_text() {
        assert!(TEXTS.is_sorted());
        for (index, &keyword) in KEYWORDS.iter().enumerate() {
            assert_eq!(keyword as usize, index);
            assert_eq!(Keyword::find(keyword.text().as_bytes()), Some(keyword));
            let near = format!("{}q", keyword.text());
            assert_eq!(Keyword::find(near.as_bytes()), None);
        }
        assert_eq!(Keyword::find(b"order"), Some(Keyword::Order));
        assert_eq!(Keyword::find(b"orders"), None);
    }
}
