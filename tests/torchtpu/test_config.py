"""Settings and the environment variables behind them."""

import pytest

from torchtpu import config as settings
from torchtpu.config import Config, XrtTpuConfig, parse_xrt_tpu_config
from torchtpu.errors import ConfigError, TpuError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("tpu_worker:0;0", XrtTpuConfig("tpu_worker", 0, 0)),
        ("tpu_worker:3;2", XrtTpuConfig("tpu_worker", 3, 2)),
        ("tpu_worker;0;1", XrtTpuConfig("tpu_worker", 0, 1)),
        (" localservice : 0 ; 7 ", XrtTpuConfig("localservice", 0, 7)),
        ("w:10;11", XrtTpuConfig("w", 10, 11)),
    ],
)
def test_xrt_tpu_config_gives_worker_task_and_ordinal(value, expected):
    assert parse_xrt_tpu_config(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        "tpu_worker",
        "tpu_worker:0",
        "tpu_worker:0;",
        ":0;0",
        "tpu_worker:0;0;0",
        "tpu_worker:a;0",
        "tpu_worker:0;-1",
        "tpu_worker:0;1.5",
        "tpu_worker:0;²",
        "tpu_worker:0 0",
        "0;grpc://10.0.0.2:8470",
    ],
)
def test_malformed_xrt_tpu_config_names_the_variable_and_the_form(value):
    with pytest.raises(ConfigError) as caught:
        parse_xrt_tpu_config(value)
    message = str(caught.value)
    assert "XRT_TPU_CONFIG" in message
    assert repr(value) in message
    assert "<worker>:<task>;<ordinal>" in message
    assert "tpu_worker:0;0" in message


def test_xrt_tpu_config_is_read_from_the_environment_at_first_use(monkeypatch):
    monkeypatch.setenv("XRT_TPU_CONFIG", "tpu_worker:0;1")
    assert Config().xrt_tpu_config == XrtTpuConfig("tpu_worker", 0, 1)
    monkeypatch.setenv("XRT_TPU_CONFIG", "")
    assert Config().xrt_tpu_config is None


@pytest.mark.parametrize(
    ("variable", "setting", "default", "choices"),
    [
        ("TORCHTPU_PLATFORM", "platform", "", ("tpu", "cpu", "cuda")),
        ("TORCHTPU_FALLBACK", "fallback", "warn", ("allow", "warn", "error")),
        ("TORCHTPU_EAGER_MODE", "eager_mode", "strict", ("strict", "debug")),
        ("TORCHTPU_DEBUG_NANS", "debug_nans", "0", ("0", "1")),
    ],
)
def test_variables_take_their_choices_and_no_other(
    monkeypatch, variable, setting, default, choices
):
    monkeypatch.delenv(variable, raising=False)
    assert getattr(Config(), setting) == default
    for choice in choices:
        monkeypatch.setenv(variable, f" {choice.upper()} ")
        assert getattr(Config(), setting) == choice
        settings.check(variable)
    monkeypatch.setenv(variable, "sometimes")
    for read in (lambda: getattr(Config(), setting), lambda: settings.check(variable)):
        with pytest.raises(ConfigError) as caught:
            read()
        assert variable in str(caught.value)
        assert all(choice in str(caught.value) for choice in choices)


def test_assigned_values_are_checked_and_can_be_forgotten(monkeypatch):
    monkeypatch.setenv("TORCHTPU_FALLBACK", "allow")
    config = Config()
    config.fallback = "error"
    assert config.fallback == "error"
    with pytest.raises(ConfigError, match=r"fallback must be one of allow, warn, error"):
        config.fallback = "sometimes"
    assert config.fallback == "error"
    del config.fallback
    assert config.fallback == "allow"


def test_an_unknown_setting_lists_the_valid_ones():
    with pytest.raises(AttributeError, match=r"no setting 'fallbacks'.*fallback"):
        Config().fallbacks  # noqa: B018
    with pytest.raises(AttributeError, match=r"no setting 'fallbacks'.*fallback"):
        Config().fallbacks = "warn"


def test_a_configuration_error_is_a_runtime_error_and_a_value_error():
    assert issubclass(ConfigError, TpuError)
    assert issubclass(ConfigError, RuntimeError)
    assert issubclass(ConfigError, ValueError)


def test_every_variable_that_is_read_is_explained(monkeypatch):
    read = {variable for variable, _, _ in Config._choices.values()} | {"XRT_TPU_CONFIG"}
    assert read == set(settings.VARIABLES)
    for variable in settings.VARIABLES:
        monkeypatch.setenv(variable, "x")
    assert set(settings.VARIABLES) <= set(settings.environment())
