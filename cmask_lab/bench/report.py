"""What was measured: every sample, everything needed to judge it, and the words that follow from it.

A :class:`Report` holds cases (a mask at a size), a case holds entries (a contender in one direction). Reports are
plain data: they save to JSON, load without PyTorch, and are compared with others. :mod:`cmask_lab.bench.tables` shows
them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from cmask_lab import json_text
from cmask_lab.bench import statistics
from cmask_lab.bench.device import Conditions
from cmask_lab.bench.flops import DIRECTIONS, Rates, attention_bytes, attention_flops, floor_ms, tflops
from cmask_lab.bench.statistics import Ratio, Summary

VERSION = 1
"""Of the JSON; a reader refuses one it does not know."""

ITEMSIZE = {"bfloat16": 2, "float16": 2, "float32": 4}

OK, WRONG, FAILED, ABSENT, WAITING = "ok", "wrong", "failed", "absent", "waiting"
"""What became of an entry: timed; its result was not that of the mask; it broke off with an error; it does not take
part here; its turn has not come."""


@dataclass(frozen=True)
class Check:
    """How far a contender's results were from the oracle's, measured in the same run.

    Attributes:
        errors: relative error of each result ("out", "dq", "dk", "dv"), the largest over heads.
        allowed: what each may be.
        proved_rows: rows (times heads) whose set of visible keys was proved with equal scores and whole numbers.
        reason: what was wrong; "" if nothing was.
    """

    errors: Mapping[str, float]
    allowed: Mapping[str, float]
    proved_rows: int
    reason: str = ""

    @property
    def passed(self) -> bool:
        """Whether everything was within bounds."""
        return not self.reason


@dataclass(frozen=True)
class Entry:
    """One contender in one direction.

    Attributes:
        contender: its name, such as "cmask" or "flex-fa4".
        direction: "forward" or "backward".
        status: "ok", "wrong", "failed", "absent" or "waiting"; ``reason`` says why where it is not "ok".
        note: what a reader should know of how it ran: the kernel taken, where its block mask came from.
        startup_ms: its first call in this process, on another mask: compilers started, libraries loaded. None if it had
            run before.
        plan_ms: from the mask to what the kernel reads: our compiler, or Flex's ``create_block_mask``.
        first_ms: its first call on this mask, kernels compiled for it included.
        samples_ms: one a timed round; entries of one case and direction share their rounds.
        host_ms: median time that the host needs to put a call on its way.
        visited_pairs: pairs in the tiles that it computes, over all heads; None if it does not say.
        check: its results against the oracle.
    """

    contender: str
    direction: str
    status: str = WAITING
    reason: str = ""
    note: str = ""
    startup_ms: float | None = None
    plan_ms: float | None = None
    first_ms: float | None = None
    samples_ms: tuple[float, ...] = ()
    host_ms: float | None = None
    visited_pairs: int | None = None
    check: Check | None = None

    @property
    def timed(self) -> bool:
        """Whether there is a time to speak of."""
        return self.status == OK and bool(self.samples_ms)

    @property
    def cold_ms(self) -> float | None:
        """From a mask never seen to its first result, in a process that is warm."""
        return None if self.plan_ms is None or self.first_ms is None else self.plan_ms + self.first_ms

    @cached_property
    def summary(self) -> Summary | None:
        """Median, quartiles and n in milliseconds; None if it was not timed."""
        return statistics.summarize(self.samples_ms) if self.timed else None


@dataclass(frozen=True)
class Loop:
    """How the rounds of one direction went.

    Attributes:
        rounds, warmup_rounds, warmup_ms: what was timed, and what was run before and left out.
        stopped: why it ended.
        buffers: input sets that took turns.
    """

    direction: str
    rounds: int
    warmup_rounds: int
    warmup_ms: float
    stopped: str
    buffers: int
    conditions: Conditions


@dataclass(frozen=True)
class Comparison:
    """Ours against one baseline, from the rounds in which both ran."""

    ours: str
    baseline: str
    direction: str
    ratio: Ratio
    spoiled: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """ "faster", "slower", "too close to call", "too few rounds"; or, where the run was disturbed, "spoiled"."""
        return "spoiled" if self.spoiled else self.ratio.verdict

    @property
    def doubt(self) -> str:
        """Why no mean may count it, in a word or two: "spoiled", "too few rounds" or ""."""
        return self.verdict if self.verdict in ("spoiled", statistics.UNKNOWN) else ""


@dataclass(frozen=True)
class Case:
    """One mask at one size, and how everybody did on it.

    Attributes:
        name, title: short and for reading.
        mask: its spec.
        dtype: "bfloat16", "float16" or "float32".
        visible_pairs: over all heads and batch entries.
        stats: of the compiled mask (tiles, runs, patterns, bytes), one head.
        tile: of the compiled mask.
        density_map: visible share of every tile, or of every group of tiles if there are many, in percent.
        rates: what the device reached in this run.
        ours: the contenders that are compared with all others; the first one leads.
    """

    name: str
    title: str
    mask: Mapping[str, Any]
    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    q_len: int
    kv_len: int
    dtype: str
    visible_pairs: int
    stats: Mapping[str, Any] = field(default_factory=dict)
    tile: tuple[int, int] = (0, 0)
    density_map: tuple[tuple[int, ...], ...] = ()
    rates: Rates | None = None
    ours: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    loops: tuple[Loop, ...] = ()

    @property
    def directions(self) -> tuple[str, ...]:
        """Those that were asked for, forward first."""
        return tuple(d for d in DIRECTIONS if any(e.direction == d for e in self.entries))

    def entry(self, contender: str, direction: str) -> Entry:
        """The entry of a contender.

        Raises:
            KeyError: there is none.
        """
        for entry in self.entries:
            if (entry.contender, entry.direction) == (contender, direction):
                return entry
        raise KeyError(
            f"no {direction} entry of {contender!r}; there are {sorted({e.contender for e in self.entries})}"
        )

    def ours_timed(self, direction: str) -> list[str]:
        """Our contenders that were timed; the first one leads."""
        timed = {e.contender for e in self.entries if e.direction == direction and e.timed}
        return [name for name in self.ours if name in timed]

    def loop(self, direction: str) -> Loop | None:
        """How the rounds of a direction went; None before they began."""
        return next((loop for loop in self.loops if loop.direction == direction), None)

    def floor_ms(self, direction: str) -> float | None:
        """The time below which nobody runs here: visible pairs at the matrix rate, or bytes at the bandwidth."""
        if self.rates is None:
            return None
        moved = attention_bytes(
            self.batch,
            self.heads,
            self.kv_heads,
            self.q_len,
            self.kv_len,
            self.head_dim,
            ITEMSIZE[self.dtype],
            direction,
        )
        return floor_ms(attention_flops(self.visible_pairs, self.head_dim, direction), moved, self.rates)

    def tflops(self, entry: Entry, pairs: int | None = None) -> float | None:
        """TFLOP/s of an entry's median, on visible pairs, or on so many pairs."""
        if entry.summary is None:
            return None
        return tflops(pairs or self.visible_pairs, self.head_dim, entry.direction, entry.summary.median)

    def visited_tflops(self, entry: Entry) -> float | None:
        """TFLOP/s on all pairs of the tiles that it computes; None if it does not say which."""
        return None if entry.visited_pairs is None else self.tflops(entry, entry.visited_pairs)

    def comparisons(self, direction: str, ours: str | None = None, *, baselines_only: bool = False) -> list[Comparison]:
        """One of ours (the leading one, if none is named) against every other contender that was timed."""
        timed = self.ours_timed(direction)
        if not timed or (ours is not None and ours not in timed):
            return []
        name = ours or timed[0]
        own, loop = self.entry(name, direction), self.loop(direction)
        spoiled = loop.conditions.spoiled if loop else ()
        return [
            Comparison(name, e.contender, direction, statistics.paired_ratio(e.samples_ms, own.samples_ms), spoiled)
            for e in self.entries
            if e.direction == direction and e.timed and e.contender != name
            if not (baselines_only and e.contender in self.ours)
        ]


@dataclass(frozen=True)
class Report:
    """Results of one or more cases on one device.

    ``cm.benchmark`` returns a report with one case, ``report.case``; a suite has many, ``report.cases``.

    Attributes:
        device, versions: the machine and the packages.
        created: when, as ISO 8601 in UTC.
        done: False in the partial reports that are yielded on the way.
        progress: share of the work that is done, in [0, 1]; an estimate.
        doing: what is being done, in a few words.

    >>> import cmask_lab as cm
    >>> report = cm.Report({"name": "a device"}, {"torch": "2.13.0"}, "2026-12-01T00:00:00+00:00")
    >>> cm.Report.from_dict(report.to_dict()) == report
    True
    """

    device: Mapping[str, Any]
    versions: Mapping[str, str]
    created: str
    cases: tuple[Case, ...] = ()
    done: bool = True
    progress: float = 1.0
    doing: str = ""

    @property
    def case(self) -> Case:
        """The first case."""
        if not self.cases:
            raise ValueError("this report has no case yet")
        return self.cases[0]

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON types."""
        return {"cmask_report": VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        """The report that :meth:`to_dict` wrote.

        Raises:
            ValueError: another version, a part that is missing or of another kind, or no report at all.
        """
        if not isinstance(data, Mapping) or "cmask_report" not in data:
            raise ValueError("report: this is none; a report is what Report.save or cmask bench --json wrote")
        if data["cmask_report"] != VERSION:
            raise ValueError(
                f"report: version {data['cmask_report']!r} is not known; this cmask_lab reads version {VERSION}"
            )
        fields = {name: value for name, value in data.items() if name != "cmask_report"}
        try:
            return _build(cls, {**fields, "cases": tuple(_case(case) for case in fields["cases"])})
        except KeyError as error:
            raise ValueError(f"report: damaged: {error} is missing; write it again") from error
        except (TypeError, AttributeError) as error:
            raise ValueError(f"report: damaged: {error}; write it again") from error

    def save(self, path: str | Path) -> Path:
        """Write JSON, or a self-contained page if the name ends in ``.html``; returns the path."""
        path = Path(path)
        if path.suffix == ".html":
            from cmask_lab.bench.html import page

            path.write_text(page(self), encoding="utf-8")
        else:
            path.write_text(json.dumps(self.to_dict(), allow_nan=False) + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: str | Path) -> Report:
        """Read a report that :meth:`save` wrote as JSON.

        Raises:
            FileNotFoundError: no such file.
            ValueError: the file holds something else; the message names it.
        """
        kept = json_text.read(path)
        try:
            return cls.from_dict(kept)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def recorded(cls, name: str) -> Report:
        """A report that came with the package, measured on real hardware; :func:`recorded_names` lists them."""
        if name not in recorded_names():
            raise ValueError(
                f"recorded report: {name!r} is not one of {', '.join(map(repr, recorded_names())) or 'none'}"
            )
        text = resources.files("cmask_lab.bench").joinpath("recorded", f"{name}.json").read_text(encoding="utf-8")
        return cls.from_dict(json.loads(text))

    def table(self) -> str:
        """The results as plain text."""
        from cmask_lab.bench.tables import text

        return text(self)

    def markdown(self) -> str:
        """The results as Markdown tables."""
        from cmask_lab.bench.tables import markdown

        return markdown(self)

    def compare(self, other: Report) -> list[Difference]:
        """This report against another, entry by entry, where both have the same mask, size, contender and direction."""
        return list(_differences(self, other))

    def figure(self) -> Any:
        """The Plotly figure: throughput of every contender on every mask."""
        from cmask_lab.bench.figure import throughput

        return throughput(self)

    def _repr_html_(self) -> str:
        from cmask_lab.bench.html import fragment

        return fragment(self)

    def _ipython_display_(self) -> None:
        from cmask_lab.bench.figure import display

        display(self)

    def __str__(self) -> str:
        return self.table()


@dataclass(frozen=True)
class Difference:
    """One entry in two reports. The runs are not paired: the interval can't see what changed between them.

    Attributes:
        here, there: medians in milliseconds, of the report that was asked and of the other.
        ratio: ``there / here``; above 1 means that this report is faster.
    """

    case: str
    contender: str
    direction: str
    here: float
    there: float
    ratio: Ratio

    def __str__(self) -> str:
        return (
            f"{self.case}, {self.contender} {self.direction}: {self.here:.4g} ms, was {self.there:.4g} ms: "
            f"{self.ratio.median:.3f} [{self.ratio.low:.3f}, {self.ratio.high:.3f}] {self.ratio.verdict}"
        )


def recorded_names() -> list[str]:
    """Names of the reports that came with the package."""
    folder = resources.files("cmask_lab.bench").joinpath("recorded")
    if not folder.is_dir():
        return []
    return sorted(file.name.removesuffix(".json") for file in folder.iterdir() if file.name.endswith(".json"))


def _differences(report: Report, other: Report) -> Iterator[Difference]:
    theirs = {(_size(case), e.contender, e.direction): e for case in other.cases for e in case.entries if e.timed}
    for case in report.cases:
        for entry in case.entries:
            match = theirs.get((_size(case), entry.contender, entry.direction))
            if entry.timed and match and entry.summary and match.summary:
                ratio = statistics.unpaired_ratio(match.samples_ms, entry.samples_ms)
                here, there = entry.summary.median, match.summary.median
                yield Difference(case.title, entry.contender, entry.direction, here, there, ratio)


def _size(case: Case) -> tuple[Any, ...]:
    shape = (case.batch, case.heads, case.kv_heads, case.head_dim, case.q_len, case.kv_len, case.dtype)
    return (json.dumps(case.mask, sort_keys=True), *shape)


def _case(data: Mapping[str, Any]) -> Case:
    entries = tuple(
        _build(
            Entry,
            {**e, "samples_ms": tuple(e["samples_ms"]), "check": _build(Check, e["check"]) if e["check"] else None},
        )
        for e in data["entries"]
    )
    loops = tuple(_build(Loop, {**loop, "conditions": _conditions(loop["conditions"])}) for loop in data["loops"])
    rates = _build(Rates, data["rates"]) if data["rates"] else None
    density = tuple(tuple(row) for row in data["density_map"])
    made = {**data, "entries": entries, "loops": loops, "rates": rates, "density_map": density}
    return _build(Case, {**made, "tile": tuple(data["tile"]), "ours": tuple(data["ours"])})


def _conditions(data: Mapping[str, Any]) -> Conditions:
    return _build(Conditions, {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()})


def _build(kind: type, data: Mapping[str, Any]) -> Any:
    known = {f.name for f in dataclasses.fields(kind)}
    if unknown := sorted(set(data) - known):
        raise ValueError(f"report: {kind.__name__} has no field {unknown[0]!r}; it has {sorted(known)}")
    return kind(**data)
