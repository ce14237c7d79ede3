"""Columns from files: every layout people have, and an error that names file, column and row."""

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relatum.recipes.mi_data import read_mi_data

BOM = b"\xef\xbb\xbf"
ROWS = "\n".join(f"{i},{i * i},{'uv'[i % 2]},{10 - i}" for i in range(6))


def text(tmp_path, content, name="data.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture
def table(tmp_path):
    return text(tmp_path, f"a,b,kind,c\n{ROWS}\n")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", BOM])
@pytest.mark.parametrize("tail", ["", "{end}", "{end}{end}"])
def test_line_ends_and_byte_order_mark(tmp_path, end, mark, tail):
    lines = ['file,label,"size, cm"', "a.png,cat,1.5", "b.png,dog,2.5"]
    path = text(tmp_path, mark + (end.join(lines) + tail.format(end=end)).encode())
    data = read_mi_data(path, "file", 'label,"size, cm"')
    assert list(data.x.columns) == ["file"]
    assert list(data.y.columns) == ["label", "size, cm"]
    assert data.y["label"].tolist() == ["cat", "dog"]
    assert data.y["size, cm"].tolist() == [1.5, 2.5]
    assert (data.dropped, data.groups) == (0, None)


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_delimiters(tmp_path, mark):
    path = text(tmp_path, f"a{mark}b\n1{mark}2\n3{mark}5\n")
    assert read_mi_data(path, "a", "b").y["b"].tolist() == [2, 5]


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("a", ["a"]), ("c,a", ["c", "a"]), ("0", ["a"]), ("0,3", ["a", "c"]), ("a:b", ["a", "b"]),
        ("0:1", ["a", "b"]), ("b:3", ["b", "kind", "c"]), (" a , b ", ["a", "b"]), ('"a"', ["a"]),
        ("?", ["a", "b", "c"]), ("k*d,a", ["kind", "a"]),
    ],
)  # fmt: skip
def test_names_numbers_and_ranges(table, spec, names):
    other = next(name for name in ("a", "b", "kind", "c") if name not in names)
    assert list(read_mi_data(table, spec, other).x.columns) == names


def test_a_name_goes_before_a_number_and_a_range(tmp_path):
    path = text(tmp_path, "1,0,a:b\n1,2,3\n4,5,6\n")
    with pytest.raises(ValueError, match="--no-header"):
        read_mi_data(text(tmp_path, "1,0\n1,2\n", "n.csv"), "0", "1")
    assert read_mi_data(path, "0", "a:b").x["0"].tolist() == [2, 5]
    named = read_mi_data(text(tmp_path, "1,0\n1,2\n4,5\n"), "0", "1", header=True)
    assert named.x["0"].tolist() == [2, 5]


def test_no_header(tmp_path):
    data = read_mi_data(text(tmp_path, "1.5,2\n3,4\n"), "0", "1", header=False)
    assert data.x["0"].tolist() == [1.5, 3.0]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ("aa", "c", r"data\.csv has no column 'aa' \(--x\); did you mean 'a'"),
        ("a", "quality", r"data\.csv has no column 'quality' \(--y\); known are a, b, kind, c"),
        ("7", "c", "no column '7'"),
        ("b:a", "c", "'a' stands before 'b'"),
        ("a,a", "c", "names column 'a' twice"),
        ("a:b", "b", "column 'b' is in --x and in --y"),
    ],
)
def test_errors_of_the_specification(table, x, y, message):
    with pytest.raises(ValueError, match=message):
        read_mi_data(table, x, y)


def test_missing_values_are_an_error_or_counted(tmp_path):
    path = text(tmp_path, "a,b,c,d\n1,2,x,1\n,3,x,1\n3,NA,y,1\n4,5,y,1\n6,7,,1\n8,9,z,1\n")
    message = (
        r"column 'a' of .*data\.csv has 1 missing values, the first in row 2 of the data .*"
        r"2 of 6 rows lack a value: --missing drop"
    )
    with pytest.raises(ValueError, match=message):
        read_mi_data(path, "a", "b")
    data = read_mi_data(path, "a", "b", drop_missing=True)
    assert data.dropped == 2
    assert data.x["a"].tolist() == [1, 4, 6, 8]
    assert data.y["b"].tolist() == [2, 5, 7, 9]
    assert data.x.index.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="column 'c' .* row 5 of the data"):
        read_mi_data(path, "c", "d")


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["1", "2", "x", "4"], "'x' in column 'a' of .*data.csv, row 3 .* is not a number"),
        (["1,5", "2", "3", "4"], None),
        (["1.0", "inf", "3", "4"], "inf.* in column 'a' .* row 2 .* is not a finite number"),
    ],
)
def test_a_slip_among_numbers(tmp_path, cells, message):
    path = text(tmp_path, "a;b\n" + "\n".join(f"{cell};1" for cell in cells))
    with pytest.raises(ValueError, match=message or "'1,5' in column 'a'"):
        read_mi_data(path, "a", "b")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "does not exist"),
        ("data.xlsx", "a", r"ends in '\.xlsx'; what can be read ends in \.csv"),
        ("data.csv", "", "cannot read .*data.csv"),
        ("data.csv", "a,b\n1\n2,3\n", r"cannot read .*data\.csv: .*Expected 2 columns, got 1"),
        ("data.csv", "a,a\n1,2\n", "two columns are named 'a'"),
        ("data.csv", "a,b\n1,2\n".encode("utf-16"), "cannot read .*data.csv"),
        ("data.parquet", "a", "cannot read .*data.parquet"),
        ("data.npz", "a", "cannot read .*data.npz"),
        ("data.npz", b"PK\x03\x04 no archive", "cannot read .*data.npz: File is not a zip file"),
        ("data.npy", "", "cannot read .*data.npy"),
    ],
)
def test_errors_of_the_file(tmp_path, name, content, message):
    path = tmp_path / name if content is None else text(tmp_path, content, name)
    with pytest.raises(ValueError, match=message):
        read_mi_data(path, "a", "b")


def test_dates_are_refused_by_name(tmp_path):
    path = text(tmp_path, "when,b\n2024-01-01,1\n2024-01-02,2\n")
    with pytest.raises(ValueError, match="column 'when' of .* holds date32"):
        read_mi_data(path, "when", "b")


def test_numpy_files(tmp_path):
    values = np.arange(12.0).reshape(4, 3)
    np.save(tmp_path / "a.npy", values)
    data = read_mi_data(tmp_path / "a.npy", "0:1", "2")
    np.testing.assert_array_equal(data.x.to_numpy(), values[:, :2])
    np.testing.assert_array_equal(data.y.to_numpy(), values[:, 2:])
    np.savez(tmp_path / "b.npz", z=values, label=np.array(["u", "v", "u", "v"]), odd=np.ones(3))
    for spec, columns in [
        ("z", [0, 1, 2]),
        ("z[1]", [1]),
        ("z[0:1]", [0, 1]),
        ("z[2],z[0]", [2, 0]),
    ]:
        data = read_mi_data(tmp_path / "b.npz", spec, "label")
        np.testing.assert_array_equal(data.x.to_numpy(), values[:, columns])
    assert data.y["label"].tolist() == ["u", "v", "u", "v"]
    with pytest.raises(
        ValueError, match=re.escape("differ in their numbers of rows: z[0] 4, odd 3")
    ):
        read_mi_data(tmp_path / "b.npz", "z[0]", "odd")
    np.save(tmp_path / "c.npy", np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match=r"shape \(2, 2, 2\)"):
        read_mi_data(tmp_path / "c.npy", "0", "1")


def test_parquet_with_vectors(tmp_path):
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    frame = {
        "features": pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 2),
        "list": pa.array(values.tolist()),
        "ragged": pa.array([[1], [1, 2], [], [3]]),
        "kind": pa.array(["u", "v", "u", "v"]).dictionary_encode(),
        "n": pa.array([1, 2, None, 4]),
    }
    pq.write_table(pa.table(frame), tmp_path / "a.parquet")
    for key in ("features", "list"):
        data = read_mi_data(tmp_path / "a.parquet", key, "kind")
        np.testing.assert_array_equal(data.x.to_numpy(), values)
        assert list(data.x.columns) == [f"{key}[0]", f"{key}[1]"]
    assert isinstance(data.y["kind"].dtype, pd.CategoricalDtype)
    with pytest.raises(ValueError, match="column 'ragged' .* list"):
        read_mi_data(tmp_path / "a.parquet", "ragged", "kind")
    assert read_mi_data(tmp_path / "a.parquet", "n", "kind", drop_missing=True).dropped == 1


def test_groups(table):
    data = read_mi_data(table, "a", "b", groups="kind")
    assert data.groups.tolist() == [0, 1, 0, 1, 0, 1]
    with pytest.raises(ValueError, match="--groups takes one column"):
        read_mi_data(table, "a", "b", groups="kind,c")
