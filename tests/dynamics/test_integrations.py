"""The adapters, with the real libraries: small models, nothing leaves the machine."""

import csv
import json
import math
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from eigenscape.core import CurvatureError
from eigenscape.curvature import Objective
from eigenscape.dynamics import Monitor
from eigenscape.dynamics.lightning import lightning_callback
from eigenscape.dynamics.transformers import trainer_callback
from eigenscape.dynamics.writers import CsvWriter, TensorBoardWriter, WandbWriter

pytestmark = pytest.mark.filterwarnings("ignore")  # of the other libraries


def needed(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=f"{name} is not installed")


X = torch.randn(24, 5, generator=torch.Generator().manual_seed(0))
Y = torch.randint(0, 3, (24,), generator=torch.Generator().manual_seed(1))


def trained(writers, steps=4, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = Monitor(Objective(model, nn.CrossEntropyLoss(), (X, Y)), optimizer, every=2, writers=writers, **options)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(X), Y).backward()
        optimizer.step()
        monitor.step()
    monitor.close()
    return monitor


def test_csv(tmp_path):
    monitor = trained([CsvWriter(tmp_path / "h.csv")])
    with open(tmp_path / "h.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(r["sharpness"]) for r in rows] == monitor.history["sharpness"].tolist()
    assert json.loads(rows[0]["eigenvalues"]) == monitor.history[0]["eigenvalues"]


def test_csv_takes_columns_that_come_later_and_follows_a_resumed_run(tmp_path):
    write = CsvWriter(tmp_path / "h.csv")
    for row in ({"step": 1}, {"step": 2, "share": 0.5}, {"step": 3}):
        write(row)
    assert (tmp_path / "h.csv").read_text().split() == ["step,share", "1,", "2,0.5", "3,"]
    first = trained([CsvWriter(tmp_path / "run.csv")], steps=4)
    state = first.state_dict()
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    again = Monitor(
        Objective(model, nn.CrossEntropyLoss(), (X, Y)),
        torch.optim.SGD(model.parameters(), lr=0.1),
        every=2,
        writers=[CsvWriter(tmp_path / "run.csv")],
    )
    again.load_state_dict(state)
    again.steps = 6
    again.measure()
    with open(tmp_path / "run.csv", newline="") as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["2", "4", "6"]


def test_tensorboard(tmp_path):
    needed("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monitor = trained([TensorBoardWriter(tmp_path)])
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    found = events.Scalars("curvature/sharpness")
    assert [e.step for e in found] == [2, 4]
    assert [e.value for e in found] == pytest.approx(monitor.history["sharpness"].tolist())


def test_wandb_offline(tmp_path, monkeypatch):
    wandb = needed("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with pytest.raises(CurvatureError, match=r"there is no wandb run; expected wandb\.init"):
        WandbWriter()
    run = wandb.init(mode="offline", dir=str(tmp_path), project="test")
    try:
        monitor = trained([WandbWriter(run)])
        assert run.summary["curvature/sharpness"] == pytest.approx(monitor.history["sharpness"][-1])
        assert run.summary["curvature/step"] == 4
    finally:
        run.finish()
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_lightning(tmp_path):
    needed("lightning")
    import lightning.pytorch as lightning
    from lightning.pytorch.loggers import CSVLogger

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.2), nn.Tanh(), nn.Linear(4, 3))

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-2)

    def make(module, optimizer):
        return Monitor(lambda: Objective(module.net, nn.CrossEntropyLoss(), (X, Y)), optimizer, every=2, model=module)

    def fit(callbacks, epochs, checkpoint=None):
        torch.manual_seed(1)
        module = Module()
        trainer = lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            devices=1,
            accumulate_grad_batches=2,
            callbacks=callbacks,
            logger=CSVLogger(tmp_path),
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            default_root_dir=tmp_path,
        )
        trainer.fit(module, DataLoader(TensorDataset(X, Y), batch_size=6), ckpt_path=checkpoint)
        return trainer, module

    callback = lightning_callback(make)
    trainer, module = fit([callback], 4)
    assert callback.monitor.steps == trainer.global_step == 8  # 4 batches, 2 accumulated, 4 epochs
    assert callback.monitor.history["step"].tolist() == [2, 4, 6, 8]
    _, without = fit([], 4)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), without.parameters()))
    logged = next(tmp_path.glob("lightning_logs/version_0/metrics.csv")).read_text()
    assert "curvature/sharpness" in logged
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = lightning_callback(make)
    fit([again], 6, tmp_path / "last.ckpt")
    assert again.monitor.history["step"].tolist() == [2, 4, 6, 8, 10, 12]
    assert again.monitor.history.rows[:4] == callback.monitor.history.rows


def test_transformers(tmp_path):
    needed("transformers")
    needed("accelerate")
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    def new():
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, num_labels=2,
            max_position_embeddings=8,
        )  # fmt: skip
        return BertForSequenceClassification(config)

    ids = torch.randint(0, 20, (16, 6), generator=torch.Generator().manual_seed(2))
    rows = [{"input_ids": i, "labels": i[0] % 2} for i in ids]

    def make(model, optimizer):
        data = ({"input_ids": ids}, ids[:, 0] % 2)
        return Monitor(lambda: Objective(model, nn.CrossEntropyLoss(), data), optimizer, every=2, model=model)

    def fit(callbacks, steps, resume=None):
        arguments = TrainingArguments(
            output_dir=str(tmp_path), max_steps=steps, per_device_train_batch_size=4, save_steps=4, report_to=[], use_cpu=True,
            disable_tqdm=True, logging_strategy="no",
        )  # fmt: skip
        trainer = Trainer(new(), arguments, train_dataset=rows, callbacks=callbacks)
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    callback = trainer_callback(make)
    trainer = fit([callback], 4)
    assert callback.monitor.history["step"].tolist() == [2, 4]
    assert all(math.isfinite(v) and v > 0 for v in callback.monitor.history["sharpness"])
    assert callback.monitor.history[-1]["threshold"] > 0  # AdamW's, through Accelerate's wrapper
    assert any("curvature_sharpness" in entry for entry in trainer.state.log_history)
    assert all(torch.equal(a, b) for a, b in zip(trainer.model.parameters(), fit([], 4).model.parameters()))
    fit([trainer_callback(make)], 4)  # writes the checkpoint again, with the monitor beside it
    again = trainer_callback(make)
    fit([again], 8, resume=str(tmp_path / "checkpoint-4"))
    assert again.monitor.history["step"].tolist() == [2, 4, 6, 8]


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("lightning", lambda: lightning_callback(lambda *a: None)),
        ("transformers", lambda: trainer_callback(lambda *a: None)),
        ("wandb", WandbWriter),
        ("tensorboard", lambda: TensorBoardWriter("unused")),
    ],
)
def test_absent_libraries_are_named_with_their_extra(name, use, monkeypatch):
    import sys

    for module in ("lightning.pytorch", "transformers", "wandb", "torch.utils.tensorboard.writer"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CurvatureError, match=rf"{name} is not installed; expected it here: pip install 'eigenscape\[{name}\]'"):
        use()
