"""The covering program over candidate instances, solved by HiGHS: first relaxed, then in integers."""

from __future__ import annotations

import highspy
import numpy as np

from starburst.policy.packing.classes import Bools, Floats, Ints
from starburst.policy.packing.covering.candidates import Candidates
from starburst.policy.packing.covering.certificate import solver

FEASIBLE = highspy.SolutionStatus.kSolutionStatusFeasible


class Program:
    """Minimise Σ cost·x so that each task is covered and each running instance is used at most once.

    Rows are the classes, then the kinds of running instances; all instances of a `needed` kind must be used.
    Costs are in dollars per hour.
    """

    def __init__(self, counts: Ints, machines: Ints, needed: Bools) -> None:
        self._classes = len(counts)
        self._highs = solver()
        lp = highspy.HighsLp()
        lp.num_row_ = len(counts) + len(machines)
        lp.row_lower_ = np.concatenate([counts.astype(float), np.where(needed, machines, -highspy.kHighsInf)])
        lp.row_upper_ = np.concatenate([np.full(len(counts), highspy.kHighsInf), machines.astype(float)])
        self._highs.passModel(lp)

    def add(self, columns: Candidates, costs: Floats) -> None:
        """Add candidates."""
        rows, cells = np.nonzero(columns.load)
        values = columns.load[rows, cells].astype(float)
        running = np.flatnonzero(columns.machine >= 0)
        rows = np.concatenate([rows, running])
        cells = np.concatenate([cells, self._classes + columns.machine[running]])
        values = np.concatenate([values, np.ones(len(running))])
        order = np.lexsort((cells, rows))
        starts = np.searchsorted(rows[order], np.arange(len(columns)))
        none, ends = np.zeros(len(columns)), np.full(len(columns), highspy.kHighsInf)
        self._highs.addCols(
            len(columns),
            costs,
            none,
            ends,
            len(values),
            starts.astype(np.int32),
            cells[order].astype(np.int32),
            values[order],
        )

    def relaxed(self) -> tuple[Floats, Floats] | None:
        """Dual prices of the classes and of the kinds of running instances at the relaxed optimum.

        None if the solver finds no optimum.
        """
        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        duals = np.array(self._highs.getSolution().row_dual, np.float64)
        return duals[: self._classes], duals[self._classes :]

    def whole(self, incumbent: Floats, *, nodes: int, gap: float) -> Floats:
        """Instances per candidate in the best integer solution found, never worse than `incumbent`."""
        size = self._highs.getNumCol()
        for option, value in (("mip_max_nodes", nodes), ("mip_rel_gap", gap)):
            self._highs.setOptionValue(option, value)
        kinds = np.full(size, highspy.HighsVarType.kInteger.value, np.uint8)
        self._highs.changeColsIntegrality(size, np.arange(size, dtype=np.int32), kinds)
        solution = highspy.HighsSolution()
        solution.col_value = incumbent.tolist()
        self._highs.setSolution(solution)
        self._highs.run()
        # The solver may stop without a solution, or with one within the gap that is worse than the incumbent.
        if self._highs.getInfo().primal_solution_status != FEASIBLE:
            return incumbent
        costs = np.array(self._highs.getLp().col_cost_, np.float64)
        found = np.rint(np.array(self._highs.getSolution().col_value, np.float64))
        return found if costs @ found <= costs @ incumbent else incumbent
