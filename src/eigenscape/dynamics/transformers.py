"""Hugging Face Trainer: a callback that watches; needs `pip install eigenscape[transformers]`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..core import CurvatureError
from .monitor import Monitor
from .writers import scalars

if TYPE_CHECKING:
    from transformers import TrainerCallback

FILE = "eigenscape.pt"


def trainer_callback(make: Callable[[Any, Any], Monitor]) -> "TrainerCallback":
    """Make a callback around `make(model, optimizer) -> Monitor`, which is called when training starts.

    Records also join the trainer's `log_history`; the monitor's state is saved beside each checkpoint and found again by
    `trainer.train(resume_from_checkpoint=...)`. `callback.monitor` is the monitor.
    """
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise CurvatureError(
            "transformers is not installed; expected it here: pip install 'eigenscape[transformers]'."
        ) from error

    class CurvatureCallback(TrainerCallback):
        monitor: Monitor | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.monitor = make(kwargs["model"], kwargs["optimizer"])
            saved = _folder(args, state) / FILE
            if state.global_step > 0 and saved.exists():
                self.monitor.load_state_dict(torch.load(saved, weights_only=True))

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            row = self.monitor.step() if self.monitor is not None else None
            if row is not None:
                state.log_history.append(scalars(row, "curvature_") | {"step": state.global_step, "epoch": state.epoch})

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            folder = _folder(args, state)
            if self.monitor is not None and folder.is_dir():
                torch.save(self.monitor.state_dict(), folder / FILE)

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self.monitor is not None:
                self.monitor.close()

    return CurvatureCallback()


def _folder(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"
