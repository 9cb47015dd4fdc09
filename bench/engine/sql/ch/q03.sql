-- Undelivered orders of most value (CH-benCHmark 3).
select ol_o_id, ol_w_id, ol_d_id, sum(ol_amount) as revenue, o_entry_d
from customer, orders, new_order, order_line
where c_state like 'A%'
    and o_w_id = c_w_id
    and o_d_id = c_d_id
    and o_c_id = c_id
    and no_w_id = o_w_id
    and no_d_id = o_d_id
    and no_o_id = o_id
    and ol_w_id = o_w_id
    and ol_d_id = o_d_id
    and ol_o_id = o_id
    and o_entry_d > timestamp '2007-01-02 00:00:00'
group by ol_o_id, ol_w_id, ol_d_id, o_entry_d
order by revenue desc, o_entry_d
