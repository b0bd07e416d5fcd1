"""The sample shop's tables, and how a row enters each."""

TABLES = """
CREATE TABLE categories (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE suppliers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, country TEXT NOT NULL);
CREATE TABLE products (
    id INTEGER PRIMARY KEY,
    sku TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    category_id INTEGER NOT NULL REFERENCES categories (id),
    supplier_id INTEGER NOT NULL REFERENCES suppliers (id),
    unit_cost REAL NOT NULL,
    list_price REAL NOT NULL,
    introduced_on TEXT NOT NULL
);
CREATE TABLE stores (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL, country TEXT NOT NULL);
CREATE TABLE employees (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    store_id INTEGER NOT NULL REFERENCES stores (id),
    hired_on TEXT NOT NULL
);
CREATE TABLE promotions (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    starts_on TEXT NOT NULL,
    ends_on TEXT NOT NULL,
    discount_rate REAL NOT NULL CHECK (discount_rate BETWEEN 0 AND 1)
);
CREATE TABLE customers (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    email TEXT NOT NULL UNIQUE,
    city TEXT NOT NULL,
    country TEXT NOT NULL,
    segment TEXT NOT NULL,
    signed_up_on TEXT NOT NULL
);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES customers (id),
    store_id INTEGER NOT NULL REFERENCES stores (id),
    promotion_id INTEGER REFERENCES promotions (id),
    ordered_at TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('completed', 'shipped', 'cancelled')),
    shipping_cost REAL NOT NULL
);
CREATE TABLE order_lines (
    id INTEGER PRIMARY KEY,
    order_id INTEGER NOT NULL REFERENCES orders (id),
    product_id INTEGER NOT NULL REFERENCES products (id),
    quantity INTEGER NOT NULL CHECK (quantity > 0),
    unit_price REAL NOT NULL,
    discount REAL NOT NULL CHECK (discount BETWEEN 0 AND 1)
);
CREATE TABLE payments (
    id INTEGER PRIMARY KEY,
    order_id INTEGER NOT NULL REFERENCES orders (id),
    method TEXT NOT NULL,
    amount REAL NOT NULL,
    paid_at TEXT NOT NULL
);
CREATE TABLE returns (
    id INTEGER PRIMARY KEY,
    order_line_id INTEGER NOT NULL REFERENCES order_lines (id),
    returned_on TEXT NOT NULL,
    quantity INTEGER NOT NULL CHECK (quantity > 0),
    reason TEXT NOT NULL,
    refund REAL NOT NULL
);
"""

INDEXES = """
CREATE INDEX products_by_category ON products (category_id);
CREATE INDEX orders_by_time ON orders (ordered_at);
CREATE INDEX orders_by_customer ON orders (customer_id);
CREATE INDEX order_lines_by_order ON order_lines (order_id);
CREATE INDEX order_lines_by_product ON order_lines (product_id);
CREATE INDEX payments_by_order ON payments (order_id);
CREATE INDEX returns_by_line ON returns (order_line_id);
ANALYZE;
"""
"""Made after the rows are in: one sort for each instead of 40,000 insertions."""

INSERTS = {
    "categories": "INSERT INTO categories VALUES (?, ?)",
    "suppliers": "INSERT INTO suppliers VALUES (?, ?, ?)",
    "products": "INSERT INTO products VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    "stores": "INSERT INTO stores VALUES (?, ?, ?, ?)",
    "employees": "INSERT INTO employees VALUES (?, ?, ?, ?)",
    "promotions": "INSERT INTO promotions VALUES (?, ?, ?, ?, ?)",
    "customers": "INSERT INTO customers VALUES (?, ?, ?, ?, ?, ?, ?)",
    "orders": "INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?)",
    "order_lines": "INSERT INTO order_lines VALUES (?, ?, ?, ?, ?, ?)",
    "payments": "INSERT INTO payments VALUES (?, ?, ?, ?, ?)",
    "returns": "INSERT INTO returns VALUES (?, ?, ?, ?, ?, ?)",
}
"""In the order that satisfies every foreign key."""
