"""The command line: ``cmask demo | compile | bench | export | doctor``.

A mask is named by a file with its spec (``mask.json``), or by its name in the paper suite or the gallery (``hstu``). A
spec file is data: nothing in it is executed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmask_lab import json_text

if TYPE_CHECKING:
    from cmask_lab.bench.report import Report
    from cmask_lab.bench.subjects import Subject
    from cmask_lab.masks import Mask
    from cmask_lab.widgets.design import Design

EXPLAIN_MASK = "a file (mask.json) with a spec or a Studio's design, or a name from the paper suite or the gallery"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status: 0 done, 1 something is wrong with the result, 2 wrong input.

    >>> main(["compile", "causal", "--seq-len", "1024"])
    causal, 1,024 × 1,024
      density              0.5005
      visible pairs        524,800
      tile                 128 × 128
      full tiles           28
      partial tiles        8
      empty tiles          28
      runs                 7
      patterns             1
      intervals            1,024
      visited / visible    1.12
      descriptor           2.2 KiB
    0
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 2
    try:
        return options.run(options)
    except BrokenPipeError:  # whoever read the output has seen enough, as with "| head"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        said = str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
    except (ValueError, TypeError, ModuleNotFoundError) as error:
        said = str(error)
    print(f"cmask {options.command}: {said}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cmask", description="Attention masks: draw, compile, run, measure, export.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    demo = commands.add_parser(
        "demo", help="the whole job on the paper's four masks; writes report.html and report.json"
    )
    demo.add_argument("--out", type=Path, default=Path(), help="folder to write to (default: this one)")
    demo.add_argument("--device", help="cuda or cpu (default: the best there is)")
    demo.add_argument("--seq-len", type=int, help="tokens (default: what suits the device)")
    demo.set_defaults(run=_demo)

    compile_ = commands.add_parser("compile", help="tiles, patterns and bytes of a mask")
    compile_.add_argument("mask", nargs="?", help=EXPLAIN_MASK)
    compile_.add_argument("--times", action="store_true", help="time the suite's masks beside create_block_mask (CPU)")
    _add_lengths(compile_)
    compile_.add_argument("--tile", type=int, nargs=2, metavar=("Q", "KV"), help="default: the cost model's choice")
    compile_.add_argument("--order", choices=("natural", "auto"), default="natural")
    compile_.add_argument("--json", action="store_true", help="print JSON")
    compile_.set_defaults(run=_compile)

    bench = commands.add_parser("bench", help="measure a mask, or a suite of them, against the baselines")
    bench.add_argument("mask", nargs="?", help=EXPLAIN_MASK)
    bench.add_argument("--suite", choices=("paper", "four"), help="a suite of masks in place of one")
    bench.add_argument("--only", type=_names, default=(), metavar="A,B", help="these masks of the suite")
    bench.add_argument("--seq-len", type=_integers, metavar="N[,N]", help="tokens (default: the mask's own, or 32768)")
    bench.add_argument("--batch", type=int, default=1)
    bench.add_argument("--heads", type=int, default=16)
    bench.add_argument("--kv-heads", type=int)
    bench.add_argument("--head-dim", type=int, help="default: 128, in a suite the mask's own")
    bench.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    bench.add_argument("--direction", default="both", choices=("forward", "backward", "both"))
    bench.add_argument(
        "--ours", type=_names, default=("cmask",), metavar="A,B", help="our contenders, such as cmask-portable"
    )
    bench.add_argument("--baselines", type=_names, metavar="A,B", help="default: all that make sense on the device")
    bench.add_argument("--device", help="cuda or cpu (default: the best there is)")
    bench.add_argument("--seconds", type=_duration, help="time for all of it (default: 120, for a suite 450)")
    bench.add_argument("--json", type=Path, metavar="PATH", help="write the report; also while it is being made")
    bench.add_argument("--figure", type=Path, metavar="PATH", help="write a picture: .svg, or .html with Plotly in it")
    bench.add_argument("--html", type=Path, metavar="PATH", help="write the report as a page")
    bench.add_argument("--compare", metavar="REPORT", help="a report file or a recorded report to compare with")
    bench.set_defaults(run=_bench)

    export = commands.add_parser("export", help="a mask as source for Python, FlexAttention and other neighbours")
    export.add_argument("mask", help=EXPLAIN_MASK)
    export.add_argument("target", help="such as python, json or flex")
    _add_lengths(export)
    export.add_argument("-o", "--output", type=Path, help="file to write (default: standard output)")
    export.set_defaults(run=_export)

    doctor = commands.add_parser("doctor", help="what this machine can run, and why not the rest")
    doctor.set_defaults(run=_doctor)
    return parser


def _add_lengths(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seq-len", type=int, help="query rows (default: what the mask was made for, or 32768)")
    command.add_argument("--kv-len", type=int, help="keys (default: as many as there are positions)")
    command.add_argument("--q-start", type=int, help="position of the first query row, for decoding (default: 0)")


def _demo(options: argparse.Namespace) -> int:
    from cmask_lab.bench import demo

    options.out.mkdir(parents=True, exist_ok=True)
    _check_output("--out", options.out / "report.json")
    return _judge(demo.run(options.out, device=options.device, seq_len=options.seq_len))


def _compile(options: argparse.Namespace) -> int:
    if options.times:
        return _compile_times(options)
    if not options.mask:
        raise ValueError("give a mask, or --times for all masks of the paper suite")
    import cmask_lab as cm

    named = find_mask(options.mask, _tokens(options))
    subject, tile = named.subject, tuple(options.tile) if options.tile else None
    compiled = cm.compile(subject.mask, **named.lengths(options), tile=tile, order=options.order)
    stats = compiled.stats
    if options.json:
        described = {"mask": subject.mask.spec(), "q_len": compiled.q_len, "kv_len": compiled.kv_len}
        print(json.dumps({**described, "tile": compiled.tile, "order": compiled.order, **dataclasses.asdict(stats)}))
        return 0
    print(f"{subject.title}, {compiled.q_len:,} × {compiled.kv_len:,}")
    rows: list[tuple[str, Any]] = [
        ("density", f"{stats.density:.4g}"),
        ("visible pairs", f"{stats.visible_pairs:,}"),
        ("tile", f"{compiled.tile[0]} × {compiled.tile[1]}"),
        ("full tiles", f"{stats.full_tiles:,}"),
        ("partial tiles", f"{stats.partial_tiles:,}"),
        ("empty tiles", f"{stats.empty_tiles:,}"),
        ("runs", f"{stats.runs:,}"),
        ("patterns", f"{stats.patterns:,}"),
        ("intervals", f"{stats.intervals:,}"),
        ("visited / visible", f"{stats.waste:.2f}"),
        ("descriptor", f"{stats.descriptor_bytes / 1024:.1f} KiB"),
    ]
    if options.order != "natural":
        rows.append(("token order", compiled.order))
    for name, value in rows:
        print(f"  {name:20s} {value}")
    return 0


def _bench(options: argparse.Namespace) -> int:
    from cmask_lab.bench.progress import follow

    _check_output("--json", options.json, ".json")
    _check_output("--html", options.html, ".html")
    _check_output("--figure", options.figure, ".svg", ".html")
    other = _report(options.compare) if options.compare else None
    report = None
    for report in follow(_reports(options)):
        if options.json and _case_complete(report):
            report.save(options.json)  # what is measured is kept, whatever happens later
    assert report is not None, "every stream yields"
    print(report.table())
    if options.json:
        print(f"\nWrote {report.save(options.json)}")
    if options.html:
        print(f"Wrote {report.save(options.html)}")
    if options.figure:
        from cmask_lab.bench import figure

        for path in figure.save(report, options.figure):
            print(f"Wrote {path}")
    if other is not None:
        _print_comparison(report, other, options.compare)
    return _judge(report)


def _compile_times(options: argparse.Namespace) -> int:
    from cmask_lab.bench import compilation
    from cmask_lab.bench.subjects import USUAL_LENGTH

    if options.mask:
        raise ValueError(f"give a mask or --times, not both (got {options.mask!r}); --times measures the paper suite")
    print(compilation.HEADER)
    for times in compilation.compile_times(options.seq_len or USUAL_LENGTH):
        print(times.row(), flush=True)
    return 0


def _reports(options: argparse.Namespace) -> Iterable[Report]:
    shape = {name: getattr(options, name) for name in ("batch", "heads", "kv_heads", "dtype", "direction")}
    shared = {"ours": options.ours, "baselines": options.baselines, "device": options.device, **shape}
    if options.suite:
        if options.mask:
            raise ValueError(f"give a mask or --suite, not both (got {options.mask!r} and {options.suite!r})")
        from cmask_lab.bench.subjects import USUAL_LENGTH
        from cmask_lab.bench.suite import stream_suite

        return stream_suite(
            options.suite,
            options.seq_len or (USUAL_LENGTH,),
            seconds=450.0 if options.seconds is None else options.seconds,
            head_dim=options.head_dim,
            only=options.only,
            **shared,
        )
    if not options.mask:
        raise ValueError("give a mask, or --suite paper")
    if options.seq_len and len(options.seq_len) > 1:
        raise ValueError("several lengths go with --suite; give one --seq-len for one mask")
    from cmask_lab.bench.run import stream

    subject = find_mask(options.mask, options.seq_len[0] if options.seq_len else None).subject
    head_dim = 128 if options.head_dim is None else options.head_dim
    seconds = 120.0 if options.seconds is None else options.seconds
    return stream(subject, head_dim=head_dim, seconds=seconds, **shared)


def _export(options: argparse.Namespace) -> int:
    import cmask_lab as cm

    _check_output("--output", options.output)
    named = find_mask(options.mask, _tokens(options))
    source = cm.export(named.subject.mask, options.target, **named.lengths(options))
    if options.output:
        options.output.write_text(source, encoding="utf-8")
        print(f"Wrote {options.output}")
    else:
        print(source)
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from cmask_lab import doctor

    print(doctor.report())
    return 0


@dataclass(frozen=True)
class Named:
    """A mask that a command line names, and the part of its plane that is meant if no length is given."""

    subject: Subject
    q_len: int
    kv_len: int | None = None
    q_start: int = 0

    def lengths(self, options: argparse.Namespace) -> dict[str, Any]:
        """``q_len``, ``kv_len`` and ``q_start``: as given; what is not given follows from what is."""
        q_start = self.q_start if options.q_start is None else options.q_start
        if options.seq_len is not None:
            return {"q_len": options.seq_len, "kv_len": options.kv_len, "q_start": q_start}
        moved = q_start - self.q_start
        kv_len = self.kv_len if options.kv_len is None else options.kv_len
        return {"q_len": max(self.q_len - moved, 0), "kv_len": kv_len, "q_start": q_start}


def find_mask(name: str, seq_len: int | None = None) -> Named:
    """The mask of that name or in that file, for ``seq_len`` tokens or as many as it was made for.

    >>> find_mask("hstu", 1024).subject.title
    'HSTU'
    """
    import cmask_lab as cm
    from cmask_lab.bench import subjects
    from cmask_lab.masks.lengths import own_lengths

    if name.endswith(".json"):
        mask, design = _mask_in(Path(name))
        if design is not None:
            return Named(subjects.plain(mask, seq_len or design.q_len), design.q_len, design.kv_len, design.q_start)
    elif name in subjects.PAPER:
        return Named(subjects.subject(name, seq_len or subjects.USUAL_LENGTH), seq_len or subjects.USUAL_LENGTH)
    elif name in cm.gallery.names():
        mask = cm.gallery.get(name)
    else:
        raise ValueError(_unknown(name, [*subjects.PAPER, *cm.gallery.names()]))
    queries, keys = own_lengths(mask) or (subjects.USUAL_LENGTH, None)
    return Named(subjects.plain(mask, seq_len), queries, keys)


def _unknown(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, 3, 0.5)
    if near:
        hint = f"did you mean {' or '.join(map(repr, near))}?"
    elif "." in name or "/" in name:
        hint = "of files, those whose name ends in .json are read: a spec, or a design that the Studio saved"
    else:
        hint = f"there are {', '.join(dict.fromkeys(known))}, and files that end in .json"
    return f"mask {name!r}: unknown; {hint}"


def _mask_in(path: Path) -> tuple[Mask, Design | None]:
    """The mask of a file that holds a spec; or of one that the Studio saved, with the design."""
    import cmask_lab as cm

    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file; cmask export NAME json -o {path.name} writes a mask's spec")
    kept = json_text.read(path)
    try:
        if isinstance(kept, dict) and "cmask_studio" in kept:
            from cmask_lab.widgets.design import Design

            return cm.from_spec(kept.get("spec", kept)), Design.read(kept.get("design"))
        return cm.from_spec(kept), None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _report(name: str) -> Report:
    """A report by its file's name, or a recorded one by its own."""
    from cmask_lab.bench.report import Report, recorded_names

    if not Path(name).exists() and name not in recorded_names():
        raise FileNotFoundError(f"--compare {name}: no such file, and not one of {', '.join(recorded_names())}")
    return Report.load(name) if Path(name).exists() else Report.recorded(name)


def _check_output(option: str, path: Path | None, *suffixes: str) -> None:
    """Raise before the work is done if its result can't be written."""
    if path is None:
        return
    if suffixes and path.suffix not in suffixes:
        raise ValueError(f"{option} {path}: give a name that ends in {' or '.join(suffixes)}")
    if path.is_dir():
        raise IsADirectoryError(f"{option} {path}: this is a folder; give the name of a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{option} {path}: there is no folder {path.parent}; make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(f"{option} {path}: you may not write here; give a path in a folder of your own")


def _judge(report: Report) -> int:
    """1 if one of ours was wrong or failed, else 0: a slow result is a result."""
    bad = [
        (case.title, entry)
        for case in report.cases
        for entry in case.entries
        if entry.contender in case.ours and entry.status in ("wrong", "failed")
    ]
    for title, entry in bad:
        print(f"{title}: {entry.contender} {entry.direction} {entry.status}: {entry.reason}", file=sys.stderr)
    return 1 if bad else 0


def _print_comparison(report: Report, other: Report, name: str) -> None:
    differences = report.compare(other)
    print(f"\nAgainst {name} ({other.device.get('name')}, {other.created[:10]}); other runs, so not paired:")
    for difference in differences:
        print(f"  {difference}")
    if not differences:
        print("  nothing in common: no mask of the same size was measured in both")


def _case_complete(report: Report) -> bool:
    return not report.cases[-1].loops or all(loop.stopped for loop in report.cases[-1].loops)


def _tokens(options: argparse.Namespace) -> int | None:
    """Positions of the plane that the lengths given describe; None if there are none."""
    if options.kv_len is not None or options.seq_len is None:
        return options.kv_len
    return options.seq_len + (options.q_start or 0)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _duration(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def _integers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, or numbers with commas between them") from None


if __name__ == "__main__":
    sys.exit(main())
