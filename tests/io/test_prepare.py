"""Tables as they come: gaps, categories, dates, keys."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

from isometry import RCA, compare, load
from isometry.io import StoreError, TableError, read_table, save
from isometry.io.prepare import MISSING, STEPS, category_columns, describe, needs_cells, preparation

RNG = np.random.default_rng(0)
N = 60
Y = np.arange(N) % 3


def messy():
    """A table with everything in it; ``a`` and ``b`` tell the classes."""
    frame = pd.DataFrame({"a": Y + RNG.normal(size=N) / 4, "b": RNG.normal(size=N)})
    frame.loc[::7, "a"] = np.nan
    frame["patient_id"] = RNG.permutation(N) * 7 + 1000
    frame["count"] = np.arange(N) + 1
    frame["town"] = np.where(RNG.random(N) < 0.5, "Oslo", "Rome")
    frame.loc[::11, "town"] = np.nan
    frame["day"] = (pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 99, N), unit="D")).strftime("%Y-%m-%d")
    frame["note"] = [f"note {k}" for k in range(N)]
    frame["nothing"] = np.nan
    return frame.assign(kind=Y)


def read(frame, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = read_table(frame, "kind", **{"prepare": STEPS, **options})
    return table, [str(w.message) for w in caught]


def test_decimal_commas_are_neither_categories_nor_names_of_rows(tmp_path):
    """As quoted cells between commas, which pandas writes: numbers would else be coded as text, or left out."""
    frame = pd.DataFrame({"a": np.round(RNG.normal(size=N), 0), "b": RNG.normal(size=N), "kind": Y})
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False, decimal=",")
    with pytest.raises(TableError, match=r"2 columns of text that look like numbers with a decimal comma: a, b.*--dec"):
        read(path)
    assert_array_equal(read(path, decimal=",")[0].X, frame[["a", "b"]])
    assert "," in read(path, decimal=".", drop=["b"])[0].X["a"].iloc[0]


def test_what_names_rows_is_left_out_and_said():
    table, told = read(messy())
    assert table.feature_names == list(table.X.columns) == ["a", "b", "town", "day"]
    assert len(told) == 1
    for why in (
        "patient_id has a different number in each row and is called like a key",
        "count counts the rows",
        "note is text with 60 different cells in 60 rows",
        "nothing is empty",
        "--drop patient_id,count,note,nothing",
    ):
        assert why in told[0]
    filled = "gaps in a are filled with the median of the training part"
    assert describe(table.X) == f"{filled}; town is a category, with gaps as one more"
    assert describe(table.X[table.X["town"] != MISSING]) == f"{filled}; town is a category"


def test_numbers_that_may_name_rows_are_left_out_or_told():
    frame = messy().drop(columns=["patient_id", "count", "note", "nothing"])
    patient = np.delete(np.arange(100_001, 100_001 + N + 2), [5, 17])  # two rows had no label and were left out
    table, told = read(frame.assign(patient=patient))
    assert "patient" not in table.feature_names and "patient counts the rows, some of which are not here" in told[0]
    sparse = RNG.permutation(N) * 1000 + 17
    for cells in (sparse, np.where(np.arange(N) == 4, np.nan, sparse)):
        table, told = read(frame.assign(patient=cells))
        assert "patient" in table.feature_names and not told
        (note,) = [n for n in table.notes if "patient" in n]
        assert "another whole number in each row" in note and "--drop patient" in note
    for name, cells in (("year", 1950 + np.arange(N)), ("rank", RNG.permutation(N + 4)[:N])):
        table, told = read(frame.assign(**{name: cells}))
        assert name in table.feature_names and not told
        assert any(n.startswith(f"{name}: another whole number in each row") for n in table.notes)
    assert "year_id" not in read(frame.assign(year_id=1950 + np.arange(N)))[0].feature_names
    few = read(frame.assign(patient=sparse).head(12))[0]
    assert "patient" in few.feature_names and not [n for n in few.notes if "patient" in n]
    assert not [n for n in read(frame)[0].notes if "whole number" in n]


@pytest.mark.parametrize(
    ("cells", "read_as_number"),
    [
        ([f"{1000 + 7.5 * i:,.2f}" for i in range(N)], True),
        ([f"{1000 + 7.5 * i:.2f} €" for i in range(N)], True),
        ([f"$ {i}.5" for i in range(N)], True),
        ([f"{50 + i / 10} kg" for i in range(N)], True),
        ([f"C{i}" for i in range(N)], False),
        ([f"10.0.{i}.1" for i in range(N)], False),
        ([f"{i}-{i + 1}" for i in range(N)], False),
    ],
)
def test_numbers_with_signs_are_told_from_names_of_rows(cells, read_as_number):
    table, told = read(messy().drop(columns=["patient_id", "count", "note", "nothing"]).assign(paid=cells))
    assert "paid" not in table.feature_names and f"paid is text with {N} different cells in {N} rows" in told[0]
    assert ("if they are numbers, write them" in told[0]) == read_as_number


def test_a_table_of_numbers_comes_with_names_for_a_metric_that_knows_them(tmp_path):
    frame = pd.DataFrame(RNG.normal(size=(30, 3)), columns=["a", "b", "c"])
    kind = np.repeat(["x", "y"], 15)
    frame.assign(kind=kind)[["kind", "c", "a", "b"]].to_csv(tmp_path / "new.csv", index=False)
    model = make_pipeline(StandardScaler(), RCA()).fit(frame, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Z = model.transform(read_table(tmp_path / "new.csv", model=model).X)
    assert_allclose(Z, model.transform(frame))
    unnamed = make_pipeline(StandardScaler(), RCA()).fit(frame.to_numpy(), kind)
    assert isinstance(read_table(tmp_path / "new.csv", drop="kind", model=unnamed).X, np.ndarray)


def test_a_table_is_read_as_a_metric_takes_it(tmp_path):
    """Its columns by their names, with dates as days, gaps and categories; also where the new table lacks some."""
    table = read(messy())[0]
    model = make_pipeline(preparation(table.X, StandardScaler()), RCA()).fit(table.X, table.y)
    save(model, tmp_path / "metric.safetensors")
    model = load(tmp_path / "metric.safetensors")
    path = tmp_path / "new.csv"
    frame = messy().sample(frac=1, axis=1, random_state=0)
    frame.to_csv(path, index=False)
    for given in (frame, path):
        again = read_table(given, "kind", model=model)
        assert again.feature_names == table.feature_names and not [n for n in again.notes if "whole number" in n]
        assert_allclose(model.transform(again.X), model.transform(read(frame)[0].X))
    one = read_table(frame.drop(columns="kind").head(1), model=model).X
    assert model.transform(one).shape == (1, model.transform(table.X).shape[1])
    with pytest.raises(TableError, match="town"):
        read_table(frame.drop(columns="town"), model=model)
    with pytest.raises(TypeError, match=r"got str: isometry\.load reads one"):
        read_table(frame, model="metric.safetensors")
    with pytest.raises(NotFittedError):
        read_table(frame, model=RCA())
    nameless = RCA().fit(table.X[["a", "b"]].fillna(0).to_numpy(), table.y)
    with pytest.raises(TableError, match="the RCA was fitted on 2 features, and table has 3"):
        read_table(frame[["a", "b"]].fillna(0).assign(c=1), model=nameless)


def test_dates_are_days_and_gaps_stay_gaps():
    frame = messy()
    frame.loc[3, "day"] = None
    X = read(frame)[0].X
    expected = (pd.to_datetime(frame["day"]) - pd.Timestamp("1970-01-01")).dt.days.to_numpy(float)
    assert_array_equal(X["day"], expected)  # NaN equals NaN here
    assert np.isnan(X["day"][3])
    assert X["town"][0] == MISSING
    stamped = read(frame.assign(day=pd.to_datetime(frame["day"])))[0].X
    assert_array_equal(stamped["day"], expected)
    hours = read(frame.assign(day="2020/1/31 06:00"))[0].X
    assert_allclose(hours["day"], 18292.25)


def test_days_and_months_are_not_guessed():
    table, told = read(messy().assign(day="01/02/2020"))
    assert "day" not in table.X and "write them as 2020-01-31" in told[0]


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%m/%d/%Y", "%d %b %Y", "%B %d, %Y"])
def test_dates_that_do_not_begin_with_the_year_are_left_out_as_dates(form):
    days = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(N) * 5, unit="D"))
    for cells in (days.dt.strftime(form), days[:2].repeat(N // 2).dt.strftime(form).to_numpy()):  # many values, and few
        table, told = read(messy().assign(day=cells))
        assert "day" not in table.X and "day holds dates" in told[0] and "write them as 2020-01-31" in told[0]


def test_what_becomes_of_dates_is_said():
    (note,) = read(messy())[0].notes
    assert note.startswith("day: dates, taken as days since 1970") and "--drop day" in note
    numbers = messy()[["a", "day", "kind"]].assign(a=1.0, since=pd.Timestamp("2020-01-31"))
    table = read(numbers)[0]
    assert isinstance(table.X, np.ndarray) and table.notes[0].startswith("day, since: dates")
    assert read(numbers, drop=["day", "since"])[0].notes == ()
    compact = pd.to_datetime(messy()["day"]).dt.strftime("%Y%m%d").astype(int)
    (note,) = read(messy().assign(day=compact))[0].notes
    assert note.startswith("day: numbers that read as dates, such as 20") and "write them as 2020-01-31" in note
    assert read(messy().assign(day=compact + 90))[0].notes == ()  # there is no day 90 of a month


def test_days_that_no_calendar_has_are_said_and_left_out():
    frame = messy()
    frame.loc[5, "day"] = "2021-02-31"
    table, told = read(frame)
    assert "day" not in table.X and "day holds dates that no calendar has" in told[0]


def test_spans_of_time_are_days():
    table, _ = read(messy().assign(day=pd.to_timedelta(np.arange(N) * 6, unit="h")))
    assert_allclose(table.X["day"], np.arange(N) / 4)


def test_a_table_of_numbers_is_an_array_as_before():
    frame = pd.DataFrame(RNG.normal(size=(N, 3)), columns=list("abc")).assign(kind=Y)
    plain = read_table(frame, "kind")
    table, told = read(frame)
    assert told == [] and isinstance(table.X, np.ndarray)
    assert_array_equal(table.X, plain.X)


@pytest.mark.parametrize("steps, allowed", [(("impute",), "gaps"), (("one_hot",), "text"), ((), "")])
def test_only_what_is_asked_for_is_let_pass(steps, allowed):
    gaps = pd.DataFrame({"a": [1.0, np.nan, 2.0, 3.0], "kind": [0, 1, 0, 1]})
    text = pd.DataFrame({"a": ["x", "y", "x", "y"], "kind": [0, 1, 0, 1]})
    for what, frame in (("gaps", gaps), ("text", text)):
        if what == allowed:
            assert len(read(frame, prepare=steps)[0].X) == 4
        else:
            told = r"missing or infinite values .* in 1 rows, counted from 0: 1\." if what == "gaps" else "not numbers"
            with pytest.raises(TableError, match=told):
                read(frame, prepare=steps)
    with pytest.raises(TableError, match="prepare='scale' is unknown"):
        read(gaps, prepare=("scale",))


def test_infinite_cells_are_gaps_where_gaps_are_filled():
    table, said = read(pd.DataFrame({"a": [1.0, np.inf, 2.0, 3.0], "kind": [0, 1, 0, 1]}))
    assert_array_equal(table.X["a"], [1.0, np.nan, 2.0, 3.0])
    assert len(said) == 1 and "cells of a are infinite: they count as missing" in said[0]
    assert "(1, counted from 0)" in said[0]


def test_preparation_by_hand():
    X = read(messy())[0].X
    Z = preparation(X, StandardScaler()).fit_transform(X)
    a = X["a"].fillna(X["a"].median())
    assert_allclose(Z[:, 0], (a - a.mean()) / a.std(ddof=0))
    assert Z.shape == (N, 6) and set(np.unique(Z[:, 3:])) == {0.0, 1.0}
    assert_array_equal(Z[:, 3:].sum(axis=1), np.ones(N))  # missing, Oslo, Rome
    numbers = X[["b"]]
    assert isinstance(preparation(numbers, scaler := MinMaxScaler()), MinMaxScaler) and preparation(numbers, scaler)


def test_medians_come_from_the_training_fold_alone():
    """The preparation is fitted anew in each fold: its medians are those of the fold's rows."""
    X = read(messy())[0].X
    seen = []

    class Spy(SimpleImputer):
        def fit(self, X, y=None):
            seen.append(len(X))
            return super().fit(X, y)

    found = compare(X[["a", "b", "day"]], Y, ["RCA"], scaler=make_pipeline(Spy(), StandardScaler()), n_splits=3)
    assert seen == [40] * 9 + [60] and found["RCA"].score is not None and not found["RCA"].failures


@pytest.mark.filterwarnings("ignore:Found unknown categories")
def test_a_pipeline_of_ones_own_sees_the_frame(tmp_path):
    X = read(messy())[0].X
    found = compare(X, Y, ["RCA", "GMML"], scaler=preparation(X, StandardScaler()), n_splits=3)
    assert found.best == "RCA" or found["RCA"].score.mean > 0.6
    assert found.data["feature_names"] == ["a", "b", "town", "day"] and found.data["n_features"] == 4
    model = found.best_estimator
    save(model, tmp_path / "m")
    again = load(tmp_path / "m")
    assert_array_equal(again.transform(X), model.transform(X))
    assert category_columns(again) == ["town"] and needs_cells(again)
    unseen = X.assign(town="Lima")
    assert_array_equal(again.transform(unseen), model.transform(unseen))
    save(again, tmp_path / "n")
    assert (tmp_path / "m").read_bytes() == (tmp_path / "n").read_bytes()


@pytest.mark.parametrize(
    "part",
    [
        SimpleImputer(strategy="most_frequent"),
        SimpleImputer(add_indicator=True),
        make_pipeline(SimpleImputer(strategy="constant", fill_value="none"), OrdinalEncoder()),
        OneHotEncoder(sparse_output=False, handle_unknown="ignore", dtype=np.float32),
    ],
    ids=["most_frequent", "indicator", "ordinal", "one_hot"],
)
def test_usual_transformers_can_be_stored(part, tmp_path):
    X = pd.DataFrame({"a": ["u", "v", np.nan, "u"] * 3, "b": RNG.normal(size=12)})
    columns = ["b"] if isinstance(part, SimpleImputer) and part.add_indicator else ["a"]
    X.loc[0, "b"] = np.nan if columns == ["b"] else 0.0
    model = make_pipeline(ColumnTransformer([("part", part, columns)], remainder="drop"), OneHotEncoder())
    model = make_pipeline(model[0], RCA()) if columns == ["b"] else model[:1]
    model.fit(X, np.arange(12) % 2)
    save(model, tmp_path / "m")
    assert_array_equal(load(tmp_path / "m").transform(X), model.transform(X))


def test_functions_in_a_column_transformer_are_not_stored(tmp_path):
    X = pd.DataFrame(RNG.normal(size=(9, 2)), columns=["a", "b"])
    chosen = ColumnTransformer([("part", StandardScaler(), lambda frame: ["a"])]).fit(X)
    with pytest.raises(StoreError, match="function"):
        save(chosen, tmp_path / "m")


def test_known_categories_stay_categories_and_other_columns_numbers():
    frame = pd.DataFrame({"town": [1, 2], "day": ["2020-01-01", "2020-01-02"], "a": [1.0, np.nan]})
    X = read_table(frame, prepare=STEPS, categories=["town"]).X
    assert list(X["town"]) == ["1", "2"] and X["day"][1] - X["day"][0] == 1
    with pytest.raises(TableError, match=r"a \(text, such as 'x'"):
        read_table(frame.assign(a=["x", "y"]), prepare=STEPS, categories=["town"])


def test_a_file_cannot_start_processes_or_name_other_types(tmp_path):
    from isometry.io.store import _Reader

    X = pd.DataFrame(RNG.normal(size=(9, 2)), columns=["a", "b"])
    model = ColumnTransformer([("part", StandardScaler(), ["a"])], n_jobs=2).fit(X)
    save(model, tmp_path / "m")
    assert load(tmp_path / "m").n_jobs is None
    reader = _Reader({}, old=False, memory_left=0)
    for tree in ({"$type": "os.system"}, {"$dtype": "V99999999"}, {"$type": ["float64"]}):
        with pytest.raises(StoreError, match="unknown type"):
            reader.decode(tree)
    assert reader.decode({"$type": "float32"}) is np.float32


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_embeddings_of_few_bits_are_read_without_a_warning(dtype, tmp_path):
    X = RNG.normal(size=(30, 4)).astype(dtype)
    np.savez(tmp_path / "embeddings.npz", X=X, y=np.arange(30) % 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = read_table(tmp_path / "embeddings.npz", prepare=("dates",))
    assert (np.asarray(table.X).astype(dtype) == X).all() and not table.notes


def test_a_column_with_commas_among_columns_with_points_is_told_apart():
    frame = pd.DataFrame({"a": [0.5, 1.5, 2.5], "b": ["0,5", "1,5", "7,25"], "kind": list("xyx")})
    with pytest.raises(
        TableError, match=r"a column of text that looks like .*: b\. Other columns have .* \(a\).*--drop b"
    ):
        read_table(frame, "kind", prepare=STEPS)


def test_points_where_a_comma_was_asked_for_are_named_as_such_and_the_advice_is_said_once(tmp_path):
    r = np.random.default_rng(0)
    frame = pd.DataFrame(r.normal(size=(30, 2)).round(6), columns=["a", "b"])
    frame["c"] = [f"{v:.6f}".replace(".", ",") for v in r.normal(size=30)]
    frame.assign(kind=list("xyz") * 10).to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(UserWarning, match="left out") as told:
        read_table(tmp_path / "t.csv", "kind", prepare=STEPS, decimal=",")
    (words,) = [str(w.message) for w in told]
    assert words.count("one decimal sign") == 1 and "write them with a point" not in words
    assert "a is text" in words and "b is text" in words


@pytest.mark.parametrize(
    ("known", "new", "taken"),
    [
        (["north", "south", "coast"], "mountain", "as none of those"),
        (["dark", "light"], "red", "as dark"),
        ([f"v{k}" for k in range(24)], "w", "as the rare ones"),
    ],
)
def test_categories_that_are_new_are_named(known, new, taken):
    r = np.random.default_rng(0)
    frame = pd.DataFrame({"x": r.normal(size=96), "where": np.resize(known, 96)})
    y = np.arange(96) % 2
    cells = read_table(frame, prepare=STEPS).X
    model = make_pipeline(preparation(cells, StandardScaler()), RCA()).fit(cells, y)
    with pytest.warns(UserWarning, match=f"where has values that the metric has not seen: {new}. They count {taken}"):
        read_table(frame.assign(where=new), model=model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_table(frame, model=model)


def test_a_column_selector_cannot_be_kept_and_lists_can(tmp_path):
    from sklearn.compose import make_column_selector

    frame = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0], "z": [1.0, 0.0, 1.0, 0.0]})
    model = ColumnTransformer([("n", StandardScaler(), make_column_selector())]).fit(frame)
    with pytest.raises(StoreError, match="list the names of columns"):
        save(make_pipeline(model, RCA()).fit(frame, [0, 0, 1, 1]), tmp_path / "m.safetensors")


def test_text_where_a_fitted_metric_takes_numbers_is_named_and_categories_are_not():
    r = np.random.default_rng(0)
    frame = pd.DataFrame({"x": r.normal(size=30), "where": list("ab") * 15})
    cells = read_table(frame, prepare=STEPS).X
    model = make_pipeline(preparation(cells, StandardScaler()), RCA()).fit(cells, np.arange(30) % 2)
    new = frame.assign(x=["0,5", "1,5", "2,25"] * 10)
    with pytest.raises(
        TableError, match=r"a column of other cells .*: x \(text, such as '0,5'\)\. Write.*--decimal ,"
    ) as told:
        read_table(new, model=model)
    assert "where (" not in str(told.value) and "--drop" not in str(told.value)
