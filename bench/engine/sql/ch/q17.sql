-- Revenue lost if small orders were not taken (CH-benCHmark 17).
select sum(ol_amount) / 2.0 as avg_yearly
from
    (
        select i_id, avg(ol_quantity) as average
        from item, order_line
        where i_data like '%b' and ol_i_id = i_id
        group by i_id
    ) as sold,
    order_line
where ol_i_id = i_id and ol_quantity < average
