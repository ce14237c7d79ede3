"""Which files and folders are training images, which test images, and what is said of the rest."""

import io
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from relatum.data import DataError, load_splits


def png(value):
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), (value, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def tar(path, *values, label=b"0"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as shard:
        for value in values:
            files = {f"{value}.png": png(value), f"{value}.cls": label}
            for name, content in files.items():
                if content is not None:
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    shard.addfile(member, io.BytesIO(content))


def table(path, labels, first):
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [{"bytes": png(first + i), "path": None} for i in range(len(labels))]
    pq.write_table(pa.table({"image": images, "label": pa.array(labels, pa.int64())}), path)


def npz(path, labels, first):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.zeros((len(labels), 4, 4, 3), dtype=np.uint8)
    pixels[..., 0] = np.arange(first, first + len(labels)).reshape(-1, 1, 1)
    np.savez(path, x=pixels, y=labels)


def picture(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(value))


def parts(data, **options):
    """The red values of training and test images, and all that is said."""
    train, test, how = load_splits(str(data), image_size=4, **options)
    values = [each.held().pixels[:, 0, 0, 0].tolist() for each in (train, test)]
    return values, " | ".join([*train.notes, *test.notes, how])


@pytest.mark.parametrize("root", ["train", "test", "val", "data"])
@pytest.mark.parametrize("held_out", ["test", "val"])
def test_the_name_of_the_folder_itself_says_nothing(tmp_path, root, held_out):
    tar(tmp_path / root / "train-0.tar", 1, 2)
    tar(tmp_path / root / f"{held_out}-0.tar", 3)
    assert parts(tmp_path / root)[0] == [[1, 2], [3]]


@pytest.mark.parametrize("root", ["train", "x"])
def test_the_folder_below_goes_before_the_name(tmp_path, root):
    tar(tmp_path / root / "train" / "crash-test-0.tar", 1, 2)
    tar(tmp_path / root / "val" / "crash-test-0.tar", 3)
    assert parts(tmp_path / root)[0] == [[1, 2], [3]]


def test_a_name_of_two_parts_is_refused(tmp_path):
    tar(tmp_path / "train-val-0.tar", 1, 2)
    tar(tmp_path / "val-0.tar", 3)
    with pytest.raises(DataError, match=r"train-val-0\.tar names two parts, train and val"):
        parts(tmp_path)


def test_files_of_no_part_are_training_beside_a_test_part(tmp_path):
    tar(tmp_path / "shard-0.tar", 1, 2)
    tar(tmp_path / "shard-1.tar", 4)
    tar(tmp_path / "val-0.tar", 3)
    found, said = parts(tmp_path)
    assert found == [[1, 2, 4], [3]]
    assert "own split" in said
    assert "names say no part are training: shard-0.tar, shard-1.tar" in said


@pytest.mark.parametrize("held_out", [True, False])
def test_files_of_no_part_are_left_out_beside_training_with_a_note(tmp_path, held_out):
    tar(tmp_path / "train-0.tar", 1, 2, 3, 4, 5)
    tar(tmp_path / "unlabeled-0.tar", 6)
    tar(tmp_path / "unlabeled-1.tar", 7)
    if held_out:
        tar(tmp_path / "val-0.tar", 8)
    found, said = parts(tmp_path)
    assert sorted(found[0] + found[1]) == [1, 2, 3, 4, 5] + [8] * held_out
    assert "left out" in said
    assert "unlabeled-0.tar, unlabeled-1.tar" in said


def test_a_test_part_alone_is_split_and_two_are_not_mixed(tmp_path):
    tar(tmp_path / "val-0.tar", 1, 2, 3, 4, 5)
    found, said = parts(tmp_path)
    assert sorted(found[0] + found[1]) == [1, 2, 3, 4, 5]
    assert "no training files: those of val are split" in said
    tar(tmp_path / "test-0.tar", 6)
    with pytest.raises(DataError, match=r"files of test and val but none of training"):
        parts(tmp_path)


def test_the_test_part_that_is_not_used_is_noted(tmp_path):
    for part, first in (("train", 0), ("val", 10), ("test", 20)):
        npz(tmp_path / f"{part}.npz", [0, 1], first)
    found, said = parts(tmp_path)
    assert found == [[0, 1], [20, 21]]
    assert f"left out of {tmp_path}, test serves: val.npz" in said


@pytest.mark.parametrize("stream", [False, True])
def test_imagenet_of_the_hub_is_tested_on_its_labelled_part(tmp_path, stream):
    """train, validation, and a test part whose labels are all -1."""
    data = tmp_path / "hub" / "data"
    table(data / "train-00000-of-00002.parquet", [0, 1], 0)
    table(data / "train-00001-of-00002.parquet", [1], 2)
    table(data / "validation-00000-of-00001.parquet", [1, 0], 10)
    table(data / "test-00000-of-00001.parquet", [-1, -1], 20)
    options = {"stream": True, "cache": tmp_path / "cache"} if stream else {}
    found, said = parts(tmp_path / "hub", **options)
    assert found == [[0, 1, 2], [10, 11]]
    assert "left out" in said
    assert "no labels: data/test-00000-of-00001.parquet" in said
    if stream:  # nothing is unpacked only to be left out
        assert not list((tmp_path / "cache").glob("test*"))


@pytest.mark.parametrize("kind", [".tar", ".npz"])
def test_other_files_likewise(tmp_path, kind):
    if kind == ".tar":
        tar(tmp_path / "train-0.tar", 1, 2)
        tar(tmp_path / "test-0.tar", 3, label=None)
        tar(tmp_path / "val-0.tar", 4)
    else:
        npz(tmp_path / "train.npz", [0, 1], 1)
        npz(tmp_path / "test.npz", [-1], 3)
        npz(tmp_path / "val.npz", [0], 4)
    found, said = parts(tmp_path)
    assert found == [[1, 2], [4]]
    assert "no labels: test" in said


def test_where_nothing_is_labelled_the_first_test_part_serves(tmp_path):
    for part, first in (("train", 0), ("validation", 10), ("test", 20)):
        table(tmp_path / f"{part}-0.parquet", [-1, -1], first)
    assert parts(tmp_path)[0] == [[0, 1], [20, 21]]


def test_labels_of_a_test_part_are_no_reason_where_training_has_none(tmp_path):
    for part, label, first in (("train", -1, 0), ("validation", 0, 10), ("test", -1, 20)):
        table(tmp_path / f"{part}-0.parquet", [label] * 2, first)
    assert parts(tmp_path)[0] == [[0, 1], [20, 21]]


def test_a_note_names_three_files_and_the_number_of_the_others(tmp_path):
    for i in range(5):
        tar(tmp_path / f"shard-{i}.tar", i)
    tar(tmp_path / "val-0.tar", 9)
    assert "training: shard-0.tar, shard-1.tar, shard-2.tar and 2 more" in parts(tmp_path)[1]


def class_folders(root, held_out="val"):
    picture(root / "train" / "a" / "0.png", 0)
    picture(root / "train" / "b" / "1.png", 1)
    picture(root / held_out / "a" / "2.png", 2)


def test_a_flat_test_folder_is_passed_over(tmp_path):
    """Kaggle's ImageNet: the test images have no labels, hence no class folders."""
    class_folders(tmp_path)
    for value in (3, 4):
        picture(tmp_path / "test" / f"{value}.png", value)
    found, said = parts(tmp_path)
    assert found == [[0, 1], [2]]
    assert "test has no class folders, so it is left out: val is the test part" in said
    (tmp_path / "val" / "a" / "2.png").rename(tmp_path / "val" / "2.png")
    (tmp_path / "val" / "a").rmdir()
    with pytest.raises(DataError, match=r"test holds 2 images directly"):
        parts(tmp_path)


def test_class_folders_of_two_parts_go_before_loose_files(tmp_path):
    class_folders(tmp_path)
    tar(tmp_path / "ILSVRC2012_img_train.tar", 9)
    np.savez(tmp_path / "fid_stats.npz", mu=np.zeros(2), sigma=np.zeros((2, 2)))
    found, said = parts(tmp_path)
    assert found == [[0, 1], [2]]
    assert "class folders serve: ILSVRC2012_img_train.tar, fid_stats.npz" in said


@pytest.mark.parametrize("below", [True, False])
def test_shards_of_two_parts_go_before_a_stray_file(tmp_path, below):
    tar(tmp_path / ("train/0.tar" if below else "train-0.tar"), 1, 2)
    tar(tmp_path / ("val/0.tar" if below else "val-0.tar"), 3)
    np.savez(tmp_path / "fid_stats.npz", mu=np.zeros(2), sigma=np.zeros((2, 2)))
    if below:
        tar(tmp_path / "all.tar", 4)
    found, said = parts(tmp_path)
    assert found == [[1, 2], [3]]
    assert "left out" in said
    assert "fid_stats.npz" in said
    assert ("all.tar" in said) == below


def test_files_of_both_parts_go_before_a_stray_one_wherever_they_lie(tmp_path):
    table(tmp_path / "extra.parquet", [0], 9)
    table(tmp_path / "data" / "train-0.parquet", [0, 1], 0)
    table(tmp_path / "data" / "test-0.parquet", [1], 5)
    found, said = parts(tmp_path)
    assert found == [[0, 1], [5]]
    assert "others serve: extra.parquet" in said


def test_braces_stand_for_many_files(tmp_path):
    for i in range(9, 12):
        tar(tmp_path / f"train-{i:03d}.tar", i, i + 20)
    tar(tmp_path / "val-0.tar", 50)
    found, _ = parts(f"{tmp_path}/train-{{009..010}}.tar", test_fraction=0.5)
    assert sorted(found[0] + found[1]) == [9, 10, 29, 30]
    pattern = f"{tmp_path}/{{train-{{009..011}},val-0}}.tar"
    assert parts(pattern)[0] == parts(f"imagenet:{pattern}")[0] == [[9, 29, 10, 30, 11, 31], [50]]
    tar(tmp_path / "deep" / "train" / "0" / "x.tar", 1)
    tar(tmp_path / "deep" / "val" / "x.tar", 2)
    assert parts(f"{tmp_path}/deep/{{train/0,val}}/x.tar")[0] == [[1], [2]]


def test_braces_that_mean_nothing_say_so(tmp_path):
    tar(tmp_path / "train-0.tar", 1)
    (tmp_path / "a.csv").write_text("x")
    with pytest.raises(DataError, match=r"means 3 files, of which 2 are missing.*train-1\.tar"):
        parts(f"{tmp_path}/train-{{0..2}}.tar")
    with pytest.raises(DataError, match=r"means no file"):
        parts(f"{tmp_path}/train-{{2..0}}.tar")
    with pytest.raises(DataError, match=r"neither \.npz nor \.parquet nor \.tar"):
        parts(f"{tmp_path}/{{a,a}}.csv")


@pytest.mark.parametrize("train", ["", "train/"])
def test_shards_in_deeper_folders_say_what_to_give(tmp_path, train):
    tar(tmp_path / f"{train}0000" / "x-0.tar", 1)
    tar(tmp_path / f"{train}0001" / "x-1.tar", 2)
    with pytest.raises(DataError, match=r"0000 holds no images but x-0\.tar.*\{000\.\.146\}"):
        parts(tmp_path)


@pytest.mark.parametrize("data", ["digits", "folder", "shards"])
def test_a_column_of_labels_needs_a_table(tmp_path, data):
    class_folders(tmp_path / "folder")
    tar(tmp_path / "shards" / "a.tar", 1, 2)
    place = data if data == "digits" else tmp_path / data
    with pytest.raises(DataError, match=r"label_column names a column of .*holds none"):
        parts(place, label_column="fine_label")
