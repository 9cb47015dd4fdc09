-- Sales within a nation, by nation of Europe (CH-benCHmark 5).
select n_name, sum(ol_amount) as revenue
from region, nation, supplier, stock, order_line, orders, customer
where r_name = 'Europe'
    and n_regionkey = r_regionkey
    and su_nationkey = n_nationkey
    and mod(s_w_id * s_i_id, 10000) = su_suppkey
    and ol_w_id = s_w_id
    and ol_i_id = s_i_id
    and ol_w_id = o_w_id
    and ol_d_id = o_d_id
    and ol_o_id = o_id
    and o_w_id = c_w_id
    and o_d_id = c_d_id
    and o_c_id = c_id
    and ascii(substr(c_state, 1, 1)) = su_nationkey
    and o_entry_d >= timestamp '2007-01-02 00:00:00'
group by n_name
order by revenue desc
