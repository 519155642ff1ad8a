"""Measures cells of //experiments:peers: the suite's variants and the libraries, in one process.

Reads one request a line from stdin and writes replies, one a line, to stdout, all as JSON; peers.py
is at the other end. Runs in the environment of requirements_peers.txt. Functions of the user's own
(python_variants.py) are sides like the libraries.

A request is a layer, a batch, a phase and the sides to compare. Every side gets the same inputs and
weights, in its own layout. First, one iteration of the phase runs under the suite's memory meter,
and its results are checked against the float64 oracle. Then rounds: each side is timed once a
round, without the meter, in an order that moves on by one from round to round.
"""

import ctypes
import gc
import importlib.metadata
import json
import math
import os
import statistics
import sys
import time
import warnings

warnings.filterwarnings("ignore", message=r"(?s).*C\+\+ implementation not available")

import opt_einsum
import tensorly
import tltorch
import torch
import torchtt
import torchtt.nn

import python_variants
import ttbench

class Wrong(Exception):
    """A result that is not what it should be; the message says what to do."""


_RUN_OUT_OF_MEMORY = ("passes the memory budget", "can't allocate memory")
# Rounds go on past the fewest, to three times as many, while a side's spread is above this.
_CONVERGED_SPREAD = 0.05
# Past the time limit, too.
_FEWEST_ROUNDS = 3


class Layer:
    """What a request asks to compute."""

    def __init__(self, request):
        self.in_modes, self.out_modes = request["in_modes"], request["out_modes"]
        self.ranks, self.batch = request["ranks"], request["batch"]
        self.train, self.seed = request["phase"] == "train", request["seed"]

    @property
    def modes(self):
        return self.in_modes, self.out_modes, self.ranks

    def equation(self):
        """The whole layer as one einsum over x and the cores [r, n, m, r]."""
        count = len(self.in_modes)
        letters = iter("bcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
        n = [next(letters) for _ in range(count)]
        m = [next(letters) for _ in range(count)]
        r = [next(letters) for _ in range(count + 1)]
        cores = [r[k] + n[k] + m[k] + r[k + 1] for k in range(count)]
        return "a" + "".join(n) + "," + ",".join(cores) + "->a" + "".join(m)


# A side is a function of (layer, cores) that returns (forward, parameters, to_suite): the call that
# is measured, what it trains, and how a gradient of a parameter is read as the suite's core.

def _same(gradient):
    return gradient


def _swapped(gradient):
    return gradient.permute(0, 2, 1, 3)


def _parameters(layer, tensors):
    return [torch.nn.Parameter(tensor, requires_grad=layer.train) for tensor in tensors]


def _variant(name):
    def make(layer, cores):
        parameters = _parameters(layer, [core.clone() for core in cores])
        return (lambda x: torch.ops.ttbench.linear(name, *layer.modes, x, parameters),
                parameters, _same)
    return make


def _dense(layer, cores):
    count = len(cores)
    weight = cores[0]
    for core in cores[1:]:
        weight = torch.tensordot(weight, core, 1)
    weight = weight.squeeze(0).squeeze(-1).permute(
        *range(1, 2 * count, 2), *range(0, 2 * count, 2))
    weight = weight.reshape(math.prod(layer.out_modes), math.prod(layer.in_modes))
    parameters = _parameters(layer, [weight.contiguous()])
    return (lambda x: torch.ops.ttbench.linear("dense", *layer.modes, x, parameters),
            parameters, None)


def _tensorly(implementation):
    def make(layer, cores):
        # TensorLy-Torch's cores are [r, m, n, r].
        factors = _parameters(layer, [core.permute(0, 2, 1, 3).contiguous() for core in cores])
        in_modes, out_modes = tuple(layer.in_modes), tuple(layer.out_modes)
        weight = tltorch.BlockTT(factors, tensorized_shape=(out_modes, in_modes),
                                 rank=tuple(layer.ranks))
        module = tltorch.FactorizedLinear(in_modes, out_modes, bias=False, factorization=weight,
                                          implementation=implementation, device="cpu",
                                          dtype=torch.float32)
        return module, list(module.parameters()), _swapped
    return make


def _torchtt(layer, cores):
    module = torchtt.nn.LinearLayerTT(layer.in_modes, layer.out_modes, layer.ranks)
    # torchTT's cores are [r, m, n, r] too. The layer always adds a bias: one zero for all outputs.
    module.cores = torch.nn.ParameterList(
        _parameters(layer, [core.permute(0, 2, 1, 3).contiguous() for core in cores]))
    module.bias = torch.nn.Parameter(torch.zeros(()), requires_grad=False)
    shape = (layer.batch, *layer.in_modes)
    return (lambda x: module(x.view(shape)).reshape(layer.batch, -1), list(module.cores), _swapped)


def _torch_einsum(layer, cores):
    parameters = _parameters(layer, [core.clone() for core in cores])
    equation, shape = layer.equation(), (layer.batch, *layer.in_modes)
    return (lambda x: torch.einsum(equation, x.view(shape), *parameters).reshape(layer.batch, -1),
            parameters, _same)


def _opt_einsum(layer, cores):
    parameters = _parameters(layer, [core.clone() for core in cores])
    shape = (layer.batch, *layer.in_modes)
    contract = opt_einsum.contract_expression(
        layer.equation(), shape, *(core.shape for core in cores), optimize="optimal")
    return (lambda x: contract(x.view(shape), *parameters).reshape(layer.batch, -1),
            parameters, _same)


PEERS = {
    "peer-tensorly-factorized": (_tensorly("factorized"),
                                 "FactorizedLinear, one einsum reordered by opt_einsum"),
    "peer-tensorly-reconstructed": (_tensorly("reconstructed"),
                                    "FactorizedLinear, weight rebuilt, linear"),
    "peer-torchtt": (_torchtt, "LinearLayerTT, tensordot by tensordot"),
    "peer-torch-einsum": (_torch_einsum, "torch.einsum reordered by opt_einsum"),
    "peer-opt-einsum": (_opt_einsum, "contract_expression, optimal path found beforehand"),
}


def add_python_variant(spec):
    """Makes a side of the user's function; raises VariantError."""
    function = python_variants.load(spec)

    def make(layer, cores):
        parameters = _parameters(layer, [core.clone() for core in cores])
        return lambda x: function(x, parameters), parameters, _same

    PEERS[spec.name] = (make, spec.algorithm)


def _make(name, layer, cores):
    if name in PEERS:
        return PEERS[name][0](layer, cores)
    return (_dense if name == "dense" else _variant(name))(layer, cores)


def algorithm(name, layer):
    if name in PEERS:
        return PEERS[name][1]
    return torch.ops.ttbench.algorithm(name, *layer.modes, layer.batch, layer.train,
                                       torch.float32)


def _bytes(tensor):
    return tensor.untyped_storage().nbytes()


class Side:
    """A layer of one kind, set up to run the phase."""

    def __init__(self, name, layer, x, cores):
        self.layer = layer
        self.forward, self.parameters, self.to_suite = _make(name, layer, cores)
        self.x = x.clone().requires_grad_(layer.train)

    def run(self, dy):
        if self.layer.train:
            torch.autograd.backward(self.forward(self.x), dy)
            self.clear()
        else:
            with torch.no_grad():
                self.forward(self.x)

    def clear(self):
        self.x.grad = None
        for parameter in self.parameters:
            parameter.grad = None


def _relative_error(got, want):
    """The largest difference over the largest expected element; infinite for a NaN."""
    difference = (got.double() - want).abs().max().item()
    if math.isnan(difference):
        return math.inf
    return difference / want.abs().max().item() if difference else 0.0


def _check_y(side, y):
    layer = side.layer
    want = [layer.batch, math.prod(layer.out_modes)]
    if not isinstance(y, torch.Tensor) or list(y.shape) != want or y.dtype != torch.float32:
        got = (f"{y.dtype} {list(y.shape)}" if isinstance(y, torch.Tensor)
               else f"of type {type(y).__name__}")
        raise Wrong(f"y is {got} where it has to be a tensor torch.float32 {want}")
    storage = y.untyped_storage().data_ptr()
    for name, tensor in (("x", side.x), *((f"core {k + 1}", p)
                                         for k, p in enumerate(side.parameters))):
        if storage == tensor.untyped_storage().data_ptr():
            raise Wrong(f"y shares its memory with {name}: return a tensor of its own; clone() it")
    if layer.train and not y.requires_grad:
        raise Wrong("y has no history, so nothing can be trained: compute it from x and the cores by "
                    "differentiable operators, outside no_grad()")


def _gradient(name, tensor):
    if tensor.grad is None:
        raise Wrong(f"{name} got no gradient: y has to depend on it by differentiable operators")
    return tensor.grad


def _errors_of_gradients(side, x, dy, reference):
    """(tensor, its largest relative error) for the gradients of x and of every parameter."""
    rows, dx, dcores = reference[0], reference[2], reference[3:]
    got = _gradient("x", side.x)
    others = torch.ones(len(got), dtype=torch.bool)
    others[rows] = False
    yield "the gradient of x", _relative_error(got[rows], dx)
    if others.any():
        yield "the gradient of x", got[others].abs().max().item() / dx.abs().max().item()
    if side.to_suite is None:
        yield "the gradient of the weight", _relative_error(
            side.parameters[0].grad, dy[rows].double().T @ x[rows].double())
        return
    for k, (parameter, want) in enumerate(zip(side.parameters, dcores, strict=True)):
        gradient = side.to_suite(_gradient(f"core {k + 1}", parameter))
        yield f"the gradient of core {k + 1}", _relative_error(gradient, want)


def measure_memory(name, layer, x, dy, cores, reference, tolerance, budget_bytes):
    """One iteration under the meter: bytes of every stage, the largest error, and what has it.

    Raises Wrong, and whatever the side does.
    """
    meter = torch.ops.ttbench_measure
    rows = reference[0]
    gc.collect()
    meter.meter_start(budget_bytes)
    try:
        side = Side(name, layer, x, cores)
        weight = sum(map(_bytes, side.parameters))
        base = weight + _bytes(side.x)
        before = meter.meter_live()  # A side may have more than its parameters.
        meter.meter_reset_peak()
        with torch.set_grad_enabled(layer.train):
            y = side.forward(side.x)
        _check_y(side, y)
        figures = {"weight_bytes": weight, "forward_peak_bytes": meter.meter_peak() - base,
                   "peak_bytes": meter.meter_peak()}
        held = meter.meter_live() - weight - _bytes(y)
        errors = [("y", _relative_error(y.detach()[rows], reference[1]))]
        if layer.train:
            figures["held_bytes"] = held
            # Zero except in the rows whose gradients the oracle knows.
            checked_dy = torch.zeros_like(dy)
            checked_dy[rows] = dy[rows]
            meter.meter_reset_peak()
            torch.autograd.backward(y, checked_dy)
            figures["backward_peak_bytes"] = meter.meter_peak() - base
            figures["peak_bytes"] = max(figures["peak_bytes"], meter.meter_peak())
            errors += _errors_of_gradients(side, x, dy, reference)
        # Where y is wrong, gradients are too.
        worst, figures["max_relative_error"] = (
            errors[0] if errors[0][1] > tolerance else max(errors, key=lambda error: error[1]))
        del y
        side.clear()
        gc.collect()
        leaked = meter.meter_live() - before - (_bytes(checked_dy) if layer.train else 0)
        if leaked > 0:
            raise Wrong(f"{leaked} bytes outlive the iteration: what it allocates has to be gone "
                        "with y and the gradients")
        return figures, worst
    finally:
        meter.meter_stop()


def _sample(side, dy, iterations):
    start = time.perf_counter_ns()
    for _ in range(iterations):
        side.run(dy)
    return (time.perf_counter_ns() - start) / iterations


def _spread(samples):
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / statistics.median(samples)


def _keep_freed_pages():
    """As the suite does where it takes times: KeepFreedPages() in benchmarks/timing_pass.h."""
    trim_threshold, mmap_max = -1, -4  # In malloc.h.
    libc = ctypes.CDLL(None)
    libc.mallopt(mmap_max, 0)
    libc.mallopt(trim_threshold, -1)


def measure_time(sides, dy, request):
    """Interleaved samples of every side: {name: (ns of each round, iterations)}, why it ended."""
    _keep_freed_pages()
    iterations, samples = {}, {name: [] for name in sides}
    for name, side in sides.items():
        # The least of a few: one disturbed sample would leave a fast side with one iteration.
        first = _sample(side, dy, 1)
        tries = 5 if first < request["min_time_ns"] else 1
        once = min(_sample(side, dy, 1) for _ in range(tries))
        iterations[name] = max(1, math.ceil(request["min_time_ns"] / once))
    begun = time.perf_counter_ns()
    order = list(sides)
    while True:
        for name in order:
            samples[name].append(_sample(sides[name], dy, iterations[name]))
        order = order[1:] + order[:1]
        rounds = len(samples[order[0]])
        if rounds >= request["repetitions"] and all(
                _spread(taken) <= _CONVERGED_SPREAD for taken in samples.values()):
            return samples, iterations, "converged"
        if rounds >= 3 * request["repetitions"]:
            return samples, iterations, "max-repetitions"
        late = time.perf_counter_ns() - begun >= request["time_limit_ns"]
        if late and rounds >= _FEWEST_ROUNDS:
            return samples, iterations, "time-limit"


def _failure(error):
    text = " ".join(str(error).split())
    oom = isinstance(error, MemoryError) or any(words in text for words in _RUN_OUT_OF_MEMORY)
    return {"status": "oom" if oom else "crashed", "reason": f"{type(error).__name__}: {text}"}


def measure(request, reply):
    """Replies `begin` and the result of each side in turn, then the times of those that ran."""
    layer = Layer(request)
    measure_ops = torch.ops.ttbench_measure
    x, dy, cores = measure_ops.inputs(*layer.modes, layer.batch, layer.seed)
    reference = measure_ops.reference(*layer.modes, layer.batch, layer.train, layer.seed)
    tolerance = measure_ops.tolerance(*layer.modes, layer.batch, layer.train)
    sides = {}
    for name in request["sides"]:
        reply({"begin": name})
        result = {"side": name}
        try:
            reason = "" if name in PEERS else torch.ops.ttbench.why_unsupported(
                name, *layer.modes, layer.batch, layer.train, torch.float32)
            if reason:
                reply({**result, "status": "skipped", "reason": reason})
                continue
            result["algorithm"] = algorithm(name, layer)
            figures, worst = measure_memory(name, layer, x, dy, cores, reference, tolerance,
                                            request["memory_budget_bytes"])
            result |= figures
            error = result["max_relative_error"]
            if error > tolerance:
                result |= {"status": "wrong",
                           "reason": f"{worst} is wrong: it differs from the float64 oracle by "
                                     f"{error:.3g} of its largest element; {tolerance:.3g} is "
                                     "allowed"}
            else:
                result |= {"status": "ok", "reason": ""}
                sides[name] = Side(name, layer, x, cores)
        except Wrong as wrong:
            result |= {"status": "wrong", "reason": str(wrong)}
        except NotImplementedError as error:
            result |= {"status": "skipped", "reason": " ".join(str(error).split())
                       or "it raised NotImplementedError"}
        except Exception as error:  # A side may raise whatever it likes.
            result |= _failure(error)
            if name.startswith(python_variants.PREFIX) and result["status"] == "crashed":
                result["reason"] += (" (where it cannot compute a layer, it has to raise "
                                     "NotImplementedError with the reason)")
        reply(result)
    reply({"begin": ""})
    if sides:
        samples, iterations, stop_reason = measure_time(sides, dy, request)
        reply({"times": samples, "iterations": iterations, "stop_reason": stop_reason})


def versions():
    packages = ("torch", "opt-einsum", "tensorly", "tensorly-torch", "torchtt", "numpy")
    return {"python": sys.version.split()[0],
            **{package: importlib.metadata.version(package) for package in packages}}


def main(measure_library, threads, *python):
    torch.ops.load_library(measure_library)
    torch.set_num_threads(int(threads))
    tensorly.set_backend("pytorch")
    if not torch.backends.opt_einsum.is_available():
        sys.exit("peers: opt_einsum is not there, without which torch.einsum does not reorder")
    # What a library prints must not get between the replies.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def reply(message):
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    specs = [python_variants.Spec(*text.rsplit(":", 1)) for text in python]
    try:
        for spec in specs:
            add_python_variant(spec)
    except python_variants.VariantError as error:
        reply({"refused": str(error)})
        return
    reply({"variants": ttbench.variants(), "versions": versions(), "peers": list(PEERS),
           "fingerprint": json.loads(torch.ops.ttbench_measure.fingerprint()),
           "available_memory_bytes": torch.ops.ttbench_measure.available_memory()})
    calibration = None
    for line in sys.stdin:
        request = json.loads(line)
        if request["calibration"] != calibration:
            calibration = request["calibration"]
            ttbench.load_calibration(calibration)
        measure(request, reply)
        reply({"done": True})


if __name__ == "__main__":
    main(*sys.argv[1:])
