"""How fast the shop is: building a catalogue, steps, searches, demonstrations; and the memory of a huge index.

    make bench-webshop                                  the generated shops, half a minute
    .venv/bin/python benchmarks/webshop.py --products 200000      a catalogue in files of that size, and its search

Times are processor seconds of this process, so that what else the machine does hardly counts. Exits with status 1
below ``STEPS_FLOOR`` steps per second.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from starpo.environments.registry import make
from starpo.environments.webshop.environment import WebShop
from starpo.environments.webshop.files import ShopFiles, load_catalogue
from starpo.environments.webshop.generator import Difficulty, generate_catalogue, generate_records
from starpo.environments.webshop.oracle import optimal_actions_for

STEPS_FLOOR = 2000
#: Turns of a random episode, as many as RAGEN allows.
TURNS = 9
EPISODES = 400
#: Of a catalogue in files: a product's description has some 100 words, and the texts a long tail of rare ones.
WORDS_ADDED = 80
VOCABULARY = 500_000
SEARCHES = 300


@contextmanager
def timed(label: str, amount: int | None = None, unit: str = "") -> Iterator[dict[str, float]]:
    """Print the processor seconds of the block, and ``amount`` per second where one is given (or set later)."""
    found: dict[str, float] = {} if amount is None else {"amount": amount}
    start = time.process_time()
    yield found
    found["seconds"] = time.process_time() - start
    rate = f"{found['amount'] / found['seconds']:12,.0f} {unit}/s" if "amount" in found else ""
    print(f"{label:58} {found['seconds']:8.2f} s {rate}")


def browse(env: WebShop) -> int:
    """Half the episodes by the oracle, half at random, each with searches of its own; returns the steps."""
    draw = np.random.default_rng(0)
    plans = {}
    for seed in range(0, EPISODES, 2):
        env.reset(seed=seed)
        plans[seed] = optimal_actions_for(env)
    steps = 0
    with timed("steps, half oracle, half random, search included", unit="steps") as found:
        for seed in range(EPISODES):
            env.reset(seed=seed)
            done, turn = False, 0
            plan = plans.get(seed)
            while not done and turn < TURNS:
                *_, done, _, _ = env.step(plan[turn] if plan else env.random_action(draw))
                turn += 1
            steps += turn
        found["amount"] = steps
    return int(steps / found["seconds"])


def search_queries(env: WebShop, count: int) -> list[str]:
    """What agents would ask: the instructions of ``count`` goals."""
    queries = []
    for seed in range(count):
        env.reset(seed=seed)
        queries.append(env.goal.instruction)
    return queries


def generated() -> int:
    with timed("build: generated catalogue of 1,000 products"):
        generate_catalogue(1000, 0, Difficulty.NORMAL, "synthetic")
    env = make("webshop")
    assert isinstance(env, WebShop)
    rate = browse(env)
    queries = search_queries(env, SEARCHES)
    with timed("searches with whole instructions, none remembered", len(queries), "searches"):
        for query in queries:
            env.catalogue.index.top(query, 50)
    for name, count in (("webshop", 200), ("webshop_easy", 4000)):
        shop = make(name)
        assert isinstance(shop, WebShop)
        with timed(f"optimal episodes of {name}", count, "episodes"):
            for seed in range(count):
                shop.reset(seed=seed)
                for action in optimal_actions_for(shop):
                    shop.step(action)
    return rate


def invented_words(count: int) -> np.ndarray:
    """Words that no generated text has, the first ones to be drawn most often."""
    return np.array([f"{'bdfgklmnprstvz'[n % 14]}{'aeiou'[n % 5]}{n:x}" for n in range(count)])


def write_files(folder: Path, products: int) -> None:
    """A catalogue of generated records as WebShop's own files hold it, with descriptions as long as real ones.

    ``WORDS_ADDED`` words of a vocabulary of ``VOCABULARY`` by Zipf's law lengthen each description.
    """
    draw = np.random.default_rng(0)
    vocabulary = invented_words(VOCABULARY)
    chances = np.cumsum(1 / np.arange(1, VOCABULARY + 1))
    chances /= chances[-1]
    with (
        (folder / "items_shuffle.json").open("w") as items,
        (folder / "items_ins_v2.json").open("w") as attributes,
    ):
        items.write("[")
        attributes.write("{")
        records = generate_records(products, 0, Difficulty.NORMAL, "synthetic")
        for number, (record, mined, wishes) in enumerate(records):
            comma = ", " if number else ""
            added = vocabulary[np.searchsorted(chances, draw.random(WORDS_ADDED))]
            record["full_description"] += f" {' '.join(added.tolist())}"
            items.write(comma + json.dumps(record))
            entry = {
                "attributes": mined,
                "instruction": wishes[0].request,
                "instruction_attributes": wishes[0].attributes,
            }
            attributes.write(f"{comma}{json.dumps(record['asin'])}: {json.dumps(entry)}")
        items.write("]")
        attributes.write("}")


def memory_gib() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def from_files(products: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with timed(f"write the files of {products:,} products", products, "products"):
            write_files(folder, products)
        size = sum(each.stat().st_size for each in folder.iterdir()) / 2**30
        print(f"files: {size:.2f} GiB; memory before loading {memory_gib():.2f} GiB")
        with timed("load and index", products, "products"):
            catalogue = load_catalogue(ShopFiles.find(folder, "synthetic"))
        print(
            f"memory at most {memory_gib():.2f} GiB, of it the index's arrays {catalogue.index.nbytes / 2**30:.2f} "
            f"GiB; {len(catalogue.index.scores):,} postings, {len(catalogue.index.numbers):,} terms, "
            f"{len(catalogue.goals):,} goals"
        )
        env = WebShop(catalogue=catalogue)
        queries = search_queries(env, SEARCHES)
        with timed("searches with whole instructions", len(queries), "searches"):
            for query in queries:
                catalogue.index.top(query, 50)
        with timed("searches with their first four words", len(queries), "searches"):
            for query in queries:
                catalogue.index.top(" ".join(query.split()[:4]), 50)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--products", type=int, help="size of a catalogue in files, such as 200000")
    arguments = parser.parse_args()
    if arguments.products:
        from_files(arguments.products)
        return 0
    rate = generated()
    if rate < STEPS_FLOOR:
        print(f"below the floor of {STEPS_FLOOR:,} steps/s")
    return int(rate < STEPS_FLOOR)


if __name__ == "__main__":
    sys.exit(main())
