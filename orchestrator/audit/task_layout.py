"""What a task's configuration and counts decide: parameters, buffers, hashed arrays. Pure.

Written from the task's definition (82 = 2 x 41 coordinates, two 41 x 41 weights a block, a head of ten
classes) and not taken from the task process, whose word is what an audit is about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.models import Config

WIDTH = 41
STATE = 2 * WIDTH
PIXELS = STATE - 1
CLASSES = 10
FLOAT_BYTES = 4
IMAGE = (1, 9, 9)

CORE_SAVED_BYTES_PER_EXAMPLE = STATE * FLOAT_BYTES
"""The backward pass keeps the core's final state, in float32, and nothing else of an example."""

ITEM_BYTES = {
    "torch.float32": 4,
    "torch.float64": 8,
    "torch.int64": 8,
    "torch.int32": 4,
    "torch.uint8": 1,
    "torch.bool": 1,
}

Shape = tuple[int, ...]


LIMITS: dict[str, tuple[float, float]] = {
    "alpha": (-16.0, 16.0),
    "batch_size": (1, 1_000_000),
    "momentum": (0.0, 1.0),
    "weight_decay": (0.0, 1.0),
    "seed": (0, 2**63 - 1),
    "depth": (1, 1_000),
    "epochs": (1, 10_000),
    "learning_rate": (0.0, 1e3),
}
"""The configurations that the task process takes."""


def _depth(config: Config) -> int:
    # What is listed here must end, whatever number a record claims.
    return min(config.depth, int(LIMITS["depth"][1]))


def _epochs(config: Config) -> int:
    return min(config.epochs, int(LIMITS["epochs"][1]))


def parameter_shapes(config: Config) -> dict[str, Shape]:
    """Shape of every parameter by name, in `named_parameters` order."""
    branches = {f"weights.{index}": (WIDTH, WIDTH) for index in range(2 * _depth(config))}
    return {**branches, "head.weight": (CLASSES, STATE), "head.bias": (CLASSES,)}


def parameter_count(config: Config) -> int:
    """How many numbers the parameters hold."""
    return 2 * config.depth * WIDTH * WIDTH + CLASSES * STATE + CLASSES


@dataclass(frozen=True)
class Array:
    """Shape and element type of an array, the type in NumPy's word."""

    shape: Shape
    dtype: str = "float32"


def buffers(config: Config, train_count: int, test_count: int) -> Iterator[tuple[str, Array]]:
    """Every named buffer of a prepared task, in the order of its inventory."""
    shapes = parameter_shapes(config)
    for name, shape in shapes.items():
        yield f"parameters.{name}", Array(shape)
        yield f"gradients.{name}", Array(shape)
    for copies in ("initial", "velocity"):
        for index, shape in enumerate(shapes.values()):
            yield f"{copies}.{index}", Array(shape)
    yield "raw", Array((train_count, PIXELS))
    yield "raw_query", Array((test_count, PIXELS))
    yield "labels", Array((train_count,), "int64")
    yield "x", Array((train_count, STATE))
    yield "q", Array((test_count, STATE))
    yield "orders", Array((config.epochs, train_count), "int64")
    yield "order", Array((train_count,), "int64")
    yield "predictions", Array((test_count,), "int64")
    yield "scores", Array((test_count, CLASSES))


def hashed_arrays(config: Config, train_count: int, test_count: int) -> dict[str, Array]:
    """Every array that is hashed, by the name of its field."""
    shapes = parameter_shapes(config)
    return {
        "input_hashes.train_images": Array((train_count, *IMAGE)),
        "input_hashes.train_labels": Array((train_count,), "int64"),
        "input_hashes.test_images": Array((test_count, *IMAGE)),
        **{
            f"epoch_permutation_sha256.{epoch}": Array((train_count,), "int64")
            for epoch in range(_epochs(config))
        },
        **{
            f"{group}.{name}": Array(shape)
            for group in ("initial_parameter_sha256", "final_parameter_sha256", "final_velocity_sha256")
            for name, shape in shapes.items()
        },
        "state_vector_sha256": Array((parameter_count(config),)),
        "predictions_sha256": Array((test_count,), "int64"),
        "scores_sha256": Array((test_count, CLASSES)),
    }


def contiguous_strides(shape: list[int]) -> list[int]:
    """Row-major strides in elements, as torch gives them to a new tensor."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape))):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return strides
