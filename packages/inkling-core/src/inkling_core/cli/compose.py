"""Lets Hydra compose the settings of one command, and hands them back.

Not the work: Hydra's own machinery only composes and answers `--cfg`, `--info`,
`--shell-completion`; the command's function is called after Hydra has returned, so that no job
directory, logging set-up or error page of Hydra's surrounds it.

Other packages add config groups to ours through the entry-point group `inkling.conf` (a package
with YAML files, for example `inkling_hpu = "inkling_hpu.conf"`), which one SearchPathPlugin reads.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from inkling_core.cli import schema
from inkling_core.cli.arguments import Arguments
from inkling_core.cli.commands import CONF, Command
from inkling_core.cli.mistakes import (
    UsageError,
    explain,
    missing_values,
    unknown_key,
    with_near_name,
)

if TYPE_CHECKING:
    from omegaconf import DictConfig

CONF_GROUP = "inkling.conf"

# No outputs/ folder, no change of directory, no logging set-up: this is a tool, not an experiment.
QUIET = (
    "hydra.run.dir=.",
    "hydra.output_subdir=null",
    "hydra.job.chdir=false",
    "hydra/job_logging=none",
    "hydra/hydra_logging=none",
)


def prepare(command: Command) -> None:
    """Registers the command's schema and the search path of the other packages. Safe to call
    again."""
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin

    class InstalledConf(SearchPathPlugin):
        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            if all(item.path != f"pkg://{CONF}" for item in search_path.get_path()):
                return  # the command has a configuration of its own
            for point in entry_points(group=CONF_GROUP):
                search_path.append(provider=point.name, path=f"pkg://{point.value}")

    known = {found.__name__ for found in Plugins.instance().discover(SearchPathPlugin)}
    if InstalledConf.__name__ not in known:
        Plugins.instance().register(InstalledConf)
    schema.register(command.config, command.settings())


def settings_for(command: Command, arguments: Arguments) -> Any | None:
    """The composed and checked settings, or None where a flag such as `--cfg job` was answered
    instead.

    Raises UsageError for every mistake in the arguments.
    """
    config = _run_hydra(command, [*arguments.flags, *arguments.overrides, *QUIET])
    return None if config is None else _to_settings(command, config, arguments.secrets)


def compose(command: Command, arguments: Sequence[str]) -> DictConfig:
    """The composed configuration without Hydra's own part. Raises UsageError."""
    from hydra import compose as hydra_compose

    with _explained(command), _initialized(command):
        return hydra_compose(command.config, overrides=[*arguments])


def groups(command: Command) -> dict[str, list[str]]:
    """The config groups that `command` uses and their options, those of other packages included."""
    from hydra import compose as hydra_compose
    from hydra.core.global_hydra import GlobalHydra

    with _initialized(command):
        config = hydra_compose(command.config, return_hydra_config=True)
        loader = GlobalHydra.instance().config_loader()
        chosen = [str(name) for name in config.hydra.runtime.choices]
        return {
            name: loader.get_group_options(name) for name in chosen if not name.startswith("hydra/")
        }


@contextmanager
def _initialized(command: Command) -> Iterator[None]:
    from hydra import initialize_config_module

    prepare(command)
    with warnings.catch_warnings():
        # hydra-core 1.3 warns about its own use of importlib.resources on newer Pythons
        warnings.simplefilter("ignore", DeprecationWarning)
        with initialize_config_module(command.conf, version_base="1.3"):
            yield


def _run_hydra(command: Command, arguments: Sequence[str]) -> DictConfig | None:
    import hydra

    composed: list[DictConfig] = []
    prepare(command)
    path = f"pkg://{command.conf}"
    run = hydra.main(version_base="1.3", config_path=path, config_name=command.config)(
        composed.append
    )
    with _explained(command), _argv([f"inkling {command.name}", *arguments]):
        run()
    return composed[0] if composed else None


def _to_settings(command: Command, config: DictConfig, secrets: dict[str, str]) -> Any:
    from omegaconf import OmegaConf

    cls = command.settings()
    with _explained(command):
        missing = sorted(str(key) for key in OmegaConf.missing_keys(config))
        if missing:
            raise UsageError(missing_values(missing, cls))
        composed = OmegaConf.to_container(config, resolve=True)
    values = {str(key): value for key, value in composed.items()}  # type: ignore[union-attr]  # a DictConfig gives a dict
    for name in values.keys() - set(schema.field_names(cls)):  # let in by `+name=value`
        raise UsageError(unknown_key(name, cls, groups(command)))
    try:
        return schema.settings_from(cls, {**values, **secrets})
    except ValueError as error:
        raise UsageError(with_near_name(str(error))) from error


@contextmanager
def _explained(command: Command) -> Iterator[None]:
    """Errors of Hydra and OmegaConf become UsageError; needs HYDRA_FULL_ERROR, else Hydra prints
    and exits."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    failed: Exception | None = None
    try:
        with warnings.catch_warnings():
            # hydra-core 1.3 warns about its own use of importlib.resources on newer Pythons
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    except (HydraException, OmegaConfBaseException) as error:
        failed = error
    finally:
        if before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = before
    if failed is not None:
        raise UsageError(explain(failed, command.settings(), groups(command))) from failed


@contextmanager
def _argv(argv: list[str]) -> Iterator[None]:
    """Hydra reads `sys.argv`; ours comes back before the command runs."""
    before, sys.argv = sys.argv, argv
    try:
        yield
    finally:
        sys.argv = before
