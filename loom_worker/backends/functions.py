"""The functions a statement for a server may call: they compute from their arguments, and touch nothing else.

A list of what is allowed, as nobody can list what a server's thousands of functions and its users' own may do: read
files, sleep, lock, send mail, run text as SQL. What is not here is refused, with the nearest name that is.
"""

from collections.abc import Mapping

_COMMON = """
    abs acos asin atan atan2 cbrt ceil ceiling cos cot degrees div exp floor greatest least ln log log10 log2 mod pi
    pow power radians round sign sin sqrt tan trunc truncate width_bucket bit_count
    ascii bit_length btrim char char_length character_length chr concat concat_ws format initcap instr left length
    locate lower lpad ltrim md5 octet_length overlay position replace reverse right rpad rtrim sha256 split_part
    starts_with strpos substr substring translate trim upper ucase lcase mid
    regexp_like regexp_replace regexp_substr regexp_instr regexp_matches regexp_count
    coalesce ifnull nullif nvl if cast try_cast convert
    avg count sum min max stddev stddev_pop stddev_samp variance var_pop var_samp corr covar_pop covar_samp
    regr_slope regr_intercept regr_r2 regr_count mode percentile_cont percentile_disc bool_and bool_or every bit_and
    bit_or bit_xor array_agg string_agg group_concat json_agg json_object_agg any_value
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value grouping
    now current_date current_time current_timestamp localtime localtimestamp date time timestamp year month day hour
    minute second quarter week dayofweek dayofmonth dayofyear weekday extract date_part date_trunc age last_day
    make_date make_time make_timestamp make_interval to_char to_date to_number to_timestamp
    json_object json_array json_extract json_array_length json_valid json_keys json_value
    unnest row array version current_database database
"""

_POSTGRESQL = """
    regexp_match regexp_split_to_array regexp_split_to_table string_to_array string_to_table array_to_string
    quote_literal array_length array_position array_positions array_append array_cat array_prepend array_remove
    array_replace array_ndims array_lower array_upper cardinality generate_series generate_subscripts json_build_object
    json_build_array jsonb_build_object jsonb_build_array jsonb_agg jsonb_object_agg to_json to_jsonb
    json_array_elements json_array_elements_text jsonb_array_elements jsonb_array_elements_text json_each json_each_text
    jsonb_each jsonb_each_text json_object_keys jsonb_object_keys jsonb_array_length json_typeof jsonb_typeof
    json_extract_path json_extract_path_text jsonb_extract_path jsonb_extract_path_text jsonb_path_exists
    jsonb_path_query jsonb_path_query_array jsonb_path_query_first jsonb_pretty jsonb_set jsonb_strip_nulls
    json_strip_nulls jsonb_exists jsonb_exists_any jsonb_exists_all row_to_json clock_timestamp statement_timestamp
    transaction_timestamp isfinite justify_days justify_hours justify_interval timezone date_bin date_add date_subtract
    to_tsvector to_tsquery plainto_tsquery phraseto_tsquery websearch_to_tsquery ts_rank ts_rank_cd ts_headline
    similarity word_similarity num_nulls num_nonnulls scale gcd lcm factorial encode decode to_hex lower_inc upper_inc
    isempty range_merge int4range int8range numrange daterange tsrange tstzrange
"""

_MYSQL = """
    adddate addtime date_add date_sub date_format datediff dayname monthname from_days from_unixtime makedate maketime
    period_add period_diff sec_to_time str_to_date subdate subtime time_format time_to_sec timediff timestampadd
    timestampdiff to_days to_seconds unix_timestamp utc_date utc_time utc_timestamp weekofyear yearweek curdate curtime
    sysdate convert_tz bin conv crc32 elt export_set field find_in_set hex isnull make_set oct ord quote rlike sha1 sha2
    soundex strcmp substring_index unhex isnumeric std json_arrayagg json_objectagg json_contains json_contains_path
    json_depth json_length json_merge_patch json_quote json_search json_type json_unquote json_table json_overlaps
    json_pretty member match against values
"""

_DUCKDB = """
    approx_count_distinct approx_quantile arg_max arg_min max_by min_by median quantile quantile_cont quantile_disc mad
    first last list histogram entropy kurtosis skewness product fsum favg count_if countif count_star sem
    array_contains array_distinct array_length array_slice array_sort list_aggregate list_concat list_contains
    list_count list_distinct list_element list_extract list_filter list_max list_min list_position list_reduce
    list_reverse list_slice list_sort list_sum list_transform list_value list_zip len flatten range generate_series
    struct_pack struct_extract map map_keys map_values map_entries element_at cardinality row_to_json to_json
    json_extract_string json_type json_structure json_group_array json_group_object json_transform
    contains prefix suffix ends_with string_split split str_split string_split_regex regexp_extract
    regexp_extract_all regexp_full_match regexp_split_to_array strip_accents levenshtein jaccard jaro_similarity
    jaro_winkler_similarity damerau_levenshtein hamming printf hash hex unhex bin ord unicode strlen
    array_to_string date_diff datediff date_add date_sub datepart dayname monthname epoch epoch_ms epoch_us isodow
    isoyear julian strftime strptime time_bucket today to_days to_hours to_minutes to_months to_seconds to_weeks
    to_years try_strptime weekofyear yearweek century decade dayofweek even factorial fmod gamma gcd lcm isfinite isinf
    isnan nextafter signbit typeof
"""

_STRUCTURE = """
    select from where and or not in exists as over partition by on using values with recursive filter group when then
    else case end having union all any some between like ilike similar to is distinct limit offset fetch join lateral
    cube rollup sets interval order except intersect cross inner left right full outer materialized within escape regexp
    rlike window rows qualify columns pivot unpivot for return returning xor binary collate div mod straight_join force
    use ignore index key first next only
"""
"""Words of the grammar itself that may stand before a bracket."""

_TYPES = """
    bigint binary bit blob bool boolean bpchar char character clob date datetime decimal double enum float int integer
    interval json jsonb list map nchar number numeric nvarchar precision real signed smallint struct text time timestamp
    timestamptz timetz tinyint unsigned varbinary varbit varchar varying uuid year zone
"""


def _words(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in text.split())


FUNCTIONS: Mapping[str, frozenset[str]] = {
    "postgres": _words(_COMMON, _POSTGRESQL),
    "mysqlansi": _words(_COMMON, _MYSQL),
    "duckdb": _words(_COMMON, _DUCKDB),
    "sqlite": frozenset(),
}
"""By sqlglot's name of the dialect, in lower case; SQLite's own authorizer judges its functions."""

GRAMMAR = _words(_STRUCTURE, _TYPES)
"""Words that are no functions and may stand before a bracket."""
