-- The supplier of most revenue (CH-benCHmark 15).
with revenue (supplier_no, total_revenue) as (
    select mod(s_w_id * s_i_id, 10000), sum(ol_amount)
    from stock, order_line
    where ol_i_id = s_i_id
        and ol_supply_w_id = s_w_id
        and ol_delivery_d >= timestamp '2007-01-02 00:00:00'
    group by mod(s_w_id * s_i_id, 10000)
)
select su_suppkey, su_name, su_address, su_phone, total_revenue
from supplier, revenue
where su_suppkey = supplier_no
    and total_revenue = (select max(total_revenue) from revenue)
order by su_suppkey
