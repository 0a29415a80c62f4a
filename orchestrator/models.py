"""Every record that qualgate reads or writes, as strict pydantic models: the one source of `schemas/`.

Rules
- Strict: no coercion, no unknown keys, no NaN or Infinity. `true` is not 1, `1.0` is not the integer 1.
- A number keeps the form it had (`3` stays `3`, `400.0` stays `400.0`), so a record survives a
  load and a save without losing a digit.
- Every field that a version has is required; "not available" is said with `Unavailable`, or with null
  where the seed record does, and never with zero.
- Attribute, JSON key and word in the documentation are the same.
- `schema_version` 1 is the seed record's form; 2 adds devices, numerics, platform and attested environment.

What this module leaves to others: reading and writing text (`codec`), rules across fields (`audit`),
judging (`verdict`).
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
    field_serializer,
)

# --- vocabulary ---------------------------------------------------------------------------------


def is_utc_time(text: object) -> bool:
    """Whether a string is a real time: a pattern admits 30 February, the calendar does not.

    Raises:
        ValueError: when it is not.
    """
    return not isinstance(text, str) or bool(datetime.fromisoformat(text))


def _check_time(text: str) -> str:
    is_utc_time(text)
    return text


def _constant(expected: bool | int) -> AfterValidator:
    def check(value: Any) -> Any:
        if value != expected:
            raise ValueError(str(expected).lower())
        return value

    return AfterValidator(check)


def _number(minimum: float | None = None, *, exclusive: bool = False) -> PlainValidator:
    def check(value: Any) -> Any:
        if type(value) not in (int, float) or not math.isfinite(value):
            raise ValueError("a finite number")
        if minimum is not None and (value <= minimum if exclusive else value < minimum):
            raise ValueError(f"a number {'above' if exclusive else 'of at least'} {minimum}")
        return value

    return PlainValidator(check)


Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", min_length=64, max_length=64)]
"""A SHA-256 digest: 64 lower-case hex digits."""

UtcTime = Annotated[
    str,
    StringConstraints(
        pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}\+00:00$", min_length=32, max_length=32
    ),
    AfterValidator(_check_time),
    WithJsonSchema(
        {
            "type": "string",
            "format": "date-time",
            "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}\+00:00$",
            "minLength": 32,
            "maxLength": 32,
        }
    ),
]
"""A time in UTC with microseconds and an explicit offset, as `datetime.isoformat` writes it."""

Number = Annotated[float, _number(), WithJsonSchema({"type": "number"})]
NonNegative = Annotated[float, _number(0), WithJsonSchema({"type": "number", "minimum": 0})]
Positive = Annotated[
    float, _number(0, exclusive=True), WithJsonSchema({"type": "number", "exclusiveMinimum": 0})
]
Count = Annotated[int, Field(ge=0)]
PositiveCount = Annotated[int, Field(ge=1)]
AlwaysFalse = Annotated[bool, _constant(False), WithJsonSchema({"type": "boolean", "const": False})]
VersionOne = Annotated[int, _constant(1), WithJsonSchema({"type": "integer", "const": 1})]
VersionTwo = Annotated[int, _constant(2), WithJsonSchema({"type": "integer", "const": 2})]

ParameterName = Annotated[str, StringConstraints(pattern=r"^(weights\.[0-9]+|head\.(weight|bias))$")]
# No part of a file name starts with two dots: a record must not point out of its folder.
_PART = r"\.?[A-Za-z0-9_-][A-Za-z0-9_.-]*"
FileName = Annotated[str, StringConstraints(pattern=rf"^{_PART}(/{_PART})*$")]
CaseName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+([.-][a-z0-9]+)*$", max_length=64)]
Text = Annotated[str, StringConstraints(min_length=1)]

Workspace = Literal[":16:8", ":4096:8", ":0:0"]
Mode = Literal["measure", "profile"]
Scope = Literal["task", "training"]
Device = Literal["cpu", "cuda"]
NumericsName = Literal["native", "portable"]
Level = Literal["bitwise", "predictions"]
Dtype = Literal["torch.float32", "torch.float64", "torch.int64", "torch.int32", "torch.uint8", "torch.bool"]

HashGroup = Literal[
    "input_hashes",
    "initial_parameter_sha256",
    "epoch_permutation_sha256",
    "final_parameter_sha256",
    "final_velocity_sha256",
    "state_vector_sha256",
    "predictions_sha256",
    "scores_sha256",
]


class Strict(BaseModel):
    """The base of every model: strict, closed and frozen."""

    # defer_build: a command builds validators for the one record kind it reads, not for all of them.
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class Unavailable(Strict):
    """A value that could not be had, with the reason and what would help."""

    unavailable: Text
    remedy: str


# --- what is computed ---------------------------------------------------------------------------


class Config(Strict):
    """The learner's eight constants, in the order of the configuration file."""

    alpha: Number
    batch_size: PositiveCount
    momentum: NonNegative
    weight_decay: NonNegative
    seed: Count
    depth: PositiveCount
    epochs: PositiveCount
    learning_rate: Positive


# The order in which the seed record's metadata repeats the configuration.
_METADATA_CONFIG_ORDER = (
    "depth", "alpha", "seed", "epochs", "learning_rate", "batch_size", "momentum", "weight_decay",
)  # fmt: skip


class DigitsSource(Strict):
    """scikit-learn's bundled handwritten digits, split by a seeded permutation."""

    kind: Literal["digits"]
    seed: Count
    train_count: PositiveCount


class MnistSource(Strict):
    """Draw `draw` of the MNIST-medium qualification: 10,000 training and 10,000 query images."""

    kind: Literal["mnist"]
    draw: Count


class SyntheticSource(Strict):
    """Generated images of any size."""

    kind: Literal["synthetic"]
    seed: Count
    train_count: PositiveCount
    query_count: PositiveCount


DataSource = Annotated[DigitsSource | MnistSource | SyntheticSource, Field(discriminator="kind")]


class NumericSettings(Strict):
    """The switches outside the program that change its bits; set before the process starts."""

    device: Device
    workspace: Workspace
    threads: PositiveCount
    vector: Text
    onednn_isa: Text
    mkl_cbwr: Text


class Case(Strict):
    """What is computed: data and configuration under one numerics. Where it runs is the platform's."""

    name: CaseName
    data: DataSource
    config: Config
    numerics: NumericsName


# --- hashes -------------------------------------------------------------------------------------


class InputHashes(Strict):
    """Hashes of the three arrays of the input archive."""

    train_images: Sha256
    train_labels: Sha256
    test_images: Sha256


class ArrayFacts(Strict):
    """What a raw hash leaves out: dtype, shape, and a digest that ignores the sign of zero."""

    dtype: Text
    shape: list[Count]
    value_sha256: Sha256


class Hashes(Strict):
    """The eight hash groups of one task, in the order of the computation."""

    input_hashes: InputHashes
    initial_parameter_sha256: Annotated[dict[ParameterName, Sha256], Field(min_length=1)]
    epoch_permutation_sha256: Annotated[list[Sha256], Field(min_length=1)]
    final_parameter_sha256: Annotated[dict[ParameterName, Sha256], Field(min_length=1)]
    final_velocity_sha256: Annotated[dict[ParameterName, Sha256], Field(min_length=1)]
    state_vector_sha256: Sha256
    scores_sha256: Sha256
    predictions_sha256: Sha256


# --- fixture result -----------------------------------------------------------------------------


class ReversibilityCheck(Strict):
    """Stored against rebuilt activations, at one dtype and depth."""

    dtype: Literal["torch.float64", "torch.float32"]
    depth: PositiveCount
    passed: bool
    forward_bitwise_equal: bool
    maximum_gradient_abs_error: NonNegative
    inverse_max_abs_error: NonNegative
    saved_activation_storages: Count
    saved_activation_bytes: Count
    saved_parameter_references: Count


class Validation(Strict):
    """The reversibility validation that ran before training."""

    passed: bool
    device: Text
    checks: Annotated[list[ReversibilityCheck], Field(min_length=1)]
    scope: Text


class MetadataV1(Strict):
    """What the prepared task says of itself, with its hashes, after some number of runs."""

    config: Config
    parameter_count: PositiveCount
    train_count: PositiveCount
    test_count: PositiveCount
    fresh_initialization_per_run: bool
    checkpoint_loaded: bool
    normalization: Text
    initialization: Text
    optimizer: Text
    shuffle: Text
    augmentation: Text
    input_hashes: InputHashes
    epoch_permutation_sha256: Annotated[list[Sha256], Field(min_length=1)]
    initial_parameter_sha256: Annotated[dict[ParameterName, Sha256], Field(min_length=1)]
    final_parameter_sha256: Annotated[dict[ParameterName, Sha256], Field(min_length=1)]
    final_velocity_sha256: Annotated[dict[ParameterName, Sha256], Field(min_length=1)]
    state_vector_sha256: Sha256
    predictions_sha256: Sha256
    scores_sha256: Sha256
    preparation_seconds: NonNegative
    run_count: PositiveCount
    validation: Validation
    reversible_core: bool
    retained_core_states: Count
    core_saved_bytes_per_example: Count
    head_reversible: bool
    input_lift_injective: bool
    timing_scope: Text

    @field_serializer("config")
    def _config_in_metadata_order(self, config: Config) -> dict[str, Any]:
        values = config.model_dump()
        return {key: values[key] for key in _METADATA_CONFIG_ORDER}


class Metadata(MetadataV1):
    """Version 2 adds the shape, dtype and value digest of every hashed array."""

    arrays: dict[Text, ArrayFacts]


class CudaMemory(Strict):
    """Memory as torch's CUDA caching allocator counts it."""

    allocated_before_prepare_bytes: Count
    reserved_before_prepare_bytes: Count
    allocated_after_prepare_bytes: Count
    prepare_and_invoke_peak_allocated_bytes: Count
    allocated_after_invoke_bytes: Count
    reserved_after_invoke_bytes: Count
    prepare_and_invoke_peak_reserved_bytes: Count
    scope: Text
    added_peak_over_entry_allocated_bytes: Count


class ProcessMemory(Strict):
    """Memory as the operating system counts it for the task process: resident bytes."""

    resident_before_prepare_bytes: Count
    resident_after_prepare_bytes: Count
    prepare_and_invoke_peak_resident_bytes: Count
    resident_after_invoke_bytes: Count
    peak_covers_whole_process: bool
    scope: Text
    added_peak_over_entry_resident_bytes: Count


class NamedTensor(Strict):
    """One named tensor of the prepared task, as a view of a storage."""

    name: Text
    storage_id: Count
    shape: list[Count]
    stride: list[Count]
    dtype: Dtype
    storage_offset: Count
    logical_bytes: Count


class Storage(Strict):
    """One storage, counted once, with every name that views it."""

    storage_id: Count
    device: Text
    address: Count
    bytes: Count
    aliases: Annotated[list[Text], Field(min_length=1)]


class _InventoryFields(Strict):
    named_tensors: Annotated[list[NamedTensor], Field(min_length=1)]
    unique_storages: Annotated[list[Storage], Field(min_length=1)]
    unique_named_storage_bytes: Count
    allocator_allocated_bytes: Count | Unavailable
    allocated_bytes_without_named_storage_reference: Count | Unavailable
    scope: Text
    is_per_kernel_working_set: AlwaysFalse
    cache_residency_established: AlwaysFalse


class BufferInventoryV1(_InventoryFields):
    """Every named tensor and storage of a task on CUDA."""

    allocator_allocated_bytes: Count
    allocated_bytes_without_named_storage_reference: Count


class BufferInventory(_InventoryFields):
    """Every named tensor and storage of a task; a CPU has no allocator that counts."""


class CacheReference(Strict):
    """The capacity of the cache that the task's working set meets: a reference, not a measurement."""

    bytes: PositiveCount
    unit: Text
    meaning: Text


class CounterStamp(Strict):
    """One reading of an energy counter between two clock reads."""

    energy_mj: NonNegative
    time_s: Number
    query_latency_s: NonNegative


class ActiveInterval(Strict):
    """The interval in which the task ran."""

    start: CounterStamp
    end: CounterStamp
    duration_s: Number
    energy_j: Number
    average_power_w: Number


class IdleInterval(ActiveInterval):
    """An interval in which nothing ran, after `settle_seconds` of quiet."""

    settle_seconds: NonNegative


class TelemetryV1(Strict):
    """Sampled facts of the device beside an interval."""

    temperature_c: Number
    power_w: Number
    graphics_clock_mhz: Count
    memory_clock_mhz: Count


class EnergyTrialV1(Strict):
    """One trial: idle, active, idle."""

    trial: Count
    invocations: PositiveCount
    idle_before: IdleInterval
    idle_after: IdleInterval
    active: ActiveInterval
    telemetry_before: TelemetryV1
    telemetry_after: TelemetryV1
    paired_idle_w: Number
    idle_adjusted_mj_per_task: Number
    unadjusted_mj_per_task: Number
    cuda_ms_per_task: NonNegative
    wall_ms_per_task: NonNegative


class Statistic(Strict):
    """Mean and sample standard deviation of the trials' values."""

    mean: Number
    sample_sd: NonNegative
    values: Annotated[list[Number], Field(min_length=1)]


class EnergySummaryV1(Strict):
    """The trials' statistics."""

    idle_adjusted_mj_per_task: Statistic
    unadjusted_mj_per_task: Statistic
    cuda_ms_per_task: Statistic
    wall_ms_per_task: Statistic


class NvmlHardware(Strict):
    """The GPU whose counter was read, and how its NVML handle was chosen."""

    gpu: Text
    uuid: Text
    total_memory_bytes: PositiveCount
    power_limit_w: Positive
    driver: Text
    cuda_pci_bus_id: Text
    nvml_pci_bus_id: Text
    nvml_handle_selected_by_cuda_pci_bus_id: bool


class EnergySoftwareV1(Strict):
    """Versions behind an energy measurement."""

    python: Text
    torch: Text
    numpy: Text
    cuda: Text
    nvidia_ml_py: Text


class EnergyV1(Strict):
    """Energy per task, with everything that it was computed from."""

    calibration_ms: Positive
    repeats_per_trial: PositiveCount
    trials: Annotated[list[EnergyTrialV1], Field(min_length=1)]
    summary: EnergySummaryV1
    hardware: NvmlHardware
    software: EnergySoftwareV1
    repeat_predictions_equal: bool
    repeat_state_hashes_equal: bool
    state_hash_keys_checked: list[HashGroup]
    scope: Text
    before_metadata: MetadataV1
    after_metadata: MetadataV1


class Telemetry(Strict):
    """Sampled facts of the metered device; null is what it does not tell."""

    temperature_c: Number | None
    power_w: Number | None
    graphics_clock_mhz: Count | None
    memory_clock_mhz: Count | None


class EnergyTrial(EnergyTrialV1):
    """One trial on any device. On a CPU `cuda_ms_per_task` is the monotonic clock's time."""

    telemetry_before: Telemetry  # type: ignore[assignment]  # a wider form at the same place
    telemetry_after: Telemetry  # type: ignore[assignment]


class RaplDomain(Strict):
    """One RAPL package domain whose counter was read."""

    name: Text
    zone: Text
    max_energy_range_uj: PositiveCount


class RaplHardware(Strict):
    """The CPU packages whose counters were read."""

    cpu: Text
    domains: Annotated[list[RaplDomain], Field(min_length=1)]
    assumed_max_domain_power_w: Positive


class NvmlSoftware(Strict):
    """Versions behind an NVML measurement, and which `pynvml` answered."""

    python: Text
    torch: Text
    cuda: Text | None
    numpy: Text
    nvidia_ml_py: Text
    pynvml_file: Text
    pynvml_is_nvidia_ml_py: bool


class RaplSoftware(Strict):
    """Versions behind a RAPL measurement."""

    python: Text
    torch: Text
    cuda: Text | None
    numpy: Text
    kernel: Text


class CounterQuality(Strict):
    """How often the counter moved, and how often it had to."""

    update_period_s: Positive
    smallest_step_mj: Positive
    fewest_updates_in_an_interval: Number
    required_updates: PositiveCount


class EnergySpread(Strict):
    """The uncertainty of the mean energy per task."""

    confidence_95_low: Number
    confidence_95_high: Number
    relative_spread: NonNegative | None
    allowed_relative_spread: Positive


class TrialCrossCheck(Strict):
    """Sampled power over counter power, idle and active."""

    trial: Count
    idle_sampled_over_counter: Number
    active_sampled_over_counter: Number


class CrossCheck(Strict):
    """Whether the counter and the sampled power agree."""

    trials: Annotated[list[TrialCrossCheck], Field(min_length=1)]
    largest_relative_difference: NonNegative
    tolerance: Positive
    agrees: bool


class TrialThrottling(Strict):
    """What held the clocks down before and after a trial; null is what the device does not tell."""

    trial: Count
    before: list[Text] | None
    after: list[Text] | None


class EnergyQuality(Strict):
    """How far an energy number can be trusted."""

    counter: CounterQuality
    idle_adjusted_mj_per_task: EnergySpread
    needs_more_trials: bool
    cross_check: CrossCheck | Unavailable
    throttle_reasons: list[TrialThrottling]


class SoftwareV1(Strict):
    """Versions in the task process."""

    python: Text
    torch: Text
    cuda: Text
    numpy: Text


class Software(Strict):
    """Versions in the task process; `cuda` is null in a CPU build of torch."""

    python: Text
    torch: Text
    cuda: Text | None
    numpy: Text


class NumericsVersion(Strict):
    """Which numerics computed the task, and the version of its definition."""

    name: NumericsName
    version: PositiveCount


class Platform(Strict):
    """Facts of the machine and the stack, measured in the task process.

    `fingerprint` says which of them form the platform key. `kernel_probes` are digests of vendor
    kernels run on fixed inputs: outside the key (a faulty chip must not become "another platform"),
    they tell "the stack moved" from "the code changed".
    """

    device: Device
    machine: Text
    cpu_vendor: Text
    cpu_model: Text
    torch: Text
    numpy: Text
    blas: Text
    mkl_cbwr: Text
    onednn: Text
    onednn_isa: Text
    vector: Text
    threads: PositiveCount
    numpy_dispatch: list[Text]
    gpu: Text | None
    compute_capability: Text | None
    cuda: Text | None
    cublas: Text | None
    driver: Text | None
    workspace: Workspace
    kernel_probes: Annotated[dict[Text, Sha256], Field(min_length=1)]


class Attestation(Strict):
    """What the task process found in its environment before it imported anything numeric.

    `added_variables` are those that a profiler put beside the orchestrator's own; the digest is without them.
    """

    source: Text
    variables: dict[Text, str]
    sha256: Sha256
    expected_sha256: Sha256 | None
    changed_during_run: list[Text]
    added_variables: dict[Text, str]


class OperatorTime(Strict):
    """One operator of a CPU profile."""

    operator: Text
    calls: PositiveCount
    self_time_us: NonNegative
    allocated_bytes: int


class Profile(Strict):
    """What ran inside the profiled range."""

    scope: Scope
    repeats: PositiveCount
    warmup_tasks: PositiveCount
    range: Text
    operators: list[OperatorTime] | Unavailable


class Timing(Strict):
    """Device time of each repeat in ms, of complete tasks or of their training alone."""

    clock: Text
    scope: Scope
    repeat_ms: Annotated[list[NonNegative], Field(min_length=1)]


class KeptStep(Strict):
    """One step whose tensors were kept whole, by name, in an NPZ file."""

    epoch: Count
    step: Count
    file: FileName
    file_sha256: Sha256


class TraceFacts(Strict):
    """A digest of every tensor of every training step, in a sidecar file (its form: `fixture/tracing.py`).

    `tensors` are the names of one step's, in the order of the computation. `chain_heads` is the hash chain
    over all digests so far, after each epoch.
    """

    epochs: PositiveCount
    steps_per_epoch: PositiveCount
    tensors: Annotated[list[Text], Field(min_length=1)]
    chain_heads: Annotated[list[Sha256], Field(min_length=1)]
    same_process_chain_heads_matched: bool
    kept_step: KeptStep | None
    file: FileName
    file_sha256: Sha256


class Energy(Strict):
    """Energy per task by any meter: version 1's fields, the meter, and what the numbers are worth."""

    calibration_ms: Positive
    repeats_per_trial: PositiveCount
    trials: Annotated[list[EnergyTrial], Field(min_length=1)]
    summary: EnergySummaryV1
    hardware: NvmlHardware | RaplHardware
    software: NvmlSoftware | RaplSoftware
    repeat_predictions_equal: bool
    repeat_state_hashes_equal: bool
    state_hash_keys_checked: list[HashGroup]
    scope: Text
    before_metadata: Metadata
    after_metadata: Metadata
    meter: Text
    quality: EnergyQuality


class _ResultFields(Strict):
    schema_version: VersionOne | VersionTwo
    completed_at_utc: UtcTime
    mode: Mode
    requested_scope: Scope
    config: Config
    input_archive_sha256: Sha256
    config_file_sha256: Sha256
    source_sha256: Annotated[dict[FileName, Sha256], Field(min_length=1)]
    cublas_workspace_config: Workspace
    environment_was_set_externally: bool
    software: Software | SoftwareV1
    gpu: Text | None
    cuda_device_index: Count | None
    memory: CudaMemory | ProcessMemory | Unavailable
    buffer_inventory: _InventoryFields
    cache_reference: CacheReference | Unavailable
    profile: Profile | None
    energy: EnergyV1 | Energy | Unavailable | None
    metadata: MetadataV1
    same_process_reference_hashes_matched: Annotated[list[HashGroup], Field(min_length=1)]
    frozen_qualification_comparison: Text
    predictions_file: FileName
    predictions_file_sha256: Sha256
    test_labels_read: AlwaysFalse


class FixtureResultV1(_ResultFields):
    """What the fixture returned, version 1: CUDA only."""

    schema_version: VersionOne
    software: SoftwareV1
    gpu: Text
    cuda_device_index: Count
    memory: CudaMemory
    buffer_inventory: BufferInventoryV1
    cache_reference: CacheReference
    profile: None
    energy: EnergyV1 | None
    metadata: MetadataV1


class FixtureResult(_ResultFields):
    """What the fixture returned, version 2: any device, with its platform and attested environment."""

    schema_version: VersionTwo
    software: Software
    energy: Energy | Unavailable | None
    buffer_inventory: BufferInventory
    metadata: Metadata
    device: Device
    numerics: NumericsVersion
    platform: Platform
    environment: Attestation
    torch_deterministic_mode: Literal["error", "warn"]
    before_metadata: Metadata
    timing: Timing | None
    trace: TraceFacts | None


# --- run record ---------------------------------------------------------------------------------


class CapabilitiesV1(Strict):
    """What the orchestrator found beside the fixture."""

    ncu_version: Text


class CpuCapabilities(Strict):
    """The CPU as the operating system describes it."""

    architecture: Text
    vendor: Text
    model_name: Text
    vector_units: list[Text]
    logical_cpus: PositiveCount
    affinity_cpus: PositiveCount


class Capabilities(Strict):
    """What the orchestrator found beside the fixture; a tool that is missing is said to be."""

    ncu_version: Text | Unavailable
    nvidia_driver: Text | Unavailable
    cpu: CpuCapabilities | Unavailable


class Stream(Strict):
    """One output stream: every byte is in `file`; the record's text may leave out the middle.

    A large stream is stored as `NAME.gz`. Size and digest are those of its bytes before compression.
    """

    file: FileName
    size_bytes: Count
    sha256: Sha256
    text_is_complete: bool


class Streams(Strict):
    """Both output streams."""

    stdout: Stream
    stderr: Stream


class ChildEnvironment(Strict):
    """The environment that the orchestrator built for the fixture: all of it."""

    variables: dict[Text, str]
    sha256: Sha256


class Score(Strict):
    """Correct queries, counted by the orchestrator: the fixture never sees query labels."""

    correct: Count
    total: PositiveCount


def labels_closed() -> Unavailable:
    """The score of a finished run that took no query labels."""
    # Made when asked for: an instance at import time would build a validator in every command.
    return Unavailable(
        unavailable="query labels are opened only after the predictions are frozen",
        remedy="the scores of a qualification are in its scores.json",
    )


NcuQuantity = Literal["dram_read", "dram_write", "l2_read", "l2_write", "l2_hit_rate"]
NcuUnit = Literal["byte", "sector", "%"]


class NcuCounter(Strict):
    """One metric of a profiled range: cell and unit as Nsight Compute printed them, the value in `unit`."""

    quantity: NcuQuantity
    metric: Text
    printed: str
    printed_unit: str
    unit: NcuUnit
    value: NonNegative | Unavailable


class CacheTraffic(Strict):
    """Memory traffic of one sequence of the range: counters over `repeats`; an L2 sector is 32 bytes."""

    scope: Scope
    repeats: PositiveCount
    dram_read_bytes: NonNegative | Unavailable
    dram_write_bytes: NonNegative | Unavailable
    l2_read_bytes: NonNegative | Unavailable
    l2_write_bytes: NonNegative | Unavailable
    l2_hit_rate_percent: NonNegative | Unavailable


class EvidenceFile(Strict):
    """A file of the run folder, with its digest."""

    file: FileName
    sha256: Sha256


class NcuProfile(Strict):
    """What Nsight Compute counted in the profiled range, and the evidence of it.

    `command` is the part of the run's command that stands before the fixture's. `device_attributes` are what
    the page says of the GPU, as printed. `messages` are Nsight Compute's own warnings and errors.
    """

    command: Annotated[list[Text], Field(min_length=1)]
    counters: Annotated[list[NcuCounter], Field(min_length=1)] | Unavailable
    passes: PositiveCount | Unavailable
    device_attributes: dict[Text, Text]
    traffic: CacheTraffic | Unavailable
    report: EvidenceFile | Unavailable
    supported_metrics: EvidenceFile | Unavailable
    messages: list[Text]


class _RunFields(Strict):
    workspace: Workspace
    action: Mode
    scope: Scope
    command: Annotated[list[Text], Field(min_length=1)]
    returncode: int
    stdout: str
    stderr: str
    capabilities: CapabilitiesV1 | Capabilities
    finished_at_utc: UtcTime
    input_sha256: InputHashes
    result: FixtureResultV1 | FixtureResult | None


class RunRecordV1(_RunFields):
    """What one fresh process left, version 1: the seed's form."""

    capabilities: CapabilitiesV1
    result: FixtureResultV1


class RunRecord(_RunFields):
    """What one fresh process left, version 2. `result` is null, and `failure` a line, when it failed."""

    capabilities: Capabilities
    result: FixtureResult | None
    kind: Literal["run"]
    schema_version: VersionTwo
    qualgate_version: Text
    case: Case
    settings: NumericSettings
    environment: ChildEnvironment
    started_at_utc: UtcTime
    duration_s: NonNegative
    timed_out: bool
    streams: Streams
    artefact_sha256: dict[FileName, Sha256]
    score: Score | Unavailable
    ncu: NcuProfile | Unavailable | None
    failure: Text | None


# --- qualification ------------------------------------------------------------------------------


class FreezingRun(Strict):
    """One of the fresh processes that agreed when the record was frozen."""

    finished_at_utc: UtcTime
    record_sha256: Sha256


class FrozenTrace(Strict):
    """The trace of a frozen case: its chain heads, and the sidecar file beside the record.

    `tensors` are the names of one step's, in the order of the computation.
    """

    epochs: PositiveCount
    steps_per_epoch: PositiveCount
    tensors: Annotated[list[Text], Field(min_length=1)]
    chain_heads: Annotated[list[Sha256], Field(min_length=1)]
    file: FileName
    file_sha256: Sha256


class FrozenCase(Strict):
    """One case with the bits that it must give."""

    case: Case
    settings: NumericSettings
    hashes: Hashes
    arrays: dict[Text, ArrayFacts]
    config_file_sha256: Sha256
    predictions_file_sha256: Sha256
    train_count: PositiveCount
    test_count: PositiveCount
    score: Score | Unavailable
    trace: FrozenTrace | None
    runs: Annotated[list[FreezingRun], Field(min_length=2)]


class Supersedes(Strict):
    """The frozen record that this one replaces: its file's hash."""

    file: FileName
    file_sha256: Sha256


class QualificationRecord(Strict):
    """Frozen: cases with their bits, the platform that they hold on, the sources, and why.

    `content_sha256` is the SHA-256 of the record's canonical text with this field left out, so that a
    damaged record is told from changed bits. It is no signature.
    """

    kind: Literal["qualification"]
    schema_version: VersionOne
    name: CaseName
    frozen_at_utc: UtcTime
    reason: Text
    supersedes: Supersedes | None
    qualgate_version: Text
    numerics: NumericsVersion
    platform_key: dict[Text, str]
    platform: Platform
    software: Software
    source_sha256: Annotated[dict[FileName, Sha256], Field(min_length=1)]
    levels: Annotated[list[Level], Field(min_length=1)]
    cases: Annotated[list[FrozenCase], Field(min_length=1)]
    content_sha256: Sha256


# --- protocols ----------------------------------------------------------------------------------


class DigitsDraws(Strict):
    """Splits of the digits: one a seed."""

    kind: Literal["digits"]
    seeds: Annotated[list[Count], Field(min_length=1)]
    train_count: PositiveCount


class MnistDraws(Strict):
    """Draws of the MNIST-medium qualification."""

    kind: Literal["mnist"]
    draws: Annotated[list[Count], Field(min_length=1)]


class SyntheticDraws(Strict):
    """Generated images: one set a seed."""

    kind: Literal["synthetic"]
    seeds: Annotated[list[Count], Field(min_length=1)]
    train_count: PositiveCount
    query_count: PositiveCount


class Protocol(Strict):
    """What a qualification is to do, said before it is done; written as TOML.

    Every draw runs in `processes` fresh processes, and its accuracy has to reach the required one. Settings
    that a protocol does not name are the defaults of the machine.
    """

    kind: Literal["protocol"]
    schema_version: VersionOne
    name: CaseName
    numerics: NumericsName
    device: Device
    workspace: Workspace
    threads: PositiveCount
    processes: Annotated[int, Field(ge=2)]
    required_accuracy_percent: NonNegative
    data: Annotated[DigitsDraws | MnistDraws | SyntheticDraws, Field(discriminator="kind")]
    config: Config


class QualificationPlan(Strict):
    """A protocol, frozen before anything runs: its cases, the settings here, and the sources to be run.

    It holds no time: whoever has the protocol and the sources derives the same `content_sha256`, so it can
    be published beforehand. That is the SHA-256 of the canonical text with the field itself left out;
    `protocol_sha256` is that of the protocol's file.
    """

    kind: Literal["qualification-plan"]
    schema_version: VersionOne
    qualgate_version: Text
    protocol: Protocol
    protocol_sha256: Sha256
    settings: NumericSettings
    cases: Annotated[list[Case], Field(min_length=1)]
    source_sha256: Annotated[dict[FileName, Sha256], Field(min_length=1)]
    content_sha256: Sha256


class ScoredDraw(Strict):
    """The frozen predictions of one draw against its query labels."""

    case: CaseName
    predictions_sha256: Sha256
    query_labels_sha256: Sha256
    score: Score


class QualificationScores(Strict):
    """The scores of a qualification; `frozen_sha256` is the frozen record's file: it was there before."""

    kind: Literal["qualification-scores"]
    schema_version: VersionOne
    frozen_file: FileName
    frozen_sha256: Sha256
    draws: Annotated[list[ScoredDraw], Field(min_length=1)]


class DrawAccuracy(Strict):
    """One draw's accuracy, and whether it reaches the required one."""

    case: CaseName
    score: Score
    accuracy_percent: NonNegative
    reached: bool


class QualificationVerdict(Strict):
    """Passed when every draw reaches the required accuracy.

    The mean and the sample standard deviation, in percentage points, are over the draws. `scores_sha256`
    is the hash of the scores' file.
    """

    kind: Literal["qualification-verdict"]
    schema_version: VersionOne
    name: CaseName
    scores_sha256: Sha256
    required_accuracy_percent: NonNegative
    draws: Annotated[list[DrawAccuracy], Field(min_length=1)]
    score: Score
    mean_accuracy_percent: NonNegative
    sample_sd_percent: NonNegative | Unavailable
    passed: bool


class Retirement(Strict):
    """A frozen record that judges nothing any more, and why; the record itself stays as it is.

    `content_sha256` is the SHA-256 of this record's canonical text with this field left out.
    """

    kind: Literal["retirement"]
    schema_version: VersionOne
    file: FileName
    file_sha256: Sha256
    retired_at_utc: UtcTime
    reason: Text
    qualgate_version: Text
    content_sha256: Sha256


class PublishedDraw(Strict):
    """Published facts of one draw of the MNIST-medium qualification."""

    draw: Count
    dataset_seed: Count
    train_indices_sha256: Sha256
    test_indices_sha256: Sha256
    train_labels_sha256: Sha256
    predictions_npy_sha256: Sha256
    correct: Count
    total: PositiveCount


class PublishedDraws(Strict):
    """A published table of draws, to be reproduced at level `predictions`."""

    note: Text
    required_accuracy_percent: NonNegative
    draws: Annotated[list[PublishedDraw], Field(min_length=1)]


class DataManifest(Strict):
    """What `qualgate data` wrote beside an input archive; query labels stay with the orchestrator."""

    kind: Literal["data"]
    schema_version: VersionOne
    data: DataSource
    train_count: PositiveCount
    test_count: PositiveCount
    input_sha256: InputHashes
    archive_file: FileName
    archive_sha256: Sha256
    query_labels_file: FileName
    query_labels_sha256: Sha256
    train_indices_sha256: Sha256 | None
    test_indices_sha256: Sha256 | None


# --- verdict ------------------------------------------------------------------------------------


class Difference(Strict):
    """One field whose value differs. `values_equal` is true when only signs of zeros differ."""

    field: Text
    expected: str
    found: str
    values_equal: bool | None


class Divergence(Strict):
    """The first training step at which two traced runs differ, counted from zero, with both digests.

    `step` and `tensor` are null where they cannot be told: without the sidecars, the epoch alone is known.
    """

    epoch: Count
    step: Count | None
    tensor: Text | None
    expected: str
    found: str


class TensorDifference(Strict):
    """How two tensors of one training step differ, from both of them whole.

    `index` is the place of the largest difference, `first` and `second` the values there. Distances are in
    units in the last place (ULP): steps from one float32 number to the next, 0 between two zeros; null for
    integers, and where a NaN takes part.
    """

    tensor: Text
    dtype: Text
    shape: list[Count]
    elements: PositiveCount
    differing: Count
    largest_ulp_distance: Count | None
    index: list[Count]
    first: Text
    second: Text


class Bisection(Strict):
    """Where two traced trainings part, and, after a rerun, by how much."""

    kind: Literal["bisection"]
    schema_version: VersionOne
    first: Text
    second: Text
    divergence: Divergence | None
    difference: TensorDifference | None
    kept_files: list[Text]
    notes: list[Text]


class GroupVerdict(Strict):
    """One hash group: how many fields it has, and those that differ."""

    group: HashGroup
    fields: PositiveCount
    differences: list[Difference]


class StackChange(Strict):
    """One fact of the stack or one source file that is not what it was when the record was frozen."""

    what: Text
    frozen: str | None
    found: str | None


class Repetition(Strict):
    """The second fresh process that a failed gate starts: did the same wrong bits come back?"""

    same_bits: bool
    differences: list[Difference]
    first_divergence: Divergence | None


DifferenceKind = Literal["change", "nondeterminism"]


class Verdict(Strict):
    """Expected against found: the level asked, the level reached, and where they first part."""

    kind: Literal["verdict"]
    schema_version: VersionOne
    case: CaseName
    level_asked: Level
    level_reached: Level | None
    qualified: bool
    expected: Text
    found: Text
    first_difference: Difference | None
    first_divergence: Divergence | None
    groups: Annotated[list[GroupVerdict], Field(min_length=1)]
    other_differences: list[Difference]
    difference_kind: DifferenceKind | None
    repetition: Repetition | None
    source_changes: list[StackChange]
    stack_changes: list[StackChange]
    kernel_changes: list[StackChange]
    notes: list[Text]


# --- audit --------------------------------------------------------------------------------------

RuleName = Annotated[str, StringConstraints(pattern=r"^[a-z]+\.[a-z0-9-]+$")]


class Finding(Strict):
    """One place at which a rule of the audit does not hold: its JSON path, expected against found."""

    rule: RuleName
    path: Text
    expected: str
    found: str


class AuditedFile(Strict):
    """What was audited of one record file: how many rules, in how many places, and what they found.

    `artefacts` counts the files beside a run record that were compared with it; null when none were.
    """

    record_file: Text
    record_kind: Text
    rules: Count
    checks: Count
    artefacts: Count | None
    findings: list[Finding]


class AuditReport(Strict):
    """An audit of one record or of a folder of them; sound when no rule found anything."""

    kind: Literal["audit"]
    schema_version: VersionOne
    sound: bool
    files: Annotated[list[AuditedFile], Field(min_length=1)]


# --- costs and studies --------------------------------------------------------------------------

CostVerdict = Literal["lower", "higher", "ambiguous"]


class CostRatio(Strict):
    """A cost over the baseline's, with its 95 % interval; null is no upper bound. `ratios` has the method."""

    estimate: Positive
    lower_95: NonNegative
    upper_95: Positive | None
    degrees_of_freedom: Positive
    verdict: CostVerdict


class StudyRun(Strict):
    """The run record of one fresh process, beside the study's own file."""

    file: FileName
    file_sha256: Sha256


class StudyBits(Strict):
    """The bits of a setting against the baseline's, and whether each of its processes gave the same."""

    same_in_every_process: bool
    level_reached: Level | None
    compared_fields: PositiveCount
    differing_fields: Count
    first_difference: Difference | None


class StudyMemory(Strict):
    """The most memory that a process of the setting took, and how many times less than the baseline's.

    `counted` says by whom: `allocated` by torch's CUDA allocator, `resident` by the operating system.
    """

    counted: Literal["allocated", "resident"]
    peak_bytes: PositiveCount
    live_bytes: PositiveCount
    peak_reduction: Positive | Unavailable
    live_reduction: Positive | Unavailable


class StudyCost(Strict):
    """One cost of a setting: a value a process, and their ratio to the baseline's; null is the baseline."""

    process_values: Annotated[list[Number], Field(min_length=1)]
    mean: Number
    ratio: CostRatio | Unavailable | None


class StudyRow(Strict):
    """One setting of a study. `failure` is a line when one of its processes failed."""

    setting: Text
    settings: NumericSettings
    records: list[StudyRun]
    failure: Text | None
    bits: StudyBits | Unavailable
    memory: StudyMemory | Unavailable
    ms_per_task: StudyCost | Unavailable
    idle_adjusted_mj_per_task: StudyCost | Unavailable


class LeftOutSetting(Strict):
    """A setting that this machine cannot run, and why."""

    setting: Text
    reason: Text


class StudyReport(Strict):
    """A case under several settings, each in fresh processes: what moves its bits and what they cost."""

    kind: Literal["study"]
    schema_version: VersionOne
    qualgate_version: Text
    case: Case
    started_at_utc: UtcTime
    finished_at_utc: UtcTime
    processes: PositiveCount
    baseline: Text
    rows: Annotated[list[StudyRow], Field(min_length=1)]
    left_out: list[LeftOutSetting]


# --- the task against ordinary autograd ----------------------------------------------------------

TensorKind = Literal["forward", "gradients", "velocities", "updates", "parameters", "scores", "repetition"]


class TensorCheck(Strict):
    """One tensor of the task, compared with ordinary autograd's or with that of its own first run.

    `largest_ratio` is that of error to tolerance, element by element; null for a repetition, which has no
    tolerance. Both numbers are null where one that was found is NaN or infinite.
    """

    name: Text
    kind: TensorKind
    reference: Literal["float64", "float32", "first run"]
    elements: PositiveCount
    largest_absolute_error: NonNegative | None
    largest_ratio: NonNegative | None
    passed: bool


class ValidatedCase(Strict):
    """Every check of one numerics and configuration, in the order of the computation."""

    numerics: NumericsName
    config: Config
    checks: Annotated[list[TensorCheck], Field(min_length=1)]


class ValidationReport(Strict):
    """The task as it is executed on a device, captured on CUDA, against ordinary eager autograd there.

    A tensor passes where |found - reference| is at most `absolute_tolerance` + `relative_tolerance` *
    |reference| in each of its elements.
    """

    kind: Literal["validation"]
    schema_version: VersionOne
    completed_at_utc: UtcTime
    passed: bool
    device: Device
    absolute_tolerance: Positive
    relative_tolerance: Positive
    train_count: PositiveCount
    test_count: PositiveCount
    cases: Annotated[list[ValidatedCase], Field(min_length=1)]
    source_sha256: Annotated[dict[FileName, Sha256], Field(min_length=1)]
    software: Software
    platform: Platform
    environment: Attestation
