-- Important items of a nation's suppliers (CH-benCHmark 11).
select s_i_id, sum(s_order_cnt) as ordercount
from nation, supplier, stock
where n_name = 'Germany'
    and su_nationkey = n_nationkey
    and mod(s_w_id * s_i_id, 10000) = su_suppkey
group by s_i_id
having sum(s_order_cnt) > (
    select sum(s_order_cnt) * .005
    from nation, supplier, stock
    where n_name = 'Germany'
        and su_nationkey = n_nationkey
        and mod(s_w_id * s_i_id, 10000) = su_suppkey
)
order by ordercount desc
