"""The distribution of a recurrence over the blocks, threads and registers of a card."""

import itertools
from typing import NamedTuple


class Kind(NamedTuple):
    """A recurrence of `recurrence.cu`."""

    name: str
    code: int  # the macro KIND of the source
    early: int  # columns per unit of the first recurrent product of a step
    late: int  # columns of the second product, which needs the first: 0 or 1
    saved: int  # values per unit and step that the backward pass reads

    @property
    def gates(self) -> int:
        """Returns the number of blocks in the weights, of H columns each, such as 4 for an LSTM."""
        return self.early + self.late


KINDS = {
    kind.name: kind
    for kind in (
        Kind("lstm", 0, 4, 0, 4),
        Kind("gru_after", 1, 3, 0, 4),
        Kind("gru_before", 2, 2, 1, 3),
        Kind("rau", 3, 4, 1, 5),
    )
}


class Card(NamedTuple):
    """The properties of a GPU that decide about a plan."""

    name: str
    capability: tuple[int, int]
    processors: int  # streaming multiprocessors

    @property
    def has_clusters(self) -> bool:
        """Returns True if the blocks of a cluster can write to each other's shared memory."""
        return self.capability >= (9, 0)


class Plan(NamedTuple):
    """The constants with which a kernel is compiled: its distribution over the card."""

    kind: Kind
    hidden: int  # H
    cluster: int  # blocks that share the units of some rows
    rows: int  # rows of the batch per cluster
    split: int  # threads that share a unit in the forward pass
    back_split: int  # threads that share four units in the backward pass
    prefetch: int  # steps whose inputs are loaded ahead

    def threads(self, is_backward: bool) -> int:
        """Returns the number of threads per block of the backward or of a forward kernel."""
        units = -(-self.hidden // self.cluster)
        count = -(-units // 4) * self.back_split if is_backward else units * self.split
        # A block consists of whole warps of 32 threads.
        return _round_up(count, 32)

    def blocks(self, batch: int, directions: int) -> int:
        """Returns the number of thread blocks for `batch` rows and `directions` directions."""
        return self.cluster * -(-batch // self.rows) * directions

    def constants(self) -> dict[str, int]:
        """Returns the macros of `recurrence.cu` for these constants, such as {"HIDDEN": 100}."""
        return {
            "KIND": self.kind.code,
            "HIDDEN": self.hidden,
            "CLUSTER": self.cluster,
            "ROWS": self.rows,
            "SPLIT": self.split,
            "BACK_SPLIT": self.back_split,
            "PREFETCH": self.prefetch,
        }


CLUSTERS, ROWS, SPLITS, BACK_SPLITS = (1, 2, 4, 8), (1, 2, 4), (4, 8, 16, 32), (16, 32)
_REGISTERS = 65536  # of a multiprocessor, 4 bytes each, on all cards since compute capability 5.0
_MOST_THREADS = 1024  # of a block


def choose_plan(kind: Kind, hidden: int, batch: int, directions: int, card: Card) -> Plan | None:
    """Returns a plan for all rows at once, else that of the fewest blocks; None if none fits."""
    # In the order of time per step: barriers of larger clusters take longer, and so do more rows.
    clusters = CLUSTERS if card.has_clusters else (1,)
    shapes = itertools.product(clusters, ROWS)
    plans = [plan for shape in shapes if (plan := _fit(kind, hidden, *shape)) is not None]
    for plan in plans:
        if plan.blocks(batch, directions) <= card.processors:
            return plan
    return min(plans, key=lambda plan: plan.blocks(batch, directions), default=None)


def _fit(kind: Kind, hidden: int, cluster: int, rows: int) -> Plan | None:
    """Returns the plan with the fewest threads per unit whose weights fit in registers, or None."""
    for split in SPLITS:
        for back_split in BACK_SPLITS:
            # A thread of each unit stores the new state into each block of the cluster.
            if split < cluster:
                continue
            # On an H200 a second step ahead was faster with clusters only, by 2 to 4 %.
            prefetch = 2 if cluster > 1 and rows < 4 else 1
            plan = Plan(kind, hidden, cluster, rows, split, back_split, prefetch)
            forward = kind.gates * -(-hidden // split)
            backward = 4 * sum(
                -(-columns * hidden // back_split) for columns in (kind.early, kind.late)
            )
            # Registers for the values of a step, from the compiler's reports (H 64 to 256).
            values = 16 + 12 * rows
            # The backward pass of a GRU and of a RAU prepares more factors per step than that of an
            # LSTM, and with clusters it also has the addresses of the other blocks.
            more_values = values + 44 if kind.name != "lstm" and cluster > 1 else values
            if _has_registers(plan.threads(False), forward + values) and _has_registers(
                plan.threads(True), backward + more_values
            ):
                return plan
    return None


def _has_registers(threads: int, registers: int) -> bool:
    if threads > _MOST_THREADS:
        return False
    # Registers are allocated for groups of four warps, in units of eight, and at most 255.
    available = min(255, _REGISTERS // _round_up(threads, 128) // 8 * 8)
    return registers <= available


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
