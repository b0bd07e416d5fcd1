"""One shop for all tests of this folder; nothing here may write to it."""

from tests.support.shop_file import shop_path

__all__ = ["shop_path"]
