"""SQLAlchemy: create, insert, select, update, relationships, reflection."""

import datetime
import decimal
import os

from sqlalchemy import (
    Boolean,
    Date,
    DateTime,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    Numeric,
    String,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    func,
    inspect,
    select,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

checks = 0


def same(found, expected):
    global checks
    checks += 1
    assert found == expected, f"{found!r} instead of {expected!r}"


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customer"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(String(40), nullable=False, index=True)
    active: Mapped[bool] = mapped_column(Boolean, nullable=False, default=True)
    orders: Mapped[list["Order"]] = relationship(back_populates="customer", cascade="all, delete-orphan")


class Order(Base):
    __tablename__ = "customer_order"
    __table_args__ = (UniqueConstraint("customer_id", "number", name="order_number"),)
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    customer_id: Mapped[int] = mapped_column(ForeignKey("customer.id"), nullable=False)
    number: Mapped[int] = mapped_column(Integer, nullable=False)
    total: Mapped[decimal.Decimal] = mapped_column(Numeric(12, 2))
    weight: Mapped[float] = mapped_column(Float, nullable=True)
    placed: Mapped[datetime.date] = mapped_column(Date)
    changed: Mapped[datetime.datetime] = mapped_column(DateTime(timezone=True), nullable=True)
    note: Mapped[str] = mapped_column(Text, nullable=True)
    customer: Mapped[Customer] = relationship(back_populates="orders")


url = f"postgresql+psycopg://{os.environ['PGUSER']}@{os.environ['PGHOST']}:{os.environ['PGPORT']}/firn"
engine = create_engine(url)
Base.metadata.create_all(engine)
Base.metadata.create_all(engine)  # Everything exists already.

with Session(engine) as session:
    ada = Customer(name="Ada")
    ada.orders = [
        Order(number=number, total=decimal.Decimal("10.50") * number, placed=datetime.date(2024, 5, number))
        for number in range(1, 6)
    ]
    session.add_all([ada, Customer(name="Grace", active=False)])
    session.commit()
    same(ada.id is not None and ada.orders[0].id is not None, True)

with Session(engine) as session:
    totals = (
        select(Customer.name, func.count(Order.id), func.sum(Order.total))
        .join(Order, isouter=True)
        .group_by(Customer.name)
        .order_by(Customer.name)
    )
    same([tuple(row) for row in session.execute(totals)], [("Ada", 5, decimal.Decimal("157.50")), ("Grace", 0, None)])
    order = session.scalars(select(Order).where(Order.number == 3)).one()
    order.note = "changed"
    order.changed = datetime.datetime(2024, 6, 1, tzinfo=datetime.timezone.utc)
    session.commit()
    same(order.customer.name, "Ada")
    session.add(Order(customer_id=order.customer_id, number=3, total=1, placed=datetime.date(2024, 1, 1)))
    try:
        session.commit()
        raise AssertionError("a duplicate was let in")
    except IntegrityError as error:
        same(error.orig.diag.constraint_name, "order_number")
        session.rollback()
    page = select(Order.number).order_by(Order.number.desc()).limit(2).offset(1)
    same(list(session.scalars(page)), [4, 3])
    session.delete(session.get(Customer, order.customer_id))
    session.commit()
    same(session.scalar(select(func.count()).select_from(Order)), 0)

inspector = inspect(engine)
same(sorted(inspector.get_table_names()), ["customer", "customer_order"])
same(inspector.get_pk_constraint("customer")["constrained_columns"], ["id"])
columns = {column["name"]: column for column in inspector.get_columns("customer_order")}
same(list(columns), ["id", "customer_id", "number", "total", "weight", "placed", "changed", "note"])
same((columns["total"]["type"].precision, columns["total"]["type"].scale), (12, 2))
same((columns["number"]["nullable"], columns["note"]["nullable"]), (False, True))
(foreign_key,) = inspector.get_foreign_keys("customer_order")
same((foreign_key["constrained_columns"], foreign_key["referred_table"]), (["customer_id"], "customer"))
same([unique["name"] for unique in inspector.get_unique_constraints("customer_order")], ["order_number"])
same([index["column_names"] for index in inspector.get_indexes("customer")], [["name"]])

same(inspector.has_table("customer"), True)
same(inspector.has_table("nobody"), False)
same("public" in inspector.get_schema_names(), True)
same(inspector.get_foreign_keys("customer_order")[0]["referred_columns"], ["id"])
same(columns["placed"]["type"].as_generic().__class__, Date)
same(columns["changed"]["type"].timezone, True)
same(columns["weight"]["nullable"], True)

# Objects that the ORM did not create: schemas, views, checks, identity, sequences.
with engine.begin() as connection:
    connection.exec_driver_sql("CREATE SCHEMA side")
    connection.exec_driver_sql(
        "CREATE TABLE side.part (id integer GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, "
        "kind char(3) DEFAULT 'std', size integer CONSTRAINT positive CHECK (size > 0), "
        "owner integer REFERENCES public.customer (id) ON DELETE SET NULL)"
    )
    connection.exec_driver_sql("CREATE VIEW adults AS SELECT name FROM customer WHERE active")
    connection.exec_driver_sql("CREATE SEQUENCE numbers")
inspector = inspect(engine)
same(inspector.get_table_names(schema="side"), ["part"])
same(inspector.get_view_names(), ["adults"])
same("customer" in inspector.get_view_definition("adults"), True)
same("numbers" in inspector.get_sequence_names(), True)
(check,) = inspector.get_check_constraints("part", schema="side")
same((check["name"], "size > 0" in check["sqltext"]), ("positive", True))
columns = {column["name"]: column for column in inspector.get_columns("part", schema="side")}
same(columns["id"]["identity"]["always"], False)
same("std" in columns["kind"]["default"], True)
same(str(columns["kind"]["type"]), "CHAR(3)")
(foreign_key,) = inspector.get_foreign_keys("part", schema="side")
same((foreign_key["referred_table"], foreign_key["options"]), ("customer", {"ondelete": "SET NULL"}))
same(inspector.get_table_comment("customer"), {"text": None})
part = Table("part", MetaData(), schema="side", autoload_with=engine)
same([column.name for column in part.columns], ["id", "kind", "size", "owner"])
with engine.begin() as connection:
    # Many rows at once, with their generated keys.
    made = connection.execute(part.insert().returning(part.c.id), [{"size": size} for size in range(1, 101)])
    same(sorted(row.id for row in made), list(range(1, 101)))
    found = connection.execute(select(part.c.size), execution_options={"stream_results": True, "max_row_buffer": 10})
    same(sum(row.size for row in found), 5050)
    connection.exec_driver_sql("DROP TABLE side.part")
    connection.exec_driver_sql("DROP VIEW adults")
with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
    same(connection.exec_driver_sql("SELECT 1").scalar(), 1)

reflected = MetaData()
reflected.reflect(engine)
same(sorted(reflected.tables), ["customer", "customer_order"])
same(str(reflected.tables["customer"].c.name.type), "VARCHAR(40)")

Base.metadata.drop_all(engine)
same(inspect(engine).get_table_names(), [])
print(f"{checks} checks")
