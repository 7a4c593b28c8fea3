"""What the figures share: the paper's systems, models and workloads, sustained rates, tables."""
from sims import data, side_by_side
import svg

SYSTEMS = [("vllm", "vLLM"), ("orca-oracle", "Orca (Oracle)"), ("orca-pow2", "Orca (Pow2)"), ("orca-max", "Orca (Max)"), ("ft", "FasterTransformer")]
ORCA = SYSTEMS[:4]
# As the paper's own implementation used its GPUs: hardware.def says how its overheads were inferred.
MODELS = {"opt-13b": dict(hardware="a100-40g-2023"), "opt-66b": dict(hardware="a100-40g-2023", tp=4), "opt-175b": dict(hardware="a100-80g-2023", tp=8)}
TODAY = {m: dict(o, hardware=o["hardware"].replace("-2023", "")) for m, o in MODELS.items()}
A13 = MODELS["opt-13b"]
LIMIT_S = 0.5  # a token; the paper's curves are drawn up to 1 s and turn upward well below
SHAREGPT, ALPACA = data("sharegpt.csv.gz"), data("alpaca.csv")
MEANS, CUT = data("sharegpt_means.csv.gz"), data("sharegpt_cut440.csv.gz")  # ShareGPT's with the paper's mean, two ways


def table(head, rows):
    return ["| " + " | ".join(map(str, head)) + " |", "|" + "---|" * len(head)] + ["| " + " | ".join(str(c) for c in r) + " |" for r in rows]


def pct(x):
    return f"{100 * x:.1f}"


def run_of(s, model, **options):
    """A paragraph: one run of the table above as a command."""
    return ["", f"One of these runs: `{s.command(model, **options)}`"]


def curve(s, systems, model, top, points=12, **options):
    rates = [top * (i + 1) / points for i in range(points)]
    runs = [(model, dict(request_rate=f"{r:.4g}", system=k, **options)) for k, _ in systems for r in rates]
    got = iter(s.all(runs))
    return [(name, [(r, next(got)["normalized_latency_s"]) for r in rates]) for _, name in systems]


def rates_of(s, systems, model, top, limit=LIMIT_S, only=None, **options):
    """Sustained rate of each system. only: {system: options that it alone has}."""
    one = lambda k: lambda: s.sustained(limit, top / 400, top * 2, model, system=k, **{**options, **(only or {}).get(k, {})})
    return side_by_side({k: one(k) for k, _ in systems})


def times(r, k):
    """vLLM's rate over that of k."""
    return f"{r['vllm'] / r[k]:.1f}"


def rate_lines(title, series):
    return svg.lines(title, series, "requests a second", "normalised latency, s a token", y_top=1.0)
