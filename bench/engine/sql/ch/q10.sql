-- Customers by revenue (CH-benCHmark 10).
select c_id, c_last, sum(ol_amount) as revenue, c_city, c_phone, n_name
from nation, customer, orders, order_line
where n_nationkey = ascii(substr(c_state, 1, 1))
    and o_w_id = c_w_id
    and o_d_id = c_d_id
    and o_c_id = c_id
    and ol_w_id = o_w_id
    and ol_d_id = o_d_id
    and ol_o_id = o_id
    and o_entry_d >= timestamp '2007-01-02 00:00:00'
    and o_entry_d <= ol_delivery_d
group by c_id, c_last, c_city, c_phone, n_name
order by revenue desc
