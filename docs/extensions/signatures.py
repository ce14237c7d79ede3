"""Signatures as they are written: the shapes in their annotations are what a reader needs."""

import inspect

from sphinx.application import Sphinx


class Written(str):
    """An annotation that is shown without quotation marks."""

    __slots__ = ()
    __repr__ = str.__str__


def as_written(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str, str | None] | None:
    """The signature with its annotations as they stand in the source."""
    if signature is None or not callable(obj):
        return None
    try:
        found = inspect.signature(obj)
    except (TypeError, ValueError):
        return None
    parameters = list(found.parameters.values())
    if what == "method" and parameters and parameters[0].name == "self":
        del parameters[0]
    shown = [p.replace(annotation=_written(p.annotation)) for p in parameters]
    result = None if what == "class" else found.return_annotation
    text = str(found.replace(parameters=shown, return_annotation=inspect.Signature.empty))
    return text, result if isinstance(result, str) else returns


def _written(annotation: object) -> object:
    return Written(annotation) if isinstance(annotation, str) else annotation


def setup(app: Sphinx) -> dict[str, bool]:
    """Listens to autodoc."""
    app.connect("autodoc-process-signature", as_written)
    return {"parallel_read_safe": True}
