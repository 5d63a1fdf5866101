"""read_table and write_table: the same numbers from every format, and errors that say what to do."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from isometry.io import Table, TableError, read_table, write_table
from isometry.io.tables import read_columns

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

EXTENSIONS = ["csv", "tsv", "parquet", "npz", "csv.gz"]


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    F = pd.DataFrame(rng.normal(size=(30, 3)), columns=["a", "b", "c"])
    return F.assign(kind=np.repeat(["x", "y", "z"], 10))


def write(path, frame, target):
    """Each format by its own everyday writer, not by ours."""
    name = path.name
    if name.endswith(".npz"):
        features = frame.drop(columns=target)
        np.savez(
            path,
            X=features.to_numpy(),
            y=np.asarray(frame[target].to_list()),
            feature_names=np.array(features.columns, dtype=str),
        )
    elif name.endswith(".parquet"):
        frame.to_parquet(path)
    else:
        frame.to_csv(path, sep="\t" if name.endswith("tsv") else ",", index=False)
    return path


def hard_numbers(dtype):
    """Numbers whose shortest decimals are easy to get wrong: powers of two, subnormals, huge, tiny, many digits."""
    rng = np.random.default_rng(1)
    info = np.finfo(dtype)
    special = [
        0.1,
        -0.0,
        1 / 3,
        2.0**24 + 2,
        2.0**-20,
        1.5,
        1e16,
        1e22,
        info.tiny,
        info.smallest_subnormal,
        info.max,
        info.eps,
    ]
    if dtype == np.float16:
        special = [0.1, -0.0, 1 / 3, 2.0**-10, 1.5, 65504.0, info.tiny, info.smallest_subnormal, 999.5, 0.2, 0.3, 7.0]
    bits = rng.integers(0, 2**15, size=(40, 12)) / 2**12
    X = np.concatenate([bits, rng.normal(size=(40, 12)) * 10.0 ** rng.integers(-4, 4, size=12)])
    return np.concatenate([X, [special]]).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("source", [np.float64, np.float32, np.float16, np.int32])
def test_all_formats_give_the_same_array(source, dtype, tmp_path):
    rng = np.random.default_rng(2)
    X = rng.integers(-9, 9, size=(20, 4)).astype(source) if source is np.int32 else hard_numbers(source)
    if source is np.float64 and dtype is np.float32:
        X = np.clip(X, -1e30, 1e30)
    F = pd.DataFrame(X, columns=[f"f{k}" for k in range(X.shape[1])]).assign(label=np.arange(len(X)) % 3)
    if source is np.float16:
        extensions = ["csv", "npz"]
        F.drop(columns="label").astype(str).assign(label=F.label).to_csv(tmp_path / "t.csv", index=False)
        np.savez(tmp_path / "t.npz", X=X, y=F.label, feature_names=[f"f{k}" for k in range(X.shape[1])])
    else:
        extensions = EXTENSIONS
        for e in extensions:
            write(tmp_path / f"t.{e}", F, "label")
    slow = np.array([[float(str(v)) for v in row] for row in X]).astype(dtype)  # a number is the decimal it prints as
    for e in extensions:
        table = read_table(tmp_path / f"t.{e}", "y" if e == "npz" else "label", dtype=dtype)
        assert table.X.dtype == dtype
        assert_array_equal(table.X, slow, err_msg=e)
        assert_array_equal(np.signbit(table.X), np.signbit(slow))
        assert_array_equal(table.y, np.arange(len(X)) % 3)
        assert table.feature_names == [f"f{k}" for k in range(X.shape[1])] and table.name == "t"
        if dtype == source:
            assert_array_equal(table.X, X)  # the original itself


@pytest.mark.parametrize(
    "labels, expected",
    [
        (["x", "y", "NA", "None"], np.array(["x", "y", "NA", "None"])),
        ([3, 1, -2, 3], np.array([3, 1, -2, 3])),
        ([3.0, 1.0, 2.0, 3.0], np.array([3, 1, 2, 3])),
        ([True, False, True, True], np.array([True, False, True, True])),
        (["1", "10", "-2", "1"], np.array([1, 10, -2, 1])),
    ],
)
@pytest.mark.parametrize("extension", EXTENSIONS)
def test_labels_of_every_kind(labels, expected, extension, tmp_path):
    F = pd.DataFrame({"f": [1.5, 2.5, 3.5, 4.5], "g": [0.0, 1.0, 2.0, 3.0], "label": labels})
    table = read_table(write(tmp_path / f"t.{extension}", F, "label"), "y" if extension == "npz" else "label")
    assert table.y.dtype.kind == expected.dtype.kind
    assert_array_equal(table.y, expected)


def test_class_names_of_npz(tmp_path):
    y = np.array([2, 0, 1])
    np.savez(tmp_path / "t.npz", X=np.eye(3), y=y, classes=np.array(["red", "green", "blue"]))
    assert list(read_table(tmp_path / "t.npz").y) == ["blue", "red", "green"]
    np.savez(tmp_path / "t.npz", X=np.eye(3), y=y + 1, classes=np.array(["red", "green", "blue"]))
    with pytest.raises(TableError, match="run from 1 to 3 but there are 3 names"):
        read_table(tmp_path / "t.npz")


def test_npz_keys(tmp_path):
    E, groups = np.arange(6.0).reshape(3, 2), np.array(["p", "q", "p"])
    np.savez(tmp_path / "t.npz", emb=E, group=groups)
    for key in (None, "emb"):
        table = read_table(tmp_path / "t.npz", "group", key=key)
        assert_array_equal(table.X, E)
        assert_array_equal(table.y, groups)
        assert table.feature_names == ["x0", "x1"]
    assert read_table(tmp_path / "t.npz").y is None
    assert_array_equal(read_table(tmp_path / "t.npz", "x1").y, [1, 3, 5])  # a column of X as labels
    with pytest.raises(TableError, match=r"no array 'embb' \(key\); did you mean 'emb'\?"):
        read_table(tmp_path / "t.npz", key="embb")
    with pytest.raises(TableError, match=r"no labels 'groups' \(target\); did you mean 'group'\?"):
        read_table(tmp_path / "t.npz", "groups")


def test_npy_and_data_frame(frame, tmp_path):
    np.save(tmp_path / "t.npy", frame[["a", "b", "c"]].to_numpy())
    table = read_table(tmp_path / "t.npy")
    assert table.y is None and table.target_name is None and table.feature_names == ["x0", "x1", "x2"]
    other = read_table(frame, "kind")
    assert_array_equal(table.X, other.X)
    assert isinstance(other, Table) and list(other.y) == list(frame.kind)


def test_chosen_and_dropped_columns(frame):
    assert read_table(frame, "kind", features=["c", "a"]).feature_names == ["c", "a"]
    assert_array_equal(read_table(frame, "kind", features=["c", "a"]).X, frame[["c", "a"]])
    assert read_table(frame, "kind", drop="b").feature_names == ["a", "c"]
    assert read_table(frame, drop=["kind"]).feature_names == ["a", "b", "c"]


def test_vector_cells_become_columns(tmp_path):
    V = np.arange(12, dtype=np.float32).reshape(4, 3) / 10
    pd.DataFrame({"id": [1, 2, 3, 4], "v": list(V), "y": list("abab")}).to_parquet(tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet", "y", drop="id")
    assert table.feature_names == ["v[0]", "v[1]", "v[2]"]
    assert_array_equal(table.X, np.arange(12).reshape(4, 3) / 10)
    ragged = pd.DataFrame({"v": [[1.0], [1.0, 2.0]], "y": ["a", "b"]})
    with pytest.raises(TableError, match=r"column v holds vectors of different lengths \(1, 2\)"):
        read_table(ragged, "y")


def test_nullable_boolean_and_integer_features():
    F = pd.DataFrame(
        {"a": pd.array([1, 2], dtype="Int64"), "b": [True, False], "c": pd.array([0.5, 1.5], dtype="Float32")}
    )
    assert_array_equal(read_table(F).X, [[1, 1, 0.5], [2, 0, 1.5]])


def test_row_numbers_are_left_out_with_a_warning(frame, tmp_path):
    frame.to_csv(tmp_path / "t.csv")
    with pytest.warns(UserWarning, match="counts the rows"):
        table = read_table(tmp_path / "t.csv", "kind")
    assert table.feature_names == ["a", "b", "c"]


def test_semicolons(frame, tmp_path):
    frame.to_csv(tmp_path / "t.csv", sep=";", index=False)
    assert_array_equal(read_table(tmp_path / "t.csv", "kind").X, frame[["a", "b", "c"]])


# ---------------------------------------------------------------------------------------------------- errors


def refused(words, *args, **options):
    with pytest.raises(TableError, match=words):
        read_table(*args, **options)


def test_missing_file_suggests_the_nearest(frame, tmp_path):
    write(tmp_path / "wines.csv", frame, "kind")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*wine\.csv; did you mean .*wines\.csv\?"):
        read_table(tmp_path / "wine.csv")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*u\.csv$"):
        read_table(tmp_path / "nowhere" / "u.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        read_table(tmp_path / "folder.csv")


@pytest.mark.parametrize("extension", ["csv", "parquet", "npz", "npy"])
def test_empty_and_garbled_files(extension, tmp_path):
    path = tmp_path / f"t.{extension}"
    path.write_bytes(b"")
    refused("is empty", path)
    path.write_bytes(b"\xff\xfe\x00garbage\x81" * 9)
    refused("cannot be read as", path)


@pytest.mark.skipif(os.name != "posix", reason="pipes with names")
def test_a_pipe_is_no_table(tmp_path):
    os.mkfifo(tmp_path / "t.csv")
    refused("is a pipe or device, not a file", tmp_path / "t.csv", "y")


def test_table_without_rows(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n")
    refused("has columns a, b, y but no rows", tmp_path / "t.csv", "y")


def test_unknown_ending(tmp_path):
    (tmp_path / "t.xlsx").write_bytes(b"x")
    refused(r"'\.xlsx' is not that of a table; expected one of \.csv", tmp_path / "t.xlsx")


def test_unknown_columns_are_matched(frame):
    refused(r"no column 'kinds' \(target\); did you mean 'kind'\? It has a, b, c, kind", frame, "kinds")
    refused(r"no column 'zzz' \(drop\)\. It has", frame, "kind", drop=["zzz"])
    refused(r"no column 'aa' \(features\)", frame, "kind", features=["aa"])
    refused("no feature column left", frame, "kind", drop=["a", "b", "c"])


def test_text_features_are_named(frame):
    F = frame.assign(city="Ulm", day=pd.Timestamp("2020-01-01"))
    words = (
        r"2 feature columns that are not numbers: city \(text, such as 'Ulm'\), day \(dates\)\. Leave them out with "
    )
    refused(words + r"--drop city,day \(in Python drop=\['city', 'day'\]\), or encode", F, "kind")


def test_gaps_are_counted_by_column(frame, tmp_path):
    frame.loc[[1, 5], "a"] = np.nan
    frame.loc[7, "c"] = np.inf
    refused(r"in 2 columns: a \(2 of 30 rows\), c \(1 of 30 rows\)", frame, "kind")
    (tmp_path / "t.csv").write_text("a,b,y\n1,NA,u\n?,2,v\n")
    refused(r"a \(1 of 2 rows\), b \(1 of 2 rows\)", tmp_path / "t.csv", "y")


def test_bad_labels(frame, tmp_path):
    refused(r"fractions \(30 distinct values", frame, "a", drop="kind")
    (tmp_path / "t.csv").write_text("a,y\n1,u\n2,\n3,\n")
    refused("2 missing labels, the first in row 1", tmp_path / "t.csv", "y")


def test_repeated_column_names():
    refused("several columns called a", pd.DataFrame(np.eye(3), columns=["a", "a", "b"]))


def test_python_objects_are_not_unpickled(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.eye(2), y=np.array(["a", None], dtype=object))
    refused("holds Python objects", tmp_path / "t.npz")


def test_another_file_called_npy_is_not_to_be_trusted(tmp_path):
    (tmp_path / "t.npy").write_text("a,b\n1,2\n")
    with pytest.raises(TableError, match="numpy has not written it, or it is damaged") as caught:
        read_table(tmp_path / "t.npy")
    assert "pickle" not in str(caught.value) and "unsafe" not in str(caught.value)


@pytest.mark.parametrize("sign", [",", ";", "\t", "|", ":"])
def test_columns_of_texts_are_read_as_tables_are(sign, tmp_path):
    frame = pd.DataFrame({"text": ["NA", "1,5", "", "a"], "k": ["007", "8", "9", "x"]})
    frame.to_csv(tmp_path / "t.csv", sep=sign, index=False)
    given = sign if sign == ":" else None
    read = read_columns(tmp_path / "t.csv", ["text", "k"], delimiter=given)
    assert read == {"text": ["NA", "1,5", "", "a"], "k": ["007", "8", "9", "x"]}


def test_columns_of_texts_are_refused_as_tables_are(tmp_path):
    for header, rows, words in (
        ("a,a", ["x,y"], "several columns called a"),
        ("a,b", ["x,y,z", "u,v,w"], "more cells than the header has names"),
        ("a,b", ["x,y", "u,v,w"], "cannot be read as a text table"),
    ):
        with pytest.raises(TableError, match=words):
            read_columns(text(tmp_path, "\n".join([header, *rows])), ["a"])
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n" + 99 * b"x,y\n")[:-9])
    with pytest.raises(TableError, match="cannot be read as a text table"):
        read_columns(tmp_path / "t.csv.gz", ["a"])


def test_array_shapes(tmp_path):
    np.save(tmp_path / "t.npy", np.arange(3.0))
    refused(r"rows and columns; its shape is \(3,\)", tmp_path / "t.npy")
    np.savez(tmp_path / "t.npz", X=np.eye(3), y=np.arange(2))
    refused(r"X has 3 rows but y has shape \(2,\)", tmp_path / "t.npz")
    np.savez(tmp_path / "u.npz", X=np.eye(3), feature_names=["a"])
    refused("3 columns but there are 1 feature names", tmp_path / "u.npz")


def test_only_floating_types():
    with pytest.raises(TypeError, match="float64 or float32"):
        read_table(pd.DataFrame({"a": [1.0]}), dtype=int)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_member_of_npz_is_named(save, tmp_path):
    rng = np.random.default_rng(0)
    save(tmp_path / "t.npz", X=rng.normal(size=(50, 4)), y=rng.integers(0, 3, size=50))
    whole = (tmp_path / "t.npz").read_bytes()
    at = whole.index(b"X.npy") + 40
    for damage in (slice(at, at + 60), slice(at + 200, at + 260)):
        data = bytearray(whole)
        data[damage] = bytes(v ^ 0x5A for v in data[damage])
        (tmp_path / "t.npz").write_bytes(data)
        refused(r"the array 'X' cannot be read as an array, it may be damaged \(.+\)", tmp_path / "t.npz")
    (tmp_path / "t.npz").write_bytes(whole[:300])
    refused("cannot be read as an array, it may be damaged", tmp_path / "t.npz")


# ---------------------------------------------------------------------------------------------------- misreadings


def text(tmp_path, content, name="t.csv"):
    (tmp_path / name).write_text(content)
    return tmp_path / name


def test_repeated_names_in_a_header(tmp_path):
    """A copy of the labels would else become the feature y.1."""
    refused("several columns called y: rename", text(tmp_path, "a,b,y,y\n1,2,u,u\n3,4,v,v\n"), "y")
    refused("several columns called a, b: rename", text(tmp_path, "a,b,b,a,y\n1,2,3,4,u\n3,4,5,6,v\n"), "y")
    refused("several columns called b", text(tmp_path, '"b",b,y\n1,2,u\n3,4,v\n'), "y")
    import gzip

    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,y,y\n1,0,0\n2,1,1\n"))
    refused("several columns called y", tmp_path / "t.csv.gz", "y")
    refused("several columns called y: rename", text(tmp_path, "a, y,y\n1,0,0\n3,1,1\n"), "y")
    refused("several columns called y: rename", text(tmp_path, "a;y;y \n1;0;0\n3;1;1\n"), "y")


@pytest.mark.parametrize("names", [["a", "y", "y"], ["a", "a", "y"], ["y ", "a", "y"]])
def test_repeated_names_in_parquet(names, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_arrays([pa.array([1.0, 2.0])] * 3, names=names), tmp_path / "t.parquet")
    refused("several columns called [ay]: rename", tmp_path / "t.parquet", "y")


def test_a_column_called_as_the_place_of_a_vector(tmp_path):
    frame = pd.DataFrame({"v": [[1.0, 2.0], [3.0, 4.0]], "v[0]": [5.0, 6.0], "y": ["a", "b"]})
    refused(r"several columns called v\[0\]: rename", frame, "y")
    frame.to_parquet(tmp_path / "t.parquet")
    refused(r"several columns called v\[0\]: rename", tmp_path / "t.parquet", "y")


def test_gaps_among_labels_that_are_numbers(tmp_path):
    for gap in ("nan", "NA", "?", ""):
        refused("1 missing label, the first in row 1", text(tmp_path, f"a,y\n1,0\n2,{gap}\n3,1\n"), "y")
    assert read_table(text(tmp_path, "a,y\n1,x\n2,NA\n3,None\n"), "y").y.tolist() == ["x", "NA", "None"]


@pytest.mark.parametrize(
    "rows",
    ["1,2,0,u\n3,4,1,v\n", "1,2,0,u\n3,4,v\n", "1,2,u\n3,4,1,v\n", "1,2,3,4,u\n1,2,3,4,v\n"],
)
def test_rows_longer_than_the_header(rows, tmp_path):
    refused(r"more cells than the header|Expected \d fields", text(tmp_path, "a,b,y\n" + rows), "y")


def test_a_comma_at_the_end_of_every_row_shifts_nothing(tmp_path):
    table = read_table(text(tmp_path, "a,b,y\n1,2,u,\n3,4,v,\n"), "y")
    assert_array_equal(table.X, [[1, 2], [3, 4]])
    assert list(table.y) == ["u", "v"]


def test_a_feature_called_like_the_array_of_labels(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.eye(3), y=[0, 1, 0], feature_names=["a", "y", "b"])
    for target in ("y", None):
        refused("'y' is the name of an array, which would be the labels, and of a feature", tmp_path / "t.npz", target)


def test_labels_too_large_for_their_type(tmp_path):
    big = 2**53
    for cells in (f"{big}.0,{big + 1}.0", "1e20,2e20", "1e300,3"):
        a, b = cells.split(",")
        refused("cannot tell neighbours apart", text(tmp_path, f"a,y\n1,{a}\n2,{b}\n"), "y")
    for pair in ((2**63, 2**63 + 1), (2**64 + 5, 2**64 + 6), (10**30, 10**30 + 1), ("9" * 5000, "9" * 5001)):
        a, b = map(str, pair)
        table = read_table(text(tmp_path, f"a,y\n1,{a}\n2,{b}\n"), "y")
        assert list(table.y) == [a, b]  # two classes stay two
    largest = 2**63 - 1
    assert list(read_table(text(tmp_path, f"a,y\n1,{largest}\n2,{-largest}\n"), "y").y) == [largest, -largest]
    table = read_table(pd.DataFrame({"a": [1.0, 2.0], "y": np.array([2**63 + 1, 2**63], dtype=np.uint64)}), "y")
    assert list(table.y) == [str(2**63 + 1), str(2**63)]


def test_infinity_is_no_class(tmp_path):
    refused("infinite numbers: labels name classes", text(tmp_path, "a,y\n1,inf\n2,3\n"), "y")
    refused("infinite numbers", pd.DataFrame({"a": [1.0, 2.0], "y": [0.0, -np.inf]}), "y")


@pytest.mark.parametrize("start", [0, 1])
def test_row_numbers_without_a_name_are_left_out(start, tmp_path):
    path = text(tmp_path, f",a,y\n{start},1.5,u\n{start + 1},2.5,v\n")
    with pytest.warns(UserWarning, match="counts the rows: it is left out"):
        assert read_table(path, "y").feature_names == ["a"]


def test_other_columns_without_a_name_are_told_of(tmp_path):
    path = text(tmp_path, ",a,y\n17,1.5,u\n3,2.5,v\n")
    with pytest.warns(UserWarning, match=r"1 columns have no name .*leave them out with --drop 'Unnamed: 0'"):
        assert read_table(path, "y").feature_names == ["Unnamed: 0", "a"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_table(path, "y", drop="Unnamed: 0").feature_names == ["a"]
        assert read_table(path, "y", features=["a"]).feature_names == ["a"]


def test_semicolons_and_decimal_commas(tmp_path):
    path = text(tmp_path, "a;b;y\n1,5;2;u\n-0,25;1e3;v\n;4;w\n".replace(";4", "7;4"))
    with pytest.warns(UserWarning, match="decimal comma"):
        table = read_table(path, "y")
    assert_array_equal(table.X, [[1.5, 2], [-0.25, 1000], [7, 4]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_array_equal(read_table(path, "y", decimal=",").X, table.X)
        points = read_table(text(tmp_path, "a;b;y\n1.5;2;u\n0.5;3;v\n"), "y")
        assert_array_equal(points.X, [[1.5, 2], [0.5, 3]])
    for sign in ("\t", "|"):
        assert_array_equal(read_table(text(tmp_path, "a;b;y\n1.5;2;u\n0.5;3;v\n".replace(";", sign)), "y").X, points.X)
    for sign in ("\t", "|"):  # any sign but the comma itself
        with pytest.warns(UserWarning, match="decimal comma"):
            commas = read_table(text(tmp_path, "a;b;y\n1,5;2;u\n0,5;3;v\n".replace(";", sign)), "y")
        assert_array_equal(commas.X, points.X)
    refused(r"give the decimal sign: --decimal ,", text(tmp_path, "a;y\n1,5;u\n2,5;v\n"), "y", decimal=".")
    refused(r"give the decimal sign: --decimal ,", text(tmp_path, 'a,y\n"1,5",u\n"2,5",v\n'), "y")
    assert_array_equal(read_table(text(tmp_path, 'a\ty\n"1,5"\tu\n2\tv\n', "t.tsv"), "y", decimal=",").X, [[1.5], [2]])


def test_delimiter_and_decimal_can_be_given(tmp_path):
    path = text(tmp_path, "a:b:y\n1,5:2:u\n0,5:3:v\n")
    refused(r"more cells than the header has names \(1\).*--delimiter", path, "y")
    refused(r"no column 'y' \(target\).*what separates them: --delimiter", text(tmp_path, "a:y\n1:u\n2:v\n"), "y")
    path = text(tmp_path, "a:b:y\n1,5:2:u\n0,5:3:v\n")
    assert_array_equal(read_table(path, "y", delimiter=":", decimal=",").X, [[1.5, 2], [0.5, 3]])
    path = text(tmp_path, "a  b y\n1.5 2   u\n0.5 3 v\n")
    assert_array_equal(read_table(path, "y", delimiter=" ").X, [[1.5, 2], [0.5, 3]])
    refused("must be one sign", path, "y", delimiter="::")
    refused(r"must be \. or ,", path, "y", decimal="x")
    path = text(tmp_path, 'a,b,y\n"1,5",2,u\n"0,5",3,v\n')
    assert_array_equal(read_table(path, "y", decimal=",").X, [[1.5, 2], [0.5, 3]])


def test_kinds_of_columns_are_told_with_the_way_out(tmp_path):
    path = text(tmp_path, "size,day,city,a,y\nsmall,2020-01-31,Ulm,1,u\n3,2021-02-01,Bonn,,v\n")
    words = r"size \(text, such as 'small'\), day \(dates, such as '2020-01-31'\), city \(text, such as 'Ulm'\)\. "
    refused(words + r"Leave them out with --drop size,day,city \(in Python drop=\['size', 'day', 'city'\]\)", path, "y")
    told = r"a \(1 of 2 rows\); and in 1 rows, counted from 0: 1\. Leave these columns out with --drop a "
    refused(told, path, "y", drop=["size", "day", "city"])
    frame = pd.DataFrame({"a": [1.0, 2.0], "c,d": pd.Categorical(["x", "z"]), "y": [0, 1]})
    refused(r"c,d \(categories, such as 'x'\)\. Leave them out with --drop '\"c,d\"'", frame, "y")


def test_wide_tables_are_read_column_by_column_never(tmp_path, monkeypatch):
    """What is done once for each of 10,000 columns takes longer than reading them."""
    d, calls = 300, []
    F = pd.DataFrame(np.eye(3, d), columns=[f"g{k}" for k in range(d)]).assign(y=[0, 1, 0])
    F.to_csv(tmp_path / "t.csv", index=False)
    look_up = pd.DataFrame.__getitem__
    monkeypatch.setattr(pd.DataFrame, "__getitem__", lambda self, key: calls.append(key) or look_up(self, key))
    assert read_table(tmp_path / "t.csv", "y").X.shape == (3, d)
    assert len(calls) < 10


def test_repeats_are_found_without_comparing_all_names():
    from isometry.io.columns import refuse_repeats

    compared = []

    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            compared.append(other)
            return str.__eq__(self, other)

    names = [Name(f"g{k}") for k in range(400)]
    refuse_repeats("t", names)
    assert len(compared) < len(names)
    with pytest.raises(TableError, match="called g7"):
        refuse_repeats("t", [*names, Name("g7")])


# ---------------------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("extension", EXTENSIONS[:4])
def test_written_tables_read_back_equal(extension, dtype, tmp_path):
    Z, y = hard_numbers(dtype)[:, :5], np.arange(81) % 4
    path = write_table(tmp_path / f"t.{extension}", Z, y=y)
    table = read_table(path, "y", dtype=dtype)
    assert_array_equal(table.X, Z)
    assert_array_equal(table.y, y)
    assert table.feature_names == ["z0", "z1", "z2", "z3", "z4"]
    assert os.listdir(tmp_path) == [path.name]


def test_write_npy_names_and_target(tmp_path):
    Z = np.arange(4.0).reshape(2, 2)
    write_table(tmp_path / "t.npy", Z)
    assert_array_equal(np.load(tmp_path / "t.npy"), Z)
    write_table(tmp_path / "t.csv", Z, ["p", "q"], y=["a", "b"], target="kind")
    assert (tmp_path / "t.csv").read_text() == "p,q,kind\n0.0,1.0,a\n2.0,3.0,b\n"


@pytest.mark.parametrize(
    "options, words",
    [
        ({"columns": ["a"]}, "2 columns but there are 1"),
        ({"y": [1]}, "2 rows but y has 1"),
        ({"columns": ["a", "y"], "y": [1, 2]}, "'y' is the name of a column"),
    ],
)
def test_write_refuses_what_does_not_fit(options, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        write_table(tmp_path / "t.csv", np.eye(2), **options)
    with pytest.raises(ValueError, match="one array and no labels"):
        write_table(tmp_path / "t.npy", np.eye(2), y=[1, 2])
    with pytest.raises(ValueError, match="two dimensions"):
        write_table(tmp_path / "t.npy", np.ones(2))
    with pytest.raises(TableError, match="not that of a table"):
        write_table(tmp_path / "t.doc", np.eye(2))
    assert os.listdir(tmp_path) == []


def test_the_package_imports_without_pandas_and_says_what_is_missing(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n")
    code = f"""
import sys
sys.modules["pandas"] = sys.modules["pyarrow"] = None
from isometry.io import read_table
try:
    read_table({str(tmp_path / "t.csv")!r})
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == 'tables need pandas: pip install "isometry[cli]"\n'


@pytest.mark.parametrize("change", [lambda x: 1e200 * x, lambda x: 1e-200 * x, lambda x: 1e12 + x])
def test_numbers_that_32_bits_cannot_tell_apart_are_named(change, tmp_path):
    x = np.array([1.0, 2.0, 4.0])
    pd.DataFrame({"a": x, "b": change(x), "c": 7.0}).to_csv(tmp_path / "t.csv", index=False)
    assert read_table(tmp_path / "t.csv").X.shape == (3, 3)
    with pytest.raises(TableError, match=r"too large, too small or too far from 0 for 32 bits.*: b\. Subtract"):
        read_table(tmp_path / "t.csv", dtype=np.float32)


def test_rows_without_a_label_are_left_out_if_asked_for(tmp_path):
    """Those that are left keep their numbers, in errors as well, and what counts the rows is still seen to do so."""
    path = text(tmp_path, ",a,b,y\n0,1,1,u\n1,2,,\n2,3,3,v\n3,nan,4,u\n4,5,5,\n5,6,6,v\n")
    way_out = r"fill them, or leave out these rows with --unlabelled drop \(in Python unlabelled='drop'\)"
    refused(f"2 missing labels, the first in row 1, counted from 0: {way_out}", path, "y")
    with pytest.warns(UserWarning, match="counts the rows"):
        table = read_table(path, "y", prepare=("impute",), unlabelled="drop")
    assert table.y.tolist() == ["u", "v", "u", "v"] and table.rows.tolist() == [0, 2, 3, 5]
    assert table.feature_names == ["a", "b"] and table.X["b"].tolist() == [1.0, 3.0, 4.0, 6.0]
    assert table.notes == ("2 of 6 rows have no label in y: left out",)
    with pytest.warns(UserWarning, match="counts the rows"):
        refused(r"1 columns: a \(1 of 4 rows\); and in 1 rows, counted from 0: 3", path, "y", unlabelled="drop")
    with pytest.warns(UserWarning, match="counts the rows"):
        whole = read_table(path, "y", drop="a", unlabelled="drop")
    assert isinstance(whole.X, np.ndarray) and whole.X.ravel().tolist() == [1.0, 3.0, 4.0, 6.0]


def test_what_leaving_out_rows_needs(tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "n": [1.0, np.nan, 3.0], "none": [None] * 3}, index=list("abc"))
    table = read_table(frame.drop(columns="none"), "n", unlabelled="drop")
    assert table.y.tolist() == [1, 3] and table.y.dtype == np.int64
    assert table.notes == ("1 of 3 rows has no label in n: left out",)
    assert read_table(frame.drop(columns="none").dropna(), "n", unlabelled="drop").rows is None
    refused("no row has a label in the target column none", frame, "none", unlabelled="drop")
    refused("name it with --target", frame, drop=["n", "none"], unlabelled="drop")
    infinite = frame.assign(n=[np.nan, 1.5, np.inf]).drop(columns="none")
    refused("1 infinite number, the first in row 2", infinite, "n", target_is="numbers", unlabelled="drop")
    with pytest.raises(ValueError, match="must be 'refuse' or 'drop'"):
        read_table(frame, "n", unlabelled="skip")


def test_ways_out_are_named_for_python_too(tmp_path):
    """Errors of a reader that the command line and Python share."""
    refused(r"--delimiter ';' \(in Python delimiter=';'\)", text(tmp_path, "a|b\n1|2\n"), "y", delimiter=",")
    refused(r"--target-is numbers \(in Python target_is='numbers'\)", text(tmp_path, "a,y\n1,0.5\n2,1.5\n"), "y")
    refused(r"--decimal , \(in Python decimal=','\)", text(tmp_path, 'a,y\n"1,5",u\n"2,5",v\n'), "y")
    refused(r"given --impute \(read_table\(…, prepare=\['impute'\]\)", text(tmp_path, "a,y\n1,u\n,v\n"), "y")
    refused(r"given --one-hot \(read_table\(…, prepare=\['one_hot'\]\)", text(tmp_path, "a,y\nx,u\nz,v\n"), "y")
    with pytest.warns(UserWarning, match=r"--decimal \. \(in Python decimal='\.'\)"):
        read_table(text(tmp_path, "a;y\n1,5;u\n2,5;v\n"), "y")


def test_warnings_point_at_who_asked(tmp_path):
    """Not at a line of the library, nor past the user's own."""
    path = text(tmp_path, "key;a;y\nxa;1,5;u\nxb;2,5;v\nxc;3,5;u\n")
    with pytest.warns(UserWarning) as told:
        read_table(path, "y", prepare="auto")
    assert len(told) == 2 and {w.filename for w in told} == {__file__}
    with pytest.warns(UserWarning) as told:
        read_table(pd.DataFrame({"key": ["xa", "xb", "xc"], "a": [1.0, np.inf, 2.0]}), prepare="auto")
    assert len(told) == 2 and {w.filename for w in told} == {__file__}


def test_preparation_by_the_words_of_the_command_line():
    frame = pd.DataFrame({"x": [1.0, np.nan, 2.0, 3.0], "c": ["a", "b", "a", "b"]})
    every = read_table(frame, prepare=("impute", "one_hot", "dates", "ids")).X
    pd.testing.assert_frame_equal(read_table(frame, prepare="auto").X, every)
    refused("not numbers: c", frame, prepare="none")
    assert read_table(frame[["x"]], prepare="impute").X["x"].isna().sum() == 1
    refused("prepare='automatic' is unknown", frame, prepare="automatic")
