"""Cost formulas by hand, and the refusal to price what is no TPU."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
import yaml

from bench.cost import (
    CostError,
    Price,
    cost_per_step,
    cost_per_unit,
    first_day,
    why_no_cost,
)
from bench.record import Record

CONF = Path(__file__).parents[2] / "conf"
V5E = Price(1.2, accelerator="v5e", chips=("TPU v5 lite",), provider="G", as_of="2026-01")


def run_on(device: str = "tpu", platform: str = "tpu", chip: str | None = "TPU v5 lite") -> Record:
    record = Record(workload="w", device=device, platform=platform, chip=chip, chip_count=4)
    record.work_per_step = {"tokens": 1000}
    record.add_metric("step_time_s", 0.5, "s", ci95=(0.4, 0.6))
    record.phases = {"compile_cold": 100.0, "steady": 50.0, "parity": 999.0}
    record.finish("ok")
    return record


def test_cost_per_step() -> None:
    # 0.5 s x 4 chips x 1.2 USD/h / 3600 s/h
    cost = cost_per_step(run_on(), V5E)
    assert cost.value == pytest.approx(0.5 * 4 * 1.2 / 3600)
    assert cost.ci95 == pytest.approx((0.4 * 4 * 1.2 / 3600, 0.6 * 4 * 1.2 / 3600))
    assert (cost.name, cost.unit) == ("cost_usd_per_step", "USD/step")
    assert cost.label == "measured + list price"
    assert "2026-01" in cost.method


def test_cost_per_unit_of_work() -> None:
    # 1e6 tokens are 1,000 steps.
    cost = cost_per_unit(run_on(), V5E, "tokens", 1e6)
    assert cost.value == pytest.approx(1000 * 0.5 * 4 * 1.2 / 3600)
    assert (cost.name, cost.unit) == ("cost_usd_per_1000000_tokens", "USD/1000000-tokens")
    with pytest.raises(CostError, match="how many images a step does; it has: tokens"):
        cost_per_unit(run_on(), V5E, "images")


def test_a_quote_is_assumed_and_fits_any_chip() -> None:
    cost = cost_per_step(run_on(), Price(2.0, label="assumed"))
    assert cost.label == "assumed + measured"


@pytest.mark.parametrize("platform", ["cpu", "native", "unknown"])
def test_a_tpu_run_without_a_tpu_is_never_priced(platform: str) -> None:
    record = run_on(platform=platform)
    for price in (V5E, Price(1.0, label="assumed")):
        assert "say nothing about a TPU" in why_no_cost(record, price)
        with pytest.raises(CostError, match="say nothing about a TPU"):
            cost_per_step(record, price)
        with pytest.raises(CostError):
            cost_per_unit(record, price, "tokens")


def test_the_tpu_device_on_a_gpu_is_priced_as_that_gpu() -> None:
    record = run_on(platform="cuda", chip="NVIDIA H200")
    assert cost_per_step(record, Price(8.0, accelerator="h200", chips=("NVIDIA H200",))).value > 0
    with pytest.raises(CostError, match="the price is for v5e, the run used NVIDIA H200"):
        cost_per_step(record, V5E)


def test_no_price_and_no_good_run_give_a_reason() -> None:
    assert why_no_cost(run_on(), None) == "no price"
    record = run_on()
    record.finish("interrupted")
    assert why_no_cost(record, V5E) == "the run is interrupted"


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "2", True])
def test_a_price_is_a_finite_number(value: object) -> None:
    with pytest.raises(CostError, match="usd_per_chip_hour"):
        Price(value)


def test_an_unknown_key_lists_the_valid_ones() -> None:
    with pytest.raises(CostError, match="unknown price key 'usd'; valid: accelerator"):
        Price.from_config({"usd_per_chip_hour": 1.0, "usd": 2})
    assert Price.from_config({"usd_per_chip_hour": None}) is None
    assert Price.from_config(None) is None


@pytest.mark.parametrize(
    ("as_of", "day"),
    [
        ("2026", date(2026, 1, 1)),
        ("2026-Q3", date(2026, 7, 1)),
        ("2026-04", date(2026, 4, 1)),
        ("2026-04-09", date(2026, 4, 9)),
        ("", None),
    ],
)
def test_dates_are_read_from_their_first_day(as_of: str, day: date | None) -> None:
    assert first_day(as_of) == day


def test_a_bad_date_is_refused() -> None:
    for text in ("spring", "2026-13", "2026-Q5", "2026-01-01-01"):
        with pytest.raises(CostError, match="as_of"):
            Price(1.0, as_of=text)


def test_a_price_is_stale_after_90_days() -> None:
    price = Price(1.0, as_of="2026-01-01")
    assert not price.is_stale(date(2026, 4, 1))  # 90 days
    assert price.is_stale(date(2026, 4, 2))
    assert not Price(1.0).is_stale(date(2030, 1, 1))


@pytest.mark.parametrize("path", sorted((CONF / "price").glob("*_on_demand.yaml")), ids=str)
def test_a_list_price_is_sourced_and_names_the_chip_of_its_accelerator(path: Path) -> None:
    values = yaml.safe_load(path.read_text())
    price = Price.from_config(values)
    assert price.label == "list price"
    assert price.usd_per_chip_hour > 0
    assert all((price.provider, price.sku, price.region, price.plan, price.source, price.as_of))
    chip = yaml.safe_load((CONF / "accelerator" / f"{price.accelerator}.yaml").read_text())
    assert price.chips == tuple(chip["chips"])


@pytest.mark.parametrize("path", sorted((CONF / "accelerator").glob("*.yaml")), ids=str)
def test_a_chip_fact_has_unit_source_and_date(path: Path) -> None:
    from bench.record import check_unit

    chip = yaml.safe_load(path.read_text())
    assert chip["name"] == path.stem
    assert chip["chips"]
    assert chip["facts"]
    for name, fact in chip["facts"].items():
        check_unit(name, fact["unit"])
        assert fact["value"] > 0
        assert fact["source"].startswith("https://")
        assert fact["as_of"]
        assert fact["label"] == "published"
