"""Tools about money. Each function under @tool is one; the model sees its docstring and types."""

from typing import Annotated, Literal

from loom_worker import ToolFailed, tool

RATES = {"EUR": 1.0, "USD": 1.08, "JPY": 171.5}
"""What one euro is; put your own source here."""


@tool(read_only=True, timeout_s=5)
def convert(
    amount: Annotated[float, "Amount of money."],
    currency: Annotated[Literal["EUR", "USD", "JPY"], "What it is in now."],
    to: Annotated[Literal["EUR", "USD", "JPY"], "What it shall be in."] = "EUR",
) -> dict[str, object]:
    """Convert an amount of money into another currency."""
    if amount < 0:
        raise ToolFailed("amount must not be negative", "INVALID_INPUT")
    return {"amount": round(amount / RATES[currency] * RATES[to], 2), "currency": to}
