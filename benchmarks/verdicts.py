"""How the findings of a comparison are shown: to people, in Markdown, JUnit XML and JSON."""

import collections
import json
import math
from xml.etree import ElementTree

from benchmarks import exact
from plotting import style

_SHOWN = 40  # lines of the table on a terminal, and in a pull request comment


def by_importance(findings):
    """The worst verdict first, the largest change first within it."""
    order = {verdict: i for i, verdict in enumerate(exact.VERDICTS)}
    return sorted(findings, key=lambda f: (
        order[f.verdict], -abs(math.log1p(f.change)) if f.change and f.change > -1 else 0, f.cell,
        f.kind))


def counts(findings):
    """{verdict: number of cells}, each cell by its worst finding, in the order of importance."""
    worst = {}
    for finding in by_importance(findings):
        worst.setdefault(finding.cell, finding.verdict)
    found = collections.Counter(worst.values())
    return {verdict: found[verdict] for verdict in exact.VERDICTS if found[verdict]}


def summary(findings):
    parts = [f"{count} {verdict}" for verdict, count in counts(findings).items()]
    return f"{len({f.cell for f in findings})} cells: " + ", ".join(parts)


def _change_text(finding):
    if finding.change is None:
        return ""
    return f"{finding.change:+.1%}"


def _figures_text(finding):
    if finding.before is None or finding.after is None:
        return ""
    if finding.column == "time_ns":
        return f"{finding.before / 1e3:.4g} → {finding.after / 1e3:.4g} µs"
    if finding.kind == "time":
        return f"{style.ratio_text(finding.before)} → {style.ratio_text(finding.after)}"
    if finding.kind == "memory":
        return f"{style.bytes_text(finding.before)} → {style.bytes_text(finding.after)}"
    return f"{finding.before:.4g} → {finding.after:.4g}"


def _lines(findings):
    """(verdict, cell, what, figures, change, words) of all but those that are the same."""
    for finding in by_importance(findings):
        if finding.verdict == "same":
            continue
        what = {"time_ratio_to_dense": "time/dense", "time_ns": "time"}.get(
            finding.column, finding.column or finding.kind)
        yield (finding.verdict, finding.cell, what, _figures_text(finding),
               _change_text(finding), finding.words)


def terminal(findings, notes):
    """Two lines a finding: what, and why."""
    lines = list(_lines(findings))
    shown = lines[:_SHOWN]
    widths = [max((len(line[i]) for line in shown), default=0) for i in range(5)]
    out = []
    for line in shown:
        out.append("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())
        if line[5]:
            out.append("    " + line[5])
    if len(lines) > len(shown):
        out.append(f"and {len(lines) - len(shown)} more; all are in regress.md")
    out += [f"note: {note}" for note in notes]
    out.append(summary(findings))
    return "\n".join(out)


def _cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def markdown(findings, notes, sides, regressed):
    """For a comment on a pull request: what matters open, the rest folded."""
    out = ["## " + ("Regression" if regressed else "No regression"), "", summary(findings) + ".",
           "", f"Baseline: {sides[0]}. Candidate: {sides[1]}.", ""]
    lines = list(_lines(findings))
    head = ["| verdict | cell | what | before → after | change | why |",
            "|---|---|---|---|---:|---|"]

    def rows(part):
        return ["| " + " | ".join(map(_cell, line)) + " |" for line in part]
    if lines:
        out += head + rows(lines[:_SHOWN]) + [""]
    if len(lines) > _SHOWN:
        out += ["<details><summary>" + f"{len(lines) - _SHOWN} more</summary>", "", *head,
                *rows(lines[_SHOWN:]), "", "</details>", ""]
    out += [f"- {_cell(note)}" for note in notes]
    return "\n".join(out).rstrip() + "\n"


def junit(findings, regressing):
    """One test case for each finding; those of the verdicts `regressing` fail."""
    suite = ElementTree.Element("testsuite", name="regress", tests=str(len(findings)),
                                failures=str(sum(f.verdict in regressing for f in findings)))
    for finding in by_importance(findings):
        case = ElementTree.SubElement(suite, "testcase", classname=f"regress.{finding.kind}",
                                      name=finding.cell)
        words = " ".join(filter(None, [finding.verdict + ":", _figures_text(finding),
                                       _change_text(finding), finding.words]))
        if finding.verdict in regressing:
            ElementTree.SubElement(case, "failure", message=_xml(words))
        elif finding.verdict == "ambiguous":
            ElementTree.SubElement(case, "skipped", message=_xml(words))
        elif finding.verdict != "same":
            ElementTree.SubElement(case, "system-out").text = _xml(words)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _xml(text):
    """Without the control characters that XML 1.0 has no way to write."""
    return "".join(char for char in text if char >= " " or char in "\t\n")


def as_json(findings, notes, sides, facts):
    return json.dumps({
        "baseline": sides[0], "candidate": sides[1], **facts, "counts": counts(findings),
        "notes": notes,
        "findings": [{
            "cell": f.cell, "kind": f.kind, "verdict": f.verdict, "column": f.column,
            "before": f.before, "after": f.after, "change": f.change, "words": f.words,
        } for f in by_importance(findings)],
    }, indent=2, allow_nan=False) + "\n"
