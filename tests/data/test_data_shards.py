"""Tar shards, parquet to be streamed, and the layouts of Omniglot and CelebA."""

import io
import json
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from filelock import FileLock
from PIL import Image

from relatum.data import DataError, load_splits, parquet
from relatum.data.decoding import encoded
from relatum.data.layouts import celeba, omniglot
from relatum.data.parquet import list_parquet
from relatum.data.tars import list_tars
from relatum.recipes.images import TrainImages, load_images
from relatum.recipes.inputs import images_key


def png(value, size=4):
    buffer = io.BytesIO()
    Image.new("RGB", (size, size), (value, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def write_tar(path, files, mode="w"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def sample(key, value, label, form="cls"):
    text = str(label) if form == "cls" else json.dumps({"label": label, "other": [1, 2]})
    return [(f"{key}.png", png(value)), (f"{key}.{form}", text.encode())]


def reds(table):
    return table.held().pixels[:, 0, 0, 0].tolist()


# --- tar shards


@pytest.mark.parametrize("form", ["cls", "json"])
@pytest.mark.parametrize("stream", [False, True])
def test_shards_of_two_splits(tmp_path, form, stream):
    for shard in range(2):
        files = [f for i in range(3) for f in sample(f"s{i}", 10 * shard + i, i % 2, form)]
        write_tar(tmp_path / f"imagenet-train-{shard:04d}.tar", files)
    write_tar(tmp_path / "imagenet-val-0000.tar", sample("x", 99, 1, form))
    train, test, how = load_splits(str(tmp_path), image_size=4, stream=stream)
    found = [reds(train), reds(test)]
    assert found == [[0, 1, 2, 10, 11, 12], [99]]
    assert train.labels.tolist() == [0, 1, 0] * 2
    assert train.ids[4] == "imagenet-train-0001/s1"
    assert (test.labels.tolist(), test.classes) == ([1], ("0", "1"))
    assert "own split" in how
    (tmp_path / "train").mkdir()
    (tmp_path / "val").mkdir()
    for path in list(tmp_path.glob("*.tar")):
        path.rename(tmp_path / ("val" if "val" in path.name else "train") / path.name[9:])
    again = load_splits(f"imagenet:{tmp_path}", image_size=4)
    assert [reds(table) for table in again[:2]] == found


def test_keys_are_paths_up_to_the_first_dot_of_the_name(tmp_path):
    path = write_tar(
        tmp_path / "a.tar",
        [
            ("v1.0/cat.left.png", png(1)),  # the ending is left.png: no image by that name
            ("v1.0/cat.cls", b"7"),
            ("v1.0/dog.PNG", png(2)),
            ("v1.0/dog.cls", b" 3\n"),
            ("v1.0/dog.txt", b"a dog"),
            ("v2.0/dog.jpg", png(4)),
            ("._dog.png", png(5)),
            ("README", b"text"),
        ],
    )
    found = list_tars([path], "source")
    assert list(found.ids) == ["a/v1.0/dog", "a/v2.0/dog"]
    assert found.labels.tolist() == [3, -1]
    assert any("keys without an image (1)" in note for note in found.notes)
    assert any(".txt (1)" in note for note in found.notes)


def test_labels_may_be_names_and_cls_goes_before_json(tmp_path):
    files = [
        *sample("a", 1, "zebra"),
        *sample("b", 2, "ant"),
        ("b.json", b'{"label": "zebra"}'),
        ("c.json", b'{"cls": "ant"}'),
        ("c.png", png(3)),
    ]
    found = list_tars([write_tar(tmp_path / "a.tar", files)], "source")
    assert found.classes == ("ant", "zebra")
    assert found.labels.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("files", "match"),
    [
        ([("a.cls", b"1")], "holds no images"),
        ([("a.png", png(1)), ("a.jpg", png(1))], "two images of one key"),
        ([("a.png", png(1)), ("a.json", b"{")], "not valid JSON"),
        ([("a.png", png(1)), ("a.cls", b"1.5"), ("b.png", png(1)), ("b.cls", b"1")], "label"),
    ],
)
def test_shards_that_are_wrong_say_why(tmp_path, files, match):
    with pytest.raises(DataError, match=match):
        list_tars([write_tar(tmp_path / "a.tar", files)], "source")


def test_compressed_and_damaged_shards_say_so(tmp_path):
    path = write_tar(tmp_path / "a.tar", sample("a", 1, 1), "w:gz")
    with pytest.raises(DataError, match=r"a\.tar is damaged, or is no plain tar file"):
        list_tars([path], "source")
    whole = write_tar(tmp_path / "b.tar", sample("a", 1, 1) + sample("b", 2, 1))
    found = load_splits(str(whole), image_size=4, stream=True)
    whole.write_bytes(whole.read_bytes()[:600])  # in the middle of the first image
    with pytest.raises(DataError, match=r"b\.tar ends before the image does"):
        [table.held() for table in found[:2]]


@pytest.mark.parametrize("place", [0, 100, 124, 148, 156, 345])  # name, mode, size, sum, type
def test_no_image_vanishes_behind_a_flipped_byte_of_a_header(tmp_path, place):
    """The sum of its bytes stands in every header of a tar file; here the third of six."""
    path = write_tar(tmp_path / "a.tar", [f for i in range(3) for f in sample(f"s{i}", i, i)])
    header = 4 * 512  # each file here takes a block for its header and one for its content
    assert path.read_bytes()[header : header + 6] == b"s1.png"
    data = bytearray(path.read_bytes())
    data[header + place] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"a\.tar is damaged at byte {header}.*copy it again"):
        list_tars([path], "source")


@pytest.mark.parametrize("blocks", range(13))
def test_a_shard_cut_anywhere_says_so(tmp_path, blocks):
    path = write_tar(tmp_path / "a.tar", [f for i in range(3) for f in sample(f"s{i}", i, i)])
    whole = path.read_bytes()
    assert len(list_tars([path], "source")) == 3
    for size in {max(512 * blocks - 1, 0), 512 * blocks, 512 * blocks + 1}:
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"a\.tar is damaged|a\.tar ends without"):
            list_tars([path], "source")
    path.write_bytes(whole[: 13 * 512])  # one block of zeros is an end, too
    assert len(list_tars([path], "source")) == 3


def test_what_stands_behind_the_end_of_a_shard_is_not_lost_in_silence(tmp_path):
    first, second = (write_tar(tmp_path / f"{k}.tar", sample(k, 1, 1)) for k in "ab")
    end = len(first.read_bytes())
    first.write_bytes(first.read_bytes() + second.read_bytes())
    with pytest.raises(DataError, match=rf"a\.tar holds data behind its end mark, at byte {end}"):
        list_tars([first], "source")


def link(tar, name, target, kind=tarfile.LNKTYPE):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    tar.addfile(member)


def test_hard_links_in_shards_are_the_files_they_mean(tmp_path):
    path = write_tar(tmp_path / "a.tar", [("x/a.png", png(7)), ("x/a.cls", b"3")])
    with tarfile.open(path, "a") as tar:
        link(tar, "x/b.png", "x/a.png")
        link(tar, "x/b.cls", "x/a.cls")
    found = list_tars([path], "source")
    assert list(found.ids) == ["a/x/a", "a/x/b"]
    assert found.items[0] == found.items[1]
    assert found.labels.tolist() == [3, 3]


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
def test_links_to_nothing_known_are_named(tmp_path, kind):
    path = write_tar(tmp_path / "a.tar", sample("a", 1, 1))
    with tarfile.open(path, "a") as tar:
        link(tar, "b.png", "../elsewhere.png", kind)
    with pytest.raises(DataError, match=r"a\.tar: b\.png is a link to \.\./elsewhere\.png"):
        list_tars([path], "source")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"--5", r"label '--5' of key b in .*two\.tar"),
        (b"1.5", r"label '1\.5' of key b in .*two\.tar"),
        (b"-2", r"label -2 of key b in .*two\.tar"),
        (b"\xff", r"two\.tar: b\.cls is no text"),
        (b" \n", r"two\.tar: b\.cls is empty"),
    ],
)
def test_a_label_that_is_none_is_named_with_its_shard_and_key(tmp_path, content, match):
    one = write_tar(tmp_path / "one.tar", sample("a", 1, 1))
    two = write_tar(
        tmp_path / "two.tar", [*sample("a", 1, 1), ("b.png", png(2)), ("b.cls", content)]
    )
    with pytest.raises(DataError, match=match):
        list_tars([one, two], "source")


# --- parquet


def write_parquet(path, values, labels, **options):
    image = pa.array([{"bytes": png(v), "path": None} for v in values])
    pq.write_table(pa.table({"image": image, "label": pa.array(labels)}), path, **options)
    return path


def kept(cache):
    return [path for path in cache.iterdir() if path.suffix in (".bytes", ".npy")]


def test_parquet_streams_from_a_cache_that_is_written_once(tmp_path):
    data, cache = tmp_path / "data", tmp_path / "cache"
    data.mkdir()
    write_parquet(data / "train-00.parquet", [1, 2, 3], [0, 1, 0], row_group_size=2)
    write_parquet(data / "train-01.parquet", [4, 5], [1, None])
    write_parquet(data / "test-00.parquet", [6], [1])
    with pytest.raises(DataError, match="--cache DIR"):
        load_splits(str(data), image_size=4, stream=True)
    options = {"image_size": 4, "stream": True, "cache": cache}
    held, streamed = load_splits(str(data), image_size=4), load_splits(str(data), **options)
    for a, b in zip(held[:2], streamed[:2], strict=True):
        assert (a.ids, a.classes) == (b.ids, b.classes)
        assert torch.equal(a.labels, b.labels)
        assert torch.equal(a.pixels, b.held().pixels)
    assert not list(cache.glob("*.partial"))
    written = {path: path.stat().st_mtime_ns for path in kept(cache)}
    assert len(written) == 6  # bytes and lengths of three files
    load_splits(str(data), **options)
    assert {path: path.stat().st_mtime_ns for path in kept(cache)} == written
    write_parquet(data / "test-00.parquet", [7], [1])
    assert reds(load_splits(str(data), **options).test) == [7]  # not what the cache had


def test_a_parquet_row_without_an_image_is_named(tmp_path):
    image = pa.array([{"bytes": png(1)}, {"bytes": None}])
    pq.write_table(pa.table({"image": image}), tmp_path / "a.parquet")
    for cache in (None, tmp_path / "cache"):
        with pytest.raises(DataError, match=r"a\.parquet, row 1: column image holds no image"):
            list_parquet([tmp_path / "a.parquet"], "source", cache)
    assert not kept(tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*.partial"))


def test_of_several_that_want_a_table_one_unpacks_it(tmp_path, monkeypatch):
    """Threads stand for processes: the lock is that of an open file, which each has of its own."""
    path = write_parquet(tmp_path / "a.parquet", [1, 2, 3], [0, 1, 0])
    images, began = parquet._images, []

    def slow(*arguments):
        began.append(arguments)
        for image in images(*arguments):
            time.sleep(0.05)
            yield image

    monkeypatch.setattr(parquet, "_images", slow)
    with ThreadPoolExecutor(3) as pool:
        wanted = [pool.submit(parquet.unpacked, path, "image", tmp_path) for _ in range(3)]
        found = [each.result() for each in wanted]
    assert len(began) == 1
    for items in found:
        assert [encoded(item) for item in items] == [png(value) for value in (1, 2, 3)]


KILLED = """
import os, sys
from pathlib import Path
from relatum.data import parquet

images = parquet._images

def cut_short(*arguments):
    yield next(images(*arguments))
    os._exit(9)

parquet._images = cut_short
parquet.unpacked(Path(sys.argv[1]), "image", Path(sys.argv[2]))
"""


def test_what_a_killed_process_left_is_written_over(tmp_path):
    path, cache = write_parquet(tmp_path / "a.parquet", [1, 2, 3], [0, 1, 0]), tmp_path / "cache"
    killed = subprocess.run([sys.executable, "-c", KILLED, path, cache], check=False)
    assert killed.returncode == 9
    assert any(each.stat().st_size < sum(map(len, map(png, (1, 2, 3)))) for each in cache.iterdir())
    found = list_parquet([path], "source", cache)
    assert [encoded(item) for item in found.items] == [png(value) for value in (1, 2, 3)]
    assert {each.suffix for each in cache.iterdir()} <= {".bytes", ".npy", ".lock"}


def test_a_table_that_another_process_never_finishes_is_named(tmp_path, monkeypatch):
    path, cache = write_parquet(tmp_path / "a.parquet", [1], [0]), tmp_path / "cache"
    list_parquet([path], "source", cache)
    for file in kept(cache):
        file.unlink()
        if file.suffix == ".bytes":
            lock = FileLock(file.with_suffix(".lock"))
    monkeypatch.setattr(parquet, "_PATIENCE", 0.1)
    with lock, pytest.raises(DataError, match=r"another process has been unpacking .*a\.parquet"):
        list_parquet([path], "source", cache)


def cifar100_table(path, fine, coarse):
    """As the hub has it: no column `label`, but two of another name with classes."""
    columns = {
        "img": [{"bytes": png(i), "path": None} for i in range(len(fine))],
        "fine_label": pa.array(fine, pa.int64()),
        "coarse_label": pa.array(coarse, pa.int64()),
    }
    names = {"fine_label": ["apple", "bear", "bee"], "coarse_label": ["plant", "animal"]}
    features = {key: {"names": value, "_type": "ClassLabel"} for key, value in names.items()}
    stored = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(pa.table(columns).replace_schema_metadata(stored), path)


def test_labels_in_a_column_of_another_name(tmp_path):
    cifar100_table(tmp_path / "train-0.parquet", [0, 1, 2], [0, 1, 1])
    cifar100_table(tmp_path / "test-0.parquet", [2], [1])
    with pytest.raises(DataError, match=r"no column label; fine_label, coarse_label may be meant"):
        load_splits(str(tmp_path), image_size=4)
    with pytest.raises(DataError, match=r"no column Fine.*columns are img, fine_label, coarse"):
        load_splits(str(tmp_path), image_size=4, label_column="Fine")
    for column, classes, labels in (
        ("fine_label", ("apple", "bear", "bee"), [0, 1, 2]),
        ("coarse_label", ("plant", "animal"), [0, 1, 1]),
        ("none", (), [-1, -1, -1]),
    ):
        settings = TrainImages(data=str(tmp_path), image_size=4, label_column=column)
        train, test, _ = load_images(settings)
        assert (train.classes, train.labels.tolist()) == (classes, labels)
        assert test.labels.tolist() == labels[-1:]
        assert images_key(settings, None) != images_key(TrainImages(), str(tmp_path))


def test_a_damaged_column_of_labels_is_named(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", range(50), range(50), use_dictionary=False)
    column = pq.read_metadata(path).row_group(0).column(2)
    assert column.path_in_schema == "label"
    data = bytearray(path.read_bytes())
    data[column.data_page_offset : column.data_page_offset + 20] = b"\xff" * 20
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"a\.parquet is damaged"):
        list_parquet([path], "source")


def test_a_wrong_label_is_named_with_its_file_and_its_row_there(tmp_path):
    files = [tmp_path / f"{name}.parquet" for name in "abc"]
    write_parquet(files[0], [1, 2, 3], [0, 1, 0])
    write_parquet(files[1], [], pa.array([], pa.int64()))
    write_parquet(files[2], [4, 5], [0, -7])
    with pytest.raises(DataError, match=r"label -7 in row 1 of .*c\.parquet"):
        list_parquet(files, "source")


def test_files_that_number_their_classes_differently_do_not_mix(tmp_path):
    for name, classes in (("a", ["cat", "dog"]), ("b", ["dog", "cat"])):
        path = write_parquet(tmp_path / f"{name}.parquet", [1, 2], [0, 1])
        features = {"info": {"features": {"label": {"names": classes}}}}
        stored = {"huggingface": json.dumps(features)}
        pq.write_table(pq.read_table(path).replace_schema_metadata(stored), path)
    with pytest.raises(DataError, match=r"b\.parquet names other classes than .*a\.parquet"):
        load_splits(str(tmp_path), image_size=4)


# --- layouts


def write_omniglot(root):
    value = 0
    for alphabet, characters in (("Greek", 2), ("Latin", 1)):
        for character in range(1, characters + 1):
            folder = root / "omniglot-py/images_background" / alphabet / f"character{character:02d}"
            folder.mkdir(parents=True)
            for drawer in range(1, 6):
                (folder / f"{value:04d}_{drawer:02d}.png").write_bytes(png(value))
                value += 1
    return root


def test_omniglot(tmp_path):
    found = omniglot(write_omniglot(tmp_path))
    assert found.classes == ("Greek/character01", "Greek/character02", "Latin/character01")
    assert found.labels.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    train, test, _ = load_splits(f"omniglot:{tmp_path}", image_size=4)
    assert torch.bincount(train.labels).tolist() == [4, 4, 4]
    for table in (train, test):
        for value, label in zip(reds(table), table.labels.tolist(), strict=True):
            assert value // 5 == label
    with pytest.raises(DataError, match=r"does not hold omniglot.*--download"):
        omniglot(tmp_path / "elsewhere")


def write_celeba(root):
    folder = root / "celeba"
    (folder / "img_align_celeba").mkdir(parents=True)
    names = [f"{i:06d}.jpg" for i in range(1, 7)]
    parts, smiling, male = [0, 0, 1, 2, 0, 2], [1, -1, 1, 1, 1, -1], [-1, -1, 1, 1, 1, 1]
    for i, name in enumerate(names):
        (folder / "img_align_celeba" / name).write_bytes(png(i))
    lines = [f"{n} {part}" for n, part in zip(names, parts, strict=True)]
    (folder / "list_eval_partition.txt").write_text("\n".join(lines) + "\n")
    rows = [f"{n}  {m} {s}" for n, m, s in zip(names, male, smiling, strict=True)]
    (folder / "list_attr_celeba.txt").write_text("\n".join(["6", "Male Smiling ", *rows, ""]))
    return root


def test_celeba(tmp_path):
    write_celeba(tmp_path)
    train, test, how = load_splits(f"celeba:{tmp_path}", image_size=4)
    assert (reds(train), reds(test)) == ([0, 1, 4], [3, 5])  # validation is left out
    assert (train.labels.tolist(), test.labels.tolist()) == ([1, 0, 1], [1, 0])
    assert train.classes == ("not Smiling", "Smiling")
    assert "official" in how
    train, test, _ = load_splits(f"celeba/Male:{tmp_path}", image_size=4)
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 0, 1], [1, 1])
    with pytest.raises(DataError, match="no attribute 'Bald'; known are Male, Smiling"):
        celeba(tmp_path, "Bald")
    with pytest.raises(DataError, match=r"does not hold celeba.*--download"):
        celeba(tmp_path / "elsewhere")


ATTRIBUTES, PARTITION = "list_attr_celeba.txt", "list_eval_partition.txt"


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        (ATTRIBUTES, lambda lines: lines[:-1], f"{PARTITION} has a line for 000006.jpg and .*none"),
        (PARTITION, lambda lines: lines[:-1], f"{ATTRIBUTES} has a line for 000006.jpg and .*none"),
        (ATTRIBUTES, lambda lines: [*lines[:-1], "000006.jpg  1"], f"{ATTRIBUTES}, line 8: needed"),
        (ATTRIBUTES, lambda lines: [*lines[:-1], "000006.jpg 1 -"], f"{ATTRIBUTES}, line 8: need"),
        (ATTRIBUTES, lambda lines: lines[:1], "no attribute 'Smiling'.*ends early"),
        (ATTRIBUTES, lambda lines: [], "no attribute 'Smiling'.*ends early"),
        (
            PARTITION,
            lambda lines: [*lines[:-1], "000006.jpg"],
            f"{PARTITION}, line 6: '000006.jpg'",
        ),
        (PARTITION, lambda lines: [*lines[:-1], "000006.jpg 3"], f"{PARTITION}, line 6: '000006"),
        (PARTITION, lambda lines: [*lines, "", " "], ""),
        (ATTRIBUTES, lambda lines: [*lines, "", " "], ""),
    ],
)
def test_damaged_lists_of_celeba_are_named(tmp_path, name, change, match):
    path = write_celeba(tmp_path) / "celeba" / name
    path.write_text("\n".join(change(path.read_text().splitlines())))
    if not match:  # empty lines mean nothing
        assert len(celeba(tmp_path)[0]) == 3
        return
    with pytest.raises(DataError, match=match):
        celeba(tmp_path)


def test_an_image_set_needs_its_folder(tmp_path):
    with pytest.raises(DataError, match="there is no folder"):
        load_splits(f"imagenet:{tmp_path / 'none'}", image_size=4)
    with pytest.raises(DataError, match="omniglot:DIR"):
        load_splits("omniglot", image_size=4)
    with pytest.raises(DataError, match="did you mean imagenet"):
        load_splits("imagnet:x", image_size=4)
