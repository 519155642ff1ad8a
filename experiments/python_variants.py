"""Python variants: callables of the user's own, which //experiments:peers --python-variant measures.

A variant is function(x, cores) -> y of torch tensors: x [B, N], core k [r_{k-1}, n_k, m_k, r_k],
y [B, M], differentiable by autograd in x and every core. It raises NotImplementedError(reason) where
it cannot compute a layer.
"""

import dataclasses
import importlib.util
import pathlib
import re
import sys

PREFIX = "py-"
_DEFAULT_FUNCTION = "forward"


class VariantError(ValueError):
    """No variant can be made of it; the message is one sentence for the user."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """What --python-variant names."""

    path: str
    function: str = ""  # "" for forward().

    @property
    def name(self):
        """As in rows: the function's name, or the file's if no function was given."""
        words = re.findall(r"[a-z0-9]+", (self.function or pathlib.Path(self.path).stem).lower())
        return PREFIX + "-".join(words)

    @property
    def algorithm(self):
        return f"{pathlib.Path(self.path).name}: {self.function or _DEFAULT_FUNCTION}()"

    @property
    def text(self):
        return self.path + (f":{self.function}" if self.function else "")


def parse(text, directory="."):
    """The spec in FILE.py or FILE.py:FUNCTION, relative to a directory; raises VariantError."""
    path, colon, function = text.partition(":")
    if colon and not function.isidentifier():
        raise VariantError(f"--python-variant: '{function}' is no function's name; write "
                           f"{path}:forward")
    full = pathlib.Path(directory, path)
    if full.suffix != ".py" or not full.is_file():
        raise VariantError(f"--python-variant: there is no Python file {full}; give the path of one "
                           "with a function forward(x, cores), or FILE.py:FUNCTION")
    return Spec(str(full.resolve()), function)


def load(spec):
    """The function; raises VariantError, also for whatever the file raises."""
    module_spec = importlib.util.spec_from_file_location(pathlib.Path(spec.path).stem, spec.path)
    module = importlib.util.module_from_spec(module_spec)
    sys.path.insert(0, str(pathlib.Path(spec.path).parent))  # What it imports from beside it.
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:  # Whatever it may be: the file is the user's.
        raise VariantError(f"--python-variant: {spec.path} could not be loaded: "
                           f"{type(error).__name__}: {' '.join(str(error).split())}") from error
    finally:
        sys.path.pop(0)
    function = getattr(module, spec.function or _DEFAULT_FUNCTION, None)
    if not callable(function):
        have = [name for name, value in vars(module).items()
                if callable(value) and getattr(value, "__module__", "") == module.__name__]
        raise VariantError(
            f"--python-variant: {spec.path} has no function {spec.function or _DEFAULT_FUNCTION}; "
            + (f"name one of {', '.join(have)} as in {pathlib.Path(spec.path).name}:{have[0]}"
               if have else "write forward(x, cores), which returns y"))
    return function
