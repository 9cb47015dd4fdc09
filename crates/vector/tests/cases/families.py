"""What make.py asks for: functions by family, and values by type."""

import itertools

INPUTS = {
    "bool": ["t", "f"],
    "int2": ["0", "1", "-1", "7", "-13", "32767", "-32768"],
    "int4": ["0", "1", "-1", "12", "-7", "2147483647", "-2147483648", "70000"],
    "int8": ["0", "1", "-1", "100", "-9", "9223372036854775807", "-9223372036854775808", "5000000000"],
    "oid": ["0", "1", "4294967295", "16384"],
    "xid": ["0", "1", "4294967295", "70000"],
    "cid": ["0", "1", "4294967295"],
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
    *[f"bt{name}cmp({left},{right})" for name, left, right in (("int24", "int2", "int4"), ("int42", "int4", "int2"), ("int28", "int2", "int8"), ("int82", "int8", "int2"), ("int48", "int4", "int8"), ("int84", "int8", "int4"), ("float48", "float4", "float8"), ("float84", "float8", "float4"), ("oid", "oid", "oid"))],
    *[f"{left}_cmp_{right}({left},{right})" for left, right in itertools.permutations(("date", "timestamp", "timestamptz"), 2)],
    *[f"xid{op}(xid,{right})" for op, right in (("eq", "xid"), ("neq", "xid"), ("eqint4", "int4"), ("neqint4", "int4"))], "cideq(cid,cid)",
    ("uuid_cmp(uuid,uuid)", [["ffffffff-ffff-ffff-ffff-ffffffffffff", "ffffffff-ffff-ffff-ffff-fffffffffffe"], ["00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000000"], ["00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001"]]),
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

FAMILIES["floats"] = [
    *[f"{ty}{op}({left},{right})" for ty, left, right in (("float4", "float4", "float4"), ("float8", "float8", "float8"), ("float48", "float4", "float8"), ("float84", "float8", "float4")) for op in ("pl", "mi", "mul", "div")],
    *[f"{ty}{op}({ty})" for ty in ("float4", "float8") for op in ("um", "up", "abs")],
    *[f"{name}(float8)" for name in "dround round dtrunc trunc ceil ceiling floor sign dsqrt sqrt dcbrt cbrt dexp exp dlog1 ln dlog10 log log10 degrees radians sin cos tan cot atan sinh cosh tanh asinh".split()],
    *[(f"{name}(float8)", {0: ["0", "0.5", "-0.5", "1", "-1", "1.5", "NaN", "0.3"]}) for name in "asin acos atanh asind acosd".split()],
    ("acosh(float8)", {0: ["0", "1", "1.5", "100", "NaN", "Infinity"]}),
    *[(f"{name}(float8)", {0: ["0", "30", "45", "60", "90", "-30", "180", "270", "361", "1000", "NaN", "Infinity"]}) for name in "sind cosd tand cotd atand".split()],
    "atan2(float8,float8)", "atan2d(float8,float8)",
    *[(f"{name}(float8,float8)", {0: ["0", "1", "2", "-2", "0.5", "1e200", "NaN", "Infinity", "-Infinity"], 1: ["0", "2", "-2", "0.5", "3", "NaN", "Infinity", "-Infinity"]}) for name in ("dpow", "pow", "power")],
    ("width_bucket(float8,float8,float8,int4)", [["5.35", "0.024", "10.06", "5"], ["-1", "0", "10", "5"], ["10", "0", "10", "5"], ["11", "10", "0", "4"], ["3", "10", "0", "4"], ["3", "1", "1", "4"], ["3", "1", "5", "0"], ["NaN", "0", "1", "3"], ["3", "NaN", "1", "3"], ["1", "0", "Infinity", "3"], ["10", "0", "10", "2147483647"], [None, "0", "1", "2"]]),
]

NUMBERS = {0: INPUTS["numeric"], 1: INPUTS["numeric"]}
FAMILIES["numbers"] = [
    *[f"{name}(numeric,numeric)" for name in "numeric_add numeric_sub numeric_mul numeric_div numeric_mod mod div numeric_div_trunc".split()],
    *[(f"{name}(numeric,numeric)", {0: ["12", "-18.0", "0", "7.50", "NaN", "Infinity"], 1: ["8", "27.00", "0", "2.5", "NaN"]}) for name in ("gcd", "lcm")],
    *[f"{name}(numeric)" for name in "numeric_uminus numeric_uplus numeric_abs abs numeric_inc sign round trunc ceil ceiling floor scale min_scale trim_scale".split()],
    *[(f"{name}(numeric,int4)", {0: ["0", "1.005", "-2.567", "1234.5", "NaN", "Infinity", "99.99"], 1: ["0", "1", "2", "-1", "-2", "5"]}) for name in ("round", "trunc")],
    ("factorial(int8)", {0: ["0", "1", "5", "20", "30", "-1"]}),
    ("numeric(numeric,int4)", {0: ["0", "1.005", "-2.567", "1234.5", "NaN", "99.99", "99.999"], 1: ["-1", "262150", "327686", "786438"]}),
]

FAMILIES["casts"] = [
    *[f"{to}({source})" for to, sources in {
        "int2": "int4 int8 float4 float8 numeric", "int4": "int2 int8 float4 float8 numeric bool", "int8": "int2 int4 float4 float8 numeric oid",
        "float4": "int2 int4 int8 float8 numeric", "float8": "int2 int4 int8 float4 numeric", "numeric": "int2 int4 int8 float4 float8",
        "oid": "int8", "bool": "int4", "text": "bpchar name bool", "name": "text bpchar varchar", "bpchar": "name", "varchar": "name",
        "date": "timestamp timestamptz", "timestamp": "date timestamptz", "timestamptz": "date timestamp", "time": "timestamp timestamptz interval", "interval": "time",
    }.items() for source in sources.split()],
    ("varchar(varchar,int4,bool)", {0: ["abc", "ab   ", "äöü", ""], 1: ["-1", "5", "6", "7"]}),
    ("bpchar(bpchar,int4,bool)", {0: ["abc", "ab   ", "äöü", ""], 1: ["-1", "5", "6", "9"]}),
    "timestamp(date,time)", "datetime_pl(date,time)", "timedate_pl(time,date)", "timestamptz(date,time)",
    *[(f"{ty}({ty},int4)", {1: ["-1", "0", "1", "3", "6"]}) for ty in ("timestamp", "timestamptz", "time")],
    ("interval(interval,int4)", {1: ["-1", "2147418112", "2147418115", "327679", "458751", "67174399", "134283263", "201392127", "268500991"]}),
]

TEXTS = {
    "boolin": ["t", " true ", "no", "of", "o", "x", "1", "0", "TRUE"], "int2in": ["1", " -7 ", "32768", "", "1.5", "+3", "0x1"],
    "int4in": ["1", " -7 ", "2147483648", "", "1.5", "+3", "- 3"], "int8in": ["1", "-9223372036854775808", "9223372036854775808", "a"],
    "float4in": ["1.5", "1e40", "1e-50", "nan", "-inf", "x", "Infinity", " 3 "], "float8in": ["1.5", "1e400", "1e-400", "NaN", "-infinity", "", ".5", "5."],
    "date_in": ["2024-02-29", "2023-02-29", "Jan 5 2020", "20200105", "x", "2020-13-01"], "uuid_in": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "{A0EEBC999C0B4EF8BB6D6BB9BD380A11}", "x"],
    "oidin": ["1", "4294967295", "4294967296", "-1", "x"], "byteain": ["\\x00ff", "abc\\000", "\\x0", "\\xzz", ""],
    "textin": ["", "a", "long enough to leave the view"], "namein": ["abc", "n" * 70], "charin": ["a", "ab", ""],
}
FAMILIES["io"] = [
    *[(f"{name}(cstring)", {0: values}) for name, values in TEXTS.items()],
    ("numeric_in(cstring,oid,int4)", [[text, "0", modifier] for text in ("1", "1.505", "-99.999", "nan", "1e3", "x", "", "Infinity", "1_0") for modifier in ("-1", "262150")]),
    ("time_in(cstring,oid,int4)", [[text, "0", "-1"] for text in ("12:34", "12:34:56.789", "24:00", "25:00", "x", "4 pm")]),
    ("timestamp_in(cstring,oid,int4)", [[text, "0", "-1"] for text in ("2024-02-29 12:34:56.789", "2024-02-30", "20240229T1234", "x", "2024-02-29 12:00+05")]),
    ("timestamptz_in(cstring,oid,int4)", [[text, "0", "-1"] for text in ("2024-02-29 12:34:56.789", "2024-07-01 12:00", "2024-02-29 12:00+05", "x", "2024-02-29 12:00 America/New_York")]),
    ("interval_in(cstring,oid,int4)", [[text, "0", modifier] for text in ("1 day", "1-2", "3 4:05:06.789", "P1Y2M3DT4H5M6S", "x", "1 year ago", "") for modifier in ("-1", "2147418113")]),
    ("varcharin(cstring,oid,int4)", [[text, "0", modifier] for text in ("abc", "ab  ", "äöü") for modifier in ("-1", "6", "7")]),
    ("bpcharin(cstring,oid,int4)", [[text, "0", modifier] for text in ("abc", "ab  ", "äöü") for modifier in ("-1", "6", "7", "9")]),
    ("array_in(cstring,oid,int4)", [[text, "23", "-1"] for text in ("{}", "{1,2}", "{1,NULL}", "{{1,2},{3,4}}", "[0:1]={7,8}", "{1", "{1,x}", " { 1 , 2 } ")], "cstring oid int4 _int4"),
    ("array_in(cstring,oid,int4)", [[text, "25", "-1"] for text in ('{a,"b c"}', '{"",null,"null"}', '{"a\\"b","c\\\\d"}', "{{a},{b}}")], "cstring oid int4 _text"),
    *[f"{name}({ty})" for name, ty in (("boolout", "bool"), ("int2out", "int2"), ("int4out", "int4"), ("int8out", "int8"), ("oidout", "oid"), ("float4out", "float4"), ("float8out", "float8"), ("numeric_out", "numeric"), ("date_out", "date"), ("time_out", "time"), ("timestamp_out", "timestamp"), ("timestamptz_out", "timestamptz"), ("interval_out", "interval"), ("uuid_out", "uuid"), ("byteaout", "bytea"), ("textout", "text"), ("varcharout", "varchar"), ("bpcharout", "bpchar"), ("nameout", "name"))],
    ("array_out(anyarray)", {0: ["{}", "{1,2}", "{1,NULL}", "{{1,2},{3,4}}", "[0:1]={7,8}", "{{{1},{2}},{{3},{4}}}"]}, "_int4 cstring"),
    ("array_out(anyarray)", {0: ['{a,"b c"}', '{"",null,"null"}', '{"a\\"b","c\\\\d"}', "{{a},{b}}", '{"a,b"}']}, "_text cstring"),
    ("array_out(anyarray)", {0: ['{1.50,NaN,Infinity}', "{}"]}, "_numeric cstring"),
    ("array_out(anyarray)", {0: ['{"2024-02-29 12:00:00"}']}, "_timestamptz cstring"),
]
INPUTS["cstring"] = INPUTS["text"]

STRINGS = ["", "abc", "Hällo Wörld", "  padded  ", "a longer text than twelve bytes", "xxabcxx"]
FAMILIES["texts"] = [
    *[(f"{name}(text)", {0: STRINGS}) for name in "length char_length character_length textlen octet_length bit_length ascii reverse btrim ltrim rtrim quote_literal quote_nullable".split()],
    "length(bpchar)", "octet_length(bpchar)",
    ("chr(int4)", {0: ["65", "228", "8364", "0", "-1", "1114112", "55296", "128512"]}),
    ("quote_literal(text)", {0: ["it's", "a\\b", "", "plain"]}),
    # The server's locale is C, in which letters beyond ASCII have no case; here they have one.
    *[(f"{name}(text)", {0: ["hello World", "FLOOR 12b", "o'neil-smith 2nd", ""]}) for name in ("lower", "upper", "initcap")],
    "textcat(text,text)",
    ("repeat(text,int4)", {0: ["ab", "", "äö"], 1: ["0", "1", "3", "-1", "7"]}),
    ("repeat(text,int4)", [["abcdefgh", "2147483647"]]),
    *[(f"{name}(text,int4)", {0: STRINGS, 1: ["0", "1", "3", "-2", "100", "-100", "2147483647"]}) for name in ("left", "right", "substring", "substr")],
    *[(f"{name}(text,int4,int4)", {0: ["abcdef", "äöüß", ""], 1: ["-1", "0", "1", "3", "2147483647"], 2: ["-1", "0", "2", "5", "2147483647"]}) for name in ("substring", "substr")],
    ("overlay(text,text,int4,int4)", {0: ["abcdef", "äöü"], 1: ["X", "", "long"], 2: ["1", "3", "0", "9"], 3: ["0", "2", "-1", "9"]}),
    ("overlay(text,text,int4)", {0: ["abcdef", "äöü"], 1: ["X", "", "long"], 2: ["1", "3", "0", "9"]}),
    *[(f"{name}(text,text)", {0: STRINGS, 1: ["", "b", "ör", "xx", "zz"]}) for name in ("strpos", "position")],
    ("replace(text,text,text)", {0: ["abcabc", "aaa", "", "äbä"], 1: ["a", "", "aa", "ä", "abc"], 2: ["", "X", "aa"]}),
    ("translate(text,text,text)", {0: ["12345", "hällo", ""], 1: ["143", "äl", ""], 2: ["ax", "", "abc"]}),
    ("split_part(text,text,int4)", {0: ["a,b,c", "abc", "", ",a,"], 1: [",", "", "bc"], 2: ["0", "1", "2", "-1", "-2", "5"]}),
    *[(f"{name}(text,text)", {0: ["xxabcyx", "", "abc", "ääbä"], 1: ["x", "xy", "", "ä", "abc"]}) for name in ("btrim", "ltrim", "rtrim")],
    *[(f"{name}(text,int4,text)", {0: ["hi", "", "hällo"], 1: ["0", "1", "5", "7", "-1"], 2: ["xy", "", "ä"]}) for name in ("lpad", "rpad")],
    *[(f"{name}(text,int4)", {0: ["hi", "", "hällo"], 1: ["0", "1", "7", "-1"]}) for name in ("lpad", "rpad")],
    "to_hex(int4)", "to_hex(int8)",
    *[(f"{name}(text,text)", {0: ["abc", "", "aXbXc", "hällo", "a%c", "a_c", "ABC", "a\\c"], 1: ["abc", "%", "a%", "%c", "_b_", "%b%", "a\\%c", "", "__", "h_llo", "%X%X%", "a\\\\c", "A%"]}) for name in ("textlike", "textnlike", "texticlike", "texticnlike", "like", "notlike")],
    ("textlike(text,text)", [["abc", "abc\\"], ["ab", "abc\\"], ["", "\\"], ["abc", "%\\"]]),
    ("like_escape(text,text)", {0: ["10!%\\_!!", "a!b", "plain", "!"], 1: ["!", "", "ab", "\\"]}),
    *[f"{name}(bytea)" for name in ("length", "octet_length", "bit_length", "bit_count")],
    "byteacat(bytea,bytea)", "position(bytea,bytea)", "btrim(bytea,bytea)", "ltrim(bytea,bytea)", "rtrim(bytea,bytea)",
    ("get_byte(bytea,int4)", {1: ["0", "1", "3", "-1", "99"]}), ("set_byte(bytea,int4,int4)", {1: ["0", "1", "-1", "99"], 2: ["0", "255", "256", "-1"]}),
    *[(f"{name}(bytea,int4)", {1: ["-1", "0", "1", "3", "99"]}) for name in ("substring", "substr")],
    *[(f"{name}(bytea,int4,int4)", {1: ["-1", "0", "1", "3", "99"], 2: ["-1", "0", "2", "99"]}) for name in ("substring", "substr")],
]

UNITS = ["microseconds", "millisecond", "second", "minutes", "HOUR", "day", "week", "month", "quarter", "year", "decade", "century", "millennium", "epoch", "julian", "dow", "isodow", "isoyear", "doy", "timezone", "timezone_hour", "timezone_minute", "fortnight", "y", "mons"]
FAMILIES["moments"] = [
    "date_mi(date,date)", "date_pli(date,int4)", "integer_pl_date(int4,date)", "date_mii(date,int4)",
    *[f"{ty}_{op}_interval({ty},interval)" for ty in ("date", "timestamp", "timestamptz", "time") for op in ("pl", "mi")],
    *[f"interval_pl_{ty}(interval,{ty})" for ty in ("date", "timestamp", "timestamptz", "time")],
    "timestamp_mi(timestamp,timestamp)", "timestamptz_mi(timestamptz,timestamptz)", "time_mi_time(time,time)",
    "interval_pl(interval,interval)", "interval_mi(interval,interval)", "interval_um(interval)",
    ("interval_mul(interval,float8)", {1: ["0", "1", "-2", "0.5", "1.5", "1e10", "0.333333"]}), ("mul_d_interval(float8,interval)", {0: ["0", "1", "-2", "0.5"]}),
    ("interval_div(interval,float8)", {1: ["0", "1", "-2", "0.5", "3", "7"]}),
    ("timestamptz_pl_interval(timestamptz,interval)", {0: ["2024-03-30 01:30:00+00", "2024-03-31 00:30:00+00", "2024-10-27 00:30:00+00"], 1: ["1 day", "1 mon", "24:00:00", "-1 day"]}),
    "age(timestamp,timestamp)", "age(timestamptz,timestamptz)",
    ("age(timestamp,timestamp)", {0: ["2001-04-10", "2024-02-29", "2024-03-31", "2000-01-01"], 1: ["1957-06-13", "2023-03-01", "2024-02-29", "2024-01-31 12:00"]}),
    *[(f"justify_{name}(interval)", {0: ["35 days 27:00:00", "-35 days +27:00:00", "1 mon -1 hours", "1 mon -33 days +1:00:00", "-1 mon +40 days -25:00:00", "00:00:00", "6 days 5:4:3", "29 days 24:00:01"]}) for name in ("hours", "days", "interval")],
    ("timezone(text,timestamptz)", {0: ["UTC", "America/New_York", "Nowhere/X", "+03"]}), ("timezone(text,timestamp)", {0: ["UTC", "America/New_York", "Nowhere/X"]}),
    ("timezone(interval,timestamptz)", {0: ["02:00:00", "-05:00:00", "1 day", "1 mon"]}), ("timezone(interval,timestamp)", {0: ["02:00:00", "-05:00:00", "1 day"]}),
    *[(f"{name}(text,{ty})", [[unit, value] for unit in UNITS for value in INPUTS[ty][:3 if ty != "interval" else 4]]) for name in ("extract", "date_part") for ty in ("date", "time", "timestamp", "timestamptz", "interval")],
    *[(f"extract(text,{ty})", [[unit, value] for unit in UNITS for value in ("0044-03-15 BC", "0001-01-01", "2000-12-31", "2001-01-01", "2020-12-31", "0100-12-31 BC")]) for ty in ("date", "timestamp")],
    *[(f"date_trunc(text,{ty})", [[unit, value] for unit in UNITS for value in INPUTS[ty][1:3]]) for ty in ("timestamp", "timestamptz")],
    ("date_trunc(text,interval)", [[unit, value] for unit in UNITS for value in ("1234 years 5 mons 6 days 07:08:09.123456", "-15 mons -3 days -04:05:06.5")]),
    ("date_trunc(text,timestamptz)", [["hour", "2024-10-27 00:30:00+00"], ["hour", "2024-10-27 01:30:00+00"], ["minute", "2024-10-27 00:30:10+00"], ["day", "2024-10-27 01:30:00+00"]]),
    ("date_trunc(text,timestamptz,text)", [["day", "2024-02-29 01:00:00+00", "Australia/Sydney"], ["hour", "2024-02-29 01:10:00+00", "Asia/Kolkata"], ["day", "2024-02-29 01:00:00+00", "x"]]),
    ("make_date(int4,int4,int4)", [[y, m, d] for y in ("2024", "0", "-44", "2023", "5874898") for m in ("2", "0", "13", "12") for d in ("29", "0", "32", "1")]),
    ("make_time(int4,int4,float8)", [[h, m, s] for h in ("0", "23", "24", "25", "-1") for m in ("0", "59", "60") for s in ("0", "59.9999995", "60", "61", "-1", "NaN")]),
    ("make_timestamp(int4,int4,int4,int4,int4,float8)", [["2013", "7", "15", "8", "15", "23.5"], ["2013", "7", "15", "24", "0", "0"], ["-5", "7", "15", "8", "15", "23.5"], ["2013", "13", "15", "8", "15", "23.5"], [None, "1", "1", "1", "1", "1"]]),
    ("make_timestamptz(int4,int4,int4,int4,int4,float8)", [["2013", "7", "15", "8", "15", "23.5"], ["2024", "3", "31", "2", "30", "0"], ["2013", "7", "15", "25", "15", "23.5"]]),
    ("make_timestamptz(int4,int4,int4,int4,int4,float8,text)", [["2013", "7", "15", "8", "15", "23.5", "America/New_York"], ["2013", "7", "15", "8", "15", "23.5", "Nowhere/X"]]),
    ("make_interval(int4,int4,int4,int4,int4,int4,float8)", [["1", "2", "3", "4", "5", "6", "7.89"], ["0"] * 7, ["-1", "2", "0", "-4", "5", "-6", "0.1"], ["0", "0", "0", "0", "0", "0", "NaN"]]),
    ("to_timestamp(float8)", {0: ["0", "1284352323.5", "-1.25", "1e18", "NaN", "0.0000005"]}),
]

ENDS = {"timestamp": ["2000-01-01", "2000-01-10", "2000-01-05 12:00", "2000-01-20", None], "timestamptz": ["2000-01-01", "2000-01-10", "2000-01-05 12:00", None], "time": ["01:00", "10:00", "05:30", "23:00", None]}
LENGTHS = ["5 days", "-4 days", "03:00", "00:00", "30 days", None]
SPANS = ["00:00:00", "1 mon", "-1 mons", "13 mons -40 days +27:11:12.345678", "-3 days +04:05:06", "100 years", "1 day 12:00:00.5", "-2 years -5 mons -29 days -23:59:59.999999", "2147483647 mons", "-2147483648 days"]
FAMILIES["periods"] = [
    *[(f"overlaps({ty},{ty},{ty},{ty})", list(itertools.product(ends, repeat=4))[::3]) for ty, ends in ENDS.items()],
    *[(f"overlaps({ty},{ty},{ty},interval)", [[a, b, c, d] for a in ends for b in ends for c in ends for d in LENGTHS][::5]) for ty, ends in ENDS.items()],
    *[(f"overlaps({ty},interval,{ty},{ty})", [[a, d, b, c] for a in ends for b in ends for c in ends for d in LENGTHS][::5]) for ty, ends in ENDS.items()],
    *[(f"overlaps({ty},interval,{ty},interval)", [[a, d, b, e] for a in ends for b in ends for d in LENGTHS for e in LENGTHS][::5]) for ty, ends in ENDS.items()],
    *[(f"date_bin(interval,{ty},{ty})", [[stride, moment, origin] for stride in ("15 minutes", "1 day", "7 days 01:00", "1 mon", "00:00", "-1 day", "00:00:00.000003", "1 day -00:30", "200000000 days", None) for moment in ("2020-02-11 15:44:17.71323", "1969-12-31 23:59:59.999999", "0044-03-15 BC", "4713-01-01 BC") for origin in ("2001-01-01", "2100-05-05 05:05")]) for ty in ("timestamp", "timestamptz")],
    # More of what is in moments: what its values do not reach.
    *[(f"{name}(text,interval)", [[unit, span] for unit in UNITS for span in SPANS]) for name in ("extract", "date_part", "date_trunc")],
    *[(f"{name}(text,{ty})", [[unit, moment] for unit in UNITS for moment in moments]) for name in ("extract", "date_part", "date_trunc") for ty, moments in
      (("timestamp", ["0001-01-01 BC", "0101-12-31 23:59:59.5 BC", "2021-01-01", "9999-12-31 12:00:00.000001", "0100-01-01"]), ("timestamptz", ["1890-01-01", "2021-07-01 12:30", "0001-01-01 BC"]))],
    *[(f"{op}(interval,float8)", [[span, factor] for span in SPANS for factor in ("1.5", "-0.33", "7", "0.01", "1e9", "NaN", "Infinity")]) for op in ("interval_mul", "interval_div")],
    *[(f"{op}(interval,interval)", list(itertools.product(SPANS, SPANS))) for op in ("interval_pl", "interval_mi", "interval_cmp")],
    ("interval_um(interval)", {0: SPANS}), *[(f"justify_{name}(interval)", {0: SPANS}) for name in ("hours", "days", "interval")],
    *[(f"{op}({ty},interval)", [[moment, span] for moment in ("2024-02-29 23:30", "2023-10-29 02:30", "2024-03-31 01:59:59", "0001-01-31 BC", "2020-12-31") for span in SPANS]) for ty in ("timestamp", "timestamptz") for op in (f"{ty}_pl_interval", f"{ty}_mi_interval")],
    *[(f"{op}(date,interval)", [[day, span] for day in ("2024-02-29", "0001-01-31 BC", "2023-03-31") for span in SPANS]) for op in ("date_pl_interval", "date_mi_interval")],
    ("date_trunc(text,timestamptz,text)", [[unit, "2024-03-31 00:30:00+00", zone] for unit in UNITS for zone in ("America/St_Johns", "UTC", "+05:30", "cest")]),
    *[(f"age({ty},{ty})", [[a, b] for a in ("2024-02-29 12:00", "2024-03-31 11:59:59.5", "2023-12-31", "0001-01-01 BC") for b in ("2024-02-29 12:00", "2024-01-31 12:00", "1999-02-28 23:59:59.999999", "2025-05-30")]) for ty in ("timestamp", "timestamptz")],
    *[(f"timezone(text,{ty})", [[zone, moment] for zone in ("America/St_Johns", "utc", "+05:30", "-3", "cest", "PST", "EST5EDT", "Etc/GMT+5", "+24", "") for moment in ("2024-03-31 02:30", "2024-07-01", "1900-01-01")]) for ty in ("timestamp", "timestamptz")],
]

FAMILIES["general"] = [
    ("concat(any)", [["a", "1", "t", "1.50"], [None, None, None, None], ["x", None, "f", "NaN"]], "text int4 bool numeric text"),
    ("concat(any)", [["2024-02-29 12:00:00+01", "{1,NULL}", "1 day"]], "timestamptz _int4 interval text"),
    ("concat_ws(text,any)", [[",", "a", "1", None], [None, "a", "1", "2"], ["", "a", None, "b"], ["-", None, None, None]], "text text int4 text text"),
    ("format(text)", [["plain %%"], ["%"], ["%s"], [None]], "text text"),
    ("format(text,any)", [[f, "Hello", "7"] for f in ("%s %s", "%s", "%2$s %1$s", "%I %L", "%-10s|%3s|", "%10s|", "%1$L", "%3$s", "%0$s", "%x", "%", "%%%s", "%2$s %s", "%*s", "%1$-8s|")], "text text int4 text"),
    ("format(text,any)", [["%I", "select"], ["%I", "Foo bar"], ["%I", 'a"b'], ["%L", "it's"], ["%L", "a\\b"], ["%I", None], ["%L", None], ["%s", None], ["%I", "plain_1"], ["%I", "1x"]], "text text text"),
    ("num_nulls(any)", [["1", None, "x"], [None, None, None], ["1", "t", "y"]], "int4 bool text int4"),
    ("num_nonnulls(any)", [["1", None, "x"], [None, None, None], ["1", "t", "y"]], "int4 bool text int4"),
    ("textanycat(text,anynonarray)", [["a", "5"], [None, "5"], ["a", None]], "text int4 text"),
    ("anytextcat(anynonarray,text)", [["5.50", "a"], [None, "a"], ["1", None]], "numeric text text"),
    ("quote_ident(text)", {0: ["select", "plain", "Foo", "a b", 'a"b', "between", "abort", "", "ä", "_x1"]}),
    ("quote_literal(anyelement)", [["1.5"], [None]], "numeric text"), ("quote_nullable(anyelement)", [["1.5"], [None]], "numeric text"),
]

ARRAY = ["{}", "{1}", "{1,2,3}", "{3,NULL,1}", "{{1,2},{3,4}}", "[0:2]={5,6,7}", "{2,2,1}"]
ELEMENT = ["1", "2", None]
FAMILIES["arrays"] = [
    *[(f"{name}(anyarray)", {0: ARRAY}, "_int4 " + result) for name, result in (("array_ndims", "int4"), ("array_dims", "text"), ("cardinality", "int4"))],
    *[(f"{name}(anyarray,int4)", {0: ARRAY, 1: ["0", "1", "2", "-1"]}, "_int4 int4 int4") for name in ("array_length", "array_lower", "array_upper")],
    ("array_append(anycompatiblearray,anycompatible)", {0: ARRAY, 1: ELEMENT}, "_int4 int4 _int4"),
    ("array_prepend(anycompatible,anycompatiblearray)", {1: ARRAY, 0: ELEMENT}, "int4 _int4 _int4"),
    ("array_cat(anycompatiblearray,anycompatiblearray)", [[a, b] for a in ARRAY + [None, "{{5,6}}", "{{{1,2}}}"] for b in ARRAY + [None, "{{5,6}}"]], "_int4 _int4 _int4"),
    ("array_remove(anycompatiblearray,anycompatible)", [[a, b] for a in ARRAY + [None] for b in ELEMENT], "_int4 int4 _int4"),
    ("array_replace(anycompatiblearray,anycompatible,anycompatible)", [[a, b, c] for a in ARRAY + [None] for b in ELEMENT for c in ("9", None)], "_int4 int4 int4 _int4"),
    ("array_position(anycompatiblearray,anycompatible)", [[a, b] for a in ARRAY + [None] for b in ELEMENT], "_int4 int4 int4"),
    ("array_position(anycompatiblearray,anycompatible,int4)", [[a, b, c] for a in ("{1,2,1}", "[0:2]={5,1,1}", "{{1}}") for b in ("1", None) for c in ("1", "2", "3", "-5", "9", None)], "_int4 int4 int4 int4"),
    ("array_positions(anycompatiblearray,anycompatible)", [[a, b] for a in ARRAY + [None] for b in ELEMENT], "_int4 int4 _int4"),
    ("trim_array(anyarray,int4)", [[a, b] for a in ARRAY + ["[2:3][0:1]={{1,2},{3,4}}"] for b in ("0", "1", "2", "5", "-1")], "_int4 int4 _int4"),
    *[(f"{name}(anyarray,anyarray)", {0: ARRAY, 1: ARRAY}, "_int4 _int4 bool") for name in ("arraycontains", "arraycontained", "arrayoverlap")],
    *[(f"array_{name}(anyarray,anyarray)", {0: ARRAY, 1: ARRAY}, "_int4 _int4 _int4") for name in ("larger", "smaller")],
    ("btarraycmp(anyarray,anyarray)", {0: ARRAY, 1: ARRAY}, "_int4 _int4 int4"),
    ("array_to_string(anyarray,text)", {0: ARRAY, 1: [",", "", "--"]}, "_int4 text text"),
    ("array_to_string(anyarray,text,text)", [[a, b, c] for a in ARRAY + [None] for b in (",", None) for c in ("*", None)], "_int4 text text text"),
    ("string_to_array(text,text)", [[a, b] for a in ("a,b,c", "", "abc", ",a,,", None) for b in (",", "", None, "bc")]),
    ("string_to_array(text,text,text)", [[a, b, c] for a in ("a,b,c", "", "a,,c") for b in (",", "", None) for c in ("b", "", None)]),
    ("array_fill(anyelement,_int4)", [["7", a] for a in ("{3}", "{2,2}", "{}", "{0}", "{-1}", "{NULL}", None, "{{1}}", "{1,1,1,1,1,1,1}")] + [[None, "{2}"]], "int4 _int4 _int4"),
    ("array_fill(anyelement,_int4,_int4)", [["7", "{3}", "{2}"], ["7", "{2,2}", "{1,5}"], ["7", "{2}", "{1,2}"], ["7", "{2}", None], [None, "{2}", "{0}"]], "int4 _int4 _int4 _int4"),
]
FAMILIES["roots"] = [
    *[(f"{name}(numeric)", {0: ["0", "1", "2", "2.00", "4", "100", "0.0001", "1234567890.12345", "-1", "NaN", "Infinity", "99999999999999999999", "0.1", "12", "1e-10", "3.14159265358979323846"]}) for name in ("sqrt", "numeric_sqrt")],
]

POSITIVE = ["0", "1", "1.0", "2", "2.00", "10", "0.5", "0.0001", "1234567890.12345", "-1", "NaN", "Infinity", "-Infinity", "99999999999999999999", "0.1", "1e-10", "3.14159265358979323846",
            "0.95", "1.05", "1.0000001", "0.9999999999", "1e30", "9999", "10001", "1.1", "0.9", "1.00000000000000000001", "1e-50"]
FAMILIES["powers"] = [
    ("exp(numeric)", {0: ["0", "0.0", "1", "1.0", "-1", "2.5", "10", "50.5", "87", "88", "-50", "-100.125", "-1000", "-5999", "-6000", "0.001", "1e-20", "0.01", "0.0100001", "3.14159265358979323846", "NaN", "Infinity", "-Infinity", "32.999", "-0.5"]}),
    ("numeric_exp(numeric)", {0: ["1.50"]}),
    *[(f"{name}(numeric)", {0: POSITIVE}) for name in ("ln", "log", "log10")], ("numeric_ln(numeric)", {0: ["7"]}),
    ("log(numeric,numeric)", [[base, value] for base in ("2", "2.0", "10", "0.5", "1", "0", "-1", "1.0000001", "NaN", "Infinity", "-Infinity", "1e10") for value in ("64", "0.125", "1", "0", "-3", "1.0000000001", "NaN", "Infinity", "1e37", "5.00000")]),
    ("numeric_log(numeric,numeric)", [["3", "9"], [None, "1"], ["1", None]]),
    ("power(numeric,numeric)", [[base, value] for base in ("2", "2.0", "-2", "0", "0.5", "-1.5", "1", "-1", "10", "1.0000001", "NaN", "Infinity", "-Infinity", "123.456", "1e-5", "0.0000001")
                                for value in ("0", "1", "-1", "2", "3", "-3", "10", "0.5", "-0.5", "2.0", "3.7", "NaN", "Infinity", "-Infinity", "-2.25")]),
    ("power(numeric,numeric)", [["2", "100"], ["2", "125"], ["2", "-100"], ["10", "37"], ["10", "-30"], ["1.0001", "100000"], ["1.0001", "-100000"], ["0.99", "5000"], ["0.99", "100000"], ["-3", "55"], ["1.5", "80.25"], ["0.001", "12.5"], ["1e10", "-4000"],
                                ["1.000000000001", "3000000000"], ["-1", "3000000001"], ["-1", "3000000000"], ["0", "3000000000"], ["0", "1.5"], ["7", "-200.5"], ["32.1", "9.8"], ["0.12", "-25.5"], ["0.0", "0"], ["3", "-1.000"], ["0.05", "13"], ["1e-300", "2"], ["1e-300", "1"]]),
    ("numeric_power(numeric,numeric)", [["2.5", "3"], [None, "1"], ["1", None]]), ("pow(numeric,numeric)", [["2.5", "0.3"]]),
    ("width_bucket(numeric,numeric,numeric,int4)", [["5.35", "0.024", "10.06", "5"], ["-1", "0", "10", "5"], ["10", "0", "10", "5"], ["9.999999999999999999999", "0", "10", "3"], ["11", "10", "0", "4"], ["3", "10", "0", "4"], ["0", "10", "0", "4"], ["3", "1", "1", "4"], ["3", "1", "5", "0"], ["3", "1", "5", "-1"], ["NaN", "0", "1", "3"], ["3", "NaN", "1", "3"], ["1", "0", "Infinity", "3"], ["Infinity", "0", "1", "3"], ["-Infinity", "0", "1", "3"], ["10", "0", "10", "2147483647"], ["1", "0", "3", "3"], ["2", "0", "3", "3"], [None, "0", "1", "2"]]),
]

WHOLE = ["{}", "{1}", "{1,2,3}", "{5,NULL,-7,5}", "{NULL,NULL}", "{0,0}", "{10,20,30,40,51}"]
FLOATS = ["{}", "{1.5}", "{1,2,4}", "{1e308,1e308}", "{NaN,1}", "{Infinity,1}", "{Infinity,-Infinity}", "{NULL,2.5,-3}", "{0.1,0.2,0.3,1e10}", "{2,2,2}"]
REALS = ["{}", "{1.5}", "{1,2,4}", "{NaN,1}", "{Infinity,1}", "{NULL,2.5,-3}", "{0.1,0.2,0.3}"]
NUMERICS = ["{}", "{1.50}", "{1,2.5,4.00}", "{NaN,1}", "{Infinity,1}", "{Infinity,-Infinity}", "{NULL,2.5,-3}", "{1.0,1.00}", "{0.1,0.2,0.3}"]
GROUPS = {"int2": WHOLE, "int4": WHOLE + ["{2147483647,2147483647}"], "int8": WHOLE + ["{9223372036854775807,9223372036854775807}"], "float4": REALS, "float8": FLOATS, "numeric": NUMERICS,
          "interval": ["{}", "{1 day}", "{1 mon,2 days,NULL}", "{-1 days,03:00:00}", "{1 year,1 day 01:00}"],
          "bool": ["{}", "{t}", "{f,t}", "{NULL,f}", "{t,t}", "{NULL}"],
          "oid": ["{}", "{1,4294967295,0}"], "date": ["{}", "{2024-01-01,1999-01-01,NULL}"], "time": ["{}", "{12:00,01:00}"], "timestamp": ["{}", "{2024-01-01,1999-01-01}"],
          "timestamptz": ["{}", "{2024-01-01,1999-01-01}"], "text": ["{}", "{b,a,NULL,\"\"}", "{\"a longer text than twelve bytes\",\"a longer text than twelve\"}"], "bpchar": ["{}", "{b,a}"]}


def one(name, types, result=None):
    return [(f"{name}({ty})", [ty], result or ty, [[group] for group in GROUPS[ty]], 0) for ty in types.split()]


AGGREGATES["sums"] = [
    ("count()", [], "int8", [[]], 0), ("count(any)", ["int4"], "int8", [[group] for group in WHOLE], 0), ("count(any)", ["text"], "int8", [[group] for group in GROUPS["text"]], 0),
    *one("sum", "int2 int4", "int8"), *one("sum", "int8 numeric", "numeric"), *one("sum", "float4 float8 interval"),
    *one("avg", "int2 int4 int8 numeric", "numeric"), *one("avg", "float4 float8", "float8"), *one("avg", "interval"),
    *one("bool_and", "bool"), *one("bool_or", "bool"), *one("every", "bool"),
    *[case for name in ("bit_and", "bit_or", "bit_xor") for case in one(name, "int2 int4 int8")],
    *[case for name in ("min", "max") for case in one(name, "int2 int4 int8 oid float4 float8 date time timestamp timestamptz interval text bpchar numeric")],
]
PAIRS = [["{}", "{}"], ["{1}", "{2}"], ["{1,2,3}", "{2,4,7}"], ["{1,NULL,3}", "{2,4,NULL}"], ["{1,2,3}", "{5,5,5}"], ["{5,5,5}", "{1,2,3}"], ["{NaN,1}", "{1,2}"], ["{Infinity,1}", "{1,2}"], ["{0.1,0.7,0.2,5}", "{3,1,4,1.5}"]]
AGGREGATES["statistics"] = [
    *[case for name in ("var_pop", "var_samp", "variance", "stddev_pop", "stddev_samp", "stddev") for case in one(name, "int2 int4 int8 numeric", "numeric") + one(name, "float4 float8", "float8")],
    *[(f"{name}(float8,float8)", ["float8", "float8"], "int8" if name == "regr_count" else "float8", PAIRS, 0)
      for name in "regr_count regr_sxx regr_syy regr_sxy regr_avgx regr_avgy regr_r2 regr_slope regr_intercept covar_pop covar_samp corr".split()],
]
AGGREGATES["collecting"] = [
    ("string_agg(text,text)", ["text", "text"], "text", [["{}", "{}"], ["{a,b,c}", "{\",\",-,+}"], ["{NULL,b,NULL,d}", "{1,2,3,NULL}"], ["{a,\"\"}", "{\",\",\",\"}"], ["{NULL}", "{x}"]], 0),
    ("string_agg(bytea,bytea)", ["bytea", "bytea"], "bytea", [["{}", "{}"], ['{"\\\\x61","\\\\x62"}', '{"\\\\x2c","\\\\x2d"}']], 0),
    *[("array_agg(anynonarray)", [ty], "_" + ty, [[group] for group in GROUPS[ty]], 0) for ty in ("int4", "text", "numeric", "timestamptz")],
]
FRACTIONS = ["0", "0.25", "0.5", "1", "0.9", "1.5", "-0.1", "NaN"]
AGGREGATES["ordered"] = [
    ("mode(anyelement)", ["int4"], "int4", [["{}"], ["{1}"], ["{1,1,2,2,3}"], ["{1,2,2,3,3,3}"]], 0),
    ("mode(anyelement)", ["text"], "text", [["{a,a,b}"], ["{a,b,b}"]], 0),
    ("percentile_disc(float8,anyelement)", ["float8", "int4"], "int4", [[f, g] for f in FRACTIONS[:-1] for g in ("{1}", "{1,2,3,4}", "{1,2,3,4,5}")] + [["0.5", "{}"]], 1),
    ("percentile_disc(float8,anyelement)", ["float8", "text"], "text", [["0.5", "{a,b,c}"], [None, "{a,b}"]], 1),
    ("percentile_cont(float8,float8)", ["float8", "float8"], "float8", [[f, g] for f in FRACTIONS[:-1] for g in ("{1}", "{1,2,3,4}", "{1,2.5,3,4,5}")] + [["0.5", "{}"]], 1),
    ("percentile_cont(float8,interval)", ["float8", "interval"], "interval", [[f, "{1 day,3 days,1 mon}"] for f in FRACTIONS[:5]], 1),
    ("percentile_disc(_float8,anyelement)", ["_float8", "int4"], "_int4", [["{0.5,NULL,1}", "{1,2,3,4}"], ["{}", "{1}"], [None, "{1}"]], 1),
    ("percentile_cont(_float8,float8)", ["_float8", "float8"], "_float8", [["{0.5,NULL,1}", "{1,2,3,4}"], ["{{0.1},{0.9}}", "{1,2}"]], 1),
]

TEMPLATES = ["YYYY-MM-DD HH24:MI:SS.MS", "FMDay, DDth FMMonth YYYY", "HH12:MI AM \"w\"IW", "Mon", "DAY|Day|day|DY|Dy|dy", "MONTH|Month|month|MON|mon", "Y,YYY YYY YY Y", "IYYY IYY IY I ID IDDD", "CC J Q RM rm W WW D DDD",
             "HH HH12 hh24 mi ss SSSS SSSSS US", "FF1 FF2 FF3 FF4 FF5 FF6", "A.D. b.c. BC ad P.M. a.m.", "FMMM FMDD FMHH24 FMMI FMDDD FMYYYY", "DDTH MMth YYYYTH", "\"quoted YYYY\" \\\"YYYY\\\"", "äöü/YYYY", "", "x", "TZH:TZM OF", "FMRM|", "TMMonth", "HH24MISS", "YYYYMMDD", "Hh24", "DDDD"]
DATE_FIELDS = "A.D. A.M. AD AM B.C. BC CC DAY DDD DD DY Day Dy D FF1 FF2 FF3 FF4 FF5 FF6 FX HH24 HH12 HH IDDD ID IW IYYY IYY IY I J MI MM MONTH MON MS Month Mon OF P.M. PM Q RM SSSSS SSSS SS TZH TZM TZ US WW W Y,YYY YYYY YYY YY Y".split()
FAMILIES["formats"] = [
    *[(f"to_char({ty},text)", [[value, template] for template in TEMPLATES for value in values])
      for ty, values in (("timestamp", ["2024-02-29 12:34:56.789", "0044-03-05 00:02:03 BC"]), ("timestamptz", ["2024-07-01 22:30:01.000001+00", "1999-12-31 23:59:59.999999+00"]))],
    ("to_char(interval,text)", [[value, template] for template in TEMPLATES if "IW" not in template and "WW" not in template and template != "Y,YYY YYY YY Y" for value in ("1 year 2 mons 3 days 04:05:06.789", "100:00:00", "-3 days -04:05:06")]),
    ("to_char(timestamp,text)", [[None, "YYYY"], ["2024-01-01", None]]),
    *[(f"to_char({ty},text)", [[value, f"{form}"] for name in DATE_FIELDS for form in (name, "FM" + name, name + "TH", "TM" + name + "th", name.lower() + "SP", "FMTM" + name) for value in values])
      for ty, values in (("timestamp", ["2021-01-03 00:00:00", "0012-12-31 13:01:02.003 BC"]), ("timestamptz", ["2024-07-01 22:30:01.5+00"]), ("interval", ["2 years", "-14 mons -5 days -13:02:03.004", "1 mon 40 days 25:00:00", "00:00:00", "-3 years"]))],
    ("to_char(timestamptz,text)", [["1890-01-01 00:00:00+00", "TZ tz OF TZH:TZM"], ["2024-01-01 00:00:00+00", "TZ tz OF TZH:TZM"]]),
]
READ_WITH = [
    ("2000-01-01 12:34:56", "YYYY-MM-DD HH24:MI:SS"), ("0097/Feb/16 --> 08:14:30", "YYYY/Mon/DD --> HH:MI:SS"), ("97/2/16 8:14:30", "FMYYYY/FMMM/FMDD FMHH:FMMI:FMSS"), ("2011$03!18 23_38_15", "YYYY-MM-DD HH24:MI:SS"), ("1985 January 12", "YYYY FMMonth DD"),
    ("1985 FMMonth 12", "YYYY \"FMMonth\" DD"), ("1985 \\ 12", "YYYY \\\\ DD"), ("My birthday-> Year: 1976, Month: May, Day: 16", "\"My birthday-> Year:\" YYYY, \"Month:\" FMMonth, \"Day:\" DD"), ("1,582nd VIII 21", "Y,YYYth FMRM DD"), ("15 \"text between quote marks\" 98 54 45", "HH24 \"\\\"text between quote marks\\\"\" YY MI SS"),
    ("05121445482000", "MMDDHH24MISSYYYY"), ("2000January09Sunday", "YYYYFMMonthDDFMDay"), ("97/Feb/16", "YYMonDD"), ("97/Feb/16", "YY:Mon:DD"), ("97/Feb/16", "FXYY:Mon:DD"), ("97/Feb/16", "FXYY/Mon/DD"), ("19971116", "YYYYMMDD"), ("20000-1116", "YYYY-MMDD"), ("1997 AD 11 16", "YYYY BC MM DD"), ("1997 BC 11 16", "YYYY BC MM DD"),
    ("1997 A.D. 11 16", "YYYY B.C. MM DD"), ("1997 B.C. 11 16", "YYYY B.C. MM DD"), ("9-1116", "Y-MMDD"), ("95-1116", "YY-MMDD"), ("995-1116", "YYY-MMDD"), ("2005426", "YYYYWWD"), ("2005300", "YYYYDDD"), ("2005527", "IYYYIWID"), ("005527", "IYYIWID"), ("05527", "IYIWID"), ("5527", "IIWID"), ("2005364", "IYYYIDDD"),
    ("20050302", "YYYYMMDD"), ("2005 03 02", "YYYYMMDD"), (" 2005 03 02", "YYYYMMDD"), ("  20050302", "YYYYMMDD"), ("2011-12-18 11:38 AM", "YYYY-MM-DD HH12:MI PM"), ("2011-12-18 11:38 PM", "YYYY-MM-DD HH12:MI PM"), ("2011-12-18 11:38 A.M.", "YYYY-MM-DD HH12:MI P.M."), ("2011-12-18 11:38 p.m.", "YYYY-MM-DD HH12:MI P.M."),
    ("2011-12-18 11:38 +05", "YYYY-MM-DD HH12:MI TZH"), ("2011-12-18 11:38 -05", "YYYY-MM-DD HH12:MI TZH"), ("2011-12-18 11:38 +05:20", "YYYY-MM-DD HH12:MI TZH:TZM"), ("2011-12-18 11:38 -05:20", "YYYY-MM-DD HH12:MI TZH:TZM"), ("2011-12-18 11:38 20", "YYYY-MM-DD HH12:MI TZM"), ("2011-12-18 11:38 PST", "YYYY-MM-DD HH12:MI TZ"), ("2011-12-18 11:38 +16", "YYYY-MM-DD HH12:MI TZH"), ("2011-12-18 11:38 +05:60", "YYYY-MM-DD HH12:MI TZH:TZM"),
    *[("2018-11-02 12:34:56" + ".123456789"[:n + 1 if n else 0], f"YYYY-MM-DD HH24:MI:SS.FF{n or 1}") for n in range(0, 8)], ("2018-11-02 12:34:56.025", "YYYY-MM-DD HH24:MI:SS.MS"), ("2018-11-02 12:34:56.25", "YYYY-MM-DD HH24:MI:SS.MS"), ("2018-11-02 12:34:56.2", "YYYY-MM-DD HH24:MI:SS.US"), ("12:34:56.7891", "HH24:MI:SS.US"), ("12:34:56.9999999", "HH24:MI:SS.US"),
    ("44-02-01 11:12:13 BC", "YYYY-MM-DD HH24:MI:SS BC"), ("-44-02-01 11:12:13", "YYYY-MM-DD HH24:MI:SS"), ("-44-02-01 11:12:13 BC", "YYYY-MM-DD HH24:MI:SS BC"), ("2011-12-18 23:38:15", "YYYY-MM-DD  HH24:MI:SS"), ("2011-12-18  23:38:15", "YYYY-MM-DD  HH24:MI:SS"), ("2011-12-18   23:38:15", "YYYY-MM-DD HH24:MI:SS"), ("2000+   JUN", "YYYY/MON"), ("  2000 +JUN", "YYYY/MON"), (" 2000 +JUN", "YYYY//MON"), ("2000  +JUN", "YYYY//MON"), ("2000 + JUN", "YYYY MON"), ("2000 ++ JUN", "YYYY  MON"), ("2000 + + JUN", "YYYY  MON"), ("2000 + + JUN", "YYYY   MON"), ("2000 -10", "YYYY TZH"), ("2000 -10", "YYYY  TZH"),
    ("2011 12  18", "YYYY MM DD"), ("2011 12  18", "YYYY MM   DD"), ("2011 12 18", "YYYYxMMxDD"), ("2011x 12x 18", "YYYYxMMxDD"), ("2011 x12 x18", "YYYYxMMxDD"), ("1 4 1902", "Q MM YYYY"), ("3 4 21 01", "W MM CC YY"), ("2458872", "J"), ("44-02-01 BC", "YYYY-MM-DD BC"), ("-44-02-01", "YYYY-MM-DD"), ("-44-02-01 BC", "YYYY-MM-DD BC"),
    ("2011-12-18 23:38:15", "YYYY-MM-DD HH12:MI:SS"), ("1997-11-Jan-16", "YYYY-MM-Mon-DD"), ("2005527", "YYYYIWID"), ("19971", "YYYYMMDD"), ("19971)24", "YYYYMMDD"), ("Friday 1-January-1999", "DY DD MON YYYY"), ("Fri 1-January-1999", "DY DD MON YYYY"), ("Fri, 1 Jan 99", "Dy, DD Mon YY"), ("10000000000", "FMYYYY"), ("2016-06-13 25:00:00", "YYYY-MM-DD HH24:MI:SS"), ("2016-06-13 15:60:00", "YYYY-MM-DD HH24:MI:SS"), ("2016-06-13 15:50:60", "YYYY-MM-DD HH24:MI:SS"), ("2016-06-13 15:50:55", "YYYY-MM-DD HH:MI:SS"), ("2016-13-01 15:50:55", "YYYY-MM-DD HH24:MI:SS"), ("2016-02-30 15:50:55", "YYYY-MM-DD HH24:MI:SS"), ("2016-02-29 15:50:55", "YYYY-MM-DD HH24:MI:SS"), ("2015-02-29", "YYYY-MM-DD"), ("2015-02-11 86000", "YYYY-MM-DD SSSS"), ("2015-02-11 86400", "YYYY-MM-DD SSSSS"), ("2016 365", "YYYY DDD"), ("2016 366", "YYYY DDD"), ("2016 367", "YYYY DDD"), ("2015 366", "YYYY DDD"), ("0000-02-01", "YYYY-MM-DD"), ("366", "DDD"), ("365 BC", "DDD BC"),
    ("", "YYYY"), ("2024", ""), ("  ", "YYYY"), ("x", "YYYY"), ("02 31", "MM DD"), ("31", "DD"), ("13", "MM"), ("21", "CC"), ("20 99", "CC YY"), ("20 00", "CC YY"), ("6 BC", "CC BC"), ("6 45 BC", "CC YY BC"), ("21 2005", "CC YYYY"), ("5874898-01-01", "YYYY-MM-DD"), ("294200-01-01", "YYYY-MM-DD"), ("4714-11-24 BC", "YYYY-MM-DD BC"), ("4714-11-23 BC", "YYYY-MM-DD BC"), ("99999-12-31", "YYYY-MM-DD"), ("12 am", "HH12 pm"), ("12 pm", "HH12 am"), ("0 am", "HH12 am"), ("5 PM", "HH PM"), ("17 AM", "HH24 AM"), ("may 5 2024", "Month DD YYYY"), ("Mayo 5 2024", "Month DD YYYY"), ("sep 5 2024", "mon dd yyyy"), ("Tuesday May 5", "Day Month DD"), ("iv 2024", "rm yyyy"), ("VIII 2024", "RM YYYY"), ("1st 2nd 2024th", "DDth MMth YYYYth"), ("1 024", "Y,YYY"), ("1,2", "Y,YYY"), ("-1,002", "Y,YYY"), ("2,0245", "Y,YYYDD"), ("2024-1-1", "YYYY-MM-DD"), ("2024-001-002", "YYYY-MM-DD"), ("20240105T101112", "YYYYMMDD\"T\"HH24MISS"), ("2024ä01ä05", "YYYYäMMäDD"), ("2024 1ä5", "YYYYMMDD"), ("2024-W05-3", "IYYY-\"W\"IW-ID"), ("2024-05", "IYYY-IW"), ("2020-53-7", "IYYY-IW-ID"), ("2024 3", "YYYY W"), ("2024-02-29 05", "YYYY-MM-DD FF2"), ("99 99", "YY MM"), ("2024-03-31 02:30", "YYYY-MM-DD HH24:MI"), ("2024-10-27 02:30", "YYYY-MM-DD HH24:MI"), ("1 1", "FX Q MM"), ("2024  05", "FXYYYY  MM"), ("2024 05", "FXYYYY  MM"), ("2024OF", "YYYYOF"), ("- 5", "FMDD"), ("2147483648", "J"), ("2147483647", "J"), ("2024 8", "YYYY D"), ("2024 1 8", "IYYY IW ID"), ("2024 1 1", "IYYY IW ID"), ("2024 1 Sunday", "IYYY IW Day"), ("2024-12", "YYYY-MM"), ("19", "YY"), ("519 520 521", "YYY"), ("1 2", "HH24 HH24"), ("am pm", "AM PM"), ("FF", "FF7"), ("2024FM05", "YYYY\"FM\"MM"), ("2024 TH", "YYYY \"TH\""),
]
FAMILIES["moment-templates"] = [
    *[(f"{name}(text,text)", [*[[text, template] for text, template in READ_WITH], [None, "YYYY"], ["2024", None]]) for name in ("to_date", "to_timestamp")],
]
NUMBER_TEMPLATES = ["999", "9999", "FM9999", "0000", "FM0000", "9990", "99.99", "FM99.99", "FM90.09", "0.99", "9.9", "FM9.9", "FM0.00", "99D99", "9,999", "9G999.99", "FM9,999,999", "FM9G999", "S9999", "9999S", "S999.99", "999.99S", "FMS999", "FM999S", "FMS99.99", "MI999", "999MI", "FM999MI", "FMMI999", "PL999", "999PL", "FM999PL", "SG999", "999SG", "FM999SG", "PLMI999", "999PR", "FM999PR", "999.99PR", "FM999.9PR", "9999TH", "FM9999th", "9999.99th", "L999", "999L", "B999", "B99.9", "99V9", "99V99", "FM9V999", "S99V9", "RN", "FMRN", "rn", "FMrn", "RN th", "9.99EEEE", "9EEEE", "9.999EEEE", "eeee", "99 \"w\"9", "9\\\"9", "ä9é9", "", "FM", "x", "9999999999999999", "0999.900", "FM0999.900", "FM999.990", "9 9 9", "$999", "00999", "9099", "FM9099.0990", "S0", "SP999", "fm99.9", "mi99", "sg99", "pr", "9.9.9", "9S9S", "SMI9", "PR9", "9EEEE9", "9V9.9", "9.9V9", "S9PR", "FM9EEEE", "9EEEEEEEE", "MIS9", "PLS9", "SGS9", "9.99999999999999999999", "FM999999999.999999999", "FM9999999999999999999.99999999", "999,999,999.99", "0,000", "FM0,000", "FM.99", ".99", ".00", "S.99", "9.", "FM9.", "0.", "99,"]
FAMILIES["number-templates"] = [
    *[(f"to_char({ty},text)", [[value, template] for template in NUMBER_TEMPLATES for value in values]) for ty, values in
      (("int4", ["0", "7", "-12", "485", "-12345", "2147483647"]), ("int8", ["0", "1", "-9223372036854775808", "3999", "112"]), ("float4", ["0", "0.1", "-485.25", "1e10", "NaN", "-Infinity"]),
       ("float8", ["0", "0.45", "-0.5", "148.5", "-1234.5678", "1e15", "123456789.123456789", "NaN", "Infinity", "-0", "1e-10"]), ("numeric", ["0", "0.1", "-0.5", "12", "-485.995", "1234.5678", "0.00", "99.99", "3999", "123456789012345.678", "NaN", "-Infinity", "-7e-12"]))],
    *[(f"to_char({ty},text)", [[None, "9"], ["1", None]]) for ty in ("int4", "numeric")],
    ("to_number(text,text)", [[text, template] for text, template in [
        ("-34,338,492", "99G999G999"), ("-34,338,492.654,878", "99G999G999D999G999"), ("<564646.654564>", "999999.999999PR"), ("0.00001-", "9.999999S"), ("5.01-", "FM9.999999S"), ("5.01-", "FM9.999999MI"),
        ("5 4 4 4 4 8 . 7 8", "9 9 9 9 9 9 . 9 9"), (".01", "FM9.99"), (".0", "99999999.99999999"), ("0", "99.99"), (".-01", "S99.99"), (".01-", "99.99S"), (" . 0 1-", " 9 9 . 9 9 S"), ("34,50", "999,99"), ("123,000", "999G"),
        ("123456", "999G999"), ("$1234.56", "L9,999.99"), ("$1234.56", "L99,999.99"), ("$1,234.56", "L99,999.99"), ("1234.56", "L99,999.99"), ("1,234.56", "L99,999.99"), ("42nd", "99th"), ("12,454.8-", "99G999D9S"), ("485", "999"), ("-485", "999"),
        ("+485", "S999"), ("485-", "999MI"), ("485 ", "999MI"), ("-485", "MI999"), ("485+", "999PL"), ("+485", "PL999"), ("-485", "SG999"), ("485+", "999SG"), ("x485", "999"), ("", "999"), ("abc", "999"), ("12", ""), ("12345", "99"), ("1.2345", "9.99"), ("12.5", "99"),
        ("123", "99V9"), ("12345", "999V99"), ("1", "9EEEE"), ("IV", "RN"), ("1 2", "99"), ("ä12", "x99"), ("12ä3", "99x9"), ("1,2,3", "9,9,9"), ("1,2,3", "FM9,9,9"), ("<5>", "9PR"), ("-5", "9PR"), ("1.", "9.9"), (".", "9.9"), ("-", "S9"), ("-.5", "S.9"), ("0012", "9999"), ("12", "0000"),
        ("1e5", "9999"), ("12.5th", "99.9th"), ("12th", "99TH"), ("1-", "9S"), ("1 -", "9S"), ("--1", "S99"), ("1-2", "999"), ("1.5.5", "9.9"), ("123.456", "999D999"), ("99999", "9G999"), ("9 ", "99"), ("1234567890123456789012345678901234567890", "9999999999999999999999999999999999999999")]] + [[None, "9"], ["1", None]]),
]
FAMILIES["encodings"] = [
    ("encode(bytea,text)", {1: ["hex", "base64", "escape", "HEX", "x"]}),
    ("encode(bytea,text)", [["\\x" + "ab" * n, "base64"] for n in (1, 2, 3, 56, 57, 58, 114, 115)]),
    ("decode(text,text)", [["00ffAb", "hex"], ["0", "hex"], ["zz", "hex"], ["00 ff\n", "hex"], ["YWJj", "base64"], ["YWI=", "base64"], ["YQ==", "base64"], ["YQ=", "base64"], ["YQ", "base64"], ["Y!==", "base64"], ["=", "base64"], ["YW Jj\n", "base64"], ["", "base64"],
                           ["a\\000b", "escape"], ["a\\\\b", "escape"], ["a\\b", "escape"], ["\\377", "escape"], ["\\477", "escape"], ["ä", "escape"], ["x", "rot13"], [None, "hex"]]),
]


def written(array):
    """The elements of an array of one dimension as a list of SQL."""
    return ", ".join("NULL" if word == "NULL" else f"'{word}'" for word in array.strip("{}").split(","))


def subscripted(array, numbers):
    return f"('{array}'::int4[])" + "".join(f"[{word}]" for word in numbers.strip("{}").split(","))


def sliced(array, omitted, bounds):
    bounds = ["" if int(omitted) >> place & 1 else word for place, word in enumerate(bounds.strip("{}").split(","))]
    return f"('{array}'::int4[])" + "".join(f"[{low}:{high}]" for low, high in zip(bounds[::2], bounds[1::2]))


def counted(clause, count):
    if count and count.startswith("-"):
        return f"(SELECT 1::int8 {clause} '{count}'::int8)"
    return f"'{count}'::int8" if count else "NULL::int8"


CUBES = ["{}", "{1,2,3}", "[0:2]={5,NULL,7}", "{{1,2,3},{4,5,6}}", "[2:3][-1:0]={{1,2},{3,4}}"]
SLICES = [("0", "{1,2}"), ("0", "{2,1}"), ("0", "{-5,9}"), ("1", "{0,2}"), ("2", "{2,0}"), ("3", "{0,0}"), ("0", "{NULL,1}"), ("0", "{1,NULL}"), ("0", "{1,1,2,2}"), ("9", "{0,2,2,0}"), ("0", "{1,2,5,6}"), ("0", "{2,2,-1,-1,1,1}"),
          ("0", "{-2147483648,2147483647}"), ("0", "{2147483647,-2147483648}")]
GRAMMAR = [
    *[(oid, name, ["_" + ty], ty, [[array] for array in arrays], lambda array, name=name, ty=ty: f"{name}({written(array)})::{ty}" if ty != "int4" else f"{name}(" + ", ".join(w + "::int4" for w in written(array).split(", ")) + ")")
      for oid, name in ((9000, "greatest"), (9001, "least")) for ty, arrays in (("int4", ["{1}", "{3,1,2}", "{NULL,5,NULL,-7}", "{NULL,NULL}"]), ("text", ["{b,a,B}", "{NULL,x}"]))],
    (9002, "array_subscript", ["_int4", "_int4"], "int4", [[array, numbers] for array in CUBES for numbers in ("{0}", "{1}", "{3}", "{4}", "{NULL}", "{1,1}", "{2,0}", "{2,3}", "{3,-1}", "{2147483647}", "{1,NULL}")], subscripted),
    (9003, "array_slice", ["_int4", "int4", "_int4"], "_int4", [[array, *slice] for array in CUBES for slice in SLICES], sliced),
    (9004, "limit_count", ["int8"], "int8", [["0"], ["5"], [None], ["-1"], ["-9223372036854775808"]], lambda count: counted("LIMIT", count)),
    (9005, "offset_count", ["int8"], "int8", [["0"], ["5"], [None], ["-1"], ["-9223372036854775808"]], lambda count: counted("OFFSET", count)),
]


def random_patterns(seed, count):
    """Patterns of random parts, groups and references among them, each with texts of the same letters."""
    import random
    draw = random.Random(seed)

    def pattern(depth, groups):
        out = ""
        for _ in range(draw.randint(1, 3)):
            kind = draw.randint(0, 8 if depth else 3)
            if kind <= 3:
                out += draw.choice(["a", "b", ".", "[ab]", "[^a]", "ab", "c"])
            elif kind <= 5:
                number = len(groups) + 1
                groups.append(False)
                out += "(" + pattern(depth - 1, groups) + ")"
                groups[number - 1] = True
            elif kind == 6:
                out += "(?:" + pattern(depth - 1, groups) + ")"
            elif kind == 7:
                out += "(?:" + pattern(depth - 1, groups) + "|" + pattern(depth - 1, groups) + ")"
            else:
                closed = [number + 1 for number, is_closed in enumerate(groups) if is_closed]
                out += "\\" + str(draw.choice(closed)) if closed else "(?=" + draw.choice("abc") + ")a"
            out += draw.choice(["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}?", "{1,1}?"])
        return out

    for _ in range(count):
        text = pattern(3, [])
        for _ in range(3):
            yield ["".join(draw.choice("aabbc") for _ in range(draw.randint(0, 8))), text]


MATCHED = [
    ["foobarbequebaz", "(bar)(beque)"], ["foobarbequebaz", "barbeque"], ["abc", ""], ["", ""], ["", "a*"], ["abc", "x"],
    ["XY1234Z", "Y*([0-9]{1,3})"], ["XY1234Z", "Y*?([0-9]{1,3})"], ["abc01234xyz", "(.*)(\\d+)(.*)"], ["abc01234xyz", "(.*?)(\\d+)(.*)"],
    ["abc01234xyz", "(?:(.*?)(\\d+)(.*)){1,1}"], ["aaa", "(a*)(ab)*(b*)"], ["abb", "(a*)(ab)*(b*)"], ["abab", "(a|ab|b)+"], ["ab", "(a|ab)(c|bcd)*"], ["abcd", "(a|ab)(c|bcd)(d*)"],
    ["xaaay", "(a+?)(a*)"], ["xaaay", "x(a*?)(a*)y"], ["the quick brown", "\\m(\\w)(\\w*)\\M"], ["a1 b2", "\\y\\d"], ["a1 b2", "\\Y\\d"], ["cat concat", "\\ycat\\y"], ["concat", "cat\\y"],
    ["abcabc", "(abc)\\1"], ["abcabd", "(abc)\\1"], ["aabb", "(a)\\1(b)\\2"], ["xx yy", "(\\w)\\1 (\\w)\\2"], ["aaaa", "^(a+)\\1$"], ["aaaaa", "^(a+)\\1$"], ["abab", "^((.)(.))\\1$"], ["aXbX", "a(.)b\\1"],
    ["", "()\\1"], ["aa", "(a)(b)?\\2"], ["foobar", "foo(?=bar)"], ["foobaz", "foo(?!bar)"], ["foobar", "(?<=foo)bar"], ["xbar", "(?<!foo)bar"], ["foobar", "(?<!foo)bar"], ["price: 100", "(?<=: )\\d+"], ["ab", "(?=(a))ab"],
    ["a\nb", "^b"], ["a\nb", "(?n)^b"], ["a\nb", "a.b"], ["a\nb", "(?p)a.b"], ["a\nb", "(?w)a.b"], ["a\nb", "(?w)^b$"], ["a\nb", "a$"], ["a\nb", "(?n)a$"], ["a\nb", "\\Aa"], ["a\nb", "(?n)b\\Z"], ["a\nb", "(?n)[^x]*"], ["a\nb", "(?n)\\Ab"],
    ["ABC", "(?i)abc"], ["ABC", "abc"], ["ÄÖÜ", "(?i)äöü"], ["Straße", "\\w+"], ["a.b", "***=a.b"], ["axb", "***=a.b"], ["a.b", "***:a.b"], ["a+b", "(?q)a+b"], ["ab", "(?x) a   b # comment"], ["ab", "a(?#comment)b"], ["AB", "(?ix) a b"],
    ["x-y", "[a-]"], ["x]y", "[]]"], ["x]y", "[^]x]"], ["a^b", "[b^]"], ["a\\b", "[\\\\]"], ["tab\there", "\\t"], ["5 apples", "[[:digit:]]+"], ["5 apples", "[[:alpha:]]+"], ["5 apples", "[[:space:]]"], ["foo_bar9", "[[:word:]]+"], ["a-b", "[[.hyphen.]]"], ["a-b", "[[.-.]]"], ["aeb", "[[=e=]]"],
    ["x", "[\\d\\w]"], ["!", "[^\\w]"], ["é", "[[:alpha:]]"], ["word one", "[[:<:]]o"], ["word one", "d[[:>:]]"], ["A", "\\x41"], ["A", "\\u0041"], ["A", "\\U00000041"], ["A", "\\101"], ["\u0001", "\\cA"], ["a{b", "a{b"], ["a{", "a{"], ["aaa", "a{2}"], ["aaa", "a{2,}"], ["aaaa", "a{2,3}?"],
    ["aa", "a{,2}"], ["{,2}", "{,2}"], ["", "a|"], ["b", "a||b"], ["abc", "()b"], ["x", "(|x)"], ["aab", "(a|aa)(b|ab)"], ["xyz", "x(?:y)z"], ["a)", "a\\)"], ["foo.bar", "foo\\.bar"],
    ["a", "**"], ["a", "*a"], ["a", "a**"], ["a", "+"], ["a", "("], ["a", ")"], ["a", "(a"], ["a", "[a"], ["a", "[b-a]"], ["a", "[[:foo:]]"], ["a", "[[.foo.]]"], ["a", "a{2,1}"], ["a", "a{256}"], ["a", "a{1"], ["a", "a{1x}"], ["a", "\\"], ["a", "\\q"], ["a", "\\1"], ["a", "(a)\\2"], ["a", "(?z)a"], ["a", "(?<a)"], ["a", "(?a"],
    ["a", "^*"], ["a", "$+"], ["a", "[a-b-c]"], ["a", "[[:alpha:]-z]"], ["a", "\\u12"], ["a", "\\x"], ["a", "***"], ["a", "(a){0}\\1"], ["a", "(?=(a))\\1"], ["a", "a{0}"], ["ab", "a{0}b"], ["ab", "(a){0}b"], ["aaa", "(a*)*"], ["aaa", "(a*)+"], ["aaab", "(a*?)*?b"], ["b", "(a*)*"], ["aaa", "(a*){2,3}"], ["ab", "((a)|(b))*"], ["ba", "((a)|(b))*"], ["abab", "((ab)|a|b){2}"],
    ["abcabc", "(?:(a)|(b)|(c))+"], ["abcde", "(a(b(c(d(e)))))"], ["aaaa", "(a{1,2})(a{1,2}?)(a*)"], ["xabcabcx", "(abc){2}"], ["xabcabcx", "(abc){1,2}?"], ["\u00e4\u00f6", "(.)(.)"], ["日本語", "(.)本(.)"], ["日本語", "\\w{3}"], ["a", "\\a|\\b|\\e|\\f|\\v|\\B|a"], [None, "a"], ["a", None],
    ["foo", "(?e)fo+"], ["a\\d", "(?e)a\\d"], ["aaa", "(?e)a+?"], ["aaa", "((((((((((a))))))))))\\10"], ["aa", "(a)\\01"], ["a\u0008", "(a)\\10"], ["ab12", "[[:alnum:]]+$"], ["AbC", "[[:upper:]]"], ["AbC", "(?i)[[:upper:]]+"], ["AbC", "(?i)[a-c]+"], ["AbC", "(?i)(a)bc|x"], ["aA", "(?i)(a)\\1"], ["aA", "(a)\\1"],
]
BACKED = ["foobar", "foo bar  baz", "", "aaa", "2024-02-29", "the quick brown fox"]
FAMILIES["regexps"] = [
    ("regexp_match(text,text)", MATCHED + list(random_patterns(7, 300))),
    ("regexp_match(text,text,text)", [["aBc", "b", flags] for flags in ("", "i", "c", "ic", "ci", "g", "z", "x", "q")] + [["a\nb", "^b", flags] for flags in ("n", "m", "s", "p", "w", "ns")] + [["a+b", "a+b", "q"], ["a", "a", None]]),
    *[(f"{name}({left},text)", [[text, pattern] for text in ("abc", "ABC", "a b") for pattern in ("b", "^A", "\\s", "(", "c$")]) for name, left in
      [(f"{prefix}{kind}", ty) for ty, prefix in (("text", "text"), ("name", "name"), ("bpchar", "bpchar")) for kind in ("regexeq", "regexne", "icregexeq", "icregexne")]],
    ("similar_to_escape(text)", {0: ["abc", "a%b_c", "a\\%b", "a.b^c$d", "(a|b)*", "[a%_\\]x", "a\\", "a#\"b", 'x\\"y\\"z', 'a\\"b\\"c\\"', "[\\\"]", "a+b?c{2}", ""]}),
    ("similar_to_escape(text,text)", [[pattern, escape] for pattern in ("a%b", "a#%b", 'a#"%#"b', "#", "a##b") for escape in ("#", "", "ab", "\\")] + [["a", None]]),
    ("similar_escape(text,text)", [["a%", None], [None, "#"], ["a#%", "#"], ["a", "ab"]]),
    ("substring(text,text)", [["foobar", "o.b"], ["foobar", "o(.)b"], ["foobar", "x"], ["foobar", "(x)?o"], ["Thomas", "...$"], ["foobar", "("], ["foobar", "(o)(b)"]]),
    ("substring(text,text,text)", [["foobar", '%#"o_b#"%', "#"], ["foobar", '#"o_b#"%', "#"], ["abcdefg", 'a#"(b_d)#"%', "#"], ["abcdefg", 'a#"%#"g', "#"], ["abcdefg", 'a#"%#"x', "#"], ["abcdefg", "a%g", "#"], ["abcdefg", 'a#"%#"%#"%', "#"], ["abcdefg", "a", "##"], ["Thomas", '%#"o_a#"_', "#"], ["abcdefg", 'a*#"%#"g*', "#"], ["abcdefg", 'a#"%|g"#', "#"]]),
    ("regexp_replace(text,text,text)", [[t, p, w] for t in BACKED for p, w in (("o+", "X"), ("(\\w)(\\w)", "\\2\\1"), ("", "-"), ("a*", "<\\&>"), ("b", "\\\\x\\"), ("^", "\\3"), ("(", "x"))] + [["a", None, "b"]]),
    ("regexp_replace(text,text,text,text)", [[t, p, w, f] for t in BACKED for p, w in (("o+", "X"), ("(\\w)(\\w)", "\\2\\1"), ("", "-"), ("a*", "<\\&>"), ("\\y", "|"), ("x*", "."), ("$", "!"), ("[aeiou]", "")) for f in ("g", "")] + [["A a", "a", "b", "gi"], ["A a", "a", "b", "1"], ["A", "a", "b", "k"], ["äöä", "", "-", "g"], ["äöä", "ä", "a", "g"]]),
    ("regexp_replace(text,text,text,int4)", [["A PostgreSQL function", "a|e|i|o|u", "X", n] for n in ("1", "5", "22", "23", "99", "0", "-1")]),
    ("regexp_replace(text,text,text,int4,int4)", [["A PostgreSQL function", "a|e|i|o|u", "X", s, n] for s in ("1", "7") for n in ("0", "1", "3", "9", "-1")]),
    ("regexp_replace(text,text,text,int4,int4,text)", [["A PostgreSQL function", "a|e|i|o|u", "X", s, n, f] for s in ("1", "3") for n in ("0", "1", "2") for f in ("", "i", "g", "z")]),
    ("regexp_split_to_array(text,text)", [[t, p] for t in BACKED for p in ("\\s+", "", "o", "\\s*", "x", "^", "(a)|b")]),
    ("regexp_split_to_array(text,text,text)", [["aXbxc", "x", "i"], ["aXbxc", "x", "g"], ["aXbxc", "x", ""], ["aXbxc", "x", None]]),
    ("regexp_count(text,text)", [[t, p] for t in BACKED for p in ("o", "", "a*", "\\w+", "x")]),
    ("regexp_count(text,text,int4)", [["ABCABCAXYaxy", "A.", n] for n in ("1", "2", "7", "12", "13", "20", "0")]),
    ("regexp_count(text,text,int4,text)", [["ABCABCAXYaxy", "A.", "1", f] for f in ("i", "", "g", "c", "z")]),
    ("regexp_like(text,text)", [["Steven", "^Ste(v|ph)en$"], ["x", "y"], ["a", "("]]),
    ("regexp_like(text,text,text)", [["Steven", "^ste(v|ph)en$", f] for f in ("i", "", "g", "z")]),
    ("regexp_instr(text,text)", [["abcabcabc", "c"], ["abc", "x"], ["äbc", "b"]]),
    ("regexp_instr(text,text,int4)", [["abcabcabc", "c", n] for n in ("1", "4", "10", "11", "0")]),
    ("regexp_instr(text,text,int4,int4)", [["abcabcabc", "c", "1", n] for n in ("1", "3", "4", "0")]),
    ("regexp_instr(text,text,int4,int4,int4)", [["abcabcabc", "c", "1", "2", n] for n in ("0", "1", "2", "-1")]),
    ("regexp_instr(text,text,int4,int4,int4,text)", [["abcABCabc", "C", "1", "2", "0", f] for f in ("i", "", "g")]),
    ("regexp_instr(text,text,int4,int4,int4,text,int4)", [["1234567890", "(123)(4(56)(78))", "1", "1", e, "i", n] for e in ("0", "1") for n in ("0", "1", "2", "3", "4", "5", "-1")] + [["abc", "b", "1", "1", "0", "", "1"], ["abc", "b", "1", "1", "0", "", "2"], ["ab", "(x)?b", "1", "1", "0", "", "1"]]),
    ("regexp_substr(text,text)", [["abcdefghi", "d.f"], ["abc", "x"], ["äbc", "."]]),
    ("regexp_substr(text,text,int4)", [["abcabcabc", "a.c", n] for n in ("1", "2", "8", "12", "0")]),
    ("regexp_substr(text,text,int4,int4)", [["abcABCabc", "[a-c]{3}", "1", n] for n in ("1", "2", "3", "0")]),
    ("regexp_substr(text,text,int4,int4,text)", [["abcABCabc", "[a-c]{3}", "1", "2", f] for f in ("i", "", "g")]),
    ("regexp_substr(text,text,int4,int4,text,int4)", [["1234567890", "(123)(4(56)(78))", "1", "1", "i", n] for n in ("0", "1", "2", "3", "4", "5", "-1")] + [["abc", "b", "1", "1", "", "1"], ["ab", "(x)?b", "1", "1", "", "1"]]),
]
SETS = {"regexps": [
    ("regexp_matches(text,text)", ["text", "text"], "_text", [["foobarbequebaz", "(bar)(beque)"], ["foobar", "x"], ["foobar", "o"], ["a", "("], [None, "a"]]),
    ("regexp_matches(text,text,text)", ["text", "text", "text"], "_text", [["foobarbequebazilbarfbonk", "(b[^b]+)(b[^b]+)", "g"], ["foobar", "o", "g"], ["aaa", "a*?", "g"], ["abc", "", "g"], ["abc", "(x)?", "g"], ["ABab", "a", "gi"], ["a", "a", "z"]]),
    ("regexp_split_to_table(text,text)", ["text", "text"], "text", [["the quick brown", "\\s+"], ["the fox", ""], ["", "x"], ["", ""], ["abc", "b*"], [None, "a"]]),
    ("regexp_split_to_table(text,text,text)", ["text", "text", "text"], "text", [["aXbxc", "x", "i"], ["a", "x", "g"]]),
]}


SETS["texts"] = [
    ("string_to_table(text,text)", ["text", "text"], "text", [["a,b,c", ","], ["", ","], ["abc", None], ["abc", ""], [None, ","], ["a,,b", ","]]),
    ("string_to_table(text,text,text)", ["text", "text", "text"], "text", [["a,b,c", ",", "b"], ["a,,b", ",", ""], ["a,b", None, "a"], ["", "", ""]]),
    ("unnest(anyarray)", ["_int4"], "int4", [["{1,NULL,3}"], ["{}"], [None], ["{{1,2},{3,4}}"]]),
    ("generate_subscripts(anyarray,int4)", ["_int4", "int4"], "int4", [["{1,2,3}", "1"], ["[0:1]={1,2}", "1"], ["{1}", "2"], ["{}", "1"], ["{1}", "0"], ["{1}", None]]),
    ("generate_subscripts(anyarray,int4,bool)", ["_int4", "int4", "bool"], "int4", [["{1,2,3}", "1", "t"], ["{1,2}", "1", "f"], ["{1}", "1", None]]),
]
FAMILIES["arrays"].append(("width_bucket(anycompatible,anycompatiblearray)", [[v, a] for v in ("0", "1", "5", "9", "10", None) for a in ("{1,5,10}", "{}", "{5,5,5}", "{{1,2},{3,4}}", "{1,NULL}", None)], "int4 _int4 int4"))
BYTES = ["\\x", "\\x00", "\\x61626364", "\\xff00aa", "\\x25615f", "\\x615c25"]
FAMILIES["bytes"] = [
    ("get_bit(bytea,int8)", [[b, n] for b in ("\\x", "\\xa5", "\\x0180") for n in ("0", "1", "7", "8", "15", "16", "-1", "9223372036854775807")] + [[None, "1"]]),
    ("set_bit(bytea,int8,int4)", [[b, n, v] for b in ("\\x", "\\xa5", "\\x0180") for n in ("0", "1", "15", "-1") for v in ("0", "1", "2")]),
    ("overlay(bytea,bytea,int4,int4)", [[b, "\\xffff", s, c] for b in ("\\x", "\\x61626364") for s in ("1", "3", "9", "0", "2147483647") for c in ("0", "2", "-1", "99", "2147483647")]),
    ("overlay(bytea,bytea,int4)", [[b, n, s] for b in ("\\x61626364",) for n in ("\\x", "\\xffff", "\\xffffffffff") for s in ("1", "3", "5", "9", "0")]),
    ("byteacmp(bytea,bytea)", [[a, b] for a in ("\\x", "\\x00", "\\x01", "\\x0102") for b in ("\\x", "\\x00", "\\x01", "\\x0102")]),
    *[(f"{name}(bytea,bytea)", [[b, p] for b in ("\\x", "\\x61", "\\x616263", "\\x6125", "\\xff00", "\\x61626162") for p in ("\\x", "\\x25", "\\x6125", "\\x5f", "\\x5f5f", "\\x256225", "\\x615c25", "\\x615c", "\\xff25", "\\x25615f", "\\x256162", "\\x2525")] + [[None, "\\x"]]) for name in ("bytealike", "byteanlike", "like", "notlike")],
    ("like_escape(bytea,bytea)", [[p, e] for p in ("\\x612362", "\\x615c62", "\\x23", "\\x2323") for e in ("\\x23", "\\x", "\\x5c", "\\x2324")]),
    "md5(text)", "md5(bytea)", "sha224(bytea)", "sha256(bytea)", "sha384(bytea)", "sha512(bytea)",
    ("convert_from(bytea,name)", [[b, e] for b in ("\\x", "\\x616263", "\\xc3a4", "\\xe4", "\\x80", "\\x81", "\\xa4a8", "\\x6100", "\\xff", "\\xe282ac", "\\xe282", "\\xc0af") for e in ("UTF8", "utf-8", "LATIN1", "latin-9", "WIN1252", "SQL_ASCII", "nothing", "ISO 8859-1")]),
    ("convert_to(text,name)", [[t, e] for t in ("", "abc", "ä", "€", "Š", "日", "\u0081", "\u00a4") for e in ("UTF8", "unicode", "LATIN1", "LATIN9", "windows-1252", "SQL_ASCII", "nothing")]),
    ("convert(bytea,name,name)", [[b, s, d] for b in ("\\x61", "\\xe4", "\\xc3a4", "\\xe282ac", "\\xa4") for s, d in (("LATIN1", "UTF8"), ("UTF8", "LATIN1"), ("UTF8", "LATIN9"), ("LATIN9", "UTF8"), ("UTF8", "UTF8"), ("SQL_ASCII", "UTF8"), ("x", "UTF8"), ("UTF8", "x"))]),
    ("length(bytea,name)", [[b, e] for b in ("\\x", "\\xc3a4", "\\xe4", "\\x6100") for e in ("UTF8", "LATIN1", "nothing")]),
]
FAMILIES["names"] = [
    ("parse_ident(text,bool)", [[t, s] for t in ("a", "a.b.c", ' "A b" . c ', 'Foo.Bar', '"x""y"', '""', '"a', ".a", "a.", "a..b", "1a", "a1$_", "a b", "a()", "ä.Ö", "", "  ", '"a"."b"x', "a.1") for s in ("t", "f")] + [[None, "t"]]),
    ("unistr(text)", {0: ["abc", "d\\0061t\\+000061", "d\\u0061t\\U00000061", "\\\\", "\\d83d\\de00", "\\d83d", "\\d83dx", "\\de00", "\\00", "\\zzzz", "\\", "\\u12", "\\+12345", "\\0000", "\\U00110000", "\\d83d\\d83d", "\\\\0061", "ä\\00e4"]}),
    *[(f"{name}(text,text)", [[t, f] for t in ("abc", "\u00e4", "a\u0308", "\ufb01", "\u2126", "\uac00", "e\u0301\u0323", "") for f in ("NFC", "NFD", "NFKC", "nfkd", "x")]) for name in ("normalize", "is_normalized")],
    ("nameconcatoid(name,oid)", [["abc", "7"], ["x" * 63, "12345"], ["ä" * 31, "1"]]),
    # PostgreSQL returns what memcmp does, of which the sign alone has a meaning: values whose first difference is 1.
    *[(f"{name}({types})", [[a, b] for a in ("a", "b", "abc", "abd") for b in ("a", "b", "abc", "abd") if a[:1] == b[:1] and len(a) == len(b) or len(a) + len(b) == 2]) for name, types in
      (("bttextcmp", "text,text"), ("btnamecmp", "name,name"), ("btnametextcmp", "name,text"), ("bttextnamecmp", "text,name"), ("bttext_pattern_cmp", "text,text"), ("btbpchar_pattern_cmp", "bpchar,bpchar"))],
]
SEEDS = ["0", "1", "-1", "81985529216486895"]
HASHED = ["", "a", "abc", "abcd", "abcdefgh", "abcdefghi", "abcdefghijkl", "abcdefghijklm", "Hällo Wörld, a longer text than twelve bytes", "123456789012345678901234"]
FAMILIES["hashes"] = [
    *[(f"{name}({ty})", {0: HASHED}) for name, ty in (("hashtext", "text"), ("hashname", "name"))],
    ("hashbpchar(bpchar)", {0: HASHED + ["a  "]}),
    *[(f"{name}({ty},int8)", [[t, s] for t in HASHED for s in SEEDS]) for name, ty in (("hashtextextended", "text"), ("hashnameextended", "name"), ("hashbpcharextended", "bpchar"))],
    *[f"hashint{n}(int{n})" for n in "248"], "hashoid(oid)", "uuid_hash(uuid)",
    *[(f"{name}extended({ty},int8)", {1: SEEDS}) for name, ty in (("hashint2", "int2"), ("hashint4", "int4"), ("hashint8", "int8"), ("hashoid", "oid"))],
    ("uuid_hash_extended(uuid,int8)", {1: SEEDS}),
]


def ordered(values, order):
    return ["{" + ",".join(values) + "}", "{" + ",".join([str(order)] * len(values)) + "}"]


RANKED = [(["1", "2", "2", "3", "5"], 0), (["NULL", "1", "2", "2", "3"], 2), (["1", "2", "2", "3", "NULL", "NULL"], 0), (["5", "3", "2", "2", "1", "NULL"], 1), (["NULL", "5", "2", "2"], 3), ([], 0)]
AGGREGATES["hypothetical"] = [
    (f"{name}(any)", ["int4", "int4", "int4"], "int8" if "rank" in name and "percent" not in name else "float8", [[direct, *ordered(values, order)] for values, order in RANKED for direct in ("0", "1", "2", "4", "9", None)], 1)
    for name in ("rank", "dense_rank", "percent_rank", "cume_dist")
]
AGGREGATES["stacking"] = [("array_agg(anyarray)", ["_int4"], "_int4", [[group] for group in ('{}', '{"{1,2}","{3,4}"}', '{"{1}"}', '{"{1,2}","{3}"}', '{"{}"}', '{NULL}', '{"{1}",NULL}', '{"[0:1]={1,2}","[0:1]={3,NULL}"}', '{"[0:1]={1,2}","{3,4}"}', '{"{{1,2}}","{{3,4}}","{{5,6}}"}', '{"{{{{{{1}}}}}}"}')], 0)]
