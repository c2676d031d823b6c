"""The two pictures of a diagnosis: credit, and tokens at reveal."""

from pathlib import Path

from unmask.diagnostics.diagnosis import CONTINUATIONS, Diagnosis
from unmask.diagnostics.tokens import BINS
from unmask.drawing import save_svg


def draw_credit(diagnosis: Diagnosis, file: Path) -> None:
    """Sign mismatch, Monte Carlo stability and theorem 1, side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4))
    misled, stable, simulated = figure.subplots(1, 3)

    found = diagnosis.mismatch
    shares = [found.helpful_in_failed, found.harmful_in_succeeded, found.silent]
    labels = ["ΔV > 0\nin failed\nreferences", "ΔV < 0\nin successful\nreferences", "some ΔV ≠ 0\nat advantage 0"]
    bars = misled.bar(labels, [100 * (share.value or 0) for share in shares], color=["C2", "C3", "C4"])
    misled.bar_label(bars, [f"{share.count:,}/{share.total:,}" for share in shares])
    misled.margins(y=0.12)
    misled.set(ylabel="share (%)", title="What one advantage a response misses")

    sizes = [row.size for row in diagnosis.stability]
    stable.plot(sizes, [row.value_error for row in diagnosis.stability], "o-", label="value error")
    agreement = stable.twinx()
    agreement.plot(sizes, [100 * row.sign_agreement for row in diagnosis.stability], "s-", color="C1", label="sign")
    stable.set_xscale("log", base=2)
    stable.set_xticks(sizes, [str(size) for size in sizes])
    stable.set_ylim(bottom=0)
    stable.set(xlabel="continuations M", title=f"Values from M of {CONTINUATIONS} continuations")
    stable.set_ylabel("mean absolute value error", color="C0")
    agreement.set_ylabel("ΔV of the same sign (%)", color="C1")

    errors = diagnosis.theorem.errors
    sizes = [row.size for row in errors]
    simulated.plot(sizes, [row.error for row in errors], "o-", label="segment advantages")
    simulated.plot(sizes, [row.bound for row in errors], ":", color="C0", label="their bound 2ν²/M")
    simulated.axhline(diagnosis.theorem.shared_error, color="C3", label="best shared advantage")
    simulated.set_xscale("log", base=2)
    if all(row.error > 0 for row in errors):
        simulated.set_yscale("log")
    simulated.set_xticks(sizes, [str(size) for size in sizes])
    simulated.set(xlabel="continuations M", ylabel="mean squared error of ΔV", title="Theorem 1 by simulation")
    simulated.legend()

    figure.tight_layout()
    save_svg(figure, file)


def draw_tokens(diagnosis: Diagnosis, file: Path) -> None:
    """Histogram of probabilities at reveal, and their mean and quartiles along the reveal steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4))
    histogram, along = figure.subplots(1, 2)
    tokens = diagnosis.tokens

    shares = [100 * count / tokens.count for count in tokens.histogram]
    histogram.bar([(bin + 0.5) / BINS for bin in range(BINS)], shares, width=0.9 / BINS)
    histogram.set(xlabel="probability at reveal", ylabel="tokens (%)", xlim=(0, 1))

    steps = [band.step for band in tokens.bands]
    (line,) = along.plot(steps, [band.mean for band in tokens.bands], linewidth=2, label="mean")
    low, high = [band.low for band in tokens.bands], [band.high for band in tokens.bands]
    along.fill_between(steps, low, high, color=line.get_color(), alpha=0.2, linewidth=0, label="middle half")
    along.set(xlabel="reveal step", ylabel="probability at reveal", ylim=(0, 1.02))
    along.xaxis.get_major_locator().set_params(integer=True)
    along.legend(loc="lower right")

    figure.tight_layout()
    save_svg(figure, file)
