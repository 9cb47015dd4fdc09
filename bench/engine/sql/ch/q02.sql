-- Suppliers in Europe with the least stock of an item (CH-benCHmark 2).
select su_suppkey, su_name, n_name, i_id, i_name, su_address, su_phone, su_comment
from
    region,
    nation,
    supplier,
    stock,
    item,
    (
        select s_i_id as m_i_id, min(s_quantity) as m_s_quantity
        from region, nation, supplier, stock
        where r_name like 'Europ%'
            and n_regionkey = r_regionkey
            and su_nationkey = n_nationkey
            and mod(s_w_id * s_i_id, 10000) = su_suppkey
        group by s_i_id
    ) as least
where r_name like 'Europ%'
    and n_regionkey = r_regionkey
    and su_nationkey = n_nationkey
    and mod(s_w_id * s_i_id, 10000) = su_suppkey
    and i_id = s_i_id
    and i_data like '%b'
    and i_id = m_i_id
    and s_quantity = m_s_quantity
order by n_name, su_name, i_id
