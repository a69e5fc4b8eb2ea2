"""The device's place in PyTorch: what an import costs and prints, who owns the slot, forks."""

import json

import pytest
import torch
from processes import run_script

from torchtpu.errors import ConfigError, PlatformError
from torchtpu.runtime import client
from torchtpu.runtime.chips import tpu_device_files


def test_import_brings_no_jax_and_first_use_prints_nothing():
    done = run_script(
        """
        import sys
        import torch
        import torchtpu
        torchtpu._autoload()
        x = torch.device("tpu"), torch.tpu.is_available(), torch.tpu.device_count()
        assert "jax" not in sys.modules, "importing torch imported jax"
        print((torch.ones(2, device="tpu") + 1).sum().item())
        assert "jax" in sys.modules
        """
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout.split() == ["4.0"]


def test_another_owner_of_the_slot_is_named():
    done = run_script(
        """
        import types
        import torch
        torch.utils.rename_privateuse1_backend("npu")
        torch._register_device_module("npu", types.ModuleType("torch_npu.npu"))
        import torchtpu
        try:
            torchtpu._autoload()
        except torchtpu.errors.PlatformError as error:
            print(error)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.returncode == 0, done.stderr
    assert "'npu' (torch_npu.npu) has taken it" in done.stdout
    assert "uninstall" in done.stdout
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in done.stdout


def test_registering_twice_changes_nothing():
    import torchtpu

    before = torch.tpu
    torchtpu._autoload()
    assert torch.tpu is before


def test_a_forked_process_gets_an_error_not_a_hang():
    done = run_script(
        """
        import json, os, warnings
        warnings.simplefilter("ignore")  # JAX warns of any fork
        import torch
        import torchtpu
        torchtpu._autoload()
        x = torch.ones(2, device="tpu") + 1
        child = os.fork()
        if not child:
            uses = {
                "factory": lambda: torch.ones(2, device="tpu"),
                "operator": lambda: x + 1,
                "to cpu": lambda: x.cpu(),
                "from cpu": lambda: torch.zeros(2).to("tpu"),
            }
            errors = {}
            for name, use in uses.items():
                try:
                    errors[name] = repr(use())
                except RuntimeError as error:
                    errors[name] = str(error)
            print(json.dumps(errors), flush=True)
            os._exit(0 if torch.tpu._is_in_bad_fork() else 1)
        _, status = os.waitpid(child, 0)
        assert status == 0
        assert (x + 1).tolist() == [3.0, 3.0]
        """
    )
    assert done.returncode == 0, done.stderr
    for name, error in json.loads(done.stdout).items():
        assert "forked process" in error, name
        assert "spawn" in error, name


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.empty(2, device="tpu:1"),
        lambda: torch.ones(2, device="tpu:1"),
        lambda: torch.ones(2).to("tpu:1"),
        lambda: torch.ones(2, device="tpu").to("tpu:1"),
        lambda: torch.ones(2).tpu(1),
        lambda: torch.tpu.set_device(1),
        lambda: torch.tpu.get_device_name("tpu:1"),
    ],
    ids=["empty", "ones", "to", "tpu to tpu", "tpu()", "set_device", "get_device_name"],
)
def test_a_second_device_does_not_exist(use):
    with pytest.raises(RuntimeError, match=r"tpu:1 does not exist.*one process for each chip"):
        use()


def test_the_platform_follows_the_setting_and_what_is_there(monkeypatch):
    from torchtpu.config import config

    monkeypatch.setitem(config.__dict__, "platform", "cuda")
    assert client.choose_platform() == ("cuda", "TORCHTPU_PLATFORM asks for it")
    monkeypatch.setitem(config.__dict__, "platform", "")
    monkeypatch.setattr(client, "tpu_device_files", list)
    assert client.choose_platform() == ("cpu", "no TPU found")
    monkeypatch.setattr(client, "tpu_device_files", lambda: ["/dev/accel0"])
    monkeypatch.setattr(client.importlib.util, "find_spec", lambda name: None)
    platform, reason = client.choose_platform()
    assert platform == "cpu"
    assert "libtpu is not installed" in reason
    monkeypatch.setattr(client.importlib.util, "find_spec", lambda name: object())
    assert client.choose_platform()[0] == "tpu"


def test_a_cpu_never_passes_for_a_tpu():
    torch.ones(1, device="tpu")
    if client.platform() == "tpu":
        pytest.skip("there is a TPU here")
    assert "not a TPU" in torch.tpu.get_device_name()
    assert "these times say nothing about a TPU" in client.describe()


@pytest.mark.skipif(bool(tpu_device_files()), reason="there is a TPU here")
def test_a_platform_that_is_not_there_is_a_clear_error():
    done = run_script(
        """
        import torch
        import torchtpu
        torchtpu._autoload()
        try:
            torch.ones(2, device="tpu")
        except torchtpu.errors.PlatformError as error:
            print(error)
        """,
        TORCHTPU_PLATFORM="cuda",
    )
    if done.stdout == "":
        pytest.skip("JAX has a CUDA device here")
    assert "PJRT platform 'cuda' could not be started" in done.stdout
    assert "torchtpu.doctor" in done.stdout


def test_platform_errors_are_runtime_errors():
    assert issubclass(PlatformError, RuntimeError)
    assert issubclass(ConfigError, RuntimeError)
