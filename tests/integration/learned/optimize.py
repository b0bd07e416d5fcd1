"""Optimizes a tiny program with DSPy and a scripted model, saves it, and loads what was saved: a program of its own.

Usage: optimize.py FILE FOLDER: saved as JSON, and as a pickled program. Needs no network.
"""

import sys

import dspy
from dspy.utils import DummyLM


class Sort(dspy.Signature):
    """Sort a customer's message."""

    message: str = dspy.InputField()
    label: str = dspy.OutputField(desc="refund, order or other")


class Support(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sort = dspy.ChainOfThought(Sort)
        self.reply = dspy.Predict("message, label -> answer")

    def forward(self, message: str) -> dspy.Prediction:
        return self.sort(message=message)


def main(file: str, folder: str) -> None:
    model = DummyLM([{"reasoning": "It asks for money.", "label": "refund"}] * 20)
    trainset = [dspy.Example(message=f"money back {n}", label="refund").with_inputs("message") for n in range(4)]
    with dspy.context(lm=model):
        optimizer = dspy.BootstrapFewShot(
            metric=lambda example, prediction, trace=None: example.label == prediction.label,
            max_bootstrapped_demos=2,
            max_labeled_demos=3,
        )
        optimized = optimizer.compile(Support(), trainset=trainset)
    optimized.save(file)
    optimized.save(folder, save_program=True)
    again = Support()
    again.load(file)
    assert [len(each.demos) for each in again.predictors()] == [len(each.demos) for each in optimized.predictors()]


if __name__ == "__main__":
    main(*sys.argv[1:])
