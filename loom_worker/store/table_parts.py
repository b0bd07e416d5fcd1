"""What all tables are made of, and where they belong to one schema."""

from sqlalchemy import JSON, MetaData

METADATA = MetaData()

JSON_OR_NULL = JSON(none_as_null=True)
