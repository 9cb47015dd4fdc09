-- Suppliers whose lines were the last of their order to be delivered (CH-benCHmark 21).
select su_name, count(*) as numwait
from nation, supplier, stock, order_line l1, orders
where n_name = 'Germany'
    and su_nationkey = n_nationkey
    and mod(s_w_id * s_i_id, 10000) = su_suppkey
    and l1.ol_w_id = s_w_id
    and l1.ol_i_id = s_i_id
    and l1.ol_w_id = o_w_id
    and l1.ol_d_id = o_d_id
    and l1.ol_o_id = o_id
    and l1.ol_delivery_d > o_entry_d
    and not exists (
        select *
        from order_line l2
        where l2.ol_w_id = l1.ol_w_id
            and l2.ol_d_id = l1.ol_d_id
            and l2.ol_o_id = l1.ol_o_id
            and l2.ol_delivery_d > l1.ol_delivery_d
    )
group by su_name
order by numwait desc, su_name
