"""Verdicts and tables of the attention family, from the rows and the step graphs alone."""

import collections
import dataclasses

from plotting import analysis
from plotting import attention_figures as figures
from plotting import claims
from plotting import style
from plotting import tables

# The thread's configuration and figures: one intermediate variable, the saving by its arithmetic
# and as its peaks say, 6877 - 5243 MiB.
THREAD_BATCH, THREAD_STEPS, THREAD_HIDDEN = 64, 52, 600
THREAD_VARIABLE_MB, THREAD_SAVING_GB, THREAD_SAVING_MIB = 830, 1.6, 6877 - 5243
SHARED_TENSORS_PUBLISHED = 0.69  # OpenNMT's log line, of output and gradInput tensors.
NEAR = 0.05

# The project's table: layers, hidden size, GB with and without sharing; B = 64, L = 50,
# vocabularies of 50,000, word vectors of 500.
PUBLISHED = ((1, 100, 0.7, 0.5), (1, 250, 1.4, 1.1), (1, 500, 2.6, 2.1), (2, 500, 3.2, 2.3),
             (4, 1000, 9.4, 6.4))
VOCABULARY, WORD, PUBLISHED_LEN = 50_000, 500, 50
EXPLAINED = 0.25


@dataclasses.dataclass(frozen=True)
class Account:
    """The thread's account at one precision and source length."""

    dtype: str
    source_len: int
    variable: int  # Bytes of one [B, L, H] variable over all clones.
    predicted: int  # Of the two variables, T - 1 of T copies.
    small: int  # Of the products' other gradInputs, likewise.
    model: int  # The saving by the two variants' cost models,
    measured: int  # and as measured.

    @property
    def exact(self):
        return self.predicted + self.small == self.model == self.measured


def accounts(results):
    """One Account for each precision and source length at the thread's batch, T and H."""
    found = {}
    for row in figures.rows_of(results, layers=0):
        if (row.ok and (row.batch, row.target_len, row.hidden)
                == (THREAD_BATCH, THREAD_STEPS, THREAD_HIDDEN)):
            found[row.dtype, row.source_len, row.variant] = row
    accounts = []
    for (dtype, source_len, variant), clones in sorted(found.items()):
        shared = found.get((dtype, source_len, figures.BASELINE))
        if variant != "clones" or shared is None:
            continue
        item = analysis.ITEM_BYTES[dtype]
        copy = clones.batch * source_len * clones.hidden * item
        steps = clones.target_len
        accounts.append(Account(
            dtype, source_len, steps * copy, (steps - 1) * 2 * copy,
            (steps - 1) * clones.batch * (clones.hidden + source_len) * item,
            clones.peak_bytes_model - shared.peak_bytes_model,
            clones.peak_bytes - shared.peak_bytes))
    return accounts


def buffers(results, part=None):
    """Records of buffers.csv with numbers as such; of one part alone if given."""
    records = []
    for record in figures.read_table(results.directory, "buffers.csv"):
        if part in (None, record["part"]):
            records.append({name: int(value) if value.isdigit() else value
                            for name, value in record.items()})
    return records


def judge(results):
    return (_account(results), _rate(results), _reuse(results), _share(results),
            _decoder(results))


def _account(results):
    found = accounts(results)
    single = [a for a in found if a.dtype == "float32"]
    double = [a for a in found if a.dtype == "float64"]
    if not single or not double:
        verdict, evidence = claims.UNKNOWN, (
            "This run has no clones and prealloc-mm at batch 64, H = 600, T = 52 in both "
            "precisions.")
    else:
        one, two = max(single, key=lambda a: a.source_len), max(double, key=lambda a: a.source_len)
        near = [abs(a.measured / 2 ** 20 / THREAD_SAVING_MIB - 1) <= NEAR for a in (one, two)]
        verdict = (claims.HOLDS if near[0] else claims.CONSTANT if near[1] else claims.FAILS)
        evidence = (
            f"One variable over {THREAD_STEPS} clones takes {one.variable / 1e6:.1f} MB in float32 "
            f"and {two.variable / 1e6:.1f} MB in float64 (source of {one.source_len}): the thread's "
            f"{THREAD_VARIABLE_MB} MB is the 8-byte figure. Sharing the gradInputs of both products "
            f"saves {one.measured / 1e6:.1f} MB measured in float32 and {two.measured / 1e6:.1f} MB "
            f"({two.measured / 2 ** 20:.0f} MiB) in float64; the thread says {THREAD_SAVING_GB} GB "
            f"by arithmetic and {THREAD_SAVING_MIB} MiB by its peaks. "
            + ("Predicted and measured are equal to the byte in all "
               f"{claims.plural(len(found), 'case')}. " if all(a.exact for a in found)
               else "Predicted and measured differ. ")
            + "Known: CUDA tensors of Torch7 are float32 by default, whose saving is half of what "
            "was reported. Not known, so not explained: the thread's vocabulary, GPU and whether "
            "the encoder was bidirectional, what its caching allocator reserved around tensors of "
            "this size, and whether other buffers went at the same time.")
    return claims.Verdict(
        "C8", "At batch 64, source 52 and hidden size 600 one intermediate variable takes 830 MB "
        "over all cloned decoders, and preallocating the two products saves 1.6 GB (6877 to "
        "5243 MiB).", verdict, evidence,
        f"Holds: the saving measured in float32 is within {NEAR:.0%} of {THREAD_SAVING_MIB} MiB. "
        "With a constant: that in float64 is, so that the thread counted 8 bytes an element. Does "
        "not hold: neither is.",
        published=f"{THREAD_VARIABLE_MB} MB; {THREAD_SAVING_MIB} MiB saved",
        **_account_figures(single, double))


def _account_figures(single, double):
    if not single or not double:
        return {}
    both = [max(accounts, key=lambda a: a.source_len) for accounts in (single, double)]

    def words(saving):
        return "; ".join(f"{a.variable / 1e6:.1f} MB, {saving(a) / 2 ** 20:.0f} MiB saved "
                         f"({a.dtype})" for a in both)
    return {"predicted": words(lambda a: a.model), "measured": words(lambda a: a.measured),
            "figure": "attention-bytes"}


def _rate(results):
    found = accounts(results)
    exact = [a for a in found if a.measured - a.small == (THREAD_STEPS - 1) * 2 * a.variable
             // THREAD_STEPS]
    if not found:
        verdict, evidence = claims.UNKNOWN, "No clones beside prealloc-mm at the thread's size."
    else:
        verdict = claims.HOLDS if len(exact) == len(found) else claims.FAILS
        evidence = (f"In {len(exact)} of {claims.plural(len(found), 'case')} the two variables "
                    f"shrink from {THREAD_STEPS} copies to one, measured: by a factor of "
                    f"{THREAD_STEPS}, the number of clones.")
    return claims.Verdict(
        "C8, rate", "The reduction of what is shared is the number of clones.", verdict, evidence,
        "Holds: the measured saving, without that of the products' small gradInputs, is T - 1 of T "
        "copies of two variables. Does not hold: otherwise.",
        **({"predicted": f"{THREAD_STEPS} copies to 1 (T = {THREAD_STEPS})",
            "measured": f"so in {len(exact)} of {claims.plural(len(found), 'case')}",
            "figure": "attention-steps"} if found else {}))


def reuse(results, part, row=None):
    """(operations of a step, those reused, elements of their output and gradInput, and saved).

    Of a row's problem, or of the largest attention or decoder of the run; None where there is none.
    """
    def place(record):
        return tuple(record[name] for name in ("layers", "source_len", "hidden", "batch"))
    records = buffers(results, part)
    wanted = ((row.layers, row.source_len, row.hidden, row.batch) if row
              else max(map(place, records), default=None))
    records = [r for r in records if place(r) == wanted]
    if not records:
        return None
    operations = {r["operation"] for r in records if r["operation"]}
    reused = [r for r in records if r["reuses_output"]]
    names = {r["operation"] for r in reused}
    both = sum(r["elements"] for r in records if r["operation"] in names
               and r["role"] != "sum of gradients")
    return len(operations), len(names), both, sum(r["elements"] for r in reused)


def _reuse(results):
    pairs = [(a, b) for a in figures.rows_of(results, layers=0) if a.variant == "clones" and a.ok
             for b in figures.rows_of(results, layers=0) if b.variant == "clones-reuse" and b.ok
             and figures.size(a) == figures.size(b) and a.dtype == b.dtype]
    clones, other = max(pairs, key=lambda pair: pair[0].peak_bytes, default=(None, None))
    counts = reuse(results, "attention", clones) if clones else None
    if counts is None:
        verdict, evidence = claims.UNKNOWN, "No clones beside clones-reuse in this run."
        numbers = {}
    else:
        operations, reused, both, _ = counts
        whole = reuse(results, "decoder")
        both *= clones.target_len * analysis.ITEM_BYTES[clones.dtype]
        saved = clones.peak_bytes - other.peak_bytes
        verdict = claims.HOLDS if 2 * saved == both else claims.FAILS
        decoder_words = (f" (of the whole decoder's, with its LSTM, to {whole[1]} of {whole[0]})"
                         if whole else "")
        evidence = (f"It applies to {reused} of a step's {operations} operations{decoder_words}, "
                    f"whose output and only gradInput have one size. Of their {both / 1e6:.1f} MB "
                    f"over all clones it saves {saved / 1e6:.1f} MB, {saved / both:.0%}, measured "
                    f"({clones.dtype}, {figures.size_words(clones)}); of the whole peak only "
                    f"{saved / clones.peak_bytes:.1%}, for the tensors of the context's size are "
                    "no operation's output.")
        model = clones.peak_bytes_model - other.peak_bytes_model
        numbers = {"published": "50%",
                   "predicted": f"{model / both:.0%} of {both / 1e6:.1f} MB, "
                                f"{model / clones.peak_bytes_model:.1%} of the peak",
                   "measured": f"{saved / both:.0%} and {saved / clones.peak_bytes:.1%}",
                   "figure": "attention-bytes"}
    return claims.Verdict(
        "C9", "Letting gradInput take the output's storage (reuseMem) saves 50%, where both have "
        "the same size.", verdict, evidence,
        "Holds: the measured peaks differ by half of the buffers of the operations to which it "
        "applies, to the byte. Does not hold: otherwise.", **numbers)


def shares(results):
    """[(part, size, tensors, shareable, bytes, shareable bytes)], of outputs and gradInputs."""
    groups = collections.defaultdict(list)
    for record in buffers(results):
        if record["role"] != "sum of gradients":
            groups[record["part"], record["layers"], record["hidden"],
                   record["source_len"], record["batch"]].append(record)
    return [(place, len(group), sum(r["shareable"] for r in group),
             sum(r["elements"] for r in group),
             sum(r["elements"] for r in group if r["shareable"]))
            for place, group in sorted(groups.items())]


def _share(results):
    found = [s for s in shares(results) if s[0][0] == "decoder"]
    if not found:
        verdict, evidence = claims.UNKNOWN, "No whole decoder in this run."
    else:
        ratios = [shareable / count for _, count, shareable, _, _ in found]
        bytes_shared = [b / a for _, _, _, a, b in found]
        near = all(abs(ratio - SHARED_TENSORS_PUBLISHED) <= NEAR for ratio in ratios)
        verdict = claims.HOLDS if near else claims.CONSTANT
        evidence = (f"By the liveness of the decoder's step graph {min(ratios):.0%} to "
                    f"{max(ratios):.0%} of output and gradInput tensors are shareable, which hold "
                    f"{min(bytes_shared):.0%} to {max(bytes_shared):.0%} of the bytes. OpenNMT's "
                    "rule protects tensors by the kind of their module and not by who reads them, "
                    "and its network differs.")
    return claims.Verdict(
        "69%", "OpenNMT's log: sharing covers 69% of output/gradInput tensors.", verdict, evidence,
        f"Holds: our share is within {NEAR * 100:.0f} points of 69% for every decoder. With a "
        "constant: another share.", published="69% of tensors",
        predicted=f"{min(ratios):.0%} to {max(ratios):.0%} of tensors" if found else "",
        figure="attention-decoder")


@dataclasses.dataclass(frozen=True)
class DecoderRow:
    """A row of the published table; bytes are predicted, parts as in decoder_figure()."""

    name: str
    published: tuple  # GB
    before: tuple
    first: tuple  # With the first patch,
    after: tuple  # and with all module buffers shared that may be.
    measured: tuple  # Peaks of the decoder cell: clones, prealloc-all; None where it did not run.
    cell: tuple  # The same, predicted.

    @property
    def explained(self):
        """Predicted over published, without sharing and with all of it."""
        return tuple(sum(parts) / 1e9 / published
                     for parts, published in zip((self.before, self.after), self.published))

    @property
    def drops(self):
        """GB that sharing saves: the first patch's and all, predicted; published."""
        return (*((sum(self.before) - sum(parts)) / 1e9 for parts in (self.first, self.after)),
                self.published[0] - self.published[1])


def _lstm_parameters(layers, hidden, first):
    return sum(4 * hidden * ((first if n == 0 else hidden) + 1 + hidden) for n in range(layers))


def decoder(results):
    """The rows of the published table whose step graphs are in this run."""
    rows = {(r.layers, r.hidden, r.variant): r for r in figures.rows_of(results, layers=1)
            if r.dtype == "float32" and r.batch == 64
            and r.source_len == r.target_len == PUBLISHED_LEN}
    graphs = collections.defaultdict(list)
    for record in buffers(results):
        if record["batch"] == 64 and record["source_len"] == PUBLISHED_LEN:
            graphs[record["layers"], record["hidden"], record["part"]].append(record)
    found = []
    for layers, hidden, before, after in PUBLISHED:
        parts = [graphs.get((layers, hidden, part)) for part in ("encoder", "decoder")]
        if not all(parts):
            continue
        parameters = (2 * VOCABULARY * WORD + VOCABULARY * (hidden + 1) + 3 * hidden ** 2
                      + _lstm_parameters(layers, hidden, WORD)
                      + _lstm_parameters(layers, hidden, WORD + hidden))
        # The generator's Linear and LogSoftMax, their gradInputs and the criterion's, once.
        fixed = (2 * 4 * parameters, 4 * (4 * 64 * VOCABULARY + 64 * hidden))
        clones = [4 * PUBLISHED_LEN * sum(r["elements"] for r in part) for part in parts]
        first, shared = ([4 * sum(r["elements"] * (1 if r[scope] else PUBLISHED_LEN)
                                  for r in part) for part in parts]
                         for scope in ("shared_by_mm", "shared_by_all"))
        cells = [rows.get((layers, hidden, v)) for v in ("clones", "prealloc-all")]
        terms = [sum(int(t["bytes"]) for t in figures.read_table(results.directory, "terms.csv")
                     if c is not None and t["cell"] == c.cell) or None for c in cells]
        found.append(DecoderRow(
            f"{layers}x{hidden}", (before, after), (*fixed, *clones), (*fixed, *first),
            (*fixed, *shared),
            tuple(c.peak_bytes if c is not None else None for c in cells), tuple(terms)))
    return found


def _decoder(results):
    found = decoder(results)
    if not found:
        verdict, evidence = claims.UNKNOWN, "No decoder of the published table in this run."
    else:
        explained = [row.explained[0] for row in found]
        shared = [row.explained[1] for row in found]
        near = all(abs(e - 1) <= EXPLAINED for e in explained)
        verdict = (claims.FAILS if not near or max(shared) > 1 + EXPLAINED else
                   claims.HOLDS if min(shared) >= 1 - EXPLAINED else claims.CONSTANT)
        measured = [row for row in found if None not in row.measured]
        evidence = (f"In {claims.plural(len(found), 'row')} of the table the step graphs, "
                    f"parameters and generator explain {min(explained):.0%} to "
                    f"{max(explained):.0%} of the published figure without sharing, and "
                    f"{min(shared):.0%} to {max(shared):.0%} of that with it if all is shared that "
                    "may be. Drops, with the first patch's sharing and with all: " + ", ".join(
                        "{} {:.1f} and {:.1f} GB ({:.1f} published)".format(row.name, *row.drops)
                        for row in found)
                    + f". The decoder was run in {len(measured)} of them, "
                    + ("to the byte as predicted. " if all(row.measured == row.cell
                                                           for row in measured)
                       else "and not as predicted. ")
                    + "Known: the project shared fewer buffers than safely may be, and without "
                    "sharing it let some modules' gradInputs take their outputs' storage, so less "
                    "was left to save. Not in the account: the CUDA context, allocator rounding, "
                    "dropout, and what else its training program keeps.")
    return claims.Verdict(
        "table", "With sharing the published models need 0.5 to 6.4 GB instead of 0.7 to 9.4 GB.",
        verdict, evidence,
        f"Holds: in every row what is predicted, without sharing and with it, is within "
        f"{EXPLAINED:.0%} of the published figure. With a constant: without sharing it is, and with "
        "it less is predicted than was published. Does not hold: otherwise.",
        published="9.4 to 6.4 GB (4x1000)", **_decoder_figures(found), figure="attention-decoder")


def _decoder_figures(found):
    """Of the largest model: all of it predicted, the decoder's cells measured."""
    if not found:
        return {}
    row = found[-1]
    before, after = sum(row.before) / 1e9, sum(row.after) / 1e9
    numbers = {"predicted": f"{before:.1f} to {after:.1f} GB ({row.name})"}
    if None not in row.measured:
        numbers["measured"] = ("the decoder alone: "
                               + " to ".join(style.bytes_text(v) for v in row.measured))
    return numbers


def answer(results):
    rows = figures.thread_rows(results)
    by_name = {row.variant: row for row in rows}
    lines = []
    found = accounts(results)
    if found:
        lines.append(_account(results).evidence.split(" Known:")[0])
    if {"clones", "prealloc-mm", "autograd"} <= set(by_name):
        clones, shared, today = (by_name[n] for n in ("clones", "prealloc-mm", "autograd"))
        least = min(rows, key=lambda row: row.peak_bytes)
        lines.append(
            f"At {figures.size_words(clones)} ({clones.dtype}, training) the emulated clones peak "
            f"at {style.bytes_text(clones.peak_bytes)}, the first patch at "
            f"{style.bytes_text(shared.peak_bytes)}, and plain autograd, which sums gradients as "
            f"they arrive, at {style.bytes_text(today.peak_bytes)}; least is {least.variant} with "
            f"{style.bytes_text(least.peak_bytes)}.")
    if {"additive", "fused-additive"} <= set(by_name):
        kept, fused = by_name["additive"], by_name["fused-additive"]
        time = (f" and {style.ratio_text(fused.time_ns / kept.time_ns)} times its time"
                if fused.time_ns and kept.time_ns else "")
        lines.append(f"Additive attention does keep a tensor of the context's size for every step: "
                     f"{style.bytes_text(kept.peak_bytes)}; the fused kernel needs "
                     f"{style.bytes_text(fused.peak_bytes)}{time}.")
    return tuple(lines or ["This run has no two attention variants to compare."])


def build(results):
    built = (_claims_table(results), _accounts_table(results), _variants_table(results),
             _decoder_table(results), _shares_table(results), _inventory_table(results),
             tables.mismatches(results), tables.unmeasured(results))
    return [table for table in built if table.rows]


def _claims_table(results):
    return tables.Table("claims", "Claims and verdicts", "Computed from the rows of this run.",
                        ("id", "claim", "verdict", "evidence"),
                        tuple((v.id, v.claim, v.verdict, v.evidence) for v in judge(results)))


def _accounts_table(results):
    header = ("dtype", "L", "one variable, MB", "two variables saved, MB", "with small ones, MB",
              "measured, MB", "measured, MiB", "thread")
    return tables.Table(
        "account", "C8: what sharing the two products' gradInputs saves",
        "At batch 64, H = 600, T = 52. A variable is B L H elements in each of 52 clones; sharing "
        "leaves one copy of two. The patch also shares the products' other gradInputs, B (H + L) "
        "elements a clone.", header,
        tuple((a.dtype, str(a.source_len), f"{a.variable / 1e6:.1f}", f"{a.predicted / 1e6:.1f}",
               f"{(a.predicted + a.small) / 1e6:.1f}", f"{a.measured / 1e6:.1f}",
               f"{a.measured / 2 ** 20:.1f}",
               f"{THREAD_VARIABLE_MB} MB, {THREAD_SAVING_GB} GB, {THREAD_SAVING_MIB} MiB")
              for a in accounts(results)), header[1:-1])


def _variants_table(results):
    rows = [row for phase in ("train", "inference")
            for row in sorted(figures.thread_rows(results, phase=phase),
                              key=lambda row: row.peak_bytes)]
    header = ("phase", "variant", "algorithm", "held", "peak", "peak ratio", "time, ms",
              "time ratio", "largest error")

    def text(value, form):
        return "" if value is None else form(value)
    return tables.Table(
        "variants", "Every variant at the thread's size",
        (figures.size_words(rows[0]) + f", {rows[0].dtype}; ratios are to "
         f"{figures.BASELINE}.") if rows else "", header,
        tuple((row.phase, row.variant, row.algorithm, text(row.held_bytes, style.bytes_text),
               style.bytes_text(row.peak_bytes), text(results.peak_ratio(row), style.ratio_text),
               text(row.time_ns, lambda t: f"{t / 1e6:.1f}"),
               text(results.time_ratio(row), style.ratio_text),
               text(row.max_relative_error, lambda e: f"{e:.1e}")) for row in rows), header[3:])


def _decoder_table(results):
    header = ("model", "published, GB", "predicted, GB", "explained", "drop, first patch",
              "drop, all", "drop, published", "decoder clones, GB", "decoder cell, predicted",
              "decoder cell, measured")

    def cells(pair):
        return " to ".join("not run" if v is None else style.bytes_text(v) for v in pair)
    return tables.Table(
        "decoder", "The published table beside the step graphs",
        "Each pair: without sharing, and with all module buffers shared that may be. Predicted: "
        "parameters and their gradients, the generator, and the clones of encoder and decoder. A "
        "decoder cell is what was run here: the decoder alone, with its inputs and gradients.",
        header,
        tuple((row.name, f"{row.published[0]} to {row.published[1]}",
               f"{sum(row.before) / 1e9:.2f} to {sum(row.after) / 1e9:.2f}",
               "{:.0%} and {:.0%}".format(*row.explained),
               "{:.2f}".format(row.drops[0]), "{:.2f}".format(row.drops[1]),
               "{:.1f}".format(row.drops[2]), f"{row.before[3] / 1e9:.2f} to {row.after[3] / 1e9:.2f}",
               cells(row.cell), cells(row.measured))
              for row in decoder(results)), header[1:])


def _shares_table(results):
    header = ("part", "layers", "H", "L", "B", "tensors", "shareable", "share", "share of bytes")
    return tables.Table(
        "shareable", "What share of output and gradInput tensors is shareable",
        "A tensor is shareable if nothing after its step reads it, by the liveness of the step "
        "graph. OpenNMT's log says 69%.", header,
        tuple((part, str(layers), str(hidden), str(source_len), str(batch), str(count),
               str(shareable), f"{shareable / count:.0%}", f"{b / a:.0%}")
              for (part, layers, hidden, source_len, batch), count, shareable, a, b
              in shares(results)), header[1:])


def _inventory_table(results):
    """Buffers by kind of operation, of the largest decoder and of the attention alone."""
    groups = collections.defaultdict(list)
    for record in buffers(results):
        groups[record["part"], record["layers"], record["hidden"], record["source_len"],
               record["batch"]].append(record)
    chosen = [max((p for p in groups if p[0] == part), default=None)
              for part in ("attention", "decoder", "encoder")]
    rows = []
    for place in filter(None, chosen):
        kinds = collections.defaultdict(list)
        for record in groups[place]:
            kinds[record["kind"] or "(sums of inputs' gradients)", record["role"]].append(record)
        for (kind, role), records in sorted(
                kinds.items(), key=lambda item: -sum(r["elements"] for r in item[1])):
            rows.append((f"{place[0]} {place[1]}x{place[2]}", kind, role, str(len(records)),
                         f"{4 * sum(r['elements'] for r in records) / 1e6:.2f}",
                         str(sum(r["shareable"] for r in records)),
                         str(sum(r["shared_by_mm"] for r in records)),
                         str(sum(r["shared_by_all"] for r in records))))
    header = ("step", "operation", "buffer", "tensors", "MB a step", "shareable", "first patch",
              "sequel")
    return tables.Table("inventory", "Buffers of one step, by operation",
                        "float32, at the largest sizes of this run; layers x H. From the step "
                        "graphs.", header, tuple(rows), header[3:])
