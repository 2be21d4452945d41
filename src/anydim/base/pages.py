"""Documentation pages named in errors: an installed package does not contain them.

So an error has the title of the page, by which it can be found, and the essential text.
"""

from __future__ import annotations

from anydim.base.records import dataclass


@dataclass(frozen=True)
class Page:
    """A page of `docs/`: its title, and a text for readers of an error."""

    path: str
    title: str
    text: str

    def __str__(self) -> str:
        return f'{self.text}\n(documentation: "{self.title}")'


FROM_TORCH = Page(
    "guides/from-torch.md", "From torch",
    "give a module with example arguments, or an exported program: ad.compile(module.eval(), "
    '(example,), dynamic_shapes=({0: torch.export.Dim("batch")},))',
)  # fmt: skip
OPERATORS_OF_TORCH = Page(
    "operators-torch.md", "Operators of torch",
    "write them with other operators of torch, or run this part in torch",
)  # fmt: skip
FROM_SCIKIT_LEARN = Page(
    "guides/scikit-learn.md", "From scikit-learn, LightGBM and XGBoost",
    "compile what its converter makes: ad.compile(skl2onnx.to_onnx(fitted, X[:1]))",
)  # fmt: skip
IN_PLACE = Page(
    "guides/onnxruntime.md", "In place of onnxruntime", "anydim in place of onnxruntime"
)
PAGES = (FROM_TORCH, OPERATORS_OF_TORCH, FROM_SCIKIT_LEARN, IN_PLACE)
