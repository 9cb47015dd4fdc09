-- Market share of a nation's suppliers in Europe by year (CH-benCHmark 8).
select
    extract(year from o_entry_d) as l_year,
    sum(case when n2.n_name = 'Germany' then ol_amount else 0 end) / nullif(sum(ol_amount), 0) as mkt_share
from item, stock, supplier, nation n2, order_line, orders, customer, nation n1, region
where i_data like '%b'
    and i_id = s_i_id
    and mod(s_w_id * s_i_id, 10000) = su_suppkey
    and su_nationkey = n2.n_nationkey
    and ol_i_id = s_i_id
    and ol_supply_w_id = s_w_id
    and ol_i_id < 1000
    and ol_w_id = o_w_id
    and ol_d_id = o_d_id
    and ol_o_id = o_id
    and o_w_id = c_w_id
    and o_d_id = c_d_id
    and o_c_id = c_id
    and n1.n_nationkey = ascii(substr(c_state, 1, 1))
    and n1.n_regionkey = r_regionkey
    and r_name = 'Europe'
    and o_entry_d between timestamp '2007-01-02 00:00:00' and timestamp '2030-01-02 00:00:00'
group by extract(year from o_entry_d)
order by l_year
