"""Reading WebShop's own files: streamed, checked, on demand."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.environments.registry import make
from starpo.environments.webshop import json_stream
from starpo.environments.webshop.files import ShopFiles, load_catalogue
from starpo.environments.webshop.generator import Difficulty, generate_catalogue, generate_records
from starpo.environments.webshop.json_stream import stream_list, stream_object
from starpo.errors import UserError

SIZE = 60
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def shop(tmp_path):
    """The three files of a generated catalogue of ``SIZE`` products, all with human wishes."""
    records, attributes, human = [], {}, {}
    spoken = generate_records(SIZE, 0, Difficulty.NORMAL, "human")
    synthetic = generate_records(SIZE, 0, Difficulty.NORMAL, "synthetic")
    for (record, mined, wishes), (_, _, wanted) in zip(spoken, synthetic, strict=True):
        records.append(record)
        attributes[record["asin"]] = {
            "attributes": list(mined),
            "instruction": wanted[0].request,
            "instruction_attributes": list(wanted[0].attributes),
        }
        human[record["asin"]] = [
            {
                "instruction": f"{wish.request}.",
                "instruction_attributes": list(wish.attributes),
                "instruction_options": [value for _, value in wish.options],
            }
            for wish in wishes
        ]
    write(tmp_path, "items_shuffle_1000.json", records)
    write(tmp_path, "items_ins_v2_1000.json", attributes)
    write(tmp_path, "items_human_ins.json", human)
    return tmp_path


def write(folder, name, content):
    (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def read(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


@given(content=st.lists(values, max_size=6), indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
def test_any_list_is_streamed_with_the_bytes_of_each_element(tmp_path_factory, content, indent, ascii_only):
    path = tmp_path_factory.mktemp("json") / "list.json"
    path.write_text(
        json.dumps(content, indent=indent, ensure_ascii=ascii_only), encoding="utf-8", errors="replace"
    )
    expected = json.loads(path.read_text(encoding="utf-8"))
    raw = path.read_bytes()
    found = list(stream_list(path))
    assert [each.value for each in found] == expected
    assert [each.number for each in found] == list(range(1, len(expected) + 1))
    assert [json.loads(raw[each.offset : each.offset + each.size]) for each in found] == expected


@pytest.mark.parametrize("block", [1, 2, 7, 64])
def test_blocks_may_end_anywhere(tmp_path, monkeypatch, block):
    monkeypatch.setattr(json_stream, "BLOCK_BYTES", block)
    content = {"é": [1, 23.5, "ü"], "b": 1234567, "c": {"d": None}, "e": -1}
    write(tmp_path, "object.json", content)
    raw = (tmp_path / "object.json").read_bytes()
    found = list(stream_object(tmp_path / "object.json"))
    assert {each.key: each.value for each in found} == content
    assert [json.loads(raw[each.offset : each.offset + each.size]) for each in found] == list(
        content.values()
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"a": 1}, {"a": ', r"element 2 at byte 11; the file is cut off or damaged"),
        ('[{"a": 1}, ', r"element 2"),
        ('[{"a": 1}', "the file ends"),
        ('[{"a": 1} {"a": 2}]', "found '{', expected ',' or ']'"),
        ('{"a": 1}', "begins with '{', expected a JSON list"),
        ("", "the file ends"),
        (b"[\xff]", "not UTF-8"),
    ],
)
def test_damaged_files_are_named_with_the_element_and_the_byte(tmp_path, content, message):
    path = tmp_path / "broken.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message) as caught:
        list(stream_list(path))
    assert str(path) in str(caught.value)


def test_a_huge_element_is_taken_for_damage_instead_of_filling_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "MAX_ELEMENT_CHARACTERS", 100)
    monkeypatch.setattr(json_stream, "BLOCK_BYTES", 50)
    (tmp_path / "open.json").write_text('["' + "x" * 10_000)
    with pytest.raises(UserError, match="element 1 at byte 1"):
        list(stream_list(tmp_path / "open.json"))


@pytest.mark.parametrize("goals", ["synthetic", "human"])
def test_a_catalogue_from_files_is_the_one_they_were_written_from(shop, goals):
    loaded = load_catalogue(ShopFiles.find(shop, goals))
    generated = generate_catalogue(SIZE, 0, Difficulty.NORMAL, goals)
    assert list(loaded.products) == list(generated.products)
    assert loaded.products[3:5] == [generated.products[3], generated.products[4]]
    assert len(loaded.goals) == len(generated.goals)
    numbers = range(0, len(loaded.goals), 7)
    assert [loaded.goals[number] for number in numbers] == [generated.goals[number] for number in numbers]
    assert loaded.index.top("soft cotton shirt", 50) == generated.index.top("soft cotton shirt", 50)
    with pytest.raises(IndexError):
        loaded.products[SIZE]


def test_a_given_number_of_products_is_read_and_the_environment_plays_on_them(shop):
    env = make("webshop", path=str(shop), products=20, goals="human")
    assert len(env.catalogue.products) == 20
    observation, _ = env.reset(seed=1)
    assert env.goal.instruction in observation
    assert make("webshop", path=str(shop), products=20, goals="human").catalogue is env.catalogue


def test_overlong_and_repeated_ids_are_dropped_and_unknown_ones_have_no_attributes(shop):
    records = read(shop, "items_shuffle_1000.json")
    odd = [{**records[0], "asin": "B0TOOLONG00"}, {**records[0], "asin": "nan"}, dict(records[1])]
    new = {**records[0], "asin": "B0NEW", "small_description": "one line", "customization_options": ""}
    write(shop, "items_shuffle_1000.json", [*records[:5], *odd, new])
    catalogue = load_catalogue(ShopFiles.find(shop, "synthetic"))
    assert [each.id for each in catalogue.products[:]] == [*(each["asin"] for each in records[:5]), "B0NEW"]
    last = catalogue.products[5]
    assert (last.attributes, last.bullets, last.options) == ((), ("one line",), {})


def damage_product(shop):
    records = read(shop, "items_shuffle_1000.json")
    del records[4]["name"]
    write(shop, "items_shuffle_1000.json", records)


def damage_option(shop):
    records = read(shop, "items_shuffle_1000.json")
    records[0]["customization_options"] = {"Size": ["Small"]}
    write(shop, "items_shuffle_1000.json", records)


def damage_id(shop):
    write(shop, "items_shuffle_1000.json", [*read(shop, "items_shuffle_1000.json"), ["no product"]])


def cut_off(shop):
    path = shop / "items_shuffle_1000.json"
    os.truncate(path, path.stat().st_size // 2)


def other_attributes(shop):
    write(shop, "items_ins_v2_1000.json", {"B0OTHER": {"attributes": ["soft"]}})


def wrong_attributes(shop):
    write(shop, "items_ins_v2_1000.json", {"B0OTHER": {"attributes": "soft"}})


def no_instructions(shop):
    write(
        shop,
        "items_ins_v2_1000.json",
        {name: {"attributes": []} for name in read(shop, "items_ins_v2_1000.json")},
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_product, r"items_shuffle_1000.json: product 5 \(B0\w+\): 'name' is None, expected a text"),
        (damage_option, r"product 1 \(B0\w+\): option 'Size' is \['Small'\]"),
        (damage_id, rf"product {SIZE + 1} has no 'asin' text; found \"\['no product'\]\""),
        (cut_off, "items_shuffle_1000.json: .* in element .* at byte .*cut off or damaged"),
        (other_attributes, f"items_ins_v2_1000.json: knows none of the {SIZE} products"),
        (wrong_attributes, "entry 'B0OTHER': attributes is 'soft', expected a list of texts"),
        (no_instructions, f"items_ins_v2_1000.json: has no instruction for any of the {SIZE} products"),
        (lambda shop: write(shop, "items_shuffle_1000.json", []), "holds no product"),
        (lambda shop: (shop / "items_ins_v2_1000.json").unlink(), "items_ins_v2_1000.json is missing"),
        (lambda shop: (shop / "items_shuffle_1000.json").unlink(), "holds none of items_shuffle_1000.json"),
        (lambda shop: write(shop, "items_shuffle.json", []), "give the path of the product file to use"),
    ],
)
def test_broken_sets_are_refused_with_the_file_and_the_record(shop, damage, message):
    damage(shop)
    with pytest.raises(UserError, match=message):
        load_catalogue(ShopFiles.find(shop, "synthetic"))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("text", "entry 'B0VN76MM00' is 'text', expected a list"),
        (["text"], "expected an object with an 'instruction' text"),
        ([{"instruction": "buy", "instruction_options": 3}], "instruction_options is 3"),
    ],
)
def test_broken_human_instructions_are_refused_with_the_product(shop, entry, message):
    write(shop, "items_human_ins.json", {"B0VN76MM00": entry})
    with pytest.raises(UserError, match=message):
        load_catalogue(ShopFiles.find(shop / "items_shuffle_1000.json", "human"))


def test_human_wishes_without_an_attribute_are_left_out_and_mappings_are_read(shop):
    human = read(shop, "items_human_ins.json")
    name = next(iter(human))
    wish = {
        "instruction": "buy it.",
        "instruction_attributes": ["soft"],
        "instruction_options": {"color": "red"},
    }
    write(shop, "items_human_ins.json", {name: [{**wish, "instruction_attributes": []}, wish]})
    goals = load_catalogue(ShopFiles.find(shop, "human")).goals
    assert len(goals) == 1
    assert goals[0].options == (("color", "red"),)
    assert goals[0].instruction.startswith("buy it, and price lower than")


def test_another_path_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"expected a folder or a file named items_shuffle_1000\.json or"):
        ShopFiles.find(tmp_path / "products.csv", "human")


def test_a_file_that_changes_under_a_running_shop_is_noticed(shop):
    catalogue = load_catalogue(ShopFiles.find(shop, "synthetic"))
    path = shop / "items_shuffle_1000.json"
    os.truncate(path, 100)
    with pytest.raises(UserError, match="changed since it was loaded"):
        catalogue.products[SIZE - 1]
