"""What make.py asks for: functions by family, and values by type."""

INPUTS = {
    "bool": ["t", "f"],
    "int2": ["0", "1", "-1", "7", "-13", "32767", "-32768"],
    "int4": ["0", "1", "-1", "12", "-7", "2147483647", "-2147483648", "70000"],
    "int8": ["0", "1", "-1", "100", "-9", "9223372036854775807", "-9223372036854775808", "5000000000"],
    "oid": ["0", "1", "4294967295", "16384"],
    "float4": ["0", "-0", "1.5", "-2.25", "3e38", "1e-40", "NaN", "Infinity", "-Infinity", "0.1"],
    "float8": ["0", "-0", "1.5", "-2.25", "1e308", "1e-310", "NaN", "Infinity", "-Infinity", "0.1", "123456.789"],
    "numeric": ["0", "1", "1.00", "-2.50", "0.001", "123456789012345678901234.5", "-99.99", "NaN", "Infinity", "-Infinity", "7", "1e-20"],
    "text": ["", "a", "abc", "Hällo Wörld", "abc def", "a longer text than twelve bytes"],
    "name": ["a", "abc", "pg_class"],
    "bpchar": ["a", "a  ", "abc", "", "ab c"],
    "varchar": ["a", "abc", ""],
    "char": ["a", "b", "", "z"],
    "bytea": ["\\x", "\\x00", "\\x61626364", "\\xff00aa", "\\x000102030405060708090a0b0c0d0e0f"],
    "date": ["1970-01-01", "2024-02-29", "1999-12-31", "2000-01-01", "0044-03-15 BC", "5874897-12-31"],
    "time": ["00:00:00", "12:34:56.789", "23:59:59.999999", "06:00:00"],
    "timestamp": ["1970-01-01 00:00:00", "2024-02-29 12:34:56.789", "1999-12-31 23:59:59.999999", "2024-03-31 02:30:00", "0044-03-15 01:02:03 BC"],
    "timestamptz": ["1970-01-01 00:00:00+00", "2024-02-29 12:34:56.789+01", "1999-12-31 23:59:59.999999+00", "2024-03-31 01:00:00+00", "2024-10-27 00:30:00+00"],
    "interval": ["00:00:00", "1 day", "-1 mons", "1 year 2 mons 3 days 04:05:06.789", "30 days", "720:00:00", "-3 days +04:05:06"],
    "uuid": ["00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
}


def six(template, *others):
    return [template.replace("%", suffix) for suffix in ("lt", "le", "eq", "ge", "gt", "ne")]


COMPARED = "bool int2 int4 int8 oid float4 float8 bytea bpchar name char".split()
UNDERSCORED = "date time timestamp timestamptz interval uuid numeric".split()
MIXED = {"24": ("int2", "int4"), "42": ("int4", "int2"), "28": ("int2", "int8"), "82": ("int8", "int2"), "48": ("int4", "int8"), "84": ("int8", "int4")}

FAMILIES = {}
AGGREGATES = {}

FAMILIES["comparisons"] = [
    *[f for ty in COMPARED for f in six(f"{ty}%({ty},{ty})")],
    *[f for ty in UNDERSCORED for f in six(f"{ty}_%({ty},{ty})")],
    "text_lt(text,text)", "text_le(text,text)", "texteq(text,text)", "text_ge(text,text)", "text_gt(text,text)", "textne(text,text)",
    *[f for number, (left, right) in MIXED.items() for f in six(f"int{number}%({left},{right})")],
    *six("float48%(float4,float8)"), *six("float84%(float8,float4)"),
    *six("name%text(name,text)"), *six("text%name(text,name)"),
    *six("date_%_timestamp(date,timestamp)"), *six("timestamp_%_date(timestamp,date)"),
    *six("date_%_timestamptz(date,timestamptz)"), *six("timestamptz_%_date(timestamptz,date)"),
    *six("timestamp_%_timestamptz(timestamp,timestamptz)"), *six("timestamptz_%_timestamp(timestamptz,timestamp)"),
    *[(signature, {0: ARRAYS, 1: ARRAYS}, "_int4 _int4 bool") for ARRAYS in [["{}", "{1}", "{1,2}", "{1,NULL}", "{{1,2},{3,4}}", "[0:1]={1,2}"]]
      for signature in six("array_%(anyarray,anyarray)")],
    "btboolcmp(bool,bool)", "btint2cmp(int2,int2)", "btint4cmp(int4,int4)", "btint8cmp(int8,int8)", "date_cmp(date,date)",
    "time_cmp(time,time)", "timestamp_cmp(timestamp,timestamp)", "timestamptz_cmp(timestamptz,timestamptz)", "btfloat4cmp(float4,float4)",
    "btfloat8cmp(float8,float8)", "numeric_cmp(numeric,numeric)", "interval_cmp(interval,interval)",
    *[f"{ty}{us}{which}({ty},{ty})" for which in ("larger", "smaller") for us, types in
      (("", ["int2", "int4", "int8", "oid", "float4", "float8"]), ("_", ["date", "time", "timestamp", "timestamptz", "numeric", "interval", "text", "bpchar"])) for ty in types],
    "text_pattern_lt(text,text)", "bpchar_pattern_ge(bpchar,bpchar)", "starts_with(text,text)",
]

FAMILIES["integers"] = [
    *[f"{ty}{op}({ty},{ty})" for ty in ("int2", "int4", "int8") for op in ("pl", "mi", "mul", "div", "mod", "and", "or", "xor")],
    *[f"int{number}{op}({left},{right})" for number, (left, right) in MIXED.items() for op in ("pl", "mi", "mul", "div")],
    *[f"{ty}{op}({ty})" for ty in ("int2", "int4", "int8") for op in ("um", "up", "abs", "not")],
    *[(f"{ty}{op}({ty},int4)", {1: ["0", "1", "5", "31", "32", "33", "63", "64", "-1"]}) for ty in ("int2", "int4", "int8") for op in ("shl", "shr")],
    "mod(int2,int2)", "mod(int4,int4)", "mod(int8,int8)", "abs(int2)", "abs(int4)", "abs(int8)",
    ("gcd(int4,int4)", {0: ["0", "12", "-18", "-2147483648"], 1: ["0", "8", "27", "-2147483648"]}),
    ("gcd(int8,int8)", {0: ["0", "12", "-18", "-9223372036854775808"], 1: ["0", "8", "27", "-9223372036854775808"]}),
    ("lcm(int4,int4)", {0: ["0", "12", "-18", "-2147483648"], 1: ["0", "8", "27", "2147483647"]}),
    ("lcm(int8,int8)", {0: ["0", "12", "-18", "-9223372036854775808"], 1: ["0", "8", "27", "1"]}),
    "int4inc(int4)", "int8inc(int8)", "int8dec(int8)",
]
