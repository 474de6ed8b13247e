"""PyTorch Lightning: a callback that watches; needs `pip install eigenscape[lightning]`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core import CurvatureError
from .monitor import Monitor
from .writers import scalars

if TYPE_CHECKING:
    from lightning.pytorch import Callback


def lightning_callback(make: Callable[[Any, Any], Monitor], *, log: bool = True) -> "Callback":
    """Make a callback around `make(module, optimizer) -> Monitor`, which is called when training starts.

    A record follows an optimizer step, not every batch, so accumulated gradients count once. Numbers go to the trainer's
    loggers (`log`), and the monitor's state into Lightning's checkpoints. `callback.monitor` is the monitor.
    """
    try:
        from lightning.pytorch import Callback
    except ImportError as error:
        raise CurvatureError("lightning is not installed; expected it here: pip install 'eigenscape[lightning]'.") from error

    class CurvatureCallback(Callback):
        monitor: Monitor | None = None
        saved: dict[str, Any] | None = None
        seen = 0

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.monitor = make(pl_module, trainer.optimizers[0])
            self.seen = trainer.global_step
            if self.saved is not None:
                self.monitor.load_state_dict(self.saved)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if self.monitor is None or trainer.global_step == self.seen:
                return
            self.seen = trainer.global_step
            row = self.monitor.step()
            if row is not None and log:
                for logger in trainer.loggers:
                    logger.log_metrics(scalars(row), step=trainer.global_step)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            if self.monitor is not None:
                self.monitor.close()

        def state_dict(self) -> dict[str, Any]:
            return {} if self.monitor is None else self.monitor.state_dict()

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.saved = state_dict or None

    return CurvatureCallback()
